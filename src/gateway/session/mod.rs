//! Sessions of the legacy era, as one value that all threads share. No sockets, no HTTP, no clock: callers say
//! what time it is, in seconds of Unix time.
//!
//! What `initialize` settled is in the session id itself ([`tokens::session_token`]), so that a session costs nothing until it
//! is used and lives as long as its key ([`tokens::sealing`]), not as long as this process. What changes afterwards is
//! *state*: upstream sessions, the log level, and that a session was ended. State is held in memory, in
//! shards, and written behind to a journal ([`journal`]) that is read back at start ([`store`]).
//!
//! State is dropped when its session expires, is ended, or was idle for long. A client session whose state was
//! dropped goes on: its id still opens, and its upstream sessions are opened anew. What an idle client asked for, its
//! log level and its subscriptions, is kept as long as less than half of the sessions that may have state do.
//!
//! # Bounds
//!
//! Sessions with state and upstream sessions are bounded, for each principal, too; beyond, nothing new is
//! kept and the caller is told. The gateway's own sessions always have room. What was read back at start is not counted
//! against its principals, whom the journal does not name.
//! Ending a session is never refused: when a shard has as many ended sessions as it can remember, it forgets
//! the one that expires next. That one's id opens again for the rest of its time, for the same principal at
//! the same endpoint, which is less harm than to end sessions of others. It is counted and logged.
//!
//! Invariants: no shard or entry is locked across an await; a session that was ended gets no new state; an
//! upstream session is either kept in one entry, or was handed out to be closed.

pub(crate) mod cancellations;
pub(crate) mod eviction;
mod given_ids;
pub(crate) mod grant;
pub(crate) mod journal;
mod journal_writer;
pub(crate) mod list_lease;
mod list_pool;
pub(crate) mod message_queue;
pub(crate) mod outbox;
mod rate;
pub(crate) mod replication;
pub(crate) mod session_cache;
pub(crate) mod session_state;
pub(crate) mod store;
pub(crate) mod stream_state;
pub(crate) mod streams;
mod subscribed_uris;
mod sweep;
mod table;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
mod upstream_sessions;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub use self::grant::SessionRequest;
pub(crate) use self::grant::{IssueError, Session};
pub(crate) use self::list_lease::{ListClaim, ListLease, NoLease, WaitingForList};
pub(crate) use self::session_state::{ClosedSession, UpstreamSession};
pub(crate) use self::subscribed_uris::NotSubscribed;
pub(crate) use self::upstream_sessions::UpstreamSessionError;
pub(crate) use protocol::level::Level;
pub(crate) use tokens::grant::{ClientInfo, Grant, NoSession, SessionId};

use self::journal::JournalRecord;
use self::journal_writer::JournalSender;
use self::list_lease::ListPools;
use self::outbox::{NotAttached, ReaderGuard, SessionOutbox};
use self::rate::Rate;
use self::session_cache::SessionCache;
use self::session_state::SessionState;
use self::streams::StreamBounds;
use self::table::{SessionShard, SessionTable};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Share, Shares};
use crate::clock;
use crate::redis::Redis;
use tokens::sealing::{NONCE_BYTES, SealingKeys};
use tokens::session_token;

/// How often a stream is tried to be attached while the state of its session is dropped and made anew.
const ATTACH_ATTEMPTS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoState {
    #[error("too many sessions have state")]
    TooMany,
    #[error("too many sessions of one principal have state")]
    TooManyOfPrincipal,
    #[error("the session was ended")]
    Ended,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOwner<'a> {
    /// The client's session, or one of the gateway's own.
    pub session: SessionId,
    /// When it was opened; 0 where that is not known.
    pub issued_s: u64,
    /// When it ends at the latest.
    pub expires_s: u64,
    /// Who opened it; empty for clients without credentials, and where that is not known.
    pub principal: &'a str,
    /// Where it is used from; `None` for the gateway's own, and those that other gateways answer for.
    pub address: Option<IpAddr>,
}

