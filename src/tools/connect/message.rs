//! What the two sides write, as far as the way in between must know it. Pure.

use bytes::Bytes;
use http::HeaderMap;

use client::exchange_error::ExchangeError;
use client::message_headers;
use protocol::agreement::name_in_body;
use protocol::envelope::{Envelope, EnvelopeError};
use protocol::error::error_body;
use protocol::initialize;
use protocol::json::{JsonKind, Literal, Scratch, Span, is_integer, quote};
use protocol::method::Method;
use protocol::version::{Era, LegacyVersion};

/// How deep a message may be nested.
pub(super) const DEPTH_MAX: usize = 128;
/// The most messages in one batch.
const BATCH_MAX: usize = 50;

#[derive(Clone, Debug)]
pub(super) struct ClientMessage {
    pub(super) body: Bytes,
    pub(super) envelope: Envelope,
    pub(super) method: Method,
}

impl ClientMessage {
    /// Reads what the client wrote. An error comes with the id that it is to carry.
    pub(super) fn read(scratch: &mut Scratch, body: Bytes) -> Result<Self, (Option<String>, ExchangeError)> {
        let envelope = Envelope::parse(scratch, &body, DEPTH_MAX).map_err(|error| match error {
            EnvelopeError::Json(_) => (None, ExchangeError::NotJson),
            EnvelopeError::Batch => (None, ExchangeError::NotJsonRpc("this session has no batches")),
            EnvelopeError::NotJsonRpc { id, why } => (text(&body, id), ExchangeError::NotJsonRpc(why)),
        })?;
        let name = envelope.method.as_ref().and_then(|method| method.decode(&body));
        let method = name.map_or(Method::Other, |name| Method::of(&name));
        Ok(Self { body, envelope, method })
    }

    pub(super) fn id(&self) -> Option<String> {
        text(&self.body, self.envelope.id.clone())
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.envelope.method.as_ref().is_some_and(|literal| literal.equals(&self.body, method))
    }

    /// The version in `_meta` that makes it a message of the modern era.
    pub(super) fn modern_version(&self) -> Option<String> {
        let version = self.envelope.meta.as_ref()?.protocol_version.as_ref()?.decode(&self.body)?;
        (Era::of_version(&version) != Some(Era::Legacy)).then(|| version.into_owned())
    }

    /// The headers that mirror a message of the modern era.
    pub(super) fn modern_headers(&self, version: &str) -> Result<HeaderMap, ExchangeError> {
        let invalid =
            |_| ExchangeError::NotJsonRpc("params._meta names a protocol version that no header can hold");
        let method = self.envelope.method.as_ref().and_then(|method| method.decode(&self.body));
        let name = self.method.name_source().and_then(|source| name_in_body(&self.envelope, source));
        let name = name.and_then(|name| name.decode(&self.body));
        message_headers::mirrored(version, method.as_deref(), name.as_deref()).map_err(invalid)
    }

    /// The request that a `notifications/cancelled` is about, as [`key`] writes it.
    pub(super) fn cancelled(&self, scratch: &mut Scratch) -> Option<String> {
        let root = scratch.index(&self.body, DEPTH_MAX).ok()?.root();
        key(root.get("params")?.get("requestId")?.raw())
    }
}

fn text(body: &[u8], span: Option<Span>) -> Option<String> {
    std::str::from_utf8(body.get(span?)?).ok().map(str::to_owned)
}

/// One spelling for all literals of the same id: a string without escapes, or an integer.
pub(super) fn key(literal: &[u8]) -> Option<String> {
    if is_integer(literal) {
        return std::str::from_utf8(literal).ok().map(str::to_owned);
    }
    Literal::at(0..literal.len(), literal)
        .decode(literal)
        .filter(|_| literal.starts_with(b"\""))
        .map(|id| quote(&id))
}

/// The messages of a batch; `None` if the text is none.
pub(super) fn batch(scratch: &mut Scratch, body: &Bytes) -> Option<Result<Vec<Bytes>, ExchangeError>> {
    if body.trim_ascii_start().first() != Some(&b'[') {
        return None;
    }
    let Ok(document) = scratch.index(body, DEPTH_MAX) else { return Some(Err(ExchangeError::NotJson)) };
    let messages: Vec<Bytes> = document.root().items().map(|item| body.slice(item.span())).collect();
    Some(match messages.len() {
        0 => Err(ExchangeError::NotJsonRpc("a batch must not be empty")),
        1..=BATCH_MAX => Ok(messages),
        _ => Err(ExchangeError::NotJsonRpc("a batch holds at most 50 messages")),
    })
}

