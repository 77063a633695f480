//! Answering from all upstreams of an endpoint: with the merged list that is at hand, or one that is made of their parts.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;

use super::fetch::FetchContext;
use super::gather::{CachedPart, PartRequest};
use super::merge::Merge;
use super::owner::{self, ListOwner};
use super::starting::{self, EMPTY_PATIENCE, STALE_PATIENCE};
use super::turns::Turns;
use super::upstream_dialect::{UpstreamDialect, UpstreamDialects};
use super::{discover, fetch_context, wanted};
use crate::access::limit::payer::Payer;
use crate::access::policy::Class;
use crate::clock;
use crate::context::call::Call;
use crate::context::worker::{View, Worker};
use crate::flight::FlightRole;
use crate::snapshot::Endpoint;
use crate::tables::lists::cache::{ContentDigest, Merged, MergedKey, MergedPage, digest};
use crate::tables::lists::part::{Content, ListPart};
use crate::tables::lists::{CatalogQuery, Dialect};
use crate::upstream::Upstream;
use protocol::error::{ClientError, Error, UpstreamError};
use protocol::route::Style;
use protocol::route::directory::Directory;
use protocol::splice::Segments;

/// Upstreams asked at once for one list.
const CONCURRENT_MAX: usize = 256;
/// Longer lists are merged off the worker, whose calls would wait for it.
const MERGED_INLINE_BYTES_MAX: usize = 256 * 1024;
/// How often a list that somebody else merges is waited for, before it is merged twice.
const MERGES_AWAITED_MAX: usize = 3;

/// How long an upstream is waited for whose eras were not asked for yet.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct ListQuery<'r> {
    worker: &'r Rc<Worker>,
    view: &'r View,
    endpoint: &'r Rc<Arc<Endpoint>>,
    class: &'r Arc<Class>,
    key: MergedKey,
    dialect: Dialect<&'r [u8]>,
    supported: &'r [&'r str],
    /// Who is charged for what has to be opened; `None`: nothing has to be.
    asker: Option<&'r Call>,
    owners: &'r [ListOwner],
}

