//! One call on a session that is its own meanwhile, from its request to its end: suspension while its client is asked.
//!
//! What the server says in its reply and on the session's stream belongs to this call. Its requests end the client's
//! exchange with `input_required`; the client comes back with another one, which is given what follows.
//!
//! Invariant: the server gets one answer to each of its requests, and the client's call one end.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{sleep_until, timeout};

use super::answers::{self, CallAnswer};
use super::call_reply::CallReplySink;
use super::exclusive_session::{ExclusiveSession, SessionCommand};
use super::open_questions::{OpenQuestions, QUESTIONS_MAX};
use super::response_reader::{BridgedRequest, CallExchange};
use super::server_message::{self, ServerMessage};
use super::session_client::{SessionClient, cancellation};
use super::state::Binding;
use super::suspended::{self, LaterLines, Suspension};
use crate::access::limit::shares::Share;
use crate::clock;
use crate::upstream::bridge::{next_number, or_never};
use crate::upstream::mux::queue::NotSent;
use protocol::error::UpstreamError;
use protocol::json::Span;
use protocol::level::Level;
use protocol::server_request::{NO_METHOD, NotAsked};
use protocol::splice::{Edit, splice};
use protocol::translation::question;

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

struct CallDriver<'s> {
    session: &'s mut ExclusiveSession,
    exchange: CallExchange,
    /// The literal of the id, and of the progress token, that the server knows the call by.
    own: Box<str>,
    reply: Option<Box<CallReplySink>>,
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

enum DriverEvent {
    Reply(Result<Option<Bytes>, UpstreamError>),
    Notification(Bytes),
    Told(Result<(), UpstreamError>),
    Left,
    Command(Option<SessionCommand>),
    Ask,
    Expired,
    Ending,
    Cut,
}

pub(crate) async fn run(session: &mut ExclusiveSession, reply: Box<CallReplySink>) -> CallEnd {
    if reply.is_closed() {
        return CallEnd::Clean;
    }
    let _ = timeout(LAST_PATIENCE, Box::pin(session.clear())).await;
    let own: Box<str> = next_number().to_string().into();
    let call = &reply.call;
    let message = session.server.client.read_json(|memory| call.to_legacy((&own, &own), "", memory));
    let Ok(message) = message else {
        reply.fail(UpstreamError::Nonsense);
        return CallEnd::Clean;
    };
    let request = BridgedRequest {
        payer: call.caller.payer,
        message,
        id: own.clone(),
        headers: call.headers.clone(),
        trail: call.trail.clone(),
        is_safe_to_repeat: false,
        deadline: None,
    };
    let exchange = CallExchange::new(&session.server, request);
    let driver = CallDriver {
        may_be_asked: call.may_be_asked,
        questions: OpenQuestions::of(call.caller.payer),
        session,
        exchange,
        own,
        reply: Some(reply),
        has_spoken: false,
        rounds: 0,
        binding: None,
        suspension: None,
        is_taken: false,
        answered: None,
        later: LaterLines::default(),
        telling: FuturesUnordered::new(),
    };
    driver.run().await
}

