//! The command line: `check`, `schema`, and what `run` refuses to start with.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{
    Authority, Certificates, Config, Daemon, Folder, Upstream, jwt, trunkline, write_secret,
};

fn good() -> String {
    Config::new().upstream("up", ([127, 0, 0, 1], 1).into(), "").to_string()
}

#[test]
fn an_alias_that_models_refuse_gets_a_warning() {
    let config = |alias: &str| {
        format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"a\"]\n\
             aliases = {{ {alias} = \"a__b\" }}\n[upstream.a]\nurl = \"http://127.0.0.1:1/mcp\"\n"
        )
    };
    let before = "the alias has over 64 characters with `mcp__trunkline__` before it";
    for (length, warning) in
        [(48, None), (49, Some(before)), (64, Some(before)), (65, Some("the alias has over 64 characters:"))]
    {
        let (output, _) = trunkline(&["check"], Some(&config(&"x".repeat(length))));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_told = warning.map_or(!said.contains("the alias has"), |warning| said.contains(warning));
        assert!(is_told, "{length}: {said}");
    }
}

#[test]
fn a_good_configuration_passes() {
    let (output, _) = trunkline(&["check"], Some(&good()));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn every_error_is_shown_with_file_line_and_caret() {
    let config =
        format!("{}colour = \"blue\"\nresponse_timeout = \"soon\"\n\n[drain]\nquiet = \"many\"\n", good());
    let (output, path) = trunkline(&["check"], Some(&config));
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(path.to_str().unwrap()), "the file: {errors}");
    for (word, text) in [("colour", "colour = "), ("soon", "response_timeout = "), ("many", "quiet = ")] {
        let line = config.lines().position(|line| line.starts_with(text)).unwrap() + 1;
        assert!(errors.contains(word), "{word} is not in {errors}");
        assert!(errors.contains(&line.to_string()), "line {line} is not in {errors}");
    }
    assert!(errors.lines().filter(|line| line.contains('^')).count() >= 3, "a caret each: {errors}");
}

#[test]
fn a_wrong_configuration_has_one_exit_code() {
    for command in
        [&["run"][..], &["check"], &["status"], &["top"], &["export", "--client", "zed"], &["pins", "list"]]
    {
        let (output, _) = trunkline(command, Some("colour = 5"));
        assert_eq!(output.status.code(), Some(78), "{command:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("colour"), "{command:?}: {output:?}");
        let (output, _) = trunkline(&[command, &["--config", "/nonexistent/file"]].concat(), None);
        assert_eq!(output.status.code(), Some(78), "{command:?}: {output:?}");
    }
}

/// What somebody sees who types `trunkline run` first.
const NO_CONFIGURATION: &str = "\
error: cannot read /etc/trunkline/trunkline.toml: No such file or directory (os error 2)
help: name another file with --config FILE or TRUNKLINE_CONFIG
help: to begin with, copy one from config/examples, ";

#[test]
fn errors_before_the_daemon_runs_look_alike() {
    for (arguments, code, said) in [
        (&["run", "/nonexistent/file"][..], 78, "error: cannot read /nonexistent/file"),
        (&["check", "/nonexistent/file"], 78, "error: cannot read /nonexistent/file"),
        (&["run"], 78, NO_CONFIGURATION),
        (&["check"], 78, NO_CONFIGURATION),
        (&["pins", "list"], 78, NO_CONFIGURATION),
        (&["demo", "--address", "0.0.0.0:1"], 2, "error: the demo has no authentication"),
    ] {
        if said == NO_CONFIGURATION && Path::new("/etc/trunkline/trunkline.toml").exists() {
            continue; // The package is installed here.
        }
        let (output, _) = trunkline(arguments, None);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.starts_with(said), "{arguments:?}: {stderr}");
    }
}

