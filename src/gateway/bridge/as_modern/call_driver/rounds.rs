//! The rounds of a call: its client is asked, the call waits, and goes on with the client's answers.

use super::{CallDriver, CallEnd, LAST_PATIENCE};
use crate::bridge::as_modern::answers::CallAnswer;
use crate::bridge::as_modern::exclusive_session::SessionCommand;
use crate::bridge::as_modern::suspended::Suspension;
use crate::clock;
use protocol::error::UpstreamError;
use protocol::translation::question;
use tokens::request_state::Binding;

impl CallDriver {
    /// Asks the client, which is to come back with its answers.
    pub(super) fn park(&mut self) -> Option<CallEnd> {
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
    pub(super) fn resume(&mut self, command: Option<SessionCommand>) -> Option<CallEnd> {
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

    /// The client was waited for long enough.
    pub(super) fn expire(&mut self) -> Option<CallEnd> {
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
    pub(super) fn unpark(&mut self) -> CallEnd {
        if let Some(suspension) = self.suspension.take() {
            self.is_taken = !suspension.leave();
            suspension.bridge.series.suspensions.lost.inc();
        }
        CallEnd::Spoilt
    }
}
