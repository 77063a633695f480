//! `subscriptions/listen` for a legacy server: resources, on a session of its own.
//!
//! Lists are not asked for here: the gateway hears of those in a session that all share. Tasks do not cross. The session is opened for the URIs that are asked for; its stream stands
//! before they are subscribed to, so that nothing is missed. It ends with the stream of the client.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::time::{sleep, timeout_at};

use super::call::ModernCall;
use super::multiplexed::{events_reply, failure, with_memory};
use super::position::{self, StreamPosition};
use super::response_reader::{SessionName, with_asker};
use super::shared_session::apart;
use super::{answers, fire_and_forget};
use crate::access::limit::quota::QuotaPermit;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::Upstream;
use crate::upstream::ask::Asker;
use crate::upstream::bridge::{BridgedCaller, EventBody};
use crate::upstream::exchange::{Client, Reply};
use crate::upstream::get_stream::{self, Messages};
use crate::upstream::incoming::BrokenReply;
use crate::upstream::initialize::{self, InitializeOffer, InitializedSession};
use crate::upstream::pool::ConnectionLease;
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::UpstreamError;
use protocol::json::{Document, Value, quote};
use protocol::splice::Segments;
use protocol::sse::data_event;
use protocol::subscription::{self, Filter, Lists, Name};
use protocol::translation::notification;
use protocol::version::{Era, Eras, LegacyVersion};

/// URIs of one subscription; the gateway's own carry those of all clients.
const URIS_MAX: usize = 100_000;
/// Requests to subscribe that are on their way at once.
const ASKING_MAX: usize = 16;
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The id of `initialize`.
const OPENING_ID: u64 = 1;
const COMMENT: &[u8] = b":\n\n";

pub(crate) async fn open(
    client: &Client,
    upstream: &Arc<Upstream>,
    call: ModernCall,
) -> Result<Reply, UpstreamError> {
    let filter = with_memory(client, |(scratch, depth_max)| {
        let root = scratch.index(&call.message, depth_max).map(Document::root);
        root.map_err(|_| "the request is no JSON").and_then(|root| Filter::read(root, URIS_MAX))
    });
    let filter = match filter {
        Ok(filter) => filter,
        Err(why) => {
            return Ok(answers::refusal(&call, http::StatusCode::BAD_REQUEST, -32602, why).into_reply());
        }
    };
    let mut heard = None;
    if !filter.uris.is_empty() {
        let opening = ResourceStream::open(client, upstream, &call, filter.uris);
        let opened = timeout_at(call.deadline.into(), opening).await;
        heard = opened.unwrap_or(Err(UpstreamError::TimedOut))?;
    }
    let uris = heard.iter().flat_map(|heard| &heard.subscription.uris).map(|uri| &*uri.literal);
    let first = subscription::acknowledgement(&call.id, Lists::default(), uris, std::iter::empty());
    let first = Some(data_event(Bytes::from(first)));
    let open =
        OpenSubscription { client: client.clone(), upstream: Arc::clone(upstream), call, heard, first };
    Ok(events_reply(EventBody::new(stream::unfold(Some(open), |open| async move {
        let mut open = open?;
        let event = open.next().await;
        event.map(|(event, goes_on)| (Ok::<_, BrokenReply>(event), goes_on.then_some(open)))
    }))))
}

/// A client's subscription to resources of a legacy server.
struct OpenSubscription {
    client: Client,
    upstream: Arc<Upstream>,
    call: ModernCall,
    heard: Option<ResourceStream>,
    /// The acknowledgement, until it is told.
    first: Option<Bytes>,
}

