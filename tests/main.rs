//! The daemon from outside: bytes over real sockets to the real binary, in front of scripted upstreams.
//!
//! The tests are written from the protocol's text and the project's decisions about it, not from the code.
//!
//! # Where does my test go?
//!
//! Ask what must hold, and go to the first folder that fits; each `mod.rs` lists its files with the question each answers.
//!
//! 1. A command other than `trunkline run`: [`commands`].
//! 2. Start, stop, reload, systemd, Redis, the admin listener and its page: [`operations`].
//! 3. A metric, a log line, a span: [`telemetry`].
//! 4. Who may do it, how often, and whose it is: [`access`].
//! 5. Connections, HTTP, TLS, browsers, sizes, before any message is read: [`edge`].
//! 6. Client and server speak different eras: [`bridge`].
//! 7. A list, a name, or a notice that something changed: [`lists`].
//! 8. How an upstream is reached, or how it fails: [`upstreams`].
//! 9. A session of a legacy client, or a stream in one: [`sessions`].
//! 10. One client takes what others need: [`fairness`].
//! 11. Anything else about one message and its reply: [`protocol`].
//!
//! What every test needs (the daemon, clients, scripted servers, Redis) is in [`harness`]. A function is tested beside it,
//! in `src/`; what takes real SDKs, browsers or packages is in the folders of `tests/` that are no modules of this file,
//! each started by `tests/run`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod access;
mod bridge;
mod commands;
mod edge;
mod fairness;
mod harness;
mod lists;
mod operations;
mod protocol;
mod sessions;
mod telemetry;
mod upstreams;
