//! Two ends over a path: the handshake, the events in virtual time, and the rows of the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tcp::half_open::{HalfOpen, HalfOpenOutcome};
use tcp::listen::{self, ListenOutcome, PassiveOpen};
use tcp::{ActiveOpen, Buffers, Connection, Effects, Memory, Segment, SegmentOut, State};
use wire::{Ecn, SeqNumber};

use crate::draw::{MS, Manner, Random, Reader, Settings};
use crate::end::{Digest, End, Lent};
use crate::single_calls::SingleCalls as _;

const START_NS: u64 = 1000 * MS;
/// Interval at which applications act, and its largest deviation.
const LOOK_NS: u64 = MS;
/// Bytes of headers of a segment on the wire.
const HEADERS: u64 = 66;

pub struct Path {
    settings: Settings,
    now_ns: u64,
    ends: [End; 2],
    wire: BTreeMap<(u64, u64), (usize, Segment)>,
    sent: u64,
    free_ns: [u64; 2],
    look_ns: u64,
    /// Bytes of answers that the second end still has to write.
    owed: u64,
    random: Random,
}

impl Path {
    pub fn new(settings: Settings) -> Path {
        let config = settings.config.clone();
        let mut lent = [Lent::new(), Lent::new()];
        let mut now_ns = START_NS;
        let opened = ActiveOpen {
            iss: SeqNumber(0xffff_0000),
            ts_offset: 1,
            mss: 1460,
            mss_default: 536,
            fast_open: None,
            buffers: Buffers::of(&config),
        };
        let mut client = Connection::connect(&mut lent[0].cx(now_ns, &config), &opened);
        let mut out = SegmentOut::empty();
        assert!(client.poll_transmit(&mut lent[0].cx(now_ns, &config), &mut out));
        now_ns += settings.rtt_ns / 2;
        let ListenOutcome::Syn(request) = listen::on_segment(&arrived(&out)) else {
            panic!("no SYN");
        };
        let passive = PassiveOpen {
            iss: SeqNumber(0x7fff_ff00),
            ts_offset: 2,
            mss: 1460,
            buffers: Buffers::of(&config),
            is_v4: true,
            congestion: config.congestion,
            defer_accept: 0,
            retries_max: 0,
        };
        let mut half = HalfOpen::new(&mut lent[1].cx(now_ns, &config), &request, &passive);
        let syn_ack = half.syn_ack(&mut lent[1].cx(now_ns, &config));
        now_ns += settings.rtt_ns / 2;
        let mut inbox = crate::end::Counted::default();
        let mut cx = lent[0].cx(now_ns, &config);
        let _ = client.on_segment(&mut cx, &arrived(&syn_ack), &mut inbox);
        assert!(client.poll_transmit(&mut cx, &mut out));
        now_ns += settings.rtt_ns / 2;
        let mut cx = lent[1].cx(now_ns, &config);
        let ack = arrived(&out);
        let HalfOpenOutcome::Complete(handshake) = half.on_segment(&mut cx, &ack) else {
            panic!("not complete");
        };
        let mut server = Connection::accept(&mut cx, &handshake, &Buffers::of(&config));
        let _ = server.on_segment(&mut cx, &ack, &mut inbox);
        client.set_shortcuts(settings.seed.is_multiple_of(2));
        server.set_shortcuts(settings.seed.is_multiple_of(2));
        let [ours, other] = lent;
        Path {
            ends: [
                End::new(client, ours, settings.config.clone()),
                End::new(server, other, config),
            ],
            random: Random::new(settings.seed ^ 0x5555),
            now_ns,
            wire: BTreeMap::new(),
            sent: 0,
            free_ns: [now_ns; 2],
            look_ns: now_ns,
            owed: 0,
            settings,
        }
    }

    pub fn run_until_row(&mut self, row: u64, rows: u64) {
        let end_ns = START_NS + self.settings.ms * MS * row / rows;
        while self.now_ns < end_ns {
            self.step(end_ns);
        }
    }

    /// Digest of everything that the end did, and of its own reports.
    pub fn digest(&self, number: usize) -> u64 {
        let end = &self.ends[number];
        let mut digest = Digest(end.digest.0);
        let state = end.describe(self.now_ns);
        let _ = write!(digest, "{state} {:?}", end.lent.counters);
        digest.0
    }

