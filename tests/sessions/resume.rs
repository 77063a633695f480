//! Event streams of calls that end or break before the answer: the client gets the answer or one error, and never both.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{
    Broken, Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Upstream,
    in_session, legacy_call, open_session, result_body, side_by_side,
};

const OLDER: &str = "2025-06-18";
const ANSWER: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;
const NOTE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;

/// A server that answers calls and GETs as the test says; what is written with the client's id gets that of the last call.
fn server(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let last_call: Mutex<Option<Received>> = Mutex::default();
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            *last_call.lock().unwrap() = Some(request.clone());
            answer(request).to(request)
        }
        "GET" if !request.headers("last-event-id").is_empty() => {
            let call = last_call.lock().unwrap().clone().expect("a call whose reply broke off");
            answer(request).to(&call)
        }
        _ => server.answer(request),
    })
}

fn call(daemon: &Daemon, version: &str, tool: &str) -> Connection {
    let (session, _) = open_session(daemon.address(), version);
    let request = legacy_call("1", tool).with("MCP-Protocol-Version", version);
    let mut connection = daemon.connect();
    connection.write(&in_session(&session, request).bytes());
    connection
}

/// The events of a stream and whether it ended properly.
fn events(mut connection: Connection) -> (Vec<String>, bool) {
    assert_eq!(connection.head().status, 200);
    let mut events = Vec::new();
    loop {
        match connection.try_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, true),
            Err(broken) => {
                assert!(!matches!(broken, Broken::Silent), "after {events:?}");
                return (events, false);
            }
        }
    }
}

/// The messages in events, without those that have none.
fn messages(events: &[String]) -> Vec<Value> {
    let data = events.iter().flat_map(|event| event.lines().filter_map(|line| line.strip_prefix("data: ")));
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

fn answers(messages: &[Value]) -> Vec<&Value> {
    messages.iter().filter(|message| message["id"] == json!(1)).collect()
}

#[test]
fn ids_say_where_an_event_comes_from_where_there_are_several() {
    let upstream = server(|request| {
        let answer = result_body(request, ANSWER);
        Reply::stream()
            .chunk(&format!("id: a.1\ndata: {NOTE}\n\nretry: 5\nid:2\nevent: message\ndata: {answer}\n\n"))
            .end()
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (own, _) = events(call(&daemon, OLDER, "echo"));
    assert_eq!(own[0], format!("id: a.1\ndata: {NOTE}\n\n"));
    assert!(own[1].starts_with("retry: 5\nid:2\nevent: message\ndata: "), "{own:?}");
    let daemon = Daemon::start(&Config::legacy_pair(&upstream, &upstream));
    let (public, _) = events(call(&daemon, OLDER, "weather__echo"));
    assert_eq!(public[0], format!("id: p.weather.a.1\ndata: {NOTE}\n\n"));
    assert!(public[1].starts_with("retry: 5\nid: p.weather.2\nevent: message\ndata: "), "{public:?}");
}

#[test]
fn a_stream_that_ends_early_is_taken_up_again_for_older_clients() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gets);
    let upstream = server(move |request| {
        if request.http_method() == "POST" {
            return Reply::stream()
                .chunk("retry: 10\nid: 1\ndata: \n\n")
                .chunk(&format!("id: 2\ndata: {NOTE}\n\n"))
                .end();
        }
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::http("503 Service Unavailable", "", ""),
            1 => Reply::stream().chunk("id: 3\ndata: \n\n").end(),
            _ => {
                let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{ANSWER}}}"#);
                Reply::stream().chunk(&format!("id: 4\ndata: {answer}\n\n")).end()
            }
        }
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (seen, is_whole) = events(call(&daemon, OLDER, "echo"));
    let found = messages(&seen);
    assert!(is_whole && seen.iter().all(|event| !event.contains("data: \n")), "{seen:?}");
    assert_eq!((found.len(), &found[1]["result"]["content"][0]["text"]), (2, &json!("done")), "{seen:?}");
    let gets = upstream.received_of("GET");
    let gets: Vec<_> = gets.iter().filter(|get| !get.headers("last-event-id").is_empty()).collect();
    let ids: Vec<_> = gets.iter().flat_map(|get| get.headers("last-event-id")).collect();
    assert_eq!(ids, ["2", "2", "3"]);
    let post = upstream.only_call();
    for get in gets {
        assert_eq!(get.headers("accept"), ["text/event-stream"]);
        for name in ["mcp-session-id", "mcp-protocol-version"] {
            assert_eq!(get.headers(name), post.headers(name), "{name}");
        }
    }
}

