//! Sessions that share one child process.
//!
//! The child is initialized once, by the gateway and without client capabilities; each `initialize` after that is
//! answered with what the child said then. Subscriptions are counted, and of all log levels the child gets the most
//! verbose, so that no session changes what another sees.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use super::room::PATIENCE;
use crate::access::limit::fair::Resting;
use crate::access::limit::payer::Payer;
use crate::upstream::exchange::Reply;
use crate::upstream::incoming::Incoming;
use crate::upstream::mux::exchange::{CloseOnDrop, MuxPost, pass};
use crate::upstream::mux::sessions::{MuxSessions, SessionHandle};
use crate::upstream::mux::{MuxConnection, ONLY_SESSION};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::UpstreamError;
use protocol::initialize::{self, INITIALIZED, Initialize};
use protocol::json::{Document, Scratch, Value, quote};
use protocol::level::Level;
use protocol::splice::Segments;
use protocol::version::LegacyVersion;

/// The children, by who shares them.
#[derive(Debug, Default)]
pub(super) struct SharedChildren(Mutex<HashMap<Box<[u8]>, ChildSlot>>);

/// Where a child runs, or is opened by whoever has the turn.
type ChildSlot = Arc<Turn<Option<InitializedChild>>>;

/// A child that was initialized.
#[derive(Debug)]
struct InitializedChild {
    connection: MuxConnection,
    /// The result object of `initialize`.
    result: Bytes,
    /// Who is charged for it.
    payer: Payer,
}

impl SharedChildren {
    /// Those that no session has. What is given up is not waited for longer than this.
    pub(super) fn resting(&self, patience: Duration) -> Vec<Resting<MuxConnection>> {
        let slots: Vec<ChildSlot> = self.0.lock().values().map(Arc::clone).collect();
        let resting = slots.iter().filter_map(|slot| {
            // One that is being opened does not rest.
            let opened = slot.try_lock().ok()?;
            let InitializedChild { connection, payer, .. } = opened.as_ref()?;
            let is_free = !connection.is_over() && !connection.has_sessions();
            let since = connection.quiet_since(patience).filter(|_| is_free)?;
            // Without a session, it need not rest as well.
            let since = since.checked_sub(PATIENCE.others_rest_min).unwrap_or(since);
            Some(Resting { key: connection.clone(), payer: *payer, since })
        });
        resting.collect()
    }

    /// Answers `initialize`, by starting and initializing the child if it does not run.
    pub(super) async fn initialize(
        &self,
        caller: &[u8],
        payer: Payer,
        sessions: &MuxSessions,
        start: impl AsyncFnOnce() -> Result<CloseOnDrop, UpstreamError>,
        post: MuxPost<'_>,
    ) -> Result<Reply, UpstreamError> {
        let turn = Arc::clone(self.0.lock().entry(caller.into()).or_default());
        let mut opened = turn.lock().await;
        if opened.as_ref().is_none_or(|opened| opened.connection.is_over()) {
            *opened = None;
            let starting = start().await?;
            match open(starting.connection(), post).await? {
                Ok(result) => *opened = Some(InitializedChild { connection: starting.keep(), result, payer }),
                Err(refusal) => return Ok(Reply::json(refusal)),
            }
        }
        let Some(InitializedChild { connection, result, .. }) = &*opened else {
            return Err(UpstreamError::Reset);
        };
        let handle = SessionHandle { connection: connection.clone(), session: connection.add_session() };
        let id = sessions.keep(handle).ok_or(UpstreamError::Reset)?;
        let mut reply = Reply::json(answer(&post, result));
        reply.head.fields.set_session_id(id);
        Ok(reply)
    }
}

