//! The request of `/authorize`, judged, and the way back with its answer.
//!
//! Invariants: client and redirect URI are judged first. Until somebody has answered the page every error is a page: only an
//! [`AnsweredRequest`] has a way back, and what goes back has `state` as it came and `iss` (RFC 9207).

use crate::client::{Client, ClientFault, DeniedClients};
use crate::oauth_error::{ErrorCode, OAuthError};
use crate::parameters::{ParameterFault, Parameters};
use crate::pkce::CodeChallenge;
use crate::redirect_uri::{AllowedRedirects, RedirectFault, RedirectUri};
use crate::sealed::cookies::{SignInCookie, VisitPurpose};
use crate::sealed::fingerprint::Fingerprint;
use crate::sealed::form::{Form, JudgedRequest};
use crate::{resource, scope};

/// Bytes of `state`, which travels in a cookie.
pub const STATE_BYTES_MAX: usize = 1 << 10;
/// Parameters of requests that stand elsewhere than in the query (RFC 9101, `OpenID` Connect).
const OF_REQUEST_OBJECTS: [&str; 3] = ["request", "request_uri", "registration"];

/// The parameters of a request that is not judged yet.
#[derive(Clone, Debug)]
pub struct AuthorizeRequest(Parameters);

/// The rules by which a request is judged.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizeRules<'a> {
    /// The `redirects` of the configuration.
    pub redirects: &'a AllowedRedirects,
    /// The public URLs of the endpoints that take sign-ins.
    pub endpoints: &'a [&'a str],
    /// `clients_denied`.
    pub denied: &'a DeniedClients,
}

