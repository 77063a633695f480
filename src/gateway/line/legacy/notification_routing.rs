//! Messages that upstreams send within a session, as the client is to see them: those on the reply to a call, and those
//! on the stream of the session.
//!
//! A request of an upstream gets an id that no other upstream can have, is remembered until it is answered, and says
//! who asks where there are several. One that the client cannot take is answered here and now. An answer that nobody
//! waits for belongs to nobody and is withheld; so is what no reader would agree on. An answer to another call of the
//! gateway, in the reply to this one, says that the connection is out of step.

use std::rc::Rc;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;

use super::{answers, pending_answers};
use crate::clock;
use crate::context::in_session::InSession;
use crate::context::worker::Worker;
use crate::mapper::{FoundNames, Mapper, is_same_text};
use crate::session::outbox::UpstreamQuestion;
use crate::session::tasks::TaskOf;
use crate::upstream::changes::ChangedList;
use crate::upstream::own_id::{self, OwnId, SessionTag};
use protocol::answer_id::{AnswerId, Verdict};
use protocol::envelope::{Envelope, MessageKind, find_id};
use protocol::error::UpstreamError;
use protocol::json::{Document, Scratch, Span, Value, quote};
use protocol::route::{self, Style};
use protocol::server_request::{NO_METHOD, NotAsked, ServerRequest};
use protocol::splice::{Edit, Segments, splice};
use protocol::translation::members::Edits;
use protocol::{foreign_id, progress, task};

const BAD_ID: NotAsked =
    NotAsked { code: -32600, message: "the id or progress token is no string or integer, or too long" };
const TOO_MANY: NotAsked = NotAsked { code: -32000, message: "the client owes too many answers" };

const RESOURCE_UPDATED: &str = "notifications/resources/updated";

#[derive(Debug)]
pub(crate) enum NotificationRouting {
    AsItIs,
    Mapped {
        message: Segments,
        /// The public id of a request.
        question: Option<Box<str>>,
    },
    Withheld,
}

/// Which answers to the client's own requests are waited for where a message came from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AwaitedAnswer<'a> {
    /// None: it is the stream of the session.
    Nothing,
    /// The one to the request that the upstream knows by this id literal, and what the client is to see for it.
    Answer(&'a [u8], Option<&'a OwnId>),
    /// One whose request is not known: the stream of a reply was taken up again.
    AnyAnswer,
}

/// Takes a message of the session's stream. `mapper`: where names must be mapped.
pub(crate) fn to_client(
    worker: &Rc<Worker>,
    session: &InSession,
    mapper: Option<&Mapper>,
    message: &Bytes,
) -> Result<NotificationRouting, UpstreamError> {
    in_reply(worker, session, mapper, message, AwaitedAnswer::Nothing, || ()).map(|(crossing, _)| crossing)
}

/// Takes a message of a reply. True with it if it is the awaited answer, and so the last one for the client; `on_answer`
/// is called before the names in it are mapped.
pub(crate) fn in_reply(
    worker: &Rc<Worker>,
    session: &InSession,
    mapper: Option<&Mapper>,
    message: &Bytes,
    awaited: AwaitedAnswer<'_>,
    on_answer: impl FnOnce(),
) -> Result<(NotificationRouting, bool), UpstreamError> {
    if progress::is_usual(message) {
        return Ok((map(worker, mapper, message, None)?, false));
    }
    let found = mapper.and_then(|mapper| mapper.found_in(message));
    let Some(seen) = look(worker, session, message, awaited, found) else {
        if matches!(awaited, AwaitedAnswer::Answer(..)) && answers_a_call(worker, message) {
            session.upstream.series.mismatched.inc();
            return Err(UpstreamError::Nonsense);
        }
        session.upstream.series.unroutable.inc();
        tracing::debug!(
            upstream = session.upstream.config.name,
            "a message that belongs to nobody is withheld"
        );
        return Ok((NotificationRouting::Withheld, false));
    };
    if let CrossingMessage::Notification(envelope) = &seen {
        // What the client asks for after this must not be from before.
        let changed = ChangedList::ALL.into_iter().find(|kind| is_method(envelope, message, kind.method()));
        if let Some(changed) = changed {
            session.upstream_session.lists.note(changed);
            session.upstream.changes.overhear_in(session.outbox.as_told(), changed);
            if session.upstream.is_child() && !is_told_now(session, changed, awaited) {
                return Ok((NotificationRouting::Withheld, false));
            }
        }
    }
    if matches!(seen, CrossingMessage::Answer(_)) {
        on_answer();
    }
    let crossing = match &seen {
        CrossingMessage::Request(envelope) => ask(worker, session, mapper, message, envelope),
        CrossingMessage::Notification(envelope)
            if is_method(envelope, message, "notifications/cancelled") =>
        {
            withdraw(worker, session, message)
        }
        CrossingMessage::Notification(envelope)
            if is_method(envelope, message, RESOURCE_UPDATED) && !may_hear_of(worker, session, message) =>
        {
            NotificationRouting::Withheld
        }
        CrossingMessage::Answer(id) => map(worker, mapper, message, id.clone())?,
        CrossingMessage::Notification(_) if !may_hear_of_tasks(worker, session, message) => {
            NotificationRouting::Withheld
        }
        CrossingMessage::Notification(_) => map(worker, mapper, message, None)?,
    };
    Ok((crossing, matches!(seen, CrossingMessage::Answer(_))))
}

