//! The whole screen: first the problems, then the traffic, then what was asked for. Pure.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::App;
use super::palette::{Look, Palette};
use super::spark::{curve, highest};
use super::tab::Tab;
use super::table::plan;
use super::text::{labelled, time_of};
use super::{detail, listing};
use crate::admin_client::figures::{count, known_count, latency, rate, span};
use protocol::text::{columns, fit, shown};
use status::problem::{ProblemLevel, summary};

/// Rows of the curves where there is room for more than one.
const CURVE_ROWS: u16 = 4;
/// Columns of what stands before a curve.
const LABEL: usize = 12;
/// Columns of the longest curve.
const CURVE_COLUMNS: usize = 60;
/// Columns of a curve in a line.
const SMALL_CURVE: usize = 20;

/// How many rows everything takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    title: u16,
    state: u16,
    rates: u16,
    facts: u16,
    tabs: u16,
    heads: u16,
    pub(super) body: u16,
    foot: u16,
}

impl Layout {
    /// For a terminal of this size.
    pub(super) fn of(width: u16, height: u16, has_heads: bool) -> Self {
        let from = |least: u16| u16::from(height >= least);
        let is_large = height >= 30 && width >= 80;
        let mut layout = Self {
            title: from(8),
            state: from(2),
            rates: if is_large { CURVE_ROWS } else { from(10) },
            facts: from(12),
            tabs: from(4),
            heads: if has_heads { from(3) } else { 0 },
            body: 0,
            foot: from(6),
        };
        layout.body = height.saturating_sub(layout.above()).saturating_sub(layout.foot);
        layout
    }

    fn above(self) -> u16 {
        self.title + self.state + self.rates + self.facts + self.tabs + self.heads
    }
}

/// Draws it all.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, palette: Palette) {
    let area = frame.area();
    // It may have been made smaller since the last time it was asked for.
    let layout = Layout::of(area.width, area.height, app.has_table());
    let lines = lines(app, layout, usize::from(area.width), palette);
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        frame.buffer_mut().set_line(area.x, y, line, area.width);
    }
    if app.has_table() {
        mark_chosen(frame, app, layout, palette);
    }
    if app.is_editing && layout.foot > 0 {
        let typed = columns(&shown(&app.look().filter)) + 1;
        let x = u16::try_from(typed).unwrap_or(u16::MAX).min(area.width.saturating_sub(1));
        frame.set_cursor_position(Position { x, y: area.bottom().saturating_sub(1) });
    }
}

fn lines(app: &App, layout: Layout, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut put = |rows: u16, mut made: Vec<Line<'static>>| {
        made.resize(usize::from(rows), Line::default());
        lines.append(&mut made);
    };
    put(layout.title, vec![title(app, width, palette)]);
    put(layout.state, vec![state(app, width, palette)]);
    let rates = if layout.rates > 1 { curves(app, width, palette) } else { vec![rates(app, width, palette)] };
    put(layout.rates, rates);
    put(layout.facts, vec![facts(app, width, palette)]);
    put(layout.tabs, vec![tabs(app, width, palette)]);
    let (heads, body) = content(app, layout, width, palette);
    put(layout.heads, vec![heads]);
    let body =
        if app.gone.is_some() { body.into_iter().map(|line| faint(line, palette)).collect() } else { body };
    put(layout.body, body);
    put(layout.foot, vec![foot(app, width, palette)]);
    lines
}

fn title(app: &App, width: usize, palette: Palette) -> Line<'static> {
    let status = &app.status;
    let mut parts = vec![
        // Without the commit, which the gateway's own view has.
        (format!("trunkline {}", shown(status.version.split('+').next().unwrap_or_default())), Look::Strong),
        (shown(&app.place), Look::Plain),
        (format!("up {}", span(status.uptime_s)), Look::Plain),
    ];
    match &status.config.last_reload {
        None => parts.push(("configuration as at the start".to_owned(), Look::Faint)),
        Some(last) => {
            let ago = span(app.now_s.saturating_sub(last.at_s));
            let (text, look) = if last.ok {
                (format!("configuration read {ago} ago"), Look::Faint)
            } else {
                (format!("✗ reload refused {ago} ago"), Look::Bad)
            };
            parts.push((text, look));
        }
    }
    if app.is_paused {
        parts.insert(1, ("PAUSED".to_owned(), Look::Warning));
    }
    joined(parts, width, palette)
}

