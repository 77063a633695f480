//! The query of the callback, which a browser brings back from the provider. Anybody may have written it.
//!
//! Not here: the cookie that `state` names, without which nothing goes on.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::metadata::ProviderMetadata;
use crate::parameters::{ParameterFault, Parameters};
use crate::presented::Presented;

/// Bytes of an error's code and description that are kept.
const SAID_BYTES_MAX: usize = 200;

/// A visit that came back.
#[derive(Clone, Debug)]
pub struct Callback {
    /// Names the cookie of the sign-in.
    pub state: [u8; 16],
    /// The name of the provider that says so (RFC 9207).
    issuer: Option<String>,
    /// The answer.
    pub outcome: CallbackOutcome,
}

/// The provider's answer.
#[derive(Clone, Debug)]
pub enum CallbackOutcome {
    /// A code.
    Code(Presented),
    /// An error, as the provider calls it, for a page.
    Error {
        /// Its code.
        code: String,
        /// Its description; may be empty.
        description: String,
    },
}

/// The cause for which a callback is refused. Nothing ends by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackFault {
    /// Its parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterFault),
    /// No state of ours.
    #[error("state is missing, or not one of ours")]
    State,
    /// An answer of another provider.
    #[error("iss is missing, or is not the provider's")]
    Issuer,
    /// Neither a code nor an error, or both.
    #[error("there is neither a code nor an error, or both")]
    Outcome,
}

/// The text of a state or nonce.
pub fn random_text(random: &[u8; 16]) -> String {
    URL_SAFE_NO_PAD.encode(random)
}

impl Callback {
    /// Reads the query of a callback.
    pub fn read(query: &str) -> Result<Self, CallbackFault> {
        let parameters = Parameters::of_query(query)?;
        let state = parameters.get("state").and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let state = state.and_then(|state| state.try_into().ok()).ok_or(CallbackFault::State)?;
        let issuer = parameters.get("iss").map(str::to_owned);
        let outcome = match (parameters.get("code"), parameters.get("error")) {
            (Some(code), None) => CallbackOutcome::Code(Presented::new(code)),
            (None, Some(code)) => {
                let description = parameters.get("error_description").unwrap_or_default();
                CallbackOutcome::Error { code: said(code), description: said(description) }
            }
            _ => return Err(CallbackFault::Outcome),
        };
        Ok(Self { state, issuer, outcome })
    }

    /// Refuses the answer of another provider than this.
    pub fn check_issuer(&self, provider: &ProviderMetadata) -> Result<(), CallbackFault> {
        match &self.issuer {
            Some(issuer) if *issuer != provider.issuer => Err(CallbackFault::Issuer),
            None if provider.has_iss => Err(CallbackFault::Issuer),
            _ => Ok(()),
        }
    }
}

/// A text of the provider, in one short line.
pub(super) fn said(text: &str) -> String {
    let text = text.get(..text.floor_char_boundary(SAID_BYTES_MAX)).unwrap_or_default();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn provider(has_iss: bool) -> ProviderMetadata {
        ProviderMetadata {
            issuer: "https://login.example.com".into(),
            authorization_endpoint: "https://login.example.com/auth".into(),
            token_endpoint: "https://login.example.com/token".into(),
            jwks_uri: "https://login.example.com/keys".into(),
            userinfo_endpoint: None,
            revocation_endpoint: None,
            has_offline_access: false,
            has_iss,
            auth_methods: Vec::new(),
        }
    }

    fn read(query: &str, has_iss: bool) -> Result<Callback, CallbackFault> {
        let callback = Callback::read(query)?;
        callback.check_issuer(&provider(has_iss))?;
        Ok(callback)
    }

    #[test]
    fn a_code_or_an_error_comes_back() {
        let state = random_text(&[7; 16]);
        let found = read(&format!("code=c&state={state}"), false).expect("a callback");
        assert_eq!(found.state, [7; 16]);
        assert!(matches!(&found.outcome, CallbackOutcome::Code(code) if code.is("c")));
        let query = format!(
            "error=access_denied&error_description=a%0Ab&state={state}&iss=https%3A%2F%2Flogin.example.com"
        );
        let found = read(&query, true).expect("a callback");
        let CallbackOutcome::Error { code, description } = found.outcome else { panic!("no error") };
        assert_eq!((&*code, &*description), ("access_denied", "a b"));
    }

    #[test]
    fn bad_input_mixed_up_and_doubled_answers_are_refused() {
        let state = random_text(&[7; 16]);
        for (query, has_iss, expected) in [
            (format!("code=c&state={state}&iss=https%3A%2F%2Fevil.example"), false, CallbackFault::Issuer),
            (
                format!("code=c&state={state}&iss=https%3A%2F%2Flogin.example.com%2F"),
                true,
                CallbackFault::Issuer,
            ),
            (format!("code=c&state={state}"), true, CallbackFault::Issuer),
            (format!("code=c&error=e&state={state}"), false, CallbackFault::Outcome),
            (format!("state={state}"), false, CallbackFault::Outcome),
            ("code=c".to_owned(), false, CallbackFault::State),
            ("code=c&state=".to_owned(), false, CallbackFault::State),
            (format!("code=c&state={state}A"), false, CallbackFault::State),
            (
                format!("code=c&code=d&state={state}"),
                false,
                CallbackFault::Parameters(ParameterFault::Twice("code".into())),
            ),
        ] {
            assert_eq!(read(&query, has_iss).err(), Some(expected), "{query}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>()) {
            let _ = read(&text, true);
            let _ = said(&text);
        }
    }
}
