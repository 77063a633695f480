//! The request of `/token`: a code is used once, a refresh token has one successor.
//!
//! Not here: the store. Each decision is a value: the record to be written by compare-and-set on its generation before the
//! client sees an answer, or the grant to be ended.
//!
//! Invariants: client, redirect URI, endpoint and verifier are checked before anything counts as used, so who has only the code
//! or the token of another ends nothing. No generation has two successors.

use serde_json::json;
use zeroize::Zeroize as _;

use crate::oauth_error::{Answer, ErrorCode, Fault, OAuthError};
use crate::parameters::Parameters;
use crate::pkce::is_verifier;
use crate::presented::Presented;
use crate::resource::is_same;
use crate::sealed::authorization_code::AuthorizationCode;
use crate::sealed::grant::GrantRecord;
use crate::sealed::refresh_token::RefreshToken;

/// The time after which a client is told to ask again.
const RETRY_AFTER_S: u32 = 30;

/// A request of `/token`, without its client.
#[derive(Clone, Debug)]
pub enum TokenRequest {
    /// For a code.
    Code {
        /// The code.
        code: Presented,
        /// The URI to which the code was sent.
        redirect_uri: Option<String>,
        /// The verifier.
        verifier: Presented,
        /// The endpoint, where it is named again.
        resource: Option<String>,
    },
    /// For a refresh token.
    Refresh {
        /// The token.
        token: Presented,
        /// The scopes, where fewer are asked for.
        scope: Option<String>,
        /// The endpoint, where it is named again.
        resource: Option<String>,
    },
}

/// The decision about a code or a refresh token whose owner is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// This record is written, if the one before it still stands there; then tokens of its generation are given.
    Next(GrantRecord),
    /// Tokens of the generation that stands there are given once more.
    Again,
    /// The grant ends: somebody else has its code or token, or the store was set back.
    End(OAuthError),
    /// Nothing ends.
    Refuse(OAuthError),
}

impl TokenRequest {
    /// Reads the parameters of a request.
    pub fn read(parameters: &Parameters) -> Result<Self, OAuthError> {
        let needed = |name: &'static str| {
            let missing = || OAuthError::new(ErrorCode::InvalidRequest, format!("{name} is missing"));
            parameters.get(name).map(Presented::new).ok_or_else(missing)
        };
        let resource = parameters.get("resource").map(str::to_owned);
        match parameters.get("grant_type") {
            Some("authorization_code") => {
                let verifier = needed("code_verifier")?;
                if !is_verifier(verifier.expose()) {
                    let why = "code_verifier has not 43 to 128 unreserved characters";
                    return Err(OAuthError::new(ErrorCode::InvalidRequest, why));
                }
                let redirect_uri = parameters.get("redirect_uri").map(str::to_owned);
                Ok(Self::Code { code: needed("code")?, redirect_uri, verifier, resource })
            }
            Some("refresh_token") => {
                let scope = parameters.get("scope").map(str::to_owned);
                Ok(Self::Refresh { token: needed("refresh_token")?, scope, resource })
            }
            Some(_) => {
                let why = "grant_type must be authorization_code or refresh_token";
                Err(OAuthError::new(ErrorCode::UnsupportedGrantType, why))
            }
            None => Err(OAuthError::new(ErrorCode::InvalidRequest, "grant_type is missing")),
        }
    }
}

/// A code that is shown by whom it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedCode<'c>(&'c AuthorizationCode);

/// Checks that a code is shown by whom it was made for. Nothing is used up by that.
pub fn check_code<'c>(
    code: &'c AuthorizationCode,
    client_id: &str,
    redirect_uri: Option<&str>,
    verifier: &Presented,
) -> Result<CheckedCode<'c>, OAuthError> {
    if !code.client.is_of(&[client_id]) {
        return Err(invalid_grant("the code is of another client"));
    }
    // OAuth 2.1 has left it out: the verifier proves more.
    if redirect_uri.is_some_and(|uri| !code.redirect_uri.is_of(&[uri])) {
        return Err(invalid_grant("redirect_uri is not the one that the code was sent to"));
    }
    if !code.challenge.is_of(verifier.expose()) {
        return Err(invalid_grant("code_verifier is not the one of the code"));
    }
    Ok(CheckedCode(code))
}

