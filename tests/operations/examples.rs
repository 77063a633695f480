//! `config/examples`: a gateway starts with each of them, on addresses and files of the test's own, and does what the file
//! says of itself.

use std::fs;
use std::path::Path;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::harness::{
    Authority, Certificates, Child, Daemon, Folder, Redis, Reply, Request, SigningKey, TlsClient, Upstream,
    body, call, eventually, jwks, list, modern, now_s, with_key, write_secret,
};

const KEY: &str = "tl_0123456789abcdefghijklmnopqrstuvwxyz";
const KEY_OF_ALICE: &str = "tl_alice56789abcdefghijklmnopqrstuvwxyz";

/// An example with these parts replaced, each of which it must have.
fn example(name: &str, replaced: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples").join(name);
    let mut text = fs::read_to_string(path).expect("the example");
    for (from, to) in replaced {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    text
}

fn url_of(upstream: &Upstream) -> String {
    format!("http://{}/mcp", upstream.address)
}

fn digest_of(key: &str) -> String {
    Sha256::digest(key.as_bytes()).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// A call of this tool with these arguments.
fn call_with(tool: &str, arguments: &str) -> Request {
    let meta = crate::harness::META;
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{meta}}}"#);
    modern("tools/call", Some(tool), body("1", "tools/call", &params))
}

#[test]
fn minimal() {
    let upstream = Upstream::with_tools(&["echo"]);
    let text = example(
        "minimal.toml",
        &[("127.0.0.1:8080", "127.0.0.1:0"), ("http://127.0.0.1:9101/mcp", &url_of(&upstream))],
    );
    Daemon::start(&text).send(&call("1", "echo")).assert_ok();
}

