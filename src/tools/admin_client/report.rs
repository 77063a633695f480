//! The state of a gateway as a text of a screen or two: first the problems, then the traffic. Pure.
//!
//! Colours are in it as escape sequences of our own: it is to be written through `anstream`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write as _;

use anstyle::Style;
use status::{
    EndpointStatus, FaultStatus, Figures, Status, ToolStatus, UpstreamState, UpstreamStatus, standing,
};

use super::figures::{UNKNOWN, bytes, count, known_count, latency, number_of, rate, share, span};
use crate::terminal::paint::{BAD, FAINT, GOOD, STRONG, USE, WARNING, painted};
use protocol::text::{columns, fit, shown};
use status::problem::{Problem, ProblemLevel, summary};

/// Rows of a table, unless all are asked for.
const ROWS: usize = 20;
/// Tools of each kind.
const TOOLS: usize = 3;
/// Columns of a name.
const NAME_COLUMNS: usize = 44;
/// Columns of a problem.
const PROBLEM_COLUMNS: usize = 400;
/// Last errors, unless all are asked for.
const FAULTS: usize = 8;
/// Problems, unless all are asked for.
const PROBLEMS: usize = 20;

/// What tables say of traffic: heads, and whether they are of numbers.
const TRAFFIC: &[(&str, bool)] = &[
    ("STATE", false),
    ("CALLS/S", true),
    ("ERRORS/S", true),
    ("P99", true),
    ("CALLS", true),
    ("TOOLS", true),
    ("ERAS", false),
];

/// What a report is made of.
#[derive(Debug)]
pub struct StatusReport<'a> {
    /// The state.
    pub status: &'a Status,
    /// What is wrong with it.
    pub problems: &'a [Problem],
    /// Where it was asked for.
    pub place: &'a str,
    /// Seconds since 1970.
    pub now_s: u64,
    /// Whether nothing is left out.
    pub is_whole: bool,
}

