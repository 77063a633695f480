//! GET: the stream that a client holds open in its session, from its opening to its end.

use crate::harness::{
    Config, Connection, Daemon, Folder, Gate, Http2, LEGACY_VERSION, Legacy, Listened, Listening, Offer,
    Reply, Request, Response, Stream, Upstream, VERSION, api_key, eventually, in_session, initialize, legacy,
    open_session, post, result_body,
};

const TOOLS_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn server() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]))
}

/// Two of them, `files` and `weather`.
fn over_two(files: &Upstream, weather: &Upstream) -> Config {
    let lines = "eras = [\"legacy\"]";
    Config::new().upstream("files", files.address, lines).upstream("weather", weather.address, lines).admin()
}

/// A notification, told apart by its text.
fn note(text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{text}"}}}}"#
    )
}

/// Says something on a stream of a server's, in an event with this id.
fn say(stream: &Stream, id: &str, text: &str) {
    stream.chunk(&format!("id: {id}\ndata: {}\n\n", note(text)));
}

/// Has the upstream with this tool open its part of the session.
fn call(daemon: &Daemon, session: &str, tool: &str) {
    let call = legacy("1", "tools/call", &format!(r#"{{"name":"{tool}","arguments":{{}}}}"#));
    daemon.send(&in_session(session, call)).assert_ok();
}

/// The same, whose reply to a call begins with an event of this id and breaks off.
fn breaking_off(server: &Legacy, id: &str) -> Upstream {
    let (server, event) = (server.clone(), format!("id: {id}\ndata: \n\n"));
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream().chunk(&event).end(),
        _ => server.answer(request),
    })
}

