//! The problems of a gateway, worst first, and what to do about each. Pure.
//!
//! What counts as an error and what as a warning is the same as on the status page (`admin/page/findings.js`), which also
//! knows the last minutes.

use status::{Recent, Status, UpstreamStatus};

use super::figures::{number_of, span};

/// Certificates that expire sooner get a warning.
const CERTIFICATE_WARNING_S: u64 = 14 * DAY_S;
/// Whoever is to put it right needs some time.
const CERTIFICATE_WRONG_S: u64 = 3 * DAY_S;
const DAY_S: u64 = 86_400;
/// An upstream that fails more of its calls gets a warning, if it is not only one or two of them.
const FAILING_SHARE: f64 = 0.05;
const FAILING_CALLS_MIN: f64 = 3.0;
/// Connections that are this share of all that may be, in percent, get a warning.
const CONNECTIONS_WARNING_PERCENT: u64 = 90;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemLevel {
    /// Somebody is not served, or soon is not.
    Error,
    /// It needs attention.
    Warning,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: ProblemLevel,
    /// With what: `upstream weather`.
    pub subject: String,
    /// What.
    pub what: String,
    /// What to do.
    pub advice: Option<String>,
}

/// Everything that is wrong, worst first; `now_s` is the time since 1970.
pub fn problems(status: &Status, now_s: u64) -> Vec<Problem> {
    let mut found = Vec::new();
    of_process(status, &mut found);
    for endpoint in status.endpoints.iter().filter(|endpoint| endpoint.healthy == Some(false)) {
        found.push(error(
            format!("endpoint {}", endpoint.path),
            "none of its upstreams is up: every call fails",
            "",
        ));
    }
    for upstream in &status.upstreams {
        of_upstream(upstream, status.sample.interval_s, &mut found);
    }
    of_certificates(status, now_s, &mut found);
    of_bounds(status, &mut found);
    found.sort_by_key(|problem| problem.severity);
    found
}

/// How many errors and how many warnings there are.
pub fn counts(problems: &[Problem]) -> (usize, usize) {
    let wrong = problems.iter().filter(|problem| problem.severity == ProblemLevel::Error).count();
    (wrong, problems.len() - wrong)
}

/// The same in words; `None` where nothing is.
pub fn summary(problems: &[Problem]) -> Option<String> {
    let (errors, warnings) = counts(problems);
    let said = [(errors, "problem", "problems"), (warnings, "warning", "warnings")]
        .into_iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, one, many)| number_of(number as u64, one, many));
    Some(said.collect::<Vec<_>>().join(", ")).filter(|said| !said.is_empty())
}

fn of_process(status: &Status, found: &mut Vec<Problem>) {
    if let Some(phase) = status.draining() {
        found.push(warning("gateway", format!("is about to stop (drain: {phase})"), ""));
    }
    if status.panics > 0 {
        let what = format!("{} ended by a bug", number_of(status.panics, "connection", "connections"));
        found.push(warning("gateway", what, "report what the log says of `panic`"));
    }
    if let Some(reload) = &status.config.last_reload {
        if !reload.ok {
            let why = reload.error.as_deref().unwrap_or("it does not say why");
            let first = why.lines().find(|line| !line.trim().is_empty()).unwrap_or(why);
            let what =
                format!("the last reload was refused, the old configuration is in force: {}", first.trim());
            found.push(error("configuration".to_owned(), what, "trunkline check"));
        } else if !reload.needs_restart.is_empty() {
            let what = format!("takes effect at the next start only: {}", reload.needs_restart.join(", "));
            found.push(warning("configuration", what, ""));
        }
    }
    if let Some(shared) = &status.shared {
        if !shared.connected {
            let what = "the store cannot be reached: each gateway counts for itself";
            found.push(error("shared state".to_owned(), what, ""));
        }
        if shared.mismatched > 0 {
            let what = format!("{} with another session key", shared.mismatched);
            found.push(warning("shared state", what, "give all gateways the same [session] key"));
        }
    }
}

