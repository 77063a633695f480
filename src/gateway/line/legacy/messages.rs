//! Notifications and responses within a session on their way to an upstream: one after the other, in the order in which
//! the client posted them.
//!
//! A message has arrived once the head of its reply is here, as servers answer 202 when they have taken it in; what the
//! reply says beyond that holds nobody up. A call waits for the messages that came before it ([`wait_for_earlier`]), and a
//! cancellation for its call ([`super::cancellation`]); no other message waits for a call, as that may itself wait for an answer
//! of the client, or for its turn.
//!
//! Bounded: messages of one session for one upstream by `session_messages_max`, those on their way to one upstream by
//! [`Upstream::message_turns`], each in time. What is given up is counted.
//!
//! Deliberately not here: the order among messages to several upstreams, of several sessions, or through several gateways.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use tokio::time::{timeout, timeout_at};

use super::notification_routing::answers_a_call;
use super::{MESSAGE_ANSWER_BYTES_MAX, MESSAGE_TIMEOUT};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::clock;
use crate::context::worker::{View, Worker};
use crate::session::UpstreamSession;
use crate::session::message_queue::{QueueDelivery, QueuePlace, QueuedMessage};
use crate::session::outbox::SessionOutbox;
use crate::upstream::body::{collect, no_memory};
use crate::upstream::exchange::Reply;
use crate::upstream::message_turns::MessageTurn;
use crate::upstream::request::{ExpectedReply, UpstreamRequest};
use crate::upstream::{Upstream, pool};
use protocol::error::{Error, GatewayError, UpstreamError};
use protocol::media::Media;

/// How long a message may wait for those before it, with the time that it takes itself.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long the rest of a reply is read, so that its connection can be used again.
const REST_TIMEOUT: Duration = Duration::from_secs(1);
/// Up to here a message that need not wait takes nothing from the process's budget.
const UNCOUNTED_BYTES: usize = 8 * 1024;

pub(crate) struct MessageReservation {
    place: QueuePlace,
    reservation: Option<Share>,
}

/// Room for a message of this length, before anything is changed for it.
pub(crate) fn room_for(
    worker: &Worker,
    outbox: &SessionOutbox,
    upstream: &Upstream,
    length: usize,
) -> Result<MessageReservation, Error> {
    let messages_max = worker.session_messages_max();
    let queue = outbox.messages_to(&upstream.session_key);
    let place = queue.reserve(messages_max).ok_or(GatewayError::SessionMessages)?;
    let mut reservation = None;
    if length > UNCOUNTED_BYTES || !queue.is_empty() {
        let reservation = reservation.insert(worker.state.buffered.open(outbox.client()));
        reservation.grow_to(length).map_err(no_memory)?;
    }
    Ok(MessageReservation { place, reservation })
}

/// Sends a message after those that were posted before it. It must hold no more memory than itself.
pub(crate) fn send(
    worker: &Rc<Worker>,
    (outbox, room): (&Arc<SessionOutbox>, MessageReservation),
    upstream: &Arc<Upstream>,
    session: Arc<UpstreamSession>,
    body: Bytes,
) {
    let MessageReservation { place, reservation } = room;
    let message = QueuedMessage { session, body, posted_at: clock::now(), reservation };
    if let Some(delivery) = place.post(message) {
        let (sender, upstream, outbox) = (Rc::clone(worker), Arc::clone(upstream), Arc::clone(outbox));
        worker.client.tasks.spawn_unboxed(async move { deliver(&sender, &outbox, upstream, delivery).await });
    }
}

/// As [`send`], for what nobody can be told of: without room it is dropped.
pub(crate) fn send_if_room(
    worker: &Rc<Worker>,
    outbox: &Arc<SessionOutbox>,
    upstream: &Arc<Upstream>,
    session: Arc<UpstreamSession>,
    body: Bytes,
) {
    match room_for(worker, outbox, upstream, body.len()) {
        Ok(room) => send(worker, (outbox, room), upstream, session, body),
        Err(error) => {
            upstream.series.messages_dropped.full.inc();
            tracing::debug!(upstream = upstream.config.name, %error, "a message to an upstream is dropped");
        }
    }
}

