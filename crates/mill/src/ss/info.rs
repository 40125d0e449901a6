//! The output of `-i`, `-m`, `-o` and `-e` for a connection, in the words and the order of
//! iproute2.

use std::fmt::Write as _;

use millstream::survey::{FlowWord as W, FlowWords};

/// The retransmission timeout that iproute2 does not print, in µs.
const RTO_UNSAID_US: u64 = 3_000_000;
/// The slow-start threshold from which on iproute2 does not print it.
const SSTHRESH_UNSAID: u64 = 0xffff;
/// The reordering value that iproute2 does not print.
const REORDERING_UNSAID: u64 = 3;
/// A listener's congestion window in iproute2.
const CWND_INITIAL: u64 = 10;

/// `cubic wscale:7,7 rto:204 …`, without surrounding blanks. `numeric`: rates in bits.
pub fn info(w: &FlowWords, numeric: bool) -> String {
    let mut out = String::new();
    if w.at(W::HasInfo) == 0 {
        if let Some(name) = w.congestion() {
            let _ = write!(out, "{name} cwnd:{CWND_INITIAL}");
        }
        return out;
    }
    settings(w, &mut out);
    counts(w, &mut out);
    rates(w, numeric, &mut out);
    losses(w, &mut out);
    receiver(w, &mut out);
    out.trim_start().to_owned()
}

/// Appends ` key:value` if the value is not 0.
fn some(w: &FlowWords, word: W, key: &str, out: &mut String) {
    if w.at(word) > 0 {
        let _ = write!(out, " {key}:{}", w.at(word));
    }
}

/// Appends ` key:value` in milliseconds if the value is not 0.
fn ms(w: &FlowWords, word: W, key: &str, out: &mut String) {
    if w.at(word) > 0 {
        let _ = write!(out, " {key}:{}", general(w.at(word) as f64 / 1000.0));
    }
}

fn settings(w: &FlowWords, out: &mut String) {
    let names = [" ts", " sack", " ecn", " ecnseen", " fastopen"];
    for (bit, name) in [1, 2, 8, 16, 32].into_iter().zip(names) {
        if w.at(W::Options) & bit != 0 {
            out.push_str(name);
        }
    }
    if let Some(name) = w.congestion() {
        let _ = write!(out, " {name}");
    }
    if w.at(W::Options) & 4 != 0 {
        let _ = write!(out, " wscale:{},{}", w.at(W::SendScale), w.at(W::RecvScale));
    }
    if w.at(W::RtoUs) != RTO_UNSAID_US {
        ms(w, W::RtoUs, "rto", out);
    }
    some(w, W::Backoff, "backoff", out);
    if w.at(W::RttUs) > 0 {
        let [rtt, deviation] = [W::RttUs, W::RttVarUs].map(|word| w.at(word) as f64 / 1000.0);
        let _ = write!(out, " rtt:{}/{}", general(rtt), general(deviation));
    }
    ms(w, W::AtoUs, "ato", out);
    some(w, W::SendMss, "mss", out);
    some(w, W::PathMtu, "pmtu", out);
    some(w, W::RecvMss, "rcvmss", out);
    some(w, W::AdvMss, "advmss", out);
    some(w, W::Cwnd, "cwnd", out);
    if w.at(W::Ssthresh) < SSTHRESH_UNSAID {
        some(w, W::Ssthresh, "ssthresh", out);
    }
}

fn counts(w: &FlowWords, out: &mut String) {
    some(w, W::BytesSent, "bytes_sent", out);
    some(w, W::BytesRetrans, "bytes_retrans", out);
    some(w, W::BytesAcked, "bytes_acked", out);
    some(w, W::BytesReceived, "bytes_received", out);
    some(w, W::SegsOut, "segs_out", out);
    some(w, W::SegsIn, "segs_in", out);
    some(w, W::DataSegsOut, "data_segs_out", out);
    some(w, W::DataSegsIn, "data_segs_in", out);
}

fn rates(w: &FlowWords, numeric: bool, out: &mut String) {
    let rate = |bytes: u64| bits_per_second(bytes as f64 * 8.0, numeric);
    if w.at(W::BbrMinRttUs) > 0 {
        let least = general(w.at(W::BbrMinRttUs) as f64 / 1000.0);
        let _ = write!(out, " bbr:(bw:{},mrtt:{least}", rate(w.at(W::BbrBandwidth)));
        for (word, key) in [
            (W::BbrPacingGain, "pacing_gain"),
            (W::BbrCwndGain, "cwnd_gain"),
        ] {
            if w.at(word) > 0 {
                let _ = write!(out, ",{key}:{}", general(w.at(word) as f64 / 256.0));
            }
        }
        out.push(')');
    }
    let (rtt_us, cwnd, mss) = (w.at(W::RttUs), w.at(W::Cwnd), w.at(W::SendMss));
    if rtt_us > 0 && cwnd > 0 && mss > 0 {
        let bits = cwnd as f64 * mss as f64 * 8e6 / rtt_us as f64;
        let _ = write!(out, " send {}", bits_per_second(bits, numeric));
    }
    some(w, W::LastSentMs, "lastsnd", out);
    some(w, W::LastRecvMs, "lastrcv", out);
    some(w, W::LastAckMs, "lastack", out);
    let pacing = w.at(W::PacingRate);
    if pacing > 0 && pacing != u64::MAX {
        let _ = write!(out, " pacing_rate {}", rate(pacing));
        if w.at(W::PacingRateMax) != u64::MAX {
            let _ = write!(out, "/{}", rate(w.at(W::PacingRateMax)));
        }
    }
    if w.at(W::DeliveryRate) > 0 {
        let _ = write!(out, " delivery_rate {}", rate(w.at(W::DeliveryRate)));
    }
    some(w, W::Delivered, "delivered", out);
    some(w, W::DeliveredCe, "delivered_ce", out);
    if w.at(W::AppLimited) > 0 {
        out.push_str(" app_limited");
    }
    let busy = w.at(W::BusyUs);
    if busy > 0 {
        let _ = write!(out, " busy:{}ms", busy / 1000);
        let limits = [
            (W::RwndLimitedUs, "rwnd_limited"),
            (W::SndbufLimitedUs, "sndbuf_limited"),
        ];
        for (word, key) in limits {
            let limited = w.at(word);
            if limited > 0 {
                let share = 100.0 * limited as f64 / busy as f64;
                let _ = write!(out, " {key}:{}ms({share:.1}%)", limited / 1000);
            }
        }
    }
}

