//! What becomes of a session whose loss was noticed on its stream.

use std::rc::Rc;
use std::sync::Arc;

use http::HeaderMap;
use tokio::time::sleep;

use super::{PAUSE_MAX, RETRY, UpstreamStream, ensure, events, in_session, wait_for_room};
use crate::context::worker::{View, Worker};
use crate::line::legacy::{self, SessionHolder};
use crate::session::outbox::SessionOutbox;
use crate::session::{Session, UpstreamSession};
use crate::upstream::Upstream;
use net::jitter::jittered;
use protocol::error::Error;

/// The upstream forgot the session. Who waits for what it says gets another one.
pub(super) async fn take(listening: UpstreamStream) {
    let UpstreamStream { worker, upstream, upstream_session, session, outbox, claim, _place: place, .. } =
        listening;
    // The next stream needs the place.
    drop((claim, place));
    let Some(lost) = upstream_session.upgrade() else { return };
    let view = worker.view();
    let holder = SessionHolder::Client(session.clone(), lost.shown.get());
    legacy::lose(&worker, &view, &upstream, &holder, &lost);
    drop(lost);
    if upstream.is_irreplaceable() {
        legacy::end(&worker, &view, &session).await;
        return;
    }
    drop(view);
    let reopening = reopen(&worker, &upstream, &holder, &session, &outbox);
    tokio::select! {
        () = worker.state.drain.closing() => {}
        () = reopening => {}
    }
}

/// Has the session with an upstream opened again, for a client that comes back to hear of what it subscribed to. If that
/// cannot be done now, the next call does it. `shown`: what the client shows now of the headers that are handed on.
pub(crate) fn come_back(
    worker: &Rc<Worker>,
    upstream: &Arc<Upstream>,
    session: &Session,
    outbox: &Arc<SessionOutbox>,
    shown: Option<Arc<HeaderMap>>,
) {
    let (owner, upstream, session, outbox) =
        (Rc::clone(worker), Arc::clone(upstream), session.clone(), Arc::clone(outbox));
    worker.client.tasks.spawn(async move {
        let view = owner.view();
        let holder = SessionHolder::Client(session.clone(), shown);
        if let Ok(opened) = legacy::upstream_session(&owner, &view, &upstream, &holder, None).await
            && let Some(session) = in_session(&view, &upstream, &session, &outbox, opened)
        {
            ensure(&owner, &session, None);
        }
    });
}

/// Tells a client that what it subscribed to may have changed while no session was there to notice it.
pub(crate) fn announce_updates(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    session: &Session,
    opened: &Arc<UpstreamSession>,
    uris: Vec<Box<str>>,
) {
    let outbox = worker.state.sessions.outbox_if_any(session.grant.id).filter(|_| !uris.is_empty());
    let found = outbox.and_then(|outbox| in_session(view, upstream, session, &outbox, Arc::clone(opened)));
    let Some(session) = found else { return };
    let owner = Rc::clone(worker);
    worker.client.tasks.spawn(async move {
        for uri in uris {
            wait_for_room(&session.outbox).await;
            events::announce_update(&owner, &session, &uri);
        }
    });
}

async fn reopen(
    worker: &Rc<Worker>,
    upstream: &Arc<Upstream>,
    holder: &SessionHolder,
    session: &Session,
    outbox: &Arc<SessionOutbox>,
) {
    let mut pause = RETRY;
    loop {
        let key = &upstream.session_key;
        if !outbox.has_client() && !worker.state.sessions.is_subscribed(session.grant.id, key) {
            return;
        }
        let view = worker.view();
        match legacy::upstream_session(worker, &view, upstream, holder, None).await {
            Ok(opened) => {
                if let Some(session) = in_session(&view, upstream, session, outbox, opened) {
                    ensure(worker, &session, None);
                }
                return;
            }
            // The client's session is over.
            Err(Error::Client(_)) => return,
            Err(error) => {
                tracing::debug!(upstream = upstream.config.name, %error, "a lost session is not yet back");
            }
        }
        drop(view);
        sleep(jittered(pause, 1.0..1.25)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
