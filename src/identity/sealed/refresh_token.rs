//! A refresh token: a grant, and which of its generations.

use tokens::fields::{FieldReader, FieldWriter};

use super::fingerprint::{Fingerprint, GrantId};
use super::{Kind, Sealable};

/// A refresh token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshToken {
    /// The grant that it goes on with.
    pub grant: GrantId,
    /// Its number among the refresh tokens of the grant, from 1.
    pub generation: u64,
    /// Of the client's id.
    pub client: Fingerprint,
    /// The end of the grant, as it was when the token was made.
    pub expires_s: u64,
}

impl Sealable for RefreshToken {
    const KIND: Kind = Kind::RefreshToken;

    fn expires_s(&self) -> Option<u64> {
        Some(self.expires_s)
    }

    fn write(&self, to: &mut FieldWriter) {
        to.fixed(&self.grant.0);
        to.number(self.generation);
        to.fixed(&self.client.0);
        to.number(self.expires_s);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            grant: GrantId(from.array()?),
            generation: from.number()?,
            client: Fingerprint(from.array()?),
            expires_s: from.number()?,
        })
    }
}
