//! Mistakes of other gateways: one test for each mistake that could be made here.

use super::browser::{Browser, assert_page, moves_on};
use super::place::{Place, asking, authorize, code_of};
use super::{AskedTokens, REDIRECT, Settings, URL, VERIFIER, form, get, post_form};
use crate::harness::{
    LEGACY_VERSION, Response, api_key, call, eventually, in_session, initialize, legacy_call, list, post,
    with_key,
};

/// The redirect URI of a client in the web.
const WEB: &str = "https://claude.ai/cb";
const WEB_SETTINGS: Settings<'_> = Settings {
    sign_in: "redirects = [\"https://claude.ai\", \"https://vscode.dev\"]\nscopes = { \"mcp:read\" = [\"*\"] }",
    endpoint: "",
    sections: "",
    url: "",
    has_operators: false,
};

/// As a client in the web asks.
fn web(client: &str, redirect: &str, scope: &str) -> String {
    authorize(
        &asking(client)
            .map(|(name, value)| match name {
                "redirect_uri" => (name, redirect.to_owned()),
                "scope" => (name, scope.to_owned()),
                _ => (name, value.to_owned()),
            })
            .each_ref()
            .map(|(name, value)| (*name, value.as_str())),
    )
}

/// Signs in by a page that asks, or by an answer that is remembered.
fn go_through(place: &Place, browser: &mut Browser, target: &str, user: &str) -> Response {
    let first = browser.open(&place.daemon, target);
    let visit = match first.header("location") {
        Some(location) => location.to_owned(),
        None => moves_on(&browser.answer(&place.daemon, &first, "allow")),
    };
    let back = place.provider.sign_in(&visit, user);
    browser.open(&place.daemon, back.strip_prefix(URL).expect("the gateway"))
}

#[test]
fn must_1_only_the_browser_that_consented_comes_back() {
    let place = Place::start();
    let back = place.visit(&mut Browser::default(), &place.register(REDIRECT), "alice");
    let mut victim = Browser::default();
    assert_page(&victim.open(&place.daemon, &back), 403, "this browser");
    place.visit(&mut victim, &place.register(REDIRECT), "bob");
    assert_page(&victim.open(&place.daemon, &back), 403, "this browser");
    assert_eq!(place.daemon.metric("trunkline_sign_ins_total"), 0);
}

#[test]
fn must_2_consent_is_of_one_client_redirect_scope_and_person() {
    let place = Place::with(WEB_SETTINGS);
    let (mut browser, client) = (Browser::default(), place.register(WEB));
    let target = web(&client, WEB, "mcp:read");
    let back = go_through(&place, &mut browser, &target, "alice");
    assert!(back.header("location").is_some_and(|location| location.starts_with(WEB)), "{back:?}");
    let remembered = browser.open(&place.daemon, &target);
    assert_eq!(remembered.status, 303, "{}", remembered.text());
    let location = remembered.header("location").expect("an address");
    assert!(location.starts_with(&place.provider.issuer()), "{location}");
    let other = place.register(WEB);
    for (what, asked) in [
        ("another client", web(&other, WEB, "mcp:read")),
        ("another scope", web(&client, WEB, "mcp:read mcp:more")),
    ] {
        let page = browser.open(&place.daemon, &asked);
        assert_eq!((page.status, page.header("location")), (200, None), "{what}");
    }
    let another_browser = Browser::default().open(&place.daemon, &target);
    assert_eq!(another_browser.status, 200, "another browser");
    // Somebody else comes back: the page is shown after all.
    let asked = go_through(&place, &mut browser, &target, "bob");
    assert_eq!((asked.status, asked.header("location")), (200, None), "{asked:?}");
    assert!(asked.text().contains("Bob Brown"), "{}", asked.text());
    let back = place.provider.sign_in(&moves_on(&browser.answer(&place.daemon, &asked, "allow")), "bob");
    let done = browser.open(&place.daemon, back.strip_prefix(URL).expect("the gateway"));
    assert!(done.header("location").is_some_and(|location| location.starts_with(WEB)), "{done:?}");
}

