//! What is dropped once in a while: the state of sessions that expired or were idle, and the memory of those that were
//! ended before they expired.
//!
//! Whoever works with a session holds its entry, so that nothing is dropped that is in use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::journal::JournalRecord;
use super::replication::PeerQueries;
use super::session_state::{ClosedSession, SessionState};
use super::{SessionId, Sessions};
use crate::clock;

/// Of how many idle sessions others are asked after one sweep.
const UNSURE_MAX: usize = 1000;
/// How many are told of as used in one sweep; the others are in the next.
const TOLD_MAX: usize = 8 << 10;
/// What clocks are adjusted by without anybody noticing.
const JUMP_S: u64 = 10;

/// What becomes of an idle session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleFate {
    /// What its client asked for is kept.
    Resting,
    /// Its state is gone.
    Dropped,
    /// Its id does not open any more.
    Ended,
}

impl Sessions {
    /// [`Sessions::sweep_with`], by whichever thread comes first in this second.
    pub(crate) fn sweep_once(
        &self,
        now_s: u64,
        is_irreplaceable: impl Fn(&str) -> bool,
    ) -> Vec<ClosedSession> {
        if self.swept_s.swap(now_s, Ordering::Relaxed) == now_s {
            return Vec::new();
        }
        self.note_clock(clock::now(), now_s);
        self.sweep_with(now_s, is_irreplaceable)
    }

    /// Where the calendar has moved more than the time that has passed, nobody knows how long a session was idle: it
    /// counts from now on. When they expire goes by the calendar, as other processes must come to the same.
    pub(super) fn note_clock(&self, at: Instant, now_s: u64) {
        let mut noted = self.clock.lock();
        let before = noted.replace((at, now_s));
        drop(noted);
        let Some((then, then_s)) = before else { return };
        let expected_s = then_s.saturating_add(at.saturating_duration_since(then).as_secs());
        if expected_s.abs_diff(now_s) <= JUMP_S {
            return;
        }
        tracing::warn!(expected_s, now_s, "the clock has jumped: the idle time of all sessions begins anew");
        self.now_s.store(now_s, Ordering::Relaxed);
        for shard in self.table.shards() {
            shard.live.values().for_each(|entry| entry.use_from(now_s));
        }
    }

    /// Drops the state of sessions that expired or were idle, and ended sessions that would have expired. What an idle
    /// client asked for is kept where there is room, and one with a session that `is_irreplaceable` with an upstream is
    /// ended. The upstream sessions are the caller's to close.
    pub(crate) fn sweep_with(
        &self,
        now_s: u64,
        is_irreplaceable: impl Fn(&str) -> bool,
    ) -> Vec<ClosedSession> {
        self.hear_time(now_s);
        let idle_s = self.idle_s.load(Ordering::Relaxed);
        let others = self.others(now_s);
        self.task_table().sweep(now_s);
        let stranded = std::mem::take(&mut *self.stranded.lock());
        let mut closed: Vec<ClosedSession> = stranded.into_iter().map(|(closed, _place)| closed).collect();
        let mut unsure = Vec::new();
        let mut told = 0;
        for mut shard in self.table.shards() {
            let shard = &mut *shard;
            shard.revoked.retain(|_, expires_s| *expires_s > now_s);
            let mut ended = Vec::new();
            shard.live.retain(|session, entry| {
                told += usize::from(told < TOLD_MAX && self.tell_if_used(*session, entry, now_s));
                let has_expired = entry.expires_s <= now_s;
                // Whoever works with an entry holds it, and new holders wait for the shard.
                let is_idle = || Arc::strong_count(entry) == 1 && entry.is_idle(now_s, idle_s);
                if has_expired {
                    closed.extend(entry.close());
                    return false;
                }
                if !is_idle() {
                    return true;
                }
                if !self.may_leave((*session, entry), (others, now_s), &mut unsure) {
                    return true;
                }
                let becomes = self.leave(*session, entry, now_s, &is_irreplaceable, &mut closed);
                if becomes == IdleFate::Ended {
                    ended.push((*session, entry.expires_s));
                }
                becomes == IdleFate::Resting
            });
            for (session, expires_s) in ended {
                self.revoke(shard, session, expires_s);
            }
            shard.shrink();
        }
        self.sweep_lists();
        *self.unsure.lock() = unsure;
        let forgotten = self.forgotten.swap(0, Ordering::Relaxed);
        if forgotten > 0 {
            tracing::warn!(forgotten, "too many ended sessions: some ids open again until they expire");
        }
        closed
    }

    /// Whether an idle session is left now. Where others may use it they are asked first; while they cannot be, it is left
    /// once they may have used it for no longer than was known, or had as long again to be asked.
    fn may_leave(
        &self,
        (session, entry): (SessionId, &SessionState),
        (others, now_s): (PeerQueries, u64),
        unsure: &mut Vec<SessionId>,
    ) -> bool {
        if session.is_own() || !self.is_shared() {
            return true;
        }
        if entry.used_elsewhere_until_s.load(Ordering::Relaxed) > now_s {
            return false;
        }
        match others {
            PeerQueries::Away => {
                return entry.was_kept_for_others(now_s, self.idle_s.load(Ordering::Relaxed));
            }
            PeerQueries::Answer if unsure.len() < UNSURE_MAX => unsure.push(session),
            PeerQueries::Answer | PeerQueries::Joining => {}
        }
        false
    }

    /// Leaves an idle session, which nobody uses elsewhere. Its upstream sessions are added to `closed`.
    pub(super) fn leave(
        &self,
        session: SessionId,
        entry: &SessionState,
        now_s: u64,
        is_irreplaceable: impl Fn(&str) -> bool,
        closed: &mut Vec<ClosedSession>,
    ) -> IdleFate {
        if !session.is_own() && entry.lock().has_opened(is_irreplaceable) {
            let ours = entry.close();
            self.note_end(session, entry.expires_s, &ours);
            closed.extend(ours);
            return IdleFate::Ended;
        }
        if self.places.is_half_empty() && entry.lock().has_wishes() {
            closed.extend(self.rest(session, entry, now_s));
            return IdleFate::Resting;
        }
        closed.extend(entry.close());
        self.note(&JournalRecord::Dropped { session });
        IdleFate::Dropped
    }

    /// Takes the upstream sessions of an idle session, and leaves what its client asked for.
    fn rest(&self, session: SessionId, entry: &SessionState, now_s: u64) -> Vec<ClosedSession> {
        let mut changing = entry.lock();
        entry.touch(now_s);
        let closed = changing.take_all();
        for (upstream, _) in &closed {
            self.note(&JournalRecord::Lost { session, upstream });
        }
        closed
    }
}
