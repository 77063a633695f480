//! The documents that clients find everything by: metadata (`OpenID` Connect Discovery §3) and keys.

use serde_json::json;

use super::answer::Answer;
use super::signing::SigningKey;
use super::{AUTHORIZE, JWKS, REVOKE, TOKEN, USERINFO};

/// Scopes that are understood; others are left out of what is granted.
pub(super) const SCOPES: [&str; 5] = ["openid", "profile", "email", "groups", "offline_access"];

/// The metadata of this issuer.
pub(super) fn metadata(issuer: &str) -> Answer {
    let at = |path: &str| format!("{issuer}{path}");
    Answer::json(json!({
        "issuer": issuer,
        "authorization_endpoint": at(AUTHORIZE),
        "token_endpoint": at(TOKEN),
        "userinfo_endpoint": at(USERINFO),
        "revocation_endpoint": at(REVOKE),
        "jwks_uri": at(JWKS),
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "code_challenge_methods_supported": ["S256"],
        "claims_supported": [
            "iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "name", "preferred_username", "email", "groups",
        ],
        "authorization_response_iss_parameter_supported": true,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false,
    }))
}

/// The key that tokens are signed with.
pub(super) fn keys(key: &SigningKey) -> Answer {
    Answer::json(json!({ "keys": [key.jwk()] }))
}
