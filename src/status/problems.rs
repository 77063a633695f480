//! Finding the problems of a gateway, worst first, and what to do about each. Pure.
//!
//! The gateway tells them in `/status`, and every view shows those: what counts as an error and what as a warning is
//! decided here alone. Problems of one cause are one. Counts that rise are told by what was seen a minute before.

use std::collections::BTreeMap;

use crate::gateway::Status;
use crate::problem::{Problem, error, warning};
use crate::seen::{Seen, SeenCalls, more, reasons};
use crate::servers::{EndpointStatus, HOST_PREFIX, UpstreamStatus, VaryingTool};
use crate::state::{Standing, UpstreamState, standing};
use crate::words::{number_of, span};

/// Certificates that expire sooner get a warning.
const CERTIFICATE_WARNING_S: u64 = 14 * DAY_S;
/// Whoever is to put it right needs some time.
const CERTIFICATE_WRONG_S: u64 = 3 * DAY_S;
const DAY_S: u64 = 86_400;
/// Connections that are this share of all that may be, in percent, get a warning.
const CONNECTIONS_WARNING_PERCENT: u64 = 90;
/// Upstreams of one cause that are named.
const NAMES_MAX: usize = 8;
/// Lines of a program that are shown.
const LINES_MAX: usize = 3;

/// Everything that is wrong, worst first; `before` is what was seen a minute ago, and `now_s` the time since 1970.
pub fn problems(status: &Status, before: Option<&Seen>, now_s: u64) -> Vec<Problem> {
    let mut found = Vec::new();
    let calls = |name: &str| before?.upstreams.get(name);
    of_process(status, &mut found);
    of_sockets(status, &mut found);
    let standings: Vec<(&UpstreamStatus, Standing)> = status
        .upstreams
        .iter()
        .map(|upstream| (upstream, standing(upstream, calls(&upstream.name), now_s)))
        .collect();
    of_endpoints(status, &standings, &mut found);
    of_upstreams(&standings, &lost(status, &standings), calls, &mut found);
    of_certificates(status, now_s, &mut found);
    of_bounds(status, &mut found);
    if let Some(before) = before {
        of_calls(status, before, &mut found);
        of_counts(status, before, &mut found);
    }
    found.sort_by_key(Problem::severity);
    found
}

impl Status {
    /// The problems that the gateway tells; of an older one, what can be told by what it says.
    pub fn told_problems(&self, now_s: u64) -> Vec<Problem> {
        self.problems.clone().unwrap_or_else(|| problems(self, None, now_s))
    }
}

