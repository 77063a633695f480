//! Opening a session that takes a child process where as many run as may: the process of an idle session makes room.
//!
//! Looked at are sessions that have a process for themselves, and whose servers keep nothing that cannot be opened again.
//! Which of them goes is decided in [`session::eviction`](crate::session::eviction).

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{SessionHolder, close};
use crate::clock;
use crate::context::worker::{View, Worker};
use crate::session::eviction::ProcessUse;
use crate::session::{ClosedSession, UpstreamSession};
use crate::upstream::Upstream;
use crate::upstream::initialize::{self, InitializeError, InitializedSession};
use crate::upstream::stdio::Children;
use protocol::error::UpstreamError;

/// How often it is tried whether there is room.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How many sessions make room for one: others may take what they leave.
const OUSTED_MAX: usize = 4;

/// Opens a session; where it takes a process, room is made for that until `deadline`.
pub(super) async fn open(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    holder: &SessionHolder,
    deadline: Instant,
) -> Result<InitializedSession, InitializeError> {
    let asker = worker.asker(view, holder.owner().payer());
    let mut ousted = 0;
    // A process may take its time to end; no other is ended for that.
    let mut patience = None;
    loop {
        let opened = initialize::open(&asker, upstream, holder.offer(), deadline).await;
        let is_full = matches!(opened, Err(InitializeError::Upstream(UpstreamError::TooManyChildren)));
        let now = clock::now();
        if !is_full || now >= deadline {
            return opened;
        }
        if patience.is_none_or(|patience| now >= patience) {
            if ousted == OUSTED_MAX {
                return opened;
            }
            let Some((closed, stop_time_max)) = oust(worker, view, upstream, holder).await else {
                return opened;
            };
            ousted += 1;
            patience = Some(now + stop_time_max + RETRY_INTERVAL);
            close(worker, view, vec![closed]);
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// Takes the session away whose process makes room, and says how long that may take. `None`: there is none.
async fn oust(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    holder: &SessionHolder,
) -> Option<(ClosedSession, Duration)> {
    let is_full = upstream.children()?.is_full();
    // Else it is all upstreams together that have as many as they may.
    let is_meant = |other: &Upstream| !is_full || other.session_key == upstream.session_key;
    let meant = view.snapshot.upstreams.iter().filter(|other| is_meant(other) && !other.is_irreplaceable());
    let processes: HashMap<Arc<str>, Arc<Children>> = meant
        .filter_map(|other| Some((Arc::clone(&other.session_key), Arc::clone(other.children()?))))
        .filter(|(_, children)| children.is_for_one_session())
        .collect();
    if !processes.values().any(|children| children.has_quiet()) {
        return None;
    }
    let (state, payer) = (Arc::clone(&worker.state), holder.owner().payer());
    // There may be very many sessions.
    let choose = move || {
        let process_of = |upstream: &str, session: &UpstreamSession| match processes.get(upstream) {
            Some(children) => {
                let since = session.id.as_ref().and_then(|id| children.quiet_since(id));
                since.map_or(ProcessUse::Busy, ProcessUse::Quiet)
            }
            None => ProcessUse::Other,
        };
        let closed = state.sessions.oust(payer, clock::now(), process_of)?;
        let children = processes.get(&*closed.0)?;
        children.series().evicted.inc();
        tracing::debug!(upstream = &*closed.0, "the process of an idle session makes room for another");
        Some((closed, children.stop_time_max()))
    };
    worker.client.tasks.compute(choose).await
}
