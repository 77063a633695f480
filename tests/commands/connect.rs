//! `trunkline connect`: a client that can only start a child, and a Streamable HTTP server.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{
    Authority, Config, DEADLINE, Daemon, Folder, Gate, Legacy, META, Offer, Received, Reply, TlsEar,
    Upstream, api_key, body, eventually, refusing_address, result_body, trunkline,
};

/// The child, as the client sees it.
struct Bridge {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    remarks: Receiver<String>,
}

impl Bridge {
    fn to(address: SocketAddr) -> Self {
        Self::with(address, &[], &[])
    }

    fn with(address: SocketAddr, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::at(&format!("http://{address}/mcp"), arguments, environment)
    }

    fn at(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
            .args(["connect", url])
            .args(arguments)
            .env_remove("TRUNKLINE_KEY")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = follow(child.stdout.take().expect("stdout is piped"));
        let remarks = follow(child.stderr.take().expect("stderr is piped"));
        let input = child.stdin.take();
        Self { child, input, lines, remarks }
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(format!("{line}\n").as_bytes()).expect("the child reads");
    }

    #[track_caller]
    fn line(&self) -> String {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => line,
            Err(error) => {
                panic!("no line: {error}; remarks: {:?}", self.remarks.try_iter().collect::<Vec<_>>())
            }
        }
    }

    #[track_caller]
    fn message(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"))
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> Value {
        self.write(line);
        self.message()
    }

    /// Waits until everything that was written has been read: what is no message is refused at once, in its turn.
    #[track_caller]
    fn wait_read(&mut self) {
        assert_eq!(self.ask("not a message")["error"]["code"], -32700);
    }

    /// Opens a session as clients do; returns the result of `initialize`.
    #[track_caller]
    fn initialize(&mut self, version: &str) -> Value {
        let client = r#""capabilities":{"roots":{}},"clientInfo":{"name":"desktop","version":"1"}"#;
        let params = format!(r#"{{"protocolVersion":"{version}",{client}}}"#);
        let answer = self.ask(&body("0", "initialize", &params));
        self.write(INITIALIZED);
        answer["result"].clone()
    }

    /// Waits for a line on standard error.
    #[track_caller]
    fn remark(&self, text: &str) {
        loop {
            let remark = self.remarks.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("never said: {text}"));
            if remark.contains(text) {
                return;
            }
        }
    }

    /// Ends the input and waits for the end; nothing more may be written.
    #[track_caller]
    fn finish(mut self) -> ExitStatus {
        drop(self.input.take());
        let status = self.wait();
        assert_eq!(self.lines.try_recv().ok(), None);
        status
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        eventually("the child ends", || self.child.try_wait().expect("the child can be waited for"))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let remarks: Vec<String> = self.remarks.iter().collect();
        if std::thread::panicking() {
            eprintln!("---- remarks ----\n{}", remarks.join("\n"));
        } else {
            assert!(!remarks.iter().any(|remark| remark.contains("panicked at")), "{remarks:?}");
        }
    }
}

fn follow(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn legacy_call(id: &str, tool: &str) -> String {
    body(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{{}}}}"#))
}

fn modern_call(id: &str, tool: &str, arguments: &str) -> String {
    body(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{META}}}"#))
}

