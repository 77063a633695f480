//! What is asked of a server that speaks a revision of the modern era.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::Inspection;
use super::lists::{self, Dialect};
use super::transport::ProbeTransport;
use crate::doctor::facts::{ListKind, Probe};
use crate::doctor::request::{Body, NO_METHOD, NO_VERSION, NOBODY, ProbeRequest, Until};
use protocol::version::{LEGACY, MODERN};

/// A web page that has nothing to do with the server.
pub(super) const FOREIGN_ORIGIN: &str = "http://page.example";

/// Asks everything.
pub(super) async fn inquire(inspection: &mut Inspection<'_>, transport: &ProbeTransport<'_>) {
    read_lists(inspection, transport).await;
    for (probe, ask) in
        requests(inspection.facts.modern.as_ref().map(|introduction| &introduction.capabilities))
    {
        inspection.probe(transport, probe, &ask).await;
    }
    if transport.is_http() {
        let capabilities =
            inspection.facts.modern.as_ref().map(|introduction| introduction.capabilities.clone());
        for (probe, ask) in http_requests().into_iter().chain(name_requests(capabilities.as_ref())) {
            inspection.probe(transport, probe, &ask).await;
        }
    }
}

async fn read_lists(inspection: &mut Inspection<'_>, transport: &ProbeTransport<'_>) {
    inspection.say("reading its lists");
    for kind in ListKind::ALL {
        let listing = lists::read(transport, inspection.budget, &Dialect::Modern, kind, 0).await;
        inspection.facts.listings.extend(listing);
    }
    inspection.say("reading its tools again");
    for _ in 0..lists::again(&inspection.facts, 2) {
        let listing = lists::read(transport, inspection.budget, &Dialect::Modern, ListKind::Tools, 0).await;
        inspection.facts.listings.extend(listing);
    }
}

/// What every transport has.
fn requests(capabilities: Option<&Value>) -> Vec<(Probe, ProbeRequest)> {
    let mut requests = vec![
        (
            Probe::UnknownVersion,
            ProbeRequest::modern("version", "server/discover", json!({})).of_version(NO_VERSION),
        ),
        (Probe::UnknownMethod, ProbeRequest::modern("method", NO_METHOD, json!({}))),
        (Probe::NoMeta, ProbeRequest::modern("meta", "server/discover", json!({})).without_capabilities()),
    ];
    if let Some((method, params)) = named(capabilities) {
        requests.push((Probe::UnknownName, ProbeRequest::modern("name", method, params)));
    }
    let has = |capability: &str| capabilities.is_some_and(|all| all.get(capability).is_some());
    if let Some(kind) = ListKind::ALL.into_iter().find(|kind| has(kind.capability())) {
        let ask = ProbeRequest::modern("cursor", kind.method(), json!({ "cursor": NOBODY }));
        requests.push((Probe::BadCursor, ask));
    }
    if let Some(filter) = promised(capabilities) {
        let ask = ProbeRequest::modern("listen", "subscriptions/listen", json!({ "notifications": filter }));
        requests.push((Probe::Listen, ask.until(Until::FirstMessage)));
    }
    requests
}

/// What only HTTP has.
fn http_requests() -> Vec<(Probe, ProbeRequest)> {
    let discover = |id: &str| ProbeRequest::modern(id, "server/discover", json!({}));
    let notification = ProbeRequest::notification("notifications/trunkline-doctor")
        .with("mcp-protocol-version", MODERN[0])
        .with("mcp-method", "notifications/trunkline-doctor");
    vec![
        (Probe::NoMethodHeader, discover("no-method").without("mcp-method")),
        (Probe::OtherMethodHeader, discover("other-method").with("mcp-method", "tools/list")),
        (Probe::NoVersionHeader, discover("no-version").without("mcp-protocol-version")),
        (Probe::OtherVersionHeader, discover("other-version").with("mcp-protocol-version", LEGACY[0])),
        (Probe::Notification, notification),
        (Probe::Garbage, discover("garbage").with_body(Body::Raw("{\"jsonrpc\": \"2.0\", \"id\": 1, "))),
        (Probe::Batch, discover("batch").in_a_batch()),
        (Probe::PlainText, discover("text").with("content-type", "text/plain")),
        (Probe::JsonOnly, discover("json").with("accept", "application/json")),
        (Probe::NoAccept, discover("accept").without("accept")),
        (Probe::ForeignOrigin, discover("origin").with("origin", FOREIGN_ORIGIN)),
        (Probe::ModernGet, ProbeRequest::bare(Method::GET).with("mcp-protocol-version", MODERN[0])),
    ]
}

/// Those about the header that holds a name.
fn name_requests(capabilities: Option<&Value>) -> Vec<(Probe, ProbeRequest)> {
    let Some((method, params)) = named(capabilities) else { return Vec::new() };
    let ask = |id: &str| ProbeRequest::modern(id, method, params.clone());
    let encoded = format!("=?base64?{}?=", STANDARD.encode(NOBODY));
    vec![
        (Probe::NoNameHeader, ask("no-name").without("mcp-name")),
        (Probe::OtherNameHeader, ask("other-name").with("mcp-name", "trunkline-doctor-another-name")),
        (Probe::EncodedName, ask("encoded-name").with("mcp-name", &encoded)),
    ]
}

/// A request for something that is not there, of a kind that the server has.
pub(super) fn named(capabilities: Option<&Value>) -> Option<(&'static str, Value)> {
    let has = |capability: &str| capabilities.is_some_and(|all| all.get(capability).is_some());
    if has("tools") {
        Some(("tools/call", json!({ "name": NOBODY, "arguments": {} })))
    } else if has("prompts") {
        Some(("prompts/get", json!({ "name": NOBODY })))
    } else {
        None
    }
}

/// The news that the server promises.
fn promised(capabilities: Option<&Value>) -> Option<Value> {
    let mut filter = serde_json::Map::new();
    for (capability, member) in [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ] {
        let declared = capabilities.and_then(|all| all.get(capability)?.get("listChanged")?.as_bool());
        if declared == Some(true) {
            filter.insert(member.to_owned(), Value::Bool(true));
        }
    }
    (!filter.is_empty()).then_some(Value::Object(filter))
}
