//! `SCM_TIMESTAMPING_OPT_STATS`: values of a connection at the time of a stamp, as netlink
//! attributes in Linux 6.18's order.
//!
//! The hop limit of the ACK (`TCP_NLA_TTL`) is left out, since the stack does not record it.
//! Millstream never rehashes a flow, so the two counters of rehashes are zero.

use millstream::StampStats;

/// Numbers of the attributes (`TCP_NLA_*`).
mod attribute {
    pub const BUSY: u16 = 1;
    pub const RWND_LIMITED: u16 = 2;
    pub const SNDBUF_LIMITED: u16 = 3;
    pub const DATA_SEGS_OUT: u16 = 4;
    pub const TOTAL_RETRANS: u16 = 5;
    pub const PACING_RATE: u16 = 6;
    pub const DELIVERY_RATE: u16 = 7;
    pub const SND_CWND: u16 = 8;
    pub const REORDERING: u16 = 9;
    pub const MIN_RTT: u16 = 10;
    pub const RECUR_RETRANS: u16 = 11;
    pub const DELIVERY_RATE_APP_LMT: u16 = 12;
    pub const SNDQ_SIZE: u16 = 13;
    pub const CA_STATE: u16 = 14;
    pub const SND_SSTHRESH: u16 = 15;
    pub const DELIVERED: u16 = 16;
    pub const DELIVERED_CE: u16 = 17;
    pub const BYTES_SENT: u16 = 18;
    pub const BYTES_RETRANS: u16 = 19;
    pub const DSACK_DUPS: u16 = 20;
    pub const REORD_SEEN: u16 = 21;
    pub const SRTT: u16 = 22;
    pub const TIMEOUT_REHASH: u16 = 23;
    pub const BYTES_NOTSENT: u16 = 24;
    pub const EDT: u16 = 25;
    pub const REHASH: u16 = 27;
}

/// `struct nlattr`: length and type.
const HEADER_LEN: usize = 4;

#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn put(&mut self, kind: u16, value: &[u8]) {
        let len = (HEADER_LEN + value.len()) as u16;
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn long(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_ne_bytes());
    }

    fn word(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1_000).unwrap_or(u32::MAX)
}

/// The attributes of one stamp.
pub(crate) fn opt_stats(stats: &StampStats) -> Vec<u8> {
    use attribute::*;
    let tcp = &stats.tcp;
    let mut all = Attributes::default();
    all.long(BUSY, tcp.busy_time_ns / 1_000);
    all.long(RWND_LIMITED, tcp.rwnd_limited_ns / 1_000);
    all.long(SNDBUF_LIMITED, tcp.sndbuf_limited_ns / 1_000);
    all.long(DATA_SEGS_OUT, tcp.data_segs_out.into());
    all.long(TOTAL_RETRANS, tcp.total_retrans.into());
    all.long(PACING_RATE, tcp.pacing_rate);
    all.long(DELIVERY_RATE, tcp.delivery_rate);
    all.word(SND_CWND, tcp.snd_cwnd);
    all.word(REORDERING, tcp.reordering);
    all.word(MIN_RTT, micros(tcp.min_rtt_ns));
    all.put(RECUR_RETRANS, &[tcp.retransmits]);
    all.put(
        DELIVERY_RATE_APP_LMT,
        &[tcp.delivery_rate_app_limited.into()],
    );
    all.word(SND_SSTHRESH, tcp.snd_ssthresh.min(i32::MAX as u32));
    all.word(DELIVERED, tcp.delivered);
    all.word(DELIVERED_CE, tcp.delivered_ce);
    all.word(SNDQ_SIZE, stats.send_buffered);
    all.put(CA_STATE, &[tcp.ca_state]);
    all.long(BYTES_SENT, tcp.bytes_sent);
    all.long(BYTES_RETRANS, tcp.bytes_retrans);
    all.word(DSACK_DUPS, tcp.dsack_dups);
    all.word(REORD_SEEN, tcp.reord_seen);
    all.word(SRTT, micros(tcp.rtt_ns));
    all.put(TIMEOUT_REHASH, &0_u16.to_ne_bytes());
    all.word(BYTES_NOTSENT, tcp.notsent_bytes);
    all.long(EDT, stats.sent_ns);
    all.word(REHASH, 0);
    all.0
}
