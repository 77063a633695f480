//! A new configuration while clients are served: what it changes, what it leaves alone, and what is wrong with it.

mod lists;
mod under_load;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::harness::{
    Authority, Broken, Certificates, Config, Connection, Daemon, Folder, TlsClient, Upstream, api_key, call,
    eventually, write_secret,
};

/// Something to do to files.
type Act<'a> = Box<dyn Fn() + 'a>;

/// Replaces the configuration and waits for what is logged about it.
#[track_caller]
fn reload(daemon: &Daemon, config: &impl std::fmt::Display) -> String {
    let from = daemon.log().len();
    daemon.reload(config);
    daemon.wait_for_log(from, "the outcome of a reload", |line| line.contains("reloaded"))
}

#[track_caller]
fn assert_reloads(daemon: &Daemon, config: &impl std::fmt::Display) {
    let line = reload(daemon, config);
    assert!(!line.contains("not reloaded"), "{line}");
}

/// An address at which nobody listens.
fn free_address() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address")
}

fn upstream_of(name: &str, address: std::net::SocketAddr) -> String {
    format!(
        "[[endpoint]]\npath = \"/{name}\"\nupstreams = [\"{name}\"]\n\
         [upstream.{name}]\nurl = \"http://{address}/mcp\"\neras = [\"modern\"]"
    )
}

#[test]
fn a_good_configuration_is_swapped_in() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&Config::transparent(&one));
    let mut connection = daemon.connect();
    connection.write(&call("1", "echo").bytes());
    connection.response().assert_ok();
    let address = daemon.address();
    let listener = format!("address = \"{address}\"");
    let changed = Config::transparent(&two).listener(&listener).path("/new");
    daemon.reload(&changed);
    eventually("the new path is served", || {
        (daemon.send(&call("2", "echo").target("/new")).status == 200).then_some(())
    });
    assert_eq!(two.received_of("tools/call").len(), 1);
    assert_eq!(daemon.send(&call("3", "echo")).status, 404, "the old path is gone");
    // The connection that was open goes on, under the new configuration.
    connection.write(&call("4", "echo").target("/new").bytes());
    connection.response().assert_ok();
    assert_eq!(one.received_of("tools/call").len(), 1);
}

#[test]
fn a_reload_with_port_zero_keeps_the_listener() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&Config::transparent(&one));
    daemon.reload(&Config::transparent(&two));
    eventually("the new upstream is used", || {
        daemon.send(&call("1", "echo")).assert_ok();
        (!two.received_of("tools/call").is_empty()).then_some(())
    });
}

#[test]
fn a_bad_configuration_changes_nothing_and_says_why() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let bad = [
        "this is not TOML [".to_owned(),
        Config::transparent(&upstream).endpoint("colour = \"blue\"").to_string(),
        "[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"nowhere\"]\n".to_owned(),
    ];
    for config in bad {
        let before = daemon.log().len();
        daemon.reload(&config);
        let line =
            daemon.wait_for_log(before, "an error about the configuration", |line| line.contains("ERROR"));
        println!("{line}");
        daemon.send(&call("1", "echo")).assert_ok();
    }
    let before = daemon.log().len();
    daemon.reload(&Config::transparent(&upstream).path("/mended"));
    eventually("the mended one is taken", || {
        (daemon.send(&call("2", "echo").target("/mended")).status == 200).then_some(())
    });
    assert!(!daemon.log()[before..].iter().any(|line| line.contains("ERROR")));
}

#[test]
fn the_reason_for_keeping_the_old_configuration_names_the_key() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let before = daemon.log().len();
    daemon.reload(&Config::transparent(&upstream).endpoint("colour = \"blue\""));
    daemon.wait_for_log(before, "the unknown key by name", |line| line.contains("colour"));
}

#[test]
fn a_reload_never_opens_what_the_listener_still_exposes() {
    let upstream = Upstream::with_tools(&["echo"]);
    let entry = api_key("ci", "tl_a-key-for-this-test");
    let public = Config::transparent(&upstream).listener("address = \"0.0.0.0:0\"").section(&entry);
    let daemon = Daemon::start(&public);
    let before = daemon.log().len();
    daemon.reload(&Config::transparent(&upstream).section(&entry).endpoint("auth = []"));
    daemon.wait_for_log(before, "the refusal", |line| {
        line.contains("ERROR") && line.contains("open to a network")
    });
}

