//! The other end of a conversation. It injects segments, expects answers, owns the virtual clock
//! and the buffers, and checks after every call that the effects are true.

use std::collections::VecDeque;

use tcp::{
    ActiveOpen, Buffers, ChallengeLimiter, Config, CongestionAlgorithm, Connection, Counters, Cx,
    EcnGrant, Effects, Handshake, RangePool, RecordPool, RecvBuffer, Segment, SegmentOut, State,
    TransmitClass, WindowScales,
};
use wire::SeqNumber;
use wire::tcp::Flags;

use crate::outside_twins;
use crate::script::Line;
use crate::shadow::Shadow;
use crate::single_calls::SingleCalls as _;
use crate::twin::alike;

pub const MS: u64 = 1_000_000;

/// A variant in which every conversation must pass: the first sequence numbers, header prediction,
/// and the origin of the congestion control.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub iss: u32,
    pub irs: u32,
    pub prediction: bool,
    /// Reno and DCTCP are the twins from outside the crate.
    pub outside: bool,
}

const VARIANTS: [Variant; 6] = [
    Variant {
        iss: 0,
        irs: 0,
        prediction: true,
        outside: false,
    },
    Variant {
        iss: 0,
        irs: 0,
        prediction: false,
        outside: false,
    },
    Variant {
        iss: 0xffff_fff0,
        irs: 0xffff_ff00,
        prediction: true,
        outside: false,
    },
    Variant {
        iss: 0xffff_fc00,
        irs: 0xffff_fff8,
        prediction: false,
        outside: true,
    },
    Variant {
        iss: 0x7fff_ffd0,
        irs: 0x7fff_fe00,
        prediction: true,
        outside: true,
    },
    Variant {
        iss: 0x7fff_fe00,
        irs: 0x8000_0000,
        prediction: false,
        outside: false,
    },
];

/// Plays `script` in every variant on a fresh connection.
pub fn conversation(setup: impl Fn(Variant) -> Peer, script: impl Fn(&mut Peer)) {
    for variant in VARIANTS {
        let mut peer = setup(variant);
        peer.context = format!("{variant:x?}");
        script(&mut peer);
        peer.check_stream();
    }
}

/// The receive buffer, whose published bytes must be the peer's stream.
#[derive(Default)]
pub struct Received {
    /// Relative sequence number of the first byte of the segment being processed.
    at: u32,
    /// Bytes beyond the published ones; `None`: not written.
    tail: Vec<Option<u8>>,
    published: Vec<u8>,
    /// Number of bytes beyond the published ones for which there is memory.
    pub memory: usize,
    /// True if bytes are compared with the peer's stream, false if they are only counted.
    pub compare: bool,
}

/// A copy receives later bytes only; it does not hold those published before.
impl Clone for Received {
    fn clone(&self) -> Self {
        Received {
            at: self.at,
            tail: self.tail.clone(),
            published: Vec::new(),
            memory: self.memory,
            compare: self.compare,
        }
    }
}

impl RecvBuffer for Received {
    fn write_at(&mut self, offset: u32, skip: u32, len: u32) -> u32 {
        let room = self
            .memory
            .saturating_sub(offset as usize)
            .min(len as usize);
        let end = offset as usize + room;
        if self.tail.len() < end {
            self.tail.resize(end, None);
        }
        for i in 0..room {
            let seq = self.at.wrapping_add(skip + i as u32);
            self.tail[offset as usize + i] = Some(byte_at(seq));
        }
        room as u32
    }

    fn forget(&mut self, offset: u32) {
        self.tail.truncate(offset as usize);
    }

    fn publish(&mut self, n: u32) {
        for byte in self.tail.drain(..n as usize) {
            self.published
                .push(byte.expect("published bytes were written"));
        }
    }
}

/// Polls the next segment; returns whether there is one, and the segment.
pub fn poll(conn: &mut Connection, cx: &mut Cx<'_>, out: &mut SegmentOut) -> (bool, SegmentOut) {
    let sends = conn.poll_transmit(cx, out);
    (sends, out.clone())
}

/// The byte of either stream at a relative sequence number.
fn byte_at(seq: u32) -> u8 {
    (seq.wrapping_mul(2_654_435_761) >> 24) as u8
}

