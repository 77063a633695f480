//! A message that came over a shared connection: what it is, and where it names whom it belongs to.
//!
//! Pure. Whether there is such a call is [`pending_calls`](super::pending_calls)'s to say.

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem;

use protocol::envelope::{Envelope, EnvelopeError, MessageKind, find_id};
use protocol::json::{Document, Scratch, Span, Value};
use protocol::level::Level;
use protocol::splice::{Edit, Segments, splice};

/// Where messages of a subscription say which one.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
static NAMED_SUBSCRIPTION: LazyLock<memmem::Finder<'_>> =
    LazyLock::new(|| memmem::Finder::new(SUBSCRIPTION_ID));

/// What a message is. Spans are of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IncomingKind {
    /// The answer to a call.
    Response {
        id: OwnNumber,
        /// Where it repeats it, as the id of a subscription.
        repeated: Option<Span>,
    },
    /// An answer that leaves in doubt what it says.
    Doubtful {
        id: OwnNumber,
    },
    Progress {
        token: OwnNumber,
    },
    /// A change that belongs to a subscription, which is a call.
    OfSubscription {
        id: OwnNumber,
    },
    /// `notifications/cancelled`.
    Cancelled {
        id: OwnNumber,
    },
    /// A request to the client.
    Request {
        id: Span,
        /// Whether it only asks whether anybody is there.
        is_ping: bool,
    },
    Log {
        /// How severe it is, where that is known.
        level: Option<Level>,
    },
    /// `notifications/resources/updated`
    Updated {
        uri: Box<str>,
    },
    /// Any other notification.
    Notification,
}

/// A number of ours in a message. `None` if what stands there is no number of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnNumber {
    /// The number that this process gave to the call.
    pub own: Option<u64>,
    /// Where it stands.
    pub span: Span,
}

impl OwnNumber {
    fn at(span: Span, message: &[u8]) -> Self {
        let literal = message.get(span.clone()).and_then(|literal| str::from_utf8(literal).ok());
        // A number has many spellings in JSON, but a server gives back the one it got, or that of a fraction.
        let own = literal.and_then(|literal| literal.parse().ok().or_else(|| whole(literal)));
        Self { own, span }
    }

    /// The message with `literal` in its place, and at `repeated`.
    pub(crate) fn replaced(&self, message: &Bytes, literal: &Bytes, repeated: Option<&Span>) -> Segments {
        let edit = |span: &Span| Edit { span: span.clone(), with: literal.clone() };
        let Some(repeated) = repeated else { return splice(message, &[edit(&self.span)]) };
        let mut edits = [edit(&self.span), edit(repeated)];
        edits.sort_by_key(|edit| edit.span.start);
        splice(message, &edits)
    }
}

/// Reads a message. `None`: it is none.
pub(crate) fn read(scratch: &mut Scratch, message: &[u8], depth_max: usize) -> Option<IncomingKind> {
    let envelope = match Envelope::parse(scratch, message, depth_max) {
        Ok(envelope) => envelope,
        Err(EnvelopeError::NotJsonRpc { .. }) => {
            return match find_id(scratch, message, depth_max) {
                Some(id) => Some(IncomingKind::Doubtful { id: OwnNumber::at(id, message) }),
                None => read_with_fraction(scratch, message, depth_max),
            };
        }
        Err(_) => return None,
    };
    let method = |name: &str| envelope.method.as_ref().is_some_and(|method| method.equals(message, name));
    match envelope.kind {
        MessageKind::Response => {
            let repeated =
                NAMED_SUBSCRIPTION.find(message).and_then(|_| repeated_id(scratch, message, depth_max));
            Some(IncomingKind::Response { id: OwnNumber::at(envelope.id?, message), repeated })
        }
        MessageKind::Request => {
            Some(IncomingKind::Request { id: envelope.id.clone()?, is_ping: method("ping") })
        }
        MessageKind::Notification => {
            let params = envelope.params.clone();
            let of_params = params.and_then(|_| {
                let root = scratch.index(message, depth_max).ok().map(Document::root)?;
                read_notification(root.get("params")?, message, &method)
            });
            scratch.release();
            Some(of_params.unwrap_or(if method("notifications/message") {
                IncomingKind::Log { level: None }
            } else {
                IncomingKind::Notification
            }))
        }
    }
}

