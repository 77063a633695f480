//! What the stub answers to one request: the checks of a strict server, then a prepared result with the request's id.
//!
//! Modern: `Mcp-Method` and `Mcp-Name` must equal the body's (spec 2026-07-28, transports, "Server Validation"), the
//! tool must exist. Legacy: a session it handed out, opened in two steps, and a known version; mirrored headers must
//! agree where they are. It deliberately reads nothing else of a request: no arguments, no `_meta`, no cursor.

use std::io::Write;

use crate::request::{Call, Request};
use crate::results::{Results, initialize};
use crate::sessions::{Sessions, Stage};

/// The head of a streamed reply; events follow as chunks.
pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A status line's end and the JSON-RPC error that goes with it.
type Refusal = (&'static str, &'static [u8]);

/// The replies, made once at start.
pub(crate) struct Replies {
    tools_count: usize,
    modern: Results,
    legacy: Results,
}

impl Replies {
    pub(crate) fn new(tools_count: usize, reply_bytes: usize, ttl_ms: u64) -> Self {
        Self {
            tools_count,
            modern: Results::modern(tools_count, reply_bytes, ttl_ms),
            legacy: Results::legacy(tools_count, reply_bytes),
        }
    }

    /// Appends the whole HTTP reply to `request`.
    pub(crate) fn write(&self, request: &Request<'_>, sessions: &Sessions, output: &mut Vec<u8>) {
        match (request.verb, &request.call) {
            (b"POST", None) => write_json("400 Bad Request", "", "null", PARSE_ERROR, output),
            (b"POST", Some(call)) if request.is_modern() => self.write_modern(request, call, output),
            (b"POST", Some(call)) => self.write_legacy(request, call, sessions, output),
            (b"DELETE", _) if !request.is_modern() => write_end(request, sessions, output),
            _ if request.is_modern() => write_empty("405 Method Not Allowed\r\nallow: POST", output),
            _ => write_empty("405 Method Not Allowed\r\nallow: POST, DELETE", output),
        }
    }

    fn write_modern(&self, request: &Request<'_>, call: &Call<'_>, output: &mut Vec<u8>) {
        if let Some((status, error)) = self.refusal(request, call) {
            return write_json(status, "", request.id(), error, output);
        }
        if call.id.is_none() {
            return write_empty("202 Accepted", output);
        }
        match self.modern.of(&call.method) {
            Some(result) => write_json("200 OK", "", request.id(), result, output),
            None => write_json("404 Not Found", "", request.id(), UNKNOWN_METHOD, output),
        }
    }

    fn write_legacy(
        &self,
        request: &Request<'_>,
        call: &Call<'_>,
        sessions: &Sessions,
        output: &mut Vec<u8>,
    ) {
        let is_known = LEGACY.iter().any(|version| version.as_bytes() == request.version);
        if !is_known && !request.version.is_empty() {
            return write_json("400 Bad Request", "", request.id(), UNKNOWN_VERSION, output);
        }
        if call.method == "initialize" {
            let header = format!("mcp-session-id: {}\r\n", sessions.open());
            return write_json("200 OK", &header, request.id(), &initialize(negotiated(call)), output);
        }
        if let Some((status, error)) = session_refusal(request, call, sessions) {
            return write_json(status, "", request.id(), error, output);
        }
        if call.method == "notifications/initialized" {
            sessions.initialized(request.session);
        }
        if call.id.is_none() {
            return write_empty("202 Accepted", output);
        }
        if let Some((status, error)) = self.refusal(request, call) {
            return write_json(status, "", request.id(), error, output);
        }
        let outcome = self.legacy.of(&call.method).unwrap_or(UNKNOWN_METHOD);
        write_json("200 OK", "", request.id(), outcome, output);
    }

