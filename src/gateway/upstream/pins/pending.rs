//! Definitions that wait for approval, for whoever approves them. Pure.

use std::collections::BTreeMap;

use super::pin_book::{Definition, PinnedTool};
use protocol::canonical::Hash;

/// A definition that waits.
#[derive(Clone, Debug)]
pub struct PendingDefinition {
    /// The tool.
    pub tool: String,
    /// The definition that is pinned.
    pub before: Option<Definition>,
    /// The definition that the upstream offers instead.
    pub definition: Definition,
    /// The first member that differs from what is pinned, where another process of the same server shows an approved
    /// definition meanwhile: then no approval lasts.
    pub varying_member: Option<String>,
}

/// Definitions of these tools that wait.
pub fn of(tools: &BTreeMap<String, PinnedTool>) -> Vec<PendingDefinition> {
    let of_tool = |(name, tool): (&String, &PinnedTool)| {
        let before = tool.approved.last().cloned();
        let waiting = tool.pending.iter().map(|pending| PendingDefinition {
            tool: name.clone(),
            before: before.clone(),
            definition: pending.definition.clone(),
            varying_member: before
                .as_ref()
                .filter(|_| pending.is_beside)
                .map(|before| pending.differing_member(before)),
        });
        waiting.collect::<Vec<_>>()
    };
    tools.iter().flat_map(of_tool).collect()
}

/// Binds an approval of everything to everything that was shown, and whose it is.
pub fn hash_of_all(waiting: &[PendingDefinition]) -> Hash {
    Hash::of_all(waiting.iter().flat_map(|waiting| [Hash::of(&waiting.tool), waiting.definition.hash]))
}
