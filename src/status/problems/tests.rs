use super::upstreams::approval;
use super::*;
use crate::object::Object as _;
use crate::problem::summary;
use crate::seen::SeenCalls;
use serde_json::{Value, json};

const NOW_S: u64 = 1_800_000_000;

/// A minute ago nothing had been called yet.
fn before() -> Seen {
    let calls = |name: &str| (name.to_owned(), SeenCalls::default());
    Seen {
        endpoints: ["/mcp", "/b"].map(calls).into(),
        upstreams: ["a", "b"].map(calls).into(),
        limits: [("burst".to_owned(), 7)].into(),
        ..Seen::default()
    }
}

fn found(status: &Value) -> Vec<String> {
    let said = |problem: Problem| format!("{:?} {}: {}", problem.severity(), problem.subject, problem.what);
    problems(&Status::read(status).unwrap(), Some(&before()), NOW_S).into_iter().map(said).collect()
}

/// An upstream of which nothing is told but this.
fn upstream(mut told: Value) -> Value {
    told["name"] = "a".into();
    told.as_object_mut().unwrap().entry("healthy").or_insert(true.into());
    json!({ "upstreams": [told] })
}

fn assert_only(troubles: &[(Value, &str)]) {
    for (status, expected) in troubles {
        let found = found(status);
        assert_eq!(found.len(), 1, "{status}: {found:?}");
        assert!(found[0].starts_with(expected), "{expected}: {found:?}");
    }
}

#[test]
fn each_trouble_of_an_upstream_is_found() {
    let (open, closed) = (json!({"breaker": "open"}), json!({"breaker": "closed"}));
    assert_only(&[
        (
            json!({"endpoints": [{"path": "/mcp", "healthy": false}]}),
            "Error endpoint /mcp: none of its upstreams is up",
        ),
        (upstream(json!({"healthy": false})), "Error upstream a: down"),
        (
            upstream(json!({"healthy": false, "replicas": [open]})),
            "Error upstream a: down: its circuit breaker is open",
        ),
        (
            upstream(json!({"healthy": false, "replicas": [open, open]})),
            "Error upstream a: down: all 2 replicas: its circuit breaker is open",
        ),
        (upstream(json!({"replicas": [open, closed]})), "Warning upstream a: failing: 1 of 2 replicas down"),
        (
            upstream(json!({"healthy": false, "replicas": [{"resolved": false}]})),
            "Error upstream a: down: DNS: its name",
        ),
        (
            upstream(json!({"healthy": false, "children": {"crash_loop": true}})),
            "Error upstream a: down: its child process",
        ),
        (
            upstream(json!({"pins": {"changed": 2, "new": 1}})),
            "Warning upstream a: 2 tools have changed and 1 tool",
        ),
        (
            upstream(json!({"replicas": [{"breaker": "half_open"}]})),
            "Warning upstream a: failing: is being probed",
        ),
        (upstream(json!({"calls": 50, "errors": 5})), "Warning upstream a: failing: 10 % of its calls"),
        (
            upstream(json!({"pins": {
                "changed": 1, "waiting": ["t"], "varying": [{"name": "t", "member": "a.b"}],
            }})),
            "Warning upstream a: 1 tool has changed, waiting for approval; t differs from process to process, first in a.b:",
        ),
        (
            upstream(json!({"lists_cut": [{"list": "tools/list", "reason": "entries", "shown": 1000}]})),
            "Warning upstream a: tools/list is cut off at list_entries_max: clients are shown 1000 entries",
        ),
        (
            upstream(json!({"lists_cut": [{"list": "prompts/list", "reason": "cursor", "shown": 1}]})),
            "Warning upstream a: prompts/list is cut off at a cursor that came again: clients are shown 1 entry",
        ),
        (upstream(json!({"pins": {"unreadable": true}})), "Error upstream a: its pins cannot be read"),
        (upstream(json!({"pins": {"unwritable": true}})), "Error upstream a: its pins cannot be written"),
        (upstream(json!({"pins": {"unasked": true}})), "Error upstream a: the pins of the other gateways"),
        (upstream(json!({"pins": {"unshared": true}})), "Error upstream a: its pins cannot be shared"),
        (
            upstream(json!({"concurrency": {"max": 1, "in_use": 1, "waiting": 3}})),
            "Warning upstream a: 3 calls waiting",
        ),
    ]);
}

