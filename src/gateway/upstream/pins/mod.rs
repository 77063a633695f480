//! Definitions of tools as they were first seen, and what happens when they change.
//!
//! Every tools list that is fetched is compared, as it arrives, with what is pinned ([`pin_book`]): each definition whole, by
//! the hash of its canonical form ([`protocol::canonical`]). What may not be shown is left out before anything is merged, so that
//! no cache holds it. The gateway fetches the lists of its own at intervals and after every notice (`catalog::pin_watch`), and keeps
//! what is pinned in the state directory ([`mod@file`]) and, where gateways share, in one record of them all ([`agreement`]).
//!
//! A call waits for nothing as long as those lists are younger than `pins_age_max` and no notice came since; what it
//! needs is then a look at an empty set. Else it waits for them, at most `list_timeout`, and fails if they cannot be had.
//! So under `quarantine` and `block` a call never reaches a tool that was seen to have changed, nor one whose definition
//! has not been looked at for longer than that. Within that time a server that does not say that it changed is believed.
//!
//! Invariant: with `pins = "off"` there is no [`Pins`], and nothing here runs.

pub(crate) mod agreement;
pub(crate) mod diff;
pub(crate) mod file;
pub mod pending;
pub(crate) mod pin_book;
pub(crate) mod record;
mod report;
mod sharing;
pub(crate) mod version;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout_at;

use self::agreement::Agreement;
use self::pin_book::{ListSource, ListVerdict, ListedTool, PinBook};
use self::record::PinnedTools;
use crate::clock;
use crate::telemetry::metrics::families::{PinSeries, PinStates};
use crate::telemetry::metrics::gauge;
use crate::upstream::changes::ChangedList;
use crate::upstream::throttle::LogPace;
use crate::upstream::{Upstream, UpstreamId};
use config::PinMode;
use protocol::canonical::Hash;
use protocol::error::{Error, GatewayError, PolicyError, UpstreamError};

/// The longest part of a name that is told, in characters.
const NAME_CHARS_MAX: usize = 300;

/// The pins of one upstream; shared by all threads, and by what it becomes on reload.
#[derive(Debug)]
pub(crate) struct Pins {
    inner: Mutex<PinState>,
    current: ArcSwap<Current>,
    /// Something became known.
    changed: Notify,
    /// A call has waited for the lists since the last round.
    is_awaited: AtomicBool,
    series: PinSeries,
}

#[derive(Debug)]
struct PinState {
    book: PinBook,
    is_dirty: bool,
    agreement: Agreement,
    pace: LogPace,
    /// Number of times that the record of all gateways was lost.
    lost: u32,
}

/// The pins that calls go by.
#[derive(Clone, Debug)]
struct Current {
    standing: PinFileState,
    /// True once the upstream has been pinned.
    is_complete: bool,
    names: Arc<PinnedNames>,
    round: Option<Round>,
    /// The error of the last round, if it came to nothing.
    failed: Option<(Instant, UpstreamError)>,
}

#[derive(Debug, Default)]
struct PinnedNames {
    /// These must not be called; with the member that differs from process to process, where one does.
    refused: HashMap<String, Option<Arc<str>>>,
    /// These have an approved definition.
    approved: HashSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PinFileState {
    /// The pins that were kept have not been read yet.
    Closed,
    /// The pins that were kept cannot be read.
    Unreadable,
    /// Nothing was kept, and what gateways share cannot be had.
    Unasked,
    Open,
}

/// All of the gateway's own lists were fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Whose they are: another server may have taken the name since.
    pub upstream: UpstreamId,
    /// The time at which the first of them was asked for.
    pub begun: Instant,
    /// Number of changes of the tools until then.
    pub count: u64,
}

impl Round {
    /// True if these are the lists of this very upstream, and no change of them was noticed since.
    pub(crate) fn is_of(&self, upstream: &Upstream) -> bool {
        self.upstream == upstream.id && self.count == upstream.changes.count(ChangedList::Tools)
    }
}

