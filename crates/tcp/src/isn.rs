//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 section 7.1).
//!
//! One generator per process: its key must be the same wherever a flow of this host may be opened. The stack asks it for
//! every open, active, passive or by reuse of a TIME_WAIT entry.

use wire::siphash::siphash24_words;
use wire::{Addr, FlowKey, SeqNumber};

#[cfg(test)]
mod tests;

/// One tick of the clock M of RFC 9293 section 3.4.1, in nanoseconds.
const TICK_NS: u64 = 4_000;
/// What a new incarnation keeps away from the last one's numbers when its clock is behind them, as in Linux.
const REUSE_GAP: u32 = u16::MAX as u32 + 2;

/// Gives out initial sequence numbers: ISN = M + F(flow, secret).
#[derive(Clone, Debug)]
pub struct IsnGenerator {
    key: [u64; 2],
}

impl IsnGenerator {
    /// A generator with its secret, from the system's random source.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// The initial sequence number for a connection of `flow` that is opened now.
    #[must_use]
    pub fn isn(&self, flow: &FlowKey, now_ns: u64) -> SeqNumber {
        let clock = (now_ns / TICK_NS) as u32;
        SeqNumber(clock.wrapping_add(hash_flow(self.key, flow, [PURPOSE_ISN, 0]) as u32))
    }

    /// As [`IsnGenerator::isn`], for a flow whose last incarnation ended at `floor` (RFC 6191, RFC 9293 3.10.7.4): the
    /// number is beyond `floor` and everything the last one can have had in flight.
    #[must_use]
    pub fn isn_above(&self, flow: &FlowKey, now_ns: u64, floor: SeqNumber) -> SeqNumber {
        let isn = self.isn(flow, now_ns);
        let least = floor + REUSE_GAP;
        if isn.ge(least) { isn } else { least }
    }

    /// What is added to our millisecond clock to give the timestamp values that this pair of addresses sees. The same for
    /// all ports, so that timestamps grow from one connection to the next and RFC 6191 and PAWS keep working.
    #[must_use]
    pub fn timestamp_offset(&self, flow: &FlowKey) -> u32 {
        let pair = FlowKey {
            local_port: 0,
            remote_port: 0,
            ..*flow
        };
        hash_flow(self.key, &pair, [PURPOSE_TIMESTAMP, 0]) as u32
    }
}

/// Our timestamp value (TSval) now: the millisecond clock plus the offset.
#[must_use]
pub fn timestamp_value(now_ns: u64, ts_offset: u32) -> u32 {
    ((now_ns / crate::MILLISECOND_NS) as u32).wrapping_add(ts_offset)
}

/// Separates the uses of one key.
const PURPOSE_ISN: u64 = 1;
const PURPOSE_TIMESTAMP: u64 = 2;

/// The keyed hash of a flow and two more words, for values that outsiders see and must not predict.
pub(crate) fn hash_flow(key: [u64; 2], flow: &FlowKey, more: [u64; 2]) -> u64 {
    let ports = u64::from(flow.local_port) << 16 | u64::from(flow.remote_port);
    if flow.local.is_v4() && flow.remote.is_v4() {
        // Shorter than the other form, so that the two never have one input.
        let pair = u64::from(flow.local.bits() as u32) << 32 | u64::from(flow.remote.bits() as u32);
        return siphash24_words(key, &[pair, ports | more[0] << 32, more[1]]);
    }
    let halves = |addr: Addr| [(addr.bits() >> 64) as u64, addr.bits() as u64];
    let [local_high, local_low] = halves(flow.local);
    let [remote_high, remote_low] = halves(flow.remote);
    siphash24_words(
        key,
        &[
            local_high,
            local_low,
            remote_high,
            remote_low,
            ports,
            more[0],
            more[1],
        ],
    )
}
