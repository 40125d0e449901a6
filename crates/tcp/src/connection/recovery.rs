//! Loss recovery as methods of the connection; [`crate::recovery`] holds the state.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::View;

mod acked;
mod frto;
mod machine;
mod retransmission;
mod tlp;
mod whole_flight;

impl Connection {
    /// Panics unless records, counts and sequence numbers agree; for tests.
    #[doc(hidden)]
    pub fn check_in_flight(&self, cx: &Cx<'_>) {
        self.check_packing();
        let is_bounded =
            self.state().is_synchronized() && !self.conn_flags.has(ConnFlags::FAST_OPENED);
        self.flight.recovery().check_in_flight(
            cx.records,
            View::of(&self.snd, &self.timers, self.conn_flags),
            is_bounded,
        );
    }
}
