//! The metadata of a provider (`OpenID` Connect Discovery), and the URL that a browser is sent to.

use serde_json::Value;
use tokens::jwt::TokenMembers;

use crate::parameters::to_form;
use crate::pkce::CodeChallenge;
use crate::uri::Uri;

/// Bytes of the document; large providers' have about 10 KiB.
pub const METADATA_BYTES_MAX: usize = 64 << 10;
/// Parameters that the gateway itself sets: the configuration adds others only.
const OWN_PARAMETERS: [&str; 11] = [
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "redirect_uri",
    "request",
    "request_uri",
    "response_mode",
    "response_type",
    "scope",
    "state",
];

/// The part of a provider's metadata that sign-in needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderMetadata {
    /// The issuer, as it is configured.
    pub issuer: String,
    /// The endpoint for browsers.
    pub authorization_endpoint: String,
    /// The endpoint for codes and refresh tokens.
    pub token_endpoint: String,
    /// Its keys.
    pub jwks_uri: String,
    /// More about a person.
    pub userinfo_endpoint: Option<String>,
    /// The endpoint at which tokens are given back.
    pub revocation_endpoint: Option<String>,
    /// It has the scope `offline_access`.
    pub has_offline_access: bool,
    /// Its answers have `iss`.
    pub has_iss: bool,
    /// The methods by which we may prove that we are ourselves; none named: by a header alone.
    pub auth_methods: Vec<String>,
}

/// The cause for which metadata are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFault {
    /// Too many bytes.
    #[error("they are longer than {METADATA_BYTES_MAX} bytes")]
    TooLong,
    /// No JSON object whose members stand once.
    #[error("they are not a JSON object whose members stand once")]
    Json,
    /// Another issuer.
    #[error("their issuer is not the configured one, to the letter")]
    Issuer,
    /// One issuer for many tenants.
    #[error("their issuer is a template for many tenants: configure the tenant's own")]
    Templated,
    /// An endpoint that is missing, or not https.
    #[error("{0} is missing, or is no https URL")]
    Endpoint(&'static str),
    /// It lacks something that sign-in needs.
    #[error("the provider does not support {0}")]
    Unsupported(&'static str),
}

/// A visit of a browser to the provider.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// Our client id there.
    pub client_id: &'a str,
    /// Our callback.
    pub redirect_uri: &'a str,
    /// Names the cookie.
    pub state: &'a str,
    /// Ties the ID token to this visit.
    pub nonce: &'a str,
    /// Of our verifier.
    pub challenge: CodeChallenge,
    /// `provider_scopes`.
    pub scopes: &'a [String],
    /// `parameters`.
    pub parameters: &'a [(String, String)],
}

impl ProviderMetadata {
    /// Reads the document that the configured issuer has.
    pub fn read(issuer: &str, body: &[u8]) -> Result<Self, MetadataFault> {
        let members = members_of(issuer, body)?;
        let url = |name: &'static str| endpoint(&members, name, issuer);
        let needed = |name: &'static str| url(name)?.ok_or(MetadataFault::Endpoint(name));
        let list = |name: &str| list(&members, name);
        let lacks = |name: &str, value: &str| {
            let named = list(name);
            !named.is_empty() && !named.contains(&value)
        };
        if lacks("response_types_supported", "code") {
            return Err(MetadataFault::Unsupported("the response type code"));
        }
        if lacks("code_challenge_methods_supported", "S256") {
            return Err(MetadataFault::Unsupported("PKCE by S256"));
        }
        if lacks("response_modes_supported", "query") {
            return Err(MetadataFault::Unsupported("the response mode query"));
        }
        let iss = members.get("authorization_response_iss_parameter_supported");
        Ok(Self {
            issuer: issuer.to_owned(),
            authorization_endpoint: needed("authorization_endpoint")?,
            token_endpoint: needed("token_endpoint")?,
            jwks_uri: needed("jwks_uri")?,
            userinfo_endpoint: url("userinfo_endpoint")?,
            revocation_endpoint: url("revocation_endpoint")?,
            has_offline_access: list("scopes_supported").contains(&"offline_access"),
            has_iss: iss == Some(&Value::Bool(true)),
            auth_methods: list("token_endpoint_auth_methods_supported")
                .into_iter()
                .map(str::to_owned)
                .collect(),
        })
    }