/// A call whose reply breaks off after an event. The id of that.
fn broken_call(daemon: &Daemon, session: &str, tool: &str) -> String {
    let call = legacy("1", "tools/call", &format!(r#"{{"name":"{tool}","arguments":{{}}}}"#));
    let mut connection = daemon.begin(&in_session(session, call));
    assert_eq!(connection.head().status, 200);
    let event = connection.event().expect("an event");
    event.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id").to_owned()
}

/// A GET in this session.
fn get(session: &str) -> Request {
    let request = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    in_session(session, request)
}

fn delete(session: &str) -> Request {
    in_session(session, post("").method("DELETE"))
}

fn session(daemon: &Daemon) -> String {
    open_session(daemon.address(), LEGACY_VERSION).0
}

const OPEN: &str = "trunkline_session_streams";
const UNREAD: &str = r#"trunkline_session_streams_ended_total{reason="unread"}"#;
const DROPPED: &str = "trunkline_session_messages_dropped_total";
const TAKEN_OVER: &str = r#"trunkline_session_streams_ended_total{reason="taken_over"}"#;

/// A client's stream.
struct Client(Connection);

impl Client {
    #[track_caller]
    fn open(daemon: &Daemon, session: &str) -> Self {
        Self::with(daemon, &get(session))
    }

    #[track_caller]
    fn with(daemon: &Daemon, request: &Request) -> Self {
        let mut connection = daemon.connect();
        connection.write(&request.bytes());
        let head = connection.head();
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("cache-control"), Some("no-cache"));
        assert_eq!(head.header("x-accel-buffering"), Some("no"));
        assert_eq!(head.header("mcp-session-id"), None);
        Self(connection)
    }

    /// The next event that is no comment.
    #[track_caller]
    fn event(&mut self) -> String {
        loop {
            let event = self.0.event().expect("the stream goes on");
            if !event.starts_with(':') {
                return event;
            }
        }
    }

    /// The next event, taken apart: its id and its data.
    #[track_caller]
    fn message(&mut self) -> (Option<String>, String) {
        let event = self.event();
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        (field("id: "), field("data: ").expect("data"))
    }

    #[track_caller]
    fn assert_ended(&mut self) {
        assert_eq!(self.0.event(), None);
    }
}

#[track_caller]
fn assert_refused(response: &Response, status: u16) {
    assert_eq!(response.status, status, "{response:?}");
    assert_ne!(response.header("content-type"), Some("text/event-stream"));
}

#[test]
fn a_stream_opens_and_is_kept_alive() {
    let upstream = server().start();
    let daemon =
        Daemon::start(&Config::legacy(&upstream).admin().section("[session]\nkeep_alive_interval = \"1s\""));
    let session = session(&daemon);
    let mut stream = Client::open(&daemon, &session);
    for _ in 0..2 {
        assert_eq!(stream.0.event().as_deref(), Some(":\n\n"));
    }
    assert_eq!(daemon.metric(OPEN), 1);
    drop(stream);
    // Noticed when the next comment is written, at the latest.
    daemon.wait_metric(OPEN, 0);
    daemon.send(&in_session(&session, legacy("1", "ping", "{}"))).assert_ok();
}

#[test]
fn what_is_no_get_of_a_session_is_refused() {
    let upstream = server().start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = session(&daemon);
    let good = get(&session);
    let refused = |request: &Request, status| assert_refused(&daemon.send(request), status);
    refused(&good.clone().set("Accept", "application/json"), 406);
    refused(&good.clone().set("Accept", "text/event-stream;q=0"), 406);
    refused(&good.clone().without("Mcp-Session-Id"), 400);
    refused(&good.clone().set("Mcp-Session-Id", "unknown"), 404);
    refused(&good.clone().target("/other"), 404);
    refused(&good.clone().with("Origin", "https://evil.example"), 403);
    for version in [VERSION, "2030-01-01", "1"] {
        let response = daemon.send(&good.clone().set("MCP-Protocol-Version", version));
        assert_refused(&response, 405);
        assert_eq!(response.header("allow"), Some("POST"));
    }
    let response = daemon.send(&good.clone().method("PUT"));
    assert_eq!((response.status, response.header("allow")), (405, Some("GET, POST, DELETE")));
    for accept in ["*/*", "text/*", "application/json, text/event-stream"] {
        Client::with(&daemon, &good.clone().set("Accept", accept));
    }
    Client::with(&daemon, &good.clone().without("Accept"));
    // Any of the era's versions will do.
    Client::with(&daemon, &good.clone().without("MCP-Protocol-Version"));
    Client::with(&daemon, &good.set("MCP-Protocol-Version", "2025-03-26"));
}

#[test]
fn a_modern_endpoint_has_no_streams_of_sessions() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::unbridged(&upstream));
    let response = daemon.send(&get("any"));
    assert_eq!((response.status, response.header("allow")), (405, Some("POST")));
}

#[test]
fn only_its_principal_opens_it() {
    let upstream = server().start();
    let keys = [api_key("a", "key-a"), api_key("b", "key-b")].join("\n");
    let daemon = Daemon::start(&Config::legacy(&upstream).admin().section(&keys));
    let of_a = |request: Request| request.with("Authorization", "Bearer key-a");
    let response = daemon.send(&of_a(initialize("1", LEGACY_VERSION)));
    let session = response.header("mcp-session-id").expect("a session").to_owned();
    assert_refused(&daemon.send(&get(&session)), 401);
    assert_refused(&daemon.send(&get(&session).with("Authorization", "Bearer key-b")), 404);
    Client::with(&daemon, &of_a(get(&session)));
}

#[test]
fn a_newer_stream_takes_over() {
    let upstream = server().start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = session(&daemon);
    let mut old = Client::open(&daemon, &session);
    let other = self::session(&daemon);
    let mut unharmed = Client::open(&daemon, &other);
    let mut new = Client::open(&daemon, &session);
    old.assert_ended();
    assert_eq!((daemon.metric(TAKEN_OVER), daemon.metric(OPEN)), (1, 2));
    for (session, stream) in [(&session, &mut new), (&other, &mut unharmed)] {
        assert_eq!(daemon.send(&delete(session)).status, 204);
        stream.assert_ended();
    }
    assert_eq!((daemon.metric(TAKEN_OVER), daemon.metric(OPEN)), (1, 0));
}

