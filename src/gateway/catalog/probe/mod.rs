//! Finding out which eras every upstream speaks, and so which eras every endpoint serves.
//!
//! Runs on the control thread. Every upstream is asked in both eras, each by itself, at start and after a reload that
//! brings it; again every few minutes; and soon after a call found it to be other than it was known. A program is asked
//! while it starts, and in one era ([`program`]). A server that does not say is asked again with growing pauses, and what
//! was known stays. All of it is kept across restarts.
//!
//! Whatever may bring a question forward is looked at once a tick, for all upstreams; between two ticks an answer is
//! followed by what was found due then, so that it costs the same however many upstreams there are.
//!
//! Invariant: of each upstream at most one question of each era is open, and a slow one delays no other.

mod ask;
mod endpoints;
mod health;
mod memory;
mod names;
mod program;
mod schedule;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use self::ask::EraFinding;
use self::endpoints::Endpoints;
use self::health::{CheckResult, Checks};
use self::memory::Memory;
use self::names::NameLookups;
use self::schedule::Schedule;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Shares;
use crate::catalog::lists::declared::newly_declared;
use crate::catalog::own_session::close_own_sessions;
use crate::clock;
use crate::context::state::State;
use crate::snapshot::Snapshot;
use crate::upstream::ask::Asker;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::facts::{EMPTY, EraFacts, EraIntroduction, Fact};
use crate::upstream::fault::{Fault, LastFault};
use crate::upstream::{ReplicaSelection, Upstream, UpstreamId};
use net::drain::DrainPhase;
use protocol::json::Scratch;
use protocol::version::{Era, Eras, MODERN};

/// Questions open at once. Servers that never answer keep their places for seconds: they leave some to others.
const CONCURRENT_MAX: usize = 256;
/// The time that a process which has read `server/discover` may take to answer before it is asked to `initialize` as well.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(5);
/// So often a program that was known, and does not answer now, is asked in vain for the modern era before it is asked to
/// `initialize`: a program of both eras keeps the one in which it is asked first.
const DOUBTED_QUESTIONS: u32 = 3;
/// How long the start waits for the names of hosts.
const FIRST_LOOKUPS_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that the end waits for sessions to be closed.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(250);

pub(crate) struct Prober {
    state: Arc<State>,
    asking: Rc<ProbeContext>,
    entries: HashMap<UpstreamId, UpstreamSchedule>,
    /// What was due at the last look, the longest due first.
    due: VecDeque<(UpstreamId, Era)>,
    /// The same of programs, of which the start queue says how many are asked at once.
    due_programs: VecDeque<(UpstreamId, Era)>,
    endpoints: Endpoints,
    memory: Memory,
    checks: Checks,
    names: NameLookups,
    followed: Arc<Snapshot>,
}

struct ProbeContext {
    state: Arc<State>,
    client: UpstreamClient,
    scratch: RefCell<Scratch>,
    budget: Arc<Shares>,
}

/// One upstream; each era that is asked for has its schedule.
struct UpstreamSchedule {
    upstream: Arc<Upstream>,
    modern: Option<Schedule>,
    legacy: Option<Schedule>,
    /// The moment at which an answer was taken in last.
    heard: Option<Instant>,
    /// It is a program that was known in one era, did not answer in it, and has not said since what it speaks.
    is_in_doubt: bool,
}

type ProbeResult = (UpstreamId, Era, EraFinding);

impl std::fmt::Debug for Prober {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prober").finish_non_exhaustive()
    }
}

impl Prober {
    /// Publishes what was kept in `directory`, and says what every endpoint serves by it.
    pub(crate) fn new(state: Arc<State>, client: UpstreamClient, directory: Option<PathBuf>) -> Self {
        let snapshot = state.snapshot.load_full();
        let memory = Memory::open(directory, Arc::clone(&state.catalog.files));
        let budget = Arc::clone(&state.buffered);
        let asking =
            Rc::new(ProbeContext { state: Arc::clone(&state), client, scratch: RefCell::default(), budget });
        let mut prober = Self {
            state,
            asking,
            entries: HashMap::new(),
            due: VecDeque::new(),
            due_programs: VecDeque::new(),
            endpoints: Endpoints::default(),
            memory,
            checks: Checks::default(),
            names: NameLookups::new(names::by_system()),
            followed: Arc::clone(&snapshot),
        };
        prober.follow(&snapshot, clock::now());
        prober.endpoints.refresh(&snapshot);
        prober
    }

