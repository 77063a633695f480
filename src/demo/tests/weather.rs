//! What the weather server shows.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Call, Demo};
use crate::DemoKind;

fn forecast(city: &str) -> Call {
    Call::tool("forecast", &json!({ "city": city }))
}

#[tokio::test]
async fn the_city_of_a_forecast_is_mirrored_in_a_header() {
    let two = forecast("Oslo").header("Mcp-Param-City", "Oslo").header("Mcp-Param-City", "Oslo");
    let cases = [
        ("plain", forecast("Oslo").header("Mcp-Param-City", "Oslo"), None),
        ("encoded", forecast("Zürich").header("Mcp-Param-City", "=?base64?WsO8cmljaA==?="), None),
        ("absent", forecast("Oslo"), Some(-32020)),
        ("another", forecast("Oslo").header("Mcp-Param-City", "Lima"), Some(-32020)),
        ("raw UTF-8", forecast("Zürich").header("Mcp-Param-City", "Zürich"), Some(-32020)),
        ("not Base64", forecast("Zürich").header("Mcp-Param-City", "=?base64?Z?="), Some(-32020)),
        ("twice", two, Some(-32020)),
        ("no city", Call::tool("forecast", &json!({})), Some(-32602)),
        (
            "unknown parameter",
            forecast("Oslo").header("Mcp-Param-City", "Oslo").header("Mcp-Param-Days", "9"),
            None,
        ),
    ];
    let demo = Demo::start(DemoKind::Weather).await;
    for (case, call, code) in cases {
        let reply = demo.send(&call).await;
        assert_eq!(reply.status, if code == Some(-32020) { 400 } else { 200 }, "{case}: {reply:?}");
        assert_eq!(reply.json()["error"]["code"].as_i64(), code, "{case}: {reply:?}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn a_forecast_links_to_the_resource_of_its_city() {
    let demo = Demo::start(DemoKind::Weather).await;
    let result = demo.result(&forecast("OSLO").header("Mcp-Param-City", "OSLO")).await;
    assert_eq!(result["structuredContent"]["days"].as_array().map(Vec::len), Some(3));
    let link = &result["content"][1];
    assert_eq!((&link["type"], &link["name"]), (&json!("resource_link"), &json!("oslo")));
    let read = demo.result(&Call::new("resources/read", json!({ "uri": link["uri"] }))).await;
    let week: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(week["days"].as_array().map(Vec::len), Some(7));
    assert_eq!(week["days"][0], result["structuredContent"]["days"][0]);
    demo.stop().await;
}

#[tokio::test]
async fn a_city_without_a_forecast_is_an_error_the_model_can_read() {
    let demo = Demo::start(DemoKind::Weather).await;
    let calls = [
        forecast("Atlantis").header("Mcp-Param-City", "Atlantis"),
        Call::tool("compare", &json!({ "cities": ["Oslo", "Atlantis"] })),
    ];
    for call in calls {
        let result = demo.result(&call).await;
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("Atlantis") && text.contains("Lisbon"), "{text}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn unknown_names_and_bad_arguments_are_invalid_params() {
    let reference =
        |reference: Value| json!({ "ref": reference, "argument": { "name": "city", "value": "" } });
    let cases = [
        Call::tool("forecats", &json!({})),
        Call::tool("compare", &json!({ "cities": ["Oslo"] })),
        Call::tool("compare", &json!({ "cities": "Oslo" })),
        Call::tool("compare", &json!([])),
        Call::new("tools/call", json!({ "name": "compare" })),
        Call::tool("compare", &json!({ "cities": ["Oslo", "Lima"] }))
            .edit("/params/_meta/progressToken", json!(1.5)),
        Call::new("resources/read", json!({ "uri": "weather://city/atlantis" })),
        Call::new("resources/read", json!({ "uri": "weather://" })),
        Call::new("prompts/get", json!({ "name": "packing" })),
        Call::new("prompts/get", json!({ "name": "packing-list" })),
        Call::new("prompts/get", json!({ "name": "packing-list", "arguments": { "city": 1 } })),
        Call::new("completion/complete", json!({})),
        Call::new("completion/complete", reference(json!({ "type": "ref/tool", "name": "packing-list" }))),
        Call::new("completion/complete", reference(json!({ "type": "ref/prompt", "name": "packing" }))),
        Call::new("tools/list", json!({ "cursor": "" })),
        Call::new("tools/list", json!({ "cursor": "2" })),
        Call::new("tools/list", json!({ "cursor": 0 })),
        Call::new("subscriptions/listen", json!({})),
    ];
    let demo = Demo::start(DemoKind::Weather).await;
    for call in cases {
        let reply = demo.send(&call).await;
        assert_eq!(reply.json()["error"]["code"], -32602, "{:?}: {reply:?}", call.body);
        assert_eq!(reply.status, 200, "{:?}: {reply:?}", call.body);
    }
    demo.stop().await;
}

#[tokio::test]
async fn compare_reports_progress_to_those_who_ask_for_it() {
    let demo = Demo::start(DemoKind::Weather).await;
    let call = Call::tool("compare", &json!({ "cities": ["Oslo", "Lisbon", "Osaka"] }));
    let plain = demo.send(&call).await;
    assert_eq!(plain.header("content-type"), Some("application/json"));

    for token in [json!("t"), json!(0)] {
        let started = Instant::now();
        let reply = demo.send(&call.clone().edit("/params/_meta/progressToken", token.clone())).await;
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        assert_eq!(reply.header("x-accel-buffering"), Some("no"));
        assert!(started.elapsed() >= Duration::from_millis(450), "without pauses there is nothing to watch");

        let mut messages = reply.messages();
        assert_eq!(messages.pop(), Some(plain.json()));
        assert_eq!(messages.len(), 3);
        for (index, message) in messages.iter().enumerate() {
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(message["params"]["progressToken"], token);
            assert_eq!(message["params"]["progress"], index + 1);
            assert_eq!(message["params"]["total"], 3);
        }
    }
    demo.stop().await;
}

#[tokio::test]
async fn cities_are_completed_in_prompts_and_templates() {
    let prompt = json!({ "type": "ref/prompt", "name": "packing-list" });
    let template = json!({ "type": "ref/resource", "uri": "weather://city/{name}" });
    let cases = [
        (&prompt, "city", "o", json!(["Oslo", "Osaka"])),
        (&prompt, "city", "zü", json!(["Zürich"])),
        (&prompt, "city", "x", json!([])),
        (&prompt, "days", "7", json!(["7"])),
        (&prompt, "mood", "", json!([])),
        (&template, "name", "LI", json!(["lisbon", "lima"])),
    ];
    let demo = Demo::start(DemoKind::Weather).await;
    for (reference, name, value, expected) in cases {
        let params = json!({ "ref": reference, "argument": { "name": name, "value": value } });
        let completion = demo.result(&Call::new("completion/complete", params)).await["completion"].clone();
        assert_eq!(completion["values"], expected, "{name} {value}");
        assert_eq!(completion["hasMore"], false);
    }
    demo.stop().await;
}
