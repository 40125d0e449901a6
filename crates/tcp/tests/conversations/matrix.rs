//! Every state times every kind of segment, as one table: `matrix.txt`. A change of behaviour shows
//! as a change of that file. `MATRIX_WRITE=1 cargo test -p tcp matrix` writes it anew.

use std::fmt::Write as _;

use crate::peer::{MS, Peer, Variant, conversation};
use crate::states;

type Way = fn(Variant) -> Peer;

/// The way into each state, and the relative sequence numbers that hold there: RCV.NXT, SND.UNA,
/// SND.NXT.
const STATES: [(&str, Way, [u32; 3]); 9] = [
    ("SYN_SENT", states::syn_sent, [1, 0, 1]),
    ("SYN_RECEIVED", states::syn_received, [1, 0, 1]),
    ("ESTABLISHED", with_data_in_flight, [1, 1, 101]),
    ("FIN_WAIT_1", states::fin_wait_1, [1, 1, 2]),
    ("FIN_WAIT_2", states::fin_wait_2, [1, 2, 2]),
    ("CLOSE_WAIT", states::close_wait, [2, 1, 1]),
    ("CLOSING", states::closing, [2, 1, 2]),
    ("LAST_ACK", states::last_ack, [2, 1, 2]),
    ("TIME_WAIT", states::time_wait, [2, 2, 2]),
];

/// Names and segments; `n` stands for RCV.NXT, `u` for SND.UNA, `x` for SND.NXT.
const SEGMENTS: [(&str, &str); 23] = [
    ("syn at edge", "S n+0 0"),
    ("syn in window", "S n+5 0"),
    ("syn outside", "S n+70000 0"),
    ("syn-ack of all", "S. n-1 0 x+0"),
    ("syn-ack beyond", "S. n-1 0 x+1"),
    ("rst at edge", "R n+0 0"),
    ("rst in window", "R n+5 0"),
    ("rst outside", "R n+70000 0"),
    ("rst-ack at edge", "R. n+0 0 x+0"),
    ("ack old", ". n+0 0 u-1"),
    ("ack again", ". n+0 0 u+0"),
    ("ack of all", ". n+0 0 x+0"),
    ("ack beyond", ". n+0 0 x+1"),
    ("ack before window", ". n-1 0 x+0"),
    ("ack behind window", ". n+70000 0 x+0"),
    ("no ack", "P n+0 10"),
    ("data in order", "P. n+0 10 u+0"),
    ("data in order, ack of all", "P. n+0 10 x+0"),
    ("data ahead", "P. n+10 10 x+0"),
    ("data behind window", "P. n+70000 10 x+0"),
    ("fin in order", "F. n+0 0 u+0"),
    ("fin in order, ack of all", "F. n+0 0 x+0"),
    ("fin ahead", "F. n+10 0 x+0"),
];

fn with_data_in_flight(v: Variant) -> Peer {
    let mut p = states::established(v);
    p.write(100);
    p.expect("P. 1:101(100) ack 1");
    p
}

fn number(text: &str, names: [u32; 3]) -> u32 {
    let base = match &text[..1] {
        "n" => names[0],
        "u" => names[1],
        _ => names[2],
    };
    let offset: i64 = text[1..].parse().expect("an offset");
    (i64::from(base) + offset) as u32
}

fn spell(segment: &str, names: [u32; 3]) -> String {
    let words: Vec<&str> = segment.split(' ').collect();
    let seq = number(words[1], names);
    let len: u32 = words[2].parse().expect("a length");
    let mut line = format!("{} {seq}:{}({len})", words[0], seq.wrapping_add(len));
    if let Some(ack) = words.get(3) {
        let _ = write!(line, " ack {}", number(ack, names));
    }
    line
}

/// The outcome of one segment: state, effects, error, answer.
fn outcome(p: &mut Peer, segment: &str) -> String {
    // The segment arrives later than those that led to the state.
    p.now_ns += 10 * MS;
    p.inject(segment);
    let effects = p
        .effects
        .without(tcp::Effects::TRANSMIT | tcp::Effects::TIMER);
    let mut text = format!("{:?} {effects:?}", p.conn.state());
    if let Some(error) = p.conn.error() {
        let _ = write!(text, " {error:?}");
    }
    for sent in p.take_sent() {
        let _ = write!(text, " > {sent}");
    }
    text
}

#[test]
fn every_state_every_segment() {
    let mut table =
        String::from("# state | segment | state after, effects, error > what was sent\n");
    for (state, way, names) in STATES {
        for (name, segment) in SEGMENTS {
            let line = spell(segment, names);
            let seen = std::cell::RefCell::new(None::<String>);
            conversation(way, |p| {
                let now = outcome(p, &line);
                let mut seen = seen.borrow_mut();
                // All variants give the same result.
                assert_eq!(
                    *seen.get_or_insert_with(|| now.clone()),
                    now,
                    "{state} {name}"
                );
            });
            let seen = seen.into_inner().unwrap_or_default();
            let _ = writeln!(table, "{state} | {name}: {line} | {seen}");
        }
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/conversations/matrix.txt"
    );
    if std::env::var_os("MATRIX_WRITE").is_some() {
        std::fs::write(path, &table).expect("matrix.txt");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    for (now, then) in table.lines().zip(kept.lines()) {
        assert_eq!(now, then);
    }
    assert_eq!(table.lines().count(), kept.lines().count());
}
