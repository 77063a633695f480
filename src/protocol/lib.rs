//! What MCP is: bytes in, values out.
//!
//! Nothing here knows of sockets, clocks or the configuration. A message is read where it lies: the
//! modules hand out byte ranges of the original text, and nothing is ever serialised again.

pub mod agreement;
pub mod ambiguity;
pub mod answer_id;
pub mod answer_number;
pub mod arguments;
pub mod canonical;
pub mod envelope;
pub mod error;
pub mod event_id;
pub mod fields;
pub mod foreign_id;
pub mod forwarded;
pub mod head;
pub mod header;
pub mod hints;
pub mod initialize;
pub mod json;
mod key_scan;
pub mod level;
pub mod list_entry;
pub mod mapping;
pub mod media;
mod member_scan;
pub mod method;
pub mod param_headers;
pub mod progress;
pub mod proxy_header;
pub mod route;
pub mod server_request;
pub mod splice;
pub mod sse;
pub mod sse_endpoint;
pub mod subscription;
pub mod task;
pub mod text;
pub mod trace_meta;
pub mod translation;
pub mod version;
mod words;