#[test]
fn a_stream_ends_with_its_session() {
    let upstream = server().start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = session(&daemon);
    let mut stream = Client::open(&daemon, &session);
    assert_eq!(daemon.send(&delete(&session)).status, 204);
    stream.assert_ended();
    assert_refused(&daemon.send(&get(&session)), 404);
    // The connection is as good as before.
    let next = self::session(&daemon);
    stream.0.write(&get(&next).bytes());
    assert_eq!(stream.0.head().status, 200);
}

#[test]
fn streams_end_at_drain() {
    let upstream = server().start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin().section("[drain]\nquiet = \"5s\""));
    let session = session(&daemon);
    let mut stream = Client::open(&daemon, &session);
    daemon.terminate();
    stream.assert_ended();
    let response = daemon.send(&get(&session));
    assert_refused(&response, 503);
    assert_eq!(response.header("retry-after"), Some("1"));
}

#[test]
fn streams_end_with_their_endpoint() {
    let upstream = server().start();
    let config = Config::legacy(&upstream).admin();
    let daemon = Daemon::start(&config);
    let session = session(&daemon);
    let mut stream = Client::open(&daemon, &session);
    daemon.reload(&config.clone().limits("json_depth_max = 64"));
    daemon.wait_for_log(0, "the reload", |line| line.contains("reloaded"));
    assert_eq!(daemon.metric(OPEN), 1);
    daemon.reload(&config.path("/other"));
    stream.assert_ended();
}

#[test]
fn streams_are_bounded_in_all_and_per_principal() {
    let upstream = server().start();
    let keys = [api_key("a", "key-a"), api_key("b", "key-b")].join("\n");
    let limits = "[session]\nstreams_max = 3\nstreams_per_principal_max = 2";
    let config = Config::legacy(&upstream).admin().section(&keys).section(limits);
    let daemon = Daemon::start(&config);
    let open = |key: &str| {
        let authorization = format!("Bearer {key}");
        let request = initialize("1", LEGACY_VERSION).with("Authorization", &authorization);
        let session = daemon.send(&request).header("mcp-session-id").expect("a session").to_owned();
        get(&session).with("Authorization", &authorization)
    };
    let assert_too_many = |request: &Request| {
        let response = daemon.send(request);
        assert_refused(&response, 503);
        assert_eq!(response.header("retry-after"), Some("5"));
        assert!(response.text().contains("as many streams open as it may"), "{}", response.text());
    };
    let (first, second, third) = (open("key-a"), open("key-a"), open("key-a"));
    let _held = [Client::with(&daemon, &first), Client::with(&daemon, &second)];
    assert_too_many(&third);
    let of_b = Client::with(&daemon, &open("key-b"));
    assert_too_many(&open("key-b"));
    // A session's newer stream needs no more room.
    let again = Client::with(&daemon, &second);
    assert_eq!(daemon.metric("trunkline_session_streams_refused_total"), 2);
    drop((of_b, again));
}

#[test]
fn changed_lists_are_told() {
    let dual = server().and_modern();
    let listening = Listening::beside(move |request| dual.answer(request), |_| Listened::Honoured);
    let address = listening.upstream.address;
    let other = server().start();
    let config = Config::new()
        .upstream("up", address, "eras = [\"legacy\", \"modern\"]")
        .upstream("other", other.address, "eras = [\"legacy\"]")
        .admin();
    let daemon = Daemon::start(&config);
    let (one, two) = (session(&daemon), session(&daemon));
    let mut streams = [Client::open(&daemon, &one), Client::open(&daemon, &two)];
    listening.tools_stream().notify("tools/list_changed", "");
    for stream in &mut streams {
        assert_eq!(stream.event(), format!("data: {TOOLS_CHANGED}\n\n"));
    }
    assert_eq!(daemon.metric(r#"trunkline_notifications_total{kind="tools_list"}"#), 2);
    // What subscriptions are allowed has nothing to do with sessions.
    assert_eq!(daemon.metric("trunkline_subscriptions"), 0);
}

#[test]
fn changes_of_lists_are_offered() {
    let files = Legacy::new(Offer::tools(&["read"]).with_resources(&["test://a"])).start();
    let weather = Legacy::new(Offer::tools(&["forecast"])).start();
    let config = Config::new().probed("files", files.address, "eras = [\"legacy\"]").probed(
        "weather",
        weather.address,
        "eras = [\"legacy\"]",
    );
    let daemon = Daemon::start(&config);
    let expected = serde_json::json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "logging": {},
    });
    eventually("both were asked", || {
        let (_, result) = open_session(daemon.address(), LEGACY_VERSION);
        (result["capabilities"] == expected).then_some(())
    });
}

