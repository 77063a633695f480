//! One request within a session of a legacy server, and what comes of it: its answer, and what the server says before.
//!
//! A stream that ends before the answer is asked for where it stopped, as its client would have to (2025-11-25
//! Transports, "Resumability and Redelivery"). What the messages mean is the caller's business.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use http::StatusCode;

use super::session_client::SessionClient;
use super::session_stream::SessionStream;
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::telemetry::trace::Trail;
use crate::upstream::Upstream;
use crate::upstream::body::collect_answer;
use crate::upstream::exchange::{Reply, SendOptions};
use crate::upstream::headers::ForwardedFields;
use crate::upstream::request::{ExpectedReply, RequestAttributes, UpstreamRequest};
use crate::upstream::silence::Silence;
use protocol::answer_id::{AnswerId, Verdict};
use protocol::envelope::Envelope;
use protocol::error::UpstreamError;
use protocol::json::Document;
use protocol::media::Media;
use protocol::splice::Segments;

/// The head of a reply may take as long as this where somebody else ends what takes longer.
const REPLY_PATIENCE: Duration = Duration::from_hours(48);

/// A request to the server, ready to be posted.
#[derive(Debug)]
pub(crate) struct BridgedRequest {
    /// Who is charged for the connection.
    pub payer: Payer,
    pub message: Segments,
    /// The literal of its id.
    pub id: Box<str>,
    /// What goes along with it.
    pub forwarded: ForwardedFields,
    /// Where it is noted where it went, if it is traced.
    pub trail: Option<Arc<Trail>>,
    /// The silence of the client that waits for it.
    pub silence: Option<Arc<Silence>>,
    /// Its place among the calls that the server may have at once, where it holds it until it is answered.
    pub place: Option<Arc<CallPlace>>,
    pub is_safe_to_repeat: bool,
    /// When the head of the reply is too late, and the whole of one that is no stream. `None`: somebody else ends it.
    pub deadline: Option<Instant>,
}

/// What came of a request.
pub(crate) enum ReplyStart<A = Bytes> {
    Answer(A),
    /// The server may say something before it answers.
    Stream(Box<SessionStream>),
    /// The server does not know the session: the request was not executed.
    SessionLost,
}

/// What a server does not find.
enum NotFound {
    /// The session: it did not look at the request.
    Session,
    /// A method, tool, prompt or resource.
    Request,
    /// It does not say.
    Unclear,
}

/// A request on its way, and the reply to it.
pub(crate) enum CallExchange {
    Posting(LocalBoxFuture<'static, Result<ReplyStart, UpstreamError>>),
    Reading(Box<SessionStream>),
    Over,
}

impl CallExchange {
    pub(crate) fn new(server: &Rc<SessionClient>, request: BridgedRequest) -> Self {
        let server = Rc::clone(server);
        // Written where it stays: it is many kilobytes.
        let posting = Box::write(Box::new_uninit(), async move { server.post(request).await });
        Self::Posting(Box::into_pin(posting))
    }

    /// What the server says next, if it says something; waits for ever once that was the last. An error is the end. May be
    /// dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        match self {
            Self::Over => std::future::pending().await,
            Self::Posting(posting) => {
                let posted = posting.await;
                *self = Self::Over;
                match posted? {
                    ReplyStart::Answer(answer) => Ok(Some(answer)),
                    ReplyStart::Stream(stream) => {
                        *self = Self::Reading(stream);
                        Ok(None)
                    }
                    ReplyStart::SessionLost => Err(UpstreamError::SessionLost),
                }
            }
            Self::Reading(stream) => {
                let message = stream.next().await;
                if message.is_err() {
                    *self = Self::Over;
                }
                message
            }
        }
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// All that is of use was said.
    pub(crate) fn finish(self) {
        if let Self::Reading(stream) = self {
            stream.finish();
        }
    }

    /// See [`SessionStream::rest`].
    pub(crate) async fn rest(&mut self) -> Option<Bytes> {
        match self {
            Self::Reading(stream) => stream.rest().await,
            Self::Posting(_) | Self::Over => None,
        }
    }
}

impl SessionClient {
    pub(crate) async fn post(self: &Rc<Self>, request: BridgedRequest) -> Result<ReplyStart, UpstreamError> {
        let id = request.id.clone();
        self.post_for(request, |whole| self.own_answer(whole, &id)).await
    }

