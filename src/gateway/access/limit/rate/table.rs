//! The cells of one limit, by key: at most so many, and of what one client brings in at most so many.
//!
//! Invariants: a cell leaves only when forgetting it changes nothing for whom it counts, so that nobody gets a fresh one
//! by crowding out his own; who is in stays in while he calls, however many others come. Locks are taken in the order
//! shard, owners, and held for no longer than a look-up or the sweep of one shard. What is there already is found without
//! allocation.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::cell::Cell;
use crate::access::limit::digest::{Digest, IdentityHash};

/// Locks are spread over this many shards; a power of two.
const SHARDS: usize = 256;
/// Likewise those of what owners have.
const OWNER_SHARDS: usize = 16;
/// A full table looks through a shard at most this often, whoever asks.
const SWEEP_PAUSE_NS: u64 = 1_000_000_000;
/// A shard with room for more than this many gives room back that it does not use.
const ROOM_KEPT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellKey {
    pub digest: Digest,
    /// Who may bring in only so many keys, where clients choose them.
    pub owner: Option<Digest>,
}

impl CellKey {
    /// What is counted together of the owner's keys that there is no room for.
    pub(crate) fn rest(self) -> Option<Self> {
        self.owner.map(|digest| Self { digest, owner: None })
    }
}

/// Why a new key is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Table,
    Owner,
}

#[derive(Debug)]
pub(crate) struct CellTable {
    shards: Box<[Mutex<CellShard>]>,
    owners: [Mutex<HashMap<Digest, usize, IdentityHash>>; OWNER_SHARDS],
    keys: AtomicUsize,
    keys_max: AtomicUsize,
    keys_per_owner_max: usize,
    /// For how long a cell is kept after it has recovered.
    linger_ns: u64,
    next_to_sweep: AtomicUsize,
}

#[derive(Debug, Default)]
struct CellShard {
    slots: HashMap<Digest, CellSlot, IdentityHash>,
    swept_ns: u64,
}

#[derive(Debug)]
struct CellSlot {
    cell: Cell,
    owner: Option<Digest>,
}

