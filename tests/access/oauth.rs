//! What a client without a token finds: challenges, and the metadata that lead to an authorization server.

use serde_json::json;

use crate::harness::{
    Config, Daemon, Folder, ISSUER, LEGACY_VERSION, Legacy, Offer, RESOURCE, Request, SigningKey, Upstream,
    api_key, call, claims, eventually, in_session, initialize, jwks, jwt, legacy, now_s,
};

const KEY: &str = "tl_0123456789abcdefghijklmnopqrstuvwxyz";

struct Place {
    _upstream: Upstream,
    _folder: Folder,
    key: SigningKey,
    daemon: Daemon,
}

/// `/mcp` takes tokens, `/keys` only keys, `/` both.
fn place(lines: &str) -> Place {
    place_with(lines, "")
}

fn place_with(lines: &str, rules: &str) -> Place {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let key = SigningKey::ec("e");
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, jwks(&[&key])).expect("the keys can be written");
    let config = Config::transparent(&upstream)
        .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]\n{lines}"))
        .section(&jwt(&format!("jwks_file = \"{}\"\nleeway = \"0s\"", path.display())))
        .section(&api_key("ci", KEY))
        .section(rules)
        .section("[[endpoint]]\npath = \"/keys\"\nupstreams = [\"up\"]\nauth = [\"api_key\"]")
        .section(
            "[[endpoint]]\npath = \"/\"\nupstreams = [\"up\"]\npublic_url = \"https://root.example\"\n\
             hosts = [\"localhost\"]",
        );
    let daemon = Daemon::start(&config);
    Place { _upstream: upstream, _folder: folder, key, daemon }
}

fn get(target: &str) -> Request {
    call("1", "echo").method("GET").target(target).body("").without("content-type").without("accept")
}

fn with(request: Request, token: &str) -> Request {
    request.set("Authorization", format!("Bearer {token}"))
}

#[test]
fn metadata_lead_to_the_authorization_server() {
    let place = place("scopes = [\"mcp:read\", \"mcp:list\"]");
    let daemon = &place.daemon;
    let well_known = "/.well-known/oauth-protected-resource";
    let response = daemon.send(&get(&format!("{well_known}/mcp")).set("Host", "anything.example"));
    assert_eq!(response.status, 200);
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    assert!(response.header("content-type").unwrap().starts_with("application/json"));
    assert_eq!(
        response.json(),
        json!({
            "resource": RESOURCE,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["mcp:read", "mcp:list"],
            "bearer_methods_supported": ["header"],
            "resource_name": "MCP endpoint /mcp",
        })
    );
    let root = daemon.send(&get(well_known));
    assert_eq!(root.json()["resource"], "https://root.example", "the root form is for the endpoint at /");
    for path in [format!("{well_known}/keys"), format!("{well_known}/other"), format!("{well_known}/mcp/x")] {
        assert_eq!(daemon.send(&get(&path)).status, 404, "{path}");
    }
    let origin = get(&format!("{well_known}/mcp")).with("Origin", "https://evil.example");
    assert_eq!(daemon.send(&origin).status, 200, "open to every page");
    let preflight = origin.clone().method("OPTIONS").with("Access-Control-Request-Method", "GET");
    let response = daemon.send(&preflight);
    let allowed = response.header("access-control-allow-origin");
    assert_eq!((response.status, allowed), (204, Some("https://evil.example")));
    let post = call("1", "echo").target(&format!("{well_known}/mcp"));
    assert_eq!(daemon.send(&post).status, 405);
    let mut connection = daemon.connect();
    connection.write(&get(&format!("{well_known}/mcp")).method("HEAD").bytes());
    let head = connection.head();
    assert_eq!(head.status, 200);
    assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 100);
}

