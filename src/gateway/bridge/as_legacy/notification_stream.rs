//! The stream on which a session hears what belongs to no call: changes of the resources it subscribed to, which a modern
//! server tells on a subscription. Changes of lists come from the catalog.
//!
//! The subscription is open only while there is something to hear of, and opened anew whenever that changes, the new one
//! before the old one ends. What may have changed while there was none is told as changed.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::listen::{Listen, ListenError, open};
use super::session::LegacySession;
use super::subscriptions::AgreedUris;
use crate::bridge::{Bridge, or_never};
use crate::clock;
use crate::upstream::exchange::UpstreamClient;
use net::jitter::jittered;
use protocol::json::quote;

/// When a subscription that broke is opened again.
const RETRY: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// One that lived so long shows that the server is well.
const STEADY_AFTER: Duration = Duration::from_secs(30);

type ListenResult = Result<(Listen, HashSet<Box<str>>), ListenError>;
type ListenFuture = Pin<Box<dyn Future<Output = ListenResult>>>;

pub(super) struct NotificationStream {
    client: UpstreamClient,
    bridge: Arc<Bridge>,
    session: Arc<LegacySession>,
    number: u64,
    streams: watch::Receiver<u64>,
    changes: watch::Receiver<u64>,
    listen: Option<Listen>,
    /// What the server tells of while there is a subscription.
    honoured: Arc<HashSet<Box<str>>>,
    /// The number of the change up to which the server was told, or is about to be.
    told: Option<u64>,
    opening: Option<ListenFuture>,
    again_at: Option<Instant>,
    failures: u32,
    since: Instant,
    /// There was no subscription for a while that there should have been.
    has_missed: bool,
    waiting: VecDeque<Bytes>,
}

enum NotificationEvent {
    Over,
    Changed,
    Opened(ListenResult),
    Heard(Option<Bytes>),
    Again,
}

impl NotificationStream {
    /// Begins; an earlier stream of the session ends.
    pub(super) fn new(client: &UpstreamClient, bridge: &Arc<Bridge>, session: &Arc<LegacySession>) -> Self {
        let (number, streams) = session.subscribed.begin_stream();
        Self {
            client: client.clone(),
            bridge: Arc::clone(bridge),
            session: Arc::clone(session),
            number,
            streams,
            changes: session.subscribed.changes(),
            listen: None,
            honoured: Arc::default(),
            told: None,
            opening: None,
            again_at: None,
            failures: 0,
            since: clock::now(),
            has_missed: false,
            waiting: VecDeque::new(),
        }
    }

    /// The next message; `None` once the stream is over.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            self.adjust();
            match self.event().await {
                NotificationEvent::Over => return None,
                NotificationEvent::Changed => {}
                NotificationEvent::Again => self.again_at = None,
                NotificationEvent::Opened(opened) => self.take(opened),
                NotificationEvent::Heard(Some(event)) => return Some(event),
                NotificationEvent::Heard(None) => {
                    self.listen = None;
                    self.told = None;
                    if clock::since(self.since) >= STEADY_AFTER {
                        self.failures = 0;
                    }
                    self.fail();
                }
            }
        }
    }

    /// Begins what the session wants, unless it is under way.
    fn adjust(&mut self) {
        let number = self.session.subscribed.number();
        if self.opening.is_some() || self.again_at.is_some() || self.told == Some(number) {
            return;
        }
        self.told = Some(number);
        let uris = self.session.subscribed.uris();
        if uris.is_empty() {
            self.listen = None;
            self.has_missed = false;
            self.session.subscribed.settle(AgreedUris { number, honoured: Arc::default() });
            return;
        }
        let Some(upstream) = self.bridge.server() else { return };
        self.opening = Some(Box::pin(open(self.client.clone(), upstream, Arc::clone(&self.session), uris)));
    }

    async fn event(&mut self) -> NotificationEvent {
        let Self { client, bridge, session, number, streams, changes, listen, opening, again_at, .. } = self;
        let opened = or_never(opening.as_mut());
        let heard = or_never(listen.as_mut().map(|listen| listen.update(client, session)));
        let again = or_never(again_at.map(|at| sleep_until(at.into())));
        tokio::select! {
            () = session.ended.cancelled() => NotificationEvent::Over,
            () = bridge.as_legacy.retired.cancelled() => NotificationEvent::Over,
            _ = streams.wait_for(|latest| *latest != *number) => NotificationEvent::Over,
            opened = opened => NotificationEvent::Opened(opened),
            heard = heard => NotificationEvent::Heard(heard.ok().map(|message| message.to_bytes())),
            () = again => NotificationEvent::Again,
            // Its sender lives as long as the session.
            _ = changes.changed() => NotificationEvent::Changed,
        }
    }

    fn take(&mut self, opened: ListenResult) {
        self.opening = None;
        let number = self.told.unwrap_or_default();
        match opened {
            Ok((listen, honoured)) => {
                self.listen = Some(listen);
                self.since = clock::now();
                if std::mem::take(&mut self.has_missed) {
                    self.waiting.extend(honoured.iter().map(|uri| updated(uri)));
                }
                self.honoured = Arc::new(honoured);
                self.session.subscribed.settle(AgreedUris { number, honoured: Arc::clone(&self.honoured) });
            }
            Err(ListenError::Refused) => {
                // What was agreed to before stays agreed to.
                let honoured = self.listen.as_ref().map(|_| Arc::clone(&self.honoured));
                self.session.subscribed.settle(AgreedUris { number, honoured: honoured.unwrap_or_default() });
            }
            Err(ListenError::Failed(error)) => {
                let upstream = self.bridge.server();
                let name = upstream.as_ref().map(|upstream| &*upstream.config.name);
                tracing::debug!(upstream = name, error = error.fault(), "a subscription cannot be opened");
                self.told = None;
                self.fail();
            }
        }
    }

    fn fail(&mut self) {
        self.has_missed = true;
        let pause = RETRY.saturating_mul(1 << self.failures.min(8)).min(PAUSE_MAX);
        self.failures += 1;
        self.again_at = Some(clock::now() + jittered(pause, 1.0..1.25));
    }
}

/// Tells of a resource that may have changed.
fn updated(uri: &str) -> Bytes {
    let uri = quote(uri);
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{uri}}}}}"#
    ))
}
