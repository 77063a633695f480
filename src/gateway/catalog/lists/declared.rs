//! The lists that a server has, by what it declares: it is not asked for others. Its tools are always asked for, as servers
//! forget to declare them, and so is a list that it has said to have changed: its introduction may be of an older version.
//!
//! A client in a session of its own, or with headers that are handed on, may be shown more than the gateway is: of its lists
//! nothing is known.

use super::gather::PartRequest;
use crate::tables::lists::{CatalogQuery, List};
use crate::upstream::Upstream;
use crate::upstream::changes::ChangedList;
use crate::upstream::facts::EraFacts;
use protocol::json::{Document, Scratch};
use protocol::version::Era;

impl PartRequest {
    /// True for a list that the server would have declared.
    pub(super) fn is_undeclared(&self, depth_max: usize) -> bool {
        let CatalogQuery::List(list) = self.key.kind else { return false };
        let was_announced =
            self.key.kind.changed().is_some_and(|list| self.upstream.changes.was_announced(list));
        self.owner.is_gateway()
            && !was_announced
            && is_undeclared(&self.upstream, list, self.dialect.era(), depth_max)
    }
}

fn is_undeclared(upstream: &Upstream, list: List, era: Era, depth_max: usize) -> bool {
    let Some(capability) = capability(list) else { return false };
    let known = upstream.facts.known();
    known.of(era).introduction().is_some_and(|said| lacks(&said.result, capability, depth_max))
}

/// The kinds of lists that a server has come to declare, where it declared others before.
pub(crate) fn newly_declared(
    before: &EraFacts,
    now: &EraFacts,
    depth_max: usize,
) -> impl Iterator<Item = ChangedList> {
    let was_lacking = move |era: Era, changed: ChangedList| {
        let [before, now] = [before, now].map(|known| {
            known.of(era).introduction().map(|said| lacks(&said.result, changed.capability(), depth_max))
        });
        (before, now) == (Some(true), Some(false))
    };
    let others = [ChangedList::Prompts, ChangedList::Resources].into_iter();
    others.filter(move |changed| Era::ALL.into_iter().any(|era| was_lacking(era, *changed)))
}

/// The capability without which there is no such list.
fn capability(list: List) -> Option<&'static str> {
    match list {
        List::Tools => None,
        List::Prompts => Some("prompts"),
        List::Resources | List::Templates => Some("resources"),
    }
}

/// True for an introduction that declares capabilities, and not this one.
fn lacks(introduction: &[u8], capability: &str, depth_max: usize) -> bool {
    let mut scratch = Scratch::default();
    let root = scratch.index(introduction, depth_max).ok().map(Document::root);
    let declared = root.and_then(|root| root.get("capabilities")).filter(|declared| declared.is_object());
    declared.is_some_and(|declared| declared.get(capability).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_lacks_what_it_could_have_declared() {
        for (introduction, expected) in [
            (r#"{"capabilities":{}}"#, true),
            (r#"{"capabilities":{"tools":{}}}"#, true),
            (r#"{"capabilities":{"prompts":{}}}"#, false),
            (r#"{"capabilities":{"prompts":null}}"#, false),
            // It is not known what these have.
            ("{}", false),
            (r#"{"capabilities":[]}"#, false),
            ("{", false),
        ] {
            assert_eq!(lacks(introduction.as_bytes(), "prompts", 8), expected, "{introduction}");
        }
        assert_eq!(List::ALL.map(capability), [None, Some("prompts"), Some("resources"), Some("resources")]);
    }
}
