//! Clients on Unix sockets: `[listener] address = "unix:…"`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::harness::{Config, DEADLINE, Daemon, Folder, Request, Upstream, call, eventually, trunkline};

/// A configuration with a listener at `path` beside that of the harness.
fn with_socket(upstream: &Upstream, path: &Path, lines: &str) -> String {
    let first = "[listener]\naddress = \"127.0.0.1:0\"\n";
    let second = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = \"unix:{}\"\n{lines}\n",
        path.display()
    );
    Config::transparent(upstream).admin().to_string().replace(first, &second)
}

fn socket_in(folder: &Folder) -> PathBuf {
    folder.path().join("mcp.sock")
}

/// Sends bytes and a request that ends the connection, and reads all that comes back.
fn send(path: &Path, before: &[u8], request: &Request) -> String {
    let mut stream = UnixStream::connect(path).expect("the gateway accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.write_all(before).expect("written");
    stream.write_all(&request.clone().with("Connection", "close").bytes()).expect("written");
    let mut answer = Vec::new();
    // A refused connection may be reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(path: &Path, request: &Request) -> u16 {
    let answer = send(path, b"", request);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn clients_call_over_a_unix_socket() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let path = socket_in(&folder);
    let mut daemon = Daemon::start(&with_socket(&upstream, &path, "socket_mode = \"0660\""));
    let file = fs::metadata(&path).expect("a socket");
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o660);
    // As on loopback: names of localhost are served without being configured.
    assert_eq!(status(&path, &call("1", "echo").set("Host", "localhost")), 200);
    assert_eq!(status(&path, &call("1", "echo").set("Host", "evil.example")), 403);
    // Several requests on one connection, and one whose client has said its last word.
    let mut stream = UnixStream::connect(&path).expect("the gateway accepts");
    let request = call("1", "echo").set("Host", "localhost");
    stream.write_all(&request.bytes()).expect("written");
    stream.write_all(&request.with("Connection", "close").bytes()).expect("written");
    let mut answers = String::new();
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.read_to_string(&mut answers).expect("two answers");
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
    stream.shutdown(Shutdown::Both).ok();

    let shown = daemon.get_admin("/status").json()["listeners"].to_string();
    assert!(shown.contains(&format!("\"unix:{}\"", path.display())), "{shown}");
    assert!(daemon.log().iter().any(|line| line.contains(&format!("address=unix:{}", path.display()))));
    let refused = daemon.log().into_iter().find(|line| line.contains("reason=\"host\"")).expect("a line");
    assert!(refused.contains("client=unix") || refused.contains("client=\"unix\""), "{refused}");
    daemon.terminate();
    daemon.wait_exit();
    assert!(!path.exists(), "the file of the socket is removed");
}

#[test]
fn a_socket_of_the_dead_is_replaced_and_one_of_the_living_is_not() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let path = socket_in(&folder);
    drop(UnixListener::bind(&path).expect("bound"));
    let config = with_socket(&upstream, &path, "");
    let daemon = Daemon::start(&config);
    let inode = fs::metadata(&path).expect("a socket").ino();
    assert_eq!(fs::metadata(&path).expect("a socket").permissions().mode() & 0o777, 0o600);
    let (second, _) = trunkline(&["run"], Some(&config));
    assert_eq!(second.status.code(), Some(69), "{second:?}");
    assert_eq!(fs::metadata(&path).expect("a socket").ino(), inode);
    assert_eq!(status(&path, &call("1", "echo").set("Host", "localhost")), 200);
    drop(daemon);
}

#[test]
fn a_reload_adds_and_removes_a_socket() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let path = socket_in(&folder);
    let with = with_socket(&upstream, &path, "");
    let without = Config::transparent(&upstream).admin().to_string();
    let daemon = Daemon::start(&without);
    daemon.reload(&with);
    eventually("the socket is there", || path.exists().then_some(()));
    assert_eq!(status(&path, &call("1", "echo").set("Host", "localhost")), 200);
    daemon.reload(&without);
    eventually("the socket is gone", || (!path.exists()).then_some(()));
    daemon.send(&call("1", "echo")).assert_ok();
}

