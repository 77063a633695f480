//! The lists of upstreams that were cut off at a limit, as they are kept: of each the way in which it was asked for last.

use std::collections::HashMap;
use std::time::Instant;

use status::ListCut;

use crate::context::state::State;
use crate::tables::lists::cache::Scope;
use crate::tables::lists::part::Content;
use crate::tables::lists::{CatalogQuery, List};
use crate::upstream::UpstreamId;

/// Lists that were cut off, by upstream.
pub(super) type ListCuts = HashMap<UpstreamId, Vec<ListCut>>;

/// Those of the gateway's own lists: what a client alone is shown is no matter of others.
pub(super) fn list_cuts(state: &State) -> ListCuts {
    let mut latest: HashMap<(UpstreamId, &str), (Instant, Option<ListCut>)> = HashMap::new();
    for (key, part) in &state.catalog.parts {
        let CatalogQuery::List(list) = key.kind else { continue };
        if key.scope != Scope::Gateway {
            continue;
        }
        let place = (key.upstream, list.method().label());
        if latest.get(&place).is_none_or(|(asked, _)| *asked < part.asked) {
            latest.insert(place, (part.asked, cut(list, &part.content)));
        }
    }
    let mut cuts = ListCuts::new();
    for ((upstream, _), (_, cut)) in latest {
        cuts.entry(upstream).or_default().extend(cut);
    }
    for of_one in cuts.values_mut() {
        of_one.sort_by(|one, other| one.list.cmp(&other.list));
    }
    cuts
}

fn cut(list: List, content: &Content) -> Option<ListCut> {
    let shown: usize = content.pages.iter().map(|page| page.items.len()).sum();
    let list = list.method().label().to_owned();
    content.cut.map(|cut| ListCut { list, reason: cut.label().to_owned(), shown: shown as u64 })
}