/// Decides about a code by the record of its grant.
pub fn use_code(
    CheckedCode(code): CheckedCode<'_>,
    record: Option<&GrantRecord>,
    resource: Option<&str>,
    now_s: u64,
) -> Use {
    let Some(record) = record.filter(|record| record.id == code.grant && !record.is_over(now_s)) else {
        return Use::Refuse(invalid_grant("the grant of the code has ended"));
    };
    if !code.client.is_of(&[&record.client_id]) || !code.endpoint.is_of(&[&record.endpoint]) {
        return Use::Refuse(invalid_grant("the code is of another grant"));
    }
    if let Err(error) = check_resource(resource, record) {
        return Use::Refuse(error);
    }
    if record.generation > 0 {
        return Use::End(invalid_grant("the code was used before, so its grant has ended"));
    }
    Use::Next(GrantRecord { generation: 1, rotated_s: now_s, used_s: now_s, ..record.clone() })
}

/// Decides about a refresh token, by the record of its grant. The generation before gets the same successor for `reuse_s`
/// seconds. The successor itself has none for so long: else who has the one before would be two generations behind, and end the
/// grant.
pub fn use_refresh_token(
    token: &RefreshToken,
    record: Option<&GrantRecord>,
    client_id: &str,
    resource: Option<&str>,
    now_s: u64,
    reuse_s: u64,
) -> Use {
    if !token.client.is_of(&[client_id]) {
        return Use::Refuse(invalid_grant("the refresh token is of another client"));
    }
    let Some(record) = record.filter(|record| record.id == token.grant && !record.is_over(now_s)) else {
        return Use::Refuse(invalid_grant("the sign-in has ended"));
    };
    if record.client_id != client_id {
        return Use::Refuse(invalid_grant("the refresh token is of another client"));
    }
    if let Err(error) = check_resource(resource, record) {
        return Use::Refuse(error);
    }
    if token.generation > record.generation {
        return Use::End(invalid_grant("the sign-in was set back, so it has ended"));
    }
    let is_current = token.generation == record.generation;
    let is_just_before = token.generation.saturating_add(1) == record.generation;
    let is_one_of_ours = token.generation > 0;
    if is_one_of_ours && (is_current || is_just_before) && now_s < record.rotated_s.saturating_add(reuse_s) {
        return Use::Again;
    }
    if is_one_of_ours && is_current {
        let generation = record.generation.saturating_add(1);
        return Use::Next(GrantRecord { generation, rotated_s: now_s, used_s: now_s, ..record.clone() });
    }
    Use::End(invalid_grant("the refresh token was used before, so its sign-in has ended"))
}

/// The error where the provider has to be asked about an account and has not answered. Other errors open browsers.
pub fn unanswered() -> OAuthError {
    let why = "the login provider does not answer: try again later, the sign-in goes on";
    OAuthError::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Provider).retry_after(RETRY_AFTER_S)
}

/// The answer with tokens. The scopes are always named, since some may have been dropped.
pub fn answer(access_token: &str, expires_in_s: u64, refresh_token: &str, scopes: &[String]) -> Answer {
    let mut body = json!({
        "access_token": access_token,
        "token_type": "Bearer",
        "expires_in": expires_in_s,
        "refresh_token": refresh_token,
        "scope": scopes.join(" "),
    });
    let answer = Answer::json(200, &body);
    for name in ["access_token", "refresh_token"] {
        if let Some(serde_json::Value::String(token)) = body.get_mut(name) {
            token.zeroize();
        }
    }
    answer
}

fn check_resource(resource: Option<&str>, record: &GrantRecord) -> Result<(), OAuthError> {
    if resource.is_some_and(|resource| !is_same(resource, &record.endpoint)) {
        return Err(OAuthError::new(
            ErrorCode::InvalidTarget,
            "resource is not the endpoint of this sign-in",
        ));
    }
    Ok(())
}