#[test]
fn a_stream_goes_over_http2() {
    let upstream = server().start();
    let daemon =
        Daemon::start(&Config::legacy(&upstream).admin().section("[session]\nkeep_alive_interval = \"1s\""));
    let session = session(&daemon);
    let mut connection = Http2::connect(daemon.address());
    let (head, mut body) = connection.open(&get(&session));
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(connection.next(&mut body).as_deref(), Some(&b":\n\n"[..]));
    assert_eq!(daemon.send(&delete(&session)).status, 204);
    assert_eq!(connection.next(&mut body), None);
}

#[test]
fn what_an_upstream_says_reaches_its_client() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let (one, two) = (session(&daemon), session(&daemon));
    call(&daemon, &one, "echo");
    call(&daemon, &two, "echo");
    assert_eq!(server.streams().len(), 0);
    // A stream of the client opens one of its upstream, once.
    let mut first = Client::open(&daemon, &one);
    let spoken = server.stream(1);
    assert!(spoken.request.headers("last-event-id").is_empty());
    let mut second = Client::open(&daemon, &two);
    server.stream(2);
    say(&spoken, "7", "a");
    spoken.event(&note("b"));
    spoken.chunk("id: 8\ndata: \n\n");
    assert_eq!(first.message(), (Some("7".into()), note("a")));
    assert_eq!(first.message(), (None, note("b")));
    assert_eq!(first.event(), "id: 8\ndata: \n\n");
    // A change that a server tells one session is a change for all who listen, as soon as the gateway does.
    server.own_stream(1);
    server.stream(2).event(TOOLS_CHANGED);
    for client in [&mut second, &mut first] {
        assert_eq!(client.message(), (None, TOOLS_CHANGED.into()));
    }
    drop(first);
    let mut first = Client::open(&daemon, &one);
    say(&spoken, "9", "c");
    assert_eq!(first.message(), (Some("9".into()), note("c")));
    assert_eq!(server.streams().len(), 2);
}

#[test]
fn what_is_said_without_a_client_waits_for_it() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = session(&daemon);
    let mut client = Client::open(&daemon, &session);
    call(&daemon, &session, "echo");
    let spoken = server.stream(1);
    say(&spoken, "1", "a");
    assert_eq!(client.message().1, note("a"));
    drop(client);
    daemon.wait_metric(OPEN, 0);
    for number in 0..300 {
        say(&spoken, "2", &number.to_string());
    }
    daemon.wait_metric(DROPPED, 44);
    let mut client = Client::open(&daemon, &session);
    for number in 44..300 {
        assert_eq!(client.message().1, note(&number.to_string()));
    }
    say(&spoken, "3", "b");
    assert_eq!(client.message(), (Some("3".into()), note("b")));
}

#[test]
fn a_client_of_an_old_revision_gets_no_empty_events() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let (session, _) = open_session(daemon.address(), "2025-06-18");
    let mut client = Client::open(&daemon, &session);
    call(&daemon, &session, "echo");
    let spoken = server.stream(1);
    spoken.chunk("id: 1\ndata: \n\n");
    say(&spoken, "2", "a");
    assert_eq!(client.message(), (Some("2".into()), note("a")));
}