fn of_upstream(upstream: &UpstreamStatus, interval_s: Option<f64>, found: &mut Vec<Problem>) {
    let subject = || format!("upstream {}", upstream.name);
    let is_looping = upstream.is_crashing();
    let open = upstream.replicas.iter().filter(|replica| replica.breaker == "open").count();
    let unresolved = upstream.replicas.iter().filter(|replica| replica.resolved == Some(false)).count();
    let all = upstream.replicas.len();
    if upstream.healthy == Some(false) {
        let why = match () {
            () if is_looping => "its process is in a crash loop".to_owned(),
            () if all > 0 && unresolved == all => "its name does not resolve".to_owned(),
            () if all == 1 && open == 1 => "does not answer: its circuit breaker is open".to_owned(),
            () if open > 0 => {
                format!("{open} of {all} replicas do not answer: their circuit breakers are open")
            }
            () => "is down".to_owned(),
        };
        found.push(error(subject(), why, "see its log, and the gateway's"));
    } else {
        if is_looping {
            found.push(warning(subject(), "a process of it is in a crash loop", "see its log"));
        }
        if open > 0 {
            let what = format!("{open} of {} not answering", number_of(all as u64, "replica", "replicas"));
            found.push(warning(subject(), what, ""));
        }
        if unresolved > 0 {
            found.push(warning(subject(), format!("{unresolved} of {all} names do not resolve"), ""));
        }
        if open == 0 && upstream.replicas.iter().any(|replica| replica.breaker == "half_open") {
            found.push(warning(subject(), "is being probed after failures", ""));
        }
        if let Some(failing) = failing(&upstream.figures.recent, interval_s) {
            let what = format!("{failing} % of its calls failed lately");
            found.push(warning(subject(), what, "see the gateway's log"));
        }
    }
    of_pins(upstream, found);
    if let Some(bound) = upstream.concurrency.as_ref().filter(|bound| bound.waiting > 0) {
        let what = format!("{} calls wait, {} are in flight", bound.waiting, bound.in_use);
        found.push(warning(subject(), what, ""));
    }
}

/// How many of the latest calls failed, in percent, if that is worth a word.
fn failing(recent: &Recent, interval_s: Option<f64>) -> Option<f64> {
    let (calls, errors) = (recent.calls_per_s?, recent.errors_per_s?);
    let is_worth_it = errors * interval_s? >= FAILING_CALLS_MIN && errors >= calls * FAILING_SHARE;
    is_worth_it.then(|| (errors / calls * 100.0).round().min(100.0))
}

