//! What is refused before a method is asked, and how.

use hyper::Method;
use serde_json::{Value, json};

use super::client::{Call, Demo};
use crate::DemoKind;

const VERSION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
const CAPABILITIES: &str = "/params/_meta/io.modelcontextprotocol~1clientCapabilities";

#[tokio::test]
async fn http_that_is_no_mcp_is_refused_by_its_status() {
    let list = || Call::new("tools/list", json!({}));
    let cases = [
        ("as it should be", list(), 200),
        ("another path", Call { path: "/", ..list() }, 404),
        ("GET", Call { http_method: Method::GET, ..list() }, 405),
        ("DELETE", Call { http_method: Method::DELETE, ..list() }, 405),
        ("foreign origin", list().header("Origin", "https://example.com"), 403),
        ("null origin", list().header("Origin", "null"), 403),
        ("local origin", list().header("Origin", "http://localhost:3000"), 200),
        ("foreign host", list().with("Host", "example.com"), 403),
        ("no host", list().without("Host"), 403),
        ("two hosts", list().header("Host", "localhost"), 403),
        ("a form", list().with("Content-Type", "application/x-www-form-urlencoded"), 415),
        ("no content type", list().without("Content-Type"), 415),
        ("charset", list().with("Content-Type", "Application/JSON; charset=utf-8"), 200),
        ("accepts images", list().with("Accept", "image/png"), 406),
        ("accepts anything", list().with("Accept", "*/*;q=0.1"), 200),
        ("no accept", list().without("Accept"), 200),
        ("a session", list().header("Mcp-Session-Id", "abc"), 200),
        ("too large", list().body(vec![b' '; 1024 * 1024 + 1]), 413),
        ("a notification", list().edit("/id", Value::Null), 202),
    ];
    let demo = Demo::start(DemoKind::Weather).await;
    for (case, call, status) in cases {
        let reply = demo.send(&call).await;
        assert_eq!(reply.status, status, "{case}: {reply:?}");
        assert_eq!(reply.header("allow"), (status == 405).then_some("POST"), "{case}");
        assert_eq!(reply.header("mcp-session-id"), None, "{case}");
        if status != 200 {
            assert_eq!(reply.body, "", "{case}");
        }
    }
    demo.stop().await;
}

#[tokio::test]
async fn messages_that_break_the_rules_are_refused_by_their_code() {
    let list = || Call::new("tools/list", json!({}));
    let read = || Call::new("resources/read", json!({ "uri": "weather://stations" }));
    let with_id = json!(7);
    let cases = [
        ("no JSON", list().body("{"), 400, -32700, Value::Null),
        ("bad UTF-8", list().body(&b"\"\xff\""[..]), 400, -32700, Value::Null),
        ("too deep", list().body("[".repeat(100_000)), 400, -32700, Value::Null),
        ("a batch", list().body("[]"), 400, -32600, Value::Null),
        ("a string", list().body("\"a\""), 400, -32600, Value::Null),
        ("a response", list().body(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#), 400, -32600, with_id.clone()),
        ("JSON-RPC 1.0", list().edit("/jsonrpc", json!("1.0")), 400, -32600, with_id.clone()),
        ("fractional id", list().edit("/id", json!(1.5)), 400, -32600, Value::Null),
        ("object id", list().edit("/id", json!({})), 400, -32600, Value::Null),
        ("array params", list().edit("/params", json!([])), 400, -32600, with_id.clone()),
        ("no params", list().edit("/params", Value::Null), 400, -32602, with_id.clone()),
        ("no version in _meta", list().edit(VERSION, Value::Null), 400, -32602, with_id.clone()),
        ("no capabilities", list().edit(CAPABILITIES, Value::Null), 400, -32602, with_id.clone()),
        ("capabilities no object", list().edit(CAPABILITIES, json!([])), 400, -32602, with_id.clone()),
        ("no version header", list().without("MCP-Protocol-Version"), 400, -32020, with_id.clone()),
        (
            "two version headers",
            list().header("MCP-Protocol-Version", "2026-07-28"),
            400,
            -32020,
            with_id.clone(),
        ),
        (
            "other version in header",
            list().with("MCP-Protocol-Version", "v999"),
            400,
            -32020,
            with_id.clone(),
        ),
        ("other version in body", list().edit(VERSION, json!("v999")), 400, -32020, with_id.clone()),
        ("no method header", list().without("Mcp-Method"), 400, -32020, with_id.clone()),
        ("other method header", list().with("Mcp-Method", "tools/call"), 400, -32020, with_id.clone()),
        ("method header in capitals", list().with("Mcp-Method", "TOOLS/LIST"), 400, -32020, with_id.clone()),
        ("no name header", read().without("Mcp-Name"), 400, -32020, with_id.clone()),
        ("other name header", read().with("Mcp-Name", "weather://city/oslo"), 400, -32020, with_id.clone()),
        ("name header not ASCII", read().with("Mcp-Name", "ü"), 400, -32020, with_id.clone()),
        ("name only in the header", read().edit("/params/uri", Value::Null), 400, -32020, with_id.clone()),
        (
            "no name",
            read().edit("/params/uri", Value::Null).without("Mcp-Name"),
            200,
            -32602,
            with_id.clone(),
        ),
        ("unknown method", Call::new("tools/destroy", json!({})), 404, -32601, with_id.clone()),
        ("legacy method", Call::new("initialize", json!({})), 404, -32601, with_id.clone()),
        ("string id", list().without("Mcp-Method").edit("/id", json!("a")), 400, -32020, json!("a")),
    ];
    let demo = Demo::start(DemoKind::Weather).await;
    for (case, call, status, code, id) in cases {
        let reply = demo.send(&call).await;
        assert_eq!(reply.status, status, "{case}: {reply:?}");
        let message = reply.json();
        assert_eq!(message["error"]["code"], code, "{case}: {message}");
        assert_eq!(message.get("id"), Some(&id).filter(|id| !id.is_null()), "{case}: {message}");
        assert!(message["error"]["message"].is_string(), "{case}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn versions_of_the_future_are_told_which_one_is_spoken() {
    let list = || Call::new("tools/list", json!({})).with("MCP-Protocol-Version", "v999");
    let demo = Demo::start(DemoKind::Notes).await;
    for call in [list().edit(VERSION, json!("v999")), list().edit("/params/_meta", Value::Null)] {
        let reply = demo.send(&call).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        let error = &reply.json()["error"];
        assert_eq!(error["code"], -32022, "{error}");
        assert_eq!(error["data"], json!({ "supported": ["2026-07-28"], "requested": "v999" }));
    }
    demo.stop().await;
}

#[tokio::test]
async fn an_encoded_name_is_decoded_before_it_is_compared() {
    let demo = Demo::start(DemoKind::Weather).await;
    let read = Call::new("resources/read", json!({ "uri": "weather://stations" }));
    let encoded = read.with("Mcp-Name", "=?base64?d2VhdGhlcjovL3N0YXRpb25z?=");
    assert_eq!(demo.result(&encoded).await["contents"][0]["uri"], "weather://stations");
    demo.stop().await;
}
