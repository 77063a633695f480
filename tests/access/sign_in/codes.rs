//! Codes: good once, for the client, the address and the verifier that they were made for.

use super::place::code_parameters;
use super::{AskedTokens, Place, REDIRECT};

/// As a code is shown, with one value changed.
fn shown_with(place: &Place, client: &str, code: &str, name: &str, value: &str) -> AskedTokens {
    let changed = code_parameters(client, code)
        .map(|(present, shown)| (present, if present == name { value } else { shown }));
    AskedTokens(place.token(&changed))
}

#[test]
fn a_code_that_is_used_twice_ends_its_sign_in() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let tokens = place.exchange(&client, &code).tokens();
    assert_eq!(place.call(&tokens.access), 200);
    place.exchange(&client, &code).assert_refused("invalid_grant");
    assert_eq!(place.call(&tokens.access), 401);
    place.refresh(&client, &tokens.refresh).assert_refused("invalid_grant");
}

#[test]
fn who_has_only_the_code_ends_nothing() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let other = place.register("http://127.0.0.1:3119/other");
    let code = place.code(&client, "alice");
    let wrong = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXX";
    let try_all = || {
        shown_with(&place, &client, &code, "code_verifier", wrong).assert_refused("invalid_grant");
        shown_with(&place, &client, &code, "client_id", &other).assert_refused("invalid_grant");
        shown_with(&place, &client, &code, "redirect_uri", "http://127.0.0.1:3118/x")
            .assert_refused("invalid_grant");
        shown_with(&place, &client, &code, "resource", "http://localhost:7000/x")
            .assert_refused("invalid_target");
    };
    try_all();
    let tokens = place.exchange(&client, &code).tokens();
    try_all();
    assert_eq!(place.call(&tokens.access), 200, "neither before its use nor after it");
    place.refresh(&client, &tokens.refresh).tokens();
}

#[test]
fn of_two_who_show_a_code_at_once_one_gets_tokens_and_they_end() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let ask = || place.exchange(&client, &code);
    let [one, another] =
        std::thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(|at| at.join().unwrap()));
    let (good, bad) = if one.0.status == 200 { (one, another) } else { (another, one) };
    bad.assert_refused("invalid_grant");
    assert_eq!(place.call(&good.tokens().access), 401);
}
