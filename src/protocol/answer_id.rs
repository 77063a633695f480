//! Whether a message answers a certain request, told by its id alone while the message passes, without holding it.
//!
//! It follows strings and brackets and nothing else: whether the text is JSON at all is not its business. Where only a
//! real reader can tell, because an escape stands in a key or an id, it says so. It tells where the expected id stands.

use std::sync::LazyLock;

use super::json::Span;
use super::key_scan::KeyScan;

/// Follows one message.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerId {
    depth: u32,
    place: ScanPosition,
    is_in_string: bool,
    is_escaped: bool,
    /// How much of `id` the key at hand has spelled, in letters of any case; `None`: it is another key.
    key_matched: Option<usize>,
    /// Not in its own.
    is_key_folded: bool,
    /// How many bytes of the id at hand agree with the expected one; `None`: they do not.
    id_matched: Option<usize>,
    /// How many bytes have passed.
    passed: usize,
    /// Where the last id that agreed so far begins.
    id_start: usize,
    seen: SeenIds,
}

/// Where in the outermost object the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanPosition {
    /// Before or in a key.
    #[default]
    Key,
    /// In the value of `id`.
    Id,
    /// In another value.
    Value,
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenIds {
    /// Where the last of the expected ones begins.
    ours: Option<usize>,
    others: bool,
    escapes: bool,
    /// The expected one twice, or a key that is `id` only to who does not look at the case.
    doubtful: bool,
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

impl AnswerId {
    /// What one whole message says. What follows the expected id is not read if it holds no other one.
    pub fn of(message: &[u8], id: &[u8]) -> Self {
        static OTHERS: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&ID_KEYS));
        let mut scan = Self::default();
        let rest = scan.push_to_ours(message, id);
        if OTHERS.may_be_in(rest) {
            scan.push(rest, id);
        }
        scan
    }

    /// Follows the next bytes until the expected id has passed. Returns the others.
    pub fn push_to_ours<'b>(&mut self, bytes: &'b [u8], id: &[u8]) -> &'b [u8] {
        let mut rest = bytes;
        while !rest.is_empty() && self.seen.ours.is_none() {
            rest = self.follow(rest, id);
        }
        rest
    }

    /// Follows the next bytes. `id` is the expected literal, the same every time.
    pub fn push(&mut self, bytes: &[u8], id: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = self.follow(rest, id);
        }
    }

    /// Follows the first of these bytes. Returns the others.
    fn follow<'b>(&mut self, bytes: &'b [u8], id: &[u8]) -> &'b [u8] {
        let passed = match (self.is_in_string, self.depth) {
            (true, _) => self.follow_string(bytes, id),
            (false, 0 | 1) => self.step(bytes[0], id),
            (false, _) => self.pass_nested(bytes),
        };
        self.passed += passed;
        &bytes[passed..]
    }

    /// What the message says, once it has passed.
    pub fn verdict(&self) -> Verdict {
        match self.seen {
            SeenIds { escapes: true, .. } => Verdict::Unclear,
            SeenIds { ours: Some(_), others: false, .. } => Verdict::Ours,
            _ => Verdict::Others,
        }
    }

    /// True as soon as the expected id was seen, as long as nothing speaks against it.
    pub fn is_ours(&self) -> bool {
        self.verdict() == Verdict::Ours
    }

    /// True if the message has the expected id, once, for readers of any kind.
    pub fn is_ours_alone(&self) -> bool {
        self.is_ours() && !self.seen.doubtful
    }

    /// Where the expected `id` stands, once it was seen.
    pub fn span(&self, id: &[u8]) -> Span {
        let start = self.seen.ours.unwrap_or_default();
        start..start + id.len()
    }

    /// True as soon as it is certain that the message answers something else.
    pub fn is_others(&self) -> bool {
        self.seen.others && !self.seen.escapes
    }

    /// Follows a byte outside of strings, in the outermost object or before it.
    fn step(&mut self, byte: u8, id: &[u8]) -> usize {
        if self.depth == 1 && self.place == ScanPosition::Id {
            self.begin_id(byte, id);
        }
        match byte {
            b'"' => self.begin_string(),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value(id);
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                let is_key = self.place == ScanPosition::Key && self.key_matched == Some(KEY.len());
                let is_id = is_key && !self.is_key_folded;
                self.seen.doubtful |= is_key && self.is_key_folded;
                self.place = if is_id { ScanPosition::Id } else { ScanPosition::Value };
                self.id_matched = Some(0);
            }
            b',' if self.depth == 1 => {
                self.end_value(id);
                self.place = ScanPosition::Key;
                self.key_matched = None;
            }
            _ => {}
        }
        1
    }

    /// Follows what is deeper than the outermost object, to the next string or its end.
    fn pass_nested(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => self.begin_string(),
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth -= 1,
                _ => continue,
            }
            if self.is_in_string || self.depth == 1 {
                return at + 1;
            }
        }
        bytes.len()
    }

    fn begin_string(&mut self) {
        self.is_in_string = true;
        self.key_matched = Some(0);
        self.is_key_folded = false;
    }

    /// Follows a string to its end, or to its next escape.
    fn follow_string(&mut self, bytes: &[u8], id: &[u8]) -> usize {
        let place = if self.depth == 1 { self.place } else { ScanPosition::Value };
        let passed = if std::mem::take(&mut self.is_escaped) {
            1
        } else {
            let run = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
            match bytes.get(run) {
                Some(b'"') => self.is_in_string = false,
                Some(_) => {
                    self.is_escaped = true;
                    self.seen.escapes |= place != ScanPosition::Value;
                }
                None => {}
            }
            if place == ScanPosition::Key {
                self.follow_key(&bytes[..run]);
            }
            bytes.len().min(run + 1)
        };
        if place == ScanPosition::Id {
            let agrees = |at: &usize| id.get(*at..).is_some_and(|rest| rest.starts_with(&bytes[..passed]));
            self.id_matched = self.id_matched.filter(agrees).map(|at| at + passed);
        }
        passed
    }

    fn follow_key(&mut self, bytes: &[u8]) {
        let next = self.key_matched.and_then(|at| KEY.get(at..at + bytes.len()));
        let agrees = next.is_some_and(|next| next.eq_ignore_ascii_case(bytes));
        self.is_key_folded |= next != Some(bytes);
        self.key_matched = self.key_matched.filter(|_| agrees).map(|at| at + bytes.len());
    }

    /// Follows a byte of the id that is in no string, or begins one.
    fn begin_id(&mut self, byte: u8, id: &[u8]) {
        if !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace() {
            if self.id_matched == Some(0) {
                self.id_start = self.passed;
            }
            self.id_matched = self.id_matched.filter(|at| id.get(*at) == Some(&byte)).map(|at| at + 1);
        }
    }

    fn end_value(&mut self, id: &[u8]) {
        if self.place != ScanPosition::Id {
            return;
        }
        if self.id_matched == Some(id.len()) {
            self.seen.doubtful |= self.seen.ours.is_some();
            self.seen.ours = Some(self.id_start);
        } else {
            self.seen.others = true;
            // The same text may be spelled with escapes on one side only.
            self.seen.escapes |= id.contains(&b'\\') || !id.is_ascii();
        }
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
    fn readers_that_fold_or_take_the_first_see_another_id() {
        for (message, is_alone) in [
            (r#"{"id":7,"result":{"id":8,"ID":9}}"#, true),
            (r#"{"id":7,"idx":8,"IDX":9,"":1,"d":2}"#, true),
            (r#"{"id":7,"ID":8}"#, false),
            (r#"{"Id":7,"id":7}"#, false),
            (r#"{"id":7,"id":7}"#, false),
            (r#"{"id":7,"id":8}"#, false),
            (r#"{"id":7,"\u0069d":8}"#, false),
            (r#"{"id":7,"i\u0000d":8}"#, false),
            (r#"{"ID":7}"#, false),
        ] {
            assert_eq!(AnswerId::of(message.as_bytes(), b"7").is_ours_alone(), is_alone, "{message}");
            for cut in 0..message.len() {
                let mut scan = AnswerId::default();
                scan.push(&message.as_bytes()[..cut], b"7");
                scan.push(&message.as_bytes()[cut..], b"7");
                assert_eq!(scan.is_ours_alone(), is_alone, "{message} {cut}");
            }
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
