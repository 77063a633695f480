//! The keys that are read of a message, level by level, and one pass that collects their values.
//!
//! Readers disagree about duplicate keys, and some fold case or drop NULs when they compare them, so a
//! server could see another method or name in the message than we do. At the levels read here, a known
//! key that stands twice, or that equals one of them only in such a reader's eyes, is therefore a
//! doubt, as is a key that is not Unicode. Keys count by value: `"m\u0065thod"` is `method`.

use crate::ambiguity::folded;
use crate::json::{Cursor, JsonKind, Literal, Span, is_integer};

/// The longest accepted `id`, as it is written, in bytes.
const ID_BYTES_MAX: usize = 1024;

/// A known key of one of the levels. Some are not looked at here, but their readers may rely on them
/// being unambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
    Name,
    Uri,
    TaskId,
    Cursor,
    Reference,
    Meta,
    Arguments,
    Notifications,
    RequestState,
    InputResponses,
    ProtocolVersion,
    ClientCapabilities,
    ClientInfo,
    ProgressToken,
    LogLevel,
    ReferenceType,
    ReferenceName,
    ReferenceUri,
}

const FIELD_COUNT: usize = Field::ReferenceUri as usize + 1;

/// The known keys of one object.
pub(super) type KnownKeys = [(&'static str, Field)];

const MESSAGE: &KnownKeys = &[
    ("jsonrpc", Field::Version),
    ("id", Field::Id),
    ("method", Field::Method),
    ("params", Field::Params),
    ("result", Field::Result),
    ("error", Field::Error),
];

pub(super) const PARAMS: &KnownKeys = &[
    ("name", Field::Name),
    ("arguments", Field::Arguments),
    ("_meta", Field::Meta),
    ("uri", Field::Uri),
    ("taskId", Field::TaskId),
    ("cursor", Field::Cursor),
    ("ref", Field::Reference),
    ("notifications", Field::Notifications),
    ("requestState", Field::RequestState),
    ("inputResponses", Field::InputResponses),
];

pub(super) const META: &KnownKeys = &[
    ("io.modelcontextprotocol/protocolVersion", Field::ProtocolVersion),
    ("io.modelcontextprotocol/clientCapabilities", Field::ClientCapabilities),
    ("io.modelcontextprotocol/clientInfo", Field::ClientInfo),
    ("progressToken", Field::ProgressToken),
    ("io.modelcontextprotocol/logLevel", Field::LogLevel),
];

pub(super) const REFERENCE: &KnownKeys =
    &[("type", Field::ReferenceType), ("name", Field::ReferenceName), ("uri", Field::ReferenceUri)];

impl Field {
    /// The keys of the object that is the field's value, if they are read too.
    fn level(self) -> Option<&'static KnownKeys> {
        match self {
            Self::Params => Some(PARAMS),
            Self::Meta => Some(META),
            Self::Reference => Some(REFERENCE),
            _ => None,
        }
    }
}

/// Where the values of the known keys of a message stand.
pub(super) struct EnvelopeFields<'a> {
    text: &'a [u8],
    /// By [`Field`]; empty if there is none.
    spans: [Span; FIELD_COUNT],
    /// By [`Field`]: whether its value has members that are not known.
    has_others: [bool; FIELD_COUNT],
    doubt: Option<&'static str>,
    id_in_doubt: bool,
}

