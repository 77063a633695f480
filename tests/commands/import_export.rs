//! `trunkline import` and `trunkline export`, on files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::harness::{Config, Daemon, Folder, Upstream, api_key, trunkline};

const ENTRIES: &str = r#"{
  // What a desktop client has.
  "mcpServers": {
    "Files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"] },
    "GitHub": {
      "command": "docker",
      "args": ["run", "-i", "--rm", "-e", "GITHUB_TOKEN", "ghcr.io/github/github-mcp-server"],
      "env": { "GITHUB_TOKEN": "hunter2hunter2" },
    },
    "docs": { "command": "npx", "args": ["mcp-remote", "https://docs.example.com/mcp", "--header", "X-Key: hunter2"] },
  },
}"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(folder: &Folder, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Imports the entries of one client. Returns the path of the configuration.
#[track_caller]
fn imported(folder: &Folder, entries: &str) -> (String, Output) {
    fs::write(folder.path().join("desktop.json"), entries).unwrap();
    let (from, to, secrets) =
        (path(folder, "desktop.json"), path(folder, "trunkline.toml"), path(folder, "secrets"));
    let (output, _) = trunkline(&["import", &from, "--output", &to, "--secrets", &secrets], None);
    assert!(output.status.success(), "{output:?}");
    (to, output)
}

#[test]
fn an_import_is_valid_and_its_secrets_are_in_files() {
    let folder = Folder::new();
    fs::write(folder.path().join("desktop.json"), ENTRIES).unwrap();
    let (from, to, secrets) =
        (path(&folder, "desktop.json"), path(&folder, "trunkline.toml"), path(&folder, "secrets"));
    let (output, _) = trunkline(&["import", &from, "--output", &to, "--secrets", &secrets], None);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(text(&output.stderr).contains("3 upstreams, 2 secrets in"), "{}", text(&output.stderr));

    let configuration = fs::read_to_string(&to).unwrap();
    assert!(!configuration.contains("hunter2"), "{configuration}");
    let (checked, _) = trunkline(&["check", "--config", &to], None);
    assert!(checked.status.success(), "{checked:?}");
    assert!(!text(&checked.stderr).contains("secret"), "all secrets can be read: {checked:?}");

    assert_eq!(fs::metadata(&secrets).unwrap().permissions().mode() & 0o777, 0o700);
    for (name, value) in [("github.GITHUB_TOKEN", "hunter2hunter2\n"), ("docs.header-x-key", "hunter2\n")] {
        let file = Path::new(&secrets).join(name);
        assert_eq!(fs::read_to_string(&file).unwrap(), value);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
}

/// Forms that clients write, and what they become.
#[test]
fn what_clients_leave_to_the_environment_is_carried_over_or_a_step() {
    let entries = r#"{ "mcpServers": {
        "url-default": { "url": "${API_BASE:-https://api.example.com}/mcp" },
        "url-variable": { "url": "${API_BASE}/mcp" },
        "url-keys": { "url": "https://keys.example.com/mcp?apiKey=hunter2&region=eu" },
        "azure-mcp-server": { "command": "C:\\Program Files\\nodejs\\npx.cmd", "args": ["-y", "@azure/mcp@latest"] },
        "home": { "command": "a", "args": ["${TOK:-}"], "env": { "R": "$HOME/y", "B": "${C:-d}" } },
        "win": { "command": "node", "args": ["%APPDATA%\\npm\\x.js", "C:\\Users\\me"] },
        "line": { "command": "API_TOKEN=hunter2 npx -y some-server@1.0.0" },
        "box": { "command": "docker", "args": ["run", "-i", "--rm", "-e", "API_TOKEN=hunter2", "image:1"] }
    } }"#;
    let folder = Folder::new();
    let (to, output) = imported(&folder, entries);
    let configuration = fs::read_to_string(&to).unwrap();
    for expected in [
        "[upstream_defaults]\nisolation = \"shared\"",
        "url = \"${API_BASE:-https://api.example.com}/mcp\"",
        "url = \"https://FILL-IN/mcp\"",
        "url = \"https://keys.example.com/mcp?region=eu\"",
        "[upstream.azure]\ncommand = \"npx\"\nargs = [\"-y\", \"@azure/mcp@latest\"]",
        "exec a \\\"$${TOK:-}\\\"",
        "R = \"${HOME}/y\", B = \"${C:-d}\"",
        "[upstream.line]\ncommand = \"npx\"\nargs = [\"-y\", \"some-server@1.0.0\"]\nenv",
        "args = [\"run\", \"-i\", \"--rm\", \"-e\", \"API_TOKEN\", \"image:1\"]\nenv",
    ] {
        assert!(configuration.contains(expected), "{expected}: {configuration}");
    }
    // Written in one line or as a dotted key, as the folder's name is long.
    assert_eq!(configuration.matches("API_TOKEN = { file = ").count(), 2, "{configuration}");
    assert!(!configuration.contains("hunter2"), "{configuration}");
    let steps = text(&output.stderr);
    for step in [
        "url-variable: Write the value of the environment variable `API_BASE`",
        "azure: `npx` starts the newest version of `@azure/mcp`",
        "win: Write what `%APPDATA%` stands for",
        "win: Write paths of this machine in the place of `C:\\Users\\me`",
    ] {
        assert!(steps.contains(step), "{step}: {steps}");
    }
    let (checked, _) = trunkline(&["check", "--config", &to], None);
    assert!(checked.status.success(), "{checked:?}");
    let warnings = text(&checked.stderr);
    assert!(warnings.contains("[upstream.azure]: `npx` starts the newest version"), "{warnings}");
    assert_eq!(warnings.matches("starts the newest").count(), 1, "the others have one: {warnings}");
}

