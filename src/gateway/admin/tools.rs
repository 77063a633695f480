//! Tools, one by one: what is known of each, how often it is called, and how that goes.
//!
//! A tool is known by the lists that are kept, by what was counted of it, and by the names that calls are routed by: one
//! whose list has gone is still there. Made on the blocking pool, for one asker at a time. Bounded by what the cache of
//! lists holds; an answer has at most 200 tools, and of each no text beyond [`TEXT_CHARS_MAX`] characters.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;
use status::{PublicName, Rankings, ToolStatus, ToolsPage, ToolsQuery, ToolsSort};

use super::answers::json_line;
use super::sampler::StatusSampler;
use super::samples::Samples;
use super::servers::{self, Tools};
use super::status::count;
use crate::context::state::State;
use crate::snapshot::Snapshot;
use crate::tables::lists::part::{Content, Item, PartPage};
use crate::telemetry::tools::ToolId;
use crate::telemetry::totals::{Counts, Total};
use crate::upstream::Upstream;
use protocol::hints::{Hint, Hints, RequiredHints};
use protocol::json::{self, Scratch};
use protocol::route::Kind;

/// Tools in a ranking.
const RANKED_MAX: usize = 10;
/// The longest text of a tool that is told.
const TEXT_CHARS_MAX: usize = 300;
/// Names at endpoints that are told of a tool.
const PUBLIC_MAX: usize = 20;

/// What was counted of tools, by index of the upstream and its own name of the tool.
type Counted<'f> = BTreeMap<usize, BTreeMap<Cow<'f, str>, ToolCounts<'f>>>;

/// What was counted of one tool.
#[derive(Debug, Default)]
struct ToolCounts<'f> {
    /// Its calls that were answered.
    answered: Option<Cow<'f, Total>>,
    /// Its calls that failed.
    failed: u64,
    /// Endpoints where it was called, and by what name.
    named: Vec<(&'f str, &'f str)>,
}

/// A tool.
#[derive(Debug, Default)]
struct ToolRow<'r> {
    /// The index of its upstream.
    upstream: usize,
    /// What that calls it.
    name: Cow<'r, str>,
    /// Its definition, if that is kept.
    item: Option<(&'r PartPage, &'r Item)>,
    /// Why no client sees it.
    left_out: Option<Cow<'r, str>>,
    /// What was counted of it, if it was called.
    count: Option<&'r ToolCounts<'r>>,
}

/// The tools that stand out.
pub(super) fn rankings(snapshot: &Snapshot, known: &Tools, figures: &Counts, history: &Samples) -> Rankings {
    let counted = counted(snapshot, figures);
    let each = counted.iter().flat_map(|(upstream, tools)| tools.iter().map(|tool| (*upstream, tool)));
    let row = |(upstream, (name, count)): (usize, (&'_ Cow<'_, str>, _))| ToolRow {
        upstream,
        name: Cow::Owned(name.to_string()),
        count: Some(count),
        ..ToolRow::default()
    };
    let rows: Vec<ToolRow<'_>> = each.map(row).collect();
    let ranking = |key: fn(&ToolRow<'_>) -> (u64, u64)| -> Vec<ToolStatus> {
        let mut ranked: Vec<_> =
            rows.iter().map(|row| (key(row), row)).filter(|(key, _)| key.0 > 0).collect();
        ranked.sort_by_key(|(key, row)| (Reverse(*key), row.upstream, &row.name));
        let first = ranked.into_iter().take(RANKED_MAX);
        first.filter_map(|(_, row)| row.state(snapshot, history)).collect()
    };
    let in_force = snapshot.upstreams.iter().filter_map(|upstream| known.get(&upstream.id));
    Rankings {
        // Lists of upstreams as they were before a reload may be kept for a while.
        known: Some(count(in_force.map(|known| known.count).sum::<usize>())),
        most_called: ranking(|row| (row.calls(), 0)),
        slowest: ranking(slowness),
        failing: ranking(|row| (row.errors(), row.calls())),
    }
}

