//! How the server takes requests that are not as they should be, and the form of its answers.

use crate::doctor::facts::{Answer, Exchange, Facts, Probe};
use crate::doctor::request::subscription_id;
use crate::doctor::rule::InspectionRule;
use crate::doctor::rules::requests as rules;
use crate::doctor::sheet::{Refusal, Sheet};

/// Revisions that have no `MCP-Protocol-Version`.
const HEADERLESS: [&str; 2] = ["2025-03-26", "2024-11-05"];
const MISMATCH: Refusal = Refusal::new(&[400], &[-32020]);

/// Requests that must be refused: by which rule, what they are, and how.
const REFUSALS: &[(Probe, &InspectionRule, &str, Refusal)] = &[
    (Probe::UnknownMethod, &rules::UNKNOWN_METHOD, "since 2026", Refusal::new(&[404], &[-32601])),
    (Probe::LegacyUnknownMethod, &rules::UNKNOWN_METHOD, "before 2026", Refusal::new(&[200], &[-32601])),
    (Probe::PlainText, &rules::CONTENT_TYPE, "Content-Type: text/plain", Refusal::new(&[], &[])),
    (Probe::Batch, &rules::BATCH, "an array with one request", Refusal::new(&[], &[])),
];

/// Those where it matters most that they are refused at all.
const CONTRADICTIONS: &[(Probe, &InspectionRule, &str, Refusal)] = &[
    (Probe::NoVersionHeader, &rules::HEADER_MISSING, "no MCP-Protocol-Version", MISMATCH),
    (Probe::NoMethodHeader, &rules::HEADER_MISSING, "no Mcp-Method", MISMATCH),
    (Probe::NoNameHeader, &rules::HEADER_MISSING, "no Mcp-Name", MISMATCH),
    (Probe::OtherVersionHeader, &rules::HEADER_MISMATCH, "another MCP-Protocol-Version", MISMATCH),
    (Probe::OtherMethodHeader, &rules::HEADER_MISMATCH, "another Mcp-Method", MISMATCH),
    (Probe::OtherNameHeader, &rules::HEADER_MISMATCH, "another Mcp-Name", MISMATCH),
    (Probe::NoMeta, &rules::META_MISSING, "no clientCapabilities", Refusal::new(&[400], &[-32602])),
];

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    for (probe, rule, what, refusal) in REFUSALS {
        sheet.refused(facts, *probe, rule, what, *refusal);
    }
    // A server that has revisions without this header may take a request without it for one of them.
    let may_be_old = facts.legacy.iter().any(|(_, found)| HEADERLESS.contains(&found.version.as_str()));
    for (probe, rule, what, refusal) in CONTRADICTIONS {
        if *probe == Probe::NoVersionHeader && may_be_old {
            let is_taken = |exchange: &&Exchange| exchange.result().is_some();
            if let Some(exchange) = facts.answer(*probe) {
                let seen =
                    Some(exchange).filter(is_taken).map(|taken| format!("{what}: got {}", taken.words()));
                sheet.judge(rule, seen);
            }
            continue;
        }
        sheet.refused_or(facts, *probe, [rule, &rules::REFUSAL], what, *refusal);
    }
    if facts.modern.is_some() && facts.is_http() {
        sheet.kept(&rules::REFUSAL);
    }
    if facts.listings.iter().any(|listing| listing.pages.len() > 1) {
        let refusal = Refusal::new(&[200, 400], &[-32602]);
        sheet.refused(facts, Probe::BadCursor, &rules::BAD_CURSOR, "an invented cursor", refusal);
    }
    encoding(facts, sheet);
    unknown_name(facts, sheet);
    accept(facts, sheet);
    garbage(facts, sheet);
    notification(facts, sheet);
    listen(facts, sheet);
    if let Some(exchange) = facts.answer(Probe::OldBatch) {
        let is_answered = matches!(exchange.answer, Answer::Result(_));
        sheet.judge(
            &rules::BATCH_OLD,
            (!is_answered).then(|| format!("an array with one ping got {}", exchange.words())),
        );
    }
    if let Some(exchange) = facts.answer(Probe::Ping) {
        let is_answered = exchange.result().is_some();
        sheet.judge(&rules::PING, (!is_answered).then(|| format!("ping got {}", exchange.words())));
    }
    form(facts, sheet);
    silence(facts, sheet);
}

