//! The order of checks: a request that is wrong in two ways gets the error of the earlier step.
//!
//! Where one fault is in the headers and the other in the body, only pairs are tested that the body must decide, or
//! that the headers alone decide: a refusal may come from the headers before the body is read.

use crate::harness::{Config, Daemon, META, Offer, Request, Upstream, VERSION, body, call, list, modern};

const KEY: &str = "an-api-key-for-this-test-0123456789";

/// What answers a request: a plain status, or a JSON-RPC error.
#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    Error(u16, i64),
}

use Answer::{Error, Status};

#[test]
fn the_earlier_of_two_faults_is_reported() {
    let files = Upstream::offering(Offer::tools(&["echo", "secret"]));
    let weather = Upstream::with_tools(&["forecast"]);
    let config = Config::prefixed(&files, &weather)
        .endpoint("deny = [\"files__secret\"]\norigins = [\"https://app.example\"]")
        .limits("body_bytes_max = \"4KiB\"")
        .section(&crate::harness::api_key("tester", KEY));
    let daemon = Daemon::start(&config);
    let good = call("7", "files__echo").with("Authorization", format!("Bearer {KEY}"));
    daemon.send(&good).assert_ok();
    let before = files.forwarded().len();
    for (what, request, answer) in pairs(&good) {
        println!("{what}");
        let response = daemon.send(&request);
        match answer {
            Status(status) => assert_eq!(response.status, status, "{what}: {response:?}"),
            Error(status, code) => {
                assert_eq!(response.status, status, "{what}: {response:?}");
                assert_eq!(response.json()["error"]["code"], code, "{what}");
            }
        }
    }
    assert_eq!(files.forwarded().len(), before, "a refused request went upstream");
    daemon.send(&good).assert_ok();
}

/// Each step of the order beside the next one (or the next that can fail at the same time).
fn pairs(good: &Request) -> Vec<(&'static str, Request, Answer)> {
    let evil = ("Origin", "https://evil.example");
    let large = vec![b'!'; 8 * 1024];
    let future = |request: &Request| {
        request.clone().set("MCP-Protocol-Version", "2099-01-01").replacing(VERSION, "2099-01-01")
    };
    let other_jsonrpc = |request: &Request| request.clone().replacing("\"2.0\"", "\"1.0\"");
    let no_capabilities = |request: &Request| request.clone().replacing("clientCapabilities", "other");
    let no_meta = body("7", "tools/call", r#"{"name":"files__echo","arguments":{}}"#);
    let secret = call("7", "files__secret").with("Authorization", format!("Bearer {KEY}"));
    let unknown = list("7", "custom/thing").with("Authorization", format!("Bearer {KEY}"));
    vec![
        ("path 404 before method 405", good.clone().target("/no").method("GET"), Status(404)),
        ("path 404 before Origin 403", good.clone().target("/no").with(evil.0, evil.1), Status(404)),
        ("method 405 before Origin 403", good.clone().method("GET").with(evil.0, evil.1), Status(405)),
        (
            "method 405 before credentials 401",
            good.clone().method("PUT").without("Authorization"),
            Status(405),
        ),
        (
            "Origin 403 before Content-Type 415",
            good.clone().with(evil.0, evil.1).set("Content-Type", "text/plain"),
            Status(403),
        ),
        (
            "Host 403 before Content-Type 415",
            good.clone().set("Host", "evil.example").set("Content-Type", "text/plain"),
            Status(403),
        ),
        (
            "Host 403 before credentials 401",
            good.clone().set("Host", "evil.example").without("Authorization"),
            Status(403),
        ),
        (
            "Content-Type 415 before Accept 406",
            good.clone().set("Content-Type", "text/plain").set("Accept", "text/html"),
            Status(415),
        ),
        (
            "Accept 406 before credentials 401",
            good.clone().set("Accept", "text/html").without("Authorization"),
            Status(406),
        ),
        (
            "credentials 401 before size 413",
            good.clone().without("Authorization").body(large.clone()),
            Status(401),
        ),
        ("credentials 401 before JSON", good.clone().without("Authorization").body("{"), Status(401)),
        (
            "credentials 401 before headers",
            good.clone().without("Authorization").without("Mcp-Method"),
            Status(401),
        ),
        ("size 413 before JSON", good.clone().body(large), Error(413, 413)),
        ("JSON before JSON-RPC", good.clone().body(r#"{"jsonrpc":"1.0","id":null,"#), Error(400, -32700)),
        ("JSON before version", future(good).replacing("}", ""), Error(400, -32700)),
        ("JSON-RPC before version", future(&other_jsonrpc(good)), Error(400, -32600)),
        ("JSON-RPC before _meta", no_capabilities(&other_jsonrpc(good)), Error(400, -32600)),
        ("a batch before version", future(good).body("[]"), Error(400, -32600)),
        ("version before _meta", future(&no_capabilities(good)), Error(400, -32022)),
        (
            "version, absent in the body, before _meta",
            good.clone().set("MCP-Protocol-Version", "2099-01-01").body(no_meta),
            Error(400, -32022),
        ),
        ("version before headers", future(good).set("Mcp-Name", "files__other"), Error(400, -32022)),
        ("version before unknown method", future(&unknown), Error(400, -32022)),
        ("_meta before headers", no_capabilities(good).set("Mcp-Name", "files__other"), Error(400, -32602)),
        (
            "headers (an unknown version over a known one) before policy",
            secret.clone().set("MCP-Protocol-Version", "2099-01-01"),
            Error(400, -32020),
        ),
        ("headers before unknown method", unknown.with("Mcp-Method", "custom/thing"), Error(400, -32020)),
        ("headers before policy", secret.clone().with("Mcp-Name", "files__secret"), Error(400, -32020)),
        (
            "headers before unknown tool",
            call("7", "nosuch__x")
                .with("Mcp-Name", "nosuch__x")
                .with("Authorization", format!("Bearer {KEY}")),
            Error(400, -32020),
        ),
        ("policy before what the upstream would say", secret, Error(200, -32602)),
    ]
}

#[test]
fn the_version_of_the_header_and_of_the_body() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::unbridged(&upstream));
    let named = |version: Option<&str>| match version {
        Some(version) => META.replacen(VERSION, version, 1),
        None => "{}".into(),
    };
    let cases = [
        (Some("2099-01-01"), Some("2099-01-01"), -32022),
        (Some("2099-01-01"), None, -32022),
        (Some("nonsense"), Some("nonsense"), -32022),
        (Some("2099-01-01"), Some(VERSION), -32020),
        (Some("2099-01-01"), Some("2098-01-01"), -32020),
        (Some(VERSION), Some("2099-01-01"), -32020),
        (Some(VERSION), None, -32602),
        (None, Some(VERSION), -32020),
        (Some("2025-11-25"), Some(VERSION), -32020),
        (Some("2025-11-25"), None, -32022),
        (None, None, -32022),
    ];
    for (header, meta, code) in cases {
        println!("header {header:?}, _meta {meta:?}");
        let params = format!(r#"{{"name":"echo","arguments":{{}},"_meta":{}}}"#, named(meta));
        let request = modern("tools/call", Some("echo"), body("7", "tools/call", &params));
        let request = match header {
            Some(version) => request.set("MCP-Protocol-Version", version),
            None => request.without("MCP-Protocol-Version"),
        };
        daemon.send(&request).assert_error(400, code, Some("7"));
    }
    assert_eq!(upstream.forwarded().len(), 0);
}
