//! All limits of rate, in the order in which a request meets them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::shared::{LimitUse, RateError, SharedLimits};
use super::{CellKey, LimitSubject, Limiter};
use crate::telemetry::metrics::{Metrics, gauge};
use config::Config;
use protocol::arguments::ArgumentPath;
use protocol::error::PolicyError;

/// Part of every table that one sweep looks through: an eighth.
const SHARDS_PER_SWEEP: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    /// Those of every message.
    of_requests: Vec<Arc<Limiter>>,
    /// Those of what goes to an upstream.
    of_calls: Vec<Arc<Limiter>>,
    /// All arguments that calls are counted by.
    arguments: Arc<[ArgumentPath]>,
}

impl RateLimits {
    /// The limiters of `config`; those of unchanged limits go on counting where they are in `old`.
    pub(crate) fn new(
        config: &Config,
        metrics: &Metrics,
        old: Option<&Self>,
    ) -> Result<Self, globset::Error> {
        let mut rates = Self::default();
        for limit in &config.rate_limits {
            let kept = old.into_iter().flat_map(Self::all).find(|old| old.limit == *limit).cloned();
            let limiter = if let Some(kept) = kept {
                kept
            } else {
                let series = metrics.rates.of(&limit.name);
                Arc::new(Limiter::new(limit.clone(), config.limits.limiter_keys_max, series)?)
            };
            if limit.is_of_requests() {
                rates.of_requests.push(limiter);
            } else {
                rates.of_calls.push(limiter);
            }
        }
        let paths: BTreeSet<&ArgumentPath> =
            config.rate_limits.iter().flat_map(config::RateLimit::arguments).collect();
        rates.arguments = paths.into_iter().cloned().collect();
        Ok(rates)
    }

    pub(crate) fn set_keys_max(&self, keys_max: usize) {
        self.all().for_each(|limiter| limiter.set_keys_max(keys_max));
    }

    /// Whether the limits of messages have anything to count.
    pub(crate) fn count_requests(&self) -> bool {
        !self.of_requests.is_empty()
    }

    /// Whether the limits of calls have anything to count.
    pub(crate) fn count_calls(&self) -> bool {
        !self.of_calls.is_empty()
    }

    /// All arguments that calls are counted by.
    pub(crate) fn arguments(&self) -> &Arc<[ArgumentPath]> {
        &self.arguments
    }

    /// Whether a call can only be counted by its arguments.
    pub(crate) fn read_arguments(&self, subject: &LimitSubject<'_>) -> bool {
        let reads =
            |limiter: &Arc<Limiter>| limiter.limit.arguments().next().is_some() && limiter.is_about(subject);
        !self.arguments.is_empty() && self.of_calls.iter().any(reads)
    }

    pub(crate) fn admit_request(
        &self,
        subject: &LimitSubject<'_>,
        now: Instant,
        common: Option<SharedLimits<'_>>,
    ) -> Result<(), RateError> {
        admit(&self.of_requests, subject, now, common)
    }

    /// Counts a request on its way to an upstream. A refused one takes nothing.
    pub(crate) fn admit_call(
        &self,
        subject: &LimitSubject<'_>,
        now: Instant,
        common: Option<SharedLimits<'_>>,
    ) -> Result<(), RateError> {
        if !self.arguments.is_empty() {
            self.check_arguments(subject)?;
        }
        admit(&self.of_calls, subject, now, common)
    }

    /// What is counted by an argument has it.
    fn check_arguments(&self, subject: &LimitSubject<'_>) -> Result<(), RateError> {
        for limiter in &self.of_calls {
            if let Err(ambiguous) = limiter.check_arguments(subject) {
                limiter.series.refused.inc();
                return Err(RateError::Refused(PolicyError::AmbiguousArgument(ambiguous)));
            }
            if let Some(path) = limiter.missing_argument(subject) {
                limiter.series.refused.inc();
                let limit = limiter.limit.name.as_str().into();
                let error = PolicyError::MissingArgument { limit, argument: path.to_string().into() };
                return Err(RateError::Refused(error));
            }
        }
        Ok(())
    }

    /// Forgets who has recovered, in a part of the tables.
    pub(crate) fn sweep(&self, now: Instant) {
        self.all().for_each(|limiter| limiter.sweep(now, SHARDS_PER_SWEEP));
    }

    pub(crate) fn observe(&self) {
        for limiter in self.all() {
            limiter.series.keys.set(gauge(limiter.keys()));
        }
    }

    #[cfg(test)]
    pub(super) fn of_calls(limiters: Vec<Limiter>) -> Self {
        let paths: BTreeSet<ArgumentPath> =
            limiters.iter().flat_map(|limiter| limiter.limit.arguments()).cloned().collect();
        let arguments = paths.into_iter().collect();
        Self { of_calls: limiters.into_iter().map(Arc::new).collect(), of_requests: Vec::new(), arguments }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Limiter>> {
        self.of_requests.iter().chain(&self.of_calls)
    }
}

fn admit(
    limiters: &[Arc<Limiter>],
    subject: &LimitSubject<'_>,
    now: Instant,
    common: Option<SharedLimits<'_>>,
) -> Result<(), RateError> {
    // Of a lease, or of nothing: a bit for each limit.
    let (mut leased, mut uncounted) = (0_u64, 0_u64);
    for (at, limiter) in limiters.iter().enumerate() {
        let Some((key, weight)) = what_counts(limiter, subject) else { continue };
        match limiter.take(subject, (&key, weight), now, common) {
            Ok(LimitUse::Here) => {}
            Ok(LimitUse::Lease) => leased |= 1 << at,
            Ok(LimitUse::Nothing) => uncounted |= 1 << at,
            Err(error) => {
                for (before, limiter) in limiters[..at].iter().enumerate() {
                    let Some((key, weight)) = what_counts(limiter, subject) else { continue };
                    let taken = match (leased >> before & 1, uncounted >> before & 1) {
                        (_, 1) => LimitUse::Nothing,
                        (1, _) => LimitUse::Lease,
                        _ => LimitUse::Here,
                    };
                    limiter.give_back(subject, (&key, weight), now, (common, taken));
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

fn what_counts(limiter: &Limiter, subject: &LimitSubject<'_>) -> Option<(CellKey, u32)> {
    limiter.is_about(subject).then(|| (limiter.key(subject), limiter.weight(subject)))
}
