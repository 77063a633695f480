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
//! Deliberately not here: sessions of the gateway's own; what is on its way in a session ([`super::outbox`]); streams of
//! upstreams. Without Redis each replica goes on with what it knows.

mod usage;

use std::sync::{Arc, LazyLock};

use redis::{Script, cmd, pipe};

pub(super) use self::usage::PeerQueries;
use super::journal::{JournalRecord, Replay, ReplayedSession};
use super::session_state::{ClosedSession, UpstreamSession};
use super::table::SEEN_PER_SHARD_MAX;
use super::{SessionId, SessionOwner, Sessions, place_for};
use crate::clock::now_s;
use crate::redis::peer_message::PeerMessage;
use crate::redis::{Redis, Unavailable, Urgency};

/// What the keys of a session begin with.
const STATE: &str = "session";
const ENDED: &str = "ended";
/// There as long as the session counts as used.
const USED: &str = "used";
/// The upstream sessions that were closed because nobody used the session.
const CLOSED: &str = "closed";
/// What the field of an upstream session, the log level and a subscription begin with.
const OPENED: &str = "o";
const LEVEL: &str = "l";
const SUBSCRIBED: &str = "r";

/// How much later than by the clock of Redis a session may expire by another one.
const CLOCKS_S: u64 = 60;

const ENDED_CLEAR: &[u8] = b"trunkline session ended";

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
    pub(crate) async fn learn(&self, owner: SessionOwner<'_>) -> Vec<ClosedSession> {
        let SessionOwner { session, expires_s, .. } = owner;
        let Some(shared) = &self.shared else { return Vec::new() };
        let learn = async {
            let _turn = self.table.turn(session).lock().await;
            let epoch = shared.epoch();
            if !self.is_news(session) {
                return Vec::new();
            }
            let mut pipeline = pipe();
            pipeline.exists(key_of(shared, ENDED, session)).hgetall(key_of(shared, STATE, session));
            let answer: Result<(bool, RedisHash), Unavailable> = shared.pipeline(&pipeline).await;
            let Ok((is_ended, fields)) = answer else { return Vec::new() };
            let closed =
                if is_ended { self.end_here(session, expires_s) } else { self.adopt(owner, &fields) };
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
        let (key, field) = (key_of(shared, STATE, session), field_of(OPENED, &[upstream]));
        let mut command = cmd("HGET");
        command.arg(&key).arg(&field);
        let answer = shared.command::<Option<Vec<u8>>>(&command).await;
        if answer.is_err() {
            self.table.shard(session).doubt(session);
        }
        let Ok(Some(sealed)) = answer else { return StoredSession::default() };
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
        let (key, field) = (key_of(shared, STATE, session), field_of(OPENED, &[upstream]));
        let record = JournalRecord::Opened { session, expires_s, upstream, opened };
        let sealed = self.seal_record(session, &field, &record)?;
        let until_s = expires_s.to_string();
        let arguments = [field.as_bytes(), &*found.sealed, &*sealed, until_s.as_bytes()];
        let there = shared.script(&PUT, &[&key, &key_of(shared, ENDED, session)], &arguments).await;
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
        let Some(record) = self.keys.load().open_record(ENDED_CLEAR, sealed) else {
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
        let key = key_of(shared, STATE, session);
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

    /// Tells others that a session is over, and which of its upstream sessions are closed here.
    pub(super) fn share_end(&self, session: SessionId, expires_s: u64, closed: &[ClosedSession]) {
        let Some(shared) = self.shared.as_ref().filter(|_| !session.is_own()) else { return };
        let (mut ended, mut state) = (cmd("SET"), cmd("DEL"));
        // Some gateway's clock may be behind that of Redis.
        ended.arg(key_of(shared, ENDED, session)).arg(1).arg("EXAT").arg(expires_s.saturating_add(CLOCKS_S));
        state.arg(key_of(shared, STATE, session));
        let mut record = [&session.0.to_be_bytes()[..], &expires_s.to_be_bytes()].concat();
        record.extend(closed.iter().flat_map(|(upstream, held)| name_of(upstream, held)));
        let sealed = self.keys.load().seal_record(ENDED_CLEAR, &record);
        let told = sealed.map(|sealed| shared.publish(&PeerMessage::Ended(sealed)));
        shared.tell([ended, state].into_iter().chain(told).collect(), Urgency::Kept);
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
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
    fn adopt(&self, owner: SessionOwner<'_>, fields: &RedisHash) -> Vec<ClosedSession> {
        let SessionOwner { session, expires_s, .. } = owner;
        let there = self.replay(session, fields);
        if there.is_none() && self.table.entry(session).is_none() {
            return Vec::new();
        }
        let there = there.unwrap_or_default();
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
                self.share_opened((session, expires_s), &upstream, &opened);
            }
        }
        for (upstream, opened) in there.upstreams {
            let slot = changing.slot(&upstream);
            if slot.session().is_some_and(|known| *known == opened) || slot.has_lost(&opened) {
                continue;
            }
            let Ok(place) = place_for(session, &self.upstream_places, owner.payer()) else { continue };
            closed.extend(slot.take().map(|replaced| (upstream.clone(), replaced)));
            slot.keep(Arc::new(opened), place);
        }
        closed
    }

    fn share_opened(&self, (session, expires_s): (SessionId, u64), upstream: &str, opened: &UpstreamSession) {
        let Some(shared) = &self.shared else { return };
        let record = JournalRecord::Opened { session, expires_s, upstream, opened };
        let (key, field) = (key_of(shared, STATE, session), field_of(OPENED, &[upstream]));
        if let Some(sealed) = self.seal_record(session, &field, &record) {
            let put = cmd("HSETNX").arg(&key).arg(&field).arg(sealed).clone();
            shared.tell(vec![put, expire(&key, expires_s)], Urgency::Dropped);
        }
    }

    /// What the fields say. `None`: nothing.
    fn replay(&self, session: SessionId, fields: &RedisHash) -> Option<ReplayedSession> {
        let keys = self.keys.load();
        let mut lines = Vec::new();
        for (field, sealed) in fields {
            lines.extend(keys.open_record(&clear_of(session, field), sealed).unwrap_or_default());
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
        self.keys.load().seal_record(&clear_of(session, field.as_bytes()), record.line()?.as_bytes())
    }
}

fn key_of(shared: &Redis, what: &str, session: SessionId) -> String {
    shared.key(what, &[&session.0.to_be_bytes()])
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokens::sealing::SealingKeys;

    #[test]
    fn what_is_sealed_belongs_where_it_was_put() {
        let keys = SealingKeys::from_text(&"7".repeat(64)).expect("keys");
        let (one, other) = (SessionId(1 << 100), SessionId(2 << 100));
        let sealed = keys.seal_record(&clear_of(one, b"l"), b"a line").expect("sealed");
        assert!(!sealed.windows(4).any(|some| some == b"line"));
        assert_eq!(keys.open_record(&clear_of(one, b"l"), &sealed).as_deref(), Some(&b"a line"[..]));
        for clear in [clear_of(other, b"l"), clear_of(one, b"r"), ENDED_CLEAR.to_vec()] {
            assert_eq!(keys.open_record(&clear, &sealed), None);
        }
        for end in 0..sealed.len() {
            assert_eq!(keys.open_record(&clear_of(one, b"l"), &sealed[..end]), None, "{end}");
        }
    }
}
