//! How many messages that have no answer may be on their way to one upstream: of all clients, and of one.
//!
//! Without a bound they would take the connections of calls; without one for each client, a client whose messages the
//! upstream does not accept would keep those of all others waiting.
//!
//! Deliberately not here: what is sent, and how long it may take.
//!
//! Invariant: a client is known here only while it has a turn or waits for one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;

#[derive(Debug)]
pub(crate) struct MessageTurns {
    all: Arc<Semaphore>,
    of_one_max: usize,
    clients: Mutex<HashMap<Payer, TurnsOfOne, IdentityHash>>,
}

#[derive(Debug)]
struct TurnsOfOne {
    semaphore: Arc<Semaphore>,
    /// How many [`KnownClient`] there are of it.
    holders: usize,
}

#[derive(Debug)]
pub(crate) struct MessageTurn {
    _of_all: Option<OwnedSemaphorePermit>,
    _of_one: Option<OwnedSemaphorePermit>,
    _client: KnownClient,
}

/// Forgets the client when the last of these is dropped.
#[derive(Debug)]
struct KnownClient {
    turns: Arc<MessageTurns>,
    payer: Payer,
}

impl MessageTurns {
    /// As many for all clients together, and for one.
    pub(crate) fn new(all_max: usize, of_one_max: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(all_max)), of_one_max, clients: Mutex::default() })
    }

    /// Waits for a turn of the client.
    pub(crate) async fn take(self: &Arc<Self>, client: Payer) -> MessageTurn {
        let (client, semaphore) = self.know(client);
        // Neither is ever closed. First its own, so that it takes none of others while it waits.
        let of_one = semaphore.acquire_owned().await.ok();
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok();
        MessageTurn { _of_all: of_all, _of_one: of_one, _client: client }
    }

    fn know(self: &Arc<Self>, payer: Payer) -> (KnownClient, Arc<Semaphore>) {
        let mut clients = self.clients.lock();
        let new = || TurnsOfOne { semaphore: Arc::new(Semaphore::new(self.of_one_max)), holders: 0 };
        let turns = clients.entry(payer).or_insert_with(new);
        turns.holders += 1;
        (KnownClient { turns: Arc::clone(self), payer }, Arc::clone(&turns.semaphore))
    }
}

impl Drop for KnownClient {
    fn drop(&mut self) {
        let mut clients = self.turns.clients.lock();
        if let Some(turns) = clients.get_mut(&self.payer) {
            turns.holders -= 1;
            if turns.holders == 0 {
                clients.remove(&self.payer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn one_client_leaves_turns_to_others() {
        let turns = MessageTurns::new(3, 2);
        let greedy =
            [turns.take(Payer::principal("greedy")).await, turns.take(Payer::principal("greedy")).await];
        let mut waiting = Box::pin(turns.take(Payer::principal("greedy")));
        assert!(poll!(waiting.as_mut()).is_pending());
        let modest = turns.take(Payer::principal("modest")).await;
        {
            let mut other = pin!(turns.take(Payer::principal("other")));
            assert!(poll!(other.as_mut()).is_pending());
            drop(greedy);
            assert!(poll!(other.as_mut()).is_ready());
        }
        assert!(poll!(waiting.as_mut()).is_ready());
        drop((waiting, modest));
        assert!(turns.clients.lock().is_empty());
    }

    #[tokio::test]
    async fn who_leaves_while_waiting_is_forgotten() {
        let turns = MessageTurns::new(1, 1);
        let held = turns.take(Payer::principal("a")).await;
        let mut waiting = Box::pin(turns.take(Payer::principal("b")));
        assert!(poll!(waiting.as_mut()).is_pending());
        drop(waiting);
        assert_eq!(turns.clients.lock().len(), 1);
        drop(held);
        assert!(turns.clients.lock().is_empty());
    }
}
