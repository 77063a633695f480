//! A provider that is slow, down, lying, or has changed: a page says so, nobody is signed in, and nothing ends.

use serde_json::{Value, json};

use super::browser::assert_page;
use super::place::{HIDDEN, asking, authorize, code_of};
use super::{Browser, Place, REDIRECT, Settings};
use crate::harness::{eventually_within, now_s, side_by_side};
use std::time::Duration;

const SLOW: &str = "is slow";
const DOWN: &str = "out of order";
const UNTRUSTED: &str = "cannot be trusted";
/// After a failure, metadata are not asked for within ten seconds.
const PAUSE_OVER: Duration = Duration::from_secs(40);

/// The number of people who were signed in so far.
fn signed_in(place: &Place) -> u64 {
    place.daemon.metric("trunkline_sign_ins_total")
}

#[test]
fn an_answer_that_is_wrong_signs_nobody_in() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let claims = |claims: Value| json!({ "id_token": claims });
    for (fault, status, says) in [
        (json!({ "at": ["/token"], "status": 500 }), 502, DOWN),
        (json!({ "at": ["/token"], "html": true }), 502, DOWN),
        (json!({ "answers": { "/token": { "id_token": null } } }), 502, UNTRUSTED),
        (json!({ "answers": { "/token": { "id_token": "a.b.c" } } }), 502, UNTRUSTED),
        (claims(json!({ "iss": "https://evil.example" })), 502, UNTRUSTED),
        (claims(json!({ "nonce": "another" })), 502, UNTRUSTED),
        (claims(json!({ "nonce": null })), 502, UNTRUSTED),
        (claims(json!({ "aud": "another" })), 502, UNTRUSTED),
        (claims(json!({ "aud": ["trunkline", "another"] })), 502, UNTRUSTED),
        (claims(json!({ "exp": now_s() - 100 })), 502, UNTRUSTED),
        (claims(json!({ "iat": now_s() + 300 })), 502, UNTRUSTED),
        (claims(json!({ "sub": "" })), 502, UNTRUSTED),
        (claims(json!({ "_claim_names": { "groups": "src1" } })), 502, UNTRUSTED),
        (
            json!({ "id_token": { "groups": null }, "answers": { "/userinfo": { "sub": "bob" } } }),
            502,
            UNTRUSTED,
        ),
        (json!({ "id_token": { "groups": null }, "at": ["/userinfo"], "status": 500 }), 502, DOWN),
        (json!({ "id_token": { "groups": null }, "at": ["/userinfo"], "html": true }), 502, UNTRUSTED),
    ] {
        let mut browser = Browser::default();
        let back = place.visit(&mut browser, &client, "alice");
        place.provider.faults(&fault);
        let refused = browser.open(&place.daemon, &back);
        place.provider.faults(&json!({}));
        assert!(refused.text().contains(says), "{fault}: {}", refused.text());
        assert_page(&refused, status, says);
        assert_page(&browser.open(&place.daemon, &back), 403, "");
    }
    assert_eq!(signed_in(&place), 0);
    place.signed_in("alice");
    assert_eq!(signed_in(&place), 1);
}

#[test]
fn a_clock_that_is_minutes_off_signs_nobody_in() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    for clock_s in [300, -400] {
        place.provider.faults(&json!({ "clock_s": clock_s }));
        let mut browser = Browser::default();
        let back = place.visit(&mut browser, &client, "alice");
        assert_page(&browser.open(&place.daemon, &back), 502, UNTRUSTED);
    }
    place.provider.faults(&json!({ "clock_s": 20 }));
    place.signed_in("alice");
    assert_eq!(signed_in(&place), 1);
}

#[test]
fn a_provider_without_metadata_is_named_on_a_page() {
    let discovery = "/.well-known/openid-configuration";
    let cases = [
        (json!({ "at": [discovery], "status": 500 }), 502, DOWN),
        (json!({ "at": [discovery], "html": true }), 502, UNTRUSTED),
        (json!({ "at": [discovery], "slow_ms": 20_000 }), 504, SLOW),
        (json!({ "answers": { discovery: { "issuer": "https://evil.example" } } }), 502, UNTRUSTED),
        (json!({ "answers": { discovery: { "token_endpoint": null } } }), 502, UNTRUSTED),
        (
            json!({ "answers": { discovery: { "authorization_endpoint": "http://evil.example/authorize" } } }),
            502,
            UNTRUSTED,
        ),
    ];
    side_by_side(cases, |(fault, status, says)| {
        let place = Place::start();
        place.provider.faults(&fault);
        let client = place.register(REDIRECT);
        let mut browser = Browser::default();
        let page = browser.open(&place.daemon, &authorize(&asking(&client)));
        let refused = browser.answer(&place.daemon, &page, "allow");
        assert!(refused.text().contains(says), "{fault}: {}", refused.text());
        assert_page(&refused, status, says);
        assert_page(&browser.open(&place.daemon, "/sign-in/"), status, says);
        place.provider.faults(&json!({}));
        eventually_within(PAUSE_OVER, "it is asked again", || {
            (browser.open(&place.daemon, "/sign-in/").status == 303).then_some(())
        });
        place.signed_in("alice");
    });
}

