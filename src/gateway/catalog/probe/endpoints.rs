//! What every endpoint serves, and saying so whenever it changes.

use std::collections::HashMap;

use crate::snapshot::eras::served;
use crate::snapshot::{Endpoint, Snapshot};
use crate::upstream::Upstream;
use protocol::version::Eras;

/// What was last said of each endpoint, by path.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    said: HashMap<String, EndpointReport>,
}

#[derive(Debug, PartialEq, Eq)]
struct EndpointReport {
    eras: Eras,
    /// Upstreams that clients of one era reach over the bridge.
    bridged: Vec<String>,
    /// Upstreams that do not speak all of these eras.
    missing: Vec<String>,
    unknown: Vec<String>,
}

impl Endpoints {
    pub(super) fn refresh(&mut self, snapshot: &Snapshot) {
        self.said.retain(|name, _| snapshot.endpoint_named(name).is_some());
        for endpoint in &snapshot.endpoints {
            let now = EndpointReport::of(snapshot, endpoint);
            endpoint.served.set(now.eras);
            let name = &endpoint.config.name;
            let is_news = match self.said.get(name) {
                // While upstreams are asked for the first time, what is known changes with every answer.
                Some(said) => *said != now && members(snapshot, endpoint).all(was_tried),
                None => true,
            };
            if is_news {
                now.say(name);
                self.said.insert(name.clone(), now);
            }
        }
    }
}

impl EndpointReport {
    fn of(snapshot: &Snapshot, endpoint: &Endpoint) -> Self {
        let members = members(snapshot, endpoint);
        let eras = served(members.clone().map(Upstream::reached_in));
        let names = |fits: &dyn Fn(Option<Eras>) -> bool| {
            let fitting = members.clone().filter(|upstream| fits(upstream.reached_in()));
            fitting.map(|upstream| upstream.config.name.clone()).collect()
        };
        let bridged = members.clone().filter(|upstream| upstream.is_bridged());
        let bridged = bridged.map(|upstream| upstream.config.name.clone()).collect();
        Self {
            eras,
            bridged,
            missing: names(&|known| known.is_some_and(|known| eras.and(known) != eras)),
            unknown: names(&|known| known.is_none()),
        }
    }

    fn say(&self, path: &str) {
        let Self { eras, bridged, missing, unknown } = self;
        let bridged = (!bridged.is_empty()).then(|| bridged.join(", "));
        if !missing.is_empty() {
            let missing = missing.join(", ");
            tracing::warn!(
                endpoint = path,
                missing,
                bridged,
                "endpoint serves {eras}, which not all of its upstreams speak: those are missing from it"
            );
        } else if unknown.is_empty() {
            tracing::info!(endpoint = path, bridged, "endpoint serves {eras}");
        } else {
            let unknown = unknown.join(", ");
            tracing::info!(
                endpoint = path,
                unknown,
                bridged,
                "endpoint serves {eras}, as far as its upstreams are known"
            );
        }
    }
}

fn members<'s>(
    snapshot: &'s Snapshot,
    endpoint: &'s Endpoint,
) -> impl Iterator<Item = &'s Upstream> + Clone + 's {
    endpoint.members.iter().filter_map(|member| snapshot.upstreams.get(*member).map(AsRef::as_ref))
}

fn was_tried(upstream: &Upstream) -> bool {
    upstream.config.eras.is_some() || upstream.facts.known().was_tried
}
