//! Looking at the definitions of tools at intervals, keeping what is pinned, and taking in approvals.
//!
//! Runs on the control thread. A *round* fetches the lists of the gateway's own, in every era that the upstream speaks,
//! as a client that can do nothing and as one that can do everything. It begins when the last one is half as old as
//! `pins_age_max`, when the upstream said that its tools changed, and when a call waits for it; two rounds are some time
//! apart. Files are written off the thread, at most once a second for each upstream. Where gateways share, the record that they
//! have in common is looked at as often ([`share`]).

mod share;
mod shared_pins;
mod watched;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio_util::sync::CancellationToken;

use self::shared_pins::SharedPins;
use self::watched::{LastWarning, PAUSE_MAX, PAUSE_MIN, PinnedUpstream};
use crate::catalog::lists::fetch::FetchContext;
use crate::catalog::lists::kept::judge_again;
use crate::catalog::lists::look_at_tools;
use crate::catalog::lists::pinned::OWN_DIALECTS;
use crate::catalog::lists::upstream_dialect::NO_CAPABILITIES;
use crate::clock;
use crate::context::state::State;
use crate::snapshot::Snapshot;
use crate::tables::lists::Dialect;
use crate::telemetry::logs::shorten;
use crate::upstream::Upstream;
use crate::upstream::changes::ChangedList;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::pins::file::{Approval, Folder};
use crate::upstream::pins::record::PinnedTools;
use crate::upstream::pins::{Pins, Round};
use net::jitter::doubled;
use protocol::error::UpstreamError;

/// Pause between two looks for something that is due.
const TICK: Duration = Duration::from_millis(250);
/// Pause between two looks for approvals; the least one between two files that are written.
const FILES_INTERVAL: Duration = Duration::from_secs(1);
/// Upstreams looked at at once.
const CONCURRENT_MAX: usize = 16;
/// From this round on an upstream is pinned by the lists that it gives, if some of them fail.
const ROUNDS_WHOLE: u32 = 3;

pub(crate) struct PinWatcher {
    state: Arc<State>,
    client: UpstreamClient,
    folder: Option<Folder>,
    shared: Option<SharedPins>,
    watched: HashMap<String, PinnedUpstream>,
    /// The configuration that `watched` goes by.
    followed: Arc<Snapshot>,
    files_looked_at: Option<Instant>,
    shared_looked_at: Option<Instant>,
    /// Files of approvals that were looked at and are still there. Those that hold, with the upstream whose file has to be
    /// written before.
    settled: HashMap<OsString, Option<String>>,
    /// Warnings of looking for approvals and of removing them.
    approvals_read: LastWarning,
    approvals_removed: LastWarning,
}

enum ApprovalStep {
    /// Its upstream, or the pins of it, cannot be had now.
    Later,
    /// Its file is of no use any more.
    Done,
    /// It holds, but is not written down.
    Approved { upstream: String },
}

impl std::fmt::Debug for PinWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

type RoundResult = (String, Arc<Pins>, Result<Round, UpstreamError>);

impl PinWatcher {
    /// Reads what was kept of the upstreams there are now, so that it counts before the first call.
    pub(crate) fn new(state: Arc<State>, client: UpstreamClient, state_directory: Option<&Path>) -> Self {
        let mut watcher = Self {
            folder: state_directory.map(Folder::new),
            shared: SharedPins::new(&state, &client.tasks),
            watched: HashMap::new(),
            followed: state.snapshot.load_full(),
            state,
            client,
            files_looked_at: None,
            shared_looked_at: None,
            settled: HashMap::new(),
            approvals_read: LastWarning::default(),
            approvals_removed: LastWarning::default(),
        };
        let snapshot = Arc::clone(&watcher.followed);
        for upstream in &snapshot.upstreams {
            let Some(pins) = &upstream.pins else { continue };
            if watcher.folder.is_none() && watcher.watched.is_empty() {
                tracing::warn!(
                    is_shared = watcher.shared.is_some(),
                    "no state_directory: what is pinned of tools is forgotten at the next start unless it is shared, and cannot be approved"
                );
            }
            let name = &upstream.config.name;
            watcher.watched.insert(name.clone(), PinnedUpstream::new(upstream, pins));
            watcher.open(name, pins, read(watcher.folder.as_ref(), name));
        }
        watcher
    }

