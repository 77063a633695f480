//! Proxies before the gateway: PROXY headers, `Forwarded` and `X-Forwarded-For`, and who is believed.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::harness::{
    Authority, Certificates, Config, Connection, Daemon, LEGACY_VERSION, Legacy, Offer, Request, TlsClient,
    Upstream, call, eventually, initialize,
};

type Headers<'h> = &'h [(&'h str, &'h str)];

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A PROXY header of version 2.
fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("short");
    [SIGNATURE, &[command, family], &length.to_be_bytes(), rest].concat()
}

/// The header of a connection from 192.0.2.LAST, port 4711.
fn from(last: u8) -> Vec<u8> {
    header(0x21, 0x11, &[192, 0, 2, last, 10, 0, 0, 1, 0x12, 0x67, 1, 187])
}

fn gateway(upstream: &Upstream, limits: &str) -> Daemon {
    let config = Config::transparent(upstream)
        .top("trusted_proxies = [\"127.0.0.1\"]")
        .listener("address = \"127.0.0.1:0\"\nproxy_protocol = true")
        .limits(limits)
        .admin();
    Daemon::start(&config)
}

/// Sends a request that is refused, and returns the address in the log line about it.
fn logged_client(daemon: &Daemon, connection: &mut Connection, request: &Request) -> String {
    let before = daemon.log().len();
    connection.write(&request.clone().body("{").bytes());
    assert_eq!(connection.response().status, 400);
    let line = daemon.wait_for_log(before, "the refusal", |line| line.contains("call refused"));
    let (_, after) = line.split_once(" client=").expect("the client is named");
    after.split(' ').next().unwrap_or_default().to_owned()
}

fn refused(daemon: &Daemon, reason: &str) -> u64 {
    daemon.metric(&format!("trunkline_proxied_connections_refused_total{{reason=\"{reason}\"}}"))
}

#[test]
fn the_header_says_who_the_client_is() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = gateway(&upstream, "");
    let source = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[7], &[0; 16], &[0x12, 0x67, 1, 187]].concat();
    let with_tlvs =
        [&[192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 187][..], &[4, 4, 0], &[b'x'; 1024]].concat();
    let cases = [
        (from(7), "192.0.2.7:4711"),
        (header(0x21, 0x21, &source), "[2001:db8::7]:4711"),
        (header(0x21, 0x11, &with_tlvs), "192.0.2.7:4711"),
        (header(0x20, 0x00, &[]), "127.0.0.1:"),
        (header(0x20, 0x11, &[192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 187]), "127.0.0.1:"),
        (header(0x21, 0x00, &[]), "127.0.0.1:"),
    ];
    for (bytes, expected) in cases {
        let mut connection = daemon.connect();
        connection.write(&bytes);
        let client = logged_client(&daemon, &mut connection, &call("7", "echo"));
        assert!(client.starts_with(expected), "{client} is not {expected}");
        connection.write(&call("7", "echo").bytes());
        connection.response().assert_ok();
    }
    let mut in_pieces = daemon.connect();
    for byte in from(9) {
        in_pieces.write(&[byte]);
    }
    assert_eq!(logged_client(&daemon, &mut in_pieces, &call("7", "echo")), "192.0.2.9:4711");
}

#[test]
fn limits_are_those_of_the_client() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = gateway(&upstream, "connections_per_address_max = 2");
    let open = |last: u8| {
        let mut connection = daemon.connect();
        connection.write(&from(last));
        connection.write(&call("7", "echo").bytes());
        connection
    };
    let mut held: Vec<Connection> = [7, 7, 8, 8].into_iter().map(open).collect();
    for connection in &mut held {
        connection.response().assert_ok();
    }
    open(7).wait_closed();
    open(9).response().assert_ok();
    drop(held);
    eventually("there is room again", || open(7).try_response().ok());
}

#[test]
fn without_a_right_header_nothing_is_served() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = gateway(&upstream, "handshake_timeout = \"15s\"");
    let request = call("7", "echo").bytes();
    let cases: [(&str, Vec<u8>); 6] = [
        ("none", Vec::new()),
        ("version 1", b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n".to_vec()),
        ("version 3", header(0x31, 0x11, &[0; 12])),
        ("over UDP", header(0x21, 0x12, &[0; 12])),
        ("addresses that are too short", header(0x21, 0x11, &[0; 11])),
        ("a very long one", header(0x21, 0x11, &[0; 5000])),
    ];
    for (what, bytes) in &cases {
        let mut connection = daemon.connect();
        connection.write(&[bytes.as_slice(), &request].concat());
        assert!(connection.wait_closed().is_empty(), "{what}");
    }
    assert_eq!(refused(&daemon, "invalid"), cases.len() as u64);
    assert!(upstream.forwarded().is_empty());
}

#[test]
fn a_header_must_come_in_time() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = gateway(&upstream, "handshake_timeout = \"400ms\"");
    for sent in [0, 5, 20] {
        let started = Instant::now();
        let mut connection = daemon.connect();
        connection.write(&from(7)[..sent]);
        connection.wait_closed();
        assert!(started.elapsed() < Duration::from_secs(8), "{sent}");
    }
    eventually("they are counted", || (refused(&daemon, "timeout") == 3).then_some(()));
}

