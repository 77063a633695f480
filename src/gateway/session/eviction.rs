//! Which session's process makes room for another's, where as many run as may. The client's session goes on; its session
//! with the upstream is opened again when it is next used.
//!
//! Of what nobody uses, the asker's own idlest goes first, after a moment; else, after longer, the idlest of whoever has
//! most, if that is more than the asker has: so nobody takes everything from everybody.
//!
//! Not here: what a process is. Callers say which upstream sessions are processes, and since when those are quiet.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::journal::JournalRecord;
use super::session_state::ClosedSession;
use super::{SessionId, Sessions, UpstreamSession};

/// How long one must be quiet to make room for another of the same principal.
const QUIET_FOR_OWN_MIN: Duration = Duration::from_secs(1);
/// The same for another's.
const QUIET_FOR_OTHERS_MIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessUse {
    /// None that could make room.
    Other,
    /// It has something under way, or must stay.
    Busy,
    /// Nothing has come or gone since then.
    Quiet(Instant),
}

#[derive(Clone, Debug)]
struct Candidate {
    session: SessionId,
    upstream: Box<str>,
    principal: Arc<str>,
    since: Instant,
}

impl Sessions {
    /// Takes away the session whose process makes room for one of `principal`. It is the caller's to close. `None`: none
    /// may be taken.
    pub(crate) fn oust(
        &self,
        principal: &str,
        now: Instant,
        process_of: impl Fn(&str, &UpstreamSession) -> ProcessUse,
    ) -> Option<ClosedSession> {
        let mut held: HashMap<Arc<str>, usize> = HashMap::new();
        let mut candidates = Vec::new();
        for shard in self.table.shards() {
            for (session, entry) in &shard.live {
                let has_client = entry.outbox.has_client();
                entry.lock().look_at_opened(|upstream, opened| {
                    let process = process_of(upstream, &opened.session);
                    if process == ProcessUse::Other {
                        return;
                    }
                    let principal = &opened.places.principal;
                    *held.entry(Arc::clone(principal)).or_default() += 1;
                    if let ProcessUse::Quiet(since) = process
                        && !has_client
                        && !opened.is_in_use()
                    {
                        let (upstream, principal) = (upstream.into(), Arc::clone(principal));
                        candidates.push(Candidate { session: *session, upstream, principal, since });
                    }
                });
            }
        }
        let chosen = choose(principal, &held, candidates, now)?;
        let entry = self.table.entry(chosen.session)?;
        let changing = entry.lock();
        let opened = changing.take_unused(&chosen.upstream)?;
        self.note(&JournalRecord::Lost { session: chosen.session, upstream: &chosen.upstream });
        Some((chosen.upstream, opened))
    }
}

fn choose(
    principal: &str,
    held: &HashMap<Arc<str>, usize>,
    candidates: Vec<Candidate>,
    now: Instant,
) -> Option<Candidate> {
    let held_by = |who: &str| held.get(who).copied().unwrap_or_default();
    let own = held_by(principal);
    let makes_room = |candidate: &Candidate| {
        let quiet = now.saturating_duration_since(candidate.since);
        if *candidate.principal == *principal {
            quiet >= QUIET_FOR_OWN_MIN
        } else {
            quiet >= QUIET_FOR_OTHERS_MIN && held_by(&candidate.principal) > own
        }
    };
    let rank = |candidate: &Candidate| {
        let is_foreign = *candidate.principal != *principal;
        (is_foreign, Reverse(if is_foreign { held_by(&candidate.principal) } else { 0 }), candidate.since)
    };
    candidates.into_iter().filter(makes_room).min_by_key(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates of principals, with the seconds for which they have been quiet, and how many each holds; which goes.
    fn chosen(who: &str, quiet: &[(&str, u64)], held: &[(&str, usize)]) -> Option<u128> {
        let now = crate::clock::now() + Duration::from_hours(1);
        let held = held.iter().map(|(who, count)| (Arc::from(*who), *count)).collect();
        let candidates = quiet.iter().enumerate().map(|(index, (who, seconds))| Candidate {
            session: SessionId(index as u128),
            upstream: "up".into(),
            principal: Arc::from(*who),
            since: now.checked_sub(Duration::from_secs(*seconds)).expect("a late start"),
        });
        choose(who, &held, candidates.collect(), now).map(|chosen| chosen.session.0)
    }

    #[test]
    fn the_idlest_of_ones_own_goes_first() {
        let quiet = [("a", 2), ("a", 3), ("b", 100), ("a", 0)];
        assert_eq!(chosen("a", &quiet, &[("a", 3), ("b", 50)]), Some(1));
        assert_eq!(chosen("a", &[("a", 0)], &[("a", 3)]), None, "it was used just now");
    }

    #[test]
    fn others_make_room_if_they_have_more() {
        let quiet = [("b", 100), ("c", 6), ("c", 7), ("c", 4)];
        assert_eq!(chosen("a", &quiet, &[("b", 2), ("c", 3)]), Some(2), "of whoever has most");
        assert_eq!(chosen("a", &quiet[..1], &[("a", 1), ("b", 2)]), Some(0));
        assert_eq!(chosen("a", &quiet[..1], &[("a", 2), ("b", 2)]), None, "it has as many itself");
        assert_eq!(chosen("a", &quiet[3..], &[("c", 3)]), None, "it was used just now");
        assert_eq!(chosen("a", &[], &[("c", 3)]), None);
    }
}
