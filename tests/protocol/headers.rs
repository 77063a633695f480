//! The mirrored headers: required, single, well-formed, and equal to the body.

use crate::harness::{
    Config, Daemon, META, Offer, Request, Upstream, VERSION, body, call, list, modern, read_resource,
};

fn sentinel(value: &str) -> String {
    use base64::Engine as _;
    format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(value))
}

#[test]
fn missing_duplicate_orphan_malformed_or_unequal_headers_are_refused() {
    let upstream = Upstream::offering(Offer::tools(&["echo"]).with_prompts(&["greet"]));
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let good = call("7", "echo");
    let read = read_resource("7", "file:///a");
    let prompt_params = format!(r#"{{"name":"greet","_meta":{META}}}"#);
    let prompt = modern("prompts/get", Some("greet"), body("7", "prompts/get", &prompt_params));
    let lists = list("7", "tools/list");
    let cases: Vec<(&str, Request)> = vec![
        ("no version", good.clone().without("MCP-Protocol-Version")),
        ("no method", good.clone().without("Mcp-Method")),
        ("no name", good.clone().without("Mcp-Name")),
        ("no name of a prompt", prompt.clone().without("Mcp-Name")),
        ("no URI", read.clone().without("Mcp-Name")),
        ("a name without a method", good.clone().without("Mcp-Method").with("X", "y")),
        ("a name on a list", lists.clone().with("Mcp-Name", "echo")),
        ("a name on discover", list("7", "server/discover").with("Mcp-Name", "echo")),
        ("version twice", good.clone().with("MCP-Protocol-Version", VERSION)),
        ("two versions", good.clone().with("MCP-Protocol-Version", "2025-11-25")),
        ("method twice", good.clone().with("Mcp-Method", "tools/call")),
        ("two methods", good.clone().with("mcp-method", "tools/list")),
        ("name twice", good.clone().with("Mcp-Name", "echo")),
        ("two names", good.clone().with("MCP-NAME", "other")),
        ("two methods in one line", good.clone().set("Mcp-Method", "tools/call, tools/call")),
        ("another method", good.clone().set("Mcp-Method", "prompts/get")),
        ("method in other case", good.clone().set("Mcp-Method", "Tools/Call")),
        ("another name", good.clone().set("Mcp-Name", "other")),
        ("name in other case", good.clone().set("Mcp-Name", "Echo")),
        ("an empty method", good.clone().set("Mcp-Method", "")),
        ("an empty name", good.clone().set("Mcp-Name", "")),
        ("another prompt", prompt.clone().set("Mcp-Name", "other")),
        ("another URI", read.clone().set("Mcp-Name", "file:///b")),
        ("a URI spelled otherwise", read.clone().set("Mcp-Name", "file:///%61")),
        ("the wrong base64", good.clone().set("Mcp-Name", sentinel("other"))),
        ("no base64", good.clone().set("Mcp-Name", "=?base64?*?=")),
        ("cut base64", good.clone().set("Mcp-Name", "=?base64?ZWNob")),
        ("marker in capitals", good.clone().set("Mcp-Name", "=?BASE64?ZWNobw==?=")),
        ("base64 that is not UTF-8", good.clone().set("Mcp-Name", "=?base64?//79?=")),
        ("base64 in the method", good.clone().set("Mcp-Method", sentinel("tools/call"))),
        ("base64 twice over", good.clone().set("Mcp-Name", sentinel(&sentinel("echo")))),
        (
            "raw bytes beyond ASCII",
            good.clone().set("Mcp-Name", "\u{e9}cho").replacing("\"echo\"", "\"\u{e9}cho\""),
        ),
        ("a name the body lacks", good.clone().replacing("\"name\":\"echo\",", "")),
        ("a parameter twice", good.clone().with("Mcp-Param-Region", "eu").with("Mcp-Param-Region", "eu")),
        (
            "a parameter twice in other case",
            good.clone().with("Mcp-Param-Region", "eu").with("mcp-param-region", "us"),
        ),
        ("a parameter beyond ASCII", good.clone().with("Mcp-Param-Region", "\u{fc}ber")),
    ];
    for (what, request) in cases {
        println!("{what}");
        daemon.send(&request).assert_error(400, -32020, Some("7"));
    }
    assert_eq!(upstream.forwarded().len(), 0, "a refused request went upstream");
    for request in [good, read, prompt, lists] {
        daemon.send(&request).assert_ok();
    }
}

#[test]
fn equal_headers_pass_however_they_are_spelled() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let named = |tool: &str, header: &str| call("7", tool).set("Mcp-Name", header);
    let cases = [
        ("base64 of ASCII", named("echo", &sentinel("echo"))),
        ("base64 beyond ASCII", named("écho 世界", &sentinel("écho 世界"))),
        ("base64 of spaces around", named(" echo ", &sentinel(" echo "))),
        ("base64 of a newline", named("a\\nb", &sentinel("a\nb"))),
        ("base64 of a sentinel", named("=?base64?ZWNobw==?=", &sentinel("=?base64?ZWNobw==?="))),
        ("an escape in the body", named("\\u0065cho", "echo")),
        ("a slash escaped in the body", call("7", "echo").replacing("tools/call", "tools\\/call")),
        ("spaces around the value", named("echo", "  echo \t")),
        ("names of headers in capitals", {
            call("7", "echo")
                .without("Mcp-Method")
                .without("Mcp-Name")
                .with("MCP-METHOD", "tools/call")
                .with("MCP-NAME", "echo")
        }),
        ("a space inside", named("two words", "two words")),
    ];
    for (what, request) in cases {
        println!("{what}");
        daemon.send(&request).assert_ok();
        let received = upstream.received_of("tools/call").pop().unwrap();
        assert_eq!(received.body, request.body, "{what}");
        assert_eq!(received.headers("mcp-method"), ["tools/call"]);
        assert_eq!(received.headers("mcp-protocol-version"), [VERSION]);
        let name = decode(received.headers("mcp-name")[0]);
        assert_eq!(name, received.json()["params"]["name"].as_str().unwrap(), "{what}");
    }
}

