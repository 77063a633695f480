//! Sessions that several replicas carry on: their state is in Redis as well, and what ends them is told.
//!
//! A session's state is a hash there, with a field for each thing that may change by itself: a line of the journal,
//! sealed with the session keys, so that who reads Redis learns no upstream session id and who writes it can invent
//! none. A replica reads the hash when it first meets the session, and again when it may have missed something.
//!
//! What stands in Redis counts. What a replica knows and Redis does not is told to Redis, so that what changed while it
//! was away, or what it has lost, comes back as sessions are used.
//!
//! An upstream session is looked for there before one is opened. Of two replicas that opened one at the same time the
//! first keeps it; where Redis did not answer the second, that one learns of it with the session's next message. One
//! that an upstream has forgotten stays there until it is replaced: who meets it, loses it as well, and the first to
//! open another puts it in that one's place, and no other's.
//!
//! A session that is used at one replica is left alone by the others: whoever uses it, or holds a stream or a call of it,
//! says so four times while it would become idle, by a key that Redis lets expire by its own clock, so that nobody's clock
//! is compared with another's. Who finds a session idle asks for that key first. The first to find none closes the upstream
//! sessions that stand in Redis, and leaves their names there for a while, so that the others forget theirs unsaid. Should the
//! process that uses a session die, the session is idle a quarter of that time and `LATE_S` later than it would be.
//!
//! Deliberately not here: sessions of the gateway's own; what is on its way in a session ([`super::outbox`]); streams of
//! upstreams. Without Redis each replica goes on with what it knows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use redis::{Script, cmd, pipe};

use super::journal::{JournalRecord, Replay, ReplayedSession};
use super::session_state::{ClosedSession, UpstreamSession};
use super::sweep::IdleFate;
use super::table::SEEN_PER_SHARD_MAX;
use super::{SessionId, SessionOwner, Sessions, place_for};
use crate::access::limit::quota::SharedQuotaPermit;
use crate::clock::now_s;
use crate::redis::peer_message::PeerMessage;
use crate::redis::{Redis, Unavailable, Urgency};
use crate::sealing::{KEY_ID_BYTES, NONCE_BYTES, SealingKeys, TAG_BYTES};

/// What the field of an upstream session, the log level and a subscription begin with.
const OPENED: &str = "o";
const LEVEL: &str = "l";
const SUBSCRIBED: &str = "r";

/// How late others may be told that a session is used, beyond a quarter of the time in which it becomes idle: sweeps are a
/// second apart, and what is told waits for what was told before it.
const LATE_S: u64 = 2;
/// How much later than by the clock of Redis a session may expire by another one.
const CLOCKS_S: u64 = 60;
/// How long the names of closed upstream sessions are left, beyond twice the time in which a session becomes idle.
const CLOSED_S: u64 = 60;

/// Puts an upstream session in its place, unless the session was ended or another one stands there. Returns nothing
/// (ended), 1, or what stands there.
static PUT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        if redis.call('EXISTS', KEYS[2]) == 1 then return false end
        local there = redis.call('HGET', KEYS[1], ARGV[1])
        if there and there ~= ARGV[2] then return there end
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
        redis.call('EXPIREAT', KEYS[1], ARGV[4])
        return 1
        ",
    )
});

/// For how many milliseconds the session still counts as used. If it does not, its upstream sessions are taken out of its
/// state: they are the caller's to close. Returns those, and those that others have taken out before. Returns nothing, and
/// does nothing, where Redis does not know the caller any more: then it has lost what others told it, too.
static LEAVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local left = redis.call('PTTL', KEYS[1])
        if left > 0 then return {left, {}, {}} end
        if redis.call('HEXISTS', KEYS[4], ARGV[2]) == 0 then return false end
        local before = redis.call('HGETALL', KEYS[3])
        local state, taken = redis.call('HGETALL', KEYS[2]), {}
        for i = 1, #state, 2 do
            if string.sub(state[i], 1, 2) == 'o:' then
                table.insert(taken, state[i])
                table.insert(taken, state[i + 1])
                redis.call('HSET', KEYS[3], state[i], state[i + 1])
                redis.call('EXPIRE', KEYS[3], ARGV[1])
                redis.call('HDEL', KEYS[2], state[i])
            end
        end
        return {0, taken, before}
        ",
    )
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerQueries {
    Away,
    /// There is one, but not for long: what Redis has lost meanwhile is not told again yet.
    Joining,
    Answer,
}

