//! What the gateway itself answers to requests of upstreams.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::messages;
use crate::context::in_session::InSession;
use crate::context::worker::Worker;
use crate::session::outbox::OutboundMessage;
use protocol::json::quote;
use protocol::progress;
use protocol::server_request::NotAsked;

const NO_CLIENT: NotAsked = NotAsked { code: -32000, message: "the client is not reachable" };
/// As the official SDKs call a request that timed out.
pub(super) const TOO_LATE: NotAsked = NotAsked { code: -32001, message: "the client did not answer in time" };

/// Answers a ping. `id` is the literal of the upstream's own id.
pub(super) fn pong(worker: &Rc<Worker>, session: &InSession, id: &[u8]) {
    let id = String::from_utf8_lossy(id);
    answer(worker, session, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
}

/// Answers a request with an error. `id` is the literal of the upstream's own id.
pub(super) fn refuse(worker: &Rc<Worker>, session: &InSession, id: &[u8], why: NotAsked) {
    let id = String::from_utf8_lossy(id);
    let NotAsked { code, message } = why;
    let message = quote(message);
    answer(
        worker,
        session,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#),
    );
}

/// Takes a request back that could not be put to the client, and tells its upstream.
pub(crate) fn undeliverable(worker: &Rc<Worker>, session: &InSession, public_id: &str) {
    if let Some(question) = session.outbox.take_question(public_id) {
        session.upstream.series.questions.refused.inc();
        refuse(worker, session, question.inner_id.as_bytes(), NO_CLIENT);
    }
}

/// Tells the client on the stream of its session what it cannot be told in the reply. `question`: the public id of what it is
/// asked there.
pub(crate) fn say_beside(worker: &Rc<Worker>, session: &InSession, message: Bytes, question: Option<&str>) {
    // A client that does not read its stream fast enough does not lose it for a note, and progress is of no use later.
    let is_lost =
        || session.outbox.is_reader_behind() || progress::is_usual(&message) && !session.outbox.has_client();
    if question.is_none() && is_lost() {
        session.upstream.series.unroutable.inc();
        return;
    }
    let upstream = session.upstream.config.name.as_str().into();
    let parcel =
        OutboundMessage { upstream, event_id: None, data: message, question: question.map(Box::from) };
    let delivered = session.outbox.deliver(parcel);
    if let (Err(_), Some(question)) = (delivered, question) {
        undeliverable(worker, session, question);
    }
}

fn answer(worker: &Rc<Worker>, session: &InSession, message: String) {
    messages::send_if_room(
        worker,
        &session.outbox,
        &session.upstream,
        Arc::clone(&session.upstream_session),
        message.into(),
    );
}
