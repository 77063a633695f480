//! Upstreams that fail or hang for long: their clients are answered at once, and nobody else is any the worse for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    Config, Daemon, Offer, Received, Reply, Response, Upstream, call, eventually, list, read_resource,
    refusing_address, unresponsive_address,
};

const QUICK: &str =
    "connect_timeout = \"300ms\"\nresponse_timeout = \"300ms\"\nstream_idle_timeout = \"300ms\"\n";
/// No replica is asked, so that calls alone tell what is fit.
const UNASKED: &str = "health = { interval = \"0s\" }\n";

fn config(address: SocketAddr, lines: &str) -> Config {
    Config::new().upstream("up", address, &format!("{QUICK}{lines}")).admin().top("workers = 1")
}

#[track_caller]
fn assert_out_of_order(response: &Response) {
    let error = response.assert_error(503, 503, Some("1"));
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("unhealthy") && message.contains("not executed"), "{message}");
    let after: u64 = response.header("retry-after").expect("a Retry-After").parse().expect("seconds");
    assert!((1..=60).contains(&after), "{after}");
}

/// Calls until one is refused without being sent; gives the statuses before.
fn until_open(daemon: &Daemon) -> Vec<u16> {
    let mut statuses = Vec::new();
    loop {
        let response = daemon.send(&call("1", "echo"));
        if response.status == 503 {
            assert_out_of_order(&response);
            return statuses;
        }
        statuses.push(response.status);
        assert!(statuses.len() < 20, "{statuses:?}");
    }
}

