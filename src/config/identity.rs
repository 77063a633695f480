//! `[[api_key]]`, `[[jwt]]` and `[client_certificate]`: who clients are.
//!
//! Whether an issuer's keys can be had is not known here: a file is read, and a URL fetched, by the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use http::Uri;

use super::Config;
use super::array::{Array, Map};
use super::findings::Findings;
use super::moment::CalendarMoment;
use super::section::section;
use super::table::Table;
use super::text::{
    AbsolutePath, Any, Audience, Fault, Glob, GroupName, KeyName, Scope, checked, is_plain, is_scope, texts,
};
use super::url::server_url;
use super::value::{DAY_MS, MINUTE_MS, Period, SECOND_MS, choice};
use protocol::canonical::Hash;

/// SHA-256 of nothing: a key that an empty credential would match.
const SHA256_OF_EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

section! {
    /// A key clients may present as `Authorization: Bearer KEY`. `trunkline key NAME` makes one, and this entry; only the
    /// digest is kept.
    pub struct ApiKey {
        /// The principal: who calls with this key.
        #[example("ci")]
        #[missing("name who calls with it")]
        name: KeyName,
        /// SHA-256 of the key, in hexadecimal.
        #[example("ae56561dd02fb117cb5fd7c6bab4ffb1e09d40f5b19a0b75b2af07297e03aa20")]
        #[missing("`trunkline key NAME` makes a key and its entry")]
        sha256: KeyDigest,
        /// The day, or the moment, from which it is good no more: `"2027-06-30"`, which is its first moment in UTC, or
        /// `"2027-06-30T18:00:00+02:00"`. Default: never.
        #[example("2027-06-30")]
        expires_s as "expires": Option<CalendarMoment>,
        /// Whose it is and what for, for people.
        #[example("build server, asked for by Ann")]
        description: Option<Any>,
        /// The groups of the principal, for rules.
        #[example(["ops"])]
        groups: Array<GroupName> = [],
        /// The scopes of the principal, for rules and for `scopes` of endpoints.
        #[example(["mcp:read"])]
        scopes: Array<Scope> = [],
    }
}

section! {
    /// An issuer of tokens (JWT) that clients may present as `Authorization: Bearer TOKEN`. Its keys are at `jwks_url`, in
    /// `jwks_file`, or else at the place that the metadata of the issuer name.
    pub struct Jwt {
        /// Its name in metrics and logs.
        #[example("login")]
        name: KeyName,
        /// What the claim `iss` of its tokens is, byte for byte. Clients are told it as their authorization server.
        #[example("https://login.example.com")]
        issuer: Issuer,
        /// PEM file of the certificates that the servers of its keys and metadata must be signed by. Default: those that the
        /// system trusts.
        #[example("/etc/trunkline/issuer-ca.pem")]
        ca: Option<AbsolutePath>,
        /// The algorithms it may sign with. Default: all of these; secrets (HS256 and so on) are none.
        #[example(["RS256", "ES256"])]
        algorithms: Array<Algorithm, 1> => Algorithm::ALL.to_vec(),
        /// What the claim `aud` may be at every endpoint, beside the endpoint's `public_url` and `audiences`.
        #[example(["api://mcp"])]
        audiences: Array<Audience> = [],
        /// By how much the issuer's clock and this one may differ.
        leeway: Period<0, { 5 * MINUTE_MS }> = "30s",
        /// The claim that names the principal. A claim within another is written `outer.inner`.
        subject_claim: Claim = "sub",
        /// The claim with the groups of the principal: a text or an array.
        groups_claim: Claim = "groups",
        /// The claim with the scopes that were granted: a text with spaces between them, or an array. Default: `scope`,
        /// or else `scp`.
        #[example("scope")]
        scope_claim: Option<Claim>,
        /// Time after which the keys are read again. A token with an unknown key asks for it, too.
        jwks_refresh_interval: Period<{ 10 * SECOND_MS }, DAY_MS> = "10m",
        /// Time for which the last keys are used while new ones cannot be had.
        jwks_stale_max: Period<MINUTE_MS, { 30 * DAY_MS }> = "24h",
    }
    groups {
        /// Where its public keys are.
        keys: KeySourceKeys
    }
}

