//! Tools that a legacy server runs as tasks alone (2025-11-25 Tasks, "Tool-Level Negotiation"): the gateway makes the
//! task, waits for it, and hands its result to the client, which knows nothing of it.
//!
//! Which tools these are the server's list says (`taskSupport`), and where nobody listed them, it shows when they are
//! called: the server refuses a call without a task, and has executed nothing. What it refused is remembered until it
//! refuses a task. Some refuse in a result instead, which is not looked at.
//!
//! A task of a client that can be asked, or wants log lines, is made on a session of its own, by
//! [`super::call_driver`]: its result is asked for at once, and what the server asks comes on the way there. Here is the
//! task of any other client, which is made in a session that declares nothing, so that there are no questions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::time::{Sleep, sleep};

use super::answers;
use super::call::ModernCall;
use super::multiplexed::{CallInProgress, ServerEvent, failure};
use super::response_reader::{BridgedRequest, ReplyStart};
use super::session_client::SessionClient;
use super::session_stream::SessionStream;
use super::shared_session::SharedSessions;
use crate::bridge::{BridgedServer, next_number};
use crate::clock;
use crate::upstream::Upstream;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::headers::ForwardedFields;
use crate::upstream::messages::{MessageStream, ReplyPart};
use protocol::error::UpstreamError;
use protocol::json::{Document, Value};
use protocol::method::Method;
use protocol::splice::Segments;

/// For how long servers are asked to keep what came of a task.
pub(crate) const TTL: &str = r#""task":{"ttl":3600000}"#;
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// What came of a task is to be had for some time after it is looked at, whenever it was done.
const POLL_INTERVAL_MAX: Duration = Duration::from_mins(15);
/// A server that did not say how a task stands is asked again no later than this.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// The longest time in which a client hears nothing of its task.
const COMMENT_INTERVAL_MAX: Duration = Duration::from_secs(15);
/// For clients that are kept by nothing else.
const COMMENT_INTERVAL_MIN: Duration = Duration::from_millis(1);
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
/// So often in a row a server may not say how a task stands.
const FAILURES_MAX: u32 = 3;

/// The tool that is called, if the server makes tasks of such calls.
pub(crate) fn tool(client: &UpstreamClient, upstream: &BridgedServer, call: &ModernCall) -> Option<String> {
    let servers = &upstream.bridge.as_modern.servers;
    if call.method != Method::ToolsCall || !client.read_json(|memory| servers.takes_tasks(upstream, memory)) {
        return None;
    }
    Some(call.name.as_ref()?.decode(&call.message)?.into_owned())
}

/// Makes the call of this tool as a task.
pub(crate) async fn call(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: Arc<ModernCall>,
    tool: &str,
) -> Result<Reply, UpstreamError> {
    let mut may_reopen = true;
    loop {
        let using = SharedSessions::get(client, upstream, &call.caller, call.deadline).await?;
        let mut running = CallInProgress::begin(client, upstream, using, &call);
        let read =
            |server: &SessionClient, _: &ModernCall, id: &str, whole: &Bytes| server.own_answer(whole, id);
        let answer = match running.post(TTL, None, read).await? {
            ReplyStart::Answer(answer) => answer,
            ReplyStart::Stream(stream) => {
                let answered = answer_of(&running, stream);
                tokio::time::timeout_at(call.deadline.into(), answered)
                    .await
                    .unwrap_or(Err(UpstreamError::TimedOut))?
            }
            ReplyStart::SessionLost => {
                running.is_over = true;
                running.using.lose();
                if !std::mem::take(&mut may_reopen) || running.server.is_sessionless() {
                    return Err(running.server.lost());
                }
                continue;
            }
        };
        running.is_over = true;
        let Some(task) = Task::read(client, &answer) else {
            return running.last(&answer).map(answers::CallAnswer::into_reply);
        };
        upstream.task_only.add(tool);
        return Ok(messages(TaskDriver::new(running, task)));
    }
}

async fn answer_of(running: &CallInProgress, mut stream: Box<SessionStream>) -> Result<Bytes, UpstreamError> {
    loop {
        match stream.next().await? {
            Some(message) if running.server.is_answer(&message, &running.id) => {
                stream.finish();
                return Ok(message);
            }
            // Nobody hears of its progress yet.
            Some(message) => drop(running.translate(&message)),
            None => {}
        }
    }
}

/// How long a client of this upstream may hear nothing of its task.
pub(crate) fn comment_interval(upstream: &Upstream) -> Duration {
    (upstream.config.stream_idle_timeout / 3).clamp(COMMENT_INTERVAL_MIN, COMMENT_INTERVAL_MAX)
}

/// A request about the task with this id, a literal.
pub(crate) fn message(id: u64, method: &str, task_id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"taskId":{task_id}}}}}"#)
}

/// How a task stands.
pub(crate) struct Task {
    /// A literal.
    pub id: Box<str>,
    is_under_way: bool,
    poll_interval: Duration,
}