/// What a server says that refuses a request, for the request with this id: with a status of HTTP it need not name
/// the request.
pub(super) fn refusal(scratch: &mut Scratch, body: &[u8], id: &str) -> Option<Bytes> {
    let error = scratch.index(body, DEPTH_MAX).ok()?.root().get("error")?;
    let is_error = error.get("code").is_some_and(|code| code.as_integer().is_some())
        && error.get("message").is_some_and(|message| message.kind() == JsonKind::String);
    let error = std::str::from_utf8(error.raw()).ok().filter(|_| is_error)?;
    Some(Bytes::from(error_body(Some(id), error)))
}

/// The version that the answer to `initialize` agrees to.
pub(super) fn agreed_version(scratch: &mut Scratch, answer: &[u8]) -> Option<LegacyVersion> {
    initialize::version(scratch.index(answer, DEPTH_MAX).ok()?.root().get("result")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> ClientMessage {
        ClientMessage::read(&mut Scratch::default(), Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn the_body_decides_the_era() {
        for (meta, version) in [
            ("", None),
            (r#""_meta":{}"#, None),
            (r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#, Some("2026-07-28")),
            (r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01"}"#, Some("2030-01-01")),
            (r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}"#, None),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{meta}}}}}"#);
            let message = ClientMessage::read(&mut Scratch::default(), Bytes::from(text)).unwrap();
            assert_eq!(message.modern_version().as_deref(), version, "{meta}");
        }
    }

    #[test]
    fn headers_mirror_the_message() {
        for (text, method, name) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\u00e4"}}"#,
                "tools/call",
                Some("=?base64?YcOk?="),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"f:/a b"}}"#,
                "resources/read",
                Some("f:/a b"),
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"a"}}"#, "tools/list", None),
        ] {
            let headers = read(text).modern_headers("2026-07-28").unwrap();
            let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(header("mcp-protocol-version"), Some("2026-07-28"));
            assert_eq!((header("mcp-method"), header("mcp-name")), (Some(method), name), "{text}");
        }
        assert!(read(r#"{"jsonrpc":"2.0","method":"a"}"#).modern_headers("a\nb").is_err());
    }

    #[test]
    fn ids_have_one_spelling() {
        for (one, other) in [("1", "1"), (r#""a""#, r#""\u0061""#)] {
            assert_eq!(key(one.as_bytes()), key(other.as_bytes()));
            assert!(key(one.as_bytes()).is_some());
        }
        assert_ne!(key(b"1"), key(b"\"1\""));
        assert_ne!(key(b"123456789012345678901234567890"), key(b"123456789012345678901234567891"));
        assert_eq!((key(b"null"), key(b"1.5"), key(b"")), (None, None, None));
        let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0061"}}"#;
        assert_eq!(read(text).cancelled(&mut Scratch::default()), key(br#""a""#));
    }

    #[test]
    fn refusals_get_the_id_of_their_request() {
        let mut scratch = Scratch::default();
        for (body, refused) in [
            (
                r#"{"jsonrpc":"2.0","error":{"code":-32022,"message":"no","data":{"a": 1}}}"#,
                Some(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"no","data":{"a": 1}}}"#),
            ),
            (
                r#"{"id":null,"error":{"code":1,"message":""}}"#,
                Some(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}"#),
            ),
            (r#"{"error":"no"}"#, None),
            (r#"{"error":{"code":"1","message":"no"}}"#, None),
            ("Not Found", None),
        ] {
            assert_eq!(refusal(&mut scratch, body.as_bytes(), "7").as_deref(), refused.map(str::as_bytes));
        }
    }

    #[test]
    fn batches_come_apart() {
        let mut scratch = Scratch::default();
        let mut parts = |text: &'static str| batch(&mut scratch, &Bytes::from_static(text.as_bytes()));
        assert_eq!(parts("{}"), None);
        let expected = ["{\"a\": 1}", "2"].map(|part| Bytes::from_static(part.as_bytes()));
        assert_eq!(parts(" [ {\"a\": 1}, 2 ]"), Some(Ok(expected.to_vec())));
        assert_eq!(parts("[1"), Some(Err(ExchangeError::NotJson)));
        assert!(matches!(parts("[]"), Some(Err(ExchangeError::NotJsonRpc(_)))));
    }
}
