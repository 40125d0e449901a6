//! The connection: its variables, its construction, and the questions that it answers.
//!
//! Call order in a turn: (1) `on_segment` for what arrived, (2) `on_write`, `on_read`,
//! `shutdown_write`, `close`, `abort` for what the application did, (3) `on_timer` for what is due,
//! (4) `poll_transmit` until it returns false, then `deadline_ns()` to arm the timer. Calls (1) to
//! (3) return [`Effects`].
//!
//! * After `Effects::WRITABLE`, first let `take_acked()` bytes leave the send buffer; `on_write`
//!   counts from SND.UNA.
//! * `Effects::TIMER` reports a deadline that came nearer. A deadline that moved away is not
//!   reported: a timer that fires early does no harm, since `on_timer` answers with `TIMER` again.
//! * `Effects::CLOSED` together with `TRANSMIT`: poll the last segment, then remove the connection.
//! * `Effects::TIME_WAIT`: the compact entry may replace the connection at once, after the caller
//!   has taken the `EOF` that came with it and polled the due ACK. In FIN_WAIT_2 the entry must
//!   replace it: the connection would only reset the peer's segments.
//!
//! A run of segments in order may be taken in one visit ([`run`]).
//! The steps, the timers and the output are methods of [`Connection`] in files of their own.

use wire::SeqNumber;

use crate::autotune::Autotune;
use crate::buffers::{Buffers, InitialWindow, Memory};
use crate::challenge::ChallengeLimiter;
use crate::config::Config;
use crate::congestion::{Congestion, Moment};
use crate::context::Cx;
use crate::counters::Counters;
use crate::ecn::EcnState;
use crate::effects::Effects;
use crate::fast_open::FastOpenSyn;
use crate::handshake::{Handshake, TimeWaitEntry};
use crate::limits::timestamp_bytes;
use crate::marks::Marks;
use crate::pacing::{Pacing, RATE_INFINITE};
use crate::path_mtu::Path;
use crate::reassembly::RangePool;
use crate::receive::Receiver;
use crate::records::RecordPool;
use crate::recovery::Recovery;
use crate::recovery::rate::Delivery;
use crate::rtt::RoundTrip;
use crate::segment::{Segment, TransmitClass};
use crate::send::Sender;
use crate::state::{ConnectionError, CurrentState, State};
use crate::timers::{NEVER_NS, Tally, Timers};
use crate::variables::{Cold, Rcv, Snd};
use crate::{MILLISECOND_NS, limits};

mod application;
mod autotune;
mod by_model;
mod ecn;
mod fast_open;
pub mod glance;
mod icmp;
pub mod info;
mod nagle;
mod output;
mod pacing;
mod pack;
mod path_mtu;
mod recovery;
pub mod run;
mod segment_arrives;
mod timers;
mod timestamp;
mod window;

pub use output::{BurstTail, PlainAck};

/// Parameters of an active open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveOpen {
    /// Initial sequence number (RFC 6528).
    pub iss: SeqNumber,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// Our MSS: link MTU less IP and TCP headers.
    pub mss: u16,
    /// The peer's MSS if its SYN names none: 536 over IPv4, 1220 over IPv6 (RFC 9293 MUST-15).
    pub mss_default: u16,
    /// Open fast; `None`: a plain SYN.
    pub fast_open: Option<FastOpenSyn>,
    /// The buffers to begin with.
    pub buffers: Buffers,
}

/// Keep-alive settings of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle_ns: u64,
    /// Time between probes.
    pub interval_ns: u64,
    /// Unanswered probes before the connection fails.
    pub probes_max: u8,
}

/// The numbers that a connection begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// SYN_SENT, SYN_RECEIVED (a Fast Open) or ESTABLISHED (a half-open entry became a connection).
    pub state: State,
    /// ISS
    pub iss: SeqNumber,
    /// SND.UNA and SND.NXT.
    pub una: SeqNumber,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// The congestion window in segments.
    pub cwnd: u32,
}

