//! `[[endpoint]]` → [`Endpoint`]: paths, names, who may call and from where.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::ops::Range;

use globset::Glob;

use super::error::{ConfigError, nearest};
use super::file::{self, File};
use super::resolve::Findings;
use super::value::{At, Key};
use super::{Alias, AuthMethod, Endpoint, Listener, Names, Upstream, identity};

/// Between an upstream's prefix and the name it gave.
const SEPARATOR: &str = "__";
const PUBLIC_NAME_BYTES_MAX: usize = 128;
const INSTRUCTIONS_BYTES_MAX: usize = 16 * 1024;

/// All endpoints, in the order of the text.
pub(super) fn resolve(
    file: &File,
    listeners: &[Listener],
    upstreams: &[Upstream],
    findings: &mut Findings,
) -> Vec<Endpoint> {
    let mut paths = BTreeSet::new();
    let mut endpoints = Vec::new();
    for written in &file.endpoint {
        let path = path(written, &mut paths, findings);
        let members = members(written, upstreams, findings);
        let endpoint = &written.value;
        let resolved = Endpoint {
            path,
            names: names(endpoint, findings),
            legacy_errors: endpoint.legacy_errors.value().copied().unwrap_or_default(),
            sse: endpoint.sse.value().copied().unwrap_or(false),
            label_requests: endpoint.label_requests.value().copied().unwrap_or(false),
            accept_bare: endpoint.accept_bare.value().copied().unwrap_or(true),
            aliases: aliases(endpoint, &members, findings),
            upstreams: members.into_iter().map(|upstream| upstream.name.clone()).collect(),
            allow: globs(&endpoint.allow, findings).unwrap_or_else(|| vec!["*".to_owned()]),
            deny: globs(&endpoint.deny, findings).unwrap_or_default(),
            auth: auth(written, file, listeners, findings),
            allow_unauthenticated: endpoint.allow_unauthenticated.value().copied().unwrap_or(false),
            origins: all(&endpoint.origins, origin, findings),
            hosts: hosts(&endpoint.hosts, findings),
            public_url: public_url(&endpoint.public_url, findings),
            audiences: identity::plain_words(&endpoint.audiences, "an audience", findings),
            scopes: identity::scopes(&endpoint.scopes, findings),
            list_page_bytes_max: endpoint
                .list_page_bytes_max
                .0
                .is_some()
                .then(|| endpoint.list_page_bytes_max.or(0)),
            instructions: instructions(&endpoint.instructions, findings),
        };
        identity::check_endpoint(written, &resolved, findings);
        endpoints.push(resolved);
    }
    endpoints
}

fn path<'f>(
    written: &'f At<file::Endpoint>,
    taken: &mut BTreeSet<&'f str>,
    findings: &mut Findings,
) -> String {
    let message = "the endpoint has no `path`: write `path = \"/mcp\"`";
    let Some(At { value: path, span }) = findings.required(&written.value.path, &written.span, message)
    else {
        return String::new();
    };
    let fault = if !path.starts_with('/') {
        Some("a path begins with `/`")
    } else if path.contains(['?', '#']) {
        Some("a path has no query and no fragment: remove `?` or `#` and what follows")
    } else if path.len() > 1 && path.ends_with('/') {
        Some("a path does not end with `/`")
    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        Some("a path is visible ASCII: write other characters as %XX")
    } else if !taken.insert(path) {
        Some("two endpoints have this path: choose another")
    } else {
        None
    };
    if let Some(fault) = fault {
        findings.error(span.clone(), fault);
    }
    path.clone()
}

/// The upstreams of the endpoint that exist, each once.
fn members<'u>(
    written: &At<file::Endpoint>,
    upstreams: &'u [Upstream],
    findings: &mut Findings,
) -> Vec<&'u Upstream> {
    let message = "the endpoint has no `upstreams`: name those behind it";
    let Some(names) = findings.required(&written.value.upstreams, &written.span, message) else {
        return Vec::new();
    };
    if names.value.is_empty() {
        findings.error(names.span.clone(), "`upstreams` is empty: name at least one");
    }
    let mut members: Vec<&Upstream> = Vec::new();
    for At { value: name, span } in &names.value {
        let Some(upstream) = upstreams.iter().find(|upstream| upstream.name == *name) else {
            // A misspelt [upstream] table has been reported, and all its names would be unknown.
            if !(upstreams.is_empty() && findings.damaged.root()) {
                let suggestion = nearest(name, upstreams.iter().map(|upstream| upstream.name.as_str()));
                let message = format!("no upstream is named `{name}`: add [upstream.{name}]");
                findings.errors.push(ConfigError::new(span.clone(), message).suggest(suggestion));
            }
            continue;
        };
        if members.iter().any(|member| member.name == *name) {
            findings.error(span.clone(), format!("`{name}` is named twice"));
            continue;
        }
        if let Some(other) = members.iter().find(|member| member.prefix == upstream.prefix) {
            let message = format!(
                "upstreams `{}` and `{name}` have the same prefix `{}`: give one of them another `prefix`",
                other.name, upstream.prefix
            );
            findings.error(span.clone(), message);
        }
        members.push(upstream);
    }
    members
}

