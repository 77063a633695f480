//! Messages in which every name is marked, so that the expectation stands in the message itself.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::json::Scratch;
use super::*;

/// The marked literals of a text in order: `u:` URIs, `t:` task ids, `n:` tool names, `p:` prompt names.
fn marked(text: &str) -> Vec<(Kind, &str)> {
    let marks =
        [("\"u:", Kind::Resource), ("\"t:", Kind::Task), ("\"n:", Kind::Tool), ("\"p:", Kind::Prompt)];
    let mut found = Vec::new();
    for (at, _) in text.match_indices('"') {
        if let Some((_, field)) = marks.iter().find(|(mark, _)| text[at..].starts_with(mark)) {
            let end = at + 1 + text[at + 1..].find('"').unwrap();
            found.push((*field, &text[at..=end]));
        }
    }
    found
}

fn found(text: &str, shape: Shape) -> Vec<(Kind, &str)> {
    let mut scratch = Scratch::default();
    let mut out = Vec::new();
    sites(scratch.index(text.as_bytes(), 64).unwrap().root(), shape, &mut out);
    out.into_iter().map(|site| (site.kind, &text[site.literal.span])).collect()
}

const CONTENT: &str = r#"[
    {"type":"text","text":"uri","uri":"x"},
    {"uri":"u:1","type":"resource_link","name":"x","icons":[{"src":"x"}],"resource":{"uri":"x"}},
    {"type":"resource","resource":{"text":"","uri":"u:2","mimeType":"x"},"uri":"x","_meta":{"uri":"x"}},
    {"type":"image","data":"","mimeType":"","uri":"x"},
    {"type":"resource","resource":[{"uri":"x"}]},
    {"type":"resource_link","uri":7},
    {"type":"resource_link","uri":"\ud800"},
    {"type":"resource_link","uri":"u:3","uri":"u:4"},
    {"type":"tool_result","toolUseId":"x","content":[{"type":"resource_link","uri":"u:5"},
        {"type":"tool_result","content":[{"type":"resource_link","uri":"x"}]}],
        "structuredContent":{"type":"resource_link","uri":"x"}},
    "resource_link", [{"type":"resource_link","uri":"x"}]
]"#;

const META: &str = r#"{"io.modelcontextprotocol/related-task":{"taskId":"t:m"},"taskId":"x","uri":"x",
    "ui":{"resourceUri":"u:m1","uri":"x"},"ui/resourceUri":"u:m2","openai/outputTemplate":"u:m3","resourceUri":"x"}"#;

fn sampling() -> String {
    format!(
        r#"{{"a":{{"params":{{"messages":[{{"role":"user","content":{CONTENT}}},
            {{"role":"user","content":{{"type":"resource_link","uri":"u:one"}}}}],"_meta":{META},
            "tools":[{{"name":"x","_meta":{{"ui":{{"resourceUri":"x"}}}}}}]}},"method":"sampling/createMessage"}},
          "b":{{"method":"elicitation/create","params":{{"mode":"url","url":"http://x","messages":[{{"content":
            {{"type":"resource_link","uri":"x"}}}}],"_meta":{META}}}}},
          "c":{{"method":"roots/list"}}}}"#
    )
}

fn tool_result() -> String {
    let unmarked = CONTENT.replace("\"u:", "\"");
    format!(
        r#"{{"content":{CONTENT},"structuredContent":{unmarked},"_meta":{META},"uri":"x","taskId":"x",
            "contents":[{{"uri":"x"}}],"messages":[{{"content":{unmarked}}}],"result":{{"taskId":"x"}}}}"#
    )
}

fn task() -> String {
    let (sampling, tool_result) = (sampling(), tool_result());
    format!(
        r#"{{"taskId":"t:1","status":"completed","statusMessage":"uri","result":{tool_result},
            "inputRequests":{sampling},"error":{{"uri":"x","taskId":"x"}}}}"#
    )
}

fn messages() -> Vec<(Shape, String)> {
    [replies(), others()].concat()
}

