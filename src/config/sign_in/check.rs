//! Rules within `[sign_in]`, and between it, its provider and its endpoints.

use std::collections::BTreeSet;

use http::uri::Authority;
use identity::pages::SIGN_INS_PATH;
use identity::provider::metadata::is_own_parameter;
use identity::redirect_uri::{AllowedRedirects, RedirectFault};
use identity::resource::is_same;
use identity::server_metadata::{AUTHORIZE_PATH, PATH, REGISTER_PATH, REVOKE_PATH, TOKEN_PATH};
use identity::uri::Uri;

use super::SignIn;
use crate::Config;
use crate::endpoint::EndpointConfig;
use crate::error::{Diagnostic, nearest};
use crate::findings::Findings;
use crate::identity::AuthMethod;
use crate::table::Table;
use crate::text::{is_plain, is_scope};

/// All of them travel in cookies.
const SCOPES_MAX: usize = 32;
/// The shortest record of sign-in, with its place in the file.
const RECORD_BYTES_MIN: usize = 128;
/// Issuers at which everybody can have an account: Google in both spellings, Microsoft's personal accounts, Apple, GitLab,
/// Slack.
const PUBLIC_ISSUERS: [&str; 6] = [
    "https://accounts.google.com",
    "accounts.google.com",
    "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
    "https://appleid.apple.com",
    "https://gitlab.com",
    "https://slack.com",
];
/// The issuer of each tenant of Entra has its own id there.
const ENTRA: &str = "https://login.microsoftonline.";
const ENTRA_TEMPLATES: [&str; 3] = ["common", "consumers", "organizations"];
/// Claims that people, or their administrators, can change, and that another may have next year.
const CHANGEABLE_CLAIMS: [&str; 3] = ["email", "preferred_username", "upn"];

/// Names that the reader takes as they are written.
pub(super) fn check_section(sign_in: SignIn, table: Table<'_>, findings: &mut Findings) -> SignIn {
    let scopes = table.table("scopes");
    for (scope, _) in scopes.entries().filter(|(scope, _)| !is_scope(scope.get_ref())) {
        let message = "not a scope: 1 to 256 visible ASCII characters, without spaces, quotes and `\\`";
        findings.error(scope.span(), message);
    }
    if scopes.entries().count() > SCOPES_MAX {
        findings.error_at(
            table,
            "scopes",
            format!("at most {SCOPES_MAX} scopes: all of them travel in cookies"),
        );
    }
    for (name, _) in table.table("parameters").entries() {
        let message = match name.get_ref().as_ref() {
            "scope" => "`scope` is set by sign-in itself: write `provider_scopes`".to_owned(),
            own if is_own_parameter(own) => format!("`{own}` is set by sign-in itself"),
            other if !is_plain(other, 64) => "a parameter has 1 to 64 visible ASCII characters".to_owned(),
            _ => continue,
        };
        findings.error(name.span(), message);
    }
    sign_in
}

/// Checks the rules between tables. `has_state`: the environment names a state directory.
pub(in super::super) fn check(config: &Config, root: Table<'_>, has_state: bool, findings: &mut Findings) {
    let Some(sign_in) = &config.sign_in else { return };
    let table = root.table("sign_in");
    check_provider(sign_in, config, root, findings);
    check_audiences(sign_in, config, root, findings);
    check_paths(sign_in, config, root, findings);
    check_endpoints(sign_in, config, root, findings);
    check_clients(sign_in, table, findings);
    if !has_state && !root.has("state_directory") && !root.has("shared") && !findings.is_damaged(root) {
        let message = "nobody would stay signed in: write `state_directory`, where sign-ins are kept, or add [shared] with a Redis";
        findings.error(table.span(), message);
    }
    for key in ["store_records_max", "store_bytes_max"] {
        if root.has("shared")
            && let Some(span) = findings.span(table, key)
        {
            let message =
                format!("with [shared], sign-ins are kept in Redis: `{key}` bounds a file that there is not");
            findings.warning(span, message);
        }
    }
    check_room(sign_in, table, findings);
    if root.has("shared") && !table.has("key") && !findings.is_damaged(table) {
        let message = "[shared] needs `key` in [sign_in]: each gateway would make a key of its own, and nobody who signed in at one \
                       would be known at another; give all the same file";
        findings.error(table.span(), message);
    }
}

