//! One session with an upstream over HTTP+SSE: the stream it speaks on, and the POSTs by which it is spoken to.
//!
//! Several requests may be on their way up at once. Whatever is no request is accepted before the next message leaves,
//! so that a server is initialized before it is asked anything. A request that is refused fails alone; a server that
//! does not know the session any more, or ends the stream, ends it.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode, Uri};
use tokio::time::{sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::upstream::exchange::{ReplicaTarget, ReplyFields, ReplyHead, UpstreamClient};
use crate::upstream::get_stream::Messages;
use crate::upstream::mux::host::Host;
use crate::upstream::mux::passed_message::{NotKept, PassedMessage};
use crate::upstream::mux::unreadable::READ_INLINE_BYTES_MAX;
use crate::upstream::mux::{Disposition, MuxConnection, ReadHalf, WriteHalf, unreadable};
use crate::upstream::request::{ExpectedReply, RequestKind, UpstreamRequest};
use crate::upstream::sending::Sending;
use crate::upstream::{ReplicaKey, ReplicaSelection, Upstream};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::{Error, UpstreamError};
use protocol::json::Scratch;
use protocol::splice::Segments;
use protocol::sse::{DataScan, Event};
use protocol::sse_endpoint::{Base, EndpointFault, resolve};
use protocol::version::Era;

/// How long an upstream may take to name its address.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to accept what is no request.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages on their way up.
const POSTS_MAX: usize = 32;
/// So much of an event that is not kept is looked at before others have their turn.
const PASSED_BYTES: usize = 64 * 1024;
/// How often a connection that is to end is looked at.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum SseOpenError {
    /// Nothing is known of what the upstream speaks.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// It does not speak this: what answers is no stream.
    #[error(transparent)]
    NoStream(UpstreamError),
    /// Nor this: the stream names no address.
    #[error(transparent)]
    NoEndpoint(#[from] EndpointFault),
}

/// A stream whose address is known.
pub(super) struct SseConnection {
    client: UpstreamClient,
    upstream: Arc<Upstream>,
    replica: ReplicaKey,
    target: Uri,
    events: Messages,
}

/// What became of a message.
struct PostResult {
    /// The literal of its id, if it is a request.
    id: Option<Bytes>,
    result: Result<(), PostError>,
}

enum PostError {
    /// The message failed.
    Message(UpstreamError),
    /// The server does not know the session.
    Session,
}

/// Opens a stream and waits for the address.
pub(super) async fn open(
    client: &UpstreamClient,
    upstream: &Arc<Upstream>,
    deadline: Instant,
) -> Result<SseConnection, SseOpenError> {
    let deadline = deadline.min(clock::now() + ENDPOINT_TIMEOUT);
    let mut result = Err(UpstreamError::Unreachable.into());
    let mut tried = Vec::new();
    loop {
        let replica = {
            let set = upstream.replicas.load();
            let chosen = Upstream::choose(
                &set,
                (ReplicaSelection::Probe, &tried),
                client.pools.random(),
                clock::now(),
            );
            let Ok((replica, pass)) = chosen else { break };
            // It passes again when the request is sent.
            replica.breaker.0.give_up(pass);
            replica.key
        };
        tried.push(replica);
        result = timeout_at(deadline.into(), open_at(client, upstream, replica, deadline))
            .await
            .unwrap_or(Err(UpstreamError::TimedOut.into()));
        if !matches!(
            result,
            Err(SseOpenError::Upstream(UpstreamError::Unreachable | UpstreamError::OutOfOrder { .. }))
        ) {
            break;
        }
    }
    result
}

async fn open_at(
    client: &UpstreamClient,
    upstream: &Arc<Upstream>,
    replica: ReplicaKey,
    deadline: Instant,
) -> Result<SseConnection, SseOpenError> {
    let mut request = UpstreamRequest { kind: RequestKind::Listen, ..UpstreamRequest::default() };
    request.attributes.reply = ExpectedReply::Stream;
    request.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    request.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let reply =
        client.send_to(upstream, ReplicaTarget { replica, target: None }, &mut request, deadline).await?;
    let status = reply.head.status;
    if let Some(error) = inconclusive(status, &reply.head.fields) {
        return Err(error.into());
    }
    if !reply.is_stream() {
        return Err(SseOpenError::NoStream(reply.head.fault()));
    }
    let mut events = Messages::of(client, upstream, reply);
    let endpoint = loop {
        let event = events.next().await.ok().flatten().ok_or(EndpointFault::Missing)?;
        if kind(&event) == b"endpoint" {
            break event.data.unwrap_or_default();
        }
    };
    let at = upstream.replicas.get(replica).ok_or(UpstreamError::Unreachable)?;
    let at = &*at;
    let base = Base { host: &at.host, port: at.port, is_tls: at.tls.is_some(), target: &at.target };
    let reference = std::str::from_utf8(&endpoint).map_err(|_| EndpointFault::Malformed)?;
    let target = resolve(base, reference)?;
    Ok(SseConnection { client: client.clone(), upstream: Arc::clone(upstream), replica, target, events })
}

pub(super) async fn run(
    opened: SseConnection,
    host: Rc<Host>,
    retired: CancellationToken,
    mut write_half: WriteHalf,
    mut read_half: ReadHalf,
) {
    let SseConnection { client, upstream, replica, target, events } = opened;
    let (connection, name) = (read_half.connection().clone(), &upstream.config.name);
    let mut events = SseEvents::new(events, &upstream, &connection, host.shared.limits().message_bytes_max);
    let to = ReplicaTarget { replica, target: Some(&target) };
    let mut over = pin!(over(&host, &connection, &retired));
    let mut posts = FuturesUnordered::new();
    let mut order = PostOrder::new(host.shared.limits().json_depth_max);
    loop {
        let is_stalled = read_half.is_stalled();
        tokio::select! {
            () = &mut over => return,
            // Nothing more is read while a client who has the stream to itself takes less than it says.
            _ = read_half.settle(), if is_stalled => {}
            event = events.next(), if !is_stalled => {
                let Some(event) = event else {
                    tracing::debug!(upstream = name, "a stream of HTTP+SSE ended");
                    return;
                };
                let message = event.data.as_ref().filter(|_| kind(&event) == b"message");
                if let Some(message) = message
                    && take_in(&host, &mut read_half, message).await == Some(Disposition::Garbage)
                {
                    let why = unreadable::refuse(&host, &connection, message).await;
                    tracing::debug!(upstream = name, why, "an event that is no message");
                }
            }
            Some(PostResult { id, result }) = posts.next(), if !posts.is_empty() => {
                order.is_alone &= id.is_some();
                match result {
                    Ok(()) => {}
                    Err(PostError::Session) => {
                        tracing::debug!(upstream = name, "a session of HTTP+SSE is not known any more");
                        return;
                    }
                    Err(PostError::Message(error)) => {
                        tracing::debug!(upstream = name, %error, "a message was refused");
                        if let Some(id) = id.as_deref().and_then(|id| std::str::from_utf8(id).ok()) {
                            read_half.receive(&Error::from(error).body(Some(id), Era::Legacy).into());
                        }
                    }
                }
            }
            message = write_half.next(), if !order.is_alone && posts.len() < POSTS_MAX => {
                let Some(message) = message else { return };
                let (request, id, earlier) = order.next(message);
                let (client, upstream) = (&client, &upstream);
                posts.push(async move {
                    overtake_none(earlier).await;
                    post(client, upstream, to, request, id).await
                });
            }
        }
    }
}

async fn take_in(host: &Host, read_half: &mut ReadHalf, message: &Bytes) -> Option<Disposition> {
    match message.len() {
        ..=READ_INLINE_BYTES_MAX => read_half.offer(message),
        _ => read_half.offer_long(host, message).await,
    }
}

/// The events of the stream. One that is too large, or finds no room, is read to its end and dropped: the call that it answers
/// fails, and the stream goes on.
struct SseEvents<'a> {
    messages: Messages,
    connection: &'a MuxConnection,
    /// The name of the upstream.
    name: &'a str,
    /// The longest that an event may be.
    bytes_max: usize,
    /// The longest time that one may take that is not kept.
    patience: Duration,
    passing: Option<PassingEvent>,
}

