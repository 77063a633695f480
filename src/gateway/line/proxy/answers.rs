//! What clients send within a session beside requests: answers to what upstreams asked them, and notifications.
//!
//! None of it is ever refused for what it says: what belongs to nobody goes nowhere, and the client learns nothing. It is
//! refused where there is no room for it, and then nothing has happened: it may be sent again.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::context::RequestContext;
use super::{Proxy, accepted};
use crate::context::worker::View;
use crate::line::legacy::cancellation;
use crate::line::legacy::messages::{self, upstream_of};
use crate::line::message::Message;
use crate::line::response::ClientResponse;
use crate::mapper::Mapper;
use crate::session::cancellations::{Cancellation, ID_BYTES_MAX, REASON_BYTES_MAX};
use crate::session::{Session, SessionId, UpstreamSession};
use crate::upstream::{LateWord, Upstream};
use protocol::envelope::MessageKind;
use protocol::error::Error;
use protocol::foreign_id::ForeignId;
use protocol::json::{Document, Literal, Value};
use protocol::splice::{Edit, splice};

impl Proxy {
    /// What has no answer: a notification, or the client's answer to an upstream.
    pub(super) fn take_unanswered(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
    ) -> Result<ClientResponse, Error> {
        let session = cx.session()?;
        match message.envelope.kind {
            MessageKind::Notification => self.take_notification(cx, message, session)?,
            _ => self.take_answer(cx, message, session)?,
        }
        Ok(accepted())
    }

    /// The answer to a request of an upstream, which gets it with its own id.
    fn take_answer(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        session: &Session,
    ) -> Result<(), Error> {
        let Some((public_id, id)) = public_id_of(message) else { return Ok(()) };
        let Some(outbox) = self.worker.state.sessions.outbox_if_any(session.grant.id) else { return Ok(()) };
        let Some(asked) = outbox.question(&public_id) else { return Ok(()) };
        let said = LateWord::Answer { id: &asked.inner_id, message: &message.body };
        if self.worker.state.retired.tell(&self.worker.client, asked.from.session.id.as_ref(), said) {
            outbox.take_question(&public_id);
            return Ok(());
        }
        let Some((member, upstream)) = member_of(cx, &asked.from.upstream) else { return Ok(()) };
        let room = messages::room_for(&self.worker, &outbox, upstream, message.body.len())?;
        let Some(question) = outbox.take_question(&public_id) else { return Ok(()) };
        upstream.series.questions.answered.inc();
        let mut edits =
            vec![Edit { span: id.span, with: Bytes::copy_from_slice(question.inner_id.as_bytes()) }];
        edits.extend(self.names_in_answer(cx, member, message));
        edits.sort_by_key(|edit| edit.span.start);
        let body = splice(&message.body, &edits).to_bytes();
        messages::send(&self.worker, (&outbox, room), upstream, question.from.session, body);
        Ok(())
    }

    fn names_in_answer(&self, cx: &RequestContext<'_>, member: usize, message: &Message) -> Vec<Edit> {
        if cx.is_transparent() {
            return Vec::new();
        }
        let mapper = Mapper::new(Rc::clone(cx.endpoint), member, message.method, cx.depth_max())
            .for_owner(&self.worker.state.sessions, cx.call.principal().id());
        let mut scratch = self.worker.scratch.borrow_mut();
        let root = scratch.index(&message.body, cx.depth_max()).map(Document::root);
        root.map(|root| mapper.names_in_answer(root)).unwrap_or_default()
    }

    fn take_notification(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        session: &Session,
    ) -> Result<(), Error> {
        let is =
            |name| message.envelope.method.as_ref().is_some_and(|method| method.equals(&message.body, name));
        if is("notifications/cancelled") {
            self.cancel(cx, message, session)
        } else if is("notifications/progress") {
            self.progress(cx, message, session)
        } else if is("notifications/roots/list_changed")
            || (cx.is_transparent() && is_notification(message) && !is("notifications/initialized"))
        {
            self.tell_all(cx.view, session, &message.body)
        } else {
            Ok(())
        }
    }

    /// Told to every upstream that the session has a session with now, or to none.
    fn tell_all(&self, view: &View, session: &Session, message: &[u8]) -> Result<(), Error> {
        let sessions = &self.worker.state.sessions;
        let Some(outbox) = sessions.outbox_if_any(session.grant.id) else { return Ok(()) };
        let mut told = Vec::new();
        for (key, opened) in sessions.all_opened(session.grant.id) {
            if let Some(upstream) = upstream_of(view, &key) {
                told.push((
                    messages::room_for(&self.worker, &outbox, upstream, message.len())?,
                    upstream,
                    opened,
                ));
            }
        }
        // It may be a piece of a batch, or of what its connection has read.
        let message = Bytes::copy_from_slice(message);
        for (room, upstream, opened) in told {
            messages::send(&self.worker, (&outbox, room), upstream, opened, message.clone());
        }
        Ok(())
    }

