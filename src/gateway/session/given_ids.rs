//! The ids of events that a session's client was given, from one process to the next: a line of the journal for each session,
//! written when the process ends in order.
//!
//! A process that ends otherwise writes none, and a journal that is written anew has none: then any id passes. Ids are kept
//! as digests, which another build may make in another way: each line has the digest of nothing, by which that shows.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::SessionId;

/// All lines together; of the sessions beyond, nothing is known afterwards.
pub(super) const LINES_BYTES_MAX: usize = 8 << 20;

/// Digests of ids, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenDigests {
    /// Of events of the client's own stream.
    pub on_stream: Vec<u64>,
    /// Of events of replies.
    pub in_replies: Vec<u64>,
}

impl GivenDigests {
    /// The words of a line: what it is about, and the digests.
    pub(super) fn words(&self, session: SessionId, expires_s: u64) -> String {
        let mut words = format!("given {session:?} {expires_s} {:x}", digest(b""));
        for digests in [&self.on_stream, &self.in_replies] {
            words.push_str(" =");
            for digest in digests {
                // Writing to a string does not fail.
                let _ = write!(words, "{digest:016x}");
            }
        }
        words
    }

    /// What these words say after the session and its end. `None`: they cannot be understood, or another build wrote them.
    pub(super) fn read<'w>(mut words: impl Iterator<Item = &'w str>) -> Option<Self> {
        let of_nothing = u64::from_str_radix(words.next()?, 16).ok()?;
        let mut digests = || read_digests(words.next()?.strip_prefix('=')?);
        let given = Self { on_stream: digests()?, in_replies: digests()? };
        Some(given).filter(|_| of_nothing == digest(b""))
    }
}

/// The same in each process of one build.
pub(super) fn digest(id: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn read_digests(mut text: &str) -> Option<Vec<u64>> {
    let mut digests = Vec::with_capacity(text.len() / 16);
    while !text.is_empty() {
        let (first, rest) = text.split_at_checked(16)?;
        digests.push(u64::from_str_radix(first, 16).ok()?);
        text = rest;
    }
    Some(digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for given in [
            GivenDigests::default(),
            GivenDigests { on_stream: vec![1, u64::MAX], in_replies: vec![] },
            GivenDigests { on_stream: vec![], in_replies: vec![digest(b"7")] },
        ] {
            let words = given.words(SessionId(7), 9);
            let mut read = words.split(' ');
            assert_eq!(read.by_ref().take(3).count(), 3);
            assert_eq!(GivenDigests::read(read), Some(given), "{words}");
        }
        let other = format!("{:x} = =", digest(b"") ^ 1);
        for torn in [&*other, "", "x = =", "1 =", "1 = 0", "1 =0 =", "1 =zzzzzzzzzzzzzzzz ="] {
            assert_eq!(GivenDigests::read(torn.split(' ')), None, "{torn}");
        }
    }
}