pub struct Peer {
    pub conn: Connection,
    pub config: Config,
    pub counters: Counters,
    pub records: RecordPool,
    pub ranges: RangePool,
    pub challenge: ChallengeLimiter,
    pub now_ns: u64,
    pub rx: Received,
    /// Window field of injected segments that name none.
    pub window: u16,
    /// Effects of the last call.
    pub effects: Effects,
    /// True if segments are polled after every call; false for several calls in one turn.
    pub polls: bool,
    /// Level of memory that the stack reports.
    pub memory: tcp::Memory,
    /// Shortcuts may be taken.
    may_predict: bool,
    context: String,
    iss: SeqNumber,
    irs: SeqNumber,
    sent: VecDeque<Line>,
    buffered: u32,
    recv_space: u32,
    removed: bool,
    handed_over: bool,
}

/// Parameters with which a connection is set up.
#[derive(Clone)]
pub struct Setup {
    pub config: Config,
    pub mss: u16,
    pub peer_mss: u16,
    pub recv_space: u32,
    pub scales: Option<(u8, u8)>,
    pub timestamps: bool,
    pub sack: bool,
    pub ecn: EcnGrant,
    pub window: u16,
}

impl Default for Setup {
    /// An MSS of 1000 as the only option, which suits most scripts, and Reno, whose halving is easy
    /// to follow.
    fn default() -> Self {
        let config = Config {
            timestamps: false,
            window_scaling: false,
            sack: false,
            congestion: CongestionAlgorithm::NewReno,
            // PSH stands only at the end of written data.
            burst_segments_min: 1,
            ..Config::default()
        };
        Setup {
            config,
            mss: 1460,
            peer_mss: 1000,
            recv_space: 60_000,
            scales: None,
            timestamps: false,
            sack: false,
            ecn: EcnGrant::None,
            window: 60_000,
        }
    }
}

impl Setup {
    /// The settings, with a largest buffer that leads to our window shift.
    fn config(&self, variant: Variant) -> Config {
        let mut config = self.config.clone();
        if variant.outside {
            outside_twins::put_in(&mut config);
        }
        if let Some((ours, _)) = self.scales {
            config.recv_buffer.bytes_max = 1 << (15 + ours);
            config.recv_buffer_option_max = 0;
            config.recv_buffer_moderate = false;
        }
        config
    }

    /// A receive buffer whose first window is `recv_space` bytes, and which does not grow by
    /// itself.
    fn buffers(&self) -> Buffers {
        Buffers {
            recv_bytes: self.recv_space * 2,
            recv_locked: self.scales.is_none(),
            ..Buffers::of(&self.config)
        }
    }
}

impl Peer {
    /// A connection in SYN_SENT; our SYN is among the sent segments.
    pub fn connecting(setup: &Setup, variant: Variant) -> Peer {
        let mut config = setup.config(variant);
        config.timestamps = setup.timestamps;
        config.window_scaling = setup.scales.is_some();
        let mut challenge = ChallengeLimiter::new(7);
        let mut counters = Counters::default();
        let mut records = RecordPool::new(256, 1);
        let mut ranges = RangePool::new(64);
        let now_ns = 1000 * MS;
        let mut cx = Cx {
            now_ns,
            config: &config,
            challenge: &mut challenge,
            counters: &mut counters,
            records: &mut records,
            ranges: &mut ranges,
            memory: tcp::Memory::Ample,
        };
        let open = ActiveOpen {
            iss: SeqNumber(variant.iss),
            ts_offset: 0,
            mss: setup.mss,
            mss_default: 536,
            fast_open: None,
            buffers: setup.buffers(),
        };
        let conn = Connection::connect(&mut cx, &open);
        Peer::around(conn, setup, config, counters, variant)
    }

    /// A connection from a passive handshake; the completing ACK is `. 1:1(0) ack 1`.
    pub fn accepted(setup: &Setup, variant: Variant) -> Peer {
        Peer::accepted_after(setup, variant, Some(100 * MS))
    }

