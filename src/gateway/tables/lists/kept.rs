//! The last complete part of each list of each upstream: for when a program restarts, and, written down, for when the
//! gateway does. No files, no keys.
//!
//! A part is written as the replies of its upstream, which are read again when they are needed: so nothing that was
//! judged once is believed later. Of the dialects in which an upstream was asked for one list, the gateway's own and the
//! latest few are kept; what is the same in several is kept once. Bounded in bytes over all upstreams: one with more than
//! its share makes room for one with less.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::dialect::{Dialect, DialectKey};
use super::kind::List;
use super::part::Content;
use crate::upstream::UpstreamId;
use protocol::version::LegacyVersion;

/// Dialects of one list that are kept.
const DIALECTS_MAX: usize = 4;
/// The name of a modern dialect where it is written.
const MODERN: &str = "modern";

#[derive(Debug)]
pub(crate) struct KeptParts {
    upstreams: Mutex<HashMap<UpstreamId, KeptUpstream>>,
    bytes_max: usize,
    /// Something is to be written, or there are other upstreams.
    pub changed: Notify,
}

#[derive(Debug, Default)]
struct KeptUpstream {
    /// The latest last.
    parts: Vec<KeptPart>,
    is_unwritten: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct KeptPart {
    pub list: List,
    pub dialect: DialectKey,
    /// The gateway asks in it on its own behalf.
    pub is_own: bool,
    pub content: Arc<Content>,
}

/// A part as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrittenPart {
    pub list: List,
    /// The dialects of one era in which it is the same.
    pub dialects: Vec<DialectKey>,
    pub is_absent: bool,
    /// Its pages.
    pub replies: Vec<Bytes>,
}

impl KeptParts {
    /// Keeps about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { upstreams: Mutex::default(), bytes_max, changed: Notify::new() }
    }

    /// Keeps what was fetched for everybody, if it is complete. False if there is no room.
    pub(crate) fn note(&self, upstream: UpstreamId, part: KeptPart) -> bool {
        if part.content.cut.is_some() {
            return true;
        }
        let is_kept = self.put(upstream, part, true);
        self.changed.notify_one();
        is_kept
    }

    /// Goes on with what was written.
    pub(crate) fn restore(&self, upstream: UpstreamId, part: KeptPart) -> bool {
        self.put(upstream, part, false)
    }

    fn put(&self, id: UpstreamId, part: KeptPart, is_unwritten: bool) -> bool {
        let mut upstreams = self.upstreams.lock();
        let upstream = upstreams.entry(id).or_default();
        upstream.is_unwritten |= is_unwritten;
        upstream.make_place(&part);
        let is_kept = make_room(&mut upstreams, id, &part.content, self.bytes_max);
        if is_kept && let Some(upstream) = upstreams.get_mut(&id) {
            upstream.parts.push(part);
        }
        is_kept
    }

    /// All that is kept of an upstream.
    pub(crate) fn all(&self, upstream: UpstreamId) -> Vec<KeptPart> {
        self.upstreams.lock().get(&upstream).map_or_else(Vec::new, |upstream| upstream.parts.clone())
    }

    /// The parts that are kept of this list of an upstream.
    pub(crate) fn of(&self, upstream: UpstreamId, list: List) -> Vec<KeptPart> {
        let upstreams = self.upstreams.lock();
        let parts = upstreams.get(&upstream).into_iter().flat_map(|upstream| &upstream.parts);
        parts.filter(|part| part.list == list).cloned().collect()
    }

    /// In which dialect this list of an upstream was fetched last.
    pub(crate) fn latest(&self, upstream: UpstreamId, list: List) -> Option<DialectKey> {
        let upstreams = self.upstreams.lock();
        let parts = upstreams.get(&upstream)?.parts.iter();
        parts.rev().find(|part| part.list == list).map(|part| part.dialect)
    }

    /// The content that is kept of this list of an upstream: in this dialect, or else in that in which it was fetched last.
    pub(crate) fn last(&self, upstream: UpstreamId, list: List, dialect: DialectKey) -> Option<Arc<Content>> {
        let upstreams = self.upstreams.lock();
        let mut parts = upstreams.get(&upstream)?.parts.iter().filter(|part| part.list == list);
        let found = parts.clone().find(|part| part.dialect == dialect).or_else(|| parts.next_back())?;
        Some(Arc::clone(&found.content))
    }

    /// Upstreams of which other parts are kept than were written, with all that is kept of them.
    pub(crate) fn take_unwritten(&self) -> Vec<(UpstreamId, Vec<KeptPart>)> {
        let mut upstreams = self.upstreams.lock();
        let unwritten = upstreams.iter_mut().filter(|(_, upstream)| upstream.is_unwritten);
        unwritten
            .map(|(id, upstream)| {
                upstream.is_unwritten = false;
                (*id, upstream.parts.clone())
            })
            .collect()
    }

    /// What is kept of an upstream is to be written again.
    pub(crate) fn note_unwritten(&self, upstream: UpstreamId) {
        if let Some(upstream) = self.upstreams.lock().get_mut(&upstream) {
            upstream.is_unwritten = true;
        }
    }

    /// True if anything is kept of this upstream.
    pub(crate) fn has(&self, upstream: UpstreamId) -> bool {
        self.upstreams.lock().contains_key(&upstream)
    }

    /// How many bytes are kept at most, of all upstreams.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Forgets upstreams that are gone.
    pub(crate) fn retain(&self, living: &HashSet<UpstreamId>) {
        self.upstreams.lock().retain(|id, _| living.contains(id));
    }

    pub(crate) fn bytes(&self) -> usize {
        bytes_of(&self.upstreams.lock())
    }
}

