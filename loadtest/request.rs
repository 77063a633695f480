//! What the stub reads of a request: headers, and the few fields of the body that decide the answer.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http1::Message;
use crate::replies::write_chunk;

const MODERN: &[u8] = b"2026-07-28";

/// A request as far as the stub looks into it.
pub(crate) struct Request<'a> {
    pub(crate) verb: &'a [u8],
    pub(crate) path: &'a [u8],
    /// The version header, empty when it is absent.
    pub(crate) version: &'a [u8],
    pub(crate) mcp_method: &'a [u8],
    pub(crate) mcp_name: &'a [u8],
    /// Empty when it is absent.
    pub(crate) session: &'a [u8],
    /// `None` when the body is not a JSON-RPC request or notification.
    pub(crate) call: Option<Call<'a>>,
}

/// A JSON-RPC request or notification.
#[derive(Deserialize)]
pub(crate) struct Call<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) method: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(crate) params: Params<'a>,
}

/// The parameters of all methods together.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Params<'a> {
    #[serde(default, borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(crate) protocol_version: Cow<'a, str>,
    #[serde(default, borrow)]
    notifications: Filter<'a>,
    #[serde(default, borrow, rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Deserialize, Default)]
struct Meta<'a> {
    #[serde(default, borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Cow<'a, str>,
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

impl Call<'_> {
    /// Whether the body says so, which over stdio is all there is.
    pub(crate) fn is_modern(&self) -> bool {
        self.params.meta.version.as_bytes() == MODERN
    }

    /// As it was written.
    pub(crate) fn progress_token(&self) -> &str {
        self.params.meta.progress_token.map_or("null", RawValue::get)
    }
}

/// What a `subscriptions/listen` asks for.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Filter<'a> {
    #[serde(default)]
    tools_list_changed: bool,
    #[serde(default)]
    prompts_list_changed: bool,
    #[serde(default)]
    resources_list_changed: bool,
    #[serde(borrow)]
    resource_subscriptions: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Never fails: a body that cannot be read is answered as such.
    pub(crate) fn read(message: &'a Message<'_>) -> Self {
        let header = |name| message.header(name).unwrap_or_default();
        let mut start = message.start_line().split(|&byte| byte == b' ');
        Self {
            verb: start.next().unwrap_or_default(),
            path: start.next().unwrap_or_default(),
            version: header("mcp-protocol-version"),
            mcp_method: header("mcp-method"),
            mcp_name: header("mcp-name"),
            session: header("mcp-session-id"),
            call: serde_json::from_slice(&message.body).ok(),
        }
    }

    pub(crate) fn is_tool_call(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.method == "tools/call")
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.version == MODERN
    }

    /// Not MCP: whoever runs the load test wants a notice sent.
    pub(crate) fn asks_for_notice(&self) -> bool {
        self.verb == b"POST" && self.path == b"/notice"
    }

    /// Not MCP: whoever runs the load test wants the stub slower, or quicker again.
    pub(crate) fn asks_for_delay_ms(&self) -> Option<u64> {
        let digits = self.path.strip_prefix(b"/delay/").filter(|_| self.verb == b"POST")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// What a `subscriptions/listen` is to be acknowledged with; `None` when this is no such request.
    pub(crate) fn subscription(&self) -> Option<Subscription> {
        let call = self.call.as_ref().filter(|call| call.method == "subscriptions/listen")?;
        let agreed = self.mcp_method == call.method.as_bytes();
        (self.is_modern() && agreed && call.id.is_some())
            .then(|| Subscription::new(self.id(), &call.params.notifications))
    }

    /// Whether it asks for the stream of its session.
    pub(crate) fn opens_stream(&self) -> bool {
        self.verb == b"GET" && !self.is_modern()
    }

    /// As it was written.
    pub(crate) fn id(&self) -> &'a str {
        self.call.as_ref().and_then(|call| call.id).map_or("null", RawValue::get)
    }
}

/// An open `subscriptions/listen`; for the stream of a legacy session, one with nothing in it.
#[derive(Default)]
pub(crate) struct Subscription {
    /// The events in their chunks, ready to send.
    pub(crate) acknowledgement: Vec<u8>,
    /// `None` when the client did not ask for it.
    pub(crate) tools_list_changed: Option<Vec<u8>>,
}

impl Subscription {
    fn new(id: &str, filter: &Filter<'_>) -> Self {
        let flags = [
            ("toolsListChanged", filter.tools_list_changed),
            ("promptsListChanged", filter.prompts_list_changed),
            ("resourcesListChanged", filter.resources_list_changed),
        ];
        let mut honoured: Vec<_> =
            flags.iter().filter(|(_, wanted)| *wanted).map(|(key, _)| format!(r#""{key}":true"#)).collect();
        if let Some(uris) = filter.resource_subscriptions {
            honoured.push(format!(r#""resourceSubscriptions":{}"#, uris.get()));
        }
        let event = |method: &str, more: &str| {
            let event = format!(
                "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\",\"params\":{{\"_meta\":\
                 {{\"io.modelcontextprotocol/subscriptionId\":{id}}}{more}}}}}\n\n"
            );
            let mut chunk = Vec::with_capacity(event.len() + 8);
            write_chunk(event.as_bytes(), &mut chunk);
            chunk
        };
        let honoured = format!(r#","notifications":{{{}}}"#, honoured.join(","));
        Self {
            acknowledgement: event("subscriptions/acknowledged", &honoured),
            tools_list_changed: filter.tools_list_changed.then(|| event("tools/list_changed", "")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1;

    #[test]
    fn a_subscription_is_acknowledged_with_what_is_honoured() {
        let body = r#"{"id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"other":true,"resourceSubscriptions":["a:b"]}}}"#;
        let text = |method: &str| {
            format!(
                "POST /mcp HTTP/1.1\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let read =
            |text: &str| Request::read(&http1::parse(text.as_bytes()).unwrap().unwrap()).subscription();
        let subscription = read(&text("subscriptions/listen")).unwrap();
        let acknowledgement = String::from_utf8(subscription.acknowledgement).unwrap();
        let expected = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":\"s\"},\"notifications\":{\"toolsListChanged\":true,\"resourceSubscriptions\":[\"a:b\"]}}}\n\n";
        assert!(acknowledgement.contains(expected), "{acknowledgement}");
        assert!(subscription.tools_list_changed.is_some());
        assert!(read(&text("tools/list")).is_none());
    }
    #[test]
    fn a_delay_is_asked_for_with_a_post_and_a_number() {
        let cases = [
            ("POST /delay/20", Some(20)),
            ("GET /delay/20", None),
            ("POST /delay/", None),
            ("POST /delay/x", None),
            ("POST /mcp", None),
        ];
        for (start, expected) in cases {
            let text = format!("{start} HTTP/1.1\r\ncontent-length: 0\r\n\r\n");
            let message = http1::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(Request::read(&message).asks_for_delay_ms(), expected, "{start}");
        }
    }
}
