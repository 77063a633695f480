//! TLS towards clients: versions, protocols, names, certificates of both sides, and what is not TLS.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use rustls::HandshakeKind;
use serde_json::Value;

use crate::harness::{
    Authority, Certificates, Config, Connection, Daemon, Gate, Http2, Reply, Response, TlsClient, Upstream,
    call, eventually, trunkline,
};

/// What becomes of a file.
type File<'b> = Option<&'b [u8]>;

/// A gateway that speaks TLS as `localhost`, and all that it takes.
struct Setup {
    authority: Authority,
    certificates: Certificates,
    upstream: Upstream,
    config: Config,
}

impl Setup {
    /// `tls` are further keys of `[listener.tls]`.
    fn new(tls: &str) -> Self {
        Self::with(&["localhost"], Upstream::with_tools(&["echo"]), tls)
    }

    fn with(names: &[&str], upstream: Upstream, tls: &str) -> Self {
        let authority = Authority::new();
        let certificates = Certificates::new();
        let entry = certificates.add("server", &authority.issue(names));
        let config = Config::transparent(&upstream).listener(&listener(&[entry], tls)).admin();
        Self { authority, certificates, upstream, config }
    }

    fn start(&self) -> Daemon {
        Daemon::start(&self.config)
    }

    fn client(&self) -> TlsClient {
        TlsClient::new(&self.authority)
    }

    fn limits(mut self, lines: &str) -> Self {
        self.config = self.config.limits(lines);
        self
    }

    fn top(mut self, lines: &str) -> Self {
        self.config = self.config.top(lines);
        self
    }
}

/// Further keys of `[listener.tls]`.
fn asking(authority: &Authority, files: &Certificates, mode: &str) -> String {
    let ca = files.write("client-ca.pem", &authority.pem);
    format!("client_certificates = \"{mode}\"\nclient_ca = \"{}\"", ca.display())
}

fn listener(certificates: &[String], tls: &str) -> String {
    let certificates = certificates.join(", ");
    format!("address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{certificates}]\n{tls}")
}

fn ask(connection: &mut Connection) -> Response {
    connection.write(&call("7", "echo").bytes());
    connection.response()
}

fn handshakes(daemon: &Daemon, result: &str) -> u64 {
    daemon.metric(&format!("trunkline_handshakes_total{{result=\"{result}\"}}"))
}

#[test]
fn both_versions_are_spoken() {
    let setup = Setup::new("");
    let daemon = setup.start();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let client = TlsClient::with(&setup.authority, None, &[version]);
        let mut connection = client.connect(daemon.address(), "localhost");
        for _ in 0..3 {
            ask(&mut connection).assert_ok();
        }
        assert_eq!(connection.wire().tls().protocol_version(), Some(version.version));
    }
    assert_eq!(setup.upstream.received_of("tools/call").len(), 6);
}

#[test]
fn version_min_leaves_one() {
    let setup = Setup::new("version_min = \"1.3\"");
    let daemon = setup.start();
    let old = TlsClient::with(&setup.authority, None, &[&rustls::version::TLS12]);
    assert!(old.try_connect(daemon.address(), "localhost").is_err());
    ask(&mut setup.client().connect(daemon.address(), "localhost")).assert_ok();
}

#[test]
fn the_protocol_is_what_both_settled_on() {
    let setup = Setup::new("");
    let daemon = setup.start();
    let offers: [(&[&str], Option<&[u8]>); 3] =
        [(&["http/1.1"], Some(b"http/1.1")), (&["http/1.1", "odd"], Some(b"http/1.1")), (&[], None)];
    for (offered, settled) in offers {
        let mut connection = setup.client().offering(offered).connect(daemon.address(), "localhost");
        assert_eq!(connection.wire().tls().alpn_protocol(), settled);
        ask(&mut connection).assert_ok();
    }
    let both = setup.client().offering(&["http/1.1", "h2"]);
    assert_eq!(
        both.connect(daemon.address(), "localhost").wire().tls().alpn_protocol(),
        Some(&b"h2"[..]),
        "the gateway prefers HTTP/2"
    );
    for offered in [&["h2"][..], &[][..]] {
        let client = setup.client().offering(offered);
        let mut connection = Http2::connect_tls(daemon.address(), &client, "localhost");
        connection.send(&call("7", "echo")).assert_ok();
    }
    let odd = setup.client().offering(&["spdy/3"]);
    assert!(odd.try_connect(daemon.address(), "localhost").is_err());
}

