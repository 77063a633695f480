//! Whether a message answers a certain request, told by its id alone while the message passes, without holding it.
//!
//! It follows strings and brackets and nothing else: whether the text is JSON at all is not its business. Where only a
//! real reader can tell, because an escape stands in a key or an id, it says so. It tells where the expected id stands.

use std::sync::LazyLock;

use super::json::Span;
use super::key_scan::KeyScan;
use super::member_scan::{MemberReader, MemberScan};

/// Follows one message.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerId {
    scan: MemberScan,
    progress: IdProgress,
}

/// The progress of the search for the id.
#[derive(Clone, Copy, Debug, Default)]
struct IdProgress {
    /// How much of `id` the key at hand has spelled; `None`: it is another key.
    key_matched: Option<usize>,
    /// How many bytes of the id at hand agree with the expected one; `None`: they do not.
    id_matched: Option<usize>,
    /// Where the last id that agreed so far begins.
    id_start: usize,
    seen: SeenIds,
}

/// Compares the ids that pass with the expected one.
struct Comparison<'a> {
    id: &'a [u8],
    progress: &'a mut IdProgress,
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenIds {
    /// Where the last of the expected ones begins.
    ours: Option<usize>,
    others: bool,
    escapes: bool,
}

/// What the id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message has the expected id.
    Ours,
    /// It has another one, or none.
    Others,
    /// It must be read to tell.
    Unclear,
}

const KEY: &[u8] = b"id";
/// As it is written in a text, for readers that do not look at the case, too.
pub(super) const ID_KEYS: [&str; 4] = ["\"id\"", "\"Id\"", "\"iD\"", "\"ID\""];

/// How most servers begin or end an answer, up to its id.
const USUAL_START: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const USUAL_END: &[u8] = br#","jsonrpc":"2.0","id":"#;

/// Where the expected id stands in a whole message that is written as most servers write one, and the part of the message
/// that may still hold another.
pub fn usual_place<'m>(message: &'m [u8], id: &[u8]) -> Option<(Span, &'m [u8])> {
    let after_start = message.strip_prefix(USUAL_START).and_then(|rest| rest.strip_prefix(id));
    if let Some(rest) = after_start.filter(|rest| rest.starts_with(b",")) {
        return Some((USUAL_START.len()..USUAL_START.len() + id.len(), rest));
    }
    let end = message.trim_ascii_end().strip_suffix(b"}")?;
    let rest = end.strip_suffix(id)?.strip_suffix(USUAL_END)?;
    Some((rest.len() + USUAL_END.len()..end.len(), rest))
}

/// How many bytes of `expected` agree with what has passed, once `next` has, too.
fn extend(so_far: Option<usize>, expected: &[u8], next: &[u8]) -> Option<usize> {
    let rest = expected.get(so_far?..)?;
    rest.starts_with(next).then(|| expected.len() - rest.len() + next.len())
}

impl AnswerId {
    /// What one whole message says.
    pub fn of(message: &[u8], id: &[u8]) -> Self {
        static OTHERS: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&ID_KEYS));
        let mut scan = Self::default();
        match usual_place(message, id) {
            Some((place, rest)) if !OTHERS.may_be_in(rest) => scan.progress.seen.ours = Some(place.start),
            _ => scan.push(message, id),
        }
        scan
    }

    /// Follows the next bytes. `id` is the expected literal, the same every time.
    pub fn push(&mut self, bytes: &[u8], id: &[u8]) {
        self.scan.push(bytes, &mut Comparison { id, progress: &mut self.progress });
    }

    /// What the message says, once it has passed.
    pub fn verdict(&self) -> Verdict {
        match self.progress.seen {
            SeenIds { escapes: true, .. } => Verdict::Unclear,
            SeenIds { ours: Some(_), others: false, .. } => Verdict::Ours,
            _ => Verdict::Others,
        }
    }

    /// True as soon as the expected id was seen, as long as nothing speaks against it.
    pub fn is_ours(&self) -> bool {
        self.verdict() == Verdict::Ours
    }

    /// Where the expected `id` stands, once it was seen.
    pub fn span(&self, id: &[u8]) -> Span {
        let start = self.progress.seen.ours.unwrap_or_default();
        start..start + id.len()
    }

    /// True as soon as it is certain that the message answers something else.
    pub fn is_others(&self) -> bool {
        self.progress.seen.others && !self.progress.seen.escapes
    }
}

