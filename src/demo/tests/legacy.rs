//! The legacy era: sessions, and the same methods without what came later.

use hyper::Method;
use serde_json::{Value, json};

use super::client::{Call, Demo, Reply, Stream};
use crate::DemoKind;

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn initialize(revision: &str) -> Call {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": client });
    Call::legacy(None, "initialize", &params)
}

/// The id of a new session.
async fn open(demo: &Demo, revision: &str) -> String {
    let reply = demo.send(&initialize(revision)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let session = reply.header("mcp-session-id").unwrap().to_owned();
    let initialized = Call::legacy(Some(&session), "notifications/initialized", &json!({}));
    let accepted = demo.send(&initialized.edit("/id", Value::Null)).await;
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
    session
}

fn error_code(reply: &Reply) -> Value {
    reply.json()["error"]["code"].clone()
}

#[tokio::test]
async fn the_revision_is_negotiated() {
    let demo = Demo::start(DemoKind::Notes).await;
    let negotiated = REVISIONS.map(|revision| (revision, revision));
    for (asked, answered) in negotiated.into_iter().chain([
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ]) {
        let reply = demo.send(&initialize(asked)).await;
        let result = &reply.json()["result"];
        assert_eq!(result["protocolVersion"], answered, "{asked}: {reply:?}");
        assert_eq!(
            result["capabilities"],
            json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} })
        );
        assert_eq!(result["serverInfo"]["name"], "trunkline-demo-notes");
        assert!(
            result["serverInfo"]["version"].is_string() && result["instructions"].is_string(),
            "{result}"
        );
        assert_eq!(result.as_object().unwrap().len(), 4, "{result}");
        assert_eq!(reply.header("mcp-session-id").unwrap().len(), 32);
    }
    for broken in ["protocolVersion", "capabilities", "clientInfo"] {
        let reply =
            demo.send(&initialize("2025-11-25").edit(&format!("/params/{broken}"), Value::Null)).await;
        assert_eq!((reply.status, error_code(&reply)), (200, json!(-32602)), "{broken}");
        assert_eq!(reply.header("mcp-session-id"), None, "{broken}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn a_session_is_required_until_it_is_ended() {
    let demo = Demo::start(DemoKind::Weather).await;
    let (session, other) = (open(&demo, "2025-06-18").await, open(&demo, "2025-06-18").await);
    let ping = |session: Option<&str>| Call::legacy(session, "ping", &json!({}));
    let delete = |session: Option<&str>| Call { http_method: Method::DELETE, ..ping(session).body("") };
    let notification = |session: Option<&str>| ping(session).edit("/id", Value::Null);
    let response =
        |session: Option<&str>| ping(session).edit("/method", Value::Null).edit("/result", json!({}));
    let cases = [
        ("no session", ping(None), 400),
        ("an unknown one", ping(Some("0")), 404),
        ("two", ping(Some(&session)).header("Mcp-Session-Id", &other), 400),
        ("the right one", ping(Some(&session)), 200),
        ("a notification without", notification(None), 400),
        ("a notification of an unknown one", notification(Some("0")), 404),
        ("a response", response(Some(&session)), 202),
        ("a response without", response(None), 400),
        ("initialize within a session", initialize("2025-06-18").header("Mcp-Session-Id", "0"), 200),
        (
            "another revision of the era",
            ping(Some(&session)).header("MCP-Protocol-Version", "2025-11-25"),
            200,
        ),
        ("a batch", ping(Some(&session)).body("[]"), 400),
        ("GET", Call { http_method: Method::GET, ..ping(Some(&session)) }, 405),
        ("DELETE without", delete(None), 400),
        ("DELETE of an unknown one", delete(Some("0")), 404),
        (
            "DELETE of the modern era",
            delete(Some(&session)).header("MCP-Protocol-Version", "2026-07-28"),
            405,
        ),
        ("DELETE from elsewhere", delete(Some(&session)).header("Origin", "https://example.com"), 403),
        ("DELETE", delete(Some(&session)), 204),
        ("DELETE again", delete(Some(&session)), 404),
        ("an ended one", ping(Some(&session)), 404),
        ("the other one", ping(Some(&other)), 200),
    ];
    for (case, call, status) in cases {
        let reply = demo.send(&call).await;
        assert_eq!(reply.status, status, "{case}: {reply:?}");
        let allowed = match case {
            "GET" => Some("POST, DELETE"),
            "DELETE of the modern era" => Some("POST"),
            _ => None,
        };
        assert_eq!(reply.header("allow"), allowed, "{case}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn eras_are_told_apart_by_header_and_meta() {
    let demo = Demo::start(DemoKind::Weather).await;
    let session = open(&demo, "2025-11-25").await;
    let list = || Call::legacy(Some(&session), "tools/list", &json!({}));
    let modern = || Call::new("tools/list", json!({})).header("Mcp-Session-Id", &session);
    let is_modern = |reply: &Reply| reply.json()["result"].get("resultType").is_some();
    for (case, call, expected) in [
        ("no header", list(), Ok(false)),
        ("legacy header", list().header("MCP-Protocol-Version", "2024-11-05"), Ok(false)),
        ("modern header and body", modern(), Ok(true)),
        ("modern header", list().header("MCP-Protocol-Version", "2026-07-28"), Err((400, -32602))),
        ("modern body", modern().without("MCP-Protocol-Version"), Err((400, -32020))),
        (
            "legacy header, modern body",
            modern().with("MCP-Protocol-Version", "2025-11-25"),
            Err((400, -32020)),
        ),
        ("unknown header", list().header("MCP-Protocol-Version", "2025-01-01"), Err((400, -32022))),
        ("initialize, modern", Call::new("initialize", json!({})), Err((404, -32601))),
    ] {
        let reply = demo.send(&call).await;
        match expected {
            Ok(expected) => assert_eq!(is_modern(&reply), expected, "{case}: {reply:?}"),
            Err((status, code)) => {
                assert_eq!((reply.status, error_code(&reply)), (status, json!(code)), "{case}: {reply:?}");
            }
        }
        assert_eq!(reply.json()["id"], 7, "{case}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn results_are_those_of_the_modern_era_without_its_fields() {
    let reference = json!({ "type": "ref/prompt", "name": "packing-list" });
    let calls = [
        ("tools/list", json!({}), "tools"),
        ("prompts/list", json!({}), "prompts"),
        ("resources/list", json!({}), "resources"),
        ("resources/templates/list", json!({}), "resourceTemplates"),
        ("resources/read", json!({ "uri": "weather://city/oslo" }), "contents"),
        ("prompts/get", json!({ "name": "packing-list", "arguments": { "city": "Oslo" } }), "messages"),
        ("tools/call", json!({ "name": "compare", "arguments": { "cities": ["Oslo", "Lima"] } }), "content"),
        (
            "tools/call",
            json!({ "name": "compare", "arguments": { "cities": ["Oslo", "Atlantis"] } }),
            "isError",
        ),
        (
            "completion/complete",
            json!({ "ref": reference, "argument": { "name": "city", "value": "o" } }),
            "completion",
        ),
    ];
    let demo = Demo::start(DemoKind::Weather).await;
    for revision in REVISIONS {
        let session = open(&demo, revision).await;
        for (method, params, field) in &calls {
            let result = demo.result(&Call::legacy(Some(&session), method, params)).await;
            let mut modern = demo.result(&Call::new(method, params.clone())).await;
            for name in ["resultType", "ttlMs", "cacheScope", "_meta"] {
                modern.as_object_mut().unwrap().remove(name);
            }
            assert_eq!(result, modern, "{revision} {method}");
            assert!(result.get(field).is_some(), "{revision} {method}");
        }
    }
    demo.stop().await;
}

#[tokio::test]
async fn links_are_sent_to_revisions_that_know_them_and_no_header_is_needed() {
    let demo = Demo::start(DemoKind::Weather).await;
    let params = json!({ "name": "forecast", "arguments": { "city": "Oslo" } });
    for revision in REVISIONS {
        let session = open(&demo, revision).await;
        let result = demo.result(&Call::legacy(Some(&session), "tools/call", &params)).await;
        let kinds: Vec<&Value> =
            result["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
        let expected = if revision < "2025-06-18" { vec!["text"] } else { vec!["text", "resource_link"] };
        assert_eq!(kinds, expected, "{revision}");
        assert_eq!(result["structuredContent"]["city"], "Oslo");
    }
    demo.stop().await;
}

#[tokio::test]
async fn progress_is_told_on_the_calls_own_stream() {
    let demo = Demo::start(DemoKind::Weather).await;
    let session = open(&demo, "2025-11-25").await;
    let arguments = json!({ "cities": ["Oslo", "Lima"] });
    let params = json!({ "name": "compare", "arguments": arguments, "_meta": { "progressToken": "p" } });
    let reply = demo.send(&Call::legacy(Some(&session), "tools/call", &params)).await;
    let messages = reply.messages();
    assert_eq!(messages.len(), 3, "{reply:?}");
    assert_eq!(messages[0]["params"]["progressToken"], "p");
    assert_eq!(messages[2]["result"].get("resultType"), None);
    demo.stop().await;
}

#[tokio::test]
async fn what_fails_is_an_outcome_and_not_the_end_of_the_session() {
    let demo = Demo::start(DemoKind::Notes).await;
    let session = open(&demo, "2025-11-25").await;
    for (method, params, code) in [
        ("tools/destroy", json!({}), -32601),
        ("server/discover", json!({}), -32601),
        ("subscriptions/listen", json!({ "notifications": {} }), -32601),
        ("resources/subscribe", json!({ "uri": "note://1" }), -32601),
        ("tools/call", json!({ "name": "destroy" }), -32602),
        ("tools/call", json!({ "name": "add_note", "arguments": {} }), -32602),
        ("tools/list", json!({ "cursor": "x" }), -32602),
        ("prompts/get", json!({ "name": "destroy" }), -32602),
        ("resources/read", json!({}), -32602),
        ("resources/read", json!({ "uri": "note://9" }), -32002),
    ] {
        let reply = demo.send(&Call::legacy(Some(&session), method, &params)).await;
        assert_eq!((reply.status, error_code(&reply)), (200, json!(code)), "{method}: {reply:?}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn asking_the_user_needs_one_that_can_be_asked() {
    let demo = Demo::start(DemoKind::Notes).await;
    let session = open(&demo, "2025-11-25").await;
    let capabilities = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    for meta in [json!({}), capabilities] {
        let params = json!({ "name": "delete_note", "arguments": { "number": 1 }, "_meta": meta });
        let result = demo.result(&Call::legacy(Some(&session), "tools/call", &params)).await;
        assert_eq!(result["isError"], true, "{result}");
        assert!(result["content"][0]["text"].as_str().unwrap().contains("declares elicitation"), "{result}");
        assert_eq!(result.as_object().unwrap().len(), 2, "{result}");
    }
    let read = Call::legacy(Some(&session), "resources/read", &json!({ "uri": "note://1" }));
    assert_eq!(demo.result(&read).await["contents"][0]["uri"], "note://1");
    demo.stop().await;
}

#[tokio::test]
async fn a_client_that_can_be_asked_gets_the_question_on_the_stream_of_its_call() {
    let demo = Demo::start(DemoKind::Notes).await;
    for (revision, elicitation, is_asked) in [
        ("2024-11-05", json!({}), false),
        ("2025-06-18", json!({}), true),
        ("2025-11-25", json!({}), true),
        ("2025-11-25", json!({ "form": {}, "url": {} }), true),
        ("2025-11-25", json!({ "url": {} }), false),
    ] {
        let opening =
            initialize(revision).edit("/params/capabilities", json!({ "elicitation": elicitation }));
        let session = demo.send(&opening).await.header("mcp-session-id").unwrap().to_owned();
        let other = open(&demo, revision).await;
        let note = demo
            .result(&Call::legacy(
                Some(&session),
                "tools/call",
                &json!({ "name": "add_note", "arguments": { "title": "t", "text": "" } }),
            ))
            .await["structuredContent"]["number"]
            .clone();
        let delete = Call::legacy(
            Some(&session),
            "tools/call",
            &json!({ "name": "delete_note", "arguments": { "number": note } }),
        );
        if !is_asked {
            assert_eq!(demo.result(&delete).await["isError"], true, "{revision}");
            continue;
        }
        for (answer, deleted) in [
            (json!({ "result": { "action": "decline" } }), json!({ "deleted": false })),
            (json!({ "error": { "code": -1, "message": "no" } }), Value::Null),
            (
                json!({ "result": { "action": "accept", "content": { "ok": true } } }),
                json!({ "deleted": true }),
            ),
        ] {
            let mut stream = Stream::new(demo.open(&delete).await);
            let asked = stream.next().await.unwrap();
            assert_eq!(asked["method"], "elicitation/create", "{asked}");
            assert_eq!(asked["params"].get("mode").is_some(), revision == "2025-11-25", "{asked}");
            let answered = |session: &str| {
                let mut message = answer.clone();
                message["jsonrpc"] = json!("2.0");
                message["id"] = asked["id"].clone();
                Call::legacy(Some(session), "", &json!({})).body(message.to_string())
            };
            // Another's answer is none.
            assert_eq!(demo.send(&answered(&other)).await.status, 202);
            assert_eq!(demo.send(&answered(&session)).await.status, 202);
            let result = stream.next().await.unwrap();
            assert_eq!(result["id"], 7, "{result}");
            assert_eq!(result["result"]["structuredContent"], deleted, "{result}");
            assert!(result["result"].get("resultType").is_none(), "{result}");
            assert_eq!(stream.next().await, None);
        }
    }
    demo.stop().await;
}
