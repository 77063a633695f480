//! Requests of clients, for servers of the other era.

use std::sync::LazyLock;

use bytes::Bytes;

use super::members::{Edits, and_meta};
use crate::envelope::Envelope;
use crate::json::{Document, JsonError, Scratch, Span, Value, quote};
use crate::key_scan::KeyScan;
use crate::splice::{Edit, Segments};
use crate::version::MODERN;

/// Keys of `_meta` that only the modern era has begin so.
pub(super) const MODERN_META: &str = "io.modelcontextprotocol/";
/// Members of `params` of a modern request by which it goes on with an earlier one.
const CONTINUATION: [&str; 2] = ["inputResponses", "requestState"];
/// Members of `params` of a legacy request that ask for what no modern server has: tasks of that era.
const LEGACY_PARAMS: [&str; 1] = ["task"];

/// What replaces a member of a request; both are JSON literals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renamed<'a> {
    /// The id.
    pub id: Option<&'a str>,
    /// The progress token, where the request has one.
    pub token: Option<&'a str>,
}

/// What modern requests say of their client in `_meta`: members separated by commas. Both are JSON objects.
pub fn introduction(capabilities: &str, client_info: Option<&str>) -> String {
    let mut members = format!(
        r#""io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientCapabilities":{capabilities}"#,
        MODERN[0]
    );
    if let Some(info) = client_info {
        members.push_str(r#","io.modelcontextprotocol/clientInfo":"#);
        members.push_str(info);
    }
    members
}

/// The same of a client that wants log lines of this level.
pub fn with_level(introduction: &str, level: &str) -> String {
    format!(r#"{introduction},"io.modelcontextprotocol/logLevel":{}"#, quote(level))
}

/// A legacy request as a modern server takes it: `introduction` in its `_meta`, and `added` in its `params`, which are
/// members separated by commas, or nothing. By what only one of the eras says, the client can have meant nothing.
pub fn to_modern(
    message: &Bytes,
    introduction: &str,
    added: &str,
    renamed: Renamed<'_>,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Segments, JsonError> {
    let root = scratch.index(message, depth_max).map(Document::root)?;
    let mut edits = Edits::default();
    let is_foreign = |key: &str| CONTINUATION.contains(&key) || LEGACY_PARAMS.contains(&key);
    edits.params(root, (is_foreign, added), (is_modern, introduction));
    rename(root, renamed, &mut edits);
    Ok(edits.apply(message))
}

/// A legacy request as a modern server takes it, where its envelope says all that is needed for that: of nearly all
/// requests.
#[derive(Clone, Debug)]
pub struct ModernForm {
    id: Option<Span>,
    /// Where the members of `params` begin, and whether there are any.
    params: (usize, bool),
    /// The same of its `_meta`.
    meta: Option<(usize, bool)>,
}

impl ModernForm {
    /// Of the message that this was found in. `None`: it must be read, by [`to_modern`].
    pub fn of(message: &[u8], envelope: &Envelope) -> Option<Self> {
        // Parts of keys without a sign that could be escaped.
        static MODERN: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&["modelcontextprotocol"]));
        static META: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&["meta\""]));
        let start_of = |object: &Span| (object.start + 1, has_members(message, object));
        let params = envelope.params.as_ref().filter(|_| !envelope.is_continued)?;
        if envelope.has_other_params {
            return None;
        }
        let meta = match &envelope.meta {
            Some(meta) if MODERN.may_be_in(message.get(meta.span.clone())?) => return None,
            Some(meta) => Some(start_of(&meta.span)),
            // One that is no object would have to make room.
            None if META.may_be_in(message.get(params.clone())?) => return None,
            None => None,
        };
        Some(Self { id: envelope.id.clone(), params: start_of(params), meta })
    }

    /// Writes it, as [`to_modern`] does. `message`: the one that it was read from; `id`: the literal in the place of
    /// its own.
    pub fn write(&self, message: &Bytes, introduction: &str, added: &str, id: &str) -> Segments {
        let mut edits = Edits::default();
        let (params, has_others) = self.params;
        match self.meta {
            Some((meta, has_more)) => {
                edits.put_in(params, added, has_others);
                edits.put_in(meta, introduction, has_more);
            }
            None => edits.put_in(params, &and_meta(added, introduction), has_others),
        }
        edits.rename_at(self.id.clone(), Some(id));
        edits.apply(message)
    }
}

