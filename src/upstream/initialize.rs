//! Opening a legacy session with an upstream: `initialize`, then `notifications/initialized`.
//!
//! The gateway introduces itself and declares no client capabilities: it answers no requests of a server yet.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::Upstream;
use super::ask::{Answer, Asker, Question, SESSION_ID, legacy_headers};
use crate::protocol::error::UpstreamError;
use crate::protocol::json::{Document, Value};
use crate::protocol::version::LegacyVersion;

/// How long a session that was opened in vain may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A longer session id is refused: every request would carry it.
const SESSION_ID_BYTES_MAX: usize = 1024;

/// A session that an upstream opened.
#[derive(Debug)]
pub struct Opened {
    /// Its id; upstreams without sessions give none.
    pub id: Option<HeaderValue>,
    /// The version the upstream chose.
    pub version: LegacyVersion,
    /// The result object of `initialize`.
    pub result: Bytes,
}

/// Why no session was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// The exchange failed, or its answer makes no sense.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The upstream refused `initialize`.
    #[error("the server refused to initialize: HTTP {status}, error {code:?}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The JSON-RPC error code, if there was one.
        code: Option<i64>,
    },
}

impl From<NotOpened> for UpstreamError {
    fn from(not_opened: NotOpened) -> Self {
        match not_opened {
            NotOpened::Upstream(error) => error,
            NotOpened::Refused { status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, .. } => {
                Self::Credentials
            }
            NotOpened::Refused {
                status: status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE),
                ..
            } => Self::Busy { status, retry_after_s: None },
            NotOpened::Refused { .. } => Self::Nonsense,
        }
    }
}

/// Opens a session, offering `version`.
pub async fn open(
    asker: &Asker<'_>,
    upstream: &Upstream,
    version: LegacyVersion,
    deadline: Instant,
) -> Result<Opened, NotOpened> {
    let body = format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{}","capabilities":{{}},"#,
            r#""clientInfo":{{"name":"trunkline","version":"{}"}}}}}}"#
        ),
        version.as_str(),
        env!("CARGO_PKG_VERSION")
    );
    // A session that nobody hears of is the upstream's to forget, so asking again does harm it.
    let answer = asker.ask(upstream, question(asker, HeaderMap::new(), body, deadline)).await?;
    let opened = read(asker, &answer)?;
    let headers = legacy_headers(opened.version.as_str(), opened.id.as_ref());
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned();
    let not_opened = match asker.ask(upstream, question(asker, headers, initialized, deadline)).await {
        Ok(accepted) if accepted.status.is_success() => return Ok(opened),
        Ok(refused) => NotOpened::Refused { status: refused.status, code: None },
        Err(error) => error.into(),
    };
    // The time for opening may be over.
    close(asker, upstream, &opened, Instant::now() + CLOSE_TIMEOUT).await;
    Err(not_opened)
}

/// Closes a session that nobody needs any more. `false`: the upstream keeps it until it forgets it by itself.
pub async fn close(asker: &Asker<'_>, upstream: &Upstream, opened: &Opened, deadline: Instant) -> bool {
    let Some(session) = &opened.id else { return true };
    let closed = asker.close_session(upstream, opened.version.as_str(), session, deadline).await;
    closed.unwrap_or_else(|error| {
        tracing::debug!(upstream = upstream.config.name, %error, "cannot close a session");
        false
    })
}

fn question(asker: &Asker<'_>, headers: HeaderMap, body: String, deadline: Instant) -> Question {
    Question {
        headers,
        body: body.into(),
        is_safe_to_repeat: false,
        bytes_max: asker.limits.reply_bytes_max,
        deadline,
    }
}

fn read(asker: &Asker<'_>, answer: &Answer) -> Result<Opened, NotOpened> {
    let mut scratch = asker.scratch.borrow_mut();
    let root = scratch.index(&answer.body, asker.limits.json_depth_max).ok().map(Document::root);
    let result = root.and_then(|root| root.get("result"));
    let (true, Some(result)) = (answer.status.is_success(), result) else {
        let code = root.and_then(|root| root.get("error")?.get("code")?.as_integer());
        if answer.status.is_success() && code.is_none() {
            return Err(UpstreamError::Nonsense.into());
        }
        return Err(NotOpened::Refused { status: answer.status, code });
    };
    let version = result.get("protocolVersion").and_then(Value::as_literal);
    let version = version.and_then(|version| LegacyVersion::of(&version.decode(&answer.body)?));
    let id = answer.headers.get(SESSION_ID).cloned();
    let is_sound = id.as_ref().is_none_or(|id| id.len() <= SESSION_ID_BYTES_MAX);
    match version {
        Some(version) if is_sound => Ok(Opened { id, version, result: answer.body.slice(result.span()) }),
        _ => Err(UpstreamError::Nonsense.into()),
    }
}
