//! What becomes of `notifications/cancelled`: its upstream is told by the id that it knows, once the call was sent to it.
//!
//! The client may have sent it through another gateway than its call, which told this one ([`run`]).
//!
//! A server that was told says nothing to a cancelled call, as the specification asks. So the gateway ends the call itself
//! after a while ([`GRACE`]), wherever it is sent, and whatever became of its upstream since.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::messages::{room_for, send, upstream_of, wait_for_earlier};
use crate::context::worker::Worker;
use crate::session::UpstreamSession;
use crate::session::cancellations::Cancellation;
use crate::session::outbox::{InFlightCall, SessionOutbox, UpstreamCall};
use crate::upstream::LateWord;
use protocol::error::Error;

/// How long a server that was told may still answer a cancelled call.
const GRACE: Duration = Duration::from_secs(1);

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
    let Some((UpstreamCall { in_flight, sending, .. }, outbox)) = call else { return Ok(Some(cancelled)) };
    let sent = in_flight.filter(|_| sending.is_behind());
    if let Some(sent) = &sent {
        tell(worker, &outbox, sent, &cancelled.reason)?;
    }
    // One is enough, which also bounds them.
    if !sending.withdrawal.cancel() {
        return Ok(None);
    }
    let sender = Rc::clone(worker);
    worker.client.tasks.spawn_unboxed(async move {
        let told = match sent {
            Some(told) => told,
            None if !sending.behind().await => return,
            None => {
                let Some(sent) = outbox.working_on(&cancelled.id) else { return };
                if let Err(error) = tell(&sender, &outbox, &sent, &cancelled.reason) {
                    tracing::debug!(%error, "a cancellation is dropped");
                }
                sent
            }
        };
        if let Some(upstream) = upstream_of(&sender.view(), &told.addressee.upstream).cloned() {
            wait_for_earlier(&outbox, &upstream).await;
        }
        sleep(GRACE).await;
        sending.withdrawal.give_up();
    });
    Ok(None)
}

/// Tells who works on a call that nobody wants its answer.
fn tell(
    worker: &Rc<Worker>,
    outbox: &Arc<SessionOutbox>,
    call: &InFlightCall,
    reason: &str,
) -> Result<(), Error> {
    tell_server(worker, outbox, call, reason)?;
    // Its place is others' from now on, should they need it.
    if let Some(place) = call.place.upgrade() {
        place.keep();
    }
    Ok(())
}

fn tell_server(
    worker: &Rc<Worker>,
    outbox: &Arc<SessionOutbox>,
    InFlightCall { addressee, sent_id, .. }: &InFlightCall,
    reason: &str,
) -> Result<(), Error> {
    if tell_retired(worker, &addressee.session, sent_id) {
        return Ok(());
    }
    let view = worker.view();
    // One that is no longer configured cannot be told.
    let Some(upstream) = upstream_of(&view, &addressee.upstream) else { return Ok(()) };
    let note = note(&String::from_utf8_lossy(sent_id), reason);
    let room = room_for(worker, outbox, upstream, note.len())?;
    send(worker, (outbox, room), upstream, Arc::clone(&addressee.session), note);
    Ok(())
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
