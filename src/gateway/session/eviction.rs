//! Which session's process makes room for another's, where as many run as may. The client's session goes on; its session
//! with the upstream is opened again when it is next used.
//!
//! Of what nobody uses, the asker's own idlest goes first, after a moment; else, after longer, the idlest of whoever has
//! most, if that is more than the asker has: so nobody takes everything from everybody.
//!
//! Not here: what a process is. Callers say which upstream sessions are processes, and since when those are quiet.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::journal::JournalRecord;
use super::session_state::ClosedSession;
use super::{SessionId, Sessions, UpstreamSession};
use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;

/// How long one must be quiet to make room for another of the same payer.
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
    payer: Payer,
    since: Instant,
}

impl Sessions {
    /// Takes away the session whose process makes room for one of `payer`. It is the caller's to close. `None`: none
    /// may be taken.
    pub(crate) fn oust(
        &self,
        payer: Payer,
        now: Instant,
        process_of: impl Fn(&str, &UpstreamSession) -> ProcessUse,
    ) -> Option<ClosedSession> {
        let mut held: HashMap<Payer, usize, IdentityHash> = HashMap::default();
        let mut candidates = Vec::new();
        for shard in self.table.shards() {
            for (session, entry) in &shard.live {
                let has_client = entry.outbox.has_client();
                entry.lock().look_at_opened(|upstream, opened| {
                    let process = process_of(upstream, &opened.session);
                    if process == ProcessUse::Other {
                        return;
                    }
                    let payer = opened.place.payer();
                    *held.entry(payer).or_default() += 1;
                    if let ProcessUse::Quiet(since) = process
                        && !has_client
                        && !opened.is_in_use()
                    {
                        let upstream = upstream.into();
                        candidates.push(Candidate { session: *session, upstream, payer, since });
                    }
                });
            }
        }
        let chosen = choose(payer, &held, candidates, now)?;
        let entry = self.table.entry(chosen.session)?;
        let changing = entry.lock();
        let opened = changing.take_unused(&chosen.upstream)?;
        self.note(&JournalRecord::Lost { session: chosen.session, upstream: &chosen.upstream });
        Some((chosen.upstream, opened))
    }
}

fn choose(
    payer: Payer,
    held: &HashMap<Payer, usize, IdentityHash>,
    candidates: Vec<Candidate>,
    now: Instant,
) -> Option<Candidate> {
    let held_by = |who: Payer| held.get(&who).copied().unwrap_or_default();
    let own = held_by(payer);
    let makes_room = |candidate: &Candidate| {
        let quiet = now.saturating_duration_since(candidate.since);
        if candidate.payer == payer {
            quiet >= QUIET_FOR_OWN_MIN
        } else {
            quiet >= QUIET_FOR_OTHERS_MIN && held_by(candidate.payer) > own
        }
    };
    let rank = |candidate: &Candidate| {
        let is_foreign = candidate.payer != payer;
        (is_foreign, Reverse(if is_foreign { held_by(candidate.payer) } else { 0 }), candidate.since)
    };
    candidates.into_iter().filter(makes_room).min_by_key(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates of principals, with the seconds for which they have been quiet, and how many each holds; which goes.
    fn chosen(who: &str, quiet: &[(&str, u64)], held: &[(&str, usize)]) -> Option<u128> {
        let now = crate::clock::now() + Duration::from_hours(1);
        let held = held.iter().map(|(who, count)| (Payer::principal(who), *count)).collect();
        let candidates = quiet.iter().enumerate().map(|(index, (who, seconds))| Candidate {
            session: SessionId(index as u128),
            upstream: "up".into(),
            payer: Payer::principal(who),
            since: now.checked_sub(Duration::from_secs(*seconds)).expect("a late start"),
        });
        choose(Payer::principal(who), &held, candidates.collect(), now).map(|chosen| chosen.session.0)
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
