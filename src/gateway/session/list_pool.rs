//! The gateway's own sessions in which one upstream is asked for lists: which there are, who had them opened, who uses
//! them, and which makes room for another. No sessions, no clock: callers say what time it is.
//!
//! Whoever holds two more than the one who asks loses its least recently used session to it, at once if nobody uses that,
//! else as soon as nobody does. All others lose theirs only after [`AGE_MIN`], so that a burst over many
//! capability sets opens sessions only so fast, and takes from itself.
//!
//! Invariants: there are no more sessions than `max`, unless that has become less; one that is in use stays.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::SessionId;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;

/// Younger sessions make no room for those who hold as many.
pub(super) const AGE_MIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct ListPool {
    members: Vec<Member>,
    waiting: Vec<Payer>,
    /// Something is no longer in use.
    pub(super) released: Arc<Notify>,
    uses: u64,
}

#[derive(Debug)]
struct Member {
    session: SessionId,
    /// Who is charged for it.
    holder: Payer,
    users: usize,
    /// Grows with every use of any.
    used: u64,
    opened: Instant,
    /// It makes room as soon as nobody uses it.
    is_leaving: bool,
    _charge: Option<Share>,
}

/// What there is for a session that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListSlot {
    /// It is there, and is used from now on.
    Itself,
    Room,
    /// There is, if this one goes.
    Instead(SessionId),
    /// Nothing before this time, if there is one, or before somebody has released something.
    Nothing(Option<Instant>),
}

impl ListPool {
    pub(super) fn find(&mut self, session: SessionId, asker: Payer, max: usize, now: Instant) -> ListSlot {
        let held = self.held_by(asker);
        // Those who hold fewer have the right of way.
        let must_yield = self.waiting.iter().any(|other| *other != asker && self.held_by(*other) < held);
        if let Some(found) = self.members.iter().position(|member| member.session == session) {
            let member = &mut self.members[found];
            if member.is_leaving && (member.users > 0 || must_yield) {
                return ListSlot::Nothing(None);
            }
            member.is_leaving = false;
            self.hold(found);
            return ListSlot::Itself;
        }
        if must_yield {
            return ListSlot::Nothing(None);
        }
        if self.members.len() < max {
            return ListSlot::Room;
        }
        let unused = self.members.iter().filter(|member| member.users == 0);
        let ousted = unused
            .filter(|member| self.makes_room_at(member, asker, held).is_some_and(|at| at <= now))
            .min_by_key(|member| (Reverse(self.held_by(member.holder)), member.used))
            .map(|member| member.session);
        if let Some(ousted) = ousted {
            return ListSlot::Instead(ousted);
        }
        self.ask_to_leave(held);
        let unused = self.members.iter().filter(|member| member.users == 0);
        ListSlot::Nothing(unused.filter_map(|member| self.makes_room_at(member, asker, held)).min())
    }

    pub(super) fn remove(&mut self, session: SessionId) {
        self.members.retain(|member| member.session != session);
    }

    /// Takes in the session that room was found for.
    pub(super) fn add(&mut self, session: SessionId, holder: Payer, charge: Option<Share>, now: Instant) {
        self.members.push(Member {
            session,
            holder,
            users: 0,
            used: 0,
            opened: now,
            is_leaving: false,
            _charge: charge,
        });
        self.hold(self.members.len() - 1);
    }

    /// One that was open before this process was: nobody uses it.
    pub(super) fn add_unused(&mut self, session: SessionId, now: Instant) {
        self.add(session, Payer::GATEWAY, None, now);
        self.release(session);
    }

    /// Somebody no longer uses it.
    pub(super) fn release(&mut self, session: SessionId) {
        if let Some(member) = self.members.iter_mut().find(|member| member.session == session) {
            member.users = member.users.saturating_sub(1);
            if member.users == 0 {
                self.released.notify_waiters();
            }
        }
    }

    /// Forgets those that nobody uses and that are not open.
    pub(super) fn retain(&mut self, is_open: impl Fn(SessionId) -> bool) {
        self.members.retain(|member| member.users > 0 || is_open(member.session));
    }

    pub(super) fn wait(&mut self, who: Payer) {
        self.waiting.push(who);
    }

    pub(super) fn leave(&mut self, who: Payer) {
        if let Some(found) = self.waiting.iter().position(|other| *other == who) {
            self.waiting.swap_remove(found);
        }
        // Others may have made way for it.
        self.released.notify_waiters();
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.waiting.len() + self.members.iter().map(|member| member.users).sum::<usize>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.waiting.is_empty()
    }

    /// When this one makes room for an asker that holds so many. `None`: it does not.
    fn makes_room_at(&self, member: &Member, asker: Payer, held: usize) -> Option<Instant> {
        if self.held_by(member.holder) >= held + 2 {
            return Some(member.opened);
        }
        (held == 0 || member.holder == asker).then(|| member.opened + AGE_MIN)
    }

    /// All that could make room are in use: of those who hold too many, the one that was not used for longest is not
    /// used any further.
    fn ask_to_leave(&mut self, held: usize) {
        if self.members.iter().any(|member| member.is_leaving) {
            return;
        }
        let too_many = |member: &&Member| self.held_by(member.holder) >= held + 2;
        let longest = self.members.iter().filter(too_many).min_by_key(|member| member.used);
        let Some(session) = longest.map(|member| member.session) else { return };
        for member in self.members.iter_mut().filter(|member| member.session == session) {
            member.is_leaving = true;
        }
    }

