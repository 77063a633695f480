//! The judgement of a token by an endpoint, part by part, for `trunkline check --token`. Each part is judged by the
//! very function that judges it in a call.

use serde_json::Value;

use super::claims::{check_audience, check_times, identify};
use super::issuer::{IssuerError, Issuers};
use crate::access::auth::authenticator::audiences_of;
use crate::identity::Principal;
use crate::identity::refusal::CredentialFault;
use config::{Algorithm, AuthMethod, Config, EndpointConfig, Jwt, KeySource};
use tokens::jwt::{Token, TokenMembers};

/// Names of a principal's groups and scopes that are shown.
const WORDS_SHOWN_MAX: usize = 20;

/// The parts of a token that are judged.
#[derive(Debug)]
pub struct TokenPart {
    /// A claim, or what else of the token it is.
    pub name: &'static str,
    /// True if it fits; `None`: only the gateway itself can know.
    pub fits: Option<bool>,
    /// Its value, and the value that it should have.
    pub said: String,
}

/// The parts of a token as they are judged, one after the other.
#[derive(Debug, Default)]
pub struct TokenReport(pub Vec<TokenPart>);

impl TokenReport {
    /// Judges the token `text` at `now_s` as `endpoint` does.
    pub fn of(
        config: &Config,
        endpoint: &EndpointConfig,
        text: &str,
        now_s: u64,
    ) -> Result<Self, IssuerError> {
        let mut report = Self::default();
        let takes_tokens = endpoint.auth.contains(&AuthMethod::Jwt);
        report.part(
            "endpoint",
            takes_tokens,
            if takes_tokens { "takes tokens" } else { "takes no tokens: see its `auth`" },
        );
        let bytes_max = config.limits.token_bytes_max;
        report.part(
            "size",
            text.len() <= bytes_max,
            format!("{} bytes; `token_bytes_max` is {bytes_max}", text.len()),
        );
        let Some(token) = Token::read(text) else {
            report.fault("form", CredentialFault::TokenForm);
            return Ok(report);
        };
        report.part("form", true, "a signed token (JWT)");
        let written = token.claims.get("iss").map_or_else(|| "missing".to_owned(), Value::to_string);
        let issuer = config
            .jwt
            .iter()
            .find(|jwt| token.claims.get("iss").and_then(Value::as_str) == Some(&jwt.issuer));
        let known = config.jwt.iter().map(|jwt| jwt.issuer.as_str()).collect::<Vec<_>>().join(", ");
        report.part(
            "iss",
            issuer.is_some(),
            format!("{written}; a [[jwt]] has `issuer` {}", or_none(&known)),
        );
        let Some(issuer) = issuer else { return Ok(report) };
        report.signature(issuer, &token)?;
        report.claims(issuer, endpoint, &token.claims, now_s);
        Ok(report)
    }

    /// True if no part of it is refused.
    pub fn fits(&self) -> bool {
        self.0.iter().all(|part| part.fits != Some(false))
    }

    fn part(&mut self, name: &'static str, fits: bool, said: impl Into<String>) {
        self.0.push(TokenPart { name, fits: Some(fits), said: said.into() });
    }

    fn fault(&mut self, name: &'static str, fault: CredentialFault) {
        self.part(name, false, fault.reason());
    }

    fn signature(&mut self, jwt: &Jwt, token: &Token<'_>) -> Result<(), IssuerError> {
        let algorithm =
            Algorithm::of(&token.algorithm).filter(|algorithm| jwt.algorithms.contains(algorithm));
        let allowed = jwt.algorithms.iter().map(|algorithm| algorithm.label()).collect::<Vec<_>>().join(", ");
        self.part("alg", algorithm.is_some(), format!("{:?}; `algorithms` are {allowed}", token.algorithm));
        let Some(algorithm) = algorithm else { return Ok(()) };
        let key_id = token.key_id.as_deref().unwrap_or("none");
        if let KeySource::Url(url) | KeySource::Discovery(url) = &jwt.keys {
            let said = format!("not checked: the keys are at {url} (kid {key_id})");
            self.0.push(TokenPart { name: "signature", fits: None, said });
            return Ok(());
        }
        let issuers = Issuers::new(std::slice::from_ref(jwt), None)?;
        for issuer in &issuers.all {
            match issuer.check(token, algorithm) {
                Ok(_) => self.part("signature", true, format!("by the key {key_id}")),
                Err(fault) => self.part("signature", false, format!("{} (kid {key_id})", fault.reason())),
            }
        }
        Ok(())
    }

    fn claims(&mut self, jwt: &Jwt, endpoint: &EndpointConfig, claims: &TokenMembers, now_s: u64) {
        let audiences = audiences_of(endpoint, jwt);
        let said = |name: &str| claims.get(name).map_or_else(|| "missing".to_owned(), Value::to_string);
        let ours = audiences.iter().map(|audience| &**audience).collect::<Vec<_>>().join(", ");
        let fits = check_audience(claims, &audiences).is_ok();
        self.part("aud", fits, format!("{}; the endpoint is {}", said("aud"), or_none(&ours)));
        let times = format!("exp {}, nbf {}, iat {}; now {now_s}", said("exp"), said("nbf"), said("iat"));
        match check_times(claims, jwt.leeway.as_secs(), now_s) {
            Ok(_) => self.part("times", true, times),
            Err(fault) => self.part("times", false, format!("{}: {times}", fault.reason())),
        }
        if claims.get("cnf").is_some() {
            self.part("cnf", false, "the token is bound to a key, which no call can prove here");
        }
        let principal = identify(claims, jwt, &audiences, now_s);
        let subject = format!("{} ({})", said(&jwt.subject_claim), jwt.subject_claim);
        match principal {
            Ok(Principal::Known(identity)) => {
                self.part("subject", true, subject);
                let groups = format!("{} ({})", words(&identity.groups), jwt.groups_claim);
                self.part("groups", true, groups);
                let has = |scope: &String| identity.scopes.iter().any(|granted| **granted == **scope);
                let needed = or_none(&endpoint.scopes.join(" ")).to_owned();
                let fits = endpoint.scopes.iter().all(has);
                self.part(
                    "scopes",
                    fits,
                    format!("{}; the endpoint needs {needed}", words(&identity.scopes)),
                );
            }
            Err(CredentialFault::Claims) => {
                self.part("subject", false, format!("{}: {subject}", CredentialFault::Claims.reason()));
            }
            // The fault was reported above.
            Ok(Principal::Anonymous) | Err(_) => {}
        }
    }
}

fn words(words: &[Box<str>]) -> String {
    let shown = words.iter().take(WORDS_SHOWN_MAX).map(|word| &**word).collect::<Vec<_>>().join(" ");
    match words.len().checked_sub(WORDS_SHOWN_MAX) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => or_none(&shown).to_owned(),
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}
