//! The browser of a person: it keeps cookies, and does what a page wants of it.

use std::collections::BTreeMap;

use super::place::{URL, form, get, post_form};
use crate::harness::{Daemon, Request, Response};

/// A browser with its cookies, all of the gateway's host.
#[derive(Clone, Default)]
pub(super) struct Browser {
    pub(super) cookies: BTreeMap<String, String>,
}

impl Browser {
    /// Sends a request with the cookies, and keeps those that are set.
    pub(super) fn send(&mut self, daemon: &Daemon, request: Request) -> Response {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = if cookies.is_empty() { request } else { request.set("Cookie", cookies.join("; ")) };
        let response = daemon.send(&request);
        for cookie in set_cookies(&response) {
            let (pair, attributes) = cookie.split_once(';').expect("a cookie has attributes");
            let (name, value) = pair.split_once('=').expect("a cookie has a value");
            if attributes.contains("Max-Age=0;") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.into(), value.into());
            }
        }
        response
    }

    /// Opens an address of the gateway.
    pub(super) fn open(&mut self, daemon: &Daemon, target: &str) -> Response {
        self.send(daemon, get(target))
    }

    /// Answers the page that asks for consent.
    pub(super) fn answer(&mut self, daemon: &Daemon, page: &Response, answer: &str) -> Response {
        self.send(daemon, consent(&sealed_form(page), answer))
    }

    /// The names of the cookies of sign-ins that are under way.
    pub(super) fn under_way(&self) -> Vec<String> {
        self.cookies.keys().filter(|name| name.contains("trunkline-sign-in-")).cloned().collect()
    }
}

/// The answer to a page that asks for consent, as its form sends it.
pub(super) fn consent(sealed: &str, answer: &str) -> Request {
    post_form("/sign-in/consent", &form(&[("form", sealed), ("answer", answer)])).with("Origin", URL)
}

/// The cookies that a response sets, as they are written.
pub(super) fn set_cookies(response: &Response) -> Vec<&str> {
    let set = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    set.map(|(_, value)| value.as_str()).collect()
}

/// The sealed text in the form of a page.
#[track_caller]
pub(super) fn sealed_form(page: &Response) -> String {
    assert_eq!(page.status, 200, "{}", page.text());
    between(&page.text(), "name=\"form\" value=\"", "\"")
}

/// The address that a page moves on to.
#[track_caller]
pub(super) fn moves_on(page: &Response) -> String {
    assert_eq!(page.status, 200, "{}", page.text());
    between(&page.text(), "url=", "\"")
}

/// The text of a page between two others, without its escapes.
#[track_caller]
fn between(page: &str, before: &str, after: &str) -> String {
    let (_, rest) = page.split_once(before).unwrap_or_else(|| panic!("no {before} in {page}"));
    let (text, _) = rest.split_once(after).expect("its end");
    text.replace("&quot;", "\"").replace("&#39;", "'").replace("&lt;", "<").replace("&amp;", "&")
}

/// Checks the page of an error: nobody is sent anywhere, and nothing is kept of it.
#[track_caller]
pub(super) fn assert_page(response: &Response, status: u16, says: &str) {
    let text = response.text();
    assert_eq!(response.status, status, "{text}");
    assert_eq!(response.header("location"), None, "{response:?}");
    assert!(
        response.header("content-type").is_some_and(|value| value.starts_with("text/html")),
        "{response:?}"
    );
    assert_eq!(response.header("cache-control"), Some("no-store"), "{response:?}");
    assert!(!text.contains("http-equiv=\"refresh\""), "{text}");
    assert!(text.contains(says), "{says:?} is not in {text}");
}
