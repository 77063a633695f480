//! The events of a reply: which of them the client sees, as what, and where the stream stands.
//!
//! In the legacy era a client gets one answer and nothing after it. A stream that ends before the answer is taken up
//! again with the id of its last event, by the client where it can, else here; a stream without ids cannot be.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use prometheus::IntCounter;

use super::RelayPlan;
use super::new_task::NewTask;
use super::passing_answer::{AnswerIn, AnswerSeen, answer_in};
use super::reopen::{self, Reopening};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::context::in_session::InSession;
use crate::context::worker::Worker;
use crate::line::legacy::answers;
use crate::line::legacy::notification_routing::{self, AwaitedAnswer, NotificationRouting};
use crate::mapper::{FoundNames, Mapper};
use crate::session::outbox::GivenIds;
use crate::upstream::body::no_memory;
use crate::upstream::exchange::Reply;
use crate::upstream::messages::ReplyPart;
use crate::upstream::own_id::OwnId;
use protocol::error::{Error, UpstreamError};
use protocol::event_id;
use protocol::progress;
use protocol::splice::{Segments, splice};
use protocol::sse::{Boundary, Event, Events, data_event};
use protocol::translation::late::own_told_in;
use protocol::version::Era;

/// So much of an unfinished event is part of what a connection costs.
const UNCHARGED_BYTES: usize = 16 * 1024;
/// How often in a row a stream is taken up again without anything new on it.
const FRUITLESS_MAX: u32 = 100;

pub(super) struct EventStream {
    idle: Duration,
    response_timeout: Duration,
    id: Box<str>,
    /// The id that the upstream was sent, where that is not the client's.
    own_id: Option<OwnId>,
    event_bytes_max: usize,
    /// The client takes the answer alone, as it is.
    is_lone: bool,
    /// Where the bytes sent so far end.
    boundary: Boundary,
    /// Where events must be looked at one by one.
    events: Option<Events>,
    /// The next of them, where they come one by one.
    part: Option<Event>,
    /// The next of them, which is so long that its names are looked for elsewhere.
    preparing: Option<Preparing>,
    /// This was done for the next one.
    is_found: bool,
    /// What is held of the one that is not complete.
    held: Option<Share>,
    /// Who is charged for it, where it is not the session's client.
    payer: Option<Payer>,
    mapper: Option<Mapper>,
    session: Option<InSession>,
    /// What is forgotten as subscribed to if the answer is an error.
    subscribing: Option<Box<str>>,
    /// Whose the task is that the answer may make.
    new_task: Option<Box<NewTask>>,
    _place: Option<Share>,
    /// What is sent before anything else that is ready.
    waiting: VecDeque<Bytes>,
    has_answered: bool,
    /// Whether the answer of a modern upstream has passed. It may end its stream when it likes afterwards.
    answer_seen: AnswerSeen,
    mismatched: IntCounter,
    /// The id of the last event, in the upstream's spelling.
    last_id: Option<Bytes>,
    /// The ids that the client may come back with.
    given: GivenIds,
    retry: Option<Duration>,
    reopening: Option<Reopening>,
    /// How often it was taken up again since the last message.
    fruitless: u32,
}

/// What the clean end of a stream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// All is said, or the client comes back for the rest.
    Over,
    /// There is more, and the client cannot come back for it.
    Reopen,
    /// There will be no answer.
    Unanswered,
    /// The last event is not passed yet.
    Later,
}