#[test]
fn a_client_that_does_not_read_loses_its_stream_only() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(
        &Config::legacy(&upstream).admin().section("[session]\nstream_queue_bytes_max = \"64KiB\""),
    );
    let (slow, well) = (session(&daemon), session(&daemon));
    let mut unread = Client::open(&daemon, &slow);
    call(&daemon, &slow, "echo");
    let to_slow = server.stream(1);
    let mut unharmed = Client::open(&daemon, &well);
    call(&daemon, &well, "echo");
    let to_well = server.stream(2);
    let long = "x".repeat(30_000);
    // More than its socket takes.
    let said = 800;
    (1..=said).for_each(|number| say(&to_slow, &number.to_string(), &long));
    daemon.wait_metric(UNREAD, 1);
    say(&to_well, "1", "a");
    assert_eq!(unharmed.message().1, note("a"));
    // What it was sent until then is whole, and then the stream ends.
    let mut read = 0;
    while let Some(event) = unread.0.event() {
        read += u64::from(!event.starts_with(':'));
    }
    assert!(read > 0 && read < said, "{read} of {said}");
    assert_eq!(daemon.metric(OPEN), 1);
    // The session goes on, with what is latest: three of these fit.
    daemon.wait_metric(DROPPED, said - read - 3);
    call(&daemon, &slow, "echo");
    let mut again = Client::open(&daemon, &slow);
    say(&to_slow, "end", "end");
    for text in [&*long, &*long, &*long, "end"] {
        assert_eq!(again.message().1, note(text));
    }
    assert_eq!(daemon.metric(UNREAD), 1);
}

#[test]
fn a_client_with_one_upstream_goes_on_where_it_was() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = session(&daemon);
    let mut client = Client::open(&daemon, &session);
    call(&daemon, &session, "echo");
    for number in 1..=3 {
        say(&server.stream(1), &number.to_string(), "a");
    }
    for _ in 1..=3 {
        client.message();
    }
    // It has seen the last: there is nothing to repeat.
    let mut client = Client::with(&daemon, &get(&session).with("Last-Event-ID", "3"));
    say(&server.stream(1), "4", "a");
    assert_eq!(client.message().0, Some("4".into()));
    // The third and fourth did not arrive.
    let mut client = Client::with(&daemon, &get(&session).with("Last-Event-ID", "2"));
    let repeating = server.stream(2);
    assert_eq!(repeating.request.headers("last-event-id"), ["2"]);
    assert_eq!(
        repeating.request.headers("mcp-session-id"),
        server.stream(1).request.headers("mcp-session-id")
    );
    for id in ["3", "4", "5"] {
        say(&repeating, id, "a");
        assert_eq!(client.message().0.as_deref(), Some(id));
    }
    assert_eq!(daemon.metric(OPEN), 1);
}

#[test]
fn a_client_with_several_upstreams_goes_on_where_it_was() {
    let (files, weather) = (server().with_streams(), server().with_streams());
    let (files_upstream, weather_upstream) = (files.start(), weather.start());
    let state = Folder::new();
    let config =
        over_two(&files_upstream, &weather_upstream).top(&format!("state_directory = {:?}", state.path()));
    let daemon = Daemon::start(&config);
    let session = session(&daemon);
    let mut client = Client::open(&daemon, &session);
    call(&daemon, &session, "files__echo");
    call(&daemon, &session, "weather__echo");
    let mut ids = Vec::new();
    for (server, id) in [(&files, "1"), (&weather, "x"), (&files, "2"), (&weather, "y")] {
        say(&server.stream(1), id, id);
        let (public, data) = client.message();
        let public = public.expect("an id");
        assert!(public.starts_with("g.") && public.len() <= 512, "{public}");
        assert_eq!(data, note(id));
        ids.push(public);
    }
    files.stream(1).event(&note("without"));
    assert_eq!(client.message(), (None, note("without")));
    // After the last of both there is nothing to repeat.
    Client::with(&daemon, &get(&session).with("Last-Event-ID", &ids[3]));
    // After the third, weather has.
    let mut client = Client::with(&daemon, &get(&session).with("Last-Event-ID", &ids[2]));
    let repeating = weather.stream(2);
    assert_eq!(repeating.request.headers("last-event-id"), ["x"]);
    say(&repeating, "y", "y");
    assert_eq!(client.message(), (Some(ids[3].clone()), note("y")));
    assert_eq!((files.streams().len(), weather.streams().len()), (1, 2));
    // Another process knows nothing but what the client says.
    drop(daemon);
    let daemon = Daemon::start(&config);
    let mut client = Client::with(&daemon, &get(&session).with("Last-Event-ID", &ids[2]));
    assert_eq!(files.stream(2).request.headers("last-event-id"), ["2"]);
    assert_eq!(weather.stream(3).request.headers("last-event-id"), ["x"]);
    say(&weather.stream(3), "y", "y");
    assert_eq!(client.message(), (Some(ids[3].clone()), note("y")));
}

