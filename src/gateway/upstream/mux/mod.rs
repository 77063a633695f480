//! Upstreams that are reached by one connection which many calls share, such as a child process.
//!
//! A [`MuxConnection`] is the handle that callers on every thread hold; whoever runs the connection holds a [`WriteHalf`]: it writes
//! what [`WriteHalf::next`] gives and hands in what it reads by [`ReadHalf::receive`]. Ids and progress tokens are the connection's own
//! on the connection and the callers' outside. What belongs to a call goes to that call; what belongs to none goes to
//! whoever listens to the session, or waits for one who does.
//!
//! Deliberately not here: how a connection is made, and when it is made again.
//!
//! Invariants: nothing waits under the lock; nobody who reads slowly holds up anybody else on the connection; once the connection is
//! gone, nobody waits for it any more.

mod bounds;
pub(crate) mod exchange;
pub(crate) mod halves;
pub(crate) mod host;
pub(crate) mod incoming_message;
mod listener;
pub(crate) mod outgoing;
pub(crate) mod passed_message;
pub(crate) mod pending_calls;
pub(crate) mod queue;
pub(crate) mod sessions;
mod state;
pub(crate) mod state_owner;
pub(crate) mod unreadable;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

pub(crate) use self::bounds::MuxBounds;
pub(crate) use self::halves::{Disposition, MuxCall, ReadHalf, WriteHalf};
use self::listener::NotificationListener;
use self::pending_calls::{CallRole, PendingCall};
use self::state::{AskedBy, ModernCallers, MuxKind, MuxState, ReplyHandle};
pub(crate) use self::state::{CallsServed, GatewayUse};
use self::state_owner::StateOwner;
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::clock;
use protocol::envelope::Envelope;
use protocol::error::UpstreamError;
use protocol::json::Span;
use protocol::level::Level;
use protocol::method::Method;
use protocol::splice::Segments;
use protocol::version::Era;

const OUTGOING_MAX: usize = 64;
/// The session of a connection that carries only one.
pub(crate) const ONLY_SESSION: u64 = 0;

/// A handle to a connection, for callers on every thread.
#[derive(Clone, Debug)]
pub(crate) struct MuxConnection(Arc<MuxInner>);

#[derive(Debug)]
struct MuxInner {
    state: Mutex<MuxState>,
    outgoing: mpsc::Sender<Segments>,
    closing: CancellationToken,
    gone: CancellationToken,
    /// There is somebody more whom messages may be for.
    entered: Notify,
    /// How often a message began, or ceased, to wait for its reader.
    stalls: AtomicU64,
    bounds: MuxBounds,
}

/// A request on its way into a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MuxRequest<'a> {
    /// Who is charged for what waits of the answer.
    pub payer: Payer,
    pub session: u64,
    pub message: &'a Bytes,
    pub envelope: &'a Envelope,
    /// `traceparent`, `tracestate` and `baggage`.
    pub trace: &'a [Option<&'a str>; 3],
    pub is_own: bool,
    /// Its era: a modern call is cancelled when its reader goes, a legacy one runs on.
    pub era: Era,
    /// When it is too late for its answer; `None`: it is never cancelled.
    pub deadline: Option<Instant>,
    /// Its place among the calls that the upstream may have at once.
    pub place: Option<&'a Arc<CallPlace>>,
    /// Whose its states are, where several principals share the connection.
    pub owner: Option<&'a Arc<StateOwner>>,
}

impl MuxConnection {
    /// A connection, and the ends for whoever runs it.
    pub(crate) fn new(bounds: MuxBounds) -> (Self, WriteHalf, ReadHalf) {
        let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
        let connection = Self(Arc::new(MuxInner {
            state: Mutex::new(MuxState::new()),
            outgoing: sender,
            closing: CancellationToken::new(),
            gone: CancellationToken::new(),
            entered: Notify::new(),
            stalls: AtomicU64::new(0),
            bounds,
        }));
        let (write_half, read_half) = halves::ends(receiver, &connection);
        (connection, write_half, read_half)
    }

