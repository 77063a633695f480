//! Hundreds of programs that are started at once: they are listed, each is started once, and they harm nobody else.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::{
    Config, Daemon, Folder, LEGACY_VERSION, Offer, Received, Request, Response, Upstream, call, eventually,
    eventually_within, in_session, initialize, legacy, list, open_session, side_by_side, tool_names,
};

const PROGRAMS: usize = 300;
/// So many of them start at once.
const AT_ONCE: usize = 4;
const LIMITS: &str = "children_max = 400\nchildren_starting_max = 4";

/// A server of the legacy era and one of the modern, which write a line to the first file for each start. Others begin when
/// the second file is there.
const SERVER: &str = r#"#!/bin/sh
echo "$3" >> "$1"
while [ ! -e "$2" ]; do sleep 0.1; done
while read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case $line in
    *'"method":"notifications/'*) continue ;;
    *'"method":"server/discover"'*)
        if [ "$3" = modern ]; then
            said='"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete","ttlMs":60000,"cacheScope":"private"}'
        else
            said='"error":{"code":-32601,"message":"Method not found"}'
        fi ;;
    *'"method":"initialize"'*)
        if [ "$3" = modern ]; then
            said='"error":{"code":-32601,"message":"Method not found"}'
        else
            said='"result":{"protocolVersion":"VERSION","capabilities":{"tools":{}},"serverInfo":{"name":"child","version":"1"}}'
        fi ;;
    *'"method":"tools/list"'*)
        said='"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":60000,"cacheScope":"private"}' ;;
    *) said='"result":{"content":[]}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$said"
done
"#;

fn name(number: usize) -> String {
    format!("p{number:03}")
}

fn list_in(session: &str) -> Request {
    in_session(session, legacy("1", "tools/list", "{}"))
}

fn listed(response: &Response) -> usize {
    let is_list = response.status == 200 && response.json()["result"].is_object();
    if is_list { tool_names(response).len() } else { 0 }
}

/// Programs of both eras that are up once the file `go` is there.
fn servers(folder: &Path) -> Config {
    let [script, starts, go] =
        ["server.sh", "starts", "go"].map(|file| folder.join(file).display().to_string());
    std::fs::write(&script, SERVER.replace("VERSION", LEGACY_VERSION)).expect("a file");
    (0..PROGRAMS).fold(Config::new().admin().limits(LIMITS), |config, number| {
        let era = if number % 2 == 0 { "modern" } else { "legacy" };
        let command = format!("command = [\"sh\", {script:?}, {starts:?}, {go:?}, {era:?}]");
        config.raw(&name(number), &format!("{command}\nstop_timeout = \"10ms\""))
    })
}

fn fast() -> Upstream {
    let offer = Offer::tools(&["t1"]);
    Upstream::start(move |request: &Received| offer.answer(request))
}

fn wait_for_turns(daemon: &Daemon) {
    eventually("some of them start, and the others wait", || {
        let waiting = daemon.metric("trunkline_child_starts_waiting");
        (waiting == (PROGRAMS - AT_ONCE) as u64).then_some(())
    });
}

fn call_fast(daemon: &Daemon, session: &str) {
    for number in 0..20 {
        let (params, since) = (r#"{"name":"fast__t1","arguments":{}}"#, Instant::now());
        let in_a_session = || in_session(session, legacy("1", "tools/call", params));
        let request = if number % 2 == 0 { call("1", "fast__t1") } else { in_a_session() };
        let response = daemon.send(&request);
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        assert!(response.status == 200 && response.json()["result"].is_object(), "{}", response.text());
    }
}

#[test]
fn hundreds_of_programs_that_do_not_start_harm_nobody_and_are_told() {
    let never = "command = [\"sleep\", \"600\"]\nstop_timeout = \"10ms\"";
    let config = Config::new().admin().limits(LIMITS);
    let config = (0..PROGRAMS).fold(config, |config, number| config.raw(&name(number), never));
    let names: Vec<String> = (0..PROGRAMS).map(name).collect();
    let config = config.section(&format!("[[endpoint]]\npath = \"/slow\"\nupstreams = {names:?}"));
    let fast = fast();
    let mut daemon = Daemon::start(&config.upstream("fast", fast.address, ""));
    let session = open_session(daemon.address(), LEGACY_VERSION).0;
    wait_for_turns(&daemon);
    call_fast(&daemon, &session);
    let opened = daemon.send(&initialize("0", LEGACY_VERSION).target("/slow"));
    let slow = opened.header("mcp-session-id").expect("a session id");
    side_by_side([(list("1", "tools/list"), 503), (list_in(slow), 200)], |(request, status)| {
        let error = daemon.send(&request.target("/slow")).assert_error(status, 503, Some("1"));
        assert_eq!(error["error"]["data"]["retryAfterMs"], 2000, "{error}");
        let said = error["error"]["message"].as_str().expect("a message");
        assert!(
            said.contains("still starting: p000, p001, p002, p003, p004 and 295 more (0 of 300 are up)"),
            "{said}"
        );
    });
    daemon.terminate();
    assert!(daemon.wait_exit().success());
}

#[test]
fn hundreds_of_programs_that_start_at_once_are_listed_and_each_is_started_once() {
    let folder = Folder::new();
    let (starts, go) = (folder.path().join("starts"), folder.path().join("go"));
    let fast = fast();
    let mut daemon = Daemon::start(&servers(folder.path()).upstream("fast", fast.address, ""));
    let session = open_session(daemon.address(), LEGACY_VERSION).0;
    wait_for_turns(&daemon);
    let both = || [list("1", "tools/list"), list_in(&session)].map(|request| listed(&daemon.send(&request)));
    assert_eq!(both(), [1, 1], "a list is of what is up");
    call_fast(&daemon, &session);
    std::fs::write(&go, "").expect("a file");
    let mut before = [1, 1];
    eventually_within(Duration::from_mins(1), "all are listed to clients of both eras", || {
        let now = both();
        assert!(now[0] >= before[0] && now[1] >= before[1], "{before:?}, then {now:?}");
        before = now;
        (now == [PROGRAMS + 1; 2]).then_some(())
    });
    let started = std::fs::read_to_string(&starts).expect("a file").lines().count();
    assert_eq!(started, PROGRAMS, "each is started once");
    daemon.terminate();
    assert!(daemon.wait_exit().success());
}
