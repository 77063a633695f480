//! `x-mcp-header`: tool parameters that are mirrored in `Mcp-Param-*` headers (2026-07-28, Streamable HTTP,
//! "Custom Headers from Tool Parameters").
//!
//! [`annotations`] reads them from a tool's definition; a tool with an invalid one must not be listed.
//! [`check()`] compares the headers of a call with its arguments, [`mirror()`] writes them.
//!
//! Deliberately absent: the rest of JSON Schema, so whether arguments fit it; `$ref` is never followed. A key
//! counts where a schema can stand, however it is escaped; in data (`default`, `examples`, `const`, `enum`)
//! and under unknown keywords it means nothing.
//!
//! Invariants: every text is read once, from front to back, and recursion is as deep as the text is nested,
//! which its reader limits. What two readers could take differently, such as a key that stands twice, is
//! invalid or a mismatch.

mod check;
mod mirror;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use super::header::is_token;
use super::json::{Cursor, JsonKind, Literal, Span, Value};
use super::key_scan::KeyScan;

pub use check::{ParamFault, ParamMismatch, check};
pub use mirror::mirror;

const KEY: &str = "x-mcp-header";

/// Over this many annotations, a tool is invalid: its calls would have more header fields than servers take.
const ANNOTATIONS_MAX: usize = 100;

/// All names on the way to an annotation, in bytes: they are kept for each.
const PATH_BYTES_MAX: usize = 1024;

/// Of a property in an error, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// Keywords whose value is a schema or an array of schemas, on the way to which nothing may be annotated.
const SCHEMAS: &[&str] = &[
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "unevaluatedItems",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];

/// Keywords whose value is an object of schemas, with the same effect.
const NAMED_SCHEMAS: &[&str] =
    &["patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];

/// A parameter that is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The header's whole name in lower case: `mcp-param-…`.
    pub header: Box<str>,
    /// The keys that lead from `arguments` to the parameter.
    pub path: Box<[Box<str>]>,
    /// The parameter's type.
    pub kind: ParamKind,
}

/// The type of a mirrored parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "types of JSON Schema")]
pub enum ParamKind {
    String,
    Integer,
    Boolean,
}

/// Why the annotations of a tool are invalid. The property is named by its path, shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAnnotation {
    /// It stands at the root, or on the way to it stands something else than `properties`.
    #[error("x-mcp-header stands where a chain of `properties` does not lead, near {near:?}")]
    Unreachable {
        /// The last property on the way.
        near: Box<str>,
    },
    /// It is no string, or empty, or has characters that the name of a header cannot have.
    #[error("x-mcp-header of {property:?} is not a string that can be part of a header's name")]
    NotToken {
        /// The annotated property.
        property: Box<str>,
    },
    /// The property's `type` is not `string`, `integer` or `boolean`.
    #[error("x-mcp-header of {property:?} needs one type: string, integer or boolean")]
    NotPrimitive {
        /// The annotated property.
        property: Box<str>,
    },
    /// Another property has the same name, in any case.
    #[error("x-mcp-header of {property:?} is the same as another one's, in any case")]
    NotUnique {
        /// The annotated property.
        property: Box<str>,
    },
    /// A key of a schema that has annotations stands twice or is not Unicode.
    #[error("the input schema has x-mcp-header, and a key that stands twice or is not Unicode")]
    Ambiguous,
    /// More annotations than a request can have headers, or one with too long a path.
    #[error("the input schema has more than {ANNOTATIONS_MAX} x-mcp-header, or one below too long names")]
    TooMany,
}

/// The mirrored parameters of `tool`, an entry of `tools/list`.
pub fn annotations(tool: Value<'_>) -> Result<Vec<Annotation>, InvalidAnnotation> {
    if !may_be_annotated(tool.raw()) {
        return Ok(Vec::new());
    }
    let text = tool.text();
    let mut walk = SchemaWalk { text, path: Vec::new(), found: Vec::new(), is_ambiguous: false };
    let mut schemas = 0;
    for (_, schema) in tool.entries().filter(|(key, _)| key.equals(text, "inputSchema")) {
        walk.schema(&mut schema.cursor(), true)?;
        schemas += 1;
    }
    if (walk.is_ambiguous || schemas > 1) && !walk.found.is_empty() {
        return Err(InvalidAnnotation::Ambiguous);
    }
    Ok(walk.found)
}

/// Whether the key stands somewhere in `bytes`, or one that escapes a character of it.
fn may_be_annotated(bytes: &[u8]) -> bool {
    static KEYS: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&[KEY]));
    KEYS.may_be_in(bytes)
}

