//! `[[limit]]`: how many calls who may make, and how many an upstream gets at once.

use std::collections::BTreeSet;
use std::time::Duration;

use super::arguments::MissingArgument;
use super::array::{Array, Distinct, Map};
use super::findings::Findings;
use super::section::section;
use super::table::Table;
use super::text::{Any, Fault, Glob, RuleName, texts};
use super::value::{Count, DAY_MS, HOUR_MS, Period, choice};
use super::{Config, EndpointConfig};
use protocol::arguments::ArgumentPath;

/// More are not checked for every call.
const LIMITS_MAX: usize = 64;
/// The most calls of a period.
const CALLS_MAX: u32 = 10_000_000;
/// The longest period.
const PERIOD_MAX: Duration = Duration::from_hours(30 * 24);
/// The longest time that a burst may take to come back.
const RECOVERY_MAX: Duration = Duration::from_hours(366 * 24);

section! {
    /// How many calls may be made in a time, by each of those who are told apart; up to 64 of them. Beyond, 429 with
    /// `Retry-After`. A limit that has `weights`, or names upstreams or tools in its keys or in `by`, counts calls on their
    /// way to an upstream; any other counts every message.
    pub struct RateLimit {
        /// Its name, which refused clients and metrics show.
        #[example("search")]
        #[missing("refused clients are told it")]
        name: RuleName,
        /// Whose calls are counted together: any of `principal` (without credentials, the address), `address` (of IPv6
        /// its /64), `endpoint`, `upstream`, `tool`, and `argument:NAME` for the value of an argument of the called tool
        /// (`argument:customer.id` within an object), for each principal by itself and only where a limit by `principal`
        /// alone exists.
        #[example(["principal", "tool"])]
        by: Distinct<By, 1>,
        /// Calls in a period, in one: `"600/m"` for 600 a minute, `"5/10s"`. Instead of `calls` and `period`.
        #[example("600/m")]
        rate: Option<Rate>,
        /// Calls in a period.
        #[example(60)]
        calls: Count<1, { CALLS_MAX as u64 }, u32> => rate.map_or(1, |rate| rate.calls),
        /// The period.
        #[example("1m")]
        period: Period<1, { 30 * DAY_MS }> => rate.map_or(Duration::from_secs(1), |rate| rate.period),
        /// Calls that may come at once. Default: `calls`.
        #[example(100)]
        burst: Count<1, { CALLS_MAX as u64 }, u32> => calls,
        /// What a call of a tool counts as, by globs over its name at its upstream; of several that match, the first in
        /// order of the alphabet. What matches none counts as 1.
        #[example({ "search_all*" = 5 })]
        weights: Map<Count<1, 1_000_000, u32>> = {},
        /// Paths of the endpoints it is about, or host and path where endpoints share a path. Empty: all.
        #[example(["/mcp"])]
        endpoints: Array<Any> = [],
        /// Names of the upstreams it is about. Empty: all.
        #[example(["weather"])]
        upstreams: Array<Any> = [],
        /// Globs over the names of the tools it is about, as their upstreams call them. Empty: all tools, and everything
        /// else.
        #[example(["search*"])]
        tools: Array<Glob> = [],
        /// Names of the principals it is about. Empty: all.
        #[example(["ci"])]
        principals: Array<Any> = [],
        /// Groups whose members it is about. Empty: all.
        #[example(["ops"])]
        groups: Array<Any> = [],
        /// Whether it is counted for all replicas of the gateway together; needs `[shared]`.
        shared: bool = false,
        /// For small limits that are shared: whether every call asks for the count, which is exact and costs a round
        /// trip.
        exact: bool = false,
        /// What holds while the shared count cannot be had: each replica counts for itself (`local`), calls pass
        /// uncounted (`allow`), or are refused (`deny`).
        fallback: Fallback = "local",
        /// With `argument:` in `by`: what becomes of a call of a tool that lacks the argument, or has one that is no
        /// string, number or boolean. `refuse` it, or `allow` it: all such calls count together.
        missing_arguments: MissingArgument = "refuse",
    }
    check check_limit;
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
    /// The value of an argument of the called tool.
    Argument(ArgumentPath),
}

choice! {
    /// What holds while the shared count of a limit cannot be had.
    pub enum Fallback {
        /// Each replica counts for itself.
        Local = "local",
        /// Calls pass uncounted.
        Allow = "allow",
        /// Calls are refused.
        Deny = "deny",
    }
}

