//! What comes out for what clients have: each form once, each decision, and no secret whatever goes in.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::*;
use config::{self, Authorization, Config, HeaderSource, SecretSource, TransportConfig};

const WITH_FILES: ImportSettings<'_> = ImportSettings { secrets: Some("/s"), with_disabled: false };

fn imported(text: &str, settings: ImportSettings<'_>) -> Imported {
    import(&[ClientFile { name: "f.json", text }], settings).unwrap_or_else(|fault| panic!("{fault}: {text}"))
}

fn config(imported: &Imported) -> Config {
    let home = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
    config::parse_source(&config::ConfigSource::new("", &*imported.configuration), &home)
        .unwrap_or_else(|errors| panic!("{errors}\n{}", imported.configuration))
}

/// One entry, in files.
fn one(entry: &Value) -> (Config, Imported) {
    let imported = imported(&json!({ "mcpServers": { "one": entry } }).to_string(), WITH_FILES);
    (config(&imported), imported)
}

fn file(name: &str) -> SecretSource {
    SecretSource::File(format!("/s/{name}").into())
}

fn words(config: &Config) -> Vec<String> {
    let command = config.upstreams[0].command.as_ref().expect("a program");
    [command.program.clone()].into_iter().chain(command.args.clone()).collect()
}

#[test]
fn programs_come_over() {
    for (entry, expected) in [
        (json!({ "command": "npx", "args": ["-y", "a", "/srv x"] }), &["npx", "-y", "a", "/srv x"][..]),
        (json!({ "type": "local", "command": ["bun", "x", "a"] }), &["bun", "x", "a"]),
        (
            json!({ "source": "custom", "command": { "path": "uvx", "args": ["a"], "env": {} } }),
            &["uvx", "a"],
        ),
        (json!({ "command": "cmd", "args": ["/c", "npx", "a"] }), &["npx", "a"]),
        (json!({ "command": "a", "args": ["--port", 8080, true] }), &["a", "--port", "8080", "true"]),
        (json!({ "command": "a", "args": ["${workspaceFolder}/x"] }), &["a", "${workspaceFolder}/x"]),
        (
            json!({ "command": "a", "args": ["--api-key", "hunter2", "b c"] }),
            &["/bin/sh", "-c", "exec a --api-key \"${TRUNKLINE_ARGUMENT_1}\" 'b c'"],
        ),
        (
            json!({ "command": "docker", "args": ["run", "-e", "TOKEN=hunter2", "-e", "TOKEN", "i"] }),
            &["docker", "run", "-e", "TOKEN", "-e", "TOKEN", "i"],
        ),
        (json!({ "command": "a", "args": ["x-${env:HOST}"] }), &["/bin/sh", "-c", "exec a x-\"${HOST}\""]),
        (
            json!({ "command": "a", "args": ["${HOST:-b:1}", "${TOK:-}", "$HOME/y"] }),
            &["/bin/sh", "-c", "exec a \"${HOST:-b:1}\" \"${TOK:-}\" \"${HOME}\"/y"],
        ),
        (
            json!({ "command": "C:\\Program Files\\nodejs\\npx.cmd", "args": ["a@1.0.0"] }),
            &["npx", "a@1.0.0"],
        ),
        (json!({ "command": "wsl.exe", "args": ["-e", "uvx", "a==1"] }), &["uvx", "a==1"]),
        (json!({ "command": "TOKEN=hunter2 npx a@1.0.0" }), &["npx", "a@1.0.0"]),
        (json!({ "command": "TOKEN='hunter2 2'", "args": ["npx"] }), &["npx"]),
        (json!({ "command": "env", "args": ["TOKEN=hunter2", "A=b", "npx", "a"] }), &["npx", "a"]),
    ] {
        let (config, imported) = one(&entry);
        assert_eq!(words(&config), expected, "{entry}");
        assert!(!imported.configuration.contains("hunter2"), "{}", imported.configuration);
    }
}

