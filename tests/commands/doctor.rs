//! `trunkline doctor`: servers of every kind, and what is said of them.

use std::collections::HashSet;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Daemon, Gate, Legacy, Offer, Received, Reply, Upstream, refusing_address, trunkline,
};

/// What a report says.
struct Seen {
    code: i32,
    report: Value,
}

impl Seen {
    /// The ids of what was found.
    fn findings(&self) -> Vec<&str> {
        self.report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["id"].as_str().unwrap())
            .collect()
    }

    /// The ids of what is well.
    fn kept(&self) -> Vec<&str> {
        self.report["kept"].as_array().unwrap().iter().map(|kept| kept["id"].as_str().unwrap()).collect()
    }

    /// What was seen of one finding.
    #[track_caller]
    fn seen(&self, id: &str) -> String {
        let findings = self.report["findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["id"] == id);
        finding.unwrap_or_else(|| panic!("{id} is not in {:?}", self.findings()))["seen"].to_string()
    }

    fn why(&self) -> &str {
        self.report["notInspected"].as_str().unwrap_or_default()
    }
}

fn run(arguments: &[&str]) -> Output {
    run_within("1", arguments)
}

/// An answer may take so many seconds.
fn run_within(timeout_s: &str, arguments: &[&str]) -> Output {
    let arguments: Vec<_> =
        ["doctor", "--timeout", timeout_s].into_iter().chain(arguments.iter().copied()).collect();
    trunkline(&arguments, None).0
}

#[track_caller]
fn inspect(arguments: &[&str]) -> Seen {
    read(&run(&[&["--json"], arguments].concat()))
}

#[track_caller]
fn read(output: &Output) -> Seen {
    let text = str::from_utf8(&output.stdout).unwrap();
    let Ok(report) = serde_json::from_str(text) else {
        panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr))
    };
    Seen { code: output.status.code().unwrap(), report }
}

#[track_caller]
fn inspect_server(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Seen {
    inspect(&[&url(&server(answer))])
}

/// A server that checks nothing, and answers requests like this.
fn server(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    Upstream::taking_anything(move |request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match (message.get("id"), message.get("method"), request.http_method()) {
            (Some(_), Some(_), _) | (_, _, "GET") => answer(request),
            (None, Some(_), _) => Reply::http("202 Accepted", "", ""),
            _ => Reply::json("200 OK", "{}"),
        }
    })
}

fn url(upstream: &Upstream) -> String {
    format!("http://{}/mcp", upstream.address)
}

/// A server of 2026 whose list of tools is this.
fn listing(
    result: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> impl Fn(&Received) -> Reply + Send + Sync {
    let offer = Offer::tools(&["a"]);
    move |request| match request.method().as_str() {
        "tools/list" => Reply::result(request, &result(&request.json()["params"]["cursor"]).to_string()),
        "GET" => Reply::http("405 Method Not Allowed", "", ""),
        _ => offer.answer(request),
    }
}

fn tool(name: &str) -> Value {
    json!({
        "name": name, "description": "Does it.", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true},
    })
}

type Answer = Box<dyn Fn() -> Reply + Send + Sync>;

const GZIP: &str = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";

#[test]
fn the_gateway_does_well_in_both_eras() {
    let offer = Offer { tools: vec![tool("a").to_string(), tool("b").to_string()], ..Offer::default() };
    let upstream = Upstream::offering(offer);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let seen = inspect(&[&format!("http://{}/mcp", daemon.address())]);
    assert_eq!(seen.code, 0, "{}", seen.report);
    assert_eq!(seen.report["summary"]["errors"], 0);
    for id in [
        "modern",
        "discover",
        "unknown-version",
        "header-missing",
        "header-mismatch",
        "accept",
        "origin",
        "order",
    ] {
        assert!(seen.kept().contains(&id), "{id}: {}", seen.report);
    }
    assert_eq!(seen.report["measured"]["tools"], 2);
}

