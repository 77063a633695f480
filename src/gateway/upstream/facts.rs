//! What is known of an upstream before any call: which eras it speaks, and how it introduced itself in each.
//!
//! A fixed set of eras in the configuration goes before what is known here ([`Upstream::eras`](super::Upstream::eras)).
//! Each era is learned by itself: a server of both may name only one of them. Only whoever probes upstreams writes
//! here; everybody else reads. Invariant: what was once known is never replaced by ignorance, except of a program that
//! reads what it is asked in the era that is known, and never answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::fault::LastFault;
use super::revisions::OfferedRevisions;
use protocol::error::UpstreamError;
use protocol::version::{Era, Eras};

/// A longer introduction is kept without its instructions.
pub(crate) const RESULT_BYTES_MAX: usize = 64 * 1024;

/// The result of an upstream that gave none.
pub(crate) const EMPTY: &str = "{}";

/// What is known of one upstream; shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct KnownEras {
    known: ArcSwap<EraFacts>,
    /// The eras of what is known, as bits.
    learned: AtomicU8,
    changed: Notify,
    /// True once the configuration names the upstream no longer: then nobody asks it any more.
    is_over: AtomicBool,
    is_doubted: AtomicBool,
    is_introduction_wanted: AtomicBool,
    was_asked_modern: AtomicBool,
    keeps_sessions: AtomicBool,
    /// The fault that it met last and that belongs to no replica: questions about what it speaks, and its processes.
    pub fault: LastFault,
    /// Why it was found not to speak an era, until it speaks any: of sessions, and of none.
    pub denials: [LastFault; 2],
    /// Which revisions it is offered.
    pub revisions: OfferedRevisions,
}

/// What is known at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EraFacts {
    /// What came of `server/discover`.
    pub modern: Fact,
    /// What came of `initialize`.
    pub legacy: Fact,
    /// True once the upstream was asked, whatever came of it.
    pub was_tried: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fact {
    /// It was never asked, or did not say.
    #[default]
    Unknown,
    Absent,
    Present(Arc<EraIntroduction>),
}

/// How an upstream introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EraIntroduction {
    /// The version it chose, or the newest it offers.
    pub version: Box<str>,
    /// The result object of `server/discover` or `initialize`, as it wrote it; `{}` where it gave none, and without
    /// what is long in it where it is longer than [`RESULT_BYTES_MAX`].
    pub result: Bytes,
}

/// The bits of what was learned.
const LEGACY_BIT: u8 = 1;
const MODERN_BIT: u8 = 2;

impl KnownEras {
    pub(crate) fn known(&self) -> arc_swap::Guard<Arc<EraFacts>> {
        self.known.load()
    }

    /// The eras that it speaks, once it was asked for all of them: half asked, it would seem to lack what it was not asked
    /// for. Cheap enough for every call.
    pub(crate) fn learned(&self) -> Option<Eras> {
        let learned = self.learned.load(Ordering::Acquire);
        let eras = Eras { legacy: learned & LEGACY_BIT != 0, modern: learned & MODERN_BIT != 0 };
        Some(eras).filter(|eras| !eras.is_empty())
    }

    /// Replaces what is known and wakes whoever waits for it.
    pub(crate) fn publish(&self, known: EraFacts) {
        let eras = known.eras();
        let bits = if eras.legacy { LEGACY_BIT } else { 0 } | if eras.modern { MODERN_BIT } else { 0 };
        let learned = if known.was_tried { bits } else { 0 };
        // Who sees that it was tried sees what was learned.
        self.learned.store(learned, Ordering::Release);
        self.known.store(Arc::new(known));
        self.changed.notify_waiters();
    }

