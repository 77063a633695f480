//! What an upstream says on a subscription of the gateway's own.

use bytes::Bytes;

use super::{LIST_FIELDS, LIST_METHODS, Lists, NAME_BYTES_MAX, SUBSCRIPTION_ID, strings};
use crate::json::{JsonError, JsonKind, Literal, Scratch, Span, Value};
use crate::mapping::{self, Shape, Site};
use crate::route;
use crate::splice::{Edit, Segments, splice};

/// A message of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The first message: what the upstream will tell of.
    Acknowledged(Acknowledged),
    /// The list with this index has changed.
    ListChanged(usize),
    /// A resource has changed.
    Updated(Notice),
    /// A task has changed.
    Task(Notice),
    /// The upstream ends the subscription: with the result, or by cancelling the request.
    Ended,
    /// The upstream refuses the subscription, with this JSON-RPC error code.
    Refused(Option<i64>),
    /// Nothing for this subscription.
    Other,
}

/// What of a filter an upstream honours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Lists.
    pub lists: Lists,
    /// Resources, as the upstream spells them.
    pub uris: Vec<Box<str>>,
    /// Tasks, as the upstream spells them.
    pub task_ids: Vec<Box<str>>,
}

impl Acknowledged {
    /// True if it honours nothing.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.uris.is_empty() && self.task_ids.is_empty()
    }
}

/// A notification that crosses to clients with everything the upstream put into it. Only its name and its
/// subscription id are replaced, and what else of it has another name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The URI or task id it speaks of, as the upstream spells it.
    pub name: Box<str>,
    message: Bytes,
    literal: Literal,
    id: IdInsertion,
    others: Vec<Site>,
}

/// Where the subscription id goes, and what stands around it there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IdInsertion {
    span: Span,
    before: String,
    after: &'static str,
}

/// Reads a message on the subscription whose id literal is `id`.
pub fn hear(scratch: &mut Scratch, message: &Bytes, id: &str, depth_max: usize) -> Result<Heard, JsonError> {
    let root = scratch.index(message, depth_max)?.root();
    let is_id = |value: Value<'_>| value.raw() == id.as_bytes();
    let Some(method) = root.get("method") else {
        let is_ours = root.get("id").is_some_and(is_id);
        return Ok(match root.get("error") {
            // An error without an id can only be about the one request of this exchange.
            Some(error) if is_ours || root.get("id").is_none_or(|id| id.kind() == JsonKind::Null) => {
                Heard::Refused(error.get("code").and_then(Value::as_integer))
            }
            None if is_ours && root.get("result").is_some() => Heard::Ended,
            _ => Heard::Other,
        });
    };
    let Some(method) = method.as_str() else { return Ok(Heard::Other) };
    let params = root.object("params");
    let meta = params.and_then(|params| params.get("_meta"));
    let subscription = meta.and_then(|meta| meta.get(SUBSCRIPTION_ID));
    if root.get("id").is_some() || subscription.is_some_and(|subscription| !is_id(subscription)) {
        return Ok(Heard::Other);
    }
    if let Some(index) = LIST_METHODS.iter().position(|known| *known == method) {
        return Ok(Heard::ListChanged(index));
    }
    Ok(match (&*method, params) {
        ("notifications/subscriptions/acknowledged", Some(params)) => {
            Heard::Acknowledged(acknowledged(params.get("notifications")))
        }
        ("notifications/resources/updated", Some(params)) => {
            notice(root, params, "uri", message).map_or(Heard::Other, Heard::Updated)
        }
        ("notifications/tasks", Some(params)) => {
            notice(root, params, "taskId", message).map_or(Heard::Other, Heard::Task)
        }
        ("notifications/cancelled", Some(params)) if params.get("requestId").is_some_and(is_id) => {
            Heard::Ended
        }
        _ => Heard::Other,
    })
}

fn acknowledged(filter: Option<Value<'_>>) -> Acknowledged {
    let mut lists = Lists::default();
    for (index, field) in LIST_FIELDS.iter().enumerate() {
        if filter.and_then(|filter| filter.get(field)).is_some_and(|value| value.kind() == JsonKind::True) {
            lists.add(index);
        }
    }
    let names = |key| strings(filter.and_then(|filter| filter.get(key)));
    Acknowledged { lists, uris: names("resourceSubscriptions"), task_ids: names("taskIds") }
}

/// `None` where it cannot be told what the notification speaks of.
fn notice(root: Value<'_>, params: Value<'_>, key: &str, message: &Bytes) -> Option<Notice> {
    let literal = params.only(key)?.as_literal()?;
    let name = literal.decode(message).filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let first_in = |object: Value<'_>| object.span().start + 1..object.span().start + 1;
    let key = format!("\"{SUBSCRIPTION_ID}\":");
    let id = if params.get("_meta").is_none() {
        // `params` has at least the name.
        IdInsertion { span: first_in(params), before: format!("\"_meta\":{{{key}"), after: "}," }
    } else {
        let meta = params.only("_meta")?.as_object()?;
        if meta.get(SUBSCRIPTION_ID).is_some() {
            IdInsertion { span: meta.only(SUBSCRIPTION_ID)?.span(), before: String::new(), after: "" }
        } else {
            let after = if meta.entries().next().is_none() { "" } else { "," };
            IdInsertion { span: first_in(meta), before: key, after }
        }
    };
    let mut others = Vec::new();
    mapping::sites(root, Shape::Notification, &mut others);
    others.retain(|site| site.literal.span != literal.span);
    // A copy: a slice would hold on to everything that arrived with it.
    Some(Notice { name: (*name).into(), message: Bytes::copy_from_slice(message), literal, id, others })
}

impl Notice {
    /// How much memory it holds.
    pub fn bytes(&self) -> usize {
        self.message.len()
    }

    /// The message for a client whose subscription has the id literal `id`, and which knows what the notice speaks of
    /// by the literal `name`. `spell` gives the literal of another name in it, if that changes.
    pub fn write(
        &self,
        id: &str,
        name: &str,
        spell: impl Fn(route::Kind, &str) -> Option<String>,
    ) -> Segments {
        let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let mut edits = vec![Edit { span: self.literal.span.clone(), with: copy(name) }];
        let IdInsertion { span, before, after } = &self.id;
        edits.push(Edit { span: span.clone(), with: format!("{before}{id}{after}").into() });
        edits.extend(self.others.iter().filter_map(|site| {
            let with = spell(site.kind, &site.literal.decode(&self.message)?)?;
            Some(Edit { span: site.literal.span.clone(), with: with.into() })
        }));
        edits.sort_unstable_by_key(|edit| edit.span.start);
        splice(&self.message, &edits)
    }
}
