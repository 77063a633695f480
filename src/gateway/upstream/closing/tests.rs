//! Sessions that are closed at servers which do not make that easy, and those that are opened too late.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
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
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_local;

use super::*;
use crate::access::limit::payer::Payer;
use crate::context::state::State;
use crate::context::worker::Worker;
use crate::telemetry::metrics::Metrics;
use crate::upstream::health::breaker::{BreakerState, Pass, RequestFault};
use crate::upstream::initialize::{InitializeError, InitializeOffer, InitializedSession, open};

thread_local! {
    /// The sessions that upstreams were asked to forget.
    static ASKED: RefCell<HashSet<String>> = RefCell::default();
}

pub(super) fn note_asked(id: &HeaderValue) {
    ASKED.with_borrow_mut(|asked| asked.extend(id.to_str().ok().map(str::to_owned)));
}

/// True if this thread has asked an upstream to forget it.
pub(crate) fn was_asked_to_forget(id: &str) -> bool {
    ASKED.with_borrow(|asked| asked.contains(id))
}

/// Sessions at once that one upstream opens too late.
const MANY: usize = 20;
/// Nothing that is tested here takes as long.
const SOON: Duration = Duration::from_secs(5);

/// A server that numbers its sessions.
struct Server {
    port: u16,
    /// Answers to `initialize` that may be given.
    may_open: Semaphore,
    opened: Cell<usize>,
    /// Sessions that it was asked to open.
    asked: Cell<usize>,
    /// The answer to the end of a session; `None`: there is none.
    end: Cell<Option<StatusCode>>,
    /// The revision that it chooses; `None`: the one that it is offered.
    chosen: Cell<Option<&'static str>>,
    /// Sessions that it was asked to forget.
    left: RefCell<HashSet<String>>,
    /// The revisions that this named, in order.
    named: RefCell<Vec<Option<String>>>,
    changed: Notify,
}

