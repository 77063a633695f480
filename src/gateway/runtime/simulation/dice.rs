//! What a seed says.

use std::time::Duration;

/// Numbers that look random, the same for the same seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of another actor.
    pub(super) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap_or(0)
    }

    /// So many times out of a thousand.
    pub(super) fn one_of_1000(&mut self, times: usize) -> bool {
        self.below(1000) < times
    }

    /// Up to so many milliseconds.
    pub(super) fn pause(&mut self, max_ms: usize) -> Duration {
        Duration::from_millis(self.below(max_ms) as u64)
    }
}
