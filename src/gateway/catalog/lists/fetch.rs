//! Asking one upstream for one list, all its pages, or for `server/discover`, in either era.
//!
//! Bounded in time over the whole answer, in bytes and in pages; a cursor that comes again ends the walk. What was cut
//! off so is kept as far as it came, and known to be cut. Of a client only its capabilities reach an upstream.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::introduced;
use super::owner::ListOwner;
use super::upstream_dialect::{NO_CAPABILITIES, UpstreamDialect, own_session};
use crate::access::limit::payer::Payer;
use crate::catalog::own_session;
use crate::clock;
use crate::context::state::State;
use crate::session::{SessionId, UpstreamSession};
use crate::snapshot::Snapshot;
use crate::tables::lists::CatalogQuery;
use crate::tables::lists::part::{
    Content, PartPage, PartRead, REQUEST_ID, ReadPage, Reading, Truncation, read,
};
use crate::upstream::ask::{AskReply, AskRequest, Asker, modern_headers, show};
use crate::upstream::closing::LeftSession;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::initialize::InitializeOffer;
use crate::upstream::listing::Annotations;
use crate::upstream::{ReplicaSelection, Upstream};
use config::LimitsConfig;
use protocol::error::UpstreamError;
use protocol::initialize::META_START;
use protocol::json::{Scratch, quote};
use protocol::method::Method;
use protocol::translation::introduction;
use protocol::version::{self, Era, LegacyVersion};

/// Longer replies are read off the worker, whose calls would wait for it.
const READ_INLINE_BYTES_MAX: usize = 256 * 1024;
/// Nothing is believed to be fresh for longer.
const TTL_MAX: Duration = Duration::from_hours(24);
/// The time for which an upstream is believed to have no such list, or one that is too large. It cannot
/// name a time itself.
pub(super) const TTL_ABSENT: Duration = Duration::from_secs(5);
/// How long is waited until an upstream has introduced itself.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of an upstream session that is lost again as soon as it was opened there is no third.
const SESSIONS_TRIED_MAX: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct FetchContext {
    pub state: Arc<State>,
    pub client: UpstreamClient,
    pub snapshot: Arc<Snapshot>,
}

impl FetchContext {
    /// A way to ask upstreams on the gateway's own behalf.
    pub(crate) fn asker<'h>(&'h self, scratch: &'h RefCell<Scratch>) -> Asker<'h> {
        Asker {
            client: &self.client,
            scratch,
            limits: &self.snapshot.limits,
            budget: &self.state.buffered,
            payer: Payer::GATEWAY,
            aim: ReplicaSelection::Any,
        }
    }
}

#[derive(Debug)]
pub(crate) struct FetchResult {
    pub content: Content,
    /// The least `ttlMs` of any page.
    pub ttl: Duration,
    /// When the first page was there.
    pub arrived: Instant,
}

impl FetchResult {
    /// The server has no such list.
    pub(super) fn absent(arrived: Instant) -> Self {
        Self { content: Content::absent(), ttl: TTL_ABSENT, arrived }
    }
}

pub(crate) struct Fetch<'f> {
    thread: &'f FetchContext,
    upstream: &'f Upstream,
    kind: CatalogQuery,
    dialect: &'f UpstreamDialect,
    owner: &'f ListOwner,
    deadline: Instant,
    /// Of its own: a list takes long enough that the thread's calls need theirs meanwhile.
    scratch: RefCell<Scratch>,
}

/// The use of the gateway's own sessions. When it ends after the configuration has ceased to name the upstream, they are
/// closed: one may have been opened since those that were open then are.
struct LastUse<'f>(&'f Fetch<'f>);

impl Drop for LastUse<'_> {
    fn drop(&mut self) {
        let Fetch { thread, upstream, .. } = self.0;
        if upstream.facts.is_over()
            && let Some(gone) = upstream.current.get().filter(|current| current.facts.is_over())
        {
            own_session::close_own_sessions(&thread.client, &thread.state.sessions, &gone);
        }
    }
}

