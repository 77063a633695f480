//! The line that a call follows.

pub(crate) mod batch;
pub(crate) mod client_body;
pub(crate) mod cors;
pub(crate) mod intake;
pub(crate) mod legacy;
pub(crate) mod message;
pub(crate) mod proxy;
pub(crate) mod relay;
pub(crate) mod reply_messages;
pub(crate) mod request_header;
pub(crate) mod response;
mod session_events;
pub(crate) mod sse_stream;
