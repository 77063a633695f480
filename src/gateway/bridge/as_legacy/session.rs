//! A legacy client's session with a modern server, of which the server knows nothing: what every request of it says of
//! the client, which calls are under way, and which questions wait for an answer.
//!
//! Shared by all threads; nothing waits under its lock. Invariant: a question is answered once at most, and only by its own
//! client; whoever asked takes it back when it goes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::subscriptions::LegacySubscriptions;
use crate::bridge::next_number;
use protocol::json::quote;
use protocol::level::Level;
use protocol::translation::input::ClientAnswer;
use protocol::translation::request::with_level;

#[derive(Debug)]
pub(super) struct LegacySession {
    /// What every request says of the client, but for the level of log lines.
    pub(super) introduction: Box<str>,
    /// Who calls, where connections are not for everybody.
    pub(super) principal: Option<Arc<str>>,
    /// Over, with everything that is under way in it.
    pub(super) ended: CancellationToken,
    pub(super) subscribed: LegacySubscriptions,
    state: Mutex<LegacySessionState>,
}

#[derive(Debug, Default)]
struct LegacySessionState {
    level: Option<Level>,
    /// By their numbers: the client's own id, and what ends them.
    calls: HashMap<u64, (Bytes, CancellationToken)>,
    questions: HashMap<u64, mpsc::Sender<(u64, ClientAnswer)>>,
}

/// A call that is under way, until this is dropped.
#[derive(Debug)]
pub(super) struct CallGuard {
    session: Arc<LegacySession>,
    number: u64,
    /// Its client wants no answer any more.
    pub(super) cancelled: CancellationToken,
}

/// Questions that wait for their answers, until this is dropped.
#[derive(Debug)]
pub(super) struct PendingQuestions {
    session: Arc<LegacySession>,
    sender: mpsc::Sender<(u64, ClientAnswer)>,
    numbers: Vec<u64>,
}

impl LegacySession {
    /// Nothing happened in it yet.
    pub(super) fn new(introduction: Box<str>, principal: Option<Arc<str>>) -> Arc<Self> {
        Arc::new(Self {
            introduction,
            principal,
            ended: CancellationToken::new(),
            subscribed: LegacySubscriptions::default(),
            state: Mutex::default(),
        })
    }

    /// What a request says of the client now.
    pub(super) fn introduced(&self) -> Cow<'_, str> {
        let level = self.state.lock().level;
        match level {
            Some(level) => with_level(&self.introduction, level.as_str()).into(),
            None => (&*self.introduction).into(),
        }
    }

    /// From now on the client wants log lines of this level.
    pub(super) fn set_level(&self, level: Level) {
        self.state.lock().level = Some(level);
    }

    /// A call begins, which the client knows by the literal `id`.
    pub(super) fn begin(self: &Arc<Self>, id: Bytes) -> CallGuard {
        let (number, cancelled) = (next_number(), CancellationToken::new());
        self.state.lock().calls.insert(number, (id, cancelled.clone()));
        CallGuard { session: Arc::clone(self), number, cancelled }
    }

    /// The client wants no answer to the call of this id any more.
    pub(super) fn cancel(&self, id: &[u8]) {
        let state = self.state.lock();
        let calls = state.calls.values().filter(|(known, _)| **known == *id);
        let ends: Vec<CancellationToken> = calls.map(|(_, end)| end.clone()).collect();
        drop(state);
        ends.iter().for_each(CancellationToken::cancel);
    }

    /// Begins to ask: at most `count` questions, whose answers come out of the receiver.
    pub(super) fn ask(
        self: &Arc<Self>,
        count: usize,
    ) -> (PendingQuestions, mpsc::Receiver<(u64, ClientAnswer)>) {
        let (sender, receiver) = mpsc::channel(count.max(1));
        (PendingQuestions { session: Arc::clone(self), sender, numbers: Vec::new() }, receiver)
    }

    /// The client answered the question of this number. Answers to none go nowhere.
    pub(super) fn answer(&self, number: u64, answer: ClientAnswer) {
        let waiting = self.state.lock().questions.remove(&number);
        if let Some(sender) = waiting {
            // There is room for one answer to each.
            let _ = sender.try_send((number, answer));
        }
    }
}

impl PendingQuestions {
    /// One more question. Returns its number.
    pub(super) fn put(&mut self) -> u64 {
        let number = next_number();
        self.session.state.lock().questions.insert(number, self.sender.clone());
        self.numbers.push(number);
        number
    }

    /// Takes back the questions that nobody answered. Returns them as the client knows them.
    pub(super) fn withdraw(&mut self) -> Vec<u64> {
        let mut state = self.session.state.lock();
        self.numbers.drain(..).filter(|number| state.questions.remove(number).is_some()).collect()
    }
}

impl Drop for PendingQuestions {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.session.state.lock().calls.remove(&self.number);
    }
}

/// Tells the client that a question needs no answer any more.
pub(super) fn withdrawal(number: u64, reason: &str) -> String {
    let reason = quote(reason);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number},"reason":{reason}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::translation::request::introduction;

    fn session() -> Arc<LegacySession> {
        LegacySession::new(introduction("{}", None).into(), None)
    }

    fn given(text: &'static str) -> ClientAnswer {
        ClientAnswer::Given(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_question_is_answered_once_and_by_its_own_session() {
        let (one, other) = (session(), session());
        let (mut asked, mut answers) = one.ask(2);
        let numbers = [asked.put(), asked.put()];
        other.answer(numbers[0], given("{}"));
        assert!(answers.try_recv().is_err());
        one.answer(numbers[0], given("1"));
        one.answer(numbers[0], given("2"));
        one.answer(u64::MAX, given("3"));
        assert_eq!(answers.try_recv(), Ok((numbers[0], given("1"))));
        assert!(answers.try_recv().is_err());
        assert_eq!(asked.withdraw(), [numbers[1]]);
        one.answer(numbers[1], given("4"));
        assert!(answers.try_recv().is_err());
        let last = asked.put();
        drop(asked);
        one.answer(last, given("5"));
        assert!(one.state.lock().questions.is_empty());
    }

    #[test]
    fn a_call_is_cancelled_by_the_id_of_its_client() {
        let session = session();
        let (one, same) = (session.begin("7".into()), session.begin("7".into()));
        let other = session.begin("\"7\"".into());
        session.cancel(b"7");
        assert!(one.cancelled.is_cancelled() && same.cancelled.is_cancelled());
        assert!(!other.cancelled.is_cancelled());
        drop((one, same, other));
        assert!(session.state.lock().calls.is_empty());
    }

    #[test]
    fn a_level_is_said_from_when_it_was_set() {
        let session = session();
        assert_eq!(session.introduced(), &*session.introduction);
        session.set_level(Level::Debug);
        let level = r#","io.modelcontextprotocol/logLevel":"debug""#;
        assert_eq!(session.introduced().strip_prefix(&*session.introduction), Some(level));
    }
}
