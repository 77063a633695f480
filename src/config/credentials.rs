//! What an upstream is shown to let the gateway in: `[upstream.NAME.tls]`, `headers`, `bearer`, `basic`,
//! `[upstream.NAME.oauth]`, and which headers of clients are handed on.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::Warning;
use super::resolve::Findings;
use super::secret::{TextOrSecret, WrittenSecret};
use super::value::{At, Key};
use super::{ConfigError, SecretSource, Url, file, server_url};

/// TLS towards an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// A file of the certificates that are believed, an absolute path; `None`: those that the system believes.
    pub ca: Option<PathBuf>,
    /// A file of the certificate that is shown, an absolute path, and its key.
    pub identity: Option<(PathBuf, SecretSource)>,
    /// The name that is asked for and checked, where it is not the host's.
    pub server_name: Option<String>,
}

/// How an upstream knows the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Headers of every request; none is reserved.
    pub headers: Vec<(HeaderName, HeaderSource)>,
    /// What `Authorization` says, where that is not among the headers.
    pub authorization: Option<Authorization>,
    /// Headers of clients that are handed on; none is reserved or holds credentials.
    pub forward: Vec<HeaderName>,
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderSource {
    /// Written in the configuration.
    Text(HeaderValue),
    /// Read from elsewhere.
    Secret(SecretSource),
}

/// What `Authorization` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// `Bearer` and a token.
    Bearer(SecretSource),
    /// `Basic`.
    Basic {
        /// Holds no colon.
        user: String,
        /// Its password.
        password: SecretSource,
    },
    /// `Bearer` and a token that is fetched.
    OAuth(Box<OAuth>),
}

/// OAuth 2.0 client credentials (RFC 6749 §4.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuth {
    /// `https`, or `http` to a loopback address.
    pub token_url: String,
    /// Who the gateway is there.
    pub client_id: String,
    /// How it proves that.
    pub client_secret: SecretSource,
    /// What it asks for.
    pub scopes: Vec<String>,
    /// What the token is for (RFC 8707).
    pub resource: Option<String>,
    /// Where id and secret are put.
    pub client_auth: ClientAuth,
    /// A file of the certificates that are believed of the token endpoint, an absolute path.
    pub ca: Option<PathBuf>,
}

/// Where the id and the secret of an OAuth client are put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// In `Authorization: Basic`.
    #[default]
    Basic,
    /// In the body.
    Post,
}

/// TLS towards an upstream; for `https` URLs. A certificate is always checked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
#[schemars(rename = "UpstreamTls")]
pub(super) struct WrittenTls {
    /// A file of the certificates that are believed, in PEM; an absolute path. Default: what the system believes.
    #[schemars(example = "/etc/trunkline/upstream-ca.pem")]
    ca: Key<String>,
    /// A file of the certificate that is shown to the server, in PEM; an absolute path. Default: none is shown.
    certificate: Key<String>,
    /// The private key of `certificate`, in PEM.
    key: Key<WrittenSecret>,
    /// The name that is asked for and that the server's certificate must be for. Default: the host of the URL.
    server_name: Key<String>,
}

/// A user and a password.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
#[schemars(extend("required" = ["user", "password"]))]
pub(super) struct WrittenBasic {
    /// The user; without a colon.
    user: Key<String>,
    /// The password.
    password: Key<WrittenSecret>,
}

/// A token that is fetched with OAuth 2.0 client credentials, and again before it expires.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
#[schemars(rename = "OAuth", extend("required" = ["token_url", "client_id", "client_secret"]))]
pub(super) struct WrittenOAuth {
    /// Where tokens are fetched: `https`, or `http` to this machine.
    #[schemars(example = "https://issuer.example.com/token")]
    token_url: Key<String>,
    /// Who the gateway is there.
    client_id: Key<String>,
    /// How it proves that.
    client_secret: Key<WrittenSecret>,
    /// What it asks for.
    #[schemars(extend("default" = []))]
    scopes: Key<Vec<At<String>>>,
    /// What the token is for (RFC 8707), mostly the URL of the upstream. Default: it is not said.
    resource: Key<String>,
    /// Where id and secret are put: in the header `Authorization` (`basic`), or in the body (`post`).
    #[schemars(extend("default" = "basic"))]
    client_auth: Key<ClientAuth>,
    /// A file of the certificates that are believed of `token_url`, in PEM; an absolute path. Default: what the system
    /// believes.
    ca: Key<String>,
}

