//! What replicas share, brought together with what this one keeps: ends of sessions, cancelled calls, and changes of lists.
//!
//! On the control thread. Changes of lists are looked for a few times a second rather than told by who finds them, so
//! that an upstream that announces them without end is told of no more often. What another replica told is not told
//! again.
//!
//! Invariant: after a connection was made, whatever may have been missed is in doubt: lists are invalid, and sessions
//! are read again when they are next used.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::context::state::State;
use crate::redis::peer_message::PeerMessage;
use crate::redis::run::PeerEvent;
use crate::redis::{self, Redis, Urgency};
use crate::upstream::changes::ChangedList;
use crate::upstream::{Upstream, UpstreamId};

/// How often changes of lists are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is asked whether idle sessions are used elsewhere.
const USE_INTERVAL: Duration = Duration::from_secs(1);

/// What of the changes of each upstream's lists was told, or was heard from others.
#[derive(Default)]
struct AnnouncedChanges(RefCell<HashMap<UpstreamId, [u64; 3]>>);

/// Shares for as long as the process runs.
pub(super) async fn run(state: Arc<State>, shared: Arc<Redis>) {
    let known = AnnouncedChanges::default();
    let hear = |heard| match heard {
        PeerEvent::Joined => {
            known.doubt_all(&state);
            if let Some(grants) = &*state.grants.load() {
                grants.doubt_news();
            }
        }
        PeerEvent::Message(PeerMessage::Ended(sealed)) => {
            let snapshot = state.snapshot.load();
            state.sessions.hear(&sealed, |key| snapshot.has_local_sessions(key));
        }
        PeerEvent::Message(PeerMessage::GrantNews(grant, news)) => {
            if let Some(grants) = &*state.grants.load() {
                grants.hear_told(grant, &news);
            }
        }
        PeerEvent::Message(PeerMessage::Cancelled(sealed)) => state.sessions.hear_cancelled(&sealed),
        PeerEvent::Message(PeerMessage::Changed(lists)) => {
            for upstream in &state.snapshot.load().upstreams {
                let name = Redis::name_of_lists(&upstream.session_key);
                let told = lists.iter().filter(|(of, _)| *of == name);
                told.for_each(|(_, kinds)| known.hear(upstream, *kinds));
            }
        }
    };
    let keys = || state.sessions.key_names();
    let tell = async {
        let mut interval = interval(LOOK_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let changed = known.look(&state);
            if !changed.is_empty() {
                shared.announce(&PeerMessage::Changed(changed), Urgency::Dropped);
            }
        }
    };
    let ask = async {
        let mut interval = interval(USE_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let snapshot = state.snapshot.load_full();
            let is_irreplaceable = |key: &str| snapshot.is_irreplaceable(key);
            state.sessions.leave_unused(is_irreplaceable, |key| snapshot.has_local_sessions(key)).await;
        }
    };
    tokio::join!(redis::run::run(Arc::clone(&shared), keys, hear), tell, ask);
}

impl AnnouncedChanges {
    /// What has changed since the last look: names of lists, and a bit for each kind.
    fn look(&self, state: &State) -> Vec<([u8; redis::peer_message::NAME_BYTES], u8)> {
        let snapshot = state.snapshot.load();
        let mut known = self.0.borrow_mut();
        let mut changed = Vec::new();
        known.retain(|id, _| snapshot.upstreams.iter().any(|upstream| upstream.id == *id));
        for upstream in &snapshot.upstreams {
            let now = counts(upstream);
            let before = known.insert(upstream.id, now).unwrap_or(now);
            let kinds =
                (0..3).filter(|kind| now[*kind] != before[*kind]).fold(0, |bits, kind| bits | 1 << kind);
            if kinds != 0 {
                changed.push((Redis::name_of_lists(&upstream.session_key), kinds));
            }
        }
        changed
    }

    fn hear(&self, upstream: &Upstream, kinds: u8) {
        let mut known = self.0.borrow_mut();
        let counted = known.entry(upstream.id).or_insert_with(|| counts(upstream));
        for changed in ChangedList::ALL {
            if kinds & 1 << changed as u8 != 0 {
                upstream.changes.note(changed);
                counted[changed as usize] += 1;
            }
        }
    }

    fn doubt_all(&self, state: &State) {
        for upstream in &state.snapshot.load().upstreams {
            self.hear(upstream, u8::MAX);
        }
    }
}

fn counts(upstream: &Upstream) -> [u64; 3] {
    ChangedList::ALL.map(|changed| upstream.changes.count(changed))
}
