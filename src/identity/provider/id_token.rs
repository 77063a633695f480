//! The claims of an ID token, and of userinfo: who signed in, and in which groups.
//!
//! Not here: the signature, which is checked before. The form of a token is [`tokens::jwt`]'s; the principal is made by the code
//! that makes those of the provider's own tokens.

use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tokens::jwt::{TokenMembers, seconds};

/// Bytes of a subject.
const SUBJECT_BYTES_MAX: usize = 256;

/// An ID token as it has to be.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedIdToken<'a> {
    /// The provider's issuer.
    pub issuer: &'a str,
    /// Our client id there.
    pub client_id: &'a str,
    /// The nonce of the visit. `None`: at a refresh there was none.
    pub nonce: Option<&'a str>,
    /// The subject that signed in before, at a refresh.
    pub subject: Option<&'a str>,
    /// The claim that holds the groups, by its name, or by names with dots between.
    pub groups_claim: &'a str,
    /// The clocks may differ by so much.
    pub leeway_s: u64,
}

/// The cause for which an ID token or userinfo is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenFault {
    /// Another issuer.
    #[error("its iss is not the provider's")]
    Issuer,
    /// Not for us alone.
    #[error("its aud is not our client id alone, or its azp is another's")]
    Audience,
    /// Of another visit.
    #[error("its nonce is not that of this sign-in")]
    Nonce,
    /// Its time is over.
    #[error("it has expired, or has no time")]
    Expired,
    /// Its time has not come: the clocks differ.
    #[error("it is not good yet: compare the clocks of provider and gateway")]
    NotYet,
    /// It names no person, or another one than before.
    #[error("its sub is missing, or is another person's")]
    Subject,
    /// Groups that are only hinted at.
    #[error("it only says where the groups are: have the provider name those of this application alone")]
    Overage,
}

/// Judges the claims of an ID token whose signature was checked. Returns its subject.
pub fn judge<'c>(
    claims: &'c TokenMembers,
    expected: &ExpectedIdToken<'_>,
    now_s: u64,
) -> Result<&'c str, IdTokenFault> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err(IdTokenFault::Issuer);
    }
    check_audience(claims, expected.client_id)?;
    let expires_s = claims.get("exp").and_then(seconds).ok_or(IdTokenFault::Expired)?;
    if expires_s.saturating_add(expected.leeway_s) <= now_s {
        return Err(IdTokenFault::Expired);
    }
    let latest_s = now_s.saturating_add(expected.leeway_s);
    // `OpenID` Connect Core §2 has iat in every ID token.
    if claims.get("iat").and_then(seconds).ok_or(IdTokenFault::Expired)? > latest_s {
        return Err(IdTokenFault::NotYet);
    }
    if let Some(from) = claims.get("nbf")
        && seconds(from).ok_or(IdTokenFault::NotYet)? > latest_s
    {
        return Err(IdTokenFault::NotYet);
    }
    if let Some(nonce) = expected.nonce {
        let is_same = |said: &str| bool::from(said.as_bytes().ct_eq(nonce.as_bytes()));
        if !text("nonce").is_some_and(is_same) {
            return Err(IdTokenFault::Nonce);
        }
    }
    let subject = subject_of(claims)?;
    if expected.subject.is_some_and(|before| before != subject) {
        return Err(IdTokenFault::Subject);
    }
    check_groups(claims, expected.groups_claim)?;
    Ok(subject)
}

/// Refuses userinfo of another person than the ID token's (`OpenID` Connect Core §5.3.2).
pub fn judge_userinfo(
    userinfo: &TokenMembers,
    subject: &str,
    groups_claim: &str,
) -> Result<(), IdTokenFault> {
    if subject_of(userinfo)? != subject {
        return Err(IdTokenFault::Subject);
    }
    check_groups(userinfo, groups_claim)
}

fn subject_of(claims: &TokenMembers) -> Result<&str, IdTokenFault> {
    let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| {
        (1..=SUBJECT_BYTES_MAX).contains(&subject.len()) && !subject.contains(char::is_control)
    });
    subject.ok_or(IdTokenFault::Subject)
}

/// For our client alone; or for several, with us as the one it was made for (`azp`).
fn check_audience(claims: &TokenMembers, client_id: &str) -> Result<(), IdTokenFault> {
    let is_ours = |value: &Value| value.as_str() == Some(client_id);
    let authorized = claims.get("azp");
    if authorized.is_some_and(|party| !is_ours(party)) {
        return Err(IdTokenFault::Audience);
    }
    let is_good = match claims.get("aud") {
        Some(Value::Array(one)) if one.len() == 1 => one.iter().all(is_ours),
        Some(Value::Array(several)) => several.iter().any(is_ours) && authorized.is_some(),
        Some(one) => is_ours(one),
        None => false,
    };
    if is_good { Ok(()) } else { Err(IdTokenFault::Audience) }
}

