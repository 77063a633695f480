//! `{ file = "…" }`, `{ env = "…" }`, `{ credential = "…" }`: where a secret is read from.
//!
//! A secret never stands in the configuration: it would end in backups, reviews and error messages. What stands in
//! the place of a source is therefore never shown, not even to say what is wrong with it.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::error::Diagnostic;
use super::findings::{Findings, Node};
use super::schema::Definitions;
use super::table::Table;
use super::value::Setting;

/// Where a secret is read from, at start and at every reload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretSource {
    /// A file, an absolute path.
    File(PathBuf),
    /// An environment variable of the gateway.
    Env(String),
    /// A credential that systemd passes: a file in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Env(name) => write!(f, "the environment variable {name}"),
            Self::Credential(name) => write!(f, "the credential {name}"),
        }
    }
}

/// Where a secret is read from.
#[derive(Debug)]
pub struct SecretPlace;

/// A text that is not secret, or where a secret is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextOrSecret {
    /// Written in the configuration.
    Text(String),
    /// Read from elsewhere.
    Secret(SecretSource),
}

impl Setting for SecretPlace {
    type Out = SecretSource;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<SecretSource> {
        let refuse = |message: &'static str| {
            if message == NOT_ABSOLUTE && names_a_plain_path(node) {
                findings.errors.push(Diagnostic::error(node.span(), message).beside_secret());
            } else {
                findings.secret_error(node.span(), message);
            }
        };
        let found = source(node).map_err(refuse).ok()?;
        let name = match &found {
            SecretSource::File(path) => path.display().to_string(),
            named => named.to_string(),
        };
        findings.named.0.push((name, node.span()));
        Some(found)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let one = |key: &str, about: &str| {
            json!({
                "type": "object",
                "properties": { key: { "type": "string", "description": about } },
                "required": [key],
                "additionalProperties": false
            })
        };
        let secret = json!({
            "oneOf": [
                one("file", "An absolute path. A newline at its end does not count."),
                one("env", "An environment variable of the gateway."),
                one("credential", "A credential that systemd passes: a file in `$CREDENTIALS_DIRECTORY`.")
            ],
            "description": "Where a secret is read from, at start and at every reload."
        });
        definitions.named("Secret", secret)
    }
}

impl Setting for TextOrSecret {
    type Out = Self;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self> {
        match node.get_ref() {
            DeValue::String(text) => Some(Self::Text(text.to_string())),
            _ => SecretPlace::read(node, findings).map(Self::Secret),
        }
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let any_of = json!({ "anyOf": [{ "type": "string" }, SecretPlace::schema(definitions)] });
        definitions.named("TextOrSecret", any_of)
    }
}

/// What every API key begins with, so that keys that got somewhere are easy to search for.
pub const API_KEY_PREFIX: &str = "tl_";
/// Hexadecimal digits that follow.
const API_KEY_DIGITS: usize = 64;
/// More than anybody has to be told of at once.
const CLEAR_KEYS_TOLD_MAX: usize = 16;

/// A warning for each API key that stands in `text`, be it in a comment: the file is for everybody to read, and holds
/// digests.
pub(super) fn clear_keys(text: &str) -> Vec<Diagnostic> {
    let is_key = |(begin, _): &(usize, &str)| {
        let after = &text.as_bytes()[begin + API_KEY_PREFIX.len()..];
        after.get(..API_KEY_DIGITS).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let keys = text.match_indices(API_KEY_PREFIX).filter(is_key).take(CLEAR_KEYS_TOLD_MAX);
    keys.map(|(begin, _)| {
        let span = begin..begin + API_KEY_PREFIX.len() + API_KEY_DIGITS;
        let message = "a key in clear text: whoever may read this file can use it; remove it, and make its holder a new \
                       one with `trunkline key NAME`";
        Diagnostic::warning(span, message).of_secret()
    })
    .collect()
}

const INLINE: &str = "a secret cannot stand here: write where it is read from, as in `{ file = \"/etc/trunkline/secret\" }`, \
     `{ env = \"NAME\" }` or `{ credential = \"NAME\" }`";
const ONE_KEY: &str = "expected one of `file`, `env` and `credential`, each a string, and nothing else";
const NOT_ABSOLUTE: &str = "`file` is not an absolute path: write one that begins with `/`, such as `{ file = \"/etc/trunkline/secret\" }`";
/// What names of files end with that hold secrets.
const FILE_ENDINGS: [&str; 7] = [".pem", ".key", ".crt", ".txt", ".token", ".secret", ".json"];
const NOT_A_VARIABLE: &str = "`env` is the name of an environment variable: write `{ env = \"NAME\" }`";
const NOT_A_CREDENTIAL: &str = "`credential` is the name of a credential, not a path";

/// Whether `file` is certainly a path, and not a secret in its place: it is told to people.
fn names_a_plain_path(node: &Node<'_>) -> bool {
    Table::of(node).and_then(|table| table.get("file")?.get_ref().as_str()).is_some_and(is_plain_path)
}

/// Whether a text is certainly the path of a file.
pub(super) fn is_plain_path(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte))
        && FILE_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