#[test]
fn a_challenge_names_the_metadata_of_its_endpoint() {
    let place = place("scopes = [\"mcp:read\"]");
    let daemon = &place.daemon;
    let metadata = "resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource/mcp\"";
    let challenge = |request: &Request, status| {
        // The host that a client names is never believed.
        let response = daemon.send(request);
        assert_eq!(response.status, status, "{}", response.text());
        response.header("www-authenticate").unwrap_or_default().to_owned()
    };
    let none = challenge(&call("1", "echo"), 401);
    assert_eq!(none, format!("Bearer {metadata}, scope=\"mcp:read\""));
    let wrong = challenge(&with(call("1", "echo"), "a.b.c"), 401);
    assert_eq!(
        wrong,
        format!(
            "Bearer error=\"invalid_token\", error_description=\"the credentials are not valid\", {metadata}, \
             scope=\"mcp:read\""
        )
    );
    let narrow = place.key.token(&claims("ann", &json!({ "scope": "mcp:write" })));
    let more = challenge(&with(call("1", "echo"), &narrow), 403);
    assert!(
        more.starts_with("Bearer error=\"insufficient_scope\", scope=\"mcp:read\"")
            && more.contains(metadata),
        "{more}"
    );
    assert_eq!(challenge(&with(call("1", "echo"), KEY), 403), "", "no scope comes to a key for the asking");
    let keys = challenge(&call("1", "echo").target("/keys"), 401);
    assert_eq!(keys, "Bearer", "there is nothing to find for keys");
    let root = challenge(&call("1", "echo").target("/"), 401);
    assert_eq!(
        root,
        "Bearer resource_metadata=\"https://root.example/.well-known/oauth-protected-resource\""
    );
    for scope in [json!("mcp:read"), json!("a mcp:read b"), json!(["mcp:read"])] {
        let token = place.key.token(&claims("ann", &json!({ "scope": scope })));
        daemon.send(&with(call("1", "echo"), &token)).assert_ok();
    }
}

#[test]
fn a_scope_that_would_help_is_named_with_those_of_the_endpoint() {
    let rule = "[[rule]]\nname = \"writers\"\neffect = \"allow\"\nscopes = [\"mcp:write\", \"mcp:read\"]\ntools = [\"echo\"]";
    let place = place_with("scopes = [\"mcp:list\"]", rule);
    let token = place.key.token(&claims("ann", &json!({ "scope": "mcp:list" })));
    let refused = place.daemon.send(&with(call("1", "echo"), &token));
    assert_eq!(refused.status, 403, "{}", refused.text());
    let challenge = refused.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains("scope=\"mcp:list mcp:write mcp:read\""), "{challenge}");
}

#[test]
fn a_session_is_of_one_principal() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = Upstream::start(move |request| server.answer(request));
    let folder = Folder::new();
    let key = SigningKey::ec("e");
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, jwks(&[&key])).expect("the keys can be written");
    let config = Config::new()
        .upstream("up", upstream.address, "eras = [\"legacy\"]")
        .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]"))
        .section(&jwt(&format!("jwks_file = \"{}\"", path.display())))
        .section(&api_key("ann", KEY));
    let daemon = Daemon::start(&config);
    let token = |subject: &str| key.token(&claims(subject, &json!({})));
    let opened = daemon.send(&with(initialize("1", LEGACY_VERSION), &token("ann")));
    assert_eq!(opened.status, 200, "{}", opened.text());
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    let ping = |credential: &str| {
        let request = in_session(&session, legacy("2", "ping", "{}"));
        daemon.send(&with(request, credential)).status
    };
    assert_eq!(ping(&token("ann")), 200);
    let later = key.token(&claims("ann", &json!({ "exp": now_s() + 7200 })));
    assert_eq!(ping(&later), 200, "another token of the same principal");
    assert_eq!(ping(&token("bob")), 404);
    assert_eq!(ping(&token("Ann")), 404);
    assert_eq!(ping(KEY), 404, "a key of the same name");
}

#[test]
fn a_stream_ends_with_its_token() {
    let place = place("");
    let daemon = &place.daemon;
    let token = place.key.token(&claims("ann", &json!({ "exp": now_s() + 2 })));
    let listen = crate::harness::modern(
        "subscriptions/listen",
        None,
        crate::harness::body(
            "1",
            "subscriptions/listen",
            &format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{}}}"#, crate::harness::META),
        ),
    );
    let mut connection = daemon.connect();
    connection.write(&with(listen, &token).bytes());
    let head = connection.head();
    assert_eq!(head.status, 200);
    assert!(connection.event().is_some(), "the acknowledgement");
    eventually("the stream ends", || connection.event().is_none().then_some(()));
    assert_eq!(daemon.send(&with(call("2", "echo"), &token)).status, 401);
}