    /// Like [`accepted`](Self::accepted), with the round trip that the handshake measured.
    pub fn accepted_after(setup: &Setup, variant: Variant, rtt_ns: Option<u64>) -> Peer {
        let config = setup.config(variant);
        let mut challenge = ChallengeLimiter::new(7);
        let mut counters = Counters::default();
        let mut records = RecordPool::new(256, 1);
        let mut ranges = RangePool::new(64);
        let now_ns = 1000 * MS;
        let mut cx = Cx {
            now_ns,
            config: &config,
            challenge: &mut challenge,
            counters: &mut counters,
            records: &mut records,
            ranges: &mut ranges,
            memory: tcp::Memory::Ample,
        };
        let handshake = Handshake {
            iss: SeqNumber(variant.iss),
            irs: SeqNumber(variant.irs),
            una: SeqNumber(variant.iss) + 1,
            snd_wnd: u32::from(setup.window) << setup.scales.map_or(0, |(_, peers)| peers),
            mss: setup.mss,
            peer_mss: setup.peer_mss,
            window_scales: setup
                .scales
                .map(|(ours, peers)| WindowScales { ours, peers }),
            sack: setup.sack,
            ecn: setup.ecn,
            timestamps: setup.timestamps,
            ts_recent: 100,
            ts_offset: 0,
            rtt_ns,
            syn_ack_lost: false,
            repetitions: tcp::SynAckRepetitions::default(),
        };
        let conn = Connection::accept(&mut cx, &handshake, &setup.buffers());
        Peer::around(conn, setup, config, counters, variant)
    }

    fn around(
        mut conn: Connection,
        setup: &Setup,
        config: Config,
        counters: Counters,
        variant: Variant,
    ) -> Peer {
        conn.set_shortcuts(variant.prediction);
        let mut peer = Peer {
            conn,
            config,
            counters,
            records: RecordPool::new(256, 1),
            ranges: RangePool::new(64),
            challenge: ChallengeLimiter::new(7),
            now_ns: 1000 * MS,
            rx: Received {
                memory: usize::MAX,
                compare: true,
                ..Received::default()
            },
            window: setup.window,
            effects: Effects::NONE,
            polls: true,
            memory: tcp::Memory::Ample,
            may_predict: variant.prediction,
            context: String::new(),
            iss: SeqNumber(variant.iss),
            irs: SeqNumber(variant.irs),
            sent: VecDeque::new(),
            buffered: 0,
            recv_space: setup.recv_space,
            removed: false,
            handed_over: false,
        };
        peer.poll();
        peer
    }

