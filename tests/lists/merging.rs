//! Lists merged from several upstreams, and `server/discover`.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::harness::{
    Config, Daemon, LEGACY_VERSION, META, Offer, Reply, Response, Upstream, VERSION, body, in_session,
    legacy, list, literal, members, modern, open_session, refusing_address, side_by_side, tool_names,
    unresponsive_address,
};

/// Definitions that no typed model keeps.
const RICH: &str = r#"{ "title":"Écho \u0041", "name":"echo","inputSchema":{"type":"object","$defs":{"x":{"$anchor":"a"}},"properties":{"n":{"type":"integer","maximum":123456789012345678901234567890,"x-mcp-header":"N"}}},"outputSchema":{"type":["array","null"]},"annotations":{"readOnlyHint":true,"unheard-of":1.0},"icons":[{"src":"https://i.example/i.png"}],"_meta":{"com.example/x":[1e400,"\ud83e\udd80"]},"future":{} }"#;

/// What an endpoint serves that reaches its upstreams in both eras.
const SUPPORTED: [&str; 5] = [VERSION, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The items of a list, each as it is spelled.
fn items(response: &Response, key: &str) -> Vec<String> {
    response.assert_ok();
    let array: Box<RawValue> = serde_json::from_str(&literal(&response.body, &["result", key])).unwrap();
    Vec::<&RawValue>::deserialize(&*array).unwrap().into_iter().map(|item| item.get().to_owned()).collect()
}

/// What every list result must say beside its items.
#[track_caller]
fn assert_complete(response: &Response) {
    response.assert_ok();
    let result = members(&response.body, &["result"]);
    assert_eq!(result["resultType"], "\"complete\"", "{result:?}");
    assert!(result["ttlMs"].parse::<u64>().is_ok(), "{result:?}");
    assert!(["\"public\"", "\"private\""].contains(&result["cacheScope"].as_str()), "{result:?}");
    assert!(!result.contains_key("nextCursor"), "{result:?}");
}

/// A complete result as JSON.
#[track_caller]
fn complete(response: &Response) -> Value {
    assert_complete(response);
    response.json()
}

#[test]
fn lists_are_merged_in_the_configured_order_with_every_byte() {
    let tool = |name: &str| RICH.replace("\"echo\"", &format!("\"{name}\""));
    let files = Offer { tools: vec![tool("z"), tool("a"), tool("echo")], ..Offer::default() };
    let weather = Offer { tools: vec![tool("echo"), tool("b")], ..Offer::default() };
    let (files, weather) = (Upstream::offering(files), Upstream::offering(weather));
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let response = daemon.send(&list("\"seven\"", "tools/list"));
    let expected: Vec<String> =
        ["files__z", "files__a", "files__echo", "weather__echo", "weather__b"].map(tool).to_vec();
    assert_eq!(items(&response, "tools"), expected);
    assert_complete(&response);
    assert_eq!(literal(&response.body, &["id"]), "\"seven\"");
    let again = daemon.send(&list("\"seven\"", "tools/list"));
    assert_eq!(items(&again, "tools"), expected);
}

#[test]
fn every_kind_of_list_is_merged_and_mapped() {
    let files = Offer {
        tools: vec![r#"{"name":"t","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://panel"},"ui/resourceUri":"ui://panel","openai/outputTemplate":"ui://panel","other":"ui://panel"}}"#.into()],
        prompts: vec![r#"{"name":"p","arguments":[{"name":"p"}]}"#.into()],
        resources: vec![r#"{"name":"r","uri":"file:///r","description":"file:///r"}"#.into(), r#"{"uri":"ui://panel","name":"u"}"#.into(), r#"{"uri":"https://docs.example/","name":"h"}"#.into()],
        templates: vec![r#"{"name":"m","uriTemplate":"file:///{+path}"}"#.into(), r#"{"uriTemplate":"{scheme}:x","name":"n"}"#.into()],
        ..Offer::default()
    };
    let (files, weather) = (Upstream::offering(files), Upstream::with_tools(&["w"]));
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let cases = [
        (
            "tools/list",
            "tools",
            vec![
                r#"{"name":"files__t","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://files+panel"},"ui/resourceUri":"ui://files+panel","openai/outputTemplate":"ui://files+panel","other":"ui://panel"}}"#,
                r#"{"name":"weather__w","inputSchema":{"type":"object"}}"#,
            ],
        ),
        ("prompts/list", "prompts", vec![r#"{"name":"files__p","arguments":[{"name":"p"}]}"#]),
        (
            "resources/list",
            "resources",
            vec![
                r#"{"name":"r","uri":"files+file:///r","description":"file:///r"}"#,
                r#"{"uri":"ui://files+panel","name":"u"}"#,
                r#"{"uri":"https://docs.example/","name":"h"}"#,
            ],
        ),
        (
            "resources/templates/list",
            "resourceTemplates",
            vec![
                r#"{"name":"m","uriTemplate":"files+file:///{+path}"}"#,
                r#"{"uriTemplate":"files+{scheme}:x","name":"n"}"#,
            ],
        ),
    ];
    for (method, key, expected) in cases {
        let response = daemon.send(&list("7", method));
        assert_eq!(items(&response, key), expected, "{method}");
        assert_complete(&response);
    }
}

/// A server whose tools come on these pages; a page is its cursor, its tools, and the next cursor.
fn paged(pages: &'static [(Option<&str>, &[&str], Option<&str>)]) -> Upstream {
    let offer = Offer::default();
    Upstream::start(move |request| {
        if request.method() != "tools/list" {
            return offer.answer(request);
        }
        let json = request.json();
        let cursor = json["params"].get("cursor").map(|cursor| cursor.as_str().expect("a string"));
        let Some((_, tools, next)) = pages.iter().find(|(at, ..)| *at == cursor) else {
            return Reply::error(request, "400 Bad Request", -32602, "no such cursor");
        };
        let tools = tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
        let mut result = json!({"tools": tools.collect::<Vec<_>>(), "ttlMs": 1000, "cacheScope": "public", "resultType": "complete"});
        if let Some(next) = next {
            result["nextCursor"] = json!(next);
        }
        Reply::result(request, &result.to_string())
    })
}

fn names(response: &Response) -> Vec<String> {
    let json = complete(response);
    let tools = json["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_page_is_followed() {
    let files = paged(&[
        (None, &["a"], Some("two \"quoted\" \u{e9}")),
        (Some("two \"quoted\" \u{e9}"), &["b", "c"], Some("")),
        (Some(""), &["d"], Some("last")),
        (Some("last"), &[], None),
    ]);
    let weather = Upstream::with_tools(&["w"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let response = daemon.send(&list("7", "tools/list"));
    assert_eq!(names(&response), ["files__a", "files__b", "files__c", "files__d", "weather__w"]);
    assert!(files.received_of("tools/list").len() >= 4);
}

#[test]
fn a_transparent_endpoint_follows_the_pages_too() {
    let upstream = paged(&[(None, &["a"], Some("two")), (Some("two"), &["b"], None)]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    assert_eq!(names(&daemon.send(&list("1", "tools/list"))), ["a", "b"]);
    // No cursor was given out: neither the upstream's nor an empty one is known.
    for cursor in ["two", ""] {
        let body = body("2", "tools/list", &format!(r#"{{"cursor":"{cursor}","_meta":{META}}}"#));
        daemon.send(&modern("tools/list", None, body)).assert_error(200, -32602, Some("2"));
    }
}

#[test]
fn a_cursor_that_repeats_ends_the_list() {
    let files = paged(&[(None, &["a"], Some("again")), (Some("again"), &["b"], Some("again"))]);
    let weather = Upstream::with_tools(&["w"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let response = daemon.send(&list("7", "tools/list"));
    assert!(names(&response).contains(&"weather__w".to_owned()));
    assert!(files.received_of("tools/list").len() < 10, "pages are followed in circles");
}

#[test]
fn pages_are_bounded() {
    let offer = Offer::default();
    let files = Upstream::start(move |request| {
        if request.method() != "tools/list" {
            return offer.answer(request);
        }
        let at =
            request.json()["params"]["cursor"].as_str().map_or(0, |cursor| cursor.parse::<u32>().unwrap());
        let next = at + 1;
        Reply::result(
            request,
            &format!(
                r#"{{"tools":[{{"name":"t{at}","inputSchema":{{"type":"object"}}}}],"nextCursor":"{next}","ttlMs":1,"cacheScope":"public","resultType":"complete"}}"#
            ),
        )
    });
    let weather = Upstream::with_tools(&["w"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather).limits("list_pages_max = 5"));
    let response = daemon.send(&list("7", "tools/list"));
    assert!(names(&response).contains(&"weather__w".to_owned()));
    assert!(response.body.len() < 4096);
}

#[test]
fn an_upstream_may_answer_its_lists_as_event_streams() {
    let offer = Offer::tools(&["a"]).with_prompts(&["p"]);
    let files = Upstream::start(move |request| {
        let answer = offer.result(request).expect("a list or discover");
        let log =
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"tools"}}"#;
        let response = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{answer}}}"#, request.id());
        // In two lines of data, and in chunks that end anywhere.
        let (first, second) = response.split_once(',').expect("several members");
        Reply::stream()
            .chunk(": hello\n\n")
            .event(log)
            .chunk("event: message\r\nda")
            .chunk(&format!("ta: {first},\r\ndata: {second}\r"))
            .chunk("\n\r\n")
            .end()
    });
    let weather = Upstream::with_tools(&["w"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    assert_eq!(names(&daemon.send(&list("7", "tools/list"))), ["files__a", "weather__w"]);
    assert_eq!(items(&daemon.send(&list("8", "prompts/list")), "prompts"), [r#"{"name":"files__p"}"#]);
    let discovered = complete(&daemon.send(&list("9", "server/discover")));
    assert!(discovered["result"]["capabilities"]["prompts"].is_object(), "{discovered}");
}

#[test]
fn an_upstream_without_a_method_has_an_empty_list() {
    for status in ["404 Not Found", "200 OK"] {
        let files = Upstream::start(move |request| Reply::error(request, status, -32601, "no such method"));
        let weather = Upstream::with_tools(&["w"]);
        let daemon = Daemon::start(&Config::prefixed(&files, &weather));
        let response = daemon.send(&list("7", "tools/list"));
        assert_eq!(names(&response), ["weather__w"]);
        assert_eq!(items(&daemon.send(&list("8", "prompts/list")), "prompts"), Vec::<String>::new());
    }
}

#[test]
fn an_upstream_that_fails_neither_empties_nor_delays_the_list() {
    let page = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"resultType":"complete"}}"#;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        page.len()
    );
    let dripping = format!("{head}{page}");
    let scripts: Vec<(&str, Reply)> = vec![
        ("never answers", Reply::silence()),
        ("one byte after another", Reply::drip(dripping, Duration::from_millis(100))),
        ("half a body", Reply::raw(format!("{head}{}", &page[..20]))),
        ("half a body, then the end", Reply::raw(format!("{head}{}", &page[..20])).finish()),
        ("reset", Reply::default().reset()),
        ("an error", Reply::http("500 Internal Server Error", "Content-Type: text/html\r\n", "<html>")),
        ("garbage", Reply::raw("SSH-2.0-OpenSSH\r\n\r\n")),
        ("not JSON", Reply::json("200 OK", "{\"jsonrpc\":")),
        ("no list", Reply::json("200 OK", r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#)),
    ];
    for (what, reply) in scripts {
        println!("{what}");
        let files = Upstream::start(move |_| reply.clone());
        assert_partial(files.address);
    }
    let (refusing, _socket) = refusing_address();
    assert_partial(refusing);
    let (unresponsive, _sockets) = crate::harness::unresponsive_address();
    assert_partial(unresponsive);
}

/// The list of a healthy upstream beside one that is not, given 400 ms.
#[track_caller]
fn assert_partial(sick: std::net::SocketAddr) {
    let weather = Upstream::with_tools(&["w"]);
    let config = Config::new().upstream("files", sick, "list_timeout = \"400ms\"").upstream(
        "weather",
        weather.address,
        "",
    );
    let daemon = Daemon::start(&config);
    let started = Instant::now();
    let response = daemon.send(&list("7", "tools/list"));
    assert!(started.elapsed() < Duration::from_secs(4), "took {:?}", started.elapsed());
    assert_eq!(names(&response), ["weather__w"]);
    assert_eq!(response.json()["result"]["ttlMs"], 0, "a partial list is not for keeping");
}

#[test]
fn a_private_part_makes_the_list_private() {
    let offer = Offer::default();
    let files = Upstream::start(move |request| match request.method().as_str() {
        "tools/list" => {
            Reply::result(request, r#"{"tools":[],"ttlMs":7,"cacheScope":"private","resultType":"complete"}"#)
        }
        _ => offer.answer(request),
    });
    let weather = Upstream::with_tools(&["w"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let json = complete(&daemon.send(&list("7", "tools/list")));
    assert_eq!(json["result"]["cacheScope"], "private");
    assert!(json["result"]["ttlMs"].as_u64().unwrap() <= 7, "the least of any part: {json}");
}

#[test]
fn the_capabilities_of_the_client_reach_every_upstream() {
    let (files, weather) = (Upstream::with_tools(&["a"]), Upstream::with_tools(&["b"]));
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let capabilities = r#"{"elicitation":{"form":{}},"extensions":{"com.example/x":{}}}"#;
    let meta = META.replace(r#"clientCapabilities":{}"#, &format!(r#"clientCapabilities":{capabilities}"#));
    daemon
        .send(&modern("tools/list", None, body("7", "tools/list", &format!(r#"{{"_meta":{meta}}}"#))))
        .assert_ok();
    for upstream in [files, weather] {
        let sent = upstream.received_of("tools/list").into_iter().any(|request| {
            let meta = &request.json()["params"]["_meta"];
            meta["io.modelcontextprotocol/clientCapabilities"]
                == serde_json::from_str::<Value>(capabilities).unwrap()
        });
        assert!(sent, "{:?}", upstream.received_of("tools/list"));
        for request in upstream.received() {
            assert_eq!(request.headers("mcp-protocol-version"), [VERSION]);
            assert_eq!(request.headers("mcp-method"), [request.method()]);
            assert!(request.headers("accept")[0].contains("application/json"), "{}", request.head);
            assert!(request.headers("accept")[0].contains("text/event-stream"), "{}", request.head);
            assert_eq!(request.json()["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], VERSION);
        }
    }
}

#[test]
fn discover_speaks_for_all_upstreams() {
    let files = Offer { instructions: "Files are kept here.".into(), ..Offer::tools(&["a"]) };
    let weather = Offer { instructions: "Ask for a day.".into(), ..Offer::default() }.with_prompts(&["ask"]);
    let (files, weather) = (Upstream::offering(files), Upstream::offering(weather));
    let daemon =
        Daemon::start(&Config::prefixed(&files, &weather).endpoint("instructions = \"Read this first.\""));
    let json = complete(&daemon.send(&list("7", "server/discover")));
    let result = &json["result"];
    assert_eq!(json["id"], 7);
    assert_eq!(result["supportedVersions"], json!(SUPPORTED));
    assert!(
        result["capabilities"]["tools"].is_object() && result["capabilities"]["prompts"].is_object(),
        "{json}"
    );
    assert!(result["capabilities"].get("resources").is_none(), "no upstream has any: {json}");
    assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string(), "{json}");
    let instructions = result["instructions"].as_str().unwrap();
    let at =
        |text: &str| instructions.find(text).unwrap_or_else(|| panic!("no {text:?} in {instructions:?}"));
    assert!(
        at("Read this first.") < at("Files are kept here.")
            && at("Files are kept here.") < at("Ask for a day.")
    );
}

#[test]
fn discover_through_a_transparent_endpoint() {
    let upstream = Upstream::offering(Offer { instructions: "As is.".into(), ..Offer::tools(&["a"]) });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let json = complete(&daemon.send(&list("7", "server/discover")));
    assert_eq!(json["result"]["supportedVersions"], json!(SUPPORTED));
    assert!(json["result"]["capabilities"]["tools"].is_object());
    assert!(json["result"]["instructions"].as_str().unwrap().contains("As is."));
}

#[test]
fn discover_is_answered_while_an_upstream_is_down() {
    let (dead, _socket) = refusing_address();
    let weather = Upstream::with_tools(&["w"]);
    let config = Config::new().upstream("files", dead, "").upstream("weather", weather.address, "");
    let daemon = Daemon::start(&config);
    let json = complete(&daemon.send(&list("7", "server/discover")));
    assert_eq!(json["result"]["supportedVersions"], json!(SUPPORTED));
    assert!(json["result"]["capabilities"]["tools"].is_object(), "{json}");
}

#[test]
fn hundreds_of_upstreams_that_hang_keep_no_other_off_a_list() {
    let ((hanging, _sockets), good) = (unresponsive_address(), Upstream::with_tools(&["t1"]));
    let config = (0..300).fold(Config::new(), |config, number| {
        config.upstream(&format!("h{number}"), hanging, "list_timeout = \"4s\"\nconnect_timeout = \"1m\"")
    });
    let daemon = Daemon::start(&config.upstream("good", good.address, "list_timeout = \"4s\""));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let of_session = in_session(&session, legacy("1", "tools/list", "{}"));
    side_by_side([list("1", "tools/list"), of_session], |request| {
        assert_eq!(tool_names(&daemon.send(&request)), ["good__t1"]);
    });
}
