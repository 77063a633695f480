//! The check of an entry of a list, as clients make it. They check a list as a whole: one entry that is not as the
//! specification says costs them all others, too.
//!
//! An entry is judged by what the official SDKs enforce of the schemas of all revisions, taken together, and by nothing
//! else. Members that they do not know are the server's own, as far as their parsers read them. The form of a legacy client's tool that
//! [`tool`](crate::translation::tool) writes otherwise is no fault here.
//!
//! Deliberately absent: schemas below their first level, which a client compiles for each tool alone.

mod date;
#[cfg(test)]
mod tests;
mod unreadable;

use std::fmt::Write as _;

use self::date::is_date_time;
use crate::json::{JsonKind, Value};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the four lists of MCP")]
pub enum EntryKind {
    Tool,
    Prompt,
    Resource,
    Template,
}

/// The reason for which clients refuse an entry. It quotes nothing of the entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} {why}")]
pub struct EntryFault {
    /// Which member, such as `icons[0].src`.
    place: String,
    why: &'static str,
}

/// A member that clients know.
struct Member {
    key: &'static str,
    form: Form,
    is_required: bool,
}

/// The form that a value must have.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Boolean,
    Integer,
    /// A number from 0 to 1.
    Share,
    DateTime,
    /// A URI with its scheme.
    Uri,
    Word(&'static [&'static str]),
    /// An object of which these members are known.
    Object(&'static [Member]),
    Array(&'static Form),
    /// An object whose members are schemas: objects or booleans.
    Schemas,
    InputSchema,
    OutputSchema,
}

const fn required(key: &'static str, form: Form) -> Member {
    Member { key, form, is_required: true }
}

const fn optional(key: &'static str, form: Form) -> Member {
    Member { key, form, is_required: false }
}

const META: Member = optional("_meta", Form::Object(&[]));
const TITLE: Member = optional("title", Form::Text);
const DESCRIPTION: Member = optional("description", Form::Text);
const NAME: Member = required("name", Form::Text);
const MIME_TYPE: Member = optional("mimeType", Form::Text);
const ANNOTATIONS: Member = optional(
    "annotations",
    Form::Object(&[
        optional("audience", Form::Array(&Form::Word(&["user", "assistant"]))),
        optional("priority", Form::Share),
        optional("lastModified", Form::DateTime),
    ]),
);
const ICONS: Member = optional(
    "icons",
    Form::Array(&Form::Object(&[
        required("src", Form::Text),
        MIME_TYPE,
        optional("sizes", Form::Array(&Form::Text)),
        optional("theme", Form::Word(&["light", "dark"])),
    ])),
);
const TOOL: &[Member] = &[
    NAME,
    TITLE,
    DESCRIPTION,
    ICONS,
    META,
    required("inputSchema", Form::InputSchema),
    optional("outputSchema", Form::OutputSchema),
    optional(
        "annotations",
        Form::Object(&[
            TITLE,
            optional("readOnlyHint", Form::Boolean),
            optional("destructiveHint", Form::Boolean),
            optional("idempotentHint", Form::Boolean),
            optional("openWorldHint", Form::Boolean),
        ]),
    ),
    optional(
        "execution",
        Form::Object(&[optional("taskSupport", Form::Word(&["required", "optional", "forbidden"]))]),
    ),
];
const PROMPT: &[Member] = &[
    NAME,
    TITLE,
    DESCRIPTION,
    ICONS,
    META,
    optional(
        "arguments",
        Form::Array(&Form::Object(&[NAME, TITLE, DESCRIPTION, optional("required", Form::Boolean)])),
    ),
];
const RESOURCE: &[Member] = &[
    NAME,
    TITLE,
    DESCRIPTION,
    ICONS,
    META,
    MIME_TYPE,
    ANNOTATIONS,
    required("uri", Form::Uri),
    optional("size", Form::Integer),
];
const TEMPLATE: &[Member] =
    &[NAME, TITLE, DESCRIPTION, ICONS, META, MIME_TYPE, ANNOTATIONS, required("uriTemplate", Form::Text)];
/// Of these, `properties` and `required` count where all clients look at them: in a schema of type `object`.
const SCHEMA_OF_OBJECT: &[Member] =
    &[optional("properties", Form::Schemas), optional("required", Form::Array(&Form::Text))];

/// Schemes of URIs that name a host.
const SCHEMES_WITH_HOST: [&str; 5] = ["http", "https", "ws", "wss", "ftp"];

/// Why clients would refuse the list for this entry. `None`: they take it.
pub fn fault(entry: Value<'_>, kind: EntryKind) -> Option<EntryFault> {
    let members = match kind {
        EntryKind::Tool => TOOL,
        EntryKind::Prompt => PROMPT,
        EntryKind::Resource => RESOURCE,
        EntryKind::Template => TEMPLATE,
    };
    let mut place = String::new();
    let why = unreadable::fault(entry.raw()).or_else(|| Form::Object(members).refuses(entry, &mut place))?;
    Some(EntryFault { place: if place.is_empty() { "it".to_owned() } else { place }, why })
}

impl Form {
    /// Why this is no such value; `place` is then where, else as before.
    fn refuses(self, value: Value<'_>, place: &mut String) -> Option<&'static str> {
        let unless = |is_fine: bool, why| (!is_fine).then_some(why);
        match self {
            Self::Text => unless(value.kind() == JsonKind::String, "must be a string"),
            Self::Boolean => {
                unless(matches!(value.kind(), JsonKind::True | JsonKind::False), "must be true or false")
            }
            Self::Integer => {
                unless(number(value).is_some_and(|number| number.fract() == 0.0), "must be an integer")
            }
            Self::Share => unless(
                number(value).is_some_and(|number| (0.0..=1.0).contains(&number)),
                "must be a number from 0 to 1",
            ),
            Self::DateTime => unless(
                value.as_str().is_some_and(|text| is_date_time(&text)),
                "must be a date and time with its offset, such as 2025-01-12T15:00:58Z",
            ),
            Self::Uri => {
                unless(value.as_str().is_some_and(|text| is_uri(&text)), "must be a URI with its scheme")
            }
            Self::Word(words) => {
                unless(words.iter().any(|word| value.is(word)), "must be one of the values that MCP knows")
            }
            Self::Object(members) => object(value, members, place),
            Self::Array(form) => array(value, *form, place),
            Self::Schemas => {
                let is_schema = |value: Value<'_>| {
                    matches!(value.kind(), JsonKind::Object | JsonKind::True | JsonKind::False)
                };
                let is_fine = value.is_object() && value.entries().all(|(_, value)| is_schema(value));
                unless(is_fine, "must be an object of schemas")
            }
            Self::InputSchema => {
                if !value.is_object() || !is_of_object(value) {
                    return Some("must be an object with type \"object\"");
                }
                // A client takes null for none here, as the schema is handed to it as it is.
                let dialect = value.get("$schema").filter(|dialect| dialect.kind() != JsonKind::Null);
                text_at(dialect, "$schema", place).or_else(|| object(value, SCHEMA_OF_OBJECT, place))
            }
            Self::OutputSchema => {
                if !value.is_object() {
                    return Some("must be an object");
                }
                let members = if is_of_object(value) { SCHEMA_OF_OBJECT } else { &[] };
                text_at(value.get("$schema"), "$schema", place).or_else(|| object(value, members, place))
            }
        }
    }
}

fn object(value: Value<'_>, members: &[Member], place: &mut String) -> Option<&'static str> {
    if !value.is_object() {
        return Some("must be an object");
    }
    let mut seen = 0_u32;
    for (key, found) in value.entries() {
        let known = members.iter().zip(0..).find(|(member, _)| key.equals(value.text(), member.key));
        let Some((member, index)) = known else { continue };
        seen |= 1 << index;
        let length = enter(place, member.key);
        let why = member.form.refuses(found, place);
        if why.is_some() {
            return why;
        }
        place.truncate(length);
    }
    let missing =
        members.iter().zip(0..).find(|(member, index)| member.is_required && seen & (1 << index) == 0);
    enter(place, missing?.0.key);
    Some("is missing")
}

fn array(value: Value<'_>, form: Form, place: &mut String) -> Option<&'static str> {
    if value.kind() != JsonKind::Array {
        return Some("must be an array");
    }
    for (index, item) in value.items().enumerate() {
        let length = place.len();
        // Writing to a string does not fail.
        let _ = write!(place, "[{index}]");
        let why = form.refuses(item, place);
        if why.is_some() {
            return why;
        }
        place.truncate(length);
    }
    None
}

fn text_at(value: Option<Value<'_>>, key: &str, place: &mut String) -> Option<&'static str> {
    let why = Form::Text.refuses(value?, place)?;
    enter(place, key);
    Some(why)
}

/// Goes to a member. Returns how long the place was.
fn enter(place: &mut String, key: &str) -> usize {
    let length = place.len();
    if length > 0 {
        place.push('.');
    }
    place.push_str(key);
    length
}

fn is_of_object(schema: Value<'_>) -> bool {
    schema.get("type").is_some_and(|kind| kind.is("object"))
}

/// A number as clients read it; `None` also for one that is beyond their range.
fn number(value: Value<'_>) -> Option<f64> {
    let number: f64 = value.source().parse().ok()?;
    (value.kind() == JsonKind::Number && number.is_finite()).then_some(number)
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.trim_start().split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let has_host = SCHEMES_WITH_HOST.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_scheme && (!has_host || !rest.trim_start_matches(['/', '\\']).is_empty())
}
