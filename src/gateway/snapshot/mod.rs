//! The resolved configuration that a call sees: endpoints by path, upstreams by index, keys.
//!
//! Plain shared data, built completely or not at all and then never changed; a connection is never in it.
//! A new snapshot keeps the identity of every upstream that is equal to the old one's but for timeouts and the like, so
//! that its pooled connections and who listens to it live on, and what was learned of the names behind every endpoint
//! that is unchanged.

pub mod eras;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::Notify;

use crate::access::auth::api_key::ApiKeys;
use crate::access::auth::authenticator::{Authenticator, Credentials};
use crate::access::auth::certificate::CertificateRules;
use crate::access::auth::challenge::Challenge;
use crate::access::auth::jwt::issuer::{IssuerError, Issuers};
use crate::access::auth::operator::Operators;
use crate::access::auth::origin::Doors;
use crate::access::auth::resource;
use crate::access::limit::rate::Rates;
use crate::access::policy::{Class, Place, Policy};
use crate::identity::Principal;
use crate::snapshot::eras::{ServedEras, served};
use crate::telemetry::metrics::{EndpointSeries, Metrics};
use crate::upstream::credentials::{Access, AccessError, Material};
use crate::upstream::facts::Known;
use crate::upstream::{Upstream, UpstreamId};
use config::{self, Config, Limits, Networks};
use net::secret::SecretError;
use net::tls::Connectors;
use protocol::route::directory::Directory;
use protocol::route::filter::Filter;
use protocol::route::{Alias, Kind, Naming, Style};
use protocol::version::Eras;

/// What a call sees.
#[derive(Debug)]
pub struct Snapshot {
    /// In configured order.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// In configured order.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Limits of messages and connections.
    pub limits: Limits,
    /// What is logged.
    pub log: config::Log,
    /// Those whose word on a client's address is believed.
    pub trusted_proxies: Networks,
    /// Time after which a quiet stream of a session gets a comment.
    pub keep_alive_interval: Duration,
    /// How many calls who may make.
    pub rates: Rates,
    /// Who may use the admin listener.
    pub operators: Operators,
    /// SHA-256 of the configuration's text, in hexadecimal digits.
    pub digest: String,
    /// Counts requests that no endpoint took.
    pub unmatched: Arc<EndpointSeries>,
    /// Issuers of tokens.
    pub issuers: Issuers,
    /// What clients are told of authorization servers, by path.
    metadata: HashMap<Box<str>, Bytes>,
    by_path: HashMap<Box<str>, usize>,
    next_generation: u64,
}

/// A path that clients see.
#[derive(Debug)]
pub struct Endpoint {
    /// Another one in every snapshot, and never used twice.
    pub id: u64,
    /// Its settings.
    pub config: config::Endpoint,
    /// Indexes into the snapshot's upstreams, in configured order.
    pub members: Vec<usize>,
    /// How names are spelled and routed.
    pub naming: Naming,
    /// `Origin` and `Host`.
    pub doors: Doors,
    /// What its upstreams offer, as far as it is known.
    pub names: Arc<LearnedNames>,
    /// Which eras it serves.
    pub served: Arc<ServedEras>,
    /// What is counted about it.
    pub series: Arc<EndpointSeries>,
    /// Who may call what.
    pub policy: Arc<Policy>,
    /// Who may call.
    pub auth: Authenticator,
    /// What clients without valid credentials are told.
    pub challenge: Challenge,
    /// Whether a task is for who made it alone.
    pub binds_tasks: bool,
    member_ids: Vec<UpstreamId>,
}

/// What is known of the names behind an endpoint; grows while calls come in.
#[derive(Debug, Default)]
pub struct LearnedNames {
    directory: ArcSwap<Directory>,
    changed: Notify,
}

impl LearnedNames {
    /// What is known now.
    pub fn directory(&self) -> arc_swap::Guard<Arc<Directory>> {
        self.directory.load()
    }

    /// Replaces what is known.
    pub fn publish(&self, directory: Directory) {
        self.directory.store(Arc::new(directory));
        self.changed.notify_waiters();
    }

