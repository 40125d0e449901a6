//! Byte ranges (RFC 9110, 14). One range is honoured; several get the whole document.

use std::ops::Range;

/// The one range of a `Range` field, before the length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `first-` and `first-last`, last included.
    From { first: u64, last: Option<u64> },
    /// `-count`: the last `count` bytes.
    Last { count: u64 },
}

/// Reads `bytes=0-499`. `None` (serve the whole document) for other units, several ranges and
/// malformed ones.
pub fn parse(value: &str) -> Option<ByteRange> {
    let (unit, ranges) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || ranges.contains(',') {
        return None;
    }
    let (first, last) = ranges.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", count) => Some(ByteRange::Last {
            count: number(count)?,
        }),
        (first, "") => Some(ByteRange::From {
            first: number(first)?,
            last: None,
        }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(ByteRange::From {
                first,
                last: Some(last),
            })
        }
    }
}

impl ByteRange {
    /// The bytes of a document of this length; `None` if the range has none (416).
    pub fn within(self, length: u64) -> Option<Range<u64>> {
        match self {
            Self::From { first, .. } if first >= length => None,
            Self::From { first, last } => {
                let end = last.map_or(length, |last| last.saturating_add(1));
                Some(first..end.min(length))
            }
            Self::Last { count: 0 } => None,
            Self::Last { .. } if length == 0 => None,
            Self::Last { count } => Some(length.saturating_sub(count)..length),
        }
    }
}

/// A number of digits only. A number that is too large for the type is larger than any document.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn within(value: &str, length: u64) -> Option<Range<u64>> {
        parse(value).unwrap().within(length)
    }

    #[test]
    fn ranges_of_the_rfc() {
        assert_eq!(within("bytes=0-499", 10_000), Some(0..500));
        assert_eq!(within("bytes=500-999", 10_000), Some(500..1000));
        assert_eq!(within("bytes=-500", 10_000), Some(9500..10_000));
        assert_eq!(within("bytes=9500-", 10_000), Some(9500..10_000));
        assert_eq!(within("bytes=0-0", 10_000), Some(0..1));
        assert_eq!(within("Bytes = 0-0", 10_000), Some(0..1));
    }

    #[test]
    fn range_is_cut_to_the_length() {
        assert_eq!(within("bytes=5-999999999999999999999999", 10), Some(5..10));
        assert_eq!(within("bytes=-20", 10), Some(0..10));
        assert_eq!(within("bytes=0-18446744073709551615", 10), Some(0..10));
    }

    #[test]
    fn range_past_the_end_is_not_satisfiable() {
        assert_eq!(within("bytes=10-", 10), None);
        assert_eq!(within("bytes=10-20", 10), None);
        assert_eq!(within("bytes=-0", 10), None);
        assert_eq!(within("bytes=0-", 0), None);
        assert_eq!(within("bytes=-1", 0), None);
    }

    #[test]
    fn malformed_or_several_ranges_mean_the_whole() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-1",
            "bytes=1-2,3-4",
            "lines=1-2",
            "bytes=+1-2",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn range_lies_within_the_document(value in "bytes=[0-9]{0,22}-[0-9]{0,22}", length in any::<u64>()) {
            if let Some(range) = parse(&value).and_then(|range| range.within(length)) {
                prop_assert!(range.start < range.end && range.end <= length);
            }
        }

        #[test]
        fn arbitrary_value_does_no_harm(value in "\\PC{0,40}") {
            let _ = parse(&value);
        }
    }
}
