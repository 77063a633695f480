//! Upstreams that are child processes, speaking one message a line over standard input and output.
//!
//! A process for requests of the modern era serves one principal, and the gateway's own questions have one of their
//! own, unless the operator lets all share one (`shared`). A session of the legacy era has a process for itself, unless
//! the operator lets sessions share one. A process that is found not to be modern is the next that the gateway itself
//! initializes: it is asked both on the same one.
//!
//! Invariants: no more processes run than allowed, of one upstream and of all; an upstream that does not start is not
//! started all the time; what one child does is seen by its own callers alone.

mod log_line;
mod output;
mod process;
pub(crate) mod program;
pub(crate) mod room;
mod shared;
mod starts;

use std::collections::HashMap;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::log_line::{clean, masked};
use self::process::RunningChild;
use self::room::RoomSearch;
use self::shared::SharedChildren;
use self::starts::Starts;
use crate::access::limit::fair::Resting;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{Shares, is_scarce};
use crate::clock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::families::ChildSeries;
use crate::upstream::exchange::Reply;
use crate::upstream::mux::MuxConnection;
use crate::upstream::mux::exchange::{CloseOnDrop, Connect, ConnectRequest, MuxPost, open_session, pass};
use crate::upstream::mux::host::Host;
use crate::upstream::mux::sessions::{MuxSessions, SessionHandle};
use crate::upstream::mux::state_owner::{StateKeys, StateOwner};
use crate::upstream::start_state::{Start, StartWatch};
use crate::upstream::throttle::LogPace;
use config::{self, CommandConfig, Isolation};
use net::jitter;
use net::secret::Secret;
use protocol::error::UpstreamError;
use protocol::initialize::discover_params;

#[derive(Debug)]
pub(crate) struct Children {
    name: String,
    command: CommandConfig,
    /// Variables of its environment.
    secrets: Vec<(String, Secret)>,
    response_timeout: Duration,
    series: ChildSeries,
    sessions: MuxSessions,
    /// By caller.
    modern: Mutex<HashMap<Box<[u8]>, ModernChild>>,
    shared: SharedChildren,
    /// Seals the states of those who share a process.
    state_keys: OnceLock<Option<Arc<StateKeys>>>,
    starts: Mutex<Starts>,
    start_watch: Arc<StartWatch>,
    paces: Mutex<LogPaces>,
    running: Arc<Shares>,
    /// Since when they end before they answer, in seconds since 1970; 0: they do not.
    loop_since_s: AtomicU64,
    retired: CancellationToken,
}

