//! A client's message, read and compared with its headers. Nothing that is not one of these is forwarded.
//!
//! Large messages are parsed off the worker, whose other calls would wait for them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;

use crate::context::call::RequestFacts;
use net::tasks::Tasks;
use protocol::agreement::{self, name_in_body};
use protocol::arguments::{ArgumentPath, CallArgument, CallArguments};
use protocol::envelope::{Envelope, EnvelopeError, find_id};
use protocol::error::{ClientError, Error};
use protocol::head::Head;
use protocol::json::{JsonError, Scratch, Span};
use protocol::method::Method;
use protocol::subscription::{self, Filter};
use protocol::version::{Era, Eras};

/// Up to here a message is parsed where it is.
const PARSED_INLINE_BYTES_MAX: usize = 256 * 1024;
/// The revision of a client that names none (Streamable HTTP "Protocol Version Header").
pub(crate) const UNNAMED_VERSION: &str = "2025-03-26";

/// A message that agrees with its headers.
#[derive(Debug)]
pub(crate) struct Message {
    /// As it came.
    pub body: Bytes,
    pub envelope: Envelope,
    pub method: Method,
    pub era: Era,
}

#[derive(Clone, Copy)]
pub(crate) struct MessageReader<'r> {
    pub scratch: &'r RefCell<Scratch>,
    /// Where large messages are parsed.
    pub tasks: &'r Tasks,
    pub depth_max: usize,
    pub served: Eras,
}

impl Message {
    /// This body, of which nothing is known yet.
    pub(crate) fn unread(body: Bytes) -> Self {
        Self { body, envelope: Envelope::default(), method: Method::Other, era: Era::Modern }
    }

    /// The literal of its id.
    pub(crate) fn id(&self) -> &str {
        let id = self.envelope.id.clone().and_then(|id| self.body.get(id));
        id.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or("null")
    }

    pub(crate) fn cursor(&self) -> Result<Option<Cow<'_, str>>, ClientError> {
        let cursor = self.envelope.cursor.as_ref();
        cursor.map(|cursor| cursor.decode(&self.body).ok_or(ClientError::Cursor)).transpose()
    }

    /// The name it is routed by, for the log.
    pub(crate) fn public_name(&self) -> Option<Cow<'_, str>> {
        let literal = name_in_body(&self.envelope, self.method.subject()?)?;
        literal.decode(&self.body)
    }
}

