//! The end of a sign-in: whichever token is shown, all of them end, at once and for good, and streams with them.

use super::place::{Place, Tokens};
use super::{REDIRECT, Settings, form, post_form};
use crate::harness::{
    Connection, LEGACY_VERSION, Response, eventually, in_session, initialize, listen, post, with_key,
};

/// A sign-in, and its client.
fn signed_in(place: &Place) -> (String, Tokens) {
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let tokens = place.exchange(&client, &code).tokens();
    (client, tokens)
}

fn revoke(place: &Place, client: &str, token: &str) -> Response {
    place.daemon.send(&post_form("/revoke", &form(&[("token", token), ("client_id", client)])))
}

#[test]
fn either_token_ends_all_for_good() {
    let mut place = Place::start();
    let other = signed_in(&place);
    let ended = [0, 1].map(|which| {
        let (client, tokens) = signed_in(&place);
        assert_eq!(place.call(&tokens.access), 200);
        let shown = if which == 0 { &tokens.access } else { &tokens.refresh };
        assert_eq!(revoke(&place, &client, shown).status, 200);
        (client, tokens)
    });
    let all_ended = |place: &Place| {
        for (client, tokens) in &ended {
            assert_eq!(place.call(&tokens.access), 401);
            place.refresh(client, &tokens.refresh).assert_refused("invalid_grant");
            assert_eq!(
                revoke(place, client, &tokens.refresh).status,
                200,
                "there is nothing to end any more"
            );
        }
        assert_eq!(place.call(&other.1.access), 200, "the same person's other sign-in goes on");
    };
    all_ended(&place);
    place.restart(Settings::default());
    all_ended(&place);
    place.refresh(&other.0, &other.1.refresh).tokens();
}

#[test]
fn another_client_ends_nothing() {
    let place = Place::start();
    let (client, tokens) = signed_in(&place);
    let other = place.register("http://127.0.0.1:3119/other");
    for token in [&tokens.access, &tokens.refresh] {
        let refused = revoke(&place, &other, token);
        assert_eq!((refused.status, refused.json()["error"].as_str()), (400, Some("invalid_grant")));
    }
    assert_eq!(revoke(&place, &client, "tla_nobody").status, 200, "it is nobody's, which is no error");
    assert_eq!(place.call(&tokens.access), 200);
}

#[test]
fn open_streams_end_with_their_sign_in() {
    let place = Place::start();
    let (client, tokens) = signed_in(&place);
    let (_, others) = signed_in(&place);
    let mut ending = open_streams(&place, &tokens.access);
    let _going_on = open_streams(&place, &others.access);
    let open =
        || ["trunkline_subscriptions", "trunkline_session_streams"].map(|name| place.daemon.metric(name));
    eventually("all are open", || (open() == [2, 2]).then_some(()));
    revoke(&place, &client, &tokens.refresh);
    for stream in &mut ending {
        while stream.event().is_some() {}
    }
    eventually("the others go on", || (open() == [1, 1]).then_some(()));
}

/// A stream of each era.
fn open_streams(place: &Place, token: &str) -> [Connection; 2] {
    let mut listening = place.daemon.connect();
    listening.write(&with_key(listen("1", r#"{"toolsListChanged":true}"#), token).bytes());
    assert_eq!(listening.head().status, 200);
    assert!(listening.event().is_some(), "the acknowledgement");
    let opened = place.daemon.send(&with_key(initialize("0", LEGACY_VERSION), token));
    let session = opened.header("mcp-session-id").unwrap_or_else(|| panic!("{}", opened.text())).to_owned();
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut of_session = place.daemon.connect();
    of_session.write(&with_key(in_session(&session, get), token).bytes());
    assert_eq!(of_session.head().status, 200);
    [listening, of_session]
}

#[test]
fn a_new_sign_in_ends_the_one_that_was_unused_for_longest() {
    let place = Place::with(Settings { sign_in: "grants_per_principal_max = 2", ..Settings::default() });
    let (bob, first) = (place.signed_in("bob"), place.signed_in("alice"));
    // It is used a second later than the first, so it stays.
    let second = eventually("a later second", || {
        let tokens = place.signed_in("alice");
        (place.call(&first.access) == 401).then_some(tokens)
    });
    assert_eq!((place.call(&second.access), place.call(&bob.access)), (200, 200));
}