fn read_notification(
    params: Value<'_>,
    message: &[u8],
    method: &impl Fn(&str) -> bool,
) -> Option<IncomingKind> {
    let named = |value: Value<'_>| OwnNumber::at(value.span(), message);
    let text = |value: Value<'_>| value.as_literal()?.decode(message).map(String::from);
    if method("notifications/progress") {
        return params.get("progressToken").map(|token| IncomingKind::Progress { token: named(token) });
    }
    if method("notifications/cancelled") {
        return params.get("requestId").map(|id| IncomingKind::Cancelled { id: named(id) });
    }
    if let Some(id) = params.get("_meta").and_then(|meta| meta.get(SUBSCRIPTION_ID)) {
        return Some(IncomingKind::OfSubscription { id: named(id) });
    }
    if method("notifications/message") {
        let level = params.get("level").and_then(text).and_then(|level| Level::of(&level));
        return Some(IncomingKind::Log { level });
    }
    if method("notifications/resources/updated") {
        return params.get("uri").and_then(text).map(|uri| IncomingKind::Updated { uri: uri.into() });
    }
    None
}

/// The number that is spelled as a fraction (`39.0`), as languages do that have one kind of number.
#[cold]
fn whole(literal: &str) -> Option<u64> {
    let (number, fraction) = literal.split_once('.')?;
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0');
    number.parse().ok().filter(|_| is_whole)
}

/// Reads an answer whose id is spelled as a fraction, which no id may be.
#[cold]
fn read_with_fraction(scratch: &mut Scratch, message: &[u8], depth_max: usize) -> Option<IncomingKind> {
    let root = scratch.index(message, depth_max).ok().map(Document::root)?;
    let span = root.get("id")?.span();
    let literal = str::from_utf8(message.get(span.clone())?).ok()?;
    let (own, digits) = (whole(literal)?, literal.find('.')?);
    // Everything else stays where it is.
    let mut spelled = message.to_vec();
    spelled.get_mut(span.start + digits..span.end)?.fill(b' ');
    match read(scratch, &spelled, depth_max)? {
        IncomingKind::Response { repeated, .. } => {
            Some(IncomingKind::Response { id: OwnNumber { own: Some(own), span }, repeated })
        }
        _ => None,
    }
}

/// The messages of a batch: an array of objects. `None`: it is none.
#[cold]
pub(crate) fn batch(message: &[u8], depth_max: usize) -> Option<Vec<Span>> {
    let mut scratch = Scratch::default();
    let root = scratch.index(message, depth_max.saturating_add(1)).ok().map(Document::root)?;
    let messages: Vec<Span> = root.items().filter(|item| item.is_object()).map(Value::span).collect();
    (!messages.is_empty() && messages.len() == root.items().count()).then_some(messages)
}

