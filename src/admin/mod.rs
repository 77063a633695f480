//! The admin listener: `/metrics` for Prometheus, `/livez` and `/readyz` for whoever watches the process.
//!
//! Served by the control thread, so that a busy data path does not delay it and it never delays a call. It has
//! no authentication: bind it to loopback or to a network that only operators reach.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::state::State;
use crate::tasks::Tasks;

/// Connections served at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_AGE_MAX: Duration = Duration::from_mins(1);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves until the process ends.
pub async fn serve(state: Arc<State>, tasks: Tasks, socket: std::net::TcpListener) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot serve the admin listener"),
    };
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept on the admin listener");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let state = Arc::clone(&state);
        tasks.spawn(async move {
            let service = service_fn(|request| {
                let response = answer(&state, &request);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // A reader that stops reading must not take the place of the next.
            if let Ok(Err(error)) = timeout(CONNECTION_AGE_MAX, connection).await {
                tracing::debug!(%error, "admin connection ended");
            }
            drop(permit);
        });
    }
}

fn answer(state: &State, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "use GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/readyz" if state.drain.is_quiet() => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n"),
        "/livez" | "/readyz" => page(StatusCode::OK, TEXT, "ok\n"),
        "/metrics" => match state.render_metrics() {
            Ok(text) => page(StatusCode::OK, PROMETHEUS_TEXT, text),
            Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        },
        _ => page(StatusCode::NOT_FOUND, TEXT, "there is /metrics, /livez and /readyz\n"),
    }
}

fn page(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
