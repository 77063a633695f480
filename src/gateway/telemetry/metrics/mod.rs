//! Every metric of the process, by OpenTelemetry's MCP names where they exist and `trunkline_*` where not.
//!
//! | file | what it is |
//! |---|---|
//! | `families.rs` | the metrics: one entry each, with name, labels and help |
//! | `process.rs` | those of the process, as the system has them |
//! | `declare.rs` | what makes fields, registrations and handles of an entry |
//! | `registry.rs` | the list of all metrics |
//! | `vec.rs` | metrics that differ in labels |
//! | `sharded.rs`, `shards.rs` | series that every worker counts in for itself |
//! | `exposition.rs` | what Prometheus reads |
//!
//! Label values are bounded: endpoints and upstreams come from the configuration, methods and reasons from
//! enums. A series is created at its first use and its handle kept, so that the request path never looks one up by label.

pub(crate) mod declare;
pub(crate) mod exposition;
pub(crate) mod families;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod sharded;
pub(crate) mod shards;
#[cfg(test)]
mod tests;
pub(crate) mod vec;

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use prometheus::IntGauge;

use self::declare::Families;
use self::families::{
    BridgeSeries, CallMetrics, ChildSeries, ConnectionMetrics, CredentialMetrics, GateSeries, GatewayMetrics,
    LimitSeries, ListMetrics, PinSeries, ReplicaMetrics, SessionMetrics, SessionStreamMetrics, SharedMetrics,
    SignInMetrics, SubscriptionMetrics, UpstreamSeries,
};
use self::process::ProcessMetrics;
use self::registry::{Family, Registry};
use super::book::Durations;
use super::calls::{EndpointVecs, UpstreamDurations};
use super::tools::ToolIds;
use super::totals::Sums;
use protocol::method::Method;
use protocol::version::Era;

pub(crate) use super::calls::EndpointSeries;

/// Lists that endpoints put together from those of their upstreams.
const LISTS: [Method; 4] =
    [Method::ToolsList, Method::PromptsList, Method::ResourcesList, Method::TemplatesList];
/// Bytes of text that make about one token of a language model.
const BYTES_PER_TOKEN: usize = 4;

/// The metrics of the process.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Whether both histograms of durations are fed.
    measures_durations: bool,
    /// The tools that are told apart.
    pub(crate) tools: ToolIds,
    pub(crate) calls: CallMetrics,
    pub(crate) connections: ConnectionMetrics,
    pub(crate) upstreams: Families<UpstreamSeries>,
    pub(crate) replicas: ReplicaMetrics,
    pub(crate) children: Families<ChildSeries>,
    pub(crate) gates: Families<GateSeries>,
    pub(crate) bridge: Families<BridgeSeries>,
    pub(crate) pins: Families<PinSeries>,
    pub(crate) sessions: SessionMetrics,
    pub(crate) streams: SessionStreamMetrics,
    pub(crate) subscriptions: SubscriptionMetrics,
    pub(crate) lists: ListMetrics,
    pub(crate) rates: Families<LimitSeries>,
    pub(crate) credentials: CredentialMetrics,
    pub(crate) sign_in: SignInMetrics,
    pub(crate) shared: SharedMetrics,
    pub(crate) gateway: GatewayMetrics,
    /// What the system says of the process; brought up to date when scraped.
    pub(crate) process: ProcessMetrics,
}

impl Metrics {
    /// Registers every metric, and measures what `config` says. Fails only if two have the same name.
    pub(crate) fn of(config: &config::MetricsConfig) -> Result<Self, prometheus::Error> {
        let mut metrics = Self::new(config.tools_max)?;
        metrics.measures_durations = config.durations;
        Ok(metrics)
    }

