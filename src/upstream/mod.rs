//! Servers behind the gateway: their addresses, how a request reaches one, and the connections kept open.
//!
//! What a reply means to a client is the relay's business; here a reply is a head and a body.

pub mod exchange;
pub mod headers;
pub mod pool;

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, Uri};

use crate::config;
use crate::telemetry::metrics::{Metrics, UpstreamSeries};

/// Identifies an upstream across configurations: equal ids mean the same upstream, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamId {
    /// Index into each worker's table of pools.
    pub slot: usize,
    /// Grows whenever the slot is given to another upstream.
    pub generation: u64,
}

/// A named MCP server.
#[derive(Debug)]
pub struct Upstream {
    /// Its identity.
    pub id: UpstreamId,
    /// Its settings.
    pub config: config::Upstream,
    /// Its addresses.
    pub replicas: Vec<Replica>,
    /// What is counted about it.
    pub series: UpstreamSeries,
    next: AtomicUsize,
}

/// One address of an upstream.
#[derive(Debug)]
pub struct Replica {
    /// Where to connect.
    pub host: String,
    /// Where to connect.
    pub port: u16,
    /// The `Host` header.
    pub authority: HeaderValue,
    /// The request target.
    pub target: Uri,
}

impl Upstream {
    /// Makes an upstream of its settings. Fails only on a URL that the configuration should have refused.
    pub fn new(id: UpstreamId, config: config::Upstream, metrics: &Metrics) -> Result<Self, http::Error> {
        let replicas = config.urls.iter().map(Replica::new).collect::<Result<Vec<_>, _>>()?;
        let series = metrics.upstream(&config.name);
        Ok(Self { id, config, replicas, series, next: AtomicUsize::new(0) })
    }

    /// The index of the replica whose turn it is.
    pub fn next_replica(&self) -> usize {
        match self.replicas.len() {
            0 | 1 => 0,
            count => self.next.fetch_add(1, Ordering::Relaxed) % count,
        }
    }
}

impl Replica {
    fn new(url: &config::Url) -> Result<Self, http::Error> {
        Ok(Self {
            host: url.host.clone(),
            port: url.port,
            authority: HeaderValue::from_str(&url.authority)?,
            target: url.path_and_query.parse()?,
        })
    }
}