#[test]
fn a_client_goes_on_with_a_reply() {
    let (files, weather) = (server().with_streams(), server().with_streams());
    let (files_upstream, weather_upstream) = (breaking_off(&files, "7.1"), weather.start());
    let daemon = Daemon::start(&over_two(&files_upstream, &weather_upstream));
    let session = session(&daemon);
    assert_eq!(broken_call(&daemon, &session, "files__echo"), "p.files.7.1");
    let mut reply = Client::with(&daemon, &get(&session).with("Last-Event-ID", "p.files.7.1"));
    let spoken = files.stream(1);
    assert_eq!(spoken.request.headers("last-event-id"), ["7.1"]);
    assert_eq!(spoken.request.headers("accept"), ["text/event-stream"]);
    assert_eq!(spoken.request.headers("mcp-protocol-version"), [LEGACY_VERSION]);
    assert_eq!(daemon.metric(OPEN), 1);
    let called = files_upstream.only_call();
    let link = |id: &str, uri: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"resource_link","uri":"{uri}","name":"n"}}]}}}}"#
        )
    };
    spoken.event(&link(&called.id(), "test://a"));
    spoken.end();
    assert_eq!(reply.message().1, link(&called.client_id(), "files+test://a"));
    reply.assert_ended();
    daemon.wait_metric(OPEN, 0);
}

#[test]
fn who_cannot_go_on_gets_the_stream_of_the_session() {
    let (files, weather) = (server().with_streams(), server());
    let (files_upstream, weather_upstream) = (files.start(), breaking_off(&weather, "7"));
    let daemon = Daemon::start(&over_two(&files_upstream, &weather_upstream));
    let session = session(&daemon);
    call(&daemon, &session, "files__echo");
    assert_eq!(broken_call(&daemon, &session, "weather__echo"), "p.weather.7");
    // weather answers no GET.
    for (index, id) in ["p.weather.7", ""].into_iter().enumerate() {
        let mut client = Client::with(&daemon, &get(&session).with("Last-Event-ID", id));
        say(&files.stream(1), &index.to_string(), id);
        assert_eq!(client.message().1, note(id));
        drop(client);
        daemon.wait_metric(OPEN, 0);
    }
    assert_eq!(files.streams().len(), 1);
}

#[test]
fn who_holds_a_stream_does_not_lose_it_to_a_reply_that_is_gone() {
    let (files, weather) = (server().with_streams(), server());
    let (files_upstream, weather_upstream) = (files.start(), weather.start());
    for is_alone in [false, true] {
        let upstream = |name| if is_alone { "echo".to_owned() } else { format!("{name}__echo") };
        let config = if is_alone {
            Config::legacy(&weather_upstream).admin()
        } else {
            over_two(&files_upstream, &weather_upstream)
        };
        let daemon = Daemon::start(&config);
        let session = session(&daemon);
        let _client = Client::open(&daemon, &session);
        call(&daemon, &session, &upstream("weather"));
        let ids: &[&str] = if is_alone { &["7", "p.weather.7"] } else { &["p.weather.7", "p.other.7", "x"] };
        for id in ids {
            assert_refused(&daemon.send(&get(&session).with("Last-Event-ID", id)), 400);
        }
        assert_eq!((daemon.metric(OPEN), daemon.metric(TAKEN_OVER)), (1, 0));
    }
}