#[test]
fn an_environment_comes_over_without_its_secrets() {
    let (config, imported) = one(&json!({
        "command": "a",
        "cwd": "/srv",
        "timeout": 30,
        "env": {
            "LOG": "debug", "API_KEY": "hunter2", "SAME": "${env:SAME}", "OTHER": "${MINE:-x}", "WANTED": "${MINE}", "ASKED": "${input:key}",
            "EMPTY": "", "MIXED": "a-${env:B}", "=": "hunter2", "DSN": "postgres://u:hunter2@db/x", "COPY": "see hunter2"
        }
    }));
    let upstream = &config.upstreams[0];
    let command = upstream.command.as_ref().unwrap();
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(command.env, [text("EMPTY", ""), text("LOG", "debug"), text("OTHER", "x")]);
    let mut secret = command.secret_env.clone();
    secret.sort();
    let expected = [
        ("API_KEY", file("one.API_KEY")),
        ("ASKED", file("one.ASKED")),
        ("COPY", file("one.COPY")),
        ("DSN", file("one.DSN")),
        ("MIXED", file("one.MIXED")),
        ("WANTED", SecretSource::Env("MINE".to_owned())),
    ];
    assert_eq!(secret, expected.map(|(name, source)| (name.to_owned(), source)));
    assert_eq!(command.env_pass, ["SAME"]);
    assert_eq!(command.directory.as_deref(), Some(std::path::Path::new("/srv")));
    assert_eq!(upstream.response_timeout.as_secs(), 30);
    let kept: Vec<_> =
        imported.secrets.iter().map(|kept| (kept.name.as_str(), kept.value.as_str())).collect();
    assert_eq!(
        kept,
        [("one.API_KEY", "hunter2"), ("one.DSN", "postgres://u:hunter2@db/x"), ("one.COPY", "see hunter2")]
    );
    assert!(!imported.configuration.contains("hunter2"), "{}", imported.configuration);
    assert_eq!(imported.to_do.len(), 2, "what is asked for, and what is mixed: {:?}", imported.to_do);
    assert!(!format!("{imported:?}").contains("hunter2"));
}

#[test]
fn servers_elsewhere_come_over() {
    let bearer = |source| Some(Authorization::Bearer(source));
    let variable = |name: &str| SecretSource::Env(name.to_owned());
    let npx = |args: Value| json!({ "command": "npx", "args": args, "env": { "AUTH": "Bearer hunter2" } });
    for (entry, url, sse, authorization) in [
        (json!({ "url": "https://a/mcp" }), "https://a/mcp", false, None),
        (json!({ "type": "sse", "url": "https://a/sse" }), "https://a/sse", true, None),
        (json!({ "serverUrl": "https://a/mcp" }), "https://a/mcp", false, None),
        (json!({ "url": "https://a/sse", "httpUrl": "https://a/mcp" }), "https://a/mcp", false, None),
        (json!({ "transport": { "type": "http", "url": "https://a/" } }), "https://a/", false, None),
        (
            json!({ "url": "https://a/", "headers": { "Authorization": "bearer hunter2" } }),
            "https://a/",
            false,
            bearer(file("one.bearer")),
        ),
        (
            json!({ "url": "https://a/", "headers": { "Authorization": "Bearer ${env:T}" } }),
            "https://a/",
            false,
            bearer(variable("T")),
        ),
        (
            json!({ "url": "https://a/", "headers": { "Authorization": "Bearer {file:/s/t}" } }),
            "https://a/",
            false,
            bearer(file("t")),
        ),
        (
            json!({ "url": "https://a/", "bearer_token_env_var": "T" }),
            "https://a/",
            false,
            bearer(variable("T")),
        ),
        (npx(json!(["-y", "mcp-remote", "https://a/mcp"])), "https://a/mcp", false, None),
        (
            npx(json!(["mcp-remote@1", "https://a/mcp", "--header", "Authorization:${AUTH}"])),
            "https://a/mcp",
            false,
            bearer(file("one.bearer")),
        ),
        (json!({ "url": "https://a/mcp?key=hunter2" }), "https://a/mcp", false, None),
    ] {
        let (config, imported) = one(&entry);
        let upstream = &config.upstreams[0];
        let found = &upstream.urls[0];
        assert_eq!(format!("https://{}{}", found.authority, found.path_and_query), url, "{entry}");
        assert_eq!(upstream.transport == TransportConfig::Sse, sse, "{entry}");
        assert_eq!(upstream.credentials.authorization, authorization, "{entry}");
        assert!(!imported.configuration.contains("hunter2"), "{}", imported.configuration);
    }
}

