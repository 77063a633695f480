//! Requests being answered, in memory that is used for one after the other.
//!
//! An exchange takes several kilobytes as long as its call, which an idle connection must not hold, and which would
//! otherwise be allocated for every call.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::ExchangeEnd;
use super::connection::{ClientConnection, ReceivedHead};

/// So much memory is kept even if it was not needed lately.
const SPARE_MIN: usize = 32;

/// Memory for exchanges: for as many as lately were under way at once.
#[derive(Default)]
pub(in crate::edge) struct ClientExchanges {
    spare: RefCell<Vec<Box<dyn ClientExchange>>>,
    /// So many of them were never needed since [`trim`](ClientExchanges::trim).
    unneeded: Cell<usize>,
}

/// A request that is being answered, or room for one.
pub(super) trait ClientExchange {
    fn begin(&mut self, connection: Rc<ClientConnection>, head: ReceivedHead);
    /// What became of the request. Not to be asked again after that.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeEnd>;
}

impl ClientExchanges {
    /// Begins to answer a request as `answer` does.
    pub(super) fn begin<F: Future<Output = ExchangeEnd> + 'static>(
        &self,
        connection: Rc<ClientConnection>,
        head: ReceivedHead,
        answer: impl Fn(Rc<ClientConnection>, ReceivedHead) -> F + 'static,
    ) -> Box<dyn ClientExchange> {
        let mut exchange = self.take().unwrap_or_else(|| Box::new(Room { answer, running: Box::pin(None) }));
        exchange.begin(connection, head);
        exchange
    }

    fn take(&self) -> Option<Box<dyn ClientExchange>> {
        let mut spare = self.spare.borrow_mut();
        let taken = spare.pop();
        self.unneeded.set(self.unneeded.get().min(spare.len()));
        taken
    }

    /// Takes back the memory of one that is over.
    pub(super) fn give_back(&self, exchange: Box<dyn ClientExchange>) {
        self.spare.borrow_mut().push(exchange);
    }

    /// Gives the memory back to the system that was not needed since the last time.
    pub(in crate::edge) fn trim(&self) {
        let mut spare = self.spare.borrow_mut();
        let needed = spare.len().saturating_sub(self.unneeded.get());
        spare.truncate(needed.max(SPARE_MIN));
        spare.shrink_to(2 * SPARE_MIN);
        self.unneeded.set(spare.len());
    }
}

struct Room<A, F> {
    answer: A,
    running: Pin<Box<Option<F>>>,
}

impl<A: Fn(Rc<ClientConnection>, ReceivedHead) -> F, F: Future<Output = ExchangeEnd>> ClientExchange
    for Room<A, F>
{
    fn begin(&mut self, connection: Rc<ClientConnection>, head: ReceivedHead) {
        self.running.set(Some((self.answer)(connection, head)));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeEnd> {
        let Some(running) = self.running.as_mut().as_pin_mut() else { return Poll::Ready(ExchangeEnd::Left) };
        let polled = running.poll(cx);
        if polled.is_ready() {
            self.running.set(None);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory;

    impl ClientExchange for Memory {
        fn begin(&mut self, _connection: Rc<ClientConnection>, _head: ReceivedHead) {}

        fn poll(&mut self, _cx: &mut Context<'_>) -> Poll<ExchangeEnd> {
            Poll::Ready(ExchangeEnd::Left)
        }
    }

    #[test]
    fn memory_is_kept_for_as_many_as_were_lately_under_way_at_once() {
        let exchanges = ClientExchanges::default();
        let under_way = |count: usize| {
            let taken: Vec<_> = (0..count).map(|_| exchanges.take()).collect();
            for memory in taken {
                exchanges.give_back(memory.unwrap_or_else(|| Box::new(Memory)));
            }
        };
        let kept = || exchanges.spare.borrow().len();
        under_way(300);
        exchanges.trim();
        assert_eq!(kept(), 300);
        under_way(100);
        under_way(50);
        exchanges.trim();
        assert_eq!(kept(), 100);
        under_way(1);
        exchanges.trim();
        assert_eq!(kept(), SPARE_MIN);
        exchanges.trim();
        assert_eq!(kept(), SPARE_MIN);
    }
}
