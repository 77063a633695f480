//! Lists and introductions over the bridge: upstreams of either era, asked in their own, and answered to clients of both.

use std::net::SocketAddr;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Connection, Daemon, LEGACY_VERSION, Legacy, META, Offer, Received, Reply, Request,
    Response, Upstream, VERSION, body, call_as, eventually, in_session, initialize, legacy, legacy_call,
    list, literal, members, modern, open_session, open_session_with, refusing_address,
};
use crate::upstreams::http_sse;

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];
/// What no typed model keeps, and a schema that the legacy era does not have.
const RICH: &str = r#"{ "title":"É \u0041", "name":"rich","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":123456789012345678901234567890},"any": true }},"outputSchema":{"type":["array","null"]},"annotations":{"readOnlyHint":true},"_meta":{"com.example/x":[1e400,"\ud83e\udd80"]},"future":{} }"#;
/// The same as a legacy client gets it.
const RICH_FOR_LEGACY: &str = r#"{ "title":"É \u0041", "name":"rich","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":123456789012345678901234567890},"any": {} }},"annotations":{"readOnlyHint":true},"_meta":{"com.example/x":[1e400,"\ud83e\udd80"]},"future":{} }"#;
const INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Something of every kind.
fn everything() -> Offer {
    Offer {
        tools: vec![RICH.into(), r#"{"name":"plain","inputSchema":{"type":"object"}}"#.into()],
        prompts: vec![r#"{ "name":"p","arguments":[] }"#.into()],
        resources: vec![r#"{"uri":"file:///é", "name":"r"}"#.into()],
        templates: vec![r#"{"uriTemplate":"file:///{+x}","name":"t"}"#.into()],
        instructions: "As \"is\".".into(),
    }
}

/// The entries of a list, each as it is spelled.
#[track_caller]
fn entries(response: &Response, key: &str) -> Vec<String> {
    response.assert_ok();
    let array: Box<RawValue> = serde_json::from_str(&literal(&response.body, &["result", key])).unwrap();
    Vec::<&RawValue>::deserialize(&*array).unwrap().into_iter().map(|entry| entry.get().to_owned()).collect()
}

/// A list that a legacy client asks for without a session.
fn legacy_list(method: &str) -> Request {
    legacy("7", method, "{}").with("MCP-Protocol-Version", LEGACY_VERSION)
}

/// The modern requests that a server of the legacy era got, which is none that it understands.
fn modern_requests(upstream: &Upstream) -> Vec<Received> {
    let is_modern = |request: &Received| {
        request.headers("mcp-protocol-version") == [VERSION] || request.method() == "server/discover"
    };
    upstream.received().into_iter().filter(is_modern).collect()
}

#[test]
fn a_modern_client_gets_the_lists_of_a_legacy_server_with_every_byte() {
    let offer = everything();
    let upstream = Legacy::new(offer.clone()).start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let expected = [&offer.tools, &offer.prompts, &offer.resources, &offer.templates];
    for ((method, key), expected) in LISTS.into_iter().zip(expected) {
        let response = daemon.send(&list("\"a\"", method));
        assert_eq!(entries(&response, key), *expected, "{method}");
        let result = members(&response.body, &["result"]);
        let said = ["resultType", "ttlMs", "cacheScope"].map(|key| result[key].as_str());
        assert_eq!(said, ["\"complete\"", "0", "\"private\""], "{method}");
        let info = literal(&response.body, &["result", "_meta", INFO]);
        assert_eq!(
            serde_json::from_str::<Value>(&info).unwrap(),
            json!({"name": "scripted", "version": "1"})
        );
    }
    assert_eq!(modern_requests(&upstream).len(), 0);
    let status = daemon.get_admin("/status").json();
    assert_eq!(status["endpoints"][0]["eras"], json!(["modern", "legacy"]));
    assert_eq!(status["upstreams"][0]["eras"], json!(["legacy"]));
    assert!(status["upstreams"][0]["bridge"]["requests"].is_u64(), "{status}");
}

#[test]
fn a_legacy_client_gets_the_lists_of_a_modern_server_as_its_era_has_them() {
    let offer = everything();
    let upstream = Upstream::offering(offer.clone());
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut expected =
        [offer.tools.clone(), offer.prompts.clone(), offer.resources.clone(), offer.templates.clone()];
    expected[0][0] = RICH_FOR_LEGACY.into();
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for ((method, key), expected) in LISTS.into_iter().zip(&expected) {
        for request in [legacy_list(method), in_session(&session, legacy("7", method, "{}"))] {
            let response = daemon.send(&request);
            assert_eq!(entries(&response, key), *expected, "{method}");
            let result = members(&response.body, &["result"]);
            assert_eq!(result.keys().collect::<Vec<_>>(), [key], "{method}");
        }
    }
    assert_eq!(
        entries(&daemon.send(&list("7", "tools/list")), "tools"),
        offer.tools,
        "a modern one gets all"
    );
    let foreign = |request: &Received| request.headers("mcp-protocol-version") != [VERSION];
    assert_eq!(upstream.received().into_iter().filter(foreign).count(), 0);
}

#[test]
fn a_server_of_both_eras_is_asked_in_the_era_of_the_client() {
    let offer = everything();
    let upstream = Legacy::new(offer.clone()).and_modern().start();
    let lines = "eras = [\"legacy\", \"modern\"]";
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, lines));
    // A legacy client would refuse the whole list for what this server says in its own era.
    let mut expected = offer.tools.clone();
    expected[0] = RICH_FOR_LEGACY.into();
    assert_eq!(entries(&daemon.send(&legacy_list("tools/list")), "tools"), expected);
    assert_eq!(entries(&daemon.send(&list("7", "tools/list")), "tools"), offer.tools);
    let spoken: Vec<String> = upstream
        .received_of("tools/list")
        .iter()
        .map(|asked| asked.headers("mcp-protocol-version").join(""))
        .collect();
    assert_eq!(spoken, [LEGACY_VERSION, VERSION]);
}

#[test]
fn one_fetch_serves_clients_of_both_eras() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    for _ in 0..2 {
        entries(&daemon.send(&list("7", "tools/list")), "tools");
        entries(&daemon.send(&legacy_list("tools/list")), "tools");
    }
    assert_eq!(upstream.received_of("tools/list").len(), 1);
    let known = list("7", "tools/list").replacing(r#"Capabilities":{}"#, r#"Capabilities":{"roots":{}}"#);
    entries(&daemon.send(&known), "tools");
    let declared = r#"{"roots":{"listChanged":true},"tasks":{"list":{}}}"#;
    let session = open_session_with(daemon.address(), LEGACY_VERSION, declared);
    entries(&daemon.send(&in_session(&session, legacy("7", "tools/list", "{}"))), "tools");
    let asked = upstream.received_of("tools/list");
    let meta = |request: &Received| {
        request.json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
    };
    assert_eq!(asked.iter().map(meta).collect::<Vec<_>>(), [json!({}), json!({"roots": {}})]);
}

#[test]
fn a_legacy_server_hears_what_a_modern_client_can_do() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let capabilities = r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/ui":{}}}"#;
    let request = list("7", "tools/list").replacing("{}}", &format!("{capabilities}}}"));
    entries(&daemon.send(&request), "tools");
    let listed = upstream.received_of("tools/list").pop().expect("it was asked");
    let session = listed.headers("mcp-session-id")[0].to_owned();
    let declared: Vec<Value> = upstream
        .received_of("initialize")
        .iter()
        .map(|offer| offer.json()["params"]["capabilities"].clone())
        .collect();
    assert!(declared.contains(&serde_json::from_str(capabilities).unwrap()), "{session}: {declared:?}");
}

#[test]
fn a_legacy_server_hears_nothing_of_what_means_something_else_there() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let capabilities = r#"{"tasks":{},"roots":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}}"#;
    let request = list("7", "tools/list").replacing("{}}", &format!("{capabilities}}}"));
    entries(&daemon.send(&request), "tools");
    let offers = upstream.received_of("initialize");
    let declared: Vec<Value> =
        offers.iter().map(|offer| offer.json()["params"]["capabilities"].clone()).collect();
    let expected = json!({"roots": {}, "extensions": {"io.modelcontextprotocol/ui": {}}});
    assert!(declared.contains(&expected), "{declared:?}");
}