impl<'r> ListQuery<'r> {
    /// `supported` are versions that the answer tells.
    pub(super) fn new(
        worker: &'r Rc<Worker>,
        view: &'r View,
        (endpoint, class): (&'r Rc<Arc<Endpoint>>, &'r Arc<Class>),
        kind: CatalogQuery,
        dialect: Dialect<&'r [u8]>,
        supported: &'r [&'r str],
    ) -> Self {
        let said = match supported {
            [] => ContentDigest::default(),
            versions => digest(&versions.iter().map(|version| version.as_bytes()).collect::<Vec<_>>()),
        };
        let key = MergedKey { endpoint: endpoint.id, class: class.id, kind, dialect: dialect.key(), said };
        Self { worker, view, endpoint, class, key, dialect, supported, asker: None, owners: &[] }
    }

    /// The same; who asks is charged for what has to be opened.
    pub(super) fn asked_by(self, asker: Option<&'r Call>) -> Self {
        Self { asker, ..self }
    }

    /// The same; in these names, if any.
    pub(super) fn owned_by(self, owners: &'r [ListOwner]) -> Self {
        if owners.is_empty() {
            return self;
        }
        let said = owner::said(owners).unwrap_or(self.key.said);
        Self { owners, key: MergedKey { said, ..self.key }, ..self }
    }

    /// The merged list, and how long it is fresh from now on.
    pub(super) async fn merged(&self) -> Result<(Arc<Merged>, u64), Error> {
        let state = &self.worker.state;
        if let Some(merged) = state.catalog.merged.get(&self.key) {
            let ttl_ms = self.ttl_ms(&merged);
            if ttl_ms > 0 && self.leads_by(&merged) {
                state.metrics.lists.cache.hit.inc();
                return Ok((merged, ttl_ms));
            }
        }
        Box::pin(self.gathered()).await
    }

    async fn gathered(&self) -> Result<(Arc<Merged>, u64), Error> {
        let members: Vec<Option<&Arc<Upstream>>> = self.members().collect();
        let kind = self.key.kind;
        let had = self.parts_in_time(&members).await;
        self.count(&members, &had);
        if kind != CatalogQuery::Discover
            && is_empty(&had)
            && let Some(error) = starting::error(&self.upstreams().collect::<Vec<_>>())
        {
            return Err(error.into());
        }
        if kind != CatalogQuery::Discover {
            check_parts(&had)?;
        }
        let is_transparent = self.endpoint.naming.style() == Style::Transparent;
        let parts: Vec<Option<&Arc<ListPart>>> = had.iter().map(CachedPart::part).collect();
        if is_transparent && parts.iter().flatten().any(|part| part.content.is_absent) {
            return Err(ClientError::Method.into());
        }
        let is_whole = had
            .iter()
            .all(|had| matches!(had, CachedPart::Kept(_) | CachedPart::Fetched(_) | CachedPart::Hidden));
        let merged = self.joined(&parts, is_whole).await?;
        let ttl_ms = self.ttl_ms(&merged);
        Ok((merged, ttl_ms))
    }

    /// The parts of all members. Where that is nothing, programs that are still starting are waited for.
    async fn parts_in_time(&self, members: &[Option<&Arc<Upstream>>]) -> Vec<CachedPart> {
        let entered = clock::now();
        let starting = || self.upstreams().filter(|upstream| starting::is_starting(upstream)).collect();
        let mut awaited: Vec<&Arc<Upstream>> = starting();
        let mut had = self.parts(members, entered, None).await;
        // It may be started once more for this list.
        awaited.extend(starting());
        let until = entered + EMPTY_PATIENCE;
        while self.key.kind != CatalogQuery::Discover
            && is_empty(&had)
            && !awaited.is_empty()
            && clock::now() < until
        {
            awaited = starting();
            // Those that are not starting any more are up by now, or have failed.
            let moves = starting::one_moves(&awaited, until);
            let host = &self.worker.client.host;
            if !awaited.is_empty() && host.unless_closing(moves).await != Some(true) {
                break;
            }
            had = self.parts(members, entered, Some(until.max(clock::now() + STALE_PATIENCE))).await;
        }
        had
    }

    /// The parts of all members for a list that was asked for at `entered`. `again`: it has waited, and goes by what is up
    /// until then.
    async fn parts(
        &self,
        members: &[Option<&Arc<Upstream>>],
        entered: Instant,
        again: Option<Instant>,
    ) -> Vec<CachedPart> {
        let thread = &fetch_context(self.worker, self.view);
        let depth_max = self.view.snapshot.limits.json_depth_max;
        let dialects = &UpstreamDialects::new(self.dialect, self.key.kind, depth_max);
        let turns = &Turns::new(CONCURRENT_MAX);
        let parts = members.iter().enumerate().map(|(index, member)| async move {
            let Some(upstream) = *member else { return CachedPart::Hidden };
            let owner = self.owners.get(index).cloned().unwrap_or_default();
            let part = self.part(upstream, &owner, dialects, thread, self.deadline(upstream, entered, again));
            // Programs that are waited for take no turns: those that are up need not wait for them.
            if starting::is_starting(upstream) { part.await } else { turns.ask(part).await }
        });
        join_all(parts).await
    }

    /// The time until which the part of `upstream` is waited for.
    fn deadline(&self, upstream: &Upstream, entered: Instant, again: Option<Instant>) -> Instant {
        match (self.key.kind, again) {
            (CatalogQuery::Discover, _) => entered + PATIENCE,
            (_, Some(_)) if starting::is_starting(upstream) => clock::now(),
            (_, Some(until)) => until,
            (_, None) => starting::wait_until(upstream, entered),
        }
    }

    async fn part(
        &self,
        upstream: &Arc<Upstream>,
        owner: &ListOwner,
        dialects: &UpstreamDialects<'_>,
        thread: &FetchContext,
        mut deadline: Instant,
    ) -> CachedPart {
        let wanted = |dialect| {
            let payer = self.asker.map_or(Payer::GATEWAY, Call::payer);
            PartRequest { payer, ..wanted(upstream, self.key.kind, dialect) }.owned_by(owner.clone())
        };
        if upstream.eras().is_none() {
            let unknown = wanted(UpstreamDialect::of(self.dialect, 0).keyed());
            let is_program = upstream.is_child();
            if is_program && unknown.last(thread).is_some() {
                // Once its era is known, the list has the rest of this time.
                deadline = deadline.min(clock::now() + STALE_PATIENCE);
            }
            let until = if is_program { deadline } else { deadline.min(clock::now() + PATIENCE) };
            // The first message may decide in which era a program speaks.
            let patience = until.saturating_duration_since(clock::now());
            if let Err(error) = upstream.known_for_list(&thread.client.host, patience).await {
                return unknown.last_good(thread, error);
            }
            if is_program && upstream.eras().is_none() {
                // Somebody waits for what was found out in vain.
                upstream.facts.doubt();
            }
        }
        let _wanted = starting::is_starting(upstream).then(|| upstream.wanted()).flatten();
        match dialects.of(upstream, owner) {
            Ok(dialect) => wanted(dialect.clone()).get_by(thread, deadline).await,
            Err(error) => CachedPart::Missing(error),
        }
    }

    /// Merges, unless that was done already or somebody is at it.
    async fn joined(&self, parts: &[Option<&Arc<ListPart>>], is_whole: bool) -> Result<Arc<Merged>, Error> {
        let catalog = &self.worker.state.catalog;
        let directory = self.endpoint.names.directory().clone();
        let contents: Vec<Option<Arc<Content>>> =
            parts.iter().map(|part| part.map(|part| Arc::clone(&part.content))).collect();
        let mut pages = None;
        let mut turn = None;
        for _ in 0..MERGES_AWAITED_MAX {
            let kept = catalog.merged.get(&self.key);
            pages = kept.filter(|kept| kept.is_made_of(&directory, &contents));
            if pages.is_some() {
                break;
            }
            match catalog.merging.join(&self.key) {
                FlightRole::Begin(landing) => {
                    turn = Some(landing);
                    break;
                }
                // Given up or done: it is seen above.
                FlightRole::Wait(merging) => drop(merging.landed().await),
            }
        }
        let (pages, digest) = match pages {
            Some(kept) => (Arc::clone(&kept.pages), kept.digest),
            None => self.merge(&contents, &directory).await?,
        };
        let now = clock::now();
        let fresh_until = parts.iter().flatten().map(|part| part.fresh_until).min();
        let merged = Arc::new(Merged {
            pages,
            digest,
            fresh_until: fresh_until.filter(|_| is_whole).unwrap_or(now),
            count: parts.iter().flatten().fold(0, |sum, part| sum.wrapping_add(part.count)),
            directory: Arc::downgrade(&directory),
            contents: contents.iter().map(|content| content.as_ref().map(Arc::downgrade)).collect(),
        });
        catalog.merged.insert(self.key, Arc::clone(&merged));
        if let Some(turn) = turn {
            turn.land(());
        }
        Ok(merged)
    }

    async fn merge(
        &self,
        contents: &[Option<Arc<Content>>],
        directory: &Arc<Directory>,
    ) -> Result<(Arc<[MergedPage]>, ContentDigest), Error> {
        let is_public = self.is_public(contents);
        let list = match self.key.kind {
            CatalogQuery::List(list) => list,
            CatalogQuery::Discover => {
                let upstreams: Vec<Option<&Arc<Upstream>>> = self.members().collect();
                let depth_max = self.view.snapshot.limits.json_depth_max;
                let source =
                    discover::DiscoverSource { endpoint: self.endpoint, upstreams: &upstreams, contents };
                let page = source.merge(self.supported, is_public, depth_max);
                return Ok((Arc::new([page]), ContentDigest::default()));
            }
        };
        let merge = Merge {
            endpoint: Arc::clone(self.endpoint),
            class: Arc::clone(self.class),
            directory: Arc::clone(directory),
            list,
            era: self.dialect.era(),
            is_public,
            contents: contents.to_vec(),
        };
        let bytes: usize = contents.iter().flatten().map(|content| content.bytes()).sum();
        let merged = if bytes <= MERGED_INLINE_BYTES_MAX {
            merge.run()
        } else {
            self.worker.client.tasks.compute(move || merge.run()).await
        };
        let bytes = merged.0.iter().map(MergedPage::bytes).sum();
        self.worker.state.metrics.list_merged(&self.endpoint.config.name, list.method(), bytes);
        Ok(merged)
    }

    /// The endpoint's upstreams; `None` for those of which the caller may use nothing.
    fn members(&self) -> impl Iterator<Item = Option<&'r Arc<Upstream>>> {
        let upstreams = &self.view.snapshot.upstreams;
        let members = self.endpoint.members.iter().enumerate();
        members.map(|(member, slot)| upstreams.get(*slot).filter(|_| self.class.reaches(member)))
    }

    /// Those of which it may use something.
    fn upstreams(&self) -> impl Iterator<Item = &'r Arc<Upstream>> {
        self.members().flatten()
    }

    /// How long it is fresh from now on, in milliseconds; 0 if it is invalid.
    fn ttl_ms(&self, merged: &Merged) -> u64 {
        let count = self.key.kind.changed().map_or(0, |changed| {
            self.upstreams().fold(0_u64, |sum, upstream| sum.wrapping_add(upstream.changes.count(changed)))
        });
        if count != merged.count {
            return 0;
        }
        let left = merged.fresh_until.saturating_duration_since(clock::now());
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    }

    fn leads_by(&self, merged: &Merged) -> bool {
        std::ptr::eq(merged.directory.as_ptr(), Arc::as_ptr(&self.endpoint.names.directory()))
    }

    /// Public is what every upstream calls so that the operator believes, if nothing of the endpoint's own hides a part.
    fn is_public(&self, contents: &[Option<Arc<Content>>]) -> bool {
        self.endpoint.is_open()
            && self.owners.iter().all(ListOwner::is_gateway)
            && self.upstreams().all(|upstream| upstream.config.trust_public_cache)
            && contents
                .iter()
                .all(|content| content.as_ref().is_some_and(|content| content.is_public || content.is_absent))
    }

    fn count(&self, members: &[Option<&Arc<Upstream>>], had: &[CachedPart]) {
        let metrics = &self.worker.state.metrics;
        for (upstream, had) in members.iter().zip(had) {
            if let (Some(upstream), CachedPart::Missing(error)) = (upstream, had) {
                let name = &upstream.config.name;
                metrics.lists.partial.with_label_values(&[name]).inc();
                upstream.listing.note_missing(self.key.kind.index());
                // Once a list would be too often for more than this; the metric and the learning of names warn.
                tracing::debug!(
                    upstream = name,
                    list = self.key.kind.method().label(),
                    error = error.fault(),
                    "list answered without this upstream"
                );
            }
        }
        let result = if had.iter().any(|had| matches!(had, CachedPart::Missing(_))) {
            &metrics.lists.cache.error
        } else if had.iter().any(|had| matches!(had, CachedPart::Stale(..))) {
            &metrics.lists.cache.stale
        } else if had.iter().any(|had| matches!(had, CachedPart::Fetched(_))) {
            &metrics.lists.cache.miss
        } else {
            &metrics.lists.cache.hit
        };
        result.inc();
    }
}