impl<'a> EnvelopeFields<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            spans: [const { 0..0 }; FIELD_COUNT],
            has_others: [false; FIELD_COUNT],
            doubt: None,
            id_in_doubt: false,
        }
    }

    /// Reads the message at the cursor; one that is no object has no fields.
    pub(super) fn read(&mut self, mut message: Cursor<'a>) {
        if message.kind() == JsonKind::Object {
            self.read_object(&mut message, MESSAGE);
        }
    }

    /// Why the message is ambiguous, if it is. Then only the id is of use.
    pub(super) fn doubt(&self) -> Option<&'static str> {
        self.doubt
    }

    /// The id, if it is a Unicode string or an integer, not too long, and not in doubt.
    pub(super) fn id(&self) -> Option<Span> {
        let span = self.string_or_integer(Field::Id).filter(|_| !self.id_in_doubt)?;
        let not_unicode = |id: Literal| id.escaped && id.decode(self.text).is_none();
        if span.len() > ID_BYTES_MAX || self.string(Field::Id).is_some_and(not_unicode) {
            return None;
        }
        Some(span)
    }

    /// Whether the field stands in the message, whatever its value is.
    pub(super) fn has(&self, field: Field) -> bool {
        !self.span(field).is_empty()
    }

    /// Whether the object that is the field's value has members that are not known.
    pub(super) fn has_others(&self, field: Field) -> bool {
        self.has_others[field as usize]
    }

    /// True if the field stands in the message without a value.
    pub(super) fn is_null(&self, field: Field) -> bool {
        self.raw(field) == b"null"
    }

    /// The field, if it is a string.
    pub(super) fn string(&self, field: Field) -> Option<Literal> {
        let is_string = self.raw(field).starts_with(b"\"");
        is_string.then(|| Literal::at(self.span(field), self.text))
    }

    /// Where the field stands, if it is an object.
    pub(super) fn object(&self, field: Field) -> Option<Span> {
        self.raw(field).starts_with(b"{").then(|| self.span(field))
    }

    /// Where the field stands, if it is a string or an integer.
    pub(super) fn string_or_integer(&self, field: Field) -> Option<Span> {
        let raw = self.raw(field);
        (raw.starts_with(b"\"") || is_integer(raw)).then(|| self.span(field))
    }

    /// Where the field stands, if it is a string or any number: `7.0` is an integer to some readers, who write it as `7`.
    pub(super) fn string_or_number(&self, field: Field) -> Option<Span> {
        let is_such = |first: &u8| matches!(first, b'"' | b'-' | b'0'..=b'9');
        self.raw(field).first().is_some_and(is_such).then(|| self.span(field))
    }

    fn raw(&self, field: Field) -> &'a [u8] {
        self.text.get(self.span(field)).unwrap_or_default()
    }

    fn span(&self, field: Field) -> Span {
        self.spans[field as usize].clone()
    }

    /// Reads the object at the cursor, and those of its values that are a level too. Returns whether it has other members.
    fn read_object(&mut self, cursor: &mut Cursor<'a>, level: &KnownKeys) -> bool {
        let mut has_others = false;
        while let Some(key) = cursor.next_key() {
            let written = find_written(&key, self.text, level);
            let Some(field) = written.or_else(|| self.look_closer(key, level)) else {
                cursor.skip();
                has_others = true;
                continue;
            };
            let span = self.read_value(cursor, field);
            let before = std::mem::replace(&mut self.spans[field as usize], span);
            if !before.is_empty() {
                self.refuse("a key stands twice", field);
            }
        }
        has_others
    }

    fn read_value(&mut self, cursor: &mut Cursor<'a>, field: Field) -> Span {
        match field.level() {
            Some(level) if cursor.kind() == JsonKind::Object => {
                let start = *cursor;
                self.has_others[field as usize] = self.read_object(cursor, level);
                cursor.span_since(start)
            }
            _ => cursor.skip(),
        }
    }

    /// Looks at a key that is not written like a known one: whether it is one all the same, or looks
    /// like one to some readers.
    #[cold] // of everyday messages, few have such keys
    fn look_closer(&mut self, key: Span, level: &KnownKeys) -> Option<Field> {
        let literal = Literal::at(key, self.text);
        let alike = match literal.as_bytes(self.text) {
            Some(key) if key.is_ascii() => find_folded(key, level),
            _ => {
                let Some(key) = literal.decode(self.text) else {
                    self.doubt = Some("a key is not Unicode");
                    return None;
                };
                if let Some(field) = find(key.as_bytes(), level) {
                    return Some(field);
                }
                find_folded(folded(&key).as_bytes(), level)
            }
        };
        self.refuse("a key is written in an ambiguous way", alike?);
        None
    }

    fn refuse(&mut self, why: &'static str, field: Field) {
        self.doubt = Some(why);
        self.id_in_doubt |= field == Field::Id;
    }
}

/// The field of a key that is written exactly like a known one. Nothing needs decoding for that, because
/// no known key holds a quote or a backslash.
fn find_written(key: &Span, text: &[u8], level: &KnownKeys) -> Option<Field> {
    let [b'"', key @ .., b'"'] = text.get(key.clone())? else { return None };
    find(key, level)
}

fn find(key: &[u8], level: &KnownKeys) -> Option<Field> {
    level.iter().find(|(known, _)| known.as_bytes() == key).map(|&(_, field)| field)
}

fn find_folded(key: &[u8], level: &KnownKeys) -> Option<Field> {
    level.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(key)).map(|&(_, field)| field)
}