/// The cause for which a request is refused. Each is told on a page, and nobody is redirected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizeFault {
    /// Its parameters cannot be read.
    #[error(transparent)]
    Parameters(#[from] ParameterFault),
    /// Its client.
    #[error(transparent)]
    Client(#[from] ClientFault),
    /// Its redirect URI.
    #[error(transparent)]
    Redirect(#[from] RedirectFault),
    /// Anything else.
    #[error(transparent)]
    Request(#[from] OAuthError),
}

/// A request whose page somebody has answered.
#[derive(Clone, Debug)]
pub struct AnsweredRequest(JudgedRequest);

/// A visit whose browser came back from the provider.
#[derive(Clone, Debug)]
pub enum Returned {
    /// A person wants to see their own sign-ins.
    SignIns,
    /// Its page was answered by this person or, before the visit, by this browser.
    Answered(AnsweredRequest),
    /// It was not answered by this person: the page is shown after all, and an error is a page.
    Unanswered(JudgedRequest),
}

impl AuthorizeRequest {
    /// Reads the query of `/authorize`.
    pub fn read(query: &str) -> Result<Self, AuthorizeFault> {
        Ok(Self(Parameters::of_query(query)?))
    }

    /// The id of the client, which has to be found before the request can be judged.
    pub fn client_id(&self) -> Option<&str> {
        self.0.get("client_id")
    }

    /// A parameter as it came, for a page that names it.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.0.get(name)
    }

    /// Judges the request of this client.
    pub fn judge(
        &self,
        client: &Client,
        rules: AuthorizeRules<'_>,
    ) -> Result<(JudgedRequest, RedirectUri), AuthorizeFault> {
        if self.client_id() != Some(&client.id) {
            return Err(ClientFault::Unknown.into());
        }
        if rules.denied.bars(&client.id) {
            return Err(ClientFault::Denied.into());
        }
        let redirect_uri = rules.redirects.choose(&client.redirect_uris, self.0.get("redirect_uri"))?;
        if rules.denied.bars(redirect_uri.text()) {
            return Err(ClientFault::Denied.into());
        }
        self.check_form()?;
        let challenge =
            CodeChallenge::read(self.0.get("code_challenge"), self.0.get("code_challenge_method"))?;
        let endpoint = resource::endpoint_of(self.0.get("resource"), rules.endpoints)?;
        let endpoint = rules.endpoints.get(endpoint).copied().unwrap_or_default().to_owned();
        let scopes = scope::read(self.0.get("scope"))?;
        let state = self.0.get("state").map(str::to_owned);
        if state.as_ref().is_some_and(|state| state.len() > STATE_BYTES_MAX) {
            return Err(refused(ErrorCode::InvalidRequest, "state is too long").into());
        }
        let request = JudgedRequest {
            client_id: client.id.clone(),
            client_name: client.name.clone(),
            redirect_uri: redirect_uri.text().to_owned(),
            endpoint,
            scopes,
            state,
            challenge,
        };
        if !SignInCookie::can_hold(&request) {
            let why = "the request is too long: a shorter state or scope, or a client id with fewer redirect URIs fits";
            return Err(refused(ErrorCode::InvalidRequest, why).into());
        }
        Ok((request, redirect_uri))
    }

    /// The form of the request: a code, in the query, asked for by the query alone.
    fn check_form(&self) -> Result<(), OAuthError> {
        if OF_REQUEST_OBJECTS.iter().any(|name| self.0.has(name)) {
            return Err(refused(ErrorCode::RequestNotSupported, "request objects are not supported"));
        }
        match self.0.get("response_type") {
            Some("code") => {}
            None => return Err(refused(ErrorCode::InvalidRequest, "response_type is missing")),
            Some(_) => {
                return Err(refused(ErrorCode::UnsupportedResponseType, "response_type must be code"));
            }
        }
        match self.0.get("response_mode") {
            None | Some("query") => Ok(()),
            Some(_) => Err(refused(ErrorCode::InvalidRequest, "response_mode must be query")),
        }
    }
}

impl Form {
    /// The request, after its form came back with an answer.
    pub fn answered(self) -> AnsweredRequest {
        AnsweredRequest(self.request)
    }
}

impl SignInCookie {
    /// The request, after the browser came back with this cookie as `principal`. `None`: the provider names nobody, and says an
    /// error. An answer that was only remembered counts for the person who gave it, and for nobody else.
    pub fn returned(self, principal: Option<&str>) -> Returned {
        let is_of =
            |remembered: Fingerprint| principal.is_some_and(|principal| remembered.is_of(&[principal]));
        match self.purpose {
            VisitPurpose::SignIns => Returned::SignIns,
            VisitPurpose::Client(request) if self.remembered_for.is_none_or(is_of) => {
                Returned::Answered(AnsweredRequest(request))
            }
            VisitPurpose::Client(request) => Returned::Unanswered(request),
        }
    }
}

impl AnsweredRequest {
    /// The request.
    pub fn request(&self) -> &JudgedRequest {
        &self.0
    }

    /// The way back with a code.
    pub fn with_code(
        &self,
        code: &str,
        redirects: &AllowedRedirects,
        issuer: &str,
    ) -> Result<String, RedirectFault> {
        self.way_back(&[("code", code)], redirects, issuer)
    }

    /// The way back with an error.
    pub fn with_error(
        &self,
        error: &OAuthError,
        redirects: &AllowedRedirects,
        issuer: &str,
    ) -> Result<String, RedirectFault> {
        self.way_back(&error.parameters(), redirects, issuer)
    }

    /// Refused where a reload has taken the redirect URI away meanwhile.
    fn way_back(
        &self,
        parameters: &[(&str, &str)],
        redirects: &AllowedRedirects,
        issuer: &str,
    ) -> Result<String, RedirectFault> {
        let uri = &self.0.redirect_uri;
        let uri = redirects.choose(&[uri], Some(uri))?;
        Ok(uri.with(parameters, self.0.state.as_deref(), issuer))
    }
}

fn refused(code: ErrorCode, why: &'static str) -> OAuthError {
    OAuthError::new(code, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::CLIENT_ID_BYTES_MAX;
    use crate::client::ClientSource;
    use crate::pkce::verifier;
    use crate::presented::Presented;
    use crate::sealed::Seals;
    use crate::sealed::client_id::AuthMethod;
    use proptest::prelude::*;

    fn seals() -> Seals {
        Seals::ephemeral(&[7; 32]).expect("keys")
    }

    const ENDPOINTS: [&str; 2] = ["https://mcp.example.com/mcp", "https://mcp.example.com/other"];
    const GOOD: &str = "client_id=c&redirect_uri=http%3A%2F%2Flocalhost%3A3118%2Fcallback&response_type=code\
        &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256\
        &resource=https%3A%2F%2Fmcp.example.com%2Fmcp&scope=a%20b&state=s%26t&prompt=consent&unknown=x";

    fn client() -> Client {
        Client {
            id: "c".into(),
            name: "Client".into(),
            source: ClientSource::Registered,
            redirect_uris: vec!["http://localhost/callback".into(), "https://claude.ai/cb".into()],
            auth_method: AuthMethod::None,
        }
    }

    fn judge_with(query: &str, denied: &[&str]) -> Result<JudgedRequest, AuthorizeFault> {
        let redirects = AllowedRedirects::new(&["https://claude.ai"]).expect("entries");
        let denied = DeniedClients::new(denied.iter().map(|entry| (*entry).to_owned()));
        let rules = AuthorizeRules { redirects: &redirects, endpoints: &ENDPOINTS, denied: &denied };
        AuthorizeRequest::read(query)?.judge(&client(), rules).map(|(request, _)| request)
    }

    fn judge(query: &str) -> Result<JudgedRequest, AuthorizeFault> {
        judge_with(query, &[])
    }

    /// The good request with one parameter changed, or without it.
    fn with(name: &str, value: Option<&str>) -> String {
        let others = GOOD.split('&').filter(|part| !part.starts_with(&format!("{name}=")));
        let changed = value.map(|value| format!("{name}={value}"));
        others.map(str::to_owned).chain(changed).collect::<Vec<_>>().join("&")
    }

    #[test]
    fn a_good_request_is_judged() {
        let request = judge(GOOD).expect("a request");
        assert_eq!((&*request.client_id, &*request.endpoint), ("c", ENDPOINTS[0]));
        assert_eq!(request.redirect_uri, "http://localhost:3118/callback");
        assert_eq!((request.scopes, request.state.as_deref()), (vec!["a".into(), "b".into()], Some("s&t")));
        for missing in ["scope", "state", "prompt"] {
            assert!(judge(&with(missing, None)).is_ok(), "{missing}");
        }
        assert!(judge(&with("response_mode", Some("query"))).is_ok());
    }

    #[test]
    fn bad_input_every_rule_refuses_on_a_page() {
        for (name, value, expected) in [
            ("response_type", None, ErrorCode::InvalidRequest),
            ("response_type", Some("token"), ErrorCode::UnsupportedResponseType),
            ("response_type", Some("code%20id_token"), ErrorCode::UnsupportedResponseType),
            ("response_mode", Some("fragment"), ErrorCode::InvalidRequest),
            ("response_mode", Some("form_post"), ErrorCode::InvalidRequest),
            ("request", Some("eyJ"), ErrorCode::RequestNotSupported),
            ("request_uri", Some("urn:x"), ErrorCode::RequestNotSupported),
            ("request", Some(""), ErrorCode::RequestNotSupported),
            ("code_challenge", None, ErrorCode::InvalidRequest),
            ("code_challenge_method", None, ErrorCode::InvalidRequest),
            ("code_challenge_method", Some("plain"), ErrorCode::InvalidRequest),
            ("resource", None, ErrorCode::InvalidTarget),
            ("resource", Some("https%3A%2F%2Felse.example"), ErrorCode::InvalidTarget),
            ("scope", Some("a%22"), ErrorCode::InvalidScope),
            ("state", Some(&*"s".repeat(STATE_BYTES_MAX + 1)), ErrorCode::InvalidRequest),
        ] {
            let fault = judge(&with(name, value)).expect_err(name);
            assert!(
                matches!(&fault, AuthorizeFault::Request(error) if error.code == expected),
                "{name} {value:?}: {fault:?}"
            );
        }
    }

    #[test]
    fn client_and_redirect_uri_are_judged_first() {
        let other = with("client_id", Some("other"));
        assert_eq!(judge(&other), Err(AuthorizeFault::Client(ClientFault::Unknown)));
        assert_eq!(judge(""), Err(AuthorizeFault::Client(ClientFault::Unknown)));
        for (uri, expected) in [
            (None, RedirectFault::Missing),
            (
                Some("https%3A%2F%2Fevil.example%2F"),
                RedirectFault::NotAllowed { line: "https://evil.example".to_owned() },
            ),
            (Some("https%3A%2F%2Fclaude.ai%2Fcb%2F"), RedirectFault::NotRegistered),
        ] {
            let query = with("redirect_uri", uri).replace("response_type=code", "response_type=x");
            assert_eq!(judge(&query), Err(AuthorizeFault::Redirect(expected)));
        }
    }

    #[test]
    fn barred_clients_and_redirect_hosts_are_refused() {
        let claude = with("redirect_uri", Some("https%3A%2F%2Fclaude.ai%2Fcb"));
        assert!(judge(&claude).is_ok());
        for (query, entry) in [(GOOD, "c"), (&*claude, "claude.ai")] {
            assert_eq!(judge_with(query, &[entry]), Err(AuthorizeFault::Client(ClientFault::Denied)));
        }
    }

    #[test]
    fn bad_input_every_parameter_twice_is_refused() {
        for part in GOOD.split('&') {
            let fault = judge(&format!("{GOOD}&{part}")).expect_err(part);
            assert!(matches!(fault, AuthorizeFault::Parameters(ParameterFault::Twice(_))), "{part}");
        }
    }

    #[test]
    fn an_answer_goes_back_with_state_and_issuer_if_it_still_may() {
        let redirects = AllowedRedirects::new(&["https://claude.ai"]).expect("entries");
        let request = judge(&with("redirect_uri", Some("https%3A%2F%2Fclaude.ai%2Fcb"))).expect("a request");
        let answered = Form { request, expires_s: 0 }.answered();
        assert_eq!(
            answered.with_code("tlo_x", &redirects, "https://i").as_deref(),
            Ok("https://claude.ai/cb?code=tlo_x&state=s%26t&iss=https%3A%2F%2Fi")
        );
        let denied = OAuthError::new(ErrorCode::AccessDenied, "no");
        assert_eq!(
            answered.with_error(&denied, &redirects, "https://i").as_deref(),
            Ok(
                "https://claude.ai/cb?error=access_denied&error_description=no&state=s%26t&iss=https%3A%2F%2Fi"
            )
        );
        let none = AllowedRedirects::default();
        assert!(answered.with_code("tlo_x", &none, "https://i").is_err(), "a reload took it away");
    }

    #[test]
    fn must_2_an_answer_that_was_remembered_is_of_nobody_else() {
        let returned = |remembered_for: Option<&str>, principal: Option<&str>| {
            let cookie = SignInCookie {
                purpose: VisitPurpose::Client(judge(GOOD).expect("a request")),
                state: [0; 16],
                nonce: [0; 16],
                verifier: Presented::new("v"),
                remembered_for: remembered_for.map(|principal| Fingerprint::of(&[principal])),
                expires_s: 1,
            };
            matches!(cookie.returned(principal), Returned::Answered(_))
        };
        assert!(returned(None, Some("ann")) && returned(None, None), "somebody has answered in this visit");
        assert!(returned(Some("ann"), Some("ann")));
        assert!(
            !returned(Some("ann"), Some("bob"))
                && !returned(Some("ann"), None)
                && !returned(Some("ann"), Some(""))
        );
    }

    #[test]
    fn bad_input_a_request_that_its_cookie_could_not_hold_is_refused_before_anybody_is_asked() {
        let id = "c".repeat(CLIENT_ID_BYTES_MAX);
        let client = Client { id: id.clone(), ..client() };
        let redirects = AllowedRedirects::default();
        let rules = AuthorizeRules {
            redirects: &redirects,
            endpoints: &ENDPOINTS,
            denied: &DeniedClients::default(),
        };
        let mut found = [0, 0];
        for bytes in 0..=STATE_BYTES_MAX {
            let query = with("state", Some(&"s".repeat(bytes)));
            let query = query.replace("client_id=c&", &format!("client_id={id}&"));
            match AuthorizeRequest::read(&query).expect("parameters").judge(&client, rules) {
                Ok((request, _)) => {
                    found[0] += 1;
                    let cookie = SignInCookie {
                        purpose: VisitPurpose::Client(request),
                        state: [0; 16],
                        nonce: [0; 16],
                        verifier: Presented::new(&verifier(&[0; 32])),
                        remembered_for: Some(Fingerprint([0; 32])),
                        expires_s: 1,
                    };
                    assert!(seals().seal([0; 12], "https://i", &cookie).is_some(), "{bytes}");
                }
                Err(fault) => {
                    found[1] += 1;
                    assert!(matches!(fault, AuthorizeFault::Request(_)), "{fault:?}");
                }
            }
        }
        assert!(found[0] > 100 && found[1] > 100, "{found:?}");
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>()) {
            let _ = judge(&text);
            let _ = judge(&format!("{GOOD}&{text}"));
        }

        /// Whatever else stands there, it is the registered redirect URI and the named endpoint, or nothing.
        #[test]
        fn nothing_added_moves_a_request(text in "[a-z_]{1,12}=[a-zA-Z0-9%+&=]{0,20}") {
            if let Ok(request) = judge(&format!("{GOOD}&{text}")) {
                prop_assert_eq!(&*request.redirect_uri, "http://localhost:3118/callback");
                prop_assert_eq!(&*request.endpoint, ENDPOINTS[0]);
            }
        }
    }
}
