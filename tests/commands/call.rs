//! `trunkline tools` and `trunkline call`: a person at a prompt, and servers good and bad.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{
    Child, DEADLINE, Folder, LEGACY_VERSION, Legacy, Offer, Received, Reply, Terminal, Upstream, VERSION,
    refusing_address, result_body, trunkline,
};

const FORECAST: &str = r#"{"name":"forecast","title":"Forecast","description":"The weather of a city\nin full.",
    "inputSchema":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"},
    "days":{"type":"integer","minimum":1},"tags":{"type":"array","items":{"type":"string"}}},"required":["city"]},
    "annotations":{"readOnlyHint":true}}"#;

/// What a command printed, and how it ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn ran(output: &Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is UTF-8");
    let ran = Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) };
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "no escapes on pipes: {ran:?}");
    ran
}

fn run(arguments: &[&str]) -> Ran {
    ran(&trunkline(arguments, None).0)
}

fn url(upstream: &Upstream) -> String {
    format!("http://{}/mcp", upstream.address)
}

fn forecasting(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let offer = Offer { tools: vec![FORECAST.into()], ..Offer::default() };
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => answer(request),
        _ => offer.answer(request),
    })
}

fn text(said: &str) -> String {
    json!({"resultType": "complete", "content": [{"type": "text", "text": said}]}).to_string()
}

#[test]
fn tools_are_listed_and_shown_in_full() {
    let upstream = forecasting(|request| Reply::result(request, &text("")));
    let url = url(&upstream);
    let list = run(&["tools", &url]);
    assert_eq!(list.code, Some(0), "{list:?}");
    let expected = "forecast\n    The weather of a city\n    --city TEXT  [--days INTEGER]  [--tags TEXT…]\n";
    assert!(list.stdout.ends_with(expected), "{list:?}");

    let one = run(&["tools", &url, "forecast"]);
    for line in ["  --city TEXT                 required\n", "at least 1", "  reads only\n"] {
        assert!(one.stdout.contains(line), "{line:?} in {one:?}");
    }
    assert!(one.stdout.ends_with(&format!("  trunkline call {url} forecast --city TEXT\n")), "{one:?}");

    let json = run(&["tools", &url, "--json"]);
    let tools: Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    assert_eq!(tools[0], serde_json::from_str::<Value>(FORECAST).expect("it is JSON"));

    let unknown = run(&["tools", &url, "forcast"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("did you mean `forecast`?"), "{unknown:?}");
}

#[test]
fn a_modern_call_is_as_the_revision_wants_it() {
    let upstream = forecasting(|request| {
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":3,"progress":1}}"#;
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"looked up"}}"#;
        Reply::stream().event(progress).event(log).event(&result_body(request, &text("cold\u{7}"))).end()
    });
    let ran = run(&[
        "call",
        "--log-level",
        "info",
        &url(&upstream),
        "forecast",
        "--city",
        "Tromsø",
        "--days",
        "2",
        "--tags=a",
        "--tags",
        "b",
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "cold\\u{7}\n"), "{ran:?}");
    assert_eq!(ran.stderr, "[info] looked up\n");
    let call = upstream.only_call();
    for (name, value) in [
        ("mcp-protocol-version", VERSION),
        ("mcp-method", "tools/call"),
        ("mcp-name", "forecast"),
        ("mcp-param-city", "=?base64?VHJvbXPDuA==?="),
    ] {
        assert_eq!(call.headers(name), [value]);
    }
    let params = &call.json()["params"];
    assert_eq!(params["arguments"], json!({"city": "Tromsø", "days": 2, "tags": ["a", "b"]}));
    let meta = &params["_meta"];
    assert_eq!(meta["progressToken"], call.json()["id"]);
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "info");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}), "nobody can be asked here");
}