/// What Redis has of a session.
type RedisHash = Vec<(Vec<u8>, Vec<u8>)>;

/// What was found in the place of an upstream session.
#[derive(Debug, Default)]
pub(crate) struct StoredSession {
    pub usable: Option<UpstreamSession>,
    /// What stands there, to be replaced.
    sealed: Vec<u8>,
}

impl Sessions {
    /// Whether others may know more of the session.
    pub(crate) fn is_news(&self, session: SessionId) -> bool {
        let Some(shared) = &self.shared else { return false };
        shared.is_connected() && !self.table.shard(session).has_seen(session, shared.epoch())
    }

    /// Reads what others know of the session, once for all who ask. Returns upstream sessions that are no longer used,
    /// for the caller to close.
    pub(crate) async fn learn(&self, session: SessionId, expires_s: u64) -> Vec<ClosedSession> {
        let Some(shared) = &self.shared else { return Vec::new() };
        let learn = async {
            let _turn = self.table.turn(session).lock().await;
            let epoch = shared.epoch();
            if !self.is_news(session) {
                return Vec::new();
            }
            let mut pipeline = pipe();
            pipeline.exists(ended_key(shared, session)).hgetall(state_key(shared, session));
            let answer: Result<(bool, RedisHash), Unavailable> = shared.pipeline(&pipeline).await;
            let Ok((is_ended, fields)) = answer else { return Vec::new() };
            let closed = if is_ended {
                self.end_here(session, expires_s)
            } else {
                self.adopt(session, expires_s, &fields)
            };
            self.table.shard(session).see(session, epoch, SEEN_PER_SHARD_MAX);
            closed
        };
        // Who waits for another's turn waits no longer than for its own.
        tokio::time::timeout(shared.timeout(), learn).await.unwrap_or_default()
    }

    /// The session's session with an upstream, if another replica has opened it.
    pub(crate) async fn find(&self, session: SessionId, upstream: &str) -> StoredSession {
        let Some(shared) = self.shared.as_ref().filter(|_| !session.is_own()) else {
            return StoredSession::default();
        };
        let (key, field) = (state_key(shared, session), field_of(OPENED, &[upstream]));
        let mut command = cmd("HGET");
        command.arg(&key).arg(&field);
        let sealed = match shared.command::<Option<Vec<u8>>>(&command).await {
            Ok(Some(sealed)) => sealed,
            Ok(None) => return StoredSession::default(),
            Err(_) => {
                self.table.shard(session).doubt(session);
                return StoredSession::default();
            }
        };
        let usable = self.read_opened(session, upstream, &sealed);
        StoredSession { usable: usable.filter(|found| !self.is_lost(session, upstream, found)), sealed }
    }

    /// Tells others of an upstream session that was opened in place of what was found. Returns the one that another
    /// replica has opened meanwhile: then that one counts.
    pub(crate) async fn put(
        &self,
        (session, expires_s): (SessionId, u64),
        upstream: &str,
        found: &StoredSession,
        opened: &UpstreamSession,
    ) -> Option<UpstreamSession> {
        let shared = self.shared.as_ref().filter(|_| !session.is_own() && opened.id.is_some())?;
        let (key, field) = (state_key(shared, session), field_of(OPENED, &[upstream]));
        let record = JournalRecord::Opened { session, expires_s, upstream, opened };
        let sealed = self.seal_record(session, &field, &record)?;
        let arguments =
            [field.as_bytes(), &found.sealed, &sealed, expires_s.to_string().as_bytes()].map(<[u8]>::to_vec);
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let there = shared.script(&PUT, &[&key, &ended_key(shared, session)], &arguments).await;
        match there {
            Ok(redis::Value::BulkString(there)) => self.read_opened(session, upstream, &there),
            Ok(_) => None,
            Err(_) => {
                self.table.shard(session).doubt(session);
                None
            }
        }
    }

