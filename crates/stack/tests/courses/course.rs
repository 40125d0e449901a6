//! A course: two stacks, their wires, strangers and observers, in virtual time.

use std::collections::BTreeMap;

use packetio::RxChecksum;
use stack::Usage;
use stack::context::Control;
use stack::rules::Judge;
use wire::ethernet::HEADER_LEN;

use crate::card::{Arriving, CardEnd};
use crate::common::{SECOND, frames};
use crate::draw::{self, Random, Settings};
use crate::end::{self, End};
use crate::observers;
use crate::strangers::{self, Strangers};

const START_NS: u64 = 1_000 * SECOND;
/// Step of the clock when nothing else moves it.
const PUSH_NS: u64 = 100_000;
/// Most turns of a stack at one time.
const TURNS_MAX: usize = 4;
/// Time after which both stacks must have forgotten everything.
const END_NS: u64 = 7_200 * SECOND;

/// Destination of a frame: stack and port.
type Place = (usize, usize);

pub struct Course {
    settings: Settings,
    ends: [End; 2],
    random: Random,
    strangers: Strangers,
    now_ns: u64,
    wire: BTreeMap<(u64, u64), (Place, Vec<u8>)>,
    sent: u64,
    /// Time at which each direction of each link becomes free.
    free_ns: BTreeMap<Place, u64>,
    text: Vec<u8>,
}

impl Course {
    pub fn new(seed: u64) -> Course {
        Course::of(draw::settings(seed))
    }

    /// Makes the course with these settings.
    pub fn of(settings: Settings) -> Course {
        let cards =
            |_| -> Vec<CardEnd> { (0..settings.ports).map(|_| CardEnd::default()).collect() };
        let ends = [0, 1].map(|number| End::new(number, &settings, cards(number), START_NS));
        let mut course = Course {
            random: Random::new(settings.seed ^ 0x5555),
            settings,
            ends,
            strangers: Strangers::default(),
            now_ns: START_NS,
            wire: BTreeMap::new(),
            sent: 0,
            free_ns: BTreeMap::new(),
            text: end::text(),
        };
        course.make_room();
        course
    }

    /// Runs the course; returns the digests of both stacks.
    pub fn run(mut self) -> [u64; 2] {
        for look in 0..self.settings.looks {
            let until_ns = START_NS + look * self.settings.look_ns;
            self.run_until(until_ns);
            self.look(look);
        }
        for end in &mut self.ends {
            observers::look_at_all(end, self.now_ns);
            end.close_all();
        }
        self.settings.path.room = None;
        self.settings.path.loss = 0;
        self.make_room();
        self.run_until(self.now_ns + PUSH_NS);
        let end_ns = self.now_ns + END_NS;
        while self.ends.iter().any(|end| end.usage() != Usage::default()) && self.now_ns < end_ns {
            let Some(next_ns) = self.next_ns() else { break };
            self.run_until(next_ns.clamp(self.now_ns, end_ns) + PUSH_NS);
        }
        for end in &mut self.ends {
            end.note_usage();
            end.note_report();
            assert_eq!(
                end.usage(),
                Usage::default(),
                "something was not given back"
            );
        }
        self.ends.map(|end| end.digest.0)
    }

    fn look(&mut self, look: u64) {
        self.make_room();
        for end in &mut self.ends {
            end.digest.word(self.now_ns);
            end.look(&self.settings.manner, &self.text);
            if self.random.chance(self.settings.observers) {
                observers::look(end, self.now_ns, &self.settings);
            }
            if self.random.chance(15) {
                observers::sleep(end, self.now_ns);
            }
            if self.random.chance(self.settings.observers) && self.random.chance(10) {
                let rules = draw::rules(&mut self.random);
                let judge = Judge::new(&rules, self.now_ns).unwrap();
                end.app.control(Control::Rules(judge));
            }
        }
        if self.random.chance(self.settings.strangers) {
            for (to, frame) in self.strangers.frames(&mut self.random) {
                self.put(self.now_ns, (to, 0), frame);
            }
        }
        if self.settings.gone_at == Some(look) {
            let end = &self.ends[(self.settings.seed % 2) as usize];
            end.cards[end.cards.len() - 1].lock().is_gone = true;
        }
    }

