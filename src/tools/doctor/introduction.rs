//! How a server introduces itself, read from the answers to `server/discover` and `initialize`. Pure.

use serde_json::{Value, json};

use super::facts::{Answer, Exchange, clip};
use client::Introduction;
use protocol::version::{Era, MODERN};

/// Errors that only servers of the modern era know.
const MODERN_ERRORS: [i64; 3] = [-32020, -32021, -32022];
const CHARS_MAX: usize = 200;
const VERSIONS_MAX: usize = 20;

/// The introduction that the answer to `server/discover` is; `None` if it is not one of the modern era.
pub(super) fn modern(exchange: &Exchange) -> Option<Introduction> {
    match &exchange.answer {
        Answer::Result(result) if result.get("supportedVersions").is_some() => {
            let supported = strings(result.get("supportedVersions"));
            Some(Introduction { supported, ..of(Era::Modern, MODERN[0], result) })
        }
        Answer::Error(error) if MODERN_ERRORS.contains(&error.code) => {
            let supported = strings(error.data.as_ref().and_then(|data| data.get("supported")));
            let is_modern =
                supported.is_empty() || supported.iter().any(|version| MODERN.contains(&version.as_str()));
            is_modern.then(|| Introduction { supported, ..of(Era::Modern, MODERN[0], &json!({})) })
        }
        _ => None,
    }
}

/// The introduction that the answer to `initialize` is.
pub(super) fn legacy(exchange: &Exchange) -> Option<Introduction> {
    let result = exchange.result()?;
    let version = result.get("protocolVersion")?.as_str()?;
    Some(of(Era::Legacy, &clip(version, 40), result))
}

/// What a server says of itself, cut to what is shown.
fn of(era: Era, version: &str, result: &Value) -> Introduction {
    let mut result = result.clone();
    // It says nothing about a server of this era.
    if era == Era::Legacy
        && let Some(members) = result.as_object_mut()
    {
        members.remove("_meta");
    }
    let mut introduction = Introduction::read(era, version, result);
    let Introduction { name, title, server_version, .. } = &mut introduction;
    for text in [name, title, server_version] {
        *text = text.take().filter(|text| !text.is_empty()).map(|text| clip(&text, CHARS_MAX));
    }
    introduction
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(Value::as_str).take(VERSIONS_MAX).map(|text| clip(text, 40)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use client::RpcError;

    #[test]
    fn eras_are_told_by_the_answers() {
        let error = |code, data| Answer::Error(RpcError { code, message: String::new(), data, status: None });
        for (answer, supported) in [
            (Answer::Result(json!({"supportedVersions": ["2026-07-28", 1]})), Some(vec!["2026-07-28"])),
            (Answer::Result(json!({"tools": []})), None),
            (error(-32020, None), Some(vec![])),
            (error(-32022, Some(json!({"supported": ["2026-07-28"]}))), Some(vec!["2026-07-28"])),
            (error(-32022, Some(json!({"supported": ["2025-11-25"]}))), None),
            (error(-32601, None), None),
            (Answer::Silence, None),
        ] {
            let found = modern(&Exchange::failed(answer.clone(), Duration::ZERO));
            let expected =
                supported.map(|versions| versions.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(found.map(|introduction| introduction.supported), expected, "{answer:?}");
        }
    }

    #[test]
    fn an_introduction_holds_what_is_text() {
        let result = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "instructions": 7,
            "serverInfo": {"name": "a", "version": "", "title": "x".repeat(300)},
        });
        let found = legacy(&Exchange::failed(Answer::Result(result), Duration::ZERO)).unwrap();
        assert_eq!(
            (found.version.as_str(), found.name.as_deref(), found.server_version),
            ("2025-11-25", Some("a"), None)
        );
        assert_eq!(found.title.unwrap().chars().count(), CHARS_MAX + 1);
        assert!(found.instructions.is_none());
    }
}