fn of_process(status: &Status, found: &mut Vec<Problem>) {
    match status.draining() {
        None => {}
        Some("quiet") => found
            .push(warning("gateway", "is about to stop; load balancers are told, new clients still come in")),
        Some("closing") => found
            .push(warning("gateway", "is about to stop: takes no new clients, finishes the calls in flight")),
        Some("cut") => found.push(warning("gateway", "stops: aborts the calls still in flight")),
        Some(_) => found.push(warning("gateway", "is about to stop")),
    }
    if status.panics > 0 {
        let what = format!("{} ended by a bug", number_of(status.panics, "connection", "connections"));
        let log = journal("-1h", "panicked|this is a bug|which is a bug");
        found.push(warning("gateway", what).advice(log).runbook("TrunklinePanic"));
    }
    if let Some(reload) = &status.config.last_reload {
        if !reload.ok {
            let why = reload.error.as_deref().unwrap_or("it does not say why");
            let first = why.lines().find(|line| !line.trim().is_empty()).unwrap_or(why);
            let what =
                format!("the last reload was refused, the old configuration is in force: {}", first.trim());
            let check = command(["trunkline", "check"].into_iter().chain(status.config.file.as_deref()));
            let problem = error("configuration", what).since(Some(reload.at_s));
            found.push(problem.advice(check).runbook("TrunklineReloadFailed"));
        } else if !reload.needs_restart.is_empty() {
            let what = format!("takes effect at the next start only: {}", reload.needs_restart.join(", "));
            let problem = warning("configuration", what).since(Some(reload.at_s));
            found.push(problem.advice("systemctl restart trunkline".to_owned()));
        }
    }
    if let Some(fault) = &status.sessions.journal_fault {
        let what = format!("cannot be written, a restart would forget changes: {}", fault.reason);
        let problem = error("session journal", what).since(Some(fault.since_s)).word("journal");
        found.push(problem.advice(journal("-1h", "session journal")).runbook("TrunklineJournalRecordsLost"));
    }
    if let Some(fault) = &status.state_directory_fault {
        let what = format!("cannot be written, the next start is a cold one: {}", fault.reason);
        let problem = warning("state directory", what).since(Some(fault.since_s)).word("behind");
        found.push(problem.advice(journal("-1h", "cannot be kept")).runbook("TrunklineStateDirectoryBehind"));
    }
    if let Some(shared) = &status.shared {
        if !shared.connected {
            let problem = error("shared store", "cannot be reached: each gateway counts for itself");
            let problem = problem.advice(journal("-15min", "what replicas share"));
            found.push(problem.since(shared.disconnected_since_s).runbook("TrunklineSharedDisconnected"));
        }
        if shared.mismatched > 0 {
            let gateways = number_of(shared.mismatched, "gateway", "gateways");
            let what =
                format!("{gateways} with another session key: sessions of one are refused at the other");
            found.push(error("shared store", what).word("keys").runbook("TrunklineSharedKeysDiffer"));
        }
    }
}

/// Listeners whose sockets a unit of systemd was to hold.
fn of_sockets(status: &Status, found: &mut Vec<Problem>) {
    let mut units: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for listener in &status.listeners {
        if let Some(unit) = &listener.unused_socket_unit {
            units.entry(unit).or_default().push(&listener.address);
        }
    }
    found.extend(units.into_iter().map(|(unit, addresses)| {
        let subject = format!("listener {}", addresses.join(", "));
        let what =
            format!("a restart refuses connections: {unit} is enabled, and the socket is the gateway's own");
        let steps = [
            command(["systemctl", "stop", "trunkline"]),
            command(["systemctl", "reset-failed", "trunkline", unit]),
            command(["systemctl", "start", unit, "trunkline"]),
        ];
        warning(subject, what).word("socket").advice(steps.join("; "))
    }));
}

/// Endpoints that serve nobody for a reason of their own, or whose upstreams do not say one.
fn of_endpoints(status: &Status, standings: &[(&UpstreamStatus, Standing)], found: &mut Vec<Problem>) {
    let serves_nothing = |endpoint: &EndpointStatus| endpoint.healthy.is_none() && !endpoint.path.is_empty();
    let endpoints = &status.endpoints;
    if status.upstreams.is_empty() && !endpoints.is_empty() && endpoints.iter().all(serves_nothing) {
        found.push(warning("gateway", "no upstream is configured: all lists are empty"));
        return;
    }
    let is_off = |name: &String| {
        standings.iter().any(|(upstream, at)| upstream.name == *name && at.state == UpstreamState::Off)
    };
    let is_told = |name: &String| {
        standings.iter().any(|(upstream, at)| upstream.name == *name && at.is_wrong() && !at.is_usable)
    };
    for endpoint in &status.endpoints {
        let EndpointStatus { path, upstreams, .. } = endpoint;
        let subject = format!("endpoint {path}");
        of_names(endpoint, found);
        if !upstreams.is_empty() && upstreams.iter().all(is_off) {
            let what = "none of its upstreams is switched on: its lists are empty";
            found.push(warning(subject, what).of("endpoint", [path]).word("off"));
        } else if endpoint.healthy == Some(false) && !upstreams.iter().any(is_told) {
            let problem = error(subject, "none of its upstreams is up: every call fails");
            let problem = problem.of("endpoint", [path]).word("down").since(endpoint.down_since_s);
            found.push(problem.runbook("TrunklineUpstreamDown"));
        }
    }
}

