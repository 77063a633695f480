//! Who calls: the value that is handed on once credentials were checked, and why they were not taken.

pub(crate) mod principal;
pub(crate) mod refusal;

pub use self::principal::{Principal, VerifiedIdentity};