#[test]
fn what_cannot_be_inspected_is_said_and_has_its_own_exit_code() {
    let (address, _held) = refusing_address();
    let seen = inspect(&[&format!("http://{address}/mcp")]);
    assert_eq!(seen.code, 3);
    assert!(
        seen.why().starts_with("the server cannot be reached: nothing listens on port"),
        "{:?}",
        seen.why()
    );

    let flood = || {
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        let many = format!("data: {note}\n\n").repeat(1000);
        (0..20).fold(Reply::stream(), |stream, _| stream.chunk(&many)).end()
    };
    let large = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n";
    let large = move || Reply::raw([large.as_bytes(), &vec![b' '; 17 << 20]].concat());
    let cases: Vec<(&str, Answer)> = vec![
        ("no answer in time", Box::new(Reply::silence)),
        ("the connection broke", Box::new(|| Reply::default().reset())),
        ("not valid HTTP", Box::new(|| Reply::raw("hello\r\n\r\n").finish())),
        (
            "redirects (HTTP 302) to /other, which",
            Box::new(|| Reply::http("302 Found", "Location: /other\r\n", "")),
        ),
        ("does not accept this Host (HTTP 421)", Box::new(|| Reply::http("421 Misdirected Request", "", ""))),
        ("a compressed body (gzip)", Box::new(|| Reply::http("200 OK", GZIP, "\u{1}\u{2}"))),
        ("(HTTP 503)", Box::new(|| Reply::http("503 Service Unavailable", "", ""))),
        ("no MCP server", Box::new(|| Reply::http("200 OK", "Content-Type: text/html\r\n", "<html>"))),
        ("more than 16 MiB", Box::new(large)),
        ("no answer among the first 10000 messages", Box::new(flood)),
    ];
    for (why, reply) in cases {
        let seen = inspect_server(move |_| reply());
        assert_eq!(seen.code, 3, "{why}: {}", seen.report);
        assert!(seen.why().contains(why), "{why}: {}", seen.why());
    }
}

#[test]
fn a_server_of_http_sse_is_inspected_as_far_as_that_goes() {
    let upstream = crate::upstreams::http_sse::Server::new().start_taking_anything();
    let seen = inspect(&["--call", "echo", &url(&upstream)]);
    assert_eq!(seen.code, 1, "{}", seen.report);
    assert_eq!(seen.report["server"]["name"], "old", "{}", seen.report);
    let versions = json!(["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    assert_eq!(seen.report["server"]["protocolVersions"], versions);
    assert_eq!(seen.report["measured"]["tools"], 1);
    for id in ["http-sse-only", "origin", "host", "unknown-method"] {
        assert!(seen.findings().contains(&id), "{id}: {:?}", seen.findings());
    }
    for id in ["legacy", "negotiation", "ping", "garbage", "list-form", "order", "varying-list", "call"] {
        assert!(seen.kept().contains(&id), "{id}: {}", seen.report);
    }
    // What only Streamable HTTP has is not judged, and was not asked for.
    for id in ["notification", "accept", "batch", "get-stream", "refusal"] {
        assert!(!seen.kept().contains(&id) && !seen.findings().contains(&id), "{id}: {}", seen.report);
    }
    assert!(seen.report["cutShort"].is_null() && upstream.received().len() <= 80, "{}", seen.report);
}

#[test]
fn a_stream_alone_is_no_server_of_http_sse() {
    let stream = |event: &'static str| {
        inspect_server(move |request| match request.http_method() {
            "GET" => Reply::stream().chunk(event).end(),
            _ => Reply::http("405 Method Not Allowed", "", ""),
        })
    };
    for event in [": hello\n\n", "data: hello\n\n", "event: endpoint\ndata: http://192.0.2.1/\n\n"] {
        let seen = stream(event);
        assert_eq!(seen.code, 3, "{event}: {}", seen.report);
        assert!(seen.why().contains("no MCP server"), "{event}: {}", seen.why());
    }
    // Messages are refused at the address that it names.
    let seen = stream("event: endpoint\ndata: /messages\n\n");
    assert_eq!(seen.code, 1, "{}", seen.report);
    assert!(seen.findings().contains(&"http-sse-only"), "{}", seen.report);
    assert!(seen.seen("legacy").contains("initialize got HTTP 405"), "{}", seen.report);
}

#[test]
fn a_stream_for_who_reads_json_alone_is_noticed() {
    let list = listing(|_| json!({"tools": [tool("a")], "ttlMs": 5, "cacheScope": "public"}));
    let seen = inspect_server(move |request| {
        let is_json_only = request.headers("accept") == ["application/json"];
        if is_json_only && request.method() == "server/discover" {
            let offer = Offer::tools(&["a"]);
            let result = offer.result(request).expect("it has a result");
            return Reply::stream().event(&crate::harness::result_body(request, &result)).end();
        }
        list(request)
    });
    assert!(seen.seen("accept").contains("HTTP 200 with a result as text/event-stream"), "{}", seen.report);
}

#[test]
fn those_who_are_not_let_in_hear_what_is_missing() {
    let seen = inspect_server(|_| Reply::http("401 Unauthorized", "", ""));
    assert_eq!((seen.code, seen.findings()), (3, vec!["challenge"]));

    let seen = inspect_server(|request| {
        let host = request.headers("host")[0].to_owned();
        if request.http_method() == "GET" {
            assert!(request.headers("authorization").is_empty(), "keys are for the server alone");
            let metadata =
                json!({"resource": format!("http://{host}/mcp"), "authorization_servers": ["https://as"]});
            return Reply::json("200 OK", &metadata.to_string());
        }
        let challenge = format!("WWW-Authenticate: Bearer resource_metadata=\"http://{host}/meta\"\r\n");
        Reply::http("401 Unauthorized", &challenge, "")
    });
    assert_eq!((seen.code, seen.findings()), (3, vec![]));
    assert!(
        seen.kept().contains(&"challenge") && seen.kept().contains(&"resource-metadata"),
        "{}",
        seen.report
    );

    let elsewhere = "WWW-Authenticate: Bearer resource_metadata=\"http://192.0.2.1/meta\"\r\n";
    let seen = inspect_server(move |_| Reply::http("401 Unauthorized", elsewhere, ""));
    assert!(seen.seen("resource-metadata").contains("was not asked"), "{}", seen.report);
}

#[test]
fn lists_that_never_end_or_repeat_themselves_are_left() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let endless = move |_: &Value| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        json!({"tools": [tool(&format!("t{number}"))], "nextCursor": format!("c{number}")})
    };
    let seen = inspect_server(listing(endless));
    // It may have an end: what is new on every page is no circle.
    assert!(seen.seen("many-pages").contains("more than 10 pages"), "{}", seen.report);
    assert!(!seen.findings().contains(&"endless-list") && count.load(Ordering::Relaxed) <= 80);

    let count = AtomicUsize::new(0);
    let circling = move |_: &Value| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        json!({"tools": [tool("a")], "nextCursor": format!("c{number}")})
    };
    let seen = inspect_server(listing(circling));
    assert!(seen.seen("endless-list").contains("goes on after 10 pages"), "{}", seen.report);
    assert!(!seen.findings().contains(&"duplicates"), "{}", seen.report);

    let seen = inspect_server(listing(|_| json!({"tools": [tool("a")], "nextCursor": "again"})));
    assert!(seen.seen("endless-list").contains("a cursor of before on page 2"), "{}", seen.report);
}

