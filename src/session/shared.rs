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
//! Deliberately not here: sessions of the gateway's own; what is on its way in a session ([`super::desk`]); streams of
//! upstreams. Without Redis each replica goes on with what it knows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, PoisonError};

use redis::{Script, cmd, pipe};

use super::entry::{Closed, UpstreamSession};
use super::journal::{Record, Replay, Replayed};
use super::keys::{KEY_ID_BYTES, Keys, NONCE_BYTES, TAG_BYTES};
use super::room::Places;
use super::table::SEEN_PER_SHARD_MAX;
use super::{SessionId, Sessions, now_s, place_for};
use crate::shared::news::News;
use crate::shared::{Shared, Unavailable, Urgency};

/// What the field of an upstream session, the log level and a subscription begin with; and when it was last used.
const OPENED: &str = "o";
const LEVEL: &str = "l";
const SUBSCRIBED: &str = "r";
const USED: &str = "t";

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

/// Whether nobody used the session since the time that is given.
static UNUSED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local used = redis.call('HGET', KEYS[1], 't')
        if used and tonumber(used) > tonumber(ARGV[1]) then return tonumber(used) end
        return 0
        ",
    )
});

/// What Redis has of a session.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What was found in the place of an upstream session.
#[derive(Debug, Default)]
pub struct Found {
    /// One that can be used.
    pub usable: Option<UpstreamSession>,
    /// What stands there, to be replaced.
    sealed: Vec<u8>,
}

impl Sessions {
    /// Whether others may know more of the session.
    pub fn is_news(&self, session: SessionId) -> bool {
        let Some(shared) = &self.shared else { return false };
        shared.is_connected() && !self.table.shard(session).has_seen(session, shared.epoch())
    }

