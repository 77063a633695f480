//! Tasks in messages: whether a request asks for one, which one a reply makes, and which ones a notification names.
//!
//! Two forms: the core tasks of 2025-11-25 (`params.task`, `result.task`) and the tasks extension of the modern era
//! (declared in the client's capabilities, `resultType: "task"`). Everything is read, nothing is written.
//!
//! A key counts however it is escaped, and if it stands twice, both values count: what any reader may take for the id
//! of a task is one.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::envelope::Envelope;
use super::json::Value;
use super::key_scan::KeyScan;
use super::mapping::{self, Shape};
use super::route::Kind;

/// The longest id of a task whose owner is remembered, in bytes.
pub const ID_BYTES_MAX: usize = 1024;

/// A task that a reply makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// As its server spells it.
    pub id: String,
    /// For how long its server keeps it, if it says so.
    pub ttl_ms: Option<u64>,
}

/// Whether the client of a modern request may be answered with a task: it says that it knows them. Costs one look at
/// what it declares.
pub fn modern_may_make(envelope: &Envelope, body: &[u8]) -> bool {
    static TASKS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("/tasks"));
    let declared = envelope.meta.as_ref().and_then(|meta| meta.client_capabilities.clone());
    let declared = declared.and_then(|span| body.get(span)).unwrap_or_default();
    TASKS.find(declared).is_some() || memchr::memchr(b'\\', declared).is_some()
}

/// Whether a legacy request may be answered with a task: `task` is among its `params`, or looks as if it were.
pub fn legacy_may_make(envelope: &Envelope, body: &[u8]) -> bool {
    static TASK: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&["\"task\""]));
    let params = envelope.params.clone().filter(|_| envelope.has_other_params);
    TASK.may_be_in(params.and_then(|span| body.get(span)).unwrap_or_default())
}

/// Whether a message may name a task. If this is false, it names none.
pub fn may_name(message: &[u8]) -> bool {
    static TASK_ID: LazyLock<KeyScan> = LazyLock::new(|| KeyScan::new(&["\"taskId\""]));
    TASK_ID.may_be_in(message)
}

/// The tasks that a reply makes: one, unless readers could differ over it.
pub fn made(reply: Value<'_>) -> Vec<Made> {
    let mut made = Vec::new();
    for result in reply.all("result") {
        result.all("task").for_each(|task| read(task, &mut made));
        if result.all("resultType").any(|kind| kind.is("task")) {
            read(result, &mut made);
        }
    }
    made
}

/// The tasks that a notification names.
pub fn named_in_notification(message: Value<'_>) -> Vec<String> {
    let mut sites = Vec::new();
    mapping::sites(message, Shape::Notification, &mut sites);
    let of_tasks = sites.iter().filter(|site| site.kind == Kind::Task);
    of_tasks.filter_map(|site| Some(site.literal.decode(message.text())?.into_owned())).collect()
}

/// The id in an entry of a list; `None` where readers could differ over it.
pub fn id_of(entry: Value<'_>) -> Option<String> {
    Some(entry.only("taskId")?.as_str()?.into_owned())
}

fn read(task: Value<'_>, made: &mut Vec<Made>) {
    let ttls = ["ttl", "ttlMs"].into_iter().flat_map(|key| task.all(key));
    let ttl_ms = ttls.filter_map(|ttl| u64::try_from(ttl.as_integer()?).ok()).last();
    let ids = task.all("taskId").filter_map(Value::as_str);
    made.extend(ids.map(|id| Made { id: id.into_owned(), ttl_ms }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;

    fn with<T>(text: &str, read: impl Fn(Value<'_>) -> T) -> T {
        let mut scratch = Scratch::default();
        read(scratch.index(text.as_bytes(), 64).expect("JSON").root())
    }

    #[test]
    fn both_forms_of_a_new_task_are_read() {
        for (reply, expected) in [
            (r#"{"id":1,"result":{"task":{"taskId":"a","ttl":5}}}"#, vec![("a", Some(5))]),
            (r#"{"id":1,"result":{"t\u0061sk":{"\u0074askId":"\u0061","ttl":null}}}"#, vec![("a", None)]),
            (r#"{"id":1,"result":{"resultType":"task","taskId":"a","ttlMs":7}}"#, vec![("a", Some(7))]),
            (r#"{"id":1,"result":{"task":{"taskId":"a","taskId":"b"}}}"#, vec![("a", None), ("b", None)]),
            (r#"{"id":1,"result":{"taskId":"a","status":"working"}}"#, vec![]),
            (r#"{"id":1,"result":{"resultType":"complete","taskId":"a"}}"#, vec![]),
            (r#"{"id":1,"result":{"content":[{"task":{"taskId":"a"}}]}}"#, vec![]),
            (r#"{"id":1,"error":{"task":{"taskId":"a"}}}"#, vec![]),
            (r#"{"id":1,"result":{"task":{"taskId":1,"ttl":-1}}}"#, vec![]),
        ] {
            let found = with(reply, made);
            let found: Vec<_> = found.iter().map(|made| (made.id.as_str(), made.ttl_ms)).collect();
            assert_eq!(found, expected, "{reply}");
        }
    }

    #[test]
    fn what_a_notification_names_is_found() {
        for (message, expected) in [
            (r#"{"method":"notifications/tasks/status","params":{"taskId":"a"}}"#, vec!["a"]),
            (r#"{"method":"notifications/tasks","params":{"taskId":"a","status":"working"}}"#, vec!["a"]),
            (
                r#"{"method":"notifications/progress","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"b"}}}}"#,
                vec!["b"],
            ),
            (r#"{"method":"notifications/message","params":{"data":{"taskId":"a"}}}"#, vec![]),
        ] {
            assert_eq!(with(message, named_in_notification), expected, "{message}");
        }
    }

    #[test]
    fn an_entry_has_one_id_or_none() {
        for (entry, expected) in [
            (r#"{"taskId":"a"}"#, Some("a")),
            (r#"{"taskId":"a","taskId":"a"}"#, None),
            (r#"{"taskId":7}"#, None),
            ("7", None),
        ] {
            assert_eq!(with(entry, id_of).as_deref(), expected, "{entry}");
        }
    }
}
