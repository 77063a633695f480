//! `subscriptions/listen` for a legacy server: resources, on a session of its own.
//!
//! Lists are not asked for here: the gateway hears of those in a session that all share. Tasks do not cross. The session is opened for the URIs that are asked for; its stream stands
//! before they are subscribed to, so that nothing is missed. It ends with the stream of the client.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout_at;

use super::answers;
use super::call::ModernCall;
use super::multiplexed::failure;
use super::session_client::{SessionClient, SessionName};
use super::session_stream::SessionStream;
use super::shared_session::apart;
use crate::access::limit::shares::Share;
use crate::bridge::{BridgedCaller, BridgedServer, next_number, or_never};
use crate::clock;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::initialize::InitializeOffer;
use crate::upstream::messages::{MessageStream, ReplyPart};
use crate::upstream::{Upstream, get_stream};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::UpstreamError;
use protocol::json::{Document, Value, quote};
use protocol::splice::Segments;
use protocol::subscription::{self, Filter, Lists, Name};
use protocol::translation::notification;
use protocol::version::{Era, Eras, LegacyVersion};

/// URIs of one subscription; the gateway's own carry those of all clients.
const URIS_MAX: usize = 100_000;
/// Requests to subscribe that are on their way at once.
const ASKING_MAX: usize = 16;
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn open(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: Arc<ModernCall>,
) -> Result<Reply, UpstreamError> {
    let filter = client.read_json(|(scratch, depth_max)| {
        let root = scratch.index(&call.message, depth_max).map(Document::root);
        root.map_err(|_| "the request is no JSON").and_then(|root| Filter::read(root, URIS_MAX))
    });
    let filter = match filter {
        Ok(filter) => filter,
        Err(why) => {
            return Ok(answers::refusal(&call, http::StatusCode::BAD_REQUEST, -32602, why).into_reply());
        }
    };
    let mut resources = None;
    if !filter.uris.is_empty() {
        let opening = ResourceStream::open(client, upstream, &call, filter.uris);
        let opened = timeout_at(call.deadline.into(), opening).await;
        resources = opened.unwrap_or(Err(UpstreamError::TimedOut))?;
    }
    let uris = resources.iter().flat_map(|resources| &resources.session.uris).map(|uri| &*uri.literal);
    let first = subscription::acknowledgement(&call.id, Lists::default(), uris, std::iter::empty());
    let first = Some(Bytes::from(first));
    let open =
        OpenSubscription { client: client.clone(), upstream: upstream.clone(), call, resources, first };
    Ok(MessageStream::reply(stream::unfold(Some(open), |open| async move {
        let mut open = open?;
        let part = open.next().await;
        part.map(|(part, goes_on)| (Ok(part), goes_on.then_some(open)))
    })))
}

/// A client's subscription to resources of a legacy server.
struct OpenSubscription {
    client: UpstreamClient,
    upstream: BridgedServer,
    call: Arc<ModernCall>,
    resources: Option<ResourceStream>,
    /// The acknowledgement, until it is told.
    first: Option<Bytes>,
}

impl OpenSubscription {
    /// What comes next, and whether more follows.
    async fn next(&mut self) -> Option<(ReplyPart, bool)> {
        if let Some(first) = self.first.take() {
            return Some((ReplyPart::Message(first), true));
        }
        let Self { client, upstream, call, resources, .. } = self;
        let end = || ReplyPart::Message(Bytes::from(subscription::completion(&call.id)));
        let told = or_never(resources.as_mut().map(|resources| resources.next(client, &call.id)));
        tokio::select! {
            told = told => Some(match told {
                Ok(part) => (part, true),
                Err(error) => (ReplyPart::Message(Bytes::from(failure(call, error))), false),
            }),
            // It is to be asked natively, or not at all.
            () = crosses_no_more(upstream) => Some((end(), false)),
            () = client.host.leaving() => Some((end(), false)),
        }
    }
}

/// Completes when modern requests no longer cross to this upstream.
async fn crosses_no_more(upstream: &Upstream) {
    loop {
        let changed = upstream.facts.changed();
        if upstream.eras() != Some(Eras::only(Era::Legacy)) {
            return;
        }
        changed.await;
    }
}

/// What is heard of resources, on a session of its own.
struct ResourceStream {
    session: ResourceSession,
    stream: SessionStream,
}

