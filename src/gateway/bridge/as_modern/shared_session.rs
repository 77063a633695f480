//! Sessions with a legacy server that declare nothing: one for all calls of a principal that need nothing else.
//!
//! A session is opened by the first call that needs it, while the others wait. It is kept by a task of the thread that
//! opened it, which hears what the server says beside its answers: requests are refused, and progress goes to the call
//! it is of, whichever thread that is on. It ends when nobody has used it for a while, or when the server forgot it;
//! then the next call opens another.
//!
//! Invariant: a slot is in use from before its session is handed out until the call is over, and is only taken out of
//! the table while it is not in use, lost, or failed to open.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OnceCell, oneshot};
use tokio::time::{sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::session_client::{SessionClient, SessionName};
use super::session_stream::SessionStream;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::bridge::{BridgedCaller, BridgedServer};
use crate::clock;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::initialize::InitializeOffer;
use crate::upstream::mux::queue;
use protocol::error::UpstreamError;
use protocol::json::Document;
use protocol::translation::notification;
use protocol::version::LegacyVersion;

/// How long a session that nobody needs may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sessions with a server, by principal.
#[derive(Debug, Default)]
pub(crate) struct SharedSessions {
    slots: Mutex<HashMap<Arc<str>, Arc<SharedSlot>>>,
    retired: CancellationToken,
}

#[derive(Debug, Default)]
struct SharedSlot {
    session: OnceCell<Arc<SharedSession>>,
    failed: OnceLock<UpstreamError>,
    users: AtomicUsize,
    /// Grows with every use.
    uses: AtomicU64,
    /// Somebody was the last to use it, and when.
    idle: Notify,
    idle_since: Mutex<Option<Instant>>,
}

/// A session that all plain calls of one principal use.
#[derive(Debug)]
pub(crate) struct SharedSession {
    pub name: SessionName,
    /// Calls that hear of their progress, by their ids.
    receivers: Mutex<HashMap<u64, queue::PieceSender>>,
    lost: CancellationToken,
    /// It makes room for another.
    ousted: CancellationToken,
    _counted: GaugeGuard,
    /// Its place, which its payer has until it makes room for another.
    place: Mutex<Share>,
}

#[derive(Debug)]
pub(crate) struct SessionUse {
    /// The session that may be used for as long as this lives.
    pub session: Arc<SharedSession>,
    held: SlotGuard,
}

/// While it lives, a slot is in use.
#[derive(Debug)]
struct SlotGuard {
    upstream: BridgedServer,
    principal: Arc<str>,
    payer: Payer,
    shown: Option<Arc<HeaderMap>>,
    slot: Arc<SharedSlot>,
}

/// While it lives, progress of the call with this id is heard.
#[derive(Debug)]
pub(crate) struct ProgressReceiver {
    /// The id, and the progress token.
    pub id: u64,
    session: Arc<SharedSession>,
}

impl SharedSessions {
    pub(crate) async fn get(
        client: &UpstreamClient,
        upstream: &BridgedServer,
        caller: &BridgedCaller,
        deadline: Instant,
    ) -> Result<SessionUse, UpstreamError> {
        let principal = caller.sessions_of();
        let slot = {
            let mut slots = upstream.bridge.as_modern.shared.slots();
            let slot = slots.entry(Arc::clone(principal)).or_default();
            slot.users.fetch_add(1, Ordering::Relaxed);
            slot.uses.fetch_add(1, Ordering::Relaxed);
            Arc::clone(slot)
        };
        let (upstream, payer, shown) = (upstream.clone(), caller.payer, caller.shown.clone());
        let held = SlotGuard { upstream, principal: Arc::clone(principal), payer, shown, slot };
        if let Some(session) = held.slot.session.get() {
            return Ok(SessionUse { session: Arc::clone(session), held });
        }
        Box::pin(held.use_opened(client, deadline)).await
    }

    /// Nobody uses it any more but those who do.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    /// Of each session that nobody uses: who is charged for it, and since when it is idle.
    pub(crate) fn idle(&self) -> Vec<(Payer, Instant)> {
        self.slots().values().filter_map(|slot| slot.idle()).collect()
    }

    /// Ends the session of a payer that has been idle since then. False: there is none.
    pub(crate) fn make_room(&self, idle: (Payer, Instant)) -> bool {
        let mut slots = self.slots();
        let found = slots.iter().find(|(_, slot)| slot.idle() == Some(idle));
        let found = found.map(|(principal, _)| Arc::clone(principal));
        let Some(slot) = found.and_then(|principal| slots.remove(&principal)) else { return false };
        drop(slots);
        if let Some(session) = slot.session.get() {
            session.place.lock().clear();
            session.ousted.cancel();
        }
        true
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<SharedSlot>>> {
        self.slots.lock()
    }

    /// Takes a slot out if `fits`; `false` if it does not.
    fn remove(&self, principal: &str, slot: &Arc<SharedSlot>, fits: impl FnOnce() -> bool) -> bool {
        let mut slots = self.slots();
        if !fits() {
            return false;
        }
        if slots.get(principal).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            slots.remove(principal);
        }
        true
    }
}

impl SessionUse {
    /// The server does not know the session any more: the next call opens another.
    pub(crate) fn lose(&self) {
        let SlotGuard { upstream, principal, slot, .. } = &self.held;
        upstream.bridge.as_modern.shared.remove(principal, slot, || true);
        self.session.lost.cancel();
    }
}

impl SharedSlot {
    /// Who is charged for its session, and since when nobody uses it. `None`: somebody does, or it is not open.
    fn idle(&self) -> Option<(Payer, Instant)> {
        let session = self.session.get().filter(|_| self.users.load(Ordering::Acquire) == 0)?;
        Some((session.place.lock().payer(), (*self.idle_since.lock())?))
    }
}

impl SlotGuard {
    /// Uses the session once it is open.
    async fn use_opened(
        self,
        client: &UpstreamClient,
        deadline: Instant,
    ) -> Result<SessionUse, UpstreamError> {
        let own = client.clone();
        let begun = Rc::new(Cell::new(false));
        let begins = Rc::clone(&begun);
        let opened = apart(client, move || begun.get(), async move {
            let open = || {
                begins.set(true);
                self.open(&own, deadline)
            };
            let session = self.slot.session.get_or_try_init(open).await?;
            Ok(SessionUse { session: Arc::clone(session), held: self })
        });
        timeout_at(deadline.into(), opened).await.unwrap_or(Err(UpstreamError::TimedOut.before_call()))
    }

    /// Opens the session. Where that fails, it has failed for all who wait: they do not try it one after another.
    async fn open(
        &self,
        client: &UpstreamClient,
        deadline: Instant,
    ) -> Result<Arc<SharedSession>, UpstreamError> {
        let Self { upstream, principal, slot, .. } = self;
        if let Some(error) = slot.failed.get() {
            return Err(error.clone());
        }
        if clock::now() >= deadline {
            return Err(UpstreamError::TimedOut.before_call());
        }
        let opened = open(client, self, deadline).await;
        // Others may have more time.
        if let Some(error) = opened.as_ref().err().filter(|error| !error.is_timeout()) {
            let _ = slot.failed.set(error.clone());
            upstream.bridge.as_modern.shared.remove(principal, slot, || true);
        }
        opened
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let Self { upstream, principal, slot, .. } = self;
        if slot.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        *slot.idle_since.lock() = Some(clock::now());
        slot.idle.notify_waiters();
        if !slot.session.initialized() {
            // No session came of it.
            let is_unused = || slot.users.load(Ordering::Acquire) == 0 && !slot.session.initialized();
            upstream.bridge.as_modern.shared.remove(principal, slot, is_unused);
        }
    }
}

impl SharedSession {
    /// Hears of the progress of the call with this id.
    pub(crate) fn receive_progress(
        self: &Arc<Self>,
        client: &UpstreamClient,
        payer: Payer,
        id: u64,
    ) -> (ProgressReceiver, queue::PieceReceiver) {
        let bounds = client.host.shared.limits().bounds(payer);
        let (sender, receiver) = queue::queue(bounds.waiting_bytes_max, bounds.memory());
        self.receivers.lock().insert(id, sender);
        (ProgressReceiver { id, session: Arc::clone(self) }, receiver)
    }
}

impl Drop for ProgressReceiver {
    fn drop(&mut self) {
        self.session.receivers.lock().remove(&self.id);
    }
}

/// Opens something with the server that is not left half-way where the client goes meanwhile: if that `has_begun`, it is
/// dropped once it is open.
pub(crate) async fn apart<T: 'static>(
    client: &UpstreamClient,
    has_begun: impl Fn() -> bool + 'static,
    opening: impl Future<Output = Result<T, UpstreamError>> + 'static,
) -> Result<T, UpstreamError> {
    let (mut sender, receiver) = oneshot::channel();
    client.host.run(async move {
        let mut opening = std::pin::pin!(opening);
        let opened = tokio::select! {
            opened = &mut opening => opened,
            () = sender.closed() => {
                if !has_begun() {
                    return;
                }
                opening.await
            }
        };
        // Nobody may be there to take it.
        drop(sender.send(opened));
    });
    receiver.await.unwrap_or(Err(UpstreamError::Reset.before_call()))
}