impl Pins {
    /// Pins that have not been read yet.
    pub(crate) fn new(series: PinSeries) -> Self {
        let inner = PinState {
            book: PinBook::new(0),
            is_dirty: false,
            agreement: Agreement::default(),
            pace: LogPace::default(),
            lost: 0,
        };
        let current = Current {
            standing: PinFileState::Closed,
            is_complete: false,
            names: Arc::default(),
            round: None,
            failed: None,
        };
        Self {
            inner: Mutex::new(inner),
            current: ArcSwap::from_pointee(current),
            changed: Notify::new(),
            is_awaited: AtomicBool::new(false),
            series,
        }
    }

    /// Pins are these that were kept; `None`: they cannot be read. About `bytes_max` bytes may be pinned.
    pub(crate) fn open(&self, kept: Option<PinnedTools>, bytes_max: usize) {
        let mut inner = self.inner();
        let standing = if kept.is_some() { PinFileState::Open } else { PinFileState::Unreadable };
        if let Some(PinnedTools { tools, is_complete, began, version, approvals }) = kept {
            inner.book = PinBook::new(bytes_max).restore(tools, is_complete);
            inner.agreement = Agreement::kept(began, version, is_complete, approvals);
        }
        self.stand(&inner, standing);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.current.load().standing == PinFileState::Open
    }

    /// True until the upstream has been pinned, unless what was kept cannot be read.
    pub(crate) fn are_unfinished(&self) -> bool {
        let current = self.current.load();
        !current.is_complete && current.standing != PinFileState::Unreadable
    }

    /// Waits until a list of this source can be judged, at most for `patience`.
    pub(crate) async fn ready(&self, source: ListSource, patience: Duration) {
        let is_ready = |current: &Current| match current.standing {
            PinFileState::Closed => false,
            PinFileState::Unreadable | PinFileState::Unasked => true,
            PinFileState::Open => current.is_complete || source != ListSource::Client,
        };
        let ready = async {
            loop {
                let changed = self.changed.notified();
                if is_ready(&self.current.load()) {
                    return;
                }
                changed.await;
            }
        };
        // Out of patience, the list is judged by what is known.
        let _ = tokio::time::timeout(patience, ready).await;
    }

    /// Judges a list as it came from `upstream`. `is_whole`: nothing is missing at its end.
    pub(crate) fn look(
        &self,
        upstream: &Upstream,
        source: ListSource,
        listed: &[ListedTool],
        is_whole: bool,
    ) -> ListVerdict {
        let pins = upstream.config.pins;
        let standing = self.current.load().standing;
        if standing != PinFileState::Open {
            // There is nothing to compare with, and nothing may be taken on trust.
            let shown = vec![!pins.is_strict(); listed.len()];
            return ListVerdict { shown, ..ListVerdict::default() };
        }
        let mut inner = self.inner();
        let mut verdict = inner.book.look(source, pins.mode, listed, is_whole);
        verdict.is_dirty |= inner.book.note_processes(upstream.is_child());
        inner.report(&self.series, upstream, &verdict.findings);
        if verdict.is_dirty {
            inner.touch();
        }
        if verdict.is_turn || verdict.is_dirty || verdict.is_doubt {
            self.publish(&inner, |current| {
                current.round = current.round.filter(|_| !verdict.is_doubt);
            });
        }
        verdict.is_turn &= pins.is_strict();
        verdict
    }

    /// A verdict on each of these tools, by what is pinned already: true if it may be shown. `None`: one of them is not
    /// judged yet.
    pub(crate) fn allowed(&self, upstream: &Upstream, listed: &[ListedTool]) -> Option<Vec<bool>> {
        let pins = upstream.config.pins;
        if !pins.is_strict() {
            return Some(vec![true; listed.len()]);
        }
        let is_open = self.is_open();
        let inner = self.inner();
        if !is_open || !inner.book.is_complete() {
            return None;
        }
        let judge = |tool: &ListedTool| match &tool.name {
            Some(name) => inner.book.tools().get(name)?.is_approved(tool.definition.hash),
            None => Some(false),
        };
        let mut shown: Vec<bool> = listed.iter().map(judge).collect::<Option<_>>()?;
        if pins.mode == PinMode::Block && shown.contains(&false) {
            shown.fill(false);
        }
        Some(shown)
    }

