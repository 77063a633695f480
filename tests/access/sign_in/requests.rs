//! Requests that are refused: by a page where a person sees it, by an error of OAuth where a client does. Nobody is sent
//! anywhere.

use super::browser::assert_page;
use super::place::{Place, asking, authorize, code_parameters, here};
use super::{AskedTokens, Browser, REDIRECT, Settings, form, get, post_form};
use crate::harness::{Response, post};

/// Parameters with one of them spoilt: twice, missing, or too long.
fn twice<'p>(parameters: &[(&'p str, &'p str)], at: usize) -> Vec<(&'p str, &'p str)> {
    let mut spoilt = parameters.to_vec();
    spoilt.push(parameters[at]);
    spoilt
}

fn without<'p>(parameters: &[(&'p str, &'p str)], name: &str) -> Vec<(&'p str, &'p str)> {
    parameters.iter().copied().filter(|(present, _)| *present != name).collect()
}

fn changed<'p>(parameters: &[(&'p str, &'p str)], name: &str, value: &'p str) -> Vec<(&'p str, &'p str)> {
    let change = |(present, old): (&'p str, &'p str)| (present, if present == name { value } else { old });
    parameters.iter().copied().map(change).collect()
}

#[test]
fn every_parameter_of_authorize_counts_once() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let asked = asking(&client);
    let ask = |parameters: &[(&str, &str)]| place.daemon.send(&get(&authorize(parameters)));
    assert_eq!(ask(&asked).status, 200);
    let long = "a".repeat(5000);
    for (at, (name, _)) in asked.iter().enumerate() {
        assert_page(&ask(&twice(&asked, at)), 400, name);
        let too_long = ask(&changed(&asked, name, &long));
        assert!((400..500).contains(&too_long.status), "{name}: {}", too_long.text());
        assert_page(&too_long, too_long.status, "");
    }
    for name in ["client_id", "redirect_uri", "response_type", "code_challenge", "code_challenge_method"] {
        let missing = ask(&without(&asked, name));
        assert_page(&missing, 400, "");
    }
    for name in ["resource", "scope", "state"] {
        assert_eq!(ask(&without(&asked, name)).status, 200, "{name}");
    }
    assert_page(&place.daemon.send(&get("/authorize")), 400, "client_id");
}

#[test]
fn what_authorize_refuses_is_told_on_a_page() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let asked = asking(&client);
    for (name, value, status) in [
        ("client_id", "somebody", 400),
        ("client_id", "https://127.0.0.1/client", 502),
        ("redirect_uri", "http://127.0.0.1:3118/other", 400),
        ("redirect_uri", "https://evil.example/cb", 403),
        ("redirect_uri", "javascript:alert(1)", 403),
        ("response_type", "token", 400),
        ("code_challenge_method", "plain", 400),
        ("code_challenge", "short", 400),
        ("resource", "http://localhost:7000/other", 400),
        ("scope", "a\"b", 400),
    ] {
        let response = place.daemon.send(&get(&authorize(&changed(&asked, name, value))));
        assert_page(&response, status, "");
    }
}

#[test]
fn every_parameter_of_a_code_counts_once() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let asked = code_parameters(&client, &code);
    let long = "a".repeat(5000);
    for (at, (name, _)) in asked.iter().enumerate() {
        AskedTokens(place.token(&twice(&asked, at))).assert_refused("invalid_request");
        let too_long = place.token(&changed(&asked, name, &long));
        assert_eq!(too_long.status, 400, "{name}: {}", too_long.text());
    }
    for name in ["grant_type", "code", "code_verifier", "client_id"] {
        AskedTokens(place.token(&without(&asked, name))).assert_refused("invalid_request");
    }
    place.exchange(&client, &code).tokens();
}