fn names(endpoint: &file::Endpoint, findings: &mut Findings) -> Names {
    let several = endpoint.upstreams.value().is_some_and(|names| names.len() > 1);
    match &endpoint.names.0 {
        Some(At { value: Names::Transparent, span }) if several => {
            let message = "several upstreams cannot be transparent: choose `names = \"prefixed\"` or `names = \"bare\"`";
            findings.error(span.clone(), message);
            Names::Transparent
        }
        Some(names) => names.value,
        None if several => Names::Prefixed,
        None => Names::Transparent,
    }
}

fn aliases(endpoint: &file::Endpoint, members: &[&Upstream], findings: &mut Findings) -> Vec<Alias> {
    let no_aliases = BTreeMap::new();
    let mut aliases = Vec::new();
    for (public, target) in endpoint.aliases.value().unwrap_or(&no_aliases) {
        if let Some(message) = alias_name_fault(&public.value, members) {
            findings.error(public.span.clone(), message);
        }
        let (name, inner) = target.value.split_once(SEPARATOR).unwrap_or((&target.value, ""));
        if members.iter().any(|member| member.name == name) && !inner.is_empty() {
            aliases.push(Alias {
                public: public.value.clone(),
                upstream: name.to_owned(),
                inner: inner.to_owned(),
            });
        } else {
            findings.errors.push(alias_target_error(target, name, inner, members));
        }
    }
    aliases
}

fn alias_name_fault(public: &str, members: &[&Upstream]) -> Option<String> {
    if public.is_empty() || public.len() > PUBLIC_NAME_BYTES_MAX || public.chars().any(char::is_control) {
        return Some(format!("an alias has 1 to {PUBLIC_NAME_BYTES_MAX} bytes and no control characters"));
    }
    let (prefix, _) = public.split_once(SEPARATOR)?;
    let member = members.iter().find(|member| member.prefix == prefix)?;
    Some(format!(
        "alias `{public}` could be a name of upstream `{}`: choose one that does not begin with `{prefix}{SEPARATOR}`",
        member.name
    ))
}

fn alias_target_error(target: &At<String>, name: &str, inner: &str, members: &[&Upstream]) -> ConfigError {
    let error = |message: String| ConfigError::new(target.span.clone(), message);
    if inner.is_empty() {
        return error(
            "an alias stands for `UPSTREAM__NAME`: the upstream, two underscores, what it calls it".into(),
        );
    }
    let suggestion = match members.iter().find(|member| member.prefix == name) {
        Some(same) => Some(format!("`{name}` is its prefix: write `{}{SEPARATOR}{inner}`", same.name)),
        None => nearest(name, members.iter().map(|member| member.name.as_str())),
    };
    error(format!("this endpoint has no upstream named `{name}`")).suggest(suggestion)
}

/// The globs of a list, all of which must be valid.
pub(super) fn globs(written: &Key<Vec<At<String>>>, findings: &mut Findings) -> Option<Vec<String>> {
    let check = |glob: &str| match Glob::new(glob) {
        Ok(_) => Ok(glob.to_owned()),
        Err(error) => Err(format!("not a glob: {}", error.kind())),
    };
    all(written, check, findings)
}

