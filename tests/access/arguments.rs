//! Rules and limits that go by what a tool is called with: in both eras and over every transport, whatever headers say.

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Connection, Daemon, Http2, Legacy, META, Offer, Request, Response, Upstream, api_key,
    body, in_session, initialize, legacy, list, modern, post, trunkline, with_key,
};

const CI: &str = "ci-key-0123456789abcdefghijklmnopqr";
const DEV: &str = "dev-key-0123456789abcdefghijklmnopq";

/// `ci` may deploy to staging alone, and nobody deletes what is not known to be a draft.
const RULES: &str = r#"
[[rule]]
name = "staging"
effect = "allow"
tools = ["deploy"]
arguments = { environment = "staging", target = { replicas = [1, 2.5], dry = true } }
missing_arguments = "refuse"

[[rule]]
name = "reading"
effect = "allow"
tools = ["read", "delete"]

[[rule]]
name = "no-deletion"
effect = "deny"
tools = ["delete"]
arguments = { kind = ["page", "user"] }
"#;

/// The transports and eras of a call.
const WAYS: [&str; 8] = ["modern", "HTTP/2", "bridged", "child", "legacy", "task", "batch", "HTTP+SSE"];

struct Bed {
    up: Upstream,
    old: Upstream,
    child: Child,
    daemon: Daemon,
}

impl Bed {
    fn start(sections: &str) -> Self {
        let offer = || Offer::tools(&["deploy", "read", "delete"]);
        let up = Legacy::new(offer()).and_modern().start();
        let old = Legacy::new(offer()).start();
        let child = Child::new(&["modern"]);
        let config = Config::new()
            .upstream("up", up.address, "eras = [\"legacy\", \"modern\"]")
            .endpoint("sse = true")
            .section(&format!(
                "[upstream.old]\nurl = \"http://{}/mcp\"\neras = [\"legacy\"]\n[[endpoint]]\npath = \"/old\"\n\
                 upstreams = [\"old\"]\n[[endpoint]]\npath = \"/child\"\nupstreams = [\"child\"]\n\
                 [upstream.child]\n{}",
                old.address,
                child.keys("eras = [\"modern\"]")
            ))
            .section(&api_key("ci", CI))
            .section(&api_key("dev", DEV))
            .section(sections);
        let daemon = Daemon::start(&config);
        Self { up, old, child, daemon }
    }

    fn calls(&self) -> usize {
        let over_http = [&self.up, &self.old].map(|server| server.received_of("tools/call").len());
        over_http.iter().sum::<usize>() + self.child.received("tools/call").len()
    }

    /// What a call is answered: `None` for a result, else the code of the error.
    #[track_caller]
    fn call(&self, way: &str, key: &str, (tool, arguments): (&str, &str)) -> Option<i64> {
        let before = self.calls();
        let message = match way {
            "modern" => self.modern("/mcp", key, (tool, arguments)),
            "HTTP/2" => {
                let request = modern_call("/mcp", key, (tool, arguments));
                message(&Http2::connect(self.daemon.address()).send(&request))
            }
            "bridged" => self.modern("/old", key, (tool, arguments)),
            "child" => self.modern("/child", key, (tool, arguments)),
            "HTTP+SSE" => self.over_sse(key, (tool, arguments)),
            _ => self.in_session(way, key, (tool, arguments)),
        };
        let code = message["error"]["code"].as_i64();
        assert_eq!(message["result"].is_object(), code.is_none(), "{way}: {message}");
        assert_eq!(self.calls() - before, usize::from(code.is_none()), "{way}: {message}");
        code
    }

    fn modern(&self, path: &str, key: &str, call: (&str, &str)) -> Value {
        message(&self.daemon.send(&modern_call(path, key, call)))
    }