    /// Sends a request. What comes for it, its answer last, comes out of the receiver. `Unreachable`: the connection
    /// is over, and the request was not sent.
    pub(crate) async fn call(
        &self,
        request: MuxRequest<'_>,
    ) -> Result<(queue::PieceReceiver, MuxCall), UpstreamError> {
        // Entered only once there is room to send it: a pending call is one that the other side may answer.
        let slot = self.0.outgoing.reserve().await.map_err(|_| UpstreamError::Unreachable)?;
        let MuxRequest { session, message, envelope, trace, is_own, era, deadline, payer, place, owner } =
            request;
        let literal =
            |span: Option<Span>| span.and_then(|span| message.get(span)).map(Bytes::copy_from_slice);
        let is = |name: &str| envelope.method.as_ref().is_some_and(|method| method.equals(message, name));
        let role = if is("subscriptions/listen") {
            if is_own { CallRole::Watch } else { CallRole::Subscription }
        } else if is_own {
            CallRole::Own
        } else {
            CallRole::Call
        };
        let memory = (&self.0.bounds.budget, payer);
        let (sender, receiver) = queue::queue(self.0.bounds.waiting_bytes_max, memory);
        let call = PendingCall {
            id: literal(envelope.id.clone()).unwrap_or_default(),
            token: literal(envelope.meta.as_ref().and_then(|meta| meta.progress_token.clone())),
            session,
            role,
            asks: is_own.then(|| {
                let method = envelope.method.as_ref().and_then(|method| method.decode(message));
                method.map_or(Method::Other, |method| Method::of(&method))
            }),
            is_heard: false,
            handle: Some(ReplyHandle { sender, era, owner: owner.map(Arc::clone) }),
            place: place.cloned(),
        };
        let own = {
            let mut state = self.lock();
            if state.is_closing || state.is_gone {
                return Err(UpstreamError::Unreachable);
            }
            state.used = clock::now();
            if !is_own {
                state.asked_by = AskedBy::Client;
                if state.calls == CallsServed::None {
                    state.calls = CallsServed::Unanswered;
                }
            }
            if is_own { state.pending.enter_own(call, clock::now()) } else { state.pending.enter(call) }
        };
        self.0.entered.notify_one();
        slot.send(outgoing::request(message, envelope, own, trace));
        Ok((receiver, MuxCall { connection: self.clone(), own, era, deadline }))
    }

    pub(crate) async fn tell(&self, message: Segments) -> Result<(), UpstreamError> {
        self.lock().used = clock::now();
        self.0.outgoing.send(message).await.map_err(|_| UpstreamError::Unreachable)
    }

    /// The id under which a call runs that its caller calls `id`.
    pub(crate) fn own_id(&self, session: u64, id: &[u8]) -> Option<u64> {
        self.lock().pending.find(session, id)
    }

    /// The caller wants no answer any more. It gets one all the same, as one that waited on would wait in vain; the
    /// other side's, should there be one, is dropped.
    pub(crate) fn cancel(&self, own: u64) {
        self.lock().cancel(own);
    }

    /// The other side has answered a call in a way that cannot be handed on. False: nobody waits for that.
    pub(crate) fn fail(&self, own: u64, fault: UpstreamError) -> bool {
        self.lock().fail(own, fault)
    }

    pub(crate) fn json_depth_max(&self) -> usize {
        self.0.bounds.json_depth_max
    }

    /// The stream of what belongs to no call of this session. An earlier one ends. `None`: there is no such session.
    pub(crate) fn listen(&self, session: u64) -> Option<queue::PieceReceiver> {
        let mut state = self.lock();
        if state.is_gone {
            return None;
        }
        Some(state.listeners.get_mut(&session)?.open(&self.0.bounds))
    }

    /// From now on the connection carries one session, whose client takes requests. `is_own`: it is the gateway's.
    pub(crate) fn begin_session(&self, is_own: bool) -> u64 {
        let mut state = self.lock();
        (state.kind, state.begun_in) = (MuxKind::Session, is_own.then_some(Era::Legacy));
        state.listeners.entry(ONLY_SESSION).or_insert_with(|| NotificationListener::new(is_own));
        ONLY_SESSION
    }

    /// The era of the questions that begin it, where those are the gateway's own; a client's session begins with what its
    /// client says.
    pub(crate) fn begun_in(&self) -> Option<Era> {
        self.lock().begun_in
    }