fn auth(
    written: &At<file::Endpoint>,
    file: &File,
    listeners: &[Listener],
    findings: &mut Findings,
) -> Vec<AuthMethod> {
    let endpoint = &written.value;
    let Some(At { value: methods, span }) = &endpoint.auth.0 else {
        let configured = identity::default_methods(file);
        if !configured.is_empty() {
            return configured;
        }
        // A misspelt `auth` or [[api_key]] has been reported; it was meant to close the endpoint.
        if !findings.damaged.root() && !findings.damaged.table(&written.span) {
            open_only_on_loopback(written, &written.span, listeners, findings);
        }
        return Vec::new();
    };
    if methods.is_empty() {
        open_only_on_loopback(written, span, listeners, findings);
    }
    for method in methods {
        identity::check_method(method, file, listeners, findings);
    }
    let mut distinct: Vec<AuthMethod> = Vec::new();
    for method in methods {
        if !distinct.contains(&method.value) {
            distinct.push(method.value);
        }
    }
    distinct
}

/// An endpoint without authentication on a network is an error unless the operator says it is meant.
fn open_only_on_loopback(
    written: &At<file::Endpoint>,
    span: &Range<usize>,
    listeners: &[Listener],
    findings: &mut Findings,
) {
    let allowed = written.value.allow_unauthenticated.value().copied().unwrap_or(false);
    let public = listeners.iter().find(|listener| !listener.address.ip().to_canonical().is_loopback());
    if let Some(Listener { address, .. }) = public
        && !allowed
    {
        let message = format!(
            "anyone who reaches {address} could call this endpoint: add an [[api_key]], listen on 127.0.0.1, \
             or write `allow_unauthenticated = true`"
        );
        findings.error(span.clone(), message);
    }
}

/// Every value of a list through `check`; the faults are reported where they stand.
fn all(
    written: &Key<Vec<At<String>>>,
    check: impl Fn(&str) -> Result<String, String>,
    findings: &mut Findings,
) -> Option<Vec<String>> {
    let mut values = Vec::new();
    for At { value, span } in written.value()? {
        match check(value) {
            Ok(value) => values.push(value),
            Err(fault) => findings.error(span.clone(), fault),
        }
    }
    Some(values)
}

/// An origin as browsers send it: lower case, without the scheme's own port.
fn origin(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let shape =
        || format!("`{text}` is not an origin: write `scheme://host` or `scheme://host:port`, no wildcards");
    let (scheme, authority) = lower.split_once("://").ok_or_else(shape)?;
    if let Some((host, _)) = authority.split_once(['/', '?', '#']) {
        return Err(format!("an origin has no path: write `{scheme}://{host}`"));
    }
    let scheme_is_valid = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !scheme_is_valid || !is_host_and_port(authority) {
        return Err(shape());
    }
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    Ok(format!("{scheme}://{}", authority.strip_suffix(own_port).unwrap_or(authority)))
}

fn hosts(written: &Key<Vec<At<String>>>, findings: &mut Findings) -> Option<Vec<String>> {
    if let Some(At { value, span }) = &written.0
        && value.is_empty()
    {
        findings.error(
            span.clone(),
            "`hosts` is empty, so every request would be refused: leave it out for the default",
        );
    }
    let check = |host: &str| {
        if is_host_and_port(host) {
            Ok(host.to_ascii_lowercase())
        } else {
            Err(format!("`{host}` is not a host: write `host` or `host:port`, no scheme, path or wildcard"))
        }
    };
    all(written, check, findings)
}

/// `host` or `host:port`, where host is a name, an IPv4 address or an IPv6 address in brackets.
fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.rfind(']') {
        Some(bracket) => text.split_at(bracket + 1),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port_is_valid = match port.strip_prefix(':') {
        Some(digits) => digits.parse::<u16>().is_ok_and(|number| number != 0 && number.to_string() == digits),
        None => port.is_empty(),
    };
    let host_is_valid = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    port_is_valid && host_is_valid
}

fn public_url(written: &Key<String>, findings: &mut Findings) -> Option<String> {
    let At { value: url, span } = written.0.as_ref()?;
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let is_plain = !url.contains(['?', '#']) && url.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_web || !is_plain || !is_host_and_port(authority) {
        let message = "not the URL of an endpoint: write for example \"https://mcp.example.com/mcp\", \
                       without user, query and fragment";
        let error = ConfigError::new(span.clone(), message);
        findings.errors.push(if url.contains('@') { error.secret() } else { error });
    }
    Some(url.clone())
}

fn instructions(written: &Key<String>, findings: &mut Findings) -> Option<String> {
    let At { value: text, span } = written.0.as_ref()?;
    if text.len() > INSTRUCTIONS_BYTES_MAX {
        let message = format!(
            "{} bytes of instructions: at most 16KiB, as every client gives them to its model",
            text.len()
        );
        findings.error(span.clone(), message);
    }
    Some(text.clone())
}
