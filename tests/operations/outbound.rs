//! The way of the gateway's own requests: what goes through a proxy, what does not, and what a proxy that leads nowhere costs.
//!
//! Names end with `.test`, which cannot be looked up here: a request that arrives has come through the proxy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::json;

use crate::harness::{
    Authority, Config, Daemon, Folder, Lead, Proxy, RESOURCE, Receiver, Reply, SigningKey, TlsEar, Upstream,
    call, claims, eventually, jwks, jwt, refusing_address, side_by_side, trunkline, write_secret,
};

const SECRET: &str = "swordfish";
/// `me` and [`SECRET`], as they are shown.
const SHOWN: &str = "Basic bWU6c3dvcmRmaXNo";

/// An issuer whose keys are at `https://keys.test/keys`, an upstream and what a call of it shows.
struct Issuer {
    folder: Folder,
    ca: String,
    /// The place of its server in truth.
    ear: TlsEar,
    _keys: Upstream,
    upstream: Upstream,
    token: String,
}

impl Issuer {
    /// Its certificate is for this name.
    fn named(name: &str) -> Self {
        let (folder, authority, key) = (Folder::new(), Authority::new(), SigningKey::ed("k"));
        let document = jwks(&[&key]);
        let keys = Upstream::start(move |_| Reply::json("200 OK", &document));
        let ear = TlsEar::before(keys.address, &authority.issue(&[name]), None);
        let ca = authority.file(&folder, "ca.pem").display().to_string();
        let token = key.token(&claims("ann", &json!({})));
        Self { folder, ca, ear, _keys: keys, upstream: Upstream::with_tools(&["echo"]), token }
    }

    fn new() -> Self {
        Self::named("keys.test")
    }

    fn address(&self) -> SocketAddr {
        self.ear.address
    }

    /// Keys are fetched at `place`, as `outbound` says.
    fn config_at(&self, place: &str, outbound: &str) -> Config {
        let keys = format!("jwks_url = \"https://{place}/keys\"\nca = \"{}\"", self.ca);
        Config::transparent(&self.upstream)
            .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]"))
            .section(&jwt(&keys))
            .section(outbound)
            .admin()
    }

    fn config(&self, outbound: &str) -> Config {
        self.config_at("keys.test", outbound)
    }

    /// The password for a proxy, as a key of `[outbound]`.
    fn basic(&self, password: &str) -> String {
        let path = self.folder.path().join("proxy-password");
        write_secret(&path, password);
        format!("basic = {{ user = \"me\", password = {{ file = \"{}\" }} }}", path.display())
    }

    fn status(&self, daemon: &Daemon) -> u16 {
        daemon.send(&call("7", "echo").with("Authorization", format!("Bearer {}", self.token))).status
    }

    /// Waits until a call is let in, which needs the keys.
    fn wait_let_in(&self, daemon: &Daemon) {
        eventually("the keys are there", || (self.status(daemon) == 200).then_some(()));
    }
}

/// A token endpoint, which gives everybody the same token. Its thread ends with the tests.
fn token_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = give_token(&stream);
        }
    });
    address
}

fn give_token(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let body = r#"{"access_token":"t-1","token_type":"Bearer","expires_in":3600}"#;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Asserts that no log, metric or status has the password.
#[track_caller]
fn assert_untold(daemon: &Daemon) {
    let of_admin = ["/metrics", "/status"].map(|path| daemon.get_admin(path).text());
    for told in daemon.log().iter().chain(&of_admin) {
        let is_told = told.contains(SECRET) || told.contains(SHOWN.trim_start_matches("Basic "));
        assert!(!is_told, "{told}");
    }
}

/// The line that tells why the keys cannot be read.
fn why(daemon: &Daemon, from: usize) -> String {
    daemon.wait_for_log(from, "a fault", |line| line.contains("the keys of an issuer cannot be read"))
}

#[test]
fn keys_are_fetched_through_the_proxy_from_the_server_that_is_meant() {
    let issuer = Issuer::new();
    let proxy = Proxy::to(issuer.address());
    let lines = issuer.basic(&format!("{SECRET}\n"));
    let config = issuer.config(&proxy.table(&lines)).section("[log]\nlevel = \"trace\"");
    let daemon = Daemon::start_with(&config, &[("HTTPS_PROXY", "http://127.0.0.1:1")]);
    issuer.wait_let_in(&daemon);
    let asked = format!(
        "CONNECT keys.test:443 HTTP/1.1\r\nhost: keys.test:443\r\nproxy-authorization: {SHOWN}\r\n\r\n"
    );
    assert_eq!(proxy.heads()[0], asked);
    assert_eq!(issuer.ear.seen()[0].name.as_deref(), Some("keys.test"));
    // Calls do not go by it.
    assert!(!issuer.upstream.received_of("tools/call").is_empty());
    assert_untold(&daemon);

    let impostor = Issuer::named("other.test");
    let proxy = Proxy::to(impostor.address());
    let daemon = Daemon::start(&impostor.config(&proxy.table("")));
    let told = why(&daemon, 0);
    assert!(told.contains("its certificate is for another name"), "{told}");
    assert_eq!(impostor.status(&daemon), 503);
}

#[test]
fn traces_are_sent_through_the_proxy() {
    let upstream = Upstream::with_tools(&["echo"]);
    let receiver = Receiver::start();
    let proxy = Proxy::to(receiver.address);
    let config = Config::transparent(&upstream)
        .section("[trace]\nendpoint = \"http://spans.test:4318/v1/traces\"")
        .section(&proxy.table(""));
    let daemon = Daemon::start_with(&config, &[("OTEL_BSP_SCHEDULE_DELAY", "10")]);
    daemon.send(&call("1", "echo")).assert_ok();
    receiver.wait(2);
    let head = proxy.heads().remove(0);
    assert!(head.starts_with("POST http://spans.test:4318/v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: spans.test:4318\r\n"), "{head}");
}

#[test]
fn tokens_for_upstreams_are_fetched_through_the_proxy_and_calls_are_not_sent_there() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let upstream = Upstream::with_tools(&["echo"]);
    let ear = TlsEar::before(token_server(), &authority.issue(&["issuer.test"]), None);
    let proxy = Proxy::to(ear.address);
    let secret = folder.path().join("client-secret");
    write_secret(&secret, SECRET);
    let keys = format!(
        "oauth = {{ token_url = \"https://issuer.test:8443/token\", client_id = \"me\", \
         client_secret = {{ file = \"{}\" }}, ca = \"{}\" }}",
        secret.display(),
        authority.file(&folder, "ca.pem").display()
    );
    let config = Config::new().upstream("up", upstream.address, &keys).section(&proxy.table(""));
    let daemon = Daemon::start(&config);
    daemon.send(&call("1", "echo")).assert_ok();
    assert_eq!(upstream.only_call().headers("authorization"), ["Bearer t-1"]);
    assert_eq!(proxy.asked(), ["CONNECT issuer.test:8443 HTTP/1.1"]);
}

