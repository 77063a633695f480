//! The demo upstreams: two small MCP servers that run inside the process, for `trunkline demo` and for our
//! own tests.
//!
//! `weather` has invented, deterministic data and only reads; `notes` keeps notes in memory, asks before it
//! deletes one and tells its subscribers what changed. Between them they use every feature of revision
//! 2026-07-28 that a proxy has to carry: structured output, mirrored parameters, progress, multi round-trip
//! requests, caching hints, pages, completion, subscriptions and UI resources. Clients of the revisions before
//! it, from 2024-11-05 on, open a session and get the same without what their era lacks.
//!
//! The way of a request: this module accepts, `http` checks the exchange, `message` reads it, `modern` or `legacy`
//! checks what its era asks and makes it a `request`, `methods` answers it from `weather` or `notes`.
//!
//! What is deliberately absent: no code is shared with the proxy, so that a mistake in one is noticed by the
//! other; no authentication, no logging, nothing that leaves the machine. The servers listen on loopback only.
//!
//! Invariants: everything is bounded (connections, bodies, notes, subscriptions, sessions), nothing a client
//! sends can panic, and dropping or stopping [`DemoServer::serve`] ends every connection it accepted.

mod cities;
mod confirmation;
mod headers;
mod http;
mod keyed_table;
mod legacy;
mod listen;
mod message;
mod methods;
mod modern;
mod notebook;
mod notes;
mod questions;
mod request;
mod rpc;
mod schema;
#[cfg(test)]
mod tests;
mod weather;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::http::DemoEndpoint;
use self::methods::{McpServer, ServerContent};

const CONNECTIONS_MAX: usize = 512;
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// For a request's head, which includes the idle time before it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
/// Before accepting again after an error, which is nearly always a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long open exchanges may take to end after the stop.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Which demo upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoKind {
    /// Forecasts for six cities. Nothing ever changes; every result may be cached by anyone.
    Weather,
    /// A notebook in memory, with two notes at the start. Its notes are private and change.
    Notes,
}

/// A demo upstream that has its address, but serves only inside [`DemoServer::serve`].
pub struct DemoServer {
    /// Where it listens: 127.0.0.1 and a port chosen by the system.
    pub address: SocketAddr,
    kind: DemoKind,
    listener: TcpListener,
}

impl DemoServer {
    /// Takes a free port on 127.0.0.1. Clients can connect from now on and are answered once `serve` runs.
    pub async fn bind(kind: DemoKind) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, kind, listener })
    }

    /// The MCP endpoint.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, http::PATH)
    }

    /// Serves until `stop`; then subscriptions end with their result and open exchanges have a second to finish.
    pub async fn serve(self, stop: CancellationToken) {
        let content: Box<dyn ServerContent> = match self.kind {
            DemoKind::Weather => Box::new(weather::Weather),
            DemoKind::Notes => Box::new(notes::Notes::new()),
        };
        let endpoint = Arc::new(DemoEndpoint::new(McpServer::new(content, stop.clone())));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((socket, _)) => {
                        connections.spawn(serve_connection(socket, Arc::clone(&endpoint), stop.clone()));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(self.listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        // What is left after this is aborted when `connections` drops.
        let _ = tokio::time::timeout(DRAIN_MAX, ended).await;
    }
}

async fn serve_connection(socket: TcpStream, endpoint: Arc<DemoEndpoint>, stop: CancellationToken) {
    // Without it, small replies wait for the client's delayed acknowledgements.
    let _ = socket.set_nodelay(true);
    let service = service_fn(|request| {
        let endpoint = Arc::clone(&endpoint);
        async move { Ok::<_, Infallible>(endpoint.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // A connection that breaks has nobody left to tell.
    let _ = connection.await;
}
