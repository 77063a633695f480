//! The words that operators are told of an upstream that is not up: the same cause everywhere, and in the server's own words.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{
    Authority, Child, Config, Daemon, Folder, LEGACY_VERSION, Legacy, Offer, Received, Reply, Terminal,
    TlsEar, Upstream, call, eventually, in_session, legacy_call, list, open_session, refusing_address,
    side_by_side, trunkline,
};

/// Questions come soon, and each is answered soon.
const PACE: &str = "list_timeout = \"1s\"\nresponse_timeout = \"1s\"\nconnect_timeout = \"1s\"\n\
                    health = { interval = \"500ms\", timeout = \"500ms\" }\n";

pub(super) fn status(daemon: &Daemon) -> Value {
    daemon.get_admin("/status").json()
}

/// The words of `/status` about one upstream.
pub(super) fn upstream(status: &Value, name: &str) -> Value {
    let all = status["upstreams"].as_array().expect("a list");
    all.iter().find(|upstream| upstream["name"] == name).cloned().unwrap_or_default()
}

/// The problem that names this upstream.
fn problem(status: &Value, name: &str) -> Value {
    let all = status["problems"].as_array().expect("a list");
    let names = |problem: &&Value| {
        problem["names"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
    };
    all.iter().find(names).cloned().unwrap_or_default()
}

/// Waits until `/status` says this of an upstream, and checks that every other view says it, too.
#[track_caller]
pub(super) fn expect(daemon: &Daemon, name: &str, state: &str, why: &str, cause: &str) {
    let says = |told: &Value| {
        let found = upstream(told, name);
        found["state"] == state && found["why"].as_str().is_some_and(|told| told.contains(why))
    };
    let told = eventually(&format!("{name} is {state}: {why}"), || Some(status(daemon)).filter(says));
    let found = problem(&told, name);
    let what = found["what"].as_str().unwrap_or_default().to_owned();
    assert!(what.contains(state) && what.contains(why), "{found:#}");
    assert!(found["runbook"].as_str().is_some_and(|section| section.starts_with("Trunkline")), "{found:#}");
    let metric =
        format!("trunkline_upstream_usable{{cause=\"{cause}\",state=\"{state}\",upstream=\"{name}\"}}");
    eventually(&metric, || (daemon.find_metric(&metric) == Some(0)).then_some(()));
}

/// The log names the cause, with the upstream that it is of.
#[track_caller]
fn logged(daemon: &Daemon, name: &str, why: &str) -> String {
    let of = format!("upstream=\"{name}\"");
    daemon.wait_for_log(0, &format!("{name}: {why}"), |line| line.contains(&of) && line.contains(why))
}

/// The line of `trunkline status` on an upstream.
fn line_of(daemon: &Daemon, name: &str) -> String {
    let said = said(daemon);
    said.lines().rfind(|line| line.starts_with(name)).unwrap_or_default().to_owned()
}

fn said(daemon: &Daemon) -> String {
    let (output, _) = trunkline(&["status", "--all", "--admin", &daemon.admin().to_string()], None);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

type Answer = fn(&Received) -> Reply;

/// Servers of which each does one thing wrong, by what that is.
const WRONG: [(&str, Answer, &str, &str, &str); 9] = [
    ("s401", |_| Reply::http("401 Unauthorized", "", ""), "refuses our credentials", "HTTP 401", "HTTP 401"),
    (
        "s403",
        |_| Reply::http("403 Forbidden", "Content-Type: text/plain\r\n", "no"),
        "refuses our credentials",
        "HTTP 403 text/plain",
        "HTTP 403",
    ),
    (
        "s404",
        |_| Reply::http("404 Not Found", "Content-Type: text/html; charset=utf-8\r\n", "<html>"),
        "is no MCP server",
        "HTTP 404 text/html",
        "HTTP 404",
    ),
    (
        "s421",
        |_| Reply::http("421 Misdirected Request", "Content-Type: text/plain\r\n", "?"),
        "is no MCP server",
        "HTTP 421 text/plain",
        "HTTP 421",
    ),
    (
        "s307",
        |_| Reply::http("307 Temporary Redirect", "Location: /mcp/?key=hunter2\r\n", ""),
        "is no MCP server",
        "HTTP 307 to /mcp/",
        "HTTP 307",
    ),
    (
        "html",
        |_| Reply::http("200 OK", "Content-Type: text/html\r\n", "<html>"),
        "is no MCP server",
        "HTTP 200 text/html",
        "HTTP 200",
    ),
    (
        "gzip",
        |_| Reply::http("200 OK", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "x"),
        "is no MCP server",
        "Content-Encoding gzip",
        "Content-Encoding",
    ),
    (
        "database",
        |request| match request.method().as_str() {
            "initialize" => Reply::error(request, "200 OK", -32603, "database is down"),
            _ => Reply::error(request, "200 OK", -32601, "Method not found"),
        },
        "failing",
        "initialize: database is down (-32603)",
        "initialize: error",
    ),
    (
        "list",
        |request| match request.method().as_str() {
            "tools/list" => Reply::error(request, "200 OK", -32603, "fetch failed"),
            _ => Legacy::new(Offer::tools(&["echo"])).and_modern().answer(request),
        },
        "cannot be listed",
        "tools/list: fetch failed (-32603)",
        "tools/list: error",
    ),
];

/// Each upstream of its own by its lines, at one endpoint.
fn config(upstreams: &[(&str, String)]) -> Config {
    upstreams
        .iter()
        .fold(Config::new(), |config, (name, lines)| config.raw(name, &format!("{lines}\n{PACE}")))
        .admin()
}

fn at(address: SocketAddr) -> String {
    format!("url = \"http://{address}/mcp\"")
}

#[test]
fn whatever_a_server_answers_instead_is_named_alike_everywhere() {
    let servers: Vec<Upstream> =
        WRONG.iter().map(|(_, answer, ..)| Upstream::taking_anything(*answer)).collect();
    let named = WRONG.iter().zip(&servers);
    let upstreams: Vec<_> = named.map(|((name, ..), server)| (*name, at(server.address))).collect();
    let daemon = Daemon::start(&config(&upstreams));
    // Lists are asked for by clients.
    daemon.send(&list("1", "tools/list"));
    for (name, _, state, why, cause) in WRONG {
        println!("{name}");
        expect(&daemon, name, state, why, cause);
    }
    views(&daemon, &WRONG.map(|(name, _, state, why, _)| (name, state, why)));
    for (name, _, _, why, _) in WRONG {
        daemon.send(&call("7", &format!("{name}__echo")));
        logged(&daemon, name, why);
    }
    let text = status(&daemon).to_string();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!daemon.log().join("\n").contains("hunter2"));
}

/// The words of `trunkline status` and `top` are the same words.
#[track_caller]
fn views(daemon: &Daemon, expected: &[(&str, &str, &str)]) {
    let admin = daemon.admin().to_string();
    let (output, _) = trunkline(&["status", "--all", "--admin", &admin], None);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut top = Terminal::start(&["top", "--interval", "1", "--admin", &admin], &[], (200, 60));
    top.wait_for("UPSTREAM");
    for (name, state, _) in expected {
        eventually(&format!("top shows that {name} is {state}"), || {
            top.screen()
                .lines()
                .any(|line| line.contains(&format!("✗ {state}")) && line.contains(name))
                .then_some(())
        });
    }
    for (name, state, why) in expected {
        let problem =
            said.lines().any(|line| line.contains(name) && line.contains(state) && line.contains(why));
        assert!(problem, "{name}: {state}: {why} is not in\n{said}");
    }
    top.keys("5");
    let screen = eventually("top shows all problems", || {
        let screen = top.screen();
        expected.iter().all(|(_, state, why)| screen.contains(&format!("{state}: {why}"))).then_some(screen)
    });
    drop(screen);
    let ready = daemon.get_admin("/readyz");
    assert_eq!(ready.status, 200);
}

/// A server of HTTP that says so to whoever speaks TLS.
fn plain_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

#[test]
fn whatever_keeps_a_connection_from_coming_about_is_named_alike_everywhere() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.file(&folder, "ca.pem");
    let well = Upstream::with_tools(&["echo"]);
    let expired = TlsEar::before(well.address, &authority.issue_for_years(&["localhost"], 2000, 2001), None);
    let other = TlsEar::before(well.address, &authority.issue(&["tools.example"]), None);
    let tls = |address: SocketAddr| {
        format!("url = \"https://localhost:{}/mcp\"\ntls = {{ ca = \"{}\" }}", address.port(), ca.display())
    };
    let plain = plain_server();
    let (refused, _socket) = refusing_address();
    let upstreams = [
        ("refused", at(refused)),
        ("unroutable", "url = \"http://255.255.255.255/mcp\"".to_owned()),
        ("unnamed", "url = \"http://nowhere.invalid/mcp\"".to_owned()),
        ("expired", tls(expired.address)),
        ("other", tls(other.address)),
        ("plain", tls(plain)),
    ];
    let daemon = Daemon::start(&config(&upstreams));
    let causes = [
        ("refused", "connect: refused"),
        ("unroutable", "connect: no route to host"),
        ("unnamed", "DNS: its name does not resolve"),
        ("expired", "TLS: certificate expired"),
        ("other", "TLS: certificate for another name"),
        ("plain", "TLS: the server does not speak TLS"),
    ];
    for (name, cause) in causes {
        println!("{name}");
        expect(&daemon, name, "down", cause, cause);
    }
    views(&daemon, &causes.map(|(name, cause)| (name, "down", cause)));
    // In the log of a call, whatever the breaker says by then, and in what failed lately; not in the answer.
    for (name, cause) in causes {
        let from = daemon.log().len();
        let answer = daemon.send(&call("7", &format!("{name}__echo")));
        assert!(!answer.text().contains(cause), "{}", answer.text());
        let line = daemon.wait_for_log(from, cause, |line| {
            line.contains("call failed") && line.contains(&format!("upstream=\"{name}\""))
        });
        assert!(line.contains(&format!("why=\"{cause}\"")), "{line}");
        let error = eventually("it is told as an error", || {
            let told = status(&daemon);
            let all = told["recent_errors"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|error| error["upstream"] == name)
        });
        assert_eq!(error["message"], cause, "{error:#}");
        assert!(error["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{error:#}");
    }
}

#[test]
fn a_server_that_fails_or_hangs_is_named_before_and_after_its_breaker_opens() {
    let failing = Upstream::taking_anything(|_| {
        Reply::http("500 Internal Server Error", "Content-Type: text/plain\r\n", "oops")
    });
    let hanging = Upstream::taking_anything(|_| Reply::silence());
    let daemon =
        Daemon::start(&config(&[("failing", at(failing.address)), ("hanging", at(hanging.address))]));
    for (name, why, cause) in
        [("failing", "HTTP 500 text/plain", "HTTP 500"), ("hanging", "timed out after", "timed out")]
    {
        expect(&daemon, name, "down", why, cause);
        let told = upstream(&status(&daemon), name);
        assert!(
            told["why"].as_str().is_some_and(|why| why.ends_with("; its circuit breaker is open")),
            "{told:#}"
        );
        let fault = &told["replicas"][0]["fault"];
        assert!(
            fault["at_s"].as_u64() >= fault["since_s"].as_u64() && fault["at_s"].as_u64() > Some(0),
            "{fault:#}"
        );
        daemon.send(&call("7", &format!("{name}__echo")));
        logged(&daemon, name, why);
        let line = logged(&daemon, name, "circuit breaker opened");
        assert!(line.contains(&format!("last_error=\"{why}")), "{line}");
    }
    views(&daemon, &[("failing", "down", "HTTP 500 text/plain"), ("hanging", "down", "timed out after")]);
    let open = "trunkline_replica_breaker{replica=";
    eventually("the breakers are told", || {
        let metrics = daemon.get_admin("/metrics").text();
        let is_open =
            |line: &&str| line.starts_with(open) && line.contains("state=\"open\"") && line.ends_with(" 1");
        (metrics.lines().filter(is_open).count() == 2).then_some(())
    });
}

#[test]
fn a_program_that_starts_slowly_is_starting_until_its_time_is_over() {
    let (first, second) = (Child::new(&["starts-in=60"]), Child::new(&["starts-in=60"]));
    let well = Upstream::with_tools(&["echo"]);
    let keys = |child: &Child| child.keys("start_timeout = \"8s\"\nstop_timeout = \"100ms\"");
    let config = Config::new()
        .raw("first", &keys(&first))
        .raw("second", &keys(&second))
        .upstream("well", well.address, "")
        .limits("children_starting_max = 1")
        .admin();
    let daemon = Daemon::start(&config);
    let told = eventually("one runs, one is queued", || {
        let told = status(&daemon);
        let phase = |name: &str| upstream(&told, name)["start"]["phase"].as_str().map(str::to_owned);
        let mut phases = [phase("first")?, phase("second")?];
        phases.sort();
        (phases == ["queued", "running"]).then_some(told)
    });
    assert_eq!(told["problems"], serde_json::json!([]), "{told:#}");
    for name in ["first", "second"] {
        let found = upstream(&told, name);
        assert_eq!((&found["state"], &found["usable"]), (&"starting".into(), &false.into()), "{found:#}");
        assert!(found["healthy"] == true && found["state_since_s"].as_u64() > Some(0), "{found:#}");
        let (phase, why) = (&found["start"]["phase"], &found["why"]);
        let begins = format!("{} for ", phase.as_str().unwrap_or_default());
        assert!(why.as_str().is_some_and(|why| why.starts_with(&begins)), "{found:#}");
        assert!(line_of(&daemon, name).contains(&format!("◌ starting, {begins}")), "{}", said(&daemon));
        let metric =
            format!("trunkline_upstream_usable{{cause=\"\",state=\"starting\",upstream=\"{name}\"}}");
        eventually(&metric, || (daemon.find_metric(&metric) == Some(0)).then_some(()));
    }
    let words = "starting: first, second (1 of 3 are up)";
    assert!(said(&daemon).contains(words), "{}", said(&daemon));
    let admin = daemon.admin().to_string();
    let top = Terminal::start(&["top", "--interval", "1", "--admin", &admin], &[], (120, 40));
    top.wait_for(words);
    assert_eq!(daemon.get_admin("/readyz").status, 200);
    // Its time is over: now it is down, and somebody is told.
    let is_running = |name: &&str| upstream(&told, name)["start"]["phase"] == "running";
    let running = ["first", "second"].into_iter().find(is_running).expect("one runs");
    let why = "it has not answered anything within start_timeout";
    expect(&daemon, running, "down", why, "the process has not answered within start_timeout");
    logged(&daemon, running, why);
    top.wait_for("✗");
}

#[test]
fn what_is_off_is_told_and_no_problem() {
    let well = Upstream::with_tools(&["echo"]);
    let config = Config::new()
        .upstream("well", well.address, "")
        .raw("off", &format!("{}\nenabled = false", at(well.address)))
        .admin();
    let daemon = Daemon::start(&config);
    let told = eventually("the other is up", || {
        let told = status(&daemon);
        (upstream(&told, "well")["state"] == "up").then_some(told)
    });
    let found = upstream(&told, "off");
    assert_eq!((&found["state"], &found["usable"]), (&"off".into(), &false.into()), "{found:#}");
    assert_eq!(told["problems"], serde_json::json!([]), "{told:#}");
    assert!(line_of(&daemon, "off").contains("○ off"), "{}", said(&daemon));
    let admin = daemon.admin().to_string();
    let top = Terminal::start(&["top", "--interval", "1", "--admin", &admin], &[], (120, 40));
    top.wait_for("○ off");
    assert!(!daemon.get_admin("/metrics").text().contains("upstream=\"off\""), "no alert can be about it");
}

#[test]
fn an_upstream_without_traffic_is_asked_each_interval_and_its_state_shows_soon() {
    let open = crate::harness::Gate::default();
    let is_open = open.clone();
    let server = Upstream::taking_anything(move |request| {
        if is_open.is_open() {
            Reply::http("401 Unauthorized", "", "")
        } else {
            Legacy::new(Offer::tools(&["echo"])).and_modern().answer(request)
        }
    });
    let lines = format!("{}\nhealth = {{ interval = \"1s\", timeout = \"500ms\" }}", at(server.address));
    let daemon = Daemon::start(&Config::new().raw("up", &lines).admin());
    eventually("it is up", || (upstream(&status(&daemon), "up")["state"] == "up").then_some(()));
    open.open();
    let since = std::time::Instant::now();
    eventually("it is told", || {
        (upstream(&status(&daemon), "up")["state"] == "refuses our credentials").then_some(())
    });
    // An interval, which varies by a quarter, and two seconds.
    assert!(since.elapsed() < Duration::from_millis(3500), "{:?}", since.elapsed());
}

#[test]
fn a_state_ends_with_the_next_answer() {
    let (upstream_server, gate) =
        (Legacy::new(Offer::tools(&["echo"])).and_modern(), crate::harness::Gate::default());
    let open = gate.clone();
    let server = Upstream::taking_anything(move |request| {
        if open.is_open() { upstream_server.answer(request) } else { Reply::http("401 Unauthorized", "", "") }
    });
    let daemon = Daemon::start(&config(&[("up", at(server.address))]));
    expect(&daemon, "up", "refuses our credentials", "HTTP 401", "HTTP 401");
    gate.open();
    eventually("it is up", || (upstream(&status(&daemon), "up")["state"] == "up").then_some(()));
    let told = upstream(&status(&daemon), "up");
    assert_eq!((&told["why"], &told["usable"]), (&Value::Null, &Value::Bool(true)), "{told:#}");
    assert_eq!(told["replicas"][0]["fault"]["why"], "HTTP 401", "it is still the last error: {told:#}");
    assert_eq!(told["replicas"][0]["fault"]["stands"], false);
}

#[test]
fn a_server_of_callers_with_credentials_of_their_own_is_up() {
    let server = Upstream::taking_anything(|request| {
        if request.headers("x-user-token").is_empty() {
            Reply::http("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "")
        } else {
            Legacy::new(Offer::tools(&["echo"])).and_modern().answer(request)
        }
    });
    let lines = format!("{}\nforward_headers = [\"x-user-token\"]", at(server.address));
    let daemon = Daemon::start(&config(&[("up", lines)]));
    let state = "wants the caller's own credentials";
    let told =
        eventually(state, || Some(status(&daemon)).filter(|told| upstream(told, "up")["state"] == state));
    assert_eq!(told["problems"], serde_json::json!([]), "{told:#}");
    let metric = format!("trunkline_upstream_usable{{cause=\"HTTP 401\",state=\"{state}\",upstream=\"up\"}}");
    eventually(&metric, || (daemon.find_metric(&metric) == Some(1)).then_some(()));
}

#[test]
fn a_program_that_crashes_says_its_last_words_and_no_secret() {
    let script = "echo about to read the key hunter2-and-more >&2; echo at https://ada:pw@db/x?key=q >&2; echo no database at db:5432 >&2; exit 4";
    let command =
        format!("command = [\"sh\", \"-c\", \"{script}\"]\nenv = {{ KEY = {{ env = \"SECRET_KEY\" }} }}");
    let config = Config::new().raw("crash", &command).admin();
    let daemon = Daemon::start_with(&config, &[("SECRET_KEY", "hunter2-and-more")]);
    let told = eventually("it is in a crash loop", || {
        let told = status(&daemon);
        let why = upstream(&told, "crash")["why"].as_str().unwrap_or_default().to_owned();
        why.contains("crash loop").then_some(told)
    });
    let found = upstream(&told, "crash");
    assert_eq!(found["state"], "down", "{found:#}");
    let lines = found["last_lines"].as_array().expect("lines");
    assert!(lines.iter().any(|line| line == "about to read the key ***"), "{found:#}");
    assert!(lines.iter().any(|line| line == "at https://db/x?…"), "{found:#}");
    assert!(lines.iter().any(|line| line == "no database at db:5432"), "{found:#}");
    let what = problem(&told, "crash")["what"].as_str().unwrap_or_default().to_owned();
    assert!(what.contains("exit status: 4") && what.contains("no database at db:5432"), "{what}");
    assert!(!told.to_string().contains("hunter2"), "{told}");
    expect(&daemon, "crash", "down", "its child process is in a crash loop", "crash loop");
    views(&daemon, &[("crash", "down", "its child process is in a crash loop")]);
    logged(&daemon, "crash", "exit status: 4");
    let metric = "trunkline_child_crash_loop{upstream=\"crash\"}";
    eventually(metric, || (daemon.find_metric(metric) == Some(1)).then_some(()));
}

/// A program that is the first of these until it is mended, and then the second.
struct Mendable {
    crashing: Child,
    sound: Child,
    folder: Folder,
}

impl Mendable {
    fn new(crashing: &[&str], sound: &[&str]) -> Self {
        Self { crashing: Child::new(crashing), sound: Child::new(sound), folder: Folder::new() }
    }

    fn keys(&self, lines: &str) -> String {
        let [sound, crashing] = [&self.sound, &self.crashing].map(|child| child.command().join(" "));
        let flag = self.flag();
        let script = format!("if [ -e {} ]; then exec {sound}; fi; exec {crashing}", flag.display());
        format!("command = [\"sh\", \"-c\", {script:?}]\n{lines}")
    }

    fn mend(&self) {
        std::fs::write(self.flag(), "").expect("a file");
    }

    fn flag(&self) -> std::path::PathBuf {
        self.folder.path().join("mended")
    }
}

#[test]
fn a_program_that_ends_at_each_list_cannot_be_listed_until_it_is_mended() {
    side_by_side([&["modern"][..], &["strict"]], |words| {
        let program = Mendable::new(&[words, &["crashes-at=tools/list"]].concat(), words);
        let config = Config::new().raw("up", &program.keys("list_timeout = \"1s\"")).admin();
        let daemon = Daemon::start(&config);
        let is_looping = || daemon.find_metric("trunkline_child_crash_loop{upstream=\"up\"}") == Some(1);
        eventually("it is in a loop", || {
            daemon.send(&list("1", "tools/list"));
            is_looping().then_some(())
        });
        let why = "tools/list: its process ended, exit status: 3";
        expect(&daemon, "up", "cannot be listed", why, "the process ended with an exit status");
        let found = upstream(&status(&daemon), "up");
        let told = found["why"].as_str().unwrap_or_default().to_owned();
        assert!(found["usable"] == false && told.contains("is in a crash loop"), "{found:#}");
        // However often it is asked for, it is started only now and then, and its state stays.
        let (starts, since) = (program.crashing.pids().len(), std::time::Instant::now());
        for _ in 0..50 {
            daemon.send(&list("1", "tools/list"));
            assert_eq!(upstream(&status(&daemon), "up")["state"], "cannot be listed");
        }
        if since.elapsed() < Duration::from_secs(1) {
            assert!(program.crashing.pids().len() <= starts + 2, "{starts}");
        }
        program.mend();
        eventually("it is up", || {
            daemon.send(&list("1", "tools/list"));
            (upstream(&status(&daemon), "up")["state"] == "up" && !is_looping()).then_some(())
        });
    });
}

#[test]
fn a_program_that_has_ended_at_a_list_and_is_gone_by_now_is_down() {
    side_by_side(["tools/list", "resources/list"], |method| {
        let (child, folder) = (Child::new(&["strict", &format!("crashes-at={method}")]), Folder::new());
        let program = folder.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\nexec {}\n", child.command().join(" "))).expect("a file");
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it may be run");
        let keys = format!("command = [{:?}]\nlist_timeout = \"1s\"", program.display());
        let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
        let told = || upstream(&status(&daemon), "up");
        eventually("it cannot be listed", || {
            daemon.send(&list("1", method));
            let told = told();
            (told["state"] == "cannot be listed" && child.pids().len() >= 3).then_some(())
        });
        std::fs::remove_file(&program).expect("it was there");
        eventually("it is down", || {
            daemon.send(&list("1", method));
            let told = told();
            let is_gone = told["why"].as_str().is_some_and(|why| why.contains("cannot be started"));
            (told["state"] == "down" && told["usable"] == false && is_gone).then_some(())
        });
        // Asked and started over again, it stays so.
        for _ in 0..20 {
            daemon.send(&list("1", method));
            assert_eq!(told()["state"], "down", "{method}: {:#}", told());
        }
    });
}

#[test]
fn sessions_have_processes_of_their_own_of_a_program_that_ends_at_each_list_of_the_gateway() {
    side_by_side([&["modern"][..], &["strict"]], |words| {
        let child = Child::new(&[words, &["crashes-at=tools/list"]].concat());
        let keys = child.keys("isolation = \"session\"\nlist_timeout = \"1s\"");
        let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
        let is_looping = || daemon.find_metric("trunkline_child_crash_loop{upstream=\"up\"}") == Some(1);
        eventually("it is in a loop", || {
            daemon.send(&list("1", "tools/list"));
            is_looping().then_some(())
        });
        for number in 0..4 {
            let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
            let answer = daemon.send(&in_session(&session, legacy_call("1", "echo")));
            assert!(answer.text().contains("content"), "{words:?}, {number}: {}", answer.text());
        }
    });
}

#[test]
fn a_program_that_ends_at_initialize_is_in_a_crash_loop_and_its_refusal_of_another_era_is_no_cause() {
    let child = Child::new(&["strict", "crashes-at=initialize"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")).admin());
    let mut told = Vec::new();
    let loops = "its child process is in a crash loop";
    eventually("it is in a loop", || {
        let found = upstream(&status(&daemon), "up");
        told.push(format!("{}: {}", found["state"], found["why"]));
        found["why"].as_str().is_some_and(|why| why.contains(loops)).then_some(())
    });
    assert!(!told.iter().any(|told| told.contains("server/discover")), "{told:#?}");
    told.retain(|told| !told.contains("starting"));
    // Its exit status is known a little later.
    let is_right = |told: &String| told.starts_with("\"down") && told.contains("process ended");
    assert!(told.iter().all(is_right), "{told:#?}");
    expect(&daemon, "up", "down", "so far: its process ended, exit status: 3", "crash loop");
}

#[test]
fn a_program_that_hangs_in_initialize_is_starting_until_its_time_is_over() {
    let child = Child::new(&["strict"]);
    child.hold();
    let keys = child.keys("start_timeout = \"3s\"\nstop_timeout = \"100ms\"");
    let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
    child.wait_for("holding", 1);
    let found = upstream(&status(&daemon), "up");
    assert_eq!(found["state"], "starting", "{found:#}");
    assert!(found["why"].as_str().is_some_and(|why| why.starts_with("running for ")), "{found:#}");
    expect(&daemon, "up", "failing", "timed out after 3 s", "timed out");
}

/// A program that has no method at all, and does not answer those of its arguments.
const REFUSING: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and message["method"] not in sys.argv:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"#;

/// Such a program as an upstream.
fn refusing(unanswered: &[&str]) -> String {
    let command = [&["python3", "-c", REFUSING], unanswered].concat();
    format!("command = {}", Value::from(command))
}

#[test]
fn a_program_that_does_not_answer_server_discover_is_told_as_that() {
    let daemon = Daemon::start(&Config::new().raw("up", &refusing(&["server/discover"])).admin());
    let why = "it does not answer server/discover";
    let told = eventually(why, || {
        let told = upstream(&status(&daemon), "up");
        (told["state"] == "failing").then_some(told)
    });
    assert_eq!(told["why"], why, "{told:#}");
    let all = status(&daemon).to_string() + &daemon.log().join("\n");
    assert!(!all.contains("not to translate"), "{all}");
}

/// A program of the legacy era whose sessions cannot be opened.
const WITHOUT_DATABASE: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    error = {"code": -32601, "message": "no such method"}
    if message["method"] == "initialize":
        error = {"code": -32603, "message": "database is down"}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"#;

#[test]
fn a_program_that_refuses_initialize_with_an_error_of_its_own_is_an_mcp_server() {
    let command = format!("command = [\"python3\", \"-c\", {}]", Value::from(WITHOUT_DATABASE));
    let daemon = Daemon::start(&Config::new().raw("up", &command).admin());
    let line = daemon.wait_for_log(0, "why", |line| line.contains("upstream opens no session"));
    assert!(line.contains("initialize: database is down (-32603)"), "{line}");
    expect(&daemon, "up", "failing", "initialize: database is down (-32603)", "initialize: error");
    assert!(!daemon.log().join("\n").contains("is it an MCP server"), "{:?}", daemon.log());
}

#[test]
fn a_program_that_is_missing_is_no_crash_loop() {
    let daemon = Daemon::start(&Config::new().raw("gone", "command = [\"/nowhere/server\"]").admin());
    let starts = "trunkline_child_starts_total{result=\"error\",upstream=\"gone\"}";
    eventually(starts, || (daemon.find_metric(starts) >= Some(3)).then_some(()));
    let why = "its process cannot be started: there is no program `/nowhere/server`";
    expect(&daemon, "gone", "down", why, "the process cannot be started");
    let told = status(&daemon);
    assert!(!told.to_string().contains("crash loop"), "{told:#}");
    assert_eq!(problem(&told, "gone")["runbook"], "TrunklineUpstreamDown", "{told:#}");
    assert_eq!(daemon.find_metric("trunkline_child_crash_loop{upstream=\"gone\"}"), Some(0));
}

#[test]
fn what_does_not_start_is_named() {
    let config = Config::new().raw("gone", "command = [\"/nowhere/server\"]").admin();
    let daemon = Daemon::start(&config);
    let why = "its process cannot be started: there is no program `/nowhere/server`";
    let told = eventually(why, || {
        let told = upstream(&status(&daemon), "gone");
        told["why"].as_str().is_some_and(|told| told.contains(why)).then_some(told)
    });
    assert_eq!(told["state"], "down", "{told:#}");
}

#[test]
fn upstreams_of_one_cause_are_one_problem() {
    let (refused, _socket) = refusing_address();
    let names = ["one", "two", "three"];
    let upstreams: Vec<_> = names.iter().map(|name| (*name, at(refused))).collect();
    let daemon = Daemon::start(&config(&upstreams));
    let told = eventually("all are down", || {
        let told = status(&daemon);
        names.iter().all(|name| upstream(&told, name)["replicas"][0]["breaker"] == "open").then_some(told)
    });
    let problems = told["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 1, "{told:#}");
    assert_eq!(problems[0]["subject"], "upstreams one, two, three", "{told:#}");
    let what = problems[0]["what"].as_str().unwrap_or_default();
    assert!(what.contains("connect: refused") && what.contains("every call at /mcp fails"), "{what}");
}

#[test]
fn a_server_s_words_are_cut_and_hold_no_secret() {
    let long = "x".repeat(5000);
    let server = Upstream::taking_anything(move |request| {
        let said = format!(
            "no answer of https://ada:hunter2@db.example/a?token=hunter2 for Bearer hunter2 \\u001b[31m {long}"
        );
        let method = request.method();
        let code = if method == "initialize" { -32603 } else { -32601 };
        Reply::json(
            "200 OK",
            &request.with_id(&format!(
                r#"{{"jsonrpc":"2.0","id":0,"error":{{"code":{code},"message":"{said}"}}}}"#
            )),
        )
    });
    let daemon = Daemon::start(&config(&[("up", at(server.address))]));
    let why = eventually("it is told", || {
        let told = upstream(&status(&daemon), "up");
        told["why"].as_str().filter(|why| why.starts_with("initialize: ")).map(str::to_owned)
    });
    assert!(why.chars().count() < 260, "{why}");
    assert!(
        why.contains("https://db.example/a?…") && why.contains("Bearer ***") && !why.contains('\u{1b}'),
        "{why}"
    );
    let all = status(&daemon).to_string() + &daemon.log().join("\n");
    assert!(!all.contains("hunter2"), "{all}");
}

#[test]
fn a_gateway_without_upstreams_and_an_endpoint_without_one_that_is_on_serve_empty_lists() {
    let well = Upstream::with_tools(&["echo"]);
    let off = Config::new().raw("off", &format!("{}\nenabled = false", at(well.address))).admin();
    let none = "[listener]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = []\n";
    for (config, said) in [
        (off.to_string(), "none of its upstreams is switched on"),
        (none.to_owned(), "no upstream is configured"),
    ] {
        let daemon = Daemon::start(&config);
        for method in ["tools/list", "prompts/list"] {
            let listed = daemon.send(&list("1", method));
            assert_eq!(listed.status, 200, "{}", listed.text());
            let field = method.split('/').next().unwrap_or_default();
            assert_eq!(listed.json()["result"][field], serde_json::json!([]), "{}", listed.text());
        }
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let answer = daemon.send(&in_session(&session, legacy_call("2", "echo")));
        assert!(answer.text().contains("unknown tool"), "{}", answer.text());
        let told = status(&daemon);
        assert!(told["problems"][0]["what"].as_str().is_some_and(|what| what.contains(said)), "{told:#}");
        if said.contains("switched") {
            assert_eq!(upstream(&told, "off")["state"], "off", "{told:#}");
        }
    }
}

#[test]
fn a_list_that_takes_too_long_is_one_that_cannot_be_had() {
    let server = Upstream::taking_anything(|request| match request.method().as_str() {
        "tools/list" => Reply::silence(),
        _ => Legacy::new(Offer::tools(&["echo"])).and_modern().answer(request),
    });
    let daemon = Daemon::start(&config(&[("up", at(server.address))]));
    daemon.send(&list("1", "tools/list"));
    expect(&daemon, "up", "cannot be listed", "timed out after 1 s", "timed out");
}

#[test]
fn a_list_that_some_clients_cannot_have_is_told_until_they_have_it() {
    let is_mended = Arc::<AtomicBool>::default();
    let mended = Arc::clone(&is_mended);
    let server = Upstream::taking_anything(move |request| {
        if request.method() != "tools/list" {
            return Legacy::new(Offer::tools(&[])).and_modern().answer(request);
        }
        let message = request.json();
        let declared = &message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        if declared["roots"].is_object() && !mended.load(Ordering::Relaxed) {
            return Reply::error(request, "200 OK", -32603, "no roots");
        }
        let listed = r#"{"tools":[],"ttlMs":0,"cacheScope":"public","resultType":"complete"}"#;
        Reply::result(request, listed)
    });
    let daemon = Daemon::start(&config(&[("up", at(server.address))]));
    let ask = |capabilities: &str| {
        let declared = format!(r#""io.modelcontextprotocol/clientCapabilities":{capabilities}"#);
        let declaring = list("1", "tools/list");
        daemon.send(&declaring.replacing(r#""io.modelcontextprotocol/clientCapabilities":{}"#, &declared))
    };
    ask(r#"{"roots":{}}"#);
    let (state, why) = ("cannot be listed", "tools/list: no roots (-32603)");
    expect(&daemon, "up", state, why, "tools/list: error");
    for capabilities in ["{}", r#"{"sampling":{}}"#, "{}"] {
        ask(capabilities).assert_ok();
        let told = status(&daemon);
        let found = upstream(&told, "up");
        assert_eq!(found["state"], state, "after {capabilities}: {told:#}");
    }
    is_mended.store(true, Ordering::Relaxed);
    ask(r#"{"roots":{}}"#).assert_ok();
    eventually("the upstream is up", || (upstream(&status(&daemon), "up")["state"] == "up").then_some(()));
}

#[test]
fn a_list_of_prompts_that_is_refused_leaves_the_tools_in_use() {
    let server = Upstream::taking_anything(|request| match request.method().as_str() {
        "prompts/list" => Reply::error(request, "200 OK", -32603, "fetch failed"),
        _ => Legacy::new(Offer::tools(&["echo"]).with_prompts(&["greet"])).and_modern().answer(request),
    });
    let daemon = Daemon::start(&config(&[("up", at(server.address))]));
    daemon.send(&list("1", "prompts/list"));
    let why = "prompts/list: fetch failed (-32603)";
    let told = eventually("its prompts cannot be listed", || {
        let told = status(&daemon);
        (upstream(&told, "up")["why"] == why).then_some(told)
    });
    let found = upstream(&told, "up");
    assert_eq!(found["state"], "cannot be listed", "{found:#}");
    assert!(found["usable"] == true && found["healthy"] == true, "{found:#}");
    let found = problem(&told, "up");
    assert_eq!(
        (&found["level"], &found["word"]),
        (&"warning".into(), &"cannot be listed".into()),
        "{found:#}"
    );
    assert!(!found["what"].as_str().unwrap_or_default().contains("every call"), "{found:#}");
    daemon.send(&call("2", "echo")).assert_ok();
    assert_eq!(daemon.get_admin("/readyz").status, 200);
}

#[test]
fn what_a_client_s_own_list_meets_is_no_state_of_the_server() {
    let server = Upstream::taking_anything(|request| {
        let is_wrong = request.headers("x-account").contains(&"nobody");
        match request.method().as_str() {
            "tools/list" if is_wrong => Reply::error(request, "200 OK", -32603, "no such account"),
            _ => Legacy::new(Offer::tools(&["echo"])).and_modern().answer(request),
        }
    });
    let lines = format!("{}\nforward_headers = [\"x-account\"]", at(server.address));
    let daemon = Daemon::start(&config(&[("up", lines)]));
    daemon.send(&list("1", "tools/list")).assert_ok();
    let refused = daemon.send(&list("2", "tools/list").with("X-Account", "nobody"));
    assert!(refused.text().contains("error"), "{}", refused.text());
    let told = status(&daemon);
    assert_eq!(upstream(&told, "up")["state"], "up", "{told:#}");
    assert_eq!(told["problems"], serde_json::json!([]), "{told:#}");
}

#[test]
fn a_process_that_does_not_start_beside_one_that_serves_takes_no_upstream_down() {
    let (child, folder) = (Child::new(&[]), Folder::new());
    let claim = folder.path().join("claimed").display().to_string();
    let command: Vec<String> = child.command();
    let script = format!("mkdir {claim} 2>/dev/null || exit 4; exec {}", command.join(" "));
    let keys = format!("command = [\"sh\", \"-c\", {script:?}]\neras = [\"legacy\"]");
    let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
    eventually("its own process is up", || (upstream(&status(&daemon), "up")["state"] == "up").then_some(()));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let refused = daemon.send(&in_session(&session, legacy_call("2", "echo")));
    assert!(refused.text().contains("error"), "{}", refused.text());
    let told = eventually("the end of the second is told", || {
        let told = status(&daemon);
        let why = upstream(&told, "up")["why"].as_str().unwrap_or_default().to_owned();
        why.contains("exit status: 4").then_some(told)
    });
    let found = upstream(&told, "up");
    assert_eq!((&found["state"], &found["usable"]), (&"failing".into(), &true.into()), "{found:#}");
    assert_eq!(daemon.get_admin("/readyz").status, 200);
}

#[test]
fn names_that_models_refuse_are_told() {
    let long = "x".repeat(60);
    let one = Upstream::with_tools(&[&long, &"y".repeat(50), "short"]);
    let two = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(
        &Config::new().upstream("one", one.address, "").upstream("two", two.address, "").admin(),
    );
    let told = eventually("the long name is told", || {
        daemon.send(&list("1", "tools/list")).assert_ok();
        let told = status(&daemon);
        (!told["endpoints"][0]["long_names"].is_null()).then_some(told)
    });
    let long_names = &told["endpoints"][0]["long_names"];
    assert_eq!((&long_names["alone"], &long_names["with_host"]), (&1.into(), &2.into()), "{told:#}");
    let what = told["problems"][0]["what"].as_str().unwrap_or_default();
    assert!(what.contains("over 64 characters") && what.contains(&long), "{what}");
}

#[test]
fn a_program_is_not_asked_for_its_url_and_a_valid_error_is_told_as_one() {
    let daemon = Daemon::start(&Config::new().raw("up", &refusing(&[])).admin());
    let line =
        daemon.wait_for_log(0, "that it speaks neither era", |line| line.contains("speaks neither era"));
    assert!(!line.contains("URL") && line.contains("no such method (-32601)"), "{line}");
    let told = eventually("it is told", || {
        let told = upstream(&status(&daemon), "up");
        told["why"].as_str().is_some_and(|why| why.contains("no such method (-32601)")).then_some(told)
    });
    assert_eq!(told["state"], "failing", "{told:#}");
}

/// Waits no longer than an operator does.
#[test]
fn a_refused_call_is_told_within_two_seconds() {
    let server = Upstream::with_tools(&["echo"]);
    let address = server.address;
    let lines = format!("{}\neras = [\"modern\"]\nhealth = {{ interval = \"10m\" }}", at(address));
    let daemon = Daemon::start(&Config::new().raw("up", &lines).admin());
    daemon.send(&call("1", "echo")).assert_ok();
    drop(server);
    daemon.send(&call("2", "echo"));
    let since = std::time::Instant::now();
    let told = eventually("the state is told", || {
        let told = upstream(&status(&daemon), "up");
        (told["state"] != "up").then_some(told)
    });
    assert!(since.elapsed() < Duration::from_secs(2), "{told:#}");
    assert!(
        told["why"].as_str().is_some_and(|why| why.contains("connect: refused") || why.contains("closed")),
        "{told:#}"
    );
}

#[test]
fn a_client_that_looks_for_metadata_everywhere_has_one_line() {
    let server = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&server).admin());
    for number in 0..10 {
        let path = format!("/.well-known/oauth-authorization-server/{number}");
        let asked = daemon.send(&call("0", "echo").target(&path));
        assert_eq!(asked.status, 404, "{}", asked.text());
    }
    daemon.send(&call("1", "echo")).assert_ok();
    let lines: Vec<_> =
        daemon.log().into_iter().filter(|line| line.contains("reason=\"no_endpoint\"")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn what_the_gateway_asks_itself_is_no_call() {
    let server = Upstream::with_tools(&["echo"]);
    let lines = "eras = [\"modern\"]\nhealth = { interval = \"100ms\" }";
    let daemon = Daemon::start(&Config::new().upstream("up", server.address, lines).admin());
    server.wait_for("server/discover", 4);
    daemon.send(&call("1", "echo")).assert_ok();
    let told = eventually("the call is counted", || {
        let told = upstream(&status(&daemon), "up");
        (told["calls"].as_u64() > Some(0)).then_some(told)
    });
    assert_eq!((&told["calls"], &told["errors"]), (&1.into(), &0.into()), "{told:#}");
}

#[test]
fn a_count_that_rises_is_told_alike_everywhere() {
    let server = Upstream::with_tools(&["echo"]);
    let limit = "[[limit]]\nname = \"few\"\nby = [\"address\"]\nrate = \"1/h\"";
    let config = Config::new().upstream("up", server.address, "").section(limit).admin();
    let daemon = Daemon::start(&config);
    for _ in 0..4 {
        daemon.send(&call("1", "echo"));
    }
    let words = "3 calls refused in the last minute";
    let told = status(&daemon);
    let all = told["problems"].as_array().expect("a list");
    let problem = all.iter().find(|problem| problem["subject"] == "limit few").expect("it is told");
    assert_eq!(problem["what"], words, "{told:#}");
    assert_eq!(problem["runbook"], "TrunklineRateLimited", "{told:#}");
    assert!(said(&daemon).lines().any(|line| line.contains("limit few") && line.contains(words)));
    let admin = daemon.admin().to_string();
    let mut top = Terminal::start(&["top", "--interval", "1", "--admin", &admin], &[], (120, 40));
    top.wait_for("UPSTREAM");
    top.keys("5");
    top.wait_for(words);
}
