//! Header prediction: the check whether a segment is the one that an undisturbed connection
//! expects.

use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::receive::Receiver;
use crate::segment::Segment;
use crate::state::State;
use crate::variables::{Rcv, Snd};

impl Receiver {
    /// True for the next text in order, for an ACK of new data, or for both, without anything else
    /// to note.
    #[inline]
    pub(crate) fn is_predicted(
        &self,
        seg: &Segment,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        rcv: &Rcv,
    ) -> bool {
        let acks_new = seg.ack != snd.una();
        seg.seq == rcv.nxt()
            && seg.flags.without(Flags::PSH) == snd.ecn().plain_ack()
            && !conn_flags.any(ConnFlags::STOPS_PREDICTION)
            && state.is_synchronized()
            && seg.ack.since(snd.una()) <= snd.flight()
            && seg.options.sack.is_empty()
            && !(snd.ecn().is_accurate() && seg.options.accecn.is_present())
            && seg.len <= rcv.wnd()
            && !self.is_overfull()
            && if seg.len > 0 {
                state.receives_data() && !self.refuses_text(state, conn_flags)
            } else {
                acks_new
            }
            // An ACK of our FIN changes the state, so it is not predicted.
            && (!acks_new || !conn_flags.has(ConnFlags::FIN_SENT) || seg.ack != snd.nxt())
            && rcv.stamp_is_current(seg, conn_flags)
    }
}
