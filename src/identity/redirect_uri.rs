//! Redirect URIs: which may be registered, which may be used, and the way back with the answer.
//!
//! Invariants: beside loopback, nobody is sent to a URI that is not in the configuration, itself or by its https origin,
//! however the client came; and to none that its client did not register. A loopback URI is `http`, with any port.

use crate::parameters::{Parameters, to_form};
use crate::uri::{Uri, UriFault};

/// Each travels in a cookie and in client ids.
const REDIRECT_BYTES_MAX: usize = 512;
/// Schemes that run something in the browser, or read files; they are refused even where the configuration names them.
const SCHEMES_REFUSED: [&str; 14] = [
    "about",
    "blob",
    "chrome",
    "data",
    "file",
    "filesystem",
    "ftp",
    "intent",
    "javascript",
    "mailto",
    "vbscript",
    "view-source",
    "ws",
    "wss",
];
/// Parameters of an answer, of which a second would be believed by some.
const PARAMETERS_OF_ANSWERS: [&str; 7] =
    ["code", "state", "iss", "error", "error_description", "error_uri", "response"];

/// The `redirects` of the configuration.
#[derive(Clone, Debug, Default)]
pub struct AllowedRedirects {
    /// `https://host`: all that is there.
    origins: Vec<String>,
    /// These and no others.
    exact: Vec<String>,
}

/// A redirect URI that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectUri {
    text: String,
    /// The kind of its target.
    pub kind: RedirectKind,
}

/// The target of a redirect URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectKind {
    /// A program on the machine of the browser; any program there.
    Loopback,
    /// A web site.
    Https,
    /// A program that has the scheme for its own; any program there.
    PrivateScheme,
}

/// The cause for which a redirect URI is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectFault {
    /// It is missing.
    #[error("redirect_uri is missing")]
    Missing,
    /// No URI that all read in the same way.
    #[error("redirect_uri is refused: {0}")]
    Uri(#[from] UriFault),
    /// It is too long.
    #[error("redirect_uri is longer than {REDIRECT_BYTES_MAX} bytes")]
    TooLong,
    /// A scheme that runs something or reads files.
    #[error("redirect_uri has a scheme that is never redirected to")]
    Scheme,
    /// `http` to another machine.
    #[error("redirect_uri is http and not on this computer: use https")]
    Http,
    /// Its query has a parameter of the answer.
    #[error("redirect_uri has a parameter in its query that an answer has")]
    Parameter,
    /// The client did not register it.
    #[error("redirect_uri is none that the client registered")]
    NotRegistered,
    /// The configuration does not allow it.
    #[error("redirect_uri is not allowed here: sign_in.redirects must name {}", .line)]
    NotAllowed {
        /// The entry that would allow it.
        line: String,
    },
}

impl AllowedRedirects {
    /// Reads the entries of the configuration: origins with https, or exact URIs. An error comes with its entry.
    pub fn new(entries: &[impl AsRef<str>]) -> Result<Self, (String, RedirectFault)> {
        let mut allowed = Self::default();
        for entry in entries {
            let entry = entry.as_ref();
            let uri = well_formed(entry).map_err(|fault| (entry.to_owned(), fault))?;
            let is_origin = uri.has_scheme("https") && uri.path.is_empty() && uri.query.is_none();
            let list = if is_origin { &mut allowed.origins } else { &mut allowed.exact };
            list.push(entry.to_owned());
        }
        Ok(allowed)
    }

    /// The target of the URI, if it may be used at all.
    pub fn judge(&self, text: &str) -> Result<RedirectKind, RedirectFault> {
        let uri = well_formed(text)?;
        if is_loopback(&uri) {
            return Ok(RedirectKind::Loopback);
        }
        let is_https = uri.has_scheme("https");
        let is_origin = |origin: &String| Uri::read(origin).is_ok_and(|origin| uri.has_origin_of(&origin));
        if self.exact.iter().any(|exact| exact == text) || (is_https && self.origins.iter().any(is_origin)) {
            return Ok(if is_https { RedirectKind::Https } else { RedirectKind::PrivateScheme });
        }
        let line = if is_https { origin_of(&uri) } else { text.to_owned() };
        Err(RedirectFault::NotAllowed { line })
    }

    /// The URI that a client asks for, if it has registered it and it may be used.
    pub fn choose(
        &self,
        registered: &[impl AsRef<str>],
        asked: Option<&str>,
    ) -> Result<RedirectUri, RedirectFault> {
        let asked = asked.ok_or(RedirectFault::Missing)?;
        let uri = well_formed(asked)?;
        // First, as what is not allowed is left out of a registration.
        let kind = self.judge(asked)?;
        if !registered.iter().any(|registered| is_registered_as(&uri, registered.as_ref())) {
            return Err(RedirectFault::NotRegistered);
        }
        Ok(RedirectUri { text: asked.to_owned(), kind })
    }
}

impl RedirectUri {
    /// The URI itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of it that a person is shown: the host, or the scheme where that is what names the program.
    pub fn shown(&self) -> String {
        let Ok(uri) = Uri::read(&self.text) else { return String::new() };
        match self.kind {
            RedirectKind::PrivateScheme => format!("{}:", uri.scheme.to_ascii_lowercase()),
            _ => uri.host.unwrap_or_default().to_ascii_lowercase(),
        }
    }

