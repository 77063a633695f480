//! The envelope of a JSON-RPC message: what a proxy must know of it, as ranges of its bytes.
//!
//! [`Envelope::parse`] finds kind, id, method and the few `params` that route a call, and borrows
//! nothing. It reads four levels: the message, `params`, `params._meta` and `params.ref`. A message
//! whose keys are ambiguous at one of them is refused; `fields` says what that means.
//!
//! Deliberately absent: which methods exist, what they require, and whether headers agree.

mod fields;

use super::json::{Document, JsonError, JsonKind, Literal, Scratch, Span};
use super::splice::Edit;
use fields::{EnvelopeFields, Field};

/// What a JSON-RPC message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageKind {
    /// It has a method and an id.
    Request,
    /// It has a method and no id.
    #[default]
    Notification,
    /// It has a result or an error, and no method.
    Response,
}

/// What was found in a message. Spans and literals refer to the body that was parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct Envelope {
    /// What the message is.
    pub kind: MessageKind,
    /// The id as it is written: a string with its quotes, or an integer.
    pub id: Option<Span>,
    /// The method; present unless the message is a response.
    pub method: Option<Literal>,
    /// The `params` object. One that is `null` is none.
    pub params: Option<Span>,
    /// `params.name`, if it is a string.
    pub name: Option<Literal>,
    /// `params.uri`, if it is a string.
    pub uri: Option<Literal>,
    /// `params.taskId`, if it is a string.
    pub task_id: Option<Literal>,
    /// `params.cursor`, if it is a string.
    pub cursor: Option<Literal>,
    /// `params.ref`, if it is one of the two known ones.
    pub reference: Option<Reference>,
    /// `params._meta`, if it is an object.
    pub meta: Option<Meta>,
    /// Whether it goes on with an earlier request: `params` has answers to questions, or what its server keeps by its client.
    pub is_continued: bool,
    /// True if the `requestState` is no string, as it must be.
    pub has_bad_state: bool,
    /// Whether `params` has members that are not known here.
    pub has_other_params: bool,
    /// Whether it may hold names beside those above: in a filter, in answers to questions, or in members of `_meta` that
    /// are not known here.
    pub has_other_names: bool,
}

/// What `completion/complete` completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A prompt, by its name.
    Prompt(Literal),
    /// A resource or template, by its URI.
    Resource(Literal),
}

/// What was found in `params._meta`. The prefix `io.modelcontextprotocol/` is part of the first three keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The whole object.
    pub span: Span,
    /// `protocolVersion`, if it is a string.
    pub protocol_version: Option<Literal>,
    /// `clientCapabilities`, if it is an object.
    pub client_capabilities: Option<Span>,
    /// `clientInfo`, if it is an object.
    pub client_info: Option<Span>,
    /// `progressToken`, if it is a string or a number.
    pub progress_token: Option<Span>,
}

/// Why a body is not a message that can be forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not JSON, or nested too deeply: JSON-RPC error −32700.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// An array of messages: −32600.
    #[error("batches are not supported: send one message in one request")]
    Batch,
    /// JSON, but not one unambiguous JSON-RPC 2.0 message: −32600.
    #[error("not a JSON-RPC 2.0 message: {why}")]
    NotJsonRpc {
        /// The id, if there is a valid one and no doubt about it.
        id: Option<Span>,
        /// What is wrong, for the sender.
        why: &'static str,
    },
}

impl Envelope {
    /// Reads one message. `depth_max` limits the nesting of the whole body.
    pub fn parse(scratch: &mut Scratch, body: &[u8], depth_max: usize) -> Result<Self, EnvelopeError> {
        let parsed = match scratch.index(body, depth_max) {
            Ok(document) => Self::read(document),
            Err(error) => Err(error.into()),
        };
        scratch.release();
        parsed
    }

    /// As [`Envelope::parse`], of a text that somebody reads more of.
    pub fn read(document: Document<'_>) -> Result<Self, EnvelopeError> {
        read_message(document)
    }

    /// What would be found in the same message with an id of this length, a literal.
    #[must_use]
    pub fn with_id(&self, length: usize) -> Self {
        let mut moved = self.clone();
        let Some(id) = self.id.clone() else { return moved };
        // Everything after the id has moved with its end.
        for span in moved.spans_mut().filter(|span| span.start >= id.end) {
            *span = span.start - id.len() + length..span.end - id.len() + length;
        }
        moved.id = Some(id.start..id.start + length);
        moved
    }

    /// The same of the message after these edits, which leave whole what was found.
    #[must_use]
    pub fn edited(mut self, edits: &[Edit]) -> Self {
        let moved = |at: usize| {
            let before = edits.iter().filter(|edit| edit.span.end <= at);
            before.fold(at, |now, edit| (now + edit.with.len()).saturating_sub(edit.span.len()))
        };
        for span in self.spans_mut() {
            *span = moved(span.start)..moved(span.end);
        }
        self.id = self.id.map(|id| moved(id.start)..moved(id.end));
        self
    }