fn encoding(facts: &Facts, sheet: &mut Sheet) {
    let Some(exchange) = facts.answer(Probe::EncodedName) else { return };
    let is_refused = exchange.error().is_some_and(|error| error.code == -32020);
    sheet.judge(
        &rules::NAME_ENCODING,
        is_refused.then(|| format!("Mcp-Name in Base64 form got {}", exchange.words())),
    );
}

/// What a server does with an `Accept` that clients must not send is its own choice, as long as it is understood.
fn accept(facts: &Facts, sheet: &mut Sheet) {
    for (probe, what, is_any_form_right) in
        [(Probe::JsonOnly, "Accept: application/json", false), (Probe::NoAccept, "no Accept", true)]
    {
        let Some(exchange) = facts.answer(probe).filter(|exchange| exchange.answer != Answer::Silence) else {
            continue;
        };
        let is_refused = exchange.status.is_some_and(|status| (400..500).contains(&status));
        let is_read = is_any_form_right || exchange.media == "application/json";
        let is_right = is_refused || is_read && exchange.result().is_some();
        let seen = (!is_right).then(|| {
            let form = if exchange.media == "text/event-stream" { " as text/event-stream" } else { "" };
            format!("{what}: got {}{form}", exchange.words())
        });
        sheet.judge(&rules::ACCEPT, seen);
    }
}

/// Many servers answer a call of a tool that is not there with a result that says so, as the specification
/// once had it.
fn unknown_name(facts: &Facts, sheet: &mut Sheet) {
    let probes = [(Probe::UnknownName, "since 2026"), (Probe::LegacyUnknownName, "before 2026")];
    for (probe, what) in probes {
        let what = format!("a name that is not there, {what}");
        sheet.refused(facts, probe, &rules::UNKNOWN_NAME, &what, Refusal::new(&[200, 400, 404], &[-32602]));
    }
}

fn garbage(facts: &Facts, sheet: &mut Sheet) {
    if facts.is_http() {
        // No revision says more than that it must be refused.
        let refusal = Refusal::new(&[400, 413, 415, 422], &[]);
        sheet.refused(facts, Probe::Garbage, &rules::GARBAGE, "half an object", refusal);
    } else if let Some(exchange) = facts.answer(Probe::AfterGarbage) {
        let goes_on = matches!(exchange.answer, Answer::Result(_) | Answer::Error(_));
        sheet.judge(
            &rules::GARBAGE,
            (!goes_on).then(|| format!("the request after half an object got {}", exchange.words())),
        );
    }
}

fn notification(facts: &Facts, sheet: &mut Sheet) {
    for (probe, what) in
        [(Probe::Notification, "an unknown one"), (Probe::Initialized, "notifications/initialized")]
    {
        let Some(exchange) = facts.answer(probe).filter(|_| facts.is_http()) else { continue };
        if exchange.answer == Answer::Silence {
            continue;
        }
        let is_right = match exchange.status {
            Some(202) => exchange.answer == Answer::Nothing,
            Some(status) => status >= 400 && probe == Probe::Notification,
            None => false,
        };
        sheet.judge(&rules::NOTIFICATION, (!is_right).then(|| format!("{what} got {}", exchange.words())));
    }
}

