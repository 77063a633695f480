//! How a server is spoken to, once it has introduced itself.

use serde_json::{Value, json};

use crate::doctor::request::ProbeRequest;
use protocol::version::Era;

#[derive(Clone, Debug)]
pub(super) enum SpokenEra {
    /// Every request stands for itself.
    Modern,
    /// In a session of this version.
    Legacy { version: String, session_id: Option<String> },
}

impl SpokenEra {
    pub(super) fn ask(&self, id: impl Into<Value>, method: &str, params: Value) -> ProbeRequest {
        match self {
            Self::Modern => ProbeRequest::modern(id, method, params),
            Self::Legacy { .. } => self.in_session(ProbeRequest::legacy(id, method, params)),
        }
    }

    /// A request that does nothing.
    pub(super) fn idle(&self, id: &str) -> ProbeRequest {
        let method = match self {
            Self::Modern => "server/discover",
            Self::Legacy { .. } => "ping",
        };
        self.ask(id, method, json!({}))
    }

    /// The same request in the session, if there is one.
    pub(super) fn in_session(&self, ask: ProbeRequest) -> ProbeRequest {
        match self {
            Self::Modern => ask,
            Self::Legacy { version, session_id } => ask.in_session(version, session_id.as_deref()),
        }
    }

    pub(super) fn era(&self) -> Era {
        match self {
            Self::Modern => Era::Modern,
            Self::Legacy { .. } => Era::Legacy,
        }
    }
}
