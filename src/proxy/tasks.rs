//! `tasks/list` over several upstreams: the tasks of every upstream that the session has a session with, as one page.
//!
//! Where there is no session there are no tasks of it. An upstream that fails or has no such method adds none: the list
//! is for looking around, and a task that a client waits for is asked for by its id.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::{Decision, Proxy, answer};
use crate::mapper::Mapper;
use crate::message::Message;
use crate::policy::Class;
use crate::protocol::json::{Document, Value, quote};
use crate::protocol::method::Method;
use crate::protocol::splice::Segments;
use crate::session::{Session, UpstreamSession};
use crate::snapshot::Endpoint;
use crate::upstream::Upstream;
use crate::upstream::ask::{Question, legacy_headers};
use crate::worker::View;

impl Proxy {
    /// Every task of the session.
    pub(super) async fn list_tasks(
        &self,
        view: &Rc<View>,
        (endpoint, class): (&Rc<Arc<Endpoint>>, &Class),
        message: &Message,
        session: &Session,
    ) -> Decision {
        let sessions = &self.worker.state.sessions;
        let members = endpoint.members.iter().enumerate().filter(|(member, _)| class.reaches(*member));
        let opened = members.filter_map(|(member, slot)| {
            let upstream = view.snapshot.upstreams.get(*slot)?;
            Some((member, upstream, sessions.opened(session.grant.id, &upstream.session_key)?))
        });
        let listed = opened.map(|(member, upstream, opened)| async move {
            let depth_max = view.snapshot.limits.json_depth_max;
            let mapper = Mapper::new(Rc::clone(endpoint), member, Method::TasksList, depth_max);
            self.tasks_of(view, upstream, &opened, &mapper).await
        });
        let tasks: Vec<String> = futures_util::future::join_all(listed).await.into_iter().flatten().collect();
        answer(message, &format!(r#"{{"tasks":[{}]}}"#, tasks.join(",")))
    }

    /// The tasks of one upstream as clients know them; what came before a fault counts.
    async fn tasks_of(
        &self,
        view: &View,
        upstream: &Upstream,
        session: &UpstreamSession,
        mapper: &Mapper,
    ) -> Vec<String> {
        let limits = &view.snapshot.limits;
        let deadline = Instant::now() + upstream.config.list_timeout;
        let (mut tasks, mut bytes) = (Vec::new(), 0);
        let mut params = String::from("{}");
        for _ in 0..limits.list_pages_max {
            let question = Question {
                headers: legacy_headers(session.version.as_str(), session.id.as_ref()),
                body: format!(
                    r#"{{"jsonrpc":"2.0","id":"trunkline-tasks","method":"tasks/list","params":{params}}}"#
                )
                .into(),
                is_safe_to_repeat: true,
                replica: session.replica,
                bytes_max: limits.list_bytes_max.saturating_sub(bytes),
                deadline,
            };
            let Ok(page) = self.worker.asker(view).ask(upstream, question).await else { break };
            bytes += page.body.len();
            let mut scratch = self.worker.scratch.borrow_mut();
            let Ok(public) = mapper.map(&mut scratch, &page.body) else { break };
            let page = public.unwrap_or_else(|| Segments::from(page.body)).to_bytes();
            let root = scratch.index(&page, limits.json_depth_max).map(Document::root);
            let Some(result) = root.ok().and_then(|root| root.get("result")) else { break };
            let items = result.get("tasks").into_iter().flat_map(Value::items);
            tasks.extend(items.map(|task| String::from_utf8_lossy(task.raw()).into_owned()));
            let cursor = result.get("nextCursor").and_then(|cursor| cursor.as_literal()?.decode(&page));
            let Some(cursor) = cursor else { break };
            let next = format!(r#"{{"cursor":{}}}"#, quote(&cursor));
            if next == params {
                break;
            }
            params = next;
        }
        tasks
    }
}
