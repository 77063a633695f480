//! What a lane does when its upstream refuses a stream for what is in it, while it may well take another.
//!
//! The open stream stays as it is. The names that are new are tried in groups ([`Bisection`]), each on a stream that carries
//! also what the open one does, and so can take its place. A name that is refused with the others is tried alone: if it is
//! refused again, it is kept out. If not, the upstream takes no more in one stream, or no longer takes what it took before:
//! the open stream then stays as it is, and another carries what is new. Of these there are a few; what does not fit into
//! them is left out.
//!
//! Where no stream is open, what the lost one carried is asked for first, alone: a newcomer cannot keep it out. Only if the
//! upstream now fails at that, it is parted as well.
//!
//! [`Bisection`]: super::bisection::Bisection

use std::time::{Duration, Instant};

use super::{Carrier, PAUSE_MAX, PAUSE_MIN, REFUSED_INTERVAL};
use crate::tables::subscriptions::feed::{FeedFilter, Need, Suspect};
use net::jitter::{doubled, jittered};
use protocol::error::UpstreamError;

/// So many trials in this time need not keep the interval between streams.
const QUICK_TRIALS_MAX: u32 = 32;
const QUICK_TRIALS_INTERVAL: Duration = Duration::from_secs(10);
/// After so many refusals in one search, with no stream open, the search is given up.
const REFUSED_IN_ROW_MAX: u32 = 64;
/// Streams that carry names of one upstream.
const STREAMS_MAX: usize = 4;

#[derive(Debug)]
pub(super) enum Trial {
    /// Whether the upstream takes these names beside what it has agreed to.
    Group(Vec<Suspect>),
    Alone(Suspect),
}

#[derive(Debug)]
pub(super) struct Trials {
    pub(super) alone: Option<Suspect>,
    refused_in_row: u32,
    /// How often names failed alone beside an open stream, and when such names are tried again.
    failed_alone: u32,
    failed_again_at: Instant,
    quick_since: Instant,
    quick: u32,
}

impl Trials {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            alone: None,
            refused_in_row: 0,
            failed_alone: 0,
            failed_again_at: now,
            quick_since: now,
            quick: 0,
        }
    }

    fn take_quick(&mut self, now: Instant) -> bool {
        if now >= self.quick_since + QUICK_TRIALS_INTERVAL {
            (self.quick_since, self.quick) = (now, 0);
        }
        self.quick += 1;
        self.quick <= QUICK_TRIALS_MAX
    }
}

impl Carrier {
    pub(super) fn next_trial(&mut self) -> (FeedFilter, Trial) {
        if self.current.is_none() {
            let carried = self.feed.ask_for(&mut Vec::new());
            if !carried.is_empty() {
                return (carried, Trial::Group(Vec::new()));
            }
        }
        if let Some(suspect) = self.trials.alone.take() {
            return (suspect.alone(), Trial::Alone(suspect));
        }
        if self.bisection.is_empty() {
            self.trials.refused_in_row = 0;
        }
        // Newcomers are a group of their own.
        let newcomers = self.feed.take_suspects();
        self.bisection.add(newcomers);
        loop {
            let mut group = self.bisection.next().unwrap_or_default();
            let ask = self.feed.ask_for(&mut group);
            if !group.is_empty() || self.bisection.is_empty() {
                return (ask, Trial::Group(group));
            }
        }
    }

    /// Another stream may be tried soon.
    fn go_on(&mut self, now: Instant) {
        if self.trials.take_quick(now) {
            self.not_before = now;
        }
    }

    pub(super) fn trial_accepted(&mut self, now: Instant) {
        self.trials.refused_in_row = 0;
        if self.bisection.is_empty() {
            self.trials.failed_alone = 0;
            self.shorten_replaced(now);
        } else {
            self.go_on(now);
        }
    }

    /// When names are tried again, if none are pending but those at which the upstream failed beside the open stream. Their
    /// pause is nobody else's.
    pub(super) fn failed_again_at(&self, need: Need, now: Instant) -> Option<Instant> {
        let has_others = need.has_newcomers || self.bisection.has_untried() || self.trials.alone.is_some();
        let is_paused = self.current.is_some() && !self.bisection.is_empty() && !has_others;
        is_paused.then_some(self.trials.failed_again_at).filter(|at| *at > now)
    }

