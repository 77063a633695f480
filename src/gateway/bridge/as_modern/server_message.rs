//! What a message of a legacy server is to the call that has the session to itself.

use bytes::Bytes;

use super::session_client::SessionClient;
use crate::upstream::changes::ChangedList;
use protocol::envelope::{Envelope, MessageKind};
use protocol::json::{Document, Scratch, Span, Value};
use protocol::level::Level;
use protocol::translation::question;

/// What a message of the server means for the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerMessage {
    Answer,
    Request {
        id: Box<[u8]>,
        /// Whether it wants to know no more than whether somebody is there.
        is_ping: bool,
    },
    /// How far the call is; the span of the token.
    Progress(Span),
    /// A log line, of this level.
    Log(Option<Level>),
    /// The server wants no answer any more to the request of this id, a literal.
    TakenBack(Box<[u8]>),
    Elicited(Box<str>),
    /// A list of the server has changed.
    ListChanged(ChangedList),
    /// Nothing that is for the client of a call.
    Other,
}

/// What the server knows a call by: literals of JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallIds<'a> {
    /// The id of its answer.
    pub answer: &'a str,
    /// Its progress token.
    pub token: &'a str,
}

impl CallIds<'_> {
    /// Those of no call.
    pub(crate) const NONE: Self = Self { answer: "", token: "" };
}

/// What `message` is to the call with these ids. `None`: it is no message.
pub(crate) fn read(server: &SessionClient, message: &Bytes, ids: CallIds<'_>) -> Option<ServerMessage> {
    server.client.read_json(|memory| of(message, ids, memory))
}

fn of(
    message: &Bytes,
    ids: CallIds<'_>,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Option<ServerMessage> {
    let envelope = Envelope::parse(scratch, message, depth_max).ok()?;
    let id = envelope.id.clone().and_then(|id| message.get(id)).unwrap_or_default();
    match envelope.kind {
        MessageKind::Response if id == ids.answer.as_bytes() => return Some(ServerMessage::Answer),
        MessageKind::Response => return Some(ServerMessage::Other),
        MessageKind::Request => {
            let is_ping = envelope.method.is_some_and(|method| method.equals(message, "ping"));
            return Some(ServerMessage::Request { id: id.into(), is_ping });
        }
        MessageKind::Notification => {}
    }
    let root = scratch.index(message, depth_max).map(Document::root).ok()?;
    let params = root.get("params");
    let heard = match &*envelope.method?.decode(message)? {
        "notifications/progress" => {
            let token = params.and_then(|params| params.get("progressToken"));
            let token = token.filter(|token| token.raw() == ids.token.as_bytes());
            token.map(|token| ServerMessage::Progress(token.span()))
        }
        "notifications/message" => {
            let level = params.and_then(|params| params.get("level")).and_then(Value::as_literal);
            Some(ServerMessage::Log(level.and_then(|level| Level::of(&level.decode(message)?))))
        }
        "notifications/cancelled" => {
            let id = params.and_then(|params| params.get("requestId"));
            id.map(|id| ServerMessage::TakenBack(id.raw().into()))
        }
        "notifications/elicitation/complete" => {
            params.and_then(question::elicitation_id).map(ServerMessage::Elicited)
        }
        method => ChangedList::of_method(method).map(ServerMessage::ListChanged),
    };
    Some(heard.unwrap_or(ServerMessage::Other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_told_apart() {
        let request = |id: &[u8], is_ping| ServerMessage::Request { id: id.into(), is_ping };
        for (message, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, Some(ServerMessage::Answer)),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}"#, Some(ServerMessage::Answer)),
            (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, Some(ServerMessage::Other)),
            (r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#, Some(request(b"\"a\"", true))),
            (r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#, Some(request(b"7", false))),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#,
                Some(ServerMessage::Progress(77..78)),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":8,"progress":1}}"#,
                Some(ServerMessage::Other),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}"#,
                Some(ServerMessage::Log(Some(Level::Error))),
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/message"}"#, Some(ServerMessage::Log(None))),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#,
                Some(ServerMessage::TakenBack(b"\"a\""[..].into())),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}"#,
                Some(ServerMessage::Elicited("e".into())),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                Some(ServerMessage::ListChanged(ChangedList::Tools)),
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/else"}"#, Some(ServerMessage::Other)),
            ("{", None),
            ("[]", None),
        ] {
            let text = Bytes::copy_from_slice(message.as_bytes());
            let ids = CallIds { answer: "7", token: "7" };
            assert_eq!(of(&text, ids, (&mut Scratch::default(), 16)), expected, "{message}");
        }
    }
}
