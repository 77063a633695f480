//! One part of a list: kept, fetched, or, where that fails, the last one that was good.
//!
//! Invalid is not stale. A part that was fetched before a change was heard of is given out only when the fetch fails or
//! is late; one that is merely old may be given out while it is fetched anew, where the operator allows it.
//!
//! Whoever needs a part that is not at hand begins its fetch as a task of its own, which outlives the client that
//! asked, and everybody waits for that one. Two fetches of a part because of changes are some time apart, however often
//! an upstream says that it changed. A request never gets what was fetched before a change that it may know of.
//!
//! The right to the session that a fetch takes is each request's own, before it joins the fetch: nobody is refused because
//! another asks for too much.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout_at};

use super::fetch::{self, Fetch, FetchContext, FetchResult};
use super::introduced;
use super::owner::ListOwner;
use super::starting::{self, STALE_PATIENCE};
use super::upstream_dialect::UpstreamDialect;
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::flight::{Flight, FlightRole, Landing};
use crate::session::ListLease;
use crate::tables::lists::cache::{PartKey, Scope};
use crate::tables::lists::part::{Content, ListPart, Truncation};
use crate::tables::lists::{CatalogQuery, List};
use crate::telemetry::metrics::families::ByResult;
use crate::upstream::Upstream;
use crate::upstream::fault::Fault;
use crate::upstream::stdio::launch::still_starting;
use protocol::error::UpstreamError;

/// Least time between two fetches of a part because of changes.
const CHANGES_INTERVAL: Duration = Duration::from_millis(100);
/// How long a watched list of the legacy era is kept, which has no `ttlMs`. Its upstream tells when it changes, so that
/// this only bounds what a notice costs that was lost on the way.
const WATCHED_TTL: Duration = Duration::from_mins(5);

#[derive(Clone, Debug)]
pub(crate) enum CachedPart {
    /// It was kept, and holds.
    Kept(Arc<ListPart>),
    /// It was fetched for this request, or for others meanwhile.
    Fetched(Arc<ListPart>),
    /// It is old: being fetched anew, or the fetch failed.
    Stale(Arc<ListPart>, Option<UpstreamError>),
    /// Nothing is cached that may still be used.
    Missing(UpstreamError),
    /// The caller may use nothing of its upstream.
    Hidden,
}

type PartResult = Result<Arc<ListPart>, UpstreamError>;

#[derive(Clone, Debug)]
pub(crate) struct PartRequest {
    pub upstream: Arc<Upstream>,
    pub key: PartKey,
    pub dialect: UpstreamDialect,
    /// Who is charged for the session that it may take.
    pub payer: Payer,
    pub owner: ListOwner,
    /// It met a fault, and nobody needs it now: the gateway looks whether that is over.
    pub is_again: bool,
}

impl CachedPart {
    pub(crate) fn part(&self) -> Option<&Arc<ListPart>> {
        match self {
            Self::Kept(part) | Self::Fetched(part) | Self::Stale(part, _) => Some(part),
            Self::Missing(_) | Self::Hidden => None,
        }
    }

    /// Why there is none, where that is for whoever asks to mend: the list of the others would not be what it asks for.
    pub(crate) fn refused(&self) -> Option<UpstreamError> {
        match self {
            Self::Missing(
                error @ (UpstreamError::TooManyListSessions
                | UpstreamError::ListSessionRate
                | UpstreamError::ListSessionsOfPrincipal),
            ) => Some(error.clone()),
            _ => None,
        }
    }
}

impl PartRequest {
    /// The same in the name of another.
    pub(super) fn owned_by(self, owner: ListOwner) -> Self {
        let key = PartKey { scope: owner.scope(), ..self.key };
        Self { key, owner, ..self }
    }

    /// The part, within the upstream's `list_timeout`.
    pub(crate) async fn get(&self, thread: &FetchContext) -> CachedPart {
        self.get_by(thread, clock::now() + self.upstream.config.list_timeout).await
    }

    /// The part, or what can be had of it until `deadline`. Where a client's own cannot be had, or its session with the
    /// server is gone, it is the one that others are shown: a client that was told of a change is not shown less for it.
    pub(super) async fn get_by(&self, thread: &FetchContext, deadline: Instant) -> CachedPart {
        let part = self.get_own_by(thread, deadline).await;
        let (CachedPart::Missing(error) | CachedPart::Stale(_, Some(error @ UpstreamError::SessionLost))) =
            &part
        else {
            return part;
        };
        match self.owner.after(error) {
            Some(other) => Box::pin(self.clone().owned_by(other).get_instead(thread, deadline, error)).await,
            None => part,
        }
    }