    /// Looks up the names of hosts before the first call.
    pub(crate) async fn resolve(&mut self) {
        let now = clock::now();
        self.names.follow(&self.followed, now);
        // Whatever is not found by then is looked up later.
        let _ = timeout(FIRST_LOOKUPS_TIMEOUT, self.names.look_up_all(now)).await;
    }

    /// Asks until it is to stop, and then closes its sessions and keeps what it knows.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut asked: FuturesUnordered<LocalBoxFuture<'static, ProbeResult>> = FuturesUnordered::new();
        let mut programs: FuturesUnordered<LocalBoxFuture<'static, ProbeResult>> = FuturesUnordered::new();
        let mut checked: FuturesUnordered<LocalBoxFuture<'static, CheckResult>> = FuturesUnordered::new();
        let mut interval = tokio::time::interval(TICK);
        // Where a round takes longer than a tick, those that were missed are not made up for.
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // With many upstreams a round takes long: whoever shares the thread goes on between two of them.
            tokio::task::yield_now().await;
            let (mut is_changed, mut is_tick) = (false, false);
            tokio::select! {
                () = stop.cancelled() => break,
                _ = interval.tick() => is_tick = true,
                Some(checked) = checked.next() => self.note_checked(checked),
                Some(found) = self.names.next() => self.names.take(found, clock::now()),
                // Each finding counts as soon as it is there: a slow upstream holds up nobody.
                Some((id, era, finding)) = asked.next() => is_changed = self.note(id, era, finding),
                Some((id, era, finding)) = programs.next() => is_changed = self.note(id, era, finding),
            }
            let now = clock::now();
            let snapshot = self.state.snapshot.load_full();
            if !Arc::ptr_eq(&self.followed, &snapshot) {
                self.follow(&snapshot, now);
                self.followed = Arc::clone(&snapshot);
                (is_changed, is_tick) = (true, true);
            }
            if is_tick {
                is_changed |= self.look(&snapshot, now);
            }
            while asked.len() < CONCURRENT_MAX
                && let Some((upstream, era)) = begin(&mut self.due, &mut self.entries, now)
            {
                asked.push(Rc::clone(&self.asking).find(upstream, era, Arc::clone(&snapshot)));
            }
            while let Some((upstream, era)) = begin(&mut self.due_programs, &mut self.entries, now) {
                programs.push(Rc::clone(&self.asking).find(upstream, era, Arc::clone(&snapshot)));
            }
            while checked.len() < CONCURRENT_MAX
                && let Some(check) = self.checks.begin(now)
            {
                checked.push(check.ask(Rc::clone(&self.asking), Arc::clone(&snapshot)));
            }
            self.names.begin(now);
            if is_changed {
                self.endpoints.refresh(&snapshot);
                self.memory.change();
            }
            self.memory.save_if_due(&snapshot, &self.asking.client.tasks, now);
        }
        let Self { state, asking, mut checks, memory, .. } = self;
        let (client, snapshot) = (&asking.client, state.snapshot.load_full());
        let leave = async {
            // Questions that are open hold their sessions, and one that is not answered holds up those of no other.
            let mut closing = FuturesUnordered::new();
            closing.push(client.close_all(checks.leave()));
            loop {
                tokio::select! {
                    Some(answered) = checked.next() => {
                        checks.note(answered, clock::now());
                        closing.push(client.close_all(checks.leave()));
                    }
                    Some(()) = closing.next() => {}
                    else => break,
                }
            }
        };
        // Whatever is not closed by then is forgotten by its server.
        let leave = timeout(LEAVE_TIMEOUT, leave);
        let _ = tokio::join!(leave, memory.finish(&snapshot, &client.tasks));
    }

    /// Looks at every upstream: what is due is asked in this order as others answer. True if less is known than before.
    fn look(&mut self, snapshot: &Arc<Snapshot>, now: Instant) -> bool {
        self.asking.client.pools.sweep(now);
        self.asking.client.close_sessions(self.checks.follow(snapshot, now));
        self.checks.look(now);
        let silent = self.entries.values_mut().filter_map(|entry| entry.follow_silence(now));
        let silent: Vec<Arc<Upstream>> = silent.collect();
        for upstream in &silent {
            self.show(upstream);
        }
        let mut due = Vec::new();
        for (id, entry) in &mut self.entries {
            due.extend(entry.due(now).map(|(at, era)| (at, *id, era)));
        }
        due.sort_unstable_by_key(|(at, id, era)| (*at, id.slot, *era == Era::Legacy));
        let is_program =
            |id: &UpstreamId| self.entries.get(id).is_some_and(|entry| entry.upstream.is_child());
        let due = due.into_iter().map(|(_, id, era)| (id, era));
        (self.due_programs, self.due) = due.partition(|(id, _)| is_program(id));
        !silent.is_empty()
    }

    fn note_checked(&mut self, checked: CheckResult) {
        if let Some((upstream, is_fit)) = self.checks.note(checked, clock::now()) {
            let series = &upstream.series.health_checks;
            if is_fit { series.ok.inc() } else { series.error.inc() }
        }
    }

    /// Takes up the upstreams of the snapshot and drops those that are gone.
    fn follow(&mut self, snapshot: &Snapshot, now: Instant) {
        self.names.follow(snapshot, now);
        let living: HashMap<UpstreamId, &Arc<Upstream>> =
            snapshot.upstreams.iter().map(|upstream| (upstream.id, upstream)).collect();
        let metrics = &self.state.metrics;
        let mut gone = Vec::new();
        self.entries.retain(|id, entry| {
            let name = &entry.upstream.config.name;
            let lives = living.contains_key(id);
            if !lives && snapshot.upstreams.iter().all(|upstream| upstream.config.name != *name) {
                for era in Era::ALL {
                    // It has a series, or never had one.
                    let _ = metrics.replicas.eras.remove_label_values(&[name, era.label()]);
                }
            }
            if !lives {
                gone.push(Arc::clone(&entry.upstream));
            }
            lives
        });
        for gone in gone {
            // With other settings it is the same server, whose sessions go on.
            if snapshot.upstreams.iter().all(|upstream| upstream.session_key != gone.session_key) {
                close_own_sessions(&self.asking.client, &self.state.sessions, &gone);
            }
        }
        for (id, upstream) in living {
            if self.entries.contains_key(&id) {
                continue;
            }
            if let Some(known) = starting_point(upstream, &self.memory) {
                if let Some(children) = upstream.children().filter(|children| children.are_lazy())
                    && !known.eras().is_empty()
                {
                    // It may serve before it is asked again.
                    children.note_introduced();
                }
                upstream.facts.publish(known);
                if let Some(streams) = upstream.sse().filter(|_| self.memory.speaks_sse(&upstream.config)) {
                    streams.learn(true);
                }
            }
            self.show(upstream);
            self.entries.insert(id, UpstreamSchedule::new(upstream, now));
        }
        let living: Vec<UpstreamId> = self.entries.keys().copied().collect();
        self.asking.client.pools.retain(&living);
    }

    /// Takes in an answer. True if anything is known better than before.
    fn note(&mut self, id: UpstreamId, era: Era, finding: EraFinding) -> bool {
        let Self { state, entries, due, due_programs, .. } = self;
        // The end of the gateway ends those that start, which says nothing of them.
        if state.drain.has_reached(DrainPhase::Closing) && matches!(finding, EraFinding::Unknown { .. }) {
            return false;
        }
        // It may have been removed while it was asked.
        let Some(entry) = entries.get_mut(&id).filter(|entry| !entry.upstream.facts.is_over()) else {
            return false;
        };
        let upstream = Arc::clone(&entry.upstream);
        let name = &upstream.config.name;
        state.metrics.replicas.probes.with_label_values(&[name, finding.label(era)]).inc();
        let before = EraFacts::clone(&upstream.facts.known());
        let now = clock::now();
        let Some(mut known) = entry.learn(era, finding, &before, now) else { return false };
        // A process that waited for this answer is asked the other question at once.
        if era == Era::Modern {
            let due = if upstream.is_child() { due_programs } else { due };
            due.extend(entry.due(now).map(|(_, era)| (id, era)));
        }
        known.was_tried |= entry.was_tried();
        let is_changed = known != before;
        if is_changed {
            upstream.facts.publish(known.clone());
        }
        if era == Era::Modern {
            upstream.facts.note_asked_modern();
        }
        if !is_changed {
            return false;
        }
        // Clients are told of lists that nobody asked for until now.
        for changed in newly_declared(&before, &known, self.followed.limits.json_depth_max) {
            self.state.hub.list_doubted(&upstream, changed);
        }
        if known.was_tried && (!before.was_tried || versions(&before) != versions(&known)) {
            tell(&upstream, &known);
        }
        self.show(&upstream);
        true
    }

    fn show(&self, upstream: &Upstream) {
        let eras = upstream.config.eras.unwrap_or_else(|| upstream.facts.known().eras());
        for era in Era::ALL {
            let labels = [upstream.config.name.as_str(), era.label()];
            self.state.metrics.replicas.eras.with_label_values(&labels).set(eras.contains(era).into());
        }
    }
}