/// One way through an input schema.
struct SchemaWalk<'a> {
    text: &'a [u8],
    /// The properties that lead here, those behind another keyword included.
    path: Vec<Cow<'a, str>>,
    found: Vec<Annotation>,
    is_ambiguous: bool,
}

impl<'a> SchemaWalk<'a> {
    /// Reads the schema at the cursor; `is_reachable` if only `properties` lead to it.
    fn schema(&mut self, cursor: &mut Cursor<'a>, is_reachable: bool) -> Result<(), InvalidAnnotation> {
        if cursor.kind() != JsonKind::Object {
            cursor.skip();
            return Ok(());
        }
        let (mut name, mut kind) = (None, None);
        let mut seen = HashSet::new();
        while let Some(key) = cursor.next_key() {
            match &*self.key(&key, &mut seen) {
                KEY => name = Some(cursor.skip()),
                "type" => kind = Some(cursor.skip()),
                "properties" => self.named(cursor, is_reachable)?,
                key if SCHEMAS.contains(&key) => self.one_or_many(cursor)?,
                key if NAMED_SCHEMAS.contains(&key) => self.named(cursor, false)?,
                _ => {
                    cursor.skip();
                }
            }
        }
        match name {
            Some(name) if is_reachable && !self.path.is_empty() => self.add(name, kind),
            Some(_) => Err(InvalidAnnotation::Unreachable { near: self.shown_path() }),
            None => Ok(()),
        }
    }

    fn named(&mut self, cursor: &mut Cursor<'a>, is_reachable: bool) -> Result<(), InvalidAnnotation> {
        if cursor.kind() != JsonKind::Object {
            cursor.skip();
            return Ok(());
        }
        let mut seen = HashSet::new();
        while let Some(key) = cursor.next_key() {
            let key = self.key(&key, &mut seen);
            self.path.push(key);
            self.schema(cursor, is_reachable)?;
            self.path.pop();
        }
        Ok(())
    }

    fn one_or_many(&mut self, cursor: &mut Cursor<'a>) -> Result<(), InvalidAnnotation> {
        if cursor.kind() != JsonKind::Array {
            return self.schema(cursor, false);
        }
        while cursor.next_item() {
            self.schema(cursor, false)?;
        }
        Ok(())
    }

    /// The key at `span`; `seen` are those that stand before it.
    fn key(&mut self, span: &Span, seen: &mut HashSet<Cow<'a, str>>) -> Cow<'a, str> {
        let Some(key) = Literal::at(span.clone(), self.text).decode(self.text) else {
            self.is_ambiguous = true;
            return Cow::Borrowed("");
        };
        self.is_ambiguous |= !seen.insert(key.clone());
        key
    }

    /// Adds an annotation of the property that the path leads to.
    fn add(&mut self, name: Span, kind: Option<Span>) -> Result<(), InvalidAnnotation> {
        let property = self.shown_path();
        let Some(name) = self.string(name).filter(|name| !name.is_empty() && name.chars().all(is_token))
        else {
            return Err(InvalidAnnotation::NotToken { property });
        };
        let kind = match kind.and_then(|kind| self.string(kind)).as_deref() {
            Some("string") => ParamKind::String,
            Some("integer") => ParamKind::Integer,
            Some("boolean") => ParamKind::Boolean,
            _ => return Err(InvalidAnnotation::NotPrimitive { property }),
        };
        let header = format!("mcp-param-{}", name.to_ascii_lowercase()).into_boxed_str();
        if self.found.iter().any(|other| other.header == header) {
            return Err(InvalidAnnotation::NotUnique { property });
        }
        let path_bytes: usize = self.path.iter().map(|key| key.len()).sum();
        if self.found.len() == ANNOTATIONS_MAX || path_bytes > PATH_BYTES_MAX {
            return Err(InvalidAnnotation::TooMany);
        }
        let path = self.path.iter().map(|key| Box::from(&**key)).collect();
        self.found.push(Annotation { header, path, kind });
        Ok(())
    }

    fn string(&self, span: Span) -> Option<Cow<'a, str>> {
        let is_string = self.text.get(span.start) == Some(&b'"');
        Literal::at(span, self.text).decode(self.text).filter(|_| is_string)
    }

    fn shown_path(&self) -> Box<str> {
        self.path.join(".").chars().take(SHOWN_CHARS_MAX).collect()
    }
}

#[cfg(test)]
mod tests;