#[test]
fn a_list_that_a_server_does_not_have_is_absent_in_both_eras() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let old = Upstream::start(move |request| match request.method().as_str() {
        "prompts/list" => Reply::error(request, "200 OK", -32601, "Method not found"),
        _ => server.answer(request),
    });
    let offer = Offer::tools(&["echo"]);
    let new = Upstream::start(move |request| match request.method().as_str() {
        "prompts/list" => Reply::error(request, "404 Not Found", -32601, "Method not found"),
        _ => offer.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&old));
    daemon.send(&list("7", "prompts/list")).assert_error(404, -32601, Some("7"));
    let daemon = Daemon::start(&Config::transparent(&new));
    daemon.send(&legacy_list("prompts/list")).assert_error(200, -32601, Some("7"));
    let both =
        Config::new().upstream("old", old.address, "eras = [\"legacy\"]").upstream("new", new.address, "");
    let daemon = Daemon::start(&both);
    assert!(entries(&daemon.send(&list("7", "prompts/list")), "prompts").is_empty());
    assert!(entries(&daemon.send(&legacy_list("prompts/list")), "prompts").is_empty());
}

#[test]
fn discovery_is_made_of_how_a_legacy_server_introduces_itself() {
    let upstream = Legacy::new(everything()).start();
    for config in [Config::legacy(&upstream), Config::new().probed("up", upstream.address, "").admin()] {
        let daemon = Daemon::start(&config);
        daemon.wait_for_log(0, "the endpoint", |line| line.contains("endpoint serves modern and legacy"));
        let discovered = eventually("it is known", || {
            let response = daemon.send(&list("7", "server/discover"));
            let discovered = response.json();
            discovered["result"]["instructions"].is_string().then_some(discovered)
        });
        let expected = json!({
            "resultType": "complete",
            "supportedVersions": [VERSION, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
            "capabilities": {
                "logging": {},
                "tools": {"listChanged": true},
                "prompts": {"listChanged": true},
                "resources": {"subscribe": true, "listChanged": true},
            },
            "instructions": "As \"is\".",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {INFO: {"name": "scripted", "version": "1"}},
        });
        let result = discovered["result"].clone();
        assert_eq!(result, expected);
    }
}

#[test]
fn initialize_is_answered_by_how_a_modern_server_introduces_itself() {
    let upstream = Upstream::offering(everything());
    for config in [Config::transparent(&upstream), Config::new().probed("up", upstream.address, "")] {
        let daemon = Daemon::start(&config);
        let (_, result) = open_session(daemon.address(), "2025-06-18");
        let changes = json!({"listChanged": true});
        let expected = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": changes, "prompts": changes, "resources": changes},
            "serverInfo": {"name": "scripted", "version": "1"},
            "instructions": "As \"is\".",
        });
        assert_eq!(result, expected);
    }
}

