//! A reply in JSON: collected where names in it are mapped, else handed on as it comes, once it is known whose it is.
//!
//! Invariant: nothing is handed on of a reply that may answer another request, where the gateway can tell.

use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::body::PIECE_BYTES_MAX;
use super::client_attachment::ClientAttachment;
use super::failure::note_refusal;
use super::stream::RelayedReply;
use super::{BodyGuard, NewTask, RelayPlan, ReplyBody};
use crate::clock;
use crate::context::worker::Worker;
use crate::line::response::ClientResponse;
use crate::mapper::{NotMapped, is_same_text};
use crate::upstream::body::{collect, no_memory};
use crate::upstream::exchange::Reply;
use crate::upstream::incoming::Incoming;
use crate::upstream::own_id::OwnId;
use crate::upstream::pool::{self, ConnectionLease};
use net::chunks::Chunks;
use protocol::answer_id::{AnswerId, Verdict};
use protocol::envelope::Envelope;
use protocol::error::{Error, UpstreamError};
use protocol::json::{Scratch, Span};
use protocol::media::Media;
use protocol::splice::{Segments, splice};

/// A JSON reply that has begun: the pieces that are already read, and what is looked at in those that come.
pub(super) struct JsonStream {
    /// The pieces that are already read.
    first: Segments,
    /// What is counted of them until they are with the client.
    _held: BodyGuard,
    /// What is checked of the reply, and the literal of the id it must have.
    check: Option<(AnswerId, Box<[u8]>)>,
    /// Whose the task is that it may make.
    new_task: Option<Box<NewTask>>,
}

impl JsonStream {
    /// `check`: what the first pieces said of whose it is, where that is checked.
    pub(super) fn new(
        first: Segments,
        check: Option<AnswerId>,
        held: BodyGuard,
        plan: &mut RelayPlan<'_>,
    ) -> Self {
        let check = check.map(|check| (check, plan.sent_id().into()));
        let mut new_task = plan.new_task.take();
        if let Some(new_task) = &mut new_task {
            first.iter().for_each(|piece| new_task.push_json(piece));
        }
        Self { first, _held: held, check, new_task }
    }

    /// Looks at the next piece. False: the reply answers another request.
    pub(super) fn push(&mut self, piece: &Bytes) -> bool {
        if let Some((check, id)) = &mut self.check {
            check.push(piece, id);
            if check.is_others() {
                return false;
            }
        }
        if let Some(new_task) = &mut self.new_task {
            new_task.push_json(piece);
        }
        true
    }

    /// The next of the pieces that were already read.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.first.pop_at_most(PIECE_BYTES_MAX)
    }

    /// How many bytes of those pieces are left.
    pub(super) fn len(&self) -> u64 {
        self.first.len()
    }

    /// All of it has come.
    pub(super) fn end(&mut self, scratch: &mut Scratch) {
        if let Some(mut new_task) = self.new_task.take() {
            new_task.end(scratch);
        }
    }
}

pub(super) async fn relay_json(
    worker: &Rc<Worker>,
    reply: &mut Reply,
    plan: &mut RelayPlan<'_>,
) -> Result<ClientResponse, Error> {
    if plan.mapper.is_some() {
        return relay_mapped(worker, reply, plan).await;
    }
    let Reply { head, body, lease, arrived, .. } = reply;
    let was_there = matches!(body, Incoming::Whole(_));
    let first = next_piece(body, lease.as_mut(), plan).await?.unwrap_or_default();
    if !was_there {
        *arrived = clock::now();
    }
    if plan.is_checked() {
        let is_whole = body.is_end_stream();
        let check = looked_at(&first, is_whole, plan.sent_id());
        // Nearly every reply says whose it is with its first piece.
        if check.is_ours() || check.is_others() || is_whole {
            if makes_task(worker, reply, (&first, &check), plan) {
                note_task(worker, plan.new_task.as_deref(), &first).await;
            }
            return hand_on_checked(worker, reply, (first, check, BodyGuard::default()), plan);
        }
        return Box::pin(relay_held(worker, reply, (first, check), plan)).await;
    }
    note_refusal(plan.upstream, &first);
    if first.is_empty() && body.is_end_stream() {
        return Err(UpstreamError::Nonsense.into());
    }
    let body = if body.is_end_stream() {
        note_task(worker, plan.new_task.as_deref(), &first).await;
        pool::give_back(lease.take(), *arrived);
        ReplyBody::Whole(Segments::from(first), BodyGuard::default())
    } else {
        let first = JsonStream::new(first.into(), None, BodyGuard::default(), plan);
        let rest = (std::mem::take(body), lease.take());
        ReplyBody::Stream(ClientAttachment::new(RelayedReply::json(worker, first, rest, plan)))
    };
    Ok(ClientResponse::new(head.status, Media::Json, body))
}