#[test]
fn what_is_wrong_with_a_file_is_said_and_changes_nothing() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream);
    let daemon = Daemon::start(&config);
    let file = daemon.config();
    let other = file.with_file_name("other");
    fs::write(&other, "").expect("written");
    let remove = || {
        if file.is_dir() { fs::remove_dir(file) } else { fs::remove_file(file) }.expect("removed");
    };
    let cases: [(&str, Act<'_>); 8] = [
        ("No such file", Box::new(remove)),
        ("it is not a file", Box::new(|| fs::create_dir(file).expect("a folder"))),
        (
            "it is not a file",
            Box::new(|| {
                remove();
                let status = std::process::Command::new("mkfifo").arg(file).status().expect("mkfifo runs");
                assert!(status.success());
            }),
        ),
        (
            "symbolic links",
            Box::new(|| {
                remove();
                symlink(file, file).expect("a link to itself");
            }),
        ),
        (
            "it is longer than 16777216 bytes",
            Box::new(|| {
                remove();
                fs::write(file, vec![b'#'; (16 << 20) + 1]).expect("written");
            }),
        ),
        ("UTF-8", Box::new(|| fs::write(file, b"\xff\xfe").expect("written"))),
        ("trunkline.toml:1:", Box::new(|| fs::write(file, "[listener").expect("written"))),
        (
            "colour",
            Box::new(|| {
                fs::write(file, config.clone().endpoint("colour = 1").to_string()).expect("written");
            }),
        ),
    ];
    for (expected, step) in cases {
        step();
        let from = daemon.log().len();
        daemon.hangup();
        let line = daemon.wait_for_log(from, expected, |line| line.contains("not reloaded"));
        assert!(line.contains("ERROR") && line.contains(expected), "{expected}: {line}");
        daemon.send(&call("1", "echo")).assert_ok();
    }
    assert_reloads(&daemon, &config);
}

#[test]
fn what_the_configuration_names_must_be_there() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (authority, files) = (Authority::new(), Certificates::new());
    let (one, two) = (authority.issue(&["localhost"]), authority.issue(&["localhost"]));
    let server = files.add("server", &one);
    let folder = Folder::new();
    let (secret, keys) = (folder.path().join("secret"), folder.path().join("jwks.json"));
    write_secret(&secret, "hunter2");
    fs::write(&keys, r#"{"keys":[]}"#).expect("written");
    let tls = format!("address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]");
    let bearer = format!("bearer = {{ file = {secret:?} }}");
    let config = Config::new().upstream("up", upstream.address, &bearer).listener(&tls);
    let daemon = Daemon::start(&config);
    let client = TlsClient::new(&authority);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (chain, key) = (files.path("server.pem"), files.path("server.key"));
    let address = taken.local_addr().expect("an address");
    let at_taken = config.clone().section(&format!("[[listener]]\naddress = \"{address}\""));
    let at_taken = at_taken.to_string().replace("\n[listener]\n", "\n[[listener]]\n");
    let gone = |path: &Path| fs::remove_file(path).expect("removed");
    let same = || config.to_string();
    let (certificate, bearer_token) = (Some("certificates"), Some("bearer"));
    let cases: [(&str, Option<&str>, String, Act<'_>, Act<'_>); 5] = [
        (
            "server.pem",
            certificate,
            same(),
            Box::new(|| gone(&chain)),
            Box::new(|| drop(files.add("server", &one))),
        ),
        (
            "server.key",
            certificate,
            same(),
            Box::new(|| gone(&key)),
            Box::new(|| drop(files.add("server", &one))),
        ),
        (
            "is not the key of the certificate",
            certificate,
            same(),
            Box::new(|| drop(files.write("server.key", &two.key))),
            Box::new(|| drop(files.add("server", &one))),
        ),
        (
            "/secret",
            bearer_token,
            same(),
            Box::new(|| gone(&secret)),
            Box::new(|| write_secret(&secret, "hunter2")),
        ),
        ("cannot listen at 127.0.0.1:", None, at_taken, Box::new(|| {}), Box::new(|| {})),
    ];
    for (expected, key, text, spoil, mend) in cases {
        spoil();
        let line = reload(&daemon, &text);
        assert!(line.contains("not reloaded") && line.contains(expected), "{expected}: {line}");
        assert!(!line.contains("hunter2"), "{line}");
        assert!(line.matches("No such file").count() <= 1, "a reason is said once: {line}");
        if let Some(key) = key {
            let number = text.lines().position(|line| line.starts_with(key)).expect(key) + 1;
            assert!(line.contains(&format!("trunkline.toml:{number}: ")), "{number}: {line}");
        }
        let mut connection = client.connect(daemon.address(), "localhost");
        connection.write(&call("1", "echo").set("Host", "localhost").bytes());
        connection.response().assert_ok();
        mend();
        assert_reloads(&daemon, &config);
    }
}

