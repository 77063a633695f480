//! The readiness of a program that the gateway speaks to in the modern era to open sessions, as the first one shows, and how far
//! that one is.
//!
//! A process that has read `initialize` and says nothing for a while opens no session. The time before it has read that is its
//! start, and says nothing of sessions.
//!
//! Invariant: one session at a time is a trial. Others wait for what it shows.

use std::hash::{DefaultHasher, Hasher as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clock;
use net::jitter::doubled;
use protocol::error::UpstreamError;

/// Where clients of so many introductions were refused, and none was not, all are.
const REFUSED_MAX: usize = 4;
/// The pause after a process that was to open the first session and did not, though it may, doubled with each.
const VAIN_DOUBTED_MIN: Duration = Duration::from_secs(15);
const VAIN_DOUBTED_MAX: Duration = Duration::from_hours(1);

/// A client waits for so long at least.
const CLIENT_PATIENCE_MIN: Duration = Duration::from_secs(1);

/// The readiness of the program to open sessions, as the first that was to be opened tells. The end of its process, its
/// silence, and most errors may have had another cause: after a pause, another session is tried. A refusal holds for clients
/// that introduce themselves alike.
#[derive(Debug, Default)]
pub(super) struct SessionOpening(Mutex<OpeningTrials>);

#[derive(Debug, Default)]
struct OpeningTrials {
    is_open: Option<bool>,
    /// The introductions that were refused, while none was accepted.
    refused: Vec<u64>,
    /// The last trial, which may be over.
    last: Option<TrialWatch>,
    /// The trials in a row that came to nothing before anything was known; of several at once one counts.
    vain: u32,
    /// The moment at which the last of them did.
    failed: Option<Instant>,
    /// Until then no other session is tried.
    tried_again: Option<Instant>,
}

/// The part that a session takes in finding out whether the program opens any.
#[derive(Debug)]
pub(super) enum OpeningRole {
    /// None: it is known.
    Known,
    /// It is to show it.
    Trial(SessionTrial),
    /// Another one shows it.
    Wait(TrialWatch),
}

/// The number of an introduction: of what `initialize` says of a client, but for its id.
pub(super) fn introduction(initialize: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(initialize);
    hasher.finish()
}

impl SessionOpening {
    /// It opened a session: later refusals have other causes.
    pub(super) fn note_open(&self) {
        let mut trials = self.0.lock();
        trials.is_open = Some(true);
        trials.refused.clear();
    }

    /// It refused to, as it knows no sessions. Returns whether that is news.
    pub(super) fn note_refusal(&self, introduction: u64) -> bool {
        let mut trials = self.0.lock();
        if trials.is_open == Some(true) {
            return false;
        }
        let is_news = trials.refused.is_empty();
        trials.is_open = Some(false);
        if trials.refused.len() < REFUSED_MAX && !trials.refused.contains(&introduction) {
            trials.refused.push(introduction);
        }
        is_news
    }

    /// A client comes whose `initialize` is this one. Refusals of other introductions do not hold for it.
    pub(super) fn meet(&self, initialize: impl FnOnce() -> String) {
        let mut trials = self.0.lock();
        if trials.is_open == Some(false)
            && trials.refused.len() < REFUSED_MAX
            && !trials.refused.contains(&introduction(initialize().as_bytes()))
        {
            trials.is_open = None;
        }
    }

    /// Its process, whose start had `begun` then, ended, said nothing or failed for another reason. Returns whether that is news.
    pub(super) fn note_vain(&self, begun: Instant, now: Instant) -> bool {
        let mut trials = self.0.lock();
        if trials.is_open.is_some() || trials.failed.is_some_and(|failed| begun < failed) {
            return false;
        }
        trials.wait(now);
        trials.failed = Some(now);
        trials.vain = trials.vain.saturating_add(1);
        trials.vain == 1
    }

    /// A session is to be opened. While it is not known whether the program opens any, one at a time is a trial; after one that
    /// came to nothing, others do not wait for it.
    pub(super) fn join(&self, now: Instant) -> OpeningRole {
        let mut trials = self.0.lock();
        if trials.is_open.is_some() {
            return OpeningRole::Known;
        }
        if let Some(under_way) = trials.last.as_ref().filter(|trial| !trial.is_over()) {
            return OpeningRole::Wait(under_way.clone());
        }
        if trials.vain > 0 {
            trials.wait(now);
        }
        let trial = SessionTrial::default();
        trials.last = Some(trial.watch());
        OpeningRole::Trial(trial)
    }

    /// The trial that is under way.
    pub(super) fn under_way(&self) -> Option<TrialWatch> {
        self.0.lock().last.clone().filter(|trial| !trial.is_over())
    }

    /// The program may be another by now.
    pub(super) fn forget(&self) {
        *self.0.lock() = OpeningTrials::default();
    }

    pub(super) fn is_refused(&self) -> bool {
        let trials = self.0.lock();
        match trials.is_open {
            Some(is_open) => !is_open,
            None => trials.tried_again.is_some_and(|at| clock::now() < at),
        }
    }
}

impl OpeningTrials {
    fn wait(&mut self, now: Instant) {
        self.tried_again = Some(now + doubled(VAIN_DOUBTED_MIN, self.vain, VAIN_DOUBTED_MAX));
    }
}

/// A session that shows whether the program opens any, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct SessionTrial(TrialWatch);

/// How far a trial is, for those who wait for it.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialWatch {
    /// Its process has read `initialize`.
    read: CancellationToken,
    over: CancellationToken,
}

