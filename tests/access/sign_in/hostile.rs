//! Hostile pages beside the browser's, programs that follow links before people do, and what is of another gateway.

use super::browser::{Browser, assert_page, consent, moves_on, sealed_form};
use super::place::{Place, asking, authorize, code_of};
use super::{REDIRECT, Settings, URL, get};
use crate::harness::Response;

/// Checks that no browser shows it within another page, and that nobody keeps it.
#[track_caller]
fn assert_alone(page: &Response) {
    let header = |name| page.header(name).unwrap_or_else(|| panic!("{name}: {page:?}"));
    let policy = header("content-security-policy");
    for part in ["frame-ancestors 'none'", "default-src 'none'", "base-uri 'none'", "form-action 'self'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("script-src"), "{policy}");
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(name), value, "{name}");
    }
}

#[test]
fn no_page_is_shown_within_another() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let mut browser = Browser::default();
    let page = browser.open(&place.daemon, &authorize(&asking(&client)));
    assert_alone(&page);
    let moving = browser.answer(&place.daemon, &page, "allow");
    assert_alone(&moving);
    for refused in [
        browser.open(&place.daemon, "/authorize"),
        browser.open(&place.daemon, "/sign-in/callback"),
        browser.open(&place.daemon, "/sign-in/nothing"),
        place.daemon.send(&get("/sign-in/").set("Host", "localhost")),
    ] {
        assert!(refused.status >= 400);
        assert_alone(&refused);
    }
    let visit = browser.open(&place.daemon, "/sign-in/");
    let back = place.provider.sign_in(visit.header("location").expect("the provider"), "alice");
    browser.open(&place.daemon, back.strip_prefix(URL).expect("the gateway"));
    let own = browser.open(&place.daemon, "/sign-in/");
    assert_eq!(own.status, 200, "{}", own.text());
    assert_alone(&own);
}

#[test]
fn who_follows_links_ahead_of_a_person_begins_and_spoils_nothing() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let target = authorize(&asking(&client));
    let ahead = |browser: &mut Browser, target: &str| {
        browser.send(&place.daemon, get(target).with("Sec-Purpose", "prefetch;prerender"))
    };
    // A program that looks at links, without cookies, and the browser of the person itself.
    sealed_form(&ahead(&mut Browser::default(), &target));
    let mut browser = Browser::default();
    let page = ahead(&mut browser, &target);
    assert!(browser.under_way().is_empty());
    assert_eq!(place.daemon.metric("trunkline_sign_ins_total"), 0);
    let visit = moves_on(&browser.answer(&place.daemon, &page, "allow"));
    let back = place.provider.sign_in(&visit, "alice");
    let back = back.strip_prefix(URL).expect("the gateway");
    assert_page(&ahead(&mut Browser::default(), back), 403, "this browser");
    let code = code_of(&browser.open(&place.daemon, back));
    place.exchange(&client, &code).tokens();
}

#[test]
fn what_is_of_another_gateway_is_nothing_here() {
    let (here, there) = (Place::start(), Place::start());
    let (client, foreign) = (here.register(REDIRECT), there.register(REDIRECT));
    let mut browser = Browser::default();
    let page = browser.open(&there.daemon, &authorize(&asking(&foreign)));
    let back = there.visit(&mut browser, &foreign, "alice");
    let mut here_too = browser.clone();
    let code = code_of(&browser.open(&there.daemon, &back));
    let tokens = there.exchange(&foreign, &code).tokens();
    let page_of_client = here.daemon.send(&get(&authorize(&asking(&foreign))));
    assert_page(&page_of_client, 400, "");
    assert_page(&here_too.send(&here.daemon, consent(&sealed_form(&page), "allow")), 403, "this browser");
    assert_page(&here_too.open(&here.daemon, &back), 403, "this browser");
    assert_eq!(here.call(&tokens.access), 401);
    for (client, expected) in [(&client, "invalid_grant"), (&foreign, "invalid_client")] {
        here.refresh(client, &tokens.refresh).assert_refused(expected);
        here.exchange(client, &code).assert_refused(expected);
    }
    assert_eq!(there.call(&tokens.access), 200);
    there.refresh(&foreign, &tokens.refresh).tokens();
}

#[test]
fn a_token_says_nothing_at_a_gateway_of_another_name() {
    let mut place = Place::start();
    let tokens = place.signed_in("alice");
    assert_eq!(place.call(&tokens.access), 200);
    // The same keys and records.
    place.restart(Settings { url: "http://localhost:7001", ..Settings::default() });
    assert_eq!(place.call(&tokens.access), 401);
}