    /// Watches until it is to stop, and then writes down what was found since.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut rounds: FuturesUnordered<LocalBoxFuture<'static, RoundResult>> = FuturesUnordered::new();
        let mut interval = tokio::time::interval(TICK);
        loop {
            let mut is_demanded = false;
            tokio::select! {
                () = stop.cancelled() => break,
                _ = interval.tick() => {}
                () = self.state.pins_due.notified() => is_demanded = true,
                Some(ended) = rounds.next() => self.end(ended).await,
            }
            self.follow_configuration().await;
            self.look_at_files().await;
            self.share_all().await;
            let now = clock::now();
            for (name, watched) in &mut self.watched {
                if rounds.len() < CONCURRENT_MAX && watched.is_due(now, is_demanded) {
                    watched.is_under_way = true;
                    watched.begun = Some(now);
                    let (state, client) = (Arc::clone(&self.state), self.client.clone());
                    let snapshot = state.snapshot.load_full();
                    let thread = FetchContext { state, client, snapshot };
                    let upstream = Arc::clone(&watched.upstream);
                    let (name, pins) = (name.clone(), Arc::clone(&watched.pins));
                    let is_lenient = watched.failures + 1 >= ROUNDS_WHOLE;
                    rounds.push(
                        async move { (name, pins, look(&thread, &upstream, is_lenient).await) }.boxed_local(),
                    );
                }
            }
            self.client.pools.sweep(now);
        }
        // Each says of its own what it could not write.
        let _ = self.write_all().await;
        self.meet().await;
    }

    async fn end(&mut self, (name, pins, result): RoundResult) {
        let watched = self.watched.get_mut(&name).filter(|watched| Arc::ptr_eq(&watched.pins, &pins));
        if let Some(watched) = watched {
            watched.is_under_way = false;
            match &result {
                Ok(_) => (watched.failures, watched.pause_until) = (0, None),
                // It is looked at as soon as it is up.
                Err(UpstreamError::Starting { .. }) => {}
                Err(error) => {
                    if watched.failures == 0 {
                        let upstream = &watched.upstream;
                        let error = upstream.fault_of(error, upstream.config.list_timeout).to_string();
                        tracing::warn!(
                            upstream = name,
                            error,
                            "the definitions of this upstream's tools cannot be looked at"
                        );
                    }
                    watched.pause_until =
                        Some(clock::now() + doubled(PAUSE_MIN, watched.failures, PAUSE_MAX));
                    watched.failures += 1;
                }
            }
            // Of two gateways that see the tools first, one decides before anybody calls them.
            if result.is_ok() && !self.agree(&name, &pins).await {
                return;
            }
        }
        pins.end_round(result);
    }

    async fn follow_configuration(&mut self) {
        let snapshot = self.state.snapshot.load_full();
        if Arc::ptr_eq(&self.followed, &snapshot) {
            return;
        }
        self.followed = Arc::clone(&snapshot);
        let lives = |name: &String, pins: &Arc<Pins>| {
            let mut upstreams = snapshot.upstreams.iter().filter(|upstream| upstream.config.name == *name);
            upstreams.any(|upstream| upstream.pins.as_ref().is_some_and(|now| Arc::ptr_eq(now, pins)))
        };
        let gone = self.watched.iter().filter(|(name, watched)| !lives(name, &watched.pins));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.write(&name).await;
            self.watched.remove(&name);
        }
        let mut has_new = false;
        for upstream in &snapshot.upstreams {
            let Some(pins) = &upstream.pins else { continue };
            let name = &upstream.config.name;
            match self.watched.get_mut(name) {
                Some(known) => known.upstream = Arc::clone(upstream),
                None => drop(self.watched.insert(name.clone(), PinnedUpstream::new(upstream, pins))),
            }
            if pins.is_open() {
                pins.set_bytes_max(snapshot.limits.pins_bytes_max);
                continue;
            }
            // New, or unreadable so far: a reload is the moment to try again.
            let (folder, own) = (self.folder.clone(), name.clone());
            let kept = self.client.tasks.compute(move || read(folder.as_ref(), &own)).await;
            self.open(name, pins, kept);
            upstream.changes.note(ChangedList::Tools);
            has_new = true;
        }
        if has_new {
            self.meet().await;
        }
    }

    async fn look_at_files(&mut self) {
        let now = clock::now();
        let is_early = self.files_looked_at.is_some_and(|last| now < last + FILES_INTERVAL);
        if is_early || self.watched.is_empty() {
            return;
        }
        self.files_looked_at = Some(now);
        let Some(folder) = self.folder.clone() else { return };
        let reading = folder.clone();
        let left = self.client.tasks.compute(move || reading.approvals_left()).await;
        let left = match left {
            Ok(left) => {
                self.approvals_read.end();
                let names: HashSet<&OsString> = left.iter().map(|(file, _)| file).collect();
                self.settled.retain(|file, _| names.contains(file));
                left
            }
            Err(error) => {
                if self.approvals_read.is_news(&error) {
                    tracing::warn!(%error, "approvals cannot be read");
                }
                Vec::new()
            }
        };
        let mut approved = HashSet::new();
        for (file, read) in left {
            if self.settled.contains_key(&file) {
                continue;
            }
            match self.approve(&file, read) {
                ApprovalStep::Later => {}
                ApprovalStep::Done => drop(self.settled.insert(file, None)),
                ApprovalStep::Approved { upstream } => {
                    approved.insert(upstream.clone());
                    self.settled.insert(file, Some(upstream));
                }
            }
        }
        for name in approved {
            self.show_approved(&name).await;
        }
        let unwritten = self.write_all().await;
        // An approval is taken away only when what it approves was written down.
        let is_done =
            |upstream: &Option<String>| upstream.as_ref().is_none_or(|name| !unwritten.contains(name));
        let done = self.settled.iter().filter(|(_, upstream)| is_done(upstream));
        let done = done.map(|(file, _)| file.clone()).collect();
        self.remove_approvals(&folder, done).await;
    }

    async fn remove_approvals(&mut self, folder: &Folder, files: Vec<OsString>) {
        if files.is_empty() {
            return;
        }
        let folder = folder.clone();
        let (gone, removed) = self.client.tasks.compute(move || folder.remove_approvals(files)).await;
        for file in gone {
            self.settled.remove(&file);
        }
        match removed {
            Err(error) if self.approvals_removed.is_news(&error) => {
                tracing::warn!(%error, "an approval cannot be removed");
            }
            Err(_) => {}
            Ok(()) => drop(self.approvals_removed.end()),
        }
    }

    fn approve(&self, file: &OsStr, read: io::Result<Approval>) -> ApprovalStep {
        let Approval { upstream, tool, hash } = match read {
            Ok(approval) => approval,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "an approval that cannot be read is dropped");
                return ApprovalStep::Done;
            }
        };
        let Some(watched) = self.watched.get(&upstream) else {
            // It may be configured again before anybody looks.
            let snapshot = self.state.snapshot.load();
            let is_known = snapshot.upstreams.iter().any(|known| known.config.name == upstream);
            return if is_known { ApprovalStep::Later } else { ApprovalStep::Done };
        };
        if !watched.pins.is_open() {
            return ApprovalStep::Later;
        }
        let is_approved = hash.parse().is_ok_and(|hash| watched.pins.approve(&tool, hash));
        let tool = shorten(&tool);
        if is_approved {
            tracing::info!(target: "audit", act = "approve", by = "trunkline pins", outcome = "done", upstream, tool, sha256 = hash, "the definition of a tool was approved");
            return ApprovalStep::Approved { upstream };
        }
        tracing::warn!(target: "audit", act = "approve", by = "trunkline pins", outcome = "refused", upstream, tool, sha256 = shorten(&hash), "not approved: the tool has no such definition waiting");
        ApprovalStep::Done
    }

    /// Has lists show what was approved of an upstream. A program that rests is not listed for it: its lists are read again.
    async fn show_approved(&self, name: &str) {
        let Some(watched) = self.watched.get(name) else { return };
        if watched.upstream.rests() {
            let (state, upstream) = (Arc::clone(&self.state), Arc::clone(&watched.upstream));
            let judge = move || judge_again(&state, &upstream, &state.snapshot.load().limits);
            self.client.tasks.compute(judge).await;
        }
        watched.upstream.changes.note(ChangedList::Tools);
        self.state.hub.tell(&watched.upstream, ChangedList::Tools);
    }

    /// Writes down what is pinned of all upstreams, and returns those of which it could not.
    async fn write_all(&mut self) -> Vec<String> {
        let names: Vec<String> = self.watched.keys().cloned().collect();
        let mut unwritten = Vec::new();
        for name in names {
            if !self.write(&name).await {
                unwritten.push(name);
            }
        }
        unwritten
    }

    /// Writes down what is pinned of an upstream, if it was not. False if it could not be.
    async fn write(&mut self, name: &str) -> bool {
        let (Some(folder), Some(watched)) = (self.folder.clone(), self.watched.get_mut(name)) else {
            return true;
        };
        if watched.write_again.is_some_and(|at| clock::now() < at) {
            return false;
        }
        let pins = Arc::clone(&watched.pins);
        if !pins.is_open() || !pins.take_dirty() {
            return true;
        }
        let own = name.to_owned();
        let writing = Arc::clone(&pins);
        let written = self.client.tasks.compute(move || folder.write(&own, &writing.text())).await;
        if written.is_err() {
            pins.set_dirty();
        }
        pins.set_unwritable(written.is_err());
        watched.note_written(name, &written);
        written.is_ok()
    }
}