section! {
    /// The keys of [`KeySource`].
    pub struct KeySourceKeys {
        /// The URL of its public keys (JWKS): `https`, or `http` on a loopback address. Default: the one that its metadata name,
        /// at `issuer` followed by `/.well-known/openid-configuration`.
        #[example("https://login.example.com/.well-known/jwks.json")]
        jwks_url: Option<JwksUrl>,
        /// A file with its public keys (JWKS) instead; an absolute path.
        #[example("/etc/trunkline/jwks.json")]
        jwks_file: Option<AbsolutePath>,
    }
    check key_source => KeySource;
}

section! {
    /// Whom the certificates of clients name, where a listener checks them.
    pub struct CertificateNames {
        /// Which subject alternative name is the principal's. A certificate must have exactly one of that kind.
        name: SubjectName = "uri",
        /// Groups, each with globs over the names of its members.
        #[example({ ops = ["spiffe://example.com/ops/*"] })]
        groups: Map<Array<Glob>> = {},
        /// Scopes, each with globs over the names it is granted to.
        #[example({ "mcp:read" = ["*"] })]
        scopes: Map<Array<Glob>> = {},
    }
    check check_certificate_names;
}

impl CertificateNames {
    /// Of no certificate is anything known but its URI.
    pub const NONE: Self = Self { name: SubjectName::Uri, groups: Vec::new(), scopes: Vec::new() };
}

/// Where the public keys of an issuer are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A web server: `https`, or `http` on a loopback address.
    Url(Uri),
    /// The place that the metadata at this URL name: `https`, or `http` on a loopback address.
    Discovery(Uri),
    /// A file.
    File(PathBuf),
}

choice! {
    /// How a token may be signed (RFC 7518): always with a private key, so that what checks it is no secret.
    pub enum Algorithm {
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        RS256 = "RS256",
        /// RSASSA-PKCS1-v1_5 with SHA-384.
        RS384 = "RS384",
        /// RSASSA-PKCS1-v1_5 with SHA-512.
        RS512 = "RS512",
        /// RSASSA-PSS with SHA-256.
        PS256 = "PS256",
        /// RSASSA-PSS with SHA-384.
        PS384 = "PS384",
        /// RSASSA-PSS with SHA-512.
        PS512 = "PS512",
        /// ECDSA with SHA-256.
        ES256 = "ES256",
        /// ECDSA with SHA-384.
        ES384 = "ES384",
        /// `EdDSA` (RFC 8037).
        EdDSA = "EdDSA",
    }
}

choice! {
    /// A kind of subject alternative name.
    pub enum SubjectName {
        /// A URI, such as a SPIFFE ID.
        Uri = "uri",
        /// A DNS name.
        Dns = "dns",
        /// An e-mail address.
        Email = "email",
    }
}

choice! {
    /// A way for a client to say who it is.
    pub enum AuthMethod {
        /// `Authorization: Bearer` with the key of an `[[api_key]]`.
        ApiKey = "api_key",
        /// `Authorization: Bearer` with a token of a `[[jwt]]`.
        Jwt = "jwt",
        /// The certificate of the connection.
        ClientCertificate = "client_certificate",
        /// `Authorization: Bearer` with a token that the gateway itself gave out, after `[sign_in]`.
        SignIn = "sign_in",
    }
}

texts! {
    /// What a claim `iss` is.
    pub Issuer -> String, "", |text: &str| checked(
        text,
        is_plain(text, 512),
        "not an issuer: 1 to 512 bytes of visible ASCII, mostly a URL",
    );
    /// The name of a claim.
    pub Claim -> String, "", |text: &str| checked(
        text,
        (1..=256).contains(&text.len()),
        "not the name of a claim: 1 to 256 bytes",
    );
    /// The digest of a key. What is none may be the key itself, which must not be shown.
    pub KeyDigest -> [u8; 32], "^[0-9A-Fa-f]{64}$", key_digest, secret: true;
    /// Where keys are fetched.
    pub JwksUrl -> Uri, "^https?://[^@#]+$", jwks_url;
}

fn key_digest(text: &str) -> Result<[u8; 32], Fault> {
    if text.eq_ignore_ascii_case(SHA256_OF_EMPTY) {
        return Err("the digest of nothing: `trunkline key NAME` makes a key and its entry".into());
    }
    text.parse().map(Hash::bytes).map_err(|_| {
        "not a SHA-256 in 64 hexadecimal digits: `trunkline key NAME` makes a key and its entry".into()
    })
}