    /// As [`post`](Self::post). `read` reads the whole of a reply; `None` if it is no answer to this request.
    pub(crate) async fn post_for<A>(
        self: &Rc<Self>,
        request: BridgedRequest,
        read: impl Fn(&Bytes) -> Option<A>,
    ) -> Result<ReplyStart<A>, UpstreamError> {
        let BridgedRequest {
            message,
            forwarded,
            trail,
            silence,
            place,
            is_safe_to_repeat,
            deadline,
            payer,
            ..
        } = request;
        let (upstream, now) = (self.upstream(), clock::now());
        let reply = if deadline.is_some() { ExpectedReply::Answer } else { ExpectedReply::SlowAnswer };
        let mut request = UpstreamRequest {
            message,
            forwarded: Some(forwarded.in_session(&self.session.named())),
            attributes: RequestAttributes { reply, place, trail, silence, ..RequestAttributes::default() },
            ..UpstreamRequest::default()
        };
        let delivery =
            SendOptions { is_safe_to_repeat, aim: self.session.replica.into(), asked: None, payer };
        let head_deadline = deadline.unwrap_or(now + REPLY_PATIENCE);
        let reply = self.client.send_as_it_is(&upstream, &mut request, delivery, now, head_deadline).await;
        let answer = match reply {
            Ok(reply) if reply.is_stream() => {
                return Ok(ReplyStart::Stream(Box::new(SessionStream::of_reply(self, reply))));
            }
            Ok(reply) => {
                let deadline = deadline.unwrap_or_else(|| clock::now() + upstream.config.response_timeout);
                self.answer(&upstream, reply, read, deadline).await
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Ok(ReplyStart::Answer(answer)),
            Err(UpstreamError::SessionLost) => Ok(ReplyStart::SessionLost),
            Err(error) => Err(error),
        }
    }

    /// The answer in a reply that is no stream.
    async fn answer<A>(
        &self,
        upstream: &Upstream,
        reply: Reply,
        read: impl Fn(&Bytes) -> Option<A>,
        deadline: Instant,
    ) -> Result<A, UpstreamError> {
        let status = reply.head.status;
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(upstream.access.refusal());
        }
        let media = reply.head.media;
        let retry_after_s = reply.head.fields.retry_after_s();
        let fields = reply.head.fields.clone();
        let mut answer = None;
        let is_answer = |whole: &Bytes| {
            answer = read(whole);
            answer.is_some()
        };
        let whole = collect_answer(&self.client, upstream, reply, deadline, is_answer).await;
        let whole = whole.map(|(whole, _)| whole);
        let whole = if status.is_success() { whole? } else { whole.unwrap_or_default() };
        // A server that knows the session answers 404 for another reason, and may have executed the call.
        let is_lost = status == StatusCode::NOT_FOUND
            && match self.subject_of(&whole) {
                NotFound::Request => false,
                NotFound::Session => true,
                NotFound::Unclear => Box::pin(self.is_known()).await != Some(true),
            };
        // What came with a success was looked at above.
        if media == Media::Json
            && !is_lost
            && let Some(answer) = answer.or_else(|| read(&whole))
        {
            return Ok(answer);
        }
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                UpstreamError::Busy { status, retry_after_s }
            }
            _ if is_lost => UpstreamError::SessionLost,
            // Either that, or it does not like this request.
            StatusCode::BAD_REQUEST if Box::pin(self.is_known()).await == Some(false) => {
                UpstreamError::SessionLost
            }
            _ => fields.fault(status),
        })
    }

    /// Whether `message` is a response with this id.
    pub(crate) fn is_answer(&self, message: &Bytes, id: &str) -> bool {
        let envelope =
            self.client.read_json(|(scratch, depth_max)| Envelope::parse(scratch, message, depth_max));
        envelope.as_ref().is_ok_and(|envelope| envelope.answers(message, id.as_bytes()))
    }

    /// Whether the whole of a reply has the id of the request, a literal. That it is a response shows when it is read.
    pub(crate) fn is_own_answer(&self, whole: &Bytes, id: &str) -> bool {
        match AnswerId::of(whole, id.as_bytes()).verdict() {
            Verdict::Ours => true,
            Verdict::Others => false,
            Verdict::Unclear => self.is_answer(whole, id),
        }
    }

    /// The whole of a reply, if it is the answer to the request with this id.
    pub(crate) fn own_answer(&self, whole: &Bytes, id: &str) -> Option<Bytes> {
        self.is_own_answer(whole, id).then(|| whole.clone())
    }

    /// What this answer that came with 404 speaks of.
    fn subject_of(&self, answer: &Bytes) -> NotFound {
        let error = self.client.read_json(|(scratch, depth_max)| {
            let root = scratch.index(answer, depth_max).map(Document::root).ok()?;
            let error = root.get("error")?;
            let is_said =
                error.text_of("message").is_some_and(|said| said.to_lowercase().contains("session"));
            Some((error.get("code")?.as_integer()?, is_said))
        });
        match error {
            Some((-32601 | -32602 | -32002, _)) => NotFound::Request,
            Some((-32001, _) | (_, true)) => NotFound::Session,
            _ => NotFound::Unclear,
        }
    }
}
