//! An access token: it is known at first sight, without a store.

use tokens::fields::{FieldReader, FieldWriter};

use super::fingerprint::{Fingerprint, GrantId};
use super::{Kind, Nonce, Sealable, Seals};

/// The client is told that it is shorter: at a 401 some open a browser.
pub const TOLD_LESS_S: u64 = 60;
/// Bytes of a principal's id; with it a token fits into its size, whatever else is left out.
pub const PRINCIPAL_BYTES_MAX: usize = 512;

/// An access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// Its grant.
    pub grant: GrantId,
    /// Of the public URL of the only endpoint that it is for.
    pub endpoint: Fingerprint,
    /// Of the client's id.
    pub client: Fingerprint,
    /// The principal's id, as tokens of the provider make it.
    pub principal: String,
    /// The time at which it was made.
    pub issued_s: u64,
    /// Until then.
    pub expires_s: u64,
    /// The facts that rules need. `None`: not even the scopes fit; all is in the records of the grant and of the account.
    pub known: Option<KnownOfPrincipal>,
}

/// The facts of its principal that a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownOfPrincipal {
    /// The scopes that were granted.
    pub scopes: Vec<String>,
    /// Those of the groups that rules name.
    pub groups: Vec<String>,
    /// Those of the claims that rules name, each name and value.
    pub claims: Vec<(String, String)>,
    /// Of the names of groups and claims that rules had: under rules with others the token has to be brought up to date.
    pub rules: u64,
}

impl KnownOfPrincipal {
    /// The scopes, which are nowhere else where a refresh asked for fewer. For groups and claims the token has to be brought up
    /// to date: no rules are those that it names.
    fn scopes_alone(self) -> Self {
        Self { scopes: self.scopes, groups: Vec::new(), claims: Vec::new(), rules: !self.rules }
    }
}

impl AccessToken {
    /// Its text, without what does not fit. `None`: not even its principal does.
    pub fn issue(mut self, seals: &Seals, nonce: Nonce, issuer: &str) -> Option<String> {
        if self.principal.len() > PRINCIPAL_BYTES_MAX {
            return None;
        }
        if let Some(text) = seals.seal(nonce, issuer, &self) {
            return Some(text);
        }
        self.known = self.known.map(KnownOfPrincipal::scopes_alone);
        if let Some(text) = seals.seal(nonce, issuer, &self) {
            return Some(text);
        }
        self.known = None;
        seals.seal(nonce, issuer, &self)
    }

    /// True at the endpoint of that public URL.
    pub fn is_for(&self, public_url: &str) -> bool {
        self.endpoint.is_of(&[public_url])
    }

    /// The seconds that the client is told.
    pub fn expires_in_s(&self, now_s: u64) -> u64 {
        self.expires_s.saturating_sub(now_s).saturating_sub(TOLD_LESS_S)
    }
}

impl Sealable for AccessToken {
    const KIND: Kind = Kind::AccessToken;

    fn expires_s(&self) -> Option<u64> {
        Some(self.expires_s)
    }

    fn write(&self, to: &mut FieldWriter) {
        to.fixed(&self.grant.0);
        to.fixed(&self.endpoint.0);
        to.fixed(&self.client.0);
        to.text(&self.principal);
        to.number(self.issued_s);
        to.number(self.expires_s);
        to.small(self.known.is_some().into());
        if let Some(known) = &self.known {
            to.texts(&known.scopes);
            to.texts(&known.groups);
            write_claims(&known.claims, to);
            to.number(known.rules);
        }
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            grant: GrantId(from.array()?),
            endpoint: Fingerprint(from.array()?),
            client: Fingerprint(from.array()?),
            principal: from.text()?,
            issued_s: from.number()?,
            expires_s: from.number()?,
            known: if from.is_so()? { Some(read_known(from)?) } else { None },
        })
    }
}

fn read_known(from: &mut FieldReader<'_>) -> Option<KnownOfPrincipal> {
    Some(KnownOfPrincipal {
        scopes: from.texts()?,
        groups: from.texts()?,
        claims: read_claims(from)?,
        rules: from.number()?,
    })
}

/// Writes names and values.
pub(super) fn write_claims(claims: &[(String, String)], to: &mut FieldWriter) {
    to.length(claims.len());
    for (name, value) in claims {
        to.text(name);
        to.text(value);
    }
}

/// Reads names and values.
pub(super) fn read_claims(from: &mut FieldReader<'_>) -> Option<Vec<(String, String)>> {
    (0..from.length()?).map(|_| Some((from.text()?, from.text()?))).collect()
}
