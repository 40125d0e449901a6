//! The connection: its variables, its construction, and read access to it.
//!
//! Order of the calls in a turn: (1) `on_segment` for each segment that arrived; (2) `on_write`,
//! `close`, `abort`, or a run of `note_read` and similar calls, for the application's actions; (3)
//! `on_timer` if the deadline has passed; (4) `poll_transmit` until it returns false, then
//! `deadline_ns()` to arm the timer. Calls (1) to (3) return [`Effects`].
//!
//! * After `Effects::WRITABLE`, first remove `take_acked()` bytes from the send buffer, because
//!   `on_write` counts from SND.UNA.
//! * `Effects::TIMER` reports a deadline that came nearer. A deadline that moved away is not
//!   reported: a timer may fire early, and `on_timer` then returns `TIMER` again.
//! * `Effects::CLOSED` together with `TRANSMIT`: poll the last segment, then remove the connection.
//! * `Effects::TIME_WAIT`: the compact entry may replace the connection at once, after the caller
//!   has taken the `EOF` that came with it and polled the due ACK. In FIN_WAIT_2 the entry must
//!   replace the connection, which would only reset the peer's segments.
//!
//! A run of segments in order may be taken in one visit ([`run`]).
//! The steps, the timers and the output are methods of [`Connection`] in files of their own.

use wire::SeqNumber;

use crate::buffers::{Buffers, InitialWindow, Memory};
use crate::challenge::ChallengeLimiter;
use crate::config::Config;
use crate::congestion::Congestion;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::counters::Counters;
use crate::ecn::EcnState;
use crate::effects::Effects;
use crate::fast_open::FastOpenSyn;
use crate::flight::Flight;
use crate::handshake::{Handshake, TimeWaitEntry};
use crate::limits;
use crate::limits::timestamp_bytes;
use crate::opening::Opening;
use crate::path::Path;
use crate::plan::{Plan, Planned};
use crate::reassembly::RangePool;
use crate::receive::Receiver;
use crate::records::RecordPool;
use crate::segment::{Segment, TransmitClass};
use crate::send::{SendBuffer, Sender};
use crate::state::{ConnectionError, CurrentState, State};
use crate::timers::{NEVER_NS, Timers};
use crate::variables::{Rcv, Snd};

mod application;
mod autotune;
mod ecn;
mod fast_open;
pub mod glance;
mod hand_over;
mod icmp;
pub mod info;
mod output;
mod pacing;
mod pack;
mod path_mtu;
mod recovery;
pub mod run;
mod segment_arrives;
mod timers;
mod window;

pub use hand_over::Untouched;
pub use output::{BurstTail, PlainAck};

/// Parameters of an active open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveOpen {
    /// Initial sequence number (RFC 6528).
    pub iss: SeqNumber,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// Our MSS, bytes: link MTU less IP and TCP headers.
    pub mss: u16,
    /// The peer's MSS if its SYN names none, bytes: 536 over IPv4, 1220 over IPv6 (RFC 9293
    /// MUST-15).
    pub mss_default: u16,
    /// Fast Open of the SYN; `None`: a plain SYN.
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

/// Values with which a connection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// SYN_SENT; SYN_RECEIVED after a Fast Open; ESTABLISHED after a half-open entry completed.
    pub state: State,
    /// Our MSS, bytes.
    pub mss: u16,
    /// ISS.
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
    conn_flags: ConnFlags,
    state: CurrentState,
    error: Option<ConnectionError>,
    /// Class of the next segment, as the last call found it; [`TransmitClass::None`]: nothing is
    /// due.
    due: TransmitClass,
    timers: Timers,
    /// The plan of that next segment.
    planned: Planned,
    tx: Sender,
    rx: Receiver,
    flight: Flight,
    /// Both halves of ECN.
    ecn: EcnState,
    path: Path,
    opening: Opening,
}

