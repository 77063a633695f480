//! The stream of what a server says in a session without being asked.

use std::rc::Rc;

use http::StatusCode;
use tokio::time::sleep;

use super::proxy::StdioProxy;
use super::session::ServerSession;
use client::exchange_error::ExchangeError;
use client::response_reader::{ResponseReader, StreamPosition};

impl StdioProxy {
    /// Listens for as long as the session lasts.
    pub(super) fn listen(self: &Rc<Self>, session: Rc<ServerSession>) {
        if session.id.is_none() {
            return;
        }
        let proxy = Rc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = proxy.listen_on(&session) => {}
                () = session.over.cancelled() => {}
            }
        });
    }

    async fn listen_on(self: &Rc<Self>, session: &Rc<ServerSession>) {
        let mut position = StreamPosition::default();
        let mut failures = 0;
        loop {
            match self.endpoint.open_stream(session.headers(), &position).await {
                Ok(reply) if reply.head.status.is_success() => {
                    let mut messages = ResponseReader::behind(position, reply);
                    if !messages.is_stream() {
                        return self.stderr_log.say("the server has no stream for this session");
                    }
                    while let Ok(Some(message)) = messages.next(None).await {
                        failures = 0;
                        let _ = self.pass(message, None).await; // it answers nothing, so nothing breaks
                    }
                    position = messages.position;
                }
                Ok(reply) => match reply.head.status {
                    StatusCode::METHOD_NOT_ALLOWED => return,
                    StatusCode::NOT_FOUND => {
                        // The new session has a stream of its own.
                        if let Err(fault) = self.reopen_apart(session).await {
                            self.stderr_log.say(format!("the session is lost: {fault}"));
                        }
                        return;
                    }
                    status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                        let status = status.as_u16();
                        return self
                            .stderr_log
                            .say(format!("the server refused the stream: status {status}"));
                    }
                    _ => {}
                },
                Err(_) => {}
            }
            sleep(position.delay(failures)).await;
            failures += 1;
        }
    }

    /// In a task of its own: opening another session ends the one that asks.
    async fn reopen_apart(self: &Rc<Self>, session: &Rc<ServerSession>) -> Result<(), ExchangeError> {
        let (proxy, session) = (Rc::clone(self), Rc::clone(session));
        let reopened = tokio::task::spawn_local(async move { proxy.reopen(&session).await });
        reopened.await.unwrap_or(Err(ExchangeError::SessionGone))
    }
}
