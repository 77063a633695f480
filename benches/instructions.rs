//! Instructions of reading and changing messages, which do not vary with the load of the machine:
//! `cargo bench --bench instructions --features instructions`.
//!
//! It needs valgrind, and the program `gungraun-runner` of the same version as the library
//! (`cargo install gungraun-runner --version …`).
#![allow(missing_docs, reason = "gungraun's macros write undocumented items")]
#![allow(clippy::unwrap_used, reason = "every message here is good")]

use std::hint::black_box;

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group, main};
use protocol::envelope::Envelope;
use protocol::header::decode_value;
use protocol::json::Scratch;
use protocol::mapping::{Shape, Site, may_contain_names, sites};
use protocol::method::Method;
use protocol::splice::{Edit, Segments, splice};

mod messages;

const DEPTH_MAX: usize = 128;

/// A scratch that has read the body before, as a worker's has. A benchmark hands it back, because what
/// freeing its memory costs is no part of a call.
fn warm(body: Vec<u8>) -> (Scratch, Vec<u8>) {
    let mut scratch = Scratch::default();
    scratch.index(&body, DEPTH_MAX).unwrap();
    (scratch, body)
}

fn call(bytes: usize) -> (Scratch, Vec<u8>) {
    warm(messages::call(bytes))
}

fn structured_call(bytes: usize) -> (Scratch, Vec<u8>) {
    warm(messages::structured_call(bytes))
}

fn hostile(index: usize) -> (Scratch, Vec<u8>) {
    let [ones, _, keys, ..] = messages::hostile();
    warm(if index == 0 { ones.1 } else { keys.1 })
}

fn reply(links: usize) -> (Scratch, Vec<u8>) {
    warm(messages::reply(links))
}

#[library_benchmark]
#[bench::call_400(args = (0), setup = call)]
#[bench::call_2k(args = (2 << 10), setup = call)]
#[bench::call_200k(args = (200 << 10), setup = call)]
#[bench::structured_2k(args = (2 << 10), setup = structured_call)]
#[bench::structured_200k(args = (200 << 10), setup = structured_call)]
#[bench::hostile_ones(args = (0), setup = hostile)]
#[bench::hostile_keys(args = (2), setup = hostile)]
fn envelope((mut scratch, body): (Scratch, Vec<u8>)) -> (Envelope, Scratch, Vec<u8>) {
    (Envelope::parse(&mut scratch, black_box(&body), DEPTH_MAX).unwrap(), scratch, body)
}

#[library_benchmark]
#[bench::call_400(args = (0), setup = call)]
#[bench::call_2k(args = (2 << 10), setup = call)]
#[bench::structured_2k(args = (2 << 10), setup = structured_call)]
#[bench::hostile_keys(args = (2), setup = hostile)]
fn index((mut scratch, body): (Scratch, Vec<u8>)) -> (usize, Scratch, Vec<u8>) {
    (scratch.index(black_box(&body), DEPTH_MAX).unwrap().root().span().end, scratch, body)
}

#[library_benchmark]
#[bench::one_link(args = (1), setup = reply)]
#[bench::twenty_links(args = (20), setup = reply)]
fn mapping((mut scratch, body): (Scratch, Vec<u8>)) -> (Vec<Site>, Scratch, Vec<u8>) {
    let mut found = Vec::with_capacity(64);
    let message = scratch.index(black_box(&body), DEPTH_MAX).unwrap().root();
    sites(message, Shape::Reply(Some(Method::ToolsCall)), &mut found);
    (found, scratch, body)
}

#[library_benchmark]
#[bench::text_1k(args = (1 << 10), setup = scanned)]
#[bench::text_20k(args = (20 << 10), setup = scanned)]
fn scan(reply: Vec<u8>) -> bool {
    may_contain_names(black_box(&reply))
}

fn scanned(bytes: usize) -> Vec<u8> {
    assert!(!may_contain_names(b"")); // builds the searchers
    messages::text_reply(bytes)
}

fn one_edit() -> (Bytes, [Edit; 1]) {
    (Bytes::from(messages::call(2 << 10)), [Edit { span: 70..80, with: Bytes::from_static(b"\"x\"") }])
}

#[library_benchmark(setup = one_edit)]
fn one_splice((original, edits): (Bytes, [Edit; 1])) -> Segments {
    splice(black_box(&original), black_box(&edits))
}

#[library_benchmark]
#[bench::plain(b"weather__forecast")]
#[bench::encoded(b"=?base64?R3LDvMOfZQ==?=")]
fn header(value: &[u8]) -> usize {
    decode_value(black_box(value)).unwrap().len()
}

library_benchmark_group!(name = protocol, benchmarks = [envelope, index, mapping, scan, one_splice, header]);
main!(library_benchmark_groups = protocol);
