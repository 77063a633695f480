//! Faults of what sign-in fetches, which are remembered for a moment.

use std::sync::Arc;

/// The reason that there is no document of a client, or no keys of one. `why` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentError {
    pub why: Arc<str>,
    /// Another try may succeed.
    pub is_passing: bool,
}

/// A fault of the provider, or at it. Its texts are for operators; none holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderFault {
    #[error("the provider did not answer within {waited_s} s")]
    Slow { waited_s: u64 },
    #[error("the provider cannot be used: {0}")]
    Down(String),
    /// It refused for a cause that ends nothing, such as a wrong secret of ours.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// The code or the refresh token is over.
    #[error("the provider ended it: {0}")]
    Ended(String),
    /// Its answer is not what it has to be.
    #[error("the provider's answer is not believed: {0}")]
    Untrusted(String),
}
