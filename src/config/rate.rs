//! `[[limit]]` → [`RateLimit`]: how many calls who may make.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use globset::Glob;
use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

use super::endpoint::globs;
use super::file::{self, File};
use super::resolve::Findings;
use super::value::{At, Count, DAY_MS, Key, Period};
use super::{Endpoint, Upstream};

/// What the name of a mirrored parameter's header begins with.
const PARAM_HEADER: &str = "mcp-param-";
/// More are not checked for every call.
const LIMITS_MAX: usize = 64;
/// The longest time that a burst may take to come back.
const RECOVERY_MAX: Duration = Duration::from_hours(366 * 24);

/// `[[limit]]`: how many calls may be made in a time, by each of those who are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Its name: 1 to 64 letters, digits and `.`, `_`, `-`; distinct.
    pub name: String,
    /// Whose calls are counted together: those of which all these are equal. Sorted, distinct, at least one.
    pub by: Vec<CountedBy>,
    /// Calls in each period, at least one.
    pub calls: u32,
    /// The period.
    pub period: Duration,
    /// Calls that may come at once, at least one and no fewer than any weight.
    pub burst: u32,
    /// What a call of a tool counts as: the first glob that matches its name at its upstream; sorted by glob.
    pub weights: Vec<(String, u32)>,
    /// Paths of the endpoints it is about; empty: all.
    pub endpoints: Vec<String>,
    /// Names of the upstreams it is about; empty: all.
    pub upstreams: Vec<String>,
    /// Globs over the names of the tools it is about, as their upstreams call them; empty: all methods.
    pub tools: Vec<String>,
    /// Names of the principals it is about; with `groups` empty: all.
    pub principals: Vec<String>,
    /// Groups whose members it is about.
    pub groups: Vec<String>,
    /// Whether it is counted for all replicas of the gateway together.
    pub shared: bool,
    /// Whether every call asks for the shared count.
    pub exact: bool,
    /// What holds while the shared count cannot be had.
    pub fallback: Fallback,
}

/// One of the things that calls are told apart by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountedBy {
    /// Who calls; without credentials, the client's address.
    Principal,
    /// The address the call comes from; of IPv6 its /64.
    Address,
    /// The endpoint.
    Endpoint,
    /// The upstream.
    Upstream,
    /// The tool, by its upstream and its name there.
    Tool,
    /// The value of a mirrored parameter: the name of its header, in lower case.
    Param(String),
}

/// What holds while the shared count of a limit cannot be had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// Each replica counts for itself.
    #[default]
    Local,
    /// Calls pass uncounted.
    Allow,
    /// Calls are refused.
    Deny,
}

impl RateLimit {
    /// Whether it is about every request, whatever it asks for; else it is about what goes to an upstream.
    pub fn is_of_requests(&self) -> bool {
        let is_of_route =
            |by: &CountedBy| matches!(by, CountedBy::Upstream | CountedBy::Tool | CountedBy::Param(_));
        !self.by.iter().any(is_of_route)
            && self.weights.is_empty()
            && self.upstreams.is_empty()
            && self.tools.is_empty()
    }

    /// Whether it is about each principal alone, whatever it calls.
    fn is_each_principals_own(&self) -> bool {
        self.by == [CountedBy::Principal]
            && [&self.endpoints, &self.upstreams, &self.tools, &self.principals, &self.groups]
                .iter()
                .all(|filter| filter.is_empty())
    }
}

