//! What a scripted upstream answers: steps on the wire, and the plain answers of a well-behaved server.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{DEADLINE, Received};

/// The script of one answer. After its last step the connection waits for the next request.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    pub(super) steps: Vec<Step>,
}

#[derive(Clone)]
pub(super) enum Step {
    Write(Vec<u8>),
    Wait(Gate),
    /// What the test sends, until it drops its end.
    Pipe(Arc<Mutex<Receiver<Vec<u8>>>>),
    /// One byte after another, with this pause.
    Drip(Vec<u8>, Duration),
    /// End our half, properly.
    Finish,
    /// Cut the connection with a RST.
    Reset,
}

impl Reply {
    /// Never a byte.
    pub(crate) fn silence() -> Self {
        Self::default()
    }

    /// Exactly these bytes.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::default().step(Step::Write(bytes.into()))
    }

    /// These bytes, one at a time.
    pub(crate) fn drip(bytes: impl Into<Vec<u8>>, pause: Duration) -> Self {
        Self::default().step(Step::Drip(bytes.into(), pause))
    }

    /// A whole response; `headers` are lines with their ends.
    pub(crate) fn http(status: &str, headers: &str, body: &str) -> Self {
        Self::raw(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len()))
    }

    /// A JSON body with this status.
    pub(crate) fn json(status: &str, body: &str) -> Self {
        Self::http(status, "Content-Type: application/json\r\n", body)
    }

    /// The JSON-RPC answer to this request, with the id it came with.
    pub(crate) fn result(request: &Received, result: &str) -> Self {
        Self::json("200 OK", &result_body(request, result))
    }

    /// The JSON-RPC error answer to this request.
    pub(crate) fn error(request: &Received, status: &str, code: i64, message: &str) -> Self {
        let id = request.id();
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#);
        Self::json(status, &body)
    }

    /// The head of an event stream.
    pub(crate) fn stream() -> Self {
        Self::stream_with("")
    }

    /// The head of an event stream with further header lines.
    pub(crate) fn stream_with(headers: &str) -> Self {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n";
        Self::raw(format!("{head}{headers}\r\n"))
    }

    /// A chunk of the stream, which need not be a whole event.
    pub(crate) fn chunk(self, bytes: &str) -> Self {
        self.step(Step::Write(format!("{:x}\r\n{bytes}\r\n", bytes.len()).into_bytes()))
    }

    /// An event with this data, in a chunk of its own.
    pub(crate) fn event(self, data: &str) -> Self {
        self.chunk(&format!("data: {data}\n\n"))
    }

    /// The proper end of the stream.
    pub(crate) fn end(self) -> Self {
        self.step(Step::Write(b"0\r\n\r\n".to_vec()))
    }

    /// Waits until the test opens the gate.
    pub(crate) fn wait(self, gate: &Gate) -> Self {
        self.step(Step::Wait(gate.clone()))
    }

    /// Writes whatever the test sends, until it drops its end.
    pub(crate) fn pipe(self, bytes: Receiver<Vec<u8>>) -> Self {
        self.step(Step::Pipe(Arc::new(Mutex::new(bytes))))
    }

    /// Ends the connection properly.
    pub(crate) fn finish(self) -> Self {
        self.step(Step::Finish)
    }

    /// Cuts the connection.
    pub(crate) fn reset(self) -> Self {
        self.step(Step::Reset)
    }

    /// This reply, and then the steps of another.
    pub(crate) fn then(mut self, other: Self) -> Self {
        self.steps.extend(other.steps);
        self
    }

    /// The same with the id of this request, where it was written with the id that its client gave it.
    pub(crate) fn to(mut self, request: &Received) -> Self {
        for step in &mut self.steps {
            if let Step::Write(bytes) = step
                && let Ok(text) = std::str::from_utf8(bytes)
            {
                *bytes = addressed(text, request).into_bytes();
            }
        }
        self
    }

    /// The value of a header of a whole response.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let Some(Step::Write(bytes)) = self.steps.first() else { return None };
        let lines = std::str::from_utf8(bytes).ok()?.split("\r\n").take_while(|line| !line.is_empty());
        let mut fields = lines.filter_map(|line| line.split_once(": "));
        fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// A whole response, a chunk or other bytes with the id of this request; lengths are kept true.
fn addressed(text: &str, request: &Received) -> String {
    if let Some((head, body)) = text.split_once("\r\n\r\n").filter(|_| text.starts_with("HTTP/1.1 ")) {
        let written = request.with_id(body);
        let length = |body: &str| format!("Content-Length: {}\r\n", body.len());
        let head = format!("{head}\r\n").replace(&length(body), &length(&written));
        return format!("{head}\r\n{written}");
    }
    let chunk = text.split_once("\r\n").and_then(|(size, rest)| Some((size, rest.strip_suffix("\r\n")?)));
    match chunk {
        Some((size, bytes)) if usize::from_str_radix(size, 16) == Ok(bytes.len()) => {
            let written = request.with_id(bytes);
            format!("{:x}\r\n{written}\r\n", written.len())
        }
        _ => request.with_id(text),
    }
}

