//! What is pinned of one upstream, and what a list of its tools comes to: definitions in, verdicts out. No I/O, no clock.
//!
//! A tool has the definitions that were approved, by being there first or by the operator, and those that wait for it.
//! It may have several approved ones, as servers define a tool differently for clients of another revision or with
//! other capabilities. Which those are is settled by the gateway's own lists alone, when the upstream is first pinned
//! (until [`Book::complete`]): were the first list of every kind of client believed, a changed definition would only
//! have to wait for a client of a new kind.
//!
//! Whether a tool may be *called* is decided by the gateway's own lists too: a client of an odd kind that is shown an
//! odd definition has that one withheld, and nobody else is harmed. Bounded in bytes, and in definitions for each tool.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::canonical::Hash;
use crate::config::PinMode;

/// The gateway's own ways to ask for a list.
pub const OWN_LISTS: usize = 4;
/// Approved definitions of one tool; the oldest goes.
const APPROVED_MAX: usize = 16;
/// Definitions of one tool that wait for approval; the oldest goes.
const PENDING_MAX: usize = 4;
/// Definitions that are remembered as reported; then they are forgotten all at once.
const REPORTED_MAX: usize = 1024;
/// What an entry takes beside its text, about.
const ENTRY_BYTES: usize = 128;

/// Who asked for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The gateway, in one of its own ways.
    Own(usize),
    /// A client of any other kind.
    Client,
}

/// A definition in its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The hash of its text.
    pub hash: Hash,
    /// The text.
    pub text: Arc<str>,
}

/// A definition that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The definition.
    pub definition: Definition,
    /// A bit for each source in whose last list it was.
    sources: u8,
}

/// What is pinned of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tool {
    /// Definitions it may have; oldest first.
    pub approved: Vec<Definition>,
    /// Definitions that wait; oldest first.
    pub pending: Vec<Pending>,
}

/// A tool in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its name; `None`: it has none that can be read.
    pub name: Option<String>,
    /// How it is defined.
    pub definition: Definition,
}

/// Something an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The tool.
    pub tool: String,
    /// Its definition.
    pub hash: Hash,
    /// What is the matter with it.
    pub what: What,
}

/// What is the matter with a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is not one that was approved.
    Changed,
    /// The tool is new, and new tools need approval.
    New,
    /// There is no room to keep it.
    NoRoom,
}

/// What a list comes to.
#[derive(Debug, Default)]
pub struct Verdict {
    /// For each tool whether it may be shown.
    pub shown: Vec<bool>,
    /// What was not reported before.
    pub findings: Vec<Finding>,
    /// True if other tools may be called than before.
    pub is_turn: bool,
    /// True if what is pinned is not what it was.
    pub is_dirty: bool,
    /// True if a client was shown something new, so that the gateway should look itself.
    pub is_doubt: bool,
}

/// What is pinned of one upstream.
#[derive(Debug)]
pub struct Book {
    tools: BTreeMap<String, Tool>,
    is_complete: bool,
    bytes: usize,
    bytes_max: usize,
    /// Names that must not be called, by the own list that says so.
    refused: [BTreeSet<String>; OWN_LISTS],
    reported: HashSet<(String, Hash)>,
}

