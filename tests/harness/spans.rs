//! A receiver of spans: OTLP over HTTP on a loopback socket, which records what it is sent and answers as told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;

use super::eventually;

/// What a receiver answers that takes everything.
pub(crate) const TAKEN: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";

/// Takes spans until it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    heads: Vec<String>,
    spans: Vec<Span>,
}

/// A span as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) trace_id: String,
    pub(crate) id: String,
    /// Empty if it has no parent.
    pub(crate) parent_id: String,
    pub(crate) state: String,
    pub(crate) nanoseconds: u64,
    pub(crate) is_error: bool,
    pub(crate) attributes: BTreeMap<String, String>,
    /// What it says of the process.
    pub(crate) resource: BTreeMap<String, String>,
}

impl Receiver {
    /// One that takes everything.
    pub(crate) fn start() -> Self {
        Self::answering(TAKEN)
    }

    /// One that answers every batch with these bytes; with none, it does not answer and keeps the connection.
    pub(crate) fn answering(answer: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let taking = Arc::downgrade(&seen);
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(seen) = taking.upgrade() else { return };
                if let Some((head, body)) = read(&stream) {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.heads.push(head);
                    seen.spans.extend(spans(&body));
                }
                let _ = (&stream).write_all(answer);
                if answer.is_empty() {
                    kept.push(stream);
                }
            }
        });
        Self { address, seen }
    }

    /// The table that sends everything here.
    pub(crate) fn table(&self, lines: &str) -> String {
        format!("[trace]\nendpoint = \"http://{}/v1/traces\"\n{lines}", self.address)
    }

    /// The heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).heads.clone()
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).spans.clone()
    }

    /// Waits for this many spans.
    pub(crate) fn wait(&self, count: usize) -> Vec<Span> {
        eventually(&format!("{count} spans arrive"), || {
            Some(self.spans()).filter(|spans| spans.len() >= count)
        })
    }

    /// Waits for a call's span and that of its exchange.
    pub(crate) fn wait_pair(&self) -> (Span, Span) {
        let spans = self.wait(2);
        let of = |kind| {
            let mut found = spans.iter().filter(|span| span.kind == kind);
            match (found.next(), found.next()) {
                (Some(span), None) => span.clone(),
                _ => panic!("not one {kind:?} in {spans:?}"),
            }
        };
        (of(SpanKind::Server), of(SpanKind::Client))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.seen = Arc::default();
        let _ = TcpStream::connect(self.address);
    }
}

impl Span {
    /// An attribute as text.
    pub(crate) fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }
}

fn read(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let mut body = vec![0; length.trim().parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn spans(body: &[u8]) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).expect("spans as protobuf");
    let mut spans = Vec::new();
    for of_process in request.resource_spans {
        let resource = map(of_process.resource.expect("a resource").attributes);
        for span in of_process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Span {
                kind: span.kind(),
                trace_id: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent_id: hex(&span.parent_span_id),
                state: span.trace_state,
                nanoseconds: span.end_time_unix_nano.checked_sub(span.start_time_unix_nano).expect("forward"),
                is_error: span.status.is_some_and(|status| status.code == 2),
                attributes: map(span.attributes),
                name: span.name,
                resource: resource.clone(),
            });
        }
    }
    spans
}

fn map(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("an attribute of another kind: {other:?}"),
    };
    attributes.into_iter().map(|attribute| (attribute.key, text(attribute.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
