//! A reply that is still arriving from an upstream, on its way to the client piece by piece.
//!
//! A fault in the middle of an event stream becomes an error event where the client stands between two events,
//! else its connection is cut.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as _, SizeHint};
use hyper::body::Incoming;
use memchr::memmem;
use tokio::time::{Sleep, sleep_until};

use super::Plan;
use crate::call::Call;
use crate::legacy::{self, InSession};
use crate::mapper::Mapper;
use crate::protocol::envelope::{Envelope, MessageKind};
use crate::protocol::error::{Error, UpstreamError};
use crate::protocol::sse::{Boundary, Event, Events, data_event};
use crate::protocol::version::{Era, LegacyVersion};
use crate::upstream::pool::Lease;
use crate::worker::Worker;

/// A reply that is still arriving.
pub struct Stream {
    worker: Rc<Worker>,
    incoming: Incoming,
    lease: Option<Lease>,
    call: Option<Call>,
    /// The end of our patience: with the whole of a JSON reply, with the silence between events.
    clock: Pin<Box<Sleep>>,
    source: Source,
}

enum Source {
    /// The first piece, already read.
    Json(Option<Bytes>),
    Events(Box<EventStream>),
}

struct EventStream {
    idle: Duration,
    id: Box<str>,
    /// Where the bytes sent so far end.
    boundary: Boundary,
    /// Where events must be looked at one by one.
    events: Option<Events>,
    mapper: Option<Mapper>,
    session: Option<InSession>,
    is_over: bool,
}

pub(super) type Polled = Poll<Option<Result<Bytes, UpstreamError>>>;

impl Stream {
    /// The rest of a JSON reply, after its `first` piece; all of it before `deadline`.
    pub(super) fn json(
        worker: &Rc<Worker>,
        first: Bytes,
        incoming: Incoming,
        lease: Lease,
        deadline: Instant,
    ) -> Box<Self> {
        Self::boxed(worker, incoming, lease, deadline, Source::Json(Some(first)))
    }

    /// A reply of server-sent events.
    pub(super) fn events(worker: &Rc<Worker>, incoming: Incoming, lease: Lease, plan: Plan<'_>) -> Box<Self> {
        let idle = plan.upstream.config.stream_idle_timeout;
        let event_bytes_max = worker.limits().reply_bytes_max;
        let events = EventStream {
            idle,
            id: plan.id.into(),
            boundary: Boundary::default(),
            events: (plan.mapper.is_some() || plan.session.is_some()).then(|| Events::new(event_bytes_max)),
            mapper: plan.mapper,
            session: plan.session,
            is_over: false,
        };
        Self::boxed(worker, incoming, lease, Instant::now() + idle, Source::Events(Box::new(events)))
    }

    fn boxed(
        worker: &Rc<Worker>,
        incoming: Incoming,
        lease: Lease,
        deadline: Instant,
        source: Source,
    ) -> Box<Self> {
        Box::new(Self {
            worker: Rc::clone(worker),
            incoming,
            lease: Some(lease),
            call: None,
            clock: Box::pin(sleep_until(deadline.into())),
            source,
        })
    }

    /// Ties the call to the end of the reply.
    pub(super) fn carry(&mut self, call: Call) {
        self.call = Some(call);
    }