fn listen(facts: &Facts, sheet: &mut Sheet) {
    let Some(exchange) = facts.answer(Probe::Listen) else { return };
    if exchange.media == "text/event-stream" {
        sheet.judge(&rules::BUFFERING, (!exchange.is_unbuffered).then(|| "subscriptions/listen".to_owned()));
    }
    let first = exchange.remarks.first();
    let method = first.and_then(|first| first.get("method")?.as_str());
    let seen = match (first, method) {
        (Some(first), Some("notifications/subscriptions/acknowledged")) => match subscription_id(first) {
            Some(id) if id.as_str() == Some("listen") => None,
            Some(_) => {
                Some("the acknowledgement has another subscriptionId than the request's id".to_owned())
            }
            None => Some("the acknowledgement has no subscriptionId".to_owned()),
        },
        (Some(_), Some(method)) => Some(format!("the first message is {method}")),
        (Some(_), None) => Some("the first message is none that belongs there".to_owned()),
        (None, _) => {
            Some(format!("listChanged is declared, but subscriptions/listen got {}", exchange.words()))
        }
    };
    sheet.judge(&rules::LISTEN, seen);
}

/// What is wrong with the form of any answer.
fn form(facts: &Facts, sheet: &mut Sheet) {
    let mut seen: Vec<String> = Vec::new();
    for exchange in facts.exchanges.values() {
        // The status of a refusal says enough to clients of before 2026, which read no further.
        if facts.modern.is_none() && exchange.status.is_some_and(|status| status >= 400) {
            continue;
        }
        if let Some(fault) = exchange.form_fault.as_ref().filter(|fault| !seen.contains(fault)) {
            seen.push(fault.clone());
        }
    }
    for (probe, exchange) in &facts.exchanges {
        let is_answered = matches!(exchange.answer, Answer::Result(_) | Answer::Error(_));
        let is_wrong = is_answered
            && exchange.result().is_some_and(|result| !result.is_object())
            && *probe != Probe::OldBatch
            && *probe != Probe::Batch;
        let fault = "a result is not an object".to_owned();
        if is_wrong && !seen.contains(&fault) {
            seen.push(fault);
        }
    }
    // A server that introduced itself has answered something.
    sheet.judge(&rules::ANSWER_FORM, seen);
}