#[test]
fn headers_come_over() {
    let (config, _) = one(&json!({
        "url": "https://user:hunter2@a/",
        "headers": { "X-Region": "eu", "X-Api-Key": "hunter2", "x-region": "us", "Mcp-Session-Id": "1", "a b": "c" },
        "env_http_headers": { "X-Team": "TEAM" }
    }));
    let credentials = &config.upstreams[0].credentials;
    let found: Vec<(&str, String)> = credentials
        .headers
        .iter()
        .map(|(name, source)| match source {
            HeaderSource::Text(text) => (name.as_str(), text.to_str().unwrap().to_owned()),
            HeaderSource::Secret(source) => (name.as_str(), source.to_string()),
        })
        .collect();
    let expected = [
        ("authorization", "the file /s/one.header-authorization"),
        ("x-api-key", "the file /s/one.header-x-api-key"),
        ("x-region", "eu"),
        ("x-team", "the environment variable TEAM"),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name, value.to_owned())));
}

#[test]
fn names_are_made_valid_and_distinct() {
    let names = [
        "My Server",
        "my_server",
        "GitHub (work)",
        "天気",
        "9lives",
        "--",
        &"ab-".repeat(14),
        &"ab-".repeat(20),
    ];
    let entries: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({ "command": "a" }))).collect();
    let imported = imported(&json!({ "mcpServers": entries }).to_string(), ImportSettings::default());
    let (long, other) = (format!("{}ab", "ab-".repeat(10)), format!("{}-2", "ab-".repeat(10)));
    assert_eq!(
        config(&imported).endpoints[0].upstreams,
        ["my-server", "my-server-2", "github-work", "server", "server-9lives", "server-2", &long, &other]
    );
}

#[test]
fn what_is_switched_off_stays_off() {
    let text = json!({ "mcpServers": {
        "on": { "command": "a", "excludeTools": ["rm*", "a\\"] },
        "off": { "command": "b", "disabled": true },
        "off-too": { "command": "c", "enabled": false }
    } })
    .to_string();
    let without = imported(&text, ImportSettings::default());
    let config_without = config(&without);
    assert_eq!(config_without.upstreams.len(), 1);
    assert_eq!(config_without.endpoints[0].deny, ["rm[*]", r"a[\]"]);
    assert!(
        without.configuration.contains("\n#[upstream.off]\n#command = \"b\"\n"),
        "{}",
        without.configuration
    );
    let with = config(&imported(&text, ImportSettings { with_disabled: true, ..ImportSettings::default() }));
    assert_eq!(with.endpoints[0].upstreams, ["on", "off", "off-too"]);
    assert_eq!(with.endpoints[0].deny, ["on__rm[*]", r"on__a[\]"]);
    let all_off = r#"{"mcpServers": {"off": {"command": "b", "disabled": true}}}"#;
    let fault = import(&[ClientFile { name: "f", text: all_off }], ImportSettings::default())
        .expect_err("nothing is on");
    assert!(fault.to_string().contains("--disabled"), "{fault}");
}

#[test]
fn without_a_directory_secrets_are_credentials() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "hunter2"}}}}"#;
    let imported = imported(text, ImportSettings::default());
    let command = config(&imported).upstreams[0].command.clone().unwrap();
    assert_eq!(
        command.secret_env,
        [("API_KEY".to_owned(), SecretSource::Credential("a.API_KEY".to_owned()))]
    );
    assert!(
        imported.to_do[0].contains("a.API_KEY") && imported.to_do[0].contains("--secrets"),
        "{:?}",
        imported.to_do
    );
}

#[test]
fn the_same_entry_of_two_clients_is_one_upstream() {
    let text = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#;
    let other = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "z"}}}"#;
    let imported = import(
        &[ClientFile { name: "f", text }, ClientFile { name: "g", text: other }],
        ImportSettings::default(),
    )
    .unwrap();
    assert_eq!(config(&imported).endpoints[0].upstreams, ["a", "b", "b-2"]);
}

