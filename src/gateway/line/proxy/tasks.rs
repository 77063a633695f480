//! Tasks belong to who made them (2025-11-25 Tasks, "Task Isolation and Access Control"): the checks, and `tasks/list`.
//!
//! The authorization context of a task is the principal at the endpoint; where nobody is asked who he is, everybody is
//! the same nobody. A task that another made, or one whose owner is not known, is answered as one that never was; and so
//! is one that was made with a tool that its owner may not use any more. Endpoints where nobody can be told from anybody
//! (`Endpoint::binds_tasks`) leave it to who knows the id.
//!
//! `tasks/list` is asked of the upstreams by the gateway, which leaves out what is not the caller's own: where nobody is
//! known by credentials, what was not made in his session. The entries stay as their servers wrote them, on one page.
//!
//! Of several upstreams those count with which the session has a session. One that fails or has no such method adds
//! none: the list is for looking around, and a task that a client waits for is asked for by its id. Towards each upstream
//! it is a call like any other: limits of rate count it, and it waits for its turn.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use tokio::time::timeout_at;

use super::address::Outbound;
use super::context::RequestContext;
use super::exchange::SessionAttempts;
use super::{Proxy, RequestDecision};
use crate::access::caller::Caller;
use crate::access::limit::shares::Share;
use crate::access::policy::{NameScope, PolicyVerdict};
use crate::clock;
use crate::context::call::Call;
use crate::context::worker::View;
use crate::line::message::Message;
use crate::line::relay::{BodyGuard, NewTask, ReplyBody, json_response};
use crate::mapper::Mapper;
use crate::session::tasks::TaskOf;
use crate::session::{Session, SessionId, UpstreamSession};
use crate::snapshot::Endpoint;
use crate::upstream::Upstream;
use crate::upstream::ask::AskRequest;
use crate::upstream::body::no_memory;
use crate::upstream::headers;
use protocol::ambiguity::folded;
use protocol::error::{ClientError, Error, GatewayError, PolicyError, UpstreamError};
use protocol::json::{Document, Value, quote};
use protocol::method::Method;
use protocol::route::{Kind, Route, Style};
use protocol::splice::Segments;
use protocol::task;
use protocol::version::Era;

/// What JSON-RPC says of a method that a server does not have.
const NO_METHOD: i64 = -32601;
/// So many tasks the other replicas are asked for at most, for one upstream's list.
const LEARNED_MAX: usize = 1024;

