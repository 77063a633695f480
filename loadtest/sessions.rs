//! The stub's legacy sessions: which ids were handed out and not ended yet, shared by all threads.
//!
//! As strict as a server may be: an id of another process is unknown, an ended one too, and a session takes only
//! `ping` before its `notifications/initialized`. Deliberately nothing else belongs to a session, and none expires.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};

/// All open sessions.
pub(crate) struct Sessions {
    /// Told apart from those of other processes by this.
    prefix: String,
    next: AtomicU64,
    stages: Mutex<HashMap<Vec<u8>, Stage>>,
}

/// How far a session's opening is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// `initialize` was answered.
    Opening,
    /// `notifications/initialized` came.
    Open,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        Self {
            prefix: format!("stub-{nanoseconds:x}-{:x}", std::process::id()),
            next: AtomicU64::new(1),
            stages: Mutex::default(),
        }
    }

    /// Opens one and returns its id.
    pub(crate) fn open(&self) -> String {
        let id = format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed));
        self.stages().insert(id.clone().into_bytes(), Stage::Opening);
        id
    }

    /// `None` where there is no such session.
    pub(crate) fn stage(&self, id: &[u8]) -> Option<Stage> {
        self.stages().get(id).copied()
    }

    /// Takes note of `notifications/initialized`.
    pub(crate) fn initialized(&self, id: &[u8]) {
        if let Some(stage) = self.stages().get_mut(id) {
            *stage = Stage::Open;
        }
    }

    /// Ends it; whether there was one.
    pub(crate) fn end(&self, id: &[u8]) -> bool {
        self.stages().remove(id).is_some()
    }

    fn stages(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Stage>> {
        self.stages.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_opens_in_two_steps_and_ends_once() {
        let sessions = Sessions::new();
        let (id, other) = (sessions.open(), sessions.open());
        assert_ne!(id, other);
        assert_eq!(sessions.stage(id.as_bytes()), Some(Stage::Opening));
        sessions.initialized(id.as_bytes());
        assert_eq!(sessions.stage(id.as_bytes()), Some(Stage::Open));
        assert_eq!((sessions.end(id.as_bytes()), sessions.end(id.as_bytes())), (true, false));
        sessions.initialized(id.as_bytes());
        assert_eq!(sessions.stage(id.as_bytes()), None);
        assert_eq!(sessions.stage(other.as_bytes()), Some(Stage::Opening));
    }
}
