//! The resolved configuration that a call sees: endpoints by path, upstreams by index, keys.
//!
//! Plain shared data, built completely or not at all and then never changed; a connection is never in it.
//! A new snapshot keeps the identity of every upstream that is equal to the old one's, so that its pooled
//! connections live on, and what was learned of the names behind every endpoint that is unchanged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::auth::Principal;
use crate::auth::api_key::ApiKeys;
use crate::auth::origin::Doors;
use crate::config::{self, Config, Limits, SessionLoss};
use crate::eras::{ServedEras, served};
use crate::protocol::error::PolicyError;
use crate::protocol::head::Field;
use crate::protocol::version::Eras;
use crate::route::directory::Directory;
use crate::route::filter::Filter;
use crate::route::{Alias, Naming, Style};
use crate::telemetry::metrics::{EndpointSeries, Metrics};
use crate::upstream::facts::Known;
use crate::upstream::{Upstream, UpstreamId};

/// What a call sees.
#[derive(Debug)]
pub struct Snapshot {
    /// In configured order.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// In configured order.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Limits of messages and connections.
    pub limits: Limits,
    /// Time after which a quiet stream of a session gets a comment.
    pub keep_alive_interval: Duration,
    /// Counts requests that no endpoint took.
    pub unmatched: Arc<EndpointSeries>,
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
    keys: Option<Arc<ApiKeys>>,
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
    /// An endpoint names an upstream that does not exist.
    #[error("endpoint {path}: there is no upstream {name}")]
    NoSuchUpstream {
        /// The endpoint.
        path: String,
        /// The missing upstream.
        name: String,
    },
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
        let keys = Arc::new(ApiKeys::new(config.api_keys.iter().map(|key| (key.name.clone(), key.sha256))));
        let endpoints = config
            .endpoints
            .iter()
            .map(|endpoint| {
                next_generation += 1;
                build_endpoint(endpoint, next_generation - 1, &upstreams, &keys, metrics, old).map(Arc::new)
            })
            .collect::<Result<Vec<_>, _>>()?;
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
            keep_alive_interval: config.session.keep_alive_interval,
            unmatched,
            by_path,
            next_generation,
        })
    }

    /// It is in force: from now on what its upstreams keep open belongs to them.
    pub fn take_up(&self) {
        self.upstreams.iter().for_each(Upstream::take_up);
    }

    /// Whether a session with the upstream of this session key is not to be opened again in place of another.
    pub fn is_irreplaceable(&self, session_key: &str) -> bool {
        let mut upstreams = self.upstreams.iter().filter(|upstream| *upstream.session_key == *session_key);
        upstreams.any(|upstream| upstream.config.session_loss == SessionLoss::End)
    }

    /// The index of the endpoint at `path`.
    pub fn endpoint_at(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }
}

impl Endpoint {
    /// True if everybody may use everything behind it.
    pub fn is_open(&self) -> bool {
        self.keys.is_none() && self.naming.hides_nothing()
    }

    /// True if clients with sessions get every outcome of a request in an HTTP 200.
    pub fn tells_legacy_errors_in_ok(&self) -> bool {
        self.config.legacy_errors == config::LegacyErrors::JsonRpc
    }

    /// The eras it serves now.
    pub fn eras(&self) -> Eras {
        self.served.get()
    }

    /// Whether `other` is this endpoint as far as its clients can tell: settings, upstreams and keys are equal.
    pub fn serves_like(&self, other: &Self) -> bool {
        self.config == other.config && self.member_ids == other.member_ids && self.keys == other.keys
    }

    /// Who calls, or why the call is refused.
    pub fn authenticate(&self, authorization: Field<'_>) -> Result<Principal, PolicyError> {
        match &self.keys {
            Some(keys) => keys.authenticate(authorization),
            None => Ok(Principal::Anonymous),
        }
    }
}

fn build_upstreams(
    config: &Config,
    metrics: &Metrics,
    old: Option<&Snapshot>,
    next_generation: &mut u64,
) -> Result<Vec<Arc<Upstream>>, SnapshotError> {
    let kept: Vec<Option<Arc<Upstream>>> = config
        .upstreams
        .iter()
        .map(|upstream| old?.upstreams.iter().find(|old| old.config == *upstream).cloned())
        .collect();
    let taken: Vec<usize> = kept.iter().flatten().map(|upstream| upstream.id.slot).collect();
    let mut free_slots = (0..).filter(|slot| !taken.contains(slot));
    config
        .upstreams
        .iter()
        .zip(kept)
        .map(|(upstream, kept)| {
            if let Some(kept) = kept {
                return Ok(kept);
            }
            let id =
                UpstreamId { slot: free_slots.next().unwrap_or(usize::MAX), generation: *next_generation };
            *next_generation += 1;
            let mut new = Upstream::new(id, upstream.clone(), metrics)
                .map_err(|source| SnapshotError::Upstream { name: upstream.name.clone(), source })?;
            if let Some(same) =
                old.and_then(|old| old.upstreams.iter().find(|old| is_same_server(&old.config, upstream)))
            {
                new.facts.publish(Known::clone(&same.facts.known()));
                new.adopt(same);
            }
            Ok(Arc::new(new))
        })
        .collect()
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
    keys: &Arc<ApiKeys>,
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
    served_eras.set(served(members.iter().map(|member| upstreams[*member].eras())));
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
        keys: endpoint.auth.contains(&config::AuthMethod::ApiKey).then(|| Arc::clone(keys)),
        config: endpoint.clone(),
        members,
        member_ids,
    })
}

fn host_of(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    url.authority().map(|authority| authority.as_str().to_owned())
}
