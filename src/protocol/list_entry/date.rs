//! Dates with a time of day, as ISO 8601 writes them and clients check them.

/// True if a text is a date and a time with its offset: `2025-01-12T15:00:58Z`.
pub(super) fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    is_date(date) && is_time(time)
}

fn is_date(text: &str) -> bool {
    let mut parts = text.split('-').map(|part| (part.len(), digits(part)));
    let (Some((4, Some(year))), Some((2, Some(month))), Some((2, Some(day))), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let Some(at) = text.find(['Z', '+', '-']) else { return false };
    let (clock, offset) = text.split_at(at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let is_offset = offset == "Z" || is_clock(offset.get(1..).unwrap_or_default(), 2);
    is_clock(clock, 3) && is_offset && digits(fraction).is_some()
}

/// True if a text is an hour and a minute, and a second where there are three parts.
fn is_clock(text: &str, parts: usize) -> bool {
    let maxima = [23, 59, 59];
    let found: Vec<&str> = text.split(':').collect();
    found.len() == parts
        && found
            .iter()
            .zip(maxima)
            .all(|(part, max)| part.len() == 2 && digits(part).is_some_and(|n| n <= max))
}

/// The number that a text of digits says, as far as it fits.
fn digits(text: &str) -> Option<u32> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().unwrap_or(u32::MAX))
}
