//! One question about one era, and what its answer means.
//!
//! An answer that may come from something in between (a proxy, a login, an overload), or none, says nothing of the
//! server.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;

use crate::clock;
use crate::tables::lists::part::ttl_ms;
use crate::upstream::Upstream;
use crate::upstream::ask::{AskReply, AskRequest, Asker, modern_headers};
use crate::upstream::closing::LeftSession;
use crate::upstream::facts::{EraIntroduction, RESULT_BYTES_MAX};
use crate::upstream::fault::Fault;
use crate::upstream::initialize::{self, InitializeError, InitializedSession};
use protocol::ambiguity::is_ambiguous_introduction;
use protocol::error::UpstreamError;
use protocol::initialize::{discover_params, version};
use protocol::json::{Document, JsonKind, Scratch, Value};
use protocol::method::Method;
use protocol::version::{Era, LEGACY, LegacyVersion, MODERN};

/// Errors that only servers of the modern era know.
const MODERN_ERRORS: [i64; 3] = [-32020, -32021, -32022];

/// However long a list may take: others wait for their turn, and clients for what an endpoint serves.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// The eras of a server are known once it has closed the session in which it was asked, or so much later.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);

/// Servers that keep the session of every question are asked less often.
const KEPT_SESSION_INTERVAL: Duration = Duration::from_hours(1);

/// What is kept of an introduction that is too long.
const ESSENTIAL: [&str; 5] = ["protocolVersion", "supportedVersions", "capabilities", "serverInfo", "_meta"];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum EraFinding {
    Speaks { introduction: EraIntroduction, fresh_for: Duration },
    Lacks { fault: Fault },
    Unknown { fault: Fault },
}

impl EraFinding {
    pub(super) fn label(&self, era: Era) -> &'static str {
        match (self, era) {
            (Self::Speaks { .. }, era) => era.label(),
            (Self::Lacks { .. }, Era::Modern) => "not_modern",
            (Self::Lacks { .. }, Era::Legacy) => "not_legacy",
            (Self::Unknown { .. }, _) => "unknown",
        }
    }
}

pub(super) async fn find(asker: &Asker<'_>, upstream: &Upstream, era: Era) -> EraFinding {
    let now = clock::now();
    let patience = upstream.config.list_timeout.min(TIMEOUT_MAX);
    match era {
        // HTTP+SSE carries nothing of it.
        Era::Modern if upstream.sse().is_some_and(|streams| streams.is_spoken()) => {
            EraFinding::Lacks { fault: Fault::Other("it speaks HTTP+SSE".into()) }
        }
        Era::Modern => discover(asker, upstream, now + patience, patience).await,
        Era::Legacy => initialize(asker, upstream, now + patience, patience).await,
    }
}

/// `server/discover`.
pub(super) fn discover_question(asker: &Asker<'_>, deadline: Instant) -> AskRequest {
    let params = discover_params();
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{params}}}"#);
    AskRequest {
        headers: modern_headers(MODERN[0], Method::Discover),
        body: body.into(),
        is_safe_to_repeat: true,
        replica: None,
        bytes_max: asker.limits.reply_bytes_max,
        deadline,
    }
}

pub(super) async fn discover(
    asker: &Asker<'_>,
    upstream: &Upstream,
    deadline: Instant,
    patience: Duration,
) -> EraFinding {
    let question = discover_question(asker, deadline);
    match asker.ask(upstream, question).await {
        Ok(answer) => {
            let told = |text: &str| upstream.told(text);
            judge(&answer, &mut asker.scratch.borrow_mut(), asker.limits.json_depth_max, told)
        }
        // Over a pipe nothing stands in between: silence is the server's own.
        Err(UpstreamError::TimedOut) if upstream.is_child() => EraFinding::Lacks { fault: unanswered() },
        // Its process has read the question, and is asked to initialize by now.
        Err(UpstreamError::Starting { .. }) if upstream.is_child() => {
            EraFinding::Unknown { fault: unanswered() }
        }
        Err(error) => EraFinding::Unknown { fault: upstream.fault_of(&error, patience) },
    }
}

fn unanswered() -> Fault {
    Fault::Other("it does not answer server/discover".into())
}

