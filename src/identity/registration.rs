//! Registrations of clients (RFC 7591): nothing is stored, the id holds what was registered.
//!
//! Invariants: only redirect URIs that may be used are registered, each URI within its bounds; the others are left out, since
//! clients name all that they have for any server. A client gets what this server has, and the answer repeats what was registered.

use serde_json::{Value, json};
use tokens::jwt::TokenMembers;

use crate::oauth_error::{Answer, ErrorCode, OAuthError};
use crate::parameters::check_content_type;
use crate::redirect_uri::AllowedRedirects;
use crate::sealed::client_id::{AuthMethod, RegisteredClient};
use crate::sealed::{Nonce, Seals};

/// Bytes of a request.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Redirect URIs of one client.
pub const REDIRECT_URIS_MAX: usize = 32;
/// Bytes of the name of a client.
pub const NAME_BYTES_MAX: usize = 64;
/// Texts of one list.
const TEXTS_MAX: usize = 64;
/// Bytes of a member that is only repeated.
const REPEATED_BYTES_MAX: usize = 512;
/// The grants that this server has.
const GRANT_TYPES: [&str; 2] = ["authorization_code", "refresh_token"];
/// Members that are only repeated in the answer.
const REPEATED: [&str; 8] = [
    "application_type",
    "client_uri",
    "logo_uri",
    "policy_uri",
    "scope",
    "software_id",
    "software_version",
    "tos_uri",
];

/// A registration that may be made.
#[derive(Clone, Debug)]
pub struct Registration {
    client: RegisteredClient,
    /// The reasons for which redirect URIs were left out.
    pub left_out: Vec<String>,
    /// The members of the answer beside those that are made here.
    repeated: Vec<(&'static str, Value)>,
}

/// The redirect URIs of a request.
#[derive(Default)]
struct RedirectUris {
    kept: Vec<String>,
    /// The reasons for which the others are not.
    left_out: Vec<String>,
}

impl Registration {
    /// Judges the request of `/register`.
    pub fn read(
        content_type: Option<&[u8]>,
        body: &[u8],
        redirects: &AllowedRedirects,
        now_s: u64,
    ) -> Result<Self, OAuthError> {
        check_content_type(content_type, "application/json")
            .map_err(|_| invalid("the content type must be application/json"))?;
        if body.len() > REQUEST_BYTES_MAX {
            return Err(invalid("the registration is too long"));
        }
        let members: TokenMembers = serde_json::from_slice(body)
            .map_err(|_| invalid("the registration is not a JSON object whose members stand once"))?;
        let RedirectUris { kept: redirect_uris, left_out } = redirect_uris_of(&members, redirects)?;
        let grants = texts(&members, "grant_types").ok_or(invalid("grant_types must be a list of texts"))?;
        if !grants.is_empty() && !grants.contains(&GRANT_TYPES[0]) {
            return Err(invalid("grant_types must hold authorization_code"));
        }
        let responses =
            texts(&members, "response_types").ok_or(invalid("response_types must be a list of texts"))?;
        if !responses.is_empty() && !responses.contains(&"code") {
            return Err(invalid("response_types must hold code"));
        }
        let name = members.get("client_name").filter(|name| !name.is_null());
        let name = name.map_or(Some(""), Value::as_str).ok_or(invalid("client_name must be a text"))?;
        // RFC 7591 §2: without a list it is the code alone.
        let kept = GRANT_TYPES.iter().filter(|known| **known == GRANT_TYPES[0] || grants.contains(known));
        let mut repeated = vec![("grant_types", json!(kept.collect::<Vec<_>>()))];
        for name in REPEATED {
            let value = members.get(name).filter(|value| {
                value.as_str().is_some_and(|text| text.len() <= REPEATED_BYTES_MAX && !text.is_empty())
            });
            repeated.extend(value.map(|value| (name, value.clone())));
        }
        let client = RegisteredClient {
            registered_s: now_s,
            name: shown_name(name),
            redirect_uris,
            auth_method: auth_method_of(&members)?,
        };
        Ok(Self { client, left_out, repeated })
    }

