//! Metrics of the lists that are kept.

use prometheus::{IntCounter, IntGauge, Opts};

use super::registry::Registry;
use super::vec::{IntCounterVec, IntGaugeVec};
use protocol::method::Method;

/// What is counted about lists.
#[derive(Clone, Debug)]
pub struct Lists {
    fetches: IntCounterVec,
    sessions_closed: IntCounterVec,
    sessions_refused: IntCounterVec,
    /// Lists of upstreams that were cut off, by why.
    pub cut: IntCounterVec,
    /// Tools left out because of invalid annotations.
    pub tools_excluded: IntCounterVec,
    /// Entries left out because readers differ in what they say.
    pub entries_ambiguous: IntCounterVec,
    /// Answered with what was at hand.
    pub hits: IntCounter,
    /// Answered with something old.
    pub stale: IntCounter,
    /// Fetched.
    pub misses: IntCounter,
    /// Not answered, or not by every upstream.
    pub errors: IntCounter,
    /// Bytes of lists that are kept; set when scraped.
    pub bytes: IntGauge,
    merged_bytes: IntGaugeVec,
    merged_tokens: IntGaugeVec,
}

const LISTS: [Method; 4] =
    [Method::ToolsList, Method::PromptsList, Method::ResourcesList, Method::TemplatesList];
/// Bytes of text that make about one token of a language model.
const BYTES_PER_TOKEN: usize = 4;

impl Lists {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name, help, labels: &[&str]| {
            let vec = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(vec.clone())).map(|()| vec)
        };
        let answered = counters(
            "trunkline_list_cache_total",
            "Lists by how they were answered: hit, kept and fresh; stale, with something old; miss, after a fetch; error, not at all or without an upstream.",
            &["result"],
        )?;
        let bytes = IntGauge::new("trunkline_list_cache_bytes", "Bytes of lists kept in memory.")?;
        registry.register(Box::new(bytes.clone()))?;
        Ok(Self {
            fetches: counters(
                "trunkline_list_fetches_total",
                "Lists fetched from upstreams; all pages of a list count once.",
                &["upstream", "result"],
            )?,
            sessions_closed: counters(
                "trunkline_list_sessions_closed_total",
                "Sessions of the gateway's own in which lists were fetched, closed to make room for another.",
                &["upstream"],
            )?,
            sessions_refused: counters(
                "trunkline_list_sessions_refused_total",
                "Lists for which a session of the gateway's own was needed that could not be had.",
                &["upstream"],
            )?,
            cut: counters(
                "trunkline_lists_cut_total",
                "Lists of an upstream that were cut off, by reason.",
                &["upstream", "reason"],
            )?,
            tools_excluded: counters(
                "trunkline_tools_excluded_total",
                "Tools left out because of invalid x-mcp-header annotations, counted when their list changes.",
                &["upstream"],
            )?,
            entries_ambiguous: counters(
                "trunkline_list_entries_ambiguous_total",
                "Entries of lists left out because a member of theirs stands twice, counted when their list changes.",
                &["upstream", "mcp_method_name"],
            )?,
            hits: answered.with_label_values(&["hit"]),
            stale: answered.with_label_values(&["stale"]),
            misses: answered.with_label_values(&["miss"]),
            errors: answered.with_label_values(&["error"]),
            bytes,
            merged_bytes: registry.gauges(
                "trunkline_list_bytes",
                "Bytes of an endpoint's list, as it was last put together: what a client takes in.",
                &["endpoint", "mcp_method_name"],
            )?,
            merged_tokens: registry.gauges(
                "trunkline_list_tokens",
                "The same in tokens of a language model, estimated: a quarter of the bytes.",
                &["endpoint", "mcp_method_name"],
            )?,
        })
    }

    /// Counts the fetches of one upstream that succeeded, and those that failed.
    pub fn fetches_of(&self, upstream: &str) -> [IntCounter; 2] {
        ["ok", "error"].map(|result| self.fetches.with_label_values(&[upstream, result]))
    }

    /// Counts the sessions for lists of one upstream that made room for others, and those that could not be had.
    pub fn sessions_of(&self, upstream: &str) -> [IntCounter; 2] {
        [&self.sessions_closed, &self.sessions_refused].map(|vec| vec.with_label_values(&[upstream]))
    }

    /// A list of the endpoint at `path` was put together from those of its upstreams.
    pub fn merged(&self, path: &str, list: Method, bytes: usize) {
        let labels = [path, list.label()];
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.merged_bytes.with_label_values(&labels).set(gauge(bytes));
        self.merged_tokens.with_label_values(&labels).set(gauge(bytes / BYTES_PER_TOKEN));
    }

    /// There is no endpoint at `path` any more.
    pub fn forget(&self, path: &str) {
        for list in LISTS {
            for gauge in [&self.merged_bytes, &self.merged_tokens] {
                // One that was never set is none.
                let _ = gauge.remove_label_values(&[path, list.label()]);
            }
        }
    }
}
