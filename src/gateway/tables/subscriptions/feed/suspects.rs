//! Names that an upstream may refuse a whole stream for: who wants them, and what becomes of them.
//!
//! Which of them are tried together, and when, is decided by the lane that opens streams.

use std::sync::Arc;
use std::time::Instant;

use super::{Feed, FeedFilter, FeedState, Lane, OfferState, ResourceName};

/// A name that the upstream has not agreed to yet.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    pub(crate) is_task: bool,
    pub(crate) inner: Arc<str>,
    /// Who was first to want it, as a digest.
    pub(crate) source: u64,
}

impl Feed {
    /// The pending names that were not taken before.
    pub(crate) fn take_suspects(&self) -> Vec<Suspect> {
        let mut shared = self.shared();
        let mut suspects = Vec::new();
        let FeedState { clients, names, .. } = &mut *shared;
        if names.counts().newcomers == 0 {
            return suspects;
        }
        names.change_all(|is_task, inner, name| {
            let first = name.clients.first().and_then(|(key, _)| clients.get(*key as usize)?.as_ref());
            if let Some(client) = first.filter(|_| name.offer == OfferState::Pending && !name.is_suspect) {
                name.is_suspect = true;
                suspects.push(Suspect { is_task, inner: Arc::clone(inner), source: client.source });
            }
        });
        suspects
    }

    /// All pending names may be taken again.
    pub(crate) fn return_suspects(&self) {
        let names = &mut self.shared().names;
        if names.counts().suspects > 0 {
            names.change_all(|_, _, name| name.is_suspect = false);
        }
    }

    /// What a stream is to carry that tries these names: them, as far as they are still wanted and pending, and all that
    /// the stream carries that it would replace.
    pub(crate) fn ask_for(&self, suspects: &mut Vec<Suspect>) -> FeedFilter {
        let mut shared = self.shared();
        suspects.retain(|suspect| {
            let name = shared.names.get(suspect.is_task, &suspect.inner);
            name.is_some_and(|name| name.offer == OfferState::Pending && name.is_wanted())
        });
        shared.forget_unwanted(Lane::Names);
        let mut ask = FeedFilter::default();
        let stream = shared.stream;
        for (is_task, asked) in [(false, &mut ask.uris), (true, &mut ask.task_ids)] {
            let names = shared.names.of_kind(is_task);
            let honoured = names.iter().filter(|(_, name)| name.is_carried_by(stream));
            asked.extend(honoured.map(|(inner, _)| Arc::clone(inner)));
        }
        for suspect in suspects {
            let asked = if suspect.is_task { &mut ask.task_ids } else { &mut ask.uris };
            asked.push(Arc::clone(&suspect.inner));
        }
        ask
    }

    /// Nothing is carried any more, and the upstream may no longer agree to what it had agreed to.
    pub(crate) fn suspect_everything(&self) {
        let mut shared = self.shared();
        let stream = shared.stream;
        shared.lose(stream);
    }

    /// The open stream is to carry no more: what is new goes into another. Returns the number of the open one.
    pub(crate) fn begin_stream(&self) -> u64 {
        let mut shared = self.shared();
        shared.stream += 1;
        shared.stream - 1
    }

    /// The stream of this number, the last that was to carry no more, is to grow again.
    pub(crate) fn resume_stream(&self, stream: u64) {
        self.shared().stream = stream;
    }

    /// How many names the stream carries that may grow.
    pub(crate) fn carried(&self) -> usize {
        let shared = self.shared();
        let carried = shared.names.counts().carried_by(shared.stream);
        carried.wanted + carried.unwanted
    }

    /// A stream that carried no more was lost: what it carried is asked for anew.
    pub(crate) fn lose_stream(&self, stream: u64) {
        self.shared().lose(stream);
    }

