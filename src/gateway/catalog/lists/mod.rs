//! Lists and `server/discover` of an endpoint, merged from its upstreams.
//!
//! # How a list comes about
//!
//! What an upstream gave for one list is a *part* ([`part`](crate::tables::lists::part)): all its pages, and until when it holds. Parts are
//! kept ([`cache`](crate::tables::lists::cache)), and fetched ([`fetch`]) where they are missing, old or invalid ([`gather`]), each under a deadline
//! of its own, so that a dead upstream neither empties nor delays the lists of the others. Parts are merged once
//! ([`merge`], [`discover`](mod@discover)) and the result is kept too: most requests are answered with bytes that are
//! at hand, and a head with the request's id and the freshness that is left ([`answer`](crate::tables::lists::cache::Merged::answer)).
//!
//! An upstream is asked in an era that it speaks ([`upstream_dialect`]), in the legacy era in one of a few sessions (`lease`), and
//! its part is written for the client's. What an entry
//! says that the other era does not know is left out of it there, and nothing else is ever changed.
//!
//! Order is the configured order of the upstreams, and within each its own; every field of every entry stays as its
//! upstream wrote it. A list that did not change is the same bytes, whoever asks and however often.
//!
//! # When a merged list may be given out
//!
//! It is valid while the change counts of its upstreams have the sum that it goes by (they only grow), the names that
//! lead to things are the same, and its least fresh part is fresh. Nothing is looked up for each upstream.
//!
//! Deliberately absent: lists of single principals. There is one for each class of callers, who may use the same.

mod answer;
pub(crate) mod ask_again;
pub(crate) mod declared;
pub(crate) mod discover;
pub(crate) mod fetch;
pub(crate) mod gather;
pub(crate) mod initialize;
mod introduced;
mod keep;
pub(crate) mod kept;
pub(crate) mod learn;
mod lease;
pub(crate) mod merge;
pub(crate) mod owner;
pub(crate) mod page;
pub(crate) mod pinned;
pub(crate) mod starting;
pub(crate) mod summary;
#[cfg(test)]
mod tests;
mod turns;
pub(crate) mod upstream_dialect;

use std::rc::Rc;
use std::sync::Arc;

use self::answer::ListQuery;
use self::fetch::FetchContext;
use self::gather::PartRequest;
use self::owner::ListOwner;
use self::upstream_dialect::{UpstreamDialect, UpstreamDialects};
use crate::access::limit::payer::Payer;
use crate::access::policy::Class;
use crate::clock;
use crate::context::call::Call;
use crate::context::worker::{View, Worker};
use crate::snapshot::Endpoint;
use crate::tables::lists::cache::PartKey;
use crate::tables::lists::part::ListPart;
use crate::tables::lists::{CatalogQuery, Dialect, DialectKey, List};
use crate::upstream::Upstream;
use protocol::error::{ClientError, Error, UpstreamError};
use protocol::splice::Segments;

/// A client's request for a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRequest<'a> {
    /// The list that is asked for.
    pub list: List,
    /// The era and the revision in which the client asks.
    pub dialect: Dialect<&'a [u8]>,
    /// `params.cursor`, decoded; an empty one is one.
    pub cursor: Option<&'a str>,
    /// The literal of the request's id.
    pub id: &'a str,
    /// What the caller may use.
    pub class: &'a Arc<Class>,
    /// Who is charged for what has to be opened; `None`: the gateway.
    pub asker: Option<&'a Call>,
    /// In whose name each upstream is asked, in their order; empty: in the gateway's.
    pub owners: &'a [ListOwner],
}

