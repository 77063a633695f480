//! One request of a client as the server is sent it, as often as that takes, and the head of each reply.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::session::LegacySession;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::bridge::BridgedServer;
use crate::clock;
use crate::upstream::ReplicaSelection;
use crate::upstream::ask::{PROTOCOL_VERSION, SESSION_ID};
use crate::upstream::body::collect_answer;
use crate::upstream::exchange::{Reply, SendOptions, UpstreamClient};
use crate::upstream::get_stream::Messages;
use crate::upstream::headers::MCP_NAME;
use crate::upstream::request::{RequestAttributes, UpstreamRequest};
use protocol::agreement::name_in_body;
use protocol::answer_id::AnswerId;
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::UpstreamError;
use protocol::header::encode_value;
use protocol::json::Document;
use protocol::media::Media;
use protocol::method::Method;
use protocol::param_headers::mirror;
use protocol::splice::Segments;
use protocol::translation::answer::Ids;
use protocol::translation::request::{ModernForm, Renamed, to_modern};
use protocol::version::MODERN;

const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const PARAM: &str = "mcp-param-";

pub(super) struct LegacyCall {
    /// Who is charged for what is held for it.
    payer: Payer,
    pub(super) client: UpstreamClient,
    pub(super) upstream: BridgedServer,
    pub(super) session: Arc<LegacySession>,
    /// As the client wrote it, with the server's own names.
    pub(super) message: Bytes,
    /// How it is written for the server, where it need not be read for that.
    form: Option<ModernForm>,
    pub(super) method: Method,
    /// The literal of the client's id.
    pub(super) id: Bytes,
    /// The tool that is called.
    tool: Option<Box<str>>,
    headers: HeaderMap,
    /// What travels with the first request.
    attributes: RequestAttributes,
    is_safe_to_repeat: bool,
}

/// The reply of the server, as far as its head tells.
pub(super) enum LegacyReply {
    Message(Bytes, Share),
    Events(Box<Messages>),
}

impl LegacyCall {
    /// Reads a request. `None`: its method cannot be the value of a header.
    pub(super) fn of(
        client: &UpstreamClient,
        upstream: &BridgedServer,
        session: &Arc<LegacySession>,
        (message, envelope): (Bytes, &Envelope),
        (headers, attributes): (HeaderMap, RequestAttributes),
    ) -> Option<Self> {
        let text = envelope.method.as_ref()?.decode(&message)?;
        let method = Method::of(&text);
        let name = method.name_source().and_then(|source| name_in_body(envelope, source));
        let name = name.and_then(|name| name.decode(&message));
        let headers = modern_headers(headers, HeaderValue::from_str(&text).ok()?, name.as_deref());
        let tool = name.filter(|_| method == Method::ToolsCall).map(Box::from);
        let is_safe_to_repeat =
            method.is_safe_to_repeat() || tool.as_ref().is_some_and(|tool| upstream.may_call_twice(tool));
        Some(Self {
            id: message.slice_ref(message.get(envelope.id.clone()?)?),
            client: client.clone(),
            upstream: upstream.clone(),
            session: Arc::clone(session),
            method,
            tool,
            headers,
            payer: attributes.payer,
            attributes: RequestAttributes { principal: session.principal.clone(), ..attributes },
            is_safe_to_repeat,
            form: ModernForm::of(&message, envelope),
            message,
        })
    }

    /// How the call is known to its server, by `own_id`, and to its client.
    pub(super) fn ids<'a>(&'a self, own_id: &'a str) -> Ids<'a> {
        Ids { own: own_id, client: self.client_id() }
    }

