//! What an upstream is shown to let the gateway in: `[upstream.NAME.tls]`, `headers`, `bearer`, `basic`,
//! `[upstream.NAME.oauth]`, and which headers of clients are handed on.

use std::collections::BTreeSet;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};

use super::array::{Array, Map};
use super::findings::Findings;
use super::secret::{SecretPlace, SecretSource, TextOrSecret};
use super::section::{Group, section};
use super::table::Table;
use super::text::{AbsolutePath, Any, Fault, Scope, checked, texts};
use super::url::{Url, server_url};
use super::value::choice;

/// How an upstream knows the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Headers of every request; none is reserved.
    pub headers: Vec<(HeaderName, HeaderSource)>,
    /// Parameters that stand in the query of every request, after those of the URL.
    pub query: Vec<(String, QuerySource)>,
    /// What `Authorization` says, where that is not among the headers.
    pub authorization: Option<Authorization>,
    /// Headers of clients that are handed on; none is reserved or holds credentials.
    pub forward: Vec<HeaderName>,
}

section! {
    /// What is written of an upstream's credentials.
    pub struct CredentialKeys {
        /// Headers of every request to it: text, or where a secret is read from. What may be a secret by its name cannot
        /// be text.
        #[example({ "x-tenant" = "acme", "x-api-key" = { env = "WEATHER_KEY" } })]
        headers: Option<Map<TextOrSecret>>,
        /// Parameters that stand in the query of every request to its URL: text, or where a secret is read from. What may
        /// be a secret by its name cannot be text.
        #[example({ "apiKey" = { env = "SEARCH_KEY" } })]
        query: Option<Map<TextOrSecret>>,
        /// The token that it is shown as `Authorization: Bearer`.
        #[example({ file = "/etc/trunkline/weather-token" })]
        bearer: Option<SecretPlace>,
        /// The user and the password that it is shown as `Authorization: Basic`.
        #[example({ user = "gateway", password = { credential = "archive-password" } })]
        basic: Option<Basic>,
        /// How the token is fetched that it is shown as `Authorization: Bearer`.
        oauth: Option<OAuth>,
        /// Headers of a client's requests that are handed on to it; nothing else of what clients show crosses. They go
        /// with all that is sent for this client, its lists and its session with the server included; probes and whatever
        /// else the gateway asks for itself go without them.
        #[example(["x-user"])]
        forward_headers: Option<Array<HeaderKey>>,
    }
    check credentials => Credentials;
}

section! {
    /// A user and a password.
    pub struct Basic {
        /// The user; without a colon.
        #[example("gateway")]
        user: User,
        /// The password.
        #[example({ credential = "archive-password" })]
        password: SecretPlace,
    }
}

section! {
    /// A token that is fetched with OAuth 2.0 client credentials (RFC 6749 §4.4), and again before it expires.
    pub struct OAuth {
        /// Where tokens are fetched: `https`, or `http` to this machine.
        #[example("https://issuer.example.com/token")]
        token_url: TokenUrl,
        /// Who the gateway is there.
        #[example("trunkline")]
        client_id: Any,
        /// How it proves that.
        #[example({ file = "/etc/trunkline/client-secret" })]
        client_secret: SecretPlace,
        /// What it asks for.
        #[example(["files.read"])]
        scopes: Array<Scope> = [],
        /// What the token is for (RFC 8707), mostly the URL of the upstream. Default: it is not said.
        #[example("https://files.example.com/mcp")]
        resource: Option<Resource>,
        /// Where id and secret are put: in the header `Authorization` (`basic`), or in the body (`post`).
        client_auth: ClientAuth = "basic",
        /// A file of the certificates that are believed of `token_url`, in PEM; an absolute path. Default: what the system
        /// believes.
        #[example("/etc/trunkline/issuer-ca.pem")]
        ca: Option<AbsolutePath>,
    }
}

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