impl MemberReader for Comparison<'_> {
    fn end_member(&mut self) {
        self.progress.key_matched = None;
    }

    fn begin_key(&mut self) {
        self.progress.key_matched = Some(0);
    }

    fn key(&mut self, bytes: &[u8]) {
        self.progress.key_matched = extend(self.progress.key_matched, KEY, bytes);
    }

    fn wants(&mut self) -> bool {
        self.progress.id_matched = Some(0);
        self.progress.key_matched == Some(KEY.len())
    }

    fn value(&mut self, bytes: &[u8], at: usize) {
        if self.progress.id_matched == Some(0) {
            self.progress.id_start = at;
        }
        self.progress.id_matched = extend(self.progress.id_matched, self.id, bytes);
    }

    fn end_value(&mut self) {
        let IdProgress { id_matched, id_start, seen, .. } = &mut *self.progress;
        if *id_matched == Some(self.id.len()) {
            seen.ours = Some(*id_start);
        } else {
            seen.others = true;
            // The same text may be spelled with escapes on one side only.
            seen.escapes |= self.id.contains(&b'\\') || !self.id.is_ascii();
        }
    }

    fn escape(&mut self) {
        self.progress.seen.escapes = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tells_by_the_id_of_the_outermost_object() {
        for (message, id, verdict) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "7", Verdict::Ours),
            (r#"{"result":{"id":8,"a":["}",{"id":9}]},"id" : 7 }"#, "7", Verdict::Ours),
            (r#"{"id":"7","result":{}}"#, "7", Verdict::Others),
            (r#"{"id":77,"result":{}}"#, "7", Verdict::Others),
            (r#"{"id":7,"result":{}}"#, "77", Verdict::Others),
            (r#"{"id":"a,}","result":{}}"#, r#""a,}""#, Verdict::Ours),
            (r#"{"id":"a b","result":{}}"#, r#""ab""#, Verdict::Others),
            (r#"{"result":"\"id\":7"}"#, "7", Verdict::Others),
            (r#"{"result":{"id":7}}"#, "7", Verdict::Others),
            (r#"{"ids":7,"i":7,"xid":7}"#, "7", Verdict::Others),
            (r#"{"id":7,"id":8}"#, "7", Verdict::Others),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, "7", Verdict::Ours),
            (r#"{"jsonrpc":"2.0","id":7,"result":{},"id":8}"#, "7", Verdict::Others),
            (r#"{"jsonrpc":"2.0","id":7,"\u0069d":8}"#, "7", Verdict::Unclear),
            (r#"{"id":8,"jsonrpc":"2.0","id":7}"#, "7", Verdict::Others),
            (r#"{"result":{"id":8},"jsonrpc":"2.0","id":7}"#, "7", Verdict::Ours),
            (r#"{"id":null,"error":{}}"#, "7", Verdict::Others),
            (r#"[{"id":7}]"#, "7", Verdict::Others),
            (r#"{"a":"id","id":7}"#, "7", Verdict::Ours),
            (r#"{"\u0069d":7}"#, "7", Verdict::Unclear),
            (r#"{"id":"\u00e9"}"#, "\"é\"", Verdict::Unclear),
            (r#"{"id":"é"}"#, r#""\u00e9""#, Verdict::Unclear),
            ("", "7", Verdict::Others),
            ("not JSON", "7", Verdict::Others),
        ] {
            assert_eq!(AnswerId::of(message.as_bytes(), id.as_bytes()).verdict(), verdict, "{message}");
            for cut in (0..message.len()).filter(|_| verdict == Verdict::Ours) {
                let mut scan = AnswerId::default();
                scan.push(&message.as_bytes()[..cut], id.as_bytes());
                scan.push(&message.as_bytes()[cut..], id.as_bytes());
                assert_eq!(message.get(scan.span(id.as_bytes())), Some(id), "{message}");
            }
        }
    }

    #[test]
    fn knows_where_most_servers_write_it() {
        for (message, id, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "7", Some((22, r#","result":{}}"#))),
            (r#"{"jsonrpc":"2.0","id":"a b","error":{}}"#, r#""a b""#, Some((22, r#","error":{}}"#))),
            (r#"{"result":{},"jsonrpc":"2.0","id":7}"#, "7", Some((34, r#"{"result":{}"#))),
            ("{\"result\":{},\"jsonrpc\":\"2.0\",\"id\":7}\r\n", "7", Some((34, r#"{"result":{}"#))),
            (r#"{"jsonrpc":"2.0","id":77,"result":{}}"#, "7", None),
            (r#"{"jsonrpc":"2.0","id":7}"#, "7", None),
            (r#"{"result":{},"jsonrpc":"2.0","id":77}"#, "7", None),
            (r#"{"result":{"a":1,"jsonrpc":"2.0","id":7}}"#, "7", None),
            (r#"{"result":{},"jsonrpc":"2.0","id":7,"a":1}"#, "7", None),
            (r#"{"result":"\",\"jsonrpc\":\"2.0\",\"id\":7}"#, "7", None),
            (r#"{"id":7,"jsonrpc":"2.0","result":{}}"#, "7", None),
            ("", "7", None),
        ] {
            let found = usual_place(message.as_bytes(), id.as_bytes());
            let expected = expected.map(|(start, rest)| (start..start + id.len(), rest.as_bytes()));
            assert_eq!(found, expected, "{message}");
            assert!(found.is_none_or(|(place, _)| message.get(place) == Some(id)), "{message}");
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in r#"[{}\[\]":,id7\\ ]{0,40}"#, cut in 0_usize..40) {
            let cut = cut.min(text.len());
            let mut scan = AnswerId::default();
            scan.push(&text.as_bytes()[..cut], b"7");
            scan.push(&text.as_bytes()[cut..], b"7");
            prop_assert_eq!(scan.verdict(), AnswerId::of(text.as_bytes(), b"7").verdict());
        }

        #[test]
        fn agrees_with_a_reader(id in -9_i64..99, keys in prop::collection::vec("id|ix|result|x", 1..4), value in "[a-z{}\\[\\],:]{0,9}") {
            let members: Vec<String> = keys.iter().map(|key| match key.as_str() {
                "id" => format!("\"id\":{id}"),
                key => format!("{}:[{{\"id\":5,\"x\":{}}}]", serde_json::json!(key), serde_json::json!(value)),
            }).collect();
            let message = format!("{{{}}}", members.join(","));
            let expected = if keys.iter().any(|key| key == "id") && id == 7 { Verdict::Ours } else { Verdict::Others };
            prop_assert_eq!(AnswerId::of(message.as_bytes(), b"7").verdict(), expected, "{}", message);
        }
    }
}