#[test]
fn long_lists_leave_requests_for_the_rest() {
    let pages = |cursor: &Value| {
        let number: usize = cursor.as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or_default();
        let mut page = json!({"tools": [tool(&format!("t{number}"))], "ttlMs": 5, "cacheScope": "public"});
        if number < 30 {
            page["nextCursor"] = json!((number + 1).to_string());
        }
        page
    };
    let seen = inspect_server(listing(pages));
    assert!(seen.report["cutShort"].is_null(), "{}", seen.report);
    assert!(seen.findings().contains(&"many-pages") && !seen.findings().contains(&"endless-list"));
}

#[test]
fn null_in_place_of_nothing_is_noticed() {
    let mut described = tool("a");
    described["description"] = Value::Null;
    let seen =
        inspect_server(listing(move |_| json!({"tools": [described], "ttlMs": 5, "cacheScope": "public"})));
    assert!(seen.seen("list-form").contains("entry 1 has description null"), "{}", seen.report);
}

#[test]
fn a_server_that_drips_is_left_in_time() {
    let started = std::time::Instant::now();
    for head in ["application/json", "text/event-stream"] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {head}\r\n\r\n\n");
        let drip = head + &":".repeat(1000);
        let pause = std::time::Duration::from_millis(20);
        let seen = inspect_server(move |_| Reply::drip(drip.clone(), pause));
        assert_eq!(seen.code, 3, "{}", seen.report);
        assert!(seen.why().contains("no answer in time"), "{}", seen.why());
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn an_order_that_changes_is_noticed() {
    let turn = AtomicUsize::new(0);
    let turning = move |_: &Value| {
        let mut tools = vec![tool("a"), tool("b")];
        tools.rotate_left(turn.fetch_add(1, Ordering::Relaxed) % 2);
        json!({"tools": tools, "ttlMs": 5, "cacheScope": "public"})
    };
    let seen = inspect_server(listing(turning));
    assert!(seen.seen("order").contains("entry 1 is b instead of a"), "{}", seen.report);
}

#[test]
fn servers_that_check_nothing_are_told_so() {
    // Whatever the headers say, and wherever it comes from.
    let seen = inspect_server(listing(|_| json!({"tools": [tool("a")]})));
    assert_eq!(seen.code, 1);
    for id in ["origin", "header-missing", "header-mismatch", "meta-missing", "garbage", "unknown-version"] {
        assert!(seen.findings().contains(&id), "{id}: {:?}", seen.findings());
    }
    assert!(
        seen.seen("header-missing").contains("no Mcp-Method: got HTTP 200 with a result"),
        "{}",
        seen.report
    );
}

#[test]
fn answers_of_the_wrong_form_are_noticed() {
    let offer = Offer::tools(&["a"]);
    let seen = inspect_server(move |request| {
        if matches!(request.method().as_str(), "tools/list" | "GET") {
            return Reply::http("405 Method Not Allowed", "", "");
        }
        let result = offer.result(request).unwrap_or_else(|| "[]".into());
        let id = request.json()["id"].as_str().unwrap_or("1").to_owned();
        // The id as a number, or another one.
        Reply::json("200 OK", &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.len()))
    });
    assert!(seen.findings().contains(&"answer-form"), "{}", seen.report);
}

