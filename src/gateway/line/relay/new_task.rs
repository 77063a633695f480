//! Remembers who made a task, from the reply that makes it. Reads along and changes nothing.
//!
//! Only replies to requests that may be answered with a task are read, and of those only what may be the short result
//! that makes one: of a reply that is longer than [`BYTES_MAX`] nothing is kept, and a task in it is nobody's.
//!
//! Invariant: a task is remembered before the last byte of the reply that makes it is handed on.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::access::caller::Caller;
use crate::mapper::is_same_text;
use crate::session::tasks::{Origin, TaskOf};
use crate::session::{SessionId, Sessions};
use crate::snapshot::Endpoint;
use protocol::json::{Document, Scratch, Value};
use protocol::sse::Events;
use protocol::task::{self, Made};

const BYTES_MAX: usize = 64 * 1024;

/// Whose the task is that a reply may make.
pub(crate) struct NewTask {
    sessions: Arc<Sessions>,
    endpoint: Rc<Arc<Endpoint>>,
    principal: Box<str>,
    member: usize,
    session: Option<SessionId>,
    tool: Box<str>,
    /// The literals of the ids that the reply may have: the client's, and the one that was sent; empty where that is not
    /// known.
    ids: [Box<[u8]>; 2],
    depth_max: usize,
    /// What came so far of a reply in JSON; `None`: it is too long.
    json: Option<Vec<u8>>,
    /// What comes of a reply of events that is handed on unread.
    events: Option<Events>,
}

impl NewTask {
    /// `member` is the upstream's place in the endpoint, `tool` what it calls what is called, `ids` the literals of
    /// the request's ids; each is empty if that is not known.
    pub(crate) fn new(
        sessions: &Arc<Sessions>,
        (endpoint, member): (&Rc<Arc<Endpoint>>, usize),
        (caller, session): (&Caller, Option<SessionId>),
        (tool, ids): (Box<str>, [&[u8]; 2]),
        depth_max: usize,
    ) -> Box<Self> {
        Box::new(Self {
            sessions: Arc::clone(sessions),
            endpoint: Rc::clone(endpoint),
            principal: caller.principal.id().into(),
            member,
            session,
            tool,
            ids: ids.map(Box::from),
            depth_max,
            json: Some(Vec::new()),
            events: Some(Events::new(BYTES_MAX)),
        })
    }

    pub(super) fn push_json(&mut self, piece: &[u8]) {
        self.json = self.json.take().filter(|json| json.len() + piece.len() <= BYTES_MAX);
        if let Some(json) = &mut self.json {
            json.extend_from_slice(piece);
        }
    }

    pub(super) fn end(&mut self, scratch: &mut Scratch) {
        if let Some(json) = self.json.take() {
            self.read(scratch, &json);
        }
        if let Some(event) = self.events.take().and_then(|mut events| events.finish()) {
            self.read(scratch, &event.data.unwrap_or_default());
        }
    }

    pub(super) fn push_events(&mut self, scratch: &mut Scratch, piece: Bytes) {
        let Some(mut events) = self.events.take() else { return };
        events.push(piece);
        loop {
            match events.next() {
                Some(Ok(event)) => {
                    self.read(scratch, &event.data.unwrap_or_default());
                }
                Some(Err(_)) => return,
                None => break,
            }
        }
        self.events = Some(events);
    }

    /// Reads one message of the reply. True if it makes a task.
    pub(super) fn read(&self, scratch: &mut Scratch, message: &[u8]) -> bool {
        if message.len() > BYTES_MAX || !task::may_name(message) {
            return false;
        }
        let root = scratch.index(message, self.depth_max).map(Document::root).ok();
        let made = root.filter(|root| self.is_answer(*root)).map(task::made).unwrap_or_default();
        let upstream = self.endpoint.config.upstreams.get(self.member).map(String::as_str);
        for Made { id, ttl_ms } in &made {
            let task = TaskOf {
                endpoint: &self.endpoint.config.name,
                principal: &self.principal,
                upstream: upstream.unwrap_or_default(),
                id,
            };
            let origin = Origin { session: self.session, tool: self.tool.clone() };
            self.sessions.note_task(task, origin, *ttl_ms);
        }
        !made.is_empty()
    }

    /// A connection that is out of step must not give one client's task to another.
    fn is_answer(&self, message: Value<'_>) -> bool {
        let id = message.get("id").map(Value::raw).unwrap_or_default();
        self.ids.iter().any(|known| known.is_empty() || id == &**known || is_same_text(id, known))
    }

    /// Waits until the other replicas know.
    pub(super) async fn shared(&self) {
        self.sessions.tasks_told().await;
    }
}

impl std::fmt::Debug for NewTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTask").field("tool", &self.tool).finish_non_exhaustive()
    }
}