/// A file that is full before it has as many records as it may have.
fn check_room(sign_in: &SignIn, table: Table<'_>, findings: &mut Findings) {
    let records_bytes = sign_in.store_records_max.saturating_mul(RECORD_BYTES_MIN);
    if records_bytes > sign_in.store_bytes_max && table.has("store_records_max") {
        let message = format!(
            "so many records never fit into a file of `store_bytes_max` ({} bytes): a record takes {RECORD_BYTES_MIN} at least",
            sign_in.store_bytes_max
        );
        findings.error_at(table, "store_records_max", message);
    }
}

fn check_provider(sign_in: &SignIn, config: &Config, root: Table<'_>, findings: &mut Findings) {
    let table = root.table("sign_in");
    let Some(span) = findings.span(table, "provider") else { return };
    let mut issuers = config.jwt.iter().zip(root.tables("jwt"));
    let Some((jwt, of_jwt)) = issuers.find(|(jwt, _)| jwt.name == sign_in.provider) else {
        if !(config.jwt.is_empty() && findings.is_damaged(root)) {
            let names = config.jwt.iter().map(|jwt| jwt.name.as_str());
            let message = format!("no [[jwt]] is named `{}`", sign_in.provider);
            let suggestion = nearest(&sign_in.provider, names);
            findings.errors.push(Diagnostic::error(span, message).suggest(suggestion));
        }
        return;
    };
    if let Some(message) = issuer_fault(&jwt.issuer) {
        findings.error_at(of_jwt, "issuer", message);
    }
    let is_public = PUBLIC_ISSUERS.contains(&jwt.issuer.trim_end_matches('/'));
    if is_public
        && sign_in.require.is_empty()
        && findings.span(table, "require").is_some() == table.has("require")
    {
        let message = format!(
            "everybody can have an account at {}: say with `require` who may sign in, as in `require = {{ hd = [\"example.com\"] }}`",
            jwt.issuer
        );
        findings.error(span, message);
    }
    if is_changeable_claim(&jwt.subject_claim)
        && let Some(span) = findings.span(of_jwt, "subject_claim")
    {
        let message = format!(
            "`{}` can change, and go to somebody else, who then is this principal: take `sub`, or what never changes, as \
             `oid` of Entra",
            jwt.subject_claim
        );
        findings.warning(span, message);
    }
}

/// True for a claim that is no name for good.
pub fn is_changeable_claim(claim: &str) -> bool {
    CHANGEABLE_CLAIMS.contains(&claim)
}

/// An issuer of which no token can be, or that has no metadata.
fn issuer_fault(issuer: &str) -> Option<&'static str> {
    let tenant = issuer.strip_prefix(ENTRA).and_then(|rest| rest.split('/').nth(1));
    if issuer.contains(['{', '}']) || tenant.is_some_and(|tenant| ENTRA_TEMPLATES.contains(&tenant)) {
        return Some(
            "this issuer stands for many tenants, and tokens name their own: write that of your tenant",
        );
    }
    let uri = Uri::read(issuer).ok();
    let is_safe =
        uri.is_some_and(|uri| uri.has_scheme("https") || (uri.has_scheme("http") && uri.is_loopback()));
    (!is_safe).then_some("sign-in asks the provider at its issuer: that must be a URL with https, or http on a loopback address")
}

/// ID tokens are for the gateway as a client, and no credential at an endpoint.
fn check_audiences(sign_in: &SignIn, config: &Config, root: Table<'_>, findings: &mut Findings) {
    let id = sign_in.provider_client.id.as_str();
    let message = "this is `client_id` of [sign_in]: ID tokens, which say who signed in and open nothing, would open the endpoint";
    for table in [root.tables("jwt"), root.tables("endpoint")].into_iter().flatten() {
        for (_, span) in table.texts("audiences").filter(|(audience, _)| *audience == id) {
            findings.error(span, message);
        }
    }
    for (endpoint, table) in config.endpoints.iter().zip(root.tables("endpoint")) {
        let url = endpoint.public_url.as_deref().map(|url| url.trim_end_matches('/'));
        if url == Some(id.trim_end_matches('/')) && endpoint.auth.contains(&AuthMethod::Jwt) {
            findings.error_at(table, "public_url", message);
        }
    }
}

