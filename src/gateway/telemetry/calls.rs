//! What is counted about calls: of clients by endpoint, and of the gateway by upstream.
//!
//! Every label is bounded, and the product of those that come together is, too: a call that was answered is told by its
//! tool, or where it has none by its method and version; one that failed by its method and the reason. Invariant: a
//! series is looked up by label when it is first used, and afterwards found by number.

use std::sync::OnceLock;
use std::time::Duration;

use super::book::{Counters, Durations};
use super::cells::Cells;
use super::metrics::sharded::{ShardedCounter, ShardedHistogram};
use super::metrics::vec::ShardedCounterVec;
use super::tools::ToolId;
use protocol::error::{Error, Reason};
use protocol::method::Method;
use protocol::version::{LegacyVersion, MODERN};

/// Tools in one row of a table.
const TOOLS_IN_ROW: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// It was not found out.
    #[default]
    Unknown,
    Modern,
    Legacy(LegacyVersion),
}

impl Spoken {
    const COUNT: usize = 2 + LegacyVersion::ALL.len();

    fn index(self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Modern => 1,
            Self::Legacy(version) => 2 + version as usize,
        }
    }

    /// As it is written; empty if it was not found out.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Modern => MODERN[0],
            Self::Legacy(version) => version.as_str(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) method: Method,
    pub(crate) spoken: Spoken,
    pub(crate) tool: Option<ToolId>,
    /// Why it failed; `None`: it was answered.
    pub(crate) reason: Option<Reason>,
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct EndpointVecs {
    /// By endpoint, method, tool, version and reason; `None`: not measured.
    pub(crate) durations: Option<Durations>,
    /// By endpoint, version, outcome and reason.
    pub(crate) requests: ShardedCounterVec,
    /// By endpoint and tool.
    pub(crate) tool_failures: Counters,
}

#[derive(Debug)]
pub(crate) struct EndpointSeries {
    path: String,
    vecs: EndpointVecs,
    /// By method and version.
    answered: Cells<ShardedHistogram>,
    /// By method and reason.
    failed: Cells<ShardedHistogram>,
    /// By version and reason.
    requests: Cells<ShardedCounter>,
    tools: Cells<ToolSeries>,
}

/// What is counted about one tool at one endpoint.
#[derive(Debug)]
struct ToolSeries {
    /// What clients call it.
    name: Box<str>,
    answered: OnceLock<ShardedHistogram>,
    failures: OnceLock<ShardedCounter>,
}

impl EndpointSeries {
    /// The series of the endpoint at `path`, with tools of indexes below `tools`.
    pub(crate) fn new(path: &str, vecs: EndpointVecs, tools: usize) -> Self {
        Self {
            path: path.to_owned(),
            vecs,
            answered: Cells::new(Method::COUNT, Spoken::COUNT),
            failed: Cells::new(Method::COUNT, Reason::COUNT),
            requests: Cells::new(Spoken::COUNT, Reason::COUNT + 1),
            tools: Cells::new(tools.div_ceil(TOOLS_IN_ROW), TOOLS_IN_ROW),
        }
    }

    /// A tool is called here; `public` is what clients call it, and asked for once.
    pub(crate) fn note_tool(&self, tool: ToolId, public: impl FnOnce() -> String) {
        self.tool(tool, || if tool == ToolId::OTHER { ToolId::OTHER_LABEL.to_owned() } else { public() });
    }

