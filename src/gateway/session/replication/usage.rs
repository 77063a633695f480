//! The use of a session, as replicas tell each other of it, and the end of a session that none of them uses.
//!
//! A session that is used at one replica is left alone by the others: whoever uses it, or holds a stream or a call of it,
//! says so four times while it would become idle, by a key that Redis lets expire by its own clock, so that nobody's clock
//! is compared with another's. Who finds a session idle asks for that key first. The first to find none closes the upstream
//! sessions that stand in Redis, and leaves their names there for a while, so that the others forget theirs unsaid. Should the
//! process that uses a session die, the session is idle a quarter of that time and `LATE_S` later than it would be.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use redis::{Script, cmd};

use super::{CLOSED, RedisHash, STATE, USED, key_of};
use crate::clock::now_s;
use crate::redis::Urgency;
use crate::session::session_state::{ClosedSession, SessionState, UpstreamSession};
use crate::session::sweep::IdleFate;
use crate::session::{SessionId, SessionOwner, Sessions};

/// How late others may be told that a session is used, beyond a quarter of the time in which it becomes idle: sweeps are a
/// second apart, and what is told waits for what was told before it.
const LATE_S: u64 = 2;
/// How long the names of closed upstream sessions are left, beyond twice the time in which a session becomes idle.
const CLOSED_S: u64 = 60;

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
pub(in crate::session) enum PeerQueries {
    Away,
    /// There is one, but not for long: what Redis has lost meanwhile is not told again yet.
    Joining,
    Answer,
}

impl Sessions {
    /// Tells others that a session is used, unless it is not or they were told a moment ago. True if they were told now.
    pub(in crate::session) fn tell_if_used(
        &self,
        session: SessionId,
        entry: &SessionState,
        now_s: u64,
    ) -> bool {
        if session.is_own() || !self.can_tell() {
            return false;
        }
        let interval_s = self.tell_interval_s();
        let Some(unused_s) = entry.use_to_tell(now_s, interval_s) else { return false };
        let is_ours = entry.note_told(now_s, interval_s);
        if is_ours && !self.share_use(session, unused_s) {
            entry.note_untold();
        }
        is_ours
    }

    /// How often others are told that a session is used: four times while it would become idle.
    fn tell_interval_s(&self) -> u64 {
        (self.idle_s.load(Ordering::Relaxed) / 4).max(1)
    }

    /// Tells others that the session was used so long ago, or now. False: there is no way to.
    fn share_use(&self, session: SessionId, unused_s: u64) -> bool {
        let Some(shared) = &self.shared else { return true };
        let idle_s = self.idle_s.load(Ordering::Relaxed);
        let counts_s = (idle_s + self.tell_interval_s() + LATE_S).saturating_sub(unused_s);
        let used = cmd("SET").arg(key_of(shared, USED, session)).arg(1).arg("EX").arg(counts_s).clone();
        counts_s == 0 || shared.tell(vec![used], Urgency::Dropped)
    }

    /// Whether others can be told now of the sessions that are used.
    fn can_tell(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_connected())
    }

    /// Whether others can be asked now of the sessions that they use.
    pub(in crate::session) fn others(&self, now_s: u64) -> PeerQueries {
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
            let [used, state, closed] = [USED, STATE, CLOSED].map(|what| key_of(shared, what, session));
            let keys = [&*used, &*state, &*closed, &*replicas];
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
                    let closed = self.learn(SessionOwner::gateway(session, entry.expires_s)).await;
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
}
