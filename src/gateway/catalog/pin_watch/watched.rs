//! An upstream that is watched, and how its rounds, its file and its record go.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalog::lists::starting::is_on_its_way;
use crate::clock;
use crate::upstream::Upstream;
use crate::upstream::pins::Pins;
use crate::upstream::pins::record::PinnedTools;
use net::jitter::doubled;

/// Least time between the beginnings of two rounds.
const ROUNDS_INTERVAL: Duration = Duration::from_millis(100);
/// Pause after a round that came to nothing, doubled with each; a call that waits does not wait for its end.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(500);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause after a file could not be written, doubled with each failure up to [`PAUSE_MAX`].
const WRITE_PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause after a record that is of no use.
const SHARE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time that the others have to write back what Redis has lost: as long as it takes them to connect again and look.
const WRITTEN_BACK_IN: Duration = Duration::from_secs(6);

pub(super) struct PinnedUpstream {
    pub(super) upstream: Arc<Upstream>,
    pub(super) pins: Arc<Pins>,
    pub(super) is_under_way: bool,
    pub(super) begun: Option<Instant>,
    pub(super) failures: u32,
    /// No round begins before, unless a call waits.
    pub(super) pause_until: Option<Instant>,
    /// Number of times that its file could not be written, and the complaint of it.
    pub(super) writes_failed: u32,
    pub(super) complaint: LastWarning,
    pub(super) write_again: Option<Instant>,
    pub(super) sharing: Sharing,
}

/// The sharing of one upstream's pins.
#[derive(Default)]
pub(super) struct Sharing {
    /// Pins that were kept here of an upstream that is not pinned yet.
    pub(super) kept: Option<PinnedTools>,
    pub(super) failures: u32,
    /// A record of this version is of no use until then.
    pub(super) again: Option<(String, Instant)>,
    /// Other tools may be called than before.
    pub(super) has_turned: bool,
    /// Since when there is no record, where nothing is trusted.
    absent_since: Option<Instant>,
    pub(super) complaint: LastWarning,
}

/// The last complaint, so that the log does not repeat itself.
#[derive(Default)]
pub(super) struct LastWarning(Option<String>);

impl LastWarning {
    /// True if this is something new.
    pub(super) fn is_news(&mut self, error: &dyn std::fmt::Display) -> bool {
        let error = error.to_string();
        let is_news = self.0.as_ref() != Some(&error);
        self.0 = Some(error);
        is_news
    }

    /// All is well. Whether it was not.
    pub(super) fn end(&mut self) -> bool {
        self.0.take().is_some()
    }
}

impl PinnedUpstream {
    pub(super) fn new(upstream: &Arc<Upstream>, pins: &Arc<Pins>) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            pins: Arc::clone(pins),
            is_under_way: false,
            begun: None,
            failures: 0,
            pause_until: None,
            writes_failed: 0,
            complaint: LastWarning::default(),
            write_again: None,
            sharing: Sharing::default(),
        }
    }

    /// Notes how the writing of its file came out, and says so once, whenever the reason changes, and now and then.
    pub(super) fn note_written(&mut self, upstream: &str, written: &io::Result<()>) {
        let Err(error) = written else {
            if self.complaint.end() {
                tracing::info!(upstream, "what is pinned is kept again");
            }
            (self.writes_failed, self.write_again) = (0, None);
            return;
        };
        self.write_again = Some(clock::now() + doubled(WRITE_PAUSE_MIN, self.writes_failed, PAUSE_MAX));
        self.writes_failed = self.writes_failed.saturating_add(1);
        if self.complaint.is_news(error) || self.writes_failed.is_power_of_two() {
            let failures = self.writes_failed;
            tracing::error!(upstream, %error, failures, "what is pinned cannot be kept");
        }
    }

    pub(super) fn is_due(&self, now: Instant, is_demanded: bool) -> bool {
        let is_early = self.begun.is_some_and(|begun| now < begun + ROUNDS_INTERVAL);
        let is_pausing = !is_demanded && self.pause_until.is_some_and(|until| now < until);
        // A program that starts is looked at once it is up.
        let is_of_no_use = || is_on_its_way(&self.upstream) || self.upstream.rests();
        // Its eras are found out first.
        if self.is_under_way
            || is_early
            || is_pausing
            || !self.pins.is_open()
            || self.upstream.eras().is_none()
            || (!self.pins.is_awaited() && is_of_no_use())
        {
            return false;
        }
        self.pins.round().is_none_or(|round| {
            let is_old = now >= round.begun + self.upstream.config.pins.age_max / 2;
            is_old || !round.is_of(&self.upstream)
        })
    }
}

impl Sharing {
    /// After a record that is of no use.
    pub(super) fn pause(&mut self, there: String) {
        let until = clock::now() + doubled(WRITE_PAUSE_MIN, self.failures, SHARE_PAUSE_MAX);
        self.again = Some((there, until));
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn is_pausing(&self, there: &str) -> bool {
        self.again.as_ref().is_some_and(|(version, until)| version == there && clock::now() < *until)
    }

    /// True if there has been no record for so long that no other gateway can have pins.
    pub(super) fn is_forgotten(&mut self, is_absent: bool) -> bool {
        let now = clock::now();
        let since = if is_absent { Some(self.absent_since.unwrap_or(now)) } else { None };
        self.absent_since = since;
        since.is_some_and(|since| now >= since + WRITTEN_BACK_IN)
    }
}
