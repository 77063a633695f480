//! How a server introduced itself. Pure.

use serde_json::{Value, json};

use super::error::texts;
use protocol::version::Era;

/// How a server introduced itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Introduction {
    /// The era that is spoken.
    pub era: Era,
    /// The revision that is spoken.
    pub version: String,
    /// The revisions that the server lists; in the legacy era the agreed one alone.
    pub supported: Vec<String>,
    /// Its name, if it gave one.
    pub name: Option<String>,
    /// Its name for people, if it gave one.
    pub title: Option<String>,
    /// Its own version, if it gave one.
    pub server_version: Option<String>,
    /// `ServerCapabilities`.
    pub capabilities: Value,
    /// What it says about its use.
    pub instructions: Option<String>,
    /// The whole result of `server/discover` or `initialize`.
    pub result: Value,
}

impl Introduction {
    /// Reads the result of `server/discover` or `initialize`.
    pub fn read(era: Era, version: &str, result: Value) -> Self {
        let own = result.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo"));
        let info = own.or_else(|| result.get("serverInfo")).unwrap_or(&Value::Null);
        let text = |key: &str| info.get(key).and_then(Value::as_str).map(str::to_owned);
        let supported = match era {
            Era::Modern => texts(result.get("supportedVersions").unwrap_or(&Value::Null)),
            Era::Legacy => vec![version.to_owned()],
        };
        Self {
            era,
            version: version.to_owned(),
            supported,
            name: text("name"),
            title: text("title"),
            server_version: text("version"),
            capabilities: result.get("capabilities").cloned().unwrap_or_else(|| json!({})),
            instructions: result.get("instructions").and_then(Value::as_str).map(str::to_owned),
            result,
        }
    }

    /// Whether the server declares this capability, `tools` for example.
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|value| !value.is_null())
    }
}