impl ProbeContext {
    fn asker<'a>(&'a self, snapshot: &'a Snapshot, aim: ReplicaSelection) -> Asker<'a> {
        Asker {
            client: &self.client,
            scratch: &self.scratch,
            limits: &snapshot.limits,
            budget: &self.budget,
            payer: Payer::GATEWAY,
            aim,
        }
    }

    fn find(
        self: Rc<Self>,
        upstream: Arc<Upstream>,
        era: Era,
        snapshot: Arc<Snapshot>,
    ) -> LocalBoxFuture<'static, ProbeResult> {
        async move {
            // Fit or not: what it is may be what makes it fit.
            let asker = self.asker(&snapshot, ReplicaSelection::Probe);
            let finding = if upstream.is_child() {
                program::find(&asker, &self.state.sessions, &upstream, era).await
            } else {
                ask::find(&asker, &upstream, era).await
            };
            (upstream.id, era, finding)
        }
        .boxed_local()
    }
}

impl UpstreamSchedule {
    /// What is known by what was found of an era beside `before`, and when it is asked about again.
    fn learn(&mut self, era: Era, finding: EraFinding, before: &EraFacts, now: Instant) -> Option<EraFacts> {
        let mut known = before.clone();
        self.heard = Some(now);
        let (is_fixed, is_quiet) = (self.upstream.config.eras.is_some(), self.failures() > 0);
        let (upstream, name) = (Arc::clone(&self.upstream), self.upstream.config.name.clone());
        let facts = &upstream.facts;
        let speaks_other = matches!(before.of(era.other()), Fact::Present(_));
        self.is_in_doubt &= !matches!(finding, EraFinding::Speaks { .. });
        let schedule = self.schedule(era)?;
        match finding {
            EraFinding::Speaks { introduction, fresh_for } => {
                facts.fault.is_good();
                facts.denials.iter().for_each(LastFault::is_good);
                if let Some(children) = upstream.children() {
                    children.note_introduced();
                }
                if let [only] = upstream.replicas.load().as_slice() {
                    only.faults.is_good();
                }
                *known.of_mut(era) = Fact::Present(Arc::new(introduction));
                schedule.settle(now, fresh_for, before.of(era) != known.of(era));
            }
            // What the operator fixed is not denied by an answer, and what was known not by one answer.
            EraFinding::Lacks { fault } if !is_fixed && schedule.believes_denial(before.of(era)) => {
                *known.of_mut(era) = Fact::Absent;
                facts.denials[usize::from(era == Era::Modern)].note(fault, 0, true);
                if speaks_other {
                    schedule.settle(now, Duration::ZERO, before.of(era) != known.of(era));
                } else {
                    schedule.fail(now);
                }
            }
            EraFinding::Lacks { fault } => {
                facts.denials[usize::from(era == Era::Modern)].note(fault, 0, true);
                schedule.deny(now);
            }
            EraFinding::Unknown { fault } => {
                schedule.fail(now);
                let why = fault.to_string();
                facts.fault.note(fault, 0, !speaks_other);
                if !is_quiet {
                    let (upstream, era) = (name, era.label());
                    tracing::warn!(upstream, era, why, "cannot learn whether this upstream speaks an era");
                }
            }
        }
        schedule.note_tried();
        self.follow_era(&known, now);
        Some(known)
    }

