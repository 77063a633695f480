//! A modern request on its way to a legacy server: what it says of its client, and how the server is shown it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::bridge::BridgedCaller;
use crate::telemetry::trace::Trail;
use crate::upstream::headers::ForwardedFields;
use crate::upstream::request::UpstreamRequest;
use crate::upstream::silence::Silence;
use protocol::envelope::MessageKind;
use protocol::json::{Literal, Scratch, Span, Value};
use protocol::level::Level;
use protocol::method::Method;
use protocol::splice::Segments;
use protocol::translation::request::{LegacyForm, Renamed};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// What a client may declare so that it is asked; all else of its capabilities asks it nothing.
const ASKED_BY: [&str; 3] = ["elicitation", "sampling", "roots"];

#[derive(Clone, Debug)]
pub(crate) struct ModernCall {
    pub method: Method,
    /// The message as the client sent it.
    pub message: Bytes,
    /// `params.name`.
    pub name: Option<Literal>,
    pub is_request: bool,
    pub legacy_form: LegacyForm,
    /// The literal of its id.
    pub id: Box<str>,
    /// The literal of its progress token.
    pub token: Option<Box<str>>,
    /// The client's capabilities, a JSON object.
    pub capabilities: Bytes,
    /// `clientInfo`, a JSON object.
    pub client_info: Option<Box<str>>,
    /// Which log lines the client wants, if any.
    pub level: Option<Level>,
    /// Where it goes on with an earlier call.
    pub request_state: Option<Box<str>>,
    /// The client's answers, a JSON object.
    pub input_responses: Option<Bytes>,
    pub caller: BridgedCaller,
    /// What goes along to the server of the client's header: trace context, and what the operator names.
    pub forwarded: ForwardedFields,
    /// When the head of the reply is too late.
    pub deadline: Instant,
    pub may_be_asked: bool,
    /// The server is to run it as a task.
    pub as_task: bool,
    /// Where it is noted where it went, if it is traced.
    pub trail: Option<Arc<Trail>>,
    /// The silence of its client.
    pub silence: Option<Arc<Silence>>,
}

impl ModernCall {
    /// Reads a message that was posted. `None`: it is not one that comes by here.
    pub(crate) fn read(
        mut request: UpstreamRequest,
        deadline: Instant,
        (scratch, depth_max): (&mut Scratch, usize),
    ) -> Option<Arc<Self>> {
        if !request.headers.is_empty() {
            request.spell_out();
        }
        let (message, envelope) = request.take_message((&mut *scratch, depth_max)).ok()?;
        let UpstreamRequest { attributes, forwarded, headers, .. } = request;
        let forwarded = forwarded.unwrap_or_else(|| ForwardedFields::from(&headers));
        let mut details = CallDetails::default();
        let take = |key: &str, value: Value<'_>| details.take(key, value, &message);
        let legacy_form = LegacyForm::of(&message, &envelope, (&mut *scratch, depth_max), take);
        scratch.release();
        let legacy_form = legacy_form.ok()?;
        let method = envelope.method.as_ref()?.decode(&message).map(|name| Method::of(&name))?;
        let literal = |span: Option<Span>| -> Option<Box<str>> {
            std::str::from_utf8(message.get(span?)?).ok().map(Into::into)
        };
        let meta = envelope.meta.as_ref();
        let capabilities = meta.and_then(|meta| meta.client_capabilities.clone());
        let CallDetails { level, request_state, input_responses, may_be_asked } = details;
        Some(Arc::new(Self {
            method,
            id: literal(envelope.id.clone()).unwrap_or_default(),
            token: literal(meta.and_then(|meta| meta.progress_token.clone())),
            capabilities: capabilities.map_or(Bytes::from_static(b"{}"), |span| message.slice(span)),
            client_info: literal(meta.and_then(|meta| meta.client_info.clone())),
            level,
            request_state,
            input_responses,
            caller: BridgedCaller {
                principal: attributes.principal.unwrap_or_default(),
                payer: attributes.payer,
                ..BridgedCaller::default()
            },
            forwarded: forwarded.for_other_era(),
            deadline,
            may_be_asked,
            as_task: false,
            trail: attributes.trail,
            silence: attributes.silence,
            is_request: envelope.kind == MessageKind::Request,
            name: envelope.name.clone(),
            message,
            legacy_form,
        }))
    }

