//! Addresses that a page leads to: of the provider, of a client.
//!
//! Which are allowed is decided before; here they are made fit for a link. Invariants: an address begins with a scheme that
//! runs nothing within the page, and holds only characters that every reader of URLs takes for the same.

use std::fmt::Write as _;

/// More than any request or answer of sign-in has.
const URL_BYTES_MAX: usize = 16 << 10;
/// A browser runs or shows what these name itself, in place of going there.
const SCHEMES_NEVER: [&str; 10] =
    ["javascript", "vbscript", "data", "blob", "file", "filesystem", "about", "view-source", "chrome", "ws"];

/// An address that a page may lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageTarget {
    url: String,
    /// Host and port, or the scheme and a colon.
    place: String,
}

impl PageTarget {
    /// `None` if it is no absolute URL, is too long, or has a scheme that never leads to a client.
    pub fn new(url: &str) -> Option<Self> {
        if url.len() > URL_BYTES_MAX {
            return None;
        }
        let (scheme, rest) = url.split_once(':')?;
        let scheme = scheme.to_ascii_lowercase();
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte));
        if !is_scheme || SCHEMES_NEVER.contains(&&*scheme) {
            return None;
        }
        let rest = encoded(rest);
        let place = if matches!(&*scheme, "http" | "https") {
            let authority = rest.strip_prefix("//")?.split(['/', '?', '#']).next()?;
            authority.rsplit('@').next().filter(|host| !host.is_empty())?.to_owned()
        } else {
            format!("{scheme}:")
        };
        Some(Self { url: format!("{scheme}:{rest}"), place })
    }

    /// The whole of it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it leads, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether an app of this computer opens it, not the browser: the page then stays.
    pub fn is_of_app(&self) -> bool {
        self.place.ends_with(':')
    }
}

/// `text` with what no URL holds percent-encoded; what is encoded stays so.
fn encoded(text: &str) -> String {
    let mut url = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_lead_somewhere() {
        for (url, expected, place) in [
            (
                "https://login.example.com/a?b=c&d=%20",
                "https://login.example.com/a?b=c&d=%20",
                "login.example.com",
            ),
            ("HTTP://127.0.0.1:8123/cb", "http://127.0.0.1:8123/cb", "127.0.0.1:8123"),
            ("http://[::1]:8123/cb", "http://[::1]:8123/cb", "[::1]:8123"),
            ("https://good.example@evil.example/", "https://good.example@evil.example/", "evil.example"),
            ("https://a.example\\@evil.example/", "https://a.example%5C@evil.example/", "evil.example"),
            ("https://a.example/\" onclick=x\n", "https://a.example/%22%20onclick=x%0A", "a.example"),
            ("https://a.example/天", "https://a.example/%E5%A4%A9", "a.example"),
            ("cursor://anysphere.cursor-mcp/cb?code=1", "cursor://anysphere.cursor-mcp/cb?code=1", "cursor:"),
            ("com.example.app:/cb", "com.example.app:/cb", "com.example.app:"),
        ] {
            let target = PageTarget::new(url).unwrap_or_else(|| panic!("{url}"));
            assert_eq!((target.url(), target.place()), (expected, place));
        }
        let long = format!("https://a.example/{}", "a".repeat(URL_BYTES_MAX));
        for url in [
            "",
            "/cb",
            "//evil.example",
            "https:",
            "https:evil.example",
            "https://",
            "https:///x",
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            " javascript:alert(1)",
            "java\nscript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "1a:b",
            &long,
        ] {
            assert_eq!(PageTarget::new(url), None, "{url}");
        }
    }
}
