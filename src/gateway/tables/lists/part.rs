//! What one upstream gave for one list, and reading it: bytes in, spans out. No sockets, no clock.
//!
//! Every entry stays where it stands in the upstream's own bytes. Of the rest of the result only what a merged list
//! needs is kept.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::kind::{CatalogQuery, List};
use crate::upstream::listing::Annotations;
use protocol::ambiguity::{self, RESPONSE, is_ambiguous, is_ambiguous_introduction};
use protocol::error::UpstreamError;
use protocol::hints::Hints;
use protocol::json::{self, Scratch, Span, Value, quote};
use protocol::mapping::{self, Shape, Site};
use protocol::param_headers::{self, Annotation, InvalidAnnotation};
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
/// Of an entry that says its name several times, so many count.
const NAMES_MAX: usize = 8;

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
    /// Entries that were left out, each with the reason.
    pub excluded: Vec<Excluded>,
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
    /// What is written otherwise for clients of the legacy era, where the list is of the modern one.
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

/// An entry that no client may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excluded {
    /// Its name; all of them where readers differ in which it is.
    pub names: Vec<String>,
    pub why: ExcludeReason,
    /// How it is defined: its entry as it stands.
    pub definition: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExcludeReason {
    /// A member stands twice: whatever is said of the entry here, a client may read it otherwise.
    #[error("a member stands twice, or its key is not Unicode")]
    Ambiguous,
    /// A tool says in an invalid way which of its parameters are mirrored.
    #[error(transparent)]
    Annotations(#[from] InvalidAnnotation),
}

/// Why the pages of a list were not followed to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// There are more than `list_pages_max`.
    Pages,
    /// They are longer than `list_bytes_max`.
    Bytes,
    /// A cursor came again.
    Cursor,
}

impl Truncation {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Bytes => "bytes",
            Self::Cursor => "cursor",
        }
    }
}

impl ListPart {
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
        let excluded = self
            .excluded
            .iter()
            .map(|entry| entry.names.iter().map(String::len).sum::<usize>() + entry.definition.len());
        let excluded = excluded.sum::<usize>();
        pages.sum::<usize>() + excluded + self.result.len() + self.rest.bytes() + size_of::<Self>()
    }

    /// True if both say the same, however they are divided into pages.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.is_public, self.is_absent, self.cut) == (other.is_public, other.is_absent, other.cut)
            && (&self.rest, &self.result) == (&other.rest, &other.result)
            && self.excluded == other.excluded
            && self.withheld == other.withheld
            && self.entries().eq(other.entries())
    }

    /// The entries that have a name which can be read, each with that.
    pub(crate) fn named(&self, list: List) -> impl Iterator<Item = (Cow<'_, str>, &Item)> + Clone {
        let items = self.pages.iter().flat_map(|page| page.items.iter().map(move |item| (page, item)));
        items.filter_map(move |(page, item)| Some((page.name_of(item, list)?, item)))
    }

    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let pages = self.pages.iter();
        pages.flat_map(|page| {
            page.items.iter().map(|item| page.body.get(item.span.clone()).unwrap_or_default())
        })
    }
}

