//! Where a traced request went: noted on its way by whoever sends it, and read when its span is made.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use http::StatusCode;
use parking_lot::Mutex;

/// Where a request went. Requests that are not traced have none.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    at: Mutex<Option<(String, u16)>>,
    resends: AtomicU32,
    /// 0: no answer yet.
    status: AtomicU16,
}

impl Trail {
    pub(crate) fn goes_to(&self, host: &str, port: u16) {
        *self.at.lock() = Some((host.to_owned(), port));
    }

    pub(crate) fn goes_again(&self) {
        self.resends.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_answered(&self, status: StatusCode) {
        self.status.store(status.as_u16(), Ordering::Relaxed);
    }

    /// The last host and port.
    pub(super) fn at(&self) -> Option<(String, u16)> {
        self.at.lock().clone()
    }

    pub(super) fn resends(&self) -> u32 {
        self.resends.load(Ordering::Relaxed)
    }

    pub(super) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status != 0)
    }
}
