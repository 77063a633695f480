//! Modern requests to a server that speaks the legacy era only.
//!
//! | request | how it is made |
//! |---|---|
//! | of a client that takes questions or log lines | [`exclusive_pool`]: on a session that is its own meanwhile |
//! | with a `requestState` | [`suspended`]: goes on with a call that waits |
//! | `subscriptions/listen` | [`listen`]: on a session that is its own |
//! | any other | [`multiplexed`]: on a session that the principal's calls share |
//! | a notification | accepted, and nothing more |

pub(crate) mod answers;
pub(crate) mod call;
pub(crate) mod call_driver;
pub(crate) mod call_reply;
pub(crate) mod direct_call;
pub(crate) mod exclusive_pool;
pub(crate) mod exclusive_session;
pub(crate) mod listen;
pub(crate) mod multiplexed;
pub(crate) mod open_questions;
pub(crate) mod response_reader;
pub(crate) mod server_message;
pub(crate) mod session_client;
pub(crate) mod session_slot;
pub(crate) mod session_stream;
pub(crate) mod shared_session;
pub(crate) mod stream_progress;
pub(crate) mod suspended;
pub(crate) mod tasks;

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

use self::answers::IntroductionCache;
use self::call::ModernCall;
use self::shared_session::SharedSessions;
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::fair::{Fair, Resting, Turn};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Share, Shares};
use crate::bridge::BridgedServer;
use crate::clock;
use crate::upstream::ask::Asker;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::initialize::{self, InitializeError, InitializeOffer, InitializedSession};
use crate::upstream::other_era::BridgedRest;
use crate::upstream::request::UpstreamRequest;
use crate::upstream::stdio::launch::{call_told_at, still_starting};
use protocol::error::UpstreamError;
use protocol::method::Method;

#[derive(Debug)]
pub(crate) struct ModernFacade {
    /// How many there may be, of any kind; a place is held by each, and whoever takes one sets the bound before.
    pub places: Arc<Shares>,
    /// Sessions that one call at a time has to itself.
    pub exclusive: Arc<exclusive_pool::ExclusiveSessions>,
    /// Calls that wait for their client's answers.
    pub suspended: suspended::SuspendedCalls,
    pub shared: SharedSessions,
    /// How it introduced itself.
    pub servers: IntroductionCache,
    /// Turns to tell it what nobody waits for.
    pub unawaited: Arc<Semaphore>,
}

impl Default for ModernFacade {
    fn default() -> Self {
        Self {
            places: Shares::new(0),
            exclusive: Arc::default(),
            suspended: suspended::SuspendedCalls::default(),
            shared: SharedSessions::default(),
            servers: IntroductionCache::default(),
            unawaited: Arc::new(Semaphore::new(session_client::UNAWAITED_MAX)),
        }
    }
}

impl ModernFacade {
    /// Nobody is served any more.
    pub(crate) fn retire(&self) {
        self.exclusive.retired.cancel();
        self.shared.retire();
    }

    /// A place for one more session of this caller. Where there is none, one that nobody uses ends: of a caller who has
    /// more than its share one of its own, else the one that the rule of all such resources says.
    pub(crate) fn place(&self, upstream: &BridgedServer, payer: Payer) -> Result<Share, UpstreamError> {
        self.places.set_max(upstream.config.bridge.sessions_max);
        let (of_all, error) = match self.places.take(payer) {
            Ok(place) => return Ok(place),
            Err(NoShare::NothingLeft) => (true, UpstreamError::TooManyBridged),
            Err(NoShare::TooMuchOfPayer) => (false, UpstreamError::BridgedOfPrincipal),
        };
        // Somebody may use the one that was chosen before it goes: then it is chosen anew.
        while let Some(goes) = self.makes_room_for(payer, of_all) {
            // Another may have taken its place meanwhile: then one more goes, so that there are never many too many.
            if self.end_resting(goes) && self.places.taken() < upstream.config.bridge.sessions_max {
                return Ok(self.places.take_beyond(payer));
            }
        }
        Err(error)
    }

    /// Sessions that nobody uses.
    pub(crate) fn resting(&self) -> impl Iterator<Item = Resting<BridgedRest>> {
        let idle = self.shared.idle().into_iter().chain(self.exclusive.idle());
        idle.map(|(payer, since)| Resting { key: (payer, since), payer, since })
    }

    /// Ends one of them. False: it is none any more.
    pub(crate) fn end_resting(&self, resting: BridgedRest) -> bool {
        self.shared.make_room(resting) || self.exclusive.make_room(resting)
    }