/// Calls in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRate {
    /// How many.
    pub calls: u32,
    /// In which time.
    pub period: Duration,
}

texts! {
    /// Calls in a period: `"600/m"`.
    pub Rate -> CallRate, "^[0-9]+/[0-9]*(s|m|h|d)$", call_rate;
    /// One of the things that calls are told apart by.
    pub By -> CountedBy, "^(principal|address|endpoint|upstream|tool|argument:.+)$", counted_by,
        words: &["principal", "address", "endpoint", "upstream", "tool"];
}

impl RateLimit {
    /// Whether it is about every request, whatever it asks for; else it is about what goes to an upstream.
    pub fn is_of_requests(&self) -> bool {
        let is_of_route =
            |by: &CountedBy| matches!(by, CountedBy::Upstream | CountedBy::Tool | CountedBy::Argument(_));
        !self.by.iter().any(is_of_route)
            && self.weights.is_empty()
            && self.upstreams.is_empty()
            && self.tools.is_empty()
    }

    /// The arguments that it counts by.
    pub fn arguments(&self) -> impl Iterator<Item = &ArgumentPath> {
        self.by.iter().filter_map(|by| match by {
            CountedBy::Argument(path) => Some(path),
            _ => None,
        })
    }

    /// Whether it is about each principal alone, whatever it calls.
    fn is_each_principals_own(&self) -> bool {
        self.by == [CountedBy::Principal]
            && [&self.endpoints, &self.upstreams, &self.tools, &self.principals, &self.groups]
                .iter()
                .all(|filter| filter.is_empty())
    }
}

section! {
    /// How many calls an upstream gets at once.
    pub struct Concurrency {
        /// Calls under way at once, of all clients, each until the end of its reply; one that its client leaves or cancels
        /// for as long as such calls usually take. Beyond, calls wait. Default: as many as come.
        #[example(64)]
        calls_max: Count<1, 1_048_576> => usize::MAX,
        /// With `calls_max`: calls that may wait for one of these to end. The principals that wait take turns, those who
        /// had little lately in between, and none holds more than half while another waits. Beyond, 429. Default: 1000.
        #[example(1000)]
        calls_waiting_max: Count<0, 1_048_576> => 1000,
        /// With `calls_max`: time for which a call may wait. Default: 10s.
        #[example("10s")]
        calls_wait_max: Period<1, HOUR_MS> => Duration::from_secs(10),
    }
    check where_bounded => Option<Concurrency>;
}

/// Keys that only matter where there is a bound are refused without, as they would do nothing.
fn where_bounded(bound: Concurrency, table: Table<'_>, findings: &mut Findings) -> Option<Concurrency> {
    if table.has("calls_max") {
        return Some(bound);
    }
    for key in ["calls_waiting_max", "calls_wait_max"] {
        findings.error_at(table, key, format!("`{key}` is for upstreams with `calls_max`"));
    }
    None
}

fn counted_by(text: &str) -> Result<CountedBy, Fault> {
    let by = match text {
        "principal" => Some(CountedBy::Principal),
        "address" => Some(CountedBy::Address),
        "endpoint" => Some(CountedBy::Endpoint),
        "upstream" => Some(CountedBy::Upstream),
        "tool" => Some(CountedBy::Tool),
        other => other.strip_prefix("argument:").and_then(ArgumentPath::read).map(CountedBy::Argument),
    };
    by.ok_or_else(|| {
        "use `principal`, `address`, `endpoint`, `upstream`, `tool`, or `argument:NAME` for an argument of the called tool".into()
    })
}

fn call_rate(text: &str) -> Result<CallRate, Fault> {
    let parsed = || {
        let (calls, period) = text.split_once('/')?;
        let (digits, unit) = period.split_at(period.find(|character: char| !character.is_ascii_digit())?);
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 24 * 3600,
            _ => return None,
        };
        let number: u64 = if digits.is_empty() { 1 } else { digits.parse().ok()? };
        let period = Duration::from_secs(number.checked_mul(seconds)?);
        let calls = calls.parse().ok().filter(|calls| (1..=CALLS_MAX).contains(calls))?;
        (!period.is_zero() && period <= PERIOD_MAX).then_some(CallRate { calls, period })
    };
    parsed().ok_or_else(|| {
        "not a rate: write for example \"600/m\", \"10/s\" or \"5/10s\"; a period is at most 30d".into()
    })
}