#[test]
fn what_differs_is_told_by_name() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let config = Config::transparent(&one).admin();
    let daemon = Daemon::start(&config);
    let from = daemon.log().len();
    let more = config.clone().section(&upstream_of("two", two.address)).limits("headers_max = 99");
    assert_reloads(&daemon, &more);
    for expected in ["upstream two: added", "endpoint /two: added", "limits.headers_max: changed"] {
        assert!(daemon.log()[from..].iter().any(|line| line.contains(expected)), "{expected}");
    }
    let from = daemon.log().len();
    assert_reloads(&daemon, &config.clone().top("workers = 3"));
    let log = daemon.log().split_off(from);
    for expected in ["upstream two: removed", "workers: changed", "from the next start on: workers"] {
        assert!(log.iter().any(|line| line.contains(expected)), "{expected}: {log:?}");
    }
    assert!(log.iter().any(|line| line.contains("audit") && line.contains("reload")), "{log:?}");
    let from = daemon.log().len();
    let unreachable = "[shared]\nredis = \"redis://127.0.0.1:1\"";
    assert_reloads(&daemon, &config.clone().section(unreachable));
    daemon.wait_for_log(from, "a restart is needed", |line| {
        line.contains("from the next start on") && line.contains("shared")
    });
    daemon.send(&call("1", "echo")).assert_ok();
}

#[test]
fn a_default_that_is_written_is_no_change() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin();
    let daemon = Daemon::start(&config);
    let cores = std::thread::available_parallelism().expect("cores");
    let limits =
        "buffered_bytes_max = \"256MiB\"\ncache_bytes_max = \"64MiB\"\nkept_lists_bytes_max = \"32MiB\"";
    let written = config.top(&format!("workers = {cores}")).limits(limits);
    let line = reload(&daemon, &written.to_string());
    assert!(line.contains("changes=0"), "{line}");
    let log = daemon.log();
    assert!(!log.iter().any(|line| line.contains("from the next start on")), "{log:?}");
}

#[test]
fn what_is_new_in_files_whose_names_stay_is_told_and_until_when_it_is_good() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (authority, files) = (Authority::new(), Certificates::new());
    let lasts = |days: u64| {
        move |params: &mut rcgen::CertificateParams| {
            let end = std::time::UNIX_EPOCH + Duration::from_secs(2_000_000_000 + days * 86_400);
            params.not_after = end.into();
        }
    };
    let server = files.add("server", &authority.issue_with(&["localhost"], lasts(0)));
    let ca = files.write("client-ca.pem", &authority.pem);
    let trace_ca = files.write("trace-ca.pem", &authority.pem);
    let (token, scrapers) = (files.path("token"), files.path("scrapers"));
    write_secret(&token, "swordfish");
    write_secret(&scrapers, "marlin");
    let config = Config::transparent(&upstream)
        .listener(&format!(
            "address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]\n\
             client_certificates = \"optional\"\nclient_ca = \"{}\"",
            ca.display()
        ))
        .section(&format!("[admin]\naddress = \"127.0.0.1:0\"\ntoken = {{ file = \"{}\" }}", token.display()))
        .section(&format!(
            "[metrics]\naddress = \"127.0.0.1:0\"\ntoken = {{ file = \"{}\" }}",
            scrapers.display()
        ))
        .section(&format!(
            "[upstream.other]\nurl = \"https://localhost:1/mcp\"\ntls = {{ ca = \"{}\" }}",
            ca.display()
        ))
        .section("[trace]\nendpoint = \"https://localhost:1/v1/traces\"");
    let trace_file = trace_ca.display().to_string();
    let daemon = Daemon::start_with(&config, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", &trace_file)]);
    let told = |from: usize| {
        daemon.reload(&config);
        daemon.wait_for_log(from, "a reload", |line| line.contains("reloaded"));
        daemon.log()[from..].join("\n")
    };
    let all = told(daemon.log().len());
    assert!(all.contains("changes=0") && !all.contains("next start"), "{all}");

    files.add("server", &authority.issue_with(&["localhost"], lasts(30)));
    let second = told(daemon.log().len());
    let listener = "listener 127.0.0.1:0: ";
    for (what, file, end) in
        [("certificate", "server.pem", ", good until 2033-06-17T03:33:20Z"), ("key", "server.key", "")]
    {
        let expected = format!("{listener}{what} changed, {}{end}", files.path(file).display());
        assert!(second.contains(&expected), "{expected}: {second}");
    }
    assert!(second.contains("changes=2"), "{second}");

    let other = Authority::new();
    files.write("client-ca.pem", &format!("{}{}", authority.pem, other.pem));
    files.write("trace-ca.pem", &other.pem);
    write_secret(&token, "sailfish");
    write_secret(&scrapers, "tuna");
    let third = told(daemon.log().len());
    for expected in [
        format!("{listener}client_ca changed, {}, good until ", ca.display()),
        format!("upstream other: ca changed, {}, good until ", ca.display()),
        "upstream other: secrets or certificates changed".to_owned(),
        format!("admin: token changed, {}", token.display()),
        format!("metrics: token changed, {}", scrapers.display()),
        "from the next start on: trace".to_owned(),
    ] {
        assert!(third.contains(&expected), "{expected}: {third}");
    }
    for secret in ["swordfish", "sailfish", "marlin", "tuna", "PRIVATE"] {
        assert!(!third.contains(secret), "{third}");
    }
    // Only what waits for a start is told again.
    let fourth = told(daemon.log().len());
    assert!(fourth.contains("changes=0") && fourth.contains("from the next start on: trace"), "{fourth}");
}

