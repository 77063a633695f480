//! What an upstream says to being asked for something: that it will tell of it, or that it will not.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::{Feed, FeedFilter, Lane, OfferState};
use protocol::subscription::{Acknowledged, Lists};

/// How long a refusal stands against new clients that want the same: a name may appear any time, a capability hardly.
const NAME_REFUSAL_KEPT: Duration = Duration::from_secs(5);
const LIST_REFUSAL_KEPT: Duration = Duration::from_mins(1);

impl Feed {
    /// Everything wanted of a lane is to be asked for, whatever the upstream said before.
    pub(crate) fn ask_everything(&self, lane: Lane) {
        let mut shared = self.shared();
        shared.refused_until[lane as usize] = None;
        shared.each(lane, |_, offer| {
            if matches!(offer, OfferState::Refused(_)) {
                *offer = OfferState::Pending;
            }
        });
    }

    /// The upstream has answered. After a gap everybody is told of everything it had agreed to; those who rely on what
    /// it had not answered for yet are told of that. Returns the lists that may have changed meanwhile.
    pub(crate) fn settle(
        &self,
        ask: &FeedFilter,
        acknowledged: &Acknowledged,
        has_gap: bool,
        now: Instant,
    ) -> Lists {
        let mut shared = self.shared();
        let mut changed = Lists::default();
        for index in ask.lists.indexes() {
            let is_relied_on = shared.is_list_relied_on(index);
            let is_honoured = acknowledged.lists.has(index);
            let offer = OfferState::of(is_honoured, now + LIST_REFUSAL_KEPT);
            let is_owed = match std::mem::replace(&mut shared.lists[index].offer, offer) {
                OfferState::Honoured => has_gap,
                _ => is_honoured && is_relied_on,
            };
            if is_owed {
                changed.add(index);
            }
        }
        for (is_task, asked, honoured) in
            [(false, &ask.uris, &acknowledged.uris), (true, &ask.task_ids, &acknowledged.task_ids)]
        {
            let stream = shared.stream;
            let honoured: HashSet<&str> = honoured.iter().map(|name| &**name).collect();
            for inner in asked {
                let is_honoured = honoured.contains(&**inner);
                let offer = OfferState::of(is_honoured, now + NAME_REFUSAL_KEPT);
                let was_honoured = shared.names.change(is_task, inner, |name| {
                    (name.is_suspect, name.stream) = (false, stream);
                    let before = std::mem::replace(&mut name.offer, offer);
                    name.told_by.take().is_some() || before == OfferState::Honoured
                });
                let Some(was_honoured) = was_honoured else { continue };
                let is_owed = if was_honoured { has_gap } else { is_honoured };
                // The state of a task cannot be made up.
                if is_owed && !is_task {
                    shared.resource_may_have_changed(inner, was_honoured);
                }
            }
        }
        if ask.lists.is_empty() {
            // There may be room again.
            shared.refused_until[Lane::Names as usize] = None;
        }
        shared.wake_waiting();
        changed
    }

    /// The upstream takes no such stream. What it had agreed to before stands, unless nothing else was asked.
    /// Returns false in that case.
    pub(crate) fn refuse(&self, lane: Lane, until: Instant) -> bool {
        let mut shared = self.shared();
        let mut was_growth = false;
        shared.each(lane, |_, offer| was_growth |= *offer == OfferState::Honoured);
        let mut has_pending = false;
        shared.each(lane, |_, offer| has_pending |= *offer == OfferState::Pending);
        let is_partial = was_growth && has_pending;
        if !is_partial {
            shared.refused_until[lane as usize] = Some(until);
        }
        shared.each(lane, |_, offer| {
            if !is_partial || *offer == OfferState::Pending {
                *offer = OfferState::Refused(until);
            }
        });
        shared.wake_waiting();
        is_partial
    }

    /// Nothing is carried any more.
    pub(crate) fn forget(&self, lane: Lane) {
        let mut shared = self.shared();
        shared.refused_until[lane as usize] = None;
        shared.each(lane, |_, offer| *offer = OfferState::Pending);
        if lane == Lane::Names {
            shared.names.change_all(|_, _, name| name.told_by = None);
        }
        shared.forget_unwanted(lane);
    }
}