#[test]
fn newer_clients_take_a_stream_up_again_themselves() {
    let upstream = server(|_| Reply::stream().chunk("retry: 10\nid: 1\ndata: \n\n").end());
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (seen, is_whole) = events(call(&daemon, LEGACY_VERSION, "echo"));
    assert_eq!((seen.concat().as_str(), is_whole), ("retry: 10\nid: 1\ndata: \n\n", true));
    assert!(upstream.received_of("GET").iter().all(|get| get.headers("last-event-id").is_empty()));
}

#[test]
fn a_stream_that_cannot_be_taken_up_again_ends_with_an_error() {
    type Answer = Box<dyn Fn(&Received) -> Reply + Send + Sync>;
    let refuse = |status: &'static str| move |_: &Received| Reply::http(status, "", "");
    let on_get: [(&str, Answer); 4] = [
        ("405", Box::new(refuse("405 Method Not Allowed"))),
        ("404", Box::new(refuse("404 Not Found"))),
        ("JSON", Box::new(|_: &Received| Reply::json("200 OK", "{}"))),
        ("reset", Box::new(|_: &Received| Reply::default().reset())),
    ];
    for (why, answer) in on_get {
        let upstream = server(move |request| match request.http_method() {
            "POST" => Reply::stream().chunk("retry: 10\n\n").chunk(&format!("id: 1\ndata: {NOTE}\n\n")).end(),
            _ => answer(request),
        });
        let daemon = Daemon::start(&Config::legacy(&upstream));
        let (seen, is_whole) = events(call(&daemon, OLDER, "echo"));
        let found = messages(&seen);
        let own = answers(&found);
        assert!(is_whole && own.len() == 1 && own[0]["error"].is_object(), "{why}: {seen:?}");
    }
}

#[test]
fn a_stream_without_ids_that_ends_early_ends_with_an_error() {
    for version in [OLDER, LEGACY_VERSION] {
        for unfinished in [
            "",
            "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
            "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
        ] {
            let upstream = server(move |_| {
                Reply::stream().event(NOTE).chunk(": x\n\n").chunk(&format!(":\n{unfinished}")).end()
            });
            for (config, tool) in [
                (Config::legacy(&upstream), "echo"),
                (Config::legacy_pair(&upstream, &upstream), "files__echo"),
            ] {
                let (seen, is_whole) = events(call(&Daemon::start(&config), version, tool));
                let found = messages(&seen);
                assert_eq!((found.len(), is_whole), (2, true), "{seen:?}");
                assert!(found[1]["id"] == json!(1) && found[1]["error"].is_object(), "{seen:?}");
            }
        }
    }
}

#[test]
fn very_long_events_pass() {
    let text = "x".repeat(1 << 20);
    let upstream = server(move |request| {
        let answer = result_body(request, &format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#));
        Reply::stream().event(&answer).end()
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (seen, is_whole) = events(call(&daemon, LEGACY_VERSION, "echo"));
    assert!(is_whole && seen.len() == 1 && seen[0].len() > 1 << 20);
}

#[test]
fn an_endless_stream_ends_with_an_error_in_time() {
    let upstream = server(|_| Reply::stream().event(NOTE));
    let lines = "eras = [\"legacy\"]\nstream_idle_timeout = \"100ms\"";
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, lines));
    let (seen, is_whole) = events(call(&daemon, LEGACY_VERSION, "echo"));
    let found = messages(&seen);
    assert_eq!((found.len(), is_whole), (2, true), "{seen:?}");
    assert!(found[1]["id"] == json!(1) && found[1]["error"].is_object(), "{seen:?}");
}

#[test]
fn a_stream_taken_up_again_is_not_read_on_without_its_client() {
    let upstream = server(|_| Reply::stream().chunk("id: first\ndata: \n\n").wait(&Gate::default()));
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut call = daemon.connect();
    call.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    call.head();
    assert!(call.event().is_some_and(|event| event.contains("first")));
    let get = legacy_call("2", "echo").method("GET").without("Content-Type").with("Last-Event-ID", "first");
    let mut client = daemon.connect();
    client.write(&in_session(&session, get).bytes());
    assert_eq!(client.head().status, 200);
    let asked = upstream.received_of("GET");
    let asked =
        asked.iter().find(|get| !get.headers("last-event-id").is_empty()).expect("asked for the rest");
    drop(client);
    upstream.wait_closed(asked.connection);
}

/// What a server says in one exchange, by the ids of its events.
fn script(id: &str) -> Vec<(usize, String)> {
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ANSWER}}}"#);
    let events = [
        "retry: 10\nid: 1\ndata: \n\n".to_owned(),
        format!("id: 2\ndata: {NOTE}\n\n"),
        format!("id: 3\ndata: {answer}\n\n"),
    ];
    events.into_iter().enumerate().map(|(index, event)| (index + 1, event)).collect()
}

