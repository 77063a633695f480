//! What the claims of a token come to: for whom it is, for how long, and whom it names.

use std::sync::Arc;

use serde_json::Value;

use crate::identity::refusal::CredentialFault;
use crate::identity::{Principal, VerifiedIdentity};
use tokens::jwt::{TokenMembers, seconds};

/// Texts that are kept of one token: groups, scopes and other claims.
const TEXTS_MAX: usize = 1024;
const SUBJECT_BYTES_MAX: usize = 256;

/// Whom the claims name, if they are for one of `audiences` and hold at this time. The signature must have been checked.
pub(crate) fn identify(
    claims: &TokenMembers,
    jwt: &config::Jwt,
    audiences: &[Box<str>],
    now_s: u64,
) -> Result<Principal, CredentialFault> {
    if claims.get("iss").and_then(Value::as_str) != Some(&jwt.issuer) {
        return Err(CredentialFault::Issuer);
    }
    let expires_s = check_times(claims, jwt.leeway.as_secs(), now_s)?;
    check_audience(claims, audiences)?;
    // Whoever presents a token that is bound to a key has to prove that the key is theirs.
    if claims.get("cnf").is_some() {
        return Err(CredentialFault::Claims);
    }
    let texts = claims.texts();
    let named = |name: &str| -> Vec<&str> {
        texts.iter().filter(|(present, _)| **present == *name).map(|(_, text)| &**text).collect()
    };
    let subject = subject_of(&texts, jwt).ok_or(CredentialFault::Claims)?;
    let scopes = match &jwt.scope_claim {
        Some(claim) => named(claim),
        None => Some(named("scope")).filter(|scopes| !scopes.is_empty()).unwrap_or_else(|| named("scp")),
    };
    let scopes: Vec<Box<str>> =
        scopes.into_iter().flat_map(|scopes| scopes.split_ascii_whitespace()).map(Box::from).collect();
    let groups: Vec<Box<str>> = named(&jwt.groups_claim).into_iter().map(Box::from).collect();
    if texts.len() + scopes.len() + groups.len() > TEXTS_MAX {
        return Err(CredentialFault::Claims);
    }
    Ok(Principal::Known(Arc::new(VerifiedIdentity {
        id: principal_id(&jwt.issuer, subject).into(),
        name: subject.into(),
        obtainable: None,
        groups,
        scopes,
        expires_s: Some(expires_s),
        claims: texts,
    })))
}

/// The subject that claims name, as texts; `None` if they name none, several, or one that cannot be logged.
pub(crate) fn subject_of<'c, T: AsRef<str>>(claims: &'c [(T, T)], jwt: &config::Jwt) -> Option<&'c str> {
    let mut named = claims.iter().filter(|(name, _)| name.as_ref() == jwt.subject_claim);
    let (subject, others) = (named.next()?.1.as_ref(), named.next());
    let is_good = (1..=SUBJECT_BYTES_MAX).contains(&subject.len())
        && !subject.contains(char::is_control)
        && others.is_none();
    is_good.then_some(subject)
}

/// The id of the principal whom an issuer calls by this subject.
pub(crate) fn principal_id(issuer: &str, subject: &str) -> String {
    format!("jwt:{issuer} {subject}")
}

/// When the token expires, by its own word.
pub(crate) fn check_times(claims: &TokenMembers, leeway_s: u64, now_s: u64) -> Result<u64, CredentialFault> {
    let expires_s = claims.get("exp").and_then(seconds).ok_or(CredentialFault::Expired)?;
    if expires_s.saturating_add(leeway_s) <= now_s {
        return Err(CredentialFault::Expired);
    }
    for claim in ["nbf", "iat"] {
        let Some(value) = claims.get(claim) else { continue };
        if seconds(value).ok_or(CredentialFault::NotYet)? > now_s.saturating_add(leeway_s) {
            return Err(CredentialFault::NotYet);
        }
    }
    Ok(expires_s)
}