    /// `notifications/cancelled`, for who works on the request. Where that is not known here, another gateway may have sent
    /// the call, and all upstreams are told: who does not know the request ignores it.
    fn cancel(&self, cx: &RequestContext<'_>, message: &Message, session: &Session) -> Result<(), Error> {
        let Some(cancelled) = self.cancelled(message, session, cx.depth_max()) else { return Ok(()) };
        let Some(cancelled) = cancellation::cancel(&self.worker, cancelled)? else { return Ok(()) };
        self.worker.state.sessions.share_cancelled(&cancelled);
        self.tell_all(cx.view, session, &cancellation::note(&cancelled.id, &cancelled.reason))
    }

    fn cancelled(&self, message: &Message, session: &Session, depth_max: usize) -> Option<Cancellation> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let params = scratch.index(&message.body, depth_max).ok()?.root().get("params")?;
        let text = |value: Value<'_>| std::str::from_utf8(value.raw()).ok().map(String::from);
        let id = text(params.get("requestId")?)
            .filter(|id| id.len() <= ID_BYTES_MAX && !id.starts_with(['{', '[']))?;
        let reason = params.get("reason").filter(|reason| reason.as_literal().is_some()).and_then(text);
        let reason = reason.filter(|reason| reason.len() <= REASON_BYTES_MAX).unwrap_or_default();
        Some(Cancellation { session: session.grant.id, id, reason })
    }

    /// `notifications/progress` on an upstream's request: only the session that gave the token hears of it.
    fn progress(&self, cx: &RequestContext<'_>, message: &Message, session: &Session) -> Result<(), Error> {
        let Some((upstream, opened, note)) = self.progress_for(cx, message, session) else {
            return Ok(());
        };
        let Some(outbox) = self.worker.state.sessions.outbox_if_any(session.grant.id) else { return Ok(()) };
        let room = messages::room_for(&self.worker, &outbox, upstream, note.len())?;
        messages::send(&self.worker, (&outbox, room), upstream, opened, note);
        Ok(())
    }

    fn progress_for<'r>(
        &self,
        cx: &RequestContext<'r>,
        message: &Message,
        session: &Session,
    ) -> Option<(&'r Arc<Upstream>, Arc<UpstreamSession>, Bytes)> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let root = scratch.index(&message.body, cx.depth_max()).ok()?.root();
        let token = root.get("params")?.get("progressToken")?.as_literal()?;
        let public = token.decode(&message.body)?;
        let foreign = ForeignId::read(&public)?;
        let mut upstreams = (0..cx.endpoint.members.len()).filter_map(|member| cx.upstream(member));
        let upstream = upstreams.find(|upstream| upstream.config.name == foreign.upstream)?;
        let sessions = &self.worker.state.sessions;
        let grant = &session.grant;
        let opened = sessions
            .opened(grant.id, &upstream.session_key)
            .or_else(|| sessions.opened(SessionId::shared(grant.version), &upstream.session_key))
            .filter(|opened| opened.generation == foreign.generation)?;
        let edit = Edit { span: token.span.clone(), with: foreign.inner_literal().into() };
        Some((upstream, opened, splice(&message.body, &[edit]).to_bytes()))
    }
}

/// Whether it says that it is a notification, and not only by its want of an id: a server may do what a request asks for
/// without one, and nobody has checked whether the client may.
fn is_notification(message: &Message) -> bool {
    let method = message.envelope.method.as_ref().and_then(|method| method.decode(&message.body));
    method.is_some_and(|method| method.starts_with("notifications/"))
}

/// The id of a request that an upstream may have asked, and where it stands.
fn public_id_of(message: &Message) -> Option<(String, Literal)> {
    let span = message.envelope.id.clone()?;
    let is_text = message.body.get(span.clone())?.starts_with(b"\"");
    let id = is_text.then(|| Literal::at(span, &message.body))?;
    Some((id.decode(&message.body)?.into_owned(), id))
}

/// The upstream's place in the endpoint, and the upstream.
fn member_of<'r>(cx: &RequestContext<'r>, key: &str) -> Option<(usize, &'r Arc<Upstream>)> {
    let has_key = |upstream: &&Arc<Upstream>| *upstream.session_key == *key;
    (0..cx.endpoint.members.len()).find_map(|member| Some((member, cx.upstream(member).filter(has_key)?)))
}
