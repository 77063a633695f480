//! A call that its server runs as a task: its result is asked for at once, and what the server asks meanwhile comes in
//! the reply to that or on the session's stream (2025-11-25 Tasks, "Task Result Retrieval").

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Sleep, sleep_until, timeout};

use super::{CallDriver, LAST_PATIENCE};
use crate::bridge::as_modern::answers::CallAnswer;
use crate::bridge::as_modern::response_reader::{BridgedRequest, CallExchange};
use crate::bridge::as_modern::tasks::{self, Task};
use crate::bridge::{BridgedServer, next_number};
use crate::clock;
use crate::upstream::Upstream;
use protocol::error::UpstreamError;
use protocol::splice::Segments;

/// So often the result may not be had.
const FAILURES_MAX: u32 = 3;
/// How long after that it is asked for again; twice as long each time.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The task that the call became.
pub(super) struct RunningTask {
    /// A literal.
    pub(super) id: Box<str>,
    /// Since when its client has heard nothing.
    quiet_from: Instant,
    quiet_max: Duration,
    failures: u32,
    /// When its result is asked for again.
    again_at: Option<Instant>,
}

impl RunningTask {
    fn new(task: Task, upstream: &Upstream) -> Self {
        let quiet_max = tasks::comment_interval(upstream);
        Self { id: task.id, quiet_from: clock::now(), quiet_max, failures: 0, again_at: None }
    }

    /// Completes when its client is to hear that the call is under way.
    pub(super) fn quiet(&self) -> Sleep {
        sleep_until((self.quiet_from + self.quiet_max).into())
    }

    /// Completes when its result is to be asked for again. `None`: it is not.
    pub(super) fn again(&self) -> Option<Sleep> {
        Some(sleep_until(self.again_at?.into()))
    }
}

impl CallDriver {
    /// Tells the client that its call is under way.
    pub(super) fn keep_alive(&mut self) {
        if let Some(reply) = &self.reply {
            reply.keep_alive();
        }
        if let Some(task) = &mut self.task {
            task.quiet_from = clock::now();
        }
    }

    /// Asks for the result of the task that the server has made, if the answer says so. False: it is another answer.
    pub(super) fn take_task(&mut self, message: &Bytes) -> bool {
        if !self.made.as_task || self.task.is_some() {
            return false;
        }
        let server = &self.session.server;
        let Some(task) = Task::read(&server.client, message) else { return false };
        let upstream = server.upstream();
        if let Some(tool) = tasks::tool(&server.client, &upstream, &self.made) {
            upstream.task_only.add(&tool);
        }
        self.task = Some(RunningTask::new(task, &upstream));
        self.ask_for_result();
        self.keep_alive();
        true
    }

    pub(super) fn ask_for_result(&mut self) {
        let Some(task) = &mut self.task else { return };
        task.again_at = None;
        let number = next_number();
        self.own = number.to_string().into();
        let request = BridgedRequest {
            payer: self.made.caller.payer,
            message: Segments::from(Bytes::from(tasks::message(number, "tasks/result", &task.id))),
            id: self.own.clone(),
            forwarded: self.made.forwarded.clone(),
            trail: self.made.trail.clone(),
            silence: None,
            place: None,
            is_safe_to_repeat: true,
            deadline: None,
        };
        let exchange = CallExchange::new(&self.session.server, request);
        std::mem::replace(&mut self.exchange, exchange).finish();
    }

    /// The exchange failed. True: it was for the result of a task, which is asked for again after a while.
    pub(super) fn asks_again(&mut self, error: &UpstreamError) -> bool {
        let Some(task) = &mut self.task else { return false };
        if task.failures >= FAILURES_MAX || *error == UpstreamError::SessionLost {
            return false;
        }
        task.again_at = Some(clock::now() + AGAIN_AFTER * 2_u32.pow(task.failures));
        task.failures += 1;
        true
    }

    /// An answer to the client, with what it says of the task.
    pub(super) fn of_task(&self, answer: CallAnswer, upstream: &BridgedServer) -> CallAnswer {
        if self.task.is_some() {
            // It was executed, whatever came of it.
            return CallAnswer { status: StatusCode::OK, ..answer };
        }
        let server = &self.session.server;
        if self.made.as_task
            && answer.status == StatusCode::NOT_FOUND
            && let Some(tool) = tasks::tool(&server.client, upstream, &self.made)
        {
            upstream.task_only.remove(&tool);
        }
        answer
    }

    /// Waits a while for the id of a task that the server may have made, so that it can be cancelled.
    pub(super) async fn learn_task(&mut self) {
        if !self.made.as_task || self.task.is_some() {
            return;
        }
        let server = Rc::clone(&self.session.server);
        let (own, exchange) = (&self.own, &mut self.exchange);
        let answer = async {
            while let Ok(message) = exchange.next().await {
                if let Some(message) = message.filter(|message| server.is_answer(message, own)) {
                    return Task::read(&server.client, &message);
                }
            }
            None
        };
        let Ok(Some(task)) = timeout(LAST_PATIENCE, answer).await else { return };
        self.task = Some(RunningTask::new(task, &server.upstream()));
    }
}
