//! Answers of sign-in: pages, redirects, and what any origin may read.

use identity::oauth_error::Answer;
use identity::pages::{Page, Trouble, trouble};

/// The part of an answer that other origins may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cors {
    Get,
    Post,
}

/// A page.
pub(super) fn page(page: &Page) -> Answer {
    let headers = Page::headers().map(|header| (header.name, header.value.to_owned())).to_vec();
    Answer { status: page.status, headers, body: page.html.clone() }
}

/// The page of an error.
pub(super) fn page_of(cause: &Trouble<'_>, request_id: &str) -> Answer {
    page(&trouble(cause, request_id))
}

/// Sends a browser elsewhere, and has nobody keep that.
pub(super) fn redirect(to: String) -> Answer {
    let headers = vec![
        ("location", to),
        ("cache-control", "no-store".to_owned()),
        ("referrer-policy", "no-referrer".to_owned()),
        ("content-length", "0".to_owned()),
    ];
    Answer { status: 303, headers, body: String::new() }
}

/// Sets cookies with an answer.
pub(super) fn with_cookies(mut answer: Answer, cookies: impl IntoIterator<Item = String>) -> Answer {
    answer.headers.extend(cookies.into_iter().map(|cookie| ("set-cookie", cookie)));
    answer
}

pub(super) fn no_content() -> Answer {
    Answer { status: 204, headers: Vec::new(), body: String::new() }
}

pub(super) fn not_allowed(allow: &'static str) -> Answer {
    let headers = vec![("allow", allow.to_owned()), ("content-length", "0".to_owned())];
    Answer { status: 405, headers, body: String::new() }
}

/// Any origin may read it: it holds nothing that a cookie of the browser brings about.
pub(super) fn with_cors(mut answer: Answer, cors: Cors) -> Answer {
    let methods = match cors {
        Cors::Get => "GET, HEAD, OPTIONS",
        Cors::Post => "POST, OPTIONS",
    };
    let headers = [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-methods", methods),
        ("access-control-allow-headers", "Authorization, Content-Type, MCP-Protocol-Version"),
        ("access-control-expose-headers", "WWW-Authenticate, Retry-After"),
        ("access-control-max-age", "7200"),
    ];
    answer.headers.extend(headers.map(|(name, value)| (name, value.to_owned())));
    answer
}