#[test]
fn only_proxies_may_connect() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = gateway(&upstream, "");
    let mut stranger = Connection::open_from(Ipv4Addr::new(127, 0, 0, 2).into(), daemon.address());
    stranger.write(&from(7));
    stranger.write(&call("7", "echo").bytes());
    assert!(stranger.wait_closed().is_empty());
    assert_eq!(refused(&daemon, "untrusted"), 1);
    assert!(upstream.forwarded().is_empty());
}

#[test]
fn tls_follows_the_header() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (authority, files) = (Authority::new(), Certificates::new());
    let entry = files.add("server", &authority.issue(&["localhost"]));
    let listener =
        format!("address = \"127.0.0.1:0\"\nproxy_protocol = true\n[listener.tls]\ncertificates = [{entry}]");
    let config = Config::transparent(&upstream)
        .top("trusted_proxies = [\"127.0.0.1\"]")
        .limits("handshakes_per_address_max = 1\nhandshake_timeout = \"20s\"")
        .listener(&listener);
    let daemon = Daemon::start(&config);
    let client = TlsClient::new(&authority);
    let connect = |last: u8| {
        let mut connection = daemon.connect();
        connection.write(&from(last));
        client.try_over(connection.into_socket(), "localhost")
    };
    let mut connection = connect(7).expect("a handshake");
    assert_eq!(logged_client(&daemon, &mut connection, &call("7", "echo")), "192.0.2.7:4711");
    // Handshakes are counted by client, not by proxy.
    let _silent = eventually("the silent one is counted", || {
        let mut silent = daemon.connect();
        silent.write(&from(8));
        // Of the two the first to be looked at is let in.
        connect(8).is_err().then_some(silent)
    });
    assert!(connect(9).is_ok());
    assert!(client.try_connect(daemon.address(), "localhost").is_err(), "TLS without a header before it");
}

#[test]
fn forwarded_addresses_are_believed_from_proxies_alone() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).top("trusted_proxies = [\"127.0.0.1/32\", \"10.0.0.0/8\"]");
    let daemon = Daemon::start(&config);
    let proxy: IpAddr = Ipv4Addr::LOCALHOST.into();
    let stranger: IpAddr = Ipv4Addr::new(127, 0, 0, 2).into();
    let (x, f) = ("X-Forwarded-For", "Forwarded");
    let cases: [(IpAddr, Headers<'_>, &str); 8] = [
        (proxy, &[(x, "203.0.113.9, 192.0.2.7, 10.1.1.1")], "192.0.2.7"),
        (proxy, &[(f, "for=\"[2001:db8::7]:4711\";proto=https")], "2001:db8::7"),
        (proxy, &[(x, "192.0.2.7"), (f, "for=203.0.113.9")], "127.0.0.1:"),
        (proxy, &[(x, "192.0.2.7, nonsense")], "127.0.0.1:"),
        (proxy, &[("X-Real-IP", "192.0.2.7")], "127.0.0.1:"),
        (proxy, &[], "127.0.0.1:"),
        (stranger, &[(x, "192.0.2.7")], "127.0.0.2:"),
        (stranger, &[(f, "for=192.0.2.7")], "127.0.0.2:"),
    ];
    for (peer, headers, expected) in cases {
        let request =
            headers.iter().fold(call("7", "echo"), |request, (name, value)| request.with(name, value));
        let mut connection = Connection::open_from(peer, daemon.address());
        let client = logged_client(&daemon, &mut connection, &request);
        assert!(client.starts_with(expected), "{headers:?}: {client} is not {expected}");
        connection.write(&request.bytes());
        connection.response().assert_ok();
    }
    for received in upstream.received_of("tools/call") {
        for name in ["x-forwarded-for", "forwarded", "x-real-ip"] {
            assert!(received.headers(name).is_empty(), "{name} went on to the server");
        }
    }
}

#[test]
fn many_clients_of_one_proxy_are_limited_one_by_one() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let config = Config::new()
        .upstream("up", upstream.address, "eras = [\"legacy\"]")
        .top("trusted_proxies = [\"127.0.0.1\"]")
        .limits("connections_per_address_max = 1")
        .section("[session]\ninitialize_rate_max = 1");
    let daemon = Daemon::start(&config);
    let mut connections: Vec<Connection> = (0..2).map(|_| daemon.connect()).collect();
    let mut open = |number: usize, client: &str| {
        let connection = &mut connections[number % 2];
        connection.write(&initialize("1", LEGACY_VERSION).with("X-Forwarded-For", client).bytes());
        connection.response().json()["error"]["data"]["retryAfterMs"].is_number()
    };
    for client in 1..=20 {
        assert!(!open(client, &format!("192.0.2.{client}")), "each has a rate of its own");
    }
    assert!((0..500).any(|number| open(number, "192.0.2.77")), "one has it on all connections together");
}
