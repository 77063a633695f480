//! What the generator sends, made once at start, and the check of what comes back.
//!
//! Ids are ten digits, so that a prepared body needs only its id overwritten. Deliberately not here: connections
//! and time.

use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::http1::Message;
use crate::tally::Fault;
use crate::tls::Tls;
use crate::{Era, Options};

/// From this size on, reading every reply in full would cost more than the servers under test.
const LARGE_BYTES: usize = 16 * 1024;

/// The first id; all ids have as many digits.
pub(crate) const FIRST_ID: u64 = 1_000_000_000;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// Everything a connection needs to know to make calls.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    /// For `https`.
    pub(crate) tls: Option<Tls>,
    /// Whether a call is no more than a TLS handshake.
    pub(crate) handshakes_only: bool,
    /// Whether each connection opens a legacy session first.
    pub(crate) opens_sessions: bool,
    /// Whether all calls have the first id.
    pub(crate) same_id: bool,
    /// How many events each reply has; 0 where it need not be a stream.
    pub(crate) events: u64,
    /// Called in turn.
    pub(crate) calls: Vec<Call>,
    /// Opens a legacy session: `initialize`, then `notifications/initialized`.
    pub(crate) opening: [Call; 2],
}

/// One prepared request.
pub(crate) struct Call {
    /// Up to the last header's line end, without the blank line.
    head: Vec<u8>,
    body: Vec<u8>,
    /// Where in the body the id's digits are; a notification has none.
    id_at: Option<usize>,
}

impl Plan {
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let address = address(&options.url)?;
        let named = if options.method == "tools/call" { options.tools.as_slice() } else { &[] };
        let mut calls: Vec<_> = named.iter().map(|name| Call::new(options, Some(name))).collect();
        if calls.is_empty() {
            calls.push(Call::new(options, None));
        }
        if options.method == "initialize" {
            calls = vec![Call::initialize(options)];
        }
        Ok(Self {
            address,
            tls: tls(options)?,
            handshakes_only: options.handshakes,
            opens_sessions: options.era != Era::Modern && options.method != "initialize",
            same_id: options.same_id,
            events: options.events,
            calls,
            opening: Call::opening(options),
        })
    }
}

impl Call {
    fn new(options: &Options, name: Option<&String>) -> Self {
        let body_padded_by = |padding: usize| {
            let mut params = serde_json::Map::new();
            if let Some(name) = name {
                params.insert("name".into(), json!(name));
                params.insert("arguments".into(), json!({"query": "q".repeat(padding), "limit": 10}));
            }
            if options.era == Era::Modern {
                params.insert("_meta".into(), modern_meta(options));
            } else if options.events > 0 {
                params.insert("_meta".into(), json!({"progressToken": 1}));
            }
            json!({"jsonrpc": "2.0", "id": FIRST_ID, "method": options.method, "params": params}).to_string()
        };
        let padding = options.body_bytes.saturating_sub(body_padded_by(0).len());
        let mirrored = match (options.era != Era::Legacy, name) {
            (true, Some(name)) => format!("Mcp-Method: {}\r\nMcp-Name: {name}\r\n", options.method),
            (true, None) => format!("Mcp-Method: {}\r\n", options.method),
            (false, _) => String::new(),
        };
        let version = if options.era == Era::Modern { MODERN } else { LEGACY };
        Self::assemble(options, Some(version), &mirrored, body_padded_by(padding))
    }

    /// What opens a legacy session: `initialize`, then `notifications/initialized`.
    pub(crate) fn opening(options: &Options) -> [Self; 2] {
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        [Self::initialize(options), Self::assemble(options, Some(LEGACY), "", initialized.to_string())]
    }

    /// What version it will be is not known before it has been answered.
    fn initialize(options: &Options) -> Self {
        let body = json!({"jsonrpc": "2.0", "id": FIRST_ID, "method": "initialize", "params": {
            "protocolVersion": LEGACY, "capabilities": options.capabilities, "clientInfo": client_info() }});
        Self::assemble(options, None, "", body.to_string())
    }

    /// A legacy call of the first tool.
    pub(crate) fn first(options: &Options) -> Self {
        Self::new(options, options.tools.first())
    }