#[test]
fn must_3_registration_opens_no_redirect_and_spares_no_consent() {
    let place = Place::with(WEB_SETTINGS);
    let register = |uri: &str| {
        let asked = serde_json::json!({ "redirect_uris": [uri] }).to_string();
        AskedTokens(place.daemon.send(&super::place::here(post(asked)).target("/register")))
    };
    for uri in
        ["https://evil.example/cb", "https://claude.ai.evil.example/cb", "https://claude.ai@evil.example/cb"]
    {
        register(uri).assert_refused("invalid_redirect_uri");
    }
    let client = place.register(WEB);
    for uri in [
        "https://evil.example/cb",
        "https://claude.ai/other",
        "https://claude.ai/cb/../x",
        "https://claude.ai/cb?x",
    ] {
        let refused = place.daemon.send(&get(&web(&client, uri, "mcp:read")));
        assert_page(&refused, refused.status, "");
        assert!((400..500).contains(&refused.status), "{uri}");
    }
    let (mut browser, local) = (Browser::default(), place.register(REDIRECT));
    for _ in 0..2 {
        let page = browser.open(&place.daemon, &authorize(&asking(&local)));
        assert_eq!(
            (page.status, page.header("location")),
            (200, None),
            "a program here is asked about each time"
        );
        let visit = moves_on(&browser.answer(&place.daemon, &page, "allow"));
        let back = place.provider.sign_in(&visit, "alice");
        code_of(&browser.open(&place.daemon, back.strip_prefix(URL).expect("the gateway")));
    }
}

#[test]
fn must_4_a_token_is_for_one_endpoint() {
    let place = Place::with(Settings {
        sections: "[[endpoint]]\npath = \"/other\"\nupstreams = [\"up\"]\nauth = [\"sign_in\"]\n\
                   public_url = \"http://localhost:7000/other\"",
        ..Settings::default()
    });
    let tokens = place.signed_in("alice");
    assert_eq!(place.call(&tokens.access), 200);
    let there = place.daemon.send(&with_key(call("1", "echo").target("/other"), &tokens.access));
    assert_eq!(there.status, 401);
    let client = place.register(REDIRECT);
    let without: Vec<_> = asking(&client).into_iter().filter(|(name, _)| *name != "resource").collect();
    assert_page(&place.daemon.send(&get(&authorize(&without))), 400, "resource");
}

#[test]
fn must_5_a_made_up_token_is_tried_in_no_other_way() {
    let key = "tl_0123456789abcdefghijklmnopqrstuvwxyz";
    let place = Place::with(Settings {
        endpoint: "auth = [\"sign_in\", \"api_key\"]",
        sections: &api_key("ci", key),
        ..Settings::default()
    });
    let good = place.signed_in("alice").access;
    assert_eq!([place.call(key), place.call(&good)], [200, 200]);
    let mut last = good.clone();
    let end = last.pop().expect("a character");
    last.push(if end == 'A' { 'B' } else { 'A' });
    let (loud, longer) = (good.to_uppercase(), format!("{good}.x"));
    for made_up in ["tla_", "tla_x", "x", "a.b.c", "tl_wrong", &*last, &*loud, &*longer] {
        let refused = place.daemon.send(&with_key(call("1", "echo"), made_up));
        assert_eq!(refused.status, 401, "{made_up}");
        assert!(refused.header("www-authenticate").is_some());
    }
}

#[test]
fn must_8_no_older_revision_skips_the_check() {
    let place = Place::start();
    let refused = |request: crate::harness::Request| {
        let response = place.daemon.send(&request);
        assert_eq!(response.status, 401, "{}", response.text());
    };
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY_VERSION] {
        refused(initialize("1", version));
        refused(legacy_call("1", "echo").with("MCP-Protocol-Version", version));
    }
    let tokens = place.signed_in("alice");
    let opened = place.daemon.send(&with_key(initialize("1", LEGACY_VERSION), &tokens.access));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    refused(in_session(&session, legacy_call("2", "echo")));
    refused(in_session(
        &session,
        post("").method("GET").without("Content-Type").set("Accept", "text/event-stream"),
    ));
    refused(in_session(&session, post("").method("DELETE")));
}

