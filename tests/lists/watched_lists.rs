//! Lists of upstreams that speak the legacy era alone: heard of on the gateway's own stream, and kept while that stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{
    Config, Connection, Daemon, LEGACY_VERSION, Legacy, Offer, Received, Reply, Stream, Upstream, eventually,
    in_session, legacy, open_session, open_session_with, post,
};

const TOOLS_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const LISTENS: &str = r#"trunkline_upstream_subscription_streams{upstream="up"}"#;

/// A server whose only tool has another name in each version of its list.
struct Server {
    legacy: Legacy,
    version: Arc<AtomicUsize>,
    /// It answers no GET.
    is_deaf: Arc<AtomicBool>,
    upstream: Upstream,
}

impl Server {
    fn start(legacy: Legacy) -> Self {
        let (version, is_deaf) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (answering, current, deaf) = (legacy.clone(), Arc::clone(&version), Arc::clone(&is_deaf));
        let upstream = Upstream::start(move |request| match request.method().as_str() {
            "tools/list" => tools_list(request, current.load(Ordering::SeqCst)),
            "GET" if deaf.load(Ordering::SeqCst) => Reply::http("503 Service Unavailable", "", ""),
            _ => answering.answer(request),
        });
        Self { legacy, version, is_deaf, upstream }
    }

    fn daemon(&self) -> Daemon {
        Daemon::start(&Config::legacy(&self.upstream).admin())
    }

    /// From now on its list is another one.
    fn change(&self) -> String {
        format!("t{}", self.version.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn fetches(&self) -> usize {
        self.upstream.received_of("tools/list").len()
    }
}

fn tools_list(request: &Received, version: usize) -> Reply {
    Reply::result(
        request,
        &format!(r#"{{"tools":[{{"name":"t{version}","inputSchema":{{"type":"object"}}}}]}}"#),
    )
}

fn server() -> Legacy {
    Legacy::new(Offer::tools(&["t0"])).with_streams()
}

/// A client that listens.
struct Client<'d> {
    daemon: &'d Daemon,
    session: String,
    stream: Connection,
}

impl<'d> Client<'d> {
    fn open(daemon: &'d Daemon) -> Self {
        Self::with(daemon, "{}")
    }

    fn with(daemon: &'d Daemon, capabilities: &str) -> Self {
        let session = open_session_with(daemon.address(), LEGACY_VERSION, capabilities);
        let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
        let mut stream = daemon.connect();
        stream.write(&in_session(&session, get).bytes());
        assert_eq!(stream.head().status, 200);
        Self { daemon, session, stream }
    }

    /// The next message on its stream.
    #[track_caller]
    fn hear(&mut self) -> String {
        loop {
            let event = self.stream.event().expect("the stream goes on");
            if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                return data.to_owned();
            }
        }
    }

    #[track_caller]
    fn tool(&self) -> String {
        tool(self.daemon, &self.session)
    }
}

#[track_caller]
fn tool(daemon: &Daemon, session: &str) -> String {
    let response = daemon.send(&in_session(session, legacy("1", "tools/list", "{}")));
    response.assert_ok();
    response.json()["result"]["tools"][0]["name"].as_str().expect("a name").to_owned()
}

fn wait_listens(daemon: &Daemon, count: u64) {
    eventually("the stream stands or not", || (daemon.metric(LISTENS) == count).then_some(()));
}

/// Waits until lists are kept: one fetch then does for two requests.
fn wait_kept(server: &Server, client: &Client<'_>) {
    eventually("lists are kept", || {
        client.tool();
        let fetches = server.fetches();
        client.tool();
        (server.fetches() == fetches).then_some(())
    });
}

#[test]
fn a_client_hears_of_a_change_before_it_calls() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let mut clients = [Client::open(&daemon), Client::open(&daemon)];
    wait_listens(&daemon, 1);
    let stream = server.legacy.own_stream(1);
    assert_eq!(stream.request.headers("accept"), ["text/event-stream"]);
    assert_eq!(stream.request.headers("mcp-protocol-version"), [LEGACY_VERSION]);
    stream.event(TOOLS_CHANGED);
    for client in &mut clients {
        assert_eq!(client.hear(), TOOLS_CHANGED);
    }
    assert_eq!(server.upstream.received_of("GET").len(), 1);
    for offer in server.upstream.received_of("initialize") {
        assert_eq!(offer.json()["params"]["clientInfo"]["name"], "trunkline");
    }
}