    /// Another replica told something. Upstream sessions of a session that was ended are closed by the next sweep, but for
    /// those that the other replica closes. `is_local`: whether sessions with an upstream are this process's alone.
    pub(crate) fn hear(&self, sealed: &[u8], is_local: impl Fn(&str) -> bool) {
        let Some(record) = open(&self.keys.load(), ENDED_CLEAR, sealed) else {
            tracing::debug!("another replica ended a session that cannot be one of ours");
            return;
        };
        let ids = record.split_first_chunk().and_then(|(id, rest)| Some((*id, *rest.first_chunk()?)));
        let Some((id, expires_s)) = ids else { return };
        let session = SessionId(u128::from_be_bytes(id));
        let mut closed = self.end_here(session, u64::from_be_bytes(expires_s));
        let closed_there = record.get(id.len() + expires_s.len()..).unwrap_or_default();
        closed.retain(|(upstream, held)| {
            let name = name_of(upstream, held);
            is_local(upstream) || !closed_there.chunks_exact(name.len()).any(|there| *there == name)
        });
        self.strand(closed);
    }

    pub(crate) fn key_names(&self) -> String {
        self.keys.load().names()
    }

    pub(super) fn share(&self, record: &JournalRecord<'_>) {
        let Some(shared) = &self.shared else { return };
        let session = record.session();
        if session.is_own() {
            return;
        }
        let key = state_key(shared, session);
        let commands = match *record {
            // Put in its place by who opened it, and told by who ended it.
            JournalRecord::Opened { .. } | JournalRecord::Ended { .. } => return,
            JournalRecord::Level { expires_s, .. } => self.set(&key, LEVEL.to_owned(), record, expires_s),
            JournalRecord::Subscribed { expires_s, upstream, uri, .. } => {
                self.set(&key, field_of(SUBSCRIBED, &[upstream, uri]), record, expires_s)
            }
            JournalRecord::Unsubscribed { upstream, uri, .. } => {
                vec![remove(&key, &field_of(SUBSCRIBED, &[upstream, uri]))]
            }
            JournalRecord::Lost { upstream, .. } => vec![remove(&key, &field_of(OPENED, &[upstream]))],
            JournalRecord::Dropped { .. } => vec![cmd("DEL").arg(&key).clone()],
        };
        if !commands.is_empty() {
            shared.tell(commands, Urgency::Dropped);
        }
    }

    /// Tells others that the session was used so long ago, or now. False: there is no way to.
    pub(super) fn share_use(&self, session: SessionId, unused_s: u64) -> bool {
        let Some(shared) = self.shared.as_ref().filter(|_| !session.is_own()) else { return true };
        let idle_s = self.idle_s.load(Ordering::Relaxed);
        let counts_s = (idle_s + self.tell_interval_s() + LATE_S).saturating_sub(unused_s);
        if counts_s > 0 {
            let mut used = cmd("SET");
            used.arg(used_key(shared, session)).arg(1).arg("EX").arg(counts_s);
            return shared.tell(vec![used], Urgency::Dropped);
        }
        true
    }

    /// Tells others that a session is over, and which of its upstream sessions are closed here.
    pub(super) fn share_end(&self, session: SessionId, expires_s: u64, closed: &[ClosedSession]) {
        let Some(shared) = self.shared.as_ref().filter(|_| !session.is_own()) else { return };
        shared.tell(self.end_commands(shared, session, expires_s, closed), Urgency::Kept);
    }

    /// Whether others can be told now of the sessions that are used.
    pub(super) fn can_tell(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_connected())
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether others can be asked now of the sessions that they use.
    pub(super) fn others(&self, now_s: u64) -> PeerQueries {
        let Some(shared) = self.shared.as_ref().filter(|shared| shared.is_connected()) else {
            return PeerQueries::Away;
        };
        if self.joined_epoch.swap(shared.epoch(), Ordering::Relaxed) != shared.epoch() {
            self.joined_s.store(now_s, Ordering::Relaxed);
        }
        let joined_s = self.joined_s.load(Ordering::Relaxed);
        let is_told = now_s.saturating_sub(joined_s) >= self.tell_interval_s() + LATE_S;
        if is_told { PeerQueries::Answer } else { PeerQueries::Joining }
    }

