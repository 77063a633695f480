//! Sessions that share one child process.
//!
//! The child is initialized once, by the gateway and without client capabilities; each `initialize` after that is
//! answered with what the child said then. Subscriptions are counted, and of all log levels the child gets the most
//! verbose, so that no session changes what another sees.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::launch::{StartPayers, count_client, has_client};
use super::own_initialize::{answer_to, refuses_revision, result_of};
use super::room::PATIENCE;
use super::{Children, not_started};
use crate::access::limit::fair::Resting;
use crate::access::limit::payer::Payer;
use crate::flight::Landing;
use crate::upstream::exchange::Reply;
use crate::upstream::facts::KnownEras;
use crate::upstream::incoming::Incoming;
use crate::upstream::mux::exchange::{ConnectRequest, MuxPost, ask_to_initialize, pass};
use crate::upstream::mux::host::Host;
use crate::upstream::mux::sessions::SessionHandle;
use crate::upstream::mux::{MuxConnection, ONLY_SESSION};
use protocol::envelope::MessageKind;
use protocol::error::UpstreamError;
use protocol::initialize::{self, INITIALIZED, Initialize};
use protocol::json::{Scratch, quote};
use protocol::level::Level;
use protocol::splice::Segments;
use protocol::version::LegacyVersion;

/// A longer refusal is not kept.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// The children that are up, by who shares them.
#[derive(Debug, Default)]
pub(super) struct SharedChildren {
    opened: Mutex<HashMap<Box<[u8]>, InitializedChild>>,
    /// The last answer of one for everybody that refused to initialize.
    refusal: Mutex<Option<Bytes>>,
}

/// A child that was initialized.
#[derive(Clone, Debug)]
pub(super) struct InitializedChild {
    connection: MuxConnection,
    /// The result object of `initialize`.
    result: Bytes,
    /// The payer that is charged for it.
    payer: Payer,
}

/// The outcome of a start.
pub(super) type SharedOutcome = Result<SharedOpening, UpstreamError>;

/// A child, or what it answered to `initialize` where it refused that.
#[derive(Clone, Debug)]
pub(super) enum SharedOpening {
    Opened(InitializedChild),
    Refused(Bytes),
}

/// One start, as a task of its own.
struct SharedStart {
    children: Arc<Children>,
    landing: Landing<Box<[u8]>, SharedOutcome>,
    caller: Box<[u8]>,
    asker: Payer,
    /// The payer that is charged for it.
    payer: Payer,
    version: LegacyVersion,
    json_depth_max: usize,
    facts: Arc<KnownEras>,
}

impl SharedChildren {
    /// Those that no session has. What is given up is not waited for longer than this.
    pub(super) fn resting(&self, patience: Duration) -> Vec<Resting<MuxConnection>> {
        let opened = self.opened.lock();
        let resting = opened.values().filter_map(|opened| {
            let InitializedChild { connection, payer, .. } = opened;
            let is_free = !connection.is_over() && !connection.has_sessions();
            let since = connection.quiet_since(patience).filter(|_| is_free)?;
            // Without a session, it need not rest as well.
            let since = since.checked_sub(PATIENCE.others_rest_min).unwrap_or(since);
            Some(Resting { key: connection.clone(), payer: *payer, since })
        });
        resting.collect()
    }

    fn running(&self, caller: &[u8]) -> Option<InitializedChild> {
        self.opened.lock().get(caller).filter(|opened| !opened.connection.is_over()).cloned()
    }

    fn keep(&self, caller: Box<[u8]>, opened: InitializedChild) {
        let mut all = self.opened.lock();
        all.retain(|_, opened| !opened.connection.is_over());
        all.insert(caller, opened);
    }

    fn note_refusal(&self, refusal: Option<&Bytes>) {
        let kept = refusal.filter(|refusal| refusal.len() <= REFUSAL_BYTES_MAX);
        *self.refusal.lock() = kept.map(|refusal| Bytes::copy_from_slice(refusal));
    }
}

