//! Loss recovery as methods of the connection: [`crate::recovery`] holds the state.

use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::recovery::View;

mod acked;
mod frto;
mod machine;
mod resend;
mod tlp;
mod whole_flight;

impl Connection {
    /// Panics unless records, counts and sequence numbers agree; for tests.
    #[doc(hidden)]
    pub fn check_in_flight(&self, cx: &Cx<'_>) {
        self.check_packing();
        let is_bounded = self.state().is_synchronized() && !self.marks.has(Marks::FAST_OPENED);
        self.flight.recovery().check_in_flight(
            cx.records,
            View::of(&self.snd, &self.timers, self.marks),
            is_bounded,
        );
    }
}