type Preparing = (Event, LocalBoxFuture<'static, FoundNames>);

impl EventStream {
    pub(super) fn new(plan: &mut RelayPlan<'_>, event_bytes_max: usize) -> Self {
        let is_lone = plan.takes_one_message();
        let is_read = plan.mapper.is_some() || plan.is_checked() || is_lone;
        Self {
            idle: plan.upstream.config.stream_idle_timeout,
            response_timeout: plan.upstream.config.response_timeout,
            id: plan.id.into(),
            own_id: plan.own_id.map(OwnId::kept),
            event_bytes_max,
            is_lone,
            boundary: Boundary::default(),
            events: is_read.then(|| Events::new(event_bytes_max)),
            part: None,
            preparing: None,
            is_found: false,
            held: None,
            payer: plan.session.is_none().then(|| plan.payer()),
            mapper: plan.mapper.take(),
            session: plan.session.take(),
            subscribing: plan.subscribing.take(),
            new_task: plan.new_task.take(),
            _place: plan.place.take(),
            waiting: VecDeque::new(),
            has_answered: false,
            answer_seen: AnswerSeen::No,
            mismatched: plan.upstream.series.mismatched.clone(),
            last_id: None,
            given: GivenIds::default(),
            retry: None,
            reopening: None,
            fruitless: 0,
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn idle(&self) -> Duration {
        self.idle
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Whether the client has what it asked for, whatever becomes of the stream.
    pub(super) fn has_last_word(&self) -> bool {
        self.has_answered || (self.answer_seen == AnswerSeen::Yes && self.is_between_events())
    }

    /// Whether an error would be the only answer, and stand between two events.
    pub(super) fn can_tell(&self) -> bool {
        self.answer_seen == AnswerSeen::No && self.is_between_events()
    }

    pub(super) fn is_between_events(&self) -> bool {
        self.events.is_some() || self.boundary.at_boundary()
    }

    /// Whether the client can take the stream up again, as it may have done before.
    pub(super) fn is_resumable(&self) -> bool {
        !self.is_lone && (self.last_id.is_some() || self.id.is_empty())
    }

    /// Nobody listens any more. How long the rest may take.
    pub(super) fn detach(&mut self) -> Duration {
        self.waiting.clear();
        self.reopening = None;
        self.response_timeout
    }

    /// Adds bytes of the upstream; gives them back where they are not looked at.
    pub(super) fn push(&mut self, worker: &Worker, data: Bytes) -> Option<Bytes> {
        if let Some(events) = &mut self.events {
            events.push(data);
            return None;
        }
        self.boundary.push(&data);
        let (scratch, depth_max) = (&mut worker.scratch.borrow_mut(), worker.json_depth_max());
        self.answer_seen.look_at_piece(scratch, &data, &self.id, depth_max);
        if let Some(new_task) = &mut self.new_task {
            new_task.push_events(scratch, data.clone());
        }
        Some(data)
    }

    /// Adds a message of the upstream, or a sign of life; gives the event of one that is not looked at.
    pub(super) fn push_part(&mut self, worker: &Worker, part: ReplyPart) -> Option<Bytes> {
        if self.events.is_some() {
            self.part = Some(part.into_event());
            return None;
        }
        if let ReplyPart::Message(message) = &part {
            let (scratch, depth_max) = (&mut worker.scratch.borrow_mut(), worker.json_depth_max());
            self.answer_seen.look_at_message(scratch, message, &self.id, depth_max);
            if let Some(new_task) = &self.new_task {
                new_task.read(scratch, message);
            }
        }
        Some(part.into_event().into_bytes())
    }

    /// Puts an error after what waits to be sent.
    pub(super) fn push_failure(&mut self, failure: &Error) {
        let era = if self.session.is_some() { Era::Legacy } else { Era::Modern };
        let body = Bytes::from(failure.body(Some(&self.id), era));
        self.events = self.events.take().map(|_| Events::new(0));
        self.waiting.push_back(if self.is_lone {
            own_told_in(&body, &failure.outcome()).to_bytes()
        } else {
            data_event(body)
        });
    }

    pub(super) fn next(&mut self, worker: &Rc<Worker>, is_detached: bool) -> Option<Result<Bytes, Error>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(Ok(event));
            }
            // What tells of progress is nearly all of a long reply, and has neither an id nor a name in it.
            if self.mapper.is_none()
                && !self.has_answered
                && !self.is_lone
                && let Some(run) = self.events.as_mut()?.next_run(progress::is_usual)
            {
                self.fruitless = 0;
                return Some(Ok(run));
            }
            let event = match self.part.take() {
                Some(part) if part.data.as_ref().is_some_and(|data| data.len() > self.event_bytes_max) => {
                    return Some(Err(UpstreamError::TooLarge.into()));
                }
                Some(part) if !self.is_found && self.is_work(&part) => {
                    self.prepare(worker, part);
                    return None;
                }
                Some(part) => part,
                None if self.is_preparing() => return None,
                None => match self.events.as_mut()?.next() {
                    Some(Ok(event)) if self.is_work(&event) => {
                        self.prepare(worker, event);
                        return None;
                    }
                    Some(Ok(event)) => event,
                    Some(Err(_)) => return Some(Err(UpstreamError::TooLarge.into())),
                    None => return self.charge(worker).err().map(Err),
                },
            };
            self.is_found = false;
            let passed = if self.is_lone {
                self.pass_alone(worker, event, is_detached)
            } else {
                self.pass(worker, event, is_detached)
            };
            if let Some(passed) = passed.transpose() {
                return Some(passed.map_err(Error::from));
            }
        }
    }

    /// Counts what is held of an event that is not complete.
    fn charge(&mut self, worker: &Worker) -> Result<(), Error> {
        let bytes = self.events.as_ref().map_or(0, Events::begun_bytes);
        if bytes <= UNCHARGED_BYTES {
            self.held = None;
            return Ok(());
        }
        let of_session = || self.session.as_ref().map(|session| session.session.owner().payer());
        let payer = self.payer.or_else(of_session).unwrap_or(Payer::OTHERS);
        let held = self.held.get_or_insert_with(|| worker.state.buffered.open(payer));
        held.grow_to(bytes).map_err(no_memory)
    }

    pub(super) fn end(&mut self, worker: &Rc<Worker>, is_detached: bool) -> AtEnd {
        if self.events.is_none()
            && let Some(mut new_task) = self.new_task.take()
        {
            new_task.end(&mut worker.scratch.borrow_mut());
        }
        // An event without its blank line is none; one that a final CR ended is.
        let mut last = self.events.as_mut().and_then(Events::finish);
        if let Some(last) = last.take_if(|last| self.is_work(last)) {
            self.prepare(worker, last);
            return AtEnd::Later;
        }
        let passed = last.and_then(|event| {
            let passed = if self.is_lone {
                self.pass_alone(worker, event, is_detached)
            } else {
                self.pass(worker, event, is_detached)
            };
            passed.transpose()
        });
        match passed {
            Some(Ok(event)) => self.waiting.push_back(event),
            Some(Err(_)) => return AtEnd::Unanswered,
            None => {}
        }
        let Some(session) = &self.session else {
            let is_unanswered =
                (self.own_id.is_some() || self.is_lone) && self.answer_seen != AnswerSeen::Yes;
            return if is_unanswered { AtEnd::Unanswered } else { AtEnd::Over };
        };
        match (self.has_answered, &self.last_id) {
            (true, _) => AtEnd::Over,
            (false, None) => AtEnd::Unanswered,
            (false, Some(_)) if session.client_resumes() && !self.is_lone => AtEnd::Over,
            (false, Some(_)) => AtEnd::Reopen,
        }
    }

    /// Begins to take the stream up again. False: it cannot be.
    pub(super) fn reopen(&mut self, worker: &Rc<Worker>) -> bool {
        let (Some(session), Some(last_id)) = (&self.session, &self.last_id) else { return false };
        if self.has_answered || self.fruitless >= FRUITLESS_MAX {
            return false;
        }
        let Some(reopening) = reopen::begin(worker, session, last_id, self.retry) else { return false };
        self.fruitless += 1;
        self.events = Some(Events::new(self.event_bytes_max));
        self.reopening = Some(reopening);
        true
    }

    pub(super) fn is_reopening(&self) -> bool {
        self.reopening.is_some()
    }

    pub(super) fn poll_reopened(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, UpstreamError>> {
        let Some(reopening) = &mut self.reopening else { return Poll::Ready(Err(UpstreamError::Reset)) };
        let reopened = std::task::ready!(reopening.as_mut().poll(cx));
        self.reopening = None;
        Poll::Ready(reopened)
    }

    /// The answer as the client is to see it that takes nothing else. All else goes to the stream of its session.
    fn pass_alone(
        &mut self,
        worker: &Rc<Worker>,
        event: Event,
        is_detached: bool,
    ) -> Result<Option<Bytes>, UpstreamError> {
        if self.has_answered && self.session.is_none() {
            return Ok(None);
        }
        let passed = self.pass(worker, event, is_detached)?;
        self.has_answered |= self.answer_seen == AnswerSeen::Yes;
        let Some(answer) = passed.filter(|_| self.has_answered) else { return Ok(None) };
        let mut events = Events::new(answer.len());
        events.push(answer);
        let answer = events.next().and_then(Result::ok).or_else(|| events.finish());
        Ok(answer.and_then(|answer| answer.data))
    }

    /// True if an event is long and may hold names.
    fn is_work(&self, event: &Event) -> bool {
        let data = event.data.as_ref().zip(self.mapper.as_ref());
        data.is_some_and(|(data, mapper)| mapper.is_work(data))
    }

    /// Has names looked for in an event that is long. Nothing comes of that at once.
    #[cold]
    fn prepare(&mut self, worker: &Worker, event: Event) {
        let found = self.mapper.as_ref().zip(event.data.as_ref());
        let found = found.map(|(mapper, data)| mapper.find_apart(&worker.client.tasks, data));
        self.preparing = found.map(|found| (event, Box::pin(found) as LocalBoxFuture<'static, FoundNames>));
    }

    pub(super) fn is_preparing(&self) -> bool {
        self.preparing.is_some()
    }

    /// Ready once the event can be passed.
    pub(super) fn poll_prepared(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((_, found)) = &mut self.preparing {
            let found = std::task::ready!(found.as_mut().poll(cx));
            if let Some(mapper) = &mut self.mapper {
                mapper.finding(found);
            }
            self.part = self.preparing.take().map(|(event, _)| event);
            self.is_found = true;
        }
        Poll::Ready(())
    }

    /// An event as the client is to see it, with the public names. `None`: it is not for the client.
    fn pass(
        &mut self,
        worker: &Rc<Worker>,
        event: Event,
        is_detached: bool,
    ) -> Result<Option<Bytes>, UpstreamError> {
        if self.session.is_some() {
            return self.pass_in_session(worker, event, is_detached);
        }
        let Some(data) = event.data.as_ref().filter(|data| !data.is_empty()) else {
            return Ok(Some(event.into_bytes()));
        };
        let id = match answer_in(worker, data, self.own_id.as_ref()) {
            AnswerIn::None => None,
            AnswerIn::Ours(id) => Some(id),
            // Clients read no other events than messages.
            AnswerIn::Others if event.event.as_ref().is_some_and(|kind| kind != "message") => None,
            AnswerIn::Others => {
                self.mismatched.inc();
                let is_late = self.answer_seen == AnswerSeen::Yes;
                return if is_late { Ok(None) } else { Err(UpstreamError::Nonsense) };
            }
        };
        if let Some(new_task) = &self.new_task {
            new_task.read(&mut worker.scratch.borrow_mut(), data);
        }
        let is_ours = id.is_some();
        let mapped = match (&self.mapper, id) {
            (Some(mapper), id) => mapper.map_with(&mut worker.scratch.borrow_mut(), data, id),
            (None, id) => Ok(id.map(|id| splice(data, &[id]))),
        };
        let mapped = mapped.map_err(|_| UpstreamError::Nonsense)?;
        // What cannot be handed on is no answer.
        if is_ours {
            self.answer_seen = AnswerSeen::Yes;
        } else if self.own_id.is_none() {
            let (scratch, depth_max) = (&mut worker.scratch.borrow_mut(), worker.json_depth_max());
            self.answer_seen.look_at_message(scratch, data, &self.id, depth_max);
        }
        Ok(Some(match mapped {
            None => event.into_bytes(),
            Some(data) => event.with_data(data),
        }))
    }

    fn pass_in_session(
        &mut self,
        worker: &Rc<Worker>,
        event: Event,
        is_detached: bool,
    ) -> Result<Option<Bytes>, UpstreamError> {
        let Some(session) = &self.session else { return Ok(None) };
        if self.has_answered {
            if event.data.as_ref().is_some_and(|data| !data.is_empty()) {
                session.upstream.series.unroutable.inc();
            }
            return Ok(None);
        }
        if let Some(retry_ms) = event.retry_ms {
            self.retry = Some(Duration::from_millis(retry_ms));
        }
        let Some(data) = event.data.as_ref().filter(|data| !data.is_empty()) else {
            self.last_id = next_id(self.last_id.take(), &event);
            let is_priming = event.data.is_some();
            let is_refused = is_priming && !session.client_resumes();
            return Ok((!is_refused).then(|| with_public_id(session, &mut self.given, event, None)));
        };
        let own_id = self.own_id.as_ref();
        let sent_id = own_id.map_or(self.id.as_bytes(), |own_id| own_id.sent());
        let awaited = if self.id.is_empty() {
            AwaitedAnswer::AnyAnswer
        } else {
            AwaitedAnswer::Answer(sent_id, own_id)
        };
        let mapper = self.mapper.as_ref();
        let note_task = || {
            if let Some(new_task) = &self.new_task {
                new_task.read(&mut worker.scratch.borrow_mut(), data);
            }
        };
        let (crossing, is_answer) =
            notification_routing::in_reply(worker, session, mapper, data, awaited, note_task)?;
        // Only what was dealt with is not asked for again.
        self.last_id = next_id(self.last_id.take(), &event);
        self.fruitless = 0;
        self.has_answered = is_answer;
        if is_answer && let Some(uri) = self.subscribing.take() {
            note_subscription(worker, session, &uri, data);
        }
        Ok(match crossing {
            NotificationRouting::Mapped { question: Some(question), .. } if is_detached => {
                answers::undeliverable(worker, session, &question);
                None
            }
            crossing if self.is_lone && !is_answer => {
                say_beside(worker, session, data, crossing);
                None
            }
            NotificationRouting::AsItIs => Some(with_public_id(session, &mut self.given, event, None)),
            NotificationRouting::Mapped { message, .. } => {
                Some(with_public_id(session, &mut self.given, event, Some(message)))
            }
            NotificationRouting::Withheld => None,
        })
    }
}

/// The resource is forgotten as subscribed to where this answer refuses it.
fn note_subscription(worker: &Worker, session: &InSession, uri: &str, answer: &[u8]) {
    if memchr::memmem::find(answer, b"\"error\"").is_some() {
        let key = &session.upstream.session_key;
        worker.state.sessions.unsubscribe(session.session.grant.id, key, uri);
    }
}

/// Has a client that takes the answer alone told the rest on the stream of its session.
fn say_beside(worker: &Rc<Worker>, session: &InSession, said: &Bytes, crossing: NotificationRouting) {
    match crossing {
        NotificationRouting::AsItIs => {
            answers::say_beside(worker, session, Bytes::copy_from_slice(said), None);
        }
        NotificationRouting::Mapped { question, message } => {
            answers::say_beside(worker, session, message.to_bytes(), question.as_deref());
        }
        NotificationRouting::Withheld => {}
    }
}

/// An empty id takes the one before back.
fn next_id(last: Option<Bytes>, event: &Event) -> Option<Bytes> {
    match &event.id {
        Some(id) => Some(id.clone()).filter(|id| !id.is_empty()),
        None => last,
    }
}

/// The bytes of an event, with an id that says which upstream it comes from where there are several.
fn with_public_id(session: &InSession, given: &mut GivenIds, event: Event, data: Option<Segments>) -> Bytes {
    let id = event.id.as_ref().filter(|id| !id.is_empty() && session.endpoint.members.len() > 1);
    let public = id.map(|id| event_id::spell_post(&session.upstream.config.name, id));
    // The client would send a longer one back in vain.
    let public = public.map(|id| if id.len() <= event_id::ID_BYTES_MAX { id } else { Bytes::new() });
    if let Some(id) = public.as_ref().or(event.id.as_ref()).filter(|id| !id.is_empty()) {
        given.note(id, || session.outbox.begin_ids());
    }
    match (data, &public) {
        (None, None) => event.into_bytes(),
        (data, id) => event.with(data, id.as_deref()),
    }
}
