//! Two connections over a link that loses, duplicates and reorders, in virtual time. The bytes
//! written on one side are read on the other, unchanged (by hash), in both directions, and both
//! ends close.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use tcp::{
    ActiveOpen, Buffers, ChallengeLimiter, Config, Connection, Counters, Cx, Effects, RangePool,
    RecordPool, RecvBuffer, Segment, SegmentOut, State,
};
use wire::SeqNumber;
use wire::tcp::Options;

use crate::peer::{MS, poll};
use crate::shadow::Shadow;
use crate::single_calls::SingleCalls as _;
use crate::twin::alike;

/// A small, seeded generator (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Pattern in which the applications write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// As many bytes as fit.
    Bulk,
    /// Small messages, most of them sent when earlier ones have arrived.
    Brief,
}

#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: u64,
    duplication: u64,
    reordering: u64,
    delay_ns: u64,
}

struct Packet {
    segment: Segment,
    payload: Vec<u8>,
}

/// A receive buffer that stores bytes beyond gaps by their offset and publishes in order, like the
/// stack's.
#[derive(Clone)]
struct Inbox {
    payload: Vec<u8>,
    tail: Vec<u8>,
    unread: Vec<u8>,
    hash: DefaultHasher,
    total: usize,
}

impl RecvBuffer for Inbox {
    fn write_at(&mut self, offset: u32, skip: u32, len: u32) -> u32 {
        let (offset, skip, len) = (offset as usize, skip as usize, len as usize);
        if self.tail.len() < offset + len {
            self.tail.resize(offset + len, 0);
        }
        self.tail[offset..offset + len].copy_from_slice(&self.payload[skip..skip + len]);
        len as u32
    }

    fn forget(&mut self, offset: u32) {
        self.tail.truncate(offset as usize);
    }

    fn publish(&mut self, n: u32) {
        self.unread.extend(self.tail.drain(..n as usize));
    }
}

struct End {
    conn: Connection,
    challenge: ChallengeLimiter,
    counters: Counters,
    records: RecordPool,
    ranges: RangePool,
    inbox: Inbox,
    /// Bytes from SND.UNA on.
    outbox: Vec<u8>,
    to_write: usize,
    written: DefaultHasher,
    random: Random,
    /// The application leaves bytes unread for long, so that the window shuts.
    lazy: bool,
    eof: bool,
    shut: bool,
    over: bool,
    /// Shortcuts may be taken.
    may_predict: bool,
}

struct World {
    now_ns: u64,
    config: Config,
    ends: [End; 2],
    wire: BTreeMap<(u64, u64), (usize, Packet)>,
    sent: u64,
    faults: Faults,
    manner: Manner,
    random: Random,
}

const BUFFER: usize = 64 * 1024;

impl End {
    fn new(
        (config, mut records): (&Config, RecordPool),
        iss: u32,
        bytes: usize,
        seed: u64,
        prediction: bool,
    ) -> End {
        let mut challenge = ChallengeLimiter::new(seed);
        let mut counters = Counters::default();
        let mut ranges = RangePool::new(64);
        let mut cx = Cx {
            now_ns: MS,
            config,
            challenge: &mut challenge,
            counters: &mut counters,
            records: &mut records,
            ranges: &mut ranges,
            memory: tcp::Memory::Ample,
        };
        let open = ActiveOpen {
            iss: SeqNumber(iss),
            ts_offset: seed as u32,
            mss: 1460,
            mss_default: 536,
            fast_open: None,
            buffers: Buffers::of(config),
        };
        let mut conn = Connection::connect(&mut cx, &open);
        conn.set_shortcuts(prediction);
        let inbox = Inbox {
            payload: Vec::new(),
            tail: Vec::new(),
            unread: Vec::new(),
            hash: DefaultHasher::new(),
            total: 0,
        };
        End {
            conn,
            challenge,
            counters,
            records,
            ranges,
            inbox,
            outbox: Vec::new(),
            to_write: bytes,
            written: DefaultHasher::new(),
            random: Random(seed | 1),
            lazy: seed.is_multiple_of(5),
            eof: false,
            shut: false,
            over: false,
            may_predict: prediction,
        }
    }

