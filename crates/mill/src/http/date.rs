//! Dates of HTTP (RFC 9110, 5.6.7): one form written, three forms read. Times are whole seconds since 1970.

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const LONG_DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY_SECONDS: u64 = 86_400;
/// The last second of the year 9999: what four digits hold.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Writes `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn format(seconds: u64) -> String {
    let seconds = seconds.min(SECONDS_MAX);
    let days = seconds / DAY_SECONDS;
    let (year, month, day) = civil_from_days(days);
    let weekday = DAYS[(days as usize + 4) % 7];
    let month = MONTHS[month as usize - 1];
    let of_day = seconds % DAY_SECONDS;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Reads any of the three forms; `None` for anything else and for times before 1970. `now` settles two-digit years.
pub fn parse(text: &str, now: u64) -> Option<u64> {
    let text = text.trim();
    imf_fixdate(text)
        .or_else(|| rfc850(text, now))
        .or_else(|| asctime(text))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &str) -> Option<u64> {
    let (weekday, rest) = text.split_once(", ")?;
    DAYS.contains(&weekday).then_some(())?;
    let parts: [&str; 5] = exactly(rest.split(' '))?;
    let [day, month, year, time, "GMT"] = parts else {
        return None;
    };
    seconds(digits(year, 4)?, month, digits(day, 2)?, time)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(text: &str, now: u64) -> Option<u64> {
    let (weekday, rest) = text.split_once(", ")?;
    LONG_DAYS.contains(&weekday).then_some(())?;
    let parts: [&str; 3] = exactly(rest.split(' '))?;
    let [date, time, "GMT"] = parts else {
        return None;
    };
    let [day, month, year] = exactly(date.split('-'))?;
    let (this_year, _, _) = civil_from_days(now.min(SECONDS_MAX) / DAY_SECONDS);
    let mut full_year = this_year / 100 * 100 + digits(year, 2)?;
    if full_year > this_year + 50 {
        full_year -= 100;
    }
    seconds(full_year, month, digits(day, 2)?, time)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<u64> {
    let [weekday, month, day, time, year] = exactly(text.split_ascii_whitespace())?;
    DAYS.contains(&weekday).then_some(())?;
    let day = digits(day, 1).or_else(|| digits(day, 2))?;
    seconds(digits(year, 4)?, month, day, time)
}

fn exactly<'a, const N: usize>(parts: impl Iterator<Item = &'a str>) -> Option<[&'a str; N]> {
    let mut found = [""; N];
    let mut count = 0;
    for part in parts {
        *found.get_mut(count)? = part;
        count += 1;
    }
    (count == N).then_some(found)
}

fn digits(text: &str, count: usize) -> Option<u64> {
    let all = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

fn seconds(year: u64, month: &str, day: u64, time: &str) -> Option<u64> {
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let [hour, minute, second] = exactly(time.split(':'))?;
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    // 60 is a leap second.
    let in_range =
        (1..=days_of_month(year, month)).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if year < 1970 || !in_range {
        return None;
    }
    let days = days_from_civil(year, month, day);
    Some(days * DAY_SECONDS + hour * 3600 + minute * 60 + second)
}

fn days_of_month(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a day from 1970 on. Years start in March here, so that the leap day is their last.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: u64 = 784_111_777;
    const NOW: u64 = 1_780_000_000;

    #[test]
    fn example_of_the_rfc_reads_in_its_three_forms() {
        assert_eq!(format(EXAMPLE), "Sun, 06 Nov 1994 08:49:37 GMT");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text, NOW), Some(EXAMPLE), "{text}");
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
    fn nonsense_is_none() {
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
            assert_eq!(parse(text, NOW), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0..=SECONDS_MAX) {
            prop_assert_eq!(parse(&format(seconds), NOW), Some(seconds));
        }

        #[test]
        fn arbitrary_text_does_no_harm(text in ".{0,64}", now in any::<u64>()) {
            let _ = parse(&text, now);
        }
    }
}
