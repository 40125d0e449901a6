//! Two connections over a path with a bottleneck, in virtual time. The path has a rate, a queue and
//! a propagation delay, and on request random loss, a policer, or ACKs in bunches. One side sends,
//! the other reads at once.

use std::collections::BTreeMap;

use tcp::{
    ActiveOpen, BbrInfo, Buffers, ChallengeLimiter, Config, CongestionAlgorithm, Connection,
    Counters, Cx, Effects, Info, Memory, RangePool, RecordPool, RecvBuffer, Segment, SegmentOut,
    State,
};
use wire::SeqNumber;

pub const MS: u64 = tcp::MILLISECOND_NS;
pub const SECOND: u64 = tcp::SECOND_NS;
/// Payload bytes of a full segment, and its bytes on the wire.
pub const PAYLOAD: u32 = 1448;
pub const FRAME: u32 = 1514;

/// The path's treatment of the sender's segments.
#[derive(Clone, Debug)]
pub struct PathSettings {
    /// Rate of the bottleneck in bytes per second, headers included.
    pub rate: u64,
    /// Bytes that may wait at the bottleneck.
    pub queue_bytes: u64,
    /// Propagation delay of a round trip.
    pub rtt_ns: u64,
    /// Segments lost, in hundredths of a percent.
    pub loss: u64,
    /// A policer before the bottleneck: bytes per second and bytes of the bucket.
    pub policer: Option<(u64, u64)>,
    /// Time by which the sender's timers are late.
    pub late_ns: u64,
    /// ACKs leave the receiver at multiples of this time only; 0: at once.
    pub ack_grid_ns: u64,
}

impl PathSettings {
    /// `mbit` per second, and a queue of twice the bandwidth-delay product, but at least of a large
    /// burst.
    pub fn new(mbit: u64, rtt_ms: u64) -> Self {
        let rate = mbit * 125_000;
        PathSettings {
            rate,
            queue_bytes: (rate * rtt_ms / 1000 * 2).max(80_000),
            rtt_ns: rtt_ms * MS,
            loss: 0,
            policer: None,
            late_ns: 0,
            ack_grid_ns: 0,
        }
    }

    /// Payload rate of the bottleneck in bytes per second.
    pub fn payload_rate(&self) -> f64 {
        self.rate as f64 * f64::from(PAYLOAD) / f64::from(FRAME)
    }
}

/// A receive buffer that counts payload and does not store it.
#[derive(Default)]
struct Counted {
    ahead: BTreeMap<u32, u32>,
    published: u64,
    unread: u32,
}

impl RecvBuffer for Counted {
    fn write_at(&mut self, offset: u32, _skip: u32, len: u32) -> u32 {
        self.ahead.insert(offset, len);
        len
    }

    fn forget(&mut self, _offset: u32) {}

    fn publish(&mut self, n: u32) {
        self.published += u64::from(n);
        self.unread += n;
    }
}

struct End {
    conn: Connection,
    challenge: ChallengeLimiter,
    counters: Counters,
    records: RecordPool,
    ranges: RangePool,
    inbox: Counted,
    buffered: u32,
}

macro_rules! cx {
    ($path:expr, $end:expr) => {
        Cx {
            now_ns: $path.now_ns,
            config: &$path.config,
            challenge: &mut $end.challenge,
            counters: &mut $end.counters,
            records: &mut $end.records,
            ranges: &mut $end.ranges,
            memory: Memory::Ample,
        }
    };
}

