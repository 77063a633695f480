//! Who uses the connections of a worker to an upstream, so that one client that reads slowly does not have all of them.
//!
//! Counted only while the connections are nearly all in use: else beginning and ending a use are all that it costs.
//!
//! Invariant: a [`ConnectionUse`] counts from its beginning to its end, or to when it is dropped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{self, NoShare};

/// Uses of the connections of one pool.
#[derive(Debug, Default)]
pub(crate) struct ConnectionUses(RefCell<Places>);

#[derive(Debug, Default)]
struct Places {
    /// Who has each; of those that are free, the gateway.
    payers: Vec<Payer>,
    free: Vec<usize>,
}

/// That a connection is in use, as long as it is.
#[derive(Debug)]
pub(crate) struct ConnectionUse {
    of: Rc<ConnectionUses>,
    place: Cell<Option<usize>>,
}

impl ConnectionUses {
    /// Whether this payer may use one more, of at most `max` in all.
    pub(crate) fn check(&self, payer: Payer, max: usize) -> Result<(), NoShare> {
        let places = self.0.borrow();
        let in_use = places.payers.len() - places.free.len();
        if !shares::is_scarce(max, in_use + 1) || payer == Payer::GATEWAY {
            return Ok(());
        }
        let holds = places.payers.iter().filter(|other| **other == payer).count();
        shares::refusal((max, 1), in_use, 1, holds + 1).map_or(Ok(()), Err)
    }
}

impl ConnectionUse {
    /// A use of one of these connections, by this payer.
    pub(crate) fn new(of: &Rc<ConnectionUses>, payer: Payer) -> Self {
        let begun = Self { of: Rc::clone(of), place: Cell::default() };
        begun.begin(payer);
        begun
    }

    /// The connection is used again.
    pub(crate) fn begin(&self, payer: Payer) {
        self.end();
        let places = &mut *self.of.0.borrow_mut();
        let place = places.free.pop().unwrap_or(places.payers.len());
        match places.payers.get_mut(place) {
            Some(free) => *free = payer,
            None => places.payers.push(payer),
        }
        self.place.set(Some(place));
    }

    /// It is not in use any more.
    pub(crate) fn end(&self) {
        let Some(place) = self.place.take() else { return };
        let places = &mut *self.of.0.borrow_mut();
        if let Some(payer) = places.payers.get_mut(place) {
            *payer = Payer::GATEWAY;
        }
        places.free.push(place);
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_all_it_can_leaves_some_to_others() {
        let uses = Rc::<ConnectionUses>::default();
        let begin = |who: &str| {
            let payer = Payer::principal(who);
            uses.check(payer, 16).map(|()| ConnectionUse::new(&uses, payer))
        };
        let mut greedy: Vec<_> = std::iter::from_fn(|| begin("greedy").ok()).collect();
        assert_eq!(greedy.len(), 14);
        assert_eq!(begin("greedy").err(), Some(NoShare::TooMuchOfPayer));
        let other = begin("other").expect("one of the reserve");
        assert_eq!(begin("other").err(), Some(NoShare::TooMuchOfPayer));
        let _third = begin("third").expect("the last");
        assert_eq!(begin("fourth").err(), Some(NoShare::NothingLeft));
        // What the gateway itself asks is bounded by the connections alone.
        assert!(uses.check(Payer::GATEWAY, 16).is_ok());
        greedy[0].end();
        greedy[0].end();
        other.end();
        let fourth = begin("fourth").expect("one that was given back");
        other.begin(Payer::principal("fifth"));
        drop((other, fourth, greedy.pop()));
        drop(greedy);
        assert_eq!(uses.0.borrow().payers.len() - uses.0.borrow().free.len(), 1);
    }
}