    /// Says that the upstream answered in a way that contradicts what is known, so that it is asked again soon.
    pub(crate) fn doubt(&self) {
        // Most often it is doubted already, and a load costs other threads nothing.
        if !self.is_doubted.load(Ordering::Relaxed) {
            self.is_doubted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was doubted since this was last asked.
    pub(crate) fn take_doubt(&self) -> bool {
        self.is_doubted.load(Ordering::Relaxed) && self.is_doubted.swap(false, Ordering::Relaxed)
    }

    /// Says that it matters how the upstream introduces itself in the modern era, even where it is sure that it speaks it.
    pub(crate) fn want_introduction(&self) {
        if !self.is_introduction_wanted.load(Ordering::Relaxed) {
            self.is_introduction_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anybody wants that introduction.
    pub(crate) fn is_introduction_wanted(&self) -> bool {
        self.is_introduction_wanted.load(Ordering::Relaxed)
    }

    /// It was asked for that introduction, whatever came of it.
    pub(crate) fn note_asked_modern(&self) {
        self.was_asked_modern.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Waits until something else is known than when this was called, or the same once more.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the upstream was tried once. `Reconfigured`: it will not be, as the configuration names it no longer.
    pub(crate) async fn tried(&self) -> Result<(), UpstreamError> {
        loop {
            let changed = self.changed.notified();
            if self.known().was_tried {
                return Ok(());
            }
            if self.is_over() {
                return Err(UpstreamError::Reconfigured);
            }
            changed.await;
        }
    }

    /// The configuration names the upstream no longer: nothing more is learned of it, and nobody waits for that.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Completes once that is so.
    pub(crate) async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_over() {
                return;
            }
            changed.await;
        }
    }

    /// The upstream was asked to forget a session that it knew: it did, or keeps it.
    pub(crate) fn note_session_end(&self, is_closed: bool) {
        self.keeps_sessions.store(!is_closed, Ordering::Relaxed);
    }

    /// True if it has kept the last session that it was asked to forget.
    pub(crate) fn keeps_sessions(&self) -> bool {
        self.keeps_sessions.load(Ordering::Relaxed)
    }

    /// Waits until it is known how a modern upstream introduces itself, at most for `patience`.
    pub(crate) async fn introduced_within(&self, patience: Duration) {
        self.want_introduction();
        let introduced = async {
            loop {
                let changed = self.changed.notified();
                let known = self.known.load_full();
                let has_said = known.modern.introduction().is_none_or(|said| said.result != EMPTY);
                let was_asked = has_said || self.was_asked_modern.load(Ordering::Relaxed);
                if known.was_tried && was_asked || self.is_over() {
                    return;
                }
                changed.await;
            }
        };
        // Out of patience, the caller goes by what is known.
        let _ = tokio::time::timeout(patience, introduced).await;
    }

    /// Waits until the upstream was tried once, at most for `patience`.
    pub(crate) async fn tried_within(&self, patience: Duration) {
        // Out of patience, the caller goes by what is known.
        let _ = tokio::time::timeout(patience, self.tried()).await;
    }
}

impl EraFacts {
    pub(crate) fn of(&self, era: Era) -> &Fact {
        match era {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        }
    }

    pub(crate) fn of_mut(&mut self, era: Era) -> &mut Fact {
        match era {
            Era::Legacy => &mut self.legacy,
            Era::Modern => &mut self.modern,
        }
    }

    pub(crate) fn eras(&self) -> Eras {
        let has = |fact: &Fact| fact.introduction().is_some();
        Eras { legacy: has(&self.legacy), modern: has(&self.modern) }
    }
}

impl Fact {
    pub(crate) fn introduction(&self) -> Option<&Arc<EraIntroduction>> {
        match self {
            Self::Present(introduction) => Some(introduction),
            Self::Unknown | Self::Absent => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_taken_once() {
        let facts = KnownEras::default();
        assert!(!facts.take_doubt());
        facts.doubt();
        facts.doubt();
        assert!(facts.take_doubt() && !facts.take_doubt());
    }

    #[tokio::test]
    async fn of_what_is_over_nothing_is_waited_for() {
        let facts = KnownEras::default();
        let (tried, ()) = tokio::join!(facts.tried(), async { facts.end() });
        assert_eq!(
            (tried, facts.tried().await),
            (Err(UpstreamError::Reconfigured), Err(UpstreamError::Reconfigured))
        );
        facts.introduced_within(Duration::MAX).await;
        facts.publish(EraFacts { was_tried: true, ..EraFacts::default() });
        assert_eq!(facts.tried().await, Ok(()), "what is known stays known");
    }

    #[test]
    fn only_what_is_present_is_spoken() {
        let introduction = EraIntroduction { version: "2025-11-25".into(), result: "{}".into() };
        let mut known = EraFacts { modern: Fact::Absent, ..EraFacts::default() };
        assert!(known.eras().is_empty());
        *known.of_mut(Era::Legacy) = Fact::Present(introduction.into());
        assert_eq!(known.eras(), Eras::only(Era::Legacy));
        assert!(!known.eras().is_empty() && known.of(Era::Legacy).introduction().is_some());
    }
}
