//! One call on a session that is its own meanwhile, from its request to its end: parked while its client is asked.
//!
//! What the server says in its reply and on the session's stream belongs to this call. Its requests end the client's
//! exchange with `input_required`; the client comes back with another one, which is given what follows.
//!
//! Invariant: the server gets one answer to each of its requests, and the client's call one end.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::StatusCode;
use tokio::time::{sleep_until, timeout};

use super::answers::{self, CallAnswer};
use super::call_reply::{CallReplySink, ClientAnswers};
use super::exclusive_session::{Command, ExclusiveSession};
use super::incoming_message::{self, IncomingMessage};
use super::session_client::{CallExchange, ServerMessage, SessionClient};
use super::state::Binding;
use super::suspended;
use crate::access::limit::byte_budget::Reservation;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::bridge::{Bridge, next_number};
use crate::upstream::mux::queue::NotSent;
use protocol::asking::{NO_METHOD, NotAsked};
use protocol::error::UpstreamError;
use protocol::json::{Span, quote};
use protocol::level::Level;
use protocol::splice::{Edit, splice};
use protocol::translation::question::{self, Question};

/// Messages on their way to the server at once; while there are as many, it is not listened to.
const TELLING_MAX: usize = 2 * QUESTIONS_MAX;
/// Questions of one call that wait at once.
pub(crate) const QUESTIONS_MAX: usize = 16;
/// What a server asks so soon after a question goes to the client with it.
const TOGETHER: Duration = Duration::from_millis(5);
/// Log lines that wait for a client that is about to come back; of more, the oldest are dropped.
const LATER_MAX: usize = 16;
const LATER_BYTES_MAX: usize = 4 * 1024;
/// How long the end of a reply is waited for after its answer.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may take to hear that a call is over.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

const TOO_MANY: NotAsked = NotAsked { code: -32000, message: "too many requests wait for this client" };
const NO_ANSWER: NotAsked = NotAsked { code: -32000, message: "the client did not answer" };

pub(crate) enum CallEnd {
    /// The session can be used again.
    Clean,
    /// The session must not be used again.
    Spoilt,
    /// The server does not know the session, and has not looked at the call.
    Lost(Box<CallReplySink>),
    /// The process ends now.
    Cut,
}

/// A question of the server that has no answer.
struct PendingQuestion {
    /// What the client knows it by.
    key: Box<str>,
    /// The literal of its id.
    id: Box<[u8]>,
    question: Question,
    _held: Reservation,
}

/// A call that waits. Dropped, it does so no longer.
struct Suspension {
    bridge: Arc<Bridge>,
    number: u64,
    until: Instant,
    _counted: GaugeGuard,
}

impl Suspension {
    fn new(bridge: &Arc<Bridge>, number: u64, until: Instant) -> Self {
        let counted = GaugeGuard::new(&bridge.series.suspended);
        Self { bridge: Arc::clone(bridge), number, until, _counted: counted }
    }

    /// Nobody can go on with it from now on. False: somebody does already.
    fn leave(&self) -> bool {
        self.bridge.as_modern.parked.leave(self.number)
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        self.leave();
    }
}

struct CallDriver<'s> {
    seat: &'s mut ExclusiveSession,
    posted: CallExchange,
    /// The literal of the id, and of the progress token, that the server knows the call by.
    own: Box<str>,
    attached: Option<Box<CallReplySink>>,
    may_be_asked: bool,
    is_heard: bool,
    questions: Vec<PendingQuestion>,
    asked: u32,
    /// How often the client was asked.
    rounds: usize,
    /// When the client is asked what there is by then.
    ask_at: Option<Instant>,
    binding: Option<Binding>,
    parked: Option<Suspension>,
    /// Somebody is about to go on with the call, too late.
    is_taken: bool,
    /// The server's answer, should the client not be there.
    answered: Option<(Bytes, Reservation)>,
    later: VecDeque<(Option<Level>, Bytes)>,
    telling: FuturesUnordered<LocalBoxFuture<'static, Result<(), UpstreamError>>>,
}

