//! The whole way: registration, consent, provider, code, tokens, calls, and what lasts over restarts.

use super::browser::moves_on;
use super::place::{HIDDEN, asking, authorize, code_of, code_parameters};
use super::{Browser, CALLBACK, Place, REDIRECT, Settings, VERIFIER, form, post_form};
use crate::harness::{
    LEGACY_VERSION, PROVIDER_CLIENT, PROVIDER_SECRET, Provider, call, eventually, in_session, initialize,
    legacy, with_key,
};

/// The sign-in's own scopes: those of all, and those of alice's group.
const SCOPES: &str = "scopes = { \"mcp:read\" = [\"*\"], \"mcp:write\" = [\"ops\"] }\n";

#[test]
fn a_client_that_nobody_knows_comes_to_call() {
    let place = Place::with(Settings { sign_in: SCOPES, ..Settings::default() });
    let refused = place.daemon.send(&call("1", "echo"));
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").expect("a challenge");
    let metadata = "resource_metadata=\"http://localhost:7000/.well-known/oauth-protected-resource/mcp\"";
    assert!(challenge.contains(metadata), "{challenge}");
    let resource = place.daemon.send(&super::get("/.well-known/oauth-protected-resource/mcp")).json();
    assert_eq!(resource["authorization_servers"], serde_json::json!([super::URL]), "{resource}");
    let server = place.daemon.send(&super::get("/.well-known/oauth-authorization-server")).json();
    assert_eq!(server["issuer"], super::URL);
    assert_eq!(server["registration_endpoint"], "http://localhost:7000/register");
    let tokens = place.signed_in("alice");
    assert_eq!(tokens.scope, "mcp:read mcp:write");
    assert_eq!(place.signed_in("bob").scope, "mcp:read", "no scope comes for the asking");
    assert_eq!(place.call(&tokens.access), 200);
    assert_eq!(place.call(&tokens.refresh), 401, "a refresh token is no credential of a call");
}

#[test]
fn a_restart_between_two_steps_is_not_noticed() {
    let settings = Settings { sign_in: "refresh_reuse = \"0s\"", ..Settings::default() };
    let mut place = Place::with(settings);
    let mut browser = Browser::default();
    let client = place.register(REDIRECT);
    place.restart(settings);
    let page = browser.open(&place.daemon, &authorize(&asking(&client)));
    place.restart(settings);
    let moving = browser.answer(&place.daemon, &page, "allow");
    let back = place.provider.sign_in(&moves_on(&moving), "alice");
    place.restart(settings);
    let code = code_of(&browser.open(&place.daemon, back.strip_prefix(super::URL).expect("the gateway")));
    place.restart(settings);
    let first = place.exchange(&client, &code).tokens();
    place.restart(settings);
    assert_eq!(place.call(&first.access), 200);
    let second = place.refresh(&client, &first.refresh).tokens();
    place.restart(settings);
    assert_eq!(place.call(&second.access), 200);
    assert_eq!(place.call(&first.access), 200, "the token before lasts as long as it is good");
    place.refresh(&client, &second.refresh).tokens();
}

/// A token of a provider's own for the endpoint, as a program gets it that knows the provider.
fn own_token(provider: &Provider, user: &str) -> String {
    provider.faults(&serde_json::json!({ "id_token": { "aud": super::place::ENDPOINT } }));
    let visit = [
        ("client_id", PROVIDER_CLIENT),
        ("redirect_uri", CALLBACK),
        ("response_type", "code"),
        ("scope", "openid groups"),
        ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
        ("code_challenge_method", "S256"),
    ];
    let back = provider.sign_in(&format!("{}/authorize?{}", provider.issuer(), form(&visit)), user);
    let code = back.split_once("code=").and_then(|(_, rest)| rest.split('&').next()).expect("a code");
    let asked = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
        ("client_id", PROVIDER_CLIENT),
        ("client_secret", PROVIDER_SECRET),
    ];
    let tokens = provider.ask(post_form("/token", &form(&asked))).json();
    provider.faults(&serde_json::json!({}));
    tokens["id_token"].as_str().unwrap_or_else(|| panic!("a token: {tokens}")).to_owned()
}