#[test]
fn hostile_names_reach_no_terminal() {
    let hostile = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}a\u{e0041}";
    let list = move |_: &Value| json!({"tools": [tool(hostile)], "ttlMs": 5, "cacheScope": "public"});
    let upstream = server(listing(list));
    let url = url(&upstream);
    for arguments in [&[url.as_str()][..], &["--json", &url], &["--long", &url]] {
        let output = run(arguments);
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("hidden-characters"), "{text}");
        let obeyed = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{e0041}');
        assert!(!text.contains(obeyed), "{text:?}");
    }
}

#[test]
fn findings_decide_the_exit_code_as_far_as_asked() {
    let upstream = server(listing(|_| json!({"tools": [tool("a b")], "ttlMs": 5, "cacheScope": "public"})));
    let url = url(&upstream);
    // The server checks no headers: its errors are passed over by their ids.
    let errors = inspect(&[&url]);
    let errors: Vec<String> = errors.report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["severity"] == "error")
        .flat_map(|finding| ["--ignore".to_owned(), finding["id"].as_str().unwrap().to_owned()])
        .collect();
    let code = |more: &[&str]| {
        let arguments: Vec<_> =
            errors.iter().map(String::as_str).chain(more.iter().copied()).chain([url.as_str()]).collect();
        inspect(&arguments).code
    };
    assert_eq!(inspect(&[&url]).code, 1);
    assert_eq!(inspect(&["--fail-on", "never", &url]).code, 0);
    assert_eq!(code(&[]), 0);
    assert_eq!(code(&["--fail-on", "warning"]), 1);

    for (arguments, text) in [
        (&["--ignore", "orign", &url][..], "did you mean origin?"),
        (&["program"], "trunkline doctor -- program"),
        (&[], "required"),
        (&["--calls", "2", &url], "--call"),
        (&["--call", "a", "--arguments", "[]", &url], "not a JSON object"),
    ] {
        let output = run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(text), "{stderr}");
    }
}

#[test]
fn no_tool_is_called_unless_asked_for() {
    let gate = Gate::default();
    let called = gate.clone();
    let offer = Offer::tools(&["a"]);
    let upstream = server(move |request| {
        let is_call = request.method() == "tools/call" && request.json()["params"]["name"] == "a";
        if is_call {
            called.open();
        }
        if request.http_method() == "GET" {
            Reply::http("405 Method Not Allowed", "", "")
        } else {
            offer.answer(request)
        }
    });
    let url = url(&upstream);
    let seen = inspect(&[&url]);
    assert!(!gate.is_open() && !seen.kept().contains(&"call"));
    let seen = inspect(&["--call", "a", "--calls", "2", &url]);
    assert!(gate.is_open() && seen.kept().contains(&"call"), "{}", seen.report);
    assert_eq!(seen.report["measured"]["calls"]["count"], 2);
}

