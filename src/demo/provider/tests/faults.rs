//! Faults that tests ask for.

use serde_json::json;

use super::*;

#[test]
fn claims_and_members_are_replaced_or_left_out() {
    let mut asked = Asked::new();
    asked.faults(&json!({
        "id_token": { "nonce": "another", "aud": ["x"], "exp": 1, "groups": null },
        "answers": {
            "/token": { "refresh_token": null },
            "/userinfo": { "sub": "bob" },
            "/.well-known/openid-configuration": { "issuer": "https://other.example" },
        },
    }));
    let code = asked.code("alice");
    let tokens = asked.tokens(&exchange(&code, &[]));
    assert_eq!(tokens.get("refresh_token"), None);
    let keys = serde_json::from_slice(asked.get("/jwks").body()).unwrap();
    let claims = claims(text(&tokens, "id_token"), &keys);
    let found = (&claims["nonce"], &claims["aud"], &claims["exp"], claims.get("groups"));
    assert_eq!(found, (&json!("another"), &json!(["x"]), &json!(1), None));
    assert_eq!(asked.userinfo(text(&tokens, "access_token")).1["sub"], "bob");
    let metadata: Value =
        serde_json::from_slice(asked.get("/.well-known/openid-configuration").body()).unwrap();
    assert_eq!(metadata["issuer"], "https://other.example");
    assert_eq!(asked.userinfo("x").1["sub"], json!(null), "errors stay what they are");
}

#[test]
fn a_broken_provider_is_so_where_it_is_told() {
    let mut asked = Asked::new();
    asked.faults(&json!({ "at": ["/jwks"], "status": 503, "slow_ms": 70 }));
    assert_eq!(asked.get("/jwks").status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(asked.get("/.well-known/openid-configuration").status(), StatusCode::OK);
    assert_eq!((asked.provider.pause_ms("/jwks"), asked.provider.pause_ms("/token")), (70, 0));
    asked.faults(&json!({ "html": true }));
    let response = asked.get("/jwks");
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    assert_eq!(response.status(), StatusCode::OK);
    asked.faults(&json!({}));
    assert!(asked.get("/jwks").body().starts_with(b"{\"keys\""));
    let counts: Value = serde_json::from_slice(asked.get("/faults").body()).unwrap();
    assert_eq!(counts, json!({ "requests": { "/.well-known/openid-configuration": 1, "/jwks": 3 } }));
}

#[test]
fn users_change_and_go() {
    let mut asked = Asked::new();
    let code = asked.code("alice");
    let first = asked.tokens(&exchange(&code, &[]));
    asked.faults(&json!({ "groups": { "alice": ["guests"] } }));
    let second = asked.tokens(&refresh(text(&first, "refresh_token")));
    let keys = serde_json::from_slice(asked.get("/jwks").body()).unwrap();
    assert_eq!(claims(text(&second, "id_token"), &keys)["groups"], json!(["guests"]));
    assert_eq!(asked.userinfo(text(&second, "access_token")).1["groups"], json!(["guests"]));

    asked.faults(&json!({ "removed": ["alice"] }));
    assert_eq!(asked.userinfo(text(&second, "access_token")).0, StatusCode::UNAUTHORIZED);
    assert_eq!(asked.refusal(&refresh(text(&second, "refresh_token"))), "invalid_grant");
    let form = asked.answer_page(&visit(&[]), "user=alice");
    assert_eq!(form.get("error"), Some("access_denied"));
    let page = asked.get(&format!("/authorize?{}", visit(&[])));
    assert!(!String::from_utf8_lossy(page.body()).contains("value=\"alice\""));
}

#[test]
fn keys_rotate_and_clocks_differ() {
    let mut asked = Asked::new();
    let keys = |asked: &mut Asked| -> Value { serde_json::from_slice(asked.get("/jwks").body()).unwrap() };
    let before = keys(&mut asked);
    asked.faults(&json!({ "key": 0, "clock_s": -300 }));
    assert_eq!(keys(&mut asked), before);
    asked.faults(&json!({ "key": 1, "clock_s": 300 }));
    let after = keys(&mut asked);
    assert_ne!(after["keys"][0]["kid"], before["keys"][0]["kid"]);
    let code = asked.code("alice");
    let tokens = asked.tokens(&exchange(&code, &[]));
    assert_eq!(claims(text(&tokens, "id_token"), &after)["iat"], json!(NOW_S + 300));
}

#[test]
fn bad_input_faults_that_are_none_are_refused_and_elsewhere_there_are_none() {
    let mut asked = Asked::new();
    for body in ["", "7", "{\"down\":true}", "{\"status\":\"x\"}"] {
        assert_eq!(asked.send(Request::post("/faults"), body).status(), StatusCode::BAD_REQUEST, "{body}");
    }
    asked.provider.settings.takes_faults = false;
    for request in [Request::get("/faults"), Request::post("/faults")] {
        assert_eq!(asked.send(request, "{}").status(), StatusCode::NOT_FOUND);
    }
}
