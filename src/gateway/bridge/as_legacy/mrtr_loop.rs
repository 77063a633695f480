//! The line of one bridged call: a request to the server, what comes of it, what the client is asked on the way, and the
//! request again with its answers, until there is an answer for the client.
//!
//! It is read by whoever sends the reply to the client, and by nobody else: nothing goes on when that ends. Between the
//! client's answers it gives comments, so that nobody takes a client that thinks for a server that is silent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{sleep, sleep_until};

use super::call::{LegacyCall, LegacyReply};
use super::mrtr_round::{AnswerOutcome, MrtrRound};
use super::session::CallGuard;
use super::tools;
use crate::access::limit::shares::Share;
use crate::bridge::next_number;
use crate::clock;
use crate::upstream::get_stream::{self, Messages};
use crate::upstream::messages::ReplyPart;
use protocol::error::{UpstreamError, error_body};
use protocol::json::quote;
use protocol::sse::Event;
use protocol::translation::answer::{self, Said};
use protocol::translation::input::{ClientAnswer, Input, continuation};

/// The longest pause between two comments.
const COMMENT_INTERVAL_MAX: Duration = Duration::from_secs(15);
/// The code of a call that its client wants no answer to any more.
const CANCELLED: i32 = -32800;
/// The code of a call that cannot go on without an answer that the client does not give.
const REFUSED: i32 = -32603;
/// How much longer than a client may take its answer is waited for: who gives the client up says so here, and may be late.
const LATE_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct MrtrLoop {
    call: LegacyCall,
    underway: CallGuard,
    stage: MrtrStage,
    /// When the head of the next reply must be there, as long as the client was sent nothing.
    deadline: Option<Instant>,
    rounds: usize,
    /// The id that the server knows the request by; another one each time it is sent.
    own_id: String,
    may_list: bool,
    held: Share,
    /// What the client is told before anything else.
    waiting: VecDeque<Bytes>,
}

enum MrtrStage {
    /// The server is sent the request, with this in its `params`.
    Asking(String),
    Reading(Box<Messages>),
    Waiting(MrtrRound),
    Answered(Bytes),
    /// Only the end of the server's reply is missing.
    Ending(Box<Messages>),
    Over,
}

pub(super) enum MrtrEvent {
    /// That there is a stream of events.
    Begun,
    Part(ReplyPart),
    Answer(Bytes),
}

impl MrtrLoop {
    /// Begins; the first reply must have begun at `deadline`.
    pub(super) fn new(call: LegacyCall, deadline: Instant) -> Self {
        let underway = call.session.begin(call.id.clone());
        let held = call.open_share();
        Self {
            call,
            underway,
            stage: MrtrStage::Asking(String::new()),
            deadline: Some(deadline),
            rounds: 0,
            own_id: fresh_id(),
            may_list: true,
            held,
            waiting: VecDeque::new(),
        }
    }

    /// The first that the client is to see. An error: there is nothing but that.
    pub(super) async fn first(&mut self) -> Result<MrtrEvent, UpstreamError> {
        self.next().await?.ok_or(UpstreamError::Reset)
    }

    /// What comes next for the client; `None` at the end, and after an error.
    pub(super) async fn part(&mut self) -> Option<Result<ReplyPart, UpstreamError>> {
        self.deadline = None;
        loop {
            return match self.next().await.transpose()? {
                Ok(MrtrEvent::Begun) => continue,
                Ok(MrtrEvent::Part(part)) => Some(Ok(part)),
                Ok(MrtrEvent::Answer(answer)) => Some(Ok(ReplyPart::Message(answer))),
                Err(error) => {
                    self.stage = MrtrStage::Over;
                    Some(Err(error))
                }
            };
        }
    }

    async fn next(&mut self) -> Result<Option<MrtrEvent>, UpstreamError> {
        let (cancelled, ended) = (self.underway.cancelled.clone(), self.call.session.ended.clone());
        if matches!(self.stage, MrtrStage::Over | MrtrStage::Answered(_) | MrtrStage::Ending(..)) {
            return self.step().await;
        }
        tokio::select! {
            next = self.step() => next,
            () = cancelled.cancelled() => Ok(Some(self.give_up("the call was cancelled", CANCELLED))),
            () = ended.cancelled() => Ok(Some(self.give_up("the session is over", CANCELLED))),
        }
    }

