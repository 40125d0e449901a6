//! Access to a connection beyond its interface, for the conversations: the twin that takes no
//! shortcut, and the plan made anew.
//!
//! A module of `connection::output` with the feature `twin`, which only tests of this crate enable.

use super::Connection;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::segment::TransmitClass;

impl Connection {
    /// Turns the shortcuts on or off. Without them every segment goes the general way.
    pub fn set_shortcuts(&mut self, on: bool) {
        self.planned.forget();
        self.conn_flags.put(ConnFlags::NO_SHORTCUTS, !on);
    }

    /// Sequence numbers in flight: SND.NXT - SND.UNA.
    #[must_use]
    pub fn unacked(&self) -> u32 {
        self.snd.flight()
    }

    /// The class of the segment that `poll_transmit` would send first at this time, by a new plan.
    #[must_use]
    pub fn transmit_class(&self, cx: &Cx<'_>) -> TransmitClass {
        self.class_of(self.plan(cx))
    }
}