impl CallDriver<'_> {
    async fn run(mut self) -> CallEnd {
        loop {
            let next = self.next().await;
            let ended = match next {
                DriverEvent::Reply(message) => self.take(message),
                DriverEvent::Notification(message) => self.receive(&message),
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
        let host = Rc::clone(&self.session.server.client.host);
        let is_suspended = self.suspension.is_some();
        let listens = self.telling.len() < TELLING_MAX;
        let expiry = self.suspension.as_ref().map(|suspension| sleep_until(suspension.until.into()));
        tokio::select! {
            biased;
            () = host.cut() => DriverEvent::Cut,
            told = self.telling.next(), if !self.telling.is_empty() => DriverEvent::Told(told.unwrap_or(Ok(()))),
            // What was said there before the answer is read before the answer.
            message = self.session.notifications.message(), if listens => DriverEvent::Notification(message),
            message = self.exchange.next(), if listens => DriverEvent::Reply(message),
            command = self.session.commands.recv(), if is_suspended => DriverEvent::Command(command),
            () = or_never(self.reply.as_deref().map(CallReplySink::closed)) => DriverEvent::Left,
            () = or_never(self.questions.ask_at.map(|at| sleep_until(at.into()))) => DriverEvent::Ask,
            () = or_never(expiry) => DriverEvent::Expired,
            () = self.session.retired.cancelled(), if is_suspended => DriverEvent::Ending,
            () = host.closing(), if is_suspended => DriverEvent::Ending,
        }
    }

    /// Takes what came in the reply.
    fn take(&mut self, message: Result<Option<Bytes>, UpstreamError>) -> Option<CallEnd> {
        match message {
            Ok(None) => {
                if let Some(reply) = &self.reply {
                    reply.keep_alive();
                }
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
            Err(error) => Some(self.broke(error)),
        }
    }

    /// Takes a message of the server.
    fn receive(&mut self, message: &Bytes) -> Option<CallEnd> {
        let incoming = server_message::read(&self.session.server, message, &self.own)?;
        self.has_spoken = true;
        match incoming {
            ServerMessage::Answer => return self.answer(message),
            ServerMessage::Request { id, is_ping: true } => self.tell(question::answer(&id, b"{}")),
            ServerMessage::Request { id, .. } => self.ask(message, &id),
            ServerMessage::Progress(token) => return self.progress(message, token),
            ServerMessage::Log(level) => return self.log(message, level),
            ServerMessage::TakenBack(id) => self.questions.withdraw(&id),
            // What the user was to do elsewhere is done: the server is told, and the client need not say so.
            ServerMessage::Elicited(id) => {
                if let Some(id) = self.questions.elicited(&id) {
                    self.tell(question::answer(&id, br#"{"action":"accept"}"#));
                }
            }
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
        let is_full = self.reply.as_ref()?.tell(message) == Err(NotSent::Full);
        is_full.then(|| self.broke(UpstreamError::TooLarge))
    }

    /// Takes a question of the server.
    fn ask(&mut self, message: &Bytes, id: &[u8]) {
        // The answer to the first is that to the second.
        if self.questions.has(id) {
            return;
        }
        let asked = if !self.may_be_asked || self.answered.is_some() {
            Err(NO_METHOD)
        } else {
            // A retry may declare less than the session was opened with.
            let declared = self.reply.as_ref().map(|reply| &*reply.call.capabilities);
            let declared = declared.unwrap_or(self.session.key.capabilities.as_bytes());
            self.questions.add(&self.session.server, message, id, declared)
        };
        match asked {
            Ok(()) if self.reply.is_some() => self.questions.ask_soon(),
            Ok(()) => {}
            Err(why) => self.tell(question::refusal(id, why)),
        }
    }

    /// Takes the server's answer to the call.
    fn answer(&mut self, message: &Bytes) -> Option<CallEnd> {
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
        let server = &self.session.server;
        let upstream = server.upstream();
        let answer = server.client.read_json(|memory| answers::last(&upstream, &reply.call, message, memory));
        match answer {
            // Whoever has left does not get it, and the server did its part.
            Ok(answer) => drop(reply.finish(answer)),
            Err(error) => reply.fail(error),
        }
    }

    /// Asks the client, which is to come back with its answers.
    fn park(&mut self) -> Option<CallEnd> {
        self.questions.ask_at = None;
        let reply = self.reply.take()?;
        let (client, upstream) = (&self.session.server.client, self.session.server.upstream());
        let bounds = &upstream.config.bridge;
        self.rounds += 1;
        if self.rounds > bounds.input_requests_max {
            reply.fail(UpstreamError::TooManyRounds);
            return Some(CallEnd::Spoilt);
        }
        if self.binding.is_none() {
            let whose = (&*upstream.session_key, &*self.session.key.principal);
            self.binding = client.read_json(|memory| Binding::of(whose, &reply.call.message, memory));
        }
        let Some(binding) = self.binding else {
            reply.fail(UpstreamError::Nonsense);
            return Some(CallEnd::Spoilt);
        };
        let whose = (self.questions.payer, binding);
        let parks = &upstream.bridge.series.suspensions;
        let entered =
            upstream.bridge.as_modern.suspended.enter(bounds, whose, self.session.own_commands.clone());
        let Ok((number, state)) = entered else {
            parks.refused.inc();
            reply.fail(UpstreamError::TooManySuspended);
            return Some(CallEnd::Spoilt);
        };
        let message = self.questions.input_required(&reply.call.id, &state);
        self.suspension =
            Some(Suspension::new(&upstream.bridge, number, clock::now() + bounds.suspended_call_timeout));
        upstream.bridge.series.input_requests.modern.inc();
        if !reply.finish(CallAnswer { status: http::StatusCode::OK, message }) {
            return Some(self.unpark());
        }
        None
    }

    /// The client is back.
    fn resume(&mut self, command: Option<SessionCommand>) -> Option<CallEnd> {
        let Some(SessionCommand::Resume(reply, answers)) = command else { return None };
        self.suspension = None;
        self.may_be_asked = reply.call.may_be_asked;
        let series = &self.session.server.bridge.series;
        series.suspensions.resumed.inc();
        for (key, answer) in answers {
            if let Some(id) = self.questions.answered(&key) {
                self.tell(question::answer(&id, &answer));
            }
        }
        if let Some((message, _)) = self.answered.take() {
            self.finish(*reply, &message);
            return Some(CallEnd::Clean);
        }
        for (level, message) in std::mem::take(&mut self.later.0) {
            if reply.call.wants(level) {
                let _ = reply.tell(message);
            }
        }
        reply.keep_alive();
        self.reply = Some(reply);
        self.questions.ask_now();
        None
    }

    /// The server ended it.
    fn broke(&mut self, error: UpstreamError) -> CallEnd {
        let Some(reply) = self.reply.take() else { return self.unpark() };
        if error == UpstreamError::SessionLost && !self.has_spoken {
            return CallEnd::Lost(reply);
        }
        reply.fail(error);
        CallEnd::Spoilt
    }

    /// The client was waited for long enough.
    fn expire(&mut self) -> Option<CallEnd> {
        let suspension = self.suspension.as_mut()?;
        if !suspension.leave() {
            // It is on its way.
            suspension.until = clock::now() + LAST_PATIENCE;
            return None;
        }
        self.suspension = None;
        self.session.server.bridge.series.suspensions.expired.inc();
        Some(CallEnd::Spoilt)
    }

    /// The call is lost while it waits, if it does.
    fn unpark(&mut self) -> CallEnd {
        if let Some(suspension) = self.suspension.take() {
            self.is_taken = !suspension.leave();
            suspension.bridge.series.suspensions.lost.inc();
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
    async fn end(mut self) -> CallEnd {
        let until = clock::now() + END_PATIENCE;
        loop {
            let rest = tokio::time::timeout_at(until.into(), self.exchange.rest()).await;
            let Ok(Some(message)) = rest else { break };
            if self.telling.len() >= TELLING_MAX {
                break;
            }
            if let Some(ServerMessage::Request { id, is_ping }) =
                server_message::read(&self.session.server, &message, &self.own)
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
        self.exchange = CallExchange::Over;
        if self.is_taken
            && let Ok(Some(SessionCommand::Resume(reply, _))) =
                timeout(LAST_PATIENCE, self.session.commands.recv()).await
        {
            let rejected = suspended::rejected(&reply.call);
            reply.finish(rejected);
        }
        self.refuse(NO_ANSWER);
        self.tell(cancellation(&self.own, "the client waits no longer").into());
        let telling = &mut self.telling;
        // Whether it hears or not, the session is closed.
        self.session.server.last(LAST_PATIENCE, async { while telling.next().await.is_some() {} }).await;
    }
}