/// Opens sessions until the gateway remembers all of one: those of its first second may be of the process before.
fn remembered_session(daemon: &Daemon) -> String {
    eventually("a session is remembered", || {
        let session = session(daemon);
        let response = daemon.begin(&get(&session).with("Last-Event-ID", "nobody's")).head();
        (response.status == 400).then_some(session)
    })
}

#[test]
fn an_id_that_the_session_was_not_given_is_refused() {
    let (files, weather) = (server().with_streams(), server().with_streams());
    let (broken, weather_upstream) = (breaking_off(&files, "7"), weather.start());
    let alone = Daemon::start(&Config::legacy(&broken).admin());
    let several = Daemon::start(&over_two(&broken, &weather_upstream));
    let prefix = |is_alone: bool| if is_alone { "" } else { "p.files." };
    for (daemon, tool, is_alone) in [(&alone, "echo", true), (&several, "files__echo", false)] {
        let (mine, others) = (remembered_session(daemon), remembered_session(daemon));
        let given = broken_call(daemon, &mine, tool);
        assert_eq!(given, format!("{}7", prefix(is_alone)));
        // An id of another session, and ids of nobody.
        for (session, id) in [
            (&others, given.as_str()),
            (&mine, "8"),
            (&mine, "p.files.8"),
            (&mine, "p.weather.7"),
            (&mine, "g.AAAA"),
        ] {
            let response = daemon.send(&get(session).with("Last-Event-ID", id));
            assert_eq!(response.status, 400, "{id}");
            response.assert_error(400, -32600, None);
        }
        daemon.wait_metric(OPEN, 0);
        drop(Client::with(daemon, &get(&mine).with("Last-Event-ID", &given)));
    }
}

