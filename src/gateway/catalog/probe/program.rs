//! The questions to a program: asked while it starts, however long that takes, and of the process that serves afterwards.
//!
//! A program is spoken to in one era. The first message of its process says in which: the one that is remembered, else
//! `server/discover`, which servers of the older era refuse or do not answer, and then `initialize` on the same process. The
//! session that `initialize` opens stays the gateway's own, for lists.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use super::ask::{EraFinding, discover, initialized, introduced, not_initialized};
use crate::clock;
use crate::session::{SessionId, SessionOwner, Sessions, UpstreamSession, UpstreamSessionError};
use crate::upstream::Upstream;
use crate::upstream::ask::Asker;
use crate::upstream::facts::{EraFacts, EraIntroduction, Fact};
use crate::upstream::fault::Fault;
use crate::upstream::initialize::{InitializeError, InitializeOffer, InitializedSession, open};
use crate::upstream::start_state::{StartState, StartWatch};
use protocol::error::UpstreamError;
use protocol::version::{Era, Eras, LegacyVersion};

/// A start is bounded by `start_timeout`, and waits for its turn before that: longer than for this nobody asks.
const START_TIME_MAX: Duration = Duration::from_hours(24);
/// The word of a program holds for its process, and none is started to hear it again.
const FRESH_FOR: Duration = Duration::from_hours(24);
/// The time that closing a session with a process may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks a program about one era.
pub(super) async fn find(
    asker: &Asker<'_>,
    sessions: &Sessions,
    upstream: &Upstream,
    era: Era,
) -> EraFinding {
    if era == Era::Legacy
        && let Some(told) = told_meanwhile(asker, upstream)
    {
        return told;
    }
    if let Some(known) = known_at_rest(upstream, era) {
        return known;
    }
    if era == Era::Modern && !upstream.facts.known().was_tried {
        // It is asked anew: those before it came to nothing.
        while let Some(pause) = upstream.start_pause() {
            sleep(pause).await;
        }
    }
    let deadline = clock::now() + START_TIME_MAX;
    let patience = upstream.config.response_timeout;
    let silent = upstream.starts().map(|starts| silence(starts, starts.under_way(), patience));
    let silent = async {
        match silent {
            Some(silent) => silent.await,
            None => std::future::pending().await,
        }
    };
    let found = async {
        match era {
            Era::Modern => discover(asker, upstream, deadline, upstream.config.response_timeout).await,
            Era::Legacy => {
                // It may have died of the question before this one.
                while let Some(pause) = upstream.start_pause() {
                    sleep(pause).await;
                }
                initialize(asker, sessions, upstream).await
            }
        }
    };
    tokio::select! {
        found = found => found,
        () = silent => match era {
            // Over a pipe nothing stands in between: silence is the server's own.
            Era::Modern => EraFinding::Lacks { fault: Fault::TimedOut(upstream.config.response_timeout) },
            Era::Legacy => EraFinding::Unknown { fault: Fault::TimedOut(upstream.config.response_timeout) },
        },
    }
}

/// The finding from what its newest process told whoever opened the gateway's session in it.
fn told_meanwhile(asker: &Asker<'_>, upstream: &Upstream) -> Option<EraFinding> {
    introduced(asker, &upstream.children()?.introductions().take()?, FRESH_FOR)
}

/// True if there is such a finding.
pub(super) fn was_told(upstream: &Upstream) -> bool {
    upstream.children().is_some_and(|children| children.introductions().are_any())
}

/// True for a program of which a process of the gateway's own came up after the program was `heard`: it may be of another
/// version. One of the older era tells that as it is initialized.
pub(super) fn has_come_up(upstream: &Upstream, heard: Option<Instant>) -> bool {
    let up_since = upstream.starts().filter(|_| !upstream.lacks(Era::Modern));
    let up_since = up_since.and_then(|starts| starts.own_up_since());
    up_since.zip(heard).is_some_and(|(since, heard)| since > heard)
}