/// A modern request as a legacy server takes it, read once and written under any id: what only the modern era says is
/// left out of `_meta` and `params`.
#[derive(Clone, Debug, Default)]
pub struct LegacyForm {
    left_out: Edits,
    id: Option<Span>,
    token: Option<Span>,
    /// Where the members of `params` begin, and whether any stay.
    params: Option<(usize, bool)>,
}

impl LegacyForm {
    /// Of the message that this was found in. `take` is given the key and the value of each member that is left out.
    pub fn of(
        message: &[u8],
        envelope: &Envelope,
        (scratch, depth_max): (&mut Scratch, usize),
        mut take: impl FnMut(&str, Value<'_>),
    ) -> Result<Self, JsonError> {
        let mut form = Self { id: envelope.id.clone(), ..Self::default() };
        let Some(params) = &envelope.params else { return Ok(form) };
        let mut left_out = |key: &str, value: Value<'_>, is_out: bool| {
            if is_out {
                take(key, value);
            }
            is_out
        };
        // Nearly always `_meta` alone holds what only this era says.
        let meta = envelope.meta.as_ref().map(|meta| &meta.span);
        let read = if envelope.is_continued { Some(params) } else { meta };
        let mut has_kept = has_members(message, params);
        if let Some(Span { start, end }) = read.cloned() {
            let root = scratch.index(message.get(start..end).unwrap_or_default(), depth_max)?.root();
            let mut meta = Some(root);
            let mut edits = Edits::default();
            if envelope.is_continued {
                meta = root.object("_meta");
            }
            let mut is_emptied = false;
            let mut of_meta = Edits::default();
            if let Some(meta) = meta {
                let has_more = of_meta.leave_out(meta, |key, value| {
                    if key == "progressToken" {
                        form.token = Some(value.span().start + start..value.span().end + start);
                    }
                    left_out(key, value, is_modern(key))
                });
                is_emptied = !has_more && !of_meta.is_empty();
            }
            if envelope.is_continued {
                let is_out = |key: &str| CONTINUATION.contains(&key) || key == "_meta" && is_emptied;
                has_kept = edits.leave_out(root, |key, value| left_out(key, value, is_out(key)));
            }
            if !is_emptied {
                edits.append(of_meta);
            }
            form.left_out = edits.moved_to(start);
            if is_emptied && !envelope.is_continued {
                let (member, has_others) = member_of(message, start..end);
                has_kept = has_others;
                form.left_out.extend([Edit { span: member, with: Bytes::new() }]);
            }
        }
        form.params = Some((params.start + 1, has_kept));
        Ok(form)
    }

    /// Writes it. `message`: the one that it was read from; `added`: members of `params` separated by commas, or
    /// nothing.
    pub fn write(&self, message: &Bytes, added: &str, renamed: Renamed<'_>) -> Segments {
        let mut edits = self.left_out.copy_with_room(3);
        if let Some((start, has_others)) = self.params {
            edits.put_in(start, added, has_others);
        }
        edits.rename_at(self.id.clone(), renamed.id);
        edits.rename_at(self.token.clone(), renamed.token);
        edits.apply(message)
    }
}

/// The range of the member whose value stands here, with a comma, and true if its object has others. Of a message that
/// was checked.
fn member_of(message: &[u8], value: Span) -> (Span, bool) {
    let last_of =
        |end: usize, is: fn(&u8) -> bool| message.get(..end).and_then(|text| text.iter().rposition(is));
    // Neither is in the key, nor in the blanks around it.
    let key_end = last_of(value.start, |byte| *byte == b'"').unwrap_or_default();
    let key = last_of(key_end, |byte| *byte == b'"').unwrap_or_default();
    let before = last_of(key, |byte| !byte.is_ascii_whitespace()).unwrap_or_default();
    let rest = message.get(value.end..).unwrap_or_default();
    let after = rest.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or_default();
    let is_comma = |byte: Option<&u8>| byte == Some(&b',');
    match (is_comma(message.get(before)), is_comma(rest.get(after))) {
        (true, _) => (before..value.end, true),
        (false, true) => (key..value.end + after + 1, true),
        (false, false) => (key..value.end, false),
    }
}

