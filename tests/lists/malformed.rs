//! Entries of lists for which clients would refuse the whole list: who gets the others, and what is told of these.

use serde_json::Value;

use crate::harness::{
    Config, Daemon, LEGACY_VERSION, Legacy, Offer, Reply, Request, Response, Upstream, call, eventually,
    in_session, legacy, legacy_call, list, open_session, tool_names,
};

const FINE: &str = r#"{"name":"fine","inputSchema":{"type":"object"}}"#;

/// Entries that the schemas of the official SDKs refuse, by the list that they are in.
fn malformed(method: &str) -> Vec<String> {
    let own = match method {
        "tools/list" => r#""name":"bad","inputSchema":{"type":"object"}"#,
        "prompts/list" => r#""name":"bad""#,
        "resources/list" => r#""name":"bad","uri":"file:///bad""#,
        _ => r#""name":"bad","uriTemplate":"file:///{bad}""#,
    };
    let mut entries = vec!["null".to_owned(), "\"bad\"".to_owned(), "[]".to_owned(), "{}".to_owned()];
    let long_number = format!(r#""own":{{"count":-{}}}"#, "9".repeat(4301));
    let common = [
        &*long_number,
        r#""description":"\ud800""#,
        r#""own":["\udc00\ud800"]"#,
        r#""title":5"#,
        r#""description":null"#,
        r#""icons":[{"mimeType":"image/png"}]"#,
        r#""_meta":null"#,
    ];
    let special: &[&str] = match method {
        "tools/list" => {
            &[r#""annotations":null"#, r#""outputSchema":null"#, r#""annotations":{"readOnlyHint":"yes"}"#]
        }
        "prompts/list" => &[r#""arguments":null"#, r#""arguments":[{"required":true}]"#],
        _ => &[
            r#""mimeType":null"#,
            r#""annotations":{"priority":7}"#,
            r#""annotations":{"audience":["nobody"]}"#,
            r#""annotations":{"lastModified":"yesterday"}"#,
        ],
    };
    entries.extend(common.iter().chain(special).map(|member| format!("{{{own},{member}}}")));
    entries.extend(match method {
        "tools/list" => vec![
            r#"{"name":"bad"}"#.to_owned(),
            r#"{"name":"bad","inputSchema":null}"#.to_owned(),
            r#"{"name":"bad","inputSchema":{}}"#.to_owned(),
            r#"{"name":"bad","inputSchema":{"anyOf":[{"type":"object"}]}}"#.to_owned(),
            r#"{"name":"bad","inputSchema":{"type":"object","properties":{"a":null}}}"#.to_owned(),
            r#"{"name":5,"inputSchema":{"type":"object"}}"#.to_owned(),
        ],
        "resources/list" => {
            vec![r#"{"uri":"file:///bad"}"#.to_owned(), r#"{"name":"bad","uri":"bad"}"#.to_owned()]
        }
        _ => Vec::new(),
    });
    entries
}

/// Each list, its member of a result, and an entry without faults.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", FINE),
    ("prompts/list", "prompts", r#"{"name":"fine"}"#),
    ("resources/list", "resources", r#"{"name":"fine","uri":"file:///fine"}"#),
    ("resources/templates/list", "resourceTemplates", r#"{"name":"fine","uriTemplate":"file:///{fine}"}"#),
];

fn offer() -> Offer {
    let entries = |at: usize| [malformed(LISTS[at].0), vec![LISTS[at].2.to_owned()]].concat();
    Offer {
        tools: entries(0),
        prompts: entries(1),
        resources: entries(2),
        templates: entries(3),
        ..Offer::default()
    }
}

/// A server of each era that offers this, and which that is.
fn both(offer: &Offer) -> [(Upstream, &'static str); 2] {
    let legacy = Legacy::new(offer.clone()).start();
    [(Upstream::offering(offer.clone()), ""), (legacy, "eras = [\"legacy\"]")]
}

/// A list as clients of both eras get it.
fn listed(daemon: &Daemon, method: &str) -> [Response; 2] {
    let in_legacy = legacy("1", method, "{}").with("MCP-Protocol-Version", LEGACY_VERSION);
    [list("1", method), in_legacy].map(|request| daemon.send(&request))
}

/// A call to a tool that there is none of for clients.
#[track_caller]
fn assert_unknown(daemon: &Daemon, request: &Request) {
    let response = daemon.send(request);
    let json = response.json();
    assert_eq!(json["error"]["code"], -32602, "{json}");
    assert!(json["error"]["message"].as_str().is_some_and(|text| text.contains("unknown tool")), "{json}");
}

#[test]
fn one_malformed_entry_costs_nobody_the_others() {
    let weather = Upstream::with_tools(&["forecast"]);
    for (up, eras) in both(&offer()) {
        let merged = Config::new().upstream("up", up.address, eras).upstream("weather", weather.address, "");
        for config in [Config::new().upstream("up", up.address, eras), merged] {
            let daemon = Daemon::start(&config.admin());
            for (method, member, _) in LISTS {
                for response in listed(&daemon, method) {
                    response.assert_ok();
                    let json = response.json();
                    let entries = json["result"][member].as_array().expect("a list");
                    let of_up: Vec<&Value> = entries
                        .iter()
                        .filter(|entry| !entry["name"].as_str().is_some_and(|name| name.contains("forecast")))
                        .collect();
                    assert_eq!(of_up.len(), 1, "{method}: {json}");
                    assert!(of_up[0]["name"].as_str().expect("a name").ends_with("fine"), "{method}: {json}");
                }
                let count = malformed(method).len() as u64;
                let series = format!(
                    r#"trunkline_list_entries_malformed_total{{mcp_method_name="{method}",upstream="up"}}"#
                );
                // Those that the gateway fetches for itself count as well.
                let counted = daemon.metric(&series);
                assert!(counted >= count && counted.is_multiple_of(count), "{series} {counted}");
            }
            let line = daemon.wait_for_log(0, "why they are left out", |line| {
                line.contains("malformed entries") && line.contains("tools/list")
            });
            assert!(line.contains("upstream=\"up\"") && line.contains("one without a name"), "{line}");
            assert!(line.contains("it must be an object"), "{line}");
        }
    }
}

/// A reply of 2 MiB has room for 400,000.
#[test]
fn hundreds_of_thousands_of_malformed_entries_take_little_memory() {
    const COUNT: usize = 400_000;
    let nulls = vec!["null".to_owned(); COUNT];
    let up = Upstream::offering(Offer { tools: [nulls, vec![FINE.to_owned()]].concat(), ..Offer::default() });
    let config = Config::new().upstream("up", up.address, "list_timeout = \"30s\"");
    let daemon = Daemon::start(&config.limits("list_entries_max = 1000000").admin());
    let before = daemon.peak_resident_bytes();
    assert_eq!(tool_names(&daemon.send(&list("1", "tools/list"))), ["fine"]);
    let grown = daemon.peak_resident_bytes().saturating_sub(before);
    assert!(grown < 48 * 1024 * 1024, "{grown} bytes more");
    let series = r#"trunkline_list_entries_malformed_total{mcp_method_name="tools/list",upstream="up"}"#;
    let counted = daemon.metric(series);
    assert!(counted > 0 && counted.is_multiple_of(COUNT as u64), "{counted}");
}

#[test]
fn a_malformed_tool_is_named_and_not_called() {
    let offer =
        Offer { tools: vec![FINE.into(), r#"{"name":"bad","inputSchema":null}"#.into()], ..Offer::default() };
    let weather = Upstream::with_tools(&["forecast"]);
    for (up, eras) in both(&offer) {
        let merged =
            Config::new().upstream("files", up.address, eras).upstream("weather", weather.address, "");
        let bare = Config::new()
            .upstream("files", up.address, eras)
            .upstream("weather", weather.address, "")
            .endpoint("names = \"bare\"");
        for (config, prefix) in
            [(Config::new().upstream("files", up.address, eras), ""), (merged, "files__"), (bare, "")]
        {
            let daemon = Daemon::start(&config.admin());
            let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
            let (bad, fine) = (format!("{prefix}bad"), format!("{prefix}fine"));
            for response in listed(&daemon, "tools/list") {
                let names = tool_names(&response);
                assert!(names.contains(&fine) && !names.contains(&bad), "{names:?}");
            }
            eventually("its list is known", || {
                let told = daemon.get_admin("/status/tools").json();
                let tools = told["tools"].as_array()?.clone();
                let bad = tools.into_iter().find(|tool| tool["name"] == "bad")?;
                assert_eq!(bad["left_out"], "inputSchema must be an object with type \"object\"", "{bad}");
                Some(())
            });
            for request in [call("7", &bad), in_session(&session, legacy_call("7", &bad))] {
                assert_unknown(&daemon, &request);
            }
            for request in [call("7", &fine), in_session(&session, legacy_call("7", &fine))] {
                daemon.send(&request).assert_ok();
            }
            let called: Vec<String> = up
                .received_of("tools/call")
                .iter()
                .map(|call| call.json()["params"]["name"].to_string())
                .collect();
            assert!(called.iter().all(|name| name == "\"fine\""), "{eras} {called:?}");
        }
    }
}

#[test]
fn one_tool_that_is_too_deep_costs_its_server_no_other() {
    let deep = |levels: usize| {
        let schema = format!("{}{}", r#"{"not":"#.repeat(levels), "}".repeat(levels)).replace(":}", ":{}}");
        format!(r#"{{"name":"deep","inputSchema":{{"type":"object","properties":{{"a":{schema}}}}}}}"#)
    };
    for levels in [30, 3_000] {
        let offer = Offer { tools: vec![deep(levels), FINE.into()], ..Offer::default() };
        for (up, eras) in both(&offer) {
            let daemon = Daemon::start(
                &Config::new().upstream("up", up.address, eras).admin().limits("json_depth_max = 32"),
            );
            for response in listed(&daemon, "tools/list") {
                assert_eq!(tool_names(&response), ["fine"], "{levels}");
            }
            assert_unknown(&daemon, &call("7", "deep"));
            daemon.wait_for_log(0, "why it is left out", |line| line.contains("json_depth_max"));
        }
    }
    // Members beside a list are no entries.
    let around =
        format!(r#"{{"x":{}{},"tools":[{FINE}],"resultType":"complete"}}"#, "[".repeat(40), "]".repeat(40));
    let up = Upstream::start(move |request| match request.method().as_str() {
        "tools/list" => Reply::result(request, &around),
        _ => Offer::default().answer(request),
    });
    let daemon = Daemon::start(&Config::transparent(&up).limits("json_depth_max = 32"));
    daemon.send(&list("1", "tools/list")).assert_error(502, 502, Some("1"));
}

#[test]
fn what_only_some_clients_refuse_is_written_otherwise_for_them() {
    let tool = r#"{"name":"a","inputSchema":{"type":"object","properties":{"any":true,"no":false}},"outputSchema":{"type":"array"}}"#;
    let offer = Offer { tools: vec![tool.into()], ..Offer::default() };
    for (up, eras) in both(&offer) {
        let daemon = Daemon::start(&Config::new().upstream("up", up.address, eras));
        let [modern, legacy] =
            listed(&daemon, "tools/list").map(|response| response.json()["result"]["tools"].take());
        assert_eq!(modern[0], serde_json::from_str::<Value>(tool).expect("JSON"));
        let expected = serde_json::json!([{
            "name": "a",
            "inputSchema": {"type": "object", "properties": {"any": {}, "no": {"not": {}}}},
        }]);
        assert_eq!(legacy, expected);
    }
}

#[test]
fn a_member_beside_a_list_costs_nobody_the_list() {
    let up = Upstream::start(|request| match request.method().as_str() {
        "tools/list" => Reply::result(
            request,
            &format!(r#"{{"_meta":null,"own":1,"tools":[{FINE}],"ttlMs":1000,"resultType":"complete"}}"#),
        ),
        _ => Offer::default().answer(request),
    });
    let daemon = Daemon::start(&Config::transparent(&up));
    for response in listed(&daemon, "tools/list") {
        let result = response.json()["result"].take();
        assert!(!result["_meta"].is_null() || result.get("_meta").is_none(), "{result}");
        assert_eq!(result["own"], 1, "{result}");
    }
}
