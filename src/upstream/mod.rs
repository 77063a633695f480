//! Servers behind the gateway: their addresses, how a request reaches one, and the connections kept open.
//!
//! What a reply means to a client is the relay's business; here a reply is a head and a body.

pub mod ask;
pub mod changes;
pub mod exchange;
pub mod facts;
pub mod headers;
pub mod incoming;
pub mod initialize;
pub mod listing;
pub mod pipe;
pub mod pool;
pub mod sse;
pub mod stdio;
pub mod unasked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{HeaderValue, Uri};
use sha2::{Digest as _, Sha256};

use self::changes::Changes;
use self::facts::Facts;
use self::listing::{Annotated, Listing};
use self::stdio::Children;
use crate::config;
use crate::protocol::error::UpstreamError;
use crate::protocol::version::{Era, Eras};
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
    /// How it is reached.
    pub transport: Transport,
    /// Its addresses, over HTTP.
    pub replicas: Vec<Replica>,
    /// What is counted about it.
    pub series: UpstreamSeries,
    /// Which eras it speaks.
    pub facts: Facts,
    /// How often its lists have changed.
    pub changes: Changes,
    /// What its sessions are filed under: its name, and a digest of its addresses or its command, as a server elsewhere is not to be
    /// shown the ids of another's sessions.
    pub session_key: Arc<str>,
    /// True once it opened a session without giving it an id.
    pub is_sessionless: AtomicBool,
    /// The mirrored parameters of its tools, as they were last listed.
    pub annotated: Annotated,
    /// What its lists have come to.
    pub listing: Listing,
    /// Counts, by its holders, messages on their way to it that nobody waits for.
    pub telling: Arc<()>,
    next: AtomicUsize,
}

/// How an upstream is reached.
#[derive(Debug)]
pub enum Transport {
    /// Streamable HTTP, at one of its replicas, or HTTP+SSE while that is what it speaks.
    Http(Arc<sse::Streams>),
    /// A child process.
    Stdio(Arc<Children>),
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
        let session_key = session_key(&config);
        let transport = match &config.command {
            Some(command) => Transport::Stdio(Children::new(&config, command, metrics)),
            None => Transport::Http(sse::Streams::new(config.transport == config::Transport::Sse)),
        };
        Ok(Self {
            id,
            config,
            transport,
            replicas,
            series,
            facts: Facts::default(),
            changes: Changes::default(),
            is_sessionless: AtomicBool::new(false),
            session_key,
            annotated: Annotated::default(),
            listing: Listing::default(),
            telling: Arc::default(),
            next: AtomicUsize::new(0),
        })
    }

    /// Goes on with the connections of `same`, which is the same server with other settings of the gateway.
    pub fn adopt(&mut self, same: &Self) {
        self.transport = match &same.transport {
            Transport::Http(streams) => Transport::Http(Arc::clone(streams)),
            Transport::Stdio(children) => Transport::Stdio(Arc::clone(children)),
        };
    }

    /// From now on this is the upstream that its connections belong to.
    pub fn take_up(self: &Arc<Self>) {
        if let Some(streams) = self.sse() {
            streams.belong_to(self);
        }
    }

    /// Its streams of HTTP+SSE, should it speak it. `None`: it is not reached over HTTP.
    pub fn sse(&self) -> Option<&Arc<sse::Streams>> {
        match &self.transport {
            Transport::Http(streams) => Some(streams),
            Transport::Stdio(_) => None,
        }
    }

    /// Whether it goes on with the connections of `other`.
    pub fn is_served_with(&self, other: &Self) -> bool {
        match (&self.transport, &other.transport) {
            (Transport::Http(one), Transport::Http(other)) => Arc::ptr_eq(one, other),
            (Transport::Stdio(one), Transport::Stdio(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The configuration names it no longer: what runs for it alone ends.
    pub fn retire(&self) {
        match &self.transport {
            Transport::Http(streams) => streams.retire(),
            Transport::Stdio(children) => children.retire(),
        }
    }

    /// Whether it is a child process.
    pub fn is_child(&self) -> bool {
        !matches!(self.transport, Transport::Http(_))
    }

    /// The eras it speaks, by configuration or as far as it was asked; `None`: not known, or neither.
    pub fn eras(&self) -> Option<Eras> {
        let learned = || {
            let known = self.facts.known();
            // Half asked, it would seem to lack what it was not asked for.
            Some(known.eras()).filter(|eras| known.was_tried && !eras.is_empty())
        };
        self.config.eras.or_else(learned)
    }

    /// An error if it is known not to speak `era`.
    pub fn check_era(&self, era: Era) -> Result<(), UpstreamError> {
        match self.eras() {
            Some(eras) if !eras.contains(era) => Err(UpstreamError::OtherEra),
            _ => Ok(()),
        }
    }

    /// The index of the replica whose turn it is.
    pub fn next_replica(&self) -> usize {
        match self.replicas.len() {
            0 | 1 => 0,
            count => self.next.fetch_add(1, Ordering::Relaxed) % count,
        }
    }
}

fn session_key(config: &config::Upstream) -> Arc<str> {
    let mut digest = Sha256::new();
    for url in &config.urls {
        digest.update(format!("{} {} {}\n", url.host, url.port, url.path_and_query));
    }
    if let Some(command) = &config.command {
        digest.update(format!("{command:?}"));
    }
    let digest =
        digest.finalize().iter().take(8).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("{}#{digest}", config.name).into()
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
