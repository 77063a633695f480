//! Log lines: one per refused or failed call, with the reason, without secrets, in every form and place.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use serde_json::Value;

use crate::harness::{
    Config, Daemon, Folder, Request, Upstream, api_key, call, eventually, legacy, refusing_address, trunkline,
};

/// Calls that are refused or fail, and a word of the reason that their line must hold.
fn troubled() -> Vec<(&'static str, Request)> {
    vec![
        ("-32020", call("7", "files__echo").set("Mcp-Name", "files__other")),
        ("-32700", call("7", "files__echo").body("{")),
        ("-32602", call("7", "nosuch__echo")),
        ("415", call("7", "files__echo").set("Content-Type", "text/plain")),
        ("403", call("7", "files__echo").with("Origin", "https://evil.example")),
        ("502", call("7", "weather__forecast")),
    ]
}

#[test]
fn refused_and_failed_calls_leave_one_line_with_the_reason() {
    for format in ["text", "json", "logfmt"] {
        let files = Upstream::with_tools(&["echo"]);
        let (dead, _socket) = refusing_address();
        let config = Config::new()
            .upstream("files", files.address, "")
            .upstream("weather", dead, "")
            // Whether a bare name exists would depend on the dead upstream.
            .endpoint("accept_unprefixed = false")
            .section(&format!("[log]\nformat = \"{format}\""));
        let daemon = Daemon::start(&config);
        for (reason, request) in troubled() {
            let before = daemon.log().len();
            // A second one, so that everything the first had to say has been said.
            daemon.send(&request);
            daemon.send(&request);
            daemon.wait_for_log(before, reason, |line| says(line, reason));
            let told = eventually("both calls are in the log", || {
                let told = daemon.log()[before..].iter().filter(|line| says(line, reason)).count();
                (told >= 2).then_some(told)
            });
            assert_eq!(told, 2, "{reason}: one line a call: {:?}", daemon.log());
        }
        if format == "json" {
            for line in daemon.log() {
                let json: Value =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert!(json["timestamp"].is_string() && json["level"].is_string(), "{line}");
                assert!(json["fields"]["message"].is_string(), "{line}");
            }
        }
    }
}

/// Whether the line holds this word, as a word: digits inside a time or a port do not count.
fn says(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|found| found == word)
}

#[test]
fn a_call_that_went_well_leaves_no_line() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let before = daemon.log().len();
    daemon.send(&call("7", "echo")).assert_ok();
    daemon.send(&call("8", "echo").set("Mcp-Name", "other")).assert_error(400, -32020, Some("8"));
    daemon.wait_for_log(before, "the refusal", |line| says(line, "-32020"));
    assert_eq!(daemon.log().len(), before + 1, "{:?}", daemon.log());
}

#[test]
fn a_failed_call_names_its_upstream() {
    let files = Upstream::with_tools(&["echo"]);
    let (dead, _socket) = refusing_address();
    let config = Config::new().upstream("files", files.address, "").upstream("weather", dead, "");
    let daemon = Daemon::start(&config);
    let before = daemon.log().len();
    daemon.send(&call("7", "weather__forecast"));
    daemon.wait_for_log(before, "the failing upstream by name", |line| {
        says(line, "502") && says(line, "weather")
    });
}

const KEY: &str = "a-secret-key-0123456789abcdefghijklmnop";

/// A gateway that says all it can say, in this format.
fn talkative(format: &str) -> (Daemon, Upstream) {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream)
        .endpoint("deny = [\"*denied*\"]")
        .section(&api_key("ci", KEY))
        .section(&format!("[log]\nformat = \"{format}\"\nlevel = \"trace\""));
    (Daemon::start(&config), upstream)
}

fn with_key(request: &Request) -> Request {
    request.clone().with("Authorization", format!("Bearer {KEY}"))
}

