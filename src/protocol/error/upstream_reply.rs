//! Replies of upstreams that hold no message of MCP, as clients and logs are told of them, and what they say of a call.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use super::UpstreamError;
use super::open_text::{without_credentials, without_secrets};
use crate::text::one_line;

/// The ends of messages that tell the outcome of the call.
const OUTCOME_UNKNOWN: &str = "; the outcome of the call is unknown";
const NOT_EXECUTED: &str = "; the call was not executed";
/// So much of what an upstream says is told.
const TOLD_CHARS_MAX: usize = 256;

/// Why no session was opened with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// The exchange failed.
    Failed(UpstreamError),
    /// The server answered `initialize` with an error of JSON-RPC.
    Refused {
        /// Its code.
        code: i64,
        /// Its text, as far as it is told.
        message: Box<str>,
    },
    /// The server chose a revision that the gateway does not open sessions of.
    Revision(Box<str>),
}

impl NotOpened {
    /// The server answered `initialize` with this error.
    pub fn refused(code: i64, message: &str) -> Self {
        Self::Refused { code, message: one_line(&without_secrets(message), TOLD_CHARS_MAX).into() }
    }

    /// The server answered `initialize` with this revision.
    pub fn chosen(revision: &str) -> Self {
        Self::Revision(one_line(revision, TOLD_CHARS_MAX).into())
    }
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => f.write_str(&error.fault()),
            Self::Refused { code, message } => {
                write!(f, "it answered initialize with error {code}")?;
                if message.is_empty() { Ok(()) } else { write!(f, ", {message}") }
            }
            Self::Revision(revision) => {
                write!(f, "it answered initialize with revision {revision}, of which this gateway opens none")
            }
        }
    }
}

/// An error of JSON-RPC that a server answered the gateway's own question with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The method that it answers.
    pub method: &'static str,
    /// Its code.
    pub code: i64,
    /// Its text, for operators.
    pub message: Box<str>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with error {}", self.method, self.code)
    }
}

/// A reply that sends whoever asks elsewhere, where the gateway never goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    status: StatusCode,
    /// The target, as far as it is told.
    location: Option<Box<str>>,
}

impl Redirect {
    /// The query, the fragment and credentials stay out.
    pub fn new(status: StatusCode, location: Option<&str>) -> Self {
        let told = location.map(|location| {
            let end = location.find(['?', '#']).unwrap_or(location.len());
            let (told, rest) = location.split_at(end);
            let told = one_line(&without_credentials(told), TOLD_CHARS_MAX);
            if rest.is_empty() { told } else { format!("{told}{}…", &rest[..1]) }
        });
        Self { status, location: told.map(Box::from) }
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The target.
    pub fn target(&self) -> &str {
        self.location.as_deref().unwrap_or("an address that it does not name")
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, to) = (self.status, self.target());
        // Of the others, some servers answer so once they have done what was asked.
        let is_untouched = matches!(status.as_u16(), 301 | 307 | 308);
        let outcome = if is_untouched { NOT_EXECUTED } else { OUTCOME_UNKNOWN };
        write!(f, "HTTP {}, a redirect to {to}, which is not followed{outcome}", status.as_u16())
    }
}

impl UpstreamError {
    /// The fault alone, for whoever asked for something else than a call.
    pub fn fault(&self) -> String {
        let told = self.to_string();
        [OUTCOME_UNKNOWN, NOT_EXECUTED].iter().fold(told, |told, outcome| told.replace(outcome, ""))
    }

    /// The same where it came before anything of a call was sent.
    #[must_use]
    pub fn before_call(self) -> Self {
        if self.to_string().contains(OUTCOME_UNKNOWN)
            || matches!(self, Self::TooLarge | Self::LineTooLarge { .. })
        {
            return Self::NotOpened(Arc::new(NotOpened::Failed(self)));
        }
        self
    }

    /// True if it came of waiting, for a call or for the session that it needs.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::TimedOut => true,
            Self::NotOpened(why) => matches!(&**why, NotOpened::Failed(error) if error.is_timeout()),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, causes};

    #[test]
    fn a_fault_says_nothing_of_a_call() {
        for (error, _) in causes() {
            let Error::Upstream(error) = error else { continue };
            let fault = error.fault();
            assert!(!fault.contains("outcome") && !fault.contains("executed"), "{fault}");
            let before = error.before_call().to_string();
            assert!(!before.contains("outcome"), "{before}");
        }
    }

    #[test]
    fn a_redirect_tells_where_to_and_no_secret() {
        for (status, location, expected) in [
            (
                307,
                Some("https://ada:key@sso.example/a?code=1"),
                "HTTP 307, a redirect to https://sso.example/a?…",
            ),
            (
                308,
                Some("/mcp/"),
                "HTTP 308, a redirect to /mcp/, which is not followed; the call was not executed",
            ),
            (303, Some("//x@y/z#t"), "HTTP 303, a redirect to //y/z#…, which is not followed; the outcome"),
            (302, None, "HTTP 302, a redirect to an address that it does not name, which"),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let told = Redirect::new(status, location).to_string();
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn what_a_server_said_is_one_line() {
        let long = format!("a\nb\u{7}\u{202e}{}", "x".repeat(300));
        let told = NotOpened::refused(-32603, &long).to_string();
        let begin = "it answered initialize with error -32603, a b\\u{7}\\u{202e}x";
        assert!(told.starts_with(begin) && told.ends_with('…'), "{told}");
        let told = NotOpened::chosen("2099\u{2066}").to_string();
        assert!(told.contains("revision 2099\\u{2066},"), "{told}");
        assert_eq!(NotOpened::refused(1, "").to_string(), "it answered initialize with error 1");
    }
}