#[test]
fn an_import_keeps_its_state_and_names_missing_programs() {
    let entries = r#"{ "mcpServers": {
        "plain": { "command": "no-such-program" },
        "keyed": { "command": "no-such-other", "args": ["--api-key", "hunter2hunter2"] }
    } }"#;
    let folder = Folder::new();
    let (to, _) = imported(&folder, entries);
    let (checked, _) = trunkline(&["check", "--config", &to], None);
    assert!(checked.status.success(), "{checked:?}");
    for program in ["no-such-program", "no-such-other"] {
        let warning = format!("warning: program `{program}` not found in PATH");
        assert!(text(&checked.stderr).contains(&warning), "{}", text(&checked.stderr));
    }
    let configuration = fs::read_to_string(&to).unwrap();
    let any_port =
        configuration.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:9090", "127.0.0.1:0");
    let home = folder.path().join("home");
    let in_home = home.join(".local/state/trunkline");
    // As a service of systemd and the image have it.
    let of_service = folder.path().join("service");
    let only = of_service.display().to_string();
    let several = format!("{only}:{}", folder.path().join("other").display());
    for (state, directory) in [(&in_home, String::new()), (&of_service, only), (&of_service, several)] {
        let _ = fs::remove_dir_all(state);
        let _ = fs::remove_dir_all(&home);
        let environment = [("HOME", &*home.display().to_string()), ("STATE_DIRECTORY", &directory)];
        let _daemon = Daemon::start_with(&any_port, &environment);
        assert_eq!(fs::metadata(state).expect("it is made").permissions().mode() & 0o777, 0o700);
        assert!(state.join("session.key").exists(), "sessions outlive it");
        assert_eq!(home.exists(), state.starts_with(&home), "{state:?}");
    }
}

#[test]
fn nothing_is_replaced_unless_asked_for() {
    let folder = Folder::new();
    fs::write(folder.path().join("desktop.json"), ENTRIES).unwrap();
    let (from, to, secrets) =
        (path(&folder, "desktop.json"), path(&folder, "trunkline.toml"), path(&folder, "secrets"));
    let arguments = ["import", &from, "--secrets", &secrets];
    assert!(trunkline(&arguments, None).0.status.success());
    assert!(trunkline(&arguments, None).0.status.success(), "the very same secrets are there");

    let file = Path::new(&secrets).join("github.GITHUB_TOKEN");
    fs::write(&file, "another").unwrap();
    let (refused, _) = trunkline(&arguments, None);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.is_empty() && text(&refused.stderr).contains("--force"), "{refused:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "another");

    fs::write(&to, "mine").unwrap();
    let (refused, _) = trunkline(&["import", &from, "--output", &to], None);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(fs::read_to_string(&to).unwrap(), "mine");

    let (forced, _) = trunkline(&["import", &from, "--output", &to, "--secrets", &secrets, "--force"], None);
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "hunter2hunter2\n");
    assert!(fs::read_to_string(&to).unwrap().contains("[upstream.github]"));
}

#[test]
fn what_lies_in_the_way_is_neither_read_nor_followed() {
    let folder = Folder::new();
    fs::write(folder.path().join("desktop.json"), ENTRIES).unwrap();
    let (from, secrets) = (path(&folder, "desktop.json"), path(&folder, "secrets"));
    let file = Path::new(&secrets).join("github.GITHUB_TOKEN");
    fs::create_dir(&secrets).unwrap();
    // Neither has an end.
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let (refused, _) = trunkline(&["import", &from, "--secrets", &secrets], None);
    assert!(text(&refused.stderr).contains("--force"), "{refused:?}");
    fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    let (refused, _) = trunkline(&["import", &from, "--secrets", &secrets], None);
    assert!(text(&refused.stderr).contains("--force"), "{refused:?}");

    fs::remove_file(&file).unwrap();
    let elsewhere = path(&folder, "elsewhere");
    fs::write(&elsewhere, "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    let (forced, _) = trunkline(&["import", &from, "--secrets", &secrets, "--force"], None);
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "mine");
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
}