async fn open(
    client: &UpstreamClient,
    held: &SlotGuard,
    deadline: Instant,
) -> Result<Arc<SharedSession>, UpstreamError> {
    let SlotGuard { upstream, principal, payer, shown, slot } = held;
    // Those whom nobody can tell apart share one.
    let payer = if principal.is_empty() { Payer::GATEWAY } else { *payer };
    let place = upstream.bridge.as_modern.place(upstream, payer)?;
    let shown = shown.clone();
    let offer = InitializeOffer { principal, shown, ..InitializeOffer::own(LegacyVersion::NEWEST) };
    let opened = super::open_session(client, upstream, offer, held.payer, deadline).await?;
    let session = Arc::new(SharedSession {
        name: SessionName::from(&opened),
        // Some servers take a token of 0 for none.
        receivers: Mutex::default(),
        lost: CancellationToken::new(),
        ousted: CancellationToken::new(),
        _counted: GaugeGuard::new(&upstream.bridge.series.sessions.modern),
        place: Mutex::new(place),
    });
    let keeper = Keeper {
        server: SessionClient::new(client, upstream, session.name.clone()),
        principal: Arc::clone(principal),
        slot: Arc::clone(slot),
        session: Arc::clone(&session),
    };
    client.host.run(keeper.keep());
    Ok(session)
}