impl SessionTrial {
    pub(super) fn watch(&self) -> TrialWatch {
        self.0.clone()
    }

    /// The answer to `initialize`, or `TimedOut` where the process has had its time since it has `read` that.
    pub(super) async fn answer<T>(
        &self,
        read: CancellationToken,
        patience: impl FnOnce() -> Duration,
        asked: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let silent = async {
            read.cancelled().await;
            self.0.read.cancel();
            sleep(patience()).await;
        };
        tokio::select! {
            biased;
            answer = asked => answer,
            () = silent => Err(UpstreamError::TimedOut),
        }
    }
}

impl Drop for SessionTrial {
    fn drop(&mut self) {
        self.0.over.cancel();
    }
}

impl TrialWatch {
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Completes once it has shown what it shows.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Completes when a client that is told at that moment that the program is still starting has waited long enough for a process
    /// that has read: it keeps half of its time for the bridge.
    pub(super) async fn client_time(&self, told_at: Instant) {
        self.read.cancelled().await;
        let left = told_at.saturating_duration_since(clock::now());
        sleep((left / 2).max(CLIENT_PATIENCE_MIN)).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_process_or_its_silence_is_no_refusal_for_good() {
        let opening = SessionOpening::default();
        assert!(!opening.is_refused());
        for number in 0..3 {
            let begun = clock::now();
            let OpeningRole::Trial(trial) = opening.join(begun) else { panic!("it is tried") };
            assert!(matches!(opening.join(begun), OpeningRole::Wait(_)), "one at a time");
            assert_eq!(opening.is_refused(), number > 0, "one at a time is tried again");
            advance(Duration::from_secs(1)).await;
            assert_eq!(opening.note_vain(begun, clock::now()), number == 0);
            assert!(!opening.note_vain(begun, clock::now()), "several at once are one");
            drop(trial);
            assert!(opening.under_way().is_none());
            assert!(opening.is_refused());
            advance(VAIN_DOUBTED_MIN * (1 << number)).await;
            assert!(!opening.is_refused(), "another session is tried");
        }
        opening.note_open();
        assert!(matches!(opening.join(clock::now()), OpeningRole::Known));
        assert!(
            !opening.note_vain(clock::now(), clock::now())
                && !opening.note_refusal(1)
                && !opening.is_refused(),
            "it has other causes now"
        );
    }

    #[test]
    fn a_refusal_holds_for_the_same_introduction_until_many_were_refused() {
        let opening = SessionOpening::default();
        let number = |text: &str| introduction(text.as_bytes());
        for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            opening.meet(|| name.to_owned());
            assert!(!opening.is_refused(), "{name} was not refused yet");
            assert!(matches!(opening.join(clock::now()), OpeningRole::Trial(_)));
            assert_eq!(opening.note_refusal(number(name)), at == 0);
            assert!(opening.is_refused());
            for known in &["a", "b", "c", "d"][..=at] {
                opening.meet(|| (*known).to_owned());
                assert!(opening.is_refused(), "{known}");
            }
        }
        opening.meet(|| "e".to_owned());
        assert!(opening.is_refused(), "so many are all");
        opening.forget();
        assert!(!opening.is_refused());
        opening.note_refusal(number("a"));
        opening.meet(|| "b".to_owned());
        opening.note_open();
        opening.meet(|| "a".to_owned());
        assert!(!opening.is_refused(), "it opens sessions");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_keeps_half_of_its_time_for_the_bridge() {
        for (after_s, expected_ms) in [(0, 27_500), (45, 5000), (54, 1000), (55, 1000), (90, 1000)] {
            let trial = SessionTrial::default();
            let told_at = clock::now() + Duration::from_secs(55);
            let watch = trial.watch();
            let waiting = tokio::spawn(async move {
                watch.client_time(told_at).await;
                clock::now()
            });
            sleep(Duration::from_secs(after_s)).await;
            let read_at = clock::now();
            trial.0.read.cancel();
            let waited = waiting.await.expect("it ends") - read_at;
            let expected = Duration::from_millis(expected_ms);
            assert!(
                waited >= expected && waited < expected + Duration::from_millis(100),
                "{after_s}: {waited:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_process_begins_when_it_has_read_the_question() {
        let (trial, read) = (SessionTrial::default(), CancellationToken::new());
        let late = async {
            sleep(Duration::from_secs(30)).await;
            assert!(!trial.watch().read.is_cancelled());
            read.cancel();
            sleep(Duration::from_secs(4)).await;
            Ok(())
        };
        assert_eq!(trial.answer(read.clone(), || PATIENCE, late).await, Ok(()));
        assert!(trial.watch().read.is_cancelled());
        let silent = trial.answer::<()>(read, || PATIENCE, std::future::pending());
        assert_eq!(silent.await, Err(UpstreamError::TimedOut));
        let watch = trial.watch();
        assert!(!watch.is_over());
        drop(trial);
        assert!(watch.is_over());
    }
}
