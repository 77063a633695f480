//! The servers of the demo: two small MCP servers and an `OpenID` provider, for `trunkline demo` and for our own tests.
//!
//! `weather` has invented, deterministic data and only reads; `notes` keeps notes in memory, asks before it
//! deletes one and tells its subscribers what changed. Between them they use every feature of revision
//! 2026-07-28 that a proxy has to carry: structured output, mirrored parameters, progress, multi round-trip
//! requests, caching hints, pages, completion, subscriptions and UI resources. Clients of the revisions before
//! it, from 2024-11-05 on, open a session and get the same without what their era lacks.
//!
//! The way of a request: `serving` accepts, `http` checks the exchange, `message` reads it, `modern` or `legacy`
//! checks what its era asks and makes it a `request`, `methods` answers it from `weather` or `notes`. The `OpenID` provider,
//! by which users sign in, is in `provider`.
//!
//! What is deliberately absent: no code is shared with the proxy, so that a mistake in one is noticed by the
//! other; no logging, nothing that leaves the machine. The servers listen on loopback only. The MCP servers let everybody in.
//!
//! Invariants: everything is bounded (connections, bodies, notes, subscriptions, sessions), nothing a client
//! sends can panic, and dropping or stopping [`DemoServer::serve`] ends every connection it accepted.

mod cities;
mod confirmation;
mod headers;
mod html;
mod http;
mod keyed_table;
mod legacy;
mod listen;
mod message;
mod methods;
mod modern;
mod notebook;
mod notes;
mod provider;
mod questions;
mod request;
mod rpc;
mod schema;
mod serving;
#[cfg(test)]
mod tests;
mod weather;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::http::DemoEndpoint;
use self::methods::{McpServer, ServerContent};
pub use self::provider::{ProviderServer, ProviderSettings};

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
        let answer = move |request| {
            let endpoint = Arc::clone(&endpoint);
            async move { endpoint.answer(request).await }
        };
        serving::serve(self.listener, stop, answer).await;
    }
}
