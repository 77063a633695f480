//! The problems of upstreams: those of one cause are one, and each says what it keeps from working. Pure.

use super::advice::{Advice, command};
use crate::gateway::Status;
use crate::problem::{Problem, error, warning};
use crate::seen::{SeenCalls, reasons};
use crate::servers::{EndpointStatus, ListCut, UpstreamStatus, VaryingTool};
use crate::standing::{Standing, UpstreamState};
use crate::words::number_of;

/// Upstreams of one cause that are named, and the columns of their names: views have no more room.
const NAMES_MAX: usize = 8;
const NAMES_COLUMNS_MAX: usize = 32;
/// Lines of a program that are shown.
const LINES_MAX: usize = 3;
/// The log lines on programs.
pub(super) const OF_PROGRAMS: &str = "child process|stderr";

/// An endpoint all of whose upstreams are told to be of no use.
pub(super) struct LostEndpoint<'s> {
    path: &'s str,
    upstreams: Vec<&'s str>,
    /// Some of them can be called, though nobody is shown their tools.
    is_callable: bool,
}

impl LostEndpoint<'_> {
    /// True if one of these has a part in it, of those that keep it from working in this way.
    fn is_by(&self, all: &[Placed<'_>], state: UpstreamState) -> bool {
        let is_cause = !self.is_callable || state == UpstreamState::NotListed;
        is_cause && all.iter().any(|(upstream, _)| self.upstreams.contains(&&*upstream.name))
    }
}

/// An upstream, and how it is.
type Placed<'s> = (&'s UpstreamStatus, &'s Standing);

/// The endpoints that serve nobody, or of which nobody is shown a tool.
pub(super) fn lost<'s>(
    status: &'s Status,
    standings: &[(&UpstreamStatus, Standing)],
) -> Vec<LostEndpoint<'s>> {
    let at = |name: &String| standings.iter().find(|(upstream, _)| upstream.name == *name).map(|(_, at)| at);
    let of_endpoint = |endpoint: &'s EndpointStatus| {
        let is_on = |name: &&String| at(name).is_none_or(|at| at.state != UpstreamState::Off);
        let on: Vec<&String> = endpoint.upstreams.iter().filter(is_on).collect();
        let standings: Option<Vec<&Standing>> = on.iter().map(|name| at(name)).collect();
        let standings = standings.filter(|all| !all.is_empty())?;
        let are_lost = standings.iter().all(|at| at.is_wrong() && !at.is_usable);
        are_lost.then(|| LostEndpoint {
            path: &endpoint.path,
            upstreams: on.into_iter().map(String::as_str).collect(),
            is_callable: standings.iter().any(|at| at.state == UpstreamState::NotListed),
        })
    };
    status.endpoints.iter().filter_map(of_endpoint).collect()
}

/// Upstreams of one cause are one problem.
pub(super) fn of_upstreams<'b>(
    standings: &[(&UpstreamStatus, Standing)],
    lost: &[LostEndpoint<'_>],
    before: impl Fn(&str) -> Option<&'b SeenCalls>,
    advice: &Advice<'_>,
    found: &mut Vec<Problem>,
) {
    let mut told: Vec<Vec<Placed<'_>>> = Vec::new();
    for (upstream, standing) in standings.iter().filter(|(_, standing)| standing.is_wrong()) {
        match told.iter_mut().find(|all| all.first().is_some_and(|(_, other)| are_alike(other, standing))) {
            Some(all) => all.push((upstream, standing)),
            None => told.push(vec![(upstream, standing)]),
        }
    }
    found.extend(told.iter().filter_map(|all| {
        let problem = of_cause(all, lost, advice)?;
        let [(only, _)] = &all[..] else { return Some(problem) };
        Some(problem.reasons(reasons(&only.figures, before(&only.name))))
    }));
    for (upstream, _) in standings {
        of_pins(upstream, advice, found);
        of_cuts(upstream, found);
        if let Some(bound) = upstream.concurrency.as_ref().filter(|bound| bound.waiting > 0) {
            let calls = number_of(bound.waiting, "call", "calls");
            let what = format!("{calls} waiting: it takes {} at once", bound.max);
            let problem = warning(format!("upstream {}", upstream.name), what).word("busy");
            found.push(problem.of("upstream", [&upstream.name]).runbook("TrunklineCallsRefused"));
        }
    }
}