impl Server {
    async fn start(may_open: usize) -> Rc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = Self::at(listener.local_addr().expect("an address").port(), may_open);
        let serving = Rc::clone(&server);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = Rc::clone(&serving);
                let service = service_fn(move |request| {
                    let server = Rc::clone(&server);
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                spawn_local(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        server
    }

    fn at(port: u16, may_open: usize) -> Rc<Self> {
        Rc::new(Self {
            port,
            may_open: Semaphore::new(may_open),
            opened: Cell::new(0),
            asked: Cell::new(0),
            end: Cell::new(Some(StatusCode::OK)),
            chosen: Cell::default(),
            left: RefCell::default(),
            named: RefCell::default(),
            changed: Notify::new(),
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut answer = Response::new(Full::default());
        if request.method() == Method::DELETE {
            let text = |name: &str| request.headers().get(name)?.to_str().ok().map(str::to_owned);
            self.named.borrow_mut().push(text("mcp-protocol-version"));
            self.left.borrow_mut().extend(text("mcp-session-id"));
            self.changed.notify_waiters();
            let Some(status) = self.end.get() else { pending().await };
            *answer.status_mut() = status;
            return answer;
        }
        let body = request.into_body().collect().await.expect("a message").to_bytes();
        let message: Value = serde_json::from_slice(&body).expect("JSON");
        if message["method"] != "initialize" {
            *answer.status_mut() = StatusCode::ACCEPTED;
            return answer;
        }
        self.asked.set(self.asked.get() + 1);
        self.changed.notify_waiters();
        self.may_open.acquire().await.expect("it is open").forget();
        self.opened.set(self.opened.get() + 1);
        let offered = message["params"]["protocolVersion"].as_str().expect("a revision");
        let result = json!({"protocolVersion": self.chosen.get().unwrap_or(offered), "capabilities": {}});
        let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        *answer.body_mut() = Full::from(text);
        let headers = answer.headers_mut();
        headers.insert("content-type", "application/json".parse().expect("a header"));
        headers.insert("mcp-session-id", format!("s{}", self.opened.get()).parse().expect("a header"));
        answer
    }

    /// It was asked to forget so many sessions.
    async fn is_left_by(&self, count: usize) {
        self.is_so(|| self.left.borrow().len() >= count).await;
    }

    async fn is_so(&self, is_so: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so() {
                return;
            }
            changed.await;
        }
    }
}

/// A gateway with an upstream for each of these servers.
struct Gateway {
    state: Arc<State>,
    worker: Rc<Worker>,
}

impl Gateway {
    fn new(servers: &[&Server]) -> Self {
        let config = config_of(servers);
        let state = State::new(&config, Metrics::new(10).expect("metrics")).expect("a state");
        let worker = Worker::new(Arc::clone(&state), Arc::default(), &config.log, 100);
        Self { state, worker }
    }

    fn upstream(&self, number: usize) -> Arc<Upstream> {
        Arc::clone(&self.state.snapshot.load().upstreams[number])
    }

    async fn open(&self, number: usize, patience: Duration) -> Result<InitializedSession, InitializeError> {
        let (view, deadline) = (self.worker.view(), clock::now() + patience);
        let (asker, offer) =
            (self.worker.asker(&view, Payer::GATEWAY), InitializeOffer::own(LegacyVersion::NEWEST));
        open(&asker, &self.upstream(number), offer, deadline).await
    }

    /// So many sessions are asked for, and nobody waits for them once the server has been asked.
    async fn give_up(&self, number: usize, server: &Server, count: usize) {
        let opening = (0..count).map(|_| self.open(number, 4 * SOON));
        tokio::select! {
            opened = futures_util::future::join_all(opening) => panic!("{opened:?}"),
            () = server.is_so(|| server.asked.get() >= count) => {}
        }
    }

    /// Sessions with these upstreams that nobody needs any more.
    async fn left(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<LeftSession> {
        let mut sessions = Vec::new();
        for number in numbers {
            let opened = self.open(number, SOON).await.expect("a session");
            sessions.extend(LeftSession::new(self.upstream(number), &opened.named()));
        }
        sessions
    }

    async fn close(&self, numbers: impl IntoIterator<Item = usize>) {
        self.worker.client.close_sessions(self.left(numbers).await);
    }

    fn late_answers(&self, number: usize) -> i64 {
        self.upstream(number).series.late_answers.get()
    }

    /// Every task has ended.
    async fn rests(&self) {
        timeout(SOON, self.worker.client.tasks.wait()).await.expect("nothing goes on");
    }
}

fn config_of(servers: &[&Server]) -> config::Config {
    let names: Vec<String> = (0..servers.len()).map(|number| format!("u{number}")).collect();
    let mut text = format!(
        "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nnames = \"prefixed\"\nupstreams = {names:?}\n"
    );
    for (name, server) in names.iter().zip(servers) {
        write!(text, "[upstream.{name}]\nurl = \"http://127.0.0.1:{}/\"\n", server.port).expect("a text");
    }
    config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f", &text)))
}

/// Runs a test, which must come to its end.
fn run(test: impl Future<Output = ()> + 'static) {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async { timeout(4 * SOON, test).await.expect("it ends") });
}

#[test]
fn an_answer_that_nobody_waits_for_does_not_hold_up_the_end() {
    run(async {
        let server = Server::start(0).await;
        let gateway = Gateway::new(&[&server]);
        gateway.give_up(0, &server, 1).await;
        assert_eq!(gateway.late_answers(0), 1);
        gateway.worker.client.host.close();
        gateway.rests().await;
        assert_eq!(gateway.late_answers(0), 0);
    });
}

#[test]
fn an_answer_that_nobody_waits_for_does_not_hold_an_upstream_that_a_reload_removes() {
    run(async {
        let [stays, goes] = [Server::start(0).await, Server::start(0).await];
        let gateway = Gateway::new(&[&stays, &goes]);
        gateway.give_up(1, &goes, 1).await;
        let gone = gateway.upstream(1);
        assert_eq!(gone.series.late_answers.get(), 1);
        let config = config_of(&[&stays]);
        let prepared = gateway.state.prepare(&config, &[0]).expect("a state");
        gateway.state.take_up(&config, prepared);
        gateway.rests().await;
        drop(gateway.worker.view());
        assert_eq!(Arc::strong_count(&gone), 1, "nobody has it but this test");
    });
}

#[test]
fn an_upstream_that_is_slow_leaves_room_for_the_sessions_of_others() {
    run(async {
        let [slow, other] = [Server::start(0).await, Server::start(0).await];
        let gateway = Gateway::new(&[&slow, &other]);
        gateway.give_up(0, &slow, MANY).await;
        gateway.give_up(1, &other, 1).await;
        other.may_open.add_permits(1);
        timeout(SOON, other.is_left_by(1)).await.expect("it is closed");
        let waiting = usize::try_from(gateway.late_answers(0)).expect("a count");
        assert!((8..MANY).contains(&waiting), "{waiting}");
        slow.may_open.add_permits(MANY);
        timeout(SOON, slow.is_left_by(waiting)).await.expect("they are closed");
        gateway.rests().await;
        let late = &gateway.upstream(0).series.late_sessions;
        assert_eq!((late.get(), gateway.late_answers(0)), (waiting as u64, 0));
    });
}

#[test]
fn a_session_is_closed_at_its_replica_though_that_is_out_of_order() {
    run(async {
        let server = Server::start(1).await;
        let gateway = Gateway::new(&[&server]);
        let opened = gateway.open(0, SOON).await.expect("a session");
        let upstream = gateway.upstream(0);
        let replica = Arc::clone(&upstream.replicas.load()[0]);
        while replica.breaker.0.state() == BreakerState::Closed {
            replica.note_failure(Pass::Free, RequestFault::Broken);
        }
        gateway.worker.client.close_sessions(LeftSession::new(upstream, &opened.named()));
        timeout(SOON, server.is_left_by(1)).await.expect("it is closed");
    });
}

#[test]
fn a_server_that_lets_no_session_be_closed_is_asked_once_and_is_fit() {
    run(async {
        for status in [500, 501, 403, 405, 307, 503] {
            let server = Server::start(MANY).await;
            server.end.set(Some(StatusCode::from_u16(status).expect("a status")));
            let gateway = Gateway::new(&[&server]);
            gateway.close([0; MANY]).await;
            gateway.rests().await;
            assert_eq!(server.left.borrow().len(), MANY, "{status}");
            let upstream = gateway.upstream(0);
            let replica = &upstream.replicas.load()[0];
            assert_eq!(replica.breaker.0.state(), BreakerState::Closed, "{status}");
            assert!(replica.faults.latest().is_none(), "{status}: {:?}", replica.faults.latest());
        }
    });
}

#[test]
fn a_server_that_closes_slowly_holds_up_neither_others_nor_the_end() {
    run(async {
        let [slow, other] = [Server::start(MANY).await, Server::start(1).await];
        slow.end.set(None);
        let gateway = Gateway::new(&[&slow, &other]);
        gateway.close([0; MANY].into_iter().chain([1])).await;
        timeout(SOON, other.is_left_by(1)).await.expect("it is closed");
        gateway.worker.client.host.close();
        gateway.rests().await;
    });
}

#[test]
fn all_sessions_that_are_waited_for_are_closed_side_by_side() {
    run(async {
        let [slow, other] = [Server::start(MANY).await, Server::start(1).await];
        slow.end.set(None);
        let gateway = Gateway::new(&[&slow, &other]);
        let left = gateway.left([0; MANY].into_iter().chain([1])).await;
        tokio::select! {
            () = gateway.worker.client.close_all(left) => panic!("the slow one answers nothing"),
            closed = timeout(SOON, other.is_left_by(1)) => closed.expect("it is closed"),
        }
    });
}

#[test]
fn only_an_answer_says_that_a_server_keeps_its_sessions() {
    run(async {
        let answers = [405, 501, 500, 400].map(|status| (status, true));
        let others = [200, 204, 404, 429, 502, 503, 504].map(|status| (status, false));
        for (status, keeps) in answers.into_iter().chain(others) {
            let server = Server::start(1).await;
            server.end.set(Some(StatusCode::from_u16(status).expect("a status")));
            let gateway = Gateway::new(&[&server]);
            let left = gateway.left([0]).await;
            gateway.worker.client.close_all(left.into_iter().map(LeftSession::known)).await;
            assert_eq!(gateway.upstream(0).facts.keeps_sessions(), keeps, "{status}");
        }
        let unused = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gone = Server::at(unused.local_addr().expect("an address").port(), 0);
        drop(unused);
        let gateway = Gateway::new(&[&gone]);
        let id = HeaderValue::from_static("s1");
        let version = Some(LegacyVersion::NEWEST.as_str());
        let named = SessionHeaders { id: Some(&id), version, replica: None, shown: None };
        let left = LeftSession::new(gateway.upstream(0), &named).map(LeftSession::known);
        gateway.worker.client.close_all(left).await;
        assert!(!gateway.upstream(0).facts.keeps_sessions());
    });
}

#[test]
fn the_end_of_a_session_names_the_revision_that_was_agreed_upon_or_none() {
    run(async {
        let server = Server::start(0).await;
        let gateway = Gateway::new(&[&server]);
        server.chosen.set(Some("2025-06-18"));
        gateway.give_up(0, &server, 1).await;
        server.may_open.add_permits(1);
        server.is_left_by(1).await;
        server.may_open.add_permits(2);
        gateway.close([0]).await;
        server.is_left_by(2).await;
        server.chosen.set(Some("1999-01-01"));
        assert!(gateway.open(0, SOON).await.is_err());
        server.is_left_by(3).await;
        let agreed = Some("2025-06-18".to_owned());
        assert_eq!(*server.named.borrow(), [None, agreed, None]);
    });
}
