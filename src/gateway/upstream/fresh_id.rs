//! Another id for a request that is sent again, and the client's own in the reply to it.
//!
//! The first time, the request may have arrived: a late answer to it must not be taken for one to the second, and
//! servers that remember ids must not refuse that. The other id cannot be guessed, so that wherever it stands in the
//! reply the client's id is meant, and nothing need be read to put it there.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use memchr::memmem;

use super::broken_reply::BrokenReply;
use super::incoming::Incoming;
use protocol::envelope::Envelope;
use protocol::json::Scratch;
use protocol::splice::{Edit, Segments, splice};

/// What is sent was checked with a bound no higher than this.
const DEPTH_MAX: usize = 1024;

/// The id that a request was sent with, in place of the client's. Both are literals.
#[derive(Clone, Debug)]
pub(crate) struct FreshId {
    sent: Bytes,
    client: Bytes,
}

/// A reply in which the client's id takes the place of the other.
#[derive(Debug)]
pub(crate) struct RestoringBody {
    reply: Incoming,
    id: FreshId,
    /// The end of what has come, as far as it may be the beginning of the id.
    begun: BytesMut,
}

/// A message with another id; `None` if it has none, or there is no randomness.
pub(crate) fn replace(message: &Segments) -> Option<(Segments, FreshId)> {
    let message = message.to_bytes();
    let span = Envelope::parse(&mut Scratch::default(), &message, DEPTH_MAX).ok()?.id?;
    let random = [getrandom::u64().ok()?, getrandom::u64().ok()?];
    let sent = Bytes::from(format!("\"trunkline-{:016x}{:016x}\"", random[0], random[1]));
    let client = message.slice(span.clone());
    let edited = splice(&message, &[Edit { span, with: sent.clone() }]);
    Some((edited, FreshId { sent, client }))
}

impl RestoringBody {
    /// The reply to a request that was sent with another id.
    pub(crate) fn new(reply: Incoming, id: FreshId) -> Self {
        Self { reply, id, begun: BytesMut::new() }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenReply>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.reply).poll_frame(cx));
            let restored = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.restore(&data),
                    Err(_) => continue,
                },
                Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                None if self.begun.is_empty() => return Poll::Ready(None),
                None => self.begun.split().freeze(),
            };
            if !restored.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(restored))));
            }
        }
    }

    /// Whether nothing more will come.
    pub(crate) fn is_end(&self) -> bool {
        self.begun.is_empty() && self.reply.is_end_stream()
    }

    fn restore(&mut self, data: &[u8]) -> Bytes {
        let FreshId { sent, client } = &self.id;
        self.begun.extend_from_slice(data);
        let mut restored = BytesMut::with_capacity(self.begun.len());
        while let Some(at) = memmem::find(&self.begun, sent) {
            restored.extend_from_slice(&self.begun[..at]);
            restored.extend_from_slice(client);
            let _ = self.begun.split_to(at + sent.len());
        }
        let longest = self.begun.len().min(sent.len() - 1);
        let begun = (1..=longest).rev().find(|length| self.begun.ends_with(&sent[..*length])).unwrap_or(0);
        let certain = self.begun.split_to(self.begun.len() - begun);
        restored.extend_from_slice(&certain);
        restored.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(id: &FreshId, pieces: &[&[u8]]) -> Vec<u8> {
        let mut restored = RestoringBody::new(Incoming::Whole(None), id.clone());
        let mut whole: Vec<u8> = pieces.iter().flat_map(|piece| restored.restore(piece)).collect();
        whole.extend_from_slice(&restored.begun);
        whole
    }

    #[test]
    fn only_the_id_is_another() {
        for (message, before, client, after) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":"#,
                "7",
                r#","method":"ping"}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","params":{"id":1}, "id" : "a\"" ,"method":"x"}"#,
                r#"{"jsonrpc":"2.0","params":{"id":1}, "id" : "#,
                r#""a\"""#,
                r#" ,"method":"x"}"#,
            ),
        ] {
            let message = format!("{message} ");
            let (edited, id) = replace(&Segments::from(message)).expect("it has an id");
            let sent = std::str::from_utf8(&id.sent).expect("text");
            let expected = format!("{before}{sent}{after} ");
            assert_eq!(edited.to_bytes(), expected.as_bytes());
            assert_eq!(id.client, client);
        }
        assert!(replace(&Segments::from(r#"{"jsonrpc":"2.0","method":"x"}"#.to_owned())).is_none());
        assert!(replace(&Segments::default()).is_none());
    }

    #[test]
    fn no_two_are_alike() {
        let message = Segments::from(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_owned());
        let [one, other] = [(); 2].map(|()| replace(&message).expect("an id").1.sent);
        assert_ne!(one, other);
    }

    #[test]
    fn the_clients_id_is_put_back_wherever_the_reply_is_cut() {
        let message = Segments::from(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_owned());
        let (_, id) = replace(&message).expect("an id");
        let sent = std::str::from_utf8(&id.sent).expect("text");
        let reply = format!(r#"data: {{"id":{sent},"result":{{"of":{sent},"no":"trunkline-","end":""}}}}"#);
        let expected = reply.replace(sent, "7");
        for cut in 0..=reply.len() {
            let (start, end) = reply.as_bytes().split_at(cut);
            assert_eq!(restored(&id, &[start, end]), expected.as_bytes(), "{cut}");
        }
        let bytes: Vec<&[u8]> = reply.as_bytes().chunks(1).collect();
        assert_eq!(restored(&id, &bytes), expected.as_bytes());
        let unfinished = &reply[..reply.len() / 3];
        assert_eq!(restored(&id, &[unfinished.as_bytes()]), unfinished.replace(sent, "7").as_bytes());
    }
}