impl StatusReport<'_> {
    /// The text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.head(&mut text);
        self.problems(&mut text);
        self.totals(&mut text);
        self.endpoints(&mut text);
        self.upstreams(&mut text);
        self.faults(&mut text);
        self.tools(&mut text);
        text
    }

    fn head(&self, text: &mut String) {
        let Self { status, .. } = self;
        let name = painted(STRONG, format!("trunkline {}", shown(&status.version)));
        let _ = writeln!(text, "{name} at {}, up {}", shown(self.place), span(status.uptime_s));
        let file = status.config.file.as_deref().map_or_else(|| "built in".to_owned(), shown);
        let when = match &status.config.last_reload {
            None => "as at the start".to_owned(),
            Some(last) => {
                let ago = span(self.now_s.saturating_sub(last.at_s));
                if last.ok {
                    format!("reloaded {ago} ago")
                } else {
                    format!("a reload was refused {ago} ago")
                }
            }
        };
        let _ = writeln!(text, "configuration {file}, {when}");
    }

    fn problems(&self, text: &mut String) {
        if let Some(starting) = self.status.starting() {
            let _ = writeln!(text, "\n{} {}", painted(FAINT, "◌"), shown(&starting));
        }
        if let Some(kept) = self.status.kept_lists(self.now_s) {
            let _ = writeln!(text, "\n{} {}", painted(FAINT, "◌"), shown(&kept));
        }
        let Some(summary) = summary(self.problems) else {
            if self.status.starting().is_none() {
                let _ = writeln!(text, "\n{} healthy", painted(GOOD, "●"));
            }
            return;
        };
        let _ = writeln!(text, "\n{}", painted(STRONG, summary));
        let most = self.most(PROBLEMS);
        let width = self.problems.iter().take(most).map(|problem| columns(&shown(&problem.subject))).max();
        let width = width.unwrap_or_default().min(NAME_COLUMNS);
        for problem in self.problems.iter().take(most) {
            let (style, mark) = match problem.severity() {
                ProblemLevel::Error => (BAD, "✗"),
                ProblemLevel::Warning => (WARNING, "!"),
            };
            let subject = padded(&problem.subject, width, false);
            let what = shown(&problem.words(self.now_s));
            let _ = writeln!(text, "{} {subject}  {}", painted(style, mark), fit(&what, PROBLEM_COLUMNS));
            if let Some(advice) = &problem.advice {
                let _ = writeln!(text, "  {:width$}  → {}", "", painted(USE, shown(advice)));
            }
            if let Some(place) = problem.runbook_place() {
                let _ = writeln!(text, "  {:width$}  {}", "", painted(FAINT, place));
            }
        }
        left_out(text, self.problems.len().saturating_sub(most));
    }

    fn totals(&self, text: &mut String) {
        let Self { status, .. } = self;
        let Status { calls, connections, sessions, cache, .. } = status;
        let recent = &calls.recent;
        let known = |number: Option<u64>, one: &str, many: &str| {
            number.map_or_else(|| format!("{UNKNOWN} {many}"), |number| number_of(number, one, many))
        };
        let _ = writeln!(
            text,
            "\ncalls     {} /s, errors {} /s, p50 {}, p99 {}; since the start {}, {}",
            rate(recent.calls_per_s),
            rate(recent.errors_per_s),
            latency(recent.p50_s),
            latency(recent.p99_s),
            known(calls.calls, "call", "calls"),
            known(calls.errors, "error", "errors"),
        );
        let open = match connections.max {
            Some(max) => format!("{} of {} connections", count(connections.open), count(max)),
            None => number_of(connections.open, "connection", "connections"),
        };
        let _ = writeln!(
            text,
            "clients   {open}, {}, {}, {}",
            number_of(sessions.live, "session", "sessions"),
            number_of(sessions.client_streams(), "stream", "streams"),
            number_of(sessions.subscriptions, "subscription", "subscriptions"),
        );
        let _ = writeln!(
            text,
            "cache     {} of lists were cached, {}",
            share(cache.hit_share()),
            bytes(cache.bytes)
        );
        if let Some(sign_in) = &status.sign_in {
            let people = sign_in.signed_in().unwrap_or_else(|| "sign-ins in Redis".to_owned());
            let _ = writeln!(
                text,
                "sign-in   {people}; since the start {} opened, {} refused",
                number_of(sign_in.opened, "sign-in", "sign-ins"),
                number_of(sign_in.refusals(), "request", "requests"),
            );
        }
        let (calls_refused, connections_refused) = status.refused();
        if !status.limits.is_empty() || connections_refused > 0 {
            let limits = number_of(status.limits.len() as u64, "limit", "limits");
            let _ = writeln!(
                text,
                "refused   {} by {limits}, {}",
                number_of(calls_refused, "call", "calls"),
                number_of(connections_refused, "connection", "connections")
            );
        }
    }

    fn endpoints(&self, text: &mut String) {
        let mut all: Vec<&EndpointStatus> = self.status.endpoints.iter().collect();
        all.sort_by_key(|endpoint| Reverse(endpoint_state(endpoint, self.status).1));
        let row = |endpoint: &EndpointStatus| {
            let EndpointStatus { path, figures, tools, eras, upstreams, .. } = endpoint;
            let state = endpoint_state(endpoint, self.status);
            server_row(path, state, figures, *tools, eras, vec![cell(&upstreams.join(" "))])
        };
        self.servers(text, ["ENDPOINT", "UPSTREAMS"], &all, row);
    }

    fn upstreams(&self, text: &mut String) {
        let mut all: Vec<&UpstreamStatus> = self.status.upstreams.iter().collect();
        let busy = |upstream: &UpstreamStatus| upstream.figures.recent.calls_per_s.unwrap_or_default();
        if all.len() > self.most(ROWS) {
            all.sort_by(|a, b| busy(b).total_cmp(&busy(a)));
        }
        all.sort_by_key(|upstream| Reverse(upstream_state(upstream).1));
        let row = |upstream: &UpstreamStatus| {
            let UpstreamStatus { name, figures, tools, eras, transport, .. } = upstream;
            let more = vec![cell(transport), cell(&replicas(upstream))];
            let (word, rank) = upstream_state(upstream);
            server_row(name, (&word, rank), figures, *tools, eras, more)
        };
        self.servers(text, ["UPSTREAM", "TRANSPORT", "REPLICAS"], &all, row);
    }

    /// The last fault of everything that had one, the latest first.
    fn faults(&self, text: &mut String) {
        let mut all: Vec<(String, &FaultStatus)> = Vec::new();
        for upstream in &self.status.upstreams {
            let own = [&upstream.fault, &upstream.list_fault].into_iter().flatten();
            all.extend(own.map(|fault| (upstream.name.clone(), fault)));
            let replicas =
                upstream.replicas.iter().filter_map(|replica| Some((replica, replica.fault.as_ref()?)));
            all.extend(
                replicas.map(|(replica, fault)| (format!("{} {}", upstream.name, replica.address), fault)),
            );
        }
        if all.is_empty() {
            return;
        }
        all.sort_by_key(|(_, fault)| Reverse(fault.at_s));
        // A list that failed as its program did not start has the fault of the start.
        all.dedup_by(|(place, fault), (other, before)| {
            place == other && (&fault.why, fault.at_s) == (&before.why, before.at_s)
        });
        let _ = writeln!(text, "\n{}", painted(STRONG, "LAST ERRORS"));
        let most = self.most(FAULTS);
        let width = all.iter().take(most).map(|(place, _)| columns(&shown(place))).max();
        let width = width.unwrap_or_default().min(2 * NAME_COLUMNS);
        for (place, fault) in all.iter().take(most) {
            let ago = span(self.now_s.saturating_sub(fault.at_s));
            let over = if fault.stands { "" } else { ", answered since" };
            let told = fit(&shown(&fault.why), PROBLEM_COLUMNS).into_owned();
            let _ = writeln!(text, "{}  {told}, {ago} ago{over}", padded(place, width, false));
        }
        left_out(text, all.len().saturating_sub(most));
    }

    /// A table with these heads before and behind those of the traffic.
    fn servers<T, const N: usize>(
        &self,
        text: &mut String,
        heads: [&str; N],
        all: &[&T],
        row: impl Fn(&T) -> Vec<ReportCell>,
    ) {
        let heads = heads.map(|head| (head, false));
        let (first, last) = heads.split_at(1);
        let most = self.most(ROWS);
        let rows = all.iter().take(most).map(|one| row(one)).collect();
        table(text, &[first, TRAFFIC, last].concat(), rows);
        left_out(text, all.len().saturating_sub(most));
    }

    fn tools(&self, text: &mut String) {
        let notable = &self.status.tools;
        let told = |tool: &ToolStatus, figure: String| {
            let name = format!("{}/{}", tool.upstream, tool.name);
            format!("{} ({figure})", fit(&shown(&name), NAME_COLUMNS))
        };
        let slowest = |tool: &ToolStatus| told(tool, format!("p99 {}", latency(tool.p99_s)));
        let called = |tool: &ToolStatus| told(tool, known_count(tool.calls));
        let failing = |tool: &ToolStatus| told(tool, format!("{} errors", share(tool.error_share())));
        let line = |name: &str, tools: &[ToolStatus], say: &dyn Fn(&ToolStatus) -> String| {
            let said: Vec<String> = tools.iter().take(TOOLS).map(say).collect();
            (!said.is_empty()).then(|| format!("{name:<12}  {}\n", said.join(", ")))
        };
        let lines: String = [
            line("most called", &notable.most_called, &called),
            line("slowest", &notable.slowest, &slowest),
            line("failing", &notable.failing, &failing),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !lines.is_empty() {
            let known = notable.known.map(|known| format!(" of {}", count(known))).unwrap_or_default();
            let _ = write!(text, "\n{}\n{lines}", painted(STRONG, format!("TOOLS{known}")));
        }
    }

    fn most(&self, usually: usize) -> usize {
        if self.is_whole { usize::MAX } else { usually }
    }
}

