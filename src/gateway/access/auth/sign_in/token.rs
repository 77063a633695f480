//! Tokens that sign-in gave out, as a call shows them.
//!
//! Invariant: one that does not say enough for the rules of now lets nobody in by what it says; what is missing is read first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use identity::sealed::OpenFault;
use identity::sealed::access_token::{AccessToken, KnownOfPrincipal};

use super::settings::SignIn;
use crate::identity::refusal::CredentialFault;
use crate::identity::{Principal, VerifiedIdentity};

/// The beginning of each token.
const PREFIX: &str = "tla_";

/// True for what begins like a token of sign-in.
pub(crate) fn looks_issued(credential: &str) -> bool {
    credential.starts_with(PREFIX)
}

/// A token that was opened, for this endpoint and in its time.
#[derive(Debug)]
pub(crate) struct OpenedToken {
    pub token: AccessToken,
    /// It says all that the rules of now ask for.
    pub is_enough: bool,
}

/// Opens a token for the endpoint of this public URL.
pub(crate) fn open(
    text: &str,
    sign_in: &SignIn,
    public_url: &str,
    now_s: u64,
) -> Result<OpenedToken, CredentialFault> {
    let token: AccessToken =
        sign_in.seals.open(text, &sign_in.config.url, now_s).map_err(|fault| match fault {
            OpenFault::Expired => CredentialFault::Expired,
            OpenFault::Unknown => CredentialFault::SignIn,
        })?;
    // Those of another provider are of other people.
    let is_of_provider = token.principal.strip_prefix("jwt:").and_then(|rest| rest.split_once(' '));
    if is_of_provider.is_none_or(|(issuer, _)| issuer != sign_in.issuer.config.issuer) {
        return Err(CredentialFault::Issuer);
    }
    if !token.is_for(public_url) {
        return Err(CredentialFault::Audience);
    }
    let is_enough = token.known.as_ref().is_some_and(|known| known.rules == sign_in.named.fingerprint());
    Ok(OpenedToken { token, is_enough })
}

/// The principal of a token, with what is known of it.
pub(crate) fn principal_of(token: &AccessToken, known: KnownOfPrincipal, sign_in: &SignIn) -> Principal {
    let boxed = |texts: Vec<String>| texts.into_iter().map(String::into_boxed_str).collect::<Vec<_>>();
    let claims = known.claims.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    // Its issuer has no blank.
    let name = token.principal.split_once(' ').map_or(&*token.principal, |(_, subject)| subject);
    Principal::Known(Arc::new(VerifiedIdentity {
        id: token.principal.as_str().into(),
        name: name.into(),
        obtainable: Some(boxed(sign_in.scopes.obtainable(&known.groups))),
        groups: boxed(known.groups),
        scopes: boxed(known.scopes),
        claims,
        expires_s: Some(token.expires_s),
    }))
}

/// The time at which a token is looked at again.
pub(crate) fn again(sign_in: &SignIn, now: Instant) -> Instant {
    now + sign_in.config.recheck_interval.max(Duration::from_secs(1))
}