fn silence(facts: &Facts, sheet: &mut Sheet) {
    let silent = facts.exchanges.iter().filter(|(_, exchange)| exchange.answer == Answer::Silence);
    let mut seen: Vec<String> = silent
        // A server of before 2026 need not answer what it does not know before initialize.
        .filter(|(probe, _)| !(**probe == Probe::Discover && facts.modern.is_none()))
        .map(|(probe, _)| format!("{probe:?}"))
        .collect();
    if let Some(why) = &facts.cut_short {
        if seen.is_empty() {
            return;
        }
        seen.push(format!("the inspection ended early: {why}"));
    }
    sheet.judge(&rules::SILENCE, seen);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::facts::Reached;
    use client::{Introduction, RpcError};
    use protocol::version::Era;

    fn error(status: u16, code: i64) -> Exchange {
        let answer = Answer::Error(RpcError { code, message: String::new(), data: None, status: None });
        Exchange { status: Some(status), ..Exchange::failed(answer, Duration::ZERO) }
    }

    fn result(value: Value) -> Exchange {
        Exchange { status: Some(200), ..Exchange::failed(Answer::Result(value), Duration::ZERO) }
    }

    fn broken(probe: Probe, exchange: Exchange) -> Vec<&'static str> {
        let mut facts = Facts {
            reached: Reached::Http { is_tls: true, is_loopback: true },
            modern: Some(Introduction::read(Era::Modern, "2026-07-28", json!({}))),
            ..Facts::default()
        };
        facts.exchanges.insert(probe, exchange);
        let mut sheet = Sheet::default();
        check(&facts, &mut sheet);
        sheet.outcomes.iter().filter(|outcome| !outcome.is_kept).map(|outcome| outcome.rule.id).collect()
    }

    #[test]
    fn what_is_wrong_must_be_refused_and_in_the_right_way() {
        for (probe, exchange, expected) in [
            (Probe::NoMethodHeader, error(400, -32020), vec![]),
            (Probe::NoMethodHeader, error(400, -32600), vec!["refusal"]),
            (Probe::NoMethodHeader, result(json!({})), vec!["header-missing"]),
            (Probe::OtherNameHeader, error(200, -32602), vec!["refusal"]),
            (Probe::OtherNameHeader, result(json!({})), vec!["header-mismatch"]),
            (Probe::UnknownMethod, error(404, -32601), vec![]),
            (Probe::UnknownMethod, error(200, -32601), vec!["unknown-method"]),
            (Probe::LegacyUnknownMethod, error(200, -32601), vec![]),
            (Probe::LegacyUnknownMethod, error(404, -32601), vec!["unknown-method"]),
            (Probe::EncodedName, error(400, -32020), vec!["name-encoding"]),
            (Probe::EncodedName, error(200, -32602), vec![]),
            (Probe::Garbage, error(400, -32700), vec![]),
            (Probe::Garbage, error(500, -32603), vec!["garbage"]),
            (Probe::Batch, result(json!([])), vec!["batch"]),
            (Probe::OldBatch, result(json!([])), vec![]),
            (Probe::OldBatch, error(400, -32600), vec!["old-batch"]),
            (Probe::Ping, error(200, -32601), vec!["ping"]),
            (Probe::Ping, result(json!(7)), vec!["answer-form"]),
            (Probe::Ping, Exchange::failed(Answer::Silence, Duration::ZERO), vec!["ping", "silence"]),
            (Probe::Notification, result(json!({})), vec!["notification"]),
            (Probe::Notification, error(400, -32600), vec![]),
            (Probe::Initialized, error(400, -32600), vec!["notification"]),
            (Probe::Listen, error(404, -32601), vec!["listen"]),
        ] {
            assert_eq!(broken(probe, exchange.clone()), expected, "{probe:?} {exchange:?}");
        }
    }

    #[test]
    fn any_accept_is_answered_or_refused() {
        let of = |media: &str, exchange: Exchange| Exchange { media: media.to_owned(), ..exchange };
        let (json, stream) = ("application/json", "text/event-stream");
        for (probe, exchange, expected) in [
            (Probe::JsonOnly, of(json, result(json!({}))), vec![]),
            (Probe::JsonOnly, of(json, error(406, -32000)), vec![]),
            (Probe::JsonOnly, of("text/html", error(400, -32600)), vec![]),
            (Probe::JsonOnly, of(stream, result(json!({}))), vec!["accept"]),
            (Probe::JsonOnly, of(json, error(500, -32603)), vec!["accept"]),
            (Probe::NoAccept, of(stream, result(json!({}))), vec![]),
            (Probe::NoAccept, of(json, error(406, -32000)), vec![]),
            (Probe::NoAccept, of(json, error(500, -32603)), vec!["accept"]),
        ] {
            assert_eq!(broken(probe, exchange.clone()), expected, "{probe:?} {exchange:?}");
        }
    }

    #[test]
    fn the_acknowledgement_is_first_and_has_the_id() {
        let acknowledged = |id: Value| {
            let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
            json!({"method": "notifications/subscriptions/acknowledged", "params": {"_meta": meta}})
        };
        for (first, expected) in [
            (acknowledged(json!("listen")), vec![]),
            (acknowledged(json!(1)), vec!["listen"]),
            (acknowledged(Value::Null), vec!["listen"]),
            (json!({"method": "notifications/tools/list_changed"}), vec!["listen"]),
            (json!({}), vec!["listen"]),
        ] {
            let exchange = Exchange { remarks: vec![first.clone()], ..error(200, 0) };
            let exchange = Exchange { answer: Answer::Nothing, ..exchange };
            assert_eq!(broken(Probe::Listen, exchange), expected, "{first}");
        }
    }
}
