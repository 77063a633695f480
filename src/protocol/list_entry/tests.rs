use super::*;
use crate::json::Scratch;

fn fault_of(text: &str, kind: EntryKind) -> Option<String> {
    let mut scratch = Scratch::default();
    let document = scratch.index(text.as_bytes(), 64).unwrap_or_else(|error| panic!("{text}: {error}"));
    fault(document.root(), kind).map(|fault| fault.to_string())
}

/// An entry without faults, with more members.
fn with(kind: EntryKind, members: &str) -> String {
    let own = match kind {
        EntryKind::Tool => r#""name":"t","inputSchema":{"type":"object"}"#,
        EntryKind::Prompt => r#""name":"p""#,
        EntryKind::Resource => r#""name":"r","uri":"file:///r""#,
        EntryKind::Template => r#""name":"r","uriTemplate":"file:///{r}""#,
    };
    format!("{{{own}{members}}}")
}

const ALL: [EntryKind; 4] = [EntryKind::Tool, EntryKind::Prompt, EntryKind::Resource, EntryKind::Template];

#[test]
fn what_clients_take_is_no_fault() {
    for members in [
        "",
        r#","title":"","description":"","icons":[],"_meta":{},"own":null,"input_schema":7"#,
        r#","icons":[{"src":"x","mimeType":"image/png","sizes":["48x48","any"],"theme":"dark","own":null}]"#,
        r#","icons":[{"src":"x"},{"src":""}],"_meta":{"x":null}"#,
    ] {
        for kind in ALL {
            assert_eq!(fault_of(&with(kind, members), kind), None, "{kind:?} {members}");
        }
    }
    for members in [
        r#","annotations":{},"execution":{},"outputSchema":{}"#,
        r#","annotations":{"title":"","readOnlyHint":true,"idempotentHint":false,"audience":7}"#,
        r#","execution":{"taskSupport":"optional"}"#,
        // Written otherwise for clients that would not take it.
        r#","outputSchema":{"type":"array","properties":7,"required":7}"#,
        r#","outputSchema":{"type":"object","properties":{"a":true,"b":{"type":7}},"$schema":"x"}"#,
    ] {
        assert_eq!(fault_of(&with(EntryKind::Tool, members), EntryKind::Tool), None, "{members}");
    }
    for schema in [
        r#"{"type":"object","properties":{},"required":[],"$schema":null}"#,
        r#"{"properties":{"a":{},"b":false,"c":{"properties":7}},"required":["a","z"],"type":"object"}"#,
        r#"{"type":"object","anyOf":7,"additionalProperties":null,"$defs":7}"#,
    ] {
        let tool = format!(r#"{{"name":"","inputSchema":{schema}}}"#);
        assert_eq!(fault_of(&tool, EntryKind::Tool), None, "{tool}");
    }
    for annotations in [
        r#"{"audience":[],"priority":0}"#,
        r#"{"audience":["user","assistant"],"priority":1.0,"lastModified":"2024-02-29T23:59:59.5+14:00"}"#,
        r#"{"priority":5e-1,"lastModified":"2025-01-12T15:00:58Z","own":null}"#,
    ] {
        for kind in [EntryKind::Resource, EntryKind::Template] {
            let entry = with(kind, &format!(r#","mimeType":"text/plain","annotations":{annotations}"#));
            assert_eq!(fault_of(&entry, kind), None, "{entry}");
        }
    }
    for resource in [
        r#"{"name":"r","uri":"urn:x","size":0}"#,
        r#"{"name":"r","uri":"https://h","size":1e3}"#,
        r#"{"name":"r","uri":"custom://","size":12345678901234567890}"#,
    ] {
        assert_eq!(fault_of(resource, EntryKind::Resource), None, "{resource}");
    }
}

#[test]
fn what_clients_refuse_is_a_fault_of_its_member() {
    for (members, expected) in [
        (r#","title":null"#, "title must be a string"),
        (r#","title":5"#, "title must be a string"),
        (r#","description":null"#, "description must be a string"),
        (r#","icons":null"#, "icons must be an array"),
        (r#","icons":{}"#, "icons must be an array"),
        (r#","icons":["x"]"#, "icons[0] must be an object"),
        (r#","icons":[{"src":"x"},{}]"#, "icons[1].src is missing"),
        (r#","icons":[{"src":"x","sizes":"any"}]"#, "icons[0].sizes must be an array"),
        (r#","icons":[{"src":"x","sizes":["any",7]}]"#, "icons[0].sizes[1] must be a string"),
        (
            r#","icons":[{"src":"x","theme":"blue"}]"#,
            "icons[0].theme must be one of the values that MCP knows",
        ),
        (r#","_meta":null"#, "_meta must be an object"),
        (r#","_meta":[]"#, "_meta must be an object"),
    ] {
        for kind in ALL {
            assert_eq!(fault_of(&with(kind, members), kind).as_deref(), Some(expected), "{kind:?} {members}");
        }
    }
    for (kind, entry, expected) in [
        (EntryKind::Tool, "null", "it must be an object"),
        (EntryKind::Prompt, "\"p\"", "it must be an object"),
        (EntryKind::Resource, "[]", "it must be an object"),
        (EntryKind::Tool, r#"{"name":"t"}"#, "inputSchema is missing"),
        (EntryKind::Tool, r#"{"inputSchema":{"type":"object"}}"#, "name is missing"),
        (EntryKind::Tool, r#"{"name":5,"inputSchema":{"type":"object"}}"#, "name must be a string"),
        (EntryKind::Prompt, "{}", "name is missing"),
        (EntryKind::Resource, r#"{"uri":"x:y"}"#, "name is missing"),
        (EntryKind::Resource, r#"{"name":"r"}"#, "uri is missing"),
        (EntryKind::Resource, r#"{"name":"r","uri":"readme"}"#, "uri must be a URI with its scheme"),
        (EntryKind::Resource, r#"{"name":"r","uri":"http://"}"#, "uri must be a URI with its scheme"),
        (EntryKind::Resource, r#"{"name":"r","uri":"1x:y"}"#, "uri must be a URI with its scheme"),
        (EntryKind::Resource, r#"{"name":"r","uri":"x:y","size":"9"}"#, "size must be an integer"),
        (EntryKind::Resource, r#"{"name":"r","uri":"x:y","size":0.5}"#, "size must be an integer"),
        (EntryKind::Resource, r#"{"name":"r","uri":"x:y","size":1e999}"#, "size must be an integer"),
        (EntryKind::Resource, r#"{"name":"r","uri":"x:y","mimeType":null}"#, "mimeType must be a string"),
        (EntryKind::Template, r#"{"name":"r"}"#, "uriTemplate is missing"),
        (EntryKind::Template, r#"{"name":"r","uriTemplate":null}"#, "uriTemplate must be a string"),
        (EntryKind::Prompt, r#"{"name":"p","arguments":null}"#, "arguments must be an array"),
        (EntryKind::Prompt, r#"{"name":"p","arguments":[{}]}"#, "arguments[0].name is missing"),
        (
            EntryKind::Prompt,
            r#"{"name":"p","arguments":[{"name":"a","required":"yes"}]}"#,
            "arguments[0].required must be true or false",
        ),
    ] {
        assert_eq!(fault_of(entry, kind).as_deref(), Some(expected), "{kind:?} {entry}");
    }
}

#[test]
fn what_clients_refuse_of_a_tool_is_a_fault() {
    for (schema, expected) in [
        ("null", "inputSchema must be an object with type \"object\""),
        ("{}", "inputSchema must be an object with type \"object\""),
        (r#"{"anyOf":[{"type":"object"}]}"#, "inputSchema must be an object with type \"object\""),
        (r#"{"type":["object"]}"#, "inputSchema must be an object with type \"object\""),
        (r#"{"type":"object","properties":null}"#, "inputSchema.properties must be an object of schemas"),
        (
            r#"{"type":"object","properties":{"a":null}}"#,
            "inputSchema.properties must be an object of schemas",
        ),
        (r#"{"type":"object","required":null}"#, "inputSchema.required must be an array"),
        (r#"{"type":"object","required":[7]}"#, "inputSchema.required[0] must be a string"),
        (r#"{"type":"object","$schema":7}"#, "inputSchema.$schema must be a string"),
    ] {
        let tool = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
        assert_eq!(fault_of(&tool, EntryKind::Tool).as_deref(), Some(expected), "{tool}");
    }
    for (members, expected) in [
        (r#","outputSchema":null"#, "outputSchema must be an object"),
        (r#","outputSchema":true"#, "outputSchema must be an object"),
        (r#","outputSchema":{"$schema":null}"#, "outputSchema.$schema must be a string"),
        (
            r#","outputSchema":{"type":"object","properties":{"a":7}}"#,
            "outputSchema.properties must be an object of schemas",
        ),
        (r#","annotations":null"#, "annotations must be an object"),
        (r#","annotations":{"readOnlyHint":"true"}"#, "annotations.readOnlyHint must be true or false"),
        (r#","annotations":{"title":null}"#, "annotations.title must be a string"),
        (r#","execution":null"#, "execution must be an object"),
        (
            r#","execution":{"taskSupport":"no"}"#,
            "execution.taskSupport must be one of the values that MCP knows",
        ),
    ] {
        let tool = with(EntryKind::Tool, members);
        assert_eq!(fault_of(&tool, EntryKind::Tool).as_deref(), Some(expected), "{tool}");
    }
}

#[test]
fn what_clients_refuse_of_annotations_is_a_fault() {
    const DATE: &str =
        "annotations.lastModified must be a date and time with its offset, such as 2025-01-12T15:00:58Z";
    for (annotations, expected) in [
        ("null", "annotations must be an object"),
        (r#"{"audience":"user"}"#, "annotations.audience must be an array"),
        (r#"{"audience":["system"]}"#, "annotations.audience[0] must be one of the values that MCP knows"),
        (r#"{"priority":1.01}"#, "annotations.priority must be a number from 0 to 1"),
        (r#"{"priority":-1}"#, "annotations.priority must be a number from 0 to 1"),
        (r#"{"priority":"1"}"#, "annotations.priority must be a number from 0 to 1"),
        (r#"{"lastModified":null}"#, DATE),
        (r#"{"lastModified":"2025-01-12"}"#, DATE),
        (r#"{"lastModified":"2025-01-12T15:00:58"}"#, DATE),
        (r#"{"lastModified":"2025-01-12T15:00Z"}"#, DATE),
        (r#"{"lastModified":"2025-01-12 15:00:58Z"}"#, DATE),
        (r#"{"lastModified":"2025-02-29T15:00:58Z"}"#, DATE),
        (r#"{"lastModified":"2025-13-01T15:00:58Z"}"#, DATE),
        (r#"{"lastModified":"2025-01-12T24:00:58Z"}"#, DATE),
        (r#"{"lastModified":"2025-01-12T15:00:58.Z"}"#, DATE),
        (r#"{"lastModified":"2025-01-12T15:00:58+0100"}"#, DATE),
        (r#"{"lastModified":"2025-01-12T15:00:58Zjunk"}"#, DATE),
    ] {
        for kind in [EntryKind::Resource, EntryKind::Template] {
            let entry = with(kind, &format!(r#","annotations":{annotations}"#));
            assert_eq!(fault_of(&entry, kind).as_deref(), Some(expected), "{entry}");
        }
    }
}
