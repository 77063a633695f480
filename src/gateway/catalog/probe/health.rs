//! Whether the replicas of upstreams are fit, off the way of calls: each is asked at intervals, and sooner when calls to
//! it wait and none is answered. One that gets no calls is asked when its time is over, and gets calls again by its
//! answers.
//!
//! A modern server is asked `server/discover`, a legacy one `ping` in a session of the gateway's own, one of HTTP+SSE
//! whether it takes a connection. Whatever answers is fit, but for errors of servers in HTTP. While calls to a replica
//! are answered, no question makes it unfit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use memchr::memmem;
use tokio::time::timeout_at;

use super::ProbeContext;
use super::ask::{discover_question, of_no_message};
use crate::clock;
use crate::snapshot::Snapshot;
use crate::upstream::ask::{AskReply, AskRequest, Asker};
use crate::upstream::closing::LeftSession;
use crate::upstream::fault::Fault;
use crate::upstream::health::breaker::BreakerState;
use crate::upstream::health::clock_ms;
use crate::upstream::initialize::{self, InitializeError, InitializeOffer, InitializedSession};
use crate::upstream::{Replica, ReplicaKey, ReplicaSelection, Upstream, UpstreamId};
use net::jitter::jittered;
use protocol::error::UpstreamError;
use protocol::version::{Eras, LegacyVersion};

/// Pause after a question whose answer has to be confirmed.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(500);
/// How long calls may wait before their replica is asked.
const STALL_MAX: Duration = Duration::from_secs(1);
/// Questions of stalled calls come at most so often, as a part of the interval.
const STALL_PART: u32 = 4;
const PING_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A replica among those of all upstreams.
type ReplicaAddress = (UpstreamId, ReplicaKey);

#[derive(Default)]
pub(super) struct Checks {
    entries: HashMap<ReplicaAddress, ReplicaSchedule>,
    /// What was due at the last look, those first that were not asked for longest.
    due: VecDeque<ReplicaAddress>,
    /// Sessions of replicas that were removed while they were asked.
    left: Vec<LeftSession>,
    #[cfg(test)]
    looked_at: usize,
}

struct ReplicaSchedule {
    upstream: Arc<Upstream>,
    replica: Arc<Replica>,
    /// When it is asked while it is fit.
    due: Instant,
    asked: Instant,
    is_asking: bool,
    /// Counted in a row: one of the other kind begins anew.
    failures: usize,
    /// Counted in a row: one of the other kind begins anew.
    answers: usize,
    /// Calls it had answered when that was last looked at, and since when there are calls and it is the same.
    stalled: (u64, Instant),
    session: Option<InitializedSession>,
}

pub(super) struct CheckResult {
    place: ReplicaAddress,
    verdict: ReplicaVerdict,
    upstream: Arc<Upstream>,
    session: Option<InitializedSession>,
    /// What was asked, which may have been renewed since.
    replica: Arc<Replica>,
    /// Calls it had answered before.
    answered_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaVerdict {
    Fit,
    Unfit,
    Unknown,
}

impl Checks {
    /// Takes up the replicas there are and drops those that are gone; gives the sessions that nobody needs any more.
    pub(super) fn follow(&mut self, snapshot: &Snapshot, now: Instant) -> Vec<LeftSession> {
        let mut living = HashSet::with_capacity(snapshot.upstreams.len());
        for upstream in &snapshot.upstreams {
            let interval = upstream.config.replicas.health.interval;
            if interval.is_zero() {
                continue;
            }
            living.insert(upstream.id);
            for replica in upstream.replicas.load().iter() {
                let entry = self.entries.entry((upstream.id, replica.key)).or_insert_with(|| {
                    ReplicaSchedule::new(upstream, replica, now + jittered(interval, 0.5..1.0), now)
                });
                // With the settings of now.
                entry.upstream = Arc::clone(upstream);
                if !Arc::ptr_eq(&entry.replica, replica) {
                    entry.renew(replica, now);
                }
            }
        }
        let mut left = std::mem::take(&mut self.left);
        self.entries.retain(|(id, _), entry| {
            let stays = living.contains(id) && !entry.replica.is_gone();
            if !stays && let Some(session) = entry.session.take() {
                left.extend(left_session(&entry.upstream, &session));
            }
            stays
        });
        left
    }

