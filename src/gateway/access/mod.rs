//! Who may do what, and how much of it.

pub mod auth;
pub mod limit;
pub mod policy;
pub mod tls;
