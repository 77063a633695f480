//! `{ file = "…" }`, `{ env = "…" }`, `{ credential = "…" }`: where a secret is read from.
//!
//! A secret never stands in the configuration: it would end in backups, reviews and error messages. What stands in
//! the place of a source is therefore never kept, not even to say what is wrong with it.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::ConfigError;
use super::error::Warning;
use super::resolve::Findings;
use super::value::At;

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

/// What is written where a source is expected. Reading it never fails, so that serde never shows what stood there.
#[derive(Debug, Clone)]
pub(super) enum WrittenSecret {
    Source(SecretSource),
    /// It is no source; what to do instead.
    Refused(&'static str),
}

/// A text that is not secret, or where a secret is read from.
#[derive(Debug, Clone)]
pub(super) enum TextOrSecret {
    Text(String),
    Secret(WrittenSecret),
}

/// What every API key begins with, so that keys that got somewhere are easy to search for.
pub const API_KEY_PREFIX: &str = "tl_";
/// Hexadecimal digits that follow.
const API_KEY_DIGITS: usize = 64;
/// More than anybody has to be told of at once.
const CLEAR_KEYS_TOLD_MAX: usize = 16;

/// A warning for each API key that stands in `text`, be it in a comment: the file is for everybody to read, and holds
/// digests.
pub(super) fn clear_keys(text: &str) -> Vec<Warning> {
    let is_key = |(begin, _): &(usize, &str)| {
        let after = &text.as_bytes()[begin + API_KEY_PREFIX.len()..];
        after.get(..API_KEY_DIGITS).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let keys = text.match_indices(API_KEY_PREFIX).filter(is_key).take(CLEAR_KEYS_TOLD_MAX);
    keys.map(|(begin, _)| {
        let span = begin..begin + API_KEY_PREFIX.len() + API_KEY_DIGITS;
        let message = "a key in clear text: whoever may read this file can use it; remove it, and make its holder a new \
                       one with `trunkline key NAME`";
        Warning::new(span, message).secret()
    })
    .collect()
}

const INLINE: &str = "a secret cannot stand here: write where it is read from, as in `{ file = \"/etc/trunkline/secret\" }`, \
     `{ env = \"NAME\" }` or `{ credential = \"NAME\" }`";
const ONE_KEY: &str = "expected one of `file`, `env` and `credential`, each a string, and nothing else";
const NOT_ABSOLUTE: &str = "`file` is not an absolute path";
const NOT_A_VARIABLE: &str = "`env` is not the name of an environment variable";
const NOT_A_CREDENTIAL: &str = "`credential` is the name of a credential, not a path";

impl WrittenSecret {
    /// The source at `written`, or an error that shows nothing of what stands there.
    pub(super) fn resolve(written: &At<Self>, findings: &mut Findings) -> Option<SecretSource> {
        match &written.value {
            Self::Source(source) => Some(source.clone()),
            Self::Refused(message) => {
                findings.errors.push(ConfigError::new(written.span.clone(), *message).secret());
                None
            }
        }
    }

    fn of(key: &str, value: String) -> Self {
        match key {
            "file" if !value.starts_with('/') || value.contains('\0') => Self::Refused(NOT_ABSOLUTE),
            "file" => Self::Source(SecretSource::File(value.into())),
            "env" if value.is_empty() || value.contains(['=', '\0']) => Self::Refused(NOT_A_VARIABLE),
            "env" => Self::Source(SecretSource::Env(value)),
            "credential" if value.is_empty() || value.contains(['/', '\0']) || value.starts_with('.') => {
                Self::Refused(NOT_A_CREDENTIAL)
            }
            "credential" => Self::Source(SecretSource::Credential(value)),
            _ => Self::Refused(ONE_KEY),
        }
    }
}

impl<'de> Deserialize<'de> for WrittenSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything).map(|(_, secret)| secret)
    }
}

impl<'de> Deserialize<'de> for TextOrSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (text, secret) = deserializer.deserialize_any(Anything)?;
        Ok(text.map_or(Self::Secret(secret), Self::Text))
    }
}

/// Takes whatever stands there: the text, if it is one, and what it is as a source.
struct Anything;

/// What a scalar is: it is not kept.
macro_rules! refuse_scalars {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E: Error>(self, _: $type) -> Result<Self::Value, E> {
            Ok((None, WrittenSecret::Refused(INLINE)))
        })*
    };
}

impl<'de> Visitor<'de> for Anything {
    type Value = (Option<String>, WrittenSecret);

    refuse_scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("where a secret is read from")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok((Some(text.to_owned()), WrittenSecret::Refused(INLINE)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok((None, WrittenSecret::Refused(INLINE)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut count = 0;
        while let Some(key) = entries.next_key::<String>()? {
            let TextOrSecret::Text(value) = entries.next_value::<TextOrSecret>()? else {
                found = None;
                count = usize::MAX;
                continue;
            };
            found = Some(WrittenSecret::of(&key, value));
            count = usize::saturating_add(count, 1);
        }
        let secret = found.filter(|_| count == 1).unwrap_or(WrittenSecret::Refused(ONE_KEY));
        Ok((None, secret))
    }
}

fn source_schema() -> Schema {
    let one = |key: &str, about: &str| {
        json_schema!({
            "type": "object",
            "properties": { key: { "type": "string", "description": about } },
            "required": [key],
            "additionalProperties": false
        })
    };
    json_schema!({
        "oneOf": [
            one("file", "An absolute path. A newline at its end does not count."),
            one("env", "An environment variable of the gateway."),
            one("credential", "A credential that systemd passes: a file in `$CREDENTIALS_DIRECTORY`.")
        ]
    })
}

impl JsonSchema for WrittenSecret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = source_schema();
        schema.insert(
            "description".to_owned(),
            "Where a secret is read from, at start and at every reload.".into(),
        );
        schema
    }
}

impl JsonSchema for TextOrSecret {
    fn schema_name() -> Cow<'static, str> {
        "TextOrSecret".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let secret = generator.subschema_for::<WrittenSecret>();
        json_schema!({ "anyOf": [{ "type": "string" }, secret] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Table {
        secret: At<WrittenSecret>,
    }

    fn read(value: &str) -> WrittenSecret {
        let table: Table = toml::from_str(&format!("secret = {value}")).expect(value);
        table.secret.value
    }

    #[test]
    fn sources_are_read() {
        let cases = [
            (r#"{ file = "/a/b" }"#, SecretSource::File("/a/b".into())),
            (r#"{ env = "A_B" }"#, SecretSource::Env("A_B".to_owned())),
            (r#"{ credential = "api.key" }"#, SecretSource::Credential("api.key".to_owned())),
        ];
        for (text, expected) in cases {
            let WrittenSecret::Source(source) = read(text) else { panic!("{text} was refused") };
            assert_eq!(source, expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_source_is_refused_and_not_kept() {
        let cases = [
            (r#""hunter2""#, INLINE),
            ("7355608", INLINE),
            ("true", INLINE),
            ("1.5", INLINE),
            ("1979-05-27", ONE_KEY),
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
            let refused = read(text);
            assert!(!format!("{refused:?}").contains("hunter2"), "{text}");
            let WrittenSecret::Refused(message) = refused else { panic!("{text} was taken") };
            assert_eq!(message, expected, "{text}");
        }
    }
}
