//! A message that came over a shared connection and cannot be read: the call that it answers fails at once, and the log
//! says what is wrong with it.

use bytes::Bytes;

use super::MuxConnection;
use super::host::Host;
use protocol::answer_number::AnswerNumber;
use protocol::envelope::{Envelope, EnvelopeError};
use protocol::error::UpstreamError;
use protocol::json::{Scratch, fault};

/// Longer messages are looked at apart from the thread that answers others.
pub(crate) const READ_INLINE_BYTES_MAX: usize = 256 * 1024;

/// Fails the call that the message answers. Returns what is wrong with the message.
pub(crate) async fn refuse(host: &Host, connection: &MuxConnection, message: &Bytes) -> String {
    let depth_max = connection.json_depth_max();
    let (why, answered) = if message.len() <= READ_INLINE_BYTES_MAX {
        look_at(message, depth_max)
    } else {
        let message = message.clone();
        host.compute(move || look_at(&message, depth_max)).await
    };
    if let Some(own) = answered {
        connection.fail(own, UpstreamError::Nonsense);
    }
    why
}

/// What is wrong with the message, and which call it answers.
#[cold]
fn look_at(message: &[u8], depth_max: usize) -> (String, Option<u64>) {
    match Envelope::parse(&mut Scratch::default(), message, depth_max) {
        Err(EnvelopeError::Json(_)) => (fault(message, depth_max), AnswerNumber::of(message)),
        Err(error) => (error.to_string(), None),
        Ok(_) => (String::new(), None),
    }
}
