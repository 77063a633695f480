//! Names in replies that cross an aggregating endpoint: from the upstream's spelling to the public one.
//!
//! Only the literals that are names change; every other byte of a reply stays as it was. A reply without
//! any such literal is handed on as it came. Where names stand is `protocol::mapping`'s knowledge, what they
//! become is `route`'s.
//!
//! On any endpoint whose callers differ in what they may use, two more things change: what completes a resource
//! template ([`completion`]), and who may keep a resource (`cache_scope`).
//!
//! Long messages are mapped on another thread, so that a worker's other clients do not wait: a reply as a whole; of an
//! event the edits are found there, and whoever hands it on finds them with the mapper, in its order and by its rules.
//!
//! The id of a task is sealed for its owner where tasks have one ([`TaskNames`]). That is done for tasks that are known
//! to be his, and for the one that he asked for: whoever is told of another's task cannot use what he is told.

mod cache_scope;
pub(crate) mod completion;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::session::Sessions;
use crate::session::tasks::TaskOf;
use crate::snapshot::Endpoint;
use crate::upstream::own_id::OwnId;
use net::tasks::Tasks;
use protocol::ambiguity::{RESPONSE, is_ambiguous, is_there_once};
use protocol::answer_id::usual_place;
use protocol::envelope::Envelope;
use protocol::json::{JsonError, Literal, Scratch, Value, quote};
use protocol::mapping::{self, Shape, Site};
use protocol::method::Method;
use protocol::route::{Kind, Style};
use protocol::splice::{Edit, Segments, splice};
use protocol::translation::asker;
use protocol::translation::members::Edits;

pub(crate) use self::completion::Completion;

/// A longer message is mapped on another thread. A shorter one takes a few milliseconds at most.
const MAPPED_INLINE_BYTES_MAX: usize = 256 * 1024;

