//! Refresh tokens: each has one successor, which is given again for a while.

use super::{Place, REDIRECT, Settings, Tokens};
use crate::harness::{eventually, now_s};

/// Each refresh token is good once.
const ONCE: Settings<'_> =
    Settings { sign_in: "refresh_reuse = \"0s\"", endpoint: "", sections: "", url: "", has_operators: false };
/// The one before is good for as long as any test runs.
const AGAIN: Settings<'_> = Settings {
    sign_in: "refresh_reuse = \"10m\"",
    endpoint: "",
    sections: "",
    url: "",
    has_operators: false,
};

/// A sign-in that was refreshed as often as this. Returns the client, and the tokens of each generation.
fn refreshed(place: &Place, times: usize) -> (String, Vec<Tokens>) {
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let mut all = vec![place.exchange(&client, &code).tokens()];
    for generation in 0..times {
        let next = place.refresh(&client, &all[generation].refresh).tokens();
        all.push(next);
    }
    (client, all)
}

#[test]
fn one_that_may_be_used_once_ends_its_sign_in_at_its_second_use() {
    let place = Place::with(ONCE);
    let (client, tokens) = refreshed(&place, 1);
    assert_eq!(place.call(&tokens[1].access), 200);
    place.refresh(&client, &tokens[0].refresh).assert_refused("invalid_grant");
    for tokens in &tokens {
        assert_eq!(place.call(&tokens.access), 401);
        place.refresh(&client, &tokens.refresh).assert_refused("invalid_grant");
    }
}

#[test]
fn the_one_before_gets_the_same_successor_for_a_while() {
    let place = Place::with(ONCE);
    let (client, tokens) = refreshed(&place, 1);
    place.reload(AGAIN);
    let again = place.refresh(&client, &tokens[0].refresh).tokens();
    let once_more = place.refresh(&client, &tokens[1].refresh).tokens();
    for access in [&tokens[0].access, &tokens[1].access, &again.access, &once_more.access] {
        assert_eq!(place.call(access), 200);
    }
    place.reload(ONCE);
    place.refresh(&client, &again.refresh).tokens();
    // Another spelling of the same generation, which has a successor now.
    place.refresh(&client, &once_more.refresh).assert_refused("invalid_grant");
    assert_eq!(place.call(&again.access), 401);
}

#[test]
fn an_older_one_ends_its_sign_in_and_no_other() {
    let place = Place::with(ONCE);
    let (client, tokens) = refreshed(&place, 2);
    let other = place.signed_in("alice");
    place.reload(AGAIN);
    place.refresh(&client, &tokens[0].refresh).assert_refused("invalid_grant");
    assert_eq!(place.call(&tokens[2].access), 401);
    place.refresh(&client, &tokens[2].refresh).assert_refused("invalid_grant");
    assert_eq!(place.call(&other.access), 200);
}

#[test]
fn two_processes_with_one_token_both_go_on() {
    const REUSE_S: u64 = 4;
    let place = Place::with(Settings { sign_in: "refresh_reuse = \"4s\"", ..Settings::default() });
    let (client, tokens) = refreshed(&place, 0);
    let got_s = now_s();
    // Until then nobody makes a successor.
    eventually("the first tokens may be renewed", || (now_s() > got_s + REUSE_S).then_some(()));
    let ask = || place.refresh(&client, &tokens[0].refresh).tokens();
    let both = std::thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(|at| at.join().unwrap()));
    for tokens in &both {
        assert_eq!(place.call(&tokens.access), 200);
        place.refresh(&client, &tokens.refresh).tokens();
    }
}

#[test]
fn of_another_client_it_is_refused_and_nothing_ends() {
    let place = Place::with(ONCE);
    let (client, tokens) = refreshed(&place, 0);
    let other = place.register("http://127.0.0.1:3119/other");
    place.refresh(&other, &tokens[0].refresh).assert_refused("invalid_grant");
    place.refresh(&client, &tokens[0].access).assert_refused("invalid_grant");
    assert_eq!(place.call(&tokens[0].access), 200);
    place.refresh(&client, &tokens[0].refresh).tokens();
}

#[test]
fn fewer_scopes_may_be_asked_for_and_no_more() {
    let scopes = "scopes = { \"mcp:read\" = [\"*\"], \"mcp:write\" = [\"ops\"] }";
    let place = Place::with(Settings { sign_in: scopes, ..Settings::default() });
    let client = place.register(REDIRECT);
    let tokens = place.exchange(&client, &place.code(&client, "bob")).tokens();
    let narrowed = |scope: &str| {
        super::AskedTokens(place.token(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", &tokens.refresh),
            ("client_id", &client),
            ("scope", scope),
        ]))
    };
    assert_eq!(narrowed("mcp:read").tokens().scope, "mcp:read");
    let more = narrowed("mcp:read mcp:write");
    if more.0.status == 200 {
        assert_eq!(more.tokens().scope, "mcp:read", "no scope comes for the asking");
    } else {
        more.assert_refused("invalid_scope");
    }
}
