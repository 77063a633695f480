//! Programs that are still starting: a list goes without them, or waits where it would be empty, and then says which
//! they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::timeout_at;

use crate::upstream::Upstream;
use crate::upstream::start_state::StartState;
use protocol::error::{StillStarting, UpstreamError};
use protocol::text::first_names;

/// How long a list waits that would be empty: clients give up at ten seconds.
pub(super) const EMPTY_PATIENCE: Duration = Duration::from_secs(8);
/// The time that a list waits for a program which is not up, or for a list that was kept over a restart, where there is
/// an old part.
pub(super) const STALE_PATIENCE: Duration = Duration::from_millis(250);
/// So many programs are named.
const NAMED_MAX: usize = 5;
/// When a client may ask again.
const RETRY_AFTER_S: u32 = 2;

/// True for a program that has yet to say what it is. One that rests has said so before.
pub(super) fn is_starting(upstream: &Upstream) -> bool {
    let is_to_start = || upstream.starts().is_some_and(|starts| starts.state() == StartState::NotStarted);
    (is_on_its_way(upstream) || is_to_start() && !upstream.facts.is_over()) && !upstream.rests()
}

/// True for a program that starts, or that is started to be asked what it speaks. One whose era is fixed starts when
/// somebody needs it.
pub(crate) fn is_on_its_way(upstream: &Upstream) -> bool {
    let has_failed =
        || upstream.starts().is_some_and(|starts| matches!(starts.state(), StartState::Failed(_)));
    upstream.is_starting() && !has_failed()
}

/// The time until which a list that was asked for at `entered` waits for the part of `upstream`. A program that does not
/// come up holds up the lists of its first start alone, and no longer than one of them may take.
pub(super) fn wait_until(upstream: &Upstream, entered: Instant) -> Instant {
    let list_timeout = upstream.config.list_timeout;
    let (longest, least) = (list_timeout.min(EMPTY_PATIENCE), list_timeout.min(STALE_PATIENCE));
    let within = |since: Instant| (since + longest).clamp(entered + least, entered + longest);
    if upstream.starts().is_some_and(|starts| starts.has_failed()) {
        return entered + least;
    }
    match upstream.starts().map(|starts| starts.state()) {
        Some(StartState::Queued { since } | StartState::Running { since }) => within(since),
        // It has answered, be it a refusal, and does not say what it is.
        Some(StartState::Up { since }) if is_starting(upstream) => within(since),
        _ if is_starting(upstream) => entered + longest,
        _ => entered + list_timeout,
    }
}

/// True for a program that has ended, as nobody needs it, or that was not needed yet.
pub(super) fn is_at_rest(upstream: &Upstream) -> bool {
    if upstream.is_lazy() {
        return upstream.rests();
    }
    upstream.starts().is_some_and(|starts| matches!(starts.state(), StartState::Ended { .. }))
}

/// True for a program none of whose processes has answered.
pub(super) fn is_down(upstream: &Upstream) -> bool {
    upstream.starts().is_some_and(|starts| !matches!(starts.state(), StartState::Up { .. }))
}

/// Waits until one of these programs is further than it is now. False: none is, in time.
pub(super) async fn one_moves(upstreams: &[&Arc<Upstream>], deadline: Instant) -> bool {
    let moves = upstreams.iter().filter_map(|upstream| {
        let (mut changes, known) = (upstream.starts()?.changes(), upstream.facts.changed());
        let wanted = upstream.wanted();
        Some(async move {
            let _wanted = wanted;
            // It may have moved before it was watched.
            if !is_starting(upstream) {
                return;
            }
            tokio::select! {
                // A watch that is gone does not move.
                Ok(()) = changes.changed() => {}
                () = known => {}
            }
        })
    });
    let mut moves: FuturesUnordered<_> = moves.collect();
    matches!(timeout_at(deadline.into(), moves.next()).await, Ok(Some(())))
}

/// Why there is no list, if some of these programs are still starting.
pub(super) fn error(upstreams: &[&Arc<Upstream>]) -> Option<UpstreamError> {
    let starting: Vec<&str> = upstreams
        .iter()
        .filter(|upstream| is_starting(upstream))
        .map(|upstream| upstream.config.name.as_str())
        .collect();
    let (up, of) = (upstreams.iter().filter(|upstream| is_up(upstream)).count(), upstreams.len());
    let names = first_names(&starting, NAMED_MAX).into();
    (!starting.is_empty()).then(|| StillStarting { names, up, of, retry_after_s: RETRY_AFTER_S }.into())
}

/// As far as is known: a server elsewhere is up once it was found to be one.
fn is_up(upstream: &Upstream) -> bool {
    upstream.rests() || (!is_down(upstream) && !is_starting(upstream) && upstream.eras().is_some())
}