    fn new(upstream: &Arc<Upstream>, now: Instant) -> Self {
        let fixed = upstream.config.eras;
        let is_asked = |era| match (fixed, era) {
            (None, _) => true,
            // The era is sure, but `initialize` must be answered from what the upstream says there.
            (Some(eras), Era::Legacy) => eras.legacy,
            (Some(_), Era::Modern) => false,
        };
        let schedule = |era| is_asked(era).then(|| Schedule::new(now));
        let (modern, legacy) = (schedule(Era::Modern), schedule(Era::Legacy));
        let mut new =
            Self { upstream: Arc::clone(upstream), modern, legacy, heard: None, is_in_doubt: false };
        new.follow_era(&upstream.facts.known(), now);
        new
    }

    /// A program that speaks one era is not asked about the other.
    fn follow_era(&mut self, known: &EraFacts, now: Instant) {
        if !program::is_of_one_era(&self.upstream) {
            return;
        }
        let asked = program::asked(known);
        for (schedule, era) in [(&mut self.modern, Era::Modern), (&mut self.legacy, Era::Legacy)] {
            if !asked.contains(era) {
                *schedule = None;
            } else if schedule.is_none() {
                *schedule = Some(Schedule::new(now));
            }
        }
    }

    /// A program that does not answer in the era in which it is known, be it that it ends, is asked as a new one: it may be
    /// another by now. Nothing of it serves, so that nobody loses anything. Returns it if that is so.
    fn follow_silence(&mut self, now: Instant) -> Option<Arc<Upstream>> {
        let is_asked = [&self.modern, &self.legacy].into_iter().flatten().any(|asked| asked.due().is_none());
        if is_asked || !program::is_silent(&self.upstream) {
            return None;
        }
        let upstream = Arc::clone(&self.upstream);
        tracing::warn!(
            upstream = upstream.config.name,
            "its process has read the first message and never answered: it is asked anew what it speaks"
        );
        if let Some(children) = upstream.children() {
            children.forget_introduction();
        }
        upstream.facts.publish(EraFacts::default());
        *self = Self { is_in_doubt: true, ..Self::new(&upstream, now) };
        Some(upstream)
    }

