//! Scripts drawn from a seed, without expectations: our stack and the kernel get the same faults.
//!
//! A connection is opened from either side, then segments arrive and calls are made. Most are those
//! of a sane peer and a sane program. Some have a number at or beyond an edge, an unexpected flag,
//! a stale timestamp, or a SACK block of bytes that were never sent. The text is an ordinary
//! script, so one that shows a difference can be kept, shortened and read. `cargo xtask script
//! --compare --random` plays them.

pub mod path;
mod receiver;

use std::fmt::Write as _;

use world::random::Random;

/// Initial sequence numbers of the peer; two are close to a wrap of 32 or 31 bits.
const PEER_ISNS: [u32; 4] = [0, 0, 4_294_966_000, 2_147_482_000];
/// Options of the peer's SYN; whether they agree on timestamps and on SACK; and the window scale,
/// or 0.
const OPENINGS: &[(&str, bool, bool, u32)] = &[
    ("", false, false, 0),
    ("<mss 1000>", false, false, 0),
    ("<mss 1000,sackOK,nop,nop>", false, true, 0),
    ("<mss 1460,nop,nop,sackOK,nop,wscale 7>", false, true, 7),
    ("<mss 1000,nop,wscale 2>", false, false, 2),
    (
        "<mss 1460,sackOK,TS val 200 ecr 0,nop,wscale 7>",
        true,
        true,
        7,
    ),
    (
        "<mss 1000,sackOK,TS val 200 ecr 0,nop,wscale 0>",
        true,
        true,
        0,
    ),
    ("<mss 536,nop,nop,TS val 200 ecr 0>", true, false, 0),
];
/// Pauses in ms. They stay clear of the timers at 40 and 200 ms.
const PAUSES_MS: [u32; 14] = [0, 0, 0, 1, 1, 2, 5, 10, 10, 20, 60, 70, 120, 260];
/// Lengths of data in bytes.
const LENGTHS: [u32; 8] = [1, 10, 100, 536, 1000, 1000, 1460, 2920];

/// Flags that are unexpected in a segment, or rare.
const ODD_FLAGS: &[&str] = &[
    "R", "R.", "S", "S.", "F.", "FP.", "F", "P", "-", "U.", "SF", "SR", "FR.", "PU.", "S.P", "E.",
    "W.", "EW.",
];

/// The script of a seed.
pub fn script(seed: u64) -> String {
    let mut dice = Random::new(seed, 40);
    let hostility = dice.pick(&[0, 5, 15, 30, 60]);
    let (options, has_timestamps, has_sack, scale) = dice.pick(OPENINGS);
    let mut own = Random::new(seed, 43);
    let mut draw = Draw {
        sets_options: own.percent(25),
        own,
        hostility,
        has_timestamps,
        has_sack,
        has_scale: options.contains("wscale"),
        scale,
        isn: dice.pick(&PEER_ISNS),
        dice,
        text: format!("// Seed {seed}.\n"),
        pause_ms: 0,
        now_ms: 0,
        peer_next: 1,
        peer_fin: false,
        written: 0,
        fin: false,
        una: 1,
        fd: 3,
        is_open: true,
    };
    draw.open(options);
    for _ in 0..draw.dice.between(2, 14) {
        draw.step();
    }
    draw.finish();
    draw.text
}

struct Draw {
    dice: Random,
    /// Socket options are set between the steps. Their own dice keep scripts of other seeds
    /// unchanged.
    sets_options: bool,
    own: Random,
    text: String,
    /// Share of odd segments, in percent.
    hostility: u64,
    has_timestamps: bool,
    has_sack: bool,
    /// Whether a window scale was agreed on. The peer's is `scale`.
    has_scale: bool,
    scale: u32,
    isn: u32,
    /// Pause before the next line.
    pause_ms: u32,
    now_ms: u32,
    /// The sequence number that the peer sends next, relative to its SYN.
    peer_next: u32,
    peer_fin: bool,
    /// Bytes that the program wrote; `fin`: it has also shut down writing.
    written: u32,
    fin: bool,
    /// The highest acknowledgment number that the peer has sent.
    una: u32,
    fd: i32,
    is_open: bool,
}

/// A segment about to be written down.
struct Draft {
    flags: String,
    seq: u32,
    len: u32,
    ack: u32,
    window: u32,
    urgent: u32,
    options: Vec<String>,
    /// The packet has no timestamp option, even if timestamps were agreed on.
    lacks_timestamp: bool,
}

impl Draw {
    fn line(&mut self, text: &str) {
        let pause_ms = std::mem::take(&mut self.pause_ms);
        self.now_ms += pause_ms;
        let seconds = f64::from(pause_ms) / 1000.0;
        let _ = writeln!(self.text, "+{seconds} {text}");
    }

