//! Answers of clients that upstreams wait for, and the end of the upstreams' patience.
//!
//! Each worker looks once a second through what its own streams have asked; what was answered meanwhile is forgotten.

use std::rc::Rc;
use std::sync::Arc;

use super::answers;
use crate::clock;
use crate::context::in_session::{InSession, PendingAnswer};
use crate::context::worker::Worker;
use crate::session::outbox::OutboundMessage;
use protocol::json::quote;

pub(super) fn note(worker: &Worker, session: &InSession, public_id: &str) {
    let due = clock::now() + session.upstream.config.client_response_timeout;
    worker.pending_answers.borrow_mut().push(PendingAnswer {
        public_id: public_id.into(),
        due,
        session: session.clone(),
    });
}

/// Gives up what is due: the upstream is told, and so is the client where it listens.
pub(crate) fn sweep(worker: &Rc<Worker>) {
    let now = clock::now();
    let mut due = Vec::new();
    worker.pending_answers.borrow_mut().retain_mut(|pending| {
        let is_waited_for = pending.session.outbox.has_question(&pending.public_id);
        if is_waited_for && pending.due <= now {
            due.push((std::mem::take(&mut pending.public_id), pending.session.clone()));
        }
        is_waited_for && pending.due > now
    });
    for (public_id, session) in due {
        let Some(question) = session.outbox.take_question(&public_id) else { continue };
        session.upstream.series.questions.expired.inc();
        answers::refuse(worker, &session, question.inner_id.as_bytes(), answers::TOO_LATE);
        if session.outbox.has_client() {
            let id = quote(&public_id);
            let note = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"no answer in time"}}}}"#
            );
            let message = OutboundMessage {
                upstream: Arc::from(""),
                event_id: None,
                data: note.into(),
                question: None,
            };
            // Without room for it, the client's answer goes nowhere.
            let _ = session.outbox.deliver(message);
        }
    }
}
