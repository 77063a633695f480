//! The way to one session of a legacy server: what it is told and asked in the gateway's own name, and its end.
//!
//! Deliberately not here: calls ([`super::response_reader`]), and what the server says beside its answers
//! ([`super::session_stream`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::time::timeout;

use super::server_message::{self, CallIds, ServerMessage};
use crate::bridge::{Bridge, BridgedServer};
use crate::clock;
use crate::upstream::ask::{AskReply, AskRequest, Asker, SessionHeaders};
use crate::upstream::changes::ChangedList;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::initialize::InitializedSession;
use crate::upstream::{ReplicaKey, get_stream};
use protocol::error::UpstreamError;
use protocol::translation::question::unasked_answer;

/// Messages that nobody waits for, on their way at once; of more, the last wait.
pub(crate) const UNAWAITED_MAX: usize = 64;
/// So many may wait: all that a listener's clients had under way, should they leave at once. Of more, the last are not
/// sent.
const WAITING_MAX: usize = 8192;
const UNAWAITED_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of what the server answers.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A session with a legacy server, as requests name it.
#[derive(Clone, Debug)]
pub(crate) struct SessionName {
    /// `None` for a server that gives none.
    pub id: Option<HeaderValue>,
    version: &'static str,
    /// The replica that knows it.
    pub replica: Option<ReplicaKey>,
    /// The headers that are handed on, as its client has shown them.
    shown: Option<Arc<HeaderMap>>,
}

/// The way to one session of a server.
#[derive(Debug)]
pub(crate) struct SessionClient {
    pub client: UpstreamClient,
    pub bridge: Arc<Bridge>,
    pub session: SessionName,
    upstream: RefCell<BridgedServer>,
}

impl From<&InitializedSession> for SessionName {
    fn from(opened: &InitializedSession) -> Self {
        let (id, shown) = (opened.id.clone(), opened.shown.clone());
        Self { id, version: opened.version.as_str(), replica: opened.replica, shown }
    }
}

impl SessionName {
    pub(crate) fn named(&self) -> SessionHeaders<'_> {
        let (id, shown) = (self.id.as_ref(), self.shown.clone());
        SessionHeaders { id, version: Some(self.version), replica: self.replica, shown }
    }

    /// The headers of a message in it.
    pub(crate) fn headers(&self) -> HeaderMap {
        self.named().to_map()
    }
}

impl SessionClient {
    pub(crate) fn new(client: &UpstreamClient, upstream: &BridgedServer, session: SessionName) -> Rc<Self> {
        let (client, bridge) = (client.clone(), Arc::clone(&upstream.bridge));
        Rc::new(Self { client, bridge, session, upstream: RefCell::new(upstream.clone()) })
    }

    /// The upstream as it is configured now, or was when it last was.
    pub(crate) fn upstream(&self) -> BridgedServer {
        if let Some(now) = self.bridge.server() {
            *self.upstream.borrow_mut() = now;
        }
        self.upstream.borrow().clone()
    }

    /// Asks in the gateway's own name.
    pub(crate) async fn ask(
        &self,
        message: impl Into<Bytes>,
        patience: Duration,
    ) -> Result<AskReply, UpstreamError> {
        let question = AskRequest {
            headers: self.session.headers(),
            body: message.into(),
            is_safe_to_repeat: false,
            replica: self.session.replica,
            bytes_max: ANSWER_BYTES_MAX,
            deadline: clock::now() + patience,
        };
        let limits = self.client.limits();
        Asker::of(&self.client, &limits).ask(&self.upstream(), question).await
    }

    /// Tells the server something that has no answer.
    pub(crate) async fn tell(self: Rc<Self>, message: Bytes) -> Result<(), UpstreamError> {
        let patience = self.upstream().config.response_timeout;
        let answer = self.ask(message, patience).await?;
        if answer.status.is_success() { Ok(()) } else { Err(UpstreamError::SessionLost) }
    }

    /// As [`tell`](Self::tell), while nobody waits for it: cancellations, and answers to requests that reach no client.
    pub(crate) fn tell_unawaited(self: &Rc<Self>, message: impl Into<Bytes>) {
        let turns = &self.bridge.as_modern.unawaited;
        // The bridge itself holds one.
        if Arc::strong_count(turns) > WAITING_MAX {
            return;
        }
        let (turns, server, message) = (Arc::clone(turns), Rc::clone(self), message.into());
        self.client.host.run(async move {
            let Ok(_turn) = turns.acquire().await else { return };
            if let Err(error) = server.ask(message, UNAWAITED_TIMEOUT).await {
                tracing::debug!(upstream = server.upstream().config.name, %error, "cannot tell the server");
            }
        });
    }

    /// Says that nobody waits for the answer to the request with this id, a literal.
    pub(crate) fn cancel(self: &Rc<Self>, id: &str) {
        self.tell_unawaited(cancellation(id, "the client has left"));
    }

    /// Takes what is for no call: answers what the server asks, where there is nobody to be asked, and notes that lists
    /// have changed.
    pub(crate) fn refuse(self: &Rc<Self>, message: &Bytes) {
        match server_message::read(self, message, CallIds::NONE) {
            Some(ServerMessage::Request { id, is_ping }) => self.tell_unawaited(unasked_answer(&id, is_ping)),
            Some(ServerMessage::ListChanged(changed)) => self.overhear(changed),
            _ => {}
        }
    }

    /// The server has told this session that a list has changed.
    pub(crate) fn overhear(&self, changed: ChangedList) {
        self.upstream().changes.overhear(changed);
    }

    /// Whether the server knows the session; `None` if it does not say.
    pub(crate) async fn is_known(&self) -> Option<bool> {
        let limits = self.client.limits();
        let asker = Asker::of(&self.client, &limits);
        get_stream::is_session_known(&asker, &self.upstream(), self.session.named()).await
    }

    /// Whether the server gave no session id: then it has lost no session, whatever it answers.
    pub(crate) fn is_sessionless(&self) -> bool {
        self.session.id.is_none()
    }

    /// What a call fails with that is not sent again in another session.
    pub(crate) fn lost(&self) -> UpstreamError {
        if self.is_sessionless() { UpstreamError::Nonsense } else { UpstreamError::SessionLost }
    }

    /// Ends the session. `false`: the server keeps it until it forgets it by itself.
    pub(crate) async fn close(&self, patience: Duration) -> bool {
        let limits = self.client.limits();
        let asker = Asker::of(&self.client, &limits);
        let deadline = clock::now() + patience;
        asker.close_session(&self.upstream(), self.session.named(), deadline).await.unwrap_or(false)
    }

    /// Ends the session of one that makes room for another: at once, and without telling the server where as many tell it
    /// already as may at once. Its place would be held for as long.
    pub(crate) async fn close_now(&self, patience: Duration) {
        if let Ok(_turn) = self.bridge.as_modern.exclusive.ending.try_acquire() {
            tokio::select! {
                _ = self.close(patience) => {}
                () = self.client.host.cut() => {}
            }
        }
    }

    /// Tells the server the last: with others in turn, and with this much patience from then on.
    pub(crate) async fn last(&self, patience: Duration, telling: impl Future) {
        let in_turn = async {
            // Never closed.
            let _turn = self.bridge.as_modern.exclusive.ending.acquire().await;
            let _ = timeout(patience, telling).await;
        };
        tokio::select! {
            () = in_turn => {}
            () = self.client.host.cut() => {}
        }
    }
}

/// Takes the request with this id, a literal, back.
pub(crate) fn cancellation(id: &str, why: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"{why}"}}}}"#
    )
}
