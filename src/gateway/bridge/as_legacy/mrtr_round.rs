//! A client that is asked during a call: the questions that are open, and the answers so far.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::session::{LegacySession, PendingQuestions, withdrawal};
use crate::clock;
use crate::upstream::mux::sessions::random_name;
use protocol::error::UpstreamError;
use protocol::translation::input::{ClientAnswer, Input, continuation};

/// One round: what the client was asked, and what it answered.
pub(super) struct MrtrRound {
    pub(super) since: Instant,
    asked: PendingQuestions,
    answers: mpsc::Receiver<(u64, ClientAnswer)>,
    open: Vec<RoundQuestion>,
    /// Each with the name that the server gave its question.
    given: Vec<(Bytes, Bytes)>,
    state: Option<Bytes>,
}

struct RoundQuestion {
    number: u64,
    /// The name that the server gave it, a literal.
    key: Bytes,
    about: &'static str,
}

pub(super) enum AnswerOutcome {
    /// It belongs to no question, or others are open; how long it is.
    More(usize),
    /// It was the last: by these members of `params` the call goes on.
    Last(usize, String),
    /// There will be none, for this reason.
    Refused(String),
}

impl MrtrRound {
    /// Begins to ask. Returns also the questions.
    pub(super) fn begin(
        session: &Arc<LegacySession>,
        input: Input,
    ) -> Result<(Self, Vec<Bytes>), UpstreamError> {
        let (mut asked, answers) = session.ask(input.questions.len());
        let count = input.questions.len();
        let (mut messages, mut open) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for question in input.questions {
            let number = asked.put();
            let elicitation_id = if question.needs_elicitation_id() {
                random_name().ok_or(UpstreamError::Reset)?
            } else {
                String::new()
            };
            messages.push(question.request(number, &elicitation_id));
            open.push(RoundQuestion { number, about: question.asked.method(), key: question.key });
        }
        let given = Vec::with_capacity(open.len());
        let since = clock::now();
        Ok((Self { since, asked, answers, open, given, state: input.state }, messages))
    }

    /// The next answer. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Option<(u64, ClientAnswer)> {
        self.answers.recv().await
    }

    pub(super) fn take(&mut self, number: u64, answer: ClientAnswer) -> AnswerOutcome {
        let Some(at) = self.open.iter().position(|open| open.number == number) else {
            return AnswerOutcome::More(0);
        };
        let RoundQuestion { key, about, .. } = self.open.swap_remove(at);
        match answer {
            ClientAnswer::Given(given) => {
                let bytes = given.len();
                self.given.push((key, given));
                if self.open.is_empty() {
                    return AnswerOutcome::Last(bytes, continuation(&self.given, self.state.as_ref()));
                }
                AnswerOutcome::More(bytes)
            }
            ClientAnswer::Refused(said) => AnswerOutcome::Refused(refusal(about, &said)),
        }
    }

    /// Why a call ends whose questions are still open.
    pub(super) fn unanswered(&self, why: &str) -> String {
        refusal(self.open.first().map_or("what it asked", |open| open.about), why)
    }

    /// Nobody waits for the answers that are missing: what the client is told of that.
    pub(super) fn withdraw(mut self, why: &str) -> Vec<Bytes> {
        let numbers = self.asked.withdraw();
        numbers.into_iter().map(|number| Bytes::from(withdrawal(number, why))).collect()
    }
}

fn refusal(about: &str, said: &str) -> String {
    let colon = if said.is_empty() { "" } else { ": " };
    format!(
        "the call was given up: the server behind this name needs an answer to {about}, and the client gave none{colon}{said}"
    )
}
