//! An absolute URI, taken apart strictly: RFC 3986, and of it only the part that every reader understands in the same way.
//!
//! Browsers repair what they are given: a backslash becomes a slash, `127.1` an address, a tab nothing. A URI that anybody
//! would have to repair is refused here, so nobody can be sent elsewhere than where a check has looked.
//!
//! Invariants: nothing is changed, decoded or completed; all that is accepted is ASCII.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Longer ones are of no use to anybody, and travel in cookies.
pub const URI_BYTES_MAX: usize = 2048;
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// An absolute URI in its parts, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uri<'u> {
    /// All of it.
    pub text: &'u str,
    /// Before the first colon.
    pub scheme: &'u str,
    /// The host, with the brackets of IPv6; `None`: nothing follows `scheme:` that begins with `//`.
    pub host: Option<&'u str>,
    /// The port that is written.
    pub port: Option<u16>,
    /// The path; it may be empty.
    pub path: &'u str,
    /// After `?`, where one is written.
    pub query: Option<&'u str>,
}

/// The cause for which a URI is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriFault {
    /// It is too long.
    #[error("it is longer than {URI_BYTES_MAX} bytes")]
    TooLong,
    /// No scheme, or an odd one.
    #[error("it does not begin with a scheme, as https:")]
    Scheme,
    /// A character that no URI has.
    #[error("it holds a character that no URI has, such as a blank, a backslash or a letter beyond ASCII")]
    Character,
    /// `%` without two digits.
    #[error("a % without two hexadecimal digits after it")]
    Escape,
    /// `#`.
    #[error("it has a fragment")]
    Fragment,
    /// `user@`.
    #[error("it has a user or password before the host")]
    UserInfo,
    /// A host that readers take for different ones.
    #[error("its host is missing, or readers do not agree on it")]
    Host,
    /// No port.
    #[error("its port is no number from 1 to 65535")]
    Port,
    /// `.` or `..` as a segment, also escaped.
    #[error("its path has a segment that is only dots")]
    DotSegment,
}

impl<'u> Uri<'u> {
    /// Takes a URI apart.
    pub fn read(text: &'u str) -> Result<Self, UriFault> {
        if text.len() > URI_BYTES_MAX {
            return Err(UriFault::TooLong);
        }
        check_characters(text)?;
        let (scheme, rest) = text.split_once(':').ok_or(UriFault::Scheme)?;
        if !is_scheme(scheme) {
            return Err(UriFault::Scheme);
        }
        let (before_query, query) = match rest.split_once('?') {
            Some((before, query)) => (before, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = match before_query.strip_prefix("//") {
            Some(after) => {
                let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
                (Some(authority), path)
            }
            None => (None, before_query),
        };
        if path.split('/').any(is_dots) {
            return Err(UriFault::DotSegment);
        }
        let (host, port) = match authority {
            // A private scheme may have an empty authority: `app:///back`.
            Some("") if !is_web(scheme) => (None, None),
            Some(authority) => {
                let (host, port) = host_and_port(authority)?;
                (Some(host), port)
            }
            None => (None, None),
        };
        let uri = Self { text, scheme, host, port, path, query };
        if uri.is_web() && host.is_none() {
            return Err(UriFault::Host);
        }
        Ok(uri)
    }

    /// True for the scheme of this name.
    pub fn has_scheme(&self, name: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(name)
    }

    /// True for `http` and `https`.
    pub fn is_web(&self) -> bool {
        is_web(self.scheme)
    }

    /// The port that is reached: that of the scheme where none is written.
    pub fn port_or_default(&self) -> Option<u16> {
        self.port.or_else(|| match () {
            () if self.has_scheme("https") => Some(443),
            () if self.has_scheme("http") => Some(80),
            () => None,
        })
    }

    /// True where both have the same scheme, host and port.
    pub fn has_origin_of(&self, other: &Uri<'_>) -> bool {
        let hosts = self.host.zip(other.host);
        self.scheme.eq_ignore_ascii_case(other.scheme)
            && hosts.is_some_and(|(one, another)| one.eq_ignore_ascii_case(another))
            && self.port_or_default() == other.port_or_default()
    }

    /// True where a browser that asks for this URI names this `Host`: case and a default port make no difference, a final dot
    /// does, since cookies take that for another host.
    pub fn is_at_host(&self, host: &str) -> bool {
        let Ok((name, port)) = host_and_port(host) else { return false };
        let default = if self.has_scheme("https") { 443 } else { 80 };
        self.host.is_some_and(|own| own.eq_ignore_ascii_case(name))
            && self.port_or_default() == Some(port.unwrap_or(default))
    }

    /// True for `localhost`, `127.0.0.1` and `[::1]`, which reach the machine of the browser.
    pub fn is_loopback(&self) -> bool {
        self.host.is_some_and(|host| {
            host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
        })
    }

    /// True where the host is an address and no name.
    pub fn has_address(&self) -> bool {
        self.host.is_some_and(|host| host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok())
    }
}

fn check_characters(text: &str) -> Result<(), UriFault> {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'#' => return Err(UriFault::Fragment),
            b'%' => {
                let digits = bytes.get(at + 1..at + 3).unwrap_or_default();
                if digits.len() != 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(UriFault::Escape);
                }
            }
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => return Err(UriFault::Character),
            byte if !byte.is_ascii_graphic() => return Err(UriFault::Character),
            _ => {}
        }
    }
    Ok(())
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// `.` and `..`, with any of their dots escaped.
fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), UriFault> {
    if authority.contains('@') {
        return Err(UriFault::UserInfo);
    }
    // The colons of an IPv6 address are inside its brackets.
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[host_end..].find(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(host_end + colon);
            (host, Some(read_port(&port[1..])?))
        }
        None => (authority, None),
    };
    if is_host(host) { Ok((host, port)) } else { Err(UriFault::Host) }
}

