//! `[[jwt]]`, `[client_certificate]` and what API keys say of their holders.
//!
//! Whether an issuer's keys can be had is not known here: a file is read, and a URL fetched, by the gateway's `access::auth`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use globset::Glob;
use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::ConfigError;
use super::file::{self, File};
use super::resolve::{Findings, absolute};
use super::value::{At, DAY_MS, HOUR_MS, Key, MINUTE_MS, Period, SECOND_MS};
use super::{AuthMethod, CertificateDemand, Endpoint, Listener};

const ISSUER_BYTES_MAX: usize = 512;
const WORD_BYTES_MAX: usize = 256;
const ALL_ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// `[[jwt]]`: an issuer whose tokens clients may present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    /// Its name in metrics and logs; satisfies [`super::is_key_name`].
    pub name: String,
    /// What `iss` is, byte for byte.
    pub issuer: String,
    /// Where its public keys are.
    pub keys: KeySource,
    /// The certificates that its server's must be signed by; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The algorithms it may sign with; at least one.
    pub algorithms: Vec<Algorithm>,
    /// What `aud` may be at every endpoint, beside what each endpoint says.
    pub audiences: Vec<String>,
    /// By how much clocks may differ.
    pub leeway: Duration,
    /// The claim that names the principal.
    pub subject_claim: String,
    /// The claim with its groups.
    pub groups_claim: String,
    /// The claim with its scopes; `None`: `scope`, or else `scp`.
    pub scope_claim: Option<String>,
    /// Time after which keys are read again.
    pub jwks_refresh_interval: Duration,
    /// Time for which keys are used while they cannot be read again.
    pub jwks_stale_max: Duration,
}

/// Where the public keys of an issuer are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A web server: `https`, or `http` on a loopback address.
    Url(Uri),
    /// A file.
    File(PathBuf),
}

/// How a token may be signed: always with a private key, so that what checks it is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "they are the names of RFC 7518 and RFC 8037")]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

/// `[client_certificate]`: whom the certificates of clients name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// Which of its alternative names is the principal's.
    pub name: SubjectName,
    /// Groups, and globs over the names of their members.
    pub groups: Vec<(String, Vec<String>)>,
    /// Scopes, and globs over the names they are granted to.
    pub scopes: Vec<(String, Vec<String>)>,
}

/// A kind of subject alternative name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SubjectName {
    /// A URI, such as a SPIFFE ID.
    #[default]
    Uri,
    /// A DNS name.
    Dns,
    /// An e-mail address.
    Email,
}

/// An issuer of tokens (JWT) that clients may present as `Authorization: Bearer TOKEN`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Jwt", extend(
    "required" = ["name", "issuer"],
    "oneOf" = [{ "required": ["jwks_url"] }, { "required": ["jwks_file"] }],
))]
pub(super) struct JwtFile {
    /// Its name in metrics and logs.
    #[schemars(extend("pattern" = "^[A-Za-z0-9._@-]{1,64}$"))]
    pub(super) name: Key<String>,
    /// What the claim `iss` of its tokens is, byte for byte. Clients are told it as their authorization server.
    #[schemars(example = "https://login.example.com")]
    pub(super) issuer: Key<String>,
    /// The URL of its public keys (JWKS): `https`, or `http` on a loopback address.
    #[schemars(example = "https://login.example.com/.well-known/jwks.json")]
    pub(super) jwks_url: Key<String>,
    /// A file (PEM) with the certificates that its server's must be signed by. Default: those that the system trusts.
    pub(super) ca: Key<String>,
    /// A file with its public keys (JWKS) instead; an absolute path.
    #[schemars(example = "/etc/trunkline/jwks.json")]
    pub(super) jwks_file: Key<String>,
    /// The algorithms it may sign with. Default: all of these.
    #[schemars(extend("minItems" = 1))]
    pub(super) algorithms: Key<Vec<At<Algorithm>>>,
    /// What the claim `aud` may be at every endpoint, beside the endpoint's `public_url` and `audiences`.
    /// Default: none.
    pub(super) audiences: Key<Vec<At<String>>>,
    /// By how much the issuer's clock and this one may differ; 0s to 5m. Default: 30s.
    pub(super) leeway: Key<Period<0, { 5 * MINUTE_MS }>>,
    /// The claim that names the principal. A claim within another is written `outer.inner`. Default: `sub`.
    pub(super) subject_claim: Key<String>,
    /// The claim with the groups of the principal: a text or an array. Default: `groups`.
    pub(super) groups_claim: Key<String>,
    /// The claim with the scopes that were granted: a text with spaces between them, or an array. Default: `scope`, or
    /// else `scp`.
    pub(super) scope_claim: Key<String>,
    /// Time after which the keys are read again; 10s to 24h. A token with an unknown key asks for it, too.
    /// Default: 10m.
    pub(super) jwks_refresh_interval: Key<Period<{ 10 * SECOND_MS }, DAY_MS>>,
    /// Time for which the last keys are used while new ones cannot be had; 1m to 720h. Default: 24h.
    pub(super) jwks_stale_max: Key<Period<MINUTE_MS, { 30 * 24 * HOUR_MS }>>,
}

