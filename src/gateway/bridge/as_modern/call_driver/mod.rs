//! One call on a session that is its own meanwhile, from its request to its end: suspension while its client is asked.
//!
//! Here is what happens to it and what comes of that; [`rounds`] suspends it and goes on with it, [`running_task`] is what
//! it does where the server has made a task of it.
//!
//! What the server says in its reply and on the session's stream belongs to this call. Its requests end the client's
//! exchange with `input_required`; the client comes back with another one, which is given what follows.
//!
//! Invariant: the server gets one answer to each of its requests, and the client's call one end.

mod rounds;
mod running_task;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{sleep_until, timeout};

use self::running_task::RunningTask;

use crate::access::limit::shares::Share;
use crate::bridge::as_modern::answers::{self, CallAnswer};
use crate::bridge::as_modern::call::ModernCall;
use crate::bridge::as_modern::call_reply::CallReplySink;
use crate::bridge::as_modern::exclusive_session::{ExclusiveSession, SessionCommand};
use crate::bridge::as_modern::open_questions::{NotOpen, OpenQuestions, QUESTIONS_MAX, no_memory};
use crate::bridge::as_modern::response_reader::{BridgedRequest, CallExchange};
use crate::bridge::as_modern::server_message::{self, CallIds, ServerMessage};
use crate::bridge::as_modern::session_client::{SessionClient, cancellation};
use crate::bridge::as_modern::suspended::{self, LaterLines, Suspension};
use crate::bridge::as_modern::tasks;
use crate::bridge::{next_number, or_never};
use crate::upstream::mux::queue::NotSent;
use protocol::error::UpstreamError;
use protocol::json::Span;
use protocol::level::Level;
use protocol::server_request::{NO_METHOD, NotAsked};
use protocol::splice::{Edit, splice};
use protocol::translation::question;
use tokens::request_state::Binding;

/// Messages on their way to the server at once; while there are as many, it is not listened to.
const TELLING_MAX: usize = 2 * QUESTIONS_MAX;
/// How long the end of a reply is waited for after its answer.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may take to hear that a call is over.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

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

pub(crate) struct CallDriver {
    /// The call as it was first made; its client comes back with others.
    made: Arc<ModernCall>,
    session: Box<ExclusiveSession>,
    exchange: CallExchange,
    /// The literal of the id that the server's answer has.
    own: Box<str>,
    /// The literal of the progress token that the server knows the call by.
    token: Box<str>,
    task: Option<RunningTask>,
    /// Where its client waits, if a task makes the call.
    pub reply: Option<Box<CallReplySink>>,
    may_be_asked: bool,
    has_spoken: bool,
    questions: OpenQuestions,
    /// How often the client was asked.
    rounds: usize,
    binding: Option<Binding>,
    suspension: Option<Suspension>,
    /// Somebody is about to go on with the call, too late.
    is_taken: bool,
    /// The server's answer, should the client not be there.
    answered: Option<(Bytes, Share)>,
    later: LaterLines,
    telling: FuturesUnordered<LocalBoxFuture<'static, Result<(), UpstreamError>>>,
}

/// What happens to a call.
pub(crate) enum DriverEvent {
    Reply(Result<Option<Bytes>, UpstreamError>),
    Notification(Bytes),
    Told(Result<(), UpstreamError>),
    /// Its client has left.
    Left,
    /// Its client has the answer.
    Answered,
    KeepAlive,
    AskForResult,
    Command(Option<SessionCommand>),
    Ask,
    Expired,
    Ending,
    Cut,
}