fn invalid_grant(why: &'static str) -> OAuthError {
    OAuthError::new(ErrorCode::InvalidGrant, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::to_form;
    use crate::pkce::CodeChallenge;
    use crate::sealed::fingerprint::{Fingerprint, GrantId};
    use proptest::prelude::*;

    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const ENDPOINT: &str = "https://mcp.example.com/mcp";
    const REDIRECT: &str = "http://localhost:3118/callback";
    const NOW_S: u64 = 1_000_000;
    const REUSE_S: u64 = 60;

    fn code() -> AuthorizationCode {
        AuthorizationCode {
            grant: GrantId([1; 16]),
            client: Fingerprint::of(&["c"]),
            redirect_uri: Fingerprint::of(&[REDIRECT]),
            endpoint: Fingerprint::of(&[ENDPOINT]),
            challenge: CodeChallenge::of(VERIFIER),
            expires_s: NOW_S + 60,
        }
    }

    fn record(generation: u64) -> GrantRecord {
        GrantRecord {
            id: GrantId([1; 16]),
            account: Fingerprint([2; 32]),
            principal: "p".into(),
            client_id: "c".into(),
            client_name: String::new(),
            endpoint: ENDPOINT.into(),
            scopes: Vec::new(),
            opened_s: NOW_S,
            used_s: NOW_S,
            ends_s: NOW_S + 1_000_000,
            idle_max_s: 1_000_000,
            generation,
            rotated_s: NOW_S,
        }
    }

    fn token(generation: u64) -> RefreshToken {
        let client = Fingerprint::of(&["c"]);
        RefreshToken { grant: GrantId([1; 16]), generation, client, expires_s: NOW_S + 1_000_000 }
    }

    fn refresh(of: u64, at: u64, now_s: u64) -> Use {
        use_refresh_token(&token(of), Some(&record(at)), "c", None, now_s, REUSE_S)
    }

    fn read(pairs: &[(&str, &str)]) -> Result<TokenRequest, ErrorCode> {
        let parameters = Parameters::of_query(&to_form(pairs.iter().copied())).expect("parameters");
        TokenRequest::read(&parameters).map_err(|error| error.code)
    }

    #[test]
    fn a_request_is_read() {
        let code = [("grant_type", "authorization_code"), ("code", "tlo_x"), ("code_verifier", VERIFIER)];
        assert!(matches!(read(&code), Ok(TokenRequest::Code { redirect_uri: None, .. })));
        assert!(matches!(
            read(&[("grant_type", "refresh_token"), ("refresh_token", "tlr_x")]),
            Ok(TokenRequest::Refresh { scope: None, .. })
        ));
        for (pairs, expected) in [
            (&[][..], ErrorCode::InvalidRequest),
            (&[("grant_type", "password")], ErrorCode::UnsupportedGrantType),
            (&[("grant_type", "client_credentials")], ErrorCode::UnsupportedGrantType),
            (&code[..2], ErrorCode::InvalidRequest),
            (&[code[0], code[2]], ErrorCode::InvalidRequest),
            (&[code[0], code[1], ("code_verifier", "short")], ErrorCode::InvalidRequest),
            (&[("grant_type", "refresh_token")], ErrorCode::InvalidRequest),
        ] {
            assert_eq!(read(pairs).err(), Some(expected), "{pairs:?}");
        }
    }

    #[test]
    fn who_has_only_the_code_ends_nothing() {
        let (right, wrong) = (Presented::new(VERIFIER), Presented::new(&VERIFIER.replace('X', "Y")));
        assert_eq!(check_code(&code(), "c", Some(REDIRECT), &right), Ok(CheckedCode(&code())));
        assert_eq!(check_code(&code(), "c", None, &right), Ok(CheckedCode(&code())));
        for (client, redirect, verifier) in [
            ("d", Some(REDIRECT), &right),
            ("c", Some("http://localhost:3119/callback"), &right),
            ("c", Some(REDIRECT), &wrong),
            ("c", None, &wrong),
        ] {
            let error = check_code(&code(), client, redirect, verifier).expect_err("refused");
            assert_eq!(error.code, ErrorCode::InvalidGrant);
        }
    }

    #[test]
    fn a_code_is_used_once_and_a_second_use_ends_its_grant() {
        let Use::Next(next) =
            use_code(CheckedCode(&code()), Some(&record(0)), Some("https://MCP.example.com/mcp/"), NOW_S + 1)
        else {
            panic!("no record")
        };
        assert_eq!((next.generation, next.used_s, next.rotated_s), (1, NOW_S + 1, NOW_S + 1));
        assert!(matches!(use_code(CheckedCode(&code()), Some(&next), None, NOW_S + 2), Use::End(_)));
        assert!(matches!(use_code(CheckedCode(&code()), Some(&record(9)), None, NOW_S), Use::End(_)));
    }

    #[test]
    fn a_code_of_another_place_ends_nothing() {
        let other = GrantRecord { id: GrantId([9; 16]), ..record(1) };
        let elsewhere = GrantRecord { endpoint: "https://mcp.example.com/other".into(), ..record(1) };
        let of_another = GrantRecord { client_id: "d".into(), ..record(1) };
        let over = GrantRecord { ends_s: NOW_S, ..record(1) };
        for record in [None, Some(&other), Some(&elsewhere), Some(&of_another), Some(&over)] {
            assert!(
                matches!(use_code(CheckedCode(&code()), record, None, NOW_S), Use::Refuse(_)),
                "{record:?}"
            );
        }
        let wrong =
            use_code(CheckedCode(&code()), Some(&record(0)), Some("https://mcp.example.com/other"), NOW_S);
        assert!(matches!(wrong, Use::Refuse(error) if error.code == ErrorCode::InvalidTarget));
    }

    #[test]
    fn a_refresh_token_has_one_successor() {
        let later_s = NOW_S + REUSE_S;
        let Use::Next(next) = refresh(3, 3, later_s) else { panic!("no record") };
        assert_eq!((next.generation, next.used_s, next.rotated_s), (4, later_s, later_s));
        assert_eq!(refresh(3, 3, later_s - 1), Use::Again);
        assert_eq!(refresh(2, 3, NOW_S + REUSE_S - 1), Use::Again);
        for (of, at, now_s) in
            [(2, 3, NOW_S + REUSE_S), (1, 3, NOW_S), (4, 3, NOW_S), (1, 0, NOW_S), (0, 1, NOW_S)]
        {
            let Use::End(error) = refresh(of, at, now_s) else { panic!("{of} at {at} goes on") };
            assert_eq!(error.code, ErrorCode::InvalidGrant);
        }
    }

    /// Several processes of one client have the same token; the first goes on twice before the last has asked.
    #[test]
    fn nobody_is_signed_out_within_the_time_in_which_a_token_may_be_used_again() {
        let Use::Next(first) = refresh(3, 3, NOW_S + REUSE_S) else { panic!("no record") };
        let mut stands = first;
        let soon_s = NOW_S + REUSE_S + 5;
        if let Use::Next(next) = use_refresh_token(&token(4), Some(&stands), "c", None, soon_s, REUSE_S) {
            stands = next;
        }
        let last = use_refresh_token(&token(3), Some(&stands), "c", None, soon_s + 1, REUSE_S);
        assert_eq!(last, Use::Again);
    }

    #[test]
    fn bad_input_a_token_of_no_generation_is_never_one_of_ours() {
        assert!(matches!(refresh(0, 0, NOW_S), Use::End(_)), "its code was not used yet");
    }

    #[test]
    fn a_refresh_token_of_another_place_ends_nothing() {
        let over = GrantRecord { used_s: 0, ..record(1) };
        for (record, client) in [(None, "c"), (Some(&over), "c"), (Some(&record(9)), "d")] {
            let found = use_refresh_token(&token(1), record, client, None, NOW_S, REUSE_S);
            assert!(matches!(found, Use::Refuse(_)), "{found:?}");
        }
        let found =
            use_refresh_token(&token(1), Some(&record(1)), "c", Some("https://x.example"), NOW_S, REUSE_S);
        assert!(matches!(found, Use::Refuse(error) if error.code == ErrorCode::InvalidTarget));
    }

    #[test]
    fn a_provider_that_does_not_answer_opens_no_browser() {
        let error = unanswered();
        let answer = error.answer(false);
        assert_eq!((error.code, answer.status), (ErrorCode::TemporarilyUnavailable, 503));
        assert_eq!(answer.header("retry-after"), Some("30"));
    }

    #[test]
    fn an_answer_with_tokens_is_kept_by_nobody_and_shown_nowhere() {
        let answer = answer("tla_x", 3540, "tlr_x", &["a".to_owned(), "b".to_owned()]);
        let body: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        let expected = json!({
            "access_token": "tla_x", "token_type": "Bearer", "expires_in": 3540, "refresh_token": "tlr_x", "scope": "a b"
        });
        assert_eq!(body, expected);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(!format!("{answer:?}").contains("tla_x"));
    }

    proptest! {
        /// Clients that refresh at once, late, twice and with old tokens: of each generation there is one successor, nothing ends
        /// by a token that had one for less than the time of reuse, and once an older was shown, nothing goes on.
        #[test]
        fn no_generation_has_two_successors(steps in proptest::collection::vec((0..6_u64, 0..90_u64), 1..60)) {
            let mut stands = Some(record(1));
            let (mut now_s, mut succeeded_s) = (NOW_S, vec![NOW_S; 2]);
            let index = |generation: u64| usize::try_from(generation).expect("an index");
            for (back, passed_s) in steps {
                now_s += passed_s;
                let Some(at) = stands.clone() else { break };
                let shown = token(at.generation.saturating_sub(back).max(1));
                match use_refresh_token(&shown, Some(&at), "c", None, now_s, REUSE_S) {
                    Use::Next(next) => {
                        prop_assert_eq!((shown.generation, next.generation), (at.generation, at.generation + 1));
                        stands = Some(next);
                        succeeded_s[index(at.generation)] = now_s;
                        succeeded_s.push(now_s);
                    }
                    Use::Again => {
                        prop_assert!(shown.generation + 1 >= at.generation);
                        prop_assert!(now_s < at.rotated_s + REUSE_S);
                    }
                    Use::End(_) => {
                        prop_assert!(shown.generation < at.generation);
                        prop_assert!(now_s >= succeeded_s[index(shown.generation)] + REUSE_S);
                        stands = None;
                    }
                    Use::Refuse(error) => prop_assert!(false, "{error}"),
                }
            }
        }
    }
}
