//! Who may call what: rules hold whatever a thing is called, wherever it is named, in both eras.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Config, Connection, Daemon, Folder, Legacy, Listening, META, Offer, RESOURCE, Received, Reply, Request,
    Response, SigningKey, Upstream, api_key, body, call, claims, eventually, get_prompt, in_session,
    initialize, jwks, jwt, legacy, list, modern, post, read_resource, trunkline, with_key,
};

const CI: &str = "ci-key-0123456789abcdefghijklmnopqr";
const OPS: &str = "ops-key-0123456789abcdefghijklmnopq";
const BOTH: &str = "eras = [\"legacy\", \"modern\"]";

/// `ci` may read, `ops` may do everything but what nobody may.
const RULES: &str = r#"
[[rule]]
name = "readers"
effect = "allow"
principals = ["ci"]
upstreams = ["files"]
tools = ["read*", "kept_secret"]
prompts = ["greet"]
resources = ["file:///public/*", "ui://panel", "https://docs.example/*"]

[[rule]]
name = "operators"
effect = "allow"
principals = ["key:ops"]

[[rule]]
name = "no-secrets"
effect = "deny"
tools = ["*secret*", "kill"]
prompts = ["hush"]
resources = ["file:///secret*", "https://docs.example/secret", "urn:secret:*"]
"#;

fn files() -> Offer {
    Offer::tools(&["read", "read_all", "write", "secret", "kept_secret", "kill"])
        .with_prompts(&["greet", "hush", "ask"])
        .with_resources(&[
            "file:///public/a",
            "file:///secret/b",
            "ui://panel",
            "ui://other",
            "https://docs.example/a",
            "https://docs.example/secret",
            "urn:secret:1",
        ])
}

fn weather() -> Offer {
    Offer::tools(&["forecast", "read_weather", "secret"]).with_prompts(&["storm"]).with_resources(&["w:1"])
}

/// Two servers of both eras, and a gateway with rules before them.
struct Bed {
    files: Upstream,
    weather: Upstream,
    daemon: Daemon,
}

impl Bed {
    fn start(change: impl Fn(Config) -> Config) -> Self {
        Self::with_rules(RULES, change)
    }

    fn with_rules(rules: &str, change: impl Fn(Config) -> Config) -> Self {
        let files = Legacy::new(files()).and_modern().start();
        let weather = Legacy::new(weather()).and_modern().start();
        let config = Config::new()
            .upstream("files", files.address, BOTH)
            .upstream("weather", weather.address, BOTH)
            .section(&api_key("ci", CI))
            .section(&api_key("ops", OPS))
            .section(rules);
        let daemon = Daemon::start(&change(config));
        let bed = Self { files, weather, daemon };
        eventually("the names are learned", || {
            (bed.daemon.send(&with_key(call("0", "read"), CI)).status == 200).then_some(())
        });
        bed
    }

    fn send(&self, key: &str, request: Request) -> Response {
        self.daemon.send(&with_key(request, key))
    }

    /// What both servers were asked on behalf of clients.
    fn forwarded(&self) -> Vec<String> {
        // The gateway has sessions of its own, too.
        let own = ["initialize", "notifications/initialized", "ping", "GET", "DELETE"];
        let all = [&self.files, &self.weather].map(Upstream::forwarded);
        let methods = all.iter().flatten().map(Received::method);
        methods.filter(|method| !own.contains(&&**method)).collect()
    }

    /// A session of the legacy era.
    fn session(&self, key: &str) -> String {
        let response = self.send(key, initialize("0", "2025-11-25"));
        response.assert_ok();
        response.header("mcp-session-id").expect("a session").to_owned()
    }

    /// Sends a request that must come to nothing.
    #[track_caller]
    fn assert_kept_out(&self, what: &str, key: &str, request: Request) -> Response {
        let before = self.forwarded();
        let response = self.send(key, request);
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert!(!text.contains("\"result\""), "{what}: {text}");
        assert_eq!(self.forwarded(), before, "{what} reached a server");
        response
    }

    #[track_caller]
    fn assert_unknown(&self, what: &str, key: &str, request: Request) {
        let response = self.assert_kept_out(what, key, request);
        let json = response.json();
        assert_eq!((response.status, json["error"]["code"].as_i64()), (200, Some(-32602)), "{what}: {json}");
        assert!(json["error"]["message"].as_str().unwrap().starts_with("unknown "), "{what}: {json}");
    }

    fn names(&self, key: &str, method: &str, field: &str, name: &str) -> Vec<String> {
        names(&self.send(key, list("1", method)).json(), field, name)
    }
}