    /// That it is modern may be sure, but what it says there matters as soon as a legacy client comes.
    fn follow_wish(&mut self, now: Instant) {
        let is_fixed = self.upstream.config.eras.is_some_and(|eras| eras == Eras::only(Era::Modern));
        if is_fixed && self.modern.is_none() && self.upstream.facts.is_introduction_wanted() {
            self.modern = Some(Schedule::new(now));
        }
    }

    /// The eras that it is to be asked about now, and since when.
    fn due(&mut self, now: Instant) -> impl Iterator<Item = (Instant, Era)> {
        self.follow_wish(now);
        // A program that rests is asked once a call has started it.
        let rests = self.upstream.rests_but_for_calls();
        let is_doubted = !rests && self.upstream.facts.take_doubt();
        let is_awaited = self.awaits_modern(now);
        // A program is asked to initialize in peace: it may die of the other question.
        let is_initializing = !is_awaited
            && self.upstream.is_child()
            && self.legacy.as_ref().is_some_and(|legacy| legacy.due().is_none_or(|at| at <= now));
        let was_told = program::was_told(&self.upstream);
        let is_doubted = is_doubted || program::has_come_up(&self.upstream, self.heard);
        Era::ALL.into_iter().filter_map(move |era| {
            let is_held_up = if era == Era::Modern { is_initializing } else { is_awaited };
            let was_told = was_told && era == Era::Legacy;
            let schedule = self.schedule(era).filter(|_| !is_held_up && (!rests || was_told))?;
            if was_told {
                schedule.hasten(now);
            } else if is_doubted {
                schedule.doubt(now);
            }
            schedule.due().filter(|at| *at <= now).map(|at| (at, era))
        })
    }

    fn schedule(&mut self, era: Era) -> Option<&mut Schedule> {
        match era {
            Era::Modern => self.modern.as_mut(),
            Era::Legacy => self.legacy.as_mut(),
        }
    }

