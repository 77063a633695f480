//! What a session is: its name, and what `initialize` settled.

use std::fmt;

use protocol::version::LegacyVersion;

/// Names a session; random, so that no two are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

/// Smaller ones are the gateway's own.
const CLIENT_IDS_MIN: u128 = 1 << 64;
/// Of its own, smaller ones are few: there is one for each version.
const DECLARING_IDS_MIN: u128 = 1 << 16;
/// Of these, smaller ones are each the gateway's alone.
const SHARED_IDS_MIN: u128 = 1 << 8;

impl SessionId {
    /// The gateway's own session of that version. No client's id ever opens as one of these.
    #[inline]
    pub fn own(version: LegacyVersion) -> Self {
        Self(1 + version as u128)
    }

    /// The gateway's own session of that version which declares the client capabilities with this digest.
    #[inline]
    pub fn declaring(version: LegacyVersion, capabilities: &[u8; 16]) -> Self {
        let [half @ .., _, _, _, _, _, _, _, _] = *capabilities;
        let digest = u64::from_be_bytes(half).rotate_left(version as u32);
        Self(u128::from(digest).max(DECLARING_IDS_MIN))
    }

    /// What all clients of that version share with upstreams that keep no sessions.
    #[inline]
    pub fn shared(version: LegacyVersion) -> Self {
        Self(SHARED_IDS_MIN + version as u128)
    }

    /// A new one, for a client.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_be_bytes(bytes).max(CLIENT_IDS_MIN)))
    }

    /// One of the gateway's own in which nothing is asked but lists.
    #[inline]
    pub fn is_for_lists(self) -> bool {
        let is_of_version = self.0 < SHARED_IDS_MIN && self != Self::own(LegacyVersion::NEWEST);
        self.is_own() && (is_of_version || self.0 >= DECLARING_IDS_MIN)
    }

    /// One of the gateway's own.
    #[inline]
    pub fn is_own(self) -> bool {
        self.0 < CLIENT_IDS_MIN
    }

    /// One of a number that clients cannot make grow.
    #[inline]
    pub fn is_one_of_few(self) -> bool {
        self.0 < DECLARING_IDS_MIN
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What `initialize` settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which session it is.
    pub id: SessionId,
    /// Path of the endpoint it belongs to.
    pub endpoint: Box<str>,
    /// The version that was agreed on.
    pub version: LegacyVersion,
    /// What the client says of itself.
    pub client: ClientInfo,
    /// The client's capabilities, a JSON object: as it wrote them where there was room.
    pub capabilities: Box<str>,
    /// Who opened it; empty for nobody.
    pub principal: Box<str>,
    /// When it was opened.
    pub issued_s: u64,
    /// When its id stops to be valid, whatever happens.
    pub expires_s: u64,
}

/// What of `clientInfo` is kept, each at most [`CLIENT_TEXT_BYTES_MAX`](crate::session_token::CLIENT_TEXT_BYTES_MAX) bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its name for programs.
    pub name: Box<str>,
    /// Its name for people; empty if it gave none.
    pub title: Box<str>,
    /// Its version.
    pub version: Box<str>,
}

/// Why a session id does not open. A client sees the same for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSession {
    /// Not sealed by any of our keys: forged, damaged, or older than the keys.
    #[error("the session id is not known")]
    Unknown,
    /// Its time is over.
    #[error("the session has expired")]
    Expired,
    /// Somebody ended it.
    #[error("the session was ended")]
    Revoked,
    /// It is somebody else's.
    #[error("the session belongs to another endpoint or principal")]
    Foreign,
}

impl NoSession {
    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Foreign => "foreign",
        }
    }
}