impl CallDriver {
    /// Begins a call. What the server has said before is none of its business.
    pub(crate) fn new(mut session: Box<ExclusiveSession>, call: &Arc<ModernCall>) -> Box<Self> {
        session.clear();
        let own: Box<str> = next_number().to_string().into();
        let added = if call.as_task { tasks::TTL } else { "" };
        let request = BridgedRequest {
            payer: call.caller.payer,
            message: call.to_legacy((&own, &own), added),
            id: own.clone(),
            forwarded: call.forwarded.clone(),
            trail: call.trail.clone(),
            silence: call.silence.clone(),
            place: None,
            is_safe_to_repeat: false,
            deadline: None,
        };
        Box::new(Self {
            made: Arc::clone(call),
            may_be_asked: call.may_be_asked,
            questions: OpenQuestions::of(call.caller.payer),
            exchange: CallExchange::new(&session.server, request),
            session,
            token: own.clone(),
            own,
            task: None,
            reply: None,
            has_spoken: false,
            rounds: 0,
            binding: None,
            suspension: None,
            is_taken: false,
            answered: None,
            later: LaterLines::default(),
            telling: FuturesUnordered::new(),
        })
    }

    /// Makes the call to its end, after this has happened to it.
    pub(crate) async fn run(
        mut self: Box<Self>,
        mut first: Option<DriverEvent>,
    ) -> (Box<ExclusiveSession>, CallEnd) {
        let end = loop {
            let next = match first.take() {
                Some(first) => first,
                None => self.next().await,
            };
            let ended = match next {
                DriverEvent::Reply(message) => self.take(message),
                DriverEvent::Notification(message) => self.receive(&message),
                DriverEvent::Told(Ok(())) => None,
                // With the answer there, nothing else is wanted of the server.
                DriverEvent::Told(Err(_)) if self.answered.is_some() => None,
                DriverEvent::Told(Err(error)) => Some(self.broke(error)),
                DriverEvent::Left => Some(CallEnd::Spoilt),
                DriverEvent::Answered => Some(CallEnd::Clean),
                DriverEvent::KeepAlive => {
                    self.keep_alive();
                    None
                }
                DriverEvent::AskForResult => {
                    self.ask_for_result();
                    None
                }
                DriverEvent::Command(command) => self.resume(command),
                DriverEvent::Ask => self.park(),
                DriverEvent::Expired => self.expire(),
                DriverEvent::Ending => Some(self.unpark()),
                DriverEvent::Cut => Some(CallEnd::Cut),
            };
            match ended {
                None => {}
                Some(CallEnd::Clean) => break Box::pin(self.end()).await,
                Some(CallEnd::Spoilt) => {
                    Box::pin(self.give_up()).await;
                    break CallEnd::Spoilt;
                }
                Some(ended) => break ended,
            }
        };
        (self.session, end)
    }

