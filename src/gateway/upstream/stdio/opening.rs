//! The readiness of a program that the gateway speaks to in the modern era to open sessions, as the first ones show, and how far
//! these are.
//!
//! A process that has read `initialize` and says nothing for a while opens no session. The time before it has read that is its
//! start, and says nothing of sessions.
//!
//! Invariants: a session that was not opened says nothing of clients that introduce themselves otherwise. Of those that do alike, one
//! session at a time is a trial. While nothing is known, one of all is, and others wait for what it shows.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::access::limit::payer::Payer;
use crate::clock;
use net::jitter::doubled;
use protocol::error::UpstreamError;
use protocol::json::{Document, Scratch, Value};

/// So many introductions are known that opened no session. Of more, the oldest goes of the client that has tried most of them.
const TRIED_MAX: usize = 64;
/// The pause after a process that was to open the first session and did not, though it may, doubled with each.
const VAIN_DOUBTED_MIN: Duration = Duration::from_secs(15);
const VAIN_DOUBTED_MAX: Duration = Duration::from_hours(1);

/// A client waits for so long at least.
const CLIENT_PATIENCE_MIN: Duration = Duration::from_secs(1);

/// The readiness of the program to open sessions, as those tell that were to be opened before any was. The end of a process, its
/// silence, and most errors may have had another cause: after a pause, another session is tried. Either holds for clients that
/// introduce themselves alike: it may be theirs alone what the program takes amiss.
#[derive(Debug, Default)]
pub(super) struct SessionOpening {
    /// Another one for each program, so that no client finds an introduction that meets another's.
    hasher: RandomState,
    trials: Mutex<OpeningTrials>,
}

#[derive(Debug, Default)]
struct OpeningTrials {
    /// It has opened one.
    is_open: bool,
    /// The introductions for which it opened none, the oldest first.
    tried: Vec<TriedIntroduction>,
    /// The trials by their introductions. Some may be over.
    under_way: Vec<(u64, TrialWatch)>,
}

/// An introduction for which no session was opened.
#[derive(Debug)]
struct TriedIntroduction {
    introduction: u64,
    /// The client that was the last to try it.
    payer: Payer,
    /// Its clients come over the bridge until then; `None`: for good.
    until: Option<Instant>,
    /// The trials in a row that came to nothing.
    vain: u32,
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

impl SessionOpening {
    /// The number of an introduction: of what this `initialize` says of a client, in whatever revision it does.
    pub(super) fn introduction(&self, initialize: &[u8], json_depth_max: usize) -> u64 {
        let mut scratch = Scratch::default();
        let root = scratch.index(initialize, json_depth_max).map(Document::root).ok();
        let params = root.and_then(|root| root.get("params"));
        let said = |name: &str| params.and_then(|params| params.get(name)).map(Value::raw);
        self.hasher.hash_one((said("capabilities"), said("clientInfo")))
    }

    /// It opened a session: what came to nothing before had another cause. Refusals stay, as they are of what a client says.
    pub(super) fn note_open(&self) {
        let mut trials = self.trials.lock();
        trials.is_open = true;
        trials.tried.retain(|tried| tried.until.is_none());
    }

    /// It refused to open the session of this trial, as it knows none. Returns whether that is news.
    pub(super) fn note_refusal(&self, trial: &SessionTrial) -> bool {
        self.trials.lock().note(trial, |_| None)
    }

    /// The process of this trial ended, said nothing or failed for another reason. Returns whether that is news.
    pub(super) fn note_vain(&self, trial: &SessionTrial, now: Instant) -> bool {
        self.trials.lock().note(trial, |vain| Some(after_pause(vain, now)))
    }

    /// A session is to be opened for this client. While nothing is known, one at a time is a trial. Once one came to nothing, those of
    /// other introductions do not wait for another such.
    pub(super) fn join(&self, introduction: u64, payer: Payer, now: Instant) -> OpeningRole {
        let mut trials = self.trials.lock();
        trials.under_way.retain(|(_, trial)| !trial.is_over());
        let tried = trials.tried.iter().find(|tried| tried.introduction == introduction);
        if trials.is_open || tried.is_some_and(|tried| tried.until.is_none()) {
            return OpeningRole::Known;
        }
        let is_known = !trials.tried.is_empty();
        let mut others = trials.under_way.iter();
        if let Some((_, other)) = others.find(|(other, _)| !is_known || *other == introduction) {
            return OpeningRole::Wait(other.clone());
        }
        // Others that introduce themselves alike do not wait for it again.
        if let Some(tried) = trials.tried.iter_mut().find(|tried| tried.introduction == introduction) {
            tried.until = Some(after_pause(tried.vain, now));
        }
        let trial = SessionTrial::new(introduction, payer);
        trials.under_way.push((introduction, trial.watch()));
        OpeningRole::Trial(trial)
    }

