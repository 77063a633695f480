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

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::json::{Kind, Literal, Value};

/// What kind of name a literal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The URI of a resource, or a URI template.
    Uri,
    /// The id of a task.
    TaskId,
    /// The name of a tool.
    ToolName,
    /// The name of a prompt.
    PromptName,
}

/// A name in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What the name names.
    pub field: Field,
    /// Where it stands.
    pub literal: Literal,
}

/// What a message is, and so where its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A request, whole. Only what `Envelope` does not give: related tasks, the filter of
    /// `subscriptions/listen`, and resources in answers to sampling requests.
    Request,
    /// The response to a request, whole.
    Reply(Reply),
    /// A request that a server of the legacy era makes of its client, whole.
    Asked,
    /// What a client answers to one, whole.
    AnswerToAsked,
    /// A notification, whole.
    Notification,
    /// One entry of a list.
    ListItem(List),
}

/// The request that a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `tools/call`
    ToolsCall,
    /// `prompts/get`
    PromptsGet,
    /// `resources/read`
    ResourcesRead,
    /// `completion/complete`
    Completion,
    /// `tasks/get`
    TasksGet,
    /// `tasks/list` of the legacy era
    TasksList,
    /// `tasks/result` of the legacy era: what the call would have come to.
    TasksResult,
    /// Any other method of tasks.
    TasksOther,
    /// To a request that nobody remembers: whatever looks like a name of one of the above.
    Any,
    /// Anything else.
    Other,
}

/// What a list lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
}

/// Whether a reply, notification or request may hold names. If this is false, [`sites`] finds none. It
/// is not meant for entries of lists: they always have a name.
pub fn may_contain_names(bytes: &[u8]) -> bool {
    // One of these is part of the spelling of every path to a site, if no letter of it is escaped.
    static KEYS: LazyLock<[Finder<'static>; 5]> = LazyLock::new(|| {
        ["\"uri\"", "resourceUri\"", "\"taskId", "outputTemplate\"", "\"resourceSubscriptions\""]
            .map(Finder::new)
    });
    KEYS.iter().any(|key| key.find(bytes).is_some()) || escapes_a_letter(bytes)
}

/// Whether a letter is written as an escape, as nobody but who hides a key does.
pub(super) fn escapes_a_letter(bytes: &[u8]) -> bool {
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    ESCAPE.find_iter(bytes).any(|at| {
        let hex = bytes.get(at + 4..at + 6).and_then(|digits| std::str::from_utf8(digits).ok());
        hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).is_some_and(|code| code.is_ascii_alphabetic())
    })
}

/// Appends the names in a message to `out`, in the order in which they stand.
pub fn sites(message: Value<'_>, shape: Shape, out: &mut Vec<Site>) {
    match shape {
        Shape::Request => each(message, "params", |params| request(params, out)),
        Shape::Reply(kind) => {
            each(message, "result", |value| result(value, kind, out));
            // "Resource not found" says which (SEP-2164).
            each(message, "error", |error| {
                each(error, "data", |data| each(data, "uri", |uri| add(uri, Field::Uri, out)));
            });
        }
        Shape::Asked => asked(message, out),
        Shape::AnswerToAsked => each(message, "result", |value| {
            for (key, value) in fields(value) {
                match &*key {
                    "_meta" => meta(value, out),
                    "content" => content(value, out),
                    _ => {}
                }
            }
        }),
        Shape::Notification => notification(message, out),
        Shape::ListItem(list) => item(message, list, out),
    }
}

fn item(item: Value<'_>, list: List, out: &mut Vec<Site>) {
    for (key, value) in fields(item) {
        match (list, &*key) {
            (List::Tools, "name") => add(value, Field::ToolName, out),
            (List::Tools, "_meta") => meta(value, out),
            (List::Prompts, "name") => add(value, Field::PromptName, out),
            (List::Resources, "uri") | (List::Templates, "uriTemplate") => add(value, Field::Uri, out),
            _ => {}
        }
    }
}

