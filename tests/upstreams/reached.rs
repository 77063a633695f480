//! Upstreams that answer, but not as servers of MCP: what they answered is told, and never that they cannot be reached; what
//! it keeps from working is told of each endpoint, and names that nobody has are unknown.

use std::time::Duration;

use serde_json::Value;

use super::states::{expect, status, upstream};
use crate::harness::{
    Config, Daemon, LEGACY_VERSION, Legacy, Offer, Received, Reply, Request, Upstream, call, eventually,
    eventually_within, get_prompt, in_session, initialize, legacy, legacy_call, list, listen, open_session,
    read_resource, refusing_address, side_by_side,
};

/// Questions come soon, and each is answered soon.
const PACE: &str = "list_timeout = \"1s\"\nresponse_timeout = \"1s\"\nconnect_timeout = \"1s\"\n\
                    health = { interval = \"500ms\", timeout = \"500ms\" }\n";

const NOT_REACHED: &str = "reached";

type Answer = fn(&Received) -> Reply;

/// Answers that are none of MCP, with the words that operators are told of each.
const ANSWERS: [(&str, Answer, &str); 8] = [
    ("s401", |_| Reply::http("401 Unauthorized", "", ""), "HTTP 401"),
    ("s403", |_| Reply::http("403 Forbidden", "Content-Type: text/plain\r\n", "no"), "HTTP 403 text/plain"),
    ("s404", |_| Reply::http("404 Not Found", "Content-Type: text/html\r\n", "<html>"), "HTTP 404 text/html"),
    (
        "s421",
        |_| Reply::http("421 Misdirected Request", "Content-Type: text/plain\r\n", "?"),
        "HTTP 421 text/plain",
    ),
    (
        "s307",
        |_| Reply::http("307 Temporary Redirect", "Location: /mcp/?key=hunter2\r\n", ""),
        "HTTP 307 to /mcp/",
    ),
    ("s500", |_| Reply::http("500 Internal Server Error", "", "oops"), "HTTP 500"),
    ("html", |_| Reply::http("200 OK", "Content-Type: text/html\r\n", "<html>"), "HTTP 200 text/html"),
    (
        "gzip",
        |_| Reply::http("200 OK", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "x"),
        "Content-Encoding gzip",
    ),
];

/// An endpoint that routes by names.
fn bare(path: &str, upstreams: &[&str]) -> String {
    format!("[[endpoint]]\npath = \"{path}\"\nauth = []\nnames = \"bare\"\nupstreams = {upstreams:?}")
}

/// All that clients of both eras ask for.
fn questions(session: &str) -> Vec<Request> {
    let lists =
        ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"];
    let lists = lists.map(|method| list("1", method));
    let calls = [call("2", "echo"), get_prompt("3", "greet"), read_resource("4", "test://a")];
    let within = |request| in_session(session, request);
    let legacy_lists =
        ["tools/list", "prompts/list", "resources/list"].map(|method| legacy("5", method, "{}"));
    let of_legacy = legacy_lists.into_iter().chain([legacy_call("6", "echo")]).map(within);
    lists.into_iter().chain(calls).chain(of_legacy).chain([initialize("7", LEGACY_VERSION)]).collect()
}

fn said(request: &Request) -> String {
    String::from_utf8_lossy(&request.bytes()).into_owned()
}

/// Nothing is said not to be reached: not to clients, not in the log.
#[track_caller]
fn assert_reached(daemon: &Daemon, paths: &[&str]) {
    for path in paths {
        let opened = daemon.send(&initialize("1", LEGACY_VERSION).target(path));
        let session = opened.header("mcp-session-id").unwrap_or_default().to_owned();
        for request in questions(&session) {
            let request = request.target(path);
            let answer = daemon.send(&request).text();
            assert!(!answer.contains(NOT_REACHED), "{path} {}: {answer}", said(&request));
        }
    }
    let log = daemon.log();
    let line = log.iter().find(|line| line.contains(NOT_REACHED));
    assert!(line.is_none(), "{line:?}");
}