    /// The program may be another by now.
    pub(super) fn forget(&self) {
        *self.trials.lock() = OpeningTrials::default();
    }

    /// True if it opened none for clients of this introduction, and is not asked again yet.
    pub(super) fn is_bridged_for(&self, introduction: u64, now: Instant) -> bool {
        let trials = self.trials.lock();
        let mut tried = trials.tried.iter();
        let tried = tried.find(|tried| tried.introduction == introduction);
        tried.is_some_and(|tried| tried.until.is_none_or(|until| now < until))
    }

    /// True if there is an introduction for which it opened none.
    pub(super) fn has_tried(&self) -> bool {
        !self.trials.lock().tried.is_empty()
    }

    /// True if it was to open sessions, and has opened none so far.
    pub(super) fn opens_none(&self) -> bool {
        let trials = self.trials.lock();
        !trials.is_open && !trials.tried.is_empty()
    }
}

impl OpeningTrials {
    /// This trial came to nothing. `until`: from the number of those before it that did in a row. Returns whether that is news.
    fn note(&mut self, trial: &SessionTrial, until: impl FnOnce(u32) -> Option<Instant>) -> bool {
        let is_news = !self.is_open && self.tried.is_empty();
        let SessionTrial { introduction, payer, .. } = *trial;
        let known = self.tried.iter().position(|tried| tried.introduction == introduction);
        let vain = known.map_or(0, |at| self.tried.remove(at).vain);
        if self.tried.len() >= TRIED_MAX {
            self.forget_one();
        }
        let tried =
            TriedIntroduction { introduction, payer, until: until(vain), vain: vain.saturating_add(1) };
        self.tried.push(tried);
        is_news
    }

    /// The oldest goes of the client that has tried most, so that one that introduces itself in many ways makes others try nothing anew.
    fn forget_one(&mut self) {
        let count = |payer: Payer| self.tried.iter().filter(|tried| tried.payer == payer).count();
        // Of several that have as many, the one whose oldest is older than theirs.
        let most = self.tried.iter().rev().map(|tried| tried.payer).max_by_key(|payer| count(*payer));
        if let Some(at) = self.tried.iter().position(|tried| Some(tried.payer) == most) {
            self.tried.remove(at);
        }
    }
}

/// The end of the pause after one more trial that came to nothing.
fn after_pause(vain: u32, now: Instant) -> Instant {
    now + doubled(VAIN_DOUBTED_MIN, vain, VAIN_DOUBTED_MAX)
}

/// A session that shows whether the program opens any, until it is dropped.
#[derive(Debug)]
pub(super) struct SessionTrial {
    /// The introduction of its client.
    introduction: u64,
    payer: Payer,
    watch: TrialWatch,
}

/// The progress of a trial, for those who wait for it.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialWatch {
    /// Its process has read `initialize`.
    read: CancellationToken,
    over: CancellationToken,
}

impl SessionTrial {
    fn new(introduction: u64, payer: Payer) -> Self {
        Self { introduction, payer, watch: TrialWatch::default() }
    }

