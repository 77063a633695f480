//! The only way to spawn: tasks that are counted, so that a drain can wait for them, and whose panics end
//! nothing but themselves.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use prometheus::IntCounter;
use tokio_util::task::TaskTracker;

use crate::pulse::Pulses;

/// A thread's handle to spawn on its own runtime.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    panics: IntCounter,
}

impl Tasks {
    /// A handle that counts panics in `panics`.
    pub fn new(panics: IntCounter) -> Self {
        Self { tracker: TaskTracker::new(), panics }
    }

    /// Runs `future` on this thread's runtime. A panic in it is logged and counted.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let panics = self.panics.clone();
        // Combinators: an async block would hold the future twice, before and while it is awaited.
        let caught = AssertUnwindSafe(future).catch_unwind().map(move |result| {
            if result.is_err() {
                panics.inc();
                tracing::error!("a connection was ended by a panic; this is a bug");
            }
        });
        tokio::task::spawn_local(self.tracker.track_future(caught));
    }

    /// As [`spawn`](Self::spawn), for what the process is of no use without: after a panic it ends as if a worker had died.
    pub fn spawn_vital(&self, future: impl Future<Output = ()> + 'static, pulses: Arc<Pulses>) {
        self.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(future).catch_unwind().await {
                pulses.give_up();
                std::panic::resume_unwind(panic);
            }
        });
    }

    /// Runs `work` on the blocking pool and waits for its result. A panic in it is passed on to the caller.
    pub async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going away, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until every task has ended.
    pub async fn wait(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, future: F) {
        self.spawn(future);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_panic_of_what_is_vital_is_a_death() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build_local(tokio::runtime::LocalOptions::default());
        runtime.expect("a runtime").block_on(async {
            let panics = IntCounter::new("panics", "panics").expect("a counter");
            let (tasks, pulses) = (Tasks::new(panics.clone()), Arc::new(Pulses::default()));
            tasks.spawn(async { panic!("a bug") });
            tasks.spawn_vital(async {}, Arc::clone(&pulses));
            tasks.wait().await;
            assert_eq!(panics.get(), 1);
            assert!(pulses.death().now_or_never().is_none(), "the others go on");
            let tasks = Tasks::new(panics.clone());
            tasks.spawn_vital(async { panic!("a bug") }, Arc::clone(&pulses));
            let death = tokio::time::timeout(Duration::from_secs(10), pulses.death());
            assert!(death.await.is_ok());
            tasks.wait().await;
            assert_eq!(panics.get(), 2);
        });
    }
}
