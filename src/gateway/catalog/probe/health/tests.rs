//! Replicas that are asked, and the sessions in which they are.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::rc::Rc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::catalog::probe::Prober;
use crate::catalog::probe::ask::{self, EraFinding};
use crate::context::state::State;
use crate::context::worker::Worker;
use crate::telemetry::metrics::Metrics;
use protocol::version::Era;

#[test]
fn an_answer_costs_the_same_however_many_replicas_there_are() {
    const UPSTREAMS: usize = 200;
    let names: Vec<String> = (0..UPSTREAMS).map(|number| format!("u{number}")).collect();
    let upstream = |name: &String| format!("[upstream.{name}]\nurl = \"http://127.0.0.1:9/{name}\"\n");
    let text = format!(
        "[listener]\naddress = \"127.0.0.1:1\"\n[[endpoint]]\npath = \"/mcp\"\nnames = \"prefixed\"\n\
         upstreams = {names:?}\n{}",
        names.iter().map(upstream).collect::<String>()
    );
    let config = config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f", &text)));
    let snapshot = Snapshot::build(&config, &Metrics::new(10).expect("metrics"), None).expect("a snapshot");
    let mut now = clock::now();
    let mut checks = Checks::default();
    checks.follow(&snapshot, now);
    checks.look(now);
    assert!(checks.begin(now).is_none(), "nothing is due at once");
    now += Duration::from_hours(1);
    checks.looked_at = 0;
    checks.look(now);
    let mut asked = HashSet::new();
    while let Some(check) = checks.begin(now) {
        assert!(asked.insert(check.place), "each is asked once");
        let answered_before = check.replica.load.answered();
        let checked = CheckResult {
            place: check.place,
            verdict: ReplicaVerdict::Fit,
            upstream: Arc::clone(&check.upstream),
            session: None,
            replica: Arc::clone(&check.replica),
            answered_before,
        };
        assert!(checks.note(checked, now).is_some_and(|(_, is_fit)| is_fit));
    }
    assert_eq!((asked.len(), checks.looked_at), (UPSTREAMS, UPSTREAMS));
    checks.look(now);
    assert!(checks.begin(now).is_none(), "all were asked");
}

#[test]
fn a_replica_that_a_reload_renewed_is_judged_by_its_own_breaker() {
    let build = |failures_max: usize, old: Option<&Snapshot>| {
        let text = format!(
            "[listener]\naddress = \"127.0.0.1:1\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"u\"]\n\
             [upstream.u]\nurl = \"http://127.0.0.1:9/\"\nbreaker = {{ failures_max = {failures_max} }}\n"
        );
        let config = config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f", &text)));
        let snapshot =
            Snapshot::build(&config, &Metrics::new(10).expect("metrics"), old).expect("a snapshot");
        snapshot.take_up();
        snapshot
    };
    let now = clock::now();
    let mut checks = Checks::default();
    let before = build(5, None);
    checks.follow(&before, now);
    let after = build(1, Some(&before));
    checks.follow(&after, now);
    let replicas = after.upstreams[0].replicas.load();
    assert_eq!(checks.entries.len(), 1);
    assert!(checks.entries.values().all(|entry| Arc::ptr_eq(&entry.replica, &replicas[0])));
    // Nothing changed for it: it stays what it is.
    let again = build(1, Some(&after));
    assert!(Arc::ptr_eq(&again.upstreams[0].replicas.load()[0], &replicas[0]));
}

#[test]
fn the_session_of_a_replica_that_is_removed_while_it_is_asked_is_closed() {
    let text = "[listener]\naddress = \"127.0.0.1:1\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"u\"]\n\
                [upstream.u]\nurl = \"http://127.0.0.1:9/\"\n";
    let config = config::parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("f", text)));
    let build = || Snapshot::build(&config, &Metrics::new(10).expect("metrics"), None).expect("a snapshot");
    let (before, mut after) = (build(), build());
    after.upstreams.clear();
    let mut now = clock::now();
    for is_end in [false, true] {
        let mut checks = Checks::default();
        checks.follow(&before, now);
        now += Duration::from_hours(1);
        checks.look(now);
        let check = checks.begin(now).expect("it is due");
        assert!(checks.follow(&after, now).is_empty(), "its question holds the session");
        let checked = CheckResult {
            place: check.place,
            verdict: ReplicaVerdict::Fit,
            session: Some(session_at(&check.replica)),
            upstream: check.upstream,
            replica: check.replica,
            answered_before: 0,
        };
        assert!(checks.note(checked, now).is_none());
        let left = |checks: &mut Checks| if is_end { checks.leave() } else { checks.follow(&after, now) };
        assert_eq!([(); 2].map(|()| left(&mut checks).len()), [1, 0], "once, {is_end}");
    }
}

