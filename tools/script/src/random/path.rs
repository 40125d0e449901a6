//! Scripts whose peer is a receiver behind a path that loses, reorders and duplicates. Our sender
//! and the kernel's suffer the same losses.
//!
//! A receiver's answers depend on what was sent to it, so a script grows by one event at a time.
//! The script so far is played on our stack, the packets that left go over the path, and the
//! receiver's answer is the next event. As long as the kernel sends the same, these are the answers
//! that a real receiver would give the kernel. The kernel's first deviation is the difference.
//! `tcp_info` is printed after each event of the peer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::receiver::{Receiver, Said};
use crate::ast::{Micros, flag};
use crate::datagram::Segment;
use crate::{Machine, Options, run};
use world::random::Random;

/// Most events of the peer and the program after the handshake.
const EVENTS_MAX: usize = 60;
/// Longest silence in µs. A script ends after it.
const SILENCE: Micros = 2_500_000;
/// Time of the first write in µs, after the handshake.
const BEGIN: Micros = 300_000;

/// Additional delay of data in µs, compared with the handshake. A kernel in real time answers a
/// little late, and none of its round trips may become the shortest for that reason.
const SLOWER: Micros = 2_500;

/// Fields printed after each event: everything the sender counts, and no times.
const PRINT: &str = "%{ print(tcpi_ca_state, tcpi_snd_cwnd, tcpi_snd_ssthresh, 'out', tcpi_unacked, tcpi_sacked, tcpi_lost, tcpi_retrans, \
     'total', tcpi_total_retrans, tcpi_delivered, tcpi_dsack_dups, 'reord', tcpi_reordering, tcpi_reord_seen, tcpi_backoff, tcpi_notsent_bytes) }%";

/// The script of a seed.
pub fn script(seed: u64) -> String {
    let mut draw = Draw::new(seed);
    draw.open();
    while draw.events < EVENTS_MAX && draw.next() {}
    let end = draw.now + 400_000;
    draw.line(end, PRINT);
    draw.text
}

/// An event that lies ahead.
#[derive(Debug, Clone)]
enum Event {
    /// A segment reaches the receiver.
    Arrives(Segment),
    /// The receiver's delayed-ACK timer fires.
    Delayed,
    /// An ACK reaches the sender.
    Ack(Said),
    /// The program writes this many bytes.
    Write(u32),
}

struct Draw {
    dice: Random,
    text: String,
    receiver: Receiver,
    /// Future events, by time and then by the order in which they were planned.
    events_ahead: BTreeMap<(Micros, usize), Event>,
    made: usize,
    events: usize,
    now: Micros,
    /// Number of recorded packets that the path has handled.
    departed: usize,
    rtt: Micros,
    /// `SO_MAX_PACING_RATE`, in bytes per second.
    rate_max: Option<u32>,
    jitter: Micros,
    lost_percent: u64,
    late_percent: u64,
    twice_percent: u64,
    ack_lost_percent: u64,
    /// Losses still to come. After them the path is clean, since otherwise only timeouts would be
    /// seen.
    trouble_left: usize,
}

impl Draw {
    fn new(seed: u64) -> Draw {
        let mut dice = Random::new(seed, 41);
        let receiver = Receiver {
            has_sack: dice.percent(75),
            has_timestamps: dice.percent(40),
            delays: dice.percent(40),
            window: dice.pick(&[65_535, 65_535, 65_535, 2000, 100]),
            ..Receiver::default()
        };
        // Pacing draws from dice of its own, so that seeds without it keep their scripts.
        let mut pacing = Random::new(seed, 42);
        let rate = pacing.pick(&[4000, 10_000, 30_000, 100_000, 300_000]);
        Draw {
            rate_max: pacing.percent(15).then_some(rate),
            text: format!("// Path {seed}.\n"),
            receiver,
            events_ahead: BTreeMap::new(),
            made: 0,
            events: 0,
            now: 0,
            departed: 0,
            rtt: dice.pick(&[30_000, 60_000, 100_000, 150_000]),
            jitter: dice.pick(&[0, 0, 1000, 6000]),
            lost_percent: dice.pick(&[0, 3, 10, 25, 40]),
            late_percent: dice.pick(&[0, 0, 0, 10, 25]),
            twice_percent: dice.pick(&[0, 0, 0, 5]),
            ack_lost_percent: dice.pick(&[0, 0, 0, 10, 30]),
            trouble_left: dice.pick(&[5, 10, 14, 20, 40]),
            dice,
        }
    }

    fn line(&mut self, at: Micros, text: &str) {
        let seconds = at as f64 / 1e6;
        let _ = writeln!(self.text, "{seconds:.6} {text}");
        self.now = at;
    }

    fn plan(&mut self, at: Micros, event: Event) {
        self.made += 1;
        self.events_ahead.insert((at, self.made), event);
    }

