//! Opening sessions: the one the client asks for, and another like it when the server has forgotten that.

use std::rc::Rc;

use ::http::HeaderMap;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::message::{ClientMessage, agreed_version, key};
use super::proxy::{ACCEPT_TIMEOUT, StdioProxy};
use super::request::ClientRequest;
use super::session::ServerSession;
use client::exchange_error::ExchangeError;
use client::message_headers::SESSION_ID;
use protocol::initialize::INITIALIZED;

impl StdioProxy {
    /// Opens the session that the client asks for.
    pub(super) async fn initialize(self: &Rc<Self>, call: &ClientRequest) -> Result<Bytes, ExchangeError> {
        if let Some(before) = self.sessions.replace(None) {
            self.end(&before).await;
        }
        let (answer, session) = self.open(call).await?;
        if let Some(session) = session {
            self.sessions.replace(Some(Rc::new(session)));
        }
        Ok(answer)
    }

    /// The answer to `initialize`, and the session that it opens if it is a result.
    async fn open(
        self: &Rc<Self>,
        call: &ClientRequest,
    ) -> Result<(Bytes, Option<ServerSession>), ExchangeError> {
        let message = call.message.body.clone();
        let reply = self.endpoint.post(HeaderMap::new(), message, true, self.timeout).await?;
        let id = reply.head.headers.get(SESSION_ID).cloned();
        let answer = self.read(call, reply, None).await?;
        let version = agreed_version(&mut self.scratch.borrow_mut(), &answer);
        let session = version.map(|version| ServerSession {
            id,
            version,
            initialize: call.message.body.clone(),
            over: CancellationToken::new(),
        });
        Ok((answer, session))
    }

    /// Opens a session like one that the server has forgotten, unless that was done.
    pub(super) async fn reopen(self: &Rc<Self>, lost: &Rc<ServerSession>) -> Result<(), ExchangeError> {
        let _alone = self.reopening.lock().await;
        if !self.sessions.is_current(lost) {
            return Ok(());
        }
        let message = ClientMessage::read(&mut self.scratch.borrow_mut(), lost.initialize.clone());
        let message = message.map_err(|(_, fault)| fault)?;
        let id = message.id().unwrap_or_default();
        let key = key(id.as_bytes()).unwrap_or_default();
        let call = ClientRequest { message, id, key, in_flight: Rc::default(), written_before: 0 };
        let (_, session) = self.open(&call).await?;
        let Some(session) = session.map(Rc::new) else { return Err(ExchangeError::SessionGone) };
        if session.version != lost.version {
            self.end(&session).await;
            return Err(ExchangeError::SessionGone);
        }
        self.endpoint
            .notify(session.headers(), Bytes::from_static(INITIALIZED.as_bytes()), ACCEPT_TIMEOUT)
            .await?;
        if !self.sessions.is_current(lost) {
            // The client has gone, or opened another one in the meantime.
            self.end(&session).await;
            return Ok(());
        }
        self.sessions.replace(Some(Rc::clone(&session)));
        self.stderr_log.say("the server had ended the session; a new one was opened, without subscriptions");
        self.listen(session);
        Ok(())
    }
}
