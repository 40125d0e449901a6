//! Loss recovery as methods of the connection: [`crate::recovery`] holds the state.

use wire::SeqNumber;
use wire::tcp::SackBlocks;

use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::recovery::ack::Ack;

/// The parts of the connection that recovery may read beside its own state.
macro_rules! view {
    ($connection:expr) => {
        crate::recovery::View {
            snd: &$connection.snd,
            tx: &$connection.tx,
            has_sack: $connection.marks.has(crate::marks::Marks::SACK),
        }
    };
}

mod acked;
mod frto;
mod machine;
mod prr;
mod rack;
mod rate;
mod resend;
mod timeout;
mod tlp;
mod undo;
mod whole_flight;

impl Connection {
    /// Recovery may have begun or ended: header prediction and the plan for output depend on it.
    #[inline]
    pub(crate) fn after_recovery_event(&mut self) {
        let disturbed = self.recovery.is_disturbed();
        self.marks.put(Marks::RECOVERING, disturbed);
    }

    /// The peer does not SACK: duplicate ACKs are counted instead.
    #[inline]
    pub(crate) fn is_reno(&self) -> bool {
        !self.marks.has(Marks::SACK)
    }

    /// Takes in the SACK blocks of an ACK. SND.UNA has been advanced.
    pub(crate) fn take_sack(&mut self, cx: &mut Cx<'_>, blocks: &SackBlocks, ack: &mut Ack) {
        self.recovery
            .take_sack(cx, view!(self), &mut self.delivery, blocks, ack);
    }

    /// Reordering: something beyond `low`, which was sent once only, arrived before it.
    pub(crate) fn check_reordering(&mut self, cx: &mut Cx<'_>, low: SeqNumber) {
        self.recovery.check_reordering(cx, view!(self), low);
    }

    /// The end of the highest SACKed segment, SND.UNA if there is none (FACK).
    #[inline]
    pub(crate) fn highest_sacked(&self) -> SeqNumber {
        self.recovery.highest_sacked(view!(self))
    }

    /// Panics unless records, counts and sequence numbers agree; for tests.
    #[doc(hidden)]
    pub fn check_in_flight(&self, cx: &Cx<'_>) {
        self.check_packing();
        let is_bounded = self.state().is_synchronized() && !self.is_fast_opened();
        self.recovery
            .check_in_flight(cx.records, view!(self), is_bounded);
    }
}