#[test]
fn each_trouble_of_the_gateway_is_found() {
    assert_only(&[
        (
            json!({"certificates": [{"file": "c", "expires_s": NOW_S - 60}]}),
            "Error certificate c: the certificate expired 1 min ago",
        ),
        (
            json!({"certificates": [{"file": "c", "expires_s": NOW_S + 86_400}]}),
            "Error certificate c: the certificate expires in 1 d",
        ),
        (
            json!({"certificates": [{"file": "ca", "expires_s": NOW_S - 60, "authority": true}]}),
            "Warning certificate ca: the authority of clients expired 1 min ago, and goes on to count",
        ),
        (
            json!({"certificates": [{"file": "ca", "expires_s": NOW_S + 60, "authority": true}]}),
            "Warning certificate ca: the certificate expires in 1 min",
        ),
        (
            json!({"certificates": [{"file": "c", "expires_s": NOW_S + 7 * 86_400}]}),
            "Warning certificate c: the certificate expires in 7 d",
        ),
        (json!({"connections": {"open": 10, "max": 10}}), "Error connections: all 10"),
        (json!({"connections": {"open": 9, "max": 10}}), "Warning connections: 9 of 10"),
        (json!({"limits": [{"name": "l", "overflowed": 4}]}), "Warning limit l: 4 calls"),
        (json!({"drain": "quiet"}), "Warning gateway: is about to stop"),
        (json!({"panics": 1}), "Warning gateway: 1 connection ended"),
        (json!({"shared": {"connected": false}}), "Error shared store"),
        (
            json!({"shared": {"connected": true, "mismatched": 1}}),
            "Error shared store: 1 gateway with another",
        ),
        (
            json!({"sessions": {"journal_fault": {"since_s": NOW_S - 60, "reason": "No space left on device"}}}),
            "Error session journal: cannot be written, a restart would forget changes: No space",
        ),
        (
            json!({"state_directory_fault": {"since_s": NOW_S - 60, "reason": "lists: No space left on device"}}),
            "Warning state directory: cannot be written, the next start is a cold one: lists: No space",
        ),
        (
            json!({"sign_in": {"store_fault": {"since_s": NOW_S - 60, "reason": "the store cannot be written: x"}}}),
            "Error sign-in store: the store cannot be written: x; nobody can sign in or renew",
        ),
        (
            json!({"sign_in": {"room_fault": {"since_s": NOW_S - 60, "reason": "the store has no room for more: x"},
                "store": {"records": 10, "records_max": 10}}}),
            "Error sign-in store: the store has no room for more: x; nobody new can sign in",
        ),
        (
            json!({"sign_in": {"store": {"records": 9, "records_max": 10}}}),
            "Warning sign-in store: has 9 of 10 records; then nobody new can sign in",
        ),
        (
            json!({"sign_in": {"redis_faults": ["Redis does not persist: x"]}}),
            "Warning sign-in store: Redis does not persist: x",
        ),
        (
            json!({"sign_in": {"provider_fault": {"since_s": NOW_S - 60, "reason": "connect: refused"}}}),
            "Error sign-in provider: connect: refused; nobody can sign in",
        ),
        (
            json!({"config": {"last_reload": {"ok": false, "error": "\nline 3"}}}),
            "Error configuration: the last",
        ),
        (
            json!({"config": {"last_reload": {"ok": true, "needs_restart": ["x"]}}}),
            "Warning configuration: takes",
        ),
    ]);
}

