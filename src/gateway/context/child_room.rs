//! Room for child processes, of all that rest: those of the modern era, those of the bridge's sessions, and those of clients'
//! sessions.
//!
//! Looked at are sessions that have a process for themselves, and whose servers keep nothing that cannot be opened again, as in
//! those of the gateway's own.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::state::State;
use crate::access::limit::fair::{Resting, Turn};
use crate::access::limit::payer::Payer;
use crate::session::UpstreamSession;
use crate::session::eviction::RestingSession;
use crate::snapshot::Snapshot;
use crate::upstream::Upstream;
use crate::upstream::mux::MuxConnection;
use crate::upstream::mux::host::MakeRoom;
use crate::upstream::other_era::BridgedRest;
use crate::upstream::stdio::Children;
use crate::upstream::stdio::room::PATIENCE;

/// How long the end of a session of the bridge takes, about.
const SESSION_END_TIME: Duration = Duration::from_millis(200);

/// Finds what rests in the state of the process.
#[derive(Debug)]
pub(crate) struct ChildRoom(Weak<State>);

/// What leads to a process that rests.
enum RestingChild<'a> {
    Process(&'a Children, MuxConnection),
    Bridged(&'a Upstream, BridgedRest),
    Session(RestingSession),
}

impl ChildRoom {
    pub(crate) fn new(state: &Arc<State>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(state)))
    }
}

impl MakeRoom for ChildRoom {
    fn make_room(&self, asked: &str, payer: Payer, now: Instant) -> Turn<Duration> {
        let Some(state) = self.0.upgrade() else { return Turn::Nothing };
        let snapshot = state.snapshot.load_full();
        let asked = snapshot.upstreams.iter().find(|upstream| upstream.config.name == asked);
        let Some(children) = asked.and_then(|asked| asked.children()) else { return Turn::Nothing };
        // Else it is all upstreams together that have as many as they may.
        let only = children.is_full().then_some(children);
        let held_by = |payer| match only {
            Some(children) => children.held_by(payer),
            None => state.host.children.held_by(payer),
        };
        let resting = resting(&state, &snapshot, only);
        let chosen = match PATIENCE.turn(payer, now, resting.into_iter(), held_by) {
            Turn::Instead(chosen) => chosen,
            Turn::Wait(at) => return Turn::Wait(at),
            Turn::Nothing => return Turn::Nothing,
        };
        let children = match chosen {
            RestingChild::Process(children, connection) => {
                children.end_resting(&connection).then_some(children)
            }
            RestingChild::Bridged(upstream, rest) => {
                let has_ended = upstream.other_era.end_resting(rest);
                let children = upstream.children().map(|children| &**children).filter(|_| has_ended);
                if children.is_some_and(|children| !children.is_for_one_session()) {
                    // The process that sessions share can go once the server has heard of it.
                    return Turn::Wait(now + SESSION_END_TIME);
                }
                children
            }
            RestingChild::Session(resting) => part_with(&state, &snapshot, &resting),
        };
        // Somebody uses it by now: another is looked for.
        let Some(children) = children else { return Turn::Wait(now) };
        children.series().evicted.inc();
        tracing::debug!(upstream = children.name(), "a process that rests makes room for another");
        Turn::Instead(children.stop_time_max())
    }
}

/// The processes that rest, of one upstream or of all.
fn resting<'s>(
    state: &State,
    snapshot: &'s Snapshot,
    only: Option<&Arc<Children>>,
) -> Vec<Resting<RestingChild<'s>>> {
    let mut found = Vec::new();
    let mut of_sessions: HashMap<&str, (&Upstream, &Children)> = HashMap::new();
    for upstream in &snapshot.upstreams {
        let Some(children) = upstream.children() else { continue };
        if only.is_some_and(|only| !Arc::ptr_eq(only, children)) {
            continue;
        }
        found.extend(
            children
                .resting()
                .into_iter()
                .map(|resting| resting.map(|connection| RestingChild::Process(children, connection))),
        );
        if children.is_for_all() {
            continue;
        }
        let bridged = upstream.other_era.resting().into_iter();
        found.extend(bridged.map(|resting| resting.map(|rest| RestingChild::Bridged(upstream, rest))));
        if children.is_for_one_session() {
            of_sessions.insert(&upstream.session_key, (upstream, children));
        }
    }
    if !of_sessions.values().any(|(_, children)| children.has_sessions()) {
        return found;
    }
    let sessions = state.sessions.resting(|upstream: &str, session: &UpstreamSession| {
        of_sessions.get(upstream)?.1.quiet_since(session.id.as_ref()?)
    });
    let is_replaceable = |resting: &Resting<RestingSession>| {
        let is_irreplaceable = |(upstream, _): &(&Upstream, &Children)| upstream.is_irreplaceable();
        resting.payer == Payer::GATEWAY
            || !of_sessions.get(&*resting.key.upstream).is_some_and(is_irreplaceable)
    };
    let sessions = sessions.into_iter().filter(is_replaceable);
    found.extend(sessions.map(|resting| resting.map(RestingChild::Session)));
    found
}

/// Ends the process of a client's session.
fn part_with<'s>(state: &State, snapshot: &'s Snapshot, resting: &RestingSession) -> Option<&'s Children> {
    let session = state.sessions.part_with(resting)?;
    let mut upstreams = snapshot.upstreams.iter();
    let upstream = upstreams.find(|upstream| *upstream.session_key == *resting.upstream)?;
    let children = upstream.children()?;
    children.end_session(session.id.as_ref()?);
    Some(children)
}
