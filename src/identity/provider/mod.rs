//! The organisation's `OpenID` provider: its metadata, the way to it, and all that comes back, judged.
//!
//! Not here: requests, keys and signatures.
//!
//! Invariants: where credentials go is in the metadata of the configured issuer and nowhere else. Only `invalid_grant`,
//! `interaction_required` and `login_required` end anything; a fault of the provider or of ours never does.

pub mod answer;
pub mod callback;
pub mod id_token;
pub mod metadata;
pub mod require;
