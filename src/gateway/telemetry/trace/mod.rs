//! Traces: W3C trace context in and out, spans by OpenTelemetry's conventions for MCP.
//!
//! | file | what it is |
//! |---|---|
//! | `context.rs` | `traceparent`, `tracestate` and `baggage` |
//! | `sampler.rs` | which calls are traced |
//! | `settings.rs` | `[trace]` and the `OTEL_*` variables |
//! | `call_span.rs` | what is noted while a traced call is under way |
//! | `trail.rs` | where its request went |
//! | `finished.rs` | its spans, once it has ended |
//! | `export.rs` | the queue of spans, and the way out of it |
//! | `otlp.rs` | one batch of spans, encoded and posted |
//!
//! The headers of a call decide if it is traced, before anything is allocated for it; and its body once more, where they
//! name no parent, and `_meta` does (SEP-414). Calls that are not traced keep the headers and the `_meta` of their clients.
//! Workers hand finished spans to the control thread through a bounded queue and never wait: what finds no room is
//! counted.

mod call_span;
mod context;
mod export;
mod finished;
mod otlp;
mod sampler;
mod settings;
mod trail;

use std::cell::Cell;
use std::time::Instant;

use opentelemetry::InstrumentationScope;
use protocol::fields::Fields;
use protocol::trace_meta::TraceMeta;

use super::call_record::CallRecord;

pub(crate) use self::call_span::CallSpan;
pub(crate) use self::export::{SpanQueue, Traces};
pub(crate) use self::settings::{TraceSettingsError, ca_of};
pub(crate) use self::trail::Trail;

use self::context::{Parent, TraceNotes};
use self::sampler::Sampler;

/// The trace of a call, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct TracedCall {
    /// Its spans, if it is traced.
    pub(crate) span: Option<Box<CallSpan>>,
    /// True if its client has named a parent.
    pub(crate) has_parent: bool,
}

#[derive(Debug)]
pub(crate) struct Tracer {
    sampler: Sampler,
    queue: SpanQueue,
    scope: InstrumentationScope,
    random: Cell<u64>,
}

impl Tracer {
    pub(crate) fn new(traces: &Traces) -> Self {
        let scope =
            InstrumentationScope::builder("trunkline").with_version(env!("CARGO_PKG_VERSION")).build();
        Self { sampler: traces.sampler(), queue: traces.queue(), scope, random: Cell::new(random_u64()) }
    }

    /// The spans of a call that came with these fields, if it is to be traced.
    pub(crate) fn start(&self, fields: &Fields) -> TracedCall {
        let parent = Parent::of(fields);
        let random = if parent.is_some() { 0 } else { self.next() };
        let span = self.sampler.takes(parent.as_ref(), random).then(|| {
            let mut span = Box::new(CallSpan::new(trace_id(random), fields));
            if let Some(parent) = parent {
                span.has_parent(parent, TraceNotes::of(fields));
            }
            span
        });
        TracedCall { span, has_parent: parent.is_some() }
    }

    /// The `_meta` of a call, which began then and came with these fields, says this of its trace. Its header
    /// wins. Returns what `_meta` is to say instead, `traceparent` and `tracestate`, if the call is traced.
    pub(crate) fn hear<'t>(
        &self,
        call: &'t mut TracedCall,
        meta: &TraceMeta,
        fields: &Fields,
        began: Instant,
    ) -> Option<(String, Option<&'t str>)> {
        let parent = meta.parent.as_deref().and_then(|text| Parent::read(text.as_bytes()));
        if let Some(parent) = parent.filter(|_| !call.has_parent) {
            call.has_parent = true;
            if !self.sampler.takes(Some(&parent), 0) {
                call.span = None;
                return None;
            }
            let late = || Box::new(CallSpan::late(parent.trace_id, fields, began));
            // A state that no header may hold is none.
            let notes = meta.state.as_deref().filter(|text| context::header_of(text).is_some());
            let notes = notes.and_then(|text| TraceNotes::read(text.to_owned()));
            call.span.get_or_insert_with(late).has_parent(parent, notes);
        }
        Some(call.span.as_mut()?.takes(meta))
    }

    /// Hands the spans of a call that has ended to the exporter.
    pub(crate) fn end(&self, span: &CallSpan, call: &CallRecord<'_>) {
        for span in finished::spans(&self.scope, span, call) {
            self.queue.push(span);
        }
    }

    /// Random enough for a share of the calls, and made without asking the system (`SplitMix64`).
    fn next(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The lower half is what the sampler looked at.
fn trace_id(lower: u64) -> context::TraceId {
    let whole = u128::from(random_u64().max(1)) << 64 | u128::from(lower);
    whole.to_be_bytes()
}

/// Without randomness ids are still ids, if not good ones.
fn random_u64() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::try_from(now.as_nanos() & u128::from(u64::MAX)).unwrap_or(1)
    })
}

#[cfg(test)]
mod tests;
