//! Replies of upstreams: whose answer a message is, whole and in pieces, and that `serde_json` would agree.

use protocol::answer_id::{AnswerId, Verdict};
use serde_json::Value;

/// The id that is waited for.
const ID: &[u8] = b"7";

/// The first bytes are the sizes of the pieces.
pub fn answer_ids(input: &[u8]) {
    let Some((sizes, message)) = super::sizes(input) else { return };
    let whole = AnswerId::of(message, ID);
    let mut scan = AnswerId::default();
    super::pieces(message, &sizes).for_each(|piece| scan.push(piece, ID));
    let Ok(Value::Object(object)) = serde_json::from_slice(message) else { return };
    assert_eq!(scan.verdict(), whole.verdict());
    if whole.verdict() == Verdict::Ours {
        assert_eq!(object.get("id"), Some(&Value::from(7)), "an answer to another request");
        let span = whole.span(ID);
        assert_eq!(&message[span], ID);
    }
}
