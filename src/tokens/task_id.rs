//! The ids of tasks that clients are given where names are mapped: sealed, so that they are of use to their owner alone.
//!
//! What is sealed is the id as the upstream spells it and the tool that made the task; what it is bound to is the
//! endpoint, the principal and the upstream. A version byte and the name of the key in clear, the tag, the record under
//! AES-256-GCM-SIV with the clear part and what it is bound to as associated data; all in base64url. The nonce is always
//! the same, which this cipher is made to stand: the same task has the same id every time, and that is all that two ids
//! tell.
//!
//! So whoever has the key knows whose a task is and remembers nothing: a restart, another replica and, as long as its key
//! still opens, a new key change nothing.
//!
//! Invariants: an id has at most [`SEALED_CHARS_MAX`] characters, all visible ASCII. Nothing is read from a record whose
//! tag does not fit, and reading never panics.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::sealing::{KEY_ID_BYTES, NONCE_BYTES, SealingKeys, TAG_BYTES};
use protocol::task::ID_BYTES_MAX;

const VERSION: u8 = 1;
const CLEAR_BYTES: usize = 1 + KEY_ID_BYTES;
/// A longer name of a tool is not sealed in, and its task not given out.
const TOOL_BYTES_MAX: usize = u8::MAX as usize;
const BYTES_MAX: usize = CLEAR_BYTES + TAG_BYTES + 1 + TOOL_BYTES_MAX + ID_BYTES_MAX;
/// Characters of the id of a task that clients are given.
pub const SEALED_CHARS_MAX: usize = BYTES_MAX.div_ceil(3) * 4;
/// Keeps what is sealed here apart from session ids and what stands in Redis.
const DOMAIN: &[u8] = b"trunkline task id\0";
const NONCE: [u8; NONCE_BYTES] = [0; NONCE_BYTES];

/// A task, and who asks for it.
#[derive(Clone, Copy, Debug)]
pub struct TaskOf<'a> {
    /// The name of the endpoint.
    pub endpoint: &'a str,
    /// The principal; empty for nobody.
    pub principal: &'a str,
    /// The name of the upstream.
    pub upstream: &'a str,
    /// The id, as the upstream spells it.
    pub id: &'a str,
}

/// What the id of a task that clients are given says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTarget {
    /// The tool that made the task, as the upstream spells it; empty where that is not known.
    pub tool: String,
    /// The id, as the upstream spells it.
    pub id: String,
}

/// The id of a task that clients are given. `None` if it is too long for one.
pub fn seal(keys: &SealingKeys, task: TaskOf<'_>, tool: &str) -> Option<String> {
    let tool_bytes = u8::try_from(tool.len()).ok()?;
    if task.id.len() > ID_BYTES_MAX {
        return None;
    }
    let mut clear = vec![VERSION];
    clear.extend_from_slice(&keys.sealing_id());
    let mut record = vec![tool_bytes];
    record.extend_from_slice(tool.as_bytes());
    record.extend_from_slice(task.id.as_bytes());
    let tag = keys.seal(NONCE, &bound(&clear, task), &mut record)?;
    Some(URL_SAFE_NO_PAD.encode([&clear[..], &tag, &record].concat()))
}

/// What such an id says, if it was given to who presents it; the id in `owner` means nothing.
pub fn open(keys: &SealingKeys, owner: TaskOf<'_>, sealed: &str) -> Option<TaskTarget> {
    if sealed.len() > SEALED_CHARS_MAX {
        return None;
    }
    let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let (clear, rest) = bytes.split_at_mut_checked(CLEAR_BYTES)?;
    let (tag, record) = rest.split_at_mut_checked(TAG_BYTES)?;
    let (&version, key) = clear.split_first()?;
    let is_open = version == VERSION
        && keys.open(key.try_into().ok()?, NONCE, &bound(clear, owner), record, (&*tag).try_into().ok()?);
    is_open.then(|| read_record(record)).flatten()
}

