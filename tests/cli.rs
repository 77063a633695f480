//! The command line: `check`, `schema`, and what `run` refuses to start with.

use crate::harness::{Config, Upstream, trunkline};

fn good() -> String {
    Config::new().upstream("up", ([127, 0, 0, 1], 1).into(), "").to_string()
}

#[test]
fn a_good_configuration_passes() {
    let (output, _) = trunkline(&["check"], Some(&good()));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn every_error_is_shown_with_file_line_and_caret() {
    let config =
        format!("{}colour = \"blue\"\nreply_timeout = \"soon\"\n\n[drain]\nquiet = \"many\"\n", good());
    let (output, path) = trunkline(&["check"], Some(&config));
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(path.to_str().unwrap()), "the file: {errors}");
    for (word, text) in [("colour", "colour = "), ("soon", "reply_timeout = "), ("many", "quiet = ")] {
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
        assert_eq!(output.status.code(), Some(64), "{command:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("colour"), "{command:?}: {output:?}");
        let (output, _) = trunkline(&[command, &["--config", "/nonexistent/file"]].concat(), None);
        assert_eq!(output.status.code(), Some(64), "{command:?}: {output:?}");
    }
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
        assert_eq!(output.status.code(), Some(64), "{what}: {output:?}");
        assert!(!output.stderr.is_empty(), "{what}");
    }
    let replaced = [
        ("127.0.0.1:0", "nowhere"),
        ("upstreams = [\"up\"]", "upstreams = []"),
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
        assert_eq!(output.status.code(), Some(64), "{to}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains('^'), "{to}: {output:?}");
    }
}

#[test]
fn an_open_endpoint_on_a_public_address_is_refused_unless_asked_for() {
    let open = good().replace("127.0.0.1:0", "0.0.0.0:0");
    for command in ["check", "run"] {
        let (output, _) = trunkline(&[command], Some(&open));
        assert_eq!(output.status.code(), Some(64), "{command}: {output:?}");
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
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

#[test]
fn run_does_not_start_with_a_bad_configuration() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).endpoint("colour = \"blue\"").to_string();
    let (output, _) = trunkline(&["run"], Some(&config));
    assert_eq!(output.status.code(), Some(64), "{output:?}");
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
    let (output, _) = trunkline(&["run"], Some(&good().replace("127.0.0.1:0", &address)));
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains(&address), "{errors}");
}

#[test]
fn the_schema_is_json_and_knows_the_keys() {
    let (output, _) = trunkline(&["schema"], None);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(schema["properties"]["endpoint"].is_object(), "{text:.500}");
    for key in ["body_bytes_max", "accept_bare", "stream_idle_timeout", "allow_unauthenticated"] {
        assert!(text.contains(key), "{key}");
    }
}
