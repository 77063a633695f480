//! The sessions in which the gateway asks legacy upstreams for lists: few, whatever clients declare, and charged to those
//! who make it open them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use crate::harness::{
    Child, Config, Connection, Daemon, LEGACY_VERSION, Legacy, META, Offer, Received, Reply, Request,
    Response, Upstream, api_key, body, eventually, in_session, legacy, modern, open_session,
    open_session_with, post, with_key,
};

/// What clients may declare: all of it is in the specification, and no two are the same.
const DECLARED: [&str; 12] = [
    r#"{"roots":{}}"#,
    r#"{"sampling":{"context":{},"tools":{}}}"#,
    r#"{"sampling":{}}"#,
    r#"{"sampling":{"tools":{}}}"#,
    r#"{"sampling":{"context":{}}}"#,
    r#"{"elicitation":{}}"#,
    r#"{"elicitation":{"form":{}}}"#,
    r#"{"elicitation":{"url":{}}}"#,
    r#"{"elicitation":{"form":{},"url":{}}}"#,
    r#"{"roots":{},"sampling":{}}"#,
    r#"{"roots":{},"elicitation":{}}"#,
    r#"{"sampling":{},"elicitation":{}}"#,
];

const UI: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
const OTHER: &str = r#"{"roots":{},"sampling":{},"elicitation":{}}"#;

fn server() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]))
}

/// One upstream called `up` that speaks the legacy era only.
fn over(upstream: &Upstream, lines: &str) -> Config {
    Config::new().upstream("up", upstream.address, &format!("eras = [\"legacy\"]\n{lines}")).admin()
}