section! {
    /// TLS towards an upstream; for `https` URLs. A certificate is always checked: against what the system believes, or
    /// those in `ca` alone.
    pub struct UpstreamTls {
        /// A file of the certificates that are believed, in PEM; an absolute path. Default: what the system believes.
        #[example("/etc/trunkline/upstream-ca.pem")]
        ca: Option<AbsolutePath>,
        /// A file of the certificate that is shown to the server, in PEM; an absolute path. Default: none is shown.
        #[example("/etc/trunkline/client.pem")]
        certificate: Option<AbsolutePath>,
        /// The private key of `certificate`, in PEM.
        #[example({ file = "/etc/trunkline/client.key" })]
        key: Option<SecretPlace>,
        /// The name that is asked for and that the server's certificate must be for. Default: the host of the URL.
        #[example("files.example.com")]
        server_name: Option<ServerName>,
    }
    check client_tls => ClientTls;
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderSource {
    /// Written in the configuration.
    Text(HeaderValue),
    /// Read from elsewhere.
    Secret(SecretSource),
}

/// The value of a parameter in a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuerySource {
    /// Written in the configuration.
    Text(String),
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

choice! {
    /// Where the id and the secret of an OAuth client are put.
    pub enum ClientAuth {
        /// In `Authorization: Basic`.
        Basic = "basic",
        /// In the body.
        Post = "post",
    }
}

texts! {
    /// The name of a header that an operator may speak of.
    pub HeaderKey -> HeaderName, "", header_name, secret: true;
    /// A user.
    pub User -> String, "", |text: &str| checked(
        text,
        !text.contains(':') && !text.chars().any(char::is_control),
        "a user holds no colon and no control characters",
    ), secret: true;
    /// Where tokens are fetched.
    pub TokenUrl -> String, "^[Hh][Tt][Tt][Pp][Ss]?://[^@#]+$", |text: &str| {
        let url = server_url(text)?;
        checked(
            text,
            url.is_tls || url.is_loopback(),
            "secrets are sent there: write a URL that begins with `https://`",
        )
    };
    /// What a token is for.
    pub Resource -> String, "^[^#]+$", |text: &str| checked(
        text,
        text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some()) && !text.contains('#'),
        "not a resource: write an absolute URL without `#`",
    );
    /// The name of a server.
    pub ServerName -> String, "", |text: &str| checked(
        text,
        rustls::pki_types::ServerName::try_from(text).is_ok(),
        "not the name of a server: write a host name or an IP address",
    );
}

fn client_tls(tls: UpstreamTls, table: Table<'_>, findings: &mut Findings) -> ClientTls {
    if !table.has("key") {
        findings.error_at(
            table,
            "certificate",
            "`certificate` needs its `key`: write `key = { file = \"…\" }`",
        );
    }
    if !table.has("certificate") {
        findings.error_at(table, "key", "`key` needs the `certificate` it belongs to");
    }
    ClientTls { ca: tls.ca, identity: tls.certificate.zip(tls.key), server_name: tls.server_name }
}

fn credentials(keys: CredentialKeys, table: Table<'_>, findings: &mut Findings) -> Credentials {
    if table.has("command") {
        let mut of_http = vec!["tls"];
        CredentialKeys::keys(&mut of_http);
        for key in of_http {
            if let Some(span) = findings.span(table, key) {
                let message = format!(
                    "`{key}` is for upstreams with a URL: a child process gets its credentials in `env`"
                );
                findings.secret_error(span, message);
            }
        }
        return Credentials::default();
    }
    let headers = headers(keys.headers.unwrap_or_default(), table.table("headers"), findings);
    check_one_authorization(&headers, table, findings);
    let basic = keys.basic.map(|Basic { user, password }| Authorization::Basic { user, password });
    let oauth = keys.oauth.map(|oauth| Authorization::OAuth(Box::new(oauth)));
    let authorization = keys.bearer.map(Authorization::Bearer).or(basic).or(oauth);
    check_forward(&headers, table, findings);
    let query = query(keys.query.unwrap_or_default(), table.table("query"), findings);
    Credentials { headers, query, authorization, forward: keys.forward_headers.unwrap_or_default() }
}

fn headers(
    written: Vec<(String, TextOrSecret)>,
    table: Table<'_>,
    findings: &mut Findings,
) -> Vec<(HeaderName, HeaderSource)> {
    let mut headers: Vec<(HeaderName, HeaderSource)> = Vec::new();
    for (name, value) in written {
        let Some((key, node)) = table.entries().find(|(key, _)| *key.get_ref() == name) else { continue };
        let header = match header_name(&name) {
            Ok(header) if headers.iter().any(|(earlier, _)| *earlier == header) => {
                findings.error(key.span(), "the same header twice: their case does not count");
                continue;
            }
            Ok(header) => header,
            Err(fault) => {
                findings.secret_error(key.span(), fault);
                continue;
            }
        };
        match header_source(&header, value) {
            Ok(source) => headers.push((header, source)),
            Err(message) => findings.secret_error(node.span(), message),
        }
    }
    headers
}

fn query(
    written: Vec<(String, TextOrSecret)>,
    table: Table<'_>,
    findings: &mut Findings,
) -> Vec<(String, QuerySource)> {
    let mut query = Vec::new();
    for (name, value) in written {
        let Some((key, node)) = table.entries().find(|(key, _)| *key.get_ref() == name) else { continue };
        if name.is_empty() {
            findings.error(key.span(), "a parameter has a name");
            continue;
        }
        match value {
            TextOrSecret::Text(_) if looks_secret(&name) => {
                let message = format!(
                    "the value of `{name}` may be a secret and cannot stand here: write where it is read from, as in \
                     `{{ file = \"/etc/trunkline/secret\" }}`, `{{ env = \"NAME\" }}` or `{{ credential = \"NAME\" }}`"
                );
                findings.secret_error(node.span(), message);
            }
            TextOrSecret::Text(text) => query.push((name, QuerySource::Text(text))),
            TextOrSecret::Secret(source) => query.push((name, QuerySource::Secret(source))),
        }
    }
    query
}

