//! How a legacy server introduces itself, as a modern client asks for it: the result of `initialize` as one of
//! `server/discover`.

use std::fmt::Write as _;

use bytes::Bytes;

use super::result::{OF_RESULT, SERVER_INFO};
use crate::json::{Scratch, Value, quote};

/// Members of the one that the other has elsewhere, or not at all.
const ELSEWHERE: [&str; 5] = ["protocolVersion", "supportedVersions", "capabilities", "serverInfo", "_meta"];
/// Capabilities with lists, whose changes the gateway always announces.
const WITH_LISTS: [&str; 3] = ["tools", "prompts", "resources"];

/// The result object of `server/discover` that says what `result`, of `initialize`, says. It names no versions: they are
/// those of whoever translates. `None`: it is not an object.
pub fn to_modern(result: &Bytes, (scratch, depth_max): (&mut Scratch, usize)) -> Option<Bytes> {
    let root = scratch.index(result, depth_max).ok()?.root().as_object()?;
    let capabilities = root.object("capabilities");
    let mut json = format!(
        r#"{{"resultType":"complete","supportedVersions":[],"capabilities":{{{}}}"#,
        capabilities.map(offered).unwrap_or_default()
    );
    let is_other = |name: &str| !ELSEWHERE.contains(&name) && !OF_RESULT.contains(&name);
    for (name, value) in root.members().filter(|(name, _)| is_other(name)) {
        let _ = write!(json, ",{}", member(&name, value));
    }
    let own = root.object("_meta").into_iter().flat_map(Value::members);
    let own = own.filter(|(name, _)| name != SERVER_INFO);
    let mut meta: Vec<String> = own.map(|(name, value)| member(&name, value)).collect();
    meta.extend(root.object("serverInfo").map(|info| member(SERVER_INFO, info)));
    if !meta.is_empty() {
        let _ = write!(json, r#","_meta":{{{}}}"#, meta.join(","));
    }
    json.push('}');
    Some(json.into())
}

/// The name by which a legacy server introduced itself, a JSON object.
pub fn server_info(result: &Bytes, (scratch, depth_max): (&mut Scratch, usize)) -> Option<String> {
    let info = scratch.index(result, depth_max).ok()?.root().object("serverInfo")?;
    Some(info.source().to_owned())
}

/// Its capabilities, without tasks: those of the two eras are not the same.
fn offered(capabilities: Value<'_>) -> String {
    let offered = capabilities.members().filter(|(name, _)| name != "tasks").map(|(name, value)| {
        if !WITH_LISTS.contains(&&*name) || !value.is_object() {
            return member(&name, value);
        }
        let others = value.members().filter(|(name, _)| name != "listChanged");
        let mut settings: Vec<String> = others.map(|(name, value)| member(&name, value)).collect();
        settings.push(r#""listChanged":true"#.to_owned());
        format!("{}:{{{}}}", quote(&name), settings.join(","))
    });
    offered.collect::<Vec<_>>().join(",")
}

/// A member with its value as it is spelled.
fn member(name: &str, value: Value<'_>) -> String {
    format!("{}:{}", quote(name), value.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_says_the_same() {
        for (result, expected) in [
            (
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":false,"a":[1]},"resources":{"subscribe":true},"tasks":{"list":{}},"logging":{},"completions":{},"experimental":{"x":{}}},"serverInfo":{ "name":"s" },"instructions":"As \u0069s.","y":1e400,"ttlMs":7}"#,
                r#"{"resultType":"complete","supportedVersions":[],"capabilities":{"tools":{"a":[1],"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{},"experimental":{"x":{}}},"instructions":"As \u0069s.","y":1e400,"_meta":{"io.modelcontextprotocol/serverInfo":{ "name":"s" }}}"#,
            ),
            (
                r#"{"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":2}}"#,
                r#"{"resultType":"complete","supportedVersions":[],"capabilities":{},"_meta":{"a":1}}"#,
            ),
            ("{}", r#"{"resultType":"complete","supportedVersions":[],"capabilities":{}}"#),
        ] {
            let found =
                to_modern(&Bytes::from(result), (&mut Scratch::default(), 16)).expect("an introduction");
            assert_eq!(String::from_utf8_lossy(&found), expected, "{result}");
        }
        for result in ["", "[]", "7"] {
            assert_eq!(to_modern(&Bytes::from(result), (&mut Scratch::default(), 16)), None, "{result}");
        }
    }

    #[test]
    fn a_server_is_known_by_its_name() {
        for (result, expected) in [
            (r#"{"serverInfo":{ "name":"s" }}"#, Some(r#"{ "name":"s" }"#)),
            (r#"{"serverInfo":"s"}"#, None),
            ("{}", None),
            ("", None),
        ] {
            let found = server_info(&Bytes::from(result), (&mut Scratch::default(), 16));
            assert_eq!(found.as_deref(), expected, "{result}");
        }
    }
}
