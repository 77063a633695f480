//! Whether a message agrees with its headers, in the order the specification gives the errors.
//!
//! "Server Validation" of Streamable HTTP 2026-07-28, and the per-request fields of `_meta`. Legacy messages need
//! no mirrored headers; the draft that added them to sessions has them checked where they are sent. It reads no
//! schema, so `Mcp-Param-*` is only checked for form; it knows no names, so routing is not its business.

use super::envelope::{Envelope, MessageKind};
use super::error::ClientError;
use super::head::{Head, HeaderField};
use super::json::Literal;
use super::method::{Method, NameSource};
use super::version::{Era, Eras};

/// What headers alone show to be wrong, so that no body need be awaited: a mirrored header is sent twice or
/// malformed, or a method that needs a name comes without one. `method` is the header's.
pub fn check_headers(head: &Head<'_>, method: Method) -> Result<(), ClientError> {
    if !head.version.as_str().is_some_and(|version| Era::of_version(version) == Some(Era::Modern)) {
        return match head.version {
            HeaderField::Many => Err(ClientError::mismatch("MCP-Protocol-Version is sent twice")),
            _ => Ok(()),
        };
    }
    check_form(head)?;
    if head.method.is_present() && method.name_source().is_some() {
        decoded_name(head)?;
    } else if head.name.is_present() && method.is_nameless() {
        return Err(ClientError::mismatch("Mcp-Name is sent with a method that has no name"));
    }
    Ok(())
}

fn check_form(head: &Head<'_>) -> Result<(), ClientError> {
    if head.method.is_present() {
        sent_once(head.method, "Mcp-Method")?;
    }
    if head.name.is_present() {
        decoded_name(head)?;
    }
    if head.has_bad_param {
        return Err(ClientError::mismatch("an Mcp-Param header is sent twice or holds invalid characters"));
    }
    Ok(())
}

/// Checks `envelope` against `head` after the message was parsed: version unknown, required `_meta`, headers
/// missing, malformed or unequal. `method` is the body's method.
pub fn check(
    head: &Head<'_>,
    envelope: &Envelope,
    method: Method,
    body: &[u8],
    served: Eras,
) -> Result<(), ClientError> {
    if envelope.kind == MessageKind::Response {
        return Err(ClientError::NotJsonRpc { why: "responses are not accepted in this revision" });
    }
    if envelope.kind == MessageKind::Notification && method != Method::Notification {
        return Err(ClientError::NotJsonRpc { why: "a request needs an id" });
    }
    let body_version = envelope.meta.as_ref().and_then(|meta| meta.protocol_version.as_ref());
    check_version_is_known(head, body_version, body, served)?;
    if envelope.kind == MessageKind::Request {
        check_meta(envelope)?;
        check_version_agrees(head, body_version, body)?;
    }
    check_form(head)?;
    check_method(head, envelope, body)?;
    // A method that was removed mirrors nothing; it is refused as unknown.
    if method.is_foreign_to(Era::Modern) { Ok(()) } else { check_name(head, envelope, method, body) }
}

/// Checks the mirrored headers of a legacy message, if it has any. `method` is the body's method.
pub fn check_legacy(
    head: &Head<'_>,
    envelope: &Envelope,
    method: Method,
    body: &[u8],
) -> Result<(), ClientError> {
    if !head.method.is_present() {
        return match head.name {
            HeaderField::Absent if head.has_param => {
                Err(ClientError::mismatch("Mcp-Param headers are sent without Mcp-Method"))
            }
            HeaderField::Absent => Ok(()),
            _ => Err(ClientError::mismatch("Mcp-Name is sent without Mcp-Method")),
        };
    }
    check_form(head)?;
    check_method(head, envelope, body)?;
    let needs_name = matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
    if needs_name || head.name.is_present() { check_name(head, envelope, method, body) } else { Ok(()) }
}

