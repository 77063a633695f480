//! URL elicitations that a legacy server wants completed first (2025-11-25 Elicitation, "URL Elicitation Required
//! Error"), as a modern result that asks for input.

use crate::json::{JsonKind, Value};

/// The error of a server that wants elicitations completed before it does anything.
pub const REQUIRED: i64 = -32042;
/// Begins the keys under which the client is asked.
pub const KEY: &str = "url-elicitation-";
/// So many are asked for at once; servers have one or two.
const ELICITATIONS_MAX: usize = 64;

/// The result that asks a client for what `error`, of this code, wants. `None`: it wants nothing.
pub fn input_required(error: Value<'_>) -> Option<String> {
    let wanted = error.get("data")?.get("elicitations").filter(|all| all.kind() == JsonKind::Array)?;
    let mut requests = Vec::new();
    for one in wanted.items().take(ELICITATIONS_MAX) {
        let raw =
            |key: &str| one.get(key).filter(|value| value.kind() == JsonKind::String).map(Value::source);
        let (Some(url), message) = (raw("url"), raw("message").unwrap_or("\"\"")) else { continue };
        requests.push(format!(
            r#""{KEY}{}":{{"method":"elicitation/create","params":{{"mode":"url","message":{message},"url":{url}}}}}"#,
            requests.len() + 1
        ));
    }
    if requests.is_empty() {
        return None;
    }
    Some(format!(r#"{{"resultType":"input_required","inputRequests":{{{}}}}}"#, requests.join(",")))
}

/// Whether the client answered such a question, and would not.
pub fn is_refused(responses: Value<'_>) -> bool {
    let is_accepted = |response: Value<'_>| response.get("action").is_some_and(|action| action.is("accept"));
    responses.members().any(|(key, response)| key.starts_with(KEY) && !is_accepted(response))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Document, Scratch};

    #[test]
    fn what_must_come_first_is_asked_for() {
        let expected = concat!(
            r#"{"resultType":"input_required","inputRequests":{"url-elicitation-1":{"method":"elicitation/create","#,
            r#""params":{"mode":"url","message":"m\n","url":"https://a"}}}}"#
        );
        for (error, expected) in [
            (
                r#"{"code":-32042,"data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a","message":"m\n"},{"url":7}]}}"#,
                Some(expected),
            ),
            (r#"{"code":-32042,"data":{"elicitations":[]}}"#, None),
            (r#"{"code":-32042,"data":{"elicitations":{}}}"#, None),
            (r#"{"code":-32042}"#, None),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(error.as_bytes(), 8).map(Document::root).expect("JSON");
            assert_eq!(input_required(root).as_deref(), expected, "{error}");
        }
    }

    #[test]
    fn only_an_accepted_one_is_done() {
        for (responses, expected) in [
            (r#"{"url-elicitation-1":{"action":"accept"}}"#, false),
            (r#"{"url-elicitation-1":{"action":"accept"},"url-elicitation-2":{"action":"cancel"}}"#, true),
            (r#"{"url-elicitation-1":{}}"#, true),
            (r#"{"other":{"action":"decline"}}"#, false),
            ("{}", false),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(responses.as_bytes(), 8).map(Document::root).expect("JSON");
            assert_eq!(is_refused(root), expected, "{responses}");
        }
    }
}
