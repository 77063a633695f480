//! A call that its server runs as a task: its result is asked for at once, and what the server asks meanwhile comes in
//! the reply to that or on the session's stream (2025-11-25 Tasks, "Task Result Retrieval").

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{Sleep, sleep_until};

use super::CallDriver;
use crate::clock;
use crate::upstream::bridge::as_modern::response_reader::{BridgedRequest, CallExchange};
use crate::upstream::bridge::as_modern::tasks::{self, Task};
use crate::upstream::bridge::next_number;
use protocol::splice::Segments;

/// The task that the call became.
pub(super) struct RunningTask {
    /// A literal.
    pub(super) id: Box<str>,
    /// Since when its client has heard nothing.
    quiet_from: Instant,
    quiet_max: Duration,
}

impl RunningTask {
    /// Completes when its client is to hear that the call is under way.
    pub(super) fn quiet(&self) -> Sleep {
        sleep_until((self.quiet_from + self.quiet_max).into())
    }
}

impl CallDriver<'_> {
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
        let Some(reply) = self.reply.as_ref().filter(|reply| reply.call.as_task && self.task.is_none())
        else {
            return false;
        };
        let server = &self.session.server;
        let Some(task) = Task::read(&server.client, message) else { return false };
        let upstream = server.upstream();
        if let Some(tool) = tasks::tool(&server.client, &upstream, &reply.call) {
            upstream.bridge.as_modern.tools.add(&tool);
        }
        let number = next_number();
        self.own = number.to_string().into();
        let request = BridgedRequest {
            payer: reply.call.caller.payer,
            message: Segments::from(Bytes::from(tasks::message(number, "tasks/result", &task.id))),
            id: self.own.clone(),
            headers: reply.call.headers.clone(),
            trail: reply.call.trail.clone(),
            is_safe_to_repeat: false,
            deadline: None,
        };
        std::mem::replace(&mut self.exchange, CallExchange::new(server, request)).finish();
        let quiet_max = tasks::comment_interval(&upstream);
        self.task = Some(RunningTask { id: task.id, quiet_from: clock::now(), quiet_max });
        self.keep_alive();
        true
    }
}
