//! Moments as RFC 3339 writes them, in UTC with microseconds.
//!
//! The clock of the system may jump: a line says what it showed. Nothing but lines is made of it.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: u64 = 719_468;
/// Days of 400 years.
const ERA_DAYS: u64 = 146_097;

/// Writes `2026-01-31T23:59:59.000001Z`. What is before 1970 is written as its beginning.
pub(super) fn write(out: &mut Vec<u8>, at: SystemTime) {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (year, month, day) = date(seconds / DAY_S);
    let second = seconds % DAY_S;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Writing to memory does not fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z");
}

/// `2026-01-31T23:59:59Z`, of seconds since 1970.
pub(crate) fn to_the_second(at_s: u64) -> String {
    let mut text = Vec::new();
    write(&mut text, UNIX_EPOCH + Duration::from_secs(at_s));
    text.truncate("2026-01-31T23:59:59".len());
    String::from_utf8_lossy(&text).into_owned() + "Z"
}

/// `2026-01-31 23:59 UTC`, of seconds since 1970, for people.
pub(crate) fn to_the_minute(at_s: u64) -> String {
    let mut text = Vec::new();
    write(&mut text, UNIX_EPOCH + Duration::from_secs(at_s));
    text.truncate("2026-01-31T23:59".len());
    String::from_utf8_lossy(&text).replace('T', " ") + " UTC"
}

/// Year, month and day, counted from 1970. Years begin in March here, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_EPOCH;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(at: SystemTime) -> String {
        let mut out = Vec::new();
        write(&mut out, at);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn writes_moments() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000Z"),
            (1_772_323_200, "2026-03-01T00:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(text(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
            assert_eq!(to_the_second(seconds), expected.replace(".000000", ""));
        }
        assert_eq!(text(UNIX_EPOCH + Duration::from_nanos(1_999)), "1970-01-01T00:00:00.000001Z");
    }

    #[test]
    fn a_clock_that_jumped_out_of_bounds_is_written_all_the_same() {
        assert_eq!(text(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000000Z");
        let far = UNIX_EPOCH + Duration::from_secs(i64::MAX as u64);
        assert!(text(far).ends_with('Z'));
    }
}