impl Book {
    /// A book of nothing yet, with room for about `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            tools: BTreeMap::new(),
            is_complete: false,
            bytes: 0,
            bytes_max,
            refused: Default::default(),
            reported: HashSet::new(),
        }
    }

    /// Goes on with what was kept. What waited is in doubt until it is listed again, but can be approved.
    #[must_use]
    pub fn restore(mut self, tools: BTreeMap<String, Tool>, is_complete: bool) -> Self {
        self.bytes = tools.iter().map(|(name, tool)| tool_bytes(name, tool)).sum();
        self.tools = tools;
        self.is_complete = is_complete;
        self
    }

    /// All tools, by name.
    pub fn tools(&self) -> &BTreeMap<String, Tool> {
        &self.tools
    }

    /// True once the upstream has been pinned.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The gateway has seen every list of its own: from now on other definitions are changes. True if that is new.
    pub fn complete(&mut self) -> bool {
        !std::mem::replace(&mut self.is_complete, true)
    }

    /// Other tools than before may take this much room.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Names that must not be called.
    pub fn refused(&self) -> BTreeSet<&String> {
        self.refused.iter().flatten().collect()
    }

    /// How many tools have an approved definition; a changed one that waits; only one that waits.
    pub fn counts(&self) -> [usize; 3] {
        let count = |fits: fn(&Tool) -> bool| self.tools.values().filter(|tool| fits(tool)).count();
        [
            count(|tool| !tool.approved.is_empty()),
            count(|tool| !tool.approved.is_empty() && !tool.pending.is_empty()),
            count(|tool| tool.approved.is_empty()),
        ]
    }

    /// Takes in a list. `is_whole`: nothing is missing at its end.
    pub fn look(&mut self, source: Source, mode: PinMode, listed: &[Listed], is_whole: bool) -> Verdict {
        let mut verdict = Verdict::default();
        let before: BTreeSet<String> = self.refused.iter().flatten().cloned().collect();
        self.forget_absent(source, listed, is_whole, &mut verdict);
        let mut refused = BTreeSet::new();
        let mut good = Vec::with_capacity(listed.len());
        for tool in listed {
            let is_good = self.judge(source, mode, tool, &mut verdict);
            if let Some(name) = tool.name.as_ref().filter(|_| !is_good) {
                refused.insert(name.clone());
            }
            good.push(is_good);
        }
        if let Source::Own(index) = source
            && let Some(own) = self.refused.get_mut(index)
        {
            if is_whole {
                own.clone_from(&refused);
            } else {
                // What was refused may be beyond the cut.
                own.retain(|name| !listed.iter().any(|tool| tool.name.as_ref() == Some(name)));
                own.extend(refused.iter().cloned());
            }
        }
        verdict.is_turn = !self.refused().into_iter().eq(&before);
        let all: HashSet<&String> = self.refused.iter().flatten().chain(&refused).collect();
        let is_blocked = mode == PinMode::Block && (!all.is_empty() || good.contains(&false));
        verdict.shown = listed
            .iter()
            .zip(good)
            .map(|(tool, is_good)| match mode {
                PinMode::Off | PinMode::Warn => true,
                PinMode::Quarantine => is_good && tool.name.as_ref().is_some_and(|name| !all.contains(name)),
                PinMode::Block => !is_blocked && is_good,
            })
            .collect();
        verdict
    }

    /// Approves a definition that waits. False if this one does not.
    pub fn approve(&mut self, name: &str, hash: Hash) -> bool {
        let Some(tool) = self.tools.get_mut(name) else { return false };
        let Some(at) = tool.pending.iter().position(|pending| pending.definition.hash == hash) else {
            return false;
        };
        let definition = tool.pending.remove(at).definition;
        tool.approved.push(definition);
        if tool.approved.len() > APPROVED_MAX {
            let dropped = tool.approved.remove(0);
            self.bytes = self.bytes.saturating_sub(cost(name, &dropped));
        }
        let is_clear = |index: usize| tool.pending.iter().all(|pending| pending.sources & (1 << index) == 0);
        for (index, refused) in self.refused.iter_mut().enumerate() {
            if is_clear(index) {
                refused.remove(name);
            }
        }
        true
    }

    /// Whether a tool may have this definition; it is pinned where it is the first.
    fn judge(&mut self, source: Source, mode: PinMode, listed: &Listed, verdict: &mut Verdict) -> bool {
        let Some(name) = &listed.name else { return false };
        let hash = listed.definition.hash;
        let known = self.tools.get(name);
        if known.is_some_and(|tool| tool.approved.iter().any(|approved| approved.hash == hash)) {
            return true;
        }
        let is_new = known.is_none_or(|tool| tool.approved.is_empty());
        let is_waiting = known.is_some_and(|tool| !tool.pending.is_empty());
        let is_first = match source {
            Source::Own(_) if !self.is_complete => true,
            // Nothing is settled by what clients happen to see first.
            Source::Client if !self.is_complete => return false,
            _ => is_new && !is_waiting && mode != PinMode::Block,
        };
        if is_first {
            let count = known.map_or(0, |tool| tool.approved.len());
            let is_kept = count < APPROVED_MAX && self.has_room(name, &listed.definition);
            if is_kept {
                self.bytes += cost(name, &listed.definition);
                self.tools.entry(name.clone()).or_default().approved.push(listed.definition.clone());
                verdict.is_dirty = true;
            } else {
                self.report(name, hash, What::NoRoom, verdict);
            }
            return is_kept;
        }
        self.hold(source, name, &listed.definition, verdict);
        self.report(name, hash, if is_new { What::New } else { What::Changed }, verdict);
        false
    }

    /// Keeps a definition until it is approved.
    fn hold(&mut self, source: Source, name: &str, definition: &Definition, verdict: &mut Verdict) {
        let bit = source.bit();
        let tool = self.tools.get_mut(name);
        let held = tool
            .and_then(|tool| tool.pending.iter_mut().find(|held| held.definition.hash == definition.hash));
        if let Some(held) = held {
            held.sources |= bit;
            return;
        }
        verdict.is_doubt |= source == Source::Client;
        if !self.has_room(name, definition) {
            self.report(name, definition.hash, What::NoRoom, verdict);
            return;
        }
        verdict.is_dirty = true;
        self.bytes += cost(name, definition);
        let tool = self.tools.entry(name.to_owned()).or_default();
        tool.pending.push(Pending { definition: definition.clone(), sources: bit });
        if tool.pending.len() > PENDING_MAX {
            // What the gateway itself was given matters more.
            let at = tool.pending.iter().position(|held| held.sources == Source::Client.bit()).unwrap_or(0);
            let dropped = tool.pending.remove(at).definition;
            self.bytes = self.bytes.saturating_sub(cost(name, &dropped));
        }
    }

    /// Definitions that waited and are no longer given out wait no more: what is approved is what is there.
    fn forget_absent(&mut self, source: Source, listed: &[Listed], is_whole: bool, verdict: &mut Verdict) {
        // Clients differ: that one of them is shown another definition says nothing about the others.
        if source == Source::Client {
            return;
        }
        let mut given: BTreeMap<&str, Vec<Hash>> = BTreeMap::new();
        for tool in listed {
            if let Some(name) = &tool.name {
                given.entry(name).or_default().push(tool.definition.hash);
            }
        }
        let bit = source.bit();
        let mut freed = 0;
        for (name, tool) in self.tools.iter_mut().filter(|(_, tool)| !tool.pending.is_empty()) {
            let hashes = given.get(name.as_str());
            if hashes.is_none() && !is_whole {
                continue;
            }
            tool.pending.retain_mut(|held| {
                if !hashes.is_some_and(|hashes| hashes.contains(&held.definition.hash)) {
                    held.sources &= !bit;
                }
                // One that a restart put in doubt has no source; the first list decides.
                let is_kept = held.sources != 0;
                if !is_kept && !hashes.is_some_and(|hashes| hashes.contains(&held.definition.hash)) {
                    freed += cost(name, &held.definition);
                    return false;
                }
                true
            });
        }
        let count = self.tools.len();
        self.tools.retain(|_, tool| !tool.approved.is_empty() || !tool.pending.is_empty());
        self.bytes = self.bytes.saturating_sub(freed);
        verdict.is_dirty |= freed > 0 || self.tools.len() != count;
    }

    fn has_room(&self, name: &str, definition: &Definition) -> bool {
        self.bytes + cost(name, definition) <= self.bytes_max
    }

    fn report(&mut self, name: &str, hash: Hash, what: What, verdict: &mut Verdict) {
        if self.reported.len() >= REPORTED_MAX {
            self.reported.clear();
        }
        if self.reported.insert((name.to_owned(), hash)) {
            verdict.findings.push(Finding { tool: name.to_owned(), hash, what });
        }
    }
}