/// The tools that are asked for, as text. The error is a line for whoever asked.
pub(super) fn text(state: &State, sampler: &StatusSampler, query: &ToolsQuery) -> Result<Bytes, String> {
    let snapshot = state.snapshot.load_full();
    let wanted = query.upstream.as_ref().map(|name| upstream_of(&snapshot, name)).transpose()?;
    let figures = sampler.figures();
    let known = servers::tools(state);
    let counted = figures.as_ref().map(|figures| counted(&snapshot, figures)).unwrap_or_default();
    let routed = routed(&snapshot, wanted);
    let mut reader = Reader { scratch: Scratch::default(), depth_max: snapshot.limits.json_depth_max };
    let (mut found, mut total) = (Vec::new(), 0_usize);
    for (at, upstream) in snapshot.upstreams.iter().enumerate() {
        if wanted.is_some_and(|wanted| wanted != at) {
            continue;
        }
        let counted = counted.get(&at);
        let content = known.get(&upstream.id).map(|known| &*known.part.content);
        let others = routed.get(&at).into_iter().flatten().map(String::as_str);
        let called = counted.into_iter().flat_map(BTreeMap::keys).map(|name| &**name);
        let rows = rows(content, called.chain(others), (at, counted));
        total += rows.len();
        let is_meant = |row: &ToolRow<'_>| reader.finds(&query.text, row, &upstream.config.name);
        found.extend(rows.into_iter().filter(is_meant));
    }
    sort(&mut found, query.sort, &snapshot);
    if !query.text.is_empty() {
        // One that is called just so is found, however many have this in their descriptions.
        found.sort_by_cached_key(|row| row.name.to_lowercase() != query.text);
    }
    let shown = found.iter().skip(query.offset).take(query.count);
    let is_measured = figures.is_some();
    let tools = {
        let history = sampler.history();
        shown.filter_map(|row| reader.told(row, &snapshot, &history, is_measured)).collect()
    };
    let matched = Some(count(found.len()));
    Ok(json_line(&ToolsPage { total: count(total), matched, offset: count(query.offset), tools }))
}

impl ToolRow<'_> {
    fn calls(&self) -> u64 {
        self.answered().map_or(0, |total| total.calls) + self.errors()
    }

    fn errors(&self) -> u64 {
        self.count.map_or(0, |count| count.failed)
    }

    fn answered(&self) -> Option<&Total> {
        self.count?.answered.as_deref()
    }

    /// What is known of it without its definition.
    fn state(&self, snapshot: &Snapshot, history: &Samples) -> Option<ToolStatus> {
        let upstream = snapshot.upstreams.get(self.upstream)?.config.name.clone();
        let total = self.answered();
        let named = self.count.map(|count| &*count.named).unwrap_or_default();
        Some(ToolStatus {
            upstream,
            name: short(&self.name),
            calls: Some(self.calls()),
            errors: Some(self.errors()),
            seconds: Some(total.map_or(0.0, |total| total.seconds)),
            p50_s: total.and_then(|total| total.quantile(50)),
            p99_s: total.and_then(|total| total.quantile(99)),
            calls_per_s: history.tool_calls_per_s(named),
            ..ToolStatus::default()
        })
    }
}

/// How slow it is, in microseconds; 0 without calls.
fn slowness(row: &ToolRow<'_>) -> (u64, u64) {
    let micros = |percent| {
        let taken = row.answered().and_then(|total| total.quantile(percent)).map(Duration::from_secs_f64);
        taken.map_or(0, |taken| u64::try_from(taken.as_micros()).unwrap_or(u64::MAX))
    };
    (micros(99), micros(50))
}

/// The tools of one upstream: those of its list, those left out of it, and `others`. Each is there once.
fn rows<'r>(
    content: Option<&'r Content>,
    others: impl Iterator<Item = &'r str>,
    (upstream, counted): (usize, Option<&'r BTreeMap<Cow<'r, str>, ToolCounts<'r>>>),
) -> Vec<ToolRow<'r>> {
    let row = |name: Cow<'r, str>| {
        let count = counted.and_then(|counted| counted.get(&name));
        ToolRow { upstream, name, count, ..ToolRow::default() }
    };
    let mut rows: Vec<ToolRow<'r>> = Vec::new();
    let mut seen: HashSet<Cow<'r, str>> = HashSet::new();
    let pages = content.into_iter().flat_map(|content| &content.pages);
    let items = pages.flat_map(|page| page.items.iter().map(move |item| (page, item)));
    for (page, item) in items {
        let own = item.sites.iter().find(|site| site.kind == Kind::Tool);
        let Some(name) = own.and_then(|own| own.literal.decode(&page.body)) else { continue };
        if seen.insert(name.clone()) {
            rows.push(ToolRow { item: Some((page, item)), ..row(name) });
        }
    }
    let excluded = content.into_iter().flat_map(|content| content.excluded.iter());
    let excluded = excluded.flat_map(|tool| {
        let why: Cow<'_, str> = tool.why.to_string().into();
        tool.names.iter().map(move |name| (&**name, Some(why.clone())))
    });
    let withheld = content.into_iter().flat_map(|content| &content.withheld);
    let withheld = withheld.map(|name| (&**name, Some("its definition waits for approval".into())));
    for (name, left_out) in excluded.chain(withheld).chain(others.map(|name| (name, None))) {
        if seen.insert(name.into()) {
            rows.push(ToolRow { left_out, ..row(name.into()) });
        }
    }
    rows
}