/// What is written of it in `[upstream.NAME]`.
pub(super) type WrittenHeaders = BTreeMap<At<String>, At<TextOrSecret>>;

/// Resolves both; `urls` are those of the upstream.
pub(super) fn resolve(
    written: &file::Upstream,
    urls: &[Url],
    findings: &mut Findings,
) -> (ClientTls, Credentials) {
    if written.command.0.is_some() {
        refuse_for_children(written, findings);
        return Default::default();
    }
    let tls = tls(written, urls, findings);
    let headers = headers(written, findings);
    let authorization = authorization(written, &headers, findings);
    let forward = forward(written, &headers, findings);
    let credentials = Credentials { headers, authorization, forward };
    warn_of_clear_text(written, &credentials, urls, findings);
    (tls, credentials)
}

fn refuse_for_children(written: &file::Upstream, findings: &mut Findings) {
    let of_http = [
        ("tls", written.tls.span()),
        ("headers", written.headers.span()),
        ("bearer", written.bearer.span()),
        ("basic", written.basic.span()),
        ("oauth", written.oauth.span()),
        ("forward_headers", written.forward_headers.span()),
    ];
    for (key, span) in of_http {
        if let Some(span) = span {
            let message =
                format!("`{key}` is for upstreams with a URL: a child process gets its credentials in `env`");
            findings.errors.push(ConfigError::new(span, message).secret());
        }
    }
}

fn tls(written: &file::Upstream, urls: &[Url], findings: &mut Findings) -> ClientTls {
    let Some(At { value: tls, span }) = &written.tls.0 else { return ClientTls::default() };
    if !urls.is_empty() && urls.iter().all(|url| !url.is_tls) {
        findings.error(span.clone(), "`tls` is for URLs that begin with `https://`: this upstream has none");
    }
    let server_name = tls.server_name.0.as_ref().map(|At { value, span }| {
        if rustls::pki_types::ServerName::try_from(value.as_str()).is_err() {
            findings.error(span.clone(), "not the name of a server: write a host name or an IP address");
        }
        value.clone()
    });
    let identity = match (&tls.certificate.0, &tls.key.0) {
        (Some(certificate), Some(key)) => {
            absolute(certificate, findings).zip(WrittenSecret::resolve(key, findings))
        }
        (Some(At { span, .. }), None) => {
            findings.error(span.clone(), "`certificate` needs its `key`: write `key = { file = \"…\" }`");
            None
        }
        (None, Some(At { span, .. })) => {
            findings.error(span.clone(), "`key` needs the `certificate` it belongs to");
            None
        }
        (None, None) => None,
    };
    let ca = tls.ca.0.as_ref().and_then(|ca| absolute(ca, findings));
    ClientTls { ca, identity, server_name }
}

fn absolute(At { value, span }: &At<String>, findings: &mut Findings) -> Option<PathBuf> {
    let is_absolute = value.starts_with('/') && !value.contains('\0');
    if !is_absolute {
        findings.error(span.clone(), "not an absolute path");
    }
    is_absolute.then(|| PathBuf::from(value))
}

