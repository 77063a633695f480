//! Leaving out of a tools list what its pins do not let through, as it arrives: nothing else of it is ever kept.
//!
//! A tool that was left out for another reason is judged as well: a change must not hide behind a mistake.

use super::fetch::FetchContext;
use super::gather::PartRequest;
use super::learn::CAPABILITIES;
use super::upstream_dialect::NO_CAPABILITIES;
use crate::tables::lists::part::Content;
use crate::tables::lists::{CatalogQuery, Dialect, List};
use crate::upstream::Upstream;
use crate::upstream::changes::ChangedList;
use crate::upstream::pins::pin_book::{Definition, ListSource, ListedTool, OWN_LISTS};
use protocol::canonical::canonical;
use protocol::json::Scratch;
use protocol::version::LegacyVersion;

/// Longer lists are hashed off the thread.
const HASHED_INLINE_BYTES_MAX: usize = 32 * 1024;

/// The protocols in which the gateway asks for lists of its own: clients that can do nothing, and everything.
pub(crate) const OWN_DIALECTS: [Dialect<&'static [u8]>; OWN_LISTS] = [
    Dialect::Modern(NO_CAPABILITIES.as_bytes()),
    Dialect::Modern(CAPABILITIES.as_bytes()),
    Dialect::Legacy(LegacyVersion::NEWEST, NO_CAPABILITIES.as_bytes()),
    Dialect::Legacy(LegacyVersion::NEWEST, CAPABILITIES.as_bytes()),
];

impl PartRequest {
    /// Leaves out what must not be shown. True if other lists of this upstream are in doubt by what was found.
    pub(super) async fn compare_with_pins(&self, thread: &FetchContext, content: &mut Content) -> bool {
        let Some(pins) =
            self.upstream.pins.as_ref().filter(|_| self.key.kind == CatalogQuery::List(List::Tools))
        else {
            return false;
        };
        let source = self.source();
        pins.ready(source, self.upstream.config.list_timeout).await;
        let depth_max = thread.snapshot.limits.json_depth_max;
        let taken = std::mem::take(content);
        let is_short = taken.bytes() <= HASHED_INLINE_BYTES_MAX;
        let definitions = move || (listed(&taken, depth_max), taken);
        let (listed, taken) =
            if is_short { definitions() } else { thread.client.tasks.compute(definitions).await };
        *content = taken;
        let looked = pins.look(&self.upstream, source, &listed, content.cut.is_none());
        leave_out(content, &listed, &looked.shown);
        if looked.is_doubt {
            thread.state.pins_due.notify_one();
        }
        if looked.is_turn {
            self.upstream.changes.note(ChangedList::Tools);
            thread.state.hub.tell(&self.upstream, ChangedList::Tools);
        }
        looked.is_turn
    }

    /// A list that only one client is shown says nothing about those of all others.
    fn source(&self) -> ListSource {
        let own = OWN_DIALECTS.iter().position(|own| own.key() == self.key.dialect);
        own.filter(|_| self.owner.is_gateway()).map_or(ListSource::Client, ListSource::Own)
    }
}

/// Leaves out of a list that was kept what its pins do not let through now. They learn nothing by it. False if they have yet
/// to see what is in it: such a list is fetched anew.
pub(super) fn leave_out_now(
    upstream: &Upstream,
    list: List,
    content: &mut Content,
    depth_max: usize,
) -> bool {
    let Some(pins) = upstream.pins.as_ref().filter(|_| list == List::Tools) else { return true };
    let listed = listed(content, depth_max);
    let Some(shown) = pins.allowed(upstream, &listed) else { return false };
    leave_out(content, &listed, &shown);
    true
}

/// The tools of a list in its order, and after them those that were left out already.
fn listed(content: &Content, depth_max: usize) -> Vec<ListedTool> {
    let mut scratch = Scratch::default();
    let mut define = |name: Option<String>, text: &[u8]| {
        // Part of a text that was checked, it has a form.
        let form = canonical(text, &mut scratch, depth_max).unwrap_or_default();
        ListedTool { name, definition: Definition::new(form) }
    };
    let mut listed = Vec::new();
    for page in &content.pages {
        for item in &page.items {
            let text = page.body.get(item.span.clone()).unwrap_or_default();
            listed.push(define(page.name_of(item, List::Tools).map(String::from), text));
        }
    }
    for tool in content.excluded.iter() {
        let first = define(tool.names.first().cloned(), &tool.definition);
        let others = tool.names.iter().skip(1);
        listed.extend(others.map(|name| ListedTool { name: Some(name.clone()), ..first.clone() }));
        listed.push(first);
    }
    listed
}

fn leave_out(content: &mut Content, listed: &[ListedTool], shown: &[bool]) {
    let mut verdicts = listed.iter().zip(shown);
    let mut withheld = Vec::new();
    for page in &mut content.pages {
        page.items.retain(|_| {
            let Some((tool, is_shown)) = verdicts.next() else { return false };
            if !is_shown && let Some(name) = &tool.name {
                withheld.push(name.as_str().into());
            }
            *is_shown
        });
    }
    content.withheld = withheld;
}