fn decode(header: &str) -> String {
    use base64::Engine as _;
    let Some(inner) = header.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return header.into();
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(inner).expect("base64 towards the upstream");
    String::from_utf8(bytes).expect("UTF-8 towards the upstream")
}

#[test]
fn parameters_cross_as_they_are() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let parameters = [
        ("Mcp-Param-Region", "us-west1"),
        ("Mcp-Param-Greeting", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("mcp-param-count", "42.0"),
        ("Mcp-Param-Two-Words", "two words, and a comma"),
        ("Mcp-Param-Looks-Wrong", "=?base64?*?="),
    ];
    let request =
        parameters.iter().fold(call("7", "echo"), |request, (name, value)| request.with(name, value));
    daemon.send(&request).assert_ok();
    let received = upstream.only_call();
    for (name, value) in parameters {
        assert_eq!(received.headers(name), [value], "{name}");
    }
}

#[test]
fn only_named_headers_go_up() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = call("7", "echo")
        .with("traceparent", trace)
        .with("Mcp-Param-Region", "eu")
        .with("Authorization", "Bearer of-the-client")
        .with("Proxy-Authorization", "Basic of-the-client")
        .with("Cookie", "session=of-the-client")
        .with("Origin", "http://localhost:3000")
        .with("Referer", "http://localhost:3000/page")
        .with("User-Agent", "of-the-client")
        .with("X-Api-Key", "of-the-client")
        .with("X-Custom", "of-the-client")
        .with("X-Forwarded-For", "203.0.113.7")
        .with("Forwarded", "for=203.0.113.7")
        .with("Mcp-Session-Id", "of-the-client")
        .with("Last-Event-ID", "of-the-client")
        .with("Accept-Encoding", "gzip")
        .with("TE", "trailers")
        .with("Upgrade", "websocket")
        .with("Connection", "keep-alive, X-Nominated")
        .with("X-Nominated", "of-the-client")
        .with("Keep-Alive", "timeout=5");
    daemon.send(&request).assert_ok();
    let received = upstream.only_call();
    let allowed = [
        "host",
        "content-length",
        "content-type",
        "accept",
        "accept-encoding",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
        "traceparent",
        "tracestate",
        "baggage",
        "user-agent",
        "connection",
    ];
    for name in received.header_names() {
        assert!(allowed.contains(&name.as_str()), "{name} went upstream: {}", received.head);
    }
    assert!(!received.head.contains("of-the-client"), "{}", received.head);
    assert!(received.headers("connection").iter().all(|value| value.eq_ignore_ascii_case("keep-alive")));
    assert_eq!(received.headers("content-type"), ["application/json"]);
    assert_eq!(received.headers("accept"), ["application/json, text/event-stream"]);
    assert_eq!(received.headers("accept-encoding"), ["identity"]);
    assert_eq!(received.headers("host"), [upstream.address.to_string()]);
    let crossed = received.headers("traceparent");
    assert_eq!(crossed.len(), 1, "{}", received.head);
    assert_eq!(crossed[0].split('-').nth(1), trace.split('-').nth(1), "the trace goes on");
}

#[test]
fn only_named_headers_come_down() {
    use crate::harness::Reply;
    let foreign = "Set-Cookie: a=of-the-upstream\r\nMcp-Session-Id: of-the-upstream\r\nServer: of-the-upstream\r\n\
        WWW-Authenticate: Bearer realm=\"of-the-upstream\"\r\nX-Powered-By: of-the-upstream\r\n\
        Access-Control-Allow-Origin: of-the-upstream\r\nLocation: /of-the-upstream\r\n\
        Connection: keep-alive, X-Nominated\r\nX-Nominated: of-the-upstream\r\nKeep-Alive: timeout=5\r\n\
        Alt-Svc: of-the-upstream\r\nStrict-Transport-Security: of-the-upstream\r\n";
    let upstream = Upstream::start(move |request| match request.client_id().as_str() {
        "1" => {
            let body = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}"#;
            Reply::http("200 OK", &format!("Content-Type: application/json\r\n{foreign}"), body)
        }
        _ => Reply::stream_with(&format!("X-Accel-Buffering: no\r\n{foreign}")).event("{}").end(),
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connection = daemon.connect();
    connection.write(&call("1", "echo").bytes());
    let json = connection.response();
    json.assert_ok();
    connection.write(&call("2", "echo").bytes());
    let stream = connection.response();
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    for response in [json, stream] {
        let seen = format!("{:?}", response.headers);
        assert!(!seen.contains("of-the-upstream"), "{seen}");
        for name in ["set-cookie", "mcp-session-id", "www-authenticate", "keep-alive", "location", "alt-svc"]
        {
            assert_eq!(response.header(name), None, "{name}");
        }
    }
}
