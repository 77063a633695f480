//! The legacy era: a well-behaved server with sessions, and requests as a client of that era writes them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{
    Connection, Daemon, Offer, Received, Reply, Request, Stream, Upstream, VERSION, body, eventually, post,
};

/// The newest version of the era.
pub(crate) const LEGACY_VERSION: &str = "2025-11-25";

/// A server that opens sessions with `initialize`. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Legacy {
    offer: Offer,
    /// The newest version it speaks.
    version: String,
    is_modern_too: bool,
    gives_sessions: bool,
    sessions: Arc<Mutex<Sessions>>,
    /// What it has said it on, if it answers a GET.
    streams: Option<Arc<Mutex<Vec<Stream>>>>,
}

#[derive(Default)]
struct Sessions {
    opened: usize,
    open: BTreeSet<String>,
    /// Those that the gateway opened in its own name.
    own: BTreeSet<String>,
}

impl Legacy {
    /// A server of this era alone.
    pub(crate) fn new(offer: Offer) -> Self {
        let version = LEGACY_VERSION.into();
        Self {
            offer,
            version,
            is_modern_too: false,
            gives_sessions: true,
            sessions: Arc::default(),
            streams: None,
        }
    }

    /// It speaks no newer version than this.
    pub(crate) fn version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    /// It answers modern requests as well.
    pub(crate) fn and_modern(mut self) -> Self {
        self.is_modern_too = true;
        self
    }

    /// It gives no session ids.
    pub(crate) fn without_sessions(mut self) -> Self {
        self.gives_sessions = false;
        self
    }

    /// It opens a stream for every GET.
    pub(crate) fn with_streams(mut self) -> Self {
        self.streams = Some(Arc::default());
        self
    }

    /// The streams that were opened so far for clients.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.streams_where(|is_own| !is_own)
    }

    /// The streams that the gateway opened so far in its own session.
    pub(crate) fn own_streams(&self) -> Vec<Stream> {
        self.streams_where(|is_own| is_own)
    }

    fn streams_where(&self, fits: impl Fn(bool) -> bool) -> Vec<Stream> {
        let streams = self.streams.iter().flat_map(|streams| streams.lock().unwrap().clone());
        streams.filter(|stream| fits(self.is_own(&stream.request))).collect()
    }

    /// Whether a request belongs to a session of the gateway's own.
    pub(crate) fn is_own(&self, request: &Received) -> bool {
        let sessions = self.sessions.lock().unwrap();
        request.headers("mcp-session-id").iter().any(|id| sessions.own.contains(*id))
    }

    /// The `count`th stream in the gateway's own session; waits for it.
    pub(crate) fn own_stream(&self, count: usize) -> Stream {
        eventually("a stream is opened", || self.own_streams().get(count - 1).cloned())
    }

    /// The stream that was opened as the `count`th for a client; waits for it.
    pub(crate) fn stream(&self, count: usize) -> Stream {
        eventually("a stream is opened", || self.streams().get(count - 1).cloned())
    }

    /// Cuts every stream.
    pub(crate) fn cut_streams(&self) {
        self.streams.iter().for_each(|streams| streams.lock().unwrap().clear());
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Upstream {
        let server = self.clone();
        Upstream::start(move |request| server.answer(request))
    }

    /// The ids of the sessions that are open.
    pub(crate) fn open_sessions(&self) -> Vec<String> {
        self.sessions.lock().unwrap().open.iter().cloned().collect()
    }

    /// Those of them that the gateway opened for clients.
    pub(crate) fn client_sessions(&self) -> Vec<String> {
        let sessions = self.sessions.lock().unwrap();
        sessions.open.difference(&sessions.own).cloned().collect()
    }

    /// How many sessions have been opened.
    pub(crate) fn sessions_opened(&self) -> usize {
        self.sessions.lock().unwrap().opened
    }

    /// Forgets every session, as a server does that is started anew.
    pub(crate) fn forget_sessions(&self) {
        self.sessions.lock().unwrap().open.clear();
    }

    /// The answer of a server that makes no mistakes.
    pub(crate) fn answer(&self, request: &Received) -> Reply {
        if request.headers("mcp-protocol-version") == [VERSION] {
            return if self.is_modern_too {
                self.offer.answer(request)
            } else {
                Reply::error(request, "400 Bad Request", -32000, "Bad Request: Unsupported protocol version")
            };
        }
        let method = request.method();
        if method == "initialize" {
            return self.initialize(request);
        }
        if self.gives_sessions {
            let session = request.headers("mcp-session-id").first().map(|id| (*id).to_owned());
            let Some(session) = session else { return refuse("400 Bad Request", -32000) };
            let mut sessions = self.sessions.lock().unwrap();
            if !sessions.open.contains(&session) {
                return refuse("404 Not Found", -32001);
            }
            if method == "DELETE" {
                sessions.open.remove(&session);
                return Reply::http("200 OK", "", "");
            }
        }
        if let (Some(streams), "GET") = (&self.streams, method.as_str()) {
            let (stream, bytes) = Stream::answering(request);
            streams.lock().unwrap().push(stream);
            return Reply::stream().pipe(bytes).reset();
        }
        if matches!(method.as_str(), "GET" | "DELETE") {
            return Reply::http("405 Method Not Allowed", "Allow: POST\r\n", "");
        }
        if request.json().get("id").is_none() {
            return Reply::http("202 Accepted", "", "");
        }
        match self.result(request, &method) {
            Some(result) => Reply::result(request, &result),
            None => Reply::error(request, "200 OK", -32601, "Method not found"),
        }
    }

    /// The result of a request in a session; `None` for methods that this server does not have.
    pub(crate) fn result(&self, request: &Received, method: &str) -> Option<String> {
        match method {
            "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                Some("{}".into())
            }
            "server/discover" => None,
            _ => {
                let modern = self.offer.result(request)?;
                let cache = r#","ttlMs":60000,"cacheScope":"public""#;
                Some(modern.replace(cache, "").replace(r#","resultType":"complete""#, ""))
            }
        }
    }

    fn initialize(&self, request: &Received) -> Reply {
        let asked = request.json()["params"]["protocolVersion"].as_str().unwrap_or_default().to_owned();
        let version = asked.min(self.version.clone());
        let mut capabilities = json!({"logging": {}});
        let Offer { tools, prompts, resources, templates, instructions } = &self.offer;
        if !tools.is_empty() {
            capabilities["tools"] = json!({"listChanged": true});
        }
        if !prompts.is_empty() {
            capabilities["prompts"] = json!({"listChanged": true});
        }
        if !resources.is_empty() || !templates.is_empty() {
            capabilities["resources"] = json!({"subscribe": true, "listChanged": true});
        }
        let result = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "version": "1"},
            "instructions": instructions,
        });
        let body = super::reply::result_body(request, &result.to_string());
        let mut headers = String::from("Content-Type: application/json\r\n");
        let mut sessions = self.sessions.lock().unwrap();
        sessions.opened += 1;
        if self.gives_sessions {
            let id = format!("session-{}", sessions.opened);
            let _ = write!(headers, "Mcp-Session-Id: {id}\r\n");
            if request.json()["params"]["clientInfo"]["name"] == "trunkline" {
                sessions.own.insert(id.clone());
            }
            sessions.open.insert(id);
        }
        Reply::http("200 OK", &headers, &body)
    }
}

