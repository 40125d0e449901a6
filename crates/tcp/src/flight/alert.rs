//! Steps of loss recovery for an ACK that is not plain progress; some also concern the path and the
//! timers. [`machine`](super::machine) draws the states.

use crate::congestion::CaState;
use crate::context::Cx;
use crate::flight::Flight;
use crate::flight::send_parts::SendParts;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Flight {
    /// Takes an ACK that is not plain progress in Open.
    pub(crate) fn alert(&mut self, cx: &mut Cx<'_>, ack: &mut Ack, parts: &mut SendParts<'_>) {
        self.recovery.put(flag::SEND_LOST | flag::SEND_NEW, false);
        self.recovery.forget_sacks_of_nothing();
        if ack.ece {
            // Congestion is proven, so there is nothing to undo.
            self.congestion.forget_threshold();
        }
        if self.waits_for_reneging(cx, ack, parts.timers)
            || self.leave_state(cx, ack, *parts.conn_flags, parts.snd, parts.ecn)
        {
            return;
        }
        let lost = match self.recovery.ca_state() {
            CaState::Recovery => self.ack_in_recovery(
                cx,
                ack,
                *parts.conn_flags,
                parts.snd,
                parts.timers,
                parts.ecn,
            ),
            CaState::Loss => self.ack_in_loss(cx, ack, parts),
            _ => self.ack_before_recovery(cx, ack, parts),
        };
        if lost {
            self.recovery.put(flag::SEND_LOST, true);
            self.recovery.put(flag::SEND_NEW, false);
        }
    }

    fn ack_in_loss(&mut self, cx: &mut Cx<'_>, ack: &mut Ack, parts: &mut SendParts<'_>) -> bool {
        self.take_ack_in_loss(cx, ack, parts);
        if self.recovery.ca_state() != CaState::Loss {
            parts.timers.end_recovery(cx.now_ns);
        }
        self.find_losses(cx, ack, *parts.conn_flags, parts.timers);
        let goes_on = self.recovery.ca_state() == CaState::Open || ack.lost_retrans;
        if goes_on {
            self.ack_before_recovery(cx, ack, parts)
        } else {
            false
        }
    }

    /// Takes an ACK in Open, Disorder and CWR.
    fn ack_before_recovery(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &mut Ack,
        parts: &mut SendParts<'_>,
    ) -> bool {
        if parts.conn_flags.is_reno() {
            if ack.advanced {
                self.recovery.reset_reno_sack();
            }
            self.recovery
                .add_reno_sack(parts.snd, cx.config, cx.counters, ack);
        }
        if matches!(self.recovery.ca_state(), CaState::Open | CaState::Disorder) {
            self.try_undo_dsack(cx, parts.ecn);
        }
        self.find_losses(cx, ack, *parts.conn_flags, parts.timers);
        if self.recovery.lost_out() == 0 {
            self.try_to_open(cx, ack, parts.snd, parts.ecn);
            return false;
        }
        if self.path_probe_lost(cx, parts.conn_flags, parts.snd, parts.path) {
            return false;
        }
        self.enter_recovery(cx, ack.ece, parts.snd, parts.ecn);
        true
    }
}