#[test]
fn the_session_of_a_replica_that_has_left_its_name_is_not_closed_in_vain() {
    let text = "[listener]\naddress = \"127.0.0.1:1\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"u\"]\n\
                [upstream.u]\nurl = \"http://up.example:9/\"\n";
    let config = config::parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("f", text)));
    let snapshot = Snapshot::build(&config, &Metrics::new(10).expect("metrics"), None).expect("a snapshot");
    let (replicas, now) = (&snapshot.upstreams[0].replicas, clock::now());
    let address = |host: u8| std::net::SocketAddr::from(([10, 0, 0, host], 9));
    assert!(replicas.resolve(0, vec![address(1), address(2)], now));
    let mut checks = Checks::default();
    checks.follow(&snapshot, now);
    for entry in checks.entries.values_mut() {
        entry.session = Some(session_at(&entry.replica));
    }
    assert!(replicas.resolve(0, vec![address(2)], now));
    assert!(checks.follow(&snapshot, now).is_empty());
    assert_eq!(checks.leave().len(), 1, "that of the other");
}

/// A session in which this replica is asked.
fn session_at(replica: &Replica) -> InitializedSession {
    InitializedSession {
        id: Some(http::HeaderValue::from_static("s1")),
        version: LegacyVersion::NEWEST,
        result: Bytes::new(),
        replica: Some(replica.key),
        shown: None,
    }
}

/// A server that opens sessions, refuses everything in them unless it is told otherwise, and says which of them it is asked
/// to close.
struct Server {
    port: u16,
    closed: UnboundedReceiver<String>,
}

struct Manners {
    /// The answer to the end of a session; `None`: there is none.
    end: Option<StatusCode>,
    /// The number of pings that came; `None`: all are refused.
    pings: Option<watch::Sender<usize>>,
    /// It answers no ping.
    hangs: bool,
}

impl Server {
    async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, closed) = unbounded_channel();
        let of_all = Rc::new(manners);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, manners) = (sender.clone(), Rc::clone(&of_all));
                let service = service_fn(move |request| {
                    let (sender, manners) = (sender.clone(), Rc::clone(&manners));
                    async move { Ok::<_, Infallible>(answer(request, sender, &manners).await) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                spawn_local(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { port, closed }
    }

    /// The session that it is asked to close next.
    async fn closed(&mut self) -> Option<String> {
        timeout(Duration::from_secs(20), self.closed.recv()).await.expect("one is closed")
    }

    /// A gateway in front of it.
    fn gateway(&self) -> (Rc<ProbeContext>, Arc<Snapshot>) {
        Self::gateway_of(&[self])
    }

    /// A gateway in front of these.
    fn gateway_of(servers: &[&Self]) -> (Rc<ProbeContext>, Arc<Snapshot>) {
        let names: Vec<String> = (0..servers.len()).map(|number| format!("u{number}")).collect();
        let mut text = format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nnames = \"prefixed\"\nupstreams = {names:?}\n"
        );
        for (name, server) in names.iter().zip(servers) {
            let health = "health = { interval = \"1s\", timeout = \"60s\" }";
            let url = format!("url = \"http://127.0.0.1:{}/\"", server.port);
            write!(text, "[upstream.{name}]\n{url}\neras = [\"legacy\"]\n{health}\n").expect("a text");
        }
        let config = config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f", &text)));
        let state = State::new(&config, Metrics::new(10).expect("metrics")).expect("a state");
        let worker = Worker::new(Arc::clone(&state), Arc::default(), &config.log, 100);
        let (client, budget) = (worker.client.clone(), Arc::clone(&state.buffered));
        let snapshot = state.snapshot.load_full();
        (Rc::new(ProbeContext { state, client, scratch: RefCell::default(), budget }), snapshot)
    }
}

async fn answer(
    request: Request<Incoming>,
    closed: UnboundedSender<String>,
    manners: &Manners,
) -> Response<Full<Bytes>> {
    let session = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    if request.method() == Method::DELETE {
        closed.send(session.unwrap_or_default()).expect("it is looked at");
        let Some(status) = manners.end else { std::future::pending().await };
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = status;
        return answer;
    }
    let body = request.into_body().collect().await.expect("a message").to_bytes();
    let message: Value = serde_json::from_slice(&body).expect("JSON");
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = match message["method"].as_str() {
        Some("initialize") => StatusCode::OK,
        Some("notifications/initialized") => StatusCode::ACCEPTED,
        Some("ping") if let Some(pings) = &manners.pings => {
            pings.send_modify(|count| *count += 1);
            if manners.hangs {
                std::future::pending::<()>().await;
            }
            StatusCode::OK
        }
        _ => StatusCode::BAD_REQUEST,
    };
    if answer.status() == StatusCode::OK {
        let result = json!({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {}});
        let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        *answer.body_mut() = Full::from(text);
        answer.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
        answer.headers_mut().insert("mcp-session-id", "s1".parse().expect("a header"));
    }
    answer
}

/// It takes pings, and closes sessions.
fn answering(pings: watch::Sender<usize>, hangs: bool) -> Manners {
    Manners { end: Some(StatusCode::OK), pings: Some(pings), hangs }
}

/// The question to the only replica.
fn check(snapshot: &Snapshot) -> Check {
    let upstream = Arc::clone(&snapshot.upstreams[0]);
    let replica = Arc::clone(&upstream.replicas.load()[0]);
    Check { place: (upstream.id, replica.key), upstream, replica, session: None }
}

#[test]
fn a_session_in_which_a_server_refuses_to_be_asked_is_closed() {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async {
        let mut server =
            Server::start(Manners { end: Some(StatusCode::OK), pings: None, hangs: false }).await;
        let (asking, snapshot) = server.gateway();
        let checked = check(&snapshot).ask(asking, snapshot).await;
        assert_eq!(checked.verdict, ReplicaVerdict::Fit);
        assert!(checked.session.is_none());
        assert_eq!(server.closed().await.as_deref(), Some("s1"));
    });
}

