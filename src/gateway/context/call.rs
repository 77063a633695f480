//! One request on its way, from its headers to the end of its reply.
//!
//! It knows what a log line and a metric need. Invariant: its metric is recorded exactly once, when it is
//! dropped; a call that nobody finished was given up by the client.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::access::caller::Caller;
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::context::peer::{InCall, Peer};
use crate::identity::Principal;
use crate::snapshot::Endpoint;
use crate::telemetry::call_record::CallRecord;
use crate::telemetry::calls::{CallLabels, Outcome, Spoken};
use crate::telemetry::logs::{Failure, cut, shorten};
use crate::telemetry::metrics::EndpointSeries;
use crate::telemetry::observers::{Observers, Watch};
use crate::telemetry::tools::ToolId;
use crate::telemetry::trace::TracedCall;
use crate::upstream::Upstream;
use crate::upstream::fault::Fault;
use crate::upstream::masking::plain;
use crate::upstream::silence::Silence;
use config::{Networks, UNIX_CLIENT};
use protocol::error::{ClientError, Error, PolicyError, Reason, UpstreamError};
use protocol::fields::Fields;
use protocol::forwarded;
use protocol::method::Method;
use protocol::trace_meta::TraceMeta;
use protocol::version::Era;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    Open,
    Answered,
    Failed(Reason),
}

/// What became known of a message before it was read to its end, or refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFacts {
    /// Its method: the header's, until the body's is known.
    pub method: Method,
    /// Its era: the headers', until the body has shown it.
    pub era: Era,
}

#[derive(Debug)]
pub(crate) struct Call {
    /// When its headers were read.
    pub started: Instant,
    /// What it asks for, and in which era, as far as it is known.
    pub seen: RequestFacts,
    /// Who asks; `None` until its credentials were checked.
    pub caller: Option<Rc<Caller>>,
    /// The endpoint that took it.
    pub endpoint: Option<Rc<Arc<Endpoint>>>,
    /// The upstream it was sent to.
    pub upstream: Option<Rc<Arc<Upstream>>>,
    /// Why it failed, for operators.
    message: Option<Box<str>>,
    pub is_origin_allowed: bool,
    /// What it calls, as far as it is known; as much of it as is logged.
    pub(crate) name: Option<String>,
    /// The revision of the protocol that it is made in, as far as it is known; for the metrics.
    pub spoken: Cell<Spoken>,
    /// The tool that it calls, once it is known where that is; for the metrics.
    pub tool: Option<ToolId>,
    client_address: IpAddr,
    unmatched: Rc<Arc<EndpointSeries>>,
    connection: InCall,
    observers: Rc<Observers>,
    pub watch: Watch,
    /// The silence of its client, where that can be broken before the reply.
    pub silence: Option<Arc<Silence>>,
    pub status: Option<u16>,
    pub request_bytes: u64,
    /// Bytes of its reply's body so far.
    pub reply_bytes: u64,
    end: CallOutcome,
}

impl Call {
    pub(crate) fn start(
        connection: InCall,
        unmatched: Rc<Arc<EndpointSeries>>,
        observers: Rc<Observers>,
        fields: &Fields,
    ) -> Self {
        let watch = observers.watch(fields);
        Self::new(connection, unmatched, observers, watch)
    }

    fn new(
        connection: InCall,
        unmatched: Rc<Arc<EndpointSeries>>,
        observers: Rc<Observers>,
        watch: Watch,
    ) -> Self {
        observers.pulse.enter();
        Self {
            started: clock::now(),
            seen: RequestFacts { method: Method::Other, era: Era::Modern },
            caller: None,
            endpoint: None,
            upstream: None,
            message: None,
            is_origin_allowed: false,
            name: None,
            spoken: Cell::default(),
            tool: None,
            client_address: connection.0.address.ip(),
            unmatched,
            connection,
            observers,
            watch,
            silence: None,
            status: None,
            request_bytes: 0,
            reply_bytes: 0,
            end: CallOutcome::Open,
        }
    }