    fn make_room(&mut self) {
        for card in self.ends.iter().flat_map(|end| &end.cards) {
            card.lock().room = self.settings.path.room.unwrap_or(usize::MAX);
        }
    }

    /// Time of the next event.
    fn next_ns(&self) -> Option<u64> {
        let arrival_ns = self.wire.keys().next().map(|key| key.0);
        let timers = self.ends.iter().map(|end| end.stack.next_timer_ns());
        timers.chain([arrival_ns]).flatten().min()
    }

    fn run_until(&mut self, end_ns: u64) {
        self.turns();
        while let Some(next_ns) = self.next_ns().filter(|&next_ns| next_ns < end_ns) {
            self.now_ns = match next_ns > self.now_ns {
                true => next_ns,
                false => self.now_ns + PUSH_NS,
            };
            self.deliver();
            self.turns();
        }
        self.now_ns = self.now_ns.max(end_ns);
    }

    fn turns(&mut self) {
        for number in [0, 1] {
            for _ in 0..TURNS_MAX {
                let is_busy = self.ends[number].turn(self.now_ns, &self.settings.manner);
                self.carry(number);
                if !is_busy {
                    break;
                }
            }
        }
    }

    /// Carries the frames that a stack sent.
    fn carry(&mut self, from: usize) {
        for port in 0..self.settings.ports {
            let sent = std::mem::take(&mut self.ends[from].cards[port].lock().sent);
            for (frame, is_bulk) in sent {
                self.ends[from].digest.bytes(&frame);
                self.ends[from].digest.word(u64::from(is_bulk));
                self.send((from, port), frame);
            }
        }
    }

    fn send(&mut self, (from, port): Place, frame: Vec<u8>) {
        let to: [u8; 6] = frame[..6].try_into().unwrap();
        let is_group = to[0] & 1 == 1;
        if port == 0 && (is_group || to == strangers::MAC.0) {
            let answer = self.strangers.answer(&mut self.random, from, &frame);
            if let Some(answer) = answer {
                self.put(self.now_ns + self.settings.path.delay_ns, (from, 0), answer);
            }
        }
        if !is_group && to != crate::mac(1 - from, port).0 {
            return;
        }
        if port == 0 {
            self.strangers.see(1 - from, &frame);
        }
        let copies = 1 + u64::from(self.random.chance(self.settings.path.double));
        for _ in 0..copies {
            let mut copy = frame.clone();
            if let Some(at_ns) = self.passes((from, port), &mut copy) {
                self.put(at_ns, (1 - from, port), copy);
            }
        }
    }

    fn put(&mut self, at_ns: u64, to: Place, frame: Vec<u8>) {
        self.sent += 1;
        self.wire.insert((at_ns, self.sent), (to, frame));
    }

    /// Arrival time of a frame, after faults; `None`: the frame is lost.
    fn passes(&mut self, from: Place, frame: &mut [u8]) -> Option<u64> {
        let path = &self.settings.path;
        let random = &mut self.random;
        if random.chance(path.loss) {
            return None;
        }
        if random.chance(path.damage) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        if random.chance(path.mark) {
            mark(frame);
        }
        let mut at_ns = self.now_ns;
        if path.rate > 0 {
            let free_ns = self.free_ns.entry(from).or_default();
            let waits_ns = free_ns.saturating_sub(self.now_ns);
            if waits_ns * path.rate / SECOND > path.queue_bytes {
                return None;
            }
            *free_ns = self.now_ns + waits_ns + frame.len() as u64 * SECOND / path.rate;
            at_ns = *free_ns;
        }
        at_ns += path.delay_ns;
        if random.chance(path.late) {
            at_ns += random.below(path.late_ns);
        }
        Some(at_ns)
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let ((to, port), bytes) = entry.remove();
            let abilities = &self.settings.abilities[to];
            let checksum = match abilities.verifies {
                true => verdict(&bytes),
                false => RxChecksum::Unknown,
            };
            let mut card = self.ends[to].cards[port].lock();
            if self.settings.path.merges
                && !self.settings.hosted[to]
                && (abilities.cuts || abilities.has_bulk_lane)
                && let Some(last) = card.arriving.back_mut()
                && merge(last, &bytes)
            {
                continue;
            }
            card.arriving.push_back(Arriving {
                bytes,
                checksum,
                segment_bytes: 0,
            });
        }
    }
}

