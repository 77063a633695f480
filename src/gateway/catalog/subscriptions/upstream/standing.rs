//! Streams that are read beside the one that may grow: those whose place another took, and those that carry as much as
//! one is to carry.
//!
//! So what an upstream is asked again whenever somebody wants more is bounded, however much is wanted in all. An upstream
//! that takes no stream beside another is asked for everything in one.

use std::time::Instant;

use super::stream::SubscriptionStream;
use super::{Carrier, KEPT_MAX, OVERLAP, StreamEnd, UNWANTED_KEPT};
use crate::clock;
use crate::tables::subscriptions::feed::Lane;

/// A stream for names that carries so many is complete: what is new goes into another, so that not all is asked for again
/// whenever somebody wants more.
const STREAM_NAMES_MAX: usize = 8192;

/// A stream that no other will take the place of.
pub(super) struct StandingStream {
    pub(super) stream: SubscriptionStream,
    pub(super) role: StreamRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamRole {
    /// Another took its place or will; it is read until then.
    Replaced(Instant),
    /// Likewise, and until then it tells of what the stream of this number carried.
    Parted(Instant, u64),
    /// It is to carry no more than it does. With its number.
    Complete(u64),
}

impl StandingStream {
    pub(super) fn until(&self) -> Option<Instant> {
        match self.role {
            StreamRole::Replaced(until) | StreamRole::Parted(until, _) => Some(until),
            StreamRole::Complete(_) => None,
        }
    }
}

impl Carrier {
    /// Keeps the open stream as it is, where it carries so much that what is new goes into another.
    pub(super) fn complete_stream(&mut self, now: Instant) {
        let is_searching = !self.bisection.is_empty() || self.trials.alone.is_some();
        let is_full = || self.feed.carried() >= STREAM_NAMES_MAX && self.complete_streams() + 1 < KEPT_MAX;
        let may_begin = self.lane == Lane::Names && self.current.is_some() && self.one_stream_until <= now;
        if may_begin && !is_searching && is_full() {
            self.begin_next_stream();
            self.is_next = true;
        }
    }

    /// Streams of which less than half is wanted: what is, goes into the one that grows, and they are read until it stands.
    pub(super) fn part_with_unwanted(&mut self, now: Instant) {
        // Where nobody wants anything, all are kept for a while.
        let is_wanted = self.feed.need(self.lane).is_wanted;
        for kept in self.kept.iter_mut().filter(|_| is_wanted) {
            if let StreamRole::Complete(number) = kept.role
                && !self.feed.is_stream_wanted(number)
            {
                let is_wanted = self.feed.part_with_stream(number);
                let until = now + if is_wanted { UNWANTED_KEPT } else { OVERLAP };
                kept.role = StreamRole::Parted(until, number);
            }
        }
    }

    /// Ends the streams whose time is over.
    pub(super) fn end_replaced(&mut self, now: Instant) {
        self.kept.retain(|kept| {
            let is_over = kept.until().is_some_and(|until| until <= now);
            if let StreamRole::Parted(_, number) = kept.role
                && is_over
            {
                self.feed.end_parted_stream(number);
            }
            !is_over
        });
    }

    /// Once all that is wanted stands, streams whose place was taken are read for the overlap alone.
    pub(super) fn shorten_replaced(&mut self, now: Instant) {
        if self.feed.need(self.lane).has_pending {
            return;
        }
        for kept in &mut self.kept {
            if let StreamRole::Replaced(until) | StreamRole::Parted(until, _) = &mut kept.role {
                *until = (*until).min(now + OVERLAP);
            }
        }
    }

    /// The open stream is to carry no more, and another is to be opened.
    pub(super) fn begin_next_stream(&mut self) {
        if let Some(stream) = self.current.take() {
            let role = StreamRole::Complete(self.feed.begin_stream());
            self.kept.push(StandingStream { stream, role });
        }
    }

    /// Takes [`begin_next_stream`](Self::begin_next_stream) back: the upstream refused what was to be its next stream, so
    /// that the last one has to carry more. False if there is none.
    pub(super) fn resume_last_stream(&mut self) -> bool {
        let last = last_complete(self.kept.iter().map(|kept| kept.role));
        let Some(index) = last.filter(|_| self.current.is_none() && self.feed.carried() == 0) else {
            return false;
        };
        let StandingStream { stream, role } = self.kept.remove(index);
        if let StreamRole::Complete(number) = role {
            self.feed.resume_stream(number);
        }
        self.current = Some(stream);
        true
    }

    /// A stream is lost that was read beside the one that may grow.
    pub(super) fn lost_kept(&mut self, index: usize, ended: &StreamEnd) {
        let StandingStream { stream, role } = self.kept.swap_remove(index);
        let number = match role {
            StreamRole::Complete(number) => number,
            StreamRole::Parted(_, number) => return self.feed.end_parted_stream(number),
            StreamRole::Replaced(_) => return,
        };
        self.feed.lose_stream(number);
        self.log_loss(&stream, ended);
        self.back_off(clock::now());
    }

    pub(super) fn complete_streams(&self) -> usize {
        self.kept.iter().filter(|kept| matches!(kept.role, StreamRole::Complete(_))).count()
    }
}

/// Where the stream is that was the last to be complete.
fn last_complete(roles: impl Iterator<Item = StreamRole>) -> Option<usize> {
    let numbers = roles.enumerate().filter_map(|(index, role)| match role {
        StreamRole::Complete(number) => Some((number, index)),
        StreamRole::Replaced(_) | StreamRole::Parted(..) => None,
    });
    numbers.max().map(|(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_stream_is_that_of_the_highest_number() {
        let (now, complete) = (clock::now(), StreamRole::Complete);
        let replaced = [StreamRole::Replaced(now), StreamRole::Parted(now, 9)];
        for (roles, expected) in [
            (vec![complete(3), complete(2), replaced[0], replaced[1]], Some(0)),
            (vec![replaced[1], complete(1), complete(2)], Some(2)),
            (replaced.to_vec(), None),
        ] {
            assert_eq!(last_complete(roles.iter().copied()), expected, "{roles:?}");
        }
    }
}
