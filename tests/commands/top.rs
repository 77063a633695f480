//! `trunkline top` and `trunkline status`: what they say of a gateway, and how they leave.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Output;

use rustix::process::Signal;

use crate::harness::{
    Config, Daemon, Folder, Terminal, Upstream, call, eventually, refusing_address, trunkline,
};

const TALL: (u16, u16) = (100, 24);

fn at(address: SocketAddr) -> String {
    address.to_string()
}

fn status(arguments: &[&str]) -> Output {
    trunkline(&[&["status"], arguments].concat(), None).0
}

/// An address that nobody listens at, for whoever comes first.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn top(daemon: &Daemon) -> Terminal {
    Terminal::start(&["top", "--interval", "1", "--admin", &at(daemon.admin())], &[], TALL)
}

/// Answers every connection with these bytes, then closes it; with none, never.
fn answering(bytes: &'static [u8], times: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            for _ in 0..times {
                if stream.write_all(bytes).is_err() {
                    break;
                }
            }
            if bytes.is_empty() {
                kept.push(stream);
            }
        }
    });
    address
}

#[test]
fn the_state_is_told_in_words_and_as_json() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    daemon.send(&call("7", "echo")).assert_ok();
    let output = status(&["--admin", &at(daemon.admin())]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    for part in ["● healthy", "ENDPOINT", "/mcp", "UPSTREAM", "up ", "● up"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!said.contains('\u{1b}'), "no colours but on a terminal: {said:?}");
    let output = status(&["--json", "--admin", &at(daemon.admin())]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["endpoints"][0]["path"], "/mcp");
}

