//! `initialize` where a start outlives its caller: as it is sent whoever asks, and its answer for each who does.

use bytes::Bytes;

use crate::upstream::revisions::instead_of;
use protocol::error::UpstreamError;
use protocol::initialize;
use protocol::json::{Document, Scratch, Span};
use protocol::splice::{Edit, splice};

/// The id under which `initialize` is sent, whatever its caller calls it.
const START_ID: &[u8] = b"1";

/// `initialize` as it is sent, whoever asks. `id`: where its caller's id stands.
pub(super) fn with_start_id(message: &Bytes, id: Option<Span>) -> Bytes {
    let edit = id.map(|span| Edit { span, with: Bytes::from_static(START_ID) });
    splice(message, edit.as_slice()).to_bytes()
}

/// The answer to it, under the id of this caller, and whether that opened a session.
pub(super) fn answer_to(
    id: &[u8],
    answer: &[u8],
    json_depth_max: usize,
) -> Result<(Bytes, bool), UpstreamError> {
    let mut scratch = Scratch::default();
    let root = scratch.index(answer, json_depth_max).map(Document::root);
    let root = root.map_err(|_| UpstreamError::Nonsense)?;
    let told = |name: &str| root.get(name).map(|value| (format!(",\"{name}\":"), value.raw()));
    let is_open = root.get("result").is_some();
    let (name, said) = told("result").or_else(|| told("error")).ok_or(UpstreamError::Nonsense)?;
    let answer = [&br#"{"jsonrpc":"2.0","id":"#[..], id, name.as_bytes(), said, b"}"].concat();
    Ok((answer.into(), is_open))
}

/// The result of an answer that opened a session.
pub(super) fn result_of(answer: &Bytes, json_depth_max: usize) -> Option<Bytes> {
    let mut scratch = Scratch::default();
    let root = scratch.index(answer, json_depth_max).map(Document::root).ok()?;
    root.get("result").map(|result| answer.slice(result.span()))
}

/// The code of the error of an answer.
pub(super) fn error_code(answer: &[u8], json_depth_max: usize) -> Option<i64> {
    let mut scratch = Scratch::default();
    let root = scratch.index(answer, json_depth_max).map(Document::root).ok()?;
    root.get("error")?.get("code")?.as_integer()
}

/// True if the revision was refused that this `initialize` names, and another is worth an attempt.
pub(super) fn refuses_revision(message: &[u8], answer: &[u8], json_depth_max: usize) -> bool {
    let (mut asked, mut answered) = (Scratch::default(), Scratch::default());
    let root = asked.index(message, json_depth_max).map(Document::root).ok();
    let offered = root.and_then(|root| initialize::version(root.get("params")?));
    let root = answered.index(answer, json_depth_max).map(Document::root).ok();
    let error = root.and_then(|root| root.get("error"));
    let code = error.and_then(|error| error.get("code")?.as_integer());
    let (Some(offered), Some(error), Some(code)) = (offered, error, code) else { return false };
    instead_of(offered, code, error).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_with_ids_of_their_own_ask_the_same_and_hear_the_same() {
        let one = Bytes::from_static(br#"{"id":"a-7","method":"initialize"}"#);
        let other = Bytes::from_static(br#"{"id":12,"method":"initialize"}"#);
        assert_eq!(with_start_id(&one, Some(6..11)), with_start_id(&other, Some(6..8)));
        for (answer, expected) in [
            (
                r#"{"id":1,"result":{"a":[1]}}"#,
                Some((r#"{"jsonrpc":"2.0","id":12,"result":{"a":[1]}}"#, true)),
            ),
            (
                r#"{"error":{"code":1},"id":1}"#,
                Some((r#"{"jsonrpc":"2.0","id":12,"error":{"code":1}}"#, false)),
            ),
            (r#"{"id":1}"#, None),
            ("[", None),
        ] {
            let told = answer_to(b"12", answer.as_bytes(), 8).ok();
            let expected = expected.map(|(text, is_open)| (Bytes::from_static(text.as_bytes()), is_open));
            assert_eq!(told, expected, "{answer}");
            let result = result_of(&Bytes::from_static(answer.as_bytes()), 8);
            assert_eq!(result.is_some(), told.is_some_and(|(_, is_open)| is_open), "{result:?}");
        }
    }
}