impl OpenSubscription {
    /// The next event, and whether others follow.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        if let Some(first) = self.first.take() {
            return Some((first, true));
        }
        let Self { client, upstream, call, heard, .. } = self;
        let end = || data_event(Bytes::from(subscription::completion(&call.id)));
        let told = async {
            match heard {
                Some(heard) => heard.next(client, upstream, &call.id).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            told = told => Some(match told {
                Ok(event) => (event, true),
                Err(error) => (data_event(Bytes::from(failure(call, error))), false),
            }),
            // It is to be asked natively, or not at all.
            () = crosses_no_more(upstream) => Some((end(), false)),
            () = client.pipes.leaving() => Some((end(), false)),
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

/// What is heard of resources.
struct ResourceStream {
    subscription: ResourceSession,
    messages: Messages,
    lease: Option<ConnectionLease>,
    at: StreamPosition,
}

impl ResourceStream {
    /// Subscribes. `None`: the server offers no such thing.
    async fn open(
        client: &Client,
        upstream: &Arc<Upstream>,
        call: &ModernCall,
        uris: Vec<Name>,
    ) -> Result<Option<Self>, UpstreamError> {
        let opening =
            ResourceSession::open(client.clone(), Arc::clone(upstream), call.caller.clone(), call.deadline);
        let mut subscription = apart(client, || true, opening).await?;
        if !subscription.is_offered() || subscription.name.id.is_none() {
            return Ok(None);
        }
        let named = subscription.name.named();
        let reply = match get_stream::open(client, upstream, named, None).await {
            get_stream::GetResult::Stream(reply) => *reply,
            get_stream::GetResult::Refused => return Ok(None),
            get_stream::GetResult::Doubtful => return Err(UpstreamError::SessionLost),
            get_stream::GetResult::Failed(error) => return Err(error.unwrap_or(UpstreamError::Nonsense)),
        };
        subscription.subscribe(uris).await;
        let limits = client.pipes.shared.limits();
        let messages = Messages::new(reply.body, limits.message_bytes_max, &limits.budget);
        Ok(Some(Self { subscription, messages, lease: reply.lease, at: StreamPosition::default() }))
    }

    /// The next event. May be dropped and called again.
    async fn next(
        &mut self,
        client: &Client,
        upstream: &Arc<Upstream>,
        id: &str,
    ) -> Result<Bytes, UpstreamError> {
        loop {
            let event = match self.messages.next().await {
                Ok(Some(event)) => event,
                Err(error @ UpstreamError::TooLarge) => return Err(error),
                Ok(None) | Err(_) => {
                    self.resume(client, upstream).await?;
                    continue;
                }
            };
            let Some(message) = self.at.take(event) else { return Ok(Bytes::from_static(COMMENT)) };
            if is_update(client, &message) {
                let told = with_memory(client, |memory| notification::in_subscription(&message, id, memory));
                let told: Segments = told.map_err(|_| UpstreamError::Nonsense)?;
                return Ok(data_event(told));
            }
            fire_and_forget::refuse(client, upstream, &self.subscription.name, &message);
        }
    }

    async fn resume(&mut self, client: &Client, upstream: &Upstream) -> Result<(), UpstreamError> {
        // What was said meanwhile is only told to those who say where they stopped.
        sleep(self.at.pause_before_rest().ok_or(UpstreamError::Reset)?).await;
        match self.at.open(client, upstream, &self.subscription.name).await {
            position::ResumeResult::Stream(reply) => {
                self.at.stand();
                let limits = client.pipes.shared.limits();
                self.messages = Messages::new(reply.body, limits.message_bytes_max, &limits.budget);
                self.lease = reply.lease;
                Ok(())
            }
            position::ResumeResult::Failed => Ok(()),
            position::ResumeResult::Refused | position::ResumeResult::UnknownEvent => {
                Err(UpstreamError::Reset)
            }
        }
    }
}

fn is_update(client: &Client, message: &Bytes) -> bool {
    let envelope = with_memory(client, |(scratch, depth_max)| Envelope::parse(scratch, message, depth_max));
    envelope.is_ok_and(|envelope| {
        let method = envelope.method.as_ref();
        envelope.kind == MessageKind::Notification
            && method.is_some_and(|method| method.equals(message, "notifications/resources/updated"))
    })
}

/// The session of a subscription. Dropped, it ends.
struct ResourceSession {
    client: Client,
    upstream: Arc<Upstream>,
    /// Those that the server tells of.
    uris: Vec<Name>,
    opened: Option<InitializedSession>,
    name: SessionName,
    /// The id of the last request.
    last_id: Cell<u64>,
    held: Option<(GaugeGuard, QuotaPermit)>,
}

impl ResourceSession {
    async fn open(
        client: Client,
        upstream: Arc<Upstream>,
        caller: BridgedCaller,
        deadline: Instant,
    ) -> Result<Self, UpstreamError> {
        let place = upstream.bridge.as_modern.place(&upstream)?;
        let offer =
            InitializeOffer { principal: &caller.principal, ..InitializeOffer::own(LegacyVersion::NEWEST) };
        let opened = with_asker(&client, async |asker: Asker<'_>| {
            super::open_session(&asker, &upstream, offer, deadline).await
        });
        let opened = opened.await?;
        let held = Some((GaugeGuard::new(&upstream.bridge.series.sessions.modern), place));
        let name = SessionName::from(&opened);
        let last_id = Cell::new(OPENING_ID);
        Ok(Self { client, upstream, uris: Vec::new(), opened: Some(opened), name, last_id, held })
    }

    fn is_offered(&self) -> bool {
        let Some(opened) = &self.opened else { return false };
        with_memory(&self.client, |(scratch, depth_max)| {
            let root = scratch.index(&opened.result, depth_max).map(Document::root).ok();
            let offered = root.and_then(|root| root.get("capabilities")?.get("resources")?.get("subscribe"));
            offered.map(Value::raw) == Some(b"true")
        })
    }

    async fn subscribe(&mut self, uris: Vec<Name>) {
        let this = &*self;
        let asked = stream::iter(uris).map(|uri| async move {
            let is_subscribed = this.ask("resources/subscribe", &uri).await;
            is_subscribed.then_some(uri)
        });
        let asked: Vec<Option<Name>> = asked.buffered(ASKING_MAX).collect().await;
        self.uris = asked.into_iter().flatten().collect();
    }

    /// Whether the server agrees.
    async fn ask(&self, method: &str, uri: &Name) -> bool {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"uri":{}}}}}"#,
            quote(&uri.value)
        );
        let question = fire_and_forget::question(&self.name, message.into(), ANSWER_BYTES_MAX, ASK_TIMEOUT);
        let answer =
            with_asker(&self.client, async |asker: Asker<'_>| asker.ask(&self.upstream, question).await);
        let Ok(answer) = answer.await else { return false };
        with_memory(&self.client, |(scratch, depth_max)| {
            let root = scratch.index(&answer.body, depth_max).map(Document::root).ok();
            root.is_some_and(|root| root.get("result").is_some())
        })
    }

    /// Takes everything back.
    async fn end(&self, opened: &InitializedSession) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let is_closed = with_asker(&self.client, async |asker: Asker<'_>| {
            initialize::close(&asker, &self.upstream, opened, deadline).await
        });
        if is_closed.await {
            return;
        }
        let unsubscribing = stream::iter(&self.uris).for_each_concurrent(ASKING_MAX, |uri| async move {
            self.ask("resources/unsubscribe", uri).await;
        });
        // Nobody waits for what it says.
        let _ = timeout_at(deadline.into(), unsubscribing).await;
    }
}

impl Drop for ResourceSession {
    fn drop(&mut self) {
        let Some(opened) = self.opened.take() else { return };
        let ending = Self {
            client: self.client.clone(),
            upstream: Arc::clone(&self.upstream),
            uris: std::mem::take(&mut self.uris),
            opened: None,
            name: self.name.clone(),
            last_id: self.last_id.clone(),
            held: self.held.take(),
        };
        self.client.pipes.run(async move { ending.end(&opened).await });
    }
}