fn refuse(status: &str, code: i64) -> Reply {
    let body = format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"no session"}}}}"#);
    Reply::json(status, &body)
}

/// A request as clients of this era write it, outside a session. `id` and `params` are JSON as it stands.
pub(crate) fn legacy(id: &str, method: &str, params: &str) -> Request {
    post(body(id, method, params))
}

/// A `tools/call` of this tool without arguments, as clients of this era write it, outside a session.
pub(crate) fn legacy_call(id: &str, tool: &str) -> Request {
    legacy(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{{}}}}"#))
}

/// Sends a message that is only accepted.
#[track_caller]
pub(crate) fn tell(daemon: &Daemon, session: &str, message: &str) {
    let response = daemon.send(&in_session(session, post(message)));
    assert_eq!((response.status, response.body.len()), (202, 0), "{response:?}");
}

/// An `initialize` that offers this version and no capabilities.
pub(crate) fn initialize(id: &str, version: &str) -> Request {
    let client = r#""capabilities":{},"clientInfo":{"name":"blackbox","version":"1"}"#;
    legacy(id, "initialize", &format!(r#"{{"protocolVersion":"{version}",{client}}}"#))
}

/// Opens a session as a client with these capabilities, and returns its id.
#[track_caller]
pub(crate) fn open_session_with(address: SocketAddr, version: &str, capabilities: &str) -> String {
    let mut connection = Connection::open(address);
    let offer = initialize("0", version)
        .replacing(r#""capabilities":{}"#, &format!("\"capabilities\":{capabilities}"));
    connection.write(&offer.bytes());
    let response = connection.response();
    response.assert_ok();
    response.header("mcp-session-id").expect("a session id").to_owned()
}

/// The same request in a session, with the newest version in its header unless it has one.
pub(crate) fn in_session(session: &str, request: Request) -> Request {
    let has_version =
        request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("mcp-protocol-version"));
    let request = request.set("Mcp-Session-Id", session);
    if has_version { request } else { request.with("MCP-Protocol-Version", LEGACY_VERSION) }
}

/// Opens a session with the gateway (or a server) at this address, as clients do; returns its id and the result of
/// `initialize`.
#[track_caller]
pub(crate) fn open_session(address: SocketAddr, version: &str) -> (String, Value) {
    let mut connection = Connection::open(address);
    connection.write(&initialize("0", version).bytes());
    let response = connection.response();
    response.assert_ok();
    let session = response.header("mcp-session-id").expect("a session id").to_owned();
    let result = response.json()["result"].take();
    let negotiated = result["protocolVersion"].as_str().expect("a version").to_owned();
    let initialized = post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let initialized = in_session(&session, initialized.with("MCP-Protocol-Version", negotiated));
    connection.write(&initialized.bytes());
    let accepted = connection.response();
    assert_eq!((accepted.status, accepted.body.len()), (202, 0), "{accepted:?}");
    (session, result)
}
