//! A session with a legacy server that one call at a time has to itself: opened, used again and again, and closed, by a
//! task of the thread that opened it.
//!
//! Its stream stands before the first call goes out, as some servers drop what they have to say where there is none.
//! Between two calls nobody can be asked: requests of the server are refused.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::call_driver::{self, CallEnd};
use super::call_reply::{CallReplySink, ClientAnswers};
use super::exclusive_pool::{IdleGuard, SessionKey};
use super::server_message::{self, CallIds, ServerMessage};
use super::session_client::{SessionClient, SessionName};
use super::session_stream::SessionStream;
use crate::access::limit::shares::Share;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::Upstream;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::initialize::InitializeOffer;
use protocol::error::UpstreamError;
use protocol::initialize::Initialize;
use protocol::json::{Document, Value, quote};
use protocol::translation::question;
use protocol::version::LegacyVersion;

/// How long a call waits for the session's stream to stand.
const STANDING_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may take to hear that a session is over, or an answer between two calls.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Messages of earlier calls that are dropped before the next.
const STALE_MAX: usize = 64;
/// Commands that wait: a session has one call, which goes on once at a time.
const COMMANDS_MAX: usize = 2;

/// What a session is told.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    Call(Box<CallReplySink>),
    /// Go on with the call that waits.
    Resume(Box<CallReplySink>, ClientAnswers),
    /// End, to make room.
    Close,
}

pub(crate) struct ExclusiveSession {
    /// The way to it.
    pub server: Rc<SessionClient>,
    /// What it was opened for.
    pub key: Arc<SessionKey>,
    /// Its stream.
    pub notifications: SessionStream,
    /// What it is told.
    pub commands: mpsc::Receiver<SessionCommand>,
    /// Where that is said.
    pub own_commands: mpsc::Sender<SessionCommand>,
    /// The upstream is no longer configured.
    pub retired: CancellationToken,
    /// It makes room for another.
    is_ousted: bool,
    _counted: GaugeGuard,
    /// Its place, until it makes room for another.
    place: Arc<Mutex<Share>>,
}

/// What a session is opened with.
pub(crate) struct SessionSetup {
    pub client: UpstreamClient,
    pub upstream: Arc<Upstream>,
    pub key: Arc<SessionKey>,
    pub place: Share,
}

/// Opens a session for this call, and keeps it for others.
pub(crate) async fn run(opening: SessionSetup, reply: Box<CallReplySink>) {
    let SessionSetup { client, upstream, key, place } = opening;
    let (counted, place) =
        (GaugeGuard::new(&upstream.bridge.series.sessions.modern), Arc::new(Mutex::new(place)));
    let (own_commands, commands) = mpsc::channel(COMMANDS_MAX);
    let retired = upstream.bridge.as_modern.exclusive.retired.clone();
    // What opening takes is not held for as long as the session is: a call may wait there for its client.
    let (server, notifications) = match Box::pin(open(&client, &upstream, &key, reply.call.deadline)).await {
        Ok(opened) => opened,
        Err(error) => return reply.fail(error),
    };
    drop((client, upstream));
    let session = ExclusiveSession {
        server,
        key,
        notifications,
        commands,
        own_commands,
        retired,
        is_ousted: false,
        _counted: counted,
        place,
    };
    Box::pin(session.run(reply)).await;
}

async fn open(
    client: &UpstreamClient,
    upstream: &Arc<Upstream>,
    key: &SessionKey,
    deadline: Instant,
) -> Result<(Rc<SessionClient>, SessionStream), UpstreamError> {
    let info = key.client_info(client);
    let initialize = Initialize {
        version: LegacyVersion::NEWEST,
        capabilities: &key.capabilities,
        client_name: &info.name,
        client_title: &info.title,
        client_version: &info.version,
    };
    let offer = InitializeOffer { initialize, principal: &key.principal };
    let opened = Box::pin(super::open_session(client, upstream, offer, deadline)).await?;
    let server = SessionClient::new(client, upstream, SessionName::from(&opened));
    let mut notifications = SessionStream::of_session(&server);
    if let Some(level) = key.level.filter(|_| logs(client, &opened.result)) {
        let set = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"logging/setLevel","params":{{"level":{}}}}}"#,
            quote(level.as_str())
        );
        // Lines that nobody asked for are dropped here as well.
        let _ = timeout(LAST_PATIENCE, SessionClient::tell(Rc::clone(&server), set.into())).await;
    }
    // It is as good as it gets.
    let _ = timeout(STANDING_PATIENCE, notifications.stand()).await;
    Ok((server, notifications))
}

