//! Where an upstream wants messages to be sent: a reference, as RFC 3986 has them, relative to where the stream was
//! found. Never leaves the origin of the stream.

use http::Uri;
use http::uri::Authority;

/// A longer one is refused.
const BYTES_MAX: usize = 4096;

/// Why there is nowhere to send messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    /// The stream ended before it said so, or cannot be read.
    #[error("the stream names no address for messages")]
    Missing,
    /// It is longer than any address.
    #[error("the address for messages is too long")]
    TooLong,
    /// It is no reference.
    #[error("the address for messages is not a URL")]
    Malformed,
    /// It leads to another server.
    #[error("the address for messages is of another origin")]
    OtherOrigin,
}

/// Where the stream was found.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// Host, without brackets.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Whether over TLS.
    pub is_tls: bool,
    /// Path and query.
    pub target: &'a Uri,
}

/// The request target that `reference` means.
pub fn resolve(base: Base<'_>, reference: &str) -> Result<Uri, EndpointFault> {
    if reference.len() > BYTES_MAX {
        return Err(EndpointFault::TooLong);
    }
    if !reference.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(EndpointFault::Malformed);
    }
    let reference = reference.split('#').next().unwrap_or_default();
    let (path, query) = split(after_origin(base, reference)?);
    let (base_path, base_query) = (base.target.path(), base.target.query());
    let (path, query) = if path.is_empty() && reference.contains("//") && is_absolute(reference) {
        ("/".to_owned(), query)
    } else if path.is_empty() {
        (base_path.to_owned(), query.or(base_query))
    } else if path.starts_with('/') {
        (without_dots(path), query)
    } else {
        let folder = base_path.rfind('/').map_or("/", |end| &base_path[..=end]);
        (without_dots(&format!("{folder}{path}")), query)
    };
    let target = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
    target.parse().map_err(|_| EndpointFault::Malformed)
}

/// What follows scheme and authority, which must be those of the stream.
fn after_origin<'r>(base: Base<'_>, reference: &'r str) -> Result<&'r str, EndpointFault> {
    if !is_absolute(reference) {
        return Ok(reference);
    }
    let rest = if let Some(rest) = reference.strip_prefix("//") {
        rest
    } else {
        let (scheme, rest) = reference.split_once(':').ok_or(EndpointFault::Malformed)?;
        if !scheme.eq_ignore_ascii_case(if base.is_tls { "https" } else { "http" }) {
            return Err(EndpointFault::OtherOrigin);
        }
        rest.strip_prefix("//").ok_or(EndpointFault::Malformed)?
    };
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(EndpointFault::OtherOrigin);
    }
    let authority: Authority = authority.parse().map_err(|_| EndpointFault::Malformed)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let default_port = if base.is_tls { 443 } else { 80 };
    let is_same =
        host.eq_ignore_ascii_case(base.host) && authority.port_u16().unwrap_or(default_port) == base.port;
    if is_same { Ok(rest) } else { Err(EndpointFault::OtherOrigin) }
}

/// True if it begins with an authority, or a scheme.
fn is_absolute(reference: &str) -> bool {
    let scheme = reference.split(['/', '?']).next().unwrap_or_default();
    reference.starts_with("//") || scheme.contains(':')
}

fn split(reference: &str) -> (&str, Option<&str>) {
    match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    }
}

/// RFC 3986 §5.2.4, for paths that begin with a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_where_the_stream_was_found() {
        let target = "/a/sse?k=1".parse().expect("a target");
        let base = Base { host: "Tools.example", port: 8080, is_tls: false, target: &target };
        for (reference, resolved) in [
            ("/messages/?session_id=1", Ok("/messages/?session_id=1")),
            ("messages?x=1", Ok("/a/messages?x=1")),
            ("./m", Ok("/a/m")),
            ("../m", Ok("/m")),
            ("../../../m/./x/..", Ok("/m/")),
            ("/a/../b/", Ok("/b/")),
            ("?sessionId=7", Ok("/a/sse?sessionId=7")),
            ("", Ok("/a/sse?k=1")),
            ("/m#part", Ok("/m")),
            ("/m?to=http://x.example/", Ok("/m?to=http://x.example/")),
            ("http://tools.example:8080/m?x", Ok("/m?x")),
            ("HTTP://tools.example:8080", Ok("/")),
            ("http://tools.example:8080?x=1", Ok("/?x=1")),
            ("//tools.example:8080/m", Ok("/m")),
            ("http://tools.example/m", Err(EndpointFault::OtherOrigin)),
            ("https://tools.example:8080/m", Err(EndpointFault::OtherOrigin)),
            ("http://evil.example:8080/m", Err(EndpointFault::OtherOrigin)),
            ("//evil.example:8080/m", Err(EndpointFault::OtherOrigin)),
            ("http://tools.example:8080@evil.example/m", Err(EndpointFault::OtherOrigin)),
            ("http://me@tools.example:8080/m", Err(EndpointFault::OtherOrigin)),
            ("file:///etc/passwd", Err(EndpointFault::OtherOrigin)),
            ("http:/m", Err(EndpointFault::Malformed)),
            ("http://", Err(EndpointFault::Malformed)),
            ("/a b", Err(EndpointFault::Malformed)),
            ("/\u{e4}", Err(EndpointFault::Malformed)),
            ("/a\nb", Err(EndpointFault::Malformed)),
        ] {
            let found = resolve(base, reference);
            let expected = resolved.map(|target| target.parse::<Uri>().expect("a target"));
            assert_eq!(found, expected, "{reference}");
        }
        let tls = Base { port: 443, is_tls: true, ..base };
        assert!(resolve(tls, "https://tools.example/m").is_ok());
        assert_eq!(resolve(tls, "http://tools.example:443/m"), Err(EndpointFault::OtherOrigin));
        let long = format!("/{}", "x".repeat(BYTES_MAX));
        assert_eq!(resolve(base, &long), Err(EndpointFault::TooLong));
    }

    #[test]
    fn an_address_may_be_an_ipv6_one() {
        let target = "/sse".parse().expect("a target");
        let base = Base { host: "::1", port: 80, is_tls: false, target: &target };
        assert!(resolve(base, "http://[::1]/m").is_ok());
        assert_eq!(resolve(base, "http://[::2]/m"), Err(EndpointFault::OtherOrigin));
    }
}
