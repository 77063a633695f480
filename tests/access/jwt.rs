//! Tokens (JWT): which pass, which do not, and where the keys that decide come from.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use crate::harness::{
    Config, Daemon, Folder, ISSUER, RESOURCE, Reply, Request, SigningKey, Upstream, api_key, call, claims,
    eventually, jwks, jwt, now_s, sign, trunkline, write_secret,
};

const KEY: &str = "tl_0123456789abcdefghijklmnopqrstuvwxyz";

fn bearer(credential: &str) -> Request {
    call("7", "echo").with("Authorization", format!("Bearer {credential}"))
}

fn status(daemon: &Daemon, credential: &str) -> u16 {
    daemon.send(&bearer(credential)).status
}

/// An endpoint for tokens whose keys are in a file.
fn with_file(upstream: &Upstream, folder: &Folder, keys: &[&SigningKey], lines: &str) -> Config {
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, jwks(keys)).expect("the keys can be written");
    Config::transparent(upstream)
        .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]"))
        .section(&jwt(&format!("jwks_file = \"{}\"\n{lines}", path.display())))
}

/// An issuer that serves its keys, counts how often, and can be stopped.
struct Served {
    server: Upstream,
    document: Arc<Mutex<String>>,
    is_down: Arc<AtomicBool>,
}

impl Served {
    fn new(keys: &[&SigningKey]) -> Self {
        let document = Arc::new(Mutex::new(jwks(keys)));
        let is_down = Arc::new(AtomicBool::new(false));
        let (shown, down) = (Arc::clone(&document), Arc::clone(&is_down));
        let server = Upstream::start(move |_| {
            if down.load(Ordering::SeqCst) {
                return Reply::json("503 Service Unavailable", "{}");
            }
            Reply::json("200 OK", &shown.lock().unwrap())
        });
        Self { server, document, is_down }
    }

    fn rotate(&self, keys: &[&SigningKey]) {
        *self.document.lock().unwrap() = jwks(keys);
    }

    fn config(&self, upstream: &Upstream, lines: &str) -> Config {
        let url = format!("jwks_url = \"http://{}/keys\"\n{lines}", self.server.address);
        Config::transparent(upstream)
            .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]"))
            .section(&jwt(&url))
            .admin()
    }

    fn fetches(&self) -> usize {
        self.server.received().len()
    }
}