    /// The way back with these parameters, `state` as it came, and our name (RFC 9207).
    pub fn with(&self, parameters: &[(&str, &str)], state: Option<&str>, issuer: &str) -> String {
        let state = state.map(|state| ("state", state));
        let added = to_form(parameters.iter().copied().chain(state).chain([("iss", issuer)]));
        let mark = match self.text.split_once('?') {
            None => "?",
            Some((_, query)) if query.is_empty() || query.ends_with('&') => "",
            Some(_) => "&",
        };
        format!("{}{mark}{added}", self.text)
    }
}

/// Refuses what may be neither registered nor used, whatever the configuration allows.
pub fn well_formed(text: &str) -> Result<Uri<'_>, RedirectFault> {
    if text.len() > REDIRECT_BYTES_MAX {
        return Err(RedirectFault::TooLong);
    }
    let uri = Uri::read(text)?;
    if SCHEMES_REFUSED.iter().any(|refused| uri.has_scheme(refused)) {
        return Err(RedirectFault::Scheme);
    }
    if uri.has_scheme("http") && !uri.is_loopback() {
        return Err(RedirectFault::Http);
    }
    let query = Parameters::of_query(uri.query.unwrap_or_default()).map_err(|_| RedirectFault::Parameter)?;
    if PARAMETERS_OF_ANSWERS.iter().any(|name| query.has(name)) {
        return Err(RedirectFault::Parameter);
    }
    Ok(uri)
}

/// Exactly the registered one; on this computer with any port (RFC 8252 §7.3).
fn is_registered_as(asked: &Uri<'_>, registered: &str) -> bool {
    if asked.text == registered {
        return true;
    }
    let Ok(registered) = Uri::read(registered) else { return false };
    is_loopback(asked)
        && is_loopback(&registered)
        && asked.host.zip(registered.host).is_some_and(|(one, another)| one.eq_ignore_ascii_case(another))
        && asked.path == registered.path
        && asked.query == registered.query
}

fn is_loopback(uri: &Uri<'_>) -> bool {
    uri.has_scheme("http") && uri.is_loopback()
}

