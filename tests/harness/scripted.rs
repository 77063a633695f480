//! Servers of both eras whose one tool, `script`, does what the arguments of its call say ([`Script`]).
//!
//! They trust nobody: an answer to no question of theirs, a second answer, a state that was not given for this call or
//! was used before, or principals that meet in one session fail the test that owns the server.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::script::{REFUSED, said};
use super::{
    Act, DEADLINE, Kind, Legacy, Offer, Received, Reply, Script, Stream, Upstream, VERSION, eventually,
    result_body,
};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// A scripted server.
pub(crate) struct Scripted {
    pub(crate) upstream: Upstream,
    board: Arc<Board>,
}

struct Board {
    legacy: Legacy,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Questions by session and id, and what was answered.
    asked: HashMap<(String, usize), Option<String>>,
    /// What every session's client can be asked.
    capabilities: HashMap<String, Value>,
    /// Whose calls came in every session: what stands before the first `-` of their tags.
    principals: HashMap<String, BTreeSet<String>>,
    cancelled: HashSet<(String, String)>,
    deleted: HashSet<String>,
    running: usize,
    states_given: usize,
    states: BTreeMap<usize, bool>,
    faults: Vec<String>,
}

/// A legacy call while it runs.
struct Running {
    board: Arc<Board>,
    session: String,
    request: Received,
    stream: Stream,
    script: Script,
}

impl Scripted {
    /// A server that speaks the legacy era only; it opens a stream for every GET.
    pub(crate) fn legacy() -> Self {
        Self::start(Legacy::new(Offer::tools(&["script"])).with_streams(), |board, request| {
            match request.headers("mcp-protocol-version").as_slice() {
                [VERSION] => board.legacy.answer(request),
                _ => board.legacy(request),
            }
        })
    }

    /// A server that speaks the modern era only.
    pub(crate) fn modern() -> Self {
        let offer = Offer::tools(&["script"]);
        Self::start(Legacy::new(offer.clone()), move |board, request| match request.method().as_str() {
            "tools/call" => board.modern(request),
            "initialize" => Reply::error(request, "404 Not Found", -32601, "no such method here"),
            _ => offer.answer(request),
        })
    }

