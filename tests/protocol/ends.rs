//! How a stream of events ends: the answer is the last word, whatever becomes of the stream, and one without an answer is no
//! success.

use crate::harness::{
    Config, Connection, Daemon, Gate, Offer, Received, Reply, Upstream, api_key, call, eventually,
    read_resource, result_body,
};

const PROGRESS: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
const RESULT: &str = r#"{"resultType":"complete","content":[]}"#;

/// And whether the gateway looks at each event there.
const ENDPOINTS: [(&str, bool); 3] = [("transparent", false), ("unique ids", true), ("prefixed", true)];

type End = Box<dyn Fn(Reply) -> Reply + Send + Sync>;

fn start(endpoint: &str, upstream: &Upstream, weather: &Upstream) -> (Daemon, &'static str) {
    let config = match endpoint {
        "prefixed" => Config::prefixed(upstream, weather),
        "unique ids" => Config::new().upstream("files", upstream.address, "unique_ids = true"),
        _ => Config::new().upstream("files", upstream.address, ""),
    };
    let config =
        config.section("[upstream_defaults]\nstream_idle_timeout = \"300ms\"\nbreaker.failures_max = 0");
    (Daemon::start(&config.admin()), if endpoint == "prefixed" { "files__echo" } else { "echo" })
}

/// All events, and whether the stream ended as it should.
fn events(connection: &mut Connection) -> Vec<String> {
    let mut events = Vec::new();
    while let Ok(Some(event)) = connection.try_event() {
        events.push(event);
    }
    events
}

fn count(daemon: &Daemon, outcome: &str) -> usize {
    let metrics = daemon.get_admin("/metrics");
    let outcome = format!("outcome=\"{outcome}\"");
    let of_calls = |line: &&str| line.starts_with("trunkline_requests_total{") && line.contains(&outcome);
    metrics
        .text()
        .lines()
        .filter(of_calls)
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum()
}

#[test]
fn an_answer_is_the_last_word_whatever_becomes_of_its_stream() {
    let never = Gate::default();
    let ends: [(&str, End); 3] = [
        ("a reset", Box::new(Reply::reset)),
        ("no last chunk", Box::new(Reply::finish)),
        ("silence", Box::new(move |reply: Reply| reply.wait(&never))),
    ];
    for (end, break_off) in ends {
        let upstream = Upstream::calling(move |request: &Received| {
            break_off(Reply::stream().event(PROGRESS).event(&result_body(request, RESULT)))
        });
        let weather = Upstream::with_tools(&["forecast"]);
        for (endpoint, _) in ENDPOINTS {
            let (daemon, tool) = start(endpoint, &upstream, &weather);
            let mut connection = daemon.begin(&call("7", tool));
            connection.head();
            let events = events(&mut connection);
            assert_eq!(events.len(), 2, "{endpoint}, {end}: {events:?}");
            assert!(events[1].contains("\"result\""), "{endpoint}, {end}: {events:?}");
            let counted = (count(&daemon, "answered"), count(&daemon, "failed"));
            assert_eq!(counted, (1, 0), "{endpoint}, {end}");
        }
    }
}

#[test]
fn an_answer_that_cannot_be_handed_on_is_no_answer() {
    let upstream = Upstream::calling(|request: &Received| {
        let whole = result_body(request, r#"{"content":[{"type":"resource_link","name":"a","uri":"a:1"}]}"#);
        Reply::stream().event(whole.trim_end_matches(['}', ']'])).end()
    });
    let weather = Upstream::with_tools(&["forecast"]);
    let (daemon, tool) = start("prefixed", &upstream, &weather);
    let mut connection = daemon.begin(&call("7", tool));
    connection.head();
    let events = events(&mut connection);
    assert!(events.last().is_some_and(|last| last.contains("\"error\"")), "{events:?}");
    assert_eq!((count(&daemon, "answered"), count(&daemon, "failed")), (0, 1));
}

/// Its names are looked at, but its id is the client's own.
#[test]
fn the_answer_of_a_resource_is_the_last_word_too() {
    let upstream = Upstream::start(|request| match request.method().as_str() {
        "resources/read" => Reply::stream().event(&result_body(request, RESULT)).reset(),
        _ => Offer::tools(&["echo"]).with_resources(&["a:1"]).answer(request),
    });
    let config = Config::new().upstream("up", upstream.address, "").section(&api_key("ci", "secret"));
    let daemon = Daemon::start(&config.admin());
    let mut connection = daemon.begin(&read_resource("7", "a:1").with("Authorization", "Bearer secret"));
    connection.head();
    let events = events(&mut connection);
    assert!(events.len() == 1 && events[0].contains("\"result\""), "{events:?}");
}

/// Without its blank line, an event is none: clients drop it.
#[test]
fn an_answer_without_its_blank_line_is_no_clean_end() {
    let upstream = Upstream::calling(|request: &Received| {
        Reply::stream().chunk(&format!("data: {}\n", result_body(request, RESULT))).finish()
    });
    let weather = Upstream::with_tools(&["forecast"]);
    let (daemon, tool) = start("transparent", &upstream, &weather);
    let mut connection = daemon.begin(&call("7", tool));
    connection.head();
    assert!(connection.rest().is_err(), "it ends as if all were said");
    assert_eq!((count(&daemon, "answered"), count(&daemon, "failed")), (0, 1));
}

#[test]
fn a_stream_that_ends_without_the_answer_says_so_where_that_is_known() {
    for (what, begun) in [("nothing", ""), ("a comment", ": x\n\n"), ("half an event", "data: {\"jsonrpc\"")]
    {
        let upstream = Upstream::calling(move |_| Reply::stream().event(PROGRESS).chunk(begun).end());
        let weather = Upstream::with_tools(&["forecast"]);
        for (endpoint, is_known) in ENDPOINTS {
            let (daemon, tool) = start(endpoint, &upstream, &weather);
            let mut connection = daemon.begin(&call("7", tool));
            connection.head();
            let events = events(&mut connection);
            let has_error =
                events.last().is_some_and(|last| last.contains("\"id\":7") && last.contains("\"error\""));
            assert_eq!(has_error, is_known, "{endpoint}, {what}: {events:?}");
            if is_known {
                assert_eq!(
                    (count(&daemon, "answered"), count(&daemon, "failed")),
                    (0, 1),
                    "{endpoint}, {what}"
                );
            }
        }
    }
}

/// What is held of events that are not complete is memory for messages.
#[test]
fn unfinished_events_are_counted() {
    let beginning = format!("data: {}", "x".repeat(900 * 1024));
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |_| Reply::stream().chunk(&beginning).wait(&held));
    let config = Config::new().upstream("up", upstream.address, "unique_ids = true");
    let limits = "buffered_bytes_max = \"4MiB\"\nreply_bytes_max = \"1MiB\"";
    let daemon = Daemon::start(&config.limits(limits).admin());
    let mut calls: Vec<Connection> = (0..8).map(|_| daemon.begin(&call("7", "echo"))).collect();
    for call in &mut calls {
        assert_eq!(call.head().status, 200);
    }
    // Three fit beside the reserve; the others are told, and the three are held.
    daemon.wait_metric("trunkline_buffered_bytes", 3 * (900 * 1024 + 6));
    eventually("the others are told", || (count(&daemon, "failed") == 5).then_some(()));
    drop(calls);
    daemon.wait_metric("trunkline_buffered_bytes", 0);
    gate.open();
}