/// Whom the certificates of clients name, where a listener checks them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClientCertificate")]
pub(super) struct ClientCertificateFile {
    /// Which subject alternative name is the principal's. A certificate must have exactly one of that kind.
    /// Default: `uri`.
    pub(super) name: Key<SubjectName>,
    /// Groups, each with globs over the names of its members. Default: none.
    pub(super) groups: Key<BTreeMap<String, Vec<At<String>>>>,
    /// Scopes, each with globs over the names it is granted to. Default: none.
    pub(super) scopes: Key<BTreeMap<String, Vec<At<String>>>>,
}

/// All issuers, with distinct names and issuers.
pub(super) fn issuers(file: &File, findings: &mut Findings) -> Vec<Jwt> {
    let (mut names, mut identifiers) = (BTreeSet::new(), BTreeSet::new());
    let mut issuers = Vec::new();
    for At { value: jwt, span } in &file.jwt {
        let message = "the issuer has no `name`: choose one for metrics and logs";
        let name = findings.required(&jwt.name, span, message);
        if let Some(At { value: name, span }) = name {
            if !super::is_key_name(name) {
                let message = "not a name: use 1 to 64 letters, digits and `.`, `_`, `@`, `-`";
                findings.error(span.clone(), message);
            } else if !names.insert(name) {
                findings.error(span.clone(), format!("two [[jwt]] are named `{name}`: choose another name"));
            }
        }
        let message = "no `issuer`: write what the claim `iss` of its tokens is";
        let issuer = findings.required(&jwt.issuer, span, message);
        if let Some(At { value: issuer, span }) = issuer {
            if !is_plain(issuer, ISSUER_BYTES_MAX) {
                let message = "not an issuer: 1 to 512 bytes of visible ASCII, mostly a URL";
                findings.error(span.clone(), message);
            } else if !identifiers.insert(issuer) {
                let message = format!("two [[jwt]] have the issuer `{issuer}`: one set of keys decides");
                findings.error(span.clone(), message);
            }
        }
        let keys = key_source(jwt, span, findings);
        let audiences = plain_words(&jwt.audiences, "an audience", findings);
        if let (Some(name), Some(issuer), Some(keys)) = (name, issuer, keys) {
            issuers.push(Jwt {
                name: name.value.clone(),
                issuer: issuer.value.clone(),
                keys,
                ca: absolute(&jwt.ca, "/etc/trunkline/issuer-ca.pem", findings),
                algorithms: algorithms(jwt, findings),
                audiences,
                leeway: jwt.leeway.or(Duration::from_secs(30)),
                subject_claim: claim(&jwt.subject_claim, findings).unwrap_or_else(|| "sub".into()),
                groups_claim: claim(&jwt.groups_claim, findings).unwrap_or_else(|| "groups".into()),
                scope_claim: claim(&jwt.scope_claim, findings),
                jwks_refresh_interval: jwt.jwks_refresh_interval.or(Duration::from_mins(10)),
                jwks_stale_max: jwt.jwks_stale_max.or(Duration::from_hours(24)),
            });
        }
    }
    issuers
}

fn algorithms(jwt: &JwtFile, findings: &mut Findings) -> Vec<Algorithm> {
    let Some(At { value: written, span }) = &jwt.algorithms.0 else { return ALL_ALGORITHMS.to_vec() };
    if written.is_empty() {
        findings.error(span.clone(), "`algorithms` is empty, so every token would be refused");
    }
    written.iter().map(|algorithm| algorithm.value).collect()
}

fn key_source(jwt: &JwtFile, span: &std::ops::Range<usize>, findings: &mut Findings) -> Option<KeySource> {
    match (&jwt.jwks_url.0, &jwt.jwks_file.0) {
        (Some(url), None) => {
            let uri = jwks_url(&url.value);
            if uri.is_none() {
                let message = "not a URL to fetch keys from: write `https://host/path`, or `http` on a loopback \
                               address, without user and fragment";
                let error = ConfigError::new(url.span.clone(), message);
                findings.errors.push(if url.value.contains('@') { error.secret() } else { error });
            }
            uri.map(KeySource::Url)
        }
        (None, Some(_)) => {
            absolute(&jwt.jwks_file, "/etc/trunkline/jwks.json", findings).map(KeySource::File)
        }
        (Some(_), Some(file)) => {
            findings.error(file.span.clone(), "both `jwks_url` and `jwks_file`: keep one of them");
            None
        }
        (None, None) => {
            if !findings.damaged.table(span) {
                let message = "no keys: write `jwks_url`, or `jwks_file`, with the issuer's public keys";
                findings.error(span.clone(), message);
            }
            None
        }
    }
}

/// Keys that somebody on the way could change would let anybody in.
fn jwks_url(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let host = uri.host()?;
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let is_safe = match uri.scheme_str()? {
        "https" => true,
        "http" => is_loopback,
        _ => false,
    };
    (is_safe && !text.contains(['@', '#'])).then_some(uri)
}

