//! `[upstream.NAME]` → [`Upstream`]: names, prefixes, URLs and commands.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::error::{ConfigError, Warning};
use super::file::{self, File, Words};
use super::resolve::Findings;
use super::secret::{TextOrSecret, WrittenSecret};
use super::value::At;
use super::{Command, Transport, Upstream, Url, credentials};
use super::{bridge, pins, rate, replicas};
use protocol::version::{Era, Eras};

const NAME_GRAMMAR: &str = "use a lower-case letter, then up to 31 of a-z, 0-9 and -";

/// All upstreams in the order of the text, those with faults included, so that endpoints find their names.
pub(super) fn resolve(file: &File, findings: &mut Findings) -> Vec<Upstream> {
    let mut written: Vec<_> = file.upstream.iter().collect();
    written.sort_by_key(|(name, _)| name.span.start);
    written
        .into_iter()
        .map(|(name, upstream)| {
            warn_if_unused(name, file, findings);
            resolve_one(name, upstream, findings)
        })
        .collect()
}

fn resolve_one(name: &At<String>, upstream: &At<file::Upstream>, findings: &mut Findings) -> Upstream {
    let At { value: written, .. } = upstream;
    let urls = if written.command.0.is_some() { Vec::new() } else { urls(name, upstream, findings) };
    let (tls, credentials) = credentials::resolve(written, &urls, findings);
    if !is_name(&name.value) {
        findings
            .error(name.span.clone(), format!("`{}` cannot name an upstream: {NAME_GRAMMAR}", name.value));
    }
    if let Some(At { value: prefix, span }) = &written.prefix.0
        && !is_name(prefix)
    {
        findings.error(span.clone(), format!("`{prefix}` cannot be a prefix: {NAME_GRAMMAR}"));
    }
    let reply_timeout = written.reply_timeout.or(Duration::from_mins(1));
    Upstream {
        name: name.value.clone(),
        prefix: written.prefix.value().unwrap_or(&name.value).clone(),
        urls,
        tls,
        credentials,
        command: command(written, findings),
        transport: written.transport.value().copied().unwrap_or_default(),
        eras: eras(written, findings),
        connect_timeout: written.connect_timeout.or(Duration::from_secs(5)),
        reply_timeout,
        first_byte_timeout: first_byte_timeout(written, reply_timeout, findings),
        answer_timeout: written.answer_timeout.or(Duration::ZERO),
        stream_idle_timeout: written.stream_idle_timeout.or(Duration::from_mins(5)),
        request_timeout: written.request_timeout.or(Duration::from_mins(5)),
        list_timeout: written.list_timeout.or(Duration::from_secs(5)),
        list_ttl_min: written.list_ttl_min.or(Duration::ZERO),
        stale_while_revalidate: written.stale_while_revalidate.or(Duration::ZERO),
        list_stale_max: written.list_stale_max.or(Duration::from_hours(1)),
        unique_ids: written.unique_ids.value().copied().unwrap_or(false),
        list_sessions_max: written.list_sessions_max.or(8),
        trust_public_cache: written.trust_public_cache.value().copied().unwrap_or(false),
        session_loss: written.session_loss.value().copied().unwrap_or_default(),
        pins: pins::resolve(written),
        idle_timeout: written.idle_timeout.or(Duration::from_secs(4)),
        concurrency: rate::concurrency(written, findings),
        idle_connections_max: written.idle_connections_max.or(64),
        replicas: replicas::resolve(written, findings),
        bridge: bridge::resolve(written),
    }
}

fn first_byte_timeout(
    written: &file::Upstream,
    reply_timeout: Duration,
    findings: &mut Findings,
) -> Duration {
    let first_byte_timeout = written.first_byte_timeout.or(reply_timeout);
    if let Some(span) = written.first_byte_timeout.span().filter(|_| first_byte_timeout > reply_timeout) {
        findings.error(span, "`first_byte_timeout` is more than `reply_timeout`");
    }
    first_byte_timeout
}

fn warn_if_unused(name: &At<String>, file: &File, findings: &mut Findings) {
    let used = file
        .endpoint
        .iter()
        .filter_map(|endpoint| endpoint.value.upstreams.value())
        .flatten()
        .any(|used| used.value == name.value);
    if !used {
        let message =
            format!("no endpoint uses upstream `{}`: name it in the `upstreams` of one", name.value);
        findings.warnings.push(Warning::new(name.span.clone(), message));
    }
}

