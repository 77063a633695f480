//! Names and URIs in results of endpoints with several upstreams: mapped by span, nothing else touched.

use serde_json::Value;

use crate::harness::{
    Config, Daemon, Gate, META, Offer, Reply, Upstream, body, call, literal, modern, read_resource,
};

/// A gateway over a first upstream that answers calls with this result, and a quiet second one.
fn gateway(result: &'static str) -> (Daemon, Upstream, Upstream) {
    let offer = Offer::tools(&["echo"]);
    let files = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" | "prompts/get" | "resources/read" | "tasks/get" => Reply::result(request, result),
        _ => offer.answer(request),
    });
    let weather = Upstream::with_tools(&["forecast"]);
    (Daemon::start(&Config::prefixed(&files, &weather)), files, weather)
}

#[test]
fn uris_in_a_tool_result_are_mapped_and_nothing_else() {
    let result = r#"{ "content" : [ {"type":"text","text":"see file:///a, not files+file:///a"},
        {"name":"r","uri":"file:///a","type":"resource_link","icons":[{"src":"https://i.example/i.png"}],"description":"file:///a"},
        {"type":"resource","resource":{"uri":"urn:x","text":"\"uri\":\"file:///a\"","mimeType":"text/plain"}},
        {"type":"resource_link","\u0075ri":"file:\/\/\/b","name":"escaped"},
        {"type":"resource_link","uri":"https://docs.example/a","name":"stays"},
        {"type":"resource_link","uri":"ui://panel","name":"ui"} ],
        "structuredContent":{"uri":"file:///a","type":"resource_link","resource":{"uri":"file:///a"}},
        "n":123456789012345678901234567890, "resultType":"complete" }"#;
    let expected = result
        .replace(r#""name":"r","uri":"file:///a""#, r#""name":"r","uri":"files+file:///a""#)
        .replace(r#"{"uri":"urn:x""#, r#"{"uri":"files+urn:x""#)
        .replace(r"file:\/\/\/b", "FILES+FILE_B")
        .replace("ui://panel", "ui://files+panel");
    let (daemon, _files, _weather) = gateway(result);
    let response = daemon.send(&call("7", "files__echo"));
    response.assert_ok();
    // The escaped URI may keep its spelling behind the prefix, or be written anew.
    let received = literal(&response.body, &["result"])
        .replace(r"files+file:\/\/\/b", "FILES+FILE_B")
        .replace("files+file:///b", "FILES+FILE_B");
    assert_eq!(received, expected);
}

#[test]
fn uris_in_contents_and_prompts_are_mapped() {
    let contents = r#"{"contents":[{"uri":"file:///a","text":"file:///a"},{"blob":"AA==","uri":"file:///a/b"}],"ttlMs":5,"cacheScope":"private","resultType":"complete"}"#;
    let (daemon, _files, _weather) = gateway(contents);
    let response = daemon.send(&read_resource("7", "files+file:///a"));
    response.assert_ok();
    let expected = contents.replace(r#""uri":"file:"#, r#""uri":"files+file:"#);
    assert_eq!(literal(&response.body, &["result"]), expected);

    let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///a","text":"t"}}},{"role":"user","content":{"type":"resource_link","uri":"file:///b","name":"b"}}],"resultType":"complete"}"#;
    let (daemon, _files, _weather) = gateway(prompt);
    let params = format!(r#"{{"name":"files__greet","_meta":{META}}}"#);
    let response =
        daemon.send(&modern("prompts/get", Some("files__greet"), body("7", "prompts/get", &params)));
    response.assert_ok();
    assert_eq!(
        literal(&response.body, &["result"]),
        prompt.replace(r#""uri":"file:"#, r#""uri":"files+file:"#)
    );
}

#[test]
fn a_result_with_nothing_to_map_comes_byte_for_byte() {
    let result = r#"{"content":[{"type":"text","text":"\u0041 file:///a"}], "isError" : false,"structuredContent":{"uri":"file:///a"},"_meta":{"x/y":1e3},"resultType":"complete"}"#;
    let (daemon, _files, _weather) = gateway(result);
    let response = daemon.send(&call("\"seven\"", "files__echo"));
    assert_eq!(response.text(), format!(r#"{{"jsonrpc":"2.0","id":"seven","result":{result}}}"#));
}

#[test]
fn a_resource_named_by_a_tool_can_be_read_under_that_name() {
    let link = r#"{"content":[{"type":"resource_link","uri":"file:///a?b=c+d","name":"r"}],"resultType":"complete"}"#;
    let offer = Offer::tools(&["echo"]);
    let files = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::result(request, link),
        _ => offer.answer(request),
    });
    let weather = Upstream::with_tools(&["forecast"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let link = daemon.send(&call("1", "files__echo")).json();
    let uri = link["result"]["content"][0]["uri"].as_str().unwrap();
    let contents = daemon.send(&read_resource("2", uri)).json();
    assert_eq!(contents["result"]["contents"][0]["uri"], uri);
    assert_eq!(files.received_of("resources/read")[0].json()["params"]["uri"], "file:///a?b=c+d");
}

#[test]
fn a_task_is_followed_under_the_name_the_client_was_given() {
    let task = r#"{"resultType":"task","taskId":"job-1","status":"working","ttlMs":60000,"pollIntervalMs":5,"createdAt":"2026-11-01T00:00:00Z","lastUpdatedAt":"2026-11-01T00:00:00Z"}"#;
    let (daemon, files, weather) = gateway(task);
    let created = daemon.send(&call("1", "files__echo")).json();
    let id = created["result"]["taskId"].as_str().unwrap();
    assert_ne!(id, "job-1", "task ids are prefixed where there are several upstreams");
    let params = format!(r#"{{"taskId":"{id}","_meta":{META}}}"#);
    let polled = daemon.send(&modern("tasks/get", Some(id), body("2", "tasks/get", &params)));
    polled.assert_ok();
    let received = files.wait_for("tasks/get", 1);
    assert_eq!(received.json()["params"]["taskId"], "job-1");
    assert_eq!(received.headers("mcp-name"), ["job-1"]);
    assert_eq!(polled.json()["result"]["taskId"], id, "and mapped again on the way back");
    assert_eq!(weather.forwarded().len(), 0);
}

#[test]
fn chunks_of_a_reply_may_end_anywhere() {
    let body = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"resource_link","uri":"file:///a","name":"r"}],"resultType":"complete"}}"#;
    for size in [1, 2, 3, 5, 64] {
        let files = Upstream::calling(move |request| {
            let body = request.with_id(body);
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            let pieces = body.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap());
            pieces.fold(Reply::raw(head), Reply::chunk).end()
        });
        let weather = Upstream::with_tools(&["forecast"]);
        let daemon = Daemon::start(&Config::prefixed(&files, &weather));
        let response = daemon.send(&call("7", "files__echo"));
        assert_eq!(response.text(), body.replace("file:", "files+file:"), "{size}");
    }
}

#[test]
fn events_are_mapped_whatever_their_line_ends() {
    for end in ["\n", "\r\n", "\r"] {
        let files = Upstream::calling(move |request| {
            let event = "id: 5|event: message|data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[|data: {\"type\":\"resource_link\",\"name\":\"r\",|data:\"uri\":\"file:///a\"}],\"resultType\":\"complete\"}}||";
            Reply::stream().chunk(&event.replace('|', end)).end().to(request)
        });
        let weather = Upstream::with_tools(&["forecast"]);
        let daemon = Daemon::start(&Config::prefixed(&files, &weather));
        let text = daemon.send(&call("7", "files__echo")).text();
        let lines: Vec<&str> = text.split(['\r', '\n']).collect();
        let data = lines.iter().filter_map(|line| line.strip_prefix("data:")).collect::<Vec<_>>().join("\n");
        let json: Value = serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        assert_eq!(json["result"]["content"][0]["uri"], "files+file:///a", "{text:?}");
        assert!(lines.contains(&"id: 5") && lines.contains(&"event: message"), "{text:?}");
    }
}

#[test]
fn events_are_mapped_one_by_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let files = Upstream::calling(move |request| {
        Reply::stream()
            .chunk(": keep-alive\n\n")
            .event(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"message":"file:///a"}}"#)
            .wait(&held)
            // One event over several chunks, the split inside the key and inside the URI.
            .chunk(r#"data: {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"resource_link","ur"#)
            .chunk(r#"i":"file:/"#)
            .chunk("//a\",\"name\":\"r\"}],\"resultType\":\"complete\"}}\n")
            .chunk("\n")
            .end()
            .to(request)
    });
    let weather = Upstream::with_tools(&["forecast"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let mut connection = daemon.connect();
    connection.write(&call("7", "files__echo").bytes());
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    let mut data = || loop {
        let event = connection.event()?;
        if let Some(data) = event.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).ok();
        }
    };
    let progress = data().expect("an event");
    assert_eq!(progress["params"]["message"], "file:///a", "before the upstream has sent the next event");
    gate.open();
    let result = data().expect("an event");
    assert_eq!(result["result"]["content"][0]["uri"], "files+file:///a");
    assert_eq!(data(), None);
}
