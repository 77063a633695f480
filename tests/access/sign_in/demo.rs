//! `trunkline demo --sign-in`: a new user is signed in with what it prints, and nothing is left of it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::browser::{moves_on, sealed_form, set_cookies};
use super::{CHALLENGE, REDIRECT, VERIFIER, form};
use crate::harness::{
    Connection, Folder, Request, Response, call, eventually, list, post, tool_names, trunkline, with_key,
};

/// A demo, and what it printed.
struct Demo {
    child: Child,
    text: String,
    folder: Folder,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Demo {
    fn start() -> Self {
        let folder = Folder::new();
        let mut command = command(&folder);
        command.args(["--address", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the demo starts");
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped"));
        while !text.contains("until it stops") {
            let count = lines.read_line(&mut text).expect("text");
            assert_ne!(count, 0, "the demo ended: {text}");
        }
        Self { child, text, folder }
    }

    /// The first text that begins so, up to the end of the word.
    #[track_caller]
    fn word(&self, before: &str, start: &str) -> String {
        let (_, after) =
            self.text.split_once(before).unwrap_or_else(|| panic!("no {before} in {}", self.text));
        let (_, rest) = after.split_once(start).expect("its place");
        let word = rest.split(|character: char| character.is_whitespace() || character == ',').next();
        word.expect("a word").trim_end_matches('/').to_owned()
    }

    fn gateway(&self) -> String {
        self.word("Trunkline runs", "at ").trim_end_matches("/mcp").to_owned()
    }

    fn provider(&self) -> String {
        self.word("Also running", "the provider at ")
    }

    fn admin(&self) -> String {
        self.word("grants list", "--admin ")
    }

    fn inside(&self) -> String {
        self.word("Keys and sign-ins", "are in ")
    }

    /// Signs this user in, as a client and a browser do that know the URL alone. Returns the access token.
    fn signed_in(&self, user: &str) -> String {
        let (gateway, provider) = (self.gateway(), self.provider());
        let about = json!({ "redirect_uris": [REDIRECT], "client_name": "Try", "token_endpoint_auth_method": "none" });
        let client = ask(&gateway, post(about.to_string()).target("/register")).json()["client_id"].clone();
        let client = client.as_str().expect("an id");
        let query = form(&[
            ("client_id", client),
            ("redirect_uri", REDIRECT),
            ("response_type", "code"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("resource", &format!("{gateway}/mcp")),
        ]);
        let page = ask(&gateway, open(&format!("/authorize?{query}")));
        let cookies = cookies(&page);
        let answer = form(&[("form", &sealed_form(&page)), ("answer", "allow")]);
        let answer = post_form("/sign-in/consent", &answer).with("Origin", &gateway).with("Cookie", cookies);
        let moving = ask(&gateway, answer);
        let visit = moves_on(&moving);
        let visit = visit.strip_prefix(&provider).expect("an address of the provider");
        let users = ask(&provider, open(visit)).text();
        assert!(users.contains(&format!("value=\"{user}\"")), "{users}");
        let back = location(&ask(&provider, post_form(visit, &form(&[("user", user)]))));
        let back = back.strip_prefix(&gateway).expect("an address of the gateway");
        let back = location(&ask(&gateway, open(back).with("Cookie", self::cookies(&moving))));
        let (_, code) = back.split_once("code=").expect("a code");
        let code = code.split('&').next().expect("its end");
        let asked = form(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", REDIRECT),
            ("code_verifier", VERIFIER),
            ("client_id", client),
        ]);
        let tokens = ask(&gateway, post_form("/token", &asked)).json();
        tokens["access_token"].as_str().unwrap_or_else(|| panic!("no token: {tokens}")).to_owned()
    }
}

fn command(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["demo", "--sign-in"]).env("TMPDIR", folder.path());
    command
}

fn ask(origin: &str, request: Request) -> Response {
    let authority = origin.strip_prefix("http://").expect("an origin");
    let address: SocketAddr = authority.parse().expect("an address");
    let mut connection = Connection::open(address);
    connection.write(&request.set("Host", authority).bytes());
    connection.response()
}

fn open(target: &str) -> Request {
    post("").method("GET").target(target).without("Content-Type").set("Accept", "text/html")
}

fn post_form(target: &str, body: &str) -> Request {
    post(body).target(target).set("Content-Type", "application/x-www-form-urlencoded")
}

#[track_caller]
fn location(response: &Response) -> String {
    assert_eq!(response.status, 303, "{}", response.text());
    response.header("location").expect("an address").to_owned()
}

fn cookies(response: &Response) -> String {
    let pairs = set_cookies(response).into_iter().filter_map(|cookie| cookie.split(';').next());
    pairs.collect::<Vec<_>>().join("; ")
}

#[test]
fn both_users_sign_in_and_may_use_what_it_says() {
    let demo = Demo::start();
    let gateway = demo.gateway();
    let refused = ask(&gateway, call("1", "weather__forecast"));
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(refused.header("www-authenticate").is_some_and(|value| value.contains("resource_metadata")));

    for (user, uses_notes) in [("alice", true), ("bob", false)] {
        let token = demo.signed_in(user);
        let names = tool_names(&ask(&gateway, with_key(list("1", "tools/list"), &token)));
        let has = |upstream: &str| names.iter().any(|name| name.starts_with(upstream));
        assert!(has("weather__"), "{user}: {names:?}");
        assert_eq!(has("notes__"), uses_notes, "{user}: {names:?}");
    }
    let token = format!("{}/admin-token", demo.inside());
    let (output, _) = trunkline(&["grants", "list", "--admin", &demo.admin(), "--token-file", &token], None);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(listed.contains("alice (Alice Adams)") && listed.contains("bob (Bob Brown)"), "{listed}");
}

#[test]
fn nothing_is_left_of_it_and_each_start_is_new() {
    let mut demo = Demo::start();
    let inside = demo.inside();
    assert!(std::path::Path::new(&inside).join("provider-secret").is_file(), "{inside}");
    let pid = Pid::from_child(&demo.child);
    kill_process(pid, Signal::INT).expect("the demo is there");
    let status = demo.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    let left: Vec<_> = std::fs::read_dir(demo.folder.path()).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_signal_while_it_starts_leaves_nothing() {
    let folder = Folder::new();
    let mut command = command(&folder);
    command.args(["--address", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::null()).spawn().expect("the demo starts");
    let count = || std::fs::read_dir(folder.path()).expect("the folder").count();
    eventually("its folder", || (count() == 1).then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).expect("the demo is there");
    let status = child.wait().expect("it ends");
    assert!(status.success() && count() == 0, "{status}, {}", count());
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let folder = Folder::new();
    for (addresses, code, says) in [
        ([&*address, "127.0.0.1:0"], 1, "in use"),
        (["127.0.0.1:0", &*address], 1, "in use"),
        (["127.0.0.2:0", "127.0.0.1:0"], 2, "give --address one of them"),
    ] {
        let mut command = command(&folder);
        command.args(["--address", addresses[0], "--admin", addresses[1]]);
        let output = command.output().expect("it ends");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{output:?}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