fn headers(written: &file::Upstream, findings: &mut Findings) -> Vec<(HeaderName, HeaderSource)> {
    let mut headers: Vec<(HeaderName, HeaderSource)> = Vec::new();
    for (name, At { value, span }) in written.headers.value().into_iter().flatten() {
        let Some(header) = header_name(name, findings) else { continue };
        if headers.iter().any(|(earlier, _)| *earlier == header) {
            findings.error(name.span.clone(), "the same header twice: their case does not count");
            continue;
        }
        let refused = |message: String| ConfigError::new(span.clone(), message).secret();
        let source = match value {
            TextOrSecret::Text(_) if looks_secret(header.as_str()) => {
                let message = format!(
                    "the value of `{header}` may be a secret and cannot stand here: write where it is read from, as in \
                     `{{ file = \"/etc/trunkline/secret\" }}`, `{{ env = \"NAME\" }}` or `{{ credential = \"NAME\" }}`"
                );
                findings.errors.push(refused(message));
                None
            }
            TextOrSecret::Text(text) => {
                let value = HeaderValue::from_str(text).ok();
                if value.is_none() {
                    findings.errors.push(refused(format!("not a value that the header `{header}` can have")));
                }
                value.map(HeaderSource::Text)
            }
            TextOrSecret::Secret(secret) => {
                let secret = At { value: secret.clone(), span: span.clone() };
                WrittenSecret::resolve(&secret, findings).map(HeaderSource::Secret)
            }
        };
        headers.extend(source.map(|source| (header, source)));
    }
    headers
}

fn authorization(
    written: &file::Upstream,
    headers: &[(HeaderName, HeaderSource)],
    findings: &mut Findings,
) -> Option<Authorization> {
    let in_headers = headers.iter().any(|(name, _)| name == http::header::AUTHORIZATION);
    let header_span = written.headers.span().filter(|_| in_headers);
    let ways = [header_span, written.bearer.span(), written.basic.span(), written.oauth.span()];
    for superfluous in ways.into_iter().flatten().skip(1) {
        let message = "`bearer`, `basic`, `oauth` and a header `authorization` exclude each other: keep one";
        findings.errors.push(ConfigError::new(superfluous, message).secret());
    }
    if let Some(bearer) = &written.bearer.0 {
        return WrittenSecret::resolve(bearer, findings).map(Authorization::Bearer);
    }
    if let Some(At { value, span }) = &written.basic.0 {
        return basic(value, span, findings);
    }
    let At { value, span } = written.oauth.0.as_ref()?;
    oauth(value, span, findings).map(|oauth| Authorization::OAuth(Box::new(oauth)))
}

fn basic(written: &WrittenBasic, table: &Range<usize>, findings: &mut Findings) -> Option<Authorization> {
    let user = required(&written.user, table, "`basic` has no `user`", findings);
    let password = required(&written.password, table, "`basic` has no `password`", findings);
    let user = user.map(|At { value, span }| {
        if value.contains(':') || value.chars().any(char::is_control) {
            findings.error(span.clone(), "a user holds no colon and no control characters");
        }
        value.clone()
    });
    let password = password.and_then(|password| WrittenSecret::resolve(password, findings));
    user.zip(password).map(|(user, password)| Authorization::Basic { user, password })
}

fn oauth(written: &WrittenOAuth, table: &Range<usize>, findings: &mut Findings) -> Option<OAuth> {
    let token_url = required(&written.token_url, table, "`oauth` has no `token_url`", findings);
    let client_id = required(&written.client_id, table, "`oauth` has no `client_id`", findings);
    let client_secret = required(&written.client_secret, table, "`oauth` has no `client_secret`", findings);
    if let Some(At { value, span }) = token_url
        && let Err(message) = check_token_url(value)
    {
        findings.errors.push(ConfigError::new(span.clone(), message).secret());
    }
    if let Some(At { value, span }) = &written.resource.0
        && (value.parse::<http::Uri>().map_or(true, |uri| uri.scheme().is_none()) || value.contains('#'))
    {
        findings.error(span.clone(), "not a resource: write an absolute URL without `#`");
    }
    let mut scopes = Vec::new();
    for At { value, span } in written.scopes.value().into_iter().flatten() {
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
        {
            findings
                .error(span.clone(), "not a scope: scopes hold no spaces and quotes; name each by itself");
        }
        scopes.push(value.clone());
    }
    let ca = written.ca.0.as_ref().and_then(|ca| absolute(ca, findings));
    let client_secret = client_secret.and_then(|secret| WrittenSecret::resolve(secret, findings))?;
    Some(OAuth {
        token_url: token_url?.value.clone(),
        client_id: client_id?.value.clone(),
        client_secret,
        scopes,
        resource: written.resource.value().cloned(),
        client_auth: written.client_auth.value().copied().unwrap_or_default(),
        ca,
    })
}

