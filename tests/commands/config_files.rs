//! A configuration of several files, with variables, defaults and entries that are switched off; and where it is looked for.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Config, Daemon, Folder, Upstream, call, eventually, list, trunkline};

const MAIN: &str = "include = [\"keys.toml\", \"conf.d/*.toml\"]\n[listener]\naddress = \"127.0.0.1:0\"\n\
    [[endpoint]]\npath = \"/mcp\"\nupstreams = [\"weather\"]\n";

fn check(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    let Output { status, stdout, stderr } =
        command.arg("check").args(arguments).envs(environment.iter().copied()).output().expect("it runs");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

fn written(folder: &Folder, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn a_file_that_is_named_without_its_folder_includes_its_neighbours() {
    let folder = Folder::new();
    written(&folder, "main.toml", &MAIN.replace(r#""keys.toml", "conf.d/*.toml""#, r#""*.toml""#));
    written(&folder, "weather.toml", "[upstream.weather]\nurl = \"http://127.0.0.1:1/mcp\"\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    let output = command.args(["check", "main.toml"]).current_dir(folder.path()).output().expect("it runs");
    assert_eq!(
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()),
        "main.toml is valid: 1 endpoint, 1 upstream\n"
    );
}

#[test]
fn files_are_included_and_errors_say_which() {
    let folder = Folder::new();
    let main = written(&folder, "trunkline.toml", MAIN);
    let keys = written(
        &folder,
        "keys.toml",
        &format!("# Whose they are.\n[[api_key]]\nname = \"ci\"\nsha256 = \"{}\"\n", "ab".repeat(32)),
    );
    written(&folder, "conf.d/weather.toml", "[upstream.weather]\nurl = \"http://127.0.0.1:1/mcp\"\n");
    written(&folder, "conf.d/.hidden.toml", "nonsense");
    assert_eq!(check(&[&main], &[]), (Some(0), format!("{main} is valid: 1 endpoint, 1 upstream\n")));

    let team =
        written(&folder, "conf.d/team.toml", "# c\n\n[upstream.files]\nurll = \"http://127.0.0.1:1/mcp\"\n");
    let (code, said) = check(&[&main], &[]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains(&format!("{team}:4:1: error: unknown key `urll`")), "{said}");

    written(&folder, "conf.d/team.toml", "workers = 4\n");
    let (_, said) = check(&[&main], &[]);
    assert!(
        said.contains(&format!("{team}:1:1: error: a file that is included begins with a [section]")),
        "{said}"
    );

    written(&folder, "conf.d/team.toml", "[upstream.files]\nurl = \"http://127\n");
    let (_, said) = check(&[&main], &[]);
    assert!(said.contains(&format!("{team}:2:")) && said.contains("not TOML"), "{said}");

    // Somebody's token, or a pipe: neither is shown or waited for.
    written(&folder, "conf.d/team.toml", "\u{feff}[limits]\nbody_bytes_max = \"1MiB\"\n");
    assert_eq!(check(&[&main], &[]).0, Some(0), "a byte order mark is no text");
    written(&folder, "conf.d/team.toml", "tl_swordfish\nmore = of it\n");
    let (_, said) = check(&[&main], &[]);
    assert!(
        said.contains("begins with a [section]") && !said.contains("swordfish") && !said.contains("of it"),
        "{said}"
    );
    fs::remove_file(&team).expect("removed");
    assert!(Command::new("mkfifo").arg(&team).status().expect("it runs").success());
    let (_, said) = check(&[&main], &[]);
    assert!(said.contains(&format!("cannot read {team}: it is no regular file")), "{said}");
    fs::remove_file(&team).expect("removed");

    // The file itself may be a pipe, as long as somebody writes to it.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let pipe = pipe.display().to_string();
    let (code, said) = check(&[&pipe], &[]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains(&format!("cannot read {pipe}: nobody writes to this pipe")), "{said}");
    let written_to = pipe.clone();
    let text = fs::read_to_string(&main).expect("text");
    // One that reads before there is a writer may be gone when there is one.
    let writing = std::thread::spawn(move || while fs::write(&written_to, &text).is_err() {});
    let (code, said) = eventually("a writer is there", || {
        Some(check(&[&pipe], &[])).filter(|(_, said)| !said.contains("nobody writes"))
    });
    assert_eq!(code, Some(0), "{said}");
    writing.join().expect("written");

    // What includes all files of its own directory does not include itself.
    let all =
        written(&folder, "conf.d/all.toml", &MAIN.replace("\"keys.toml\", \"conf.d/*.toml\"", "\"*.toml\""));
    assert_eq!(check(&[&all], &[]).0, Some(0), "{:?}", check(&[&all], &[]));

    fs::remove_file(&keys).expect("removed");
    let (code, said) = check(&[&main], &[]);
    assert_eq!(code, Some(78), "{said}");
    assert!(
        said.starts_with(&format!("error: {main}:1: cannot include keys.toml: cannot read {keys}")),
        "{said}"
    );
}

/// Somebody mistypes a key, a value beside a secret, or a quote.
#[test]
fn a_typing_error_shows_no_secret() {
    let folder = Folder::new();
    let main = written(&folder, "trunkline.toml", MAIN);
    written(&folder, "keys.toml", "");
    written(&folder, "conf.d/weather.toml", "[upstream.weather]\nurl = \"http://127.0.0.1:1/mcp\"\n");
    for (line, shown) in [
        ("beare = \"hunter2\"", "beare = \"*******\"\n  | ^^^^^ did you mean `bearer`?"),
        ("comand = [\"prog\", \"--api-key=hunter2\"]", "comand = [\"****\", \"*****************\"]"),
        (
            "oauth = { token_url = \"htps://i/t\", client_id = \"x\", client_secret = \"hunter2\" }",
            "oauth = { token_url = \"htps://i/t\", client_id = \"*\", client_secret = \"*******\" }",
        ),
        ("bearer = \"\"\"\nof_hunter2 = x\"\"\"x", "not TOML"),
    ] {
        let team = written(&folder, "conf.d/team.toml", &format!("[upstream.files]\n{line}\n"));
        let (code, said) = check(&[&main], &[]);
        assert_eq!(code, Some(78), "{said}");
        assert!(said.contains(&team) && said.contains(shown) && !said.contains("hunter2"), "{line}\n{said}");
    }
    let child = "[upstream.files]\ncommand = \"/none/prog --key hunter2\"\n";
    written(&folder, "conf.d/team.toml", child);
    let (_, said) = check(&[&main], &[]);
    assert!(said.contains("there is no program `/none/prog …`") && !said.contains("hunter2"), "{said}");
}

#[test]
fn variables_come_from_the_environment() {
    let folder = Folder::new();
    let text = "[listener]\naddress = \"${LISTEN:-127.0.0.1:0}\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"a\"]\n\
        [upstream.a]\nurl = \"http://${SERVER}/mcp\"\n";
    let main = written(&folder, "trunkline.toml", text);
    assert_eq!(check(&[&main], &[("SERVER", "127.0.0.1:1")]).0, Some(0));
    let (code, said) = check(&[&main], &[]);
    assert_eq!(code, Some(78));
    assert!(said.contains(":7:7: error: the environment has no `SERVER`"), "{said}");
    let (code, said) = check(&[&main], &[("SERVER", "127.0.0.1:1"), ("LISTEN", "nowhere")]);
    assert_eq!(code, Some(78));
    assert!(said.contains(":2:11: error: not an IP address and port"), "{said}");

    let secret = written(&folder, "secret.toml", &format!("{text}bearer = \"${{TOKEN}}\"\n"));
    let (code, said) = check(&[&secret], &[("SERVER", "127.0.0.1:1"), ("TOKEN", "swordfish")]);
    assert_eq!(code, Some(78));
    assert!(said.contains("{ env = \"NAME\" }") && !said.contains("swordfish"), "{said}");
    // The name of a secret, where its value would come: nobody sees it.
    let secret = written(&folder, "secret.toml", &format!("{text}bearer = {{ env = \"${{TOKEN}}\" }}\n"));
    let (code, said) = check(&[&secret], &[("SERVER", "127.0.0.1:1"), ("TOKEN", "swordfish")]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("`{ env = \"NAME\" }`") && !said.contains("swordfish"), "{said}");
}

#[test]
fn the_file_is_named_in_any_of_the_usual_ways() {
    let folder = Folder::new();
    let main = written(
        &folder,
        "a.toml",
        &Config::new().raw("up", "url = \"http://127.0.0.1:1/mcp\"").endpoint("").to_string(),
    );
    let (code, said) = check(&[&main], &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(check(&["-c", &main], &[]), (code, said.clone()));
    assert_eq!(check(&["--config", &main], &[]), (code, said.clone()));
    assert_eq!(check(&[], &[("TRUNKLINE_CONFIG", &main)]), (code, said.clone()));
    assert_eq!(check(&[&main], &[("TRUNKLINE_CONFIG", "/nowhere")]), (code, said));
}

#[test]
fn what_all_upstreams_share_is_written_once() {
    let text = "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"a\", \"b\"]\n\
        [upstream_defaults]\nresponse_timeout = \"2m\"\nunique_ids = true\nchildren_max = 3\ntls = { server_name = \"x\" }\n\
        health = { interval = \"7s\" }\n\
        [upstream.a]\nurl = \"http://127.0.0.1:1/mcp\"\nhealth = { timeout = \"1s\" }\n[upstream.b]\ncommand = [\"true\"]\n";
    let checked = |text: &str| {
        let (output, _) = trunkline(&["check", "--no-files"], Some(text));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(checked(text), (Some(0), String::new()), "what does not fit an upstream is left out there");
    let (code, said) = checked(&text.replace("\"2m\"", "2"));
    assert_eq!(code, Some(78));
    assert_eq!(said.matches("error: ").count(), 1, "one place, one error: {said}");
    assert!(said.contains("trunkline.toml:7:20: error: `response_timeout`: a unit is missing"), "{said}");
    let (_, said) = checked(&text.replace("unique_ids = true", "bearer = { env = \"T\" }"));
    assert!(said.contains("`bearer` is each upstream's own"), "no credential goes to all: {said}");
    let (_, said) =
        checked(&text.replace("unique_ids = true", "url = \"http://127.0.0.1:2/\"\nuniqe_ids = true"));
    assert!(
        said.contains("`url` is each upstream's own") && said.contains("did you mean `unique_ids`?"),
        "{said}"
    );
}

#[test]
fn what_is_switched_off_is_as_if_it_were_not_there() {
    let (on, off) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["add"]));
    let config = Config::new()
        .upstream("on", on.address, "")
        .upstream("off", off.address, "enabled = false")
        .endpoint("aliases = { plus = \"off__add\" }")
        .section("[[rule]]\nname = \"nobody\"\neffect = \"deny\"\nenabled = false");
    let daemon = Daemon::start(&config);
    let names = daemon.send(&list("1", "tools/list")).text();
    assert!(names.contains("\"on__echo\"") && !names.contains("add") && !names.contains("plus"), "{names}");
    daemon.send(&call("2", "on__echo")).assert_ok();

    let whole = config.to_string();
    let (output, _) =
        trunkline(&["check"], Some(&whole.replace("name = \"nobody\"", "name = \"nobody\"\ntols = [\"x\"]")));
    assert_eq!(output.status.code(), Some(78), "it is checked all the same");
    let (output, _) =
        trunkline(&["check"], Some(&whole.replacen("[upstream.on]", "[upstream.on]\nenabled = false", 1)));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_file_that_comes_into_an_included_directory_is_taken_up() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["add"]));
    let folder = Folder::new();
    let directory = folder.path().join("conf.d");
    fs::create_dir(&directory).expect("made");
    let config = Config::new()
        .top(&format!("include = [\"{}/*.toml\"]", directory.display()))
        .upstream("one", one.address, "")
        .endpoint("")
        .section("[reload]\nwatch = true");
    let daemon = Daemon::start(&config);
    let text = format!(
        "[[endpoint]]\npath = \"/two\"\nupstreams = [\"two\"]\n[upstream.two]\nurl = \"http://{}/mcp\"\n",
        two.address
    );
    fs::write(directory.join("two.toml"), text).expect("written");
    eventually("it is taken up", || {
        (daemon.send(&list("1", "tools/list").target("/two")).status == 200).then_some(())
    });
}

#[test]
fn a_key_goes_into_the_configuration_and_its_secret_into_a_file_of_its_own() {
    let folder = Folder::new();
    let config = written(&folder, "trunkline.toml", "# no newline at the end");
    let file = folder.path().join("ann.key");
    let out = file.display().to_string();
    let (output, _) = trunkline(&["key", "ann", "--append", &config, "--key-out", &out], None);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let key = fs::read_to_string(&file).expect("a key");
    assert!(key.starts_with("tl_") && key.len() == 68, "{} bytes", key.len());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("tl_"), "it is shown nowhere");
    assert_eq!(mode(&file), 0o600);
    let text = fs::read_to_string(&config).expect("text");
    assert!(
        text.starts_with("# no newline at the end\n\n[[api_key]]\nname = \"ann\"\nsha256 = \""),
        "{text}"
    );

    let (again, _) = trunkline(&["key", "ann", "--append", &config], None);
    assert!(String::from_utf8_lossy(&again.stderr).contains("has a key named ann"), "{again:?}");
    let (taken, _) = trunkline(&["key", "bob", "--append", &config, "--key-out", &out], None);
    assert!(!taken.status.success(), "a key is not written over");
    assert_eq!(fs::read_to_string(&config).expect("text"), text, "and nothing is appended then");
    assert_eq!(trunkline(&["key", "a b"], None).0.status.code(), Some(2), "the command line is wrong");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}
