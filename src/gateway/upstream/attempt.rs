//! A request over HTTP: the connection it goes by, and the head of its reply.
//!
//! It is sent again only where that is safe: it never left the gateway, or repeating it does no harm and the connection it
//! was written to had been waiting idle, which is how servers that close idle connections look. Everything else is
//! reported with what is known about its outcome.
//!
//! The answer to a request that opens a session is left to whoever opens it when nobody waits for it any more, so that the
//! session is closed.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{StatusCode, Uri};
use tokio::time::timeout_at;

use super::balance::NotChosen;
use super::exchange::{Reply, ReplyHead, SendOptions, UpstreamClient};
use super::fault::Fault;
use super::fresh_id::{self, FreshId, RestoringBody};
use super::health::breaker::{Pass, RequestFault};
use super::http1::connection::ConnectionError;
use super::http1::reply::ParsedReply;
use super::http1::request::RequestAddress;
use super::incoming::Incoming;
use super::pool::{ConnectionLease, ReplicaRequest};
use super::request::{ExpectedReply, LateReply, SessionOpener, UpstreamRequest};
use super::silence::Silence;
use super::{Replica, ReplicaSelection, Upstream};
use crate::access::limit::payer::Payer;
use crate::clock;
use net::tls::TlsFault;
use protocol::error::UpstreamError;
use protocol::media::Media;

/// Having waited less for a reply says nothing of a replica.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

impl UpstreamClient {
    pub(super) async fn attempt(
        &self,
        upstream: &Upstream,
        (SendOptions { is_safe_to_repeat, aim, payer, .. }, target): (SendOptions, Option<&Uri>),
        request: &mut UpstreamRequest,
        clock: RequestClock,
    ) -> Result<Reply, UpstreamError> {
        let expected = request.attributes.reply;
        let is_stream = expected == ExpectedReply::Stream;
        let may_be_late = is_stream || expected.is_of_no_use();
        let trail = request.attributes.trail.clone();
        // Where there is no choice, this is known even if there is no connection to be had.
        if let Some(trail) = &trail
            && let [only] = upstream.replicas.load().as_slice()
        {
            trail.goes_to(&only.host, only.port);
        }
        let mut repetition = Repetition { may_repeat: is_safe_to_repeat, fresh_id: None };
        let head_deadline = if is_stream || expected == ExpectedReply::SlowAnswer {
            clock.deadline
        } else {
            clock.deadline.min(clock.now + upstream.config.first_byte_timeout)
        };
        self.pools.earn(upstream);
        loop {
            let kind = ConnectionKind::of(expected, repetition.may_repeat);
            let (mut lease, is_pooled) = self.lease(upstream, (aim, payer), kind, clock).await?;
            if let Some(trail) = &trail {
                let replica = lease.in_flight.replica();
                trail.goes_to(&replica.host, replica.port);
            }
            upstream.access.show(&mut request.headers);
            let at = lease.in_flight.replica();
            let to = target.map(|target| RequestAddress::new(target, &at.sent_host));
            lease.connection.send(request, to.as_ref().unwrap_or(&at.request_address));
            let opening = UnansweredOpening::of(self, request, &lease);
            let silence = request.attributes.silence.as_deref();
            let until = silence.map_or(head_deadline, |silence| silence.sent(clock.now, head_deadline));
            let mut answered = poll_fn(|cx| lease.connection.poll_reply(cx, until)).await;
            if until < head_deadline && matches!(answered, Err(ConnectionError::TimedOut)) {
                silence.map(Silence::note);
                answered = poll_fn(|cx| lease.connection.poll_reply(cx, head_deadline)).await;
            }
            if let Some(opening) = opening
                && !matches!(answered, Err(ConnectionError::TimedOut))
            {
                opening.finish();
            }
            match answered {
                Ok((start, body)) => {
                    if let Some(trail) = &trail {
                        trail.is_answered(start.head.status);
                    }
                    return Ok(reply(start, body, expected, lease, repetition.fresh_id));
                }
                Err(ConnectionError::TimedOut) => {
                    if !may_be_late && clock.was_patient(upstream) {
                        let after = head_deadline.saturating_duration_since(clock.now);
                        lease.in_flight.replica().note_fault(Fault::TimedOut(after));
                        lease.in_flight.fail(RequestFault::TimedOut);
                    }
                    return Err(UpstreamError::TimedOut);
                }
                Err(error) => {
                    let at = (&mut lease, is_pooled);
                    self.check_repetition(upstream, request, at, &error, &mut repetition)?;
                }
            }
            upstream.series.retries.inc();
            if let Some(trail) = &trail {
                trail.goes_again();
            }
        }
    }

