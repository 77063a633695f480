//! The health of the files in the state directory: one is behind while it lacks what memory has.
//!
//! The writer of a file notes the outcome, and the reason if it fails. `/status` and the metrics tell it.
//! The writer also tries again.

use parking_lot::Mutex;

/// Since when a file lacks what memory has, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateFileFault {
    pub since_s: u64,
    pub reason: String,
}

/// The health of one file, or of several of one kind.
#[derive(Debug, Default)]
pub(crate) struct StateFileHealth(Mutex<Option<StateFileFault>>);

impl StateFileHealth {
    /// `None`: the file has everything, or there is none.
    pub(crate) fn fault(&self) -> Option<StateFileFault> {
        self.0.lock().clone()
    }

    /// The file lacks something from `now_s` on, if it did not before. True: the log does not have this reason yet.
    pub(crate) fn note_behind(&self, reason: String, now_s: u64) -> bool {
        let mut fault = self.0.lock();
        let before = fault.take();
        let is_news = before.as_ref().is_none_or(|before| before.reason != reason);
        *fault = Some(StateFileFault { since_s: before.map_or(now_s, |before| before.since_s), reason });
        is_news
    }

    /// The file has everything. True: it was behind.
    pub(crate) fn note_written(&self) -> bool {
        self.0.lock().take().is_some()
    }
}

/// The health of what makes the next start a warm one.
#[derive(Debug, Default)]
pub(crate) struct UpstreamFilesHealth {
    /// Of what is known of upstreams.
    pub facts: StateFileHealth,
    /// Of their lists.
    pub lists: StateFileHealth,
}

impl UpstreamFilesHealth {
    /// Since when any of them is behind, and all reasons.
    pub(crate) fn fault(&self) -> Option<StateFileFault> {
        let faults = [self.facts.fault(), self.lists.fault()];
        faults.into_iter().flatten().reduce(|one, other| StateFileFault {
            since_s: one.since_s.min(other.since_s),
            reason: format!("{}; {}", one.reason, other.reason),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_lasts_from_the_first_failure_to_the_first_success() {
        let health = StateFileHealth::default();
        assert!(!health.note_written());
        assert!(health.note_behind("no space".to_owned(), 5));
        assert!(!health.note_behind("no space".to_owned(), 6), "it is logged once");
        assert!(health.note_behind("read-only".to_owned(), 7));
        assert_eq!(health.fault(), Some(StateFileFault { since_s: 5, reason: "read-only".to_owned() }));
        assert!(health.note_written());
        assert_eq!(health.fault(), None);
    }

    #[test]
    fn faults_of_both_are_told_together() {
        let health = UpstreamFilesHealth::default();
        assert_eq!(health.fault(), None);
        health.lists.note_behind("lists: no space".to_owned(), 5);
        health.facts.note_behind("upstreams.json: no space".to_owned(), 6);
        let reason = "upstreams.json: no space; lists: no space".to_owned();
        assert_eq!(health.fault(), Some(StateFileFault { since_s: 5, reason }));
    }
}