/// True if the client is told now that a list of a program has changed; else its stream tells it later. A reply tells it at once
/// where the client holds no stream.
#[cold]
fn is_told_now(session: &InSession, changed: ChangedList, awaited: AwaitedAnswer<'_>) -> bool {
    let has_stream = matches!(awaited, AwaitedAnswer::Nothing) || session.outbox.has_client();
    !has_stream || session.outbox.admit_list_change(changed as usize, clock::now())
}

/// Whether a message answers a call of the gateway, whichever.
pub(super) fn answers_a_call(worker: &Worker, message: &[u8]) -> bool {
    let depth_max = worker.json_depth_max();
    let id = find_id(&mut worker.scratch.borrow_mut(), message, depth_max);
    id.and_then(|id| message.get(id)).is_some_and(own_id::is_own)
}

enum CrossingMessage {
    /// With the client's id, where it has another.
    Answer(Option<Edit>),
    Request(Box<Envelope>),
    Notification(Box<Envelope>),
}

/// `None`: an answer to something else, or nothing that all readers would read alike.
fn look(
    worker: &Worker,
    session: &InSession,
    message: &[u8],
    awaited: AwaitedAnswer<'_>,
    found: Option<&FoundNames>,
) -> Option<CrossingMessage> {
    static METHOD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"method\""));
    let may_be_asking = METHOD.find(message).is_some();
    if let AwaitedAnswer::Answer(id, own) = awaited
        && !may_be_asking
    {
        let scan = AnswerId::of(message, id);
        match scan.verdict() {
            Verdict::Ours => {
                return Some(CrossingMessage::Answer(own.map(|own| own.restored(scan.span(id)))));
            }
            Verdict::Others => return None,
            Verdict::Unclear => {}
        }
    }
    let read = || Envelope::parse(&mut worker.scratch.borrow_mut(), message, worker.json_depth_max()).ok();
    let envelope = found.map_or_else(read, FoundNames::envelope)?;
    match envelope.kind {
        MessageKind::Request => Some(CrossingMessage::Request(Box::new(envelope))),
        MessageKind::Notification => Some(CrossingMessage::Notification(Box::new(envelope))),
        MessageKind::Response => {
            let span = envelope.id?;
            let id = message.get(span.clone())?;
            match awaited {
                AwaitedAnswer::Nothing => None,
                AwaitedAnswer::Answer(awaited, own) => (id == awaited || is_same_text(id, awaited))
                    .then(|| CrossingMessage::Answer(own.map(|own| own.restored(span)))),
                AwaitedAnswer::AnyAnswer if session.upstream.is_child() => {
                    // Not what the client knows another upstream to be working on.
                    (!is_of_another(session, id)).then_some(CrossingMessage::Answer(None))
                }
                AwaitedAnswer::AnyAnswer => {
                    let tag = SessionTag::new(session.session.grant.id.0, &session.upstream.session_key);
                    let client = own_id::client_literal(id, tag)?;
                    Some(CrossingMessage::Answer(Some(Edit { span, with: client })))
                }
            }
        }
    }
}

