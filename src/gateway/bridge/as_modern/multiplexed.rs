//! Calls during which the server has nothing to say to their client but progress and the answer: those of a principal
//! share a session.
//!
//! Ids and progress tokens are the session's own towards the server, and the client's own towards the client. A client
//! that leaves before the answer cancels.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::time::timeout;

use super::answers;
use super::call::ModernCall;
use super::response_reader::{BridgedRequest, ReplyStart};
use super::session_client::SessionClient;
use super::session_stream::SessionStream;
use super::shared_session::{ProgressReceiver, SessionUse, SharedSessions};
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::bridge::{BridgedServer, next_number};
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::messages::{MessageStream, ReplyPart};
use crate::upstream::mux::queue;
use protocol::error::{Error, UpstreamError};
use protocol::json::Document;
use protocol::method::Method;
use protocol::translation::notification;
use protocol::version::Era;

/// How long the server's first message is waited for before the client gets a stream: its answer may have a status.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) async fn call(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: Arc<ModernCall>,
    place: Option<Arc<CallPlace>>,
) -> Result<Reply, UpstreamError> {
    let mut may_reopen = true;
    loop {
        let using = SharedSessions::get(client, upstream, &call.caller, call.deadline).await?;
        let mut running = CallInProgress::begin(client, upstream, using, &call);
        let read = |server: &SessionClient, call: &ModernCall, id: &str, answer: &Bytes| {
            if !server.is_own_answer(answer, id) {
                return None;
            }
            let upstream = server.upstream();
            server.client.read_json(|memory| answers::last(&upstream, call, answer, memory)).ok()
        };
        match running.post("", place.clone(), read).await? {
            ReplyStart::Answer(answer) => {
                running.is_over = true;
                return Ok(answer.into_reply());
            }
            ReplyStart::Stream(stream) => return Box::pin(streamed(running, stream)).await,
            ReplyStart::SessionLost => {
                running.is_over = true;
                running.using.lose();
                if !std::mem::take(&mut may_reopen) || running.server.is_sessionless() {
                    return Err(running.server.lost());
                }
            }
        }
    }
}

/// What a server says on the stream of a request.
pub(crate) enum ServerEvent {
    /// Nothing but that it is still there.
    Nothing,
    /// What the client is told meanwhile.
    Message(Bytes),
    Answer(Bytes),
}

/// A call under way. Dropped before its answer, it is cancelled.
pub(crate) struct CallInProgress {
    /// This thread's way to the server.
    pub server: Rc<SessionClient>,
    pub call: Arc<ModernCall>,
    /// The literal of its id with the server, and of its progress token.
    pub id: Box<str>,
    /// Nothing is to be cancelled any more.
    pub is_over: bool,
    /// Its right to the session.
    pub using: SessionUse,
    progress: Option<(ProgressReceiver, queue::PieceReceiver)>,
}

impl CallInProgress {
    pub(crate) fn begin(
        client: &UpstreamClient,
        upstream: &BridgedServer,
        using: SessionUse,
        call: &Arc<ModernCall>,
    ) -> Self {
        let id = next_number();
        let progress =
            call.token.is_some().then(|| using.session.receive_progress(client, call.caller.payer, id));
        Self {
            server: SessionClient::new(client, upstream, using.session.name.clone()),
            call: Arc::clone(call),
            id: id.to_string().into(),
            is_over: false,
            using,
            progress,
        }
    }

    /// Who is charged for what is held for it.
    pub(crate) fn payer(&self) -> Payer {
        self.call.caller.payer
    }

    /// Sends the request with `added` in its parameters, which holds `place` until it is answered. `read` reads what came as a whole; `None` if it is no answer to
    /// the request of this id.
    pub(crate) async fn post<A>(
        &mut self,
        added: &str,
        place: Option<Arc<CallPlace>>,
        read: impl Fn(&SessionClient, &ModernCall, &str, &Bytes) -> Option<A>,
    ) -> Result<ReplyStart<A>, UpstreamError> {
        let Self { server, call, id, .. } = self;
        let tool = || {
            let name = call.name.as_ref()?.decode(&call.message)?;
            Some(call.method == Method::ToolsCall && server.upstream().may_call_twice(&name))
        };
        let posted = BridgedRequest {
            payer: call.caller.payer,
            message: call.to_legacy((id, id), added),
            id: id.clone(),
            forwarded: call.forwarded.clone(),
            trail: call.trail.clone(),
            silence: call.silence.clone(),
            place,
            is_safe_to_repeat: call.method.is_safe_to_repeat() || tool().unwrap_or(false),
            deadline: Some(call.deadline),
        };
        let begun = server.post_for(posted, |whole| read(server, call, id, whole)).await;
        if begun.as_ref().is_err_and(|error| *error != UpstreamError::TimedOut) {
            // It never arrived, or nobody can say what became of it.
            self.is_over = true;
        }
        begun
    }

