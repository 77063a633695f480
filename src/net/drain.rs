//! How the process ends: three clocks that every thread can watch.
//!
//! *Quiet* comes first: new work is still taken, but every answer asks its client to go elsewhere. Closing
//! a busy connection at once would lose calls that are already on the wire. Then *closing*: nothing is
//! accepted any more and what is left is finished. Then *cut*. A listener that is left ends by the same clocks.

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
        let is_reached = |at: &Arc<AtomicU8>| at.load(Ordering::Acquire) >= phase as u8;
        is_reached(&self.phase) || self.phases.iter().any(is_reached)
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

    /// Waits until this listener is left.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }

    /// Waits for the last phase.
    pub async fn cut(&self) {
        self.cut.cancelled().await;
    }
}

/// Waits for a phase in a task that wakes up often for other reasons: the wait is registered once, and costs a look at a
/// number from then on.
#[derive(Debug)]
pub struct PhaseWatch<'d, 'f, F> {
    drain: &'d Drain,
    phase: DrainPhase,
    reached: Pin<&'f mut F>,
    waker: Option<Waker>,
}

impl<'d, 'f, F: Future<Output = ()>> PhaseWatch<'d, 'f, F> {
    /// `reached` waits for this phase.
    pub fn new(drain: &'d Drain, phase: DrainPhase, reached: Pin<&'f mut F>) -> Self {
        Self { drain, phase, reached, waker: None }
    }

    /// Ready from the phase on.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.drain.has_reached(self.phase) {
            return Poll::Ready(());
        }
        if self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        self.reached.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_phase_wakes_who_looks_seldom() {
        for is_above in [false, true] {
            let above = Drain::default();
            let drain = above.below();
            let waited = async {
                let closing = pin!(drain.closing());
                let mut watch = PhaseWatch::new(&drain, DrainPhase::Closing, closing);
                // Other reasons to wake up come first.
                for _ in 0..3 {
                    poll_fn(|cx| Poll::Ready(watch.poll(cx)))
                        .await
                        .is_pending()
                        .then_some(())
                        .expect("too early");
                    tokio::task::yield_now().await;
                }
                poll_fn(|cx| watch.poll(cx)).await;
            };
            let started = async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                if is_above { above.start_closing() } else { drain.start_closing() }
            };
            let both = async { tokio::join!(waited, started) };
            tokio::time::timeout(Duration::from_secs(10), both).await.expect("nobody was woken");
            assert!(drain.has_reached(DrainPhase::Closing) && !drain.has_reached(DrainPhase::Cut));
        }
    }
}
