//! Asking for a reload, and learning what came of it.
//!
//! Whoever asks gets the outcome of a reload that began after they asked: what they wrote before counts. However many
//! ask while one is under way, one more follows; nothing is queued. The reload itself is the
//! [`gateway`](crate::runtime)'s.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, watch};

use crate::clock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReloadOutcome {
    /// The new configuration is in force.
    Reloaded {
        /// What is different now, a line each; names only.
        changes: Arc<[String]>,
        /// Keys and sections that differ but count from the next start on.
        needs_restart: Arc<[&'static str]>,
    },
    /// The old configuration stays in force; why, as `trunkline check` would say it.
    Refused(Arc<str>),
    /// The process is about to end, nothing is read any more.
    Stopping,
}

impl ReloadOutcome {
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, Self::Reloaded { .. })
    }
}

impl fmt::Display for ReloadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reloaded { changes, needs_restart } => {
                f.write_str("reloaded\n")?;
                if changes.is_empty() {
                    f.write_str("nothing is different\n")?;
                }
                changes.iter().try_for_each(|change| writeln!(f, "{change}"))?;
                if !needs_restart.is_empty() {
                    writeln!(f, "from the next start on: {}", needs_restart.join(", "))?;
                }
                Ok(())
            }
            Self::Refused(why) => {
                writeln!(f, "not reloaded; the old configuration stays in force\n{}", why.trim_end())
            }
            Self::Stopping => f.write_str("not reloaded; the gateway is about to stop\n"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ReloadRequests {
    wanted: Notify,
    progress: watch::Sender<ReloadProgress>,
}

/// Service managers may ask twice for one reload: the second one, which changes nothing, is part of the first for so long.
const AGAIN_WITHIN: Duration = Duration::from_secs(5);
/// As many have ended when none comes any more.
const STOPPED: u64 = u64::MAX;

#[derive(Debug, Default)]
struct ReloadProgress {
    begun: u64,
    ended: u64,
    outcome: Option<ReloadOutcome>,
    last: Option<LastReload>,
}

/// The reload that is told of afterwards.
#[derive(Debug)]
struct LastReload {
    outcome: ReloadOutcome,
    ended: Instant,
    ended_at: SystemTime,
}

impl ReloadProgress {
    fn end(&mut self, outcome: ReloadOutcome, now: Instant, calendar: SystemTime) {
        self.ended = self.begun;
        self.outcome = Some(outcome.clone());
        if !self.last.as_ref().is_some_and(|last| last.has_all_of(&outcome, now)) {
            self.last = Some(LastReload { outcome, ended: now, ended_at: calendar });
        }
    }
}

impl LastReload {
    /// It changed something just now, and `later` nothing more.
    fn has_all_of(&self, later: &ReloadOutcome, now: Instant) -> bool {
        let is_recent = now.saturating_duration_since(self.ended) < AGAIN_WITHIN;
        match (&self.outcome, later) {
            (
                ReloadOutcome::Reloaded { changes, needs_restart },
                ReloadOutcome::Reloaded { changes: later_changes, needs_restart: later_needs },
            ) => is_recent && !changes.is_empty() && later_changes.is_empty() && needs_restart == later_needs,
            _ => false,
        }
    }
}

impl Default for ReloadRequests {
    fn default() -> Self {
        Self { wanted: Notify::new(), progress: watch::Sender::new(ReloadProgress::default()) }
    }
}

impl ReloadRequests {
    /// Asks for a reload and waits for what comes of it.
    pub(crate) async fn request(&self) -> ReloadOutcome {
        let mut progress = self.progress.subscribe();
        let mine = progress.borrow().begun.saturating_add(1);
        self.wanted.notify_one();
        let ended = progress.wait_for(|progress| progress.ended >= mine).await;
        let told = ended.ok().filter(|progress| progress.ended != STOPPED);
        told.and_then(|progress| progress.outcome.clone()).unwrap_or(ReloadOutcome::Stopping)
    }

    /// The outcome of the last one, and its time. One that changed nothing just after it is not told.
    /// `None`: there was none.
    pub(crate) fn last(&self) -> Option<(SystemTime, ReloadOutcome)> {
        let progress = self.progress.borrow();
        progress.last.as_ref().map(|last| (last.ended_at, last.outcome.clone()))
    }

    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// A reload begins: those who ask from now on want another.
    pub(crate) fn begin(&self) {
        self.progress.send_modify(|progress| progress.begun += 1);
    }

    pub(crate) fn end(&self, outcome: ReloadOutcome) {
        self.progress.send_modify(|progress| progress.end(outcome, clock::now(), clock::calendar()));
    }

    /// No reload comes any more: whoever waits or asks is told so. What came of the last one stays as it was.
    pub(crate) fn stop(&self) {
        self.progress.send_modify(|progress| progress.ended = STOPPED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reloaded() -> ReloadOutcome {
        ReloadOutcome::Reloaded { changes: Arc::new([]), needs_restart: Arc::new([]) }
    }

    #[tokio::test]
    async fn a_request_gets_the_outcome_of_a_reload_that_began_after_it() {
        let reloads = ReloadRequests::default();
        reloads.begin();
        let late = reloads.request();
        let mut late = std::pin::pin!(late);
        assert!(futures_util::poll!(&mut late).is_pending());
        reloads.end(reloaded());
        assert!(
            futures_util::poll!(&mut late).is_pending(),
            "what it wrote may have come too late for this one"
        );
        reloads.wanted().await;
        reloads.begin();
        reloads.end(ReloadOutcome::Refused("broken".into()));
        assert_eq!(late.await, ReloadOutcome::Refused("broken".into()));
    }

    #[tokio::test]
    async fn many_requests_share_one_reload() {
        let reloads = ReloadRequests::default();
        let requests = futures_util::future::join_all((0..10).map(|_| reloads.request()));
        let serve = async {
            reloads.wanted().await;
            reloads.begin();
            reloads.end(reloaded());
        };
        let (outcomes, ()) = tokio::join!(requests, serve);
        assert!(outcomes.iter().all(ReloadOutcome::is_ok), "{outcomes:?}");
        assert_eq!(reloads.progress.borrow().begun, 1);
    }

    #[tokio::test]
    async fn whoever_waits_at_the_end_is_told_of_it() {
        let reloads = ReloadRequests::default();
        let (waited, ()) = tokio::join!(reloads.request(), async { reloads.stop() });
        assert_eq!(waited, ReloadOutcome::Stopping);
        assert_eq!(reloads.request().await, ReloadOutcome::Stopping);
        reloads.end(reloaded());
        reloads.stop();
        assert_eq!(reloads.last().map(|(_, outcome)| outcome), Some(reloaded()), "it is no refusal");
    }

    #[test]
    fn a_reload_that_changes_nothing_hides_none_that_came_just_before() {
        let changed = |needs: &[&'static str]| ReloadOutcome::Reloaded {
            changes: Arc::new(["upstream b: added".to_owned()]),
            needs_restart: needs.into(),
        };
        let (start, at) = (clock::now(), SystemTime::UNIX_EPOCH);
        let told = |ended: &[(&ReloadOutcome, u32)]| {
            let mut progress = ReloadProgress::default();
            for (outcome, parts) in ended {
                let later = AGAIN_WITHIN / 2 * *parts;
                progress.end((*outcome).clone(), start + later, at + later);
                assert_eq!(progress.outcome.as_ref(), Some(*outcome), "whoever asked for it is told of it");
            }
            progress.last.map(|last| (last.outcome, last.ended_at))
        };
        let (first, nothing, refused) = (changed(&[]), reloaded(), ReloadOutcome::Refused("broken".into()));
        assert_eq!(told(&[(&first, 0), (&nothing, 1)]), Some((first.clone(), at)));
        assert_eq!(told(&[(&first, 0), (&nothing, 1), (&nothing, 1)]), Some((first.clone(), at)));
        let late = at + AGAIN_WITHIN;
        assert_eq!(told(&[(&first, 0), (&nothing, 2)]), Some((nothing.clone(), late)));
        for (before, later) in [
            (&nothing, &nothing),
            (&refused, &nothing),
            (&first, &refused),
            (&changed(&["workers"]), &nothing),
            (&first, &changed(&["workers"])),
        ] {
            assert_eq!(told(&[(before, 0), (later, 1)]), Some((later.clone(), at + AGAIN_WITHIN / 2)));
        }
    }

    #[test]
    fn an_outcome_reads_as_lines() {
        let outcome = ReloadOutcome::Reloaded {
            changes: Arc::new(["upstream b: added".to_owned()]),
            needs_restart: Arc::new(["workers", "shared"]),
        };
        assert_eq!(
            outcome.to_string(),
            "reloaded\nupstream b: added\nfrom the next start on: workers, shared\n"
        );
    }
}
