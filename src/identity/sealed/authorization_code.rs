//! An authorization code: it opens the record of its grant once.
//!
//! Client, redirect URI and verifier are checked before a code counts as used: who has only the code ends nothing.

use tokens::fields::{FieldReader, FieldWriter};

use super::fingerprint::{Fingerprint, GrantId};
use super::{Kind, Sealable};
use crate::pkce::CodeChallenge;

/// The life of a code.
pub const CODE_LIFE_S: u64 = 60;

/// A code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationCode {
    /// The grant that it opens.
    pub grant: GrantId,
    /// Of the client's id.
    pub client: Fingerprint,
    /// Of the redirect URI that it was sent to.
    pub redirect_uri: Fingerprint,
    /// Of the endpoint's public URL.
    pub endpoint: Fingerprint,
    /// The digest of the verifier.
    pub challenge: CodeChallenge,
    /// Until then.
    pub expires_s: u64,
}

impl Sealable for AuthorizationCode {
    const KIND: Kind = Kind::AuthorizationCode;

    fn expires_s(&self) -> Option<u64> {
        Some(self.expires_s)
    }

    fn write(&self, to: &mut FieldWriter) {
        to.fixed(&self.grant.0);
        to.fixed(&self.client.0);
        to.fixed(&self.redirect_uri.0);
        to.fixed(&self.endpoint.0);
        to.fixed(&self.challenge.0);
        to.number(self.expires_s);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            grant: GrantId(from.array()?),
            client: Fingerprint(from.array()?),
            redirect_uri: Fingerprint(from.array()?),
            endpoint: Fingerprint(from.array()?),
            challenge: CodeChallenge(from.array()?),
            expires_s: from.number()?,
        })
    }
}
