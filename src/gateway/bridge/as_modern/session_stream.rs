//! A stream of a legacy server, read one message at a time by a future that may be dropped and asked for again.
//!
//! It is either the reply to a request or what the server says to a session unasked. Where it breaks off it is asked for
//! again from where it stopped ([`StreamProgress`]). Deliberately not here: what the messages mean.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::time::sleep;

use super::session_client::SessionClient;
use super::stream_progress::{ResumeResult, StreamProgress};
use crate::upstream::exchange::Reply;
use crate::upstream::get_stream::{self, Messages};
use protocol::error::UpstreamError;

/// A stream of one session.
pub(crate) struct SessionStream {
    server: Rc<SessionClient>,
    stage: StreamStage,
    at: StreamProgress,
    /// Only the rest of it is of use, not what comes from now on.
    is_reply: bool,
}

enum StreamStage {
    Opening(LocalBoxFuture<'static, ResumeResult>),
    Reading(Box<Messages>),
    Over,
}

impl SessionStream {
    /// The rest of this reply.
    pub(crate) fn of_reply(server: &Rc<SessionClient>, reply: Reply) -> Self {
        let stage = StreamStage::Reading(Box::new(Messages::of(&server.client, &server.upstream(), reply)));
        Self { server: Rc::clone(server), stage, at: StreamProgress::default(), is_reply: true }
    }

    /// Asks for the stream of the session. Servers without sessions have none.
    pub(crate) fn of_session(server: &Rc<SessionClient>) -> Self {
        let (stage, at) = (StreamStage::Over, StreamProgress::default());
        let mut stream = Self { server: Rc::clone(server), stage, at, is_reply: false };
        if server.session.id.is_some() {
            stream.open(Duration::ZERO);
        }
        stream
    }

    /// Waits until the stream stands or it is clear that there is none.
    pub(crate) async fn stand(&mut self) {
        while let StreamStage::Opening(opening) = &mut self.stage {
            let opened = opening.await;
            let _ = self.take(opened);
        }
    }

    /// What comes next; `None`: the server is still there, and says nothing. An error is the end. Waits for ever once
    /// there is nothing more.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        loop {
            match &mut self.stage {
                StreamStage::Over => std::future::pending().await,
                StreamStage::Opening(opening) => {
                    let opened = opening.await;
                    self.take(opened)?;
                }
                StreamStage::Reading(messages) => match messages.next().await {
                    Ok(Some(event)) => return Ok(self.at.take(event)),
                    // Whoever takes what is too long never gets to the end of a reply.
                    Err(error) if self.is_reply && error.is_too_large() => return Err(self.end(error)),
                    Ok(None) | Err(_) => self.reopen()?,
                },
            }
        }
    }

    /// The next message of the stream of a session; waits for ever where there is none.
    pub(crate) async fn message(&mut self) -> Bytes {
        loop {
            if let Ok(Some(message)) = self.next().await {
                return message;
            }
        }
    }

    /// Reads what is left of a reply that has said all: its connection can be used again. Other messages than the end
    /// are returned.
    pub(crate) async fn rest(&mut self) -> Option<Bytes> {
        loop {
            let StreamStage::Reading(messages) = &mut self.stage else { return None };
            match messages.next().await {
                Ok(Some(event)) => {
                    let message = get_stream::nonempty_message(event);
                    if message.is_some() {
                        return message;
                    }
                }
                Ok(None) => {
                    messages.give_back();
                    self.stage = StreamStage::Over;
                }
                Err(_) => self.stage = StreamStage::Over,
            }
        }
    }

    /// The reply has said all: its connection can be used again once it has ended.
    pub(crate) fn finish(self) {
        let StreamStage::Reading(messages) = self.stage else { return };
        let mut rest = Box::pin(messages.drain());
        // Most often it has.
        if (&mut rest).now_or_never().is_none() {
            self.server.client.host.run(rest);
        }
    }

    fn take(&mut self, opened: ResumeResult) -> Result<(), UpstreamError> {
        match opened {
            ResumeResult::Stream(reply) => {
                self.at.stand();
                self.stage = StreamStage::Reading(Box::new(Messages::of(
                    &self.server.client,
                    &self.server.upstream(),
                    *reply,
                )));
            }
            ResumeResult::Failed => return self.reopen(),
            ResumeResult::Refused | ResumeResult::UnknownEvent if self.is_reply => {
                return Err(self.end(UpstreamError::Reset));
            }
            ResumeResult::UnknownEvent => {
                self.at.forget();
                self.open(Duration::ZERO);
            }
            ResumeResult::Refused => self.stage = StreamStage::Over,
        }
        Ok(())
    }

    /// An error: it is not to be had.
    fn reopen(&mut self) -> Result<(), UpstreamError> {
        let pause = if self.is_reply { self.at.pause_before_rest() } else { Some(self.at.pause()) };
        let Some(pause) = pause else { return Err(self.end(UpstreamError::Reset)) };
        self.open(pause);
        Ok(())
    }

    fn open(&mut self, pause: Duration) {
        let (server, at) = (Rc::clone(&self.server), self.at.clone());
        let opening = async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            at.open(&server).await
        };
        self.stage = StreamStage::Opening(opening.boxed_local());
    }

    fn end(&mut self, error: UpstreamError) -> UpstreamError {
        if let StreamStage::Reading(messages) = &mut self.stage {
            messages.note_error(&error);
        }
        self.stage = StreamStage::Over;
        error
    }
}
