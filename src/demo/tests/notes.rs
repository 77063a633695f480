//! What the notes server keeps, and what it asks.

use serde_json::{Value, json};

use super::client::{Call, Demo};
use crate::DemoKind;

fn delete(params: &Value, capabilities: &Value) -> Call {
    let mut all = json!({ "name": "delete_note", "arguments": { "number": 1 } });
    for (name, value) in params.as_object().unwrap() {
        all[name] = value.clone();
    }
    Call::with_capabilities("tools/call", all, capabilities)
}

fn answer(state: &Value, answer: &Value) -> Value {
    json!({ "requestState": state, "inputResponses": { "confirmation": answer } })
}

async fn ask(demo: &Demo) -> Value {
    demo.result(&delete(&json!({}), &json!({ "elicitation": {} }))).await
}

#[tokio::test]
async fn deleting_asks_first_and_does_what_the_user_says() {
    let cases = [
        (json!({ "action": "accept", "content": { "ok": true } }), true),
        (json!({ "action": "accept", "content": { "ok": false } }), false),
        (json!({ "action": "decline" }), false),
        (json!({ "action": "cancel" }), false),
    ];
    for (said, deleted) in cases {
        let demo = Demo::start(DemoKind::Notes).await;
        let asked = ask(&demo).await;
        assert_eq!(asked["resultType"], "input_required");
        assert!(asked.get("ttlMs").is_none(), "{asked}");
        let question = &asked["inputRequests"]["confirmation"];
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["requestedSchema"]["properties"]["ok"]["type"], "boolean");
        let read = Call::new("resources/read", json!({ "uri": "note://1" }));
        assert_eq!(demo.result(&read).await["contents"][0]["uri"], "note://1");

        let retry = delete(&answer(&asked["requestState"], &said), &json!({ "elicitation": {} }));
        let result = demo.result(&retry.edit("/id", json!(8))).await;

        assert_eq!(result["resultType"], "complete", "{result}");
        assert_eq!(result["structuredContent"], json!({ "deleted": deleted }), "{said}");
        assert_eq!(demo.send(&read).await.json()["error"].is_object(), deleted, "{said}");
        demo.stop().await;
    }
}

#[tokio::test]
async fn deleting_needs_a_client_that_can_ask() {
    let cases = [
        (json!({}), false),
        (json!({ "sampling": {} }), false),
        (json!({ "elicitation": { "url": {} } }), false),
        (json!({ "elicitation": null }), false),
        (json!({ "elicitation": {} }), true),
        (json!({ "elicitation": { "form": {} } }), true),
        (json!({ "elicitation": { "form": {}, "url": {} } }), true),
    ];
    let demo = Demo::start(DemoKind::Notes).await;
    for (capabilities, can_ask) in cases {
        let reply = demo.send(&delete(&json!({}), &capabilities)).await;
        assert_eq!(reply.status, if can_ask { 200 } else { 400 }, "{capabilities}: {reply:?}");
        if !can_ask {
            let error = &reply.json()["error"];
            assert_eq!(error["code"], -32021, "{capabilities}");
            assert_eq!(error["data"], json!({ "requiredCapabilities": { "elicitation": { "form": {} } } }));
        }
    }
    demo.stop().await;
}

#[tokio::test]
async fn answers_to_no_question_are_refused_and_missing_ones_asked_for_again() {
    let yes = json!({ "action": "accept", "content": { "ok": true } });
    let demo = Demo::start(DemoKind::Notes).await;
    let form = json!({ "elicitation": {} });
    let state = ask(&demo).await["requestState"].clone();
    let tampered = json!(format!("{}-TAMPERED", state.as_str().unwrap()));
    for wrong in [tampered, json!(""), json!(1)] {
        let reply = demo.send(&delete(&answer(&wrong, &yes), &form)).await;
        assert_eq!(reply.json()["error"]["code"], -32602, "{wrong}: {reply:?}");
    }
    let other_note = delete(&answer(&state, &yes), &form).edit("/params/arguments/number", json!(2));
    assert_eq!(demo.send(&other_note).await.json()["error"]["code"], -32602);
    let nonsense = delete(&answer(&state, &json!({ "action": "maybe" })), &form);
    assert_eq!(demo.send(&nonsense).await.json()["error"]["code"], -32602);

    let incomplete = [
        json!({ "inputResponses": { "confirmation": yes } }),
        json!({ "requestState": ask(&demo).await["requestState"] }),
        json!({ "requestState": ask(&demo).await["requestState"], "inputResponses": { "other": yes } }),
        answer(&ask(&demo).await["requestState"], &json!({ "action": "accept" })),
    ];
    for params in incomplete {
        let result = demo.result(&delete(&params, &form)).await;
        assert_eq!(result["resultType"], "input_required", "{params}: {result}");
    }

    let state = ask(&demo).await["requestState"].clone();
    let retry = delete(&answer(&state, &yes), &form);
    assert_eq!(demo.result(&retry).await["structuredContent"]["deleted"], true);
    assert_eq!(demo.send(&retry).await.json()["error"]["code"], -32602, "a state is good once");
    let gone = demo.result(&delete(&json!({}), &form)).await;
    assert_eq!((&gone["isError"], &gone["resultType"]), (&json!(true), &json!("complete")));
    demo.stop().await;
}

