//! Numbers for people: three digits that matter, and a unit. Pure.

pub use status::words::span;

/// What stands for a number that is not known.
pub const UNKNOWN: &str = "–";

/// A rate, as `1234`, `12.3` or `0.05`.
pub fn rate(per_s: Option<f64>) -> String {
    match per_s {
        None => UNKNOWN.to_owned(),
        Some(rate) if rate <= 0.0 => "0".to_owned(),
        Some(rate) if rate < 0.005 => "<0.01".to_owned(),
        Some(rate) if rate < 0.995 => format!("{rate:.2}"),
        Some(rate) if rate < 99.95 => format!("{rate:.1}"),
        Some(rate) => scaled(rate),
    }
}

/// A latency, as `3 ms`, `1.2 s` or `250 µs`.
pub fn latency(seconds: Option<f64>) -> String {
    match seconds {
        None => UNKNOWN.to_owned(),
        Some(seconds) if seconds <= 0.0 => "0 ms".to_owned(),
        Some(seconds) if seconds < 0.000_999_5 => format!("{} µs", three(seconds * 1e6)),
        Some(seconds) if seconds < 0.999_5 => format!("{} ms", three(seconds * 1e3)),
        Some(seconds) if seconds < 120.0 => format!("{} s", three(seconds)),
        Some(seconds) => format!("{} min", three(seconds / 60.0)),
    }
}

/// A count, as `812`, `12 345`, `1.2M`.
pub fn count(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits of it are shown")]
    match count {
        0..=9999 => count.to_string(),
        10_000..=999_999 => format!("{} {:03}", count / 1000, count % 1000),
        _ => scaled(count as f64),
    }
}

/// A count that may be unknown.
pub fn known_count(known: Option<u64>) -> String {
    known.map_or_else(|| UNKNOWN.to_owned(), count)
}

/// A share, as `0.3 %`.
pub fn share(share: Option<f64>) -> String {
    match share.map(|share| share * 100.0) {
        None => UNKNOWN.to_owned(),
        Some(percent) if percent <= 0.0 => "0 %".to_owned(),
        Some(percent) if percent < 0.1 => "<0.1 %".to_owned(),
        Some(percent) if percent < 9.95 => format!("{percent:.1} %"),
        // Not all is not all.
        Some(percent) if percent < 100.0 => format!("{:.0} %", percent.min(99.0)),
        Some(_) => "100 %".to_owned(),
    }
}

/// A size, as `812 B`, `1.2 kB`.
pub fn bytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits of it are shown")]
    let size = bytes as f64;
    for (from, unit) in [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")] {
        if size >= from * 0.999_5 {
            return format!("{} {unit}", three(size / from));
        }
    }
    format!("{bytes} B")
}

/// A size that may be unknown.
pub fn known_bytes(known: Option<u64>) -> String {
    known.map_or_else(|| UNKNOWN.to_owned(), bytes)
}

/// A period as people say it.
pub fn period(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole seconds, and saturating"
    )]
    let whole = seconds.max(0.0) as u64;
    if seconds < 60.0 { latency(Some(seconds)) } else { span(whole) }
}

/// Counts with what they are of: `3 open, 12 345 failed`.
pub fn counts<const N: usize>(counts: [(u64, &str); N]) -> String {
    counts.map(|(number, what)| format!("{} {what}", count(number))).join(", ")
}

/// `one` thing or several `many`, with how many.
pub fn number_of(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {many}", count(number)) }
}

fn three(number: f64) -> String {
    match number {
        number if number < 9.95 => {
            let text = format!("{number:.1}");
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        number => format!("{number:.0}"),
    }
}

fn scaled(number: f64) -> String {
    for (from, unit) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")] {
        if number >= from {
            let from = if unit == "k" { 1e3 } else { from };
            return format!("{}{unit}", three(number / from));
        }
    }
    format!("{number:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let cases =
            [(0.0, "0"), (0.001, "<0.01"), (0.05, "0.05"), (0.999, "1.0"), (12.34, "12.3"), (99.99, "100")];
        for (number, expected) in
            cases.into_iter().chain([(1234.0, "1234"), (123_456.0, "123k"), (2.5e6, "2.5M")])
        {
            assert_eq!(rate(Some(number)), expected);
        }
        assert_eq!(rate(None), UNKNOWN);
    }

    #[test]
    fn latencies() {
        for (seconds, expected) in [
            (0.0, "0 ms"),
            (0.000_25, "250 µs"),
            (0.001, "1 ms"),
            (0.0025, "2.5 ms"),
            (0.25, "250 ms"),
            (0.9996, "1 s"),
            (2.5, "2.5 s"),
            (300.0, "5 min"),
        ] {
            assert_eq!(latency(Some(seconds)), expected);
        }
    }

    #[test]
    fn counts_shares_and_sizes() {
        for (number, expected) in [(0, "0"), (9999, "9999"), (12_345, "12 345"), (1_234_567, "1.2M")] {
            assert_eq!(count(number), expected);
        }
        for (number, expected) in [
            (0.0, "0 %"),
            (0.0001, "<0.1 %"),
            (0.012, "1.2 %"),
            (0.5, "50 %"),
            (0.9999, "99 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(share(Some(number)), expected);
        }
        for (number, expected) in [(0, "0 B"), (999, "999 B"), (1234, "1.2 kB"), (64_000_000, "64 MB")] {
            assert_eq!(bytes(number), expected);
        }
    }

    #[test]
    fn spans() {
        for (seconds, expected) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3600, "1 h"),
            (14_700, "4 h 5 min"),
            (183_600, "2 d 3 h"),
            (u64::MAX, "213503982334601 d"),
        ] {
            assert_eq!(span(seconds), expected);
        }
    }
}