/// The path and both ends.
pub struct Path {
    pub settings: PathSettings,
    pub now_ns: u64,
    /// The application writes as much as it can; if false, only what `write` says.
    pub bulk: bool,
    /// Segments that the queue or the policer dropped, and that were lost at random.
    pub dropped: u64,
    pub lost: u64,
    config: Config,
    ends: [End; 2],
    wire: BTreeMap<(u64, u64), (usize, Segment)>,
    sent: u64,
    free_ns: u64,
    bucket: f64,
    bucket_ns: u64,
    random: u64,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;

impl Path {
    /// Connects both ends; the sender uses this algorithm.
    pub fn new(settings: PathSettings, choice: CongestionAlgorithm) -> Self {
        let mut config = Config {
            congestion: choice,
            ..Config::default()
        };
        // Buffers so large that neither is the limit.
        config.send_buffer.bytes_default = 16 << 20;
        config.send_buffer.bytes_max = 16 << 20;
        config.recv_buffer.bytes_max = 32 << 20;
        let ends = [1, 2].map(|number| end(&config, number));
        let mut path = Path {
            bucket: settings.policer.map_or(0.0, |(_, bytes)| bytes as f64),
            settings,
            now_ns: SECOND,
            bulk: false,
            dropped: 0,
            lost: 0,
            config,
            ends,
            wire: BTreeMap::new(),
            sent: 0,
            free_ns: 0,
            bucket_ns: SECOND,
            random: 0x9e37_79b9_7f4a_7c15,
        };
        while path.sender().state() != State::Established {
            path.step(u64::MAX);
        }
        path
    }

    pub fn sender(&self) -> &Connection {
        &self.ends[SENDER].conn
    }

    pub fn sender_mut(&mut self, call: impl FnOnce(&mut Connection, &mut Cx<'_>)) {
        let end = &mut self.ends[SENDER];
        call(&mut end.conn, &mut cx!(self, end));
        self.transmit(SENDER);
    }

    pub fn info(&self) -> Info {
        self.sender().info_at(self.now_ns)
    }

    pub fn bbr(&self) -> BbrInfo {
        self.sender().bbr_info().expect("BBR is in use")
    }

    /// Payload bytes that have arrived in order.
    pub fn received(&self) -> u64 {
        self.ends[RECEIVER].inbox.published
    }

    /// Bytes that wait at the bottleneck.
    pub fn queued(&self) -> u64 {
        let wait_ns = self.free_ns.saturating_sub(self.now_ns);
        (u128::from(wait_ns) * u128::from(self.settings.rate) / u128::from(SECOND)) as u64
    }

    /// Lets the application write `bytes` bytes.
    pub fn write(&mut self, bytes: u32) {
        let end = &mut self.ends[SENDER];
        end.buffered += bytes;
        let buffered = end.buffered;
        let _ = end.conn.on_write(&mut cx!(self, end), buffered);
        self.transmit(SENDER);
    }

    /// Lets time pass; `look` sees the path after every event.
    pub fn run_looking(&mut self, ns: u64, mut look: impl FnMut(&Path)) {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            self.step(until_ns);
            look(self);
        }
    }

    pub fn run(&mut self, ns: u64) {
        self.run_looking(ns, |_| {});
    }

    /// Lets time pass; returns the payload bytes per second that arrive meanwhile.
    pub fn goodput(&mut self, ns: u64) -> f64 {
        let before = self.received();
        self.run(ns);
        (self.received() - before) as f64 * 1e9 / ns as f64
    }

    fn step(&mut self, until_ns: u64) {
        self.fill();
        for number in [SENDER, RECEIVER] {
            self.transmit(number);
        }
        let arrival_ns = self.wire.keys().next().map_or(u64::MAX, |key| key.0);
        let timers = [SENDER, RECEIVER].map(|number| self.timer_ns(number));
        let next_ns = timers.into_iter().fold(arrival_ns, u64::min);
        self.now_ns = next_ns.clamp(self.now_ns, until_ns.max(self.now_ns));
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let (to, segment) = entry.remove();
            self.arrive(to, &segment);
        }
        for number in [SENDER, RECEIVER] {
            let is_due = self.timer_ns(number) <= self.now_ns;
            let end = &mut self.ends[number];
            if is_due {
                let _ = end.conn.on_timer(&mut cx!(self, end));
            }
        }
    }

    /// Time at which the end's timer is served.
    fn timer_ns(&self, number: usize) -> u64 {
        let late_ns = if number == SENDER {
            self.settings.late_ns
        } else {
            0
        };
        let deadline_ns = self.ends[number].conn.deadline_ns();
        deadline_ns.saturating_add(late_ns)
    }

