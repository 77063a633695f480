//! Sessions that are opened while their replicas leave the upstream.

use std::cell::{OnceCell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

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
    upstream: OnceCell<Arc<Upstream>>,
    /// The replicas that opened sessions.
    opened: RefCell<Vec<SocketAddr>>,
}

impl Server {
    async fn start(leaving: usize) -> Rc<Self> {
        let first = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = first.local_addr().expect("an address").port();
        let second = TcpListener::bind(("127.0.0.2", port)).await.expect("the same port");
        let listeners = [first, second];
        let replicas = listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        let (upstream, opened) = (OnceCell::new(), RefCell::default());
        let server = Rc::new(Self { replicas, leaving, upstream, opened });
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
        let body =
            request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut answer = Response::new(Full::default());
        if message["method"] != "initialize" {
            *answer.status_mut() = StatusCode::ACCEPTED;
            return answer;
        }
        self.opened.borrow_mut().push(at);
        if self.opened.borrow().len() <= self.leaving {
            let others = self.replicas.iter().copied().filter(|replica| *replica != at).collect();
            let upstream = self.upstream.get().expect("an upstream");
            assert!(upstream.replicas.resolve(0, others, clock::now()), "{at} was in the name");
        }
        let result = json!({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {}});
        let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        *answer.body_mut() = Full::from(text);
        answer.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
        answer.headers_mut().insert("mcp-session-id", at.to_string().parse().expect("a header"));
        answer
    }
}

/// Opens a session. Returns its id, and the replicas that opened one.
async fn open_while(leaving: usize) -> (Result<String, InitializeError>, Vec<SocketAddr>) {
    let server = Server::start(leaving).await;
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
    let (offer, deadline) =
        (InitializeOffer::own(LegacyVersion::NEWEST), clock::now() + Duration::from_secs(20));
    let opened = open(&worker.asker(&view, Payer::GATEWAY), upstream, offer, deadline).await;
    let id =
        opened.map(|opened| opened.id.and_then(|id| Some(id.to_str().ok()?.to_owned())).unwrap_or_default());
    (id, server.opened.take())
}

#[test]
fn a_session_whose_replica_leaves_before_it_is_open_is_opened_at_another_once() {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async {
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
