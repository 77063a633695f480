//! The text of metrics, and a listener of its own for it: `GET /metrics`, and nothing else. So whoever scrapes needs neither
//! the token of operators nor a way to what they can do.
//!
//! Invariant: the text is made once at a time, whichever listener it is asked for at.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::sync::mpsc::Receiver;

use super::answers::{self, HttpAnswer, RefusedOperators, TEXT, not_allowed, page};
use super::connection_limiter::ConnectionLimiter;
use super::connections::{self, Answering};
use super::door;
use super::latest::Latest;
use super::socket::Socket;
use crate::context::state::State;
use net::tasks::Tasks;

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics as text.
pub(crate) struct MetricsText {
    state: Arc<State>,
    tasks: Tasks,
    latest: Latest<Bytes>,
    /// Brings up to date what is counted nowhere else.
    refresh: fn(&State),
}

impl MetricsText {
    pub(crate) fn new(state: Arc<State>, tasks: Tasks, refresh: fn(&State)) -> Self {
        Self { state, tasks, latest: Latest::default(), refresh }
    }

    pub(super) async fn answer(&self) -> HttpAnswer {
        let (state, refresh) = (Arc::clone(&self.state), self.refresh);
        let render = move || {
            refresh(&state);
            Bytes::from(state.render_metrics())
        };
        page(StatusCode::OK, PROMETHEUS_TEXT, self.latest.get(&self.tasks, render).await)
    }
}

/// Serves at the first of `sockets`, and at each that comes after it, in place of the one before; `None`: nowhere.
pub(crate) async fn serve(
    state: Arc<State>,
    tasks: Tasks,
    text: Rc<MetricsText>,
    mut sockets: Receiver<Option<Socket>>,
) {
    let limiter = ConnectionLimiter::new(state.metrics.gateway.admin_refused.with_label_values(&["evicted"]));
    let mut next = sockets.recv().await;
    while let Some(socket) = next {
        let Some(socket) = socket else {
            next = sockets.recv().await;
            continue;
        };
        tracing::info!(address = %socket, "metrics listening");
        let scrapes = Rc::new(Scrapes {
            state: Arc::clone(&state),
            text: Rc::clone(&text),
            refusals: RefusedOperators::new(&state, "metrics", socket.to_string()),
            is_named_freely: !socket.is_loopback(),
            is_left: Cell::new(false),
        });
        let acceptor = match socket.acceptor() {
            Ok(acceptor) => acceptor,
            Err(error) => return tracing::error!(%error, "cannot serve the metrics listener"),
        };
        next = tokio::select! {
            () = connections::serve(&acceptor, &limiter, &tasks, &scrapes) => None,
            next = sockets.recv() => next,
        };
        scrapes.is_left.set(true);
    }
    // Whoever changes it is gone; the process ends by its own clocks.
    std::future::pending::<()>().await;
}

/// Answers at one address.
struct Scrapes {
    state: Arc<State>,
    text: Rc<MetricsText>,
    refusals: RefusedOperators,
    is_named_freely: bool,
    /// Another address is in its place: what is still connected is not served by the rules of that one.
    is_left: Cell<bool>,
}

impl Answering for Scrapes {
    async fn answer(&self, request: Request<Incoming>) -> HttpAnswer {
        let scrapers = &self.state.snapshot.load_full().scrapers;
        let admitted = door::check_page(request.headers())
            .and_then(|()| door::check_operator(request.headers(), scrapers, self.is_named_freely));
        let mut answer = match admitted {
            Err(refused) => self.refusals.answer(refused).await,
            Ok(()) if self.is_left.get() || request.uri().path() != "/metrics" => {
                page(StatusCode::NOT_FOUND, TEXT, "there is /metrics\n")
            }
            Ok(()) if !matches!(*request.method(), Method::GET | Method::HEAD) => not_allowed("GET, HEAD"),
            Ok(()) => self.text.answer().await,
        };
        if self.is_left.get() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answers::close_doors(&mut answer);
        answer
    }
}
