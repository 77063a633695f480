//! Sign-in as bytes: what the authorization server of the gateway issues, reads and shows.
//!
//! Nothing here knows of sockets, clocks, files, stores or the configuration: a caller brings the time, the random bytes,
//! the keys and the settings, and gets values and bytes.
//!
//! Invariants: browsers, clients and providers write whatever is read here, so every text has a bound, a parameter that
//! stands twice is refused, and nothing panics. A secret is in no error and in no `Debug`.

#![forbid(unsafe_code)]

pub mod authorize;
pub mod client;
pub mod client_auth;
pub mod client_document;
pub mod oauth_error;
pub mod pages;
pub mod parameters;
pub mod pkce;
pub mod presented;
pub mod provider;
pub mod public_address;
pub mod redirect_uri;
pub mod registration;
pub mod resource;
pub mod revocation;
pub mod scope;
pub mod sealed;
pub mod server_metadata;
pub mod token_request;
pub mod uri;
