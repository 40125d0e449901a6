//! Loss recovery as methods of the connection; [`crate::recovery`] holds the state.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::flight::Flight;
use crate::flight::send_parts::SendParts;
use crate::recovery::View;

mod acked;
mod retransmission;
mod whole_flight;

impl Connection {
    /// The flight, and the parts that its loss recovery consults or changes.
    #[inline(always)]
    pub(crate) fn flight_and_parts(&mut self) -> (&mut Flight, SendParts<'_>) {
        let parts = SendParts {
            state: self.state.get(),
            conn_flags: &mut self.conn_flags,
            snd: &self.snd,
            rx: &self.rx,
            timers: &mut self.timers,
            ecn: &mut self.ecn,
            path: &mut self.path,
        };
        (&mut self.flight, parts)
    }

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
