//! What one upstream gave for one list, and reading it: bytes in, spans out. No sockets, no clock.
//!
//! Every entry stays where it stands in the upstream's own bytes. Of the rest of the result only what a merged list
//! needs is kept.

mod excluded;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub(crate) use self::excluded::{ExcludeReason, Excluded, ExcludedEntries};
use super::kind::{CatalogQuery, List};
use crate::upstream::listing::Annotations;
use protocol::ambiguity::{RESPONSE, is_ambiguous, is_ambiguous_introduction};
use protocol::error::{Refusal, UpstreamError};
use protocol::hints::Hints;
use protocol::json::{self, JsonError, Scratch, Span, Value, quote};
use protocol::mapping::{self, Shape, Site};
use protocol::param_headers::Annotation;
use protocol::splice::Edit;
use protocol::translation::result::SERVER_INFO;
use protocol::translation::tool;
use protocol::version::Era;

/// JSON-RPC's code for a method that does not exist.
const METHOD_NOT_FOUND: i64 = -32601;
/// The id of every request for a list.
pub(crate) const REQUEST_ID: &str = "1";
/// Fields of a result that the gateway writes itself.
const OWN_FIELDS: [&str; 4] = ["nextCursor", "ttlMs", "cacheScope", "resultType"];
/// The objects and arrays around an entry: the response, its result, the list.
const LEVELS_AROUND: usize = 3;

/// What an upstream gave for one list, and how long it holds.
#[derive(Debug)]
pub(crate) struct ListPart {
    pub content: Arc<Content>,
    /// How long it holds in all; zero: for the request that fetched it.
    pub ttl: Duration,
    pub fresh_until: Instant,
    /// When it stops to be better than nothing.
    pub stale_until: Instant,
    /// The upstream's count of changes before it was asked.
    pub count: u64,
    pub asked: Instant,
    /// It is given out as it was before the start, as it was not fetched since.
    pub is_kept: bool,
}

/// The list itself. Equal contents are the same value, so that nothing is merged twice.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Its pages, in order; none for `server/discover`.
    pub pages: Vec<PartPage>,
    /// The result object of `server/discover`, as JSON.
    pub result: Bytes,
    /// Members of the first page's result that are neither the list nor the gateway's to write, separated by commas.
    pub rest: ResultRest,
    /// True if the upstream lets everybody have it.
    pub is_public: bool,
    pub is_absent: bool,
    /// Why it is not all that the upstream would have given.
    pub cut: Option<Truncation>,
    /// Entries that were left out.
    pub excluded: ExcludedEntries,
    /// The mirrored parameters of its tools.
    pub annotated: Arc<Annotations>,
    /// Tools that are withheld because of their definition. Their names stay taken.
    pub withheld: Vec<Box<str>>,
}

#[derive(Debug)]
pub(crate) struct PartPage {
    pub body: Bytes,
    pub items: Vec<Item>,
}

#[derive(Debug)]
pub(crate) struct Item {
    /// Where it stands in the reply.
    pub span: Span,
    /// The names in it, in order; literals refer to the reply.
    pub sites: Vec<Site>,
    pub hints: Hints,
    /// A legacy server runs it as a task alone.
    pub is_task_only: bool,
    /// What is written otherwise for clients of the legacy era.
    pub for_legacy: Vec<Edit>,
}

/// Members of a result object beside its list, separated by commas, as a client of each era gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResultRest {
    legacy: Vec<u8>,
    modern: Vec<u8>,
}

impl ResultRest {
    /// As a client of this era gets them.
    pub(crate) fn of(&self, era: Era) -> &[u8] {
        match era {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        }
    }

    fn bytes(&self) -> usize {
        self.legacy.len() + self.modern.len()
    }
}

/// Why the pages of a list were not followed to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// There are more than `list_pages_max`.
    Pages,
    /// They have more than `list_entries_max`.
    Entries,
    /// They are longer than `list_bytes_max`.
    Bytes,
    /// A cursor came again.
    Cursor,
}

impl Truncation {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Entries => "entries",
            Self::Bytes => "bytes",
            Self::Cursor => "cursor",
        }
    }
}