#[test]
fn tokens_of_every_kind_of_key_pass() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (rsa, ec, ed) = (SigningKey::rsa("r"), SigningKey::ec("e"), SigningKey::ed("d"));
    let daemon = Daemon::start(&with_file(&upstream, &folder, &[&rsa, &ec, &ed], ""));
    for key in [&rsa, &ec, &ed] {
        let token = key.token(&claims("ann", &json!({})));
        daemon.send(&bearer(&token)).assert_ok();
        let mut connection = daemon.connect();
        for _ in 0..3 {
            connection.write(&bearer(&token).bytes());
            connection.response().assert_ok();
        }
    }
    for request in upstream.received() {
        assert!(request.headers("authorization").is_empty(), "{}", request.head);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each attack")]
fn nothing_that_an_attacker_writes_passes() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (rsa, ec) = (SigningKey::rsa("r"), SigningKey::ec("e"));
    let config = with_file(&upstream, &folder, &[&rsa, &ec], "").section("[log]\nlevel = \"trace\"").admin();
    let daemon = Daemon::start(&config);
    let good = claims("ann", &json!({}));
    let text = good.to_string();
    let with = |changes: Value| rsa.token(&claims("ann", &changes));
    let header = |changes: Value| {
        let mut header = rsa.header();
        for (name, value) in changes.as_object().unwrap() {
            header[name] = value.clone();
        }
        header.to_string()
    };
    let unsigned = |alg: &str| {
        let header = json!({ "alg": alg, "typ": "JWT", "kid": "r" }).to_string();
        format!("{}.{}.", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(&text))
    };
    let by_secret = |secret: &[u8], alg: &str| {
        let header = json!({ "alg": alg, "typ": "JWT", "kid": "r" }).to_string();
        sign(&EncodingKey::from_secret(secret), Algorithm::HS256, &header, &text)
    };
    let stranger = SigningKey::rsa("r");
    let token = rsa.token(&good);
    let signature_at = token.rfind('.').unwrap() + 1;
    let (signed, signature) = token.split_at(signature_at);
    let embedded = header(json!({ "jwk": stranger.jwk(), "kid": "r" }));
    let far = header(json!({ "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/c" }));
    let n = rsa.jwk()["n"].as_str().unwrap().to_owned();
    let refused = [
        ("alg none", unsigned("none"), "algorithm"),
        ("alg None", unsigned("None"), "algorithm"),
        ("no signature", signed.to_owned(), "signature"),
        (
            "HS256 with the modulus as secret",
            by_secret(&URL_SAFE_NO_PAD.decode(&n).unwrap(), "HS256"),
            "algorithm",
        ),
        ("HS256 with the text of the key as secret", by_secret(n.as_bytes(), "HS256"), "algorithm"),
        ("a secret's signature said to be RSA's", by_secret(n.as_bytes(), "RS256"), "signature"),
        (
            "signed by ES256, said to be by the RSA key",
            ec.sign(&header(json!({ "alg": "ES256" })), &text),
            "algorithm",
        ),
        (
            "signed by RSA, said to be by the EC key",
            rsa.sign(&header(json!({ "kid": "e" })), &text),
            "algorithm",
        ),
        (
            "RS384 said to be RS256",
            rsa.sign_by(Algorithm::RS384, &rsa.header().to_string(), &text),
            "signature",
        ),
        ("another's key under this id", stranger.token(&good), "signature"),
        ("an embedded key", stranger.sign(&embedded, &text), "signature"),
        ("the address of other keys", stranger.sign(&far, &text), "signature"),
        ("an unknown key", rsa.sign(&header(json!({ "kid": "x" })), &text), "unknown_key"),
        ("a key id like a path", rsa.sign(&header(json!({ "kid": "../r" })), &text), "unknown_key"),
        ("no key id among several keys", rsa.sign(r#"{"alg":"ES256"}"#, &text), "signature"),
        ("another audience", with(json!({ "aud": "https://mcp.example/other" })), "audience"),
        ("a longer audience", with(json!({ "aud": format!("{RESOURCE}/x") })), "audience"),
        ("no audience", with(json!({ "aud": null })), "audience"),
        ("another issuer", with(json!({ "iss": "https://evil.example" })), "issuer"),
        ("no issuer", with(json!({ "iss": null })), "issuer"),
        ("several issuers", with(json!({ "iss": ["https://issuer.example"] })), "issuer"),
        ("expired", with(json!({ "exp": now_s() - 40 })), "expired"),
        ("without an end", with(json!({ "exp": null })), "expired"),
        ("an end in words", with(json!({ "exp": "2999-01-01" })), "expired"),
        ("not before later", with(json!({ "nbf": now_s() + 60 })), "not_yet"),
        ("issued later", with(json!({ "iat": now_s() + 60 })), "not_yet"),
        ("nobody", with(json!({ "sub": null })), "claims"),
        ("bound to a key", with(json!({ "cnf": { "jkt": "x" } })), "claims"),
        ("of another type", rsa.sign(&header(json!({ "typ": "logout+jwt" })), &text), "token_form"),
        ("critical extensions", rsa.sign(&header(json!({ "crit": ["exp"] })), &text), "token_form"),
        (
            "a claim twice",
            rsa.sign(&rsa.header().to_string(), &text.replacen('{', r#"{"sub":"bob","#, 1)),
            "token_form",
        ),
        ("alg twice", rsa.sign(r#"{"alg":"none","alg":"RS256","kid":"r"}"#, &text), "token_form"),
        (
            "claims changed",
            token.replace(signed, &format!("{}.", with(json!({ "sub": "bob" })).rsplit_once('.').unwrap().0)),
            "signature",
        ),
        (
            "a signature of another length",
            format!("{signed}{}", &signature[..signature.len() - 4]),
            "signature",
        ),
        ("padded", format!("{token}="), "signature"),
        ("not base64", format!("!{token}"), "token_form"),
        ("base64 of the other alphabet", format!("{}+{}", &signed[..20], &token[21..]), "token_form"),
        ("empty parts", "..".into(), "token_form"),
        ("four parts", format!("{token}.x"), "kind"),
        ("two parts", "e30.e30".into(), "kind"),
        ("huge", with(json!({ "pad": "x".repeat(16 * 1024) })), "token_size"),
        ("deep", rsa.sign(&rsa.header().to_string(), &"[".repeat(4000)), "token_form"),
        ("a key, where none are taken", KEY.into(), "kind"),
    ];
    for (what, credential, reason) in refused {
        println!("{what}");
        let series = format!("trunkline_credentials_refused_total{{reason=\"{reason}\"}}");
        let before = daemon.metric(&series);
        let response = daemon.send(&bearer(&credential));
        assert_eq!(response.status, 401, "{what}: {}", response.text());
        let challenge = response.header("www-authenticate").expect("a challenge");
        assert!(challenge.contains("error=\"invalid_token\""), "{what}: {challenge}");
        let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message, "the credentials are not valid", "{what}");
        assert_eq!(daemon.metric(&series), before + 1, "{what} counts as {reason}");
    }
    for (what, request) in [
        ("twice", bearer(&token).with("Authorization", format!("Bearer {token}"))),
        ("two in one", call("7", "echo").with("Authorization", format!("Bearer {token}, Bearer {token}"))),
        ("another scheme", call("7", "echo").with("Authorization", format!("DPoP {token}"))),
        ("nothing", call("7", "echo")),
        ("in the query", call("7", "echo").target(&format!("/mcp?access_token={token}"))),
    ] {
        assert_eq!(daemon.send(&request).status, 401, "{what}");
    }
    assert_eq!(upstream.forwarded().len(), 0, "none of it went on");
    daemon.send(&bearer(&token)).assert_ok();
    for line in daemon.log() {
        assert!(!line.contains(signature), "a token is in the log: {line}");
    }
}

#[test]
fn only_the_configured_algorithms_count() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (rsa, ec) = (SigningKey::rsa("r"), SigningKey::ec("e"));
    let daemon = Daemon::start(&with_file(&upstream, &folder, &[&rsa, &ec], "algorithms = [\"ES256\"]"));
    assert_eq!(status(&daemon, &rsa.token(&claims("ann", &json!({})))), 401);
    assert_eq!(status(&daemon, &ec.token(&claims("ann", &json!({})))), 200);
}

#[test]
fn keys_and_tokens_at_one_endpoint() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let ec = SigningKey::ec("e");
    let config = with_file(&upstream, &folder, &[&ec], "").section(&api_key("ci", KEY));
    let daemon = Daemon::start(&config);
    let token = ec.token(&claims("ci", &json!({})));
    for (what, credential, expected) in [
        ("a key", KEY, 200),
        ("a token", token.as_str(), 200),
        ("part of a key", &KEY[..KEY.len() - 1], 401),
        ("a key in capitals", &KEY.to_uppercase(), 401),
        ("a key and more", &format!("{KEY}.a.b"), 401),
        ("a token and more", &format!("{token}x"), 401),
        ("a token with a key's prefix", &format!("tl_{token}"), 401),
    ] {
        assert_eq!(status(&daemon, credential), expected, "{what}");
    }
    // On one connection they do not mix.
    let mut connection = daemon.connect();
    for (credential, expected) in [(KEY, 200), (&token[..], 200), ("tl_x", 401), (KEY, 200), (&KEY[1..], 401)]
    {
        connection.write(&bearer(credential).bytes());
        assert_eq!(connection.response().status, expected, "{credential}");
    }
}

#[test]
fn a_token_for_one_endpoint_is_refused_at_another() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let ec = SigningKey::ec("e");
    let second = "[[endpoint]]\npath = \"/second\"\nupstreams = [\"up\"]\n\
                  public_url = \"https://mcp.example/second\"\nhosts = [\"localhost\"]\n";
    let listing = "[[endpoint]]\npath = \"/third\"\nupstreams = [\"up\"]\npublic_url = \"https://mcp.example/third\"\n\
                   hosts = [\"localhost\"]\naudiences = [\"https://mcp.example/mcp\"]\n";
    let config = with_file(&upstream, &folder, &[&ec], "audiences = [\"api://everywhere\"]")
        .section(second)
        .section(listing);
    let daemon = Daemon::start(&config);
    for (audience, expected) in [
        (json!(RESOURCE), [200, 401, 200]),
        (json!("https://mcp.example/second"), [401, 200, 401]),
        (json!("api://everywhere"), [200, 200, 200]),
        (json!(["x", RESOURCE]), [200, 401, 200]),
        (json!([]), [401, 401, 401]),
    ] {
        let token = ec.token(&claims("ann", &json!({ "aud": audience })));
        let mut connection = daemon.connect();
        for (path, expected) in ["/mcp", "/second", "/third"].into_iter().zip(expected) {
            // Whatever was let in before on the same connection.
            connection.write(&bearer(&token).target(path).bytes());
            assert_eq!(connection.response().status, expected, "{audience} at {path}");
        }
    }
}

#[test]
fn a_token_that_ends_is_refused_on_an_open_connection() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let ec = SigningKey::ec("e");
    let daemon = Daemon::start(&with_file(&upstream, &folder, &[&ec], "leeway = \"0s\""));
    let token = ec.token(&claims("ann", &json!({ "exp": now_s() + 2 })));
    let mut connection = daemon.connect();
    let mut passed = 0;
    eventually("the token ends", || {
        connection.write(&bearer(&token).bytes());
        let response = connection.response();
        passed += usize::from(response.status == 200);
        (response.status == 401).then_some(())
    });
    assert!(passed > 0, "it was valid before");
    assert_eq!(status(&daemon, &token), 401);
}

#[test]
fn keys_are_found_by_the_metadata_of_the_issuer_if_they_are_its_own() {
    let upstream = Upstream::with_tools(&["echo"]);
    let key = SigningKey::ec("e");
    let keys = jwks(&[&key]);
    let issuer = Upstream::start(move |request| {
        let host = request.headers("host")[0];
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        if path == "/keys" {
            return Reply::json("200 OK", &keys);
        }
        assert!(path.ends_with("/.well-known/openid-configuration"), "{path}");
        // At any path the same: it is not the issuer that has another.
        let metadata =
            json!({ "issuer": format!("http://{host}"), "jwks_uri": format!("http://{host}/keys") });
        Reply::json("200 OK", &metadata.to_string())
    });
    for (path, expected) in [("", 200), ("/impostor", 503)] {
        let name = format!("http://{}{path}", issuer.address);
        let config = Config::transparent(&upstream)
            .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]"))
            .section(&jwt("").replace(ISSUER, &name));
        let daemon = Daemon::start(&config);
        let token = key.token(&claims("ann", &json!({ "iss": name })));
        assert_eq!(status(&daemon, &token), expected, "{name}");
    }
}

