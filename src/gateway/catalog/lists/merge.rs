//! Merging the parts of a list: entries with the names they have here, in order, cut into pages where wanted.
//!
//! An entry is written from its upstream's own bytes; only names are replaced, and what a client of the other era would
//! not take. Of entries that would have the same name
//! the first stays. What is listed is what a call of that name reaches.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::page::PageCursor;
use super::summary::SERVER_INFO;
use crate::access::policy::Class;
use crate::snapshot::Endpoint;
use crate::tables::lists::List;
use crate::tables::lists::cache::{ContentDigest, MergedPage, digest};
use crate::tables::lists::part::{Content, Item, PartPage};
use protocol::json::{Span, quote};
use protocol::route::directory::Directory;
use protocol::route::{Kind, NoRoute, Style};
use protocol::splice::Edit;
use protocol::version::Era;

/// Longer public names are left out: model APIs refuse them (the specification allows up to 128 characters).
const NAME_CHARS_MAX: usize = 128;

pub(crate) struct Merge {
    pub endpoint: Arc<Endpoint>,
    pub class: Arc<Class>,
    pub directory: Arc<Directory>,
    pub list: List,
    pub era: Era,
    pub is_public: bool,
    /// The parts, in order; `None` for one that is missing.
    pub contents: Vec<Option<Arc<Content>>>,
}

/// An entry, and whose it is.
#[derive(Clone, Copy)]
struct OwnedItem<'e> {
    member: usize,
    page: &'e PartPage,
    item: &'e Item,
}

impl Merge {
    /// The pages, at least one, and a digest of them where there are several.
    pub(crate) fn run(self) -> (Arc<[MergedPage]>, ContentDigest) {
        let entries = self.entries();
        let mut digest_of_all = ContentDigest::default();
        if entries.len() > 1 {
            let pieces: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
            digest_of_all = digest(&pieces);
        }
        let last = entries.len() - 1;
        let pages = entries.into_iter().enumerate().map(|(index, mut entries)| {
            entries.push(b']');
            if index < last {
                let next = PageCursor { page: index + 1, digest: digest_of_all }.write();
                entries.extend_from_slice(format!(",\"nextCursor\":\"{next}\"").as_bytes());
            }
            entries.extend_from_slice(b"}}");
            MergedPage { before_ttl: self.before_ttl(), rest: Bytes::from(entries) }
        });
        (pages.collect(), digest_of_all)
    }