#[test]
fn where_not_all_can_be_written_nothing_is() {
    let folder = Folder::new();
    fs::write(folder.path().join("desktop.json"), ENTRIES).unwrap();
    let (from, to, secrets) =
        (path(&folder, "desktop.json"), path(&folder, "trunkline.toml"), path(&folder, "secrets"));
    let nowhere = path(&folder, "no/such/folder");
    let (failed, _) = trunkline(&["import", &from, "--secrets", &secrets, "--output", &nowhere], None);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(!Path::new(&secrets).exists());
    let (failed, _) = trunkline(&["import", &from, "--secrets", &from, "--output", &to], None);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(!Path::new(&to).exists());
    std::os::unix::fs::symlink("elsewhere", &to).unwrap();
    let (failed, _) = trunkline(&["import", &from, "--output", &to], None);
    assert!(text(&failed.stderr).contains("--force"), "a link that leads nowhere is there, too: {failed:?}");
}

#[test]
fn a_file_that_is_none_is_an_error_that_shows_no_secret() {
    let folder = Folder::new();
    for (name, bytes, expected) in [
        ("broken.json", &b"{\"mcpServers\": {\"a\": {\"env\": {\"KEY\": \"hunter2\", }, ]"[..], "line 1"),
        ("empty.json", b"", "empty.json: no servers"),
        ("none.json", b"{\"mcpServers\": {}}", "the list is empty"),
        ("near.json", b"{\"mcpServer\": {\"a\": {\"command\": \"x\"}}}", "did you mean `mcpServers`?"),
        ("binary", b"\xff\xfe\x00h", "not UTF-8"),
        ("yaml", b"mcpServers:\n  a:\n    key: hunter2\n", "neither JSON nor TOML"),
        ("escape\u{1b}[31m.json", b"[", "escape\\u{1b}[31m.json"),
    ] {
        fs::write(folder.path().join(name), bytes).unwrap();
        let (output, _) = trunkline(&["import", &path(&folder, name)], None);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {errors}");
        assert!(errors.contains(expected), "{name}: {errors}");
        assert!(
            !errors.contains("hunter2") && !errors.contains('\u{1b}') && output.stdout.is_empty(),
            "{name}: {errors}"
        );
    }
    let deep = format!("{{\"mcpServers\":{}", "[".repeat(100_000));
    fs::write(folder.path().join("deep.json"), deep).unwrap();
    let (output, _) = trunkline(&["import", &path(&folder, "deep.json")], None);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn an_entry_is_what_the_configuration_says() {
    let upstream = Upstream::with_tools(&["echo"]);
    let open = Config::transparent(&upstream).to_string().replace("127.0.0.1:0", "127.0.0.1:8080");
    let (output, _) = trunkline(&["export", "--client", "cursor"], Some(&open));
    assert!(output.status.success(), "{output:?}");
    let entry: Value = serde_json::from_slice(&output.stdout).unwrap();
    let entry = &entry["mcpServers"]["trunkline"];
    assert_eq!(entry["url"], "http://127.0.0.1:8080/mcp");
    assert!(entry.get("headers").is_none(), "nobody asks for a key: {entry}");

    let keyed = format!("{open}\n{}", api_key("ci", "0123456789abcdef0123456789abcdef"));
    let (output, _) = trunkline(&["export", "--client", "cursor", "--name", "tools"], Some(&keyed));
    let entry: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(entry["mcpServers"]["tools"]["headers"]["Authorization"], "Bearer ${env:TRUNKLINE_KEY}");
    assert!(text(&output.stderr).contains("TRUNKLINE_KEY"), "{output:?}");

    let everywhere = open
        .replace("127.0.0.1:8080", "0.0.0.0:8080")
        .replace("path = \"/mcp\"", "path = \"/mcp\"\nauth = []\nallow_unauthenticated = true");
    let (output, _) = trunkline(&["export", "--client", "cursor"], Some(&everywhere));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("--url"), "{output:?}");
}

#[test]
fn what_is_misspelt_is_suggested() {
    let upstream = Upstream::with_tools(&["echo"]);
    let open = Config::transparent(&upstream).to_string();
    let folder = Folder::new();
    let state = folder.path().display().to_string();
    for (arguments, expected) in [
        (&["export", "--client", "curser"][..], "cursor"),
        (&["export", "--client", "zed", "--endpoint", "/mpc"], "did you mean `/mcp`?"),
        (&["check", "--as", "ci", "--endpoint", "/mpc"], "did you mean `/mcp`?"),
        (&["pins", "list", "upp", "--state-directory", &state], "did you mean `up`?"),
        (&["chekc"], "check"),
    ] {
        let config = (arguments[0] != "chekc").then_some(open.as_str());
        let (output, _) = trunkline(arguments, config);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
}
