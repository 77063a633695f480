//! What is asked of a server that speaks a revision of the modern era.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::spoken_era::SpokenEra;
use super::transport::ProbeTransport;
use super::{HALF_AN_OBJECT, Inspection};
use crate::doctor::facts::{ListKind, Probe};
use crate::doctor::request::{Body, NO_METHOD, NO_VERSION, NOBODY, ProbeRequest, Until};
use protocol::version::{Era, LEGACY, MODERN};

/// A web page that has nothing to do with the server.
pub(super) const FOREIGN_ORIGIN: &str = "http://page.example";

impl Inspection<'_> {
    /// Asks everything; `is_http`: over Streamable HTTP.
    pub(super) async fn inquire_modern(&mut self, transport: &mut impl ProbeTransport, is_http: bool) {
        self.say("reading its lists");
        for kind in ListKind::ALL {
            self.read_list(transport, &SpokenEra::Modern, kind, 0).await;
        }
        self.say("reading its tools again");
        self.read_tools_again(transport, &SpokenEra::Modern, 0, 2).await;
        let capabilities = self.facts.capabilities(Era::Modern);
        let mut all = requests(capabilities);
        if is_http {
            all.extend(http_requests());
            all.extend(name_requests(capabilities));
        }
        self.probe_all(transport, all).await;
    }
}

/// What every transport has.
fn requests(capabilities: &Value) -> Vec<(Probe, ProbeRequest)> {
    let mut requests = vec![
        (Probe::UnknownVersion, SpokenEra::Modern.idle("version").of_version(NO_VERSION)),
        (Probe::UnknownMethod, ProbeRequest::modern("method", NO_METHOD, json!({}))),
        (Probe::NoMeta, SpokenEra::Modern.idle("meta").without_capabilities()),
    ];
    if let Some((method, params)) = named(capabilities) {
        requests.push((Probe::UnknownName, ProbeRequest::modern("name", method, params)));
    }
    let has = |capability: &str| capabilities.get(capability).is_some();
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
    let discover = |id: &str| SpokenEra::Modern.idle(id);
    let notification = ProbeRequest::notification("notifications/trunkline-doctor")
        .with("mcp-protocol-version", MODERN[0])
        .with("mcp-method", "notifications/trunkline-doctor");
    let mut requests = vec![
        (Probe::NoMethodHeader, discover("no-method").without("mcp-method")),
        (Probe::OtherMethodHeader, discover("other-method").with("mcp-method", "tools/list")),
        (Probe::NoVersionHeader, discover("no-version").without("mcp-protocol-version")),
        (Probe::OtherVersionHeader, discover("other-version").with("mcp-protocol-version", LEGACY[0])),
        (Probe::Notification, notification),
        (Probe::Batch, discover("batch").in_a_batch()),
        (Probe::ModernGet, ProbeRequest::bare(Method::GET).with("mcp-protocol-version", MODERN[0])),
    ];
    requests.extend(wrong_in_any_era(&discover));
    requests
}

/// What no server over HTTP takes, of whatever era: made of requests that do nothing.
pub(super) fn wrong_in_any_era(idle: &dyn Fn(&str) -> ProbeRequest) -> [(Probe, ProbeRequest); 5] {
    [
        (Probe::Garbage, idle("garbage").with_body(Body::Raw(HALF_AN_OBJECT))),
        (Probe::PlainText, idle("text").with("content-type", "text/plain")),
        (Probe::JsonOnly, idle("json").with("accept", "application/json")),
        (Probe::NoAccept, idle("accept").without("accept")),
        (Probe::ForeignOrigin, idle("origin").with("origin", FOREIGN_ORIGIN)),
    ]
}

/// Those about the header that holds a name.
fn name_requests(capabilities: &Value) -> Vec<(Probe, ProbeRequest)> {
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
pub(super) fn named(capabilities: &Value) -> Option<(&'static str, Value)> {
    let has = |capability: &str| capabilities.get(capability).is_some();
    if has("tools") {
        Some(("tools/call", json!({ "name": NOBODY, "arguments": {} })))
    } else if has("prompts") {
        Some(("prompts/get", json!({ "name": NOBODY })))
    } else {
        None
    }
}

/// The news that the server promises.
fn promised(capabilities: &Value) -> Option<Value> {
    let mut filter = serde_json::Map::new();
    for (capability, member) in [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ] {
        let declared = capabilities.get(capability).and_then(|about| about.get("listChanged")?.as_bool());
        if declared == Some(true) {
            filter.insert(member.to_owned(), Value::Bool(true));
        }
    }
    (!filter.is_empty()).then_some(Value::Object(filter))
}
