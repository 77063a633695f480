//! The spans of one call while it is under way: what has to be noted, and nothing that can be had at its end.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::HeaderMap;
use opentelemetry::trace::TraceState;

use super::context::{self, SAMPLED, SpanId, TRACEPARENT, TRACESTATE, TraceId};
use super::random_u64;
use super::trail::Trail;
use crate::clock;
use crate::telemetry::logs::shorten;
use protocol::error::{Error, Reason};
use protocol::fields::{FieldName, Fields, visible};
use protocol::header::decode_value;
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
    keeps_state: bool,
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
    /// The span of a call that came with these headers.
    pub(super) fn new(trace_id: TraceId, parent: Option<(SpanId, u8)>, fields: &Fields) -> Self {
        // Without a parent, what is noted belongs to no trace.
        let state = parent.and_then(|_| context::state(fields));
        let version = fields.first(FieldName::McpProtocolVersion).and_then(visible);
        Self {
            trace_id,
            span_id: new_span_id(),
            flags: SAMPLED | parent.map_or(0, |(_, flags)| flags),
            parent: parent.map(|(span, _)| span),
            is_parent_remote: parent.is_some(),
            keeps_state: state.is_some(),
            state: state.unwrap_or_default(),
            started: clock::calendar(),
            version: MODERN.iter().chain(LEGACY).find(|known| Some(**known) == version).copied(),
            request_id: None,
            exchanges: Vec::new(),
        }
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
            keeps_state: self.keeps_state,
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
        self.request_id = Some(shorten(literal.trim_matches('"')));
    }

    /// A request with these headers leaves for an upstream, which is told of a span of its own. Where it goes is to be noted
    /// in what is returned.
    pub(crate) fn leaves(&mut self, headers: &mut HeaderMap, is_child: bool) -> Arc<Trail> {
        let span_id = new_span_id();
        let trail = Arc::new(Trail::default());
        let name = headers.get("mcp-name").and_then(|name| decode_value(name.as_bytes()));
        let name = name.map(|name| shorten(&name));
        headers.remove(TRACEPARENT);
        if let Some(value) = context::traceparent(&self.trace_id, span_id, self.flags) {
            headers.insert(TRACEPARENT, value);
        }
        if !self.keeps_state {
            headers.remove(TRACESTATE);
        }
        let noted = Arc::clone(&trail);
        self.exchanges.push(ChildSpan { span_id, started: clock::now(), end: None, name, is_child, trail });
        noted
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