    /// The URL that a browser is sent to.
    pub fn visit(&self, visit: &Visit<'_>) -> String {
        let mut scopes = vec!["openid", "profile"];
        if self.has_offline_access {
            scopes.push("offline_access");
        }
        for scope in visit.scopes {
            if !scopes.contains(&&**scope) {
                scopes.push(scope);
            }
        }
        let (scopes, challenge) = (scopes.join(" "), visit.challenge.text());
        let own = [
            ("response_type", "code"),
            ("response_mode", "query"),
            ("client_id", visit.client_id),
            ("redirect_uri", visit.redirect_uri),
            ("scope", &scopes),
            ("state", visit.state),
            ("nonce", visit.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let added = visit.parameters.iter().map(|(name, value)| (&**name, &**value));
        let added = added.filter(|(name, _)| !is_own_parameter(name));
        let mark = if self.authorization_endpoint.contains('?') { '&' } else { '?' };
        format!("{}{mark}{}", self.authorization_endpoint, to_form(own.into_iter().chain(added)))
    }
}

/// True for a parameter of a visit that the gateway itself sets: the configuration adds others only.
pub fn is_own_parameter(name: &str) -> bool {
    OWN_PARAMETERS.contains(&name)
}

/// The URL of the keys of an issuer whose metadata are `body`. Nothing else of them counts: an issuer of tokens need not let
/// anybody sign in.
pub fn jwks_uri(issuer: &str, body: &[u8]) -> Result<String, MetadataFault> {
    let members = members_of(issuer, body)?;
    endpoint(&members, "jwks_uri", issuer)?.ok_or(MetadataFault::Endpoint("jwks_uri"))
}

/// The members of the document that the configured issuer has.
fn members_of(issuer: &str, body: &[u8]) -> Result<TokenMembers, MetadataFault> {
    if body.len() > METADATA_BYTES_MAX {
        return Err(MetadataFault::TooLong);
    }
    let members: TokenMembers = serde_json::from_slice(body).map_err(|_| MetadataFault::Json)?;
    let named = members.get("issuer").and_then(Value::as_str).unwrap_or_default();
    if named.contains(['{', '}']) {
        return Err(MetadataFault::Templated);
    }
    if named == issuer { Ok(members) } else { Err(MetadataFault::Issuer) }
}

/// The texts of a list, of which some providers have hundreds; none where it is missing.
fn list<'m>(members: &'m TokenMembers, name: &str) -> Vec<&'m str> {
    let values = members.get(name).and_then(Value::as_array);
    values.map_or_else(Vec::new, |values| values.iter().filter_map(Value::as_str).collect())
}

