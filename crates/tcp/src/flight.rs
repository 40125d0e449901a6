//! Data in flight: loss recovery, congestion control, delivery rate and pacing, which together
//! decide what may leave.
//!
//! Owned by `Connection`.

use wire::SeqNumber;
use wire::tcp::SackBlocks;

use crate::congestion::{Congestion, Moment, SenderView};
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::pacing::{Pacing, RATE_INFINITE};
use crate::pack::{Packing, Usual};
use crate::records::Record;
use crate::recovery::ack::Ack;
use crate::recovery::acked::RemovedRecords;
use crate::recovery::rate::Delivery;
use crate::recovery::{Recovery, View};
use crate::timers::Timers;
use crate::variables::Snd;

mod ack;
mod alert;
mod burst;
mod by_model;
mod ecn_feedback;
mod frto;
mod lone;
mod machine;
mod pace;
mod path_probe;
mod persist;
mod probe_timer;
mod prr;
mod rack;
mod rate;
mod retransmission;
mod retransmit_timer;
mod round_trips;
pub(crate) mod send_parts;
mod send_room;
mod sent;
mod syn_data;
mod timeout;
mod tlp;
mod undo;
mod whole_flight;

/// A connection's control of the data in flight.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Flight {
    recovery: Recovery,
    congestion: Congestion,
    /// Pacing, which decides when data may leave.
    pacing: Pacing,
    delivery: Delivery,
}

impl Flight {
    /// The state without data in flight. `una`: SND.UNA; `cwnd`: the congestion window in segments.
    pub fn new(cx: &Cx<'_>, una: SeqNumber, cwnd: u32) -> Self {
        let recovery = Recovery::new(una, cx.config.dup_acks_max);
        let moment = Moment::at_start(cx.config, cx.now_ns, una, recovery.delivered());
        Flight {
            congestion: Congestion::new(&moment, cx.config.congestion, cwnd),
            recovery,
            pacing: Pacing::new(cx.config),
            delivery: Delivery::new(),
        }
    }

    /// Sets the values of [`new`](Self::new) in place, over those of an earlier connection. Each
    /// part is written once, and nothing is copied.
    #[inline(never)]
    pub fn begin(&mut self, cx: &Cx<'_>, una: SeqNumber, cwnd: u32) {
        let Flight {
            recovery,
            congestion,
            pacing,
            delivery,
        } = self;
        *recovery = Recovery::new(una, cx.config.dup_acks_max);
        let moment = Moment::at_start(cx.config, cx.now_ns, una, recovery.delivered());
        *congestion = Congestion::new(&moment, cx.config.congestion, cwnd);
        *pacing = Pacing::new(cx.config);
        *delivery = Delivery::new();
    }

