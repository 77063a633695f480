//! Sign-in as bytes: what the authorization server of the gateway issues, reads and shows.
//!
//! Nothing here knows of sockets, clocks, files, stores or the configuration: a caller brings the time, the random bytes,
//! the keys and the settings, and gets values and bytes.
//!
//! Invariants: browsers, clients and providers write whatever is read here, so every text has a bound, a parameter that
//! stands twice is refused, and nothing panics. A secret is in no error and in no `Debug`.
//!
//! # What a caller has to enforce
//!
//! - *Token endpoint*: a code or refresh token is opened, and its client compared, before a document or keys are fetched. A fetch
//!   that fails is `temporarily_unavailable`, never `invalid_client`, and never a reason to ask for less.
//! - *Assertions*: keys and URLs of their headers are not used. `(client, jti)` is remembered for all gateways until `until_s`,
//!   before the answer. [`client_document::check_keys`] judges sets of `jwks_uri`, too.
//! - *Documents*: `clients_denied` is asked before a fetch, at every endpoint. None is fetched from the gateway's own host. One
//!   resolution, [`public_address::chosen`], and a connection to that very address.
//! - *Consent*: only `answer=allow` allows; `Origin` is the issuer; a page without its cookie is refused; the `state` of the
//!   callback is that of the cookie. An answer is remembered for https redirects alone.
//! - *Grants and accounts*: every change is a compare-and-set on the generation that was judged; one that loses reads anew. Numbers
//!   of an account do not begin at 1 again after it was deleted. An answer that is given again still checks account, `require` and
//!   scopes by the groups of now. An overdue account is asked for before [`token_request::unanswered`] is the answer.
//! - *Access tokens*: they end no later than their grant. `known: None` means that the record is to be read, never that there are
//!   no groups. [`sealed::access_token::AccessToken::is_for`] is asked at each call.
//! - *ID tokens*: the signature is checked before [`provider::id_token::judge`], and their type, so that an access token is none;
//!   without nonce only at a refresh.
//! - *Records*: they are bound to their name. Two fleets with one key and one Redis have names of their own.

#![forbid(unsafe_code)]

pub mod authorize;
pub mod browser_cookies;
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
