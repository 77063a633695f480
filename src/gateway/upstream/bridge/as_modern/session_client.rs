//! What a legacy server says: in its reply to a call, and on the stream of its session.
//!
//! Both are read one message at a time, by a future that may be dropped and asked for again. A stream that breaks off is
//! taken up again with the id of its last event where it has one.
//!
//! Deliberately not here: what the messages mean.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request};
use tokio::time::{sleep, timeout};

use super::position::{ResumeResult, StreamPosition};
use super::response_reader::{self, SessionName};
use crate::telemetry::trace::Trail;
use crate::upstream::ask::{AskRequest, Asker};
use crate::upstream::bridge::Bridge;
use crate::upstream::exchange::{CallerDeadline, Client, Reply, RequestBody, SendOptions};
use crate::upstream::get_stream::{self, Messages};
use crate::upstream::mux::host::Limits;
use crate::upstream::pool::{self, ConnectionLease};
use crate::upstream::{ReplicaSelection, Upstream};
use protocol::error::UpstreamError;
use protocol::splice::Segments;

/// Somebody else ends what takes longer.
const REPLY_PATIENCE: Duration = Duration::from_hours(48);
/// How much of what a server says to an answer or a notification is read.
const TOLD_BYTES_MAX: usize = 64 * 1024;

/// The way to one session of a server.
#[derive(Debug)]
pub(crate) struct SessionClient {
    pub client: Client,
    pub bridge: Arc<Bridge>,
    pub session: SessionName,
    upstream: RefCell<Arc<Upstream>>,
}

/// What a server says.
#[derive(Debug)]
pub(crate) enum ServerMessage {
    /// Its stream stands.
    Stands,
    Message(Bytes),
    /// Nothing but that it is still there.
    Nothing,
    /// Nothing more comes.
    Over(UpstreamError),
}

impl SessionClient {
    pub(crate) fn new(client: &Client, upstream: &Arc<Upstream>, session: SessionName) -> Rc<Self> {
        let (client, bridge) = (client.clone(), Arc::clone(&upstream.bridge));
        Rc::new(Self { client, bridge, session, upstream: RefCell::new(Arc::clone(upstream)) })
    }

    /// The upstream as it is configured now, or was when it last was.
    pub(crate) fn upstream(&self) -> Arc<Upstream> {
        if let Some(now) = self.bridge.upstream() {
            *self.upstream.borrow_mut() = now;
        }
        Arc::clone(&self.upstream.borrow())
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.client.pipes.shared.limits())
    }

    /// Tells the server something that has no answer.
    pub(crate) async fn tell(self: Rc<Self>, message: Bytes) -> Result<(), UpstreamError> {
        let (upstream, limits) = (self.upstream(), self.limits());
        let question = AskRequest {
            headers: self.session.headers(),
            body: message,
            is_safe_to_repeat: false,
            replica: self.session.replica,
            bytes_max: TOLD_BYTES_MAX,
            deadline: Instant::now() + upstream.config.reply_timeout,
        };
        let told = self.asker(&limits).ask(&upstream, question).await?;
        if told.status.is_success() { Ok(()) } else { Err(UpstreamError::SessionLost) }
    }

    pub(crate) async fn close(&self, patience: Duration) {
        let SessionName { id, version, replica } = self.session.clone();
        let Some(id) = &id else { return };
        let (upstream, limits) = (self.upstream(), self.limits());
        let deadline = Instant::now() + patience;
        let asker = self.asker(&limits);
        let closed = asker.close_session(&upstream, version, (id, replica), deadline).await;
        if let Err(error) = closed {
            tracing::debug!(upstream = upstream.config.name, %error, "cannot close a session");
        }
    }

    /// Ends the session of one that makes room for another: at once, and without telling the server where as many tell it
    /// already as may at once. Its place would be held for as long.
    pub(crate) async fn close_now(&self, patience: Duration) {
        if let Ok(_turn) = self.bridge.as_modern.seats.ending.try_acquire() {
            tokio::select! {
                () = self.close(patience) => {}
                () = self.client.pipes.cut() => {}
            }
        }
    }

    /// Tells the server the last: with others in turn, and with this much patience from then on.
    pub(crate) async fn last(&self, patience: Duration, told: impl Future<Output = ()>) {
        let told = async {
            // Never closed.
            let _turn = self.bridge.as_modern.seats.ending.acquire().await;
            let _ = timeout(patience, told).await;
        };
        tokio::select! {
            () = told => {}
            () = self.client.pipes.cut() => {}
        }
    }

    fn asker<'a>(&'a self, limits: &'a Limits) -> Asker<'a> {
        asker(&self.client, limits)
    }

    async fn post(
        self: Rc<Self>,
        message: Segments,
        (headers, trail): (HeaderMap, Option<Arc<Trail>>),
    ) -> Result<Reply, UpstreamError> {
        let mut request = Request::new(RequestBody::from(message));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        request.headers_mut().extend(self.session.headers());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accepted = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(ACCEPT, accepted);
        request.extensions_mut().insert(CallerDeadline);
        if let Some(trail) = trail {
            request.extensions_mut().insert(trail);
        }
        let (upstream, now) = (self.upstream(), Instant::now());
        let delivery =
            SendOptions { is_safe_to_repeat: false, aim: self.session.replica.into(), asked: None };
        self.client.send_as_it_is(&upstream, request, delivery, now, now + REPLY_PATIENCE).await
    }
}