/// Size of the hot line: the fields before the colder ones.
const HOT_BYTES: usize = core::mem::offset_of!(Connection, timers);
const _: () = assert!(HOT_BYTES == 64);
const _: () = assert!(size_of::<Snd>() <= 32 && size_of::<Rcv>() <= 24);
const _: () = assert!(size_of::<Timers>() <= 192);
const _: () = assert!(size_of::<Sender>() <= 192);
const _: () = assert!(size_of::<Congestion>() <= 128);
const _: () = assert!(size_of::<Path>() <= 32);
const _: () = assert!(size_of::<Opening>() <= 64);
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
        let first = First {
            state: State::SynSent,
            mss: open.mss,
            iss: open.iss,
            una: open.iss,
            ts_offset: open.ts_offset,
            cwnd: Congestion::initial_window(cx.config, false),
        };
        self.begin(cx, &first, &open.buffers, &initial);
        self.path.set_peer_mss(open.mss_default);
        self.conn_flags
            .put(ConnFlags::TIMESTAMPS, cx.config.timestamps);
        self.conn_flags.put(ConnFlags::SACK, cx.config.sack);
        self.ecn
            .ask_for_ecn(cx.config, cx.config.congestion, &mut self.snd);
        if cx.config.window_scaling {
            self.conn_flags.set(ConnFlags::WINDOW_SCALING);
            self.rcv.set_shift(initial.shift);
        }
        self.conn_flags.set(ConnFlags::SYN_DUE);
        if let Some(syn) = &open.fast_open {
            self.opening.open_fast(syn);
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
        let first = First {
            state: State::Established,
            mss: h.mss,
            iss: h.iss,
            una: h.una,
            ts_offset: h.ts_offset,
            cwnd: Congestion::initial_window(cx.config, h.syn_ack_lost),
        };
        self.begin(cx, &first, buffers, &initial);
        self.due = TransmitClass::None;
        self.snd.begin_window(h.snd_wnd);
        self.snd.begin_updates(h.irs);
        self.rx.take_syn(h.irs);
        self.rx.count_syn();
        self.rcv.begin(h.irs + 1);
        self.rcv.open(initial.window);
        self.rcv.set_ts_recent(h.ts_recent);
        self.rx.note_timestamp(cx.now_ns);
        self.path.set_peer_mss(h.peer_mss);
        self.conn_flags.put(ConnFlags::TIMESTAMPS, h.timestamps);
        self.conn_flags.put(ConnFlags::SACK, h.sack);
        self.ecn.put_ecn(h.ecn, cx.config.congestion, &mut self.snd);
        if let Some(scales) = h.window_scales {
            self.conn_flags.set(ConnFlags::WINDOW_SCALING);
            self.rcv
                .set_shift(scales.ours.min(limits::WINDOW_SHIFT_MAX));
            self.snd
                .set_shift(scales.peers.min(limits::WINDOW_SHIFT_MAX));
        }
        match h.rtt_ns {
            Some(rtt_ns) => self.timers.note_round_trip(cx, rtt_ns, &self.snd),
            // RFC 6298 5.7: there is no round trip to measure, because the SYN-ACK was sent twice,
            // or because a SYN cookie does not record its time.
            None => self
                .timers
                .forget_round_trip(cx.config.rto_after_syn_loss_ns),
        }
        self.enter_established(cx);
        let again = h.repetitions;
        self.flight
            .delivery_mut()
            .begin_retrans(u32::from(again.sent));
        self.rx.note_handshake_end();
        self.timers.begin_tally(again.timeouts, again.took_ms);
    }

    /// An empty slot, before the first connection is made there.
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
        let receiver = Receiver::new(0, 536, &buffers, &initial);
        Self::blank(&cx, &buffers, receiver)
    }

    fn blank(cx: &Cx<'_>, buffers: &Buffers, receiver: Receiver) -> Self {
        let zero = SeqNumber(0);
        let mss = receiver.mss();
        Connection {
            snd: Snd::new(zero, mss),
            rcv: Rcv::NEW,
            conn_flags: ConnFlags::default(),
            state: CurrentState::first(State::Closed),
            error: None,
            due: TransmitClass::None,
            planned: Planned::NONE,
            timers: Timers::new(cx.config, cx.now_ns),
            tx: Sender::new(zero, zero, 0, SendBuffer::new(buffers, mss)),
            rx: receiver,
            flight: Flight::new(cx, zero, 1),
            ecn: EcnState::default(),
            path: Path::new(mss),
            opening: Opening::NEW,
        }
    }

    /// Sets the variables that all opens share. Each is written once, in its final place.
    pub(crate) fn begin(
        &mut self,
        cx: &Cx<'_>,
        first: &First,
        buffers: &Buffers,
        initial: &InitialWindow,
    ) {
        let Connection {
            snd,
            rcv,
            conn_flags,
            state,
            error,
            due,
            timers,
            planned,
            tx,
            rx,
            flight,
            ecn,
            path,
            opening,
        } = self;
        let mss = first.mss;
        *snd = Snd::new(first.una, mss);
        *rcv = Rcv::NEW;
        *conn_flags = ConnFlags::default();
        (*state, *error) = (CurrentState::first(first.state), None);
        *due = TransmitClass::Opening;
        *planned = Planned::NONE;
        *timers = Timers::new(cx.config, cx.now_ns);
        *tx = Sender::new(
            first.iss,
            first.una,
            first.ts_offset,
            SendBuffer::new(buffers, mss),
        );
        *rx = Receiver::new(cx.now_ns, mss, buffers, initial);
        flight.begin(cx, first.una, first.cwnd);
        *ecn = EcnState::default();
        *path = Path::new(mss);
        *opening = Opening::NEW;
    }

    /// Begins the transfer of data after our SYN was answered: loss recovery and congestion control
    /// start anew. `answers_first`: a timestamp shows that the answer is to the first SYN, however
    /// often it was repeated.
    pub(crate) fn begin_established(&mut self, cx: &Cx<'_>, answers_first: bool) {
        let handshake_lost = self.timers.retransmits() > 1 && !answers_first;
        let cwnd = Congestion::initial_window(cx.config, handshake_lost);
        self.flight.begin_established(cx, cwnd, &self.snd);
        self.enter_established(cx);
    }

    /// Begins the transfer of data: segment size, buffers, timers.
    pub(crate) fn enter_established(&mut self, cx: &Cx<'_>) {
        self.path.find_mss(self.conn_flags, &mut self.snd);
        self.timers.begin(cx.now_ns);
        self.tx.note_small(self.snd.una());
        // Idle times count from here.
        self.tx.note_text_sent(cx.now_ns);
        self.rx.note_data(cx.now_ns);
        self.rx
            .deduct_options(timestamp_bytes(self.conn_flags.has(ConnFlags::TIMESTAMPS)));
        self.flight.begin_model(cx, &self.snd, &self.timers);
        self.conn_flags
            .clear(ConnFlags::SYN_DUE | ConnFlags::TIMING);
        self.begin_buffers(cx);
        self.timers.arm_retransmit(NEVER_NS);
        if self.snd.flight() > 0 {
            self.flight.restart_retransmit_timer(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
        self.timers.arm_keepalive(cx, self.state(), self.conn_flags);
        self.path.begin_probing(
            cx,
            &mut self.conn_flags,
            &mut self.snd,
            &mut self.tx,
            &self.opening,
        );
    }

    /// True if the segment is the next in order and can be predicted. The caller may then copy its
    /// payload to the unpublished tail of the receive buffer while it computes the checksum.
    #[inline]
    #[must_use]
    pub fn expects(&self, seg: &Segment) -> bool {
        use wire::tcp::Flags;
        self.state().receives_data()
            && seg.len > 0
            && seg.seq == self.rcv.nxt()
            && seg.len <= self.rcv.wnd()
            && !self
                .conn_flags
                .any(ConnFlags::OUT_OF_ORDER | ConnFlags::ORPHAN)
            && !seg.flags.intersects(Flags::SYN | Flags::RST)
    }

    /// Time at which `on_timer` is to be called; `u64::MAX`: never.
    #[inline]
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.timers.deadline_ns()
    }

    /// Runs the timers that are due. Calling early is harmless.
    pub fn on_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        let effects = if self.timers.deadline_ns() <= cx.now_ns {
            self.fire_timers(cx)
        } else {
            Effects::NONE
        };
        // The caller's timer is used up, so any deadline must be armed again.
        self.finish(cx, effects, NEVER_NS)
    }

    /// Like [`on_timer`](Self::on_timer), for a caller that has not yet taken all of its input:
    /// paced data and delayed SACKs leave. Timers that draw conclusions from the peer's silence
    /// keep their deadlines.
    pub fn on_departure(&mut self, cx: &mut Cx<'_>) -> Effects {
        let sacks_are_due =
            self.rx.waits_for_sacks(&self.timers) && self.timers.deadline_ns() <= cx.now_ns;
        self.timers.depart(cx.now_ns);
        if sacks_are_due {
            self.rx
                .on_delayed_ack_timer(cx, &mut self.conn_flags, &mut self.timers);
        }
        self.finish(cx, Effects::NONE, NEVER_NS)
    }

    /// Ends every call: finds out whether something is to be sent, and whether the deadline came
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
            self.store_nothing();
            self.flight.delivery_mut().rest(cx.now_ns);
        } else {
            effects |= self.find_due(cx);
        }
        if self.timers.deadline_ns() < deadline_before_ns {
            effects |= Effects::TIMER;
        }
        effects
    }

    /// True if nothing is buffered, in flight, due or paced, so that no plan is needed.
    #[inline]
    fn has_nothing_to_send(&self) -> bool {
        const BUSY: ConnFlags = ConnFlags::NEEDS_FULL_PLAN
            .with(ConnFlags::FIN_QUEUED)
            .with(ConnFlags::NO_SHORTCUTS);
        self.snd.buffered() == 0
            && self.snd.una() == self.snd.nxt()
            && !self.conn_flags.any(BUSY)
            && self.flight.pacing().is_off()
    }

    /// Finds the class of the next segment. If there is none, returns whether bytes are held back.
    #[inline(never)]
    fn find_due(&mut self, cx: &mut Cx<'_>) -> Effects {
        if self.snd.buffered() > 0 || self.conn_flags.has(ConnFlags::FIN_QUEUED) {
            let lone = self
                .flight
                .lone(self.state(), self.conn_flags, &self.snd, &self.rx);
            if let Some(lone) = lone {
                self.planned.store(lone, cx.now_ns);
                self.due = lone.class();
                return Effects::TRANSMIT;
            }
        }
        // The usual plans are stored as constants, which costs less than storing a computed plan.
        match self.plan_from_marks() {
            Some(Plan::Ack) => self.store_plan(cx, Plan::Ack),
            Some(Plan::Nothing) => self.store_nothing(),
            Some(plan) => self.store_plan(cx, plan),
            None => self.store_full_plan(cx),
        }
        match self.due {
            TransmitClass::None => self.hold(cx),
            _ => Effects::TRANSMIT,
        }
    }

    #[inline(never)]
    fn store_full_plan(&mut self, cx: &Cx<'_>) {
        self.store_plan(cx, self.plan_in_full(cx));
    }

    /// Arms the timers that continue when nothing can be sent now. Returns whether bytes are held
    /// back.
    #[inline(never)]
    fn hold(&mut self, cx: &mut Cx<'_>) -> Effects {
        let held = match self.snd.unsent(self.state(), self.conn_flags) {
            0 => {
                self.store_nothing();
                Effects::NONE
            }
            _ => Effects::HELD,
        };
        self.flight
            .note_busy(cx, self.state(), self.conn_flags, &self.snd, &self.tx);
        self.arm_departure(cx);
        self.flight.arm_persist_if_stuck(
            cx,
            self.state(),
            &mut self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
        held
    }

    /// Frees the pooled memory of a connection that is over, except for what its RST needs.
    #[inline(never)]
    fn let_go(&mut self, cx: &mut Cx<'_>) {
        if self.state() == State::Closed {
            self.flight.recovery_mut().forget_in_flight(cx.records);
        }
        if !self.conn_flags.has(ConnFlags::RESET_DUE) {
            self.rx.held_mut().release(cx.ranges);
        }
    }

    /// Closes the connection because it failed, with an error for the application.
    #[cold]
    pub(crate) fn fail(&mut self, error: ConnectionError) -> Effects {
        self.error = Some(error);
        self.finish_closed() | Effects::FAILED
    }

    /// Closes the connection. A RST that is due stays due.
    pub(crate) fn finish_closed(&mut self) -> Effects {
        self.state.transition_to(State::Closed);
        self.timers.end_backoff();
        self.timers.disarm_all();
        self.conn_flags.clear(
            ConnFlags::ACK_NOW
                | ConnFlags::ACK_PENDING
                | ConnFlags::SYN_DUE
                | ConnFlags::PROBE_DUE
                | ConnFlags::RECOVERING
                | ConnFlags::FIN_QUEUED,
        );
        Effects::CLOSED
    }

    /// Closes with a RST.
    pub(crate) fn send_reset_and_close(&mut self) -> Effects {
        self.conn_flags.set(ConnFlags::RESET_DUE);
        self.finish_closed()
    }

    /// Payload bytes acknowledged since the last call, which the caller removes from the send
    /// buffer.
    #[inline]
    #[must_use]
    pub fn take_acked(&mut self) -> u32 {
        self.tx.take_acked()
    }

    /// State of the connection.
    #[inline]
    #[must_use]
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// The reason of the failure; `None` if the connection has not failed.
    #[must_use]
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// SND.UNA.
    #[must_use]
    pub fn una(&self) -> SeqNumber {
        self.snd.una()
    }

    /// SND.NXT: nothing at or beyond it was ever sent.
    #[must_use]
    pub fn nxt(&self) -> SeqNumber {
        self.snd.nxt()
    }

    /// RCV.NXT.
    #[must_use]
    pub fn rcv_nxt(&self) -> SeqNumber {
        self.rcv.nxt()
    }

    /// Largest payload of a segment sent now, bytes.
    #[must_use]
    pub fn send_mss(&self) -> u16 {
        self.snd.mss()
    }

    /// True if the application has closed the connection.
    #[inline]
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        self.conn_flags.has(ConnFlags::ORPHAN)
    }

    /// Bytes from RCV.NXT to the end of urgent data that the peer announced; `None` when there is
    /// none (RFC 9293 MUST-33).
    #[must_use]
    pub fn urgent(&self) -> Option<u32> {
        let ahead =
            self.conn_flags.has(ConnFlags::URGENT) && self.rx.urgent_end().gt(self.rcv.nxt());
        ahead.then(|| self.rx.urgent_end().since(self.rcv.nxt()))
    }

    /// Distance from the end of the in-order data to the end of the latest urgent data, in bytes of
    /// the stream; negative if the urgent data ends before. Valid after [`Effects::URGENT`].
    #[must_use]
    pub fn urgent_ahead(&self) -> i32 {
        let peers_fin = i32::from(!self.state().receives_data() && self.state().is_synchronized());
        self.rx.urgent_end().since(self.rcv.nxt()) as i32 + peers_fin
    }

    /// The values that a compact entry needs, in TIME_WAIT or in FIN_WAIT_2 without an application.
    /// `None` in any other state.
    #[must_use]
    pub fn time_wait(&self) -> Option<TimeWaitEntry> {
        let fin_wait_2 = self.state() == State::FinWait2 && self.conn_flags.has(ConnFlags::ORPHAN);
        if self.state() != State::TimeWait && !fin_wait_2 {
            return None;
        }
        let window = (self.rcv.wnd() >> self.rcv.shift()).min(u32::from(u16::MAX)) as u16;
        Some(TimeWaitEntry {
            fin_wait_2,
            ecn_capable: self.ecn.sends_all_ecn_capable(self.snd.ecn()),
            snd_nxt: self.snd.nxt(),
            rcv_nxt: self.rcv.nxt(),
            rcv_wnd: self.rcv.wnd(),
            window,
            timestamps: self.conn_flags.has(ConnFlags::TIMESTAMPS),
            ts_recent: self.rcv.ts_recent(),
            ts_recent_at: self.rx.ts_recent_at(),
            ts_offset: self.tx.ts_offset(),
            deadline_ns: self.timers.slow_ns(),
        })
    }
}
