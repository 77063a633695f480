//! The problems of a gateway, worst first, and what to do about each. Pure.
//!
//! What counts as an error and what as a warning is the same as on the status page (`admin/page/findings.js`), which also
//! knows the last minutes.

use status::{Figures, Recent, Status, UpstreamStatus};

use super::figures::{number_of, span};
use protocol::text::shown;

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
/// Replicas that are named.
const NAMES_MAX: usize = 3;

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
    /// Since when, in seconds since 1970, as far as the gateway knows.
    pub since_s: Option<u64>,
    /// What to do: a command.
    pub advice: Option<String>,
    /// The section of the runbook, `docs/operate/runbook.md`.
    pub runbook: Option<&'static str>,
}

/// Everything that is wrong, worst first; `now_s` is the time since 1970.
pub fn problems(status: &Status, now_s: u64) -> Vec<Problem> {
    let mut found = Vec::new();
    of_process(status, &mut found);
    for endpoint in status.endpoints.iter().filter(|endpoint| endpoint.healthy == Some(false)) {
        let subject = format!("endpoint {}", endpoint.path);
        let problem = error(subject, "none of its upstreams is up: every call fails");
        found.push(problem.since(endpoint.down_since_s).runbook("TrunklineNoHealthyReplica"));
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
    if let Some(shared) = &status.shared {
        if !shared.connected {
            let problem = error("shared store", "cannot be reached: each gateway counts for itself");
            let problem = problem.advice(journal("-15min", "what replicas share"));
            found.push(problem.since(shared.disconnected_since_s).runbook("TrunklineSharedDisconnected"));
        }
        if shared.mismatched > 0 {
            let gateways = number_of(shared.mismatched, "gateway", "gateways");
            found.push(warning("shared store", format!("{gateways} with another session key")));
        }
    }
}

fn of_upstream(upstream: &UpstreamStatus, interval_s: Option<f64>, found: &mut Vec<Problem>) {
    let subject = || format!("upstream {}", upstream.name);
    let (down, all) = upstream.replicas_down();
    let ask = || ask_server(upstream);
    let since_s = upstream.replicas.iter().filter_map(|replica| replica.down_since_s).min();
    if upstream.is_crashing() {
        let crashes = upstream.children.as_ref().map_or(0, |children| children.crashes);
        let crashes = number_of(crashes, "crash", "crashes");
        let what = format!("its child process is in a crash loop, {crashes} so far");
        let is_down = upstream.healthy == Some(false);
        let problem = if is_down { error(subject(), what) } else { warning(subject(), what) };
        let problem = problem.since(upstream.down_since_s).advice_if(ask());
        found.push(problem.runbook("TrunklineChildCrashLoop"));
    } else if upstream.healthy == Some(false) {
        let what = format!("{}{}", why_down(upstream), mostly(&upstream.figures));
        let problem = error(subject(), what).since(upstream.down_since_s).advice_if(ask());
        found.push(problem.runbook("TrunklineNoHealthyReplica"));
    } else if down > 0 {
        let which = upstream.replicas.iter().filter(|replica| replica.is_down());
        let which: Vec<&str> = which.take(NAMES_MAX).map(|replica| &*replica.address).collect();
        let replicas = number_of(all as u64, "replica", "replicas");
        let what = format!("{down} of {replicas} down: {}", which.join(", "));
        let problem = warning(subject(), what).since(since_s).advice_if(ask());
        found.push(problem.runbook("TrunklineBreakerOpen"));
    } else if upstream.replicas.iter().any(|replica| replica.breaker == "half_open") {
        let problem = warning(subject(), "is being probed after failures").since(since_s);
        found.push(problem.advice_if(ask()).runbook("TrunklineBreakerOpen"));
    }
    if let Some(why) = &upstream.trouble {
        let what = format!("did not say what it speaks: {why}");
        found.push(warning(subject(), what).advice_if(ask()));
    }
    if upstream.healthy != Some(false)
        && let Some(failing) = failing(&upstream.figures.recent, interval_s)
    {
        let what = format!("{failing} % of its calls failed lately{}", mostly(&upstream.figures));
        found.push(warning(subject(), what).advice_if(ask()).runbook("TrunklineUpstreamErrors"));
    }
    of_pins(upstream, found);
    if let Some(bound) = upstream.concurrency.as_ref().filter(|bound| bound.waiting > 0) {
        let calls = number_of(bound.waiting, "call", "calls");
        let what = format!("{calls} waiting: it takes {} at once", bound.max);
        found.push(warning(subject(), what).runbook("TrunklineCallsRefused"));
    }
}

fn why_down(upstream: &UpstreamStatus) -> String {
    let all = &upstream.replicas;
    if !all.is_empty() && all.iter().all(|replica| replica.resolved == Some(false)) {
        return "its name does not resolve".to_owned();
    }
    match all.len() {
        0 => "is down".to_owned(),
        1 => "does not answer: its circuit breaker is open".to_owned(),
        many => {
            let replicas = number_of(many as u64, "replica", "replicas");
            format!("none of its {replicas} answers: their circuit breakers are open")
        }
    }
}

/// Why most of its calls failed since the start, if any did.
fn mostly(figures: &Figures) -> String {
    let most = figures.reasons.iter().max_by_key(|(_, times)| **times);
    most.map(|(why, _)| format!(" (mostly {why})")).unwrap_or_default()
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

/// How many of the latest calls failed, in percent, if that is worth a word.
fn failing(recent: &Recent, interval_s: Option<f64>) -> Option<f64> {
    let (calls, errors) = (recent.calls_per_s?, recent.errors_per_s?);
    let is_worth_it = errors * interval_s? >= FAILING_CALLS_MIN && errors >= calls * FAILING_SHARE;
    is_worth_it.then(|| (errors / calls * 100.0).round().min(100.0))
}

fn of_pins(upstream: &UpstreamStatus, found: &mut Vec<Problem>) {
    let Some(pins) = &upstream.pins else { return };
    let subject = || format!("upstream {}", upstream.name);
    let faults =
        [(pins.unreadable, "its pins cannot be read"), (pins.unwritable, "its pins cannot be written")];
    for (_, what) in faults.into_iter().filter(|(is_so, _)| *is_so) {
        found.push(error(subject(), what).advice(journal("-1d", "pins")).runbook("TrunklinePinsWait"));
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
    let approve = approval(&upstream.name, &pins.waiting);
    found.push(warning(subject(), what).advice_if(approve).runbook("TrunklinePinsWait"));
}

/// What approves it. Servers choose the names of tools: one must not be taken for an option, and where it is cut off or
/// has what a terminal does not show, there is no command.
fn approval(upstream: &str, waiting: &[String]) -> Option<String> {
    let [only] = waiting else {
        return Some(command(["trunkline", "pins", "approve", "--all", "--", upstream]));
    };
    let is_whole = !only.ends_with('…') && shown(only) == *only;
    is_whole.then(|| command(["trunkline", "pins", "approve", "--", upstream, only]))
}

fn of_certificates(status: &Status, now_s: u64, found: &mut Vec<Problem>) {
    for certificate in &status.certificates {
        let Some(ends_s) = certificate.expires_s else { continue };
        let subject = format!("certificate {}", certificate.file);
        let problem = match ends_s.checked_sub(now_s) {
            None => error(subject, format!("the certificate expired {} ago", span(now_s - ends_s))),
            Some(left) if left < CERTIFICATE_WARNING_S => {
                let what = format!("the certificate expires in {}", span(left));
                if left < CERTIFICATE_WRONG_S { error(subject, what) } else { warning(subject, what) }
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

fn error(subject: impl Into<String>, what: impl Into<String>) -> Problem {
    problem(ProblemLevel::Error, subject.into(), what.into())
}

fn warning(subject: impl Into<String>, what: impl Into<String>) -> Problem {
    problem(ProblemLevel::Warning, subject.into(), what.into())
}

fn problem(severity: ProblemLevel, subject: String, what: String) -> Problem {
    Problem { severity, subject, what, since_s: None, advice: None, runbook: None }
}

impl Problem {
    /// Since when, as people say it; empty where it is not known.
    pub fn since_words(&self, now_s: u64) -> String {
        let known = self.since_s.map(|since_s| format!(", for {}", span(now_s.saturating_sub(since_s))));
        known.unwrap_or_default()
    }

    /// The place in the runbook.
    pub fn runbook_place(&self) -> Option<String> {
        self.runbook.map(|section| format!("docs/operate/runbook.md#{}", section.to_lowercase()))
    }

    fn since(self, since_s: Option<u64>) -> Self {
        Self { since_s, ..self }
    }

    fn advice(self, advice: String) -> Self {
        self.advice_if(Some(advice))
    }

    fn advice_if(self, advice: Option<String>) -> Self {
        Self { advice, ..self }
    }

    fn runbook(self, section: &'static str) -> Self {
        Self { runbook: Some(section), ..self }
    }
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
                "Error upstream a: none of its 2 replicas answers",
            ),
            (upstream(json!({"replicas": [open, closed]})), "Warning upstream a: 1 of 2 replicas"),
            (
                upstream(json!({"healthy": false, "replicas": [{"resolved": false}]})),
                "Error upstream a: its name",
            ),
            (
                upstream(json!({"healthy": false, "children": {"crash_loop": true}})),
                "Error upstream a: its child process",
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
                "Warning upstream a: 3 calls waiting",
            ),
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S - 60}]}),
                "Error certificate c: the certificate expired 1 min ago",
            ),
            (
                json!({"certificates": [{"file": "c", "expires_s": NOW_S + 86_400}]}),
                "Error certificate c: the certificate expires in 1 d",
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
    fn the_page_says_it_in_the_same_words() {
        let page = include_str!("../../gateway/admin/page/findings.js");
        let here = include_str!("problem.rs");
        for words in [
            "none of its upstreams is up: every call fails",
            "is about to stop; load balancers are told, new clients still come in",
            "is about to stop: takes no new clients, finishes the calls in flight",
            "stops: aborts the calls still in flight",
            "ended by a bug",
            "the last reload was refused, the old configuration is in force: ",
            "takes effect at the next start only: ",
            "cannot be reached: each gateway counts for itself",
            "with another session key",
            "its child process is in a crash loop, ",
            "its name does not resolve",
            "does not answer: its circuit breaker is open",
            " answers: their circuit breakers are open",
            " down: ",
            "is being probed after failures",
            " of its calls failed ",
            " waiting: it takes ",
            "its pins cannot be read",
            ", waiting for approval",
            "…",
            "the certificate expires in ",
            " are in use",
            " counted together, beyond limiter_keys_max",
        ] {
            assert!(page.contains(words) && here.contains(words), "{words}");
        }
    }

    #[test]
    fn every_section_of_the_runbook_is_there_and_commands_are_quoted() {
        let runbook = include_str!("../../../docs/operate/runbook.md");
        let sources = [include_str!("problem.rs"), include_str!("../../gateway/admin/page/findings.js")];
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
