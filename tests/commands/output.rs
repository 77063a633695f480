//! What commands write where no terminal is: text alone, whatever strangers wrote into what they show.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use crate::harness::{Config, Folder, Upstream, refusing_address, trunkline};

const ESCAPE: char = '\u{1b}';

fn commands() -> Vec<String> {
    let (output, _) = trunkline(&["--help"], None);
    let help = String::from_utf8(output.stdout).unwrap();
    let list = help.split("\nOptions:").next().unwrap();
    let of_line = |line: &str| {
        line.strip_prefix("  ").and_then(|line| line.split_whitespace().next()).map(str::to_owned)
    };
    let commands: Vec<String> = list.lines().filter_map(of_line).collect();
    assert!(commands.len() > 15, "{help}");
    commands
}

/// Arguments, and a configuration.
type Run<'a> = (Vec<&'a str>, Option<&'a str>);

#[test]
fn no_command_writes_an_escape_into_a_pipe() {
    let upstream = Upstream::with_tools(&["echo"]);
    let good = Config::transparent(&upstream).to_string();
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (hostile_file, hostile_text) = (path("\u{1b}[31m\u{202e}.json"), "\u{1b}[31m\u{9b}2J");
    let entries = format!("{{\"mcpServers\": {{\"{}\": {{\"command\": \"x\"}}}}}}", "\\u001b[31m");
    fs::write(&hostile_file, entries).unwrap();
    let hostile = good.replace("path = \"/mcp\"", "path = \"/\\u001b[31m\"\n\"\\u001b[32m\" = 1");
    let (refusing, _held) = refusing_address();
    let (nowhere, admin) = (format!("http://{refusing}/mcp"), refusing.to_string());
    let (state, key_file, hostile_key_file) = (path("state"), path("keys"), path("\u{202e}keys"));
    fs::create_dir(&state).unwrap();

    let runs: BTreeMap<&str, Vec<Run<'_>>> = BTreeMap::from([
        ("run", vec![(vec!["run"], Some(hostile.as_str())), (vec!["run", "--config", &hostile_file], None)]),
        (
            "check",
            vec![(vec!["check"], Some(hostile.as_str())), (vec!["check", "--as", hostile_text], Some(&good))],
        ),
        ("demo", vec![(vec!["demo", "--address", "192.0.2.1:1"], None)]),
        ("connect", vec![(vec!["connect", &nowhere], None), (vec!["connect", hostile_text], None)]),
        ("top", vec![(vec!["top", "--admin", &admin], None)]),
        ("status", vec![(vec!["status", "--admin", &admin], None)]),
        ("reload", vec![(vec!["reload", "--admin", &admin], None)]),
        (
            "ready",
            vec![(vec!["ready", "--admin", &admin], None), (vec!["ready", "--admin", hostile_text], None)],
        ),
        ("log-level", vec![(vec!["log-level", "debug", "--admin", &admin], None)]),
        ("drain", vec![(vec!["drain", "--admin", &admin], None)]),
        ("tools", vec![(vec!["tools", &nowhere], None), (vec!["tools", hostile_text], None)]),
        (
            "call",
            vec![(vec!["call", &nowhere, "echo"], None), (vec!["call", hostile_text, hostile_text], None)],
        ),
        ("doctor", vec![(vec!["doctor", &nowhere], None), (vec!["doctor", hostile_text], None)]),
        ("import", vec![(vec!["import", &hostile_file], None), (vec!["import", "/\u{1b}[31m"], None)]),
        ("export", vec![(vec!["export", "--list"], None), (vec!["export", "--client", "zed"], Some(&good))]),
        ("key", vec![(vec!["key", "ci"], None), (vec!["key", hostile_text], None)]),
        (
            "session-key",
            vec![(vec!["session-key", &key_file], None), (vec!["session-key", &hostile_key_file], None)],
        ),
        (
            "grants",
            vec![
                (vec!["grants", "list", "--admin", "127.0.0.1:1"], None),
                (vec!["grants", "revoke", "--user", hostile_text, "--admin", "127.0.0.1:1"], None),
            ],
        ),
        ("pins", vec![(vec!["pins", "list", "--state-directory", &state], Some(&good))]),
        ("schema", vec![(vec!["schema"], None)]),
        ("completions", vec![(vec!["completions", "bash"], None), (vec!["completions", "fish"], None)]),
    ]);
    for command in commands() {
        let runs = runs.get(command.as_str()).unwrap_or_else(|| panic!("how is `{command}` tried here?"));
        for (arguments, config) in runs {
            let (output, _) = trunkline(arguments, *config);
            let written = [output.stdout, output.stderr].concat();
            let written = String::from_utf8_lossy(&written);
            assert!(!written.contains([ESCAPE, '\u{9b}', '\u{202e}']), "{arguments:?}: {written:?}");
            assert!(
                !written.is_empty() || command == "pins" || command == "connect" || command == "session-key"
            );
        }
    }
}

#[test]
fn output_that_nobody_reads_is_no_error_and_a_full_disk_is_one() {
    let folder = Folder::new();
    let entries = folder.path().join("entries.json");
    fs::write(&entries, r#"{"mcpServers": {"a": {"command": "x"}}}"#).unwrap();
    let entries = entries.display().to_string();
    let keys = folder.path().join("keys").display().to_string();
    for arguments in [
        &["schema"][..],
        &["completions", "bash"],
        &["import", &entries],
        &["export", "--client", "zed", "--url", "http://127.0.0.1:1/mcp"],
        &["key", "ci"],
        &["session-key", &keys],
    ] {
        let ended = |output: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
            command.args(arguments).stdin(Stdio::null()).stdout(output).output().unwrap()
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = ended(writer.into());
        assert!(closed.status.success(), "{arguments:?}: {closed:?}");
        let full = ended(fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into());
        assert_eq!(full.status.code(), Some(1), "{arguments:?}: {full:?}");
        assert!(!String::from_utf8_lossy(&full.stderr).contains("panic"), "{arguments:?}: {full:?}");
    }
}

#[test]
fn what_shells_complete_with_is_made_from_the_command_line() {
    let complete = |shell| String::from_utf8(trunkline(&["completions", shell], None).0.stdout).unwrap();
    let (bash, zsh, fish) = (complete("bash"), complete("zsh"), complete("fish"));
    for command in commands() {
        for (shell, text) in [("bash", &bash), ("zsh", &zsh), ("fish", &fish)] {
            assert!(text.contains(&command), "{shell}: {command}");
        }
    }
    for (what, hint) in [("--secrets", "_files -/"), ("--key-file", "_files"), ("--client", "claude-desktop")]
    {
        // Several commands may have an option of this name.
        let mut lines = zsh.lines().filter(|line| line.contains(&format!("'{what}=")));
        assert!(lines.any(|line| line.contains(hint)), "{what}");
    }
    assert!(fish.contains("cursor"), "values of --client");
    let folder = Folder::new();
    let file = folder.path().join("completions");
    fs::write(&file, bash).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
}
