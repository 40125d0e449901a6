//! What a host did in a play in which nothing is expected of it, and how two such records differ.
//!
//! The runner makes a [`Record`] when [`Options::record`](super::Options) says so; `cargo xtask script --compare` plays a script on two hosts and shows
//! what [`differences`] finds. Packets are in the script's sequence numbers, so that records of different connections compare. Where real time makes things
//! fuzzy the comparison is loose: how a burst was cut into segments does not count, nor a time within the tolerance.

use std::fmt::Write as _;

use super::ast::{Micros, flag};
use super::datagram::Segment;
use super::option;

/// Segments this close together may be one burst, cut in some way.
const BURST: Micros = 3_000;

/// What the first timestamp that leaves is called in a record, and in scripts that echo it.
pub(super) const FIRST_TIMESTAMP: u32 = 100;

/// What a host did, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    at: Micros,
    what: What,
}

/// A packet and when it left.
type Left = (Micros, Segment);

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// It left. Timestamps count from [`FIRST_TIMESTAMP`].
    Packet(Segment),
    /// A call and what it gave, or what code printed.
    Said(String),
}

impl Record {
    pub(super) fn packet(&mut self, at: Micros, segment: Segment) {
        let what = What::Packet(segment);
        self.entries.push(Entry { at, what });
    }

    pub(super) fn said(&mut self, at: Micros, text: String) {
        let what = What::Said(text);
        self.entries.push(Entry { at, what });
    }

    /// Packets so far.
    pub(super) fn packets(&self) -> usize {
        let is_packet = |entry: &&Entry| matches!(entry.what, What::Packet(_));
        self.entries.iter().filter(is_packet).count()
    }

    /// The packets that left, and when.
    pub(super) fn departed(&self) -> impl Iterator<Item = (Micros, &Segment)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            What::Packet(segment) => Some((entry.at, segment)),
            What::Said(_) => None,
        })
    }

    /// The packets, bursts put together, and the rest, each in order.
    fn parts(&self) -> (Vec<Left>, Vec<(Micros, &str)>) {
        let (mut packets, mut said) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            match &entry.what {
                What::Packet(segment) => join(&mut packets, entry.at, segment),
                What::Said(text) => said.push((entry.at, text.as_str())),
            }
        }
        (packets, said)
    }

    /// A line per entry.
    pub fn display(&self) -> String {
        let mut text = String::new();
        for Entry { at, what } in &self.entries {
            let _ = match what {
                What::Packet(segment) => {
                    writeln!(text, "{} > {}", seconds(*at), segment.display(false, true))
                }
                What::Said(said) => writeln!(text, "{} {said}", seconds(*at)),
            };
        }
        text
    }
}

/// Appends a packet, to the one before if both may be parts of one burst.
fn join(packets: &mut Vec<Left>, at: Micros, segment: &Segment) {
    if let Some((before_at, before)) = packets.last_mut() {
        let loose = flag::PSH | flag::FIN;
        let goes_on = !before.payload.is_empty()
            && !segment.payload.is_empty()
            && !before.has(flag::FIN)
            && before.seq.wrapping_add(before.payload.len() as u32) == segment.seq
            && before.flags & !loose == segment.flags & !loose
            && (before.ack, before.window) == (segment.ack, segment.window)
            && at - *before_at <= BURST;
        if goes_on {
            before.flags |= segment.flags & loose;
            before.payload.extend_from_slice(&segment.payload);
            return;
        }
    }
    packets.push((at, segment.clone()));
}

/// How two records differ, a line or two per difference; the first of each kind only, since what follows one is mostly its consequence.
pub fn differences(names: [&str; 2], records: [&Record; 2], tolerance_us: i64) -> Vec<String> {
    let [(left, left_said), (right, right_said)] = records.map(Record::parts);
    let mut found = Vec::new();
    let show = |entry: Option<&Left>| match entry {
        Some((at, segment)) => format!("{} > {}", seconds(*at), segment.display(false, true)),
        None => "nothing".to_owned(),
    };
    let mut edge = None;
    let packet = (0..left.len().max(right.len()))
        .map(|at| (left.get(at), right.get(at)))
        .find_map(|pair| {
            let is_again = pair.0.is_some_and(|(_, sent)| is_behind(sent, &mut edge));
            Some((pair, packets_differ(pair, is_again, tolerance_us)?))
        });
    if let Some(((a, b), field)) = packet {
        found.push(format!(
            "{field}\n  {:<7} {}\n  {:<7} {}",
            names[0],
            show(a),
            names[1],
            show(b)
        ));
    }
    let said = |entry: Option<&(Micros, &str)>| {
        entry.map_or("nothing".to_owned(), |(at, text)| {
            format!("{} {text}", seconds(*at))
        })
    };
    for at in 0..left_said.len().max(right_said.len()) {
        let (a, b) = (left_said.get(at), right_said.get(at));
        if a.map(|a| a.1) != b.map(|b| b.1) {
            found.push(format!(
                "call\n  {:<7} {}\n  {:<7} {}",
                names[0],
                said(a),
                names[1],
                said(b)
            ));
            break;
        }
    }
    found
}

/// Whether the packet sends again what was sent before; `edge` is the end of what was.
fn is_behind(sent: &Segment, edge: &mut Option<u32>) -> bool {
    let end = sent.seq.wrapping_add(sent.payload.len() as u32);
    let is_new = edge.is_none_or(|edge| end.wrapping_sub(edge) as i32 > 0);
    if is_new {
        *edge = Some(end);
    }
    !is_new && !sent.payload.is_empty()
}

/// The name of what differs between two packets.
fn packets_differ(
    (a, b): (Option<&Left>, Option<&Left>),
    is_again: bool,
    tolerance: Micros,
) -> Option<&'static str> {
    let (Some((a_at, a)), Some((b_at, b))) = (a, b) else {
        return Some("a packet more");
    };
    // Which segments end with PSH depends on how bursts are cut; what is sent again is cut anew.
    let loose = if is_again { flag::PSH } else { 0 };
    let fields = [
        ("flags", a.flags & !loose == b.flags & !loose),
        ("sequence number", a.seq == b.seq),
        ("length", a.payload.len() == b.payload.len()),
        ("ACK number", !a.has(flag::ACK) || a.ack == b.ack),
        ("urgent pointer", a.urgent == b.urgent),
        ("options", same_options(&a.options, &b.options, tolerance)),
        ("window", same_window(a.window, b.window)),
        (
            "time",
            (a_at - b_at).abs() <= tolerance + a_at.min(b_at) / 16,
        ),
    ];
    fields.iter().find(|field| !field.1).map(|field| field.0)
}

/// Equal, or about: what a segment costs in memory, of which windows are made, depends on how a device fills its buffers. A shut window is shut.
fn same_window(a: u16, b: u16) -> bool {
    let (low, high) = (a.min(b), a.max(b));
    low == high || (low > 0 && high - low <= 2 + high / 16)
}

/// Equal, but for a timestamp of about the same time.
fn same_options(a: &[u8], b: &[u8], tolerance: Micros) -> bool {
    let (Some(a_at), Some(b_at)) = (option::timestamp_at(a), option::timestamp_at(b)) else {
        return a == b;
    };
    let off = option::word(a, a_at).wrapping_sub(option::word(b, b_at)) as i32;
    let mut b = b.to_vec();
    if a_at == b_at {
        option::set_word(&mut b, b_at, option::word(a, a_at));
    }
    i64::from(off).abs() * 1000 <= 4 * tolerance && a == b
}

fn seconds(at: Micros) -> String {
    format!("{:.4}", at as f64 / 1e6)
}
