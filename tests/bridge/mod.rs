//! Client and server of different eras.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`to_legacy`] | How does a modern client use a server that speaks the legacy era only? |
//! | [`to_modern`] | How does a legacy client use a server that speaks the modern era only? |
//! | [`suspended_calls`] | What becomes of a modern call in the middle of which a legacy server asks something? |
//! | [`direct_calls`] | What becomes of a modern call on a session that an earlier one has left, whatever the server says? |
//! | [`shared_sessions`] | How do modern calls share a session with a legacy server, and what if it is lost? |
//! | [`streams`] | What becomes of a bridged call whose server ends its streams, forgets the session, or only pings? |
//! | [`lists`] | Which lists and which introduction does a client get from a server of the other era? |
//! | [`reloads`] | What becomes of calls under way whose server is configured otherwise by now? |
//! | [`faults`] | What can either side do wrong to the other, and does anybody else notice? |
//! | [`model`] | Does all of this hold in random sequences over all pairings of eras? |

mod direct_calls;
mod faults;
mod lists;
mod model;
mod reloads;
mod shared_sessions;
mod streams;
mod suspended_calls;
pub(crate) mod to_legacy;
mod to_modern;