/// The response of a stream of what comes after the event `after`.
fn stream_after(after: usize, id: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let rest = script(id).into_iter().filter(|(id, _)| *id > after);
    let whole =
        rest.fold(head.to_owned(), |whole, (_, event)| whole + &format!("{:x}\r\n{event}\r\n", event.len()));
    whole + "0\r\n\r\n"
}

/// At least as long as with any id.
fn whole_length() -> usize {
    stream_after(0, &"x".repeat(60)).len()
}

/// The first bytes of a response, and then the end or the reset of the connection unless that is all.
fn cut(whole: &str, length: usize, is_reset: bool) -> Reply {
    let reply = Reply::raw(whole.as_bytes()[..length.min(whole.len())].to_vec());
    match (length >= whole.len(), is_reset) {
        (true, _) => reply,
        (false, true) => reply.reset(),
        (false, false) => reply.finish(),
    }
}

#[test]
fn an_exchange_cut_at_any_byte_has_one_outcome() {
    side_by_side([(OLDER, true), (LEGACY_VERSION, true), (OLDER, false)], |(version, can_resume)| {
        let length = Arc::new(AtomicUsize::new(0));
        let cut_at = Arc::clone(&length);
        let called_as = Mutex::new(String::new());
        let upstream = server(move |request| match request.http_method() {
            "POST" => {
                let length = cut_at.load(Ordering::SeqCst);
                *called_as.lock().unwrap() = request.id();
                cut(&stream_after(0, &request.id()), length, length.is_multiple_of(2))
            }
            _ if can_resume => {
                let after = request.headers("last-event-id").concat().parse().expect("a number");
                Reply::raw(stream_after(after, &called_as.lock().unwrap()))
            }
            _ => Reply::http("405 Method Not Allowed", "", ""),
        });
        let lines = "eras = [\"legacy\"]\nbreaker = { failures_max = 0 }";
        let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, lines));
        let (session, _) = open_session(daemon.address(), version);
        let has_id_from = stream_after(0, "1").find("data: \n\n").expect("the first event") + 8;
        let mut outcomes = [0, 0];
        for at in 0..=whole_length() {
            length.store(at, Ordering::SeqCst);
            let request = legacy_call("1", "echo").with("MCP-Protocol-Version", version);
            let response = daemon.send(&in_session(&session, request));
            let text = response.text();
            let found = if response.header("content-type") == Some("application/json") {
                vec![response.json()]
            } else {
                messages(&text.split_inclusive("\n\n").map(str::to_owned).collect::<Vec<_>>())
            };
            let own = answers(&found);
            assert_eq!(own.len(), 1, "{version}, cut at {at}: {text}");
            let is_error = own[0]["error"].is_object();
            let notes = found.iter().filter(|message| message["method"] == "notifications/message").count();
            assert!(notes <= 1, "{version}, cut at {at}: {text}");
            // Once an id is known, the rest is fetched.
            let is_fetched = at >= has_id_from && can_resume;
            assert!(!(is_fetched && is_error), "{version}, cut at {at}: {text}");
            outcomes[usize::from(is_error)] += 1;
        }
        assert!(outcomes.iter().all(|count| *count > 5), "{version}: {outcomes:?}");
    });
}
