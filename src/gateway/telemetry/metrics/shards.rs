//! Counts that every worker keeps for itself: counting takes no locked instruction, and no cache line that another worker
//! writes.
//!
//! What is counted has a shard for each worker that ever counted in it, and one for all other threads together; a worker
//! that never did costs nothing. A shard is written by its worker alone, with plain loads and stores; that of the other
//! threads is written with locked instructions. Whoever reads adds all of them up. Whoever sees a change of a cell sees
//! the changes that its thread made before. Invariant: no two threads are the same worker of one gateway.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What stands for all threads that are no workers.
const OTHERS: usize = usize::MAX;
/// Shards that a shard leads to: it fills a line then, and one of 256 workers is eight steps away.
const FANOUT: usize = 2;
/// Cells in a line.
const LINE_CELLS: usize = 8;

thread_local! {
    /// Which worker this thread is.
    static WORKER: Cell<usize> = const { Cell::new(OTHERS) };
}

/// From now on this thread counts as the worker of this number.
pub(crate) fn count_as_worker(number: usize) {
    WORKER.set(number);
}

/// Some cells that are counted in together, of every worker.
#[derive(Debug)]
pub(crate) struct Shards {
    root: ShardSlot,
    lines: usize,
}

/// The cells of one worker.
///
/// The first ones are in the shard itself: of many series each call counts in others, and whatever one more address leads
/// to has to come from memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    first: CacheLine,
    worker: usize,
    more: Box<[CacheLine]>,
    /// Which of them comes next is told by a digit of the worker's number.
    next: [ShardSlot; FANOUT],
}

type ShardSlot = OnceLock<Box<Shard>>;

#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine([AtomicU64; LINE_CELLS]);

impl Shards {
    /// Shards of so many cells, all of them 0.
    pub(crate) fn new(cells: usize) -> Self {
        Self { root: ShardSlot::new(), lines: cells.div_ceil(LINE_CELLS) }
    }

    /// This thread's own.
    #[inline]
    pub(crate) fn own(&self) -> &Shard {
        let worker = WORKER.get();
        match self.root.get() {
            Some(first) if first.worker == worker => first,
            _ => self.find(worker),
        }
    }

    #[inline(never)]
    fn find(&self, worker: usize) -> &Shard {
        let (mut place, mut digits) = (&self.root, worker);
        loop {
            let shard = place.get_or_init(|| Box::new(Shard::new(worker, self.lines)));
            if shard.worker == worker {
                return shard;
            }
            (place, digits) = (&shard.next[digits % FANOUT], digits / FANOUT);
        }
    }

    /// Calls `visit` with each shard that somebody has counted in.
    pub(crate) fn each(&self, mut visit: impl FnMut(&Shard)) {
        each_from(&self.root, &mut visit);
    }

    /// What all have counted in this cell.
    pub(crate) fn sum(&self, cell: usize) -> u64 {
        let mut sum = 0_u64;
        self.each(|shard| sum = sum.wrapping_add(shard.get(cell)));
        sum
    }
}

impl Shard {
    fn new(worker: usize, lines: usize) -> Self {
        let more = (1..lines).map(|_| CacheLine::default()).collect();
        Self { first: CacheLine::default(), worker, more, next: Default::default() }
    }

    /// Replaces what is in a cell. Only for who asked for its [own](Shards::own).
    #[inline]
    pub(crate) fn change(&self, cell: usize, change: impl Fn(u64) -> u64) {
        let Some(cell) = self.cell(cell) else { return };
        if self.worker == OTHERS {
            let mut before = cell.load(Ordering::Relaxed);
            while let Err(now) =
                cell.compare_exchange_weak(before, change(before), Ordering::Release, Ordering::Relaxed)
            {
                before = now;
            }
        } else {
            // No other thread writes, so nothing is lost between the two.
            cell.store(change(cell.load(Ordering::Relaxed)), Ordering::Release);
        }
    }

    /// What is in a cell; 0 beyond the last one.
    pub(crate) fn get(&self, cell: usize) -> u64 {
        self.cell(cell).map_or(0, |cell| cell.load(Ordering::Acquire))
    }

    #[inline]
    fn cell(&self, cell: usize) -> Option<&AtomicU64> {
        let line = match cell / LINE_CELLS {
            0 => &self.first,
            line => self.more.get(line - 1)?,
        };
        Some(&line.0[cell % LINE_CELLS])
    }
}

fn each_from(place: &ShardSlot, visit: &mut impl FnMut(&Shard)) {
    if let Some(shard) = place.get() {
        visit(shard);
        shard.next.iter().for_each(|next| each_from(next, visit));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn shards_of(shards: &Shards) -> usize {
        let mut number = 0;
        shards.each(|_| number += 1);
        number
    }

    #[test]
    fn nothing_is_lost_whoever_counts() {
        const ROUNDS: u64 = 10_000;
        let shards = Shards::new(9);
        thread::scope(|scope| {
            for worker in (0..20).map(Some).chain([None; 4]) {
                let shards = &shards;
                scope.spawn(move || {
                    if let Some(worker) = worker {
                        count_as_worker(worker);
                    }
                    for _ in 0..ROUNDS {
                        shards.own().change(8, |count| count + 1);
                    }
                });
            }
        });
        assert_eq!(shards.sum(8), 24 * ROUNDS);
        assert_eq!(shards.sum(0), 0);
        assert_eq!(shards_of(&shards), 21, "one of each worker, and one of all others");
    }

    #[test]
    fn a_worker_that_counts_nothing_costs_nothing() {
        let shards = Shards::new(1);
        assert_eq!(shards_of(&shards), 0);
        for _ in 0..3 {
            shards.own().change(0, |count| count + 1);
        }
        assert_eq!((shards_of(&shards), shards.sum(0)), (1, 3));
    }

    #[test]
    fn every_worker_is_few_steps_away() {
        let shards = Shards::new(1);
        for worker in 0..256 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    count_as_worker(worker);
                    shards.own().change(0, |count| count + 1);
                });
            });
        }
        let mut level: Vec<&Shard> = shards.root.get().map(|root| &**root).into_iter().collect();
        for _ in 0..8 {
            level = level
                .iter()
                .flat_map(|shard| &shard.next)
                .filter_map(|place| Some(&**place.get()?))
                .collect();
        }
        assert!(
            !level.is_empty() && level.iter().all(|shard| shard.next.iter().all(|next| next.get().is_none()))
        );
        assert_eq!(shards.sum(0), 256);
    }
}