/// The finding of a program that has ended, as nobody needs it: it is not started to be asked again.
fn known_at_rest(upstream: &Upstream, era: Era) -> Option<EraFinding> {
    let is_at_rest =
        upstream.starts().is_some_and(|starts| matches!(starts.state(), StartState::Ended { .. }));
    let known = upstream.facts.known();
    let introduction = known.of(era).introduction().filter(|_| is_at_rest)?;
    Some(again(introduction))
}

/// The same as was known.
fn again(introduction: &EraIntroduction) -> EraFinding {
    EraFinding::Speaks { introduction: introduction.clone(), fresh_for: FRESH_FOR }
}

/// True for a program that is spoken to in one era: the bridge serves clients of the other.
pub(super) fn is_of_one_era(upstream: &Upstream) -> bool {
    upstream.is_child() && upstream.config.eras.is_none() && upstream.config.bridge.is_on
}

/// True for a program whose processes read what they are asked in the era in which it is known, and never answer.
pub(super) fn is_silent(upstream: &Upstream) -> bool {
    let silent_in = upstream.children().filter(|_| is_of_one_era(upstream)).and_then(|all| all.silent_in());
    silent_in.is_some_and(|era| asked(&upstream.facts.known()) == Eras::only(era))
}

/// The facts of a program in one era, where more is remembered.
pub(super) fn in_one_era(known: EraFacts) -> EraFacts {
    match (&known.modern, &known.legacy) {
        (Fact::Present(_), _) => EraFacts { legacy: Fact::Unknown, was_tried: true, ..known },
        (_, Fact::Present(_)) => EraFacts { was_tried: true, ..known },
        _ => known,
    }
}

/// The eras that a program is to be asked about, as far as this is known of it.
pub(super) fn asked(known: &EraFacts) -> Eras {
    match (&known.modern, &known.legacy) {
        (Fact::Present(_), _) => Eras::only(Era::Modern),
        (_, Fact::Present(_)) => Eras::only(Era::Legacy),
        _ => Eras::BOTH,
    }
}

/// Completes when a program has had its time since its last start. `under_way`: subscribed to before it was asked. One that
/// is not up is started by this question: its end before that says nothing.
async fn silence(starts: &StartWatch, mut under_way: watch::Receiver<bool>, patience: Duration) {
    let is_up = matches!(starts.state(), StartState::Up { .. });
    // A watch that is gone, with its upstream, ends each of these.
    if !is_up && !*under_way.borrow() {
        let _ = under_way.changed().await;
    }
    loop {
        let _ = under_way.wait_for(|is_under_way| !is_under_way).await;
        tokio::select! {
            () = sleep(patience) => return,
            Ok(_) = under_way.wait_for(|is_under_way| *is_under_way) => {}
        }
    }
}

async fn initialize(asker: &Asker<'_>, sessions: &Sessions, upstream: &Upstream) -> EraFinding {
    let version = LegacyVersion::NEWEST;
    let deadline = clock::now() + START_TIME_MAX;
    upstream.facts.revisions.forget();
    let own = SessionId::own(version);
    if let Some(before) = sessions.opened(own, &upstream.session_key)
        && upstream.has_ended(before.id.as_ref())
    {
        sessions.lose(own, &upstream.session_key, &before);
    }
    let told: RefCell<Option<InitializedSession>> = RefCell::default();
    let open_anew = || async {
        let opened = open(asker, upstream, InitializeOffer::own(version), deadline).await?;
        let session = UpstreamSession::new(opened.id.clone(), opened.version).at(opened.replica);
        told.replace(Some(opened));
        Ok::<_, InitializeError>(session)
    };
    let owner = SessionOwner::gateway(own, u64::MAX);
    let session = sessions.upstream_session(owner, &upstream.session_key, open_anew).await;
    match (session, told.take()) {
        (Ok(_), Some(opened)) => {
            // It is the same.
            let _ = told_meanwhile(asker, upstream);
            initialized(asker, &opened, FRESH_FOR)
        }
        // The session was there already.
        (Ok(_), None) => {
            let known = || upstream.facts.known().legacy.introduction().map(|known| again(known));
            match told_meanwhile(asker, upstream).or_else(known) {
                Some(known) => known,
                None => open_and_close(asker, upstream, deadline).await,
            }
        }
        (Err(UpstreamSessionError::Failed(error)), _) => {
            not_initialized(upstream, error, initialize_patience(upstream))
        }
        (Err(UpstreamSessionError::NoState(_)), _) => {
            let error = UpstreamError::TooManyListSessions;
            EraFinding::Unknown { fault: upstream.fault_of(&error, upstream.config.response_timeout) }
        }
    }
}