#[test]
fn a_list_is_kept_until_it_changes() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let mut client = Client::open(&daemon);
    wait_kept(&server, &client);
    let (other, _) = open_session(daemon.address(), "2025-06-18");
    // Another version is asked for in another session, but its list changes with this one.
    tool(&daemon, &other);
    let fetches = server.fetches();
    for _ in 0..5 {
        assert_eq!((client.tool(), tool(&daemon, &other)), ("t0".to_owned(), "t0".to_owned()));
    }
    assert_eq!(server.fetches(), fetches);
    let changed = server.change();
    assert_eq!(client.tool(), "t0", "nobody knows of the change");
    server.legacy.own_stream(1).event(TOOLS_CHANGED);
    assert_eq!(client.hear(), TOOLS_CHANGED);
    for _ in 0..3 {
        assert_eq!((client.tool(), tool(&daemon, &other)), (changed.clone(), changed.clone()));
    }
    assert_eq!(server.fetches(), fetches + 2);
}

#[test]
fn a_list_is_not_kept_while_the_stream_is_broken() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let mut client = Client::open(&daemon);
    wait_kept(&server, &client);
    server.is_deaf.store(true, Ordering::SeqCst);
    let changed = server.change();
    server.legacy.cut_streams();
    wait_listens(&daemon, 0);
    let fetches = server.fetches();
    for _ in 0..3 {
        assert_eq!(client.tool(), changed);
    }
    assert_eq!(server.fetches(), fetches + 3);
    server.is_deaf.store(false, Ordering::SeqCst);
    // Whatever was said meanwhile, the client is told when the stream stands again.
    assert_eq!(client.hear(), TOOLS_CHANGED);
    wait_listens(&daemon, 1);
    wait_kept(&server, &client);
    assert_eq!(client.tool(), changed);
    assert_eq!(daemon.metric(r#"trunkline_upstream_subscription_gaps_total{upstream="up"}"#), 1);
}

#[test]
fn a_list_is_fetched_every_time_where_no_stream_stands() {
    // The upstream has none, gives no sessions, or nobody listens.
    let without_streams = || Legacy::new(Offer::tools(&["t0"]));
    for (legacy, listens, gets) in
        [(without_streams(), true, 1), (without_streams().without_sessions(), true, 0), (server(), false, 0)]
    {
        let server = Server::start(legacy);
        let daemon = server.daemon();
        let client = listens.then(|| Client::open(&daemon));
        let session = open_session(daemon.address(), LEGACY_VERSION).0;
        server.upstream.wait_for("initialize", 1);
        if gets > 0 {
            server.upstream.wait_for("GET", gets);
        }
        let fetches = server.fetches();
        for _ in 0..5 {
            tool(&daemon, &session);
        }
        assert_eq!(server.fetches(), fetches + 5);
        assert_eq!(server.upstream.received_of("GET").len(), gets);
        assert_eq!(daemon.metric(LISTENS), 0);
        drop(client);
    }
}

#[test]
fn a_list_of_which_nothing_is_promised_is_not_kept() {
    let streams = Arc::new(std::sync::Mutex::new(Vec::new()));
    let opened = Arc::clone(&streams);
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" => {
            let result = json!({
                "protocolVersion": LEGACY_VERSION,
                "capabilities": {"tools": {}, "prompts": {"listChanged": true}},
                "serverInfo": {"name": "scripted", "version": "1"},
            });
            let body = json!({"jsonrpc": "2.0", "id": request.json()["id"], "result": result}).to_string();
            Reply::http("200 OK", "Content-Type: application/json\r\nMcp-Session-Id: only\r\n", &body)
        }
        "tools/list" => tools_list(request, 0),
        "prompts/list" => Reply::result(request, r#"{"prompts":[]}"#),
        "GET" => {
            let (stream, bytes) = Stream::answering(request);
            opened.lock().unwrap().push(stream);
            Reply::stream().pipe(bytes).reset()
        }
        _ => Reply::http("202 Accepted", "", ""),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let client = Client::open(&daemon);
    let prompts = || {
        daemon.send(&in_session(&client.session, legacy("1", "prompts/list", "{}"))).assert_ok();
        upstream.received_of("prompts/list").len()
    };
    eventually("prompts are kept", || (prompts() == prompts()).then_some(()));
    let fetches = upstream.received_of("tools/list").len();
    for _ in 0..3 {
        client.tool();
    }
    assert_eq!(upstream.received_of("tools/list").len(), fetches + 3);
}

#[test]
fn what_a_session_hears_makes_the_list_invalid() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let mut client = Client::with(&daemon, r#"{"sampling":{}}"#);
    wait_kept(&server, &client);
    let call = legacy("1", "tools/call", r#"{"name":"t0","arguments":{}}"#);
    daemon.send(&in_session(&client.session, call)).assert_ok();
    let session = server.upstream.only_call().session();
    let streams = server.legacy.streams();
    let own = streams.iter().find(|stream| stream.request.session() == session).expect("its stream");
    let changed = server.change();
    own.event(TOOLS_CHANGED);
    assert_eq!(client.hear(), TOOLS_CHANGED);
    assert_eq!(client.tool(), changed);
}

#[test]
fn requests_on_the_stream_are_answered() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let _client = Client::open(&daemon);
    let stream = server.legacy.own_stream(1);
    stream.event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    let answer = server.upstream.wait_for("", 1);
    assert_eq!(answer.json(), json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    assert_eq!(answer.session(), stream.request.session());
    stream.event(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#);
    let refusal: Value = server.upstream.wait_for("", 2).json();
    assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!(7), &json!(-32601)));
}

#[test]
fn a_stream_goes_on_where_it_ended() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let mut client = Client::open(&daemon);
    server.legacy.own_stream(1).chunk("retry: 20\nid: one\ndata:\n\n");
    server.legacy.own_stream(1).end();
    let again = server.upstream.wait_for("GET", 2);
    assert_eq!(again.headers("last-event-id"), ["one"]);
    assert_eq!(again.session(), server.legacy.own_stream(1).request.session());
    server.legacy.own_stream(2).event(TOOLS_CHANGED);
    assert_eq!(client.hear(), TOOLS_CHANGED);
}

#[test]
fn a_session_that_was_forgotten_is_opened_anew() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let mut client = Client::open(&daemon);
    wait_kept(&server, &client);
    let first = server.legacy.own_stream(1).request.session();
    server.change();
    server.legacy.forget_sessions();
    server.legacy.cut_streams();
    assert_eq!(client.hear(), TOOLS_CHANGED);
    let last = server.legacy.own_stream(1).request;
    assert_ne!(last.session(), first);
    assert!(last.headers("last-event-id").is_empty());
    assert!(server.legacy.open_sessions().contains(&last.session()));
    assert_eq!(client.tool(), "t1");
}

#[test]
fn the_stream_ends_when_nobody_listens() {
    let server = Server::start(server());
    let daemon = server.daemon();
    let client = Client::open(&daemon);
    let stream = server.legacy.own_stream(1);
    let delete = post("").method("DELETE");
    assert_eq!(daemon.send(&in_session(&client.session, delete)).status, 204);
    server.upstream.wait_closed(stream.request.connection);
    wait_listens(&daemon, 0);
}