#[test]
fn keys_are_fetched_and_rotated() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (old, new) = (SigningKey::ec("old"), SigningKey::ec("new"));
    let issuer = Served::new(&[&old]);
    let daemon = Daemon::start(&issuer.config(&upstream, ""));
    let (by_old, by_new) = (old.token(&claims("ann", &json!({}))), new.token(&claims("ann", &json!({}))));
    let mut connection = daemon.connect();
    let mut send = |token: &str| {
        connection.write(&bearer(token).bytes());
        connection.response().status
    };
    assert_eq!(send(&by_old), 200, "the call waits for the first fetch");
    issuer.rotate(&[&old, &new]);
    assert_eq!(send(&by_new), 200, "an unknown key is asked for");
    assert_eq!(send(&by_old), 200);
    assert_eq!(issuer.fetches(), 2);
    assert_eq!(daemon.metric("trunkline_jwks_keys{issuer=\"test\"}"), 2);
}

#[test]
fn a_removed_key_is_void_on_an_open_connection() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (old, new) = (SigningKey::ec("old"), SigningKey::ec("new"));
    let config = with_file(&upstream, &folder, &[&old], "");
    let daemon = Daemon::start(&config);
    let by_old = old.token(&claims("ann", &json!({})));
    let mut connection = daemon.connect();
    connection.write(&bearer(&by_old).bytes());
    connection.response().assert_ok();
    let from = daemon.log().len();
    daemon.reload(&with_file(&upstream, &folder, &[&new], ""));
    daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
    connection.write(&bearer(&by_old).bytes());
    assert_eq!(connection.response().status, 401);
    connection.write(&bearer(&new.token(&claims("ann", &json!({})))).bytes());
    connection.response().assert_ok();
}