#[test]
fn every_section_of_the_runbook_is_there_and_commands_are_quoted() {
    let runbook = include_str!("../../../docs/operate/runbook.md");
    let sources = [
        include_str!("mod.rs"),
        include_str!("sign_in.rs"),
        include_str!("upstreams.rs"),
        include_str!("../../gateway/admin/page/findings.js"),
    ];
    let named = sources.into_iter().flat_map(|source| source.split(['"', '\'']));
    let named: Vec<_> = named.filter(|word| word.len() > 12 && word.starts_with("Trunkline")).collect();
    assert!(named.len() > 20, "{named:?}");
    for section in named {
        assert!(runbook.contains(&format!("\n## {section}\n")), "{section}");
    }
    assert_eq!(command(["a", "b c", "it's", "", "x;y"]), r"a 'b c' 'it'\''s' '' 'x;y'");
}

#[test]
fn the_name_of_a_tool_does_not_bend_the_command_that_approves_it() {
    for (waiting, expected) in [
        (&["add"][..], Some("trunkline pins approve -- notes add")),
        (&["--all"], Some("trunkline pins approve -- notes --all")),
        (&["a b"], Some("trunkline pins approve -- notes 'a b'")),
        (&["add", "remove"], Some("trunkline pins approve --all -- notes")),
        (&[], Some("trunkline pins approve --all -- notes")),
        (&["the_beginning_of_a_name…"], None),
        (&["a\u{1b}[31m"], None),
    ] {
        let waiting: Vec<String> = waiting.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(approval("notes", &waiting).as_deref(), expected, "{waiting:?}");
    }
}

#[test]
fn the_way_back_to_a_socket_unit_is_told_once_for_each_unit() {
    let listener =
        |address: &str, unit: Option<&str>| json!({"address": address, "unused_socket_unit": unit});
    let status = json!({"service": "trunkline.service", "listeners": [
        listener("127.0.0.1:8080", Some("trunkline.socket")),
        listener("127.0.0.1:8081", None),
        listener("127.0.0.1:8082", Some("trunkline.socket")),
    ]});
    let all = problems(&Status::read(&status).unwrap(), None, NOW_S);
    let told: Vec<_> = all.iter().map(|problem| (&*problem.level, &*problem.subject)).collect();
    assert_eq!(told, [("warning", "listener 127.0.0.1:8080, 127.0.0.1:8082")]);
    let expected = "systemctl stop trunkline; systemctl reset-failed trunkline trunkline.socket; \
                    systemctl start trunkline.socket trunkline";
    assert_eq!(all[0].advice.as_deref(), Some(expected));
}

#[test]
fn counts_that_rise_are_told_with_how_much() {
    let status = json!({
        "limits": [{"name": "burst", "refused": 12}],
        "connections": {"refused": 1},
        "traces": {"dropped": 2, "failed": 0},
    });
    assert_eq!(
        found(&status),
        [
            "Warning limit burst: 5 calls refused in the last minute",
            "Warning connections: 1 connection refused in the last minute",
            "Warning traces: 2 spans dropped in the last minute",
        ]
    );
    let read = Status::read(&status).unwrap();
    assert!(problems(&read, None, NOW_S).is_empty(), "nothing is known of a minute ago");
}

#[test]
fn an_endpoint_fails_for_reasons_of_its_own() {
    let figures = json!({"calls": 8, "errors": 8, "reasons": {"timeout": 8}});
    let endpoint = |path: &str| {
        let mut endpoint = json!({"path": path, "healthy": true, "upstreams": ["a"]});
        endpoint.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
        endpoint
    };
    let status = |upstream: Value| json!({"endpoints": [endpoint("/mcp")], "upstreams": [upstream]});
    let well = status(json!({"name": "a", "healthy": true}));
    let all = problems(&Status::read(&well).unwrap(), Some(&before()), NOW_S);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].what, "100 % of its calls failed in the last minute");
    assert_eq!(all[0].reasons.as_deref(), Some("timeout 8 in the last minute"));
    let down = status(json!({"name": "a", "healthy": false}));
    assert_eq!(found(&down), ["Error upstream a: down; every call at /mcp fails"]);
}

