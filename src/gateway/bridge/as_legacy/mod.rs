//! Legacy requests to a server that speaks the modern era only: the bridge opens the sessions, and takes what belongs to
//! one.
//!
//! | request | reply |
//! |---|---|
//! | post `initialize` | its answer, with the id of the session; the server is not asked |
//! | post `ping`, `logging/setLevel`, `resources/subscribe`, `resources/unsubscribe` | an answer of the bridge itself |
//! | post any other request | its answer in JSON, or messages where more than that comes |
//! | post a notification or response | accepted |
//! | listen | changes of resources that the session subscribed to |
//! | end a session | accepted, and the session is over, with everything under way in it |
//! | anything else in a session that is unknown | [`UpstreamError::SessionLost`] |
//!
//! Deliberately not here: what servers of the era do beside it, which no client can miss: tasks, and questions that belong
//! to no call.

mod call;
mod initialize;
mod listen;
mod mrtr_loop;
mod mrtr_round;
mod notification_stream;
mod post;
mod session;
mod subscriptions;
mod tools;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::initialize::ClientOffer;
use self::notification_stream::NotificationStream;
use self::post::LegacyPost;
use self::session::LegacySession;
use self::tools::ListTurn;
use crate::bridge::BridgedServer;
use crate::telemetry::metrics::families::BridgeSeries;
use crate::telemetry::metrics::gauge;
use crate::upstream::LateWord;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::messages::{MessageStream, ReplyPart};
use crate::upstream::mux::sessions::random_name;
use crate::upstream::request::{RequestAttributes, RequestKind, UpstreamRequest};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::UpstreamError;
use protocol::json::{Document, Value};
use protocol::method::Method;
use protocol::translation::input;

/// As many sessions as a configuration may allow the gateway to have: its own bound is met before.
const SESSIONS_MAX: usize = 10_000_000;

#[derive(Debug, Default)]
pub(crate) struct LegacyFacade {
    sessions: Mutex<HashMap<Box<[u8]>, Arc<LegacySession>>>,
    turn: ListTurn,
    /// No stream goes on that belongs to no call.
    retired: CancellationToken,
    /// The sessions of before that, each for as long as its calls keep it.
    leaving: Mutex<HashMap<Box<[u8]>, Weak<LegacySession>>>,
}

impl LegacyFacade {
    pub(crate) fn has(&self, id: &HeaderValue) -> bool {
        self.sessions.lock().contains_key(id.as_bytes())
    }

    /// Nobody is served any more. Calls that are under way go on, and each session with the last of its own.
    pub(crate) fn retire(&self) {
        let sessions = std::mem::take(&mut *self.sessions.lock());
        // What nobody holds has nothing under way.
        let leaving = sessions.into_iter().filter(|(_, session)| Arc::strong_count(session) > 1);
        self.leaving.lock().extend(leaving.map(|(id, session)| (id, Arc::downgrade(&session))));
        self.retired.cancel();
    }

    /// See [`OtherEra::hear_late`](crate::upstream::OtherEra::hear_late).
    pub(crate) fn hear_late(&self, client: &UpstreamClient, id: &HeaderValue, said: LateWord<'_>) -> bool {
        let session = self.leaving.lock().get(id.as_bytes()).and_then(Weak::upgrade);
        let Some(session) = session else { return false };
        match said {
            LateWord::SessionEnded => session.ended.cancel(),
            LateWord::Cancelled(call) => session.cancel(call),
            LateWord::Answer { id, message } => answer_question(client, &session, id, message),
        }
        true
    }

    fn keep(&self, session: Arc<LegacySession>, series: &BridgeSeries) -> Result<HeaderValue, UpstreamError> {
        let id = random_name().ok_or(UpstreamError::Reset)?;
        let header = HeaderValue::from_str(&id).map_err(|_| UpstreamError::Reset)?;
        let mut sessions = self.sessions.lock();
        if sessions.len() >= SESSIONS_MAX {
            return Err(UpstreamError::TooManyBridged);
        }
        sessions.insert(id.into_bytes().into(), session);
        count(&sessions, series);
        Ok(header)
    }

    /// The session that a request names.
    fn named_in(&self, request: &UpstreamRequest) -> Result<Arc<LegacySession>, UpstreamError> {
        let known = request.session_id().and_then(|id| self.sessions.lock().get(id.as_bytes()).cloned());
        known.ok_or(UpstreamError::SessionLost)
    }

