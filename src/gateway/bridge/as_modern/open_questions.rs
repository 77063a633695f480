//! What a server asks during one call and nobody has answered yet.
//!
//! Deliberately not here: when the client is sent away with them, and how the server is told the answers.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::session_client::SessionClient;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Share};
use crate::clock;
use protocol::error::UpstreamError;
use protocol::json::quote;
use protocol::server_request::NotAsked;
use protocol::translation::question::{self, Question};

/// Questions of one call that wait at once.
pub(crate) const QUESTIONS_MAX: usize = 16;
/// What a server asks so soon after a question goes to the client with it.
const TOGETHER: Duration = Duration::from_millis(20);

const TOO_MANY: NotAsked = NotAsked { code: -32000, message: "too many requests wait for this client" };

/// Why a question does not wait.
pub(crate) enum NotOpen {
    /// The server is told so.
    Refused(NotAsked),
    /// There is no memory for it: the call cannot go on.
    NoMemory(NoShare),
}

#[derive(Default)]
pub(crate) struct OpenQuestions {
    /// Who is charged for what is held of the call.
    pub(crate) payer: Payer,
    open: Vec<OpenQuestion>,
    asked: u32,
    /// When the client is asked what there is by then.
    pub(crate) ask_at: Option<Instant>,
}

struct OpenQuestion {
    /// What the client knows it by.
    key: Box<str>,
    /// The literal of its id.
    id: Box<[u8]>,
    question: Question,
    _held: Share,
}

/// What a call ends with for which there is no memory.
pub(crate) fn no_memory(none: NoShare) -> UpstreamError {
    match none {
        NoShare::NothingLeft => UpstreamError::NoBuffers,
        NoShare::TooMuchOfPayer => UpstreamError::BuffersOfPrincipal,
    }
}

impl OpenQuestions {
    /// Of a call for which this payer is charged.
    pub(crate) fn of(payer: Payer) -> Self {
        Self { payer, ..Self::default() }
    }

    /// Nothing yet of the memory for messages.
    pub(crate) fn share(&self, server: &SessionClient) -> Share {
        server.client.limits().budget.open(self.payer)
    }

    pub(crate) fn has(&self, id: &[u8]) -> bool {
        self.open.iter().any(|open| *open.id == *id)
    }

    /// Takes a question with this id, a literal, for a client that declared these capabilities.
    pub(crate) fn add(
        &mut self,
        server: &SessionClient,
        message: &Bytes,
        id: &[u8],
        declared: &[u8],
    ) -> Result<(), NotOpen> {
        if self.open.len() >= QUESTIONS_MAX {
            return Err(NotOpen::Refused(TOO_MANY));
        }
        let question = server.client.read_json(|memory| question::read(message, declared, memory));
        let question = question.map_err(NotOpen::Refused)?;
        let mut held = self.share(server);
        held.grow(question.request.len()).map_err(NotOpen::NoMemory)?;
        self.asked += 1;
        self.open.push(OpenQuestion {
            key: format!("q{}", self.asked).into(),
            id: id.into(),
            question,
            _held: held,
        });
        Ok(())
    }

    /// The client is there: it is asked soon, unless it already is about to be.
    pub(crate) fn ask_soon(&mut self) {
        self.ask_at.get_or_insert_with(|| clock::now() + TOGETHER);
    }

    /// What the client did not answer, or was not asked yet, it is asked now.
    pub(crate) fn ask_now(&mut self) {
        self.ask_at = (!self.open.is_empty()).then(clock::now);
    }

    /// The server wants no answer any more.
    pub(crate) fn withdraw(&mut self, id: &[u8]) {
        self.take(|open| *open.id == *id);
    }

    /// The id of the question that the client knows by this key; it is answered.
    pub(crate) fn answered(&mut self, key: &str) -> Option<Box<[u8]>> {
        self.take(|open| *open.key == *key)
    }

    /// The id of the question for which the user was to do something elsewhere; it is done.
    pub(crate) fn elicited(&mut self, elicitation_id: &str) -> Option<Box<[u8]>> {
        self.take(|open| open.question.elicitation_id.as_deref() == Some(elicitation_id))
    }

    /// The ids of all of them; nobody is asked any more.
    pub(crate) fn take_all(&mut self) -> Vec<Box<[u8]>> {
        self.ask_at = None;
        self.open.drain(..).map(|open| open.id).collect()
    }

    /// The answer to the call with this id, a literal, which asks the client.
    pub(crate) fn input_required(&self, id: &str, state: &str) -> Bytes {
        let mut message = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{{"#
        )
        .into_bytes();
        for (index, open) in self.open.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            message.extend_from_slice(format!("{comma}{}:", quote(&open.key)).as_bytes());
            message.extend_from_slice(&open.question.request);
        }
        message.extend_from_slice(format!(r#"}},"requestState":{}}}}}"#, quote(state)).as_bytes());
        message.into()
    }

    fn take(&mut self, fits: impl Fn(&OpenQuestion) -> bool) -> Option<Box<[u8]>> {
        let taken = self.open.iter().position(fits).map(|index| self.open.remove(index).id);
        if self.open.is_empty() {
            self.ask_at = None;
        }
        taken
    }
}
