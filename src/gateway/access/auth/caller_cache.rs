//! Credentials that were checked, so that they are not checked with every call.
//!
//! A connection remembers its last one: a call with the same costs one comparison, in constant time, as a connection may
//! carry the calls of several users. A worker remembers many by their digests, for new connections. What is remembered
//! is void when the endpoint is another (of which every reload makes new ones), when the issuer's keys changed or
//! the sign-in was ended, and when the credentials end. Only what passed is remembered, so nobody fills the memory with what is refused.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::authenticator::Proviso;
use crate::access::caller::Caller;

/// Of each of the two halves of a worker's memory.
const ENTRIES_MAX: usize = 4096;
const BYTES_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct CachedCaller {
    pub endpoint: u64,
    /// What was presented in `Authorization`; `None`: the certificate of the connection.
    pub credential: Option<Box<[u8]>>,
    pub caller: Rc<Caller>,
    /// The condition that has to hold as well.
    pub proviso: Option<Proviso>,
}

impl CachedCaller {
    fn holds(&self, endpoint: u64, now: Instant) -> bool {
        self.endpoint == endpoint
            && self.caller.ends.is_none_or(|ends| now < ends)
            && self.proviso.as_ref().is_none_or(|proviso| proviso.holds(now))
    }
}

#[derive(Debug, Default)]
pub(crate) struct CallerCache(RefCell<Option<Rc<CachedCaller>>>);

impl CallerCache {
    /// Who presents `credential` at `endpoint`, if the last one did.
    pub(crate) fn find(&self, endpoint: u64, credential: Option<&[u8]>, now: Instant) -> Option<Rc<Caller>> {
        let last = self.0.borrow();
        let known = last.as_ref().filter(|known| known.holds(endpoint, now))?;
        let is_same = match (&known.credential, credential) {
            (Some(last), Some(credential)) => is_equal(last, credential),
            (None, None) => true,
            _ => false,
        };
        is_same.then(|| Rc::clone(&known.caller))
    }

    /// Remembers this one instead of the last.
    pub(crate) fn keep(&self, known: Rc<CachedCaller>) {
        self.0.replace(Some(known));
    }
}

/// What a worker remembers: in two halves, of which the older is dropped when the newer is full.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    newer: Generation,
    older: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    by_digest: HashMap<(u64, [u8; 32]), Rc<CachedCaller>>,
    bytes: usize,
}

impl Callers {
    /// Who presents the credential of this digest at `endpoint`.
    pub(crate) fn find(&mut self, endpoint: u64, digest: [u8; 32], now: Instant) -> Option<Rc<CachedCaller>> {
        let place = (endpoint, digest);
        if let Some(known) = self.newer.by_digest.get(&place) {
            return known.holds(endpoint, now).then(|| Rc::clone(known));
        }
        let known = self.older.by_digest.remove(&place)?;
        if !known.holds(endpoint, now) {
            return None;
        }
        self.keep(digest, Rc::clone(&known));
        Some(known)
    }

    pub(crate) fn keep(&mut self, digest: [u8; 32], known: Rc<CachedCaller>) {
        let bytes = known.credential.as_ref().map_or(0, |credential| credential.len());
        if self.newer.by_digest.len() >= ENTRIES_MAX || self.newer.bytes + bytes > BYTES_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.bytes += bytes;
        let before = self.newer.by_digest.insert((known.endpoint, digest), known);
        // The same credential, checked anew.
        if before.is_some() {
            self.newer.bytes -= bytes;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

pub(crate) fn digest(credential: &[u8]) -> [u8; 32] {
    Sha256::digest(credential).into()
}

/// Takes as long wherever the two differ. Eight bytes at a time: every call waits for it.
pub(crate) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (a_words, a_rest) = a.as_chunks::<8>();
    let (b_words, b_rest) = b.as_chunks::<8>();
    let mut difference = 0;
    for (a, b) in a_words.iter().zip(b_words) {
        difference |= u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
    }
    for (a, b) in a_rest.iter().zip(b_rest) {
        difference |= u64::from(a ^ b);
    }
    difference.ct_eq(&0).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::policy::Policy;
    use crate::identity::Principal;
    use crate::telemetry::callers::CallerRegistry;

    fn known(endpoint: u64, credential: Option<&str>, ends: Option<Instant>) -> Rc<CachedCaller> {
        let counts = CallerRegistry::default().of(&Principal::Anonymous);
        let class = Policy::default().class_of(&Principal::Anonymous);
        Rc::new(CachedCaller {
            endpoint,
            credential: credential.map(|credential| credential.as_bytes().into()),
            caller: Rc::new(Caller::new(Principal::Anonymous, class, ends, counts)),
            proviso: None,
        })
    }

    #[test]
    fn a_connection_remembers_the_last() {
        let now = crate::clock::now();
        let ends = Some(now + Duration::from_secs(9));
        let long = "0123456789abcdef0";
        for (kept, endpoint, presented, at, is_found) in [
            (known(1, Some(long), None), 1, Some(long), now, true),
            (known(1, Some(long), None), 2, Some(long), now, false),
            (known(1, Some(long), None), 1, Some("0123456789abcdef1"), now, false),
            (known(1, Some(long), None), 1, Some("1123456789abcdef0"), now, false),
            (known(1, Some(long), None), 1, Some("0123456789abcdef"), now, false),
            (known(1, Some(long), None), 1, None, now, false),
            (known(1, None, None), 1, None, now, true),
            (known(1, None, None), 1, Some(""), now, false),
            (known(1, Some(long), ends), 1, Some(long), now, true),
            (known(1, Some(long), ends), 1, Some(long), now + Duration::from_secs(9), false),
        ] {
            let remembered = CallerCache::default();
            remembered.keep(Rc::clone(&kept));
            let found = remembered.find(endpoint, presented.map(str::as_bytes), at);
            assert_eq!(found.is_some(), is_found, "{kept:?} {endpoint} {presented:?}");
        }
    }

    #[test]
    fn a_worker_remembers_a_bounded_number() {
        let now = crate::clock::now();
        let mut callers = Callers::default();
        let digest_of = |number: usize| digest(&number.to_le_bytes());
        callers.keep(digest_of(0), known(1, Some("a"), None));
        for number in 1..10 * ENTRIES_MAX {
            callers.keep(digest_of(number), known(1, Some("a"), None));
            // Whoever comes back stays.
            assert!(number % 1000 != 0 || callers.find(1, digest_of(0), now).is_some(), "{number}");
        }
        assert!(callers.newer.by_digest.len() + callers.older.by_digest.len() <= 2 * ENTRIES_MAX);
        assert!(callers.find(1, digest_of(1), now).is_none());
        let large = "x".repeat(BYTES_MAX / 4);
        for number in 0..20 {
            callers.keep(digest_of(number), known(1, Some(&large), None));
        }
        assert!(callers.newer.bytes <= BYTES_MAX && callers.older.bytes <= BYTES_MAX);
    }
}