#[test]
fn a_file_without_keys_is_not_taken() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let ec = SigningKey::ec("e");
    let config = with_file(&upstream, &folder, &[&ec], "");
    let daemon = Daemon::start(&config);
    let from = daemon.log().len();
    daemon.reload(&with_file(&upstream, &folder, &[], ""));
    daemon.wait_for_log(from, "an error", |line| line.contains("not reloaded") && line.contains("jwks.json"));
    assert_eq!(status(&daemon, &ec.token(&claims("ann", &json!({})))), 200, "the old keys stay");
}

#[test]
fn a_flood_of_unknown_keys_fetches_once_and_harms_nobody() {
    let upstream = Upstream::with_tools(&["echo"]);
    let ec = SigningKey::ec("e");
    let issuer = Served::new(&[&ec]);
    let daemon = Daemon::start(&issuer.config(&upstream, ""));
    let good = ec.token(&claims("ann", &json!({})));
    assert_eq!(status(&daemon, &good), 200);
    let mut connection = daemon.connect();
    for number in 0..300 {
        let header = json!({ "alg": "ES256", "kid": format!("k{number}") }).to_string();
        let bad = ec.sign(&header, &claims("ann", &json!({})).to_string());
        connection.write(&bearer(&bad).bytes());
        assert_eq!(connection.response().status, 401);
        if number % 50 == 0 {
            assert_eq!(status(&daemon, &good), 200);
        }
    }
    assert!(issuer.fetches() <= 3, "{} fetches", issuer.fetches());
    assert_eq!(daemon.metric("trunkline_credentials_refused_total{reason=\"unknown_key\"}"), 300);
}