    async fn step(&mut self) -> Result<Option<MrtrEvent>, UpstreamError> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(Some(MrtrEvent::Part(ReplyPart::Message(message))));
            }
            match &mut self.stage {
                MrtrStage::Asking(added) => {
                    let added = std::mem::take(added);
                    if let Some(next) = self.ask_server(added).await? {
                        return Ok(Some(next));
                    }
                }
                MrtrStage::Reading(messages) => {
                    // The end without an answer.
                    let ended = |event: Option<Event>| event.ok_or(UpstreamError::Reset);
                    let event = messages.next().await.and_then(ended);
                    let event = event.inspect_err(|error| messages.note_error(error))?;
                    let message = get_stream::nonempty_message(event);
                    let Some(message) = message else {
                        return Ok(Some(MrtrEvent::Part(ReplyPart::KeepAlive)));
                    };
                    if let Some(next) = self.take(&message).await? {
                        return Ok(Some(next));
                    }
                }
                MrtrStage::Waiting(waiting) => {
                    let interval = (self.call.upstream.config.stream_idle_timeout / 3)
                        .clamp(Duration::from_millis(1), COMMENT_INTERVAL_MAX);
                    let until =
                        waiting.since + self.call.upstream.config.client_response_timeout + LATE_PATIENCE;
                    tokio::select! {
                        answer = waiting.next() => {
                            if let Some(next) = self.take_answer(answer)? {
                                return Ok(Some(next));
                            }
                        }
                        () = sleep_until(until.into()) => {
                            let why = waiting.unanswered("nothing was heard of it in time");
                            return Ok(Some(self.give_up(&why, REFUSED)));
                        }
                        () = sleep(interval) => return Ok(Some(MrtrEvent::Part(ReplyPart::KeepAlive))),
                    }
                }
                MrtrStage::Answered(answer) => {
                    let answer = std::mem::take(answer);
                    self.stage = MrtrStage::Over;
                    return Ok(Some(MrtrEvent::Answer(answer)));
                }
                MrtrStage::Ending(..) => {
                    if let MrtrStage::Ending(messages) = std::mem::replace(&mut self.stage, MrtrStage::Over) {
                        messages.drain().await;
                    }
                }
                MrtrStage::Over => return Ok(None),
            }
        }
    }

    /// Sends the request. `None`: go on with the stage that it led to.
    async fn ask_server(&mut self, added: String) -> Result<Option<MrtrEvent>, UpstreamError> {
        let response_timeout = self.call.upstream.config.response_timeout;
        let deadline = self.deadline.unwrap_or_else(|| clock::now() + response_timeout);
        if self.may_list && self.call.is_of_tool() {
            tools::list_once(&self.call, deadline).await;
        }
        let came = self.call.send(&added, &self.own_id, deadline).await?;
        // Should its headers be wrong, it is sent once more.
        self.stage = MrtrStage::Asking(added);
        match came {
            LegacyReply::Message(message, _held) => self.take(&message).await,
            LegacyReply::Events(messages) => {
                self.stage = MrtrStage::Reading(messages);
                Ok(Some(MrtrEvent::Begun))
            }
        }
    }

    async fn take(&mut self, message: &Bytes) -> Result<Option<MrtrEvent>, UpstreamError> {
        let ids = self.call.ids(&self.own_id);
        let may_ask = self.call.may_ask();
        let said = self.call.client.read_json(|memory| answer::read(message, ids, may_ask, memory));
        let is_alone = matches!(self.stage, MrtrStage::Asking(_));
        match said {
            Said::Answer(answer) => {
                self.leave();
                Ok(Some(MrtrEvent::Answer(answer.to_bytes())))
            }
            Said::Input(input) => {
                if let MrtrStage::Reading(messages) = std::mem::replace(&mut self.stage, MrtrStage::Over) {
                    self.call.client.tasks.spawn_unboxed(messages.drain());
                }
                self.ask_client(input.detached())
            }
            Said::Notification(notification) if !is_alone => {
                Ok(Some(MrtrEvent::Part(ReplyPart::Message(notification.to_bytes()))))
            }
            Said::Other if !is_alone => {
                tracing::debug!(
                    upstream = self.call.upstream.config.name,
                    "a message that belongs to no call is withheld"
                );
                Ok(None)
            }
            Said::Mismatch if self.may_list && is_alone => {
                self.may_list = false;
                self.call.upstream.changes.note_refusal(clock::now());
                let patience = self.call.upstream.config.list_timeout;
                tools::list_anew(&self.call, clock::now() + patience).await;
                self.own_id = fresh_id();
                Ok(None)
            }
            Said::Version => {
                self.call.upstream.facts.doubt();
                Err(UpstreamError::Nonsense)
            }
            Said::Mismatch | Said::Notification(_) | Said::Other | Said::Invalid => {
                Err(UpstreamError::Nonsense)
            }
        }
    }

    /// The server has said what it has to say.
    fn leave(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, MrtrStage::Over) {
            MrtrStage::Reading(messages) => MrtrStage::Ending(messages),
            _ => MrtrStage::Over,
        };
    }

    /// The server wants to know more.
    fn ask_client(&mut self, input: Input) -> Result<Option<MrtrEvent>, UpstreamError> {
        let (upstream, session) = (&self.call.upstream, &self.call.session);
        upstream.bridge.series.input_requests.legacy.inc();
        self.rounds += 1;
        if self.rounds > upstream.config.bridge.input_requests_max {
            return Err(UpstreamError::TooManyRounds);
        }
        if input.state.as_ref().is_some_and(|state| state.len() > upstream.config.bridge.state_bytes_max) {
            return Err(UpstreamError::TooLarge);
        }
        // What was held for the round before is gone.
        self.held = self.call.open_share();
        self.held
            .grow(self.call.message.len() + input.bytes())
            .map_err(|_| UpstreamError::TooManyConnections)?;
        self.own_id = fresh_id();
        if input.questions.is_empty() {
            self.stage = MrtrStage::Asking(continuation(&[], input.state.as_ref()));
            return Ok(None);
        }
        let (round, questions) = MrtrRound::begin(session, input)?;
        self.stage = MrtrStage::Waiting(round);
        self.waiting.extend(questions);
        Ok(None)
    }

    /// The client answers a question.
    fn take_answer(
        &mut self,
        answer: Option<(u64, ClientAnswer)>,
    ) -> Result<Option<MrtrEvent>, UpstreamError> {
        let MrtrStage::Waiting(waiting) = &mut self.stage else { return Ok(None) };
        let (number, answer) = answer.ok_or(UpstreamError::Reset)?;
        let bytes = match waiting.take(number, answer) {
            AnswerOutcome::More(bytes) => bytes,
            AnswerOutcome::Last(bytes, added) => {
                self.stage = MrtrStage::Asking(added);
                bytes
            }
            AnswerOutcome::Refused(why) => return Ok(Some(self.give_up(&why, REFUSED))),
        };
        self.held.grow(bytes).map(|()| None).map_err(|_| UpstreamError::TooManyConnections)
    }

    /// The call ends with an error of this code; questions that wait need no answer any more.
    fn give_up(&mut self, why: &str, code: i32) -> MrtrEvent {
        let stage = std::mem::replace(&mut self.stage, MrtrStage::Over);
        let error = format!(r#"{{"code":{code},"message":{}}}"#, quote(why));
        let answer = Bytes::from(error_body(Some(self.call.client_id()), &error));
        let MrtrStage::Waiting(waiting) = stage else { return MrtrEvent::Answer(answer) };
        self.waiting.extend(waiting.withdraw(why));
        let Some(first) = self.waiting.pop_front() else { return MrtrEvent::Answer(answer) };
        self.stage = MrtrStage::Answered(answer);
        MrtrEvent::Part(ReplyPart::Message(first))
    }

    /// The rest of a reply is read by itself, where nobody reads it on.
    pub(super) fn finish(self) {
        if let MrtrStage::Ending(messages) = self.stage {
            self.call.client.tasks.spawn_unboxed(messages.drain());
        }
    }
}

fn fresh_id() -> String {
    format!("\"trunkline-{}\"", next_number())
}
