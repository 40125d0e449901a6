//! The life of a passive connection over the crate's public interface: LISTEN or cookie, half-open,
//! connection, TIME_WAIT, and the next incarnation. Each part must accept what the one before it
//! leaves.

use tcp::half_open::{HalfOpen, HalfOpenOutcome};
use tcp::isn::IsnGenerator;
use tcp::listen::{self, ListenOutcome, PassiveOpen, SynRequest};
use tcp::syn_cookie::SynCookies;
use tcp::time_wait::{TimeWait, TimeWaitOutcome};
use tcp::{
    ChallengeLimiter, Config, Connection, Counters, Cx, Effects, Handshake, MILLISECOND_NS,
    RangePool, RecordPool, RecvBuffer, SECOND_NS, Segment, SegmentOut, State,
};
use wire::tcp::{Flags, Options, Timestamp};
use wire::{Addr, FlowKey, SeqNumber};

const IRS: SeqNumber = SeqNumber(u32::MAX - 3);

struct Sink {
    /// Bytes for which there is memory.
    room: u32,
    stored: u32,
    readable: u32,
}

impl RecvBuffer for Sink {
    fn write_at(&mut self, _offset: u32, _skip: u32, len: u32) -> u32 {
        let stored = len.min(self.room);
        self.room -= stored;
        self.stored += stored;
        stored
    }

    fn forget(&mut self, _offset: u32) {}

    fn publish(&mut self, n: u32) {
        self.readable += n;
    }
}

struct World {
    now_ns: u64,
    config: Config,
    challenge: ChallengeLimiter,
    counters: Counters,
    records: RecordPool,
    ranges: RangePool,
    isns: IsnGenerator,
    sink: Sink,
}

impl World {
    fn new() -> World {
        World {
            now_ns: 1000 * SECOND_NS,
            config: Config::default(),
            challenge: ChallengeLimiter::new(1),
            counters: Counters::default(),
            records: RecordPool::new(256, 1),
            ranges: RangePool::new(64),
            isns: IsnGenerator::new([1, 2]),
            sink: Sink {
                room: u32::MAX,
                stored: 0,
                readable: 0,
            },
        }
    }

    fn cx(&mut self) -> Cx<'_> {
        self.cx_and_sink().0
    }

    fn cx_and_sink(&mut self) -> (Cx<'_>, &mut Sink) {
        let cx = Cx {
            now_ns: self.now_ns,
            config: &self.config,
            challenge: &mut self.challenge,
            counters: &mut self.counters,
            records: &mut self.records,
            ranges: &mut self.ranges,
            memory: tcp::Memory::Ample,
        };
        (cx, &mut self.sink)
    }

    fn open(&mut self, iss: SeqNumber) -> PassiveOpen {
        PassiveOpen {
            iss,
            ts_offset: self.isns.timestamp_offset(&flow()),
            mss: 1460,
            buffers: tcp::Buffers::of(&self.config),
            is_v4: true,
            congestion: self.config.congestion,
            defer_accept: 0,
            retries_max: 0,
        }
    }

    fn segment(&mut self, connection: &mut Connection, seg: &Segment) -> Effects {
        let (mut cx, sink) = self.cx_and_sink();
        connection.on_segment(&mut cx, seg, sink)
    }

    fn polled(&mut self, connection: &mut Connection) -> Option<SegmentOut> {
        let mut out = SegmentOut::empty();
        connection
            .poll_transmit(&mut self.cx(), &mut out)
            .then_some(out)
    }
}

fn flow() -> FlowKey {
    FlowKey {
        local: Addr::v4([10, 0, 0, 1].into()),
        remote: Addr::v4([10, 0, 0, 2].into()),
        local_port: 80,
        remote_port: 40_000,
    }
}

fn segment(flags: Flags, seq: SeqNumber, ack: SeqNumber, len: u32, stamp: (u32, u32)) -> Segment {
    Segment {
        seq,
        ack,
        flags,
        window: 500,
        urgent: 0,
        len,
        ecn: wire::Ecn::NotEct,
        options: Options {
            timestamp: Some(Timestamp {
                value: stamp.0,
                echo: stamp.1,
            }),
            ..Options::default()
        },
    }
}

fn syn(seq: SeqNumber, ts: u32) -> Segment {
    let mut syn = segment(Flags::SYN, seq, SeqNumber(0), 0, (ts, 0));
    syn.options.mss = Some(1400);
    syn.options.window_scale = Some(7);
    syn
}

fn asked(seg: &Segment) -> SynRequest {
    match listen::on_segment(seg) {
        ListenOutcome::Syn(request) => request,
        other => panic!("no SYN: {other:?}"),
    }
}

/// Opens by a half-open entry. The final ACK was lost, and `len` bytes of data come instead.
fn established(world: &mut World, len: u32) -> (Connection, SeqNumber) {
    let request = asked(&syn(IRS, 100));
    let iss = world.isns.isn(&flow(), world.now_ns);
    let open = world.open(iss);
    let mut entry = HalfOpen::new(&mut world.cx(), &request, &open);
    let syn_ack = entry.syn_ack(&mut world.cx());
    let echo = syn_ack.options.timestamp.unwrap().value;
    world.now_ns += 20 * MILLISECOND_NS;
    let ack = segment(Flags::ACK | Flags::PSH, IRS + 1, iss + 1, len, (120, echo));
    let HalfOpenOutcome::Complete(handshake) = entry.on_segment(&mut world.cx(), &ack) else {
        panic!("not complete");
    };
    (accepted(world, &handshake, &ack), iss)
}