/// The upstream that sessions know by this key.
pub(crate) fn upstream_of<'v>(view: &'v View, key: &str) -> Option<&'v Arc<Upstream>> {
    view.snapshot.upstreams.iter().find(|upstream| *upstream.session_key == *key)
}

/// Waits for the messages that were posted before, so that a request does not overtake them. Not for ever: a call is worth
/// more than its place behind notifications that its upstream does not take.
pub(crate) async fn wait_for_earlier(outbox: &SessionOutbox, upstream: &Upstream) {
    if let Some(queue) = outbox.messages_before(&upstream.session_key) {
        let _ = timeout(MESSAGE_TIMEOUT, queue.sent_so_far()).await;
    }
}

/// Sends what waits until nothing does, each message to the upstream as it is configured by then.
async fn deliver(
    worker: &Rc<Worker>,
    outbox: &SessionOutbox,
    mut upstream: Arc<Upstream>,
    mut delivery: QueueDelivery,
) {
    while let Some(message) = delivery.take_next() {
        let view = worker.view();
        let is_same = |other: &&Arc<Upstream>| other.session_key == upstream.session_key;
        if let Some(now) = view.snapshot.upstreams.iter().find(is_same) {
            upstream = Arc::clone(now);
        }
        drop(view);
        send_one(worker, &upstream, outbox.client(), message).await;
        delivery.finish();
    }
}

async fn send_one(worker: &Rc<Worker>, upstream: &Arc<Upstream>, client: Payer, message: QueuedMessage) {
    let dropped = &upstream.series.messages_dropped;
    let QueuedMessage { session, body, posted_at, reservation: _held } = message;
    if session.ended.is_cancelled() {
        dropped.ended.inc();
        return;
    }
    let deadline = (clock::now() + MESSAGE_TIMEOUT).min(posted_at + WAIT_MAX);
    let sent = async {
        let turn = upstream.message_turns.take(client);
        let turn = timeout_at(deadline.into(), turn).await.map_err(|_| UpstreamError::TimedOut)?;
        let mut request = UpstreamRequest::post(body.into(), session.named().to_map());
        request.attributes.reply = ExpectedReply::Receipt;
        let view = worker.view();
        let asker = worker.asker(&view, client);
        let reply = asker.send(upstream, request, (true, session.replica), deadline).await?;
        Ok::<_, UpstreamError>((reply, turn))
    };
    match sent.await {
        Ok((reply, turn)) => {
            if !reply.head.status.is_success() {
                dropped.refused.inc();
                let status = reply.head.status.as_u16();
                tracing::debug!(upstream = upstream.config.name, status, "a message was refused");
            }
            finish(worker, client, reply, turn).await;
        }
        Err(error) => {
            let dropped = match error {
                UpstreamError::TimedOut => &dropped.timed_out,
                UpstreamError::SessionLost => &dropped.refused,
                _ => &dropped.failed,
            };
            dropped.inc();
            tracing::debug!(upstream = upstream.config.name, %error, "a message to an upstream failed");
        }
    }
}

/// Reads the rest of a reply: at once where it is here already, else beside the messages that follow.
async fn finish(worker: &Rc<Worker>, payer: Payer, reply: Reply, turn: MessageTurn) {
    if reply.head.media == Media::Sse {
        // It may never end, and nothing in it is for anybody.
        return;
    }
    let reader = Rc::clone(worker);
    let mut rest = Box::pin(async move {
        let Reply { mut body, lease, .. } = reply;
        let deadline = clock::now() + REST_TIMEOUT;
        let held = reader.state.buffered.open(payer);
        let rest = collect(&mut body, MESSAGE_ANSWER_BYTES_MAX, deadline, held).await;
        // A message that has no answer got that to a call: the connection is out of step.
        if rest.is_ok_and(|(rest, _)| !answers_a_call(&reader, &rest)) {
            pool::let_rest(lease, clock::now());
        }
        drop(turn);
    });
    if poll!(pin!(rest.as_mut())).is_pending() {
        worker.client.tasks.spawn_unboxed(rest);
    }
}