impl CellTable {
    pub(crate) fn new(keys_max: usize, keys_per_owner_max: usize, linger_ns: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            owners: std::array::from_fn(|_| Mutex::default()),
            keys: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(keys_max),
            keys_per_owner_max,
            linger_ns,
            next_to_sweep: AtomicUsize::new(0),
        }
    }

    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Changes how many there may be; those that are there stay while they are in use.
    pub(crate) fn set_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Ordering::Relaxed);
    }

    /// Does something with the cell of `key`, which is made if there is none and room for one.
    pub(crate) fn with<T>(
        &self,
        key: CellKey,
        now_ns: u64,
        act: impl FnOnce(&mut Cell) -> T,
    ) -> Result<T, NoRoom> {
        let mut shard = self.shards[key.digest.shard(SHARDS)].lock();
        if let Some(slot) = shard.slots.get_mut(&key.digest) {
            return Ok(act(&mut slot.cell));
        }
        if self.keys() >= self.keys_max.load(Ordering::Relaxed) {
            self.sweep_shard(&mut shard, now_ns, SWEEP_PAUSE_NS);
        }
        if !self.reserve() {
            drop(shard);
            self.sweep_next(now_ns, SWEEP_PAUSE_NS);
            return Err(NoRoom::Table);
        }
        if !self.reserve_of(key.owner) {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            return Err(NoRoom::Owner);
        }
        let slot = shard.slots.entry(key.digest).or_insert(CellSlot { cell: Cell::new(), owner: key.owner });
        Ok(act(&mut slot.cell))
    }

    /// Does something with the cell of `key`, if there is one.
    pub(crate) fn with_known<T>(&self, digest: Digest, act: impl FnOnce(&mut Cell) -> T) -> Option<T> {
        let mut shard = self.shards[digest.shard(SHARDS)].lock();
        shard.slots.get_mut(&digest).map(|slot| act(&mut slot.cell))
    }

    /// Drops what may be forgotten in the next `shards` of all shards, whose turn it is.
    pub(crate) fn sweep(&self, now_ns: u64, shards: usize) {
        for _ in 0..shards {
            self.sweep_next(now_ns, 0);
        }
    }

    fn sweep_next(&self, now_ns: u64, pause_ns: u64) {
        let next = self.next_to_sweep.fetch_add(1, Ordering::Relaxed) % SHARDS;
        self.sweep_shard(&mut self.shards[next].lock(), now_ns, pause_ns);
    }

    fn sweep_shard(&self, shard: &mut CellShard, now_ns: u64, pause_ns: u64) {
        if shard.swept_ns.saturating_add(pause_ns) > now_ns {
            return;
        }
        shard.swept_ns = now_ns;
        let before = shard.slots.len();
        shard.slots.retain(|_, slot| {
            let stays = !slot.cell.is_forgettable(now_ns, self.linger_ns);
            if !stays {
                self.release_of(slot.owner);
            }
            stays
        });
        self.keys.fetch_sub(before - shard.slots.len(), Ordering::Relaxed);
        if shard.slots.capacity() > ROOM_KEPT.max(4 * shard.slots.len()) {
            shard.slots.shrink_to_fit();
        }
    }

    fn reserve(&self) -> bool {
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        let one_more = |keys| (keys < keys_max).then_some(keys + 1);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn reserve_of(&self, owner: Option<Digest>) -> bool {
        let Some(owner) = owner else { return true };
        let mut owners = self.owners[owner.shard(OWNER_SHARDS)].lock();
        let keys = owners.entry(owner).or_insert(0);
        let has_room = *keys < self.keys_per_owner_max;
        *keys += usize::from(has_room);
        has_room
    }

    fn release_of(&self, owner: Option<Digest>) {
        let Some(owner) = owner else { return };
        let mut owners = self.owners[owner.shard(OWNER_SHARDS)].lock();
        if let Entry::Occupied(mut entry) = owners.entry(owner) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::limit::digest::Digester;

    const LATER_NS: u64 = 10 * SWEEP_PAUSE_NS;

    fn key(digester: &Digester, number: usize, owner: Option<&str>) -> CellKey {
        let digest = |name: &[u8]| {
            let mut open = digester.start();
            open.part(Some(name));
            open.finish()
        };
        let owner = owner.map(|owner| digest(owner.as_bytes()));
        CellKey { digest: digest(&number.to_le_bytes()), owner }
    }

    fn pay_until(paid_until_ns: u64) -> impl Fn(&mut Cell) {
        move |cell| *cell = Cell::Local { paid_ns: paid_until_ns }
    }

    #[test]
    fn who_is_in_stays_in_and_what_has_recovered_leaves() {
        let (digester, table) = (Digester::default(), CellTable::new(1000, 1000, 5));
        for number in 0..1000 {
            let paid_ns = if number < 10 { 2 * LATER_NS } else { LATER_NS };
            assert!(table.with(key(&digester, number, None), 0, pay_until(paid_ns)).is_ok());
        }
        for now_ns in [1, LATER_NS + 4] {
            for number in 1000..2000 {
                let refused = table.with(key(&digester, number, None), now_ns, |_| ());
                assert_eq!(refused, Err(NoRoom::Table), "{number} at {now_ns}");
            }
        }
        for number in 2000..5000 {
            let _ = table.with(
                key(&digester, number, None),
                LATER_NS + SWEEP_PAUSE_NS + 5,
                pay_until(9 * LATER_NS),
            );
        }
        assert_eq!(table.keys(), 1000);
        for number in 0..10 {
            let kept = table.with_known(key(&digester, number, None).digest, |_| ());
            assert!(kept.is_some(), "{number} was in use");
        }
        assert!(
            (10..1000).all(|number| table.with_known(key(&digester, number, None).digest, |_| ()).is_none())
        );
    }

    #[test]
    fn an_owner_fills_no_more_than_its_part() {
        let (digester, table) = (Digester::default(), CellTable::new(100, 10, 0));
        let taken_in = |owner, numbers: std::ops::Range<usize>, now_ns| {
            let with = |number| table.with(key(&digester, number, Some(owner)), now_ns, pay_until(LATER_NS));
            numbers.filter(|number| with(*number).is_ok()).count()
        };
        assert_eq!(taken_in("a", 0..50, 0), 10);
        assert_eq!(taken_in("a", 0..10, 0), 10);
        assert_eq!(taken_in("b", 50..100, 0), 10);
        table.sweep(LATER_NS, SHARDS);
        assert_eq!((table.keys(), taken_in("a", 10..50, LATER_NS)), (0, 10));
        assert!(table.owners.iter().all(|owners| owners.lock().len() <= 1));
    }

    #[test]
    fn a_flood_is_forgotten_and_its_memory_given_back() {
        let (digester, table) = (Digester::default(), CellTable::new(200_000, 1, 0));
        for number in 0..300_000 {
            let _ = table.with(key(&digester, number, None), 0, pay_until(LATER_NS));
        }
        assert_eq!(table.keys(), 200_000);
        let room = || -> usize { table.shards.iter().map(|shard| shard.lock().slots.capacity()).sum() };
        let slot_bytes = size_of::<(Digest, CellSlot)>() + 1;
        assert!(room() / 7 * 8 * slot_bytes <= 120 * 200_000, "{} of {slot_bytes} bytes", room());
        table.sweep(LATER_NS, SHARDS);
        assert_eq!(table.keys(), 0);
        assert!(room() <= SHARDS * ROOM_KEPT, "{}", room());
    }
}
