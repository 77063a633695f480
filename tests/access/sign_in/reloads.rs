//! Tokens after a reload: they mean what the rules of now say, and nobody is sent to the browser for it.

use super::place::{HIDDEN, Place, Tokens};
use super::{REDIRECT, Settings};

/// A `deny` by a group that no rule has named before.
pub(super) const NEW_GROUP: &str = "[[rule]]\nname = \"no-ops\"\neffect = \"deny\"\ngroups = [\"ops\"]\ntools = [\"echo\"]\n\
                                    [[rule]]\nname = \"all\"\neffect = \"allow\"";

#[test]
fn a_rule_by_a_new_group_holds_from_the_first_call() {
    let place = Place::start();
    let [alices, bobs] = ["alice", "bob"].map(|user| [(); 8].map(|()| place.signed_in(user)));
    place.reload(Settings { sections: NEW_GROUP, ..Settings::default() });
    for Tokens { access, .. } in &alices {
        assert_eq!(place.call(access), HIDDEN);
    }
    for Tokens { access, .. } in &bobs {
        assert_eq!(place.call(access), 200);
    }
    place.reload(Settings::default());
    assert_eq!(place.call(&alices[0].access), 200);
}

#[test]
fn a_rule_by_a_new_group_holds_after_a_restart() {
    let mut place = Place::start();
    let [alice, bob] = ["alice", "bob"].map(|user| place.signed_in(user).access);
    place.restart(Settings { sections: NEW_GROUP, ..Settings::default() });
    assert_eq!(place.call(&alice), HIDDEN);
    assert_eq!(place.call(&bob), 200);
}

#[test]
fn an_ended_sign_in_stays_ended_by_other_rules() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let tokens = place.exchange(&client, &place.code(&client, "bob")).tokens();
    place.daemon.send(&super::post_form(
        "/revoke",
        &super::form(&[("token", &tokens.access), ("client_id", &client)]),
    ));
    place.reload(Settings { sections: NEW_GROUP, ..Settings::default() });
    assert_eq!(place.call(&tokens.access), 401);
}

#[test]
fn scopes_that_groups_may_have_no_more_are_gone() {
    let write = Settings {
        sign_in: "scopes = { \"mcp:write\" = [\"staff\"] }",
        endpoint: "scopes = [\"mcp:write\"]",
        ..Settings::default()
    };
    let place = Place::with(write);
    let [alice, bob] = ["alice", "bob"].map(|user| place.signed_in(user).access);
    assert_eq!([place.call(&alice), place.call(&bob)], [200, 200]);
    place.reload(Settings { sign_in: "scopes = { \"mcp:write\" = [\"ops\"] }", ..write });
    assert_eq!([place.call(&alice), place.call(&bob)], [200, 403]);
    place.reload(write);
    assert_eq!([place.call(&alice), place.call(&bob)], [200, 200]);
}

#[test]
fn who_may_sign_in_no_more_gets_no_more_tokens() {
    let place = Place::start();
    let sign_in = |user: &str| {
        let client = place.register(REDIRECT);
        let tokens = place.exchange(&client, &place.code(&client, user)).tokens();
        (client, tokens)
    };
    let (alice, bob) = (sign_in("alice"), sign_in("bob"));
    place.reload(Settings { sign_in: "require = { groups = [\"ops\"] }", ..Settings::default() });
    place.refresh(&alice.0, &alice.1.refresh).tokens();
    place.refresh(&bob.0, &bob.1.refresh).assert_refused("invalid_grant");
    assert_eq!(place.call(&bob.1.access), 401);
}

#[test]
fn where_a_reload_asks_for_more_a_provider_that_is_away_ends_nothing() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let tokens = place.exchange(&client, &place.code(&client, "alice")).tokens();
    place.reload(Settings { sign_in: "require = { groups = [\"auditors\"] }", ..Settings::default() });
    place.provider.faults(&serde_json::json!({ "at": ["/token"], "status": 500 }));
    for _ in 0..2 {
        let refused = place.refresh(&client, &tokens.refresh).0;
        let error = refused.json()["error"].as_str().map(str::to_owned);
        assert_eq!((refused.status, error.as_deref()), (503, Some("temporarily_unavailable")));
    }
    place.provider.faults(&serde_json::json!({ "groups": { "alice": ["auditors"] } }));
    let next = place.refresh(&client, &tokens.refresh).tokens();
    assert_eq!(place.call(&next.access), 200);
}