/// A program that answers as one of before 2026, with these lines of Python before and after.
fn program(before: &str, after: &str) -> Vec<String> {
    let script = format!(
        r#"
import sys, json, time
def send(**message): print(json.dumps(dict(jsonrpc="2.0", **message)), flush=True)
{before}
for line in sys.stdin:
    try: message = json.loads(line)
    except ValueError: continue
    if "id" not in message: continue
    method, i = message["method"], message["id"]
    if method == "initialize":
        send(id=i, result=dict(protocolVersion=message["params"]["protocolVersion"], capabilities=dict(tools={{}}),
             serverInfo=dict(name="program", version="1")))
    elif method == "ping": send(id=i, result={{}})
    elif method == "tools/list": send(id=i, result=dict(tools=[dict(name="a", inputSchema=dict(type="object"))]))
    else: send(id=i, error=dict(code=-32601, message="no"))
{after}
"#
    );
    ["--", "python3", "-c", &script].map(str::to_owned).to_vec()
}

#[track_caller]
fn inspect_program(program: &[String]) -> Seen {
    let program = program.iter().map(String::as_str);
    // One that has yet to start takes its time where there is much to do.
    read(&run_within("8", &std::iter::once("--json").chain(program).collect::<Vec<_>>()))
}

#[test]
fn programs_are_started_inspected_and_ended() {
    let seen = inspect_program(&program("", ""));
    assert_eq!(seen.report["server"]["name"], "program");
    let versions = json!(["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    assert_eq!(seen.report["server"]["protocolVersions"], versions);
    for id in ["stdout", "exit", "crash", "garbage", "ping", "order", "varying-list"] {
        assert!(seen.kept().contains(&id), "{id}: {}", seen.report);
    }

    let noisy = inspect_program(&program(r#"print("\033[1mWelcome!"); sys.stderr.write("x" * 20000)"#, ""));
    assert!(noisy.seen("stdout").contains("Welcome!"), "{}", noisy.report);
    assert!(noisy.findings().contains(&"stderr"));

    let fragile =
        program("", "").join("\u{0}").replace("except ValueError: continue", "except KeyError: continue");
    let fragile: Vec<_> = fragile.split('\u{0}').map(str::to_owned).collect();
    let seen = inspect_program(&fragile);
    assert!(seen.findings().contains(&"garbage") && seen.findings().contains(&"crash"), "{}", seen.report);
}

#[test]
fn processes_that_define_a_tool_otherwise_are_told_with_the_member() {
    for words in [&["varies"][..], &["varies", "modern"]] {
        let child = Child::new(words);
        let program = std::iter::once("--".to_owned()).chain(child.command()).collect::<Vec<_>>();
        let seen = inspect_program(&program);
        let said = seen.seen("varying-definitions");
        assert!(
            said.contains("read in another process: echo differs in inputSchema.properties.limit.default"),
            "{words:?}: {said}"
        );
        assert!(seen.kept().contains(&"order"), "{words:?}: {}", seen.report);
    }
}

#[test]
fn a_call_that_changes_the_list_of_its_session_is_noticed() {
    let some = Legacy::new(Offer::tools(&["echo"]));
    let all = Legacy::new(Offer::tools(&["echo", "hidden"]));
    let called = Mutex::<HashSet<String>>::default();
    let upstream = server(move |request| {
        let session = request.session();
        if request.method() == "tools/call" {
            called.lock().unwrap().insert(session.clone());
        }
        let has_called = called.lock().unwrap().contains(&session);
        match all.result(request, &request.method()) {
            Some(result) if request.method() == "tools/list" && has_called => Reply::result(request, &result),
            _ => some.answer(request),
        }
    });
    let seen = inspect(&["--call", "echo", &url(&upstream)]);
    let said = seen.seen("varying-list");
    assert!(said.contains("after the call: with hidden in addition"), "{said}");
}

#[test]
fn programs_that_are_no_servers_are_told_apart() {
    for (arguments, why) in [
        (&["--", "/no/such/program"][..], "cannot be started"),
        (&["--", "false"], "the program ended (exit status: 1)"),
        (&["--", "sh", "-c", "echo broken >&2; exit 7"], "the last it said: broken"),
        (&["--", "yes"], "no MCP server"),
        (&["--", "sleep", "30"], "no answer in time"),
    ] {
        let seen = inspect(arguments);
        assert_eq!(seen.code, 3, "{arguments:?}");
        assert!(seen.why().contains(why), "{arguments:?}: {}", seen.why());
    }
}
