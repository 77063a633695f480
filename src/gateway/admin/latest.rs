//! One answer for all who wait for it: however many ask at once, it is made for all of them together. Nobody gets
//! one that was begun before they asked.
//!
//! Invariant: no two are made at a time, even if everybody leaves meanwhile. What makes one holds the lock itself.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use crate::clock;
use net::tasks::Tasks;

/// An answer that takes long to make.
#[derive(Debug)]
pub(super) struct Latest<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + 'static> Latest<T> {
    /// An answer that was begun after this was called; made on the blocking pool.
    pub(super) async fn get(&self, tasks: &Tasks, make: impl FnOnce() -> T + Send + 'static) -> T {
        let asked = clock::now();
        let mut latest = Arc::clone(&self.0).lock_owned().await;
        if let Some((begun, answer)) = &*latest
            && *begun >= asked
        {
            return answer.clone();
        }
        let begin = move || {
            let begun = clock::now();
            let answer = make();
            *latest = Some((begun, answer.clone()));
            answer
        };
        tasks.compute(begin).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use futures_util::future::join_all;
    use prometheus::IntCounter;

    use super::*;

    /// How many were made, and how many are being made.
    #[derive(Default)]
    struct Made {
        all: AtomicUsize,
        at_once: AtomicUsize,
        at_once_max: AtomicUsize,
    }

    impl Made {
        fn another(&self) -> usize {
            let at_once = self.at_once.fetch_add(1, SeqCst) + 1;
            self.at_once_max.fetch_max(at_once, SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            self.at_once.fetch_sub(1, SeqCst);
            self.all.fetch_add(1, SeqCst) + 1
        }
    }

    fn asking() -> (Latest<usize>, Tasks, Arc<Made>) {
        let counter = IntCounter::new("c", "C.").expect("a counter");
        (Latest::default(), Tasks::new(counter), Arc::default())
    }

    fn maker(made: &Arc<Made>) -> impl FnOnce() -> usize + Send + 'static {
        let made = Arc::clone(made);
        move || made.another()
    }

    #[tokio::test]
    async fn whoever_asks_meanwhile_shares_the_next_one() {
        let (latest, tasks, made) = asking();
        let asked = join_all((0..100).map(|_| latest.get(&tasks, maker(&made)))).await;
        let before = made.all.load(SeqCst);
        assert!(before <= 2, "one, and one for those who came after it was begun: {asked:?}");
        assert_eq!(latest.get(&tasks, maker(&made)).await, before + 1, "nobody gets an old one");
    }

    #[tokio::test]
    async fn those_who_leave_do_not_have_another_made_beside_theirs() {
        let (latest, tasks, made) = asking();
        for _ in 0..5 {
            let left = tokio::time::timeout(Duration::from_millis(2), latest.get(&tasks, maker(&made))).await;
            assert!(left.is_err(), "it takes longer");
        }
        latest.get(&tasks, maker(&made)).await;
        assert_eq!(made.at_once_max.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn one_that_panics_harms_only_its_own_asker() {
        let (latest, tasks, made) = asking();
        let broken = || -> usize { panic!("broken") };
        let asked = std::panic::AssertUnwindSafe(latest.get(&tasks, broken));
        assert!(futures_util::FutureExt::catch_unwind(asked).await.is_err());
        assert_eq!(latest.get(&tasks, maker(&made)).await, 1);
    }
}
