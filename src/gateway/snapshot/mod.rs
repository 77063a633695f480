//! The resolved configuration that a call sees: endpoints by path, upstreams by index, keys.
//!
//! Plain shared data, built completely or not at all and then never changed; a connection is never in it.
//! A new snapshot keeps the identity of every upstream that is equal to the old one's but for timeouts and the like, so
//! that its pooled connections and who listens to it live on, and what was learned of the names behind every endpoint
//! that is unchanged.

mod endpoint;
pub(crate) mod eras;
mod routing_table;
mod upstreams;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::access::auth::api_key::ApiKeys;
use crate::access::auth::authenticator::AcceptedCredentials;
use crate::access::auth::certificate::CertificateRules;
use crate::access::auth::jwt::issuer::{IssuerError, Issuers};
use crate::access::auth::operator::Operators;
use crate::access::auth::resource::{self, Documents};
use crate::access::auth::sign_in::settings::{SignInError, SignIns};
use crate::access::limit::rate::RateLimits;
use crate::clock;
use crate::telemetry::metrics::{EndpointSeries, Metrics};
use crate::upstream::Upstream;
use crate::upstream::credentials::AccessError;
use config::{self, Config, LimitsConfig, Networks, ReadyWhen};
use net::outbound::{Outbound, OutboundError, WayOut};
use net::secret::SecretError;
use protocol::error::{ClientError, Error};

use self::routing_table::RoutingTable;

pub(crate) use self::endpoint::Endpoint;