/// An event that is not kept, on its way past.
struct PassingEvent {
    message: PassedMessage,
    data: DataScan,
    /// The part that has arrived and was not looked at.
    rest: Bytes,
    is_whole: bool,
}

impl<'a> SseEvents<'a> {
    fn new(
        messages: Messages,
        upstream: &'a Upstream,
        connection: &'a MuxConnection,
        bytes_max: usize,
    ) -> Self {
        let (name, patience) = (upstream.config.name.as_str(), upstream.config.response_timeout);
        Self { messages, connection, name, bytes_max, patience, passing: None }
    }

    /// The next event that is kept; `None` at the end. May be dropped and called again.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.passing.is_some() {
                self.pass().await?;
                continue;
            }
            let why = match self.messages.next().await {
                Ok(event) => return event,
                Err(UpstreamError::TooLarge) => NotKept::TooLong,
                Err(UpstreamError::NoBuffers) => NotKept::NoRoom,
                Err(_) => return None,
            };
            self.passing = Some(PassingEvent {
                message: PassedMessage::new(why),
                data: DataScan::default(),
                rest: Bytes::new(),
                is_whole: false,
            });
        }
    }

    /// Lets go of a part of the event that is not kept. `None`: the stream has ended, or the event does not.
    #[cold]
    async fn pass(&mut self) -> Option<()> {
        let PassingEvent { message, data, rest, is_whole } = self.passing.as_mut()?;
        if !rest.is_empty() {
            let part = rest.split_to(rest.len().min(PASSED_BYTES));
            data.push(&part, |text| message.push(text));
            tokio::task::yield_now().await;
        } else if *is_whole {
            self.end();
        } else if message.is_endless(self.patience) {
            return None;
        } else {
            (*rest, *is_whole) = self.messages.pass().await?;
        }
        Some(())
    }

    fn end(&mut self) {
        let Some(PassingEvent { message, .. }) = self.passing.take() else { return };
        let (upstream, reply_bytes_max) = (self.name, self.bytes_max);
        let is_answer = message.fail(self.connection, reply_bytes_max);
        let bytes = message.bytes();
        match message.why() {
            NotKept::TooLong => tracing::warn!(
                upstream,
                bytes,
                reply_bytes_max,
                is_answer,
                "an event of HTTP+SSE is larger than reply_bytes_max: it is skipped"
            ),
            NotKept::NoRoom => tracing::warn!(
                upstream,
                bytes,
                is_answer,
                "a long event of HTTP+SSE came while the gateway held as many messages as buffered_bytes_max allows: it is skipped"
            ),
        }
    }
}

