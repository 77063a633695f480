//! What is dropped once in a while: the state of sessions that expired or were idle, and the memory of those that were
//! ended before they expired.
//!
//! Whoever works with a session holds its entry, so that nothing is dropped that is in use.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::entry::{Closed, Entry};
use super::journal::Record;
use super::{SessionId, Sessions};

/// Of how many idle sessions others are asked after one sweep.
const UNSURE_MAX: usize = 1000;
/// What clocks are adjusted by without anybody noticing.
const JUMP_S: u64 = 10;

impl Sessions {
    /// [`Sessions::sweep_with`], by whichever thread comes first in this second.
    pub fn sweep_once(&self, now_s: u64, is_irreplaceable: impl Fn(&str) -> bool) -> Vec<Closed> {
        if self.swept_s.swap(now_s, Ordering::Relaxed) == now_s {
            return Vec::new();
        }
        self.note_clock(Instant::now(), now_s);
        self.sweep_with(now_s, is_irreplaceable)
    }

    /// Where the calendar has moved more than the time that has passed, nobody knows how long a session was idle: it
    /// counts from now on. When they expire goes by the calendar, as other processes must come to the same.
    pub(super) fn note_clock(&self, at: Instant, now_s: u64) {
        let mut noted = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn sweep_with(&self, now_s: u64, is_irreplaceable: impl Fn(&str) -> bool) -> Vec<Closed> {
        self.hear_time(now_s);
        let idle_s = self.idle_s.load(Ordering::Relaxed);
        self.principals.sweep();
        let stranded = std::mem::take(&mut *self.stranded.lock().unwrap_or_else(PoisonError::into_inner));
        let mut closed: Vec<Closed> = stranded.into_iter().map(|(closed, _place)| closed).collect();
        let mut unsure = Vec::new();
        for mut shard in self.table.shards() {
            let shard = &mut *shard;
            shard.revoked.retain(|_, expires_s| *expires_s > now_s);
            let mut ended = Vec::new();
            shard.live.retain(|session, entry| {
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
                if !self.is_unused_elsewhere(*session, entry) {
                    if unsure.len() < UNSURE_MAX {
                        unsure.push(*session);
                    }
                    return true;
                }
                if !session.is_own() && entry.lock().has_opened(&is_irreplaceable) {
                    closed.extend(entry.close());
                    self.note(&Record::Ended { session: *session, expires_s: entry.expires_s });
                    ended.push((*session, entry.expires_s));
                    return false;
                }
                if self.room.is_half_empty() && entry.lock().has_wishes() {
                    closed.extend(self.rest(*session, entry, now_s));
                    return true;
                }
                closed.extend(entry.close());
                self.note(&Record::Dropped { session: *session });
                false
            });
            for (session, expires_s) in ended {
                if shard.revoke(session, expires_s) {
                    self.forgotten.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        *self.unsure.lock().unwrap_or_else(PoisonError::into_inner) = unsure;
        let forgotten = self.forgotten.swap(0, Ordering::Relaxed);
        if forgotten > 0 {
            tracing::warn!(forgotten, "too many ended sessions: some ids open again until they expire");
        }
        closed
    }

    /// Takes the upstream sessions of an idle session, and leaves what its client asked for.
    fn rest(&self, session: SessionId, entry: &Entry, now_s: u64) -> Vec<Closed> {
        let mut changing = entry.lock();
        entry.touch(now_s);
        let closed = changing.take_all();
        for (upstream, _) in &closed {
            self.note(&Record::Lost { session, upstream });
        }
        closed
    }
}