#[test]
fn large_bodies_cross_whole() {
    let setup = Setup::new("");
    let daemon = setup.start();
    let filler = "x".repeat(3 << 20);
    let request =
        call("7", "echo").replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"fill":"{filler}"}}"#));
    let mut connection = setup.client().connect(daemon.address(), "localhost");
    connection.write(&request.bytes());
    connection.response().assert_ok();
    assert_eq!(setup.upstream.received_of("tools/call")[0].body, request.body);
}

#[test]
fn certificates_are_chosen_by_name_and_names_are_kept_apart() {
    let setup = Setup::new("");
    let authority = &setup.authority;
    let entries = [
        setup.certificates.add("default", &authority.issue(&["localhost"])),
        setup.certificates.add("b", &authority.issue(&["b.test", "b2.test"])),
        setup.certificates.add("wild", &authority.issue(&["*.w.test"])),
    ];
    let hosts = "hosts = [\"localhost\", \"b.test\", \"b2.test\", \"x.w.test\", \"elsewhere.test\"]";
    let config = Config::transparent(&setup.upstream).listener(&listener(&entries, "")).endpoint(hosts);
    let daemon = Daemon::start(&config);
    let (client, address) = (setup.client(), daemon.address());
    for name in ["localhost", "b.test", "B2.test", "x.w.test", "y.w.test"] {
        client.connect(address, name);
    }
    for name in ["elsewhere.test", "x.y.w.test", "w.test"] {
        let refused = client.try_connect(address, name).err().expect("another name's certificate");
        assert!(refused.to_string().contains("not valid for name"), "{name}: {refused}");
    }
    client.clone().nameless().connect(address, "localhost");
    let cases = [
        ("b.test", "b.test", 200),
        ("b.test", "b2.test:8443", 200),
        ("b.test", "elsewhere.test", 200),
        ("b.test", "localhost", 421),
        ("b.test", "X.w.test", 421),
        ("localhost", "b.test", 421),
        ("x.w.test", "x.w.test", 200),
    ];
    let two = client.clone().offering(&["h2"]);
    for (name, host, status) in cases {
        let request = call("7", "echo").set("Host", host);
        let mut connection = client.connect(address, name);
        connection.write(&request.bytes());
        assert_eq!(connection.response().status, status, "{host} on a connection to {name}");
        let response = Http2::connect_tls(address, &two, name).send(&request);
        assert_eq!(response.status, status, "{host} on a connection to {name}, HTTP/2");
        if status == 421 {
            response.assert_error(421, 421, Some("7"));
        }
    }
    assert_eq!(setup.upstream.received_of("tools/call").len(), 8);
}

/// Whether a client gets an answer.
fn is_served(client: &TlsClient, daemon: &Daemon) -> bool {
    let Ok(mut connection) = client.try_connect(daemon.address(), "localhost") else { return false };
    connection.write(&call("7", "echo").bytes());
    connection.try_response().is_ok_and(|response| response.status == 200)
}

#[test]
fn client_certificates_are_checked() {
    let (people, strangers) = (Authority::new(), Authority::new());
    let shown = [
        ("none", None),
        ("a valid one", Some(people.issue(&["alice"]))),
        ("one with a URI alone", Some(people.issue_uri("spiffe://example/alice"))),
        ("a stranger's", Some(strangers.issue(&["alice"]))),
        ("an expired one", Some(people.issue_expired(&["alice"]))),
    ];
    for (mode, expected) in
        [("required", [false, true, true, false, false]), ("optional", [true, true, true, false, false])]
    {
        let files = Certificates::new();
        let setup = Setup::new(&asking(&people, &files, mode));
        let daemon = setup.start();
        for ((what, identity), expected) in shown.iter().zip(expected) {
            for version in rustls::ALL_VERSIONS {
                let client = TlsClient::with(&setup.authority, identity.as_ref(), &[version]);
                assert_eq!(is_served(&client, &daemon), expected, "{mode}, {what}, {version:?}");
            }
        }
    }
}