/// The process of one caller of the modern era.
#[derive(Debug)]
struct ModernChild {
    connection: MuxConnection,
    /// Who is charged for it.
    payer: Payer,
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
            shared: SharedChildren::default(),
            state_keys: OnceLock::new(),
            starts: Mutex::default(),
            start_watch: Arc::default(),
            paces: Mutex::default(),
            running: Shares::new(command.children_max),
            loop_since_s: AtomicU64::new(0),
            retired: CancellationToken::new(),
        })
    }

    /// Since when they end before they answer anything, again and again, in seconds since 1970.
    pub(crate) fn crash_loop_since_s(&self) -> Option<u64> {
        Some(self.loop_since_s.load(Ordering::Relaxed)).filter(|since_s| *since_s > 0)
    }

    pub(crate) fn series(&self) -> &ChildSeries {
        &self.series
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

    /// Since when nothing is under way in a session. `None`: something is, or there is no such session.
    pub(crate) fn quiet_since(&self, session: &HeaderValue) -> Option<Instant> {
        self.sessions.get(session)?.connection.quiet_since(self.response_timeout)
    }

    /// How long one may take to end.
    pub(crate) fn stop_time_max(&self) -> Duration {
        self.command.stop_timeout * 2
    }

    async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Starts a child for `payer` on this thread.
    fn start(self: &Arc<Self>, host: &Rc<Host>, payer: Payer) -> Result<MuxConnection, UpstreamError> {
        if self.retired.is_cancelled() || host.is_leaving() {
            return Err(UpstreamError::Unreachable);
        }
        let now = clock::now();
        if let Some(wait) = self.starts.lock().wait(now) {
            return Err(not_started(wait));
        }
        let places = self.running.take(payer).and_then(|own| Ok((own, host.shared.children.take(payer)?)));
        let Ok(places) = places else {
            tracing::debug!(upstream = self.name, "as many child processes as may run");
            return Err(UpstreamError::TooManyChildren);
        };
        let begun = self.start_watch.begin();
        begun.run();
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
                let wait = self.note_vain_start(now, now);
                tracing::warn!(upstream = self.name, %error, "a child process cannot be started");
                begun.fail(error.to_string());
                Err(not_started(wait))
            }
        }
    }

    /// As [`start`](Self::start), once there is room.
    async fn start_in_time(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        payer: Payer,
    ) -> Result<MuxConnection, UpstreamError> {
        let mut room = None;
        loop {
            let started = self.start(&asking.client.host, payer);
            if !self.is_worth_another_try(&started, &mut room, asking, payer).await {
                return started;
            }
        }
    }

    /// The child of this caller, which has to be started.
    #[cold]
    async fn start_modern(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        caller: &[u8],
    ) -> Result<MuxConnection, UpstreamError> {
        let is_own = asking.payer == Payer::GATEWAY;
        let payer = if caller.is_empty() { Payer::GATEWAY } else { asking.payer };
        let mut room = None;
        loop {
            let (children, caller) = (Arc::clone(self), Box::from(caller));
            let start = move |host: &Rc<Host>| children.modern_on(host, caller, (payer, is_own));
            let started = asking.client.host.on_worker(start).await;
            if !self.is_worth_another_try(&started, &mut room, asking, payer).await {
                return started;
            }
        }
    }

    /// A child that sessions share, once there is room.
    async fn start_for_sessions(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        payer: Payer,
    ) -> Result<MuxConnection, UpstreamError> {
        let mut room = None;
        loop {
            let children = Arc::clone(self);
            let started = asking.client.host.on_worker(move |host| children.start(host, payer)).await;
            if !self.is_worth_another_try(&started, &mut room, asking, payer).await {
                return started;
            }
        }
    }

    /// After a start: whether there was no room, and there may be by now. The gateway itself takes what is left.
    async fn is_worth_another_try(
        self: &Arc<Self>,
        started: &Result<MuxConnection, UpstreamError>,
        room: &mut Option<RoomSearch>,
        asking: ConnectRequest<'_>,
        payer: Payer,
    ) -> bool {
        if !matches!(started, Err(UpstreamError::TooManyChildren)) || asking.payer == Payer::GATEWAY {
            return false;
        }
        let room = room.get_or_insert_with(|| RoomSearch::new(asking.deadline));
        Box::pin(room.wait(self, &asking.client.host, payer)).await
    }

    /// The child of this caller, on this thread if it has to be started.
    fn modern_on(
        self: &Arc<Self>,
        host: &Rc<Host>,
        caller: Box<[u8]>,
        (payer, is_own): (Payer, bool),
    ) -> Result<MuxConnection, UpstreamError> {
        // Under the lock, so that callers who come together start one child.
        let mut modern = self.modern.lock();
        modern.retain(|_, child| !child.connection.is_over());
        if let Some(child) = modern.get(&caller) {
            return Ok(child.connection.clone());
        }
        let connection = self.start(host, payer)?;
        if !is_own {
            // Before the client's call: who answers this has started, whatever that call does to it.
            connection.ask_in_passing("server/discover", &discover_params());
        }
        if self.is_for_all() {
            connection.make_common();
        }
        modern.insert(caller, ModernChild { connection: connection.clone(), payer });
        Ok(connection)
    }

    /// A start came to nothing. Returns the pause until the next.
    fn note_vain_start(&self, since: Instant, now: Instant) -> Duration {
        let random = jitter::random();
        let (pause, is_loop) = self.starts.lock().fail(since, now, random);
        if is_loop {
            self.series.crash_loop.set(1);
            self.loop_since_s.store(clock::now_s(), Ordering::Relaxed);
            let upstream = &self.name;
            tracing::error!(
                upstream,
                "its child processes end before they answer: started again with growing pauses"
            );
        }
        pause
    }

    fn note_answer(&self) {
        if self.starts.lock().succeed() {
            self.series.crash_loop.set(0);
            self.loop_since_s.store(0, Ordering::Relaxed);
            tracing::info!(upstream = self.name, "its child processes answer again");
        }
    }

    fn note_end(
        &self,
        connection: &MuxConnection,
        start: Start,
        is_crash: bool,
        why: &str,
        status: Option<ExitStatus>,
        since: Instant,
    ) {
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        if !is_crash {
            tracing::debug!(upstream = self.name, why, status, "a child process ended");
            return;
        }
        self.series.crashes.inc();
        let now = clock::now();
        let lived_ms = now.duration_since(since).as_millis();
        if let Some(left_out) = self.paces.lock().ends.next(now) {
            let upstream = &self.name;
            tracing::warn!(
                upstream,
                why,
                status,
                lived_ms,
                left_out = (left_out > 0).then_some(left_out),
                "a child process ended unasked"
            );
        }
        if !connection.has_answered() {
            self.note_vain_start(since, now);
            start.fail([why, &status].join(": "));
        }
    }

    /// A line as it may stand in the log.
    fn logged(&self, line: &[u8]) -> String {
        clean(&masked(line, self.secrets.iter().map(|(_, secret)| secret.expose())))
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

    fn note_stderr(&self, line: &[u8]) {
        match self.paces.lock().stderr.next(clock::now()) {
            Some(left_out) => {
                let (upstream, line) = (&self.name, self.logged(line));
                tracing::info!(upstream, line, left_out = (left_out > 0).then_some(left_out), "stderr");
            }
            None => self.series.stderr_dropped.inc(),
        }
    }

    /// A process of the gateway's own that was asked in the modern era in vain, at least until now.
    fn take_asked_in_vain(&self, asking: ConnectRequest<'_>) -> Option<MuxConnection> {
        let is_modern = asking.upstream.facts.known().modern.introduction().is_some();
        // Of a session's own the session pays, and this one is the gateway's.
        let is_anothers = self.command.isolation == Isolation::Session && asking.payer != Payer::GATEWAY;
        if asking.principal.is_some() || is_anothers || is_modern {
            return None;
        }
        let mut modern = self.modern.lock();
        let is_free = |child: &ModernChild| !child.connection.is_over() && child.connection.is_own();
        if !modern.get(&[][..]).is_some_and(is_free) {
            return None;
        }
        modern.remove(&[][..]).map(|child| child.connection)
    }
}