    /// The part for others, for one whose own met this error; it is asked for its own again the next time.
    #[cold]
    async fn get_instead(
        &self,
        thread: &FetchContext,
        deadline: Instant,
        error: &UpstreamError,
    ) -> CachedPart {
        match self.get_own_by(thread, deadline).await {
            CachedPart::Kept(part) | CachedPart::Fetched(part) => {
                CachedPart::Stale(part, Some(error.clone()))
            }
            part => part,
        }
    }

    /// The part of its owner.
    async fn get_own_by(&self, thread: &FetchContext, deadline: Instant) -> CachedPart {
        if self.upstream.rests_but_for_calls()
            && let Some(part) = self.at_rest(thread)
        {
            return part;
        }
        let parts = &thread.state.catalog.parts;
        let entered_at = clock::now();
        let entered = self.count();
        let mut lease = None;
        loop {
            let (now, count) = (clock::now(), self.count());
            if let Some(part) = parts.get(&self.key) {
                if part.is_fresh(count, now) {
                    return CachedPart::Kept(part);
                }
                let patience = self.upstream.config.stale_while_revalidate;
                if part.may_revalidate(count, now, patience) {
                    // Where there is no session for it now, another's request does it.
                    if let Ok(lease) = self.lease(thread, now).await {
                        drop(self.join(thread, lease));
                    }
                    return CachedPart::Stale(part, None);
                }
            }
            // So would the next be.
            if self.upstream.listing.has_met(self.key.question(), &Fault::TooLarge, fetch::TTL_ABSENT) {
                return self.last_good(thread, UpstreamError::TooLarge);
            }
            if lease.is_none() {
                // What is left of the time is for the fetch.
                match self.lease(thread, entered_at + self.upstream.config.list_timeout / 2).await {
                    Ok(leased) => lease = Some(leased),
                    Err(error) => return self.last_good(thread, error),
                }
            }
            let flight = match self.join(thread, lease.clone().flatten()) {
                Ok(flight) => flight,
                Err(part) => return CachedPart::Kept(part),
            };
            // What it is tried with tells whether it has come back; nobody waits for that.
            if self.upstream.is_out_of_order() {
                return self.last_good(thread, UpstreamError::OutOfOrder { retry_after_s: 1 });
            }
            // Nothing may come for long from one that has to start first, or that has just started beside others.
            let is_down = starting::is_down(&self.upstream);
            let is_old_enough = self.last(thread).is_some_and(|last| is_down || last.is_kept);
            let patience = if is_old_enough { entered_at + STALE_PATIENCE } else { deadline };
            let is_too_early = flight.count.get().is_some_and(|count| *count < entered);
            match timeout_at(patience.min(deadline).into(), flight.landed()).await {
                Ok(_) if is_too_early => {}
                Ok(Some(Ok(part))) => return CachedPart::Fetched(part),
                Ok(Some(Err(error))) => return self.last_good(thread, error),
                Ok(None) => return self.last_good(thread, UpstreamError::Reset),
                // It was not waited for as long as it may take.
                Err(_) if patience < deadline => return self.last_good(thread, still_starting()),
                Err(_) => return self.last_good(thread, UpstreamError::TimedOut),
            }
        }
    }

    /// The part of a program that rests, or starts for a call: the one that is kept, for which it is not started.
    #[cold]
    fn at_rest(&self, thread: &FetchContext) -> Option<CachedPart> {
        let CatalogQuery::List(list) = self.key.kind else {
            let part = self.last(thread).map(CachedPart::Kept);
            return Some(part.unwrap_or(CachedPart::Missing(UpstreamError::Unreachable)));
        };
        if !self.owner.is_gateway() {
            return None;
        }
        let content = thread.state.catalog.kept.last(self.upstream.id, list, self.key.dialect)?;
        let (now, ttl) = (clock::now(), self.upstream.config.list_ttl_min);
        let old = ListPart::old(content, now);
        let part = ListPart { ttl, fresh_until: now + ttl, count: self.count(), ..old };
        Some(CachedPart::Kept(part.into()))
    }

