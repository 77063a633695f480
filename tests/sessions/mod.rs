//! Clients of the legacy era: their sessions, the streams in these, and the revisions they speak.
//!
//! Here client and server speak the same era; where they do not, see `bridge/`. Sessions that several gateways share are in
//! `operations/redis.rs`.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`lifetime`] | How does a session begin, what reaches which upstream in it, how does it end, and what does it survive? |
//! | [`memory`] | What becomes of the memory that sessions took? |
//! | [`revisions`] | Which revision is spoken with the client and with each upstream, and what differs between them? |
//! | [`get_streams`] | What comes on the stream that a client opens by GET, and where does it go on after a break? |
//! | [`upstream_streams`] | On which streams does an upstream speak unasked, and what is it told of the client? |
//! | [`resume`] | What becomes of a call whose event stream ends or breaks before the answer? |
//! | [`server_requests`] | What may a server ask of a client, who answers, and how is either cancelled? |
//! | [`who_asks`] | How does a client know which server asks? |
//! | [`message_order`] | In which order does an upstream get what one client posts one after the other? |
//! | [`http_sse`] | How is a client served that speaks HTTP+SSE (2024-11-05)? (Upstreams that do: `upstreams/http_sse.rs`.) |

mod get_streams;
mod http_sse;
mod lifetime;
mod memory;
mod message_order;
mod resume;
mod revisions;
mod server_requests;
mod upstream_streams;
mod who_asks;