/// The gateway is on the same machine as everything here, but `0.0.0.0` is not written as if it were.
#[test]
fn exceptions_are_reached_without_the_proxy() {
    let issuer = Issuer::named("0.0.0.0");
    let port = issuer.address().port();
    let place = format!("0.0.0.0:{port}");
    for (entry, is_direct) in [
        ("\"0.0.0.0\"".to_owned(), true),
        (format!("\".corp\", \"0.0.0.0/8:{port}\""), true),
        (format!("\"0.0.0.0/8:{}\"", port.wrapping_add(1).max(1)), false),
    ] {
        let proxy = Proxy::to(issuer.address());
        let table = proxy.table(&format!("no_proxy = [{entry}]"));
        let daemon = Daemon::start(&issuer.config_at(&place, &table));
        issuer.wait_let_in(&daemon);
        assert_eq!(proxy.asked().is_empty(), is_direct, "{entry}: {:?}", proxy.asked());
    }
}

#[test]
fn a_proxy_that_leads_nowhere_is_named_with_its_fault() {
    let say = |text: &str| {
        let text = text.as_bytes().to_vec();
        Proxy::start(move |_| Lead::Say(text.clone()))
    };
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(17 << 10));
    let cases = [
        (say("HTTP/1.1 407 Proxy Authentication Required\r\nx: swordfish\r\n\r\n"), "answered 407 Proxy"),
        (say("HTTP/1.1 403 swordfish\r\n\r\n"), "answered 403 Forbidden"),
        (say("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 9\r\n\r\nswordfish"), "answered 502 Bad Gateway"),
        (say("HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/\r\n\r\n"), "answered 307 Temporary Redirect"),
        (say("SSH-2.0-swordfish\r\n"), "not valid HTTP"),
        (say(&long), "larger than 16384 bytes"),
        (say(""), "closed the connection without an answer"),
        (say("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 swordfish\r\n\r\n"), "no connection over TLS"),
        (Proxy::start(|_| Lead::Keep), "led nowhere within 5 s"),
    ];
    side_by_side(cases, |(proxy, expected)| {
        let issuer = Issuer::new();
        let daemon = Daemon::start(&issuer.config(&proxy.table(&issuer.basic(SECRET))));
        let told = why(&daemon, 0);
        assert!(told.contains(expected), "{expected}: {told}");
        let is_named = told.contains(&format!("the proxy {}", proxy.address));
        assert!(is_named || expected.contains("TLS"), "{told}");
        assert_eq!(issuer.status(&daemon), 503, "{expected}");
        assert_untold(&daemon);
    });
    let issuer = Issuer::new();
    let (address, _held) = refusing_address();
    let daemon = Daemon::start(&issuer.config(&format!("[outbound]\nproxy = \"http://{address}\"")));
    let told = why(&daemon, 0);
    assert!(told.contains(&format!("the proxy {address} cannot be reached: nothing listens")), "{told}");
}