impl PartPage {
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
    /// Where the result object stands.
    pub result: Span,
    pub next_cursor: Option<String>,
    /// Its `ttlMs`; 0 where it is absent or negative.
    pub ttl_ms: u64,
    /// True for a `cacheScope` of `public`.
    pub is_public: bool,
    /// Members of the result that a merged list may keep.
    pub rest: ResultRest,
    pub excluded: Vec<Excluded>,
    pub annotated: Vec<(Box<str>, Arc<[Annotation]>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub kind: CatalogQuery,
    pub era: Era,
    pub counts_annotations: bool,
    /// How a server of the legacy era names itself: a JSON object.
    pub server_info: Option<String>,
}

pub(crate) fn read(
    body: &[u8],
    reading: &Reading,
    scratch: &mut Scratch,
    depth_max: usize,
) -> Result<PartRead, UpstreamError> {
    let kind = reading.kind;
    let document = scratch.index(body, depth_max).map_err(|_| UpstreamError::Nonsense)?;
    let root = document.root();
    if is_ambiguous(root, RESPONSE) {
        return Err(UpstreamError::Nonsense);
    }
    if let Some(error) = root.get("error") {
        let code = error.get("code").and_then(Value::as_integer);
        let is_missing = code == Some(METHOD_NOT_FOUND) && kind != CatalogQuery::Discover;
        return if is_missing { Ok(PartRead::Absent) } else { Err(UpstreamError::Nonsense) };
    }
    let is_ours = root.get("id").is_some_and(|id| id.raw() == REQUEST_ID.as_bytes());
    let result = root.get("result").filter(|result| is_ours && result.kind() == json::Kind::Object);
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
        let entries = result.get(list.field()).filter(|value| value.kind() == json::Kind::Array);
        for entry in entries.ok_or(UpstreamError::Nonsense)?.items() {
            page.add(entry, list, reading);
        }
        let cursor = result.get("nextCursor").and_then(Value::as_literal);
        page.next_cursor = cursor.and_then(|cursor| cursor.decode(body).map(Into::into));
        page.rest = rest(result, list, reading);
    }
    Ok(PartRead::Page(page))
}

impl ReadPage {
    fn add(&mut self, entry: Value<'_>, list: List, reading: &Reading) {
        if ambiguity::repeats(entry) {
            let names = names(entry, list.own_field());
            self.excluded.push(Excluded {
                names,
                why: ExcludeReason::Ambiguous,
                definition: entry.raw().into(),
            });
            return;
        }
        if list == List::Tools && reading.counts_annotations {
            let name = entry.get("name").and_then(Value::as_literal);
            let name = name.and_then(|name| name.decode(entry.text())).unwrap_or_default();
            match param_headers::annotations(entry) {
                Ok(annotations) if annotations.is_empty() => {}
                Ok(annotations) => self.annotated.push((name.into(), annotations.into())),
                Err(error) => {
                    let names = vec![name.into_owned()];
                    self.excluded.push(Excluded { names, why: error.into(), definition: entry.raw().into() });
                    return;
                }
            }
        }
        let mut sites = Vec::new();
        mapping::sites(entry, Shape::ListItem(list.method()), &mut sites);
        let hints = if list == List::Tools { Hints::of(entry) } else { Hints::default() };
        let is_translated = list == List::Tools && reading.era == Era::Modern;
        let is_task_only = list == List::Tools && reading.era == Era::Legacy && tool::is_task_only(entry);
        let for_legacy = if is_translated { tool::to_legacy(entry) } else { Vec::new() };
        self.items.push(Item { span: entry.span(), sites, hints, is_task_only, for_legacy });
    }
}