#[test]
fn what_cannot_be_carried_over_is_said() {
    for (entry, expected) in [
        (json!({ "command": "a", "envFile": ".env" }), "TO DO: Put the variables of its `envFile`"),
        (json!({ "command": "a", "cwd": "." }), "Name its working directory"),
        (json!({ "command": "npx", "args": ["-y", "b-mcp@latest"] }), "newest version of `b-mcp`"),
        (json!({ "command": "uvx", "args": ["b"] }), "as in `b==1.2.3`"),
        (json!({ "command": "a", "args": ["C:\\x"] }), "paths of this machine in the place of `C:\\x`"),
        (json!({ "command": "C:\\x\\a.exe" }), "is a program of Windows"),
        (
            json!({ "command": "a", "args": ["%APPDATA%\\x"] }),
            "Write what `%APPDATA%` stands for: only Windows knows",
        ),
        (json!({ "command": "a", "env": { "KEY": "${K:-none}" } }), "Set the environment variable `K`"),
        (json!({ "command": "a", "args": ["${X:-a b}"] }), "not set, the client used `a b`"),
        (json!({ "command": "A=$(b) c" }), "a line for a shell"),
        (
            json!({ "command": "a", "includeTools": ["x", "y"] }),
            "Only some of its tools were switched on (`x`, `y`)",
        ),
        (json!({ "command": "a", "autoApprove": ["x"] }), "stays with the client"),
        (json!({ "command": "a", "novel\u{1b}": 1 }), "`novel\\u{1b}` is not carried over"),
        (json!({ "url": "https://a/", "oauth": { "clientId": "x" } }), "give it credentials of its own"),
        (json!({ "command": "a", "args": ["${input:id}"] }), "asks its user for as `id`"),
    ] {
        let (_, imported) = one(&entry);
        let text = imported.configuration.replace("\n#  ", "").replace("  ", " ");
        assert!(text.contains(expected), "{expected}: {}", imported.configuration);
    }
    let text = r#"{"mcpServers": {"a": {"command": "x"}, "b": {}, "c": 1, "d": {"url": "file:///hunter2"}}}"#;
    let imported = imported(text, ImportSettings::default());
    assert_eq!(imported.to_do.len(), 3, "{:?}", imported.to_do);
    for left_out in
        ["`b` of f.json: it has neither", "`c` of f.json: it is no object", "`d` of f.json: its URL"]
    {
        assert!(
            imported.to_do.iter().any(|item| item.contains(left_out)),
            "{left_out}: {:?}",
            imported.to_do
        );
    }
    assert!(!imported.configuration.contains("hunter2"));
}

#[test]
fn every_client_takes_what_is_exported_for_it() {
    for client in DesktopClient::all() {
        for (key, as_program) in [(false, false), (true, false), (false, true), (true, true)] {
            let key = key.then_some(ExportKey { variable: "THE_KEY", file: "/home/a/key" });
            let (name, url, program) = ("tools", "https://gateway.example/mcp", "/usr/bin/trunkline");
            let entry = export(Export { client, name, url, key, program, as_program });
            // What it says is what an import of it says, too.
            let imported = imported(&entry.text, WITH_FILES);
            let config = config(&imported);
            let upstream = &config.upstreams[0];
            assert_eq!(upstream.name, "tools", "{}", client.name);
            assert_eq!(upstream.urls[0].authority, "gateway.example", "{}: {}", client.name, entry.text);
            let is_program = entry.text.contains("connect");
            assert_eq!(
                key.is_some(),
                entry.text.contains(if is_program { "/home/a/key" } else { "Bearer" })
                    || entry.text.contains("bearer_token_env_var"),
                "{}: {}",
                client.name,
                entry.text
            );
            assert_eq!(
                upstream.credentials.authorization.is_some(),
                key.is_some() && !is_program,
                "{}",
                entry.text
            );
            assert!(!as_program || is_program, "{}", client.name);
            assert_eq!(entry.notes.is_empty(), key.is_none(), "{}: {:?}", client.name, entry.notes);
        }
    }
}

