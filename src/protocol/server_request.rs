//! What servers of the legacy era ask of clients, and which client capability each needs.
//!
//! A client that did not declare the capability never sees the request; the server is told what the client itself would
//! have to say. Deliberately absent: whether a request is well formed beyond what tells its kind.

use super::json::Value;

crate::words! {
    /// A method by which a server asks its client. Of tasks, it asks about those of the client.
    pub enum ServerRequest reads of, says method {
        Ping = "ping",
        Sampling = "sampling/createMessage",
        Elicitation = "elicitation/create",
        Roots = "roots/list",
        TasksGet = "tasks/get",
        TasksResult = "tasks/result",
        TasksList = "tasks/list",
        TasksCancel = "tasks/cancel",
    }
}

/// Why a client is not asked: a JSON-RPC error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAsked {
    /// Its code.
    pub code: i32,
    /// Its message.
    pub message: &'static str,
}

/// The client has no such method.
pub const NO_METHOD: NotAsked =
    NotAsked { code: -32601, message: "the client did not declare this capability" };
const NO_MODE: NotAsked = NotAsked { code: -32602, message: "the client did not declare this mode" };

impl ServerRequest {
    /// Whether a client with these capabilities takes the request with these `params`.
    pub fn check(self, params: Option<Value<'_>>, capabilities: Value<'_>) -> Result<(), NotAsked> {
        let declares = |path: &[&str]| declares(capabilities, path);
        let is_declared = match self {
            Self::Ping => true,
            Self::Sampling => declares(&["sampling"]),
            Self::Elicitation => declares(&["elicitation"]),
            Self::Roots => declares(&["roots"]),
            Self::TasksGet | Self::TasksResult => declares(&["tasks"]),
            Self::TasksList => declares(&["tasks", "list"]),
            Self::TasksCancel => declares(&["tasks", "cancel"]),
        };
        if !is_declared {
            return Err(NO_METHOD);
        }
        let has = |key: &str| params.and_then(|params| params.get(key));
        let has_mode = match self {
            Self::Elicitation if has("mode").is_some_and(|mode| mode.is("url")) => {
                declares(&["elicitation", "url"])
            }
            // An empty object declares forms alone (2025-11-25 Elicitation, "Capabilities").
            Self::Elicitation => declares(&["elicitation", "form"]) || !declares(&["elicitation", "url"]),
            Self::Sampling if has("tools").or(has("toolChoice")).is_some() => {
                declares(&["sampling", "tools"])
            }
            _ => true,
        };
        if has_mode { Ok(()) } else { Err(NO_MODE) }
    }
}

fn declares(capabilities: Value<'_>, path: &[&str]) -> bool {
    let found = path.iter().try_fold(capabilities, |value, key| value.get(key));
    found.is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::super::json::{Document, Scratch};
    use super::*;

    #[test]
    fn each_request_needs_its_capability() {
        let (method, mode) = (Err(NO_METHOD), Err(NO_MODE));
        for (asked, params, capabilities, expected) in [
            ("ping", "{}", "{}", Ok(())),
            ("sampling/createMessage", "{}", r#"{"sampling":{}}"#, Ok(())),
            ("sampling/createMessage", "{}", r#"{"roots":{}}"#, method),
            ("sampling/createMessage", "{}", r#"{"sampling":true}"#, method),
            ("sampling/createMessage", r#"{"tools":[]}"#, r#"{"sampling":{}}"#, mode),
            ("sampling/createMessage", r#"{"tools":[]}"#, r#"{"sampling":{"tools":{}}}"#, Ok(())),
            ("elicitation/create", "{}", "{}", method),
            ("elicitation/create", "{}", r#"{"elicitation":{}}"#, Ok(())),
            ("elicitation/create", "{}", r#"{"elicitation":{"form":{}}}"#, Ok(())),
            ("elicitation/create", "{}", r#"{"elicitation":{"url":{}}}"#, mode),
            ("elicitation/create", r#"{"mode":"url"}"#, r#"{"elicitation":{}}"#, mode),
            ("elicitation/create", r#"{"mode":"\u0075rl"}"#, r#"{"elicitation":{"form":{}}}"#, mode),
            ("elicitation/create", r#"{"mode":"url"}"#, r#"{"elicitation":{"url":{}}}"#, Ok(())),
            ("roots/list", "{}", r#"{"roots":{"listChanged":true}}"#, Ok(())),
            ("roots/list", "{}", r#"{"sampling":{}}"#, method),
            ("tasks/get", "{}", r#"{"tasks":{}}"#, Ok(())),
            ("tasks/list", "{}", r#"{"tasks":{}}"#, method),
            ("tasks/list", "{}", r#"{"tasks":{"list":{}}}"#, Ok(())),
            ("tasks/cancel", "{}", r#"{"tasks":{"list":{}}}"#, method),
            ("tools/call", "{}", r#"{"tools":{}}"#, method),
        ] {
            let (mut one, mut two) = (Scratch::default(), Scratch::default());
            let params = one.index(params.as_bytes(), 8).map(Document::root).expect("JSON");
            let capabilities = two.index(capabilities.as_bytes(), 8).map(Document::root).expect("JSON");
            let found = ServerRequest::of(asked).ok_or(NO_METHOD);
            let found = found.and_then(|asked| asked.check(Some(params), capabilities));
            assert_eq!(found, expected, "{asked}");
        }
    }
}
