//! The path MTU that routers report, and the segment sizes that follow from it.

use crate::congestion::CaState;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::limits::SEND_MSS_MIN;

/// Smallest congestion window in which a probe leaves, in segments. A probe counts as two segments,
/// and five more must follow it.
const PROBE_CWND_MIN: u32 = 11;
/// Segments that must be able to follow a probe, besides the reordering that is tolerated.
const FOLLOWERS: u32 = 1;

impl Connection {
    /// Starts a new connection with the MSS that a router reported on another connection to the
    /// same host: `mss`, valid until `until_ns`. `link_mss` is the MSS of our link, which is tried
    /// when the report is outdated.
    pub fn know_path(&mut self, link_mss: u16, mss: u16, until_ns: u64) {
        self.planned.forget();
        self.path.widen_link(link_mss);
        self.path.take_word(
            mss.max(SEND_MSS_MIN),
            until_ns,
            &mut self.conn_flags,
            &mut self.snd,
            &mut self.tx,
        );
    }

    /// Limits segments to the `link_mss` bytes that our link takes from now on. Segments in flight
    /// that are too long are cut anew and sent again. A larger MSS applies to later connections
    /// only.
    pub fn on_link_mss(&mut self, cx: &mut Cx<'_>, link_mss: u16) -> Effects {
        let effects = self.on_mtu(cx, link_mss, true);
        self.path
            .bound_path(link_mss, self.conn_flags, &mut self.snd, &mut self.tx);
        effects
    }

    /// Payload bytes of the probe that may leave now.
    #[inline]
    pub(crate) fn path_probe(&self, cx: &Cx<'_>, unsent: u32, usable: u32) -> Option<u32> {
        if !self.conn_flags.has(ConnFlags::PATH_PROBING) || self.path.probe() != 0 {
            return None;
        }
        self.next_path_probe(cx, unsent, usable)
    }

    #[cold]
    fn next_path_probe(&self, cx: &Cx<'_>, unsent: u32, usable: u32) -> Option<u32> {
        let cwnd = self.flight.congestion().cwnd();
        let calm = self.flight.recovery().ca_state() == CaState::Open
            && cwnd >= PROBE_CWND_MIN
            && !self
                .conn_flags
                .any(ConnFlags::OUT_OF_ORDER | ConnFlags::RECOVERING);
        if !calm || self.path.search_is_over() {
            return None;
        }
        let len = u32::from(
            self.path.probe_size().checked_sub(
                self.conn_flags.option_bytes()
                    + self
                        .ecn
                        .report_bytes(cx, self.conn_flags, &self.snd, &self.timers, &self.rx),
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
