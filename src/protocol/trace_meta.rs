//! W3C trace context in `params._meta` (SEP-414): what a message says there, and how it says something else.
//!
//! It hands out text; what of it is a valid context is judged elsewhere. A member that stands twice says nothing.

use std::borrow::Cow;

use bytes::Bytes;

use crate::envelope::Envelope;
use crate::json::{Document, Scratch, Span, Value, quote};
use crate::splice::{Edit, splice};
use crate::translation::members::Edits;

/// The names of a trace and of a span of it.
const PARENT: &str = "traceparent";
/// The notes of tracing systems on the way.
const STATE: &str = "tracestate";
/// The words that the members of a trace tell each other.
const BAGGAGE: &str = "baggage";

/// The words of `_meta` about a trace: each as far as it is a string, and stands there once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceMeta {
    /// `traceparent`.
    pub parent: Option<String>,
    /// `tracestate`.
    pub state: Option<String>,
    /// `baggage`.
    pub baggage: Option<String>,
    /// True if one of the first two stands there, whatever it is.
    names_trace: bool,
}

impl TraceMeta {
    /// Reads the `_meta` that stands there. `None`: it says nothing of a trace.
    pub fn read(scratch: &mut Scratch, message: &[u8], meta: &Span, depth_max: usize) -> Option<Self> {
        let root = scratch.index(message.get(meta.clone())?, depth_max).map(Document::root).ok()?;
        let text = |key| root.only(key).and_then(Value::as_str).map(Cow::into_owned);
        let names_trace = [PARENT, STATE].iter().any(|key| root.get(key).is_some());
        let found = Self { parent: text(PARENT), state: text(STATE), baggage: text(BAGGAGE), names_trace };
        (found != Self::default()).then_some(found)
    }

    /// True if it names a trace, or tries to: then it must not name another one than a header does.
    pub fn names_trace(&self) -> bool {
        self.names_trace
    }
}

/// A message that names this `parent` in the `_meta` that stands there, with this `state` or none, and what its envelope
/// is then.
pub fn renamed(
    scratch: &mut Scratch,
    message: &Bytes,
    envelope: &Envelope,
    depth_max: usize,
    names: TraceNames<'_>,
) -> Option<(Bytes, Envelope)> {
    let Span { start, end } = envelope.meta.as_ref()?.span.clone();
    let root = scratch.index(message.get(start..end)?, depth_max).map(Document::root).ok()?;
    let mut members = format!(r#""{PARENT}":{}"#, quote(names.parent));
    if let Some(state) = names.state {
        members = format!(r#"{members},"{STATE}":{}"#, quote(state));
    }
    let mut edits = Edits::default();
    edits.members(root, |key| key == PARENT || key == STATE, &members);
    let mut edits: Vec<Edit> = edits.sorted();
    for Edit { span, .. } in &mut edits {
        *span = span.start + start..span.end + start;
    }
    Some((splice(message, &edits).to_bytes(), envelope.clone().edited(&edits)))
}

/// The trace that a message is to name.
#[derive(Clone, Copy, Debug)]
pub struct TraceNames<'a> {
    /// `traceparent`.
    pub parent: &'a str,
    /// `tracestate`.
    pub state: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(meta: &str) -> (Bytes, Envelope) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","_meta":{meta},"uri":"u"}}}}"#
        );
        let text = Bytes::from(text);
        let envelope = Envelope::parse(&mut Scratch::default(), &text, 16).expect("a message");
        (text, envelope)
    }

    fn read(meta: &str) -> Option<TraceMeta> {
        let (text, envelope) = message(meta);
        TraceMeta::read(&mut Scratch::default(), &text, &envelope.meta.expect("an object").span, 16)
    }

    #[test]
    fn what_stands_there_once_is_read() {
        for (meta, expected) in [
            ("{}", None),
            (r#"{"progressToken":1,"x":{"traceparent":"p"}}"#, None),
            (r#"{"baggage":7}"#, None),
            (
                r#"{"traceparent":"p","tracestate":"s","baggage":"b"}"#,
                Some([Some("p"), Some("s"), Some("b")]),
            ),
            (r#"{"trace\u0070arent":"p"}"#, Some([Some("p"), None, None])),
            (r#"{"traceparent":"p","traceparent":"q"}"#, Some([None; 3])),
            (r#"{"tracestate":{}}"#, Some([None; 3])),
            (r#"{"baggage":"b"}"#, Some([None, None, Some("b")])),
        ] {
            let found = read(meta);
            let said = found
                .as_ref()
                .map(|found| [&found.parent, &found.state, &found.baggage].map(Option::as_deref));
            assert_eq!(said, expected, "{meta}");
            let names_trace = found.is_some_and(|found| found.names_trace());
            assert_eq!(names_trace, expected.is_some() && meta != r#"{"baggage":"b"}"#, "{meta}");
        }
    }

    #[test]
    fn another_trace_is_named_and_all_else_stays() {
        for (meta, state, expected) in [
            (r#"{"traceparent":"p"}"#, None, r#"{"traceparent":"n"}"#),
            (r#"{"tracestate":"s" , "x":[1]}"#, None, r#"{"traceparent":"n","x":[1]}"#),
            (
                r#"{"progressToken":7,"traceparent":"p","baggage":"b","traceparent":9}"#,
                Some("a=\"1"),
                r#"{"traceparent":"n","tracestate":"a=\"1","progressToken":7,"baggage":"b"}"#,
            ),
            (
                r#"{ "io.modelcontextprotocol/protocolVersion":"v","tracestate":"s","io.modelcontextprotocol/clientInfo":{},"traceparent":"p","progressToken":"t"}"#,
                Some("s"),
                r#"{"traceparent":"n","tracestate":"s", "io.modelcontextprotocol/protocolVersion":"v","io.modelcontextprotocol/clientInfo":{},"progressToken":"t"}"#,
            ),
        ] {
            let (text, envelope) = message(meta);
            let names = TraceNames { parent: "n", state };
            let found = renamed(&mut Scratch::default(), &text, &envelope, 16, names);
            let (found, found_envelope) = found.expect("a message");
            let (expected, expected_envelope) = message(expected);
            assert_eq!(found, expected);
            assert_eq!(found_envelope.has_other_names, envelope.has_other_names);
            assert_eq!(found_envelope, expected_envelope, "{meta}");
        }
    }
}