#[test]
fn listeners_come_and_go() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (authority, files) = (Authority::new(), Certificates::new());
    let server = files.add("server", &authority.issue(&["localhost"]));
    let base = Config::transparent(&upstream).section("[drain]\nquiet = \"3s\"\nmax = \"5s\"");
    let (first, second) = (free_address(), free_address());
    let with = |listeners: &[(std::net::SocketAddr, String)]| {
        let listeners: Vec<String> = listeners
            .iter()
            .map(|(address, lines)| format!("[[listener]]\naddress = \"{address}\"\n{lines}"))
            .collect();
        base.to_string().replace("[listener]\naddress = \"127.0.0.1:0\"", &listeners.join("\n"))
    };
    let plain = String::new();
    let tls = format!("[listener.tls]\ncertificates = [{server}]");
    let daemon = Daemon::start(&with(&[(first, plain.clone())]));
    let request = call("1", "echo").set("Host", "localhost").bytes();
    let answers = |connection: &mut Connection| {
        connection.write(&request);
        connection.response()
    };
    // Added, beside the first and with TLS.
    assert_reloads(&daemon, &with(&[(second, tls.clone()), (first, plain.clone())]));
    let mut secured = TlsClient::new(&authority).connect(second, "localhost");
    answers(&mut secured).assert_ok();
    let mut old = Connection::open(first);
    answers(&mut old).assert_ok();
    // TLS is left off for new connections; the open one goes on.
    assert_reloads(&daemon, &with(&[(second, plain.clone()), (first, plain.clone())]));
    answers(&mut Connection::open(second)).assert_ok();
    answers(&mut secured).assert_ok();
    // The first is removed: what is connected is asked to go, and is closed when it is idle.
    assert_reloads(&daemon, &with(&[(second, plain.clone())]));
    eventually("nobody listens at the old address", || Connection::try_open(first).is_none().then_some(()));
    let told = answers(&mut old);
    assert_eq!((told.status, told.header("connection")), (200, Some("close")));
    answers(&mut secured).assert_ok();
    // And comes back.
    assert_reloads(&daemon, &with(&[(second, plain.clone()), (first, plain)]));
    answers(&mut Connection::open(first)).assert_ok();
    assert!(matches!(old.try_response(), Err(Broken::Closed)), "closed by the drain of its listener");
}

#[test]
fn a_storm_of_signals_is_a_few_reloads_and_the_last_word_counts() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream);
    let daemon = Daemon::start(&config);
    let from = daemon.log().len();
    for round in 0..100 {
        daemon.reload(&config.clone().path(&format!("/{round}")));
    }
    eventually("the last one is in force", || {
        (daemon.send(&call("1", "echo").target("/99")).status == 200).then_some(())
    });
    let reloads = daemon.log()[from..].iter().filter(|line| line.contains("reloaded")).count();
    assert!((1..=25).contains(&reloads), "{reloads}");
}