/// True if both are so for one cause, whatever their programs have said last.
fn are_alike(one: &Standing, other: &Standing) -> bool {
    let is_of_cause = match (&one.common, &other.common) {
        (Some(one), Some(other)) => one.words == other.words,
        (None, None) => one.why == other.why,
        _ => false,
    };
    is_of_cause && one.state == other.state && one.is_usable == other.is_usable
}

/// The problem that these upstreams have alike.
fn of_cause(all: &[Placed<'_>], lost: &[LostEndpoint<'_>], advice: &Advice<'_>) -> Option<Problem> {
    let (first, standing) = all.first()?;
    let word = standing.state.word();
    let mut what = cause(all)?;
    // Those of other causes have their part in it as well: it is told behind each.
    let lost = lost.iter().filter(|endpoint| endpoint.is_by(all, standing.state));
    let lost: Vec<&str> = lost.map(|endpoint| endpoint.path).collect();
    if !lost.is_empty() && !standing.is_usable {
        let paths = lost.join(", ");
        what = match standing.state {
            UpstreamState::NotListed => format!("{what}; clients at {paths} may see no tools"),
            _ => format!("{what}; every call at {paths} fails"),
        };
    }
    let subject = subject(all.iter().map(|(upstream, _)| &*upstream.name));
    let problem = if standing.is_usable { warning(subject, what) } else { error(subject, what) };
    let since_s = all.iter().filter_map(|(upstream, standing)| since_s(upstream, standing)).min();
    let problem = problem.of("upstream", all.iter().map(|(upstream, _)| &upstream.name)).word(word);
    Some(problem.since(since_s).advice_if(ask_server(first, advice)).runbook(section(standing, first)))
}

/// The state of these upstreams and why, with the last words of one program.
fn cause(all: &[Placed<'_>]) -> Option<String> {
    let (first, standing) = all.first()?;
    let word = standing.state.word();
    let differ = all.iter().any(|(_, other)| other.why != standing.why);
    if let Some(common) = standing.common.as_ref().filter(|_| differ) {
        let last = common.last.as_ref().map(|last| format!("; the last error of {}: {last}", first.name));
        return Some(format!("{word}: {}{}", common.words, last.unwrap_or_default()));
    }
    let what = standing.why.as_ref().map_or_else(|| word.to_owned(), |why| format!("{word}: {why}"));
    if standing.state != UpstreamState::Down || first.last_lines.is_empty() {
        return Some(what);
    }
    let lines: Vec<&str> = first.last_lines.iter().rev().take(LINES_MAX).rev().map(String::as_str).collect();
    Some(format!("{what}; its last lines: {}", lines.join(" | ")))
}

/// The names of upstreams, as many as there is room for.
pub(super) fn subject<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let many = if names.len() > 1 { "upstreams" } else { "upstream" };
    let (mut shown, mut columns) = (0, 0);
    for name in names.iter().take(NAMES_MAX) {
        columns += name.chars().count() + 2;
        if shown > 0 && columns > NAMES_COLUMNS_MAX {
            break;
        }
        shown += 1;
    }
    let left_out = names.len() - shown;
    let more = if left_out > 0 { format!(" and {left_out} more") } else { String::new() };
    format!("{many} {}{more}", names.iter().take(shown).copied().collect::<Vec<_>>().join(", "))
}

fn since_s(upstream: &UpstreamStatus, standing: &Standing) -> Option<u64> {
    if upstream.state.as_deref() == Some(standing.state.word()) { upstream.state_since_s } else { None }
        .or(standing.since_s)
        .or(upstream.down_since_s)
}

