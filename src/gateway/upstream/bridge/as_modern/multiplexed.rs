//! Calls during which the server has nothing to say to their client but progress and the answer: those of a principal
//! share a session.
//!
//! Ids and progress tokens are the session's own towards the server, and the client's own towards the client. A client
//! that leaves before the answer cancels.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use tokio::time::timeout;

use super::answers;
use super::call::ModernCall;
use super::fire_and_forget;
use super::response_reader::{self, BridgedRequest, ReplyStart, ResponseReader, StreamItem};
use super::shared_session::{ProgressReceiver, SessionUse, SharedSessions};
use crate::upstream::Upstream;
use crate::upstream::bridge::{EventBody, next_number};
use crate::upstream::exchange::{Client, Reply};
use crate::upstream::incoming::Incoming;
use crate::upstream::mux::exchange::empty;
use crate::upstream::mux::queue;
use protocol::error::{Error, UpstreamError};
use protocol::json::{Document, JsonError};
use protocol::method::Method;
use protocol::splice::Segments;
use protocol::sse::data_event;
use protocol::translation::notification;
use protocol::version::Era;

/// How long the server's first message is waited for before the client gets a stream: its answer may have a status.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// Tells a client that its call is still under way.
pub(crate) const COMMENT: &[u8] = b":\n\n";

pub(crate) async fn call(
    client: &Client,
    upstream: &Arc<Upstream>,
    call: Arc<ModernCall>,
) -> Result<Reply, UpstreamError> {
    let mut may_reopen = true;
    loop {
        let using = SharedSessions::get(client, upstream, &call.caller, call.deadline).await?;
        let mut running = CallInProgress::begin(client, upstream, using, &call);
        match running.post("").await? {
            ReplyStart::Answer(answer) => {
                running.is_over = true;
                return running.last(&answer).map(answers::CallAnswer::into_reply);
            }
            ReplyStart::Stream(hearing) => return stream(running, hearing).await,
            ReplyStart::SessionLost => {
                running.is_over = true;
                running.using.lose();
                if !std::mem::take(&mut may_reopen) {
                    return Err(UpstreamError::SessionLost);
                }
            }
        }
    }
}

/// A call under way. Dropped before its answer, it is cancelled.
pub(crate) struct CallInProgress {
    /// This thread's way to the server.
    pub client: Client,
    pub upstream: Arc<Upstream>,
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
        client: &Client,
        upstream: &Arc<Upstream>,
        using: SessionUse,
        call: &Arc<ModernCall>,
    ) -> Self {
        let id = next_number();
        let progress = call.token.is_some().then(|| using.session.hear(client, id));
        Self {
            client: client.clone(),
            upstream: Arc::clone(upstream),
            call: Arc::clone(call),
            id: id.to_string().into(),
            is_over: false,
            using,
            progress,
        }
    }

    /// Sends the request with `added` in its parameters.
    pub(crate) async fn post(&mut self, added: &str) -> Result<ReplyStart, UpstreamError> {
        let Self { client, upstream, call, id, .. } = self;
        let message = with_memory(client, |memory| call.to_legacy((id, id), added, memory));
        let message: Segments = message.map_err(|_: JsonError| UpstreamError::Nonsense)?;
        let tool = || {
            let name = call.envelope.name.as_ref()?.decode(&call.message)?;
            Some(call.method == Method::ToolsCall && upstream.may_call_twice(&name))
        };
        let posted = BridgedRequest {
            message,
            id: id.clone(),
            headers: call.headers.clone(),
            trail: call.trail.clone(),
            is_safe_to_repeat: call.method.is_safe_to_repeat() || tool().unwrap_or(false),
            deadline: call.deadline,
        };
        let begun = response_reader::post(client, upstream, &self.using.session.name, posted).await;
        if begun.as_ref().is_err_and(|error| *error != UpstreamError::TimedOut) {
            // It never arrived, or nobody can say what became of it.
            self.is_over = true;
        }
        begun
    }

    /// What the server's answer is to the client.
    pub(crate) fn last(&self, answer: &Bytes) -> Result<answers::CallAnswer, UpstreamError> {
        with_memory(&self.client, |memory| answers::last(&self.upstream, &self.call, answer, memory))
    }

    /// What a message that is no answer is to the client: an event, if it is for it.
    pub(crate) fn translate(&self, message: &Bytes) -> Option<Bytes> {
        let is_ours = with_memory(&self.client, |(scratch, depth_max)| {
            let root = scratch.index(message, depth_max).map(Document::root).ok()?;
            notification::progress_token(root).map(|token| token == &*self.id)
        });
        match (is_ours, &self.call.token) {
            (Some(true), Some(token)) => {
                let renamed = with_memory(&self.client, |memory| {
                    notification::with_progress_token(message, token, memory)
                });
                renamed.ok().map(data_event)
            }
            (Some(_), _) => None,
            (None, _) => {
                fire_and_forget::refuse(&self.client, &self.upstream, &self.using.session.name, message);
                None
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
            fire_and_forget::cancel(&self.client, &self.upstream, &self.using.session.name, &self.id);
        }
    }
}

