//! Everything of one worker that looks at calls, beside the metrics.

use std::sync::Arc;

use http::HeaderMap;

use super::access::AccessLog;
use super::call_record::CallRecord;
use super::callers::CallerRegistry;
use super::logs::FailureLog;
use super::recent_errors::RecentErrors;
use super::request_id::{RequestId, RequestIds};
use super::trace::{TracedCall, Tracer, Trail};
use crate::telemetry::pulse::Pulse;
use config::Log;
use protocol::error::{Error, Reason};
use protocol::fields::Fields;

#[derive(Debug)]
pub(crate) struct Observers {
    pub failures: FailureLog,
    pub access: AccessLog,
    pub request_ids: RequestIds,
    pub tracer: Option<Tracer>,
    /// Where calls under way are counted.
    pub pulse: Arc<Pulse>,
    pub recent_errors: Arc<RecentErrors>,
    pub callers: Arc<CallerRegistry>,
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Whether the access log gets a line even if the call is answered.
    is_logged: bool,
    pub request_id: RequestId,
    pub trace: TracedCall,
}

impl Observers {
    pub(crate) fn watch(&self, fields: &Fields) -> Watch {
        Watch {
            request_id: self.request_ids.name(fields),
            is_logged: self.access.takes_success(self.request_ids.random()),
            trace: self.tracer.as_ref().map(|tracer| tracer.start(fields)).unwrap_or_default(),
        }
    }

    pub(crate) fn refresh(&self, log: &Log) {
        self.failures.set_max(log.refusals_per_second_max);
        self.access.refresh(log);
    }

    pub(crate) fn ended(&self, watch: &mut Watch, call: &CallRecord<'_>) {
        let (method, endpoint, status) = (call.method, call.endpoint, call.status);
        tracing::debug!(request_id = %call.request_id, method, endpoint, status, "call ended");
        if let Some(reason) = call.reason {
            self.recent_errors.note(call, reason);
        }
        if watch.is_logged || call.reason.is_some() {
            self.access.write(call);
        }
        if let (Some(tracer), Some(span)) = (&self.tracer, watch.trace.span.take()) {
            tracer.end(&span, call);
        }
    }
}

impl Watch {
    /// Who looks at one of several calls that came in the same request.
    #[must_use]
    pub(crate) fn part(&self) -> Self {
        let span = self.trace.span.as_ref().map(|span| Box::new(span.part()));
        let trace = TracedCall { span, has_parent: self.trace.has_parent };
        Self { is_logged: self.is_logged, request_id: self.request_id.clone(), trace }
    }

    /// The id of its request, as it is written.
    pub(crate) fn identify<'i>(&mut self, id: impl FnOnce() -> Option<&'i str>) {
        if let Some(span) = &mut self.trace.span
            && let Some(id) = id()
        {
            span.has_id(id);
        }
    }

    /// A request with these headers leaves for an upstream, by HTTP or for a child process.
    pub(crate) fn leaves(&mut self, headers: &mut HeaderMap, is_child: bool) -> Option<Arc<Trail>> {
        Some(self.trace.span.as_mut()?.leaves(headers, is_child))
    }

    pub(crate) fn failed(&mut self, error: &Error) {
        if let Some(span) = &mut self.trace.span {
            span.returned(Some(error));
        }
    }

    pub(crate) fn answered(&mut self) {
        if let Some(span) = &mut self.trace.span {
            span.returned(None);
        }
    }

    /// True if anybody looks at the end of a call, which failed for this reason or was answered.
    pub(crate) fn is_awaited(&self, reason: Option<Reason>) -> bool {
        self.is_curious() || reason.is_some() || tracing::enabled!(tracing::Level::DEBUG)
    }

    /// True if somebody wants to know what an answered call was about.
    pub(crate) fn is_curious(&self) -> bool {
        self.is_logged || self.trace.span.is_some()
    }
}