    pub(super) fn watch(&self) -> TrialWatch {
        self.watch.clone()
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
            self.watch.read.cancel();
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
        self.watch.over.cancel();
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

    fn payer() -> Payer {
        Payer::principal("a")
    }

    fn begin(opening: &SessionOpening, introduction: u64) -> SessionTrial {
        let OpeningRole::Trial(trial) = opening.join(introduction, payer(), clock::now()) else {
            panic!("{introduction} is tried")
        };
        trial
    }

    fn waits(opening: &SessionOpening, introduction: u64) -> bool {
        matches!(opening.join(introduction, payer(), clock::now()), OpeningRole::Wait(_))
    }

    fn is_known(opening: &SessionOpening, introduction: u64) -> bool {
        matches!(opening.join(introduction, payer(), clock::now()), OpeningRole::Known)
    }

    fn is_bridged(opening: &SessionOpening, introduction: u64) -> bool {
        opening.is_bridged_for(introduction, clock::now())
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_process_or_its_silence_is_no_refusal_for_good() {
        let opening = SessionOpening::default();
        assert!(!is_bridged(&opening, 1) && !opening.has_tried() && !opening.opens_none());
        for number in 0..3 {
            let trial = begin(&opening, 1);
            assert!(waits(&opening, 1), "one at a time");
            assert_eq!(is_bridged(&opening, 1), number > 0, "one at a time is tried again");
            advance(Duration::from_secs(1)).await;
            assert_eq!(opening.note_vain(&trial, clock::now()), number == 0, "it is news once");
            drop(trial);
            assert!(is_bridged(&opening, 1) && opening.has_tried() && opening.opens_none());
            advance(VAIN_DOUBTED_MIN * (1 << number)).await;
            assert!(!is_bridged(&opening, 1), "another session is tried");
        }
        let last = begin(&opening, 1);
        opening.note_open();
        assert!(is_known(&opening, 1) && !is_bridged(&opening, 1) && !opening.opens_none());
        assert!(!opening.note_refusal(&last), "it opens sessions");
    }

    #[test]
    fn a_refusal_holds_for_the_same_introduction_however_many_were_refused() {
        let opening = SessionOpening::default();
        for introduction in 0..9 {
            assert!(!is_bridged(&opening, introduction), "{introduction} was not refused yet");
            let trial = begin(&opening, introduction);
            assert_eq!(opening.note_refusal(&trial), introduction == 0);
            drop(trial);
            assert!((0..=introduction).all(|known| is_bridged(&opening, known)), "{introduction}");
            assert!(is_known(&opening, introduction), "it is tried once");
        }
        assert!(opening.opens_none());
        opening.note_open();
        assert!(is_bridged(&opening, 0) && !is_bridged(&opening, 9) && !opening.opens_none());
        opening.forget();
        assert!(!is_bridged(&opening, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn no_client_is_judged_by_the_session_of_another() {
        let opening = SessionOpening::default();
        let first = begin(&opening, 1);
        assert!(waits(&opening, 2), "nothing is known yet");
        opening.note_vain(&first, clock::now());
        drop(first);
        assert!(is_bridged(&opening, 1) && !is_bridged(&opening, 2));
        // It comes again and again, and is tried after each pause.
        advance(VAIN_DOUBTED_MIN).await;
        let again = begin(&opening, 1);
        let other = begin(&opening, 2);
        assert!(waits(&opening, 1) && waits(&opening, 2), "they are tried side by side");
        opening.note_refusal(&again);
        drop(again);
        assert!(waits(&opening, 2), "its own is under way");
        opening.note_open();
        drop(other);
        assert!(is_bridged(&opening, 1) && is_known(&opening, 2) && !is_bridged(&opening, 2));
    }

    #[test]
    fn a_client_with_many_introductions_makes_nobody_try_anew() {
        let opening = SessionOpening::default();
        opening.note_refusal(&begin(&opening, 0));
        for introduction in 1..500 {
            let trial = SessionTrial::new(introduction, Payer::principal("many"));
            opening.note_refusal(&trial);
        }
        assert!(is_bridged(&opening, 0), "it is another's");
        assert!(is_bridged(&opening, 499) && !is_bridged(&opening, 1));
        assert_eq!(opening.trials.lock().tried.len(), TRIED_MAX);
    }

    #[test]
    fn an_introduction_is_what_is_said_of_a_client_in_any_revision() {
        let opening = SessionOpening::default();
        let number = |id: u8, revision: &str, capabilities: &str, name: &str| {
            let params = format!(
                r#"{{"protocolVersion":"{revision}","capabilities":{capabilities},"clientInfo":{{"name":"{name}"}}}}"#
            );
            let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{params}}}"#);
            opening.introduction(message.as_bytes(), 16)
        };
        let one = number(1, "2025-11-25", "{}", "a");
        assert_eq!(one, number(2, "2025-06-18", "{}", "a"));
        assert_ne!(one, number(1, "2025-11-25", r#"{"roots":5}"#, "a"));
        assert_ne!(one, number(1, "2025-11-25", "{}", "b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_keeps_half_of_its_time_for_the_bridge() {
        for (after_s, expected_ms) in [(0, 27_500), (45, 5000), (54, 1000), (55, 1000), (90, 1000)] {
            let trial = SessionTrial::new(1, payer());
            let told_at = clock::now() + Duration::from_secs(55);
            let watch = trial.watch();
            let waiting = tokio::spawn(async move {
                watch.client_time(told_at).await;
                clock::now()
            });
            sleep(Duration::from_secs(after_s)).await;
            let read_at = clock::now();
            trial.watch.read.cancel();
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
        let (trial, read) = (SessionTrial::new(1, payer()), CancellationToken::new());
        let late = async {
            sleep(Duration::from_secs(30)).await;
            assert!(!trial.watch.read.is_cancelled());
            read.cancel();
            sleep(Duration::from_secs(4)).await;
            Ok(())
        };
        assert_eq!(trial.answer(read.clone(), || PATIENCE, late).await, Ok(()));
        assert!(trial.watch.read.is_cancelled());
        let silent = trial.answer::<()>(read, || PATIENCE, std::future::pending());
        assert_eq!(silent.await, Err(UpstreamError::TimedOut));
        let watch = trial.watch();
        assert!(!watch.is_over());
        drop(trial);
        assert!(watch.is_over());
    }
}
