//! Pins of this gateway beside the one record that all gateways share. No I/O.
//!
//! The record has a version, and is replaced only by who read that version. Whoever reads another one goes by it: the
//! first to write decides what a tool may be, and who saw something else at the same time compares with that. Two things are
//! carried over: what the operator approved here meanwhile, and, where new tools are pinned as they come, tools that the
//! record lacks.
//!
//! A record that is gone, or older than what was read before, was lost: what is pinned here takes its place. Should a new
//! gateway have begun another one in between, the record that was begun earlier counts, so that no loss of data makes
//! anybody trust what comes first.

use std::collections::BTreeMap;

use super::pin_book::agree::AgreedChange;
use super::pin_book::{PinBook, PinnedTool};
use super::record::{self, Approvals};
use super::version::Version;
use crate::clock;
use config::PinMode;
use protocol::canonical::Hash;
use tokens::sealing::KEY_ID_BYTES;

/// The name of a session key.
pub(crate) type KeyId = [u8; KEY_ID_BYTES];

/// Bits that tell apart what began at the same time.
const RANDOM_BITS: u32 = 20;

/// The beginning of pins that a gateway has kept since before it shared them: earlier than any record that others began.
const BEFORE_SHARING: u64 = 0;

/// A record that was read.
#[derive(Debug)]
pub(crate) struct FoundRecord {
    pub version: Version,
    pub tools: BTreeMap<String, PinnedTool>,
    /// The key that sealed it, if it is the one that this gateway seals with.
    pub own_key: Option<KeyId>,
}

/// Text that the record lacks.
#[derive(Debug)]
pub(crate) struct Unshared {
    pub version: Version,
    pub text: String,
    hash: Hash,
    key: KeyId,
}

#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// See [`Version::began`]; `None`: nothing was shared yet.
    pub(super) began: Option<u64>,
    /// The last version that is known here, from before a restart as well.
    known: Option<Version>,
    /// The version that was read or written last.
    pub(super) version: Option<Version>,
    /// The hash of its text; `None`: it is to be written anew.
    text: Option<Hash>,
    /// Something is pinned that may not stand there.
    pub(super) is_ahead: bool,
    /// The key of this gateway that sealed what was read or written last. Under another one it is written again, before
    /// the one that sealed it is forgotten; once, as others may still go by theirs.
    sealed_with: Option<KeyId>,
    /// Approvals of the operator here that do not stand there.
    approvals: Approvals,
}

impl Agreement {
    /// Pins were kept here.
    pub(super) fn kept(
        began: Option<u64>,
        known: Option<Version>,
        is_complete: bool,
        approvals: Approvals,
    ) -> Self {
        let began = began.or_else(|| is_complete.then_some(BEFORE_SHARING));
        Self { began, known, is_ahead: true, approvals, ..Self::default() }
    }

    /// The text for the state directory.
    pub(super) fn text(&self, book: &PinBook) -> String {
        record::text_of(book, self.began, self.known, &self.approvals)
    }

    /// The record was read; `None`: there is none. Goes by it, unless it is older than what is known here.
    pub(super) fn compare(
        &mut self,
        book: &mut PinBook,
        mode: PinMode,
        found: Option<FoundRecord>,
    ) -> AgreedChange {
        self.is_ahead = true;
        let Some(FoundRecord { version, tools: theirs, own_key }) =
            found.filter(|found| !book.is_complete() || !self.is_before(found.version))
        else {
            self.text = None;
            return AgreedChange { is_lost: self.known.is_some(), ..AgreedChange::default() };
        };
        self.text = Some(Hash::of(&record::shared_text_of(&theirs)));
        (self.began, self.version, self.known) = (Some(version.began), Some(version), Some(version));
        self.sealed_with = own_key.or(self.sealed_with);
        let is_told = |tool: &PinnedTool, hash: Hash| tool.approved.iter().any(|one| one.hash == hash);
        self.approvals.retain(|(name, hash)| !theirs.get(name).is_some_and(|tool| is_told(tool, *hash)));
        book.agree(theirs, mode, &self.approvals)
    }