#[test]
fn a_modern_server_that_does_not_introduce_itself_is_not_waited_for_twice() {
    let upstream = Upstream::start(|_| Reply::http("503 Service Unavailable", "", ""));
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let (_, first) = open_session(daemon.address(), LEGACY_VERSION);
    upstream.wait_for("server/discover", 1);
    let (_, second) = open_session(daemon.address(), LEGACY_VERSION);
    assert_eq!(first, second);
    let changes = json!({"listChanged": true});
    assert_eq!(
        second["capabilities"],
        json!({"tools": changes, "prompts": changes, "resources": changes}),
        "it counts as one that has everything"
    );
}

/// What a client of each era sees of an endpoint's tools.
fn tools_of_both(daemon: &Daemon) -> [Vec<String>; 2] {
    [list("7", "tools/list"), legacy_list("tools/list")]
        .map(|request| entries(&daemon.send(&request), "tools"))
}

#[test]
fn servers_of_every_kind_make_one_catalog_for_clients_of_both_eras() {
    let (new, old, dual) = (
        Upstream::with_tools(&["b", "a"]),
        Legacy::new(Offer::tools(&["c"])).start(),
        Legacy::new(Offer::tools(&["d"])).and_modern().start(),
    );
    let events = http_sse::Server::new().start();
    let (old_child, new_child) = (Child::new(&[]), Child::new(&["modern"]));
    let (down, _socket) = refusing_address();
    for is_fixed in [true, false] {
        let eras = |eras: &str| if is_fixed { format!("eras = [{eras}]\n") } else { String::new() };
        let config = Config::new()
            .probed("new", new.address, &eras("\"modern\""))
            .probed("old", old.address, &eras("\"legacy\""))
            .raw("old-child", &old_child.keys(&eras("\"legacy\"")))
            .probed("down", down, "")
            .probed("events", events.address, &eras("\"legacy\""))
            .raw("new-child", &new_child.keys(&eras("\"modern\"")))
            .probed("dual", dual.address, &eras("\"legacy\", \"modern\""))
            .admin();
        let daemon = Daemon::start(&config);
        if !is_fixed {
            eventually("all are known", || {
                let known = daemon.get_admin("/status").json()["upstreams"].take();
                let eras =
                    known.as_array()?.iter().map(|upstream| upstream["eras"].as_array().map_or(0, Vec::len));
                (eras.collect::<Vec<_>>() == [1, 1, 1, 0, 1, 1, 2]).then_some(())
            });
        }
        let named =
            ["new__b", "new__a", "old__c", "old-child__echo", "events__echo", "new-child__echo", "dual__d"];
        let expected: Vec<String> = named
            .into_iter()
            .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#))
            .collect();
        let written = |tools: &[String]| {
            tools.iter().map(|tool| tool.replace("\": ", "\":").replace(", \"", ",\"")).collect::<Vec<_>>()
        };
        eventually("all are there", || (written(&tools_of_both(&daemon)[0]) == expected).then_some(()));
        let first = tools_of_both(&daemon);
        assert_eq!(first[0], first[1], "the same bytes in the same order, whoever asks");
        for _ in 0..3 {
            assert_eq!(tools_of_both(&daemon), first);
        }
        let modern_ttl = daemon.send(&list("7", "tools/list")).json()["result"]["ttlMs"].clone();
        assert_eq!(modern_ttl, 0, "one is missing");
        let (_, result) = open_session(daemon.address(), LEGACY_VERSION);
        let discovered = daemon.send(&list("7", "server/discover")).json()["result"].clone();
        for offered in [&result["capabilities"], &discovered["capabilities"]] {
            assert_eq!(offered["tools"], json!({"listChanged": true}), "{offered}");
            assert_eq!(offered["logging"], json!({}), "{offered}");
        }
    }
}