fn replies() -> Vec<(Shape, String)> {
    let reply = |kind, result: &str| {
        (Shape::Reply(Some(kind)), format!(r#"{{"jsonrpc":"2.0","id":"x","result":{result}}}"#))
    };
    let (sampling, tool_result, task) = (sampling(), tool_result(), task());
    vec![
        reply(Method::ToolsCall, &tool_result),
        reply(Method::ToolsCall, r#"{"taskId":"t:1","resultType":"task"}"#),
        reply(Method::ToolsCall, &format!(r#"{{"resultType":"input_required","inputRequests":{sampling}}}"#)),
        reply(Method::ToolsCall, "null"),
        reply(Method::ToolsCall, r#"{"content":{"type":"resource_link","uri":"u:1"}}"#),
        (
            Shape::Reply(Some(Method::ToolsCall)),
            r#"{"id":1,"error":{"data":{"uri":"u:1","taskId":"x"}}}"#.to_owned(),
        ),
        reply(
            Method::PromptsGet,
            &format!(
                r#"{{"messages":[{{"content":{CONTENT}}},{{"content":{{"resource":{{"uri":"u:x"}},"type":"resource"}}}}],
                "_meta":{META},"content":[{{"type":"resource_link","uri":"x"}}],"description":"uri"}}"#
            ),
        ),
        reply(Method::PromptsGet, &format!(r#"{{"inputRequests":{sampling}}}"#)),
        reply(
            Method::ResourcesRead,
            &format!(
                r#"{{"contents":[{{"uri":"u:1","text":"uri"}},{{"mimeType":"","uri":"u:2","blob":"","_meta":{{"ui":{{"resourceUri":"x"}}}}}}],
                "_meta":{META},"uri":"x","content":[{{"type":"resource_link","uri":"x"}}]}}"#
            ),
        ),
        reply(Method::Complete, &format!(r#"{{"completion":{{"values":["x"],"uri":"x"}},"_meta":{META}}}"#)),
        reply(Method::TasksGet, &task),
        reply(
            Method::TasksUpdate,
            &format!(
                r#"{{"taskId":"t:1","_meta":{META},"result":{{"content":[{{"type":"resource_link","uri":"x"}}]}}}}"#
            ),
        ),
        reply(
            Method::Ping,
            &format!(
                r#"{{"uri":"x","taskId":"x","content":[{{"type":"resource_link","uri":"x"}}],"_meta":{META}}}"#
            ),
        ),
    ]
}

fn others() -> Vec<(Shape, String)> {
    let notification = |method: &str, params: &str| {
        (Shape::Notification, format!(r#"{{"params":{params},"method":"{method}","jsonrpc":"2.0"}}"#))
    };
    let item = |list, entry: &str| (Shape::ListItem(list), entry.to_owned());
    let task = task();
    vec![
        notification("notifications/tasks", &task),
        notification(
            "notifications/resources/updated",
            &format!(r#"{{"_meta":{META},"uri":"u:1","taskId":"x"}}"#),
        ),
        notification(
            "notifications/subscriptions/acknowledged",
            r#"{"uri":"x","notifications":{"resourceSubscriptions":["u:1",7,"u:2"],"taskIds":["t:1"],"uri":"x","toolsListChanged":true}}"#,
        ),
        notification(
            "notifications/progress",
            &format!(r#"{{"uri":"x","taskId":"x","progressToken":"x","_meta":{META}}}"#),
        ),
        notification("notifications/message", r#"{"data":{"uri":"x","taskId":"x"},"logger":"uri"}"#),
        notification("notifications/tools/list_changed", "{}"),
        (
            Shape::Request,
            format!(
                r#"{{"id":1,"params":{{"name":"x","uri":"x","taskId":"x","ref":{{"uri":"x"}},"_meta":{META},
                    "arguments":{{"content":[{{"type":"resource_link","uri":"x"}}],"_meta":{{"ui":{{"resourceUri":"x"}}}}}},
                    "notifications":{{"resourceSubscriptions":["u:r"],"taskIds":["t:r"]}},
                    "inputResponses":{{"a":{{"role":"assistant","content":{CONTENT}}},"b":{{"roots":[{{"uri":"x"}}]}},
                        "c":{{"action":"accept","content":{{"uri":"x"}}}}}}}}}}"#
            ),
        ),
        item(
            Method::ToolsList,
            &format!(
                r#"{{"inputSchema":{{"properties":{{"name":"x","uri":"x"}}}},"name":"n:1","title":"x","_meta":{META},"uri":"x"}}"#
            ),
        ),
        item(
            Method::PromptsList,
            r#"{"name":"p:1","arguments":[{"name":"x"}],"_meta":{"ui":{"resourceUri":"x"}}}"#,
        ),
        item(
            Method::ResourcesList,
            r#"{"uri":"u:1","name":"x","icons":[{"src":"x","uri":"x"}],"uriTemplate":"x"}"#,
        ),
        item(Method::TemplatesList, r#"{"name":"x","uriTemplate":"u:{x}","uri":"x"}"#),
    ]
}

#[test]
fn names_are_found_where_they_are_and_nowhere_else() {
    for (shape, text) in messages() {
        assert_eq!(found(&text, shape), marked(&text), "{shape:?} {text}");
    }
}

#[test]
fn what_crosses_within_sessions_is_found() {
    let related = r#""_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t:1"}}"#;
    let task = format!(r#"{{"taskId":"t:2","status":"working",{related}}}"#);
    let resource = r#"{"type":"resource_link","uri":"u:3"}"#;
    let result = |result: &str| format!(r#"{{"id":1,"result":{result}}}"#);
    let asked = |method: &str, params: &str| {
        format!(r#"{{"id":1,"method":"{method}","params":{{{params},{related}}}}}"#)
    };
    for (shape, text) in [
        (Shape::Asked, asked("sampling/createMessage", &format!(r#""messages":[{{"content":{resource}}}]"#))),
        (
            Shape::Asked,
            asked(
                "elicitation/create",
                r#""url":"x","messages":[{"content":{"type":"resource_link","uri":"x"}}]"#,
            ),
        ),
        (Shape::Asked, asked("tasks/get", r#""taskId":"x""#)),
        (Shape::AnswerToAsked, result(&format!(r#"{{"content":[{resource}],"taskId":"x",{related}}}"#))),
        (Shape::AnswerToAsked, result(r#"{"task":{"taskId":"x"},"roots":[{"uri":"x"}]}"#)),
        (Shape::Reply(Some(Method::ToolsCall)), result(&format!(r#"{{"task":{task},"taskId":"x"}}"#))),
        (
            Shape::Reply(Some(Method::TasksList)),
            result(&format!(r#"{{"tasks":[{task},{task}],"taskId":"x"}}"#)),
        ),
        (
            Shape::Reply(Some(Method::TasksResult)),
            result(&format!(r#"{{"content":[{resource}],"taskId":"x",{related}}}"#)),
        ),
        (Shape::Reply(None), result(&task)),
        (
            Shape::Reply(None),
            result(&format!(r#"{{"task":{task},"contents":[{{"uri":"u:4"}}],"taskId":"x"}}"#)),
        ),
        (
            Shape::Notification,
            r#"{"method":"notifications/tasks/status","params":{"taskId":"t:5","status":"working"}}"#
                .to_owned(),
        ),
    ] {
        assert_eq!(found(&text, shape), marked(&text), "{shape:?} {text}");
        assert!(marked(&text).is_empty() || may_contain_names(text.as_bytes()));
    }
}

#[test]
fn an_escaped_key_counts() {
    for (shape, text) in messages() {
        let count = found(&text, shape).len();
        for key in [
            "uri",
            "taskId",
            "type",
            "result",
            "params",
            "content",
            "_meta",
            "outputTemplate\"",
            "resourceUri",
        ] {
            let last = key.trim_end_matches('"').chars().last().unwrap();
            let escaped =
                format!("{}\\u{:04x}", &key[..key.trim_end_matches('"').len() - 1], u32::from(last));
            let escaped = text.replace(key.trim_end_matches('"'), &escaped);
            assert_eq!(found(&escaped, shape).len(), count, "{escaped}");
            assert!(
                count == 0 || matches!(shape, Shape::ListItem(_)) || may_contain_names(escaped.as_bytes())
            );
        }
    }
}

#[test]
fn the_scan_is_exact_on_plain_messages() {
    for (text, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"security, during, URI, uri"}]}}"#,
            false,
        ),
        (r#"{"text":"\ud83d\ude00 \u00e9 \u003c \u0026 \n \u0031"}"#, false),
        (r#"{"text":"resource_link \"uri\" taskId"}"#, false),
        ("\\u00", false),
        ("\\u00é", false),
        ("", false),
        (r#"{"uri":""}"#, true),
        (r#"{"taskIds":[]}"#, true),
        (r#"{"openai/outputTemplate":""}"#, true),
        (r#"{"ui\/resourceUri":""}"#, true),
        (r#"{"resourceSubscriptions":""}"#, true),
        (r#"{"\u0075ri":""}"#, true),
        (r#"{"ur\u0069":""}"#, true),
        (r#"{"task\u0049d":""}"#, true),
    ] {
        assert_eq!(may_contain_names(text.as_bytes()), expected, "{text}");
    }
    for (shape, text) in messages() {
        let names = !found(&text, shape).is_empty() && !matches!(shape, Shape::ListItem(_));
        assert!(!names || may_contain_names(text.as_bytes()), "{text}");
    }
}

proptest! {
    /// Messages with some bytes changed: nothing panics, names come in order, and the scan never misses one.
    #[test]
    fn changed_messages_do_no_harm(
        (shape, text) in select(messages()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), select(&b"\"\\{}[]:,u0x "[..])), 0..3),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut scratch = Scratch::default();
        let Ok(document) = scratch.index(&bytes, 64) else { return Ok(()) };
        let mut out = Vec::new();
        sites(document.root(), shape, &mut out);
        prop_assert!(out.is_sorted_by_key(|site| site.literal.span.start));
        prop_assert!(out.is_empty() || matches!(shape, Shape::ListItem(_)) || may_contain_names(&bytes));
        prop_assert!(out.iter().all(|site| site.literal.decode(&bytes).is_some()));
    }
}
