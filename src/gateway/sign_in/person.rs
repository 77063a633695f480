//! The person behind the provider's tokens: a checked ID token and, where that says too little, userinfo of the same subject.
//!
//! The principal is made by the code that makes those of the provider's own tokens, so that rules, limits and sessions agree.

use config::Algorithm;
use identity::provider::answer::ProviderTokens;
use identity::provider::id_token::{self, ExpectedIdToken};
use identity::provider::metadata::ProviderMetadata;
use identity::sealed::account::AccountRecord;
use tokens::jwt::{TYPES_OF_ID_TOKENS, Token, TokenMembers};

use super::desk::SignInDesk;
use crate::access::auth::jwt::claims::{principal_id, subject_of};
use crate::access::auth::sign_in::faults::ProviderFault;
use crate::clock::now_s;
use crate::identity::refusal::CredentialFault;

/// Claims of an ID token that say nothing of a person.
const OF_THE_TOKEN: [&str; 11] =
    ["acr", "at_hash", "aud", "auth_time", "azp", "c_hash", "exp", "iat", "jti", "nbf", "nonce"];
/// Names of a person, the best first.
const NAMES: [&str; 3] = ["name", "preferred_username", "email"];

/// The expectations that tokens are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedPerson<'e> {
    /// The nonce of the visit; at a refresh there is none.
    pub nonce: Option<&'e str>,
    /// The account as it was; at a refresh.
    pub before: Option<&'e AccountRecord>,
}

/// The reason that somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PersonFault {
    Provider(ProviderFault),
    /// `require` does not hold: this claim.
    Requirement {
        claim: String,
        name: String,
    },
}

impl From<ProviderFault> for PersonFault {
    fn from(fault: ProviderFault) -> Self {
        Self::Provider(fault)
    }
}

impl SignInDesk {
    /// The account of the person whom the tokens are of, without its grants.
    pub(super) async fn person_of(
        &self,
        metadata: &ProviderMetadata,
        tokens: &ProviderTokens,
        expected: ExpectedPerson<'_>,
    ) -> Result<AccountRecord, PersonFault> {
        let claims = self.claims_of(metadata, tokens, expected).await?;
        let account = self.account_of(&claims, tokens, expected.before)?;
        match self.settings.require.unmet(&account.claims) {
            None => Ok(account),
            Some(claim) => {
                Err(PersonFault::Requirement { claim: claim.to_owned(), name: account.name.clone() })
            }
        }
    }

    /// All that the provider says, each name with its texts.
    async fn claims_of(
        &self,
        metadata: &ProviderMetadata,
        tokens: &ProviderTokens,
        expected: ExpectedPerson<'_>,
    ) -> Result<Vec<(String, String)>, ProviderFault> {
        let jwt = &self.settings.issuer.config;
        let before = expected.before;
        let subject_before = before.and_then(|before| text_of(&before.claims, "sub"));
        let (mut claims, subject) = match &tokens.id_token {
            Some(text) => {
                let token = self.checked(text.expose()).await?;
                let wanted = ExpectedIdToken {
                    issuer: &jwt.issuer,
                    client_id: &self.settings.config.provider_client.id,
                    nonce: expected.nonce,
                    subject: subject_before,
                    groups_claim: &jwt.groups_claim,
                    leeway_s: jwt.leeway.as_secs(),
                };
                let subject = id_token::judge(&token, &wanted, now_s());
                let subject = subject.map_err(|fault| untrusted("the ID token", fault))?.to_owned();
                (texts_of(&token), subject)
            }
            // At a refresh it may be missing (`OpenID` Connect Core §12.2).
            None => match subject_before {
                Some(subject) => (vec![("sub".to_owned(), subject.to_owned())], subject.to_owned()),
                None => return Err(ProviderFault::Untrusted("there is no ID token".to_owned())),
            },
        };
        let is_said = |name: &str| claims.iter().any(|(present, _)| present == name);
        let required = self.settings.config.require.iter().map(|(claim, _)| claim.as_str());
        let wanted: Vec<&str> = required.chain([&*jwt.groups_claim, &*jwt.subject_claim, "name"]).collect();
        let is_missing = wanted.iter().any(|name| !is_said(name));
        let mut is_emptied: Vec<&str> = Vec::new();
        if let Some(url) = metadata.userinfo_endpoint.as_ref().filter(|_| is_missing) {
            let userinfo = self.userinfo(url, &tokens.access_token).await?;
            id_token::judge_userinfo(&userinfo, &subject, &jwt.groups_claim)
                .map_err(|fault| untrusted("userinfo", fault))?;
            // An empty list says that there are none any more.
            is_emptied = [&*jwt.groups_claim]
                .into_iter()
                .chain(self.settings.config.require.iter().map(|(claim, _)| claim.as_str()))
                .filter(|name| userinfo.get(name).is_some())
                .collect();
            let more = texts_of(&userinfo);
            let known: Vec<String> = claims.iter().map(|(name, _)| name.clone()).collect();
            claims.extend(more.into_iter().filter(|(name, _)| !known.contains(name)));
        }
        if tokens.id_token.is_none() {
            // What was said before goes on, but for what is said now.
            let said: Vec<String> = claims.iter().map(|(name, _)| name.clone()).collect();
            let of_before = before.map(|before| before.claims.clone()).unwrap_or_default();
            let goes_on = |name: &str| !said.iter().any(|said| said == name) && !is_emptied.contains(&name);
            claims.extend(of_before.into_iter().filter(|(name, _)| goes_on(name)));
        }
        Ok(claims)
    }