    /// Whether the request may be sent again after this error, on a connection that had been idle if `is_pooled`. Where that
    /// is not safe, what is known of the outcome.
    fn check_repetition(
        &self,
        upstream: &Upstream,
        request: &mut UpstreamRequest,
        (lease, is_pooled): (&mut ConnectionLease, bool),
        error: &ConnectionError,
        repetition: &mut Repetition,
    ) -> Result<(), UpstreamError> {
        let is_unwritten = lease.connection.give_up();
        tracing::debug!(upstream = upstream.config.name, %error, is_pooled, "exchange failed");
        let is_silent = lease.connection.is_unanswered();
        // A connection that had been idle may have been closed for that.
        if (!is_pooled || !is_silent) && request.attributes.reply != ExpectedReply::LastReceipt {
            lease.in_flight.replica().note_fault(of_connection(error));
            lease.in_flight.fail(RequestFault::Broken);
        }
        match is_unwritten {
            true if is_pooled => Ok(()),
            true => Err(UpstreamError::Unreachable),
            false if is_pooled && is_silent && repetition.may_repeat => {
                repetition.may_repeat = false;
                if !self.pools.spend(upstream) {
                    upstream.series.retries_refused.inc();
                    return Err(UpstreamError::Reset);
                }
                repetition.fresh_id = renew(request);
                Ok(())
            }
            _ if upstream.access.was_refused(&upstream.config.name, error) => Err(UpstreamError::Unreachable),
            _ if matches!(error, ConnectionError::Malformed(_)) => Err(UpstreamError::Nonsense),
            _ => Err(UpstreamError::Reset),
        }
    }

    /// A connection to the replica that a request goes to, and whether it had been idle. Where there is none to be had,
    /// nothing was sent: another replica is tried.
    async fn lease(
        &self,
        upstream: &Upstream,
        (aim, payer): (ReplicaSelection, Payer),
        ConnectionKind { is_stream, may_break }: ConnectionKind,
        clock: RequestClock,
    ) -> Result<(ConnectionLease, bool), UpstreamError> {
        let mut tried = Vec::new();
        let mut failed = UpstreamError::Unreachable;
        loop {
            let (replica, pass) = {
                let set = upstream.replicas.load();
                let random = if set.len() > 1 { self.pools.random() } else { 0 };
                let chosen = Upstream::choose(&set, (aim, &tried), random, clock.now);
                let (replica, pass) = match chosen {
                    Ok(chosen) => chosen,
                    Err(NotChosen::AllTried) => return Err(failed),
                    Err(NotChosen::Gone) => return Err(UpstreamError::SessionLost),
                    // What was tried says more than what was not.
                    Err(NotChosen::Unfit { .. }) if !tried.is_empty() => return Err(failed),
                    Err(NotChosen::Unfit { retry_after_ms }) => {
                        let retry_after_s = u32::try_from(retry_after_ms.div_ceil(1000)).unwrap_or(u32::MAX);
                        return Err(UpstreamError::OutOfOrder { retry_after_s: retry_after_s.max(1) });
                    }
                };
                if !is_stream && pass != Pass::Aside {
                    let at = (upstream, payer);
                    let take =
                        |cx: &mut Context<'_>| self.pools.take(at, (replica, may_break), pass, clock.now, cx);
                    if let Some(lease) = poll_fn(|cx| Poll::Ready(take(cx))).await? {
                        return Ok((lease, true));
                    }
                }
                (Arc::clone(replica), pass)
            };
            tried.push(replica.key);
            let is_counted = !is_stream && pass != Pass::Aside;
            let mut in_flight = ReplicaRequest::begin(Rc::new(Arc::clone(&replica)), pass, is_counted);
            let place = self.pools.place(upstream, payer, is_counted)?;
            let connecting = Box::pin(self.connect(upstream, &replica, place, is_stream));
            match timeout_at(clock.deadline.into(), connecting).await {
                Ok(Ok(connection)) => {
                    return Ok((self.pools.lease(upstream, connection, in_flight), false));
                }
                Ok(Err(error @ UpstreamError::TooManyConnections)) => return Err(error),
                Ok(Err(error)) => {
                    in_flight.fail(RequestFault::Broken);
                    failed = error;
                }
                Err(_) => {
                    if clock.was_patient(upstream) {
                        let after = clock.deadline.saturating_duration_since(clock.now);
                        replica.note_fault(Fault::ConnectTimedOut(after));
                        in_flight.fail(RequestFault::Broken);
                    }
                    return Err(UpstreamError::TimedOut);
                }
            }
        }
    }
}

/// A request that opens a session, and is on its way. Dropped before it is finished, its answer may come all the same, and
/// the session would be open for nobody: the answer is left to whoever opens it.
struct UnansweredOpening<'c> {
    client: &'c UpstreamClient,
    opening: Option<Arc<dyn SessionOpener>>,
    reply: Option<LateReply>,
}