    /// Registers every metric. Fails only if two have the same name. At most `tools_max` tools are told apart.
    pub fn new(tools_max: usize) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            measures_durations: true,
            tools: ToolIds::new(tools_max),
            calls: CallMetrics::register(&registry)?,
            connections: ConnectionMetrics::register(&registry)?,
            upstreams: Families::register(&registry)?,
            replicas: ReplicaMetrics::register(&registry)?,
            children: Families::register(&registry)?,
            gates: Families::register(&registry)?,
            bridge: Families::register(&registry)?,
            pins: Families::register(&registry)?,
            sessions: SessionMetrics::register(&registry)?,
            streams: SessionStreamMetrics::register(&registry)?,
            subscriptions: SubscriptionMetrics::register(&registry)?,
            lists: ListMetrics::register(&registry)?,
            rates: Families::register(&registry)?,
            credentials: CredentialMetrics::register(&registry)?,
            sign_in: SignInMetrics::register(&registry)?,
            shared: SharedMetrics::register(&registry)?,
            gateway: GatewayMetrics::register(&registry)?,
            process: ProcessMetrics::register(&registry)?,
            registry,
        };
        metrics.config_in_force();
        metrics.process.read();
        Ok(metrics)
    }

    /// The series of one endpoint.
    pub(crate) fn endpoint(&self, path: &str, upstreams: usize) -> Arc<EndpointSeries> {
        self.replicas.endpoint_upstreams.with_label_values(&[path]).set(gauge(upstreams));
        let vecs = EndpointVecs {
            durations: self.measured(&self.calls.server_duration),
            requests: self.calls.requests.clone(),
            tool_failures: self.calls.tool_failures.clone(),
        };
        Arc::new(EndpointSeries::new(path, vecs, self.tools.indexes()))
    }

    /// How long requests to one upstream take.
    pub(crate) fn upstream_durations(&self, name: &str) -> Arc<UpstreamDurations> {
        let durations = self.measured(&self.calls.client_duration);
        let broken = self.calls.replies_broken.clone();
        Arc::new(UpstreamDurations::new(name, durations, broken, self.tools.indexes()))
    }

    /// An upstream is no longer in the configuration: its gauges go, its counters stay.
    pub(crate) fn forget_upstream(&self, name: &str) {
        self.upstreams.forget(name);
        self.children.forget(name);
        self.gates.forget(name);
        self.bridge.forget(name);
        self.pins.forget(name);
        for era in Era::ALL {
            // One that was never set is none.
            let _ = self.replicas.eras.remove_label_values(&[name, era.label()]);
        }
    }

    /// A list of the endpoint at `path` was put together from those of its upstreams.
    pub(crate) fn list_merged(&self, path: &str, list: Method, bytes: usize) {
        let labels = [path, list.label()];
        self.lists.merged_bytes.with_label_values(&labels).set(gauge(bytes));
        self.lists.merged_tokens.with_label_values(&labels).set(gauge(bytes / BYTES_PER_TOKEN));
    }

    /// An endpoint is no longer in the configuration.
    pub(crate) fn forget_endpoint(&self, path: &str) {
        // A gauge that was never set is none.
        let _ = self.replicas.endpoint_upstreams.remove_label_values(&[path]);
        for list in LISTS {
            for vec in [&self.lists.merged_bytes, &self.lists.merged_tokens] {
                let _ = vec.remove_label_values(&[path, list.label()]);
            }
        }
    }

    /// Counts a configuration that was loaded while running.
    pub(crate) fn count_reload(&self, is_accepted: bool) {
        if is_accepted {
            self.gateway.reloads.ok.inc();
            self.config_in_force();
        } else {
            self.gateway.reloads.error.inc();
            self.gateway.config_current.set(0);
        }
    }

    fn config_in_force(&self) {
        let now_s = crate::clock::calendar().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.gateway.config_current.set(1);
        self.gateway.config_loaded_at.set(gauge(now_s));
    }

    /// Every metric, whether it has series or not.
    pub fn families(&self) -> Vec<Family> {
        self.registry.families()
    }

    /// Sums up calls and how long they take; `None`: not measured.
    pub(crate) fn sums(&self) -> Option<Sums> {
        let CallMetrics { server_duration, client_duration, replies_broken, tool_failures, .. } =
            self.calls.clone();
        self.measures_durations
            .then(|| Sums::new(server_duration, client_duration, replies_broken, tool_failures))
    }

    fn measured(&self, durations: &Durations) -> Option<Durations> {
        self.measures_durations.then(|| durations.clone())
    }

    /// Everything in Prometheus' text format.
    pub fn render(&self) -> Vec<u8> {
        self.registry.render()
    }
}

/// Counts one in a gauge while it lives.
#[derive(Debug)]
pub(crate) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    pub(crate) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A count as gauges hold it.
pub(crate) fn gauge(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
