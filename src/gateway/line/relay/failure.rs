//! A reply that is no success: an error of JSON-RPC is relayed if it answers the request, anything else becomes one of
//! our own.
//!
//! Refusals, also those that come as successes, tell that the lists which clients have, or the eras, may be out of date.

use std::rc::Rc;
use std::sync::LazyLock;

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use memchr::memmem::{self, Finder};

use super::{BodyGuard, RelayPlan, ReplyBody};
use crate::clock;
use crate::context::worker::Worker;
use crate::line::response::ClientResponse;
use crate::upstream::Upstream;
use crate::upstream::body::collect;
use crate::upstream::exchange::{Reply, ReplyHead};
use crate::upstream::own_id;
use crate::upstream::pool::{self, ConnectionLease};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::{Error, UpstreamError};
use protocol::media::Media;
use protocol::splice::{Segments, splice};
use protocol::version::Era;

/// In how much of a reply a refusal is looked for: they are short.
const REFUSAL_BYTES_MAX: usize = 1024;

/// How much of a failed reply is read to see whether it is a JSON-RPC error.
const FAILED_BYTES_MAX: usize = 64 * 1024;

/// An upstream's refusal. Its own JSON-RPC error is relayed with its status if it answers our request.
pub(super) async fn relay_failure(
    worker: &Rc<Worker>,
    reply: &mut Reply,
    media: Media,
    plan: &mut RelayPlan<'_>,
) -> Result<ClientResponse, Error> {
    let Reply { head, body, lease, .. } = reply;
    let status = head.status;
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        return Err(plan.upstream.access.refusal().into());
    }
    let (era, upstream, retry_after) = (plan.era(), plan.upstream, head.fields.retry_after_s());
    if media == Media::Json
        && (status.is_client_error() || status.is_server_error())
        && let held = worker.state.buffered.open(plan.payer())
        && let Some(Ok((whole, _))) =
            plan.patiently(collect(body, FAILED_BYTES_MAX, plan.deadline, held)).await
        && let Some(response) = relay_error(worker, head, lease.take(), &whole, plan)?
    {
        return Ok(response);
    }
    // A server of this era that has its senses answers otherwise.
    if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS && era == Era::Modern {
        upstream.facts.doubt();
    }
    Err(match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            UpstreamError::Busy { status, retry_after_s: retry_after }
        }
        // Either it does not know the session, or it does not like this request: whoever sent it finds out.
        StatusCode::NOT_FOUND if era == Era::Legacy => UpstreamError::SessionLost,
        StatusCode::BAD_REQUEST if era == Era::Legacy => UpstreamError::SessionDoubted,
        _ => head.fault(),
    }
    .into())
}

/// A refusal in JSON, where it is an error of JSON-RPC that answers the request.
fn relay_error(
    worker: &Worker,
    head: &ReplyHead,
    mut lease: Option<ConnectionLease>,
    whole: &Bytes,
    plan: &mut RelayPlan<'_>,
) -> Result<Option<ClientResponse>, Error> {
    let (status, era) = (head.status, plan.era());
    let envelope = Envelope::parse(&mut worker.scratch.borrow_mut(), whole, worker.json_depth_max());
    let answer = envelope.ok().filter(|envelope| envelope.kind == MessageKind::Response);
    let answered = answer.and_then(|envelope| envelope.id);
    let answers_us = answered.clone().is_some_and(|id| &whole[id] == plan.sent_id());
    // Servers write ids of all kinds where they did not look at the request, but none of another request.
    if !answers_us && answered.clone().is_some_and(|id| own_id::is_own(&whole[id])) {
        return Err(plan.mismatch(lease.as_mut()).into());
    }
    if status.is_server_error()
        && let Some(lease) = &mut lease
    {
        // An error of JSON-RPC is an answer, whatever its status.
        lease.in_flight.decide(answers_us || status == StatusCode::SERVICE_UNAVAILABLE);
    }
    pool::give_back(lease, clock::now());
    note_refusal(plan.upstream, whole);
    // Servers of this era answer what they do not understand with codes of this era.
    let is_of_era =
        ["-32602", "-32020", "-32021"].iter().any(|code| memmem::find(whole, code.as_bytes()).is_some());
    if era == Era::Modern && status == StatusCode::BAD_REQUEST && !is_of_era {
        plan.upstream.facts.doubt();
    }
    if !answers_us {
        return Ok(None);
    }
    let retry_after = head.fields.retry_after().cloned();
    let id = plan.own_id.zip(answered).map(|(own_id, span)| own_id.restored(span));
    let mapped = plan.mapper.take().and_then(|mapper| {
        mapper.map_with(&mut worker.scratch.borrow_mut(), whole, id.clone()).ok().flatten()
    });
    let segments = mapped.unwrap_or_else(|| match id {
        Some(id) => splice(whole, &[id]),
        None => Segments::from(whole.clone()),
    });
    let mut response =
        ClientResponse::new(head.status, Media::Json, ReplyBody::Whole(segments, BodyGuard::default()));
    if era == Era::Legacy {
        response.status = StatusCode::OK;
    }
    response.headers_mut().extend(retry_after.map(|seconds| (RETRY_AFTER, seconds)));
    Ok(Some(response))
}

/// Looks for the error codes that a client with an old list gets: unknown names and parameters, other headers.
pub(super) fn note_refusal(upstream: &Upstream, reply: &[u8]) {
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"error\""));
    // Nearly every reply holds none, and one look at it tells.
    if reply.len() > REFUSAL_BYTES_MAX || ERROR.find(reply).is_none() {
        return;
    }
    let holds = |code: &str| memmem::find(reply, code.as_bytes()).is_some();
    if holds("-32602") || holds("-32020") {
        upstream.changes.note_refusal(clock::now());
    }
    if holds("-32022") {
        upstream.facts.doubt();
    }
}