/// At the host of sign-in, its paths are its own.
fn check_paths(sign_in: &SignIn, config: &Config, root: Table<'_>, findings: &mut Findings) {
    for (endpoint, table) in config.endpoints.iter().zip(root.tables("endpoint")) {
        if is_own_path(&endpoint.path) && may_be_at(endpoint, &sign_in.url) {
            let message =
                format!("`{}` is a path of sign-in at {}: choose another", endpoint.path, sign_in.url);
            findings.error_at(table, "path", message);
        }
    }
}

fn is_own_path(path: &str) -> bool {
    [PATH, AUTHORIZE_PATH, TOKEN_PATH, REGISTER_PATH, REVOKE_PATH].contains(&path)
        || path.starts_with(SIGN_INS_PATH)
        || path == SIGN_INS_PATH.trim_end_matches('/')
}

/// True where an endpoint may be asked for at the host of `url`; its port does not count.
fn may_be_at(endpoint: &EndpointConfig, url: &str) -> bool {
    let Some(here) = Uri::read(url).ok().and_then(|uri| uri.host.map(str::to_owned)) else { return true };
    let after_label = here.split_once('.').map(|(_, rest)| rest);
    let is_here = |authority: &str| match authority.strip_prefix("*.") {
        Some(domain) => host_of(domain).as_deref() == after_label,
        None => host_of(authority).as_deref() == Some(&*here),
    };
    match (&endpoint.hosts, &endpoint.public_url) {
        (Some(hosts), _) => hosts.iter().any(|host| is_here(host)),
        (None, Some(public)) => {
            // Names of this computer count at loopback listeners, too.
            let is_local = Uri::read(url).is_ok_and(|uri| uri.is_loopback());
            is_local || Uri::read(public).is_ok_and(|uri| uri.host.is_some_and(is_here))
        }
        (None, None) => true,
    }
}

fn host_of(authority: &str) -> Option<String> {
    let authority: Authority = authority.parse().ok()?;
    Some(authority.host().to_ascii_lowercase())
}

/// The endpoints with sign-in: clients name each by its public URL.
fn check_endpoints(sign_in: &SignIn, config: &Config, root: Table<'_>, findings: &mut Findings) {
    let mut earlier: Vec<&str> = Vec::new();
    let mut is_used = false;
    for (endpoint, table) in config.endpoints.iter().zip(root.tables("endpoint")) {
        if !endpoint.enabled || !endpoint.auth.contains(&AuthMethod::SignIn) {
            continue;
        }
        is_used = true;
        if let Some(url) = endpoint.public_url.as_deref() {
            if !is_same(url, url) {
                let message = "clients do not agree on how this URL is read: write one without dots as a part of the path";
                findings.error_at(table, "public_url", message);
            } else if earlier.iter().any(|other| is_same(url, other)) {
                let message = "another endpoint with sign-in has this public URL, which is how clients say which they mean";
                findings.error_at(table, "public_url", message);
            }
            earlier.push(url);
        }
        for (scope, span) in table.texts("scopes") {
            if !sign_in.scopes.iter().any(|(known, _)| known == scope) {
                let message =
                    format!("nobody who signs in is granted `{scope}`: add it to `scopes` of [sign_in]");
                findings.warning(span, message);
            }
        }
    }
    if !is_used {
        let message = "no endpoint uses sign-in: write `auth = [\"sign_in\"]` at one";
        findings.warning(root.table("sign_in").span(), message);
    }
}

fn check_clients(sign_in: &SignIn, table: Table<'_>, findings: &mut Findings) {
    // An entry that could not be read may be the right one.
    let allowed = AllowedRedirects::new(&sign_in.redirects)
        .ok()
        .filter(|_| findings.span(table, "redirects").is_some() == table.has("redirects"));
    let mut ids = BTreeSet::new();
    for (client, of_client) in sign_in.clients.iter().zip(table.tables("client")) {
        findings.unique(of_client, "id", &client.id, &mut ids, "two clients have this id: choose another");
        let Some(allowed) = &allowed else { continue };
        for (redirect, span) in of_client.texts("redirects") {
            if let Err(RedirectFault::NotAllowed { line }) = allowed.judge(redirect) {
                let message = format!("no answer is sent there: add `{line}` to `redirects` of [sign_in]");
                findings.error(span, message);
            }
        }
    }
}
