//! Who calls, and from where: API keys, `Origin` and `Host`.
//!
//! What a caller may use is not decided here. Everything is decided from headers alone.

pub mod api_key;
pub mod origin;

use std::borrow::Cow;
use std::sync::Arc;

/// Who makes a call. Two calls of one principal have equal names, whatever key or connection they use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The endpoint asks for no credentials.
    Anonymous,
    /// The holder of the named API key.
    ApiKey(Arc<str>),
}

impl Principal {
    /// What a session is bound to: the same for every key and connection of the principal, and for no other.
    pub fn identity(&self) -> Cow<'_, str> {
        match self {
            Self::Anonymous => Cow::Borrowed(""),
            Self::ApiKey(name) => Cow::Owned(format!("key:{name}")),
        }
    }

    /// The name for logs.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "-",
            Self::ApiKey(name) => name,
        }
    }
}