    /// So many percent of the answered calls of this tool take no longer; `None` where none was measured.
    pub(crate) fn tool_quantile(&self, tool: ToolId, percent: u8) -> Option<Duration> {
        let series = self.tools.find(tool.index() / TOOLS_IN_ROW, tool.index() % TOOLS_IN_ROW)?;
        let seconds = series.answered.get()?.quantile(percent)?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    pub(crate) fn observe(&self, call: &Outcome) {
        let Outcome { spoken, tool, reason, seconds, .. } = *call;
        if let Some(histogram) = self.vecs.durations.as_ref().and_then(|vec| self.duration(vec, call)) {
            histogram.observe(seconds);
        }
        let column = reason.map_or(0, |reason| reason as usize + 1);
        let request = || {
            let (outcome, reason) = (outcome(reason), reason.map_or("", Reason::label));
            self.vecs.requests.with_label_values(&[&*self.path, spoken.label(), outcome, reason])
        };
        if let Some(requests) = self.requests.get(spoken.index(), column, request) {
            requests.inc();
        }
        if let (Some(_), Some(tool)) = (reason, tool)
            && let Some(series) = self.tool(tool, || ToolId::OTHER_LABEL.to_owned())
        {
            let failures = || self.vecs.tool_failures.series(&[&*self.path, &*series.name]);
            series.failures.get_or_init(failures).inc();
        }
    }

    fn duration(&self, vec: &Durations, call: &Outcome) -> Option<&ShardedHistogram> {
        let Outcome { method, spoken, tool, reason, .. } = *call;
        let make = |[tool, version, error_type]: [&str; 3]| {
            vec.series(&[&*self.path, method.label(), tool, version, error_type])
        };
        match (reason, tool) {
            (Some(reason), _) => {
                self.failed.get(method.index(), reason as usize, || make(["", "", reason.label()]))
            }
            (None, Some(tool)) => self
                .tool(tool, || ToolId::OTHER_LABEL.to_owned())
                .map(|series| series.answered.get_or_init(|| make([&series.name, "", ""]))),
            (None, None) => {
                self.answered.get(method.index(), spoken.index(), || make(["", spoken.label(), ""]))
            }
        }
    }

    fn tool(&self, tool: ToolId, public: impl FnOnce() -> String) -> Option<&ToolSeries> {
        let (row, column) = (tool.index() / TOOLS_IN_ROW, tool.index() % TOOLS_IN_ROW);
        self.tools.get(row, column, || ToolSeries {
            name: public().into(),
            answered: OnceLock::new(),
            failures: OnceLock::new(),
        })
    }
}

/// The coarse answer to what became of a call.
pub(crate) fn outcome(reason: Option<Reason>) -> &'static str {
    use Reason as R;
    match reason {
        None => "answered",
        Some(R::Cancelled | R::Aborted) => "cancelled",
        Some(
            R::UpstreamUnreachable
            | R::UpstreamReset
            | R::SlowClient
            | R::UpstreamTimeout
            | R::UpstreamInvalid
            | R::UpstreamCredentials
            | R::UpstreamBusy
            | R::UpstreamConnections
            | R::UpstreamSession
            | R::UpstreamEra
            | R::UpstreamUnhealthy
            | R::Buffers
            | R::Draining
            | R::Sessions
            | R::NamesUnknown
            | R::SharedLimits
            | R::PinsUnknown
            | R::TokenKeys,
        ) => "failed",
        Some(_) => "refused",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallLabels {
    pub(crate) method: Method,
    pub(crate) tool: Option<ToolId>,
}

#[derive(Debug)]
pub(crate) struct UpstreamDurations {
    name: String,
    /// `None`: not measured.
    vec: Option<Durations>,
    /// By method; the last one is for requests of the gateway's own.
    answered: Cells<ShardedHistogram>,
    /// By method, as those that were answered, and reason.
    failed: Cells<ShardedHistogram>,
    tools: Cells<ShardedHistogram>,
    replies_broken: Counters,
    /// By reason.
    broken: Cells<ShardedCounter>,
}

impl UpstreamDurations {
    /// Those of the upstream `name`, with tools of indexes below `tools`.
    pub(crate) fn new(name: &str, vec: Option<Durations>, replies_broken: Counters, tools: usize) -> Self {
        Self {
            name: name.to_owned(),
            replies_broken,
            broken: Cells::new(1, Reason::COUNT),
            vec,
            answered: Cells::new(1, Method::COUNT + 1),
            failed: Cells::new(Method::COUNT + 1, Reason::COUNT),
            tools: Cells::new(tools.div_ceil(TOOLS_IN_ROW), TOOLS_IN_ROW),
        }
    }

    /// A tool is about to be called, by this name of the upstream's own.
    pub(crate) fn note_tool(&self, tool: ToolId, name: &str) {
        if let Some(vec) = &self.vec {
            self.tool(vec, tool, if tool == ToolId::OTHER { ToolId::OTHER_LABEL } else { name });
        }
    }

    /// Counts one exchange. `asked` is what it is about, `None` where it is the gateway's own; `reason` is why it failed.
    pub(crate) fn observe(&self, asked: Option<CallLabels>, reason: Option<Reason>, seconds: f64) {
        let Some(vec) = &self.vec else { return };
        let row = asked.map_or(Method::COUNT, |asked| asked.method.index());
        let method = asked.map_or("", |asked| asked.method.label());
        let histogram = match (reason, asked.and_then(|asked| asked.tool)) {
            (Some(reason), _) => {
                self.failed.get(row, reason as usize, || self.duration(vec, [method, "", reason.label()]))
            }
            (None, Some(tool)) => self.tool(vec, tool, ToolId::OTHER_LABEL),
            (None, None) => self.answered.get(0, row, || self.duration(vec, [method, "", ""])),
        };
        if let Some(histogram) = histogram {
            histogram.observe(seconds);
        }
    }

    /// A reply that had begun, and was counted as one, is no answer after all.
    pub(crate) fn note_broken(&self, error: &Error) {
        let reason = error.outcome().reason;
        let series = || self.replies_broken.series(&[&*self.name, reason.label()]);
        if let Some(broken) = self.broken.get(0, reason as usize, series) {
            broken.inc();
        }
    }

    fn tool(&self, vec: &Durations, tool: ToolId, name: &str) -> Option<&ShardedHistogram> {
        let (row, column) = (tool.index() / TOOLS_IN_ROW, tool.index() % TOOLS_IN_ROW);
        self.tools.get(row, column, || self.duration(vec, [Method::ToolsCall.label(), name, ""]))
    }

    fn duration(&self, vec: &Durations, [method, tool, error_type]: [&str; 3]) -> ShardedHistogram {
        vec.series(&[&*self.name, method, tool, error_type])
    }
}