impl MessageReader<'_> {
    /// Parses a message and checks that it agrees with the headers. `seen` is brought up to date as soon as the body
    /// shows more, whatever comes of it.
    pub(crate) async fn read(
        self,
        head: &Head<'_>,
        message: &mut Message,
        seen: &mut RequestFacts,
    ) -> Result<(), ClientError> {
        let Message { body, envelope, .. } = message;
        let parsed = if body.len() <= PARSED_INLINE_BYTES_MAX {
            Envelope::parse(&mut self.scratch.borrow_mut(), body, self.depth_max)
        } else {
            let (body, depth_max) = (body.clone(), self.depth_max);
            let parse = move || Envelope::parse(&mut Scratch::default(), &body, depth_max);
            Box::pin(self.tasks.compute(parse)).await
        };
        *envelope = parsed.map_err(|error| client_error(&error))?;
        let method = match (&envelope.method, head.method.as_str()) {
            // Nearly always the one that the header says.
            (Some(literal), Some(name)) if literal.equals(body, name) => Method::of(name),
            (Some(literal), _) => literal.decode(body).map_or(Method::Other, |name| Method::of(&name)),
            (None, _) => Method::Other,
        };
        let era = era_of(head, envelope, body);
        *seen = RequestFacts { method, era };
        if !self.served.contains(era) {
            return Err(self.not_served(head, envelope, body));
        }
        match era {
            Era::Modern => agreement::check(head, envelope, method, body, self.served)?,
            Era::Legacy => agreement::check_legacy(head, envelope, method, body)?,
        }
        if envelope.has_bad_state && era == Era::Modern {
            return Err(ClientError::Params { why: "params.requestState must be a string" });
        }
        (message.method, message.era) = (method, era);
        Ok(())
    }

    /// What a message is about that was refused, whatever its headers say. `None`: it is large, or no message.
    pub(crate) fn look(self, body: &Bytes) -> Option<Message> {
        if body.is_empty() || body.len() > PARSED_INLINE_BYTES_MAX {
            return None;
        }
        let envelope = Envelope::parse(&mut self.scratch.borrow_mut(), body, self.depth_max).ok()?;
        let method = envelope.method.as_ref()?.decode(body).map_or(Method::Other, |name| Method::of(&name));
        Some(Message { envelope, method, ..Message::unread(body.clone()) })
    }

    /// What a `subscriptions/listen` asks for.
    pub(crate) async fn filter(self, message: &Message, names_max: usize) -> Result<Filter, ClientError> {
        let depth_max = self.depth_max;
        if message.body.len() <= PARSED_INLINE_BYTES_MAX {
            read_filter(&mut self.scratch.borrow_mut(), &message.body, depth_max, names_max)
        } else {
            let body = message.body.clone();
            let read = move || read_filter(&mut Scratch::default(), &body, depth_max, names_max);
            Box::pin(self.tasks.compute(read)).await
        }
    }

    /// What a tool is called with, at the paths of each list.
    pub(crate) async fn arguments<const N: usize>(
        self,
        message: &Message,
        lists: [Option<&Arc<[ArgumentPath]>>; N],
    ) -> Result<[Vec<CallArgument>; N], Error> {
        let params = message.envelope.params.clone().unwrap_or_default();
        let (params, depth_max) = (message.body.slice(params), self.depth_max);
        if params.len() <= PARSED_INLINE_BYTES_MAX {
            let lists = lists.map(|paths| paths.map(|paths| &**paths).unwrap_or_default());
            return read_arguments(&mut self.scratch.borrow_mut(), &params, depth_max, lists);
        }
        let lists = lists.map(|paths| paths.map(Arc::clone).unwrap_or_default());
        let read = move || {
            let lists = std::array::from_fn(|index| &*lists[index]);
            read_arguments(&mut Scratch::default(), &params, depth_max, lists)
        };
        Box::pin(self.tasks.compute(read)).await
    }

    /// The id of a message that is refused, if it has one beyond doubt.
    pub(crate) async fn find_id(self, body: &Bytes) -> Option<Span> {
        let depth_max = self.depth_max;
        if body.len() <= PARSED_INLINE_BYTES_MAX {
            return find_id(&mut self.scratch.borrow_mut(), body, depth_max);
        }
        let body = body.clone();
        self.tasks.compute(move || find_id(&mut Scratch::default(), &body, depth_max)).await
    }

    /// The era is not served; clients that can fall back learn what is.
    fn not_served(self, head: &Head<'_>, envelope: &Envelope, body: &[u8]) -> ClientError {
        let in_meta = || {
            let version = envelope.meta.as_ref()?.protocol_version.as_ref()?;
            version.decode(body).map(String::from)
        };
        let requested = head.version.as_str().map(str::to_owned).or_else(in_meta);
        let requested = requested.or_else(|| self.offered_version(envelope, body));
        let requested = requested.unwrap_or_else(|| UNNAMED_VERSION.to_owned());
        ClientError::Version { requested, served: self.served }
    }

    /// What `initialize` offers.
    fn offered_version(self, envelope: &Envelope, body: &[u8]) -> Option<String> {
        let params = body.get(envelope.params.clone()?)?;
        let mut scratch = self.scratch.borrow_mut();
        let root = scratch.index(params, self.depth_max).ok()?.root();
        root.get("protocolVersion")?.as_literal()?.decode(params).map(String::from)
    }
}

/// The era a message is written in: a legacy header over a modern body is a mismatch, which the agreement finds.
fn era_of(head: &Head<'_>, envelope: &Envelope, body: &[u8]) -> Era {
    let meta_version = envelope.meta.as_ref().and_then(|meta| meta.protocol_version.as_ref());
    let is_modern_body = match head.era() {
        Some(Era::Modern) => true,
        Some(Era::Legacy) => meta_version
            .and_then(|version| version.decode(body))
            .is_some_and(|version| Era::of_version(&version) == Some(Era::Modern)),
        None => meta_version.is_some(),
    };
    if is_modern_body { Era::Modern } else { Era::Legacy }
}

fn read_filter(
    scratch: &mut Scratch,
    body: &[u8],
    depth_max: usize,
    names_max: usize,
) -> Result<Filter, ClientError> {
    let root = scratch.index(body, depth_max).map_err(|_| ClientError::NotJson)?.root();
    let filter = Filter::read(root, names_max).map_err(|why| ClientError::Params { why })?;
    if !filter.task_ids.is_empty() && !subscription::knows_tasks(root) {
        return Err(ClientError::Capability { required: subscription::TASKS_CAPABILITY });
    }
    Ok(filter)
}

fn read_arguments<const N: usize>(
    scratch: &mut Scratch,
    params: &[u8],
    depth_max: usize,
    lists: [&[ArgumentPath]; N],
) -> Result<[Vec<CallArgument>; N], Error> {
    // A call without params has no arguments.
    let params = if params.is_empty() { b"{}" } else { params };
    let root = scratch.index(params, depth_max).map_err(|_| ClientError::NotJson)?.root();
    let arguments = root.get("arguments");
    let mut found = [const { Vec::new() }; N];
    for (values, paths) in found.iter_mut().zip(lists) {
        *values = CallArguments::values(paths, arguments);
    }
    Ok(found)
}

fn client_error(error: &EnvelopeError) -> ClientError {
    match error {
        EnvelopeError::Json(JsonError::NotJson) => ClientError::NotJson,
        EnvelopeError::Json(JsonError::TooDeep) => ClientError::TooDeep,
        EnvelopeError::Batch => ClientError::NotJsonRpc { why: "send one message, not a batch" },
        EnvelopeError::NotJsonRpc { why, .. } => ClientError::NotJsonRpc { why },
    }
}