fn check_version_is_known(
    head: &Head<'_>,
    body_version: Option<&Literal>,
    body: &[u8],
    served: Eras,
) -> Result<(), ClientError> {
    let Some(version) = head.version.as_str() else { return Ok(()) };
    let agrees = || body_version.is_none_or(|literal| literal.equals(body, version));
    if Era::of_version(version).is_none() && agrees() {
        return Err(ClientError::Version { requested: version.to_owned(), served });
    }
    Ok(())
}

fn check_meta(envelope: &Envelope) -> Result<(), ClientError> {
    let missing = |why| Err(ClientError::Params { why });
    match &envelope.meta {
        None => {
            missing("params._meta is missing; it carries the protocol version and the client's capabilities")
        }
        Some(meta) if meta.protocol_version.is_none() => {
            missing("params._meta lacks io.modelcontextprotocol/protocolVersion")
        }
        Some(meta) if meta.client_capabilities.is_none() => {
            missing("params._meta lacks io.modelcontextprotocol/clientCapabilities")
        }
        Some(_) => Ok(()),
    }
}

fn check_version_agrees(
    head: &Head<'_>,
    body_version: Option<&Literal>,
    body: &[u8],
) -> Result<(), ClientError> {
    let version = sent_once(head.version, "MCP-Protocol-Version")?;
    if body_version.is_some_and(|literal| literal.equals(body, version)) {
        Ok(())
    } else {
        Err(ClientError::mismatch("MCP-Protocol-Version does not match the version in params._meta"))
    }
}

/// Notifications need no headers in this revision, but what they send must be true.
fn check_method(head: &Head<'_>, envelope: &Envelope, body: &[u8]) -> Result<(), ClientError> {
    if envelope.kind == MessageKind::Notification && !head.method.is_present() {
        return Ok(());
    }
    let method = sent_once(head.method, "Mcp-Method")?;
    if envelope.method.as_ref().is_some_and(|literal| literal.equals(body, method)) {
        Ok(())
    } else {
        Err(ClientError::mismatch("Mcp-Method does not match the method in the body"))
    }
}

fn check_name(head: &Head<'_>, envelope: &Envelope, method: Method, body: &[u8]) -> Result<(), ClientError> {
    let Some(source) = method.subject() else {
        return if head.name.is_present() && method.is_nameless() {
            Err(ClientError::mismatch("Mcp-Name is sent with a method that has no name"))
        } else {
            Ok(())
        };
    };
    let name = decoded_name(head)?;
    if name_in_body(envelope, source).is_some_and(|literal| literal.equals(body, name)) {
        Ok(())
    } else {
        let why = format!("Mcp-Name does not match {}", source.path());
        Err(ClientError::HeaderMismatch { why: why.into() })
    }
}

/// The decoded `Mcp-Name`, which must be there exactly once.
fn decoded_name<'h>(head: &'h Head<'_>) -> Result<&'h str, ClientError> {
    match (&head.decoded_name, head.name) {
        (Some(name), _) => Ok(name),
        (None, HeaderField::Absent | HeaderField::Many) => sent_once(head.name, "Mcp-Name"),
        (None, HeaderField::One(_) | HeaderField::Malformed) => {
            Err(ClientError::mismatch("Mcp-Name holds invalid characters or broken base64"))
        }
    }
}

/// The value of a header that must be there exactly once.
fn sent_once<'h>(header: HeaderField<'h>, name: &str) -> Result<&'h str, ClientError> {
    let fault = match header {
        HeaderField::One(value) => return Ok(value),
        HeaderField::Absent => "is missing",
        HeaderField::Many => "is sent twice",
        HeaderField::Malformed => "holds invalid characters",
    };
    Err(ClientError::HeaderMismatch { why: format!("{name} {fault}").into() })
}

/// The literal in `params` that `Mcp-Name` mirrors.
pub fn name_in_body(envelope: &Envelope, source: NameSource) -> Option<&Literal> {
    match source {
        NameSource::Name => envelope.name.as_ref(),
        NameSource::Uri => envelope.uri.as_ref(),
        NameSource::TaskId => envelope.task_id.as_ref(),
    }
}
