//! Segments as text, one per line, in the notation of tcpdump and packetdrill, with sequence
//! numbers relative to the initial ones: `P. 1:101(100) ack 1 win 500 <mss 1000,wscale 7,sackOK,TS
//! val 5 ecr 3>`. The codepoint of the IP header may stand before it: `[noecn]`, `[ect0]`,
//! `[ect1]`, `[ce]`. The flag `A` is AE, and a digit is the ACE field.

use tcp::{Segment, SegmentOut};
use wire::tcp::{AccEcn, Flags, Options, SackBlock, SackBlocks, Timestamp};
use wire::{Ecn, SeqNumber};

/// A segment as written in a test. Fields that are `None` are not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub ecn: Option<Ecn>,
    pub flags: Flags,
    pub seq: u32,
    pub len: u32,
    pub ack: Option<u32>,
    pub win: Option<u16>,
    pub urgent: u16,
    pub options: Option<Options>,
}

impl Line {
    pub fn parse(text: &str) -> Line {
        let (head, options) = match text.split_once('<') {
            Some((head, rest)) => (head, Some(parse_options(rest.trim_end_matches('>')))),
            None => (text, None),
        };
        let (ecn, head) = match head.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) = rest.split_once(']').expect("]");
                (Some(parse_ecn(name)), rest)
            }
            None => (None, head),
        };
        let mut words = head.split_whitespace();
        let flags = parse_flags(words.next().expect("flags"));
        let (seq, len) = parse_range(words.next().expect("seq:end(len)"));
        let mut line = Line {
            ecn,
            flags,
            seq,
            len,
            ack: None,
            win: None,
            urgent: 0,
            options,
        };
        while let Some(word) = words.next() {
            let value: u32 = words.next().expect("a value").parse().expect("a number");
            match word {
                "ack" => line.ack = Some(value),
                "win" => line.win = Some(value as u16),
                "urg" => line.urgent = value as u16,
                _ => panic!("unknown word {word}"),
            }
        }
        line
    }

    /// The segment from a peer with initial sequence number `irs`; `iss`: ours.
    pub fn to_segment(&self, iss: SeqNumber, irs: SeqNumber, window: u16) -> Segment {
        let mut options = self.options.unwrap_or_default();
        options.sack = shifted(&options.sack, iss);
        Segment {
            seq: irs + self.seq,
            ack: self.ack.map_or(SeqNumber(0), |ack| iss + ack),
            flags: self.flags,
            window: self.win.unwrap_or(window),
            urgent: self.urgent,
            len: self.len,
            options,
            ecn: self.ecn.unwrap_or_default(),
        }
    }

    /// The line of a segment that we sent, in the same notation.
    pub fn from_out(out: &SegmentOut, iss: SeqNumber, irs: SeqNumber) -> Line {
        let has_ack = out.flags.contains(Flags::ACK);
        let mut options = out.options;
        options.sack = shifted(&options.sack, SeqNumber(irs.0.wrapping_neg()));
        Line {
            ecn: Some(out.ecn),
            flags: out.flags,
            seq: out.seq.since(iss),
            len: out.payload_len,
            ack: has_ack.then(|| out.ack.since(irs)),
            win: Some(out.window),
            urgent: 0,
            options: Some(options),
        }
    }

    /// True if `sent` agrees with all fields that this line has.
    pub fn matches(&self, sent: &Line) -> bool {
        self.flags == sent.flags
            && self.seq == sent.seq
            && self.len == sent.len
            && self.ack == sent.ack
            && (self.ecn.is_none() || self.ecn == sent.ecn)
            && (self.win.is_none() || self.win == sent.win)
            && (self.options.is_none() || self.options == sent.options)
    }
}

/// Text without options and window, and with the codepoint if it was compared.
impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letters = self.flags.to_string().replace('C', "W");
        let letters = letters.replace('A', ".").replace('e', "A");
        let end = self.seq.wrapping_add(self.len);
        match self.ecn {
            None | Some(Ecn::NotEct) => {}
            Some(ecn) => write!(f, "[{}] ", format!("{ecn:?}").to_lowercase())?,
        }
        write!(f, "{letters} {}:{end}({})", self.seq, self.len)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        Ok(())
    }
}

