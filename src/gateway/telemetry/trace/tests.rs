use std::net::Ipv4Addr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, StatusCode};
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;

use super::*;
use crate::identity::Principal;
use crate::telemetry::request_id::RequestId;
use protocol::error::{Error, Reason, UpstreamError};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_str(value).expect("a value"));
    }
    headers
}

fn call_span(headers: &HeaderMap) -> CallSpan {
    let fields = &Fields::from(headers);
    let mut span = CallSpan::new(trace_id(7), fields);
    if let Some(parent) = Parent::of(fields) {
        span.has_parent(parent, TraceNotes::of(fields));
    }
    span
}

fn ended(name: Option<&str>, reason: Option<Reason>) -> CallRecord<'_> {
    let started = crate::clock::now();
    CallRecord {
        request_id: &RequestId::Own { thread: 0, number: 0 },
        version: None,
        request_bytes: 0,
        reply_bytes: 0,
        started,
        ended: started + Duration::from_millis(20),
        endpoint: Some("/mcp"),
        method: "tools/call",
        name,
        upstream: Some("up"),
        principal: &Principal::Anonymous,
        client: Ipv4Addr::LOCALHOST.into(),
        status: Some(200),
        reason,
        message: None,
        trace_id: None,
    }
}

fn spans(span: &CallSpan, call: &CallRecord<'_>) -> Vec<SpanData> {
    finished::spans(&InstrumentationScope::builder("trunkline").build(), span, call)
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
    found.map(|attribute| attribute.value.to_string())
}

#[test]
fn an_upstream_is_told_of_the_span_of_its_exchange() {
    for (pairs, has_state) in [
        (&[("traceparent", PARENT), ("tracestate", "a=1")][..], true),
        (&[("traceparent", PARENT), ("tracestate", "nonsense")], false),
        // Without a parent it belongs to nothing.
        (&[("tracestate", "a=1")], false),
        (&[("traceparent", "00-1-2-01"), ("tracestate", "a=1")], false),
    ] {
        let headers = headers(pairs);
        let mut span = call_span(&headers);
        let mut request = Request::new(());
        *request.headers_mut() = headers;
        request.headers_mut().insert("mcp-name", HeaderValue::from_static("inner"));
        span.leaves(request.headers_mut(), false);
        let sent = Parent::of(&Fields::from(request.headers())).expect("a parent");
        assert_eq!(request.headers().contains_key("tracestate"), has_state, "{pairs:?}");
        let made = spans(&span, &ended(Some("up__inner"), None));
        let [client, server] = &made[..] else { panic!("{made:?}") };
        assert_eq!(client.span_context.span_id().to_bytes(), sent.span_id);
        assert_eq!(client.span_context.trace_id().to_bytes(), sent.trace_id);
        assert_eq!(client.parent_span_id, server.span_context.span_id());
        assert_eq!((&client.span_kind, &*client.name), (&SpanKind::Client, "tools/call inner"));
        assert_eq!((&server.span_kind, &*server.name), (&SpanKind::Server, "tools/call up__inner"));
        assert!(server.start_time <= client.start_time && client.end_time <= server.end_time);
    }
}

#[test]
fn a_failed_exchange_is_no_failed_call() {
    let mut span = call_span(&headers(&[("traceparent", PARENT)]));
    for is_second in [false, true] {
        let mut request = Request::new(());
        let trail = span.leaves(request.headers_mut(), false);
        trail.goes_to("10.0.0.1", 9000);
        if is_second {
            trail.goes_again();
            trail.is_answered(StatusCode::OK);
            span.returned(None);
        } else {
            span.returned(Some(&Error::Upstream(UpstreamError::SessionLost)));
        }
    }
    let made = spans(&span, &ended(Some("echo"), None));
    let [first, second, server] = &made[..] else { panic!("{made:?}") };
    let lost = Error::Upstream(UpstreamError::SessionLost).outcome().reason;
    assert_eq!(attribute(first, "error.type").as_deref(), Some(lost.label()));
    assert!(matches!(first.status, Status::Error { .. }));
    assert_eq!(attribute(first, "http.response.status_code"), None);
    assert_eq!(attribute(second, "http.request.resend_count").as_deref(), Some("1"));
    assert_eq!(attribute(second, "http.response.status_code").as_deref(), Some("200"));
    assert_eq!(attribute(second, "server.address").as_deref(), Some("10.0.0.1"));
    for span in [second, server] {
        assert_eq!((attribute(span, "error.type"), &span.status), (None, &Status::Unset));
    }
}

#[test]
fn an_open_exchange_ends_as_the_call_does() {
    let mut span = call_span(&HeaderMap::new());
    span.leaves(&mut HeaderMap::new(), true);
    let made = spans(&span, &ended(Some("echo"), Some(Reason::Cancelled)));
    for span in &made {
        assert_eq!(attribute(span, "error.type").as_deref(), Some(Reason::Cancelled.label()), "{span:?}");
    }
    assert_eq!(attribute(&made[0], "network.transport").as_deref(), Some("pipe"));
    assert_eq!(made[1].parent_span_id, opentelemetry::trace::SpanId::INVALID);
}

#[test]
fn names_are_shortened_and_clean() {
    let long = format!("a\u{1b}[31m\n{}", "x".repeat(500));
    let made = spans(&call_span(&HeaderMap::new()), &ended(Some(&long), None));
    let name = &made[0].name;
    assert!(name.starts_with("tools/call a\\u{1b}[31m\\u{a}x") && name.chars().count() < 150, "{name}");
}
