//! The pins of an upstream beside what all gateways have pinned of it ([`agreement`](super::agreement)).

use super::agreement::{FoundRecord, KeyId, Unshared};
use super::version::Version;
use super::{PinFileState, PinState, Pins};
use crate::telemetry::logs::shorten;
use crate::upstream::Upstream;

impl Pins {
    /// The version of the record that was read or written last.
    pub(crate) fn version(&self) -> Option<Version> {
        self.inner().agreement.version
    }

    /// Goes by the record that was read; `None`: there is none. True if other definitions are approved than before.
    pub(crate) fn compare(&self, upstream: &Upstream, found: Option<FoundRecord>) -> bool {
        let mut inner = self.inner();
        let inner = &mut *inner;
        let before = inner.agreement.version;
        let change = inner.agreement.compare(&mut inner.book, upstream.config.pins.mode, found);
        let name = &upstream.config.name;
        if change.is_lost
            && let Some(count) = inner.note_lost()
        {
            tracing::warn!(
                upstream = name,
                count,
                "Redis has lost what gateways share of pins, or an older copy was put back: what is pinned here takes its place"
            );
        }
        for (tool, hash) in &change.approved {
            let (tool, sha256) = (shorten(tool), tracing::field::display(hash));
            tracing::info!(target: "audit", act = "follow", by = "another gateway", outcome = "done", upstream = name, tool, sha256, "a definition that waited is let through, as another gateway has it: approved there, or seen first");
        }
        inner.is_dirty |= change.is_turn || inner.agreement.version != before;
        if change.is_turn {
            tracing::debug!(upstream = name, "what is pinned follows what gateways share");
            self.publish(inner, |current| current.round = None);
        }
        change.is_turn
    }

    /// Pins that the record lacks, or that `key` is to seal. Taken to be written from now on.
    pub(crate) fn take_unshared(&self, key: KeyId) -> Option<Unshared> {
        let mut inner = self.inner();
        let inner = &mut *inner;
        inner.agreement.take_unshared(&inner.book, key)
    }

    pub(crate) fn note_shared(&self, shared: &Unshared) {
        let mut inner = self.inner();
        inner.agreement.note_shared(shared);
        inner.is_dirty = true;
    }

    /// It could not be written.
    pub(crate) fn set_ahead(&self) {
        self.inner().agreement.is_ahead = true;
    }

    /// All of the gateway's own lists were fetched once; nobody is told yet.
    pub(crate) fn complete(&self) {
        let mut inner = self.inner();
        inner.book.complete();
        inner.touch();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.inner().book.is_complete()
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.current.load().standing == PinFileState::Unreadable
    }

    /// Nothing is trusted, see [`Self::distrust`].
    pub(crate) fn is_unasked(&self) -> bool {
        self.current.load().standing == PinFileState::Unasked
    }

    /// Nothing is known, and nobody can be asked: whatever was seen so far is not trusted. True if that is new.
    pub(crate) fn distrust(&self) -> bool {
        let mut inner = self.inner();
        let is_new = self.current.load().standing != PinFileState::Unasked;
        inner.book.forget();
        self.stand(&inner, PinFileState::Unasked);
        is_new
    }

    /// True tells operators that the record of all gateways is of no use.
    pub(crate) fn set_unshared(&self, is_unshared: bool) {
        self.series.states.unshared.set(is_unshared.into());
    }
}

impl PinState {
    /// The record was lost once more. How often that was, whenever it is worth saying: somebody may take it away each second.
    fn note_lost(&mut self) -> Option<u32> {
        self.lost = self.lost.saturating_add(1);
        self.lost.is_power_of_two().then_some(self.lost)
    }
}
