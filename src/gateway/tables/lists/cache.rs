//! The lists that are kept: parts by upstream, and merged lists by endpoint, each weighed in bytes.
//!
//! What an upstream gives may depend on what it is asked with: its credential, the protocol version, the client's
//! capabilities. The gateway presents one credential to each upstream, the same for all callers, which is one [`Scope`].
//! Where headers of clients are handed on, what each of them shows is one, and so is a session that has lists of its own.
//!
//! Invariant: nothing here decides whether a list may be given out. Parts and merged lists say themselves how long
//! they hold.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moka::Expiry;
use moka::sync::Cache;
use tokio::sync::Notify;

use super::dialect::DialectKey;
pub(crate) use super::digest::{ContentDigest, digest};
use super::failing::FailingLists;
use super::kept::KeptParts;
use super::kind::CatalogQuery;
use super::part::{Content, ListPart};
use crate::flight::Flights;
use crate::state_files::UpstreamFilesHealth;
use crate::upstream::UpstreamId;
use protocol::error::UpstreamError;
use protocol::route::directory::Directory;

/// A merged list that nobody asks for is dropped after this time.
const MERGED_IDLE_MAX: Duration = Duration::from_mins(10);

/// What all threads keep of the lists.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub parts: Cache<PartKey, Arc<ListPart>>,
    pub kept: KeptParts,
    /// The health of the files that keep the facts of upstreams, and their lists, for the next start.
    pub files: Arc<UpstreamFilesHealth>,
    pub merged: Cache<MergedKey, Arc<Merged>>,
    pub fetching: Arc<Flights<PartKey, Result<Arc<ListPart>, UpstreamError>>>,
    pub merging: Arc<Flights<MergedKey, ()>>,
    /// Somebody fetched a list that was not known like this.
    pub renewed: Notify,
    /// Questions that were refused.
    pub failing: FailingLists,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartKey {
    pub upstream: UpstreamId,
    pub kind: CatalogQuery,
    /// Whose credential it was asked with.
    pub scope: Scope,
    pub dialect: DialectKey,
}

impl PartKey {
    /// A digest of all that its upstream is asked with.
    pub(crate) fn question(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MergedKey {
    /// `Endpoint::id`: it is another one after any change of the configuration that may matter.
    pub endpoint: u64,
    /// `Class::id` of who may see it.
    pub class: u64,
    pub kind: CatalogQuery,
    pub dialect: DialectKey,
    /// What else the result says, such as versions.
    pub said: ContentDigest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// The gateway's own credential, or none.
    Gateway,
    /// Headers that one client shows as well, or a session of its own.
    Of(ContentDigest),
}

#[derive(Debug)]
pub(crate) struct Merged {
    /// Its pages; at least one.
    pub pages: Arc<[MergedPage]>,
    /// A digest of all of it, where it has several pages.
    pub digest: ContentDigest,
    /// When it stops to be fresh; in the past for one that must not be given out again.
    pub fresh_until: Instant,
    /// The sum of the upstreams' counts of changes that it goes by.
    pub count: u64,
    /// What it was made of: names that lead to things, and the parts, in order; `None` for one that was missing.
    pub directory: Weak<Directory>,
    /// See `directory`.
    pub contents: Vec<Option<Weak<Content>>>,
}

/// A page of a merged list: a result object but for its `ttlMs`, the request's id and what is around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergedPage {
    /// What stands before the number of `ttlMs`, from the result's brace on. `None`: it says no `ttlMs`.
    pub before_ttl: Option<Bytes>,
    /// The rest, with the brace that ends the message.
    pub rest: Bytes,
}

impl MergedPage {
    pub(crate) fn bytes(&self) -> usize {
        self.before_ttl.as_ref().map_or(0, Bytes::len) + self.rest.len()
    }
}

impl Catalog {
    /// An empty catalog that caches about `bytes_max` bytes, half of them parts, and keeps about `kept_bytes_max`.
    pub(crate) fn new(bytes_max: usize, kept_bytes_max: usize) -> Self {
        let half = u64::try_from(bytes_max / 2).unwrap_or(u64::MAX);
        Self {
            parts: Cache::builder()
                .max_capacity(half)
                .weigher(|_, part: &Arc<ListPart>| weight(part.content.bytes() + size_of::<ListPart>()))
                .expire_after(Staleness)
                .build(),
            kept: KeptParts::new(kept_bytes_max),
            files: Arc::default(),
            merged: Cache::builder()
                .max_capacity(half)
                .weigher(|_, merged: &Arc<Merged>| weight(merged.bytes()))
                .time_to_idle(MERGED_IDLE_MAX)
                .build(),
            fetching: Arc::default(),
            merging: Arc::default(),
            renewed: Notify::new(),
            failing: FailingLists::default(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.parts.run_pending_tasks();
        self.merged.run_pending_tasks();
        self.parts.weighted_size() + self.merged.weighted_size()
    }
}

impl Merged {
    /// True if it was made of exactly these.
    pub(crate) fn is_made_of(&self, directory: &Arc<Directory>, contents: &[Option<Arc<Content>>]) -> bool {
        let is_same = |one: &Option<Weak<Content>>, other: &Option<Arc<Content>>| match (one, other) {
            (Some(one), Some(other)) => std::ptr::eq(one.as_ptr(), Arc::as_ptr(other)),
            (None, None) => true,
            _ => false,
        };
        std::ptr::eq(self.directory.as_ptr(), Arc::as_ptr(directory))
            && self.contents.len() == contents.len()
            && self.contents.iter().zip(contents).all(|(one, other)| is_same(one, other))
    }

    /// How long it is, with what stands around it here.
    pub(crate) fn bytes(&self) -> usize {
        let pages = self.pages.iter();
        let before = |page: &MergedPage| page.before_ttl.as_ref().map_or(0, Bytes::len);
        pages.map(|page| page.rest.len() + before(page)).sum::<usize>() + size_of::<Self>()
    }
}

fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Drops a part when it stops to be better than nothing.
struct Staleness;

impl Expiry<PartKey, Arc<ListPart>> for Staleness {
    fn expire_after_create(&self, _: &PartKey, part: &Arc<ListPart>, created: Instant) -> Option<Duration> {
        Some(part.stale_until.saturating_duration_since(created))
    }

    fn expire_after_update(
        &self,
        _: &PartKey,
        part: &Arc<ListPart>,
        updated: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(part.stale_until.saturating_duration_since(updated))
    }
}