fn source(node: &Node<'_>) -> Result<SecretSource, &'static str> {
    let mut entries = Table::of(node).ok_or(INLINE)?.entries();
    let (Some((key, value)), None) = (entries.next(), entries.next()) else { return Err(ONE_KEY) };
    let value = value.get_ref().as_str().ok_or(ONE_KEY)?;
    match key.get_ref().as_ref() {
        "file" if !value.starts_with('/') || value.contains('\0') => Err(NOT_ABSOLUTE),
        "file" => Ok(SecretSource::File(value.into())),
        "env" if value.is_empty() || value.contains(['=', '\0', '$']) => Err(NOT_A_VARIABLE),
        "env" => Ok(SecretSource::Env(value.to_owned())),
        "credential" if value.is_empty() || value.contains(['/', '\0', '$']) || value.starts_with('.') => {
            Err(NOT_A_CREDENTIAL)
        }
        "credential" => Ok(SecretSource::Credential(value.to_owned())),
        _ => Err(ONE_KEY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<SecretSource, &'static str> {
        source(&DeValue::parse(value).expect(value))
    }

    #[test]
    fn a_plain_path_is_told_from_a_secret() {
        for (text, expected) in [
            (r#"{ file = "key.pem" }"#, true),
            (r#"{ file = "keys/ci.token" }"#, true),
            (r#"{ file = "hunter2" }"#, false),
            (r#"{ file = "pa$$word.pem" }"#, false),
            (r#""key.pem""#, false),
        ] {
            assert_eq!(names_a_plain_path(&DeValue::parse(text).expect(text)), expected, "{text}");
        }
    }

    #[test]
    fn sources_are_read() {
        let cases = [
            (r#"{ file = "/a/b" }"#, SecretSource::File("/a/b".into())),
            (r#"{ env = "A_B" }"#, SecretSource::Env("A_B".to_owned())),
            (r#"{ credential = "api.key" }"#, SecretSource::Credential("api.key".to_owned())),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_source_is_refused() {
        let cases = [
            (r#""hunter2""#, INLINE),
            ("7355608", INLINE),
            ("true", INLINE),
            ("1.5", INLINE),
            ("1979-05-27", INLINE),
            (r#"["hunter2"]"#, INLINE),
            ("{}", ONE_KEY),
            (r#"{ value = "hunter2" }"#, ONE_KEY),
            (r#"{ env = "A", file = "/hunter2" }"#, ONE_KEY),
            (r#"{ env = { file = "/hunter2" } }"#, ONE_KEY),
            (r"{ env = 7355608 }", ONE_KEY),
            (r#"{ env = "" }"#, NOT_A_VARIABLE),
            (r#"{ env = "A=hunter2" }"#, NOT_A_VARIABLE),
            (r#"{ file = "hunter2" }"#, NOT_ABSOLUTE),
            (r#"{ credential = "../hunter2" }"#, NOT_A_CREDENTIAL),
            (r#"{ credential = ".." }"#, NOT_A_CREDENTIAL),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), Err(expected), "{text}");
        }
    }
}
