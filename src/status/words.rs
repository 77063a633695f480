//! Numbers as sentences have them. Pure.

/// A span of time, as `12 s`, `3 min`, `4 h 5 min`, `2 d 3 h`.
pub fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |first: u64, unit: &str, second: u64, small: &str| {
        if second == 0 { format!("{first} {unit}") } else { format!("{first} {unit} {second} {small}") }
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => two(hours, "h", minutes % 60, "min"),
        86_400..8_640_000 => two(days, "d", hours % 24, "h"),
        _ => format!("{days} d"),
    }
}

/// `one` thing or several `many`, with how many.
pub(crate) fn number_of(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
