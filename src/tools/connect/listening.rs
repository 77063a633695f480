//! The stream of what a server says in a session without being asked.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, StatusCode, header};
use bytes::Bytes;

use super::bridge::Bridge;
use super::session::Session;
use client::fault::Fault;
use client::http::Reply;
use client::replies::{Messages, Position};
use net::jitter::jittered;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The pause before a stream is opened again: at first, doubled with every failure, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long the server may take to begin a stream.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

impl Bridge {
    /// Listens for as long as the session lasts.
    pub(super) fn listen(self: &Rc<Self>, session: Rc<Session>) {
        if session.id.is_none() {
            return;
        }
        let bridge = Rc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = bridge.listen_on(&session) => {}
                () = session.over.cancelled() => {}
            }
        });
    }

    async fn listen_on(self: &Rc<Self>, session: &Rc<Session>) {
        let mut position = Position::default();
        let mut failures = 0;
        loop {
            match self.get(session, &position).await {
                Ok(reply) if reply.head.status.is_success() => {
                    let mut messages = Messages::of(reply);
                    if !messages.is_stream() {
                        return self.remarks.say("the server has no stream for this session");
                    }
                    while let Ok(Some(message)) = messages.next(None, &mut position).await {
                        failures = 0;
                        let _ = self.pass(message, None).await; // it answers nothing, so nothing breaks
                    }
                }
                Ok(reply) => match reply.head.status {
                    StatusCode::METHOD_NOT_ALLOWED => return,
                    StatusCode::NOT_FOUND => {
                        // The new session has a stream of its own.
                        if let Err(fault) = self.reopen_apart(session).await {
                            self.remarks.say(format!("the session is lost: {fault}"));
                        }
                        return;
                    }
                    status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                        let status = status.as_u16();
                        return self.remarks.say(format!("the server refused the stream: status {status}"));
                    }
                    _ => {}
                },
                Err(_) => {}
            }
            self.pause(failures, &position).await;
            failures += 1;
        }
    }

    /// In a task of its own: opening another session ends the one that asks.
    async fn reopen_apart(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Fault> {
        let (bridge, session) = (Rc::clone(self), Rc::clone(session));
        let reopened = tokio::task::spawn_local(async move { bridge.reopen(&session).await });
        reopened.await.unwrap_or(Err(Fault::SessionGone))
    }

    /// Opens a stream, or goes on with one.
    pub(super) async fn get(&self, session: &Session, position: &Position) -> Result<Reply, Fault> {
        let mut headers: HeaderMap = session.headers();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = &position.last_event_id {
            headers.insert(LAST_EVENT_ID, id.clone());
        }
        let deadline = Instant::now() + HEAD_TIMEOUT;
        self.http.send(HttpMethod::GET, headers, Bytes::new(), true, deadline).await
    }

    /// Waits before a stream is opened again: as the server asks, or longer with every failure.
    pub(super) async fn pause(&self, failures: u32, position: &Position) {
        let grown = PAUSE_MIN.saturating_mul(1 << failures.min(6)).min(PAUSE_MAX);
        let pause = match position.retry {
            Some(retry) if failures == 0 => retry,
            Some(retry) => grown.max(retry),
            None => grown,
        };
        tokio::time::sleep(jittered(pause, 1.0..1.25)).await;
    }
}
