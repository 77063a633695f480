//! The questions for lists that a server refused last, with all that it takes to ask them again.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::cache::PartKey;
use super::dialect::Dialect;

/// Questions that are kept, of all upstreams.
const QUESTIONS_MAX: usize = 1024;
/// A question in which a client says more of itself is not kept.
const CAPABILITIES_BYTES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct FailingLists {
    questions: Mutex<HashMap<PartKey, Dialect<Bytes>>>,
    noted: Notify,
}

impl FailingLists {
    /// It was refused.
    #[cold]
    pub(crate) fn note(&self, key: PartKey, dialect: &Dialect<Bytes>) {
        let (Dialect::Modern(capabilities) | Dialect::Legacy(_, capabilities)) = dialect;
        let mut questions = self.questions.lock();
        if questions.len() < QUESTIONS_MAX && capabilities.len() <= CAPABILITIES_BYTES_MAX {
            questions.entry(key).or_insert_with(|| dialect.clone());
            self.noted.notify_one();
        }
    }

    /// It is asked no more.
    pub(crate) fn forget(&self, key: &PartKey) {
        self.questions.lock().remove(key);
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(PartKey, Dialect<Bytes>)> {
        self.questions.lock().iter().map(|(key, dialect)| (*key, dialect.clone())).collect()
    }

    /// Waits until there are any.
    pub(crate) async fn any(&self) {
        while self.questions.lock().is_empty() {
            self.noted.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::lists::cache::Scope;
    use crate::tables::lists::{CatalogQuery, List};
    use crate::upstream::UpstreamId;

    #[test]
    fn what_clients_say_of_themselves_fills_no_memory() {
        let failing = FailingLists::default();
        let note = |slot: usize, length: usize| {
            let dialect = Dialect::Modern(Bytes::from(vec![b' '; length]));
            let upstream = UpstreamId { slot, generation: 0 };
            let kind = CatalogQuery::List(List::Tools);
            failing.note(PartKey { upstream, kind, scope: Scope::Gateway, dialect: dialect.key() }, &dialect);
        };
        note(0, CAPABILITIES_BYTES_MAX + 1);
        assert!(failing.all().is_empty());
        for slot in 0..2 * QUESTIONS_MAX {
            note(slot, 2);
        }
        let all = failing.all();
        assert_eq!(all.len(), QUESTIONS_MAX);
        for (key, _) in &all {
            failing.forget(key);
        }
        assert!(failing.all().is_empty());
    }
}