    /// A process is asked to `initialize` after `server/discover` was answered, or was read and not answered for a while:
    /// the same one is asked both.
    fn awaits_modern(&self, now: Instant) -> bool {
        let silent_since = self.upstream.starts().and_then(|starts| starts.silent_since());
        let is_silent =
            |asked: Instant| silent_since.is_some_and(|since| now >= asked.max(since) + DISCOVER_PATIENCE);
        let was_denied = || self.upstream.facts.known().modern == Fact::Absent;
        let has_failed = |modern: &Schedule| {
            modern.was_tried()
                && (!self.is_in_doubt || was_denied() || modern.failures() >= DOUBTED_QUESTIONS)
        };
        let awaits =
            |modern: &Schedule| !has_failed(modern) && modern.asked().is_none_or(|asked| !is_silent(asked));
        self.upstream.is_child() && self.modern.as_ref().is_some_and(awaits)
    }

    fn was_tried(&self) -> bool {
        [&self.modern, &self.legacy].into_iter().flatten().all(Schedule::was_tried)
    }

    fn failures(&self) -> u32 {
        [&self.modern, &self.legacy].into_iter().flatten().map(Schedule::failures).sum()
    }
}

/// Begins with what was due first, if anything is left.
fn begin(
    due: &mut VecDeque<(UpstreamId, Era)>,
    entries: &mut HashMap<UpstreamId, UpstreamSchedule>,
    now: Instant,
) -> Option<(Arc<Upstream>, Era)> {
    while let Some((id, era)) = due.pop_front() {
        // It may have been asked since, or be gone.
        let Some(entry) = entries.get_mut(&id) else { continue };
        if let Some(schedule) = entry.schedule(era).filter(|schedule| schedule.is_due(now)) {
            schedule.begin(now);
            return Some((Arc::clone(&entry.upstream), era));
        }
    }
    None
}

/// What is known of an upstream before it is asked, where that is more than nothing.
fn starting_point(upstream: &Upstream, memory: &Memory) -> Option<EraFacts> {
    let carried = EraFacts::clone(&upstream.facts.known());
    if carried != EraFacts::default() {
        return Some(carried);
    }
    let kept = memory.of(&upstream.config);
    let kept = if program::is_of_one_era(upstream) { kept.map(program::in_one_era) } else { kept };
    let Some(fixed) = upstream.config.eras else { return kept };
    let mut known = kept.unwrap_or_default();
    if !fixed.modern {
        known.modern = Fact::Absent;
    } else if !matches!(known.modern, Fact::Present(_)) {
        let introduction = EraIntroduction { version: MODERN[0].into(), result: EMPTY.into() };
        known.modern = Fact::Present(Arc::new(introduction));
    }
    if !fixed.legacy {
        known.legacy = Fact::Absent;
    } else if known.legacy == Fact::Absent {
        known.legacy = Fact::Unknown;
    }
    // Where it is not asked, nobody need wait.
    known.was_tried |= !fixed.legacy;
    Some(known)
}

fn versions(known: &EraFacts) -> [Option<&str>; 2] {
    [&known.modern, &known.legacy].map(|fact| fact.introduction().map(|introduction| &*introduction.version))
}

fn tell(upstream: &Upstream, known: &EraFacts) {
    let (is_child, fault) = (upstream.is_child(), upstream.facts.denials.iter().find_map(LastFault::latest));
    let upstream = upstream.config.name.as_str();
    match (known.eras(), versions(known)) {
        (Eras { modern: false, legacy: false }, _) => {
            if !matches!((&known.modern, &known.legacy), (Fact::Unknown, _) | (_, Fact::Unknown)) {
                let why = fault.as_ref().map(|noted| noted.fault.to_string());
                match fault.as_ref().map(|noted| &noted.fault) {
                    // An error of JSON-RPC comes from a server of MCP.
                    Some(fault) if fault.is_era_refused() => {
                        tracing::warn!(upstream, why, "upstream speaks neither era");
                    }
                    Some(Fault::Refused { .. } | Fault::Revision(_)) => {
                        tracing::warn!(upstream, why, "upstream opens no session");
                    }
                    _ if is_child => {
                        tracing::warn!(upstream, why, "upstream speaks neither era: is it an MCP server?");
                    }
                    _ => tracing::warn!(
                        upstream,
                        why,
                        "upstream speaks neither era: is its URL that of an MCP server?"
                    ),
                }
            }
        }
        (eras, [modern, legacy]) => {
            tracing::info!(upstream, modern, legacy, "upstream speaks {eras}");
        }
    }
}
