//! What every program of this repository needs that talks over a network: names, sockets, TLS, tasks, child processes.
//!
//! | module | what it is |
//! |---|---|
//! | [`dns`] | names to addresses |
//! | `dial` | connections off the data path |
//! | [`socket`] | options of TCP sockets |
//! | [`stream`] | a connection's bytes, with TLS or without |
//! | [`tls`] | TLS towards servers, and what certificates say |
//! | [`http_client`] | HTTP towards servers, off the data path |
//! | [`outbound`], [`proxy`] | the way of the gateway's own requests, and a proxy on it |
//! | [`fetch`] | one small HTTP request for a document |
//! | [`framing`] | where HTTP/1.1 messages begin and end, beside hyper |
//! | [`chunks`] | bodies that come in chunks |
//! | [`tasks`] | the only way to spawn |
//! | [`drain`] | the end of a process, in order |
//! | [`guardian`] | child processes that leave nothing behind |
//! | [`lines`] | the lines of a stream, bounded in length |
//! | [`regular_file`] | files that an operator names |
//! | [`jitter`] | pauses that are not all alike |
//!
//! Deliberately not here: anything of MCP, and the configuration.

pub mod chunks;
mod dial;
pub mod dns;
pub mod drain;
pub mod fetch;
pub mod framing;
pub mod guardian;
pub mod http_client;
pub mod jitter;
pub mod lines;
pub mod outbound;
pub mod proxy;
pub mod regular_file;
pub mod secret;
pub mod socket;
pub mod stream;
pub mod tasks;
pub mod tls;
