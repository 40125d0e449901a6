//! A trace of events in order. It keeps a hash of all of them and the last ones for a failure's
//! report, or prints each as it happens.

use std::collections::VecDeque;
use std::fmt;

use wire::ethernet::{self, EtherType};
use wire::tcp::{Flags, Header};

use super::net::packet::{self, View};

/// Records that a failure's report shows.
const RECORDS_MAX: usize = 80;
/// Bytes of a frame that a record keeps: all headers, with the longest options.
const HEAD_BYTES: usize = 14 + 40 + 60;

/// See the module's documentation.
pub struct Trace {
    hash: u64,
    last: VecDeque<Record>,
    /// Prints every record as it comes.
    pub live: bool,
}

struct Record {
    at_ns: u64,
    host: usize,
    what: What,
}

enum What {
    Frame {
        direction: Direction,
        head: [u8; HEAD_BYTES],
        len: usize,
    },
    Note {
        text: &'static str,
        numbers: [u64; 2],
    },
}

/// The direction of a frame, seen from its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The host sent it.
    Out,
    /// A frame of another host arrived.
    In,
    /// A frame arrived that no host of this world had sent.
    Forged,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new(live: bool) -> Self {
        Self {
            hash: 0,
            last: VecDeque::with_capacity(RECORDS_MAX),
            live,
        }
    }

    /// The hash. It is equal for all runs of one seed.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Adds a frame that a host sent or received.
    pub fn frame(&mut self, at_ns: u64, host: usize, direction: Direction, bytes: &[u8]) {
        self.mix(at_ns);
        self.mix((host as u64) << 8 | direction as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.mix(word.try_into().map_or(0, u64::from_le_bytes));
        }
        words
            .remainder()
            .iter()
            .for_each(|byte| self.mix(u64::from(*byte)));
        let mut head = [0; HEAD_BYTES];
        let kept = bytes.len().min(HEAD_BYTES);
        head[..kept].copy_from_slice(&bytes[..kept]);
        let what = What::Frame {
            direction,
            head,
            len: bytes.len(),
        };
        self.push(Record { at_ns, host, what });
    }

    /// Adds another event of a host, with two numbers that describe it.
    pub fn note(&mut self, at_ns: u64, host: usize, text: &'static str, numbers: [u64; 2]) {
        self.mix(at_ns ^ numbers[0] << 32 ^ numbers[1]);
        self.push(Record {
            at_ns,
            host,
            what: What::Note { text, numbers },
        });
    }

    fn push(&mut self, record: Record) {
        if self.live {
            println!("{record}");
        }
        if self.last.len() == RECORDS_MAX {
            self.last.pop_front();
        }
        self.last.push_back(record);
    }

    /// The last records, one on a line.
    #[must_use]
    pub fn tail(&self) -> String {
        let lines: Vec<String> = self.last.iter().map(Record::to_string).collect();
        lines.join("\n")
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at_ns / 1_000_000_000, self.at_ns % 1_000_000_000);
        write!(f, "{seconds:5}.{rest:09} host {} ", self.host)?;
        match &self.what {
            What::Note { text, numbers } => write!(f, "-- {text} {} {}", numbers[0], numbers[1]),
            What::Frame {
                direction,
                head,
                len,
            } => {
                f.write_str(match direction {
                    Direction::Out => "-> ",
                    Direction::In => "<- ",
                    Direction::Forged => "<! ",
                })?;
                describe(f, head, *len)
            }
        }
    }
}

/// Writes a line about a frame of `len` bytes that begins with `head`.
fn describe(f: &mut fmt::Formatter<'_>, head: &[u8], len: usize) -> fmt::Result {
    // Bytes that were cut off count as zeros. They lie beyond all fields that are shown.
    let mut whole = head.to_vec();
    whole.resize(len, 0);
    let Some(View::Ip {
        src,
        dst,
        protocol,
        payload_at,
        len: packet_len,
    }) = packet::view(&whole)
    else {
        let kind = match ethernet::Header::parse(&whole) {
            Ok((header, _)) if header.ethertype == EtherType::ARP => "ARP",
            Ok((header, _)) if header.ethertype == EtherType::IPV6 => "ND, or damaged",
            _ => "damaged",
        };
        return write!(f, "{kind}, {len} bytes");
    };
    if protocol != wire::protocol::TCP {
        return write!(f, "{src} > {dst} protocol {protocol}, {len} bytes");
    }
    let Ok((tcp, data_at)) = Header::parse(&whole[payload_at..]) else {
        return write!(f, "{src} > {dst} TCP, damaged, {len} bytes");
    };
    let network_len = payload_at - ethernet::HEADER_LEN;
    let data = packet_len.saturating_sub(network_len + data_at);
    write!(
        f,
        "{src}.{} > {dst}.{} [{}]",
        tcp.src_port, tcp.dst_port, tcp.flags
    )?;
    write!(f, " seq {} len {data} win {}", tcp.seq.0, tcp.window)?;
    if tcp.flags.contains(Flags::ACK) {
        write!(f, " ack {}", tcp.ack.0)?;
    }
    let options = &tcp.options;
    if let Some(mss) = options.mss {
        write!(f, " mss {mss}")?;
    }
    if let Some(shift) = options.window_scale {
        write!(f, " wscale {shift}")?;
    }
    if let Some(stamp) = options.timestamp {
        write!(f, " ts {} {}", stamp.value, stamp.echo)?;
    }
    for block in options.sack.as_slice() {
        write!(f, " sack {}:{}", block.left.0, block.right.0)?;
    }
    Ok(())
}