/// Marks an ECN-capable packet CE.
fn mark(frame: &mut [u8]) {
    match frame[12..14] {
        [8, 0] if frame[HEADER_LEN] == 0x45 && frame[HEADER_LEN + 1] & 3 != 0 => {
            frame[HEADER_LEN + 1] |= 3;
            frames::mend_ipv4(frame);
        }
        [0x86, 0xdd] if frame[HEADER_LEN + 1] & 0x30 != 0 => frame[HEADER_LEN + 1] |= 0x30,
        _ => {}
    }
}

/// The card's verdict on the checksum of a TCP segment.
fn verdict(frame: &[u8]) -> RxChecksum {
    match plain_tcp(frame) {
        Some(at) => {
            let (src, dst) = (&frame[HEADER_LEN + 12..], &frame[HEADER_LEN + 16..]);
            let address = |bytes: &[u8]| {
                wire::Addr::from(std::net::IpAddr::from([
                    bytes[0], bytes[1], bytes[2], bytes[3],
                ]))
            };
            let segment = &frame[at..];
            let mut sum = wire::checksum::pseudo_header(
                address(src),
                address(dst),
                wire::protocol::TCP,
                segment.len() as u32,
            );
            sum.add_bytes(segment);
            match sum.is_valid() {
                true => RxChecksum::Verified,
                false => RxChecksum::Bad,
            }
        }
        None => RxChecksum::Unknown,
    }
}

/// Offset of the TCP header in an IPv4 frame without options.
fn plain_tcp(frame: &[u8]) -> Option<usize> {
    let ip = frame.get(HEADER_LEN..)?;
    let is_plain = frame[12..14] == [8, 0] && ip.len() >= 40 && ip[0] == 0x45 && ip[9] == 6;
    let len = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    (is_plain && len == ip.len() && ip[6] & 0x3f == 0).then_some(HEADER_LEN + 20)
}

/// Appends a segment to the last one, as a merging card does: it must follow in sequence and differ
/// in nothing else.
fn merge(last: &mut Arriving, next: &[u8]) -> bool {
    let (Some(tcp), Some(_)) = (plain_tcp(&last.bytes), plain_tcp(next)) else {
        return false;
    };
    let header = usize::from(next[tcp + 12] >> 4) * 4;
    let text = tcp + header;
    if next.len() <= text || last.bytes.len() <= text || last.bytes.len() + next.len() > 40_000 {
        return false;
    }
    if verdict(next) != RxChecksum::Verified
        || (last.segment_bytes == 0 && verdict(&last.bytes) != RxChecksum::Verified)
    {
        return false;
    }
    let size = match last.segment_bytes {
        0 => last.bytes.len() - text,
        size => usize::from(size),
    };
    let number = |bytes: &[u8], at: usize| {
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let taken = last.bytes.len() - text;
    let a = &last.bytes;
    // Everything but the sequence number, PSH and the checksum is equal.
    let is_same = a[..HEADER_LEN + 2] == next[..HEADER_LEN + 2]
        && a[HEADER_LEN + 12..tcp + 4] == next[HEADER_LEN + 12..tcp + 4]
        && a[tcp + 8..tcp + 13] == next[tcp + 8..tcp + 13]
        && a[tcp + 13] == 0x10
        && next[tcp + 13] | 8 == 0x18
        && a[tcp + 14..tcp + 16] == next[tcp + 14..tcp + 16]
        && a[tcp + 20..text] == next[tcp + 20..text];
    let follows = number(next, tcp + 4) == number(a, tcp + 4).wrapping_add(taken as u32);
    let fits = taken.is_multiple_of(size) && next.len() - text <= size;
    if !(is_same && follows && fits) {
        return false;
    }
    last.bytes[tcp + 13] = next[tcp + 13];
    last.bytes.extend_from_slice(&next[text..]);
    let len = (last.bytes.len() - HEADER_LEN) as u16;
    last.bytes[HEADER_LEN + 2..HEADER_LEN + 4].copy_from_slice(&len.to_be_bytes());
    frames::mend_ipv4(&mut last.bytes);
    last.segment_bytes = size as u16;
    last.checksum = RxChecksum::Verified;
    true
}
