//! `initialize`, by which a client opens a session of the legacy era: the messages of it, and the revision that is named
//! on either side. What a modern client asks in its place is `server/discover`.

use crate::json::{Value, quote};
use crate::version::LegacyVersion;

/// What follows a result of `initialize`.
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What the gateway says of itself in a modern request, up to the client's capabilities.
pub const META_START: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"trunkline","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""},"io.modelcontextprotocol/clientCapabilities":"#
);

/// The parameters of the gateway's own `server/discover`.
pub fn discover_params() -> String {
    format!("{{{META_START}{{}}}}}}")
}

/// What a client says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialize<'a> {
    /// The revision that is offered.
    pub version: LegacyVersion,
    /// The client's capabilities, a JSON object.
    pub capabilities: &'a str,
    /// `clientInfo.name`.
    pub client_name: &'a str,
    /// `clientInfo.title`; empty: none.
    pub client_title: &'a str,
    /// `clientInfo.version`.
    pub client_version: &'a str,
}

impl Initialize<'static> {
    /// Offers a revision in Trunkline's own name, without capabilities.
    pub fn own(version: LegacyVersion) -> Self {
        let client_version = env!("CARGO_PKG_VERSION");
        Self { version, capabilities: "{}", client_name: "trunkline", client_title: "", client_version }
    }
}

impl Initialize<'_> {
    /// The request with this id, a JSON literal.
    pub fn request(&self, id: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{}}}"#, self.params())
    }

    /// Its parameters.
    pub fn params(&self) -> String {
        let Self { version, capabilities, client_name, client_title, client_version } = *self;
        let title = if client_title.is_empty() {
            String::new()
        } else {
            format!(r#","title":{}"#, quote(client_title))
        };
        format!(
            r#"{{"protocolVersion":"{}","capabilities":{capabilities},"clientInfo":{{"name":{}{title},"version":{}}}}}"#,
            version.as_str(),
            quote(client_name),
            quote(client_version)
        )
    }
}

/// The revision that parameters or a result of `initialize` name, where it is one of the legacy era.
pub fn version(object: Value<'_>) -> Option<LegacyVersion> {
    LegacyVersion::of(&object.text_of("protocolVersion")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;

    #[test]
    fn a_request_says_what_the_client_said() {
        let own = Initialize::own(LegacyVersion::V2025_06_18).request("1");
        assert!(own.contains(r#""capabilities":{},"clientInfo":{"name":"trunkline","version":""#), "{own}");
        let initialize = Initialize {
            version: LegacyVersion::V2025_06_18,
            capabilities: r#"{ "sampling":{"tools":{}},"elicitation":{"form":{},"url":{}} }"#,
            client_name: "a\"b",
            client_title: "T",
            client_version: "",
        };
        let expected = concat!(
            r#"{"jsonrpc":"2.0","id":"x","method":"initialize","params":{"protocolVersion":"2025-06-18","#,
            r#""capabilities":{ "sampling":{"tools":{}},"elicitation":{"form":{},"url":{}} },"#,
            r#""clientInfo":{"name":"a\"b","title":"T","version":""}}}"#
        );
        assert_eq!(initialize.request("\"x\""), expected);
    }

    #[test]
    fn the_revision_is_read_on_both_sides() {
        for (text, expected) in [
            (r#"{"protocolVersion":"2025-06-18"}"#, Some(LegacyVersion::V2025_06_18)),
            (r#"{"protocolVersion":"2025\u002d06-18"}"#, Some(LegacyVersion::V2025_06_18)),
            (r#"{"protocolVersion":"2026-07-28"}"#, None),
            (r#"{"protocolVersion":1}"#, None),
            ("{}", None),
        ] {
            let mut scratch = Scratch::default();
            let document = scratch.index(text.as_bytes(), 8).expect("valid JSON");
            assert_eq!(version(document.root()), expected, "{text}");
        }
    }
}