fn is_modern(key: &str) -> bool {
    key.starts_with(MODERN_META)
}

/// Whether the object that stands here has members.
fn has_members(message: &[u8], object: &Span) -> bool {
    let members = message.get(object.start + 1..object.end.saturating_sub(1)).unwrap_or_default();
    !members.trim_ascii().is_empty()
}

fn rename(request: Value<'_>, renamed: Renamed<'_>, edits: &mut Edits) {
    let token = request.object("params").and_then(|params| params.get("_meta")?.get("progressToken"));
    edits.rename(request.get("id"), renamed.id);
    edits.rename(token, renamed.token);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const META: &str = concat!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"#,
        r#""io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}"#
    );

    #[test]
    fn a_legacy_request_introduces_its_client() {
        let own = introduction(r#"{"roots":{}}"#, Some(r#"{"name":"c","version":"1"}"#));
        for (message, added, expected) in [
            (r#"{"id":1,"method":"m"}"#, "", r#"{"params":{"_meta":{META}},"id":1,"method":"m"}"#),
            (r#"{"id":1,"params":null}"#, r#""x":1"#, r#"{"params":{"x":1,"_meta":{META}},"id":1}"#),
            (r#"{"params":{},"id":1}"#, "", r#"{"params":{"_meta":{META}},"id":1}"#),
            (
                r#"{"params":{"name":"a"},"id":1}"#,
                r#""x":1"#,
                r#"{"params":{"x":1,"_meta":{META},"name":"a"},"id":1}"#,
            ),
            (
                r#"{"params":{"_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"x"}, "name":"a"},"id":1}"#,
                r#""x":1"#,
                r#"{"params":{"x":1,"_meta":{META,"progressToken":7}, "name":"a"},"id":1}"#,
            ),
            (
                r#"{"params":{"requestState":"s","name":"a","task":{"ttl":1},"inputResponses":{}},"id":1}"#,
                "",
                r#"{"params":{"_meta":{META},"name":"a"},"id":1}"#,
            ),
            (
                r#"{"params":{"_meta":{},"task":{},"name":"a"},"id":1}"#,
                "",
                r#"{"params":{"_meta":{META},"name":"a"},"id":1}"#,
            ),
        ] {
            let found = to_modern(
                &Bytes::from(message),
                &own,
                added,
                Renamed::default(),
                (&mut Scratch::default(), 16),
            );
            let found = found.expect("JSON").to_bytes();
            assert_eq!(String::from_utf8_lossy(&found), expected.replace("META", META), "{message}");
        }
        let message = Bytes::from_static(br#"{"id":1,"params":{"_meta":{"progressToken":"t"}}}"#);
        let renamed = Renamed { id: Some("\"n\""), token: Some("9") };
        let found = to_modern(&message, &own, "", renamed, (&mut Scratch::default(), 16));
        let expected = format!(r#"{{"id":"n","params":{{"_meta":{{{META},"progressToken":9}}}}}}"#);
        assert_eq!(found.expect("JSON").to_bytes(), expected);
    }

    proptest! {
        /// What its envelope says of a request is what a reader finds.
        #[test]
        fn an_envelope_is_enough(
            members in prop::collection::vec(select(&[
                r#""name":"a""#, r#""arguments":{"_meta":{},"task":1}"#, r#""_meta":{}"#, r#""_meta":{ }"#, r#""_meta":null"#,
                r#""_meta":{"progressToken":7}"#, r#""_meta":{"progressToken":1.5}"#, r#""_meta":{"x":1, "progressToken":"t"}"#,
                r#""_meta":{"io.modelcontextprotocol/logLevel":"info","x":1}"#,
                r#""_meta":{"io.modelcontextprotocol\/x":1}"#, r#""\u005fmeta":{}"#, r#""\u005fmeta":7"#, r#""task":{}"#,
                r#""t\u0061sk":{}"#, r#""requestState":"s""#, r#""uri":"u""#, r#""other":[]"#,
            ][..]), 0..4),
            added in select(&["", r#""y":2"#][..]),
            space in select(&["", " "][..]),
        ) {
            let params = members.join(",");
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{space}{params}}}}}"#);
            let message = Bytes::from(message);
            let mut scratch = Scratch::default();
            let renamed = Renamed { id: Some("\"n\""), token: None };
            if let Ok(envelope) = Envelope::parse(&mut scratch, &message, 16)
                && let Some(form) = ModernForm::of(&message, &envelope)
            {
                let read = to_modern(&message, META, added, renamed, (&mut scratch, 16)).expect("JSON");
                prop_assert_eq!(form.write(&message, META, added, "\"n\"").to_bytes(), read.to_bytes());
            }
        }
    }

    #[test]
    fn nearly_all_requests_need_no_reader() {
        for (params, expected) in [
            (r#"{"name":"a","arguments":{"x":1}}"#, true),
            (r#"{"_meta":{"progressToken":1},"name":"a"}"#, true),
            (r#"{"name":"a","task":{}}"#, false),
            (r#"{"name":"a","_meta":7}"#, false),
            (r#"{"name":"a","_meta":{"io.modelcontextprotocol/x":1}}"#, false),
            (r#"{"name":"a","requestState":""}"#, false),
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            let envelope =
                Envelope::parse(&mut Scratch::default(), message.as_bytes(), 16).expect("a message");
            assert_eq!(ModernForm::of(message.as_bytes(), &envelope).is_some(), expected, "{params}");
        }
    }

    #[test]
    fn a_modern_request_loses_what_only_its_era_says() {
        let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
        for (message, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{META},"name":"a"}}"#,
                r#"{"jsonrpc":"2.0","id":"n","method":"m","params":{"name":"a"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a" , "_meta" : {META} }}"#,
                r#"{"jsonrpc":"2.0","id":"n","method":"m","params":{"name":"a"  }}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1, "_meta": {META}, "b":2}}"#,
                r#"{"jsonrpc":"2.0","id":"n","method":"m","params":{"a":1, "b":2}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","requestState":"s","_meta":{META}}}"#,
                r#"{"jsonrpc":"2.0","id":"n","method":"m","params":{"name":"a"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","_meta":{"x":1,META}}}"#,
                r#"{"jsonrpc":"2.0","id":"n","method":"m","params":{"name":"a","_meta":{"x":1}}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","requestState":"s","inputResponses":{},"_meta":{META,"x":1,"progressToken":"p"}}}"#,
                r#"{"jsonrpc":"2.0","id":"n","method":"m","params":{"name":"a","_meta":{"x":1,"progressToken":"t"}}}"#,
            ),
        ] {
            let message = Bytes::from(message.replace("META", meta));
            let mut scratch = Scratch::default();
            let renamed = Renamed { id: Some("\"n\""), token: Some("\"t\"") };
            let envelope = Envelope::parse(&mut scratch, &message, 16).expect("a message");
            let mut taken = Vec::new();
            let take = |key: &str, _: Value<'_>| taken.push(key.to_owned());
            let form = LegacyForm::of(&message, &envelope, (&mut scratch, 16), take).expect("JSON");
            assert!(taken.iter().all(|key| !expected.contains(key)) && taken.len() >= 2, "{taken:?}");
            let found = form.write(&message, "", renamed).to_bytes();
            assert_eq!(String::from_utf8_lossy(&found), expected);
            let found = form.write(&message, r#""task":{}"#, Renamed::default()).to_bytes();
            let with_task = expected.replace(r#""params":{"#, r#""params":{"task":{},"#);
            let with_task = with_task.replace(r#""n""#, "1").replace(r#""t""#, r#""p""#);
            assert_eq!(String::from_utf8_lossy(&found), with_task);
        }
    }
}
