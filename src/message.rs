//! A client's message, read and compared with its headers. Nothing that is not one of these is forwarded.
//!
//! Large messages are parsed off the worker, whose other calls would wait for them.

use std::borrow::Cow;
use std::cell::RefCell;

use bytes::Bytes;

use crate::protocol::agreement::{self, name_in_body};
use crate::protocol::envelope::{Envelope, EnvelopeError, find_id};
use crate::protocol::error::ClientError;
use crate::protocol::head::Head;
use crate::protocol::json::{JsonError, Scratch, Span};
use crate::protocol::method::Method;
use crate::protocol::version::Version;
use crate::tasks::Tasks;

/// Up to here a message is parsed where it is.
const PARSED_INLINE_BYTES_MAX: usize = 256 * 1024;
/// The revision of a client that names none (Streamable HTTP "Protocol Version Header").
const UNNAMED_VERSION: &str = "2025-03-26";

/// A modern message that agrees with its headers.
#[derive(Debug)]
pub struct Message {
    /// As it came.
    pub body: Bytes,
    /// What was found in it.
    pub envelope: Envelope,
    /// Its method.
    pub method: Method,
}

/// What reading messages needs.
#[derive(Clone, Copy)]
pub struct Reader<'r> {
    /// Memory for checking JSON.
    pub scratch: &'r RefCell<Scratch>,
    /// Where large messages are parsed.
    pub tasks: &'r Tasks,
    /// `json_depth_max`
    pub depth_max: usize,
}

impl Message {
    /// The literal of its id.
    pub fn id(&self) -> &str {
        let id = self.envelope.id.clone().and_then(|id| self.body.get(id));
        id.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or("null")
    }

    /// The name it is routed by, for the log.
    pub fn public_name(&self) -> Option<String> {
        let literal = name_in_body(&self.envelope, self.method.name_source()?)?;
        literal.decode(&self.body).map(Cow::into_owned)
    }
}

impl Reader<'_> {
    /// Parses a body and checks that it agrees with the headers. `method` becomes the body's as soon as it is known.
    pub async fn read(
        self,
        head: &Head<'_>,
        body: Bytes,
        method: &mut Method,
    ) -> Result<Message, ClientError> {
        let envelope = self.parse(&body).await.map_err(|error| client_error(&error))?;
        let name = envelope.method.as_ref().and_then(|literal| literal.decode(&body));
        *method = name.map_or(Method::Other, |name| Method::of(&name));
        self.check_era(head, &envelope, &body)?;
        agreement::check(head, &envelope, *method, &body)?;
        Ok(Message { body, envelope, method: *method })
    }

    /// The id of a message that is refused, if it has one beyond doubt.
    pub async fn find_id(self, body: &Bytes) -> Option<Span> {
        let depth_max = self.depth_max;
        if body.len() <= PARSED_INLINE_BYTES_MAX {
            return find_id(&mut self.scratch.borrow_mut(), body, depth_max);
        }
        let body = body.clone();
        self.tasks.compute(move || find_id(&mut Scratch::default(), &body, depth_max)).await
    }

    async fn parse(self, body: &Bytes) -> Result<Envelope, EnvelopeError> {
        let depth_max = self.depth_max;
        if body.len() <= PARSED_INLINE_BYTES_MAX {
            return Envelope::parse(&mut self.scratch.borrow_mut(), body, depth_max);
        }
        let body = body.clone();
        let parse = move || Envelope::parse(&mut Scratch::default(), &body, depth_max);
        Box::pin(self.tasks.compute(parse)).await
    }

    /// Legacy messages are not served; clients that can fall back learn what is.
    fn check_era(self, head: &Head<'_>, envelope: &Envelope, body: &[u8]) -> Result<(), ClientError> {
        let meta_version = envelope.meta.as_ref().and_then(|meta| meta.protocol_version.as_ref());
        let header_version = head.version.as_str();
        let is_legacy = match header_version.map(Version::of) {
            Some(Version::Modern | Version::Unknown) => false,
            Some(Version::Legacy) => true,
            None => !head.version.is_present() && meta_version.is_none(),
        };
        // A legacy header over a modern body is a mismatch, which the agreement finds.
        let is_modern_body = meta_version
            .and_then(|version| version.decode(body))
            .is_some_and(|version| Version::of(&version) == Version::Modern);
        if !is_legacy || is_modern_body {
            return Ok(());
        }
        let requested = header_version.map(str::to_owned).or_else(|| self.offered_version(envelope, body));
        Err(ClientError::Version { requested: requested.unwrap_or_else(|| UNNAMED_VERSION.to_owned()) })
    }

    /// What `initialize` offers.
    fn offered_version(self, envelope: &Envelope, body: &[u8]) -> Option<String> {
        let params = body.get(envelope.params.clone()?)?;
        let mut scratch = self.scratch.borrow_mut();
        let root = scratch.index(params, self.depth_max).ok()?.root();
        root.get("protocolVersion")?.as_literal()?.decode(params).map(String::from)
    }
}

fn client_error(error: &EnvelopeError) -> ClientError {
    match error {
        EnvelopeError::Json(JsonError::NotJson) => ClientError::NotJson,
        EnvelopeError::Json(JsonError::TooDeep) => ClientError::TooDeep,
        EnvelopeError::Batch => ClientError::NotJsonRpc { why: "send one message, not a batch" },
        EnvelopeError::NotJsonRpc { why, .. } => ClientError::NotJsonRpc { why },
    }
}