#[test]
fn a_proxy_over_tls_must_prove_who_it_is() {
    let issuer = Issuer::new();
    let proxy = Proxy::to(issuer.address());
    let authority = Authority::new();
    let ear = TlsEar::before(proxy.address, &authority.issue(&["127.0.0.1"]), None);
    let table = |ca: &str| {
        format!("[outbound]\nproxy = \"https://{}\"\nca = \"{ca}\"\n{}", ear.address, issuer.basic(SECRET))
    };
    let ca = authority.file(&issuer.folder, "proxy-ca.pem").display().to_string();
    let daemon = Daemon::start(&issuer.config(&table(&ca)));
    issuer.wait_let_in(&daemon);
    assert!(proxy.heads()[0].contains(SHOWN));

    let daemon = Daemon::start(&issuer.config(&table(&issuer.ca)));
    let told = why(&daemon, 0);
    let expected = format!(
        "the proxy {} cannot be reached over TLS: no trusted authority has signed its certificate",
        ear.address
    );
    assert!(told.contains(&expected), "{told}");
    assert_eq!(proxy.heads().len(), 1, "who is not believed is shown nothing");
}

#[test]
fn a_reload_takes_another_proxy_or_password_up_at_once() {
    let issuer = Issuer::new();
    let shuts = Proxy::start(|_| Lead::Say(b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec()));
    let address = issuer.address();
    let asks = Proxy::start(move |head| {
        if head.contains(SHOWN) {
            return Lead::To(address);
        }
        Lead::Say(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n".to_vec())
    });
    let daemon = Daemon::start(&issuer.config(&shuts.table("")));
    assert!(why(&daemon, 0).contains("answered 403 Forbidden"));

    // One that cannot be read changes nothing.
    let from = daemon.log().len();
    let nowhere = "basic = { user = \"me\", password = { file = \"/nowhere/password\" } }";
    daemon.reload(&issuer.config(&asks.table(nowhere)));
    let told = daemon.wait_for_log(from, "a refusal", |line| line.contains("not reloaded"));
    assert!(told.contains("/nowhere/password"), "{told}");
    assert_eq!(asks.asked().len(), 0);

    let from = daemon.log().len();
    let config = issuer.config(&asks.table(&issuer.basic("wrong")));
    daemon.reload(&config);
    daemon.wait_for_log(from, "the difference", |line| line.contains("outbound: changed"));
    assert!(why(&daemon, from).contains("answered 407 Proxy Authentication Required"));

    let from = daemon.log().len();
    issuer.basic(SECRET);
    daemon.hangup();
    daemon.wait_for_log(from, "the difference", |line| line.contains("outbound: password changed"));
    issuer.wait_let_in(&daemon);
    assert_untold(&daemon);
}

/// Their pause is up to a minute where many tries have failed.
#[test]
fn tokens_are_tried_again_at_once_by_another_way() {
    let folder = Folder::new();
    let upstream = Upstream::with_tools(&["echo"]);
    let secret = folder.path().join("client-secret");
    write_secret(&secret, SECRET);
    let authority = Authority::new();
    let ear = TlsEar::before(token_server(), &authority.issue(&["issuer.test"]), None);
    let keys = format!(
        "oauth = {{ token_url = \"https://issuer.test/token\", client_id = \"me\", \
         client_secret = {{ file = \"{}\" }}, ca = \"{}\" }}",
        secret.display(),
        authority.file(&folder, "ca.pem").display()
    );
    let (shuts, leads) =
        (Proxy::start(|_| Lead::Say(b"HTTP/1.1 403 No\r\n\r\n".to_vec())), Proxy::to(ear.address));
    let config =
        |proxy: &Proxy| Config::new().upstream("up", upstream.address, &keys).section(&proxy.table(""));
    let daemon = Daemon::start(&config(&shuts));
    // Each time in vain doubles the pause: behind this many it is longer than the test waits.
    eventually("a long pause", || {
        let from = daemon.log().len();
        assert_eq!(daemon.send(&call("1", "echo")).status, 503);
        daemon.log()[from..].iter().any(|line| retry_ms(line).is_some_and(|pause| pause > 1500)).then_some(())
    });
    let from = daemon.log().len();
    daemon.reload(&config(&leads));
    daemon.wait_for_log(from, "the reload", |line| line.contains("reloaded"));
    daemon.send(&call("2", "echo")).assert_ok();
}

fn retry_ms(line: &str) -> Option<u64> {
    let (_, after) = line.split_once("retry_ms=")?;
    after.split(' ').next()?.parse().ok()
}

#[test]
fn a_password_that_cannot_be_read_is_found_by_check_and_refuses_a_start() {
    let issuer = Issuer::new();
    let lines = "basic = { user = \"me\", password = { file = \"/nowhere/password\" } }";
    let config =
        issuer.config(&format!("[outbound]\nproxy = \"https://proxy.test:3128\"\n{lines}")).to_string();
    for command in ["check", "run"] {
        let (output, _) = trunkline(&[command], Some(&config));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("/nowhere/password"), "{command}: {told}");
    }
    let clear =
        issuer.config(&format!("[outbound]\nproxy = \"http://proxy.test:3128\"\n{}", issuer.basic(SECRET)));
    let (output, _) = trunkline(&["check"], Some(&clear.to_string()));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("in clear text"), "{told}");
    assert!(!told.contains(SECRET), "{told}");
}