    /// Nothing is asked any more: gives all sessions.
    pub(super) fn leave(&mut self) -> Vec<LeftSession> {
        let mut left = std::mem::take(&mut self.left);
        left.extend(self.entries.values_mut().filter_map(|entry| {
            let session = entry.session.take()?;
            left_session(&entry.upstream, &session)
        }));
        left
    }

    /// Looks at every replica: what is due is asked in this order.
    pub(super) fn look(&mut self, now: Instant) {
        let mut due: Vec<(Instant, ReplicaAddress)> = Vec::new();
        for (place, entry) in &mut self.entries {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let is_stalled = entry.is_stalled(now);
            if !entry.is_asking && entry.is_due(is_stalled, now) {
                due.push((entry.asked, *place));
            }
        }
        due.sort_unstable_by_key(|(asked, _)| *asked);
        self.due = due.into_iter().map(|(_, place)| place).collect();
    }

    /// Begins to ask what was due first, if anything is left.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Check> {
        while let Some(place) = self.due.pop_front() {
            // It may be gone since.
            let Some(entry) = self.entries.get_mut(&place) else { continue };
            entry.is_asking = true;
            entry.asked = now;
            return Some(Check {
                place,
                upstream: Arc::clone(&entry.upstream),
                replica: Arc::clone(&entry.replica),
                session: entry.session.take(),
            });
        }
        None
    }

    /// Takes in an answer, or that there was none. True: the replica answered; `None`: it was not asked.
    pub(super) fn note(&mut self, checked: CheckResult, now: Instant) -> Option<(Arc<Upstream>, bool)> {
        let Some(entry) = self.entries.get_mut(&checked.place) else {
            // It was removed meanwhile.
            self.left.extend(checked.session.and_then(|session| left_session(&checked.upstream, &session)));
            return None;
        };
        entry.is_asking = false;
        // One that was gone for a moment may have been asked twice.
        let former = std::mem::replace(&mut entry.session, checked.session);
        self.left.extend(former.and_then(|session| left_session(&entry.upstream, &session)));
        let health = &entry.upstream.config.replicas.health;
        let is_open = entry.replica.breaker.0.state() == BreakerState::Open;
        let is_fit = match checked.verdict {
            ReplicaVerdict::Fit => true,
            // Calls know better than questions.
            ReplicaVerdict::Unfit
                if !is_open && checked.replica.load.answered() != checked.answered_before =>
            {
                true
            }
            ReplicaVerdict::Unfit => false,
            ReplicaVerdict::Unknown => {
                entry.due = now + CONFIRM_INTERVAL;
                return None;
            }
        };
        if is_fit {
            entry.failures = 0;
            entry.answers = entry.answers.saturating_add(1);
            if !is_open || entry.answers >= health.healthy_after {
                entry.replica.note_found(true);
            }
        } else {
            entry.answers = 0;
            entry.failures = entry.failures.saturating_add(1);
            if is_open || entry.failures >= health.unhealthy_after {
                entry.replica.note_found(false);
            }
        }
        let pause = if is_fit { health.interval } else { health.interval.min(CONFIRM_INTERVAL) };
        entry.due = now + jittered(pause, 0.9..1.1);
        Some((Arc::clone(&entry.upstream), is_fit))
    }
}

