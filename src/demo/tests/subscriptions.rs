//! `subscriptions/listen` on an open stream.

use serde_json::{Value, json};

use super::client::{Call, Demo, Stream};
use crate::DemoKind;

const ID: &str = "io.modelcontextprotocol/subscriptionId";

fn listen(notifications: &Value) -> Call {
    Call::new("subscriptions/listen", json!({ "notifications": notifications })).edit("/id", json!("s-1"))
}

async fn add(demo: &Demo) {
    demo.result(&Call::tool("add_note", &json!({ "title": "t", "text": "" }))).await;
}

#[tokio::test]
async fn subscribers_are_told_what_they_asked_for_until_the_server_ends_it() {
    let demo = Demo::start(DemoKind::Notes).await;
    let filter = json!({
        "toolsListChanged": true,
        "resourcesListChanged": true,
        "resourceSubscriptions": ["note://4", "weather://stations", "ui://notes/board"],
    });
    let response = demo.open(&listen(&filter)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = Stream::new(response);

    let acknowledged = stream.next().await.unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    let honoured =
        json!({ "resourcesListChanged": true, "resourceSubscriptions": ["note://4", "ui://notes/board"] });
    assert_eq!(acknowledged["params"], json!({ "_meta": { ID: "s-1" }, "notifications": honoured }));

    let list_changed = json!({
        "jsonrpc": "2.0",
        "method": "notifications/resources/list_changed",
        "params": { "_meta": { ID: "s-1" } },
    });
    let updated = |uri: &str| {
        json!({
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": { "_meta": { ID: "s-1" }, "uri": uri },
        })
    };
    add(&demo).await;
    assert_eq!(stream.next().await.as_ref(), Some(&list_changed));
    assert_eq!(stream.next().await, Some(updated("ui://notes/board")));
    add(&demo).await;
    assert_eq!(stream.next().await.as_ref(), Some(&list_changed));
    assert_eq!(stream.next().await, Some(updated("note://4")));
    assert_eq!(stream.next().await, Some(updated("ui://notes/board")));

    demo.cancel();
    let end = stream.next().await.unwrap();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("s-1"), &json!("complete")));
    assert_eq!(end["result"]["_meta"][ID], "s-1");
    assert_eq!(stream.next().await, None);
    demo.stop().await;
}

#[tokio::test]
async fn subscribers_are_told_nothing_else_and_do_not_disturb_each_other() {
    let demo = Demo::start(DemoKind::Notes).await;
    let mut of_nothing = Stream::new(demo.open(&listen(&json!({}))).await);
    let mut of_note =
        Stream::new(demo.open(&listen(&json!({ "resourceSubscriptions": ["note://4"] }))).await);
    let closed = Stream::new(demo.open(&listen(&json!({ "resourcesListChanged": true }))).await);
    assert_eq!(of_nothing.next().await.unwrap()["params"]["notifications"], json!({}));
    assert!(of_note.next().await.is_some());
    drop(closed);

    add(&demo).await;
    add(&demo).await;

    assert_eq!(of_note.next().await.unwrap()["params"]["uri"], "note://4");
    demo.cancel();
    assert!(of_note.next().await.unwrap()["result"].is_object(), "note 3 is not note 4");
    assert!(of_nothing.next().await.unwrap()["result"].is_object());
    demo.stop().await;
}

#[tokio::test]
async fn weather_never_changes_but_keeps_the_stream_open() {
    let demo = Demo::start(DemoKind::Weather).await;
    let filter = json!({ "resourcesListChanged": true, "resourceSubscriptions": ["weather://stations"] });
    let mut stream = Stream::new(demo.open(&listen(&filter)).await);
    assert_eq!(stream.next().await.unwrap()["params"]["notifications"], json!({}));
    demo.cancel();
    assert!(stream.next().await.unwrap()["result"].is_object());
    assert_eq!(stream.next().await, None);
    demo.stop().await;
}
