//! Keeping what was fetched, and telling whoever should know: clients of a change that nobody announced, calls of the
//! mirrored parameters of tools, operators of what was cut off or left out.

use std::sync::Arc;
use std::time::Instant;

use super::fetch::{FetchContext, FetchResult};
use super::gather::PartRequest;
use super::owner::ListOwner;
use super::upstream_dialect::is_own;
use crate::clock;
use crate::tables::lists::cache::PartKey;
use crate::tables::lists::kept::{KeptPart, KeptParts};
use crate::tables::lists::part::{Content, ExcludeReason, Excluded, ListPart, Truncation};
use crate::tables::lists::{CatalogQuery, DialectKey, List};
use crate::telemetry::logs::shorten;
use crate::telemetry::metrics::vec::IntCounterVec;
use crate::upstream::Upstream;
use protocol::version::Era;

/// Longer contents are compared off the thread.
const COMPARED_INLINE_BYTES_MAX: usize = 256 * 1024;
/// How many of the entries that were left out are named in the log.
const EXCLUDED_LOGGED_MAX: usize = 5;

/// A list that was fetched, beside what there was.
struct Compared {
    /// The one that was there, in whichever dialect, if it says the same.
    content: Arc<Content>,
    /// It says the same as what was fetched before.
    is_same: bool,
    /// It is another one than what is kept of this list, in whichever dialect.
    is_unlike_kept: bool,
}

impl PartRequest {
    /// Keeps what was fetched, and tells whoever should know that it is not what it was.
    pub(super) async fn keep(
        &self,
        thread: &FetchContext,
        fetched: FetchResult,
        count: u64,
        asked: Instant,
    ) -> Arc<ListPart> {
        let catalog = &thread.state.catalog;
        let config = &self.upstream.config;
        let before = catalog.parts.get(&self.key);
        let is_first = self.owner.is_gateway() && self.upstream.listing.note_fetched(self.key.kind.index());
        let Compared { content, is_same, is_unlike_kept } =
            self.compared(thread, before.clone(), fetched.content).await;
        // Also of a list that was cut off: the next would be cut off alike.
        let ttl = fetched.ttl.max(config.list_ttl_min);
        let fresh_until = fetched.arrived + ttl;
        // Of a list that was kept, clients may hold what it was, whatever they asked with. A list that was merged with it, or
        // fetched for other capabilities, is in doubt as well, unless an announcement put it in doubt already.
        let was_kept = before.as_ref().map_or(is_first, |before| before.is_kept);
        let is_change = match &before {
            Some(before) => !is_same && (was_kept || !before.ttl.is_zero()),
            None => was_kept && is_unlike_kept,
        };
        let is_unannounced = is_change && before.is_none_or(|before| before.count == count);
        let count = match self.key.kind.changed().filter(|_| is_unannounced && self.owner.is_gateway()) {
            Some(changed) => {
                self.upstream.changes.note(changed);
                count + 1
            }
            None => count,
        };
        let part = Arc::new(ListPart {
            ttl,
            fresh_until,
            stale_until: fresh_until + config.stale_if_error.max(config.stale_while_revalidate),
            count,
            asked,
            is_kept: false,
            content,
        });
        catalog.parts.insert(self.key, Arc::clone(&part));
        // A list that was kept was told to calls as far as its era was known then.
        if !is_same || was_kept {
            publish(&self.upstream, &self.key, &self.owner, &part.content);
        }
        self.report(thread, &part.content, is_same);
        if !is_same {
            self.note_kept(thread, &part.content);
            catalog.renewed.notify_one();
        }
        // Of a change that the upstream announced, clients are told twice: what put the list in doubt may have been
        // something that nobody was told.
        self.tell(thread, is_change, was_kept);
        part
    }

    /// The content that was fetched, beside the one there was.
    async fn compared(
        &self,
        thread: &FetchContext,
        before: Option<Arc<ListPart>>,
        content: Content,
    ) -> Compared {
        if content.bytes() <= COMPARED_INLINE_BYTES_MAX {
            return self.compare(&thread.state.catalog.kept, before, content);
        }
        let (own, state) = (self.clone(), Arc::clone(&thread.state));
        thread.client.tasks.compute(move || own.compare(&state.catalog.kept, before, content)).await
    }

    fn compare(&self, kept: &KeptParts, before: Option<Arc<ListPart>>, content: Content) -> Compared {
        if let Some(before) = before.filter(|before| before.content.is_same(&content)) {
            let content = Arc::clone(&before.content);
            return Compared { content, is_same: true, is_unlike_kept: false };
        }
        let kept = match self.key.kind {
            CatalogQuery::List(list) if self.owner.is_gateway() => kept.of(self.upstream.id, list),
            _ => Vec::new(),
        };
        let is_unlike_kept = kept.iter().any(|kept| !kept.content.has_same_entries(&content));
        // The same reply is read otherwise in another era.
        let mut alike = kept.into_iter().filter(|kept| kept.dialect.era() == self.key.dialect.era());
        let same = alike.find(|kept| kept.content.is_same(&content));
        let content = same.map_or_else(|| content.into(), |same| same.content);
        Compared { content, is_same: false, is_unlike_kept }
    }

    /// Keeps it for restarts, too.
    fn note_kept(&self, thread: &FetchContext, content: &Arc<Content>) {
        let CatalogQuery::List(list) = self.key.kind else { return };
        if !self.owner.is_gateway() {
            return;
        }
        let dialect = self.key.dialect;
        let part = KeptPart { list, dialect, is_own: is_own(&dialect), content: Arc::clone(content) };
        if !thread.state.catalog.kept.note(self.upstream.id, part) {
            let name = &self.upstream.config.name;
            thread.state.metrics.lists.not_kept.with_label_values(&[name]).inc();
        }
    }