    /// One of several that came in the same request.
    #[must_use]
    pub(crate) fn part(&self) -> Self {
        let connection = self.connection.another();
        let mut part =
            Self::new(connection, Rc::clone(&self.unmatched), Rc::clone(&self.observers), self.watch.part());
        part.caller.clone_from(&self.caller);
        part.endpoint.clone_from(&self.endpoint);
        part.is_origin_allowed = self.is_origin_allowed;
        part.client_address = self.client_address;
        part.seen.era = self.seen.era;
        part.spoken = self.spoken.clone();
        part
    }

    /// Takes the client's address from `fields`, where a trusted proxy wrote them.
    pub(crate) fn believe(&mut self, fields: &Fields, proxies: &Networks) {
        if !proxies.is_empty() {
            let is_trusted = |address| proxies.contain(address);
            self.client_address = forwarded::client_address(fields, self.client_address, is_trusted);
        }
    }

    /// The client's address, behind the proxies that are trusted.
    pub(crate) fn client_address(&self) -> IpAddr {
        self.client_address
    }

    pub(crate) fn on_loopback(&self) -> bool {
        self.connection.0.on_loopback
    }

    /// Who is charged for what is held for it.
    pub(crate) fn payer(&self) -> Payer {
        let of_caller = self.caller.as_ref().and_then(|caller| caller.payer);
        of_caller.unwrap_or_else(|| {
            let peer = self.peer();
            let is_direct = peer.address.ip() == self.client_address;
            if is_direct { peer.payer } else { Payer::network(self.client_address) }
        })
    }

    /// True if its client has the head of a reply already.
    pub(crate) fn has_begun_reply(&self) -> bool {
        self.silence.as_ref().is_some_and(|silence| silence.begun().is_some())
    }

    /// Who asks, as far as its credentials were checked.
    pub(crate) fn principal(&self) -> &Principal {
        self.caller.as_ref().map_or(&Principal::Anonymous, |caller| &caller.principal)
    }

    /// Who asks; an error before its credentials were checked.
    pub(crate) fn caller(&self) -> Result<&Rc<Caller>, PolicyError> {
        self.caller.as_ref().ok_or(PolicyError::NoCredentials)
    }

    pub(crate) fn asked(&self) -> CallLabels {
        CallLabels { method: self.seen.method, tool: self.tool }
    }

    /// It calls this. A name may be as long as a body: what is not logged of it is not kept either.
    pub(crate) fn has_name(&mut self, name: Option<&str>) {
        self.name = name.map(|name| cut(name).into_owned());
    }

    /// True if it matters what its body says of its trace.
    pub(crate) fn looks_for_trace(&self) -> bool {
        let TracedCall { span, has_parent } = &self.watch.trace;
        self.observers.tracer.is_some() && (!has_parent || span.is_some())
    }

    /// Its `_meta` says this of its trace. Returns what that is to say instead, `traceparent` and `tracestate`, if the
    /// call is traced.
    pub(crate) fn hears_of_trace(
        &mut self,
        meta: &TraceMeta,
        fields: &Fields,
    ) -> Option<(String, Option<&str>)> {
        let tracer = self.observers.tracer.as_ref()?;
        tracer.hear(&mut self.watch.trace, meta, fields, self.started)
    }

    pub(crate) fn peer(&self) -> &Rc<Peer> {
        &self.connection.0
    }

    /// The call was answered, with a result or with an upstream's own error.
    pub(crate) fn finish(&mut self) {
        self.end = CallOutcome::Answered;
    }