    fn remove(&self, id: &HeaderValue, series: &BridgeSeries) -> Option<Arc<LegacySession>> {
        let mut sessions = self.sessions.lock();
        let removed = sessions.remove(id.as_bytes());
        count(&sessions, series);
        removed
    }
}

pub(crate) async fn answer(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    mut request: UpstreamRequest,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    request.spell_out();
    let sessions = &upstream.bridge.as_legacy;
    match request.kind {
        RequestKind::Post => post(client, upstream, request, deadline).await,
        RequestKind::Listen => {
            let session = sessions.named_in(&request)?;
            let notifications = NotificationStream::new(client, &upstream.bridge, &session);
            Ok(MessageStream::reply(stream::unfold(notifications, |mut notifications| async {
                let message = notifications.next().await?;
                Some((Ok(ReplyPart::Message(message)), notifications))
            })))
        }
        RequestKind::EndSession => {
            let session = request.session_id().and_then(|id| sessions.remove(id, &upstream.bridge.series));
            // One that is unknown is over already.
            if let Some(session) = session {
                session.ended.cancel();
            }
            Ok(Reply::accepted())
        }
    }
}

async fn post(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    mut request: UpstreamRequest,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    let (message, envelope) = client.read_json(|memory| request.take_message(memory))?;
    let method = envelope.method.as_ref().and_then(|method| method.decode(&message));
    let method = method.as_deref().map_or(Method::Other, Method::of);
    if (envelope.kind, method) == (MessageKind::Request, Method::Initialize) {
        return open(client, upstream, request.attributes, &message, &envelope);
    }
    let session = upstream.bridge.as_legacy.named_in(&request)?;
    let UpstreamRequest { headers, sending, attributes, .. } = request;
    match envelope.kind {
        MessageKind::Request => {
            if !attributes.is_own {
                upstream.bridge.series.requests.legacy.inc();
            }
            let sending = sending.as_deref();
            let post =
                LegacyPost { client, upstream, session: &session, message, envelope: &envelope, sending };
            post.answer(method, (headers, attributes), deadline).await
        }
        MessageKind::Notification | MessageKind::Response => {
            receive(client, &session, &message, &envelope);
            Ok(Reply::accepted())
        }
    }
}

fn open(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    attributes: RequestAttributes,
    message: &Bytes,
    envelope: &Envelope,
) -> Result<Reply, UpstreamError> {
    let id = envelope.id.clone().and_then(|id| message.get(id)).unwrap_or_default();
    let offer = client.read_json(|memory| ClientOffer::read(message, attributes.principal, memory));
    let offer = offer.ok_or(UpstreamError::Nonsense)?;
    let header = upstream.bridge.as_legacy.keep(offer.session(), &upstream.bridge.series)?;
    let mut reply = Reply::json(client.read_json(|memory| offer.answer(upstream, id, memory)));
    reply.head.fields.set_session_id(header);
    Ok(reply)
}

/// Counted where they are held, so that of two threads the later one has the last word.
fn count(sessions: &HashMap<Box<[u8]>, Arc<LegacySession>>, series: &BridgeSeries) {
    series.sessions.legacy.set(gauge(sessions.len()));
}

/// A notification or a response. What a modern server cannot be told goes nowhere: that roots changed, how far the client
/// is with an answer.
fn receive(client: &UpstreamClient, session: &LegacySession, message: &Bytes, envelope: &Envelope) {
    if envelope.kind == MessageKind::Response {
        let number = envelope.id.clone().and_then(|id| std::str::from_utf8(message.get(id)?).ok());
        if let Some(number) = number {
            answer_question(client, session, number, message);
        }
        return;
    }
    if envelope.method.as_ref().is_some_and(|method| method.equals(message, "notifications/cancelled")) {
        client.read_json(|(scratch, depth_max)| {
            let root = scratch.index(message, depth_max).map(Document::root).ok();
            let id = root.and_then(|root| root.get("params")?.get("requestId")).map(Value::raw);
            if let Some(id) = id {
                session.cancel(id);
            }
        });
    }
}

/// The client's answer to the question of this number, as far as it is one.
fn answer_question(client: &UpstreamClient, session: &LegacySession, number: &str, message: &Bytes) {
    let answer = client.read_json(|memory| input::answer(message, memory));
    if let (Ok(number), Some(answer)) = (number.parse(), answer) {
        session.answer(number, answer);
    }
}
