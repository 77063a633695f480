//! Turns of the upstreams that are asked for one list: so many at once. One that does not answer soon is waited for, and leaves
//! its turn to the next: those that hang keep nobody off a list.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

/// The longest turn. One that takes longer waits for its server, and not for this machine.
const TURN_TIME_MAX: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Turns(Semaphore);

impl Turns {
    pub(super) fn new(max: usize) -> Self {
        Self(Semaphore::new(max))
    }

    /// The outcome of `asking`, which begins with its turn.
    pub(super) async fn ask<T>(&self, asking: impl Future<Output = T>) -> T {
        // The semaphore is never closed.
        let turn = self.0.acquire().await;
        let mut asking = pin!(asking);
        tokio::select! {
            biased;
            outcome = &mut asking => return outcome,
            () = sleep(TURN_TIME_MAX) => drop(turn),
        }
        asking.await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::future::{Either, join_all, select};

    use super::*;
    use crate::clock;

    #[tokio::test(start_paused = true)]
    async fn those_that_hang_leave_their_turns() {
        let (turns, since) = (Turns::new(2), clock::now());
        let hanging = pin!(join_all((0..7).map(|_| turns.ask(pending::<()>()))));
        let last = pin!(async {
            turns.ask(async {}).await;
            clock::since(since)
        });
        // The first of them are asked before.
        let Either::Right((waited, _)) = select(hanging, last).await else { panic!("they hang") };
        assert_eq!(waited.as_millis() / TURN_TIME_MAX.as_millis(), 3);
    }
}