/// True if the token is for one of `audiences`.
pub(crate) fn check_audience(claims: &TokenMembers, audiences: &[Box<str>]) -> Result<(), CredentialFault> {
    let is_ours = |audience: &Value| {
        audience.as_str().is_some_and(|audience| audiences.iter().any(|ours| **ours == *audience))
    };
    let is_for_us = match claims.get("aud") {
        Some(Value::Array(several)) => several.iter().any(is_ours),
        Some(one) => is_ours(one),
        None => false,
    };
    if is_for_us { Ok(()) } else { Err(CredentialFault::Audience) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use config::KeySource;

    const NOW_S: u64 = 1_000_000;

    fn jwt() -> config::Jwt {
        config::Jwt {
            name: "test".into(),
            issuer: "https://issuer".into(),
            keys: KeySource::File("/x".into()),
            ca: None,
            algorithms: Vec::new(),
            audiences: Vec::new(),
            leeway: Duration::from_secs(30),
            subject_claim: "sub".into(),
            groups_claim: "groups".into(),
            scope_claim: None,
            jwks_refresh_interval: Duration::from_mins(10),
            jwks_stale_max: Duration::from_hours(24),
        }
    }

    fn identified(claims: &str, jwt: &config::Jwt) -> Result<Principal, CredentialFault> {
        let claims: TokenMembers = serde_json::from_str(claims).expect("claims");
        identify(&claims, jwt, &["https://a/mcp".into(), "other".into()], NOW_S)
    }

    fn identity(claims: &str, jwt: &config::Jwt) -> VerifiedIdentity {
        let base = r#""iss":"https://issuer","aud":"https://a/mcp","exp":1000001"#;
        match identified(&format!("{{{base},{claims}}}"), jwt) {
            Ok(Principal::Known(identity)) => VerifiedIdentity::clone(&identity),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn times_issuer_and_audience_must_fit() {
        let iss = r#""iss":"https://issuer""#;
        let aud = r#""aud":"https://a/mcp""#;
        let exp = r#""exp":1000001"#;
        let sub = r#""sub":"ann""#;
        for (what, claims, refusal) in [
            ("good", format!("{iss},{aud},{exp},{sub}"), None),
            ("several audiences", format!(r#"{iss},"aud":["x","other"],{exp},{sub}"#), None),
            ("no audience", format!("{iss},{exp},{sub}"), Some(CredentialFault::Audience)),
            (
                "another audience",
                format!(r#"{iss},"aud":"https://a/mcp2",{exp},{sub}"#),
                Some(CredentialFault::Audience),
            ),
            (
                "an odd audience",
                format!(r#"{iss},"aud":[["other"]],{exp},{sub}"#),
                Some(CredentialFault::Audience),
            ),
            ("no issuer", format!("{aud},{exp},{sub}"), Some(CredentialFault::Issuer)),
            ("within the leeway", format!(r#"{iss},{aud},"exp":999971,{sub}"#), None),
            ("beyond it", format!(r#"{iss},{aud},"exp":999970,{sub}"#), Some(CredentialFault::Expired)),
            ("with a fraction", format!(r#"{iss},{aud},"exp":1000001.5,{sub}"#), None),
            ("never", format!("{iss},{aud},{sub}"), Some(CredentialFault::Expired)),
            ("as text", format!(r#"{iss},{aud},"exp":"1000001",{sub}"#), Some(CredentialFault::Expired)),
            ("before 1970", format!(r#"{iss},{aud},"exp":-1,{sub}"#), Some(CredentialFault::Expired)),
            (
                "beyond all numbers",
                format!(r#"{iss},{aud},"exp":1e300,{sub}"#),
                Some(CredentialFault::Expired),
            ),
            ("soon", format!(r#"{iss},{aud},{exp},{sub},"nbf":1000030"#), None),
            ("later", format!(r#"{iss},{aud},{exp},{sub},"nbf":1000031"#), Some(CredentialFault::NotYet)),
            (
                "made later",
                format!(r#"{iss},{aud},{exp},{sub},"iat":1000031"#),
                Some(CredentialFault::NotYet),
            ),
            ("odd beginning", format!(r#"{iss},{aud},{exp},{sub},"nbf":"x""#), Some(CredentialFault::NotYet)),
            ("nobody", format!("{iss},{aud},{exp}"), Some(CredentialFault::Claims)),
            ("an empty subject", format!(r#"{iss},{aud},{exp},"sub":"""#), Some(CredentialFault::Claims)),
            ("two subjects", format!(r#"{iss},{aud},{exp},"sub":["a","b"]"#), Some(CredentialFault::Claims)),
            (
                "bound to a key",
                format!(r#"{iss},{aud},{exp},{sub},"cnf":{{"jkt":"x"}}"#),
                Some(CredentialFault::Claims),
            ),
        ] {
            assert_eq!(identified(&format!("{{{claims}}}"), &jwt()).err(), refusal, "{what}");
        }
        let many = format!(r#"{{{iss},{aud},{exp},{sub},"groups":[{}1]}}"#, "1,".repeat(1100));
        assert_eq!(identified(&many, &jwt()).err(), Some(CredentialFault::Claims), "more than is kept");
    }

    #[test]
    fn groups_scopes_and_claims() {
        let words = |words: &[&str]| words.iter().map(|word| Box::from(*word)).collect::<Vec<Box<str>>>();
        let found = identity(r#""sub":"ann","groups":["a","b"],"scope":"x  y","scp":"z""#, &jwt());
        assert_eq!((&*found.id, &*found.name), ("jwt:https://issuer ann", "ann"));
        assert_eq!((found.groups, found.scopes), (words(&["a", "b"]), words(&["x", "y"])));
        assert_eq!(found.expires_s, Some(1_000_001));
        let found = identity(r#""sub":"ann","groups":"a","scp":["x","y z"],"admin":true,"n":7"#, &jwt());
        assert_eq!((found.groups, found.scopes), (words(&["a"]), words(&["x", "y", "z"])));
        assert!(found.claims.contains(&("admin".into(), "true".into())));
        assert!(found.claims.contains(&("n".into(), "7".into())));
        let other = config::Jwt {
            subject_claim: "client_id".into(),
            groups_claim: "realm_access.roles".into(),
            scope_claim: Some("permissions".into()),
            ..jwt()
        };
        let claims = r#""client_id":7,"realm_access":{"roles":["ops"]},"permissions":["r"],"scope":"w""#;
        let found = identity(claims, &other);
        assert_eq!(&*found.id, "jwt:https://issuer 7");
        assert_eq!((found.groups, found.scopes), (words(&["ops"]), words(&["r"])));
    }
}
