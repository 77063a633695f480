//! Spans of a call that has ended, by OpenTelemetry's conventions for MCP.
//!
//! Names are catalog names or a client's text, shortened and without control characters. What could be a secret is not
//! part of a span: no arguments, no results, no credentials, no session ids.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    SpanContext, SpanId as OtelSpanId, SpanKind, Status, TraceFlags, TraceId as OtelTraceId,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::call_span::{CallSpan, ChildSpan};
use super::context::{SpanId, spelled};
use crate::telemetry::call_record::CallRecord;
use protocol::error::Reason;
use protocol::method::Method;

/// The spans of a call, the outermost last.
pub(super) fn spans(scope: &InstrumentationScope, span: &CallSpan, call: &CallRecord<'_>) -> Vec<SpanData> {
    let clock = Clock { started: call.started, started_at: span.started };
    let name = call.name.map(spelled);
    let mut all = Vec::with_capacity(span.exchanges.len() + 1);
    let exchanges = span.exchanges.iter();
    all.extend(exchanges.map(|exchange| client_span((scope, clock), span, exchange, call, name.as_deref())));
    all.push(server_span((scope, clock), span, call, name.as_deref()));
    all
}

/// Turns the one clock into the other.
#[derive(Clone, Copy)]
struct Clock {
    started: Instant,
    started_at: SystemTime,
}

impl Clock {
    fn at(self, instant: Instant) -> SystemTime {
        self.started_at + instant.saturating_duration_since(self.started)
    }
}

fn server_span(
    (scope, clock): (&InstrumentationScope, Clock),
    span: &CallSpan,
    call: &CallRecord<'_>,
    name: Option<&str>,
) -> SpanData {
    let mut attributes = Vec::with_capacity(16);
    about(&mut attributes, call, name, span);
    attributes.push(KeyValue::new("client.address", call.client.to_string()));
    attributes.push(KeyValue::new("network.transport", "tcp"));
    attributes.push(KeyValue::new("network.protocol.name", "http"));
    let endpoint = call.endpoint.map(str::to_owned);
    attributes.extend(endpoint.map(|endpoint| KeyValue::new("trunkline.endpoint", endpoint)));
    status(&mut attributes, call.status, call.reason);
    SpanData {
        parent_span_id: OtelSpanId::from_bytes(span.parent.unwrap_or_default()),
        parent_span_is_remote: span.is_parent_remote,
        span_kind: SpanKind::Server,
        start_time: span.started,
        end_time: clock.at(call.ended),
        ..span_data(scope, (span, span.span_id), span_name(call.method, name), attributes, call.reason)
    }
}

fn client_span(
    (scope, clock): (&InstrumentationScope, Clock),
    span: &CallSpan,
    exchange: &ChildSpan,
    call: &CallRecord<'_>,
    name: Option<&str>,
) -> SpanData {
    let (ended, reason) = exchange.end.unwrap_or((call.ended, call.reason));
    let name = exchange.name.as_deref().or(name);
    let mut attributes = Vec::with_capacity(16);
    about(&mut attributes, call, name, span);
    let upstream = call.upstream.map(str::to_owned);
    attributes.extend(upstream.map(|upstream| KeyValue::new("trunkline.upstream", upstream)));
    if exchange.is_child {
        attributes.push(KeyValue::new("network.transport", "pipe"));
    } else {
        attributes.push(KeyValue::new("network.transport", "tcp"));
        attributes.push(KeyValue::new("network.protocol.name", "http"));
    }
    if let Some((host, port)) = exchange.trail.at() {
        attributes.push(KeyValue::new("server.address", host));
        attributes.push(KeyValue::new("server.port", i64::from(port)));
    }
    let resends = exchange.trail.resends();
    if resends > 0 {
        attributes.push(KeyValue::new("http.request.resend_count", i64::from(resends)));
    }
    status(&mut attributes, exchange.trail.status(), reason);
    SpanData {
        parent_span_id: OtelSpanId::from_bytes(span.span_id),
        start_time: clock.at(exchange.started),
        end_time: clock.at(ended.max(exchange.started + Duration::from_nanos(1))),
        ..span_data(scope, (span, exchange.span_id), span_name(call.method, name), attributes, reason)
    }
}

/// A client's span without parent and times.
fn span_data(
    scope: &InstrumentationScope,
    (span, span_id): (&CallSpan, SpanId),
    name: String,
    attributes: Vec<KeyValue>,
    reason: Option<Reason>,
) -> SpanData {
    let (trace_id, span_id) = (OtelTraceId::from_bytes(span.trace_id), OtelSpanId::from_bytes(span_id));
    SpanData {
        span_context: SpanContext::new(
            trace_id,
            span_id,
            TraceFlags::new(span.flags),
            false,
            span.state.clone(),
        ),
        parent_span_id: OtelSpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Client,
        name: name.into(),
        start_time: span.started,
        end_time: span.started,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: reason.map_or(Status::Unset, |reason| Status::Error { description: reason.label().into() }),
        instrumentation_scope: scope.clone(),
    }
}

/// What is called is part of a span's name only where there are few of it: URIs and ids of tasks are not.
fn span_name(method: &'static str, name: Option<&str>) -> String {
    match name {
        Some(name) if is_named(method) => format!("{method} {name}"),
        _ => method.to_owned(),
    }
}

fn is_named(method: &str) -> bool {
    method == Method::ToolsCall.label() || method == Method::PromptsGet.label()
}

/// What both kinds of spans say.
fn about(attributes: &mut Vec<KeyValue>, call: &CallRecord<'_>, name: Option<&str>, span: &CallSpan) {
    attributes.push(KeyValue::new("mcp.method.name", call.method));
    let key = match Method::of(call.method) {
        Method::ToolsCall => Some("gen_ai.tool.name"),
        Method::PromptsGet => Some("gen_ai.prompt.name"),
        Method::ResourcesRead | Method::Subscribe | Method::Unsubscribe => Some("mcp.resource.uri"),
        _ => None,
    };
    if key == Some("gen_ai.tool.name") {
        attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
    }
    if let (Some(key), Some(name)) = (key, name) {
        attributes.push(KeyValue::new(key, name.to_owned()));
    }
    attributes.extend(span.version.map(|version| KeyValue::new("mcp.protocol.version", version)));
    let id = span.request_id.clone();
    attributes.extend(id.map(|id| KeyValue::new("jsonrpc.request.id", id)));
}

fn status(attributes: &mut Vec<KeyValue>, status: Option<u16>, reason: Option<Reason>) {
    let status = status.map(i64::from);
    attributes.extend(status.map(|status| KeyValue::new("http.response.status_code", status)));
    attributes.extend(reason.map(|reason| KeyValue::new("error.type", reason.label())));
}
