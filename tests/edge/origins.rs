//! Browsers: Origin, Host and CORS.

use crate::harness::{Config, Daemon, Request, Response, Upstream, api_key, call};

fn preflight(origin: &str) -> Request {
    call("7", "echo")
        .method("OPTIONS")
        .body("")
        .without("Content-Type")
        .with("Origin", origin)
        .with("Access-Control-Request-Method", "POST")
        .with("Access-Control-Request-Headers", "content-type,mcp-method,x-whatever")
}

fn lower(response: &Response, name: &str) -> String {
    response.header(name).unwrap_or_else(|| panic!("no {name} in {response:?}")).to_ascii_lowercase()
}

#[test]
fn a_loopback_listener_admits_loopback_origins_and_no_other() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let admitted = [
        "http://localhost",
        "http://localhost:3000",
        "http://127.0.0.1:5173",
        "https://localhost:8443",
        "http://[::1]:80",
    ];
    for origin in admitted {
        let response = daemon.send(&call("7", "echo").with("Origin", origin));
        response.assert_ok();
        assert_eq!(response.header("access-control-allow-origin"), Some(origin));
        assert!(daemon.send(&preflight(origin)).status < 300, "{origin}");
    }
    daemon.send(&call("7", "echo")).assert_ok();
    let before = upstream.forwarded().len();
    let refused = [
        "null",
        "",
        "https://evil.example",
        "http://localhost.evil.example",
        "http://evil.example:80/localhost",
        "http://127.0.0.1.evil.example",
        "http://evil-localhost",
        "http://localhost@evil.example",
        "localhost",
        "file://",
        "http://localhost, https://evil.example",
        "*",
        "http://10.0.0.1",
    ];
    for origin in refused {
        println!("{origin:?}");
        let response = daemon.send(&call("7", "echo").with("Origin", origin));
        assert_eq!(response.status, 403);
        assert_eq!(response.header("access-control-allow-origin"), None);
        let response = daemon.send(&preflight(origin));
        assert_eq!((response.status, response.header("access-control-allow-origin")), (403, None));
    }
    let twice = call("7", "echo").with("Origin", "http://localhost").with("Origin", "https://evil.example");
    assert_eq!(daemon.send(&twice).status, 403);
    assert_eq!(upstream.forwarded().len(), before);
}

#[test]
fn configured_origins_replace_the_default() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon =
        Daemon::start(&Config::transparent(&upstream).endpoint("origins = [\"https://app.example.com\"]"));
    let response = daemon.send(&call("7", "echo").with("Origin", "https://app.example.com"));
    response.assert_ok();
    assert_eq!(response.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert!(lower(&response, "vary").contains("origin"));
    let exposed = lower(&response, "access-control-expose-headers");
    for name in ["mcp-session-id", "www-authenticate", "retry-after"] {
        assert!(exposed.contains(name), "{name} is not in {exposed}");
    }
    for origin in [
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com.evil.example",
        "http://localhost:3000",
    ] {
        assert_eq!(daemon.send(&call("7", "echo").with("Origin", origin)).status, 403, "{origin}");
    }
}

#[test]
fn a_preflight_is_answered_without_credentials_and_echoes_what_was_asked() {
    let upstream = Upstream::with_tools(&["echo"]);
    let key = "a-key-for-browsers-0123456789abcdef";
    let config = Config::transparent(&upstream)
        .endpoint("origins = [\"https://app.example.com\"]")
        .section(&api_key("browser", key));
    let daemon = Daemon::start(&config);
    let response = daemon.send(&preflight("https://app.example.com"));
    assert!(matches!(response.status, 200 | 204), "{response:?}");
    assert_eq!(response.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert!(lower(&response, "access-control-allow-methods").contains("post"));
    let allowed = lower(&response, "access-control-allow-headers");
    for name in ["content-type", "mcp-method", "x-whatever"] {
        assert!(allowed.contains(name), "{name} is not in {allowed}");
    }
    assert_eq!(upstream.forwarded().len(), 0);
    // A refusal must be readable by the page that caused it.
    let refused = daemon.send(&call("7", "echo").with("Origin", "https://app.example.com"));
    assert_eq!(
        (refused.status, refused.header("access-control-allow-origin")),
        (401, Some("https://app.example.com"))
    );
}

#[test]
fn a_loopback_listener_admits_localhost_names_as_host() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let own = daemon.address().to_string();
    for host in ["localhost", "localhost:8080", "127.0.0.1", own.as_str(), "[::1]:8080", "LOCALHOST"] {
        println!("{host}");
        daemon.send(&call("7", "echo").set("Host", host)).assert_ok();
    }
    let before = upstream.forwarded().len();
    for host in
        ["evil.example", "localhost.evil.example", "evil.example:80", "10.0.0.1", "127.0.0.1.evil.example"]
    {
        println!("{host}");
        assert_eq!(daemon.send(&call("7", "echo").set("Host", host)).status, 403);
    }
    for request in [
        call("7", "echo").without("Host"),
        call("7", "echo").with("Host", "localhost"),
        call("7", "echo").set("Host", ""),
        call("7", "echo").set("Host", "localhost@evil.example"),
    ] {
        let status = daemon.send(&request).status;
        assert!(matches!(status, 400 | 403), "{status}");
    }
    assert_eq!(upstream.forwarded().len(), before);
}

#[test]
fn configured_hosts_replace_the_default() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).endpoint("hosts = [\"mcp.example.com\"]"));
    daemon.send(&call("7", "echo").set("Host", "mcp.example.com")).assert_ok();
    daemon.send(&call("7", "echo").set("Host", "MCP.example.com:443")).assert_ok();
    assert_eq!(daemon.send(&call("7", "echo")).status, 403);
    assert_eq!(daemon.send(&call("7", "echo").set("Host", "x.mcp.example.com")).status, 403);
}