    /// Asks whether sessions that are idle here are used elsewhere, and leaves those that are not. Their upstream
    /// sessions are closed by the next sweep, but for those that another replica has closed. `is_local`: whether the
    /// sessions with an upstream are this process's alone, which nobody else can close.
    pub(crate) async fn leave_unused(
        &self,
        is_irreplaceable: impl Fn(&str) -> bool,
        is_local: impl Fn(&str) -> bool,
    ) {
        let Some(shared) = &self.shared else { return };
        let idle = std::mem::take(&mut *self.unsure.lock());
        let (replicas, replica) = (shared.replicas_name(), shared.replica_name());
        let closed_s = (2 * self.idle_s.load(Ordering::Relaxed) + CLOSED_S).to_string();
        for session in idle {
            let keys = [used_key(shared, session), state_key(shared, session), closed_key(shared, session)];
            let keys = [&*keys[0], &*keys[1], &*keys[2], &*replicas];
            let answer = shared.script(&LEAVE, &keys, &[closed_s.as_bytes(), replica.as_bytes()]).await;
            let Ok(Some((left_ms, taken, before))): Result<Option<(u64, RedisHash, RedisHash)>, _> = answer
            else {
                continue;
            };
            if left_ms > 0 {
                if let Some(entry) = self.table.entry(session) {
                    let until_s = now_s().saturating_add(left_ms.div_ceil(1000));
                    entry.used_elsewhere_until_s.store(until_s, Ordering::Relaxed);
                }
                continue;
            }
            let Some(mut closed) = self.leave_one(session, &is_irreplaceable) else {
                // It is used by now: what was taken out of its state belongs there.
                if let Some(entry) = self.table.entry(session) {
                    let closed = self.learn(session, entry.expires_s).await;
                    self.strand(closed);
                }
                continue;
            };
            let upstreams = |fields| self.replay(session, fields).unwrap_or_default().upstreams;
            let (taken, before) = (upstreams(&taken), upstreams(&before));
            closed.retain(|(upstream, held)| {
                let is = |of: Option<&UpstreamSession>| of == Some(&**held);
                is_local(upstream) || is(taken.get(upstream)) || !is(before.get(upstream))
            });
            for (upstream, session) in taken {
                if !closed.iter().any(|(of, held)| *of == upstream && **held == session) {
                    closed.push((upstream, Arc::new(session)));
                }
            }
            self.strand(closed);
        }
    }

    /// Leaves a session that nobody uses elsewhere. `None`: it is used here by now.
    fn leave_one(
        &self,
        session: SessionId,
        is_irreplaceable: impl Fn(&str) -> bool,
    ) -> Option<Vec<ClosedSession>> {
        let (now_s, idle_s) = (now_s(), self.idle_s.load(Ordering::Relaxed));
        let mut shard = self.table.shard(session);
        let mut closed = Vec::new();
        let Some(entry) = shard.live.get(&session) else { return Some(closed) };
        if Arc::strong_count(entry) > 1 || !entry.is_idle(now_s, idle_s) {
            // What was taken out of its state is told again.
            shard.doubt(session);
            return None;
        }
        let expires_s = entry.expires_s;
        let becomes = self.leave(session, entry, now_s, is_irreplaceable, &mut closed);
        if becomes != IdleFate::Resting {
            shard.live.remove(&session);
        }
        if becomes == IdleFate::Ended {
            self.revoke(&mut shard, session, expires_s);
        }
        Some(closed)
    }

    /// Ends a session that was ended elsewhere.
    fn end_here(&self, session: SessionId, expires_s: u64) -> Vec<ClosedSession> {
        let mut shard = self.table.shard(session);
        if shard.is_revoked(session) {
            return Vec::new();
        }
        let closed = self.take_ended(&mut shard, session, expires_s);
        self.journal.write(&JournalRecord::Ended { session, expires_s });
        closed
    }