/// Keeps a session until nobody uses it.
struct Keeper {
    server: Rc<SessionClient>,
    principal: Arc<str>,
    slot: Arc<SharedSlot>,
    session: Arc<SharedSession>,
}

impl Keeper {
    async fn keep(self) {
        let Self { server, principal, slot, session } = &self;
        let (is_known, is_ousted) = tokio::select! {
            () = session.lost.cancelled() => (false, false),
            () = self.unused() => (true, false),
            () = session.ousted.cancelled() => (true, true),
            () = server.client.host.cut() => (true, false),
            () = self.hear() => (true, false),
        };
        let server_sessions = &server.bridge.as_modern;
        server_sessions.shared.remove(principal, slot, || true);
        // Another has its place by now: only so many of those that make room wait until the server has heard of it.
        let turn = is_ousted.then(|| server_sessions.exclusive.ending.try_acquire());
        if is_known && !matches!(turn, Some(Err(_))) {
            server.close(CLOSE_TIMEOUT).await;
        }
    }

    /// Completes when nobody has used the session for a while, and nobody finds it any more.
    async fn unused(&self) {
        let Self { server, principal, slot, .. } = self;
        let sessions = &server.bridge.as_modern.shared;
        loop {
            let idle = slot.idle.notified();
            if slot.users.load(Ordering::Acquire) > 0 {
                idle.await;
                continue;
            }
            let uses = slot.uses.load(Ordering::Acquire);
            // The settings may have changed since it was opened.
            let current = server.bridge.server();
            let patience = current.map_or(Duration::ZERO, |now| now.config.bridge.session_idle_timeout);
            tokio::select! {
                () = sleep(patience) => {}
                () = server.client.host.leaving() => {}
                () = sessions.retired.cancelled() => {}
            }
            let is_unused =
                || slot.users.load(Ordering::Acquire) == 0 && slot.uses.load(Ordering::Acquire) == uses;
            if sessions.remove(principal, slot, is_unused) {
                return;
            }
        }
    }

    /// Hears what the server says beside its answers. Never completes.
    async fn hear(&self) {
        let mut stream = SessionStream::of_session(&self.server);
        loop {
            self.take(stream.message().await);
        }
    }

    fn take(&self, message: Bytes) {
        let id = self.server.client.read_json(|(scratch, depth_max)| {
            let root = scratch.index(&message, depth_max).map(Document::root).ok();
            root.and_then(notification::progress_token).and_then(|token| token.parse().ok())
        });
        let Some(id) = id else { return self.server.refuse(&message) };
        if let Some(receiver) = self.session.receivers.lock().get(&id) {
            // Whoever does not keep up misses some of it.
            let _ = receiver.send(queue::MuxPiece { data: message, is_answer: false });
        }
    }
}