impl Connect for Arc<Children> {
    fn sessions(&self) -> &MuxSessions {
        &self.sessions
    }

    async fn modern(&self, asking: ConnectRequest<'_>) -> Result<MuxConnection, UpstreamError> {
        let principal = asking.principal.filter(|_| !self.is_for_all());
        let caller = principal.unwrap_or_default().as_bytes();
        if let Some(child) = self.modern.lock().get(caller).filter(|child| !child.connection.is_over()) {
            return Ok(child.connection.clone());
        }
        Box::pin(self.start_modern(asking, caller)).await
    }

    fn state_owner(&self, asking: ConnectRequest<'_>) -> Option<Arc<StateOwner>> {
        if !self.is_for_all() || asking.payer == Payer::GATEWAY {
            return None;
        }
        let keys = self.state_keys.get_or_init(StateKeys::new).as_ref()?;
        let depth_max = asking.client.limits().json_depth_max;
        Some(StateOwner::new(keys, asking.principal.unwrap_or_default(), depth_max))
    }

    async fn initialize(
        &self,
        asking: ConnectRequest<'_>,
        post: MuxPost<'_>,
    ) -> Result<Reply, UpstreamError> {
        match self.command.isolation {
            Isolation::Session => {
                let Some(connection) = self.take_asked_in_vain(asking) else {
                    let connection = Box::pin(self.start_in_time(asking, asking.payer)).await?;
                    return open_session(&self.sessions, connection, post).await;
                };
                let reply = open_session(&self.sessions, connection.clone(), post).await;
                // What it has not answered by now, it does not answer.
                connection.abandon_own();
                reply
            }
            Isolation::Principal | Isolation::Shared => {
                let is_for_all = self.command.isolation == Isolation::Shared;
                let principal = asking.principal.filter(|_| !is_for_all);
                // What serves all whom nobody tells apart is nobody's own.
                let payer = if principal.is_some() { asking.payer } else { Payer::GATEWAY };
                let start = async || {
                    if let Some(connection) = self.take_asked_in_vain(asking) {
                        return Ok(CloseOnDrop::new(connection));
                    }
                    let started = Box::pin(self.start_for_sessions(asking, payer)).await?;
                    Ok(CloseOnDrop::new(started))
                };
                let caller = principal.unwrap_or_default().as_bytes();
                self.shared.initialize(caller, payer, &self.sessions, start, post).await
            }
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
