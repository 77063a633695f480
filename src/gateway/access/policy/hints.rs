//! What an upstream's tools say of themselves, for rules that ask for it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use protocol::hints::Hints;

/// Tools that are known to have annotations, in all lists of an upstream; beyond it only the latest list counts.
const ANNOTATED_MAX: usize = 65_536;

/// What the annotations of tools say, by the name the upstream gave them; tools without any are not in it.
pub(crate) type ToolHints = HashMap<Box<str>, Hints>;

/// What the annotations of an upstream's tools say, as they were last listed.
#[derive(Debug, Default)]
pub(crate) struct HintCell(ArcSwap<ToolHints>);

impl HintCell {
    /// What they say of a tool, by the upstream's name for it.
    pub(crate) fn of(&self, tool: &str) -> Hints {
        self.0.load().get(tool).copied().unwrap_or_default()
    }

    /// What they say of all; another value whenever it is something else.
    pub(crate) fn now(&self) -> Arc<ToolHints> {
        self.0.load_full()
    }

    /// Replaces what is known of these tools. Of one that is there twice, what both say.
    pub(crate) fn publish<'n>(&self, tools: impl Iterator<Item = (Cow<'n, str>, Hints)>) {
        let mut listed: HashMap<Cow<'n, str>, Hints> = HashMap::new();
        for (name, hints) in tools {
            listed.entry(name).and_modify(|known| *known = known.and(hints)).or_insert(hints);
        }
        let known = self.0.load();
        let is_known = |(name, hints): (&Cow<'_, str>, &Hints)| {
            known.get(&**name).copied().unwrap_or_default() == *hints
        };
        if listed.iter().all(is_known) {
            return;
        }
        let mut next = if known.len() + listed.len() > ANNOTATED_MAX {
            ToolHints::new()
        } else {
            ToolHints::clone(&known)
        };
        for (name, hints) in listed {
            if hints == Hints::default() {
                next.remove(&*name);
            } else {
                next.insert(name.into(), hints);
            }
        }
        self.0.store(Arc::new(next));
    }
}