    fn fill(&mut self) {
        if !self.bulk {
            return;
        }
        let end = &mut self.ends[SENDER];
        let room = end.conn.send_room(&cx!(self, end));
        if room.limit > end.buffered && end.buffered <= room.wake {
            end.buffered = room.limit;
            let _ = end.conn.on_write(&mut cx!(self, end), room.limit);
        }
    }

    fn arrive(&mut self, to: usize, segment: &Segment) {
        let end = &mut self.ends[to];
        let _ = end
            .conn
            .on_segment(&mut cx!(self, end), segment, &mut end.inbox);
        end.buffered -= end.conn.take_acked();
        if end.inbox.unread > 0 {
            end.inbox.unread = 0;
            let run = end.conn.begin_run();
            end.conn.note_read(&mut cx!(self, end), 0);
            let _ = end.conn.end_run(&mut cx!(self, end), Effects::NONE, run);
        }
        assert_eq!(end.conn.error(), None);
        self.transmit(to);
    }

    fn transmit(&mut self, from: usize) {
        let mut out = SegmentOut::empty();
        loop {
            let end = &mut self.ends[from];
            if !end.conn.poll_transmit(&mut cx!(self, end), &mut out) {
                return;
            }
            let segment = Segment {
                seq: out.seq,
                ack: out.ack,
                flags: out.flags,
                window: out.window,
                urgent: 0,
                len: out.payload_len,
                options: out.options,
                ecn: out.ecn,
            };
            let at_ns = if from == SENDER {
                self.through_bottleneck(out.payload_len)
            } else {
                Some(self.back())
            };
            if let Some(at_ns) = at_ns {
                self.sent += 1;
                self.wire.insert((at_ns, self.sent), (1 - from, segment));
            }
        }
    }

    /// Time at which the segment arrives; `None` if it is lost.
    fn through_bottleneck(&mut self, payload: u32) -> Option<u64> {
        let bytes = u64::from(payload + FRAME - PAYLOAD);
        if payload > 0 && self.next_random() % 10_000 < self.settings.loss {
            self.lost += 1;
            return None;
        }
        if !self.passes_policer(bytes) || self.queued() + bytes > self.settings.queue_bytes {
            self.dropped += 1;
            return None;
        }
        let took_ns = bytes * SECOND / self.settings.rate;
        self.free_ns = self.free_ns.max(self.now_ns) + took_ns;
        Some(self.free_ns + self.settings.rtt_ns / 2)
    }

    fn passes_policer(&mut self, bytes: u64) -> bool {
        let Some((rate, most)) = self.settings.policer else {
            return true;
        };
        let passed_ns = self.now_ns - self.bucket_ns;
        self.bucket_ns = self.now_ns;
        let filled = self.bucket + passed_ns as f64 * rate as f64 / 1e9;
        self.bucket = filled.min(most as f64);
        if self.bucket < bytes as f64 {
            return false;
        }
        self.bucket -= bytes as f64;
        true
    }

    fn back(&self) -> u64 {
        let leaves_ns = match self.settings.ack_grid_ns {
            0 => self.now_ns,
            grid_ns => self.now_ns.next_multiple_of(grid_ns),
        };
        leaves_ns + self.settings.rtt_ns / 2
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn end(config: &Config, number: u32) -> End {
    let mut challenge = ChallengeLimiter::new(7);
    let mut counters = Counters::default();
    let mut records = RecordPool::new(1 << 16, 1);
    let mut ranges = RangePool::new(1 << 10);
    let open = ActiveOpen {
        iss: SeqNumber(number * 1_000_000),
        ts_offset: number,
        mss: 1460,
        mss_default: 536,
        fast_open: None,
        buffers: Buffers::of(config),
    };
    let mut cx = Cx {
        now_ns: SECOND,
        config,
        challenge: &mut challenge,
        counters: &mut counters,
        records: &mut records,
        ranges: &mut ranges,
        memory: Memory::Ample,
    };
    let conn = Connection::connect(&mut cx, &open);
    End {
        conn,
        challenge,
        counters,
        records,
        ranges,
        inbox: Counted::default(),
        buffered: 0,
    }
}
