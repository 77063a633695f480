//! One request to an upstream that is a connection.
//!
//! | request | reply |
//! |---|---|
//! | post a request | its answer in JSON where that comes first, else messages |
//! | post a modern one that is answered by an error at once | the answer, with the status that goes with the error |
//! | post a notification or response | accepted |
//! | post `initialize` | as any request, with the id of the session |
//! | listen | messages that belong to no call |
//! | end a session | accepted, and the session is over |
//! | anything else in a session that is gone | [`UpstreamError::SessionLost`] |

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use memchr::memmem;
use tokio::time::timeout_at;

use super::sessions::{MuxSessions, SessionHandle};
use super::state_owner::{NOT_ITS_STATE, NotItsState, StateOwner};
use super::{MuxCall, MuxConnection, MuxRequest, outgoing, queue};
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::upstream::Upstream;
use crate::upstream::broken_reply::BrokenReply;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::incoming::Incoming;
use crate::upstream::messages::MessageStream;
use crate::upstream::request::{RequestKind, UpstreamRequest};
use crate::upstream::sending::Sending;
use crate::upstream::silence::{self, Silence};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::{ClientError, Error, UpstreamError};
use protocol::json::{Document, Scratch};
use protocol::version::Era;

/// The key by which a modern client asks for log lines.
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// How the connections of one kind of upstream are made.
pub(crate) trait Connect {
    fn sessions(&self) -> &MuxSessions;

    /// The connection for this modern request. `OtherEra`: there is no such thing.
    async fn modern(
        &self,
        asking: ConnectRequest<'_>,
        post: &MuxPost<'_>,
    ) -> Result<MuxConnection, UpstreamError>;

    /// The principal of this caller, where modern requests of several share a connection. It fails where states cannot be
    /// kept apart.
    fn state_owner(&self, _asking: ConnectRequest<'_>) -> Result<Option<Arc<StateOwner>>, UpstreamError> {
        Ok(None)
    }

    async fn initialize(&self, asking: ConnectRequest<'_>, post: MuxPost<'_>)
    -> Result<Reply, UpstreamError>;

    async fn post(&self, handle: SessionHandle, post: MuxPost<'_>) -> Result<Reply, UpstreamError> {
        pass(&handle.connection, handle.session, post).await
    }

    /// A session that is over. The id is forgotten already.
    fn end(&self, handle: SessionHandle) {
        handle.connection.close();
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectRequest<'a> {
    pub client: &'a UpstreamClient,
    pub upstream: &'a Upstream,
    /// The identity of the principal, by which processes are told apart where they are not for everybody.
    pub principal: Option<&'a str>,
    /// Who is charged.
    pub payer: Payer,
    pub deadline: Instant,
}

/// A message that was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MuxPost<'a> {
    pub message: &'a Bytes,
    /// What was found in it.
    pub envelope: &'a Envelope,
    /// `traceparent`, `tracestate` and `baggage`.
    pub trace: &'a [Option<&'a str>; 3],
    /// Whether the gateway itself asks.
    pub is_own: bool,
    /// The era in which the message was written.
    pub era: Era,
    pub json_depth_max: usize,
    pub deadline: Instant,
    /// Who is charged for what waits of its reply.
    pub payer: Payer,
    /// Its place among the calls that the upstream may have at once.
    pub place: Option<&'a Arc<CallPlace>>,
    /// Told once it has its place among what the connection is sent.
    pub sending: Option<&'a Sending>,
    /// The silence of its client.
    pub silence: Option<&'a Silence>,
    /// Whose the states of modern calls are, where several principals share the connection.
    pub owner: Option<&'a Arc<StateOwner>>,
}

impl MuxPost<'_> {
    pub(crate) fn is(&self, method: &str) -> bool {
        self.envelope.method.as_ref().is_some_and(|literal| literal.equals(self.message, method))
    }

    /// True if its client wants to hear of it before the answer: how far it is, or what the server logs.
    fn wants_events(&self) -> bool {
        self.envelope.meta.as_ref().is_some_and(|meta| meta.progress_token.is_some())
            || memmem::find(self.message, LOG_LEVEL.as_bytes()).is_some()
    }

    /// The literal of its id.
    pub(crate) fn id(&self) -> &[u8] {
        self.envelope.id.clone().and_then(|id| self.message.get(id)).unwrap_or_default()
    }
}

