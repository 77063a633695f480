//! What is asked of a server that speaks revisions of the legacy era.

use http::Method;
use serde_json::{Value, json};

use super::Inquiry;
use super::lists::{self, Tongue};
use super::modern::{FOREIGN_ORIGIN, named};
use super::wire::Wire;
use crate::doctor::ask::{Ask, Body, NO_METHOD, NO_VERSION, Until};
use crate::doctor::facts::{Kind, Probe};
use crate::doctor::introduction;
use protocol::version::LEGACY;

/// The revision that has batches.
const OF_BATCHES: &str = "2025-03-26";

/// Opens a session of this version. Without an introduction there is none.
pub(super) async fn open(
    inquiry: &mut Inquiry<'_>,
    wire: &Wire<'_>,
    version: &'static str,
) -> Option<Tongue> {
    inquiry.probe(wire, Probe::Initialize(version), &Ask::initialize(version)).await;
    let exchange = inquiry.facts.answer(Probe::Initialize(version))?;
    let introduction = introduction::legacy(exchange)?;
    let session_id = exchange.session_id.clone();
    inquiry.facts.session_ids.extend(session_id.clone());
    let tongue = Tongue::Legacy { version: introduction.version.clone(), session_id };
    inquiry.facts.legacy.push((version, introduction));
    Some(tongue)
}

/// Says that the session may begin.
pub(super) async fn begin(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>, tongue: &Tongue) {
    let ask = in_session(Ask::notification("notifications/initialized"), tongue);
    inquiry.probe(wire, Probe::Initialized, &ask).await;
}

/// Opens a session of every other version.
pub(super) async fn other_versions(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>) -> Vec<Tongue> {
    let mut tongues = Vec::new();
    for version in &LEGACY[1..] {
        tongues.extend(open(inquiry, wire, version).await);
    }
    inquiry.probe(wire, Probe::InitializeUnknown, &Ask::initialize(NO_VERSION)).await;
    let unknown = inquiry.facts.answer(Probe::InitializeUnknown);
    if let Some(session_id) = unknown.and_then(|exchange| exchange.session_id.clone()) {
        inquiry.facts.session_ids.push(session_id.clone());
        tongues.push(Tongue::Legacy { version: LEGACY[0].to_owned(), session_id: Some(session_id) });
    }
    tongues
}

/// Asks what every transport has, in a session.
pub(super) async fn inquire(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>, tongue: &Tongue) {
    inquiry.probe(wire, Probe::Ping, &tongue.ask("ping", "ping", json!({}))).await;
    inquiry.probe(wire, Probe::LegacyUnknownMethod, &tongue.ask(2, NO_METHOD, json!({}))).await;
    let capabilities =
        inquiry.facts.legacy.first().map(|(_, introduction)| introduction.capabilities.clone());
    let is_only = inquiry.facts.modern.is_none();
    if is_only && let Some((method, params)) = named(capabilities.as_ref()) {
        inquiry.probe(wire, Probe::LegacyUnknownName, &tongue.ask("name", method, params)).await;
    }
    inquiry.say("reading its lists");
    let kinds = if is_only { &Kind::ALL[..] } else { &[Kind::Tools][..] };
    for &kind in kinds {
        let listing = lists::read(wire, inquiry.budget, tongue, kind, 1).await;
        inquiry.facts.listings.extend(listing);
    }
    for _ in 0..if is_only { lists::again(&inquiry.facts, 1) } else { 0 } {
        let listing = lists::read(wire, inquiry.budget, tongue, Kind::Tools, 1).await;
        inquiry.facts.listings.extend(listing);
    }
}

/// Asks what only HTTP has, and ends the session.
pub(super) async fn inquire_http(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>, tongue: &Tongue) {
    let Tongue::Legacy { version, session_id } = tongue else { return };
    let ping = |id: &str| in_session(Ask::legacy(id, "ping", json!({})), tongue);
    let has_id = session_id.is_some();
    let mut requests = vec![
        (Probe::VersionHeader, ping("version").with("mcp-protocol-version", NO_VERSION)),
        (Probe::LegacyGet, in_session(Ask::bare(Method::GET), tongue)),
    ];
    if inquiry.facts.modern.is_none() {
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
        let capabilities = inquiry.facts.legacy.first().map(|(_, introduction)| &introduction.capabilities);
        let (method, params) = named(capabilities).unwrap_or(("resources/list", json!({})));
        let homeless = Ask::legacy("no-session", method, params).with("mcp-protocol-version", version);
        requests.push((Probe::NoSession, homeless));
        let stranger = stranger(session_id.as_deref().unwrap_or_default());
        requests.push((Probe::UnknownSession, ping("stranger").with("mcp-session-id", &stranger)));
        requests.push((Probe::EndSession, in_session(Ask::bare(Method::DELETE), tongue)));
        requests.push((Probe::AfterEnd, ping("after")));
    }
    for (probe, ask) in requests {
        inquiry.probe(wire, probe, &ask).await;
    }
}

/// Asks for tools in a session of its own, and, in one of 2025-03-26, by a batch.
pub(super) async fn inquire_elsewhere(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>, others: &[Tongue]) {
    for (tongue, session) in others.iter().zip(2..) {
        let Tongue::Legacy { version, .. } = tongue else { continue };
        let is_of_batches = version == OF_BATCHES;
        if session > 2 && !is_of_batches {
            continue;
        }
        let initialized = in_session(Ask::notification("notifications/initialized"), tongue);
        if wire.ask(inquiry.budget, &initialized).await.is_none() {
            return;
        }
        for _ in 0..if session == 2 { lists::again(&inquiry.facts, 1) } else { 0 } {
            let listing = lists::read(wire, inquiry.budget, tongue, Kind::Tools, session).await;
            inquiry.facts.listings.extend(listing);
        }
        if is_of_batches {
            let batch = in_session(Ask::legacy("batch", "ping", json!({})), tongue).in_a_batch();
            inquiry.probe(wire, Probe::OldBatch, &batch).await;
        }
    }
}

/// Ends sessions that are left, as a client should.
pub(super) async fn end(inquiry: &Inquiry<'_>, wire: &Wire<'_>, tongues: &[Tongue]) {
    for tongue in tongues {
        if let Tongue::Legacy { session_id: Some(_), .. } = tongue {
            let _ = wire.ask(inquiry.budget, &in_session(Ask::bare(Method::DELETE), tongue)).await;
        }
    }
}

fn in_session(ask: Ask, tongue: &Tongue) -> Ask {
    match tongue {
        Tongue::Legacy { version, session_id } => ask.in_session(version, session_id.as_deref()),
        Tongue::Modern => ask,
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
pub(super) fn idle_ask(tongue: &Tongue) -> Ask {
    let id = Value::from("latency");
    match tongue {
        Tongue::Modern => Ask::modern(id, "server/discover", json!({})),
        Tongue::Legacy { .. } => tongue.ask(id, "ping", json!({})).until(Until::Answer),
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