#[test]
fn an_issuer_that_is_down_costs_nobody_whose_key_is_known() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (ec, new) = (SigningKey::ec("e"), SigningKey::ec("new"));
    let issuer = Served::new(&[&ec]);
    let config = issuer.config(&upstream, "").section(&api_key("ci", KEY));
    let daemon = Daemon::start(&config);
    assert_eq!(status(&daemon, &ec.token(&claims("ann", &json!({})))), 200);
    issuer.is_down.store(true, Ordering::SeqCst);
    assert_eq!(status(&daemon, &new.token(&claims("bob", &json!({})))), 401);
    eventually("the failure is counted", || {
        (daemon.metric("trunkline_jwks_fetches_total{issuer=\"test\",result=\"error\"}") > 0).then_some(())
    });
    assert_eq!(status(&daemon, &ec.token(&claims("bob", &json!({})))), 200, "the last keys stay");
    // A reload keeps them as well.
    let from = daemon.log().len();
    daemon.reload(&config.clone().section("# changed"));
    daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
    assert_eq!(status(&daemon, &ec.token(&claims("bob", &json!({})))), 200);
}

#[test]
fn without_any_keys_a_token_cannot_be_judged() {
    let upstream = Upstream::with_tools(&["echo"]);
    let ec = SigningKey::ec("e");
    let issuer = Served::new(&[&ec]);
    issuer.is_down.store(true, Ordering::SeqCst);
    let daemon = Daemon::start(&issuer.config(&upstream, "").section(&api_key("ci", KEY)));
    let token = ec.token(&claims("ann", &json!({})));
    let response = daemon.send(&bearer(&token));
    response.assert_error(503, 503, Some("7"));
    assert!(response.header("retry-after").is_some(), "{response:?}");
    assert_eq!(status(&daemon, KEY), 200, "others are served");
    assert_eq!(daemon.get_admin("/readyz").status, 200);
    issuer.is_down.store(false, Ordering::SeqCst);
    eventually("the keys are there", || (status(&daemon, &token) == 200).then_some(()));
}

#[test]
fn keys_that_nobody_may_have_are_not_taken() {
    let upstream = Upstream::with_tools(&["echo"]);
    let ec = SigningKey::ec("e");
    let issuer = Served::new(&[&ec]);
    for document in [
        "not JSON".to_owned(),
        r#"{"keys":[]}"#.to_owned(),
        r#"{"keys":[{"kty":"oct","kid":"e","k":"c2VjcmV0"}]}"#.to_owned(),
        jwks(&[&ec]).replace("\"sig\"", "\"enc\""),
        jwks(&[&ec]).replace("ES256", "ES384"),
        format!("{}{}", jwks(&[&ec]), " ".repeat(300 * 1024)),
    ] {
        *issuer.document.lock().unwrap() = document;
        let daemon = Daemon::start(&issuer.config(&upstream, ""));
        assert_eq!(status(&daemon, &ec.token(&claims("ann", &json!({})))), 503);
    }
}

#[test]
fn a_token_with_many_groups_passes() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let key = SigningKey::ec("e");
    let daemon = Daemon::start(&with_file(&upstream, &folder, &[&key], ""));
    let groups = |count: usize| -> Vec<String> { (0..count).map(|at| format!("{at:036}")).collect() };
    let large = key.token(&claims("ann", &json!({ "groups": groups(200) })));
    assert!((10_000..16_000).contains(&large.len()), "{}", large.len());
    daemon.send(&bearer(&large)).assert_ok();
    let too_large = key.token(&claims("ann", &json!({ "groups": groups(400) })));
    assert_eq!(status(&daemon, &too_large), 401);
}