    fn call(
        &mut self,
        now_ns: u64,
        config: &Config,
        call: impl Fn(&mut Connection, &mut Cx<'_>, &mut Inbox) -> Effects,
    ) {
        if self.over {
            return;
        }
        let mut cx = Cx {
            now_ns,
            config,
            challenge: &mut self.challenge,
            counters: &mut self.counters,
            records: &mut self.records,
            ranges: &mut self.ranges,
            memory: tcp::Memory::Ample,
        };
        let may_predict = self.may_predict;
        let effects = alike(&mut self.conn, &mut cx, &mut self.inbox, may_predict, call);
        self.conn.check_in_flight(&cx);
        let acked = self.conn.take_acked() as usize;
        self.outbox.drain(..acked);
        self.eof |= effects.contains(Effects::EOF);
        self.over |= effects.contains(Effects::CLOSED);
        assert_eq!(
            self.conn.error(),
            None,
            "no loss is a reason to fail: {:?}",
            self.conn.info()
        );
    }

    /// Runs the application: reads the readable bytes, writes pieces of random sizes, then shuts
    /// down.
    fn application(&mut self, now_ns: u64, config: &Config, manner: Manner) {
        let appetite = match manner {
            Manner::Bulk if self.lazy => 1,
            Manner::Bulk => 70,
            Manner::Brief => 95,
        };
        if !self.inbox.unread.is_empty() && self.random.chance(appetite) {
            let n = 1 + self.random.below(self.inbox.unread.len() as u64) as usize;
            for byte in self.inbox.unread.drain(..n) {
                self.inbox.hash.write_u8(byte);
            }
            self.inbox.total += n;
            let unread = self.inbox.unread.len() as u32;
            self.call(now_ns, config, |conn, cx, _| conn.on_read(cx, unread));
        }
        let (room, size_max) = match manner {
            Manner::Bulk => (BUFFER - self.outbox.len(), 9000),
            Manner::Brief if self.outbox.is_empty() || self.random.chance(5) => (BUFFER, 700),
            Manner::Brief => (0, 0),
        };
        if self.to_write > 0 && room > 0 {
            let n = (1 + self.random.below(size_max) as usize)
                .min(self.to_write)
                .min(room);
            for _ in 0..n {
                let byte = self.random.next() as u8;
                self.written.write_u8(byte);
                self.outbox.push(byte);
            }
            self.to_write -= n;
            let buffered = self.outbox.len() as u32;
            self.call(now_ns, config, |conn, cx, _| conn.on_write(cx, buffered));
        } else if self.to_write == 0 && !self.shut && self.conn.state() != State::SynSent {
            self.shut = true;
            self.call(now_ns, config, |conn, cx, _| conn.shutdown_write(cx));
        }
    }
}

impl World {
    fn turn(&mut self) {
        for i in 0..2 {
            let (now_ns, config) = (self.now_ns, self.config.clone());
            self.ends[i].application(now_ns, &config, self.manner);
            if self.ends[i].conn.deadline_ns() <= now_ns {
                self.ends[i].call(now_ns, &config, |conn, cx, _| conn.on_timer(cx));
            }
            self.transmit(i);
        }
    }

    fn transmit(&mut self, i: usize) {
        let mut out = SegmentOut::empty();
        let mut shadow = None;
        loop {
            let end = &mut self.ends[i];
            let mut cx = Cx {
                now_ns: self.now_ns,
                config: &self.config,
                challenge: &mut end.challenge,
                counters: &mut end.counters,
                records: &mut end.records,
                ranges: &mut end.ranges,
                memory: tcp::Memory::Ample,
            };
            let may_predict = end.may_predict;
            if !alike(&mut end.conn, &mut cx, &mut out, may_predict, poll).0 {
                assert!(shadow.is_none(), "less than foretold");
                return;
            }
            Shadow::follow(&mut shadow, &end.conn, &cx, &out);
            let from = out.payload_offset as usize;
            let payload = end.outbox[from..from + out.payload_len as usize].to_vec();
            let segment = Segment {
                seq: out.seq,
                ack: out.ack,
                flags: out.flags,
                window: out.window,
                urgent: 0,
                len: out.payload_len,
                options: Options { ..out.options },
                ecn: out.ecn,
            };
            self.carry(1 - i, Packet { segment, payload });
        }
    }

