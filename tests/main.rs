//! The daemon from outside: bytes over real sockets to the real binary, in front of scripted upstreams.
//!
//! The tests are written from the protocol's text and the project's decisions about it, not from the code. Each file
//! is one topic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admin;
mod auth;
mod bad_http;
mod bad_json;
mod batches;
mod catalog;
mod cli;
mod connect;
mod eras;
mod errors;
mod faults;
mod harness;
mod headers;
mod http2;
mod http_sse;
mod http_sse_upstream;
mod identity;
mod legacy;
mod lifecycle;
mod limits;
mod lists;
mod logs;
mod mapping;
mod naming;
mod order;
mod origins;
mod questions;
mod relay;
mod resume;
mod retries;
mod revisions;
mod sessions;
mod stdio;
mod streams;
mod subscriptions;
mod upstream_streams;
mod watched_lists;