    /// The next piece.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        if matches!(&self.source, Source::Events(stream) if stream.is_over) {
            return Poll::Ready(None);
        }
        loop {
            if let Some(ready) = self.take_ready() {
                return match ready {
                    Ok(data) => Poll::Ready(Some(Ok(data))),
                    Err(error) => self.fail(error),
                };
            }
            let data = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(_))) => return self.fail(UpstreamError::Reset),
                Poll::Ready(None) => return self.end(),
                Poll::Pending => {
                    ready!(self.clock.as_mut().poll(cx));
                    return self.fail(UpstreamError::TimedOut);
                }
            };
            match &mut self.source {
                Source::Json(_) if data.is_empty() => {}
                Source::Json(_) => {
                    self.finish_if_complete();
                    return Poll::Ready(Some(Ok(data)));
                }
                Source::Events(stream) => {
                    self.clock.as_mut().reset((Instant::now() + stream.idle).into());
                    if let Some(events) = &mut stream.events {
                        events.push(data);
                    } else {
                        stream.boundary.push(&data);
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }

    /// What can be sent without waiting: the first piece of JSON, or the next mapped event.
    fn take_ready(&mut self) -> Option<Result<Bytes, UpstreamError>> {
        match &mut self.source {
            Source::Json(first) => first.take().filter(|first| !first.is_empty()).map(Ok),
            Source::Events(stream) => loop {
                let event = stream.events.as_mut()?.next()?;
                let Ok(event) = event else { return Some(Err(UpstreamError::TooLarge)) };
                if let Some(event) = stream.pass(&self.worker, event).transpose() {
                    return Some(event);
                }
            },
        }
    }

    fn end(&mut self) -> Polled {
        if let Source::Events(stream) = &mut self.source
            && let Some(events) = &mut stream.events
        {
            stream.is_over = true;
            // An event without its blank line is none; one that a final CR ended is.
            let last = events.finish();
            let passed = last.and_then(|event| stream.pass(&self.worker, event).transpose());
            self.finish();
            return Poll::Ready(passed);
        }
        self.finish();
        Poll::Ready(None)
    }

    /// HTTP/1.1 does not ask for more once it has sent what `Content-Length` promised.
    fn finish_if_complete(&mut self) {
        if self.incoming.is_end_stream() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back(Instant::now());
        }
        if let Some(call) = &mut self.call {
            call.finish();
        }
    }

    /// Tells the client what happened if it stands between two events, else cuts its connection.
    fn fail(&mut self, error: UpstreamError) -> Polled {
        self.lease = None;
        let failure = Error::from(error.clone());
        if let Some(call) = &mut self.call {
            call.fail(&failure);
        }
        self.call = None;
        match &mut self.source {
            Source::Events(stream) if stream.events.is_some() || stream.boundary.at_boundary() => {
                stream.is_over = true;
                let era = if stream.session.is_some() { Era::Legacy } else { Era::Modern };
                let body = failure.body(Some(&stream.id), era);
                Poll::Ready(Some(Ok(data_event(Bytes::from(body)))))
            }
            _ => Poll::Ready(Some(Err(error))),
        }
    }

    /// What is known of the length.
    pub(super) fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Json(first) => {
                let first = first.as_ref().map_or(0, Bytes::len) as u64;
                match self.incoming.size_hint().exact() {
                    Some(rest) => SizeHint::with_exact(first + rest),
                    None => SizeHint::default(),
                }
            }
            Source::Events(_) => SizeHint::default(),
        }
    }
}

impl EventStream {
    /// An event as the client is to see it, with the public names. `None`: it is not for the client.
    fn pass(&self, worker: &Rc<Worker>, event: Event) -> Result<Option<Bytes>, UpstreamError> {
        let Some(data) = event.data.as_ref().filter(|data| !data.is_empty()) else {
            // Clients before 2025-11-25 take the empty event that only carries an id for a broken message.
            let is_priming = event.data.is_some();
            let is_old = |session: &InSession| session.client_version < LegacyVersion::V2025_11_25;
            let is_refused = is_priming && self.session.as_ref().is_some_and(is_old);
            return Ok((!is_refused).then_some(event.raw));
        };
        let depth_max = worker.limits().json_depth_max;
        // What is no request, or nothing we can read, is for the client to judge.
        if let Some(session) = &self.session
            && memmem::find(data, b"\"method\"").is_some()
            && let Ok(envelope) = Envelope::parse(&mut worker.scratch.borrow_mut(), data, depth_max)
            && envelope.kind == MessageKind::Request
        {
            let is_ping = envelope.method.is_some_and(|method| method.equals(data, "ping"));
            let id = envelope.id.and_then(|id| data.get(id)).unwrap_or_default();
            legacy::answer_request(worker, session, id, is_ping);
            return Ok(None);
        }
        let Some(mapper) = &self.mapper else { return Ok(Some(event.raw)) };
        match mapper.map(&mut worker.scratch.borrow_mut(), data) {
            Ok(None) => Ok(Some(event.raw)),
            Ok(Some(data)) => Ok(Some(event.with_data(data))),
            Err(_) => Err(UpstreamError::Nonsense),
        }
    }
}