/// Answers a list: the whole JSON-RPC response.
pub(crate) async fn list(
    worker: &Rc<Worker>,
    view: &View,
    endpoint: &Rc<Arc<Endpoint>>,
    ask: ListRequest<'_>,
) -> Result<Segments, Error> {
    // Without pages no cursor was ever given out.
    let cursor = match (ask.cursor, endpoint.config.list_page_bytes_max) {
        (None, _) => None,
        (Some(_), None) => return Err(ClientError::Cursor.into()),
        (Some(cursor), Some(_)) => Some(page::PageCursor::read(cursor).ok_or(ClientError::Cursor)?),
    };
    let request =
        ListQuery::new(worker, view, (endpoint, ask.class), CatalogQuery::List(ask.list), ask.dialect, &[]);
    let request = request.asked_by(ask.asker).owned_by(ask.owners);
    let (merged, ttl_ms) = request.merged().await?;
    let page = match cursor {
        // The first page has no cursor.
        Some(cursor) if cursor.page == 0 || cursor.digest != merged.digest => {
            return Err(ClientError::Cursor.into());
        }
        cursor => cursor.map_or(0, |cursor| cursor.page),
    };
    merged.answer(page, ask.id, ttl_ms).ok_or_else(|| ClientError::Cursor.into())
}

/// One upstream's part of a list, for whom it is a list of its own. `None`: it cannot be had.
pub(crate) async fn own_part(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Arc<Upstream>,
    list: List,
    dialect: Dialect<&[u8]>,
    owner: ListOwner,
) -> Option<Arc<ListPart>> {
    let depth_max = view.snapshot.limits.json_depth_max;
    let dialects = UpstreamDialects::new(dialect, CatalogQuery::List(list), depth_max);
    let dialect = dialects.of(upstream, &owner).ok()?.clone();
    let wanted = wanted(upstream, CatalogQuery::List(list), dialect).owned_by(owner);
    wanted.get(&fetch_context(worker, view)).await.part().cloned()
}

/// Answers `server/discover`: the whole JSON-RPC response. `supported` are the endpoint's versions.
pub(crate) async fn discover(
    worker: &Rc<Worker>,
    view: &View,
    (endpoint, class): (&Rc<Arc<Endpoint>>, &Arc<Class>),
    capabilities: &[u8],
    id: &str,
    supported: &[&str],
) -> Result<Segments, Error> {
    let dialect = Dialect::Modern(capabilities);
    let request = ListQuery::new(worker, view, (endpoint, class), CatalogQuery::Discover, dialect, supported);
    let (merged, ttl_ms) = request.merged().await?;
    merged.answer(0, id, ttl_ms).ok_or_else(|| UpstreamError::Nonsense.into())
}

/// Fetches an upstream's tools now, so that [`Upstream::annotated`] is what it says now. At most once in a while for
/// each upstream; in between it only waits for a fetch that is under way.
pub(crate) async fn refetch_tools(worker: &Rc<Worker>, view: &View, upstream: &Arc<Upstream>) {
    let thread = fetch_context(worker, view);
    let wanted = wanted(upstream, CatalogQuery::List(List::Tools), UpstreamDialect::own(upstream).keyed());
    // What came of it is kept.
    let _ = wanted.renew(&thread, upstream.listing.refetch.admits(clock::now())).await;
}

fn fetch_context(worker: &Worker, view: &View) -> FetchContext {
    FetchContext {
        state: Arc::clone(&worker.state),
        client: worker.client.clone(),
        snapshot: Arc::clone(&view.snapshot),
    }
}

/// Fetches an upstream's tools in one of the gateway's own ways, after this moment; they are compared with the pins
/// as they arrive.
pub(crate) async fn look_at_tools(
    thread: &FetchContext,
    upstream: &Arc<Upstream>,
    dialect: Dialect<&'static [u8]>,
) -> Result<(), UpstreamError> {
    let begun = clock::now();
    let dialect = UpstreamDialect::of(dialect, thread.snapshot.limits.json_depth_max);
    let wanted = wanted(upstream, CatalogQuery::List(List::Tools), dialect.keyed());
    loop {
        match wanted.renew(thread, true).await {
            Some(Err(error)) => return Err(error),
            // One that was under way already may be older.
            Some(Ok(part)) if part.asked < begun => {}
            _ => return Ok(()),
        }
    }
}

fn wanted(
    upstream: &Arc<Upstream>,
    kind: CatalogQuery,
    (dialect, key): (UpstreamDialect, DialectKey),
) -> PartRequest {
    let owner = ListOwner::Gateway;
    let key = PartKey { upstream: upstream.id, kind, scope: owner.scope(), dialect: key };
    let upstream = Arc::clone(upstream);
    PartRequest { upstream, key, dialect, payer: Payer::GATEWAY, owner, is_again: false }
}