#[test]
fn every_parameter_of_a_refresh_and_of_an_end_counts_once() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let tokens = place.exchange(&client, &place.code(&client, "alice")).tokens();
    let asked =
        [("grant_type", "refresh_token"), ("refresh_token", &*tokens.refresh), ("client_id", &*client)];
    for at in 0..asked.len() {
        AskedTokens(place.token(&twice(&asked, at))).assert_refused("invalid_request");
        AskedTokens(place.token(&without(&asked, asked[at].0))).assert_refused("invalid_request");
    }
    let ending = [("token", &*tokens.refresh), ("client_id", &*client)];
    let end = |parameters: &[(&str, &str)]| {
        AskedTokens(place.daemon.send(&post_form("/revoke", &form(parameters))))
    };
    for at in 0..ending.len() {
        end(&twice(&ending, at)).assert_refused("invalid_request");
        end(&without(&ending, ending[at].0)).assert_refused("invalid_request");
    }
    assert_eq!(place.call(&tokens.access), 200);
    place.refresh(&client, &tokens.refresh).tokens();
}

#[test]
fn a_client_that_is_unknown_hears_that_first() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let asked = code_parameters(&client, &code);
    // It would keep its registration, and end at a page, if it heard of its code alone.
    for unknown in ["tlc_AAAA", "nobody", "http://a.example/c", "https://127.0.0.1/c"] {
        AskedTokens(place.token(&changed(&asked, "client_id", unknown))).assert_refused("invalid_client");
        let refresh = [("grant_type", "refresh_token"), ("refresh_token", "tlr_x"), ("client_id", unknown)];
        AskedTokens(place.token(&refresh)).assert_refused("invalid_client");
    }
    AskedTokens(place.token(&asked)).tokens();
}

/// Values that are no text: of another encoding, with half an escape, or with NUL.
const NO_TEXTS: [&str; 6] = ["%FF", "%C3", "%ED%A0%80", "%0", "%zz", "a%00b"];

#[test]
fn what_is_no_text_is_refused_wherever_it_stands() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let (code, mut browser) = (place.code(&client, "alice"), Browser::default());
    let page = browser.open(&place.daemon, &authorize(&asking(&client)));
    let sealed = super::browser::sealed_form(&page);
    let refresh = [("grant_type", "refresh_token"), ("refresh_token", "tlr_x"), ("client_id", &*client)];
    let callback = [("code", "c"), ("state", "AAAAAAAAAAAAAAAAAAAAAA")];
    for (path, parameters) in [
        ("/authorize", &asking(&client)[..]),
        ("/sign-in/callback", &callback[..]),
        ("/sign-in/consent", &[("form", &*sealed), ("answer", "allow")][..]),
        ("/token", &code_parameters(&client, &code)[..]),
        ("/token", &refresh[..]),
        ("/revoke", &[("token", "tlr_x"), ("client_id", &*client)][..]),
    ] {
        for (at, no_text) in (0..parameters.len()).flat_map(|at| NO_TEXTS.map(|no_text| (at, no_text))) {
            let spoilt = |(other, (name, value)): (usize, &(&str, &str))| {
                if other == at { format!("{name}={no_text}") } else { form(&[(*name, *value)]) }
            };
            let spoilt = parameters.iter().enumerate().map(spoilt).collect::<Vec<_>>().join("&");
            let response = match path {
                "/authorize" | "/sign-in/callback" => {
                    browser.open(&place.daemon, &format!("{path}?{spoilt}"))
                }
                "/sign-in/consent" => {
                    let asked = post_form(path, &spoilt).with("Origin", super::URL);
                    browser.send(&place.daemon, asked)
                }
                _ => {
                    AskedTokens(place.daemon.send(&post_form(path, &spoilt)))
                        .assert_refused("invalid_request");
                    continue;
                }
            };
            assert_page(&response, 400, "");
        }
    }
    assert!(browser.under_way().is_empty());
    place.exchange(&client, &code).tokens();
}