impl<'f> Fetch<'f> {
    /// A fetch that has `list_timeout` from `now`.
    pub(crate) fn new(
        thread: &'f FetchContext,
        upstream: &'f Upstream,
        kind: CatalogQuery,
        dialect: &'f UpstreamDialect,
        now: Instant,
    ) -> Self {
        let deadline = now + upstream.config.list_timeout;
        let owner = &ListOwner::Gateway;
        Self { thread, upstream, kind, dialect, owner, deadline, scratch: RefCell::default() }
    }

    /// The same in the name of another.
    pub(super) fn owned_by(self, owner: &'f ListOwner) -> Self {
        Self { owner, ..self }
    }

    pub(crate) async fn run(&self) -> Result<FetchResult, UpstreamError> {
        let UpstreamDialect::Legacy(version, capabilities) = self.dialect else {
            return self.pages(None).await;
        };
        if self.kind == CatalogQuery::Discover {
            return self.introduction();
        }
        if let ListOwner::Session(session, _) = self.owner {
            let fetched = self.pages(Some(session)).await;
            if matches!(fetched, Err(UpstreamError::SessionLost)) {
                session.lists.note_lost();
            }
            return fetched;
        }
        let _use = LastUse(self);
        for _ in 0..SESSIONS_TRIED_MAX {
            let session = self.session(*version, capabilities).await?;
            match self.pages(Some(&session)).await {
                Err(UpstreamError::SessionLost) => {
                    let own = own_session(self.owner, *version, capabilities);
                    self.lose(own, &session);
                }
                fetched => return fetched,
            }
        }
        Err(UpstreamError::SessionLost)
    }

    /// What the upstream said at `initialize`, which it is asked now and then anyway: nobody knows for how long it
    /// holds.
    fn introduction(&self) -> Result<FetchResult, UpstreamError> {
        let depth_max = self.thread.snapshot.limits.json_depth_max;
        let result = introduced::in_legacy(self.upstream, depth_max)?;
        let content = Content { result, ..Content::default() };
        Ok(FetchResult { content, ttl: Duration::ZERO, arrived: clock::now() })
    }

    async fn session(
        &self,
        version: LegacyVersion,
        capabilities: &Bytes,
    ) -> Result<Arc<UpstreamSession>, UpstreamError> {
        let declared = std::str::from_utf8(capabilities).unwrap_or(NO_CAPABILITIES);
        let mut offer = InitializeOffer::own(version);
        offer.initialize.capabilities = declared;
        offer.shown = self.owner.shown().cloned();
        let own = (own_session(self.owner, version, capabilities), offer);
        let sessions = &self.thread.state.sessions;
        own_session::own_session(&self.asker(), sessions, self.upstream, own, self.deadline).await
    }

    /// Forgets a session that is of no use, and tells the upstream, in case it knows it.
    fn lose(&self, own: SessionId, session: &Arc<UpstreamSession>) {
        let is_lost = self.thread.state.sessions.lose(own, &self.upstream.session_key, session);
        if let Some(upstream) = self.upstream.current.get().filter(|_| is_lost) {
            self.thread.client.close_sessions(LeftSession::new(upstream, &session.named()));
        }
    }