#[test]
fn what_is_well_or_unknown_is_no_trouble() {
    for status in [
        json!({}),
        json!({"endpoints": [{}], "upstreams": [{"replicas": [{}]}], "certificates": [{"file": "c"}]}),
        json!({
            "upstreams": [
                {"name": "a", "calls": 2, "errors": 2},
                {"name": "b", "calls": 100, "errors": 4},
                {"name": "new", "calls": 100, "errors": 100},
            ],
            "limits": [{"name": "burst", "refused": 7}, {"name": "new", "refused": 7}],
        }),
        json!({"certificates": [{"file": "c", "expires_s": NOW_S + 86_400 * 60}], "connections": {"max": 0}}),
    ] {
        assert_eq!(found(&status), [""; 0], "{status}");
    }
}

#[test]
fn what_has_one_cause_is_said_once() {
    let down = |name: &str| json!({"name": name, "healthy": false, "replicas": [{"breaker": "open"}]});
    let status = json!({
        "endpoints": [
            {"path": "/all", "healthy": true, "upstreams": ["a", "b", "c"]},
            {"path": "/lost", "healthy": false, "upstreams": ["a", "b"]},
        ],
        "upstreams": [down("a"), down("b"), {"name": "c", "healthy": true}],
    });
    let expected = "Error upstreams a, b: down: its circuit breaker is open; every call at /lost fails";
    assert_eq!(found(&status), [expected]);
}

#[test]
fn what_is_off_is_told_where_nothing_else_is_on() {
    let off = json!({"name": "a", "enabled": false});
    let status =
        |more: Value| json!({"endpoints": [{"path": "/mcp", "upstreams": ["a"]}], "upstreams": more});
    let expected = "Warning endpoint /mcp: none of its upstreams is switched on: its lists are empty";
    assert_eq!(found(&status(json!([off]))), [expected]);
    assert_eq!(
        found(&status(json!([]))),
        ["Warning gateway: no upstream is configured: all lists are empty"]
    );
}

#[test]
fn the_worst_is_first() {
    let status = json!({"panics": 1, "endpoints": [{"path": "/", "healthy": false}]});
    assert!(found(&status)[0].starts_with("Error"));
    let all = problems(&Status::read(&status).unwrap(), None, NOW_S);
    assert_eq!(summary(&all).as_deref(), Some("1 problem, 1 warning"));
    assert_eq!(summary(&[]), None);
}

/// A program that ended like this, in a crash loop or not yet.
fn ended(name: &str, cause: &str, why: &str, crashes: u64) -> Value {
    let fault =
        json!({"kind": "process", "cause": cause, "why": why, "stands": true, "since_s": NOW_S - crashes});
    let children = json!({"crash_loop": crashes >= 3, "crashes": crashes});
    json!({"name": name, "transport": "stdio", "children": children, "fault": fault, "last_lines": [why]})
}