/// How ids of tasks are spelled for their owner alone.
#[derive(Clone, Debug)]
pub(crate) struct TaskNames {
    sessions: Arc<Sessions>,
    /// The owner; empty for nobody.
    principal: Box<str>,
    /// The task that was asked for, as the upstream spells it and as the client did.
    asked: Option<(Box<str>, Box<str>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mapper {
    endpoint: Rc<Arc<Endpoint>>,
    member: usize,
    /// The method of the request; `None`: nobody remembers it.
    method: Option<Method>,
    restriction: Option<Restriction>,
    depth_max: usize,
    tasks: Option<Box<TaskNames>>,
    /// The edits of the next message, where that is long: they were found elsewhere.
    found: Option<Rc<FoundNames>>,
}

/// What else is written otherwise in a reply, as not everybody may have what is in it.
#[derive(Clone, Debug)]
pub(crate) enum Restriction {
    /// Values that complete a template to what the caller may not use are left out.
    Completion(Rc<Completion>),
    /// No cache may give it to anybody else.
    Private,
}

impl Restriction {
    fn edits(&self, reply: Value<'_>) -> Vec<Edit> {
        match self {
            Self::Completion(completion) => completion.edits(reply),
            Self::Private => cache_scope::make_private(reply),
        }
    }
}

impl Mapper {
    /// `member` is the upstream's place in the endpoint, `method` what was asked.
    pub(crate) fn new(endpoint: Rc<Arc<Endpoint>>, member: usize, method: Method, depth_max: usize) -> Self {
        Self {
            endpoint,
            member,
            method: Some(method),
            restriction: None,
            depth_max,
            tasks: None,
            found: None,
        }
    }

    /// As [`new`](Self::new), where nobody remembers what was asked.
    pub(crate) fn of_any(endpoint: Rc<Arc<Endpoint>>, member: usize, depth_max: usize) -> Self {
        Self { endpoint, member, method: None, restriction: None, depth_max, tasks: None, found: None }
    }

    #[must_use]
    pub(crate) fn restricting(self, restriction: Restriction) -> Self {
        Self { restriction: Some(restriction), ..self }
    }

    /// Spells ids of tasks for this principal, where they are for who made them alone.
    #[must_use]
    pub(crate) fn for_owner(mut self, sessions: &Arc<Sessions>, principal: &str) -> Self {
        let names = || TaskNames { sessions: Arc::clone(sessions), principal: principal.into(), asked: None };
        let is_mapped = self.endpoint.naming.style() != Style::Transparent;
        self.tasks = (is_mapped && self.endpoint.binds_tasks).then(|| Box::new(names()));
        self
    }

    /// The request is about this task: by the upstream's spelling, and by the client's, which the reply keeps.
    #[must_use]
    pub(crate) fn about(mut self, inner: &str, public: &str) -> Self {
        if let Some(tasks) = &mut self.tasks {
            tasks.asked = Some((inner.into(), public.into()));
        }
        self
    }

    /// Maps a message before the reply, or one whose id stays. `None`: nothing in it has another name here.
    pub(crate) fn map(&self, scratch: &mut Scratch, message: &Bytes) -> Result<Option<Segments>, JsonError> {
        self.map_with(scratch, message, None)
    }

    /// Maps the reply, or a message before it, and puts back the client's id where `id` says so.
    pub(crate) fn map_with(
        &self,
        scratch: &mut Scratch,
        message: &Bytes,
        id: Option<Edit>,
    ) -> Result<Option<Segments>, JsonError> {
        let found = self.found_in(message).map(FoundNames::edits);
        let mut edits = found.unwrap_or_else(|| self.edits(scratch, message))?;
        edits.extend(id);
        edits.sort_unstable_by_key(|edit| (edit.span.start, edit.span.end));
        Ok((!edits.is_empty()).then(|| splice(message, &edits)))
    }

    /// The edits of a message of the upstream.
    fn edits(&self, scratch: &mut Scratch, message: &[u8]) -> Result<Vec<Edit>, JsonError> {
        if self.restriction.is_none() && !mapping::may_contain_names(message) {
            return Ok(Vec::new());
        }
        let root = scratch.index(message, self.depth_max)?.root();
        if self.restriction.is_some() && is_ambiguous(root, RESPONSE) {
            return Err(JsonError::NotJson);
        }
        Ok(self.public_names(root))
    }

    /// The names in a message of the upstream, as the client is to see them.
    pub(crate) fn public_names(&self, root: Value<'_>) -> Vec<Edit> {
        let shape = match (root.get("method"), root.get("id")) {
            (Some(_), Some(_)) => Shape::Asked,
            (Some(_), None) => Shape::Notification,
            (None, _) => Shape::Reply(self.method),
        };
        let mut sites = Vec::new();
        mapping::sites(root, shape, &mut sites);
        let names = sites.iter().filter_map(|site| self.to_public(site, root.text()));
        let names = names.chain(self.askers(root, shape));
        let Some(restriction) = self.restriction.as_ref().filter(|_| matches!(shape, Shape::Reply(_))) else {
            return names.collect();
        };
        let restricted = restriction.edits(root);
        // A name in what is left out is left out with it.
        let is_left = |name: &Edit| {
            !restricted.iter().any(|edit| name.span.start < edit.span.end && edit.span.start < name.span.end)
        };
        let mut edits: Vec<Edit> = names.filter(is_left).chain(restricted.iter().cloned()).collect();
        edits.sort_unstable_by_key(|edit| (edit.span.start, edit.span.end));
        edits
    }

    /// Names the asker in the questions that a result holds, or a task that a notification is about.
    fn askers(&self, root: Value<'_>, shape: Shape) -> Vec<Edit> {
        if shape == Shape::Asked {
            return Vec::new();
        }
        let Some(asker) = self.endpoint.asker(self.member) else { return Vec::new() };
        let mut edits = Edits::default();
        asker::questions(root).for_each(|question| asker.name_in(question, &mut edits));
        edits.sorted()
    }

    /// The names in a client's answer to a request of the upstream, as the upstream spells them.
    pub(crate) fn names_in_answer(&self, root: Value<'_>) -> Vec<Edit> {
        let mut sites = Vec::new();
        mapping::sites(root, Shape::AnswerToAsked, &mut sites);
        sites.iter().filter_map(|site| self.to_inner(site, root.text())).collect()
    }

    /// Maps the one message of a reply, which must answer the request that the upstream knows by the literal `id`: a
    /// connection that is out of step must not give one client's reply to another. `own`: where that is not the client's.
    ///
    /// A reply in which no name can stand is handed on as it came, as those of transparent endpoints are: whether it is JSON,
    /// and how deep, its client finds out.
    pub(crate) fn map_reply(
        &self,
        scratch: &mut Scratch,
        message: &Bytes,
        (id, own): (&[u8], Option<&OwnId>),
    ) -> Result<Option<Segments>, NotMapped> {
        if self.restriction.is_none()
            && let Some((place, rest)) = usual_place(message, id)
            && !mapping::may_contain_names_or_ids(rest)
        {
            return Ok(own.map(|own| splice(message, &[own.restored(place)])));
        }
        let document = scratch.index(message, self.depth_max)?;
        let found = document.root().get("id").ok_or(JsonError::NotJson)?;
        let is_ours = found.raw() == id || is_same_text(found.raw(), id);
        // Of two ids many clients take the second.
        if !is_ours || !is_there_once(document.root(), "id") {
            return Err(NotMapped::OtherId);
        }
        let span = found.span();
        Ok(self.map_with(scratch, message, own.map(|own| own.restored(span)))?)
    }

    /// The names in a request beside the one it is routed by, as its upstream spells them.
    pub(crate) fn inner_names(&self, scratch: &mut Scratch, message: &Bytes) -> Vec<Edit> {
        if !mapping::may_contain_names(message) {
            return Vec::new();
        }
        let Ok(document) = scratch.index(message, self.depth_max) else { return Vec::new() };
        let mut sites = Vec::new();
        mapping::sites(document.root(), Shape::Request, &mut sites);
        sites.iter().filter_map(|site| self.to_inner(site, message)).collect()
    }

    fn to_inner(&self, site: &Site, message: &[u8]) -> Option<Edit> {
        let public = site.literal.decode(message)?;
        let directory = self.endpoint.names.directory();
        let mut route = self.endpoint.naming.route(site.kind, &public, &directory).ok()?;
        if site.kind == Kind::Task
            && let Some(tasks) = &self.tasks
        {
            route.inner = tasks.sessions.open_task(self.task(tasks, ""), &route.inner)?.id.into();
        }
        (route.member == self.member && route.inner != public)
            .then(|| Edit { span: site.literal.span.clone(), with: quote(&route.inner).into() })
    }

    fn to_public(&self, site: &Site, message: &[u8]) -> Option<Edit> {
        let inner = site.literal.decode(message)?;
        let public = match &self.tasks {
            Some(tasks) if site.kind == Kind::Task => Cow::Owned(self.spell_task(tasks, &inner)),
            _ => self.endpoint.naming.spell(site.kind, self.member, &inner),
        };
        (public != inner).then(|| Edit { span: site.literal.span.clone(), with: quote(&public).into() })
    }
}

/// The edits that were found for one message.
#[derive(Debug)]
pub(crate) struct FoundNames {
    message: Bytes,
    edits: Result<Vec<Edit>, JsonError>,
    /// The envelope of the message, if it is one.
    envelope: Option<Envelope>,
}

/// A mapper on its way to another thread.
struct CarriedMapper {
    endpoint: Arc<Endpoint>,
    member: usize,
    method: Option<Method>,
    is_private: bool,
    depth_max: usize,
    tasks: Option<Box<TaskNames>>,
}

impl FoundNames {
    fn is_of(&self, message: &[u8]) -> bool {
        self.message.as_ptr() == message.as_ptr() && self.message.len() == message.len()
    }

    pub(super) fn edits(&self) -> Result<Vec<Edit>, JsonError> {
        self.edits.clone()
    }

    /// The envelope of the message. `None`: it is no message.
    pub(crate) fn envelope(&self) -> Option<Envelope> {
        self.envelope.clone()
    }
}

impl Mapper {
    /// True if a message is long and may hold names. Completions are short, whatever they say.
    pub(crate) fn is_work(&self, message: &[u8]) -> bool {
        message.len() > MAPPED_INLINE_BYTES_MAX
            && !matches!(self.restriction, Some(Restriction::Completion(_)))
            && (self.restriction.is_some() || mapping::may_contain_names(message))
    }

    /// As [`map_reply`](Self::map_reply), on another thread.
    pub(crate) async fn map_reply_apart(
        &self,
        tasks: &Tasks,
        message: Bytes,
        id: Bytes,
        own: Option<OwnId>,
    ) -> Result<Option<Segments>, NotMapped> {
        let carried = self.carried();
        let map = move || {
            let mapper = carried.unpacked();
            mapper.map_reply(&mut Scratch::default(), &message, (&id, own.as_ref()))
        };
        tasks.compute(map).await
    }

    /// Finds the names in a message on another thread, for [`finding`](Self::finding).
    pub(crate) fn find_apart(
        &self,
        tasks: &Tasks,
        message: &Bytes,
    ) -> impl Future<Output = FoundNames> + use<> {
        let (carried, message, tasks) = (self.carried(), message.clone(), tasks.clone());
        let find = move || {
            let (mapper, mut scratch) = (carried.unpacked(), Scratch::default());
            let envelope = Envelope::parse(&mut scratch, &message, mapper.depth_max).ok();
            let edits = mapper.edits(&mut scratch, &message);
            FoundNames { message, edits, envelope }
        };
        async move { tasks.compute(find).await }
    }

    /// The same, which need not look for these.
    pub(crate) fn finding(&mut self, found: FoundNames) {
        self.found = Some(Rc::new(found));
    }

    /// The edits of this message, if they were found elsewhere.
    pub(crate) fn found_in(&self, message: &[u8]) -> Option<&FoundNames> {
        self.found.as_deref().filter(|found| found.is_of(message))
    }

    fn carried(&self) -> CarriedMapper {
        CarriedMapper {
            endpoint: Arc::clone(&self.endpoint),
            member: self.member,
            method: self.method,
            is_private: self.restriction.is_some(),
            depth_max: self.depth_max,
            tasks: self.tasks.clone(),
        }
    }
}

impl CarriedMapper {
    fn unpacked(self) -> Mapper {
        let Self { endpoint, member, method, is_private, depth_max, tasks } = self;
        let restriction = is_private.then_some(Restriction::Private);
        Mapper { endpoint: Rc::new(endpoint), member, method, restriction, depth_max, tasks, found: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotMapped {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("it answers another request")]
    OtherId,
}

impl Mapper {
    /// What the owner calls a task. One that is not his gets a name that is of no use to him.
    fn spell_task(&self, tasks: &TaskNames, inner: &str) -> String {
        if let Some((_, public)) = tasks.asked.as_ref().filter(|(asked, _)| **asked == *inner) {
            return public.to_string();
        }
        let task = self.task(tasks, inner);
        let origin = tasks.sessions.task(task);
        let sealed = origin.and_then(|origin| tasks.sessions.seal_task(task, &origin.tool));
        let inner = sealed.as_deref().unwrap_or(inner);
        self.endpoint.naming.spell(Kind::Task, self.member, inner).into_owned()
    }

    fn task<'a>(&'a self, tasks: &'a TaskNames, id: &'a str) -> TaskOf<'a> {
        let config = &self.endpoint.config;
        let upstream = config.upstreams.get(self.member).map(String::as_str).unwrap_or_default();
        TaskOf { endpoint: &config.name, principal: &tasks.principal, upstream, id }
    }
}

/// Whether two string literals spell the same text.
pub(crate) fn is_same_text(one: &[u8], other: &[u8]) -> bool {
    let decode = |text: &[u8]| {
        let literal = Literal { span: 0..text.len(), escaped: true };
        text.starts_with(b"\"").then(|| literal.decode(text).map(Cow::into_owned)).flatten()
    };
    decode(one).is_some_and(|one| decode(other) == Some(one))
}
