//! A session as its requests have it, and what it is opened with. What is sealed in its id: [`tokens::grant`].

use std::net::IpAddr;
use std::sync::Arc;

use super::SessionOwner;
use protocol::version::LegacyVersion;
use tokens::grant::Grant;

/// What a session is opened with.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest<'a> {
    /// Path of the endpoint.
    pub endpoint: &'a str,
    /// Who opens it.
    pub principal: &'a str,
    /// The version that was agreed on.
    pub version: LegacyVersion,
    /// `clientInfo.name`.
    pub client_name: &'a str,
    /// `clientInfo.title`, or nothing.
    pub client_title: &'a str,
    /// `clientInfo.version`.
    pub client_version: &'a str,
    /// The client's capabilities as it wrote them.
    pub capabilities: &'a str,
    /// Where it is opened from; `None` where that does not matter.
    pub address: Option<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub grant: Arc<Grant>,
    /// False where the client's transport cannot come back for the rest of a reply: HTTP+SSE.
    pub has_resumption: bool,
    /// Where the request came from that it was opened for.
    pub address: Option<IpAddr>,
}

impl Session {
    pub(crate) fn owner(&self) -> SessionOwner<'_> {
        let Grant { id, issued_s, expires_s, principal, .. } = &*self.grant;
        SessionOwner {
            session: *id,
            issued_s: *issued_s,
            expires_s: *expires_s,
            principal,
            address: self.address,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    #[error("no randomness for a session id")]
    Randomness(#[from] getrandom::Error),
    /// The cipher refused; it does so only at lengths that no session id has.
    #[error("a session id cannot be sealed")]
    Cipher,
}
