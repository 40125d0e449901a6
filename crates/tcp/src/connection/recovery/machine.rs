//! Steps of loss recovery that also concern the path and the timers, for an ACK that is not plain
//! progress. `flight::machine` draws the states.

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Connection {
    /// Takes an ACK that is not plain progress in Open.
    pub(crate) fn alert(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) {
        self.flight
            .recovery_mut()
            .put(flag::SEND_LOST | flag::SEND_NEW, false);
        self.flight.recovery_mut().forget_sacks_of_nothing();
        if ack.ece {
            // Congestion is proven, so there is nothing to undo.
            self.flight.congestion_mut().forget_threshold();
        }
        if self.flight.waits_for_reneging(cx, ack, &mut self.timers)
            || self
                .flight
                .leave_state(cx, ack, self.conn_flags, &self.snd, &mut self.ecn)
        {
            return;
        }
        let lost = match self.flight.recovery().ca_state() {
            CaState::Recovery => self.flight.ack_in_recovery(
                cx,
                ack,
                self.conn_flags,
                &self.snd,
                &mut self.timers,
                &mut self.ecn,
            ),
            CaState::Loss => self.ack_in_loss(cx, ack),
            _ => self.ack_before_recovery(cx, ack),
        };
        if lost {
            self.flight.recovery_mut().put(flag::SEND_LOST, true);
            self.flight.recovery_mut().put(flag::SEND_NEW, false);
        }
    }

    fn ack_in_loss(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) -> bool {
        self.take_ack_in_loss(cx, ack);
        if self.flight.recovery().ca_state() != CaState::Loss {
            self.timers.end_recovery(cx.now_ns);
        }
        self.flight
            .find_losses(cx, ack, self.conn_flags, &mut self.timers);
        let goes_on = self.flight.recovery().ca_state() == CaState::Open || ack.lost_retrans;
        if goes_on {
            self.ack_before_recovery(cx, ack)
        } else {
            false
        }
    }

    /// Takes an ACK in Open, Disorder and CWR.
    fn ack_before_recovery(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) -> bool {
        if self.conn_flags.is_reno() {
            if ack.advanced {
                self.flight.recovery_mut().reset_reno_sack();
            }
            self.flight
                .recovery_mut()
                .add_reno_sack(&self.snd, cx.config, cx.counters, ack);
        }
        if matches!(
            self.flight.recovery().ca_state(),
            CaState::Open | CaState::Disorder
        ) {
            self.flight.try_undo_dsack(cx, &mut self.ecn);
        }
        self.flight
            .find_losses(cx, ack, self.conn_flags, &mut self.timers);
        if self.flight.recovery().lost_out() == 0 {
            self.flight.try_to_open(cx, ack, &self.snd, &mut self.ecn);
            return false;
        }
        if self
            .flight
            .path_probe_lost(cx, &mut self.conn_flags, &self.snd, &mut self.path)
        {
            return false;
        }
        self.flight
            .enter_recovery(cx, ack.ece, &self.snd, &mut self.ecn);
        true
    }
}