impl KeptUpstream {
    /// Lets go of what `part` replaces. The gateway's own dialects stay, whatever clients ask in.
    fn make_place(&mut self, part: &KeptPart) {
        self.parts.retain(|old| (old.list, old.dialect) != (part.list, part.dialect));
        let is_same_list = |old: &&KeptPart| old.list == part.list;
        let is_clients = |old: &KeptPart| old.list == part.list && !old.is_own;
        if self.parts.iter().filter(is_same_list).count() >= DIALECTS_MAX
            && let Some(oldest) = self.parts.iter().position(is_clients)
        {
            self.parts.remove(oldest);
        }
    }

    fn has(&self, content: &Arc<Content>) -> bool {
        self.parts.iter().any(|part| Arc::ptr_eq(&part.content, content))
    }

    /// Its bytes, each content once.
    fn bytes(&self) -> usize {
        let is_first = |(at, part): &(usize, &KeptPart)| {
            !self.parts[..*at].iter().any(|before| Arc::ptr_eq(&before.content, &part.content))
        };
        let first = self.parts.iter().enumerate().filter(is_first);
        first.map(|(_, part)| part.content.bytes()).sum()
    }

    /// Lets go of the largest part, of those that clients asked for if there are any.
    fn drop_largest(&mut self) {
        let parts = self.parts.iter().enumerate();
        let largest = parts.max_by_key(|(_, part)| (!part.is_own, part.content.bytes()));
        if let Some(at) = largest.map(|(at, _)| at) {
            self.parts.remove(at);
            self.is_unwritten = true;
        }
    }
}

fn bytes_of(upstreams: &HashMap<UpstreamId, KeptUpstream>) -> usize {
    upstreams.values().map(KeptUpstream::bytes).sum()
}

/// True if there is room for a content of the upstream `id`. Within its share it takes that of whoever has more than one.
fn make_room(
    upstreams: &mut HashMap<UpstreamId, KeptUpstream>,
    id: UpstreamId,
    content: &Arc<Content>,
    bytes_max: usize,
) -> bool {
    let Some(own) = upstreams.get(&id) else { return false };
    if own.has(content) {
        return true;
    }
    let needed = content.bytes();
    let share = bytes_max / upstreams.len();
    let is_in_share = own.bytes() + needed <= share;
    while needed > bytes_max.saturating_sub(bytes_of(upstreams)) {
        let others = upstreams.iter_mut().filter(|(other, _)| is_in_share && **other != id);
        let most = others.map(|(_, other)| (other.bytes(), other)).max_by_key(|(bytes, _)| *bytes);
        match most {
            Some((bytes, other)) if bytes > share => other.drop_largest(),
            _ => return false,
        }
    }
    true
}

/// Parts, each as its list, its dialects, and its replies with their lengths.
pub(crate) fn write(parts: &[KeptPart]) -> Vec<u8> {
    let mut text = Vec::new();
    for (at, KeptPart { list, dialect, content, .. }) in parts.iter().enumerate() {
        let is_alike = |other: &&KeptPart| {
            other.list == *list
                && other.dialect.era() == dialect.era()
                && Arc::ptr_eq(&other.content, content)
        };
        // The latest stay last.
        if parts[at + 1..].iter().any(|other| is_alike(&other)) {
            continue;
        }
        let dialects: Vec<&DialectKey> = parts.iter().filter(is_alike).map(|part| &part.dialect).collect();
        write_piece(&mut text, list.field().as_bytes());
        write_number(&mut text, dialects.len());
        for dialect in dialects {
            write_dialect(&mut text, dialect);
        }
        write_piece(&mut text, &[u8::from(content.is_absent)]);
        write_number(&mut text, content.pages.len());
        content.pages.iter().for_each(|page| write_piece(&mut text, &page.body));
    }
    text
}