    fn hold(&mut self, index: usize) {
        self.uses += 1;
        if let Some(member) = self.members.get_mut(index) {
            member.users += 1;
            member.used = self.uses;
        }
    }

    fn held_by(&self, who: Payer) -> usize {
        self.members.iter().filter(|member| member.holder == who).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 3;

    struct Test {
        pool: ListPool,
        now: Instant,
    }

    impl Test {
        fn new() -> Self {
            Self { pool: ListPool::default(), now: crate::clock::now() }
        }

        /// Finds a session, and takes it in where there is room.
        fn find(&mut self, who: &str, session: u128) -> ListSlot {
            let session = SessionId(session);
            let mut ousted = None;
            loop {
                match self.pool.find(session, Payer::principal(who), MAX, self.now) {
                    ListSlot::Room => {
                        self.pool.add(session, Payer::principal(who), None, self.now);
                        return ousted.map_or(ListSlot::Room, ListSlot::Instead);
                    }
                    ListSlot::Instead(session) => {
                        self.pool.remove(session);
                        ousted = Some(session);
                    }
                    found => return found,
                }
            }
        }

        /// Uses a session for a moment.
        fn list(&mut self, who: &str, session: u128) -> ListSlot {
            let found = self.find(who, session);
            if !matches!(found, ListSlot::Nothing(_)) {
                self.pool.release(SessionId(session));
            }
            found
        }
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_makes_room() {
        let mut test = Test::new();
        for session in 1..=3 {
            assert_eq!(test.list("a", session), ListSlot::Room);
        }
        assert_eq!(test.list("a", 1), ListSlot::Itself);
        let at = test.now + AGE_MIN;
        assert_eq!(test.list("a", 4), ListSlot::Nothing(Some(at)), "they are young");
        test.now = at;
        assert_eq!(test.list("a", 4), ListSlot::Instead(SessionId(2)));
        assert_eq!(test.list("a", 1), ListSlot::Itself);
        assert_eq!(test.list("a", 5), ListSlot::Instead(SessionId(3)));
    }

    #[test]
    fn what_is_in_use_stays() {
        let mut test = Test::new();
        for session in 1..=3 {
            assert_eq!(test.find("a", session), ListSlot::Room);
        }
        test.now += AGE_MIN;
        assert_eq!(test.list("a", 4), ListSlot::Nothing(None));
        test.pool.release(SessionId(3));
        assert_eq!(test.list("a", 4), ListSlot::Instead(SessionId(3)));
    }

    #[test]
    fn who_holds_too_many_makes_room_at_once() {
        let mut test = Test::new();
        for session in 1..=3 {
            test.list("a", session);
        }
        assert_eq!(test.list("b", 11), ListSlot::Instead(SessionId(1)));
        // From now on each takes from itself.
        assert_eq!(test.list("b", 12), ListSlot::Nothing(Some(test.now + AGE_MIN)));
        test.now += AGE_MIN;
        assert_eq!(test.list("a", 4), ListSlot::Instead(SessionId(2)));
        assert_eq!(test.list("b", 12), ListSlot::Instead(SessionId(11)));
    }

    #[test]
    fn those_who_have_as_many_lose_theirs_only_when_they_are_old() {
        let mut test = Test::new();
        for (who, session) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(test.list(who, session), ListSlot::Room);
        }
        let at = test.now + AGE_MIN;
        assert_eq!(test.list("d", 4), ListSlot::Nothing(Some(at)));
        test.now = at;
        assert_eq!(test.list("d", 4), ListSlot::Instead(SessionId(1)));
    }

    #[test]
    fn one_who_never_pauses_starves_nobody() {
        let mut test = Test::new();
        for session in 1..=3 {
            test.find("a", session);
        }
        test.pool.wait(Payer::principal("b"));
        assert_eq!(test.find("b", 11), ListSlot::Nothing(None));
        // The first is asked to leave: it is not used any further, and nothing else takes its place.
        assert_eq!(test.find("a", 1), ListSlot::Nothing(None));
        assert_eq!(test.find("a", 2), ListSlot::Itself);
        test.pool.release(SessionId(1));
        assert_eq!(test.find("a", 1), ListSlot::Nothing(None));
        assert_eq!(test.find("a", 4), ListSlot::Nothing(None));
        assert_eq!(test.find("b", 11), ListSlot::Instead(SessionId(1)));
        test.pool.leave(Payer::principal("b"));
        assert_eq!(test.find("a", 2), ListSlot::Itself);
    }

    #[test]
    fn who_no_longer_waits_holds_up_nobody() {
        let mut test = Test::new();
        for session in 1..=3 {
            test.find("a", session);
        }
        test.pool.wait(Payer::principal("b"));
        test.find("b", 11);
        test.pool.release(SessionId(1));
        assert_eq!(test.find("a", 1), ListSlot::Nothing(None));
        test.pool.leave(Payer::principal("b"));
        assert_eq!(test.find("a", 1), ListSlot::Itself);
    }

    #[test]
    fn what_is_not_open_is_forgotten() {
        let mut test = Test::new();
        test.find("a", 1);
        test.list("a", 2);
        test.pool.add_unused(SessionId(3), test.now);
        test.pool.retain(|session| session == SessionId(3));
        assert_eq!(test.list("a", 3), ListSlot::Itself);
        assert_eq!((test.list("a", 1), test.list("a", 2)), (ListSlot::Itself, ListSlot::Room));
        test.pool.release(SessionId(1));
        test.pool.retain(|_| false);
        assert!(test.pool.is_empty());
    }
}