    /// The call failed. Writes its log line.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.end = CallOutcome::Failed(error.outcome().reason);
        let peer = self.connection.0.address;
        let is_forwarded = peer.ip() != self.client_address;
        let client = if is_forwarded {
            self.client_address.to_string()
        } else if peer == UNIX_CLIENT {
            "unix".to_owned()
        } else {
            peer.to_string()
        };
        let now = clock::now();
        let left_out = match error {
            // A client that looks for something at ten places has one line.
            Error::Client(ClientError::NoEndpoint) => {
                let strays = &self.observers.recent_errors.strays;
                let Some(left_out) = strays.admit(self.client_address, now) else {
                    self.message = Some(plain(&error.to_string()));
                    return;
                };
                Some(left_out).filter(|left_out| *left_out > 0)
            }
            _ => None,
        };
        let fault = self.fault(error);
        let why = fault.as_ref().map(ToString::to_string);
        self.observers.failures.write(
            &Failure {
                request_id: &self.watch.request_id,
                endpoint: self.endpoint.as_ref().map_or("-", |endpoint| &endpoint.config.name),
                method: self.seen.method.label(),
                name: &self.name.as_deref().map_or_else(|| "-".into(), shorten),
                upstream: self.upstream_name().unwrap_or("-"),
                principal: self.principal().name(),
                client: &client,
                error,
                upstream_status: fault.as_ref().and_then(Fault::status).map(|status| status.as_u16()),
                why: why.as_deref(),
                left_out,
            },
            now,
        );
        self.message = Some(why.map_or_else(|| plain(&error.without_outcome()), Box::from));
    }

    fn upstream_name(&self) -> Option<&str> {
        self.upstream.as_deref().map(|upstream| upstream.config.name.as_str())
    }

    /// The fault of the server by which this call failed, as far as it is known.
    #[cold]
    fn fault(&self, error: &Error) -> Option<Fault> {
        match (error, &self.upstream) {
            (Error::Upstream(error), Some(upstream)) => upstream.known_fault(error).or_else(|| {
                let waited = clock::since(self.started);
                (*error == UpstreamError::TimedOut).then_some(Fault::TimedOut(waited))
            }),
            _ => None,
        }
    }

    /// Shows the end of the call to whoever looks.
    #[cold]
    fn show(&mut self, ended: Instant, spoken: Spoken, reason: Option<Reason>) {
        let mut watch = std::mem::take(&mut self.watch);
        let request_id = std::mem::take(&mut watch.request_id);
        let record = CallRecord {
            request_id: &request_id,
            started: self.started,
            ended,
            endpoint: self.endpoint.as_ref().map(|endpoint| &*endpoint.config.name),
            method: self.seen.method.label(),
            name: self.name.as_deref(),
            upstream: self.upstream_name(),
            principal: self.principal(),
            client: self.client_address,
            version: Some(spoken.label()).filter(|version| !version.is_empty()),
            request_bytes: self.request_bytes,
            reply_bytes: self.reply_bytes,
            status: self.status,
            reason,
            message: self.message.as_deref(),
            trace_id: watch.trace.span.as_ref().map(|span| span.trace_id()),
        };
        self.observers.ended(&mut watch, &record);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let reason = match self.end {
            CallOutcome::Answered => None,
            CallOutcome::Failed(reason) => Some(reason),
            CallOutcome::Open => Some(Reason::Cancelled),
        };
        let series = self.endpoint.as_ref().map_or(&**self.unmatched, |endpoint| &*endpoint.series);
        let now = clock::now();
        let spoken = match self.spoken.get() {
            // Whatever says nothing of itself and is answered is of the modern era.
            Spoken::Unknown if reason.is_none() && self.seen.era == Era::Modern => Spoken::Modern,
            spoken => spoken,
        };
        series.observe(&Outcome {
            method: self.seen.method,
            spoken,
            tool: self.tool,
            reason,
            seconds: now.duration_since(self.started).as_secs_f64(),
        });
        match &self.caller {
            Some(caller) => caller.counts.observe(reason),
            None if reason.is_some() => self.observers.callers.note_unidentified(),
            None => {}
        }
        if self.watch.is_awaited(reason) {
            self.show(now, spoken, reason);
        }
        self.connection.leave(now);
        self.observers.pulse.leave();
    }
}