/// A JSON reply in which names are mapped, once all of it is there.
async fn relay_mapped(
    worker: &Rc<Worker>,
    reply: &mut Reply,
    plan: &mut RelayPlan<'_>,
) -> Result<ClientResponse, Error> {
    let Reply { head, body, lease, .. } = reply;
    let reply_bytes_max = worker.limits().reply_bytes_max;
    let held = worker.state.buffered.open(plan.payer());
    // Handed on by reference: what reads a reply is large.
    let collecting = pin!(collect(body, reply_bytes_max, plan.deadline, held));
    let collected = plan.patiently(collecting).await;
    let collected = collected.unwrap_or(Err(UpstreamError::TimedOut.into()));
    let (whole, reservation) = collected.inspect_err(|error| {
        if let Error::Upstream(error) = error {
            pool::note_error(lease.as_mut(), error);
        }
    })?;
    note_refusal(plan.upstream, &whole);
    note_task(worker, plan.new_task.as_deref(), &whole).await;
    let ids = (plan.sent_id(), plan.own_id);
    let mapped = match &plan.mapper {
        Some(mapper) if mapper.is_work(&whole) => {
            let (id, own) = (Bytes::copy_from_slice(ids.0), ids.1.map(OwnId::kept));
            Box::pin(mapper.map_reply_apart(&worker.client.tasks, whole.clone(), id, own)).await
        }
        Some(mapper) => mapper.map_reply(&mut worker.scratch.borrow_mut(), &whole, ids),
        None => Ok(None),
    };
    let mapped = mapped.map_err(|error| match error {
        NotMapped::OtherId => plan.mismatch(lease.as_mut()),
        NotMapped::Json(_) => UpstreamError::Nonsense,
    })?;
    pool::give_back(lease.take(), clock::now());
    let segments = mapped.unwrap_or_else(|| Segments::from(whole));
    let body = ReplyBody::Whole(segments, BodyGuard::new(reservation));
    Ok(ClientResponse::new(head.status, Media::Json, body))
}

/// What the first piece of a reply, or all of it, says of whose it is.
fn looked_at(first: &[u8], is_whole: bool, id: &[u8]) -> AnswerId {
    if is_whole {
        return AnswerId::of(first, id);
    }
    let mut check = AnswerId::default();
    check.push(first, id);
    check
}