#[test]
fn a_long_reply_can_be_taken_up_again_after_many_others() {
    let (server, gate) = (server().with_streams(), Gate::default());
    let (spoken, held) = (server.clone(), gate.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" if request.client_id() == "1" => {
            Reply::stream().chunk("id: long\ndata: \n\n").wait(&held).end()
        }
        "tools/call" => {
            let answer = result_body(request, r#"{"content":[]}"#);
            Reply::stream().chunk(&format!("id: short\ndata: {answer}\n\n")).end()
        }
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = remembered_session(&daemon);
    let call = |id: usize| {
        in_session(&session, legacy(&id.to_string(), "tools/call", r#"{"name":"echo","arguments":{}}"#))
    };
    let mut long = daemon.begin(&call(1));
    assert_eq!(long.head().status, 200);
    assert!(long.event().is_some_and(|event| event.contains("long")));
    for id in 2..200 {
        assert_eq!(daemon.send(&call(id)).status, 200);
    }
    // A proxy in between has closed its connection.
    drop(long);
    drop(Client::with(&daemon, &get(&session).with("Last-Event-ID", "long")));
    assert_eq!(spoken.stream(1).request.headers("last-event-id"), ["long"]);
}

#[test]
fn an_id_passes_where_nobody_remembers_what_was_given() {
    let weather = server().with_streams();
    let upstream = breaking_off(&weather, "7");
    let state = Folder::new();
    let config = Config::legacy(&upstream).top(&format!("state_directory = {:?}", state.path()));
    let mut daemon = Daemon::start(&config);
    let session = remembered_session(&daemon);
    assert_eq!(broken_call(&daemon, &session, "echo"), "7");
    daemon.kill();
    let daemon = Daemon::start(&config);
    let mut client = Client::with(&daemon, &get(&session).with("Last-Event-ID", "7"));
    let spoken = weather.stream(1);
    assert_eq!(spoken.request.headers("last-event-id"), ["7"]);
    spoken.event(&note("a"));
    assert_eq!(client.message().1, note("a"));
}

#[test]
fn after_a_stop_in_order_it_is_known_what_was_given() {
    let weather = server().with_streams();
    let upstream = breaking_off(&weather, "7");
    let state = Folder::new();
    let config = Config::legacy(&upstream).top(&format!("state_directory = {:?}", state.path()));
    let mut daemon = Daemon::start(&config);
    let (mine, others) = (remembered_session(&daemon), remembered_session(&daemon));
    let mut client = Client::open(&daemon, &others);
    for session in [&mine, &others] {
        assert_eq!(broken_call(&daemon, session, "echo"), "7");
    }
    let stream = eventually("the stream of the other stands", || {
        let session = upstream.received_of("tools/call").last()?.session();
        weather.streams().into_iter().find(|stream| stream.request.session() == session)
    });
    say(&stream, "x", "a");
    client.message();
    drop(client);
    for times in 1..=2 {
        daemon.terminate();
        assert!(daemon.wait_exit().success());
        daemon = Daemon::start(&config);
        for (session, id) in [(&mine, "8"), (&mine, "x"), (&others, "y")] {
            let response = daemon.send(&get(session).with("Last-Event-ID", id));
            assert_eq!(response.status, 400, "{id} after {times}");
        }
        for (session, id) in [(&mine, "7"), (&others, "x")] {
            drop(Client::with(&daemon, &get(session).with("Last-Event-ID", id)));
        }
    }
    // A process that ends otherwise leaves nothing behind, and what was left before is older than what it gave.
    daemon.kill();
    let daemon = Daemon::start(&config);
    drop(Client::with(&daemon, &get(&mine).with("Last-Event-ID", "8")));
}

#[test]
fn much_at_once_is_no_client_that_does_not_read() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(
        &Config::legacy(&upstream).admin().section("[session]\nstream_queue_bytes_max = \"4KiB\""),
    );
    let session = session(&daemon);
    let mut client = Client::open(&daemon, &session);
    call(&daemon, &session, "echo");
    let said = (0..2000).map(|number| format!("id: {number}\ndata: {}\n\n", note("a")));
    server.stream(1).chunk(&said.collect::<Vec<_>>().concat());
    for number in 0..2000 {
        assert_eq!(client.message().0, Some(number.to_string()));
    }
    assert_eq!((daemon.metric(UNREAD), daemon.metric(DROPPED)), (0, 0));
}

#[test]
fn an_event_that_an_upstream_forgot_does_not_silence_it() {
    let server = server().with_streams();
    let answering = server.clone();
    let upstream = Upstream::start(move |request| {
        if request.headers("last-event-id").is_empty() {
            answering.answer(request)
        } else {
            let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Invalid event ID"}}"#;
            Reply::json("400 Bad Request", error)
        }
    });
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = session(&daemon);
    let mut client = Client::open(&daemon, &session);
    call(&daemon, &session, "echo");
    for id in ["1", "2"] {
        say(&server.stream(1), id, "a");
        client.message();
    }
    let mut client = Client::with(&daemon, &get(&session).with("Last-Event-ID", "1"));
    say(&server.stream(2), "3", "b");
    assert_eq!(client.message(), (Some("3".into()), note("b")));
}

#[test]
fn who_goes_on_with_a_reply_gets_no_answer_to_another_call() {
    let files = server().with_streams();
    let files_upstream = breaking_off(&files, "1");
    let gate = Gate::default();
    let (weather, opened) = (server(), gate.clone());
    let weather_upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" if request.client_id() == "9" => {
            Reply::stream().chunk(":\n\n").wait(&opened).event(&result_body(request, "{}")).end()
        }
        _ => weather.answer(request),
    });
    let daemon = Daemon::start(&over_two(&files_upstream, &weather_upstream));
    let session = session(&daemon);
    assert_eq!(broken_call(&daemon, &session, "files__echo"), "p.files.1");
    let mut asked = daemon.connect();
    let request = legacy("9", "tools/call", r#"{"name":"weather__echo","arguments":{}}"#);
    asked.write(&in_session(&session, request).bytes());
    assert_eq!(asked.head().status, 200);
    let mut reply = Client::with(&daemon, &get(&session).with("Last-Event-ID", "p.files.1"));
    let result = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    let spoken = files.stream(1);
    spoken.event(&result("9"));
    spoken.event(&result(&weather_upstream.only_call().id()));
    let called = files_upstream.only_call();
    spoken.event(&result(&called.id()));
    assert_eq!(reply.message().1, result(&called.client_id()));
    gate.open();
}