    /// Takes over what Redis has, and tells Redis what it lacks.
    fn adopt(&self, session: SessionId, expires_s: u64, fields: &RedisHash) -> Vec<ClosedSession> {
        let there = self.replay(session, fields);
        if there.is_none() && self.table.entry(session).is_none() {
            return Vec::new();
        }
        let there = there.unwrap_or_default();
        // Whose it is Redis does not say.
        let owner = SessionOwner { session, expires_s, principal: "" };
        let Ok(entry) = self.entry(owner) else { return Vec::new() };
        let mut changing = entry.lock();
        if changing.is_closed {
            return Vec::new();
        }
        match (there.level, changing.level) {
            (Some(level), _) => changing.level = Some(level),
            (None, Some(level)) => self.share(&JournalRecord::Level { session, expires_s, level }),
            (None, None) => {}
        }
        for (upstream, uri) in changing.subscribed.iter() {
            if !there.subscribed.has(upstream, uri) {
                self.share(&JournalRecord::Subscribed { session, expires_s, upstream, uri });
            }
        }
        for (upstream, uri) in there.subscribed.iter() {
            // It was within the bound when it was written.
            let _ = changing.subscribed.add(upstream, uri, usize::MAX);
        }
        let mut closed = Vec::new();
        for (upstream, opened) in changing.all_opened() {
            if !there.upstreams.contains_key(&upstream) && opened.id.is_some() {
                let record =
                    JournalRecord::Opened { session, expires_s, upstream: &upstream, opened: &opened };
                self.share_opened(&record, &upstream);
            }
        }
        for (upstream, opened) in there.upstreams {
            let slot = changing.slot(&upstream);
            if slot.session().is_some_and(|known| *known == opened) || slot.has_lost(&opened) {
                continue;
            }
            let Some(place) = place_for(session, &self.upstream_room) else { continue };
            closed.extend(slot.take().map(|replaced| (upstream.clone(), replaced)));
            slot.keep(Arc::new(opened), SharedQuotaPermit::new(place, None, ""));
        }
        closed
    }

    fn share_opened(&self, record: &JournalRecord<'_>, upstream: &str) {
        let (Some(shared), JournalRecord::Opened { session, expires_s, .. }) = (&self.shared, *record) else {
            return;
        };
        let (key, field) = (state_key(shared, session), field_of(OPENED, &[upstream]));
        if let Some(sealed) = self.seal_record(session, &field, record) {
            let put = cmd("HSETNX").arg(&key).arg(&field).arg(sealed).clone();
            shared.tell(vec![put, expire(&key, expires_s)], Urgency::Dropped);
        }
    }

    /// What the fields say. `None`: nothing.
    fn replay(&self, session: SessionId, fields: &RedisHash) -> Option<ReplayedSession> {
        let keys = self.keys.load();
        let mut lines = Vec::new();
        for (field, sealed) in fields {
            lines.extend(open(&keys, &clear_of(session, field), sealed).unwrap_or_default());
        }
        let mut replay = Replay::read(&*lines, now_s()).ok()?;
        replay.sessions.remove(&session)
    }

    fn read_opened(&self, session: SessionId, upstream: &str, sealed: &[u8]) -> Option<UpstreamSession> {
        let field = field_of(OPENED, &[upstream]).into_bytes();
        self.replay(session, &vec![(field, sealed.to_vec())])?.upstreams.remove(upstream)
    }

    fn is_lost(&self, session: SessionId, upstream: &str, found: &UpstreamSession) -> bool {
        self.table.entry(session).is_some_and(|entry| entry.lock().slot(upstream).has_lost(found))
    }

    fn set(&self, key: &str, field: String, record: &JournalRecord<'_>, expires_s: u64) -> Vec<redis::Cmd> {
        let Some(sealed) = self.seal_record(record.session(), &field, record) else { return Vec::new() };
        vec![cmd("HSET").arg(key).arg(field).arg(sealed).clone(), expire(key, expires_s)]
    }

    fn seal_record(&self, session: SessionId, field: &str, record: &JournalRecord<'_>) -> Option<Vec<u8>> {
        seal(&self.keys.load(), &clear_of(session, field.as_bytes()), record.line()?.as_bytes())
    }