/// One TCP connection.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Connection {
    snd: Snd,
    rcv: Rcv,
    deadline_ns: u64,
    marks: Marks,
    state: CurrentState,
    error: Option<ConnectionError>,
    /// Shift of the windows that we advertise.
    rcv_shift: u8,
    /// The class of the segment that the last call found to be sent first.
    due: TransmitClass,
    tx: Sender,
    rx: Receiver,
    recovery: Recovery,
    congestion: Congestion,
    /// ECN, both halves.
    ecn: EcnState,
    /// The furthest right edge that was ever advertised (RFC 7323 2.4), while `rx.retracted`.
    promised: SeqNumber,
    /// When data may leave.
    pacing: Pacing,
    cold: Cold,
    path: Path,
    delivery: Delivery,
    tune: Autotune,
}

/// Size of the hot line: the fields before the colder halves.
const HOT_BYTES: usize = core::mem::offset_of!(Connection, tx);
const _: () = assert!(HOT_BYTES == 64);
const _: () = assert!(size_of::<Snd>() <= 32 && size_of::<Rcv>() == 16);
const _: () = assert!(size_of::<Sender>() <= 192);
const _: () = assert!(size_of::<Receiver>() <= 128);
const _: () = assert!(size_of::<Congestion>() <= 128);
const _: () = assert!(size_of::<Cold>() <= 128);
const _: () = assert!(size_of::<Path>() <= 32);
const _: () = assert!(size_of::<Autotune>() <= 64);
const _: () = assert!(size_of::<Connection>() <= 1024 && align_of::<Connection>() == 64);

impl Connection {
    /// Like [`connect_in`](Self::connect_in), in new memory.
    #[must_use]
    pub fn connect(cx: &mut Cx<'_>, open: &ActiveOpen) -> Self {
        let mut connection = Self::unused();
        connection.connect_in(cx, open);
        connection
    }

    /// Like [`accept_in`](Self::accept_in), in new memory.
    #[must_use]
    pub fn accept(cx: &mut Cx<'_>, handshake: &Handshake, buffers: &Buffers) -> Self {
        let mut connection = Self::unused();
        connection.accept_in(cx, handshake, buffers);
        connection
    }

    /// Active open (RFC 9293 3.10.1): SYN_SENT, and a SYN is due. The new connection overwrites the
    /// one in this slot.
    pub fn connect_in(&mut self, cx: &mut Cx<'_>, open: &ActiveOpen) {
        cx.counters.connects += 1;
        let scaling = cx.config.window_scaling;
        let initial = InitialWindow::new(cx.config, &open.buffers, open.mss, scaling);
        let receiver = Receiver::new(cx.now_ns, open.mss, open.buffers.recv_bytes, &initial);
        let first = First {
            state: State::SynSent,
            iss: open.iss,
            una: open.iss,
            ts_offset: open.ts_offset,
            cwnd: Congestion::initial_window(cx.config, false),
        };
        self.begin(cx, &first, &open.buffers, receiver);
        self.tx.peer_mss = open.mss_default;
        self.marks.put(Marks::TIMESTAMPS, cx.config.timestamps);
        self.marks.put(Marks::SACK, cx.config.sack);
        self.ask_for_ecn(cx.config, cx.config.congestion);
        if cx.config.window_scaling {
            self.marks.set(Marks::WINDOW_SCALING);
            self.rcv_shift = initial.shift;
        }
        self.marks.set(Marks::SYN_DUE);
        if let Some(syn) = &open.fast_open {
            self.open_fast(syn);
        }
    }

