//! Modern requests to a server that speaks the legacy era only.
//!
//! | request | how it is made |
//! |---|---|
//! | of a client that takes questions or log lines | [`exclusive_pool`]: on a session that is its own meanwhile |
//! | with a `requestState` | [`suspended`]: goes on with a call that waits |
//! | `subscriptions/listen` | [`listen`]: on a session that is its own |
//! | any other | [`multiplexed`]: on a session that the principal's calls share |
//! | a notification | 202, and nothing more |

pub(crate) mod answers;
pub(crate) mod call;
pub(crate) mod call_driver;
pub(crate) mod call_reply;
pub(crate) mod exclusive_pool;
pub(crate) mod exclusive_session;
pub(crate) mod listen;
pub(crate) mod multiplexed;
pub(crate) mod open_questions;
pub(crate) mod response_reader;
pub(crate) mod server_message;
pub(crate) mod session_client;
pub(crate) mod session_stream;
pub(crate) mod shared_session;
pub(crate) mod state;
pub(crate) mod stream_progress;
pub(crate) mod suspended;
pub(crate) mod tasks;

use std::sync::Arc;
use std::time::Instant;

use http::{Method as HttpMethod, Request, StatusCode};
use tokio::sync::Semaphore;

use self::answers::IntroductionCache;
use self::call::ModernCall;
use self::shared_session::SharedSessions;
use self::tasks::TaskOnlyTools;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Share, Shares};
use crate::upstream::Upstream;
use crate::upstream::ask::Asker;
use crate::upstream::exchange::{Reply, RequestBody, UpstreamClient};
use crate::upstream::initialize::{self, InitializeError, InitializeOffer, InitializedSession};
use protocol::error::UpstreamError;
use protocol::method::Method;

#[derive(Debug)]
pub(crate) struct ModernFacade {
    /// How many there may be, of any kind; a place is held by each, and whoever takes one sets the bound before.
    pub places: Arc<Shares>,
    /// Sessions that one call at a time has to itself.
    pub exclusive: exclusive_pool::ExclusiveSessions,
    /// Calls that wait for their client's answers.
    pub suspended: suspended::SuspendedCalls,
    pub shared: SharedSessions,
    /// How it introduced itself.
    pub servers: IntroductionCache,
    pub tools: TaskOnlyTools,
    /// Turns to tell it what nobody waits for.
    pub unawaited: Arc<Semaphore>,
}

impl Default for ModernFacade {
    fn default() -> Self {
        Self {
            places: Shares::new(0),
            exclusive: exclusive_pool::ExclusiveSessions::default(),
            suspended: suspended::SuspendedCalls::default(),
            shared: SharedSessions::default(),
            servers: IntroductionCache::default(),
            tools: TaskOnlyTools::default(),
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

    /// A place for one more session of this caller. Where there is none, one that nobody uses ends; of a caller who has
    /// more than its share, one of its own.
    pub(crate) fn place(&self, upstream: &Upstream, payer: Payer) -> Result<Share, UpstreamError> {
        self.places.set_max(upstream.config.bridge.sessions_max);
        let (is_own, error) = match self.places.take(payer) {
            Ok(place) => return Ok(place),
            Err(NoShare::NothingLeft) => (false, UpstreamError::TooManyBridged),
            Err(NoShare::TooMuchOfPayer) => (true, UpstreamError::BridgedOfPrincipal),
        };
        let of_whom = is_own.then_some(payer);
        let has_room = self.shared.make_room(of_whom) || self.exclusive.make_room(of_whom);
        if has_room { Ok(self.places.take_beyond(payer)) } else { Err(error) }
    }
}

pub(crate) async fn open_session(
    client: &UpstreamClient,
    upstream: &Upstream,
    offer: InitializeOffer<'_>,
    deadline: Instant,
) -> Result<InitializedSession, UpstreamError> {
    let limits = client.limits();
    let opened = initialize::open(&Asker::of(client, &limits), upstream, offer, deadline).await;
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
    upstream: &Arc<Upstream>,
    request: Request<RequestBody>,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    if request.method() != HttpMethod::POST {
        return Ok(Reply::empty(StatusCode::METHOD_NOT_ALLOWED));
    }
    let call = client.read_json(|memory| ModernCall::read(request, deadline, memory));
    let Some(call) = call else { return Ok(Reply::empty(StatusCode::BAD_REQUEST)) };
    if !call.is_request() {
        // Of what modern clients notify, a legacy server learns otherwise, or not at all.
        return Ok(Reply::empty(StatusCode::ACCEPTED));
    }
    upstream.bridge.series.requests.modern.inc();
    match call.method {
        Method::Listen => listen::open(client, upstream, call).await,
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
            let why =
                "tasks are not translated between revisions of MCP: the gateway waits for results itself";
            Ok(answers::refusal(&call, StatusCode::NOT_FOUND, -32601, why).into_reply())
        }
        _ if call.request_state.is_some() => suspended::resume(client, upstream, call).await,
        _ => make(client, upstream, call).await,
    }
}

/// Makes a call, as a task where the server wants that.
async fn make(
    client: &UpstreamClient,
    upstream: &Arc<Upstream>,
    call: ModernCall,
) -> Result<Reply, UpstreamError> {
    let declined = client.read_json(|memory| answers::declined(&call, memory));
    if let Some(answer) = declined {
        return Ok(answer.into_reply());
    }
    let call = Arc::new(call);
    let tools = &upstream.bridge.as_modern.tools;
    if let Some(tool) = tasks::tool(client, upstream, &call).filter(|tool| tools.has(tool)) {
        let reply = make_as_task(client, upstream, &call, &tool).await?;
        if reply.head.status != StatusCode::NOT_FOUND {
            return Ok(reply);
        }
        // It is no task any more, and nothing was executed.
        tools.remove(&tool);
    }
    let reply = if call.takes_messages() {
        exclusive_pool::call(client, upstream, Arc::clone(&call)).await?
    } else {
        multiplexed::call(client, upstream, Arc::clone(&call)).await?
    };
    // The server does not call this tool so, and has executed nothing.
    if reply.head.status == StatusCode::NOT_FOUND
        && let Some(tool) = tasks::tool(client, upstream, &call)
    {
        return make_as_task(client, upstream, &call, &tool).await;
    }
    Ok(reply)
}

/// Makes the call of this tool as a task: on a session of its own if the server may ask meanwhile.
async fn make_as_task(
    client: &UpstreamClient,
    upstream: &Arc<Upstream>,
    call: &Arc<ModernCall>,
    tool: &str,
) -> Result<Reply, UpstreamError> {
    if !call.takes_messages() {
        return tasks::call(client, upstream, Arc::clone(call), tool).await;
    }
    let call = ModernCall { as_task: true, ..(**call).clone() };
    exclusive_pool::call(client, upstream, Arc::new(call)).await
}