impl ResourceStream {
    /// Subscribes. `None`: the server offers no such thing.
    async fn open(
        client: &UpstreamClient,
        upstream: &BridgedServer,
        call: &ModernCall,
        uris: Vec<Name>,
    ) -> Result<Option<Self>, UpstreamError> {
        let opening =
            ResourceSession::open(client.clone(), upstream.clone(), call.caller.clone(), call.deadline);
        let (mut session, is_offered) = apart(client, || true, opening).await?;
        let name = session.server.session.named();
        if !is_offered || name.id.is_none() {
            return Ok(None);
        }
        let reply = match get_stream::open(client, upstream, name, None).await {
            get_stream::GetResult::Stream(reply) => *reply,
            get_stream::GetResult::Refused => return Ok(None),
            get_stream::GetResult::Doubtful => return Err(UpstreamError::SessionLost),
            get_stream::GetResult::Failed(error) => return Err(error.unwrap_or(UpstreamError::Nonsense)),
        };
        session.subscribe(uris).await;
        // What was said while it broke off is only told to those who say where they stopped, as to a reply.
        let stream = SessionStream::of_reply(&session.server, reply);
        Ok(Some(Self { session, stream }))
    }

    /// What comes next. May be dropped and called again.
    async fn next(&mut self, client: &UpstreamClient, id: &str) -> Result<ReplyPart, UpstreamError> {
        loop {
            let Some(message) = self.stream.next().await? else { return Ok(ReplyPart::KeepAlive) };
            if is_update(client, &message) {
                let told = client.read_json(|memory| notification::in_subscription(&message, id, memory));
                let told: Segments = told.map_err(|_| UpstreamError::Nonsense)?;
                return Ok(ReplyPart::Message(told.to_bytes()));
            }
            self.session.server.refuse(&message);
        }
    }
}

fn is_update(client: &UpstreamClient, message: &Bytes) -> bool {
    let envelope = client.read_json(|(scratch, depth_max)| Envelope::parse(scratch, message, depth_max));
    envelope.is_ok_and(|envelope| {
        let method = envelope.method.as_ref();
        envelope.kind == MessageKind::Notification
            && method.is_some_and(|method| method.equals(message, "notifications/resources/updated"))
    })
}

/// The session of a subscription. Dropped, it ends.
struct ResourceSession {
    server: Rc<SessionClient>,
    /// Those that the server tells of.
    uris: Vec<Name>,
    held: Option<(GaugeGuard, Share)>,
}

impl ResourceSession {
    /// Opens it. Returns also whether the server offers subscriptions.
    async fn open(
        client: UpstreamClient,
        upstream: BridgedServer,
        caller: BridgedCaller,
        deadline: Instant,
    ) -> Result<(Self, bool), UpstreamError> {
        let place = upstream.bridge.as_modern.place(&upstream, caller.payer)?;
        let offer = InitializeOffer {
            principal: &caller.principal,
            shown: caller.shown.clone(),
            ..InitializeOffer::own(LegacyVersion::NEWEST)
        };
        let opened = super::open_session(&client, &upstream, offer, caller.payer, deadline).await?;
        let is_offered = client.read_json(|(scratch, depth_max)| {
            let root = scratch.index(&opened.result, depth_max).map(Document::root).ok();
            let offered = root.and_then(|root| root.get("capabilities")?.get("resources")?.get("subscribe"));
            offered.map(Value::raw) == Some(b"true")
        });
        let held = Some((GaugeGuard::new(&upstream.bridge.series.sessions.modern), place));
        let server = SessionClient::new(&client, &upstream, SessionName::from(&opened));
        Ok((Self { server, uris: Vec::new(), held }, is_offered))
    }

    async fn subscribe(&mut self, uris: Vec<Name>) {
        let server = &self.server;
        let asked = stream::iter(uris).map(|uri| async move {
            let is_subscribed = ask(server, "resources/subscribe", &uri).await;
            is_subscribed.then_some(uri)
        });
        let asked: Vec<Option<Name>> = asked.buffered(ASKING_MAX).collect().await;
        self.uris = asked.into_iter().flatten().collect();
    }
}

impl Drop for ResourceSession {
    fn drop(&mut self) {
        let (server, uris) = (Rc::clone(&self.server), std::mem::take(&mut self.uris));
        let held = self.held.take();
        self.server.client.host.run(async move {
            end(&server, &uris).await;
            drop(held);
        });
    }
}

/// Whether the server agrees.
async fn ask(server: &SessionClient, method: &str, uri: &Name) -> bool {
    let (id, uri) = (next_number(), quote(&uri.value));
    let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"uri":{uri}}}}}"#);
    let Ok(answer) = server.ask(message, ASK_TIMEOUT).await else { return false };
    server.client.read_json(|(scratch, depth_max)| {
        let root = scratch.index(&answer.body, depth_max).map(Document::root).ok();
        root.is_some_and(|root| root.get("result").is_some())
    })
}

/// Takes everything back.
async fn end(server: &SessionClient, uris: &[Name]) {
    let deadline = clock::now() + CLOSE_TIMEOUT;
    if server.close(CLOSE_TIMEOUT).await {
        return;
    }
    let unsubscribing = stream::iter(uris).for_each_concurrent(ASKING_MAX, |uri| async move {
        ask(server, "resources/unsubscribe", uri).await;
    });
    // Nobody waits for what it says.
    let _ = timeout_at(deadline.into(), unsubscribing).await;
}