    /// Makes one call into the connection, with the checks that hold for all calls.
    pub fn call(&mut self, call: impl Fn(&mut Connection, &mut Cx<'_>, &mut Received) -> Effects) {
        assert!(!self.removed, "{}: removed already", self.context);
        let before_ns = self.conn.deadline_ns();
        let mut cx = Cx {
            now_ns: self.now_ns,
            config: &self.config,
            challenge: &mut self.challenge,
            counters: &mut self.counters,
            records: &mut self.records,
            ranges: &mut self.ranges,
            memory: self.memory,
        };
        let may_predict = self.may_predict;
        let effects = alike(&mut self.conn, &mut cx, &mut self.rx, may_predict, call);
        self.conn.check_in_flight(&cx);
        self.effects = effects;
        self.check_effects(effects, before_ns);
        if effects.contains(Effects::READABLE) {
            let space = self.recv_space as usize;
            let used = self.rx.published.len().min(space);
            assert!(used > 0);
        }
        let acked = self.conn.take_acked();
        assert_eq!(
            acked > 0,
            effects.contains(Effects::WRITABLE),
            "{}: WRITABLE",
            self.context
        );
        self.buffered -= acked;
        if self.polls {
            self.poll();
        }
        self.removed = effects.contains(Effects::CLOSED);
        self.handed_over |= effects.contains(Effects::TIME_WAIT);
    }

    fn check_effects(&mut self, effects: Effects, before_ns: u64) {
        let class = self.class();
        let context = &self.context;
        assert_eq!(self.conn.due(), class, "{context}: what is due is stale");
        assert_eq!(
            effects.contains(Effects::TRANSMIT),
            class != TransmitClass::None,
            "{context}: {class:?}"
        );
        if !effects.contains(Effects::TIMER) {
            assert!(
                self.conn.deadline_ns() >= before_ns,
                "{context}: an earlier deadline was not told"
            );
        }
        let closed = self.conn.state() == State::Closed;
        assert_eq!(
            effects.contains(Effects::CLOSED),
            closed,
            "{context}: CLOSED {effects:?}"
        );
        if effects.contains(Effects::FAILED) {
            assert!(self.conn.error().is_some());
        }
        let state = self.conn.state();
        let is_left =
            state == State::TimeWait || (state == State::FinWait2 && self.conn.is_orphan());
        assert_eq!(self.conn.time_wait().is_some(), is_left);
    }

    pub fn class(&mut self) -> TransmitClass {
        let cx = Cx {
            now_ns: self.now_ns,
            config: &self.config,
            challenge: &mut self.challenge,
            counters: &mut self.counters,
            records: &mut self.records,
            ranges: &mut self.ranges,
            memory: self.memory,
        };
        self.conn.transmit_class(&cx)
    }

    /// Polls until nothing is left to send.
    pub fn poll(&mut self) {
        let mut out = SegmentOut::empty();
        let (mut shadow, mut was_last) = (None, false);
        for _ in 0..10_000 {
            let mut cx = Cx {
                now_ns: self.now_ns,
                config: &self.config,
                challenge: &mut self.challenge,
                counters: &mut self.counters,
                records: &mut self.records,
                ranges: &mut self.ranges,
                memory: self.memory,
            };
            let class = self.conn.transmit_class(&cx);
            let may_predict = self.may_predict;
            let (sends, _) = alike(&mut self.conn, &mut cx, &mut out, may_predict, poll);
            self.conn.check_in_flight(&cx);
            if !sends {
                assert_eq!(class, TransmitClass::None);
                assert!(shadow.is_none(), "{}: less than foretold", self.context);
                return self.check_liveness();
            }
            assert_ne!(class, TransmitClass::None);
            assert!(!was_last, "{}: more than was announced", self.context);
            was_last = self.conn.due() == TransmitClass::None;
            Shadow::follow(&mut shadow, &self.conn, &cx, &out);
            let searches = self.config.path_mtu.probing != tcp::path_mtu::MtuProbing::Never;
            assert!(
                searches || out.payload_len <= u32::from(self.conn.send_mss()),
                "{}: over the MSS",
                self.context
            );
            assert!(
                out.payload_offset + out.payload_len <= self.buffered,
                "{}: beyond the buffer",
                self.context
            );
            self.sent
                .push_back(Line::from_out(&out, self.iss, self.irs));
        }
        panic!("{}: it never stops sending", self.context);
    }

    /// Checks that a timer is armed while bytes are not sent or not acknowledged.
    fn check_liveness(&self) {
        let info = self.conn.info();
        let waits = info.notsent_bytes > 0 || self.conn.unacked() > 0;
        if waits && self.conn.state() != State::Closed {
            assert_ne!(
                self.conn.deadline_ns(),
                u64::MAX,
                "{}: stuck {info:?}",
                self.context
            );
        }
    }

    // The peer's side.

    /// Injects a segment from the peer.
    pub fn inject(&mut self, text: &str) {
        let line = Line::parse(text);
        let segment = line.to_segment(self.iss, self.irs, self.window);
        let syn = u32::from(line.flags.contains(Flags::SYN));
        self.inject_segment(line.seq + syn, &segment);
    }

    pub fn inject_segment(&mut self, at: u32, segment: &Segment) {
        self.rx.at = at;
        if self.conn.expects(segment) {
            // The caller may then copy payload before it verifies the checksum, so the unpublished
            // tail must be empty.
            assert!(
                self.rx.tail.iter().all(Option::is_none),
                "{}: expects",
                self.context
            );
        }
        self.call(|conn, cx, rx| conn.on_segment(cx, segment, rx));
    }

    /// Expects this segment as the next one that we sent.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let Some(sent) = self.sent.pop_front() else {
            panic!("{}: nothing was sent; expected {text}", self.context);
        };
        let line = Line::parse(text);
        assert!(
            line.matches(&sent),
            "{}: expected {text}\n sent {sent:?}",
            self.context
        );
    }

    /// Expects full segments of `mss` bytes from `seq` to `end`, with PSH on the last if `push`.
    #[track_caller]
    pub fn expect_data(&mut self, seq: u32, end: u32, mss: u32, ack: u32, push: bool) {
        let mut at = seq;
        while at < end {
            let next = (at + mss).min(end);
            let flags = if push && next == end { "P." } else { "." };
            self.expect(&format!("{flags} {at}:{next}({}) ack {ack}", next - at));
            at = next;
        }
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        assert!(
            self.sent.is_empty(),
            "{}: unexpected {:?}",
            self.context,
            self.sent
        );
    }

    /// Takes the sent segments as text.
    pub fn take_sent(&mut self) -> Vec<String> {
        self.sent.drain(..).map(|line| line.to_string()).collect()
    }

    /// Drops the sent segments; returns their number.
    pub fn skip_sent(&mut self) -> usize {
        let n = self.sent.len();
        self.sent.clear();
        n
    }

    // The application's side.

    pub fn write(&mut self, n: u32) {
        self.buffered += n;
        let buffered = self.buffered;
        self.call(|conn, cx, _| conn.on_write(cx, buffered));
    }

    /// The application reads everything, so the buffer's whole space is free again.
    pub fn read_all(&mut self) {
        self.read_until_left(0);
    }

    /// The application reads until `unread` bytes are left.
    pub fn read_until_left(&mut self, unread: u32) {
        self.call(|conn, cx, _| conn.on_read(cx, unread));
    }

    pub fn shutdown(&mut self) {
        self.call(|conn, cx, _| conn.shutdown_write(cx));
    }

    pub fn close(&mut self) {
        self.call(|conn, cx, _| conn.close(cx));
    }

    pub fn abort(&mut self) {
        self.call(|conn, cx, _| conn.abort(cx));
    }

    // The clock.

    /// SO_MAX_PACING_RATE, in bytes per second.
    pub fn limit_pacing(&mut self, rate: u64) {
        self.call(|conn, cx, _| {
            conn.set_max_pacing_rate(cx, rate);
            Effects::NONE
        });
    }

    /// Lets `ms` pass, timers included.
    pub fn wait_ms(&mut self, ms: u64) {
        self.wait_until(self.now_ns + ms * MS);
    }

    pub fn wait_until(&mut self, end_ns: u64) {
        while !self.removed && self.conn.deadline_ns() <= end_ns {
            self.now_ns = self.now_ns.max(self.conn.deadline_ns());
            self.call(|conn, cx, _| conn.on_timer(cx));
        }
        self.now_ns = end_ns;
    }

    /// Expects this segment after exactly `ms`, and none before.
    #[track_caller]
    pub fn expect_after_ms(&mut self, ms: u64, text: &str) {
        self.expect_nothing();
        self.wait_until(self.now_ns + ms * MS - 1);
        self.expect_nothing();
        self.wait_until(self.now_ns + 1);
        self.expect(text);
    }

    /// Expects that nothing is sent for `ms`.
    #[track_caller]
    pub fn expect_silence_ms(&mut self, ms: u64) {
        self.wait_ms(ms);
        self.expect_nothing();
    }

    // Expectations.

    #[track_caller]
    pub fn expect_state(&self, state: State) {
        assert_eq!(self.conn.state(), state, "{}", self.context);
    }

    /// Expects these effects of the last call, without TRANSMIT and TIMER, which every call checks.
    #[track_caller]
    pub fn expect_effects(&self, effects: Effects) {
        let seen = self.effects.without(Effects::TRANSMIT | Effects::TIMER);
        assert_eq!(seen, effects, "{}", self.context);
    }

    /// Expects this number of published bytes so far.
    #[track_caller]
    pub fn expect_received(&self, n: usize) {
        assert_eq!(self.rx.published.len(), n, "{}", self.context);
    }

    /// Expects that the receive buffer holds no bytes beyond the published ones.
    #[track_caller]
    pub fn expect_nothing_held(&self) {
        assert!(self.rx.tail.is_empty(), "{}: bytes are held", self.context);
    }

    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// True if a stack would have replaced the connection by an entry.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// Congestion window in segments.
    pub fn cwnd(&self) -> u32 {
        self.conn.info().snd_cwnd
    }

    /// Checks that the published bytes are the peer's stream.
    fn check_stream(&self) {
        let published = self.rx.compare.then_some(&self.rx.published);
        for (i, byte) in published.into_iter().flatten().enumerate() {
            assert_eq!(*byte, byte_at(1 + i as u32), "{}: byte {i}", self.context);
        }
    }
}