    /// True if more is known here than a record of this version says. One with as many changes that is another one was made of
    /// an older one, as what is known here stood there once.
    fn is_before(&self, version: Version) -> bool {
        let is_other = |known: Version| known.count == version.count && known.nonce != version.nonce;
        let is_newer = || self.known.is_some_and(|known| known.count > version.count || is_other(known));
        self.began.is_some_and(|began| began < version.began || began == version.began && is_newer())
    }

    /// The text to be written, if any, where this gateway seals with `key`. Taken to be written from now on.
    pub(super) fn take_unshared(&mut self, book: &PinBook, key: KeyId) -> Option<Unshared> {
        let is_sealed_anew = self.version.is_some() && self.sealed_with != Some(key);
        if !(self.is_ahead || is_sealed_anew) || !book.is_complete() {
            return None;
        }
        self.is_ahead = false;
        let text = record::shared_text_of(book.tools());
        let hash = Hash::of(&text);
        if self.text == Some(hash) && !is_sealed_anew {
            return None;
        }
        let count = self.known.map_or(0, |known| known.count).saturating_add(1);
        let version = Version { began: self.began.unwrap_or_else(begin), count, nonce: random() };
        Some(Unshared { version, text, hash, key })
    }

    /// It was written, which what is kept here has to say.
    pub(super) fn note_shared(&mut self, shared: &Unshared) {
        self.text = Some(shared.hash);
        let version = Some(shared.version);
        (self.began, self.version, self.known) = (Some(shared.version.began), version, version);
        self.sealed_with = Some(shared.key);
        self.approvals.clear();
    }

    pub(super) fn note_approval(&mut self, tool: &str, hash: Hash) {
        self.is_ahead = true;
        self.approvals.insert((tool.to_owned(), hash));
    }
}

fn begin() -> u64 {
    let now_ms = clock::now_s().saturating_mul(1000);
    (now_ms << RANDOM_BITS) | (random() >> (u64::BITS - RANDOM_BITS))
}

