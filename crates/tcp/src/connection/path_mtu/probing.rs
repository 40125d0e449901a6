//! Packetization-layer path MTU discovery (RFC 4821), as Linux does it: a search between a size
//! that passes and one that does not, by segments of the size in the middle, made of data that is
//! due anyway.
//!
//! A probe leaves only when there is no loss and when enough data and window follow it for
//! duplicate ACKs to show its loss. A lost probe is no sign of congestion: the upper bound falls,
//! and its data is sent again in segments that fit. After several timeouts in a row a black hole is
//! suspected, and the lower bound is halved.

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;

/// The congestion window below which no probe leaves. A probe takes the place of two segments, and
/// five more must follow it.
const PROBE_CWND_MIN: u32 = 11;
/// Segments that must be able to follow a probe, beyond the reordering that is tolerated.
const FOLLOWERS: u32 = 1;

impl Connection {
    /// Payload of the probe that may leave now.
    #[inline]
    pub(crate) fn path_probe(&self, cx: &Cx<'_>, unsent: u32, usable: u32) -> Option<u32> {
        if !self.marks.has(Marks::PATH_PROBING) || self.path.probe() != 0 {
            return None;
        }
        self.next_path_probe(cx, unsent, usable)
    }

    #[cold]
    fn next_path_probe(&self, cx: &Cx<'_>, unsent: u32, usable: u32) -> Option<u32> {
        let cwnd = self.flight.congestion().cwnd();
        let calm = self.flight.recovery().ca_state() == CaState::Open
            && cwnd >= PROBE_CWND_MIN
            && !self.marks.any(Marks::OUT_OF_ORDER | Marks::RECOVERING);
        if !calm || self.path.search_is_over() {
            return None;
        }
        let len = u32::from(
            self.path.probe_size().checked_sub(
                self.marks.option_bytes()
                    + self
                        .ecn
                        .report_bytes(cx, self.marks, &self.snd, &self.timers, &self.rx),
            )?,
        );
        let mss = u32::from(self.snd.mss());
        let followers = u32::from(self.flight.recovery().reordering()) + FOLLOWERS;
        let needed = len + followers * mss;
        let fits = unsent >= needed
            && usable >= needed
            && self.flight.recovery().segments_in_flight() + 2 <= cwnd;
        fits.then_some(len)
    }
}
