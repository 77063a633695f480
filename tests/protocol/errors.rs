//! The error table: what a client sees in each case, with the id of its request wherever that could be read.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{
    Config, Connection, Daemon, Http2, Legacy, META, Offer, Reply, Request, Upstream, VERSION, api_key, body,
    call, list, literal, modern, post, read_resource, with_key,
};

const KEY: &str = "ci-key-0123456789abcdefghijklmnopqr";

/// A JSON-RPC error that a request must get.
struct Row {
    what: &'static str,
    request: Request,
    status: u16,
    code: i64,
    id: Option<&'static str>,
}

fn row(what: &'static str, request: Request, (status, code): (u16, i64), id: Option<&'static str>) -> Row {
    Row { what, request, status, code, id }
}

#[test]
fn every_row_of_a_request_that_the_gateway_answers() {
    let files = Upstream::offering(Offer::tools(&["echo"]).with_prompts(&["greet"]));
    let weather = Upstream::with_tools(&["forecast"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let good = call("7", "files__echo");
    let no_version = good.clone().replacing(r#""jsonrpc":"2.0","#, "");
    let response = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    let future = r#""io.modelcontextprotocol/protocolVersion":"2099-01-01""#;
    let mine = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let greet = body("7", "prompts/get", &format!(r#"{{"name":"nosuch__greet","_meta":{META}}}"#));
    let cursor = body("7", "tools/list", &format!(r#"{{"cursor":"never given","_meta":{META}}}"#));
    let rows = [
        row("not JSON", good.clone().body("{\"jsonrpc\":"), (400, -32700), None),
        row("no body", good.clone().body(""), (400, -32700), None),
        row("not JSON-RPC", no_version, (400, -32600), Some("7")),
        row("a response", modern("tools/call", Some("files__echo"), response), (400, -32600), Some("7")),
        row("a batch", good.clone().body([b"[", &*good.body, b"]"].concat()), (400, -32600), None),
        row("headers disagree", good.clone().set("Mcp-Method", "prompts/get"), (400, -32020), Some("7")),
        row("a header is missing", good.clone().without("Mcp-Method"), (400, -32020), Some("7")),
        row(
            "an unknown version",
            good.clone().set("MCP-Protocol-Version", "2099-01-01").replacing(mine, future),
            (400, -32022),
            Some("7"),
        ),
        row(
            "no _meta",
            list("7", "tools/list").body(body("7", "tools/list", "{}")),
            (400, -32602),
            Some("7"),
        ),
        row("an unknown method", list("7", "custom/thing"), (404, -32601), Some("7")),
        row("a removed method", list("7", "initialize"), (404, -32601), Some("7")),
        row("a removed method with a URI", list("7", "resources/subscribe"), (404, -32601), Some("7")),
        row("an unknown tool", call("7", "nosuch__echo"), (200, -32602), Some("7")),
        row(
            "an unknown prompt",
            modern("prompts/get", Some("nosuch__greet"), greet),
            (200, -32602),
            Some("7"),
        ),
        row("an unknown resource", read_resource("7", "nosuch+file:///a"), (200, -32602), Some("7")),
        row("a bad cursor", modern("tools/list", None, cursor), (200, -32602), Some("7")),
    ];
    for Row { what, request, status, code, id } in rows {
        println!("{what}");
        daemon.send(&request).assert_error(status, code, id);
    }
    assert_eq!(files.forwarded().len() + weather.forwarded().len(), 0, "a refused request went upstream");
    daemon.send(&good).assert_ok();
}

#[test]
fn an_unsupported_version_is_told_what_is_supported() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::unbridged(&upstream));
    let request =
        call("7", "echo").set("MCP-Protocol-Version", "2099-01-01").replacing(VERSION, "2099-01-01");
    let error = daemon.send(&request).assert_error(400, -32022, Some("7"));
    assert_eq!(error["error"]["data"]["supported"], json!([VERSION]));
    assert_eq!(error["error"]["data"]["requested"], "2099-01-01");
    assert_eq!(upstream.forwarded().len(), 0);
}

#[test]
fn an_error_says_when_to_come_back_in_its_data_as_in_its_header() {
    let upstream = Upstream::calling(|request| match request.json()["params"]["name"].as_str() {
        Some("busy") => Reply::http("429 Too Many Requests", "Retry-After: 7\r\n", ""),
        Some("closed") => Reply::http("503 Service Unavailable", "Retry-After: 9\r\n", ""),
        Some("tired") => Reply::http("503 Service Unavailable", "", ""),
        _ => Reply::silence(),
    });
    let daemon =
        Daemon::start(&Config::new().upstream("up", upstream.address, "response_timeout = \"300ms\""));
    let mut http2 = Http2::connect(daemon.address());
    for (tool, status, after) in
        [("busy", 429, Some(7)), ("closed", 503, Some(9)), ("tired", 503, None), ("silent", 504, None)]
    {
        for response in [daemon.send(&call("7", tool)), http2.send(&call("7", tool))] {
            let error = response.assert_error(status, status.into(), Some("7"));
            assert_eq!(
                response.header("retry-after"),
                after.map(|s: u64| s.to_string()).as_deref(),
                "{tool}"
            );
            let expected = after.map_or(json!(null), |seconds| json!({"retryAfterMs": seconds * 1000}));
            assert_eq!(error["error"]["data"], expected, "{tool}");
        }
    }
}

#[test]
fn an_endpoint_tells_what_is_forbidden_as_it_is_told_to() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).and_modern().start();
    let lines = "eras = [\"modern\", \"legacy\"]";
    let config = Config::new().upstream("up", upstream.address, lines).section(&api_key("ci", KEY));
    let needs = "scopes = [\"use\"]";
    for (keys, status) in [(needs.to_owned(), 403), (format!("{needs}\nforbidden_errors = \"jsonrpc\""), 200)]
    {
        let daemon = Daemon::start(&config.clone().endpoint(&keys));
        let request = with_key(call("7", "echo"), KEY);
        for response in [daemon.send(&request), Http2::connect(daemon.address()).send(&request)] {
            response.assert_error(status, 403, Some("7"));
            assert_eq!(response.header("www-authenticate"), None, "no credential of this kind helps");
        }
        daemon.send(&call("7", "echo")).assert_error(401, 401, Some("7"));
    }
}

#[test]
fn paths_methods_and_types_are_checked_first() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let good = call("7", "echo");
    let cases = [
        ("another path", good.clone().target("/other"), 404),
        ("a longer path", good.clone().target("/mcp/deeper"), 404),
        ("the root", good.clone().target("/"), 404),
        ("the admin's path", good.clone().target("/metrics"), 404),
        ("no type", good.clone().without("Content-Type"), 415),
        ("a type that is text", good.clone().set("Content-Type", "text/plain"), 415),
        ("a type that starts like JSON", good.clone().set("Content-Type", "application/jsonp"), 415),
        ("two types", good.clone().with("Content-Type", "text/plain"), 415),
        ("HTML only", good.clone().set("Accept", "text/html"), 406),
        ("a foreign origin", good.clone().with("Origin", "https://evil.example"), 403),
        ("a foreign host", good.clone().set("Host", "evil.example"), 403),
    ];
    for (what, request, status) in cases {
        assert_eq!(daemon.send(&request).status, status, "{what}");
    }
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let response = daemon.send(&good.clone().method(method));
        assert_eq!((response.status, response.header("allow")), (405, Some("POST")), "{method}");
    }
    assert_eq!(upstream.forwarded().len(), 0);
}

#[test]
fn lenient_spellings_of_types_are_served() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let good = call("7", "echo");
    for value in ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;charset=UTF-8"] {
        daemon.send(&good.clone().set("Content-Type", value)).assert_ok();
    }
    let accepted = ["*/*", "application/json", "text/event-stream", "application/*", "text/html, */*;q=0.1"];
    for value in accepted {
        daemon.send(&good.clone().set("Accept", value)).assert_ok();
    }
    daemon.send(&good.without("Accept")).assert_ok();
}

