//! Tokens (JWT, RFC 7519) of issuers that the operator trusts. How they are written: [`tokens::jwt`].
//!
//! What decides is fixed by the configuration, never by the token: its issuer, algorithms and audiences, and where keys
//! come from. Of the header only `alg`, `kid`, `typ` and `crit` are looked at; keys or addresses of keys in it (`jwk`,
//! `jku`, `x5c`, `x5u`) are ignored. Signatures made with secrets (HS256 and so on) and `none` have no name here, so
//! nothing can lead to them.
//!
//! Deliberately absent: encrypted tokens, introspection, and tokens that are bound to a key (`cnf`), which are refused
//! rather than taken from whoever has them.

pub(crate) mod claims;
pub(crate) mod issuer;
pub(crate) mod keys;
pub(crate) mod report;