    fn pause(&mut self) {
        self.pause_ms += self.dice.pick(&PAUSES_MS);
    }

    fn odd(&mut self) -> bool {
        let hostility = self.hostility;
        self.dice.percent(hostility)
    }

    /// The end of the sequence numbers that the host may have sent.
    fn sent(&self) -> u32 {
        1 + self.written + u32::from(self.fin)
    }

    fn open(&mut self, options: &str) {
        let _ = writeln!(self.text, "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3");
        self.line("fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0");
        if self.dice.percent(20) {
            let bytes = self.dice.pick(&[4000, 20_000, 100_000]);
            self.line(&format!(
                "setsockopt(3, SOL_SOCKET, SO_RCVBUF, [{bytes}], 4) = 0"
            ));
        }
        let isn = self.isn;
        let window = self.dice.pick(&[65_535, 65_535, 10_000, 1000, 0]);
        if self.dice.percent(35) {
            self.line("connect(3, ..., ...) = -1 EINPROGRESS");
            self.pause_ms = 10;
            self.intrude();
            let options = options.replace("ecr 0", "ecr 100");
            self.line(&format!("< S. {isn}:{isn}(0) ack 1 win {window} {options}"));
        } else {
            self.line("bind(3, ..., ...) = 0");
            self.line("listen(3, 1) = 0");
            self.intrude();
            self.line(&format!("< S {isn}:{isn}(0) win {window} {options}"));
            self.pause_ms = 10;
            self.intrude();
            self.acknowledge();
            self.line("accept(3, ..., ...) = 4");
            self.fd = 4;
            self.line("fcntl(4, F_SETFL, O_RDWR|O_NONBLOCK) = 0");
        }
        if self.dice.percent(30) {
            let fd = self.fd;
            self.line(&format!(
                "setsockopt({fd}, SOL_TCP, TCP_NODELAY, [1], 4) = 0"
            ));
        }
    }

    /// Segments that do not belong in a handshake.
    fn intrude(&mut self) {
        while self.dice.percent(self.hostility / 2) {
            let draft = self.odd_segment();
            self.segment(draft);
            self.pause();
        }
    }

    fn sane(&mut self) -> Draft {
        Draft {
            flags: ".".to_owned(),
            seq: self.peer_next,
            len: 0,
            ack: self.una,
            window: 65_535 >> self.scale,
            urgent: 0,
            options: Vec::new(),
            lacks_timestamp: false,
        }
    }

    fn acknowledge(&mut self) {
        let draft = self.sane();
        self.segment(draft);
    }

    fn segment(&mut self, draft: Draft) {
        let Draft {
            flags,
            seq,
            len,
            ack,
            window,
            urgent,
            options,
            lacks_timestamp,
        } = draft;
        // Scripts write a SYN's sequence number as an absolute one.
        let seq = match flags.contains('S') {
            true => seq.wrapping_add(self.isn),
            false => seq,
        };
        let end = seq.wrapping_add(len);
        let mut text = format!("< {flags} {seq}:{end}({len})");
        if flags.contains('.') {
            let _ = write!(text, " ack {ack}");
        }
        let _ = write!(text, " win {}", window.min(65_535));
        if urgent > 0 {
            let _ = write!(text, " urg {urgent}");
        }
        let mut all = options;
        if self.has_timestamps && !all.iter().any(|option| option.contains("TS")) {
            all.insert(0, self.timestamp(0));
        }
        if lacks_timestamp {
            all.retain(|option| !option.contains("TS"));
        }
        if !all.is_empty() {
            let _ = write!(text, " <{}>", all.join(","));
        }
        self.line(&text);
    }

    /// A timestamp option: the peer's clock, `back` ms behind, and the echo of what left before the
    /// pause.
    fn timestamp(&mut self, back: u32) -> String {
        let value = (200 + self.now_ms + self.pause_ms).wrapping_sub(back);
        let echo = 100 + self.now_ms;
        format!("nop,nop,TS val {value} ecr {echo}")
    }

    fn step(&mut self) {
        if self.sets_options && self.own.percent(40) {
            self.set_option();
        }
        self.pause();
        match self.dice.below(100) {
            0..30 => self.call(),
            30..75 => {
                let draft = match self.odd() {
                    true => self.odd_segment(),
                    false => self.sane_segment(),
                };
                self.segment(draft);
            }
            75..90 => self.burst(),
            _ => {
                self.una = self.sent();
                self.acknowledge();
            }
        }
    }

