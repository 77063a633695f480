//! Who uses the connections to an upstream, so that one client that reads slowly does not have all of them.
//!
//! Each worker bounds its own connections. Who holds how many of all workers' is counted only while a worker's are nearly all
//! in use: else beginning and ending a use are all that it costs, each a store that no other worker writes to.
//!
//! Invariant: a [`ConnectionUse`] counts from its beginning to its end, or to when it is dropped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{self, NoShare};

/// Places come into being so many at a time.
const BLOCK: usize = 64;

/// Who has each place; of those that are free, the gateway. Written by one worker.
type Block = [AtomicU64; BLOCK];

/// Who uses the connections of all workers to one upstream.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPayers(Mutex<Vec<Arc<Block>>>);

/// Uses of the connections of one worker.
#[derive(Debug)]
pub(crate) struct ConnectionUses {
    of_all: Arc<ConnectionPayers>,
    places: RefCell<Places>,
}

#[derive(Debug, Default)]
struct Places {
    blocks: Vec<Arc<Block>>,
    free: Vec<usize>,
    in_use: usize,
}

/// That a connection is in use, as long as it is.
#[derive(Debug)]
pub(crate) struct ConnectionUse {
    of: Rc<ConnectionUses>,
    place: Cell<Option<usize>>,
}

impl ConnectionPayers {
    fn held_by(&self, payer: Payer) -> usize {
        let blocks = self.0.lock();
        let places = blocks.iter().flat_map(|block| block.iter());
        places.filter(|place| place.load(Ordering::Relaxed) == payer.number()).count()
    }

    fn block(&self) -> Arc<Block> {
        let block = Arc::new([const { AtomicU64::new(Payer::GATEWAY.number()) }; BLOCK]);
        self.0.lock().push(Arc::clone(&block));
        block
    }

    fn remove(&self, gone: &[Arc<Block>]) {
        self.0.lock().retain(|block| !gone.iter().any(|gone| Arc::ptr_eq(gone, block)));
    }
}

impl ConnectionUses {
    /// Of a worker that uses none yet.
    pub(crate) fn new(of_all: &Arc<ConnectionPayers>) -> Rc<Self> {
        Rc::new(Self { of_all: Arc::clone(of_all), places: RefCell::default() })
    }

    /// Whether this payer may use one more, of at most `max` of this worker.
    pub(crate) fn check(&self, payer: Payer, max: usize) -> Result<(), NoShare> {
        let in_use = self.places.borrow().in_use;
        if !shares::is_scarce(max, in_use + 1) || payer == Payer::GATEWAY {
            return Ok(());
        }
        shares::refusal((max, 1), in_use, 1, self.of_all.held_by(payer) + 1).map_or(Ok(()), Err)
    }

    fn begin(&self, payer: Payer) -> usize {
        let places = &mut *self.places.borrow_mut();
        if places.free.is_empty() {
            let first = places.blocks.len() * BLOCK;
            places.blocks.push(self.of_all.block());
            places.free.extend((first..first + BLOCK).rev());
        }
        let place = places.free.pop().unwrap_or_default();
        places.in_use += 1;
        places.set(place, payer);
        place
    }

    fn end(&self, place: usize) {
        let places = &mut *self.places.borrow_mut();
        places.in_use = places.in_use.saturating_sub(1);
        places.set(place, Payer::GATEWAY);
        places.free.push(place);
    }
}

impl Places {
    fn set(&self, place: usize, payer: Payer) {
        if let Some(block) = self.blocks.get(place / BLOCK) {
            block[place % BLOCK].store(payer.number(), Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionUses {
    fn drop(&mut self) {
        self.of_all.remove(&self.places.borrow().blocks);
    }
}

impl ConnectionUse {
    /// A use of one of these connections, by this payer.
    pub(crate) fn new(of: &Rc<ConnectionUses>, payer: Payer) -> Self {
        Self { of: Rc::clone(of), place: Cell::new(Some(of.begin(payer))) }
    }

    /// The connection is used again.
    pub(crate) fn begin(&self, payer: Payer) {
        self.end();
        self.place.set(Some(self.of.begin(payer)));
    }

    /// It is not in use any more.
    pub(crate) fn end(&self) {
        if let Some(place) = self.place.take() {
            self.of.end(place);
        }
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
        let uses = ConnectionUses::new(&Arc::default());
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
        assert_eq!(uses.places.borrow().in_use, 1);
    }

    #[test]
    fn who_has_one_of_another_worker_leaves_the_last_ones_to_who_has_none() {
        let of_all = Arc::default();
        let workers = [ConnectionUses::new(&of_all), ConnectionUses::new(&of_all)];
        let begin = |worker: usize, who: usize| {
            let payer = Payer::principal(&who.to_string());
            workers[worker].check(payer, 160).map(|()| ConnectionUse::new(&workers[worker], payer))
        };
        // Each of two hundred and eighty has one, of one worker or the other, and then tries everywhere.
        let mut held: Vec<_> = (0..280).map(|who| begin(who % 2, who).expect("there is room")).collect();
        held.extend((0..560).filter_map(|turn| begin(turn % 2, turn / 2).ok()));
        assert_eq!(held.len(), 280);
        assert_eq!(begin(0, 0).err(), Some(NoShare::TooMuchOfPayer));
        held.extend((1000..1040).map(|who| begin(who % 2, who).expect("one that was left")));
        assert_eq!(begin(0, 2000).err(), Some(NoShare::NothingLeft));
        assert_eq!(of_all.0.lock().len(), 6);
        drop((held, workers));
        assert!(of_all.0.lock().is_empty());
    }
}
