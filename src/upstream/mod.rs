//! Servers behind the gateway: their addresses, how a request reaches one, and the connections kept open.
//!
//! What a reply means to a client is the relay's business; here a reply is a head and a body.

pub mod ask;
pub mod changes;
pub mod exchange;
pub mod facts;
pub mod headers;
pub mod initialize;
pub mod listing;
pub mod pool;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{HeaderValue, Uri};
use sha2::{Digest as _, Sha256};

use self::changes::Changes;
use self::facts::Facts;
use self::listing::{Annotated, Listing};
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
    /// Its addresses.
    pub replicas: Vec<Replica>,
    /// What is counted about it.
    pub series: UpstreamSeries,
    /// Which eras it speaks.
    pub facts: Facts,
    /// How often its lists have changed.
    pub changes: Changes,
    /// What its sessions are filed under: its name, and a digest of its addresses, as a server elsewhere is not to be
    /// shown the ids of another's sessions.
    pub session_key: Box<str>,
    /// True once it opened a session without giving it an id.
    pub is_sessionless: AtomicBool,
    /// The mirrored parameters of its tools, as they were last listed.
    pub annotated: Annotated,
    /// What its lists have come to.
    pub listing: Listing,
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
        let session_key = session_key(&config);
        Ok(Self {
            id,
            config,
            replicas,
            series,
            facts: Facts::default(),
            changes: Changes::default(),
            is_sessionless: AtomicBool::new(false),
            session_key,
            annotated: Annotated::default(),
            listing: Listing::default(),
            next: AtomicUsize::new(0),
        })
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

fn session_key(config: &config::Upstream) -> Box<str> {
    let mut digest = Sha256::new();
    for url in &config.urls {
        digest.update(format!("{} {} {}\n", url.host, url.port, url.path_and_query));
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