#[test]
fn team() {
    let (upstream, child) = (Upstream::with_tools(&["echo"]), Child::new(&[]));
    let (authority, certificates) = (Authority::new(), Certificates::new());
    certificates.add("server", &authority.issue(&["localhost"]));
    let (chain, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    let text = example(
        "team.toml",
        &[
            ("0.0.0.0:8443", "127.0.0.1:0"),
            ("127.0.0.1:9090", "127.0.0.1:0"),
            ("/etc/trunkline/cert.pem", &chain.display().to_string()),
            ("/etc/trunkline/key.pem", &key.display().to_string()),
            ("http://10.0.0.11:9101/mcp", &url_of(&upstream)),
            (
                r#"command = ["npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/srv/files"]"#,
                &child.keys(""),
            ),
            ("ae56561dd02fb117cb5fd7c6bab4ffb1e09d40f5b19a0b75b2af07297e03aa20", &digest_of(KEY)),
        ],
    );
    let daemon = Daemon::start(&text);
    let ask = |request: &Request| {
        let mut connection = TlsClient::new(&authority).connect(daemon.address(), "localhost");
        connection.write(&request.bytes());
        connection.response()
    };
    ask(&with_key(call("1", "weather__echo"), KEY)).assert_ok();
    assert_eq!(ask(&call("1", "weather__echo")).status, 401);
    let names = eventually("the program is listed, too", || {
        let names = ask(&with_key(list("1", "tools/list"), KEY)).text();
        names.contains("files__").then_some(names)
    });
    assert!(names.contains("weather__echo"), "{names}");
}

#[test]
fn stdio() {
    let (files, github, folder) = (Child::new(&[]), Child::new(&[]), Folder::new());
    let token = folder.path().join("token");
    write_secret(&token, "swordfish");
    let text = example(
        "stdio.toml",
        &[
            ("127.0.0.1:8080", "127.0.0.1:0"),
            (
                r#"command = ["npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/srv/files"]"#,
                &files.keys(""),
            ),
            (r#"directory = "/srv/files""#, &format!("directory = \"{}\"", folder.path().display())),
            (r#"command = ["mcp-server-github"]"#, &github.keys("")),
            ("/etc/trunkline/github-token", &token.display().to_string()),
        ],
    );
    let daemon = Daemon::start(&text);
    eventually("both programs are listed", || {
        let names = daemon.send(&list("1", "tools/list")).text();
        (names.contains("files__") && names.contains("github__")).then_some(())
    });
}

#[test]
fn tokens() {
    let upstream = Upstream::taking_anything(|request| {
        if request.head.starts_with("POST /token ") {
            return Reply::json(
                "200 OK",
                r#"{"access_token":"of-the-gateway","token_type":"Bearer","expires_in":3600}"#,
            );
        }
        assert!(
            request.headers("authorization").iter().all(|shown| *shown == "Bearer of-the-gateway"),
            "{}",
            request.head
        );
        crate::harness::Offer::tools(&["echo"]).answer(request)
    });
    let folder = Folder::new();
    let (keys, secret) = (folder.path().join("jwks.json"), folder.path().join("secret"));
    let key = SigningKey::ec("e");
    fs::write(&keys, jwks(&[&key])).expect("written");
    write_secret(&secret, "swordfish");
    let text = example(
        "tokens.toml",
        &[
            ("127.0.0.1:8080", "127.0.0.1:0"),
            (
                r#"jwks_url = "https://login.example.com/.well-known/jwks.json""#,
                &format!("jwks_file = \"{}\"", keys.display()),
            ),
            ("https://crm.example.com/mcp", &url_of(&upstream)),
            ("https://login.example.com/token", &format!("http://{}/token", upstream.address)),
            ("/etc/trunkline/client-secret", &secret.display().to_string()),
        ],
    );
    let daemon = Daemon::start(&text);
    let ask = |scope: &str| {
        let claims = json!({
            "iss": "https://login.example.com", "aud": "https://mcp.example.com/mcp", "sub": "alice", "scope": scope,
            "iat": now_s(), "exp": now_s() + 3600,
        });
        let request = call("1", "echo").set("Host", "mcp.example.com");
        daemon.send(&with_key(request, &key.token(&claims)))
    };
    eventually("the upstream is known, and the gateway has a token", || {
        (ask("mcp:read").status == 200).then_some(())
    });
    assert_eq!(ask("mail").status, 403);
    let refused = daemon.send(&call("1", "echo").set("Host", "mcp.example.com"));
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").expect("where to get a token");
    assert!(
        challenge.contains("https://mcp.example.com/.well-known/oauth-protected-resource/mcp"),
        "{challenge}"
    );
}

#[test]
fn sign_in() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let (state, secret) = (folder.path().join("state"), folder.path().join("secret"));
    fs::create_dir(&state).expect("made");
    write_secret(&secret, "swordfish");
    let text = example(
        "sign-in.toml",
        &[
            ("/var/lib/trunkline", &state.display().to_string()),
            ("127.0.0.1:8080", "127.0.0.1:0"),
            // Nothing listens there: the provider is away.
            ("https://login.example.com", "http://127.0.0.1:1"),
            ("/etc/trunkline/provider-secret", &secret.display().to_string()),
            ("http://127.0.0.1:9101/mcp", &url_of(&upstream)),
            ("ae56561dd02fb117cb5fd7c6bab4ffb1e09d40f5b19a0b75b2af07297e03aa20", &digest_of(KEY)),
        ],
    );
    let daemon = Daemon::start(&text);
    let ask = |request: Request| daemon.send(&request.set("Host", "mcp.example.com"));
    ask(with_key(call("1", "echo"), KEY)).assert_ok();
    for wrong in ["tla_made-up", "tl_made-up", "a.b.c"] {
        assert_eq!(ask(with_key(call("1", "echo"), wrong)).status, 401, "{wrong}");
    }
    assert_eq!(ask(call("1", "echo")).status, 401);
}

#[test]
fn rules() {
    let upstream = Upstream::with_tools(&["get_status", "deploy", "delete_all"]);
    let text = example(
        "rules.toml",
        &[
            ("127.0.0.1:8080", "127.0.0.1:0"),
            ("http://127.0.0.1:9101/mcp", &url_of(&upstream)),
            ("ae56561dd02fb117cb5fd7c6bab4ffb1e09d40f5b19a0b75b2af07297e03aa20", &digest_of(KEY_OF_ALICE)),
            ("5f0b8c8a3e0e3d1f6c7a9b2d4e8f10213243546576879a0bbccddeeff0112233", &digest_of(KEY)),
        ],
    );
    let daemon = Daemon::start(&text);
    for (key, tool, arguments, expected) in [
        (KEY, "get_status", "{}", None),
        (KEY_OF_ALICE, "get_status", "{}", None),
        (KEY_OF_ALICE, "deploy", r#"{"environment":"staging"}"#, None),
        (KEY_OF_ALICE, "deploy", r#"{"environment":"production"}"#, Some(403)),
    ] {
        let response = daemon.send(&with_key(call_with(tool, arguments), key));
        let code = response.json()["error"]["code"].as_i64();
        assert_eq!((response.status, code), (200, expected), "{tool} {arguments}: {}", response.text());
    }
    for (key, tool) in [(KEY, "deploy"), (KEY_OF_ALICE, "delete_all")] {
        let response = daemon.send(&with_key(call_with(tool, r#"{"environment":"staging"}"#), key));
        assert!(response.text().contains("unknown tool"), "{tool}: {}", response.text());
    }
}

#[test]
fn replicas() {
    let (one, other) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let (redis, folder) = (Redis::start(), Folder::new());
    let key = folder.path().join("session.key");
    write_secret(&key, &"7".repeat(64));
    let section = redis.section("");
    let address = section.lines().find(|line| line.starts_with("redis = ")).expect("where it is");
    let text = example(
        "replicas.toml",
        &[
            ("127.0.0.1:9090", "127.0.0.1:0"),
            (r#"redis = "redis://10.0.0.30:6379""#, address),
            ("/etc/trunkline/session.key", &key.display().to_string()),
            ("http://10.0.0.11:9101/mcp", &url_of(&one)),
            ("http://10.0.0.12:9101/mcp", &url_of(&other)),
        ],
    );
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("made");
    let state = state.display().to_string();
    let daemon = Daemon::start_with(&text, &[("LISTEN", "127.0.0.1:0"), ("STATE_DIRECTORY", &state)]);
    daemon.send(&call("1", "echo")).assert_ok();
    eventually("it is connected", || {
        (daemon.find_metric("trunkline_shared_connected") == Some(1)).then_some(())
    });
}

#[test]
fn observability() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let text = example(
        "observability.toml",
        &[
            ("127.0.0.1:8080", "127.0.0.1:0"),
            ("127.0.0.1:9090", "127.0.0.1:0"),
            ("http://127.0.0.1:9101/mcp", &url_of(&upstream)),
            ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:1/v1/traces"),
            // The harness reads where the gateway listens from its standard error.
            ("file = \"/var/log/trunkline/trunkline.log\"\n", ""),
            ("/var/log/trunkline", &folder.path().display().to_string()),
            ("format = \"json\"\n", ""),
        ],
    );
    let daemon = Daemon::start(&text);
    daemon.send(&call("1", "echo")).assert_ok();
    let line = eventually("the access log has the call", || {
        let log = fs::read_to_string(folder.path().join("access.log")).ok()?;
        log.lines().find(|line| line.contains("echo")).map(str::to_owned)
    });
    assert!(line.contains("status=200") && line.contains("duration_ms="), "{line}");
    assert_eq!(daemon.get_admin("/metrics").status, 200);
}

#[test]
fn proxy() {
    let (weather, files) =
        (Upstream::with_tools(&["forecast"]), Upstream::with_tools(&["read", "delete_all"]));
    let text = example(
        "proxy.toml",
        &[
            ("0.0.0.0:8080", "127.0.0.1:0"),
            ("127.0.0.1:9090", "127.0.0.1:0"),
            (
                r#"urls = ["http://10.0.0.11:9101/mcp", "http://10.0.0.12:9101/mcp"]"#,
                &format!("url = \"{}\"", url_of(&weather)),
            ),
            ("http://10.0.0.20:9102/mcp", &url_of(&files)),
            ("ae56561dd02fb117cb5fd7c6bab4ffb1e09d40f5b19a0b75b2af07297e03aa20", &digest_of(KEY)),
            ("format = \"json\"", "format = \"text\""),
        ],
    );
    let daemon = Daemon::start(&text);
    let ask = |request: Request| daemon.send(&with_key(request.set("Host", "mcp.example.com"), KEY));
    ask(call("1", "wx__forecast")).assert_ok();
    ask(call("1", "today")).assert_ok();
    assert!(ask(call("1", "files__delete_all")).text().contains("unknown tool"));
    ask(call("1", "forecast").target("/mcp/weather")).assert_ok();
    assert_eq!(daemon.send(&with_key(call("1", "today"), KEY)).status, 403, "another host");
}