#[test]
fn after_failures_in_a_row_calls_fail_at_once() {
    let (refusing, _socket) = refusing_address();
    let (unresponsive, _sockets) = unresponsive_address();
    let silent = Upstream::calling(|_| Reply::silence());
    let resets = Upstream::calling(|_| Reply::default().reset());
    let garbage = Upstream::calling(|_| Reply::raw("SSH-2.0-OpenSSH_9.9\r\n\r\n"));
    let failing = Upstream::calling(|_| Reply::http("500 Oh", "Content-Type: text/html\r\n", "<html>"));
    let proxy = Upstream::calling(|_| Reply::json("502 Bad Gateway", r#"{"detail":"no"}"#));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"json";
    let half = Upstream::calling(move |_| Reply::raw(head).reset());
    for (what, address, expected) in [
        ("refused", refusing, [502; 4]),
        ("no connection in time", unresponsive, [502; 4]),
        ("no answer in time", silent.address, [504; 4]),
        ("reset", resets.address, [502; 4]),
        ("garbage", garbage.address, [502; 4]),
        ("500", failing.address, [502; 4]),
        ("502 with JSON", proxy.address, [502; 4]),
    ] {
        println!("{what}");
        let lines = format!("{UNASKED}breaker = {{ failures_max = 4, open_time = \"1m\" }}");
        let daemon = Daemon::start(&config(address, &lines));
        let statuses = until_open(&daemon);
        assert!(
            statuses == expected || statuses.iter().all(|status| matches!(status, 502 | 504)),
            "{statuses:?}"
        );
        assert_eq!(statuses.len(), 4);
        let started = Instant::now();
        for _ in 0..20 {
            assert_out_of_order(&daemon.send(&call("1", "echo")));
        }
        assert!(started.elapsed() < Duration::from_secs(2), "{what}: {:?}", started.elapsed());
    }
    let lines = format!("{UNASKED}breaker = {{ failures_max = 4, open_time = \"1m\" }}");
    let daemon = Daemon::start(&config(half.address, &lines));
    eventually("half a body counts, too", || {
        let mut connection = daemon.connect();
        connection.write(&call("1", "echo").bytes());
        connection.try_response().is_ok_and(|response| response.status == 503).then_some(())
    });
    assert_eq!(half.received_of("tools/call").len(), 4);
}

#[test]
fn what_is_an_answer_is_no_failure() {
    let busy =
        |line: &'static str| Upstream::calling(move |_| Reply::http(line, "Retry-After: 7\r\n", "busy"));
    let error = |status: &'static str| {
        Upstream::calling(move |request| Reply::error(request, status, -32000, "the tool failed"))
    };
    let upstreams = [
        busy("429 Too Many Requests"),
        busy("503 Service Unavailable"),
        busy("404 Not Found"),
        busy("401 Unauthorized"),
        error("200 OK"),
        error("400 Bad Request"),
        error("500 Internal Server Error"),
    ];
    for upstream in &upstreams {
        let daemon = Daemon::start(&config(upstream.address, "breaker = { failures_max = 1 }"));
        let first = daemon.send(&call("1", "echo")).status;
        for _ in 0..5 {
            assert_eq!(daemon.send(&call("1", "echo")).status, first);
        }
        assert_eq!(upstream.received_of("tools/call").len(), 6);
    }
}

#[test]
fn one_call_at_a_time_tries_a_server_that_is_not_asked() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let upstream = Upstream::calling(move |request| {
        if well.load(Ordering::SeqCst) {
            Reply::result(request, r#"{"resultType":"complete"}"#)
        } else {
            Reply::silence()
        }
    });
    let lines = format!(
        "{UNASKED}breaker = {{ failures_max = 2, open_time = \"100ms\", open_time_max = \"100ms\" }}"
    );
    let daemon = Daemon::start(&config(upstream.address, &lines));
    assert_eq!(until_open(&daemon), [504, 504]);
    let before = upstream.received_of("tools/call").len();
    eventually("it is tried", || (daemon.send(&call("1", "echo")).status == 504).then_some(()));
    assert_eq!(upstream.received_of("tools/call").len(), before + 1);
    is_well.store(true, Ordering::SeqCst);
    eventually("it is in order", || (daemon.send(&call("1", "echo")).status == 200).then_some(()));
    for _ in 0..10 {
        daemon.send(&call("1", "echo")).assert_ok();
    }
}

#[test]
fn a_server_that_is_asked_is_tried_by_no_client_before_it_answers() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let offer = Offer::tools(&["echo"]);
    let upstream = Upstream::start(move |request| {
        if well.load(Ordering::SeqCst) { offer.answer(request) } else { Reply::default().reset() }
    });
    let lines = "health = { interval = \"100ms\", timeout = \"300ms\" }\nbreaker = { failures_max = 2, open_time = \"50ms\", open_time_max = \"100ms\" }";
    let daemon = Daemon::start(&config(upstream.address, lines));
    eventually("health checks find it unhealthy, whoever calls or not", || {
        let text = daemon.get_admin("/metrics").text();
        text.contains(r#"state="open",upstream="up"} 1"#).then_some(())
    });
    for _ in 0..20 {
        assert_out_of_order(&daemon.send(&call("1", "echo")));
    }
    assert_eq!(upstream.received_of("tools/call").len(), 0);
    is_well.store(true, Ordering::SeqCst);
    eventually("it is in order", || (daemon.send(&call("1", "echo")).status == 200).then_some(()));
}

/// Questions are about the server, and a server whose calls hang may answer them.
#[test]
fn answered_questions_do_not_send_all_calls_to_a_server_whose_calls_hang() {
    let upstream = Upstream::calling(|_| Reply::silence());
    let lines = "health = { interval = \"50ms\" }\nbreaker = { failures_max = 2, open_time = \"50ms\", open_time_max = \"50ms\" }";
    let daemon = Daemon::start(&config(upstream.address, lines));
    until_open(&daemon);
    let before = upstream.received_of("tools/call").len();
    let (ended, at_once) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while started.elapsed() < Duration::from_secs(2) {
                    match daemon.send(&call("1", "echo")).status {
                        503 => at_once.fetch_add(1, Ordering::SeqCst),
                        504 => ended.fetch_add(1, Ordering::SeqCst),
                        status => panic!("{status}"),
                    };
                }
            });
        }
    });
    let tried = upstream.received_of("tools/call").len() - before;
    assert!(tried <= 8, "one at a time, for 300 ms each: {tried}");
    assert!(at_once.load(Ordering::SeqCst) > 50, "{at_once:?} {ended:?}");
}