enum DriverEvent {
    Posted(ServerMessage),
    Unasked(Bytes),
    Told(Result<(), UpstreamError>),
    Left,
    Command(Option<Command>),
    Ask,
    Expired,
    Ending,
    Cut,
}

pub(crate) async fn run(seat: &mut ExclusiveSession, attached: Box<CallReplySink>) -> CallEnd {
    if attached.is_closed() {
        return CallEnd::Clean;
    }
    let _ = timeout(LAST_PATIENCE, Box::pin(seat.clear())).await;
    let own: Box<str> = next_number().to_string().into();
    let limits = seat.link.limits();
    let call = &attached.call;
    let message = {
        let mut scratch = seat.link.client.pipes.scratch.borrow_mut();
        call.to_legacy((&own, &own), "", (&mut scratch, limits.json_depth_max))
    };
    let Ok(message) = message else {
        attached.fail(UpstreamError::Nonsense);
        return CallEnd::Clean;
    };
    let posted = CallExchange::new(&seat.link, (&own, message), (call.headers.clone(), call.trail.clone()));
    let turn = CallDriver {
        may_be_asked: call.may_be_asked,
        seat,
        posted,
        own,
        attached: Some(attached),
        is_heard: false,
        questions: Vec::new(),
        asked: 0,
        rounds: 0,
        ask_at: None,
        binding: None,
        parked: None,
        is_taken: false,
        answered: None,
        later: VecDeque::new(),
        telling: FuturesUnordered::new(),
    };
    turn.run().await
}

