//! The listener for metrics alone: `[metrics] address`.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use crate::harness::{Config, Connection, Daemon, Folder, Response, Upstream, eventually, write_secret};

const OPEN: &str = "[metrics]\naddress = \"127.0.0.1:0\"";

/// Where the listener is that the log spoke of last, after this many lines.
fn place(daemon: &Daemon, from: usize) -> SocketAddr {
    let line = daemon.wait_for_log(from, "the listener", |line| line.contains("metrics listening"));
    let (_, address) = line.rsplit_once("address=").expect("an address");
    address.parse().expect("an address")
}

fn ask(at: SocketAddr, first: &str, lines: &str) -> Response {
    let mut connection = Connection::open(at);
    let host = if lines.starts_with("Host:") { "" } else { "Host: localhost\r\n" };
    connection.write(format!("{first} HTTP/1.1\r\n{host}{lines}\r\n").as_bytes());
    connection.response()
}

#[test]
fn it_has_metrics_and_nothing_else() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin().section(OPEN));
    let at = place(&daemon, 0);
    let metrics = ask(at, "GET /metrics", "");
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").unwrap_or_default().starts_with("text/plain; version=0.0.4"));
    assert!(metrics.text().contains("\ntrunkline_build_info{"), "{}", metrics.text());
    for path in ["/", "/status", "/status/history", "/status/tools", "/livez", "/readyz", "/mcp", "/metrics/"]
    {
        assert_eq!(ask(at, &format!("GET {path}"), "").status, 404, "{path}");
    }
    for path in ["/reload", "/drain", "/log-level"] {
        let posted =
            ask(at, &format!("POST {path}"), "Content-Type: application/json\r\nContent-Length: 0\r\n");
        assert_eq!(posted.status, 404, "{path}");
    }
    assert_eq!(ask(at, "POST /metrics", "Content-Length: 0\r\n").status, 405);
    // By the rules of the admin listener: not for pages of others.
    assert_eq!(ask(at, "GET /metrics", "Origin: https://evil.example\r\n").status, 403);
    assert_eq!(ask(at, "GET /metrics", "Host: evil.example\r\n").status, 403);
    // The token of the one is not that of the other: the admin listener is as it was.
    assert_eq!(daemon.get_admin("/metrics").status, 200);
}

#[test]
fn it_asks_for_its_token() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let token = folder.path().join("token");
    write_secret(&token, "swordfish");
    let section = format!("{OPEN}\ntoken = {{ file = \"{}\" }}", token.display());
    let config = Config::transparent(&upstream).section(&section);
    let daemon = Daemon::start(&config);
    let at = place(&daemon, 0);
    for (shown, status) in [
        ("", 401),
        ("Authorization: Bearer marlin\r\n", 401),
        ("Authorization: Bearer swordfish\r\n", 200),
        ("Host: metrics.example\r\nAuthorization: Bearer swordfish\r\n", 200),
    ] {
        assert_eq!(ask(at, "GET /metrics", shown).status, status, "{shown}");
    }
    fs::write(&token, "marlin").expect("the token can be written");
    let from = daemon.log().len();
    daemon.reload(&config);
    daemon.wait_for_log(from, "the reload", |line| line.contains(" reloaded "));
    assert_eq!(ask(at, "GET /metrics", "Authorization: Bearer swordfish\r\n").status, 401);
    assert_eq!(ask(at, "GET /metrics", "Authorization: Bearer marlin\r\n").status, 200);
}

#[test]
fn a_reload_moves_it() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream);
    let daemon = Daemon::start(&config);
    let from = daemon.log().len();
    daemon.reload(&config.clone().section(OPEN));
    let first = place(&daemon, from);
    assert_eq!(ask(first, "GET /metrics", "").status, 200);
    let mut kept = Connection::open(first);
    let get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    kept.write(get);
    assert_eq!(kept.response().status, 200);

    let from = daemon.log().len();
    daemon.reload(&config.clone().section("[metrics]\naddress = \"[::1]:0\""));
    let second = place(&daemon, from);
    assert_eq!(ask(second, "GET /metrics", "").status, 200);
    eventually("the first is closed", || TcpStream::connect(first).is_err().then_some(()));
    kept.write(get);
    assert_eq!(kept.response().status, 404, "what is still connected there is not served");

    daemon.reload(&config);
    eventually("the second is closed", || TcpStream::connect(second).is_err().then_some(()));
}

#[test]
fn a_reload_to_an_address_that_is_taken_changes_nothing() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream);
    let daemon = Daemon::start(&config.clone().section(OPEN));
    let at = place(&daemon, 0);
    let from = daemon.log().len();
    let taken = upstream.address;
    daemon.write_config(&config.section(&format!("[metrics]\naddress = \"{taken}\"")));
    daemon.hangup();
    daemon.wait_for_log(from, "the refusal", |line| {
        line.contains("not reloaded") && line.contains(&format!("cannot listen at {taken}"))
    });
    assert_eq!(ask(at, "GET /metrics", "").status, 200);
}
