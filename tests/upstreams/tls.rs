//! Upstreams over TLS: who is believed, what is shown, and what client and operator see of each fault.

use std::net::SocketAddr;
use std::path::Path;

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa};

use crate::harness::{
    Authority, Config, Daemon, Folder, Identity, LEGACY_VERSION, Legacy, Offer, Reply, TlsEar, Upstream,
    call, eventually, in_session, legacy, list, open_session_with, write_secret,
};

const RESULT: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[]}}"#;

fn tls(url: &str, lines: &str) -> Config {
    Config::new().raw("up", &format!("url = \"{url}\"\neras = [\"modern\"]\n{lines}"))
}

fn with_ca(address: SocketAddr, ca: &Path, more: &str) -> Config {
    tls(
        &format!("https://localhost:{}/mcp", address.port()),
        &format!("tls = {{ ca = \"{}\"{more} }}", ca.display()),
    )
}

#[test]
fn calls_and_lists_cross_and_sessions_are_resumed() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let upstream = Upstream::with_tools(&["echo"]);
    let ear = TlsEar::before(upstream.address, &authority.issue(&["localhost"]), None);
    // No connection is kept, so that each call shakes hands.
    let config = with_ca(ear.address, &authority.file(&folder, "ca.pem"), "");
    let config = Config::to_string(&config).replace("eras =", "idle_connections_max = 0\neras =");
    let daemon = Daemon::start(&config);
    for id in ["1", "2", "3"] {
        daemon.send(&call(id, "echo")).assert_ok();
    }
    daemon.send(&list("4", "tools/list")).assert_ok();
    let arrived = upstream.received_of("tools/call");
    assert_eq!(arrived[0].headers("host"), [format!("localhost:{}", ear.address.port())]);
    let seen = ear.seen();
    assert!(seen.len() >= 4, "{seen:?}");
    for handshake in &seen {
        assert_eq!(handshake.name.as_deref(), Some("localhost"));
        assert_eq!(handshake.protocol.as_deref(), Some("http/1.1"));
    }
    assert!(seen.iter().any(|handshake| handshake.is_resumed), "{seen:?}");
}

/// The roots of the system are those that `SSL_CERT_FILE` names, where it is set.
#[test]
fn without_a_file_the_system_is_believed() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let upstream = Upstream::with_tools(&["echo"]);
    let ear = TlsEar::before(upstream.address, &authority.issue(&["localhost"]), None);
    let ca = authority.file(&folder, "ca.pem");
    let config = tls(&format!("https://localhost:{}/mcp", ear.address.port()), "");
    let daemon = Daemon::start_with(&config, &[("SSL_CERT_FILE", ca.to_str().unwrap())]);
    daemon.send(&call("7", "echo")).assert_ok();
    let other = Authority::new().file(&folder, "other.pem");
    let daemon = Daemon::start_with(&config, &[("SSL_CERT_FILE", other.to_str().unwrap())]);
    daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
}

#[test]
fn who_cannot_be_trusted_is_unreachable_and_the_log_says_why() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.file(&folder, "ca.pem");
    let good = authority.issue(&["localhost"]);
    let of_authority = authority.issue_with(&["localhost"], |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let for_clients = authority.issue_with(&["localhost"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let cases = [
        (
            "another authority",
            Authority::new().issue(&["localhost"]),
            "",
            "no trusted authority has signed its certificate",
        ),
        (
            "self-signed",
            Identity::self_signed("localhost"),
            "",
            "no trusted authority has signed its certificate",
        ),
        ("another name", authority.issue(&["tools.example"]), "", "is for another name"),
        ("expired", authority.issue_for_years(&["localhost"], 2000, 2001), "", "has expired"),
        ("not yet valid", authority.issue_for_years(&["localhost"], 3000, 3001), "", "is not valid yet"),
        ("that of an authority", of_authority, "", "is that of an authority (CA:TRUE)"),
        ("no alternative name", authority.issue(&[]), "", "has no subject alternative name"),
        ("for clients", for_clients, "", "is not for servers"),
        ("a name that is not its own", good, ", server_name = \"tools.example\"", "is for another name"),
    ];
    let well = Upstream::with_tools(&["fine"]);
    for (what, identity, more, said) in cases {
        println!("{what}");
        let upstream = Upstream::with_tools(&["echo"]);
        let ear = TlsEar::before(upstream.address, &identity, None);
        let config = with_ca(ear.address, &ca, more).upstream("well", well.address, "");
        let daemon = Daemon::start(&config);
        let error = daemon.send(&call("7", "up__echo")).assert_error(502, 502, Some("7"));
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        daemon.wait_for_log(0, said, |line| {
            line.contains("WARN") && line.contains(said) && line.contains("upstream=\"up\"")
        });
        daemon.send(&call("7", "well__fine")).assert_ok();
        assert_eq!(upstream.received().len(), 0, "{what}: something was sent");
    }
}

#[test]
fn another_name_may_be_asked_for() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let upstream = Upstream::with_tools(&["echo"]);
    let ear = TlsEar::before(upstream.address, &authority.issue(&["tools.example"]), None);
    let config =
        with_ca(ear.address, &authority.file(&folder, "ca.pem"), ", server_name = \"tools.example\"");
    let daemon = Daemon::start(&config);
    daemon.send(&call("7", "echo")).assert_ok();
    assert_eq!(ear.seen()[0].name.as_deref(), Some("tools.example"));
}

#[test]
fn a_certificate_is_shown_to_those_who_want_one() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.file(&folder, "ca.pem");
    let upstream = Upstream::with_tools(&["echo"]);
    let ear = TlsEar::before(upstream.address, &authority.issue(&["localhost"]), Some(&authority));
    let (chain, key) = authority.issue(&["gateway"]).files(&folder);
    let shown = format!(", certificate = {chain:?}, key = {{ file = {key:?} }}");
    let daemon = Daemon::start(&with_ca(ear.address, &ca, &shown));
    daemon.send(&call("7", "echo")).assert_ok();
    assert!(ear.seen()[0].has_certificate);

    let daemon = Daemon::start(&with_ca(ear.address, &ca, ""));
    let error = daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    daemon.wait_for_log(0, "a certificate is wanted", |line| {
        line.contains("WARN") && line.contains("does not accept the certificate")
    });
}