#[test]
fn what_helps_is_asked_for_with_what_was_granted() {
    let scopes = "scopes = { \"mcp:read\" = [\"*\"], \"mcp:write\" = [\"ops\"], \"mcp:more\" = [\"ops\"], \
                  \"mcp:none\" = [\"nobody\"] }\n";
    let rule = "[[rule]]\nname = \"more\"\neffect = \"allow\"\nscopes = [\"mcp:none\", \"mcp:more\"]\ntools = [\"echo\"]";
    let place = Place::with(Settings {
        sign_in: scopes,
        endpoint: "scopes = [\"mcp:read\"]",
        sections: rule,
        ..Settings::default()
    });
    let refused = place.daemon.send(&with_key(call("1", "echo"), &place.signed_in("alice").access));
    assert_eq!(refused.status, 403, "{}", refused.text());
    let challenge = refused.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains("scope=\"mcp:read mcp:write mcp:more\""), "{challenge}");
    assert_eq!(place.call(&place.signed_in("bob").access), HIDDEN, "no visit would help");
}

#[test]
fn the_principal_is_that_of_the_providers_own_tokens() {
    let place = Place::with(Settings {
        endpoint: "auth = [\"sign_in\", \"jwt\"]",
        sections: "[[rule]]\nname = \"no-alice\"\neffect = \"deny\"\nprincipals = [\"jwt:ISSUER alice\"]\ntools = [\"echo\"]\n\
                   [[rule]]\nname = \"all\"\neffect = \"allow\"\n\
                   [[limit]]\nname = \"own\"\nby = [\"principal\"]\ncalls = 3\nperiod = \"1h\"",
        ..Settings::default()
    });
    let alices = [place.signed_in("alice").access, own_token(&place.provider, "alice")];
    for token in &alices {
        assert_eq!(place.call(token), HIDDEN);
    }
    let bobs =
        [place.signed_in("bob").access, place.signed_in("bob").access, own_token(&place.provider, "bob")];
    for token in &bobs {
        assert_eq!(place.call(token), 200);
    }
    for token in &bobs {
        assert_eq!(place.call(token), 429, "one limit counts all of one person");
    }
}

#[test]
fn the_same_subject_at_another_provider_is_another_person() {
    let other = Provider::start(&[CALLBACK]);
    let sections = format!(
        "[[jwt]]\nname = \"other\"\nissuer = \"{}\"\n\
         [[rule]]\nname = \"no-alice\"\neffect = \"deny\"\nprincipals = [\"jwt:ISSUER alice\"]\ntools = [\"echo\"]\n\
         [[rule]]\nname = \"all\"\neffect = \"allow\"",
        other.issuer()
    );
    let endpoint = "auth = [\"sign_in\", \"jwt\"]";
    let place = Place::with(Settings { endpoint, sections: &sections, ..Settings::default() });
    let (alice, namesake) = (place.signed_in("alice").access, own_token(&other, "alice"));
    assert_eq!(place.call(&alice), HIDDEN);
    eventually("its keys are known", || (place.call(&namesake) == 200).then_some(()));
    let opened = place.daemon.send(&with_key(initialize("1", LEGACY_VERSION), &alice));
    let session = opened.header("mcp-session-id").unwrap_or_else(|| panic!("{}", opened.text())).to_owned();
    let ping = |token: &str| {
        let request = in_session(&session, legacy("2", "ping", "{}"));
        place.daemon.send(&with_key(request, token)).status
    };
    assert_eq!([ping(&alice), ping(&namesake)], [200, 404]);
}

#[test]
fn a_session_is_of_the_person_and_not_of_a_token() {
    let place = Place::with(Settings { endpoint: "auth = [\"sign_in\", \"jwt\"]", ..Settings::default() });
    let mine = place.signed_in("bob").access;
    let opened = place.daemon.send(&with_key(initialize("1", LEGACY_VERSION), &mine));
    let session = opened.header("mcp-session-id").unwrap_or_else(|| panic!("{}", opened.text())).to_owned();
    let ping = |token: &str| {
        let request = in_session(&session, legacy("2", "ping", "{}"));
        place.daemon.send(&with_key(request, token)).status
    };
    assert_eq!(ping(&mine), 200);
    assert_eq!(ping(&place.signed_in("bob").access), 200, "another sign-in of the same person");
    assert_eq!(ping(&own_token(&place.provider, "bob")), 200, "the provider's own token");
    assert_eq!(ping(&place.signed_in("alice").access), 404);
}

#[test]
fn clients_are_told_a_minute_less_than_a_token_lasts() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let json = place.token(&code_parameters(&client, &code)).json();
    assert_eq!(json["token_type"], "Bearer", "{json}");
    assert_eq!(json["expires_in"], 3540, "{json}");
}