/// How the replicas are, or the processes.
pub fn replicas(upstream: &UpstreamStatus) -> String {
    if let Some(children) = &upstream.children {
        let running = format!("{} running", count(children.running));
        return match children.crashes {
            0 => running,
            crashes => format!("{running}, {}", number_of(crashes, "crash", "crashes")),
        };
    }
    match upstream.replicas_down() {
        (_, 0) => UNKNOWN.to_owned(),
        (0, all) => all.to_string(),
        (out, all) => format!("{} of {all}", all - out),
    }
}

fn left_out(text: &mut String, number: usize) {
    if number > 0 {
        let line = format!("and {number} more: --all shows them");
        let _ = writeln!(text, "{}", painted(FAINT, line));
    }
}

/// The state of an upstream, and how bad that is: 0 where it is not known yet, 3 where no call gets through. Of one that
/// starts also how far it is.
pub fn upstream_state(upstream: &UpstreamStatus) -> (Cow<'static, str>, u8) {
    let (word, rank) = state_word(upstream);
    let is_starting = upstream.state.as_deref() == Some(UpstreamState::Starting.word());
    match upstream.why.as_deref().filter(|_| is_starting) {
        Some(why) => (format!("{word}, {}", shown(why)).into(), rank),
        None => (word.into(), rank),
    }
}

