//! The kinds of records of sign-in: the part of a name before `/`.

/// A person, by principal.
pub(super) const ACCOUNT: &str = "account";
/// What happened to a grant.
pub(super) const NEWS: &str = "news";
/// What may be used once.
pub(super) const ONCE: &str = "once";
/// Whose turn it is to ask the provider.
pub(super) const TURN: &str = "turn";