impl ListPart {
    /// Something that was said before, and is better than nothing at `now`.
    pub(crate) fn old(content: Arc<Content>, now: Instant) -> Self {
        Self {
            content,
            ttl: Duration::ZERO,
            fresh_until: now,
            stale_until: now,
            count: 0,
            asked: now,
            is_kept: false,
        }
    }

    /// True if it may be given out as it is; `count` is the upstream's now.
    pub(crate) fn is_fresh(&self, count: u64, now: Instant) -> bool {
        self.count == count && now < self.fresh_until
    }

    /// True if it is merely old, and not too old to be given out while it is fetched anew.
    pub(crate) fn may_revalidate(&self, count: u64, now: Instant, patience: Duration) -> bool {
        self.count == count && !self.ttl.is_zero() && now < self.fresh_until + patience
    }
}

impl Content {
    pub(crate) fn absent() -> Self {
        Self { is_absent: true, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> usize {
        let item = |item: &Item| {
            size_of::<Item>()
                + item.sites.len() * size_of::<Site>()
                + item.for_legacy.len() * size_of::<Edit>()
        };
        let pages =
            self.pages.iter().map(|page| page.body.len() + page.items.iter().map(item).sum::<usize>());
        pages.sum::<usize>()
            + self.excluded.bytes()
            + self.result.len()
            + self.rest.bytes()
            + size_of::<Self>()
    }

    /// The number of its entries.
    pub(crate) fn items(&self) -> usize {
        self.pages.iter().map(|page| page.items.len()).sum()
    }

    /// True if both say the same, however they are divided into pages.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.is_public, self.cut) == (other.is_public, other.cut)
            && (&self.rest, &self.result) == (&other.rest, &other.result)
            && (&self.excluded, &self.annotated) == (&other.excluded, &other.annotated)
            && self.has_same_entries(other)
    }

    /// True if both have the same entries, whatever is said beside them.
    pub(crate) fn has_same_entries(&self, other: &Self) -> bool {
        self.is_absent == other.is_absent
            && self.withheld == other.withheld
            && self.entries().eq(other.entries())
    }

    /// The entries that have a name which can be read, each with that.
    pub(crate) fn named(&self, list: List) -> impl Iterator<Item = (Cow<'_, str>, &Item)> + Clone {
        let items = self.pages.iter().flat_map(|page| page.items.iter().map(move |item| (page, item)));
        items.filter_map(move |(page, item)| Some((page.name_of(item, list)?, item)))
    }

    /// True if its first page has these entries and no others.
    pub(crate) fn begins_with(&self, body: &[u8], items: &[Item]) -> bool {
        self.pages.first().is_some_and(|first| first.entries().eq(entries(body, items)))
    }

    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.pages.iter().flat_map(PartPage::entries)
    }
}

/// The entries of a page, as they are spelled in it.
fn entries<'b>(body: &'b [u8], items: &'b [Item]) -> impl Iterator<Item = &'b [u8]> {
    items.iter().map(|item| body.get(item.span.clone()).unwrap_or_default())
}

impl PartPage {
    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        entries(&self.body, &self.items)
    }

    /// What one of its entries is called by its upstream.
    pub(crate) fn name_of(&self, item: &Item, list: List) -> Option<Cow<'_, str>> {
        let own = item.sites.iter().find(|site| site.kind == list.kind())?;
        own.literal.decode(&self.body)
    }
}

/// What a reply to a request for a list comes to.
#[derive(Debug)]
pub(crate) enum PartRead {
    /// The upstream has no such method.
    Absent,
    Page(ReadPage),
}