#[test]
fn a_server_without_tls_is_unreachable_and_a_silent_one_no_later_than_allowed() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.file(&folder, "ca.pem");
    let clear = Upstream::start(|_| Reply::json("200 OK", RESULT));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    for address in [clear.address, silent.local_addr().expect("an address")] {
        let config =
            with_ca(address, &ca, "").to_string().replace("eras =", "connect_timeout = \"300ms\"\neras =");
        let daemon = Daemon::start(&config);
        let started = std::time::Instant::now();
        daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
        assert!(started.elapsed() < std::time::Duration::from_secs(4), "{:?}", started.elapsed());
    }
}

#[test]
fn a_reload_believes_what_the_file_holds_now() {
    let (folder, old, new) = (Folder::new(), Authority::new(), Authority::new());
    let ca = old.file(&folder, "ca.pem");
    let upstream = Upstream::with_tools(&["echo"]);
    let ear = TlsEar::before(upstream.address, &new.issue(&["localhost"]), None);
    let config = with_ca(ear.address, &ca, "");
    let daemon = Daemon::start(&config);
    daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));

    // What cannot be used leaves all as it was.
    std::fs::write(&ca, "no certificate").expect("a file can be written");
    daemon.reload(&config);
    daemon.wait_for_log(0, "the file is refused", |line| line.contains("holds no certificate"));
    daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));

    std::fs::write(&ca, &new.pem).expect("a file can be written");
    daemon.reload(&config);
    eventually("the new authority is believed", || {
        (daemon.send(&call("7", "echo")).status == 200).then_some(())
    });

    // Who is believed no longer is spoken to no longer, on no connection that is open.
    std::fs::write(&ca, &old.pem).expect("a file can be written");
    daemon.reload(&config);
    eventually("the new authority is not believed", || {
        (daemon.send(&call("7", "echo")).status == 502).then_some(())
    });
}

#[test]
fn sessions_and_their_streams_cross() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let server = Legacy::new(Offer::tools(&["echo"])).with_streams();
    let upstream = server.start();
    let ear = TlsEar::before(upstream.address, &authority.issue(&["localhost"]), None);
    let config = with_ca(ear.address, &authority.file(&folder, "ca.pem"), "");
    let daemon = Daemon::start(&config.to_string().replace("\"modern\"", "\"legacy\""));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    let request = legacy("7", "tools/call", r#"{"name":"echo","arguments":{}}"#);
    daemon.send(&in_session(&session, request)).assert_ok();
    assert!(!ear.seen().is_empty());
    server.stream(1);
}

#[test]
fn settings_that_cannot_work_are_refused_at_start() {
    let folder = Folder::new();
    let key = folder.path().join("key.pem");
    write_secret(&key, "hunter2");
    let authority = Authority::new();
    let (chain, _) = authority.issue(&["gateway"]).files(&folder);
    for (tls, said) in [
        ("ca = \"/nowhere/ca.pem\"".to_owned(), "/nowhere/ca.pem"),
        (format!("certificate = {chain:?}, key = {{ file = {key:?} }}"), "not a private key"),
        (
            format!("certificate = {chain:?}, key = {{ env = \"TRUNKLINE_TEST_ABSENT\" }}"),
            "TRUNKLINE_TEST_ABSENT",
        ),
    ] {
        let config = self::tls("https://localhost:1/mcp", &format!("tls = {{ {tls} }}"));
        let (output, _) = crate::harness::trunkline(&["run"], Some(&config.to_string()));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("upstream up") && text.contains(said), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