#[test]
fn lists_keep_their_deadline_and_come_from_the_last_good() {
    let is_well = Arc::new(AtomicBool::new(true));
    let well = Arc::clone(&is_well);
    let offer = Offer::tools(&["echo"]);
    let up = Upstream::start(move |request| {
        if !well.load(Ordering::SeqCst) {
            return Reply::silence();
        }
        match request.method().as_str() {
            "tools/list" => {
                let page = offer.result(request).unwrap().replace("60000", "0");
                Reply::result(request, &page)
            }
            _ => offer.answer(request),
        }
    });
    let other = Upstream::with_tools(&["forecast"]);
    let lines =
        format!("{QUICK}list_timeout = \"500ms\"\nhealth = {{ interval = \"100ms\", timeout = \"200ms\" }}");
    let config =
        Config::new().upstream("up", up.address, &lines).upstream("other", other.address, "").admin();
    let daemon = Daemon::start(&config);
    let tools = || {
        let started = Instant::now();
        let response = daemon.send(&list("1", "tools/list"));
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        response.json()["result"]["tools"].as_array().unwrap().len()
    };
    assert_eq!(tools(), 2);
    is_well.store(false, Ordering::SeqCst);
    eventually("its breaker opens", || {
        let text = daemon.get_admin("/metrics").text();
        text.lines().any(|line| line.contains(r#"state="open",upstream="up"} 1"#)).then_some(())
    });
    for _ in 0..5 {
        assert_eq!(tools(), 2);
    }
}

#[test]
fn lists_do_not_wait_for_a_server_that_is_out_of_order() {
    let is_well = Arc::new(AtomicBool::new(true));
    let well = Arc::clone(&is_well);
    let offer = Offer::tools(&["echo"]);
    let up = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::http("500 Internal Server Error", "", ""),
        _ if !well.load(Ordering::SeqCst) => Reply::silence(),
        "tools/list" => Reply::result(request, &offer.result(request).unwrap().replace("60000", "0")),
        _ => offer.answer(request),
    });
    let other = Upstream::with_tools(&["forecast"]);
    // Nobody asks it, so that lists are what it is tried with, again and again; each waits for `list_timeout`.
    let lines = "list_timeout = \"4s\"\nhealth = { interval = \"0s\" }\n\
                 breaker = { failures_max = 1, open_time = \"10ms\", open_time_max = \"10ms\" }";
    let config = Config::new().upstream("up", up.address, lines).upstream("other", other.address, "").admin();
    let daemon = Daemon::start(&config);
    let tools = || daemon.send(&list("1", "tools/list")).json()["result"]["tools"].as_array().unwrap().len();
    assert_eq!(tools(), 2);
    is_well.store(false, Ordering::SeqCst);
    daemon.send(&call("1", "up__echo")).assert_error(502, 502, Some("1"));
    let asked = up.received_of("tools/list").len();
    eventually("it is tried with a list", || {
        let started = Instant::now();
        assert_eq!(tools(), 2);
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        (up.received_of("tools/list").len() > asked).then_some(())
    });
    let started = Instant::now();
    assert_eq!(tools(), 2);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn one_that_hangs_takes_no_more_than_its_connections() {
    let hanging = Upstream::calling(|_| Reply::silence());
    let well = Upstream::with_tools(&["forecast"]);
    let lines = "response_timeout = \"8s\"\nconnections_max = 4\nhealth = { interval = \"0s\" }";
    let config = Config::new().upstream("up", hanging.address, lines).upstream("well", well.address, "");
    let daemon = Daemon::start(&config.top("workers = 1"));
    let mut waiting: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
    for connection in &mut waiting {
        connection.write(&call("1", "up__echo").bytes());
    }
    hanging.wait_for("tools/call", 4);
    let started = Instant::now();
    daemon.send(&call("2", "up__echo")).assert_error(503, 503, Some("2"));
    daemon.send(&call("3", "well__forecast")).assert_ok();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    waiting.clear();
    eventually("who left makes room", || {
        let mut connection = daemon.connect();
        connection.write(&call("4", "up__echo").bytes());
        (hanging.received_of("tools/call").len() > 4).then_some(())
    });
}

/// Every way to be sick at once, and clients of ten upstreams.
#[test]
fn the_clients_of_nine_do_not_notice_the_tenth() {
    let flapping = {
        let started = Instant::now();
        let offer = Offer::tools(&["echo"]);
        Upstream::start(move |request| {
            let is_well = (started.elapsed().as_millis() / 200).is_multiple_of(2);
            if is_well { offer.answer(request) } else { Reply::default().reset() }
        })
    };
    let silent = Upstream::calling(|_| Reply::silence());
    let dripping = Upstream::calling(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n";
        Reply::raw(head).then(Reply::drip("{\"jsonrpc\":\"2.0\",\"id\":1", Duration::from_millis(200)))
    });
    let (unresponsive, _sockets) = unresponsive_address();
    for (what, address) in [
        ("flapping", flapping.address),
        ("silent", silent.address),
        ("a byte now and then", dripping.address),
        ("no connection", unresponsive),
    ] {
        let well: Vec<Upstream> = (0..9).map(|_| Upstream::with_tools(&["forecast"])).collect();
        let mut config = Config::new().upstream("sick", address, QUICK);
        for (index, upstream) in well.iter().enumerate() {
            config = config.upstream(&format!("well{index}"), upstream.address, "");
        }
        let daemon = Daemon::start(&config.top("workers = 1"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        let mut connection = daemon.connect();
                        connection.write(&call("1", "sick__echo").bytes());
                        let _ = connection.try_response();
                    }
                });
            }
            for round in 0..5 {
                for index in 0..9 {
                    let started = Instant::now();
                    daemon.send(&call("2", &format!("well{index}__forecast"))).assert_ok();
                    let elapsed = started.elapsed();
                    assert!(elapsed < Duration::from_secs(2), "{what}, {round}: {elapsed:?}");
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn the_whole_of_a_stream_has_a_deadline() {
    let event =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let upstream = Upstream::calling(move |_| {
        let events = format!("data: {event}\n\n").repeat(1000);
        Reply::stream()
            .then(Reply::drip(format!("{:x}\r\n{events}\r\n", events.len()), Duration::from_millis(1)))
    });
    let daemon = Daemon::start(&config(upstream.address, "stream_duration_max = \"500ms\""));
    let started = Instant::now();
    let mut connection = daemon.connect();
    connection.write(&call("1", "echo").bytes());
    if let Ok(response) = connection.try_response() {
        assert!(response.text().contains(r#""error""#), "{}", response.text());
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_client_that_does_not_read_is_no_failure_of_the_server() {
    const LONG: usize = 64 << 20;
    // Made beforehand: what has to begin in time is the reply.
    let [short, long] = [0, LONG]
        .map(|bytes| format!(r#"{{"resultType":"complete","content":[],"x":"{}"}}"#, "x".repeat(bytes)));
    let upstream = Upstream::calling(move |request| {
        Reply::result(request, if request.client_id() == "\"long\"" { &long } else { &short })
    });
    let lines = format!("{UNASKED}response_timeout = \"1s\"\nbreaker = {{ failures_max = 1 }}\n");
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &lines).top("workers = 1"));
    let mut connection = daemon.connect();
    connection.write(&call("\"long\"", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    // Longer than its reply may take.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(connection.try_response().is_err(), "it is cut off");
    daemon.send(&call("2", "echo")).assert_ok();
}

/// Answers the first request of each connection and dies on the second.
fn dying(what: &'static str) -> Upstream {
    dying_with(what, Offer::tools(&["echo"]).with_resources(&["file:///a"]))
}

fn dying_with(what: &'static str, offer: Offer) -> Upstream {
    let on_connection: Vec<AtomicUsize> = (0..256).map(|_| AtomicUsize::new(0)).collect();
    Upstream::start(move |request| {
        let is_first = on_connection[request.connection].fetch_add(1, Ordering::SeqCst) == 0;
        match request.method().as_str() {
            method if method == what && !is_first => Reply::default().reset(),
            _ => offer.answer(request),
        }
    })
}

#[test]
fn what_is_sent_again_has_an_id_of_its_own() {
    let upstream = dying("resources/read");
    let daemon = Daemon::start(&config(upstream.address, UNASKED));
    daemon.send(&call("1", "echo")).assert_ok();
    let response = daemon.send(&read_resource("\"mine\"", "file:///a"));
    response.assert_ok();
    assert_eq!(response.json()["id"], "mine");
    let ids: Vec<String> = upstream.received_of("resources/read").iter().map(Received::id).collect();
    assert_eq!((ids.len(), ids[0].as_str()), (2, "\"mine\""));
    assert!(ids[1].starts_with("\"trunkline-"), "{ids:?}");
    assert_eq!(
        upstream
            .received_of("resources/read")
            .iter()
            .map(|read| read.json()["params"].clone())
            .collect::<Vec<_>>()[0],
        upstream.received_of("resources/read")[1].json()["params"]
    );
}

#[test]
fn the_operator_says_which_tools_are_called_again() {
    for (lines, status, count) in [("", 502, 2), ("retry = { tools = [\"echo\"] }", 200, 3)] {
        let upstream = dying("tools/call");
        let daemon = Daemon::start(&config(upstream.address, &format!("{UNASKED}{lines}")));
        daemon.send(&call("1", "echo")).assert_ok();
        assert_eq!(daemon.send(&call("2", "echo")).status, status, "{lines}");
        assert_eq!(upstream.received_of("tools/call").len(), count);
    }
}

#[test]
fn what_the_server_says_of_its_tools_counts_if_the_operator_believes_it() {
    let believed = "retry = { annotated_tools = true }";
    for (annotations, lines, is_called_again) in [
        (r#"{"readOnlyHint":true}"#, believed, true),
        (r#"{"idempotentHint":true}"#, believed, true),
        (r#"{"readOnlyHint":false,"openWorldHint":false}"#, believed, false),
        (r#"{"readOnlyHint":true}"#, "", false),
    ] {
        let mut offer = Offer::tools(&[]);
        offer.tools.push(format!(
            r#"{{"name":"echo","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#
        ));
        let upstream = dying_with("tools/call", offer);
        let daemon = Daemon::start(&config(upstream.address, &format!("{UNASKED}{lines}")));
        daemon.send(&list("1", "tools/list")).assert_ok();
        let statuses: Vec<u16> = (0..4).map(|_| daemon.send(&call("2", "echo")).status).collect();
        let all_are_answered = statuses.iter().all(|status| *status == 200);
        assert_eq!(all_are_answered, is_called_again, "{annotations} {lines}: {statuses:?}");
    }
}

#[test]
fn what_is_sent_again_is_bounded() {
    for (percent, expected) in [(0, 0..=0), (20, 20..=45)] {
        let upstream = dying("resources/read");
        let lines = format!("{UNASKED}retry = {{ budget_percent = {percent} }}");
        let daemon = Daemon::start(&config(upstream.address, &lines));
        let mut again = 0;
        for _ in 0..60 {
            daemon.send(&call("1", "echo"));
            let before = upstream.received_of("resources/read").len();
            daemon.send(&read_resource("2", "file:///a"));
            again += upstream.received_of("resources/read").len() - before - 1;
        }
        assert!(expected.contains(&again), "{percent} %: {again}");
    }
}
