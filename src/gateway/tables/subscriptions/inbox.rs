//! What a client's stream has yet to tell, bounded however much happens and however slowly the client reads.
//!
//! Written by any thread, emptied by the client's own. A bit for each list and for each URI of the filter; of
//! notifications whose fields are worth keeping a few, and beyond them only the bit. What happens twice before it
//! is told is told once.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;

use arc_swap::ArcSwap;
use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};

use crate::access::caller::Caller;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::access::policy::Class;
use crate::identity::Principal;
use crate::session::outbox::SessionOutbox;
use crate::snapshot::{Endpoint, Snapshot};
use crate::upstream::changes::ToldSession;
use protocol::subscription::{Lists, Notice};

/// Notifications kept whole, in number and in bytes. One is kept however long it is: whoever reads it, it is held once.
const NOTICES_MAX: usize = 64;
const NOTICES_BYTES_MAX: usize = 64 * 1024;

const LISTS: u8 = 0b111;
const UPDATES: u8 = 1 << 3;
const ACKNOWLEDGED: u8 = 1 << 6;
const ENDED: u8 = 1 << 7;

#[derive(Debug)]
pub(crate) struct Inbox {
    principal: Principal,
    payer: Payer,
    standing: ArcSwap<SubscriptionContext>,
    outbox: Option<Arc<SessionOutbox>>,
    flags: AtomicU8,
    updates: Mutex<Updates>,
    waker: AtomicWaker,
}

/// The endpoint that a stream belongs to, and what its client may use there.
#[derive(Debug)]
pub(crate) struct SubscriptionContext {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) class: Arc<Class>,
}

/// A notification for all who are told of it, and the memory that it takes.
#[derive(Debug)]
pub(crate) struct HeldNotice {
    notice: Notice,
    /// `None`: there was no room, so that clients are told no more than that something has changed.
    held: Option<Share>,
}

/// What has become of resources and tasks.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// One bit for each name of the filter that has changed.
    changed: Vec<u64>,
    /// True if any resource of the filter may have changed.
    pub(crate) everything: bool,
    /// Notifications, oldest first, each with what it is for.
    pub(crate) notices: Vec<(UpdateTarget, Arc<HeldNotice>)>,
    notices_bytes: usize,
}

/// Why a client hears of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateTarget {
    /// It is, or is below, the resource with this index in its filter.
    Resource(u32),
    /// It is the task with this index in its filter.
    Task(u32),
    /// It is some other resource of the endpoint's upstream with this index.
    Other(u32),
}