/// What is wrong.
fn state(app: &App, width: usize, palette: Palette) -> Line<'static> {
    if let Some((since_s, why)) = &app.gone {
        let since = span(app.now_s.saturating_sub(*since_s));
        let text = format!("✗ unreachable for {since}: {}; trying again", shown(why));
        return Line::styled(fit(&text, width).into_owned(), palette.style(Look::Bad));
    }
    let (Some(summary), Some(worst)) = (summary(&app.problems), app.problems.first()) else {
        return match app.status.starting() {
            Some(starting) => {
                let text = format!("◌ {}", shown(&starting));
                Line::styled(fit(&text, width).into_owned(), palette.style(Look::Faint))
            }
            None => Line::styled(fit("● healthy", width).into_owned(), palette.style(Look::Good)),
        };
    };
    let (mark, look) = match worst.severity() {
        ProblemLevel::Error => ("✗", Look::Bad),
        ProblemLevel::Warning => ("!", Look::Warning),
    };
    let head = format!("{mark} {summary}");
    if columns(&head) > width {
        return Line::styled(fit(&head, width).into_owned(), palette.style(look));
    }
    let since = worst.since_words(app.now_s);
    let rest = format!(": {} {}{since}", shown(&worst.subject), shown(&worst.what));
    let rest = fit(&rest, width - columns(&head)).into_owned();
    Line::from(vec![Span::styled(head, palette.style(look)), Span::raw(rest)])
}

fn rates(app: &App, width: usize, palette: Palette) -> Line<'static> {
    let recent = &app.status.calls.recent;
    let errors = if recent.errors_per_s.is_some_and(|rate| rate > 0.0) { Look::Bad } else { Look::Plain };
    let rates = curve(&app.history.all.calls_per_s, SMALL_CURVE.min(app.history.all.calls_per_s.len()), 1);
    let mut parts = vec![
        (format!("{} calls/s", rate(recent.calls_per_s)), Look::Strong),
        (format!("{} errors/s", rate(recent.errors_per_s)), errors),
        (format!("p99 {}", latency(recent.p99_s)), Look::Plain),
        (format!("p50 {}", latency(recent.p50_s)), Look::Plain),
    ];
    if width >= 60 {
        parts.insert(1, (rates.concat(), Look::Curve));
    }
    joined(parts, width, palette)
}

/// The same where there is room: curves with their figures before them.
fn curves(app: &App, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let recent = &app.status.calls.recent;
    let all = &app.history.all;
    let errors = if recent.errors_per_s.is_some_and(|rate| rate > 0.0) { Look::Bad } else { Look::Faint };
    let half = width / 2;
    let wide = half.saturating_sub(LABEL + 3).min(CURVE_COLUMNS);
    let block = |labels: [(String, Look); CURVE_ROWS as usize], values: &[Option<f64>]| {
        let fill = Span::raw(" ".repeat(half.saturating_sub(LABEL + 1 + wide)));
        let rows = labelled(labels, LABEL, values, wide, palette);
        rows.map(|row| [&row[..], std::slice::from_ref(&fill)].concat()).collect::<Vec<_>>()
    };
    let over = time_of(all.calls_per_s.len().min(wide), app.history.interval_s);
    let left = block(
        [
            (format!("{} calls/s", rate(recent.calls_per_s)), Look::Strong),
            (format!("{} errors/s", rate(recent.errors_per_s)), errors),
            (format!("≤ {}", rate(Some(highest(&all.calls_per_s)))), Look::Faint),
            (over.clone(), Look::Faint),
        ],
        &all.calls_per_s,
    );
    let right = block(
        [
            (format!("p99 {}", latency(recent.p99_s)), Look::Strong),
            (format!("p50 {}", latency(recent.p50_s)), Look::Plain),
            (format!("≤ {}", latency(Some(highest(&all.p99_s)))), Look::Faint),
            (over, Look::Faint),
        ],
        &all.p99_s,
    );
    left.into_iter().zip(right).map(|(left, right)| Line::from([left, right].concat())).collect()
}