    /// A completed passive handshake: ESTABLISHED. The new connection overwrites the one in this
    /// slot. The caller gives the completing segment to `on_segment` next.
    pub fn accept_in(&mut self, cx: &mut Cx<'_>, handshake: &Handshake, buffers: &Buffers) {
        cx.counters.accepts += 1;
        cx.counters.established += 1;
        let h = handshake;
        let mss = h.mss.saturating_sub(timestamp_bytes(h.timestamps));
        let initial = InitialWindow::new(cx.config, buffers, mss, h.window_scales.is_some());
        let receiver = Receiver::new(cx.now_ns, h.mss, buffers.recv_bytes, &initial);
        let first = First {
            state: State::Established,
            iss: h.iss,
            una: h.una,
            ts_offset: h.ts_offset,
            cwnd: Congestion::initial_window(cx.config, h.syn_ack_lost),
        };
        self.begin(cx, &first, buffers, receiver);
        self.due = TransmitClass::None;
        self.snd.wnd = h.snd_wnd;
        self.snd.wl1 = h.irs;
        self.rx.take_syn(h.irs);
        self.rx.count_syn();
        self.rcv.nxt = h.irs + 1;
        self.rcv.acked = self.rcv.nxt;
        self.rcv.adv = self.rcv.nxt + initial.window;
        self.rcv.ts_recent = h.ts_recent;
        self.rx.note_timestamp(cx.now_ns);
        self.tx.peer_mss = h.peer_mss;
        self.tx.max_wnd = h.snd_wnd;
        self.marks.put(Marks::TIMESTAMPS, h.timestamps);
        self.marks.put(Marks::SACK, h.sack);
        self.put_ecn(h.ecn);
        if let Some(scales) = h.window_scales {
            self.marks.set(Marks::WINDOW_SCALING);
            self.rcv_shift = scales.ours.min(limits::WINDOW_SHIFT_MAX);
            self.snd.shift = scales.peers.min(limits::WINDOW_SHIFT_MAX);
        }
        match h.rtt_ns {
            Some(rtt_ns) => self.note_round_trip(cx, rtt_ns),
            // RFC 6298 5.7: the SYN-ACK was lost, or a cookie knows nothing of the time.
            None => self.tx.rtt = RoundTrip::new(cx.config.rto_after_syn_loss_ns),
        }
        self.enter_established(cx);
        let again = h.repetitions;
        self.tx.total_retrans = u32::from(again.sent);
        self.tune.ends_handshake = true;
        self.cold.tally = Tally::of_handshake(again.timeouts, again.took_ms);
    }

    /// An empty slot: its value before the first connection is made there.
    #[must_use]
    pub fn unused() -> Self {
        let config = Config::default();
        let (mut challenge, mut counters) = (ChallengeLimiter::new(0), Counters::default());
        let (mut records, mut ranges) = (RecordPool::new(1, 1), RangePool::new(1));
        let cx = Cx {
            now_ns: 0,
            config: &config,
            challenge: &mut challenge,
            counters: &mut counters,
            records: &mut records,
            ranges: &mut ranges,
            memory: Memory::Ample,
        };
        let buffers = Buffers::of(&config);
        let initial = InitialWindow::new(&config, &buffers, 536, false);
        let receiver = Receiver::new(0, 536, buffers.recv_bytes, &initial);
        Self::blank(&cx, &buffers, receiver)
    }

    fn blank(cx: &Cx<'_>, buffers: &Buffers, receiver: Receiver) -> Self {
        let zero = SeqNumber(0);
        let moment = Moment::at_start(cx.config, cx.now_ns, zero);
        let mss = receiver.mss();
        Connection {
            snd: Snd::new(zero, mss),
            rcv: Rcv::NEW,
            deadline_ns: NEVER_NS,
            marks: Marks::default(),
            state: CurrentState::first(State::Closed),
            error: None,
            rcv_shift: 0,
            due: TransmitClass::None,
            tx: blank_sender(cx, zero, 0, mss),
            recovery: Recovery::new(zero, cx.config.dup_acks_max),
            congestion: Congestion::new(&moment, cx.config.congestion, 1),
            ecn: EcnState::default(),
            promised: zero,
            pacing: Pacing::new(cx.config),
            cold: Cold::NEW,
            path: Path::new(mss),
            delivery: Delivery::new(),
            rx: receiver,
            tune: Autotune::new(buffers, mss),
        }
    }

    /// The variables that all opens begin with: each is written once, where it stays.
    pub(crate) fn begin(
        &mut self,
        cx: &Cx<'_>,
        first: &First,
        buffers: &Buffers,
        receiver: Receiver,
    ) {
        let Connection {
            snd,
            rcv,
            deadline_ns,
            marks,
            state,
            error,
            rcv_shift,
            due,
            tx,
            rx,
            recovery,
            congestion,
            ecn,
            promised,
            pacing,
            cold,
            path,
            delivery,
            tune,
        } = self;
        *promised = SeqNumber(0);
        let mss = receiver.mss();
        *snd = Snd::new(first.una, mss);
        *rcv = Rcv::NEW;
        (*deadline_ns, *marks) = (NEVER_NS, Marks::default());
        (*state, *error) = (CurrentState::first(first.state), None);
        (*rcv_shift, *due) = (0, TransmitClass::Opening);
        *tx = blank_sender(cx, first.iss, first.ts_offset, mss);
        tx.small_end = first.una;
        *rx = receiver;
        *recovery = Recovery::new(first.una, cx.config.dup_acks_max);
        let moment = Moment {
            delivered: recovery.delivered(),
            ..Moment::at_start(cx.config, cx.now_ns, first.una)
        };
        *congestion = Congestion::new(&moment, cx.config.congestion, first.cwnd);
        *ecn = EcnState::default();
        *pacing = Pacing::new(cx.config);
        *cold = Cold::NEW;
        *path = Path::new(mss);
        *delivery = Delivery::new();
        *tune = Autotune::new(buffers, mss);
    }

