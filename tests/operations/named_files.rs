//! Files that a configuration names: who else may use them, what lies in their place, and when certificates end.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use rcgen::CertificateParams;

use crate::harness::{Authority, Certificates, Config, Daemon, Folder, Upstream, trunkline, write_secret};

fn good() -> Config {
    Config::new().upstream("up", ([127, 0, 0, 1], 1).into(), "")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
}

fn with_key(path: &Path) -> Config {
    good().section(&format!("[session]\nkey = {{ file = \"{}\" }}", path.display()))
}

#[test]
fn a_session_key_that_others_may_write_is_refused_and_one_they_may_read_is_told() {
    let folder = Folder::new();
    let path = folder.path().join("session.key");
    assert!(trunkline(&["session-key", &path.display().to_string()], None).0.status.success());
    let config = with_key(&path).to_string();
    for (bits, code, expected) in [
        (0o600, 0, None),
        (0o640, 0, None),
        (0o644, 0, Some("everybody on this machine may use a file that holds a secret")),
        (0o660, 66, Some("others may write it (mode 0660)")),
        (0o602, 66, Some("others may write it (mode 0602)")),
    ] {
        mode(&path, bits);
        let (checked, _) = trunkline(&["check"], Some(&config));
        assert_eq!(checked.status.code(), Some(code), "{bits:o}: {checked:?}");
        match expected {
            Some(expected) => assert!(said(&checked).contains(expected), "{bits:o}: {checked:?}"),
            None => assert!(!said(&checked).contains("session.key"), "{bits:o}: {checked:?}"),
        }
        if code != 0 {
            let (run, _) = trunkline(&["run"], Some(&config));
            assert_eq!(run.status.code(), Some(code), "{bits:o}: {run:?}");
            assert!(said(&run).contains("others may write it"), "{bits:o}: {run:?}");
        }
    }
    mode(&path, 0o644);
    let daemon = Daemon::start(&config);
    daemon.wait_for_log(0, "a warning", |line| line.contains("everybody on this machine may use a file"));
}

#[test]
fn the_modes_of_all_secrets_are_told() {
    let (folder, certificates) = (Folder::new(), Certificates::new());
    let (open, closed) = (folder.path().join("open"), folder.path().join("closed"));
    let in_query = folder.path().join("in-query");
    for path in [&open, &closed, &in_query] {
        write_secret(path, "swordfish");
    }
    mode(&open, 0o604);
    mode(&in_query, 0o604);
    let server = certificates.add("server", &Authority::new().issue(&["localhost"]));
    mode(&certificates.path("server.key"), 0o644);
    let config = good()
        .listener(&format!("address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]"))
        .section(&format!("[admin]\naddress = \"127.0.0.1:0\"\ntoken = {{ file = \"{}\" }}", closed.display()))
        .section(&format!(
            "[upstream.child]\ncommand = [\"sh\"]\nenv = {{ A = {{ file = \"{}\" }}, B = {{ file = \"{}\" }} }}",
            open.display(),
            closed.display()
        ))
        .section(&format!(
            "[upstream.keyed]\nurl = \"http://127.0.0.1:1/\"\nquery = {{ apiKey = {{ file = \"{}\" }} }}",
            in_query.display()
        ));
    let (checked, _) = trunkline(&["check"], Some(&config.to_string()));
    let told = said(&checked);
    for path in [&open, &in_query, &certificates.path("server.key")] {
        assert!(told.contains(&format!("{}: everybody", path.display())), "{}: {told}", path.display());
    }
    assert!(!told.contains("closed: everybody"), "{told}");
}

/// Without a writer a FIFO has neither an end nor an error.
#[test]
fn a_fifo_in_the_place_of_a_file_holds_up_no_start() {
    let (folder, certificates) = (Folder::new(), Certificates::new());
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let path = fifo.display();
    let identity = Authority::new().issue(&["localhost"]);
    certificates.add("server", &identity);
    let tls_with = |chain: &dyn std::fmt::Display, key: &dyn std::fmt::Display, lines: &str| {
        good().listener(&format!(
            "address = \"127.0.0.1:0\"\n[listener.tls]\n{lines}\n\
             certificates = [{{ chain = \"{chain}\", key = {{ file = \"{key}\" }} }}]"
        ))
    };
    let tls = |chain: &dyn std::fmt::Display, key: &dyn std::fmt::Display| tls_with(chain, key, "");
    let (chain, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    for (what, config) in [
        ("a session key", with_key(&fifo)),
        (
            "a token",
            good().section(&format!("[admin]\naddress = \"127.0.0.1:0\"\ntoken = {{ file = \"{path}\" }}")),
        ),
        ("the key of a certificate", tls(&chain.display(), &path)),
        ("a chain", tls(&path, &key.display())),
        (
            "the authorities of clients",
            tls_with(
                &chain.display(),
                &key.display(),
                &format!("client_certificates = \"required\"\nclient_ca = \"{path}\""),
            ),
        ),
        (
            "the authorities of an upstream",
            good().section(&format!(
                "[upstream.tls]\nurl = \"https://localhost:1/mcp\"\ntls = {{ ca = \"{path}\" }}"
            )),
        ),
    ] {
        for command in ["check", "run"] {
            let (output, _) = trunkline(&[command], Some(&config.to_string()));
            assert_eq!(output.status.code(), Some(66), "{what}: {output:?}");
            assert!(said(&output).contains("no regular file"), "{what}: {output:?}");
        }
    }
}

#[test]
fn certificates_that_have_ended_or_soon_do_are_told() {
    let (authority, certificates) = (Authority::new(), Certificates::new());
    let soon = |params: &mut CertificateParams| {
        params.not_after = (SystemTime::now() + Duration::from_hours(5 * 24 + 1)).into();
    };
    let upstream = Upstream::with_tools(&["echo"]);
    for (identity, expected) in [
        (authority.issue_expired(&["localhost"]), Some("the certificate has expired")),
        (authority.issue_with(&["localhost"], soon), Some("expires soon, in 5 days")),
        (authority.issue(&["localhost"]), None),
    ] {
        let server = certificates.add("server", &identity);
        let listener = format!("address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]");
        let shown = format!(
            "[upstream.tls]\nurl = \"https://localhost:1/mcp\"\ntls = {{ certificate = \"{}\", key = {{ file = \"{}\" }} }}",
            certificates.path("server.pem").display(),
            certificates.path("server.key").display()
        );
        for config in [
            Config::transparent(&upstream).listener(&listener),
            Config::transparent(&upstream).section(&shown),
        ] {
            let (checked, _) = trunkline(&["check"], Some(&config.to_string()));
            assert!(checked.status.success(), "{checked:?}");
            let told = said(&checked);
            assert_eq!(
                told.contains("the certificate"),
                expected.is_some_and(|expected| told.contains(expected)),
                "{expected:?}: {told}"
            );
            assert_eq!(told.contains("the certificate"), expected.is_some(), "{told}");
        }
    }
}
