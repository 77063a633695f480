//! A call that its own caller makes, on a session that rests on its thread: without a task and without a queue, as long as
//! the server says nothing but the answer.
//!
//! With anything else that happens, the session's keeper goes on with the call ([`super::exclusive_session`]), and the
//! caller waits for what comes of it. So it does when the caller leaves: the server is to be told.
//!
//! Invariant: the session comes back to its slot, by itself or with the call.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::answers::CallAnswer;
use super::call::ModernCall;
use super::call_driver::{CallDriver, DriverEvent};
use super::call_reply::{CallReplySink, HeadPatience};
use super::exclusive_session::ExclusiveSession;
use super::session_slot::SessionSlot;
use crate::bridge::BridgedServer;
use crate::upstream::exchange::{Reply, UpstreamClient};
use protocol::error::UpstreamError;

/// A call under way. Dropped before its answer, its client has left.
struct DirectCall {
    slot: Rc<SessionSlot>,
    /// `None`: the session is back.
    driver: Option<Box<CallDriver>>,
    /// For how long the session may rest.
    idle_timeout: Duration,
}

/// Makes the call on the session of this slot.
pub(crate) async fn call(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: Arc<ModernCall>,
    (slot, session): (Rc<SessionSlot>, Box<ExclusiveSession>),
) -> Result<Reply, UpstreamError> {
    let idle_timeout = upstream.config.bridge.session_idle_timeout;
    let driver = Some(CallDriver::new(session, &call));
    let mut running = DirectCall { slot, driver, idle_timeout };
    let mut patience = HeadPatience::new(call.deadline);
    let event = loop {
        let Some(driver) = &mut running.driver else { return Err(UpstreamError::Reset) };
        let happened = patience.wait(pin!(driver.next_of_direct())).await?;
        match happened {
            Some(DriverEvent::Reply(Ok(None))) => patience.begin(),
            Some(DriverEvent::Reply(Ok(Some(message)))) if running.is_answer(&message) => {
                return running.finish(&call, &message).map(CallAnswer::into_reply);
            }
            Some(event) => break event,
            None => break DriverEvent::KeepAlive,
        }
    };
    let (reply, waiting) = CallReplySink::new(client, call);
    running.hand_over(Some(reply), event);
    // Nobody but its keeper holds what was handed over.
    drop(running);
    waiting.reply(patience).await
}

impl DirectCall {
    fn is_answer(&self, message: &Bytes) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.is_answer(message))
    }

    /// Ends the call with the server's answer.
    fn finish(mut self, call: &ModernCall, message: &Bytes) -> Result<CallAnswer, UpstreamError> {
        // Until it is translated the call is not over, whatever happens.
        let answer = self.driver.as_ref().map(|driver| driver.last(call, message));
        let (Some(answer), Some(driver)) = (answer, self.driver.take()) else {
            return Err(UpstreamError::Reset);
        };
        match driver.into_session() {
            Ok(session) => self.slot.put_back(session, self.idle_timeout),
            Err(driver) => self.slot.hand_over(driver, DriverEvent::Answered),
        }
        answer
    }

    /// Leaves the call to the keeper, its client waiting there.
    fn hand_over(&mut self, reply: Option<CallReplySink>, event: DriverEvent) {
        if let Some(mut driver) = self.driver.take() {
            driver.reply = reply.map(Box::new);
            self.slot.hand_over(driver, event);
        }
    }
}

impl Drop for DirectCall {
    fn drop(&mut self) {
        self.hand_over(None, DriverEvent::Left);
    }
}
