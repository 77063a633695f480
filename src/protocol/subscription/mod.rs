//! `subscriptions/listen`: a client's filter, and every message of a subscription, read and written.
//!
//! The gateway stands in the middle: towards upstreams it listens with requests of its own, towards clients it
//! speaks with the id of each client's request and with the client's own spelling of URIs. What it cannot make
//! up itself, the other fields of a notification, crosses as the upstream wrote it ([`Notice`]).
//!
//! Deliberately absent: who listens to what, and when anything is sent.

mod heard;

use std::collections::BTreeSet;
use std::ops::Bound;

use super::json::{JsonKind, Value, quote};
use crate::initialize::META_START;

pub use heard::{Acknowledged, Heard, Notice, hear};

/// The key in `_meta` that ties a message to its subscription.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
const TASKS: &str = "io.modelcontextprotocol/tasks";
/// What a client that asks for tasks must declare (the tasks extension).
pub const TASKS_CAPABILITY: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
/// The longest URI or task id, in bytes: each is compared with every notification.
const NAME_BYTES_MAX: usize = 8 * 1024;

const LIST_FIELDS: [&str; 3] = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];
const LIST_METHODS: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];

/// Whether a resource is one of these, or lies within one of them.
pub fn is_within(uri: &str, wholes: &BTreeSet<Box<str>>) -> bool {
    let mut bound = Bound::Included(uri);
    // What the last of them before the bound has not in common with the URI, no other before it has.
    while let Some(last) = wholes.range::<str, _>((Bound::Unbounded, bound)).next_back() {
        let common = uri.chars().zip(last.chars()).take_while(|(one, other)| one == other);
        let (common, rest) = uri.split_at(common.map(|(one, _)| one.len_utf8()).sum());
        bound = if common.len() < last.len() {
            Bound::Included(common)
        } else if rest.is_empty() || rest.starts_with('/') || common.ends_with('/') {
            return true;
        } else {
            Bound::Excluded(common)
        };
    }
    false
}

/// A set of the three lists that tell of their changes: tools, prompts, resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists(u8);

impl Lists {
    /// All of them.
    pub const ALL: Self = Self(0b111);
    /// How many lists there are; each has an index below.
    pub const COUNT: usize = LIST_FIELDS.len();

    /// The list with this index.
    pub fn one(index: usize) -> Self {
        Self(1 << index)
    }

    /// The lists whose bits are set in `bits`.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 0b111)
    }

    /// One bit for each list.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the list with this index is among them.
    pub fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Adds a list.
    pub fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// The indexes of the lists, in order.
    pub fn indexes(self) -> impl Iterator<Item = usize> {
        (0..Self::COUNT).filter(move |index| self.has(*index))
    }
}

/// What a client wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Lists.
    pub lists: Lists,
    /// Resources.
    pub uris: Vec<Name>,
    /// Tasks of the tasks extension.
    pub task_ids: Vec<Name>,
}

/// A URI or task id of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// As the client wrote it, quotes included.
    pub literal: Box<str>,
    /// What that means.
    pub value: String,
}

