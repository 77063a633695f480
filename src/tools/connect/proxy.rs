//! What becomes of each line of the client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method as HttpMethod, StatusCode};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::FAREWELL;
use super::in_flight::{InFlight, InFlightRequests};
use super::message::{ClientMessage, batch, key};
use super::request::ClientRequest;
use super::session::{CurrentSession, ServerSession};
use super::stdio::{OutputQueue, StderrLog};
use client::exchange_error::ExchangeError;
use client::http_endpoint::HttpEndpoint;
use client::param_headers::ParamHeaders;
use net::tasks::Tasks;
use protocol::envelope::MessageKind;
use protocol::json::Scratch;
use protocol::method::Method;
use protocol::version::LegacyVersion;

/// Requests under way at once.
const CALLS_MAX: usize = 512;
/// Notifications and responses that wait for those before them.
const FORWARDED_MAX: usize = 256;
/// How long the server may take to accept one of these.
pub(super) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request waits for those before it.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);

/// The way between one client and one server.
pub(super) struct StdioProxy {
    pub(super) endpoint: HttpEndpoint,
    pub(super) output: OutputQueue,
    pub(super) stderr_log: StderrLog,
    pub(super) tasks: Tasks,
    pub(super) timeout: Duration,
    pub(super) scratch: RefCell<Scratch>,
    pub(super) calls: InFlightRequests,
    pub(super) sessions: CurrentSession,
    /// Held while a session is opened anew.
    pub(super) reopening: Mutex<()>,
    pub(super) param_headers: RefCell<ParamHeaders>,
    /// Each `initialize` under way: nothing else of a session leaves before its answer.
    pub(super) initializing: TaskTracker,
    /// Each `notifications/initialized` under way: no request of a session leaves before it.
    pub(super) introducing: TaskTracker,
    /// Each request that waits for its answer, and whatever waits to be sent.
    pub(super) unfinished: TaskTracker,
    forwarded: mpsc::Sender<ForwardedMessage>,
    /// How many were put there, and how many of these were sent or given up.
    queued: Cell<u64>,
    finished: watch::Sender<u64>,
}

/// A notification or response on its way.
struct ForwardedMessage {
    message: ClientMessage,
    modern_version: Option<String>,
    _counted: (TaskTrackerToken, Option<TaskTrackerToken>),
}

impl StdioProxy {
    /// Must be called on a local runtime.
    pub(super) fn start(
        endpoint: HttpEndpoint,
        output: OutputQueue,
        stderr_log: StderrLog,
        tasks: Tasks,
        timeout: Duration,
    ) -> Rc<Self> {
        let (forwarded, waiting) = mpsc::channel(FORWARDED_MAX);
        let proxy = Rc::new(Self {
            endpoint,
            output,
            stderr_log,
            tasks,
            timeout,
            scratch: RefCell::default(),
            calls: InFlightRequests::default(),
            sessions: CurrentSession::default(),
            reopening: Mutex::default(),
            param_headers: RefCell::default(),
            initializing: TaskTracker::new(),
            introducing: TaskTracker::new(),
            unfinished: TaskTracker::new(),
            forwarded,
            queued: Cell::default(),
            finished: watch::Sender::new(0),
        });
        for tracker in [&proxy.initializing, &proxy.introducing, &proxy.unfinished] {
            tracker.close(); // one that is open is waited for although it is empty
        }
        proxy.tasks.spawn(Rc::clone(&proxy).forward(waiting));
        proxy
    }

    pub(super) async fn take(self: &Rc<Self>, line: Bytes) {
        let has_batches = || {
            let session = self.sessions.current();
            session.is_some_and(|session| session.version == LegacyVersion::V2025_03_26)
        };
        let parts = batch(&mut self.scratch.borrow_mut(), &line).filter(|_| has_batches());
        match parts {
            None => self.take_message(line).await,
            Some(Err(fault)) => self.refuse(None, &fault).await,
            Some(Ok(messages)) => {
                for message in messages {
                    self.take_message(message).await;
                }
            }
        }
    }

    async fn take_message(self: &Rc<Self>, body: Bytes) {
        let read = ClientMessage::read(&mut self.scratch.borrow_mut(), body);
        let message = match read {
            Ok(message) => message,
            Err((id, fault)) => return self.refuse(id.as_deref(), &fault).await,
        };
        match message.envelope.kind {
            MessageKind::Request => self.take_request(message).await,
            MessageKind::Notification if message.is("notifications/cancelled") => self.cancel(message),
            MessageKind::Notification | MessageKind::Response => self.queue(message),
        }
    }