    /// Fetches the part whatever is kept, where `may_begin`; else only waits for a fetch that is under way.
    /// What came of that; `None`: no fetch was under way.
    pub(crate) async fn renew(
        &self,
        thread: &FetchContext,
        may_begin: bool,
    ) -> Option<Result<Arc<ListPart>, UpstreamError>> {
        let deadline = clock::now() + self.upstream.config.list_timeout;
        let fetching = &thread.state.catalog.fetching;
        let flight = if may_begin {
            Some(match fetching.join(&self.key) {
                FlightRole::Begin(landing) => self.begin(thread, landing, None),
                FlightRole::Wait(flight) => flight,
            })
        } else {
            fetching.under_way(&self.key)
        };
        Some(match timeout_at(deadline.into(), flight?.landed()).await {
            Ok(outcome) => outcome.unwrap_or(Err(UpstreamError::Reset)),
            Err(_) => Err(UpstreamError::TimedOut),
        })
    }

    fn count(&self) -> u64 {
        self.key.kind.changed().map_or(0, |changed| self.upstream.changes.count(changed))
    }

    /// Whether the upstream, which cannot say how long the list holds, would tell now that it has changed.
    fn is_watched(&self) -> bool {
        let is_heard = self.owner.is_gateway() && matches!(self.dialect, UpstreamDialect::Legacy(..));
        let changed = self.key.kind.changed().filter(|_| is_heard);
        changed.is_some_and(|changed| self.upstream.changes.is_watched(changed))
    }

    pub(super) fn last_good(&self, thread: &FetchContext, error: UpstreamError) -> CachedPart {
        match self.last(thread) {
            Some(part) => CachedPart::Stale(part, Some(error)),
            None => CachedPart::Missing(error),
        }
    }

    /// The last part that was good, where it may be shown: of a program also one that it gave to others.
    pub(super) fn last(&self, thread: &FetchContext) -> Option<Arc<ListPart>> {
        let catalog = &thread.state.catalog;
        let now = clock::now();
        let good = |key: &PartKey| catalog.parts.get(key).filter(|part| now < part.stale_until);
        good(&self.key).or_else(|| {
            let CatalogQuery::List(list) = self.key.kind else {
                let result = introduced::last(&self.upstream, thread.snapshot.limits.json_depth_max)?;
                return Some(Arc::new(ListPart::old(Content { result, ..Content::default() }.into(), now)));
            };
            if !self.upstream.is_child() || self.owner.shown().is_some() {
                return None;
            }
            let dialect = catalog.kept.latest(self.upstream.id, list)?;
            good(&PartKey { scope: Scope::Gateway, dialect, ..self.key })
        })
    }

    /// The fetch under way, or a new one. `Err`: one that just ended brought this.
    fn join(
        &self,
        thread: &FetchContext,
        lease: Option<Arc<ListLease>>,
    ) -> Result<Arc<Flight<PartResult>>, Arc<ListPart>> {
        let catalog = &thread.state.catalog;
        match catalog.fetching.join(&self.key) {
            FlightRole::Wait(flight) => Ok(flight),
            FlightRole::Begin(landing) => {
                let kept = catalog.parts.get(&self.key);
                match kept.filter(|part| part.is_fresh(self.count(), clock::now())) {
                    Some(part) => {
                        landing.land(Ok(Arc::clone(&part)));
                        Err(part)
                    }
                    None => Ok(self.begin(thread, landing, lease)),
                }
            }
        }
    }

    fn begin(
        &self,
        thread: &FetchContext,
        landing: Landing<PartKey, PartResult>,
        lease: Option<Arc<ListLease>>,
    ) -> Arc<Flight<PartResult>> {
        let flight = Arc::clone(&landing.flight);
        let (wanted, own) = (self.clone(), thread.clone());
        thread.client.tasks.spawn(async move {
            let outcome = wanted.fetch(&own, &landing.flight, lease).await;
            landing.land(outcome);
        });
        flight
    }

