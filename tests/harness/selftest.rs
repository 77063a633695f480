//! The harness against itself: the client and the scripted upstream must understand each other, or no failure of a
//! test means anything.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Broken, Connection, Gate, LEGACY_VERSION, Legacy, Offer, PROVIDER_CLIENT, PROVIDER_SECRET, Provider,
    Reply, Upstream, call, in_session, initialize, legacy, list, literal, open_session, post,
};

#[test]
fn client_and_upstream_agree_on_bytes() {
    let upstream = Upstream::offering(Offer::tools(&["echo"]));
    let mut connection = Connection::open(upstream.address);
    for id in ["7", "\"seven\""] {
        let request = call(id, "echo").with("X-Spelling", "as it is");
        connection.write(&request.bytes());
        let response = connection.response();
        response.assert_ok();
        assert_eq!(literal(&response.body, &["id"]), id);
        assert_eq!(literal(&response.body, &["result", "content", "0", "text"]), "\"done\"");
        let received = upstream.received().pop().unwrap();
        assert_eq!(received.head.into_bytes(), request.head());
        assert_eq!(received.body, request.body);
        assert_eq!(received.connection, 0);
    }
    connection.write(&list("1", "tools/list").bytes());
    assert_eq!(connection.response().json()["result"]["tools"][0]["name"], "echo");
    assert_eq!((upstream.received().len(), upstream.forwarded().len()), (3, 3));
    drop(connection);
    upstream.wait_closed(0);
}

#[test]
fn events_arrive_one_by_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |_| {
        Reply::stream().event("1").wait(&held).chunk("data: ").chunk("2\n\n").end()
    });
    let mut connection = Connection::open(upstream.address);
    connection.write(&call("1", "echo").bytes());
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    assert_eq!(connection.event().as_deref(), Some("data: 1\n\n"));
    gate.open();
    assert_eq!(connection.event().as_deref(), Some("data: 2\n\n"));
    assert_eq!(connection.event(), None);
}

#[test]
fn broken_replies_are_seen_as_such() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let cases = [
        (Reply::raw(half).finish(), "Truncated"),
        (Reply::default().finish(), "Closed"),
        (Reply::default().reset(), "Closed"),
        (Reply::raw("SSH-2.0-x\r\n\r\n"), "Nonsense"),
    ];
    for (reply, expected) in cases {
        let upstream = Upstream::calling(move |_| reply.clone());
        let mut connection = Connection::open(upstream.address);
        connection.write(&call("1", "echo").bytes());
        let broken = connection.try_response().unwrap_err();
        let name = match broken {
            Broken::Closed => "Closed",
            Broken::Truncated(_) => "Truncated",
            Broken::Silent => "Silent",
            Broken::Nonsense(_) => "Nonsense",
        };
        assert_eq!(name, expected);
    }
}

#[test]
fn a_legacy_server_keeps_sessions() {
    let server = Legacy::new(Offer::tools(&["echo"])).version("2025-06-18");
    let upstream = server.start();
    let (session, result) = open_session(upstream.address, LEGACY_VERSION);
    assert_eq!(result["protocolVersion"], "2025-06-18");
    let mut connection = Connection::open(upstream.address);
    let mut ask = |request: super::Request| {
        connection.write(&request.bytes());
        connection.response()
    };
    let tools = legacy("1", "tools/list", "{}");
    let listed = ask(in_session(&session, tools.clone()));
    listed.assert_ok();
    assert_eq!(listed.text().matches("ttlMs").count() + listed.text().matches("resultType").count(), 0);
    assert_eq!(ask(tools.clone()).status, 400);
    assert_eq!(ask(in_session("forged", tools.clone())).status, 404);
    assert_eq!(ask(list("1", "server/discover")).status, 400);
    let end = legacy("1", "-", "{}").method("DELETE").body("").without("content-type");
    assert_eq!(ask(in_session(&session, end)).status, 200);
    assert_eq!((server.open_sessions().len(), server.sessions_opened()), (0, 1));
    let (session, _) = open_session(upstream.address, LEGACY_VERSION);
    server.forget_sessions();
    assert_eq!(ask(in_session(&session, tools)).status, 404);
    assert_eq!(upstream.received_of("DELETE").len(), 1);
}

#[test]
fn a_legacy_server_may_do_without_sessions_and_speak_both_eras() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).and_modern().without_sessions().start();
    let mut connection = Connection::open(upstream.address);
    for request in [initialize("1", LEGACY_VERSION), legacy("2", "tools/list", "{}"), list("3", "tools/list")]
    {
        connection.write(&request.bytes());
        let response = connection.response();
        response.assert_ok();
        assert_eq!(response.header("mcp-session-id"), None);
    }
}

#[test]
fn a_client_of_the_provider_walks_from_discovery_to_refresh() {
    let provider = Provider::start(&["https://mcp.example/callback"]);
    let get = |target: &str| post("").method("GET").target(target);
    let metadata = provider.ask(get("/.well-known/openid-configuration")).json();
    assert_eq!(metadata["issuer"], provider.issuer());
    let path = |name: &str| {
        let url = metadata[name].as_str().expect("an endpoint");
        url.strip_prefix(&provider.issuer()).expect("an endpoint below the issuer").to_owned()
    };

    let verifier = "v".repeat(43);
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let visit = format!(
        "{}{}?response_type=code&client_id={PROVIDER_CLIENT}&redirect_uri=https%3A%2F%2Fmcp.example%2Fcallback\
         &scope=openid+offline_access&state=s&nonce=n&code_challenge={challenge}&code_challenge_method=S256",
        provider.issuer(),
        path("authorization_endpoint")
    );
    let back = provider.sign_in(&visit, "alice");
    let code = back.strip_prefix("https://mcp.example/callback?code=").expect("a code");
    let code = code.split('&').next().expect("a code");

    let secret = PROVIDER_SECRET.replace(' ', "+");
    let proof = format!("client_id={PROVIDER_CLIENT}&client_secret={secret}");
    let token = |form: &str| -> Value {
        let request = post(format!("{proof}&{form}")).target(&path("token_endpoint"));
        provider.ask(request.set("Content-Type", "application/x-www-form-urlencoded")).json()
    };
    let exchange = format!(
        "grant_type=authorization_code&code={code}&code_verifier={verifier}\
         &redirect_uri=https%3A%2F%2Fmcp.example%2Fcallback"
    );
    let tokens = token(&exchange);
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().expect("a token"));
    let userinfo = provider.ask(get(&path("userinfo_endpoint")).with("Authorization", bearer)).json();
    assert_eq!((&userinfo["sub"], &userinfo["groups"]), (&json!("alice"), &json!(["staff", "ops"])));

    let refresh = |tokens: &Value| {
        let shown = tokens["refresh_token"].as_str().expect("a refresh token");
        token(&format!("grant_type=refresh_token&refresh_token={shown}"))
    };
    let next = refresh(&tokens);
    provider.faults(&json!({ "removed": ["alice"] }));
    assert_eq!(refresh(&next)["error"], "invalid_grant");
    assert_eq!(provider.requests("/token"), 3);
}