fn write_dialect(text: &mut Vec<u8>, dialect: &DialectKey) {
    let (version, capabilities) = match dialect {
        Dialect::Modern(capabilities) => (MODERN, capabilities),
        Dialect::Legacy(version, capabilities) => (version.as_str(), capabilities),
    };
    write_piece(text, version.as_bytes());
    write_piece(text, capabilities);
}

fn write_piece(text: &mut Vec<u8>, piece: &[u8]) {
    write_number(text, piece.len());
    text.extend_from_slice(piece);
}

fn write_number(text: &mut Vec<u8>, number: usize) {
    text.extend_from_slice(&(number as u64).to_le_bytes());
}

/// Reads what [`write()`] wrote. `None`: it is something else.
pub(crate) fn read(text: &Bytes) -> Option<Vec<WrittenPart>> {
    let mut rest = Rest { text, at: 0 };
    let mut parts = Vec::new();
    while rest.at < text.len() {
        parts.push(rest.part()?);
    }
    Some(parts)
}

struct Rest<'t> {
    text: &'t Bytes,
    at: usize,
}

impl Rest<'_> {
    fn part(&mut self) -> Option<WrittenPart> {
        let field = self.piece()?;
        let list = List::ALL.into_iter().find(|list| list.field().as_bytes() == field)?;
        let dialects = self.number()?;
        let dialects = (0..dialects).map(|_| self.dialect()).collect::<Option<_>>()?;
        let is_absent = *self.piece()? == [1];
        let pages = self.number()?;
        let replies = (0..pages).map(|_| self.piece()).collect::<Option<_>>()?;
        Some(WrittenPart { list, dialects, is_absent, replies })
    }

    fn dialect(&mut self) -> Option<DialectKey> {
        let version = self.piece()?;
        let capabilities = self.piece()?.as_ref().try_into().ok()?;
        Some(match std::str::from_utf8(&version).ok()? {
            MODERN => Dialect::Modern(capabilities),
            legacy => Dialect::Legacy(LegacyVersion::of(legacy)?, capabilities),
        })
    }

    fn piece(&mut self) -> Option<Bytes> {
        let length = self.number()?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.text.len())?;
        let piece = self.text.slice(self.at..end);
        self.at = end;
        Some(piece)
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.text.get(self.at..)?.first_chunk::<8>()?;
        self.at += digits.len();
        usize::try_from(u64::from_le_bytes(*digits)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::part::{PartPage, Truncation};
    use super::*;

    const UPSTREAM: UpstreamId = UpstreamId { slot: 0, generation: 1 };

    fn content(bodies: &[&'static str]) -> Arc<Content> {
        let page =
            |body: &&'static str| PartPage { body: Bytes::from_static(body.as_bytes()), items: Vec::new() };
        Arc::new(Content { pages: bodies.iter().map(page).collect(), ..Content::default() })
    }

    fn modern(list: List, capabilities: u8, content: Arc<Content>) -> KeptPart {
        KeptPart { list, dialect: Dialect::Modern([capabilities; 16]), is_own: false, content }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let kept = KeptParts::new(1 << 20);
        let legacy = Dialect::Legacy(LegacyVersion::V2025_06_18, [1; 16]);
        let absent = Content::absent().into();
        let prompts = KeptPart { list: List::Prompts, dialect: legacy, is_own: true, content: absent };
        let tools = content(&["one", "", "three"]);
        assert!(kept.note(UPSTREAM, modern(List::Tools, 7, Arc::clone(&tools))));
        assert!(kept.note(UPSTREAM, prompts));
        assert!(kept.note(UPSTREAM, modern(List::Tools, 8, tools)));
        let unwritten = kept.take_unwritten();
        let [(UPSTREAM, parts)] = &unwritten[..] else { panic!("{unwritten:?}") };
        assert!(kept.take_unwritten().is_empty());
        kept.note_unwritten(UPSTREAM);
        assert_eq!(kept.take_unwritten().len(), 1);
        let text = Bytes::from(write(parts));
        let replies = ["one", "", "three"].map(|reply| Bytes::from_static(reply.as_bytes())).to_vec();
        let expected = [
            WrittenPart { list: List::Prompts, dialects: vec![legacy], is_absent: true, replies: Vec::new() },
            WrittenPart {
                list: List::Tools,
                dialects: [7, 8].map(|capabilities| Dialect::Modern([capabilities; 16])).to_vec(),
                is_absent: false,
                replies,
            },
        ];
        assert_eq!(read(&text).expect("parts"), expected);
        for length in 1..text.len() {
            let cut = read(&text.slice(..length));
            assert!(cut.is_none_or(|parts| parts == expected[..1]), "{length}");
        }
        assert_eq!(read(&Bytes::from_static(&[0xff; 100])), None);
    }

    #[test]
    fn only_what_is_complete_is_kept_of_upstreams_that_there_are() {
        let kept = KeptParts::new(1 << 20);
        let cut = Arc::new(Content { cut: Some(Truncation::Bytes), ..Content::default() });
        kept.note(UPSTREAM, modern(List::Tools, 0, cut));
        assert_eq!((kept.latest(UPSTREAM, List::Tools), kept.bytes()), (None, 0));
        kept.note(UPSTREAM, modern(List::Tools, 0, content(&["all"])));
        assert_eq!(kept.latest(UPSTREAM, List::Tools), Some(Dialect::Modern([0; 16])));
        kept.retain(&HashSet::new());
        assert_eq!((kept.latest(UPSTREAM, List::Tools), kept.bytes()), (None, 0));
    }

    #[test]
    fn few_dialects_and_few_bytes_are_kept() {
        let kept = KeptParts::new(10 * content(&["x"]).bytes());
        for number in 0..10 {
            assert!(kept.note(UPSTREAM, modern(List::Tools, number, content(&["x"]))));
        }
        assert_eq!(kept.bytes(), DIALECTS_MAX * content(&["x"]).bytes());
        assert_eq!(kept.latest(UPSTREAM, List::Tools), Some(Dialect::Modern([9; 16])));
        let long = content(&[" ".repeat(10_000).leak()]);
        assert!(!kept.note(UPSTREAM, modern(List::Prompts, 0, long)));
        assert_eq!(kept.latest(UPSTREAM, List::Prompts), None);
    }

    #[test]
    fn whatever_clients_ask_in_the_gateways_own_dialect_stays() {
        let kept = KeptParts::new(1 << 20);
        let own = KeptPart { is_own: true, ..modern(List::Tools, 0, content(&["own"])) };
        assert!(kept.note(UPSTREAM, own));
        for number in 1..20 {
            assert!(kept.note(UPSTREAM, modern(List::Tools, number, content(&["x"]))));
        }
        let dialects: Vec<_> = kept.of(UPSTREAM, List::Tools).into_iter().map(|part| part.dialect).collect();
        assert_eq!(dialects, [0, 17, 18, 19].map(|number| Dialect::Modern([number; 16])));
    }

    #[test]
    fn what_is_the_same_in_several_dialects_is_counted_once() {
        let same = content(&["x"]);
        let kept = KeptParts::new(same.bytes());
        for number in [0, 1, 2, 3] {
            assert!(kept.note(UPSTREAM, modern(List::Tools, number, Arc::clone(&same))));
        }
        assert_eq!(kept.bytes(), same.bytes());
        assert!(!kept.note(UPSTREAM, modern(List::Tools, 9, content(&["y"]))));
    }

    #[test]
    fn one_with_more_than_its_share_makes_room() {
        let id = |slot| UpstreamId { slot, generation: 1 };
        let (long, short) = (content(&[" ".repeat(8_000).leak()]), content(&["x"]));
        let kept = KeptParts::new(long.bytes() + short.bytes() / 2);
        assert!(kept.note(id(0), modern(List::Tools, 0, Arc::clone(&long))));
        kept.take_unwritten();
        assert!(kept.note(id(1), modern(List::Tools, 0, Arc::clone(&short))));
        assert_eq!(kept.latest(id(0), List::Tools), None);
        assert_eq!(kept.take_unwritten().len(), 2, "its file is written as well");
        // A list that is longer than a share takes nobody's.
        assert!(!kept.note(id(0), modern(List::Tools, 0, long)));
        assert_eq!(kept.latest(id(1), List::Tools), Some(Dialect::Modern([0; 16])));
    }
}
