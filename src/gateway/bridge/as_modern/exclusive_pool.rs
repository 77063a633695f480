//! Calls during which the server may ask their client: each has a session to itself.
//!
//! Sessions are kept for a while and used again by calls of the same principal whose client says the same of itself:
//! a server may look at that at any time. Each is kept by a task ([`super::exclusive_session`]); here is which of them
//! rest. One of the caller's own thread is taken out of its [`SessionSlot`], one of another is told the call.
//!
//! Invariant: a session that rests is taken by one call.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::call::ModernCall;
use super::call_reply::{CallReplySink, HeadPatience};
use super::direct_call;
use super::exclusive_session::{self, SessionCommand, SessionSetup};
use super::session_slot::SessionSlot;
use crate::access::limit::digest::{Digest, Digester, IdentityHash};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::bridge::BridgedServer;
use crate::clock;
use crate::upstream::exchange::{Reply, UpstreamClient};
use protocol::error::UpstreamError;
use protocol::json::{Document, Scratch};
use protocol::level::Level;
use protocol::translation::capabilities::across;

/// What a session is opened for: calls for which all of it is the same may use it.
#[derive(Debug)]
pub(crate) struct SessionKey {
    /// Of all that a call says of it.
    digest: Digest,
    /// Who calls.
    pub principal: Arc<str>,
    /// Who is charged for it: where nobody is told apart by name, addresses are.
    pub payer: Payer,
    /// What the client can do, as the server is told it.
    pub capabilities: Box<str>,
    /// Which log lines the client wants, if any.
    pub level: Option<Level>,
    client_info: Option<Box<str>>,
    /// The headers that are handed on, as the client has shown them.
    pub shown: Option<Arc<HeaderMap>>,
}

/// How a client introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BridgedClientInfo {
    pub name: String,
    /// `title`; empty: none.
    pub title: String,
    pub version: String,
}

/// Sessions that end at once: a server that has many of them is not told so by all together.
const ENDING_MAX: usize = 64;

/// The sessions that rest.
#[derive(Debug)]
pub(crate) struct ExclusiveSessions {
    /// The upstream is no longer configured.
    pub retired: CancellationToken,
    /// Turns of those that end.
    pub ending: Semaphore,
    digester: Digester,
    table: Mutex<ExclusiveTable>,
}

#[derive(Debug, Default)]
struct ExclusiveTable {
    next: u64,
    /// By what they were opened for, and by their numbers.
    resting: HashMap<Digest, BTreeMap<u64, IdleSession>, IdentityHash>,
    /// Since when each rests, and what it was opened for, the one that rests longest first.
    order: BTreeMap<u64, (Instant, Arc<SessionKey>)>,
}

#[derive(Debug)]
struct IdleSession {
    thread: ThreadId,
    /// What its thread knows it by.
    number: u64,
    commands: mpsc::Sender<SessionCommand>,
    place: Arc<Mutex<Share>>,
}

/// That a session rests. Dropped, it does so no longer.
#[derive(Debug)]
pub(crate) struct IdleGuard {
    sessions: Arc<ExclusiveSessions>,
    number: u64,
}

pub(crate) async fn call(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: Arc<ModernCall>,
) -> Result<Reply, UpstreamError> {
    let server = &upstream.bridge.as_modern;
    let digest = server.exclusive.digest(&call);
    let patience = HeadPatience::new(call.deadline);
    while let Some(idle) = server.exclusive.take(digest) {
        if let Some((slot, session)) = SessionSlot::take(idle.number) {
            // Written where it stays: it is many kilobytes, which nobody needs to move.
            let calling =
                Box::write(Box::new_uninit(), direct_call::call(client, upstream, call, (slot, session)));
            return Box::into_pin(calling).await;
        }
        let (reply, waiting) = CallReplySink::new(client, Arc::clone(&call));
        // Else its thread is gone.
        if idle.commands.try_send(SessionCommand::Call(Box::new(reply))).is_ok() {
            return waiting.reply(patience).await;
        }
    }
    let place = server.place(upstream, call.caller.payer)?;
    let key = client.read_json(|memory| SessionKey::of(&call, digest, memory));
    let opening =
        SessionSetup { client: client.clone(), upstream: upstream.clone(), key: Arc::new(key), place };
    let (reply, waiting) = CallReplySink::new(client, call);
    client.host.run(exclusive_session::run(opening, Box::new(reply)));
    waiting.reply(patience).await
}

impl SessionKey {
    fn of(call: &ModernCall, digest: Digest, memory: (&mut Scratch, usize)) -> Self {
        Self {
            digest,
            principal: Arc::clone(call.caller.sessions_of()),
            payer: call.caller.payer,
            capabilities: String::from_utf8_lossy(&across(&call.capabilities, memory)).into(),
            level: call.level,
            client_info: call.client_info.clone(),
            shown: call.caller.shown.clone(),
        }
    }

    pub(crate) fn client_info(&self, client: &UpstreamClient) -> BridgedClientInfo {
        let Some(info) = &self.client_info else {
            return BridgedClientInfo {
                name: "unknown".into(),
                version: "0".into(),
                ..BridgedClientInfo::default()
            };
        };
        let text = Bytes::copy_from_slice(info.as_bytes());
        client.read_json(|(scratch, depth_max)| {
            let root = scratch.index(&text, depth_max).map(Document::root).ok();
            let member = |key: &str| {
                let value = root.and_then(|root| root.get(key)?.as_literal()?.decode(&text));
                value.map(std::borrow::Cow::into_owned).unwrap_or_default()
            };
            BridgedClientInfo { name: member("name"), title: member("title"), version: member("version") }
        })
    }
}

