//! The facts of one ACK, collected on its way through the mechanisms (Linux's flags of `tcp_ack`).

use wire::SeqNumber;

use crate::timestamp::{clock_ms, elapsed_ns};

use super::rate::RateSample;

/// One ACK, as far as it has been evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Ack {
    /// SEG.ACK.
    pub seq: SeqNumber,
    /// SND.UNA before this ACK.
    pub prior_una: SeqNumber,
    /// The end of the highest SACKed segment before this ACK.
    pub prior_highest: SeqNumber,
    /// Segments from SND.UNA to SND.NXT before this ACK.
    pub prior_packets: u32,
    /// Segments delivered on the connection before this ACK.
    pub prior_delivered: u32,
    /// Segments ever marked lost before this ACK.
    pub prior_lost: u32,
    /// Segments presumed in the network before this ACK.
    pub prior_in_flight: u32,
    /// Segments that this ACK acknowledges cumulatively.
    pub acked: u32,
    /// Segments that its SACK blocks newly report, those of D-SACKs included.
    pub sack_delivered: u32,
    /// Bytes that its SACK blocks newly report.
    pub sacked_bytes: u32,
    /// The lowest sequence number that was SACKed late, down to which segments were reordered.
    pub reordered: SeqNumber,
    /// Transmission times of the first and the last newly SACKed segment, of those sent only once;
    /// 0: none.
    pub first_sacked_ns: u64,
    pub last_sacked_ns: u64,
    /// The echoed timestamp, as our clock in milliseconds.
    pub echo_ms: Option<u32>,
    /// Round trip of the latest segment that this ACK acknowledges.
    pub latest_rtt_ns: Option<u64>,
    /// Number of duplicate ACKs that this ACK counts as: 0 or 1.
    pub duplicates: u32,
    /// The delivery rate that this ACK samples.
    pub rate: RateSample,
    /// The segment carries text or a FIN.
    pub data: bool,
    /// The segment updates the window (RFC 9293 3.10.7.4, in Linux's reading).
    pub window_update: bool,
    /// The ACK advances SND.UNA.
    pub advanced: bool,
    /// The ACK covers a segment that was sent more than once.
    pub retrans_acked: bool,
    /// The ACK SACKs new segments.
    pub sacked: bool,
    /// The ACK covers or SACKs segments that were sent only once, before recovery began.
    pub original_acked: bool,
    /// The segment carries a D-SACK.
    pub dsack: bool,
    /// The D-SACK reports the loss probe.
    pub dsack_of_probe: bool,
    /// The ACK reports marks, by ECE or by accurate ECN.
    pub ece: bool,
    /// A retransmission was found lost.
    pub lost_retrans: bool,
    /// The first segment in flight is SACKed, so the receiver reneges.
    pub reneging: bool,
    /// The retransmission timer restarts.
    pub set_timer: bool,
    /// The ACK was probably delayed, so it gives no sample of the least round trip.
    pub maybe_delayed: bool,
}

impl Ack {
    /// The round trip by the echoed timestamp, if SEG.ACK covers something new.
    pub fn rtt_by_echo(&self, now_ns: u64) -> Option<u64> {
        let elapsed_ms = clock_ms(now_ns).wrapping_sub(self.echo_ms?);
        (self.acked > 0).then(|| elapsed_ns(elapsed_ms)).flatten()
    }

    /// True if the ACK is no duplicate.
    pub fn is_no_duplicate(&self) -> bool {
        self.data || self.window_update || self.acked > 0
    }

    /// True if the ACK echoes a timestamp from before `when_ms` of our clock.
    pub fn echoes_before(&self, when_ms: u32) -> bool {
        self.echo_ms
            .is_some_and(|echo_ms| (echo_ms.wrapping_sub(when_ms) as i32) < 0)
    }

    /// True if the ACK covers new data, cumulatively or selectively.
    pub fn is_progress(&self) -> bool {
        self.acked > 0 || self.sacked
    }
}