    /// Tells clients of a change that nobody told them of.
    fn tell(&self, thread: &FetchContext, is_change: bool, was_kept: bool) {
        let Some(changed) = self.key.kind.changed().filter(|_| self.owner.is_gateway()) else { return };
        let listing = &self.upstream.listing;
        let has_returned = listing.note_returned(self.key.kind.index());
        let hub = &thread.state.hub;
        if is_change && !was_kept || has_returned && !self.upstream.is_child() {
            hub.tell(&self.upstream, changed);
        } else if is_change || has_returned {
            // Programs come up one after the other.
            hub.list_returned(&self.upstream, changed);
        }
    }

    fn report(&self, thread: &FetchContext, content: &Content, is_same: bool) {
        if let Some(cut) = content.cut {
            self.note_cut(thread, cut, !is_same);
        }
        if is_same || content.excluded.is_empty() {
            return;
        }
        let of = |is_meant: fn(&ExcludeReason) -> bool| -> Vec<&Excluded> {
            content.excluded.iter().filter(|entry| is_meant(&entry.why)).collect()
        };
        let ambiguous = of(|why| matches!(why, ExcludeReason::Ambiguous));
        let malformed = of(|why| matches!(why, ExcludeReason::Malformed(_) | ExcludeReason::TooDeep));
        let invalid = of(|why| matches!(why, ExcludeReason::Annotations(_)));
        let (name, list) = (&self.upstream.config.name, self.key.kind.method().label());
        let lists = &thread.state.metrics.lists;
        let count = |counter: &IntCounterVec, labels: &[&str], excluded: &[&Excluded]| {
            if !excluded.is_empty() {
                counter.with_label_values(labels).inc_by(excluded.len() as u64);
            }
        };
        count(&lists.entries_ambiguous, &[name, list], &ambiguous);
        count(&lists.entries_malformed, &[name, list], &malformed);
        count(&lists.tools_excluded, &[name], &invalid);
        // Nobody remembers of these what is wrong with each.
        let others = content.excluded.others();
        lists.entries_malformed.with_label_values(&[name, list]).inc_by(others);
        if !self.upstream.listing.log.admits(clock::now()) {
            return;
        }
        if !ambiguous.is_empty() {
            let (entries, names) = (ambiguous.len(), named(&ambiguous, |_| String::new()));
            tracing::warn!(
                upstream = name,
                list,
                entries,
                names,
                "entries of a list are left out, as a member of theirs stands twice and readers differ in what it says"
            );
        }
        let because = |entry: &Excluded| format!(": {}", shorten(&entry.why.to_string()));
        if !malformed.is_empty() || others > 0 {
            let (entries, why) = (malformed.len() as u64 + others, named(&malformed, because));
            tracing::warn!(
                upstream = name,
                list,
                entries,
                why,
                "malformed entries of a list are left out, as clients would refuse all of it"
            );
        }
        if !invalid.is_empty() {
            let why = named(&invalid, because);
            tracing::warn!(
                upstream = name,
                tools = invalid.len(),
                why,
                "tools with invalid x-mcp-header annotations are left out"
            );
        }
    }

    /// A list was not followed to its end.
    pub(super) fn note_cut(&self, thread: &FetchContext, cut: Truncation, is_new: bool) {
        let name = &self.upstream.config.name;
        thread.state.metrics.lists.truncated.with_label_values(&[name, cut.label()]).inc();
        if is_new && self.upstream.listing.log.admits(clock::now()) {
            let (list, reason) = (self.key.kind.method().label(), cut.label());
            tracing::warn!(
                upstream = name,
                list,
                reason,
                "a list was cut off; raise the limit, or mend the server"
            );
        }
    }
}

/// Tells calls what a list says of its tools.
pub(super) fn publish(upstream: &Upstream, key: &PartKey, owner: &ListOwner, content: &Content) {
    let is_of_tools = key.kind == CatalogQuery::List(List::Tools);
    let is_modern = matches!(key.dialect, DialectKey::Modern(_));
    if !is_of_tools || owner.is_session() || !(is_modern || upstream.lacks(Era::Modern)) {
        return;
    }
    let tools = content.named(List::Tools);
    let names = tools.clone().map(|(name, _)| name);
    upstream.annotated.publish(names.clone(), &content.annotated);
    upstream.tools.publish(names.clone());
    // By what one client is shown nobody else's calls are repeated, refused or made in another way.
    if !owner.is_gateway() {
        return;
    }
    let excluded = content.excluded.iter().flat_map(|tool| &tool.names);
    upstream.listing.left_out.publish(names, excluded);
    upstream.hinted.publish(tools.clone().map(|(name, tool)| (name, tool.hints)));
    upstream.task_only.publish(tools.map(|(name, tool)| (name, tool.is_task_only)));
}

/// The first of those that were left out, with what `more` says of each.
fn named(excluded: &[&Excluded], more: impl Fn(&Excluded) -> String) -> String {
    let first = excluded.iter().take(EXCLUDED_LOGGED_MAX);
    let named: Vec<String> = first
        .map(|entry| {
            let names: Vec<String> = entry.names.iter().map(|name| shorten(name)).collect();
            let names = if names.is_empty() { "one without a name".to_owned() } else { names.join(" or ") };
            format!("{names}{}", more(entry))
        })
        .collect();
    named.join("; ")
}
