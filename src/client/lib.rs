//! The client's side of MCP, for commands that a person types: what a request travels by, and what comes back.
//!
//! | file | what it is |
//! |---|---|
//! | `server.rs` | which server, and with what |
//! | `connection.rs` | [`Client`]: requests and their results, lists with all their pages |
//! | `handshake.rs` | which era and revision are spoken |
//! | `introduction.rs` | how the server introduced itself |
//! | `user_interaction.rs` | the user, who is notified and asked |
//! | `tool/` | tools as a person meets them |
//! | `incoming_message.rs`, `incoming_handler.rs` | the server's messages, and what becomes of those that are no responses |
//! | `mrtr.rs` | results that need input first (multi round-trip requests) |
//! | `message_headers.rs`, `param_headers.rs` | headers of sessions and those that mirror messages; arguments that headers mirror |
//! | `streamable_http.rs` | messages over Streamable HTTP, sessions and streams |
//! | `duplex.rs` | messages on one stream in each direction |
//! | `child_process.rs` | the same on standard input and output of a program |
//! | `http_sse.rs` | the same over HTTP+SSE |
//! | `http_endpoint.rs` | the URL of a server |
//! | `response_reader.rs` | the messages in a reply, be it JSON or a stream, and how far a stream was read |
//! | `error.rs`, `exchange_error.rs` | why a request has no result |
//!
//! Deliberately absent: anything of the gateway. It is on no way of a call; every wait has a deadline, and whatever a
//! server sends is bounded in bytes and in number.

mod child_process;
mod connection;
mod duplex;
pub mod error;
pub mod exchange_error;
mod handshake;
pub mod http_endpoint;
pub mod http_sse;
mod incoming_handler;
mod incoming_message;
mod introduction;
pub mod message_headers;
mod mrtr;
pub mod param_headers;
pub mod response_reader;
pub mod server;
mod streamable_http;
pub mod tool;
pub mod user_interaction;

pub use self::connection::{Client, ClientSettings};
pub use self::error::{RequestError, RpcError};
pub use self::handshake::EraChoice;
pub use self::http_endpoint::is_reserved;
pub use self::introduction::Introduction;
pub use self::user_interaction::{NoAnswer, NoUser, UserInteraction};

/// The longest message of either side.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
