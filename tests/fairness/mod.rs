//! What one client can do to another: whoever takes all of something that it can get leaves enough for the others, alone
//! and together with many.
//!
//! How each bound answers by itself is tested where the thing is that it bounds.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`shares`] | Somebody takes all it can of one resource: what does it get, and does everyone else still get theirs? |
//! | [`sessions`] | The same of what sessions need. |
//! | [`names`] | The same of subscriptions, their names, and lists. |
//! | [`slow`] | Somebody reads or sends too slowly: what does it hold meanwhile, and how does that end? |
//! | [`leaving`] | Somebody leaves its calls, or cancels them, while their server works on: who has to wait for that? |
//! | [`left_places`] | The same of child processes, over HTTP+SSE and over the bridge: until when are their places kept? |
//! | [`table`] | Does the table of `docs/security/fairness.md` have a row for each bound, and each row a test? |

mod leaving;
mod left_places;
mod names;
mod sessions;
mod shares;
mod slow;
mod table;

use crate::harness::{Request, api_key};

const KEYS: usize = 9;

/// The keys of so many principals, `key-0` and so on, as the configuration has them.
fn keys() -> String {
    (0..KEYS).map(|number| api_key(&format!("p{number}"), &key(number)) + "\n").collect()
}

fn key(number: usize) -> String {
    format!("a-key-of-{number}-0123456789abcdefghij")
}

trait As {
    /// The request, of this principal.
    fn by(self, number: usize) -> Request;
}

impl As for Request {
    fn by(self, number: usize) -> Request {
        self.with("Authorization", format!("Bearer {}", key(number)))
    }
}
