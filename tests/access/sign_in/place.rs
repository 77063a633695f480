//! A gateway with a provider, and the way of a client through both, step by step.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::browser::{Browser, moves_on};
use crate::harness::{
    Config, Daemon, Folder, Listening, Offer, PROVIDER_CLIENT, PROVIDER_SECRET, Provider, Request, Response,
    call, post, with_key, write_secret,
};

/// The URL of sign-in, as browsers and clients know it.
pub(super) const URL: &str = "http://localhost:7000";
/// The callback for the provider.
pub(super) const CALLBACK: &str = "http://localhost:7000/sign-in/callback";
/// The endpoint, as clients know it.
pub(super) const ENDPOINT: &str = "http://localhost:7000/mcp";
/// The redirect URI of the client.
pub(super) const REDIRECT: &str = "http://127.0.0.1:3118/cb";
/// The token of operators.
pub(super) const OPERATOR: &str = "a-token-of-operators";
/// The status of a call where a rule hides its tool.
pub(super) const HIDDEN: u16 = 0;
/// A verifier and its challenge (RFC 7636, appendix B).
pub(super) const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
pub(super) const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
/// Says which binary is started instead of the one of the tests.
const BINARY_VARIABLE: &str = "SIGN_IN_TEST_BINARY";

/// Keys of the configuration, beside those that each place has. `ISSUER` in them is the issuer of the provider.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings<'s> {
    /// Of `[sign_in]`.
    pub(super) sign_in: &'s str,
    /// Of the endpoint.
    pub(super) endpoint: &'s str,
    /// Whole tables.
    pub(super) sections: &'s str,
    /// The URL of sign-in, if not [`URL`].
    pub(super) url: &'s str,
    /// The admin listener asks for [`OPERATOR`].
    pub(super) has_operators: bool,
}

/// A gateway before a server with the tool `echo` that can be listened to, and the provider of its users.
pub(super) struct Place {
    pub(super) daemon: Daemon,
    pub(super) provider: Arc<Provider>,
    server: Arc<Listening>,
    folder: Folder,
}

impl Place {
    pub(super) fn start() -> Self {
        Self::with(Settings::default())
    }

    pub(super) fn with(settings: Settings<'_>) -> Self {
        let server = Arc::new(Listening::start(Offer::tools(&["echo"])));
        Self::before(server, Arc::new(Provider::start(&[CALLBACK])), settings)
    }

    /// Another gateway before the same server, with the same provider.
    pub(super) fn beside(&self, settings: Settings<'_>) -> Self {
        Self::before(Arc::clone(&self.server), Arc::clone(&self.provider), settings)
    }

    fn before(server: Arc<Listening>, provider: Arc<Provider>, settings: Settings<'_>) -> Self {
        let folder = Folder::new();
        write_secret(&folder.path().join("secret"), PROVIDER_SECRET);
        let daemon = start(&config(&folder, &server, &provider, settings));
        Self { daemon, provider, server, folder }
    }

    /// Ends the gateway in order, and starts it again with what it has stored.
    pub(super) fn restart(&mut self, settings: Settings<'_>) {
        self.restart_after(settings, || ());
    }

    /// The same, and does something while no gateway runs.
    pub(super) fn restart_after(&mut self, settings: Settings<'_>, meanwhile: impl FnOnce()) {
        self.daemon.terminate();
        self.daemon.wait_exit();
        meanwhile();
        self.daemon = start(&config(&self.folder, &self.server, &self.provider, settings));
    }

    /// The state directory.
    pub(super) fn state(&self) -> &Path {
        self.folder.path()
    }

    /// The bytes of the file of sign-ins.
    pub(super) fn store(&self) -> Vec<u8> {
        std::fs::read(self.state().join("sign-ins.redb")).expect("a file")
    }

    /// Starts the gateway again after it was killed.
    pub(super) fn start_again(&mut self, settings: Settings<'_>) {
        self.daemon = start(&config(&self.folder, &self.server, &self.provider, settings));
    }

