//! Whether the answer of a call is in what passes.
//!
//! Of a stream that is passed on unread, only a line with a word that an answer has is looked at, and it is parsed only if
//! it is not written as most servers write an answer. What is cut into two pieces may be missed, or be in doubt.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::context::worker::Worker;
use crate::upstream::own_id::OwnId;
use protocol::answer_id::{AnswerId, Verdict, usual_place};
use protocol::envelope::{Envelope, MessageKind};
use protocol::json::Scratch;
use protocol::splice::Edit;

/// What is known of the answer of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnswerSeen {
    #[default]
    No,
    /// Something passed that may be it.
    Perhaps,
    Yes,
}

impl AnswerSeen {
    /// Looks for the answer with this id, as it is written, in a piece of a stream.
    pub(super) fn look_at_piece(&mut self, scratch: &mut Scratch, piece: &[u8], id: &str, depth_max: usize) {
        let mut rest = piece;
        while *self != Self::Yes
            && let Some(at) = word_of_answer(rest)
        {
            let end = memchr::memchr2(b'\n', b'\r', &rest[at..]).map_or(rest.len(), |end| at + end);
            let line = &rest[memchr::memrchr2(b'\n', b'\r', &rest[..at]).map_or(0, |end| end + 1)..end];
            let data = line.strip_prefix(b"data: ").or_else(|| line.strip_prefix(b"data:"));
            let seen = data.map(|data| seen_in(scratch, (data, at + data.len() - end), id, depth_max));
            *self = seen.unwrap_or(Self::Perhaps).max(*self);
            rest = &rest[end..];
        }
    }

    /// As [`look_at_piece`](Self::look_at_piece), of a whole message.
    pub(super) fn look_at_message(&mut self, scratch: &mut Scratch, data: &[u8], id: &str, depth_max: usize) {
        if *self != Self::Yes
            && let Some(at) = word_of_answer(data)
        {
            *self = seen_in(scratch, (data, at), id, depth_max).max(*self);
        }
    }
}

/// What a message is to a call whose upstream knows it by an id of the gateway's own.
pub(super) enum AnswerIn {
    None,
    /// Its answer, once the client's id is put back.
    Ours(Edit),
    /// The answer to another request, or nothing that can be read.
    Others,
}

pub(super) fn answer_in(worker: &Worker, message: &[u8], own_id: Option<&OwnId>) -> AnswerIn {
    static METHOD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"method\""));
    let Some(own_id) = own_id else { return AnswerIn::None };
    let scan = AnswerId::of(message, own_id.sent());
    match scan.verdict() {
        Verdict::Ours => return AnswerIn::Ours(own_id.restored(scan.span(own_id.sent()))),
        Verdict::Others if METHOD.find(message).is_none() => return AnswerIn::Others,
        _ => {}
    }
    let depth_max = worker.json_depth_max();
    match Envelope::parse(&mut worker.scratch.borrow_mut(), message, depth_max) {
        Ok(Envelope { kind: MessageKind::Response, id: Some(id), .. })
            if message.get(id.clone()) == Some(own_id.sent()) =>
        {
            AnswerIn::Ours(own_id.restored(id))
        }
        Ok(Envelope { kind: MessageKind::Response, .. }) | Err(_) => AnswerIn::Others,
        Ok(_) => AnswerIn::None,
    }
}

fn word_of_answer(bytes: &[u8]) -> Option<usize> {
    static RESULT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"result\""));
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"error\""));
    let result = RESULT.find(bytes);
    ERROR.find(&bytes[..result.unwrap_or(bytes.len())]).or(result)
}

/// What a message is that has such a word at `at`.
fn seen_in(scratch: &mut Scratch, (message, at): (&[u8], usize), id: &str, depth_max: usize) -> AnswerSeen {
    let is_whole = message.starts_with(b"{") && message.ends_with(b"}");
    if is_whole && usual_place(message, id.as_bytes()).is_some_and(|(id, _)| at == 1 || at == id.end + 1) {
        return AnswerSeen::Yes;
    }
    match Envelope::parse(scratch, message, depth_max) {
        Ok(Envelope { kind: MessageKind::Response, id: Some(span), .. })
            if message.get(span.clone()) == Some(id.as_bytes()) =>
        {
            AnswerSeen::Yes
        }
        Ok(Envelope { kind: MessageKind::Response, .. }) | Err(_) => AnswerSeen::Perhaps,
        Ok(_) => AnswerSeen::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_the_id_is_sure() {
        for (piece, expected) in [
            ("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n", AnswerSeen::Yes),
            (
                "data:{\"id\":7,\"jsonrpc\":\"2.0\",\"error\":{\"code\":1,\"message\":\"x\"}}\r\n\r\n",
                AnswerSeen::Yes,
            ),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}", AnswerSeen::Yes),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":\"7\",\"result\":{}}\n\n", AnswerSeen::Perhaps),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"half\n\n", AnswerSeen::Perhaps),
            ("data: [\"result\",\"jsonrpc\":\"2.0\",\"id\":7}\n\n", AnswerSeen::Perhaps),
            ("data: {\"result\":{},\"jsonrpc\":\"2.0\",\"id\":7}\n\n", AnswerSeen::Yes),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"result\",\"params\":{}}\n\n", AnswerSeen::No),
            ("data: {\"result\":{\"method\":1},\"jsonrpc\":\"2.0\",\"id\":7}\n\n", AnswerSeen::Yes),
            ("data: {\"result\":{\"text\":\"", AnswerSeen::Perhaps),
            (
                "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\",\"params\":{\"result\":1}}\n\n",
                AnswerSeen::No,
            ),
            ("\"id\":7,\"result\":{}}\n\n", AnswerSeen::Perhaps),
            ("data: {\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"result\":1}}\n\n", AnswerSeen::No),
            (": nothing\n\n", AnswerSeen::No),
            (
                "data: {\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"error\":1}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n",
                AnswerSeen::Yes,
            ),
        ] {
            let mut seen = AnswerSeen::No;
            seen.look_at_piece(&mut Scratch::default(), piece.as_bytes(), "7", 64);
            assert_eq!(seen, expected, "{piece}");
            // What passed has passed.
            seen.look_at_message(&mut Scratch::default(), b"{\"error\":", "7", 64);
            assert_eq!(seen, expected.max(AnswerSeen::Perhaps), "{piece}");
        }
    }
}