fn cancelled(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

#[test]
fn both_eras_reach_the_gateway() {
    let files = Legacy::new(Offer::tools(&["read"])).and_modern().start();
    let weather = Legacy::new(Offer::tools(&["forecast"])).and_modern().start();
    let both = "eras = [\"legacy\", \"modern\"]";
    let config =
        Config::new().upstream("files", files.address, both).upstream("weather", weather.address, both);
    let daemon = Daemon::start(&config);
    let mut bridge = Bridge::to(daemon.address());

    let result = bridge.initialize("2025-06-18");
    assert_eq!(result["protocolVersion"], "2025-06-18", "{result}");
    let listed = bridge.ask(&body("1", "tools/list", "{}"));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["files__read", "weather__forecast"]);
    let called = bridge.ask(&legacy_call("\"a\"", "weather__forecast"));
    assert_eq!((&called["id"], &called["result"]["content"][0]["text"]), (&json!("a"), &json!("done")));

    let called = bridge.ask(&modern_call("2", "files__read", "{}"));
    assert_eq!((&called["id"], &called["result"]["resultType"]), (&json!(2), &json!("complete")), "{called}");
    assert_eq!(files.only_call().headers("mcp-name"), ["read"]);
    let discovered = bridge.ask(&body("3", "server/discover", &format!(r#"{{"_meta":{META}}}"#)));
    assert!(discovered["result"]["supportedVersions"].is_array(), "{discovered}");
    let unknown = bridge.ask(&body("4", "nosuch", &format!(r#"{{"_meta":{META}}}"#)));
    assert_eq!((&unknown["id"], &unknown["error"]["code"]), (&json!(4), &json!(-32601)));
    assert!(bridge.finish().success());
}

#[test]
fn the_key_comes_from_a_file_or_the_environment() {
    let upstream = Upstream::with_tools(&["echo"]);
    let key = "0123456789abcdef0123456789abcdef";
    let config = Config::transparent(&upstream).top(&api_key("desktop", key));
    let daemon = Daemon::start(&config);
    let folder = Folder::new();
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    let file = file.to_str().unwrap();
    let header = format!("authorization: Bearer {key}");
    for (arguments, environment, is_let_in) in [
        (&["--key-file", file][..], &[][..], true),
        (&[], &[("TRUNKLINE_KEY", key)], true),
        (&["--header", &header], &[], true),
        (&[], &[("TRUNKLINE_KEY", "wrong")], false),
        (&[], &[], false),
    ] {
        let mut bridge = Bridge::with(daemon.address(), arguments, environment);
        let answer = bridge.ask(&modern_call("7", "echo", "{}"));
        assert_eq!(answer["id"], 7);
        assert_eq!(answer.get("result").is_some(), is_let_in, "{arguments:?} {answer}");
        assert_eq!(answer.get("error").is_some_and(|error| error["code"] == 401), !is_let_in, "{answer}");
    }
}

#[test]
fn modern_requests_carry_their_headers() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"}}}}"#;
    let upstream = Upstream::offering(Offer { tools: vec![tool.into()], ..Offer::default() });
    let mut bridge = Bridge::with(upstream.address, &["--header", "X-Tenant: a"], &[]);
    bridge.ask(&modern_call("1", "t", r#"{"city":"Oslo"}"#));
    bridge.ask(&body("2", "tools/list", &format!(r#"{{"_meta":{META}}}"#)));
    bridge.ask(&modern_call("3", "t", r#"{"city":"Tromsø"}"#));
    bridge.ask(&body("4", "resources/read", &format!(r#"{{"uri":"file:///ø","_meta":{META}}}"#)));
    let received = upstream.received();
    let header = |index: usize, name: &str| received[index].headers(name).join("|");
    for (index, method, name, city) in [
        (0, "tools/call", "t", ""),
        (1, "tools/list", "", ""),
        (2, "tools/call", "t", "=?base64?VHJvbXPDuA==?="),
        (3, "resources/read", "=?base64?ZmlsZTovLy/DuA==?=", ""),
    ] {
        assert_eq!(header(index, "mcp-protocol-version"), "2026-07-28");
        assert_eq!(header(index, "mcp-method"), method);
        assert_eq!(header(index, "mcp-name"), name, "{method}");
        assert_eq!(header(index, "mcp-param-city"), city, "{method}");
        assert_eq!(header(index, "mcp-session-id"), "");
        assert_eq!(header(index, "x-tenant"), "a");
        assert_eq!(header(index, "accept"), "application/json, text/event-stream");
    }
}

#[test]
fn a_session_is_kept_and_ended() {
    let server = Legacy::new(Offer::tools(&["echo"])).version("2025-06-18");
    let upstream = server.start();
    let mut bridge = Bridge::to(upstream.address);
    assert_eq!(bridge.initialize("2025-11-25")["protocolVersion"], "2025-06-18");
    bridge.ask(&legacy_call("1", "echo"));
    assert!(bridge.finish().success());
    upstream.wait_for("DELETE", 1);
    let methods = |method: &str| upstream.received_of(method).remove(0);
    let first = methods("initialize");
    assert!(first.headers("mcp-session-id").is_empty() && first.headers("mcp-protocol-version").is_empty());
    for method in ["notifications/initialized", "GET", "tools/call", "DELETE"] {
        let request = methods(method);
        assert_eq!(request.headers("mcp-session-id"), ["session-1"], "{method}");
        assert_eq!(request.headers("mcp-protocol-version"), ["2025-06-18"], "{method}");
    }
    let order: Vec<String> = upstream.received().iter().map(Received::method).collect();
    let place = |method: &str| order.iter().position(|other| other == method).unwrap();
    assert!(place("notifications/initialized") < place("tools/call"), "{order:?}");
    assert!(server.open_sessions().is_empty());
}

#[test]
fn what_is_written_at_once_still_goes_in_order() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = server.start();
    let mut bridge = Bridge::to(upstream.address);
    let params =
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"1"}}"#;
    let lines = [body("0", "initialize", params), INITIALIZED.into(), legacy_call("1", "echo")];
    bridge.write(&lines.join("\n"));
    drop(bridge.input.take());
    assert_eq!(bridge.message()["id"], 0);
    assert_eq!(bridge.message()["id"], 1);
    assert!(bridge.wait().success());
    let order: Vec<String> = upstream.received().iter().map(Received::method).collect();
    assert_eq!(order[..2], ["initialize", "notifications/initialized"]);
}

/// A server that accepts `notifications/first` once the gate is open, takes no call before, and everything else at once.
fn holding_the_first(gate: &Gate) -> Upstream {
    let (server, held) = (Legacy::new(Offer::tools(&["echo"])), gate.clone());
    Upstream::start(move |request| match request.method().as_str() {
        "notifications/first" => Reply::default().wait(&held).then(Reply::http("202 Accepted", "", "")),
        "tools/call" => {
            assert!(held.is_open(), "the call has overtaken the notification before it");
            server.answer(request)
        }
        _ => server.answer(request),
    })
}

const FIRST: &str = r#"{"jsonrpc":"2.0","method":"notifications/first"}"#;

#[test]
fn a_request_does_not_overtake_the_notification_before_it() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    bridge.write(FIRST);
    bridge.write(&legacy_call("1", "echo"));
    upstream.wait_for("notifications/first", 1);
    bridge.wait_read();
    assert!(upstream.received_of("tools/call").is_empty());
    gate.open();
    assert_eq!(bridge.message()["id"], 1);
    assert!(bridge.finish().success());
}

#[test]
fn a_request_that_is_cancelled_while_it_waits_is_never_sent() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    bridge.write(FIRST);
    bridge.write(&legacy_call("1", "echo"));
    upstream.wait_for("notifications/first", 1);
    bridge.write(&cancelled("1"));
    bridge.write(&legacy_call("2", "echo"));
    bridge.wait_read();
    gate.open();
    assert_eq!(bridge.message()["id"], 2);
    assert!(bridge.finish().success());
    assert_eq!(upstream.received_of("tools/call").len(), 1);
    assert!(upstream.received_of("notifications/cancelled").is_empty());
}

/// A server with sessions whose calls and GETs are answered by the test.
fn scripted(
    call: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    get: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (Legacy, Upstream) {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let answering = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => call(request),
        "GET" => get(request),
        _ => answering.answer(request),
    });
    (server, upstream)
}

fn refuse_get(_: &Received) -> Reply {
    Reply::http("405 Method Not Allowed", "Allow: POST\r\n", "")
}

#[test]
fn what_the_server_says_becomes_lines() {
    let asked = r#"{"jsonrpc":"2.0","id":"s1","method":"roots/list"}"#;
    let (_, upstream) = scripted(
        move |request| {
            let result = result_body(request, r#"{"content":[],"x":"a\nb"}"#);
            let spread = result.replacen(',', ",\ndata:  ", 1);
            Reply::stream()
                .chunk("id: 1\ndata:\n\n: comment\n\n")
                .event(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#)
                .event(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#)
                .event("nonsense")
                .event(asked)
                .event(&spread)
                .end()
        },
        |_| Reply::stream().event(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
    );
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    assert_eq!(bridge.message()["method"], "notifications/tools/list_changed");
    bridge.write(&legacy_call("5", "echo"));
    assert_eq!(bridge.message()["method"], "notifications/progress");
    assert_eq!(bridge.line(), asked);
    let answer = bridge.line();
    assert!(answer.contains(r#""x":"a\nb""#), "{answer}");
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["id"], 5);
    bridge.remark("answers another request");
    bridge.remark("not valid JSON");
    bridge.write(r#"{"jsonrpc":"2.0","id":"s1","result":{"roots":[]}}"#);
    let told = upstream.wait_for("", 1);
    assert_eq!(told.headers("mcp-session-id"), ["session-1"]);
    assert_eq!(told.json()["result"], json!({"roots": []}));
    drop(bridge);
}

#[test]
fn a_json_reply_may_have_lines() {
    let (_, upstream) = scripted(
        |request| Reply::json("200 OK", &result_body(request, "{\r\n  \"content\": []\n}")),
        refuse_get,
    );
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    assert_eq!(bridge.ask(&legacy_call("5", "echo"))["result"], json!({"content": []}));
}

#[test]
fn calls_run_side_by_side() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        let reply = Reply::result(request, r#"{"content":[],"resultType":"complete"}"#);
        if request.client_id() == "1" { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let mut bridge = Bridge::to(upstream.address);
    bridge.write(&modern_call("1", "echo", "{}"));
    upstream.wait_for("tools/call", 1);
    assert_eq!(bridge.ask(&modern_call("2", "echo", "{}"))["id"], 2);
    let again = bridge.ask(&modern_call("1", "echo", "{}"));
    assert_eq!((&again["id"], &again["error"]["code"]), (&json!(1), &json!(-32600)));
    gate.open();
    assert_eq!(bridge.message()["id"], 1);
}

#[test]
fn too_many_calls_at_once_are_refused() {
    let upstream = Upstream::calling(|_| Reply::silence());
    let mut bridge = Bridge::to(upstream.address);
    let lines: Vec<String> = (0..513).map(|id| modern_call(&id.to_string(), "echo", "{}")).collect();
    bridge.write(&lines.join("\n"));
    let refused = bridge.message();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(512), &json!(503)));
    // One that is given up makes room.
    bridge.write(&cancelled("7"));
    eventually("there is room", || {
        let answer = bridge.ask(&body("\"list\"", "tools/list", &format!(r#"{{"_meta":{META}}}"#)));
        answer.get("result").is_some().then_some(())
    });
}

#[test]
fn cancelling_closes_a_modern_stream_and_tells_a_session() {
    let modern = Upstream::calling(|_| Reply::stream().chunk(": open\n\n"));
    let mut bridge = Bridge::to(modern.address);
    bridge.write(&modern_call("\"a\"", "echo", "{}"));
    let call = modern.wait_for("tools/call", 1);
    bridge.write(&cancelled("\"\\u0061\""));
    modern.wait_closed(call.connection);
    assert_eq!(bridge.ask(&body("2", "tools/list", &format!(r#"{{"_meta":{META}}}"#)))["id"], 2);
    assert!(modern.received_of("notifications/cancelled").is_empty());
    assert!(bridge.finish().success());

    let gate = Gate::default();
    let held = gate.clone();
    let (_, legacy) = scripted(move |_| Reply::stream().wait(&held).end(), refuse_get);
    let mut bridge = Bridge::to(legacy.address);
    bridge.initialize("2025-11-25");
    bridge.write(&legacy_call("1", "echo"));
    legacy.wait_for("tools/call", 1);
    bridge.write(&cancelled("1"));
    legacy.wait_for("notifications/cancelled", 1);
    gate.open();
    // The cancelled request has no answer, and needs no error.
    assert_eq!(bridge.ask(&body("2", "tools/list", "{}"))["id"], 2);
    bridge.remark("the connection to the server broke");
    assert!(bridge.finish().success());
}

#[test]
fn listening_ends_with_its_result_and_a_cancellation() {
    let upstream = Upstream::start(|request| match request.method().as_str() {
        "subscriptions/listen" if request.client_id() == "1" => Reply::stream()
            .event(r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}"#)
            .event(&result_body(request, r#"{"resultType":"complete"}"#))
            .end(),
        _ => Reply::stream().chunk(": open\n\n"),
    });
    let mut bridge = Bridge::to(upstream.address);
    let listen =
        |id: &str| body(id, "subscriptions/listen", &format!(r#"{{"notifications":{{}},"_meta":{META}}}"#));
    bridge.write(&listen("1"));
    assert_eq!(bridge.message()["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(bridge.message()["result"]["resultType"], "complete");
    let ended = bridge.message();
    assert_eq!(
        (&ended["method"], &ended["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!(1))
    );
    // One that is open does not hold up the end.
    bridge.write(&listen("2"));
    let open = upstream.wait_for("subscriptions/listen", 2);
    assert!(bridge.finish().success());
    upstream.wait_closed(open.connection);
}

#[test]
fn faults_become_errors_of_the_request() {
    let (refusing, _socket) = refusing_address();
    let mut bridge = Bridge::to(refusing);
    let error = bridge.ask(&legacy_call("\"x\"", "echo"));
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!("x"), &json!(502)));

    let json = "Content-Type: application/json\r\n";
    for (reply, code) in [
        (Reply::http("401 Unauthorized", "", ""), 401),
        (Reply::http("404 Not Found", json, r#"{"error":"no"}"#), 404),
        (
            Reply::json("400 Bad Request", r#"{"jsonrpc":"2.0","error":{"code":-32022,"message":"no"}}"#),
            -32022,
        ),
        (
            Reply::json(
                "400 Bad Request",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-9,"message":"no"}}"#,
            ),
            -9,
        ),
        (Reply::http("307 Temporary Redirect", "Location: /other\r\n", ""), 307),
        (Reply::http("202 Accepted", "", ""), 502),
        (Reply::http("200 OK", "Content-Type: text/html\r\n", "<p>"), 502),
        (Reply::json("200 OK", "{"), 502),
        (Reply::json("200 OK", r#"{"jsonrpc":"2.0","id":8,"result":{}}"#), 502),
        (Reply::raw("nonsense\r\n\r\n").finish(), 502),
        (Reply::default().reset(), 502),
        (Reply::stream().end(), 502),
        (Reply::stream().chunk("data: {\"jsonrpc\"").reset(), 502),
        (Reply::stream().chunk("id: 4\ndata:\n\n").reset(), 502),
    ] {
        let upstream = Upstream::start(move |_| reply.clone());
        let mut bridge = Bridge::to(upstream.address);
        let error = bridge.ask(&modern_call("7", "echo", "{}"));
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(code)), "{error}");
        assert_eq!(upstream.received().len(), 1);
        assert!(bridge.finish().success());
    }
}

#[test]
fn silence_is_an_error_after_the_timeout() {
    let upstream = Upstream::calling(|request| {
        if request.client_id() == "1" { Reply::silence() } else { Reply::stream().chunk(": open\n\n") }
    });
    for id in ["1", "2"] {
        let mut bridge = Bridge::with(upstream.address, &["--timeout", "1"], &[]);
        let error = bridge.ask(&modern_call(id, "echo", "{}"));
        assert_eq!(error["error"]["code"], 504, "{error}");
    }
}

#[test]
fn bad_lines_get_errors_and_harm_nothing() {
    let upstream = Upstream::with_tools(&["echo"]);
    let mut bridge = Bridge::to(upstream.address);
    for (line, code, id) in [
        ("nonsense", -32700, Value::Null),
        ("\u{feff}{}", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        ("3", -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":5}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, -32600, json!("a")),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Null),
    ] {
        let error = bridge.ask(line);
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &id), "{line}");
        assert_eq!(error.as_object().unwrap().contains_key("id"), !id.is_null(), "an unknown id is left out");
    }
    bridge.write(&format!("\n \r\n{}", "x".repeat((16 << 20) + 1)));
    assert_eq!(bridge.message()["error"]["code"], 413);
    assert_eq!(bridge.ask(&modern_call("7", "echo", "{}"))["id"], 7);
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn a_session_that_is_gone_is_opened_anew() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = server.start();
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    bridge.ask(&legacy_call("1", "echo"));
    server.forget_sessions();
    assert_eq!(bridge.ask(&legacy_call("2", "echo"))["result"]["content"][0]["text"], "done");
    bridge.remark("a new one was opened");
    let again = upstream.received_of("initialize");
    assert_eq!(again.len(), 2);
    assert_eq!(again[0].body, again[1].body);
    assert_eq!(upstream.received_of("notifications/initialized").len(), 2);
    let calls = upstream.received_of("tools/call");
    let ids: Vec<&str> = calls.iter().flat_map(|call| call.headers("mcp-session-id")).collect();
    assert_eq!(ids, ["session-1", "session-1", "session-2"]);
    assert!(bridge.finish().success());
}

#[test]
fn a_server_that_never_knows_its_sessions_is_asked_twice() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let answering = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::http("404 Not Found", "", ""),
        _ => answering.answer(request),
    });
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    assert_eq!(bridge.ask(&legacy_call("1", "echo"))["error"]["code"], 404);
    assert_eq!(upstream.received_of("initialize").len(), 2);
    assert_eq!(upstream.received_of("tools/call").len(), 2);
}

#[test]
fn a_new_session_of_another_version_is_none() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let older = server.clone().version("2025-03-26");
    let answering = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" if answering.sessions_opened() > 0 => older.answer(request),
        _ => answering.answer(request),
    });
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    server.forget_sessions();
    assert_eq!(bridge.ask(&legacy_call("1", "echo"))["error"]["code"], 404);
    upstream.wait_for("DELETE", 1);
}

#[test]
fn streams_of_a_session_are_resumed() {
    let (_, upstream) = scripted(
        |_| Reply::stream().chunk("id: p1\nretry: 10\ndata:\n\n").reset(),
        |request| match request.headers("last-event-id").first() {
            Some(&"p1") => Reply::stream()
                .chunk("id: p2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
                .reset(),
            Some(&"p2") => {
                Reply::stream().event(r#"{"jsonrpc":"2.0","id":5,"result":{"resumed":true}}"#).end()
            }
            Some(&"g1") => Reply::stream().event(r#"{"jsonrpc":"2.0","method":"notifications/second"}"#),
            _ => Reply::stream()
                .chunk(
                    "id: g1\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/first\"}\n\n",
                )
                .end(),
        },
    );
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    assert_eq!(bridge.message()["method"], "notifications/first");
    assert_eq!(bridge.message()["method"], "notifications/second");
    bridge.write(&legacy_call("5", "echo"));
    assert_eq!(bridge.message()["method"], "notifications/message");
    assert_eq!(bridge.message()["result"], json!({"resumed": true}));
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn batches_of_the_client_are_taken_apart_where_the_revision_has_them() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    for (version, count) in [("2025-03-26", 2), ("2025-06-18", 0)] {
        let mut bridge = Bridge::to(upstream.address);
        bridge.initialize(version);
        bridge.write(&format!("[{},{}]", legacy_call("1", "echo"), legacy_call("2", "echo")));
        if count == 0 {
            assert_eq!(bridge.message()["error"]["code"], -32600);
            continue;
        }
        let mut ids = [bridge.message()["id"].as_i64(), bridge.message()["id"].as_i64()];
        ids.sort_unstable();
        assert_eq!(ids, [Some(1), Some(2)]);
    }
}

#[test]
fn what_ends_it() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let answering = server.clone();
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().wait(&held).then(Reply::result(request, "{}")),
        _ => answering.answer(request),
    });
    // A signal: at once, and the session is ended.
    for signal in [Signal::TERM, Signal::INT] {
        let mut bridge = Bridge::to(upstream.address);
        bridge.initialize("2025-11-25");
        bridge.write(&legacy_call("1", "echo"));
        eventually("the call arrives", || (!upstream.received_of("tools/call").is_empty()).then_some(()));
        kill_process(Pid::from_child(&bridge.child), signal).unwrap();
        assert_eq!(bridge.wait().code(), Some(0));
        eventually("the session is ended", || server.open_sessions().is_empty().then_some(()));
    }
    let mut bridge = Bridge::to(upstream.address);
    bridge.initialize("2025-11-25");
    // End of input: a call under way may still be answered.
    let count = upstream.received_of("tools/call").len();
    bridge.write(&legacy_call("1", "echo"));
    upstream.wait_for("tools/call", count + 1);
    drop(bridge.input.take());
    assert_eq!(bridge.lines.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
    gate.open();
    assert_eq!(bridge.message()["id"], 1);
    assert_eq!(bridge.wait().code(), Some(0));
}

#[test]
fn a_client_that_closes_its_end_is_noticed() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let socket = Stdio::from(OwnedFd::from(theirs));
    closes_its_end(socket, |_| Box::new(ours));
    closes_its_end(Stdio::piped(), |child| Box::new(child.stdout.take().unwrap()));
}

fn closes_its_end(stdout: Stdio, end: impl FnOnce(&mut Child) -> Box<dyn std::io::Read>) {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["connect", &format!("http://{}/mcp", upstream.address)])
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let params =
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"1"}}"#;
    let mut input = child.stdin.take().unwrap();
    input.write_all(format!("{}\n", body("0", "initialize", params)).as_bytes()).unwrap();
    let mut output = end(&mut child);
    output.read_exact(&mut [0; 20]).unwrap();
    drop(output);
    let status = eventually("it ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    upstream.wait_for("DELETE", 1);
}

#[test]
fn a_client_that_does_not_read_holds_up_its_server() {
    let (events, waiting) = sync_channel::<Vec<u8>>(1);
    let stream = Mutex::new(Some(waiting));
    let upstream =
        Upstream::calling(move |_| Reply::stream().pipe(stream.lock().unwrap().take().expect("one call")));
    let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["connect", &format!("http://{}/mcp", upstream.address)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(format!("{}\n", modern_call("1", "echo", "{}")).as_bytes()).unwrap();

    let text = "x".repeat(1 << 20);
    let event =
        format!(r#"data: {{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#);
    let event = format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2).into_bytes();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    std::thread::spawn(move || {
        while events.send(event.clone()).is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut before = 0;
    eventually("the server is held up", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = sent.load(Ordering::SeqCst);
        (now > 0 && std::mem::replace(&mut before, now) == now).then_some(())
    });
    assert!(before < 64, "{before} MiB were taken");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < 128 << 10, "{peak_kib} KiB");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(eventually("it ends", || child.try_wait().unwrap()).code(), Some(0));
}

#[test]
fn a_wrong_command_line_is_said_so() {
    let folder = Folder::new();
    let (empty, two_lines) = (folder.path().join("empty"), folder.path().join("two"));
    std::fs::write(&empty, " \n").unwrap();
    std::fs::write(&two_lines, "a\nb").unwrap();
    let (empty, two_lines) = (empty.to_str().unwrap(), two_lines.to_str().unwrap());
    let url = "http://127.0.0.1:1/mcp";
    for (arguments, word) in [
        (&["https://127.0.0.1:1/mcp", "--ca", "/nowhere/ca.pem"][..], "/nowhere/ca.pem"),
        (&["http://127.0.0.1:1/mcp", "--ca", "/nowhere/ca.pem"][..], "https://"),
        (&["127.0.0.1:1"], "http://"),
        (&[url, "--header", "novalue"], "Name: value"),
        (&[url, "--header", "b d: x"], "name"),
        (&[url, "--header", "Mcp-Session-Id: x"], "Mcp-Session-Id"),
        (&[url, "--header", "Host: x"], "Host"),
        (&[url, "--header", "X: a\u{7f}b"], "value"),
        (&[url, "--key-file", "/nonexistent"], "/nonexistent"),
        (&[url, "--key-file", empty], "holds no key"),
        (&[url, "--key-file", two_lines], "one line"),
        (&[url, "--timeout", "0"], "timeout"),
        (&[], "URL"),
    ] {
        let (output, _) = trunkline(&[&["connect"], arguments].concat(), None);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(word), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty());
    }
    let (help, _) = trunkline(&["connect", "--help"], None);
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit codes"));
}

#[test]
fn a_server_over_tls_is_checked() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let upstream = Upstream::with_tools(&["echo"]);
    let ear = TlsEar::before(upstream.address, &authority.issue(&["localhost"]), None);
    let url = format!("https://localhost:{}/mcp", ear.address.port());
    let ca = authority.file(&folder, "ca.pem");
    let other = Authority::new().file(&folder, "other.pem");
    let mut bridge = Bridge::at(&url, &["--ca", ca.to_str().unwrap()], &[]);
    assert!(bridge.ask(&modern_call("1", "echo", "{}"))["result"].is_object());
    let mut bridge = Bridge::at(&url, &["--ca", other.to_str().unwrap()], &[]);
    let error = bridge.ask(&modern_call("1", "echo", "{}"))["error"]["message"].to_string();
    assert!(error.contains("no trusted authority has signed its certificate"), "{error}");
    let (output, _) = trunkline(&["tools", "--ca", other.to_str().unwrap(), &url], None);
    assert!(String::from_utf8_lossy(&output.stderr).contains("with --ca FILE"), "{output:?}");
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}
