//! One thing in full: lines of a name and what there is to say. Pure.

use std::cmp::Reverse;

use ratatui::text::Line;
use status::{
    Certificate, EndpointStatus, FaultStatus, Figures, HistoryLines, ListenerStatus, PublicName, Status,
    ToolStatus, ToolsPage, UpstreamStatus,
};

use super::app::{App, Detail};
use super::listing::{says, state};
use super::palette::{Look, Palette};
use super::spark::highest;
use super::table::padded;
use super::text::{NAMES, NARROW, StyledText, labelled, time_of};
use crate::admin_client::figures::{
    UNKNOWN, bytes, count, counts, known_bytes, known_count, latency, period, rate, share, span,
};
use crate::admin_client::report::{endpoint_state, upstream_state};
use protocol::text::{columns, shown};
use status::problem::{Problem, ProblemLevel};

/// Kinds of errors.
const REASONS: usize = 8;
/// Columns of a curve.
const CURVE_COLUMNS: usize = 60;

/// What is shown in full.
pub(super) fn lines(app: &App, subject: &Detail, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let mut text = StyledText { lines: Vec::new(), width, palette };
    match subject {
        Detail::Upstream(name) => text.upstream(app, name),
        Detail::Endpoint(path) => text.endpoint(app, path),
        Detail::Tool(tool) => text.tool(tool),
        Detail::Limit(id) => text.limit(app, id),
        Detail::Problem(problem) => {
            text.title(&problem.subject);
            text.problem(problem, app.now_s);
        }
        Detail::FailedCalls(error) => text.failed_calls(error, app.now_s),
    }
    text.lines
}

/// The gateway itself.
pub(super) fn gateway(app: &App, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let mut text = StyledText { lines: Vec::new(), width, palette };
    text.gateway(app);
    text.lines
}

/// What keys there are.
pub(super) fn help(width: usize, palette: Palette) -> Vec<Line<'static>> {
    let mut text = StyledText { lines: Vec::new(), width, palette };
    text.title("Keys");
    for (keys, what) in [
        ("1 … 8, Tab", "upstreams, endpoints, tools, limits, problems, errors, callers, gateway"),
        ("↑ ↓ or j k", "select; also PgUp PgDn, Home End"),
        ("Enter, Esc", "open; back"),
        ("t", "tools of the upstream"),
        ("/", "filter by name; Esc clears it"),
        ("s S r", "sort by the next or the previous column; reverse"),
        ("p", "pause"),
        ("q, Ctrl-C", "end"),
    ] {
        text.fact_in(keys, what, Look::Use);
    }
    text.blank();
    text.title("Figures");
    for (name, what) in [
        ("CALLS/S ERR/S", "of the last few seconds; the curve shows the last minutes"),
        ("P50 P99", "latencies of the last few seconds: median, and 99th percentile"),
        ("CALLS ERRORS", "since the gateway started"),
        ("IN FLIGHT", "calls without their answer"),
    ] {
        text.fact(name, what);
    }
    text.lines
}

/// A fault, and how long ago it was.
fn told(fault: &FaultStatus, now_s: u64) -> String {
    let over = if fault.stands { "" } else { ", answered since" };
    format!("{}, {} ago{over}", fault.why, span(now_s.saturating_sub(fault.at_s)))
}

impl StyledText {
    fn upstream(&mut self, app: &App, name: &str) {
        self.title(&format!("upstream {name}"));
        let Some(upstream) = app.status.upstream(name) else {
            return self.gone("upstream");
        };
        let (word, rank) = upstream_state(upstream);
        let (word, look, _) = state((&word, rank));
        self.fact_in("state", word, look);
        self.problems_of(app, "upstream", name);
        self.figures(&upstream.figures);
        self.curves(app.history.upstreams.get(name), app.history.interval_s);
        self.blank();
        self.server(app, upstream);
        self.faults(app, upstream);
        self.replicas(app, upstream);
        if let Some((of, page)) = &app.upstream_tools
            && of == name
        {
            self.tools(page);
        }
    }