/// A list that a modern client asks for which declares this.
fn list_with(capabilities: &str) -> Request {
    let declares = r#""io.modelcontextprotocol/clientCapabilities":"#;
    let meta = META.replace(&format!("{declares}{{}}"), &format!("{declares}{capabilities}"));
    modern("tools/list", None, body("1", "tools/list", &format!(r#"{{"_meta":{meta}}}"#)))
}

/// What was declared in the gateway's own sessions, in the order in which they were opened.
fn declared(upstream: &Upstream) -> Vec<String> {
    let offers = upstream.received_of("initialize").into_iter();
    let own = offers.filter(|offer| offer.json()["params"]["clientInfo"]["name"] == "trunkline");
    own.map(|offer| offer.json()["params"]["capabilities"].to_string()).collect()
}

/// The sessions of the gateway's own that declare something.
fn declaring(upstream: &Upstream) -> usize {
    declared(upstream).iter().filter(|declared| *declared != "{}").count()
}

/// How many seconds have begun since then.
fn begun_seconds(started: Instant) -> usize {
    usize::try_from(started.elapsed().as_secs()).expect("a short test") + 1
}

#[track_caller]
fn assert_listed(response: &Response) {
    assert!(response.text().contains(r#""name":"echo""#), "{}", response.text());
}

#[test]
fn what_no_specification_knows_opens_no_session() {
    let upstream = server().start();
    // Its health is asked about in a session as well, which declares nothing.
    let daemon = Daemon::start(&over(&upstream, "health = { interval = \"0s\" }"));
    for known in ["{}", r#"{"sampling":{}}"#, UI] {
        assert_listed(&daemon.send(&list_with(known)));
    }
    let before = declared(&upstream);
    assert!(before.contains(&UI.to_owned()), "{before:?}");
    let ui = r#"{"mimeTypes":["text/html;profile=mcp-app","text/x-NUMBER"],"NUMBER":1}"#;
    for number in 0..5 {
        for declared in [
            r#"{"NUMBER":{}}"#,
            r#"{"experimental":{"NUMBER":{}}}"#,
            r#"{"extensions":{"com.example/NUMBER":{}}}"#,
            r#"{"sampling":{"NUMBER":1}}"#,
            r#"{ "sampling":{"x":["NUMBER"]} }"#,
            &format!(r#"{{"extensions":{{"io.modelcontextprotocol/ui":{ui}}}}}"#),
        ] {
            let declared = declared.replace("NUMBER", &format!("n{number}"));
            assert_listed(&daemon.send(&list_with(&declared)));
            let session = open_session_with(daemon.address(), LEGACY_VERSION, &declared);
            assert_listed(&daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))));
        }
    }
    assert_eq!(declared(&upstream), before);
}

#[test]
fn few_sessions_are_open_for_lists() {
    let legacy_server = server();
    let upstream = legacy_server.start();
    // The session of its health would be one of those that are open.
    let lines = "list_sessions_max = 3\nlist_timeout = \"60s\"\nhealth = { interval = \"0s\" }";
    let daemon = Daemon::start(&over(&upstream, lines));
    assert_listed(&daemon.send(&list_with("{}")));
    let before = legacy_server.open_sessions().len();
    let mut asked: Vec<Connection> = Vec::new();
    for declared in DECLARED {
        let mut connection = daemon.connect();
        connection.write(&list_with(declared).bytes());
        asked.push(connection);
    }
    for connection in &mut asked {
        assert_listed(&connection.response());
    }
    // Each list was asked with what its client declared, whatever room had to be made for it.
    let opened = declared(&upstream);
    for declared in DECLARED {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert!(opened.iter().any(|opened| json(opened) == json(declared)), "{declared} of {opened:?}");
    }
    eventually("what made room is closed", || {
        (legacy_server.open_sessions().len() <= before + 3).then_some(())
    });
    assert!(daemon.find_metric_of_up("trunkline_list_sessions_closed_total").expect("a counter") >= 9);
    assert_eq!(daemon.find_metric_of_up("trunkline_list_sessions_refused_total"), Some(0));
    // The session used last is still the one that serves.
    let opened = declaring(&upstream);
    let last = declared(&upstream).pop().expect("a session");
    assert_listed(&daemon.send(&list_with(&last)));
    assert_eq!(declaring(&upstream), opened);
}

#[test]
fn a_burst_of_one_client_opens_sessions_only_so_fast() {
    let upstream = server().start();
    let daemon = Daemon::start(&over(&upstream, "list_sessions_max = 2\nlist_timeout = \"2s\""));
    assert_listed(&daemon.send(&list_with("{}")));
    let started = Instant::now();
    let mut asked: Vec<Connection> = Vec::new();
    for _ in 0..10 {
        for declared in DECLARED {
            let mut connection = daemon.connect();
            connection.write(&list_with(declared).bytes());
            asked.push(connection);
        }
    }
    let refused = asked.iter_mut().map(Connection::response).filter(|response| {
        // One that finds room late may be late itself.
        if ![200, 504].contains(&response.status) {
            response.assert_error(503, 503, Some("1"));
            assert_eq!(response.header("retry-after"), Some("1"));
        }
        response.status != 200
    });
    let refused = refused.count();
    let seconds = begun_seconds(started);
    let opened = declaring(&upstream);
    assert!(opened <= 2 * seconds, "{opened} were opened in {seconds} s, {refused} lists were refused");
}

#[test]
fn who_lists_is_charged_for_the_sessions() {
    let upstream = server().start();
    for (bound, max, retry_after) in
        [("initialize_rate_max = 3", 3, "1"), ("upstream_sessions_per_principal_max = 5", 5, "30")]
    {
        let config = over(&upstream, "list_sessions_max = 100")
            .section(&api_key("one", "key-of-one"))
            .section(&api_key("two", "key-of-two"));
        let daemon = Daemon::start(&config.section(&format!("[session]\n{bound}")));
        assert_listed(&daemon.send(&with_key(list_with("{}"), "key-of-two")));
        let (before, started) = (declaring(&upstream), Instant::now());
        let mut asked: Vec<Connection> = DECLARED.iter().map(|_| daemon.connect()).collect();
        for (connection, declared) in asked.iter_mut().zip(DECLARED) {
            connection.write(&with_key(list_with(declared), "key-of-one").bytes());
        }
        let answers: Vec<Response> = asked.iter_mut().map(Connection::response).collect();
        let refused: Vec<&Response> = answers.iter().filter(|answer| answer.status != 200).collect();
        for answer in &refused {
            answer.assert_error(429, 429, Some("1"));
            assert_eq!(answer.header("retry-after"), Some(retry_after), "{bound}");
        }
        let seconds = if max == 3 { begun_seconds(started) } else { 1 };
        let opened = declaring(&upstream) - before;
        assert!(opened <= max * seconds, "{bound}: {opened} in {seconds} s");
        assert_eq!(opened, DECLARED.len() - refused.len(), "{bound}");
        // It is nobody else's fault.
        let listed =
            daemon.send(&with_key(list_with(r#"{"roots":{},"sampling":{"tools":{}}}"#), "key-of-two"));
        assert_listed(&listed);
        // Nor do lists cost anything whose sessions are open.
        let open = answers.iter().position(|answer| answer.status == 200).expect("one was answered");
        for _ in 0..20 {
            assert_listed(&daemon.send(&with_key(list_with(DECLARED[open]), "key-of-one")));
        }
    }
}

#[test]
fn nobody_is_pushed_out_by_one_who_has_more() {
    let upstream = server().start();
    let lines = "list_sessions_max = 3\nlist_timeout = \"60s\"";
    let daemon = Daemon::start(
        &over(&upstream, lines).section(&api_key("one", "key-of-one")).section(&api_key("two", "key-of-two")),
    );
    for declared in &DECLARED[..3] {
        assert_listed(&daemon.send(&with_key(list_with(declared), "key-of-one")));
    }
    // One who has none gets room at once, and keeps it.
    let opened = declaring(&upstream);
    assert_listed(&daemon.send(&with_key(list_with(OTHER), "key-of-two")));
    assert_eq!(declaring(&upstream), opened + 1);
    for declared in &DECLARED[3..8] {
        assert_listed(&daemon.send(&with_key(list_with(declared), "key-of-one")));
    }
    let opened = declared(&upstream).iter().filter(|declared| *declared == OTHER).count();
    assert_listed(&daemon.send(&with_key(list_with(OTHER), "key-of-two")));
    assert_eq!(declared(&upstream).iter().filter(|declared| *declared == OTHER).count(), opened);
}

#[test]
fn a_change_concerns_lists_whose_sessions_are_closed() {
    let version = Arc::new(AtomicUsize::new(0));
    let legacy_server = server().with_streams();
    let (answering, current) = (legacy_server.clone(), Arc::clone(&version));
    let upstream = Upstream::start(move |request: &Received| match request.method().as_str() {
        "tools/list" => {
            let version = current.load(Ordering::SeqCst);
            let tools = format!(r#"{{"tools":[{{"name":"t{version}","inputSchema":{{"type":"object"}}}}]}}"#);
            Reply::result(request, &tools)
        }
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&over(&upstream, "list_sessions_max = 1\nlist_timeout = \"60s\""));
    // Somebody listens, so that lists are kept.
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(&session, get).bytes());
    assert_eq!(stream.head().status, 200);
    let own = legacy_server.own_stream(1);
    let fetches = || upstream.received_of("tools/list").len();
    let first = list_with(DECLARED[0]);
    eventually("the list is kept", || {
        let before = fetches();
        assert!(daemon.send(&first).text().contains("t0"));
        (fetches() == before).then_some(())
    });
    // Its session makes room.
    assert!(daemon.send(&list_with(DECLARED[1])).text().contains("t0"));
    let before = fetches();
    assert!(daemon.send(&first).text().contains("t0"));
    assert_eq!(fetches(), before, "what was listed is kept, whatever became of the session");
    version.store(1, Ordering::SeqCst);
    own.event(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    eventually("the change is heard of", || daemon.send(&first).text().contains("t1").then_some(()));
}

#[test]
fn lists_leave_room_for_the_processes_of_sessions() {
    let child = Child::new(&[]);
    let keys = child.keys("eras = [\"legacy\"]\nchildren_max = 8\nlist_timeout = \"60s\"");
    let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
    for declared in &DECLARED[..6] {
        assert_listed(&daemon.send(&list_with(declared)));
    }
    let running = || daemon.find_metric_of_up("trunkline_children").expect("a gauge");
    // Two for lists, one for those of clients that declare nothing, and some that are about to end.
    eventually("few processes run", || (running() <= 4).then_some(()));
    for _ in 0..4 {
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let call = legacy("1", "tools/call", r#"{"name":"echo","arguments":{"text":"here"}}"#);
        let response = daemon.send(&in_session(&session, call));
        assert!(response.text().contains("here"), "{}", response.text());
    }
}

#[test]
fn a_session_that_a_slow_server_opened_is_closed() {
    let list = "health = { interval = \"0s\" }\nlist_timeout = \"300ms\"";
    let health = "health = { interval = \"10ms\", timeout = \"300ms\" }";
    for (lines, lists) in [(list, true), (health, false)] {
        let legacy_server = server();
        let answering = legacy_server.clone();
        let upstream = Upstream::start(move |request: &Received| match request.method().as_str() {
            "notifications/initialized" => Reply::silence(),
            _ => answering.answer(request),
        });
        let daemon = Daemon::start(&over(&upstream, lines));
        let opened = eventually("sessions are opened", || {
            if lists {
                daemon.send(&list_with("{}"));
            }
            Some(legacy_server.open_sessions()).filter(|open| !open.is_empty())
        });
        eventually("they are closed", || {
            let open = legacy_server.open_sessions();
            (!opened.iter().any(|session| open.contains(session))).then_some(())
        });
    }
}

#[test]
fn the_sessions_for_lists_of_an_upstream_that_a_reload_removes_are_closed() {
    let legacy_server = server();
    let opening = Arc::new(Barrier::new(2));
    let (answering, may_open) = (legacy_server.clone(), Arc::clone(&opening));
    let declares_roots = |offer: &Received| offer.json()["params"]["capabilities"]["roots"].is_object();
    let upstream = Upstream::start(move |request: &Received| {
        if request.method() == "initialize" && declares_roots(request) {
            may_open.wait();
        }
        answering.answer(request)
    });
    let other = server().start();
    let lines = "health = { interval = \"0s\" }\nlist_timeout = \"60s\"";
    let daemon = Daemon::start(&over(&upstream, lines));
    for declared in ["{}", r#"{"sampling":{}}"#] {
        assert_listed(&daemon.send(&list_with(declared)));
    }
    assert!(legacy_server.open_sessions().len() >= 2);
    // One is opened while the reload takes place.
    let mut late = daemon.connect();
    late.write(&list_with(r#"{"roots":{}}"#).bytes());
    let is_asked = || upstream.received_of("initialize").iter().any(declares_roots);
    eventually("it is asked for another", || is_asked().then_some(()));
    daemon.reload(&over(&other, lines));
    eventually("they are closed", || legacy_server.open_sessions().is_empty().then_some(()));
    let opened = legacy_server.sessions_opened();
    opening.wait();
    eventually("it opens one more", || (legacy_server.sessions_opened() > opened).then_some(()));
    eventually("that is closed, too", || legacy_server.open_sessions().is_empty().then_some(()));
    assert_listed(&daemon.send(&list_with("{}")));
}