    /// What a stream carries is asked for anew, while that is still read: it has no gap. Returns whether any of that is
    /// wanted.
    pub(crate) fn part_with_stream(&self, stream: u64) -> bool {
        let mut is_any_wanted = false;
        self.shared().names.change_all(|_, _, name| {
            if name.is_carried_by(stream) {
                (name.offer, name.told_by) = (OfferState::Pending, Some(stream));
                is_any_wanted |= name.is_wanted();
            }
        });
        is_any_wanted
    }

    /// A stream that was parted with is read no longer.
    pub(crate) fn end_parted_stream(&self, stream: u64) {
        self.shared().names.change_all(|_, _, name| {
            name.told_by = name.told_by.filter(|told_by| *told_by != stream);
        });
    }

    /// Whether at least half of what a stream carries is wanted.
    pub(crate) fn is_stream_wanted(&self, stream: u64) -> bool {
        let carried = self.shared().names.counts().carried_by(stream);
        carried.wanted > 0 && carried.wanted >= carried.unwanted
    }

    /// The upstream refuses this name, even alone. If that cuts off who asked for it, its other names are refused, too.
    pub(crate) fn refuse_name(&self, suspect: &Suspect, until: Instant, now: Instant) {
        let counted = &self.upstream.series.subscription_names_refused;
        let name = &self.upstream.config.name;
        let mut shared = self.shared();
        counted.name.inc();
        shared.names.change(suspect.is_task, &suspect.inner, |name| name.refuse(until));
        if shared.refusals.add(suspect.is_task, &suspect.inner, suspect.source, now) {
            let refused = shared.refuse_cut_off(now);
            counted.cut_off.inc_by(refused);
            let principal = shared.principal_of(suspect.source);
            let principal = principal.as_deref().unwrap_or_default();
            tracing::warn!(
                upstream = name,
                principal,
                refused,
                "cut off for a minute from new subscriptions to resources: the upstream refused many of its URIs"
            );
        }
        shared.wake_waiting();
    }

    /// What is pending is refused; others that come are asked for.
    pub(crate) fn refuse_pending(&self, until: Instant) {
        let mut shared = self.shared();
        shared.refuse_pending(until);
        shared.wake_waiting();
    }

    /// The upstream takes no more in one stream: what is pending is refused, and what comes before `until`.
    pub(crate) fn refuse_rest(&self, until: Instant) {
        let mut shared = self.shared();
        shared.refused_until[Lane::Names as usize] = Some(until);
        self.upstream.series.subscription_names_refused.full.inc_by(shared.refuse_pending(until));
        shared.wake_waiting();
    }
}

impl ResourceName {
    fn is_carried_by(&self, stream: u64) -> bool {
        self.offer == OfferState::Honoured && self.stream == stream
    }
}

impl FeedState {
    /// Returns how many names were refused that are wanted.
    fn refuse_pending(&mut self, until: Instant) -> u64 {
        let mut refused = 0;
        self.each(Lane::Names, |is_wanted, offer| {
            if *offer == OfferState::Pending {
                *offer = OfferState::Refused(until);
                refused += u64::from(is_wanted);
            }
        });
        refused
    }

    fn lose(&mut self, stream: u64) {
        self.names.change_all(|_, _, name| {
            if name.is_carried_by(stream) {
                name.offer = OfferState::Pending;
            }
        });
    }

    /// Refuses the pending names that only those want who are cut off. Whoever else comes to want them has them asked for.
    fn refuse_cut_off(&mut self, now: Instant) -> u64 {
        let Self { clients, names, refusals, .. } = self;
        let mut refused = 0;
        names.change_all(|_, _, name| {
            let mut sources = name.clients.iter().filter_map(|(key, _)| clients.get(*key as usize)?.as_ref());
            if name.offer == OfferState::Pending
                && sources.all(|client| refusals.is_cut_off(client.source, now))
            {
                name.refuse(now);
                refused += 1;
            }
        });
        refused
    }

    fn principal_of(&self, source: u64) -> Option<String> {
        let client = self.clients.iter().flatten().find(|client| client.source == source)?;
        Some(client.inbox.principal().id().to_owned())
    }
}
