//! Taking members out of objects, and putting others in front, without touching those that stay.

use bytes::Bytes;

use crate::json::{Span, Value};
use crate::splice::{Edit, Segments, splice};

/// The edits of one message. None overlaps another.
#[derive(Clone, Debug, Default)]
pub struct Edits(Vec<Edit>);

impl Edits {
    /// Leaves out the members of `object` whose key `is_out`, and puts `added` before the others: members separated by
    /// commas, or nothing.
    pub fn members(&mut self, object: Value<'_>, is_out: impl Fn(&str) -> bool, added: &str) {
        let has_kept = self.leave_out(object, |key, _| is_out(key));
        self.put_in(object.span().start + 1, added, has_kept);
    }

    /// Leaves out the members of `object` that are `is_out`, by key and value. Whether there are others.
    pub(super) fn leave_out<'a>(
        &mut self,
        object: Value<'a>,
        mut is_out: impl FnMut(&str, Value<'a>) -> bool,
    ) -> bool {
        let mut previous_end = None;
        let mut has_kept = false;
        let mut entries = object.entries().peekable();
        while let Some((key, value)) = entries.next() {
            let (from, to) = (key.span.start, value.span().end);
            if key.decode(object.text()).is_some_and(|key| is_out(&key, value)) {
                let span = match previous_end {
                    // With the comma before it.
                    Some(previous_end) if has_kept => previous_end..to,
                    // With the comma after it.
                    _ => from..entries.peek().map_or(to, |(next, _)| next.span.start),
                };
                self.0.push(Edit { span, with: Bytes::new() });
            } else {
                has_kept = true;
            }
            previous_end = Some(to);
        }
        has_kept
    }

    /// Puts members into the object that begins before `start`, where others may follow.
    pub(super) fn put_in(&mut self, start: usize, added: &str, has_others: bool) {
        if !added.is_empty() {
            let comma = if has_others { "," } else { "" };
            self.0.push(Edit { span: start..start, with: [added, comma].concat().into() });
        }
    }

    /// As [`Self::members`], and the same in the object's `_meta`. An object that has none gets one, should there be
    /// something to say in it.
    pub fn with_meta(
        &mut self,
        object: Value<'_>,
        (is_out, added): (impl Fn(&str) -> bool, &str),
        (is_out_of_meta, in_meta): (impl Fn(&str) -> bool, &str),
    ) {
        let mut meta = None;
        let has_kept = self.leave_out(object, |key, value| match key {
            "_meta" => {
                let has_room = meta.get_or_insert(value).is_object();
                // One that is no object makes room for one that is; one of which nothing is left goes.
                if in_meta.is_empty() { is_emptied(value, &is_out_of_meta) } else { !has_room }
            }
            key => is_out(key),
        });
        let start = object.span().start + 1;
        let is_gone = |meta: &Value<'_>| in_meta.is_empty() && is_emptied(*meta, &is_out_of_meta);
        match meta.and_then(Value::as_object).filter(|meta| !is_gone(meta)) {
            Some(meta) => {
                self.members(meta, is_out_of_meta, in_meta);
                self.put_in(start, added, has_kept);
            }
            None if in_meta.is_empty() => self.put_in(start, added, has_kept),
            None => self.put_in(start, &and_meta(added, in_meta), has_kept),
        }
    }