/// Answers a request. `connect`: the connections of `upstream`.
pub(crate) async fn send(
    client: &UpstreamClient,
    upstream: &Upstream,
    connect: &impl Connect,
    mut request: UpstreamRequest,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    match request.kind {
        RequestKind::Post => {
            let silence = request.attributes.silence.take();
            let (principal, payer) = (request.attributes.principal.clone(), request.attributes.payer);
            let asking =
                ConnectRequest { client, upstream, principal: principal.as_deref(), payer, deadline };
            let posting = pin!(send_message(connect, asking, request, silence.as_deref()));
            let patience = upstream.config.response_timeout;
            let posted = match &silence {
                None => timeout_at(deadline.into(), posting).await.ok(),
                Some(silence) => silence::wait(silence, deadline, patience, posting).await,
            };
            posted.unwrap_or(Err(UpstreamError::TimedOut))
        }
        RequestKind::Listen => {
            let handle = session(connect, &request)?;
            let stream = handle.connection.listen(handle.session).ok_or(UpstreamError::SessionLost)?;
            Ok(MessageStream::reply_of_mux(MuxMessages::new(None, stream, None)))
        }
        RequestKind::EndSession => {
            let handle = request.session_id().and_then(|id| connect.sessions().remove(id));
            // One that is unknown is over already.
            if let Some(handle) = handle {
                connect.end(handle);
            }
            Ok(Reply::accepted())
        }
    }
}

/// The session that a request names.
fn session(connect: &impl Connect, request: &UpstreamRequest) -> Result<SessionHandle, UpstreamError> {
    let known = request.session_id().and_then(|id| connect.sessions().get(id));
    known.ok_or(UpstreamError::SessionLost)
}

async fn send_message(
    connect: &impl Connect,
    asking: ConnectRequest<'_>,
    mut request: UpstreamRequest,
    silence: Option<&Silence>,
) -> Result<Reply, UpstreamError> {
    let json_depth_max = asking.client.limits().json_depth_max;
    let (message, envelope) =
        asking.client.read_json(|(scratch, _)| request.take_message((scratch, json_depth_max)))?;
    let (era, trace) = (request.era(), request.trace());
    let post = MuxPost {
        message: &message,
        envelope: &envelope,
        trace: &trace,
        is_own: request.attributes.is_own,
        era,
        json_depth_max,
        deadline: asking.deadline,
        payer: asking.payer,
        place: request.attributes.place.as_ref(),
        sending: request.sending.as_deref(),
        silence,
        owner: None,
    };
    if era == Era::Modern {
        let owner = connect.state_owner(asking)?;
        let post = MuxPost { owner: owner.as_ref(), ..post };
        let mut may_repeat = true;
        loop {
            let connection = connect.modern(asking, &post).await?;
            match pass(&connection, super::ONLY_SESSION, post).await {
                // It ended between the two.
                Err(UpstreamError::Unreachable) if std::mem::take(&mut may_repeat) => {}
                result => return result,
            }
        }
    }
    if envelope.kind == MessageKind::Request && post.is("initialize") {
        return connect.initialize(asking, post).await;
    }
    match connect.post(session(connect, &request)?, post).await {
        // It ended between the two: the session is gone.
        Err(UpstreamError::Unreachable) => Err(UpstreamError::SessionLost),
        result => result,
    }
}

