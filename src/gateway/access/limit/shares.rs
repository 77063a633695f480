//! A bounded resource, and how much of it each payer holds: so that neither one payer nor many together keep out another.
//!
//! Seven eighths are for whoever asks, so that one payer may use an idle gateway nearly fully. The last eighth is a reserve:
//! it is only for those who hold little, all in all no more than a 256th of what is left of it (of memory, a 32nd). What a
//! hundred take together still leaves a place for one more.
//!
//! Not here: what makes room. Who is refused was refused; what is idle is given back by whoever holds it.
//!
//! Invariant: what a [`Share`] took is given back when it is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::digest::IdentityHash;
use super::payer::Payer;

/// The part of all that is a reserve.
const RESERVE_PART: usize = 8;
/// The part of what is left of the reserve that is for one payer: of things, and of bytes, of which one message takes many.
const RESERVED_SHARE_PART: usize = 256;
const RESERVED_BYTES_PART: usize = 32;
/// A message of this size is never too much for one payer, while there is room for it.
const SMALL_MESSAGE_BYTES: usize = 64 * 1024;
/// Locks are spread over this many shards, so that threads seldom meet.
const SHARDS: usize = 16;

/// A bounded resource of the process.
#[derive(Debug)]
pub(crate) struct Shares {
    max: AtomicUsize,
    of_payer_max: AtomicUsize,
    /// So much one payer may hold of the reserve however little is left.
    least: usize,
    taken: AtomicUsize,
    held: [Mutex<HashMap<Payer, usize, IdentityHash>>; SHARDS],
}

/// What one payer holds of it.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Shares>,
    payer: Payer,
    count: usize,
}

/// Why there is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoShare {
    /// There is nothing left, even for those who hold nothing.
    NothingLeft,
    /// The payer holds too much of it.
    TooMuchOfPayer,
}

impl Shares {
    /// So many things.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Self::with_least(max, 1)
    }

    /// So many bytes of memory for messages.
    pub(crate) fn of_bytes(bytes_max: usize) -> Arc<Self> {
        Self::with_least(bytes_max, SMALL_MESSAGE_BYTES)
    }

    fn with_least(max: usize, least: usize) -> Arc<Self> {
        Arc::new(Self {
            max: AtomicUsize::new(max),
            of_payer_max: AtomicUsize::new(usize::MAX),
            least,
            taken: AtomicUsize::new(0),
            held: std::array::from_fn(|_| Mutex::default()),
        })
    }

    /// Changes the bound; what is taken stays taken.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Changes what one payer may hold at most, however much is left.
    pub(crate) fn set_of_payer_max(&self, max: usize) {
        self.of_payer_max.store(max, Ordering::Relaxed);
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Nothing yet, for a payer that will want some.
    pub(crate) fn open(self: &Arc<Self>, payer: Payer) -> Share {
        Share { of: Arc::clone(self), payer, count: 0 }
    }

    /// One for this payer.
    pub(crate) fn take(self: &Arc<Self>, payer: Payer) -> Result<Share, NoShare> {
        let mut share = self.open(payer);
        share.grow(1).map(|()| share)
    }

    /// One more, whatever there is. Whoever asks bounds it.
    pub(crate) fn take_beyond(self: &Arc<Self>, payer: Payer) -> Share {
        *self.shard(payer).lock().entry(payer).or_default() += 1;
        self.taken.fetch_add(1, Ordering::Relaxed);
        Share { of: Arc::clone(self), payer, count: 1 }
    }

    /// How much of it this payer holds.
    pub(crate) fn held_by(&self, payer: Payer) -> usize {
        self.shard(payer).lock().get(&payer).copied().unwrap_or_default()
    }

    /// Whether less than half of what may be taken is.
    pub(crate) fn is_half_empty(&self) -> bool {
        self.taken() < self.max() / 2
    }

    fn shard(&self, payer: Payer) -> &Mutex<HashMap<Payer, usize, IdentityHash>> {
        &self.held[payer.shard(SHARDS)]
    }

    fn add(&self, payer: Payer, count: usize) -> Result<(), NoShare> {
        let mut shard = self.shard(payer).lock();
        let held = shard.get(&payer).copied().unwrap_or_default();
        let holds = held.saturating_add(count);
        let mut refused = None;
        // Decided and taken in one step: what is refused is never seen by others as taken.
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
            refused = self.refusal_of(payer, before, count, holds);
            refused.is_none().then(|| before.saturating_add(count))
        });
        if let (Err(_), Some(refused)) = (taken, refused) {
            return Err(if held == 0 { NoShare::NothingLeft } else { refused });
        }
        shard.insert(payer, holds);
        Ok(())
    }

    fn refusal_of(&self, payer: Payer, before: usize, count: usize, holds: usize) -> Option<NoShare> {
        if payer == Payer::GATEWAY {
            // The reserve is for what the gateway has to do, too.
            return (before.saturating_add(count) > self.max()).then_some(NoShare::NothingLeft);
        }
        let has_too_much = payer != Payer::PROXIES && holds > self.of_payer_max.load(Ordering::Relaxed);
        let of_payer = has_too_much.then_some(NoShare::TooMuchOfPayer);
        refusal((self.max(), self.least), before, count, holds).or(of_payer)
    }

    fn remove(&self, payer: Payer, count: usize) {
        let mut shard = self.shard(payer).lock();
        self.taken.fetch_sub(count, Ordering::Relaxed);
        if let Some(held) = shard.get_mut(&payer) {
            *held = held.saturating_sub(count);
            if *held == 0 {
                shard.remove(&payer);
            }
        }
    }
}