    /// What happens next. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> DriverEvent {
        let session = &mut *self.session;
        let host = Rc::clone(&session.server.client.host);
        let is_suspended = self.suspension.is_some();
        let listens = self.telling.len() < TELLING_MAX;
        let expiry = self.suspension.as_ref().map(|suspension| sleep_until(suspension.until.into()));
        tokio::select! {
            biased;
            () = host.cut() => DriverEvent::Cut,
            told = self.telling.next(), if !self.telling.is_empty() => DriverEvent::Told(told.unwrap_or(Ok(()))),
            // What was said there before the answer is read before the answer.
            message = session.wakers.hear(&mut session.notifications), if listens => DriverEvent::Notification(message),
            message = self.exchange.next(), if listens => DriverEvent::Reply(message),
            command = session.commands.recv(), if is_suspended => DriverEvent::Command(command),
            () = or_never(self.reply.as_deref().map(CallReplySink::closed)) => DriverEvent::Left,
            () = or_never(self.task.as_ref().map(RunningTask::quiet)) => DriverEvent::KeepAlive,
            () = or_never(self.task.as_ref().and_then(RunningTask::again)) => DriverEvent::AskForResult,
            () = or_never(self.questions.ask_at.map(|at| sleep_until(at.into()))) => DriverEvent::Ask,
            () = or_never(expiry) => DriverEvent::Expired,
            () = session.retired.cancelled(), if is_suspended => DriverEvent::Ending,
            () = host.closing(), if is_suspended => DriverEvent::Ending,
        }
    }

    /// As [`next`](Self::next), of a call whose caller makes it: nothing else can happen to it.
    pub(crate) async fn next_of_direct(&mut self) -> DriverEvent {
        let ExclusiveSession { server, notifications, wakers, .. } = &mut *self.session;
        tokio::select! {
            biased;
            () = server.client.host.cut() => DriverEvent::Cut,
            message = wakers.hear(notifications) => DriverEvent::Notification(message),
            message = self.exchange.next() => DriverEvent::Reply(message),
        }
    }

    /// Takes what came in the reply.
    fn take(&mut self, message: Result<Option<Bytes>, UpstreamError>) -> Option<CallEnd> {
        match message {
            Ok(None) => {
                self.keep_alive();
                None
            }
            Ok(Some(message)) => {
                let ended = self.receive(&message);
                if ended.is_none() && self.exchange.is_over() && self.answered.is_none() {
                    return Some(self.broke(UpstreamError::Nonsense));
                }
                ended
            }
            Err(_) if self.answered.is_some() => None,
            Err(error) if self.asks_again(&error) => None,
            Err(error) => Some(self.broke(error)),
        }
    }

    /// Takes a message of the server.
    fn receive(&mut self, message: &Bytes) -> Option<CallEnd> {
        let ids = CallIds { answer: &self.own, token: &self.token };
        let incoming = server_message::read(&self.session.server, message, ids)?;
        self.has_spoken = true;
        match incoming {
            ServerMessage::Answer => return self.answer(message),
            ServerMessage::Request { id, is_ping: true } => self.tell(question::answer(&id, b"{}")),
            ServerMessage::Request { id, .. } => return self.ask(message, &id),
            ServerMessage::Progress(token) => return self.progress(message, token),
            ServerMessage::Log(level) => return self.log(message, level),
            ServerMessage::TakenBack(id) => self.questions.withdraw(&id),
            // What the user was to do elsewhere is done: the server is told, and the client need not say so.
            ServerMessage::Elicited(id) => {
                if let Some(id) = self.questions.elicited(&id) {
                    self.tell(question::answer(&id, br#"{"action":"accept"}"#));
                }
            }
            ServerMessage::ListChanged(changed) => self.session.server.overhear(changed),
            ServerMessage::Other => {}
        }
        None
    }

    /// Tells the client how far its call is, if it wants to know.
    fn progress(&mut self, message: &Bytes, token: Span) -> Option<CallEnd> {
        let client_token = self.reply.as_ref()?.call.token.as_deref()?;
        let with = Bytes::copy_from_slice(client_token.as_bytes());
        self.pass(splice(message, &[Edit { span: token, with }]).to_bytes())
    }

    /// Gives the client a log line, now or when it is back.
    fn log(&mut self, message: &Bytes, level: Option<Level>) -> Option<CallEnd> {
        if let Some(reply) = &self.reply {
            return if reply.call.wants(level) { self.pass(message.clone()) } else { None };
        }
        self.later.push(level, message);
        None
    }

    /// Gives the client a message that ends nothing.
    fn pass(&mut self, message: Bytes) -> Option<CallEnd> {
        // Who has left is noticed elsewhere; who does not read is given up.
        match self.reply.as_ref()?.tell(message) {
            Err(NotSent::Full) => Some(self.broke(UpstreamError::SlowClient)),
            Err(NotSent::NoMemory(none)) => Some(self.broke(no_memory(none))),
            Ok(()) | Err(NotSent::Gone) => None,
        }
    }

    /// Takes a question of the server.
    fn ask(&mut self, message: &Bytes, id: &[u8]) -> Option<CallEnd> {
        // The answer to the first is that to the second.
        if self.questions.has(id) {
            return None;
        }
        let asked = if !self.may_be_asked || self.answered.is_some() {
            Err(NotOpen::Refused(NO_METHOD))
        } else {
            // A retry may declare less than the session was opened with.
            let declared = self.reply.as_ref().map(|reply| &*reply.call.capabilities);
            let declared = declared.unwrap_or(self.session.key.capabilities.as_bytes());
            self.questions.add(&self.session.server, message, id, declared)
        };
        match asked {
            Ok(()) if self.reply.is_some() => self.questions.ask_soon(),
            Ok(()) => {}
            Err(NotOpen::Refused(why)) => self.tell(question::refusal(id, why)),
            Err(NotOpen::NoMemory(none)) => {
                self.tell(question::refusal(id, NO_ANSWER));
                return Some(self.broke(no_memory(none)));
            }
        }
        None
    }

    /// Takes the server's answer to the call.
    fn answer(&mut self, message: &Bytes) -> Option<CallEnd> {
        if self.take_task(message) {
            return None;
        }
        self.refuse(NO_METHOD);
        let Some(reply) = self.reply.take() else {
            let mut held = self.questions.share(&self.session.server);
            if held.grow(message.len()).is_err() {
                return Some(self.unpark());
            }
            self.answered = Some((Bytes::copy_from_slice(message), held));
            return None;
        };
        self.finish(*reply, message);
        Some(CallEnd::Clean)
    }

    fn finish(&self, reply: CallReplySink, message: &Bytes) {
        match self.last(&reply.call, message) {
            // Whoever has left does not get it, and the server did its part.
            Ok(answer) => drop(reply.finish(answer)),
            Err(error) => reply.fail(error),
        }
    }

    /// What the server's answer is to the client, which makes this call.
    pub(crate) fn last(&self, call: &ModernCall, message: &Bytes) -> Result<CallAnswer, UpstreamError> {
        let server = &self.session.server;
        let upstream = server.upstream();
        let answer = server.client.read_json(|memory| answers::last(&upstream, call, message, memory))?;
        Ok(self.of_task(answer, &upstream))
    }

    /// Whether this came in reply to the call, and ends it.
    pub(crate) fn is_answer(&self, message: &Bytes) -> bool {
        // A reply that is no stream was looked at when it came.
        !self.made.as_task && (self.exchange.is_over() || self.session.server.is_answer(message, &self.own))
    }

    /// After the answer: the session for the next call, if nothing more is to be waited for.
    pub(crate) fn into_session(mut self: Box<Self>) -> Result<Box<ExclusiveSession>, Box<Self>> {
        match self.exchange.rest().now_or_never() {
            Some(None) => return Ok(self.session),
            Some(Some(message)) => self.session.server.refuse(&message),
            None => {}
        }
        Err(self)
    }

    /// The server ended it.
    fn broke(&mut self, error: UpstreamError) -> CallEnd {
        let Some(reply) = self.reply.take() else { return self.unpark() };
        match error {
            UpstreamError::SessionLost if !self.has_spoken => return CallEnd::Lost(reply),
            // The task was begun, whatever became of it.
            UpstreamError::SessionLost if self.task.is_some() => reply.fail(UpstreamError::Reset),
            error => reply.fail(error),
        }
        CallEnd::Spoilt
    }

    fn tell(&mut self, message: Bytes) {
        self.telling.push(SessionClient::tell(Rc::clone(&self.session.server), message).boxed_local());
    }

    /// Answers what the server still asks.
    fn refuse(&mut self, why: NotAsked) {
        for id in self.questions.take_all() {
            self.tell(question::refusal(&id, why));
        }
    }

    /// After the answer: reads what is left, so that the session is the next call's alone.
    async fn end(&mut self) -> CallEnd {
        let rest = async {
            for _ in 0..TELLING_MAX {
                let Some(message) = self.exchange.rest().await else { break };
                self.session.server.refuse(&message);
            }
        };
        let _ = timeout(END_PATIENCE, rest).await;
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
        self.learn_task().await;
        // What it says from now on reaches nobody, and its connection is needed for what it is told.
        self.exchange = CallExchange::Over;
        if self.is_taken
            && let Ok(Some(SessionCommand::Resume(reply, _))) =
                timeout(LAST_PATIENCE, self.session.commands.recv()).await
        {
            let rejected = suspended::rejected(&reply.call);
            reply.finish(rejected);
        }
        self.refuse(NO_ANSWER);
        let cancellation = match &self.task {
            Some(task) => tasks::message(next_number(), "tasks/cancel", &task.id),
            None => cancellation(&self.own, "the client waits no longer"),
        };
        self.tell(cancellation.into());
        let telling = &mut self.telling;
        // Whether it hears or not, the session is closed.
        self.session.server.last(LAST_PATIENCE, async { while telling.next().await.is_some() {} }).await;
    }
}
