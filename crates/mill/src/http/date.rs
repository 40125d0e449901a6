//! Dates of HTTP (RFC 9110, 5.6.7): one format is written, three are read. Times are whole seconds
//! since 1970.

use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999, which has the largest year of four digits.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Writes `Sun, 06 Nov 1994 08:49:37 GMT`. Later times than the year 9999 become its last second.
pub fn format(seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX)))
}

/// Reads any of the three formats; `None` for other texts and for times before 1970.
pub fn parse(text: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(text.trim()).ok()?;
    let since_1970 = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since_1970.as_secs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: u64 = 784_111_777;

    #[test]
    fn example_of_the_rfc_reads_in_its_three_forms() {
        assert_eq!(format(EXAMPLE), "Sun, 06 Nov 1994 08:49:37 GMT");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text), Some(EXAMPLE), "{text}");
        }
    }

    #[test]
    fn days_that_are_easily_wrong() {
        assert_eq!(format(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(format(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(format(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn text_that_is_no_date_is_none() {
        for text in [
            "",
            "yesterday",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0..=SECONDS_MAX) {
            prop_assert_eq!(parse(&format(seconds)), Some(seconds));
        }

        #[test]
        fn arbitrary_text_does_no_harm(text in ".{0,64}") {
            let _ = parse(&text);
        }
    }
}