/// How many calls may be made in a time, by each of those who are told apart.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Limit", extend("required" = ["name", "by", "calls", "period"]))]
pub(super) struct WrittenLimit {
    /// Its name, which refused clients and metrics show.
    #[schemars(extend("pattern" = "^[A-Za-z0-9._-]{1,64}$"))]
    pub(super) name: Key<String>,
    /// Whose calls are counted together: any of `principal` (without credentials, the address), `address` (of IPv6 its
    /// /64), `endpoint`, `upstream`, `tool`, and `param:NAME` for the value of the header `Mcp-Param-NAME`, for each
    /// principal by itself.
    #[schemars(extend("minItems" = 1))]
    pub(super) by: Key<Vec<At<String>>>,
    /// Calls in a period.
    pub(super) calls: Key<Count<1, 10_000_000>>,
    /// The period; 1ms to 720h.
    pub(super) period: Key<Period<1, { 30 * DAY_MS }>>,
    /// Calls that may come at once. Default: `calls`.
    pub(super) burst: Key<Count<1, 10_000_000>>,
    /// What a call of a tool counts as, by globs over its name at its upstream; of several that match, the first in
    /// order of the alphabet. Default: 1.
    pub(super) weights: Key<BTreeMap<At<String>, At<Count<1, 1_000_000>>>>,
    /// Paths of the endpoints it is about. Default: all.
    pub(super) endpoints: Key<Vec<At<String>>>,
    /// Names of the upstreams it is about. Default: all.
    pub(super) upstreams: Key<Vec<At<String>>>,
    /// Globs over the names of the tools it is about, as their upstreams call them. Default: all tools, and everything
    /// else.
    pub(super) tools: Key<Vec<At<String>>>,
    /// Names of the principals it is about. Default: all.
    pub(super) principals: Key<Vec<At<String>>>,
    /// Groups whose members it is about. Default: all.
    pub(super) groups: Key<Vec<At<String>>>,
    /// Whether it is counted for all replicas of the gateway together; needs `[shared]`. Default: false.
    pub(super) shared: Key<bool>,
    /// For small limits that are shared: whether every call asks for the count, which is exact and costs a round trip.
    /// Default: false.
    pub(super) exact: Key<bool>,
    /// What holds while the shared count cannot be had: each replica counts for itself (`local`), calls pass uncounted
    /// (`allow`), or are refused (`deny`). Default: `local`.
    pub(super) fallback: Key<Fallback>,
}

/// How many calls an upstream gets at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concurrency {
    /// Calls under way, at least one.
    pub calls_max: usize,
    /// Calls that wait.
    pub calls_waiting_max: usize,
    /// How long one waits.
    pub calls_wait_max: Duration,
}

/// How many calls the upstream gets at once; keys that only matter then are refused without, as they would do nothing.
pub(super) fn concurrency(upstream: &file::Upstream, findings: &mut Findings) -> Option<Concurrency> {
    if upstream.calls_max.0.is_none() {
        for (key, span) in [
            ("calls_waiting_max", upstream.calls_waiting_max.span()),
            ("calls_wait_max", upstream.calls_wait_max.span()),
        ] {
            if let Some(span) = span {
                findings.error(span, format!("`{key}` is for upstreams with `calls_max`"));
            }
        }
        return None;
    }
    Some(Concurrency {
        calls_max: upstream.calls_max.or(1),
        calls_waiting_max: upstream.calls_waiting_max.or(1000),
        calls_wait_max: upstream.calls_wait_max.or(Duration::from_secs(10)),
    })
}

/// All limits, in the order of the text. `has_shared`: there is a place to share counts in.
pub(super) fn resolve(
    file: &File,
    endpoints: &[Endpoint],
    upstreams: &[Upstream],
    has_shared: bool,
    findings: &mut Findings,
) -> Vec<RateLimit> {
    let mut names = BTreeSet::new();
    let mut limits = Vec::new();
    for At { value: written, span } in &file.limit {
        if let Some(At { value: name, span }) =
            findings.required(&written.name, span, "the limit has no `name`: refused clients are told it")
        {
            if !is_name(name) {
                let message = "not the name of a limit: use 1 to 64 letters, digits and `.`, `_`, `-`";
                findings.error(span.clone(), message);
            } else if !names.insert(name) {
                findings.error(span.clone(), format!("two limits are named `{name}`: choose another name"));
            }
        }
        let limit = one(written, span, findings);
        for (filter, known, kind) in [
            (&written.endpoints, endpoints.iter().map(|it| &it.path).collect::<Vec<_>>(), "endpoint"),
            (&written.upstreams, upstreams.iter().map(|it| &it.name).collect(), "upstream"),
        ] {
            for At { value, span } in filter.value().into_iter().flatten() {
                if !known.contains(&value) {
                    findings.error(span.clone(), format!("there is no {kind} `{value}`"));
                }
            }
        }
        check_shared(written, has_shared, findings);
        limits.push(limit);
    }
    if let Some(At { span, .. }) = file.limit.get(LIMITS_MAX) {
        findings.error(span.clone(), format!("more than {LIMITS_MAX} limits: each costs every call"));
    }
    check_params(file, &limits, findings);
    limits
}