    /// Bytes that both ends have received in order.
    pub fn bytes_received(&self) -> u64 {
        self.ends.iter().map(|end| end.inbox.published).sum()
    }

    pub fn write_row(&self, table: &mut String) {
        for (name, end) in ["client", "server"].iter().zip(&self.ends) {
            let ms = (self.now_ns - START_NS) / MS;
            let state = end.describe(self.now_ns);
            let _ = writeln!(table, "{ms} | {name} | {state} | {:016x}", end.digest.0);
        }
    }

    /// Writes the counters that are not zero, and checks that each retransmitted segment has one
    /// cause.
    pub fn write_counters(&self, table: &mut String) {
        for (name, end) in ["client", "server"].iter().zip(&self.ends) {
            let all = end.lent.counters.rows();
            let causes = all.filter(|(name, _)| name.starts_with("retransmitted_by_"));
            let again = end.lent.counters.segments_retransmitted;
            assert_eq!(causes.map(|(_, count)| count).sum::<u64>(), again);
            let all = format!("{:?}", end.lent.counters);
            let all = all.trim_start_matches("Counters { ").trim_end_matches(" }");
            let counted = all.split(", ").filter(|entry| !entry.ends_with(": 0"));
            let counted: Vec<&str> = counted.collect();
            let _ = writeln!(table, "{name} | {}", counted.join(", "));
        }
    }

    fn ms(&self) -> u64 {
        (self.now_ns - START_NS) / MS
    }

