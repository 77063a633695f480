//! Why a request of the client gets no answer from the server, as the error that it gets instead.

use http::StatusCode;

use net::http_client::HttpError;
use net::tls;
use protocol::error::error_body;
use protocol::json::quote;

/// Why a request gets no answer from the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// What the client wrote is not JSON.
    #[error("the message is not valid JSON")]
    NotJson,
    /// It is no message that can be sent on.
    #[error("not a valid JSON-RPC 2.0 message: {0}")]
    NotJsonRpc(&'static str),
    /// The client's line is too long.
    #[error("the message is larger than the {bytes_max} bytes that are accepted")]
    LineTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// Too many requests wait for answers.
    #[error("as many requests are under way as may be, try again in a moment")]
    Busy,
    /// Nothing was sent, for this reason.
    #[error("the server cannot be reached: {0}; the request was not executed, try again later")]
    Unreachable(String),
    /// The server is not who it should be; nothing was sent.
    #[error("cannot connect to the server over TLS: {0}; the request was not executed")]
    Tls(tls::TlsFault),
    /// The connection broke after the request may have been sent.
    #[error("the connection to the server broke; the outcome of the request is unknown")]
    Reset,
    /// No answer in time.
    #[error("the server did not answer in time; the outcome of the request is unknown")]
    TimedOut,
    /// The answer is not one MCP allows.
    #[error("the server gave an answer that is not valid MCP; the outcome of the request is unknown")]
    Nonsense,
    /// The answer is too large.
    #[error("the answer of the server is larger than is accepted")]
    TooLarge,
    /// The session is over, and no new one that is like it could be opened.
    #[error("the server has ended the session; start again with initialize")]
    SessionGone,
    /// Any other status without an answer in it.
    #[error("the server refused the request with HTTP status {}{}", .0.as_u16(), advice(*.0))]
    Status(StatusCode),
}

impl From<HttpError> for ExchangeError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Unreachable(why) => Self::Unreachable(why),
            HttpError::Url | HttpError::ConnectTimedOut(_) | HttpError::Address | HttpError::Proxy { .. } => {
                Self::Unreachable(error.to_string())
            }
            HttpError::Tls(fault) => Self::Tls(fault),
            HttpError::Reset => Self::Reset,
            HttpError::TimedOut => Self::TimedOut,
            HttpError::Malformed => Self::Nonsense,
            HttpError::TooLarge => Self::TooLarge,
        }
    }
}

impl ExchangeError {
    /// The JSON-RPC error for the request with this id.
    pub fn body(&self, id: Option<&str>) -> String {
        let code = match self {
            Self::NotJson => -32700,
            Self::NotJsonRpc(_) => -32600,
            Self::LineTooLong { .. } => 413,
            Self::Busy => 503,
            Self::TimedOut => 504,
            Self::SessionGone => 404,
            Self::Unreachable(_) | Self::Tls(_) | Self::Reset | Self::Nonsense | Self::TooLarge => 502,
            Self::Status(status) => i32::from(status.as_u16()),
        };
        error_body(id, &format!("{{\"code\":{code},\"message\":{}}}", quote(&self.to_string())))
    }
}

/// What cannot be used to reach a server.
pub(super) fn unusable(error: impl std::fmt::Display) -> ExchangeError {
    ExchangeError::Unreachable(error.to_string())
}

fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => ": give the right key with --key-file or TRUNKLINE_KEY",
        404 | 405 => ": is this the URL of a Streamable HTTP server?",
        429 | 503 => ": it is busy, try again later",
        300..=399 => ": redirects are not followed",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_has_the_id_of_the_request() {
        let status = ExchangeError::Status(StatusCode::UNAUTHORIZED);
        let message = "the server refused the request with HTTP status 401: give the right key with --key-file or \
                       TRUNKLINE_KEY";
        assert_eq!(
            status.body(Some("\"a\"")),
            format!(r#"{{"jsonrpc":"2.0","id":"a","error":{{"code":401,"message":"{message}"}}}}"#)
        );
        assert!(ExchangeError::NotJson.body(None).starts_with(r#"{"jsonrpc":"2.0","error":{"code":-32700,"#));
    }
}
