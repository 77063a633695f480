//! What is in the tables. Pure.

use status::{EndpointStatus, Figures, History, HistoryLines, Status, ToolStatus, ToolsSort, UpstreamStatus};

use super::palette::Look;
use super::table::{By, Column, ColumnKind, Row, TableCell};
use crate::admin_client::figures::{
    UNKNOWN, bytes, count, known_bytes, known_count, latency, period, rate, share, span,
};
use crate::admin_client::report::{endpoint_state, replicas, upstream_state};
use status::problem::{Problem, ProblemLevel};

/// The column by which upstreams and endpoints are sorted at first: what is wrong, then what is busy.
pub(super) const STATE: usize = 0;

pub(super) const UPSTREAMS: &[Column] = &[
    mark("STATE", 40),
    name_column("UPSTREAM", 40),
    number("CALLS/S", 8, 1),
    plain("TREND", 8, 60, 5),
    number("ERR/S", 7, 2),
    number("P50", 7, 4),
    number("P99", 7, 1),
    number("CALLS", 8, 3),
    number("ERRORS", 7, 6),
    number("TOOLS", 6, 7),
    number("IN FLIGHT", 9, 8),
    text("REPLICAS", 9, 20, 6),
    text("ERAS", 13, 13, 9),
    text("TRANSPORT", 9, 9, 10),
];

pub(super) const ENDPOINTS: &[Column] = &[
    mark("STATE", 40),
    name_column("ENDPOINT", 40),
    number("CALLS/S", 8, 1),
    plain("TREND", 8, 60, 5),
    number("ERR/S", 7, 2),
    number("P50", 7, 4),
    number("P99", 7, 1),
    number("CALLS", 8, 3),
    number("ERRORS", 7, 6),
    number("TOOLS", 6, 7),
    text("ERAS", 13, 13, 10),
    text("UPSTREAMS", 10, 60, 8),
];

pub(super) const TOOLS: &[Column] = &[
    name_column("TOOL", 48),
    plain("UPSTREAM", 8, 28, 2),
    plain_number("CALLS/S", 8, 3),
    plain_number("P50", 7, 4),
    number("P99", 7, 1),
    number("CALLS", 8, 1),
    number("ERRORS", 7, 3),
    plain_number("ERR %", 7, 5),
    plain("PIN", 8, 8, 6),
    plain("ANNOTATIONS", 11, 11, 7),
    plain_number("SIZE", 8, 8),
];

pub(super) const LIMITS: &[Column] = &[
    name_column("LIMIT", 40),
    plain("BOUND", 12, 24, 2),
    number("NOW", 7, 3),
    number("WAITING", 8, 4),
    number("REFUSED", 8, 1),
    plain("OF", 10, 24, 5),
];

pub(super) const PROBLEMS: &[Column] = &[
    Column { is_sortable: false, ..mark("", 9) },
    plain("WHERE", 8, 28, 0),
    plain("FOR", 8, 10, 2),
    plain("WHAT", 8, 400, 1),
];

/// The column of [`TOOLS`] that stands for a way to sort.
pub(super) fn tools_column(sort: ToolsSort) -> usize {
    match sort {
        ToolsSort::Name => 0,
        ToolsSort::P99 => 4,
        ToolsSort::Calls => 5,
        ToolsSort::Errors => 6,
    }
}

/// Upstreams with this text in their names.
pub(super) fn upstreams(status: &Status, history: &History, filter: &str) -> Vec<Row> {
    let fits = |upstream: &&UpstreamStatus| is_in(filter, &upstream.name);
    let row = |upstream: &UpstreamStatus| {
        let UpstreamStatus { name, figures, tools, .. } = upstream;
        let more = [
            count_cell(Some(upstream.in_flight())),
            words(&replicas(upstream)),
            words(&upstream.eras.join("+")),
            words(&upstream.transport),
        ];
        let (word, rank) = upstream_state(upstream);
        server_row(name, state((&word, rank)), figures, history.upstreams.get(name), *tools, more)
    };
    status.upstreams.iter().filter(fits).map(row).collect()
}