    /// The claims of an ID token that a key of the provider has signed.
    async fn checked(&self, text: &str) -> Result<TokenMembers, ProviderFault> {
        let untrusted = |why: &str| ProviderFault::Untrusted(format!("the ID token {why}"));
        if text.len() > identity::parameters::OF_ANSWERS.value_bytes_max {
            return Err(untrusted("is too long"));
        }
        let token =
            Token::read_as(text, &TYPES_OF_ID_TOKENS).ok_or_else(|| untrusted("is no signed token"))?;
        let algorithm = Algorithm::of(&token.algorithm);
        let algorithm = algorithm.ok_or_else(|| untrusted("is signed by an algorithm that is not taken"))?;
        let issuer = &self.settings.issuer;
        let mut checked = issuer.check(&token, algorithm);
        if checked == Err(CredentialFault::UnknownKey) {
            issuer.ask().await;
            checked = issuer.check(&token, algorithm);
        }
        match checked {
            Ok(_) => Ok(token.claims),
            Err(CredentialFault::UnknownKey) if !issuer.has_keys() => {
                Err(ProviderFault::Down("its keys cannot be had".to_owned()))
            }
            Err(fault) => Err(untrusted(&format!("does not hold: {}", fault.reason()))),
        }
    }

    fn account_of(
        &self,
        claims: &[(String, String)],
        tokens: &ProviderTokens,
        before: Option<&AccountRecord>,
    ) -> Result<AccountRecord, ProviderFault> {
        let jwt = &self.settings.issuer.config;
        let subject = subject_of(claims, jwt).ok_or_else(|| {
            ProviderFault::Untrusted(format!("it says no {}, or more than one", jwt.subject_claim))
        })?;
        if before.is_some_and(|before| before.subject != subject) {
            return Err(ProviderFault::Untrusted(format!("its {} is another person's", jwt.subject_claim)));
        }
        let groups: Vec<String> = claims
            .iter()
            .filter(|(name, _)| *name == jwt.groups_claim)
            .map(|(_, group)| group.clone())
            .collect();
        let name = NAMES.iter().find_map(|name| text_of(claims, name)).unwrap_or(subject);
        let refresh_token = tokens.refresh_token.clone();
        let account = AccountRecord {
            issuer: jwt.issuer.clone(),
            subject: subject.to_owned(),
            principal: principal_id(&jwt.issuer, subject),
            name: name.get(..name.floor_char_boundary(256)).unwrap_or_default().to_owned(),
            groups,
            claims: claims.to_vec(),
            refresh_token: refresh_token.or_else(|| before.and_then(|before| before.refresh_token.clone())),
            checked_s: now_s(),
            unanswered_since_s: None,
            grants: before.map(|before| before.grants.clone()).unwrap_or_default(),
        };
        if account.fits() {
            return Ok(account);
        }
        let why = "it says more of the person than 16 KiB: have it name the groups of this application alone";
        Err(ProviderFault::Untrusted(why.to_owned()))
    }
}

fn texts_of(claims: &TokenMembers) -> Vec<(String, String)> {
    let texts = claims.texts().into_iter();
    let of_person = texts.filter(|(name, _)| !OF_THE_TOKEN.contains(&&**name));
    of_person.map(|(name, text)| (name.into_string(), text.into_string())).collect()
}

fn text_of<'c>(claims: &'c [(String, String)], name: &str) -> Option<&'c str> {
    claims.iter().find(|(present, _)| present == name).map(|(_, text)| text.as_str())
}

fn untrusted(what: &str, fault: id_token::IdTokenFault) -> ProviderFault {
    ProviderFault::Untrusted(format!("{what}: {fault}"))
}