/// Names that are too long for models.
fn of_names(endpoint: &EndpointStatus, found: &mut Vec<Problem>) {
    let Some(long) = &endpoint.long_names else { return };
    let some: Vec<&str> = long.some.iter().map(String::as_str).collect();
    let what = if long.alone > 0 {
        let names = number_of(long.alone, "name of a tool has", "names of tools have");
        format!("{names} over 64 characters, which models' interfaces refuse: {}", some.join(", "))
    } else {
        let names = number_of(long.with_host, "name of a tool has", "names of tools have");
        format!("{names} over 64 characters with `{HOST_PREFIX}` before them: {}", some.join(", "))
    };
    let problem = warning(format!("endpoint {}", endpoint.path), what).word("names");
    found.push(problem.of("endpoint", [&endpoint.path]));
}

/// Endpoints all of whose upstreams are told to be of no use, by the first of these.
fn lost<'s>(status: &'s Status, standings: &[(&UpstreamStatus, Standing)]) -> Vec<(&'s str, &'s str)> {
    let at = |name: &String| standings.iter().find(|(upstream, _)| upstream.name == *name).map(|(_, at)| at);
    let is_lost = |at: &Standing| at.is_wrong() && !at.is_usable;
    let of_endpoint = |endpoint: &'s EndpointStatus| {
        let on = || {
            endpoint.upstreams.iter().filter(|name| at(name).is_none_or(|at| at.state != UpstreamState::Off))
        };
        let first = on().next()?;
        let are_lost = on().all(|name| at(name).is_some_and(is_lost));
        are_lost.then_some((&*endpoint.path, &**first))
    };
    status.endpoints.iter().filter_map(of_endpoint).collect()
}

/// Upstreams of one cause are one problem.
fn of_upstreams<'b>(
    standings: &[(&UpstreamStatus, Standing)],
    lost: &[(&str, &str)],
    before: impl Fn(&str) -> Option<&'b SeenCalls>,
    found: &mut Vec<Problem>,
) {
    let mut told: Vec<(&Standing, Vec<&UpstreamStatus>)> = Vec::new();
    for (upstream, standing) in standings.iter().filter(|(_, standing)| standing.is_wrong()) {
        let is_alike = |other: &Standing| {
            other.state == standing.state
                && other.why == standing.why
                && other.is_usable == standing.is_usable
        };
        match told.iter_mut().find(|(other, _)| is_alike(other)) {
            Some((_, all)) => all.push(upstream),
            None => told.push((standing, vec![upstream])),
        }
    }
    found.extend(told.iter().filter_map(|(standing, all)| {
        let problem = of_cause(standing, all, lost)?;
        let [only] = &all[..] else { return Some(problem) };
        Some(problem.reasons(reasons(&only.figures, before(&only.name))))
    }));
    for (upstream, _) in standings {
        of_pins(upstream, found);
        if let Some(bound) = upstream.concurrency.as_ref().filter(|bound| bound.waiting > 0) {
            let calls = number_of(bound.waiting, "call", "calls");
            let what = format!("{calls} waiting: it takes {} at once", bound.max);
            let problem = warning(format!("upstream {}", upstream.name), what).word("busy");
            found.push(problem.of("upstream", [&upstream.name]).runbook("TrunklineCallsRefused"));
        }
    }
}

