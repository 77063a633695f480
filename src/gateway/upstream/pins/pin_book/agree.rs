//! Going by what all gateways have pinned.

use std::collections::BTreeMap;

use super::{APPROVED_MAX, Definition, PinBook, PinnedTool, tool_bytes};
use crate::upstream::pins::record::Approvals;
use config::PinMode;
use protocol::canonical::Hash;

/// Changes that a record made to the tools.
#[derive(Debug, Default)]
pub(crate) struct AgreedChange {
    /// Definitions that waited here and were approved, or seen first, elsewhere.
    pub approved: Vec<(String, Hash)>,
    /// True if other definitions are approved than before.
    pub is_turn: bool,
    /// True if the record is not there that was known, nor a later one.
    pub is_lost: bool,
}

impl PinBook {
    /// From now on what is approved is `theirs`, and what was approved here by the operator since (`own`). What else was taken
    /// on trust here is compared with it when it is listed next. A tool that they lack is new.
    pub(crate) fn agree(
        &mut self,
        theirs: BTreeMap<String, PinnedTool>,
        mode: PinMode,
        own: &Approvals,
    ) -> AgreedChange {
        let mut change = AgreedChange::default();
        let is_own = |name: &str, one: &Definition| own.contains(&(name.to_owned(), one.hash));
        for (name, tool) in self.tools.iter_mut().filter(|(name, _)| !theirs.contains_key(*name)) {
            let count = tool.approved.len();
            tool.approved.retain(|one| mode != PinMode::Block || is_own(name, one));
            change.is_turn |= tool.approved.len() != count;
        }
        for (name, PinnedTool { mut approved, .. }) in theirs {
            let tool = self.tools.entry(name.clone()).or_default();
            let ours = tool.approved.iter().filter(|one| is_own(&name, one) && !approved.contains(one));
            let ours: Vec<Definition> = ours.cloned().collect();
            approved.extend(ours);
            let dropped = approved.len().saturating_sub(APPROVED_MAX);
            approved.drain(..dropped);
            if tool.approved == approved {
                continue;
            }
            change.is_turn = true;
            tool.approved = approved;
            let approved = &tool.approved;
            tool.pending.retain(|held| {
                let is_approved = approved.contains(&held.definition);
                if is_approved {
                    change.approved.push((name.clone(), held.definition.hash));
                }
                !is_approved
            });
        }
        self.is_complete = true;
        if change.is_turn {
            self.settle();
        }
        change
    }

    /// Forgets everything.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    /// Tools that nothing waits of are no longer refused; the next lists say whether they are.
    fn settle(&mut self) {
        self.tools.retain(|_, tool| !tool.approved.is_empty() || !tool.pending.is_empty());
        self.bytes = self.tools.iter().map(|(name, tool)| tool_bytes(name, tool)).sum();
        for (index, refused) in self.refused.iter_mut().enumerate() {
            let waits = |tool: &PinnedTool| tool.pending.iter().any(|held| held.sources & (1 << index) != 0);
            refused.retain(|name| self.tools.get(name).is_some_and(waits));
        }
    }
}
