//! What things are filed under that clients may choose: a keyed digest of 128 bits. Nobody outside can find two keys that
//! meet, nor many that crowd one place, and a key takes as much memory however long its text is.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::num::NonZeroU64;

/// The digest of one key. Differs with every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    low: u64,
    high: NonZeroU64,
}

impl Digest {
    /// Which of `count` shards it belongs to. `count` is a power of two.
    pub(crate) fn shard(self, count: usize) -> usize {
        usize::try_from(self.high.get() >> 32).unwrap_or(0) & (count - 1)
    }
}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.low);
    }
}

/// Digests are as good as any hash of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdentityHash(u64);

impl Hasher for IdentityHash {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl BuildHasher for IdentityHash {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self::default()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Digester {
    low: RandomState,
    high: RandomState,
}

impl Digester {
    /// A digest to write the parts of a key into.
    pub(crate) fn start(&self) -> PartialDigest {
        PartialDigest { low: self.low.build_hasher(), high: self.high.build_hasher() }
    }
}

pub(crate) struct PartialDigest {
    low: DefaultHasher,
    high: DefaultHasher,
}

impl PartialDigest {
    /// Adds a part; `None` is another one than every text. Parts do not run into each other.
    pub(crate) fn part(&mut self, part: Option<&[u8]>) {
        let length = part.map_or(usize::MAX, <[u8]>::len);
        self.low.write_usize(length);
        self.high.write_usize(length);
        if let Some(part) = part {
            self.low.write(part);
            self.high.write(part);
        }
    }

    pub(crate) fn finish(self) -> Digest {
        Digest { low: self.low.finish(), high: NonZeroU64::MIN | self.high.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts() {
        let digester = Digester::default();
        let of = |parts: &[Option<&str>]| {
            let mut open = digester.start();
            for part in parts {
                open.part(part.map(str::as_bytes));
            }
            open.finish()
        };
        let keys: [&[Option<&str>]; 6] = [
            &[Some("ab"), Some("c")],
            &[Some("a"), Some("bc")],
            &[Some("abc")],
            &[Some("abc"), None],
            &[Some("abc"), Some("")],
            &[],
        ];
        for (at, one) in keys.iter().enumerate() {
            for (other_at, other) in keys.iter().enumerate() {
                assert_eq!(of(one) == of(other), at == other_at, "{one:?} {other:?}");
            }
        }
        let finish = |open: PartialDigest| open.finish();
        assert_ne!(finish(digester.start()), finish(Digester::default().start()));
        assert_eq!(size_of::<Option<Digest>>(), 16);
    }
}