/// `^[a-z][a-z0-9-]{0,31}$`
fn is_name(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn eras(upstream: &file::Upstream, findings: &mut Findings) -> Option<Eras> {
    let At { value: written, span } = upstream.eras.0.as_ref()?;
    if written.is_empty() {
        findings.error(span.clone(), "`eras` is empty: name \"modern\", \"legacy\" or both, or leave it out");
        return None;
    }
    for (index, era) in written.iter().enumerate() {
        if written[..index].iter().any(|earlier| earlier.value == era.value) {
            findings.error(era.span.clone(), "the same era twice: name each once");
        }
    }
    let has = |era| written.iter().any(|written| written.value == era);
    if has(Era::Modern) && upstream.transport.value() == Some(&Transport::Sse) {
        let message = "HTTP+SSE carries no modern revision: write `eras = [\"legacy\"]`, or leave it out";
        findings.error(span.clone(), message);
    }
    Some(Eras { legacy: has(Era::Legacy), modern: has(Era::Modern) })
}

/// How it is started. Keys that only matter then are refused elsewhere, as they would do nothing.
fn command(upstream: &file::Upstream, findings: &mut Findings) -> Option<Command> {
    let Some(At { value: words, span }) = &upstream.command.0 else {
        let pointless = [
            ("args", upstream.args.span()),
            ("env", upstream.env.span()),
            ("env_pass", upstream.env_pass.span()),
            ("directory", upstream.directory.span()),
            ("isolation", upstream.isolation.span()),
            ("children_max", upstream.children_max.span()),
            ("stop_timeout", upstream.stop_timeout.span()),
            ("child_idle_timeout", upstream.child_idle_timeout.span()),
        ];
        for (key, span) in pointless {
            if let Some(span) = span {
                let message = format!("`{key}` is for upstreams that are started by a `command`");
                let error = ConfigError::new(span, message);
                findings.errors.push(if key == "env" { error.secret() } else { error });
            }
        }
        return None;
    };
    let of_http = [
        ("url", upstream.url.span()),
        ("urls", upstream.urls.span()),
        ("transport", upstream.transport.span()),
        ("unique_ids", upstream.unique_ids.span()),
    ];
    for (key, span) in of_http {
        if let Some(span) = span {
            findings.error(span, format!("`{key}` and `command` exclude each other: keep one"));
        }
    }
    let mut words: Vec<String> = match words {
        Words::One(program) => vec![program.clone()],
        Words::Many(words) => words.clone(),
    };
    words.extend(upstream.args.value().into_iter().flatten().map(|word| word.value.clone()));
    if words.first().is_none_or(String::is_empty) {
        findings.error(span.clone(), "`command` names no program");
        return None;
    }
    if words.iter().any(|word| word.contains('\0')) {
        findings.error(span.clone(), "a command cannot hold a NUL character");
    }
    let program = words.remove(0);
    let (mut env, mut secret_env) = (Vec::new(), Vec::new());
    for (At { value: name, span: name_span }, At { value, span }) in
        upstream.env.value().into_iter().flatten()
    {
        if !is_variable(name) {
            let message = "not the name of an environment variable";
            findings.errors.push(ConfigError::new(name_span.clone(), message).secret());
        }
        match value {
            TextOrSecret::Text(text) => {
                if text.contains('\0') {
                    let message = "a value cannot hold a NUL character";
                    findings.errors.push(ConfigError::new(span.clone(), message).secret());
                }
                env.push((name.clone(), text.clone()));
            }
            TextOrSecret::Secret(secret) => {
                let written = At { value: secret.clone(), span: span.clone() };
                let source = WrittenSecret::resolve(&written, findings);
                secret_env.extend(source.map(|source| (name.clone(), source)));
            }
        }
    }
    let mut env_pass = Vec::new();
    for At { value, span } in upstream.env_pass.value().into_iter().flatten() {
        if !is_variable(value) {
            findings.error(span.clone(), "not the name of an environment variable");
        }
        env_pass.push(value.clone());
    }
    let directory = upstream.directory.0.as_ref().map(|At { value, span }| {
        if !value.starts_with('/') || value.contains('\0') {
            findings.error(span.clone(), "`directory` is not an absolute path");
        }
        PathBuf::from(value)
    });
    Some(Command {
        program,
        args: words,
        env,
        secret_env,
        env_pass,
        directory,
        isolation: upstream.isolation.value().copied().unwrap_or_default(),
        children_max: upstream.children_max.or(64),
        stop_timeout: upstream.stop_timeout.or(Duration::from_secs(5)),
        idle_timeout: upstream.child_idle_timeout.or(Duration::from_mins(10)),
    })
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn urls(name: &At<String>, upstream: &At<file::Upstream>, findings: &mut Findings) -> Vec<Url> {
    let At { value: written, span } = upstream;
    let texts: Vec<&At<String>> = match (&written.url.0, &written.urls.0) {
        (Some(url), None) => vec![url],
        (None, Some(urls)) => {
            if urls.value.is_empty() {
                findings.error(urls.span.clone(), "`urls` is empty: name at least one replica");
            }
            urls.value.iter().collect()
        }
        (Some(_), Some(urls)) => {
            findings
                .error(urls.span.clone(), "`url` and `urls` exclude each other: put all replicas in `urls`");
            Vec::new()
        }
        (None, None) => {
            if !findings.damaged.table(span) {
                let message = format!(
                    "upstream `{0}` has no `url`: write `url = \"http://HOST:PORT/mcp\"`, or the `command` that starts it",
                    name.value
                );
                findings.error(name.span.clone(), message);
            }
            Vec::new()
        }
    };

    let mut distinct = BTreeSet::new();
    let mut urls = Vec::new();
    for text in texts {
        match url(&text.value) {
            Ok(url)
                if distinct.insert((url.host.clone(), url.port, url.is_tls, url.path_and_query.clone())) =>
            {
                urls.push(url);
            }
            Ok(_) => findings.error(text.span.clone(), "the same URL twice: name each replica once"),
            Err(fault) => {
                let error = ConfigError::new(text.span.clone(), fault.message());
                let may_hold_password = text.value.contains('@');
                findings.errors.push(if may_hold_password { error.secret() } else { error });
            }
        }
    }
    urls
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UrlFault {
    Malformed,
    Scheme,
    UserInfo,
    Fragment,
    Port,
}

impl UrlFault {
    fn message(self) -> &'static str {
        match self {
            Self::Malformed => "not a URL: write for example \"http://127.0.0.1:9101/mcp\"",
            Self::Scheme => "an upstream's URL begins with `http://` or `https://`",
            Self::UserInfo => "a URL must not hold a user or password: remove what stands before `@`",
            Self::Fragment => "a URL to call has no fragment: remove `#` and what follows",
            Self::Port => "not a port: write a number from 1 to 65535 after the host",
        }
    }
}

/// Reads the URL of a server that is called; an error says what to write instead.
pub fn server_url(text: &str) -> Result<Url, &'static str> {
    url(text).map_err(UrlFault::message)
}

fn url(text: &str) -> Result<Url, UrlFault> {
    let Some((scheme, rest)) = text.split_once("://") else { return Err(UrlFault::Scheme) };
    let is_tls = scheme.eq_ignore_ascii_case("https");
    if !is_tls && !scheme.eq_ignore_ascii_case("http") {
        return Err(UrlFault::Scheme);
    }
    if text.contains('#') {
        return Err(UrlFault::Fragment);
    }
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let authority = &rest[..authority_end];
    if authority.contains('@') {
        return Err(UrlFault::UserInfo);
    }
    let (host, port) = host_and_port(authority, if is_tls { 443 } else { 80 })?;
    let path_and_query = text
        .parse::<http::Uri>()
        .ok()
        .and_then(|uri| uri.path_and_query().map(ToString::to_string))
        .ok_or(UrlFault::Malformed)?;
    Ok(Url {
        authority: authority.to_owned(),
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port,
        is_tls,
        path_and_query,
    })
}

fn host_and_port(authority: &str, default_port: u16) -> Result<(&str, u16), UrlFault> {
    // The colons of an IPv6 address are inside its brackets.
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[host_end..].find(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(host_end + colon);
            (host, port[1..].parse().ok().filter(|port| *port != 0).ok_or(UrlFault::Port)?)
        }
        None => (authority, default_port),
    };
    if host.is_empty() || host == "[]" {
        return Err(UrlFault::Malformed);
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_comes_apart() {
        let cases = [
            ("http://127.0.0.1:9101/mcp", ("127.0.0.1:9101", "127.0.0.1", 9101, "/mcp")),
            ("HTTP://tools.example", ("tools.example", "tools.example", 80, "/")),
            ("http://[::1]:9101/mcp?tenant=a", ("[::1]:9101", "::1", 9101, "/mcp?tenant=a")),
            ("http://[::1]", ("[::1]", "::1", 80, "/")),
            ("http://host?tenant=a", ("host", "host", 80, "/?tenant=a")),
            ("https://host/mcp", ("host", "host", 443, "/mcp")),
            ("https://[::1]:8443/", ("[::1]:8443", "::1", 8443, "/")),
            ("http://host/a@b", ("host", "host", 80, "/a@b")),
        ];
        for (text, (authority, host, port, path_and_query)) in cases {
            let expected = Url {
                authority: authority.to_owned(),
                host: host.to_owned(),
                port,
                is_tls: text.starts_with("https"),
                path_and_query: path_and_query.to_owned(),
            };
            assert_eq!(url(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        let cases = [
            ("", UrlFault::Scheme),
            ("127.0.0.1:9101/mcp", UrlFault::Scheme),
            ("/mcp", UrlFault::Scheme),
            ("ftp://host/", UrlFault::Scheme),
            ("http://user:word@host/mcp", UrlFault::UserInfo),
            ("http://host/mcp#top", UrlFault::Fragment),
            ("http://host:0/mcp", UrlFault::Port),
            ("http://host:/mcp", UrlFault::Port),
            ("http://host:65536/mcp", UrlFault::Port),
            ("http://host:80:80/mcp", UrlFault::Port),
            ("http://", UrlFault::Malformed),
            ("http:///mcp", UrlFault::Malformed),
            ("http://:80/mcp", UrlFault::Malformed),
            ("http://[]/mcp", UrlFault::Malformed),
            ("http://[::1/mcp", UrlFault::Port),
            ("http://a b/mcp", UrlFault::Malformed),
            ("http://host/a b", UrlFault::Malformed),
            ("http://host/\r\nHost: other", UrlFault::Malformed),
            ("http://hóst/", UrlFault::Malformed),
        ];
        for (text, fault) in cases {
            assert_eq!(url(text), Err(fault), "{text}");
        }
    }
}
