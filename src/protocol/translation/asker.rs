//! The asker of a question, where a client could not tell: one of several servers that wants to know something of it.
//!
//! The gateway says so in `_meta` of the question. Invariant: whatever a server has written there itself is gone, so that
//! no reader, whichever of two equal keys it takes, takes a server's word for another's.

use super::members::{Edits, and_meta};
use crate::json::{JsonKind, Value, quote};
use crate::splice::Edit;

/// The key of `_meta` that names who asks.
const ASKER: &str = "trunkline/upstream";

/// A server that asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Its name.
    pub name: &'a str,
    /// The name also stands before the text that a person is to answer.
    pub is_told_in_text: bool,
}

impl Asker<'_> {
    /// Names it in a request of a server, or in an entry of `inputRequests`. What one server may learn of the others
    /// through the client is nothing.
    pub fn name_in(self, question: Value<'_>, edits: &mut Edits) {
        let member = format!("{}:{}", quote(ASKER), quote(self.name));
        let is = |method: &str| question.all("method").any(|found| found.is(method));
        let (is_sampling, is_elicitation) = (is("sampling/createMessage"), is("elicitation/create"));
        let mut has_params = false;
        for params in question.all("params") {
            has_params = true;
            let Some(params) = params.as_object() else {
                edits.replace(params, format!("{{{}}}", and_meta("", &member)));
                continue;
            };
            name_in_meta(params, &member, edits);
            let texts = |key| params.all(key).filter(|value| value.kind() == JsonKind::String);
            if is_sampling {
                texts("includeContext").for_each(|value| edits.replace(value, "\"none\""));
            }
            if is_elicitation && self.is_told_in_text {
                let with = quote(&format!("{}: ", self.name));
                let with = with.trim_matches('"').to_owned();
                edits.extend(texts("message").map(|text| {
                    let start = text.span().start + 1;
                    Edit { span: start..start, with: with.clone().into() }
                }));
            }
        }
        if !has_params {
            edits.members(question, |_| false, &format!(r#""params":{{{}}}"#, and_meta("", &member)));
        }
    }
}

/// The same, where the requests of a result are, or those of a task that a notification is about.
pub fn questions(message: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    let holders = ["result", "params"].into_iter().flat_map(move |key| message.all(key));
    let questions = holders.flat_map(|holder| holder.all("inputRequests"));
    questions.flat_map(Value::entries).map(|(_, question)| question).filter(|question| question.is_object())
}

fn name_in_meta(params: Value<'_>, member: &str, edits: &mut Edits) {
    let mut has_meta = false;
    for meta in params.all("_meta") {
        has_meta = true;
        match meta.as_object() {
            Some(meta) => edits.members(meta, |key| key == ASKER, member),
            None => edits.replace(meta, format!("{{{member}}}")),
        }
    }
    if !has_meta {
        edits.members(params, |_| false, &and_meta("", member));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::Scratch;

    #[test]
    fn who_asks_is_said_once_and_by_nobody_else() {
        for (question, expected) in [
            (
                r#"{"method":"roots/list"}"#,
                r#"{"params":{"_meta":{"trunkline/upstream":"a"}},"method":"roots/list"}"#,
            ),
            (
                r#"{"method":"roots/list","params":{}}"#,
                r#"{"method":"roots/list","params":{"_meta":{"trunkline/upstream":"a"}}}"#,
            ),
            (
                r#"{"method":"roots/list","params":null}"#,
                r#"{"method":"roots/list","params":{"_meta":{"trunkline/upstream":"a"}}}"#,
            ),
            (
                r#"{"method":"x","params":{"_meta":{"trunkline/upstream":"b","k":1}}}"#,
                r#"{"method":"x","params":{"_meta":{"trunkline/upstream":"a","k":1}}}"#,
            ),
            (
                r#"{"method":"x","params":{"_meta":{"k":1,"trunkline\/upstream":"b","trunkline/upstrea\u006d":"c"}}}"#,
                r#"{"method":"x","params":{"_meta":{"trunkline/upstream":"a","k":1}}}"#,
            ),
            (
                r#"{"method":"x","params":{"_meta":{},"_meta":{"trunkline/upstream":"b"}}}"#,
                r#"{"method":"x","params":{"_meta":{"trunkline/upstream":"a"},"_meta":{"trunkline/upstream":"a"}}}"#,
            ),
            (
                r#"{"method":"x","params":{"_meta":7}}"#,
                r#"{"method":"x","params":{"_meta":{"trunkline/upstream":"a"}}}"#,
            ),
            (
                r#"{"method":"elicitation/create","params":{"message":"PIN?"}}"#,
                r#"{"method":"elicitation/create","params":{"_meta":{"trunkline/upstream":"a"},"message":"a: PIN?"}}"#,
            ),
            (
                r#"{"method":"sampling/createMessage","params":{"includeContext":"allServers","message":"m"}}"#,
                r#"{"method":"sampling/createMessage","params":{"_meta":{"trunkline/upstream":"a"},"includeContext":"none","message":"m"}}"#,
            ),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(question.as_bytes(), 8).expect("JSON").root();
            let mut edits = Edits::default();
            Asker { name: "a", is_told_in_text: true }.name_in(root, &mut edits);
            let named = edits.apply(&Bytes::from_static(question.as_bytes())).to_bytes();
            assert_eq!(String::from_utf8_lossy(&named), expected);
        }
    }

    #[test]
    fn questions_are_found_in_results_and_in_tasks() {
        for (message, count) in [
            (r#"{"result":{"inputRequests":{"a":{"method":"x"},"b":{},"c":7}}}"#, 2),
            (r#"{"method":"notifications/tasks","params":{"inputRequests":{"a":{}}}}"#, 1),
            (r#"{"result":{"content":[]}}"#, 0),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(message.as_bytes(), 8).expect("JSON").root();
            assert_eq!(questions(root).count(), count, "{message}");
        }
    }
}
