//! Initial sequence numbers (RFC 6528), timestamp offsets (RFC 7323 section 7.1) and the start of
//! the search for a local port (RFC 6056).
//!
//! A process has one generator, because any stack of the process may open a flow, and the key must
//! be the same for all. The stack calls it for every open: active, passive, or by reuse of a
//! TIME_WAIT entry.

use wire::siphash::{siphash24_tail, siphash24_words};
use wire::{Addr, FlowKey, SeqNumber};

#[cfg(test)]
mod tests;

/// One tick of the clock M of RFC 9293 section 3.4.1, in nanoseconds.
const TICK_NS: u64 = 4_000;
/// Distance that a new incarnation keeps from the last one's numbers when the clock lies behind
/// them, as in Linux.
const REUSE_GAP: u32 = u16::MAX as u32 + 2;

/// Generator of initial sequence numbers: ISN = M + F(flow, secret).
#[derive(Clone, Debug)]
pub struct IsnGenerator {
    key: [u64; 2],
    /// Cache of the latest address pair and its timestamp offset, because clients often open many
    /// connections to one peer.
    last_offset: Option<(Addr, Addr, u32)>,
}

impl IsnGenerator {
    /// A generator with its secret key, from the system's random source.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        Self {
            key,
            last_offset: None,
        }
    }

    /// The initial sequence number for a connection of `flow` that is opened now.
    #[must_use]
    pub fn isn(&self, flow: &FlowKey, now_ns: u64) -> SeqNumber {
        let clock = (now_ns / TICK_NS) as u32;
        SeqNumber(clock.wrapping_add(self.hash(flow, PURPOSE_ISN)))
    }

    /// Like [`IsnGenerator::isn`], for a flow whose last incarnation ended at `floor` (RFC 6191,
    /// RFC 9293 3.10.7.4). The number lies beyond `floor` and beyond all data that the last
    /// incarnation can have had in flight.
    #[must_use]
    pub fn isn_above(&self, flow: &FlowKey, now_ns: u64, floor: SeqNumber) -> SeqNumber {
        let isn = self.isn(flow, now_ns);
        let least = floor + REUSE_GAP;
        if isn.ge(least) { isn } else { least }
    }

    /// The offset between our millisecond clock and the timestamps for this pair of addresses. It
    /// is the same for all ports, so timestamps grow from one connection to the next, as RFC 6191
    /// and PAWS require.
    #[must_use]
    pub fn timestamp_offset(&mut self, flow: &FlowKey) -> u32 {
        if let Some((local, remote, offset)) = self.last_offset
            && local == flow.local
            && remote == flow.remote
        {
            return offset;
        }
        let pair = FlowKey {
            local_port: 0,
            remote_port: 0,
            ..*flow
        };
        let offset = self.hash(&pair, PURPOSE_TIMESTAMP);
        self.last_offset = Some((flow.local, flow.remote, offset));
        offset
    }

    /// The start of the search for the local port of an active open (RFC 6056 section 3.3.3,
    /// algorithm 3). It is the same for all opens between two addresses to one port, and the peer
    /// can see the order.
    #[must_use]
    pub fn port_start(&self, flow: &FlowKey) -> u32 {
        let portless = FlowKey {
            local_port: 0,
            ..*flow
        };
        self.hash(&portless, PURPOSE_PORT)
    }

    /// 32 bits of the keyed hash of a flow, for values that outsiders see and must not predict.
    fn hash(&self, flow: &FlowKey, purpose: u8) -> u32 {
        let ports = u64::from(flow.local_port) << 16 | u64::from(flow.remote_port);
        let tail = ports | u64::from(purpose) << 32;
        if flow.local.is_v4() && flow.remote.is_v4() {
            return siphash24_tail(self.key, &[pair_v4(flow)], tail) as u32;
        }
        let halves = |addr: Addr| [(addr.bits() >> 64) as u64, addr.bits() as u64];
        let words = [halves(flow.local), halves(flow.remote)];
        siphash24_tail(self.key, words.as_flattened(), tail) as u32
    }
}

/// Our timestamp value (TSval) now: the millisecond clock plus the offset.
#[must_use]
pub fn timestamp_value(now_ns: u64, ts_offset: u32) -> u32 {
    ((now_ns / crate::MILLISECOND_NS) as u32).wrapping_add(ts_offset)
}

/// Separates the uses of the key.
const PURPOSE_ISN: u8 = 1;
const PURPOSE_TIMESTAMP: u8 = 2;
const PURPOSE_PORT: u8 = 3;

/// Both addresses of an IPv4 flow in one word.
fn pair_v4(flow: &FlowKey) -> u64 {
    u64::from(flow.local.bits() as u32) << 32 | u64::from(flow.remote.bits() as u32)
}

/// The keyed hash of a flow and two more words, for cookies, which outsiders see and must not
/// predict.
pub(crate) fn hash_flow(key: [u64; 2], flow: &FlowKey, more: [u64; 2]) -> u64 {
    let ports = u64::from(flow.local_port) << 16 | u64::from(flow.remote_port);
    if flow.local.is_v4() && flow.remote.is_v4() {
        // This input is shorter than the other form's, so the two never coincide.
        return siphash24_words(key, &[pair_v4(flow), ports | more[0] << 32, more[1]]);
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