#[test]
fn secrets_are_found_in_odd_places() {
    let args = |args: Value| json!({ "command": "npx", "args": args });
    for entry in [
        json!({ "command": "npx -y a --api-key hunter2" }),
        json!({ "command": "API_KEY=hunter2 npx -y a" }),
        json!({ "command": "API_KEY='hunter2' npx -y a" }),
        json!({ "command": "API_KEY=hunter2 exec $(a)" }),
        json!({ "command": "API_KEY=hunter2" }),
        json!({ "command": "docker run -i -e API_KEY=hunter2 i" }),
        args(json!(["-c", "A=1 API_KEY=hunter2 npx -y a"])),
        args(json!(["-c", "docker run -e API_KEY=hunter2 -e A=b i"])),
        json!({ "url": "https://a/${T:-sk-hunter2hunter2}" }),
        json!({ "url": "https://a/", "headers": { "X-Key": "${K:-hunter2}" } }),
        json!({ "command": "a", "env": { "API_KEY": "${K:-hunter2}", "X": "${API_KEY:-hunter2}" } }),
        args(json!(["-c", "a --password hunter2 --x y"])),
        args(json!([
            "mcp-remote",
            "https://a/",
            "--header=X-Key: hunter2",
            "-hunter2",
            "--weird",
            "-hunter2"
        ])),
        args(json!(["supergateway", "--sse", "https://a/", "hunter2", "--header", "X-Key: hunter2"])),
        args(json!(["mcp-proxy", "https://a/", "-HX-Key: hunter2"])),
        args(json!(["-eAPI_KEY=hunter2", "--env=TOKEN=hunter2", "--config", "{\"apiKey\":\"hunter2\"}"])),
        args(json!(["--token", "${env:T:-hunter2}"])),
        args(json!(["curl", "-u", "alice:hunter2", "https://a/"])),
        args(json!(["curl", "-ualice:hunter2", "--proxy-user=bob:hunter2", "--user", "bob:hunter2"])),
        args(json!(["-c", "curl -s -u alice:hunter2 https://a/ | jq"])),
        args(json!(["curl", "-u", "alice:hunter2", "see hunter2"])),
        args(json!(["mcp-proxy", "--port", "1", "-H", "Authorization", "hunter2", "uvx", "a"])),
        args(json!(["Authorization:", "hunter2", "-H", "X-Key", "hunter2"])),
        args(json!(["-HAuthorization: Basic hunter2", "--header=authorization:hunter2"])),
        json!({ "url": "https://a/", "authorization_token": "hunter2" }),
        json!({ "url": "https://a/", "authorization": "Basic hunter2" }),
        json!({ "url": "https://a/", "requestOptions": { "headers": { "Authorization": "hunter2" } } }),
        json!({ "command": "a", "authorization": { "header": "hunter2" } }),
        json!({ "command": "a", "args": ["--password=hunter2", "see hunter2"], "env": { "Z": "hunter2" } }),
        json!({ "command": "a", "hunter2hunter2hunter2": 1, "envFile": "hunter2" }),
        json!({ "command": "a", "cwd": "/srv/hunter2hunter2hunter2" }),
        json!({ "command": { "path": "a", "args": ["--key", "hunter2"], "env": { "PASS": "hunter2" } } }),
        json!({ "url": "https://a/", "headers": ["Cookie: hunter2"] }),
        json!({ "transport": { "type": "sse", "url": "https://a/?auth=hunter2", "headers": { "X-Token": "hunter2" } } }),
    ] {
        let (_, imported) = one(&entry);
        assert!(!imported.configuration.contains("hunter2"), "{}", imported.configuration);
        assert!(!imported.to_do.join("\n").contains("hunter2"), "{:?}", imported.to_do);
    }
    let name = "sk-hunter2hunter2";
    let imported = imported(&json!({ "mcpServers": { name: { "command": "a" } } }).to_string(), WITH_FILES);
    assert_eq!(config(&imported).upstreams[0].name, "server");
    assert!(!imported.configuration.contains("hunter2"), "{}", imported.configuration);
}

#[test]
fn an_authorization_comes_over_wherever_a_client_keeps_it() {
    for (member, value, bearer) in [
        ("authorization_token", json!("hunter2"), true),
        ("authorization", json!("hunter2"), true),
        ("authorization", json!("Basic hunter2"), false),
        ("requestOptions", json!({ "headers": { "Authorization": "Bearer hunter2" } }), true),
    ] {
        let (config, imported) = one(&json!({ "url": "https://a/", member: value }));
        let credentials = &config.upstreams[0].credentials;
        assert_eq!(credentials.authorization.is_some(), bearer, "{}", imported.configuration);
        assert_eq!(credentials.headers.is_empty(), bearer, "{}", imported.configuration);
        assert_eq!(imported.secrets.len(), 1);
    }
}

#[test]
fn ids_of_users_stay_readable() {
    let (config, _) =
        one(&json!({ "command": "docker", "args": ["run", "-u", "1000:1000", "--user=0:0", "i"] }));
    assert_eq!(words(&config), ["docker", "run", "-u", "1000:1000", "--user=0:0", "i"]);
}