/// Whether another upstream works on the client's request with this id literal.
fn is_of_another(session: &InSession, id: &[u8]) -> bool {
    let working = std::str::from_utf8(id).ok().and_then(|id| session.outbox.working_on(id));
    working.is_some_and(|working| working.addressee.upstream != session.upstream.session_key)
}

fn map(
    worker: &Worker,
    mapper: Option<&Mapper>,
    message: &Bytes,
    id: Option<Edit>,
) -> Result<NotificationRouting, UpstreamError> {
    let public = match (mapper, id) {
        (Some(mapper), id) => mapper.map_with(&mut worker.scratch.borrow_mut(), message, id),
        (None, id) => Ok(id.map(|id| splice(message, &[id]))),
    };
    match public {
        Ok(None) => Ok(NotificationRouting::AsItIs),
        Ok(Some(message)) => Ok(NotificationRouting::Mapped { message, question: None }),
        Err(_) => Err(UpstreamError::Nonsense),
    }
}

fn ask(
    worker: &Rc<Worker>,
    session: &InSession,
    mapper: Option<&Mapper>,
    message: &Bytes,
    envelope: &Envelope,
) -> NotificationRouting {
    let id = envelope.id.clone().and_then(|id| message.get(id)).unwrap_or_default();
    if is_method(envelope, message, "ping") {
        answers::pong(worker, session, id);
        return NotificationRouting::Withheld;
    }
    let put = put(worker, session, mapper, message, envelope).and_then(|(message, public_id)| {
        let (from, inner_id) = (session.addressee(), String::from_utf8_lossy(id).into());
        if !session.outbox.put_question(&public_id, UpstreamQuestion { from, inner_id }) {
            return Err(TOO_MANY);
        }
        Ok((message, public_id))
    });
    match put {
        Ok((message, public_id)) => {
            session.upstream.series.questions.forwarded.inc();
            pending_answers::note(worker, session, &public_id);
            NotificationRouting::Mapped { message, question: Some(public_id) }
        }
        Err(not_asked) => {
            session.upstream.series.questions.refused.inc();
            answers::refuse(worker, session, id, not_asked);
            NotificationRouting::Withheld
        }
    }
}

/// A request as the client sees it, and its public id.
fn put(
    worker: &Worker,
    session: &InSession,
    mapper: Option<&Mapper>,
    message: &Bytes,
    envelope: &Envelope,
) -> Result<(Segments, Box<str>), NotAsked> {
    let mut scratch = worker.scratch.borrow_mut();
    let root = scratch.index(message, worker.json_depth_max()).map_err(|_| BAD_ID)?.root();
    let method = envelope.method.as_ref().and_then(|method| method.decode(message)).ok_or(NO_METHOD)?;
    let asked = ServerRequest::of(&method);
    // What nobody here knows is the client's to refuse, where nothing has to be mapped.
    let is_transparent = session.endpoint.naming.style() == Style::Transparent;
    if asked.is_some() || !is_transparent {
        let mut other_scratch = Scratch::default();
        let capabilities = session.session.grant.capabilities.as_bytes();
        let depth_max = worker.json_depth_max();
        let capabilities = other_scratch.index(capabilities, depth_max).map(Document::root);
        asked.ok_or(NO_METHOD)?.check(root.get("params"), capabilities.map_err(|_| NO_METHOD)?)?;
    }
    let spell = |span: Option<Span>| {
        let literal = span.clone().and_then(|span| message.get(span)).ok_or(BAD_ID)?;
        let name = &session.upstream.config.name;
        let public = foreign_id::spell(name, session.upstream_session.generation, literal).ok_or(BAD_ID)?;
        let edit = Edit { span: span.unwrap_or_default(), with: quote(&public).into() };
        Ok::<_, NotAsked>((public, edit))
    };
    let (public_id, edit) = spell(envelope.id.clone())?;
    let mut edits = Edits::default();
    edits.extend([edit]);
    if let Some(token) = envelope.meta.as_ref().and_then(|meta| meta.progress_token.clone()) {
        edits.extend([spell(Some(token))?.1]);
    }
    edits.extend(mapper.map(|mapper| mapper.public_names(root)).unwrap_or_default());
    if let Some(asker) = session.endpoint.asker(session.member) {
        asker.name_in(root, &mut edits);
    }
    Ok((edits.apply(message), public_id.into()))
}

