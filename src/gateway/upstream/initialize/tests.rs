//! Sessions that are opened while their replicas leave the upstream, and those that come too late or half.

use std::cell::{OnceCell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::{InitializeError, InitializeOffer, open};
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::context::state::State;
use crate::context::worker::Worker;
use crate::telemetry::metrics::Metrics;
use crate::upstream::Upstream;
use protocol::error::UpstreamError;
use protocol::version::LegacyVersion;

/// Two replicas, of which the first `leaving` that open a session are no longer in the name when they answer.
struct Server {
    replicas: Vec<SocketAddr>,
    leaving: usize,
    style: AnswerStyle,
    upstream: OnceCell<Arc<Upstream>>,
    /// The replicas that opened sessions.
    opened: RefCell<Vec<SocketAddr>>,
    /// The sessions that were closed.
    closed: RefCell<Vec<String>>,
    is_closed: Notify,
    is_asked: Notify,
    /// The answer is not waited for any more.
    is_given_up: Notify,
}

/// The answer to `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerStyle {
    InTime,
    /// Once nobody waits for it.
    Late,
    /// With a stream that ends before the answer.
    BrokenOff,
}

impl Server {
    async fn start(leaving: usize, style: AnswerStyle) -> Rc<Self> {
        let first = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = first.local_addr().expect("an address").port();
        let second = TcpListener::bind(("127.0.0.2", port)).await.expect("the same port");
        let listeners = [first, second];
        let replicas = listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        let server = Rc::new(Self {
            replicas,
            leaving,
            style,
            upstream: OnceCell::new(),
            opened: RefCell::default(),
            closed: RefCell::default(),
            is_closed: Notify::new(),
            is_asked: Notify::new(),
            is_given_up: Notify::new(),
        });
        for listener in listeners {
            spawn_local(Rc::clone(&server).serve(listener));
        }
        server
    }

    async fn serve(self: Rc<Self>, listener: TcpListener) {
        let at = listener.local_addr().expect("an address");
        while let Ok((stream, _)) = listener.accept().await {
            let server = Rc::clone(&self);
            let service = service_fn(move |request| {
                let server = Rc::clone(&server);
                async move { Ok::<_, Infallible>(server.answer(at, request).await) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            spawn_local(http.serve_connection(TokioIo::new(stream), service));
        }
    }

    async fn answer(&self, at: SocketAddr, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() == Method::DELETE {
            let id = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
            self.closed.borrow_mut().extend(id.map(str::to_owned));
            self.is_closed.notify_one();
            return Response::new(Full::default());
        }
        let body =
            request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut answer = Response::new(Full::default());
        if message["method"] != "initialize" {
            *answer.status_mut() = StatusCode::ACCEPTED;
            return answer;
        }
        self.opened.borrow_mut().push(at);
        self.is_asked.notify_one();
        if self.opened.borrow().len() <= self.leaving {
            let others = self.replicas.iter().copied().filter(|replica| *replica != at).collect();
            let upstream = self.upstream.get().expect("an upstream");
            assert!(upstream.replicas.resolve(0, others, clock::now()), "{at} was in the name");
        }
        if self.style == AnswerStyle::Late {
            self.is_given_up.notified().await;
        }
        let result = json!({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {}});
        let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let (media, text) = match self.style {
            AnswerStyle::BrokenOff => ("text/event-stream", ": soon\n\n".to_owned()),
            AnswerStyle::InTime | AnswerStyle::Late => ("application/json", text),
        };
        *answer.body_mut() = Full::from(text);
        answer.headers_mut().insert("content-type", media.parse().expect("a header"));
        answer.headers_mut().insert("mcp-session-id", at.to_string().parse().expect("a header"));
        answer
    }
}

/// Opens a session within `patience`. Returns its id.
async fn open_within(server: &Rc<Server>, patience: Duration) -> Result<String, InitializeError> {
    let text = format!(
        "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n\
         [upstream.up]\nurl = \"http://up.example:{}/\"\n",
        server.replicas[0].port()
    );
    let config = config::parse(&text).expect("a configuration");
    let state = State::new(&config, Metrics::new(10).expect("metrics")).expect("a state");
    let worker = Worker::new(state, Arc::default(), &config.log, 100);
    let view = worker.view();
    let upstream = &view.snapshot.upstreams[0];
    upstream.replicas.resolve(0, server.replicas.clone(), clock::now());
    let _ = server.upstream.set(Arc::clone(upstream));
    let (offer, deadline) = (InitializeOffer::own(LegacyVersion::NEWEST), clock::now() + patience);
    let opened = open(&worker.asker(&view, Payer::GATEWAY), upstream, offer, deadline).await;
    opened.map(|opened| opened.id.and_then(|id| Some(id.to_str().ok()?.to_owned())).unwrap_or_default())
}

/// Opens a session while replicas leave. Returns its id, and the replicas that opened one.
async fn open_while(leaving: usize) -> (Result<String, InitializeError>, Vec<SocketAddr>) {
    let server = Server::start(leaving, AnswerStyle::InTime).await;
    let id = open_within(&server, Duration::from_secs(20)).await;
    (id, server.opened.take())
}

/// Runs a test, which must come to its end.
fn run(test: impl Future<Output = ()> + 'static) {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async { timeout(Duration::from_secs(20), test).await.expect("it ends") });
}

/// All sessions that were opened are closed.
async fn is_left_without_sessions(server: &Server) {
    while server.closed.borrow().len() < server.opened.borrow().len() {
        server.is_closed.notified().await;
    }
    let opened: Vec<String> = server.opened.borrow().iter().map(ToString::to_string).collect();
    assert_eq!(*server.closed.borrow(), opened);
    assert_eq!(opened.len(), 1);
}

#[test]
fn a_session_whose_replica_leaves_before_it_is_open_is_opened_at_another_once() {
    run(async {
        for leaving in [0, 1] {
            let (id, opened) = open_while(leaving).await;
            assert_eq!(opened.len(), leaving + 1, "{opened:?}");
            assert_eq!(id, Ok(opened[leaving].to_string()), "{opened:?}");
        }
        let (id, opened) = open_while(2).await;
        assert_eq!(id, Err(UpstreamError::SessionLost.into()));
        assert_eq!(opened.len(), 2, "not for ever");
    });
}

#[test]
fn a_session_that_is_opened_after_nobody_waits_for_it_is_closed() {
    run(async {
        let server = Server::start(0, AnswerStyle::Late).await;
        // Long enough for the question to arrive.
        let opened = open_within(&server, Duration::from_secs(1)).await;
        assert_eq!(opened, Err(UpstreamError::TimedOut.into()));
        server.is_given_up.notify_one();
        is_left_without_sessions(&server).await;
    });
}

#[test]
fn a_session_whose_opening_is_dropped_is_closed_once_it_is_open() {
    run(async {
        let server = Server::start(0, AnswerStyle::Late).await;
        tokio::select! {
            opened = open_within(&server, Duration::from_secs(20)) => panic!("{opened:?}"),
            () = server.is_asked.notified() => {}
        }
        server.is_given_up.notify_one();
        is_left_without_sessions(&server).await;
    });
}

#[test]
fn a_session_of_which_only_the_id_has_come_is_closed() {
    run(async {
        let server = Server::start(0, AnswerStyle::BrokenOff).await;
        let opened = open_within(&server, Duration::from_secs(20)).await;
        assert_eq!(opened, Err(UpstreamError::Nonsense.into()));
        is_left_without_sessions(&server).await;
    });
}
