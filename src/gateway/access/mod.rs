//! Who may do what, and how much of it.

pub(crate) mod auth;
pub(crate) mod caller;
pub(crate) mod limit;
pub(crate) mod policy;
pub(crate) mod tls;