    fn server(&mut self, app: &App, upstream: &UpstreamStatus) {
        self.fact("eras", &either(&upstream.eras.join(" and ")));
        self.fact("transport", &either(&upstream.transport));
        let list = upstream.list_bytes.map(|size| format!(", {} long", bytes(size))).unwrap_or_default();
        self.fact("tools", &format!("{}{list}", known_count(upstream.tools)));
        if let Some(kept) = upstream.kept_lists(app.now_s) {
            self.fact_in("lists", &kept, Look::Warning);
        }
        let open = [
            (upstream.connections, "open"),
            (upstream.connects_failed, "failed"),
            (upstream.retries, "retried"),
            (upstream.breaker_openings, "circuit-breaker openings"),
        ];
        self.fact("connections", &counts(open));
        let sessions = [
            (upstream.sessions_opened, "opened"),
            (upstream.sessions_lost, "lost"),
            (upstream.subscription_streams, "subscription streams"),
        ];
        self.fact("sessions", &counts(sessions));
        if let Some(calls) = &upstream.concurrency {
            let rest = counts([(calls.waiting, "waiting"), (calls.refused, "refused")]);
            self.fact(
                "concurrency",
                &format!("{} of {} in use, {rest}", count(calls.in_use), count(calls.max)),
            );
        }
        if let Some(children) = &upstream.children {
            let looping = if children.crash_loop { ", in a crash loop" } else { "" };
            let said =
                [(children.running, "running"), (children.starts, "started"), (children.crashes, "crashed")];
            self.fact("processes", &(counts(said) + looping));
        }
        if let Some(bridge) = &upstream.bridge {
            let said = [
                (bridge.requests, "requests of the other era"),
                (bridge.input_requests, "requests for input"),
                (bridge.sessions, "sessions"),
                (bridge.suspended, "suspended calls"),
            ];
            self.fact("bridge", &counts(said));
        }
        if let Some(pins) = &upstream.pins {
            self.fact(
                "pins",
                &counts([(pins.pinned, "pinned"), (pins.changed, "changed"), (pins.new, "new")]),
            );
            if !pins.waiting.is_empty() {
                self.fact("", &pins.waiting.join(", "));
            }
            for varying in &pins.varying {
                let said = format!("! {} differs from process to process: {}", varying.name, varying.member);
                self.fact_in("", &said, Look::Warning);
            }
        }
    }

    /// The faults that it met last, and the last words of its program.
    fn faults(&mut self, app: &App, upstream: &UpstreamStatus) {
        if let Some(start) = &upstream.start {
            let since_s = start.since_s.map_or(0, |since_s| app.now_s.saturating_sub(since_s));
            self.fact("start", &format!("{} for {}", start.phase, span(since_s)));
        }
        for (what, fault) in [("last error", &upstream.fault), ("lists", &upstream.list_fault)] {
            if let Some(fault) = fault {
                self.fact(what, &told(fault, app.now_s));
            }
        }
        for (at, line) in upstream.last_lines.iter().enumerate() {
            self.fact(if at == 0 { "last lines" } else { "" }, line);
        }
    }

    fn replicas(&mut self, app: &App, upstream: &UpstreamStatus) {
        if upstream.replicas.is_empty() {
            return;
        }
        self.heading("replicas");
        for replica in &upstream.replicas {
            let (word, look) = match (replica.resolved, replica.breaker.as_str()) {
                (Some(false), _) => ("✗ unresolved", Look::Bad),
                (_, "open") => ("✗ down", Look::Bad),
                (_, "half_open") => ("◐ half-open", Look::Warning),
                (_, "closed") => ("● up", Look::Good),
                _ => ("?", Look::Faint),
            };
            let calls = counts([(replica.in_flight, "in flight"), (replica.answered, "answered")]);
            let down = replica.down_since_s.map(|since_s| app.now_s.saturating_sub(since_s));
            let down = down.map(|down_s| format!(", for {}", span(down_s))).unwrap_or_default();
            self.marked(word, look, &format!("{}  {calls}{down}", shown(&replica.address)));
            if let Some(fault) = &replica.fault {
                self.fact_in("", &format!("last error: {}", told(fault, app.now_s)), Look::Faint);
            }
        }
    }