/// A method of tasks that nobody here knows would reach the tasks of others.
pub(super) fn check_method(endpoint: &Endpoint, message: &Message) -> Result<(), Error> {
    let method = message.envelope.method.as_ref().and_then(|method| method.decode(&message.body));
    // A server may read it without regard to case.
    let is_of_tasks = method.is_some_and(|method| folded(&method).starts_with("tasks/"));
    if is_of_tasks && endpoint.binds_tasks { Err(ClientError::Method.into()) } else { Ok(()) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolAccess {
    Usable,
    NotYetLearned,
    Hidden,
}

/// Whether the caller may use the tool that made a task. One that is not known is not hidden from who used it.
fn judge_tool(endpoint: &Endpoint, caller: &Caller, member: usize, tool: &str) -> ToolAccess {
    if tool.is_empty() {
        return ToolAccess::Usable;
    }
    if endpoint.naming.public(Kind::Tool, member, tool).is_none() {
        return ToolAccess::Hidden;
    }
    let directory = endpoint.names.directory();
    let place = NameScope { naming: &endpoint.naming, directory: &directory };
    let class = &caller.class;
    if class.is_unrestricted() || class.allows(place, Kind::Tool, member, tool) {
        return ToolAccess::Usable;
    }
    match class.judge(place, Kind::Tool, member, tool) {
        PolicyVerdict::NotYetLearned => ToolAccess::NotYetLearned,
        _ => ToolAccess::Hidden,
    }
}

struct TaskPage {
    text: bytes::Bytes,
    entries: Vec<ListedTask>,
    next: Option<String>,
}

#[derive(Clone, Copy)]
struct TaskListRequest<'a> {
    cx: &'a RequestContext<'a>,
    caller: &'a Caller,
    session: &'a Session,
    /// The place of the upstream in the endpoint.
    member: usize,
    upstream: &'a Arc<Upstream>,
    /// What the pages take of the memory for messages, until the client has its answer.
    held: &'a RefCell<Share>,
}

/// Whether a fault leaves the lists of other upstreams as good as they are. Not so one of the client's own, or where there is
/// no memory for more.
fn is_of_one_upstream(error: &Error) -> bool {
    match error {
        Error::Policy(error) => *error == PolicyError::Concurrency,
        Error::Client(error) => *error != ClientError::SessionGone,
        Error::Gateway(error) => *error != GatewayError::Buffers,
        Error::Upstream(_) => true,
    }
}

struct ListedTask {
    /// The id, as the upstream spells it.
    id: String,
    text: String,
}

impl Proxy {
    /// Whose the task is that the reply to a request may make; `None` where it makes none, and where that is nobody's
    /// business. Costs a call that asks for no task one look at what its client declares, or at its parameters.
    pub(super) fn new_task(
        &self,
        view: &View,
        (message, outbound): (&Message, &Outbound),
        session: Option<SessionId>,
        call: &Call,
    ) -> Option<Box<NewTask>> {
        let Outbound { rewrite, member, .. } = outbound;
        let (endpoint, caller) = (call.endpoint.as_ref()?, call.caller.as_ref()?);
        let may_make_task = match message.era {
            Era::Modern => endpoint.binds_tasks && task::modern_may_make(&message.envelope, &message.body),
            // A list is of the session alone where nobody is known otherwise.
            Era::Legacy => task::legacy_may_make(&message.envelope, &message.body),
        };
        if !may_make_task {
            return None;
        }
        let tool = message.public_name().filter(|_| message.method == Method::ToolsCall);
        let tool = tool.and_then(|public| {
            let directory = endpoint.names.directory();
            let route = endpoint.naming.route(Kind::Tool, &public, &directory).ok()?;
            Some(Box::from(&*route.inner))
        });
        let (sessions, depth_max) = (&self.worker.state.sessions, view.snapshot.limits.json_depth_max);
        let id = message.id().as_bytes();
        let own_id = rewrite.as_ref().and_then(|rewrite| rewrite.own_id.as_ref());
        let ids = [id, own_id.map_or(id, |own_id| own_id.sent())];
        let made_by = (tool.unwrap_or_default(), ids);
        Some(NewTask::new(sessions, (endpoint, *member), (caller, session), made_by, depth_max))
    }

    /// Asks the other replicas whose these tasks are, which are named as clients name them.
    pub(super) async fn learn_tasks<'t>(
        &self,
        cx: &RequestContext<'_>,
        tasks: impl Iterator<Item = &'t str>,
    ) {
        let Ok(caller) = cx.caller() else { return };
        if self.worker.state.shared.is_some() && cx.endpoint.binds_tasks && cx.is_transparent() {
            let tasks = tasks.map(|task| task_of(cx.endpoint, caller, 0, task));
            self.worker.state.sessions.learn_tasks(tasks, LEARNED_MAX).await;
        }
    }

    /// The task that a route leads to, if it is the caller's and the tool that made it is still there for it. Where names
    /// are mapped the id says whose it is, else it is remembered.
    pub(super) fn find_task<'n>(
        &self,
        endpoint: &Endpoint,
        caller: &Caller,
        route: &Route<'n>,
        public: &str,
    ) -> Result<Route<'n>, Error> {
        let unknown = || ClientError::UnknownName { kind: Kind::Task.word(), name: public.to_owned() };
        let sessions = &self.worker.state.sessions;
        let task = task_of(endpoint, caller, route.member, &route.inner);
        let (tool, inner) = if endpoint.naming.style() == Style::Transparent {
            (sessions.task(task).ok_or_else(unknown)?.tool, route.inner.clone())
        } else {
            let opened = sessions.open_task(task, &route.inner).ok_or_else(unknown)?;
            (opened.tool.into(), opened.id.into())
        };
        match judge_tool(endpoint, caller, route.member, &tool) {
            ToolAccess::Usable => Ok(Route { member: route.member, inner }),
            ToolAccess::NotYetLearned => Err(GatewayError::NamesUnknown.into()),
            ToolAccess::Hidden => Err(unknown().into()),
        }
    }

    pub(super) async fn list_tasks(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
    ) -> Result<RequestDecision, Error> {
        let (caller, session) = (cx.caller()?, cx.session()?);
        let held = RefCell::new(self.worker.state.buffered.open(cx.call.payer()));
        let members = (0..cx.endpoint.members.len()).filter(|member| caller.class.reaches(*member));
        let listed = members.filter_map(|member| {
            let request =
                TaskListRequest { cx, caller, session, member, upstream: cx.upstream(member)?, held: &held };
            Some(self.tasks_at(request))
        });
        let mut tasks = Vec::new();
        for of_one in futures_util::future::join_all(listed).await {
            match of_one {
                Ok(of_one) => tasks.extend(of_one),
                Err(error) if cx.endpoint.members.len() == 1 || !is_of_one_upstream(&error) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        let (id, tasks) = (message.id(), tasks.join(","));
        let json = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tasks":[{tasks}]}}}}"#);
        let mut response = json_response(StatusCode::OK, String::new());
        response.body = ReplyBody::Whole(json.into(), BodyGuard::new(held.into_inner()));
        Ok(RequestDecision::Answer(response))
    }

    /// The caller's tasks of one upstream; asked for once more if the upstream turns out to have forgotten the session,
    /// unless the client's ends with it.
    async fn tasks_at(&self, request: TaskListRequest<'_>) -> Result<Vec<String>, Error> {
        let TaskListRequest { cx, session, member, upstream, .. } = request;
        let shown = headers::shown(cx.fields, &upstream.access.forward);
        let mut attempts = SessionAttempts::new(self, cx.view, upstream, session, shown);
        if !cx.is_transparent() && attempts.find().is_none() {
            return Ok(Vec::new());
        }
        self.admit_by_name(cx, Method::TasksList, Route { member, inner: "".into() }).await?;
        let _place = Self::acquire_slot(upstream, cx.call).await?;
        loop {
            let opened = match attempts.find() {
                Some(opened) => opened,
                // The only one is asked in any case.
                None if cx.is_transparent() => {
                    upstream.era_for(Era::Legacy)?;
                    attempts.begin().await?
                }
                None => return Ok(Vec::new()),
            };
            let tasks = self.tasks_of(&request, &opened).await;
            if let Some(tasks) = attempts.settle(&opened, tasks).await? {
                return Ok(tasks);
            }
        }
    }

    /// The caller's tasks of one upstream as clients know them; what came before a fault counts.
    async fn tasks_of(
        &self,
        request: &TaskListRequest<'_>,
        opened: &UpstreamSession,
    ) -> Result<Vec<String>, Error> {
        let TaskListRequest { cx, caller, member, upstream, .. } = *request;
        let limits = &cx.view.snapshot.limits;
        let mapper = (!cx.is_transparent())
            .then(|| Mapper::new(Rc::clone(cx.endpoint), member, Method::TasksList, cx.depth_max()))
            .map(|mapper| mapper.for_owner(&self.worker.state.sessions, caller.principal.id()));
        let deadline = clock::now() + upstream.config.list_timeout;
        let (mut tasks, mut bytes, mut may_learn) = (Vec::new(), 0, LEARNED_MAX);
        let mut params = String::from("{}");
        for number in 0..limits.list_pages_max {
            let question = AskRequest {
                headers: opened.named().to_map(),
                body: format!(
                    r#"{{"jsonrpc":"2.0","id":"trunkline-tasks","method":"tasks/list","params":{params}}}"#
                )
                .into(),
                is_safe_to_repeat: true,
                replica: opened.replica,
                bytes_max: limits.list_bytes_max.saturating_sub(bytes),
                deadline,
            };
            let page = match self.worker.asker(cx.view, cx.call.payer()).ask(upstream, question).await {
                // What names the question was looked at in the session.
                Ok(page) if page.status == StatusCode::NOT_FOUND && !page.is_to_us => {
                    Err(UpstreamError::SessionLost.into())
                }
                Ok(page) if page.status == StatusCode::BAD_REQUEST && !page.is_to_us => {
                    Err(UpstreamError::SessionDoubted.into())
                }
                Ok(page) => {
                    request.held.borrow_mut().grow(page.body.len()).map_err(no_memory)?;
                    let ids = self.ids_in(&page.body, cx.depth_max());
                    may_learn =
                        may_learn.saturating_sub(self.learn_listed(request, &ids, may_learn, deadline).await);
                    self.read_page(page.body, ids, mapper.as_ref(), cx.depth_max())
                }
                Err(error) => Err(error.into()),
            };
            let page = match page {
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
                Ok(page) => page,
            };
            bytes += page.text.len();
            self.keep_own(request, page.entries, &mut tasks);
            let Some(cursor) = page.next else { break };
            let next = format!(r#"{{"cursor":{}}}"#, quote(&cursor));
            if next == params {
                break;
            }
            params = next;
        }
        Ok(tasks)
    }

    /// Asks the other replicas whose the tasks with these ids are. Returns for how many.
    async fn learn_listed(
        &self,
        request: &TaskListRequest<'_>,
        ids: &[Option<String>],
        asked_max: usize,
        deadline: Instant,
    ) -> usize {
        let TaskListRequest { cx, caller, member, .. } = *request;
        let listed = ids.iter().flatten().map(|id| task_of(cx.endpoint, caller, member, id));
        let learning = self.worker.state.sessions.learn_tasks(listed, asked_max);
        // Who did not answer in time is not asked again.
        timeout_at(deadline.into(), learning).await.unwrap_or(LEARNED_MAX)
    }

    /// The ids on a page, as the upstream spells them; `None` for an entry that has none.
    fn ids_in(&self, page: &[u8], depth_max: usize) -> Vec<Option<String>> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let root = scratch.index(page, depth_max).map(Document::root);
        let tasks = root.ok().and_then(|root| root.get("result")?.get("tasks"));
        tasks.into_iter().flat_map(Value::items).map(task::id_of).collect()
    }

    /// Reads a page with these ids, whose entries are as clients are to see them.
    fn read_page(
        &self,
        text: bytes::Bytes,
        ids: Vec<Option<String>>,
        mapper: Option<&Mapper>,
        depth_max: usize,
    ) -> Result<TaskPage, Error> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let root = scratch.index(&text, depth_max).map(Document::root);
        let root = root.map_err(|_| UpstreamError::Nonsense)?;
        let Some(result) = root.get("result") else {
            let code = root.get("error").and_then(|error| error.get("code")?.as_integer());
            let is_lacking = code == Some(NO_METHOD);
            return Err(if is_lacking { ClientError::Method.into() } else { UpstreamError::Nonsense.into() });
        };
        let next = result.get("nextCursor").and_then(|cursor| cursor.as_literal()?.decode(&text));
        let next = next.map(String::from);
        let public = mapper.map(|mapper| mapper.map(&mut scratch, &text)).transpose();
        let public = public.map_err(|_| UpstreamError::Nonsense)?.flatten();
        let public = public.unwrap_or_else(|| Segments::from(text.clone())).to_bytes();
        let root = scratch.index(&public, depth_max).map(Document::root);
        let result = root.ok().and_then(|root| root.get("result")).ok_or(UpstreamError::Nonsense)?;
        let items = result.get("tasks").into_iter().flat_map(Value::items);
        let entries = ids.into_iter().zip(items).filter_map(|(id, item)| {
            Some(ListedTask { id: id?, text: String::from_utf8_lossy(item.raw()).into_owned() })
        });
        let entries = entries.collect();
        Ok(TaskPage { text, entries, next })
    }

    fn keep_own(&self, request: &TaskListRequest<'_>, entries: Vec<ListedTask>, own: &mut Vec<String>) {
        let TaskListRequest { cx, caller, session, member, .. } = *request;
        let (sessions, endpoint) = (&self.worker.state.sessions, cx.endpoint);
        let is_nobody = caller.principal.id().is_empty();
        for ListedTask { id, text } in entries {
            let origin = sessions.task(task_of(endpoint, caller, member, &id));
            let is_own = origin.is_some_and(|origin| {
                let is_his = !is_nobody || origin.session == Some(session.grant.id);
                is_his && judge_tool(endpoint, caller, member, &origin.tool) == ToolAccess::Usable
            });
            if is_own {
                own.push(text);
            }
        }
    }
}

fn task_of<'a>(endpoint: &'a Endpoint, caller: &'a Caller, member: usize, id: &'a str) -> TaskOf<'a> {
    let upstream = endpoint.config.upstreams.get(member).map(String::as_str).unwrap_or_default();
    TaskOf { endpoint: &endpoint.config.name, principal: caller.principal.id(), upstream, id }
}