    fn open(&mut self) {
        let congestion = self.dice.pick(&["cubic", "cubic", "reno"]);
        for (name, value, percent) in [
            ("tcp_recovery", "0", 5),
            ("tcp_early_retrans", "0", 10),
            ("tcp_frto", "0", 5),
            ("tcp_slow_start_after_idle", "1", 20),
        ] {
            if self.dice.percent(percent) {
                let _ = writeln!(self.text, "`sysctl -q net.ipv4.{name}={value}`");
                break;
            }
        }
        self.line(0, "socket(..., SOCK_STREAM, IPPROTO_TCP) = 3");
        self.line(0, "bind(3, ..., ...) = 0");
        self.line(0, "listen(3, 1) = 0");
        let options = self.receiver.syn_options();
        self.line(10_000, &format!("< S 0:0(0) win 65535 <{options}>"));
        let at = 10_000 + self.rtt;
        let ack = self.receiver.acknowledge(at);
        self.line(at, &ack.text());
        self.line(at, "accept(3, ..., ...) = 4");
        self.line(at, "fcntl(4, F_SETFL, O_RDWR|O_NONBLOCK) = 0");
        self.line(at, "setsockopt(4, SOL_TCP, TCP_NODELAY, [1], 4) = 0");
        self.line(
            at,
            &format!("setsockopt(4, SOL_TCP, TCP_CONGESTION, \"{congestion}\", 5) = 0"),
        );
        if let Some(rate) = self.rate_max {
            self.line(
                at,
                &format!("setsockopt(4, SOL_SOCKET, SO_MAX_PACING_RATE, [{rate}], 4) = 0"),
            );
        }
        let mut at = BEGIN;
        for _ in 0..self.dice.pick(&[1, 1, 2, 4]) {
            let segments = self.dice.magnitude(1, 40) as u32;
            let odd = self.dice.pick(&[0, 0, 0, 1, 400]);
            self.plan(at, Event::Write(segments * 1000 + odd));
            at += self.dice.pick(&[500, 20_000, 200_000, 500_000]);
        }
    }

    /// Plays the script so far and lets the next event happen. False: there is none.
    fn next(&mut self) -> bool {
        let first = self.events_ahead.first_key_value();
        let until = first.map_or(self.now + SILENCE, |((at, _), _)| *at);
        self.play(until);
        let Some(((at, _), event)) = self.events_ahead.pop_first() else {
            return false;
        };
        match event {
            Event::Write(bytes) => {
                self.events += 1;
                self.line(at, &format!("write(4, ..., {bytes}) = {bytes}"));
            }
            Event::Ack(said) => {
                self.events += 1;
                self.line(at, &said.text());
                self.line(at, PRINT);
            }
            Event::Arrives(segment) => {
                let said = self.receiver.arrives(&segment, at);
                self.answer(said, at);
                if self.receiver.waits {
                    self.plan(at + 25_000, Event::Delayed);
                }
            }
            Event::Delayed => {
                let said = self.receiver.delayed(at);
                self.answer(said, at);
            }
        }
        true
    }

    fn answer(&mut self, said: Option<Said>, at: Micros) {
        let Some(said) = said else { return };
        if !self.trouble(self.ack_lost_percent) {
            self.plan(at + self.rtt / 2, Event::Ack(said));
        }
    }

    fn trouble(&mut self, percent: u64) -> bool {
        self.dice.percent(percent) && self.trouble_left > 0
    }

    /// Puts the packets that leave before `until` on the path.
    fn play(&mut self, until: Micros) {
        let seconds = until as f64 / 1e6;
        let text = format!(
            "{}{seconds:.6} getsockopt(4, SOL_SOCKET, SO_KEEPALIVE, [0], [4]) = 0\n",
            self.text
        );
        let how = Options {
            on: Machine::Stack,
            record: true,
            ..Options::default()
        };
        let Ok(report) = run(&text, &how) else { return };
        let departed = report.record.departed().skip(self.departed);
        let departed: Vec<(Micros, Segment)> = departed.map(|(at, s)| (at, s.clone())).collect();
        self.departed += departed.len();
        for (at, segment) in departed {
            if !segment.has(flag::SYN) && !segment.payload.is_empty() {
                self.carry(at, segment);
            }
        }
    }

    fn carry(&mut self, at: Micros, segment: Segment) {
        let is_lost = self.trouble(self.lost_percent);
        let is_late = self.trouble(self.late_percent);
        let is_twice = self.trouble(self.twice_percent);
        self.trouble_left = self.trouble_left.saturating_sub(1);
        if is_lost {
            return;
        }
        let mut delay = self.rtt / 2 + SLOWER + self.dice.below(self.jitter as u64 + 1) as Micros;
        if is_late {
            delay += self
                .dice
                .pick(&[2000, self.rtt / 8, self.rtt / 3, self.rtt]);
        }
        if is_twice {
            let later = at + delay + 3000;
            self.plan(later, Event::Arrives(segment.clone()));
        }
        self.plan(at + delay, Event::Arrives(segment));
    }
}