    fn tools(&mut self, page: &ToolsPage) {
        if page.tools.is_empty() {
            return;
        }
        self.heading("tools, most called first (t shows all)");
        let width = self.name_columns(page.tools.iter().map(|tool| &tool.name));
        for tool in &page.tools {
            let name = padded(&shown(&tool.name), width, false);
            let said = format!(
                "{name}  {} calls, {} errors, p99 {}",
                known_count(tool.calls),
                known_count(tool.errors),
                latency(tool.p99_s)
            );
            self.line(&said, Look::Plain);
        }
    }

    fn endpoint(&mut self, app: &App, path: &str) {
        self.title(&format!("endpoint {path}"));
        let Some(endpoint) = app.status.endpoints.iter().find(|endpoint| endpoint.path == path) else {
            return self.gone("endpoint");
        };
        let (word, look, _) = state(endpoint_state(endpoint, &app.status));
        self.fact_in("state", word, look);
        self.problems_of(app, "endpoint", path);
        self.figures(&endpoint.figures);
        self.curves(app.history.endpoints.get(path), app.history.interval_s);
        self.blank();
        self.door(endpoint);
        self.heading("upstreams");
        let width = self.name_columns(endpoint.upstreams.iter());
        for name in &endpoint.upstreams {
            let upstream = app.status.upstream(name);
            let (word, rank) = upstream.map_or(("?".into(), 0), upstream_state);
            let (word, look, _) = state((&word, rank));
            let recent = upstream.map(|upstream| &upstream.figures.recent);
            let said = format!(
                "{}  {} calls/s, p99 {}",
                padded(&shown(name), width, false),
                rate(recent.and_then(|recent| recent.calls_per_s)),
                latency(recent.and_then(|recent| recent.p99_s))
            );
            self.marked(word, look, &said);
        }
    }

    fn door(&mut self, endpoint: &EndpointStatus) {
        self.fact("eras", &either(&endpoint.eras.join(" and ")));
        if let Some(auth) = &endpoint.auth {
            let auth = auth.join(" or ").replace('_', " ");
            self.fact("authentication", if auth.is_empty() { "none" } else { &auth });
        }
        if let Some(names) = &endpoint.names {
            self.fact("names", names);
        }
        let list = known_bytes(endpoint.list_bytes);
        self.fact("tools", &format!("{}, the longest list has {list}", known_count(endpoint.tools)));
    }

    fn tool(&mut self, tool: &ToolStatus) {
        self.title(&format!("tool {}", tool.name));
        if let Some(title) = &tool.title {
            self.line(title, Look::Strong);
        }
        if let Some(description) = &tool.description {
            self.line(description, Look::Plain);
        }
        self.blank();
        self.fact("upstream", &tool.upstream);
        for PublicName { endpoint, name } in tool.public.iter().flatten() {
            self.fact("called as", &format!("{name} at {endpoint}"));
        }
        if let Some(why) = &tool.left_out {
            self.fact_in("excluded", &format!("! {why}"), Look::Warning);
        }
        self.fact("annotations", says(tool));
        let errors = share(tool.error_share());
        let said =
            format!("{}, of which {} errors ({errors})", known_count(tool.calls), known_count(tool.errors));
        self.fact("calls", &said);
        self.fact("calls/s", &rate(tool.calls_per_s));
        self.fact("latency", &format!("p50 {}, p99 {}", latency(tool.p50_s), latency(tool.p99_s)));
        self.fact("definition", &known_bytes(tool.definition_bytes));
        match tool.pin.as_deref() {
            Some(pin @ ("changed" | "new")) => {
                self.fact_in("pin", &format!("! {pin}: waits for approval"), Look::Warning);
                self.fact_in("", &format!("trunkline pins show {}", tool.upstream), Look::Use);
            }
            Some(pin) => self.fact("pin", pin),
            None => {}
        }
    }