/// An operator has to know it, and who attacks must not.
#[test]
fn the_log_of_a_refusal_has_its_reason_and_the_answer_never() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (key, stranger) = (SigningKey::ec("e"), SigningKey::ec("s"));
    let daemon = Daemon::start(&with_file(&upstream, &folder, &[&key], "").section(&api_key("ci", KEY)));
    let valid = claims("ann", &json!({}));
    let changed = |claim: &str, value: Value| {
        let mut claims = valid.clone();
        claims[claim] = value;
        key.token(&claims)
    };
    for (credential, reason) in [
        (changed("aud", json!("https://elsewhere")), "neither the `public_url` of the endpoint"),
        (changed("exp", json!(1)), "it has expired"),
        (changed("nbf", json!(now_s() + 100_000)), "lies in the future"),
        (changed("iss", json!("https://elsewhere")), "the `issuer` of no [[jwt]]"),
        (changed("groups", json!(vec!["x".repeat(36); 400])), "longer than `token_bytes_max`"),
        (stranger.token(&valid), "no key with the `kid`"),
        ("tl_unknown".to_owned(), "no [[api_key]] has the digest"),
    ] {
        let before = daemon.log().len();
        let answer = daemon.send(&bearer(&credential));
        assert_eq!(answer.status, 401, "{reason}");
        let line = daemon.wait_for_log(before, reason, |line| line.contains("credentials refused"));
        assert!(line.contains(reason), "{reason}: {line}");
        assert!(!line.contains(&credential[..credential.len().min(40)]), "{line}");
        let told = format!("{:?} {}", answer.header("www-authenticate"), answer.text());
        assert!(told.contains("the credentials are not valid") && !told.contains(reason), "{told}");
    }
}

#[test]
fn what_does_not_fit_of_a_token_is_said_claim_by_claim() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (key, stranger) = (SigningKey::ec("e"), SigningKey::ec("e"));
    let config = with_file(&upstream, &folder, &[&key], "").endpoint("scopes = [\"use\"]").to_string();
    let file = folder.path().join("token");
    let check = |token: &str, more: &[&str]| {
        write_secret(&file, token);
        let path = file.display().to_string();
        let (output, _) = trunkline(&[&["check", "--token", &*path][..], more].concat(), Some(&config));
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), said)
    };
    let good = claims("ann", &json!({ "scope": "use", "groups": ["ops"] }));
    let (code, said) = check(&format!("Bearer {}", key.token(&good)), &["--endpoint", "/mcp"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("does not fit"), "{said}");
    for line in [
        "signature  fits          by the key e",
        "subject    fits          \"ann\" (sub)",
        "groups     fits          ops (groups)",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let changed = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        key.token(&claims)
    };
    for (token, part, expected) in [
        (
            changed("aud", json!("https://elsewhere")),
            "aud",
            "\"https://elsewhere\"; the endpoint is https://mcp.example/mcp",
        ),
        (changed("iss", json!("https://elsewhere")), "iss", "a [[jwt]] has `issuer` https://issuer.example"),
        (changed("exp", json!(1)), "times", "it has expired"),
        (changed("scope", json!("other")), "scopes", "other; the endpoint needs use"),
        (changed("sub", json!(["a", "b"])), "subject", "name nobody"),
        (changed("cnf", json!({ "jkt": "x" })), "cnf", "bound to a key"),
        (changed("groups", json!(vec!["x".repeat(36); 400])), "size", "`token_bytes_max` is 16384"),
        (stranger.token(&good), "signature", "not that of the issuer's key"),
        ("a.b.c".to_owned(), "form", "no token (JWT)"),
    ] {
        let (code, said) = check(&token, &[]);
        assert_eq!(code, Some(1), "{part}: {said}");
        let refused: Vec<&str> = said.lines().filter(|line| line.contains("does not fit")).collect();
        assert!(refused[0].trim_start().starts_with(part) && refused[0].contains(expected), "{part}: {said}");
        let signature = token.rsplit('.').next().filter(|signature| signature.len() > 10);
        assert!(signature.is_none_or(|signature| !said.contains(signature)), "{said}");
    }
    let (output, _) = trunkline(&["check", "--endpoint", "/mcp"], Some(&config));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
