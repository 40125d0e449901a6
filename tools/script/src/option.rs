//! TCP options as bytes: walking through them, and writing them in the notation of scripts.
//!
//! The runner keeps its own parser of options, apart from `wire`'s. It judges what the stack sent,
//! and a mistake in a common parser would hide itself.

use std::fmt::Write as _;

/// Option numbers, IANA.
pub(super) mod kind {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMP: u8 = 8;
    pub const MD5: u8 = 19;
    pub const FAST_OPEN: u8 = 34;
    pub const ACCURATE_ECN_0: u8 = 172;
    pub const ACCURATE_ECN_1: u8 = 174;
    pub const EXPERIMENT: u8 = 254;
}

/// An option, and the range of its body in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub kind: u8,
    pub start: usize,
    pub end: usize,
}

/// The options in order; None if their lengths make no sense.
pub(super) fn places(bytes: &[u8]) -> Option<Vec<Place>> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(&kind) = bytes.get(at) {
        if kind == kind::END || kind == kind::NOP {
            at += 1;
            places.push(Place {
                kind,
                start: at,
                end: at,
            });
            continue;
        }
        let len = usize::from(*bytes.get(at + 1)?);
        if len < 2 || at + len > bytes.len() {
            return None;
        }
        places.push(Place {
            kind,
            start: at + 2,
            end: at + len,
        });
        at += len;
    }
    Some(places)
}

/// The offset of the timestamp option's TSval; TSecr follows.
pub(super) fn timestamp_at(bytes: &[u8]) -> Option<usize> {
    places(bytes)?
        .into_iter()
        .find(|place| place.kind == kind::TIMESTAMP && place.end - place.start == 8)
        .map(|place| place.start)
}

/// Whether `bytes` contain SACK blocks.
pub(super) fn has_sack(bytes: &[u8]) -> bool {
    places(bytes).is_some_and(|places| places.iter().any(|place| place.kind == kind::SACK))
}

/// The 32 bits at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    if let Some(found) = bytes.get(at..at + 4) {
        word.copy_from_slice(found);
    }
    u32::from_be_bytes(word)
}

/// Sets the 32 bits at `at`.
pub(super) fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Adds `offset` to every edge of every SACK block.
pub(super) fn shift_sack(bytes: &mut [u8], offset: u32) {
    for place in places(bytes).unwrap_or_default() {
        if place.kind == kind::SACK {
            for at in (place.start..place.end).step_by(4) {
                let edge = word(bytes, at).wrapping_add(offset);
                set_word(bytes, at, edge);
            }
        }
    }
}

/// The options in the notation of scripts, without the angle brackets.
pub(super) fn display(bytes: &[u8]) -> String {
    let Some(places) = places(bytes) else {
        return format!("malformed: {}", hex(bytes));
    };
    let mut out = String::new();
    for place in places {
        if !out.is_empty() {
            out.push(',');
        }
        out += &display_one(place.kind, &bytes[place.start..place.end]);
    }
    out
}

/// One option in the notation of scripts.
pub(super) fn display_one(kind: u8, body: &[u8]) -> String {
    match (kind, body.len()) {
        (kind::END, _) => "eol".to_owned(),
        (kind::NOP, _) => "nop".to_owned(),
        (kind::MSS, 2) => format!("mss {}", u16::from_be_bytes([body[0], body[1]])),
        (kind::WINDOW_SCALE, 1) => format!("wscale {}", body[0]),
        (kind::SACK_PERMITTED, 0) => "sackOK".to_owned(),
        (kind::SACK, len) if len.is_multiple_of(8) => {
            body.chunks(8).fold("sack".to_owned(), |mut out, block| {
                let _ = write!(out, " {}:{}", word(block, 0), word(block, 4));
                out
            })
        }
        (kind::TIMESTAMP, 8) => format!("TS val {} ecr {}", word(body, 0), word(body, 4)),
        (kind::MD5, _) => format!("md5 {}", hex(body)),
        (kind::FAST_OPEN, 0) => "FO".to_owned(),
        (kind::FAST_OPEN, _) => format!("FO {}", hex(body)),
        (kind::EXPERIMENT, 2..) if body[..2] == [0xf9, 0x89] => {
            format!("FOEXP {}", hex(&body[2..])).trim_end().to_owned()
        }
        (kind::ACCURATE_ECN_0, _) => accurate_ecn(["e0b", "ceb", "e1b"], body),
        (kind::ACCURATE_ECN_1, _) => accurate_ecn(["e1b", "ceb", "e0b"], body),
        _ => format!("kind {kind} {}", hex(body)),
    }
}

fn accurate_ecn(names: [&str; 3], body: &[u8]) -> String {
    let fields = names.iter().zip(body.chunks_exact(3));
    fields.fold("ECN".to_owned(), |mut out, (name, bytes)| {
        let count = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        let _ = write!(out, " {name} {count}");
        out
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
