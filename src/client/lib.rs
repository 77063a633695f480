//! The client's side of MCP, for commands that a person types: what a request travels by, and what comes back.
//!
//! | file | what it is |
//! |---|---|
//! | `server.rs` | which server, and with what |
//! | `dialogue.rs` | [`Client`]: requests and their results, lists with all their pages |
//! | `opening.rs` | which era and revision are spoken |
//! | `introduction.rs` | how the server introduced itself |
//! | `person.rs` | who is told and asked |
//! | `tool/` | tools as a person meets them |
//! | `hearing.rs`, `heard.rs` | the server's messages that answer nothing; what a message is |
//! | `rounds.rs` | results that need input first |
//! | `mirrored.rs` | arguments that headers mirror |
//! | `over_http.rs` | messages over Streamable HTTP, sessions and streams |
//! | `over_lines.rs` | messages on one stream: a program's standard input and output |
//! | `over_sse.rs` | the same over HTTP+SSE |
//! | `program.rs` | the program |
//! | `http_endpoint.rs` | the URL of a server |
//! | `replies.rs` | the messages in a reply |
//! | `failure.rs`, `fault.rs` | why a request has no result |
//!
//! Deliberately absent: anything of the gateway. It is on no way of a call; every wait has a deadline, and whatever a
//! server sends is bounded in bytes and in number.

mod dialogue;
pub mod failure;
pub mod fault;
mod heard;
mod hearing;
pub mod http_endpoint;
mod introduction;
mod mirrored;
mod opening;
mod over_http;
mod over_lines;
pub mod over_sse;
pub mod person;
mod program;
pub mod replies;
mod rounds;
pub mod server;
pub mod tool;

pub use self::dialogue::{Client, Settings};
pub use self::failure::{Failure, RpcError};
pub use self::http_endpoint::is_reserved;
pub use self::introduction::Introduction;
pub use self::opening::Wanted;
pub use self::person::{Nobody, Person, Refusal};

/// The longest message of either side.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
