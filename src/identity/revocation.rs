//! Revocations (RFC 7009): whichever token of a grant is shown, its grant ends.

use crate::oauth_error::{Answer, ErrorCode, OAuthError};
use crate::parameters::Parameters;
use crate::presented::Presented;
use crate::sealed::Seals;
use crate::sealed::access_token::AccessToken;
use crate::sealed::fingerprint::{Fingerprint, GrantId};
use crate::sealed::refresh_token::RefreshToken;

/// The token that a request shows. Its hint is not needed: a token tells its kind.
pub fn read(parameters: &Parameters) -> Result<Presented, OAuthError> {
    let missing = OAuthError::new(ErrorCode::InvalidRequest, "token is missing");
    parameters.get("token").map(Presented::new).ok_or(missing)
}

/// The grant that ends. `None`: the token is nobody's, which is no error (RFC 7009 §2.2). A token whose time is over still
/// names its grant.
pub fn grant_of(
    token: &Presented,
    client_id: &str,
    seals: &Seals,
    issuer: &str,
) -> Result<Option<GrantId>, OAuthError> {
    let Some((grant, client)) = opened(token.expose(), seals, issuer) else { return Ok(None) };
    if client.is_of(&[client_id]) {
        return Ok(Some(grant));
    }
    Err(OAuthError::new(ErrorCode::InvalidGrant, "the token is of another client"))
}

/// The answer, whether something ended or there was nothing to end.
pub fn answer() -> Answer {
    let headers = [("cache-control", "no-store"), ("content-length", "0")];
    Answer {
        status: 200,
        headers: headers.map(|(name, value)| (name, value.to_owned())).to_vec(),
        body: String::new(),
    }
}

fn opened(token: &str, seals: &Seals, issuer: &str) -> Option<(GrantId, Fingerprint)> {
    let long_ago_s = 0;
    if let Ok(token) = seals.open::<AccessToken>(token, issuer, long_ago_s) {
        return Some((token.grant, token.client));
    }
    let token: RefreshToken = seals.open(token, issuer, long_ago_s).ok()?;
    Some((token.grant, token.client))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::pkce::CodeChallenge;
    use crate::sealed::authorization_code::AuthorizationCode;
    use proptest::prelude::*;

    const ISSUER: &str = "https://mcp.example.com";

    fn seals() -> &'static Seals {
        static SEALS: LazyLock<Seals> = LazyLock::new(|| Seals::ephemeral(&[7; 32]).expect("keys"));
        &SEALS
    }

    fn tokens() -> [String; 2] {
        let (grant, client) = (GrantId([1; 16]), Fingerprint::of(&["c"]));
        let endpoint = Fingerprint::of(&["e"]);
        let principal = "p".to_owned();
        let access =
            AccessToken { grant, endpoint, client, principal, issued_s: 1, expires_s: 2, known: None };
        let refresh = RefreshToken { grant, generation: 7, client, expires_s: 2 };
        let sealed = [seals().seal([1; 12], ISSUER, &access), seals().seal([1; 12], ISSUER, &refresh)];
        sealed.map(|token| token.expect("sealed"))
    }

    fn grant(token: &str, client_id: &str) -> Result<Option<GrantId>, ErrorCode> {
        grant_of(&Presented::new(token), client_id, seals(), ISSUER).map_err(|error| error.code)
    }

    #[test]
    fn either_token_names_its_grant_even_after_its_time() {
        for token in tokens() {
            assert_eq!(grant(&token, "c"), Ok(Some(GrantId([1; 16]))));
            assert_eq!(grant(&token, "d"), Err(ErrorCode::InvalidGrant), "another client's");
            assert_eq!(grant_of(&Presented::new(&token), "c", seals(), "https://other").ok(), Some(None));
        }
    }

    #[test]
    fn what_is_no_token_ends_nothing_and_is_no_error() {
        let code = AuthorizationCode {
            grant: GrantId([1; 16]),
            client: Fingerprint::of(&["c"]),
            redirect_uri: Fingerprint::of(&["r"]),
            endpoint: Fingerprint::of(&["e"]),
            challenge: CodeChallenge([1; 32]),
            expires_s: 2,
        };
        let code = seals().seal([1; 12], ISSUER, &code).expect("sealed");
        for token in [&*code, "x", "tla_", "tlr_x", "tla_!", &format!("tla_{}", "A".repeat(2000))] {
            assert_eq!(grant(token, "c"), Ok(None), "{token}");
        }
        let missing = read(&Parameters::default()).map(|_| ()).map_err(|error| error.code);
        assert_eq!(missing, Err(ErrorCode::InvalidRequest));
        assert_eq!((answer().status, answer().header("cache-control")), (200, Some("no-store")));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>()) {
            prop_assert_eq!(grant(&text, "c"), Ok(None));
        }
    }
}