    /// True if it carries a session of the gateway's own, in which nothing was asked yet.
    pub(crate) fn is_only_initialized(&self) -> bool {
        let state = self.lock();
        let is_own = state.kind == MuxKind::Session && state.begun_in.is_some();
        is_own && state.own_answered.iter().all(|(method, _)| *method == Method::Initialize)
    }

    /// From now on the connection carries requests of several principals.
    pub(crate) fn make_common(&self) {
        self.lock().callers = ModernCallers::Several;
    }

    /// From now on the connection carries sessions that share one which the gateway opens.
    pub(crate) fn share(&self) {
        let mut state = self.lock();
        (state.kind, state.begun_in) = (MuxKind::Shared, Some(Era::Legacy));
    }

    /// One more session. `is_own`: it is the gateway's.
    pub(crate) fn add_session(&self, is_own: bool) -> u64 {
        let mut state = self.lock();
        let session = state.next_session;
        state.next_session += 1;
        state.listeners.insert(session, NotificationListener::new(is_own));
        self.0.entered.notify_one();
        session
    }

    /// A session is over. Returns the resources that no session is subscribed to any more, and the log level that the
    /// other side is to be told, if it changes.
    pub(crate) fn remove_session(&self, session: u64) -> (Vec<Box<str>>, Option<Level>) {
        let mut state = self.lock();
        let before = state.most_verbose();
        let Some(removed) = state.listeners.remove(&session) else { return (Vec::new(), None) };
        state.used = clock::now();
        let mut uris = removed.uris();
        uris.retain(|uri| state.listeners.values().all(|listener| !listener.is_subscribed(uri)));
        let after = state.most_verbose();
        (uris, after.filter(|after| before != Some(*after)))
    }

    /// True if this session is the first to subscribe to the resource.
    pub(crate) fn subscribe(&self, session: u64, uri: &str) -> bool {
        let mut state = self.lock();
        let is_first = state.listeners.values().all(|listener| !listener.is_subscribed(uri));
        if let Some(listener) = state.listeners.get_mut(&session) {
            listener.subscribe(uri);
        }
        is_first
    }

    /// True if no session is subscribed to the resource any more.
    pub(crate) fn unsubscribe(&self, session: u64, uri: &str) -> bool {
        let mut state = self.lock();
        if let Some(listener) = state.listeners.get_mut(&session) {
            listener.unsubscribe(uri);
        }
        state.listeners.values().all(|listener| !listener.is_subscribed(uri))
    }

    /// A session's log level. Returns what the other side is to be told, if that changes.
    pub(crate) fn set_level(&self, session: u64, level: Level) -> Option<Level> {
        let mut state = self.lock();
        let before = state.most_verbose();
        state.listeners.get_mut(&session)?.level = Some(level);
        state.most_verbose().filter(|after| before != Some(*after))
    }

