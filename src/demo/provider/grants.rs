//! Codes, grants and access tokens, in memory.
//!
//! A code that is used makes a grant, and the tokens of a grant are good as long as it is there.
//!
//! Invariants: each kind is bounded, and the one that was used least recently gives way. A code that comes twice, and a refresh
//! token that is not the newest of its grant, end the grant.

use crate::keyed_table::{KeyedTable, random_key};

use super::answer::OAuthFault;
use super::users::User;

const CODES_MAX: usize = 256;
const GRANTS_MAX: usize = 1024;
const ACCESS_TOKENS_MAX: usize = 1024;
/// The life of a code.
const CODE_LIFE_S: u64 = 60;
/// The life of an access token.
pub(super) const ACCESS_TOKEN_LIFE_S: u64 = 300;

/// A visit that somebody has answered: the code stands for it.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) user: &'static User,
    pub(super) redirect_uri: String,
    /// The digest of the verifier.
    pub(super) challenge: Vec<u8>,
    pub(super) nonce: Option<String>,
    /// With spaces between.
    pub(super) scope: String,
    pub(super) signed_in_s: u64,
}

/// Tokens are made for it.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) user: &'static User,
    pub(super) scope: String,
    pub(super) signed_in_s: u64,
    /// The second half of its newest refresh token; the first is its key.
    secret: String,
}

struct Code {
    visit: Visit,
    expires_s: u64,
    /// As soon as it is used; empty where no grant came of it.
    used_for: Option<String>,
}

#[derive(Clone)]
struct AccessToken {
    grant: String,
    expires_s: u64,
}

/// All that was handed out.
pub(super) struct Grants {
    codes: KeyedTable<Code>,
    open: KeyedTable<Grant>,
    access_tokens: KeyedTable<AccessToken>,
}

impl Default for Grants {
    fn default() -> Self {
        Self {
            codes: KeyedTable::new(CODES_MAX),
            open: KeyedTable::new(GRANTS_MAX),
            access_tokens: KeyedTable::new(ACCESS_TOKENS_MAX),
        }
    }
}

impl Grants {
    /// A code for this visit.
    pub(super) fn issue_code(&self, visit: Visit, now_s: u64) -> Result<String, OAuthFault> {
        let expires_s = now_s.saturating_add(CODE_LIFE_S);
        Ok(self.codes.insert(Code { visit, expires_s, used_for: None })?)
    }

    /// The visit of a code, which is used now, whatever comes of it. A second use ends the grant of the first.
    pub(super) fn use_code(&self, code: &str, now_s: u64) -> Result<Visit, OAuthFault> {
        let first = self.codes.change(code, |code| match code.used_for.replace(String::new()) {
            None => Ok((code.visit.clone(), code.expires_s)),
            Some(grant) => Err(grant),
        });
        match first {
            Some(Ok((visit, expires_s))) if now_s < expires_s => Ok(visit),
            Some(Ok(_)) => Err(OAuthFault::InvalidGrant("the code has expired")),
            Some(Err(grant)) => {
                self.open.remove(&grant);
                Err(OAuthFault::InvalidGrant("the code was used before"))
            }
            None => Err(OAuthFault::InvalidGrant("the code is unknown")),
        }
    }

    /// Opens a grant for the visit of a code. Returns its key, and the grant.
    pub(super) fn open(&self, code: &str, visit: &Visit) -> Result<(String, Grant), OAuthFault> {
        let (user, scope, signed_in_s) = (visit.user, visit.scope.clone(), visit.signed_in_s);
        let grant = Grant { user, scope, signed_in_s, secret: random_key()? };
        let key = self.open.insert(grant.clone())?;
        self.codes.change(code, |code| code.used_for = Some(key.clone()));
        Ok((key, grant))
    }

    /// The grant of a refresh token, and its key. Any but the newest token ends the grant.
    pub(super) fn refreshed(&self, token: &str) -> Result<(String, Grant), OAuthFault> {
        let (key, secret) = token.split_once('.').unwrap_or_default();
        match self.open.get(key) {
            Some(grant) if grant.secret == secret => Ok((key.to_owned(), grant)),
            Some(_) => {
                self.end(key);
                Err(OAuthFault::InvalidGrant("the refresh token was used before, so the sign-in has ended"))
            }
            None => Err(OAuthFault::InvalidGrant("the refresh token is unknown, or its sign-in has ended")),
        }
    }

    /// The next refresh token of a grant: all earlier ones are over.
    pub(super) fn next_refresh_token(&self, grant: &str) -> Result<String, OAuthFault> {
        let secret = random_key()?;
        let token = format!("{grant}.{secret}");
        let set = self.open.change(grant, |grant| grant.secret = secret);
        set.map(|()| token).ok_or(OAuthFault::InvalidGrant("the sign-in has ended"))
    }

    pub(super) fn issue_access_token(&self, grant: &str, now_s: u64) -> Result<String, OAuthFault> {
        let expires_s = now_s.saturating_add(ACCESS_TOKEN_LIFE_S);
        Ok(self.access_tokens.insert(AccessToken { grant: grant.to_owned(), expires_s })?)
    }

    /// The grant of an access token that is good.
    pub(super) fn of_access_token(&self, token: &str, now_s: u64) -> Option<Grant> {
        let token = self.access_tokens.get(token).filter(|token| now_s < token.expires_s)?;
        self.open.get(&token.grant)
    }

    /// Ends a grant, and so all of its tokens.
    pub(super) fn end(&self, grant: &str) {
        self.open.remove(grant);
    }

    /// Ends an access token, or the grant of a refresh token; another text is none, and nothing happens.
    pub(super) fn revoke(&self, token: &str) {
        self.access_tokens.remove(token);
        if let Some((grant, _)) = token.split_once('.') {
            self.end(grant);
        }
    }
}