fn judge(
    answer: &AskReply,
    scratch: &mut Scratch,
    depth_max: usize,
    told: impl Fn(&str) -> Box<str>,
) -> EraFinding {
    let text = &answer.body;
    let root = scratch.index(text, depth_max).ok().map(Document::root);
    let error = root.and_then(|root| root.get("error"));
    let code = error.and_then(|error| error.get("code")?.as_integer());
    if code.is_some_and(|code| MODERN_ERRORS.contains(&code)) {
        // A gateway in front of legacy servers knows the error, too, and says in it what it serves.
        let supported = error.and_then(|error| error.get("data")?.get("supported"));
        return match supported.map_or(Some(MODERN[0]), newest_modern) {
            Some(version) => speaks(version, "{}".into(), Duration::ZERO),
            None => EraFinding::Lacks { fault: no_revision() },
        };
    }
    if is_inconclusive(answer.status) {
        return EraFinding::Unknown { fault: answer.fields.told(answer.status) };
    }
    let refused = error.zip(code).map(|(error, code)| Fault::Refused {
        method: Method::Discover.label(),
        code,
        text: told(&error.text_of("message").unwrap_or_default()),
    });
    let fault = || refused.unwrap_or_else(|| of_no_message(answer));
    if answer.status.is_client_error() {
        return EraFinding::Lacks { fault: fault() };
    }
    let Some(result) = root.and_then(|root| root.get("result")) else {
        return match error {
            Some(_) => EraFinding::Lacks { fault: fault() },
            None => EraFinding::Unknown { fault: fault() },
        };
    };
    if is_ambiguous_introduction(result) {
        let why = "members of its introduction stand twice";
        return EraFinding::Unknown { fault: Fault::Other(why.into()) };
    }
    match result.get("supportedVersions").and_then(newest_modern) {
        Some(version) => speaks(version, kept(result), Duration::from_millis(ttl_ms(result))),
        None => EraFinding::Lacks { fault: no_revision() },
    }
}

fn no_revision() -> Fault {
    Fault::Other("it offers no revision that is known here".into())
}

/// The fault of an answer that holds no message, or none that makes sense.
pub(super) fn of_no_message(answer: &AskReply) -> Fault {
    let is_of_others = answer.fields.is_encoded() || answer.fields.media().is_some();
    if is_of_others || !answer.status.is_success() {
        answer.fields.told(answer.status)
    } else {
        Fault::NotMcp
    }
}

async fn initialize(
    asker: &Asker<'_>,
    upstream: &Upstream,
    deadline: Instant,
    patience: Duration,
) -> EraFinding {
    let offer = initialize::InitializeOffer::own(LegacyVersion::NEWEST);
    upstream.facts.revisions.forget();
    let mut opened = initialize::open(asker, upstream, offer.clone(), deadline).await;
    if let Some(streams) = upstream.sse()
        && matches!(&opened, Err(InitializeError::Refused { status, .. }) if hints_at_sse(*status))
        && !streams.is_spoken()
        && streams.are_offered(asker.client, upstream, deadline).await
    {
        streams.learn(true);
        opened = initialize::open(asker, upstream, offer, deadline).await;
        // Without a session on it, the stream proves nothing.
        streams.learn(opened.is_ok());
        if opened.is_ok() {
            tracing::info!(upstream = upstream.config.name, "upstream speaks HTTP+SSE");
        }
    }
    match opened {
        Ok(opened) => {
            let left =
                upstream.current.get().and_then(|upstream| LeftSession::new(upstream, &opened.named()));
            if let Some(left) = left {
                asker.client.close_session_within(left.known(), CLOSE_PATIENCE).await;
            }
            let is_kept = upstream.facts.keeps_sessions();
            initialized(asker, &opened, if is_kept { KEPT_SESSION_INTERVAL } else { Duration::ZERO })
        }
        Err(error) => not_initialized(upstream, error, patience),
    }
}

/// The finding from an answer to `initialize`.
pub(super) fn initialized(asker: &Asker<'_>, opened: &InitializedSession, fresh_for: Duration) -> EraFinding {
    let mut scratch = asker.scratch.borrow_mut();
    let result = scratch.index(&opened.result, asker.limits.json_depth_max).map(|json| kept(json.root()));
    speaks(opened.version.as_str(), result.unwrap_or_else(|_| "{}".into()), fresh_for)
}

/// The finding from what a process of the gateway's own answered to `initialize`, whoever asked it.
pub(super) fn introduced(asker: &Asker<'_>, result: &Bytes, fresh_for: Duration) -> Option<EraFinding> {
    let mut scratch = asker.scratch.borrow_mut();
    let result = scratch.index(result, asker.limits.json_depth_max).map(Document::root).ok()?;
    let version = version(result).filter(|_| !is_ambiguous_introduction(result))?;
    Some(speaks(version.as_str(), kept(result), fresh_for))
}

/// The finding where no session was opened, after waiting so long.
pub(super) fn not_initialized(upstream: &Upstream, error: InitializeError, patience: Duration) -> EraFinding {
    match error {
        InitializeError::Upstream(error) => {
            EraFinding::Unknown { fault: upstream.fault_of(&error, patience) }
        }
        InitializeError::Refused { status, fault, .. } => {
            let fault = upstream.fault_of(&fault, patience);
            if is_inconclusive(status) { EraFinding::Unknown { fault } } else { EraFinding::Lacks { fault } }
        }
    }
}

/// What a server of HTTP+SSE alone answers to a POST where its stream is.
fn hints_at_sse(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
}

fn speaks(version: &str, result: Bytes, fresh_for: Duration) -> EraFinding {
    EraFinding::Speaks { introduction: EraIntroduction { version: version.into(), result }, fresh_for }
}

