//! Who calls, and from where: credentials, `Origin` and `Host`.
//!
//! What a caller may use is not decided here but in [`crate::access::policy`]. Everything is decided from the headers and from
//! the certificate that the client's connection showed.

pub mod api_key;
pub mod authenticator;
pub mod caller_cache;
pub mod certificate;
pub mod challenge;
pub mod jwt;
pub mod operator;
pub mod origin;
pub mod resource;