fn one(written: &WrittenLimit, span: &Range<usize>, findings: &mut Findings) -> RateLimit {
    let message = "the limit has no `by`: write for example `by = [\"principal\"]`";
    let by = findings.required(&written.by, span, message).map(|by| counted_by(by, findings));
    findings.required(&written.calls, span, "the limit has no `calls`: how many may be made in a period");
    findings.required(
        &written.period,
        span,
        "the limit has no `period`: write for example `period = \"1m\"`",
    );
    let calls = count(written.calls.or(1));
    let burst = count(written.burst.or(written.calls.or(1)));
    let period = written.period.or(Duration::from_secs(1));
    if period.saturating_mul(burst) / calls > RECOVERY_MAX {
        let span = written.burst.span().or_else(|| written.period.span()).unwrap_or_default();
        findings.error(span, "a burst takes more than a year to come back: make it smaller");
    }
    let mut weights = Vec::new();
    for (glob, weight) in written.weights.value().into_iter().flatten() {
        if let Err(error) = Glob::new(&glob.value) {
            findings.error(glob.span.clone(), format!("not a glob: {}", error.kind()));
        }
        let heavy = count(Key(Some(weight.clone())).or(1));
        if heavy > burst {
            let message = format!("heavier than the burst ({burst}), so that no such call could ever pass");
            findings.error(weight.span.clone(), message);
        }
        weights.push((glob.value.clone(), heavy));
    }
    let texts = |key: &Key<Vec<At<String>>>| -> Vec<String> {
        key.value().into_iter().flatten().map(|text| text.value.clone()).collect()
    };
    RateLimit {
        name: written.name.value().cloned().unwrap_or_default(),
        by: by.unwrap_or_default(),
        calls,
        period,
        burst,
        weights,
        endpoints: texts(&written.endpoints),
        upstreams: texts(&written.upstreams),
        tools: globs(&written.tools, findings).unwrap_or_default(),
        principals: texts(&written.principals),
        groups: texts(&written.groups),
        shared: written.shared.value().copied().unwrap_or(false),
        exact: written.exact.value().copied().unwrap_or(false),
        fallback: written.fallback.value().copied().unwrap_or_default(),
    }
}

fn counted_by(written: &At<Vec<At<String>>>, findings: &mut Findings) -> Vec<CountedBy> {
    let mut by = BTreeSet::new();
    for At { value, span } in &written.value {
        let one = match value.as_str() {
            "principal" => Some(CountedBy::Principal),
            "address" => Some(CountedBy::Address),
            "endpoint" => Some(CountedBy::Endpoint),
            "upstream" => Some(CountedBy::Upstream),
            "tool" => Some(CountedBy::Tool),
            other => other.strip_prefix("param:").and_then(param),
        };
        match one {
            Some(one) => {
                if !by.insert(one) {
                    findings.error(span.clone(), "named twice: name each once");
                }
            }
            None => findings.error(
                span.clone(),
                "use `principal`, `address`, `endpoint`, `upstream`, `tool`, or `param:NAME` for the header Mcp-Param-NAME",
            ),
        }
    }
    if written.value.is_empty() {
        findings.error(written.span.clone(), "`by` is empty: write for example `by = [\"principal\"]`");
    }
    by.into_iter().collect()
}

fn param(name: &str) -> Option<CountedBy> {
    let header = format!("{PARAM_HEADER}{}", name.to_ascii_lowercase());
    (!name.is_empty() && header.parse::<HeaderName>().is_ok()).then_some(CountedBy::Param(header))
}

/// Clients choose the values of parameters, and could choose another one for every call.
fn check_params(file: &File, limits: &[RateLimit], findings: &mut Findings) {
    if limits.iter().any(RateLimit::is_each_principals_own) {
        return;
    }
    let by_param = |limit: &RateLimit| limit.by.iter().any(|by| matches!(by, CountedBy::Param(_)));
    for (limit, written) in limits.iter().zip(&file.limit) {
        if by_param(limit) {
            let span = written.value.by.span().unwrap_or_default();
            findings.error(
                span,
                "clients choose what stands in `param:`: add a [[limit]] with `by = [\"principal\"]` alone and no filter",
            );
        }
    }
}

fn check_shared(written: &WrittenLimit, has_shared: bool, findings: &mut Findings) {
    let is_shared = written.shared.value() == Some(&true);
    if is_shared && !has_shared {
        let span = written.shared.span().unwrap_or_default();
        findings.error(span, "there is nothing to share it through: add [shared]");
    }
    let is_exact = written.exact.value() == Some(&true);
    let has_fallback = written.fallback.value().is_some_and(|fallback| *fallback != Fallback::Local);
    for (key, is_set, span) in
        [("exact", is_exact, written.exact.span()), ("fallback", has_fallback, written.fallback.span())]
    {
        if let Some(span) = span.filter(|_| is_set && !is_shared) {
            findings.error(span, format!("`{key}` is for limits with `shared = true`"));
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}
