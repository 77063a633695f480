//! Why a client has no result.

use serde_json::Value;

use super::exchange_error::ExchangeError;

/// Why there is no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    /// The way to the server and back.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The server answered with an error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// Server and client have no version in common.
    #[error("no revision of MCP is known to both sides; the server knows: {}", listed(.0))]
    NoCommonVersion(Vec<String>),
    /// The program cannot be started.
    #[error("cannot start {program}: {why}")]
    NotStarted {
        /// What was to be started.
        program: String,
        /// Why it cannot be.
        why: String,
    },
    /// The program has ended, or closed its output.
    #[error("the server ended: {how}")]
    Ended {
        /// With which status.
        how: String,
        /// What it said last on standard error, at most a few lines.
        last_words: String,
    },
    /// The result is not what the specification asks for.
    #[error("the answer to {method} is not valid MCP: {why}")]
    Invalid {
        /// The request.
        method: String,
        /// What is wrong.
        why: String,
    },
    /// More messages before an answer than anybody reads.
    #[error("the server sent more than {0} messages before the answer")]
    Flood(u64),
    /// It asks for input again and again.
    #[error("the server asked for input {0} times, and then again")]
    AskedTooOften(usize),
    /// A question of the server was refused, without which it cannot answer.
    #[error("the server asked for {method}: {why}")]
    Unanswered {
        /// What it asked.
        method: String,
        /// Why there is no answer.
        why: String,
    },
    /// A list is too long, or has no end.
    #[error("{method}: {why}")]
    List {
        /// The request.
        method: String,
        /// What is wrong.
        why: &'static str,
    },
}

fn listed(versions: &[String]) -> String {
    if versions.is_empty() { "none".to_owned() } else { versions.join(", ") }
}

/// An error that the server answered with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the server answered with error {code}: {message}")]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The message, as the server wrote it.
    pub message: String,
    /// What else it said.
    pub data: Option<Value>,
    /// The status of HTTP, where it came over HTTP.
    pub status: Option<u16>,
}

impl RpcError {
    /// Reads the error of a response.
    pub fn read(error: &Value) -> Option<Self> {
        Some(Self {
            code: error.get("code")?.as_i64()?,
            message: error.get("message")?.as_str()?.to_owned(),
            data: error.get("data").cloned(),
            status: None,
        })
    }

    /// The versions that error −32022 lists.
    pub fn supported_versions(&self) -> Vec<String> {
        let supported = self.data.as_ref().and_then(|data| data.get("supported"));
        texts(supported.unwrap_or(&Value::Null))
    }
}

/// The strings of an array; at most a few.
pub(super) fn texts(list: &Value) -> Vec<String> {
    const TEXTS_MAX: usize = 32;
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.take(TEXTS_MAX).map(str::to_owned).collect()
}