    /// Reloads with other settings.
    pub(super) fn reload(&self, settings: Settings<'_>) {
        let from = self.daemon.log().len();
        self.daemon.reload(&config(&self.folder, &self.server, &self.provider, settings));
        let told = self.daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
        assert!(!told.contains("not reloaded"), "{told}");
    }

    /// Registers a client whose codes are sent to this address, and returns its id.
    #[track_caller]
    pub(super) fn register(&self, redirect: &str) -> String {
        let asked = serde_json::json!({
            "redirect_uris": [redirect], "client_name": "Try", "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        });
        let response = self.daemon.send(&here(post(asked.to_string()).target("/register")));
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()["client_id"].as_str().expect("an id").to_owned()
    }

    /// Signs a user in up to the moment when the browser comes back from the provider. Returns the address it comes back to.
    #[track_caller]
    pub(super) fn visit(&self, browser: &mut Browser, client: &str, user: &str) -> String {
        let page = browser.open(&self.daemon, &authorize(&asking(client)));
        let moving = browser.answer(&self.daemon, &page, "allow");
        let back = self.provider.sign_in(&moves_on(&moving), user);
        back.strip_prefix(URL).expect("an address of the gateway").to_owned()
    }

    /// Signs a user in with a browser of its own. Returns the code.
    #[track_caller]
    pub(super) fn code(&self, client: &str, user: &str) -> String {
        let mut browser = Browser::default();
        let back = self.visit(&mut browser, client, user);
        code_of(&browser.open(&self.daemon, &back))
    }

    /// Asks for tokens.
    pub(super) fn token(&self, parameters: &[(&str, &str)]) -> Response {
        self.daemon.send(&post_form("/token", &form(parameters)))
    }

    /// Shows a code as its client does.
    pub(super) fn exchange(&self, client: &str, code: &str) -> AskedTokens {
        AskedTokens(self.token(&code_parameters(client, code)))
    }

    /// Shows a refresh token as its client does.
    pub(super) fn refresh(&self, client: &str, token: &str) -> AskedTokens {
        let parameters = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", client)];
        AskedTokens(self.token(&parameters))
    }

    /// The whole way of a new client with this user.
    #[track_caller]
    pub(super) fn signed_in(&self, user: &str) -> Tokens {
        let client = self.register(REDIRECT);
        let code = self.code(&client, user);
        self.exchange(&client, &code).tokens()
    }

    /// The status of a call with this token, or [`HIDDEN`].
    pub(super) fn call(&self, token: &str) -> u16 {
        let response = self.daemon.send(&with_key(call("1", "echo"), token));
        let is_hidden = response.text().contains("unknown tool");
        if is_hidden { HIDDEN } else { response.status }
    }
}

/// The optimised binary, where `tests/run --all` names one.
pub(super) fn optimised() -> Option<OsString> {
    std::env::var_os(BINARY_VARIABLE)
}

fn start(config: &str) -> Daemon {
    match optimised() {
        Some(binary) => Daemon::start_build(binary, &config),
        None => Daemon::start(&config),
    }
}

fn config(folder: &Folder, server: &Listening, provider: &Provider, settings: Settings<'_>) -> String {
    let issuer = provider.issuer();
    let secret = folder.path().join("secret");
    let mut sign_in = format!(
        "[sign_in]\nurl = \"{URL}\"\nprovider = \"login\"\nclient_id = \"{PROVIDER_CLIENT}\"\n\
         client_secret = {{ file = \"{}\" }}\n",
        secret.display()
    );
    sign_in.push_str(settings.sign_in);
    let more_endpoint = if settings.endpoint.contains("auth =") { "" } else { "auth = [\"sign_in\"]" };
    let config = Config::new()
        .upstream("up", server.upstream.address, "")
        .admin()
        .top(&folder.key())
        .section(&format!("[[jwt]]\nname = \"login\"\nissuer = \"{issuer}\""))
        .section(&sign_in)
        .section(settings.sections)
        .endpoint(&format!("public_url = \"{ENDPOINT}\"\n{more_endpoint}\n{}", settings.endpoint));
    let mut config = config.to_string().replace("ISSUER", &issuer);
    if settings.has_operators {
        let path = folder.path().join("operator");
        write_secret(&path, OPERATOR);
        let admin = format!("[admin]\ntoken = {{ file = \"{}\" }}\n", path.display());
        config = config.replace("[admin]\n", &admin);
    }
    if settings.url.is_empty() { config } else { config.replace(URL, settings.url) }
}

/// An answer of `/token`.
pub(super) struct AskedTokens(pub(super) Response);

/// Tokens that a client got.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) access: String,
    pub(super) refresh: String,
    pub(super) scope: String,
}

impl AskedTokens {
    /// The tokens, which it must hold.
    #[track_caller]
    pub(super) fn tokens(&self) -> Tokens {
        assert_eq!(self.0.status, 200, "{}", self.0.text());
        assert_eq!(self.0.header("cache-control"), Some("no-store"));
        let json = self.0.json();
        let text = |name: &str| json[name].as_str().expect("a text").to_owned();
        let (access, refresh) = (text("access_token"), text("refresh_token"));
        assert!(access.starts_with("tla_") && refresh.starts_with("tlr_"), "{json}");
        Tokens { access, refresh, scope: text("scope") }
    }

