//! Whether a message answers a certain request, told by its id alone while the message passes, without holding it.
//!
//! It follows strings and brackets and nothing else: whether the text is JSON at all is not its business. Where only a
//! real reader can tell, because an escape stands in a key or an id, it says so. It tells where the expected id stands.

use super::json::Span;

/// Follows one message.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerId {
    depth: u32,
    place: ScanPosition,
    is_in_string: bool,
    is_escaped: bool,
    /// How much of `id` the key at hand has spelled; `None`: it is another key.
    key_matched: Option<usize>,
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
    ours: bool,
    /// Where it begins.
    ours_start: usize,
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

impl AnswerId {
    /// What one whole message says.
    pub fn of(message: &[u8], id: &[u8]) -> Verdict {
        let mut scan = Self::default();
        scan.push(message, id);
        scan.verdict()
    }

    /// Follows the next bytes. `id` is the expected literal, the same every time.
    pub fn push(&mut self, bytes: &[u8], id: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.is_in_string && (self.depth != 1 || self.place == ScanPosition::Value) {
                // Nothing in here matters but its end.
                if std::mem::take(&mut self.is_escaped) {
                    at += 1;
                    continue;
                }
                let rest = &bytes[at..];
                at += memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                match bytes.get(at) {
                    Some(b'"') => self.is_in_string = false,
                    Some(_) => self.is_escaped = true,
                    None => break,
                }
            } else {
                self.step((byte, self.passed + at), id);
            }
            at += 1;
        }
        self.passed += bytes.len();
    }

    /// What the message says, once it has passed.
    pub fn verdict(&self) -> Verdict {
        match self.seen {
            SeenIds { escapes: true, .. } => Verdict::Unclear,
            SeenIds { ours: true, others: false, .. } => Verdict::Ours,
            _ => Verdict::Others,
        }
    }

    /// True as soon as the expected id was seen, as long as nothing speaks against it.
    pub fn is_ours(&self) -> bool {
        self.verdict() == Verdict::Ours
    }

    /// Where the expected `id` stands, once it was seen.
    pub fn span(&self, id: &[u8]) -> Span {
        self.seen.ours_start..self.seen.ours_start + id.len()
    }

    /// True as soon as it is certain that the message answers something else.
    pub fn is_others(&self) -> bool {
        self.seen.others && !self.seen.escapes
    }

    fn step(&mut self, (byte, position): (u8, usize), id: &[u8]) {
        if self.depth == 1 && self.place == ScanPosition::Id {
            self.follow_id((byte, position), id);
        }
        if self.is_in_string {
            return self.follow_string(byte);
        }
        match byte {
            b'"' => {
                self.is_in_string = true;
                self.key_matched = Some(0);
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value(id);
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                let is_id = self.place == ScanPosition::Key && self.key_matched == Some(KEY.len());
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
    }

    fn follow_string(&mut self, byte: u8) {
        if self.is_escaped {
            self.is_escaped = false;
            return;
        }
        match byte {
            b'"' => self.is_in_string = false,
            b'\\' => {
                self.is_escaped = true;
                self.seen.escapes = true;
            }
            _ => {
                let agrees = |at: &usize| KEY.get(*at) == Some(&byte);
                self.key_matched = self.key_matched.filter(agrees).map(|at| at + 1);
            }
        }
    }

    fn follow_id(&mut self, (byte, position): (u8, usize), id: &[u8]) {
        let is_end = !self.is_in_string && matches!(byte, b',' | b'}' | b']');
        let is_space = !self.is_in_string && byte.is_ascii_whitespace();
        if !is_end && !is_space {
            if self.id_matched == Some(0) {
                self.id_start = position;
            }
            self.id_matched = self.id_matched.filter(|at| id.get(*at) == Some(&byte)).map(|at| at + 1);
        }
    }

    fn end_value(&mut self, id: &[u8]) {
        if self.place != ScanPosition::Id {
            return;
        }
        if self.id_matched == Some(id.len()) {
            self.seen.ours = true;
            self.seen.ours_start = self.id_start;
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
            assert_eq!(AnswerId::of(message.as_bytes(), id.as_bytes()), verdict, "{message}");
            for cut in (0..message.len()).filter(|_| verdict == Verdict::Ours) {
                let mut scan = AnswerId::default();
                scan.push(&message.as_bytes()[..cut], id.as_bytes());
                scan.push(&message.as_bytes()[cut..], id.as_bytes());
                assert_eq!(message.get(scan.span(id.as_bytes())), Some(id), "{message}");
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
            prop_assert_eq!(scan.verdict(), AnswerId::of(text.as_bytes(), b"7"));
        }

        #[test]
        fn agrees_with_a_reader(id in -9_i64..99, keys in prop::collection::vec("id|ix|result|x", 1..4), value in "[a-z{}\\[\\],:]{0,9}") {
            let members: Vec<String> = keys.iter().map(|key| match key.as_str() {
                "id" => format!("\"id\":{id}"),
                key => format!("{}:[{{\"id\":5,\"x\":{}}}]", serde_json::json!(key), serde_json::json!(value)),
            }).collect();
            let message = format!("{{{}}}", members.join(","));
            let expected = if keys.iter().any(|key| key == "id") && id == 7 { Verdict::Ours } else { Verdict::Others };
            prop_assert_eq!(AnswerId::of(message.as_bytes(), b"7"), expected, "{}", message);
        }
    }
}