    /// Data may flow from here on, since our SYN was answered: loss recovery and congestion control
    /// begin anew. `answers_first`: a timestamp shows that it was the first SYN that was answered,
    /// however often it was repeated.
    pub(crate) fn begin_established(&mut self, cx: &Cx<'_>, answers_first: bool) {
        let handshake_lost = self.tx.retransmits > 1 && !answers_first;
        let cwnd = Congestion::initial_window(cx.config, handshake_lost);
        self.recovery = Recovery::new(self.snd.una, cx.config.dup_acks_max);
        let choice = self.congestion.choice();
        self.congestion = Congestion::new(&self.moment(cx), choice, cwnd);
        self.enter_established(cx);
    }

    /// Data may flow from here on: segment size, buffers, timers.
    pub(crate) fn enter_established(&mut self, cx: &Cx<'_>) {
        self.find_mss();
        self.tx.retransmits = 0;
        self.tx.backoff = 0;
        self.tx.small_end = self.snd.una;
        self.tx.progress_ns = cx.now_ns;
        // Idle times count from here.
        self.tx.last_sent_ns = cx.now_ns;
        self.rx.note_data(cx.now_ns);
        self.rx
            .deduct_options(timestamp_bytes(self.marks.has(Marks::TIMESTAMPS)));
        self.begin_model(cx);
        self.marks.clear(Marks::SYN_DUE | Marks::TIMING);
        self.begin_buffers(cx);
        self.arm_retransmit(NEVER_NS);
        if self.snd.flight() > 0 {
            self.restart_retransmit_timer(cx);
        }
        self.arm_keepalive(cx);
        self.begin_probing(cx);
    }

    /// True if the segment is the next in order and can be predicted. The caller may then copy its
    /// payload to the unpublished tail of the receive buffer while it verifies the checksum.
    #[inline]
    #[must_use]
    pub fn expects(&self, seg: &Segment) -> bool {
        use wire::tcp::Flags;
        self.state().receives_data()
            && seg.len > 0
            && seg.seq == self.rcv.nxt
            && seg.len <= self.rcv.wnd()
            && !self.marks.any(Marks::OUT_OF_ORDER | Marks::ORPHAN)
            && !seg.flags.intersects(Flags::SYN | Flags::RST)
    }

