//! Differences between two records of one script, and the class of each.
//!
//! `cargo xtask script --compare` shows what [`differences`] finds and counts the classes. The
//! comparison is loose where real time is fuzzy: neither the cut of a burst into segments counts,
//! nor a time within the tolerance. A class says which field differs first. The cause must be found
//! by reading.

use super::ast::{Micros, flag};
use super::datagram::Segment;
use super::option;
use super::record::{Left, Record, Said, seconds};

/// Longest time in µs between segments that may be one burst, cut in some way.
const BURST: Micros = 3_000;

/// A difference between two records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The field that differs, or the kind of packet that only one side sent. The words are the
    /// same for every script.
    pub class: String,
    /// Events of each side, one on a line.
    pub text: String,
    at: Micros,
}

/// The first packet and the first call that differ, the earlier one first. Later differences are
/// left out, since most are consequences of these.
pub fn differences(names: [&str; 2], records: [&Record; 2], tolerance_us: i64) -> Vec<Difference> {
    let [(left, left_said), (right, right_said)] = records.map(Record::parts);
    let packet = first_packet(names, [&left, &right], tolerance_us);
    let said = first_said(names, [&left_said, &right_said]);
    let mut found: Vec<Difference> = packet.into_iter().chain(said).collect();
    found.sort_by_key(|difference| difference.at);
    found
}

/// The first packets of two lists. Segments of a burst are joined until both sides are equally
/// long.
struct Pair {
    packets: [Option<Left>; 2],
    /// Number of packets joined, for each list.
    taken: [usize; 2],
    /// The burst goes on with the next packet, on both sides.
    goes_on: bool,
}

impl Pair {
    /// The pair at the head of two lists. None: both lists are empty.
    fn first(left: &[Left], right: &[Left]) -> Option<Pair> {
        let lists = [left, right];
        let mut packets = lists.map(|list| list.first().cloned());
        let mut taken = packets
            .each_ref()
            .map(|packet| usize::from(packet.is_some()));
        if taken == [0, 0] {
            return None;
        }
        while let [Some((_, a)), Some((_, b))] = &packets
            && a.seq == b.seq
            && a.payload.len() != b.payload.len()
        {
            let shorter = usize::from(b.payload.len() < a.payload.len());
            let at = taken[shorter];
            if !continues(lists[shorter], at) {
                break;
            }
            let (_, next) = &lists[shorter][at];
            if let Some((_, burst)) = &mut packets[shorter] {
                burst.flags |= next.flags & (flag::PSH | flag::FIN);
                burst.payload.extend_from_slice(&next.payload);
            }
            taken[shorter] += 1;
        }
        let goes_on = [0, 1]
            .iter()
            .all(|&side| continues(lists[side], taken[side]));
        Some(Pair {
            packets,
            taken,
            goes_on,
        })
    }

    fn each(&self) -> (Option<&Left>, Option<&Left>) {
        (self.packets[0].as_ref(), self.packets[1].as_ref())
    }

    fn differs(&self, is_again: bool, tolerance: Micros) -> Option<&'static str> {
        packets_differ(self.each(), is_again || self.goes_on, tolerance)
    }
}

/// Whether the packet at `at` may belong to the same burst as the one before it.
fn continues(packets: &[Left], at: usize) -> bool {
    let (Some((before_at, before)), Some((at, segment))) =
        (packets.get(at.wrapping_sub(1)), packets.get(at))
    else {
        return false;
    };
    let loose = flag::PSH | flag::FIN;
    !before.payload.is_empty()
        && !segment.payload.is_empty()
        && !before.has(flag::FIN)
        && before.seq.wrapping_add(before.payload.len() as u32) == segment.seq
        && before.flags & !loose == segment.flags & !loose
        && (before.ack, before.window) == (segment.ack, segment.window)
        && at - before_at <= BURST
}

fn first_packet(
    names: [&str; 2],
    [mut left, mut right]: [&[Left]; 2],
    tolerance: Micros,
) -> Option<Difference> {
    let mut edge = None;
    while let Some(pair) = Pair::first(left, right) {
        let (a, b) = pair.each();
        let is_again = a.is_some_and(|(_, sent)| is_behind(sent, &mut edge));
        let rest = [&left[pair.taken[0]..], &right[pair.taken[1]..]];
        if let Some(field) = pair.differs(is_again, tolerance) {
            let fits = |left, right| {
                let next = Pair::first(left, right);
                next.is_some_and(|next| next.differs(true, tolerance).is_none())
            };
            // One side sent an additional packet if the rest fits without it.
            let is_one_more = [fits(rest[0], right), fits(left, rest[1])];
            let show = |name: &str, packet: Option<&Left>| {
                let shown = packet.map(|(at, segment)| {
                    format!("{} > {}", seconds(*at), segment.display(false, true))
                });
                format!("  {name:<7} {}", shown.as_deref().unwrap_or("nothing"))
            };
            let times = [a, b].into_iter().flatten().map(|left| left.0);
            return Some(Difference {
                class: packet_class(names, (a, b), field, is_again, is_one_more),
                text: format!("{}\n{}", show(names[0], a), show(names[1], b)),
                at: times.min().unwrap_or_default(),
            });
        }
        [left, right] = rest;
    }
    None
}

