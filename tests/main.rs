//! The daemon from outside: bytes over real sockets to the real binary, in front of scripted upstreams.
//!
//! The tests are written from the protocol's text and the project's decisions about it, not from the code. Each file
//! is one topic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod access_log;
mod admin;
mod admin_access;
mod auth;
mod bad_http;
mod bad_json;
mod batches;
mod breaker;
mod bridge_faults;
mod bridge_lists;
mod bridge_model;
mod bridge_parked;
mod bridge_shared;
mod bridge_to_legacy;
mod bridge_to_modern;
mod catalog;
mod certificates;
mod cli;
mod concurrency;
mod connect;
mod credentials;
mod dashboards;
mod eras;
mod errors;
mod faults;
mod harness;
mod headers;
mod http2;
mod http_sse;
mod http_sse_upstream;
mod identity;
mod jwt;
mod legacy;
mod lifecycle;
mod limits;
mod lists;
mod logs;
mod mapping;
mod metrics;
mod naming;
mod oauth;
mod order;
mod origins;
mod pins;
mod policy;
mod proxy_protocol;
mod questions;
mod rates;
mod relay;
mod reload;
mod replicas;
mod restart;
mod resume;
mod retries;
mod revisions;
mod service;
mod sessions;
mod shared;
mod stdio;
mod streams;
mod subscriptions;
mod tls;
mod traces;
mod upstream_streams;
mod upstream_tls;
mod watched_lists;
