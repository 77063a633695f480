//! The processes of one upstream, as they are found and waited for.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::access::limit::payer::Payer;
use crate::flight::Flight;
use crate::upstream::mux::MuxConnection;
use protocol::error::UpstreamError;

/// The outcome of the start of a process for one caller of the modern era.
pub(super) type ModernOutcome = Result<MuxConnection, UpstreamError>;

/// The process of one caller of the modern era.
#[derive(Debug)]
pub(super) struct ModernChild {
    pub(super) connection: MuxConnection,
    /// The payer that is charged for it.
    pub(super) payer: Payer,
}

/// A process that was asked to initialize, and what it answered.
#[derive(Clone, Debug)]
pub(super) struct OpenedSession {
    pub(super) connection: MuxConnection,
    pub(super) answer: Bytes,
}

pub(super) type SessionOutcome = Result<OpenedSession, UpstreamError>;

/// The things in which two openings are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionWish {
    pub(super) principal: Option<Box<str>>,
    pub(super) payer: Payer,
    /// `initialize`, under the same id whoever asks.
    pub(super) message: Bytes,
}

/// The outcome of the first session that was to be opened. It tells whether the program knows sessions.
#[derive(Debug, Default)]
pub(super) struct SessionOpening(OnceLock<bool>);

impl SessionOpening {
    /// Returns whether that is news.
    pub(super) fn note(&self, is_open: bool) -> bool {
        self.0.set(is_open).is_ok()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.get() == Some(&false)
    }
}

/// A start that nobody waits for.
#[derive(Debug)]
pub(super) struct UnclaimedStart {
    pub(super) wish: SessionWish,
    pub(super) number: u64,
    pub(super) flight: Arc<Flight<SessionOutcome>>,
}
