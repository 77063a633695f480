//! Who uses the connections of a worker to an upstream, so that one client that reads slowly does not have all of them.
//!
//! Counted only while the connections are nearly all in use: else beginning and ending a use are all that it costs.
//!
//! Invariant: a [`ConnectionUse`] counts as long as it lives.

use std::cell::RefCell;
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

/// That a payer uses a connection.
#[derive(Debug)]
pub(crate) struct ConnectionUse {
    of: Rc<ConnectionUses>,
    place: usize,
}

impl ConnectionUses {
    /// One more of this payer, of at most `max` in all.
    pub(crate) fn begin(self: Rc<Self>, payer: Payer, max: usize) -> Result<ConnectionUse, NoShare> {
        let mut places = self.0.borrow_mut();
        let in_use = places.payers.len() - places.free.len();
        if shares::is_scarce(max, in_use + 1) && payer != Payer::GATEWAY {
            let holds = places.payers.iter().filter(|other| **other == payer).count();
            if let Some(none) = shares::refusal((max, 1), in_use, 1, holds + 1) {
                return Err(none);
            }
        }
        let place = places.free.pop().unwrap_or(places.payers.len());
        match places.payers.get_mut(place) {
            Some(free) => *free = payer,
            None => places.payers.push(payer),
        }
        drop(places);
        Ok(ConnectionUse { of: self, place })
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        let mut places = self.of.0.borrow_mut();
        if let Some(payer) = places.payers.get_mut(self.place) {
            *payer = Payer::GATEWAY;
        }
        places.free.push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_all_it_can_leaves_some_to_others() {
        let uses = Rc::<ConnectionUses>::default();
        let begin = |who: &str| Rc::clone(&uses).begin(Payer::principal(who), 16);
        let mut greedy: Vec<_> = std::iter::from_fn(|| begin("greedy").ok()).collect();
        assert_eq!(greedy.len(), 14);
        assert_eq!(begin("greedy").err(), Some(NoShare::TooMuchOfPayer));
        let other = begin("other").expect("one of the reserve");
        assert_eq!(begin("other").err(), Some(NoShare::TooMuchOfPayer));
        let _third = begin("third").expect("the last");
        assert_eq!(begin("fourth").err(), Some(NoShare::NothingLeft));
        // What the gateway itself asks is bounded by the connections alone.
        let own = Rc::clone(&uses).begin(Payer::GATEWAY, 16).expect("never refused here");
        drop((other, own, greedy.pop()));
        assert!(begin("fourth").is_ok());
        drop(greedy);
        assert_eq!(uses.0.borrow().payers.len() - uses.0.borrow().free.len(), 1);
    }
}