fn parse_ecn(name: &str) -> Ecn {
    match name {
        "noecn" => Ecn::NotEct,
        "ect0" => Ecn::Ect0,
        "ect1" => Ecn::Ect1,
        "ce" => Ecn::Ce,
        _ => panic!("no codepoint {name}"),
    }
}

fn parse_flags(text: &str) -> Flags {
    text.chars().fold(Flags::NONE, |flags, letter| {
        flags
            | match letter {
                'F' => Flags::FIN,
                'S' => Flags::SYN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                '.' => Flags::ACK,
                'U' => Flags::URG,
                'E' => Flags::ECE,
                'W' => Flags::CWR,
                'A' => Flags::AE,
                ace @ '0'..='7' => Flags::NONE.with_ace(ace as u8 - b'0'),
                '-' => Flags::NONE,
                _ => panic!("unknown flag {letter}"),
            }
    })
}

/// `seq:end(len)`; `end` must be `seq + len`.
fn parse_range(text: &str) -> (u32, u32) {
    let (seq, rest) = text.split_once(':').expect("seq:");
    let (end, len) = rest.split_once('(').expect("end(");
    let seq: u32 = seq.parse().expect("seq");
    let end: u32 = end.parse().expect("end");
    let len: u32 = len.trim_end_matches(')').parse().expect("len");
    assert_eq!(seq.wrapping_add(len), end, "a slip of the pen in {text}");
    (seq, len)
}

/// The blocks of a script, which are relative to the initial number, with their numbers on the
/// wire.
fn shifted(blocks: &SackBlocks, iss: SeqNumber) -> SackBlocks {
    let mut shifted = SackBlocks::EMPTY;
    for block in blocks.as_slice() {
        shifted.push(SackBlock {
            left: iss + block.left.0,
            right: iss + block.right.0,
        });
    }
    shifted
}

/// Blocks written as `left:right`.
fn sack_blocks(blocks: &[&str]) -> SackBlocks {
    let mut parsed = SackBlocks::EMPTY;
    for block in blocks {
        let (left, right) = block.split_once(':').expect("left:right");
        parsed.push(SackBlock {
            left: SeqNumber(left.parse().expect("left")),
            right: SeqNumber(right.parse().expect("right")),
        });
    }
    parsed
}

/// Counters like `e1b 1 ceb 0 e0b 1`, or in the other order from `e0b` on; trailing ones may be
/// missing.
fn accecn(fields: &[&str]) -> AccEcn {
    let mut counters = [0; 3];
    for (counter, field) in counters.iter_mut().zip(fields.chunks(2)) {
        *counter = field[1].parse().expect("a counter");
    }
    let whole = if fields.first() == Some(&"e0b") {
        AccEcn::order_0(counters)
    } else {
        AccEcn::order_1(counters)
    };
    whole.truncated(fields.len() / 2)
}

fn parse_options(text: &str) -> Options {
    let mut options = Options::default();
    for option in text.split(',').filter(|text| !text.is_empty()) {
        let words: Vec<&str> = option.split_whitespace().collect();
        match words[..] {
            ["mss", value] => options.mss = Some(value.parse().expect("mss")),
            ["wscale", value] => options.window_scale = Some(value.parse().expect("wscale")),
            ["sackOK"] => options.sack_permitted = true,
            ["sack", ref blocks @ ..] => {
                options.sack = sack_blocks(blocks);
            }
            ["TS", "val", value, "ecr", echo] => {
                let value = value.parse().expect("val");
                let echo = echo.parse().expect("ecr");
                options.timestamp = Some(Timestamp { value, echo });
            }
            ["ECN", ref fields @ ..] => options.accecn = accecn(fields),
            _ => panic!("unknown option {option}"),
        }
    }
    options
}
