//! Writing `Mcp-Param-*` headers for the arguments of a call.

use super::super::header::encode_value;
use super::super::json::{JsonKind, Literal, Value};
use super::{Annotation, check};

/// The headers that mirror `arguments`, which is `params.arguments` of a call: name and value.
///
/// What cannot be mirrored has no header, and so is refused by a server that expects one: a value that is an object
/// or an array, and everything where readers could disagree about a value.
pub fn mirror<'a>(annotations: &'a [Annotation], arguments: Option<Value<'_>>) -> Vec<(&'a str, String)> {
    let text = arguments.map(Value::text).unwrap_or_default();
    let values = check::values(annotations, arguments).unwrap_or_default();
    let header = |(annotation, value): (&'a Annotation, Option<(JsonKind, _)>)| {
        let (kind, span) = value?;
        let value = match kind {
            JsonKind::String => encode_value(&Literal::at(span, text).decode(text)?).into_owned(),
            JsonKind::Number | JsonKind::True | JsonKind::False => {
                std::str::from_utf8(text.get(span)?).ok()?.to_owned()
            }
            JsonKind::Null | JsonKind::Object | JsonKind::Array => return None,
        };
        Some((&*annotation.header, value))
    };
    annotations.iter().zip(values).filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::super::annotations;
    use super::*;
    use crate::json::Scratch;

    const TOOL: &str = r#"{"name":"t","inputSchema":{"type":"object","properties":{
        "city":{"type":"string","x-mcp-header":"City"},
        "days":{"type":"integer","x-mcp-header":"Days"},
        "at":{"type":"object","properties":{"home":{"type":"boolean","x-mcp-header":"Home"}}}}}}"#;

    #[test]
    fn mirrors_what_has_a_value() {
        let mut scratch = Scratch::default();
        let known = annotations(scratch.index(TOOL.as_bytes(), 16).unwrap().root()).unwrap();
        for (arguments, expected) in [
            (r#"{"city":"Oslo","days":2}"#, &[("mcp-param-city", "Oslo"), ("mcp-param-days", "2")][..]),
            (r#"{"city":"Troms\u00f8","days":null}"#, &[("mcp-param-city", "=?base64?VHJvbXPDuA==?=")]),
            (r#"{"at":{"home":true},"other":1}"#, &[("mcp-param-home", "true")]),
            (r#"{"city":["Oslo"],"at":{}}"#, &[]),
            (r#"{"city":"a","city":"b","days":1}"#, &[]),
            ("[]", &[]),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(arguments.as_bytes(), 16).unwrap().root();
            let headers = mirror(&known, Some(root));
            let written: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(written, expected, "{arguments}");
        }
        assert!(mirror(&known, None).is_empty());
    }
}