impl Inbox {
    /// `payer` is charged for the names that it wants; `outbox` is that of the stream's session, if it is one's.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint>,
        caller: &Caller,
        payer: Payer,
        outbox: Option<Arc<SessionOutbox>>,
    ) -> Arc<Self> {
        let (endpoint, class) = (Arc::clone(endpoint), Arc::clone(&caller.class));
        Arc::new(Self {
            principal: caller.principal.clone(),
            payer,
            standing: ArcSwap::from_pointee(SubscriptionContext { endpoint, class }),
            outbox,
            flags: AtomicU8::new(0),
            updates: Mutex::default(),
            waker: AtomicWaker::new(),
        })
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Who is charged for the names that it wants.
    pub(crate) fn payer(&self) -> Payer {
        self.payer
    }

    /// The endpoint it belongs to, and what its client may use there.
    pub(crate) fn standing(&self) -> arc_swap::Guard<Arc<SubscriptionContext>> {
        self.standing.load()
    }

    /// Goes on at the endpoint as `snapshot` has it. False if that is not what it was to this client.
    pub(crate) fn go_on(&self, snapshot: &Snapshot) -> bool {
        let before = self.standing.load_full();
        let endpoint = snapshot.endpoint_named(&before.endpoint.config.name);
        let Some(endpoint) = endpoint.and_then(|index| snapshot.endpoints.get(index)) else { return false };
        if Arc::ptr_eq(endpoint, &before.endpoint) {
            return true;
        }
        let class = endpoint.goes_on_for(&before.endpoint, &self.principal, &before.class);
        let Some(class) = class else { return false };
        if let Some(outbox) = &self.outbox {
            outbox.set_class(&class);
        }
        let has_more = endpoint.member_ids().len() > before.endpoint.member_ids().len();
        let since_ms = endpoint.lists_since_ms;
        self.standing.store(Arc::new(SubscriptionContext { endpoint: Arc::clone(endpoint), class }));
        if has_more {
            // What they offer is part of its lists. Its thread joins them when it looks.
            self.lists_replaced(since_ms);
        }
        true
    }

    /// True if it is the stream of one of these sessions.
    pub(crate) fn is_among(&self, told: &[ToldSession]) -> bool {
        !told.is_empty() && self.outbox.as_ref().is_some_and(|outbox| told.contains(&outbox.as_told()))
    }

    pub(crate) fn list_changed(&self, index: usize) {
        self.raise(Lists::one(index).bits());
    }

    /// A reload, at this moment, made all lists others than they were.
    pub(crate) fn lists_replaced(&self, since_ms: u64) {
        if self.outbox.as_ref().is_none_or(|outbox| outbox.note_lists(since_ms)) {
            self.raise(LISTS);
        }
    }

    /// Ends, as its endpoint is not what it was, or is gone. A session goes on: its client is told where what it knows of
    /// lists is old.
    pub(crate) fn end_replaced(&self, snapshot: &Snapshot) {
        let before = self.standing();
        let endpoint = snapshot.endpoint_named(&before.endpoint.config.name);
        let endpoint = endpoint.and_then(|index| snapshot.endpoints.get(index));
        let is_other = |now: &&Arc<Endpoint>| now.lists_since_ms != before.endpoint.lists_since_ms;
        if let Some(endpoint) = endpoint.filter(is_other).filter(|_| self.outbox.is_some()) {
            self.lists_replaced(endpoint.lists_since_ms);
        }
        self.end();
    }

    /// The resource with this index in the filter has changed.
    pub(crate) fn resource_changed(&self, index: u32) {
        self.updates().mark(index);
        self.raise(UPDATES);
    }

    pub(crate) fn notice(&self, target: UpdateTarget, notice: &Arc<HeldNotice>) {
        self.updates().add(target, notice);
        self.raise(UPDATES);
    }

    pub(crate) fn end(&self) {
        self.raise(ENDED);
    }

    /// Has the client's thread look again.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// From here on the client relies on being told.
    pub(crate) fn set_acknowledged(&self) {
        self.flags.fetch_or(ACKNOWLEDGED, Ordering::AcqRel);
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.flags.load(Ordering::Acquire) & ACKNOWLEDGED != 0
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.flags.load(Ordering::Acquire) & ENDED != 0
    }

    /// Whom to wake. To be called before looking.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(crate) fn take(&self) -> (Lists, Updates) {
        let flags = self.flags.fetch_and(!(LISTS | UPDATES), Ordering::AcqRel);
        let has_updates = flags & UPDATES != 0;
        let updates = if has_updates { std::mem::take(&mut *self.updates()) } else { Updates::default() };
        (Lists::from_bits(flags & LISTS), updates)
    }

    fn raise(&self, flag: u8) {
        // Whoever raised it before has woken the client's thread.
        if self.flags.fetch_or(flag, Ordering::AcqRel) & flag == 0 {
            self.waker.wake();
        }
    }

    fn updates(&self) -> MutexGuard<'_, Updates> {
        self.updates.lock()
    }
}