    fn in_session(&self, way: &str, key: &str, (tool, arguments): (&str, &str)) -> Value {
        let version = if way == "batch" { "2025-03-26" } else { "2025-11-25" };
        let opened = self.daemon.send(&with_key(initialize("0", version), key));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        let task = if way == "task" { r#","task":{"ttl":60000}"# } else { "" };
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}{task}}}"#);
        let request = if way == "batch" {
            let batch = post(format!("[{}]", body("7", "tools/call", &params)));
            in_session(&session, batch).without("MCP-Protocol-Version")
        } else {
            in_session(&session, legacy("7", "tools/call", &params))
        };
        message(&self.daemon.send(&with_key(request, key)))
    }

    fn over_sse(&self, key: &str, (tool, arguments): (&str, &str)) -> Value {
        let mut stream = self.daemon.connect();
        let get = post("").method("GET").without("content-type").set("Accept", "text/event-stream");
        stream.write(&with_key(get, key).bytes());
        assert_eq!(stream.head().status, 200);
        let target = event(&mut stream, "endpoint");
        let send = |message: String| {
            let request = with_key(post(message).target(&target).without("accept"), key);
            assert_eq!(self.daemon.send(&request).status, 202);
        };
        send(String::from_utf8(initialize("0", "2024-11-05").body).unwrap());
        event(&mut stream, "message");
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        send(body("7", "tools/call", &params));
        serde_json::from_str(&event(&mut stream, "message")).expect("a message")
    }
}

fn modern_call(path: &str, key: &str, (tool, arguments): (&str, &str)) -> Request {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{META}}}"#);
    let request = modern("tools/call", Some(tool), body("7", "tools/call", &params));
    with_key(request.target(path), key)
}

/// The one message of a response, which may be a stream or a batch.
#[track_caller]
fn message(response: &Response) -> Value {
    let text = response.text();
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
    let mut message: Value =
        serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {response:?}"));
    if message.is_array() { message[0].take() } else { message }
}

/// The data of the next event, which must be of this type.
fn event(stream: &mut Connection, kind: &str) -> String {
    let event = stream.event().expect("an event");
    let data = event.strip_prefix(&format!("event: {kind}\ndata: ")).and_then(|it| it.strip_suffix("\n\n"));
    data.unwrap_or_else(|| panic!("not {kind}: {event:?}")).to_owned()
}