impl Children {
    /// Answers `initialize` of a session that shares its process, which is started and initialized if it does not run.
    pub(super) async fn open_shared(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        post: MuxPost<'_>,
    ) -> Result<Reply, UpstreamError> {
        let principal = asking.principal.filter(|_| !self.is_for_all());
        let caller = principal.unwrap_or_default().as_bytes();
        let opened = match self.shared.running(caller) {
            Some(running) => running,
            None => match self.start_shared(asking, &post, caller).await? {
                SharedOpening::Opened(opened) => opened,
                SharedOpening::Refused(refusal) => {
                    let (refusal, _) = answer_to(post.id(), &refusal, post.json_depth_max)?;
                    return Ok(Reply::json(refusal));
                }
            },
        };
        let InitializedChild { connection, result, .. } = opened;
        let is_own = asking.payer == Payer::GATEWAY;
        let handle = SessionHandle { session: connection.add_session(is_own), connection };
        let id = self.sessions.keep(handle).ok_or(UpstreamError::Reset)?;
        let mut reply = Reply::json(answer(&post, &result));
        reply.head.fields.set_session_id(id);
        Ok(reply)
    }

    async fn start_shared(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        post: &MuxPost<'_>,
        caller: &[u8],
    ) -> SharedOutcome {
        self.check_start_of(asking.payer)?;
        let (flight, landing) = self.shared_starts.join(&caller.into()).parts();
        let _client = count_client(asking, &flight);
        if let Some(landing) = landing {
            if let Some(running) = self.shared.running(caller) {
                landing.land(Ok(SharedOpening::Opened(running.clone())));
                return Ok(SharedOpening::Opened(running));
            }
            // A process for all whom nobody tells apart is nobody's own.
            let payer = if caller.is_empty() { Payer::GATEWAY } else { asking.payer };
            if payer == Payer::GATEWAY
                && let Some(wait) = self.initialize_pause(asking.payer)
            {
                let refusal = self.shared.refusal.lock().clone();
                let told = refusal.map(SharedOpening::Refused).ok_or_else(|| not_started(wait));
                landing.land(told.clone());
                return told;
            }
            let start = SharedStart {
                children: Arc::clone(self),
                landing,
                caller: caller.into(),
                asker: asking.payer,
                payer,
                version: version_in(post).unwrap_or(LegacyVersion::NEWEST),
                json_depth_max: post.json_depth_max,
                facts: Arc::clone(&asking.upstream.facts),
            };
            let run = move |host: &Rc<Host>| {
                host.run(start.run(Rc::clone(host)));
                Ok(())
            };
            asking.client.host.on_worker(run).await?;
        }
        self.wait_for_start(asking, flight.landed()).await
    }
}

impl SharedStart {
    async fn run(self, host: Rc<Host>) {
        let Self { children, landing, caller, asker, payer, version, json_depth_max, facts } = self;
        let turn = children.common_turn(&caller).await;
        let running = turn.as_ref().and_then(|_| children.take_asked_in_vain(&facts));
        let message = Bytes::from(Initialize::own(version).request("1"));
        let ask = async |connection, _| open(&connection, &message, payer, json_depth_max).await;
        let has_client = || has_client(&landing.flight);
        let payers = StartPayers { payer, asker };
        let opened = children.launch_and_ask(&host, payers, running, has_client, ask).await;
        let opened = opened.and_then(|(starting, opened)| Ok((starting, opened?)));
        landing.land(opened.map(|(starting, opened)| match opened {
            Ok(result) => {
                children.introductions.note(payer, result.clone());
                if payer == Payer::GATEWAY {
                    children.note_initialized(asker, true);
                    children.shared.note_refusal(None);
                }
                let opened = InitializedChild { connection: starting.keep(), result, payer };
                children.shared.keep(caller, opened.clone());
                SharedOpening::Opened(opened)
            }
            Err(refusal) => {
                if payer == Payer::GATEWAY && !refuses_revision(&message, &refusal, json_depth_max) {
                    children.note_initialized(asker, false);
                    children.shared.note_refusal(Some(&refusal));
                }
                SharedOpening::Refused(refusal)
            }
        }));
    }
}

fn version_in(post: &MuxPost<'_>) -> Option<LegacyVersion> {
    let mut scratch = Scratch::default();
    let root = scratch.index(post.message, post.json_depth_max).ok()?.root();
    initialize::version(root.get("params")?)
}

/// Initializes a child: the result, or the answer of one that refuses.
async fn open(
    connection: &MuxConnection,
    message: &Bytes,
    payer: Payer,
    json_depth_max: usize,
) -> Result<Result<Bytes, Bytes>, UpstreamError> {
    connection.share();
    let answer = ask_to_initialize(connection, ONLY_SESSION, message, payer, json_depth_max).await?;
    // What it was asked before and has not answered by now, it does not answer.
    connection.abandon_own();
    let Some(result) = result_of(&answer, json_depth_max) else { return Ok(Err(answer)) };
    connection.tell(Segments::from(INITIALIZED.to_owned())).await?;
    Ok(Ok(result))
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
