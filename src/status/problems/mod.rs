//! Finding the problems of a gateway, worst first, and what to do about each. Pure.
//!
//! The gateway tells them in `/status`, and every view shows those: what counts as an error and what as a warning is
//! decided here alone. Problems of one cause are one. Counts that rise are told by what was seen a minute before.

mod advice;
mod programs;
mod sign_in;
mod upstreams;

use std::collections::BTreeMap;

use self::advice::{Advice, command};
use self::programs::of_ends;
use self::sign_in::of_sign_in;
use self::upstreams::{lost, of_upstreams};
use crate::gateway::Status;
use crate::problem::{Problem, error, warning};
use crate::seen::{Seen, more, reasons};
use crate::servers::{EndpointStatus, HOST_PREFIX, UpstreamStatus};
use crate::standing::{Standing, UpstreamState};
use crate::state::standing;
use crate::words::{number_of, span};

/// Certificates that expire sooner get a warning.
const CERTIFICATE_WARNING_S: u64 = 14 * DAY_S;
/// A renewal takes people some time.
const CERTIFICATE_WRONG_S: u64 = 3 * DAY_S;
const DAY_S: u64 = 86_400;
/// Connections that are this share of all that may be, in percent, get a warning.
const CONNECTIONS_WARNING_PERCENT: u64 = 90;

/// Everything that is wrong, worst first; `before` is what was seen a minute ago, and `now_s` the time since 1970.
pub fn problems(status: &Status, before: Option<&Seen>, now_s: u64) -> Vec<Problem> {
    let mut found = Vec::new();
    let calls = |name: &str| before?.upstreams.get(name);
    let advice = Advice::of(status);
    of_process(status, &advice, &mut found);
    of_sign_in(status, &advice, &mut found);
    of_sockets(status, &advice, &mut found);
    let standings: Vec<(&UpstreamStatus, Standing)> = status
        .upstreams
        .iter()
        .map(|upstream| (upstream, standing(upstream, calls(&upstream.name), now_s)))
        .collect();
    of_endpoints(status, &standings, &mut found);
    of_upstreams(&standings, &lost(status, &standings), calls, &advice, &mut found);
    of_ends(status, &advice, &mut found);
    of_certificates(status, now_s, &mut found);
    of_bounds(status, &mut found);
    if let Some(before) = before {
        of_calls(status, before, &advice, &mut found);
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

fn of_process(status: &Status, advice: &Advice<'_>, found: &mut Vec<Problem>) {
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
        let log = advice.log_lines("-1h", "panicked|this is a bug|which is a bug");
        found.push(warning("gateway", what).advice_if(log).runbook("TrunklinePanic"));
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
            found.push(problem.advice_if(advice.restart()));
        }
    }
    if let Some(fault) = &status.sessions.journal_fault {
        let what = format!("cannot be written, a restart would forget changes: {}", fault.reason);
        let problem = error("session journal", what).since(Some(fault.since_s)).word("journal");
        let log = advice.log_lines("-1h", "session journal");
        found.push(problem.advice_if(log).runbook("TrunklineJournalRecordsLost"));
    }
    if let Some(fault) = &status.state_directory_fault {
        let what = format!("cannot be written, the next start is a cold one: {}", fault.reason);
        let problem = warning("state directory", what).since(Some(fault.since_s)).word("behind");
        let log = advice.log_lines("-1h", "cannot be kept");
        found.push(problem.advice_if(log).runbook("TrunklineStateDirectoryBehind"));
    }
    if let Some(shared) = &status.shared {
        if !shared.connected {
            let problem = error("shared store", "cannot be reached: each gateway counts for itself");
            let problem = problem.advice_if(advice.log_lines("-15min", "what replicas share"));
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
fn of_sockets(status: &Status, advice: &Advice<'_>, found: &mut Vec<Problem>) {
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
        warning(subject, what).word("socket").advice_if(advice.restart_with(unit))
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
fn of_calls(status: &Status, before: &Seen, advice: &Advice<'_>, found: &mut Vec<Problem>) {
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
        let log = advice.log_lines("-15min", "call failed");
        let problem = problem.advice_if(log).runbook("TrunklineRequestsFail");
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

#[cfg(test)]
mod tests;
