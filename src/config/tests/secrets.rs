//! No secret is shown in what is said about a configuration, whatever is wrong with it.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::*;

/// Where a secret may stand in lines of a file, in whatever form. A part of it is as bad as all.
const SECRET: &str = "zqxjkvbw";

/// What is said about a text that is wrong.
fn said(text: &str) -> String {
    let source = ConfigSource::new("f.toml", text);
    match parse_source(&source, &|_| None) {
        Ok(config) => config.warnings.iter().map(|warning| source.render(warning)).collect(),
        Err(errors) => format!("{errors}\n{}", errors.render_in(&source)),
    }
}

#[test]
fn what_stands_behind_a_misspelt_key_is_not_shown() {
    for (lines, shown) in [
        ("beare = 'SECRET'", "beare = '********'\n  | ^^^^^ did you mean `bearer`?"),
        ("basc = { user = 'u', password = 'SECRET' }", "basc = { user = '*', password = '********' }"),
        ("basic = { user = 'u', pasword = 'SECRET' }", "basic = { user = '*', pasword = '********' }"),
        ("basic.pssword = 'SECRET'", "basic.pssword = '********'"),
        (
            "headrs = { x-api-key = 'SECRET', 'name' = 'SECRET' }",
            "headrs = { x-api-key = '********', 'name' = '********' }",
        ),
        (
            "oauh = { client_id = 'x', client_secret = 'SECRET' }",
            "oauh = { client_id = '*', client_secret = '********' }",
        ),
        ("enav = { A = 'SECRET', path = 'SECRET' }", "enav = { A = '********', path = '********' }"),
        ("comand = ['prog', '--api-key=SECRET']", "comand = ['****', '******************']"),
        ("rl = 'https://u:SECRET@h/'", "rl = '*********************'"),
        ("beare = 7355608 # SECRET", "beare = ******* #*******"),
        ("calls_mx = 8\nbeare = true", "calls_mx = 8"),
        ("timeout = '30s'", "timeout = '30s'\n  | ^^^^^^^ did you mean `response_timeout`?"),
        ("tmout = '30s'", "tmout = '30s'"),
        ("token = '30s'", "token = '***'"),
        ("name = 'SECRET'", "name = '********'"),
    ] {
        let lines = lines.replace("SECRET", SECRET);
        let said = said(&base_with("[upstream.a]\n", &format!("[upstream.a]\n{lines}\n")));
        assert!(said.contains(&format!("7 | {shown}")) && !said.contains(SECRET), "{lines}\n{said}");
    }
}

#[test]
fn what_stands_beside_something_wrong_is_not_shown() {
    for (lines, shown) in [
        (
            "oauth = { token_url = 'htps://i/t', client_id = 'x', client_secret = 'SECRET' }",
            "oauth = { token_url = 'htps://i/t', client_id = '*', client_secret = '********' }",
        ),
        ("tls = { ca = 'a b', key = 'SECRET' }", "tls = { ca = '***', key = '********' }"),
        ("retry = { tools = 5 } # SECRET", "retry = { tools = 5 } #*********"),
        ("urls = 'https://u:SECRET@h/'", "urls = '*********************'"),
        (
            "urls = ['https://h/s/SECRETSECRETSECRET', 5]",
            "urls = ['https://h/s/************************', 5]",
        ),
        (
            "urls = ['https://u:SECRETh/', 'http://[::1]:80/a?SECRET', 5]",
            "urls = ['********************', 'http://[::1]:80/a?********', 5]",
        ),
        ("command = ['prog', '--key=SECRET', 5]", "command = ['prog', '**************', *]"),
        ("args = '--key=SECRET'", "args = '**************'"),
        ("command = 'prog --key SECRET'", "command = '*******************'"),
        ("description = 'SECRET'", "description = '********'"),
        ("url = '${x zqxjkvbw}'", "url = *************"),
    ] {
        let lines = lines.replace("SECRET", SECRET);
        let text = base_with(
            "[upstream.a]\nurl = \"http://127.0.0.1:9101/\"\n",
            &format!("[upstream.a]\n{lines}\n"),
        );
        let said = said(&text);
        assert!(said.contains(&format!("7 | {shown}")) && !said.contains(SECRET), "{lines}\n{said}");
    }
    let origins = base_with("[[endpoint]]", "[[endpoint]]\norigins = ['https://u:zqxjkvbw@h/x']");
    assert!(!said(&origins).contains(SECRET), "{}", said(&origins));
}

#[test]
fn what_is_no_toml_shows_no_secret() {
    for (lines, shown) in [
        ("bearer = SECRET", "6 | bearer = …"),
        ("bearer = '''\nof_zqxjkvbw = x'''y", "7 | …"),
        ("args = [\n'SECRET' x]", "7 | …"),
        ("command = ['SECRET', x]", "6 | command = ['…"),
        ("comand = ['SECRET', x]", "6 | …"),
        ("path = '/'\n[limits]\npath = /mcp", "8 | path = …"),
        ("path = '/' # SECRET\nnames = [a, b]", "7 | names = […"),
        ("path = '/'bearer = 'SECRET'", "6 | path = '…"),
        ("url = 'https://u:SECRET@h/", "6 | url = '…"),
        ("path = '''\n[upstream.a]\nx = SECRET''' y", "8 | …"),
        ("[upstream.a]\noauth = SECRET", "7 | oauth = …"),
        ("[upstream.a.env]\nname = SECRET", "7 | name = …"),
    ] {
        let lines = lines.replace("SECRET", SECRET);
        let said = said(&base_with("[upstream.a]\n", &format!("{lines}\n[upstream.a]\n")));
        assert!(said.contains(&format!("{shown}\n")) && !said.contains(SECRET), "{lines}\n{said}");
    }
}