fn losses(w: &FlowWords, out: &mut String) {
    some(w, W::Unacked, "unacked", out);
    let (now, total) = (w.at(W::Retrans), w.at(W::RetransTotal));
    if now > 0 || total > 0 {
        let _ = write!(out, " retrans:{now}/{total}");
    }
    some(w, W::Lost, "lost", out);
    some(w, W::Sacked, "sacked", out);
    some(w, W::DsackDups, "dsack_dups", out);
    if w.at(W::Reordering) != REORDERING_UNSAID {
        some(w, W::Reordering, "reordering", out);
    }
    some(w, W::ReordSeen, "reord_seen", out);
}

fn receiver(w: &FlowWords, out: &mut String) {
    ms(w, W::RecvRttUs, "rcv_rtt", out);
    some(w, W::RecvSpace, "rcv_space", out);
    some(w, W::RecvSsthresh, "rcv_ssthresh", out);
    some(w, W::NotSent, "notsent", out);
    if w.at(W::MinRttUs) != u64::MAX {
        ms(w, W::MinRttUs, "minrtt", out);
    }
    some(w, W::OutOfOrder, "rcv_ooopack", out);
    some(w, W::SendWindow, "snd_wnd", out);
    some(w, W::RecvWindow, "rcv_wnd", out);
}

/// `skmem:(…)` of `-m`. Values that Millstream does not count per socket are 0.
pub fn memory(w: &FlowWords) -> String {
    format!(
        "skmem:(r{},rb{},t0,tb{},f0,w{},o0,bl0,d0)",
        if w.at(W::HasInfo) > 0 {
            w.at(W::RecvQueue)
        } else {
            0
        },
        w.at(W::RecvBuffer),
        w.at(W::SendBuffer),
        if w.at(W::HasInfo) > 0 {
            w.at(W::SendQueue)
        } else {
            0
        },
    )
}

/// `timer:(on,204ms,0)` of `-o`; `None` if no timer is set.
pub fn timer(w: &FlowWords) -> Option<String> {
    let name = match w.at(W::Timer) {
        1 => "on",
        2 => "keepalive",
        3 => "timewait",
        4 => "persist",
        _ => return None,
    };
    let left = time_left(w.at(W::TimerMs));
    Some(format!("timer:({name},{left},{})", w.at(W::TimerTries)))
}

/// A time in the formats of iproute2: `119min`, `1min5sec`, `12sec`, `3.204ms`, `204ms`.
fn time_left(ms: u64) -> String {
    let (minutes, mut seconds, mut ms) = (ms / 60_000, ms / 1000 % 60, ms % 1000);
    let mut out = String::new();
    if minutes > 0 {
        ms = 0;
        let _ = write!(out, "{minutes}min");
        if minutes > 9 {
            seconds = 0;
        }
    }
    if seconds > 0 {
        if seconds > 9 {
            ms = 0;
        }
        let _ = write!(out, "{seconds}{}", if ms > 0 { "." } else { "sec" });
    }
    if ms > 0 {
        let _ = write!(out, "{ms:03}ms");
    }
    out
}

/// `28144616bps`, or `28.1Mbps`.
fn bits_per_second(bits: f64, numeric: bool) -> String {
    if numeric {
        return format!("{bits:.0}bps");
    }
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")];
    match units.iter().find(|(size, _)| bits > *size) {
        Some((size, unit)) => format!("{}{unit}bps", significant(bits / size, 3)),
        None => format!("{}bps", general(bits)),
    }
}

/// A number as by C's `%g`.
fn general(value: f64) -> String {
    significant(value, 6)
}

/// A number with at most `digits` significant digits, without trailing zeros.
fn significant(value: f64, digits: i32) -> String {
    let whole = if value.abs() < 1.0 {
        0
    } else {
        value.abs().log10().floor() as i32 + 1
    };
    let places = usize::try_from(digits - whole).unwrap_or(0);
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_iproute2_writes_them() {
        let texts = [0.023, 5.158, 204.0, 0.0, 1_234.567_8].map(general);
        assert_eq!(texts, ["0.023", "5.158", "204", "0", "1234.57"]);
        let rates = [500.0, 28_144_616.0, 13_135_432_616.0, 191_936_230_624.0];
        let human = rates.map(|rate| bits_per_second(rate, false));
        assert_eq!(human, ["500bps", "28.1Mbps", "13.1Gbps", "192Gbps"]);
        assert_eq!(bits_per_second(28_144_616.4, true), "28144616bps");
    }

    #[test]
    fn times_are_written_as_iproute2_writes_them() {
        let cases = [
            (204, "204ms"),
            (3_204, "3.204ms"),
            (12_345, "12sec"),
            (65_000, "1min5sec"),
            (7_140_500, "119min"),
            (0, ""),
        ];
        for (ms, text) in cases {
            assert_eq!(time_left(ms), text);
        }
    }
}
