//! What a modern server asks in the middle of a call (2026-07-28 Multi Round-Trip Requests), as the requests that
//! servers of the legacy era send, and the answers to those on their way back.
//!
//! Deliberately absent: whether the client may be asked ([`crate::server_request`]), and in which order it answers.

use std::collections::HashSet;

use bytes::Bytes;

use crate::json::{Document, JsonKind, Scratch, Value, quote};
use crate::server_request::ServerRequest;

/// More questions at once are none that a user could answer.
const QUESTIONS_MAX: usize = 64;
/// What of a client's own words is repeated to it.
const SAID_CHARS_MAX: usize = 200;

/// A result that asks for more before there can be another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What is asked; nothing: the server only wants to be called again.
    pub questions: Vec<InputRequest>,
    /// What is to be given back, a literal.
    pub state: Option<Bytes>,
}

/// One of the questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// By which name its answer goes back, a literal.
    pub key: Bytes,
    /// What kind of question it is.
    pub asked: ServerRequest,
    /// The literal of its method.
    method: Bytes,
    params: Option<Bytes>,
    /// Clients of the legacy era know such a question by an id.
    needs_elicitation_id: bool,
}

/// What a client answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAnswer {
    /// A result, a JSON object.
    Given(Bytes),
    /// That it does not answer, and why.
    Refused(String),
}

impl Input {
    /// Reads `result`, which is part of `message`. `None`: it is none that the specification allows.
    pub fn read(result: Value<'_>, message: &Bytes) -> Option<Self> {
        let state = match result.get("requestState") {
            None => None,
            Some(state) => Some(message.slice(state.as_literal()?.span)),
        };
        let mut questions = Vec::new();
        let mut keys = HashSet::new();
        let requests = result.get("inputRequests");
        if requests.is_some_and(|requests| !requests.is_object()) {
            return None;
        }
        for (key, request) in requests.into_iter().flat_map(Value::entries) {
            let is_new = keys.insert(key.decode(message)?);
            if !is_new || questions.len() == QUESTIONS_MAX {
                return None;
            }
            questions.push(InputRequest::read(message.slice(key.span), request, message)?);
        }
        (state.is_some() || !questions.is_empty()).then_some(Self { questions, state })
    }

    /// How much memory it holds on to.
    pub fn bytes(&self) -> usize {
        let of_questions = self.questions.iter().map(|question| {
            let params = question.params.as_ref().map_or(0, Bytes::len);
            size_of::<InputRequest>() + question.key.len() + params
        });
        of_questions.sum::<usize>() + self.state.as_ref().map_or(0, Bytes::len)
    }

    /// The same in memory of its own: slices hold on to everything that came with them.
    #[must_use]
    pub fn detached(self) -> Self {
        let own = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
        let questions = self.questions.into_iter().map(|question| InputRequest {
            key: own(question.key),
            method: own(question.method),
            params: question.params.map(own),
            ..question
        });
        Self { questions: questions.collect(), state: self.state.map(own) }
    }
}

impl InputRequest {
    fn read(key: Bytes, request: Value<'_>, message: &Bytes) -> Option<Self> {
        let method = request.get("method")?;
        let asked = ServerRequest::of(&method.as_str()?)?;
        if !matches!(asked, ServerRequest::Elicitation | ServerRequest::Sampling | ServerRequest::Roots) {
            return None;
        }
        let params = request.get("params");
        if params.map_or(asked != ServerRequest::Roots, |params| !params.is_object()) {
            return None;
        }
        let member = |key: &str| params.and_then(|params| params.get(key));
        let is_of_url = member("mode").is_some_and(|mode| mode.is("url"));
        let has_id = member("elicitationId").is_some_and(|id| id.kind() == JsonKind::String);
        Some(Self {
            key,
            asked,
            method: message.slice(method.span()),
            params: params.map(|params| message.slice(params.span())),
            needs_elicitation_id: asked == ServerRequest::Elicitation && is_of_url && !has_id,
        })
    }

    /// Whether it is to be written with an id of its own.
    pub fn needs_elicitation_id(&self) -> bool {
        self.needs_elicitation_id
    }

    /// The request of this id; `elicitation_id` stands where one is needed.
    pub fn request(&self, id: u64, elicitation_id: &str) -> Bytes {
        let mut request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"#).into_bytes();
        request.extend_from_slice(&self.method);
        if let Some(params) = &self.params {
            request.extend_from_slice(b",\"params\":");
            match params.get(1..).filter(|_| self.needs_elicitation_id) {
                // It has members at least for its mode.
                Some(rest) => {
                    request.extend_from_slice(
                        format!("{{\"elicitationId\":{},", quote(elicitation_id)).as_bytes(),
                    );
                    request.extend_from_slice(rest);
                }
                None => request.extend_from_slice(params),
            }
        }
        request.push(b'}');
        request.into()
    }
}

/// Reads a client's response. `None`: it is none.
pub fn answer(response: &Bytes, (scratch, depth_max): (&mut Scratch, usize)) -> Option<ClientAnswer> {
    let root = scratch.index(response, depth_max).map(Document::root).ok()?;
    if let Some(error) = root.get("error").filter(|error| error.kind() != JsonKind::Null) {
        let said = error.text_of("message").unwrap_or_default();
        return Some(ClientAnswer::Refused(said.chars().take(SAID_CHARS_MAX).collect()));
    }
    Some(match root.object("result") {
        Some(result) => ClientAnswer::Given(Bytes::copy_from_slice(result.raw())),
        None => ClientAnswer::Refused("the answer is no object".into()),
    })
}

