//! Upstreams that are child processes, speaking one message a line over standard input and output.
//!
//! A process for requests of the modern era serves one principal, and the gateway's own questions have one of their
//! own, unless the operator lets all share one (`shared`). A session of the legacy era has a process for itself, unless
//! the operator lets sessions share one. A process that is found not to be modern is the next that the gateway itself
//! initializes: it is asked both on the same one.
//!
//! Invariants: no more processes run, and start at once, than allowed, of one upstream and of all; a start goes on whoever
//! gives up ([`launch`]); an upstream that does not start is not started all the time; what one child does is seen by its
//! own callers alone.

mod deaf;
mod ends;
mod latest_lines;
pub(crate) mod launch;
pub(crate) mod launchers;
mod modern;
mod npx;
mod opening;
mod output;
mod own_initialize;
mod process;
mod processes;
pub(crate) mod program;
mod recent_ends;
pub(crate) mod room;
mod session_start;
mod shared;
mod standard_error;
pub(crate) mod start_queue;
mod starts;
mod trial;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::latest_lines::Lines;
use self::opening::SessionOpening;
use self::process::RunningChild;
use self::processes::{ModernChild, ModernOutcome, OwnIntroductions, SessionOutcome, UnclaimedStarts};
use self::recent_ends::RecentEnds;
use self::shared::{SharedChildren, SharedOutcome};
use self::start_queue::StartPlace;
use self::starts::{Starts, VainStart};
use crate::access::limit::fair::Resting;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{Share, Shares, is_scarce};
use crate::clock;
use crate::flight::Flights;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::families::ChildSeries;
use crate::upstream::exchange::Reply;
use crate::upstream::fault::{Fault, LastFault};
use crate::upstream::masking::{masked, plain, told};
use crate::upstream::mux::exchange::{Connect, ConnectRequest, MuxPost, pass};
use crate::upstream::mux::host::Host;
use crate::upstream::mux::sessions::{MuxSessions, SessionHandle};
use crate::upstream::mux::state_owner::{StateKeys, StateOwner};
use crate::upstream::mux::{GatewayUse, MuxConnection};
use crate::upstream::start_state::{Start, StartWatch};
use crate::upstream::throttle::LogPace;
use config::{self, CommandConfig, Isolation};
use net::jitter;
use net::secret::Secret;
use protocol::error::{UpstreamError, without_secrets};
use protocol::method::Method;
use protocol::text::one_line;
use protocol::version::Era;

/// The number of characters of a child's line that are logged, at most.
const LOGGED_CHARS_MAX: usize = 1024;
/// One that lives for so long after its first answer does not end by starting.
const SETTLING_TIME: Duration = Duration::from_secs(10);
/// One that lives for so long has not ended at a question, though it was not asked it: the longest pause is over.
const OUTLIVING_TIME: Duration = Duration::from_mins(3);
/// If fewer may run, all are for clients.
const FEW: usize = 32;
/// Then one of the gateway's own that has done nothing but initialize waits for so long for what it may be for.
const UNLISTED_TIME_MAX: Duration = Duration::from_secs(5);
/// The pause between two looks whether one lives on that was asked what others ended at.
const LIVING_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Children {
    name: String,
    command: CommandConfig,
    /// Variables of its environment.
    secrets: Vec<(String, Secret)>,
    response_timeout: Duration,
    series: ChildSeries,
    sessions: MuxSessions,
    /// Those that are up, by caller.
    modern: Mutex<HashMap<Box<[u8]>, ModernChild>>,
    modern_starts: Arc<Flights<Box<[u8]>, ModernOutcome>>,
    /// The gateway's own that has been asked how it introduces itself, and has not answered.
    introducing: Mutex<Option<MuxConnection>>,
    /// Held by the start of a process that has no caller of its own: of one that is to initialize until it did, of another
    /// until it is [`introducing`](Self::introducing) itself and may be asked to initialize as well.
    common_start: tokio::sync::Mutex<()>,
    session_starts: Arc<Flights<u64, SessionOutcome>>,
    opening: SessionOpening,
    introductions: OwnIntroductions,
    unclaimed: UnclaimedStarts,
    next_start: AtomicU64,
    shared: SharedChildren,
    shared_starts: Arc<Flights<Box<[u8]>, SharedOutcome>>,
    /// Seals the states of those who share a process.
    state_keys: OnceLock<Arc<StateKeys>>,
    /// Its place among those that wait for their turn to start.
    start_place: StartPlace,
    starts: Mutex<Starts>,
    start_watch: Arc<StartWatch>,
    paces: Mutex<LogPaces>,
    running: Arc<Shares>,
    /// The number of those that have answered.
    serving: Arc<AtomicUsize>,
    /// Why the last of them ended, or was not started.
    fault: LastFault,
    /// The last lines of standard error of the one that ended unasked last.
    last_lines: Mutex<Lines>,
    /// Those that ended unasked though they had been of use.
    recent_ends: Mutex<RecentEnds>,
    /// Since when they end before they are of use, in seconds since 1970; 0: they do not.
    loop_since_s: AtomicU64,
    /// The program has said what it speaks, now or before a restart, or nobody asks. Until then an answer may be the refusal
    /// of another era.
    is_introduced: AtomicBool,
    /// The gateway's own is to be asked for lists, and makes room for those of clients.
    is_listed: bool,
    retired: CancellationToken,
}