/// Statuses that may come from something in between, or pass.
fn is_inconclusive(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407 | 408 | 421 | 429)
        || status.is_server_error()
        || status.is_redirection()
}

/// The version to speak with a server that offers these. Versions that are not known here are of the modern era.
fn newest_modern(versions: Value<'_>) -> Option<&'static str> {
    let is_modern = |version: Value<'_>| {
        let version = version.as_literal();
        version.is_some_and(|literal| LEGACY.iter().all(|legacy| !literal.equals(versions.text(), legacy)))
    };
    let offers = |modern: &str| {
        let mut offered = versions.items().filter_map(Value::as_literal);
        offered.any(|literal| literal.equals(versions.text(), modern))
    };
    let common = MODERN.iter().copied().find(|modern| offers(modern));
    common.or_else(|| versions.items().any(is_modern).then_some(MODERN[0]))
}

/// An introduction in memory of its own, without what is long in it where it is too long.
fn kept(result: Value<'_>) -> Bytes {
    if result.kind() != JsonKind::Object {
        return Bytes::from_static(b"{}");
    }
    if result.raw().len() <= RESULT_BYTES_MAX {
        return Bytes::copy_from_slice(result.raw());
    }
    let essential: Vec<String> = ESSENTIAL
        .into_iter()
        .filter_map(|key| Some(format!("\"{key}\":{}", str::from_utf8(result.get(key)?.raw()).ok()?)))
        .collect();
    let essential = format!("{{{}}}", essential.join(","));
    if essential.len() <= RESULT_BYTES_MAX { essential.into() } else { Bytes::from_static(b"{}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::exchange::ReplyFields;

    fn judged(status: u16, body: &str) -> &'static str {
        let status = StatusCode::from_u16(status).expect("a status");
        let answer = AskReply {
            status,
            fields: ReplyFields::default(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            is_to_us: true,
            replica: None,
        };
        judge(&answer, &mut Scratch::default(), 128, |text| text.into()).label(Era::Modern)
    }

    #[test]
    fn answers_to_discover() {
        let error = |code: i64, data: &str| format!(r#"{{"id":1,"error":{{"code":{code},"data":{data}}}}}"#);
        let versions = |list: &str| format!(r#"{{"id":1,"result":{{"supportedVersions":{list}}}}}"#);
        for (status, body, expected) in [
            (200, versions(r#"["2026-07-28"]"#), "modern"),
            (200, versions(r#"["2027-01-01","2026-07-28","2025-11-25"]"#), "modern"),
            (200, versions(r#"["2027-01-01"]"#), "modern"),
            (200, versions(r#"["2025-11-25"]"#), "not_modern"),
            (200, versions("[]"), "not_modern"),
            (200, versions("7"), "not_modern"),
            (200, r#"{"id":1,"result":{}}"#.into(), "not_modern"),
            (400, error(-32020, "null"), "modern"),
            (400, error(-32021, "{}"), "modern"),
            (400, error(-32022, r#"{"supported":["2026-07-28"]}"#), "modern"),
            (400, error(-32022, "{}"), "modern"),
            (400, error(-32022, r#"{"supported":["2025-11-25","2025-06-18"]}"#), "not_modern"),
            (200, error(-32601, "{}"), "not_modern"),
            (400, error(-32600, "{}"), "not_modern"),
            (400, String::new(), "not_modern"),
            (404, String::new(), "not_modern"),
            (405, String::new(), "not_modern"),
            (406, "no".into(), "not_modern"),
            (401, String::new(), "unknown"),
            (403, String::new(), "unknown"),
            (407, String::new(), "unknown"),
            (408, String::new(), "unknown"),
            (429, error(-32000, "{}"), "unknown"),
            (500, error(-32601, "{}"), "unknown"),
            (502, String::new(), "unknown"),
            (503, String::new(), "unknown"),
            (302, String::new(), "unknown"),
            (200, String::new(), "unknown"),
            (200, "<html>".into(), "unknown"),
            (200, "[]".into(), "unknown"),
            (202, String::new(), "unknown"),
        ] {
            assert_eq!(judged(status, &body), expected, "{status} {body}");
        }
    }

    #[test]
    fn long_introductions_lose_their_instructions() {
        let long = "x".repeat(RESULT_BYTES_MAX);
        let short = r#"{"capabilities":{"tools":{}},"serverInfo":{"name":"n"}}"#;
        for (result, expected) in [
            (short.to_owned(), short),
            (format!(r#"{{"instructions":"{long}",{}"#, &short[1..]), short),
            (format!(r#"{{"serverInfo":"{long}"}}"#), "{}"),
            ("[]".to_owned(), "{}"),
        ] {
            let mut scratch = Scratch::default();
            let document = scratch.index(result.as_bytes(), 8).expect("JSON");
            assert_eq!(kept(document.root()), expected);
        }
    }
}