#[test]
fn another_content_type_is_refused() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let asked = form(&code_parameters(&client, &code));
    for kind in ["application/json", "text/plain", "application/x-www-form-urlencoded; charset=utf-16"] {
        for path in ["/token", "/revoke"] {
            let response = place.daemon.send(&post_form(path, &asked).set("Content-Type", kind));
            AskedTokens(response).assert_refused("invalid_request");
        }
    }
    AskedTokens(place.daemon.send(&post_form("/token", &asked).without("Content-Type")))
        .assert_refused("invalid_request");
    let registration = here(post(r#"{"redirect_uris":["http://127.0.0.1/cb"]}"#)).target("/register");
    assert_eq!(place.daemon.send(&registration).status, 201);
    let as_form = registration.clone().set("Content-Type", "application/x-www-form-urlencoded");
    AskedTokens(place.daemon.send(&as_form)).assert_refused("invalid_client_metadata");
    let mut browser = Browser::default();
    let page = browser.open(&place.daemon, &authorize(&asking(&client)));
    let answer = super::browser::consent(&super::browser::sealed_form(&page), "allow");
    assert_page(&browser.send(&place.daemon, answer.set("Content-Type", "text/plain")), 400, "");
    place.exchange(&client, &code).tokens();
}

#[test]
fn hostile_registrations_are_refused() {
    let place = Place::start();
    let register = |body: &str| place.daemon.send(&here(post(body)).target("/register"));
    for (body, error) in [
        ("", "invalid_client_metadata"),
        ("[]", "invalid_client_metadata"),
        ("{}", "invalid_redirect_uri"),
        (r#"{"redirect_uris":[]}"#, "invalid_redirect_uri"),
        (r#"{"redirect_uris":"http://127.0.0.1/cb"}"#, "invalid_redirect_uri"),
        (r#"{"redirect_uris":["https://evil.example/cb"]}"#, "invalid_redirect_uri"),
        (r#"{"redirect_uris":["http://evil.example/cb"]}"#, "invalid_redirect_uri"),
        (r#"{"redirect_uris":["javascript:alert(1)"]}"#, "invalid_redirect_uri"),
        (r#"{"redirect_uris":["http://127.0.0.1/cb#fragment"]}"#, "invalid_redirect_uri"),
        (r#"{"redirect_uris":["http://127.0.0.1/cb"],"redirect_uris":[]}"#, "invalid_client_metadata"),
        (r#"{"redirect_uris":["http://127.0.0.1/cb"],"client_name":7}"#, "invalid_client_metadata"),
        (
            r#"{"redirect_uris":["http://127.0.0.1/cb"],"grant_types":["implicit"]}"#,
            "invalid_client_metadata",
        ),
        (
            r#"{"redirect_uris":["http://127.0.0.1/cb"],"response_types":["token"]}"#,
            "invalid_client_metadata",
        ),
    ] {
        let response = register(body);
        assert_eq!((response.status, response.json()["error"].as_str()), (400, Some(error)), "{body}");
    }
    let long = format!(r#"{{"redirect_uris":["http://127.0.0.1/{}"]}}"#, "a".repeat(2000));
    assert_eq!(register(&long).status, 400);
    let longer = format!(r#"{{"redirect_uris":["http://127.0.0.1/{}"]}}"#, "a".repeat(20_000));
    assert_eq!(register(&longer).status, 413);
}

/// As VS Code does.
#[test]
fn of_many_redirect_uris_those_are_registered_that_may_be_used() {
    let place =
        Place::with(Settings { sign_in: "redirects = [\"https://vscode.dev\"]", ..Settings::default() });
    let named = [
        "https://insiders.vscode.dev/redirect",
        "https://vscode.dev/redirect",
        "http://127.0.0.1/",
        "http://127.0.0.1:33418/",
    ];
    let asked = serde_json::json!({ "redirect_uris": named, "token_endpoint_auth_method": "none" });
    let registered = place.daemon.send(&here(post(asked.to_string()).target("/register")));
    assert_eq!(registered.status, 201, "{}", registered.text());
    let json = registered.json();
    assert_eq!(json["redirect_uris"], serde_json::json!(named[1..]), "{json}");
    let client = json["client_id"].as_str().expect("an id");
    let ask = |uri| place.daemon.send(&get(&authorize(&changed(&asking(client), "redirect_uri", uri))));
    assert_eq!(ask(named[1]).status, 200);
    assert_eq!(ask(named[2]).status, 200);
    assert_page(&ask(named[0]), 403, "https://insiders.vscode.dev");
}

#[test]
fn other_methods_and_paths_are_refused() {
    let place = Place::start();
    for (path, allowed) in [
        ("/authorize", "GET"),
        ("/token", "POST, OPTIONS"),
        ("/register", "POST, OPTIONS"),
        ("/revoke", "POST, OPTIONS"),
        ("/.well-known/oauth-authorization-server", "GET, HEAD, OPTIONS"),
        ("/sign-in/callback", "GET"),
        ("/sign-in/consent", "POST"),
    ] {
        let response = place.daemon.send(&here(post("")).target(path).method("PUT"));
        assert_eq!((response.status, response.header("allow")), (405, Some(allowed)), "{path}");
    }
    assert_page(&place.daemon.send(&get("/sign-in/nothing")), 404, "");
    for path in ["/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/mcp"] {
        assert_eq!(place.daemon.send(&get(path)).status, 404, "{path}");
    }
}

#[test]
fn other_origins_read_what_clients_ask_for_and_no_page() {
    let place = Place::start();
    for (path, is_page) in [
        ("/authorize", true),
        ("/sign-in/", true),
        ("/sign-in/callback", true),
        ("/sign-in/consent", true),
        ("/token", false),
        ("/register", false),
        ("/revoke", false),
        ("/.well-known/oauth-authorization-server", false),
    ] {
        for method in ["OPTIONS", "GET", "POST"] {
            let asked =
                here(post("").method(method).target(path)).with("Origin", "https://inspector.example");
            let response = place.daemon.send(&asked);
            let allowed = response.header("access-control-allow-origin");
            assert_eq!(allowed.is_none(), is_page, "{method} {path}: {allowed:?}");
        }
    }
}

/// Every path of sign-in, asked for at this host.
fn at(place: &Place, host: &str) -> Vec<(&'static str, Response)> {
    let asked = [
        ("/authorize", get("/authorize")),
        ("/sign-in/callback", get("/sign-in/callback")),
        ("/.well-known/oauth-authorization-server", get("/.well-known/oauth-authorization-server")),
        ("/token", post_form("/token", "")),
        ("/register", here(post("{}")).target("/register")),
        ("/revoke", post_form("/revoke", "")),
    ];
    asked.map(|(path, request)| (path, place.daemon.send(&request.set("Host", host)))).into()
}

#[test]
fn there_is_no_sign_in_at_another_host() {
    let place = Place::start();
    for host in ["127.0.0.1:7000", "localhost", "localhost:7001", "localhost.:7000"] {
        for (path, response) in at(&place, host) {
            if path == "/authorize" || path == "/sign-in/callback" {
                assert_page(&response, 421, super::URL);
            } else {
                assert_eq!(response.status, 404, "{host}{path}: {}", response.text());
            }
        }
    }
    for host in ["localhost:7000", "LocalHost:7000"] {
        for (path, response) in at(&place, host) {
            let expected = if path.starts_with("/.well-known") { 200 } else { 400 };
            assert_eq!(response.status, expected, "{host}{path}: {}", response.text());
        }
    }
}

#[test]
fn for_a_sign_in_that_has_ended_no_client_has_to_prove_itself() {
    let place = Place::start();
    let asked = serde_json::json!({
        "redirect_uris": [REDIRECT], "client_name": "Try", "token_endpoint_auth_method": "client_secret_post",
    });
    let registered = place.daemon.send(&here(post(asked.to_string()).target("/register"))).json();
    let text = |name: &str| registered[name].as_str().expect("a text").to_owned();
    let (client, secret) = (text("client_id"), text("client_secret"));
    let code = place.code(&client, "alice");
    let exchange = |secret: &str| {
        let shown = [&code_parameters(&client, &code)[..], &[("client_secret", secret)]].concat();
        AskedTokens(place.token(&shown))
    };
    exchange("wrong").assert_refused("invalid_client");
    let tokens = exchange(&secret).tokens();
    let with_token = |name: &'static str, secret: &str| {
        form(&[
            ("grant_type", "refresh_token"),
            (name, &tokens.refresh),
            ("client_id", &client),
            ("client_secret", secret),
        ])
    };
    let refresh = |secret: &str| {
        AskedTokens(place.daemon.send(&post_form("/token", &with_token("refresh_token", secret))))
    };
    let revoke = |secret: &str| {
        let asked = with_token("token", secret);
        place.daemon.send(&post_form("/revoke", &asked)).status
    };
    refresh("wrong").assert_refused("invalid_client");
    assert_eq!((revoke("wrong"), revoke(&secret)), (400, 200));
    // So nothing is fetched for it, nor is an assertion remembered.
    exchange("wrong").assert_refused("invalid_grant");
    refresh("wrong").assert_refused("invalid_grant");
    assert_eq!(revoke("wrong"), 200);
}
