//! What is asked of a server that speaks revisions of the legacy era.

use http::Method;
use serde_json::json;

use super::Inspection;
use super::modern::{self, named};
use super::spoken_era::SpokenEra;
use super::transport::ProbeTransport;
use crate::doctor::facts::{ListKind, Probe};
use crate::doctor::introduction;
use crate::doctor::request::{NO_METHOD, NO_VERSION, ProbeRequest};
use protocol::version::{Era, LEGACY};

/// The revision that has batches.
const OF_BATCHES: &str = "2025-03-26";

impl Inspection<'_> {
    /// Opens a session of this version. Without an introduction there is none.
    pub(super) async fn open_session(
        &mut self,
        transport: &mut impl ProbeTransport,
        version: &'static str,
    ) -> Option<SpokenEra> {
        self.probe(transport, Probe::Initialize(version), &ProbeRequest::initialize(version)).await;
        let exchange = self.facts.answer(Probe::Initialize(version))?;
        let introduction = introduction::legacy(exchange)?;
        let session_id = exchange.session_id.clone();
        self.facts.session_ids.extend(session_id.clone());
        let dialect = SpokenEra::Legacy { version: introduction.version.clone(), session_id };
        self.facts.legacy.push((version, introduction));
        Some(dialect)
    }

    /// Says that the session may begin.
    pub(super) async fn begin_session(&mut self, transport: &mut impl ProbeTransport, dialect: &SpokenEra) {
        self.probe(transport, Probe::Initialized, &initialized(dialect)).await;
    }

    /// Opens a session of every other version.
    pub(super) async fn open_more_sessions(&mut self, transport: &mut impl ProbeTransport) -> Vec<SpokenEra> {
        let mut dialects = Vec::new();
        for version in &LEGACY[1..] {
            dialects.extend(self.open_session(transport, version).await);
        }
        self.probe(transport, Probe::InitializeUnknown, &ProbeRequest::initialize(NO_VERSION)).await;
        let unknown = self.facts.answer(Probe::InitializeUnknown);
        if let Some(session_id) = unknown.and_then(|exchange| exchange.session_id.clone()) {
            self.facts.session_ids.push(session_id.clone());
            dialects.push(SpokenEra::Legacy { version: LEGACY[0].to_owned(), session_id: Some(session_id) });
        }
        dialects
    }

    /// Asks what every transport has, in a session.
    pub(super) async fn inquire_in_session(
        &mut self,
        transport: &mut impl ProbeTransport,
        dialect: &SpokenEra,
    ) {
        self.probe(transport, Probe::Ping, &dialect.idle("ping")).await;
        self.probe(transport, Probe::LegacyUnknownMethod, &dialect.ask(2, NO_METHOD, json!({}))).await;
        let is_only = self.facts.modern.is_none();
        if is_only && let Some((method, params)) = named(self.facts.capabilities(Era::Legacy)) {
            self.probe(transport, Probe::LegacyUnknownName, &dialect.ask("name", method, params)).await;
        }
        self.say("reading its lists");
        let kinds = if is_only { &ListKind::ALL[..] } else { &[ListKind::Tools][..] };
        for &kind in kinds {
            self.read_list(transport, dialect, kind, 1).await;
        }
        if is_only {
            self.read_tools_again(transport, dialect, 1, 1).await;
        }
    }

    /// Asks what only HTTP has, and ends the session.
    pub(super) async fn inquire_http_session(
        &mut self,
        transport: &mut impl ProbeTransport,
        dialect: &SpokenEra,
    ) {
        let SpokenEra::Legacy { version, session_id } = dialect else { return };
        let ping = |id: &str| dialect.idle(id);
        let mut requests = vec![
            (Probe::VersionHeader, ping("version").with("mcp-protocol-version", NO_VERSION)),
            (Probe::LegacyGet, dialect.in_session(ProbeRequest::bare(Method::GET))),
        ];
        if self.facts.modern.is_none() {
            requests.extend(modern::wrong_in_any_era(&ping));
            if version != OF_BATCHES {
                requests.push((Probe::Batch, ping("batch").in_a_batch()));
            }
        }
        if let Some(session_id) = session_id {
            let capabilities = self.facts.capabilities(Era::Legacy);
            let (method, params) = named(capabilities).unwrap_or(("resources/list", json!({})));
            let homeless =
                ProbeRequest::legacy("no-session", method, params).with("mcp-protocol-version", version);
            requests.extend([
                (Probe::NoSession, homeless),
                (Probe::UnknownSession, ping("stranger").with("mcp-session-id", &stranger(session_id))),
                (Probe::EndSession, dialect.in_session(ProbeRequest::bare(Method::DELETE))),
                (Probe::AfterEnd, ping("after")),
            ]);
        }
        self.probe_all(transport, requests).await;
    }

    /// Asks for tools in a session of its own, and, in one of 2025-03-26, by a batch.
    pub(super) async fn inquire_in_others(
        &mut self,
        transport: &mut impl ProbeTransport,
        others: &[SpokenEra],
    ) {
        for (dialect, session) in others.iter().zip(2..) {
            let SpokenEra::Legacy { version, .. } = dialect else { continue };
            let is_of_batches = version == OF_BATCHES;
            if session > 2 && !is_of_batches {
                continue;
            }
            if self.ask(transport, &initialized(dialect)).await.is_none() {
                return;
            }
            if session == 2 {
                self.read_tools_again(transport, dialect, session, 1).await;
            }
            if is_of_batches {
                self.probe(transport, Probe::OldBatch, &dialect.idle("batch").in_a_batch()).await;
            }
        }
    }

    /// Ends sessions that are left, as a client should.
    pub(super) async fn end_sessions(&mut self, transport: &mut impl ProbeTransport, dialects: &[SpokenEra]) {
        for dialect in dialects {
            if let SpokenEra::Legacy { session_id: Some(_), .. } = dialect {
                self.ask(transport, &dialect.in_session(ProbeRequest::bare(Method::DELETE))).await;
            }
        }
    }
}

fn initialized(dialect: &SpokenEra) -> ProbeRequest {
    dialect.in_session(ProbeRequest::notification("notifications/initialized"))
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