#[test]
fn an_endpoint_serves_both_eras_and_says_which_servers_are_bridged() {
    let (new, old) = (Upstream::with_tools(&["a"]), Legacy::new(Offer::tools(&["b"])).start());
    let config = |lines: &str| {
        Config::new().probed("new", new.address, lines).probed("old", old.address, lines).admin()
    };
    let daemon = Daemon::start(&config(""));
    let said = daemon.wait_for_log(0, "the endpoint", |line| {
        line.contains("endpoint serves modern and legacy endpoint=") && line.contains("bridged=\"new, old\"")
    });
    assert!(said.contains("INFO"), "{said}");
    let unserved = Daemon::start(&config("bridge.enabled = false"));
    unserved
        .wait_for_log(0, "the endpoint", |line| line.contains("WARN") && line.contains("missing=\"old\""));
    let expected = vec![r#"{"name":"new__a","inputSchema":{"type":"object"}}"#.to_owned()];
    eventually("only one is there", || {
        let response = unserved.send(&list("7", "tools/list"));
        (response.status == 200 && entries(&response, "tools") == expected).then_some(())
    });
    unserved.send(&initialize("0", LEGACY_VERSION)).assert_error(400, -32022, Some("0"));
}

#[test]
fn without_the_bridge_a_server_serves_its_own_era_alone() {
    let (new, old) = (Upstream::with_tools(&["a"]), Legacy::new(Offer::tools(&["b"])).start());
    let daemon = Daemon::start(&Config::new().upstream("up", new.address, "bridge.enabled = false"));
    let error = daemon.send(&initialize("0", LEGACY_VERSION)).assert_error(400, -32022, Some("0"));
    assert_eq!(error["error"]["data"]["supported"], json!([VERSION]));
    assert_eq!(new.received().len(), 0);
    let lines = "eras = [\"legacy\"]\nbridge.enabled = false";
    let daemon = Daemon::start(&Config::new().upstream("up", old.address, lines));
    for method in ["tools/list", "server/discover"] {
        let error = daemon.send(&list("7", method)).assert_error(400, -32022, Some("7"));
        assert_eq!(error["error"]["data"]["supported"][0], LEGACY_VERSION);
    }
}

#[test]
fn a_reload_turns_the_bridge_on_and_off() {
    let old = Legacy::new(Offer::tools(&["b"])).start();
    let config = |is_on: bool| {
        let lines = format!("eras = [\"legacy\"]\nbridge.enabled = {is_on}");
        Config::new().upstream("up", old.address, &lines)
    };
    let daemon = Daemon::start(&config(false));
    for is_on in [true, false, true] {
        daemon.reload(&config(is_on));
        let expected = if is_on { 200 } else { 400 };
        eventually("it counts", || (daemon.send(&list("7", "tools/list")).status == expected).then_some(()));
    }
}

/// The next message on a stream.
#[track_caller]
fn hear(stream: &mut Connection) -> Value {
    loop {
        let event = stream.event().expect("the stream goes on");
        if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
            return serde_json::from_str(data).expect("JSON");
        }
    }
}