    /// Sends a request whose answer nobody waits for. `params` is JSON. It is lost if the other side does not read.
    pub(crate) fn ask_in_passing(&self, method: &str, params: &str) {
        let (sender, _) = queue::queue(0, self.0.bounds.memory());
        let handle = ReplyHandle { sender, era: Era::Legacy, owner: None };
        let call = PendingCall {
            id: Bytes::new(),
            token: None,
            session: ONLY_SESSION,
            role: CallRole::Own,
            asks: Some(Method::of(method)),
            is_heard: false,
            handle: Some(handle),
            place: None,
        };
        let own = {
            let mut state = self.lock();
            state.pending.give_up_own(clock::now());
            let own = state.pending.enter_own(call, clock::now());
            state.pending.abandon(own);
            own
        };
        let request = format!(r#"{{"jsonrpc":"2.0","id":{own},"method":"{method}","params":{params}}}"#);
        self.try_tell(Segments::from(request));
    }

    pub(crate) fn close(&self) {
        self.close_if(|_| true);
    }

    /// Asks the connection to end if no session of a client needs it and nobody used it for so long. True if it is to end.
    pub(crate) fn close_if_unused_for(&self, idle: Duration, by_gateway: GatewayUse) -> bool {
        self.close_if(|state| state.is_unused(by_gateway) && clock::since(state.used) >= idle)
    }

    /// Asks the connection to end if nobody waits for an answer, but to be told of changes. True if it is to end.
    pub(crate) fn close_if_uncalled(&self) -> bool {
        self.close_if(|state| !state.pending.has_calls())
    }

    /// Asks the connection to end if nothing is under way, as [`quiet_since`](Self::quiet_since) has it, and no session is
    /// carried over it that others share. True if it is to end.
    pub(crate) fn close_if_quiet(&self, patience: Duration) -> bool {
        self.close_if(|state| state.listeners.is_empty() && state.is_quiet(patience))
    }

    /// Whether it carries a session.
    pub(crate) fn has_sessions(&self) -> bool {
        !self.lock().listeners.is_empty()
    }

    /// Under one lock with the condition, so that no call comes in between.
    fn close_if(&self, condition: impl FnOnce(&MuxState) -> bool) -> bool {
        let mut state = self.lock();
        state.is_closing |= condition(&state);
        if state.is_closing {
            self.0.closing.cancel();
        }
        state.is_closing
    }

    /// Completes once somebody asked the connection to end.
    pub(crate) async fn closing(&self) {
        self.0.closing.cancelled().await;
    }

    /// Completes once nothing comes from the other side any more.
    pub(crate) async fn gone(&self) {
        self.0.gone.cancelled().await;
    }

    pub(crate) fn is_over(&self) -> bool {
        // Without a write half it can be asked nothing more.
        self.0.gone.is_cancelled() || self.0.closing.is_cancelled() || self.0.outgoing.is_closed()
    }

    /// Since when nothing is under way, not even what nobody waits for, unless it was given up `patience` ago. `None`:
    /// something is.
    pub(crate) fn quiet_since(&self, patience: Duration) -> Option<Instant> {
        let state = self.lock();
        state.is_quiet(patience).then_some(state.used)
    }

    /// Nothing yet of the memory for messages.
    pub(crate) fn open_share(&self) -> Share {
        self.0.bounds.budget.open(self.0.bounds.payer)
    }

    /// True if nobody but the gateway waits for an answer.
    pub(crate) fn is_own(&self) -> bool {
        self.lock().pending.is_own()
    }

    /// What the gateway has asked is not waited for any more: it is taken for not answered in time.
    pub(crate) fn abandon_own(&self) {
        self.lock().pending.abandon_own();
    }

    /// How often a message began, or ceased, to wait for its reader: while it is odd, what comes after one is not read.
    pub(crate) fn stalls(&self) -> u64 {
        self.0.stalls.load(Ordering::Relaxed)
    }

    /// True if the other side has answered anything.
    pub(crate) fn has_answered(&self) -> bool {
        self.lock().has_answered
    }

    /// True if a client has asked the other side, or told it, anything: its end may be that client's doing.
    pub(crate) fn has_client(&self) -> bool {
        self.lock().asked_by == AskedBy::Client
    }

    /// The outcome of the requests of clients.
    pub(crate) fn calls_served(&self) -> CallsServed {
        self.lock().calls
    }

    /// A client tells the other side something.
    pub(crate) fn note_client(&self) {
        self.lock().asked_by = AskedBy::Client;
    }

    /// True if the gateway alone had asked the other side, and waited for an answer when it ended.
    pub(crate) fn was_asked_at_end(&self) -> bool {
        self.lock().asked_by == AskedBy::GatewayAtEnd
    }

    /// The question of the gateway's own at which the other side ended, where that was no client's doing.
    pub(crate) fn ended_at(&self) -> Option<Method> {
        self.lock().ended_at
    }

    /// True if it has answered this question of the gateway's own at least so long ago.
    pub(crate) fn has_answered_own(&self, question: Method, age: Duration) -> bool {
        let state = self.lock();
        state.own_answered.iter().any(|(method, at)| *method == question && clock::since(*at) >= age)
    }

    fn lock(&self) -> MutexGuard<'_, MuxState> {
        self.0.state.lock()
    }

    /// Sends what may be lost when the other side does not read.
    fn try_tell(&self, message: Segments) {
        if self.0.outgoing.try_send(message).is_err() {
            tracing::debug!("a message to an upstream that does not read is dropped");
        }
    }
}

#[cfg(test)]
mod tests;