    /// Appends the answer to a line that came over stdio, with its line end; nothing where none is due.
    pub(crate) fn write_line(&self, call: &Call<'_>, output: &mut Vec<u8>) {
        let Some(id) = call.id else { return };
        let results = if call.is_modern() { &self.modern } else { &self.legacy };
        if call.method == "initialize" {
            write_envelope(id.get(), &initialize(negotiated(call)), output);
        } else if call.method == "tools/call" && !self.knows(call) {
            write_envelope(id.get(), UNKNOWN_TOOL, output);
        } else {
            write_envelope(id.get(), results.of(&call.method).unwrap_or(UNKNOWN_METHOD), output);
        }
        output.push(b'\n');
    }

    /// Appends the last event of a streamed tool call, its result, and the end of the stream.
    pub(crate) fn write_last_event(
        &self,
        request: &Request<'_>,
        event_id: Option<usize>,
        output: &mut Vec<u8>,
    ) {
        let refusal = request.call.as_ref().and_then(|call| self.refusal(request, call));
        let results = if request.is_modern() { &self.modern } else { &self.legacy };
        let outcome = refusal.map_or(results.call.as_slice(), |(_, error)| error);
        let mut event = Vec::with_capacity(outcome.len() + 64);
        write_event_id(event_id, &mut event);
        event.extend_from_slice(b"data: ");
        write_envelope(request.id(), outcome, &mut event);
        event.extend_from_slice(b"\n\n");
        write_chunk(&event, output);
        output.extend_from_slice(b"0\r\n\r\n");
    }

    fn refusal(&self, request: &Request<'_>, call: &Call<'_>) -> Option<Refusal> {
        let named = call.method == "tools/call";
        let agrees = request.mcp_method == call.method.as_bytes()
            && (!named || request.mcp_name == call.params.name.as_bytes());
        if !agrees && request.is_modern() {
            return Some(("400 Bad Request", HEADER_MISMATCH));
        }
        let mirrors = !request.mcp_method.is_empty() || !request.mcp_name.is_empty();
        if !agrees && mirrors {
            return Some(("400 Bad Request", HEADER_MISMATCH_LEGACY));
        }
        (named && !self.knows(call)).then_some(("200 OK", UNKNOWN_TOOL))
    }

    fn knows(&self, call: &Call<'_>) -> bool {
        let number = call.params.name.strip_prefix("tool_").and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number < self.tools_count)
    }
}