#[derive(Debug, Default)]
pub(crate) struct ReadPage {
    pub items: Vec<Item>,
    /// There are more entries than were to be read.
    pub has_more_entries: bool,
    /// Where the result object stands.
    pub result: Span,
    pub next_cursor: Option<String>,
    /// Its `ttlMs`; 0 where it is absent or negative.
    pub ttl_ms: u64,
    /// True for a `cacheScope` of `public`.
    pub is_public: bool,
    /// Members of the result that a merged list may keep.
    pub rest: ResultRest,
    pub excluded: ExcludedEntries,
    pub annotated: Vec<(Box<str>, Arc<[Annotation]>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub kind: CatalogQuery,
    pub era: Era,
    pub counts_annotations: bool,
    /// Further entries of a page are not read: what is remembered of one takes several times the bytes of a short one.
    pub entries_max: usize,
    /// How a server of the legacy era names itself: a JSON object.
    pub server_info: Option<String>,
}

/// An error of JSON-RPC instead of a list.
fn refused(kind: CatalogQuery, error: Value<'_>, code: Option<i64>) -> UpstreamError {
    let Some(code) = code else { return UpstreamError::Nonsense };
    let message = error.text_of("message").unwrap_or_default().as_ref().into();
    UpstreamError::Refused(Arc::new(Refusal { method: kind.method().label(), code, message }))
}

pub(crate) fn read(
    body: &[u8],
    reading: &Reading,
    scratch: &mut Scratch,
    depth_max: usize,
) -> Result<PartRead, UpstreamError> {
    let kind = reading.kind;
    let (document, entry_depth_max) = match (scratch.index(body, depth_max), kind) {
        (Err(JsonError::TooDeep), CatalogQuery::List(_)) => {
            (scratch.index_however_deep(body), Some(depth_max.saturating_sub(LEVELS_AROUND)))
        }
        (indexed, _) => (indexed, None),
    };
    let root = document.map_err(|_| UpstreamError::Nonsense)?.root();
    if entry_depth_max.is_some() && is_too_deep_around(root, kind, depth_max) {
        return Err(UpstreamError::Nonsense);
    }
    if is_ambiguous(root, RESPONSE) {
        return Err(UpstreamError::Nonsense);
    }
    if let Some(error) = root.get("error") {
        let code = error.get("code").and_then(Value::as_integer);
        let is_missing = code == Some(METHOD_NOT_FOUND) && kind != CatalogQuery::Discover;
        return if is_missing { Ok(PartRead::Absent) } else { Err(refused(kind, error, code)) };
    }
    let is_ours = root.get("id").is_some_and(|id| id.raw() == REQUEST_ID.as_bytes());
    let result = root.get("result").filter(|result| is_ours && result.kind() == json::JsonKind::Object);
    let result = result.ok_or(UpstreamError::Nonsense)?;
    let is_in_doubt = match kind {
        CatalogQuery::Discover => is_ambiguous_introduction(result),
        CatalogQuery::List(list) => {
            is_ambiguous(result, &[&OWN_FIELDS[..], &[list.field(), "_meta"]].concat())
        }
    };
    if is_in_doubt {
        return Err(UpstreamError::Nonsense);
    }
    let is = |key, value: &str| result.get(key).is_none_or(|found| is_text(found, value));
    if !is("resultType", "complete") {
        return Err(UpstreamError::Nonsense);
    }
    let mut page = ReadPage {
        result: result.span(),
        ttl_ms: ttl_ms(result),
        is_public: result.get("cacheScope").is_some_and(|scope| is_text(scope, "public")),
        ..ReadPage::default()
    };
    if let CatalogQuery::List(list) = kind {
        let entries = result.get(list.field()).filter(|value| value.kind() == json::JsonKind::Array);
        let mut entries = entries.ok_or(UpstreamError::Nonsense)?.items();
        for entry in entries.by_ref().take(reading.entries_max) {
            page.add(entry, list, reading, entry_depth_max);
        }
        page.has_more_entries = entries.next().is_some();
        page.items.shrink_to_fit();
        let cursor = result.get("nextCursor").and_then(Value::as_literal);
        page.next_cursor = cursor.and_then(|cursor| cursor.decode(body).map(Into::into));
        page.rest = rest(result, list, reading);
    }
    Ok(PartRead::Page(page))
}

impl ReadPage {
    /// Leaves out what is beyond so many entries. True if there is more.
    pub(crate) fn cut_to(&mut self, entries_max: usize) -> bool {
        let has_more = self.has_more_entries || self.items.len() > entries_max;
        self.items.truncate(entries_max);
        has_more
    }