    /// Several segments of data at once, some of them missing or out of order.
    fn burst(&mut self) {
        let len = self.dice.pick(&LENGTHS);
        let count = self.dice.between(2, 6) as u32;
        let start = self.peer_next;
        let mut order: Vec<u32> = (0..count).collect();
        if self.odd() || self.dice.percent(20) {
            let (a, b) = (self.dice.below(count.into()), self.dice.below(count.into()));
            order.swap(a as usize, b as usize);
        }
        if self.odd() || self.dice.percent(15) {
            order.remove(self.dice.below(count.into()) as usize);
        } else {
            self.peer_next += count * len;
        }
        for at in order {
            let mut draft = self.sane();
            (draft.seq, draft.len) = (start + at * len, len);
            self.segment(draft);
            self.pause_ms = self.dice.pick(&[0, 0, 0, 1]);
        }
    }

    fn sane_segment(&mut self) -> Draft {
        let mut draft = self.sane();
        let outstanding = self.sent().saturating_sub(self.una);
        if outstanding > 0 {
            match self.dice.below(10) {
                0..6 => self.una = self.sent(),
                6..8 => self.una += self.dice.below(u64::from(outstanding)) as u32,
                _ if self.has_sack && outstanding > 1000 => {
                    draft.options.push(self.sack(outstanding))
                }
                _ => {}
            }
            draft.ack = self.una;
        }
        if self.dice.percent(60) && !self.peer_fin {
            draft.len = self.dice.pick(&LENGTHS);
            self.peer_next += draft.len;
            if self.dice.percent(30) {
                draft.flags = "P.".to_owned();
            }
            if self.dice.percent(8) {
                draft.flags = "F.".to_owned();
                self.peer_next += 1;
                self.peer_fin = true;
            }
        }
        if self.dice.percent(15) {
            draft.window = self.dice.pick(&[0, 1, 100, 1000, 3000, 30_000]) >> self.scale;
        }
        draft
    }

    fn sack(&mut self, outstanding: u32) -> String {
        let from = self.una + self.dice.below(u64::from(outstanding)) as u32;
        let from = match self.dice.percent(70) {
            true => self.una + (from - self.una).div_ceil(1000) * 1000,
            false => from,
        };
        let to = (from + self.dice.pick(&[1000, 2000, 5000, 1])).min(self.sent());
        format!("nop,nop,sack {from}:{to}")
    }

    fn odd_segment(&mut self) -> Draft {
        let mut draft = self.sane();
        for _ in 0..self.dice.between(1, 2) {
            self.twist(&mut draft);
        }
        if draft.flags.contains('S') && self.dice.percent(50) {
            draft.seq = self.dice.pick(&[0, 1, self.peer_next]);
        }
        draft
    }

    fn twist(&mut self, draft: &mut Draft) {
        let next = self.peer_next;
        match self.dice.below(8) {
            0 | 1 => {
                // Without a window scale Linux accepts more than it can announce. That known
                // difference is avoided.
                let edge = match self.has_scale {
                    true => self.dice.pick(&[65_535, 268_000, 268_800, 270_000]),
                    false => 300_000,
                };
                let off = self.dice.pick(&[
                    -1,
                    -2,
                    -100,
                    -1000,
                    -70_000,
                    1,
                    2,
                    1000,
                    3000,
                    edge,
                    edge,
                    edge - 1,
                    edge + 1,
                    400_000,
                    i32::MAX,
                    i32::MIN,
                ]);
                draft.seq = next.wrapping_add(off as u32);
            }
            2 => {
                draft.flags = self.dice.pick(ODD_FLAGS).to_owned();
                // The language wants flags in a fixed order.
                draft.flags = ordered(&draft.flags);
            }
            3 => {
                draft.len = self.dice.pick(&[1, 2, 999, 1000, 1460, 3000, 20_000]);
                if draft.flags.contains('U') {
                    draft.urgent = self.dice.pick(&[1, 2, 100, 65_535]);
                }
            }
            4 | 5 => {
                let sent = self.sent();
                let off = self
                    .dice
                    .pick(&[-1, 1, 1000, -1000, 100_000, -100_000, i32::MIN]);
                let base = self.dice.pick(&[sent, self.una, 1]);
                draft.ack = base.wrapping_add(off as u32);
            }
            6 => {
                let back = self
                    .dice
                    .pick(&[1, 100, 100_000, u32::MAX / 2, u32::MAX - 1000]);
                let timestamp = self.timestamp(back);
                draft.options.push(timestamp);
                draft.lacks_timestamp = self.dice.percent(20);
            }
            _ => {
                let from = self
                    .dice
                    .pick(&[self.una, self.sent(), self.sent() + 1000, 1]);
                let from = from.wrapping_add(self.dice.pick(&[0, 1000, 0u32.wrapping_sub(1000)]));
                let to = from.wrapping_add(self.dice.pick(&[0, 1, 1000, 0u32.wrapping_sub(500)]));
                draft.options.push(format!("nop,nop,sack {from}:{to}"));
            }
        }
    }

