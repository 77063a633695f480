//! The sessions of legacy clients, in memory.
//!
//! Invariant: at most [`SESSIONS_MAX`]; the one that was used least recently gives way, and its client is told
//! that it is gone.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

use super::rpc::RpcError;
use super::token::unguessable;

const SESSIONS_MAX: usize = 256;

/// The open sessions of one demo server.
#[derive(Default)]
pub(super) struct Sessions {
    /// Id and negotiated revision, the one used last at the back.
    open: Mutex<VecDeque<(String, &'static str)>>,
}

impl Sessions {
    /// The id of a new session that speaks `revision`.
    pub(super) fn open(&self, revision: &'static str) -> Result<String, RpcError> {
        let id = unguessable()?;
        let mut open = self.lock();
        if open.len() >= SESSIONS_MAX {
            open.pop_front();
        }
        open.push_back((id.clone(), revision));
        Ok(id)
    }

    /// The revision that the session speaks, if it is open.
    pub(super) fn revision(&self, id: &str) -> Option<&'static str> {
        let mut open = self.lock();
        let session = take(&mut open, id)?;
        let revision = session.1;
        open.push_back(session);
        Some(revision)
    }

    /// Ends the session; false if it is not open.
    pub(super) fn end(&self, id: &str) -> bool {
        take(&mut self.lock(), id).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, &'static str)>> {
        // Every change is complete before the lock is released, so what a panic left behind is still good.
        self.open.lock()
    }
}

fn take(open: &mut VecDeque<(String, &'static str)>, id: &str) -> Option<(String, &'static str)> {
    let index = open.iter().position(|(known, _)| known == id)?;
    open.remove(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_used_least_recently_gives_way() {
        let sessions = Sessions::default();
        let ids: Vec<String> = (0..SESSIONS_MAX).map(|_| sessions.open("a").unwrap()).collect();
        assert_eq!(sessions.revision(&ids[0]), Some("a"));
        sessions.open("b").unwrap();
        assert_eq!(sessions.revision(&ids[0]), Some("a"));
        assert_eq!(sessions.revision(&ids[1]), None);
    }

    #[test]
    fn a_session_ends_once() {
        let sessions = Sessions::default();
        let (one, other) = (sessions.open("a").unwrap(), sessions.open("b").unwrap());
        assert!(sessions.end(&one));
        assert!(!sessions.end(&one));
        assert_eq!((sessions.revision(&one), sessions.revision(&other)), (None, Some("b")));
    }
}