    /// Checks that it is refused.
    #[track_caller]
    pub(super) fn assert_refused(&self, error: &str) {
        assert_eq!(self.0.status, 400, "{}", self.0.text());
        assert_eq!(self.0.json()["error"], error, "{}", self.0.text());
    }
}

/// The parameters that a client shows with its code.
pub(super) fn code_parameters<'p>(client: &'p str, code: &'p str) -> [(&'p str, &'p str); 6] {
    [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
        ("client_id", client),
        ("resource", ENDPOINT),
    ]
}

/// The request of a client.
pub(super) fn asking(client: &str) -> [(&str, &str); 8] {
    [
        ("client_id", client),
        ("redirect_uri", REDIRECT),
        ("response_type", "code"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("resource", ENDPOINT),
        ("scope", "mcp:read mcp:write"),
        ("state", "the state"),
    ]
}

/// The address that a client opens in a browser.
pub(super) fn authorize(parameters: &[(&str, &str)]) -> String {
    format!("/authorize?{}", form(parameters))
}

/// The code with which a browser is sent back to its client.
#[track_caller]
pub(super) fn code_of(response: &Response) -> String {
    assert_eq!(response.status, 303, "{}", response.text());
    let location = response.header("location").expect("an address");
    let query = location
        .strip_prefix(REDIRECT)
        .and_then(|rest| rest.strip_prefix('?'))
        .expect("the client's address");
    let pairs: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let only = |name: &str| {
        let mut found = pairs.iter().filter(|(present, _)| *present == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => (*value).to_owned(),
            other => panic!("{name}: {other:?} in {location}"),
        }
    };
    assert!(["the+state", "the%20state"].contains(&&*only("state")), "{location}");
    assert_eq!(only("iss"), "http%3A%2F%2Flocalhost%3A7000");
    only("code")
}

/// A request at the host of sign-in.
pub(super) fn here(request: Request) -> Request {
    request.set("Host", "localhost:7000")
}

/// A GET of a browser.
pub(super) fn get(target: &str) -> Request {
    here(post("").method("GET").target(target).without("Content-Type").set("Accept", "text/html"))
}

/// A POST of a form.
pub(super) fn post_form(target: &str, body: &str) -> Request {
    here(post(body).target(target).set("Content-Type", "application/x-www-form-urlencoded"))
}

/// Parameters in the encoding of forms.
pub(super) fn form(parameters: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    pairs.join("&")
}

fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().fold(String::new(), |encoded, byte| match byte {
        byte if is_plain(byte) => encoded + &char::from(byte).to_string(),
        byte => encoded + &format!("%{byte:02X}"),
    })
}