fn of_pins(upstream: &UpstreamStatus, found: &mut Vec<Problem>) {
    let Some(pins) = &upstream.pins else { return };
    let subject = || format!("upstream {}", upstream.name);
    if pins.unreadable {
        found.push(error(subject(), "its pins cannot be read", "see the log"));
    }
    if pins.unwritable {
        found.push(error(subject(), "its pins cannot be written", "see the log"));
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
    let mut what = format!("{}, waiting for approval", said.join(" and "));
    if !pins.waiting.is_empty() {
        what = format!("{what}: {}", pins.waiting.join(", "));
    }
    found.push(warning(subject(), what, &format!("trunkline pins show {}", upstream.name)));
}

fn of_certificates(status: &Status, now_s: u64, found: &mut Vec<Problem>) {
    for certificate in &status.certificates {
        let Some(ends_s) = certificate.expires_s else { continue };
        let subject = format!("certificate {}", certificate.file);
        match ends_s.checked_sub(now_s) {
            None => found.push(error(subject, format!("expired {} ago", span(now_s - ends_s)), "")),
            Some(left) if left < CERTIFICATE_WRONG_S => {
                found.push(error(subject, format!("expires in {}", span(left)), ""));
            }
            Some(left) if left < CERTIFICATE_WARNING_S => {
                found.push(warning(subject, format!("expires in {}", span(left)), ""));
            }
            Some(_) => {}
        }
    }
}

fn of_bounds(status: &Status, found: &mut Vec<Problem>) {
    let connections = &status.connections;
    if let Some(max) = connections.max.filter(|max| *max > 0) {
        if connections.open >= max {
            found.push(error("connections".to_owned(), format!("all {max} are in use"), ""));
        } else if connections.open.saturating_mul(100) / max >= CONNECTIONS_WARNING_PERCENT {
            found.push(warning("connections", format!("{} of {max} are open", connections.open), ""));
        }
    }
    for limit in status.limits.iter().filter(|limit| limit.overflowed > 0) {
        let what = format!("{} calls counted together, beyond limiter_keys_max", limit.overflowed);
        found.push(warning(format!("limit {}", limit.name), what, ""));
    }
}

fn error(subject: String, what: impl Into<String>, advice: &str) -> Problem {
    problem(ProblemLevel::Error, subject, what.into(), advice)
}

fn warning(subject: impl Into<String>, what: impl Into<String>, advice: &str) -> Problem {
    problem(ProblemLevel::Warning, subject.into(), what.into(), advice)
}

fn problem(severity: ProblemLevel, subject: String, what: String, advice: &str) -> Problem {
    let advice = Some(advice.to_owned()).filter(|advice| !advice.is_empty());
    Problem { severity, subject, what, advice }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use status::Object as _;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn found(status: &Value) -> Vec<String> {
        let said = |problem: Problem| format!("{:?} {}: {}", problem.severity, problem.subject, problem.what);
        problems(&Status::read(status).unwrap(), NOW_S).into_iter().map(said).collect()
    }

    #[test]
    fn each_trouble_is_found() {
        let upstream = |more: Value| {
            let mut upstream = json!({"name": "a", "healthy": true});
            upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "upstreams": [upstream] })
        };
        let (open, closed) = (json!({"breaker": "open"}), json!({"breaker": "closed"}));
        for (status, expected) in [
            (
                json!({"endpoints": [{"path": "/mcp", "healthy": false}]}),
                "Error endpoint /mcp: none of its upstreams is up",
            ),
            (upstream(json!({"healthy": false})), "Error upstream a: is down"),
            (upstream(json!({"healthy": false, "replicas": [open]})), "Error upstream a: does not answer"),
            (
                upstream(json!({"healthy": false, "replicas": [open, open]})),
                "Error upstream a: 2 of 2 replicas",
            ),
            (upstream(json!({"replicas": [open, closed]})), "Warning upstream a: 1 of 2 replicas"),
            (
                upstream(json!({"healthy": false, "replicas": [{"resolved": false}]})),
                "Error upstream a: its name",
            ),
            (
                upstream(json!({"healthy": false, "children": {"crash_loop": true}})),
                "Error upstream a: its process",
            ),
            (
                upstream(json!({"pins": {"changed": 2, "new": 1}})),
                "Warning upstream a: 2 tools have changed and 1 tool",
            ),
            (
                upstream(json!({"replicas": [{"breaker": "half_open"}]})),
                "Warning upstream a: is being probed",
            ),
            (
                json!({
                    "sample": {"interval_s": 5.0},
                    "upstreams": [{"name": "a", "recent": {"calls_per_s": 10.0, "errors_per_s": 1.0}}],
                }),
                "Warning upstream a: 10 % of its calls",
            ),
            (upstream(json!({"pins": {"unreadable": true}})), "Error upstream a: its pins cannot be read"),
            (upstream(json!({"pins": {"unwritable": true}})), "Error upstream a: its pins cannot be written"),
            (
                upstream(json!({"concurrency": {"max": 1, "in_use": 1, "waiting": 3}})),
                "Warning upstream a: 3 calls wait",
            ),
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S - 60}]}),
                "Error certificate c: expired 1 min ago",
            ),
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S + 86_400}]}),
                "Error certificate c: expires in 1 d",
            ),
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S + 7 * 86_400}]}),
                "Warning certificate c: expires in 7 d",
            ),
            (json!({"connections": {"open": 10, "max": 10}}), "Error connections: all 10"),
            (json!({"connections": {"open": 9, "max": 10}}), "Warning connections: 9 of 10"),
            (json!({"limits": [{"name": "l", "overflowed": 4}]}), "Warning limit l: 4 calls"),
            (json!({"drain": "quiet"}), "Warning gateway: is about to stop"),
            (json!({"panics": 1}), "Warning gateway: 1 connection ended"),
            (json!({"shared": {"connected": false}}), "Error shared state"),
            (
                json!({"config": {"last_reload": {"ok": false, "error": "\nline 3"}}}),
                "Error configuration: the last",
            ),
            (
                json!({"config": {"last_reload": {"ok": true, "needs_restart": ["x"]}}}),
                "Warning configuration: takes",
            ),
        ] {
            let found = found(&status);
            assert_eq!(found.len(), 1, "{status}: {found:?}");
            assert!(found[0].starts_with(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn what_is_well_or_unknown_is_no_trouble() {
        for status in [
            json!({}),
            json!({"endpoints": [{}], "upstreams": [{"replicas": [{}]}], "certificates": [{"file": "c"}]}),
            json!({
                "sample": {"interval_s": 5.0},
                "upstreams": [
                    {"name": "few", "recent": {"calls_per_s": 0.4, "errors_per_s": 0.4}},
                    {"name": "busy", "recent": {"calls_per_s": 100.0, "errors_per_s": 1.0}},
                    {"name": "idle", "recent": {"calls_per_s": 0.0, "errors_per_s": 0.0}},
                ],
            }),
            json!({"certificates": [{"file": "c", "expires_s": NOW_S + 86_400 * 60}], "connections": {"max": 0}}),
        ] {
            assert_eq!(found(&status), [""; 0], "{status}");
        }
    }

    #[test]
    fn the_worst_is_first() {
        let status = json!({"panics": 1, "endpoints": [{"path": "/", "healthy": false}]});
        assert!(found(&status)[0].starts_with("Error"));
        let all = problems(&Status::read(&status).unwrap(), NOW_S);
        assert_eq!(summary(&all).as_deref(), Some("1 problem, 1 warning"));
        assert_eq!(summary(&[]), None);
    }
}
