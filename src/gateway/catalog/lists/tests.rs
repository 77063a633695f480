//! The catalog from inside, where changes can be counted and eras chosen: one thread, and a scripted server on it.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, Semaphore};

use super::{ListRequest, learn, list, refetch_tools};
use crate::clock;
use crate::context::state::State;
use crate::context::worker::Worker;
use crate::identity::Principal;
use crate::tables::lists::{Dialect, List};
use crate::telemetry::metrics::Metrics;
use crate::upstream::Upstream;
use crate::upstream::changes::ChangedList;
use crate::upstream::facts::EraFacts;
use protocol::error::{Error, UpstreamError};
use protocol::version::LegacyVersion;

/// A server whose one tool is called `t` and a number, which grows when it is told to.
#[derive(Clone)]
struct Server {
    script: Rc<Script>,
}

struct Script {
    /// The number.
    version: Cell<u32>,
    ttl_ms: Cell<u64>,
    is_failing: Cell<bool>,
    /// Sessions opened so far; the last one is known, the others are forgotten.
    sessions: Cell<u32>,
    is_forgetful: Cell<bool>,
    /// It refuses lists with 400, in sessions that it knows.
    is_refusing: Cell<bool>,
    /// Sessions that were closed.
    closed: RefCell<Vec<String>>,
    is_closed: Notify,
    /// How many answers to lists may be given.
    may_answer: Semaphore,
    /// Methods and headers that arrived.
    seen: RefCell<Vec<(String, Option<String>)>>,
}

impl Server {
    fn new() -> Self {
        Self {
            script: Rc::new(Script {
                version: Cell::new(0),
                ttl_ms: Cell::new(3_600_000),
                is_failing: Cell::new(false),
                sessions: Cell::new(0),
                is_forgetful: Cell::new(false),
                is_refusing: Cell::new(false),
                closed: RefCell::default(),
                is_closed: Notify::new(),
                may_answer: Semaphore::new(Semaphore::MAX_PERMITS),
                seen: RefCell::default(),
            }),
        }
    }

    /// How many requests of this method have arrived.
    fn count(&self, method: &str) -> usize {
        self.script.seen.borrow().iter().filter(|(seen, _)| seen == method).count()
    }

    async fn listen(&self) -> u16 {
        let listener = net::socket::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::task::spawn_local(connection);
            }
        });
        port
    }

    async fn answer(&self, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
        let script = &self.script;
        let session = request.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        if request.method() == http::Method::DELETE {
            script.closed.borrow_mut().extend(session);
            script.is_closed.notify_one();
            return Response::new(Full::default());
        }
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let message: Value = serde_json::from_slice(&body).unwrap();
        let method = message["method"].as_str().unwrap().to_owned();
        script.seen.borrow_mut().push((method.clone(), session.clone()));
        let is_known = |id: &str| id == format!("s{}", script.sessions.get()) && !script.is_forgetful.get();
        let (status, result) = match (&*method, session) {
            ("initialize", None) => {
                script.sessions.set(script.sessions.get() + 1);
                (200, json!({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {}}))
            }
            ("notifications/initialized", Some(_)) => (202, Value::Null),
            (_, Some(id)) if !is_known(&id) => (404, Value::Null),
            _ if script.is_refusing.get() => (400, Value::Null),
            _ if script.is_failing.get() => (500, Value::Null),
            _ => {
                // What is answered is decided when the request comes, as a slow server would.
                let name = format!("t{}", script.version.get());
                script.may_answer.acquire().await.unwrap().forget();
                (
                    200,
                    json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}], "ttlMs": script.ttl_ms.get(), "resultType": "complete"}),
                )
            }
        };
        let text = match &result {
            Value::Null => String::new(),
            result => json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string(),
        };
        Response::builder()
            .status(StatusCode::from_u16(status).unwrap())
            .header("content-type", "application/json")
            .header("mcp-session-id", format!("s{}", script.sessions.get()))
            .body(Full::from(text))
            .unwrap()
    }
}

/// A worker with one transparent endpoint over the server.
struct Bench {
    server: Server,
    worker: Rc<Worker>,
}

