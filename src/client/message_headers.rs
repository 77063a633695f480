//! The headers of MCP over Streamable HTTP: those of a session, and those that mirror a message.

use http::header::InvalidHeaderValue;
use http::{HeaderMap, HeaderName, HeaderValue};

use protocol::header::encode_value;
use protocol::version::LegacyVersion;

/// The id of a session.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The headers of whatever is sent in a session, of which the revision may not be agreed to yet.
pub fn in_session(version: Option<LegacyVersion>, id: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.extend(version.map(|version| (PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()))));
    headers.extend(id.map(|id| (SESSION_ID, id.clone())));
    headers
}

/// The headers that mirror a message of the modern era. An error: no header can hold the revision.
pub fn mirrored(
    version: &str,
    method: Option<&str>,
    name: Option<&str>,
) -> Result<HeaderMap, InvalidHeaderValue> {
    let mut headers = HeaderMap::new();
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_str(version)?);
    for (header, value) in [(METHOD, method), (NAME, name)] {
        if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(&encode_value(value))) {
            headers.insert(header, value);
        }
    }
    Ok(headers)
}
