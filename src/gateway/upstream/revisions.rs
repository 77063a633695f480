//! Which revision of the legacy era an upstream is offered that refuses the one it should be offered, instead of answering
//! with another as `initialize` has it.
//!
//! Where it says which it takes, that is the newest of these; else it is the next older one, one at a time. What was found
//! is remembered until the upstream is asked again what it speaks.

use std::sync::atomic::{AtomicU8, Ordering};

use protocol::json::Value;
use protocol::version::LegacyVersion;

/// Error codes with which servers refuse a revision.
const CODES: [i64; 2] = [-32602, -32022];

/// What is offered instead of each revision; shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct OfferedRevisions([AtomicU8; LegacyVersion::ALL.len()]);

impl OfferedRevisions {
    /// What is offered to have this one.
    pub(crate) fn offer(&self, wanted: LegacyVersion) -> LegacyVersion {
        let known = self.0.get(wanted as usize).map_or(0, |known| known.load(Ordering::Relaxed));
        let known = usize::from(known).checked_sub(1);
        known.and_then(|known| LegacyVersion::ALL.get(known).copied()).unwrap_or(wanted)
    }

    /// Instead of the one that was wanted, the upstream took the offered one.
    pub(crate) fn learn(&self, wanted: LegacyVersion, offered: LegacyVersion) {
        if let Some(known) = self.0.get(wanted as usize)
            && self.offer(wanted) != offered
        {
            known.store(offered as u8 + 1, Ordering::Relaxed);
        }
    }

    /// The upstream may be another by now.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|known| known.store(0, Ordering::Relaxed));
    }
}

/// Those that one upstream refused while a session is opened: none is offered twice.
#[derive(Debug, Default)]
pub(super) struct RefusedRevisions([bool; LegacyVersion::ALL.len()]);

impl RefusedRevisions {
    /// Whether `next` is worth an attempt, now that this one is refused.
    pub(super) fn may_offer(&mut self, refused: LegacyVersion, next: LegacyVersion) -> bool {
        if let Some(is_refused) = self.0.get_mut(refused as usize) {
            *is_refused = true;
        }
        self.0.get(next as usize) == Some(&false)
    }
}

/// What to offer next, where this error refuses the revision that was offered. `None`: it is about something else, or there
/// is no other.
pub(crate) fn instead_of(offered: LegacyVersion, code: i64, error: Value<'_>) -> Option<LegacyVersion> {
    if let Some(supported) = error.get("data").and_then(|data| data.get("supported")) {
        let known = supported
            .items()
            .filter_map(|item| LegacyVersion::of(&item.as_literal()?.decode(supported.text())?));
        return known.filter(|version| *version != offered).max();
    }
    let speaks_of_it =
        || error.text_of("message").is_some_and(|said| said.to_lowercase().contains("version"));
    if !CODES.contains(&code) && !speaks_of_it() {
        return None;
    }
    let older = LegacyVersion::ALL.iter().rev().find(|version| **version < offered);
    older.copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::json::{Document, Scratch};

    #[test]
    fn the_newest_that_both_speak_or_the_next_older_one() {
        use LegacyVersion::{V2024_11_05, V2025_06_18, V2025_11_25};
        for (offered, error, expected) in [
            (
                V2025_11_25,
                r#"{"code":-32602,"data":{"supported":["2024-11-05","2025-06-18"]}}"#,
                Some(V2025_06_18),
            ),
            (V2025_06_18, r#"{"code":-32000,"data":{"supported":["2025-11-25"]}}"#, Some(V2025_11_25)),
            (V2025_11_25, r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#, None),
            (V2025_11_25, r#"{"code":-32602,"data":{"supported":7}}"#, None),
            (V2025_11_25, r#"{"code":-32000,"message":"Unsupported Protocol Version"}"#, Some(V2025_06_18)),
            (V2025_11_25, r#"{"code":-32602,"message":"Invalid params"}"#, Some(V2025_06_18)),
            (V2024_11_05, r#"{"code":-32602,"message":"Invalid params"}"#, None),
            (V2025_11_25, r#"{"code":-32603,"message":"database is down"}"#, None),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(error.as_bytes(), 8).map(Document::root).expect("JSON");
            let code = root.get("code").and_then(Value::as_integer).expect("a code");
            assert_eq!(instead_of(offered, code, root), expected, "{error}");
        }
    }

    #[test]
    fn what_was_found_is_remembered_and_none_is_offered_twice() {
        use LegacyVersion::{V2025_06_18, V2025_11_25};
        let known = OfferedRevisions::default();
        known.learn(V2025_11_25, V2025_06_18);
        assert_eq!((known.offer(V2025_11_25), known.offer(V2025_06_18)), (V2025_06_18, V2025_06_18));
        known.forget();
        assert_eq!(known.offer(V2025_11_25), V2025_11_25);
        let mut refused = RefusedRevisions::default();
        assert!(refused.may_offer(V2025_11_25, V2025_06_18));
        assert!(!refused.may_offer(V2025_06_18, V2025_11_25));
    }
}
