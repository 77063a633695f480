//! The bounds of one shared connection.

use std::sync::Arc;

use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Shares;

/// Bounds of one connection.
#[derive(Clone, Debug)]
pub(crate) struct MuxBounds {
    /// Bytes that wait for one reader, unless they are one message.
    pub waiting_bytes_max: usize,
    pub json_depth_max: usize,
    /// What waits is counted against.
    pub budget: Arc<Shares>,
    /// Who is charged for what waits: the upstream, where that is for no client alone.
    pub payer: Payer,
}

impl MuxBounds {
    /// The budget that waiting messages are counted against, and its payer.
    pub(crate) fn memory(&self) -> (&Arc<Shares>, Payer) {
        (&self.budget, self.payer)
    }
}