    /// The GET of a legacy session.
    pub(crate) fn session_stream(options: &Options) -> Self {
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: {LEGACY}\r\n",
            options.url.path(),
            options.url.authority().map_or("", |authority| authority.as_str()),
        );
        Self { head: head.into_bytes(), body: Vec::new(), id_at: None }
    }

    /// A `subscriptions/listen` for changes of the tools.
    pub(crate) fn listen(options: &Options) -> Self {
        let body = json!({"jsonrpc": "2.0", "id": FIRST_ID, "method": "subscriptions/listen", "params": {
            "_meta": modern_meta(options), "notifications": {"toolsListChanged": true} }});
        Self::assemble(options, Some(MODERN), "Mcp-Method: subscriptions/listen\r\n", body.to_string())
    }

    fn assemble(options: &Options, version: Option<&str>, mirrored: &str, body: String) -> Self {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{mirrored}",
            options.url.path(),
            options.url.authority().map_or("", |authority| authority.as_str()),
        );
        if let Some(version) = version {
            let _ = write!(head, "MCP-Protocol-Version: {version}\r\n");
        }
        for header in &options.headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
        let id_at = body.find(&FIRST_ID.to_string());
        Self { head: head.into_bytes(), body: body.into_bytes(), id_at }
    }

    /// Appends the request with this `id`; `session` is a whole header line or empty.
    pub(crate) fn write(&self, id: u64, session: &[u8], output: &mut Vec<u8>) {
        for part in [&self.head, session, b"\r\n", &self.body] {
            output.extend_from_slice(part);
        }
        if let Some(id_at) = self.id_at {
            let at = output.len() - self.body.len() + id_at;
            let digits = id.to_string();
            output[at..at + digits.len()].copy_from_slice(digits.as_bytes());
        }
    }
}

/// How to speak TLS, where the URL asks for it.
fn tls(options: &Options) -> anyhow::Result<Option<Tls>> {
    if options.url.scheme_str() != Some("https") {
        anyhow::ensure!(!options.handshakes, "handshakes need an https URL");
        return Ok(None);
    }
    let ca = options.ca.as_deref().context("https needs --ca")?;
    Tls::new(ca, options.url.host().unwrap_or_default()).map(Some)
}

/// Where a URL's host listens.
pub(crate) fn address(url: &http::Uri) -> anyhow::Result<SocketAddr> {
    let (host, port) = match url.authority() {
        Some(authority) => (authority.host(), authority.port_u16().unwrap_or(80)),
        None => bail!("the URL must be http://HOST:PORT/PATH"),
    };
    std::net::ToSocketAddrs::to_socket_addrs(&(host.trim_matches(['[', ']']), port))?
        .next()
        .with_context(|| format!("{host} has no address"))
}

/// Whether `reply` is the result of the call with this `id`. Large replies are only `glance`d at, where asked for.
pub(crate) fn check(reply: &Message<'_>, id: u64, glance: bool) -> Result<(), Fault> {
    let status = reply.start_line().get(9..12).unwrap_or_default();
    if status != b"200" {
        return Err(Fault::Status(String::from_utf8_lossy(status).into_owned()));
    }
    let json = if reply.header("content-type").is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        last_event(&reply.body).ok_or(Fault::Malformed)?
    } else {
        &reply.body
    };
    if glance && json.len() >= LARGE_BYTES && begins_as_result(json, id) {
        return Ok(());
    }
    check_message(json, id)
}

/// Whether `json` is the result of the call with this `id`.
pub(crate) fn check_message(json: &[u8], id: u64) -> Result<(), Fault> {
    let reply: Reply<'_> = serde_json::from_slice(json).map_err(|_| Fault::Malformed)?;
    match reply {
        Reply { error: Some(_), .. } => Err(Fault::JsonRpcError),
        Reply { id: answered, .. } if answered != Some(id) => Err(Fault::WrongId),
        Reply { result: None, .. } => Err(Fault::Malformed),
        Reply { .. } => Ok(()),
    }
}

#[derive(Deserialize)]
struct Reply<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Whether the id and a result stand at the beginning; a reply that orders its keys otherwise is read in full.
fn begins_as_result(json: &[u8], id: u64) -> bool {
    let beginning = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"#);
    json.starts_with(beginning.as_bytes()) && json.ends_with(b"}}")
}