impl Bench {
    async fn new(lines: &str) -> Self {
        let server = Server::new();
        let port = server.listen().await;
        let text = format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n[upstream.up]\nurl = \"http://127.0.0.1:{port}/\"\nlist_timeout = \"2s\"\n{lines}\n"
        );
        let config = config::parse(&text).unwrap();
        let state = State::new(&config, Metrics::new(10).unwrap()).unwrap();
        let bench = Self { server, worker: Worker::new(state, Arc::default(), &config.log, 100) };
        // Nobody asks it, and so nobody waits for what it says.
        bench.upstream().facts.publish(EraFacts { was_tried: true, ..EraFacts::default() });
        bench
    }

    fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&self.worker.view().snapshot.upstreams[0])
    }

    async fn ask(&self, dialect: Dialect<&[u8]>) -> Result<Value, Error> {
        let view = self.worker.view();
        let class = view.endpoints[0].policy.class_of(&Principal::Anonymous);
        let ask = ListRequest {
            list: List::Tools,
            dialect,
            cursor: None,
            id: "7",
            class: &class,
            asker: None,
            owners: &[],
        };
        let answer = list(&self.worker, &view, &view.endpoints[0], ask).await?;
        Ok(serde_json::from_slice(&answer.to_bytes()).unwrap())
    }

    /// The name of the one tool, and its `ttlMs`.
    async fn tool(&self) -> (String, u64) {
        let answer = self.ask(Dialect::Modern(b"{}")).await.unwrap();
        let result = &answer["result"];
        assert_eq!((&answer["id"], &result["resultType"]), (&json!(7), &json!("complete")), "{answer}");
        (result["tools"][0]["name"].as_str().unwrap().to_owned(), result["ttlMs"].as_u64().unwrap())
    }

    /// The server has another list, and says so.
    fn change(&self) {
        let version = &self.server.script.version;
        version.set(version.get() + 1);
        self.worker.state.hub.list_changed(&self.upstream(), ChangedList::Tools);
    }
}

fn run(test: impl Future<Output = ()> + 'static) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    let test = async { tokio::time::timeout(Duration::from_secs(20), test).await.expect("the test hangs") };
    runtime.block_on(test);
}

#[test]
fn what_changed_is_fetched_before_it_is_given_out() {
    run(async {
        let bench = Bench::new("").await;
        assert_eq!(bench.tool().await.0, "t0");
        bench.server.script.version.set(1);
        assert_eq!(bench.tool().await.0, "t0", "fresh, and nobody said that it changed");
        bench.worker.state.hub.list_changed(&bench.upstream(), ChangedList::Prompts);
        assert_eq!(bench.tool().await.0, "t0", "another list changed");
        bench.worker.state.hub.list_changed(&bench.upstream(), ChangedList::Tools);
        let (name, ttl_ms) = bench.tool().await;
        assert_eq!((&*name, ttl_ms > 0), ("t1", true));
        assert_eq!(bench.server.count("tools/list"), 2);
    });
}

#[test]
fn what_is_invalid_is_better_than_nothing() {
    run(async {
        let bench = Bench::new("stale_while_revalidate = \"1h\"").await;
        bench.tool().await;
        bench.server.script.is_failing.set(true);
        bench.change();
        assert_eq!(bench.tool().await, ("t0".into(), 0), "the last good one, which is not for keeping");
        bench.server.script.is_failing.set(false);
        assert_eq!(bench.tool().await.0, "t1");
    });
}

#[test]
fn what_is_invalid_is_given_out_only_after_the_deadline() {
    run(async {
        let bench = Bench::new("").await;
        bench.tool().await;
        let script = Rc::clone(&bench.server.script);
        script.may_answer.forget_permits(Semaphore::MAX_PERMITS);
        bench.change();
        let started = clock::now();
        assert_eq!(bench.tool().await, ("t0".into(), 0));
        assert!(clock::since(started) >= Duration::from_secs(2), "{:?}", clock::since(started));
    });
}

#[test]
fn a_list_fetched_before_a_change_answers_nobody_who_asked_after_it() {
    run(async {
        let bench = Rc::new(Bench::new("").await);
        let script = Rc::clone(&bench.server.script);
        script.may_answer.forget_permits(Semaphore::MAX_PERMITS);
        let early = {
            let bench = Rc::clone(&bench);
            tokio::task::spawn_local(async move { bench.tool().await })
        };
        while bench.server.count("tools/list") == 0 {
            tokio::task::yield_now().await;
        }
        bench.change();
        let late = {
            let bench = Rc::clone(&bench);
            tokio::task::spawn_local(async move { bench.tool().await })
        };
        script.may_answer.add_permits(10);
        assert_eq!(early.await.unwrap(), ("t0".into(), 0), "true when it was asked, and invalid since");
        assert_eq!(late.await.unwrap().0, "t1");
        assert_eq!(bench.server.count("tools/list"), 2);
    });
}