    /// Where things were found, the id left out.
    fn spans_mut(&mut self) -> impl Iterator<Item = &mut Span> {
        let Self { method, params, name, uri, task_id, cursor, reference, meta, .. } = self;
        let named =
            reference.as_mut().map(|(Reference::Prompt(literal) | Reference::Resource(literal))| literal);
        let (mut version, mut of_meta) = (None, [None, None, None]);
        let meta = meta.as_mut().map(|meta| {
            version = meta.protocol_version.as_mut();
            of_meta = [&mut meta.client_capabilities, &mut meta.client_info, &mut meta.progress_token]
                .map(Option::as_mut);
            &mut meta.span
        });
        let literals = [method, name, uri, task_id, cursor].into_iter().flatten().chain(named).chain(version);
        let spans = literals.map(|literal| &mut literal.span).chain(params).chain(meta);
        spans.chain(of_meta.into_iter().flatten())
    }

    /// Whether `message`, which this was read from, is the response to the request of this id, a literal.
    pub fn answers(&self, message: &[u8], id: &[u8]) -> bool {
        self.kind == MessageKind::Response
            && self.id.clone().and_then(|own| message.get(own)).is_some_and(|own| own == id)
    }
}

/// The id of a message that is refused anyway, so that the error can carry it. `None` if the body is not
/// a JSON object, or has no valid id, or leaves any doubt about it.
pub fn find_id(scratch: &mut Scratch, body: &[u8], depth_max: usize) -> Option<Span> {
    let mut fields = EnvelopeFields::new(body);
    if let Ok(document) = scratch.index(body, depth_max) {
        fields.read(document.cursor());
    }
    let id = fields.id();
    scratch.release();
    id
}

fn read_message(document: Document<'_>) -> Result<Envelope, EnvelopeError> {
    let mut fields = EnvelopeFields::new(document.text());
    fields.read(document.cursor());
    let id = fields.id();
    let refuse = |why| Err(EnvelopeError::NotJsonRpc { id: id.clone(), why });

    match document.root().kind() {
        JsonKind::Object => {}
        JsonKind::Array => return Err(EnvelopeError::Batch),
        _ => return refuse("it is not an object"),
    }
    if let Some(why) = fields.doubt() {
        return refuse(why);
    }
    let version = fields.string(Field::Version);
    if !version.is_some_and(|version| version.equals(document.text(), "2.0")) {
        return refuse("jsonrpc must be \"2.0\"");
    }
    if fields.has(Field::Id) && id.is_none() {
        return refuse("id must be a string or an integer of at most 1024 bytes");
    }
    let method = fields.string(Field::Method);
    let kind = match (&method, &id, fields.has(Field::Result) || fields.has(Field::Error)) {
        (Some(_), Some(_), false) => MessageKind::Request,
        (Some(_), None, false) => MessageKind::Notification,
        (None, _, true) if !fields.has(Field::Method) => MessageKind::Response,
        (None, _, false) => return refuse("method must be a string"),
        _ => return refuse("a message has either a method or a result"),
    };
    let params = fields.object(Field::Params);
    if fields.has(Field::Params) && params.is_none() && !fields.is_null(Field::Params) {
        return refuse("params must be an object");
    }
    Ok(Envelope {
        kind,
        id,
        method,
        params,
        name: fields.string(Field::Name),
        uri: fields.string(Field::Uri),
        task_id: fields.string(Field::TaskId),
        cursor: fields.string(Field::Cursor),
        reference: reference(&fields, document.text()),
        meta: meta(&fields),
        is_continued: fields.has(Field::RequestState) || fields.has(Field::InputResponses),
        has_bad_state: fields.has(Field::RequestState) && fields.string(Field::RequestState).is_none(),
        has_other_params: fields.has_others(Field::Params),
        has_other_names: fields.has_others(Field::Meta)
            || fields.has(Field::Notifications)
            || fields.has(Field::InputResponses),
    })
}

fn reference(fields: &EnvelopeFields<'_>, text: &[u8]) -> Option<Reference> {
    let kind = fields.string(Field::ReferenceType)?;
    if kind.equals(text, "ref/prompt") {
        return fields.string(Field::ReferenceName).map(Reference::Prompt);
    }
    if kind.equals(text, "ref/resource") {
        return fields.string(Field::ReferenceUri).map(Reference::Resource);
    }
    None
}

fn meta(fields: &EnvelopeFields<'_>) -> Option<Meta> {
    Some(Meta {
        span: fields.object(Field::Meta)?,
        protocol_version: fields.string(Field::ProtocolVersion),
        client_capabilities: fields.object(Field::ClientCapabilities),
        client_info: fields.object(Field::ClientInfo),
        progress_token: fields.string_or_number(Field::ProgressToken),
    })
}

#[cfg(any(test, fuzzing))]
pub mod oracle;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
