//! Requests being answered, in memory that is used for one after the other.
//!
//! An exchange takes several kilobytes as long as its call, which an idle connection must not hold, and which would
//! otherwise be allocated for every call.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::ExchangeEnd;
use super::connection::{ClientConnection, ReceivedHead};

/// More memory is given back to the system.
const SPARE_MAX: usize = 32;

/// Memory for exchanges.
#[derive(Default)]
pub(in crate::edge) struct ClientExchanges {
    spare: RefCell<Vec<Box<dyn ClientExchange>>>,
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
        let spare = self.spare.borrow_mut().pop();
        let mut exchange = spare.unwrap_or_else(|| Box::new(Room { answer, running: Box::pin(None) }));
        exchange.begin(connection, head);
        exchange
    }

    /// Takes back the memory of one that is over.
    pub(super) fn give_back(&self, exchange: Box<dyn ClientExchange>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(exchange);
        }
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