#[test]
fn wrong_arguments_call_nothing() {
    let upstream = forecasting(|request| Reply::result(request, &text("called")));
    let url = url(&upstream);
    for (words, code, said) in [
        (&["forecast"][..], 2, "the tool needs --city TEXT"),
        (&["forecast", "--cty", "Oslo"], 2, "the tool has no argument --cty; did you mean --city?"),
        (&["forecast", "--city", "Oslo", "--xyz"], 2, "it has --city, --days, --tags"),
        (
            &["forecast", "--city", "Oslo", "--era", "modern"],
            2,
            "the option --era of this command stands before",
        ),
        (&["forecast", "--city", "Oslo", "--days", "two"], 2, "--days: \"two\" is not an integer"),
        (&["forecast", "--city", "Oslo", "--days", "0"], 2, "days: must be >=1, but got 0"),
        (&["forecast", "{\"city\":7}"], 2, "city: want string, but got number"),
        (&["forecast", "{\"city\":"], 2, "is not a JSON object: EOF"),
        (&["forecast", "@/nonexistent"], 2, "cannot read @/nonexistent"),
        (&["forecast", "{}", "{}"], 2, "all arguments are given twice"),
        (&["weather"], 2, "the server has no tool \"weather\"; `trunkline tools` lists the 1 that there are"),
        (&[], 2, "which tool? `trunkline tools http://"),
    ] {
        let arguments = [&["call", url.as_str()], words].concat();
        let ran = run(&arguments);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(said) && ran.stdout.is_empty(), "{said:?} in {ran:?}");
    }
    assert!(upstream.received_of("tools/call").is_empty());
    for server in ["localhost:8080", "http://a b/", "ftp://a/"] {
        let ran = run(&["call", server, "forecast"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
}

#[test]
fn arguments_come_from_files_and_standard_input() {
    let upstream = forecasting(|request| {
        let arguments = &request.json()["params"]["arguments"];
        Reply::result(request, &text(&arguments.to_string()))
    });
    let url = url(&upstream);
    let folder = Folder::new();
    let path = folder.path().join("arguments.json");
    fs::write(&path, r#"{"city":"Lima"}"#).expect("it can be written");
    let file = format!("@{}", path.display());
    for words in
        [&[file.as_str()][..], &["--json-args", r#"{"city":"Lima"}"#], &[r#"{"city":"Rome"}"#, "--city=Lima"]]
    {
        let ran = run(&[&["call", url.as_str(), "forecast"], words].concat());
        assert_eq!(ran.stdout, "{\"city\":\"Lima\"}\n", "{ran:?}");
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["call", &url, "forecast", "-", "--days", "3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("it is piped").write_all(br#"{"city":"Lima"}"#).expect("it reads");
    let ran = ran(&child.wait_with_output().expect("it ends"));
    assert_eq!(ran.stdout, "{\"city\":\"Lima\",\"days\":3}\n", "{ran:?}");
}

#[test]
fn results_are_shown_saved_or_printed_as_json() {
    let content = json!({
        "resultType": "complete",
        "content": [
            {"type": "text", "text": "a\u{1b}[31mb"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///a", "name": "A"},
        ],
        "structuredContent": {"a": "\u{9b}"},
        "isError": true,
    });
    let result = content.to_string();
    let upstream = forecasting(move |request| Reply::result(request, &result));
    let url = url(&upstream);
    let shown = run(&["call", &url, "forecast", "--city", "a"]);
    assert_eq!(shown.code, Some(1), "isError is an exit code");
    let expected =
        "a\\u{1b}[31mb\n[image, image/png, 3 bytes; --save DIR writes it to a file]\nfile:///a  A\n";
    assert_eq!(shown.stdout, expected);
    assert!(shown.stderr.starts_with("(--json shows its structured content too)\n"), "{shown:?}");

    let folder = Folder::new();
    let path = folder.path().join("new").display().to_string();
    for number in 1..=2 {
        let saved = run(&["call", &url, "forecast", "--city", "a", "--save", &path]);
        let file = format!("{path}/forecast-{number}.png");
        assert!(saved.stdout.contains(&file), "{saved:?}");
        assert_eq!(fs::read(&file).expect("it is there"), [0, 1, 2]);
    }

    let json = run(&["call", &url, "forecast", "--city", "a", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json.stdout).expect("it is JSON"), content);
    assert!(json.stdout.contains(r#""a": "\u009b""#), "no control stays: {json:?}");
}

#[test]
fn a_modern_server_asks_and_is_answered() {
    let upstream = forecasting(|request| {
        let params = &request.json()["params"];
        match params.get("inputResponses") {
            None => {
                let schema = json!({"type": "object", "properties": {"sure": {"type": "boolean"},
                    "times": {"type": "integer"}}, "required": ["sure"]});
                let question = json!({"method": "elicitation/create", "params": {"message": "Sure?",
                    "requestedSchema": schema}});
                let result = json!({"resultType": "input_required", "requestState": "s\"1",
                    "inputRequests": {"q": question}});
                Reply::result(request, &result.to_string())
            }
            Some(answers) => Reply::result(request, &text(&format!("{answers} {}", params["requestState"]))),
        }
    });
    let url = url(&upstream);
    let ran = run(&["call", "--answer", "sure=yes", &url, "forecast", "--city", "a", "--answer", "times=2"]);
    let expected = r#"{"q":{"action":"accept","content":{"sure":true,"times":2}}} "s\"1""#;
    assert_eq!((ran.code, ran.stdout.trim_end()), (Some(0), expected), "{ran:?}");

    let unanswered = run(&["call", &url, "forecast", "--city", "a", "--answer", "times=2"]);
    assert_eq!(unanswered.code, Some(3));
    assert!(
        unanswered.stderr.contains("nobody can be asked here: give --answer sure=VALUE"),
        "{unanswered:?}"
    );
}

#[test]
fn a_legacy_server_asks_on_the_reply_and_is_answered() {
    let legacy = Legacy::new(Offer { tools: vec![FORECAST.into()], ..Offer::default() });
    let (sender, answers) = std::sync::mpsc::channel::<Vec<u8>>();
    let (sender, answers) = (std::sync::Mutex::new(Some(sender)), std::sync::Mutex::new(Some(answers)));
    let call_id = std::sync::Mutex::new(String::new());
    let upstream = Upstream::start(move |request| {
        if request.http_method() != "POST" {
            return legacy.answer(request);
        }
        let message = request.json();
        if request.method() == "tools/call" {
            *call_id.lock().unwrap() = request.client_id();
            let schema = json!({"type": "object", "properties": {"sure": {"type": "boolean"}}});
            let question = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
                "params": {"message": "Sure?", "requestedSchema": schema}});
            let answers = answers.lock().unwrap().take().expect("one call");
            return Reply::stream().event(&question.to_string()).pipe(answers).end();
        }
        if message.get("method").is_none() && message["id"] == "q" {
            let id = call_id.lock().unwrap().clone();
            let result = text(&message["result"].to_string());
            let event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n\n");
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            sender
                .lock()
                .unwrap()
                .take()
                .expect("one answer")
                .send(chunk.into_bytes())
                .expect("the call waits");
            return Reply::http("202 Accepted", "", "");
        }
        legacy.answer(request)
    });
    let ran = run(&["call", &url(&upstream), "forecast", "--city", "a", "--answer", "sure=no"]);
    let expected = "{\"action\":\"accept\",\"content\":{\"sure\":false}}\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
    let received = upstream.received();
    let initialize =
        received.iter().find(|request| request.method() == "initialize").expect("it opened a session");
    assert_eq!(initialize.json()["params"]["protocolVersion"], LEGACY_VERSION);
    assert!(initialize.headers("mcp-session-id").is_empty());
    let call = upstream.only_call();
    assert_eq!(call.headers("mcp-protocol-version"), [LEGACY_VERSION]);
    assert_eq!(call.headers("mcp-session-id").len(), 1);
    assert!(call.headers("mcp-method").is_empty());
    assert!(received.iter().any(|request| request.http_method() == "DELETE"), "the session is ended");
}

#[test]
fn a_program_is_a_server_too() {
    for word in ["legacy", "modern"] {
        let child = Child::new(&[word]);
        let keys = child.keys("");
        let command = keys.trim().trim_start_matches("command = ");
        let command: Vec<String> = serde_json::from_str(command).expect("a TOML array of strings is JSON");
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let list = run(&[&["tools", "--"], command.as_slice()].concat());
        assert_eq!(list.code, Some(0), "{list:?}");
        let called = run(&[&["call", "echo", "{\"a\":1}", "--"], command.as_slice()].concat());
        assert_eq!(called.code, Some(0), "{called:?}");
        child.wait_gone();
    }
    for (command, said) in [
        (&["/nonexistent"][..], "cannot start /nonexistent: there is no such program"),
        (
            &["sh", "-c", "echo wrong key >&2; exit 4"],
            "the server ended: exit code 4\nIt said last on standard error:\n  wrong key",
        ),
        (&["sh", "-c", "read x; yes garbage | head -c 1000000"], "the server ended: exit code 0"),
        (&["sh", "-c", "tr '\\0' x </dev/zero"], "larger than is accepted"),
    ] {
        let ran = run(&[&["tools", "--"], command].concat());
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stderr.contains(said), "{said:?} in {ran:?}");
    }
}

#[test]
fn a_server_of_the_first_revision_is_found() {
    let upstream = crate::upstreams::http_sse::Server::new().start();
    let ran = run(&["tools", &url(&upstream)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("old 1, MCP 2025-11-25, 1 tool\n\necho\n"), "{ran:?}");
    let modern = run(&["tools", "--era", "modern", &url(&upstream)]);
    assert_eq!(modern.code, Some(3), "{modern:?}");
}

type Answer = fn(&Received) -> Reply;

#[test]
fn bad_servers_are_told_apart_and_end() {
    let (refusing, _socket) = refusing_address();
    let ran = run(&["tools", &format!("http://{refusing}/mcp")]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("cannot be reached"), "{ran:?}");

    let endless: Answer = |request| match request.method().as_str() {
        "tools/list" => {
            Reply::result(request, r#"{"resultType":"complete","tools":[],"nextCursor":"again"}"#)
        }
        _ => Offer::tools(&[]).answer(request),
    };
    let no_list: Answer = |request| match request.method().as_str() {
        "tools/list" => Reply::result(request, r#"{"resultType":"complete","tools":7}"#),
        _ => Offer::tools(&[]).answer(request),
    };
    let closing: Answer = |request| match request.method().as_str() {
        "tools/list" => Reply::stream().event(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).reset(),
        _ => Offer::tools(&[]).answer(request),
    };
    let huge: Answer = |request| match request.method().as_str() {
        "tools/list" => Reply::json("200 OK", &" ".repeat(17 << 20)),
        _ => Offer::tools(&[]).answer(request),
    };
    let cases: [(Answer, &str); 9] = [
        (|_| Reply::json("401 Unauthorized", ""), "HTTP status 401: give the right key"),
        (|_| Reply::json("503 Service Unavailable", "busy"), "HTTP status 503: it is busy"),
        (|_| Reply::http("200 OK", "Content-Type: text/html\r\n", "<html>"), "not valid MCP"),
        (|_| Reply::json("200 OK", "garbage"), "not valid MCP"),
        (|_| Reply::silence(), "did not answer in time"),
        (endless, "the list has no end"),
        (no_list, "there is no array \"tools\" in it"),
        (closing, "the connection to the server broke"),
        (huge, "larger than is accepted"),
    ];
    for (answer, said) in cases {
        let upstream = Upstream::start(answer);
        let ran = run(&["tools", "--timeout", "2", &url(&upstream)]);
        assert_eq!(ran.code, Some(3), "{said}: {ran:?}");
        assert!(ran.stderr.contains(said), "{said:?} in {ran:?}");
    }
}

#[test]
fn a_flood_before_the_answer_is_read_to_a_limit() {
    let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let upstream = forecasting(move |request| {
        let events = format!("data: {note}\n\n").repeat(20_000);
        Reply::stream().chunk(&events).event(&result_body(request, &text("done"))).end()
    });
    let ran = run(&["call", &url(&upstream), "forecast", "--city", "a"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"));
    assert_eq!(ran.stderr.lines().count(), 501);
}

#[test]
fn a_message_that_drips_is_given_up_and_a_quiet_call_is_not() {
    let pause = Duration::from_millis(20);
    let chunks = move |bytes: &str, times| {
        Reply::drip(format!("{:x}\r\n{bytes}\r\n", bytes.len()).repeat(times), pause)
    };
    let call =
        |upstream: &Upstream| run(&["call", "--timeout", "1", &url(upstream), "forecast", "--city", "a"]);
    let dripping = forecasting(move |request| {
        Reply::stream().then(chunks("x", 100)).chunk("\n\n").event(&result_body(request, &text("late"))).end()
    });
    let ran = call(&dripping);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("did not answer in time"), "{ran:?}");

    // Signs of life for longer than the timeout: whole ones, and such as no blank line ends.
    let quiet = forecasting(move |request| {
        let comments = Reply::stream().then(chunks(":\n\n", 9)).then(chunks(":\n", 9)).chunk("\n");
        comments.event(&result_body(request, &text("done"))).end()
    });
    let ran = call(&quiet);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "{ran:?}");
}

#[test]
fn a_stream_that_brings_nothing_however_often_it_is_taken_up_is_given_up() {
    let legacy = Legacy::new(Offer { tools: vec![FORECAST.into()], ..Offer::default() });
    let upstream = Upstream::start(move |request| {
        if request.method() == "tools/call" || !request.headers("last-event-id").is_empty() {
            return Reply::stream().chunk("id: 1\nretry: 50\ndata:\n\n").end();
        }
        legacy.answer(request)
    });
    let ran = run(&["call", "--timeout", "1", &url(&upstream), "forecast", "--city", "a"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("did not answer in time"), "{ran:?}");
}

#[test]
fn an_interrupt_cancels_the_call() {
    let legacy = Legacy::new(Offer { tools: vec![FORECAST.into()], ..Offer::default() });
    let old = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream().then(Reply::silence()),
        _ => legacy.answer(request),
    });
    let new = forecasting(|_| Reply::stream().then(Reply::silence()));
    for upstream in [&old, &new] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
            .args(["call", &url(upstream), "forecast", "--city", "a"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let call = upstream.wait_for("tools/call", 1);
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, Signal::INT).expect("it lives");
        let end = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(Instant::now() < end, "it ends");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut said = String::new();
        child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it is text");
        assert_eq!(status.code(), Some(130), "{said}");
        upstream.wait_closed(call.connection);
    }
    let call = old.only_call();
    let cancelled = old.wait_for("notifications/cancelled", 1);
    assert_eq!(cancelled.json()["params"]["requestId"], call.json()["id"]);
    assert_eq!(cancelled.headers("mcp-session-id"), call.headers("mcp-session-id"));
    assert!(new.received_of("notifications/cancelled").is_empty(), "a closed connection says it");
}

#[test]
fn a_lost_session_is_opened_anew_once() {
    for lost in [1, 2] {
        let legacy = Legacy::new(Offer { tools: vec![FORECAST.into()], ..Offer::default() });
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let upstream = Upstream::start(move |request| {
            let is_call = request.method() == "tools/call";
            if is_call && calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < lost {
                return Reply::http("404 Not Found", "", "");
            }
            if is_call {
                return Reply::result(request, &text("called"));
            }
            legacy.answer(request)
        });
        let ran = run(&["call", &url(&upstream), "forecast", "--city", "a"]);
        assert_eq!(upstream.received_of("initialize").len(), 2, "{ran:?}");
        let calls = upstream.received_of("tools/call");
        assert_eq!(calls.len(), 2);
        assert_ne!(calls[0].headers("mcp-session-id"), calls[1].headers("mcp-session-id"));
        match lost {
            1 => assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "called\n"), "{ran:?}"),
            _ => assert_eq!(ran.code, Some(3), "{ran:?}"),
        }
    }
}

#[test]
fn silence_agrees_to_nothing() {
    let upstream = forecasting(|request| {
        let schema = json!({"type": "object", "properties": {"note": {"type": "string"}}});
        let question = json!({"method": "elicitation/create", "params": {"message": "Delete all?",
            "requestedSchema": schema}});
        let result = json!({"resultType": "input_required", "inputRequests": {"q": question}});
        match request.json()["params"].get("inputResponses") {
            None => Reply::result(request, &result.to_string()),
            Some(answers) => Reply::result(request, &text(&answers.to_string())),
        }
    });
    for (answer, code, said) in [
        (&[][..], 3, "nobody can be asked here: give --answer note=VALUE"),
        (&["--answer", "other=1"], 3, "nobody can be asked here: give --answer note=VALUE"),
        (&["--answer", "note=x"], 0, ""),
    ] {
        let ran = run(&[&["call", &url(&upstream), "forecast", "--city", "a"], answer].concat());
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
}

#[test]
fn what_cannot_be_written_is_said_and_a_closed_pipe_is_not() {
    let upstream = forecasting(|request| Reply::result(request, &text("cold")));
    let url = url(&upstream);
    for command in [&["tools", &url][..], &["schema"], &["completions", "bash"], &["export", "--list"]] {
        let start = |stdout: Stdio| {
            Command::new(env!("CARGO_BIN_EXE_trunkline"))
                .args(command)
                .stdout(stdout)
                .stderr(Stdio::piped())
                .output()
                .expect("the binary starts")
        };
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        let full = start(full.into());
        let said = String::from_utf8_lossy(&full.stderr);
        assert_eq!(full.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains("cannot write to standard output: No space left"), "{command:?}: {said}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = start(writer.into());
        assert_eq!((closed.status.code(), closed.stderr.len()), (Some(0), 0), "{command:?}: {closed:?}");
    }
}

#[test]
fn help_and_options_in_the_wrong_place_say_what_to_type() {
    let upstream = forecasting(|request| Reply::result(request, &text("called")));
    let url = url(&upstream);
    let help = run(&["call", &url, "forecast", "--help"]);
    assert_eq!(help.code, Some(0), "{help:?}");
    assert!(help.stdout.contains("  --city TEXT                 required\n"), "{help:?}");
    let address = upstream.address.to_string();
    for (words, said) in [
        (&["call", &url, "forecast", "--timeout", "5"][..], "as in: trunkline call --timeout … forecast"),
        (&["call", &url, "forecast", "--city", "a", "-v"], "the option -v of this command stands before"),
        (&["tools", &address], "did you mean http://127.0.0.1:"),
        (&["tools", "localhost/mcp"], "did you mean http://localhost/mcp?"),
        (&["call", "--", "python", "server.py"], "which tool? It stands before --"),
    ] {
        let ran = run(words);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(said), "{said:?} in {ran:?}");
    }
    assert!(upstream.received_of("tools/call").is_empty());
    let sent = run(&["call", &url, "forecast", "--unchecked", "--city", "a", "--days", "0"]);
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), "called\n"), "{sent:?}");
}

#[test]
fn why_a_server_cannot_be_reached_is_said() {
    let (refusing, _socket) = refusing_address();
    // A name that is too long is not asked of any server of names.
    let long = format!("{}.invalid", "a".repeat(64));
    for (url, said) in [
        (
            format!("http://{refusing}/mcp"),
            format!("nothing listens on port {} of 127.0.0.1", refusing.port()),
        ),
        (format!("http://{long}/mcp"), format!("the name {long:?} cannot be looked up")),
    ] {
        let ran = run(&["tools", &url]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stderr.contains(&format!("cannot be reached: {said}")), "{ran:?}");
    }
}

/// A server of the modern era that asks one question and says what the answer was.
fn asking(question: Value) -> Upstream {
    forecasting(move |request| match request.json()["params"].get("inputResponses") {
        None => {
            let question = json!({"method": "elicitation/create", "params": question});
            let result = json!({"resultType": "input_required", "inputRequests": {"q": question}});
            Reply::result(request, &result.to_string())
        }
        Some(answers) => Reply::result(request, &text(&format!("answer: {}", answers["q"]))),
    })
}

fn at_a_terminal(upstream: &Upstream) -> Terminal {
    Terminal::start(&["call", &url(upstream), "forecast", "--city", "a"], &[], (120, 50))
}

#[test]
fn a_form_is_asked_field_by_field() {
    let upstream = asking(json!({"message": "Who\u{1b}[2J?", "requestedSchema": {"type": "object",
        "properties": {"name": {"type": "string", "title": "Your name"},
            "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
            "age": {"type": "integer", "minimum": 18}}, "required": ["name"]}}));
    let mut terminal = at_a_terminal(&upstream);
    terminal.wait_for("Your name: ");
    // Lines that come together are answered one after another.
    terminal.keys("Ada\n2\n17\n");
    terminal.wait_for("must be >=18, but got 17");
    terminal.keys("18\n");
    let screen = terminal.wait_for("Send it?");
    assert!(screen.contains("Who\\u{1b}[2J?") && screen.contains("2  Medium"), "{screen}");
    terminal.keys("edit\n");
    terminal.wait_for("Your name [Ada]: ");
    terminal.keys("Eve\n\n\n");
    terminal.wait_for("name: Eve");
    terminal.keys("yes\n");
    terminal.wait_for(r#"answer: {"action":"accept","content":{"name":"Eve","size":"m","age":18}}"#);
    assert!(terminal.wait_exit().success() && terminal.is_as_before());
}

#[test]
fn questions_can_be_declined_and_cancelled() {
    let form = || {
        asking(json!({"message": "Sure?", "requestedSchema": {"type": "object",
            "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}}))
    };
    for (keys, action) in [(":decline\n", "decline"), (":cancel\n", "cancel"), ("\u{4}", "cancel")] {
        let upstream = form();
        let mut terminal = at_a_terminal(&upstream);
        terminal.wait_for("sure: ");
        terminal.keys(keys);
        terminal.wait_for(&format!(r#"answer: {{"action":"{action}"}}"#));
        assert!(terminal.wait_exit().success());
    }
    let upstream = form();
    let mut terminal = at_a_terminal(&upstream);
    terminal.wait_for("sure: ");
    terminal.keys("\u{3}");
    terminal.wait_for("interrupted; once more ends it at once");
    assert_eq!(terminal.wait_exit().code(), Some(130));
    assert!(terminal.is_as_before());
}

#[test]
fn a_page_is_visited_when_the_person_agrees() {
    for (keys, action) in [("yes\n", "accept"), ("no\n", "decline")] {
        let upstream = asking(json!({"mode": "url", "elicitationId": "1", "message": "Sign in",
            "url": "https://sign.example/in?a=1"}));
        let mut terminal = at_a_terminal(&upstream);
        let screen = terminal.wait_for("Will you visit it?");
        assert!(screen.contains("a page of sign.example:") && screen.contains("https://sign.example/in?a=1"));
        assert!(!screen.contains("not encrypted"));
        terminal.keys(keys);
        if action == "accept" {
            terminal.wait_for("press Enter when you are done");
            terminal.keys("\n");
        }
        terminal.wait_for(&format!(r#"answer: {{"action":"{action}"}}"#));
        assert!(terminal.wait_exit().success());
    }
}

#[test]
fn an_interrupt_ends_a_call_at_once_the_second_time() {
    let legacy = Legacy::new(Offer { tools: vec![FORECAST.into()], ..Offer::default() });
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream().then(Reply::silence()),
        // It hears of no cancellation, so that the end in order takes its time.
        "notifications/cancelled" => Reply::silence(),
        _ => legacy.answer(request),
    });
    let mut terminal = at_a_terminal(&upstream);
    upstream.wait_for("tools/call", 1);
    terminal.keys("\u{3}");
    upstream.wait_for("notifications/cancelled", 1);
    let asked = Instant::now();
    terminal.keys("\u{3}");
    assert_eq!(terminal.wait_exit().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_millis(1500), "{:?}", asked.elapsed());
}

#[test]
fn hostile_schemas_hold_nobody_up() {
    let twice =
        |n: usize| json!({"allOf": [{"$ref": format!("#/$defs/{n}")}, {"$ref": format!("#/$defs/{n}")}]});
    let definitions: serde_json::Map<_, _> = (0..60).map(|n| (n.to_string(), twice(n + 1))).collect();
    let names: serde_json::Map<_, _> = ["json", "help", "a b", "a.b", "a=b", "x\u{1b}[2J", "", "--"]
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    let choices: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let tool = |name: &str, schema: Value| json!({"name": name, "inputSchema": schema}).to_string();
    let tools = vec![
        tool(
            "multiplies",
            json!({"type": "object", "$defs": definitions, "properties": {"a": {"$ref": "#/$defs/0"}}}),
        ),
        tool("names", json!({"type": "object", "properties": names})),
        tool("choices", json!({"type": "object", "properties": {"a": {"enum": choices}}})),
        tool("anchors", json!({"$anchor": "a", "$ref": "#a"})),
    ];
    let offer = Offer { tools, ..Offer::default() };
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::result(request, &text(&request.json()["params"]["arguments"].to_string())),
        _ => offer.answer(request),
    });
    let url = url(&upstream);
    assert_eq!(run(&["tools", &url]).code, Some(0));
    for (words, said, warned) in [
        (&["multiplies", "--a", "1"][..], r#"{"a":1}"#, "are not checked: the schema cannot be used"),
        (&["anchors", "{\"a\":1}"], r#"{"a":1}"#, "are not checked: the schema cannot be used"),
        (&["choices", "--a", "99999"], r#"{"a":"99999"}"#, ""),
        (
            &["names", "--json", "j", "--help", "h", "--a b", "s", "--a.b=d", "--a=b", "e", "--=n"],
            r#"{"json":"j","help":"h","a b":"s","a.b":"d","a=b":"e","":"n"}"#,
            "",
        ),
    ] {
        let one = run(&["tools", &url, words[0]]);
        assert_eq!(one.code, Some(0), "{one:?}");
        let ran = run(&[&["call", url.as_str()], words].concat());
        assert_eq!((ran.code, ran.stdout.trim_end()), (Some(0), said), "{}", ran.stderr);
        assert!(ran.stderr.contains(warned) && ran.stderr.is_empty() == warned.is_empty(), "{}", ran.stderr);
    }
}