#[test]
fn a_rule_lets_pass_the_arguments_that_it_names() {
    let bed = Bed::start(RULES);
    let fits = r#"{"environment":"staging","target":{"replicas":2.50,"dry":true},"more":[1]}"#;
    for way in WAYS {
        for (call, expected) in [
            (("read", "{}"), None),
            (("deploy", fits), None),
            (("deploy", &*fits.replace("2.50", "1e0")), None),
            (("deploy", &fits.replace("staging", "st\\u0061ging")), None),
            // Another value, another type, none, and what stands elsewhere.
            (("deploy", &fits.replace("staging", "production")), Some(403)),
            (("deploy", &fits.replace("\"staging\"", "true")), Some(403)),
            (("deploy", &fits.replace("2.50", "\"1\"")), Some(403)),
            (("deploy", &fits.replace("true", "\"true\"")), Some(403)),
            (("deploy", &fits.replace("true", "null")), Some(403)),
            (("deploy", &fits.replace("\"staging\"", "[\"staging\"]")), Some(403)),
            (("deploy", &fits.replace("target", "Target")), Some(-32602)),
            (("deploy", r#"{"target.dry":true,"environment":"staging"}"#), Some(403)),
            (("deploy", "{}"), Some(403)),
            (("deploy", &fits.replace("\"more\"", "\"environment\"")), Some(-32602)),
            (("deploy", &fits.replace("\"more\"", "\"Environment\"")), Some(-32602)),
            (("deploy", &fits.replace("\"more\"", "\"target\"")), Some(-32602)),
            // Letters that a server may take for others (NFKC): every spelling counts, whatever it says.
            (("deploy", &fits.replace("\"more\"", "\"ｅnvironment\"")), Some(-32602)),
            (("deploy", &fits.replace("\"environment\"", "\"ｅnvironment\"")), Some(-32602)),
            (("deploy", &fits.replace("\"more\"", "\"\\uff34arget\"")), Some(-32602)),
            (("deploy", &fits.replace("dry", "𝐝ry")), Some(-32602)),
            (("deploy", &fits.replace("\"more\"", "\"möre\"")), None),
            (("delete", r#"{"kind":"draft","ｋind":"page"}"#), Some(-32602)),
            (("delete", r#"{"kind":"draft","kin\u200bd":"page"}"#), Some(-32602)),
            // What a rule that denies does not know it denies, too.
            (("delete", r#"{"kind":"draft"}"#), None),
            (("delete", r#"{"kind":"page"}"#), Some(403)),
            (("delete", r#"{"kind":7}"#), Some(403)),
            (("delete", "{}"), Some(403)),
        ] {
            // Batches and the bridge read the same bytes; the refusal in them is the same.
            assert_eq!(bed.call(way, CI, call), expected, "{way}: {call:?}");
        }
    }
}

#[test]
fn a_refusal_names_the_rule_and_the_tool_is_listed_all_the_same() {
    let bed = Bed::start(RULES);
    let listed = bed.daemon.send(&with_key(list("1", "tools/list"), CI)).json();
    let names: Vec<_> = listed["result"]["tools"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(json!(names), json!(["deploy", "read", "delete"]));
    let refused = bed.modern("/mcp", CI, ("delete", r#"{"kind":"user"}"#));
    let said = "these credentials do not allow this call with these arguments: rule `no-deletion`";
    assert_eq!(refused["error"]["message"], said);
    bed.daemon.wait_for_log(0, "the refusal", |line| {
        line.contains("audit")
            && line.contains("outcome=\"refused\"")
            && line.contains("rule=\"no-deletion\"")
    });
    // Headers say nothing here: what they would is not the tool's.
    let params = format!(r#"{{"name":"deploy","arguments":{{}},"_meta":{META}}}"#);
    let request = modern("tools/call", Some("deploy"), body("7", "tools/call", &params))
        .with("Mcp-Param-Environment", "staging");
    let refused = bed.daemon.send(&with_key(request, CI));
    // No other credential would help, and hosts sign in again at a 403.
    refused.assert_error(200, 403, Some("7"));
    assert_eq!(refused.header("www-authenticate"), None);
}

#[test]
fn a_rule_that_says_so_does_without_an_argument() {
    let rules = RULES.replace("\"refuse\"", "\"allow\"").replace(
        "arguments = { kind = [\"page\", \"user\"] }",
        "arguments = { kind = [\"page\", \"user\"] }\nmissing_arguments = \"allow\"",
    );
    let bed = Bed::start(&rules);
    for (call, expected) in [
        (("deploy", "{}"), None),
        (("deploy", r#"{"environment":7,"target":[]}"#), None),
        (("deploy", r#"{"environment":"production"}"#), Some(403)),
        (("deploy", r#"{"target":{"dry":false}}"#), Some(403)),
        (("delete", "{}"), None),
        (("delete", r#"{"kind":true}"#), None),
        (("delete", r#"{"kind":"user"}"#), Some(403)),
    ] {
        assert_eq!(bed.call("modern", CI, call), expected, "{call:?}");
    }
}

const LIMITS: &str = r#"
[[limit]]
name = "own"
by = ["principal"]
calls = 1000
period = "1h"
[[limit]]
name = "customer"
by = ["argument:customer.id"]
calls = 2
period = "1h"
tools = ["deploy"]
"#;

#[test]
fn calls_are_counted_by_an_argument_however_they_come() {
    for way in WAYS {
        let bed = Bed::start(LIMITS);
        let of = |id: &str| format!(r#"{{"customer":{{"id":{id}}}}}"#);
        for (key, id, expected) in [
            (CI, "\"a\"", None),
            (CI, "\"\\u0061\"", None),
            (CI, "\"a\"", Some(429)),
            (CI, "1", None),
            (CI, "1.0", None),
            (CI, "1e0", Some(429)),
            // Most servers read it as the same number.
            (CI, "1.00000000000000000001", Some(429)),
            (CI, "\"1\"", None),
            (DEV, "\"a\"", None),
            (CI, "[1]", Some(-32602)),
            (CI, "null", Some(-32602)),
        ] {
            assert_eq!(bed.call(way, key, ("deploy", &of(id))), expected, "{way}: {id}");
        }
        let twice = r#"{"customer":{"id":1},"customer":{"id":2}}"#;
        assert_eq!(bed.call(way, DEV, ("deploy", twice)), Some(-32602), "{way}");
        assert_eq!(bed.call(way, DEV, ("deploy", "{}")), Some(-32602), "{way}");
        // Other tools have no such argument, and are not counted by it.
        assert_eq!(bed.call(way, DEV, ("read", "{}")), None, "{way}");
    }
}

#[test]
fn calls_without_the_argument_count_together_where_the_limit_says_so() {
    let bed = Bed::start(&format!("{LIMITS}missing_arguments = \"allow\""));
    let outcomes = ["{}", r#"{"customer":7}"#, "{}", r#"{"customer":{"id":7}}"#]
        .map(|arguments| bed.call("modern", CI, ("deploy", arguments)));
    assert_eq!(outcomes, [None, None, Some(429), None]);
}

#[test]
fn a_message_of_many_bytes_is_read_as_a_short_one() {
    let bed = Bed::start(RULES);
    let filler = "x".repeat(400_000);
    let with = |environment: &str| {
        format!(
            r#"{{"filler":"{filler}","environment":"{environment}","target":{{"replicas":1,"dry":true}}}}"#
        )
    };
    assert_eq!(bed.call("modern", CI, ("deploy", &with("staging"))), None);
    assert_eq!(bed.call("modern", CI, ("deploy", &with("production"))), Some(403));
}

#[test]
fn what_arguments_decide_is_shown_offline() {
    let config = Config::new()
        .upstream("up", ([127, 0, 0, 1], 1).into(), "")
        .section(&api_key("ci", CI))
        .section(RULES)
        .to_string();
    let (output, _) = trunkline(&["check", "--as", "ci", "--tool", "deploy"], Some(&config));
    let text = String::from_utf8(output.stdout).unwrap();
    let rule = "argument environment = \"staging\", argument target.dry = true, \
                argument target.replicas = 1 or 2.5 (staging)";
    assert!(text.contains(rule), "{text}");
    assert!(text.contains("yes, by staging, if its arguments are as the rules want them"), "{text}");
}

#[test]
fn a_call_that_is_refused_by_its_arguments_is_not_counted() {
    let limit = "[[limit]]\nname = \"tool\"\nby = [\"principal\", \"argument:environment\"]\ncalls = 1\nperiod = \"1h\"\n\
                 [[limit]]\nname = \"own\"\nby = [\"principal\"]\ncalls = 1000\nperiod = \"1h\"";
    let bed = Bed::start(&format!("{RULES}{limit}"));
    let fits = r#"{"environment":"staging","target":{"replicas":1,"dry":true}}"#;
    let refused = fits.replace("true", "false");
    for _ in 0..3 {
        assert_eq!(bed.call("modern", CI, ("deploy", &refused)), Some(403));
    }
    assert_eq!(bed.call("modern", CI, ("deploy", fits)), None);
    assert_eq!(bed.call("modern", CI, ("deploy", fits)), Some(429));
}

#[test]
fn what_a_server_may_take_for_a_denied_number_is_denied() {
    let rules = r#"
[[rule]]
name = "no-hundred"
effect = "deny"
tools = ["delete"]
arguments = { amount = 100 }
[[rule]]
name = "hundred"
effect = "allow"
tools = ["deploy"]
arguments = { amount = 100 }
[[rule]]
name = "rest"
effect = "allow"
tools = ["delete", "read"]
"#;
    let bed = Bed::start(rules);
    for (amount, denied, allowed) in [
        ("100", Some(403), None),
        ("1e2", Some(403), None),
        ("100.00000000000000001", Some(403), Some(403)),
        ("99.99999999999999999999", Some(403), Some(403)),
        ("100.1", None, Some(403)),
    ] {
        let arguments = format!(r#"{{"amount":{amount}}}"#);
        assert_eq!(bed.call("modern", CI, ("delete", &arguments)), denied, "{amount}");
        assert_eq!(bed.call("modern", CI, ("deploy", &arguments)), allowed, "{amount}");
    }
}

#[test]
fn arguments_of_other_tools_are_nobodys_business() {
    let bed = Bed::start(&format!("{RULES}{LIMITS}"));
    // These are ambiguous to the rules and limits of other tools.
    for arguments in
        [r#"{"Environment":1,"environment":2}"#, r#"{"kind":1,"kind":2}"#, r#"{"customer":{"id":1,"ID":2}}"#]
    {
        for way in WAYS {
            assert_eq!(bed.call(way, CI, ("read", arguments)), None, "{way}: {arguments}");
        }
    }
    assert_eq!(bed.call("modern", CI, ("delete", r#"{"kind":"draft","Environment":1}"#)), None);
}

#[test]
fn what_rules_refuse_by_arguments_takes_nothing_from_limits_of_other_kinds() {
    let limit = "[[limit]]\nname = \"tool\"\nby = [\"principal\", \"tool\"]\ncalls = 1\nperiod = \"1h\"\n";
    let bed = Bed::start(&format!("{RULES}{limit}"));
    for _ in 0..3 {
        assert_eq!(bed.call("modern", CI, ("delete", r#"{"kind":"page"}"#)), Some(403));
    }
    assert_eq!(bed.call("modern", CI, ("delete", r#"{"kind":"draft"}"#)), None);
    assert_eq!(bed.call("modern", CI, ("delete", r#"{"kind":"draft"}"#)), Some(429));
}