fn read_port(text: &str) -> Result<u16, UriFault> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain).ok_or(UriFault::Port)
}

/// A name that no reader takes for an address, an IPv4 address with four numbers, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        return address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_known)
    };
    // Browsers take a last label that is a number for the end of an IPv4 address, in any base.
    let last = host.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    host.len() <= HOST_BYTES_MAX
        && host.split('.').all(is_label)
        && (!is_number || host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uri_comes_apart() {
        let uri = Uri::read("HTTPS://Host.example:8443/a/b?c=d?e").expect("a URI");
        assert_eq!((uri.scheme, uri.host, uri.port), ("HTTPS", Some("Host.example"), Some(8443)));
        assert_eq!((uri.path, uri.query), ("/a/b", Some("c=d?e")));
        let uri = Uri::read("http://[::1]").expect("a URI");
        assert_eq!((uri.host, uri.port, uri.path, uri.query), (Some("[::1]"), None, "", None));
        let uri = Uri::read("com.example.app:/back").expect("a URI");
        assert_eq!((uri.host, uri.path), (None, "/back"));
    }

    #[test]
    fn bad_input_host_with_port_case_and_dot() {
        let uri = Uri::read("https://mcp.example.com").expect("a URI");
        for host in ["mcp.example.com", "MCP.Example.com", "mcp.example.com:443"] {
            assert!(uri.is_at_host(host), "{host}");
        }
        for host in [
            "",
            "mcp.example.com.",
            "mcp.example.com:80",
            "mcp.example.com:",
            "x.mcp.example.com",
            "a@mcp.example.com",
        ] {
            assert!(!uri.is_at_host(host), "{host}");
        }
        let local = Uri::read("http://127.0.0.1:8080").expect("a URI");
        assert!(local.is_at_host("127.0.0.1:8080") && !local.is_at_host("127.0.0.1"));
        let six = Uri::read("http://[::1]:8080").expect("a URI");
        assert!(six.is_at_host("[::1]:8080") && !six.is_at_host("::1"));
    }

    #[test]
    fn bad_input_what_a_browser_would_repair_is_refused() {
        for (text, fault) in [
            ("", UriFault::Scheme),
            ("/path", UriFault::Scheme),
            ("1a:/path", UriFault::Scheme),
            ("https:/host/", UriFault::Host),
            ("https:host", UriFault::Host),
            ("https:///host", UriFault::Host),
            ("https://", UriFault::Host),
            ("https://host\\@evil/", UriFault::Character),
            ("https://host/\u{9}a", UriFault::Character),
            ("https://host /", UriFault::Character),
            (" https://host/", UriFault::Character),
            ("https://h\u{f6}st/", UriFault::Character),
            ("https://host\u{ff0e}evil/", UriFault::Character),
            ("https://host%2eevil/", UriFault::Host),
            ("https://host/%zz", UriFault::Escape),
            ("https://host/%4", UriFault::Escape),
            ("https://host/#", UriFault::Fragment),
            ("https://user@host/", UriFault::UserInfo),
            ("https://@host/", UriFault::UserInfo),
            ("https://host:0/", UriFault::Port),
            ("https://host:/", UriFault::Port),
            ("https://host:080/", UriFault::Port),
            ("https://host:65536/", UriFault::Port),
            ("https://host:+80/", UriFault::Port),
            ("https://127.1/", UriFault::Host),
            ("https://2130706433/", UriFault::Host),
            ("https://0x7f.0.0.0x1/", UriFault::Host),
            ("https://127.0.0.01/", UriFault::Host),
            ("https://host./", UriFault::Host),
            ("https://[::1%25lo]/", UriFault::Host),
            ("https://[::1/", UriFault::Port),
            ("https://a/../b", UriFault::DotSegment),
            ("https://a/b/.", UriFault::DotSegment),
            ("https://a/b/%2E.", UriFault::DotSegment),
        ] {
            assert_eq!(Uri::read(text), Err(fault), "{text}");
        }
        assert_eq!(Uri::read(&format!("https://a/{}", "b".repeat(URI_BYTES_MAX))), Err(UriFault::TooLong));
    }

    proptest! {
        /// A browser goes where the check has looked, and nothing panics.
        #[test]
        fn a_browser_reads_the_same(text in r"(https?|HTTP|a\.b)://[a-zA-Z0-9.:@\[\]\\%x#-]{0,12}[/?a-z.%\\@:]{0,10}") {
            if let Ok(uri) = Uri::read(&text)
                && uri.is_web()
                && let Ok(browser) = url::Url::parse(&text)
            {
                let host = uri.host.expect("a host").to_ascii_lowercase();
                if !host.starts_with('[') {
                    prop_assert_eq!(browser.host_str(), Some(host.as_str()));
                }
                prop_assert_eq!(browser.port_or_known_default(), uri.port_or_default());
                prop_assert_eq!(browser.path(), if uri.path.is_empty() { "/" } else { uri.path });
                prop_assert_eq!(browser.query(), uri.query);
            }
        }

        #[test]
        fn nothing_panics(text in any::<String>()) {
            let _ = Uri::read(&text);
            let _ = Uri::read(&format!("https://{text}"));
        }
    }
}
