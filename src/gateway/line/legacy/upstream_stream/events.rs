//! The events of one stream, and what becomes of each.

use std::rc::Rc;

use bytes::Bytes;

use crate::context::in_session::InSession;
use crate::context::worker::Worker;
use crate::line::legacy::answers;
use crate::line::legacy::notification_routing::{self, NotificationRouting};
use crate::mapper::Mapper;
use crate::session::outbox::OutboundMessage;
use crate::upstream::get_stream;
use protocol::error::UpstreamError;
use protocol::json::quote;
use protocol::method::Method;
use protocol::route::Style;
use protocol::sse::Event;

/// A shorter message is copied out of the chunk it came in, which it would keep in memory while it waits.
const COPIED_BYTES_MAX: usize = 4096;

pub(super) enum EventsEnd {
    Closed,
    Failed(UpstreamError),
    /// What came after this event is wanted once more.
    Resumed(Bytes),
    /// Its messages belong nowhere any more.
    Unknown,
}

/// Gives an event to the client's stream. Returns the id to go on after.
pub(super) async fn hand_on(
    worker: &Rc<Worker>,
    session: &InSession,
    event: Event,
) -> Result<Option<Bytes>, UpstreamError> {
    let id = get_stream::id(&event);
    let Some(data) = get_stream::message(event) else { return Ok(id) };
    if data.is_empty() {
        if id.is_some() && session.outbox.has_client() {
            let _ = session.outbox.deliver(parcel(session, id.clone(), data, None));
        }
        return Ok(id);
    }
    let mut mapper = mapper(worker, session);
    if let Some(mapper) = mapper.as_mut().filter(|mapper| mapper.is_work(&data)) {
        // The next event waits for it, and other clients do not.
        let found = Box::pin(mapper.find_apart(&worker.client.tasks, &data)).await;
        mapper.finding(found);
    }
    let (data, question) = match notification_routing::to_client(worker, session, mapper.as_ref(), &data)? {
        NotificationRouting::Withheld => return Ok(id),
        NotificationRouting::AsItIs => (data, None),
        NotificationRouting::Mapped { message, question } => (message.to_bytes(), question),
    };
    let is_small = data.len() <= COPIED_BYTES_MAX;
    let data = if is_small { Bytes::copy_from_slice(&data) } else { data };
    let delivered = session.outbox.deliver(parcel(session, id.clone(), data, question.clone()));
    if let (Err(undelivered), Some(public_id)) = (delivered, question) {
        tracing::debug!(upstream = session.upstream.config.name, %undelivered, "a client cannot be asked");
        answers::undeliverable(worker, session, &public_id);
    }
    Ok(id)
}

/// Tells the client that a resource has changed. `uri` as the upstream spells it.
pub(super) fn announce_update(worker: &Rc<Worker>, session: &InSession, uri: &str) {
    if !notification_routing::may_use(session, uri) {
        return;
    }
    let uri = quote(uri);
    let message = Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{uri}}}}}"#
    ));
    let mapper = mapper(worker, session);
    let public = mapper.and_then(|mapper| mapper.map(&mut worker.scratch.borrow_mut(), &message).ok()?);
    let data = public.map_or(message, |public| public.to_bytes());
    // Where there is no room there is no client that reads.
    let _ = session.outbox.deliver(parcel(session, None, data, None));
}

fn parcel(
    session: &InSession,
    event_id: Option<Bytes>,
    data: Bytes,
    question: Option<Box<str>>,
) -> OutboundMessage {
    OutboundMessage { upstream: session.upstream.config.name.as_str().into(), event_id, data, question }
}

fn mapper(worker: &Worker, session: &InSession) -> Option<Mapper> {
    let InSession { endpoint, member, .. } = session;
    let depth_max = worker.json_depth_max();
    (endpoint.naming.style() != Style::Transparent)
        .then(|| Mapper::new(Rc::clone(endpoint), *member, Method::Other, depth_max))
        .map(|mapper| mapper.for_owner(&worker.state.sessions, &session.session.grant.principal))
}