impl Source {
    fn bit(self) -> u8 {
        match self {
            Self::Own(index) => 1 << index,
            Self::Client => 1 << OWN_LISTS,
        }
    }
}

impl Pending {
    /// A definition that waited when it was last written down.
    pub fn kept(definition: Definition) -> Self {
        Self { definition, sources: 0 }
    }
}

impl Definition {
    /// A definition of this canonical form.
    pub fn new(canonical: String) -> Self {
        Self { hash: Hash::of(&canonical), text: canonical.into() }
    }
}

/// About what a definition takes.
fn cost(name: &str, definition: &Definition) -> usize {
    name.len() + definition.text.len() + ENTRY_BYTES
}

fn tool_bytes(name: &str, tool: &Tool) -> usize {
    let pending = tool.pending.iter().map(|pending| &pending.definition);
    tool.approved.iter().chain(pending).map(|definition| cost(name, definition)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [PinMode; 3] = [PinMode::Warn, PinMode::Quarantine, PinMode::Block];

    fn listed(tools: &[(&str, &str)]) -> Vec<Listed> {
        let one = |(name, text): &(&str, &str)| Listed {
            name: Some((*name).to_owned()),
            definition: Definition::new((*text).to_owned()),
        };
        tools.iter().map(one).collect()
    }

    /// A book in which the tools `a` and `b` are pinned with these texts.
    fn pinned(mode: PinMode) -> Book {
        let mut book = Book::new(1 << 20);
        for index in 0..OWN_LISTS {
            let verdict = book.look(Source::Own(index), mode, &listed(&[("a", "1"), ("b", "1")]), true);
            assert_eq!((verdict.shown, verdict.findings), (vec![true, true], vec![]));
        }
        assert!(book.complete());
        book
    }

    fn refused(book: &Book) -> Vec<&str> {
        book.refused().into_iter().map(String::as_str).collect()
    }

    #[test]
    fn a_change_is_treated_by_mode() {
        let changed = listed(&[("a", "2"), ("b", "1")]);
        let shown = [[true, true], [false, true], [false, false]];
        for (mode, shown) in MODES.into_iter().zip(shown) {
            let mut book = pinned(mode);
            let verdict = book.look(Source::Own(1), mode, &changed, true);
            assert_eq!(verdict.shown, shown, "{mode:?}");
            assert!(verdict.is_turn && verdict.is_dirty && !verdict.is_doubt);
            let hash = changed[0].definition.hash;
            assert_eq!(verdict.findings, [Finding { tool: "a".into(), hash, what: What::Changed }]);
            assert_eq!((refused(&book), book.counts()), (vec!["a"], [2, 1, 0]));
            let again = book.look(Source::Own(1), mode, &changed, true);
            assert!(again.findings.is_empty() && !again.is_turn && !again.is_dirty);
            assert!(book.approve("a", hash) && !book.approve("a", hash));
            assert!(refused(&book).is_empty());
            assert_eq!(book.look(Source::Own(1), mode, &changed, true).shown, [true, true]);
            // What was approved before still is.
            assert_eq!(
                book.look(Source::Own(0), mode, &listed(&[("a", "1"), ("b", "1")]), true).shown,
                [true; 2]
            );
        }
    }

    #[test]
    fn a_change_that_is_undone_waits_no_more() {
        let mut book = pinned(PinMode::Quarantine);
        let changed = listed(&[("a", "2"), ("b", "1")]);
        for index in [0, 1] {
            book.look(Source::Own(index), PinMode::Quarantine, &changed, true);
        }
        let good = listed(&[("a", "1"), ("b", "1")]);
        let verdict = book.look(Source::Own(0), PinMode::Quarantine, &good, true);
        assert!(!verdict.is_turn && verdict.shown == [false, true], "the other list still has it");
        let verdict = book.look(Source::Own(1), PinMode::Quarantine, &good, true);
        assert!(verdict.is_turn && verdict.shown == [true, true]);
        assert!(!book.approve("a", changed[0].definition.hash));
        assert_eq!(book.counts(), [2, 0, 0]);
    }

    #[test]
    fn a_tool_that_comes_back_changed_has_changed() {
        let mut book = pinned(PinMode::Quarantine);
        book.look(Source::Own(0), PinMode::Quarantine, &listed(&[("b", "1")]), true);
        assert!(refused(&book).is_empty());
        let back = listed(&[("a", "2"), ("b", "1")]);
        assert_eq!(book.look(Source::Own(0), PinMode::Quarantine, &back, true).shown, [false, true]);
        // Beyond the cut it may still be what it was.
        book.look(Source::Own(0), PinMode::Quarantine, &listed(&[("b", "1")]), false);
        assert_eq!(refused(&book), ["a"]);
    }

    #[test]
    fn new_tools_need_approval_where_all_is_blocked() {
        let new = listed(&[("a", "1"), ("b", "1"), ("c", "1")]);
        for (mode, is_shown, what) in [
            (PinMode::Warn, true, None),
            (PinMode::Quarantine, true, None),
            (PinMode::Block, false, Some(What::New)),
        ] {
            let mut book = pinned(mode);
            let verdict = book.look(Source::Own(0), mode, &new, true);
            assert_eq!(verdict.shown, [is_shown; 3], "{mode:?}");
            assert_eq!(verdict.findings.first().map(|finding| finding.what), what);
            assert_eq!(book.counts(), if is_shown { [3, 0, 0] } else { [2, 0, 1] });
            assert!(is_shown || book.approve("c", new[2].definition.hash));
            assert_eq!(book.look(Source::Own(0), mode, &new, true).shown, [true; 3]);
        }
    }

    #[test]
    fn dialects_may_differ_when_an_upstream_is_first_pinned_and_never_flap() {
        let mut book = Book::new(1 << 20);
        let by_list = ["plain", "capable", "old", "old"].map(|text| listed(&[("a", text)]));
        for _ in 0..2 {
            for (index, list) in by_list.iter().enumerate() {
                let verdict = book.look(Source::Own(index), PinMode::Block, list, true);
                assert_eq!((verdict.shown, verdict.findings, verdict.is_turn), (vec![true], vec![], false));
            }
            book.complete();
        }
        assert_eq!(book.tools()["a"].approved.len(), 3);
        assert_eq!(book.look(Source::Client, PinMode::Block, &by_list[1], true).shown, [true]);
    }

    #[test]
    fn clients_settle_nothing() {
        let mut book = Book::new(1 << 20);
        let odd = listed(&[("a", "odd"), ("b", "1")]);
        assert_eq!(book.look(Source::Client, PinMode::Quarantine, &odd, true).shown, [false, false]);
        assert!(book.tools().is_empty());
        let mut book = pinned(PinMode::Quarantine);
        let verdict = book.look(Source::Client, PinMode::Quarantine, &odd, true);
        assert_eq!(verdict.shown, [false, true]);
        assert!(verdict.is_doubt && !verdict.is_turn && refused(&book).is_empty());
        assert!(!book.look(Source::Client, PinMode::Quarantine, &odd, true).is_doubt, "it was known");
        assert!(book.approve("a", odd[0].definition.hash));
        assert_eq!(book.look(Source::Client, PinMode::Quarantine, &odd, true).shown, [true, true]);
    }

    #[test]
    fn duplicates_and_names_that_cannot_be_read_do_not_pass() {
        let mut book = pinned(PinMode::Quarantine);
        let twice = listed(&[("a", "1"), ("a", "2"), ("b", "1")]);
        assert_eq!(book.look(Source::Own(0), PinMode::Quarantine, &twice, true).shown, [false, false, true]);
        let nameless = Listed { name: None, definition: Definition::new("1".into()) };
        let mut book = pinned(PinMode::Block);
        assert_eq!(book.look(Source::Own(0), PinMode::Block, &[nameless], true).shown, [false]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut book = pinned(PinMode::Quarantine);
        let bytes = book.bytes;
        for number in 0..100 {
            let text = number.to_string() + "x";
            for source in [Source::Own(0), Source::Own(1), Source::Client] {
                book.look(source, PinMode::Quarantine, &listed(&[("a", &text), ("b", "1")]), true);
            }
        }
        let pending = &book.tools()["a"].pending;
        assert!(pending.len() <= PENDING_MAX);
        assert!(pending.iter().any(|held| held.definition.text.as_ref() == "99x"));
        assert!(book.bytes < bytes + (PENDING_MAX + 1) * (ENTRY_BYTES + 16));
        let sum: usize = book.tools.iter().map(|(name, tool)| tool_bytes(name, tool)).sum();
        assert_eq!(book.bytes, sum);

        book.set_bytes_max(book.bytes + 10);
        let new = listed(&[("b", "1"), ("c", "1")]);
        let verdict = book.look(Source::Own(0), PinMode::Quarantine, &new, true);
        assert_eq!(verdict.shown, [true, false], "what cannot be kept is not believed");
        assert_eq!(verdict.findings.last().map(|finding| finding.what), Some(What::NoRoom));
    }

    #[test]
    fn a_restart_keeps_what_waits_until_it_is_listed_again() {
        let mut before = pinned(PinMode::Quarantine);
        let changed = listed(&[("a", "2"), ("b", "1")]);
        before.look(Source::Own(0), PinMode::Quarantine, &changed, true);
        let kept = || {
            let mut tools = before.tools().clone();
            for tool in tools.values_mut() {
                tool.pending.iter_mut().for_each(|held| held.sources = 0);
            }
            Book::new(1 << 20).restore(tools, true)
        };
        let mut book = kept();
        assert_eq!(book.look(Source::Own(0), PinMode::Quarantine, &changed, true).shown, [false, true]);
        let mut book = kept();
        assert!(book.approve("a", changed[0].definition.hash));
        assert_eq!(book.look(Source::Own(0), PinMode::Quarantine, &changed, true).shown, [true, true]);
        let mut book = kept();
        let good = listed(&[("a", "1"), ("b", "1")]);
        assert!(book.look(Source::Own(0), PinMode::Quarantine, &good, true).is_dirty);
        assert_eq!(book.counts(), [2, 0, 0]);
    }
}
