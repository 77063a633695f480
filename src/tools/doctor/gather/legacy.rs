//! What is asked of a server that speaks revisions of the legacy era.

use http::Method;
use serde_json::{Value, json};

use super::Inspection;
use super::lists::{self, Dialect};
use super::modern::{FOREIGN_ORIGIN, named};
use super::transport::ProbeTransport;
use crate::doctor::facts::{ListKind, Probe};
use crate::doctor::introduction;
use crate::doctor::request::{Body, NO_METHOD, NO_VERSION, ProbeRequest, Until};
use protocol::version::LEGACY;

/// The revision that has batches.
const OF_BATCHES: &str = "2025-03-26";

/// Opens a session of this version. Without an introduction there is none.
pub(super) async fn open(
    inspection: &mut Inspection<'_>,
    transport: &ProbeTransport<'_>,
    version: &'static str,
) -> Option<Dialect> {
    inspection.probe(transport, Probe::Initialize(version), &ProbeRequest::initialize(version)).await;
    let exchange = inspection.facts.answer(Probe::Initialize(version))?;
    let introduction = introduction::legacy(exchange)?;
    let session_id = exchange.session_id.clone();
    inspection.facts.session_ids.extend(session_id.clone());
    let dialect = Dialect::Legacy { version: introduction.version.clone(), session_id };
    inspection.facts.legacy.push((version, introduction));
    Some(dialect)
}

/// Says that the session may begin.
pub(super) async fn begin(
    inspection: &mut Inspection<'_>,
    transport: &ProbeTransport<'_>,
    dialect: &Dialect,
) {
    let ask = in_session(ProbeRequest::notification("notifications/initialized"), dialect);
    inspection.probe(transport, Probe::Initialized, &ask).await;
}

/// Opens a session of every other version.
pub(super) async fn other_versions(
    inspection: &mut Inspection<'_>,
    transport: &ProbeTransport<'_>,
) -> Vec<Dialect> {
    let mut dialects = Vec::new();
    for version in &LEGACY[1..] {
        dialects.extend(open(inspection, transport, version).await);
    }
    inspection.probe(transport, Probe::InitializeUnknown, &ProbeRequest::initialize(NO_VERSION)).await;
    let unknown = inspection.facts.answer(Probe::InitializeUnknown);
    if let Some(session_id) = unknown.and_then(|exchange| exchange.session_id.clone()) {
        inspection.facts.session_ids.push(session_id.clone());
        dialects.push(Dialect::Legacy { version: LEGACY[0].to_owned(), session_id: Some(session_id) });
    }
    dialects
}

/// Asks what every transport has, in a session.
pub(super) async fn inquire(
    inspection: &mut Inspection<'_>,
    transport: &ProbeTransport<'_>,
    dialect: &Dialect,
) {
    inspection.probe(transport, Probe::Ping, &dialect.ask("ping", "ping", json!({}))).await;
    inspection.probe(transport, Probe::LegacyUnknownMethod, &dialect.ask(2, NO_METHOD, json!({}))).await;
    let capabilities =
        inspection.facts.legacy.first().map(|(_, introduction)| introduction.capabilities.clone());
    let is_only = inspection.facts.modern.is_none();
    if is_only && let Some((method, params)) = named(capabilities.as_ref()) {
        inspection.probe(transport, Probe::LegacyUnknownName, &dialect.ask("name", method, params)).await;
    }
    inspection.say("reading its lists");
    let kinds = if is_only { &ListKind::ALL[..] } else { &[ListKind::Tools][..] };
    for &kind in kinds {
        let listing = lists::read(transport, inspection.budget, dialect, kind, 1).await;
        inspection.facts.listings.extend(listing);
    }
    for _ in 0..if is_only { lists::again(&inspection.facts, 1) } else { 0 } {
        let listing = lists::read(transport, inspection.budget, dialect, ListKind::Tools, 1).await;
        inspection.facts.listings.extend(listing);
    }
}

