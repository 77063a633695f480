//! One endpoint: a path that clients see, the upstreams behind it, and how their names are spelled there.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::StatusCode;
use tokio::sync::Notify;

use super::eras::{ServedEras, served};
use super::{Snapshot, SnapshotError};
use crate::access::auth::authenticator::{AcceptedCredentials, Authenticator};
use crate::access::auth::challenge::Challenge;
use crate::access::auth::origin::OriginPolicy;
use crate::access::policy::naming::naming;
use crate::access::policy::{Class, NameScope, Policy};
use crate::clock;
use crate::identity::Principal;
use crate::telemetry::metrics::{EndpointSeries, Metrics};
use crate::upstream::{Upstream, UpstreamId};
use config::{self, Config, EndpointConfig};
use protocol::error::{Error, PolicyError};
use protocol::route::directory::Directory;
use protocol::route::{Kind, Naming};
use protocol::translation::asker::Asker;
use protocol::version::{Era, Eras};

#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Another one in every snapshot, and never used twice.
    pub id: u64,
    pub config: EndpointConfig,
    /// Indexes into the snapshot's upstreams, in configured order.
    pub members: Vec<usize>,
    /// How names are spelled and routed.
    pub naming: Naming,
    /// `Origin` and `Host`.
    pub doors: OriginPolicy,
    /// What its upstreams offer, as far as it is known.
    pub names: Arc<LearnedNames>,
    pub served: Arc<ServedEras>,
    pub series: Arc<EndpointSeries>,
    /// Who may call what.
    pub policy: Arc<Policy>,
    /// Who may call.
    pub auth: Authenticator,
    /// What clients without valid credentials are told.
    pub challenge: Challenge,
    /// Whether a task is for who made it alone.
    pub binds_tasks: bool,
    /// Since when its upstreams, or what of them it shows to whom, are what they are: the moment of the reload that made
    /// them so, another for each; 0: since the start.
    pub lists_since_ms: u64,
    pub(super) member_ids: Vec<UpstreamId>,
}

/// What is known of the names behind an endpoint; grows while calls come in.
#[derive(Debug, Default)]
pub(crate) struct LearnedNames {
    directory: ArcSwap<Directory>,
    changed: Notify,
}

impl LearnedNames {
    pub(crate) fn directory(&self) -> arc_swap::Guard<Arc<Directory>> {
        self.directory.load()
    }

    pub(crate) fn publish(&self, directory: Directory) {
        self.directory.store(Arc::new(directory));
        self.changed.notify_waiters();
    }