    /// Of what the server says to this list. What keeps it from saying anything is known of it without lists.
    fn note_fault(&self, thread: &FetchContext, error: &UpstreamError) {
        let is_of_list = matches!(
            error,
            UpstreamError::Refused(_)
                | UpstreamError::Nonsense
                | UpstreamError::OtherMedia { .. }
                | UpstreamError::TimedOut
                | UpstreamError::TooLarge
                | UpstreamError::LineTooLarge { .. }
                | UpstreamError::Status { .. }
                | UpstreamError::Encoded { .. }
                | UpstreamError::NotOpened(_)
        );
        // A process that ends at a list gives none. Its exit status is known a little later.
        let is_end = *error == UpstreamError::Reset && self.upstream.is_child();
        // As long as it is not known what a program speaks, this is what keeps it from opening a session.
        let is_known = !(self.upstream.is_child() && self.upstream.eras().is_none());
        let is_of_list = (is_of_list || is_end) && is_known;
        // A client's own list says nothing of what others are shown.
        if is_of_list && self.owner.is_gateway() && self.key.kind != CatalogQuery::Discover {
            let patience = self.upstream.config.list_timeout;
            let fault = if is_end { Fault::Closed } else { self.upstream.fault_of(error, patience) };
            let (listing, question) = (&self.upstream.listing, self.key.question());
            if self.is_again {
                listing.note_fault_again(question, fault);
            } else {
                if listing.note_fault(self.key.kind.index(), question, fault.clone()) {
                    let (upstream, list) =
                        (self.upstream.config.name.as_str(), self.key.kind.method().label());
                    tracing::warn!(upstream, list, why = fault.to_string(), "a list cannot be had");
                }
                thread.state.catalog.failing.note(self.key, &self.dialect);
            }
        }
    }

    /// True if a program has ended at this list, which is not that of its tools.
    fn has_ended_its_program(&self) -> bool {
        let is_other = !matches!(self.key.kind, CatalogQuery::Discover | CatalogQuery::List(List::Tools));
        let has_ended = || self.upstream.listing.fault_of(self.key.question());
        is_other && self.upstream.is_child() && has_ended().is_some_and(|noted| noted.fault == Fault::Closed)
    }

    /// Lists its tools, unless they are known: each process might end at the other list before it has answered this one.
    #[cold]
    async fn list_tools_before(&self, thread: &FetchContext) {
        let key = PartKey { kind: CatalogQuery::List(List::Tools), ..self.key };
        // The other list is asked for whatever comes of it.
        let _ = Self { key, is_again: false, ..self.clone() }.get(thread).await;
    }

    async fn fetch(
        &self,
        thread: &FetchContext,
        flight: &Flight<PartResult>,
        lease: Option<Arc<ListLease>>,
    ) -> PartResult {
        let kept = thread.state.catalog.parts.get(&self.key);
        if let Some(kept) = kept.filter(|kept| kept.count != self.count()) {
            sleep_until((kept.asked + CHANGES_INTERVAL).into()).await;
        }
        let (count, asked) = (self.count(), clock::now());
        // Nobody else sets it.
        let _ = flight.count.set(count);
        let was_watched = self.is_watched();
        fetch::heard_of(&self.upstream, &self.dialect).await;
        if self.is_undeclared(thread.snapshot.limits.json_depth_max) {
            self.upstream.listing.note_listed(self.key.kind.index(), self.key.question());
            return Ok(self.keep(thread, FetchResult::absent(asked), count, asked).await);
        }
        let _lease = match lease {
            Some(lease) => Some(lease),
            None => self.lease(thread, asked + self.upstream.config.list_timeout / 2).await?,
        };
        if self.has_ended_its_program() {
            Box::pin(self.list_tools_before(thread)).await;
        }
        let fetch = Fetch::new(thread, &self.upstream, self.key.kind, &self.dialect, asked);
        let fetched = fetch.owned_by(&self.owner).run().await;
        let ByResult { ok, error: failed } = &self.upstream.series.list_fetches;
        match fetched {
            Ok(mut fetched) => {
                ok.inc();
                if self.owner.is_gateway() {
                    self.upstream.listing.note_listed(self.key.kind.index(), self.key.question());
                }
                if let Some(children) =
                    self.upstream.children().filter(|_| self.key.kind != CatalogQuery::Discover)
                {
                    children.note_use();
                }
                if was_watched && self.is_watched() {
                    fetched.ttl = fetched.ttl.max(WATCHED_TTL);
                }
                let is_turn = self.compare_with_pins(thread, &mut fetched.content).await;
                Ok(self.keep(thread, fetched, count + u64::from(is_turn), asked).await)
            }
            Err(error) => {
                failed.inc();
                self.note_fault(thread, &error);
                if error.is_too_large() {
                    self.note_cut(thread, Truncation::Bytes, true);
                }
                tracing::debug!(
                    upstream = self.upstream.config.name,
                    list = self.key.kind.method().label(),
                    error = error.fault(),
                    "cannot list"
                );
                Err(error)
            }
        }
    }
}
