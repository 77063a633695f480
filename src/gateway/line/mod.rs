//! The line that a call follows.

pub mod batch;
pub mod cors;
pub mod intake;
pub mod legacy;
pub mod message;
pub mod proxy;
pub mod relay;
pub mod sse_stream;