fn negotiated(call: &Call<'_>) -> &'static str {
    let asked = &*call.params.protocol_version;
    LEGACY.iter().find(|version| **version == asked).unwrap_or(&LEGACY[0])
}

fn session_refusal(request: &Request<'_>, call: &Call<'_>, sessions: &Sessions) -> Option<Refusal> {
    if request.session.is_empty() {
        return Some(("400 Bad Request", NO_SESSION));
    }
    match sessions.stage(request.session) {
        None => Some(("404 Not Found", UNKNOWN_SESSION)),
        Some(Stage::Opening) if !matches!(&*call.method, "ping" | "notifications/initialized") => {
            Some(("400 Bad Request", NOT_INITIALIZED))
        }
        Some(_) => None,
    }
}

fn write_end(request: &Request<'_>, sessions: &Sessions, output: &mut Vec<u8>) {
    write_empty(
        match request.session {
            b"" => "400 Bad Request",
            session if sessions.end(session) => "204 No Content",
            _ => "404 Not Found",
        },
        output,
    );
}

/// Appends one progress notification of this call as a chunk.
pub(crate) fn write_progress(
    request: &Request<'_>,
    (event, total): (usize, usize),
    event_id: Option<usize>,
    output: &mut Vec<u8>,
) {
    let token = request.call.as_ref().map_or("null", Call::progress_token);
    let mut text = Vec::with_capacity(160);
    write_event_id(event_id, &mut text);
    // Writing to a Vec cannot fail.
    write!(
        text,
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\
         \"progress\":{event},\"total\":{total}}}}}\n\n"
    )
    .ok();
    write_chunk(&text, output);
}

fn write_event_id(event_id: Option<usize>, output: &mut Vec<u8>) {
    if let Some(id) = event_id {
        writeln!(output, "id: {id}").ok();
    }
}

const PARSE_ERROR: &[u8] = br#""error":{"code":-32700,"message":"stub: not a JSON-RPC request"}"#;
const HEADER_MISMATCH: &[u8] = br#""error":{"code":-32020,"message":"stub: headers and body disagree"}"#;
const HEADER_MISMATCH_LEGACY: &[u8] =
    br#""error":{"code":-32001,"message":"stub: headers and body disagree"}"#;
const UNKNOWN_VERSION: &[u8] =
    br#""error":{"code":-32022,"message":"stub: unknown version","data":{"supported":["2026-07-28"]}}"#;
const UNKNOWN_METHOD: &[u8] = br#""error":{"code":-32601,"message":"stub: unknown method"}"#;
const UNKNOWN_TOOL: &[u8] = br#""error":{"code":-32602,"message":"stub: unknown tool"}"#;
const NO_SESSION: &[u8] = br#""error":{"code":-32600,"message":"stub: no Mcp-Session-Id"}"#;
const UNKNOWN_SESSION: &[u8] = br#""error":{"code":-32600,"message":"stub: unknown session"}"#;
const NOT_INITIALIZED: &[u8] = br#""error":{"code":-32600,"message":"stub: session not initialized"}"#;

fn write_json(status: &str, header: &str, id: &str, outcome: &[u8], output: &mut Vec<u8>) {
    let length = envelope_length(id, outcome);
    // Writing to a Vec cannot fail.
    write!(
        output,
        "HTTP/1.1 {status}\r\n{header}content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .ok();
    write_envelope(id, outcome, output);
}

/// Appends a reply without a body.
pub(crate) fn write_empty(status: &str, output: &mut Vec<u8>) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_bytes());
    // A 204 has no body, so it has no length either.
    output.extend_from_slice(if status.starts_with("204") {
        b"\r\n\r\n"
    } else {
        b"\r\ncontent-length: 0\r\n\r\n"
    });
}

/// Appends `data` as a chunk.
pub(crate) fn write_chunk(data: &[u8], output: &mut Vec<u8>) {
    write!(output, "{:x}\r\n", data.len()).ok();
    output.extend_from_slice(data);
    output.extend_from_slice(b"\r\n");
}