fn sort(rows: &mut Vec<ToolRow<'_>>, sort: ToolsSort, snapshot: &Snapshot) {
    let upstream =
        |row: &ToolRow<'_>| snapshot.upstreams.get(row.upstream).map(|upstream| &*upstream.config.name);
    let key = |row: &ToolRow<'_>| match sort {
        ToolsSort::Calls => (row.calls(), row.errors()),
        ToolsSort::Errors => (row.errors(), row.calls()),
        ToolsSort::P99 => slowness(row),
        ToolsSort::Name => (0, 0),
    };
    // Keys are dear: each is made once.
    let mut keyed: Vec<_> = rows.drain(..).map(|row| (key(&row), row)).collect();
    keyed.sort_by(|(key_a, a), (key_b, b)| {
        let by_name = || (upstream(a), &a.name).cmp(&(upstream(b), &b.name));
        key_b.cmp(key_a).then_with(by_name)
    });
    rows.extend(keyed.into_iter().map(|(_, row)| row));
}

/// Reads definitions.
struct Reader {
    scratch: Scratch,
    depth_max: usize,
}

/// What people read of a definition.
#[derive(Default)]
struct About {
    title: Option<String>,
    description: Option<String>,
}

impl Reader {
    /// Whether `text`, in small letters, is in what is told of a tool.
    fn finds(&mut self, text: &str, row: &ToolRow<'_>, upstream: &str) -> bool {
        let has = |told: &str| told.to_lowercase().contains(text);
        if text.is_empty() || has(&row.name) || has(upstream) {
            return true;
        }
        let definition = row.item.and_then(|(page, item)| page.body.get(item.span.clone()));
        if definition.is_none_or(|definition| certainly_lacks(definition, text)) {
            return false;
        }
        let about = self.about(row);
        about.title.is_some_and(|title| has(&title)) || about.description.is_some_and(|told| has(&told))
    }

    fn about(&mut self, row: &ToolRow<'_>) -> About {
        let definition = row.item.and_then(|(page, item)| page.body.get(item.span.clone()));
        let document = definition.map(|text| self.scratch.index(text, self.depth_max));
        let Some(Ok(document)) = document else { return About::default() };
        let text_at = |of: json::Value<'_>, key| {
            let literal = of.get(key)?.as_literal()?;
            literal.decode(of.text()).map(Cow::into_owned)
        };
        let tool = document.root();
        let title = text_at(tool, "title").or_else(|| text_at(tool.get("annotations")?, "title"));
        About { title, description: text_at(tool, "description") }
    }

    fn told(
        &mut self,
        row: &ToolRow<'_>,
        snapshot: &Snapshot,
        history: &Samples,
        is_measured: bool,
    ) -> Option<ToolStatus> {
        let upstream = snapshot.upstreams.get(row.upstream)?;
        let About { title, description } = self.about(row);
        let hints = row.item.map(|(_, item)| item.hints);
        let is_read_only = hints.map(|hints| says(hints, Hint::ReadOnly));
        let mut state = ToolStatus {
            title: title.as_deref().map(short),
            description: description.as_deref().map(short),
            read_only: is_read_only,
            // What changes nothing destroys nothing.
            destructive: hints.map(|hints| is_read_only == Some(false) && says(hints, Hint::Destructive)),
            definition_bytes: row.item.map(|(_, item)| count(item.span.len())),
            pin: upstream.pins.as_ref().and_then(|pins| pins.state_of(&row.name)).map(str::to_owned),
            left_out: row.left_out.as_deref().map(short),
            public: Some(public(row, upstream, snapshot)),
            ..row.state(snapshot, history)?
        };
        if !(is_measured && upstream.tools.tells_apart(&row.name)) {
            (state.calls, state.errors, state.seconds, state.calls_per_s) = (None, None, None, None);
        }
        Some(state)
    }
}

/// Whether a definition is without `text`, however it is read. Reading all definitions would take long.
fn certainly_lacks(definition: &[u8], text: &str) -> bool {
    // Servers write these as they are, or as `\u00..`.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" _-.,:;".contains(&byte));
    is_plain
        && memmem::find(&definition.to_ascii_lowercase(), text.as_bytes()).is_none()
        && memmem::find(definition, b"\\u00").is_none()
}