#[test]
fn a_storm_of_changes_is_a_breeze_of_fetches() {
    run(async {
        let bench = Rc::new(Bench::new("").await);
        let started = clock::now();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let bench = Rc::clone(&bench);
                tokio::task::spawn_local(async move {
                    while clock::since(started) < Duration::from_millis(500) {
                        bench.change();
                        let before = bench.server.script.version.get();
                        let (name, _) = bench.tool().await;
                        let listed: u32 = name[1..].parse().unwrap();
                        assert!(listed >= before, "{listed} is older than what was announced, {before}");
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let fetches = bench.server.count("tools/list");
        let most = usize::try_from(clock::since(started).as_millis() / 100).unwrap() + 2;
        assert!((2..=most).contains(&fetches), "{fetches} fetches in {:?}", clock::since(started));
    });
}

#[test]
fn a_client_that_leaves_cancels_nothing() {
    run(async {
        let bench = Bench::new("").await;
        let script = Rc::clone(&bench.server.script);
        script.may_answer.forget_permits(Semaphore::MAX_PERMITS);
        let impatient = tokio::time::timeout(Duration::from_millis(50), bench.tool()).await;
        assert!(impatient.is_err());
        script.may_answer.add_permits(10);
        assert_eq!(bench.tool().await.0, "t0");
        assert_eq!(bench.server.count("tools/list"), 1, "the fetch went on without its client");
    });
}

#[test]
fn the_same_list_is_the_same_bytes_in_memory() {
    run(async {
        let bench = Bench::new("").await;
        bench.server.script.ttl_ms.set(0);
        let mut places = Vec::new();
        for _ in 0..3 {
            let view = bench.worker.view();
            let dialect = Dialect::Modern(&b"{}"[..]);
            let class = view.endpoints[0].policy.class_of(&Principal::Anonymous);
            let ask = ListRequest {
                list: List::Tools,
                dialect,
                cursor: None,
                id: "1",
                class: &class,
                asker: None,
                owners: &[],
            };
            let answer = list(&bench.worker, &view, &view.endpoints[0], ask).await.unwrap();
            places.push(answer.iter().last().unwrap().as_ptr());
        }
        assert_eq!(bench.server.count("tools/list"), 3, "never fresh");
        assert!(places.iter().all(|place| *place == places[0]), "merged once");
    });
}

#[test]
fn a_tools_list_is_fetched_again_once_in_a_while() {
    run(async {
        let bench = Bench::new("").await;
        let (view, upstream) = (bench.worker.view(), bench.upstream());
        for expected in [1, 1] {
            refetch_tools(&bench.worker, &view, &upstream).await;
            assert_eq!(bench.server.count("tools/list"), expected);
        }
        // It is the list that a client with all capabilities gets.
        bench.ask(Dialect::Modern(learn::CAPABILITIES.as_bytes())).await.unwrap();
        assert_eq!(bench.server.count("tools/list"), 1);
    });
}

#[test]
fn a_legacy_list_comes_over_a_session_of_the_gateway() {
    run(async {
        let bench = Bench::new("").await;
        let legacy = Dialect::Legacy(LegacyVersion::V2025_06_18, &b"{}"[..]);
        let expected = json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": [{"name": "t0", "inputSchema": {"type": "object"}}]}});
        assert_eq!(bench.ask(legacy).await.unwrap(), expected, "and nothing else");
        bench.server.script.version.set(1);
        assert_eq!(
            bench.ask(legacy).await.unwrap()["result"]["tools"][0]["name"],
            "t0",
            "it said it is fresh"
        );
        bench.change();
        assert_eq!(bench.ask(legacy).await.unwrap()["result"]["tools"][0]["name"], "t2");
        assert_eq!(
            (bench.server.count("initialize"), bench.server.count("notifications/initialized")),
            (1, 1)
        );

        // The server was restarted: the session is opened again.
        bench.server.script.sessions.set(10);
        bench.change();
        assert_eq!(bench.ask(legacy).await.unwrap()["result"]["tools"][0]["name"], "t3");
        assert_eq!(bench.server.count("initialize"), 2);

        // But not for ever.
        bench.server.script.is_forgetful.set(true);
        bench.change();
        assert_eq!(bench.ask(legacy).await.unwrap()["result"]["tools"][0]["name"], "t3", "the last good one");
        assert_eq!(bench.server.count("initialize"), 3);
        let other = bench.ask(Dialect::Legacy(LegacyVersion::V2024_11_05, b"{}")).await;
        assert_eq!(other.unwrap_err(), Error::Upstream(UpstreamError::SessionLost));
        assert_eq!(bench.server.count("initialize"), 5);
    });
}

#[test]
fn a_session_that_its_server_may_still_know_is_closed_before_it_is_forgotten() {
    run(async {
        let bench = Bench::new("").await;
        let script = &bench.server.script;
        script.is_refusing.set(true);
        let refused = bench.ask(Dialect::Legacy(LegacyVersion::V2024_11_05, b"{}")).await;
        assert_eq!(refused.unwrap_err(), Error::Upstream(UpstreamError::SessionLost));
        assert_eq!(bench.server.count("initialize"), 2);
        while script.closed.borrow().len() < 2 {
            script.is_closed.notified().await;
        }
        let mut closed = script.closed.take();
        closed.sort_unstable();
        assert_eq!(closed, ["s1", "s2"]);
    });
}