#[test]
fn what_is_wrong_is_said_and_an_exit_code() {
    let (address, _socket) = refusing_address();
    let config =
        Config::new().upstream("down", address, "breaker = { failures_max = 1, open_time = \"1m\" }").admin();
    let daemon = Daemon::start(&config);
    daemon.send(&call("7", "echo"));
    let said = crate::harness::eventually("the breaker opens", || {
        let output = status(&["--admin", &at(daemon.admin())]);
        daemon.send(&call("7", "echo"));
        (output.status.code() == Some(1)).then(|| text(&output.stdout))
    });
    assert!(
        said.contains("✗ upstream down  down: connect: refused") && said.contains("every call at /mcp fails"),
        "{said}"
    );
    let output = status(&["--json", "--admin", &at(daemon.admin())]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn the_listener_and_its_token_are_found() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (socket, token) = (folder.path().join("admin.sock"), folder.path().join("token"));
    fs::write(&token, "open sesame\n").unwrap();
    let address = free_address();
    let token = token.to_str().unwrap();
    let with = |admin: &str| Config::transparent(&upstream).section(&format!("[admin]\n{admin}"));
    let wanted = format!("address = \"{address}\"\ntoken = {{ file = \"{token}\" }}");
    let daemon = Daemon::start(&with(&wanted));
    let config = daemon.config().to_str().unwrap();
    assert_eq!(status(&["--config", config]).status.code(), Some(0), "all of it from the configuration");
    let output = status(&["--admin", &at(address), "--token-file", token]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = status(&["--admin", &at(address)]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("--token-file"), "{output:?}");

    let place = format!("unix:{}", socket.display());
    let daemon = Daemon::start(&with(&format!("address = \"{place}\"")));
    for arguments in [["--admin", &place], ["--config", daemon.config().to_str().unwrap()]] {
        let output = status(&arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn what_cannot_be_asked_is_said_with_what_to_do() {
    let without = Config::new().upstream("up", ([127, 0, 0, 1], 1).into(), "").to_string();
    let (output, _) = trunkline(&["status"], Some(&without));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("has no [admin]"), "{output:?}");
    let any_port = format!("{without}\n[admin]\naddress = \"127.0.0.1:0\"");
    let (output, _) = trunkline(&["status"], Some(&any_port));
    assert!(text(&output.stderr).contains("port 0"), "{output:?}");
    let (refusing, _socket) = refusing_address();
    let refusing = at(refusing);
    for (arguments, code, expected) in [
        (vec!["--admin", &refusing], 3, "is the gateway running?"),
        (vec!["--admin", "nowhere"], 2, "it has no port"),
        (vec!["--admin", "https://a:1"], 2, "no TLS"),
        (vec!["--admin", "unix:/nonexistent/admin.sock"], 3, "No such file"),
        (vec!["--admin", &refusing, "--token-file", "/nonexistent/token"], 2, "/nonexistent/token"),
    ] {
        let output = status(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn a_listener_that_lies_floods_or_hangs_is_an_error() {
    const FLOOD: &[u8] = &[b'x'; 65536];
    for (bytes, times, expected) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"[..], 1, "no JSON object"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{", 1, "broke off"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n\x1b[31m", 1, "status 404: \\u{1b}[31m"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", 1, "status 302"),
        (b"SSH-2.0-OpenSSH\r\n", 1, "no admin listener"),
        (FLOOD, 1000, "no admin listener"),
        (b"", 0, "no answer within 1 s"),
    ] {
        let address = answering(bytes, times);
        let output = status(&["--timeout", "1", "--admin", &at(address)]);
        assert_eq!(output.status.code(), Some(3), "{expected}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:?}");
    }
}

#[test]
fn top_shows_what_is_going_on_and_q_ends_it() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let mut terminal = top(&daemon);
    terminal.wait_for("● healthy");
    assert!(terminal.wait_for("UPSTREAM").contains("● up"));
    assert!(!terminal.is_as_before());
    terminal.keys("2");
    terminal.wait_for("ENDPOINT");
    terminal.keys("\r");
    terminal.wait_for("endpoint /mcp");
    terminal.keys("?");
    terminal.wait_for("Keys");
    terminal.keys("x");
    terminal.wait_gone("Keys");
    terminal.keys("\u{1b}");
    terminal.wait_for("/ filter");
    terminal.keys("/zzz");
    terminal.wait_for("nothing has");
    terminal.keys("\rq");
    assert_eq!(terminal.wait_exit().code(), Some(0));
    assert!(terminal.is_as_before());
}

#[test]
fn the_terminal_is_given_back_whatever_ends_it() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    for signal in [Some(Signal::TERM), Some(Signal::HUP), Some(Signal::INT), None] {
        let mut terminal = top(&daemon);
        terminal.wait_for("● healthy");
        match signal {
            Some(signal) => terminal.signal(signal),
            None => terminal.keys("\u{3}"),
        }
        assert_eq!(terminal.wait_exit().code(), Some(0), "{signal:?}");
        assert!(terminal.is_as_before(), "{signal:?}");
        // What it wrote last may be read only now.
        eventually("the screen and the cursor are back", || {
            let left = terminal.bytes();
            let has = |sequence: &[u8]| left.windows(sequence.len()).any(|window| window == sequence);
            (has(b"\x1b[?1049l") && has(b"\x1b[?25h")).then_some(())
        });
    }
}

#[test]
fn a_gateway_that_goes_and_comes_back_is_followed() {
    let upstream = Upstream::with_tools(&["echo"]);
    let admin = free_address();
    let config = Config::transparent(&upstream).section(&format!("[admin]\naddress = \"{admin}\""));
    let mut daemon = Daemon::start(&config);
    let terminal = Terminal::start(&["top", "--interval", "1", "--admin", &at(admin)], &[], TALL);
    terminal.wait_for("● healthy");
    daemon.kill();
    let screen = terminal.wait_for("✗ unreachable for");
    assert!(screen.contains("trying again") && screen.contains("● up"), "what was known stays: {screen}");
    let _again = Daemon::start(&config);
    terminal.wait_for("● healthy");
}

#[test]
fn a_terminal_may_change_its_size() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let mut terminal = top(&daemon);
    terminal.wait_for("● healthy");
    for size in [(20, 5), (1, 1), (200, 50)] {
        terminal.resize(size);
    }
    terminal.wait_for("REPLICAS");
    terminal.keys("q");
    assert_eq!(terminal.wait_exit().code(), Some(0));
}

#[test]
fn a_key_counts_that_is_typed_while_the_size_changes() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let mut terminal = top(&daemon);
    terminal.wait_for("● healthy");
    // The signal and the key come so close to each other that one look at the terminal's events finds both.
    for round in 0..100 {
        // Each a column that the other table does not have.
        let (columns, key, shown) =
            if round % 2 == 0 { (199, "2", "UPSTREAMS") } else { (200, "1", "REPLICAS") };
        for rows in [49, 48, 50] {
            terminal.resize((columns, rows));
        }
        terminal.keys(key);
        terminal.wait_for(shown);
    }
    terminal.keys("q");
    assert_eq!(terminal.wait_exit().code(), Some(0));
}

#[test]
fn top_goes_on_after_a_pause() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let mut terminal = top(&daemon);
    terminal.wait_for("● healthy");
    // A process that no shell would continue is not stopped: it gives the terminal back and takes it again.
    terminal.keys("\u{1a}");
    eventually("the terminal is taken again", || {
        let bytes = terminal.bytes();
        let taken = bytes.windows(8).filter(|window| window == b"\x1b[?1049h").count();
        (taken > 1).then_some(())
    });
    terminal.signal(Signal::CONT);
    terminal.keys("2");
    terminal.wait_for("ENDPOINT");
    terminal.keys("q");
    assert_eq!(terminal.wait_exit().code(), Some(0));
    assert!(terminal.is_as_before());
}

#[test]
fn a_signal_to_stop_leaves_the_shell_its_terminal() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let admin = at(daemon.admin());
    let stops: [fn(&mut Terminal); 2] =
        [|terminal| terminal.signal_job(Signal::TSTP), |terminal| terminal.keys("\u{1a}")];
    for stop in stops {
        let mut terminal = Terminal::start_as_job(&["top", "--interval", "1", "--admin", &admin], TALL);
        terminal.wait_for("● healthy");
        stop(&mut terminal);
        terminal.wait_for("the shell has it");
        assert!(terminal.is_as_before());
        assert!(String::from_utf8_lossy(&terminal.bytes()).contains("\x1b[?1049l"));
        terminal.keys("\n");
        eventually("the terminal is taken again", || (!terminal.is_as_before()).then_some(()));
        terminal.keys("2");
        terminal.wait_for("ENDPOINT");
        terminal.keys("q");
        assert_eq!(terminal.wait_exit().code(), Some(0));
        assert!(terminal.is_as_before());
    }
}

#[test]
fn json_is_nothing_that_a_terminal_obeys() {
    const ANSWER: &[u8] =
        "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{\"version\":\t\"\u{9b}2J\u{202e}\u{7f}\",\r\"a\":1}"
            .as_bytes();
    let output = status(&["--json", "--admin", &at(answering(ANSWER, 1))]);
    let told = text(&output.stdout);
    assert_eq!(told, "{\"version\": \"\\u009b2J\\u202e\\u007f\", \"a\":1}\n", "{output:?}");
}

#[test]
fn colours_are_for_those_who_want_them() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let admin = at(daemon.admin());
    // Green: by number of the terminal's own colours, or of 256.
    let is_green = |bytes: &[u8]| {
        let drawn = String::from_utf8_lossy(bytes).into_owned();
        ["\u{1b}[32", "38;5;2", ";32"].iter().any(|sequence| drawn.contains(sequence))
    };
    for (environment, expected) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        for command in ["top", "status"] {
            let terminal = Terminal::start(&[command, "--admin", &admin], environment, TALL);
            terminal.wait_for("UPSTREAM");
            assert_eq!(is_green(&terminal.bytes()), expected, "{command} {environment:?}");
        }
    }
}

#[test]
fn without_a_terminal_top_names_status() {
    let output = trunkline(&["top", "--admin", "127.0.0.1:1"], None).0;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("trunkline status"), "{output:?}");
    let mut terminal = Terminal::start(&["top", "--admin", "127.0.0.1:1"], &[("TERM", "dumb")], TALL);
    terminal.wait_for("trunkline status");
    assert_eq!(terminal.wait_exit().code(), Some(1));
    let (refusing, _socket) = refusing_address();
    let mut terminal = Terminal::start(&["top", "--admin", &at(refusing)], &[], TALL);
    terminal.wait_for("is the gateway running?");
    assert_eq!(terminal.wait_exit().code(), Some(3));
}
