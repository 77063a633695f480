//! Turns at opening grants: sign-ins of one person at this gateway go one after the other, so that none is given up because the
//! others change the account all the time. Those at other gateways are seen by compare-and-set.

use identity::sealed::fingerprint::Fingerprint;
use tokio::sync::{Mutex, MutexGuard};

/// Those of so many people at once seldom wait for each other.
const TURNS: usize = 64;

/// The turns of all accounts.
#[derive(Debug)]
pub(super) struct OpeningTurns([Mutex<()>; TURNS]);

impl Default for OpeningTurns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl OpeningTurns {
    /// The turn of an account. It lasts until it is dropped.
    pub(super) async fn of(&self, account: Fingerprint) -> MutexGuard<'_, ()> {
        let [first, ..] = account.0;
        self.0[usize::from(first) % TURNS].lock().await
    }
}