    /// Whether a server may ask, or write log lines, while it works on it.
    pub(crate) fn takes_messages(&self) -> bool {
        let may_be_asked =
            matches!(self.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
        may_be_asked && (self.may_be_asked || self.level.is_some())
    }

    /// Whether the client wants log lines of this level: whoever asked for none gets none, whatever the server thinks.
    pub(crate) fn wants(&self, level: Option<Level>) -> bool {
        self.level.is_some_and(|least| level.is_none_or(|level| level >= least))
    }

    /// The message as a legacy server takes it, under another id and progress token, which are JSON literals; `added`:
    /// members of `params` separated by commas, or nothing.
    pub(crate) fn to_legacy(&self, (id, token): (&str, &str), added: &str) -> Segments {
        self.legacy_form.write(&self.message, added, Renamed { id: Some(id), token: Some(token) })
    }
}

/// What the envelope does not tell of a call.
#[derive(Default)]
struct CallDetails {
    level: Option<Level>,
    request_state: Option<Box<str>>,
    input_responses: Option<Bytes>,
    may_be_asked: bool,
}

impl CallDetails {
    /// Takes a member that no legacy server is shown. Of a message whose envelope was read, so that none stands twice.
    fn take(&mut self, key: &str, value: Value<'_>, message: &Bytes) {
        match key {
            "requestState" => self.request_state = value.as_str().map(Into::into),
            "inputResponses" if value.is_object() => {
                self.input_responses = Some(message.slice_ref(value.raw()));
            }
            LOG_LEVEL => self.level = value.as_str().and_then(|level| Level::of(&level)),
            CAPABILITIES => {
                let mut declared = value.members();
                self.may_be_asked =
                    declared.any(|(name, value)| ASKED_BY.contains(&&*name) && value.is_object());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::access::limit::payer::Payer;
    use crate::upstream::request::RequestAttributes;

    fn read(message: &str) -> Option<Arc<ModernCall>> {
        let message = Segments::from(message.to_owned());
        let mut request = UpstreamRequest { message, ..UpstreamRequest::default() };
        for (name, value) in [
            ("mcp-name", "a"),
            ("mcp-param-x", "1"),
            ("traceparent", "00"),
            ("x-tag", "a"),
            ("x-tag", "b"),
            ("accept", "b"),
        ] {
            request.headers.append(name, HeaderValue::from_static(value));
        }
        let attributes = &mut request.attributes;
        (attributes.principal, attributes.payer) = (RequestAttributes::principal("p"), Payer::principal("p"));
        ModernCall::read(request, crate::clock::now(), (&mut Scratch::default(), 16))
    }

    fn message(method: &str, capabilities: &str, more_meta: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/clientCapabilities":{capabilities}{more_meta}}}}}}}"#
        )
    }

    #[test]
    fn only_those_who_may_be_told_something_take_messages() {
        for (method, capabilities, meta, expected) in [
            ("tools/call", "{}", "", false),
            ("tools/call", r#"{"extensions":{}}"#, "", false),
            ("tools/call", r#"{"roots":{}}"#, "", true),
            ("tools/call", r#"{"sampling":{}}"#, "", true),
            ("prompts/get", r#"{"elicitation":{}}"#, "", true),
            ("resources/read", "{}", r#","io.modelcontextprotocol/logLevel":"info""#, true),
            ("resources/read", "{}", r#","io.modelcontextprotocol/logLevel":"loud""#, false),
            ("completion/complete", r#"{"roots":{}}"#, "", false),
        ] {
            let call = read(&message(method, capabilities, meta)).expect("a request");
            assert_eq!(call.takes_messages(), expected, "{method} {capabilities} {meta}");
            assert_eq!((&*call.id, &*call.capabilities), (r#""x""#, capabilities.as_bytes()));
            let mut headers = HeaderMap::new();
            call.forwarded.clone().add_to(&mut headers);
            let names = headers.iter().map(|(name, _)| name.as_str());
            assert_eq!(
                names.collect::<Vec<_>>(),
                ["traceparent", "x-tag", "x-tag", "content-type", "accept"]
            );
            assert_eq!(headers["accept"], "application/json, text/event-stream");
            assert_eq!(&*call.caller.principal, "p");
        }
    }

    #[test]
    fn what_continues_a_call_is_read() {
        let call = read(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"requestState":"a\n","inputResponses":{"k":{}},"_meta":{"progressToken":"t"}}}"#,
        );
        let call = call.expect("a request");
        assert_eq!(call.request_state.as_deref(), Some("a\n"));
        assert_eq!(call.input_responses.as_deref(), Some(&br#"{"k":{}}"#[..]));
        assert_eq!(call.token.as_deref(), Some(r#""t""#));
        assert!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).is_none());
    }
}