/// Passes a message through a connection.
pub(crate) async fn pass(
    connection: &MuxConnection,
    session: u64,
    post: MuxPost<'_>,
) -> Result<Reply, UpstreamError> {
    let MuxPost {
        message, envelope, trace, is_own, era, json_depth_max, deadline, payer, place, owner, ..
    } = post;
    match envelope.kind {
        MessageKind::Request => {
            let deadline = (!post.is("initialize")).then_some(deadline);
            let opened = match owner.filter(|_| envelope.is_continued).map(|owner| owner.opened(message)) {
                None | Some(Ok(None)) => None,
                Some(Ok(opened)) => opened,
                Some(Err(NotItsState)) => return Ok(not_its_state(&post)),
            };
            let (message, envelope) =
                opened.as_ref().map_or((message, envelope), |(message, envelope)| (message, envelope));
            let request =
                MuxRequest { payer, session, message, envelope, trace, is_own, era, deadline, place, owner };
            let call = connection.call(request).await?;
            if let Some(sending) = post.sending {
                sending.mark_taken();
            }
            let mut reply = match post.silence {
                None => answer(call).await?,
                Some(silence) => answer_in_silence(silence, post, answer(call)).await?,
            };
            if let (Era::Modern, Incoming::Whole(Some(answer))) = (era, &reply.body) {
                reply.head.status = modern_status(answer);
            }
            Ok(reply)
        }
        MessageKind::Notification if post.is("notifications/cancelled") => {
            let mut scratch = Scratch::default();
            let id = outgoing::cancelled_id(&mut scratch, message, json_depth_max);
            let id =
                id.and_then(|span| Some((connection.own_id(session, message.get(span.clone())?)?, span)));
            // What is not in flight needs no end.
            if let Some((own, span)) = id {
                connection.cancel(own);
                connection.tell(outgoing::cancellation(message, span, own)).await?;
            }
            Ok(Reply::accepted())
        }
        MessageKind::Notification | MessageKind::Response => {
            if !is_own {
                connection.note_client();
            }
            connection.tell(outgoing::unchanged(message.clone())).await?;
            Ok(Reply::accepted())
        }
    }
}

/// The answer to a request with a state that its principal was not given.
#[cold]
fn not_its_state(post: &MuxPost<'_>) -> Reply {
    let error = Error::from(ClientError::Params { why: NOT_ITS_STATE });
    let id = std::str::from_utf8(post.id()).ok();
    Reply::json(error.body(id, post.era).into())
}

/// Asks `initialize` of a connection that nobody else uses yet, and waits for its answer however long that takes.
pub(crate) async fn ask_to_initialize(
    connection: &MuxConnection,
    session: u64,
    message: &Bytes,
    payer: Payer,
    json_depth_max: usize,
) -> Result<Bytes, UpstreamError> {
    let envelope = Envelope::parse(&mut Scratch::default(), message, json_depth_max);
    let envelope = &envelope.map_err(|_| UpstreamError::Nonsense)?;
    let request = MuxRequest {
        payer,
        session,
        message,
        envelope,
        trace: &[None; 3],
        is_own: true,
        era: Era::Legacy,
        deadline: None,
        place: None,
        owner: None,
    };
    let (mut rest, _in_flight) = connection.call(request).await?;
    loop {
        match rest.next().await {
            Some(Ok(piece)) if piece.is_answer => return Ok(piece.data),
            // There is nobody yet who could be told.
            Some(Ok(_)) => {}
            Some(Err(BrokenReply)) => return Err(rest.fault()),
            None => return Err(UpstreamError::Reset),
        }
    }
}

/// Opens a session over a connection of its own by the caller's `initialize`. One that is refused ends it.
pub(crate) async fn open_session(
    sessions: &MuxSessions,
    connection: MuxConnection,
    post: MuxPost<'_>,
) -> Result<Reply, UpstreamError> {
    let session = connection.begin_session(false);
    // Whatever comes in between, a connection that nobody knows of ends.
    let opening = CloseOnDrop::new(connection);
    let mut reply = pass(opening.connection(), session, post).await?;
    let is_refused = match &reply.body {
        Incoming::Whole(Some(answer)) => {
            let mut scratch = Scratch::default();
            let root = scratch.index(answer, post.json_depth_max).map(Document::root);
            root.is_ok_and(|root| root.get("result").is_none())
        }
        // The answer follows other messages; it is the caller's to judge.
        _ => false,
    };
    if !is_refused {
        let id = sessions
            .keep(SessionHandle { connection: opening.connection().clone(), session })
            .ok_or(UpstreamError::Reset)?;
        reply.head.fields.set_session_id(id);
        opening.keep();
    }
    Ok(reply)
}