/// The requests for the provider's metadata so far.
fn metadata_requests(place: &Place) -> u64 {
    let series = "trunkline_sign_in_provider_requests_total{kind=\"metadata\",result";
    ["ok", "error"].iter().map(|result| place.daemon.metric(&format!("{series}=\"{result}\"}}"))).sum()
}

#[test]
fn who_has_begun_no_visit_has_the_provider_asked_nothing() {
    let place = Place::start();
    let state = "AAAAAAAAAAAAAAAAAAAAAA";
    for outcome in ["code=c", "error=access_denied"] {
        let back = format!("/sign-in/callback?{outcome}&state={state}");
        assert_page(&Browser::default().open(&place.daemon, &back), 403, "this browser");
    }
    assert_eq!(metadata_requests(&place), 0);
}

#[test]
fn one_asks_for_metadata_for_all_and_after_a_failure_not_for_a_while() {
    let discovery = "/.well-known/openid-configuration";
    let place = Place::start();
    let visit = || Browser::default().open(&place.daemon, "/sign-in/");
    place.provider.faults(&json!({ "at": [discovery], "slow_ms": 500, "status": 500 }));
    side_by_side(0..8, |_| assert_page(&visit(), 502, DOWN));
    assert_page(&visit(), 502, DOWN);
    assert_eq!(metadata_requests(&place), 1);
    place.provider.faults(&json!({ "at": [discovery], "slow_ms": 500 }));
    eventually_within(PAUSE_OVER, "it is asked again", || (visit().status == 303).then_some(()));
    assert_eq!(metadata_requests(&place), 2);
}

#[test]
fn a_slow_token_endpoint_is_named_on_a_page() {
    let place = Place::start();
    let mut browser = Browser::default();
    let back = place.visit(&mut browser, &place.register(REDIRECT), "alice");
    place.provider.faults(&json!({ "at": ["/token"], "slow_ms": 20_000 }));
    assert_page(&browser.open(&place.daemon, &back), 504, SLOW);
    place.provider.faults(&json!({}));
    assert_eq!(signed_in(&place), 0);
}

#[test]
fn keys_that_were_rotated_are_fetched() {
    let place = Place::start();
    place.signed_in("alice");
    let mut browser = Browser::default();
    let back = place.visit(&mut browser, &place.register(REDIRECT), "alice");
    place.provider.faults(&json!({ "key": 1 }));
    code_of(&browser.open(&place.daemon, &back));
}

#[test]
fn who_may_not_sign_in_is_told_the_requirement() {
    let place = Place::with(Settings { sign_in: "require = { groups = [\"ops\"] }", ..Settings::default() });
    let client = place.register(REDIRECT);
    let mut browser = Browser::default();
    let back = place.visit(&mut browser, &client, "bob");
    let refused = browser.open(&place.daemon, &back);
    assert_page(&refused, 403, "groups");
    // The names of groups that open something are for operators.
    let page = refused.text();
    let has_word = |word: &str| page.split(|c: char| !c.is_ascii_alphanumeric()).any(|one| one == word);
    assert!(page.contains("Bob Brown") && has_word("groups") && !has_word("ops"), "{page}");
    place.daemon.wait_for_log(0, "the audit log has them", |line| {
        line.contains("sign-in refused") && line.contains("groups: ops")
    });
    assert_eq!(signed_in(&place), 0);
    place.signed_in("alice");
}