fn key_source(keys: KeySourceKeys, table: Table<'_>, findings: &mut Findings) -> KeySource {
    if table.has("jwks_url") {
        findings.error_at(table, "jwks_file", "both `jwks_url` and `jwks_file`: keep one of them");
    }
    let issuer = table.get("issuer").and_then(|issuer| issuer.get_ref().as_str());
    match (keys.jwks_url, keys.jwks_file, issuer.and_then(metadata_url)) {
        (Some(url), ..) => KeySource::Url(url),
        (None, Some(path), _) => KeySource::File(path),
        (None, None, Some(url)) => KeySource::Discovery(url),
        (None, None, None) => {
            let has_keys = table.has("jwks_url") || table.has("jwks_file");
            if issuer.is_some() && !has_keys && !findings.is_misspelt(table) {
                let message = "no keys: write `jwks_url`, or `jwks_file`, with the issuer's public keys; they are found without \
                               only where `issuer` is a URL with https";
                findings.error(table.span(), message);
            }
            KeySource::File(PathBuf::new())
        }
    }
}

/// The URL of the metadata of an issuer (`OpenID` Connect Discovery §4), if it can have any.
fn metadata_url(issuer: &str) -> Option<Uri> {
    let is_plain = !issuer.contains(['?', '{', '}']);
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    jwks_url(&url).ok().filter(|_| is_plain)
}

/// Keys that somebody on the way could change would let anybody in.
fn jwks_url(text: &str) -> Result<Uri, Fault> {
    let is_safe = server_url(text).is_ok_and(|url| url.is_tls || url.is_loopback());
    let uri = text.parse().ok().filter(|_| is_safe && !text.contains(['@', '#']));
    uri.ok_or_else(|| {
        "not a URL to fetch keys from: write `https://host/path`, or `http` on a loopback address, without user and \
         fragment"
            .into()
    })
}

fn check_certificate_names(
    names: CertificateNames,
    table: Table<'_>,
    findings: &mut Findings,
) -> CertificateNames {
    for (key, words) in [("groups", &names.groups), ("scopes", &names.scopes)] {
        if let Some((word, _)) = words.iter().find(|(word, _)| !is_scope(word)) {
            let message =
                format!("`{word}` is no name: 1 to 256 visible ASCII characters, without quotes and `\\`");
            findings.error_at(table, key, message);
        }
    }
    names
}

/// Names, digests and issuers are distinct.
pub(super) fn check(config: &Config, root: Table<'_>, findings: &mut Findings) {
    let (mut names, mut digests) = (BTreeSet::new(), BTreeMap::new());
    for (key, table) in config.api_keys.iter().zip(root.tables("api_key")) {
        let message = format!("two keys are named `{}`: choose another name", key.name);
        findings.unique(table, "name", &key.name, &mut names, message);
        if findings.span(table, "name").is_some()
            && findings.span(table, "sha256").is_some()
            && let Some(other) = digests.insert(key.sha256, &key.name)
        {
            let message =
                format!("the same key as `{other}`: give each its own, made by `trunkline key NAME`");
            findings.error_at(table, "sha256", message);
        }
    }
    let (mut names, mut issuers) = (BTreeSet::new(), BTreeSet::new());
    for (jwt, table) in config.jwt.iter().zip(root.tables("jwt")) {
        let message = format!("two [[jwt]] are named `{}`: choose another name", jwt.name);
        findings.unique(table, "name", &jwt.name, &mut names, message);
        let message = format!("two [[jwt]] have the issuer `{}`: one set of keys decides", jwt.issuer);
        findings.unique(table, "issuer", &jwt.issuer, &mut issuers, message);
    }
}

/// The methods of an endpoint that says none: all that are configured.
pub(super) fn default_methods(root: Table<'_>) -> Vec<AuthMethod> {
    [
        (AuthMethod::ApiKey, "api_key"),
        (AuthMethod::Jwt, "jwt"),
        (AuthMethod::ClientCertificate, "client_certificate"),
    ]
    .into_iter()
    .filter(|(_, key)| root.has(key))
    .map(|(method, _)| method)
    .collect()
}