impl SessionOwner<'_> {
    /// The gateway, or a client of which nothing more is known here.
    pub(crate) fn gateway(session: SessionId, expires_s: u64) -> Self {
        Self { session, issued_s: 0, expires_s, principal: "", address: None }
    }

    /// Who is charged for what it keeps.
    pub(crate) fn payer(&self) -> Payer {
        match self.address {
            Some(address) => Payer::client(self.principal, address),
            None if self.principal.is_empty() => Payer::GATEWAY,
            None => Payer::principal(self.principal),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionCounts {
    /// Sessions with state.
    pub sessions: usize,
    /// Upstream sessions, with those that wait to be closed.
    pub upstream_sessions: usize,
    pub upstream_streams: usize,
    /// Sessions that were ended before they expired.
    pub revoked: usize,
}

/// All sessions of the process.
#[derive(Debug)]
pub struct Sessions {
    keys: ArcSwap<SealingKeys>,
    table: SessionTable,
    /// Of sessions with state.
    places: Arc<Shares>,
    /// Of clients' sessions with upstreams.
    upstream_places: Arc<Shares>,
    /// Of those of the gateway's own sessions that somebody had opened for a list.
    list_places: Arc<Shares>,
    streams: Arc<StreamBounds>,
    /// Of streams that upstreams speak on.
    stream_places: Arc<Shares>,
    initialize_rate: Rate,
    /// Which of the gateway's own sessions are used for lists.
    list_pools: ListPools,
    /// Opened for sessions that were gone by then; closed by the next sweep.
    stranded: Mutex<Vec<(ClosedSession, Option<Share>)>>,
    /// Cancelled at other gateways.
    cancelled: cancellations::PeerCancellations,
    /// Idle here, and perhaps used elsewhere; asked for by and by.
    unsure: Mutex<Vec<SessionId>>,
    expiry_s: AtomicU64,
    idle_s: AtomicU64,
    /// When the process began to open sessions.
    started_s: u64,
    /// The latest time that was heard of.
    now_s: AtomicU64,
    /// When the last sweep was.
    swept_s: AtomicU64,
    /// Over which link sweeps have asked last, and since when there was that one.
    joined_epoch: AtomicU64,
    joined_s: AtomicU64,
    /// The calendar at the last sweep.
    clock: Mutex<Option<(Instant, u64)>>,
    /// Forgotten before they expired, since the last sweep.
    forgotten: AtomicU64,
    journal: JournalSender,
    shared: Option<Arc<Redis>>,
    store: store::Store,
    tasks: Mutex<tasks::TaskTable>,
    tasks_max: AtomicUsize,
    tasks_per_principal_max: AtomicUsize,
    task_expiry_s: AtomicU64,
}

impl Sessions {
    /// A new session and its id for the client. It has no state yet, and costs nothing.
    pub fn issue(&self, opening: &SessionRequest<'_>, now_s: u64) -> Result<(Session, String), IssueError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        let mut grant = Grant {
            id: SessionId::random()?,
            endpoint: opening.endpoint.into(),
            version: opening.version,
            client: ClientInfo {
                name: session_token::cut(opening.client_name).into(),
                title: session_token::cut(opening.client_title).into(),
                version: session_token::cut(opening.client_version).into(),
            },
            capabilities: opening.capabilities.into(),
            principal: opening.principal.into(),
            issued_s: now_s,
            expires_s: now_s.saturating_add(self.expiry_s.load(Ordering::Relaxed)),
        };
        grant.capabilities = session_token::fit_capabilities(&grant);
        let token = session_token::seal(&self.keys.load(), nonce, &grant).ok_or(IssueError::Cipher)?;
        Ok((Session { grant: Arc::new(grant), has_resumption: true, address: opening.address }, token))
    }

    /// The keys that seal what this process gives out and keeps.
    pub(crate) fn keys(&self) -> Arc<SealingKeys> {
        self.keys.load_full()
    }

    /// Opens a session id for a request of `principal` to `endpoint`.
    pub fn open(
        &self,
        token: &str,
        endpoint: &str,
        principal: &str,
        now_s: u64,
    ) -> Result<Session, NoSession> {
        self.open_on(&SessionCache::default(), token, endpoint, (principal, None), now_s)
    }

    /// As [`Sessions::open`] for a request from this address, on a connection that remembers the id that it presented last.
    pub(crate) fn open_on(
        &self,
        remembered: &SessionCache,
        token: &str,
        endpoint: &str,
        (principal, address): (&str, Option<IpAddr>),
        now_s: u64,
    ) -> Result<Session, NoSession> {
        let grant = remembered.open(&self.keys.load(), token, endpoint, principal)?;
        if grant.id.is_own() {
            return Err(NoSession::Unknown);
        }
        if grant.expires_s <= now_s {
            return Err(NoSession::Expired);
        }
        self.hear_time(now_s);
        let shard = self.table.shard(grant.id);
        if shard.is_revoked(grant.id) {
            return Err(NoSession::Revoked);
        }
        if let Some(entry) = shard.live.get(&grant.id) {
            entry.touch(now_s);
            self.tell_if_used(grant.id, entry, now_s);
        }
        Ok(Session { grant, has_resumption: true, address })
    }

    /// Ends a session: from now on its id does not open. Its upstream sessions are the caller's to close.
    pub(crate) fn end(&self, session: SessionId, expires_s: u64) -> Vec<ClosedSession> {
        let mut shard = self.table.shard(session);
        let closed = self.take_ended(&mut shard, session, expires_s);
        self.note_end(session, expires_s, &closed);
        closed
    }

    /// Takes away the state of a session that is over, and remembers that it is.
    fn take_ended(&self, shard: &mut SessionShard, session: SessionId, expires_s: u64) -> Vec<ClosedSession> {
        let entry = shard.live.remove(&session);
        self.revoke(shard, session, expires_s);
        entry.map(|entry| entry.close()).unwrap_or_default()
    }

    fn revoke(&self, shard: &mut SessionShard, session: SessionId, expires_s: u64) {
        if shard.revoke(session, expires_s) {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Room for one more stream of an upstream; `None`: there are as many as there may be.
    pub(crate) fn place_for_stream(&self, payer: Payer) -> Option<Share> {
        self.stream_places.take(payer).ok()
    }

    /// What is on its way in the session.
    pub(crate) fn outbox(&self, owner: SessionOwner<'_>) -> Result<Arc<SessionOutbox>, NoState> {
        Ok(Arc::clone(&self.entry(owner)?.outbox))
    }

    /// Attaches a stream of the client's to what is on its way in the session; `admit` counts it.
    pub(crate) fn attach(
        &self,
        owner: SessionOwner<'_>,
        has_several_upstreams: bool,
        admit: impl Fn(&Arc<StreamBounds>) -> Option<Share>,
    ) -> Result<(Arc<SessionOutbox>, ReaderGuard), NotAttached> {
        for _ in 0..ATTACH_ATTEMPTS_MAX {
            let outbox = self.outbox(owner)?;
            match outbox.attach(has_several_upstreams, &admit) {
                // Its state was dropped just now, and is made anew.
                Err(NotAttached::NoState(NoState::Ended)) => {}
                attached => return attached.map(|reader| (outbox, reader)),
            }
        }
        Err(NoState::Ended.into())
    }

    /// True if state that is made now for a session is the first that it has: the session was opened in this process, and is
    /// younger than state that nobody uses.
    fn is_first_state(&self, issued_s: u64) -> bool {
        let idle_s = self.idle_s.load(Ordering::Relaxed);
        self.shared.is_none() && issued_s > self.started_s && clock::now_s() < issued_s.saturating_add(idle_s)
    }

    pub(crate) fn outbox_if_any(&self, session: SessionId) -> Option<Arc<SessionOutbox>> {
        Some(Arc::clone(&self.table.entry(session)?.outbox))
    }

    pub(crate) fn set_level(&self, owner: SessionOwner<'_>, level: Level) -> Result<(), NoState> {
        let SessionOwner { session, expires_s, .. } = owner;
        let entry = self.entry(owner)?;
        let mut changing = entry.lock();
        if changing.is_closed {
            return Err(NoState::Ended);
        }
        changing.level = Some(level);
        self.note(&JournalRecord::Level { session, expires_s, level });
        Ok(())
    }

    /// The client of a session mirrors parameters of calls in headers. Where there is no room to remember that, it is
    /// held to it in this call alone.
    pub(crate) fn note_mirroring(&self, owner: SessionOwner<'_>) {
        if let Ok(entry) = self.entry(owner) {
            entry.lock().is_mirroring = true;
        }
    }

    pub(crate) fn is_mirroring(&self, session: SessionId) -> bool {
        self.table.entry(session).is_some_and(|entry| entry.lock().is_mirroring)
    }

    pub(crate) fn level(&self, session: SessionId) -> Option<Level> {
        self.table.entry(session)?.lock().level
    }

    /// Whether one more session may be opened by `who` now.
    pub(crate) fn admit(&self, who: Payer, now: Instant) -> bool {
        self.initialize_rate.admit(who, now)
    }

    /// Waits until every change so far would survive the end of the process, and others know of it.
    pub(crate) async fn kept(&self) {
        self.journal.written().await;
        if let Some(shared) = &self.shared {
            shared.said().await;
        }
    }

    pub(crate) fn counts(&self) -> SessionCounts {
        SessionCounts {
            sessions: self.places.taken(),
            upstream_sessions: self.upstream_places.taken(),
            upstream_streams: self.stream_places.taken(),
            revoked: self.table.shards().map(|shard| shard.revoked.len()).sum(),
        }
    }

    /// Counts in a stream that is there before its session. `None`: there are as many as there may be.
    pub(crate) fn admit_stream(&self, payer: Payer) -> Option<Share> {
        self.streams.admit(payer)
    }

    pub(crate) fn open_streams(&self) -> usize {
        self.streams.open()
    }

    /// The state of a session, made where there is none.
    fn entry(&self, owner: SessionOwner<'_>) -> Result<Arc<SessionState>, NoState> {
        let SessionOwner { session, expires_s, .. } = owner;
        let now_s = self.now_s.load(Ordering::Relaxed);
        let mut shard = self.table.shard(session);
        if let Some(entry) = shard.live.get(&session) {
            entry.touch(now_s);
            return Ok(Arc::clone(entry));
        }
        if shard.is_revoked(session) {
            return Err(NoState::Ended);
        }
        let place = place_for(session, &self.places, owner.payer())?;
        let entry = Arc::new(SessionState::new(expires_s, now_s, place, &self.streams));
        if self.is_first_state(owner.issued_s) {
            entry.outbox.begin_given();
        }
        shard.live.insert(session, Arc::clone(&entry));
        self.tell_if_used(session, &entry, now_s);
        Ok(entry)
    }

    /// Writes a change down, and tells others.
    fn note(&self, record: &JournalRecord<'_>) {
        self.journal.write(record);
        self.share(record);
    }

    /// A session is over, and these are closed by this process.
    fn note_end(&self, session: SessionId, expires_s: u64, closed: &[ClosedSession]) {
        self.journal.write(&JournalRecord::Ended { session, expires_s });
        self.share_end(session, expires_s, closed);
    }

    fn hear_time(&self, now_s: u64) {
        // All threads read it, so that it is written once a second and not at every call.
        if self.now_s.load(Ordering::Relaxed) < now_s {
            self.now_s.store(now_s, Ordering::Relaxed);
        }
    }
}

/// Some of the gateway's own sessions are few, and clients cannot take their places.
fn place_for(session: SessionId, places: &Arc<Shares>, payer: Payer) -> Result<Share, NoShare> {
    if session.is_one_of_few() { Ok(places.take_beyond(payer)) } else { places.take(payer) }
}

impl From<NoShare> for NoState {
    fn from(none: NoShare) -> Self {
        match none {
            NoShare::NothingLeft => Self::TooMany,
            NoShare::TooMuchOfPayer => Self::TooManyOfPrincipal,
        }
    }
}
