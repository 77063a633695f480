//! The demo servers as a client sees them: over HTTP, on a port of their own.

mod client;
mod envelope;
mod legacy;
mod notes;
mod subscriptions;
mod weather;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::{DemoKind, schema};
use client::{Call, Demo};

#[tokio::test]
async fn every_result_has_what_the_schema_requires() {
    let cacheable = ["ttlMs", "cacheScope"];
    let cases = [
        ("server/discover", json!({}), vec!["supportedVersions", "capabilities"], true),
        ("tools/list", json!({}), vec!["tools"], true),
        ("prompts/list", json!({}), vec!["prompts"], true),
        ("resources/list", json!({}), vec!["resources"], true),
        ("resources/templates/list", json!({}), vec!["resourceTemplates"], true),
    ];
    let complete =
        |reference: Value, name: &str| json!({ "ref": reference, "argument": { "name": name, "value": "" } });
    let of_weather = [
        ("resources/read", json!({ "uri": "weather://stations" }), vec!["contents"], true),
        ("resources/read", json!({ "uri": "weather://city/oslo" }), vec!["contents"], true),
        (
            "prompts/get",
            json!({ "name": "packing-list", "arguments": { "city": "Oslo" } }),
            vec!["messages"],
            false,
        ),
        (
            "tools/call",
            json!({ "name": "compare", "arguments": { "cities": ["Oslo", "Lima"] } }),
            vec!["content"],
            false,
        ),
        (
            "completion/complete",
            complete(json!({ "type": "ref/prompt", "name": "packing-list" }), "city"),
            vec!["completion"],
            false,
        ),
    ];
    let of_notes = [
        ("resources/read", json!({ "uri": "note://1" }), vec!["contents"], true),
        ("resources/read", json!({ "uri": "ui://notes/board" }), vec!["contents"], true),
        ("prompts/get", json!({ "name": "summarize" }), vec!["messages"], false),
        (
            "tools/call",
            json!({ "name": "search_notes", "arguments": { "words": "" } }),
            vec!["content"],
            false,
        ),
        (
            "completion/complete",
            complete(json!({ "type": "ref/resource", "uri": "note://{number}" }), "number"),
            vec!["completion"],
            false,
        ),
    ];
    for (kind, more) in [(DemoKind::Weather, of_weather), (DemoKind::Notes, of_notes)] {
        let demo = Demo::start(kind).await;
        for (method, params, required, is_cacheable) in cases.iter().chain(&more) {
            let reply = demo.send(&Call::new(method, params.clone())).await;
            assert_eq!(reply.status, 200, "{kind:?} {method}: {reply:?}");
            assert_eq!(reply.header("content-type"), Some("application/json"), "{method}");
            let result = &reply.json()["result"];
            assert_eq!(result["resultType"], "complete", "{method}");
            let server = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
            assert!(server["name"].is_string() && server["version"].is_string(), "{method}: {server}");
            for field in required {
                assert!(!result[field].is_null(), "{method} lacks {field}");
            }
            for field in cacheable {
                assert_eq!(result.get(field).is_some(), *is_cacheable, "{method} {field}");
            }
        }
        demo.stop().await;
    }
}

#[tokio::test]
async fn every_definition_is_complete_and_keeps_its_order() {
    let lists = [
        (
            "tools/list",
            "tools",
            vec!["name", "title", "description", "inputSchema", "outputSchema", "annotations"],
        ),
        ("prompts/list", "prompts", vec!["name", "title", "description", "arguments"]),
        ("resources/list", "resources", vec!["uri", "name", "title", "mimeType"]),
        ("resources/templates/list", "resourceTemplates", vec!["uriTemplate", "name", "title", "mimeType"]),
    ];
    for kind in [DemoKind::Weather, DemoKind::Notes] {
        let demo = Demo::start(kind).await;
        for (method, key, required) in &lists {
            let result = demo.result(&Call::new(method, json!({}))).await;
            let entries = result[key].as_array().unwrap();
            assert!(!entries.is_empty(), "{kind:?} {method}");
            for (entry, field) in
                entries.iter().flat_map(|entry| required.iter().map(move |field| (entry, field)))
            {
                assert!(entry.get(field).is_some(), "{kind:?} {method}: {entry} lacks {field}");
            }
            assert_eq!(demo.result(&Call::new(method, json!({}))).await, result);
        }
        demo.stop().await;
    }
}

#[tokio::test]
async fn structured_content_fits_the_output_schema_and_has_a_text_beside_it() {
    let calls = [
        (DemoKind::Weather, "forecast", json!({ "city": "Oslo", "days": 7 })),
        (DemoKind::Weather, "compare", json!({ "cities": ["Oslo", "zurich", "LIMA"] })),
        (DemoKind::Notes, "add_note", json!({ "title": "t", "text": "" })),
        (DemoKind::Notes, "search_notes", json!({ "words": "welcome" })),
    ];
    for (kind, name, arguments) in calls {
        let demo = Demo::start(kind).await;
        let tools = demo.result(&Call::new("tools/list", json!({}))).await["tools"].clone();
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone();
        let call = Call::new("tools/call", json!({ "name": name, "arguments": arguments }));
        let call = if name == "forecast" { call.header("Mcp-Param-City", "Oslo") } else { call };

        let result = demo.result(&call).await;

        assert_eq!(
            schema::check(&tool["outputSchema"], &result["structuredContent"]),
            Ok(()),
            "{name}: {result}"
        );
        assert!(result["structuredContent"].is_object(), "{name}: {result}");
        assert_eq!(result["content"][0]["type"], "text", "{name}");
        assert_ne!(result["isError"], Value::Bool(true), "{name}");
        demo.stop().await;
    }
}

#[tokio::test]
async fn stopping_closes_idle_connections_and_frees_the_port() {
    let demo = Demo::start(DemoKind::Weather).await;
    let address = demo.address;
    demo.send(&Call::new("tools/list", json!({}))).await;
    let mut idle = TcpStream::connect(address).await.unwrap();

    demo.stop().await;

    // A reset is as closed as an end.
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(address).await.is_err());
}