    /// The literal of the client's id.
    pub(super) fn client_id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or("null")
    }

    /// Nothing yet of the memory for messages.
    pub(super) fn open_share(&self) -> Share {
        self.client.limits().budget.open(self.payer)
    }

    /// Whether the server may ask something during it.
    pub(super) fn may_ask(&self) -> bool {
        matches!(self.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
    }

    /// Whether a header may mirror something of it.
    pub(super) fn is_of_tool(&self) -> bool {
        self.tool.is_some()
    }

    /// Sends it with `added` in its `params`, under the id literal `own_id`.
    pub(super) async fn send(
        &mut self,
        added: &str,
        own_id: &str,
        deadline: Instant,
    ) -> Result<LegacyReply, UpstreamError> {
        let body = self.body(added, own_id)?;
        let mut request = UpstreamRequest::post(body, self.headers.clone());
        self.mirror(&mut request.headers);
        request.attributes = self.attributes.clone();
        let delivery = SendOptions {
            is_safe_to_repeat: self.is_safe_to_repeat,
            aim: ReplicaSelection::Any,
            asked: None,
            payer: self.payer,
        };
        let (client, now) = (&self.client, clock::now());
        let reply = client.send_as_it_is(&self.upstream, &mut request, delivery, now, deadline).await?;
        self.receive(reply, own_id, deadline).await
    }

    fn body(&self, added: &str, own_id: &str) -> Result<Segments, UpstreamError> {
        let introduction = self.session.introduced();
        if let Some(form) = &self.form {
            return Ok(form.write(&self.message, &introduction, added, own_id));
        }
        let renamed = Renamed { id: Some(own_id), token: None };
        let body =
            self.client.read_json(|memory| to_modern(&self.message, &introduction, added, renamed, memory));
        body.map_err(|_| UpstreamError::Nonsense)
    }

    /// Writes what the server wants to see of the arguments in headers.
    fn mirror(&self, headers: &mut HeaderMap) {
        let annotations = self.tool.as_ref().and_then(|tool| self.upstream.annotated.of(tool));
        let Some(annotations) = annotations else { return };
        let depth_max = self.client.host.shared.limits().json_depth_max;
        let mut scratch = self.client.host.scratch.borrow_mut();
        let Ok(root) = scratch.index(&self.message, depth_max).map(Document::root) else { return };
        let arguments = root.get("params").and_then(|params| params.get("arguments"));
        for (name, value) in mirror(&annotations, arguments) {
            let header = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value));
            if let (Ok(name), Ok(value)) = header {
                headers.insert(name, value);
            }
        }
    }

    async fn receive(
        &self,
        reply: Reply,
        own_id: &str,
        deadline: Instant,
    ) -> Result<LegacyReply, UpstreamError> {
        if reply.is_stream() {
            return Ok(LegacyReply::Events(Box::new(Messages::of(&self.client, &self.upstream, reply))));
        }
        let (status, media) = (reply.head.status, reply.head.media);
        let fields = reply.head.fields.clone();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(self.upstream.access.refusal());
        }
        if media == Media::Json {
            let is_ours = |message: &Bytes| self.is_answer(message, own_id);
            let (message, held) =
                collect_answer(&self.client, &self.upstream, reply, deadline, is_ours).await?;
            if status.is_success() || is_ours(&message) {
                return Ok(LegacyReply::Message(message, held));
            }
        }
        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            // A server of the era that has its senses answers otherwise.
            self.upstream.facts.doubt();
        }
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                UpstreamError::Busy { status, retry_after_s: fields.retry_after_s() }
            }
            _ => fields.fault(status),
        })
    }

    /// Whether a body is an answer to this request.
    fn is_answer(&self, message: &[u8], own_id: &str) -> bool {
        // Nobody else has this id.
        if AnswerId::of(message, own_id.as_bytes()).is_ours() {
            return true;
        }
        let depth_max = self.client.host.shared.limits().json_depth_max;
        let mut scratch = self.client.host.scratch.borrow_mut();
        if let Ok(envelope) = Envelope::parse(&mut scratch, message, depth_max) {
            let own_id = own_id.as_bytes();
            let is_ours = envelope.id.and_then(|id| message.get(id)).is_none_or(|id| id == own_id);
            return envelope.kind == MessageKind::Response && is_ours;
        }
        // Where the id could not be read, some servers write `null`.
        let root = scratch.index(message, depth_max).map(Document::root);
        root.is_ok_and(|root| {
            let code = root.get("error").and_then(|error| error.get("code")?.as_integer());
            code.is_some() && root.get("id").is_some_and(|id| id.raw() == b"null")
        })
    }
}

/// Headers of a legacy request as those of a modern one.
fn modern_headers(mut headers: HeaderMap, method: HeaderValue, name: Option<&str>) -> HeaderMap {
    let stale: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(PARAM)).cloned().collect();
    for name in stale.into_iter().chain([SESSION_ID, MCP_NAME]) {
        headers.remove(name);
    }
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(MODERN[0]));
    headers.insert(MCP_METHOD, method);
    if let Some(name) = name.and_then(|name| HeaderValue::from_str(&encode_value(name)).ok()) {
        headers.insert(MCP_NAME, name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_are_those_of_a_modern_request() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("mcp-session-id", "s"),
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "old"),
            ("mcp-param-city", "Oslo"),
            ("traceparent", "00-1-2-01"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let method = HeaderValue::from_static("tools/call");
        let headers = modern_headers(headers, method, Some("ä"));
        let request = UpstreamRequest::post(Segments::default(), headers);
        let mut written: Vec<String> = request
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII")))
            .collect();
        written.sort();
        assert_eq!(
            written,
            [
                "accept: application/json, text/event-stream",
                "content-type: application/json",
                "mcp-method: tools/call",
                "mcp-name: =?base64?w6Q=?=",
                "mcp-protocol-version: 2026-07-28",
                "traceparent: 00-1-2-01",
            ]
        );
    }
}