    /// Approves a definition that waits. False if this one does not.
    pub(crate) fn approve(&self, tool: &str, hash: Hash) -> bool {
        let mut inner = self.inner();
        let is_approved = inner.book.approve(tool, hash);
        if is_approved {
            inner.is_dirty = true;
            inner.agreement.note_approval(tool, hash);
            self.publish(&inner, |current| current.round = None);
        }
        is_approved
    }

    /// True if a call waits for the gateway's own lists.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire)
    }

    pub(crate) fn end_round(&self, result: Result<Round, UpstreamError>) {
        self.is_awaited.store(false, Ordering::Release);
        let mut inner = self.inner();
        match result {
            Ok(round) => {
                if inner.book.complete() {
                    inner.touch();
                }
                self.publish(&inner, |current| {
                    current.round = Some(round);
                    current.failed = None;
                });
            }
            Err(error) => {
                self.publish(&inner, |current| current.failed = Some((clock::now(), error)));
            }
        }
    }

    /// The state of a tool: `pinned`, `changed` where another definition waits for approval, `new` where only that does.
    pub(crate) fn state_of(&self, tool: &str) -> Option<&'static str> {
        self.inner().book.tools().get(tool).map(state)
    }

    /// Tools with definitions that wait for approval, by name, at most `max` of them.
    pub(crate) fn waiting(&self, max: usize) -> Vec<String> {
        let inner = self.inner();
        let waiting = inner.book.tools().iter().filter(|(_, tool)| !tool.pending.is_empty());
        waiting.take(max).map(|(name, _)| beginning(name)).collect()
    }

    /// Tools whose definitions differ from process to process, by name, with the member that differs, at most `max` of
    /// them.
    pub(crate) fn varying(&self, max: usize) -> Vec<(String, String)> {
        let inner = self.inner();
        let names = inner.book.tools().keys();
        let varying = names.filter_map(|name| Some((beginning(name), inner.book.varying_member(name)?)));
        varying.take(max).collect()
    }

    /// The last round, unless something put it in doubt.
    pub(crate) fn round(&self) -> Option<Round> {
        self.current.load().round
    }

    /// True if what is kept is not what is pinned; from now on it is taken to be.
    pub(crate) fn take_dirty(&self) -> bool {
        std::mem::take(&mut self.inner().is_dirty)
    }

    pub(crate) fn set_dirty(&self) {
        self.inner().is_dirty = true;
    }

    /// True tells operators that pins cannot be written down.
    pub(crate) fn set_unwritable(&self, is_unwritable: bool) {
        self.series.states.unwritable.set(i64::from(is_unwritable));
    }

    pub(crate) fn text(&self) -> String {
        let inner = self.inner();
        inner.agreement.text(&inner.book)
    }

    /// Other limits hold.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.inner().book.set_bytes_max(bytes_max);
    }

    fn inner(&self) -> MutexGuard<'_, PinState> {
        self.inner.lock()
    }

    fn stand(&self, inner: &PinState, standing: PinFileState) {
        let PinStates { unreadable, unasked, .. } = &self.series.states;
        unreadable.set((standing == PinFileState::Unreadable).into());
        unasked.set((standing == PinFileState::Unasked).into());
        self.publish(inner, |current| current.standing = standing);
    }

    /// Tells calls what is known now. The lock is held, so that nothing newer is overwritten.
    fn publish(&self, inner: &PinState, change: impl FnOnce(&mut Current)) {
        let book = &inner.book;
        let mut current = Current::clone(&self.current.load());
        let member = |name: &String| book.varying_member(name).map(|member| beginning(&member).into());
        let refused: HashMap<String, Option<Arc<str>>> =
            book.refused().into_iter().map(|name| (name.clone(), member(name))).collect();
        let approved = book.tools().iter().filter(|(_, tool)| !tool.approved.is_empty());
        let approved: HashSet<String> = approved.map(|(name, _)| name.clone()).collect();
        if refused != current.names.refused || approved != current.names.approved {
            current.names = Arc::new(PinnedNames { refused, approved });
        }
        current.is_complete = book.is_complete();
        change(&mut current);
        let PinStates { pinned, changed: other, new, .. } = &self.series.states;
        for (state, count) in [pinned, other, new].into_iter().zip(book.counts()) {
            state.set(gauge(count));
        }
        self.current.store(Arc::new(current));
        self.changed.notify_waiters();
    }
}