/// True if some upstream is missing, and nothing is there of the others.
fn is_empty(had: &[CachedPart]) -> bool {
    had.iter().any(|had| matches!(had, CachedPart::Missing(_))) && had.iter().all(|had| had.part().is_none())
}

/// Fails where there is no list of any upstream, or where the one who asks has asked for too much.
fn check_parts(had: &[CachedPart]) -> Result<(), UpstreamError> {
    if let Some(refused) = had.iter().find_map(CachedPart::refused) {
        return Err(refused);
    }
    if !is_empty(had) {
        return Ok(());
    }
    match had {
        [CachedPart::Missing(error)] => Err(error.clone()),
        _ => Err(UpstreamError::NoneListed),
    }
}

impl Merged {
    /// The JSON-RPC response with one of the pages. `None`: there is no such page.
    pub(crate) fn answer(&self, page: usize, id: &str, ttl_ms: u64) -> Option<Segments> {
        let page = self.pages.get(page)?;
        let mut head = Vec::with_capacity(128 + id.len() + page.before_ttl.as_ref().map_or(0, Bytes::len));
        for piece in [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":"#] {
            head.extend_from_slice(piece.as_bytes());
        }
        if let Some(before) = &page.before_ttl {
            head.extend_from_slice(before);
            head.extend_from_slice(ttl_ms.to_string().as_bytes());
        }
        let mut answer = Segments::from(Bytes::from(head));
        answer.push_back(page.rest.clone());
        Some(answer)
    }
}