    /// Waits until every upstream was tried once, at most for `patience`.
    pub(crate) async fn settled(&self, patience: Duration) {
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

impl Endpoint {
    /// The asker of a member's questions, where its clients could not tell.
    pub(crate) fn asker(&self, member: usize) -> Option<Asker<'_>> {
        let name = self.config.upstreams.get(member).filter(|_| self.members.len() > 1)?;
        Some(Asker { name, is_told_in_text: self.config.prefix_elicitations })
    }

    /// True if everybody may use everything behind it.
    pub(crate) fn is_open(&self) -> bool {
        self.auth.is_open() && self.naming.hides_nothing() && self.policy.is_trivial()
    }

    /// True if replies and lists cross for callers of this class exactly as the one upstream wrote them.
    pub(crate) fn is_untouched_for(&self, class: &Class) -> bool {
        self.naming.is_untouched() && class.is_unrestricted()
    }

    /// True if it must be known what its upstreams offer, to route or to decide.
    pub(crate) fn needs_directory(&self) -> bool {
        self.naming.needs_directory() || self.naming.denies_names() || !self.policy.is_trivial()
    }

    /// Whether callers of this class may use a thing that a name has led to.
    pub(crate) fn allows(&self, class: &Class, kind: Kind, member: usize, inner: &str) -> bool {
        class.is_unrestricted() || {
            let directory = self.names.directory();
            class.allows(NameScope { naming: &self.naming, directory: &directory }, kind, member, inner)
        }
    }

    /// The status by which a client of `era` is told of an error here.
    pub(crate) fn status_of(&self, error: &Error, era: Era) -> StatusCode {
        let is_in_ok = match error {
            Error::Policy(PolicyError::Forbidden)
                if self.config.forbidden_errors == config::ForbiddenErrors::JsonRpc =>
            {
                true
            }
            error => {
                era == Era::Legacy
                    && self.config.legacy_errors == config::LegacyErrors::JsonRpc
                    && !error.is_of_transport()
            }
        };
        if is_in_ok { StatusCode::OK } else { error.outcome().status }
    }

    pub(crate) fn eras(&self) -> Eras {
        self.served.get()
    }

    pub(crate) fn member_ids(&self) -> &[UpstreamId] {
        &self.member_ids
    }

    /// What `principal` may use here, if this endpoint is to it what `before` was, where it had `class`: settings are
    /// equal as far as they matter to it, and so are its credentials and the rules that apply to it. Upstreams may have
    /// been added after those that there were.
    pub(crate) fn goes_on_for(
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

/// Resolves `endpoint`. What is equal in `old`, it keeps.
pub(super) fn build(
    endpoint: &EndpointConfig,
    id: u64,
    policy: Policy,
    upstreams: &[Arc<Upstream>],
    credentials: &AcceptedCredentials,
    metrics: &Metrics,
    old: Option<&Snapshot>,
) -> Result<Endpoint, SnapshotError> {
    let name = &endpoint.name;
    let members = members(endpoint, upstreams)?;
    let member_ids: Vec<UpstreamId> = members.iter().map(|member| upstreams[*member].id).collect();
    let prefixes: Vec<String> =
        members.iter().map(|member| upstreams[*member].config.prefix.clone()).collect();
    let before_named = old.and_then(|old| old.endpoints.get(old.endpoint_named(name)?));
    let before = before_named.filter(|endpoint| endpoint.member_ids == member_ids);
    let served_eras = before.map_or_else(Arc::default, |endpoint| Arc::clone(&endpoint.served));
    // With what is known already, so that no call between here and the next probe is judged by less.
    served_eras.set(served(members.iter().map(|member| upstreams[*member].reached_in())));
    let naming = naming(endpoint, &prefixes)
        .map_err(|source| SnapshotError::Pattern { path: name.clone(), source })?;
    // What the classes of a policy know of names, they know of these names.
    let same = before.filter(|old| naming.spells_as(&old.naming) && *old.policy == policy);
    let is_alike = |old: &&Arc<Endpoint>| is_same_to_open_streams(&old.config, endpoint);
    let lists_since_ms = match (old, same.filter(is_alike)) {
        (None, _) => 0,
        (Some(_), Some(same)) => same.lists_since_ms,
        (Some(_), None) => {
            let now_ms = clock::calendar().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let old_ms = before_named.map_or(0, |old| old.lists_since_ms);
            u64::try_from(now_ms).unwrap_or(u64::MAX).max(old_ms.saturating_add(1))
        }
    };
    Ok(Endpoint {
        id,
        lists_since_ms,
        served: served_eras,
        naming,
        doors: OriginPolicy {
            origins: endpoint.origins.clone(),
            hosts: endpoint.hosts.clone(),
            public_host: endpoint.public_url.as_deref().and_then(host_of),
        },
        names: before.map_or_else(Arc::default, |endpoint| Arc::clone(&endpoint.names)),
        series: metrics.endpoint(name, members.len()),
        auth: Authenticator::new(endpoint, credentials),
        challenge: Challenge::new(endpoint),
        binds_tasks: true,
        policy: same.map_or_else(|| Arc::new(policy), |old| Arc::clone(&old.policy)),
        config: endpoint.clone(),
        members,
        member_ids,
    })
}

/// The places of the endpoint's upstreams among all.
fn members(endpoint: &EndpointConfig, upstreams: &[Arc<Upstream>]) -> Result<Vec<usize>, SnapshotError> {
    let place = |name: &String| {
        let place = upstreams.iter().position(|upstream| upstream.config.name == *name);
        let path = endpoint.name.clone();
        place.ok_or_else(|| SnapshotError::NoSuchUpstream { path, name: name.clone() })
    };
    endpoint.upstreams.iter().map(place).collect()
}

/// Whether streams that are open would be what they are by `new`, too, which is of the same path. Its upstreams are
/// compared elsewhere.
fn is_same_to_open_streams(old: &EndpointConfig, new: &EndpointConfig) -> bool {
    *old == EndpointConfig {
        upstreams: old.upstreams.clone(),
        off: old.off.clone(),
        legacy_errors: old.legacy_errors,
        forbidden_errors: old.forbidden_errors,
        param_headers: old.param_headers,
        prefix_elicitations: old.prefix_elicitations,
        list_page_bytes_max: old.list_page_bytes_max,
        instructions: old.instructions.clone(),
        ..new.clone()
    }
}

/// Tasks are free to who knows their id only where nobody can be told from anybody, and nothing is hidden from anybody:
/// at an endpoint that is open, of upstreams that are behind no other.
pub(super) fn bind_tasks(endpoints: &mut [Endpoint]) {
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

pub(super) fn policies(config: &Config, upstreams: &[Arc<Upstream>]) -> Result<Vec<Policy>, SnapshotError> {
    let policy = |endpoint: &EndpointConfig| {
        let members = endpoint.upstreams.iter().filter_map(|name| {
            let upstream = upstreams.iter().find(|upstream| upstream.config.name == *name)?;
            Some((name.as_str(), Arc::clone(&upstream.hinted)))
        });
        Policy::new(&config.rules, endpoint, &members.collect::<Vec<_>>())
            .map_err(|source| SnapshotError::Pattern { path: endpoint.name.clone(), source })
    };
    config.endpoints.iter().map(policy).collect()
}

fn host_of(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    url.authority().map(|authority| authority.as_str().to_owned())
}