    async fn pages(&self, session: Option<&UpstreamSession>) -> Result<FetchResult, UpstreamError> {
        let limits = &self.thread.snapshot.limits;
        let reading = reading(self.upstream, self.kind, self.dialect.era(), limits);
        let mut content = Content { is_public: true, ..Content::default() };
        let mut annotated = HashMap::new();
        let (mut ttl, mut arrived) = (TTL_MAX, None);
        let mut cursors: Vec<String> = Vec::new();
        let mut bytes_left = limits.list_bytes_max;
        loop {
            let asks_in_doubt = self.is_end_in_doubt(&cursors);
            let body = match self.ask(session, cursors.last(), bytes_left).await {
                Ok(body) => body,
                Err(error) if error.is_too_large() && !content.pages.is_empty() => {
                    content.cut = Some(Truncation::Bytes);
                    break;
                }
                Err(_) if asks_in_doubt => break,
                Err(trouble) => return Err(trouble),
            };
            bytes_left = bytes_left.saturating_sub(body.len());
            let arrived = *arrived.get_or_insert_with(clock::now);
            let mut page = match self.read(&body, &reading).await {
                Ok(PartRead::Page(page)) => page,
                Ok(PartRead::Absent) | Err(_) if asks_in_doubt => break,
                Ok(PartRead::Absent) => return Ok(FetchResult::absent(arrived)),
                Err(trouble) => return Err(trouble),
            };
            if asks_in_doubt && content.begins_with(&body, &page.items) {
                break;
            }
            ttl = ttl.min(Duration::from_millis(page.ttl_ms));
            note_annotated(&mut annotated, &page);
            if page.cut_to(limits.list_entries_max.saturating_sub(content.items())) {
                content.cut = Some(Truncation::Entries);
            }
            let next_cursor = add(&mut content, self.kind, body, page);
            if content.cut.is_some() {
                break;
            }
            let Some(next) = next_cursor.filter(|next| !(asks_in_doubt && next.is_empty())) else { break };
            content.cut = cut(&cursors, &next, content.pages.len(), limits.list_pages_max);
            if content.cut.is_some() {
                break;
            }
            cursors.push(next);
        }
        content.annotated = Arc::new(annotated);
        Ok(FetchResult { content, ttl, arrived: arrived.unwrap_or_else(clock::now) })
    }

    /// Whether the next page may be none: servers of the legacy era end their lists with an empty cursor, too. Where it
    /// fails or brings what was there before, the list was whole.
    fn is_end_in_doubt(&self, cursors: &[String]) -> bool {
        self.dialect.era() == Era::Legacy && cursors.last().is_some_and(String::is_empty)
    }

    async fn ask(
        &self,
        session: Option<&UpstreamSession>,
        cursor: Option<&String>,
        bytes_max: usize,
    ) -> Result<Bytes, UpstreamError> {
        let method = self.kind.method();
        let mut params = Vec::new();
        if let UpstreamDialect::Modern(capabilities) = self.dialect {
            params.extend_from_slice(META_START.as_bytes());
            params.extend_from_slice(capabilities);
            params.push(b'}');
        }
        if let Some(cursor) = cursor {
            let comma = if params.is_empty() { "" } else { "," };
            params.extend_from_slice(format!("{comma}\"cursor\":{}", quote(cursor)).as_bytes());
        }
        let start =
            format!(r#"{{"jsonrpc":"2.0","id":{REQUEST_ID},"method":"{}","params":{{"#, method.label());
        let question = AskRequest {
            headers: self.headers(session, method),
            body: [start.as_bytes(), &params, b"}}"].concat().into(),
            is_safe_to_repeat: true,
            replica: session.and_then(|session| session.replica),
            bytes_max,
            deadline: self.deadline,
        };
        let answer = self.asker().ask(self.upstream, question).await?;
        let is_lost =
            session.is_some() && [StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST].contains(&answer.status);
        if is_lost {
            return Err(UpstreamError::SessionLost);
        }
        if answer.body.is_empty() || is_failure_of_transport(answer.status) {
            return Err(failure(self.upstream, &answer));
        }
        Ok(answer.body)
    }

    fn headers(&self, session: Option<&UpstreamSession>, method: Method) -> HeaderMap {
        if let Some(session) = session {
            let mut named = session.named();
            // The session may have been shown something else meanwhile, under which this list is not kept.
            named.shown = self.owner.shown().cloned().or(named.shown);
            return named.to_map();
        }
        let mut headers = modern_headers(version::MODERN[0], method);
        if let Some(shown) = self.owner.shown() {
            show(&mut headers, shown);
        }
        headers
    }

    async fn read(&self, body: &Bytes, reading: &Reading) -> Result<PartRead, UpstreamError> {
        let depth_max = self.thread.snapshot.limits.json_depth_max;
        if body.len() <= READ_INLINE_BYTES_MAX {
            return read(body, reading, &mut self.scratch.borrow_mut(), depth_max);
        }
        let (body, reading) = (body.clone(), reading.clone());
        let read = move || read(&body, &reading, &mut Scratch::default(), depth_max);
        self.thread.client.tasks.compute(read).await
    }

    fn asker(&self) -> Asker<'_> {
        self.thread.asker(&self.scratch)
    }
}