impl Default for ExclusiveSessions {
    fn default() -> Self {
        Self {
            retired: CancellationToken::new(),
            ending: Semaphore::new(ENDING_MAX),
            digester: Digester::default(),
            table: Mutex::default(),
        }
    }
}

impl ExclusiveSessions {
    /// Which sessions a call may use.
    fn digest(&self, call: &ModernCall) -> Digest {
        let ModernCall { caller, capabilities, level, client_info, .. } = call;
        let mut digest = self.digester.start();
        digest.part(Some(caller.sessions_of().as_bytes()));
        digest.part(Some(&caller.payer.to_bytes()));
        digest.part(Some(capabilities));
        digest.part(level.map(|level| level.as_str().as_bytes()));
        digest.part(client_info.as_ref().map(|info| info.as_bytes()));
        digest.finish()
    }

    /// Takes a session that rests, of this thread where there is one.
    fn take(&self, digest: Digest) -> Option<IdleSession> {
        let thread = std::thread::current().id();
        let mut table = self.table.lock();
        let entries = table.resting.get(&digest)?;
        let own = entries.iter().rfind(|(_, entry)| entry.thread == thread);
        let number = *own.or_else(|| entries.last_key_value())?.0;
        table.remove(number)
    }

    /// Of each session that rests: who is charged for it, and since when it does.
    pub(crate) fn idle(&self) -> Vec<(Payer, Instant)> {
        self.table.lock().order.values().map(|(since, key)| (key.payer, *since)).collect()
    }

    /// Ends the session of a payer that has been resting since then. False: there is none.
    pub(crate) fn make_room(&self, (payer, since): (Payer, Instant)) -> bool {
        let mut table = self.table.lock();
        let is_meant =
            |(own_since, key): &(Instant, Arc<SessionKey>)| key.payer == payer && *own_since == since;
        let found = table.order.iter().find(|(_, resting)| is_meant(resting)).map(|(number, _)| *number);
        let entry = found.and_then(|number| table.remove(number));
        drop(table);
        let Some(IdleSession { commands, place, .. }) = entry else { return false };
        place.lock().clear();
        // One whose thread is gone makes room as well.
        let _ = commands.try_send(SessionCommand::Close);
        true
    }
}

impl ExclusiveTable {
    fn remove(&mut self, number: u64) -> Option<IdleSession> {
        let (_, key) = self.order.remove(&number)?;
        let entries = self.resting.get_mut(&key.digest)?;
        let entry = entries.remove(&number);
        if entries.is_empty() {
            self.resting.remove(&key.digest);
        }
        entry
    }
}

impl IdleGuard {
    /// From now on the session rests that its thread knows by this number.
    pub(crate) fn begin(
        sessions: &Arc<ExclusiveSessions>,
        key: &Arc<SessionKey>,
        number: u64,
        commands: mpsc::Sender<SessionCommand>,
        place: &Arc<Mutex<Share>>,
    ) -> Self {
        let mut table = sessions.table.lock();
        let entry =
            IdleSession { thread: std::thread::current().id(), number, commands, place: Arc::clone(place) };
        table.next += 1;
        let number = table.next;
        table.resting.entry(key.digest).or_default().insert(number, entry);
        table.order.insert(number, (clock::now(), Arc::clone(key)));
        drop(table);
        Self { sessions: Arc::clone(sessions), number }
    }

    /// It rests no longer. False: it was taken already.
    pub(crate) fn end(&self) -> bool {
        self.sessions.table.lock().remove(self.number).is_some()
    }
}

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::limit::shares::Shares;

    fn key(sessions: &ExclusiveSessions, principal: &str) -> Arc<SessionKey> {
        let capabilities = "{}".into();
        let payer = Payer::principal(principal);
        let mut digest = sessions.digester.start();
        digest.part(Some(principal.as_bytes()));
        Arc::new(SessionKey {
            digest: digest.finish(),
            principal: principal.into(),
            payer,
            capabilities,
            level: None,
            shown: None,
            client_info: None,
        })
    }

    #[test]
    fn a_session_rests_for_its_key_and_is_taken_once() {
        let (sessions, (commands, mut other_end)) = (Arc::<ExclusiveSessions>::default(), mpsc::channel(1));
        let key = |principal: &str| key(&sessions, principal);
        let places = Shares::new(9);
        let place = Arc::new(Mutex::new(places.take(Payer::principal("p")).expect("a place")));
        let resting = IdleGuard::begin(&sessions, &key("p"), 1, commands.clone(), &place);
        assert!(sessions.take(key("q").digest).is_none());
        assert!(sessions.take(key("p").digest).is_some());
        assert!(sessions.take(key("p").digest).is_none());
        assert!(!resting.end());
        drop(IdleGuard::begin(&sessions, &key("p"), 1, commands.clone(), &place));
        assert!(sessions.table.lock().resting.is_empty(), "nothing is left of one that went by itself");
        assert!(sessions.table.lock().order.is_empty());
        let (_first, _second) = (
            IdleGuard::begin(&sessions, &key("p"), 1, commands.clone(), &place),
            IdleGuard::begin(&sessions, &key("q"), 2, commands, &place),
        );
        let idle = sessions.idle();
        assert_eq!(idle[0].0, Payer::principal("p"));
        assert!(!sessions.make_room((Payer::principal("r"), idle[0].1)));
        assert_eq!(places.taken(), 1);
        assert!(sessions.make_room(idle[0]));
        assert_eq!(places.taken(), 0, "another may have its place");
        assert!(matches!(other_end.try_recv(), Ok(SessionCommand::Close)));
        assert!(sessions.take(key("p").digest).is_none() && sessions.take(key("q").digest).is_some());
        assert!(sessions.idle().is_empty() && !sessions.make_room(idle[0]));
    }
}