/// The first message decides what kind of reply it is.
async fn answer((mut rest, in_flight): (queue::PieceReceiver, MuxCall)) -> Result<Reply, UpstreamError> {
    match rest.next().await {
        Some(Ok(piece)) if piece.is_answer => Ok(Reply::json(piece.data)),
        Some(Ok(piece)) => {
            let messages = MuxMessages::new(Some(piece.data), rest, Some(in_flight));
            Ok(MessageStream::reply_of_mux(messages))
        }
        Some(Err(BrokenReply)) => Err(rest.fault()),
        None => Err(UpstreamError::TimedOut),
    }
}

/// Awaits the answer to a request whose client may hear nothing for long.
async fn answer_in_silence(
    silence: &Silence,
    post: MuxPost<'_>,
    answer: impl Future<Output = Result<Reply, UpstreamError>>,
) -> Result<Reply, UpstreamError> {
    silence.mark_sent();
    let mut answer = pin!(answer);
    poll_fn(|cx| {
        let polled = answer.as_mut().poll(cx);
        if polled.is_pending() && silence.is_due() && post.wants_events() {
            silence.mark_events();
        }
        polled
    })
    .await
}

/// The status that a modern server gives its answer over HTTP.
fn modern_status(answer: &[u8]) -> StatusCode {
    #[derive(serde::Deserialize)]
    struct ReplyEnvelope {
        error: Option<ReplyError>,
    }
    #[derive(serde::Deserialize)]
    struct ReplyError {
        code: i64,
    }
    static ERROR: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new(b"\"error\""));
    // Nearly all answers are results, and need no further look.
    if ERROR.find(answer).is_none() {
        return StatusCode::OK;
    }
    match serde_json::from_slice(answer) {
        Ok(ReplyEnvelope { error: Some(ReplyError { code: -32601 }) }) => StatusCode::NOT_FOUND,
        Ok(ReplyEnvelope { error: Some(ReplyError { code: -32022..=-32020 }) }) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The messages of a reply, or of a session.
#[derive(Debug)]
pub(crate) struct MuxMessages {
    first: Option<Bytes>,
    rest: queue::PieceReceiver,
    _in_flight: Option<MuxCall>,
}

impl MuxMessages {
    fn new(first: Option<Bytes>, rest: queue::PieceReceiver, in_flight: Option<MuxCall>) -> Self {
        Self { first, rest, _in_flight: in_flight }
    }

    /// Why they broke off, once they have.
    pub(crate) fn fault(&self) -> UpstreamError {
        self.rest.fault()
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenReply>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        Pin::new(&mut self.rest).poll_next(cx).map(|piece| piece.map(|piece| piece.map(|piece| piece.data)))
    }
}

/// Ends a connection unless it is kept.
#[derive(Debug)]
pub(crate) struct CloseOnDrop {
    connection: MuxConnection,
    is_kept: bool,
}

impl CloseOnDrop {
    /// It ends when this is dropped.
    pub(crate) fn new(connection: MuxConnection) -> Self {
        Self { connection, is_kept: false }
    }

    pub(crate) fn connection(&self) -> &MuxConnection {
        &self.connection
    }

    pub(crate) fn keep(mut self) -> MuxConnection {
        self.is_kept = true;
        self.connection.clone()
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if !self.is_kept {
            self.connection.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modern_errors_have_a_status() {
        for (answer, status) in [
            (r#"{"id":1,"result":{"error":{"code":-32601}}}"#, 200),
            (r#"{"id":1,"error":{"code":-32601,"message":""}}"#, 404),
            (r#"{"id":1,"error":{"code":-32020,"message":""}}"#, 400),
            (r#"{"id":1,"error":{"code":-32021,"message":""}}"#, 400),
            (r#"{"id":1,"error":{"code":-32022,"message":""}}"#, 400),
            (r#"{"id":1,"error":{"code":-32602,"message":""}}"#, 200),
            (r#"{"id":1,"result":{}}"#, 200),
        ] {
            assert_eq!(modern_status(answer.as_bytes()).as_u16(), status, "{answer}");
        }
    }
}
