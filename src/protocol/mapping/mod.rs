//! Where public names stand in the messages that cross an endpoint with several upstreams.
//!
//! Such an endpoint gives its clients names that say which upstream they belong to. In what comes back
//! from an upstream, the upstream's own names are replaced by public ones, and the other way round in the
//! few places of a request that the envelope does not cover. [`sites`] finds the string literals that are
//! names; [`may_contain_names`] tells without parsing that there are none.
//!
//! A key counts however it is escaped, and if it stands twice, both values are sites. Never names, though
//! they look like them: roots, icons, free text, `structuredContent`, tool arguments, URLs to visit.
//!
//! The walk is one descent along fixed paths: its depth does not depend on the message.

use std::sync::LazyLock;

use super::answer_id::ID_KEYS;
use super::json::{Literal, Value};
use super::key_scan::KeyScan;
use super::method::Method;
use super::route::Kind;

/// A name in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What the name names.
    pub kind: Kind,
    /// Where it stands.
    pub literal: Literal,
}

/// What a message is, and so where its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A request, whole. Only what `Envelope` does not give: related tasks, the filter of
    /// `subscriptions/listen`, and resources in answers to sampling requests.
    Request,
    /// The response to a request of this method, whole. `None`: nobody remembers the request, and whatever looks like a
    /// name in the response to some method is one.
    Reply(Option<Method>),
    /// A request that a server of the legacy era makes of its client, whole.
    Asked,
    /// What a client answers to one, whole.
    AnswerToAsked,
    /// A notification, whole.
    Notification,
    /// One entry of the list that this method gives.
    ListItem(Method),
}

/// One of these is part of the spelling of every path to a site, if no letter of it is escaped.
const NAME_KEYS: [&str; 6] = [
    "\"uri\"",
    "resourceUri\"",
    "\"taskId",
    "outputTemplate\"",
    "\"resourceSubscriptions\"",
    // The asker is named in questions.
    "\"inputRequests\"",
];

/// Whether a reply, notification or request may hold names. If this is false, [`sites`] finds none. It
/// is not meant for entries of lists: they always have a name.
pub fn may_contain_names(bytes: &[u8]) -> bool {
    static NAMES: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&NAME_KEYS));
    NAMES.may_be_in(bytes)
}

/// Whether it may hold names, or something that a reader of any kind may take for an id of a message.
pub fn may_contain_names_or_ids(bytes: &[u8]) -> bool {
    static BOTH: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&[&NAME_KEYS[..], &ID_KEYS].concat()));
    BOTH.may_be_in(bytes)
}

/// Appends the names in a message to `out`, in the order in which they stand.
pub fn sites(message: Value<'_>, shape: Shape, out: &mut Vec<Site>) {
    match shape {
        Shape::Request => message.all("params").for_each(|params| request(params, out)),
        Shape::Reply(method) => {
            message.all("result").for_each(|value| result(value, method, out));
            // "Resource not found" says which (SEP-2164).
            let data = message.all("error").flat_map(|error| error.all("data"));
            data.for_each(|data| add_each(data, "uri", Kind::Resource, out));
        }
        Shape::Asked => asked(message, out),
        Shape::AnswerToAsked => {
            for (key, value) in message.all("result").flat_map(Value::members) {
                match &*key {
                    "_meta" => meta(value, out),
                    "content" => content(value, out),
                    _ => {}
                }
            }
        }
        Shape::Notification => notification(message, out),
        Shape::ListItem(method) => item(message, method, out),
    }
}

fn item(item: Value<'_>, method: Method, out: &mut Vec<Site>) {
    for (key, value) in item.members() {
        match (method, &*key) {
            (Method::ToolsList, "name") => add(value, Kind::Tool, out),
            (Method::ToolsList, "_meta") => meta(value, out),
            (Method::PromptsList, "name") => add(value, Kind::Prompt, out),
            (Method::ResourcesList, "uri") | (Method::TemplatesList, "uriTemplate") => {
                add(value, Kind::Resource, out);
            }
            _ => {}
        }
    }
}

fn request(params: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in params.members() {
        match &*key {
            "_meta" => meta(value, out),
            "notifications" => subscriptions(value, out),
            "inputResponses" => {
                let contents = value.entries().flat_map(|(_, answer)| answer.all("content"));
                contents.for_each(|value| content(value, out));
            }
            _ => {}
        }
    }
}

fn notification(message: Value<'_>, out: &mut Vec<Site>) {
    let method = |name| has(message, "method", name);
    let is_task = method("notifications/tasks");
    let is_status = method("notifications/tasks/status");
    let is_update = method("notifications/resources/updated");
    let is_acknowledgement = method("notifications/subscriptions/acknowledged");
    for params in message.all("params") {
        if is_task {
            result(params, Some(Method::TasksGet), out);
            continue;
        }
        for (key, value) in params.members() {
            match &*key {
                "_meta" => meta(value, out),
                "uri" if is_update => add(value, Kind::Resource, out),
                "taskId" if is_status => add(value, Kind::Task, out),
                "notifications" if is_acknowledgement => subscriptions(value, out),
                _ => {}
            }
        }
    }
}