/// Each time, a reload asks for a group that the provider has to be asked about, by a refresh token that is good once.
#[test]
fn must_12_who_loses_a_refresh_ends_nothing_and_what_was_rotated_is_kept() {
    let place = Place::start();
    let mut all: Vec<(String, String)> = (0..4)
        .map(|_| {
            let client = place.register(REDIRECT);
            let tokens = place.exchange(&client, &place.code(&client, "alice")).tokens();
            (client, tokens.refresh)
        })
        .collect();
    let asked = || place.provider.requests("/token");
    for group in ["auditors", "managers"] {
        let groups = serde_json::json!({ "groups": { "alice": [group] }, "at": ["/token"], "slow_ms": 300 });
        place.provider.faults(&groups);
        let require = format!("require = {{ groups = [\"{group}\"] }}");
        place.reload(Settings { sign_in: &require, ..Settings::default() });
        let before = asked();
        let refresh = |(client, token): (String, String)| {
            let next = eventually("the provider has answered", || {
                let answer = place.refresh(&client, &token);
                (answer.0.status != 503).then_some(answer)
            });
            let next = next.tokens();
            assert_eq!(place.call(&next.access), 200);
            (client, next.refresh)
        };
        all = std::thread::scope(|scope| {
            let running: Vec<_> = all.into_iter().map(|one| scope.spawn(|| refresh(one))).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(asked() - before, 1, "{group}");
    }
}

#[test]
fn must_15_no_other_form_of_a_request_skips_the_check() {
    let place = Place::start();
    let batch = post("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}]");
    for request in [
        batch.clone(),
        batch.with("MCP-Protocol-Version", "2025-03-26"),
        list("1", "tools/list").set("Content-Type", "text/plain"),
        list("1", "tools/list").without("Content-Type"),
        post("no JSON"),
        post(""),
        call("1", "echo").method("PUT"),
    ] {
        let response = place.daemon.send(&request);
        assert!([401, 405, 415].contains(&response.status), "{} {}", response.status, response.text());
    }
}

#[test]
fn must_16_nothing_passes_for_another_kind() {
    let place = Place::start();
    let client = place.register(REDIRECT);
    let mut browser = Browser::default();
    let page = browser.open(&place.daemon, &authorize(&asking(&client)));
    let sealed = super::browser::sealed_form(&page);
    let back = place.visit(&mut browser, &client, "alice");
    let cookie = browser.cookies[&browser.under_way()[0]].clone();
    let code = code_of(&browser.open(&place.daemon, &back));
    let tokens = place.exchange(&client, &code).tokens();
    let all: [&str; 6] = [&client, &sealed, &cookie, &code, &tokens.access, &tokens.refresh];
    let bare = |text: &str| text.trim_start_matches("tla_").trim_start_matches("tlr_").to_owned();
    for text in all {
        for shown in
            [text.to_owned(), format!("tla_{}", bare(text)), format!("tlr_{}", bare(text)), bare(text)]
        {
            if shown != tokens.access {
                assert_eq!(place.call(&shown), 401, "{shown}");
            }
            if shown != tokens.refresh {
                place.refresh(&client, &shown).assert_refused("invalid_grant");
            }
            if shown != code {
                place.exchange(&client, &shown).assert_refused("invalid_grant");
            }
            if shown != sealed {
                let answered = browser.send(&place.daemon, super::browser::consent(&shown, "allow"));
                assert_page(&answered, answered.status, "");
            }
            if shown != client {
                let page = place.daemon.send(&get(&authorize(&asking(&shown))));
                assert!(page.status >= 400, "{shown}");
            }
        }
    }
    assert_eq!(place.call(&tokens.access), 200);
    place.refresh(&client, &tokens.refresh).tokens();
}

#[test]
fn must_17_no_scope_comes_for_the_asking() {
    let place = Place::with(Settings {
        sign_in: "scopes = { \"mcp:read\" = [\"*\"], \"mcp:write\" = [\"ops\"] }",
        endpoint: "scopes = [\"mcp:write\"]",
        ..Settings::default()
    });
    let bob = place.signed_in("bob");
    assert_eq!(bob.scope, "mcp:read");
    let refused = place.daemon.send(&with_key(call("1", "echo"), &bob.access));
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(refused.header("www-authenticate"), None, "a visit would not grant it");
    assert_eq!(place.call(&place.signed_in("alice").access), 200);
}

#[test]
fn must_20_what_has_ended_stays_ended() {
    let mut place = Place::with(Settings { sign_in: "refresh_reuse = \"10m\"", ..Settings::default() });
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let tokens = place.exchange(&client, &code).tokens();
    place.daemon.send(&post_form("/revoke", &form(&[("token", &tokens.access), ("client_id", &client)])));
    let later = place.signed_in("alice");
    for _ in 0..2 {
        place.refresh(&client, &tokens.refresh).assert_refused("invalid_grant");
        AskedTokens(place.token(&[
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", REDIRECT),
            ("code_verifier", VERIFIER),
            ("client_id", &client),
        ]))
        .assert_refused("invalid_grant");
        assert_eq!(place.call(&tokens.access), 401);
        assert_eq!(place.call(&later.access), 200);
        place.restart(Settings::default());
    }
}