    /// The upstream has taken a name alone that it refuses beside those of the open stream. False if no further stream may
    /// be held.
    pub(super) fn begin_stream(&mut self, now: Instant) -> bool {
        if self.complete_streams() + 1 < STREAMS_MAX {
            self.begin_next_stream();
            return true;
        }
        self.forget_trials();
        self.feed.refuse_rest(now + REFUSED_INTERVAL);
        tracing::warn!(
            upstream = self.feed.upstream.config.name,
            "takes no more resources and tasks in its subscriptions: those that came last are left out"
        );
        false
    }

    /// The upstream could not be asked: everything is tried again. Where it failed at the request, it may be one name at
    /// which it fails: the others must not wait for that.
    pub(super) fn trial_failed(&mut self, trial: Trial, error: &UpstreamError, now: Instant) {
        let failed_at_request = matches!(
            error,
            UpstreamError::Nonsense
                | UpstreamError::Refused(_)
                | UpstreamError::Status { .. }
                | UpstreamError::TimedOut
                | UpstreamError::Reset
        );
        let may_others_do = match trial {
            Trial::Group(group) if failed_at_request && group.is_empty() => {
                // It may be a name that the lost stream carried.
                if self.current.is_none() {
                    self.part_everything();
                }
                false
            }
            Trial::Group(group) if failed_at_request && group.len() > 1 => {
                self.bisection.halve(group);
                true
            }
            Trial::Group(_) if self.bisection.is_empty() && !failed_at_request => {
                self.feed.return_suspects();
                false
            }
            Trial::Group(group) => {
                self.bisection.add_failed(group);
                failed_at_request
            }
            Trial::Alone(suspect) => {
                self.bisection.add_failed(vec![suspect]);
                failed_at_request
            }
        };
        if may_others_do && self.current.is_some() {
            self.not_before = now + jittered(PAUSE_MIN, 0.5..1.0);
            let pause = doubled(PAUSE_MIN, self.trials.failed_alone, PAUSE_MAX);
            self.trials.failed_alone += u32::from(!self.bisection.has_untried());
            self.trials.failed_again_at = now + jittered(pause, 0.5..1.0);
        } else {
            self.back_off(now);
        }
    }

    /// The upstream has refused a stream for what is in it.
    pub(super) fn trial_refused(&mut self, ask: &FeedFilter, trial: Trial, now: Instant) {
        self.trials.refused_in_row += 1;
        let until = now + REFUSED_INTERVAL;
        if self.current.is_none() && self.trials.refused_in_row >= REFUSED_IN_ROW_MAX {
            self.trials.refused_in_row = 0;
            self.forget_trials();
            self.feed.refuse_pending(until);
            self.ask_again_at = until;
            return;
        }
        match trial {
            Trial::Alone(suspect) => self.feed.refuse_name(&suspect, until, now),
            Trial::Group(group) => self.narrow(ask, group, now),
        }
        self.ask_again_at = until;
        self.go_on(now);
    }

    fn narrow(&mut self, ask: &FeedFilter, group: Vec<Suspect>, now: Instant) {
        if self.current.is_none() && ask.names() > group.len() {
            // The upstream agreed to the others on a stream that was lost.
            self.part_everything();
            return;
        }
        match <[Suspect; 1]>::try_from(group) {
            Ok([suspect]) if ask.names() == 1 => {
                self.feed.refuse_name(&suspect, now + REFUSED_INTERVAL, now);
            }
            Ok([suspect]) => self.trials.alone = Some(suspect),
            Err(group) => self.bisection.halve(group),
        }
    }

    /// Also what a lost stream carried is searched.
    fn part_everything(&mut self) {
        self.forget_trials();
        self.feed.suspect_everything();
        let group = self.feed.take_suspects();
        if group.len() > 1 {
            self.bisection.halve(group);
        } else {
            self.bisection.add(group);
        }
    }

    /// Nothing is being searched for.
    pub(super) fn forget_trials(&mut self) {
        self.trials.alone = None;
        self.bisection.clear();
        self.feed.return_suspects();
    }
}

impl Suspect {
    fn alone(&self) -> FeedFilter {
        let (mut uris, mut task_ids) = (Vec::new(), Vec::new());
        if self.is_task { &mut task_ids } else { &mut uris }.push(self.inner.clone());
        FeedFilter { uris, task_ids, ..FeedFilter::default() }
    }
}
