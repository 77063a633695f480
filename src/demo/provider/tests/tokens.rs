//! Codes, refresh tokens, access tokens and the proof of the client.

use serde_json::json;

use super::*;

#[test]
fn a_code_becomes_tokens_of_its_user() {
    for (user, groups) in [("alice", json!(["staff", "ops"])), ("bob", json!(["staff"]))] {
        let mut asked = Asked::new();
        let code = asked.code(user);
        let tokens = asked.tokens(&exchange(&code, &[]));
        assert_eq!((text(&tokens, "token_type"), &tokens["expires_in"]), ("Bearer", &json!(300)));
        assert_eq!(text(&tokens, "scope"), "openid profile offline_access");
        let keys = serde_json::from_slice(asked.get("/jwks").body()).unwrap();
        let claims = claims(text(&tokens, "id_token"), &keys);
        let expected = json!({
            "sub": user, "name": claims["name"], "preferred_username": user, "email": format!("{user}@example.com"),
            "groups": groups, "iss": ISSUER, "aud": "trunkline", "iat": NOW_S, "exp": NOW_S + 300,
            "auth_time": NOW_S, "nonce": "a nonce",
        });
        assert_eq!(claims, expected);
        let (status, userinfo) = asked.userinfo(text(&tokens, "access_token"));
        assert_eq!((status, &userinfo["sub"], &userinfo["groups"]), (StatusCode::OK, &json!(user), &groups));
    }
}

#[test]
fn bad_input_a_code_is_good_once_and_a_second_use_ends_what_came_of_it() {
    let mut asked = Asked::new();
    let code = asked.code("alice");
    let tokens = asked.tokens(&exchange(&code, &[]));
    assert_eq!(asked.refusal(&exchange(&code, &[])), "invalid_grant");
    assert_eq!(asked.refusal(&refresh(text(&tokens, "refresh_token"))), "invalid_grant");
    assert_eq!(asked.userinfo(text(&tokens, "access_token")).0, StatusCode::UNAUTHORIZED);
}

#[test]
fn bad_input_what_does_not_belong_to_the_code_is_refused() {
    for (changes, error) in [
        ([("code_verifier", "wrong-verifier-wrong-verifier-wrong-verifier")], "invalid_grant"),
        ([("code_verifier", "")], "invalid_request"),
        ([("redirect_uri", "https://mcp.example.com/back?a=b")], "invalid_grant"),
        ([("redirect_uri", "")], "invalid_request"),
        ([("code", "0")], "invalid_grant"),
        ([("code", "")], "invalid_request"),
        ([("grant_type", "password")], "unsupported_grant_type"),
        ([("grant_type", "")], "invalid_request"),
    ] {
        let mut asked = Asked::new();
        let code = asked.code("alice");
        assert_eq!(asked.refusal(&exchange(&code, &changes)), error, "{changes:?}");
    }
    let mut asked = Asked::new();
    let code = asked.code("alice");
    assert_eq!(asked.refusal(&format!("{}&code=x", exchange(&code, &[]))), "invalid_request");
    asked.tokens(&exchange(&code, &[]));
}

#[test]
fn a_code_is_good_for_a_minute() {
    let mut asked = Asked::new();
    let (one, other) = (asked.code("alice"), asked.code("alice"));
    asked.now_s += 59;
    asked.tokens(&exchange(&one, &[]));
    asked.now_s += 1;
    assert_eq!(asked.refusal(&exchange(&other, &[])), "invalid_grant");
}

#[test]
fn the_oldest_code_gives_way() {
    let mut asked = Asked::new();
    let codes: Vec<String> = (0..257).map(|_| asked.code("alice")).collect();
    assert_eq!(asked.refusal(&exchange(&codes[0], &[])), "invalid_grant");
    asked.tokens(&exchange(&codes[1], &[]));
}

#[test]
fn a_refresh_token_rotates_and_its_reuse_ends_everything() {
    let mut asked = Asked::new();
    let code = asked.code("alice");
    let first = asked.tokens(&exchange(&code, &[]));
    asked.now_s += 1000;
    let second = asked.tokens(&refresh(text(&first, "refresh_token")));
    let keys = serde_json::from_slice(asked.get("/jwks").body()).unwrap();
    let claims = claims(text(&second, "id_token"), &keys);
    assert_eq!((&claims["sub"], &claims["auth_time"]), (&json!("alice"), &json!(NOW_S)));
    assert_eq!((claims.get("nonce"), &claims["iat"]), (None, &json!(NOW_S + 1000)));

    assert_eq!(asked.refusal(&refresh(text(&first, "refresh_token"))), "invalid_grant");
    assert_eq!(asked.refusal(&refresh(text(&second, "refresh_token"))), "invalid_grant");
    assert_eq!(asked.userinfo(text(&second, "access_token")).0, StatusCode::UNAUTHORIZED);
}