/// Endpoints with this text in their paths or the names of their upstreams.
pub(super) fn endpoints(status: &Status, history: &History, filter: &str) -> Vec<Row> {
    let fits = |endpoint: &&EndpointStatus| {
        is_in(filter, &endpoint.path) || endpoint.upstreams.iter().any(|name| is_in(filter, name))
    };
    let row = |endpoint: &EndpointStatus| {
        let EndpointStatus { path, figures, tools, .. } = endpoint;
        let more = [words(&endpoint.eras.join("+")), words(&endpoint.upstreams.join(" "))];
        let state = state(endpoint_state(endpoint, status));
        server_row(path, state, figures, history.endpoints.get(path), *tools, more)
    };
    status.endpoints.iter().filter(fits).map(row).collect()
}

/// What is equally healthy is in the order of how busy it is.
fn server_row<const N: usize>(
    id: &str,
    (word, look, rank): (&str, Look, f64),
    figures: &Figures,
    lines: Option<&HistoryLines>,
    tools: Option<u64>,
    more: [(TableCell, By); N],
) -> Row {
    let Figures { recent, calls, errors, .. } = figures;
    let busy = recent.calls_per_s.unwrap_or_default().clamp(0.0, 1e12);
    let curve = lines.map(|lines| lines.calls_per_s.0.clone()).unwrap_or_default();
    let mut cells = vec![
        (TableCell::Text(word.to_owned(), look), By::Number(rank * 1e13 + busy)),
        name(id),
        rate_cell(recent.calls_per_s, Look::Plain),
        (TableCell::Curve(curve), By::Number(0.0)),
        rate_cell(recent.errors_per_s, Look::Bad),
        latency_cell(recent.p50_s),
        latency_cell(recent.p99_s),
        count_cell(*calls),
        count_cell(*errors),
        count_cell(tools),
    ];
    cells.extend(more);
    Row { id: id.to_owned(), cells }
}

/// These tools.
pub(super) fn tools(tools: &[ToolStatus]) -> Vec<Row> {
    let row = |tool: &ToolStatus| {
        let pin = match tool.pin.as_deref() {
            Some(pin @ ("changed" | "new")) => {
                (TableCell::Text(format!("! {pin}"), Look::Warning), By::Number(0.0))
            }
            other => words(other.unwrap_or(UNKNOWN)),
        };
        let cells = vec![
            name(&tool.name),
            name(&tool.upstream),
            rate_cell(tool.calls_per_s, Look::Plain),
            latency_cell(tool.p50_s),
            latency_cell(tool.p99_s),
            count_cell(tool.calls),
            count_cell(tool.errors),
            words(&share(tool.error_share())),
            pin,
            words(says(tool)),
            words(&known_bytes(tool.definition_bytes)),
        ];
        Row { id: tool_id(tool), cells }
    };
    tools.iter().map(row).collect()
}

/// What stands for a tool.
pub(super) fn tool_id(tool: &ToolStatus) -> String {
    format!("{}\n{}", tool.upstream, tool.name)
}

/// What its annotations say.
pub(super) fn says(tool: &ToolStatus) -> &'static str {
    match (tool.read_only, tool.destructive) {
        (Some(true), _) => "only reads",
        (_, Some(true)) => "may destroy",
        (Some(false), Some(false)) => "only adds",
        (Some(false), None) => "changes",
        _ => UNKNOWN,
    }
}

/// Everything that is bounded and can be hit.
pub(super) fn limits(status: &Status, filter: &str) -> Vec<Row> {
    let connections = &status.connections;
    let mut rows = vec![bound(
        "connections",
        &known_count(connections.max),
        Some(connections.open),
        None,
        connections.refused,
        "clients",
    )];
    rows.extend(status.limits.iter().map(|limit| {
        let period = limit.period_s.map_or_else(|| UNKNOWN.to_owned(), period);
        let of = if limit.shared { "callers, shared" } else { "callers" };
        let what = format!("{} in {period}", count(limit.calls));
        bound(&format!("limit {}", limit.name), &what, Some(limit.keys), None, limit.refused, of)
    }));
    rows.extend(status.upstreams.iter().filter_map(|upstream| {
        let at_once = upstream.concurrency.as_ref()?;
        let what = format!("{} at once", count(at_once.max));
        let name = format!("upstream {}", upstream.name);
        let waiting = Some(at_once.waiting);
        Some(bound(&name, &what, Some(at_once.in_use), waiting, at_once.refused, "calls"))
    }));
    rows.retain(|row| is_in(filter, &row.id));
    rows
}

