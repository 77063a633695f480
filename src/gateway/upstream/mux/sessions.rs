//! The sessions that an upstream's connections carry, by the ids that callers know them by.

use std::collections::HashMap;
use std::fmt::Write as _;

use http::HeaderValue;
use parking_lot::Mutex;

use super::MuxConnection;

/// All of one upstream.
#[derive(Debug, Default)]
pub(crate) struct MuxSessions(Mutex<HashMap<Box<[u8]>, SessionHandle>>);

/// A session and the connection that carries it.
#[derive(Clone, Debug)]
pub(crate) struct SessionHandle {
    pub pipe: MuxConnection,
    /// The number by which the connection knows the session.
    pub session: u64,
}

impl MuxSessions {
    /// Keeps a session and gives it an id. `None`: the system has no randomness.
    pub(crate) fn keep(&self, seat: SessionHandle) -> Option<HeaderValue> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        let id = bytes.iter().fold(String::with_capacity(32), |mut id, byte| {
            let _ = write!(id, "{byte:02x}");
            id
        });
        let header = HeaderValue::from_str(&id).ok()?;
        let mut seats = self.0.lock();
        seats.retain(|_, seat| !seat.pipe.is_over());
        seats.insert(id.into_bytes().into(), seat);
        Some(header)
    }

    pub(crate) fn get(&self, id: &HeaderValue) -> Option<SessionHandle> {
        let mut seats = self.0.lock();
        let seat = seats.get(id.as_bytes())?;
        if seat.pipe.is_over() {
            seats.remove(id.as_bytes());
            return None;
        }
        Some(seat.clone())
    }

    /// Whether the connection of one `fits`.
    pub(crate) fn any(&self, fits: impl Fn(&MuxConnection) -> bool) -> bool {
        self.0.lock().values().any(|seat| fits(&seat.pipe))
    }

    pub(crate) fn remove(&self, id: &HeaderValue) -> Option<SessionHandle> {
        self.0.lock().remove(id.as_bytes()).filter(|seat| !seat.pipe.is_over())
    }
}
