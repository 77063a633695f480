//! Clients of the legacy era at an endpoint that serves the modern era alone, and what is left of their transport.

use serde_json::json;

use crate::harness::{Config, Daemon, META, Upstream, VERSION, body, call, list, post};

#[test]
fn legacy_requests_are_told_what_is_served() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::unbridged(&upstream));
    let initialize = |version: &str| {
        let client = r#""capabilities":{},"clientInfo":{"name":"old","version":"1"}"#;
        body("0", "initialize", &format!(r#"{{"protocolVersion":"{version}",{client}}}"#))
    };
    let versions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    for version in versions {
        let plain = post(initialize(version));
        let error = daemon.send(&plain).assert_error(400, -32022, Some("0"));
        assert_eq!(error["error"]["data"]["supported"], json!([VERSION]), "{error}");
        let named = post(body("\"1\"", "tools/list", "{}")).with("MCP-Protocol-Version", version);
        let error =
            daemon.send(&named.with("Mcp-Session-Id", "abc")).assert_error(400, -32022, Some("\"1\""));
        assert_eq!(error["error"]["data"], json!({"supported": [VERSION], "requested": version}));
    }
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let response = daemon.send(&post(initialized).with("MCP-Protocol-Version", "2025-06-18"));
    assert!((400..500).contains(&response.status), "{response:?}");
    assert_eq!(upstream.forwarded().len(), 0);
}

#[test]
fn initialize_under_modern_headers_is_a_removed_method() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let params = format!(
        r#"{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"n","version":"1"}},"_meta":{META}}}"#
    );
    let request = list("7", "initialize").body(body("7", "initialize", &params));
    daemon.send(&request).assert_error(404, -32601, Some("7"));
    assert_eq!(upstream.forwarded().len(), 0);
}

#[test]
fn streams_and_sessions_are_gone() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::unbridged(&upstream));
    for method in ["GET", "DELETE"] {
        let bare = call("7", "echo")
            .method(method)
            .body("")
            .without("Content-Type")
            .set("Accept", "text/event-stream");
        let old = bare.clone().set("MCP-Protocol-Version", "2025-06-18").with("Mcp-Session-Id", "abc");
        for request in [bare.clone().without("MCP-Protocol-Version"), bare, old] {
            let response = daemon.send(&request);
            assert_eq!((response.status, response.header("allow")), (405, Some("POST")), "{method}");
        }
    }
    assert_eq!(upstream.forwarded().len(), 0);
}

#[test]
fn a_session_id_means_nothing() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let response = daemon.send(&call("7", "echo").with("Mcp-Session-Id", "abc").with("Last-Event-ID", "5"));
    response.assert_ok();
    assert_eq!(response.header("mcp-session-id"), None);
    let received = upstream.only_call();
    assert!(received.headers("mcp-session-id").is_empty() && received.headers("last-event-id").is_empty());
}
