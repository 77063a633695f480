//! The pages of a sign-in belong to one browser: its form, its visit to the provider, its way back.

use super::browser::{assert_page, consent, moves_on, sealed_form};
use super::place::{asking, authorize, code_of};
use super::{Browser, Place, REDIRECT, Settings, URL};
use crate::harness::{Response, eventually};

/// A browser with an open page that asks for consent.
fn asked(place: &Place, client: &str) -> (Browser, Response) {
    let mut browser = Browser::default();
    let page = browser.open(&place.daemon, &authorize(&asking(client)));
    (browser, page)
}

#[test]
fn a_form_that_another_page_posts_does_nothing() {
    let place = Place::start();
    let (browser, page) = asked(&place, &place.register(REDIRECT));
    let answer = consent(&sealed_form(&page), "allow");
    for request in [
        answer.clone().without("Origin"),
        answer.clone().set("Origin", "null"),
        answer.clone().set("Origin", "https://evil.example"),
        answer.clone().set("Origin", "http://localhost:7001"),
        answer.clone().set("Origin", "http://localhost"),
        answer.clone().with("Origin", "https://evil.example"),
    ] {
        let mut browser = browser.clone();
        let refused = browser.send(&place.daemon, request);
        assert_page(&refused, 403, "");
        assert!(browser.under_way().is_empty());
    }
    moves_on(&browser.clone().send(&place.daemon, answer));
}

#[test]
fn a_form_is_of_the_browser_that_it_was_shown_to() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let ((mut mine, page), (mut theirs, other_page)) = (asked(&place, &client), asked(&place, &client));
    assert_page(&Browser::default().answer(&place.daemon, &page, "allow"), 403, "this browser");
    assert_page(&theirs.answer(&place.daemon, &page, "allow"), 403, "this browser");
    assert_page(&mine.answer(&place.daemon, &other_page, "allow"), 403, "this browser");
    let spoilt = consent(&format!("{}A", sealed_form(&page)), "allow");
    assert_page(&mine.send(&place.daemon, spoilt), 403, "this browser");
    assert_page(&mine.send(&place.daemon, consent("", "allow")), 403, "this browser");
    assert_page(&mine.answer(&place.daemon, &page, "maybe"), 400, "answer");
    moves_on(&mine.answer(&place.daemon, &page, "allow"));
}

#[test]
fn a_form_that_is_sent_twice_begins_a_visit_of_its_own() {
    let place = Place::start();
    let (mut browser, page) = asked(&place, &place.register(REDIRECT));
    let visits = [(); 2].map(|()| moves_on(&browser.answer(&place.daemon, &page, "allow")));
    assert_ne!(visits[0], visits[1]);
    for visit in &visits {
        let back = place.provider.sign_in(visit, "alice");
        code_of(&browser.open(&place.daemon, back.strip_prefix(URL).expect("the gateway")));
    }
}

#[test]
fn who_denies_is_sent_back_with_an_error() {
    let place = Place::start();
    let (mut browser, page) = asked(&place, &place.register(REDIRECT));
    let back = moves_on(&browser.answer(&place.daemon, &page, "deny"));
    assert!(back.starts_with(&format!("{REDIRECT}?")) && back.contains("error=access_denied"), "{back}");
    assert!(back.contains("iss=http%3A%2F%2Flocalhost%3A7000"), "{back}");
    assert!(browser.under_way().is_empty());
}

#[test]
fn an_answer_of_the_provider_counts_once() {
    let place = Place::start();
    let mut browser = Browser::default();
    let back = place.visit(&mut browser, &place.register(REDIRECT), "alice");
    let before = browser.clone();
    code_of(&browser.open(&place.daemon, &back));
    assert!(browser.under_way().is_empty());
    assert_page(&browser.open(&place.daemon, &back), 403, "this browser");
    let again = before.clone().open(&place.daemon, &back);
    assert_page(&again, 403, "");
}

#[test]
fn an_answer_for_one_visit_is_none_for_another() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let mut browser = Browser::default();
    let backs = ["alice", "bob"].map(|user| place.visit(&mut browser, &client, user));
    let part = |back: &str, name: &str| {
        let (_, rest) = back.split_once(&format!("{name}=")).expect("the parameter");
        rest.split('&').next().expect("its value").to_owned()
    };
    let [mine, theirs] = &backs;
    // Somebody else's code with the state of this visit: the nonce is another one.
    let swapped = mine.replace(&part(mine, "code"), &part(theirs, "code"));
    let refused = browser.clone().open(&place.daemon, &swapped);
    assert!([403, 502].contains(&refused.status), "{}", refused.text());
    assert_page(&refused, refused.status, "");
    // The cookie of another visit, under the name of this one.
    let names = browser.under_way();
    let mut confused = browser.clone();
    let values: Vec<String> = names.iter().map(|name| browser.cookies[name].clone()).collect();
    for (name, value) in names.iter().zip(values.iter().rev()) {
        confused.cookies.insert(name.clone(), value.clone());
    }
    assert_page(&confused.open(&place.daemon, mine), 403, "this browser");
}

#[test]
fn what_is_no_answer_of_the_provider_is_refused() {
    let place = Place::start();
    let mut browser = Browser::default();
    let back = place.visit(&mut browser, &place.register(REDIRECT), "alice");
    let (path, query) = back.split_once('?').expect("a query");
    let parts: Vec<&str> = query.split('&').collect();
    for (at, part) in parts.iter().enumerate() {
        let twice = format!("{back}&{part}");
        assert_page(&browser.clone().open(&place.daemon, &twice), 400, part.split('=').next().unwrap());
        let rest: Vec<&str> =
            parts.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, part)| *part).collect();
        let missing = browser.clone().open(&place.daemon, &format!("{path}?{}", rest.join("&")));
        assert!(missing.status >= 400, "without {part}: {}", missing.text());
        assert_page(&missing, missing.status, "");
    }
    let other_issuer = back.replace("iss=http", "iss=https");
    assert_ne!(other_issuer, back);
    assert_page(&browser.clone().open(&place.daemon, &other_issuer), 502, "");
    assert_page(&browser.clone().open(&place.daemon, path), 400, "state");
    code_of(&browser.open(&place.daemon, &back));
}

#[test]
fn nothing_is_kept_before_somebody_has_come_back() {
    let mut place = Place::start();
    let (mut browser, page) = asked(&place, &place.register(REDIRECT));
    browser.answer(&place.daemon, &page, "allow");
    // The store is measured at each start.
    let records = |place: &mut Place| {
        place.restart(Settings::default());
        eventually("the store is measured", || {
            place.daemon.find_metric("trunkline_sign_in_store_bytes").filter(|bytes| *bytes > 0)
        });
        place.daemon.metric("trunkline_sign_in_records")
    };
    assert_eq!(records(&mut place), 0);
    place.signed_in("alice");
    assert!(records(&mut place) >= 2, "a grant and an account");
}
