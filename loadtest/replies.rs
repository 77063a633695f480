//! What the stub answers: JSON made once at start, with the request's id put in at answer time.
//!
//! A reply is decided from the method, the era and the checks of a strict server: `Mcp-Method` and `Mcp-Name` must
//! equal the body's (spec 2026-07-28, transports, "Server Validation"), the tool must exist. It deliberately reads
//! nothing else of a request: no arguments, no `_meta`, no cursor.

use std::borrow::Cow;
use std::io::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http1::Message;

/// The head of a streamed reply; events follow as chunks.
pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A request as far as the stub looks into it.
pub(crate) struct Request<'a> {
    verb: &'a [u8],
    /// The version header, empty when it is absent.
    version: &'a [u8],
    mcp_method: &'a [u8],
    mcp_name: &'a [u8],
    /// `None` when the body is not a JSON-RPC request or notification.
    call: Option<Call<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(default, borrow)]
    params: Params<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    protocol_version: Cow<'a, str>,
}

impl<'a> Request<'a> {
    /// Never fails: a body that cannot be read is answered as such.
    pub(crate) fn read(message: &'a Message<'_>) -> Self {
        let header = |name| message.header(name).unwrap_or_default();
        let start_line = message.start_line();
        Self {
            verb: start_line.split(|&byte| byte == b' ').next().unwrap_or_default(),
            version: header("mcp-protocol-version"),
            mcp_method: header("mcp-method"),
            mcp_name: header("mcp-name"),
            call: serde_json::from_slice(&message.body).ok(),
        }
    }

    pub(crate) fn is_tool_call(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.method == "tools/call")
    }

    /// Versions are dates, so they compare as text.
    fn is_modern(&self) -> bool {
        self.version >= b"2026-07-28".as_slice()
    }

    fn id(&self) -> &'a str {
        self.call.as_ref().and_then(|call| call.id).map_or("null", RawValue::get)
    }
}

/// The replies, made once at start.
pub(crate) struct Replies {
    tools_count: usize,
    call: Vec<u8>,
    tools: Vec<u8>,
}

impl Replies {
    /// `reply_bytes` is the size of the body of a tool's reply, as nearly as its smallest form allows.
    pub(crate) fn new(tools_count: usize, reply_bytes: usize) -> Self {
        let call = |text: &str| {
            format!(
                r#""result":{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#
            )
        };
        let envelope_bytes = r#"{"jsonrpc":"2.0","id":1000000000,}"#.len() + call("").len();
        let text = "x".repeat(reply_bytes.saturating_sub(envelope_bytes));
        Self { tools_count, call: call(&text).into_bytes(), tools: tools_list(tools_count).into_bytes() }
    }

    /// Appends the whole HTTP reply to `request`.
    pub(crate) fn write(&self, request: &Request<'_>, output: &mut Vec<u8>) {
        let Some(call) = &request.call else {
            return match request.verb {
                b"POST" => write_json("400 Bad Request", "", "null", PARSE_ERROR, output),
                b"DELETE" => write_empty("204 No Content", output),
                _ => write_empty("405 Method Not Allowed\r\nallow: POST", output),
            };
        };
        if call.id.is_none() {
            return write_empty("202 Accepted", output);
        }
        if let Some((status, error)) = self.refusal(request, call) {
            return write_json(status, "", request.id(), error, output);
        }
        let header = if call.method == "initialize" { "mcp-session-id: stub-session\r\n" } else { "" };
        match self.result(call) {
            Some(result) => write_json("200 OK", header, request.id(), &result, output),
            None if request.is_modern() => {
                write_json("404 Not Found", "", request.id(), UNKNOWN_METHOD, output);
            }
            None => write_json("200 OK", "", request.id(), UNKNOWN_METHOD, output),
        }
    }

