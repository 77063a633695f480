//! Why lists of an upstream cannot be had.
//!
//! An upstream may be asked for one list in several ways, by what clients declare and in whose name: one may fail while
//! others are answered. A fault is over once the same question is answered, and the gateway asks it again by itself. One that
//! no client asks again gives way to other answers after a while, so that a client that is gone leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::fault::{Fault, LastFault, NotedFault};
use super::health::clock_ms;
use crate::clock;

/// Questions of which a fault is known at once; beyond it the oldest is forgotten.
const QUESTIONS_MAX: usize = 16;
/// How long a fault holds against the answers to other questions.
const BELIEVED: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct ListFaults {
    are_any: AtomicBool,
    /// The oldest first.
    failing: Mutex<Vec<ListFault>>,
}

#[derive(Debug)]
struct ListFault {
    /// The number of the list.
    list: u8,
    /// A digest of the question.
    question: u64,
    last: LastFault,
    /// The last time that somebody met it who needs the list.
    met_ms: u64,
    /// The log has it.
    is_logged: bool,
}

impl ListFault {
    fn is(&self, fault: &Fault) -> bool {
        self.last.latest().is_some_and(|last| last.fault == *fault)
    }
}

impl ListFaults {
    /// False if the log has this fault of this list.
    #[cold]
    pub(super) fn note(&self, list: u8, question: u64, fault: Fault) -> bool {
        let met_ms = clock_ms(clock::now());
        let mut failing = self.failing.lock();
        let is_logged = failing.iter().any(|known| known.list == list && known.is_logged && known.is(&fault));
        if let Some(known) = failing.iter_mut().find(|known| known.question == question) {
            known.last.note(fault, 0, true);
            (known.met_ms, known.is_logged) = (met_ms, is_logged);
            return !is_logged;
        }
        if failing.len() >= QUESTIONS_MAX {
            failing.remove(0);
        }
        let noted = LastFault::default();
        noted.note(fault, 0, true);
        failing.push(ListFault { list, question, last: noted, met_ms, is_logged });
        self.are_any.store(true, Ordering::Release);
        !is_logged
    }

    /// The log has the fault that this question met last.
    #[cold]
    pub(super) fn note_logged(&self, question: u64) {
        if let Some(known) = self.failing.lock().iter_mut().find(|known| known.question == question) {
            known.is_logged = true;
        }
    }

    /// The gateway asked again, and met this.
    #[cold]
    pub(super) fn note_again(&self, question: u64, fault: Fault) {
        if let Some(known) = self.failing.lock().iter().find(|known| known.question == question) {
            known.last.note(fault, 0, true);
        }
    }

    /// The fault that this question met last.
    pub(super) fn of(&self, question: u64) -> Option<Arc<NotedFault>> {
        self.failing.lock().iter().find(|known| known.question == question)?.last.latest()
    }

    /// True if this question met that fault not so long ago.
    pub(super) fn has_met(&self, question: u64, fault: &Fault, within: Duration) -> bool {
        let is_recent =
            |at_ms: u64| u128::from(clock_ms(clock::now()).saturating_sub(at_ms)) < within.as_millis();
        self.of(question).is_some_and(|noted| noted.fault == *fault && is_recent(noted.at_ms))
    }

    /// It was answered.
    pub(super) fn note_answered(&self, list: u8, question: u64) {
        if self.are_any.load(Ordering::Acquire) {
            self.clear(list, question);
        }
    }

    #[cold]
    fn clear(&self, list: u8, question: u64) {
        let now_ms = clock_ms(clock::now());
        let believed_ms = u64::try_from(BELIEVED.as_millis()).unwrap_or(u64::MAX);
        let is_old = |known: &ListFault| now_ms.saturating_sub(known.met_ms) > believed_ms;
        let mut failing = self.failing.lock();
        // A process ends at a list however that is asked for.
        failing.retain(|known| {
            let is_over = known.question == question || (known.list == list && known.is(&Fault::Closed));
            !is_over && !is_old(known)
        });
        self.are_any.store(!failing.is_empty(), Ordering::Release);
    }