impl Filter {
    /// Reads `params.notifications` of a request. `names_max` bounds the URIs and task ids. The error says what is
    /// wrong. Unknown fields mean nothing; a known one that stands twice could mean two things.
    pub fn read(request: Value<'_>, names_max: usize) -> Result<Self, &'static str> {
        let wanted = request.get("params").and_then(|params| params.object("notifications"));
        let wanted = wanted.ok_or("params.notifications must be an object")?;
        let mut filter = Self::default();
        let mut seen = [false; 5];
        for (key, value) in wanted.members() {
            let field = LIST_FIELDS.iter().position(|field| *field == key);
            let field = field.or_else(|| match &*key {
                "resourceSubscriptions" => Some(3),
                "taskIds" => Some(4),
                _ => None,
            });
            let Some(field) = field else { continue };
            if std::mem::replace(&mut seen[field], true) {
                return Err("a field of params.notifications stands twice");
            }
            match (field, value.kind()) {
                (..3, JsonKind::True) => filter.lists.add(field),
                (..3, JsonKind::False) => {}
                (..3, _) => return Err("the list flags of params.notifications must be true or false"),
                (3, JsonKind::Array) => filter.uris = names(value, names_max)?,
                (_, JsonKind::Array) => filter.task_ids = names(value, names_max)?,
                _ => return Err("resourceSubscriptions and taskIds must be arrays of strings"),
            }
        }
        if filter.uris.len() + filter.task_ids.len() > names_max {
            return Err(TOO_MANY);
        }
        Ok(filter)
    }

    /// The bytes of all names.
    pub fn names_bytes(&self) -> usize {
        let names = self.uris.iter().chain(&self.task_ids);
        names.map(|name| name.literal.len() + name.value.len()).sum()
    }
}

const TOO_MANY: &str =
    "params.notifications names more URIs and task ids than this gateway takes in one subscription";

/// The different names of an array.
fn names(array: Value<'_>, names_max: usize) -> Result<Vec<Name>, &'static str> {
    let mut names = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for item in array.items() {
        let Some(value) = item.as_str() else {
            return Err("resourceSubscriptions and taskIds must be arrays of strings");
        };
        if value.len() > NAME_BYTES_MAX {
            return Err("a URI or task id of params.notifications is longer than 8192 bytes");
        }
        if names.len() == names_max {
            return Err(TOO_MANY);
        }
        if seen.insert(value.clone()) {
            names.push(Name { literal: item.source().into(), value: value.into_owned() });
        }
    }
    Ok(names)
}

/// Whether the client of a request declares that it knows tasks.
pub fn knows_tasks(request: Value<'_>) -> bool {
    let path = ["params", "_meta", "io.modelcontextprotocol/clientCapabilities", "extensions", TASKS];
    path.into_iter().try_fold(request, Value::get).is_some()
}

/// What every subscription begins with. `id` is the literal of the request's id; `uris` and `task_ids` are literals.
pub fn acknowledgement<'n>(
    id: &str,
    lists: Lists,
    uris: impl Iterator<Item = &'n str>,
    task_ids: impl Iterator<Item = &'n str>,
) -> String {
    let filter = filter(lists, uris, task_ids);
    notification("notifications/subscriptions/acknowledged", id, &format!(r#","notifications":{filter}"#))
}

/// Says that a list has changed.
pub fn list_changed(id: &str, index: usize) -> String {
    notification(LIST_METHODS.get(index).copied().unwrap_or_default(), id, "")
}

/// Says that a list has changed, in a session.
pub fn session_list_changed(index: usize) -> String {
    let method = LIST_METHODS.get(index).copied().unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
}

/// Says that a resource has changed. `uri` is a literal.
pub fn updated(id: &str, uri: &str) -> String {
    notification("notifications/resources/updated", id, &format!(r#","uri":{uri}"#))
}

/// A message of the subscription `id`; `more` are members of its `params`, each after a comma.
fn notification(method: &str, id: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}}{more}}}}}"#
    )
}

/// The result that ends a subscription (2026-07-28 subscriptions, "Graceful Closure").
pub fn completion(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}}}"#
    )
}

/// The gateway's own request to an upstream; names are values.
pub fn request<'n>(
    id: &str,
    lists: Lists,
    uris: impl Iterator<Item = &'n str>,
    task_ids: impl Iterator<Item = &'n str>,
) -> String {
    let uris: Vec<String> = uris.map(quote).collect();
    let task_ids: Vec<String> = task_ids.map(quote).collect();
    let filter = filter(lists, uris.iter().map(String::as_str), task_ids.iter().map(String::as_str));
    let capabilities = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{{META_START}{capabilities}}},"notifications":{filter}}}}}"#
    )
}

fn filter<'n>(
    lists: Lists,
    uris: impl Iterator<Item = &'n str>,
    task_ids: impl Iterator<Item = &'n str>,
) -> String {
    let mut members: Vec<String> =
        lists.indexes().map(|index| format!("\"{}\":true", LIST_FIELDS[index])).collect();
    let uris: Vec<&str> = uris.collect();
    let task_ids: Vec<&str> = task_ids.collect();
    for (key, names) in [("resourceSubscriptions", uris), ("taskIds", task_ids)] {
        if !names.is_empty() {
            members.push(format!("\"{key}\":[{}]", names.join(",")));
        }
    }
    format!("{{{}}}", members.join(","))
}

/// The values of the strings of an array.
fn strings(array: Option<Value<'_>>) -> Vec<Box<str>> {
    array.into_iter().flat_map(Value::items).filter_map(Value::as_str).map(Into::into).collect()
}

#[cfg(test)]
mod tests;