impl Task {
    /// Reads an answer that makes a task, or tells of one.
    pub(crate) fn read(client: &UpstreamClient, answer: &Bytes) -> Option<Self> {
        client.read_json(|(scratch, depth_max)| {
            let result = scratch.index(answer, depth_max).map(Document::root).ok()?.get("result")?;
            let task = result.get("task").unwrap_or(result);
            let id = task.get("taskId").filter(|id| id.as_literal().is_some())?;
            let status = task.get("status").and_then(Value::as_literal);
            let is_under_way = status.is_some_and(|status| status.equals(answer, "working"));
            let interval = task.get("pollInterval").and_then(Value::as_integer);
            let interval = interval.and_then(|interval| u64::try_from(interval).ok());
            let interval = interval.map_or(POLL_INTERVAL, Duration::from_millis);
            Some(Self {
                id: std::str::from_utf8(id.raw()).ok()?.into(),
                is_under_way,
                poll_interval: interval.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX),
            })
        })
    }
}

/// A task under way. Dropped before its result, it is cancelled.
struct TaskDriver {
    running: CallInProgress,
    task: Task,
    pause: std::pin::Pin<Box<Sleep>>,
    failures: u32,
    /// Where its result comes, as the answer to the request with this id.
    result: Option<(Box<SessionStream>, Box<str>)>,
    is_over: bool,
}

fn messages(driven: TaskDriver) -> Reply {
    let parts = stream::unfold(driven, |mut driven| async move {
        if driven.is_over {
            return None;
        }
        let part = match driven.next().await {
            Ok(part) => part,
            Err(error) => {
                let told = Bytes::from(failure(&driven.running.call, error));
                driven.cancel();
                driven.is_over = true;
                ReplyPart::Message(told)
            }
        };
        Some((Ok(part), driven))
    });
    MessageStream::reply(parts)
}

impl TaskDriver {
    fn new(running: CallInProgress, task: Task) -> Self {
        let pause = Box::pin(sleep(task.poll_interval));
        Self { running, task, pause, failures: 0, result: None, is_over: false }
    }

    async fn next(&mut self) -> Result<ReplyPart, UpstreamError> {
        loop {
            if let Some((stream, id)) = &mut self.result {
                match self.running.next(stream, id).await? {
                    ServerEvent::Nothing => return Ok(ReplyPart::KeepAlive),
                    ServerEvent::Message(message) => return Ok(ReplyPart::Message(message)),
                    ServerEvent::Answer(answer) => {
                        if let Some((stream, _)) = self.result.take() {
                            stream.finish();
                        }
                        return self.finish(&answer);
                    }
                }
            } else if self.task.is_under_way {
                let quiet = comment_interval(&self.running.server.upstream());
                tokio::select! {
                    () = &mut self.pause => {}
                    () = sleep(quiet) => return Ok(ReplyPart::KeepAlive),
                    message = self.running.told_elsewhere() => {
                        if let Some(message) = self.running.translate(&message) {
                            return Ok(ReplyPart::Message(message));
                        }
                        continue;
                    }
                }
                self.look().await?;
                let pause = self.task.poll_interval;
                let pause = if self.failures > 0 { pause.min(RETRY_INTERVAL_MAX) } else { pause };
                self.pause = Box::pin(sleep(pause));
                return Ok(ReplyPart::KeepAlive);
            } else if let Some(answer) = self.ask_for_result().await? {
                return self.finish(&answer);
            }
        }
    }

    /// Asks how the task stands.
    async fn look(&mut self) -> Result<(), UpstreamError> {
        let server = &self.running.server;
        let answer = server.ask(self.message(next_number(), "tasks/get"), POLL_TIMEOUT).await;
        match answer.ok().and_then(|answer| Task::read(&server.client, &answer.body)) {
            Some(task) => {
                self.failures = 0;
                self.task.is_under_way = task.is_under_way;
                self.task.poll_interval = task.poll_interval;
                Ok(())
            }
            None if self.failures < FAILURES_MAX => {
                self.failures += 1;
                Ok(())
            }
            None => Err(UpstreamError::Nonsense),
        }
    }

    /// Asks for the result; `None`: it comes as an event.
    async fn ask_for_result(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let server = &self.running.server;
        let id = next_number();
        let posted = BridgedRequest {
            payer: self.running.payer(),
            message: Segments::from(Bytes::from(self.message(id, "tasks/result"))),
            id: id.to_string().into(),
            forwarded: ForwardedFields::default(),
            trail: None,
            silence: None,
            place: None,
            is_safe_to_repeat: true,
            deadline: Some(clock::now() + server.upstream().config.response_timeout),
        };
        match server.post(posted).await? {
            ReplyStart::Answer(answer) => Ok(Some(answer)),
            ReplyStart::Stream(stream) => {
                self.result = Some((stream, id.to_string().into()));
                Ok(None)
            }
            ReplyStart::SessionLost => Err(UpstreamError::SessionLost),
        }
    }

    fn finish(&mut self, answer: &Bytes) -> Result<ReplyPart, UpstreamError> {
        self.is_over = true;
        let answer = self.running.last(answer)?;
        Ok(ReplyPart::Message(answer.message))
    }

    fn message(&self, id: u64, method: &str) -> String {
        message(id, method, &self.task.id)
    }

    fn cancel(&self) {
        self.running.server.tell_unawaited(self.message(next_number(), "tasks/cancel"));
    }
}

impl Drop for TaskDriver {
    fn drop(&mut self) {
        if !self.is_over {
            self.cancel();
        }
    }
}