#[test]
fn programs_of_one_kind_of_end_are_one_problem_whatever_they_said() {
    let exited = "the process ended with an exit status";
    let exit = |at: u64| {
        let why = format!("its process ended, exit status: {}: no key {at}", at % 250);
        ended(&format!("server-{at:03}"), exited, &why, 3 + at)
    };
    let signalled = |at: u64| {
        let why = format!("its process ended, signal: 9 (SIGKILL): line {at}");
        ended(&format!("killed-{at}"), "the process ended by a signal", &why, 3 + at)
    };
    let never = |name: &str| {
        let why = "its process ended, it has not answered anything within start_timeout";
        ended(name, "the process has not answered within start_timeout", why, 3)
    };
    let late = |name: &str, since_s: u64| json!({"name": name, "start": {"phase": "running", "since_s": NOW_S - since_s, "timeout_s": 60}});
    let missing = |name: &str| {
        let why = format!("its process cannot be started: there is no program `/opt/{name}`");
        ended(name, "the process cannot be started", &why, 0)
    };
    let mut upstreams: Vec<Value> = (0..300).map(exit).collect();
    upstreams.extend([signalled(1), signalled(2), never("mute"), never("deaf")]);
    upstreams.extend([late("slow", 100), late("slower", 700), missing("one"), missing("other")]);
    // In no loop yet.
    upstreams.push(ended("new", exited, "its process ended, exit status: 1: no database", 1));
    let status = json!({ "upstreams": upstreams });
    let is_looping = "down: its child process is in a crash loop";
    let expected = [
        format!(
            "Error upstreams server-000, server-001 and 298 more: {is_looping}: {exited}; \
             the last error of server-000: its process ended, exit status: 0: no key 0"
        ),
        format!(
            "Error upstreams killed-1, killed-2: {is_looping}: the process ended by a signal; \
             the last error of killed-1: its process ended, signal: 9 (SIGKILL): line 1"
        ),
        format!(
            "Error upstreams mute, deaf: {is_looping}, 3 crashes so far: its process ended, it has not answered anything \
             within start_timeout; its last lines: its process ended, it has not answered anything within start_timeout"
        ),
        "Error upstreams slow, slower: down: has not started".to_owned(),
        "Error upstreams one, other: down: the process cannot be started; \
         the last error of one: its process cannot be started: there is no program `/opt/one`"
            .to_owned(),
        "Error upstream new: down: its process ended, exit status: 1: no database; \
         its last lines: its process ended, exit status: 1: no database"
            .to_owned(),
    ];
    assert_eq!(found(&status), expected);
    let all = problems(&Status::read(&status).unwrap(), None, NOW_S);
    assert_eq!((all[0].names.len(), all[0].since_s), (300, Some(NOW_S - 302)), "since the first of them");
}

#[test]
fn servers_of_one_cause_are_one_problem_whatever_they_said() {
    let fault = |kind: &str, cause: &str, why: &str| json!({"kind": kind, "cause": cause, "why": why, "stands": true, "since_s": 7});
    let with = |name: &str, breaker: &str, fault: Value| json!({"name": name, "asked": true, "replicas": [{"address": format!("{name}:1"), "breaker": breaker, "fault": fault}]});
    let moved = |name: &str| {
        let mut told = fault("redirect", "HTTP 307", &format!("HTTP 307 to https://{name}/mcp/"));
        told["http_status"] = 307.into();
        with(name, "closed", told)
    };
    let refused = |name: &str| {
        let why = format!("initialize: no database {name} (-32603)");
        json!({"name": name, "asked": true, "fault": fault("error", "initialize: error", &why)})
    };
    let slow = |name: &str, seconds: u64| {
        with(name, "open", fault("timeout", "timed out", &format!("timed out after {seconds} s")))
    };
    let unlisted = |name: &str| {
        let mut told = fault("error", "tools/list: error", &format!("tools/list: {name} is tired (-32603)"));
        told["list"] = "tools/list".into();
        json!({"name": name, "list_fault": told})
    };
    let half = |name: &str, seconds: u64| {
        let mut told = slow(name, seconds);
        told["replicas"].as_array_mut().unwrap().push(json!({"address": "well:1", "breaker": "closed"}));
        told
    };
    let status = json!({"upstreams": [
        moved("a"), refused("c"), slow("e", 5), unlisted("g"), half("i", 5),
        moved("b"), refused("d"), slow("f", 7), unlisted("h"), half("j", 7),
    ]});
    assert_eq!(
        found(&status),
        [
            "Error upstreams a, b: is no MCP server: HTTP 307; the last error of a: HTTP 307 to https://a/mcp/",
            "Error upstreams c, d: failing: initialize: error; the last error of c: initialize: no database c (-32603)",
            "Error upstreams e, f: down: timed out; the last error of e: timed out after 5 s",
            "Error upstreams g, h: cannot be listed: tools/list: error; the last error of g: tools/list: g is tired (-32603)",
            "Warning upstreams i, j: failing: some replicas down: timed out; the last error of i: timed out after 5 s",
        ]
    );
}