/// A name with a line end and an escape sequence: `denied\n2026 FORGED \x1b[31m`.
fn assert_no_forged_line(format: &str) {
    let (daemon, _upstream) = talkative(format);
    let before = daemon.log().len();
    let name = "=?base64?ZGVuaWVkCjIwMjYgRk9SR0VEIBtbMzFt?=";
    let forged = call("7", r"denied\n2026 FORGED \u001b[31m").set("Mcp-Name", name);
    daemon.send(&with_key(&forged)).assert_error(200, -32602, Some("7"));
    daemon.wait_for_log(before, "the refusal", |line| says(line, "-32602"));
    daemon.send(&call("8", "echo"));
    daemon.wait_for_log(before, "the next refusal", |line| says(line, "401"));
    for line in &daemon.log()[before..] {
        assert!(!line.trim_start().starts_with("2026 FORGED"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
}

#[test]
fn a_name_forges_no_line_of_text() {
    assert_no_forged_line("text");
}

#[test]
fn a_name_forges_no_line_of_json() {
    assert_no_forged_line("json");
}

#[test]
fn a_name_forges_no_line_of_logfmt() {
    assert_no_forged_line("logfmt");
}

#[test]
fn what_nobody_sees_is_spelled_out() {
    for format in ["text", "json", "logfmt"] {
        let (daemon, _upstream) = talkative(format);
        let before = daemon.log().len();
        // `denied`, a zero-width space, a word joiner, a direction mark and a Unicode tag.
        let hidden = ['\u{200b}', '\u{2060}', '\u{202e}', '\u{e0041}'];
        let name: String =
            ["denied"].into_iter().map(str::to_owned).chain(hidden.map(String::from)).collect();
        let encoded = format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(&name));
        let request = call("7", &name).set("Mcp-Name", encoded);
        daemon.send(&with_key(&request)).assert_error(200, -32602, Some("7"));
        let line = daemon.wait_for_log(before, "the refusal", |line| says(line, "-32602"));
        for character in hidden {
            // As JSON has it: of two halves where one is not enough.
            let mut spelled = String::new();
            for half in character.to_string().encode_utf16() {
                let _ = write!(spelled, "\\u{half:04x}");
            }
            assert!(line.contains(&spelled) && !line.contains(character), "{format}, {spelled}: {line:?}");
        }
    }
}

#[test]
fn secrets_stay_out_of_the_log() {
    for format in ["text", "json", "logfmt"] {
        let (daemon, _upstream) = talkative(format);
        let before = daemon.log().len();
        let password = r#""arguments":{"password":"hunter2"}"#;
        let good = with_key(&call("7", "echo")).replacing(r#""arguments":{}"#, password);
        daemon.send(&good).assert_ok();
        daemon.send(&good.clone().set("Mcp-Name", "x")).assert_error(400, -32020, Some("7"));
        daemon.send(&good.clone().body(&good.body[..good.body.len() - 1])).assert_error(400, -32700, None);
        let foreign =
            good.set("Authorization", "Bearer another-secret-0123456789").with("Cookie", "session=my-cookie");
        assert_eq!(daemon.send(&foreign).status, 401);
        daemon.wait_for_log(before, "the refusals", |line| says(line, "401"));
        for line in daemon.log() {
            for secret in [KEY, "another-secret", "hunter2", "my-cookie"] {
                assert!(!line.contains(secret), "{line}");
            }
        }
    }
}

#[test]
fn a_flood_of_refusals_does_not_flood_the_log() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).section("[log]\nrefusals_per_second_max = 10");
    let daemon = Daemon::start(&config);
    let started = std::time::Instant::now();
    let before = daemon.log().len();
    let mut connection = daemon.connect();
    for _ in 0..300 {
        connection.write(&call("7", "echo").with("Mcp-Name", "echo").bytes());
        connection.response().assert_error(400, -32020, Some("7"));
    }
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap() + 2;
    let lines = daemon.log().len() - before;
    assert!(lines <= 12 * seconds, "{lines} lines in {seconds} s");
    assert!(lines >= 1);
}

#[test]
fn the_journal_gets_severities_and_no_time() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = Config::transparent(&upstream).listener(&format!("address = \"{address}\""));
    let path = folder.path().join("trunkline.toml");
    let log = folder.path().join("stderr");
    let file = fs::File::create(&log).unwrap();
    let found = file.metadata().unwrap();
    for (is_asked_for, stream, is_journal) in [
        ("", format!("{}:{}", found.dev(), found.ino()), true),
        ("", format!("{}:{}", found.dev(), found.ino() + 1), false),
        ("journal = true", String::new(), true),
        ("journal = false", format!("{}:{}", found.dev(), found.ino()), false),
    ] {
        fs::write(&path, config.clone().section(&format!("[log]\n{is_asked_for}")).to_string()).unwrap();
        file.set_len(0).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
            .args(["run", "--config"])
            .arg(&path)
            .env("JOURNAL_STREAM", &stream)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let text = eventually("it is ready", || {
            fs::read_to_string(&log).ok().filter(|text| text.contains(" ready "))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let said = text.lines().find(|line| line.contains(" ready ")).unwrap();
        assert_eq!(said.starts_with("<6>trunkline_gateway::runtime: ready version="), is_journal, "{said}");
        assert_eq!(
            text.contains("<4>trunkline"),
            is_journal,
            "the warning about the state directory: {text}"
        );
    }
}

#[test]
fn the_level_and_the_form_change_with_a_reload() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = |log: &str| Config::transparent(&upstream).admin().section(&format!("[log]\n{log}"));
    let daemon = Daemon::start(&config(""));
    let refused = || {
        daemon.send(&call("8", "echo").set("Mcp-Name", "other")).assert_error(400, -32020, Some("8"));
    };
    refused();
    daemon.wait_for_log(0, "the refusal", |line| says(line, "-32020"));
    let before = daemon.log().len();
    daemon.reload(&config("level = \"warn\""));
    // The reload itself is told at `info`.
    let reloaded = "trunkline_reloads_total{result=\"ok\"} 1";
    eventually("the reload", || daemon.get_admin("/metrics").text().contains(reloaded).then_some(()));
    refused();
    daemon.reload(&config("format = \"logfmt\""));
    daemon.wait_for_log(before, "reloaded", |line| line.contains("msg=reloaded"));
    assert!(!daemon.log()[before..].iter().any(|line| says(line, "-32020")), "{:?}", daemon.log());
    let before = daemon.log().len();
    refused();
    let line = daemon.wait_for_log(before, "the refusal", |line| says(line, "-32020"));
    assert!(line.starts_with("time=") && line.contains("level=info target=trunkline_gateway::"), "{line}");
}

#[test]
fn lines_go_to_a_file_that_must_be_there_at_the_start() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let config = |path: &str| {
        Config::transparent(&upstream)
            .section(&format!("[log]\nfile = \"{}/{path}\"", folder.path().display()))
    };
    let (output, _) = trunkline(&["run"], Some(&config("nowhere/trunkline.log").to_string()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("nowhere/trunkline.log: No such file"), "{said}");
    let daemon = Daemon::start(&Config::transparent(&upstream));
    daemon.reload(&config("trunkline.log"));
    let path = folder.path().join("trunkline.log");
    let read = || fs::read_to_string(&path).unwrap_or_default();
    eventually("the reload is told in the new place", || read().contains("reloaded").then_some(()));
    daemon.send(&call("8", "echo").set("Mcp-Name", "other"));
    eventually("the refusal", || read().lines().any(|line| says(line, "-32020")).then_some(()));
    assert!(!daemon.log().iter().any(|line| says(line, "-32020")), "{:?}", daemon.log());
    // Its directory is gone: what is open is kept.
    let (moved, before) = (folder.path().with_extension("moved"), read().lines().count());
    fs::rename(folder.path(), &moved).unwrap();
    daemon.reload(&config("trunkline.log"));
    eventually("why it is not opened anew", || {
        let text = fs::read_to_string(moved.join("trunkline.log")).unwrap();
        text.lines().skip(before).any(|line| line.contains("the old one is kept")).then_some(())
    });
    fs::rename(&moved, folder.path()).unwrap();
}

#[test]
fn a_refused_call_says_what_it_was_about_wherever_that_can_be_seen() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream)
        .section(&api_key("ci", KEY))
        .section("[[limit]]\nname = \"few\"\nby = [\"principal\"]\nrate = \"1/h\"");
    let daemon = Daemon::start(&config);
    let in_headers = call("1", "echo").body("{");
    let in_body = legacy("1", "tools/call", r#"{"name":"echo","arguments":{}}"#);
    daemon.send(&with_key(&call("1", "echo"))).assert_ok();
    for (request, reason) in [
        (in_headers.clone(), "credentials"),
        (in_body.clone(), "credentials"),
        (with_key(&in_headers), "rate"),
        (with_key(&in_body), "rate"),
    ] {
        let from = daemon.log().len();
        assert!(daemon.send(&request).text().contains("\"error\""));
        let line = daemon.wait_for_log(from, reason, |line| line.contains("call refused"));
        assert!(line.contains(&format!("reason=\"{reason}\"")), "{line}");
        assert!(line.contains("method=\"tools/call\" name=\"echo\""), "{line}");
    }
}