    async fn take_request(self: &Rc<Self>, message: ClientMessage) {
        let Some(id) = message.id() else { return };
        let Some(key) = key(id.as_bytes()) else {
            return self.refuse(None, &ExchangeError::NotJsonRpc("the id is not valid text")).await;
        };
        let is_initialize = message.method == Method::Initialize;
        let in_flight = Rc::new(InFlight {
            modern_version: message.modern_version().filter(|_| !is_initialize),
            is_open_ended: message.method == Method::Listen,
            ..InFlight::default()
        });
        if self.calls.get(&key).is_some() {
            let fault = ExchangeError::NotJsonRpc("another request with this id is under way");
            return self.refuse(Some(&id), &fault).await;
        }
        if !self.calls.add(key.clone(), Rc::clone(&in_flight), CALLS_MAX) {
            return self.refuse(Some(&id), &ExchangeError::Busy).await;
        }
        let initializing = is_initialize.then(|| self.initializing.token());
        let unfinished = (!in_flight.is_open_ended).then(|| self.unfinished.token());
        let written_before = self.queued.get();
        let call = ClientRequest { message, id, key, in_flight, written_before };
        let proxy = Rc::clone(self);
        self.tasks.spawn(async move {
            proxy.answer(&call).await;
            drop((initializing, unfinished));
        });
    }

    /// A modern request is cancelled by closing its stream, one in a session by telling the server, and one that was not
    /// sent yet by not sending it.
    fn cancel(&self, message: ClientMessage) {
        let key = message.cancelled(&mut self.scratch.borrow_mut());
        match key.and_then(|key| self.calls.get(&key)) {
            Some(call) if call.modern_version.is_some() || !call.is_sent.get() => call.stop.cancel(),
            Some(call) => {
                call.is_withdrawn.set(true);
                self.queue(message);
            }
            None => {} // its answer is on its way already
        }
    }

    fn queue(&self, message: ClientMessage) {
        let modern_version = message.modern_version();
        let introducing = message.is("notifications/initialized").then(|| self.introducing.token());
        let unfinished = self.unfinished.token();
        let queued = ForwardedMessage { message, modern_version, _counted: (unfinished, introducing) };
        match self.forwarded.try_send(queued) {
            Ok(()) => self.queued.update(|queued| queued + 1),
            Err(_) => self.stderr_log.say("dropped a notification or response: too many wait to be sent"),
        }
    }

    /// Waits until so many notifications and responses were sent or given up; not for ever, as a request is worth more than
    /// its place behind what the server does not accept.
    pub(super) async fn forwarded(&self, count: u64) {
        let mut finished = self.finished.subscribe();
        let _ = timeout(FORWARD_TIMEOUT, finished.wait_for(|finished| *finished >= count)).await;
    }

    /// Sends notifications and responses, one after another.
    async fn forward(self: Rc<Self>, mut waiting: mpsc::Receiver<ForwardedMessage>) {
        while let Some(forwarded) = waiting.recv().await {
            self.forward_one(&forwarded).await;
            self.finished.send_modify(|finished| *finished += 1);
        }
    }

    async fn forward_one(self: &Rc<Self>, forwarded: &ForwardedMessage) {
        let ForwardedMessage { message, modern_version, .. } = forwarded;
        if modern_version.is_none() {
            self.initializing.wait().await;
        }
        let session = self.sessions.current();
        let headers = match (modern_version, &session) {
            (Some(version), _) => message.modern_headers(version),
            (None, Some(session)) => Ok(session.headers()),
            (None, None) => {
                self.stderr_log.say("dropped a notification or response: there is no session");
                return;
            }
        };
        let told = match headers {
            Ok(headers) => self.endpoint.notify(headers, message.body.clone(), ACCEPT_TIMEOUT).await,
            Err(fault) => Err(fault),
        };
        if let Err(fault) = told {
            self.stderr_log.say(format!("a notification or response was not taken: {fault}"));
        } else if let Some(session) = session.filter(|_| message.is("notifications/initialized")) {
            self.listen(session);
        }
    }

    pub(super) async fn refuse(&self, id: Option<&str>, fault: &ExchangeError) {
        self.stderr_log.say(fault.to_string());
        self.output.write(Bytes::from(fault.body(id))).await;
    }

    /// Ends what would stay open for ever.
    pub(super) fn stop_listening(&self) {
        self.calls.stop(|call| call.is_open_ended);
    }

    /// Stops everything, and ends the session.
    pub(super) async fn close(&self) {
        self.calls.stop(|_| true);
        if let Some(session) = self.sessions.replace(None) {
            self.end(&session).await;
        }
    }

    /// Tells the server that the session is over. It need not agree.
    pub(super) async fn end(&self, session: &ServerSession) {
        if session.id.is_none() {
            return;
        }
        let deadline = Instant::now() + FAREWELL;
        let ended =
            self.endpoint.send(HttpMethod::DELETE, session.headers(), Bytes::new(), true, deadline).await;
        match ended.map(|reply| reply.head.status) {
            Ok(status) if status.is_success() => {}
            Ok(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => {}
            Ok(status) => {
                self.stderr_log.say(format!("the session was not ended: status {}", status.as_u16()));
            }
            Err(fault) => self.stderr_log.say(format!("the session was not ended: {fault}")),
        }
    }

    /// A message that a server may send at any time is longer than is accepted, or is none.
    pub(super) fn drop_message(&self, why: &str) {
        self.stderr_log.say(format!("dropped a message of the server: {why}"));
    }
}