impl ReplicaSchedule {
    fn new(upstream: &Arc<Upstream>, replica: &Arc<Replica>, due: Instant, now: Instant) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            replica: Arc::clone(replica),
            due,
            asked: now,
            is_asking: false,
            failures: 0,
            answers: 0,
            stalled: (0, now),
            session: None,
        }
    }

    /// A reload made the replica anew: what was known of it is over.
    fn renew(&mut self, replica: &Arc<Replica>, now: Instant) {
        self.replica = Arc::clone(replica);
        (self.failures, self.answers, self.stalled) = (0, 0, (0, now));
    }

    fn is_due(&self, is_stalled: bool, now: Instant) -> bool {
        let breaker = &self.replica.breaker.0;
        if breaker.state() == BreakerState::Open {
            return clock_ms(now) >= breaker.until_ms() && now >= self.asked + CONFIRM_INTERVAL;
        }
        let interval = self.upstream.config.replicas.health.interval;
        now >= self.due || (is_stalled && now >= self.asked + interval / STALL_PART)
    }

    /// Whether calls wait for long and none is answered.
    fn is_stalled(&mut self, now: Instant) -> bool {
        let load = &self.replica.load;
        let answered = load.answered();
        if load.in_flight() == 0 || self.stalled.0 != answered {
            self.stalled = (answered, now);
        }
        now >= self.stalled.1 + STALL_MAX
    }
}

/// `None`: the server keeps none, or its replica has left the upstream, and nothing leads there any more.
fn left_session(upstream: &Arc<Upstream>, session: &InitializedSession) -> Option<LeftSession> {
    if session.replica.is_some_and(|replica| upstream.replicas.get(replica).is_none()) {
        return None;
    }
    LeftSession::new(Arc::clone(upstream), &session.named())
}

pub(super) struct Check {
    place: ReplicaAddress,
    upstream: Arc<Upstream>,
    replica: Arc<Replica>,
    session: Option<InitializedSession>,
}

impl Check {
    pub(super) fn ask(
        self,
        asking: std::rc::Rc<ProbeContext>,
        snapshot: Arc<Snapshot>,
    ) -> LocalBoxFuture<'static, CheckResult> {
        async move {
            let Self { place, upstream, replica, mut session } = self;
            let answered_before = replica.load.answered();
            let asker = asking.asker(&snapshot, ReplicaSelection::Question(replica.key));
            let deadline = clock::now() + upstream.config.replicas.health.timeout;
            let found = question(&asker, &upstream, &replica, &mut session, deadline);
            let timed_out = || Found::unfit(Fault::TimedOut(upstream.config.replicas.health.timeout));
            let found = timeout_at(deadline.into(), found).await.unwrap_or_else(|_| timed_out());
            let verdict = found.verdict;
            let doubted = session.take_if(|_| found.doubts_session);
            found.tell(&upstream, &replica);
            if let Some(doubted) = doubted {
                asking.client.close_sessions(left_session(&upstream, &doubted));
            }
            CheckResult { place, verdict, upstream, session, replica, answered_before }
        }
        .boxed_local()
    }
}