/// Entra names groups of people in many of them elsewhere: `hasgroups`, or as claims of another source (`OpenID` Connect Core
/// §5.6.2). A rule that refuses by group would miss them.
fn check_groups(claims: &TokenMembers, groups_claim: &str) -> Result<(), IdTokenFault> {
    let outer = groups_claim.split('.').next().unwrap_or_default();
    let elsewhere = claims.get("_claim_names").and_then(Value::as_object);
    let is_elsewhere =
        elsewhere.is_some_and(|names| names.contains_key(outer) || names.contains_key(groups_claim));
    let is_hinted =
        outer == "groups" && claims.get("hasgroups").is_some_and(|said| *said != Value::Bool(false));
    if is_elsewhere || is_hinted { Err(IdTokenFault::Overage) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const NOW_S: u64 = 1_000_000;
    const EXPECTED: ExpectedIdToken<'_> = ExpectedIdToken {
        issuer: "https://login.example.com",
        client_id: "trunkline",
        nonce: Some("n"),
        subject: None,
        groups_claim: "groups",
        leeway_s: 30,
    };

    fn claims(changed: &Value) -> TokenMembers {
        let mut claims = json!({
            "iss": "https://login.example.com", "aud": "trunkline", "sub": "ann", "nonce": "n",
            "exp": NOW_S + 60, "iat": NOW_S, "groups": ["staff"],
        });
        for (name, value) in changed.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        serde_json::from_value(claims).expect("claims")
    }

    fn judged(changed: &Value, expected: &ExpectedIdToken<'_>) -> Result<String, IdTokenFault> {
        judge(&claims(changed), expected, NOW_S).map(str::to_owned)
    }

    #[test]
    fn a_good_id_token_names_its_subject() {
        for changed in [
            json!({}),
            json!({ "aud": ["trunkline"] }),
            json!({ "aud": ["trunkline"], "azp": "trunkline" }),
            json!({ "aud": ["other", "trunkline"], "azp": "trunkline" }),
            json!({ "exp": NOW_S - 29 }),
            json!({ "iat": NOW_S + 30, "nbf": NOW_S + 30 }),
            json!({ "_claim_names": { "address": "src1" }, "hasgroups": false }),
        ] {
            assert_eq!(judged(&changed, &EXPECTED).as_deref(), Ok("ann"), "{changed}");
        }
    }

    #[test]
    fn bad_input_every_claim_that_does_not_fit_is_refused() {
        for (changed, expected) in [
            (json!({ "iss": "https://evil.example" }), IdTokenFault::Issuer),
            (json!({ "iss": "https://login.example.com/" }), IdTokenFault::Issuer),
            (json!({ "iss": null }), IdTokenFault::Issuer),
            (json!({ "aud": "other" }), IdTokenFault::Audience),
            (json!({ "aud": [] }), IdTokenFault::Audience),
            (json!({ "aud": null }), IdTokenFault::Audience),
            (json!({ "aud": ["trunkline", "other"] }), IdTokenFault::Audience),
            (json!({ "azp": "other" }), IdTokenFault::Audience),
            (json!({ "azp": null }), IdTokenFault::Audience),
            (json!({ "nonce": "m" }), IdTokenFault::Nonce),
            (json!({ "nonce": "" }), IdTokenFault::Nonce),
            (json!({ "nonce": null }), IdTokenFault::Nonce),
            (json!({ "exp": NOW_S - 30 }), IdTokenFault::Expired),
            (json!({ "exp": null }), IdTokenFault::Expired),
            (json!({ "exp": "soon" }), IdTokenFault::Expired),
            (json!({ "iat": null }), IdTokenFault::Expired),
            (json!({ "iat": NOW_S + 31 }), IdTokenFault::NotYet),
            (json!({ "nbf": NOW_S + 31 }), IdTokenFault::NotYet),
            (json!({ "nbf": "x" }), IdTokenFault::NotYet),
            (json!({ "sub": "" }), IdTokenFault::Subject),
            (json!({ "sub": null }), IdTokenFault::Subject),
            (json!({ "sub": 7 }), IdTokenFault::Subject),
            (json!({ "sub": "a\nb" }), IdTokenFault::Subject),
            (json!({ "sub": "s".repeat(257) }), IdTokenFault::Subject),
            (json!({ "hasgroups": true }), IdTokenFault::Overage),
            (json!({ "hasgroups": "true" }), IdTokenFault::Overage),
            (json!({ "_claim_names": { "groups": "src1" } }), IdTokenFault::Overage),
        ] {
            assert_eq!(judged(&changed, &EXPECTED), Err(expected), "{changed}");
        }
    }

    #[test]
    fn a_refresh_is_of_the_same_person() {
        let again = ExpectedIdToken { nonce: None, subject: Some("ann"), ..EXPECTED };
        assert!(judged(&json!({ "nonce": null }), &again).is_ok());
        assert_eq!(judged(&json!({ "sub": "bob" }), &again), Err(IdTokenFault::Subject));
    }

    #[test]
    fn userinfo_is_of_the_same_person() {
        assert_eq!(judge_userinfo(&claims(&json!({})), "ann", "groups"), Ok(()));
        for (changed, subject, expected) in [
            (json!({}), "bob", IdTokenFault::Subject),
            (json!({ "sub": null }), "ann", IdTokenFault::Subject),
            (json!({ "_claim_names": { "groups": "src1" } }), "ann", IdTokenFault::Overage),
        ] {
            assert_eq!(judge_userinfo(&claims(&changed), subject, "groups"), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>(), number: f64) {
            for name in ["iss", "aud", "azp", "exp", "iat", "nbf", "nonce", "sub", "_claim_names", "hasgroups"] {
                let _ = judged(&json!({ name: text }), &EXPECTED);
                let _ = judged(&json!({ name: number }), &EXPECTED);
                let _ = judged(&json!({ name: [text] }), &EXPECTED);
            }
        }
    }
}
