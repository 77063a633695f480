//! A session with a legacy server that one call at a time has to itself: opened, looked after between its calls, and
//! closed, by a task of the thread that opened it, its keeper.
//!
//! The keeper makes the first call, those that come from other threads, and those that their callers do not make to their
//! ends ([`super::direct_call`]); while there is none, the session lies in a [`SessionSlot`].
//!
//! Its stream stands before the first call goes out, as some servers drop what they have to say where there is none.
//! Between two calls nobody can be asked: requests of the server are refused.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::call_driver::{CallDriver, CallEnd};
use super::call_reply::{CallReplySink, ClientAnswers};
use super::exclusive_pool::{IdleGuard, SessionKey};
use super::session_client::{SessionClient, SessionName};
use super::session_slot::{KeeperWork, SessionSlot, SessionWakers};
use super::session_stream::SessionStream;
use crate::access::limit::shares::Share;
use crate::bridge::BridgedServer;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::initialize::InitializeOffer;
use protocol::error::UpstreamError;
use protocol::initialize::Initialize;
use protocol::json::{Document, Value, quote};
use protocol::version::LegacyVersion;

/// How long a call waits for the session's stream to stand.
const STANDING_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may take to hear that a session is over.
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
    /// Who is woken for what comes there.
    pub wakers: Rc<SessionWakers>,
    /// What it is told.
    pub commands: mpsc::Receiver<SessionCommand>,
    /// Where that is said.
    pub own_commands: mpsc::Sender<SessionCommand>,
    /// The upstream is no longer configured.
    pub retired: CancellationToken,
    /// It makes room for another.
    pub is_ousted: bool,
    _counted: GaugeGuard,
    /// Its place, until it makes room for another.
    place: Arc<Mutex<Share>>,
}

/// What a session is opened with.
pub(crate) struct SessionSetup {
    pub client: UpstreamClient,
    pub upstream: BridgedServer,
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
    let opening = Box::pin(open(&client, &upstream, &key, reply.call.deadline));
    let (server, notifications) = match reply.opens(opening).await {
        Ok(opened) => opened,
        Err(error) => return reply.fail(error),
    };
    drop((client, upstream));
    let session = Box::new(ExclusiveSession {
        server,
        key,
        notifications,
        wakers: SessionWakers::of_this_task().await,
        commands,
        own_commands,
        retired,
        is_ousted: false,
        _counted: counted,
        place,
    });
    Box::pin(keep(session, reply)).await;
}

async fn open(
    client: &UpstreamClient,
    upstream: &BridgedServer,
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
    let offer = InitializeOffer { initialize, principal: &key.principal, shown: key.shown.clone() };
    let opened = Box::pin(super::open_session(client, upstream, offer, key.payer, deadline)).await?;
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

/// Makes this call, and looks after the session from then on.
async fn keep(session: Box<ExclusiveSession>, reply: Box<CallReplySink>) {
    let slot = SessionSlot::new(&session.server.client.host, &session.wakers);
    let mut may_reopen = true;
    let mut work = KeeperWork::Call(session, reply);
    loop {
        let (mut session, end) = match work {
            KeeperWork::Call(session, reply) => Box::pin(session.call(reply)).await,
            KeeperWork::Continue(driver, event) => Box::pin(driver.run(Some(event))).await,
            KeeperWork::Close(session) => return Box::pin(session.close()).await,
        };
        work = match end {
            CallEnd::Clean => {
                may_reopen = true;
                let Some(next) = slot.keep(session).await else { return };
                next
            }
            CallEnd::Spoilt => KeeperWork::Close(session),
            // One that was opened just now is not what is wrong.
            CallEnd::Lost(call) if !std::mem::take(&mut may_reopen) || session.server.is_sessionless() => {
                return call.fail(session.server.lost());
            }
            CallEnd::Lost(call) => match call.opens(Box::pin(session.reopen(call.call.deadline))).await {
                Ok(()) => KeeperWork::Call(session, call),
                Err(error) => return call.fail(error),
            },
            CallEnd::Cut => return,
        };
    }
}

impl ExclusiveSession {
    async fn call(self: Box<Self>, reply: Box<CallReplySink>) -> (Box<Self>, CallEnd) {
        if reply.is_closed() {
            return (self, CallEnd::Clean);
        }
        // The connection may have read more than it has handed over.
        tokio::task::yield_now().await;
        let mut driver = CallDriver::new(self, &reply.call);
        driver.reply = Some(reply);
        driver.run(None).await
    }

    async fn close(self: Box<Self>) {
        // The session counts until it is closed, its stream does not.
        let Self { server, notifications, is_ousted, _counted, .. } = *self;
        drop(notifications);
        if is_ousted {
            return server.close_now(LAST_PATIENCE).await;
        }
        server.last(LAST_PATIENCE, server.close(LAST_PATIENCE)).await;
    }

    /// Drops what the server has said since the last call, which is none of the next one's business.
    pub(crate) fn clear(&mut self) {
        for _ in 0..STALE_MAX {
            let Some(message) = self.wakers.hear(&mut self.notifications).now_or_never() else { return };
            self.server.refuse(&message);
        }
    }

    async fn reopen(&mut self, deadline: Instant) -> Result<(), UpstreamError> {
        let (client, upstream) = (self.server.client.clone(), self.server.upstream());
        let (server, notifications) = open(&client, &upstream, &self.key, deadline).await?;
        self.server = server;
        self.notifications = notifications;
        Ok(())
    }

    /// From now on calls may take it, whose thread knows it by this number.
    pub(crate) fn rest(&self, number: u64) -> IdleGuard {
        let sessions = &self.server.bridge.as_modern.exclusive;
        IdleGuard::begin(sessions, &self.key, number, self.own_commands.clone(), &self.place)
    }

    /// Ready with what it is told. What the server asks meanwhile is refused.
    pub(crate) fn poll_command(&mut self, cx: &mut Context<'_>) -> Poll<Option<SessionCommand>> {
        while self.commands.is_empty() {
            let Poll::Ready(message) = pin!(self.notifications.message()).poll(cx) else { break };
            self.server.refuse(&message);
        }
        self.commands.poll_recv(cx)
    }
}
