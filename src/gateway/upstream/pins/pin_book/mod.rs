//! Pins of one upstream, and the verdict on a list of its tools: definitions in, verdicts out. No I/O, no clock.
//!
//! A tool has the definitions that were approved, by being there first or by the operator, and those that wait for it.
//! It may have several approved ones, as servers define a tool differently for clients of another revision or with
//! other capabilities. Which those are is settled by the gateway's own lists alone, when the upstream is first pinned
//! (until [`PinBook::complete`]): were the first list of every kind of client believed, a changed definition would only
//! have to wait for a client of a new kind.
//!
//! The gateway's own lists decide as well which tools may be *called*: a client of an odd kind that is shown an
//! odd definition has that one withheld, and nobody else is harmed. Bounded in bytes, and in definitions for each tool.

pub(crate) mod agree;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::diff::first_difference;
use config::PinMode;
use protocol::canonical::Hash;

/// The gateway's own ways to ask for a list.
pub(crate) const OWN_LISTS: usize = 4;
/// Approved definitions of one tool; the oldest goes.
const APPROVED_MAX: usize = 16;
/// Definitions of one tool that wait for approval; the oldest goes.
const PENDING_MAX: usize = 4;
/// Definitions that are remembered as reported; then they are forgotten all at once.
const REPORTED_MAX: usize = 1024;
/// Size of an entry beside its text, about.
const ENTRY_BYTES: usize = 128;

/// The client that asked for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListSource {
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
    /// Another process of the same server shows an approved definition meanwhile.
    pub is_beside: bool,
}

/// The pins of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedTool {
    /// Definitions it may have; oldest first.
    pub approved: Vec<Definition>,
    /// Definitions that wait; oldest first.
    pub pending: Vec<Pending>,
}

/// A tool in a list.
#[derive(Clone, Debug)]
pub(crate) struct ListedTool {
    /// Its name; `None`: it has none that can be read.
    pub name: Option<String>,
    /// Its text and hash.
    pub definition: Definition,
}

/// Something an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinFinding {
    /// The tool.
    pub tool: String,
    /// Its definition.
    pub hash: Hash,
    /// The fault of it.
    pub what: PinChange,
}

/// The fault of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinChange {
    /// It is not one that was approved.
    Changed,
    /// The tool is new, and new tools need approval.
    New,
    /// There is no room to keep it.
    NoRoom,
}

/// The verdict on a list.
#[derive(Debug, Default)]
pub(crate) struct ListVerdict {
    /// For each tool whether it may be shown.
    pub shown: Vec<bool>,
    /// Findings that were not reported before.
    pub findings: Vec<PinFinding>,
    /// True if other tools may be called than before.
    pub is_turn: bool,
    /// True if what is pinned is not what it was.
    pub is_dirty: bool,
    /// True if a client was shown something new, so that the gateway should look itself.
    pub is_doubt: bool,
}

/// The pins of one upstream.
#[derive(Debug)]
pub(crate) struct PinBook {
    tools: BTreeMap<String, PinnedTool>,
    is_complete: bool,
    bytes: usize,
    bytes_max: usize,
    /// Names that must not be called, by the own list that says so.
    refused: [BTreeSet<String>; OWN_LISTS],
    /// Definitions that each of the gateway's own lists showed last, since the start.
    shown: [BTreeMap<String, Hash>; OWN_LISTS],
    reported: HashSet<(String, Hash)>,
}

impl PinnedTool {
    /// True if it may have the definition of this hash; `None`: nobody has seen that yet.
    pub(crate) fn is_approved(&self, hash: Hash) -> Option<bool> {
        let is_approved = self.approved.iter().any(|approved| approved.hash == hash);
        let is_pending = || self.pending.iter().any(|pending| pending.definition.hash == hash);
        (is_approved || is_pending()).then_some(is_approved)
    }
}

