//! A reply that is still arriving from an upstream, on its way to the client piece by piece.
//!
//! A fault in the middle of an event stream becomes an error event where the client stands between two events,
//! else its connection is cut.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as _, SizeHint};
use tokio_util::sync::CancellationToken;

use super::RelayPlan;
use super::events::{AtEnd, EventStream};
use super::gather::Gather;
use super::json::JsonStream;
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::clock::{self, RecurringDeadline};
use crate::context::call::Call;
use crate::context::worker::Worker;
use crate::session::Session;
use crate::session::outbox::CallInFlight;
use crate::telemetry::calls::UpstreamDurations;
use crate::upstream::exchange::Reply;
use crate::upstream::incoming::{Incoming, IncomingPiece};
use crate::upstream::messages::ReplyPart;
use crate::upstream::pool::{self, ConnectionLease};
use crate::upstream::silence::Silence;
use protocol::error::{ClientError, Error, UpstreamError};
use protocol::sse::Event;

/// How long the end of a stream is waited for once the client has its answer.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// A client that takes so long to ask for more has used up time that was the upstream's.
const SLOW_CLIENT_MIN: Duration = Duration::from_millis(500);

pub(super) struct RelayedReply {
    worker: Rc<Worker>,
    incoming: Incoming,
    lease: Option<ConnectionLease>,
    call: Option<Call>,
    /// In the legacy era.
    in_flight: Option<CallInFlight>,
    call_place: Option<Arc<CallPlace>>,
    /// In the legacy era: the end of the session with the upstream, and the client's session.
    session: Option<(CancellationToken, Session)>,
    durations: Arc<UpstreamDurations>,
    /// The end of our patience: with the whole of a JSON reply, with the silence between events.
    deadline: Instant,
    /// Then, or earlier for a comment.
    rings: Instant,
    timer: RecurringDeadline,
    /// The silence of its client, whose timer it is.
    silence: Option<Arc<Silence>>,
    /// The longest silence of the client. Zero: there is no bound.
    keep_alive_interval: Duration,
    /// When the whole of an event stream must be there.
    answer_by: Option<Instant>,
    source: ReplySource,
    is_over: bool,
    is_detached: bool,
    /// When the client was last given something.
    given: Option<Instant>,
    /// The client was slow: that the reply is late says nothing of the upstream.
    is_client_slow: bool,
    /// What was read since the client left or has its answer.
    leftover_bytes: usize,
    gather: Gather,
}

enum ReplySource {
    Json(JsonStream),
    Events(Box<EventStream>),
}

enum Arrival {
    Data(Bytes),
    Part(ReplyPart),
    /// The end as it should be.
    End,
    /// The end as it should not be.
    Break,
    Reopened(Box<Reply>),
    NotReopened,
    /// Nothing, but an event that waited can be handed on.
    Prepared,
}

pub(super) type BytesPoll = Poll<Option<Result<Bytes, UpstreamError>>>;

impl RelayedReply {
    /// A JSON reply that has begun; all of it before the plan's deadline.
    pub(super) fn json(
        worker: &Rc<Worker>,
        begun: JsonStream,
        incoming: (Incoming, Option<ConnectionLease>),
        plan: &mut RelayPlan<'_>,
    ) -> Box<Self> {
        Self::boxed(worker, incoming, plan, |_| ReplySource::Json(begun))
    }

    pub(super) fn events(
        worker: &Rc<Worker>,
        incoming: (Incoming, Option<ConnectionLease>),
        plan: &mut RelayPlan<'_>,
    ) -> Box<Self> {
        let (now, config) = (clock::now(), &plan.upstream.config);
        let stream_duration_max = Some(config.stream_duration_max).filter(|timeout| !timeout.is_zero());
        let answer_by = stream_duration_max.map(|timeout| now + timeout);
        plan.deadline = at_most(now + config.stream_idle_timeout, answer_by);
        let bytes_max = worker.limits().reply_bytes_max;
        let source =
            |plan: &mut RelayPlan<'_>| ReplySource::Events(Box::new(EventStream::new(plan, bytes_max)));
        let mut reply = Self::boxed(worker, incoming, plan, source);
        reply.answer_by = answer_by;
        if let Some(silence) = plan.silence.filter(|_| !plan.takes_one_message()) {
            reply.keep_alive_interval = silence.interval();
            reply.wait_until(now, plan.deadline);
        }
        reply
    }