/// What was sealed. `None` if it is no record.
pub fn read_record(record: &[u8]) -> Option<TaskTarget> {
    let (&tool_bytes, rest) = record.split_first()?;
    let (tool, id) = rest.split_at_checked(tool_bytes.into()).filter(|(_, id)| id.len() <= ID_BYTES_MAX)?;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(String::from);
    Some(TaskTarget { tool: text(tool)?, id: text(id)? })
}

/// What a record belongs to.
fn bound(clear: &[u8], owner: TaskOf<'_>) -> Vec<u8> {
    let mut digest = Sha256::new();
    for piece in [owner.endpoint, owner.principal, owner.upstream] {
        digest.update((piece.len() as u64).to_be_bytes());
        digest.update(piece);
    }
    [DOMAIN, clear, &digest.finalize()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(text: &str) -> SealingKeys {
        SealingKeys::from_text(text).expect("keys")
    }

    fn task(id: &str) -> TaskOf<'_> {
        TaskOf { endpoint: "/mcp", principal: "key:ann", upstream: "up", id }
    }

    #[test]
    fn an_id_opens_for_its_owner_alone() {
        let keys = keys(&"7".repeat(64));
        let sealed = seal(&keys, task("t-1"), "work").expect("sealed");
        let opened = TaskTarget { tool: "work".into(), id: "t-1".into() };
        assert_eq!(open(&keys, task(""), &sealed), Some(opened));
        assert_eq!(seal(&keys, task("t-1"), "work").as_ref(), Some(&sealed), "it is the same every time");
        for other in [
            TaskOf { principal: "key:bob", ..task("") },
            TaskOf { principal: "", ..task("") },
            TaskOf { endpoint: "/mc", principal: "pkey:ann", ..task("") },
            TaskOf { endpoint: "/other", ..task("") },
            TaskOf { upstream: "other", ..task("") },
        ] {
            assert_eq!(open(&keys, other, &sealed), None, "{other:?}");
        }
        for end in 0..sealed.len() {
            assert_eq!(open(&keys, task(""), &sealed[..end]), None, "{end}");
        }
        for id in ["", "t-1", "=", &"A".repeat(SEALED_CHARS_MAX), &"A".repeat(1 << 20)] {
            assert_eq!(open(&keys, task(""), id), None);
        }
    }

    #[test]
    fn an_old_key_opens_and_another_does_not() {
        let (old, new) = ("7".repeat(64), "8".repeat(64));
        let sealed = seal(&keys(&old), task("t"), "").expect("sealed");
        assert!(open(&keys(&format!("{new}\n{old}")), task(""), &sealed).is_some());
        assert_eq!(open(&keys(&new), task(""), &sealed), None);
    }

    #[test]
    fn what_is_too_long_has_no_id() {
        let keys = keys(&"7".repeat(64));
        let (id, tool) = ("é".repeat(ID_BYTES_MAX / 2), "t".repeat(TOOL_BYTES_MAX));
        let sealed = seal(&keys, task(&id), &tool).expect("sealed");
        assert!(sealed.len() <= SEALED_CHARS_MAX);
        assert_eq!(open(&keys, task(""), &sealed), Some(TaskTarget { tool: tool.clone(), id: id.clone() }));
        assert_eq!(seal(&keys, task(&format!("{id}x")), &tool), None);
        assert_eq!(seal(&keys, task(&id), &format!("{tool}x")), None);
    }

    #[test]
    fn a_record_with_a_longer_id_than_is_sealed_is_none() {
        for (bytes, is_one) in [(ID_BYTES_MAX, true), (ID_BYTES_MAX + 1, false)] {
            assert_eq!(
                read_record(&[&b"\x01t"[..], &vec![b'i'; bytes]].concat()).is_some(),
                is_one,
                "{bytes}"
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_else_opens(text in ".{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let keys = keys(&"7".repeat(64));
            prop_assert_eq!(open(&keys, task(""), &text), None);
            prop_assert_eq!(open(&keys, task(""), &URL_SAFE_NO_PAD.encode(bytes)), None);
        }
    }
}
