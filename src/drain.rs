//! How the process ends: three clocks that every thread can watch.
//!
//! *Quiet* comes first: new work is still taken, but every answer asks its client to go elsewhere. Closing
//! a busy connection at once would lose calls that are already on the wire. Then *closing*: nothing is
//! accepted any more and what is left is finished. Then *cut*.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// The phases of the end.
#[derive(Debug, Default)]
pub struct Drain {
    is_quiet: AtomicBool,
    quiet: CancellationToken,
    closing: CancellationToken,
    cut: CancellationToken,
}

impl Drain {
    /// True from the first phase on. Cheap enough for every call.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Starts the first phase.
    pub fn start_quiet(&self) {
        self.is_quiet.store(true, Ordering::Relaxed);
        self.quiet.cancel();
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

    /// Waits for the last phase.
    pub async fn cut(&self) {
        self.cut.cancelled().await;
    }
}
