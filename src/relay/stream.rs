//! A reply that is still arriving from an upstream, on its way to the client piece by piece.
//!
//! A fault in the middle of an event stream becomes an error event where the client stands between two events,
//! else its connection is cut. A subscription is kept alive by comments and ends with its result when the
//! process drains.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as _, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Plan;
use crate::call::Call;
use crate::mapper::Mapper;
use crate::protocol::error::{Error, UpstreamError};
use crate::protocol::sse::{Boundary, Event, Events, data_event};
use crate::upstream::pool::Lease;
use crate::worker::Worker;

/// How often a quiet subscription gets a comment, so that nobody between takes it for dead.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A server-sent comment and the end of its event.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");

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
    mapping: Option<(Mapper, Events)>,
    is_over: bool,
    /// Ends the stream, where it would never end by itself.
    drain: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
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
        let is_subscription = plan.is_subscription;
        let idle =
            if is_subscription { KEEP_ALIVE_INTERVAL } else { plan.upstream.config.stream_idle_timeout };
        let event_bytes_max = worker.limits().reply_bytes_max;
        let events = EventStream {
            idle,
            id: plan.id.into(),
            boundary: Boundary::default(),
            mapping: plan.mapper.map(|mapper| (mapper, Events::new(event_bytes_max))),
            is_over: false,
            drain: is_subscription.then(|| Box::pin(worker.state.drain.quiet_owned())),
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
                    if let Some(end) = self.end_by_drain(cx) {
                        return end;
                    }
                    ready!(self.clock.as_mut().poll(cx));
                    match self.keep_alive() {
                        Some(comment) => return Poll::Ready(Some(Ok(comment))),
                        None => return self.fail(UpstreamError::TimedOut),
                    }
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
                    if let Some((_, events)) = &mut stream.mapping {
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
            Source::Events(stream) => {
                let (_, events) = stream.mapping.as_mut()?;
                let Ok(event) = events.next()? else { return Some(Err(UpstreamError::TooLarge)) };
                Some(self.mapped(event))
            }
        }
    }

    /// An event with the public names.
    fn mapped(&self, event: Event) -> Result<Bytes, UpstreamError> {
        let Source::Events(stream) = &self.source else { return Ok(event.raw) };
        let Some((mapper, _)) = &stream.mapping else { return Ok(event.raw) };
        let Some(data) = event.data.as_ref().filter(|data| !data.is_empty()) else { return Ok(event.raw) };
        match mapper.map(&mut self.worker.scratch.borrow_mut(), data) {
            Ok(None) => Ok(event.raw),
            Ok(Some(data)) => Ok(event.with_data(data)),
            Err(_) => Err(UpstreamError::Nonsense),
        }
    }

    fn end(&mut self) -> Polled {
        if let Source::Events(stream) = &mut self.source
            && let Some((_, events)) = &mut stream.mapping
        {
            stream.is_over = true;
            // An event without its blank line is none; one that a final CR ended is.
            let last = events.finish();
            let mapped = last.map(|event| self.mapped(event));
            self.finish();
            return Poll::Ready(mapped);
        }
        self.finish();
        Poll::Ready(None)
    }

    /// What a quiet subscription sends instead of failing, where it stands between two events.
    fn keep_alive(&mut self) -> Option<Bytes> {
        let Source::Events(stream) = &self.source else { return None };
        stream.drain.as_ref()?;
        let comment = if stream.boundary.at_boundary() { KEEP_ALIVE } else { Bytes::new() };
        self.clock.as_mut().reset((Instant::now() + stream.idle).into());
        Some(comment)
    }

    /// The graceful end of a subscription (2026-07-28 subscriptions, "Graceful Closure").
    fn end_by_drain(&mut self, cx: &mut Context<'_>) -> Option<Polled> {
        let Source::Events(stream) = &mut self.source else { return None };
        let is_draining = stream.drain.as_mut()?.as_mut().poll(cx).is_ready();
        if !is_draining || !stream.boundary.at_boundary() {
            return None;
        }
        stream.is_over = true;
        let id = &stream.id;
        let result = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        );
        self.lease = None;
        if let Some(call) = &mut self.call {
            call.finish();
        }
        Some(Poll::Ready(Some(Ok(data_event(Bytes::from(result))))))
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
            Source::Events(stream) if stream.mapping.is_some() || stream.boundary.at_boundary() => {
                stream.is_over = true;
                let body = failure.body(Some(&stream.id));
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