#[test]
fn a_server_that_closes_no_sessions_is_known_at_once_and_asked_less_often() {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async {
        for end in [None, Some(StatusCode::METHOD_NOT_ALLOWED)] {
            let mut server = Server::start(Manners { end, pings: None, hangs: false }).await;
            let (asking, snapshot) = server.gateway();
            let asker = asking.asker(&snapshot, ReplicaSelection::Probe);
            let find = async || {
                let found = ask::find(&asker, &snapshot.upstreams[0], Era::Legacy);
                match timeout(Duration::from_secs(5), found).await.expect("the end is not waited for") {
                    EraFinding::Speaks { fresh_for, .. } => fresh_for,
                    other => panic!("{other:?}"),
                }
            };
            let fresh_for = find().await;
            assert_eq!(fresh_for > Duration::from_mins(30), end.is_some(), "{end:?} {fresh_for:?}");
            assert_eq!(server.closed().await.as_deref(), Some("s1"));
            if end.is_none() {
                continue;
            }
            // It refuses to be asked in sessions, too: another would not be better.
            let checked = check(&snapshot).ask(Rc::clone(&asking), Arc::clone(&snapshot)).await;
            assert_eq!((checked.verdict, checked.session.is_some()), (ReplicaVerdict::Fit, true));
            assert!(server.closed.try_recv().is_err());
        }
    });
}

#[test]
fn the_session_in_which_a_replica_is_asked_is_closed_at_the_end_of_the_gateway() {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async {
        let (pings, mut pinged) = watch::channel(0);
        let mut server = Server::start(answering(pings, false)).await;
        let (asking, _) = server.gateway();
        let prober = Prober::new(Arc::clone(&asking.state), asking.client.clone(), None);
        let stop = CancellationToken::new();
        let asked = spawn_local(prober.run(stop.clone()));
        // That of the question what it speaks is closed at once.
        assert_eq!(server.closed().await.as_deref(), Some("s1"));
        let second = pinged.wait_for(|count| *count >= 2);
        timeout(Duration::from_secs(20), second).await.expect("it is asked").expect("a server");
        assert!(server.closed.try_recv().is_err(), "one session does for all questions");
        stop.cancel();
        timeout(Duration::from_secs(20), asked).await.expect("it ends").expect("no panic");
        assert_eq!(server.closed().await.as_deref(), Some("s1"));
    });
}

#[test]
fn at_the_end_one_replica_that_hangs_holds_up_the_session_of_no_other() {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async {
        let (pings, mut pinged) = watch::channel(0);
        let (hanging, mut hung) = watch::channel(0);
        let mut server = Server::start(answering(pings, false)).await;
        let mut other = Server::start(answering(hanging, true)).await;
        let (asking, _) = Server::gateway_of(&[&server, &other]);
        let prober = Prober::new(Arc::clone(&asking.state), asking.client.clone(), None);
        let stop = CancellationToken::new();
        let asked = spawn_local(prober.run(stop.clone()));
        for server in [&mut server, &mut other] {
            assert_eq!(server.closed().await.as_deref(), Some("s1"));
        }
        for pinged in [&mut hung, &mut pinged] {
            let first = timeout(Duration::from_secs(20), pinged.wait_for(|count| *count >= 1)).await;
            first.expect("it is asked").expect("a server");
        }
        stop.cancel();
        assert_eq!(server.closed().await.as_deref(), Some("s1"));
        timeout(Duration::from_secs(20), asked).await.expect("it ends").expect("no panic");
    });
}
