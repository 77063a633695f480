//! The record of an account: what is kept of one principal at the provider.

use tokens::fields::{FieldReader, FieldWriter};

use super::access_token::{KnownOfPrincipal, read_claims, write_claims};
use super::fingerprint::{Fingerprint, GrantId};
use super::{Kind, Sealable};
use crate::presented::Presented;

/// Bytes of all groups and claims of the last check.
pub const KNOWN_BYTES_MAX: usize = 16 << 10;
/// Grants of one account; the longest unused ends for another.
pub const GRANTS_MAX: usize = 256;

/// An account.
#[derive(Clone, Debug)]
pub struct AccountRecord {
    /// The provider's issuer.
    pub issuer: String,
    /// The subject there.
    pub subject: String,
    /// The principal's id.
    pub principal: String,
    /// The person's name, for pages.
    pub name: String,
    /// All groups of the last check.
    pub groups: Vec<String>,
    /// All claims of the last check, each name and value.
    pub claims: Vec<(String, String)>,
    /// The provider's refresh token, where it gave one.
    pub refresh_token: Option<Presented>,
    /// The time of the last answer of the provider.
    pub checked_s: u64,
    /// The provider has not answered since then.
    pub unanswered_since_s: Option<u64>,
    /// Its grants, the oldest first. An account goes with the last of them.
    pub grants: Vec<GrantId>,
}

/// The step that an account's last check calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDue {
    /// It is fresh.
    No,
    /// The provider is to be asked, and all goes on meanwhile.
    Yes,
    /// The provider has not answered for too long: there are no new tokens until it does.
    Overdue,
    /// It cannot be asked: the grant's own end is the only bound.
    Never,
}

impl AccountRecord {
    /// The name by which grants know it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&[&self.issuer, &self.subject])
    }

    /// True where groups and claims fit into the record.
    pub fn fits(&self) -> bool {
        let groups: usize = self.groups.iter().map(|group| group.len() + 2).sum();
        let claims: usize = self.claims.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        groups + claims <= KNOWN_BYTES_MAX
    }

    /// The check that is due where the last may be `age_s` old, with `patience_s` for a provider that does not answer.
    pub fn check_due(&self, now_s: u64, age_s: u64, patience_s: u64) -> CheckDue {
        if self.refresh_token.is_none() {
            return CheckDue::Never;
        }
        let is_out_of_patience = |since_s: u64| now_s >= since_s.saturating_add(patience_s);
        match self.unanswered_since_s {
            Some(since_s) if is_out_of_patience(since_s) => CheckDue::Overdue,
            _ if now_s >= self.checked_s.saturating_add(age_s) => CheckDue::Yes,
            _ => CheckDue::No,
        }
    }

    /// The groups and claims that rules name, for a token with these scopes.
    pub fn known(
        &self,
        scopes: Vec<String>,
        is_group_named: impl Fn(&str) -> bool,
        is_claim_named: impl Fn(&str) -> bool,
        rules: u64,
    ) -> KnownOfPrincipal {
        let groups = self.groups.iter().filter(|group| is_group_named(group)).cloned().collect();
        let claims = self.claims.iter().filter(|(name, _)| is_claim_named(name)).cloned().collect();
        KnownOfPrincipal { scopes, groups, claims, rules }
    }
}

impl Sealable for AccountRecord {
    const KIND: Kind = Kind::Account;

    /// It goes with its last grant.
    fn expires_s(&self) -> Option<u64> {
        None
    }

    fn write(&self, to: &mut FieldWriter) {
        for text in [&self.issuer, &self.subject, &self.principal, &self.name] {
            to.text(text);
        }
        to.texts(&self.groups);
        write_claims(&self.claims, to);
        to.optional_text(self.refresh_token.as_ref().map(Presented::expose));
        to.number(self.checked_s);
        to.optional_number(self.unanswered_since_s);
        to.length(self.grants.len());
        for grant in &self.grants {
            to.fixed(&grant.0);
        }
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            issuer: from.text()?,
            subject: from.text()?,
            principal: from.text()?,
            name: from.text()?,
            groups: from.texts()?,
            claims: read_claims(from)?,
            refresh_token: from.optional_text()?.map(|token| Presented::new(&token)),
            checked_s: from.number()?,
            unanswered_since_s: from.optional_number()?,
            grants: read_grants(from)?,
        })
    }
}

fn read_grants(from: &mut FieldReader<'_>) -> Option<Vec<GrantId>> {
    let length = from.length().filter(|length| *length <= GRANTS_MAX)?;
    (0..length).map(|_| Some(GrantId(from.array()?))).collect()
}