    /// The answer, with the id and, where it asked for one, the secret.
    pub fn answer(&self, seals: &Seals, nonce: Nonce, issuer: &str) -> Result<Answer, OAuthError> {
        let (id, secret) = self.client.issue(seals, nonce, issuer).ok_or(invalid(
            "the registration does not fit into a client id of 1 KiB: fewer or shorter redirect_uris do",
        ))?;
        let mut body = json!({
            "client_id": id,
            "client_id_issued_at": self.client.registered_s,
            "client_name": self.client.name,
            "redirect_uris": self.client.redirect_uris,
            "response_types": ["code"],
            "token_endpoint_auth_method": self.client.auth_method.word(),
        });
        for (name, value) in &self.repeated {
            body[*name] = value.clone();
        }
        if let Some(secret) = secret {
            body["client_secret"] = json!(*secret);
            body["client_secret_expires_at"] = json!(0);
        }
        Ok(Answer::json(201, &body))
    }
}

/// The redirect URIs that may be used, and the reasons that others may not.
fn redirect_uris_of(
    members: &TokenMembers,
    redirects: &AllowedRedirects,
) -> Result<RedirectUris, OAuthError> {
    let refused = |why: String| OAuthError::new(ErrorCode::InvalidRedirectUri, why);
    let uris = texts(members, "redirect_uris").filter(|uris| !uris.is_empty());
    let uris = uris.ok_or_else(|| refused("redirect_uris must be a list of URIs".to_owned()))?;
    if uris.len() > REDIRECT_URIS_MAX {
        return Err(refused(format!("more than {REDIRECT_URIS_MAX} redirect_uris")));
    }
    let mut found = RedirectUris::default();
    for uri in uris {
        match redirects.judge(uri) {
            Ok(_) => found.kept.push(uri.to_owned()),
            Err(fault) => found.left_out.push(fault.to_string()),
        }
    }
    match found.left_out.first() {
        Some(why) if found.kept.is_empty() => Err(refused(why.clone())),
        _ => Ok(found),
    }
}

fn auth_method_of(members: &TokenMembers) -> Result<AuthMethod, OAuthError> {
    let word = members.get("token_endpoint_auth_method").filter(|word| !word.is_null());
    // RFC 7591 §2.
    let Some(word) = word else { return Ok(AuthMethod::Basic) };
    match word.as_str().and_then(AuthMethod::from_word) {
        Some(AuthMethod::PrivateKeyJwt) => {
            Err(invalid("private_key_jwt needs a client ID metadata document, or the configuration"))
        }
        Some(method) => Ok(method),
        None => Err(invalid("token_endpoint_auth_method is none that this server has")),
    }
}

/// The texts of a member; none where it is missing. `None`: it is something else, or too long.
pub(crate) fn texts<'m>(members: &'m TokenMembers, name: &str) -> Option<Vec<&'m str>> {
    match members.get(name) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(values)) if values.len() <= TEXTS_MAX => values.iter().map(Value::as_str).collect(),
        Some(_) => None,
    }
}