/// The id of the subscription that a result ends.
fn repeated_id(scratch: &mut Scratch, message: &[u8], depth_max: usize) -> Option<Span> {
    let root = scratch.index(message, depth_max).ok().map(Document::root)?;
    let id = root.get("result")?.get("_meta")?.get(SUBSCRIPTION_ID)?.span();
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(message: &str) -> Option<IncomingKind> {
        read(&mut Scratch::default(), message.as_bytes(), 16)
    }

    fn own(incoming: Option<IncomingKind>) -> Option<u64> {
        match incoming? {
            IncomingKind::Response { id, .. }
            | IncomingKind::Doubtful { id }
            | IncomingKind::Progress { token: id }
            | IncomingKind::OfSubscription { id }
            | IncomingKind::Cancelled { id } => id.own,
            _ => None,
        }
    }

    #[test]
    fn what_belongs_to_a_call_names_it() {
        for message in [
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#"{"error":{"code":1,"message":"id"}, "id" : 7 ,"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"result":1}"#,
            r#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7.00,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#,
        ] {
            assert_eq!(own(incoming(message)), Some(7), "{message}");
        }
        for message in [
            r#"{"jsonrpc":"2.0","id":"7","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"7.0","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":99999999999999999999999,"result":{}}"#,
        ] {
            let incoming = incoming(message);
            assert!(
                matches!(incoming, Some(IncomingKind::Response { .. })) && own(incoming).is_none(),
                "{message}"
            );
        }
    }

    #[test]
    fn what_belongs_to_no_call_is_told_apart() {
        let log = |level| Some(IncomingKind::Log { level });
        for (message, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
                Some(IncomingKind::Request { id: 22..23, is_ping: true }),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"roots/list"}"#,
                Some(IncomingKind::Request { id: 22..25, is_ping: false }),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}"#,
                log(Some(Level::Error)),
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"loud"}}"#, log(None)),
            (r#"{"jsonrpc":"2.0","method":"notifications/message"}"#, log(None)),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a\u003ab"}}"#,
                Some(IncomingKind::Updated { uri: "a:b".into() }),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                Some(IncomingKind::Notification),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
                Some(IncomingKind::Notification),
            ),
        ] {
            assert_eq!(incoming(message), expected, "{message}");
        }
    }

    #[test]
    fn anything_else_is_no_message() {
        let fraction = r#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#;
        let incomplete = r#"{"jsonrpc":"2.0"}"#;
        for line in ["", "starting…", "{", "[]", "7", "null", "{}", incomplete, r#"{"id":null}"#, fraction]
        {
            assert_eq!(incoming(line), None, "{line}");
        }
    }

    #[test]
    fn a_batch_is_an_array_of_objects() {
        for (message, expected) in [
            (r#"[{"id":7}, {"id":8}]"#, Some(&[r#"{"id":7}"#, r#"{"id":8}"#][..])),
            (r#"[{"id":[[]]}]"#, Some(&[r#"{"id":[[]]}"#])),
            ("[]", None),
            ("[7]", None),
            (r#"[{"id":7},7]"#, None),
            (r#"{"id":7}"#, None),
            ("[INFO] starting", None),
        ] {
            let found = batch(message.as_bytes(), 3);
            let found = found.map(|spans| spans.into_iter().map(|span| &message[span]).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expected, "{message}");
        }
    }

    #[test]
    fn the_rest_of_a_message_stays_as_it_is() {
        let message = Bytes::from_static(br#"{"jsonrpc":"2.0", "id":7,"result":{"x":1.50}}"#);
        let incoming = read(&mut Scratch::default(), &message, 16);
        let Some(IncomingKind::Response { id, repeated: None }) = incoming else { panic!("{incoming:?}") };
        let replaced = id.replaced(&message, &Bytes::from_static(b"\"a\""), None).to_bytes();
        assert_eq!(replaced, r#"{"jsonrpc":"2.0", "id":"a","result":{"x":1.50}}"#);

        let message =
            br#"{"jsonrpc":"2.0","result":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}},"id":7}"#;
        let message = Bytes::from_static(message);
        let incoming = read(&mut Scratch::default(), &message, 16);
        let Some(IncomingKind::Response { id, repeated }) = incoming else { panic!("{incoming:?}") };
        let replaced = id.replaced(&message, &Bytes::from_static(b"\"a\""), repeated.as_ref()).to_bytes();
        assert_eq!(
            replaced,
            r#"{"jsonrpc":"2.0","result":{"_meta":{"io.modelcontextprotocol/subscriptionId":"a"}},"id":"a"}"#
        );
    }
}