#[test]
fn sessions_are_resumed_but_nothing_is_sent_early() {
    let setup = Setup::new("");
    let daemon = setup.start();
    for version in rustls::ALL_VERSIONS {
        let client = TlsClient::with(&setup.authority, None, &[version]).hasty();
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut connection = client.connect(daemon.address(), "localhost");
            ask(&mut connection).assert_ok();
            let tls = connection.wire().tls();
            assert_eq!(tls.handshake_kind(), Some(expected), "{version:?}");
            assert!(!tls.is_early_data_accepted());
        }
    }
    assert_eq!((handshakes(&daemon, "full"), handshakes(&daemon, "resumed")), (2, 2));
}

#[test]
fn a_client_is_known_after_resumption_and_unknown_after_its_authority_went() {
    let people = Authority::new();
    let files = Certificates::new();
    let setup = Setup::new(&asking(&people, &files, "required"));
    let daemon = setup.start();
    let client = TlsClient::showing(&setup.authority, &people.issue(&["alice"]));
    assert!(is_served(&client, &daemon));
    assert!(is_served(&client, &daemon));
    assert_eq!(handshakes(&daemon, "resumed"), 1);
    let before = daemon.log().len();
    files.write("client-ca.pem", &Authority::new().pem);
    daemon.reload(&setup.config);
    daemon.wait_for_log(before, "the reload", |line| line.contains("reloaded"));
    assert!(!is_served(&client, &daemon), "a ticket outlived the authority");
}

#[test]
fn certificates_are_replaced_under_open_connections() {
    let setup = Setup::new("");
    let daemon = setup.start();
    let mut open = setup.client().connect(daemon.address(), "localhost");
    ask(&mut open).assert_ok();
    let next = Authority::new();
    setup.certificates.add("server", &next.issue(&["localhost"]));
    let before = daemon.log().len();
    daemon.reload(&setup.config);
    daemon.wait_for_log(before, "the reload", |line| line.contains("reloaded"));
    ask(&mut TlsClient::new(&next).connect(daemon.address(), "localhost")).assert_ok();
    assert!(setup.client().try_connect(daemon.address(), "localhost").is_err(), "the old one is gone");
    ask(&mut open).assert_ok();
}

#[test]
fn broken_files_change_nothing_and_are_named() {
    let setup = Setup::new("");
    let daemon = setup.start();
    let (chain, key) = (setup.certificates.path("server.pem"), setup.certificates.path("server.key"));
    let (good_chain, good_key) = (fs::read(&chain).unwrap(), fs::read(&key).unwrap());
    let other = setup.authority.issue(&["localhost"]);
    let half = &good_chain[..good_chain.len() / 2];
    let cases: [(&str, File<'_>, File<'_>); 6] = [
        ("a chain that is gone", None, Some(&good_key)),
        ("a key that is gone", Some(&good_chain), None),
        ("half a chain", Some(half), Some(&good_key)),
        ("another's key", Some(&good_chain), Some(other.key.as_bytes())),
        ("an empty chain", Some(b""), Some(&good_key)),
        ("no key at all", Some(&good_chain), Some(b"7355608")),
    ];
    for (what, new_chain, new_key) in cases {
        for (path, bytes) in [(&chain, new_chain), (&key, new_key)] {
            match bytes {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
        }
        let before = daemon.log().len();
        daemon.reload(&setup.config);
        let line = daemon.wait_for_log(before, what, |line| line.contains("not reloaded"));
        assert!(line.contains("server.pem") || line.contains("server.key"), "{what}: {line}");
        assert!(!line.contains("7355608"), "{line}");
        ask(&mut setup.client().connect(daemon.address(), "localhost")).assert_ok();
        fs::write(&chain, &good_chain).unwrap();
        fs::write(&key, &good_key).unwrap();
    }
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains("trunkline_reloads_total{result=\"error\"} 6"), "{metrics}");
}