impl<'c> UnansweredOpening<'c> {
    /// `None`: it opens no session.
    fn of(client: &'c UpstreamClient, request: &UpstreamRequest, lease: &ConnectionLease) -> Option<Self> {
        let opening = Some(Arc::clone(request.attributes.opens.as_ref()?));
        let (connection, replica) = (Rc::clone(&lease.connection), lease.in_flight.key());
        Some(Self { client, opening, reply: Some(LateReply { connection, replica }) })
    }

    /// It is answered, or never will be.
    fn finish(mut self) {
        self.reply = None;
    }
}

impl Drop for UnansweredOpening<'_> {
    fn drop(&mut self) {
        if let (Some(opening), Some(reply)) = (self.opening.take(), self.reply.take()) {
            opening.leave(self.client, reply);
        }
    }
}

/// What connection a request wants.
#[derive(Clone, Copy)]
struct ConnectionKind {
    /// One of its own.
    is_stream: bool,
    /// Any will do: it is a message that may be sent again.
    may_break: bool,
}

impl ConnectionKind {
    fn of(expected: ExpectedReply, may_repeat: bool) -> Self {
        Self {
            is_stream: expected == ExpectedReply::Stream,
            may_break: expected.is_of_no_use() && may_repeat,
        }
    }
}

/// How a request may be sent again, and was.
struct Repetition {
    may_repeat: bool,
    /// What it was sent with the last time, if that is not its own.
    fresh_id: Option<FreshId>,
}

/// When a request began, and when the head of its reply must be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestClock {
    pub(super) now: Instant,
    pub(super) deadline: Instant,
}

impl RequestClock {
    /// For what begins only now.
    pub(super) fn starting_now(self) -> Self {
        Self { now: clock::now(), ..self }
    }

    /// Whether it was waited long enough to say something of the replica: of a list, only the last page may have had
    /// little time.
    fn was_patient(self, upstream: &Upstream) -> bool {
        clock::since(self.now) >= PATIENCE_MIN.min(upstream.config.first_byte_timeout)
    }
}

/// The fault that broke off an exchange.
fn of_connection(error: &ConnectionError) -> Fault {
    match error {
        ConnectionError::Malformed(_) => Fault::NotMcp,
        error => TlsFault::of(error).map_or(Fault::Closed, Fault::Tls),
    }
}

fn reply(
    start: ParsedReply,
    body: Incoming,
    expected: ExpectedReply,
    mut lease: ConnectionLease,
    fresh_id: Option<FreshId>,
) -> Reply {
    lease.respect_keep_alive(start.keep_alive);
    if expected == ExpectedReply::LastReceipt {
        lease.in_flight.postpone();
    } else {
        if start.head.media == Media::Other || !start.head.status.is_success() {
            let is_answer = matches!(expected, ExpectedReply::Answer | ExpectedReply::SlowAnswer);
            note_no_answer(lease.in_flight.replica(), &start.head, is_answer);
        }
        judge(&mut lease.in_flight, &start.head);
    }
    let replica = Some(lease.in_flight.key());
    let body = match fresh_id {
        None => body,
        Some(id) => Incoming::Restored(Box::new(RestoringBody::new(body, id))),
    };
    Reply { head: start.head, body, lease: Some(lease), replica, arrived: clock::now() }
}

/// What the head of a reply says of its replica. The rest says the end of the reply.
fn judge(in_flight: &mut ReplicaRequest, head: &ReplyHead) {
    let is_json = head.media == Media::Json;
    match head.status {
        // Busy, not broken.
        StatusCode::SERVICE_UNAVAILABLE => in_flight.succeed(),
        // Some servers send errors of JSON-RPC like this.
        status if status.is_server_error() && is_json => in_flight.postpone(),
        status if status.is_server_error() => in_flight.fail(RequestFault::Broken),
        status if status.is_success() && is_json => {}
        _ => in_flight.succeed(),
    }
}

/// A reply that holds no answer, or one of whoever keeps the door. What may be an error of JSON-RPC is read first, and
/// what may be that session's or that method's alone is left to questions.
#[cold]
fn note_no_answer(replica: &Replica, head: &ReplyHead, is_answer: bool) {
    let status = head.status;
    let is_told = match status.as_u16() {
        200 => is_answer && (head.fields.is_encoded() || head.fields.media().is_some()),
        401 | 403 | 407 | 421 => true,
        _ if status.is_redirection() => true,
        _ => status.is_server_error() && head.media == Media::Other,
    };
    if is_told {
        replica.note_fault(head.fields.told(status));
    }
}

/// Gives a request that is sent again another id, if it has one.
fn renew(request: &mut UpstreamRequest) -> Option<FreshId> {
    let (message, id) = fresh_id::replace(&request.message)?;
    (request.message, request.envelope) = (message, None);
    Some(id)
}
