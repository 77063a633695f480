//! Visits of browsers that are in order.

use super::*;

#[test]
fn the_page_has_a_button_for_each_user_and_runs_nothing() {
    let response = Asked::new().get(&format!("/authorize?{}", visit(&[("login_hint", "bob")])));
    assert_eq!(response.status(), StatusCode::OK);
    let policy = response.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("form-action"), "browsers apply it to the address that the form leads back to");
    let page = std::str::from_utf8(response.body()).unwrap();
    assert!(page.contains("value=\"alice\">") && page.contains("value=\"bob\" autofocus>"), "{page}");
    assert!(page.contains("prefers-color-scheme: dark") && !page.contains("<script"), "{page}");
    assert!(page.contains("You go on to http://127.0.0.1:8080."), "{page}");
}

#[test]
fn the_form_of_the_page_leads_back_with_code_state_and_issuer() {
    let mut asked = Asked::new();
    let page = asked.get(&format!("/authorize?{}&x=%22%3E", visit(&[("prompt", "consent")])));
    let page = String::from_utf8(page.body().to_vec()).unwrap();
    let action = page.split("action=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let form = asked.answer_page(action.strip_prefix("/authorize?").unwrap(), "user=alice");
    assert_eq!(form.get("code").map(str::len), Some(32));
    assert_eq!((form.get("state"), form.get("iss")), (Some("a state&more"), Some(ISSUER)));
    assert_eq!(form.get("error"), None);
}

#[test]
fn a_registered_address_keeps_its_own_query() {
    let registered = visit(&[("redirect_uri", "https://mcp.example.com/back?a=b"), ("state", "")]);
    let response = Asked::new().send(Request::post(format!("/authorize?{registered}")), "user=bob");
    let location = response.headers()["location"].to_str().unwrap();
    assert!(location.starts_with("https://mcp.example.com/back?a=b&code="), "{location}");
    assert!(!location.contains("state="), "{location}");
}

#[test]
fn a_user_who_cancels_goes_back_with_an_error() {
    for answer in ["cancel=yes", "", "user=", "user=mallory"] {
        let form = Asked::new().answer_page(&visit(&[]), answer);
        assert_eq!((form.get("error"), form.get("code")), (Some("access_denied"), None), "{answer}");
        assert_eq!(form.get("state"), Some("a state&more"));
    }
}

#[test]
fn the_metadata_name_endpoints_below_the_issuer() {
    let mut asked = Asked::new();
    let response = asked.get("/.well-known/openid-configuration");
    let metadata: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(metadata["issuer"], ISSUER);
    for name in
        ["authorization_endpoint", "token_endpoint", "userinfo_endpoint", "revocation_endpoint", "jwks_uri"]
    {
        let path = text(&metadata, name).strip_prefix(ISSUER).unwrap().to_owned();
        assert_ne!(asked.get(&path).status(), StatusCode::NOT_FOUND, "{name}");
    }
    assert_eq!(metadata["code_challenge_methods_supported"], serde_json::json!(["S256"]));
    assert_eq!(asked.get("/").status(), StatusCode::NOT_FOUND);
    assert_eq!(asked.send(Request::delete("/token"), "").status(), StatusCode::METHOD_NOT_ALLOWED);
}
