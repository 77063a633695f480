//! What servers answer with, JSON, plain text and streams of events, and how clients read the latter. What it says is not
//! decided here.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream::unfold;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
pub(super) type EventSender = mpsc::UnboundedSender<String>;

/// What a server tells a session.
pub(super) fn message(token: &str) -> String {
    let params = json!({"level": "error", "data": token});
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string()
}

pub(super) fn result_of(message: &Value, result: &Value) -> Answer {
    let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    json_answer(StatusCode::OK, text)
}

pub(super) fn refusal(message: &Value) -> Answer {
    let error = json!({"code": -32601, "message": "there is no such method here"});
    json_answer(
        StatusCode::BAD_REQUEST,
        json!({"jsonrpc": "2.0", "id": message["id"], "error": error}).to_string(),
    )
}

fn json_answer(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::from(text).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
    answer
}

pub(super) fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::from(text).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

/// A stream of events, and where they are put in.
pub(super) fn events() -> (EventSender, Answer) {
    let (sender, receiver) = mpsc::unbounded_channel::<String>();
    let events = unfold(receiver, |mut receiver| async move {
        let text = receiver.recv().await?;
        Some((Ok(Frame::data(Bytes::from(format!("data: {text}\n\n")))), receiver))
    });
    let mut answer = Response::new(BodyExt::boxed_unsync(StreamBody::new(events)));
    answer.headers_mut().insert("content-type", "text/event-stream".parse().expect("a header"));
    (sender, answer)
}

/// Shows `take` the messages of a stream until it has enough, or there are no more.
pub(super) async fn read_events(response: Response<Incoming>, mut take: impl FnMut(&Value) -> bool) {
    let (mut body, mut text) = (response.into_body(), String::new());
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        text.push_str(&String::from_utf8_lossy(&data));
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            let data = event.lines().filter_map(|line| line.strip_prefix("data:")).collect::<String>();
            if let Ok(message) = serde_json::from_str(data.trim())
                && take(&message)
            {
                return;
            }
        }
    }
}