/// The time that a process which is up has for `initialize`.
fn initialize_patience(upstream: &Upstream) -> Duration {
    let start_timeout = upstream.config.command.as_ref().map(|command| command.start_timeout);
    start_timeout.map_or(upstream.config.response_timeout, |max| max.min(upstream.config.response_timeout))
}

async fn open_and_close(asker: &Asker<'_>, upstream: &Upstream, deadline: Instant) -> EraFinding {
    match open(asker, upstream, InitializeOffer::own(LegacyVersion::NEWEST), deadline).await {
        Ok(opened) => {
            // It ends with its process, if not by this.
            let _ = asker.close_session(upstream, opened.named(), clock::now() + CLOSE_TIMEOUT).await;
            let _ = told_meanwhile(asker, upstream);
            initialized(asker, &opened, FRESH_FOR)
        }
        Err(error) => not_initialized(upstream, error, initialize_patience(upstream)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_program_has_its_time_from_when_it_is_up() {
        let starts = Arc::new(StartWatch::default());
        // The one before it has failed, and may not be started again for a while.
        starts.begin(false).fail("it ended".into());
        let mut silent = Box::pin(silence(&starts, starts.under_way(), PATIENCE));
        assert!((&mut silent).now_or_never().is_none());
        advance(2 * PATIENCE).await;
        assert!((&mut silent).now_or_never().is_none(), "it was asked nothing yet");
        let second = starts.begin(false);
        second.run();
        assert!((&mut silent).now_or_never().is_none());
        advance(2 * PATIENCE).await;
        assert!((&mut silent).now_or_never().is_none(), "it starts");
        second.succeed();
        assert!((&mut silent).now_or_never().is_none());
        advance(PATIENCE / 2).await;
        assert!((&mut silent).now_or_never().is_none());
        advance(PATIENCE).await;
        assert!((&mut silent).now_or_never().is_some(), "it has had its time");
    }

    #[tokio::test(start_paused = true)]
    async fn beside_one_that_is_up_another_starts_in_its_own_time() {
        let starts = Arc::new(StartWatch::default());
        let up = starts.begin(false);
        up.succeed();
        let mut silent = Box::pin(silence(&starts, starts.under_way(), PATIENCE));
        assert!((&mut silent).now_or_never().is_none());
        let asked = starts.begin(false);
        assert!((&mut silent).now_or_never().is_none());
        advance(2 * PATIENCE).await;
        assert!((&mut silent).now_or_never().is_none(), "it starts");
        // It came and went unseen.
        drop(asked);
        assert!((&mut silent).now_or_never().is_none());
        advance(2 * PATIENCE).await;
        assert!((&mut silent).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_is_over_before_anybody_looks_counts() {
        let starts = Arc::new(StartWatch::default());
        let silent = silence(&starts, starts.under_way(), PATIENCE);
        starts.begin(false).fail("it ended".into());
        let mut silent = Box::pin(silent);
        assert!((&mut silent).now_or_never().is_none());
        advance(2 * PATIENCE).await;
        assert!((&mut silent).now_or_never().is_some());
    }
}