/// What clients call it, and where.
fn public(row: &ToolRow<'_>, upstream: &Upstream, snapshot: &Snapshot) -> Vec<PublicName> {
    let named = snapshot.endpoints.iter().filter_map(|endpoint| {
        let member = endpoint.member_ids().iter().position(|member| *member == upstream.id)?;
        let name = endpoint.naming.public(Kind::Tool, member, &row.name)?;
        let directory = endpoint.names.directory();
        let leads_back = endpoint.naming.leads_back(Kind::Tool, &name, (member, &row.name), &directory);
        leads_back.then(|| PublicName { endpoint: endpoint.config.name.clone(), name: short(&name) })
    });
    if row.left_out.is_some() { Vec::new() } else { named.take(PUBLIC_MAX).collect() }
}

/// Calls are counted by what clients call a tool: this is by what it is.
fn counted<'f>(snapshot: &'f Snapshot, figures: &'f Counts) -> Counted<'f> {
    let mut counted = Counted::new();
    for endpoint in &snapshot.endpoints {
        let path = endpoint.config.name.as_str();
        let directory = endpoint.names.directory();
        let answered = figures.tools.get(path).into_iter().flat_map(|tools| tools.iter());
        let answered = answered.map(|(public, total)| (public, Some(total), 0));
        let failed = figures.failures.get(path).into_iter().flatten();
        let failed = failed.map(|(public, failed)| (&**public, None, *failed));
        for (public, total, failed) in answered.chain(failed) {
            let route = endpoint.naming.route(Kind::Tool, public, &directory).ok();
            let Some(route) = route.filter(|_| public != ToolId::OTHER_LABEL) else { continue };
            let Some(upstream) = endpoint.members.get(route.member) else { continue };
            let count = counted.entry(*upstream).or_default().entry(route.inner).or_default();
            count.failed += failed;
            match (&mut count.answered, total) {
                (Some(sum), Some(total)) => sum.to_mut().merge(total),
                (answered @ None, Some(total)) => *answered = Some(Cow::Borrowed(total)),
                (_, None) => {}
            }
            if !count.named.contains(&(path, public)) {
                count.named.push((path, public));
            }
        }
    }
    counted
}

/// The tools that calls are routed by, by index of the upstream.
fn routed(snapshot: &Snapshot, wanted: Option<usize>) -> BTreeMap<usize, HashSet<String>> {
    let mut routed: BTreeMap<usize, HashSet<String>> = BTreeMap::new();
    for endpoint in &snapshot.endpoints {
        endpoint.names.directory().each(|_, kind, member, name| {
            let upstream = endpoint.members.get(member).filter(|_| kind == Kind::Tool);
            if let Some(upstream) = upstream.filter(|at| wanted.is_none_or(|wanted| wanted == **at)) {
                let names = routed.entry(*upstream).or_default();
                if !names.contains(name) {
                    names.insert(name.to_owned());
                }
            }
        });
    }
    routed
}

fn upstream_of(snapshot: &Snapshot, name: &str) -> Result<usize, String> {
    let names = || snapshot.upstreams.iter().map(|upstream| upstream.config.name.as_str());
    let nearest = || config::nearest(name, names()).map(|meant| format!("; {meant}")).unwrap_or_default();
    let found = names().position(|known| known == name);
    found.ok_or_else(|| format!("there is no upstream {:?}{}", short(name), nearest()))
}

fn says(hints: Hints, hint: Hint) -> bool {
    RequiredHints::new(&[(hint, true)]).is_said_by(hints)
}

/// Its beginning, if it is long.
fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => text.to_owned(),
        Some(_) => text.chars().take(TEXT_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_missed_by_looking_at_the_bytes_first() {
        for (definition, text, expected) in [
            (r#"{"description":"New York"}"#, "new york", false),
            (r#"{"description":"New York"}"#, "boston", true),
            (r#"{"description":"\u004eew York"}"#, "new york", false),
            (r#"{"description":"a\/b"}"#, "a/b", false),
            (r#"{"description":"Zürich"}"#, "zürich", false),
            (r#"{"description":"line\nline"}"#, "lines", true),
        ] {
            assert_eq!(certainly_lacks(definition.as_bytes(), text), expected, "{definition} {text}");
        }
    }

    #[test]
    fn long_texts_end() {
        assert_eq!(short("short"), "short");
        assert_eq!(short(&"ä".repeat(TEXT_CHARS_MAX)), "ä".repeat(TEXT_CHARS_MAX));
        let cut = short(&"ä".repeat(TEXT_CHARS_MAX + 1));
        assert_eq!((cut.chars().count(), cut.chars().last()), (TEXT_CHARS_MAX, Some('…')));
    }
}