/// A way to ask upstreams for this thread.
pub(crate) fn asker<'a>(client: &'a Client, limits: &'a Limits) -> Asker<'a> {
    let scratch = &client.pipes.scratch;
    Asker { client, scratch, limits: &limits.all, budget: &limits.budget, aim: ReplicaSelection::Any }
}

/// A server's reply to a call.
pub(crate) struct CallExchange {
    link: Rc<SessionClient>,
    /// The literal of the call's id.
    id: Box<str>,
    state: ReplyStage,
    at: StreamPosition,
}

/// The stream of a session.
pub(crate) struct ServerInitiated {
    link: Rc<SessionClient>,
    state: ReplyStage,
    at: StreamPosition,
}

enum ReplyStage {
    Posting(LocalBoxFuture<'static, Result<Reply, UpstreamError>>),
    /// The body of a reply that is no stream.
    Collecting(LocalBoxFuture<'static, ServerMessage>),
    Opening(LocalBoxFuture<'static, ResumeResult>),
    Reading(Box<Messages>, Option<ConnectionLease>),
    Over,
}

impl CallExchange {
    /// Posts a call with this id, a literal, and what goes along with it.
    pub(crate) fn new(
        link: &Rc<SessionClient>,
        (id, message): (&str, Segments),
        along: (HeaderMap, Option<Arc<Trail>>),
    ) -> Self {
        let posting = Rc::clone(link).post(message, along).boxed_local();
        let (link, id) = (Rc::clone(link), id.into());
        Self { link, id, state: ReplyStage::Posting(posting), at: StreamPosition::default() }
    }

    /// What the server says next; waits for ever once that was the last.
    pub(crate) async fn next(&mut self) -> ServerMessage {
        loop {
            match &mut self.state {
                ReplyStage::Over => std::future::pending().await,
                ReplyStage::Posting(posting) => match posting.await {
                    Err(error) => return self.end(error),
                    Ok(reply) => {
                        if let Some(said) = self.begin(reply) {
                            return said;
                        }
                    }
                },
                ReplyStage::Collecting(collecting) => {
                    let said = collecting.await;
                    self.state = ReplyStage::Over;
                    return said;
                }
                ReplyStage::Opening(opening) => match opening.await {
                    ResumeResult::Stream(reply) => {
                        self.at.stand();
                        self.state = reading(&self.link, *reply);
                    }
                    ResumeResult::Failed if self.reopen() => {}
                    _ => return self.end(UpstreamError::Reset),
                },
                ReplyStage::Reading(messages, _) => match messages.next().await {
                    Ok(Some(event)) => {
                        return self.at.take(event).map_or(ServerMessage::Nothing, ServerMessage::Message);
                    }
                    Ok(None) | Err(UpstreamError::Reset) if self.reopen() => {}
                    Ok(None) => return self.end(UpstreamError::Reset),
                    Err(error) => return self.end(error),
                },
            }
        }
    }

    /// Reads no more of it.
    pub(crate) fn end_now(&mut self) {
        self.state = ReplyStage::Over;
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, ReplyStage::Over)
    }

    /// Reads what is left of the reply, which has said all: its connection can be used again. Other messages than the
    /// end are returned.
    pub(crate) async fn rest(&mut self) -> Option<Bytes> {
        loop {
            let ReplyStage::Reading(messages, lease) = &mut self.state else { return None };
            match messages.next().await {
                Ok(Some(event)) => {
                    let message = get_stream::message(event).filter(|message| !message.is_empty());
                    if message.is_some() {
                        return message;
                    }
                }
                Ok(None) => {
                    pool::give_back(lease.take(), Instant::now());
                    self.state = ReplyStage::Over;
                }
                Err(_) => self.state = ReplyStage::Over,
            }
        }
    }

    fn begin(&mut self, reply: Reply) -> Option<ServerMessage> {
        if response_reader::is_stream(&reply) {
            self.state = reading(&self.link, reply);
            return Some(ServerMessage::Stands);
        }
        self.state =
            ReplyStage::Collecting(whole(Rc::clone(&self.link), reply, self.id.clone()).boxed_local());
        None
    }

    /// Asks for the rest of the reply. False: it is not to be had.
    fn reopen(&mut self) -> bool {
        let Some(pause) = self.at.pause_before_rest() else { return false };
        self.state = opening(&self.link, &self.at, pause);
        true
    }

    fn end(&mut self, error: UpstreamError) -> ServerMessage {
        if let ReplyStage::Reading(_, lease) = &mut self.state {
            pool::note_error(lease.as_mut(), &error);
        }
        self.state = ReplyStage::Over;
        ServerMessage::Over(error)
    }
}

impl ServerInitiated {
    /// Asks for the stream. Servers without sessions have none.
    pub(crate) fn new(link: &Rc<SessionClient>) -> Self {
        let link = Rc::clone(link);
        let at = StreamPosition::default();
        let has_session = link.session.id.is_some();
        let state = if has_session { opening(&link, &at, Duration::ZERO) } else { ReplyStage::Over };
        Self { link, state, at }
    }

    /// Waits until the stream stands or it is clear that there is none.
    pub(crate) async fn stand(&mut self) {
        while let ReplyStage::Opening(opening) = &mut self.state {
            let opened = opening.await;
            self.take(opened);
        }
    }

    /// The next message; waits for ever where there is no stream.
    pub(crate) async fn next(&mut self) -> Bytes {
        loop {
            match &mut self.state {
                ReplyStage::Opening(opening) => {
                    let opened = opening.await;
                    self.take(opened);
                }
                ReplyStage::Reading(messages, _) => match messages.next().await {
                    Ok(Some(event)) => {
                        if let Some(message) = self.at.take(event) {
                            return message;
                        }
                    }
                    Ok(None) | Err(_) => self.reopen(),
                },
                _ => std::future::pending().await,
            }
        }
    }

    fn take(&mut self, opened: ResumeResult) {
        match opened {
            ResumeResult::Stream(reply) => {
                self.at.stand();
                self.state = reading(&self.link, *reply);
            }
            ResumeResult::UnknownEvent => {
                self.at.forget();
                self.state = opening(&self.link, &self.at, Duration::ZERO);
            }
            ResumeResult::Failed => self.reopen(),
            ResumeResult::Refused => self.state = ReplyStage::Over,
        }
    }

    fn reopen(&mut self) {
        let pause = self.at.pause();
        self.state = opening(&self.link, &self.at, pause);
    }
}

/// Asks for a stream after a pause.
fn opening(link: &Rc<SessionClient>, at: &StreamPosition, pause: Duration) -> ReplyStage {
    let (link, at) = (Rc::clone(link), at.clone());
    let opening = async move {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        at.open(&link.client, &link.upstream(), &link.session).await
    };
    ReplyStage::Opening(opening.boxed_local())
}

fn reading(link: &SessionClient, reply: Reply) -> ReplyStage {
    let limits = link.limits();
    let messages = Messages::new(reply.body, limits.all.reply_bytes_max, &limits.budget);
    ReplyStage::Reading(Box::new(messages), reply.lease)
}

/// What a reply says that is no stream.
async fn whole(link: Rc<SessionClient>, reply: Reply, id: Box<str>) -> ServerMessage {
    let upstream = link.upstream();
    let deadline = Instant::now() + upstream.config.reply_timeout;
    let answer =
        response_reader::answer(&link.client, &upstream, &link.session, (reply, &id), deadline).await;
    answer.map_or_else(ServerMessage::Over, ServerMessage::Message)
}
