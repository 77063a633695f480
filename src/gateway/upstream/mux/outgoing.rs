//! A caller's message as a shared connection carries it: another id and progress token, and on one line.
//!
//! Trace headers move into `_meta`, where the message has none there, as nothing else would carry them.

use bytes::Bytes;
use memchr::memmem;

use protocol::envelope::Envelope;
use protocol::json::{Document, Scratch, Span, Value, quote};
use protocol::splice::{Edit, Segments, splice};

/// The names of what [`request`] is told of a trace.
const TRACE_NAMES: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// So many of them name the trace: they are written together, or not at all.
const OF_ONE_TRACE: usize = 2;

/// A request under the id `own`.
pub(crate) fn request(message: &Bytes, envelope: &Envelope, own: u64, trace: &[Option<&str>; 3]) -> Segments {
    let own = Bytes::from(own.to_string());
    let mut edits = Vec::with_capacity(3);
    edits.extend(envelope.id.clone().map(|span| Edit { span, with: own.clone() }));
    let token = envelope.meta.as_ref().and_then(|meta| meta.progress_token.clone());
    edits.extend(token.map(|span| Edit { span, with: own }));
    edits.extend(with_trace(message, envelope, trace));
    edits.sort_by_key(|edit| edit.span.start);
    on_one_line(splice(message, &edits))
}

/// A notification or response: it has no id that would have to be another.
pub(crate) fn unchanged(message: Bytes) -> Segments {
    on_one_line(message.into())
}

/// `notifications/cancelled` about the call that runs under `own`. `request_id`: what stands for it in the message.
pub(crate) fn cancellation(message: &Bytes, request_id: Span, own: u64) -> Segments {
    on_one_line(splice(message, &[Edit { span: request_id, with: own.to_string().into() }]))
}

/// Where `notifications/cancelled` says which request it is about.
pub(crate) fn cancelled_id(scratch: &mut Scratch, message: &[u8], depth_max: usize) -> Option<Span> {
    let root = scratch.index(message, depth_max).ok().map(Document::root)?;
    root.get("params")?.get("requestId").map(Value::span)
}

/// What ends the call `own` where no caller's message does.
pub(crate) fn cancel(own: u64, why: &str) -> Segments {
    let why = quote(why);
    Segments::from(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{own},"reason":{why}}}}}"#
    ))
}

fn with_trace(message: &Bytes, envelope: &Envelope, trace: &[Option<&str>; 3]) -> Option<Edit> {
    if *trace == [None; 3] {
        return None;
    }
    let meta = envelope.meta.as_ref().map(|meta| meta.span.clone());
    let meta_text = meta.clone().and_then(|meta| message.get(meta)).unwrap_or_default();
    let stands_there = |name: &&str| memmem::find(meta_text, name.as_bytes()).is_some();
    let names_trace = TRACE_NAMES.iter().take(OF_ONE_TRACE).any(stands_there);
    let mut members = String::new();
    for (at, (name, value)) in TRACE_NAMES.iter().zip(trace).enumerate() {
        let is_there = if at < OF_ONE_TRACE { names_trace } else { stands_there(name) };
        if let Some(value) = value.filter(|_| !is_there) {
            let comma = if members.is_empty() { "" } else { "," };
            members = format!("{members}{comma}\"{name}\":{}", quote(value));
        }
    }
    if members.is_empty() {
        return None;
    }
    let (object, member) = match (meta, &envelope.params) {
        (Some(meta), _) => (meta, members),
        (None, Some(params)) => (params.clone(), format!("\"_meta\":{{{members}}}")),
        (None, None) => (0..message.len(), format!("\"params\":{{\"_meta\":{{{members}}}}}")),
    };
    let start = object.start + memchr::memchr(b'{', message.get(object.clone())?)? + 1;
    let is_empty = message.get(start..object.end)?.trim_ascii_start().starts_with(b"}");
    let with = if is_empty { member } else { member + "," };
    Some(Edit { span: start..start, with: with.into() })
}

