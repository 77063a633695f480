//! The kinds of records of sign-in: the part of a name before `/`.

/// A person, by principal.
pub(super) const ACCOUNT: &str = "account";
/// News of a grant.
pub(super) const NEWS: &str = "news";
/// A mark of a use that counts once.
pub(super) const ONCE: &str = "once";
/// Whose turn it is to ask the provider.
pub(super) const TURN: &str = "turn";