fn facts(app: &App, width: usize, palette: Palette) -> Line<'static> {
    let status = &app.status;
    let sessions = &status.sessions;
    let max = status.connections.max.map(|max| format!("/{max}")).unwrap_or_default();
    let children = status.upstreams.iter().filter_map(|one| one.children.as_ref());
    let children = children.fold(0, |sum: u64, one| sum.saturating_add(one.running));
    let (calls_refused, connections_refused) = status.refused();
    let refused = calls_refused.saturating_add(connections_refused);
    let mut parts = vec![
        (format!("{}{max} connections", status.connections.open), Look::Plain),
        (format!("{} sessions", count(sessions.live)), Look::Plain),
        (listing::cache(status), Look::Plain),
        (format!("{} streams", count(sessions.client_streams())), Look::Plain),
    ];
    if refused > 0 {
        parts.insert(2, (format!("{} refused", count(refused)), Look::Warning));
    }
    if children > 0 {
        parts.push((format!("{} processes", count(children)), Look::Plain));
    }
    parts.push((format!("{} subscriptions", count(sessions.subscriptions)), Look::Plain));
    joined(parts, width, palette)
}

fn tabs(app: &App, width: usize, palette: Palette) -> Line<'static> {
    let number = |tab: Tab| match tab {
        Tab::Upstreams => Some(app.status.upstreams.len() as u64),
        Tab::Endpoints => Some(app.status.endpoints.len() as u64),
        Tab::Tools => app.status.tools.known.or(app.tools.as_ref().map(|page| page.total)),
        Tab::Problems => Some(app.problems.len() as u64),
        Tab::Errors => Some(app.status.recent_errors.len() as u64),
        Tab::Callers => Some(app.status.callers.known),
        Tab::Limits | Tab::Gateway => None,
    };
    let full = |tab: Tab, at: usize| {
        let number = number(tab).map(|number| format!(" {}", count(number))).unwrap_or_default();
        format!(" {} {}{number} ", at + 1, tab.name())
    };
    let short = |tab: Tab, at: usize| if tab == app.tab { full(tab, at) } else { format!(" {} ", at + 1) };
    let named = |tab: Tab, at: usize| {
        if tab == app.tab { full(tab, at) } else { format!(" {} {} ", at + 1, tab.name()) }
    };
    let all = |say: &dyn Fn(Tab, usize) -> String| {
        Tab::ALL.into_iter().enumerate().map(|(at, tab)| (say(tab, at), tab)).collect::<Vec<_>>()
    };
    let wide = |tabs: &[(String, Tab)]| tabs.iter().map(|(text, _)| columns(text)).sum::<usize>();
    let ways: [&dyn Fn(Tab, usize) -> String; 3] = [&full, &named, &short];
    let tabs = ways.iter().map(|way| all(way)).find(|tabs| wide(tabs) <= width);
    let tabs = tabs.unwrap_or_else(|| {
        let mut only = all(&full);
        only.retain(|(_, tab)| *tab == app.tab);
        only
    });
    let span = |(text, tab): (String, Tab)| {
        let look = match tab {
            tab if tab == app.tab => Look::Chosen,
            Tab::Problems if !app.problems.is_empty() => Look::Warning,
            _ => Look::Faint,
        };
        Span::styled(fit(&text, width).into_owned(), palette.style(look))
    };
    Line::from(tabs.into_iter().map(span).collect::<Vec<_>>())
}

/// The line of heads, and what stands below.
fn content(app: &App, layout: Layout, width: usize, palette: Palette) -> (Line<'static>, Vec<Line<'static>>) {
    let body = usize::from(layout.body);
    if !app.has_table() {
        let lines = match &app.subject {
            _ if app.is_helping => detail::help(width, palette),
            Some(subject) => detail::lines(app, subject, width, palette),
            None => detail::gateway(app, width, palette),
        };
        // One cannot scroll beyond the end.
        let from = app.scroll.min(lines.len().saturating_sub(body));
        return (Line::default(), lines.into_iter().skip(from).take(body).collect());
    }
    let listing = app.listing();
    let look = app.look();
    let plan = plan(listing.columns, &listing.rows, width);
    let heads = plan.heads(listing.columns, look.by, look.is_reversed, palette);
    if listing.total == 0 || app.tab == Tab::Tools && app.tools_fault.is_some() {
        return (
            heads,
            vec![Line::styled(fit(&nothing(app), width).into_owned(), palette.style(Look::Faint))],
        );
    }
    let line = |at: usize| match listing.row(at) {
        Some(row) => plan.row(listing.columns, row, palette),
        None => Line::styled("…", palette.style(Look::Faint)),
    };
    let from = look.top.min(listing.total.saturating_sub(1));
    (heads, (from..listing.total.min(from.saturating_add(body))).map(line).collect())
}