#[test]
fn a_signal_that_comes_before_the_gateway_is_ready_is_answered_when_it_is() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let key = folder.path().join("session.key");
    write_secret(&key, &"7".repeat(64));
    // A start that waits a while for a Redis that says nothing.
    let redis = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = redis.local_addr().expect("an address");
    let config = Config::transparent(&upstream)
        .section(&format!("[session]\nkey = {{ file = \"{}\" }}", key.display()))
        .section(&format!("[shared]\nredis = \"redis://{address}\"\ntimeout = \"3s\""));
    let daemon = Daemon::spawn_passed(&config, &[], Vec::new());
    let (connection, _) = redis.accept().expect("the gateway asks");
    daemon.hangup();
    assert!(!daemon.log().iter().any(|line| line.contains("ready")), "{:?}", daemon.log());
    drop((connection, redis));
    daemon.wait_for_log(0, "it is ready", |line| line.contains("ready"));
    daemon.wait_for_log(0, "a reload", |line| line.contains("INFO") && line.contains("reloaded"));
}

#[test]
fn nothing_is_reloaded_in_a_drain() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).section("[drain]\nquiet = \"300ms\"");
    let mut daemon = Daemon::start(&config);
    daemon.terminate();
    daemon.wait_for_log(0, "the drain", |line| line.contains("draining"));
    let from = daemon.log().len();
    daemon.reload(&config.path("/new"));
    assert_eq!(daemon.send(&call("1", "echo").target("/new")).status, 404);
    assert!(daemon.wait_exit().success());
    assert!(!daemon.log()[from..].iter().any(|line| line.contains("reloaded")));
}

#[test]
fn watched_files_are_read_when_they_have_settled() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    for (name, secret) in [(&old, "one"), (&new, "two")] {
        fs::create_dir(name).expect("a folder");
        write_secret(&name.join("token"), secret);
    }
    let data = folder.path().join("data");
    symlink(&old, &data).expect("a link");
    let bearer = format!("bearer = {{ file = {:?} }}", data.join("token"));
    let config = Config::new().upstream("up", upstream.address, &bearer).section("[reload]\nwatch = true");
    let daemon = Daemon::start(&config);
    let rename_over = |text: String| {
        let beside = daemon.config().with_file_name("new.toml");
        fs::write(&beside, text).expect("written");
        fs::rename(beside, daemon.config()).expect("renamed");
    };
    // A folder of secrets is swapped, as Kubernetes does.
    let swapped = folder.path().join("data.new");
    symlink(&new, &swapped).expect("a link");
    fs::rename(&swapped, &data).expect("renamed");
    daemon.wait_for_log(0, "the secret is read", |line| line.contains("secrets or certificates changed"));
    daemon.send(&call("1", "echo")).assert_ok();
    let sent = upstream.received_of("tools/call").pop().expect("a call");
    assert_eq!(sent.headers("authorization"), ["Bearer two"]);
    // What is wrong is told once, and mended without a signal.
    let from = daemon.log().len();
    rename_over("[listener".to_owned());
    daemon.wait_for_log(from, "what is wrong", |line| line.contains("not reloaded"));
    rename_over(config.clone().path("/mended").to_string());
    // The line about the reload may still be that of the secret.
    eventually("it is mended", || {
        (daemon.send(&call("2", "echo").target("/mended")).status == 200).then_some(())
    });
    let refused = daemon.log()[from..].iter().filter(|line| line.contains("not reloaded")).count();
    assert_eq!(refused, 1);
}

#[test]
fn a_key_that_is_taken_away_opens_nothing_any_more() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream);
    let (ci, dev) = (api_key("ci", "one"), api_key("dev", "two"));
    let daemon = Daemon::start(&config.clone().section(&ci).section(&dev));
    let mut connection = daemon.connect();
    let mut status = |key: &str| {
        connection.write(&call("1", "echo").with("Authorization", format!("Bearer {key}")).bytes());
        connection.response().status
    };
    assert_eq!((status("one"), status("two")), (200, 200));
    assert_reloads(&daemon, &config.section(&dev));
    assert_eq!((status("two"), status("one")), (200, 401));
}