fn accepted(world: &mut World, handshake: &Handshake, ack: &Segment) -> Connection {
    let buffers = tcp::Buffers::of(&world.config);
    let mut connection = Connection::accept(&mut world.cx(), handshake, &buffers);
    let effects = world.segment(&mut connection, ack);
    assert_eq!(effects.contains(Effects::READABLE), ack.len > 0);
    assert_eq!(connection.state(), State::Established);
    assert_eq!(connection.rcv_nxt(), handshake.irs + 1 + ack.len);
    connection
}

/// Closes on our side first; the peer's FIN follows.
fn closed(world: &mut World, mut connection: Connection, iss: SeqNumber) -> TimeWait {
    let peer_nxt = connection.rcv_nxt();
    let _ = connection.close(&mut world.cx());
    let fin = std::iter::from_fn(|| world.polled(&mut connection))
        .find(|out| out.flags.contains(Flags::FIN))
        .expect("no FIN");
    assert_eq!(fin.seq, iss + 1);
    let ours = fin.options.timestamp.unwrap().value;
    let fin = segment(Flags::FIN | Flags::ACK, peer_nxt, iss + 2, 0, (130, ours));
    let effects = world.segment(&mut connection, &fin);
    assert!(effects.contains(Effects::TIME_WAIT), "{effects:?}");
    TimeWait::new(&connection.time_wait().expect("no entry"))
}

#[test]
fn syn_received_data_becomes_the_connections_first_data() {
    let mut world = World::new();
    let (_, _) = established(&mut world, 300);
    assert_eq!((world.sink.stored, world.sink.readable), (300, 300));
}

#[test]
fn cookie_data_becomes_the_connections_first_data() {
    let mut world = World::new();
    let mut cookies = SynCookies::new([3, 4]);
    let request = asked(&syn(IRS, 100));
    let open = world.open(SeqNumber(0));
    let syn_ack = cookies.syn_ack(&mut world.cx(), &flow(), &request, &open);
    let echo = syn_ack.options.timestamp.unwrap().value;
    world.now_ns += 20 * MILLISECOND_NS;
    let ack = segment(Flags::ACK, IRS + 1, syn_ack.seq + 1, 300, (120, echo));
    assert!(matches!(listen::on_segment(&ack), ListenOutcome::Reset(_)));
    let handshake = cookies
        .check(&mut world.cx(), &flow(), &ack, &open)
        .expect("not our cookie");
    assert_eq!(handshake.snd_wnd, 500 << 7);
    let mut connection = accepted(&mut world, &handshake, &ack);
    // Our timestamps do not go back behind that of the cookie.
    world.now_ns += SECOND_NS;
    let _ = connection.on_timer(&mut world.cx());
    let out = world.polled(&mut connection).expect("no ACK");
    assert!(out.options.timestamp.unwrap().value.wrapping_sub(echo) < 1 << 31);
}

/// The SYN-ACK acknowledges the part of a SYN's data that found memory (RFC 7413 4.2.2).
#[test]
fn listen_fast_syn_with_more_text_than_memory_keeps_a_part() {
    let mut world = World::new();
    let mut opening = syn(IRS, 100);
    opening.len = 300;
    let request = asked(&opening);
    let iss = world.isns.isn(&flow(), world.now_ns);
    let open = world.open(iss);
    let (mut connection, _) = established(&mut world, 0);
    connection.accept_fast_in(&mut world.cx(), &request, &open, None);
    world.sink.room = 120;
    let (mut cx, sink) = world.cx_and_sink();
    let effects = connection.take_syn_text(&mut cx, &opening, sink);
    assert!(effects.contains(Effects::READABLE));
    assert_eq!(world.counters.bytes_drop_no_memory, 180);
    let syn_ack = world.polled(&mut connection).expect("no SYN-ACK");
    assert_eq!(syn_ack.ack, IRS + 121);
}

#[test]
fn time_wait_answers_for_the_connection_and_gives_way_to_the_next() {
    let mut world = World::new();
    let (connection, iss) = established(&mut world, 10);
    let peer_fin = IRS + 11;
    let mut entry = closed(&mut world, connection, iss);
    assert_eq!(
        entry.deadline_ns(),
        world.now_ns + world.config.time_wait_ns
    );

    world.now_ns += SECOND_NS;
    let again = segment(Flags::FIN | Flags::ACK, peer_fin, iss + 2, 0, (131, 0));
    let TimeWaitOutcome::Ack(ack) = entry.on_segment(&mut world.cx(), &again) else {
        panic!("FIN not acknowledged");
    };
    assert_eq!((ack.seq, ack.ack), (iss + 2, peer_fin + 1));
    assert_eq!(
        entry.deadline_ns(),
        world.now_ns + world.config.time_wait_ns
    );

    let next = syn(peer_fin + 9_000_000, 140);
    let outcome = entry.on_segment(&mut world.cx(), &next);
    let TimeWaitOutcome::Reuse { syn, iss_floor } = outcome else {
        panic!("no reuse: {outcome:?}");
    };
    assert_eq!((syn, iss_floor), (asked(&next), iss + 2));
    let new_iss = world.isns.isn_above(&flow(), world.now_ns, iss_floor);
    assert!(new_iss.gt(iss_floor + 65_536));
}