fn state_word(upstream: &UpstreamStatus) -> (&'static str, u8) {
    let told = upstream.state.as_deref().and_then(UpstreamState::of_word);
    let found = standing(upstream, None, 0);
    if told.is_none() && found.state == UpstreamState::Up && upstream.healthy.is_none() {
        return ("? unknown", 0);
    }
    match (told.unwrap_or(found.state), upstream.usable.unwrap_or(found.is_usable)) {
        (UpstreamState::Off, _) => ("○ off", 0),
        (UpstreamState::Starting, _) => ("◌ starting", 0),
        (UpstreamState::Up, _) => ("● up", 1),
        (UpstreamState::WantsCallersCredentials, _) => ("● wants the caller's own credentials", 1),
        (UpstreamState::Failing, true) => ("◐ failing", 2),
        (UpstreamState::Failing, false) => ("✗ failing", 3),
        (UpstreamState::NotListed, _) => ("✗ cannot be listed", 3),
        (UpstreamState::NotMcp, _) => ("✗ is no MCP server", 3),
        (UpstreamState::RefusesCredentials, _) => ("✗ refuses our credentials", 3),
        (UpstreamState::Down, _) => ("✗ down", 3),
    }
}

/// The same of an endpoint.
pub fn endpoint_state(endpoint: &EndpointStatus, status: &Status) -> (&'static str, u8) {
    let mut lost = status.upstreams.iter().filter(|upstream| upstream.healthy == Some(false));
    state(endpoint.healthy, lost.any(|upstream| endpoint.upstreams.contains(&upstream.name)))
}

fn state(healthy: Option<bool>, is_degraded: bool) -> (&'static str, u8) {
    match healthy {
        Some(false) => ("✗ down", 3),
        _ if is_degraded => ("◐ degraded", 2),
        Some(true) => ("● up", 1),
        None => ("? unknown", 0),
    }
}

struct ReportCell {
    text: String,
    style: Style,
}

fn cell(text: &str) -> ReportCell {
    ReportCell { text: fit(&shown(text), NAME_COLUMNS).into_owned(), style: Style::new() }
}

fn server_row(
    name: &str,
    (word, rank): (&str, u8),
    figures: &Figures,
    tools: Option<u64>,
    eras: &[String],
    more: Vec<ReportCell>,
) -> Vec<ReportCell> {
    let Figures { recent, calls, .. } = figures;
    let mut cells = vec![
        cell(name),
        ReportCell { text: word.to_owned(), style: [FAINT, GOOD, WARNING, BAD][usize::from(rank)] },
        cell(&rate(recent.calls_per_s)),
        cell(&rate(recent.errors_per_s)),
        cell(&latency(recent.p99_s)),
        cell(&known_count(*calls)),
        cell(&known_count(tools)),
        cell(&eras.join("+")),
    ];
    cells.extend(more);
    cells
}

/// A table whose columns are as wide as they must be.
fn table(text: &mut String, heads: &[(&str, bool)], mut rows: Vec<Vec<ReportCell>>) {
    if rows.is_empty() {
        return;
    }
    let head = |(head, _): &(&str, bool)| ReportCell { text: (*head).to_owned(), style: STRONG };
    rows.insert(0, heads.iter().map(head).collect());
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| columns(&cell.text)).max();
    let widths: Vec<usize> = (0..heads.len()).map(|at| width(at).unwrap_or_default()).collect();
    text.push('\n');
    for row in &rows {
        let last = row.len().saturating_sub(1);
        for (at, (cell, ((_, is_number), width))) in row.iter().zip(heads.iter().zip(&widths)).enumerate() {
            // Nothing stands behind the last one.
            let width = if at == last && !is_number { 0 } else { *width };
            text.push_str(&painted(cell.style, padded(&cell.text, width, *is_number)));
            text.push_str(if at == last { "\n" } else { "  " });
        }
    }
}