/// All that a reader may take for the name of an entry.
fn names(entry: Value<'_>, field: &str) -> Vec<String> {
    let text = entry.text();
    let is_name = |key: &json::Literal| {
        key.decode(text).is_none_or(|key| ambiguity::folded(&key) == ambiguity::folded(field))
    };
    let values = entry.entries().filter(|(key, _)| is_name(key));
    let mut names: Vec<String> =
        values.filter_map(|(_, value)| Some(value.as_literal()?.decode(text)?.into_owned())).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(NAMES_MAX);
    names
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
        native.push(written(&key, value));
        if key.equals(text, "_meta") && value.kind() == json::Kind::Object {
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
mod tests {
    use super::*;

    fn tools(result: &str) -> Result<PartRead, UpstreamError> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        read(
            body.as_bytes(),
            &reading(CatalogQuery::List(List::Tools), Era::Modern),
            &mut Scratch::default(),
            128,
        )
    }

    fn reading(kind: CatalogQuery, era: Era) -> Reading {
        let server_info = (era == Era::Legacy).then(|| r#"{"name":"s"}"#.to_owned());
        Reading { kind, era, counts_annotations: true, server_info }
    }

    fn page(result: &str) -> ReadPage {
        match tools(result) {
            Ok(PartRead::Page(page)) => page,
            other => panic!("{result}: {other:?}"),
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let tools = reading(CatalogQuery::List(List::Tools), Era::Modern);
        for body in [
            "",
            "[]",
            r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#,
            r#"{"jsonrpc":"2.0","id":"1","result":{"tools":[]}}"#,
            r#"{"jsonrpc":"2.0","result":{"tools":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"prompts":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"Tools":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"a","nextCurs\u006fr":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"CacheScope":"public"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"result":{"tools":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"Error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"resultType":"input_required"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":""}}"#,
        ] {
            let read = read(body.as_bytes(), &tools, &mut Scratch::default(), 128);
            assert_eq!(read.err(), Some(UpstreamError::Nonsense), "{body}");
        }
        let absent = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}"#;
        assert!(matches!(read(absent, &tools, &mut Scratch::default(), 128), Ok(PartRead::Absent)));
        let discover = reading(CatalogQuery::Discover, Era::Modern);
        assert!(read(absent, &discover, &mut Scratch::default(), 128).is_err());
    }

    #[test]
    fn a_page_is_read() {
        let page = page(
            r#"{ "x" : [1e400], "tools":[{"name":"a"}, {"name":"b"}],"nextCursor":"","ttlMs":5,"cacheScope":"public","_meta":{ "y":1 }}"#,
        );
        assert_eq!((page.items.len(), page.next_cursor.as_deref()), (2, Some("")));
        assert_eq!((page.ttl_ms, page.is_public), (5, true));
        assert_eq!(page.rest.of(Era::Modern), br#""x" : [1e400],"_meta":{ "y":1 }"#);
    }

    #[test]
    fn what_stands_beside_a_list_is_written_for_each_era() {
        const INFO: &str = "\"io.modelcontextprotocol/serverInfo\"";
        let own = r#"{"name":"s"}"#;
        for (era, result, native, crossing) in [
            (Era::Modern, r#""x":1"#.to_owned(), r#""x":1"#.to_owned(), r#""x":1"#.to_owned()),
            (
                Era::Modern,
                format!(r#""_meta":{{{INFO}:7}}"#),
                format!(r#""_meta":{{{INFO}:7}}"#),
                String::new(),
            ),
            (
                Era::Modern,
                format!(r#""_meta":{{"a":1, {INFO}:7,"b":2}},"x":1"#),
                format!(r#""_meta":{{"a":1, {INFO}:7,"b":2}},"x":1"#),
                r#""x":1,"_meta":{"a":1,"b":2}"#.to_owned(),
            ),
            (
                Era::Legacy,
                r#""x":1"#.to_owned(),
                r#""x":1"#.to_owned(),
                format!(r#""x":1,"_meta":{{{INFO}:{own}}}"#),
            ),
            (
                Era::Legacy,
                r#""ttlMs":1,"_meta":{"a":1}"#.to_owned(),
                r#""_meta":{"a":1}"#.to_owned(),
                format!(r#""_meta":{{{INFO}:{own},"a":1}}"#),
            ),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[],{result}}}}}"#);
            let reading = reading(CatalogQuery::List(List::Tools), era);
            let Ok(PartRead::Page(page)) = read(body.as_bytes(), &reading, &mut Scratch::default(), 16)
            else {
                panic!("{body}")
            };
            let found = [era, era.other()].map(|era| String::from_utf8_lossy(page.rest.of(era)).into_owned());
            assert_eq!(found, [native, crossing], "{body}");
        }
    }

    #[test]
    fn freshness_is_never_guessed() {
        for (ttl, expected) in [
            ("0", 0),
            ("-1", 0),
            ("1.5", 0),
            ("\"60\"", 0),
            ("1e3", 0),
            ("60000", 60_000),
            ("99999999999999999999", 0),
        ] {
            assert_eq!(page(&format!(r#"{{"tools":[],"ttlMs":{ttl}}}"#)).ttl_ms, expected, "{ttl}");
        }
    }

    #[test]
    fn tools_with_invalid_annotations_are_left_out() {
        let tool = |name: &str, header: &str| {
            format!(
                r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"p":{{"type":"string","x-mcp-header":"{header}"}}}}}}}}"#
            )
        };
        let result = format!(
            r#"{{"tools":[{},{},{{"name":"plain"}}]}}"#,
            tool("good", "Region"),
            tool("bad", "no token")
        );
        let read = page(&result);
        assert_eq!((read.items.len(), read.excluded.len(), read.annotated.len()), (2, 1, 1));
        assert_eq!((&*read.excluded[0].names, &*read.annotated[0].0), (&["bad".to_owned()][..], "good"));
    }

    #[test]
    fn an_entry_that_readers_see_differently_is_left_out_with_all_its_names() {
        let two = r#"{"name":"b","n\u0061me":"a","NAME":"c","title":"name","name":7}"#;
        let read = page(&format!(r#"{{"tools":[{two},{{"name":"plain"}}]}}"#));
        assert_eq!((read.items.len(), read.excluded.len(), read.annotated.len()), (1, 1, 0));
        assert_eq!(
            (&read.excluded[0].why, read.excluded[0].names.join(" ")),
            (&ExcludeReason::Ambiguous, "a b c".into())
        );
        assert_eq!(&*read.excluded[0].definition, two.as_bytes());
        let many: Vec<String> = (0..1000).map(|index| format!(r#""name":"{index}""#)).collect();
        let read = page(&format!(r#"{{"tools":[{{{}}}]}}"#, many.join(",")));
        assert_eq!(read.excluded[0].names.len(), NAMES_MAX);
    }

    #[test]
    fn what_is_written_otherwise_counts() {
        let content = |properties: &str| {
            let read = page(&format!(r#"{{"tools":[{{"inputSchema":{{"properties":{{{properties}}}}}}}]}}"#));
            let edits = read.items.iter().map(|item| item.for_legacy.len()).sum::<usize>();
            let pages = vec![PartPage { body: Bytes::new(), items: read.items }];
            (edits, Content { pages, ..Content::default() }.bytes())
        };
        let booleans: Vec<String> = (0..1000).map(|index| format!("\"{index}\":true")).collect();
        let (plain, translated) = (content(r#""a":{}"#), content(&booleans.join(",")));
        assert_eq!((plain.0, translated.0), (0, 1000));
        assert_eq!(translated.1 - plain.1, 1000 * size_of::<Edit>());
    }

    #[test]
    fn contents_are_compared_by_their_entries() {
        let content = |pages: &[&'static str]| Content {
            pages: pages
                .iter()
                .map(|text| {
                    let body = Bytes::from_static(text.as_bytes());
                    let items = text
                        .match_indices('x')
                        .map(|(at, _)| Item {
                            span: at..at + 2,
                            sites: Vec::new(),
                            hints: Hints::default(),
                            is_task_only: false,
                            for_legacy: Vec::new(),
                        })
                        .collect();
                    PartPage { body, items }
                })
                .collect(),
            ..Content::default()
        };
        for (one, other, same) in [
            (&["x1 x2"][..], &["x1", "x2"][..], true),
            (&["x1 x2"], &["x1 , x2, ttl 5"], true),
            (&["x1 x2"], &["x2 x1"], false),
            (&["x1"], &["x1 x1"], false),
        ] {
            assert_eq!(content(one).is_same(&content(other)), same, "{one:?} {other:?}");
        }
        assert!(!content(&["x1"]).is_same(&Content { is_public: true, ..content(&["x1"]) }));
    }
}