/// The problem that these upstreams have alike.
fn of_cause(standing: &Standing, all: &[&UpstreamStatus], lost: &[(&str, &str)]) -> Option<Problem> {
    let first = all.first()?;
    let names: Vec<&str> = all.iter().take(NAMES_MAX).map(|upstream| &*upstream.name).collect();
    let more =
        if all.len() > NAMES_MAX { format!(" and {} more", all.len() - NAMES_MAX) } else { String::new() };
    let many = if all.len() > 1 { "upstreams" } else { "upstream" };
    let subject = format!("{many} {}{more}", names.join(", "));
    let word = standing.state.word();
    let mut what = standing.why.as_ref().map_or_else(|| word.to_owned(), |why| format!("{word}: {why}"));
    if standing.state == UpstreamState::Down && !first.last_lines.is_empty() {
        let lines: Vec<&str> =
            first.last_lines.iter().rev().take(LINES_MAX).rev().map(String::as_str).collect();
        what = format!("{what}; its last lines: {}", lines.join(" | "));
    }
    // The same cause is said once.
    let is_of = |first: &str| all.iter().any(|upstream| upstream.name == first);
    let lost: Vec<&str> = lost.iter().filter(|(_, first)| is_of(first)).map(|(path, _)| *path).collect();
    if !lost.is_empty() {
        let paths = lost.join(", ");
        what = match standing.state {
            UpstreamState::NotListed => format!("{what}; clients at {paths} may see no tools"),
            _ => format!("{what}; every call at {paths} fails"),
        };
    }
    let problem = if standing.is_usable { warning(subject, what) } else { error(subject, what) };
    let since_s = all.iter().filter_map(|upstream| since_s(upstream, standing)).min();
    let problem = problem.of("upstream", all.iter().map(|upstream| &upstream.name)).word(word);
    Some(problem.since(since_s).advice_if(ask_server(first)).runbook(section(standing, first)))
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

/// What asks a server itself, or shows the log of one that has no URL.
fn ask_server(upstream: &UpstreamStatus) -> Option<String> {
    let replicas = &upstream.replicas;
    let asked = replicas.iter().find(|replica| replica.breaker != "closed").or(replicas.first());
    match asked.map(|replica| &*replica.url).filter(|url| !url.is_empty()) {
        Some(url) => Some(command(["trunkline", "doctor", url])),
        None => (upstream.transport == "stdio").then(|| journal("-15min", "child process|stderr")),
    }
}

fn of_pins(upstream: &UpstreamStatus, found: &mut Vec<Problem>) {
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
        found.push(problem.advice(journal("-1d", "pinned")).runbook("TrunklinePinsWait"));
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
    let (what, advice) = match pins.varying.first() {
        Some(VaryingTool { name, member }) => (
            format!("{what}; {name} differs from process to process, first in {member}: no approval lasts"),
            Some(command(["trunkline", "pins", "show", "--", &upstream.name])),
        ),
        None if pins.waiting.is_empty() => (what, approval(&upstream.name, &[])),
        None => (format!("{what}: {}", pins.waiting.join(", ")), approval(&upstream.name, &pins.waiting)),
    };
    let problem = warning(subject(), what).of("upstream", [&upstream.name]).word("pins");
    found.push(problem.advice_if(advice).runbook("TrunklinePinsWait"));
}

/// What approves it. Servers choose the names of tools: one must not be taken for an option, and where it is cut off or
/// has what a terminal does not show, there is no command.
fn approval(upstream: &str, waiting: &[String]) -> Option<String> {
    let [only] = waiting else {
        return Some(command(["trunkline", "pins", "approve", "--all", "--", upstream]));
    };
    let is_seen = |c: char| c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ';
    let is_whole = !only.ends_with('…') && only.chars().all(is_seen);
    is_whole.then(|| command(["trunkline", "pins", "approve", "--", upstream, only]))
}

fn of_certificates(status: &Status, now_s: u64, found: &mut Vec<Problem>) {
    for certificate in &status.certificates {
        let Some(ends_s) = certificate.expires_s else { continue };
        let subject = format!("certificate {}", certificate.file);
        let problem = match ends_s.checked_sub(now_s) {
            None if certificate.authority => {
                let ago = span(now_s - ends_s);
                warning(
                    subject,
                    format!("the authority of clients expired {ago} ago, and goes on to count: replace it"),
                )
            }
            None => error(subject, format!("the certificate expired {} ago", span(now_s - ends_s))),
            Some(left) if left < CERTIFICATE_WARNING_S => {
                let what = format!("the certificate expires in {}", span(left));
                if left < CERTIFICATE_WRONG_S && !certificate.authority {
                    error(subject, what)
                } else {
                    warning(subject, what)
                }
            }
            Some(_) => continue,
        };
        let look = command(["openssl", "x509", "-noout", "-enddate", "-in", &certificate.file]);
        found.push(problem.advice(look).runbook("TrunklineCertificateExpires"));
    }
}

fn of_bounds(status: &Status, found: &mut Vec<Problem>) {
    let connections = &status.connections;
    if let Some(max) = connections.max.filter(|max| *max > 0) {
        let runbook = "TrunklineConnectionsHigh";
        if connections.open >= max {
            found.push(error("connections", format!("all {max} are in use")).runbook(runbook));
        } else if connections.open.saturating_mul(100) / max >= CONNECTIONS_WARNING_PERCENT {
            let what = format!("{} of {max} are in use", connections.open);
            found.push(warning("connections", what).runbook(runbook));
        }
    }
    for limit in status.limits.iter().filter(|limit| limit.overflowed > 0) {
        let calls = number_of(limit.overflowed, "call", "calls");
        let what = format!("{calls} counted together, beyond limiter_keys_max");
        found.push(warning(format!("limit {}", limit.name), what));
    }
}

/// Endpoints many of whose calls fail for no reason that is told already.
fn of_calls(status: &Status, before: &Seen, found: &mut Vec<Problem>) {
    let is_told = |kind: &str, name: &String| {
        found.iter().any(|problem: &Problem| problem.kind == kind && problem.names.contains(name))
    };
    let failing = |endpoint: &EndpointStatus| {
        let EndpointStatus { path, upstreams, figures, .. } = endpoint;
        let seen = before.endpoints.get(path)?;
        let percent = seen.failing_percent(figures)?;
        let is_known = is_told("endpoint", path) || upstreams.iter().any(|name| is_told("upstream", name));
        let what = format!("{percent} % of its calls failed in the last minute");
        let problem = warning(format!("endpoint {path}"), what).of("endpoint", [path]).word("failing");
        let problem = problem.since(seen.failing_since_s).reasons(reasons(figures, Some(seen)));
        let problem = problem.advice(journal("-15min", "call failed")).runbook("TrunklineRequestsFail");
        (!is_known).then_some(problem)
    };
    let all: Vec<Problem> = status.endpoints.iter().filter_map(failing).collect();
    found.extend(all);
}

/// Counts that should stand still and do not.
fn of_counts(status: &Status, before: &Seen, found: &mut Vec<Problem>) {
    let refused = "refused";
    for limit in &status.limits {
        let then = before.limits.get(&limit.name).copied();
        if let Some(what) = more(limit.refused, then, "call", "calls", refused) {
            let problem = warning(format!("limit {}", limit.name), what).word("limit");
            found.push(problem.runbook("TrunklineRateLimited"));
        }
    }
    let then = Some(before.connections_refused);
    if let Some(what) = more(status.connections.refused, then, "connection", "connections", refused) {
        let problem = warning("connections", what).word("full");
        found.push(problem.runbook("TrunklineConnectionsRefused"));
    }
    if let Some(traces) = &status.traces {
        for (now, then, how) in [
            (traces.dropped, before.spans_dropped, "dropped"),
            (traces.failed, before.spans_failed, "failed"),
        ] {
            if let Some(what) = more(now, Some(then), "span", "spans", how) {
                found.push(warning("traces", what).word("traces").runbook("TrunklineTracesLost"));
            }
        }
    }
}

/// Words as a shell reads them.
fn command<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let quoted = |word: &str| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// What shows lines of the gateway's log.
fn journal(since: &str, text: &str) -> String {
    command(["journalctl", "--unit", "trunkline", "--since", since, "--grep", text])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object as _;
    use crate::problem::summary;
    use serde_json::{Value, json};

    const NOW_S: u64 = 1_800_000_000;

    /// A minute ago nothing had been called yet.
    fn before() -> Seen {
        let calls = |name: &str| (name.to_owned(), SeenCalls::default());
        Seen {
            endpoints: ["/mcp", "/b"].map(calls).into(),
            upstreams: ["a", "b"].map(calls).into(),
            limits: [("burst".to_owned(), 7)].into(),
            ..Seen::default()
        }
    }

    fn found(status: &Value) -> Vec<String> {
        let said =
            |problem: Problem| format!("{:?} {}: {}", problem.severity(), problem.subject, problem.what);
        problems(&Status::read(status).unwrap(), Some(&before()), NOW_S).into_iter().map(said).collect()
    }

    /// An upstream of which nothing is told but this.
    fn upstream(mut told: Value) -> Value {
        told["name"] = "a".into();
        told.as_object_mut().unwrap().entry("healthy").or_insert(true.into());
        json!({ "upstreams": [told] })
    }

    fn assert_only(troubles: &[(Value, &str)]) {
        for (status, expected) in troubles {
            let found = found(status);
            assert_eq!(found.len(), 1, "{status}: {found:?}");
            assert!(found[0].starts_with(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn each_trouble_of_an_upstream_is_found() {
        let (open, closed) = (json!({"breaker": "open"}), json!({"breaker": "closed"}));
        assert_only(&[
            (
                json!({"endpoints": [{"path": "/mcp", "healthy": false}]}),
                "Error endpoint /mcp: none of its upstreams is up",
            ),
            (upstream(json!({"healthy": false})), "Error upstream a: down"),
            (
                upstream(json!({"healthy": false, "replicas": [open]})),
                "Error upstream a: down: its circuit breaker is open",
            ),
            (
                upstream(json!({"healthy": false, "replicas": [open, open]})),
                "Error upstream a: down: all 2 replicas: its circuit breaker is open",
            ),
            (
                upstream(json!({"replicas": [open, closed]})),
                "Warning upstream a: failing: 1 of 2 replicas down",
            ),
            (
                upstream(json!({"healthy": false, "replicas": [{"resolved": false}]})),
                "Error upstream a: down: DNS: its name",
            ),
            (
                upstream(json!({"healthy": false, "children": {"crash_loop": true}})),
                "Error upstream a: down: its child process",
            ),
            (
                upstream(json!({"pins": {"changed": 2, "new": 1}})),
                "Warning upstream a: 2 tools have changed and 1 tool",
            ),
            (
                upstream(json!({"replicas": [{"breaker": "half_open"}]})),
                "Warning upstream a: failing: is being probed",
            ),
            (upstream(json!({"calls": 50, "errors": 5})), "Warning upstream a: failing: 10 % of its calls"),
            (
                upstream(json!({"pins": {
                    "changed": 1, "waiting": ["t"], "varying": [{"name": "t", "member": "a.b"}],
                }})),
                "Warning upstream a: 1 tool has changed, waiting for approval; t differs from process to process, first in a.b:",
            ),
            (upstream(json!({"pins": {"unreadable": true}})), "Error upstream a: its pins cannot be read"),
            (upstream(json!({"pins": {"unwritable": true}})), "Error upstream a: its pins cannot be written"),
            (
                upstream(json!({"pins": {"unasked": true}})),
                "Error upstream a: the pins of the other gateways",
            ),
            (upstream(json!({"pins": {"unshared": true}})), "Error upstream a: its pins cannot be shared"),
            (
                upstream(json!({"concurrency": {"max": 1, "in_use": 1, "waiting": 3}})),
                "Warning upstream a: 3 calls waiting",
            ),
        ]);
    }

    #[test]
    fn each_trouble_of_the_gateway_is_found() {
        assert_only(&[
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S - 60}]}),
                "Error certificate c: the certificate expired 1 min ago",
            ),
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S + 86_400}]}),
                "Error certificate c: the certificate expires in 1 d",
            ),
            (
                json!({"certificates": [{"file": "ca", "expires_s": NOW_S - 60, "authority": true}]}),
                "Warning certificate ca: the authority of clients expired 1 min ago, and goes on to count",
            ),
            (
                json!({"certificates": [{"file": "ca", "expires_s": NOW_S + 60, "authority": true}]}),
                "Warning certificate ca: the certificate expires in 1 min",
            ),
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S + 7 * 86_400}]}),
                "Warning certificate c: the certificate expires in 7 d",
            ),
            (json!({"connections": {"open": 10, "max": 10}}), "Error connections: all 10"),
            (json!({"connections": {"open": 9, "max": 10}}), "Warning connections: 9 of 10"),
            (json!({"limits": [{"name": "l", "overflowed": 4}]}), "Warning limit l: 4 calls"),
            (json!({"drain": "quiet"}), "Warning gateway: is about to stop"),
            (json!({"panics": 1}), "Warning gateway: 1 connection ended"),
            (json!({"shared": {"connected": false}}), "Error shared store"),
            (
                json!({"shared": {"connected": true, "mismatched": 1}}),
                "Error shared store: 1 gateway with another",
            ),
            (
                json!({"sessions": {"journal_fault": {"since_s": NOW_S - 60, "reason": "No space left on device"}}}),
                "Error session journal: cannot be written, a restart would forget changes: No space",
            ),
            (
                json!({"state_directory_fault": {"since_s": NOW_S - 60, "reason": "lists: No space left on device"}}),
                "Warning state directory: cannot be written, the next start is a cold one: lists: No space",
            ),
            (
                json!({"config": {"last_reload": {"ok": false, "error": "\nline 3"}}}),
                "Error configuration: the last",
            ),
            (
                json!({"config": {"last_reload": {"ok": true, "needs_restart": ["x"]}}}),
                "Warning configuration: takes",
            ),
        ]);
    }

    #[test]
    fn every_section_of_the_runbook_is_there_and_commands_are_quoted() {
        let runbook = include_str!("../../docs/operate/runbook.md");
        let sources = [include_str!("problems.rs"), include_str!("../gateway/admin/page/findings.js")];
        let named = sources.into_iter().flat_map(|source| source.split(['"', '\'']));
        let named: Vec<_> = named.filter(|word| word.len() > 12 && word.starts_with("Trunkline")).collect();
        assert!(named.len() > 20, "{named:?}");
        for section in named {
            assert!(runbook.contains(&format!("\n## {section}\n")), "{section}");
        }
        assert_eq!(command(["a", "b c", "it's", "", "x;y"]), r"a 'b c' 'it'\''s' '' 'x;y'");
    }

    #[test]
    fn the_name_of_a_tool_does_not_bend_the_command_that_approves_it() {
        for (waiting, expected) in [
            (&["add"][..], Some("trunkline pins approve -- notes add")),
            (&["--all"], Some("trunkline pins approve -- notes --all")),
            (&["a b"], Some("trunkline pins approve -- notes 'a b'")),
            (&["add", "remove"], Some("trunkline pins approve --all -- notes")),
            (&[], Some("trunkline pins approve --all -- notes")),
            (&["the_beginning_of_a_name…"], None),
            (&["a\u{1b}[31m"], None),
        ] {
            let waiting: Vec<String> = waiting.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(approval("notes", &waiting).as_deref(), expected, "{waiting:?}");
        }
    }

    #[test]
    fn the_way_back_to_a_socket_unit_is_told_once_for_each_unit() {
        let listener =
            |address: &str, unit: Option<&str>| json!({"address": address, "unused_socket_unit": unit});
        let status = json!({"listeners": [
            listener("127.0.0.1:8080", Some("trunkline.socket")),
            listener("127.0.0.1:8081", None),
            listener("127.0.0.1:8082", Some("trunkline.socket")),
        ]});
        let all = problems(&Status::read(&status).unwrap(), None, NOW_S);
        let told: Vec<_> = all.iter().map(|problem| (&*problem.level, &*problem.subject)).collect();
        assert_eq!(told, [("warning", "listener 127.0.0.1:8080, 127.0.0.1:8082")]);
        let expected = "systemctl stop trunkline; systemctl reset-failed trunkline trunkline.socket; \
                        systemctl start trunkline.socket trunkline";
        assert_eq!(all[0].advice.as_deref(), Some(expected));
    }

    #[test]
    fn counts_that_rise_are_told_with_how_much() {
        let status = json!({
            "limits": [{"name": "burst", "refused": 12}],
            "connections": {"refused": 1},
            "traces": {"dropped": 2, "failed": 0},
        });
        assert_eq!(
            found(&status),
            [
                "Warning limit burst: 5 calls refused in the last minute",
                "Warning connections: 1 connection refused in the last minute",
                "Warning traces: 2 spans dropped in the last minute",
            ]
        );
        let read = Status::read(&status).unwrap();
        assert!(problems(&read, None, NOW_S).is_empty(), "nothing is known of a minute ago");
    }

    #[test]
    fn an_endpoint_fails_for_reasons_of_its_own() {
        let figures = json!({"calls": 8, "errors": 8, "reasons": {"timeout": 8}});
        let endpoint = |path: &str| {
            let mut endpoint = json!({"path": path, "healthy": true, "upstreams": ["a"]});
            endpoint.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
            endpoint
        };
        let status = |upstream: Value| json!({"endpoints": [endpoint("/mcp")], "upstreams": [upstream]});
        let well = status(json!({"name": "a", "healthy": true}));
        let all = problems(&Status::read(&well).unwrap(), Some(&before()), NOW_S);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].what, "100 % of its calls failed in the last minute");
        assert_eq!(all[0].reasons.as_deref(), Some("timeout 8 in the last minute"));
        let down = status(json!({"name": "a", "healthy": false}));
        assert_eq!(found(&down), ["Error upstream a: down; every call at /mcp fails"]);
    }

    #[test]
    fn what_is_well_or_unknown_is_no_trouble() {
        for status in [
            json!({}),
            json!({"endpoints": [{}], "upstreams": [{"replicas": [{}]}], "certificates": [{"file": "c"}]}),
            json!({
                "upstreams": [
                    {"name": "a", "calls": 2, "errors": 2},
                    {"name": "b", "calls": 100, "errors": 4},
                    {"name": "new", "calls": 100, "errors": 100},
                ],
                "limits": [{"name": "burst", "refused": 7}, {"name": "new", "refused": 7}],
            }),
            json!({"certificates": [{"file": "c", "expires_s": NOW_S + 86_400 * 60}], "connections": {"max": 0}}),
        ] {
            assert_eq!(found(&status), [""; 0], "{status}");
        }
    }

    #[test]
    fn what_has_one_cause_is_said_once() {
        let down = |name: &str| json!({"name": name, "healthy": false, "replicas": [{"breaker": "open"}]});
        let status = json!({
            "endpoints": [
                {"path": "/all", "healthy": true, "upstreams": ["a", "b", "c"]},
                {"path": "/lost", "healthy": false, "upstreams": ["a", "b"]},
            ],
            "upstreams": [down("a"), down("b"), {"name": "c", "healthy": true}],
        });
        let expected = "Error upstreams a, b: down: its circuit breaker is open; every call at /lost fails";
        assert_eq!(found(&status), [expected]);
    }

    #[test]
    fn what_is_off_is_told_where_nothing_else_is_on() {
        let off = json!({"name": "a", "enabled": false});
        let status =
            |more: Value| json!({"endpoints": [{"path": "/mcp", "upstreams": ["a"]}], "upstreams": more});
        let expected = "Warning endpoint /mcp: none of its upstreams is switched on: its lists are empty";
        assert_eq!(found(&status(json!([off]))), [expected]);
        assert_eq!(
            found(&status(json!([]))),
            ["Warning gateway: no upstream is configured: all lists are empty"]
        );
    }

    #[test]
    fn the_worst_is_first() {
        let status = json!({"panics": 1, "endpoints": [{"path": "/", "healthy": false}]});
        assert!(found(&status)[0].starts_with("Error"));
        let all = problems(&Status::read(&status).unwrap(), None, NOW_S);
        assert_eq!(summary(&all).as_deref(), Some("1 problem, 1 warning"));
        assert_eq!(summary(&[]), None);
    }
}