fn claim(written: &Key<String>, findings: &mut Findings) -> Option<String> {
    let At { value, span } = written.0.as_ref()?;
    if value.is_empty() || value.len() > WORD_BYTES_MAX {
        findings.error(span.clone(), "not the name of a claim: 1 to 256 bytes");
    }
    Some(value.clone())
}

/// `[client_certificate]`, if it is there.
pub(super) fn client_certificates(file: &File, findings: &mut Findings) -> Option<CertificateNames> {
    let written = file.client_certificate.value()?;
    Some(CertificateNames {
        name: written.name.value().copied().unwrap_or_default(),
        groups: globs(&written.groups, findings),
        scopes: globs(&written.scopes, findings),
    })
}

fn globs(
    written: &Key<BTreeMap<String, Vec<At<String>>>>,
    findings: &mut Findings,
) -> Vec<(String, Vec<String>)> {
    let Some(At { value: table, span }) = &written.0 else { return Vec::new() };
    if let Some(word) = table.keys().find(|word| !is_scope(word)) {
        let message =
            format!("`{word}` is no name: 1 to 256 visible ASCII characters, without quotes and `\\`");
        findings.error(span.clone(), message);
    }
    for glob in table.values().flatten() {
        if let Err(error) = Glob::new(&glob.value) {
            findings.error(glob.span.clone(), format!("not a glob: {}", error.kind()));
        }
    }
    let globs = |globs: &Vec<At<String>>| globs.iter().map(|glob| glob.value.clone()).collect();
    table.iter().map(|(word, written)| (word.clone(), globs(written))).collect()
}

/// Scopes as RFC 6749 §3.3 has them, without spaces.
pub(super) fn scopes(written: &Key<Vec<At<String>>>, findings: &mut Findings) -> Vec<String> {
    let mut scopes = Vec::new();
    for At { value, span } in written.value().into_iter().flatten() {
        if is_scope(value) {
            scopes.push(value.clone());
        } else {
            let message = "not a scope: 1 to 256 visible ASCII characters, without quotes and `\\`";
            findings.error(span.clone(), message);
        }
    }
    scopes
}

/// Words that tokens are compared with byte for byte.
pub(super) fn plain_words(
    written: &Key<Vec<At<String>>>,
    what: &str,
    findings: &mut Findings,
) -> Vec<String> {
    let mut words = Vec::new();
    for At { value, span } in written.value().into_iter().flatten() {
        if !is_plain(value, ISSUER_BYTES_MAX) {
            findings.error(span.clone(), format!("not {what}: 1 to 512 bytes of visible ASCII"));
        }
        words.push(value.clone());
    }
    words
}

fn is_plain(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_scope(text: &str) -> bool {
    is_plain(text, WORD_BYTES_MAX) && !text.contains(['"', '\\'])
}

/// The methods of an endpoint that says none: all that are configured.
pub(super) fn default_methods(file: &File) -> Vec<AuthMethod> {
    let configured = [
        (AuthMethod::ApiKey, !file.api_key.is_empty()),
        (AuthMethod::Jwt, !file.jwt.is_empty()),
        (AuthMethod::ClientCertificate, file.client_certificate.0.is_some()),
    ];
    configured.into_iter().filter(|(_, is_there)| *is_there).map(|(method, _)| method).collect()
}

/// Whether anybody could authenticate by `method`, or what to add.
pub(super) fn check_method(
    method: &At<AuthMethod>,
    file: &File,
    listeners: &[Listener],
    findings: &mut Findings,
) {
    let asks = |listener: &Listener| {
        listener.tls.as_ref().is_some_and(|tls| tls.client_certificates != CertificateDemand::None)
    };
    let missing = match method.value {
        AuthMethod::ClientCertificate if !listeners.iter().any(asks) => {
            "`client_certificates = \"optional\"` to the [listener.tls] of a listener"
        }
        AuthMethod::ApiKey if file.api_key.is_empty() => "an [[api_key]], made by `trunkline key NAME`",
        AuthMethod::Jwt if file.jwt.is_empty() => "a [[jwt]] with an issuer and its keys",
        _ => return,
    };
    if !findings.damaged.root() {
        findings.error(method.span.clone(), format!("no client could authenticate: add {missing}"));
    }
}

/// A token says for whom it is, and so the endpoint must have a name. What is asked of callers must be of somebody.
pub(super) fn check_endpoint(written: &At<file::Endpoint>, endpoint: &Endpoint, findings: &mut Findings) {
    if let Some(span) = written.value.scopes.span()
        && endpoint.auth.is_empty()
        && !endpoint.scopes.is_empty()
    {
        findings.error(span, "`scopes` are asked of nobody, as anyone may call: add `auth`");
    }
    let is_named = written.value.public_url.0.is_some();
    if !is_named && endpoint.auth.contains(&AuthMethod::Jwt) && !findings.damaged.table(&written.span) {
        let message = "tokens (JWT) are for one endpoint, named by its URL: add `public_url`, or leave \"jwt\" out \
                       of `auth`";
        let span = written.value.auth.span().unwrap_or_else(|| written.span.clone());
        findings.error(span, message);
    }
}