const ENVELOPE: [&[u8]; 3] = [br#"{"jsonrpc":"2.0","id":"#, b",", b"}"];

fn envelope_length(id: &str, outcome: &[u8]) -> usize {
    ENVELOPE.iter().map(|part| part.len()).sum::<usize>() + id.len() + outcome.len()
}

fn write_envelope(id: &str, outcome: &[u8], output: &mut Vec<u8>) {
    let [open, comma, close] = ENVELOPE;
    for part in [open, id.as_bytes(), comma, outcome, close] {
        output.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1;

    const MODERN: &str = "MCP-Protocol-Version: 2026-07-28\r\n";

    fn reply(sessions: &Sessions, verb: &str, headers: &str, body: &str) -> (String, String, String) {
        let text = format!("{verb} /mcp HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        let message = http1::parse(text.as_bytes()).unwrap().unwrap();
        let mut output = Vec::new();
        Replies::new(3, 256, 60_000).write(&Request::read(&message), sessions, &mut output);
        let reply = http1::parse(&output).unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (
            text(&reply.start_line()[9..12]),
            text(reply.header("mcp-session-id").unwrap_or_default()),
            text(&reply.body),
        )
    }

    #[test]
    fn a_legacy_session_is_strict_from_opening_to_end() {
        let sessions = Sessions::new();
        let initialize = r#"{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
        let (status, session, body) = reply(&sessions, "POST", "", initialize);
        assert_eq!(status, "200");
        assert!(body.contains(r#""protocolVersion":"2025-06-18""#), "{body}");
        let own = format!("MCP-Protocol-Version: 2025-06-18\r\nMcp-Session-Id: {session}\r\n");
        let mirrored = format!("{own}Mcp-Method: tools/call\r\nMcp-Name: tool_1\r\n");
        let list = r#"{"id":2,"method":"tools/list"}"#;
        let call = r#"{"id":2,"method":"tools/call","params":{"name":"tool_1"}}"#;
        let steps = [
            ("POST", own.as_str(), list, "400", "not initialized"),
            ("POST", &own, r#"{"id":2,"method":"ping"}"#, "200", r#""result":{}"#),
            ("POST", &own, r#"{"method":"notifications/initialized"}"#, "202", ""),
            ("POST", &own, list, "200", "tool_2"),
            ("POST", &own, call, "200", "xxx"),
            ("POST", &mirrored, call, "200", "xxx"),
            ("POST", &mirrored, list, "400", "-32001"),
            ("POST", &own, r#"{"id":2,"method":"server/discover"}"#, "200", "-32601"),
            ("POST", "", call, "400", "no Mcp-Session-Id"),
            ("POST", "Mcp-Session-Id: other\r\n", call, "404", "unknown session"),
            ("POST", "MCP-Protocol-Version: 1999-01-01\r\n", initialize, "400", "-32022"),
            ("GET", &own, "", "405", ""),
            ("DELETE", "", "", "400", ""),
            ("DELETE", &own, "", "204", ""),
            ("DELETE", &own, "", "404", ""),
            ("POST", &own, call, "404", "unknown session"),
        ];
        for (verb, headers, body, status, part) in steps {
            let (found, _, text) = reply(&sessions, verb, headers, body);
            assert_eq!(found, status, "{verb} {headers} {body}");
            assert!(text.contains(part), "{verb} {headers} {body}: {text}");
        }
    }

    #[test]
    fn a_line_is_answered_in_the_era_of_its_body() {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let cases = [
            (format!(r#"{{"id":1,"method":"tools/list","params":{{{meta}}}}}"#), "ttlMs"),
            (r#"{"id":1,"method":"tools/list"}"#.to_owned(), "tool_2"),
            (r#"{"id":1,"method":"tools/call","params":{"name":"tool_3"}}"#.to_owned(), "-32602"),
            (r#"{"id":1,"method":"initialize","params":{"protocolVersion":"x"}}"#.to_owned(), LEGACY[0]),
            (r#"{"id":1,"method":"server/discover"}"#.to_owned(), "-32601"),
            (r#"{"method":"notifications/initialized"}"#.to_owned(), ""),
        ];
        for (line, part) in cases {
            let mut output = Vec::new();
            Replies::new(3, 256, 60_000).write_line(&serde_json::from_str(&line).unwrap(), &mut output);
            let text = String::from_utf8(output).unwrap();
            assert!(text.contains(part), "{line}: {text}");
            assert_eq!(text.ends_with("}\n"), !part.is_empty(), "{line}: {text}");
        }
    }

    #[test]
    fn a_modern_request_needs_true_headers_and_no_session() {
        let sessions = Sessions::new();
        let call = r#"{"id":"a","method":"tools/call","params":{"name":"tool_1"}}"#;
        let cases = [
            ("Mcp-Method: tools/call\r\nMcp-Name: tool_1\r\n", call, "200", r#""id":"a""#),
            ("Mcp-Method: tools/call\r\nMcp-Name: tool_2\r\n", call, "400", "-32020"),
            ("Mcp-Method: tools/call\r\n", call, "400", "-32020"),
            ("Mcp-Method: ping\r\n", r#"{"id":1,"method":"ping"}"#, "404", "-32601"),
            ("Mcp-Method: initialize\r\n", r#"{"id":1,"method":"initialize"}"#, "404", "-32601"),
            (
                "Mcp-Method: server/discover\r\n",
                r#"{"id":1,"method":"server/discover"}"#,
                "200",
                "2026-07-28",
            ),
        ];
        for (headers, body, status, part) in cases {
            let (found, session, text) = reply(&sessions, "POST", &format!("{MODERN}{headers}"), body);
            assert_eq!((found.as_str(), session.as_str()), (status, ""), "{headers} {body}");
            assert!(text.contains(part), "{headers} {body}: {text}");
        }
    }
}