fn state(tool: &pin_book::PinnedTool) -> &'static str {
    match (tool.approved.is_empty(), tool.pending.is_empty()) {
        (false, true) => "pinned",
        (false, false) => "changed",
        (true, _) => "new",
    }
}

/// A name, or its beginning with an ellipsis: no command is offered for what is not a whole name.
fn beginning(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}\u{2026}", &name[..end]),
        None => name.to_owned(),
    }
}

/// Fails if a tool of `upstream` may not be called now. Waits for the gateway's own lists where they are old, and asks for
/// them by `due`.
pub(crate) async fn check(upstream: &Upstream, tool: &str, due: &Notify) -> Result<(), Error> {
    let Some(pins) = upstream.pins.as_ref().filter(|_| upstream.config.pins.is_strict()) else {
        return Ok(());
    };
    if let Some(verdict) = pins.current.load().judge(upstream, tool) {
        return verdict;
    }
    let entered = clock::now();
    let deadline = entered + upstream.config.list_timeout;
    loop {
        let changed = pins.changed.notified();
        let current = pins.current.load_full();
        if let Some(verdict) = current.judge(upstream, tool) {
            return verdict;
        }
        if let Some((_, error)) = current.failed.as_ref().filter(|(failed, _)| *failed > entered) {
            return Err(error.clone().into());
        }
        pins.is_awaited.store(true, Ordering::Release);
        due.notify_one();
        if timeout_at(deadline.into(), changed).await.is_err() {
            let is_open = pins.is_open();
            return Err(if is_open {
                UpstreamError::TimedOut.into()
            } else {
                GatewayError::PinsUnknown.into()
            });
        }
    }
}

impl Current {
    /// `None`: it is not known.
    fn judge(&self, upstream: &Upstream, tool: &str) -> Option<Result<(), Error>> {
        if matches!(self.standing, PinFileState::Unreadable | PinFileState::Unasked) {
            return Some(Err(GatewayError::PinsUnknown.into()));
        }
        let pins = upstream.config.pins;
        let round = self.round?;
        // A call that began before a reload goes by what was seen after it.
        let is_replaced = round.upstream.generation > upstream.id.generation;
        if clock::since(round.begun) >= pins.age_max || !is_replaced && !round.is_of(upstream) {
            return None;
        }
        let PinnedNames { refused, approved } = &*self.names;
        let is_refused = match pins.mode {
            PinMode::Off | PinMode::Warn => false,
            PinMode::Quarantine => refused.contains_key(tool),
            PinMode::Block => !refused.is_empty() || !approved.contains(tool),
        };
        if !is_refused {
            return Some(Ok(()));
        }
        let varying = refused.get(tool).cloned().flatten();
        Some(Err(varying.map_or(PolicyError::Pinned, |member| PolicyError::PinnedVaries { member }).into()))
    }
}

impl PinState {
    /// Pins are no longer those that are kept.
    fn touch(&mut self) {
        (self.is_dirty, self.agreement.is_ahead) = (true, true);
    }
}
