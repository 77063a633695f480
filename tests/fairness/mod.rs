//! What one client can do to another: whoever takes all of something that it can get leaves enough for the others, alone
//! and together with many.
//!
//! How each bound answers by itself is tested where the thing is that it bounds.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`shares`] | Somebody takes all it can of one resource: what does it get, and does everyone else still get theirs? |
//! | [`slow`] | Somebody reads or sends too slowly: what does it hold meanwhile, and how does that end? |
//! | [`table`] | Is there a row about each bound in the table of `docs/security/fairness.md`? |

mod shares;
mod slow;
mod table;