impl CallDriver<'_> {
    async fn run(mut self) -> CallEnd {
        loop {
            let next = self.next().await;
            let ended = match next {
                DriverEvent::Posted(said) => self.take(said),
                DriverEvent::Unasked(message) => self.hear(&message),
                DriverEvent::Told(Ok(())) => None,
                // With the answer there, nothing else is wanted of the server.
                DriverEvent::Told(Err(_)) if self.answered.is_some() => None,
                DriverEvent::Told(Err(error)) => Some(self.broke(error)),
                DriverEvent::Left => Some(CallEnd::Spoilt),
                DriverEvent::Command(command) => self.resume(command),
                DriverEvent::Ask => self.park(),
                DriverEvent::Expired => self.expire(),
                DriverEvent::Ending => Some(self.unpark()),
                DriverEvent::Cut => Some(CallEnd::Cut),
            };
            match ended {
                None => {}
                Some(CallEnd::Clean) => return Box::pin(self.end()).await,
                Some(CallEnd::Spoilt) => {
                    Box::pin(self.give_up()).await;
                    return CallEnd::Spoilt;
                }
                Some(ended) => return ended,
            }
        }
    }

    async fn next(&mut self) -> DriverEvent {
        let host = Rc::clone(&self.seat.link.client.pipes);
        let is_parked = self.parked.is_some();
        let listens = self.telling.len() < TELLING_MAX;
        tokio::select! {
            biased;
            () = host.cut() => DriverEvent::Cut,
            told = self.telling.next(), if !self.telling.is_empty() => DriverEvent::Told(told.unwrap_or(Ok(()))),
            // What was said there before the answer is heard before the answer.
            message = self.seat.unasked.next(), if listens => DriverEvent::Unasked(message),
            said = self.posted.next(), if listens => DriverEvent::Posted(said),
            command = self.seat.commands.recv(), if is_parked => DriverEvent::Command(command),
            () = left(self.attached.as_deref()) => DriverEvent::Left,
            () = at(self.ask_at) => DriverEvent::Ask,
            () = at(self.parked.as_ref().map(|parked| parked.until)) => DriverEvent::Expired,
            () = self.seat.retired.cancelled(), if is_parked => DriverEvent::Ending,
            () = host.closing(), if is_parked => DriverEvent::Ending,
        }
    }

    /// Takes what came in the reply.
    fn take(&mut self, said: ServerMessage) -> Option<CallEnd> {
        match said {
            ServerMessage::Stands | ServerMessage::Nothing => {
                if let Some(attached) = &self.attached {
                    attached.keep_alive();
                }
                None
            }
            ServerMessage::Message(message) => {
                let ended = self.hear(&message);
                if ended.is_none() && self.posted.is_over() && self.answered.is_none() {
                    return Some(self.broke(UpstreamError::Nonsense));
                }
                ended
            }
            ServerMessage::Over(_) if self.answered.is_some() => None,
            ServerMessage::Over(error) => Some(self.broke(error)),
        }
    }

    /// Takes a message of the server.
    fn hear(&mut self, message: &Bytes) -> Option<CallEnd> {
        let heard = incoming_message::read(&self.seat.link, message, &self.own)?;
        self.is_heard = true;
        match heard {
            IncomingMessage::Answer => return self.answer(message),
            IncomingMessage::Request { id, is_ping: true } => self.tell(question::answer(&id, b"{}")),
            IncomingMessage::Request { id, .. } => self.ask(message, id),
            IncomingMessage::Progress(token) => return self.progress(message, token),
            IncomingMessage::Log(level) => return self.log(message, level),
            IncomingMessage::TakenBack(id) => {
                self.questions.retain(|open| open.id != id);
                if self.questions.is_empty() {
                    self.ask_at = None;
                }
            }
            IncomingMessage::Elicited(id) => self.elicited(&id),
            IncomingMessage::Other => {}
        }
        None
    }

    /// Tells the client how far its call is, if it wants to know.
    fn progress(&mut self, message: &Bytes, token: Span) -> Option<CallEnd> {
        let client_token = self.attached.as_ref()?.call.token.as_deref()?;
        let with = Bytes::copy_from_slice(client_token.as_bytes());
        self.pass(splice(message, &[Edit { span: token, with }]).to_bytes())
    }

    /// Gives the client a log line, now or when it is back.
    fn log(&mut self, message: &Bytes, level: Option<Level>) -> Option<CallEnd> {
        if let Some(attached) = &self.attached {
            return if wants(attached, level) { self.pass(message.clone()) } else { None };
        }
        // Kept alive by nothing but what it says itself.
        self.later.push_back((level, Bytes::copy_from_slice(message)));
        let bytes = |later: &VecDeque<(_, Bytes)>| later.iter().map(|(_, line)| line.len()).sum::<usize>();
        while self.later.len() > LATER_MAX || bytes(&self.later) > LATER_BYTES_MAX {
            self.later.pop_front();
        }
        None
    }

    /// Gives the client a message that ends nothing.
    fn pass(&mut self, message: Bytes) -> Option<CallEnd> {
        // Who has left is noticed elsewhere; who does not read is given up.
        let is_full = self.attached.as_ref()?.tell(message) == Err(NotSent::Full);
        is_full.then(|| self.broke(UpstreamError::TooLarge))
    }

    /// Takes a question of the server.
    fn ask(&mut self, message: &Bytes, id: Box<[u8]>) {
        // The answer to the first is that to the second.
        if self.questions.iter().any(|open| open.id == id) {
            return;
        }
        let asked = if !self.may_be_asked || self.answered.is_some() {
            Err(NO_METHOD)
        } else if self.questions.len() >= QUESTIONS_MAX {
            Err(TOO_MANY)
        } else {
            let depth_max = self.seat.link.limits().json_depth_max;
            let mut scratch = self.seat.link.client.pipes.scratch.borrow_mut();
            // A retry may declare less than the session was opened with.
            let declared = self.attached.as_ref().map(|attached| &*attached.call.capabilities);
            let declared = declared.unwrap_or(self.seat.key.capabilities.as_bytes());
            question::read(message, declared, (&mut scratch, depth_max))
        };
        let asked = asked.and_then(|question| {
            let mut held = self.seat.link.limits().budget.reservation();
            if held.grow(question.request.len()) { Ok((question, held)) } else { Err(TOO_MANY) }
        });
        match asked {
            Ok((question, held)) => {
                self.asked += 1;
                let key = format!("q{}", self.asked).into();
                self.questions.push(PendingQuestion { key, id, question, _held: held });
                if self.attached.is_some() && self.ask_at.is_none() {
                    self.ask_at = Some(Instant::now() + TOGETHER);
                }
            }
            Err(why) => self.tell(question::refusal(&id, why)),
        }
    }

    /// What the user was to do elsewhere is done: the server is told, and the client need not say so.
    fn elicited(&mut self, id: &str) {
        let is_it = |open: &PendingQuestion| open.question.elicitation_id.as_deref() == Some(id);
        if let Some(index) = self.questions.iter().position(is_it) {
            let open = self.questions.remove(index);
            self.tell(question::answer(&open.id, br#"{"action":"accept"}"#));
        }
        if self.questions.is_empty() {
            self.ask_at = None;
        }
    }

    /// Takes the server's answer to the call.
    fn answer(&mut self, message: &Bytes) -> Option<CallEnd> {
        self.refuse(NO_METHOD);
        let Some(attached) = self.attached.take() else {
            let mut held = self.seat.link.limits().budget.reservation();
            if !held.grow(message.len()) {
                return Some(self.unpark());
            }
            self.answered = Some((Bytes::copy_from_slice(message), held));
            return None;
        };
        self.finish(*attached, message);
        Some(CallEnd::Clean)
    }

    fn finish(&self, attached: CallReplySink, message: &Bytes) {
        let link = &self.seat.link;
        let answer = {
            let mut scratch = link.client.pipes.scratch.borrow_mut();
            let memory = (&mut *scratch, link.limits().json_depth_max);
            answers::last(&link.upstream(), &attached.call, message, memory)
        };
        match answer {
            // Whoever has left does not get it, and the server did its part.
            Ok(answer) => drop(attached.finish(answer)),
            Err(error) => attached.fail(error),
        }
    }

    /// Asks the client, which is to come back with its answers.
    fn park(&mut self) -> Option<CallEnd> {
        self.ask_at = None;
        let attached = self.attached.take()?;
        let link = Rc::clone(&self.seat.link);
        let (upstream, limits) = (link.upstream(), link.limits());
        let bounds = &upstream.config.bridge;
        self.rounds += 1;
        if self.rounds > bounds.rounds_max {
            attached.fail(UpstreamError::TooManyRounds);
            return Some(CallEnd::Spoilt);
        }
        if self.binding.is_none() {
            let whose = (&*upstream.session_key, &*self.seat.key.principal);
            let mut scratch = link.client.pipes.scratch.borrow_mut();
            self.binding = Binding::of(whose, &attached.call.message, (&mut scratch, limits.json_depth_max));
        }
        let Some(binding) = self.binding else {
            attached.fail(UpstreamError::Nonsense);
            return Some(CallEnd::Spoilt);
        };
        let whose = (&self.seat.key.principal, binding);
        let parks = &upstream.bridge.series.suspensions;
        let entered = upstream.bridge.as_modern.parked.enter(bounds, whose, self.seat.own_commands.clone());
        let Ok((number, state)) = entered else {
            parks.refused.inc();
            attached.fail(UpstreamError::TooManyParked);
            return Some(CallEnd::Spoilt);
        };
        let message = self.input_required(&attached.call.id, &state);
        self.parked = Some(Suspension::new(&upstream.bridge, number, Instant::now() + bounds.park_timeout));
        upstream.bridge.series.rounds.modern.inc();
        if !attached.finish(CallAnswer { status: StatusCode::OK, message }) {
            return Some(self.unpark());
        }
        None
    }

    fn input_required(&self, id: &str, state: &str) -> Bytes {
        let mut message = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{{"#
        )
        .into_bytes();
        for (index, open) in self.questions.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            message.extend_from_slice(format!("{comma}{}:", quote(&open.key)).as_bytes());
            message.extend_from_slice(&open.question.request);
        }
        message.extend_from_slice(format!(r#"}},"requestState":{}}}}}"#, quote(state)).as_bytes());
        message.into()
    }

    /// The client is back.
    fn resume(&mut self, command: Option<Command>) -> Option<CallEnd> {
        let Some(Command::Resume(attached, answers)) = command else { return None };
        self.parked = None;
        self.may_be_asked = attached.call.may_be_asked;
        let series = &self.seat.link.bridge.series;
        series.suspensions.resumed.inc();
        self.take_answers(answers);
        if let Some((message, _)) = self.answered.take() {
            self.finish(*attached, &message);
            return Some(CallEnd::Clean);
        }
        for (level, message) in std::mem::take(&mut self.later) {
            if wants(&attached, level) {
                let _ = attached.tell(message);
            }
        }
        attached.keep_alive();
        self.attached = Some(attached);
        // What it did not answer, or was not asked yet, it is asked.
        self.ask_at = (!self.questions.is_empty()).then(Instant::now);
        None
    }

    fn take_answers(&mut self, answers: ClientAnswers) {
        for (key, answer) in answers {
            if let Some(index) = self.questions.iter().position(|open| open.key == key) {
                let open = self.questions.remove(index);
                self.tell(question::answer(&open.id, &answer));
            }
        }
    }

    /// The server ended it.
    fn broke(&mut self, error: UpstreamError) -> CallEnd {
        let Some(attached) = self.attached.take() else { return self.unpark() };
        if error == UpstreamError::SessionLost && !self.is_heard {
            return CallEnd::Lost(attached);
        }
        attached.fail(error);
        CallEnd::Spoilt
    }

    /// The client was waited for long enough.
    fn expire(&mut self) -> Option<CallEnd> {
        let parking = self.parked.as_mut()?;
        if !parking.leave() {
            // It is on its way.
            parking.until = Instant::now() + LAST_PATIENCE;
            return None;
        }
        self.parked = None;
        self.seat.link.bridge.series.suspensions.expired.inc();
        Some(CallEnd::Spoilt)
    }

    /// The call is lost while it waits, if it does.
    fn unpark(&mut self) -> CallEnd {
        if let Some(parking) = self.parked.take() {
            self.is_taken = !parking.leave();
            parking.bridge.series.suspensions.lost.inc();
        }
        CallEnd::Spoilt
    }

    fn tell(&mut self, message: Bytes) {
        self.telling.push(SessionClient::tell(Rc::clone(&self.seat.link), message).boxed_local());
    }

    /// Answers what the server still asks.
    fn refuse(&mut self, why: NotAsked) {
        for open in std::mem::take(&mut self.questions) {
            self.tell(question::refusal(&open.id, why));
        }
        self.ask_at = None;
    }

    /// After the answer: reads what is left, so that the session is the next call's alone.
    async fn end(mut self) -> CallEnd {
        let until = Instant::now() + END_PATIENCE;
        loop {
            let rest = tokio::time::timeout_at(until.into(), self.posted.rest()).await;
            let Ok(Some(message)) = rest else { break };
            if self.telling.len() >= TELLING_MAX {
                break;
            }
            if let Some(IncomingMessage::Request { id, is_ping }) =
                incoming_message::read(&self.seat.link, &message, &self.own)
            {
                self.tell(question::unasked_answer(&id, is_ping));
            }
        }
        let telling = async {
            while let Some(told) = self.telling.next().await {
                if told.is_err() {
                    return false;
                }
            }
            true
        };
        match timeout(LAST_PATIENCE, telling).await {
            Ok(true) => CallEnd::Clean,
            _ => CallEnd::Spoilt,
        }
    }

    /// Tells the server that nobody waits for the call any more.
    async fn give_up(&mut self) {
        // What it says from now on reaches nobody, and its connection is needed for what it is told.
        self.posted.end_now();
        if self.is_taken
            && let Ok(Some(Command::Resume(attached, _))) =
                timeout(LAST_PATIENCE, self.seat.commands.recv()).await
        {
            let rejected = suspended::rejected(&attached.call);
            attached.finish(rejected);
        }
        self.refuse(NO_ANSWER);
        let cancelled = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the client waits no longer"}}}}"#,
            self.own
        );
        self.tell(cancelled.into());
        let telling = &mut self.telling;
        // Whether it hears or not, the session is closed.
        self.seat.link.last(LAST_PATIENCE, async { while telling.next().await.is_some() {} }).await;
    }
}

/// Whether the client wants this log line: whoever asked for none gets none, whatever the server thinks.
fn wants(attached: &CallReplySink, level: Option<Level>) -> bool {
    attached.call.level.is_some_and(|least| level.is_none_or(|level| level >= least))
}

async fn left(attached: Option<&CallReplySink>) {
    match attached {
        Some(attached) => attached.closed().await,
        None => std::future::pending().await,
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