    fn start(
        legacy: Legacy,
        answer: impl Fn(&Arc<Board>, &Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let board = Arc::new(Board { legacy, state: Mutex::default(), changed: Condvar::new() });
        let answering = Arc::clone(&board);
        Self { upstream: Upstream::start(move |request| answer(&answering, request)), board }
    }

    /// The sessions of a legacy server that were opened for clients and are not over.
    pub(crate) fn client_sessions(&self) -> Vec<String> {
        self.board.legacy.client_sessions()
    }

    /// Calls that were cancelled, or whose session was closed while they ran.
    pub(crate) fn wait_cancelled(&self, count: usize) {
        eventually("calls are cancelled", || (self.board.lock().cancelled.len() >= count).then_some(()));
    }

    /// Waits until no legacy call runs any more.
    pub(crate) fn wait_idle(&self) {
        eventually("no call runs", || (self.board.lock().running == 0).then_some(()));
    }

    /// What only a gateway can have done wrong.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.board.lock().faults.clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let faults = self.faults();
            assert!(faults.is_empty(), "a server was told: {faults:#?}");
        }
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, what: String) {
        self.lock().faults.push(what);
    }

    fn legacy(self: &Arc<Self>, request: &Received) -> Reply {
        let session = request.headers("mcp-session-id").first().map(|id| (*id).to_owned());
        let method = request.method();
        match (method.as_str(), session) {
            ("initialize", _) => {
                let reply = self.legacy.answer(request);
                if let Some(session) = reply.header("mcp-session-id") {
                    let capabilities = request.json()["params"]["capabilities"].clone();
                    self.lock().capabilities.insert(session, capabilities);
                }
                reply
            }
            ("", Some(session)) => self.take_answer(&session, request),
            ("notifications/cancelled", Some(session)) => {
                let id = request.json()["params"]["requestId"].to_string();
                self.lock().cancelled.insert((session, id));
                self.changed.notify_all();
                Reply::http("202 Accepted", "", "")
            }
            ("DELETE", Some(session)) => {
                self.lock().deleted.insert(session);
                self.changed.notify_all();
                self.legacy.answer(request)
            }
            ("tools/call", Some(session)) if self.legacy.open_sessions().contains(&session) => {
                self.run(session, request)
            }
            _ => self.legacy.answer(request),
        }
    }

    /// An answer of a client; each question takes one.
    fn take_answer(&self, session: &str, request: &Received) -> Reply {
        let message = request.json();
        let id = message["id"].as_u64().and_then(|id| usize::try_from(id).ok()).unwrap_or(usize::MAX);
        let mut state = self.lock();
        match state.asked.get_mut(&(session.to_owned(), id)) {
            Some(answer @ None) => *answer = Some(said(&message["result"])),
            Some(Some(before)) => {
                let fault = format!("{message} in {session}, after {before}");
                state.faults.push(fault);
            }
            None => state.faults.push(format!("{message} in {session}, which was not asked")),
        }
        self.changed.notify_all();
        Reply::http("202 Accepted", "", "")
    }

    fn run(self: &Arc<Self>, session: String, request: &Received) -> Reply {
        let params = request.json()["params"].clone();
        let Some(script) = Script::of(&params["arguments"]) else {
            return Reply::error(request, "200 OK", -32602, "no script");
        };
        let own = |key: &String| key.starts_with("io.modelcontextprotocol/");
        if params["_meta"].as_object().is_some_and(|meta| meta.keys().any(own))
            || params.get("requestState").is_some()
            || params.get("inputResponses").is_some()
        {
            self.fault(format!("a legacy server was told {params}"));
        }
        let mut state = self.lock();
        state.running += 1;
        let principal = script.tag.split('-').next().unwrap_or_default().to_owned();
        let principals = state.principals.entry(session.clone()).or_default();
        principals.insert(principal);
        if principals.len() > 1 {
            let fault = format!("{principals:?} share {session}");
            state.faults.push(fault);
        }
        drop(state);
        let (stream, bytes) = Stream::answering(request);
        let running = Running { board: Arc::clone(self), session, request: request.clone(), stream, script };
        std::thread::spawn(move || {
            running.run();
            running.board.lock().running -= 1;
            running.stream.end();
        });
        Reply::stream().pipe(bytes)
    }

    /// Takes a modern call as far as it goes without asking.
    fn modern(&self, request: &Received) -> Reply {
        let params = request.json()["params"].clone();
        let Some(script) = Script::of(&params["arguments"]) else {
            return Reply::error(request, "200 OK", -32602, "no script");
        };
        let meta = &params["_meta"];
        if request.headers("mcp-method") != ["tools/call"]
            || request.headers("mcp-name") != ["script"]
            || meta["io.modelcontextprotocol/protocolVersion"] != VERSION
            || !meta[CAPABILITIES].is_object()
        {
            self.fault(format!("no modern call: {} {params}", request.head));
        }
        let mut at = 0;
        let mut answers: Vec<String> = Vec::new();
        if let Some(state) = params["requestState"].as_str() {
            let state: Value = serde_json::from_str(state).unwrap_or_default();
            self.use_state(&state, &script);
            at = state["at"].as_u64().map_or(0, |at| usize::try_from(at).unwrap_or_default());
            answers = serde_json::from_value(state["said"].clone()).unwrap_or_default();
            let asked: BTreeMap<String, usize> =
                serde_json::from_value(state["asked"].clone()).unwrap_or_default();
            for (key, number) in asked {
                let answer = params["inputResponses"].get(&key);
                if answer.is_none() {
                    self.fault(format!("no answer to {key} of {}: {params}", script.tag));
                }
                answers[number] = answer.map_or_else(|| REFUSED.into(), said);
            }
        } else if params.get("inputResponses").is_some() {
            self.fault(format!("answers to nothing: {params}"));
        }
        let mut notes = Vec::new();
        while let Some(act) = script.acts.get(at) {
            at += 1;
            let mut questions = serde_json::Map::new();
            let mut asked = BTreeMap::new();
            for kind in act.kinds() {
                if meta[CAPABILITIES].get(kind.capability()).is_some() {
                    let key = format!("key {}", answers.len());
                    questions.insert(key.clone(), kind.question(&script.tag, answers.len()));
                    asked.insert(key, answers.len());
                }
                answers.push(REFUSED.into());
            }
            notes.extend(
                note(act, &script.tag, meta).filter(|_| *act != Act::Log || meta.get(LEVEL).is_some()),
            );
            if !questions.is_empty() || *act == Act::Again {
                let state = self.give_state(&script, at, &answers, &asked);
                let mut result = json!({"resultType": "input_required", "requestState": state});
                if !questions.is_empty() {
                    result["inputRequests"] = questions.into();
                }
                return reply(request, &notes, &result);
            }
        }
        let text = script.text(&answers);
        reply(
            request,
            &notes,
            &json!({"content": [{"type": "text", "text": text}], "resultType": "complete"}),
        )
    }

    fn give_state(
        &self,
        script: &Script,
        at: usize,
        answers: &[String],
        asked: &BTreeMap<String, usize>,
    ) -> String {
        let mut state = self.lock();
        state.states_given += 1;
        let number = state.states_given;
        state.states.insert(number, false);
        json!({"number": number, "tag": script.tag, "at": at, "said": answers, "asked": asked}).to_string()
    }

    fn use_state(&self, given: &Value, script: &Script) {
        let mut state = self.lock();
        let number = given["number"].as_u64().and_then(|number| usize::try_from(number).ok());
        let is_fresh = number
            .and_then(|number| state.states.get_mut(&number))
            .is_some_and(|is_used| !std::mem::replace(is_used, true));
        if !is_fresh || given["tag"] != script.tag.as_str() {
            state.faults.push(format!("{given} came with {}, fresh: {is_fresh}", script.tag));
        }
    }
}

