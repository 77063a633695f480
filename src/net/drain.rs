//! How the process ends: three clocks that every thread can watch.
//!
//! *Quiet* comes first: new work is still taken, but every answer asks its client to go elsewhere. Closing
//! a busy connection at once would lose calls that are already on the wire. Then *closing*: nothing is
//! accepted any more and what is left is finished. Then *cut*. A listener that is left ends by the same clocks.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use tokio_util::sync::CancellationToken;

/// A phase that connections look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainPhase {
    /// Nothing is accepted any more.
    Closing = 1,
    /// What is left is cut off.
    Cut = 2,
}

/// The phases of the end.
#[derive(Debug, Default)]
pub struct Drain {
    is_quiet: AtomicBool,
    /// How far this one has come, and those that it comes with: set before the tokens are, so that who was woken by one
    /// sees it.
    phases: Vec<Arc<AtomicU8>>,
    phase: Arc<AtomicU8>,
    left: CancellationToken,
    quiet: CancellationToken,
    closing: CancellationToken,
    cut: CancellationToken,
}

impl Drain {
    /// One that comes with this one, or before it.
    #[must_use]
    pub fn below(&self) -> Self {
        Self {
            is_quiet: AtomicBool::new(self.is_quiet()),
            phases: self.phases.iter().chain([&self.phase]).map(Arc::clone).collect(),
            phase: Arc::default(),
            left: CancellationToken::new(),
            quiet: self.quiet.child_token(),
            closing: self.closing.child_token(),
            cut: self.cut.child_token(),
        }
    }

    /// True from the first phase on. Cheap enough for every call.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// How far it has come: `none`, `quiet`, `closing` or `cut`.
    pub fn phase(&self) -> &'static str {
        match () {
            () if self.cut.is_cancelled() => "cut",
            () if self.closing.is_cancelled() => "closing",
            () if self.is_quiet() => "quiet",
            () => "none",
        }
    }

    /// Whether a phase was reached. Cheap enough for every call.
    pub fn has_reached(&self, phase: DrainPhase) -> bool {
        self.reached() >= phase as u8
    }

    fn reached(&self) -> u8 {
        let reached = |at: &Arc<AtomicU8>| at.load(Ordering::Acquire);
        self.phases.iter().map(reached).fold(reached(&self.phase), u8::max)
    }

    /// Starts the first phase.
    pub fn start_quiet(&self) {
        self.is_quiet.store(true, Ordering::Relaxed);
        self.quiet.cancel();
    }

    /// Starts the first phase for one listener alone, which is left: others go on, so nobody need be accepted there.
    pub fn leave(&self) {
        self.start_quiet();
        self.left.cancel();
    }

    /// Starts the second phase.
    pub fn start_closing(&self) {
        self.phase.fetch_max(DrainPhase::Closing as u8, Ordering::Release);
        self.closing.cancel();
    }

    /// Starts the last phase.
    pub fn start_cut(&self) {
        self.phase.fetch_max(DrainPhase::Cut as u8, Ordering::Release);
        self.cut.cancel();
    }

    /// Waits for the first phase.
    pub async fn quiet(&self) {
        self.quiet.cancelled().await;
    }

    /// Waits for the second phase.
    pub async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Waits for the second phase, and from then on for the last.
    pub async fn ended(&self) {
        self.closing.cancelled().await;
        self.cut.cancelled().await;
    }

    /// Waits until this listener is left.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }

    /// Waits for the last phase.
    pub async fn cut(&self) {
        self.cut.cancelled().await;
    }
}

/// Watches the phases in a task that wakes up often for other reasons: the wait is registered once for each, and costs a look
/// at a number from then on.
#[derive(Debug)]
pub struct PhaseWatch<'d, 'f, F> {
    drain: &'d Drain,
    ended: Pin<&'f mut F>,
    waker: Option<Waker>,
}

impl<'d, 'f, F: Future<Output = ()>> PhaseWatch<'d, 'f, F> {
    /// `ended` is [`Drain::ended`] of the same.
    pub fn new(drain: &'d Drain, ended: Pin<&'f mut F>) -> Self {
        Self { drain, ended, waker: None }
    }

    /// What comes of `future`, unless the last phase comes first.
    pub fn until_cut<'w, T>(
        &'w mut self,
        mut future: Pin<&'w mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        poll_fn(move |cx| match self.poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => future.as_mut().poll(cx).map(Some),
        })
    }

    /// Ready once the last phase has come. The task is woken for each phase that it can ask for.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reached = self.drain.reached();
        if reached >= DrainPhase::Cut as u8 {
            return Poll::Ready(());
        }
        let is_registered = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        // From one phase on, the next is waited for, which only the wait itself knows.
        if is_registered && reached < DrainPhase::Closing as u8 {
            return Poll::Pending;
        }
        if !is_registered {
            self.waker = Some(cx.waker().clone());
        }
        self.ended.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::task::JoinHandle;

    use super::*;

    /// How often a task has looked that watches the phases, and that nothing else wakes after its third look.
    fn watch(drain: &Arc<Drain>) -> (Arc<AtomicUsize>, JoinHandle<()>) {
        let (drain, looks) = (Arc::clone(drain), Arc::new(AtomicUsize::new(0)));
        let looked = Arc::clone(&looks);
        let watching = tokio::spawn(async move {
            let ended = pin!(drain.ended());
            let mut watch = PhaseWatch::new(&drain, ended);
            poll_fn(|cx| {
                let polled = watch.poll(cx);
                if looked.fetch_add(1, Ordering::Relaxed) < 2 {
                    cx.waker().wake_by_ref();
                }
                polled
            })
            .await;
        });
        (looks, watching)
    }

    #[tokio::test]
    async fn each_phase_wakes_who_looks_seldom() {
        for is_above in [false, true] {
            let above = Arc::new(Drain::default());
            let drain = Arc::new(above.below());
            let (looks, watching) = watch(&drain);
            let started = if is_above { &above } else { &drain };
            let settle = async || {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            };
            settle().await;
            assert_eq!(looks.load(Ordering::Relaxed), 3);
            started.start_closing();
            settle().await;
            assert_eq!(looks.load(Ordering::Relaxed), 4, "it was not woken");
            assert!(drain.has_reached(DrainPhase::Closing) && !drain.has_reached(DrainPhase::Cut));
            started.start_cut();
            tokio::time::timeout(Duration::from_secs(10), watching)
                .await
                .expect("in time")
                .expect("no panic");
            assert_eq!(looks.load(Ordering::Relaxed), 5);
        }
    }
}