async fn question(
    asker: &Asker<'_>,
    upstream: &Upstream,
    replica: &Replica,
    session: &mut Option<InitializedSession>,
    deadline: Instant,
) -> Found {
    if upstream.sse().is_some_and(|streams| streams.is_spoken()) {
        return match replica.open().await {
            Ok(_) => {
                // More than that a connection comes about, it does not prove.
                replica.faults.note_connected();
                upstream.facts.fault.note_connected();
                Found { verdict: ReplicaVerdict::Fit, fault: None, is_good: false, doubts_session: false }
            }
            Err(error) => Found::unfit(Fault::of_connect(&error)),
        };
    }
    let is_legacy = matches!(upstream.eras(), Some(Eras { modern: false, legacy: true }));
    if !is_legacy {
        let answer = asker.ask(upstream, discover_question(asker, deadline)).await;
        let is_modern = upstream.eras().is_some_and(|eras| eras.modern);
        return judge(upstream, answer, is_modern);
    }
    let opened = match session {
        Some(opened) => opened,
        None => {
            match initialize::open(asker, upstream, InitializeOffer::own(LegacyVersion::NEWEST), deadline)
                .await
            {
                Ok(opened) => session.insert(opened),
                Err(InitializeError::Refused { status, fault, .. }) => {
                    let is_unfit = status.is_server_error();
                    let verdict = if is_unfit { ReplicaVerdict::Unfit } else { ReplicaVerdict::Fit };
                    let patience = upstream.config.replicas.health.timeout;
                    let fault = upstream.fault_of(&fault, patience);
                    return Found { verdict, fault: Some(fault), is_good: false, doubts_session: false };
                }
                Err(InitializeError::Upstream(error)) => return judge(upstream, Err(error), true),
            }
        }
    };
    let ping = AskRequest {
        headers: opened.named().to_map(),
        body: bytes::Bytes::from_static(br#"{"jsonrpc":"2.0","id":"trunkline-health","method":"ping"}"#),
        is_safe_to_repeat: true,
        replica: opened.replica,
        bytes_max: PING_ANSWER_BYTES_MAX,
        deadline,
    };
    let answer = asker.ask(upstream, ping).await;
    // It may have forgotten the session, or not; the next question opens another. Where the server would keep this one as well,
    // that would be one more with each question: any answer shows that it is fit.
    let doubts_session = answer.as_ref().is_ok_and(|answer| {
        let is_kept = upstream.facts.keeps_sessions() && answer.status != http::StatusCode::NOT_FOUND;
        answer.status.is_client_error() && !is_kept
    });
    Found { doubts_session, ..judge(upstream, answer, false) }
}

/// The result of a question.
struct Found {
    verdict: ReplicaVerdict,
    /// The fault of the server, fit or not.
    fault: Option<Fault>,
    /// It answered as a server of MCP does.
    is_good: bool,
    /// It refused to be asked in the session.
    doubts_session: bool,
}

impl Found {
    fn well(verdict: ReplicaVerdict) -> Self {
        Self { verdict, fault: None, is_good: true, doubts_session: false }
    }

    fn unfit(fault: Fault) -> Self {
        Self { verdict: ReplicaVerdict::Unfit, fault: Some(fault), is_good: false, doubts_session: false }
    }

    /// Keeps it for operators.
    fn tell(self, upstream: &Upstream, replica: &Replica) {
        match self.fault {
            Some(fault) => replica.note_found_fault(fault),
            None if self.is_good => {
                replica.faults.is_good();
                upstream.facts.fault.is_good();
            }
            None => {}
        }
    }
}

/// `is_known`: the method that was asked is one that the server has.
fn judge(upstream: &Upstream, answer: Result<AskReply, UpstreamError>, is_known: bool) -> Found {
    let fault = |fault: UpstreamError| upstream.fault_of(&fault, upstream.config.replicas.health.timeout);
    match answer {
        Ok(answer) => {
            let status = answer.status;
            let is_of_mcp = memmem::find(&answer.body, b"\"jsonrpc\"").is_some();
            let is_closed = matches!(status.as_u16(), 401 | 403 | 407 | 421) || status.is_redirection();
            // Of one that is not known yet, and of a session that is over, this says nothing.
            let is_in_doubt = status.is_client_error() && !is_known && !is_closed;
            if is_in_doubt || (is_of_mcp && !is_closed) {
                return Found {
                    verdict: ReplicaVerdict::Fit,
                    fault: None,
                    is_good: is_of_mcp,
                    doubts_session: false,
                };
            }
            let is_unfit = status.is_server_error() && status != http::StatusCode::SERVICE_UNAVAILABLE;
            let verdict = if is_unfit { ReplicaVerdict::Unfit } else { ReplicaVerdict::Fit };
            Found { verdict, fault: Some(of_no_message(&answer)), is_good: false, doubts_session: false }
        }
        Err(error) if error.is_too_large() => Found::well(ReplicaVerdict::Fit),
        // The fault is ours, or that of whoever gives us tokens.
        Err(error @ (UpstreamError::TooManyConnections | UpstreamError::NoToken)) => {
            let fault = (error == UpstreamError::NoToken).then(|| fault(error));
            Found { verdict: ReplicaVerdict::Unknown, fault, is_good: false, doubts_session: false }
        }
        Err(error) => Found::unfit(fault(error)),
    }
}

#[cfg(test)]
mod tests;