    fn step(&mut self, end_ns: u64) {
        if self.look_ns <= self.now_ns {
            self.look_ns = self.now_ns + LOOK_NS / 2 + self.random.below(LOOK_NS);
            self.applications();
        }
        for number in [0, 1] {
            self.transmit(number);
        }
        let arrival_ns = self.wire.keys().next().map_or(u64::MAX, |key| key.0);
        let timers = self.ends.iter().filter(|end| !end.is_over);
        let timers = timers.map(|end| end.conn.deadline_ns());
        let next_ns = timers.fold(arrival_ns.min(self.look_ns), u64::min);
        self.now_ns = next_ns.clamp(self.now_ns, end_ns);
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let (to, segment) = entry.remove();
            let end = &mut self.ends[to];
            end.call(self.now_ns, |conn, cx, rx| {
                conn.on_segment(cx, &segment, rx)
            });
            self.transmit(to);
        }
        for end in &mut self.ends {
            if !end.is_over && end.conn.deadline_ns() <= self.now_ns {
                end.call(self.now_ns, |conn, cx, _| conn.on_timer(cx));
            }
        }
    }

    fn applications(&mut self) {
        let (now_ns, ms) = (self.now_ns, self.ms());
        if self.settings.is_poor {
            self.ends[1].lent.memory = match ms % 700 {
                0..400 => Memory::Ample,
                400..500 => Memory::Low,
                500..650 => Memory::Pressure,
                _ => Memory::Exhausted,
            };
        }
        if self.settings.knobs {
            self.turn_a_knob();
        }
        let before = self.ends[1].inbox.unread;
        if before > 0 {
            let bytes = match self.settings.reader {
                Reader::Prompt => before,
                Reader::Slow(bytes) => bytes as u32,
                Reader::Pausing if ms % 900 < 600 => 0,
                Reader::Pausing => before,
            };
            if bytes > 0 {
                self.ends[1].read(now_ns, bytes);
            }
        }
        if self.ends[0].inbox.unread > 0 {
            self.ends[0].read(now_ns, u32::MAX);
        }
        let is_ending = ms * 10 > self.settings.ms * 7;
        if is_ending {
            self.end();
        } else {
            self.write();
        }
    }

    fn write(&mut self) {
        let now_ns = self.now_ns;
        let room = self.ends[0].room(now_ns);
        match self.settings.manner {
            Manner::Bulk if room > 0 => self.ends[0].write(now_ns, room),
            Manner::BulkBothWays => {
                for end in &mut self.ends {
                    let room = end.room(now_ns);
                    if room > 0 {
                        end.write(now_ns, room);
                    }
                }
            }
            Manner::Requests(most) if self.random.chance(2) => {
                let bytes = 1 + self.random.below(most);
                self.ends[0].write(now_ns, (bytes as u32).min(room));
                self.owed += self.random.below(2 * most);
            }
            Manner::Trickle(most) if self.random.chance(40) => {
                let bytes = 1 + self.random.below(most);
                let is_more = self.settings.knobs && self.random.chance(30);
                self.ends[0].write_some(now_ns, (bytes as u32).min(room), is_more);
            }
            _ => {}
        }
        let room = self.ends[1].room(now_ns);
        let answer = self.owed.min(u64::from(room));
        if answer > 0 && self.random.chance(30) {
            self.owed -= answer;
            self.ends[1].write(now_ns, answer as u32);
        }
    }

    fn end(&mut self) {
        for end in &mut self.ends {
            let may_end = end.conn.state() == State::Established
                || (end.conn.state() == State::CloseWait && end.inbox.unread == 0);
            if may_end && !end.is_over {
                end.call(self.now_ns, |conn, cx, _| conn.shutdown_write(cx));
            }
        }
    }

    fn turn_a_knob(&mut self) {
        if !self.random.chance(3) {
            return;
        }
        let (knob, bytes) = (self.random.below(9), self.random.below(200_000) as u32);
        let is_on = bytes.is_multiple_of(2);
        let number = self.random.below(2) as usize;
        self.ends[number].call(self.now_ns, |conn, cx, _| match knob {
            0 => conn.set_nodelay(cx, is_on),
            1 => conn.set_cork(cx, is_on),
            2 => conn.set_quick_ack(cx, is_on),
            knob => {
                match knob {
                    3 => conn.set_notsent_lowat(bytes),
                    4 => conn.set_send_buffer(cx, bytes),
                    5 => conn.set_recv_buffer(cx, bytes),
                    6 => conn.set_max_pacing_rate(cx, u64::from(bytes) * 20),
                    7 => conn.set_window_clamp(bytes),
                    _ => conn.set_rto_min_us(bytes),
                }
                Effects::NONE
            }
        });
    }

    fn transmit(&mut self, from: usize) {
        while let Some(mut segment) = self.ends[from].poll(self.now_ns) {
            let copies = 1 + u64::from(self.random.chance(self.settings.duplication));
            for _ in 0..copies {
                if let Some(at_ns) = self.passes(from, &mut segment) {
                    self.sent += 1;
                    let entry = (1 - from, segment.clone());
                    self.wire.insert((at_ns, self.sent), entry);
                }
            }
        }
    }

    /// Time at which the segment arrives; `None` if it is lost.
    fn passes(&mut self, from: usize, segment: &mut Segment) -> Option<u64> {
        let settings = &self.settings;
        let loss = match segment.len > 0 {
            true => settings.loss,
            false => settings.ack_loss,
        };
        let ms = (self.now_ns - START_NS) / MS;
        let is_out = (settings.outage_ms.0..settings.outage_ms.1).contains(&ms);
        if self.random.chance(loss) || is_out || segment.len > settings.payload_max {
            return None;
        }
        let bytes = u64::from(segment.len) + HEADERS;
        let waits_ns = self.free_ns[from].saturating_sub(self.now_ns);
        let queued = waits_ns * settings.rate / tcp::SECOND_NS;
        if queued + bytes > settings.queue_bytes {
            return None;
        }
        if queued > settings.mark_bytes && segment.ecn != Ecn::NotEct {
            segment.ecn = Ecn::Ce;
        }
        let took_ns = bytes * tcp::SECOND_NS / settings.rate;
        self.free_ns[from] = self.free_ns[from].max(self.now_ns) + took_ns;
        let mut at_ns = self.free_ns[from] + settings.rtt_ns / 2;
        if ms > settings.longer_from_ms {
            at_ns += settings.rtt_ns / 2;
        }
        if self.random.chance(settings.reordering) {
            at_ns += 1 + self.random.below(settings.late_ns.max(1));
        }
        Some(at_ns)
    }
}

fn arrived(out: &SegmentOut) -> Segment {
    Segment {
        seq: out.seq,
        ack: out.ack,
        flags: out.flags,
        window: out.window,
        urgent: 0,
        len: out.payload_len,
        options: out.options,
        ecn: out.ecn,
    }
}