    fn carry(&mut self, to: usize, packet: Packet) {
        let copies = 1 + u64::from(self.random.chance(self.faults.duplication));
        for _ in 0..copies {
            if self.random.chance(self.faults.loss) {
                continue;
            }
            let mut at_ns = self.now_ns + self.faults.delay_ns;
            if self.random.chance(self.faults.reordering) {
                at_ns += self.random.below(5 * MS);
            }
            self.sent += 1;
            let copy = Packet {
                segment: packet.segment.clone(),
                payload: packet.payload.clone(),
            };
            self.wire.insert((at_ns, self.sent), (to, copy));
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now_ns {
                return;
            }
            let (to, packet) = entry.remove();
            let end = &mut self.ends[to];
            end.inbox.payload = packet.payload;
            end.call(self.now_ns, &self.config, |conn, cx, rx| {
                conn.on_segment(cx, &packet.segment, rx)
            });
        }
    }

    fn next_ns(&self) -> u64 {
        let arrival_ns = self.wire.keys().next().map_or(u64::MAX, |key| key.0);
        let busy = self.ends.iter().any(|end| {
            let may_write =
                self.manner == Manner::Bulk && end.outbox.len() < BUFFER || end.outbox.is_empty();
            !end.inbox.unread.is_empty() || end.to_write > 0 && may_write
        });
        let soon_ns = if busy { self.now_ns + MS } else { u64::MAX };
        self.ends
            .iter()
            .filter(|end| !end.over)
            .map(|end| end.conn.deadline_ns())
            .fold(arrival_ns.min(soon_ns), u64::min)
            .max(self.now_ns + 1000)
    }

    fn finished(&self) -> bool {
        self.ends.iter().all(|end| {
            end.eof
                && end.inbox.unread.is_empty()
                && matches!(end.conn.state(), State::TimeWait | State::Closed)
        })
    }
}

fn run(seed: u64, faults: Faults, manner: Manner, bytes: [usize; 2], prediction: bool) -> World {
    // With a third of all segments lost, giving up would depend on chance.
    let config = Config {
        retries_max: 60,
        orphan_retries_max: 60,
        // No end may be patient for longer than the other one stays in TIME_WAIT.
        rto_ns_max: 5000 * MS,
        ..Config::default()
    };
    let mut seeds = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let iss = [seeds.next() as u32, seeds.next() as u32 | 0xffff_0000];
    let pool = || RecordPool::new(records_for(seed), 1);
    let ends = [0, 1].map(|i| {
        let seed = seeds.next();
        End::new((&config, pool()), iss[i], bytes[i], seed, prediction)
    });
    let random = Random(seeds.next() | 1);
    let mut world = World {
        now_ns: MS,
        config,
        ends,
        wire: BTreeMap::new(),
        sent: 0,
        faults,
        manner,
        random,
    };
    for _ in 0..2_000_000 {
        world.turn();
        if world.finished() {
            return world;
        }
        let next_ns = world.next_ns();
        assert!(
            next_ns < u64::MAX,
            "seed {seed}: stuck; {:?}",
            world.ends.each_ref().map(|e| e.conn.info())
        );
        world.now_ns = next_ns;
        world.deliver();
    }
    panic!(
        "seed {seed}: no end in sight; {:?}",
        world.ends.each_ref().map(|e| e.conn.info())
    );
}

fn check(seed: u64, faults: Faults, bytes: [usize; 2]) -> u64 {
    check_in(Manner::Bulk, seed, faults, bytes)
}

fn check_in(manner: Manner, seed: u64, faults: Faults, bytes: [usize; 2]) -> u64 {
    let mut ends_at = [0; 2];
    let mut counted = Vec::new();
    for (i, prediction) in [true, false].into_iter().enumerate() {
        let world = run(seed, faults, manner, bytes, prediction);
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(
                world.ends[to].inbox.total, bytes[from],
                "seed {seed}: bytes"
            );
            assert_eq!(
                world.ends[from].written.finish(),
                world.ends[to].inbox.hash.finish(),
                "seed {seed}: hash"
            );
        }
        let predicted = world
            .ends
            .iter()
            .map(|end| end.counters.predicted_in)
            .sum::<u64>();
        assert!(prediction || predicted == 0);
        let undisturbed = faults.loss + faults.duplication + faults.reordering == 0;
        assert!(!prediction || !undisturbed || predicted > 0);
        ends_at[i] = world.now_ns;
        counted.push(world.ends.map(|end| Counters {
            predicted_in: 0,
            ..end.counters
        }));
    }
    assert_eq!(counted[0], counted[1], "seed {seed}");
    // Header prediction changes nothing, so the two runs end at the same nanosecond.
    assert_eq!(ends_at[0], ends_at[1], "seed {seed}");
    ends_at[0]
}

