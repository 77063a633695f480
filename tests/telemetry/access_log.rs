//! The access log: one line for each call, with what it came to.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Config, Daemon, Folder, Reply, Request, Upstream, api_key, call, eventually, list};

const KEY: &str = "a-secret-key-0123456789abcdefghijklmnop";

/// A gateway whose access log is a file in JSON; `lines` are further keys of it.
fn logging(upstream: &Upstream, folder: &Folder, lines: &str) -> (Config, PathBuf) {
    let path = folder.path().join("access.log");
    let section = format!("[log.access]\nformat = \"json\"\nfile = \"{}\"\n{lines}", path.display());
    (Config::transparent(upstream).section(&section), path)
}

/// Waits for so many lines.
fn lines_of(path: &Path, count: usize) -> Vec<Value> {
    let text = eventually("the calls are in the access log", || {
        let text = fs::read_to_string(path).ok()?;
        (text.lines().count() >= count).then_some(text)
    });
    assert!(text.ends_with('\n') && text.lines().count() == count, "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn a_line_says_what_a_call_was_and_what_became_of_it() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let (config, path) = logging(&upstream, &folder, "");
    let daemon = Daemon::start(&config.section(&api_key("ci", KEY)));
    let with_key = |request: Request| request.with("Authorization", format!("Bearer {KEY}"));
    let good = with_key(call("7", "echo")).with("X-Request-Id", "mine-1");
    let answer = daemon.send(&good);
    answer.assert_ok();
    let line = lines_of(&path, 1).remove(0);
    for (key, expected) in [
        ("request_id", "mine-1".into()),
        ("client", "127.0.0.1".into()),
        ("principal", "ci".into()),
        ("endpoint", "/mcp".into()),
        ("method", "tools/call".into()),
        ("name", "echo".into()),
        ("upstream", "up".into()),
        ("version", "2026-07-28".into()),
        ("status", 200.into()),
        ("error", Value::Null),
        ("trace_id", Value::Null),
        ("request_bytes", good.body.len().into()),
        ("reply_bytes", answer.body.len().into()),
    ] {
        assert_eq!(line[key], expected, "{key}: {line}");
    }
    assert!(line["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{line}");

    let refused = daemon.send(&call("8", "echo").with("X-Request-Id", "two words"));
    assert_eq!(refused.status, 401);
    let line = lines_of(&path, 2).remove(1);
    let id = line["request_id"].as_str().expect("an id of ours");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
    assert_eq!(refused.header("X-Request-Id"), Some(id), "who is refused can name the request");
    assert_eq!((&line["status"], &line["principal"]), (&401.into(), &Value::Null));
    assert_eq!(line["reply_bytes"], refused.body.len());
    let told = daemon.wait_for_log(0, "the refusal", |line| line.contains("call refused"));
    assert!(told.contains(id), "{told}");

    daemon.send(&with_key(list("9", "tools/list"))).assert_ok();
    assert_eq!(lines_of(&path, 3)[2]["method"], "tools/list");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}

#[test]
fn a_streamed_reply_is_counted_to_its_end() {
    let upstream = Upstream::calling(|_| {
        Reply::stream().event("1").event(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).end()
    });
    let folder = Folder::new();
    let (config, path) = logging(&upstream, &folder, "fields = [\"reply_bytes\", \"name\"]");
    let daemon = Daemon::start(&config);
    let answer = daemon.send(&call("7", "echo"));
    let line = lines_of(&path, 1).remove(0);
    assert_eq!(line["reply_bytes"], answer.body.len(), "{line}");
    assert_eq!(
        line.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["reply_bytes", "name"],
        "in the order asked for"
    );
}

#[test]
fn refused_calls_are_written_where_answered_ones_are_not_but_bounded() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let (config, path) = logging(&upstream, &folder, "success_ratio = 0.0");
    let config = config.section("[log]\nrefusals_per_second_max = 5").admin();
    let daemon = Daemon::start(&config);
    let mut connection = daemon.connect();
    let started = std::time::Instant::now();
    for _ in 0..100 {
        connection.write(&call("7", "echo").bytes());
        connection.response().assert_ok();
        connection.write(&call("8", "echo").set("Mcp-Name", "other").bytes());
        connection.response().assert_error(400, -32020, Some("8"));
    }
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap() + 2;
    let text = eventually("refusals", || fs::read_to_string(&path).ok().filter(|text| !text.is_empty()));
    assert!(text.lines().all(|line| line.contains("\"status\":400")), "{text}");
    assert!(text.lines().count() <= 5 * seconds, "{text}");
    assert!(daemon.metric("trunkline_log_lines_dropped_total") > 0);
}

#[test]
fn a_share_of_the_answered_calls_is_written() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let (config, path) = logging(&upstream, &folder, "success_ratio = 0.5");
    let daemon = Daemon::start(&config);
    let mut connection = daemon.connect();
    for _ in 0..200 {
        connection.write(&call("7", "echo").bytes());
        connection.response().assert_ok();
    }
    // One that is written for certain, and behind the others.
    connection.write(&call("8", "echo").set("Mcp-Name", "other").bytes());
    connection.response();
    let text = eventually("the last line", || {
        fs::read_to_string(&path).ok().filter(|text| text.contains("\"status\":400"))
    });
    let answered = text.lines().count() - 1;
    assert!((50..150).contains(&answered), "{answered} of 200");
}

