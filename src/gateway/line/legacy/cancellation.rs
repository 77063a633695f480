//! What becomes of `notifications/cancelled`: its upstream is told by the id that it knows, once the call was sent to it.
//!
//! The client may have sent it through another gateway than its call, which told this one ([`run`]).
//!
//! Deliberately not here: whether the call ends. Its upstream answers it or not, and the client ignores what it answers.

use std::rc::Rc;

use bytes::Bytes;

use super::messages::{room_for, send, send_if_room, upstream_of};
use crate::context::worker::Worker;
use crate::session::UpstreamSession;
use crate::session::cancellations::Cancellation;
use crate::session::outbox::{Addressee, InFlightCall};
use crate::upstream::LateWord;
use protocol::error::Error;

/// Cancels what clients have cancelled at other gateways and is in flight here, for as long as the worker runs.
pub(crate) async fn run(worker: &Rc<Worker>) {
    loop {
        let cancelled = worker.state.sessions.next_cancelled().await;
        if let Err(error) = cancel(worker, cancelled) {
            tracing::debug!(%error, "a cancellation from another gateway is dropped");
        }
    }
}

/// Cancels a call. One that has not been sent yet is cancelled when it has; one that is over meanwhile needs no end. Gives
/// back what is not in flight here.
pub(crate) fn cancel(worker: &Rc<Worker>, cancelled: Cancellation) -> Result<Option<Cancellation>, Error> {
    let outbox = worker.state.sessions.outbox_if_any(cancelled.session);
    let call = outbox.and_then(|outbox| Some((outbox.pending_call(&cancelled.id)?, outbox)));
    let Some((call, outbox)) = call else { return Ok(Some(cancelled)) };
    if let Some(InFlightCall { addressee: Addressee { upstream, session }, sent_id }) = call.in_flight
        && call.sending.is_behind()
    {
        if tell_retired(worker, &session, &sent_id) {
            return Ok(None);
        }
        let view = worker.view();
        let Some(upstream) = upstream_of(&view, &upstream) else { return Ok(None) };
        let note = note(&String::from_utf8_lossy(&sent_id), &cancelled.reason);
        let room = room_for(worker, &outbox, upstream, note.len())?;
        send(worker, (&outbox, room), upstream, session, note);
        return Ok(None);
    }
    // One is enough, which also bounds them.
    if !outbox.withdraw(&cancelled.id) {
        return Ok(None);
    }
    let sender = Rc::clone(worker);
    worker.client.tasks.spawn_unboxed(async move {
        if !call.sending.behind().await {
            return;
        }
        let Some(InFlightCall { addressee, sent_id }) = outbox.working_on(&cancelled.id) else { return };
        if tell_retired(&sender, &addressee.session, &sent_id) {
            return;
        }
        if let Some(upstream) = upstream_of(&sender.view(), &addressee.upstream) {
            let note = note(&String::from_utf8_lossy(&sent_id), &cancelled.reason);
            send_if_room(&sender, &outbox, upstream, addressee.session, note);
        }
    });
    Ok(None)
}

/// Cancels a call of an upstream that is no longer configured as it was. False: it is of none.
fn tell_retired(worker: &Worker, session: &UpstreamSession, sent_id: &[u8]) -> bool {
    worker.state.retired.tell(&worker.client, session.id.as_ref(), LateWord::Cancelled(sent_id))
}

/// `notifications/cancelled` with nothing in it but the request and the reason.
pub(crate) fn note(id: &str, reason: &str) -> Bytes {
    let reason = if reason.is_empty() { String::new() } else { format!(r#","reason":{reason}"#) };
    let params = format!(r#"{{"requestId":{id}{reason}}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#).into()
}
