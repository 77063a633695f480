//! The last complete part of each list of each upstream: for when a program restarts, and, written down, for when the
//! gateway does. No files, no keys.
//!
//! A part is written as the replies of its upstream, which are read again when they are needed: so nothing that was
//! judged once is believed later. Bounded in bytes over all upstreams; of the dialects in which an upstream was asked
//! for one list, the latest few are kept.

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
    /// Something is to be written.
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
    pub content: Arc<Content>,
}

/// A part as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrittenPart {
    pub list: List,
    pub dialect: DialectKey,
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
        upstream.parts.retain(|old| (old.list, old.dialect) != (part.list, part.dialect));
        let is_same_list = |old: &KeptPart| old.list == part.list;
        if upstream.parts.iter().filter(|old| is_same_list(old)).count() >= DIALECTS_MAX
            && let Some(oldest) = upstream.parts.iter().position(is_same_list)
        {
            upstream.parts.remove(oldest);
        }
        let room = self.bytes_max.saturating_sub(bytes_of(&upstreams));
        let is_kept = part.content.bytes() <= room;
        if is_kept && let Some(upstream) = upstreams.get_mut(&id) {
            upstream.parts.push(part);
        }
        is_kept
    }

    /// In which dialect this list of an upstream was fetched last.
    pub(crate) fn latest(&self, upstream: UpstreamId, list: List) -> Option<DialectKey> {
        let upstreams = self.upstreams.lock();
        let parts = upstreams.get(&upstream)?.parts.iter();
        parts.rev().find(|part| part.list == list).map(|part| part.dialect)
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

fn bytes_of(upstreams: &HashMap<UpstreamId, KeptUpstream>) -> usize {
    upstreams.values().flat_map(|upstream| &upstream.parts).map(|part| part.content.bytes()).sum()
}

/// Parts, each as its list, its dialect, and its replies with their lengths.
pub(crate) fn write(parts: &[KeptPart]) -> Vec<u8> {
    let mut text = Vec::new();
    for KeptPart { list, dialect, content } in parts {
        let (version, capabilities) = match dialect {
            Dialect::Modern(capabilities) => (MODERN, capabilities),
            Dialect::Legacy(version, capabilities) => (version.as_str(), capabilities),
        };
        write_piece(&mut text, list.field().as_bytes());
        write_piece(&mut text, version.as_bytes());
        write_piece(&mut text, capabilities);
        write_piece(&mut text, &[u8::from(content.is_absent)]);
        write_number(&mut text, content.pages.len());
        content.pages.iter().for_each(|page| write_piece(&mut text, &page.body));
    }
    text
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
        let version = self.piece()?;
        let capabilities = self.piece()?.as_ref().try_into().ok()?;
        let dialect = match std::str::from_utf8(&version).ok()? {
            MODERN => Dialect::Modern(capabilities),
            legacy => Dialect::Legacy(LegacyVersion::of(legacy)?, capabilities),
        };
        let is_absent = *self.piece()? == [1];
        let pages = self.number()?;
        let replies = (0..pages).map(|_| self.piece()).collect::<Option<_>>()?;
        Some(WrittenPart { list, dialect, is_absent, replies })
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
        KeptPart { list, dialect: Dialect::Modern([capabilities; 16]), content }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let kept = KeptParts::new(1 << 20);
        let legacy = Dialect::Legacy(LegacyVersion::V2025_06_18, [1; 16]);
        let prompts = KeptPart { list: List::Prompts, dialect: legacy, content: Content::absent().into() };
        assert!(kept.note(UPSTREAM, modern(List::Tools, 7, content(&["one", "", "three"]))));
        assert!(kept.note(UPSTREAM, prompts));
        let unwritten = kept.take_unwritten();
        let [(UPSTREAM, parts)] = &unwritten[..] else { panic!("{unwritten:?}") };
        assert!(kept.take_unwritten().is_empty());
        let text = Bytes::from(write(parts));
        let replies = ["one", "", "three"].map(|reply| Bytes::from_static(reply.as_bytes())).to_vec();
        let expected = [
            WrittenPart { list: List::Tools, dialect: Dialect::Modern([7; 16]), is_absent: false, replies },
            WrittenPart { list: List::Prompts, dialect: legacy, is_absent: true, replies: Vec::new() },
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
}
