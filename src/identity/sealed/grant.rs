//! The record of a grant: one client's sign-in at one endpoint.

use tokens::fields::{FieldReader, FieldWriter};

use super::fingerprint::{Fingerprint, GrantId};
use super::{Kind, Sealable};

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// Its name.
    pub id: GrantId,
    /// The account: of the provider's issuer and the subject there.
    pub account: Fingerprint,
    /// The principal's id.
    pub principal: String,
    /// The client's id.
    pub client_id: String,
    /// As the client calls itself.
    pub client_name: String,
    /// The public URL of the endpoint.
    pub endpoint: String,
    /// The scopes that were granted.
    pub scopes: Vec<String>,
    /// The time of the sign-in.
    pub opened_s: u64,
    /// The time of the last token.
    pub used_s: u64,
    /// The latest end.
    pub ends_s: u64,
    /// It also ends if it is not used for so long.
    pub idle_max_s: u64,
    /// The generation of the refresh token that is good now; 0: the code was not used yet.
    pub generation: u64,
    /// The time at which that generation was made.
    pub rotated_s: u64,
}

impl GrantRecord {
    /// True where its time is over, or nobody used it for too long.
    pub fn is_over(&self, now_s: u64) -> bool {
        now_s >= self.over_s()
    }

    /// The time at which it ends if it is not used before.
    pub fn over_s(&self) -> u64 {
        self.ends_s.min(self.used_s.saturating_add(self.idle_max_s))
    }
}

impl Sealable for GrantRecord {
    const KIND: Kind = Kind::Grant;

    fn expires_s(&self) -> Option<u64> {
        Some(self.over_s())
    }

    fn write(&self, to: &mut FieldWriter) {
        to.fixed(&self.id.0);
        to.fixed(&self.account.0);
        to.text(&self.principal);
        to.text(&self.client_id);
        to.text(&self.client_name);
        to.text(&self.endpoint);
        to.texts(&self.scopes);
        let times = [self.opened_s, self.used_s, self.ends_s, self.idle_max_s];
        for number in times.into_iter().chain([self.generation, self.rotated_s]) {
            to.number(number);
        }
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            id: GrantId(from.array()?),
            account: Fingerprint(from.array()?),
            principal: from.text()?,
            client_id: from.text()?,
            client_name: from.text()?,
            endpoint: from.text()?,
            scopes: from.texts()?,
            opened_s: from.number()?,
            used_s: from.number()?,
            ends_s: from.number()?,
            idle_max_s: from.number()?,
            generation: from.number()?,
            rotated_s: from.number()?,
        })
    }
}