    /// `depth_max`: how deep an entry may nest, where that is in question.
    fn add(&mut self, entry: Value<'_>, list: List, reading: &Reading, depth_max: Option<usize>) {
        match excluded::judge(entry, list, reading.counts_annotations, depth_max) {
            Ok(annotations) if annotations.is_empty() => {}
            Ok(annotations) => {
                let name = entry.text_of("name").unwrap_or_default();
                self.annotated.push((name.into(), annotations.into()));
            }
            Err(excluded) => {
                self.excluded.push(excluded);
                return;
            }
        }
        let mut sites = Vec::new();
        mapping::sites(entry, Shape::ListItem(list.method()), &mut sites);
        sites.shrink_to_fit();
        let is_tool = list == List::Tools;
        let hints = if is_tool { Hints::of(entry) } else { Hints::default() };
        let is_task_only = is_tool && reading.era == Era::Legacy && tool::is_task_only(entry);
        let for_legacy = if is_tool { tool::to_legacy(entry) } else { Vec::new() };
        self.items.push(Item { span: entry.span(), sites, hints, is_task_only, for_legacy });
    }
}

/// Whether what stands around the entries nests more deeply than a message may.
fn is_too_deep_around(root: Value<'_>, kind: CatalogQuery, depth_max: usize) -> bool {
    let CatalogQuery::List(list) = kind else { return true };
    let is_entries = |key: &json::Literal| key.equals(root.text(), list.field());
    root.entries().any(|(key, member)| {
        if !key.equals(root.text(), "result") {
            return member.is_deeper_than(depth_max.saturating_sub(1));
        }
        let mut beside = member.entries().filter(|(key, _)| !is_entries(key));
        beside.any(|(_, value)| value.is_deeper_than(depth_max.saturating_sub(2)))
    })
}

/// What stands beside a list: for a client of the server's era as it is, for others with that of `_meta` which names the
/// server as their era has it.
fn rest(result: Value<'_>, list: List, reading: &Reading) -> ResultRest {
    let text = result.text();
    let is_own =
        |key: &json::Literal| OWN_FIELDS.iter().chain(&[list.field()]).any(|own| key.equals(text, own));
    let written = |key: &json::Literal, value: Value<'_>| {
        text.get(key.span.start..value.span().end).unwrap_or_default().to_vec()
    };
    let info = reading.server_info.as_ref().filter(|_| reading.era == Era::Legacy);
    let mut meta: Vec<Vec<u8>> =
        info.map(|info| format!("{}:{info}", quote(SERVER_INFO)).into_bytes()).into_iter().collect();
    let (mut native, mut crossing) = (Vec::new(), Vec::new());
    for (key, value) in result.entries().filter(|(key, _)| !is_own(key)) {
        let is_meta = key.equals(text, "_meta");
        // Clients refuse a list for it.
        if is_meta && !value.is_object() {
            continue;
        }
        native.push(written(&key, value));
        if is_meta {
            let others = value.entries().filter(|(key, _)| !key.equals(text, SERVER_INFO));
            meta.extend(others.map(|(key, value)| written(&key, value)));
        } else {
            crossing.push(written(&key, value));
        }
    }
    if !meta.is_empty() {
        crossing.push([&b"\"_meta\":{"[..], &meta.join(&b","[..]), b"}"].concat());
    }
    let (native, crossing) = (native.join(&b","[..]), crossing.join(&b","[..]));
    match reading.era {
        Era::Modern => ResultRest { legacy: crossing, modern: native },
        Era::Legacy => ResultRest { legacy: native, modern: crossing },
    }
}

fn is_text(value: Value<'_>, text: &str) -> bool {
    value.as_literal().is_some_and(|literal| literal.equals(value.text(), text))
}

/// The `ttlMs` of a result: 0 where it is absent, negative or no integer.
pub(crate) fn ttl_ms(result: Value<'_>) -> u64 {
    result.get("ttlMs").and_then(Value::as_integer).and_then(|ttl| ttl.try_into().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