fn result(result_value: Value<'_>, method: Option<Method>, out: &mut Vec<Site>) {
    use Method as M;
    let is_task = matches!(method, Some(M::TasksGet | M::TasksUpdate | M::TasksCancel))
        || has(result_value, "resultType", "task")
        // A task that nobody asked for by name says how it is.
        || (method.is_none() && result_value.get("status").is_some());
    for (key, value) in result_value.members() {
        match (&*key, method) {
            ("_meta", _) => meta(value, out),
            ("taskId", _) if is_task => add(value, Kind::Task, out),
            ("inputRequests", _) => value.entries().for_each(|(_, request)| asked(request, out)),
            ("content", None | Some(M::ToolsCall | M::TasksResult)) => content(value, out),
            ("task", None | Some(M::ToolsCall)) => task(value, out),
            ("tasks", None | Some(M::TasksList)) => value.items().for_each(|item| task(item, out)),
            ("messages", None | Some(M::PromptsGet)) => messages(value, out),
            ("contents", None | Some(M::ResourcesRead)) => {
                value.items().for_each(|resource| add_each(resource, "uri", Kind::Resource, out));
            }
            // Only tool calls become tasks. The inner result holds no further one.
            ("result", Some(M::TasksGet)) => result(value, Some(M::ToolsCall), out),
            _ => {}
        }
    }
}

fn task(task: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in task.members() {
        match &*key {
            "taskId" => add(value, Kind::Task, out),
            "_meta" => meta(value, out),
            _ => {}
        }
    }
}

/// What a server asks of the client: a request, or an entry of `inputRequests`. The tasks that it asks about are the
/// client's own, and so are roots.
fn asked(request: Value<'_>, out: &mut Vec<Site>) {
    let is_sampling = has(request, "method", "sampling/createMessage");
    for (key, value) in request.all("params").flat_map(Value::members) {
        match &*key {
            "_meta" => meta(value, out),
            "messages" if is_sampling => messages(value, out),
            _ => {}
        }
    }
}

fn messages(messages: Value<'_>, out: &mut Vec<Site>) {
    messages.items().flat_map(|message| message.all("content")).for_each(|value| content(value, out));
}

/// One block of content or an array of them; the result of a tool is a block that holds content again.
fn content(value: Value<'_>, out: &mut Vec<Site>) {
    for outer in one_or_many(value) {
        block(outer, out, |value, out| one_or_many(value).for_each(|inner| block(inner, out, |_, _| {})));
    }
}

/// `tool_result` looks at the content of a tool's result.
fn block(block: Value<'_>, out: &mut Vec<Site>, tool_result: impl Fn(Value<'_>, &mut Vec<Site>)) {
    let (mut is_link, mut is_resource, mut is_tool_result) = (false, false, false);
    for kind in block.all("type") {
        is_link |= kind.is("resource_link");
        is_resource |= kind.is("resource");
        is_tool_result |= kind.is("tool_result");
    }
    if !(is_link || is_resource || is_tool_result) {
        return;
    }
    for (key, value) in block.members() {
        match &*key {
            "uri" if is_link => add(value, Kind::Resource, out),
            "resource" if is_resource => add_each(value, "uri", Kind::Resource, out),
            "content" if is_tool_result => tool_result(value, out),
            _ => {}
        }
    }
}

/// The filter of `subscriptions/listen`, and what of it is acknowledged.
fn subscriptions(filter: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in filter.members() {
        let kind = match &*key {
            "resourceSubscriptions" => Kind::Resource,
            "taskIds" => Kind::Task,
            _ => continue,
        };
        value.items().for_each(|item| add(item, kind, out));
    }
}

fn meta(meta: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in meta.members() {
        match &*key {
            "io.modelcontextprotocol/related-task" => add_each(value, "taskId", Kind::Task, out),
            "ui" => add_each(value, "resourceUri", Kind::Resource, out),
            "ui/resourceUri" | "openai/outputTemplate" => add(value, Kind::Resource, out),
            _ => {}
        }
    }
}

/// Adds a site if the value is a string and Unicode.
fn add(value: Value<'_>, kind: Kind, out: &mut Vec<Site>) {
    let literal = value.as_literal().filter(|literal| literal.decode(value.text()).is_some());
    out.extend(literal.map(|literal| Site { kind, literal }));
}

/// Adds every member of an object that has this key.
fn add_each(object: Value<'_>, key: &str, kind: Kind, out: &mut Vec<Site>) {
    object.all(key).for_each(|value| add(value, kind, out));
}

/// Whether the key of an object has this string as its value.
fn has(object: Value<'_>, key: &str, text: &str) -> bool {
    object.all(key).any(|value| value.is(text))
}

fn one_or_many(value: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    value.items().chain(Some(value).filter(|value| value.is_object()))
}

#[cfg(test)]
mod tests;