#[tokio::test]
async fn notes_are_listed_in_pages_and_the_notebook_is_bounded() {
    let demo = Demo::start(DemoKind::Notes).await;
    for number in 3..=200 {
        let call = Call::tool("add_note", &json!({ "title": format!("n{number}"), "text": "" }));
        assert_eq!(demo.result(&call).await["structuredContent"]["number"], number);
    }
    let full = demo.result(&Call::tool("add_note", &json!({ "title": "t", "text": "" }))).await;
    assert_eq!(full["isError"], true, "{full}");

    let (mut uris, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let page = demo.result(&Call::new("resources/list", params)).await;
        assert_eq!(page["cacheScope"], "private");
        pages += 1;
        uris.extend(page["resources"].as_array().unwrap().iter().map(|resource| resource["uri"].clone()));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    let expected: Vec<Value> = [json!("ui://notes/board")]
        .into_iter()
        .chain((1..=200).map(|number| json!(format!("note://{number}"))))
        .collect();
    assert_eq!((uris, pages), (expected, 5));
    demo.stop().await;
}

#[tokio::test]
async fn what_was_written_is_found_read_shown_and_quoted() {
    let demo = Demo::start(DemoKind::Notes).await;
    let add = Call::tool("add_note", &json!({ "title": "<b>Tea</b>", "text": "\"green\" & black" }));
    assert_eq!(demo.result(&add).await["content"][1]["uri"], "note://3");

    let found = demo.result(&Call::tool("search_notes", &json!({ "words": "GREEN" }))).await;
    assert_eq!(found["structuredContent"]["notes"][0]["number"], 3);
    let note = demo.result(&Call::new("resources/read", json!({ "uri": "note://3" }))).await;
    assert_eq!(note["contents"][0]["text"], "\"green\" & black");
    let prompt = Call::new("prompts/get", json!({ "name": "summarize", "arguments": { "topic": "tea" } }));
    assert_eq!(demo.result(&prompt).await["messages"][1]["content"]["resource"]["uri"], "note://3");
    let board = demo.result(&Call::new("resources/read", json!({ "uri": "ui://notes/board" }))).await;
    let page = board["contents"][0]["text"].as_str().unwrap();
    assert!(page.contains("&lt;b&gt;Tea&lt;/b&gt;") && !page.contains("<b>"), "{page}");
    assert_eq!(board["contents"][0]["mimeType"], "text/html;profile=mcp-app");
    let tools = demo.result(&Call::new("tools/list", json!({}))).await["tools"].clone();
    assert_eq!(tools[1]["_meta"]["ui"]["resourceUri"], "ui://notes/board");
    demo.stop().await;
}

#[tokio::test]
async fn notes_that_are_not_there_are_unknown_resources() {
    let demo = Demo::start(DemoKind::Notes).await;
    for uri in [
        "note://0",
        "note://3",
        "note://01",
        "note://+1",
        "note://99999999999999999999",
        "note://",
        "file:///1",
    ] {
        let error =
            demo.send(&Call::new("resources/read", json!({ "uri": uri }))).await.json()["error"].clone();
        assert_eq!((&error["code"], &error["data"]), (&json!(-32602), &json!({ "uri": uri })));
    }
    demo.stop().await;
}