    /// Starts loss recovery and congestion control anew, after our SYN was answered.
    pub(crate) fn begin_established(&mut self, cx: &Cx<'_>, cwnd: u32, snd: &Snd) {
        self.recovery = Recovery::new(snd.una(), cx.config.dup_acks_max);
        let choice = self.congestion.choice(cx.config);
        self.congestion = Congestion::new(&self.moment(cx, snd), choice, cwnd);
    }

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Flight {
            recovery,
            congestion,
            pacing,
            delivery,
        } = self;
        recovery.pack(p, usual);
        congestion.pack(p, usual);
        pacing.pack(p);
        delivery.pack(p, usual);
    }

    /// The sender at this moment, for congestion control.
    #[inline]
    pub(crate) fn moment<'a>(&self, cx: &Cx<'a>, snd: &Snd) -> Moment<'a> {
        // Built as the result itself: a separate value would be copied on every ACK.
        Moment {
            config: cx.config,
            sender: SenderView {
                now_ns: cx.now_ns,
                una: snd.una(),
                nxt: snd.nxt(),
                delivered: self.recovery.delivered(),
                delivered_ce: self.recovery.delivered_ce(),
                lost: self.recovery.lost(),
                mss: u32::from(snd.mss()),
                delivered_ns: self.delivery.delivered_ns(),
                pacing_rate: match self.pacing.rate() {
                    RATE_INFINITE => 0,
                    rate => rate,
                },
                paced: self.pacing.is_on(),
            },
        }
    }

    /// Updates `RECOVERING` when recovery may have begun or ended. Header prediction and the plan
    /// depend on that flag.
    #[inline]
    pub(crate) fn after_recovery_event(&self, conn_flags: &mut ConnFlags) {
        let disturbed = self.recovery.is_disturbed();
        conn_flags.put(ConnFlags::RECOVERING, disturbed);
    }

    /// Takes the SACK blocks of an ACK. SND.UNA has been advanced.
    pub(crate) fn take_sack(
        &mut self,
        cx: &mut Cx<'_>,
        blocks: &SackBlocks,
        ack: &mut Ack,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) {
        self.recovery.take_sack(
            cx,
            View::of(snd, timers, conn_flags),
            &mut self.delivery,
            blocks,
            ack,
        );
    }

    /// Notes that one segment up to `end` leaves while nothing is in flight and the state is Open.
    #[inline(always)]
    pub(crate) fn note_first_sent(
        &mut self,
        cx: &mut Cx<'_>,
        end: SeqNumber,
        tags: u16,
        snd: &Snd,
    ) {
        self.recovery
            .note_first_sent(cx.records, snd, &mut self.delivery, end, tags);
    }

    /// Removes the records that SEG.ACK covers. Returns the first remaining record.
    #[inline(always)]
    pub(crate) fn take_acked(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &mut Ack,
        removed: &mut RemovedRecords,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> Option<Record> {
        let view = View::of(snd, timers, conn_flags);
        self.recovery
            .take_acked(cx, view, &mut self.delivery, ack, removed)
    }

    /// Notes that the loss probe, sent from `seq` on, was a retransmission.
    pub(crate) fn note_probe_retransmitted(
        &mut self,
        cx: &mut Cx<'_>,
        seq: SeqNumber,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) {
        let view = View::of(snd, timers, conn_flags);
        self.recovery
            .note_probe_retransmitted(cx, view, &mut self.delivery, seq);
    }

    /// Notes that lost data has left again from `seq` to `end`. True if it was the first segment in
    /// flight.
    pub(crate) fn note_retransmitted(
        &mut self,
        cx: &mut Cx<'_>,
        seq: SeqNumber,
        end: SeqNumber,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> bool {
        let view = View::of(snd, timers, conn_flags);
        self.recovery
            .note_retransmitted(cx, view, &mut self.delivery, seq, end)
    }

    /// Notes reordering: data beyond `low`, which was sent only once, arrived before it.
    pub(crate) fn check_reordering(
        &mut self,
        cx: &mut Cx<'_>,
        low: SeqNumber,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) {
        self.recovery
            .check_reordering(cx, View::of(snd, timers, conn_flags), low);
    }

    /// The end of the highest SACKed segment; SND.UNA if there is none (FACK).
    #[inline]
    pub(crate) fn highest_sacked(
        &self,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> SeqNumber {
        self.recovery
            .highest_sacked(View::of(snd, timers, conn_flags))
    }
}

/// Access to the parts, for events that concern one of them.
impl Flight {
    /// Loss recovery.
    #[inline(always)]
    pub fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    /// Congestion control.
    #[inline(always)]
    pub fn congestion_mut(&mut self) -> &mut Congestion {
        &mut self.congestion
    }

    /// Pacing, which decides when data may leave.
    #[inline(always)]
    pub fn pacing_mut(&mut self) -> &mut Pacing {
        &mut self.pacing
    }

    /// Delivery rate, bursts, and the sender's use of time.
    #[inline(always)]
    pub fn delivery_mut(&mut self) -> &mut Delivery {
        &mut self.delivery
    }
}

/// Read access for other modules.
impl Flight {
    #[inline(always)]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    #[inline(always)]
    pub fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// Pacing, which decides when data may leave.
    #[inline(always)]
    pub fn pacing(&self) -> &Pacing {
        &self.pacing
    }

    #[inline(always)]
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }
}