/// The name of a client as people may see it: in one line, and not too long.
pub(crate) fn shown_name(name: &str) -> String {
    let name = name.trim();
    let name = name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default();
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn invalid(why: &'static str) -> OAuthError {
    OAuthError::new(ErrorCode::InvalidClientMetadata, why)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::client::Client;
    use crate::sealed::Kind;
    use proptest::prelude::*;

    const ISSUER: &str = "https://mcp.example.com";
    const JSON: Option<&[u8]> = Some(b"application/json");

    fn seals() -> &'static Seals {
        static SEALS: LazyLock<Seals> = LazyLock::new(|| Seals::ephemeral(&[7; 32]).expect("keys"));
        &SEALS
    }

    fn register(request: &Value) -> Result<Value, OAuthError> {
        let redirects = AllowedRedirects::new(&["https://claude.ai"]).expect("entries");
        let registration = Registration::read(JSON, request.to_string().as_bytes(), &redirects, 1_000)?;
        let answer = registration.answer(seals(), [1; 12], ISSUER)?;
        assert_eq!((answer.status, answer.header("cache-control")), (201, Some("no-store")));
        Ok(serde_json::from_str(&answer.body).expect("JSON"))
    }

    #[test]
    fn a_client_gets_an_id_that_holds_its_registration() {
        let answer = register(&json!({
            "client_name": "Claude Code",
            "redirect_uris": ["http://localhost:3118/callback", "https://claude.ai/cb"],
            "grant_types": ["authorization_code", "refresh_token", "urn:other"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
            "scope": "a b",
            "client_uri": 7,
            "unknown": {},
        }))
        .expect("registered");
        let id = answer["client_id"].as_str().expect("an id");
        assert!(id.len() <= 1024 && answer.get("client_secret").is_none());
        assert_eq!(answer["grant_types"], json!(["authorization_code", "refresh_token"]));
        assert_eq!((&answer["application_type"], &answer["scope"]), (&json!("native"), &json!("a b")));
        assert!(answer.get("client_uri").is_none() && answer.get("unknown").is_none());
        let client = Client::registered(id, seals(), ISSUER).expect("a client");
        assert_eq!((&*client.name, client.auth_method), ("Claude Code", AuthMethod::None));
        assert_eq!(json!(client.redirect_uris), answer["redirect_uris"]);
        assert!(Client::registered(id, seals(), "https://other.example.com").is_err());
    }

    #[test]
    fn a_secret_goes_with_the_id_and_is_what_the_rfc_has_by_default() {
        for method in [Value::Null, json!("client_secret_basic"), json!("client_secret_post")] {
            let request =
                json!({ "redirect_uris": ["http://localhost/"], "token_endpoint_auth_method": method });
            let answer = register(&request).expect("registered");
            let (id, secret) = (answer["client_id"].as_str(), answer["client_secret"].as_str());
            assert!(seals().is_mac_of(Kind::ClientSecret, id.expect("an id"), secret.expect("a secret")));
            assert_eq!(answer["client_secret_expires_at"], json!(0));
        }
    }

    #[test]
    fn must_3_no_foreign_redirect_uri_is_registered() {
        for uris in [
            Value::Null,
            json!([]),
            json!("http://localhost/"),
            json!([7]),
            json!(["https://evil.example/cb"]),
            json!(["javascript:alert(1)", "https://evil.example/cb"]),
            json!(["http://localhost/", 7]),
            json!(["http://claude.ai/cb"]),
            json!(["https://claude.ai.evil.example/cb"]),
            json!(vec!["http://localhost/"; 33]),
            json!(vec!["http://localhost/"; 65]),
        ] {
            let error = register(&json!({ "redirect_uris": uris })).expect_err("an error");
            assert_eq!(error.code, ErrorCode::InvalidRedirectUri, "{uris}");
        }
    }

    #[test]
    fn of_many_redirect_uris_those_are_registered_that_may_be_used() {
        let uris = json!([
            "https://insiders.vscode.dev/redirect",
            "http://127.0.0.1/",
            "https://claude.ai/cb",
            "javascript:alert(1)"
        ]);
        let kept = json!(["http://127.0.0.1/", "https://claude.ai/cb"]);
        let request = json!({ "redirect_uris": uris });
        let answer = register(&request).expect("registered");
        assert_eq!(answer["redirect_uris"], kept);
        let id = answer["client_id"].as_str().expect("an id");
        let client = Client::registered(id, seals(), ISSUER).expect("a client");
        assert_eq!(json!(client.redirect_uris), kept);
        let redirects = AllowedRedirects::new(&["https://claude.ai"]).expect("entries");
        let read = Registration::read(JSON, request.to_string().as_bytes(), &redirects, 0);
        let left_out = read.expect("registered").left_out;
        assert!(left_out.len() == 2 && left_out[0].contains("https://insiders.vscode.dev"), "{left_out:?}");
    }

    #[test]
    fn bad_input_hostile_registrations_are_refused() {
        let good = json!({ "redirect_uris": ["http://localhost/"] });
        for (name, value) in [
            ("grant_types", json!(["implicit"])),
            ("grant_types", json!("authorization_code")),
            ("response_types", json!(["token"])),
            ("response_types", json!({})),
            ("token_endpoint_auth_method", json!("private_key_jwt")),
            ("token_endpoint_auth_method", json!("NONE")),
            ("token_endpoint_auth_method", json!(7)),
            ("client_name", json!(["a"])),
        ] {
            let mut request = good.clone();
            request[name] = value.clone();
            let error = register(&request).expect_err(name);
            assert_eq!(error.code, ErrorCode::InvalidClientMetadata, "{name} {value}");
        }
        let long: Vec<String> = (0..4).map(|n| format!("http://localhost/{}{n}", "a".repeat(400))).collect();
        let error = register(&json!({ "redirect_uris": long })).expect_err("too long");
        assert_eq!(error.code, ErrorCode::InvalidClientMetadata);
        let redirects = AllowedRedirects::default();
        for (content_type, body) in [
            (JSON, "{"),
            (JSON, "[]"),
            (JSON, r#"{"redirect_uris":["http://localhost/"],"redirect_uris":[]}"#),
            (JSON, &" ".repeat(REQUEST_BYTES_MAX + 1)),
            (JSON, &"[".repeat(10_000)),
            (None, r#"{"redirect_uris":["http://localhost/"]}"#),
            (Some(b"text/plain"), r#"{"redirect_uris":["http://localhost/"]}"#),
        ] {
            assert!(Registration::read(content_type, body.as_bytes(), &redirects, 0).is_err());
        }
    }

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(shown_name(" a\nb\u{7f}c "), "a b c");
        assert_eq!(shown_name(&"\u{e4}".repeat(100)).len(), 64);
    }

    proptest! {
        #[test]
        fn whatever_is_registered_is_an_id_of_safe_characters(
            name in any::<String>(), uris in proptest::collection::vec("http://localhost/[a-z]{0,300}", 1..6)
        ) {
            if let Ok(answer) = register(&json!({ "client_name": name, "redirect_uris": uris })) {
                let id = answer["client_id"].as_str().expect("an id");
                let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                prop_assert!(id.len() <= 1024 && id.chars().all(is_safe));
                prop_assert_eq!(&answer["redirect_uris"], &json!(uris));
            }
        }

        #[test]
        fn nothing_panics(body: Vec<u8>) {
            let _ = Registration::read(JSON, &body, &AllowedRedirects::default(), 0);
        }
    }
}