#[test]
fn an_upstream_that_answers_is_not_said_to_be_out_of_reach() {
    side_by_side(ANSWERS, |(name, answer, why)| {
        let server = Upstream::taking_anything(answer);
        let config = Config::new()
            .probed("up", server.address, &format!("{PACE}pins = \"warn\""))
            .section(&bare("/bare", &["up"]))
            .admin();
        let daemon = Daemon::start(&config);
        let line =
            daemon.wait_for_log(0, name, |line| line.contains("cannot learn what this upstream offers"));
        assert!(line.contains(why), "{name}: {line}");
        let listening = daemon.begin(&listen("9", r#"{"toolsListChanged":true}"#));
        assert_reached(&daemon, &["/mcp", "/bare"]);
        drop(listening);
    });
}

#[test]
fn several_that_answer_are_not_said_to_be_out_of_reach() {
    let servers = ANSWERS.map(|(name, answer, _)| (name, Upstream::taking_anything(answer)));
    let config = servers
        .iter()
        .fold(Config::new(), |config, (name, server)| config.probed(name, server.address, PACE))
        .section(&bare("/bare", &ANSWERS.map(|(name, ..)| name)))
        .admin();
    let daemon = Daemon::start(&config);
    for (name, _, why) in ANSWERS {
        let line = daemon.wait_for_log(0, name, |line| {
            line.contains("cannot learn what this upstream offers")
                && line.contains(&format!("upstream=\"{name}\""))
        });
        assert!(line.contains(why), "{name}: {line}");
    }
    assert_reached(&daemon, &["/mcp", "/bare"]);
}

/// Servers of HTTP+SSE that name no address for messages.
const NO_STREAMS: [(&str, Answer, &str, &str, &str); 5] = [
    (
        "other",
        |_| Reply::raw("220 mail.example ESMTP\r\n\r\n").finish(),
        "is no MCP server",
        "not an answer of MCP",
        "not an answer of MCP",
    ),
    (
        "html",
        |_| Reply::http("200 OK", "Content-Type: text/html\r\n", "<html>"),
        "is no MCP server",
        "HTTP 200 text/html",
        "HTTP 200",
    ),
    (
        "s404",
        |_| Reply::http("404 Not Found", "Content-Type: text/html\r\n", "<html>"),
        "is no MCP server",
        "HTTP 404 text/html",
        "HTTP 404",
    ),
    ("s401", |_| Reply::http("401 Unauthorized", "", ""), "refuses our credentials", "HTTP 401", "HTTP 401"),
    (
        "silent",
        |_| Reply::raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n"),
        "is no MCP server",
        "not an answer of MCP",
        "not an answer of MCP",
    ),
];

#[test]
fn a_server_of_sse_that_names_no_address_stays_named() {
    side_by_side(NO_STREAMS, |(name, answer, state, why, cause)| {
        let server = Upstream::taking_anything(answer);
        let lines = format!("transport = \"sse\"\n{PACE}breaker = {{ failures_max = 2 }}");
        let config =
            Config::new().probed("up", server.address, &lines).section(&bare("/bare", &["up"])).admin();
        let daemon = Daemon::start(&config);
        expect(&daemon, "up", state, why, cause);
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        for id in 0..20 {
            daemon.send(&in_session(&session, legacy_call(&id.to_string(), "echo")));
            daemon.send(&call(&id.to_string(), "echo"));
        }
        let asked = server.received().len();
        eventually_within(Duration::from_secs(30), "it is asked again", || {
            (server.received().len() > asked + 2).then_some(())
        });
        let told = upstream(&status(&daemon), "up");
        assert_eq!(told["state"], state, "{name}: {told:#}");
        assert!(told["why"].as_str().is_some_and(|told| told.contains(why)), "{name}: {told:#}");
        expect(&daemon, "up", state, why, cause);
        let log = daemon.log();
        assert!(!log.iter().any(|line| line.contains(NOT_REACHED)), "{name}: {log:#?}");
    });
}

/// The consequences in the rows of problems, by the upstreams that these are of.
fn consequences(told: &Value) -> Vec<(String, String)> {
    let all = told["problems"].as_array().expect("a list");
    let rows = all.iter().filter(|problem| problem["kind"] == "upstream");
    rows.map(|problem| {
        let what = problem["what"].as_str().unwrap_or_default();
        let consequence = what.rsplit_once("; ").map(|(_, consequence)| consequence.to_owned());
        (problem["names"].to_string(), consequence.unwrap_or_default())
    })
    .collect()
}

#[test]
fn the_consequence_is_told_of_each_endpoint_and_behind_each_upstream_of_it() {
    let (refused, _socket) = refusing_address();
    let locked = Upstream::taking_anything(|_| Reply::http("401 Unauthorized", "", ""));
    let well = Upstream::with_tools(&["echo"]);
    let of = |path: &str, upstreams: &[&str]| {
        format!("[[endpoint]]\npath = \"{path}\"\nauth = []\nupstreams = {upstreams:?}")
    };
    let config = Config::new()
        .probed("gone", refused, PACE)
        .probed("locked", locked.address, PACE)
        .section(&format!("[upstream.well]\nurl = \"http://{}/mcp\"\n{PACE}", well.address))
        .section(&of("/one", &["locked"]))
        .section(&of("/served", &["gone", "locked", "well"]))
        .admin();
    let daemon = Daemon::start(&config);
    let expected =
        [("[\"gone\"]", "every call at /mcp fails"), ("[\"locked\"]", "every call at /one, /mcp fails")]
            .map(|(names, consequence)| (names.to_owned(), consequence.to_owned()));
    eventually("each says what fails", || {
        let mut found = consequences(&status(&daemon));
        found.sort();
        (found == expected).then_some(())
    });
}

#[test]
fn where_an_upstream_can_be_called_not_every_call_is_said_to_fail() {
    let (refused, _socket) = refusing_address();
    let unlisted = Upstream::taking_anything(|request| match request.method().as_str() {
        "tools/list" => Reply::error(request, "200 OK", -32603, "fetch failed"),
        _ => Legacy::new(Offer::tools(&["echo"])).and_modern().answer(request),
    });
    let config =
        Config::new().probed("gone", refused, PACE).probed("unlisted", unlisted.address, PACE).admin();
    let daemon = Daemon::start(&config);
    let expected = [("[\"gone\"]", false), ("[\"unlisted\"]", true)];
    eventually("each says what it keeps from working", || {
        daemon.send(&list("1", "tools/list"));
        let mut found = consequences(&status(&daemon));
        found.sort();
        let found: Vec<_> = found
            .iter()
            .map(|(names, said)| (&**names, said == "clients at /mcp may see no tools"))
            .collect();
        (found == expected).then_some(())
    });
    assert!(!status(&daemon)["problems"].to_string().contains("every call"), "{:#}", status(&daemon));
    assert_eq!(daemon.send(&call("1", "unlisted__echo")).status, 200);
}

/// Calls of what nobody has, in both eras.
fn calls_of_nobody(session: &str) -> Vec<Request> {
    let within = |method: &str, params: &str| in_session(session, legacy("1", method, params));
    let names = ["nope", "nope__echo"];
    let modern = names.into_iter().flat_map(|name| [call("1", name), get_prompt("1", name)]);
    let of_sessions = names.into_iter().flat_map(|name| {
        let params = format!(r#"{{"name":{name:?},"arguments":{{}}}}"#);
        ["tools/call", "prompts/get"].map(|method| within(method, &params))
    });
    let uris = ["test://nope", "https://nope.example/1"];
    let read = uris.into_iter().flat_map(|uri| {
        [read_resource("1", uri), within("resources/read", &format!(r#"{{"uri":{uri:?}}}"#))]
    });
    modern.chain(of_sessions).chain(read).collect()
}

#[test]
fn a_name_that_nobody_has_is_unknown_though_an_upstream_can_never_be_listed() {
    let answers: [Answer; 3] = [
        |_| Reply::http("401 Unauthorized", "", ""),
        |_| Reply::silence(),
        |request| Reply::error(request, "200 OK", -32603, "fetch failed"),
    ];
    let cases = answers.into_iter().flat_map(|answer| ["/mcp", "/bare"].map(|path| (answer, path)));
    side_by_side(cases, |(answer, path)| {
        let well = Legacy::new(Offer::tools(&["echo"]).with_prompts(&["greet"])).and_modern().start();
        let bad = Upstream::taking_anything(answer);
        let config = Config::new()
            .probed("well", well.address, PACE)
            .probed("bad", bad.address, PACE)
            .section(&bare("/bare", &["well", "bad"]))
            .admin();
        let daemon = Daemon::start(&config);
        daemon.wait_for_log(0, "each was tried", |line| {
            line.contains("upstream=\"bad\"")
                && (line.contains("cannot learn what this upstream offers")
                    || line.contains("a list cannot be had"))
        });
        let opened = daemon.send(&initialize("1", LEGACY_VERSION).target(path));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        for request in calls_of_nobody(&session) {
            let request = request.target(path);
            eventually(&format!("it is unknown: {path} {}", said(&request)), || {
                let answer = daemon.send(&request);
                (answer.status == 200 && answer.json()["error"]["code"] == -32602).then_some(())
            });
        }
        // A name that the first in order has is its own, whatever another one may have.
        let name = if path == "/mcp" { "well__echo" } else { "echo" };
        let said = daemon.send(&call("2", name).target(path));
        assert_eq!(said.status, 200, "{path}: {}", said.text());
        if path == "/mcp" {
            // The other one may have it as well: then it is nobody's.
            daemon.send(&call("3", "echo")).assert_error(503, 503, Some("3"));
        }
    });
}