    fn limit(&mut self, app: &App, id: &str) {
        self.title(id);
        let connections = &app.status.connections;
        if id == "connections" {
            let max = known_count(connections.max);
            self.fact("open", &format!("{} of {max}", count(connections.open)));
            self.fact("refused", &count(connections.refused));
            self.fact("messages", &format!("{} held", bytes(connections.buffered_bytes)));
            return;
        }
        let found = app.status.limits.iter().find(|limit| id.strip_prefix("limit ") == Some(&limit.name));
        let Some(limit) = found else { return self.gone("limit") };
        let time = limit.period_s.map_or_else(|| UNKNOWN.to_owned(), period);
        self.fact("bound", &format!("{} calls in {time}", count(limit.calls)));
        self.fact("counted", if limit.shared { "for all gateways together" } else { "by this gateway" });
        let callers = [(limit.keys, "told apart"), (limit.overflowed, "calls beyond limiter_keys_max")];
        self.fact("callers", &counts(callers));
        self.fact("refused", &format!("{} calls", count(limit.refused)));
    }

    fn gateway(&mut self, app: &App) {
        let status = &app.status;
        let since = span(status.uptime_s);
        self.fact("version", &format!("{}, up {since}, {} workers", status.version, status.workers));
        for ListenerStatus { address, tls, .. } in &status.listeners {
            self.fact("listens at", &format!("{address}{}", if *tls { " (TLS)" } else { "" }));
        }
        if let Some(unit) = &status.service {
            self.fact("service", unit);
        }
        self.fact("log", &either(status.log.file.as_ref().unwrap_or(&status.log.place)));
        self.fact("configuration", status.config.file.as_deref().unwrap_or("built in"));
        self.fact("its SHA-256", &status.config.sha256);
        self.reload(app);
        self.blank();
        self.figures(&status.calls);
        let Status { sessions, cache, .. } = status;
        let open = [(sessions.live, "of clients"), (sessions.upstream_sessions, "with upstreams")];
        self.fact("sessions", &counts(open));
        let streams = [
            (sessions.streams, "to clients"),
            (sessions.sse_streams, "of HTTP+SSE"),
            (sessions.upstream_streams, "from upstreams"),
            (sessions.subscriptions, "subscriptions"),
        ];
        self.fact("streams", &counts(streams));
        let lists = [
            (cache.hits, "hits"),
            (cache.stale, "stale"),
            (cache.misses, "misses"),
            (cache.errors, "errors"),
        ];
        self.fact("cache", &format!("{}: {}", bytes(cache.bytes), counts(lists)));
        if let Some(shared) = &status.shared {
            let connected = ("● connected", Look::Good);
            let (word, look) = if shared.connected { connected } else { ("✗ not connected", Look::Bad) };
            self.fact_in("shared state", word, look);
            let said = [(shared.replicas, "gateways"), (shared.mismatched, "with another session key")];
            self.fact("", &counts(said));
        }
        if let Some(sign_in) = &status.sign_in {
            if let Some(signed_in) = sign_in.signed_in() {
                self.fact("signed in", &signed_in);
            }
            let counted = [
                (sign_in.opened, "opened"),
                (sign_in.refusals(), "requests refused"),
                (sign_in.store_failures, "failures of the store"),
            ];
            self.fact("sign-in", &counts(counted));
        }
        if let Some(traces) = status.traces.as_ref().filter(|traces| traces.lost() > 0) {
            self.fact("traces", &format!("{} spans lost", count(traces.lost())));
        }
        self.certificates(app);
    }

    fn certificates(&mut self, app: &App) {
        if app.status.certificates.is_empty() {
            return;
        }
        self.heading("certificates");
        for Certificate { file, expires_s, authority } in &app.status.certificates {
            let said = match expires_s.map(|ends_s| ends_s.checked_sub(app.now_s)) {
                None => "expiry unknown".to_owned(),
                Some(None) if *authority => "! expired, goes on to count".to_owned(),
                Some(None) => "✗ expired".to_owned(),
                Some(Some(left)) => format!("expires in {}", span(left)),
            };
            self.line(&format!("{said}  {}", shown(file)), Look::Plain);
        }
    }