/// Whether a server takes a log level.
fn logs(client: &UpstreamClient, introduction: &Bytes) -> bool {
    client.read_json(|(scratch, depth_max)| {
        let root = scratch.index(introduction, depth_max).map(Document::root).ok();
        let logging = root.and_then(|root| root.get("capabilities")?.get("logging"));
        logging.is_some_and(Value::is_object)
    })
}

impl ExclusiveSession {
    async fn run(mut self, mut reply: Box<CallReplySink>) {
        let mut may_reopen = true;
        loop {
            match Box::pin(call_driver::run(&mut self, reply)).await {
                CallEnd::Clean => may_reopen = true,
                CallEnd::Spoilt => break,
                CallEnd::Lost(call) => {
                    // One that was opened just now is not what is wrong.
                    if !std::mem::take(&mut may_reopen) {
                        return call.fail(UpstreamError::SessionLost);
                    }
                    match Box::pin(self.reopen(call.call.deadline)).await {
                        Ok(()) => reply = call,
                        Err(error) => return call.fail(error),
                    }
                    continue;
                }
                CallEnd::Cut => return,
            }
            match Box::pin(self.rest()).await {
                Some(next) => reply = next,
                None => break,
            }
        }
        // The session counts until it is closed, its stream does not.
        let Self { server, notifications, is_ousted, _counted, .. } = self;
        drop(notifications);
        if is_ousted {
            return Box::pin(server.close_now(LAST_PATIENCE)).await;
        }
        Box::pin(server.last(LAST_PATIENCE, server.close(LAST_PATIENCE))).await;
    }

    /// Drops what the server has said since the last call, which is none of the next one's business.
    pub(crate) async fn clear(&mut self) {
        for _ in 0..STALE_MAX {
            // The connection may have read more than it has handed over.
            tokio::task::yield_now().await;
            let Some(message) = self.notifications.message().now_or_never() else { return };
            self.refuse(&message).await;
        }
    }

    async fn reopen(&mut self, deadline: Instant) -> Result<(), UpstreamError> {
        let (client, upstream) = (self.server.client.clone(), self.server.upstream());
        let (server, notifications) = open(&client, &upstream, &self.key, deadline).await?;
        self.server = server;
        self.notifications = notifications;
        Ok(())
    }

    /// Waits for the next call. `None`: there is none, and the session is to be closed.
    async fn rest(&mut self) -> Option<Box<CallReplySink>> {
        let idle_timeout = self.server.upstream().config.bridge.session_idle_timeout;
        if idle_timeout.is_zero() || self.retired.is_cancelled() {
            return None;
        }
        let (host, bridge) = (Rc::clone(&self.server.client.host), Arc::clone(&self.server.bridge));
        let resting =
            IdleGuard::begin(&bridge.as_modern.exclusive, &self.key, self.own_commands.clone(), &self.place);
        let mut idle = Box::pin(sleep(idle_timeout));
        loop {
            let message = tokio::select! {
                biased;
                command = self.commands.recv() => return self.take(command),
                () = &mut idle => None,
                () = host.cut() => None,
                () = host.closing() => None,
                () = self.retired.cancelled() => None,
                message = self.notifications.message() => Some(message),
            };
            match message {
                Some(message) => self.refuse(&message).await,
                // Taken at this very moment, it is needed once more.
                None if !resting.end() => {
                    let command = self.commands.recv().await;
                    return self.take(command);
                }
                None => return None,
            }
        }
    }

    /// The call that it is told to make.
    fn take(&mut self, command: Option<SessionCommand>) -> Option<Box<CallReplySink>> {
        match command {
            Some(SessionCommand::Call(reply)) => Some(reply),
            other => {
                self.is_ousted = matches!(other, Some(SessionCommand::Close));
                None
            }
        }
    }

    /// Answers what the server asks while there is nobody to ask.
    async fn refuse(&self, message: &Bytes) {
        let (id, is_ping) = match server_message::read(&self.server, message, CallIds::NONE) {
            Some(ServerMessage::Request { id, is_ping }) => (id, is_ping),
            Some(ServerMessage::ListChanged(changed)) => return self.server.overhear(changed),
            _ => return,
        };
        let answer = question::unasked_answer(&id, is_ping);
        // A server that does not take it in does without.
        let _ = timeout(LAST_PATIENCE, Box::pin(SessionClient::tell(Rc::clone(&self.server), answer))).await;
    }
}