/// Tests may run as root or as another user.
#[test]
fn programs_that_root_would_run_are_told() {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let program = good().replace("url = \"http://127.0.0.1:1/mcp\"", "command = [\"sh\", \"-c\", \"exit\"]");
    assert_ne!(program, good());
    let (checked, _) = trunkline(&["check"], Some(&program));
    let said =
        |output: &Output| String::from_utf8_lossy(&output.stderr).contains("each `command` as root, too");
    assert_eq!(said(&checked), is_root, "{checked:?}");
    let (checked, _) = trunkline(&["check"], Some(&good()));
    assert!(!said(&checked), "there is no program: {checked:?}");
    let daemon = Daemon::start(&program);
    let log = daemon.log().join("\n");
    assert_eq!(log.contains("each `command` as root, too"), is_root, "{log}");
}

#[test]
fn launchers_that_stay_are_told_of_once_for_each_kind() {
    let config = [
        ("a", r#"["uvx", "a==1.0"]"#),
        ("b", r#"["uvx", "--from", "b==1.0", "b"]"#),
        ("c", r#"["/bin/sh", "-c", "exec uvx c==1.0 \"$${KEY}\""]"#),
        ("d", r#"["uv", "--directory", "/", "run", "d.py"]"#),
        ("e", r#"["npx", "--node-options=--no-warnings", "e@1.2.3"]"#),
        // By itself, once npm has fetched it.
        ("f", r#"["npx", "-y", "f@1.2.3", "--x"]"#),
        ("g", r#"["pipx", "run", "g==1.0"]"#),
        ("h", r#"["true"]"#),
    ]
    .into_iter()
    .fold(Config::new(), |config, (name, command)| {
        config.raw(name, &format!("command = {command}\nenv = {{ PATH = \"/nowhere\" }}"))
    })
    .to_string();
    let (output, _) = trunkline(&["check"], Some(&config));
    assert!(output.status.success(), "{output:?}");
    let daemon = Daemon::start(&config);
    let (checked, logged) = (String::from_utf8(output.stderr).unwrap(), daemon.log().join("\n"));
    for said in [&checked, &logged] {
        let told = |text: &str| said.matches(text).count();
        assert_eq!(told("stays beside each process"), 3, "{said}");
        assert_eq!(
            told("`uvx` stays beside each process of a, b, c, and takes memory: install the server"),
            1
        );
        assert_eq!(told("`uv` stays beside each process of d, and takes memory: install the server"), 1);
        assert_eq!(told("`npx` stays beside each process of e, and takes memory: write an exact version"), 1);
    }
}

#[test]
fn a_path_in_place_of_a_secret_is_shown() {
    let tls = "tls.certificates = [{ chain = \"/c.pem\", key = { file = \"key.pem\" } }]";
    let (output, _) = trunkline(&["check"], Some(&good().replace("[limits]", &format!("{tls}\n[limits]"))));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("file = \"key.pem\"") && errors.contains("{ file = \"/etc/trunkline/"),
        "{errors}"
    );
}

#[test]
fn configurations_that_cannot_work() {
    let cases = [
        ("", "no endpoint"),
        ("[listener", "not TOML"),
        ("[listener]\naddress = \"127.0.0.1:0\"", "no endpoint"),
        ("listener = 5", "the wrong type"),
    ];
    for (config, what) in cases {
        let (output, _) = trunkline(&["check"], Some(config));
        assert_eq!(output.status.code(), Some(78), "{what}: {output:?}");
        assert!(!output.stderr.is_empty(), "{what}");
    }
    let replaced = [
        ("127.0.0.1:0", "nowhere"),
        ("upstreams = [\"up\"]", "upstreams = [\"other\"]"),
        ("upstreams = [\"up\"]", "upstreams = [\"up\", \"up\"]"),
        ("path = \"/mcp\"", "path = \"mcp\""),
        ("[upstream.up]", "[upstream.Up]"),
        ("[upstream.up]", "[upstream.\"u_p\"]"),
        ("url = \"http:", "url = \"ftp:"),
        ("url = \"http:", "url = \"http"),
        ("upstreams = [\"up\"]", "upstreams = [\"up\"]\nnames = \"short\""),
        ("upstreams = [\"up\"]", "upstreams = [\"up\"]\ndeny = [\"[\"]"),
        ("upstreams = [\"up\"]", "upstreams = [\"up\"]\naliases = { a = \"nosuch__b\" }"),
    ];
    for (from, to) in replaced {
        let config = good();
        assert!(config.contains(from), "{from}");
        let (output, _) = trunkline(&["check"], Some(&config.replace(from, to)));
        assert_eq!(output.status.code(), Some(78), "{to}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains('^'), "{to}: {output:?}");
    }
}

#[test]
fn an_open_endpoint_on_a_public_address_is_refused_unless_asked_for() {
    let open = good().replace("127.0.0.1:0", "0.0.0.0:0");
    for command in ["check", "run"] {
        let (output, _) = trunkline(&[command], Some(&open));
        assert_eq!(output.status.code(), Some(78), "{command}: {output:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("allow_unauthenticated"), "what to do about it: {errors}");
    }
    let with = |line: &str| open.replace("path = \"/mcp\"", &format!("path = \"/mcp\"\n{line}"));
    let (output, _) = trunkline(&["check"], Some(&with("allow_unauthenticated = true")));
    assert!(output.status.success(), "{output:?}");
    let keyed = format!("{open}\n{}", crate::harness::api_key("ci", "0123456789abcdef0123456789abcdef"));
    let (output, _) = trunkline(&["check"], Some(&keyed));
    assert!(output.status.success(), "{output:?}");
    let emptied = format!(
        "{}\n{}",
        with("auth = []"),
        crate::harness::api_key("ci", "0123456789abcdef0123456789abcdef")
    );
    let (output, _) = trunkline(&["check"], Some(&emptied));
    assert_eq!(output.status.code(), Some(78), "{output:?}");
}

#[test]
fn run_does_not_start_with_a_bad_configuration() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).endpoint("colour = \"blue\"").to_string();
    let (output, _) = trunkline(&["run"], Some(&config));
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("colour") && errors.contains('^'), "{errors}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for command in ["check", "run"] {
        let (output, _) = trunkline(&[command, "--config", "/nonexistent/trunkline.toml"], None);
        assert!(!output.status.success());
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("/nonexistent/trunkline.toml"),
            "{output:?}"
        );
    }
}

#[test]
fn an_address_in_use_is_said_so() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = Folder::new();
    let socket = format!("unix:{}/none/admin.sock", folder.path().display());
    let admin = format!("{}\n{}\n[admin]\naddress = \"{socket}\"", folder.key(), good());
    for (config, address) in [(good().replace("127.0.0.1:0", &address), address), (admin, socket)] {
        let (output, path) = trunkline(&["run"], Some(&config));
        assert!(!output.status.success());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = config.lines().position(|line| line.contains(&address)).expect("it is there") + 1;
        assert!(
            errors.contains(&format!("{}:{line}: cannot listen at {address}: ", path.display())),
            "{errors}"
        );
    }
}

#[test]
fn the_schema_is_json_and_knows_the_keys() {
    let (output, _) = trunkline(&["schema"], None);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(schema["properties"]["endpoint"].is_object(), "{text:.500}");
    for key in ["body_bytes_max", "accept_unprefixed", "stream_idle_timeout", "allow_unauthenticated"] {
        assert!(text.contains(key), "{key}");
    }
}

/// `trunkline check` with these variables in its environment.
fn check_in(variables: &[(&str, &str)], config: &Config) -> Output {
    let folder = Folder::new();
    let path = folder.path().join("trunkline.toml");
    std::fs::write(&path, config.to_string()).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["check", "--config"]).arg(&path).envs(variables.iter().copied());
    command.output().expect("the binary starts")
}

#[test]
fn a_check_refuses_what_a_start_refuses() {
    let authority = Authority::new();
    let (certificates, others, folder) = (Certificates::new(), Certificates::new(), Folder::new());
    let good = certificates.add("server", &authority.issue(&["localhost"]));
    others.add("server", &authority.issue(&["localhost"]));
    let mixed = good.replace(
        &certificates.path("server.key").display().to_string(),
        &others.path("server.key").display().to_string(),
    );
    assert_ne!(good, mixed);
    let cut = good.replace("server.pem", "cut.pem");
    let whole = std::fs::read(certificates.path("server.pem")).expect("it is there");
    std::fs::write(certificates.path("cut.pem"), &whole[..whole.len() / 2]).expect("written");
    let none = folder.path().join("none").display().to_string();
    let wrong = folder.path().join("wrong").display().to_string();
    std::fs::write(&wrong, "nonsense").expect("written");
    let state = Folder::new();
    std::fs::write(state.path().join("session.key"), "nonsense").expect("written");

    let tls = |certificate: &str| {
        format!("address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{certificate}]")
    };
    let config = || Config::new().upstream("up", ([127, 0, 0, 1], 1).into(), "");
    let https = |lines: &str| Config::new().raw("up", &format!("url = \"https://localhost:1/mcp\"\n{lines}"));
    let audience = "public_url = \"https://mcp.example.com/mcp\"";
    for (config, said) in [
        (config().listener(&tls(&good.replace("server.pem", "none.pem"))), "none.pem"),
        (config().listener(&tls(&mixed)), "server"),
        (config().listener(&tls(&cut)), "cut.pem: not a PEM file: it ends before its END line"),
        (https(&format!("[upstream.up.tls]\nca = \"{none}\"")), &*none),
        (https(&format!("[upstream.up.tls]\nca = \"{wrong}\"")), &wrong),
        (https(&format!("bearer = {{ file = \"{none}\" }}")), &none),
        (config().section(&jwt(&format!("jwks_file = \"{none}\""))).endpoint(audience), &none),
        (config().section(&jwt(&format!("jwks_file = \"{wrong}\""))).endpoint(audience), &wrong),
        (config().section(&format!("[session]\nkey = {{ file = \"{none}\" }}")), &none),
        (config().section(&format!("[session]\nkey = {{ file = \"{wrong}\" }}")), &wrong),
        (config().top(&state.key()), "session.key"),
        (config().top(&format!("state_directory = \"{}/\"", state.path().display())), "session.key"),
        (
            config().section(&format!("[admin]\naddress = \"127.0.0.1:0\"\ntoken = {{ file = \"{none}\" }}")),
            &none,
        ),
        (config().section(&format!("[log]\nfile = \"{none}/log\"")), &none),
    ] {
        let config = config.to_string();
        for command in ["run", "check"] {
            let (output, path) = trunkline(&[command], Some(&config));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(66), "{command}: {config}\n{stderr}");
            assert!(stderr.contains(said), "{command}: {said} is not in {stderr}");
            let (file, _) = said.split_once(": ").unwrap_or((said, ""));
            let key = if file == "session.key" { "state_directory" } else { file };
            let line = config.lines().position(|line| line.contains(key)).expect(key) + 1;
            let place = format!("{}:{line}:", path.display());
            assert!(stderr.contains(&place), "{command}: {place} is not in {stderr}");
        }
        let (output, _) = trunkline(&["check", "--no-files"], Some(&config));
        assert!(output.status.success(), "{output:?}");
    }
    let (output, _) = trunkline(&["check"], Some(&config().listener(&tls(&good)).to_string()));
    assert!(output.status.success(), "{output:?}");
    let (output, _) = trunkline(&["check"], Some(&config().top(&folder.key()).to_string()));
    assert!(output.status.success(), "{output:?}");
    assert!(!folder.path().join("session.key").exists(), "a check makes no file");

    // All of it at once.
    let all = Config::new()
        .raw("a", &format!("url = \"http://127.0.0.1:1/\"\nbearer = {{ file = \"{none}-a\" }}"))
        .raw("b", &format!("url = \"http://127.0.0.1:1/\"\nbearer = {{ file = \"{none}-b\" }}"))
        .listener(&tls(&mixed));
    let (output, _) = trunkline(&["check"], Some(&all.to_string()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("error: ").count(), 3, "{stderr}");
    assert!(stderr.contains("none-a") && stderr.contains("none-b"), "{stderr}");
}

/// What is in the environment of the service alone is not held against a configuration that is checked elsewhere.
#[test]
fn a_check_elsewhere_does_not_miss_what_only_the_service_has() {
    let bearer = |source: &str| {
        Config::new().upstream("up", ([127, 0, 0, 1], 1).into(), &format!("bearer = {{ {source} }}"))
    };
    let (variable, credential) = (bearer("env = \"TRUNKLINE_TEST_TOKEN\""), bearer("credential = \"token\""));
    let folder = Folder::new();
    let directory = folder.path().to_str().expect("text");
    for (code, warns, config, variables) in [
        (0, true, &variable, vec![]),
        // `ExecReload=` of the unit.
        (66, false, &variable, vec![("MAINPID", "1")]),
        (66, false, &variable, vec![("TRUNKLINE_TEST_TOKEN", "")]),
        (0, false, &variable, vec![("TRUNKLINE_TEST_TOKEN", "secret")]),
        (0, true, &credential, vec![]),
        (0, true, &credential, vec![("MAINPID", "1")]),
        (66, false, &credential, vec![("CREDENTIALS_DIRECTORY", directory)]),
    ] {
        let output = check_in(&variables, config);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{variables:?}: {stderr}");
        assert_eq!(
            stderr.contains("warning: upstream up: cannot read a secret"),
            warns,
            "{variables:?}: {stderr}"
        );
        let line =
            config.to_string().lines().position(|line| line.contains("bearer")).expect("it is there") + 1;
        assert_eq!(
            stderr.contains(&format!("trunkline.toml:{line}:")),
            code != 0 || warns,
            "{variables:?}: {stderr}"
        );
    }
}

/// `ExecReload=` of a unit that loads credentials and has a mount namespace, by systemd 252 to 256: the variable is set, but
/// the directory may not be entered, is not there, or has nothing in it.
#[test]
fn a_check_before_a_reload_does_not_miss_credentials_that_systemd_keeps_from_it() {
    let (certificates, folder) = (Certificates::new(), Folder::new());
    let server = certificates.add("server", &Authority::new().issue(&["localhost"]));
    let of_file = format!("file = \"{}\"", certificates.path("server.key").display());
    let server = server.replace(&of_file, "credential = \"tls.key\"");
    assert!(server.contains("credential"), "{server}");
    let config = Config::new()
        .upstream("up", ([127, 0, 0, 1], 1).into(), "bearer = { credential = \"token\" }")
        .listener(&format!("address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]"));
    let path = folder.path().join("trunkline.toml");
    std::fs::write(&path, config.to_string()).expect("written");
    let credentials = folder.path().join("credentials");
    std::fs::create_dir(&credentials).expect("a folder");
    let empty = credentials.clone();
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).expect("a folder");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).expect("its own");
    // Root may enter every directory unless it gives that up.
    let is_root = rustix::process::geteuid().is_root();
    let unprivileged = if is_root { "setpriv --bounding-set=-all --inh-caps=-all" } else { "" };
    let check = |directory: &Path, is_reload: bool| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {unprivileged} \"$0\" check --config \"$1\"")]);
        command.arg(env!("CARGO_BIN_EXE_trunkline")).arg(&path).env("CREDENTIALS_DIRECTORY", directory);
        command.env_remove("MAINPID");
        if is_reload {
            command.env("MAINPID", "1");
        }
        let output = command.output().expect("a shell");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for directory in [&closed, &empty, &folder.path().join("none")] {
        let (code, said) = check(directory, true);
        assert_eq!(code, Some(0), "{}: {said}", directory.display());
        for name in ["tls.key", "token"] {
            let warns = |line: &str| {
                line.contains("warning: ")
                    && line.contains(&format!("the credential {name}"))
                    && line.contains("not checked: the service may have it")
                    && line.contains("restart")
            };
            assert!(said.lines().any(warns), "{name}: {said}");
        }
    }
    // A credential that systemd has shown is read, and one of several that is missing is missed.
    write_secret(&credentials.join("token"), "swordfish");
    for is_reload in [false, true] {
        let (code, said) = check(&credentials, is_reload);
        assert_eq!(code, Some(66), "{said}");
        assert!(said.contains("error: ") && said.contains("tls.key") && !said.contains("token:"), "{said}");
    }
    // A key that was replaced after the start, as a reload sees it.
    let other = Certificates::new();
    other.add("server", &Authority::new().issue(&["localhost"]));
    std::fs::copy(other.path("server.key"), credentials.join("tls.key")).expect("copied");
    let shown = format!(
        "[upstream.tls]\nurl = \"https://localhost:1/mcp\"\n\
         tls = {{ certificate = \"{}\", key = {{ credential = \"tls.key\" }} }}",
        certificates.path("server.pem").display()
    );
    std::fs::write(&path, config.section(&shown).to_string()).expect("written");
    let (code, said) = check(&credentials, true);
    assert_eq!(code, Some(66), "{said}");
    for expected in ["is not the key of the certificate", "or not that of the certificate"] {
        let told =
            |line: &str| line.contains(expected) && line.contains("a restart of the service always does");
        assert!(said.lines().any(told), "{expected}: {said}");
    }
}