/// The next piece of a JSON reply; `None` at its end.
async fn next_piece(
    body: &mut Incoming,
    lease: Option<&mut ConnectionLease>,
    plan: &RelayPlan<'_>,
) -> Result<Option<Bytes>, UpstreamError> {
    if let Incoming::Whole(whole) = body {
        return Ok(whole.take());
    }
    match plan.patiently(body.frame()).await {
        Some(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(None) => Ok(None),
        broken => {
            let error = if broken.is_none() { UpstreamError::TimedOut } else { UpstreamError::Reset };
            pool::note_error(lease, &error);
            Err(error)
        }
    }
}

/// A JSON reply of which nothing is handed on before its id is known to be the request's: a connection that is out of
/// step must not give one client's reply to another. Servers that write the id last have their replies held until then.
async fn relay_held(
    worker: &Rc<Worker>,
    reply: &mut Reply,
    (first, mut check): (Bytes, AnswerId),
    plan: &mut RelayPlan<'_>,
) -> Result<ClientResponse, Error> {
    let Reply { body, lease, .. } = reply;
    let (bytes_max, mut held) = (worker.limits().reply_bytes_max, worker.state.buffered.open(plan.payer()));
    let mut pieces = Chunks::default();
    pieces.push(first, 0);
    while !check.is_ours() && !check.is_others() && !body.is_end_stream() {
        let Some(piece) = next_piece(body, lease.as_mut(), plan).await? else { break };
        let bytes = pieces.len() + piece.len();
        if bytes > bytes_max {
            return Err(UpstreamError::TooLarge.into());
        }
        held.grow_to(bytes).map_err(no_memory)?;
        check.push(&piece, plan.sent_id());
        pieces.push(piece, 0);
    }
    reply.arrived = clock::now();
    let begun = pieces.into_bytes();
    if makes_task(worker, reply, (&begun, &check), plan) {
        note_task(worker, plan.new_task.as_deref(), &begun).await;
    }
    hand_on_checked(worker, reply, (begun, check, BodyGuard::new(held)), plan)
}

/// Whether a reply may make a task, is complete, and is the request's.
fn makes_task(
    worker: &Worker,
    reply: &Reply,
    (whole, check): (&Bytes, &AnswerId),
    plan: &RelayPlan<'_>,
) -> bool {
    let is_whole = plan.new_task.is_some() && reply.body.is_end_stream();
    is_whole && id_span(worker, whole, check, plan.sent_id()).is_some()
}

/// Hands on a reply that has begun with these bytes, if it is the request's.
fn hand_on_checked(
    worker: &Rc<Worker>,
    reply: &mut Reply,
    (begun, check, held): (Bytes, AnswerId, BodyGuard),
    plan: &mut RelayPlan<'_>,
) -> Result<ClientResponse, Error> {
    let Reply { head, body, lease, arrived, .. } = reply;
    note_refusal(plan.upstream, &begun);
    let Some(span) = id_span(worker, &begun, &check, plan.sent_id()) else {
        // What has no id at all is no answer to anything.
        let is_answer = check.is_others() || check.verdict() == Verdict::Unclear;
        let error = if is_answer { plan.mismatch(lease.as_mut()) } else { UpstreamError::Nonsense };
        return Err(error.into());
    };
    let pieces = match plan.own_id {
        Some(own_id) => splice(&begun, &[own_id.restored(span)]),
        None => Segments::from(begun),
    };
    let body = if body.is_end_stream() {
        pool::give_back(lease.take(), *arrived);
        ReplyBody::Whole(pieces, held)
    } else {
        let first = JsonStream::new(pieces, Some(check), held, plan);
        let rest = (std::mem::take(body), lease.take());
        ReplyBody::Stream(ClientAttachment::new(RelayedReply::json(worker, first, rest, plan)))
    };
    Ok(ClientResponse::new(head.status, Media::Json, body))
}

/// Where the expected id stands in a message, or in as much of it as was needed to find that out. `None`: it answers
/// another request.
fn id_span(worker: &Worker, message: &[u8], check: &AnswerId, sent_id: &[u8]) -> Option<Span> {
    match check.verdict() {
        Verdict::Ours => Some(check.span(sent_id)),
        Verdict::Others => None,
        Verdict::Unclear => {
            let depth_max = worker.json_depth_max();
            let envelope = Envelope::parse(&mut worker.scratch.borrow_mut(), message, depth_max).ok()?;
            let span = envelope.id?;
            let id = message.get(span.clone())?;
            (id == sent_id || is_same_text(id, sent_id)).then_some(span)
        }
    }
}

/// Remembers whose the task is that a reply makes, before the reply is handed on.
async fn note_task(worker: &Worker, new_task: Option<&NewTask>, reply: &[u8]) {
    let Some(new_task) = new_task else { return };
    let is_new = new_task.read(&mut worker.scratch.borrow_mut(), reply);
    if is_new {
        Box::pin(new_task.shared()).await;
    }
}