    fn makes_room_for(&self, payer: Payer, of_all: bool) -> Option<BridgedRest> {
        let candidates = self.resting().filter(|resting| of_all || resting.payer == payer);
        let held_by = |holder| self.places.held_by(holder);
        match Fair::AT_ONCE.turn(payer, clock::now(), candidates, held_by) {
            Turn::Instead(goes) => Some(goes),
            Turn::Wait(_) | Turn::Nothing => None,
        }
    }
}

pub(crate) async fn open_session(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    offer: InitializeOffer<'_>,
    payer: Payer,
    deadline: Instant,
) -> Result<InitializedSession, UpstreamError> {
    let limits = client.limits();
    // A process that it takes is the caller's.
    let asker = Asker { payer, ..Asker::of(client, &limits) };
    let opening = initialize::open(&asker, upstream, offer, deadline);
    let opened = if upstream.is_child() {
        // Until then it need not say that it is ready. The wait for its start keeps the same time back.
        match timeout_at(call_told_at(deadline).into(), opening).await {
            Ok(Err(InitializeError::Upstream(error))) if error.is_timeout() => return Err(still_starting()),
            Ok(opened) => opened,
            Err(_) => return Err(still_starting()),
        }
    } else {
        opening.await
    };
    if matches!(opened, Err(InitializeError::Refused { .. })) {
        // It may speak another era by now.
        upstream.facts.doubt();
    }
    let opened = opened?;
    if upstream.facts.known().legacy.introduction().is_none() {
        let servers = &upstream.bridge.as_modern.servers;
        client.read_json(|memory| servers.learn(&opened.result, memory));
    }
    Ok(opened)
}

pub(crate) async fn answer(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    mut request: UpstreamRequest,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    let place = request.attributes.place.take();
    let call = client.read_json(|memory| ModernCall::read(request, deadline, memory));
    let mut call = call.ok_or(UpstreamError::Nonsense)?;
    if let Some(shown) = call.forwarded.shown(&upstream.access.forward)
        && let Some(call) = Arc::get_mut(&mut call)
    {
        call.caller = std::mem::take(&mut call.caller).showing(shown);
    }
    if !call.is_request {
        // Of what modern clients notify, a legacy server learns otherwise, or not at all.
        return Ok(Reply::accepted());
    }
    upstream.bridge.series.requests.modern.inc();
    match call.method {
        Method::Listen => Box::pin(listen::open(client, upstream, call)).await,
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
            let why =
                "tasks are not translated between revisions of MCP: the gateway waits for results itself";
            Ok(answers::refusal(&call, StatusCode::NOT_FOUND, -32601, why).into_reply())
        }
        _ if call.request_state.is_some() => Box::pin(suspended::resume(client, upstream, call)).await,
        _ => make(client, upstream, call, place).await,
    }
}

/// Makes a call, as a task where the server wants that. Its place among those of the upstream goes with one that is answered
/// at once: one that may be asked gives it back while its client answers.
async fn make(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: Arc<ModernCall>,
    place: Option<Arc<CallPlace>>,
) -> Result<Reply, UpstreamError> {
    if let Some(silence) = &call.silence
        && (call.token.is_some() || call.level.is_some())
        && upstream.has_own_connections()
    {
        silence.mark_events();
    }
    let declined = client.read_json(|memory| answers::declined(&call, memory));
    if let Some(answer) = declined {
        return Ok(answer.into_reply());
    }
    let tools = &upstream.task_only;
    if let Some(tool) = tasks::tool(client, upstream, &call).filter(|tool| tools.has(tool)) {
        let reply = Box::pin(make_as_task(client, upstream, &call, &tool)).await?;
        if reply.head.status != StatusCode::NOT_FOUND {
            return Ok(reply);
        }
        // It is no task any more, and nothing was executed.
        tools.remove(&tool);
    }
    let reply = if call.takes_messages() {
        exclusive_pool::call(client, upstream, Arc::clone(&call)).await?
    } else {
        multiplexed::call(client, upstream, Arc::clone(&call), place).await?
    };
    // The server does not call this tool so, and has executed nothing.
    if reply.head.status == StatusCode::NOT_FOUND
        && let Some(tool) = tasks::tool(client, upstream, &call)
    {
        return Box::pin(make_as_task(client, upstream, &call, &tool)).await;
    }
    Ok(reply)
}

/// Makes the call of this tool as a task: on a session of its own if the server may ask meanwhile.
async fn make_as_task(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: &Arc<ModernCall>,
    tool: &str,
) -> Result<Reply, UpstreamError> {
    if !call.takes_messages() {
        return tasks::call(client, upstream, Arc::clone(call), tool).await;
    }
    let call = ModernCall { as_task: true, ..(**call).clone() };
    exclusive_pool::call(client, upstream, Arc::new(call)).await
}
