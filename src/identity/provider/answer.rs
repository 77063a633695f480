//! Answers of the provider's token endpoint: JSON, or in the encoding of forms; errors also within 200.

use serde_json::Value;
use tokens::jwt::TokenMembers;

use super::callback::said;
use crate::parameters::{OF_ANSWERS, Parameters};
use crate::presented::Presented;

/// Errors that end something; all others are a fault of the provider or of ours.
const ENDING: [&str; 3] = ["invalid_grant", "interaction_required", "login_required"];

/// Tokens of the provider.
#[derive(Clone, Debug)]
pub struct ProviderTokens {
    /// For its own APIs.
    pub access_token: Presented,
    /// Says who signed in; at a refresh it may be missing.
    pub id_token: Option<Presented>,
    /// The next refresh token; missing: the one before stays.
    pub refresh_token: Option<Presented>,
    /// The life of the access token, where it is named.
    pub expires_in_s: Option<u64>,
}

/// The cause for which there are no tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// The code or refresh token is over: what depends on it ends.
    #[error("the provider says {0}")]
    Ended(String),
    /// The provider refused for another cause, such as a wrong secret of ours. Nothing ends.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// It did not answer as it should. Nothing ends.
    #[error("the provider's answer cannot be used: status {0}")]
    Unusable(u16),
}

/// The members of an answer, however they came.
enum Members {
    Json(TokenMembers),
    Form(Parameters),
}

impl Drop for Members {
    fn drop(&mut self) {
        if let Self::Json(members) = self {
            members.wipe();
        }
    }
}

impl Members {
    fn text(&self, name: &str) -> Option<&str> {
        match self {
            Self::Json(members) => members.get(name)?.as_str().filter(|text| !text.is_empty()),
            Self::Form(parameters) => parameters.get(name),
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self {
            // Some providers write it as text.
            Self::Json(members) => match members.get(name)? {
                Value::String(text) => text.parse().ok(),
                number => tokens::jwt::seconds(number),
            },
            Self::Form(parameters) => parameters.get(name)?.parse().ok(),
        }
    }
}

/// Judges an answer of the token endpoint.
pub fn read(status: u16, body: &[u8]) -> Result<ProviderTokens, AnswerFault> {
    // A status of its own trouble says more than any body: nothing ends by it.
    if status >= 500 || status == 429 || status == 408 || (300..400).contains(&status) {
        return Err(AnswerFault::Unusable(status));
    }
    let members = members(body).ok_or(AnswerFault::Unusable(status))?;
    if let Some(error) = members.text("error") {
        let is_ending = ENDING.contains(&error);
        return Err(if is_ending {
            AnswerFault::Ended(said(error))
        } else {
            AnswerFault::Refused(said(error))
        });
    }
    let token = |name: &str| members.text(name).map(Presented::new);
    let access_token =
        token("access_token").filter(|_| status == 200).ok_or(AnswerFault::Unusable(status))?;
    if members.text("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(AnswerFault::Unusable(status));
    }
    Ok(ProviderTokens {
        access_token,
        id_token: token("id_token"),
        refresh_token: token("refresh_token"),
        expires_in_s: members.number("expires_in"),
    })
}

/// By the body itself, since providers name content types as they like.
fn members(body: &[u8]) -> Option<Members> {
    if body.len() > OF_ANSWERS.bytes_max {
        return None;
    }
    match body.trim_ascii_start().first()? {
        b'{' => serde_json::from_slice(body).ok().map(Members::Json),
        first if first.is_ascii_alphanumeric() => Parameters::of_answer(body).ok().map(Members::Form),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_come_as_json_or_as_a_form() {
        let json = br#" {"access_token":"a","token_type":"Bearer","expires_in":"3600","id_token":"i","refresh_token":""}"#;
        let tokens = read(200, json).expect("tokens");
        assert!(tokens.access_token.is("a") && tokens.id_token.is_some_and(|token| token.is("i")));
        assert_eq!((tokens.refresh_token.is_none(), tokens.expires_in_s), (true, Some(3600)));
        let tokens = read(200, b"access_token=a&refresh_token=r&token_type=bearer").expect("tokens");
        assert!(tokens.refresh_token.is_some_and(|token| token.is("r")) && tokens.expires_in_s.is_none());
    }

    #[test]
    fn only_what_ends_ends() {
        for (status, body) in [
            (400, r#"{"error":"invalid_grant","error_description":"over"}"#),
            (401, r#"{"error":"login_required"}"#),
            (200, r#"{"error":"interaction_required"}"#),
            (200, "error=invalid_grant&error_description=x"),
        ] {
            assert!(matches!(read(status, body.as_bytes()), Err(AnswerFault::Ended(_))), "{status} {body}");
        }
        for (status, body) in [
            (401, r#"{"error":"invalid_client"}"#),
            (400, r#"{"error":"unauthorized_client"}"#),
            (400, r#"{"error":"temporarily_unavailable"}"#),
            (200, "error=bad_verification_code"),
        ] {
            assert!(matches!(read(status, body.as_bytes()), Err(AnswerFault::Refused(_))), "{status} {body}");
        }
        for (status, body) in [
            (500, r#"{"error":"invalid_grant"}"#),
            (503, ""),
            (429, r#"{"error":"invalid_grant"}"#),
            (302, r#"{"access_token":"a"}"#),
            (400, r#"{"access_token":"a"}"#),
            (200, "<html>error=invalid_grant</html>"),
            (200, "{}"),
            (200, "[]"),
            (200, r#"{"access_token":7}"#),
            (200, r#"{"access_token":"a","access_token":"b"}"#),
            (200, r#"{"access_token":"a","token_type":"DPoP"}"#),
            (200, &"a".repeat(OF_ANSWERS.bytes_max + 1)),
        ] {
            assert_eq!(
                read(status, body.as_bytes()).err(),
                Some(AnswerFault::Unusable(status)),
                "{status} {body:.60}"
            );
        }
    }

    #[test]
    fn no_token_is_shown() {
        let tokens = read(200, br#"{"access_token":"swordfish"}"#).expect("tokens");
        assert!(!format!("{tokens:?}").contains("swordfish"));
    }

    proptest! {
        #[test]
        fn nothing_panics(status: u16, body: Vec<u8>, text in any::<String>()) {
            let _ = read(status, &body);
            let _ = read(200, text.as_bytes());
        }
    }
}
