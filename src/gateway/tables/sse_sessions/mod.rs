//! The HTTP+SSE transport of 2024-11-05, as clients see it: a stream that the client opens first, and an address of
//! its own for what the client sends, named by the stream's first event.
//!
//! A [`SseSession`] is what the two have in common. The stream belongs to the worker that took the GET; messages
//! may come in on any other. Nothing of it outlives the stream: what a client was doing ends when its stream does.
//!
//! Deliberately not here: what a message means. Each is answered as if it had come by Streamable HTTP.
//!
//! Invariants: a line is found by its id as long as it is open and no longer; only who knows the id, which is random,
//! and is the principal who opened the stream may use it.

pub(crate) mod session;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use self::session::SseSession;

/// The name of the id in the query of the address.
const ID_NAME: &str = "sessionId";
/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SseSessionId(u128);

#[derive(Debug, Default)]
pub(crate) struct SseSessions {
    open: Mutex<HashMap<SseSessionId, Arc<SseSession>>>,
}

impl SseSessionId {
    /// A new one, which nobody can guess.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; size_of::<u128>()];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_ne_bytes(bytes)))
    }

    /// Where the client is to send its messages: a reference relative to where it found the stream.
    pub(crate) fn address(self, path: &str) -> String {
        format!("{path}?{ID_NAME}={:0ID_DIGITS$x}", self.0)
    }

    /// The line that a query names. `None`: it names none.
    pub(crate) fn in_query(query: &str) -> Option<Self> {
        let digits = query.split('&').find_map(|pair| pair.strip_prefix(ID_NAME)?.strip_prefix('='))?;
        let is_spelled = digits.len() == ID_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_spelled.then(|| u128::from_str_radix(digits, 16).ok()).flatten();
        // What is no id of ours is one that was never given out.
        Some(Self(id.unwrap_or_default()))
    }
}

impl SseSessions {
    pub(crate) fn add(&self, line: &Arc<SseSession>) {
        self.open.lock().insert(line.id, Arc::clone(line));
    }

    pub(crate) fn remove(&self, id: SseSessionId) {
        self.open.lock().remove(&id);
    }

    /// The open line of this name, for a message of `principal` to the endpoint of this name.
    pub(crate) fn find(&self, id: SseSessionId, endpoint: &str, principal: &str) -> Option<Arc<SseSession>> {
        let line = self.open.lock().get(&id).cloned()?;
        let may_use = line.endpoint.config.name == endpoint && *line.principal == *principal;
        (may_use && !line.is_closed()).then_some(line)
    }

    pub(crate) fn open(&self) -> usize {
        self.open.lock().len()
    }
}

/// The path by which clients reach an endpoint. What stands between may have taken away the beginning of it.
pub(crate) fn public_path(endpoint: &config::EndpointConfig) -> &str {
    let after_scheme = endpoint.public_url.as_deref().and_then(|url| Some(url.split_once("://")?.1));
    let public = after_scheme.and_then(|rest| rest.find('/').map(|start| &rest[start..]));
    // Two slashes would begin another origin.
    public.filter(|path| !path.starts_with("//")).unwrap_or(&endpoint.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_back_to_its_line() {
        let id = SseSessionId::random().expect("an id");
        let address = id.address("/mcp");
        let (path, query) = address.split_once('?').expect("a query");
        assert_eq!((path, SseSessionId::in_query(query)), ("/mcp", Some(id)));
        assert_eq!(SseSessionId(7).address("/a/b"), format!("/a/b?sessionId={:032x}", 7));
        assert_ne!(SseSessionId::random().expect("an id"), id);
    }

    #[test]
    fn reads_queries() {
        let seven = format!("{:032x}", 7);
        for (query, id) in [
            (format!("sessionId={seven}"), Some(7)),
            (format!("a=b&sessionId={seven}&c"), Some(7)),
            (String::new(), None),
            ("a=b".into(), None),
            ("sessionId".into(), None),
            (format!("sessionid={seven}"), None),
            // These name a line that there never was.
            ("sessionId=".into(), Some(0)),
            ("sessionId=7".into(), Some(0)),
            (format!("sessionId={seven}0"), Some(0)),
            (format!("sessionId=+{}", &seven[1..]), Some(0)),
            (format!("sessionId={}g", &seven[1..]), Some(0)),
        ] {
            assert_eq!(SseSessionId::in_query(&query), id.map(SseSessionId), "{query}");
        }
    }
}