    fn reload(&mut self, app: &App) {
        let Some(last) = &app.status.config.last_reload else {
            return self.fact("last reload", "none: as at the start");
        };
        let ago = span(app.now_s.saturating_sub(last.at_s));
        if last.ok {
            self.fact_in("last reload", &format!("● {ago} ago"), Look::Good);
            if !last.needs_restart.is_empty() {
                let what = format!("! at the next start only: {}", last.needs_restart.join(", "));
                self.fact_in("", &what, Look::Warning);
            }
        } else {
            self.fact_in("last reload", &format!("✗ refused {ago} ago"), Look::Bad);
            for line in last.error.as_deref().unwrap_or_default().lines() {
                self.line(line, Look::Plain);
            }
        }
    }

    fn figures(&mut self, figures: &Figures) {
        let recent = &figures.recent;
        let now = format!("{} calls/s, {} errors/s", rate(recent.calls_per_s), rate(recent.errors_per_s));
        self.fact("now", &format!("{now}, p50 {}, p99 {}", latency(recent.p50_s), latency(recent.p99_s)));
        let errors = share(figures.error_share());
        let said = format!(
            "{} calls, {} errors ({errors})",
            known_count(figures.calls),
            known_count(figures.errors)
        );
        self.fact(
            "since start",
            &format!("{said}, p50 {}, p99 {}", latency(figures.p50_s), latency(figures.p99_s)),
        );
        let mut reasons: Vec<_> = figures.reasons.iter().collect();
        reasons.sort_by_key(|(_, times)| Reverse(**times));
        let reasons = reasons.iter().take(REASONS).map(|(why, times)| format!("{} {why}", count(**times)));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        if !reasons.is_empty() {
            self.fact("errors", &reasons);
        }
    }

    fn curves(&mut self, lines: Option<&HistoryLines>, interval_s: Option<f64>) {
        let Some(lines) = lines.filter(|lines| lines.calls_per_s.len() > 1) else { return };
        if self.width < NARROW {
            return;
        }
        let wide = (self.width - NAMES - 1).min(CURVE_COLUMNS).min(lines.calls_per_s.len());
        for (name, values, say) in [
            ("calls/s", &lines.calls_per_s, &rate as &dyn Fn(Option<f64>) -> String),
            ("p99", &lines.p99_s, &latency),
        ] {
            let labels =
                [name.to_owned(), format!("≤ {}", say(Some(highest(values)))), time_of(wide, interval_s)];
            let labels = labels.map(|label| (label, Look::Faint));
            self.blank();
            self.lines.extend(labelled(labels, NAMES, values, wide, self.palette).map(Line::from_iter));
        }
    }

    fn problems_of(&mut self, app: &App, kind: &str, name: &str) {
        let is_of = |problem: &&Problem| problem.kind == kind && problem.names.iter().any(|one| one == name);
        for problem in app.problems.iter().filter(is_of) {
            self.problem(problem, app.now_s);
        }
    }

    fn problem(&mut self, problem: &Problem, now_s: u64) {
        let (mark, look) = match problem.severity() {
            ProblemLevel::Error => ("✗ error", Look::Bad),
            ProblemLevel::Warning => ("! warning", Look::Warning),
        };
        self.fact_in(mark, &problem.words(now_s), look);
        if let Some(advice) = &problem.advice {
            self.fact_in("", &format!("→ {advice}"), Look::Use);
        }
        if let Some(place) = problem.runbook_place() {
            self.fact_in("", &place, Look::Faint);
        }
    }

    /// Columns of names that stand below each other.
    fn name_columns<'n>(&self, names: impl Iterator<Item = &'n String>) -> usize {
        let widest = names.map(|name| columns(&shown(name))).max().unwrap_or_default();
        widest.clamp(8, (self.width / 2).max(8))
    }

    fn gone(&mut self, what: &str) {
        self.line(&format!("There is no such {what} any more."), Look::Faint);
    }
}

fn either(text: &str) -> String {
    if text.is_empty() { UNKNOWN.to_owned() } else { text.to_owned() }
}