#[test]
fn link_without_faults() {
    let faults = Faults {
        loss: 0,
        duplication: 0,
        reordering: 0,
        delay_ns: MS,
    };
    for seed in 1..10 {
        check(seed, faults, [1_000_000, 300_000]);
    }
}

#[test]
fn link_with_loss() {
    for (seed, loss) in (1..24).zip([1, 2, 5, 10, 20, 30].into_iter().cycle()) {
        let faults = Faults {
            loss,
            duplication: 0,
            reordering: 0,
            delay_ns: 5 * MS,
        };
        check(seed, faults, [200_000, 50_000]);
    }
}

#[test]
fn link_with_everything() {
    for seed in 1..60 {
        let faults = Faults {
            loss: seed % 15,
            duplication: seed % 7,
            reordering: (seed % 4) * 10,
            delay_ns: (seed % 5) * 3 * MS,
        };
        check(seed, faults, [(seed as usize % 6) * 30_000, 100_000]);
    }
}

/// From this seed on, the ends have only a few records.
const FEW_RECORDS_FROM: u64 = 1000;

fn records_for(seed: u64) -> usize {
    match seed < FEW_RECORDS_FROM {
        true => 256,
        false => 1 + seed as usize % 4,
    }
}

#[test]
fn link_with_hardly_a_record() {
    for seed in FEW_RECORDS_FROM..FEW_RECORDS_FROM + 40 {
        let faults = Faults {
            loss: seed % 15,
            duplication: seed % 7,
            reordering: (seed % 4) * 10,
            delay_ns: (seed % 5) * 3 * MS,
        };
        check(seed, faults, [(seed as usize % 6) * 30_000, 100_000]);
    }
}

#[test]
fn link_with_brief_messages() {
    for seed in 1..60 {
        let faults = Faults {
            loss: [0, 0, 0, 1, 5][seed as usize % 5],
            duplication: [0, 0, 2][seed as usize % 3],
            reordering: [0, 0, 0, 10][seed as usize % 4],
            delay_ns: [0, MS / 20, MS, 30 * MS][seed as usize % 4],
        };
        check_in(Manner::Brief, seed, faults, [20_000, 10_000]);
    }
}

#[test]
fn link_one_way_is_not_slow() {
    // A clean link with a round trip of 20 ms: slow start reaches the 64 KiB buffer, which then
    // limits.
    let faults = Faults {
        loss: 0,
        duplication: 0,
        reordering: 0,
        delay_ns: 10 * MS,
    };
    let ns = check(5, faults, [2_000_000, 0]);
    assert!(ns < 2000 * MS, "{} ms", ns / MS);
}