/// Randomness fails at the start or never, and only tells versions apart.
fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::pin_book::{Definition, ListSource, ListedTool, OWN_LISTS};
    use super::super::record::PinnedTools;
    use super::*;

    fn listed(tools: &[(&str, &str)]) -> Vec<ListedTool> {
        let one = |(name, text): &(&str, &str)| ListedTool {
            name: Some((*name).to_owned()),
            definition: Definition::new((*text).to_owned()),
        };
        tools.iter().map(one).collect()
    }

    /// A gateway that has seen these tools first, and the key that it seals with.
    struct Gateway(PinBook, Agreement, PinMode, KeyId);

    impl Gateway {
        fn new(mode: PinMode, tools: &[(&str, &str)]) -> Self {
            let mut gateway = Self(PinBook::new(1 << 20), Agreement::default(), mode, [1; KEY_ID_BYTES]);
            gateway.see(tools);
            gateway.0.complete();
            gateway.1.is_ahead = true;
            gateway
        }

        /// It starts again from its file.
        fn restart(&mut self) {
            let kept = record::read(&self.1.text(&self.0)).expect("a file");
            let PinnedTools { tools, is_complete, began, version, approvals } = kept;
            self.0 = PinBook::new(1 << 20).restore(tools, is_complete);
            self.1 = Agreement::kept(began, version, is_complete, approvals);
        }

        fn see(&mut self, tools: &[(&str, &str)]) {
            for index in 0..OWN_LISTS {
                let verdict = self.0.look(ListSource::Own(index), self.2, &listed(tools), true);
                self.1.is_ahead |= verdict.is_dirty;
            }
        }

        /// Replaces the record, as it is at the moment.
        fn write(&mut self, record: &mut Option<Unshared>) {
            if let Some(unshared) = self.1.take_unshared(&self.0, self.3) {
                self.1.note_shared(&unshared);
                *record = Some(unshared);
            }
        }

        fn read(&mut self, record: Option<&Unshared>) {
            let found = record.map(|there| FoundRecord {
                version: there.version,
                tools: record::read(&there.text).expect("a record").tools,
                own_key: Some(there.key).filter(|key| *key == self.3),
            });
            self.1.compare(&mut self.0, self.2, found);
        }

        fn approve(&mut self, tool: &str, text: &str) {
            let hash = Hash::of(text);
            assert!(self.0.approve(tool, hash), "{tool} {text}");
            self.1.note_approval(tool, hash);
        }

        fn approved(&self, tool: &str) -> Vec<&str> {
            let tool = self.0.tools().get(tool);
            tool.map(|tool| tool.approved.iter().map(|one| &*one.text).collect()).unwrap_or_default()
        }
    }

    const MODE: PinMode = PinMode::Quarantine;

    #[test]
    fn of_two_that_see_a_tool_first_the_first_to_write_decides() {
        let mut record = None;
        let mut first = Gateway::new(MODE, &[("a", "1")]);
        let mut second = Gateway::new(MODE, &[("a", "2"), ("b", "1")]);
        first.write(&mut record);
        second.read(record.as_ref());
        assert_eq!((second.approved("a"), second.approved("b")), (vec!["1"], vec!["1"]));
        second.see(&[("a", "2"), ("b", "1")]);
        assert_eq!(second.0.refused().into_iter().collect::<Vec<_>>(), ["a"]);
        // A tool that the record lacks is told, where new tools are pinned as they come.
        second.write(&mut record);
        first.read(record.as_ref());
        assert_eq!((first.approved("a"), first.approved("b")), (vec!["1"], vec!["1"]));
        let before = record.as_ref().map(|there| there.version);
        first.write(&mut record);
        assert_eq!(record.as_ref().map(|there| there.version), before, "there is nothing to tell");

        let mut strict = Gateway::new(PinMode::Block, &[("a", "1"), ("c", "1")]);
        strict.read(record.as_ref());
        assert!(strict.approved("c").is_empty(), "new tools need approval");
    }

    #[test]
    fn an_approval_is_carried_over_and_holds_everywhere() {
        let mut record = None;
        let (mut one, mut other) = (Gateway::new(MODE, &[("a", "1"), ("b", "1")]), Gateway::new(MODE, &[]));
        one.write(&mut record);
        other.read(record.as_ref());
        for gateway in [&mut one, &mut other] {
            gateway.see(&[("a", "2"), ("b", "2")]);
        }
        one.approve("a", "2");
        other.approve("b", "2");
        one.write(&mut record);
        other.read(record.as_ref());
        assert_eq!((other.approved("a"), other.approved("b")), (vec!["1", "2"], vec!["1", "2"]));
        assert!(other.0.refused().is_empty());
        other.write(&mut record);
        one.read(record.as_ref());
        assert_eq!(one.approved("b"), ["1", "2"]);
    }

    #[test]
    fn pins_of_a_gateway_that_ran_alone_count_before_a_newer_record() {
        let mut alone = Gateway::new(MODE, &[("a", r#"{"n":1}"#)]);
        alone.see(&[("a", r#"{"n":2}"#)]);
        let mut record = None;
        let mut new = Gateway::new(MODE, &[("a", r#"{"n":2}"#), ("b", r#"{"n":1}"#)]);
        new.write(&mut record);
        alone.restart();
        alone.read(record.as_ref());
        assert_eq!(alone.approved("a"), [r#"{"n":1}"#]);
        alone.write(&mut record);
        new.read(record.as_ref());
        new.see(&[("a", r#"{"n":2}"#), ("b", r#"{"n":1}"#)]);
        assert_eq!(new.approved("a"), [r#"{"n":1}"#]);
        assert_eq!(new.0.refused().into_iter().collect::<Vec<_>>(), ["a"]);
        // From then on it is a record like any other, after a restart as well.
        new.write(&mut record);
        alone.restart();
        alone.read(record.as_ref());
        assert_eq!((alone.approved("a"), alone.approved("b")), (vec![r#"{"n":1}"#], vec![r#"{"n":1}"#]));
        // Nothing was pinned yet where not all lists were seen.
        assert_eq!(Agreement::kept(None, None, false, Approvals::default()).began, None);
    }

    #[test]
    fn an_approval_that_was_not_shared_outlasts_a_restart() {
        let [old, other, new] = [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#];
        let mut record = None;
        let (mut one, mut two) = (Gateway::new(MODE, &[("a", old), ("b", old)]), Gateway::new(MODE, &[]));
        one.write(&mut record);
        two.read(record.as_ref());
        one.see(&[("a", new), ("b", other)]);
        one.approve("a", new);
        two.see(&[("a", old), ("b", other)]);
        two.approve("b", other);
        two.write(&mut record);
        one.restart();
        one.read(record.as_ref());
        assert_eq!((one.approved("a"), one.approved("b")), (vec![old, new], vec![old, other]));
        one.write(&mut record);
        two.read(record.as_ref());
        assert_eq!(two.approved("a"), [old, new]);
        // It is carried over once.
        one.restart();
        assert!(one.1.approvals.is_empty());
    }

    #[test]
    fn a_record_is_sealed_with_the_key_of_now_before_the_old_one_is_forgotten() {
        let mut record = None;
        let (mut one, mut two) = (Gateway::new(MODE, &[("a", "1")]), Gateway::new(MODE, &[]));
        one.write(&mut record);
        let version = |record: &Option<Unshared>| record.as_ref().map(|there| there.version);
        let before = version(&record);
        // Nothing but the key changes.
        one.3 = [2; KEY_ID_BYTES];
        one.write(&mut record);
        assert_eq!(record.as_ref().map(|there| there.key), Some(one.3));
        assert_ne!(version(&record), before);
        let before = version(&record);
        one.read(record.as_ref());
        one.write(&mut record);
        assert_eq!(version(&record), before, "once");
        // One that still seals with the old key does not take turns with it.
        two.read(record.as_ref());
        two.write(&mut record);
        one.read(record.as_ref());
        one.write(&mut record);
        let after = version(&record);
        two.read(record.as_ref());
        two.write(&mut record);
        assert_eq!(version(&record), after);
        // It is done by whoever has the new key next.
        two.3 = one.3;
        two.write(&mut record);
        assert_eq!(record.as_ref().map(|there| there.key), Some(one.3));
    }

    #[test]
    fn what_was_lost_is_written_back_and_is_not_trusted_anew() {
        let mut record = None;
        let mut old = Gateway::new(MODE, &[("a", "1")]);
        old.write(&mut record);
        old.see(&[("a", "2")]);
        old.approve("a", "2");
        let stale = record.take();
        old.write(&mut record);
        // One is put back that is older than what was read.
        old.read(stale.as_ref());
        assert_eq!(old.approved("a"), ["1", "2"]);
        let mut restored = None;
        old.write(&mut restored);
        assert!(restored.is_some());
        // All is lost.
        old.read(None);
        let mut restored = None;
        old.write(&mut restored);
        assert_eq!(
            restored.map(|there| there.version.began),
            record.as_ref().map(|there| there.version.began)
        );
        // All is lost, and a new gateway is first. Its clock may show the same millisecond.
        let mut new = Gateway::new(MODE, &[("a", "evil")]);
        new.1.began = old.1.began.map(|began| began + 1);
        let mut begun = None;
        new.write(&mut begun);
        old.read(begun.as_ref());
        assert_eq!(old.approved("a"), ["1", "2"]);
        old.write(&mut begun);
        new.read(begun.as_ref());
        assert_eq!(new.approved("a"), ["1", "2"]);
    }
}
