//! Messages: what the envelope says is what a slow reading of the whole document says, and arguments are those that
//! `serde_json` finds.

use protocol::arguments::{ArgumentPath, ArgumentValue, CallArgument, CallArguments};
use protocol::envelope::{Envelope, EnvelopeError, oracle};
use protocol::json::{JsonError, Scratch};
use serde_json::Value;

/// The first byte is how deep a message may be nested.
pub fn envelope(input: &[u8]) {
    let Some((depth, body)) = input.split_first() else { return };
    let depth_max = usize::from(*depth);
    let parsed = Envelope::parse(&mut Scratch::default(), body, depth_max);
    let mut expected = oracle::parse(body, depth_max);
    // The slow reading has no words of its own.
    if let (
        Err(EnvelopeError::NotJsonRpc { why, .. }),
        Err(EnvelopeError::NotJsonRpc { why: expected, .. }),
    ) = (&parsed, &mut expected)
    {
        *expected = why;
    }
    // The fast reader stops at the limit, before the mistake.
    let too_deep = Err(EnvelopeError::Json(JsonError::TooDeep));
    if parsed != too_deep || expected != Err(EnvelopeError::Json(JsonError::NotJson)) {
        assert_eq!(parsed, expected);
    }
}

/// The whole input is `params.arguments`.
pub fn arguments(input: &[u8]) {
    let mut scratch = Scratch::default();
    let Ok(document) = scratch.index(input, 64) else { return };
    let paths = ["a", "b.c", "b.d.e"].map(|path| ArgumentPath::read(path).expect("a path"));
    let values = CallArguments::values(&paths, Some(document.root()));
    // A number beyond all floats is none for it.
    let Ok(whole) = serde_json::from_slice::<Value>(input) else { return };
    for (path, value) in [&["a"][..], &["b", "c"], &["b", "d", "e"]].into_iter().zip(values) {
        let found = path.iter().try_fold(&whole, |object, name| object.as_object()?.get(*name));
        match (value, found) {
            (CallArgument::Ambiguous, _) => {}
            (CallArgument::Value(ArgumentValue::Text(text)), Some(Value::String(expected))) => {
                assert_eq!(*text, **expected);
            }
            (CallArgument::Value(ArgumentValue::Boolean(value)), Some(Value::Bool(expected))) => {
                assert_eq!(value, *expected);
            }
            (CallArgument::Value(ArgumentValue::Number(number)), Some(Value::Number(_))) => {
                let again = ArgumentValue::number(&number).expect("what is written is read");
                assert_eq!(again, ArgumentValue::Number(number));
            }
            (
                CallArgument::Missing,
                None | Some(Value::Null | Value::Object(_) | Value::Array(_) | Value::Number(_)),
            ) => {}
            other => panic!("{path:?}: {other:?}"),
        }
    }
}