    /// All of them by the number of their list, and of each list those first that have been known for longest.
    pub(super) fn in_order(&self) -> Vec<(u8, Arc<NotedFault>)> {
        if !self.are_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let failing = self.failing.lock();
        let mut all: Vec<_> =
            failing.iter().filter_map(|known| Some((known.list, known.last.latest()?))).collect();
        all.sort_by_key(|(list, _)| *list);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Fault {
        Fault::Other(text.into())
    }

    fn first(faults: &ListFaults) -> Option<Fault> {
        faults.in_order().first().map(|(_, noted)| noted.fault.clone())
    }

    #[test]
    fn a_fault_is_over_once_its_own_question_is_answered() {
        let faults = ListFaults::default();
        faults.note_answered(0, 1);
        faults.note(0, 1, named("one"));
        faults.note(0, 2, named("two"));
        faults.note_answered(0, 3);
        assert_eq!(first(&faults), Some(named("one")));
        faults.note(0, 1, named("another"));
        assert_eq!(first(&faults), Some(named("another")));
        faults.note_answered(0, 1);
        assert_eq!(first(&faults), Some(named("two")));
        faults.note_answered(0, 2);
        assert_eq!(first(&faults), None);
    }

    #[test]
    fn the_fault_of_the_tools_is_told_before_others() {
        let faults = ListFaults::default();
        faults.note(1, 5, named("prompts"));
        faults.note(0, 6, named("tools"));
        assert_eq!(first(&faults), Some(named("tools")));
        faults.note(0, 7, named("tools by another"));
        let all: Vec<Fault> = faults.in_order().iter().map(|(_, noted)| noted.fault.clone()).collect();
        assert_eq!(all, ["tools", "tools by another", "prompts"].map(named));
        faults.note_answered(0, 7);
        faults.note_answered(0, 6);
        assert_eq!(first(&faults), Some(named("prompts")));
    }

    #[test]
    fn the_end_of_a_process_is_over_with_any_answer_to_the_list() {
        let faults = ListFaults::default();
        faults.note(0, 1, Fault::Closed);
        faults.note_answered(1, 2);
        assert_eq!(first(&faults), Some(Fault::Closed));
        faults.note_answered(0, 3);
        assert_eq!(first(&faults), None);
    }

    #[test]
    fn a_fault_of_a_list_is_logged_once_however_it_is_asked_for() {
        let faults = ListFaults::default();
        assert!(faults.note(0, 1, named("one")));
        assert!(faults.note(0, 1, named("one")), "there was no room in the log");
        faults.note_logged(1);
        assert!(!faults.note(0, 1, named("one")) && !faults.note(0, 2, named("one")));
        assert!(faults.note(1, 3, named("one")), "another list");
        assert!(faults.note(0, 2, named("two")), "another fault");
        faults.note_answered(0, 1);
        assert!(faults.note(0, 1, named("one")), "it was over");
    }

    #[test]
    fn no_more_questions_are_remembered_than_may_be() {
        let faults = ListFaults::default();
        for question in 0..1000 {
            faults.note(0, question, named("no"));
        }
        assert_eq!(faults.failing.lock().len(), QUESTIONS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_nobody_asks_again_gives_way() {
        let faults = ListFaults::default();
        faults.note(0, 1, named("one"));
        tokio::time::advance(BELIEVED).await;
        faults.note(0, 2, named("two"));
        tokio::time::advance(Duration::from_secs(1)).await;
        // Asked again by the gateway, it is no younger.
        faults.note_again(1, named("again"));
        faults.note_again(4, named("never met"));
        assert_eq!(first(&faults), Some(named("again")));
        faults.note_answered(0, 3);
        assert_eq!(first(&faults), Some(named("two")));
        assert!(faults.of(1).is_none() && faults.of(2).is_some());
    }
}
