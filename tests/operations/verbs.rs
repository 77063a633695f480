//! `trunkline reload`, `ready`, `log-level` and `drain`, on a gateway that runs.

use std::process::Output;

use crate::harness::{Config, Daemon, Folder, Upstream, trunkline, write_secret};

fn ask(daemon: &Daemon, words: &[&str]) -> (Option<i32>, String) {
    let admin = daemon.admin().to_string();
    let (Output { status, stdout, stderr }, _) = trunkline(&[words, &["--admin", &admin]].concat(), None);
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn an_operator_speaks_to_the_gateway_by_commands() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin();
    let daemon = Daemon::start(&config);
    assert_eq!(ask(&daemon, &["ready"]), (Some(0), "ok\n".to_owned()));
    assert_eq!(ask(&daemon, &["ready", "--live"]), (Some(0), "ok\n".to_owned()));
    assert_eq!(
        ask(&daemon, &["log-level", "debug"]),
        (Some(0), "debug until a reload brings another level\n".to_owned())
    );
    assert_eq!(ask(&daemon, &["log-level", "loud"]).0, Some(2));

    daemon.write_config(&config.clone().path("/other"));
    let (code, said) = ask(&daemon, &["reload"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("reloaded\n") && said.contains("/other"), "{said}");
    daemon.write_config(&"[listener]");
    let (code, said) = ask(&daemon, &["reload"]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("the old configuration stays in force") && said.contains("error: "), "{said}");

    let (code, said) = ask(&daemon, &["drain"]);
    assert_eq!(code, Some(1), "anybody on this machine could: {said}");
    assert!(said.contains("needs a `token` or a Unix socket"), "{said}");
    assert!(said.contains(&format!("`kill {}`", daemon.pid())), "and what to do without: {said}");
    assert_eq!(ask(&daemon, &["ready"]).0, Some(0));
}

/// Whoever has made a mistake in the file wants to know how the gateway is.
#[test]
fn a_gateway_is_found_by_a_configuration_that_is_wrong() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let admin = format!("[admin]\naddress = \"{}\"\n", daemon.admin());
    let path = daemon.config().display().to_string();
    let ask = |word: &str| {
        let (Output { status, stdout, stderr }, _) = trunkline(&[word, "--config", &path], None);
        (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
    };
    for wrong in ["[log]\nlevel = 7\n", "[log]\nlevel = \"info\n", "[upstream.${NOBODY}]\n", ""] {
        daemon.write_config(&format!("{admin}{wrong}"));
        let (code, said) = ask("reload");
        assert!(code == Some(78) && said.contains("the old configuration stays in force"), "{wrong}: {said}");
        let (code, said) = ask("status");
        assert!(matches!(code, Some(0 | 1)) && said.contains(" up "), "{wrong}: {said}");
    }
    daemon.write_config(&"[admin]\naddress = 7\n");
    assert_eq!(ask("status").0, Some(78));
}

#[test]
fn who_has_the_token_stops_the_gateway_in_order() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let file = folder.path().join("token");
    write_secret(&file, "swordfish");
    let token = file.display().to_string();
    let admin = format!("[admin]\naddress = \"127.0.0.1:0\"\ntoken = {{ file = \"{token}\" }}");
    let mut daemon = Daemon::start(&Config::transparent(&upstream).section(&admin));
    assert_eq!(ask(&daemon, &["ready"]).0, Some(0), "a probe has no token");
    let (code, said) = ask(&daemon, &["drain"]);
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(ask(&daemon, &["drain", "--token-file", &token]), (Some(0), "draining\n".to_owned()));
    assert!(daemon.wait_exit().success());
    assert_eq!(ask(&daemon, &["ready"]).0, Some(3), "nobody is there");
}