#[test]
fn programs_that_end_at_the_same_question_are_one_problem() {
    let exited = "the process ended with an exit status";
    let at_listen = |name: &str, said: &str| {
        let mut told = ended(name, exited, &format!("its process ended, exit status: 3: {said}"), 9);
        told["children"]["ends_at"] = "subscriptions/listen".into();
        told
    };
    let at_list = |name: &str, method: &str, said: &str, crashes: u64| {
        let why = format!("its process ended, exit status: 3: {said}");
        let mut told = ended(name, exited, &why, crashes);
        told["list_fault"] =
            json!({"kind": "closed", "cause": exited, "why": why, "stands": true, "list": method});
        told
    };
    let status = json!({"upstreams": [
        at_listen("a", "x"), at_listen("b", "y"),
        at_list("c", "tools/list", "x", 3), at_list("d", "tools/list", "y", 7), at_list("e", "tools/list", "z", 1),
        at_list("f", "prompts/list", "x", 3),
    ]});
    let looping = "its child process is in a crash loop";
    assert_eq!(
        found(&status),
        [
            format!(
                "Error upstreams c, d: cannot be listed: tools/list: {exited}; {looping}; \
                 the last error of c: its process ended, exit status: 3: x"
            ),
            "Error upstream e: cannot be listed: tools/list: its process ended, exit status: 3: z".to_owned(),
            format!(
                "Warning upstreams a, b: failing: subscriptions/listen: {exited}; {looping}; \
                 the last error of a: its process ended, exit status: 3: x"
            ),
            format!(
                "Warning upstream f: cannot be listed: prompts/list: its process ended, exit status: 3: x; {looping}, \
                 3 crashes so far"
            ),
        ]
    );
}

#[test]
fn the_log_is_looked_at_where_it_goes_and_systemd_is_asked_where_it_is() {
    let told = |more: Value| {
        let mut status = json!({
            "panics": 1,
            "config": {"last_reload": {"at_s": NOW_S, "ok": true, "needs_restart": ["workers"]}},
        });
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let all = problems(&Status::read(&status).unwrap(), None, NOW_S);
        let advice = |subject: &str| all.iter().find(|one| one.subject == subject)?.advice.clone();
        (advice("gateway"), advice("configuration"))
    };
    let text = "'panicked|this is a bug|which is a bug'";
    let restart = |unit: &str| Some(format!("systemctl restart {unit}"));
    for (status, log, start) in [
        (
            json!({"service": "gate@a.service", "log": {"place": "journal"}}),
            Some(format!("journalctl --unit gate@a --since -1h --grep {text}")),
            restart("gate@a"),
        ),
        (
            json!({"service": "trunkline.service", "log": {"place": "file", "file": "/var/log/my gate.log"}}),
            Some(format!("grep -E {text} '/var/log/my gate.log'")),
            restart("trunkline"),
        ),
        (
            json!({"log": {"place": "file", "file": "gate.log"}}),
            Some(format!("grep -E {text} gate.log")),
            None,
        ),
        (json!({"log": {"place": "journal"}}), None, None),
        (json!({"log": {"place": "terminal"}}), None, None),
        (json!({"service": "gate.service", "log": {"place": "other"}}), None, restart("gate")),
        // As an older gateway tells it.
        (json!({}), None, None),
    ] {
        assert_eq!(told(status.clone()), (log, start), "{status}");
    }
}