    fn before_ttl(&self) -> Option<Bytes> {
        (self.era == Era::Modern).then_some(Bytes::from_static(br#"{"resultType":"complete","ttlMs":"#))
    }

    /// What stands before the first entry of every page.
    fn start(&self) -> Vec<u8> {
        let mut start = Vec::new();
        let is_modern = self.era == Era::Modern;
        if is_modern {
            let scope = if self.is_public { "public" } else { "private" };
            start.extend_from_slice(format!(r#","cacheScope":"{scope}","#).as_bytes());
        } else {
            start.push(b'{');
        }
        let is_transparent = self.endpoint.naming.style() == Style::Transparent;
        let only = self.contents.first().and_then(Option::as_ref).filter(|_| is_transparent);
        match only {
            Some(content) if content.rest.of(self.era).is_empty() => {}
            Some(content) => {
                start.extend_from_slice(content.rest.of(self.era));
                start.push(b',');
            }
            None if is_modern => start.extend_from_slice(format!("\"_meta\":{SERVER_INFO},").as_bytes()),
            None => {}
        }
        start.extend_from_slice(format!("\"{}\":[", self.list.field()).as_bytes());
        start
    }

    fn entries(&self) -> Vec<Vec<u8>> {
        let start = self.start();
        let bytes: usize = self.contents.iter().flatten().map(|content| content.bytes()).sum();
        let page_bytes_max = self.endpoint.config.list_page_bytes_max.unwrap_or(usize::MAX);
        let mut full = Vec::new();
        let mut open = Vec::with_capacity(start.len() + bytes.min(page_bytes_max) + 64);
        open.extend_from_slice(&start);
        let mut seen = HashSet::new();
        for entry in self.all() {
            let before = open.len();
            let is_first = before == start.len();
            if !is_first {
                open.push(b',');
            }
            if self.write(entry, &mut seen, &mut open).is_none() {
                open.truncate(before);
            } else if open.len() > page_bytes_max && !is_first {
                let mut next = start.clone();
                next.extend_from_slice(&open[before + 1..]);
                open.truncate(before);
                full.push(std::mem::replace(&mut open, next));
            }
        }
        full.push(open);
        full
    }

    fn all(&self) -> impl Iterator<Item = OwnedItem<'_>> {
        let contents = self.contents.iter().enumerate();
        let pages = contents.flat_map(|(member, content)| {
            content.iter().flat_map(|content| &content.pages).map(move |page| (member, page))
        });
        pages.flat_map(|(member, page)| page.items.iter().map(move |item| OwnedItem { member, page, item }))
    }

    /// Writes one entry with its public names. `None`: it is hidden, has no name, or its name is taken.
    fn write(&self, entry: OwnedItem<'_>, seen: &mut HashSet<String>, json: &mut Vec<u8>) -> Option<()> {
        let OwnedItem { member, page, item } = entry;
        let naming = &self.endpoint.naming;
        let is_untouched = self.endpoint.is_untouched_for(&self.class);
        let mut at = item.span.start;
        let mut is_named = false;
        for site in &item.sites {
            let kind = site.kind;
            let inner = site.literal.decode(&page.body)?;
            // The entry's own name comes under policy; other URIs in it only change their spelling.
            let is_name = site.kind == self.list.kind();
            if is_name && !self.class.shows(naming, kind, member, &inner, item.hints) {
                return None;
            }
            let is_own = !is_named && is_name;
            let public = if is_own {
                naming.public(kind, member, &inner)?
            } else {
                naming.spell(kind, member, &inner)
            };
            if is_own {
                is_named = true;
                let is_listed = is_untouched || self.may_be_listed(kind, &public, member, &inner);
                if !is_listed || !seen.insert(public.clone().into_owned()) {
                    return None;
                }
            }
            if public != inner {
                self.copy(entry, at..site.literal.span.start, json)?;
                json.extend_from_slice(quote(&public).as_bytes());
                at = site.literal.span.end;
            }
        }
        self.copy(entry, at..item.span.end, json)?;
        // What a client of the one upstream makes of an entry without a name is between the two.
        (is_named || is_untouched).then_some(())
    }

    /// Writes a piece of an entry as a client of this era gets it.
    fn copy(&self, entry: OwnedItem<'_>, range: Span, json: &mut Vec<u8>) -> Option<()> {
        let OwnedItem { page, item, .. } = entry;
        let edits: &[Edit] = if self.era == Era::Legacy { &item.for_legacy } else { &[] };
        let is_here = |edit: &&Edit| range.start <= edit.span.start && edit.span.end <= range.end;
        let mut at = range.start;
        for Edit { span, with } in edits.iter().filter(is_here) {
            json.extend_from_slice(page.body.get(at..span.start)?);
            json.extend_from_slice(with);
            at = span.end;
        }
        json.extend_from_slice(page.body.get(at..range.end)?);
        Some(())
    }

    fn may_be_listed(&self, kind: Kind, public: &str, member: usize, inner: &str) -> bool {
        let naming = &self.endpoint.naming;
        if kind != Kind::Resource && public.chars().count() > NAME_CHARS_MAX {
            return false;
        }
        self.list == List::Templates
            || naming.leads_back(kind, public, (member, inner), &self.directory)
            || self.is_news(kind, public)
    }

    /// True for a name that nobody was known to offer: it leads back as soon as that was learned.
    fn is_news(&self, kind: Kind, public: &str) -> bool {
        let offer = self.directory.offer(kind, public);
        offer.is_none() && self.endpoint.naming.route(kind, public, &self.directory) == Err(NoRoute::Unknown)
    }
}
