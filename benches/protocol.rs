//! Time of reading and changing messages: `cargo bench --bench protocol`.
//!
//! Three columns read the same body: `envelope` is what a call pays, with all its checks; `serde_json`
//! deserialises the same fields with none of them; `raw_value` only asks whether the body is JSON.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]
#![allow(clippy::unwrap_used, reason = "every message here is good")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gateway::{Metrics, SessionRequest, Sessions};
use identity::sealed::Seals;
use identity::sealed::access_token::{AccessToken, KnownOfPrincipal};
use identity::sealed::fingerprint::{Fingerprint, GrantId};
use protocol::envelope::Envelope;
use protocol::header::{decode_value, encode_value};
use protocol::json::Scratch;
use protocol::mapping::{Shape, may_contain_names, sites};
use protocol::method::Method;
use protocol::splice::{Edit, splice};
use protocol::sse::{Boundary, Events};
use protocol::version::LegacyVersion;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

mod messages;

const DEPTH_MAX: usize = 128;

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the reading is measured")]
struct Message<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the reading is measured")]
struct Params<'a> {
    name: &'a str,
    arguments: IgnoredAny,
    #[serde(borrow)]
    _meta: &'a RawValue,
}

fn reading(criterion: &mut Criterion, name: &str, bodies: &[(String, Vec<u8>)]) {
    let mut group = criterion.benchmark_group(name);
    for (label, body) in bodies {
        group.throughput(Throughput::Bytes(body.len() as u64));
        let mut scratch = Scratch::default();
        group.bench_with_input(BenchmarkId::new("envelope", label), body, |bencher, body| {
            bencher.iter(|| Envelope::parse(&mut scratch, black_box(body), DEPTH_MAX).unwrap());
        });
        group.bench_with_input(BenchmarkId::new("serde_json", label), body, |bencher, body| {
            bencher.iter(|| {
                let text = std::str::from_utf8(black_box(body)).unwrap();
                black_box(serde_json::from_str::<Message<'_>>(text).unwrap());
            });
        });
        group.bench_with_input(BenchmarkId::new("raw_value", label), body, |bencher, body| {
            bencher.iter(|| {
                let text = std::str::from_utf8(black_box(body)).unwrap();
                black_box(serde_json::from_str::<&RawValue>(text).unwrap());
            });
        });
    }
    group.finish();
}

fn envelope(criterion: &mut Criterion) {
    let sizes = [("0.4k", 0), ("2k", 2 << 10), ("20k", 20 << 10), ("200k", 200 << 10), ("1M", 1 << 20)];
    let bodies = sizes.map(|(label, bytes)| (label.to_owned(), messages::call(bytes)));
    reading(criterion, "call", &bodies);
    let bodies = sizes.map(|(label, bytes)| (label.to_owned(), messages::structured_call(bytes)));
    reading(criterion, "structured_call", &bodies[1..]);
    let bodies = messages::hostile().map(|(label, body)| (label.to_owned(), body));
    reading(criterion, "hostile", &bodies);
}

fn changing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("splice");
    for bytes in [2 << 10, 1 << 20] {
        let original = Bytes::from(messages::call(bytes));
        let mut scratch = Scratch::default();
        let name = Envelope::parse(&mut scratch, &original, DEPTH_MAX).unwrap().name.unwrap();
        let edits = [Edit { span: name.span, with: Bytes::from_static(b"\"forecast\"") }];
        group.bench_function(BenchmarkId::new("one_edit", bytes), |bencher| {
            bencher.iter(|| splice(black_box(&original), black_box(&edits)));
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("header");
    for value in ["weather__forecast", "Grüße"] {
        let header = encode_value(value).into_owned();
        group.bench_function(BenchmarkId::new("encode", &header), |bencher| {
            bencher.iter(|| black_box(encode_value(black_box(value))).len());
        });
        group.bench_function(BenchmarkId::new("decode", &header), |bencher| {
            bencher.iter(|| black_box(decode_value(black_box(header.as_bytes()))).map(|value| value.len()));
        });
    }
    group.finish();
}

fn mapping(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mapping");
    for bytes in [1 << 10, 20 << 10, 1 << 20] {
        let reply = messages::text_reply(bytes);
        group.throughput(Throughput::Bytes(reply.len() as u64));
        group.bench_function(BenchmarkId::new("may_contain_names", bytes), |bencher| {
            bencher.iter(|| may_contain_names(black_box(&reply)));
        });
    }
    for links in [1, 20, 1000] {
        let reply = messages::reply(links);
        group.throughput(Throughput::Bytes(reply.len() as u64));
        let (mut scratch, mut found) = (Scratch::default(), Vec::new());
        group.bench_function(BenchmarkId::new("index_and_sites", links), |bencher| {
            bencher.iter(|| {
                found.clear();
                let message = scratch.index(black_box(&reply), DEPTH_MAX).unwrap().root();
                sites(message, Shape::Reply(Some(Method::ToolsCall)), &mut found);
                found.len()
            });
        });
    }
    group.finish();
}

fn streams(criterion: &mut Criterion) {
    let event = [b"event: message\ndata: ", &*messages::text_reply(400), b"\n\n"].concat();
    let chunk = Bytes::from(event.repeat(100));
    let mut group = criterion.benchmark_group("sse");
    group.throughput(Throughput::Bytes(chunk.len() as u64));
    group.bench_function("events", |bencher| {
        bencher.iter(|| {
            let mut events = Events::new(1 << 20);
            events.push(chunk.clone());
            std::iter::from_fn(|| events.next()).flatten().count()
        });
    });
    group.bench_function("boundary", |bencher| {
        bencher.iter(|| {
            let mut boundary = Boundary::default();
            boundary.push(black_box(&chunk));
            boundary.at_boundary()
        });
    });
    group.finish();
}

/// What a call of an established legacy session pays for its session id.
fn sessions(criterion: &mut Criterion) {
    let text = "[listener]\naddress = '127.0.0.1:0'\n[[endpoint]]\npath = '/mcp'\nupstreams = ['a']\n\
        [upstream.a]\nurl = 'http://127.0.0.1:1/'";
    let config = config::parse(text).unwrap();
    let sessions = Sessions::unshared(&config, &Metrics::new(1).unwrap()).unwrap();
    let opening = SessionRequest {
        endpoint: "/mcp",
        principal: "key:ci",
        version: LegacyVersion::NEWEST,
        client_name: "example-client",
        client_title: "Example client",
        client_version: "1.0.0",
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#,
        address: None,
    };
    let (_, token) = sessions.issue(&opening, 1).unwrap();
    let mut group = criterion.benchmark_group("session");
    group.bench_function("issue", |bencher| bencher.iter(|| sessions.issue(black_box(&opening), 1)));
    group.bench_function("open", |bencher| {
        bencher.iter(|| sessions.open(black_box(&token), "/mcp", "key:ci", 1).unwrap());
    });
    let forged = format!("{}A", &token[..token.len() - 1]);
    group.bench_function("forged", |bencher| {
        bencher.iter(|| sessions.open(black_box(&forged), "/mcp", "key:ci", 1).is_err());
    });
    group.finish();
}

/// What the first call with a token of a sign-in pays for it; those that follow pay one comparison.
fn first_sight(criterion: &mut Criterion) {
    const ISSUER: &str = "https://mcp.example.com";
    const ENDPOINT: &str = "https://mcp.example.com/mcp";
    let seals = Seals::ephemeral(&[7; 32]).unwrap();
    let mut group = criterion.benchmark_group("sign_in");
    for groups in [1, 16] {
        let known = KnownOfPrincipal {
            scopes: vec!["mcp:read".into(), "mcp:write".into()],
            groups: (0..groups).map(|number| format!("a group of people, number {number}")).collect(),
            ..KnownOfPrincipal::default()
        };
        let token = AccessToken {
            grant: GrantId([1; 16]),
            endpoint: Fingerprint::of(&[ENDPOINT]),
            client: Fingerprint::of(&["client"]),
            principal: "jwt:https://login.example.com 7a1f3c52-9b0e-4f7d-8a56-2f3d5c7e9b11".into(),
            issued_s: 1,
            expires_s: 3601,
            known: Some(known),
        };
        let text = token.issue(&seals, [9; 12], ISSUER).unwrap();
        group.bench_function(BenchmarkId::new("first_sight", groups), |bencher| {
            bencher.iter(|| {
                let token: AccessToken = seals.open(black_box(&text), ISSUER, 2).unwrap();
                token.is_for(black_box(ENDPOINT)) && token.known.is_some()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, envelope, changing, mapping, streams, sessions, first_sight);
criterion_main!(benches);