/// `text` with spaces around it, so that it takes so many columns at least.
fn padded(text: &str, width: usize, is_right: bool) -> String {
    let text = shown(text);
    let space = " ".repeat(width.saturating_sub(columns(&text)));
    if is_right { space + &text } else { text + &space }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use status::Object as _;

    use super::*;
    use status::problems::problems;

    fn plain(status: &Value, is_whole: bool) -> String {
        let status = Status::read(status).unwrap();
        let problems = problems(&status, None, 1_800_000_000);
        let report = StatusReport {
            status: &status,
            problems: &problems,
            place: "here:1",
            now_s: 1_800_000_000,
            is_whole,
        };
        anstream::adapter::strip_str(&report.text()).to_string()
    }

    #[test]
    fn what_is_wrong_stands_first() {
        let status = json!({
            "version": "1.2.3",
            "uptime_s": 61,
            "endpoints": [{"path": "/mcp", "healthy": false, "upstreams": ["a"]}],
            "upstreams": [{"name": "a", "healthy": false, "replicas": [{"breaker": "open"}], "eras": ["modern"]}],
        });
        let text = plain(&status, false);
        assert!(text.starts_with("trunkline 1.2.3 at here:1, up 1 min\n"), "{text}");
        let places: Vec<_> = ["1 problem", "✗ upstream a", "calls  ", "ENDPOINT", "UPSTREAM  STATE"]
            .iter()
            .map(|part| text.find(part).unwrap_or_else(|| panic!("{part} is not in {text}")))
            .collect();
        assert!(places.is_sorted(), "{text}");
        let section = "docs/operate/runbook.md#trunklineupstreamdown\n";
        assert_eq!(text.matches(section).count(), 1, "{text}");
        assert!(text.contains("down: its circuit breaker is open; every call at /mcp fails\n"), "{text}");
        assert!(plain(&json!({}), false).contains("healthy"));
    }

    #[test]
    fn what_has_lost_a_part_is_degraded() {
        let status = json!({
            "endpoints": [
                {"path": "/all", "healthy": true, "upstreams": ["a", "c"]},
                {"path": "/some", "healthy": true, "upstreams": ["a", "b"]},
                {"path": "/none", "healthy": false, "upstreams": ["b"]},
            ],
            "upstreams": [
                {"name": "a", "healthy": true},
                {"name": "b", "healthy": false},
                {"name": "c", "healthy": true, "replicas": [{"breaker": "open"}, {"breaker": "closed"}]},
            ],
        });
        let text = plain(&status, false);
        let told: Vec<(&str, &str)> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter_map(|words| match words.as_slice() {
                [name, "✗" | "◐" | "●", word, ..] => Some((*name, *word)),
                _ => None,
            })
            .collect();
        let expected = [
            ("/none", "down"),
            ("/some", "degraded"),
            ("/all", "up"),
            ("b", "down"),
            ("c", "failing"),
            ("a", "up"),
        ];
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn one_thing_is_not_several() {
        let status = json!({
            "calls": {"calls": 1, "errors": 1},
            "sessions": {"live": 1, "subscriptions": 1},
            "connections": {"open": 1},
            "limits": [{"name": "own", "refused": 1}],
        });
        let text = plain(&status, false);
        assert!(text.contains("since the start 1 call, 1 error\n"), "{text}");
        assert!(text.contains("1 connection, 1 session, 0 streams, 1 subscription\n"), "{text}");
        assert!(text.contains("1 call by 1 limit, 0 connections\n"), "{text}");
    }

    #[test]
    fn long_tables_are_cut_and_what_is_down_stays() {
        let upstreams: Vec<Value> =
            (0..500).map(|n| json!({"name": format!("up-{n}"), "healthy": n != 400})).collect();
        let status = json!({ "upstreams": upstreams });
        let text = plain(&status, false);
        assert!(text.contains("and 480 more"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("up-400 ") && line.contains("down")), "{text}");
        assert_eq!(plain(&status, true).lines().filter(|line| line.starts_with("up-")).count(), 500);
    }

    #[test]
    fn strangers_words_stay_where_they_are() {
        let bad = "\u{1b}[31mx\n\u{202e}y";
        let status = json!({
            "version": bad,
            "config": {"file": bad, "sha256": bad, "last_reload": {"ok": false, "error": bad}},
            "endpoints": [{"path": bad, "healthy": false, "upstreams": [bad], "eras": [bad]}],
            "upstreams": [{"name": bad, "healthy": false, "transport": bad, "pins": {"changed": 1, "waiting": [bad]}}],
            "certificates": [{"file": bad, "expires_s": 1}],
            "tools": {"slowest": [{"upstream": bad, "name": bad}]},
        });
        let text = plain(&status, true);
        // What is left after our own colours are gone has no escape of anybody else's.
        let styled = {
            let status = Status::read(&status).unwrap();
            let problems = problems(&status, None, 1);
            StatusReport { status: &status, problems: &problems, place: bad, now_s: 1, is_whole: true }.text()
        };
        assert!(
            !styled.contains("\u{1b}[31mx") && !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text}"
        );
        assert!(text.contains("\\u{1b}[31mx"), "{text}");
    }
}