    /// Reads what others know of the session, once for all who ask. Returns upstream sessions that are no longer used,
    /// for the caller to close.
    pub async fn learn(&self, session: SessionId, expires_s: u64) -> Vec<Closed> {
        let Some(shared) = &self.shared else { return Vec::new() };
        let learn = async {
            let _turn = self.table.turn(session).lock().await;
            let epoch = shared.epoch();
            if !self.is_news(session) {
                return Vec::new();
            }
            let mut pipeline = pipe();
            pipeline.exists(ended_key(shared, session)).hgetall(state_key(shared, session));
            let answer: Result<(bool, Fields), Unavailable> = shared.pipeline(&pipeline).await;
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
    pub async fn find(&self, session: SessionId, upstream: &str) -> Found {
        let Some(shared) = self.shared.as_ref().filter(|_| !session.is_own()) else {
            return Found::default();
        };
        let (key, field) = (state_key(shared, session), field_of(OPENED, &[upstream]));
        let mut command = cmd("HGET");
        command.arg(&key).arg(&field);
        let sealed = match shared.command::<Option<Vec<u8>>>(&command).await {
            Ok(Some(sealed)) => sealed,
            Ok(None) => return Found::default(),
            Err(_) => {
                self.table.shard(session).doubt(session);
                return Found::default();
            }
        };
        let usable = self.read_opened(session, upstream, &sealed);
        Found { usable: usable.filter(|found| !self.is_lost(session, upstream, found)), sealed }
    }

    /// Tells others of an upstream session that was opened in place of what was found. Returns the one that another
    /// replica has opened meanwhile: then that one counts.
    pub async fn put(
        &self,
        (session, expires_s): (SessionId, u64),
        upstream: &str,
        found: &Found,
        opened: &UpstreamSession,
    ) -> Option<UpstreamSession> {
        let shared = self.shared.as_ref().filter(|_| !session.is_own() && opened.id.is_some())?;
        let (key, field) = (state_key(shared, session), field_of(OPENED, &[upstream]));
        let record = Record::Opened { session, expires_s, upstream, opened };
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

    /// Another replica told something. Upstream sessions of a session that was ended are closed by the next sweep.
    pub fn hear(&self, sealed: &[u8]) {
        let Some(record) = open(&self.keys.load(), ENDED_CLEAR, sealed) else {
            tracing::debug!("another replica ended a session that cannot be one of ours");
            return;
        };
        let ids = record.split_first_chunk().and_then(|(id, rest)| Some((*id, *rest.first_chunk()?)));
        let Some((id, expires_s)) = ids else { return };
        let session = SessionId(u128::from_be_bytes(id));
        let closed = self.end_here(session, u64::from_be_bytes(expires_s));
        self.strand(closed);
    }

    /// What the other replicas are told of the keys.
    pub fn key_names(&self) -> String {
        self.keys.load().names()
    }

    /// Tells others of a change.
    pub(super) fn share(&self, record: &Record<'_>) {
        let Some(shared) = &self.shared else { return };
        let session = record.session();
        if session.is_own() {
            return;
        }
        let key = state_key(shared, session);
        let (commands, urgency) = match *record {
            // Put in its place by who opened it.
            Record::Opened { .. } => return,
            Record::Ended { expires_s, .. } => (self.end_commands(shared, session, expires_s), Urgency::Kept),
            Record::Level { expires_s, .. } => {
                (self.set(&key, LEVEL.to_owned(), record, expires_s), Urgency::Dropped)
            }
            Record::Subscribed { expires_s, upstream, uri, .. } => {
                (self.set(&key, field_of(SUBSCRIBED, &[upstream, uri]), record, expires_s), Urgency::Dropped)
            }
            Record::Unsubscribed { upstream, uri, .. } => {
                (vec![remove(&key, &field_of(SUBSCRIBED, &[upstream, uri]))], Urgency::Dropped)
            }
            Record::Lost { upstream, .. } => {
                (vec![remove(&key, &field_of(OPENED, &[upstream]))], Urgency::Dropped)
            }
            Record::Dropped { .. } => {
                let mut command = cmd("DEL");
                command.arg(&key);
                (vec![command], Urgency::Dropped)
            }
        };
        if !commands.is_empty() {
            shared.tell(commands, urgency);
        }
    }

    /// Tells others that the session is used.
    pub(super) fn share_use(&self, session: SessionId, expires_s: u64, now_s: u64) {
        let Some(shared) = &self.shared else { return };
        let key = state_key(shared, session);
        let mut used = cmd("HSET");
        used.arg(&key).arg(USED).arg(now_s);
        shared.tell(vec![used, expire(&key, expires_s)], Urgency::Dropped);
    }

    /// Whether what is left of an idle session may be dropped: nobody else uses it, as far as can be known. Where that
    /// must be asked, the answer comes with a later question.
    pub(super) fn is_unused_elsewhere(&self, session: SessionId, entry: &super::entry::Entry) -> bool {
        match &self.shared {
            Some(shared) if !session.is_own() && shared.is_connected() => {
                entry.is_unused.load(Ordering::Relaxed)
            }
            _ => true,
        }
    }

    /// Asks whether sessions that are idle here are used elsewhere.
    pub async fn ask_for_use(&self) {
        let Some(shared) = &self.shared else { return };
        let idle = std::mem::take(&mut *self.unsure.lock().unwrap_or_else(PoisonError::into_inner));
        let since_s = now_s().saturating_sub(self.idle_s.load(Ordering::Relaxed));
        for session in idle {
            let since = since_s.to_string();
            let answer: Result<u64, _> =
                shared.script(&UNUSED, &[&state_key(shared, session)], &[since.as_bytes()]).await;
            let (Ok(used_s), Some(entry)) = (answer, self.table.entry(session)) else { continue };
            if used_s > 0 {
                entry.touch(used_s);
            } else {
                entry.is_unused.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Ends a session that was ended elsewhere.
    fn end_here(&self, session: SessionId, expires_s: u64) -> Vec<Closed> {
        let mut shard = self.table.shard(session);
        if shard.is_revoked(session) {
            return Vec::new();
        }
        let entry = shard.live.remove(&session);
        if shard.revoke(session, expires_s) {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
        let closed = entry.map(|entry| entry.close()).unwrap_or_default();
        self.journal.write(&Record::Ended { session, expires_s });
        closed
    }

    /// Takes over what Redis has, and tells Redis what it lacks.
    fn adopt(&self, session: SessionId, expires_s: u64, fields: &Fields) -> Vec<Closed> {
        let there = self.replay(session, fields);
        if there.is_none() && self.table.entry(session).is_none() {
            return Vec::new();
        }
        let there = there.unwrap_or_default();
        let Ok(entry) = self.entry(session, expires_s) else { return Vec::new() };
        let mut changing = entry.lock();
        if changing.is_closed {
            return Vec::new();
        }
        match (there.level, changing.level) {
            (Some(level), _) => changing.level = Some(level),
            (None, Some(level)) => self.share(&Record::Level { session, expires_s, level }),
            (None, None) => {}
        }
        for (upstream, uri) in changing.subscribed.iter() {
            if !there.subscribed.has(upstream, uri) {
                self.share(&Record::Subscribed { session, expires_s, upstream, uri });
            }
        }
        for (upstream, uri) in there.subscribed.iter() {
            // It was within the bound when it was written.
            let _ = changing.subscribed.add(upstream, uri, usize::MAX);
        }
        let mut closed = Vec::new();
        for (upstream, opened) in changing.all_opened() {
            if !there.upstreams.contains_key(&upstream) && opened.id.is_some() {
                let record = Record::Opened { session, expires_s, upstream: &upstream, opened: &opened };
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
            slot.keep(Arc::new(opened), Places::new(place, None));
        }
        closed
    }

    fn share_opened(&self, record: &Record<'_>, upstream: &str) {
        let (Some(shared), Record::Opened { session, expires_s, .. }) = (&self.shared, *record) else {
            return;
        };
        let (key, field) = (state_key(shared, session), field_of(OPENED, &[upstream]));
        if let Some(sealed) = self.seal_record(session, &field, record) {
            let mut command = cmd("HSETNX");
            command.arg(&key).arg(&field).arg(sealed);
            shared.tell(vec![command, expire(&key, expires_s)], Urgency::Dropped);
        }
    }

    /// What the fields say. `None`: nothing.
    fn replay(&self, session: SessionId, fields: &Fields) -> Option<Replayed> {
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

    fn set(&self, key: &str, field: String, record: &Record<'_>, expires_s: u64) -> Vec<redis::Cmd> {
        let Some(sealed) = self.seal_record(record.session(), &field, record) else { return Vec::new() };
        let mut command = cmd("HSET");
        command.arg(key).arg(field).arg(sealed);
        vec![command, expire(key, expires_s)]
    }

    fn seal_record(&self, session: SessionId, field: &str, record: &Record<'_>) -> Option<Vec<u8>> {
        seal(&self.keys.load(), &clear_of(session, field.as_bytes()), record.line()?.as_bytes())
    }

    fn end_commands(&self, shared: &Shared, session: SessionId, expires_s: u64) -> Vec<redis::Cmd> {
        let (mut ended, mut state) = (cmd("SET"), cmd("DEL"));
        ended.arg(ended_key(shared, session)).arg(1).arg("EXAT").arg(expires_s);
        state.arg(state_key(shared, session));
        let record = [&session.0.to_be_bytes()[..], &expires_s.to_be_bytes()].concat();
        let sealed = seal(&self.keys.load(), ENDED_CLEAR, &record);
        let told = sealed.map(|sealed| shared.publish(&News::Ended(sealed)));
        [ended, state].into_iter().chain(told).collect()
    }
}

const ENDED_CLEAR: &[u8] = b"trunkline session ended";

fn state_key(shared: &Shared, session: SessionId) -> String {
    shared.key("session", &[&session.0.to_be_bytes()])
}

fn ended_key(shared: &Shared, session: SessionId) -> String {
    shared.key("ended", &[&session.0.to_be_bytes()])
}

fn field_of(what: &str, pieces: &[&str]) -> String {
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
    format!("{what}:{}", crate::shared::digest(&pieces))
}

fn expire(key: &str, expires_s: u64) -> redis::Cmd {
    let mut command = cmd("EXPIREAT");
    command.arg(key).arg(expires_s);
    command
}

fn remove(key: &str, field: &str) -> redis::Cmd {
    let mut command = cmd("HDEL");
    command.arg(key).arg(field);
    command
}

/// A record belongs to its session and its field alone.
fn clear_of(session: SessionId, field: &[u8]) -> Vec<u8> {
    [b"trunkline session state", &session.0.to_be_bytes()[..], field].concat()
}

/// The name of the key, a nonce, the text under the key, its tag.
fn seal(keys: &Keys, clear: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).ok()?;
    let mut text = text.to_vec();
    let tag = keys.seal(nonce, clear, &mut text)?;
    Some([&keys.sealing_id()[..], &nonce, &text, &tag].concat())
}

fn open(keys: &Keys, clear: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
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
        let keys = Keys::from_text(&"7".repeat(64)).expect("keys");
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
