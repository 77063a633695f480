//! TLS: the certificates that the gateway shows and those that it believes.

pub mod certificate;
pub mod client;
pub mod expiry;
pub mod names;
pub mod server;
