//! Resources that a client wants to be told of, by upstream, so that the upstreams can be told again.

use std::collections::{BTreeSet, HashMap};

use super::journal::JournalRecord;
use super::{NoState, SessionId, SessionOwner, Sessions};

/// A longer URI is refused: it is kept for as long as the session.
const URI_BYTES_MAX: usize = 4096;
/// Nor is more kept of all of them.
const BYTES_MAX: usize = 256 * 1024;

/// The URIs, as their upstreams spell them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SubscribedUris {
    by_upstream: HashMap<Box<str>, BTreeSet<Box<str>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSubscribed {
    #[error("the session has too many subscriptions")]
    TooMany,
    #[error("the URI is too long")]
    TooLong,
    #[error(transparent)]
    NoState(#[from] NoState),
}

impl Sessions {
    /// Remembers that the client wants to be told when a resource of an upstream changes. `uri` as the upstream
    /// spells it. False if that was known.
    pub(crate) fn subscribe(
        &self,
        owner: SessionOwner<'_>,
        (upstream, uri): (&str, &str),
        uris_max: usize,
    ) -> Result<bool, NotSubscribed> {
        let SessionOwner { session, expires_s, .. } = owner;
        let entry = self.entry(owner)?;
        let mut changing = entry.lock();
        if changing.is_closed {
            return Err(NoState::Ended.into());
        }
        let is_new = changing.subscribed.add(upstream, uri, uris_max)?;
        if is_new {
            self.note(&JournalRecord::Subscribed { session, expires_s, upstream, uri });
        }
        Ok(is_new)
    }

    pub(crate) fn unsubscribe(&self, session: SessionId, upstream: &str, uri: &str) {
        let Some(entry) = self.table.entry(session) else { return };
        let mut changing = entry.lock();
        if changing.subscribed.remove(upstream, uri) {
            self.note(&JournalRecord::Unsubscribed { session, upstream, uri });
        }
    }

    /// What of an upstream the client is to be told of.
    pub(crate) fn subscribed(&self, session: SessionId, upstream: &str) -> Vec<Box<str>> {
        self.table.entry(session).map(|entry| entry.lock().subscribed.of(upstream)).unwrap_or_default()
    }

    pub(crate) fn is_subscribed(&self, session: SessionId, upstream: &str) -> bool {
        self.table.entry(session).is_some_and(|entry| entry.lock().subscribed.has_any_of(upstream))
    }
}

impl SubscribedUris {
    /// False if it was there already.
    pub(super) fn add(&mut self, upstream: &str, uri: &str, uris_max: usize) -> Result<bool, NotSubscribed> {
        if uri.len() > URI_BYTES_MAX {
            return Err(NotSubscribed::TooLong);
        }
        if self.by_upstream.get(upstream).is_some_and(|uris| uris.contains(uri)) {
            return Ok(false);
        }
        let (count, bytes) =
            self.iter().fold((0, uri.len()), |(count, bytes), (_, uri)| (count + 1, bytes + uri.len()));
        if count >= uris_max || bytes > BYTES_MAX {
            return Err(NotSubscribed::TooMany);
        }
        Ok(self.by_upstream.entry(upstream.into()).or_default().insert(uri.into()))
    }

    /// False if it was not there.
    pub(super) fn remove(&mut self, upstream: &str, uri: &str) -> bool {
        let Some(uris) = self.by_upstream.get_mut(upstream) else { return false };
        let was_there = uris.remove(uri);
        if uris.is_empty() {
            self.by_upstream.remove(upstream);
        }
        was_there
    }

    pub(super) fn of(&self, upstream: &str) -> Vec<Box<str>> {
        self.by_upstream.get(upstream).map(|uris| uris.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn has_any_of(&self, upstream: &str) -> bool {
        self.by_upstream.contains_key(upstream)
    }

    pub(super) fn has(&self, upstream: &str, uri: &str) -> bool {
        self.by_upstream.get(upstream).is_some_and(|uris| uris.contains(uri))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_upstream.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_upstream.iter().flat_map(|(upstream, uris)| uris.iter().map(|uri| (&**upstream, &**uri)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_may_be() {
        let mut subscribed = SubscribedUris::default();
        assert_eq!(subscribed.add("a", "x", 2), Ok(true));
        assert_eq!(subscribed.add("b", "x", 2), Ok(true));
        assert_eq!(subscribed.add("b", "y", 2), Err(NotSubscribed::TooMany));
        assert_eq!(subscribed.add("b", "x", 2), Ok(false), "it is there already");
        assert_eq!(subscribed.add("b", &"x".repeat(URI_BYTES_MAX + 1), 9), Err(NotSubscribed::TooLong));
        assert!(subscribed.remove("a", "x") && !subscribed.remove("a", "x") && !subscribed.has_any_of("a"));
        assert_eq!(subscribed.add("b", "y", 2), Ok(true));
        let long = |number: usize| format!("{number:0URI_BYTES_MAX$}");
        let fit = (0..99).take_while(|number| subscribed.add("c", &long(*number), 9999).is_ok()).count();
        assert_eq!(fit, BYTES_MAX / URI_BYTES_MAX - 1);
        assert!((0..fit).all(|number| subscribed.remove("c", &long(number))));
        assert_eq!(subscribed.of("b"), ["x", "y"].map(Box::<str>::from));
        assert_eq!(subscribed.iter().count(), 2);
        assert!(subscribed.remove("b", "x") && subscribed.remove("b", "y") && subscribed.is_empty());
    }
}