fn check_quota(table: Table<'_>, findings: &mut Findings) {
    if table.has("rate") {
        for key in ["calls", "period"] {
            findings.error_at(table, key, format!("`{key}` and `rate` exclude each other: keep one"));
        }
        return;
    }
    let missing = match (table.has("calls"), table.has("period")) {
        (true, true) => return,
        (true, false) => "period",
        (false, true) => "calls",
        (false, false) => "rate",
    };
    if !findings.is_misspelt(table) {
        let message = format!("[[limit]] has no `{missing}`: write for example `rate = \"600/m\"`");
        findings.error(table.span(), message);
    }
}

fn check_limit(mut limit: RateLimit, table: Table<'_>, findings: &mut Findings) -> RateLimit {
    check_quota(table, findings);
    limit.rate = None; // It is in the other two.
    limit.by.sort_unstable();
    if let Some(span) = findings.span(table, "burst").or_else(|| findings.span(table, "period"))
        && limit.period.saturating_mul(limit.burst) / limit.calls > RECOVERY_MAX
    {
        findings.error(span, "a burst takes more than a year to come back: make it smaller");
    }
    for (glob, node) in table.table("weights").entries() {
        if let Err(error) = globset::Glob::new(glob.get_ref()) {
            findings.error(glob.span(), format!("not a glob: {}", error.kind()));
        }
        let weight = limit.weights.iter().find(|(name, _)| name == glob.get_ref());
        if weight.is_some_and(|(_, weight)| *weight > limit.burst) {
            let message =
                format!("heavier than the burst ({}), so that no such call could ever pass", limit.burst);
            findings.error(node.span(), message);
        }
    }
    if limit.arguments().next().is_none() && limit.missing_arguments == MissingArgument::Allow {
        let message = "`missing_arguments` is for limits with `argument:` in `by`";
        findings.error_at(table, "missing_arguments", message);
    }
    for (key, is_set) in [("exact", limit.exact), ("fallback", limit.fallback != Fallback::Local)] {
        if is_set && !limit.shared {
            findings.error_at(table, key, format!("`{key}` is for limits with `shared = true`"));
        }
    }
    limit
}

/// What holds between limits, and between a limit and what it names.
pub(super) fn check(config: &Config, root: Table<'_>, findings: &mut Findings) {
    let mut names = BTreeSet::new();
    let tables = root.tables("limit");
    let called: Vec<_> = config.endpoints.iter().flat_map(|it| [&it.path, &it.name]).collect();
    for (limit, &table) in config.rate_limits.iter().zip(&tables) {
        let message = format!("two limits are named `{}`: choose another name", limit.name);
        findings.unique(table, "name", &limit.name, &mut names, message);
        for (key, known, kind) in [
            ("endpoints", called.clone(), "endpoint"),
            ("upstreams", config.upstreams.iter().map(|it| &it.name).collect(), "upstream"),
        ] {
            for (text, span) in table.texts(key) {
                if !known.iter().any(|name| *name == text) {
                    findings.error(span, format!("there is no {kind} `{text}`"));
                }
            }
        }
        if limit.shared && !root.has("shared") {
            findings.error_at(table, "shared", "there is nothing to share it through: add [shared]");
        }
    }
    if let Some(table) = tables.get(LIMITS_MAX) {
        findings.error(table.span(), format!("more than {LIMITS_MAX} limits: each costs every call"));
    }
    check_arguments(&config.rate_limits, &tables, findings);
}

/// A limit that names a path is about every endpoint there: a call looks for the name of its endpoint alone.
pub(super) fn name_endpoints(limits: &mut [RateLimit], endpoints: &[EndpointConfig]) {
    for limit in limits {
        let is_meant = |endpoint: &&EndpointConfig| {
            limit.endpoints.contains(&endpoint.path) && !limit.endpoints.contains(&endpoint.name)
        };
        let meant: Vec<_> = endpoints.iter().filter(is_meant).map(|endpoint| endpoint.name.clone()).collect();
        limit.endpoints.extend(meant);
    }
}

/// Clients choose the values of arguments, and could choose another one for every call.
fn check_arguments(limits: &[RateLimit], tables: &[Table<'_>], findings: &mut Findings) {
    if limits.iter().any(RateLimit::is_each_principals_own) {
        return;
    }
    for (_, table) in limits.iter().zip(tables).filter(|(limit, _)| limit.arguments().next().is_some()) {
        findings.error_at(
            *table,
            "by",
            "clients choose what stands in `argument:`: add a [[limit]] with `by = [\"principal\"]` alone and no filter",
        );
    }
}