/// Line ends stand only between the parts of a JSON text, never within one, so that spaces do as well.
fn on_one_line(message: Segments) -> Segments {
    if message.iter().all(|piece| memchr::memchr2(b'\n', b'\r', piece).is_none()) {
        return message;
    }
    let is_line_end = |byte: u8| matches!(byte, b'\n' | b'\r');
    let bytes = message.to_bytes();
    let line: Vec<u8> = bytes.iter().map(|byte| if is_line_end(*byte) { b' ' } else { *byte }).collect();
    Segments::from(Bytes::from(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &'static str, trace: &[Option<&str>; 3]) -> String {
        let message = Bytes::from_static(message.as_bytes());
        let envelope = Envelope::parse(&mut Scratch::default(), &message, 16).expect("a message");
        String::from_utf8(request(&message, &envelope, 42, trace).to_bytes().to_vec()).expect("text")
    }

    #[test]
    fn only_id_and_token_change() {
        for (message, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, r#"{"jsonrpc":"2.0","id":42,"method":"ping"}"#),
            (
                r#"{"method":"a","params":{"_meta":{"progressToken":"t","x":1.0e2}, "id":7},"id":"x","jsonrpc":"2.0"}"#,
                r#"{"method":"a","params":{"_meta":{"progressToken":42,"x":1.0e2}, "id":7},"id":42,"jsonrpc":"2.0"}"#,
            ),
            (
                "{\"jsonrpc\":\"2.0\",\r\n \"id\":1,\n\"method\":\"a\\n\"}",
                "{\"jsonrpc\":\"2.0\",   \"id\":42, \"method\":\"a\\n\"}",
            ),
        ] {
            assert_eq!(written(message, &[None; 3]), expected);
        }
    }

    #[test]
    fn the_trace_goes_where_it_is_absent() {
        let trace = [Some("00-1"), Some("a=\"b\""), Some("k=v")];
        let members = r#""traceparent":"00-1","tracestate":"a=\"b\"","baggage":"k=v""#;
        for (rest, expected) in [
            ("", format!(r#"{{"params":{{"_meta":{{{members}}}}},"jsonrpc":"2.0","id":42,"method":"a"}}"#)),
            (
                r#","params":{ }"#,
                format!(r#"{{"jsonrpc":"2.0","id":42,"method":"a","params":{{"_meta":{{{members}}} }}}}"#),
            ),
            (
                r#","params":{"a":1}"#,
                format!(
                    r#"{{"jsonrpc":"2.0","id":42,"method":"a","params":{{"_meta":{{{members}}},"a":1}}}}"#
                ),
            ),
            (
                r#","params":{"_meta":{"progressToken":3}}"#,
                format!(
                    r#"{{"jsonrpc":"2.0","id":42,"method":"a","params":{{"_meta":{{{members},"progressToken":42}}}}}}"#
                ),
            ),
            (
                r#","params":{"_meta":{"traceparent":"x"}}"#,
                r#"{"jsonrpc":"2.0","id":42,"method":"a","params":{"_meta":{"baggage":"k=v","traceparent":"x"}}}"#
                    .into(),
            ),
            (
                r#","params":{"_meta":{"tracestate":"x","baggage":"y"}}"#,
                r#"{"jsonrpc":"2.0","id":42,"method":"a","params":{"_meta":{"tracestate":"x","baggage":"y"}}}"#
                    .into(),
            ),
            (
                r#","params":{"_meta":{"baggage":"y"}}"#,
                r#"{"jsonrpc":"2.0","id":42,"method":"a","params":{"_meta":{"traceparent":"00-1","tracestate":"a=\"b\"","baggage":"y"}}}"#
                    .into(),
            ),
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a"{rest}}}"#);
            assert_eq!(written(message.leak(), &trace), expected);
        }
    }

    #[test]
    fn a_cancellation_names_the_call_as_the_connection_does() {
        let message = Bytes::from_static(
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"x"}}"#,
        );
        let span = cancelled_id(&mut Scratch::default(), &message, 16).expect("an id");
        assert_eq!(
            cancellation(&message, span, 9).to_bytes(),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,"reason":"x"}}"#
        );
        assert_eq!(cancelled_id(&mut Scratch::default(), br#"{"jsonrpc":"2.0","method":"x"}"#, 16), None);
    }
}