#[test]
fn a_reload_says_that_the_file_of_a_socket_stays_as_it_is() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let path = socket_in(&folder);
    let daemon = Daemon::start(&with_socket(&upstream, &path, ""));
    let from = daemon.log().len();
    daemon.reload(&with_socket(&upstream, &path, "socket_mode = \"0660\"\nsocket_group = \"0\""));
    daemon.wait_for_log(from, "both keys", |line| {
        line.contains("from the next start on: listener.socket_mode, listener.socket_group")
    });
    assert_eq!(fs::metadata(&path).expect("a socket").permissions().mode() & 0o777, 0o600);
    let from = daemon.log().len();
    daemon.reload(&with_socket(&upstream, &path, ""));
    daemon.wait_for_log(from, "the reload", |line| line.contains("reloaded"));
    assert!(!daemon.log()[from..].iter().any(|line| line.contains("from the next start on")));
}

#[test]
fn a_proxy_on_a_unix_socket_is_believed_where_it_is_trusted() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let path = socket_in(&folder);
    let limit = "[[limit]]\nname = \"each\"\nby = [\"address\"]\nrate = \"1/h\"\n[limits]";
    let config = |top: &str| {
        let config = with_socket(&upstream, &path, "");
        format!("{top}\n{}", config.replace("[limits]", limit))
    };
    let from = |client: &str| {
        status(&path, &call("1", "echo").set("Host", "localhost").with("X-Forwarded-For", client))
    };
    let daemon = Daemon::start(&config("trusted_proxies = [\"unix\"]"));
    assert_eq!((from("192.0.2.1"), from("192.0.2.1"), from("192.0.2.2")), (200, 429, 200));
    drop(daemon);
    // Of others, all clients of the socket are one, whatever they say.
    let _daemon = Daemon::start(&config("trusted_proxies = [\"127.0.0.0/8\"]"));
    assert_eq!((from("192.0.2.3"), from("192.0.2.4")), (200, 429));
}

#[test]
fn a_proxy_header_names_the_client() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let path = socket_in(&folder);
    let limit = "[[limit]]\nname = \"each\"\nby = [\"address\"]\nrate = \"1/h\"\n[limits]";
    let config = with_socket(&upstream, &path, "proxy_protocol = true").replace("[limits]", limit);
    let daemon = Daemon::start(&format!("trusted_proxies = [\"unix\"]\n{config}"));
    let request = call("1", "echo").set("Host", "localhost");
    let from = |last: u8| {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        header.extend([192, 0, 2, last, 127, 0, 0, 1, 0x12, 0x34, 0x1f, 0x90]);
        send(&path, &header, &request)
    };
    for (last, expected) in [(1, "HTTP/1.1 200"), (1, "HTTP/1.1 429"), (2, "HTTP/1.1 200")] {
        let answer = from(last);
        assert!(answer.starts_with(expected), "{last}: {answer}");
    }
    assert_eq!(send(&path, b"", &request), "", "without a header there is no answer");
    drop(daemon);
}

#[test]
fn keys_of_a_socket_are_for_sockets() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).listener("address = \"127.0.0.1:0\"\nsocket_mode = \"0660\"");
    let (output, _) = trunkline(&["check"], Some(&config.to_string()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`socket_mode` is for Unix sockets"), "{said}");
    let config = Config::transparent(&upstream).listener("address = \"unix:mcp.sock\"\nsocket_mode = \"rw\"");
    let (output, _) = trunkline(&["check"], Some(&config.to_string()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("not an absolute path: write for example \"unix:/run/trunkline/mcp.sock\""),
        "{said}"
    );
    assert!(said.contains("not the mode of a file"), "{said}");
}