/// Keys of the schema below `json`, each with what it is.
fn keys_of(json: &Json, keys: &mut Vec<(String, Json)>) {
    for (name, value) in json["properties"].as_object().into_iter().flatten() {
        keys.push((name.clone(), value.clone()));
    }
    let (array, object) = (json.as_array(), json.as_object());
    for below in array.into_iter().flatten().chain(object.into_iter().flat_map(|object| object.values())) {
        keys_of(below, keys);
    }
}

#[test]
fn each_key_is_shown_or_hidden() {
    let mut keys = Vec::new();
    keys_of(&json_schema().parse().unwrap(), &mut keys);
    let listed: Vec<&str> =
        outline::SHOWN.split_whitespace().chain(outline::HIDDEN.split_whitespace()).collect();
    let known: BTreeSet<&str> = keys.iter().map(|(name, _)| &**name).collect();
    for name in &known {
        assert_eq!(
            usize::from(outline::ENDS_OF_NUMBERS.iter().any(|end| name.ends_with(end)))
                + listed.iter().filter(|other| *other == name).count(),
            1,
            "`{name}` is in none of the lists of outline.rs, or in two"
        );
    }
    for name in &listed {
        assert!(known.contains(name), "`{name}` is no key");
    }
    for (name, what) in &keys {
        let is_secret = what.to_string().contains("Secret\"");
        assert!(!is_secret || outline::HIDDEN.split_whitespace().any(|hidden| hidden == name), "`{name}`");
        let is_free = what["additionalProperties"].is_object();
        let is_listed = outline::FREE_NAMES.split_whitespace().any(|free| free == name);
        assert!(!is_free || is_listed || outline::HIDDEN.contains(&**name), "`{name}` has free names");
    }
}

/// A generator of numbers that is the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// Lines with a secret in each place where one may stand, rightly or not.
const FULL: &str = r#"[listener]
address = "127.0.0.1:0"
[listener.tls]
certificates = [{ chain = "/c.pem", key = { file = "/a/SECRET" } }, { chain = "/d.pem", key = "SECRET" }]
[admin]
address = "127.0.0.1:0"
token = "SECRET"
[shared]
redis = "redis://u:SECRET@h:1/0"
username = "SECRET"
password = "SECRET"
[session]
key = { file = "/SECRET" }
[[api_key]]
name = "al"
sha256 = "SECRET"
[[endpoint]]
path = "/m"
upstreams = ["a", "b", "c", "d"]
[upstream.a]
url = "https://u:SECRET@h.example/mcp"
headers = { "x-api-key" = "SECRET", x-b = "SECRET" }
bearer = { env = "SECRET" }
bridge = { enabled = true }
[upstream.b]
urls = ["http://127.0.0.1:1/mcp", "https://u:SECRET@h.example/mcp"]
basic = { user = "u", password = "SECRET" }
oauth = { token_url = "https://i/t", client_id = "x", client_secret = "SECRET" }
bearer = """
SECRET
SECRET = tail"""
[upstream.c]
command = ["prog", "--api-key=SECRET", "--token", "SECRET"]
env = { A_TOKEN = "SECRET", gh = 'SECRET' }
response_timeout = "5s"
[upstream.d]
command = "prog"
args = [
  "--password",
  "SECRET",
]
[upstream.d.env]
DB_PASS = "SECRET" # SECRET
OTHER = '''
SECRET'''
[upstream.d.headers]
authorization = "Bearer SECRET"
cookie = "a=SECRET; b=SECRET"
[upstream.e.basic]
user = "u"
password = "SECRET"
"#;

/// The lines of [`FULL`], each with some of the others.
fn some_lines(dice: &mut Dice) -> Vec<char> {
    let lines = FULL.split_inclusive('\n').filter(|line| line.starts_with('[') || dice.below(4) > 0);
    lines.collect::<String>().replace("SECRET", SECRET).chars().collect()
}

/// Changes one character, mostly one that separates others.
fn break_one(text: &mut Vec<char>, dice: &mut Dice) {
    const PUT: &[u8] = b"\"'[]{}=,\n#.\\ \t-_aZ9:@";
    let mut at = dice.below(text.len());
    if dice.below(3) > 0 {
        let is_mark = |c: &char| "\"'[]{}=,\n@:".contains(*c);
        at = (at..text.len()).find(|at| is_mark(&text[*at])).unwrap_or(at);
    }
    let put = char::from(PUT[dice.below(PUT.len())]);
    match dice.below(10) {
        0..=4 => _ = text.remove(at),
        5 => text[at] = put,
        6 => text.insert(at, text[at]),
        7 => {
            let end = (at..text.len()).find(|at| text[*at] == '\n').unwrap_or(text.len());
            _ = text.drain(at..end);
        }
        _ => text.insert(at, put),
    }
}

#[test]
fn no_typing_error_shows_a_secret() {
    let times = std::env::var("TRUNKLINE_TYPING_ERRORS").ok().and_then(|times| times.parse().ok());
    let mut dice = Dice(7);
    let mut shown = Vec::new();
    for _ in 0..times.unwrap_or(1500) {
        let mut text = some_lines(&mut dice);
        for _ in 0..=dice.below(2) {
            break_one(&mut text, &mut dice);
        }
        let text: String = text.into_iter().collect();
        let said = said(&text);
        let parts = [&SECRET[..4], &SECRET[4..], &SECRET[2..6]];
        if let Some(line) = said.lines().find(|line| parts.iter().any(|part| line.contains(part))) {
            shown.push(format!("{line}\n=== of\n{text}\n=== {said}"));
        }
    }
    assert!(shown.is_empty(), "{} times: {}", shown.len(), shown[..5.min(shown.len())].join("\n"));
}
