//! The only way to spawn: tasks that are counted, so that a drain can wait for them, and whose panics end
//! nothing but themselves.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use futures_util::FutureExt as _;
use prometheus::IntCounter;
use tokio_util::task::TaskTracker;

/// A thread's handle to spawn on its own runtime.
///
/// The default one logs panics and does not count them: it is for programs without metrics.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    panics: Option<IntCounter>,
}

impl Tasks {
    /// A handle that counts panics in `panics`.
    pub fn new(panics: IntCounter) -> Self {
        Self { tracker: TaskTracker::new(), panics: Some(panics) }
    }

    /// Runs `future` on this thread's runtime. A panic in it is logged and counted.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        // In a box, so that the code of tokio's tasks is there once and not for each of some sixty futures.
        let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(future);
        self.spawn_unboxed(future);
    }

    /// As [`spawn`](Self::spawn), without an allocation of its own: for what begins with a message.
    pub fn spawn_unboxed(&self, future: impl Future<Output = ()> + 'static) {
        let panics = self.panics.clone();
        // Combinators: an async block would hold the future twice, before and while it is awaited.
        let caught = AssertUnwindSafe(future).catch_unwind().map(move |result| {
            if result.is_err() {
                if let Some(panics) = panics {
                    panics.inc();
                }
                tracing::error!("a connection was ended by a panic; this is a bug");
            }
        });
        tokio::task::spawn_local(self.tracker.track_future(caught));
    }

    /// As [`spawn`](Self::spawn), for what the process is of no use without: a panic calls `on_panic`, too.
    pub fn spawn_vital(&self, future: impl Future<Output = ()> + 'static, on_panic: impl FnOnce() + 'static) {
        self.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(future).catch_unwind().await {
                on_panic();
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
        self.spawn_unboxed(future);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_panic_of_what_is_vital_is_told_of() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(tokio::runtime::LocalOptions::default());
        runtime.expect("a runtime").block_on(async {
            let panics = IntCounter::new("panics", "panics").expect("a counter");
            let deaths = Rc::new(Cell::new(0));
            let on_panic = || {
                let deaths = Rc::clone(&deaths);
                move || deaths.set(deaths.get() + 1)
            };
            let tasks = Tasks::new(panics.clone());
            tasks.spawn(async { panic!("a bug") });
            tasks.spawn_vital(async {}, on_panic());
            tasks.wait().await;
            assert_eq!((panics.get(), deaths.get()), (1, 0), "the others go on");
            let tasks = Tasks::new(panics.clone());
            tasks.spawn_vital(async { panic!("a bug") }, on_panic());
            tasks.wait().await;
            assert_eq!((panics.get(), deaths.get()), (2, 1));
        });
    }
}