/// Warns of a key in the query of a URL, which stands there in clear text.
pub(super) fn check_queries(urls: &[Url], table: Table<'_>, findings: &mut Findings) {
    let names = urls.iter().filter_map(|url| url.path_and_query.split_once('?'));
    let secret = names.flat_map(|(_, query)| query.split('&')).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        (looks_secret(name) && !value.is_empty()).then(|| name.to_owned())
    });
    let span = findings.span(table, "url").or_else(|| findings.span(table, "urls"));
    if let (Some(span), Some(name)) = (span, secret) {
        let message = format!(
            "`{name}` in the query of this URL looks like a secret in clear text: write \
             `query = {{ {name} = {{ file = \"/etc/trunkline/secret\" }} }}` instead"
        );
        findings.secret_warning(span, message);
    }
}

fn header_source(header: &HeaderName, value: TextOrSecret) -> Result<HeaderSource, String> {
    match value {
        TextOrSecret::Secret(source) => Ok(HeaderSource::Secret(source)),
        TextOrSecret::Text(_) if looks_secret(header.as_str()) => Err(format!(
            "the value of `{header}` may be a secret and cannot stand here: write where it is read from, as in \
             `{{ file = \"/etc/trunkline/secret\" }}`, `{{ env = \"NAME\" }}` or `{{ credential = \"NAME\" }}`"
        )),
        TextOrSecret::Text(text) => HeaderValue::from_str(&text)
            .map(HeaderSource::Text)
            .map_err(|_| format!("not a value that the header `{header}` can have")),
    }
}

fn check_one_authorization(
    headers: &[(HeaderName, HeaderSource)],
    table: Table<'_>,
    findings: &mut Findings,
) {
    let in_headers = headers.iter().any(|(name, _)| name == http::header::AUTHORIZATION);
    let ways =
        ["headers", "bearer", "basic", "oauth"].into_iter().filter(|way| *way != "headers" || in_headers);
    let spans: Vec<_> = ways.filter_map(|way| findings.span(table, way)).collect();
    for superfluous in spans.into_iter().skip(1) {
        let message = "`bearer`, `basic`, `oauth` and a header `authorization` exclude each other: keep one";
        findings.secret_error(superfluous, message);
    }
}

fn check_forward(headers: &[(HeaderName, HeaderSource)], table: Table<'_>, findings: &mut Findings) {
    let mut distinct = BTreeSet::new();
    for (text, span) in table.texts("forward_headers") {
        let Ok(header) = header_name(text) else { continue };
        let message =
            if ["authorization", "proxy-authorization", "cookie", "origin"].contains(&header.as_str()) {
                "is never handed on: what a client shows the gateway is for the gateway alone"
            } else if headers.iter().any(|(own, _)| *own == header) {
                "is among `headers` already: keep one"
            } else if !distinct.insert(header.as_str().to_owned()) {
                "is named twice"
            } else {
                continue;
            };
        findings.error(span, format!("`{header}` {message}"));
    }
}

fn header_name(text: &str) -> Result<HeaderName, Fault> {
    let name: HeaderName = text.parse().map_err(|_| "not the name of a header")?;
    if is_reserved(name.as_str()) {
        return Err(format!("`{name}` is written by the gateway itself").into());
    }
    Ok(name)
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

/// TLS needs a URL that is reached over it, and secrets need TLS.
pub(super) fn check_urls(urls: &[Url], credentials: &Credentials, table: Table<'_>, findings: &mut Findings) {
    if !urls.is_empty() && urls.iter().all(|url| !url.is_tls) {
        findings.error_at(
            table,
            "tls",
            "`tls` is for URLs that begin with `https://`: this upstream has none",
        );
    }
    let has_secret = credentials.authorization.is_some()
        || credentials.headers.iter().any(|(_, source)| matches!(source, HeaderSource::Secret(_)))
        || credentials.query.iter().any(|(_, source)| matches!(source, QuerySource::Secret(_)));
    let span = findings.span(table, "url").or_else(|| findings.span(table, "urls"));
    if let Some(span) = span
        && has_secret
        && urls.iter().any(|url| !url.is_tls && !url.is_loopback())
    {
        findings.warning(span, "credentials are sent over the network in clear text: use `https://`");
    }
}