    /// Waits until every upstream was tried once, at most for `patience`.
    pub async fn settled(&self, patience: Duration) {
        let settled = async {
            loop {
                let changed = self.changed.notified();
                if self.directory().is_settled() {
                    return;
                }
                changed.await;
            }
        };
        // Out of patience, the caller goes by what is known.
        let _ = tokio::time::timeout(patience, settled).await;
    }
}

/// Why a configuration that was read cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A URL that HTTP cannot express.
    #[error("upstream {name}: {source}")]
    Upstream {
        /// The upstream.
        name: String,
        /// What HTTP says.
        source: http::Error,
    },
    /// A secret or a certificate that cannot be used.
    #[error("upstream {name}: {source}")]
    Access {
        /// The upstream.
        name: String,
        /// What is wrong with it.
        source: AccessError,
    },
    /// The token of the admin listener cannot be read.
    #[error("admin: {0}")]
    Operators(#[from] SecretError),
    /// An endpoint names an upstream that does not exist.
    #[error("endpoint {path}: there is no upstream {name}")]
    NoSuchUpstream {
        /// The endpoint.
        path: String,
        /// The missing upstream.
        name: String,
    },
    /// A pattern of a limit that cannot be compiled.
    #[error("a limit: {0}")]
    Limit(#[from] globset::Error),
    /// The keys of an issuer cannot be read.
    #[error(transparent)]
    Keys(#[from] IssuerError),
    /// A pattern over names in certificates that cannot be compiled.
    #[error("client_certificate: {0}")]
    Certificates(globset::Error),
    /// A pattern that cannot be compiled.
    #[error("endpoint {path}: {source}")]
    Pattern {
        /// The endpoint.
        path: String,
        /// What is wrong with it.
        source: globset::Error,
    },
}

impl Snapshot {
    /// Resolves `config`, keeping what is equal in `old`.
    pub fn build(config: &Config, metrics: &Metrics, old: Option<&Self>) -> Result<Self, SnapshotError> {
        let mut next_generation = old.map_or(1, |old| old.next_generation);
        let upstreams = build_upstreams(config, metrics, old, &mut next_generation)?;
        let policies = policies(config, &upstreams)?;
        let credentials = Credentials {
            keys: Arc::new(ApiKeys::new(&config.api_keys)),
            issuers: Issuers::new(&config.jwt, old.map(|old| &old.issuers))?,
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
                let mut endpoint =
                    build_endpoint(endpoint, next_generation - 1, &upstreams, &credentials, metrics, old)?;
                let same = old.and_then(|old| old.endpoints.get(old.endpoint_at(&endpoint.config.path)?));
                // What the classes of a policy know of names, they know of these names.
                let same = same.filter(|old| {
                    old.member_ids == endpoint.member_ids
                        && endpoint.naming.spells_as(&old.naming)
                        && *old.policy == policy
                });
                endpoint.policy = same.map_or_else(|| Arc::new(policy), |old| Arc::clone(&old.policy));
                Ok::<_, SnapshotError>(endpoint)
            })
            .collect::<Result<Vec<_>, _>>()?;
        bind_tasks(&mut endpoints);
        let endpoints: Vec<_> = endpoints.into_iter().map(Arc::new).collect();
        let by_path = endpoints
            .iter()
            .enumerate()
            .map(|(index, endpoint)| (endpoint.config.path.as_str().into(), index))
            .collect();
        let unmatched = match old {
            Some(old) => Arc::clone(&old.unmatched),
            None => metrics.endpoint("", 0),
        };
        Ok(Self {
            endpoints,
            upstreams,
            limits: config.limits.clone(),
            log: config.log.clone(),
            trusted_proxies: config.trusted_proxies.clone(),
            keep_alive_interval: config.session.keep_alive_interval,
            rates: Rates::new(config, metrics, old.map(|old| &old.rates))?,
            operators: Operators::read(config.admin.as_ref(), old.map(|old| &old.operators))?,
            digest: config.digest.clone(),
            unmatched,
            issuers: credentials.issuers,
            metadata: resource::documents(config),
            by_path,
            next_generation,
        })
    }

    /// It is in force: from now on what its upstreams keep open belongs to them.
    pub fn take_up(&self) {
        self.upstreams.iter().for_each(Upstream::take_up);
        self.rates.set_keys_max(self.limits.limiter_keys_max);
    }

    /// Whether a session with the upstream of this session key is not to be opened again in place of another.
    pub fn is_irreplaceable(&self, session_key: &str) -> bool {
        let mut upstreams = self.upstreams.iter().filter(|upstream| *upstream.session_key == *session_key);
        upstreams.any(|upstream| upstream.is_irreplaceable())
    }

    /// Whether sessions with the upstream are known to this process alone.
    pub fn has_local_sessions(&self, session_key: &str) -> bool {
        let mut upstreams = self.upstreams.iter().filter(|upstream| *upstream.session_key == *session_key);
        upstreams.any(|upstream| upstream.has_local_sessions())
    }

    /// What clients are told of the authorization servers of an endpoint, at `path`.
    pub fn metadata_at(&self, path: &str) -> Option<&Bytes> {
        self.metadata.get(path)
    }

    /// The index of the endpoint at `path`.
    pub fn endpoint_at(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }
}

impl Endpoint {
    /// True if everybody may use everything behind it.
    pub fn is_open(&self) -> bool {
        self.auth.is_open() && self.naming.hides_nothing() && self.policy.is_trivial()
    }

    /// True if replies and lists cross for callers of this class exactly as the one upstream wrote them.
    pub fn is_untouched_for(&self, class: &Class) -> bool {
        self.naming.is_untouched() && class.is_unrestricted()
    }

    /// True if it must be known what its upstreams offer, to route or to decide.
    pub fn needs_directory(&self) -> bool {
        self.naming.needs_directory() || self.naming.denies_names() || !self.policy.is_trivial()
    }

    /// Whether callers of this class may use a thing that a name has led to.
    pub fn allows(&self, class: &Class, kind: Kind, member: usize, inner: &str) -> bool {
        class.is_unrestricted() || {
            let directory = self.names.directory();
            class.allows(Place { naming: &self.naming, directory: &directory }, kind, member, inner)
        }
    }

    /// True if clients with sessions get every outcome of a request in an HTTP 200.
    pub fn tells_legacy_errors_in_ok(&self) -> bool {
        self.config.legacy_errors == config::LegacyErrors::JsonRpc
    }

    /// The eras it serves now.
    pub fn eras(&self) -> Eras {
        self.served.get()
    }

    /// The identities of its upstreams.
    pub fn member_ids(&self) -> &[UpstreamId] {
        &self.member_ids
    }

    /// What `principal` may use here, if this endpoint is to it what `before` was, where it had `class`: settings are
    /// equal as far as they matter to it, and so are its credentials and the rules that apply to it. Upstreams may have
    /// been added after those that there were.
    pub fn goes_on_for(
        &self,
        before: &Self,
        principal: &Principal,
        class: &Arc<Class>,
    ) -> Option<Arc<Class>> {
        let is_alike = is_same_to_open_streams(&before.config, &self.config)
            && self.member_ids.starts_with(&before.member_ids)
            && self.auth.is_like_for(&before.auth, principal);
        if !is_alike {
            return None;
        }
        if self.policy.is_of(class) {
            return Some(Arc::clone(class));
        }
        Some(self.policy.class_of(principal)).filter(|now| now.is_like(class))
    }
}

fn build_upstreams(
    config: &Config,
    metrics: &Metrics,
    old: Option<&Snapshot>,
    next_generation: &mut u64,
) -> Result<Vec<Arc<Upstream>>, SnapshotError> {
    let inaccessible = |upstream: &config::Upstream| {
        let name = upstream.name.clone();
        |source| SnapshotError::Access { name, source }
    };
    let material = config
        .upstreams
        .iter()
        .map(|upstream| Material::read(upstream).map_err(inaccessible(upstream)))
        .collect::<Result<Vec<_>, _>>()?;
    let kept: Vec<Option<Arc<Upstream>>> = config
        .upstreams
        .iter()
        .zip(&material)
        .map(|(upstream, material)| {
            let is_same = |old: &&Arc<Upstream>| old.config == *upstream && old.access.material == *material;
            old?.upstreams.iter().find(is_same).cloned()
        })
        .collect();
    let mut connectors = Connectors::default();
    let going_on: Vec<Option<&Arc<Upstream>>> = config
        .upstreams
        .iter()
        .zip(&material)
        .map(|(upstream, material)| {
            let goes_on = |old: &&Arc<Upstream>| {
                is_same_but_for_patience(&old.config, upstream) && old.access.material == *material
            };
            old?.upstreams.iter().find(goes_on)
        })
        .collect();
    let taken: Vec<usize> = going_on.iter().flatten().map(|upstream| upstream.id.slot).collect();
    let mut free_slots = (0..).filter(|slot| !taken.contains(slot));
    config
        .upstreams
        .iter()
        .zip(kept.into_iter().zip(material).zip(going_on))
        .map(|(upstream, ((kept, material), going_on))| {
            if let Some(kept) = kept {
                return Ok(kept);
            }
            let id = going_on.map_or_else(
                || {
                    *next_generation += 1;
                    let slot = free_slots.next().unwrap_or(usize::MAX);
                    UpstreamId { slot, generation: *next_generation - 1 }
                },
                |same| same.id,
            );
            let access = Access::new(upstream, material, &mut connectors).map_err(inaccessible(upstream))?;
            let mut new = Upstream::new(id, upstream.clone(), access, metrics)
                .map_err(|source| SnapshotError::Upstream { name: upstream.name.clone(), source })?;
            // Whatever else became of it: definitions are those of the upstream of this name.
            let before =
                old.and_then(|old| old.upstreams.iter().find(|old| old.config.name == upstream.name));
            if new.pins.is_some()
                && let Some(pins) = before.and_then(|before| before.pins.clone())
            {
                new.pins = Some(pins);
            }
            if let Some(same) =
                old.and_then(|old| old.upstreams.iter().find(|old| is_same_server(&old.config, upstream)))
            {
                new.facts.publish(Known::clone(&same.facts.known()));
                new.adopt(same)
                    .map_err(|source| SnapshotError::Upstream { name: upstream.name.clone(), source })?;
            }
            if let Some(same) = going_on {
                new.go_on_as(same);
            }
            Ok(Arc::new(new))
        })
        .collect()
}

/// Whether streams that are open would be what they are by `new`, too, which is of the same path. Its upstreams are
/// compared elsewhere.
fn is_same_to_open_streams(old: &config::Endpoint, new: &config::Endpoint) -> bool {
    *old == config::Endpoint {
        upstreams: old.upstreams.clone(),
        legacy_errors: old.legacy_errors,
        label_requests: old.label_requests,
        list_page_bytes_max: old.list_page_bytes_max,
        instructions: old.instructions.clone(),
        ..new.clone()
    }
}

/// Whether the two differ at most in how long and how often the gateway tries, and how long it keeps lists: then
/// connections, and who listens to the server, stay as they are.
fn is_same_but_for_patience(old: &config::Upstream, new: &config::Upstream) -> bool {
    *old == config::Upstream {
        connect_timeout: old.connect_timeout,
        reply_timeout: old.reply_timeout,
        first_byte_timeout: old.first_byte_timeout,
        answer_timeout: old.answer_timeout,
        stream_idle_timeout: old.stream_idle_timeout,
        request_timeout: old.request_timeout,
        list_timeout: old.list_timeout,
        list_ttl_min: old.list_ttl_min,
        stale_while_revalidate: old.stale_while_revalidate,
        list_stale_max: old.list_stale_max,
        list_sessions_max: old.list_sessions_max,
        trust_public_cache: old.trust_public_cache,
        pins: config::Pins { age_max: old.pins.age_max, ..new.pins },
        session_loss: old.session_loss,
        idle_timeout: old.idle_timeout,
        concurrency: old.concurrency.clone(),
        idle_connections_max: old.idle_connections_max,
        replicas: old.replicas.clone(),
        bridge: old.bridge.clone(),
        ..new.clone()
    }
}

/// Whether only settings of the gateway differ, so that what is known of the server stays true.
fn is_same_server(old: &config::Upstream, new: &config::Upstream) -> bool {
    let is_reached_alike =
        old.urls == new.urls && old.transport == new.transport && old.command == new.command;
    old.name == new.name && is_reached_alike && old.eras == new.eras
}

fn build_endpoint(
    endpoint: &config::Endpoint,
    id: u64,
    upstreams: &[Arc<Upstream>],
    credentials: &Credentials,
    metrics: &Metrics,
    old: Option<&Snapshot>,
) -> Result<Endpoint, SnapshotError> {
    let path = &endpoint.path;
    let members = endpoint
        .upstreams
        .iter()
        .map(|name| {
            upstreams
                .iter()
                .position(|upstream| upstream.config.name == *name)
                .ok_or_else(|| SnapshotError::NoSuchUpstream { path: path.clone(), name: name.clone() })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let member_ids: Vec<UpstreamId> = members.iter().map(|member| upstreams[*member].id).collect();
    let prefixes: Vec<String> =
        members.iter().map(|member| upstreams[*member].config.prefix.clone()).collect();
    let aliases: Vec<Alias> = endpoint
        .aliases
        .iter()
        .filter_map(|alias| {
            let member = endpoint.upstreams.iter().position(|name| *name == alias.upstream)?;
            Some(Alias { public: alias.public.clone(), member, inner: alias.inner.clone() })
        })
        .collect();
    let filter = Filter::new(&endpoint.allow, &endpoint.deny)
        .map_err(|source| SnapshotError::Pattern { path: path.clone(), source })?;
    let style = match endpoint.names {
        config::Names::Transparent => Style::Transparent,
        config::Names::Prefixed => Style::Prefixed,
        config::Names::Bare => Style::Bare,
    };
    let before = old.and_then(|old| {
        let endpoint = old.endpoints.get(old.endpoint_at(path)?)?;
        (endpoint.member_ids == member_ids).then_some(endpoint)
    });
    let served_eras = before.map_or_else(Arc::default, |endpoint| Arc::clone(&endpoint.served));
    // With what is known already, so that no call between here and the next probe is judged by less.
    served_eras.set(served(members.iter().map(|member| upstreams[*member].reached_in())));
    Ok(Endpoint {
        id,
        served: served_eras,
        naming: Naming::new(style, endpoint.accept_bare, &prefixes, &aliases, filter),
        doors: Doors {
            origins: endpoint.origins.clone(),
            hosts: endpoint.hosts.clone(),
            public_host: endpoint.public_url.as_deref().and_then(host_of),
        },
        names: before.map_or_else(Arc::default, |endpoint| Arc::clone(&endpoint.names)),
        series: metrics.endpoint(path, members.len()),
        auth: Authenticator::new(endpoint, credentials),
        challenge: Challenge::new(endpoint),
        binds_tasks: true,
        policy: Arc::default(),
        config: endpoint.clone(),
        members,
        member_ids,
    })
}

/// Tasks are free to who knows their id only where nobody can be told from anybody, and nothing is hidden from anybody:
/// at an endpoint that is open, of upstreams that are behind no other.
fn bind_tasks(endpoints: &mut [Endpoint]) {
    let mut bound = HashSet::new();
    // Upstreams of an endpoint that binds bind the others.
    loop {
        let before = bound.len();
        for endpoint in &*endpoints {
            if !endpoint.is_open() || endpoint.members.iter().any(|member| bound.contains(member)) {
                bound.extend(endpoint.members.iter().copied());
            }
        }
        if bound.len() == before {
            break;
        }
    }
    for endpoint in endpoints {
        endpoint.binds_tasks = endpoint.members.iter().any(|member| bound.contains(member));
    }
}

/// The policies of all endpoints, in order.
fn policies(config: &Config, upstreams: &[Arc<Upstream>]) -> Result<Vec<Policy>, SnapshotError> {
    let policy = |endpoint: &config::Endpoint| {
        let members = endpoint.upstreams.iter().filter_map(|name| {
            let upstream = upstreams.iter().find(|upstream| upstream.config.name == *name)?;
            Some((name.as_str(), Arc::clone(&upstream.hinted)))
        });
        Policy::new(&config.rules, &endpoint.path, &members.collect::<Vec<_>>())
            .map_err(|source| SnapshotError::Pattern { path: endpoint.path.clone(), source })
    };
    config.endpoints.iter().map(policy).collect()
}

fn host_of(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    url.authority().map(|authority| authority.as_str().to_owned())
}
