//! HTTP/1.1 towards an upstream, driven by whoever waits for the reply: no task, no channel.
//!
//! | file | what it is |
//! |---|---|
//! | `connection.rs` | one connection: a request out, the head and the body of its reply in |
//! | `request.rs` | a request as bytes |
//! | `reply.rs` | the head of a reply, and its body while it arrives |
//!
//! Invariant: a connection that waits for its next request holds no buffer. What both sides of the wire must agree on is
//! decided in the crate `http1`.

pub(crate) mod connection;
pub(crate) mod reply;
pub(crate) mod request;
