//! The spans of one call while it is under way: what has to be noted, and nothing that can be had at its end.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::TraceState;

use super::context::{
    self, BAGGAGE, Parent, SAMPLED, SpanId, TRACEPARENT, TRACESTATE, TraceId, TraceNotes, spelled,
};
use super::random_u64;
use super::trail::Trail;
use crate::clock;
use protocol::error::{Error, Reason};
use protocol::fields::{FieldName, Fields, visible};
use protocol::header::decode_value;
use protocol::trace_meta::TraceMeta;
use protocol::version::{LEGACY, MODERN};

/// The spans of one call: one for the client's request, and one for each exchange with an upstream.
#[derive(Debug)]
pub(crate) struct CallSpan {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) flags: u8,
    pub(super) parent: Option<SpanId>,
    /// Whether the parent is somebody else's span.
    pub(super) is_parent_remote: bool,
    pub(super) state: TraceState,
    /// The `tracestate` that is handed on.
    noted: Option<Box<str>>,
    /// The `baggage` of `_meta`, for the header of whoever sent none.
    baggage: Option<HeaderValue>,
    /// The span of an exchange that the message names in its `_meta`.
    named: Option<SpanId>,
    pub(super) started: SystemTime,
    pub(super) version: Option<&'static str>,
    pub(super) request_id: Option<String>,
    pub(super) exchanges: Vec<ChildSpan>,
}

#[derive(Debug)]
pub(super) struct ChildSpan {
    pub(super) span_id: SpanId,
    pub(super) started: Instant,
    /// `None`: it ends with the call, and as the call does.
    pub(super) end: Option<(Instant, Option<Reason>)>,
    /// What is called, as the upstream calls it.
    pub(super) name: Option<String>,
    pub(super) is_child: bool,
    pub(super) trail: Arc<Trail>,
}

impl CallSpan {
    /// The span of a call that came with these headers, at the beginning of a trace.
    pub(super) fn new(trace_id: TraceId, fields: &Fields) -> Self {
        let version = fields.first(FieldName::McpProtocolVersion).and_then(visible);
        Self {
            trace_id,
            span_id: new_span_id(),
            flags: SAMPLED,
            parent: None,
            is_parent_remote: false,
            state: TraceState::default(),
            noted: None,
            baggage: None,
            named: None,
            started: clock::calendar(),
            version: MODERN.iter().chain(LEGACY).find(|known| Some(**known) == version).copied(),
            request_id: None,
            exchanges: Vec::new(),
        }
    }

    /// The span of a call that began earlier, and whose trace became known only now.
    pub(super) fn late(trace_id: TraceId, fields: &Fields, began: Instant) -> Self {
        let mut span = Self::new(trace_id, fields);
        span.started = span.started.checked_sub(clock::since(began)).unwrap_or(span.started);
        span
    }

    /// Its parent is this one, of somebody else.
    pub(super) fn has_parent(&mut self, parent: Parent, notes: Option<TraceNotes>) {
        self.trace_id = parent.trace_id;
        self.flags = SAMPLED | parent.flags;
        (self.parent, self.is_parent_remote) = (Some(parent.span_id), true);
        let (text, state) = notes.map(|notes| (notes.text, notes.kept)).unzip();
        (self.noted, self.state) = (text.filter(|text| !text.is_empty()), state.unwrap_or_default());
    }

    /// Takes what only `_meta` tells of the trace. Returns what it is to say instead: `traceparent` and `tracestate`.
    pub(super) fn takes(&mut self, meta: &TraceMeta) -> (String, Option<&str>) {
        self.baggage = meta.baggage.as_deref().and_then(context::header_of);
        let named = *self.named.insert(new_span_id());
        (context::traceparent(&self.trace_id, named, self.flags), self.noted.as_deref())
    }

    /// That of one of several calls that came in the same request.
    #[must_use]
    pub(crate) fn part(&self) -> Self {
        Self {
            trace_id: self.trace_id,
            span_id: new_span_id(),
            flags: self.flags,
            parent: Some(self.span_id),
            is_parent_remote: false,
            state: self.state.clone(),
            noted: self.noted.clone(),
            baggage: None,
            named: None,
            started: clock::calendar(),
            version: self.version,
            request_id: None,
            exchanges: Vec::new(),
        }
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// The request has this id, as it is written.
    pub(crate) fn has_id(&mut self, literal: &str) {
        self.request_id = Some(spelled(literal.trim_matches('"')));
    }

    /// A request with these headers leaves for an upstream, which is told of a span of its own. Where it goes is to be noted
    /// in what is returned.
    pub(crate) fn leaves(&mut self, headers: &mut HeaderMap, is_child: bool) -> Arc<Trail> {
        let is_first = self.exchanges.is_empty();
        let span_id = self.named.filter(|_| is_first).unwrap_or_else(new_span_id);
        let trail = Arc::new(Trail::default());
        let name = headers.get("mcp-name").and_then(|name| decode_value(name.as_bytes()));
        let name = name.map(|name| spelled(&name));
        for name in [TRACEPARENT, TRACESTATE] {
            headers.remove(name);
        }
        let parent = context::traceparent(&self.trace_id, span_id, self.flags);
        for (name, text) in [(TRACEPARENT, Some(&*parent)), (TRACESTATE, self.noted.as_deref())] {
            if let Some(value) = text.and_then(|text| text.parse().ok()) {
                headers.insert(name, value);
            }
        }
        if let Some(baggage) = self.baggage.as_ref().filter(|_| !headers.contains_key(BAGGAGE)) {
            headers.insert(BAGGAGE, baggage.clone());
        }
        let noted = Arc::clone(&trail);
        self.exchanges.push(ChildSpan { span_id, started: clock::now(), end: None, name, is_child, trail });
        noted
    }

    /// The `traceparent` in the `_meta` of the message, and the one that is to stand there: both are as long.
    pub(crate) fn renamed(&self) -> Option<[String; 2]> {
        let span_id = self.exchanges.last()?.span_id;
        let named = self.named.filter(|named| *named != span_id)?;
        Some([named, span_id].map(|span_id| context::traceparent(&self.trace_id, span_id, self.flags)))
    }

    pub(crate) fn returned(&mut self, error: Option<&Error>) {
        if let Some(exchange) = self.exchanges.last_mut() {
            exchange.end = Some((clock::now(), error.map(|error| error.outcome().reason)));
        }
    }
}

fn new_span_id() -> SpanId {
    random_u64().max(1).to_be_bytes()
}
