//! The URLs of upstreams.

use std::net::IpAddr;

use super::text::{Fault, texts};

/// Where a replica is: an `http` or `https` URL in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// `host` or `host:port` as written: the value of the `Host` header.
    pub authority: String,
    /// Host name or IP address, without the brackets of IPv6.
    pub host: String,
    /// Port; 80 or 443 unless written.
    pub port: u16,
    /// Whether it is reached over TLS.
    pub is_tls: bool,
    /// Path and query; at least `/`.
    pub path_and_query: String,
}

texts! {
    /// The URL of a server that is called.
    pub ServerUrl -> Url, "^[Hh][Tt][Tt][Pp][Ss]?://[^@#]+$", |text: &str| server_url(text).map_err(Fault::from);
}

impl Url {
    /// Whether what is sent there stays on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse().is_ok_and(is_loopback)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlFault {
    Malformed,
    Scheme,
    UserInfo,
    Fragment,
    Port,
    Variable,
}

impl UrlFault {
    fn message(self) -> &'static str {
        match self {
            Self::Malformed => "not a URL: write for example \"http://127.0.0.1:9101/mcp\"",
            Self::Scheme => "an upstream's URL begins with `http://` or `https://`",
            Self::UserInfo => "a URL must not hold a user or password: remove what stands before `@`",
            Self::Fragment => "a URL to call has no fragment: remove `#` and what follows",
            Self::Port => "not a port: write a number from 1 to 65535 after the host",
            Self::Variable => "a host has no `$`: a variable of the environment is written `${NAME}`",
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
    if authority.contains('$') {
        return Err(UrlFault::Variable);
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

pub(super) fn host_and_port(authority: &str, default_port: u16) -> Result<(&str, u16), UrlFault> {
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
            ("http://$HOST:9101/mcp", UrlFault::Variable),
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
