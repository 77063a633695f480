//! Who may do what, and how much of it.

pub mod auth;
pub mod caller;
pub mod limit;
pub mod policy;
pub mod tls;
