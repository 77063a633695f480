//! Who is let in: whoever has the token where there is one, and no page of a browser.
//!
//! A page that an operator looks at can make their browser send requests to this machine. What gives it away are the
//! headers that a page cannot change: `Origin` and `Sec-Fetch-Site`; `Host`, which names the page's own site where a name
//! of it was made to lead here; and `Content-Type`, as no form can send JSON.

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::access::auth::operator::Operators;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// A page of another site is behind it.
    Origin,
    /// It is addressed to a name that is not this machine's.
    Host,
    /// It has no token, or a wrong one.
    Token,
    /// It would change something, and a form could have sent it.
    Form,
}

impl Refused {
    /// For metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Host => "host",
            Self::Token => "token",
            Self::Form => "form",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Origin | Self::Host => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::Form => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    /// For whoever asked, at the listener of this section.
    pub(super) fn text(self, section: &str) -> String {
        match self {
            Self::Origin => "not for pages of other sites\n".into(),
            Self::Host => "address it by IP address or as localhost\n".into(),
            Self::Token => format!("the token of [{section}] is needed: Authorization: Bearer TOKEN\n"),
            Self::Form => "send it with Content-Type: application/json\n".into(),
        }
    }
}

/// Refuses what a page of another site has sent.
pub(super) fn check_page(headers: &HeaderMap) -> Result<(), Refused> {
    let is_own_site = headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    let host = headers.get(HOST).map_or(&b""[..], |host| host.as_bytes());
    let is_own_origin = headers.get_all(ORIGIN).iter().all(|origin| {
        let authority =
            [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.as_bytes().strip_prefix(*scheme));
        authority.is_some_and(|authority| !host.is_empty() && authority.eq_ignore_ascii_case(host))
    });
    if is_own_site && is_own_origin { Ok(()) } else { Err(Refused::Origin) }
}

/// Whether a person goes there with their browser, from wherever: what comes of it is a page of its own, in no frame, and
/// no other page can read it.
pub(super) fn is_visit(headers: &HeaderMap) -> bool {
    let is_all = |name: &HeaderName, wanted: &[u8]| {
        let mut values = headers.get_all(name).iter();
        values.next().is_some_and(|value| value.as_bytes() == wanted) && values.next().is_none()
    };
    is_all(&SEC_FETCH_MODE, b"navigate")
        && is_all(&SEC_FETCH_DEST, b"document")
        && !headers.contains_key(ORIGIN)
}

/// Refuses whoever is not an operator. `is_named_freely`: any name may lead to the listener.
pub(super) fn check_operator(
    headers: &HeaderMap,
    operators: &Operators,
    is_named_freely: bool,
) -> Result<(), Refused> {
    if operators.is_open() {
        let is_ours = |host: &http::HeaderValue| is_own_name(host.as_bytes());
        return if is_named_freely || headers.get_all(HOST).iter().all(is_ours) {
            Ok(())
        } else {
            Err(Refused::Host)
        };
    }
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (shown.next(), shown.next());
    if second.is_none() && operators.admit(first) { Ok(()) } else { Err(Refused::Token) }
}

/// Refuses what a form could have sent.
pub(super) fn check_form(headers: &HeaderMap) -> Result<(), Refused> {
    let media = headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    let essence = media.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(Refused::Form) }
}

/// An address, or a name that always means this machine.
fn is_own_name(host: &[u8]) -> bool {
    let Ok(authority) = http::uri::Authority::try_from(host) else { return false };
    let name = authority.host();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<std::net::IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = ("host", "localhost:9090");
        let cases: [(&[(&str, &str)], bool); 12] = [
            (&[], true),
            (&[("origin", "http://localhost:9090")], true),
            (&[("origin", "https://LOCALHOST:9090")], true),
            (&[("origin", "http://localhost:9091")], false),
            (&[("origin", "http://evil.example")], false),
            (&[("origin", "null")], false),
            (&[("origin", "")], false),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("origin", "http://localhost:9090"), ("sec-fetch-site", "cross-site")], false),
        ];
        for (lines, expected) in cases {
            let all: Vec<_> = lines.iter().copied().chain([host]).collect();
            let pairs = all
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            assert_eq!(check_page(&pairs.collect()).is_ok(), expected, "{lines:?}");
        }
        assert!(check_page(&headers(&[("origin", "http://")])).is_err(), "no Host to be equal to");
    }

    #[test]
    fn visits_are_told_from_requests_of_pages() {
        let (navigate, document) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        for (lines, expected) in [
            (&[navigate, document, ("sec-fetch-site", "cross-site")][..], true),
            (&[], false),
            (&[navigate], false),
            (&[document], false),
            (&[navigate, document, ("origin", "https://evil.example")], false),
            (&[navigate, ("sec-fetch-dest", "iframe")], false),
            (&[("sec-fetch-mode", "no-cors"), document], false),
        ] {
            assert_eq!(is_visit(&headers(lines)), expected, "{lines:?}");
        }
        let mut twice = headers(&[navigate, document]);
        twice.append(SEC_FETCH_DEST, HeaderValue::from_static("document"));
        assert!(!is_visit(&twice), "no browser sends it twice");
    }

    #[test]
    fn names_that_could_be_anybodys_are_refused() {
        let open = Operators::default();
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:9090", true),
            ("127.0.0.1:9090", true),
            ("[::1]:9090", true),
            ("evil.example:9090", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            let headers = headers(&[("host", host)]);
            assert_eq!(check_operator(&headers, &open, false).is_ok(), expected, "{host}");
            assert!(check_operator(&headers, &open, true).is_ok(), "{host}");
        }
        assert!(check_operator(&HeaderMap::new(), &open, false).is_ok(), "browsers always send one");
    }

    #[test]
    fn forms_cannot_send_json() {
        for (media, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("text/plain; application/json", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=x", false),
        ] {
            assert_eq!(check_form(&headers(&[("content-type", media)])).is_ok(), expected, "{media}");
        }
        assert_eq!(check_form(&HeaderMap::new()), Err(Refused::Form));
    }
}