#[test]
fn a_notification_is_accepted_and_a_bad_one_refused() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let method = "notifications/from-the-future";
    let body = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{META}}}}}"#);
    let good = modern(method, None, body);
    let response = daemon.send(&good);
    assert_eq!((response.status, response.body.len()), (202, 0));
    let refused = daemon.send(&good.replacing("2.0", "1.0"));
    assert!((400..500).contains(&refused.status), "{refused:?}");
}

/// Every way to write an id, and every place it can stand in.
const IDS: &[&str] =
    &["0", "7", "-1", "9007199254740993", "\"\"", "\"seven\"", "\"null\"", r#""q\"\\\u0041é\ud83d\ude00""#];

#[test]
fn errors_carry_the_id_as_it_came() {
    let files = Upstream::calling(|_| Reply::default().reset());
    let weather = Upstream::with_tools(&["forecast"]);
    let config = Config::new().upstream("files", files.address, "breaker = { failures_max = 0 }");
    let daemon = Daemon::start(&config.upstream("weather", weather.address, ""));
    for id in IDS {
        let refusals = [
            ("from headers", call(id, "files__echo").with("Mcp-Method", "tools/call"), 400, -32020),
            ("from the route", call(id, "nosuch__echo"), 200, -32602),
            ("from the body", call(id, "files__echo").replacing("clientCapabilities", "other"), 400, -32602),
            ("from the upstream", call(id, "files__echo"), 502, 502),
        ];
        for (what, request, status, code) in refusals {
            println!("{what}, id {id}");
            let response = daemon.send(&request);
            response.assert_error(status, code, Some(id));
            if id.starts_with(|first: char| first != '"') {
                assert_eq!(literal(&response.body, &["id"]), *id, "a number is echoed digit by digit");
            }
        }
    }
}

#[test]
fn the_id_is_found_wherever_it_stands() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let params = format!(
        r#""params":{{"id":99,"name":"echo","arguments":{{"id":98,"}}":"\"id\":97"}},"_meta":{META}}}"#
    );
    let spellings = [
        format!(r#"{{{params},"method":"tools/call","jsonrpc":"2.0","id":7}}"#),
        format!(r#"{{"method":"tools/call",{params},"id":7,"jsonrpc":"2.0"}}"#),
        format!(
            "{{\n  \"jsonrpc\" : \"2.0\" ,\r\n\t\"id\" : 7 ,\n  \"method\": \"tools/call\",{params} }}\n"
        ),
        format!(r#"{{"x":{{"id":96}},"\u0069d":7,"jsonrpc":"2.0","method":"tools/call",{params}}}"#),
    ];
    for spelling in spellings {
        println!("{spelling}");
        let good = call("7", "echo").body(spelling);
        daemon.send(&good.clone().with("Mcp-Name", "echo")).assert_error(400, -32020, Some("7"));
        daemon.send(&good.clone().set("Mcp-Name", "other")).assert_error(400, -32020, Some("7"));
        daemon.send(&good).assert_ok();
    }
}

#[test]
fn an_id_that_cannot_be_read_is_left_out() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    for id in ["null", "1.5", "1.0", "true", "{}", "[]", "[7]"] {
        println!("{id}");
        daemon.send(&call(id, "echo")).assert_error(400, -32600, None);
    }
    assert_eq!(upstream.forwarded().len(), 0);
}

/// A refusal that headers alone decide: the endpoint has two upstreams.
struct Early {
    daemon: Daemon,
    _upstreams: [Upstream; 2],
    request: Request,
    answer: (u16, i64),
}

fn early(request: Request, answer: (u16, i64)) -> Early {
    let (files, weather) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["forecast"]));
    let config = Config::prefixed(&files, &weather)
        .endpoint("deny = [\"files__secret\"]")
        .limits("body_timeout = \"9s\"");
    Early { daemon: Daemon::start(&config), _upstreams: [files, weather], request, answer }
}