#[test]
fn an_entry_of_too_many_secrets_or_pieces_is_left_out() {
    let many = |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>();
    for (args, why) in [
        (many(201, &|at| format!("--token=hunter-{at}")), "holds more than 200 secrets"),
        (many(1, &|_| "${input:a}".repeat(4001)), "from more than 4000 pieces"),
    ] {
        let text =
            json!({ "mcpServers": { "a": { "command": "x" }, "b": { "command": "x", "args": args } } });
        let imported = imported(&text.to_string(), WITH_FILES);
        assert_eq!(config(&imported).upstreams.len(), 1);
        assert!(imported.to_do.iter().any(|item| item.contains(why)), "{:?}", imported.to_do);
    }
}

/// Each takes many times its length where something is done again for each part of it.
#[test]
fn what_a_stranger_made_large_is_answered_soon() {
    let started = std::time::Instant::now();
    let entry = |args: Value, env: Value| json!({ "command": "x", "args": args, "env": env });
    let env: serde_json::Map<String, Value> =
        (0..900).map(|at| (format!("N{at}"), json!("plain text ".repeat(10)))).collect();
    let secrets: Vec<String> = (0..200).map(|at| format!("--token=hunter-{at}")).collect();
    let numbered = |piece: &str, count: usize| {
        (0..count).map(|at| format!("${{{piece}{at}}}")).collect::<Vec<_>>().concat()
    };
    for entry in [
        entry(json!(["${".repeat(60_000)]), json!({})),
        entry(json!(["${a".repeat(40_000) + "}"]), json!({})),
        entry(json!(["{env:".repeat(25_000)]), json!({})),
        entry(json!([numbered("A", 3900)]), json!({})),
        entry(json!([numbered("input:", 3900)]), json!({})),
        entry(json!(secrets), Value::Object(env)),
        json!({ "url": "https://a/", "headers": (0..1000).map(|at| format!("h{at}: v")).collect::<Vec<_>>() }),
    ] {
        let text = json!({ "inputs": (0..50_000).map(|at| json!({ "id": at.to_string() })).collect::<Vec<_>>(),
                           "mcpServers": { "one": entry } });
        config(&imported(&text.to_string(), WITH_FILES));
    }
    assert!(started.elapsed() < std::time::Duration::from_mins(1), "{:?}", started.elapsed());
}

#[test]
fn what_is_said_is_bounded() {
    let many = |count: usize| (0..count).map(|number| (format!("m{number}"), json!(1)));
    let mut entry: serde_json::Map<String, Value> = many(5000).collect();
    entry.insert("command".to_owned(), json!("a"));
    let mut entries: serde_json::Map<String, Value> = many(5000).collect();
    entries.insert("a".to_owned(), Value::Object(entry));
    let imported = imported(&json!({ "mcpServers": entries }).to_string(), WITH_FILES);
    assert!(imported.configuration.lines().count() < 200, "{}", imported.configuration);
    assert!(imported.to_do.len() < 50, "{:?}", imported.to_do);
}

#[test]
fn a_command_of_one_line_becomes_words_and_a_name_with_a_blank_stays_one() {
    let of = |command: &str| {
        let text = json!({ "mcpServers": { "a": { "command": command } } }).to_string();
        imported(&text, WITH_FILES).configuration
    };
    let line = of("npx -y some-server");
    assert!(line.contains("command = \"npx\"\nargs = [\"-y\", \"some-server\"]"), "{line}");
    let name = of("/opt/My Tools/run");
    assert!(name.contains("command = \"/opt/My Tools/run\"\nargs = []"), "{name}");
    let quotes = of("'My Tools/run' -x");
    assert!(quotes.contains("args = []"), "{quotes}");
    let remote = of("npx mcp-remote https://example.com/mcp");
    assert!(remote.contains("url = \"https://example.com/mcp\""), "{remote}");
}

/// Texts that secrets never hold, so that finding one of these means that it came from a secret.
const MARK: &str = "hunter2hunter2hunter2";

fn anything() -> impl Strategy<Value = Value> {
    let texts = select(vec![
        "",
        "npx",
        "a b",
        "-y",
        "--token",
        "--header",
        "Authorization: Bearer x",
        "https://a/mcp",
        "http://[::1]:1/?k=v",
        "${env:A}",
        "${input:b}",
        "${file:/f}",
        "x{file:/f}",
        "$C",
        "${workspaceFolder}",
        "'\"\\\n#",
        "\u{1b}[31m\u{202e}",
        "mcp-remote",
        "sse",
        "/srv",
        "\0",
        "é天",
        "https://u:p@h/",
        "--sse",
        "cmd",
        "/c",
        "${A:-b}x",
        "=",
        "K=v",
        "..",
        "/",
        "ftp://x",
    ]);
    let leaf = prop_oneof![
        texts.prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map("[a-zA-Z_=. -]{0,8}", inner, 0..4).prop_map(|members| json!(members)),
        ]
    })
}

