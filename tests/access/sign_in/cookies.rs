//! Cookies of sign-in, as a browser gets them.

use super::browser::{assert_page, sealed_form, set_cookies};
use super::place::{asking, authorize, code_of, here};
use super::{Browser, Place, REDIRECT, Settings};
use crate::harness::{Request, post};

/// Sign-in as it is seen from outside in production.
const HTTPS: &str = "https://mcp.example.com";

#[test]
fn over_http_no_script_reads_them_and_no_other_site_brings_them() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let mut browser = Browser::default();
    let page = browser.open(&place.daemon, &authorize(&asking(&client)));
    let moving = browser.answer(&place.daemon, &page, "allow");
    let all: Vec<&str> = [&page, &moving].into_iter().flat_map(set_cookies).collect();
    assert_eq!(all.len(), 2, "{all:?}");
    for (cookie, name) in all.iter().zip(["trunkline-form=", "trunkline-sign-in-"]) {
        assert!(cookie.starts_with(name), "{cookie}");
        assert!(cookie.contains("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax"), "{cookie}");
        assert!(!cookie.contains("Secure") && !cookie.contains("Domain") && cookie.len() <= 2048, "{cookie}");
    }
}

#[test]
fn over_https_they_are_of_this_host_alone() {
    let place = Place::with(Settings { url: HTTPS, ..Settings::default() });
    let there = |request: Request| request.set("Host", "mcp.example.com");
    let asked = r#"{"redirect_uris":["http://127.0.0.1:3118/cb"]}"#;
    let registered = place.daemon.send(&there(post(asked).target("/register")));
    let client =
        registered.json()["client_id"].as_str().unwrap_or_else(|| panic!("{registered:?}")).to_owned();
    let mut browser = Browser::default();
    let target =
        authorize(&asking(&client)).replace("http%3A%2F%2Flocalhost%3A7000", "https%3A%2F%2Fmcp.example.com");
    let page = browser.send(&place.daemon, there(super::get(&target)));
    let answer = super::browser::consent(&sealed_form(&page), "allow").set("Origin", HTTPS);
    let moving = browser.send(&place.daemon, there(answer));
    let all: Vec<&str> = [&page, &moving].into_iter().flat_map(set_cookies).collect();
    assert_eq!(all.len(), 2, "{all:?} {}", moving.text());
    for (cookie, name) in all.iter().zip(["__Host-trunkline-form=", "__Host-trunkline-sign-in-"]) {
        assert!(cookie.starts_with(name), "{cookie}");
        assert!(cookie.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    }
}

#[test]
fn three_sign_ins_of_a_browser_are_under_way_at_most() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let mut browser = Browser::default();
    let mut backs = Vec::new();
    for count in 1..=5 {
        backs.push(place.visit(&mut browser, &client, "alice"));
        assert_eq!(browser.under_way().len(), count.min(3));
    }
    let outcomes: Vec<u16> = backs.iter().map(|back| browser.open(&place.daemon, back).status).collect();
    assert_eq!(outcomes.iter().filter(|status| **status == 303).count(), 3, "{outcomes:?}");
    assert_eq!(outcomes[4], 303, "the newest is one of them: {outcomes:?}");
}

#[test]
fn one_that_came_twice_does_not_count() {
    let place = Place::start();
    let mut browser = Browser::default();
    let back = place.visit(&mut browser, &place.register(REDIRECT), "alice");
    let name = browser.under_way().pop().expect("a sign-in");
    let value = browser.cookies[&name].clone();
    let planted = here(super::get(&back)).set("Cookie", format!("{name}={value}; {name}=x"));
    assert_page(&place.daemon.send(&planted), 403, "");
    code_of(&browser.open(&place.daemon, &back));
}
