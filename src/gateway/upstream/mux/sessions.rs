//! The sessions that an upstream's connections carry, by the ids that callers know them by.

use std::collections::HashMap;

use http::HeaderValue;
use parking_lot::Mutex;

use super::MuxConnection;
use tokens::sealing::hex;

/// All of one upstream.
#[derive(Debug, Default)]
pub(crate) struct MuxSessions(Mutex<HashMap<Box<[u8]>, SessionHandle>>);

/// A session and the connection that carries it.
#[derive(Clone, Debug)]
pub(crate) struct SessionHandle {
    pub connection: MuxConnection,
    /// The number by which the connection knows the session.
    pub session: u64,
}

impl MuxSessions {
    /// Keeps a session and gives it an id. `None`: the system has no randomness.
    pub(crate) fn keep(&self, handle: SessionHandle) -> Option<HeaderValue> {
        let id = random_name()?;
        let header = HeaderValue::from_str(&id).ok()?;
        let mut sessions = self.0.lock();
        sessions.retain(|_, handle| !handle.connection.is_over());
        sessions.insert(id.into_bytes().into(), handle);
        Some(header)
    }

    pub(crate) fn get(&self, id: &HeaderValue) -> Option<SessionHandle> {
        let mut sessions = self.0.lock();
        let handle = sessions.get(id.as_bytes())?;
        if handle.connection.is_over() {
            sessions.remove(id.as_bytes());
            return None;
        }
        Some(handle.clone())
    }

    pub(crate) fn has_any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    pub(crate) fn remove(&self, id: &HeaderValue) -> Option<SessionHandle> {
        self.0.lock().remove(id.as_bytes()).filter(|handle| !handle.connection.is_over())
    }
}

/// A new name that nobody can guess. `None`: the system has no randomness.
pub(crate) fn random_name() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let (one, other) = (random_name().expect("randomness"), random_name().expect("randomness"));
        assert!(one != other && one.len() == 32);
    }
}