/// Fetches the lists of tools of one upstream once, in each era it speaks, which pins what they bring.
async fn look(
    thread: &FetchContext,
    upstream: &Arc<Upstream>,
    is_lenient: bool,
) -> Result<Round, UpstreamError> {
    let count = upstream.changes.count(ChangedList::Tools);
    let round = Round { upstream: upstream.id, begun: clock::now(), count };
    let eras = upstream.eras().ok_or(UpstreamError::OtherEra)?;
    let speaks = |dialect: &Dialect<&[u8]>| match dialect {
        Dialect::Modern(_) => eras.modern,
        Dialect::Legacy(..) => eras.legacy,
    };
    // Of a program with one session for lists, all clients are shown what those see that can do nothing.
    let is_one = upstream.is_child() && upstream.list_sessions_max() == 1;
    let is_asked = |dialect: &Dialect<&[u8]>| {
        !is_one
            || !matches!(dialect, Dialect::Legacy(_, capabilities) if *capabilities != NO_CAPABILITIES.as_bytes())
    };
    let dialects = OWN_DIALECTS.into_iter().filter(speaks).filter(is_asked);
    let mut results = join_all(dialects.map(|dialect| look_at_tools(thread, upstream, dialect))).await;
    // One era may be broken for good, and the other in use.
    if is_lenient && results.iter().any(Result::is_ok) {
        results.retain(Result::is_ok);
    }
    results.into_iter().collect::<Result<(), _>>().map(|()| round)
}

/// The pins that are kept of an upstream; `None`: they cannot be read.
fn read(folder: Option<&Folder>, upstream: &str) -> Option<PinnedTools> {
    let Some(folder) = folder else { return Some(PinnedTools::default()) };
    match folder.read(upstream) {
        Ok(kept) => Some(kept.unwrap_or_default()),
        Err(error) => {
            let path = folder.path(upstream);
            tracing::error!(
                upstream,
                path = %path.display(),
                %error,
                "what is pinned of this upstream cannot be read: with quarantine or block no tool of it is let through until the file is mended or removed and the gateway reloaded"
            );
            None
        }
    }
}