fn names(answer: &Value, field: &str, name: &str) -> Vec<String> {
    let entries = answer["result"][field].as_array().unwrap_or_else(|| panic!("no {field} in {answer}"));
    entries.iter().map(|entry| entry[name].as_str().unwrap().to_owned()).collect()
}

fn complete(id: &str, reference: &str) -> Request {
    let params = format!(r#"{{"ref":{reference},"argument":{{"name":"x","value":""}},"_meta":{META}}}"#);
    modern("completion/complete", None, body(id, "completion/complete", &params))
}

/// A call whose header and body may differ; `name` is the literal in the body.
fn call_as(header: &str, name: &str) -> Request {
    let params = format!(r#"{{"name":{name},"arguments":{{}},"_meta":{META}}}"#);
    modern("tools/call", Some(header), body("7", "tools/call", &params))
}

fn task(id: &str, task: &str) -> Request {
    let params = format!(r#"{{"taskId":"{task}","_meta":{META}}}"#);
    modern("tasks/get", Some(task), body(id, "tasks/get", &params))
}

#[test]
fn lists_show_what_may_be_used() {
    let bed = Bed::start(|config| config);
    for _ in 0..2 {
        assert_eq!(bed.names(CI, "tools/list", "tools", "name"), ["files__read", "files__read_all"]);
        assert_eq!(bed.names(CI, "prompts/list", "prompts", "name"), ["files__greet"]);
        assert_eq!(
            bed.names(CI, "resources/list", "resources", "uri"),
            ["files+file:///public/a", "ui://files+panel", "https://docs.example/a"]
        );
        assert_eq!(
            bed.names(OPS, "tools/list", "tools", "name"),
            ["files__read", "files__read_all", "files__write", "weather__forecast", "weather__read_weather"]
        );
        assert_eq!(
            bed.names(OPS, "prompts/list", "prompts", "name"),
            ["files__greet", "files__ask", "weather__storm"]
        );
    }
    for (key, tools) in [(CI, 2), (OPS, 5)] {
        let session = bed.session(key);
        let answer = bed.send(key, in_session(&session, legacy("1", "tools/list", "{}"))).json();
        assert_eq!(names(&answer, "tools", "name").len(), tools);
    }
    let answer = bed.send(CI, list("1", "tools/list")).json();
    assert_eq!(answer["result"]["cacheScope"], "private");
}

#[test]
fn what_is_allowed_goes_through() {
    let bed = Bed::start(|config| config.endpoint("aliases = { look = \"files__read\" }"));
    for request in [
        call("1", "files__read"),
        call("1", "read"),
        call("1", "look"),
        call("1", "files__read_all"),
        call("1", "files__reading"),
        get_prompt("1", "files__greet"),
        read_resource("1", "files+file:///public/a"),
        read_resource("1", "files+file:///public/new"),
        read_resource("1", "file:///public/a"),
        read_resource("1", "https://docs.example/a"),
        complete("1", r#"{"type":"ref/prompt","name":"files__greet"}"#),
    ] {
        println!("{}", String::from_utf8_lossy(&request.body));
        bed.send(CI, request).assert_ok();
    }
    for request in [call("1", "files__write"), call("1", "weather__forecast"), call("1", "weather__new")] {
        bed.send(OPS, request).assert_ok();
    }
    let session = bed.session(CI);
    bed.send(CI, in_session(&session, legacy("2", "tools/call", r#"{"name":"read","arguments":{}}"#)))
        .assert_ok();
}

/// Requests of the modern era that must come to nothing, and who makes them.
fn attacks() -> Vec<(&'static str, &'static str, Request)> {
    let mut attacks = vec![
        ("not allowed", CI, call("7", "files__write")),
        ("not allowed, bare", CI, call("7", "write")),
        ("another upstream", CI, call("7", "weather__forecast")),
        ("an allowed name at another upstream", CI, call("7", "weather__read_weather")),
        ("denied though allowed", CI, call("7", "files__kept_secret")),
        ("an alias", CI, call("7", "sneaky")),
        ("an alias of what is denied", OPS, call("7", "hidden")),
        ("denied", OPS, call("7", "files__secret")),
        ("denied, at every upstream", OPS, call("7", "weather__secret")),
        ("denied, never listed", OPS, call("7", "files__my_secret_2")),
        ("an upstream that is not here", OPS, call("7", "elsewhere__read")),
        ("a prefix before a prefix", CI, call("7", "weather__files__read")),
        ("in capitals", OPS, call("7", "files__SECRET")),
        ("in mixed case", OPS, call("7", "files__Secret")),
        ("the prefix in capitals", CI, call("7", "FILES__write")),
        ("with a space", OPS, call_as("=?base64?ZmlsZXNfX2tpbGwg?=", r#""files__kill ""#)),
        ("with a NUL at its end", OPS, call_as("=?base64?ZmlsZXNfX2tpbGwA?=", r#""files__kill\u0000""#)),
        ("a long s", OPS, call_as("=?base64?ZmlsZXNfX8W/ZWNyZXQ=?=", r#""files__\u017fecret""#)),
        ("a Kelvin sign", OPS, call_as("=?base64?ZmlsZXNfX+KEqmlsbA==?=", r#""files__\u212aill""#)),
        ("a sentinel", OPS, call_as("=?base64?ZmlsZXNfX3NlY3JldA==?=", r#""files__secret""#)),
        ("escapes", OPS, call_as("files__secret", r#""files__s\u0065cret""#)),
        ("a prompt", CI, get_prompt("7", "files__ask")),
        ("a denied prompt", OPS, get_prompt("7", "files__hush")),
        ("a prompt in capitals", OPS, get_prompt("7", "files__HUSH")),
        ("a tool's name as a prompt", CI, get_prompt("7", "files__read")),
        ("a task of an upstream that is hidden", CI, task("7", "weather+t1")),
        ("completion of a prompt", CI, complete("7", r#"{"type":"ref/prompt","name":"files__ask"}"#)),
        ("completion, denied", OPS, complete("7", r#"{"type":"ref/prompt","name":"hush"}"#)),
        (
            "completion of a resource",
            OPS,
            complete("7", r#"{"type":"ref/resource","uri":"files+file:///secret/{x}"}"#),
        ),
    ];
    let of_ci = [
        "file:///secret/b",
        "files+file:///private",
        "weather+w:1",
        "w:1",
        "files+file:///public/../private",
        "files+file:///public/%2e%2e/private",
        "files+file:///public/%252e%252e/private",
        "files+file:///public/..%2fprivate",
        "files+file:///public/..%5cprivate",
        "files+FILE:///public/a",
        "files+file:///PUBLIC/a",
        "files+file://localhost/public/a",
        "files+file:////public/a",
        "ui://files+other",
        "ui://weather+panel",
        "ui://other",
        "files+ui://other",
        "https://docs.example.evil/a",
        "https://DOCS.example/a",
        "files+https://docs.example/../x",
        "data:text/plain,file:///public/a",
        "files+javascript:alert(1)",
        "weather+file:///public/a",
    ];
    let of_ops = [
        "files+file:///secret/b",
        "file:///secret/b",
        "files+file:///SECRET/b",
        "files+file:///secret",
        "files+file:///secret?x",
        "files+file:///%73ecret/b",
        "files+file:///a/../secret/b",
        "files+file://localhost/secret/b",
        "files+file:/secret/b",
        "files+file:////secret/b",
        "files+file:///./secret/b",
        "https://docs.example/secret",
        "files+https://docs.example/secret",
        "files+https://docs.example/secret?x=1",
        "files+https://docs.example/secret#x",
        "files+https://docs.example/secret/",
        "files+https://docs.example:443/secret",
        "files+https://user@docs.example/secret",
        "urn:secret:1",
        "files+URN:secret:1",
        "files+urn:SECRET:1",
        "files+urn:secret%3A1",
    ];
    attacks.extend(of_ci.map(|uri| ("a URI", CI, read_resource("7", uri))));
    attacks.extend(of_ops.map(|uri| ("a denied URI", OPS, read_resource("7", uri))));
    attacks
}

const ALIASES: &str = "aliases = { sneaky = \"files__write\", hidden = \"files__secret\" }";

#[test]
fn nothing_leads_around_the_rules() {
    let bed = Bed::start(|config| config.endpoint(ALIASES));
    for (what, key, request) in attacks() {
        let what = format!("{what}: {}", String::from_utf8_lossy(&request.body));
        bed.assert_unknown(&what, key, request);
    }
}

#[test]
fn nothing_leads_around_the_rules_with_bare_names() {
    let bed = Bed::start(|config| config.endpoint(ALIASES).endpoint("names = \"bare\""));
    assert_eq!(bed.names(CI, "tools/list", "tools", "name"), ["read", "read_all"]);
    for (what, key, request) in attacks() {
        let what = format!("{what}: {}", String::from_utf8_lossy(&request.body));
        bed.assert_unknown(&what, key, request);
    }
    for name in ["write", "forecast", "secret", "kept_secret", "kill", "weather__forecast"] {
        bed.assert_unknown(name, CI, call("7", name));
    }
}

#[test]
fn headers_and_body_that_disagree_open_nothing() {
    let bed = Bed::start(|config| config);
    let params = |inner: &str| {
        modern(
            "tools/call",
            Some("files__read"),
            body("7", "tools/call", &format!("{{{inner},\"_meta\":{META}}}")),
        )
    };
    let twice = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"files__read","_meta":{META}}},"params":{{"name":"files__write","_meta":{META}}}}}"#
    );
    for (what, request) in [
        ("another name in the body", call_as("files__read", r#""files__write""#)),
        ("another name in the header", call_as("files__write", r#""files__read""#)),
        ("another spelling", call_as("files__read", r#""files__READ""#)),
        ("the name twice", params(r#""name":"files__read","name":"files__write""#)),
        ("the name in another case", params(r#""name":"files__read","Name":"files__write""#)),
        ("the name escaped", params(r#""name":"files__read","n\u0061me":"files__write""#)),
        (
            "a folded key",
            params(r#""name":"files__read","_meta\u0000":1,"\u212aame":"x","NAME":"files__write""#),
        ),
        ("two headers", call("7", "files__read").with("Mcp-Name", "files__write")),
        ("params twice", modern("tools/call", Some("files__read"), twice)),
        (
            "another method in the body",
            modern(
                "tools/list",
                None,
                body("7", "tools/call", &format!(r#"{{"name":"files__write","_meta":{META}}}"#)),
            ),
        ),
        (
            "a batch",
            modern(
                "tools/call",
                Some("files__read"),
                format!(
                    "[{}]",
                    body("7", "tools/call", &format!(r#"{{"name":"files__write","_meta":{META}}}"#))
                ),
            ),
        ),
        ("no headers", post(body("7", "tools/call", r#"{"name":"files__write"}"#))),
        (
            "an unknown method",
            modern("files/steal", None, body("7", "files/steal", &format!(r#"{{"_meta":{META}}}"#))),
        ),
    ] {
        bed.assert_kept_out(what, CI, request);
    }
}

/// Requests within a session that must come to nothing: method, params, and who makes them.
fn legacy_attacks() -> Vec<(&'static str, &'static str, String)> {
    let mut attacks = Vec::new();
    for (key, name) in [
        (CI, "files__write"),
        (CI, "write"),
        (CI, "weather__forecast"),
        (CI, "sneaky"),
        (OPS, "files__secret"),
        (OPS, "SECRET"),
        (OPS, "hidden"),
        (OPS, "files__\\u017fecret"),
    ] {
        attacks.push((key, "tools/call", format!(r#"{{"name":"{name}","arguments":{{}}}}"#)));
    }
    for (key, name) in [(CI, "files__ask"), (CI, "storm"), (OPS, "files__hush"), (OPS, "HUSH")] {
        attacks.push((key, "prompts/get", format!(r#"{{"name":"{name}"}}"#)));
    }
    for (key, uri) in [
        (CI, "files+file:///private"),
        (CI, "w:1"),
        (CI, "ui://files+other"),
        (CI, "files+file:///public/../private"),
        (OPS, "files+file:///secret/b"),
        (OPS, "files+file:///%73ecret/b"),
        (OPS, "file:///secret/b"),
    ] {
        for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
            attacks.push((key, method, format!(r#"{{"uri":"{uri}"}}"#)));
        }
        let reference = format!(r#"{{"type":"ref/resource","uri":"{uri}"}}"#);
        let argument = r#"{"name":"x","value":""}"#;
        attacks.push((key, "completion/complete", format!(r#"{{"ref":{reference},"argument":{argument}}}"#)));
    }
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        attacks.push((CI, method, r#"{"taskId":"weather+t1"}"#.to_owned()));
    }
    attacks
}

#[test]
fn nothing_leads_around_the_rules_in_a_session() {
    let bed = Bed::start(|config| config.endpoint(ALIASES));
    let (ci, ops) = (bed.session(CI), bed.session(OPS));
    for (key, method, params) in legacy_attacks() {
        let session = if key == CI { &ci } else { &ops };
        bed.assert_unknown(&params, key, in_session(session, legacy("7", method, &params)));
    }
    let unknown = in_session(&ci, legacy("7", "files/steal", "{}"));
    bed.assert_kept_out("an unknown method", CI, unknown).assert_error(200, -32601, Some("7"));
    let opened = |upstream: &Upstream| upstream.received_of("notifications/initialized").len();
    let before = opened(&bed.weather);
    bed.send(CI, in_session(&ci, legacy("8", "tools/call", r#"{"name":"read","arguments":{}}"#))).assert_ok();
    assert_eq!(opened(&bed.weather), before, "no session with an upstream that is hidden");
}

#[test]
fn each_message_of_a_batch_is_decided_by_itself() {
    let bed = Bed::start(|config| config);
    let response = bed.send(CI, initialize("0", "2025-03-26"));
    let session = response.header("mcp-session-id").expect("a session").to_owned();
    let call =
        |id: &str, name: &str| body(id, "tools/call", &format!(r#"{{"name":"{name}","arguments":{{}}}}"#));
    let messages = [call("1", "files__write"), call("2", "files__read"), call("3", "weather__forecast")];
    let batch =
        in_session(&session, post(format!("[{}]", messages.join(",")))).without("MCP-Protocol-Version");
    let called = || [&bed.files, &bed.weather].map(|up| up.received_of("tools/call").len());
    let [files, weather] = called();
    let text = bed.send(CI, batch).text();
    assert_eq!((text.matches("-32602").count(), text.matches("\"result\"").count()), (2, 1), "{text}");
    assert_eq!(called(), [files + 1, weather]);
}

#[test]
fn a_hidden_thing_answers_as_one_that_does_not_exist() {
    let bed = Bed::start(|config| config.endpoint("accept_unprefixed = false"));
    for (hidden, missing) in
        [("files__write", "nosuch__write"), ("files__secret", "nosuch__secret"), ("weather__x", "nosuch__x")]
    {
        let (hidden, missing) = (bed.send(CI, call("7", hidden)), bed.send(CI, call("7", missing)));
        let plain = |response: &Response| {
            let text =
                response.text().replace("files__", "N").replace("nosuch__", "N").replace("weather__", "N");
            let headers: Vec<String> = response.headers.iter().map(|(name, _)| name.clone()).collect();
            (response.status, text, headers)
        };
        assert_eq!(plain(&hidden), plain(&missing));
    }
}

#[test]
fn introductions_leave_out_what_is_hidden() {
    let mut offers = [files(), weather()];
    offers[0].instructions = "Of files.".into();
    offers[1].instructions = "Of weather.".into();
    let [files, weather] = offers.map(|offer| Legacy::new(offer).and_modern().start());
    let config = Config::new()
        .upstream("files", files.address, BOTH)
        .upstream("weather", weather.address, BOTH)
        .section(&api_key("ci", CI))
        .section(&api_key("ops", OPS))
        .section(&api_key("nobody", "no-key-0123456789abcdefghijklmnopqrst"))
        .section(RULES);
    let daemon = Daemon::start(&config);
    let said = |key: &str| {
        let modern = daemon.send(&with_key(list("1", "server/discover"), key));
        modern.assert_ok();
        let legacy = daemon.send(&with_key(initialize("1", "2025-11-25"), key));
        legacy.assert_ok();
        [modern.text(), legacy.text()]
    };
    eventually("everything is known", || {
        said(OPS).iter().all(|text| text.contains("Of files.") && text.contains("Of weather.")).then_some(())
    });
    for text in said(CI) {
        assert!(text.contains("Of files.") && !text.contains("weather"), "{text}");
    }
    for text in said("no-key-0123456789abcdefghijklmnopqrst") {
        assert!(
            !text.contains("files") && !text.contains("weather") && !text.contains("\"tools\""),
            "{text}"
        );
    }
    let nobody = with_key(list("1", "tools/list"), "no-key-0123456789abcdefghijklmnopqrst");
    assert_eq!(names(&daemon.send(&nobody).json(), "tools", "name"), Vec::<String>::new());
}

fn listen(uris: &[&str]) -> Request {
    let uris = uris.iter().map(|uri| format!("\"{uri}\"")).collect::<Vec<_>>().join(",");
    let filter = format!(r#"{{"resourceSubscriptions":[{uris}],"toolsListChanged":true}}"#);
    let params = format!(r#"{{"notifications":{filter},"_meta":{META}}}"#);
    modern("subscriptions/listen", None, body("5", "subscriptions/listen", &params))
}

fn next_message(connection: &mut Connection) -> Value {
    loop {
        let event = connection.event().expect("the stream goes on");
        if let Some(data) = event.strip_prefix("data: ") {
            return serde_json::from_str(data.trim_end()).unwrap();
        }
    }
}

#[test]
fn nobody_listens_to_what_is_hidden() {
    let files = Listening::start(files());
    let weather = Listening::start(weather());
    let config = Config::prefixed(&files.upstream, &weather.upstream)
        .section(&api_key("ci", CI))
        .section(&api_key("ops", OPS))
        .section(&format!(
            "{RULES}\n[[rule]]\nname = \"inner\"\neffect = \"deny\"\nresources = [\"*/hidden*\"]"
        ));
    let daemon = Daemon::start(&config);
    let mut client = daemon.connect();
    let wanted =
        ["files+file:///public/a", "files+file:///private", "weather+w:1", "files+file:///public/hidden"];
    client.write(&with_key(listen(&wanted), CI).bytes());
    assert_eq!(client.head().status, 200);
    let acknowledged = next_message(&mut client)["params"]["notifications"]["resourceSubscriptions"].clone();
    assert_eq!(acknowledged, serde_json::json!(["files+file:///public/a"]));
    let asked = |uri: &str| {
        let all = [&files, &weather].map(|server| server.upstream.received_of("subscriptions/listen"));
        all.iter().flatten().any(|request| String::from_utf8_lossy(&request.body).contains(uri))
    };
    assert!(asked("file:///public/a") && !asked("file:///private") && !asked("w:1") && !asked("hidden"));
    let stream = files.stream_with("resourceSubscriptions", "file:///public/a");
    stream.update("file:///private");
    stream.update("file:///public/a/hidden");
    stream.update("file:///public/a");
    assert_eq!(next_message(&mut client)["params"]["uri"], "files+file:///public/a");
}

#[test]
fn a_session_hears_nothing_of_what_is_hidden() {
    let server = Legacy::new(files()).with_streams();
    let up = server.start();
    let config = Config::new()
        .upstream("files", up.address, "eras = [\"legacy\"]")
        .section(&api_key("ci", CI))
        .section(RULES);
    let daemon = Daemon::start(&config);
    let response = daemon.send(&with_key(initialize("0", "2025-11-25"), CI));
    let session = response.header("mcp-session-id").expect("a session").to_owned();
    let mut client = daemon.connect();
    let get = in_session(&session, post(""))
        .method("GET")
        .without("Content-Type")
        .set("Accept", "text/event-stream");
    client.write(&with_key(get, CI).bytes());
    assert_eq!(client.head().status, 200);
    let call = legacy("1", "tools/call", r#"{"name":"read","arguments":{}}"#);
    daemon.send(&with_key(in_session(&session, call), CI)).assert_ok();
    let stream = server.stream(1);
    for uri in ["file:///private", "file:///secret/b", "file:///public/../private", "file:///public/a"] {
        let note = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
        );
        stream.event(&note);
    }
    let heard = loop {
        let message = next_message(&mut client);
        if message["method"] == "notifications/resources/updated" {
            break message;
        }
    };
    assert_eq!(heard["params"]["uri"], "file:///public/a");
}

fn annotated(name: &str, annotations: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#)
}

#[test]
fn annotations_count_as_the_upstream_last_listed_them() {
    let tools = std::sync::Arc::new(std::sync::Mutex::new(vec![
        annotated("look", r#"{"readOnlyHint":true}"#),
        annotated("act", r#"{"readOnlyHint":false}"#),
        annotated("unsaid", "{}"),
        annotated("twice", r#"{"readOnlyHint":true,"readOnlyHint":false}"#),
    ]));
    let offered = std::sync::Arc::clone(&tools);
    let upstream = Upstream::start(move |request| {
        let offer = Offer { tools: offered.lock().unwrap().clone(), ..Offer::default() };
        match offer.result(request) {
            Some(result) => Reply::result(request, &result.replace("\"ttlMs\":60000", "\"ttlMs\":0")),
            None => Reply::error(request, "404 Not Found", -32601, "no such method here"),
        }
    });
    let rule = "[[rule]]\nname = \"lookers\"\neffect = \"allow\"\nannotations = { readOnlyHint = true }";
    let daemon = Daemon::start(&Config::transparent(&upstream).section(rule));
    let listed = || names(&daemon.send(&list("1", "tools/list")).json(), "tools", "name");
    // Whether it is called before or after the first list, nothing else comes through.
    for name in ["act", "unsaid", "twice", "never_listed", "LOOK"] {
        daemon.send(&call("7", name)).assert_error(200, -32602, Some("7"));
    }
    daemon.send(&call("8", "look")).assert_ok();
    assert_eq!(listed(), ["look"]);
    assert_eq!(upstream.received_of("tools/call").len(), 1);
    // It changes its mind, and gives a tool another name.
    *tools.lock().unwrap() =
        vec![annotated("look", "{}"), annotated("act", r#"{"readOnlyHint":true}"#), annotated("look2", "{}")];
    assert_eq!(listed(), ["act"]);
    for name in ["look", "look2"] {
        daemon.send(&call("7", name)).assert_error(200, -32602, Some("7"));
    }
    daemon.send(&call("9", "act")).assert_ok();
    let kept_out =
        daemon.send(&modern("vendor/do", None, body("7", "vendor/do", &format!(r#"{{"_meta":{META}}}"#))));
    kept_out.assert_error(404, -32601, Some("7"));
    assert_eq!(upstream.received_of("vendor/do").len(), 0);
}

#[test]
fn who_may_use_everything_gets_it_untouched() {
    let files = Upstream::offering(files());
    let plain = Daemon::start(&Config::transparent(&files));
    let ruled = Daemon::start(
        &Config::transparent(&files)
            .section(&api_key("ci", CI))
            .section(&api_key("ops", OPS))
            .section("[[rule]]\nname = \"all\"\neffect = \"allow\"\nprincipals = [\"ops\"]"),
    );
    let strip = |response: Response| {
        let text = response.text();
        let (before, rest) = text.split_once("\"ttlMs\":").expect("a ttl");
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        format!("{before}{}", rest.replace("\"cacheScope\":\"public\"", "\"cacheScope\":\"private\""))
    };
    for method in ["tools/list", "resources/list", "server/discover"] {
        let expected = strip(plain.send(&list("1", method)));
        assert_eq!(strip(ruled.send(&with_key(list("1", method), OPS))), expected, "{method}");
    }
    let vendor = || modern("vendor/do", None, body("7", "vendor/do", &format!(r#"{{"_meta":{META}}}"#)));
    ruled.send(&with_key(vendor(), OPS));
    assert_eq!(files.received_of("vendor/do").len(), 1, "extensions pass");
    ruled.send(&with_key(vendor(), CI)).assert_error(404, -32601, Some("7"));
    assert_eq!(files.received_of("vendor/do").len(), 1);
}

#[test]
fn decisions_are_logged_with_their_rule() {
    let bed = Bed::start(|config| config.section("[log]\nformat = \"json\"\naudit = \"all\""));
    bed.send(OPS, call("7", "files__secret"));
    bed.send(CI, call("7", "weather__forecast"));
    bed.send(CI, call("7", "files__read"));
    for (name, rule, outcome, id) in [
        ("files__secret", "no-secrets", "refused", "key:ops"),
        ("weather__forecast", "-", "refused", "key:ci"),
        ("files__read", "readers", "allowed", "key:ci"),
    ] {
        let is_it = |line: &str| {
            let Ok(line) = serde_json::from_str::<Value>(line) else { return false };
            let field = |key: &str| line["fields"][key].as_str().unwrap_or_default().to_owned();
            line["target"] == "audit"
                && (field("name"), field("rule"), field("outcome"))
                    == (name.into(), rule.into(), outcome.into())
                && (field("id"), field("endpoint"), field("kind"))
                    == (id.into(), "/mcp".into(), "tool".into())
        };
        bed.daemon.wait_for_log(0, name, is_it);
    }
}

#[test]
fn only_refusals_are_logged_unless_more_is_asked_for() {
    let bed = Bed::start(|config| config);
    bed.send(CI, call("7", "files__read")).assert_ok();
    bed.send(CI, call("7", "files__write"));
    bed.daemon.wait_for_log(0, "the refusal", |line| line.contains("audit") && line.contains("files__write"));
    assert!(!bed.daemon.log().iter().any(|line| line.contains("outcome=\"allowed\"")));
}

#[test]
fn rules_change_with_a_reload() {
    let files = Upstream::offering(files());
    let config = |rules: &str| {
        Config::new().upstream("files", files.address, "").section(&api_key("ci", CI)).section(rules)
    };
    let daemon = Daemon::start(&config(""));
    daemon.send(&with_key(call("1", "write"), CI)).assert_ok();
    let mut client = daemon.connect();
    client.write(&with_key(listen(&["file:///secret/b"]), CI).bytes());
    assert_eq!(client.head().status, 200);
    next_message(&mut client);
    daemon.reload(&config(RULES));
    eventually("the rules hold", || {
        (daemon.send(&with_key(call("1", "write"), CI)).json()["error"]["code"] == -32602).then_some(())
    });
    assert!(next_message(&mut client)["result"].is_object(), "who listened by other rules listens again");
    daemon.send(&with_key(call("2", "read"), CI)).assert_ok();
    daemon.reload(&config(""));
    eventually("they hold no more", || {
        (daemon.send(&with_key(call("1", "write"), CI)).status == 200).then_some(())
    });
}

#[test]
fn what_somebody_may_do_is_shown_offline() {
    let nowhere = ([127, 0, 0, 1], 1).into();
    let config = Config::new()
        .upstream("files", nowhere, "prefix = \"fs\"")
        .upstream("weather", nowhere, "")
        .endpoint("aliases = { look = \"files__read\" }")
        .section(&api_key("ci", CI))
        .section(RULES)
        .section(
            "[[rule]]\nname = \"scoped\"\neffect = \"allow\"\nscopes = [\"w\"]\nupstreams = [\"weather\"]",
        )
        .to_string();
    for (arguments, code, said) in [
        (&["--as", "ci"][..], 0, "weather: nothing"),
        (&["--as", "ci"], 0, "files: some, by these rules"),
        (&["--as", "ci", "--tool", "fs__read"], 0, "tool read of files: yes, by readers"),
        (&["--as", "ci", "--tool", "look"], 0, "tool read of files: yes, by readers"),
        (
            &["--as", "ci", "--tool", "read"],
            0,
            "tool read of weather: no, without one of the scopes of scoped: w",
        ),
        (&["--as", "ci", "--scope", "w", "--tool", "weather__x"], 0, "tool x of weather: yes, by scoped"),
        (&["--as", "ci", "--tool", "kept_secret"], 1, "tool kept_secret of files: no, by no-secrets"),
        (&["--as", "eve", "--tool", "fs__read"], 1, "no, as no rule allows it"),
        (&["--as", "ci", "--resource", "fs+file:///public/../x"], 1, "no, as no rule allows it"),
        (&["--as", "anonymous", "--prompt", "fs__greet"], 1, "no, as no rule allows it"),
        (&["--as", "key:ops"], 0, "allow everything (operators)"),
        (&["--as", "ci", "--endpoint", "/nowhere"], 2, ""),
        (&["--tool", "read"], 2, ""),
        (&["--as", "ci", "--claim", "team"], 2, ""),
    ] {
        let (output, _) = trunkline(&[&["check"], arguments].concat(), Some(&config));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

#[test]
fn a_token_is_told_which_scope_would_help() {
    let (files, folder, key) = (Upstream::offering(files()), Folder::new(), SigningKey::ec("one"));
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, jwks(&[&key])).unwrap();
    let rule = "[[rule]]\nname = \"scoped\"\neffect = \"allow\"\nscopes = [\"a:b\", \"c\"]\ntools = [\"write\"]\n\
                [[rule]]\nname = \"groups\"\neffect = \"allow\"\ngroups = [\"dev\"]\ntools = [\"read\"]";
    let config = Config::transparent(&files)
        .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]"))
        .section(&jwt(&format!("jwks_file = \"{}\"", path.display())))
        .section(&api_key("ci", CI))
        .section(rule);
    let daemon = Daemon::start(&config);
    let token = |more: Value| key.token(&claims("ann", &more));
    let narrow = token(serde_json::json!({ "scope": "x" }));
    let response = daemon.send(&with_key(call("7", "write"), &narrow));
    assert_eq!(response.status, 403, "{}", response.text());
    let challenge = response.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains("insufficient_scope") && challenge.contains("scope=\"a:b c\""), "{challenge}");
    for (name, credential) in [("read", &*narrow), ("kill", &narrow), ("write", CI)] {
        daemon.send(&with_key(call("7", name), credential)).assert_error(200, -32602, Some("7"));
    }
    assert_eq!(files.received_of("tools/call").len(), 0);
    let listed =
        |token: &str| names(&daemon.send(&with_key(list("1", "tools/list"), token)).json(), "tools", "name");
    assert_eq!(listed(&narrow), Vec::<String>::new());
    let wide = token(serde_json::json!({ "scope": "c", "groups": ["dev"] }));
    assert_eq!(listed(&wide), ["read", "write"]);
    daemon.send(&with_key(call("8", "write"), &wide)).assert_ok();
}

#[test]
fn a_new_alias_is_judged_from_its_first_call_on() {
    let rule = "[[rule]]\nname = \"no-hush\"\neffect = \"deny\"\ntools = [\"hush-*\"]";
    let alias =
        |config: Config, alias: &str| config.endpoint(&format!("aliases = {{ {alias} = \"files__read\" }}"));
    let bed = Bed::with_rules(rule, |config| alias(config, "look"));
    // What may be used is found out of beforehand a moment after somebody asked.
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(700) {
        bed.send(CI, call("1", "look")).assert_ok();
    }
    let config = Config::new()
        .upstream("files", bed.files.address, BOTH)
        .upstream("weather", bed.weather.address, BOTH)
        .section(&api_key("ci", CI))
        .section(&api_key("ops", OPS))
        .section(rule);
    bed.daemon.reload(&alias(config, "hush-it"));
    // The old alias leads nowhere as soon as the new one is there.
    eventually("the alias is there", || {
        let response = bed.send(CI, call("2", "hush-it"));
        assert!(!response.text().contains("\"result\""), "{}", response.text());
        (bed.send(CI, call("3", "look")).json()["error"].is_object()).then_some(())
    });
    for name in ["hush-it", "files__read", "read"] {
        bed.assert_unknown(name, CI, call("4", name));
    }
}