    /// When `on_timer` wants to be called; `u64::MAX` = never.
    #[inline]
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Time has come. Calling early is harmless.
    pub fn on_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        let effects = if self.deadline_ns <= cx.now_ns {
            self.fire_timers(cx)
        } else {
            Effects::NONE
        };
        // The caller's timer is consumed: whatever deadline there is must be armed.
        self.finish(cx, effects, NEVER_NS)
    }

    /// Like [`on_timer`](Self::on_timer), for a caller that has not yet taken all of its input:
    /// paced data and delayed SACKs leave. Timers that conclude something from silence keep their
    /// deadlines.
    pub fn on_departure(&mut self, cx: &mut Cx<'_>) -> Effects {
        let sacks_are_due = self.waits_for_sacks() && self.deadline_ns <= cx.now_ns;
        self.depart(cx.now_ns);
        if sacks_are_due {
            self.on_delayed_ack_timer(cx);
        }
        self.finish(cx, Effects::NONE, NEVER_NS)
    }

    /// The end of every call: finds whether something is to be sent and whether the deadline came
    /// nearer.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        cx: &mut Cx<'_>,
        effects: Effects,
        deadline_before_ns: u64,
    ) -> Effects {
        let mut effects = effects;
        if matches!(self.state(), State::Closed | State::TimeWait) {
            self.let_go(cx);
        }
        if self.has_nothing_to_send() {
            self.due = TransmitClass::None;
            self.delivery.rest(cx.now_ns);
        } else {
            effects |= self.find_due(cx);
        }
        if self.deadline_ns < deadline_before_ns {
            effects |= Effects::TIMER;
        }
        effects
    }

    /// True if nothing is buffered, in flight, due or paced. Such a connection has nothing to do.
    #[inline]
    fn has_nothing_to_send(&self) -> bool {
        const BUSY: Marks = Marks::SEND_NOW
            .with(Marks::FIN_QUEUED)
            .with(Marks::NO_PREDICTION);
        self.snd.buffered == 0
            && self.snd.una == self.snd.nxt
            && !self.marks.any(BUSY)
            && self.pacing.is_off()
    }

    /// Finds the class of the next segment. Without one, says whether bytes are held back.
    #[inline]
    fn find_due(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.due = match self.lone() {
            Some(lone) => lone.class(),
            None => self.transmit_class(cx),
        };
        if self.due != TransmitClass::None {
            return Effects::TRANSMIT;
        }
        let held = match self.unsent() {
            0 => Effects::NONE,
            _ => Effects::HELD,
        };
        self.note_busy(cx);
        self.arm_departure(cx);
        self.arm_persist_if_stuck(cx);
        held
    }

    /// Frees the pooled memory of a connection that is over. Data that its RST needs stays.
    #[inline(never)]
    fn let_go(&mut self, cx: &mut Cx<'_>) {
        if self.state() == State::Closed {
            self.recovery.forget_in_flight(cx.records);
        }
        if !self.marks.has(Marks::RESET_DUE) {
            self.rx.held_mut().release(cx.ranges);
        }
    }

    /// The sender now, for congestion control.
    #[inline]
    pub(crate) fn moment<'a>(&self, cx: &Cx<'a>) -> Moment<'a> {
        Moment {
            config: cx.config,
            now_ns: cx.now_ns,
            una: self.snd.una,
            nxt: self.snd.nxt,
            delivered: self.recovery.delivered(),
            delivered_ce: self.recovery.delivered_ce(),
            lost: self.recovery.lost(),
            mss: u32::from(self.snd.mss),
            delivered_ns: self.delivery.delivered_ns(),
            pacing_rate: match self.pacing.rate() {
                RATE_INFINITE => 0,
                rate => rate,
            },
            paced: self.pacing.is_on(),
        }
    }

    /// A round trip that the handshake measured.
    pub(crate) fn note_round_trip(&mut self, cx: &Cx<'_>, rtt_ns: u64) {
        self.tx.rtt.note_least(rtt_ns, false, cx.now_ns, cx.config);
        let bounds = self.cold.own_timers.rto_bounds(cx.config);
        self.tx
            .rtt
            .sample(rtt_ns, self.snd.una, self.snd.nxt, &bounds);
    }

    /// The connection failed: closed, with an error for the application.
    #[cold]
    pub(crate) fn fail(&mut self, error: ConnectionError) -> Effects {
        self.error = Some(error);
        self.finish_closed() | Effects::FAILED
    }

    /// The connection is over. A RST that is due stays due.
    pub(crate) fn finish_closed(&mut self) -> Effects {
        self.state.transition_to(State::Closed);
        self.tx.backoff = 0;
        self.disarm_all();
        self.marks.clear(
            Marks::ACK_NOW
                | Marks::ACK_PENDING
                | Marks::SYN_DUE
                | Marks::PROBE_DUE
                | Marks::RECOVERING
                | Marks::FIN_QUEUED,
        );
        Effects::CLOSED
    }

    /// Closes with a RST.
    pub(crate) fn send_reset_and_close(&mut self) -> Effects {
        self.marks.set(Marks::RESET_DUE);
        self.finish_closed()
    }

    /// Notes that one segment with an unacceptable ACK is to be answered by a RST.
    #[cold]
    pub(crate) fn reply_reset(&mut self, seg: &Segment) {
        self.tx.reply_seq = seg.ack;
        self.marks.set(Marks::REPLY_RESET);
    }

    /// Payload bytes acknowledged since the last call: they leave the send buffer.
    #[inline]
    #[must_use]
    pub fn take_acked(&mut self) -> u32 {
        core::mem::take(&mut self.tx.acked)
    }

    /// State of the connection.
    #[inline]
    #[must_use]
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// The reason of the failure, once the connection has failed.
    #[must_use]
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// SND.UNA
    #[must_use]
    pub fn una(&self) -> SeqNumber {
        self.snd.una
    }

    /// SND.NXT: nothing at or beyond it was ever sent.
    #[must_use]
    pub fn nxt(&self) -> SeqNumber {
        self.snd.nxt
    }

    /// RCV.NXT
    #[must_use]
    pub fn rcv_nxt(&self) -> SeqNumber {
        self.rcv.nxt
    }

    /// Sequence numbers in flight: SND.NXT - SND.UNA.
    #[must_use]
    pub fn unacked(&self) -> u32 {
        self.snd.flight()
    }

    /// Largest payload of a segment sent now.
    #[must_use]
    pub fn send_mss(&self) -> u16 {
        self.snd.mss
    }

    /// True if both sides know each other's sequence numbers.
    #[must_use]
    pub fn is_synchronized(&self) -> bool {
        self.state().is_synchronized()
    }

    /// The application closed it.
    #[inline]
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        self.marks.has(Marks::ORPHAN)
    }

    /// Bytes from RCV.NXT to the end of urgent data that the peer announced; `None` when there is
    /// none (RFC 9293 MUST-33).
    #[must_use]
    pub fn urgent(&self) -> Option<u32> {
        let ahead = self.marks.has(Marks::URGENT) && self.rx.urgent_end().gt(self.rcv.nxt);
        ahead.then(|| self.rx.urgent_end().since(self.rcv.nxt))
    }

    /// Distance from the end of the in-order data to the end of the latest urgent data, in bytes of
    /// the stream; negative if the urgent data ends before. Valid after [`Effects::URGENT`].
    #[must_use]
    pub fn urgent_ahead(&self) -> i32 {
        let peers_fin = i32::from(!self.state().receives_data() && self.state().is_synchronized());
        self.rx.urgent_end().since(self.rcv.nxt) as i32 + peers_fin
    }

    /// The values that a compact entry needs, in TIME_WAIT or in FIN_WAIT_2 without an application.
    /// `None` in any other state.
    #[must_use]
    pub fn time_wait(&self) -> Option<TimeWaitEntry> {
        let fin_wait_2 = self.state() == State::FinWait2 && self.is_orphan();
        if self.state() != State::TimeWait && !fin_wait_2 {
            return None;
        }
        let window = (self.rcv.wnd() >> self.rcv_shift).min(u32::from(u16::MAX)) as u16;
        Some(TimeWaitEntry {
            fin_wait_2,
            ecn_capable: self.ecn.sends_all_ecn_capable(self.snd.ecn),
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            rcv_wnd: self.rcv.wnd(),
            window,
            timestamps: self.marks.has(Marks::TIMESTAMPS),
            ts_recent: self.rcv.ts_recent,
            ts_recent_at: self.rx.ts_recent_at(),
            ts_offset: self.tx.ts_offset,
            deadline_ns: self.tx.timers.slow_ns,
        })
    }

    /// Turns header prediction off or on; for tests that compare both ways.
    #[doc(hidden)]
    pub fn set_prediction(&mut self, on: bool) {
        self.marks.put(Marks::NO_PREDICTION, !on);
    }
}

fn blank_sender(cx: &Cx<'_>, iss: SeqNumber, ts_offset: u32, mss: u16) -> Sender {
    Sender {
        timers: Timers::OFF,
        rtt: RoundTrip::new(cx.config.rto_initial_ns),
        acked: 0,
        max_wnd: 0,
        progress_ns: cx.now_ns,
        last_sent_ns: 0,
        bytes_acked: 0,
        small_end: iss,
        ts_offset,
        iss,
        reply_seq: SeqNumber(0),
        segs_out: 0,
        data_segs_out: 0,
        total_retrans: 0,
        keepalive_idle_ms: millis(cx.config.keepalive_idle_ns),
        keepalive_interval_ms: millis(cx.config.keepalive_interval_ns),
        user_timeout_ms: 0,
        invalid_answered_ms: 0,
        peer_mss: mss,
        path_mss: mss,
        keepalive_probes_max: cx.config.keepalive_probes_max,
        probes: 0,
        retransmits: 0,
        backoff: 0,
        soft_error: None,
    }
}

/// Nanoseconds in milliseconds, at least one, at most 49 days.
pub(crate) fn millis(ns: u64) -> u32 {
    (ns / MILLISECOND_NS).clamp(1, u64::from(u32::MAX)) as u32
}