#[test]
fn a_name_forges_no_line_and_no_field_in_any_form() {
    for format in ["text", "json", "logfmt"] {
        let upstream = Upstream::with_tools(&["echo"]);
        let section =
            format!("[log.access]\nformat = \"{format}\"\nfields = [\"name\", \"request_id\", \"status\"]");
        let config = Config::transparent(&upstream).endpoint("deny = [\"*denied*\"]").section(&section);
        let daemon = Daemon::start(&config);
        let before = daemon.log().len();
        // The name is `denied\n2026 FORGED \x1b[31m`, behind a quote.
        let name = "=?base64?IiBzdGF0dXM9OTk5IGRlbmllZAoyMDI2IEZPUkdFRCAbWzMxbQ==?=";
        let forged = call("7", r#"\" status=999 denied\n2026 FORGED \u001b[31m"#)
            .set("Mcp-Name", name)
            .with("X-Request-Id", "x\"status=999");
        daemon.send(&forged);
        let is_access = |line: &str| line.contains("access") && line.contains("denied");
        let line = daemon.wait_for_log(before, "the call", is_access);
        assert!(line.contains(r#"\" status=999 denied\n2026 FORGED \u001b[31m"#), "{line}");
        assert!(line.contains(r#""x\"status=999""#), "{line}");
        for line in &daemon.log()[before..] {
            assert!(!line.trim_start().starts_with("2026 FORGED") && !line.contains('\u{1b}'), "{line:?}");
        }
    }
}

#[test]
fn secrets_stay_out_of_the_access_log() {
    for format in ["text", "json", "logfmt"] {
        let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
        let (config, path) = logging(&upstream, &folder, "");
        let config = config.to_string().replace("format = \"json\"", &format!("format = \"{format}\""));
        let daemon = Daemon::start(&format!("{config}\n{}", api_key("ci", KEY)));
        let password = r#""arguments":{"password":"hunter2"}"#;
        let good = call("7", "echo").with("Authorization", format!("Bearer {KEY}"));
        let good = good.replacing(r#""arguments":{}"#, password).with("Cookie", "session=my-cookie");
        daemon.send(&good).assert_ok();
        daemon.send(&good.clone().set("Mcp-Name", "file:///x?token=in-query"));
        daemon.send(&good.set("Authorization", "Bearer another-secret-0123456789"));
        let text = eventually("three lines", || {
            fs::read_to_string(&path).ok().filter(|text| text.lines().count() == 3)
        });
        for secret in [KEY, "another-secret", "hunter2", "my-cookie", "in-query"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[test]
fn files_that_were_moved_away_are_opened_anew_without_losing_a_line() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let (config, path) = logging(&upstream, &folder, "fields = [\"request_id\"]");
    let daemon = Daemon::start(&config);
    let mut connection = daemon.connect();
    let mut sent = 0;
    for round in 0..5 {
        for _ in 0..40 {
            sent += 1;
            connection.write(&call("7", "echo").with("X-Request-Id", format!("n{sent}")).bytes());
            connection.response().assert_ok();
        }
        fs::rename(&path, folder.path().join(format!("access.log.{round}"))).unwrap();
        daemon.reload(&config);
        eventually("the new file", || path.exists().then_some(()));
    }
    let expected: Vec<String> =
        (1..=sent).map(|number| format!("{{\"request_id\":\"n{number}\"}}")).collect();
    eventually("every line, once and whole", || {
        let old = (0..5).map(|round| folder.path().join(format!("access.log.{round}")));
        let text: String = old.chain([path.clone()]).map(|path| fs::read_to_string(path).unwrap()).collect();
        text.lines().eq(expected.iter()).then_some(())
    });
}

#[test]
fn the_access_log_changes_with_a_reload() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let (config, path) = logging(&upstream, &folder, "fields = [\"status\"]");
    let daemon = Daemon::start(&Config::transparent(&upstream));
    daemon.send(&call("7", "echo")).assert_ok();
    let reload = |config: &Config| {
        let before = daemon.log().len();
        daemon.reload(config);
        daemon.wait_for_log(before, "reloaded", |line| line.contains("reloaded"));
    };
    reload(&config);
    daemon.send(&call("8", "echo")).assert_ok();
    assert_eq!(lines_of(&path, 1)[0].to_string(), r#"{"status":200}"#);
    // A file that cannot be opened leaves everything as it was.
    let before = daemon.log().len();
    let (wrong, _) = logging(&upstream, &folder, "fields = [\"name\"]");
    daemon.reload(&wrong.to_string().replace("access.log", "nowhere/access.log"));
    let said = daemon.wait_for_log(before, "why", |line| line.contains("nowhere/access.log"));
    assert!(said.contains("not reloaded"), "{said}");
    daemon.send(&call("9", "echo")).assert_ok();
    assert_eq!(lines_of(&path, 2)[1].to_string(), r#"{"status":200}"#);
    let second = folder.path().join("second.log");
    let (moved, _) = logging(&upstream, &folder, "fields = [\"name\"]");
    let moved = moved.to_string().replace("access.log", "second.log");
    let before = daemon.log().len();
    daemon.reload(&moved);
    daemon.wait_for_log(before, "reloaded", |line| line.contains("reloaded"));
    daemon.send(&call("10", "echo")).assert_ok();
    assert_eq!(lines_of(&second, 1)[0].to_string(), r#"{"name":"echo"}"#);
    assert_eq!(lines_of(&path, 2).len(), 2);
}

#[test]
fn a_full_disk_stops_no_call_and_is_left_behind() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let (config, path) = logging(&upstream, &folder, "fields = [\"status\"]");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let config = config.admin();
    let daemon = Daemon::start(&config);
    let dropped = || daemon.metric("trunkline_log_lines_dropped_total");
    for lost in 1..=3 {
        daemon.send(&call("7", "echo")).assert_ok();
        eventually("it is counted", || (dropped() == lost).then_some(()));
    }
    let notices = daemon.log().iter().filter(|line| line.contains("cannot be written to")).count();
    assert_eq!(notices, 1, "{:?}", daemon.log());
    fs::remove_file(&path).unwrap();
    daemon.reload(&config);
    eventually("the new file", || path.exists().then_some(()));
    daemon.send(&call("8", "echo")).assert_ok();
    lines_of(&path, 1);
    daemon.wait_for_log(0, "how many are missing", |line| line.contains("lines=3") && line.contains("lost"));
    assert_eq!(dropped(), 3);
}

#[test]
fn a_standard_error_that_nobody_reads_stops_no_call() {
    for level in ["warn", "info"] {
        let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // `info` has ordinary lines beside those about calls.
        let log = format!(
            "[log]\nlevel = \"{level}\"\nrefusals_per_second_max = 1000000\nbuffer_bytes_max = \"64KiB\"\n[log.access]\n"
        );
        let config =
            Config::transparent(&upstream).listener(&format!("address = \"{address}\"")).section(&log);
        let path = folder.path().join("trunkline.toml");
        fs::write(&path, config.to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
            .args(["run", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut connection = eventually("it listens", || {
            std::net::TcpStream::connect(address).ok().map(|_| crate::harness::Connection::open(address))
        });
        // Far more than a pipe and the buffers hold.
        for _ in 0..1500 {
            connection.write(&call("7", "echo").bytes());
            connection.response().assert_ok();
            connection.write(&call("8", "echo").set("Mcp-Name", "other").bytes());
            connection.response().assert_error(400, -32020, Some("8"));
        }
        // It ends in time, too.
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        drop(connection);
        let status = eventually("it exits", || child.try_wait().unwrap());
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(status.success() && text.contains("access: call"), "{status}: {text}");
    }
}