#[test]
fn operators_are_told_that_the_provider_fails_until_it_answers() {
    let place = Place::start();
    let problem = || {
        let status = place.daemon.get_admin("/status").json();
        let problems = status["problems"].as_array().expect("problems");
        problems.iter().find(|problem| problem["subject"] == "sign-in provider").cloned()
    };
    place.signed_in("alice");
    assert_eq!(problem(), None);
    assert_eq!(place.daemon.metric("trunkline_sign_in_provider_failing"), 0);
    place.provider.faults(&json!({ "at": ["/token"], "status": 500 }));
    let mut browser = Browser::default();
    let back = place.visit(&mut browser, &place.register(REDIRECT), "bob");
    assert_page(&browser.open(&place.daemon, &back), 502, DOWN);
    let told = problem().expect("a problem");
    assert_eq!(
        (&told["level"], &told["runbook"]),
        (&json!("error"), &json!("TrunklineSignInProviderFailing"))
    );
    assert!(told["what"].as_str().is_some_and(|what| what.contains("nobody can sign in")), "{told}");
    assert_eq!(place.daemon.metric("trunkline_sign_in_provider_failing"), 1);
    place.provider.faults(&json!({}));
    place.signed_in("bob");
    assert_eq!(problem(), None);
}

#[test]
fn without_the_provider_all_goes_on() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let tokens = place.exchange(&client, &place.code(&client, "alice")).tokens();
    place.provider.faults(&json!({ "status": 500 }));
    assert_eq!(place.call(&tokens.access), 200);
    let next = place.refresh(&client, &tokens.refresh).tokens();
    assert_eq!(place.call(&next.access), 200);
}

/// The shortest time after which the provider is asked again.
const RECHECK: Settings<'_> = Settings {
    sign_in: "recheck_interval = \"1m\"",
    endpoint: "",
    sections: "[[rule]]\nname = \"no-contractors\"\neffect = \"deny\"\ngroups = [\"contractors\"]\ntools = [\"echo\"]\n\
               [[rule]]\nname = \"all\"\neffect = \"allow\"",
    url: "",
    has_operators: false,
};

/// All waits for the same minute.
#[test]
fn the_provider_is_asked_again_after_a_while() {
    let patience = Duration::from_mins(2);
    let sign_in = |place: &Place, user: &str| {
        let client = place.register(REDIRECT);
        let tokens = place.exchange(&client, &place.code(&client, user)).tokens();
        (client, tokens)
    };
    let cases: [&(dyn Fn(&Place) + Sync); 4] = [
        &|place| {
            let (all, other) = ([sign_in(place, "alice"), sign_in(place, "alice")], sign_in(place, "bob"));
            place.provider.faults(&json!({ "removed": ["alice"] }));
            let (client, tokens) = &all[0];
            eventually_within(patience, "she is asked about", || {
                (place.refresh(client, &tokens.refresh).0.status == 400).then_some(())
            });
            for (client, tokens) in &all {
                assert_eq!(place.call(&tokens.access), 401);
                place.refresh(client, &tokens.refresh).assert_refused("invalid_grant");
            }
            assert_eq!(place.call(&other.1.access), 200);
            place.refresh(&other.0, &other.1.refresh).tokens();
        },
        &|place| {
            let (_, tokens) = sign_in(place, "bob");
            assert_eq!(place.call(&tokens.access), 200);
            place.provider.faults(&json!({ "groups": { "bob": ["contractors"] } }));
            eventually_within(patience, "a call alone has him asked about", || {
                let status = place.call(&tokens.access);
                assert_ne!(status, 401);
                (status == HIDDEN).then_some(())
            });
        },
        &|place| {
            let (client, tokens) = sign_in(place, "bob");
            place.provider.faults(&json!({ "status": 500 }));
            eventually_within(patience, "he is asked about in vain", || {
                assert_eq!(place.call(&tokens.access), 200);
                (place.daemon.metric("trunkline_sign_in_checks_total{result=\"error\"}") > 0).then_some(())
            });
            place.refresh(&client, &tokens.refresh).tokens();
            assert_eq!(place.call(&tokens.access), 200);
        },
        &|place| {
            // A refresh brings no ID token, and the person has no group any more.
            let (client, tokens) = sign_in(place, "alice");
            place.provider.faults(
                &json!({ "answers": { "/token": { "id_token": null }, "/userinfo": { "groups": [] } } }),
            );
            eventually_within(patience, "she is asked about", || {
                (place.refresh(&client, &tokens.refresh).0.status == 400).then_some(())
            });
            assert_eq!(place.call(&tokens.access), 401);
        },
    ];
    side_by_side(cases, |case| case(&Place::with(RECHECK)));
}