    /// As [`Self::with_meta`], of the `params` of a message, which gets some if it has none.
    pub fn params(
        &mut self,
        message: Value<'_>,
        (is_out, added): (impl Fn(&str) -> bool, &str),
        (is_out_of_meta, in_meta): (impl Fn(&str) -> bool, &str),
    ) {
        if let Some(params) = message.object("params") {
            self.with_meta(params, (is_out, added), (is_out_of_meta, in_meta));
        } else {
            let params = format!(r#""params":{{{}}}"#, and_meta(added, in_meta));
            self.members(message, |key| key == "params", &params);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another object of the message.
    pub(super) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Writes something else in the place of a value.
    pub fn replace(&mut self, value: Value<'_>, with: impl Into<Bytes>) {
        self.0.push(Edit { span: value.span(), with: with.into() });
    }

    /// Writes this literal in the place of a value, where there are both.
    pub fn rename(&mut self, value: Option<Value<'_>>, with: Option<&str>) {
        self.rename_at(value.map(Value::span), with);
    }

    /// As [`Self::rename`], of the value that stands there.
    pub(super) fn rename_at(&mut self, span: Option<Span>, with: Option<&str>) {
        if let (Some(span), Some(with)) = (span, with) {
            self.0.push(Edit { span, with: Bytes::copy_from_slice(with.as_bytes()) });
        }
    }

    /// The same, of a text in which this one begins at `start`.
    pub(super) fn moved_to(mut self, start: usize) -> Self {
        for Edit { span, .. } in &mut self.0 {
            *span = span.start + start..span.end + start;
        }
        self
    }

    /// The same, with room for so many more.
    pub(super) fn copy_with_room(&self, more: usize) -> Self {
        let mut edits = Vec::with_capacity(self.0.len() + more);
        edits.extend_from_slice(&self.0);
        Self(edits)
    }

    /// The edits, in order.
    pub fn sorted(mut self) -> Vec<Edit> {
        self.0.sort_by_key(|edit| (edit.span.start, edit.span.end));
        self.0
    }

    /// One value of the message as it is then; no edit is outside of it.
    pub fn part(self, message: &Bytes, value: Value<'_>) -> Bytes {
        let Span { start, end } = value.span();
        let mut edits = self.sorted();
        for Edit { span, .. } in &mut edits {
            *span = span.start.saturating_sub(start)..span.end.saturating_sub(start);
        }
        splice(&message.slice(start..end), &edits).to_bytes()
    }

    /// The message as it is then.
    pub fn apply(self, message: &Bytes) -> Segments {
        splice(message, &self.sorted())
    }
}

impl Extend<Edit> for Edits {
    fn extend<I: IntoIterator<Item = Edit>>(&mut self, edits: I) {
        self.0.extend(edits);
    }
}

/// True if an object has members, of which none stays.
fn is_emptied(object: Value<'_>, is_out: impl Fn(&str) -> bool) -> bool {
    let mut members = object.entries().map(|(key, _)| key.decode(object.text())).peekable();
    members.peek().is_some() && members.all(|key| key.is_some_and(|key| is_out(&key)))
}

/// `added`, and a `_meta` with the members `in_meta`.
pub(super) fn and_meta(added: &str, in_meta: &str) -> String {
    let comma = if added.is_empty() { "" } else { "," };
    [added, comma, r#""_meta":{"#, in_meta, "}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;

    #[test]
    fn nobody_gets_an_empty_meta_that_nobody_wrote() {
        for (object, in_meta, expected) in [
            (r#"{"_meta":{"out":1},"a":1}"#, "", r#"{"a":1}"#),
            (r#"{"a":1,"_meta":{"out":1,"out":2}}"#, "", r#"{"a":1}"#),
            (r#"{"_meta":{},"a":1}"#, "", r#"{"_meta":{},"a":1}"#),
            (r#"{"_meta":{"out":1,"b":2}}"#, "", r#"{"_meta":{"b":2}}"#),
            (r#"{"_meta":{"out":1}}"#, r#""x":1"#, r#"{"_meta":{"x":1}}"#),
            (r#"{"_meta":7,"a":1}"#, "", r#"{"_meta":7,"a":1}"#),
            (r#"{"_meta":7,"a":1}"#, r#""x":1"#, r#"{"_meta":{"x":1},"a":1}"#),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(object.as_bytes(), 8).expect("JSON").root();
            let mut edits = Edits::default();
            edits.with_meta(root, (|_| false, ""), (|key| key == "out", in_meta));
            let spliced = edits.apply(&Bytes::copy_from_slice(object.as_bytes())).to_bytes();
            assert_eq!(String::from_utf8_lossy(&spliced), expected, "{object}");
        }
    }

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
            let mut edits = Edits::default();
            edits.members(root, |key| key == "out", added);
            let spliced = edits.apply(&Bytes::copy_from_slice(object.as_bytes())).to_bytes();
            assert_eq!(String::from_utf8_lossy(&spliced), expected, "{object}");
        }
    }
}