/// An https URL; http where the issuer itself is at this very computer, as in a demo.
fn endpoint(
    members: &TokenMembers,
    name: &'static str,
    issuer: &str,
) -> Result<Option<String>, MetadataFault> {
    let fault = MetadataFault::Endpoint(name);
    let text = match members.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_str().ok_or(fault.clone())?,
    };
    let is_local = |uri: &Uri<'_>| uri.has_scheme("http") && uri.is_loopback();
    let uri = Uri::read(text).map_err(|_| fault.clone())?;
    let may_be_local = Uri::read(issuer).is_ok_and(|issuer| is_local(&issuer));
    if uri.has_scheme("https") || (may_be_local && is_local(&uri)) {
        Ok(Some(text.to_owned()))
    } else {
        Err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const ISSUER: &str = "https://login.example.com";

    fn document() -> Value {
        json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://login.example.com/auth",
            "token_endpoint": "https://login.example.com/token",
            "jwks_uri": "https://keys.example.com/jwks",
            "userinfo_endpoint": "https://login.example.com/me",
            "scopes_supported": ["openid", "offline_access"],
            "response_types_supported": ["code", "id_token"],
            "authorization_response_iss_parameter_supported": true,
            "mtls_endpoint_aliases": {},
        })
    }

    fn with(name: &str, value: Value) -> Result<ProviderMetadata, MetadataFault> {
        let mut document = document();
        document[name] = value;
        ProviderMetadata::read(ISSUER, document.to_string().as_bytes())
    }

    #[test]
    fn metadata_are_read() {
        let metadata = with("x", json!(1)).expect("metadata");
        assert_eq!(metadata.token_endpoint, "https://login.example.com/token");
        assert!(metadata.has_offline_access && metadata.has_iss && metadata.revocation_endpoint.is_none());
    }

    #[test]
    fn a_provider_may_have_many_scopes() {
        let many: Vec<String> = (0..200).map(|n| format!("scope-{n}")).collect();
        let scopes = [&many[..], &["offline_access".to_owned()]].concat();
        assert!(with("scopes_supported", json!(scopes)).expect("metadata").has_offline_access);
        let fault = with("code_challenge_methods_supported", json!(many)).err();
        assert_eq!(fault, Some(MetadataFault::Unsupported("PKCE by S256")));
    }

    #[test]
    fn bad_input_metadata_that_lie_are_refused() {
        for (name, value, expected) in [
            ("issuer", json!("https://login.example.com/"), MetadataFault::Issuer),
            ("issuer", json!("https://evil.example"), MetadataFault::Issuer),
            ("issuer", json!(7), MetadataFault::Issuer),
            ("issuer", json!("https://login.example.com/{tenantid}/v2.0"), MetadataFault::Templated),
            ("token_endpoint", Value::Null, MetadataFault::Endpoint("token_endpoint")),
            (
                "token_endpoint",
                json!("http://login.example.com/token"),
                MetadataFault::Endpoint("token_endpoint"),
            ),
            ("token_endpoint", json!("http://localhost/token"), MetadataFault::Endpoint("token_endpoint")),
            (
                "token_endpoint",
                json!("https://a@login.example.com/"),
                MetadataFault::Endpoint("token_endpoint"),
            ),
            ("jwks_uri", json!("file:///etc/passwd"), MetadataFault::Endpoint("jwks_uri")),
            (
                "authorization_endpoint",
                json!("javascript:alert(1)"),
                MetadataFault::Endpoint("authorization_endpoint"),
            ),
            ("userinfo_endpoint", json!("https://a/#b"), MetadataFault::Endpoint("userinfo_endpoint")),
            (
                "response_types_supported",
                json!(["id_token"]),
                MetadataFault::Unsupported("the response type code"),
            ),
            (
                "code_challenge_methods_supported",
                json!(["plain"]),
                MetadataFault::Unsupported("PKCE by S256"),
            ),
            (
                "response_modes_supported",
                json!(["form_post"]),
                MetadataFault::Unsupported("the response mode query"),
            ),
        ] {
            assert_eq!(with(name, value.clone()).err(), Some(expected), "{name} {value}");
        }
        for body in ["", "<html>", "[]", r#"{"issuer":"a","issuer":"b"}"#, &"[".repeat(10_000)] {
            assert_eq!(ProviderMetadata::read(ISSUER, body.as_bytes()), Err(MetadataFault::Json));
        }
        let long = " ".repeat(METADATA_BYTES_MAX + 1);
        assert_eq!(ProviderMetadata::read(ISSUER, long.as_bytes()), Err(MetadataFault::TooLong));
    }

    #[test]
    fn the_keys_of_an_issuer_are_found_whatever_else_it_offers() {
        let keys = |document: Value| jwks_uri(ISSUER, document.to_string().as_bytes());
        let least = json!({ "issuer": ISSUER, "jwks_uri": "https://keys.example.net/jwks" });
        assert_eq!(keys(least).as_deref(), Ok("https://keys.example.net/jwks"));
        for (document, fault) in [
            (json!({ "issuer": ISSUER }), MetadataFault::Endpoint("jwks_uri")),
            (
                json!({ "issuer": ISSUER, "jwks_uri": "http://keys.example.net/" }),
                MetadataFault::Endpoint("jwks_uri"),
            ),
            (json!({ "issuer": "https://other.example", "jwks_uri": "https://k/" }), MetadataFault::Issuer),
            (json!({ "jwks_uri": "https://k/" }), MetadataFault::Issuer),
        ] {
            assert_eq!(keys(document), Err(fault));
        }
    }

    #[test]
    fn a_provider_on_this_computer_may_be_http() {
        let issuer = "http://127.0.0.1:9000";
        let mut document = document();
        for name in ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"] {
            document[name] = json!(format!("{issuer}/{name}"));
        }
        document["issuer"] = json!(issuer);
        assert!(ProviderMetadata::read(issuer, document.to_string().as_bytes()).is_ok());
    }

    #[test]
    fn a_visit_has_our_parameters_and_no_others_for_them() {
        let metadata =
            with("authorization_endpoint", json!("https://login.example.com/auth?p=1")).expect("metadata");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let url = metadata.visit(&Visit {
            client_id: "trunkline",
            redirect_uri: "https://mcp.example.com/sign-in/callback",
            state: "s",
            nonce: "n",
            challenge: CodeChallenge([0; 32]),
            scopes: &["groups".to_owned(), "openid".to_owned()],
            parameters: &[
                pair("prompt", "consent"),
                pair("state", "evil"),
                pair("redirect_uri", "https://evil.example"),
            ],
        });
        let read = url::Url::parse(&url).expect("a URL");
        let all: Vec<(String, String)> = read.query_pairs().into_owned().collect();
        let of = |name: &str| {
            all.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value).collect::<Vec<_>>()
        };
        assert_eq!((of("p"), of("state"), of("prompt")), (vec!["1"], vec!["s"], vec!["consent"]));
        assert_eq!(of("scope"), ["openid profile offline_access groups"]);
        assert_eq!(of("redirect_uri"), ["https://mcp.example.com/sign-in/callback"]);
    }

    proptest! {
        #[test]
        fn nothing_panics(body: Vec<u8>, text in any::<String>()) {
            let _ = ProviderMetadata::read(ISSUER, &body);
            let _ = with("token_endpoint", json!(text));
        }
    }
}