fn packet_class(
    names: [&str; 2],
    (a, b): (Option<&Left>, Option<&Left>),
    field: &str,
    is_again: bool,
    is_one_more: [bool; 2],
) -> String {
    let one_more = |which: usize, (_, packet): &Left| {
        format!("{} sent one more: {}", names[which], kind(packet, is_again))
    };
    let ((a_at, a), (b_at, b)) = match (a, b) {
        (Some(a), None) => return one_more(0, a),
        (None, Some(b)) => return one_more(1, b),
        (Some(a), Some(_)) if is_one_more[0] => return one_more(0, a),
        (Some(_), Some(b)) if is_one_more[1] => return one_more(1, b),
        (Some(a), Some(b)) => (a, b),
        (None, None) => return String::new(),
    };
    let kind = kind(a, is_again);
    match field {
        "time" => format!("time, {} earlier: {kind}", names[usize::from(b_at < a_at)]),
        "flags" => {
            let differing = Segment {
                flags: a.flags ^ b.flags,
                ..Segment::default()
            };
            format!("flags {}: {kind}", differing.flag_names(false))
        }
        _ => format!("{field}: {kind}"),
    }
}

fn first_said(names: [&str; 2], [left, right]: [&[(Micros, &Said)]; 2]) -> Option<Difference> {
    let mut pairs = (0..left.len().max(right.len())).map(|at| (left.get(at), right.get(at)));
    let (a, b) = pairs.find(|(a, b)| text_of(*a) != text_of(*b))?;
    let show = |name: &str, line: Option<&(Micros, &Said)>| {
        let at = line.map_or(String::new(), |(at, _)| seconds(*at) + " ");
        format!("  {name:<7} {at}{}", text_of(line))
    };
    let lines = [a, b].into_iter().flatten();
    Some(Difference {
        class: said_class(
            text_of(a),
            text_of(b),
            lines.clone().flat_map(|line| &line.1.names),
        ),
        text: format!("{}\n{}", show(names[0], a), show(names[1], b)),
        at: lines.map(|line| line.0).min().unwrap_or_default(),
    })
}

fn text_of<'a>(line: Option<&(Micros, &'a Said)>) -> &'a str {
    line.map_or("nothing", |(_, said)| said.text.as_str())
}

/// The class of a call or print: the first printed field of `tcp_info` that differs, else the
/// call's name.
fn said_class<'a>(a: &str, b: &str, names: impl Iterator<Item = &'a String>) -> String {
    let mut words = a.split(' ').zip(b.split(' ')).skip(1).zip(names);
    match words.find(|((a, b), _)| a != b) {
        Some((_, name)) => format!("tcp_info: {name}"),
        None => format!("call: {}", a.split(' ').next().unwrap_or_default()),
    }
}

/// The purpose of a packet.
fn kind(segment: &Segment, is_again: bool) -> &'static str {
    let has = |flag| segment.has(flag);
    match () {
        () if has(flag::RST) => "RST",
        () if has(flag::SYN) => "SYN",
        () if is_again => "text again",
        () if has(flag::FIN) => "FIN",
        () if !segment.payload.is_empty() => "text",
        () if option::has_sack(&segment.options) => "ACK with SACK",
        () => "ACK",
    }
}

/// Whether the packet only repeats bytes that were sent before; `edge` is the end of those.
fn is_behind(sent: &Segment, edge: &mut Option<u32>) -> bool {
    let end = sent.seq.wrapping_add(sent.payload.len() as u32);
    let is_new = edge.is_none_or(|edge| end.wrapping_sub(edge) as i32 > 0);
    if is_new {
        *edge = Some(end);
    }
    !is_new && !sent.payload.is_empty()
}

/// The field in which two packets differ.
fn packets_differ(
    (a, b): (Option<&Left>, Option<&Left>),
    is_again: bool,
    tolerance: Micros,
) -> Option<&'static str> {
    let (Some((a_at, a)), Some((b_at, b))) = (a, b) else {
        return Some("one more");
    };
    // PSH depends on how a burst is cut, and a retransmission is cut anew.
    let loose = if is_again { flag::PSH } else { 0 };
    let fields = [
        ("flags", a.flags & !loose == b.flags & !loose),
        // The sequence number of a SYN that is not the script's first is random.
        ("sequence number", a.seq == b.seq || a.has(flag::SYN)),
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

/// Whether two windows are equal, or close. Windows follow a segment's cost in memory, which
/// depends on how a device fills its buffers. A closed window equals only a closed one.
fn same_window(a: u16, b: u16) -> bool {
    let (low, high) = (a.min(b), a.max(b));
    low == high || (low > 0 && high - low <= 2 + high / 16)
}

/// Whether options are equal, apart from timestamps within the tolerance.
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

#[cfg(test)]
mod tests;