/// What is wrong.
pub(super) fn problems(problems: &[Problem], now_s: u64, filter: &str) -> Vec<Row> {
    let row = |(at, problem): (usize, &Problem)| {
        let (mark, look) = match problem.severity() {
            ProblemLevel::Error => ("✗ error", Look::Bad),
            ProblemLevel::Warning => ("! warning", Look::Warning),
        };
        let cells = vec![
            (TableCell::Text(mark.to_owned(), look), By::Number(0.0)),
            name(&problem.subject),
            words(
                &problem
                    .since_s
                    .map_or_else(|| UNKNOWN.to_owned(), |since_s| span(now_s.saturating_sub(since_s))),
            ),
            words(&problem.what),
        ];
        Row { id: at.to_string(), cells }
    };
    let fits =
        |(_, problem): &(usize, &Problem)| is_in(filter, &problem.subject) || is_in(filter, &problem.what);
    problems.iter().enumerate().filter(fits).map(row).collect()
}

/// The look of a state, and its place when sorted.
pub(super) fn state((word, rank): (&str, u8)) -> (&str, Look, f64) {
    let look = [Look::Faint, Look::Good, Look::Warning, Look::Bad][usize::from(rank)];
    (word, look, f64::from(rank))
}

fn bound(id: &str, what: &str, now: Option<u64>, waiting: Option<u64>, refused: u64, of: &str) -> Row {
    let refused_look = if refused > 0 { Look::Warning } else { Look::Plain };
    let cells = vec![
        name(id),
        words(what),
        count_cell(now),
        count_cell(waiting),
        (TableCell::Text(count(refused), refused_look), by_count(refused)),
        words(of),
    ];
    Row { id: id.to_owned(), cells }
}

pub(super) fn is_in(filter: &str, text: &str) -> bool {
    filter.is_empty() || text.to_lowercase().contains(&filter.to_lowercase())
}

pub(super) fn name(text: &str) -> (TableCell, By) {
    (TableCell::text(text), By::Text(text.to_lowercase()))
}

pub(super) fn words(text: &str) -> (TableCell, By) {
    (TableCell::text(text), By::Text(text.to_owned()))
}

/// `look` is that of a rate that is not zero.
fn rate_cell(per_s: Option<f64>, look: Look) -> (TableCell, By) {
    let look = if per_s.is_some_and(|rate| rate > 0.0) { look } else { Look::Faint };
    (TableCell::Text(rate(per_s), look), By::Number(per_s.unwrap_or(-1.0)))
}

fn latency_cell(seconds: Option<f64>) -> (TableCell, By) {
    let look = if seconds.is_some() { Look::Plain } else { Look::Faint };
    (TableCell::Text(latency(seconds), look), By::Number(seconds.unwrap_or(-1.0)))
}

pub(super) fn count_cell(known: Option<u64>) -> (TableCell, By) {
    let look = if known.is_some_and(|known| known > 0) { Look::Plain } else { Look::Faint };
    (TableCell::Text(known_count(known), look), known.map_or(By::Number(-1.0), by_count))
}

#[expect(clippy::cast_precision_loss, reason = "an order for people")]
fn by_count(count: u64) -> By {
    By::Number(count as f64)
}

pub(super) const fn text(head: &'static str, least: usize, most: usize, rank: u8) -> Column {
    Column { head, least, most, is_number: false, rank, is_sortable: true, kind: ColumnKind::Other }
}

const fn mark(head: &'static str, most: usize) -> Column {
    Column { kind: ColumnKind::Mark, ..text(head, 1, most, 0) }
}

pub(super) const fn name_column(head: &'static str, most: usize) -> Column {
    Column { kind: ColumnKind::Name, ..text(head, 8, most, 0) }
}

pub(super) const fn plain(head: &'static str, least: usize, most: usize, rank: u8) -> Column {
    Column { is_sortable: false, ..text(head, least, most, rank) }
}

pub(super) const fn number(head: &'static str, width: usize, rank: u8) -> Column {
    Column { is_number: true, ..text(head, width, width, rank) }
}

const fn plain_number(head: &'static str, width: usize, rank: u8) -> Column {
    Column { is_sortable: false, ..number(head, width, rank) }
}

/// Sizes are part of what is known of the cache.
pub(super) fn cache(status: &Status) -> String {
    format!("cache {} {}", share(status.cache.hit_share()), bytes(status.cache.bytes))
}
