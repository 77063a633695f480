//! A quote that is missing shows no secret: what is said of a line that is no TOML, wherever it is said.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{Config, Daemon, Upstream, trunkline};

/// No word of anything else.
const SECRET: &str = "zqxjkvbw-1-level-true-zqxjkvbw";

/// The keys of the schema that are secrets, or take the place of one.
fn secret_keys() -> BTreeSet<String> {
    let (output, _) = trunkline(&["schema"], None);
    let schema: Value = serde_json::from_slice(&output.stdout).expect("a schema");
    let mut keys = BTreeSet::new();
    collect(&schema, &mut keys);
    keys
}

fn collect(json: &Value, keys: &mut BTreeSet<String>) {
    match json {
        Value::Object(members) => {
            for (key, what) in members.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let text = what.to_string();
                if text.contains("Secret\"") || key == "sha256" {
                    keys.insert(key.clone());
                }
            }
            members.values().for_each(|member| collect(member, keys));
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect(element, keys)),
        _ => {}
    }
}

#[test]
fn no_secret_with_a_missing_quote_is_shown() {
    let keys = secret_keys();
    for known in ["bearer", "client_secret", "env", "headers", "key", "password", "sha256", "token"] {
        assert!(keys.contains(known), "{known} is a secret: {keys:?}");
    }
    let upstream = Upstream::with_tools(&["echo"]);
    let good = Config::transparent(&upstream).admin().to_string();
    let daemon = Daemon::start(&good);
    let admin = daemon.admin().to_string();
    for key in &keys {
        for value in [
            format!("\"{SECRET}"),
            format!("{SECRET}\""),
            SECRET.to_owned(),
            format!("'{SECRET}"),
            format!("{{ file = {SECRET}\" }}"),
            format!("\"\"\"\n{SECRET}"),
        ] {
            let broken = format!("{good}\n[upstream.broken]\n{key} = {value}\n");
            let (checked, _) = trunkline(&["check"], Some(&broken));
            assert_eq!(checked.status.code(), Some(78), "{key} = {value}");
            daemon.write_config(&broken);
            let (reloaded, _) = trunkline(&["reload", "--admin", &admin], None);
            assert_eq!(reloaded.status.code(), Some(78), "{key} = {value}");
            for output in [&checked, &reloaded] {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let said = said + &String::from_utf8_lossy(&output.stdout);
                assert!(said.contains("not TOML"), "{key} = {value}: {said}");
                assert!(!said.contains("zqxjkvbw"), "{key} = {value}: {said}");
            }
        }
    }
    let journal = daemon.log().join("\n");
    assert!(journal.contains("not TOML"), "{journal}");
    assert!(!journal.contains("zqxjkvbw"), "{journal}");
    for path in ["/status", "/"] {
        let page = daemon.get_admin(path).text();
        assert!(path != "/status" || page.contains("not TOML"), "{page}");
        assert!(!page.contains("zqxjkvbw"), "{page}");
    }
}

/// A person who forgot a quote where nothing is secret needs to see the line.
#[test]
fn what_cannot_be_a_secret_is_shown() {
    let upstream = Upstream::with_tools(&["echo"]);
    let good = Config::transparent(&upstream).to_string();
    for (line, shown) in [
        ("[log]\nlevel = \"warn", "level = \"warn"),
        ("[upstream.a]\nresponse_timeout = 30s", "response_timeout = 30s"),
        ("[upstream.a]\nurl = \"https://u:hunter2@h/", "url = \"…"),
        ("[upstream.a]\nargs = [\"--password\", \"hunter2]", "args = [\"…"),
    ] {
        let (output, _) = trunkline(&["check"], Some(&format!("{good}\n{line}\n")));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!(" | {shown}\n")) && !said.contains("hunter2"), "{line}: {said}");
    }
}

#[test]
fn each_mistake_is_told_once_and_what_is_meant_with_it() {
    let upstream = Upstream::with_tools(&["echo"]);
    let good = Config::transparent(&upstream).to_string();
    let after = |lines: &str| format!("{good}\n{lines}\n");
    for (text, expected) in [
        (
            after("[upstream.a]\nurl = \"http://h/\"\nrequest_timeout = \"5s\""),
            "did you mean `response_timeout`?",
        ),
        (after("[upstream.a]\nurl = \"http://h/\"\ntimout = \"5s\""), "did you mean `response_timeout`?"),
        (after("[upstream.a]\nurl = \"http://h/\"\ncert = \"/c\""), "did you mean `tls`?"),
        (after("[upstream.a]\nurl = \"https://h/\"\ntls.cert = \"/c\""), "did you mean `certificate`?"),
        (after("[mcpServers.x]\ncommand = \"npx\""), "`trunkline import FILE` makes a configuration"),
        (after("[[upstream]]\nurl = \"http://h/\""), "write [upstream.NAME]"),
        (
            "listener:\n  address: 127.0.0.1:8080\nendpoint:\n  - path: /mcp\n".to_owned(),
            "this looks like YAML",
        ),
        ("{\"mcpServers\": {\n \"a\": {\"command\": \"npx\"},\n}\n}\n".to_owned(), "this looks like JSON"),
    ] {
        let (output, _) = trunkline(&["check"], Some(&text));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
}