/// Why a table is empty.
fn nothing(app: &App) -> String {
    let filter = &app.look().filter;
    match (app.tab, &app.tools_fault) {
        (Tab::Tools, Some(why)) => format!("no tools: {}", shown(why)),
        _ if !filter.is_empty() => format!("nothing has {:?} in it: Esc shows all", shown(filter)),
        (Tab::Problems, _) => "no problems".to_owned(),
        (Tab::Errors, _) => "no errors".to_owned(),
        (Tab::Tools, _) if app.tools.is_none() => "asking …".to_owned(),
        (Tab::Tools, _) => "no tools are known".to_owned(),
        _ => "there are none".to_owned(),
    }
}

fn foot(app: &App, width: usize, palette: Palette) -> Line<'static> {
    let look = app.look();
    if app.is_editing {
        let typed = shown(&look.filter);
        return Line::raw(fit(&format!("/{typed}"), width.saturating_sub(1)).into_owned());
    }
    if !app.has_table() {
        let hints: &[_] = match () {
            () if app.is_helping => &[("any key", "back")],
            () if app.subject.is_some() => &[("Esc", "back"), ("↑↓", "scroll"), ("q", "quit")],
            () => &[("1-8", "tabs"), ("↑↓", "scroll"), ("?", "help"), ("q", "quit")],
        };
        return hint_line(Vec::new(), hints, width, palette);
    }
    let mut before = Vec::new();
    if let Some(only) = app.only.as_ref().filter(|_| app.tab == Tab::Tools) {
        before.push((format!("of {}", shown(only)), Look::Warning));
    }
    if !look.filter.is_empty() {
        before.push((format!("/{}", shown(&look.filter)), Look::Warning));
    }
    let total = app.listing().total;
    if total > usize::from(app.layout().body) {
        let at = count((look.cursor + 1) as u64);
        before.push((format!("{at} of {}", known_count(Some(total as u64))), Look::Faint));
    }
    let all =
        [("Enter", "open"), ("/", "filter"), ("s", "sort"), ("t", "tools"), ("?", "help"), ("q", "quit")];
    let is_of_use = |(key, _): &(&str, &str)| match *key {
        "Enter" => app.tab != Tab::Callers,
        "t" => app.tab == Tab::Upstreams,
        "s" => app.tab != Tab::Problems,
        _ => true,
    };
    let hints: Vec<_> = all.into_iter().filter(is_of_use).collect();
    hint_line(before, &hints, width, palette)
}

fn hint_line(
    before: Vec<(String, Look)>,
    hints: &[(&'static str, &'static str)],
    width: usize,
    palette: Palette,
) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for (text, look) in before {
        let text = fit(&text, width.saturating_sub(used)).into_owned();
        used += columns(&text) + 2;
        spans.push(Span::styled(text, palette.style(look)));
        spans.push(Span::raw("  "));
    }
    for (key, what) in hints {
        let wide = columns(key) + 1 + columns(what);
        if used + wide > width {
            break;
        }
        spans.push(Span::styled(*key, palette.style(Look::Use)));
        spans.push(Span::styled(format!(" {what}  "), palette.style(Look::Faint)));
        used += wide + 2;
    }
    Line::from(spans)
}

/// Parts side by side, as many as there is room for.
fn joined(parts: Vec<(String, Look)>, width: usize, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    for (text, look) in parts {
        let space = if used == 0 { 0 } else { 2 };
        if used > 0 && used + space + columns(&text) > width {
            break;
        }
        let text = fit(&text, width).into_owned();
        used += space + columns(&text);
        spans.push(Span::raw(" ".repeat(space)));
        spans.push(Span::styled(text, palette.style(look)));
    }
    Line::from(spans)
}

fn mark_chosen(frame: &mut Frame<'_>, app: &App, layout: Layout, palette: Palette) {
    let look = app.look();
    let area = frame.area();
    let row = u16::try_from(look.cursor.saturating_sub(look.top)).unwrap_or(u16::MAX);
    if row >= layout.body || app.listing().total == 0 {
        return;
    }
    let y = area.y.saturating_add(layout.above()).saturating_add(row);
    let line = Rect { x: area.x, y, width: area.width, height: 1 }.intersection(area);
    // In one colour: reversed, curves of another would be a bar with holes.
    let chosen = palette.style(Look::Chosen).fg(Color::Reset).remove_modifier(Modifier::DIM);
    frame.buffer_mut().set_style(line, chosen);
}

/// What is old.
fn faint(line: Line<'static>, palette: Palette) -> Line<'static> {
    let style = palette.style(Look::Faint);
    let spans = line.spans.into_iter().map(|span| Span::styled(span.content, style));
    Line::from(spans.collect::<Vec<_>>()).style(Style::new())
}
