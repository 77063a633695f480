//! How the process ends: three clocks that every thread can watch.
//!
//! *Quiet* comes first: new work is still taken, but every answer asks its client to go elsewhere. Closing
//! a busy connection at once would lose calls that are already on the wire. Then *closing*: nothing is
//! accepted any more and what is left is finished. Then *cut*. A listener that is left ends by the same clocks.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// The phases of the end.
#[derive(Debug, Default)]
pub struct Drain {
    is_quiet: AtomicBool,
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
        self.closing.cancel();
    }

    /// Starts the last phase.
    pub fn start_cut(&self) {
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
