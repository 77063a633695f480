//! Visits that are refused: on a page as long as it is open where the browser may go, and then back at the client.

use super::*;

#[test]
fn bad_input_an_address_or_client_that_is_not_registered_gets_a_page() {
    for changes in [
        ("redirect_uri", "http://127.0.0.1:8080/sign-in/callback/"),
        ("redirect_uri", "http://127.0.0.1:8081/sign-in/callback"),
        ("redirect_uri", "http://127.0.0.1:8080/sign-in/callback?x=1"),
        ("redirect_uri", "HTTP://127.0.0.1:8080/sign-in/callback"),
        ("redirect_uri", "https://evil.example"),
        ("redirect_uri", ""),
        ("client_id", "other"),
        ("client_id", ""),
    ] {
        let query = visit(&[changes]);
        let mut asked = Asked::new();
        for request in
            [Request::get(format!("/authorize?{query}")), Request::post(format!("/authorize?{query}"))]
        {
            let response = asked.send(request, "user=alice");
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{changes:?}");
            assert!(response.headers().get("location").is_none(), "{changes:?}");
        }
    }
}

#[test]
fn bad_input_a_parameter_that_stands_twice_gets_a_page() {
    let good = visit(&[]);
    for name in [
        "response_type",
        "client_id",
        "redirect_uri",
        "scope",
        "state",
        "nonce",
        "code_challenge",
        "prompt",
        "x",
    ] {
        let query = format!("{good}&{name}=a&%{:02x}{}=a", name.as_bytes()[0], &name[1..]);
        let response = Asked::new().get(&format!("/authorize?{query}"));
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{name}");
    }
    let twice = Asked::new().answer_page(&good, "user=alice&user=bob");
    assert_eq!(twice.get("error"), Some("invalid_request"));
}

#[test]
fn bad_input_a_visit_without_what_it_needs_goes_back_with_an_error() {
    let challenge_of_31_bytes = URL_SAFE_NO_PAD.encode([0; 31]);
    for (changes, error) in [
        ([("response_type", "token")], "unsupported_response_type"),
        ([("response_type", "")], "unsupported_response_type"),
        ([("response_mode", "fragment")], "invalid_request"),
        ([("scope", "profile")], "invalid_scope"),
        ([("scope", "")], "invalid_scope"),
        ([("code_challenge", "")], "invalid_request"),
        ([("code_challenge", "not+base64url")], "invalid_request"),
        ([("code_challenge", challenge_of_31_bytes.as_str())], "invalid_request"),
        ([("code_challenge_method", "")], "invalid_request"),
        ([("code_challenge_method", "plain")], "invalid_request"),
        ([("request", "a.b.c")], "request_not_supported"),
        ([("request_uri", "https://a")], "request_uri_not_supported"),
    ] {
        let form = Asked::new().answer_page(&visit(&changes), "user=alice");
        assert_eq!((form.get("error"), form.get("code")), (Some(error), None), "{changes:?}");
        assert_eq!((form.get("state"), form.get("iss")), (Some("a state&more"), Some(ISSUER)));
    }
}

#[test]
fn a_visit_that_must_show_no_page_goes_back_at_once() {
    let response = Asked::new().get(&format!("/authorize?{}", visit(&[("prompt", "none")])));
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert!(response.headers()["location"].to_str().unwrap().contains("error=login_required"));
}