/// Initializes a child. Its refusal, if it refuses, is addressed to the caller.
async fn open(connection: &MuxConnection, post: MuxPost<'_>) -> Result<Result<Bytes, Bytes>, UpstreamError> {
    let mut scratch = Scratch::default();
    let version = {
        let root = scratch.index(post.message, post.json_depth_max).ok().map(Document::root);
        root.and_then(|root| initialize::version(root.get("params")?))
    };
    let id = String::from_utf8_lossy(post.id());
    let initialize = Initialize::own(version.unwrap_or(LegacyVersion::NEWEST));
    let message = Bytes::from(initialize.request(&id));
    let envelope = Envelope::parse(&mut scratch, &message, post.json_depth_max);
    let envelope = envelope.map_err(|_| UpstreamError::Nonsense)?;
    connection.share();
    let reply =
        pass(connection, ONLY_SESSION, MuxPost { message: &message, envelope: &envelope, ..post }).await?;
    // What it was asked before and has not answered by now, it does not answer.
    connection.abandon_own();
    let Incoming::Whole(Some(answer)) = reply.body else { return Err(UpstreamError::Nonsense) };
    let root = scratch.index(&answer, post.json_depth_max).ok().map(Document::root);
    let Some(result) = root.and_then(|root| root.get("result")).map(Value::span) else {
        return Ok(Err(answer));
    };
    connection.tell(Segments::from(INITIALIZED.to_owned())).await?;
    Ok(Ok(answer.slice(result)))
}

/// Answers a message of one of the sessions.
pub(super) async fn post(handle: &SessionHandle, post: MuxPost<'_>) -> Result<Reply, UpstreamError> {
    let SessionHandle { connection, session } = handle;
    match post.envelope.kind {
        // The child was told of no capability that these could be about.
        MessageKind::Response => return Ok(Reply::accepted()),
        MessageKind::Notification if !post.is("notifications/cancelled") => return Ok(Reply::accepted()),
        MessageKind::Notification => return pass(connection, *session, post).await,
        MessageKind::Request => {}
    }
    let uri = || post.envelope.uri.as_ref().and_then(|uri| uri.decode(post.message));
    if post.is("resources/subscribe")
        && let Some(uri) = uri()
    {
        if !connection.subscribe(*session, &uri) {
            return Ok(Reply::json(answer(&post, b"{}")));
        }
        let reply = pass(connection, *session, post).await;
        if !reply.as_ref().is_ok_and(|reply| has_result(reply, post.json_depth_max)) {
            connection.unsubscribe(*session, &uri);
        }
        return reply;
    }
    if post.is("resources/unsubscribe")
        && let Some(uri) = uri()
        && !connection.unsubscribe(*session, &uri)
    {
        return Ok(Reply::json(answer(&post, b"{}")));
    }
    if post.is("logging/setLevel")
        && let Some(level) = level_in(&post)
    {
        let told = connection.set_level(*session, level);
        if told != Some(level) {
            if let Some(told) = told {
                tell_level(connection, told);
            }
            return Ok(Reply::json(answer(&post, b"{}")));
        }
    }
    pass(connection, *session, post).await
}

/// A session is over: what it alone had asked for ends.
pub(super) fn end(handle: &SessionHandle) {
    let (uris, level) = handle.connection.remove_session(handle.session);
    for uri in uris {
        handle.connection.ask_in_passing("resources/unsubscribe", &format!(r#"{{"uri":{}}}"#, quote(&uri)));
    }
    if let Some(level) = level {
        tell_level(&handle.connection, level);
    }
}

fn tell_level(connection: &MuxConnection, level: Level) {
    connection.ask_in_passing("logging/setLevel", &format!(r#"{{"level":{}}}"#, quote(level.as_str())));
}

fn level_in(post: &MuxPost<'_>) -> Option<Level> {
    let mut scratch = Scratch::default();
    let root = scratch.index(post.message, post.json_depth_max).ok()?.root();
    Level::of(&root.get("params")?.get("level")?.as_literal()?.decode(post.message)?)
}

fn has_result(reply: &Reply, json_depth_max: usize) -> bool {
    let Incoming::Whole(Some(answer)) = &reply.body else { return true };
    let mut scratch = Scratch::default();
    scratch.index(answer, json_depth_max).is_ok_and(|answer| answer.root().get("result").is_some())
}

fn answer(post: &MuxPost<'_>, result: &[u8]) -> Bytes {
    [br#"{"jsonrpc":"2.0","id":"#, post.id(), br#","result":"#, result, b"}"].concat().into()
}
