//! Times, rates and sizes as users write them: `5ms`, `100mbit`, `64kb`.
//!
//! The parser uses it, and so does the printer, which writes the shortest exact form.

use std::fmt;
use std::str::FromStr;

/// A time in nanoseconds, written as `100ns`, `10us`, `5ms`, `1s` or `1.5ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nanos(pub u64);

/// A rate in bits per second, written as `9600bit`, `10kbit`, `100mbit` or `1gbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits(pub u64);

/// A size in bytes, written as `1500b`, `64kb` or `1mb` (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub u64);

/// A unit's name, and its size in the smallest unit.
type Unit = (&'static str, u64);

/// The units of time, larger ones first.
const NANOS: [Unit; 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];
const BITS: [Unit; 4] = [
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1000),
    ("bit", 1),
];
const BYTES: [Unit; 4] = [("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10), ("b", 1)];

/// Parses a decimal number with one of `units`; `None` if it is invalid or too large.
fn parse(text: &str, units: &[Unit]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut value = whole.parse::<u64>().ok()?.checked_mul(*scale)?;
    let mut place = *scale;
    for digit in fraction.bytes() {
        place /= 10;
        value = value.checked_add(u64::from(digit.checked_sub(b'0')?.min(9)) * place)?;
    }
    Some(value)
}

fn print(f: &mut fmt::Formatter<'_>, value: u64, units: &[Unit]) -> fmt::Result {
    let exact = units.iter().find(|(_, scale)| value.is_multiple_of(*scale));
    match exact {
        Some((name, scale)) if value > 0 => write!(f, "{}{name}", value / scale),
        _ => write!(f, "{value}{}", units.last().map_or("", |u| u.0)),
    }
}

macro_rules! unit {
    ($name:ident, $units:ident, $expected:literal) => {
        impl FromStr for $name {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse(text, &$units).map(Self).ok_or($expected)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print(f, self.0, &$units)
            }
        }
    };
}

unit!(
    Nanos,
    NANOS,
    "expected a time with its unit, such as 5ms, 100us or 1s"
);
unit!(
    Bits,
    BITS,
    "expected a rate with its unit, such as 100mbit or 1gbit"
);
unit!(
    Bytes,
    BYTES,
    "expected a size with its unit, such as 1500b, 64kb or 1mb"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_parse_and_print() {
        for (text, ns) in [
            ("5ms", 5_000_000),
            ("1s", 1_000_000_000),
            ("0ns", 0),
            ("17us", 17_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
            assert_eq!(Nanos(ns).to_string(), text);
        }
        assert_eq!("1.5ms".parse(), Ok(Nanos(1_500_000)));
        assert_eq!("100mbit".parse(), Ok(Bits(100_000_000)));
        assert_eq!("64kb".parse(), Ok(Bytes(65536)));
    }

    #[test]
    fn units_missing_or_foreign_are_refused() {
        for text in [
            "5",
            "",
            "ms",
            "-5ms",
            "5 ms",
            "5mbit",
            "1.x5ms",
            "..5ms",
            "99999999999999s",
        ] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }
}
