//! What a message must be, and how it and its reply cross the gateway unharmed, whatever the era.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`bad_json`] | What do bodies do that are hostile, not JSON, or not JSON-RPC? |
//! | [`errors`] | Which error does a client get in each case, and with which id? |
//! | [`check_order`] | Which error does a request get that is wrong in two ways? |
//! | [`headers`] | Which headers must a modern request have, equal to its body, and which cross? |
//! | [`batches`] | What becomes of several messages in one body (revision 2025-03-26)? |
//! | [`byte_identity`] | Which bytes may the gateway change, and are all others the same on the other side? |
//! | [`relay`] | Does a reply come as it is sent, and what ends it? Which connections to an upstream are reused? |
//! | [`quiet_calls`] | What does a client get of a call during which nothing happens for long? |
//! | [`long_replies`] | Who waits for a reply that is long and full of names? |
//! | [`ends`] | What does a client get of a stream that ends too early, too late, or not at all? |
//! | [`reply_ids`] | Whose reply is it when a faulty upstream answers twice, or with another id? |
//! | [`modern_only`] | What does an endpoint that serves the modern era alone say to clients of the legacy era? |

mod bad_json;
mod batches;
mod byte_identity;
mod check_order;
mod ends;
mod errors;
mod headers;
mod long_replies;
mod modern_only;
mod quiet_calls;
mod relay;
mod reply_ids;