#[test]
fn a_visit_without_offline_access_has_no_refresh_token() {
    let mut asked = Asked::new();
    let code = asked.answer_page(&visit(&[("scope", "openid")]), "user=bob").get("code").unwrap().to_owned();
    let tokens = asked.tokens(&exchange(&code, &[]));
    assert_eq!((tokens.get("refresh_token"), text(&tokens, "scope")), (None, "openid"));
}

#[test]
fn bad_input_a_client_that_does_not_prove_itself_is_refused() {
    let encoded_secret = encoded(&[("client_id", "trunkline"), ("client_secret", SECRET)]);
    let other = format!("Basic {}", STANDARD.encode("trunkline:wrong"));
    let basic = basic();
    for (header, more, expected) in [
        (Some(&*basic), "", None),
        (Some(&*basic), "client_id=trunkline", None),
        (None, &*encoded_secret, None),
        (None, "", Some("invalid_client")),
        (None, "client_id=trunkline", Some("invalid_client")),
        (None, "client_id=trunkline&client_secret=wrong", Some("invalid_client")),
        (None, "client_id=other&client_secret=s%2Bcr%3At%25", Some("invalid_client")),
        (Some(&*other), "", Some("invalid_client")),
        (Some("Basic !"), "", Some("invalid_client")),
        (Some("Bearer abc"), "", Some("invalid_client")),
        (Some(&*basic), "client_id=other", Some("invalid_request")),
        (Some(&*basic), &*encoded_secret, Some("invalid_request")),
    ] {
        let mut asked = Asked::new();
        let code = asked.code("alice");
        let (_, body) = asked.post_as("/token", header, &format!("{}&{more}", exchange(&code, &[])));
        assert_eq!(body["error"].as_str(), expected, "{header:?} {more}");
        let (status, _) = asked.post_as("/revoke", header, &format!("token=x&{more}"));
        assert_eq!(status.is_success(), expected.is_none(), "{header:?} {more}");
    }
}

#[test]
fn bad_input_parameters_belong_into_a_form() {
    let mut asked = Asked::new();
    let form = exchange(&asked.code("alice"), &[]);
    let json =
        Request::post("/token").header("content-type", "application/json").header("authorization", basic());
    assert_eq!(asked.send(json, &form).status(), StatusCode::BAD_REQUEST);
    assert_eq!(asked.post("/token?x=y", &form).0, StatusCode::BAD_REQUEST);
    let challenge = asked.post_as("/token", None, &form).0;
    assert_eq!(challenge, StatusCode::UNAUTHORIZED);
}

#[test]
fn revoked_tokens_are_over() {
    let mut asked = Asked::new();
    let code = asked.code("alice");
    let first = asked.tokens(&exchange(&code, &[]));
    let second = asked.tokens(&refresh(text(&first, "refresh_token")));
    asked.post("/revoke", &encoded(&[("token", text(&first, "access_token"))]));
    assert_eq!(asked.userinfo(text(&first, "access_token")).0, StatusCode::UNAUTHORIZED);
    assert_eq!(asked.userinfo(text(&second, "access_token")).0, StatusCode::OK);
    asked.post("/revoke", &encoded(&[("token", text(&second, "refresh_token"))]));
    assert_eq!(asked.userinfo(text(&second, "access_token")).0, StatusCode::UNAUTHORIZED);
    assert_eq!(asked.refusal(&refresh(text(&second, "refresh_token"))), "invalid_grant");
}

#[test]
fn bad_input_userinfo_wants_a_token_that_is_good() {
    let mut asked = Asked::new();
    let code = asked.code("alice");
    let tokens = asked.tokens(&exchange(&code, &[]));
    let token = text(&tokens, "access_token").to_owned();
    let response = asked.get("/userinfo");
    assert_eq!(response.headers()["www-authenticate"], "Bearer error=\"invalid_token\"");
    for shown in ["", "x", text(&tokens, "refresh_token"), text(&tokens, "id_token")] {
        assert_eq!(asked.userinfo(shown).0, StatusCode::UNAUTHORIZED, "{shown}");
    }
    asked.now_s += 299;
    assert_eq!(asked.userinfo(&token).0, StatusCode::OK);
    asked.now_s += 1;
    assert_eq!(asked.userinfo(&token).0, StatusCode::UNAUTHORIZED);
}