    fn boxed(
        worker: &Rc<Worker>,
        (incoming, lease): (Incoming, Option<ConnectionLease>),
        plan: &mut RelayPlan<'_>,
        source: impl FnOnce(&mut RelayPlan<'_>) -> ReplySource,
    ) -> Box<Self> {
        Box::new(Self {
            worker: Rc::clone(worker),
            incoming,
            lease,
            call: None,
            in_flight: plan.in_flight.take(),
            call_place: plan.call_place.take(),
            session: plan
                .session
                .as_ref()
                .map(|held| (held.upstream_session.ended.clone(), held.session.clone())),
            durations: Arc::clone(&plan.upstream.durations),
            deadline: plan.deadline,
            rings: plan.deadline,
            timer: plan.silence.map(|silence| silence.take_timer()).unwrap_or_default(),
            silence: plan.silence.cloned(),
            keep_alive_interval: Duration::ZERO,
            answer_by: Some(plan.deadline),
            source: source(plan),
            is_over: false,
            is_detached: false,
            given: None,
            is_client_slow: false,
            leftover_bytes: 0,
            gather: Gather::default(),
        })
    }

    pub(super) fn carry(&mut self, call: Call) {
        self.call = Some(call);
    }

    /// The call it answers, as long as nothing went wrong.
    pub(super) fn call(&mut self) -> Option<&mut Call> {
        self.call.as_mut()
    }

    pub(super) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// The client has left. Gives the end of its session, and who it was, if the reply is to be read on until then at most: where
    /// leaving means nothing, and where the client cannot come back for the rest. What comes is for nobody, and it may
    /// take no longer than a call.
    pub(super) fn detach(&mut self) -> Option<(CancellationToken, Payer)> {
        if self.has_last_word() {
            self.end_place();
        }
        let (ended, session) = self.session.take().filter(|_| !self.is_over)?;
        self.is_detached = true;
        self.call = None;
        if let ReplySource::Events(events) = &mut self.source {
            if events.is_resumable() && !events.has_answered() {
                return None;
            }
            let patience = if events.has_answered() { END_PATIENCE } else { events.detach() };
            self.keep_alive_interval = Duration::ZERO;
            self.wait_for(patience);
        }
        Some((ended, session.owner().payer()))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> BytesPoll {
        if let Some(given) = self.given.take() {
            self.is_client_slow |= clock::since(given) >= SLOW_CLIENT_MIN;
            // It asks for more, and so has taken what there was.
            if self.has_last_word() {
                self.note_answered();
            }
        }
        let polled = self.poll_pieces(cx);
        if !self.is_over && polled.is_ready() {
            self.given = Some(clock::now());
        }
        polled
    }

    fn poll_pieces(&mut self, cx: &mut Context<'_>) -> BytesPoll {
        if matches!(self.source, ReplySource::Json(_)) {
            return self.poll_piece(cx);
        }
        let mut gather = std::mem::take(&mut self.gather);
        let polled = gather.poll(cx, |cx| self.poll_piece(cx));
        self.gather = gather;
        polled
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> BytesPoll {
        loop {
            match self.take_ready() {
                Some(Ok(data)) => return Poll::Ready(Some(Ok(data))),
                Some(Err(error)) => return self.fail(error),
                None => {}
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.poll_upstream(cx) {
                Poll::Ready(Arrival::Data(data)) => {
                    if self.is_too_much(data.len()) {
                        return self.fail(UpstreamError::TimedOut);
                    }
                    if let Some(passed) = self.take(data) {
                        return passed;
                    }
                }
                Poll::Ready(Arrival::Part(part)) => {
                    if self.is_too_much(part.len()) {
                        return self.fail(UpstreamError::TimedOut);
                    }
                    if let Some(passed) = self.take_part(part) {
                        return passed;
                    }
                }
                Poll::Ready(Arrival::Reopened(reply)) => {
                    self.lease = reply.lease;
                    self.incoming = reply.body;
                }
                Poll::Ready(Arrival::Prepared) => {}
                Poll::Ready(Arrival::End) => self.end(),
                Poll::Ready(Arrival::Break) if self.reopen() => {}
                Poll::Ready(Arrival::Break) => return self.fail(self.incoming.fault()),
                Poll::Ready(Arrival::NotReopened) => return self.fail(UpstreamError::Reset),
                Poll::Pending => {
                    if self.in_flight.as_mut().is_some_and(|call| call.is_given_up(cx.waker())) {
                        return self.fail(ClientError::Cancelled);
                    }
                    ready!(self.timer.poll(cx, self.rings));
                    if self.rings < self.deadline {
                        match self.break_silence() {
                            Some(comment) => return Poll::Ready(Some(Ok(comment))),
                            None => continue,
                        }
                    }
                    if !self.has_answered() {
                        return self.fail(UpstreamError::TimedOut);
                    }
                    // An upstream that keeps the stream open has nothing more to say on it.
                    self.lease = None;
                    self.finish();
                }
            }
        }
    }

    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<Arrival> {
        if let ReplySource::Events(events) = &mut self.source
            && events.is_preparing()
        {
            return events.poll_prepared(cx).map(|()| Arrival::Prepared);
        }
        if let ReplySource::Events(events) = &mut self.source
            && events.is_reopening()
        {
            let reopened = ready!(events.poll_reopened(cx));
            return Poll::Ready(
                reopened.map_or(Arrival::NotReopened, |reply| Arrival::Reopened(Box::new(reply))),
            );
        }
        Poll::Ready(match ready!(self.incoming.poll_piece(cx)) {
            Some(Ok(IncomingPiece::Bytes(data))) => Arrival::Data(data),
            Some(Ok(IncomingPiece::Part(part))) => Arrival::Part(part),
            Some(Err(_)) => Arrival::Break,
            None => Arrival::End,
        })
    }

    /// Takes a piece of the reply. `None`: nothing of it can be handed on at once.
    fn take(&mut self, data: Bytes) -> Option<BytesPoll> {
        match &mut self.source {
            ReplySource::Json(_) if data.is_empty() => None,
            ReplySource::Json(json) => {
                if !json.push(&data) {
                    return Some(self.fail(UpstreamError::Nonsense));
                }
                if self.incoming.is_end_stream() {
                    // HTTP/1.1 does not ask for more once it has sent what `Content-Length` promised.
                    self.finish();
                }
                Some(Poll::Ready(Some(Ok(data))))
            }
            ReplySource::Events(_) => {
                self.note_arrival();
                let ReplySource::Events(events) = &mut self.source else { return None };
                events.push(&self.worker, data).map(|data| Poll::Ready(Some(Ok(data))))
            }
        }
    }

    /// As [`take`](Self::take), of a reply that consists of messages.
    fn take_part(&mut self, part: ReplyPart) -> Option<BytesPoll> {
        self.note_arrival();
        let ReplySource::Events(events) = &mut self.source else {
            return self.take(part.into_event().into_bytes());
        };
        events.push_part(&self.worker, part).map(|data| Poll::Ready(Some(Ok(data))))
    }

    /// Something of an event stream has come: the patience begins anew.
    fn note_arrival(&mut self) {
        if let ReplySource::Events(events) = &self.source
            && !self.is_detached
            && !events.has_answered()
        {
            let now = clock::now();
            self.wait_until(now, at_most(now + events.idle(), self.answer_by));
        }
    }

    fn wait_for(&mut self, patience: Duration) {
        let now = clock::now();
        self.wait_until(now, now + patience);
    }

    fn wait_until(&mut self, now: Instant, deadline: Instant) {
        self.deadline = deadline;
        let is_quiet = self.keep_alive_interval.is_zero();
        self.rings = if is_quiet { deadline } else { deadline.min(now + self.keep_alive_interval) };
    }

    /// The client has heard nothing for long: what it is given, where it stands between two events.
    fn break_silence(&mut self) -> Option<Bytes> {
        self.wait_until(clock::now(), self.deadline);
        let ReplySource::Events(events) = &self.source else { return None };
        events.is_between_events().then(|| Event::comment().into_bytes())
    }

    /// What nobody hears is read for its time and up to the size of a reply, and what somebody hears for its time, even
    /// if it never pauses.
    fn is_too_much(&mut self, bytes: usize) -> bool {
        if !self.is_detached && !self.has_answered() {
            return self.answer_by.is_some_and(|bound| clock::now() >= bound);
        }
        self.leftover_bytes += bytes;
        self.leftover_bytes > self.worker.limits().reply_bytes_max || clock::now() >= self.deadline
    }

    /// What can be sent without waiting: the first piece of JSON, or the next event.
    fn take_ready(&mut self) -> Option<Result<Bytes, Error>> {
        match &mut self.source {
            ReplySource::Json(json) => json.pop().map(Ok),
            ReplySource::Events(events) => {
                let had_answered = events.has_answered();
                let next = events.next(&self.worker, self.is_detached);
                if !had_answered && events.has_answered() {
                    self.end_place();
                    self.keep_alive_interval = Duration::ZERO;
                    self.wait_for(END_PATIENCE);
                }
                next
            }
        }
    }

    /// The upstream's clean end.
    fn end(&mut self) {
        let at_end = match &mut self.source {
            ReplySource::Json(_) => AtEnd::Over,
            ReplySource::Events(events) => events.end(&self.worker, self.is_detached),
        };
        match at_end {
            AtEnd::Over => self.finish(),
            AtEnd::Later => {}
            AtEnd::Reopen if self.reopen() => {}
            AtEnd::Reopen | AtEnd::Unanswered => self.break_off(&UpstreamError::Reset.into()),
        }
    }

    /// Takes the stream up again where it broke off, if that can be done.
    fn reopen(&mut self) -> bool {
        let ReplySource::Events(events) = &mut self.source else { return false };
        if self.is_detached || !events.reopen(&self.worker) {
            return false;
        }
        // What came last need not have ended cleanly.
        self.lease = None;
        self.incoming = Incoming::Whole(None);
        true
    }

    fn has_last_word(&self) -> bool {
        matches!(&self.source, ReplySource::Events(events) if events.has_last_word())
    }

    /// The client has its answer, and may leave before the stream ends.
    #[cold]
    fn note_answered(&mut self) {
        self.end_place();
        if let Some(call) = &mut self.call {
            call.finish();
        }
    }

    /// The call gives its place back: what else its server has to say keeps nobody from calling it.
    fn end_place(&mut self) {
        if let Some(place) = self.call_place.take() {
            let sending = self.in_flight.as_ref().map(|call| &call.sending);
            place.finish(sending.is_some_and(|sending| sending.withdrawal.is_cancelled()));
        }
    }

    fn has_answered(&self) -> bool {
        matches!(&self.source, ReplySource::Events(events) if events.has_answered())
    }

    fn finish(&mut self) {
        self.is_over = true;
        if let ReplySource::Json(json) = &mut self.source {
            json.end(&mut self.worker.scratch.borrow_mut());
        }
        self.end_place();
        self.in_flight = None;
        if let Some(silence) = self.silence.take() {
            silence.keep_timer(std::mem::take(&mut self.timer));
        }
        pool::give_back(self.lease.take(), clock::now());
        if let Some(call) = &mut self.call {
            call.finish();
        }
    }

    /// Tells the client what happened if it stands between two events, else cuts its connection.
    fn fail(&mut self, error: impl Into<Error>) -> BytesPoll {
        if self.has_last_word() {
            // It has what it asked for.
            self.lease = None;
            self.finish();
            return Poll::Ready(None);
        }
        let error = error.into();
        let can_tell = matches!(&self.source, ReplySource::Events(events) if events.can_tell());
        let cut = if let Error::Upstream(error) = &error { error.clone() } else { UpstreamError::Reset };
        self.break_off(&error);
        match self.take_ready() {
            Some(event) if can_tell => Poll::Ready(Some(event.map_err(|_| cut))),
            _ => Poll::Ready(Some(Err(cut))),
        }
    }

    /// Ends the reply with an error, which is put after what waits to be sent.
    fn break_off(&mut self, failure: &Error) {
        self.is_over = true;
        let of_upstream = match failure {
            Error::Upstream(UpstreamError::TimedOut) if self.is_client_slow => None,
            Error::Upstream(UpstreamError::SlowClient) => None,
            Error::Upstream(error) => Some(error),
            _ => None,
        };
        if let Some(error) = of_upstream {
            pool::note_error(self.lease.as_mut(), error);
            self.durations.note_broken(failure);
        }
        self.lease = None;
        // Its server may still be at work on a call that is cancelled.
        match failure {
            Error::Client(ClientError::Cancelled) => self.call_place = None,
            _ => self.end_place(),
        }
        self.in_flight = None;
        if let Some(mut call) = self.call.take() {
            call.fail(failure);
        }
        // A client that has come back for the rest of a reply is cut off, and comes back again.
        if let ReplySource::Events(events) = &mut self.source
            && !events.id().is_empty()
        {
            events.push_failure(failure);
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match (&self.source, self.incoming.size_hint().exact()) {
            (ReplySource::Json(json), Some(rest)) => SizeHint::with_exact(json.len() + rest),
            _ => SizeHint::default(),
        }
    }
}

fn at_most(deadline: Instant, bound: Option<Instant>) -> Instant {
    bound.map_or(deadline, |bound| deadline.min(bound))
}
