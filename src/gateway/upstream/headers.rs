//! Which of a client's headers reach an upstream: those named here, those the operator names, and no others.
//!
//! Credentials, cookies, origins and hop-by-hop headers never cross. `Mcp-Name` is written anew, because the
//! upstream compares it with its own spelling of the name in the body.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};

const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_OR_SSE: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Turns a client's headers into those for an upstream, in place: the map's memory travels on with the
/// request. `more` are those the operator names; `inner_name` replaces `Mcp-Name` where the upstream has its own spelling. `Host` and
/// `Content-Length` are written later, by whoever knows the replica and the body.
pub(crate) fn forward(headers: &mut HeaderMap, inner_name: Option<HeaderValue>, more: &[HeaderName]) {
    remove_unnamed(headers, more);
    if let Some(name) = inner_name {
        headers.insert(MCP_NAME, name);
    }
    headers.insert(CONTENT_TYPE, JSON);
    // Servers compare Accept with both media types literally, so wildcards are spelled out.
    let is_literal = headers.get(ACCEPT).is_some_and(|value| !value.as_bytes().contains(&b'*'));
    if !is_literal {
        headers.insert(ACCEPT, JSON_OR_SSE);
    }
}

fn may_cross(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(
        name,
        "content-type"
            | "accept"
            | "mcp-protocol-version"
            | "mcp-method"
            | "mcp-name"
            | "traceparent"
            | "tracestate"
    ) || name.starts_with("mcp-param-")
}

/// A map cannot be filtered while it is walked, so names are collected a few at a time.
fn remove_unnamed(headers: &mut HeaderMap, more: &[HeaderName]) {
    loop {
        let mut unnamed: [Option<HeaderName>; 8] = Default::default();
        let found = headers.keys().filter(|name| !may_cross(name) && !more.contains(name));
        unnamed.iter_mut().zip(found).for_each(|(slot, name)| *slot = Some(name.clone()));
        if unnamed[0].is_none() {
            return;
        }
        for name in unnamed.into_iter().flatten() {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::header::encode_value;

    #[test]
    fn only_named_headers_cross() {
        let mut client = HeaderMap::new();
        for (name, value) in [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "up__a"),
            ("mcp-param-city", "=?base64?w7Y=?="),
            ("traceparent", "00-1-2-01"),
            ("authorization", "Bearer secret"),
            ("cookie", "a=b"),
            ("origin", "http://localhost"),
            ("host", "gateway"),
            ("connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("mcp-session-id", "s"),
            ("accept", "*/*"),
            ("accept-encoding", "gzip"),
            ("expect", "100-continue"),
            ("x-other", "1"),
        ] {
            client.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let sent = |inner: Option<&str>, more: &[HeaderName]| {
            let mut headers = client.clone();
            forward(
                &mut headers,
                inner.map(|name| HeaderValue::from_str(&encode_value(name)).expect("name")),
                more,
            );
            let mut pairs: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ascii")))
                .collect();
            pairs.sort();
            pairs
        };
        let common = [
            "accept: application/json, text/event-stream",
            "content-type: application/json",
            "mcp-method: tools/call",
        ];
        let rest =
            ["mcp-param-city: =?base64?w7Y=?=", "mcp-protocol-version: 2026-07-28", "traceparent: 00-1-2-01"];
        assert_eq!(sent(None, &[]), [&common[..], &["mcp-name: up__a"], &rest].concat());
        assert_eq!(sent(Some("a"), &[]), [&common[..], &["mcp-name: a"], &rest].concat());
        assert_eq!(sent(Some("ä"), &[]), [&common[..], &["mcp-name: =?base64?w6Q=?="], &rest].concat());
        let more = [HeaderName::from_static("x-other"), HeaderName::from_static("x-absent")];
        assert_eq!(sent(None, &more), [&common[..], &["mcp-name: up__a"], &rest, &["x-other: 1"]].concat());
    }
}
