//! Client capabilities as the specifications write them, in one spelling: what the gateway declares where it asks a
//! server on behalf of all clients that can do the same.
//!
//! What no specification knows is left out: other members, settings of capabilities that have none, what `experimental`
//! contains, extensions of others. So there are only so many texts, whatever clients send.

use bytes::Bytes;

use crate::json::{Document, JsonKind, Scratch, Value};

/// What a capability, or one of its settings, may be.
enum Schema {
    /// An object with these members.
    Object(&'static [(&'static str, Schema)]),
    /// The same, of no account without members.
    Members(&'static [(&'static str, Schema)]),
    /// `true`, else nothing.
    Flag,
    /// An array that may have this text.
    Texts(&'static str),
}

/// An object in which nothing is specified.
const EMPTY: Schema = Schema::Object(&[]);

/// All revisions together.
const CAPABILITIES: Schema = Schema::Object(&[
    ("elicitation", Schema::Object(&[("form", EMPTY), ("url", EMPTY)])),
    (
        "extensions",
        Schema::Members(&[
            ("io.modelcontextprotocol/enterprise-managed-authorization", EMPTY),
            ("io.modelcontextprotocol/oauth-client-credentials", EMPTY),
            ("io.modelcontextprotocol/tasks", EMPTY),
            (
                "io.modelcontextprotocol/ui",
                Schema::Object(&[("mimeTypes", Schema::Texts("text/html;profile=mcp-app"))]),
            ),
        ]),
    ),
    ("roots", Schema::Object(&[("listChanged", Schema::Flag)])),
    ("sampling", Schema::Object(&[("context", EMPTY), ("tools", EMPTY)])),
    (
        "tasks",
        Schema::Object(&[
            ("cancel", EMPTY),
            ("list", EMPTY),
            (
                "requests",
                Schema::Object(&[
                    ("elicitation", Schema::Object(&[("create", EMPTY)])),
                    ("sampling", Schema::Object(&[("createMessage", EMPTY)])),
                ]),
            ),
        ]),
    ),
]);

/// What of `capabilities` is specified. `{}` for what is no object.
pub fn specified(capabilities: &[u8], (scratch, depth_max): (&mut Scratch, usize)) -> Bytes {
    let root = scratch.index(capabilities, depth_max).map(Document::root);
    let text = root.ok().and_then(|root| text_of(root, &CAPABILITIES));
    text.map_or(Bytes::from_static(b"{}"), Bytes::from)
}

fn text_of(value: Value<'_>, shape: &Schema) -> Option<String> {
    match shape {
        Schema::Object(members) => {
            value.is_object().then(|| format!("{{{}}}", members_of(value, members).join(",")))
        }
        Schema::Members(members) => {
            let members = members_of(value, members);
            (!members.is_empty()).then(|| format!("{{{}}}", members.join(",")))
        }
        Schema::Flag => (value.kind() == JsonKind::True).then(|| "true".into()),
        Schema::Texts(known) => value.items().any(|text| text.is(known)).then(|| format!("[\"{known}\"]")),
    }
}

fn members_of(object: Value<'_>, members: &[(&str, Schema)]) -> Vec<String> {
    let member =
        |(name, shape): &(&str, Schema)| Some(format!("\"{name}\":{}", text_of(object.get(name)?, shape)?));
    members.iter().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_specified_is_left_and_in_one_spelling() {
        const UI: &str =
            r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
        const TASKS: &str = r#"{"tasks":{"cancel":{},"list":{},"requests":{"elicitation":{"create":{}},"sampling":{"createMessage":{}}}}}"#;
        for (capabilities, expected) in [
            ("{}", "{}"),
            ("[]", "{}"),
            ("{", "{}"),
            (r#"{"experimental":{"a":{}},"x":1,"sampling":[],"extensions":{"com.example/x":{}}}"#, "{}"),
            (
                r#"{ "sampling":{"tools":{"a":1},"b":2}, "elicitation":{"url":{},"form":{}} }"#,
                r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}}}"#,
            ),
            (r#"{"roots":{"listChanged":true}}"#, r#"{"roots":{"listChanged":true}}"#),
            (r#"{"roots":{"listChanged":false}}"#, r#"{"roots":{}}"#),
            (UI, UI),
            (
                r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["a",1,"text\/html;profile=mcp-app"],"b":[]},"c":{}}}"#,
                UI,
            ),
            (
                r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["a"]}}}"#,
                r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#,
            ),
            (TASKS, TASKS),
        ] {
            let found = specified(capabilities.as_bytes(), (&mut Scratch::default(), 16));
            assert_eq!(String::from_utf8_lossy(&found), expected, "{capabilities}");
        }
    }

    #[test]
    fn what_is_left_stays() {
        let found = specified(br#"{"roots":{},"tasks":{"requests":{}}}"#, (&mut Scratch::default(), 16));
        assert_eq!(specified(&found, (&mut Scratch::default(), 16)), found);
    }
}