impl Running {
    fn run(&self) {
        let tag = &self.script.tag;
        let meta = self.request.json()["params"]["_meta"].clone();
        let mut answers = Vec::new();
        for act in &self.script.acts {
            let kinds = act.kinds().iter().enumerate();
            let asked: Vec<Option<usize>> =
                kinds.map(|(at, kind)| self.ask(act, *kind, answers.len() + at)).collect();
            for id in asked {
                let answer = match id {
                    Some(id) => self.answer_to(id),
                    None => Some(REFUSED.into()),
                };
                let Some(answer) = answer else { return };
                answers.push(answer);
            }
            if let Some(note) = note(act, tag, &meta) {
                self.stream.event(&note.to_string());
            }
        }
        let result = json!({"content": [{"type": "text", "text": self.script.text(&answers)}]});
        self.stream.event(&result_body(&self.request, &result.to_string()));
    }

    /// Asks on the stream of this call or of its session. `None`: there is no such stream, and nobody who needs it.
    fn ask(&self, act: &Act, kind: Kind, number: usize) -> Option<usize> {
        let mut question = kind.question(&self.script.tag, number);
        let streams = self.board.legacy.streams();
        let of_session =
            streams.iter().rfind(|stream| stream.request.headers("mcp-session-id") == [&self.session]);
        let stream = if matches!(act, Act::Ask(_)) { Some(&self.stream) } else { of_session };
        if stream.is_none() {
            let mut state = self.board.lock();
            let can = state.capabilities.get(&self.session).and_then(|can| can.get(kind.capability()));
            if can.is_some() {
                let fault = format!("{} has no stream to ask {} on", self.session, kind.capability());
                state.faults.push(fault);
            }
        }
        let stream = stream?;
        let id = {
            let mut state = self.board.lock();
            let id = 1 + state.asked.keys().filter(|(session, _)| *session == self.session).count();
            state.asked.insert((self.session.clone(), id), None);
            id
        };
        question["jsonrpc"] = "2.0".into();
        question["id"] = id.into();
        stream.event(&question.to_string());
        Some(id)
    }

    /// The answer to a question, unless the call ends before.
    fn answer_to(&self, id: usize) -> Option<String> {
        let question = (self.session.clone(), id);
        let call = (self.session.clone(), self.request.id());
        let mut state = self.board.lock();
        let is_over =
            |state: &State| state.cancelled.contains(&call) || state.deleted.contains(&self.session);
        let waits = |state: &mut State| state.asked[&question].is_none() && !is_over(state);
        (state, _) = self.board.changed.wait_timeout_while(state, 3 * DEADLINE, waits).unwrap();
        if is_over(&state) {
            state.cancelled.insert(call);
            return None;
        }
        let answer = state.asked[&question].clone();
        if answer.is_none() {
            let fault = format!("nobody answered {question:?} of {}", self.script.tag);
            state.faults.push(fault);
        }
        answer
    }
}

/// What a step says beside questions.
fn note(act: &Act, tag: &str, meta: &Value) -> Option<Value> {
    match act {
        Act::Log => {
            let params = json!({"level": "info", "data": tag});
            Some(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
        }
        Act::Progress => {
            let params = json!({"progressToken": meta.get("progressToken")?, "progress": 1, "message": tag});
            Some(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        }
        Act::Ask(_) | Act::AskBeside(_) | Act::Again => None,
    }
}

fn reply(request: &Received, notes: &[Value], result: &Value) -> Reply {
    let result = result.to_string();
    if notes.is_empty() {
        return Reply::result(request, &result);
    }
    let stream = notes.iter().fold(Reply::stream(), |stream, note| stream.event(&note.to_string()));
    stream.event(&result_body(request, &result)).end()
}