    fn end_commands(
        &self,
        shared: &Redis,
        session: SessionId,
        expires_s: u64,
        closed: &[ClosedSession],
    ) -> Vec<redis::Cmd> {
        let (mut ended, mut state) = (cmd("SET"), cmd("DEL"));
        // Some gateway's clock may be behind that of Redis.
        ended.arg(ended_key(shared, session)).arg(1).arg("EXAT").arg(expires_s.saturating_add(CLOCKS_S));
        state.arg(state_key(shared, session));
        let mut record = [&session.0.to_be_bytes()[..], &expires_s.to_be_bytes()].concat();
        record.extend(closed.iter().flat_map(|(upstream, held)| name_of(upstream, held)));
        let sealed = seal(&self.keys.load(), ENDED_CLEAR, &record);
        let told = sealed.map(|sealed| shared.publish(&PeerMessage::Ended(sealed)));
        [ended, state].into_iter().chain(told).collect()
    }
}

const ENDED_CLEAR: &[u8] = b"trunkline session ended";

fn state_key(shared: &Redis, session: SessionId) -> String {
    shared.key("session", &[&session.0.to_be_bytes()])
}

fn ended_key(shared: &Redis, session: SessionId) -> String {
    shared.key("ended", &[&session.0.to_be_bytes()])
}

/// There as long as the session counts as used.
fn used_key(shared: &Redis, session: SessionId) -> String {
    shared.key("used", &[&session.0.to_be_bytes()])
}

/// The upstream sessions that were closed because nobody used the session.
fn closed_key(shared: &Redis, session: SessionId) -> String {
    shared.key("closed", &[&session.0.to_be_bytes()])
}

/// An upstream session, as it is told of to others.
fn name_of(upstream: &str, session: &UpstreamSession) -> [u8; 32] {
    let id = session.id.as_ref().map(http::HeaderValue::as_bytes).unwrap_or_default();
    let digest = crate::redis::digest(&[upstream.as_bytes(), id]);
    digest.as_bytes().try_into().unwrap_or([0; 32])
}

fn field_of(what: &str, pieces: &[&str]) -> String {
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
    format!("{what}:{}", crate::redis::digest(&pieces))
}

fn expire(key: &str, expires_s: u64) -> redis::Cmd {
    cmd("EXPIREAT").arg(key).arg(expires_s).clone()
}

fn remove(key: &str, field: &str) -> redis::Cmd {
    cmd("HDEL").arg(key).arg(field).clone()
}

/// A record belongs to its session and its field alone.
fn clear_of(session: SessionId, field: &[u8]) -> Vec<u8> {
    [b"trunkline session state", &session.0.to_be_bytes()[..], field].concat()
}

/// The name of the key, a nonce, the text under the key, its tag.
pub(super) fn seal(keys: &SealingKeys, clear: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).ok()?;
    let mut text = text.to_vec();
    let tag = keys.seal(nonce, clear, &mut text)?;
    Some([&keys.sealing_id()[..], &nonce, &text, &tag].concat())
}

/// Opens what [`seal`] made.
pub(super) fn open(keys: &SealingKeys, clear: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (id, rest) = sealed.split_first_chunk::<KEY_ID_BYTES>()?;
    let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
    let (text, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
    let mut text = text.to_vec();
    keys.open(*id, *nonce, clear, &mut text, *tag).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_belongs_where_it_was_put() {
        let keys = SealingKeys::from_text(&"7".repeat(64)).expect("keys");
        let (one, other) = (SessionId(1 << 100), SessionId(2 << 100));
        let sealed = seal(&keys, &clear_of(one, b"l"), b"a line").expect("sealed");
        assert!(!sealed.windows(4).any(|some| some == b"line"));
        assert_eq!(open(&keys, &clear_of(one, b"l"), &sealed).as_deref(), Some(&b"a line"[..]));
        for clear in [clear_of(other, b"l"), clear_of(one, b"r"), ENDED_CLEAR.to_vec()] {
            assert_eq!(open(&keys, &clear, &sealed), None);
        }
        for end in 0..sealed.len() {
            assert_eq!(open(&keys, &clear_of(one, b"l"), &sealed[..end]), None, "{end}");
        }
    }
}
