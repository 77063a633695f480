//! Legacy requests to a server that speaks the modern era only, answered as a Streamable HTTP server of the legacy era
//! would: it opens sessions, and takes what belongs to one.
//!
//! | request | answer |
//! |---|---|
//! | POST of `initialize` | 200, with an `Mcp-Session-Id`; the server is not asked |
//! | POST of `ping`, `logging/setLevel`, `resources/subscribe`, `resources/unsubscribe` | 200, by the bridge itself |
//! | POST of any other request | 200: JSON, or messages where more than the answer comes |
//! | POST of a notification or response | 202 |
//! | GET | 200: changes of resources that the session subscribed to |
//! | DELETE | 200, and the session is over, with everything under way in it |
//! | anything of a session that is unknown | 404 |
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
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method as HttpMethod, Request, StatusCode};
use parking_lot::Mutex;

use self::initialize::ClientOffer;
use self::notification_stream::NotificationStream;
use self::post::LegacyPost;
use self::session::LegacySession;
use self::tools::ListTurn;
use crate::bridge::BridgedServer;
use crate::telemetry::metrics::families::BridgeSeries;
use crate::telemetry::metrics::gauge;
use crate::upstream::ask::SESSION_ID;
use crate::upstream::exchange::{Reply, RequestAttributes, RequestBody, UpstreamClient};
use crate::upstream::messages::{MessageStream, ReplyPart};
use crate::upstream::mux::sessions::random_name;
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
}

impl LegacyFacade {
    pub(crate) fn has(&self, id: &HeaderValue) -> bool {
        self.sessions.lock().contains_key(id.as_bytes())
    }

    /// Nobody is served any more.
    pub(crate) fn retire(&self) {
        let sessions = std::mem::take(&mut *self.sessions.lock());
        for session in sessions.values() {
            session.ended.cancel();
        }
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

    fn get(&self, id: &HeaderValue) -> Option<Arc<LegacySession>> {
        self.sessions.lock().get(id.as_bytes()).cloned()
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
    mut request: Request<RequestBody>,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    RequestBody::spell_out(&mut request);
    let (parts, RequestBody { message: body, sending, attributes, .. }) = request.into_parts();
    let server = &upstream.bridge.as_legacy;
    let id = parts.headers.get(SESSION_ID);
    match parts.method {
        HttpMethod::GET => {
            let Some(session) = id.and_then(|id| server.get(id)) else {
                return Ok(Reply::empty(StatusCode::NOT_FOUND));
            };
            let notifications = NotificationStream::new(client, &upstream.bridge, &session);
            return Ok(MessageStream::reply(stream::unfold(notifications, |mut notifications| async {
                let message = notifications.next().await?;
                Some((Ok(ReplyPart::Message(message)), notifications))
            })));
        }
        HttpMethod::DELETE => {
            let Some(session) = id.and_then(|id| server.remove(id, &upstream.bridge.series)) else {
                return Ok(Reply::empty(StatusCode::NOT_FOUND));
            };
            session.ended.cancel();
            return Ok(Reply::empty(StatusCode::OK));
        }
        _ => {}
    }
    let message = body.to_bytes();
    // Only what was checked comes here; of what was not, a server would say the same.
    let envelope = client.read_json(|(scratch, depth_max)| Envelope::parse(scratch, &message, depth_max));
    let Ok(envelope) = envelope else { return Ok(Reply::empty(StatusCode::BAD_REQUEST)) };
    let method = envelope.method.as_ref().and_then(|method| method.decode(&message));
    let method = method.as_deref().map_or(Method::Other, Method::of);
    if (envelope.kind, method) == (MessageKind::Request, Method::Initialize) {
        return open(client, upstream, attributes, &message, &envelope);
    }
    let Some(session) = id.and_then(|id| server.get(id)) else {
        let status = if id.is_none() { StatusCode::BAD_REQUEST } else { StatusCode::NOT_FOUND };
        return Ok(Reply::empty(status));
    };
    match envelope.kind {
        MessageKind::Request => {
            if !attributes.is_own {
                upstream.bridge.series.requests.legacy.inc();
            }
            let sending = sending.as_deref();
            let post =
                LegacyPost { client, upstream, session: &session, message, envelope: &envelope, sending };
            post.answer(method, (parts.headers, attributes), deadline).await
        }
        MessageKind::Notification | MessageKind::Response => {
            receive(client, &session, &message, &envelope);
            Ok(Reply::empty(StatusCode::ACCEPTED))
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
        let number = number.and_then(|number| number.parse().ok());
        let answer = client.read_json(|memory| input::answer(message, memory));
        if let (Some(number), Some(answer)) = (number, answer) {
            session.answer(number, answer);
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