    /// What the server's answer is to the client.
    pub(crate) fn last(&self, answer: &Bytes) -> Result<answers::CallAnswer, UpstreamError> {
        self.server
            .client
            .read_json(|memory| answers::last(&self.server.upstream(), &self.call, answer, memory))
    }

    /// What a message that is no answer is to the client; `None`: it is not for it.
    pub(crate) fn translate(&self, message: &Bytes) -> Option<Bytes> {
        let is_ours = self.server.client.read_json(|(scratch, depth_max)| {
            let root = scratch.index(message, depth_max).map(Document::root).ok()?;
            notification::progress_token(root).map(|token| token == &*self.id)
        });
        match (is_ours, &self.call.token) {
            (Some(true), Some(token)) => {
                let renamed = self
                    .server
                    .client
                    .read_json(|memory| notification::with_progress_token(message, token, memory));
                renamed.ok().map(|message| message.to_bytes())
            }
            (Some(_), _) => None,
            (None, _) => {
                self.server.refuse(message);
                None
            }
        }
    }

    /// What comes next on the stream of the request with this id, and of progress elsewhere. May be dropped and called
    /// again.
    pub(crate) async fn next(
        &mut self,
        stream: &mut SessionStream,
        id: &str,
    ) -> Result<ServerEvent, UpstreamError> {
        loop {
            let message = tokio::select! {
                message = stream.next() => match message? {
                    None => return Ok(ServerEvent::Nothing),
                    Some(message) if self.server.is_answer(&message, id) => {
                        return Ok(ServerEvent::Answer(message));
                    }
                    Some(message) => message,
                },
                message = self.told_elsewhere() => message,
            };
            if let Some(message) = self.translate(&message) {
                return Ok(ServerEvent::Message(message));
            }
        }
    }

    /// Progress that the server tells of elsewhere. Never completes if there is none.
    pub(crate) async fn told_elsewhere(&mut self) -> Bytes {
        if let Some((_, receiver)) = &mut self.progress
            && let Some(Ok(piece)) = receiver.next().await
        {
            return piece.data;
        }
        std::future::pending().await
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        if !self.is_over {
            self.server.cancel(&self.id);
        }
    }
}

/// The reply to a call whose answer comes as an event.
async fn streamed(running: CallInProgress, stream: Box<SessionStream>) -> Result<Reply, UpstreamError> {
    let mut under_way = StreamedCall { running, stream: Some(stream) };
    // A server that can be asked again for its stream begins with an event that says nothing.
    let says_something = async {
        loop {
            match under_way.next().await {
                Ok(Some(ReplyEvent::Part(ReplyPart::KeepAlive))) => {}
                said => return said,
            }
        }
    };
    let first = match timeout(FIRST_PATIENCE, says_something).await {
        Ok(Ok(Some(ReplyEvent::Last(answer)))) => return Ok(answer.into_reply()),
        Ok(Ok(Some(ReplyEvent::Part(part)))) => part,
        Ok(Ok(None)) | Err(_) => ReplyPart::KeepAlive,
        Ok(Err(error)) => return Err(error),
    };
    Ok(messages(first, under_way))
}

fn messages(first: ReplyPart, under_way: StreamedCall) -> Reply {
    let rest = stream::unfold((Some(first), under_way), |(first, mut under_way)| async move {
        if let Some(first) = first {
            return Some((Ok(first), (None, under_way)));
        }
        let part = match under_way.next().await {
            Ok(Some(ReplyEvent::Part(part))) => part,
            Ok(Some(ReplyEvent::Last(answer))) => ReplyPart::Message(answer.message),
            Ok(None) => return None,
            Err(error) => {
                under_way.stream = None;
                return Some((Err(error), (None, under_way)));
            }
        };
        Some((Ok(part), (None, under_way)))
    });
    MessageStream::reply(rest)
}

/// What a client is told in the middle of a stream that breaks off.
pub(crate) fn failure(call: &ModernCall, error: UpstreamError) -> String {
    Error::from(error).body(Some(&call.id), Era::Modern)
}

/// A call whose stream has begun.
struct StreamedCall {
    running: CallInProgress,
    /// `None`: all was said.
    stream: Option<Box<SessionStream>>,
}

enum ReplyEvent {
    Part(ReplyPart),
    Last(answers::CallAnswer),
}

impl StreamedCall {
    /// What the client is told next; `None` after the last. May be dropped and called again.
    async fn next(&mut self) -> Result<Option<ReplyEvent>, UpstreamError> {
        let Self { running, stream } = self;
        let Some(reading) = stream else { return Ok(None) };
        let id = running.id.clone();
        Ok(Some(match running.next(reading, &id).await? {
            ServerEvent::Nothing => ReplyEvent::Part(ReplyPart::KeepAlive),
            ServerEvent::Message(message) => ReplyEvent::Part(ReplyPart::Message(message)),
            ServerEvent::Answer(answer) => {
                running.is_over = true;
                if let Some(stream) = stream.take() {
                    stream.finish();
                }
                ReplyEvent::Last(running.last(&answer)?)
            }
        }))
    }
}