impl Updates {
    pub(crate) fn has_changed(&self, index: usize) -> bool {
        self.changed.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    fn mark(&mut self, index: u32) {
        let (word, bit) = (index as usize / 64, index % 64);
        if self.changed.len() <= word {
            self.changed.resize(word + 1, 0);
        }
        self.changed[word] |= 1 << bit;
    }

    fn add(&mut self, target: UpdateTarget, notice: &Arc<HeldNotice>) {
        // Of one thing only the latest counts.
        let same = self.notices.iter().position(|(known, old)| *known == target && old.name == notice.name);
        if let Some(same) = same {
            self.notices_bytes -= self.notices.remove(same).1.bytes();
        }
        let is_full = self.notices.len() >= NOTICES_MAX
            || self.notices_bytes.saturating_add(notice.bytes()) > NOTICES_BYTES_MAX;
        if notice.held.is_some() && (self.notices.is_empty() || !is_full) {
            self.notices_bytes += notice.bytes();
            self.notices.push((target, Arc::clone(notice)));
            return;
        }
        match target {
            UpdateTarget::Resource(index) => self.mark(index),
            UpdateTarget::Other(_) => self.everything = true,
            // A task's state cannot be made up; a client that is so far behind asks for it.
            UpdateTarget::Task(_) => {}
        }
    }
}

impl HeldNotice {
    /// Holds a notification for its readers, as far as `held` takes it.
    pub(crate) fn new(notice: Notice, mut held: Share) -> Arc<Self> {
        let held = held.grow(notice.bytes()).is_ok().then_some(held);
        Arc::new(Self { notice, held })
    }
}

impl Deref for HeldNotice {
    type Target = Notice;

    fn deref(&self) -> &Notice {
        &self.notice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::limit::shares::Shares;
    use protocol::json::Scratch;
    use protocol::subscription::{Heard, hear, updated};

    fn notice(uri: &str) -> Arc<HeldNotice> {
        held_by(uri, &Shares::of_bytes(1 << 20))
    }

    fn held_by(uri: &str, shares: &Arc<Shares>) -> Arc<HeldNotice> {
        let message = updated("1", &format!("\"{uri}\"")).into();
        match hear(&mut Scratch::default(), &message, "1", 8) {
            Ok(Heard::Updated(notice)) => HeldNotice::new(notice, shares.open(Payer::GATEWAY)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_nothing_is_forgotten() {
        let mut updates = Updates::default();
        for round in 0..3 {
            for number in 0..1000 {
                updates.add(UpdateTarget::Resource(0), &notice(&format!("a/{number}")));
                updates.add(UpdateTarget::Resource(1), &notice("b"));
                updates.add(UpdateTarget::Other(0), &notice(&format!("c/{number}")));
            }
            let [of_a, of_b] = [0, 1].map(|index| {
                updates.notices.iter().filter(|(target, _)| *target == UpdateTarget::Resource(index)).count()
            });
            assert!(updates.notices.len() <= NOTICES_MAX, "{round}");
            assert_eq!((of_a > 0, of_b), (true, 1));
            assert!(updates.has_changed(0) && updates.everything && !updates.has_changed(1));
        }
        let long = |end: &str| notice(&("x".repeat(8000) + end));
        let mut updates = Updates::default();
        for number in 0..20 {
            updates.add(UpdateTarget::Resource(70 + number), &long("/a"));
        }
        assert!(updates.notices_bytes <= NOTICES_BYTES_MAX);
        assert!(updates.has_changed(89) && !updates.has_changed(70));
    }

    #[test]
    fn what_a_server_says_after_a_gap_reaches_its_client() {
        let mut updates = Updates::default();
        updates.mark(0);
        updates.add(UpdateTarget::Resource(0), &notice("a"));
        assert_eq!((updates.has_changed(0), updates.notices.len()), (true, 1));
    }

    #[test]
    fn a_notice_is_held_once_for_all_and_only_while_there_is_room() {
        let shares = Shares::of_bytes(10_000);
        let long = held_by(&"x".repeat(8000), &shares);
        let mut inboxes: [Updates; 100] = std::array::from_fn(|_| Updates::default());
        for updates in &mut inboxes {
            updates.add(UpdateTarget::Resource(3), &long);
        }
        assert!(inboxes.iter().all(|updates| updates.notices.len() == 1));
        assert_eq!(shares.taken(), long.bytes());
        let more = held_by(&"y".repeat(8000), &shares);
        let mut updates = Updates::default();
        updates.add(UpdateTarget::Resource(3), &more);
        assert!(updates.notices.is_empty() && updates.has_changed(3));
        drop((long, inboxes));
        assert_eq!(shares.taken(), 0);
    }
}