fn origin_of(uri: &Uri<'_>) -> String {
    let port = uri.port.filter(|port| *port != 443).map_or_else(String::new, |port| format!(":{port}"));
    format!("https://{}{port}", uri.host.unwrap_or_default().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CURSOR: &str = "cursor://anysphere.cursor-mcp/oauth/callback";

    fn allowed() -> AllowedRedirects {
        AllowedRedirects::new(&["https://claude.ai", "https://exact.example/back?a=b", CURSOR])
            .expect("entries")
    }

    #[test]
    fn must_3_only_what_the_configuration_names_is_redirected_to() {
        for (text, expected) in [
            ("https://claude.ai/api/mcp/auth_callback", Some(RedirectKind::Https)),
            ("https://CLAUDE.ai:443/x?y=z", Some(RedirectKind::Https)),
            ("https://exact.example/back?a=b", Some(RedirectKind::Https)),
            (CURSOR, Some(RedirectKind::PrivateScheme)),
            ("http://localhost/callback", Some(RedirectKind::Loopback)),
            ("http://127.0.0.1:33418/", Some(RedirectKind::Loopback)),
            ("http://[::1]:8/cb", Some(RedirectKind::Loopback)),
            ("https://exact.example/back?a=b&c=d", None),
            ("https://exact.example/back", None),
            ("https://claude.ai.evil.example/", None),
            ("https://evil.example/claude.ai", None),
            ("https://claude.ai:8443/", None),
            ("https://sub.claude.ai/", None),
            ("https://localhost/callback", None),
            ("cursor://anysphere.cursor-mcp/oauth/callback/", None),
            ("cursor://other/oauth/callback", None),
            ("other.app:/callback", None),
        ] {
            let found = allowed().judge(text);
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{text}");
            assert!(
                found.is_ok() || matches!(found, Err(RedirectFault::NotAllowed { .. })),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn the_fault_names_the_line_that_would_allow_it() {
        for (text, line) in [
            ("https://App.example:443/cb?x", "https://app.example"),
            ("https://app.example:8443/cb", "https://app.example:8443"),
            ("app.x:/cb", "app.x:/cb"),
        ] {
            assert_eq!(allowed().judge(text), Err(RedirectFault::NotAllowed { line: line.to_owned() }));
            let with_it = AllowedRedirects::new(&[line]).expect("an entry");
            assert!(with_it.judge(text).is_ok(), "{line}");
        }
    }

    #[test]
    fn bad_input_what_is_no_redirect_uri_is_refused_whatever_is_allowed() {
        let all = [
            "javascript:alert(1)",
            "JavaScript://claude.ai/%0aalert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
        ];
        for text in all {
            assert_eq!(well_formed(text), Err(RedirectFault::Scheme), "{text}");
            assert!(AllowedRedirects::new(&[text]).is_err());
        }
        for text in [
            "http://claude.ai/",
            "http://127.0.0.2/",
            "http://localhost.evil.example/",
            "http://127.1/",
            "http://0/",
            "http://localhost@evil.example/",
            "https://claude.ai\\@evil.example/",
            "https://claude.ai/#x",
            "https://claude.ai/../x",
            "https://claude.ai/%2e%2e/x",
            "https://cl\u{430}ude.ai/",
            "https://claude.ai\u{3002}evil.example/",
            "https://claude.ai/\r\nset-cookie:a",
            "https://claude.ai/?code=x",
            "https://claude.ai/?%63ode=x",
            "https://claude.ai/?state",
            "https://claude.ai/?a=%ff",
            "//claude.ai/",
            "/callback",
            "",
        ] {
            let fault = allowed().judge(text).expect_err(text);
            assert!(!matches!(fault, RedirectFault::NotAllowed { .. }), "{text}: {fault}");
        }
        let long = format!("https://claude.ai/{}", "a".repeat(REDIRECT_BYTES_MAX));
        assert_eq!(well_formed(&long), Err(RedirectFault::TooLong));
    }

    #[test]
    fn a_client_uses_exactly_what_it_registered_and_on_this_computer_any_port() {
        let registered = [
            "http://localhost/callback",
            "http://127.0.0.1:1/a?b",
            "https://claude.ai/cb",
            "https://evil.example/",
        ];
        for (asked, expected) in [
            (Some("http://localhost/callback"), None),
            (Some("http://localhost:3118/callback"), None),
            (Some("http://127.0.0.1:54321/a?b"), None),
            (Some("https://claude.ai/cb"), None),
            (None, Some(RedirectFault::Missing)),
            (Some("http://127.0.0.1:3118/callback"), Some(RedirectFault::NotRegistered)),
            (Some("http://localhost:3118/callback/"), Some(RedirectFault::NotRegistered)),
            (Some("http://127.0.0.1:1/a?c"), Some(RedirectFault::NotRegistered)),
            (Some("https://claude.ai:443/cb"), Some(RedirectFault::NotRegistered)),
            (Some("https://claude.ai/cb?x=y"), Some(RedirectFault::NotRegistered)),
            (Some(CURSOR), Some(RedirectFault::NotRegistered)),
            (
                Some("https://evil.example/"),
                Some(RedirectFault::NotAllowed { line: "https://evil.example".to_owned() }),
            ),
        ] {
            assert_eq!(allowed().choose(&registered, asked).err(), expected, "{asked:?}");
        }
    }

    #[test]
    fn an_answer_is_added_to_the_query_that_is_there() {
        for (text, expected) in [
            ("http://localhost/cb", "http://localhost/cb?code=c%20d&state=a%26b&iss=https%3A%2F%2Fi"),
            ("http://localhost/cb?a=b", "http://localhost/cb?a=b&code=c%20d&state=a%26b&iss=https%3A%2F%2Fi"),
            ("http://localhost/cb?", "http://localhost/cb?code=c%20d&state=a%26b&iss=https%3A%2F%2Fi"),
            ("http://localhost/cb?a&", "http://localhost/cb?a&code=c%20d&state=a%26b&iss=https%3A%2F%2Fi"),
        ] {
            let uri = allowed().choose(&[text], Some(text)).expect("a redirect URI");
            assert_eq!(uri.with(&[("code", "c d")], Some("a&b"), "https://i"), expected);
        }
        let uri = allowed().choose(&[CURSOR], Some(CURSOR)).expect("a redirect URI");
        assert_eq!(uri.shown(), "cursor:");
        assert_eq!(
            uri.with(&[("error", "access_denied")], None, "i"),
            format!("{CURSOR}?error=access_denied&iss=i")
        );
    }

    proptest! {
        /// A browser is sent to this computer or to what is listed, and nowhere else.
        #[test]
        fn no_origin_is_accepted_that_is_not_listed(
            text in r"(https?|HTTPS|cursor|javascript)(:|://|:/)(claude\.ai|evil\.example|localhost|127\.0\.0\.1|\[::1\]|exact\.example)?[a-zA-Z0-9.:@/\\?#%&=\[\]-]{0,14}(/[a-z./?]{0,6})?"
        ) {
            if let Ok(uri) = allowed().choose(&[&text], Some(&text)) {
                let back = uri.with(&[("code", "x")], Some("y"), "https://i");
                let browser = url::Url::parse(&back).expect("a browser takes it");
                let origin = browser.origin().ascii_serialization();
                let is_loopback = browser.scheme() == "http"
                    && matches!(browser.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
                prop_assert!(is_loopback || origin == "https://claude.ai" || back.starts_with(CURSOR)
                    || back.starts_with("https://exact.example/back?a=b&"), "{back}");
                prop_assert_eq!(browser.query_pairs().filter(|(name, _)| name == "code").count(), 1);
                prop_assert!(browser.fragment().is_none() && browser.username().is_empty());
            }
        }

        #[test]
        fn nothing_panics(text in any::<String>()) {
            let _ = allowed().choose(&[&text], Some(&text));
            let _ = AllowedRedirects::new(&[text]);
        }
    }
}
