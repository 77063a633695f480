//! Strings with a grammar: what each may hold is said once, and checked where it is read.

use std::borrow::Cow;
use std::path::PathBuf;

use globset::Glob as Pattern;
use serde_json::{Value as Json, json};

use super::error::Diagnostic;
use super::findings::{Findings, Node};
use super::outline::is_shown_text;
use super::schema::Definitions;
use super::secret::is_plain_path;
use super::value::Setting;

/// What is wrong with a string, and what to write instead.
pub(super) type Fault = Cow<'static, str>;

/// A kind of string.
pub trait Grammar {
    /// What it becomes.
    type Out;
    /// A regular expression for editors; it may let more pass than [`Grammar::parse`].
    const PATTERN: &'static str = "";
    /// Whether what is no such string may be a secret. One with an `@` always may: passwords stand before it in URLs.
    const MAY_BE_SECRET: bool = false;
    /// Whether errors name it: a file, or an address to listen at.
    const IS_PLACE: bool = false;

    /// What may have been meant by what is no such string.
    fn suggestion(_: &str) -> Option<String> {
        None
    }

    /// Reads it.
    fn parse(text: &str) -> Result<Self::Out, Fault>;
}

impl<T: Grammar> Setting for T {
    type Out = T::Out;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<T::Out> {
        let Some(text) = node.get_ref().as_str() else {
            findings.is_not(node, "a string");
            return None;
        };
        match T::parse(text) {
            Ok(out) => {
                if T::IS_PLACE {
                    findings.named.0.push((text.to_owned(), node.span()));
                }
                Some(out)
            }
            Err(fault) => {
                // What may not be shown is not repeated either.
                let is_repeated = T::MAY_BE_SECRET || text.is_empty() || is_shown_text(&findings.path, text);
                let fault = if is_repeated { fault } else { fault.replace(text, "…").into() };
                if T::MAY_BE_SECRET || text.contains('@') {
                    findings.secret_error(node.span(), fault);
                } else {
                    let error = Diagnostic::error(node.span(), fault).suggest(T::suggestion(text));
                    let is_file = T::IS_PLACE && is_plain_path(text);
                    findings.errors.push(if is_file { error.beside_secret() } else { error });
                }
                None
            }
        }
    }

    fn schema(_: &mut Definitions) -> Json {
        match T::PATTERN {
            "" => json!({ "type": "string" }),
            pattern => json!({ "type": "string", "pattern": pattern }),
        }
    }
}

/// Declares kinds of strings: `Name -> Out, "pattern", parse`; `secret: true` for what may be a secret where it is wrong,
/// `place: true` for what errors name, and `words: &[…]` for what may have been meant where it is wrong.
macro_rules! texts {
    ($($(#[doc = $doc:literal])+ $vis:vis $name:ident -> $out:ty, $pattern:expr, $parse:expr $(, secret: $secret:expr)? $(, place: $place:expr)? $(, words: $words:expr)?;)+) => { $(
        $(#[doc = $doc])+
        #[derive(Debug)]
        $vis struct $name;

        impl $crate::text::Grammar for $name {
            type Out = $out;
            const PATTERN: &'static str = $pattern;
            $(const MAY_BE_SECRET: bool = $secret;)?
            $(const IS_PLACE: bool = $place;)?
            $(fn suggestion(text: &str) -> Option<String> { $crate::value::meant(text, $words) })?

            fn parse(text: &str) -> Result<$out, $crate::text::Fault> {
                $parse(text)
            }
        }
    )+ };
}
pub(super) use texts;

/// A check as a parser: the text itself, if `is_valid`.
pub(super) fn checked(text: &str, is_valid: bool, fault: &'static str) -> Result<String, Fault> {
    if is_valid { Ok(text.to_owned()) } else { Err(fault.into()) }
}

texts! {
    /// Any string.
    pub Any -> String, "", |text: &str| Ok(text.to_owned());
    /// A path that means the same wherever the process was started.
    pub AbsolutePath -> PathBuf, "^/", |text: &str| checked(
        text,
        text.starts_with('/') && !text.contains('\0'),
        "not an absolute path: write one that begins with `/`, such as \"/etc/trunkline/file\"",
    ).map(PathBuf::from), place: true;
    /// A glob over names.
    pub Glob -> String, "", |text: &str| match Pattern::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("not a glob: {}", error.kind()).into()),
    };
    /// The name of a key, an issuer.
    pub KeyName -> String, "^[A-Za-z0-9._@-]{1,64}$", |text: &str| checked(
        text,
        is_key_name(text),
        "not a name: use 1 to 64 letters, digits and `.`, `_`, `@`, `-`",
    );
    /// The name of a rule, a limit.
    pub RuleName -> String, "^[A-Za-z0-9._-]{1,64}$", |text: &str| checked(
        text,
        is_key_name(text) && !text.contains('@'),
        "not a name: use 1 to 64 letters, digits and `.`, `_`, `-`",
    );
    /// A scope as RFC 6749 §3.3 has it.
    pub Scope -> String, "", |text: &str| checked(
        text,
        is_scope(text),
        "not a scope: 1 to 256 visible ASCII characters, without spaces, quotes and `\\`; name each by itself",
    );
    /// The name of a group.
    pub GroupName -> String, "", |text: &str| checked(
        text,
        is_scope(text),
        "not the name of a group: 1 to 256 visible ASCII characters, without spaces, quotes and `\\`",
    );
    /// What is compared with a claim of a token, byte for byte.
    pub Audience -> String, "", |text: &str| checked(
        text,
        is_plain(text, 512),
        "not an audience: 1 to 512 bytes of visible ASCII",
    );
}

/// Whether `name` may name an API key: 1 to 64 letters, digits and `.`, `_`, `@`, `-`.
pub fn is_key_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte))
}

pub(super) fn is_plain(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(super) fn is_scope(text: &str) -> bool {
    is_plain(text, 256) && !text.contains(['"', '\\'])
}