/// Completes when the session is to end.
async fn over(host: &Host, connection: &MuxConnection, retired: &CancellationToken) {
    tokio::select! {
        () = connection.closing() => {}
        () = host.cut() => {}
        () = retired.cancelled() => {}
        () = unneeded(host, connection) => {}
    }
}

/// Completes when the thread is about to end and nobody waits for an answer.
async fn unneeded(host: &Host, connection: &MuxConnection) {
    host.leaving().await;
    while !connection.close_if_uncalled() {
        sleep(IDLE_INTERVAL).await;
    }
}

/// In which order messages are sent: what is no request, such as the cancellation of one, is alone.
struct PostOrder {
    scratch: Scratch,
    depth_max: usize,
    /// Requests that may not have been read yet.
    requests: Vec<Arc<Sending>>,
    /// Nothing else is sent meanwhile.
    is_alone: bool,
}

impl PostOrder {
    fn new(depth_max: usize) -> Self {
        Self { scratch: Scratch::default(), depth_max, requests: Vec::new(), is_alone: false }
    }

    /// The next message, the literal of its id if it is a request, and the requests that it must not overtake.
    fn next(&mut self, message: Segments) -> (UpstreamRequest, Option<Bytes>, Vec<Arc<Sending>>) {
        let id = self.request_id(&message);
        self.is_alone = id.is_none();
        self.requests.retain(|request| !request.is_behind());
        let mut request = UpstreamRequest { message, ..UpstreamRequest::default() };
        let earlier = if self.is_alone {
            std::mem::take(&mut self.requests)
        } else {
            self.requests.push(Arc::clone(request.sending.insert(Arc::default())));
            Vec::new()
        };
        (request, id, earlier)
    }

    fn request_id(&mut self, message: &Segments) -> Option<Bytes> {
        let message = message.to_bytes();
        let envelope = Envelope::parse(&mut self.scratch, &message, self.depth_max).ok()?;
        let id = envelope.id.filter(|_| envelope.kind == MessageKind::Request)?;
        message.get(id).map(Bytes::copy_from_slice)
    }
}

/// Waits until what is sent then overtakes none of these, for a bounded time.
async fn overtake_none(earlier: Vec<Arc<Sending>>) {
    let sent = async {
        for request in earlier {
            request.behind().await;
        }
    };
    let _ = timeout(MESSAGE_TIMEOUT, sent).await;
}

async fn post(
    client: &UpstreamClient,
    upstream: &Upstream,
    to: ReplicaTarget<'_>,
    mut request: UpstreamRequest,
    id: Option<Bytes>,
) -> PostResult {
    let patience = if id.is_some() { upstream.config.response_timeout } else { MESSAGE_TIMEOUT };
    let deadline = clock::now() + patience;
    let sending = request.sending.clone();
    request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let accepted = timeout_at(deadline.into(), async {
        let reply = client.send_to(upstream, to, &mut request, deadline).await?;
        Ok::<_, UpstreamError>(client.let_go(upstream, reply))
    });
    let accepted = accepted.await;
    if let Some(sending) = sending {
        sending.mark_over();
    }
    let result = match accepted.unwrap_or(Err(UpstreamError::TimedOut)) {
        Ok(head) if head.status.is_success() => Ok(()),
        Ok(ReplyHead { status: StatusCode::NOT_FOUND, .. }) => Err(PostError::Session),
        Ok(head) => {
            Err(PostError::Message(inconclusive(head.status, &head.fields).unwrap_or_else(|| head.fault())))
        }
        Err(error) => Err(PostError::Message(error)),
    };
    PostResult { id, result }
}

/// Statuses that say nothing of what the upstream speaks.
fn inconclusive(status: StatusCode, fields: &ReplyFields) -> Option<UpstreamError> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(UpstreamError::Credentials),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Some(UpstreamError::Busy { status, retry_after_s: None })
        }
        status if status.is_server_error() || status.is_redirection() => Some(fields.fault(status)),
        _ => None,
    }
}

/// What an event is.
fn kind(event: &Event) -> &[u8] {
    event.event.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(b"message")
}
