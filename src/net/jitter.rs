//! Pauses that are not all alike, so that those who lost the same thing at once do not come back for it at once.

use std::ops::Range;
use std::time::Duration;

/// `pause` times a number of this range.
pub fn jittered(pause: Duration, factors: Range<f64>) -> Duration {
    pause.mul_f64(factors.start + (factors.end - factors.start) * random())
}

/// The pause after so many failures in a row: `min` after the first, twice as long after each, and at most `max`.
pub fn doubled(min: Duration, failures: u32, max: Duration) -> Duration {
    min.saturating_mul(1 << failures.min(16)).min(max)
}

/// From 0 to 1. Without randomness pauses are merely regular.
pub fn random() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_stays_in_its_range() {
        let pause = Duration::from_secs(1);
        let pauses: Vec<Duration> = (0..100).map(|_| jittered(pause, 0.8..1.2)).collect();
        assert!(pauses.iter().all(|some| *some >= pause.mul_f64(0.799) && *some <= pause.mul_f64(1.201)));
        assert!(pauses.iter().any(|some| *some != pauses[0]));
    }
}
