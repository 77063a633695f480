//! A client of either era that makes scripted calls and answers what it is asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::script::question_of;
use super::{Connection, LEGACY_VERSION, Request, Response, Script, in_session, legacy, modern, post};

/// A client. Copies are the same client.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) address: SocketAddr,
    /// The tool as the endpoint names it.
    pub(crate) tool: String,
    capabilities: Value,
    key: Option<String>,
    level: Option<String>,
    /// The session of a legacy client.
    session: Option<String>,
}

/// What a client does about a question.
pub(crate) enum Answer {
    Result(Value),
    /// A JSON-RPC error; only a legacy client can say it.
    Error,
    /// Nothing; a modern client that comes again without it is asked again.
    Withheld,
}

/// How a round ended.
#[derive(Debug)]
pub(crate) enum Turn {
    Asked(Asked),
    Ended(Outcome),
}

/// What a modern client is asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) questions: BTreeMap<String, Value>,
    pub(crate) state: Option<String>,
    /// What came before it.
    pub(crate) notes: Vec<Value>,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: u16,
    /// The JSON-RPC answer.
    pub(crate) message: Value,
    /// The notifications that came before it.
    pub(crate) notes: Vec<Value>,
    /// The questions that came before it.
    pub(crate) questions: Vec<String>,
}

impl Caller {
    /// A modern client with these capabilities.
    pub(crate) fn modern(address: SocketAddr, capabilities: &Value) -> Self {
        Self {
            address,
            tool: "script".into(),
            capabilities: capabilities.clone(),
            key: None,
            level: None,
            session: None,
        }
    }

    /// A legacy client with these capabilities, and a session of its own.
    pub(crate) fn legacy(address: SocketAddr, capabilities: &Value) -> Self {
        Self::legacy_with_key(address, capabilities, None)
    }

    /// As [`legacy`](Self::legacy), with credentials.
    pub(crate) fn legacy_with_key(address: SocketAddr, capabilities: &Value, key: Option<&str>) -> Self {
        let mut caller = Self::modern(address, capabilities);
        caller.key = key.map(Into::into);
        let params = json!({
            "protocolVersion": LEGACY_VERSION,
            "capabilities": capabilities,
            "clientInfo": {"name": "blackbox", "version": "1"},
        });
        let response = caller.send(&legacy("0", "initialize", &params.to_string()));
        response.assert_ok();
        let session = response.header("mcp-session-id").expect("a session id").to_owned();
        caller.session = Some(session);
        let initialized = caller.tell(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(initialized.status, 202, "{initialized:?}");
        caller
    }

    /// The same client with these credentials; a legacy client has them from the start.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The same client, which calls the tool by another name.
    pub(crate) fn with_tool(mut self, tool: &str) -> Self {
        self.tool = tool.into();
        self
    }

    /// The same modern client, which wants log lines.
    pub(crate) fn with_level(mut self, level: &str) -> Self {
        self.level = Some(level.into());
        self
    }

    /// The same client before another gateway.
    pub(crate) fn at(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.session.is_some()
    }

    /// Whether it declares this capability.
    pub(crate) fn can(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some()
    }

    /// The request with what it needs of this client in its headers.
    pub(crate) fn dressed(&self, request: Request) -> Request {
        let request = match &self.key {
            Some(key) => request.set("Authorization", format!("Bearer {key}")),
            None => request,
        };
        match &self.session {
            Some(session) => in_session(session, request),
            None => request,
        }
    }

    /// Sends a request and reads the whole reply.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Response {
        let mut connection = Connection::open(self.address);
        connection.write(&self.dressed(request.clone()).bytes());
        connection.response()
    }

    /// Sends a message of a legacy client that is only accepted.
    #[track_caller]
    pub(crate) fn tell(&self, message: &Value) -> Response {
        self.send(&post(message.to_string()))
    }

    /// Ends the session of a legacy client.
    pub(crate) fn leave(&self) {
        let delete = self.send(&post("").method("DELETE").without("content-type"));
        assert!(matches!(delete.status, 200 | 204), "{delete:?}");
    }

