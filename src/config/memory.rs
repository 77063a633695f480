//! Bounds of memory that the file does not say: fixed ones, or parts of the limit of memory that the process has, where
//! those are less.
//!
//! The parts are what the fixed ones are of 768 MiB, so that what is held, the lists and the process itself have room.

use super::process::LimitsConfig;

const BUFFERED_BYTES_MAX: u64 = 256 << 20;
const BUFFERED_PART: u64 = 3;
const CACHE_BYTES_MAX: u64 = 64 << 20;
const CACHE_PART: u64 = 12;
const KEPT_LISTS_BYTES_MAX: u64 = 32 << 20;
const KEPT_LISTS_PART: u64 = 24;

impl LimitsConfig {
    /// From now on bounds that the file does not say are parts of this limit of memory, where they would be more.
    pub fn adopt_memory_limit(&mut self, limit_bytes: u64) {
        let largest = self.body_bytes_max.max(self.reply_bytes_max);
        self.buffered_bytes_max
            .get_or_insert_with(|| part(limit_bytes, BUFFERED_PART, BUFFERED_BYTES_MAX).max(largest));
        self.cache_bytes_max.get_or_insert_with(|| part(limit_bytes, CACHE_PART, CACHE_BYTES_MAX));
        self.kept_lists_bytes_max
            .get_or_insert_with(|| part(limit_bytes, KEPT_LISTS_PART, KEPT_LISTS_BYTES_MAX));
    }

    /// Size of all bodies held in memory at once.
    pub fn buffered_bytes_max(&self) -> usize {
        self.buffered_bytes_max.unwrap_or_else(|| bytes(BUFFERED_BYTES_MAX))
    }

    /// Size of all lists kept in memory.
    pub fn cache_bytes_max(&self) -> usize {
        self.cache_bytes_max.unwrap_or_else(|| bytes(CACHE_BYTES_MAX))
    }

    /// Size of the last complete lists of all upstreams.
    pub fn kept_lists_bytes_max(&self) -> usize {
        self.kept_lists_bytes_max.unwrap_or_else(|| bytes(KEPT_LISTS_BYTES_MAX))
    }

    /// Size of all that may be held within these three.
    pub fn held_bytes_max(&self) -> usize {
        self.buffered_bytes_max()
            .saturating_add(self.cache_bytes_max())
            .saturating_add(self.kept_lists_bytes_max())
    }
}

fn part(limit_bytes: u64, parts: u64, bytes_max: u64) -> usize {
    bytes((limit_bytes / parts).min(bytes_max))
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits(lines: &str) -> LimitsConfig {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = []\n[limits]\n{lines}"
        );
        crate::parse(&text).expect("a configuration").limits
    }

    #[test]
    fn what_is_not_written_is_at_most_a_part_of_the_limit() {
        for (limit_mib, expected) in [
            (None, (256, 64, 32)),
            (Some(u64::MAX / MIB), (256, 64, 32)),
            (Some(768), (256, 64, 32)),
            (Some(96), (32, 8, 4)),
            (Some(24), (16, 2, 1)),
        ] {
            let mut limits = limits("");
            if let Some(limit) = limit_mib {
                limits.adopt_memory_limit(limit * MIB);
            }
            let found =
                (limits.buffered_bytes_max(), limits.cache_bytes_max(), limits.kept_lists_bytes_max());
            let in_mib = |bytes: usize| bytes >> 20;
            assert_eq!((in_mib(found.0), in_mib(found.1), in_mib(found.2)), expected, "{limit_mib:?}");
        }
    }

    #[test]
    fn what_is_written_holds() {
        let mut limits = limits("buffered_bytes_max = \"128MiB\"\ncache_bytes_max = \"0B\"");
        limits.adopt_memory_limit(48 * MIB);
        assert_eq!((limits.buffered_bytes_max(), limits.cache_bytes_max()), (128 << 20, 0));
        assert_eq!(limits.held_bytes_max(), 130 << 20);
    }
}
