//! Who calls: the value that is handed on once credentials were checked, and why they were not taken.

pub mod principal;
pub mod refusal;

pub use self::principal::{Principal, VerifiedIdentity};
