//! Results of the modern era that need input first (2026-07-28, "Multi Round-Trip Requests"): the user is asked, and
//! the request sent again with the answers.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::connection::Client;
use super::error::RequestError;

/// How often a server may ask before its result.
const ROUNDS_MAX: usize = 50;
/// Questions in one round.
const QUESTIONS_MAX: usize = 16;
/// The pause before a request is sent again without having asked anybody, which grows.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The result of a request, after as many rounds as it takes.
pub(super) async fn result(client: &Client, method: &str, params: Value) -> Result<Value, RequestError> {
    let mut next = params.clone();
    let mut pause = PAUSE;
    for _ in 0..=ROUNDS_MAX {
        let result = client.exchange(method, next).await?;
        match result.get("resultType").and_then(Value::as_str).unwrap_or("complete") {
            "complete" => return Ok(result),
            "input_required" => {}
            other => {
                let why = format!("it has the unknown resultType {other:?}");
                return Err(RequestError::Invalid { method: method.to_owned(), why });
            }
        }
        next = params.clone();
        let questions = result.get("inputRequests").and_then(Value::as_object);
        if let Some(questions) = questions {
            let responses = responses(client, method, questions).await?;
            put(&mut next, "inputResponses", Value::Object(responses));
        } else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        if let Some(state) = result.get("requestState") {
            put(&mut next, "requestState", state.clone());
        }
    }
    Err(RequestError::AskedTooOften(ROUNDS_MAX))
}

async fn responses(
    client: &Client,
    method: &str,
    questions: &Map<String, Value>,
) -> Result<Map<String, Value>, RequestError> {
    let invalid = |why: &str| RequestError::Invalid { method: method.to_owned(), why: why.to_owned() };
    if questions.len() > QUESTIONS_MAX {
        return Err(invalid("it asks more questions than are answered"));
    }
    let mut responses = Map::new();
    let none = json!({});
    for (key, question) in questions {
        let asked = question.get("method").and_then(Value::as_str);
        let asked = asked.ok_or_else(|| invalid("one of its inputRequests has no method"))?;
        let answer = client.handler().ask_user(asked, question.get("params").unwrap_or(&none)).await;
        let answer = answer
            .map_err(|refusal| RequestError::Unanswered { method: asked.to_owned(), why: refusal.message })?;
        responses.insert(key.clone(), answer);
    }
    Ok(responses)
}

fn put(params: &mut Value, key: &str, value: Value) {
    if let Some(members) = params.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}