    /// Sets a socket option whose effect is seen on the wire, or sends with a flag like `MSG_MORE`.
    fn set_option(&mut self) {
        let fd = self.fd;
        let (level, name, values): (&str, &str, &[u32]) = self.own.pick(&[
            ("SOL_TCP", "TCP_NODELAY", &[0, 1]),
            ("SOL_TCP", "TCP_CORK", &[0, 1, 1]),
            ("SOL_TCP", "TCP_QUICKACK", &[0, 1]),
            ("SOL_TCP", "TCP_MAXSEG", &[88, 500, 1400]),
            ("SOL_TCP", "TCP_WINDOW_CLAMP", &[0, 1000, 5000, 40_000]),
            ("SOL_TCP", "TCP_NOTSENT_LOWAT", &[1, 2000]),
            ("SOL_TCP", "TCP_USER_TIMEOUT", &[0, 100, 400]),
            ("SOL_TCP", "TCP_THIN_LINEAR_TIMEOUTS", &[1]),
            ("SOL_TCP", "TCP_KEEPIDLE", &[1, 2]),
            ("SOL_SOCKET", "SO_KEEPALIVE", &[0, 1]),
            ("SOL_SOCKET", "SO_RCVLOWAT", &[1, 1500, 5000]),
            ("SOL_SOCKET", "SO_RCVBUF", &[2000, 10_000, 200_000]),
            ("SOL_SOCKET", "SO_SNDBUF", &[5000, 30_000]),
            ("SOL_SOCKET", "SO_MAX_PACING_RATE", &[10_000, 100_000]),
            ("SOL_SOCKET", "SO_OOBINLINE", &[0, 1]),
            ("", "MSG_MORE", &[1, 700, 1500]),
            ("", "MSG_OOB", &[1, 3]),
        ]);
        let value = self.own.pick(values);
        if level.is_empty() {
            if !self.fin && self.is_open {
                self.written += value;
            }
            self.line(&format!("send({fd}, ..., {value}, {name}) = {value}"));
            return;
        }
        self.line(&format!(
            "setsockopt({fd}, {level}, {name}, [{value}], 4) = 0"
        ));
    }

    fn call(&mut self) {
        let fd = self.fd;
        match self.dice.below(100) {
            0..45 => {
                let bytes = self.dice.magnitude(1, 20_000) as u32;
                if !self.fin && self.is_open {
                    self.written += bytes;
                }
                self.line(&format!("write({fd}, ..., {bytes}) = {bytes}"));
            }
            45..78 => {
                let bytes = self.dice.pick(&[1, 500, 1000, 100_000]);
                self.line(&format!("read({fd}, ..., {bytes}) = 0"));
            }
            78..86 => {
                let how = self
                    .dice
                    .pick(&["SHUT_WR", "SHUT_WR", "SHUT_RD", "SHUT_RDWR"]);
                self.fin |= how != "SHUT_RD";
                self.line(&format!("shutdown({fd}, {how}) = 0"));
            }
            86..92 => {
                self.fin = true;
                self.is_open = false;
                self.line(&format!("close({fd}) = 0"));
            }
            92..96 => self.line(&format!(
                "getsockopt({fd}, SOL_SOCKET, SO_ERROR, [0], [4]) = 0"
            )),
            _ => self.line(&format!(
                "poll([{{fd={fd}, events=POLLIN|POLLOUT, revents=POLLIN}}], 1, 0) = 1"
            )),
        }
    }

    fn finish(&mut self) {
        self.pause_ms += self.dice.pick(&[20, 100, 100, 300]);
        if self.is_open {
            self.line(
                "%{ print(tcpi_state, tcpi_ca_state, tcpi_unacked, tcpi_sacked, tcpi_lost, tcpi_retrans, tcpi_backoff)\n\
                 print(tcpi_snd_cwnd, tcpi_snd_ssthresh, tcpi_reordering, tcpi_delivered, tcpi_notsent_bytes)\n\
                 print(tcpi_options, tcpi_snd_mss, tcpi_bytes_acked, tcpi_bytes_received, tcpi_segs_in, tcpi_data_segs_in) }%",
            );
        } else {
            self.line("getsockopt(3, SOL_SOCKET, SO_ERROR, [0], [4]) = 0");
        }
    }
}

/// Flags in the order of the language.
fn ordered(flags: &str) -> String {
    "FSRPUEW.-"
        .chars()
        .filter(|flag| flags.contains(*flag))
        .collect()
}