/// The members of `params` by which a call goes on: the answers, each by the literal of its key, and the state.
pub fn continuation(answers: &[(Bytes, Bytes)], state: Option<&Bytes>) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut members = Vec::new();
    if !answers.is_empty() {
        let given: Vec<String> =
            answers.iter().map(|(key, answer)| format!("{}:{}", text(key), text(answer))).collect();
        members.push(format!("\"inputResponses\":{{{}}}", given.join(",")));
    }
    members.extend(state.map(|state| format!("\"requestState\":{}", text(state))));
    members.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(result: &str) -> Option<Input> {
        let message = Bytes::copy_from_slice(result.as_bytes());
        let mut scratch = Scratch::default();
        let root = scratch.index(&message, 16).expect("JSON").root();
        Input::read(root, &message)
    }

    #[test]
    fn questions_become_requests() {
        let input = read(
            r#"{"resultType":"input_required","requestState":"s\"1","inputRequests":{
            "a":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{}}},
            "b\u0061":{"method":"roots/list"},
            "c":{"params":{"mode":"url","url":"u"},"method":"elicitation/create"},
            "d":{"method":"elicitation/create","params":{"elicitationId":"own","mode":"url"}},
            "e":{"method":"sampling/createMessage","params":{"messages":[]}}}}"#,
        )
        .expect("input")
        .detached();
        assert_eq!(input.state.as_deref(), Some(&br#""s\"1""#[..]));
        let written: Vec<String> = input
            .questions
            .iter()
            .zip(7..)
            .map(|(question, id)| String::from_utf8_lossy(&question.request(id, "e-1")).into_owned())
            .collect();
        assert_eq!(
            written,
            [
                r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}"#,
                r#"{"jsonrpc":"2.0","id":8,"method":"roots/list"}"#,
                r#"{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"elicitationId":"e-1","mode":"url","url":"u"}}"#,
                r#"{"jsonrpc":"2.0","id":10,"method":"elicitation/create","params":{"elicitationId":"own","mode":"url"}}"#,
                r#"{"jsonrpc":"2.0","id":11,"method":"sampling/createMessage","params":{"messages":[]}}"#,
            ]
        );
        assert!(input.bytes() > 100);
        let keys: Vec<&[u8]> = input.questions.iter().map(|question| &*question.key).collect();
        assert_eq!(keys[1], br#""b\u0061""#);
    }

    #[test]
    fn a_server_may_only_want_to_be_called_again() {
        let input = read(r#"{"requestState":"s"}"#).expect("input");
        assert!(input.questions.is_empty());
        assert_eq!(continuation(&[], input.state.as_ref()), r#""requestState":"s""#);
    }

    #[test]
    fn what_the_specification_does_not_allow_is_none() {
        for result in [
            "{}",
            r#"{"inputRequests":{}}"#,
            r#"{"inputRequests":[]}"#,
            r#"{"requestState":7}"#,
            r#"{"requestState":null,"inputRequests":{"a":{"method":"roots/list"}}}"#,
            r#"{"inputRequests":{"a":{"method":"tools/call","params":{}}}}"#,
            r#"{"inputRequests":{"a":{"method":"elicitation/create"}}}"#,
            r#"{"inputRequests":{"a":{"method":"elicitation/create","params":[]}}}"#,
            r#"{"inputRequests":{"a":{"params":{}}}}"#,
            r#"{"inputRequests":{"a":{"method":"roots/list"},"\u0061":{"method":"roots/list"}}}"#,
        ] {
            assert_eq!(read(result), None, "{result}");
        }
        let many: Vec<String> = (0..=64).map(|n| format!(r#""{n}":{{"method":"roots/list"}}"#)).collect();
        assert_eq!(read(&format!(r#"{{"inputRequests":{{{}}}}}"#, many.join(","))), None);
    }

    #[test]
    fn answers_go_back_by_their_keys() {
        let answer =
            |response: &str| answer(&Bytes::from(response.to_owned()), (&mut Scratch::default(), 16));
        let given = answer(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}"#);
        assert_eq!(given, Some(ClientAnswer::Given(Bytes::from_static(br#"{"action":"accept"}"#))));
        assert_eq!(answer(r#"{"id":1,"result":{},"error":null}"#), Some(ClientAnswer::Given("{}".into())));
        for (response, said) in [
            (r#"{"id":1,"error":{"code":-1,"message":"User \"x\""}}"#, "User \"x\""),
            (r#"{"id":1,"error":{}}"#, ""),
            (r#"{"id":1,"result":7}"#, "the answer is no object"),
            (r#"{"id":1,"error":null}"#, "the answer is no object"),
        ] {
            assert_eq!(answer(response), Some(ClientAnswer::Refused(said.into())), "{response}");
        }
        assert_eq!(answer("{"), None);
        let pair = |key: &'static str, value: &'static str| (Bytes::from(key), Bytes::from(value));
        let members = continuation(&[pair("\"a\"", "{}"), pair("\"b\"", r#"{"x":1}"#)], None);
        assert_eq!(members, r#""inputResponses":{"a":{},"b":{"x":1}}"#);
    }
}