/// The section of the runbook.
fn section(standing: &Standing, upstream: &UpstreamStatus) -> &'static str {
    match standing.state {
        _ if upstream.is_crashing() => "TrunklineChildCrashLoop",
        UpstreamState::RefusesCredentials => "TrunklineUpstreamCredentials",
        UpstreamState::NotMcp => "TrunklineUpstreamNotMcp",
        UpstreamState::NotListed => "TrunklineUpstreamNotListed",
        UpstreamState::Failing
            if standing.is_usable && upstream.replicas.iter().any(|one| one.breaker != "closed") =>
        {
            "TrunklineBreakerOpen"
        }
        UpstreamState::Failing if standing.is_usable => "TrunklineUpstreamErrors",
        UpstreamState::Failing => "TrunklineUpstreamFailing",
        _ => "TrunklineUpstreamDown",
    }
}

/// The command that asks a server itself, or shows the log of one that has no URL.
fn ask_server(upstream: &UpstreamStatus, advice: &Advice<'_>) -> Option<String> {
    let replicas = &upstream.replicas;
    let asked = replicas.iter().find(|replica| replica.breaker != "closed").or(replicas.first());
    match asked.map(|replica| &*replica.url).filter(|url| !url.is_empty()) {
        Some(url) => Some(command(["trunkline", "doctor", url])),
        None if upstream.transport == "stdio" => advice.log_lines("-15min", OF_PROGRAMS),
        None => None,
    }
}

/// Lists of which clients are shown a part.
fn of_cuts(upstream: &UpstreamStatus, found: &mut Vec<Problem>) {
    for ListCut { list, reason, shown } in &upstream.lists_cut {
        let at = match &**reason {
            "cursor" => "a cursor that came again".to_owned(),
            limit => format!("list_{limit}_max"),
        };
        let entries = number_of(*shown, "entry", "entries");
        let what = format!("{list} is cut off at {at}: clients are shown {entries}");
        let problem = warning(format!("upstream {}", upstream.name), what).word("cut");
        found.push(problem.of("upstream", [&upstream.name]).runbook("TrunklineListsTruncated"));
    }
}

fn of_pins(upstream: &UpstreamStatus, advice: &Advice<'_>, found: &mut Vec<Problem>) {
    let Some(pins) = &upstream.pins else { return };
    let subject = || format!("upstream {}", upstream.name);
    let faults = [
        (pins.unreadable, "its pins cannot be read"),
        (pins.unwritable, "its pins cannot be written"),
        (pins.unasked, "the pins of the other gateways are not known, and it has none: no tool is trusted"),
        (pins.unshared, "its pins cannot be shared: the record in Redis is refused, or would be too long"),
    ];
    for (_, what) in faults.into_iter().filter(|(is_so, _)| *is_so) {
        let problem = error(subject(), what).of("upstream", [&upstream.name]).word("pins");
        found.push(problem.advice_if(advice.log_lines("-1d", "pinned")).runbook("TrunklinePinsWait"));
    }
    let mut said = Vec::new();
    if pins.changed > 0 {
        said.push(format!("{} changed", number_of(pins.changed, "tool has", "tools have")));
    }
    if pins.new > 0 {
        said.push(format!("{} new", number_of(pins.new, "tool is", "tools are")));
    }
    if said.is_empty() {
        return;
    }
    let what = format!("{}, waiting for approval", said.join(" and "));
    let (what, step) = match pins.varying.first() {
        Some(VaryingTool { name, member }) => (
            format!("{what}; {name} differs from process to process, first in {member}: no approval lasts"),
            Some(command(["trunkline", "pins", "show", "--", &upstream.name])),
        ),
        None if pins.waiting.is_empty() => (what, approval(&upstream.name, &[])),
        None => (format!("{what}: {}", pins.waiting.join(", ")), approval(&upstream.name, &pins.waiting)),
    };
    let problem = warning(subject(), what).of("upstream", [&upstream.name]).word("pins");
    found.push(problem.advice_if(step).runbook("TrunklinePinsWait"));
}

/// The command that approves it. Servers choose the names of tools: one must not be taken for an option, and where it is cut off or
/// has what a terminal does not show, there is no command.
pub(super) fn approval(upstream: &str, waiting: &[String]) -> Option<String> {
    let [only] = waiting else {
        return Some(command(["trunkline", "pins", "approve", "--all", "--", upstream]));
    };
    let is_seen = |c: char| c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ';
    let is_whole = !only.ends_with('…') && only.chars().all(is_seen);
    is_whole.then(|| command(["trunkline", "pins", "approve", "--", upstream, only]))
}
