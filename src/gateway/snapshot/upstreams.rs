//! The upstreams of a new snapshot: kept where nothing changed, carried on where little did, built where they are new.
//!
//! | between the old upstream and the new one | what the new one has of it |
//! |---|---|
//! | nothing differs | everything: it is the old one |
//! | only patience differs ([`is_same_but_for_patience`]) | identity, connections, who listens |
//! | only settings of the gateway differ ([`is_same_server`]) | what is known of the server |
//! | the name is the same | pinned definitions |

use std::sync::Arc;

use super::{Snapshot, SnapshotError};
use crate::bridge::Bridge;
use crate::telemetry::metrics::Metrics;
use crate::upstream::credentials::{AccessError, Material, UpstreamAccess};
use crate::upstream::facts::EraFacts;
use crate::upstream::{Upstream, UpstreamId};
use config::{self, Config};
use net::tls::Connectors;

/// Resolves all upstreams of `config`, in order.
pub(super) fn build(
    config: &Config,
    metrics: &Metrics,
    old: Option<&Snapshot>,
    next_generation: &mut u64,
) -> Result<Vec<Arc<Upstream>>, SnapshotError> {
    let old = old.map_or(&[][..], |old| &old.upstreams);
    let read = |upstream| Material::read(upstream).map_err(inaccessible(upstream));
    let material = config.upstreams.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let going_on: Vec<Option<&Arc<Upstream>>> = config
        .upstreams
        .iter()
        .zip(&material)
        .map(|(upstream, material)| {
            let goes_on = |old: &&Arc<Upstream>| {
                is_same_but_for_patience(&old.config, upstream) && old.access.material == *material
            };
            old.iter().find(goes_on)
        })
        .collect();
    let taken: Vec<usize> = going_on.iter().flatten().map(|upstream| upstream.id.slot).collect();
    let mut free_slots = (0..).filter(|slot| !taken.contains(slot));
    let mut new_id = || {
        *next_generation += 1;
        UpstreamId { slot: free_slots.next().unwrap_or(usize::MAX), generation: *next_generation - 1 }
    };
    let mut connectors = Connectors::default();
    config
        .upstreams
        .iter()
        .zip(material.into_iter().zip(going_on))
        .map(|(upstream, (material, going_on))| {
            // Nothing may have changed at all.
            if let Some(kept) = going_on.filter(|old| old.config == *upstream) {
                return Ok(Arc::clone(kept));
            }
            let id = going_on.map_or_else(&mut new_id, |same| same.id);
            let access =
                UpstreamAccess::new(upstream, material, &mut connectors).map_err(inaccessible(upstream))?;
            let bridge = |current: &_| Bridge::new(metrics.bridge.of(&upstream.name), current) as _;
            let mut new = Upstream::new(id, upstream.clone(), access, metrics, bridge)
                .map_err(unreachable_by(upstream))?;
            inherit(&mut new, old);
            if let Some(same) = going_on {
                new.go_on_as(same);
            }
            Ok(Arc::new(new))
        })
        .collect()
}

/// Gives a new upstream what stays true of the old ones.
fn inherit(new: &mut Upstream, old: &[Arc<Upstream>]) {
    // Whatever else became of it: definitions are those of the upstream of this name.
    let before = old.iter().find(|old| old.config.name == new.config.name);
    if new.pins.is_some()
        && let Some(pins) = before.and_then(|before| before.pins.clone())
    {
        new.pins = Some(pins);
    }
    if let Some(same) = old.iter().find(|old| is_same_server(&old.config, &new.config)) {
        new.facts.publish(EraFacts::clone(&same.facts.known()));
        new.adopt(same);
    }
}

fn inaccessible(upstream: &config::UpstreamConfig) -> impl Fn(AccessError) -> SnapshotError {
    let name = upstream.name.clone();
    move |source| SnapshotError::Access { name: name.clone(), source }
}

fn unreachable_by(upstream: &config::UpstreamConfig) -> impl Fn(http::Error) -> SnapshotError {
    let name = upstream.name.clone();
    move |source| SnapshotError::Upstream { name: name.clone(), source }
}

/// Whether the two differ at most in how long and how often the gateway tries, and how long it keeps lists: then
/// connections, and who listens to the server, stay as they are.
fn is_same_but_for_patience(old: &config::UpstreamConfig, new: &config::UpstreamConfig) -> bool {
    *old == config::UpstreamConfig {
        connect_timeout: old.connect_timeout,
        response_timeout: old.response_timeout,
        first_byte_timeout: old.first_byte_timeout,
        stream_duration_max: old.stream_duration_max,
        stream_idle_timeout: old.stream_idle_timeout,
        client_response_timeout: old.client_response_timeout,
        list_timeout: old.list_timeout,
        list_ttl_min: old.list_ttl_min,
        stale_while_revalidate: old.stale_while_revalidate,
        stale_if_error: old.stale_if_error,
        list_sessions_max: old.list_sessions_max,
        trust_public_cache: old.trust_public_cache,
        pins: config::PinsConfig { age_max: old.pins.age_max, ..new.pins },
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
fn is_same_server(old: &config::UpstreamConfig, new: &config::UpstreamConfig) -> bool {
    let is_reached_alike =
        old.urls == new.urls && old.transport == new.transport && old.command == new.command;
    old.name == new.name && is_reached_alike && old.eras == new.eras
}