impl PinBook {
    /// A book of nothing yet, with room for about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            tools: BTreeMap::new(),
            is_complete: false,
            bytes: 0,
            bytes_max,
            refused: Default::default(),
            shown: Default::default(),
            reported: HashSet::new(),
        }
    }

    /// Goes on with what was kept. What waited is in doubt until it is listed again, but can be approved.
    #[must_use]
    pub(crate) fn restore(mut self, tools: BTreeMap<String, PinnedTool>, is_complete: bool) -> Self {
        self.bytes = tools.iter().map(|(name, tool)| tool_bytes(name, tool)).sum();
        self.tools = tools;
        self.is_complete = is_complete;
        self
    }

    /// All tools, by name.
    pub(crate) fn tools(&self) -> &BTreeMap<String, PinnedTool> {
        &self.tools
    }

    /// True once the upstream has been pinned.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The gateway has seen every list of its own: from now on other definitions are changes. True if that is new.
    pub(crate) fn complete(&mut self) -> bool {
        !std::mem::replace(&mut self.is_complete, true)
    }

    /// Other tools than before may take this much room.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Names that must not be called.
    pub(crate) fn refused(&self) -> BTreeSet<&String> {
        self.refused.iter().flatten().collect()
    }

    /// The definition of a tool that waits under this hash, and the first member in which it differs from the latest
    /// approved one. `None`: there are no such definitions.
    pub(crate) fn compare(&self, name: &str, hash: Hash) -> Option<(&Pending, String)> {
        let tool = self.tools.get(name)?;
        let pending = tool.pending.iter().find(|pending| pending.definition.hash == hash)?;
        Some((pending, pending.differing_member(tool.approved.last()?)))
    }

    /// The member in which the definition of a tool differs from process to process, if it does.
    pub(crate) fn varying_member(&self, name: &str) -> Option<String> {
        let tool = self.tools.get(name)?;
        let varying = tool.pending.iter().find(|pending| pending.is_beside)?;
        Some(varying.differing_member(tool.approved.last()?))
    }

    /// Notes which of the definitions that wait stand beside an approved one that another process of the same server shows.
    /// `has_processes`: each list may be of another one. True if anything is not as it was.
    pub(crate) fn note_processes(&mut self, has_processes: bool) -> bool {
        let mut is_other = false;
        for (name, tool) in self.tools.iter_mut().filter(|(_, tool)| !tool.pending.is_empty()) {
            let is_approved = |shown: &Hash| tool.approved.iter().any(|approved| approved.hash == *shown);
            let is_beside =
                has_processes && self.shown.iter().any(|shown| shown.get(name).is_some_and(is_approved));
            for pending in &mut tool.pending {
                is_other |= std::mem::replace(&mut pending.is_beside, is_beside) != is_beside;
            }
        }
        is_other
    }

    /// Numbers of tools that have an approved definition; a changed one that waits; only one that waits.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let count = |fits: fn(&PinnedTool) -> bool| self.tools.values().filter(|tool| fits(tool)).count();
        [
            count(|tool| !tool.approved.is_empty()),
            count(|tool| !tool.approved.is_empty() && !tool.pending.is_empty()),
            count(|tool| tool.approved.is_empty()),
        ]
    }

    /// Takes in a list. `is_whole`: nothing is missing at its end.
    pub(crate) fn look(
        &mut self,
        source: ListSource,
        mode: PinMode,
        listed: &[ListedTool],
        is_whole: bool,
    ) -> ListVerdict {
        let mut verdict = ListVerdict::default();
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
        if let ListSource::Own(index) = source
            && let (Some(own), Some(shown)) = (self.refused.get_mut(index), self.shown.get_mut(index))
        {
            let named = |tool: &ListedTool| Some((tool.name.clone()?, tool.definition.hash));
            if is_whole {
                shown.clear();
            }
            shown.extend(listed.iter().filter_map(named));
            if is_whole {
                own.clone_from(&refused);
            } else {
                // Refused ones may be beyond the cut.
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
    pub(crate) fn approve(&mut self, name: &str, hash: Hash) -> bool {
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

    /// True if a tool may have this definition; it is pinned where it is the first.
    fn judge(
        &mut self,
        source: ListSource,
        mode: PinMode,
        listed: &ListedTool,
        verdict: &mut ListVerdict,
    ) -> bool {
        let Some(name) = &listed.name else { return false };
        let hash = listed.definition.hash;
        let known = self.tools.get(name);
        if known.is_some_and(|tool| tool.approved.iter().any(|approved| approved.hash == hash)) {
            return true;
        }
        let is_new = known.is_none_or(|tool| tool.approved.is_empty());
        let is_waiting = known.is_some_and(|tool| !tool.pending.is_empty());
        let is_first = match source {
            ListSource::Own(_) if !self.is_complete => true,
            // Nothing is settled by what clients happen to see first.
            ListSource::Client if !self.is_complete => return false,
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
                self.report(name, hash, PinChange::NoRoom, verdict);
            }
            return is_kept;
        }
        self.hold(source, name, &listed.definition, verdict);
        self.report(name, hash, if is_new { PinChange::New } else { PinChange::Changed }, verdict);
        false
    }

    /// Keeps a definition until it is approved.
    fn hold(&mut self, source: ListSource, name: &str, definition: &Definition, verdict: &mut ListVerdict) {
        let bit = source.bit();
        let tool = self.tools.get_mut(name);
        let held = tool
            .and_then(|tool| tool.pending.iter_mut().find(|held| held.definition.hash == definition.hash));
        if let Some(held) = held {
            held.sources |= bit;
            return;
        }
        verdict.is_doubt |= source == ListSource::Client;
        if !self.has_room(name, definition) {
            self.report(name, definition.hash, PinChange::NoRoom, verdict);
            return;
        }
        verdict.is_dirty = true;
        self.bytes += cost(name, definition);
        let tool = self.tools.entry(name.to_owned()).or_default();
        tool.pending.push(Pending { definition: definition.clone(), sources: bit, is_beside: false });
        if tool.pending.len() > PENDING_MAX {
            // Definitions that the gateway itself was given matter more.
            let at =
                tool.pending.iter().position(|held| held.sources == ListSource::Client.bit()).unwrap_or(0);
            let dropped = tool.pending.remove(at).definition;
            self.bytes = self.bytes.saturating_sub(cost(name, &dropped));
        }
    }

    /// Definitions that waited and are no longer given out wait no more: what is approved is what is there.
    fn forget_absent(
        &mut self,
        source: ListSource,
        listed: &[ListedTool],
        is_whole: bool,
        verdict: &mut ListVerdict,
    ) {
        // Clients differ: that one of them is shown another definition says nothing about the others.
        if source == ListSource::Client {
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

    fn report(&mut self, name: &str, hash: Hash, what: PinChange, verdict: &mut ListVerdict) {
        if self.reported.len() >= REPORTED_MAX {
            self.reported.clear();
        }
        if self.reported.insert((name.to_owned(), hash)) {
            verdict.findings.push(PinFinding { tool: name.to_owned(), hash, what });
        }
    }
}

impl ListSource {
    fn bit(self) -> u8 {
        match self {
            Self::Own(index) => 1 << index,
            Self::Client => 1 << OWN_LISTS,
        }
    }
}

impl Pending {
    /// A definition that waited when it was last written down.
    pub fn kept(definition: Definition, is_beside: bool) -> Self {
        Self { definition, sources: 0, is_beside }
    }

    /// The first member that is another one than in this approved definition.
    pub fn differing_member(&self, approved: &Definition) -> String {
        first_difference(&approved.text, &self.definition.text)
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

fn tool_bytes(name: &str, tool: &PinnedTool) -> usize {
    let pending = tool.pending.iter().map(|pending| &pending.definition);
    tool.approved.iter().chain(pending).map(|definition| cost(name, definition)).sum()
}
