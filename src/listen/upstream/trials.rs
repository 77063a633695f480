//! What a lane does when its upstream refuses a stream for what is in it, while it may well take another.
//!
//! The open stream stays as it is. The names that are new are tried in groups ([`Bisection`]), each on a stream that carries
//! also what the open one does, and so can take its place. A name that is refused with the others is tried alone: if it is
//! refused again, it is kept out. If not, the upstream takes no more in one stream, or no longer takes what it took before:
//! the open stream then stays as it is, and another carries what is new. Of these there are a few; what does not fit into
//! them is left out.
//!
//! [`Bisection`]: super::bisection::Bisection

use std::time::{Duration, Instant};

use super::{Carrier, Kept, PAUSE_MIN, REFUSED_INTERVAL, Role};
use crate::jitter::jittered;
use crate::listen::feed::{Ask, Lane, Suspect};
use crate::protocol::error::UpstreamError;

/// So many trials in this time need not keep the interval between streams.
const QUICK_TRIALS_MAX: u32 = 32;
const QUICK_TRIALS_INTERVAL: Duration = Duration::from_secs(10);
/// An upstream that refuses so many streams in a row, none being open, offers none.
const REFUSED_IN_ROW_MAX: u32 = 64;
/// Streams that carry names of one upstream.
const STREAMS_MAX: usize = 4;

/// What a new stream is to find out.
#[derive(Debug)]
pub(super) enum Trial {
    /// Whether the upstream takes these names beside what it has agreed to.
    Group(Vec<Suspect>),
    /// Whether it takes this name alone.
    Alone(Suspect),
}

/// How often streams were tried of late.
#[derive(Debug)]
pub(super) struct Trials {
    /// The one that is tried next.
    alone: Option<Suspect>,
    refused_in_row: u32,
    /// Groups that failed one after the other, while others waited.
    failed_in_row: usize,
    quick_since: Instant,
    quick: u32,
}

impl Trials {
    pub(super) fn new(now: Instant) -> Self {
        Self { alone: None, refused_in_row: 0, failed_in_row: 0, quick_since: now, quick: 0 }
    }

    /// Whether another may begin at once.
    fn take_quick(&mut self, now: Instant) -> bool {
        if now >= self.quick_since + QUICK_TRIALS_INTERVAL {
            (self.quick_since, self.quick) = (now, 0);
        }
        self.quick += 1;
        self.quick <= QUICK_TRIALS_MAX
    }
}

impl Carrier {
    /// What the next stream for names is to carry.
    pub(super) fn next_trial(&mut self) -> (Ask, Trial) {
        if let Some(suspect) = self.trials.alone.take() {
            return (suspect.alone(), Trial::Alone(suspect));
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

    /// The upstream has taken a stream.
    pub(super) fn trial_accepted(&mut self, now: Instant) {
        (self.trials.refused_in_row, self.trials.failed_in_row) = (0, 0);
        if !self.bisection.is_empty() {
            self.go_on(now);
        }
    }

    /// The upstream has taken a name alone that it refuses beside those of the open stream. False if no further stream may
    /// be held.
    pub(super) fn begin_stream(&mut self, now: Instant) -> bool {
        let held = self.kept.iter().filter(|kept| matches!(kept.role, Role::Complete(_))).count();
        if held + 1 < STREAMS_MAX {
            if let Some(stream) = self.current.take() {
                self.kept.push(Kept { stream, role: Role::Complete(self.feed.begin_stream()) });
            }
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

    /// The upstream could not be asked: everything is tried again. Where it failed at the request, while a stream is open,
    /// it may be one name at which it fails: the others must not wait for that.
    pub(super) fn trial_failed(&mut self, trial: Trial, error: &UpstreamError, now: Instant) {
        let failed_at_request =
            matches!(error, UpstreamError::Nonsense | UpstreamError::TimedOut | UpstreamError::Reset);
        let has_others = !self.bisection.is_empty();
        let may_others_do = match trial {
            Trial::Group(group) if failed_at_request && self.current.is_some() && group.len() > 1 => {
                self.bisection.halve(group);
                self.trials.failed_in_row = 0;
                true
            }
            Trial::Group(group) if has_others => {
                // Once each of them has failed, it is as if there was only one.
                self.bisection.add_last(group);
                self.trials.failed_in_row += 1;
                failed_at_request && self.trials.failed_in_row < self.bisection.len()
            }
            Trial::Group(_) => {
                self.feed.return_suspects();
                false
            }
            Trial::Alone(suspect) => {
                self.bisection.add_last(vec![suspect]);
                has_others && failed_at_request
            }
        };
        if may_others_do && self.current.is_some() {
            self.not_before = now + jittered(PAUSE_MIN, 0.5..1.0);
        } else {
            self.back_off(now);
        }
    }

    /// The upstream has refused a stream for what is in it.
    pub(super) fn trial_refused(&mut self, ask: &Ask, trial: Trial, now: Instant) {
        self.trials.refused_in_row += 1;
        let until = now + REFUSED_INTERVAL;
        if self.current.is_none() && self.trials.refused_in_row >= REFUSED_IN_ROW_MAX {
            self.trials.refused_in_row = 0;
            self.forget_trials();
            self.feed.refuse(Lane::Names, until);
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

    fn narrow(&mut self, ask: &Ask, mut group: Vec<Suspect>, now: Instant) {
        if self.current.is_none() && ask.names() > group.len() {
            // The upstream agreed to the others on a stream that was lost.
            self.forget_trials();
            self.feed.suspect_everything();
            group = self.feed.take_suspects();
        }
        match <[Suspect; 1]>::try_from(group) {
            Ok([suspect]) if ask.names() == 1 => {
                self.feed.refuse_name(&suspect, now + REFUSED_INTERVAL, now);
            }
            Ok([suspect]) => self.trials.alone = Some(suspect),
            Err(group) => self.bisection.halve(group),
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
    fn alone(&self) -> Ask {
        let (mut uris, mut task_ids) = (Vec::new(), Vec::new());
        if self.is_task { &mut task_ids } else { &mut uris }.push(self.inner.clone());
        Ask { uris, task_ids, ..Ask::default() }
    }
}