/// One that has answered.
#[derive(Debug)]
struct Serving(Arc<AtomicUsize>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How often its lines are logged.
#[derive(Debug, Default)]
struct LogPaces {
    stderr: LogPace,
    garbage: LogPace,
    ends: LogPace,
}

impl Children {
    pub(crate) fn new(
        upstream: &config::UpstreamConfig,
        command: &CommandConfig,
        secrets: Vec<(String, Secret)>,
        order: usize,
        metrics: &Metrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: upstream.name.clone(),
            command: command.clone(),
            secrets,
            response_timeout: upstream.response_timeout,
            series: metrics.children.of(&upstream.name),
            sessions: MuxSessions::default(),
            modern: Mutex::default(),
            modern_starts: Arc::default(),
            introducing: Mutex::default(),
            common_start: tokio::sync::Mutex::default(),
            session_starts: Arc::default(),
            opening: SessionOpening::default(),
            introductions: OwnIntroductions::default(),
            unclaimed: UnclaimedStarts::default(),
            next_start: AtomicU64::new(0),
            shared: SharedChildren::default(),
            shared_starts: Arc::default(),
            start_place: StartPlace::new(order),
            state_keys: OnceLock::new(),
            starts: Mutex::default(),
            start_watch: Arc::default(),
            paces: Mutex::default(),
            running: Shares::new(command.children_max),
            serving: Arc::default(),
            fault: LastFault::default(),
            last_lines: Mutex::default(),
            recent_ends: Mutex::default(),
            loop_since_s: AtomicU64::new(0),
            is_introduced: AtomicBool::new(upstream.eras.is_some()),
            is_listed: upstream.eras.is_none(),
            retired: CancellationToken::new(),
        })
    }

    /// Since when they end before they are of use, again and again, in seconds since 1970.
    pub(crate) fn crash_loop_since_s(&self) -> Option<u64> {
        Some(self.loop_since_s.load(Ordering::Relaxed)).filter(|since_s| *since_s > 0)
    }

    /// True while the last one came to nothing before it answered anything.
    pub(crate) fn does_not_start(&self) -> bool {
        self.starts.lock().is_silent()
    }

    /// The era in which the gateway asked the last process that read the question and never answered it, while none serves.
    pub(crate) fn silent_in(&self) -> Option<Era> {
        self.starts.lock().silent_in().filter(|_| self.serving.load(Ordering::Relaxed) == 0)
    }

    /// It is found out anew what the program speaks: it may be another by now.
    pub(crate) fn forget_introduction(&self) {
        self.is_introduced.store(false, Ordering::Relaxed);
        self.opening.forget();
        let _ = self.introductions.take();
        self.starts.lock().forget_silence();
    }

    /// The question of the gateway's own at which they end again and again, though they start.
    pub(crate) fn ends_at(&self) -> Option<Method> {
        self.starts.lock().ends_at()
    }

    /// The number of those that have answered; none while each ends soon after that.
    pub(crate) fn serving(&self) -> usize {
        let is_in_doubt = !self.is_introduced.load(Ordering::Relaxed) || self.starts.lock().is_in_doubt();
        if is_in_doubt { 0 } else { self.serving.load(Ordering::Relaxed) }
    }

    /// Why the last of them ended unasked, or was not started.
    pub(crate) fn fault(&self) -> &LastFault {
        &self.fault
    }

    /// The last lines of standard error before one ended unasked, as they may be shown.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.last_lines.lock().iter().map(|line| told(&self.logged(line)).into()).collect()
    }

    /// The number of those that ended unasked within the last hour, though they had been of use.
    pub(crate) fn ended_last_hour(&self) -> u64 {
        self.recent_ends.lock().count(clock::now())
    }

    pub(crate) fn series(&self) -> &ChildSeries {
        &self.series
    }

    /// The number of calls and lists that wait for a process.
    pub(crate) fn wanted(&self) -> &Arc<AtomicUsize> {
        &self.start_place.wanted
    }

    /// Those that were not taken in yet.
    pub(crate) fn introductions(&self) -> &OwnIntroductions {
        &self.introductions
    }

    /// How far its processes are.
    pub(crate) fn start_watch(&self) -> &Arc<StartWatch> {
        &self.start_watch
    }

    /// The upstream is no longer configured: no child is started any more, and those that run end.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    /// Whether as many run as may, but for those who have little.
    pub(crate) fn is_full(&self) -> bool {
        is_scarce(self.command.children_max, self.running.taken() + 1)
    }

    /// Whether each session has one for itself.
    pub(crate) fn is_for_one_session(&self) -> bool {
        self.command.isolation == Isolation::Session
    }

    /// How many of them this payer is charged for.
    pub(crate) fn held_by(&self, payer: Payer) -> usize {
        self.running.held_by(payer)
    }

    /// Those that nobody uses, and no session.
    pub(crate) fn resting(&self) -> Vec<Resting<MuxConnection>> {
        let mut resting = self.shared.resting(self.response_timeout);
        for ModernChild { connection, payer } in self.modern.lock().values() {
            let since = connection.quiet_since(self.response_timeout).filter(|_| !connection.is_over());
            resting.extend(since.map(|since| Resting { key: connection.clone(), payer: *payer, since }));
        }
        resting
    }

    /// Ends one that makes room. False: somebody uses it by now.
    pub(crate) fn end_resting(&self, connection: &MuxConnection) -> bool {
        connection.close_if_quiet(self.response_timeout)
    }

    /// Ends the process of a session that makes room.
    pub(crate) fn end_session(&self, session: &HeaderValue) {
        if let Some(handle) = self.sessions.remove(session) {
            handle.connection.close();
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether all sessions share one.
    pub(crate) fn is_for_all(&self) -> bool {
        self.command.isolation == Isolation::Shared
    }

    /// Whether there is any session.
    pub(crate) fn has_sessions(&self) -> bool {
        self.sessions.has_any()
    }

    /// True if the process of this session runs.
    pub(crate) fn carries(&self, session: &HeaderValue) -> bool {
        self.sessions.get(session).is_some()
    }

    /// Since when nothing is under way in a session. `None`: something is, or there is no such session.
    pub(crate) fn quiet_since(&self, session: &HeaderValue) -> Option<Instant> {
        self.sessions.get(session)?.connection.quiet_since(self.response_timeout)
    }

    /// True if they start with the first call, once their lists are known.
    pub(crate) fn are_lazy(&self) -> bool {
        self.command.lazy
    }

    /// The weight of hearing of changes of lists, which keeps one or does not.
    fn use_by_gateway(&self) -> GatewayUse {
        if self.command.lazy { GatewayUse::Ignored } else { GatewayUse::Counts }
    }

    /// The time after which a process ends that nobody uses.
    fn idle_timeout(&self, host: &Host, connection: &MuxConnection) -> Duration {
        let is_spare = || {
            // Of those of all upstreams, others may need the place.
            let is_needed =
                host.shared.children.max() < FEW || !self.is_listed && self.command.children_max < FEW;
            is_needed && connection.is_only_initialized()
        };
        let max = if is_spare() { UNLISTED_TIME_MAX } else { Duration::MAX };
        self.command.idle_timeout.min(max)
    }

    /// The time that one may take to answer anything.
    fn start_timeout(&self) -> Duration {
        self.command.start_timeout
    }

    /// How long one may take to end.
    pub(crate) fn stop_time_max(&self) -> Duration {
        self.command.stop_timeout * 2
    }

    async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// The time until the next one may be started, unless that is now. `is_own`: for questions of the gateway's own alone.
    pub(crate) fn start_pause(&self, is_own: bool, now: Instant) -> Option<Duration> {
        self.starts.lock().wait(now, is_own)
    }

    /// The time until the next process is asked to initialize for `asker`, unless that is now.
    pub(crate) fn initialize_pause(&self, asker: Payer) -> Option<Duration> {
        self.starts.lock().refused_for(asker == Payer::GATEWAY, clock::now())
    }

    /// A process for which the gateway is charged did initialize for `asker`, or refused that.
    fn note_initialized(&self, asker: Payer, is_open: bool) {
        let mut starts = self.starts.lock();
        if is_open {
            starts.accept();
        } else {
            starts.refuse(asker == Payer::GATEWAY, clock::now(), jitter::random());
        }
    }

    /// Fails while this one waits, of which the processes ended again and again.
    fn check_start_of(&self, asker: Payer) -> Result<(), UpstreamError> {
        let wait = self.starts.lock().wait_of(asker, clock::now());
        wait.map_or(Ok(()), |wait| Err(not_started(wait)))
    }

    fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Starts a child on this thread.
    fn start(
        self: &Arc<Self>,
        host: &Rc<Host>,
        places: (Share, Share),
        begun: Start,
    ) -> Result<MuxConnection, UpstreamError> {
        let now = clock::now();
        match process::start(&self.command, &self.secrets) {
            Ok(child) => {
                self.series.starts.ok.inc();
                let started = RunningChild { child, start: begun, _places: places };
                let (connection, write_half, read_half) =
                    MuxConnection::new(host.shared.limits().bounds(Payer::upstream(&self.name)));
                host.run(process::run(Arc::clone(self), Rc::clone(host), started, write_half, read_half));
                Ok(connection)
            }
            Err(error) => {
                self.series.starts.error.inc();
                let wait = self.note_vain_start(VainStart::NoProcess, now, now);
                self.fault.note(Fault::NotStarted(plain(&error.to_string())), 0, true);
                tracing::warn!(upstream = self.name, %error, "a child process cannot be started");
                begun.fail(error.to_string());
                Err(not_started(wait))
            }
        }
    }

    /// A start came to nothing. Returns the pause until the next.
    fn note_vain_start(&self, vain: VainStart, since: Instant, now: Instant) -> Duration {
        let random = jitter::random();
        let mut starts = self.starts.lock();
        let pause = starts.fail(vain, since, now, random);
        self.show_loop(&starts);
        pause
    }

    /// Says whether they end again and again, once that changes. The gauge is brought up to date when it is read: another
    /// upstream of this name may have been there before a reload.
    fn show_loop(&self, starts: &Starts) {
        let (upstream, is_loop) = (&self.name, starts.is_loop());
        if is_loop == self.crash_loop_since_s().is_some() {
            return;
        }
        self.loop_since_s.store(if is_loop { clock::now_s() } else { 0 }, Ordering::Relaxed);
        match (is_loop, starts.is_in_doubt()) {
            (true, _) if let Some(question) = starts.ends_at() => tracing::error!(
                upstream,
                question = question.label(),
                "its child processes end at a question of the gateway's own: asked again after growing pauses"
            ),
            (true, false) => tracing::error!(
                upstream,
                "its child processes end before they answer: started again with growing pauses"
            ),
            (true, true) => tracing::error!(
                upstream,
                "its child processes end soon after their first answer: started again with growing pauses"
            ),
            (false, _) => tracing::info!(upstream, "its child processes answer again"),
        }
    }

    /// One has answered for the first time, and is counted until what is returned is dropped.
    fn note_answer(&self) -> Serving {
        if self.is_introduced.load(Ordering::Relaxed) {
            self.note_success();
        }
        self.serving.fetch_add(1, Ordering::Relaxed);
        Serving(Arc::clone(&self.serving))
    }

    fn note_success(&self) {
        let mut starts = self.starts.lock();
        if starts.succeed() {
            self.fault.is_good();
            self.show_loop(&starts);
        }
    }

    /// One was of use: it has answered more than how it introduces itself, or lives on.
    pub(crate) fn note_use(&self) {
        let mut starts = self.starts.lock();
        if starts.note_use(clock::now()) {
            self.fault.is_good();
            self.show_loop(&starts);
        }
    }

    /// The program has said what it speaks, be it before a restart.
    pub(crate) fn note_introduced(&self) {
        if !self.is_introduced.swap(true, Ordering::Relaxed) {
            self.note_success();
        }
    }

    /// Waits until one that has answered is known to live on. A refusal alone, such as that of another era, shows no more
    /// than that it starts.
    async fn settled(&self, connection: &MuxConnection, start: &Start) {
        loop {
            tokio::time::sleep(SETTLING_TIME).await;
            self.note_success();
            if self.is_introduced.load(Ordering::Relaxed) || connection.has_client() {
                break self.note_use();
            }
        }
        // Others are not asked what the gateway's own end at.
        if start.is_own() {
            self.outlived(connection).await;
        }
    }

    /// Waits until one lives on that was asked what others ended at, if any did.
    async fn outlived(&self, connection: &MuxConnection) {
        let since = clock::now();
        loop {
            let Some(question) = self.starts.lock().last_own_end() else { return };
            let is_over = connection.has_answered_own(question, SETTLING_TIME);
            if is_over || clock::since(since) >= OUTLIVING_TIME {
                let mut starts = self.starts.lock();
                starts.outlive_own_ends();
                return self.show_loop(&starts);
            }
            tokio::time::sleep(LIVING_INTERVAL).await;
        }
    }

    /// One ended at a question of the gateway's own, after it had introduced itself.
    fn note_own_end(&self, question: Method, now: Instant) {
        let mut starts = self.starts.lock();
        starts.end_at(question, now, jitter::random());
        self.show_loop(&starts);
    }

    /// A line as it may stand in the log.
    fn logged(&self, line: &[u8]) -> String {
        let line = masked(line, self.secrets.iter().map(|(_, secret)| secret.expose()));
        one_line(&without_secrets(&String::from_utf8_lossy(&line)), LOGGED_CHARS_MAX)
    }

    fn note_garbage(&self, line: &[u8], why: &str) {
        self.series.invalid_lines.inc();
        if let Some(left_out) = self.paces.lock().garbage.next(clock::now()) {
            let (upstream, line) = (&self.name, self.logged(line));
            tracing::warn!(
                upstream,
                line,
                why,
                left_out = (left_out > 0).then_some(left_out),
                "a child process wrote a line that is no message"
            );
        }
    }

    /// `is_answer`: a call has failed by it.
    fn note_too_long(&self, bytes: u64, reply_bytes_max: usize, is_answer: bool) {
        if let Some(left_out) = self.paces.lock().garbage.next(clock::now()) {
            let upstream = &self.name;
            tracing::warn!(
                upstream,
                bytes,
                reply_bytes_max,
                is_answer,
                left_out = (left_out > 0).then_some(left_out),
                "a child process wrote a line that is larger than reply_bytes_max: it is skipped"
            );
        }
    }

    fn note_no_room(&self) {
        if let Some(left_out) = self.paces.lock().garbage.next(clock::now()) {
            let upstream = &self.name;
            tracing::warn!(
                upstream,
                left_out = (left_out > 0).then_some(left_out),
                "a child process writes a long line while the gateway holds as many messages as buffered_bytes_max allows: \
                 it is skipped"
            );
        }
    }

    /// Lines that were said at once.
    fn note_stderr(&self, lines: &[Bytes]) {
        if lines.is_empty() {
            return;
        }
        match self.paces.lock().stderr.next(clock::now()) {
            Some(left_out) => {
                let (upstream, line) = (&self.name, self.logged(&lines.join(&b" | "[..])));
                let lines = (lines.len() > 1).then_some(lines.len());
                tracing::info!(
                    upstream,
                    line,
                    lines,
                    left_out = (left_out > 0).then_some(left_out),
                    "stderr"
                );
            }
            None => self.series.stderr_dropped.inc_by(lines.len() as u64),
        }
    }
}

impl Connect for Arc<Children> {
    fn sessions(&self) -> &MuxSessions {
        &self.sessions
    }

    async fn modern(
        &self,
        asking: ConnectRequest<'_>,
        post: &MuxPost<'_>,
    ) -> Result<MuxConnection, UpstreamError> {
        let principal = asking.principal.filter(|_| !self.is_for_all());
        let caller = principal.unwrap_or_default().as_bytes();
        if let Some(child) = self.modern.lock().get(caller).filter(|child| !child.connection.is_over()) {
            return Ok(child.connection.clone());
        }
        Box::pin(self.start_modern(asking, post, caller)).await
    }

    fn state_owner(&self, asking: ConnectRequest<'_>) -> Result<Option<Arc<StateOwner>>, UpstreamError> {
        if !self.is_for_all() || asking.payer == Payer::GATEWAY {
            return Ok(None);
        }
        let keys = if let Some(keys) = self.state_keys.get() {
            keys
        } else {
            // Unsealed, the states of one would serve all.
            let keys = StateKeys::new().ok_or(UpstreamError::Unreachable)?;
            self.state_keys.get_or_init(|| keys)
        };
        let depth_max = asking.client.limits().json_depth_max;
        Ok(Some(StateOwner::new(keys, asking.principal.unwrap_or_default(), depth_max)))
    }

    async fn initialize(
        &self,
        asking: ConnectRequest<'_>,
        post: MuxPost<'_>,
    ) -> Result<Reply, UpstreamError> {
        match self.command.isolation {
            Isolation::Session => Box::pin(self.open_session(asking, post)).await,
            Isolation::Principal | Isolation::Shared => Box::pin(self.open_shared(asking, post)).await,
        }
    }

    async fn post(&self, handle: SessionHandle, post: MuxPost<'_>) -> Result<Reply, UpstreamError> {
        match self.command.isolation {
            Isolation::Session => pass(&handle.connection, handle.session, post).await,
            Isolation::Principal | Isolation::Shared => shared::post(&handle, post).await,
        }
    }

    fn end(&self, handle: SessionHandle) {
        match self.command.isolation {
            Isolation::Session => handle.connection.close(),
            Isolation::Principal | Isolation::Shared => shared::end(&handle),
        }
    }
}

fn not_started(wait: Duration) -> UpstreamError {
    let retry_after_s = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    UpstreamError::NotStarted { retry_after_s: retry_after_s.max(1) }
}
