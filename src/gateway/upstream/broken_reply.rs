//! The end of a reply that is not whole, told apart from its error: by then its head is with the client.

use protocol::error::UpstreamError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply broke off")]
pub struct BrokenReply;

impl From<BrokenReply> for UpstreamError {
    fn from(_: BrokenReply) -> Self {
        Self::Reset
    }
}