fn listen_to_tools(address: SocketAddr) -> Connection {
    let params = format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{META}}}"#);
    let mut stream = Connection::open(address);
    stream.write(&modern("subscriptions/listen", None, body("5", "subscriptions/listen", &params)).bytes());
    assert_eq!(stream.head().status, 200);
    assert_eq!(hear(&mut stream)["method"], "notifications/subscriptions/acknowledged");
    stream
}

#[test]
fn a_watched_list_of_a_legacy_server_is_kept_for_modern_clients_until_it_changes() {
    let server = Legacy::new(Offer::tools(&["echo"])).with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let mut stream = listen_to_tools(daemon.address());
    let own = server.own_stream(1);
    let fetches = || upstream.received_of("tools/list").len();
    eventually("the list is kept", || {
        let ttl = daemon.send(&list("7", "tools/list")).json()["result"]["ttlMs"].as_u64()?;
        (ttl > 200_000).then_some(())
    });
    let before = fetches();
    for _ in 0..3 {
        entries(&daemon.send(&list("7", "tools/list")), "tools");
        entries(&daemon.send(&legacy_list("tools/list")), "tools");
    }
    assert_eq!(fetches(), before);
    own.event(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    let told = hear(&mut stream);
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 5);
    entries(&daemon.send(&list("7", "tools/list")), "tools");
    assert_eq!(fetches(), before + 1);
}

#[test]
fn whoever_listens_hears_what_a_server_tells_the_session_of_another() {
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let server = Legacy::new(Offer::tools(&["echo"])).with_streams();
    let telling = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            let id = literal(&request.body, &["id"]);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#);
            Reply::stream().event(CHANGED).event(&answer)
        }
        _ => telling.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let mut stream = listen_to_tools(daemon.address());
    server.own_stream(1);
    let calls: [&dyn Fn() -> Response; 3] =
        [&|| daemon.send(&call_as("1", "{}")), &|| daemon.send(&call_as("2", r#"{"roots":{}}"#)), &|| {
            let session = open_session(daemon.address(), LEGACY_VERSION).0;
            daemon.send(&in_session(&session, legacy_call("3", "echo")))
        }];
    for call in calls {
        assert_eq!(call().status, 200);
        assert_eq!(hear(&mut stream)["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn tools_with_mirrored_parameters_are_asked_for_again_in_the_era_of_their_server() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    let upstream = Legacy::new(Offer { tools: vec![tool.into()], ..Offer::default() }).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    entries(&daemon.send(&list("7", "tools/list")), "tools");
    let before = upstream.received_of("tools/list").len();
    let params = format!(r#"{{"name":"t","arguments":{{"region":"eu"}},"_meta":{META}}}"#);
    let call =
        modern("tools/call", Some("t"), body("7", "tools/call", &params)).with("Mcp-Param-Region", "us");
    daemon.send(&call).assert_error(400, -32020, Some("7"));
    assert_eq!(upstream.received_of("tools/list").len(), before + 1);
    assert_eq!(modern_requests(&upstream).len(), 0);
    assert_eq!(upstream.received_of("tools/call").len(), 0);
}

#[test]
fn names_are_learned_and_routed_whatever_era_a_server_speaks() {
    let (new, old) = (Upstream::with_tools(&["a"]), Legacy::new(Offer::tools(&["b"])).start());
    let config = Config::new()
        .upstream("new", new.address, "")
        .upstream("old", old.address, "eras = [\"legacy\"]")
        .endpoint("names = \"bare\"");
    let daemon = Daemon::start(&config);
    let expected = ["a", "b"].map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
    for request in [list("7", "tools/list"), legacy_list("tools/list")] {
        eventually("both are listed", || {
            let response = daemon.send(&request);
            (response.status == 200 && entries(&response, "tools") == expected).then_some(())
        });
    }
}