/// The body of a JSON-RPC answer to this request.
pub(crate) fn result_body(request: &Received, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.id())
}

/// A door that the test opens.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Returns when the gate is open, or at the deadline.
    pub(super) fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        let _ = self.0.1.wait_timeout_while(open, DEADLINE, |open| !*open).unwrap();
    }
}

/// What a well-behaved server offers: each entry is a definition as JSON, handed out as it stands.
#[derive(Clone, Default)]
pub(crate) struct Offer {
    pub(crate) tools: Vec<String>,
    pub(crate) prompts: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) templates: Vec<String>,
    pub(crate) instructions: String,
}

impl Offer {
    /// A server with tools of these names and nothing else.
    pub(crate) fn tools(names: &[&str]) -> Self {
        let tool = |name: &&str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        Self { tools: names.iter().map(tool).collect(), ..Self::default() }
    }

    /// Adds prompts of these names.
    pub(crate) fn with_prompts(mut self, names: &[&str]) -> Self {
        self.prompts.extend(names.iter().map(|name| format!(r#"{{"name":"{name}"}}"#)));
        self
    }

    /// Adds resources of these URIs.
    pub(crate) fn with_resources(mut self, uris: &[&str]) -> Self {
        self.resources.extend(uris.iter().map(|uri| format!(r#"{{"uri":"{uri}","name":"r"}}"#)));
        self
    }

    /// The answer of a server that makes no mistakes.
    pub(crate) fn answer(&self, request: &Received) -> Reply {
        if request.http_method() != "POST" {
            return Reply::http("405 Method Not Allowed", "Allow: POST\r\n", "");
        }
        match self.result(request) {
            Some(result) => Reply::result(request, &result),
            None => Reply::error(request, "404 Not Found", -32601, "no such method here"),
        }
    }

    /// The result that belongs into that answer; `None` for methods that this server does not have.
    pub(crate) fn result(&self, request: &Received) -> Option<String> {
        const CACHE: &str = r#""ttlMs":60000,"cacheScope":"public","resultType":"complete""#;
        let page = |key: &str, items: &[String]| format!(r#"{{"{key}":[{}],{CACHE}}}"#, items.join(","));
        Some(match request.method().as_str() {
            "tools/list" => page("tools", &self.tools),
            "prompts/list" => page("prompts", &self.prompts),
            "resources/list" => page("resources", &self.resources),
            "resources/templates/list" => page("resourceTemplates", &self.templates),
            "server/discover" => self.discovery(),
            "tools/call" => r#"{"content":[{"type":"text","text":"done"}],"resultType":"complete"}"#.into(),
            "prompts/get" => r#"{"messages":[],"resultType":"complete"}"#.into(),
            "completion/complete" => r#"{"completion":{"values":["x"]},"resultType":"complete"}"#.into(),
            "resources/read" => {
                let uri = literal(&request.body, &["params", "uri"]);
                format!(r#"{{"contents":[{{"uri":{uri},"text":"text"}}],{CACHE}}}"#)
            }
            _ => return None,
        })
    }

    fn discovery(&self) -> String {
        let instructions = serde_json::Value::from(self.instructions.as_str());
        let mut capabilities = Vec::new();
        let has_resources = !(self.resources.is_empty() && self.templates.is_empty());
        for (name, is_offered) in [
            ("tools", !self.tools.is_empty()),
            ("prompts", !self.prompts.is_empty()),
            ("resources", has_resources),
        ] {
            if is_offered {
                capabilities.push(format!(r#""{name}":{{}}"#));
            }
        }
        format!(
            r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{{}}},"instructions":{instructions},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"scripted","version":"1"}}}},"ttlMs":60000,"cacheScope":"public","resultType":"complete"}}"#,
            capabilities.join(",")
        )
    }
}

/// The members of a JSON object, each value exactly as it is spelled.
pub(crate) fn members(json: &[u8], path: &[&str]) -> BTreeMap<String, String> {
    let object = literal(json, path);
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&object).expect("an object");
    members.into_iter().map(|(key, value)| (key, value.get().to_owned())).collect()
}

/// A value of a JSON object exactly as it is spelled, found by a path of keys and indices.
pub(crate) fn literal(json: &[u8], path: &[&str]) -> String {
    let text = std::str::from_utf8(json).expect("the JSON is UTF-8");
    let mut value: Box<RawValue> = serde_json::from_str(text).expect("valid JSON");
    for key in path {
        let inner = match key.parse::<usize>() {
            Ok(index) => Vec::<Box<RawValue>>::deserialize(&*value).expect("an array").into_iter().nth(index),
            Err(_) => {
                BTreeMap::<String, Box<RawValue>>::deserialize(&*value).expect("an object").remove(*key)
            }
        };
        value = inner.unwrap_or_else(|| panic!("no {key} in {text}"));
    }
    value.get().to_owned()
}
