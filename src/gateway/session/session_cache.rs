//! The session id that a connection presented last, opened, so that not every call decodes and decrypts one.
//!
//! Only what is sealed in the id is remembered, and it is void with other keys, at another endpoint and for another
//! principal. Whether the session has expired or was ended is asked with every call ([`Sessions::open_on`]).
//!
//! [`Sessions::open_on`]: super::Sessions::open_on

use std::cell::RefCell;
use std::sync::Arc;

use super::{Grant, NoSession};
use crate::access::auth::caller_cache::is_equal;
use tokens::sealing::SealingKeys;
use tokens::session_token;

#[derive(Debug, Default)]
pub(crate) struct SessionCache(RefCell<Option<OpenedId>>);

#[derive(Debug)]
struct OpenedId {
    token: Box<str>,
    keys: Arc<SealingKeys>,
    grant: Arc<Grant>,
}

impl SessionCache {
    /// What the session id of a request of `principal` to `endpoint` holds, as [`session_token::open`] says.
    pub(super) fn open(
        &self,
        keys: &Arc<SealingKeys>,
        token: &str,
        endpoint: &str,
        principal: &str,
    ) -> Result<Arc<Grant>, NoSession> {
        if let Some(last) = &*self.0.borrow()
            && Arc::ptr_eq(&last.keys, keys)
            && (&*last.grant.endpoint, &*last.grant.principal) == (endpoint, principal)
            && is_equal(last.token.as_bytes(), token.as_bytes())
        {
            return Ok(Arc::clone(&last.grant));
        }
        let grant = Arc::new(session_token::open(keys, token, endpoint, principal)?);
        let opened = OpenedId { token: token.into(), keys: Arc::clone(keys), grant: Arc::clone(&grant) };
        self.0.replace(Some(opened));
        Ok(grant)
    }
}

#[cfg(test)]
mod tests {
    use protocol::version::LegacyVersion;

    use super::super::{ClientInfo, SessionId};
    use super::*;
    use tokens::sealing::NONCE_BYTES;

    #[test]
    fn what_is_remembered_holds_for_what_was_presented() {
        let keys = |digit: &str| Arc::new(SealingKeys::from_text(&digit.repeat(64)).expect("keys"));
        let (own, others) = (keys("7"), keys("8"));
        let sealed = |number: u128| {
            let grant = Grant {
                id: SessionId(number),
                endpoint: "/mcp".into(),
                version: LegacyVersion::NEWEST,
                client: ClientInfo::default(),
                capabilities: "{}".into(),
                principal: "key:ci".into(),
                issued_s: 1,
                expires_s: 2,
            };
            session_token::seal(&own, [9; NONCE_BYTES], &grant).expect("sealed")
        };
        let (one, two) = (sealed(1), sealed(2));
        let remembered = SessionCache::default();
        let open = |keys: &Arc<SealingKeys>, token: &str, endpoint: &str, principal: &str| {
            remembered.open(keys, token, endpoint, principal).map(|grant| grant.id.0)
        };
        let first = remembered.open(&own, &one, "/mcp", "key:ci").expect("opens");
        let again = remembered.open(&own, &one, "/mcp", "key:ci").expect("opens");
        assert!(Arc::ptr_eq(&first, &again), "it was opened once");
        for (keys, token, endpoint, principal, expected) in [
            (&own, &*two, "/mcp", "key:ci", Ok(2)),
            (&own, &one, "/mcp", "key:ci", Ok(1)),
            (&own, &one, "/other", "key:ci", Err(NoSession::Foreign)),
            (&own, &one, "/mcp", "key:me", Err(NoSession::Foreign)),
            (&others, &one, "/mcp", "key:ci", Err(NoSession::Unknown)),
            (&own, &one[1..], "/mcp", "key:ci", Err(NoSession::Unknown)),
            (&own, "", "/mcp", "key:ci", Err(NoSession::Unknown)),
            (&own, &one, "/mcp", "key:ci", Ok(1)),
        ] {
            assert_eq!(open(keys, token, endpoint, principal), expected, "{endpoint} {principal}");
        }
    }
}