/// [`Findings::required`] shows the line, which may hold a secret.
fn required<'k, T>(
    key: &'k Key<T>,
    table: &Range<usize>,
    message: &str,
    findings: &mut Findings,
) -> Option<&'k At<T>> {
    if key.0.is_none() && !findings.damaged.table(table) {
        findings.errors.push(ConfigError::new(table.clone(), message).secret());
    }
    key.0.as_ref()
}

fn check_token_url(text: &str) -> Result<(), &'static str> {
    let url = server_url(text)?;
    if !url.is_tls && !is_loopback(&url.host) {
        return Err("secrets are sent there: write a URL that begins with `https://`");
    }
    Ok(())
}

fn forward(
    written: &file::Upstream,
    headers: &[(HeaderName, HeaderSource)],
    findings: &mut Findings,
) -> Vec<HeaderName> {
    let mut forward = Vec::new();
    for name in written.forward_headers.value().into_iter().flatten() {
        let Some(header) = header_name(name, findings) else { continue };
        let message =
            if ["authorization", "proxy-authorization", "cookie", "origin"].contains(&header.as_str()) {
                Some("is never handed on: what a client shows the gateway is for the gateway alone")
            } else if headers.iter().any(|(own, _)| *own == header) {
                Some("is among `headers` already: keep one")
            } else if forward.contains(&header) {
                Some("is named twice")
            } else {
                None
            };
        match message {
            Some(message) => findings.error(name.span.clone(), format!("`{header}` {message}")),
            None => forward.push(header),
        }
    }
    forward
}

/// The name of a header that an operator may speak of.
fn header_name(At { value, span }: &At<String>, findings: &mut Findings) -> Option<HeaderName> {
    let Ok(name) = value.parse::<HeaderName>() else {
        findings.errors.push(ConfigError::new(span.clone(), "not the name of a header").secret());
        return None;
    };
    if is_reserved(name.as_str()) {
        findings.error(span.clone(), format!("`{name}` is written by the gateway itself"));
        return None;
    }
    Some(name)
}

/// Whether a header belongs to the transport, or to the protocol; in lower case.
pub fn is_reserved(name: &str) -> bool {
    let of_transport = [
        "accept",
        "accept-encoding",
        "connection",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    of_transport.contains(&name) || name.starts_with("content-") || name.starts_with("mcp-")
}

/// Whether what goes by this name is likely to be a secret.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let marks = [
        "auth",
        "bearer",
        "cookie",
        "credential",
        "key",
        "pass",
        "private",
        "secret",
        "session",
        "signature",
        "token",
    ];
    marks.iter().any(|mark| name.contains(mark))
}

fn warn_of_clear_text(
    written: &file::Upstream,
    credentials: &Credentials,
    urls: &[Url],
    findings: &mut Findings,
) {
    let has_secret = credentials.authorization.is_some()
        || credentials.headers.iter().any(|(_, source)| matches!(source, HeaderSource::Secret(_)));
    let span = written.url.span().or_else(|| written.urls.span());
    if let Some(span) = span
        && has_secret
        && urls.iter().any(|url| !url.is_tls && !is_loopback(&url.host))
    {
        let message = "credentials are sent over the network in clear text: use `https://`".to_owned();
        findings.warnings.push(Warning::new(span, message));
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
