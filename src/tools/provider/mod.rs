//! `trunkline check --provider`: whether people can sign in at an `OpenID` provider, what to register there, and the lines of
//! the configuration for it.
//!
//! | file | what it is |
//! |---|---|
//! | `place.rs` | what the configuration says of the provider, and what it leaves open |
//! | `known.rs` | providers that need something of their own |
//! | `ask.rs` | asks for its metadata and keys, as the gateway would |
//! | `review.rs` | what is wrong or missing there |
//! | `lines.rs` | what to register, and the configuration |
//!
//! Deliberately not here: signing in. The secret is not tried, and of what the metadata leave out nothing is claimed.

mod ask;
mod known;
mod lines;
mod place;
mod review;

pub use self::ask::{AskError, ProviderAnswer, ask};
pub use self::lines::lines;
pub use self::place::{ProviderPlace, is_safe_issuer};
pub use self::review::{ProviderFinding, review};
