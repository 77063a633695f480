//! A small MCP client that can also break every rule.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{DemoKind, DemoServer};

const PATIENCE: Duration = Duration::from_secs(10);

/// A running demo server.
pub(super) struct Demo {
    pub(super) address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Demo {
    pub(super) async fn start(kind: DemoKind) -> Self {
        let server = DemoServer::bind(kind).await.unwrap();
        let (address, stop) = (server.address, CancellationToken::new());
        Self { address, stop: stop.clone(), serving: tokio::spawn(server.serve(stop)) }
    }

    /// Asks the server to end, without waiting.
    pub(super) fn cancel(&self) {
        self.stop.cancel();
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap();
    }

    /// Sends `call` on a connection of its own and reads the whole reply.
    pub(super) async fn send(&self, call: &Call) -> Reply {
        let (head, body) = self.open(call).await.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
        Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(super) async fn result(&self, call: &Call) -> Value {
        let reply = self.send(call).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["result"].clone()
    }

    /// The reply's head, with its body still to come.
    pub(super) async fn open(&self, call: &Call) -> Response<Incoming> {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(call.http_method.clone()).uri(call.path);
        for (name, value) in &call.headers {
            request = request.header(name, value.as_bytes());
        }
        let request = request.body(Full::new(call.body.clone())).unwrap();
        tokio::time::timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap()
    }
}

/// A request to come, correct until it is told otherwise.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) http_method: Method,
    pub(super) path: &'static str,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Call {
    /// A request with id 7 and no client capabilities; `_meta` is filled in where `params` has none.
    pub(super) fn new(method: &str, params: Value) -> Self {
        Self::with_capabilities(method, params, &json!({}))
    }

    pub(super) fn with_capabilities(method: &str, mut params: Value, capabilities: &Value) -> Self {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        let mut headers = vec![
            ("Host", "127.0.0.1"),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        if matches!(method, "tools/call" | "prompts/get" | "resources/read") {
            headers.extend(params["name"].as_str().or(params["uri"].as_str()).map(|name| ("Mcp-Name", name)));
        }
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        Self { http_method: Method::POST, path: "/mcp", headers, body: Bytes::from(body) }
    }

    /// A request of the legacy era with id 7, without a version header.
    pub(super) fn legacy(session: Option<&str>, method: &str, params: &Value) -> Self {
        let mut headers = vec![
            ("Host", "127.0.0.1"),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        Self { http_method: Method::POST, path: "/mcp", headers, body: Bytes::from(body) }
    }

    pub(super) fn tool(name: &str, arguments: &Value) -> Self {
        Self::new("tools/call", json!({ "name": name, "arguments": arguments }))
    }

    /// One header more.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// The same header with another value.
    pub(super) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    pub(super) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same body with another value at a JSON pointer; `null` removes it.
    pub(super) fn edit(self, pointer: &str, value: Value) -> Self {
        let mut body: Value = serde_json::from_slice(&self.body).unwrap();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/");
        let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(&key)
        } else {
            parent.insert(key, value)
        };
        self.body(body.to_string())
    }
}

/// A whole reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    headers: HeaderMap,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The messages of a stream.
    pub(super) fn messages(&self) -> Vec<Value> {
        messages(&self.body)
    }
}

/// The events of a stream that is read while it is open.
pub(super) struct Stream {
    body: Incoming,
    text: String,
}

impl Stream {
    pub(super) fn new(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next message, or `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = messages(event);
                self.text = rest.to_owned();
                match event.into_iter().next() {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.unwrap()?.unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }
}

fn messages(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}