#[test]
fn a_gateway_without_its_certificate_does_not_start() {
    let setup = Setup::new("");
    fs::remove_file(setup.certificates.path("server.key")).unwrap();
    let (output, _) = trunkline(&["run"], Some(&setup.config.to_string()));
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("server.key"), "{said}");
}

#[test]
fn the_end_of_certificates_is_shown_and_told() {
    let setup = Setup::new("");
    let daemon = setup.start();
    setup.certificates.add("server", &setup.authority.issue_expired(&["localhost"]));
    let before = daemon.log().len();
    daemon.reload(&setup.config);
    daemon
        .wait_for_log(before, "the end", |line| line.contains("has expired") && line.contains("server.pem"));
    let metrics = daemon.get_admin("/metrics").text();
    let line =
        metrics.lines().find(|line| line.starts_with("trunkline_certificate_expiry_timestamp_seconds{"));
    assert!(
        line.is_some_and(|line| line.contains("server.pem") && line.ends_with(" 1609459200")),
        "{line:?}"
    );
}

/// RFC 5280 gives a trust anchor no dates. Operators are told.
#[test]
fn an_authority_that_has_expired_goes_on_to_count_and_is_told() {
    let (people, files) = (Authority::expired(), Certificates::new());
    let setup = Setup::new(&asking(&people, &files, "required"));
    let (checked, _) = trunkline(&["check"], Some(&setup.config.to_string()));
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(checked.status.success() && said.contains("client-ca.pem: the authority has expired"), "{said}");
    let daemon = setup.start();
    daemon.wait_for_log(0, "its end", |line| line.contains("the authority of clients has expired"));
    let client = TlsClient::showing(&setup.authority, &people.issue(&["alice"]));
    assert!(is_served(&client, &daemon), "its clients are served");
    let status: Value = serde_json::from_str(&daemon.get_admin("/status").text()).unwrap();
    let problems = status["problems"].as_array().unwrap();
    let told =
        |problem: &&Value| problem["subject"].as_str().is_some_and(|subject| subject.contains("client-ca"));
    let problem = problems.iter().find(told).unwrap_or_else(|| panic!("{problems:?}"));
    assert_eq!(problem["level"], "warning", "{problem}");
    assert!(problem["what"].as_str().unwrap().contains("goes on to count"), "{problem}");
}

#[test]
fn what_is_not_tls_is_closed() {
    let setup = Setup::new("").limits("handshake_timeout = \"15s\"");
    let daemon = setup.start();
    let long_hello = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0][..], &[0; 0x3ffc]].concat();
    let garbage: [(&str, Vec<u8>); 5] = [
        ("a request in clear", call("7", "echo").bytes()),
        ("HTTP/2 in clear", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec()),
        ("noise", (0..=255).cycle().skip(77).take(5000).collect()),
        ("a record of a version that never was", vec![22, 9, 9, 0, 5, 1, 0, 0, 1, 0]),
        ("a first message without end", long_hello.repeat(4)),
    ];
    for (what, bytes) in &garbage {
        let started = Instant::now();
        let mut connection = Connection::open(daemon.address());
        connection.write(bytes);
        let answer = connection.wait_closed();
        assert!(!answer.starts_with(b"HTTP"), "{what}: {answer:?}");
        assert!(started.elapsed() < Duration::from_secs(8), "{what}");
    }
    eventually("all are counted", || (handshakes(&daemon, "failed") == garbage.len() as u64).then_some(()));
    ask(&mut setup.client().connect(daemon.address(), "localhost")).assert_ok();
    let clear = Daemon::start(&Config::transparent(&setup.upstream));
    assert!(setup.client().try_connect(clear.address(), "localhost").is_err());
    clear.send(&call("7", "echo")).assert_ok();
}

#[test]
fn handshakes_end_in_time() {
    let setup = Setup::new("").limits("handshake_timeout = \"400ms\"");
    let daemon = setup.start();
    let hello = setup.client().hello("localhost");
    for sent in [0, 1, 5, hello.len() - 1, hello.len()] {
        let started = Instant::now();
        let mut connection = Connection::open(daemon.address());
        connection.write(&hello[..sent]);
        connection.wait_closed();
        let took = started.elapsed();
        assert!(took > Duration::from_millis(300) && took < Duration::from_secs(8), "{sent}: {took:?}");
    }
    eventually("they are counted", || (handshakes(&daemon, "timeout") == 5).then_some(()));
    ask(&mut setup.client().connect(daemon.address(), "localhost")).assert_ok();
}

fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

#[test]
fn one_address_has_so_many_handshakes() {
    let setup = Setup::new("").limits("handshake_timeout = \"20s\"");
    let daemon = setup.start();
    let silent: Vec<_> = (0..20).map(|_| Connection::open_from(loopback(2), daemon.address())).collect();
    eventually("those beyond the limit are closed", || (handshakes(&daemon, "refused") == 4).then_some(()));
    ask(&mut setup.client().connect(daemon.address(), "localhost")).assert_ok();
    drop(silent);
    eventually("there is room again", || {
        let socket = Connection::open_from(loopback(2), daemon.address());
        setup.client().try_over(socket.into_socket(), "localhost").ok()
    });
}

#[test]
fn a_flood_of_handshakes_keeps_nobody_out() {
    let setup = Setup::new("").top("workers = 1").limits("handshake_timeout = \"30s\"");
    let daemon = setup.start();
    let mut open = setup.client().connect(daemon.address(), "localhost");
    let hello = setup.client().hello("localhost");
    // Silent ones, and more than there are turns for who fall silent in the middle.
    let silent: Vec<_> =
        (0..160).map(|n| Connection::open_from(loopback(10 + n / 16), daemon.address())).collect();
    let mut stuck: Vec<_> =
        (0..160).map(|n| Connection::open_from(loopback(30 + n / 16), daemon.address())).collect();
    for connection in &mut stuck {
        connection.write(&hello);
    }
    for _ in 0..5 {
        let started = Instant::now();
        ask(&mut setup.client().connect(daemon.address(), "localhost")).assert_ok();
        assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
        let started = Instant::now();
        ask(&mut open).assert_ok();
        assert!(started.elapsed() < Duration::from_secs(2), "took {:?}", started.elapsed());
    }
    eventually("some made room", || (handshakes(&daemon, "evicted") > 0).then_some(()));
    assert_eq!(handshakes(&daemon, "refused"), 0);
    drop(silent);
}

#[test]
fn ends_are_announced() {
    let setup = Setup::new("").limits("header_timeout = \"400ms\"\nidle_timeout = \"700ms\"");
    let mut daemon = setup.start();
    let client = setup.client();
    let mut asked = client.connect(daemon.address(), "localhost");
    asked.write(&call("7", "echo").with("Connection", "close").bytes());
    asked.response().assert_ok();
    assert!(asked.ends_properly(), "the client asked to close");
    for (what, bytes) in [("nothing comes", 0), ("half a head comes", 40)] {
        let mut cut = client.connect(daemon.address(), "localhost");
        cut.write(&call("7", "echo").bytes()[..bytes]);
        assert!(cut.ends_properly(), "{what}");
    }
    let mut idle = client.connect(daemon.address(), "localhost");
    ask(&mut idle).assert_ok();
    assert!(idle.ends_properly(), "the connection was idle");
    let mut last = client.connect(daemon.address(), "localhost");
    daemon.terminate();
    assert!(last.ends_properly(), "the gateway stops");
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

#[test]
fn a_drain_lets_calls_over_tls_finish() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        Reply::default().wait(&held).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    let mut setup = Setup::with(&["localhost"], upstream, "");
    setup.config = setup.config.section("[drain]\nquiet = \"100ms\"\nmax = \"15s\"");
    let mut daemon = setup.start();
    let mut busy = setup.client().connect(daemon.address(), "localhost");
    busy.write(&call("7", "echo").bytes());
    setup.upstream.wait_for("tools/call", 1);
    let unfinished = Connection::open(daemon.address());
    let before = daemon.log().len();
    daemon.terminate();
    daemon.wait_for_log(before, "the drain", |line| line.contains("draining"));
    gate.open();
    busy.response().assert_ok();
    assert!(busy.ends_properly());
    assert_eq!(daemon.wait_exit().code(), Some(0));
    drop(unfinished);
}