/// An upstream no longer wants its answer. Of requests that are not its own it has nothing to say.
fn withdraw(worker: &Worker, session: &InSession, message: &Bytes) -> NotificationRouting {
    let mut scratch = worker.scratch.borrow_mut();
    let root = scratch.index(message, worker.json_depth_max()).map(Document::root);
    let id = root.ok().and_then(|root| root.get("params")?.get("requestId"));
    let public_id = id.and_then(|id| {
        let (name, generation) = (&session.upstream.config.name, session.upstream_session.generation);
        foreign_id::spell(name, generation, id.raw())
    });
    let (Some(id), Some(public_id)) = (id, public_id) else { return NotificationRouting::Withheld };
    if session.outbox.take_question(&public_id).is_none() {
        return NotificationRouting::Withheld;
    }
    session.upstream.series.questions.cancelled.inc();
    let edit = Edit { span: id.span(), with: quote(&public_id).into() };
    NotificationRouting::Mapped { message: splice(message, &[edit]), question: None }
}

/// Whether the client may use every resource that a notification names.
fn may_hear_of(worker: &Worker, session: &InSession, message: &[u8]) -> bool {
    if session.endpoint.naming.hides_nothing() && session.endpoint.policy.is_trivial() {
        return true;
    }
    let mut scratch = worker.scratch.borrow_mut();
    let root = scratch.index(message, worker.json_depth_max()).map(Document::root);
    let params = root.ok().and_then(|root| root.get("params"));
    let uris = params.into_iter().flat_map(Value::entries).filter(|(key, _)| key.equals(message, "uri"));
    let mut uris = uris.map(|(_, uri)| uri.as_literal().and_then(|uri| uri.decode(message)));
    uris.all(|uri| uri.is_some_and(|uri| may_use(session, &uri)))
}

/// Whether every task that a notification names is the client's own. What is not is withheld: clients must not rely on
/// such notifications, and others must not hear of their tasks.
fn may_hear_of_tasks(worker: &Worker, session: &InSession, message: &[u8]) -> bool {
    if !session.endpoint.binds_tasks || !task::may_name(message) {
        return true;
    }
    let mut scratch = worker.scratch.borrow_mut();
    let root = scratch.index(message, worker.json_depth_max()).map(Document::root);
    let named = root.map(task::named_in_notification).unwrap_or_default();
    let (sessions, grant) = (&worker.state.sessions, &session.session.grant);
    named.iter().all(|id| {
        let upstream = &session.upstream.config.name;
        let task = TaskOf { endpoint: &grant.endpoint, principal: &grant.principal, upstream, id };
        let origin = sessions.task(task);
        let may_use = |tool: &str| tool.is_empty() || may_use_named(session, route::Kind::Tool, tool);
        origin.is_some_and(|origin| {
            let is_of_nobody = grant.principal.is_empty();
            (!is_of_nobody || origin.session == Some(grant.id)) && may_use(&origin.tool)
        })
    })
}

/// Whether the client may use a resource, by the upstream's spelling.
pub(super) fn may_use(session: &InSession, uri: &str) -> bool {
    may_use_named(session, route::Kind::Resource, uri)
}

fn may_use_named(session: &InSession, kind: route::Kind, inner: &str) -> bool {
    let InSession { endpoint, member, outbox, .. } = session;
    let is_public = endpoint.naming.public(kind, *member, inner).is_some();
    let class = outbox.class().filter(|class| endpoint.policy.is_of(class));
    let is_allowed = || class.is_some_and(|class| endpoint.allows(&class, kind, *member, inner));
    is_public && (endpoint.policy.is_trivial() || is_allowed())
}

fn is_method(envelope: &Envelope, message: &[u8], name: &str) -> bool {
    envelope.method.as_ref().is_some_and(|method| method.equals(message, name))
}