/// Whether so many of `max` are so nearly all that it matters who holds them.
pub(crate) fn is_scarce(max: usize, taken: usize) -> bool {
    taken > max - max / RESERVE_PART
}

/// Why `count` more are refused to somebody who would hold `holds` then, where `before` of `max` are taken.
pub(crate) fn refusal(
    (max, least): (usize, usize),
    before: usize,
    count: usize,
    holds: usize,
) -> Option<NoShare> {
    let after = before.saturating_add(count);
    if after > max {
        return Some(NoShare::NothingLeft);
    }
    let reserve = max / RESERVE_PART;
    if !is_scarce(max, after) {
        return None;
    }
    let left = reserve.min(max - before);
    let part = if least > 1 { RESERVED_BYTES_PART } else { RESERVED_SHARE_PART };
    let may_hold = (left / part).max(least.min(reserve));
    (holds > may_hold).then_some(NoShare::TooMuchOfPayer)
}

impl Share {
    pub(crate) fn payer(&self) -> Payer {
        self.payer
    }

    /// Takes `count` more, or nothing.
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), NoShare> {
        self.of.add(self.payer, count)?;
        self.count += count;
        Ok(())
    }

    /// Takes as many more as make `count` in all, or nothing.
    pub(crate) fn grow_to(&mut self, count: usize) -> Result<(), NoShare> {
        if count <= self.count { Ok(()) } else { self.grow(count - self.count) }
    }

    /// It turned out to be another's. On an error nothing is held.
    pub(crate) fn pass_to(&mut self, payer: Payer) -> Result<(), NoShare> {
        let count = self.count;
        self.clear();
        self.payer = payer;
        self.grow(count)
    }

    /// Gives back all of it.
    pub(crate) fn clear(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            self.of.remove(self.payer, count);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(number: usize) -> Payer {
        Payer::principal(&format!("key:{number}"))
    }

    #[test]
    fn gives_back_what_it_took() {
        let shares = Shares::new(10);
        let mut one = shares.open(payer(1));
        assert!(one.grow(4).is_ok() && one.grow_to(8).is_ok() && one.grow_to(3).is_ok());
        assert_eq!((shares.taken(), shares.held_by(payer(1))), (8, 8));
        assert_eq!(one.grow(4), Err(NoShare::NothingLeft));
        assert_eq!(one.grow(2), Err(NoShare::TooMuchOfPayer), "the last is for somebody else");
        assert_eq!(shares.take(payer(2)).map(|share| share.count), Ok(1));
        drop(one);
        assert_eq!((shares.taken(), shares.held_by(payer(1))), (0, 0));
        assert!(shares.held.iter().all(|shard| shard.lock().is_empty()));
    }

    #[test]
    fn one_payer_gets_nearly_everything_and_leaves_something() {
        let shares = Shares::new(800);
        let mut greedy: Vec<Share> = Vec::new();
        let refused = loop {
            match shares.take(payer(0)) {
                Ok(share) => greedy.push(share),
                Err(refused) => break refused,
            }
        };
        assert_eq!((greedy.len(), refused), (700, NoShare::TooMuchOfPayer));
        assert!(shares.take(payer(1)).is_ok());
        // What it gives back it gets again.
        greedy.pop();
        assert!(shares.take(payer(0)).is_ok());
    }

    #[test]
    fn many_who_take_all_they_can_leave_something_for_one_more() {
        for (max, payers) in [(800, 90), (1024, 100), (16_384, 700), (100_000, 1000)] {
            let shares = Shares::new(max);
            let mut held = Vec::new();
            for _ in 0..3 {
                for number in 0..payers {
                    while let Ok(share) = shares.take(payer(number)) {
                        held.push(share);
                    }
                }
            }
            assert!(held.len() >= max - max / 8, "{} of {max}", held.len());
            assert!(shares.take(payer(payers)).is_ok(), "of {max}, {} are taken", held.len());
        }
    }

    #[test]
    fn a_small_message_fits_however_many_large_ones_there_are() {
        let shares = Shares::of_bytes(256 << 20);
        let mut held: Vec<Share> = (0..100)
            .flat_map(|number| (0..20).map(move |_| payer(number)))
            .map(|payer| shares.open(payer))
            .collect();
        for share in &mut held {
            while share.grow(64 * 1024).is_ok() {}
        }
        let mut small = shares.open(payer(1000));
        assert_eq!(small.grow(64 * 1024), Ok(()));
        let mut large = shares.open(payer(1001));
        assert!(large.grow(64 << 20).is_err(), "there is no room for that");
    }

    #[test]
    fn who_holds_nothing_is_not_told_that_it_holds_too_much() {
        let shares = Shares::new(2);
        let _both = (shares.take(payer(1)).expect("one"), shares.take(payer(1)).expect("two"));
        assert_eq!(shares.take(payer(2)).err(), Some(NoShare::NothingLeft));
        assert_eq!(shares.take(Payer::GATEWAY).err(), Some(NoShare::NothingLeft));
        let beyond = shares.take_beyond(Payer::GATEWAY);
        assert_eq!(shares.taken(), 3);
        drop(beyond);
        shares.set_max(9);
        shares.set_of_payer_max(2);
        assert_eq!(shares.take(payer(1)).err(), Some(NoShare::TooMuchOfPayer));
        assert!(shares.take(payer(2)).is_ok());
    }
}