#[test]
fn all_errors_of_tables_in_tables_are_shown_at_once() {
    let config = r#"[listener]
address = "127.0.0.1:8080"
[listener.tls]
version_min = "1.1"
client_certificates = "maybe"
[[endpoint]]
path = "/mcp"
upstreams = ["a"]
[upstream.a]
url = "http://127.0.0.1:9101/"
x-token = "verysecret"
env = { GOOD = "verysecret", "BAD NAME" = "verysecret" }
[upstream.a.health]
interval = "soon"
tiemout = "1s"
path = 5
[upstream.a.tls]
cert = "verysecret"
ca = 5
[[limit]]
name = 5
by = ["tool", 6]
calls = "many"
period = 1
colour = "x"
[shared]
redis = 5
replicas = "a"
password = { fil = "verysecret", env = 5 }
"#;
    let (output, _) = trunkline(&["check"], Some(config));
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    for line in [4, 5, 11, 14, 15, 16, 18, 19, 21, 22, 23, 24, 25, 27, 28, 29] {
        assert!(errors.contains(&format!("toml:{line}:")), "line {line}: {errors}");
    }
    assert!(errors.contains("did you mean `timeout`?"), "{errors}");
    assert!(errors.contains("x-token") && errors.contains("cert = "), "the names of keys: {errors}");
    assert!(!errors.contains("verysecret"), "{errors}");
}

