//! Replicas that are asked, and the sessions in which they are.

use std::cell::RefCell;
use std::convert::Infallible;
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
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::*;
use crate::context::state::State;
use crate::context::worker::Worker;
use crate::telemetry::metrics::Metrics;

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

/// Opens a session for whoever asks, and refuses everything in it. Says which sessions are closed.
async fn answer(request: Request<Incoming>, closed: UnboundedSender<String>) -> Response<Full<Bytes>> {
    let session = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    if request.method() == Method::DELETE {
        closed.send(session.unwrap_or_default()).expect("it is looked at");
        return Response::new(Full::default());
    }
    let body = request.into_body().collect().await.expect("a message").to_bytes();
    let message: Value = serde_json::from_slice(&body).expect("JSON");
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = match message["method"].as_str() {
        Some("initialize") => StatusCode::OK,
        Some("notifications/initialized") => StatusCode::ACCEPTED,
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

#[test]
fn a_session_in_which_a_server_refuses_to_be_asked_is_closed() {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, mut closed) = unbounded_channel();
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request| {
                    let sender = sender.clone();
                    async move { Ok::<_, Infallible>(answer(request, sender).await) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                spawn_local(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        let text = format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"u\"]\n\
             [upstream.u]\nurl = \"http://127.0.0.1:{port}/\"\neras = [\"legacy\"]\n"
        );
        let config = config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f", &text)));
        let state = State::new(&config, Metrics::new(10).expect("metrics")).expect("a state");
        let worker = Worker::new(Arc::clone(&state), Arc::default(), &config.log, 100);
        let (client, budget) = (worker.client.clone(), Arc::clone(&state.buffered));
        let snapshot = state.snapshot.load_full();
        let asking = Rc::new(ProbeContext { state, client, scratch: RefCell::default(), budget });
        let upstream = Arc::clone(&snapshot.upstreams[0]);
        let replica = Arc::clone(&upstream.replicas.load()[0]);
        let check = Check { place: (upstream.id, replica.key), upstream, replica, session: None };
        let checked = check.ask(asking, snapshot).await;
        assert_eq!(checked.verdict, ReplicaVerdict::Fit);
        assert!(checked.session.is_none());
        let closed = timeout(Duration::from_secs(20), closed.recv()).await.expect("it is closed");
        assert_eq!(closed.as_deref(), Some("s1"));
    });
}