/// Asks what only HTTP has, and ends the session.
pub(super) async fn inquire_http(
    inspection: &mut Inspection<'_>,
    transport: &ProbeTransport<'_>,
    dialect: &Dialect,
) {
    let Dialect::Legacy { version, session_id } = dialect else { return };
    let ping = |id: &str| in_session(ProbeRequest::legacy(id, "ping", json!({})), dialect);
    let has_id = session_id.is_some();
    let mut requests = vec![
        (Probe::VersionHeader, ping("version").with("mcp-protocol-version", NO_VERSION)),
        (Probe::LegacyGet, in_session(ProbeRequest::bare(Method::GET), dialect)),
    ];
    if inspection.facts.modern.is_none() {
        requests.extend([
            (Probe::Garbage, ping("garbage").with_body(Body::Raw("{\"jsonrpc\": \"2.0\", \"id\": 1, "))),
            (Probe::PlainText, ping("text").with("content-type", "text/plain")),
            (Probe::JsonOnly, ping("json").with("accept", "application/json")),
            (Probe::NoAccept, ping("accept").without("accept")),
            (Probe::ForeignOrigin, ping("origin").with("origin", FOREIGN_ORIGIN)),
        ]);
        if version != OF_BATCHES {
            requests.push((Probe::Batch, ping("batch").in_a_batch()));
        }
    }
    if has_id {
        let capabilities =
            inspection.facts.legacy.first().map(|(_, introduction)| &introduction.capabilities);
        let (method, params) = named(capabilities).unwrap_or(("resources/list", json!({})));
        let homeless =
            ProbeRequest::legacy("no-session", method, params).with("mcp-protocol-version", version);
        requests.push((Probe::NoSession, homeless));
        let stranger = stranger(session_id.as_deref().unwrap_or_default());
        requests.push((Probe::UnknownSession, ping("stranger").with("mcp-session-id", &stranger)));
        requests.push((Probe::EndSession, in_session(ProbeRequest::bare(Method::DELETE), dialect)));
        requests.push((Probe::AfterEnd, ping("after")));
    }
    for (probe, ask) in requests {
        inspection.probe(transport, probe, &ask).await;
    }
}

/// Asks for tools in a session of its own, and, in one of 2025-03-26, by a batch.
pub(super) async fn inquire_elsewhere(
    inspection: &mut Inspection<'_>,
    transport: &ProbeTransport<'_>,
    others: &[Dialect],
) {
    for (dialect, session) in others.iter().zip(2..) {
        let Dialect::Legacy { version, .. } = dialect else { continue };
        let is_of_batches = version == OF_BATCHES;
        if session > 2 && !is_of_batches {
            continue;
        }
        let initialized = in_session(ProbeRequest::notification("notifications/initialized"), dialect);
        if transport.ask(inspection.budget, &initialized).await.is_none() {
            return;
        }
        for _ in 0..if session == 2 { lists::again(&inspection.facts, 1) } else { 0 } {
            let listing = lists::read(transport, inspection.budget, dialect, ListKind::Tools, session).await;
            inspection.facts.listings.extend(listing);
        }
        if is_of_batches {
            let batch = in_session(ProbeRequest::legacy("batch", "ping", json!({})), dialect).in_a_batch();
            inspection.probe(transport, Probe::OldBatch, &batch).await;
        }
    }
}

/// Ends sessions that are left, as a client should.
pub(super) async fn end(inspection: &Inspection<'_>, transport: &ProbeTransport<'_>, dialects: &[Dialect]) {
    for dialect in dialects {
        if let Dialect::Legacy { session_id: Some(_), .. } = dialect {
            let _ = transport
                .ask(inspection.budget, &in_session(ProbeRequest::bare(Method::DELETE), dialect))
                .await;
        }
    }
}

fn in_session(ask: ProbeRequest, dialect: &Dialect) -> ProbeRequest {
    match dialect {
        Dialect::Legacy { version, session_id } => ask.in_session(version, session_id.as_deref()),
        Dialect::Modern => ask,
    }
}

/// A session id that looks like this one, and is none.
fn stranger(session_id: &str) -> String {
    let turned = session_id.chars().map(|c| match c {
        '0'..='8' => char::from_u32(u32::from(c) + 1).unwrap_or('9'),
        '9' => '0',
        c => c,
    });
    let turned: String = turned.collect();
    if turned == session_id { format!("{session_id}0") } else { turned }
}

/// Requests that do nothing, for the time they take.
pub(super) fn idle_ask(dialect: &Dialect) -> ProbeRequest {
    let id = Value::from("latency");
    match dialect {
        Dialect::Modern => ProbeRequest::modern(id, "server/discover", json!({})),
        Dialect::Legacy { .. } => dialect.ask(id, "ping", json!({})).until(Until::Answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_looks_like_a_session_but_is_none() {
        for (id, expected) in [("a1b9", "a2b0"), ("abc", "abc0"), ("", "0")] {
            assert_eq!(stranger(id), expected);
        }
    }
}
