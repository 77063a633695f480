//! Who calls, and from where: credentials, `Origin` and `Host`.
//!
//! What a caller may use is not decided here but in [`crate::access::policy`]. Everything is decided from the headers and from
//! the certificate that the client's connection showed.

pub mod api_key;
pub(crate) mod authenticator;
pub(crate) mod caller_cache;
pub(crate) mod certificate;
pub(crate) mod challenge;
pub(crate) mod jwt;
pub(crate) mod operator;
pub(crate) mod origin;
pub(crate) mod resource;
pub(crate) mod sign_in;