fn last_event(stream: &[u8]) -> Option<&[u8]> {
    let data = memchr::memmem::rfind(stream, b"data:")?;
    let line = &stream[data + 5..];
    Some(&line[..memchr::memchr(b'\n', line).unwrap_or(line.len())])
}

fn modern_meta(options: &Options) -> serde_json::Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": client_info(),
        "io.modelcontextprotocol/clientCapabilities": options.capabilities,
    })
}

fn client_info() -> serde_json::Value {
    json!({"name": "generator", "version": "1.0.0"})
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::http1;

    fn written(arguments: &[&str], session: &[u8]) -> Vec<u8> {
        let base = ["generator", "--url", "http://127.0.0.1:1/mcp"];
        let options = Options::parse_from(base.iter().chain(arguments));
        let mut output = Vec::new();
        Plan::new(&options).unwrap().calls[0].write(FIRST_ID + 7, session, &mut output);
        output
    }

    #[test]
    fn a_call_has_the_size_the_id_and_the_headers_asked_for() {
        let bytes =
            written(&["--body-bytes", "512", "--tool", "a,b", "--header", "X: y"], b"Mcp-Session-Id: s\r\n");
        let message = http1::parse(&bytes).unwrap().unwrap();
        assert_eq!((message.length, message.body.len()), (bytes.len(), 512));
        let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
        assert_eq!((&body["id"], &body["params"]["name"]), (&json!(FIRST_ID + 7), &json!("a")));
        for (name, value) in
            [("x", "y"), ("mcp-name", "a"), ("mcp-method", "tools/call"), ("mcp-session-id", "s")]
        {
            assert_eq!(message.header(name), Some(value.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_legacy_call_mirrors_nothing() {
        let bytes = written(&["--era", "legacy"], b"");
        let message = http1::parse(&bytes).unwrap().unwrap();
        assert_eq!(message.header("mcp-method"), None);
        assert_eq!(message.header("mcp-protocol-version"), Some(LEGACY.as_bytes()));
        assert!(!message.body.windows(5).any(|window| window == b"_meta"));
    }

    #[test]
    fn a_legacy_call_mirrors_where_asked() {
        let bytes = written(&["--era", "legacy-mirrored"], b"");
        let message = http1::parse(&bytes).unwrap().unwrap();
        assert_eq!(message.header("mcp-method"), Some(b"tools/call".as_slice()));
        assert_eq!(message.header("mcp-name"), Some(b"tool_0".as_slice()));
    }

    #[test]
    fn every_reply_is_checked() {
        let cases = [
            ("200 OK", r#"{"id":5,"result":{}}"#, Ok(())),
            ("200 OK", r#"{"id":6,"result":{}}"#, Err(Fault::WrongId)),
            ("200 OK", r#"{"result":{}}"#, Err(Fault::WrongId)),
            ("200 OK", r#"{"id":5,"error":{}}"#, Err(Fault::JsonRpcError)),
            ("200 OK", r#"{"id":5}"#, Err(Fault::Malformed)),
            ("200 OK", "nonsense", Err(Fault::Malformed)),
            ("502 Bad Gateway", r#"{"id":5,"result":{}}"#, Err(Fault::Status("502".into()))),
        ];
        for (status, body, expected) in cases {
            let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let message = http1::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(check(&message, 5, true), expected, "{text}");
        }
    }

    #[test]
    fn a_glance_at_a_large_reply_sees_its_id() {
        let body = |id: u64, end: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":"{}"{end}"#, "x".repeat(LARGE_BYTES))
        };
        for (body, expected) in [
            (body(5, "}}"), Ok(())),
            (body(6, "}}"), Err(Fault::WrongId)),
            (body(5, "]"), Err(Fault::Malformed)),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            assert_eq!(check(&http1::parse(text.as_bytes()).unwrap().unwrap(), 5, true), expected);
        }
    }

    #[test]
    fn of_a_stream_the_last_event_counts() {
        let stream = "data: {\"method\":\"notifications/progress\"}\n\ndata: {\"id\":5,\"result\":{}}\n\n";
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{stream}",
            stream.len()
        );
        assert_eq!(check(&http1::parse(text.as_bytes()).unwrap().unwrap(), 5, true), Ok(()));
    }
}