/// What a call sees.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// In configured order.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// In configured order.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Names of upstreams that are off.
    pub off: Vec<String>,
    pub limits: Arc<LimitsConfig>,
    pub log: config::Log,
    /// Those whose word on a client's address is believed.
    pub trusted_proxies: Networks,
    /// Time after which a quiet stream of a session gets a comment.
    pub keep_alive_interval: Duration,
    /// Time after which a quiet reply gets one, or a blank. Zero: never.
    pub reply_keep_alive_interval: Duration,
    pub rates: RateLimits,
    pub operators: Operators,
    /// The gateway is not ready before its upstreams were listed.
    pub waits_for_lists: bool,
    /// Those who may read metrics at the listener for these.
    pub scrapers: Operators,
    /// SHA-256 of the configuration's text, in hexadecimal digits.
    pub digest: String,
    /// Counts requests that no endpoint took.
    pub unmatched: Arc<EndpointSeries>,
    pub issuers: Issuers,
    /// The way of the gateway's own requests that is in force, which need not be this snapshot's.
    pub outbound: Arc<Outbound>,
    way: Arc<WayOut>,
    pub sign_ins: SignIns,
    /// What clients are told of authorization servers, by path.
    metadata: HashMap<Box<str>, Documents>,
    routes: RoutingTable,
    next_generation: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A URL that HTTP cannot express.
    #[error("upstream {name}: {source}")]
    Upstream {
        name: String,
        /// What HTTP says.
        source: http::Error,
    },
    #[error("upstream {name}: {source}")]
    Access { name: String, source: AccessError },
    /// The token of the admin listener cannot be read.
    #[error("admin: {0}")]
    Operators(#[from] SecretError),
    /// That of the metrics listener cannot be read.
    #[error("metrics: {0}")]
    Scrapers(SecretError),
    #[error("endpoint {path}: there is no upstream {name}")]
    NoSuchUpstream { path: String, name: String },
    /// A pattern of a limit that cannot be compiled.
    #[error("a limit: {0}")]
    Limit(#[from] globset::Error),
    /// The gateway's own requests have no way out.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// The keys of an issuer cannot be read.
    #[error(transparent)]
    Keys(#[from] IssuerError),
    /// Sign-in cannot work.
    #[error(transparent)]
    SignIn(#[from] SignInError),
    /// A pattern over names in certificates that cannot be compiled.
    #[error("client_certificate: {0}")]
    Certificates(globset::Error),
    /// A pattern that cannot be compiled.
    #[error("endpoint {path}: {source}")]
    Pattern { path: String, source: globset::Error },
}

impl Snapshot {
    /// Resolves `config`, keeping what is equal in `old`.
    pub(crate) fn build(
        config: &Config,
        metrics: &Metrics,
        old: Option<&Self>,
    ) -> Result<Self, SnapshotError> {
        let mut next_generation = old.map_or(1, |old| old.next_generation);
        let upstreams = upstreams::build(config, metrics, old, &mut next_generation)?;
        let policies = endpoint::policies(config, &upstreams)?;
        let issuers = Issuers::new(&config.jwt, old.map(|old| &old.issuers))?;
        let credentials = AcceptedCredentials {
            keys: Arc::new(ApiKeys::new(&config.api_keys)),
            sign_ins: SignIns::read(config, &issuers, old.map(|old| &old.sign_ins))?,
            issuers,
            certificates: Arc::new(
                CertificateRules::new(&config.client_certificates).map_err(SnapshotError::Certificates)?,
            ),
            token_bytes_max: config.limits.token_bytes_max,
        };
        let mut endpoints = config
            .endpoints
            .iter()
            .zip(policies)
            .map(|(endpoint, policy)| {
                next_generation += 1;
                let number = next_generation - 1;
                endpoint::build(endpoint, number, policy, &upstreams, &credentials, metrics, old)
            })
            .collect::<Result<Vec<_>, _>>()?;
        endpoint::bind_tasks(&mut endpoints);
        let endpoints: Vec<_> = endpoints.into_iter().map(Arc::new).collect();
        let unmatched = match old {
            Some(old) => Arc::clone(&old.unmatched),
            None => metrics.endpoint("", 0),
        };
        Ok(Self {
            routes: RoutingTable::new(&endpoints),
            endpoints,
            upstreams,
            limits: Arc::new(config.limits.clone()),
            log: config.log.clone(),
            trusted_proxies: config.trusted_proxies.clone(),
            keep_alive_interval: config.session.stream_keep_alive_interval(),
            reply_keep_alive_interval: config.session.reply_keep_alive_interval(),
            rates: RateLimits::new(config, metrics, old.map(|old| &old.rates))?,
            operators: Operators::read(config.admin.as_ref(), old.map(|old| &old.operators))?,
            waits_for_lists: config.admin.as_ref().is_some_and(|admin| admin.ready == ReadyWhen::Listed),
            scrapers: Operators::of_metrics(&config.metrics).map_err(SnapshotError::Scrapers)?,
            digest: config.digest.clone(),
            off: config.off.clone(),
            unmatched,
            issuers: credentials.issuers,
            outbound: old.map_or_else(Arc::default, |old| Arc::clone(&old.outbound)),
            way: Arc::new(WayOut::read(&config.outbound)?),
            sign_ins: credentials.sign_ins,
            metadata: resource::documents(config),
            next_generation,
        })
    }

    /// Upstreams that have to be listed before the gateway is ready, and were not.
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.unlisted_slots().filter_map(|slot| self.upstreams.get(slot))
    }

    /// The places of those.
    pub(crate) fn unlisted_slots(&self) -> impl Iterator<Item = usize> {
        let is_needed = |slot: &usize| self.endpoints.iter().any(|endpoint| endpoint.members.contains(slot));
        let upstreams = self.upstreams.iter().enumerate().filter(|_| self.waits_for_lists);
        let unlisted = upstreams.filter(|(_, upstream)| !upstream.annotated.was_listed());
        unlisted.map(|(slot, _)| slot).filter(move |slot| is_needed(slot))
    }

    /// It is in force: from now on what its upstreams keep open belongs to them.
    pub(crate) fn take_up(&self) {
        self.upstreams.iter().for_each(Upstream::take_up);
        self.rates.set_keys_max(self.limits.limiter_keys_max);
        if self.outbound.replace(&self.way) {
            // Those that could not be reached by the other.
            self.issuers.all.iter().for_each(|issuer| issuer.hasten(clock::now()));
        }
    }

    /// Whether a session with the upstream of this session key is not to be opened again in place of another.
    pub(crate) fn is_irreplaceable(&self, session_key: &str) -> bool {
        let mut upstreams = self.upstreams.iter().filter(|upstream| *upstream.session_key == *session_key);
        upstreams.any(|upstream| upstream.is_irreplaceable())
    }

    /// Whether sessions with the upstream are known to this process alone.
    pub(crate) fn has_local_sessions(&self, session_key: &str) -> bool {
        let mut upstreams = self.upstreams.iter().filter(|upstream| *upstream.session_key == *session_key);
        upstreams.any(|upstream| upstream.has_local_sessions())
    }

    /// What clients are told of the authorization servers of an endpoint, at `path`: of several, the one for the host that
    /// the request names.
    pub(crate) fn metadata_at<'h>(
        &self,
        path: &str,
        host: impl FnOnce() -> Result<&'h str, ClientError>,
    ) -> Option<&Bytes> {
        let at = |path: &str| self.metadata.get(path);
        let documents = at(path).or_else(|| at(path.strip_suffix('/')?))?;
        if let [(_, only)] = documents.as_slice() {
            return Some(only);
        }
        let indexes: Vec<usize> = documents.iter().map(|(index, _)| *index).collect();
        let best = host().ok().and_then(|host| routing_table::best_for(&self.endpoints, &indexes, host));
        let (_, document) = documents.iter().find(|(index, _)| Some(*index) == best).or(documents.first())?;
        Some(document)
    }

    /// The endpoint that a request for `path` is for. `host`: the one that it names, which several endpoints of a path are
    /// told apart by.
    pub(crate) fn endpoint_for<'h>(
        &self,
        path: &[u8],
        host: impl FnOnce() -> Result<&'h str, ClientError>,
    ) -> Result<Option<usize>, Error> {
        self.routes.find(&self.endpoints, path, host)
    }

    pub(crate) fn endpoint_named(&self, name: &str) -> Option<usize> {
        self.routes.named(name)
    }
}
