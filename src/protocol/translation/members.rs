//! Taking members out of an object, and putting others in front, without touching those that stay.

use bytes::Bytes;

use crate::json::{Literal, Value};
use crate::splice::Edit;

/// Edits that leave out the members of `object` whose key `is_out`, and put `added` before the others: members separated
/// by commas, or nothing. In order, and none overlaps another.
pub fn edits(object: Value<'_>, is_out: impl Fn(&Literal) -> bool, added: &str) -> Vec<Edit> {
    let start = object.span().start + 1;
    let mut edits = Vec::new();
    let mut previous_end = None;
    let mut has_kept = false;
    let mut entries = object.entries().peekable();
    while let Some((key, value)) = entries.next() {
        let (from, to) = (key.span.start, value.span().end);
        if is_out(&key) {
            let span = match previous_end {
                // With the comma before it.
                Some(previous_end) if has_kept => previous_end..to,
                // With the comma after it.
                _ => from..entries.peek().map_or(to, |(next, _)| next.span.start),
            };
            edits.push(Edit { span, with: Bytes::new() });
        } else {
            has_kept = true;
        }
        previous_end = Some(to);
    }
    if !added.is_empty() {
        let comma = if has_kept { "," } else { "" };
        edits.insert(0, Edit { span: start..start, with: format!("{added}{comma}").into() });
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;
    use crate::splice::splice;

    #[test]
    fn members_go_and_come_and_the_others_stay() {
        for (object, added, expected) in [
            ("{}", "", "{}"),
            ("{}", r#""x":1"#, r#"{"x":1}"#),
            (r#"{ "out" : 1 }"#, "", "{  }"),
            (r#"{ "out" : 1 }"#, r#""x":1"#, r#"{"x":1  }"#),
            (r#"{"a":1,"out":2}"#, r#""x":1"#, r#"{"x":1,"a":1}"#),
            (r#"{"out":2 , "a":{"out":1}}"#, "", r#"{"a":{"out":1}}"#),
            (r#"{"out":2,"out":3,"a":1,"out":4,"out":5,"b":[]}"#, "", r#"{"a":1,"b":[]}"#),
            (r#"{"out":2,"out":3}"#, r#""x":1,"y":2"#, r#"{"x":1,"y":2}"#),
            (r#"{"a":1,"b":2}"#, "", r#"{"a":1,"b":2}"#),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(object.as_bytes(), 8).expect("JSON").root();
            let edits = edits(root, |key| key.equals(object.as_bytes(), "out"), added);
            let spliced = splice(&Bytes::copy_from_slice(object.as_bytes()), &edits).to_bytes();
            assert_eq!(String::from_utf8_lossy(&spliced), expected, "{object}");
        }
    }
}