    /// A call, or its continuation with these answers and this state.
    pub(crate) fn request(&self, id: &str, script: &Script, more: Option<(&Value, Option<&str>)>) -> Request {
        let mut params = json!({"name": self.tool, "arguments": script.arguments()});
        let token = Value::from(format!("{} {id}", script.tag));
        if self.is_legacy() {
            params["_meta"] = json!({"progressToken": token});
            return self.dressed(legacy(id, "tools/call", &params.to_string()));
        }
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": super::VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "blackbox", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "progressToken": token,
        });
        if let Some(level) = &self.level {
            params["_meta"]["io.modelcontextprotocol/logLevel"] = level.as_str().into();
        }
        if let Some((answers, state)) = more {
            if answers.as_object().is_some_and(|answers| !answers.is_empty()) {
                params["inputResponses"] = answers.clone();
            }
            if let Some(state) = state {
                params["requestState"] = state.into();
            }
        }
        self.dressed(modern(
            "tools/call",
            Some(&self.tool),
            super::body(id, "tools/call", &params.to_string()),
        ))
    }

    /// One round of a modern call.
    #[track_caller]
    pub(crate) fn round(&self, id: &str, script: &Script, more: Option<(&Value, Option<&str>)>) -> Turn {
        let mut connection = Connection::open(self.address);
        connection.write(&self.request(id, script, more).bytes());
        turn(&connection.response(), id, script)
    }

    /// The first round of a modern call, which must ask.
    #[track_caller]
    pub(crate) fn asked(&self, id: &str, script: &Script) -> Asked {
        match self.round(id, script, None) {
            Turn::Asked(asked) => asked,
            Turn::Ended(outcome) => panic!("nobody was asked: {outcome:?}"),
        }
    }

    /// Goes on with a modern call that asked, as `who`.
    #[track_caller]
    pub(crate) fn resume(&self, id: &str, script: &Script, asked: &Asked, who: &str) -> Turn {
        self.round(id, script, Some((&asked.answers(who), asked.state.as_deref())))
    }

    /// Makes a call, does about its questions what `answer` says, and returns how it ended.
    #[track_caller]
    pub(crate) fn converse(
        &self,
        id: usize,
        script: &Script,
        answer: impl FnMut(&Value) -> Answer,
    ) -> Outcome {
        match &self.session {
            Some(_) => self.converse_legacy(&id.to_string(), script, answer),
            None => self.converse_modern(id, script, answer),
        }
    }

    fn converse_modern(
        &self,
        id: usize,
        script: &Script,
        mut answer: impl FnMut(&Value) -> Answer,
    ) -> Outcome {
        let mut before = (Vec::new(), Vec::new());
        let mut more: Option<(Value, Option<String>)> = None;
        for round in 0.. {
            // Every round is a request of its own.
            let id = format!("\"{id}.{round}\"");
            let continuation = more.as_ref().map(|(answers, state)| (answers, state.as_deref()));
            match self.round(&id, script, continuation) {
                Turn::Ended(mut outcome) => {
                    before.0.append(&mut outcome.notes);
                    (outcome.notes, outcome.questions) = before;
                    return outcome;
                }
                Turn::Asked(asked) => {
                    before.0.extend(asked.notes);
                    let mut answers = Map::new();
                    for (key, question) in asked.questions {
                        before.1.push(question_of(&question).to_owned());
                        match answer(&question) {
                            Answer::Result(result) => drop(answers.insert(key, result)),
                            Answer::Error => panic!("a modern client has no error to answer with"),
                            Answer::Withheld => {}
                        }
                    }
                    more = Some((answers.into(), asked.state));
                }
            }
        }
        unreachable!("a call has an end")
    }

    #[track_caller]
    fn converse_legacy(
        &self,
        id: &str,
        script: &Script,
        mut answer: impl FnMut(&Value) -> Answer,
    ) -> Outcome {
        let mut connection = Connection::open(self.address);
        connection.write(&self.request(id, script, None).bytes());
        let head = connection.try_head().unwrap_or_else(|broken| panic!("{script:?}, no head: {broken:?}"));
        let (mut notes, mut questions) = (Vec::new(), Vec::new());
        if !is_stream(&head) {
            let body = connection.rest().expect("the rest of the answer");
            return turn(&Response { body, ..head }, id, script).ended();
        }
        while let Some(event) = connection.event() {
            let Some(message) = message(&event) else { continue };
            if message.get("method").is_none() {
                assert_eq!(message["id"].to_string(), id, "whose answer is {message}?");
                assert_eq!(connection.event(), None, "after the answer");
                return Outcome { status: head.status, message, notes, questions };
            }
            if message.get("id").is_none() {
                check_note(&message, id, script);
                notes.push(message);
                continue;
            }
            check_question(&message, script);
            questions.push(question_of(&message).to_owned());
            let mut said = json!({"jsonrpc": "2.0", "id": message["id"]});
            match answer(&message) {
                Answer::Result(result) => said["result"] = result,
                Answer::Error => said["error"] = json!({"code": -32000, "message": "nobody is here"}),
                Answer::Withheld => continue,
            }
            let taken = self.tell(&said);
            assert_eq!(taken.status, 202, "{said}: {taken:?}");
        }
        panic!("{} ended without an answer, after {notes:?} and {questions:?}", script.tag);
    }
}