#[test]
fn a_key_in_the_configuration_is_warned_of_and_not_shown() {
    let (output, _) = trunkline(&["key", "ci"], None);
    let said = String::from_utf8(output.stderr).expect("text");
    let key = said.split_whitespace().last().expect("a key");
    let entry = String::from_utf8(output.stdout).expect("text");
    let checked = |text: &str| {
        let (output, _) = trunkline(&["check"], Some(text));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let clean = format!("{}\n{entry}", good());
    assert_eq!(checked(&clean), "");
    for comment in
        [format!("#   Authorization: Bearer {key}"), format!("# {key} = '"), format!("# tl_ {key}")]
    {
        let warned = checked(&format!("{comment}\n{clean}"));
        assert!(
            warned.contains("trunkline.toml:1:") && warned.contains("warning: a key in clear text"),
            "{warned}"
        );
        assert!(!warned.contains(key), "{warned}");
    }
    assert_eq!(checked(&format!("# {}\n{clean}", &key[..key.len() - 1])), "");
}

#[test]
fn keys_that_have_expired_or_soon_do_are_warned_of() {
    let day = |days: i64| {
        let output = Command::new("date").args(["-u", "+%Y-%m-%d", "-d", &format!("{days} days")]).output();
        String::from_utf8(output.expect("date runs").stdout).expect("text").trim().to_owned()
    };
    let digest = |number: u8| format!("{number:064x}");
    let key = |number, expires: &str| {
        format!("[[api_key]]\nname = \"k{number}\"\nsha256 = \"{}\"\n{expires}", digest(number))
    };
    let (past, soon, later) = (day(-3), day(10), day(20));
    let expires = |day: &str| format!("expires = \"{day}\"\n");
    let of_variable = expires("${TRUNKLINE_TEST_END:-2001-02-04}");
    let (past_key, soon_key, later_key) = (expires(&past), expires(&soon), expires(&later));
    let keys = [past_key, soon_key, later_key, String::new(), "expires = 2001-02-03\n".into(), of_variable];
    let entries: String = keys.iter().zip(1..).map(|(expires, number)| key(number, expires)).collect();
    let config = format!("{}\n{entries}", good());
    let (output, _) = trunkline(&["check"], Some(&config));
    assert!(output.status.success(), "{output:?}");
    let warned = String::from_utf8(output.stderr).expect("text");
    for (day, said) in [
        (&*past, format!("warning: the key `k1` expired on {past}: ")),
        (&soon, format!("warning: the key `k2` expires on {soon}: ")),
        ("2001-02-03", "warning: the key `k5` expired on 2001-02-03: ".to_owned()),
        ("2001-02-04", "warning: the key `k6` expired on 2001-02-04: ".to_owned()),
    ] {
        let line = config.lines().position(|line| line.contains(day)).expect(day) + 1;
        assert!(
            warned.contains(&said) && warned.contains(&format!("trunkline.toml:{line}:")),
            "{said}: {warned}"
        );
    }
    assert_eq!(warned.matches("warning: ").count(), 4, "{warned}");
    assert!(!warned.contains(&digest(1)), "{warned}");
}

/// The rest of a line that something is told about may be a password.
#[test]
fn a_line_that_something_is_told_about_shows_no_value() {
    let config = |lines: &str| {
        format!(
            "{lines}\n[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]"
        )
    };
    let child = |program: &str, source: &str| {
        let env = format!("{{ DATABASE_URL = \"postgres://u:hunter2@db/x\", TOKEN = {{ {source} }} }}");
        config(&format!("upstream.up = {{ command = \"{program}\", env = {env} }}"))
    };
    let key = r#"api_key = [{ name = "old", sha256 = "DIGEST", expires = "2001-02-03" }]"#;
    let digest = format!("{:064x}", 7);
    let remote = "upstream.up.url = \"http://127.0.0.1:1/\"";
    for (config, said) in [
        (child("/bin/true", "file = \"/none/a\""), "/none/a"),
        (child("/bin/true", "file = \"${TRUNKLINE_TEST_NONE}\""), "TRUNKLINE_TEST_NONE"),
        (child("/none/b", "file = \"/dev/null\""), "/none/b"),
        (config(&format!("{}\n{remote}", key.replace("DIGEST", &digest))), "`old` expired on 2001-02-03"),
    ] {
        let (output, _) = trunkline(&["check"], Some(&config));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(said), "{config}\n{stderr}");
        assert!(!stderr.contains("hunter2") && !stderr.contains(&digest), "{config}\n{stderr}");
    }
}

