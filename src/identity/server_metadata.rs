//! The metadata of this authorization server (RFC 8414), which any client reads first.
//!
//! It has no `scopes_supported`, since clients would ask for all of them.

use serde_json::{Map, Value, json};

use crate::sealed::client_id::AuthMethod;

/// The only path of the document: nothing is at `openid-configuration` or after a suffix.
pub const PATH: &str = "/.well-known/oauth-authorization-server";
/// The path of requests for a code.
pub const AUTHORIZE_PATH: &str = "/authorize";
/// The path of requests for tokens.
pub const TOKEN_PATH: &str = "/token";
/// The path of registrations.
pub const REGISTER_PATH: &str = "/register";
/// The path of revocations.
pub const REVOKE_PATH: &str = "/revoke";
/// Algorithms of assertions.
pub const ASSERTION_ALGORITHMS: [&str; 4] = ["ES256", "RS256", "PS256", "EdDSA"];

/// The offers of this server.
#[derive(Clone, Copy, Debug)]
pub struct ServerMetadata<'a> {
    /// The `url` of the configuration: an origin without a final slash.
    pub issuer: &'a str,
    /// False where no client may register itself.
    pub has_registration: bool,
    /// False where documents of clients cannot be fetched.
    pub has_client_documents: bool,
    /// A page for people who write clients.
    pub documentation: Option<&'a str>,
}

impl ServerMetadata<'_> {
    /// The document.
    pub fn document(&self) -> Value {
        let at = |path: &str| json!(format!("{}{path}", self.issuer));
        let methods: Vec<&str> = AuthMethod::ALL.iter().map(|method| method.word()).collect();
        let mut document = Map::new();
        let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
        put("issuer", json!(self.issuer));
        put("authorization_endpoint", at(AUTHORIZE_PATH));
        put("token_endpoint", at(TOKEN_PATH));
        put("revocation_endpoint", at(REVOKE_PATH));
        if self.has_registration {
            put("registration_endpoint", at(REGISTER_PATH));
        }
        put("response_types_supported", json!(["code"]));
        put("response_modes_supported", json!(["query"]));
        put("grant_types_supported", json!(["authorization_code", "refresh_token"]));
        put("code_challenge_methods_supported", json!(["S256"]));
        for endpoint in ["token", "revocation"] {
            put(&format!("{endpoint}_endpoint_auth_methods_supported"), json!(methods));
            let algorithms = format!("{endpoint}_endpoint_auth_signing_alg_values_supported");
            put(&algorithms, json!(ASSERTION_ALGORITHMS));
        }
        put("authorization_response_iss_parameter_supported", json!(true));
        put("client_id_metadata_document_supported", json!(self.has_client_documents));
        put("request_parameter_supported", json!(false));
        put("request_uri_parameter_supported", json!(false));
        if let Some(documentation) = self.documentation {
            put("service_documentation", json!(documentation));
        }
        Value::Object(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: ServerMetadata<'_> = ServerMetadata {
        issuer: "https://mcp.example.com",
        has_registration: true,
        has_client_documents: true,
        documentation: Some("https://docs.example.com"),
    };

    #[test]
    fn the_document_says_what_the_server_does() {
        let document = FULL.document();
        for (name, expected) in [
            ("issuer", json!("https://mcp.example.com")),
            ("authorization_endpoint", json!("https://mcp.example.com/authorize")),
            ("token_endpoint", json!("https://mcp.example.com/token")),
            ("registration_endpoint", json!("https://mcp.example.com/register")),
            ("revocation_endpoint", json!("https://mcp.example.com/revoke")),
            ("response_types_supported", json!(["code"])),
            ("code_challenge_methods_supported", json!(["S256"])),
            ("authorization_response_iss_parameter_supported", json!(true)),
            ("client_id_metadata_document_supported", json!(true)),
            (
                "token_endpoint_auth_methods_supported",
                json!(["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]),
            ),
        ] {
            assert_eq!(document[name], expected, "{name}");
        }
        assert!(document.get("scopes_supported").is_none(), "clients would ask for all");
        assert!(document.get("jwks_uri").is_none(), "nothing that is issued can be read by others");
    }

    #[test]
    fn nothing_is_announced_that_is_not_there() {
        let less = ServerMetadata {
            has_registration: false,
            has_client_documents: false,
            documentation: None,
            ..FULL
        };
        let document = less.document();
        assert!(document.get("registration_endpoint").is_none());
        assert!(document.get("service_documentation").is_none());
        assert_eq!(document["client_id_metadata_document_supported"], json!(false));
    }
}
