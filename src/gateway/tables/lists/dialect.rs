//! In which protocol a list is asked for, with the client's capabilities.

use std::cell::RefCell;

use super::digest::{ContentDigest, digest};
use protocol::version::{Era, LegacyVersion};

/// `C` is the client's capabilities: a JSON object as it wrote it, or what stands for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dialect<C> {
    Modern(C),
    Legacy(LegacyVersion, C),
}

/// What is asked for in a dialect is kept under this.
pub(crate) type DialectKey = Dialect<ContentDigest>;

impl<C> Dialect<C> {
    pub(crate) fn era(&self) -> Era {
        match self {
            Self::Modern(_) => Era::Modern,
            Self::Legacy(..) => Era::Legacy,
        }
    }
}

impl<C: AsRef<[u8]>> Dialect<C> {
    pub(crate) fn key(&self) -> DialectKey {
        match self {
            Self::Modern(capabilities) => Dialect::Modern(digest_of(capabilities.as_ref())),
            Self::Legacy(version, capabilities) => {
                Dialect::Legacy(*version, digest_of(capabilities.as_ref()))
            }
        }
    }
}

/// How many digests a thread remembers, each with what it is of.
const REMEMBERED: usize = 8;
/// The digest of anything longer is not remembered.
const REMEMBERED_BYTES_MAX: usize = 1024;

thread_local! {
    static DIGESTS: RefCell<[(Box<[u8]>, ContentDigest); REMEMBERED]> = RefCell::default();
}

/// Clients say the same again and again, and to compare it costs less than to digest it.
fn digest_of(capabilities: &[u8]) -> ContentDigest {
    if !(1..=REMEMBERED_BYTES_MAX).contains(&capabilities.len()) {
        return digest(&[capabilities]);
    }
    DIGESTS.with_borrow_mut(|digests| {
        let (last, digest_of_last) = &mut digests[capabilities.len() % REMEMBERED];
        if **last != *capabilities {
            (*last, *digest_of_last) = (capabilities.into(), digest(&[capabilities]));
        }
        *digest_of_last
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_the_digest_of_what_was_said() {
        let long = "x".repeat(REMEMBERED_BYTES_MAX + 1);
        // Several of one length, each more than once.
        for capabilities in ["{}", "[]", "{}", "", &long, "[]", "123456789{", "{}", &long, ""] {
            let capabilities = capabilities.as_bytes();
            assert_eq!(digest_of(capabilities), digest(&[capabilities]));
        }
    }
}
