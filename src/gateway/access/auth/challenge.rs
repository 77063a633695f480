//! What a client without valid credentials is told of how to get them (RFC 6750 §3, RFC 9728 §5.1).
//!
//! It names the endpoint's metadata where tokens are taken, and never says what was wrong with a credential.

use http::HeaderValue;

use config::{self, AuthMethod};
use protocol::error::PolicyError;

/// Where metadata of protected resources are (RFC 9728 §3).
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

#[derive(Clone, Debug)]
pub(crate) struct Challenge {
    missing: HeaderValue,
    wrong: HeaderValue,
    /// For a key of the gateway: clients are led to no browser.
    wrong_key: HeaderValue,
    metadata: String,
    /// Those of the endpoint, which every call needs.
    scopes: Vec<String>,
}

impl Challenge {
    pub(crate) fn new(endpoint: &config::EndpointConfig) -> Self {
        let url = endpoint.public_url.as_deref().filter(|_| takes_tokens(endpoint));
        let metadata = url.and_then(metadata_url).map(|url| format!("resource_metadata=\"{url}\""));
        let metadata = metadata.unwrap_or_default();
        let scope = match endpoint.scopes.as_slice() {
            [] => String::new(),
            scopes => format!("scope=\"{}\"", scopes.join(" ")),
        };
        let wrong = "error=\"invalid_token\", error_description=\"the credentials are not valid\"";
        Self {
            missing: bearer(&[&metadata, &scope]),
            wrong: bearer(&[wrong, &metadata, &scope]),
            wrong_key: bearer(&[wrong]),
            metadata,
            scopes: endpoint.scopes.clone(),
        }
    }

    /// The challenge that goes with an error, if one does.
    pub(crate) fn of(&self, error: &PolicyError) -> Option<HeaderValue> {
        match error {
            PolicyError::NoCredentials => Some(self.missing.clone()),
            PolicyError::BadCredentials => Some(self.wrong.clone()),
            PolicyError::BadKey => Some(self.wrong_key.clone()),
            PolicyError::Scope { required } => {
                let scope = format!("scope=\"{}\"", self.all_needed(required));
                let why = "error_description=\"this call needs more scopes\"";
                Some(bearer(&["error=\"insufficient_scope\"", &scope, &self.metadata, why]))
            }
            _ => None,
        }
    }

    /// All scopes that a token needs for a call: clients take them for all, and ask for no others (2025-11-25, authorization,
    /// "Protected Resource Metadata Discovery Requirements").
    fn all_needed(&self, required: &str) -> String {
        let own = self.scopes.iter().map(String::as_str);
        let further = required.split(' ').filter(|scope| !self.scopes.iter().any(|own| own == scope));
        own.chain(further).collect::<Vec<_>>().join(" ")
    }
}

/// True where tokens of an authorization server are taken.
pub(crate) fn takes_tokens(endpoint: &config::EndpointConfig) -> bool {
    endpoint.auth.iter().any(|method| matches!(method, AuthMethod::Jwt | AuthMethod::SignIn))
}

fn bearer(parameters: &[&str]) -> HeaderValue {
    let parameters: Vec<&str> = parameters.iter().copied().filter(|part| !part.is_empty()).collect();
    let text = format!("Bearer {}", parameters.join(", "));
    // What the configuration lets in fits a header.
    HeaderValue::from_str(text.trim_end()).unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
}

/// The URL of the metadata of the resource at `url`: its path comes after the well-known one.
fn metadata_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Some(format!("{scheme}://{authority}{WELL_KNOWN}{}", path.trim_end_matches('/')))
}

/// The path of the metadata of a resource at `path`.
pub(crate) fn metadata_path(path: &str) -> String {
    format!("{WELL_KNOWN}{}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_resource_comes_last() {
        for (url, expected) in [
            ("https://a", "https://a/.well-known/oauth-protected-resource"),
            ("https://a/", "https://a/.well-known/oauth-protected-resource"),
            ("https://a:8/mcp", "https://a:8/.well-known/oauth-protected-resource/mcp"),
            ("https://a/x/y/", "https://a/.well-known/oauth-protected-resource/x/y"),
        ] {
            assert_eq!(metadata_url(url).as_deref(), Some(expected));
        }
    }
}