fn entry() -> impl Strategy<Value = Value> {
    let keys = select(vec![
        "command",
        "args",
        "env",
        "url",
        "httpUrl",
        "serverUrl",
        "type",
        "headers",
        "cwd",
        "disabled",
        "timeout",
        "transport",
        "excludeTools",
        "includeTools",
        "env_vars",
        "env_http_headers",
        "bearer_token_env_var",
        "tools",
        "enabled",
        "x",
    ]);
    vec((keys, anything()), 0..6)
        .prop_map(|members| {
            members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<serde_json::Map<_, _>>()
        })
        .prop_map(Value::from)
}

proptest! {
    #[test]
    fn any_text_is_an_error_or_a_configuration(text in "\\PC*") {
        let _ = import(&[ClientFile { name: "f", text: &text }], ImportSettings::default());
    }

    #[test]
    fn any_entries_become_a_valid_configuration(
        entries in btree_map("\\PC{0,20}", entry(), 1..4),
        secrets in prop_oneof![Just(None), Just(Some("/s"))],
        with_disabled: bool,
    ) {
        let text = json!({ "mcpServers": entries }).to_string();
        match import(&[ClientFile { name: "f\n\u{1b}", text: &text }], ImportSettings { secrets, with_disabled }) {
            Ok(imported) => {
                config(&imported);
                let is_shown = |c: char| c == '\n' || protocol::text::is_seen(c);
                prop_assert!(imported.configuration.chars().all(is_shown), "{}", imported.configuration);
            }
            Err(fault) => prop_assert!(!fault.to_string().contains("bug"), "{}: {}", fault, text),
        }
    }

    #[test]
    fn a_secret_is_never_in_what_comes_out(
        place in 0..14usize,
        extra in entry(),
        tail in "[A-Za-z0-9+/=._~-]{0,24}",
    ) {
        let secret = format!("{MARK}{tail}");
        let mut entry = match place {
            0 => json!({ "command": "a", "env": { "API_KEY": secret } }),
            1 => json!({ "command": "a", "env": { "X": format!("postgres://u:{secret}@db/x") } }),
            2 => json!({ "command": "a", "args": ["--api-key", secret] }),
            3 => json!({ "command": "a", "args": [format!("--token={secret}")] }),
            4 => json!({ "command": "docker", "args": ["-e", format!("PASSWORD={secret}")] }),
            5 => json!({ "command": "npx", "args": ["mcp-remote", "https://a/", "--header", format!("X-Key: {secret}")] }),
            6 => json!({ "url": format!("https://a/mcp?token={}", secret.replace(['#', '&'], "")) }),
            7 => json!({ "url": format!("https://u:{}@a/", secret.replace(['/', '?'], "")) }),
            8 => json!({ "url": "https://a/", "headers": { "Authorization": format!("Bearer {secret}") } }),
            9 => json!({ "url": "https://a/", "headers": { "X-Api-Key": secret } }),
            10 => json!({ "command": format!("X_TOKEN={} npx a", secret) }),
            11 => json!({ "command": "docker", "args": ["run", "-e", format!("X_TOKEN={secret}"), "i"] }),
            12 => json!({ "command": "a", "env": { "X": format!("${{API_TOKEN:-{secret}}}") } }),
            _ => json!({ "command": "a", "args": ["x", format!("see {secret}")], "env": { "TOKEN": secret } }),
        };
        // What else there is does not turn a secret into something else.
        for (key, value) in extra.as_object().into_iter().flatten() {
            if entry.get(key).is_none() {
                entry[key] = value.clone();
            }
        }
        let text = json!({ "mcpServers": { "one": entry } }).to_string();
        match import(&[ClientFile { name: "f", text: &text }], WITH_FILES) {
            Ok(imported) => {
                prop_assert!(!imported.configuration.contains(MARK), "{}", imported.configuration);
                prop_assert!(!imported.to_do.iter().any(|item| item.contains(MARK)));
                let debugged = format!("{imported:?}");
                prop_assert!(!debugged.contains(MARK));
            }
            Err(fault) => prop_assert!(!fault.to_string().contains(MARK), "{}", fault),
        }
    }
}