/// Waits until a server with sessions has introduced itself, for a while: its name stands beside its lists, and it declares
/// which it has.
pub(super) async fn heard_of(upstream: &Upstream, dialect: &UpstreamDialect) {
    if let UpstreamDialect::Legacy(..) = dialect {
        upstream.facts.tried_within(PATIENCE).await;
    }
}

pub(super) fn reading(upstream: &Upstream, kind: CatalogQuery, era: Era, limits: &LimitsConfig) -> Reading {
    let known = upstream.facts.known();
    let introduction = known.legacy.introduction().filter(|_| era == Era::Legacy);
    let server_info = introduction.and_then(|introduction| {
        introduction::server_info(&introduction.result, (&mut Scratch::default(), limits.json_depth_max))
    });
    // Of a server of both eras the modern list decides.
    let counts_annotations = era == Era::Modern || upstream.lacks(Era::Modern);
    Reading { kind, era, counts_annotations, entries_max: limits.list_entries_max, server_info }
}

/// Adds what a page says of the mirrored parameters of its tools.
pub(super) fn note_annotated(annotated: &mut Annotations, page: &ReadPage) {
    for (name, annotations) in &page.annotated {
        // Of a tool that comes twice the first is listed.
        annotated.entry(name.clone()).or_insert_with(|| Arc::clone(annotations));
    }
}

/// Adds a page and returns the cursor of the next.
pub(super) fn add(content: &mut Content, kind: CatalogQuery, body: Bytes, page: ReadPage) -> Option<String> {
    content.is_public &= page.is_public;
    content.excluded.append(page.excluded);
    if content.pages.is_empty() {
        content.rest = page.rest;
    }
    if kind == CatalogQuery::Discover {
        content.result = body.slice(page.result);
        return None;
    }
    content.pages.push(PartPage { body, items: page.items });
    page.next_cursor
}

/// Why the page after these is not asked for.
fn cut(cursors: &[String], next: &String, pages: usize, pages_max: usize) -> Option<Truncation> {
    if cursors.contains(next) {
        Some(Truncation::Cursor)
    } else if pages >= pages_max {
        Some(Truncation::Pages)
    } else {
        None
    }
}

/// True for a status that says more than whatever JSON came with it.
fn is_failure_of_transport(status: StatusCode) -> bool {
    [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ]
    .contains(&status)
}

fn failure(upstream: &Upstream, answer: &AskReply) -> UpstreamError {
    match answer.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => upstream.access.refusal(),
        status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            UpstreamError::Busy { status, retry_after_s: None }
        }
        status => answer.fields.fault(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_newest() {
        let written = format!("\"{}\"", version::MODERN[0]);
        assert!(META_START.contains(&written), "{META_START}");
    }

    #[test]
    fn a_walk_ends() {
        let cursors: Vec<String> = ["a", "b"].map(String::from).to_vec();
        for (next, pages, expected) in [
            ("c", 3, None),
            ("", 3, None),
            ("a", 3, Some(Truncation::Cursor)),
            ("b", 3, Some(Truncation::Cursor)),
            ("c", 5, Some(Truncation::Pages)),
            ("a", 5, Some(Truncation::Cursor)),
        ] {
            assert_eq!(cut(&cursors, &next.to_owned(), pages, 5), expected, "{next} {pages}");
        }
    }
}