impl Asked {
    /// The answers of `who` to all of it.
    pub(crate) fn answers(&self, who: &str) -> Value {
        let answers =
            self.questions.iter().map(|(key, question)| (key.clone(), super::answer(question, who)));
        Value::Object(answers.collect())
    }
}

impl Turn {
    /// How the call ended, which it must have.
    #[track_caller]
    pub(crate) fn ended(self) -> Outcome {
        match self {
            Self::Ended(outcome) => outcome,
            Self::Asked(asked) => panic!("still asks: {asked:?}"),
        }
    }
}

impl Outcome {
    /// The text of the result, which must have come.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        assert_eq!(self.status, 200, "{self:?}");
        self.message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {self:?}"))
    }

    /// The code of the error, which must have come, with this status.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> i64 {
        assert_eq!(self.status, status, "{self:?}");
        self.message["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error in {self:?}"))
    }
}

/// What a whole reply to a modern request says.
#[track_caller]
fn turn(response: &Response, id: &str, script: &Script) -> Turn {
    let mut messages = if is_stream(response) {
        let text = response.text();
        text.split("\n\n").filter_map(message).collect()
    } else {
        vec![response.json()]
    };
    let answer = messages.pop().unwrap_or_else(|| panic!("{} was not answered: {response:?}", script.tag));
    assert_eq!(answer["id"].to_string(), id, "{} is answered {answer}", script.tag);
    for note in &messages {
        check_note(note, id, script);
    }
    if answer["result"]["resultType"] != "input_required" {
        let questions = Vec::new();
        return Turn::Ended(Outcome { status: response.status, message: answer, notes: messages, questions });
    }
    let questions = match &answer["result"]["inputRequests"] {
        Value::Object(questions) => questions.clone().into_iter().collect(),
        _ => BTreeMap::new(),
    };
    for question in questions.values() {
        check_question(question, script);
    }
    let state = answer["result"]["requestState"].as_str().map(Into::into);
    Turn::Asked(Asked { questions, state, notes: messages })
}

/// A question reaches nobody but the client of its call.
#[track_caller]
fn check_question(question: &Value, script: &Script) {
    let (tag, _) = question_of(question).split_once('/').expect("a tag and a number");
    assert_eq!(tag, script.tag, "{question}");
}

/// So does what is said meanwhile, and progress goes by the token of the request that it comes in reply to.
#[track_caller]
fn check_note(note: &Value, id: &str, script: &Script) {
    match note["method"].as_str() {
        Some("notifications/progress") => {
            assert_eq!(note["params"]["message"], script.tag.as_str(), "{note}");
            assert_eq!(note["params"]["progressToken"], format!("{} {id}", script.tag), "{note}");
        }
        Some("notifications/message") => assert_eq!(note["params"]["data"], script.tag.as_str(), "{note}"),
        // A question that needs no answer any more.
        Some("notifications/cancelled") => {}
        _ => panic!("nobody said {note} to {}", script.tag),
    }
}

fn is_stream(response: &Response) -> bool {
    response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// The message of an event that has one.
fn message(event: &str) -> Option<Value> {
    let data = event.lines().find_map(|line| line.strip_prefix("data:"))?.trim();
    (!data.is_empty()).then(|| serde_json::from_str(data).expect("an event holds JSON"))
}
