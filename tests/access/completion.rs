//! `completion/complete` of resource templates: who may not use a resource is not told that it is there.

use serde_json::{Value, json};

use crate::harness::{
    Config, Daemon, Legacy, META, Offer, Received, Reply, Request, Upstream, api_key, body, in_session,
    legacy, literal, modern, open_session,
};

const TEMPLATE: &str = "file:///{dir}/{name}";
const KEY: &str = "secret";

/// A server that completes the template with these values, which is all of 105.
fn completing(values: &'static [&'static str], is_stream: bool) -> Upstream {
    let template = format!(r#"{{"uriTemplate":"{TEMPLATE}","name":"t"}}"#);
    let offer = Offer { templates: vec![template], ..Offer::tools(&["a"]).with_resources(&["file:///a"]) };
    Upstream::start(move |request: &Received| {
        if request.method() != "completion/complete" {
            return offer.answer(request);
        }
        let result = json!({
            "completion": {"values": values, "total": 105, "hasMore": true}, "resultType": "complete",
        });
        if is_stream {
            let id = literal(&request.body, &["id"]);
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            return Reply::stream().event(&text).finish();
        }
        Reply::result(request, &result.to_string())
    })
}

fn params(template: &str, variable: &str, context: &str) -> String {
    format!(
        r#"{{"ref":{{"type":"ref/resource","uri":"{template}"}},"argument":{{"name":"{variable}","value":""}}{context},"_meta":{META}}}"#
    )
}

fn complete(template: &str, variable: &str, context: &str) -> Request {
    let params = params(template, variable, context);
    let request = modern("completion/complete", None, body("7", "completion/complete", &params));
    request.with("Authorization", format!("Bearer {KEY}"))
}

/// The completion in a reply of either kind.
fn completion(text: &str) -> Value {
    let json =
        text.lines().map(|line| line.trim_start_matches("data:").trim()).find(|line| line.starts_with('{'));
    let json: Value = serde_json::from_str(json.unwrap_or_else(|| panic!("no JSON: {text}"))).expect("JSON");
    json["result"]["completion"].clone()
}

fn deny(globs: &str) -> String {
    format!("[[rule]]\nname = \"r\"\neffect = \"deny\"\nresources = [{globs}]")
}

#[test]
fn values_that_lead_to_what_is_denied_are_not_told() {
    const VALUES: &[&str] = &["open", "key", "Key", "../key", "key?x", "k\u{e9}y"];
    let in_secret = r#","context":{"arguments":{"dir":"secret"}}"#;
    let in_public = r#","context":{"arguments":{"dir":"public"}}"#;
    let key_alone: &[&str] = &["open", "k\u{e9}y"];
    for (rules, endpoint, context, expected) in [
        (deny("\"file:///secret/key\""), "", in_secret, key_alone),
        (deny("\"file:///secret/key\""), "", in_public, &["open", "key", "Key", "key?x", "k\u{e9}y"]),
        (deny("\"file:///secret/*\""), "", in_secret, &[]),
        (deny("\"file:///*/key\""), "", "", key_alone),
        (String::new(), "deny = [\"*file:///secret/key\"]", in_secret, key_alone),
        (
            String::new(),
            "allow = [\"*file:///?dir?/?name?\", \"*file:///secret/open\"]",
            in_secret,
            &["open"],
        ),
    ] {
        for (is_stream, is_alone) in [(false, true), (true, false)] {
            let upstream = completing(VALUES, is_stream);
            let other = Upstream::with_tools(&["b"]);
            let mut config = Config::new().upstream("up", upstream.address, "").endpoint(endpoint);
            config = config.section(&rules).section(&api_key("ci", KEY));
            let mut template = TEMPLATE.to_owned();
            if !is_alone {
                config = config.upstream("other", other.address, "");
                template.insert_str(0, "up+");
            }
            let daemon = Daemon::start(&config);
            let response = daemon.send(&complete(&template, "name", context));
            assert_eq!(response.status, 200, "{}", response.text());
            assert_eq!(completion(&response.text()), json!({"values": expected}), "{config} {context}");
        }
    }
}

#[test]
fn a_session_is_told_no_more() {
    let upstream = Legacy::new(Offer {
        templates: vec![format!(r#"{{"uriTemplate":"{TEMPLATE}","name":"t"}}"#)],
        ..Offer::tools(&["a"])
    });
    let upstream = upstream.start();
    let rules = deny("\"file:///x/x\", \"file:///x\"");
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]").section(&rules);
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), "2025-11-25");
    for (dir, expected) in [("x", json!([])), ("y", json!(["x"]))] {
        let context = format!(r#","context":{{"arguments":{{"dir":"{dir}"}}}}"#);
        let params = params(TEMPLATE, "name", &context).replace(META, "{}");
        let response = daemon.send(&in_session(&session, legacy("7", "completion/complete", &params)));
        response.assert_ok();
        assert_eq!(completion(&response.text()), json!({"values": expected}), "{dir}");
    }
}

#[test]
fn who_may_use_everything_is_told_everything() {
    let upstream = completing(&["key"], false);
    let rules = "[[rule]]\nname = \"r\"\neffect = \"allow\"\nprincipals = [\"ci\"]";
    let config = Config::new().upstream("up", upstream.address, "");
    for config in [config.clone(), config.section(rules).section(&api_key("ci", KEY))] {
        let daemon = Daemon::start(&config);
        let response = daemon.send(&complete(TEMPLATE, "name", ""));
        response.assert_ok();
        let expected = json!({"values": ["key"], "total": 105, "hasMore": true});
        assert_eq!(completion(&response.text()), expected, "{config}");
    }
}

#[test]
fn what_readers_take_differently_is_not_told() {
    let results = [
        r#"{"completion":{"values":["open"],"values":["key"]}}"#,
        r#"{"completion":{"values":["open"]},"Completion":{"values":["key"]}}"#,
        r#"{"completion":{"values":{"key":1},"Total":5}}"#,
        r#"{"completion":{"values":[{"key":1},["key"],7]}}"#,
    ];
    for result in results {
        let offer = Offer::tools(&["a"]);
        let upstream = Upstream::start(move |request| match request.method().as_str() {
            "completion/complete" => Reply::result(request, result),
            _ => offer.answer(request),
        });
        let config = Config::new().upstream("up", upstream.address, "").section(&deny("\"file:///*/key\""));
        let daemon = Daemon::start(&config);
        let response = daemon.send(&complete(TEMPLATE, "name", ""));
        response.assert_ok();
        assert!(!response.text().contains("key"), "{result} {}", response.text());
        // Nor what is asked in a way that the server may take differently.
        let twice = complete(TEMPLATE, "dir", "")
            .replacing(r#""argument":{"name":"dir""#, r#""argument":{"name":"dir","name":"name""#);
        daemon.send(&twice).assert_error(400, -32602, Some("7"));
    }
}