fn request(params: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in fields(params) {
        match &*key {
            "_meta" => meta(value, out),
            "notifications" => subscriptions(value, out),
            "inputResponses" => {
                for (_, answer) in value.entries() {
                    each(answer, "content", |value| content(value, out));
                }
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
    each(message, "params", |params| {
        if is_task {
            return result(params, Reply::TasksGet, out);
        }
        for (key, value) in fields(params) {
            match &*key {
                "_meta" => meta(value, out),
                "uri" if is_update => add(value, Field::Uri, out),
                "taskId" if is_status => add(value, Field::TaskId, out),
                "notifications" if is_acknowledgement => subscriptions(value, out),
                _ => {}
            }
        }
    });
}

fn result(result_value: Value<'_>, kind: Reply, out: &mut Vec<Site>) {
    let is_any = kind == Reply::Any;
    let is_task =
        matches!(kind, Reply::TasksGet | Reply::TasksOther) || has(result_value, "resultType", "task");
    // A task that nobody asked for by name says how it is.
    let is_task = is_task || (is_any && result_value.get("status").is_some());
    for (key, value) in fields(result_value) {
        match (&*key, kind) {
            ("_meta", _) => meta(value, out),
            ("taskId", _) if is_task => add(value, Field::TaskId, out),
            ("inputRequests", _) => input_requests(value, out),
            ("content", Reply::ToolsCall | Reply::TasksResult | Reply::Any) => content(value, out),
            ("task", Reply::ToolsCall | Reply::Any) => task(value, out),
            ("tasks", Reply::TasksList | Reply::Any) => value.items().for_each(|item| task(item, out)),
            ("messages", Reply::PromptsGet | Reply::Any) => messages(value, out),
            ("contents", Reply::ResourcesRead | Reply::Any) => {
                for resource in value.items() {
                    each(resource, "uri", |uri| add(uri, Field::Uri, out));
                }
            }
            // Only tool calls become tasks. The inner result holds no further one.
            ("result", Reply::TasksGet) => result(value, Reply::ToolsCall, out),
            _ => {}
        }
    }
}

fn task(task: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in fields(task) {
        match &*key {
            "taskId" => add(value, Field::TaskId, out),
            "_meta" => meta(value, out),
            _ => {}
        }
    }
}

/// The tasks that a server asks about are the client's own, and so are roots.
fn asked(message: Value<'_>, out: &mut Vec<Site>) {
    let is_sampling = has(message, "method", "sampling/createMessage");
    each(message, "params", |params| asked_params(params, is_sampling, out));
}

fn asked_params(params: Value<'_>, is_sampling: bool, out: &mut Vec<Site>) {
    for (key, value) in fields(params) {
        match &*key {
            "_meta" => meta(value, out),
            "messages" if is_sampling => messages(value, out),
            _ => {}
        }
    }
}

/// What the server asks of the client: a map from its own keys to requests.
fn input_requests(requests: Value<'_>, out: &mut Vec<Site>) {
    for (_, request) in requests.entries() {
        let is_sampling = has(request, "method", "sampling/createMessage");
        each(request, "params", |params| asked_params(params, is_sampling, out));
    }
}

fn messages(messages: Value<'_>, out: &mut Vec<Site>) {
    for message in messages.items() {
        each(message, "content", |value| content(value, out));
    }
}

/// One block of content or an array of them; the result of a tool is a block that holds content again.
fn content(value: Value<'_>, out: &mut Vec<Site>) {
    for outer in one_or_many(value) {
        block(outer, out, |value, out| {
            for inner in one_or_many(value) {
                block(inner, out, |_, _| {});
            }
        });
    }
}

/// `tool_result` looks at the content of a tool's result.
fn block(block: Value<'_>, out: &mut Vec<Site>, tool_result: impl Fn(Value<'_>, &mut Vec<Site>)) {
    let (mut is_link, mut is_resource, mut is_tool_result) = (false, false, false);
    each(block, "type", |kind| {
        is_link |= is(kind, "resource_link");
        is_resource |= is(kind, "resource");
        is_tool_result |= is(kind, "tool_result");
    });
    if !(is_link || is_resource || is_tool_result) {
        return;
    }
    for (key, value) in fields(block) {
        match &*key {
            "uri" if is_link => add(value, Field::Uri, out),
            "resource" if is_resource => each(value, "uri", |uri| add(uri, Field::Uri, out)),
            "content" if is_tool_result => tool_result(value, out),
            _ => {}
        }
    }
}

/// The filter of `subscriptions/listen`, and what of it is acknowledged.
fn subscriptions(filter: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in fields(filter) {
        let field = match &*key {
            "resourceSubscriptions" => Field::Uri,
            "taskIds" => Field::TaskId,
            _ => continue,
        };
        value.items().for_each(|item| add(item, field, out));
    }
}

fn meta(meta: Value<'_>, out: &mut Vec<Site>) {
    for (key, value) in fields(meta) {
        match &*key {
            "io.modelcontextprotocol/related-task" => each(value, "taskId", |id| add(id, Field::TaskId, out)),
            "ui" => each(value, "resourceUri", |uri| add(uri, Field::Uri, out)),
            "ui/resourceUri" | "openai/outputTemplate" => add(value, Field::Uri, out),
            _ => {}
        }
    }
}

/// Adds a site if the value is a string and Unicode.
fn add(value: Value<'_>, field: Field, out: &mut Vec<Site>) {
    let literal = value.as_literal().filter(|literal| literal.decode(value.text()).is_some());
    out.extend(literal.map(|literal| Site { field, literal }));
}

fn fields(object: Value<'_>) -> impl Iterator<Item = (Cow<'_, str>, Value<'_>)> {
    object.entries().filter_map(move |(key, value)| Some((key.decode(object.text())?, value)))
}

fn each<'a>(object: Value<'a>, key: &str, mut visit: impl FnMut(Value<'a>)) {
    object
        .entries()
        .filter(|(found, _)| found.equals(object.text(), key))
        .for_each(|(_, value)| visit(value));
}

/// Whether the key of an object has this string as its value.
fn has(object: Value<'_>, key: &str, value: &str) -> bool {
    let mut found = false;
    each(object, key, |candidate| found |= is(candidate, value));
    found
}

fn is(value: Value<'_>, string: &str) -> bool {
    value.as_literal().is_some_and(|literal| literal.equals(value.text(), string))
}

fn one_or_many(value: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    value.items().chain(Some(value).filter(|value| value.kind() == Kind::Object))
}

#[cfg(test)]
mod tests;