impl Early {
    /// The body is read to 64 KiB for the id, and not beyond.
    fn assert_bounded(&self) {
        let sized = |bytes: usize| {
            let filler = "x".repeat(bytes - self.request.body.len() - r#""fill":"""#.len());
            let arguments = format!(r#""arguments":{{"fill":"{filler}"}}"#);
            self.request.clone().replacing(r#""arguments":{}"#, &arguments)
        };
        let (status, code) = self.answer;
        self.daemon.send(&sized(64 * 1024)).assert_error(status, code, Some("7"));
        let large = sized(64 * 1024 + 1);
        let chunked = sized(1024 * 1024).bytes_chunked(8192);
        for response in [self.daemon.send(&large), self.daemon.send_bytes(&chunked)] {
            response.assert_error(status, code, None);
            assert_eq!(response.header("connection").map(str::to_ascii_lowercase).as_deref(), Some("close"));
        }
    }

    /// A body that does not come is waited for 1 s, and not longer.
    fn assert_prompt(&self) {
        let started = Instant::now();
        let mut connection = self.daemon.connect();
        connection.write(&[self.request.head(), self.request.body[..10].to_vec()].concat());
        let (status, code) = self.answer;
        connection.response().assert_error(status, code, None);
        assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
        connection.wait_closed();
    }
}

#[test]
fn a_malformed_header_is_refused_without_the_whole_body() {
    early(call("7", "files__echo").with("Mcp-Name", "files__echo"), (400, -32020)).assert_bounded();
}

#[test]
fn a_malformed_header_is_refused_without_waiting_for_the_body() {
    early(call("7", "files__echo").with("Mcp-Name", "files__echo"), (400, -32020)).assert_prompt();
}

#[test]
fn an_unknown_name_is_refused_without_the_whole_body() {
    early(call("7", "nosuch__echo"), (200, -32602)).assert_bounded();
}

#[test]
fn an_unknown_name_is_refused_without_waiting_for_the_body() {
    early(call("7", "nosuch__echo"), (200, -32602)).assert_prompt();
}

#[test]
fn a_denied_name_is_refused_without_the_whole_body() {
    early(call("7", "files__secret"), (200, -32602)).assert_bounded();
}

#[test]
fn a_denied_name_is_refused_without_waiting_for_the_body() {
    early(call("7", "files__secret"), (200, -32602)).assert_prompt();
}

#[test]
fn a_connection_goes_on_after_a_refusal_whose_body_was_read() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connection = daemon.connect();
    for _ in 0..3 {
        connection.write(&call("1", "echo").with("Mcp-Method", "tools/call").bytes());
        connection.response().assert_error(400, -32020, Some("1"));
        connection.write(&call("2", "echo").bytes());
        connection.response().assert_ok();
    }
    assert_eq!(upstream.received_of("tools/call").len(), 3);
}

#[test]
fn messages_of_errors_hold_no_addresses() {
    let (address, _socket) = crate::harness::refusing_address();
    let daemon = Daemon::start(&Config::new().upstream("up", address, ""));
    let response = daemon.send(&call("7", "echo"));
    response.assert_error(502, 502, Some("7"));
    let text = response.text();
    assert!(!text.contains("127.0.0.1") && !text.contains(&address.port().to_string()), "{text}");
}

#[test]
fn a_legacy_post_without_anything_modern_is_no_modern_error() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::unbridged(&upstream));
    let mut connection = Connection::open(daemon.address());
    connection.write(&post(body("7", "ping", "{}")).bytes());
    connection.response().assert_error(400, -32022, Some("7"));
    assert_eq!(upstream.forwarded().len(), 0);
}
