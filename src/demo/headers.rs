//! Reading the mirrored headers and comparing them with the body they mirror (Streamable HTTP, "Request
//! Metadata").
//!
//! What is deliberately absent: annotations below the top level of an input schema; no demo tool has one.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use serde_json::{Map, Value};

use super::rpc::RpcFault;

/// The header's value, or `None` without it. Twice or with bytes outside printable ASCII it is malformed.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, RpcFault> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(RpcFault::header_mismatch(format!("{name} was sent more than once")));
    }
    match value.to_str() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(RpcFault::header_mismatch(format!("{name} has invalid characters"))),
    }
}

/// Refuses a header `name` that does not say what the body says; `None` is absence.
pub(super) fn compare(name: &str, header: Option<&str>, body: Option<&str>) -> Result<(), RpcFault> {
    match (header, body) {
        (header, body) if header == body => Ok(()),
        (None, _) => Err(RpcFault::header_mismatch(format!("{name} is required"))),
        (Some(header), Some(body)) => Err(RpcFault::header_mismatch(format!(
            "{name} header value '{header}' does not match body value '{body}'"
        ))),
        (Some(header), None) => {
            Err(RpcFault::header_mismatch(format!("{name} header value '{header}' has no body value")))
        }
    }
}

/// The same without the sentinel `=?base64?…?=`.
pub(super) fn decoded<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<Cow<'a, str>>, RpcFault> {
    single(headers, name)?.map(|value| decode(name, value)).transpose()
}

fn decode<'a>(name: &str, value: &'a str) -> Result<Cow<'a, str>, RpcFault> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(Cow::Borrowed(value));
    };
    let decoded = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.map(Cow::Owned).ok_or_else(|| RpcFault::header_mismatch(format!("{name} is not Base64 of UTF-8")))
}

/// Checks every parameter that `input_schema` marks with `x-mcp-header` against its `Mcp-Param-…` header.
pub(super) fn compare_parameters(
    headers: &HeaderMap,
    input_schema: &Value,
    arguments: &Map<String, Value>,
) -> Result<(), RpcFault> {
    for (property, schema) in input_schema["properties"].as_object().into_iter().flatten() {
        let Some(suffix) = schema["x-mcp-header"].as_str() else { continue };
        let name = format!("Mcp-Param-{suffix}");
        let header = decoded(headers, &name)?;
        let argument = arguments.get(property).filter(|argument| !argument.is_null());
        if !agree(header.as_deref(), argument) {
            let header = header.as_deref().unwrap_or("(absent)");
            let argument = argument.map_or_else(|| "(absent)".to_owned(), Value::to_string);
            let message =
                format!("{name} header value {header} does not match argument {property} {argument}");
            return Err(RpcFault::header_mismatch(message));
        }
    }
    Ok(())
}

/// Integers are compared as numbers: `42.0` equals 42.
fn agree(header: Option<&str>, argument: Option<&Value>) -> bool {
    match (header, argument) {
        (None, None) => true,
        (Some(header), Some(Value::String(argument))) => header == argument,
        (Some(header), Some(Value::Bool(argument))) => header == argument.to_string(),
        (Some(header), Some(Value::Number(argument))) => header.parse::<f64>().ok() == argument.as_f64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sentinels_are_decoded_and_the_rest_is_left_alone() {
        let cases = [
            ("oslo", Some("oslo")),
            ("=?base64?WsO8cmljaA==?=", Some("Zürich")),
            ("=?base64??=", Some("")),
            ("=?BASE64?WsO8cmljaA==?=", Some("=?BASE64?WsO8cmljaA==?=")),
            ("=?base64?", Some("=?base64?")),
            ("=?base64?***?=", None),
            ("=?base64?/w==?=", None),
        ];
        for (value, expected) in cases {
            assert_eq!(decode("Mcp-Name", value).ok().as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn parameters_agree_by_value_and_not_by_spelling() {
        let cases = [
            (None, None, true),
            (Some("oslo"), Some(json!("oslo")), true),
            (Some("Oslo"), Some(json!("oslo")), false),
            (Some("true"), Some(json!(true)), true),
            (Some("True"), Some(json!(true)), false),
            (Some("42.0"), Some(json!(42)), true),
            (Some("forty"), Some(json!(42)), false),
            (Some("oslo"), None, false),
            (None, Some(json!("oslo")), false),
            (Some("[]"), Some(json!([])), false),
        ];
        for (header, argument, expected) in cases {
            assert_eq!(agree(header, argument.as_ref()), expected, "{header:?} {argument:?}");
        }
    }
}