/// As after `sudo -u` in the home of root.
#[test]
fn a_key_file_is_made_from_a_directory_that_may_not_be_entered() {
    let (here, keys) = (Folder::new(), Folder::new());
    // Root may enter every directory unless it gives that up.
    let is_root = rustix::process::geteuid().is_root();
    let unprivileged = if is_root { "setpriv --bounding-set=-all --inh-caps=-all" } else { "" };
    let output = Command::new("sh")
        .args(["-c", &format!("chmod 0 . && exec {unprivileged} \"$0\" session-key \"$1\"")])
        .arg(env!("CARGO_BIN_EXE_trunkline"))
        .arg(keys.path().join("session.key"))
        .current_dir(here.path())
        .output()
        .expect("a shell");
    std::fs::set_permissions(here.path(), std::fs::Permissions::from_mode(0o700)).expect("its own");
    assert!(output.status.success(), "{output:?}");
    assert!(keys.path().join("session.key").exists());
}

#[test]
fn pins_beside_shared_need_a_session_key_that_all_gateways_have() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let key = folder.path().join("session.key");
    std::fs::write(&key, "7".repeat(64)).expect("a key file");
    let session = format!("[session]\nkey = {{ file = \"{}\" }}", key.display());
    let (shared, pins) =
        ("[shared]\nredis = \"redis://127.0.0.1:6379\"", "`pins` of one are refused at another");
    for (mode, sections, warns) in [
        ("block", vec![shared], true),
        ("warn", vec![shared], true),
        ("off", vec![shared], false),
        ("block", vec![shared, &session], false),
        ("block", vec![], false),
    ] {
        let config = Config::new().upstream("up", upstream.address, &format!("pins = \"{mode}\""));
        let config = sections.iter().fold(config, |config, section| config.section(section));
        let (output, _) = trunkline(&["check"], Some(&config.to_string()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.contains(pins), warns, "{mode} {sections:?}: {said}");
    }
}