/// The reply to a call whose answer comes as an event.
async fn stream(running: CallInProgress, hearing: Box<ResponseReader>) -> Result<Reply, UpstreamError> {
    let mut under_way = StreamedCall { running, hearing: Some(hearing) };
    // A server that can be asked again for its stream begins with an event that says nothing.
    let says_something = async {
        loop {
            match under_way.next().await {
                Ok(Some(ReplyEvent::Nothing)) => {}
                said => return said,
            }
        }
    };
    let first = match timeout(FIRST_PATIENCE, says_something).await {
        Ok(Ok(Some(ReplyEvent::Last(answer)))) => return Ok(answer.into_reply()),
        Ok(Ok(Some(ReplyEvent::Event(event)))) => event,
        Ok(Ok(Some(ReplyEvent::Nothing) | None)) | Err(_) => Bytes::from_static(COMMENT),
        Ok(Err(error)) => return Err(error),
    };
    Ok(events(first, under_way))
}

fn events(first: Bytes, under_way: StreamedCall) -> Reply {
    let rest = stream::unfold((Some(first), under_way), |(first, mut under_way)| async move {
        if let Some(first) = first {
            return Some((Ok(first), (None, under_way)));
        }
        let event = match under_way.next().await {
            Ok(Some(ReplyEvent::Event(event))) => event,
            Ok(Some(ReplyEvent::Nothing)) => Bytes::from_static(COMMENT),
            Ok(Some(ReplyEvent::Last(answer))) => data_event(answer.message),
            Ok(None) => return None,
            Err(error) => {
                under_way.hearing = None;
                return Some((Err(error), (None, under_way)));
            }
        };
        Some((Ok(event), (None, under_way)))
    });
    events_reply(EventBody::new(rest))
}

pub(crate) fn events_reply(events: EventBody) -> Reply {
    let mut reply = empty(http::StatusCode::OK);
    reply.head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    reply.body = Incoming::Translated(events);
    reply
}

/// What a client is told in the middle of a stream that breaks off.
pub(crate) fn failure(call: &ModernCall, error: UpstreamError) -> String {
    Error::from(error).body(Some(&call.id), Era::Modern)
}

/// A call whose stream has begun.
struct StreamedCall {
    running: CallInProgress,
    /// `None`: all was said.
    hearing: Option<Box<ResponseReader>>,
}

enum ReplyEvent {
    /// The server is still there.
    Nothing,
    Event(Bytes),
    Last(answers::CallAnswer),
}

impl StreamedCall {
    /// What the client is told next; `None` after the last. May be dropped and called again.
    async fn next(&mut self) -> Result<Option<ReplyEvent>, UpstreamError> {
        let Self { running, hearing: heard } = self;
        loop {
            let Some(hearing) = heard else { return Ok(None) };
            let said = tokio::select! {
                said = hearing.next() => said?,
                message = running.told_elsewhere() => StreamItem::Message { message, is_answer: false },
            };
            match said {
                StreamItem::Nothing => return Ok(Some(ReplyEvent::Nothing)),
                StreamItem::Message { message, is_answer: false } => {
                    if let Some(event) = running.translate(&message) {
                        return Ok(Some(ReplyEvent::Event(event)));
                    }
                }
                StreamItem::Message { message, .. } => {
                    running.is_over = true;
                    if let Some(hearing) = heard.take() {
                        hearing.finish();
                    }
                    return running.last(&message).map(|answer| Some(ReplyEvent::Last(answer)));
                }
            }
        }
    }
}

/// Reads JSON in this thread's memory for it.
pub(crate) fn with_memory<T>(
    client: &Client,
    read: impl FnOnce((&mut protocol::json::Scratch, usize)) -> T,
) -> T {
    let depth_max = client.pipes.shared.limits().json_depth_max;
    read((&mut client.pipes.scratch.borrow_mut(), depth_max))
}