    /// Appends the last event of a streamed tool call, its result, and the end of the stream.
    pub(crate) fn write_last_event(&self, request: &Request<'_>, output: &mut Vec<u8>) {
        let refusal = request.call.as_ref().and_then(|call| self.refusal(request, call));
        let outcome = refusal.map_or(self.call.as_slice(), |(_, error)| error);
        let mut event = Vec::with_capacity(outcome.len() + 64);
        event.extend_from_slice(b"data: ");
        write_envelope(request.id(), outcome, &mut event);
        event.extend_from_slice(b"\n\n");
        write_chunk(&event, output);
        output.extend_from_slice(b"0\r\n\r\n");
    }

    fn refusal(&self, request: &Request<'_>, call: &Call<'_>) -> Option<(&'static str, &'static [u8])> {
        let named = call.method == "tools/call";
        let agrees = request.mcp_method == call.method.as_bytes()
            && (!named || request.mcp_name == call.params.name.as_bytes());
        if request.is_modern() && !agrees {
            return Some(("400 Bad Request", HEADER_MISMATCH));
        }
        let number = call.params.name.strip_prefix("tool_").and_then(|number| number.parse::<usize>().ok());
        let known = number.is_some_and(|number| number < self.tools_count);
        (named && !known).then_some(("200 OK", UNKNOWN_TOOL))
    }

    fn result(&self, call: &Call<'_>) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(match &*call.method {
            "tools/call" => &self.call,
            "tools/list" => &self.tools,
            "prompts/list" => br#""result":{"resultType":"complete","prompts":[],"ttlMs":60000,"cacheScope":"public"}"#,
            "resources/list" => {
                br#""result":{"resultType":"complete","resources":[],"ttlMs":60000,"cacheScope":"public"}"#
            }
            "resources/templates/list" => {
                br#""result":{"resultType":"complete","resourceTemplates":[],"ttlMs":60000,"cacheScope":"public"}"#
            }
            "server/discover" => DISCOVER,
            "ping" => br#""result":{}"#,
            "initialize" => return Some(Cow::Owned(initialize(&call.params.protocol_version).into_bytes())),
            _ => return None,
        }))
    }
}

/// Appends one progress notification as a chunk.
pub(crate) fn write_progress(event: usize, total: usize, output: &mut Vec<u8>) {
    let event = format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":1,\
         \"progress\":{event},\"total\":{total}}}}}\n\n"
    );
    write_chunk(event.as_bytes(), output);
}

const PARSE_ERROR: &[u8] = br#""error":{"code":-32700,"message":"stub: not a JSON-RPC request"}"#;
const HEADER_MISMATCH: &[u8] = br#""error":{"code":-32020,"message":"stub: headers and body disagree"}"#;
const UNKNOWN_METHOD: &[u8] = br#""error":{"code":-32601,"message":"stub: unknown method"}"#;
const UNKNOWN_TOOL: &[u8] = br#""error":{"code":-32602,"message":"stub: unknown tool"}"#;
const DISCOVER: &[u8] = br#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"stub","version":"1"}},"ttlMs":3600000,"cacheScope":"public"}"#;

fn initialize(version: &str) -> String {
    format!(
        r#""result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"stub","version":"1"}}}}"#
    )
}

fn tools_list(count: usize) -> String {
    let tool = |number| {
        format!(
            r#"{{"name":"tool_{number}","description":"Answers with a text of fixed size.","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string"}},"limit":{{"type":"integer"}}}},"required":["query"]}}}}"#
        )
    };
    let tools: Vec<_> = (0..count).map(tool).collect();
    format!(
        r#""result":{{"resultType":"complete","tools":[{}],"ttlMs":60000,"cacheScope":"public"}}"#,
        tools.join(",")
    )
}

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

fn write_empty(status: &str, output: &mut Vec<u8>) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_bytes());
    // A 204 has no body, so it has no length either.
    output.extend_from_slice(if status.starts_with("204") {
        b"\r\n\r\n"
    } else {
        b"\r\ncontent-length: 0\r\n\r\n"
    });
}

fn write_chunk(data: &[u8], output: &mut Vec<u8>) {
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
