//! Trunkline: a multiplexing proxy daemon for the Model Context Protocol (MCP).
//!
//! Fleets of MCP clients connect to one address; behind it stand many shared tool servers. The crate is a
//! library with a thin binary, so that every part can be tested by itself.
//!
//! # The way of a call
//!
//! 1. A connection is accepted by one of the *workers* ([`worker`], [`listener`]): threads that share nothing
//!    on the request path, each with its own connections to upstreams.
//! 2. [`proxy::Proxy::handle`] reads top to bottom. It reads the headers once ([`protocol::head`]), checks where
//!    the request comes from ([`auth::origin`]) and who makes it ([`auth`]), and finds the upstream from the
//!    `Mcp-Name` header alone ([`route`]): what can be refused is refused before the body arrives.
//! 3. The body is taken in under limits ([`intake`]), checked by simd-json ([`protocol::json`]) and compared
//!    with the headers ([`message`], [`protocol::agreement`]). Nothing reaches an upstream that was not checked.
//! 4. The very bytes that came in go out ([`upstream::exchange`]): over HTTP, or to a process of the gateway's own
//!    ([`upstream::stdio`]), which looks like a server over HTTP from here ([`upstream::pipe`]). On endpoints over
//!    several upstreams names are replaced where they stand ([`protocol::splice`]); every other byte stays as it was.
//! 5. The reply is handed on as it comes ([`relay`]); where names must be mapped, [`mapper`] does it.
//!
//! Lists and `server/discover` leave the line for the [`catalog`], `subscriptions/listen` leaves it for [`listen`].
//! Whatever goes wrong is a [`protocol::error::Error`], rendered in one place.
//!
//! # Sessions
//!
//! A client of the legacy era has a session whose id holds what `initialize` settled ([`session`]); with each upstream
//! it calls, the gateway has one for it ([`legacy`]). What upstreams say beside their replies comes in on streams of
//! their own ([`legacy::upstream_stream`]), crosses in one place ([`legacy::crossing`]), waits on the session's desk
//! ([`session::desk`]) and goes out on the client's stream ([`legacy::client_stream`], or [`sse_endpoint`] for HTTP+SSE).
//!
//! # Two eras
//!
//! A client is served in its own era wherever the upstream speaks that. Where it does not, [`upstream::bridge`] stands
//! between them as a server of the client's era that lives in this process, so that nothing above it differs; what the
//! messages are in the other era is in [`protocol::translation`]. Lists and introductions do not pass by there: the
//! [`catalog`] asks for them in an era that the upstream speaks.
//!
//! # Who owns what
//!
//! The configuration ([`config`]) is resolved into a [`snapshot`]: plain data behind one atomic pointer, swapped
//! whole on reload. Connections, scratch memory and pools belong to one worker. What is process-wide is in
//! [`state`], legacy sessions ([`session`]) among it. The control thread ([`gateway`]) handles signals, serves the
//! admin listener ([`admin`]), finds out which eras upstreams speak ([`probe`]), learns names ([`catalog::learn`])
//! and listens to upstreams ([`listen::upstream`]); it is never on the way of a call. What replicas share goes through it,
//! too ([`sharing`], over [`shared`]): a call at most waits for an answer that comes by there, for a bounded time.
//!
//! # Layers
//!
//! Arrows point down only: `protocol`, `config` and `route` are pure (no runtime, no clock, no I/O); `auth`,
//! `limit`, `telemetry` and `upstream` stand on them; then `snapshot`, `catalog`, `mapper`, `listen`, `relay` and
//! `proxy`; then `listener`, `worker`, `admin`, `gateway` and `cli`. simd-json is named in `protocol::json` alone, error
//! bodies are written in `protocol::error` alone, tasks are spawned through [`tasks`] alone. [`demo`] stands
//! beside all of it and shares no code with it. [`client`], and [`connect`], [`doctor`] and the commands on it, are clients
//! that share `protocol` and what is smaller; [`watch`] and [`top`] read the admin listener as anybody could; [`entries`]
//! translates configurations; what all of these show goes through [`terminal`]. Whatever starts a program does so under a
//! [`guardian`].

#![forbid(unsafe_code)]

pub mod admin;
pub mod auth;
pub mod batch;
pub mod call;
pub mod caller;
pub mod catalog;
pub mod cli;
pub mod client;
pub mod config;
pub mod connect;
pub mod cors;
pub mod demo;
pub mod directory;
pub mod doctor;
pub mod drain;
pub mod entries;
pub mod eras;
pub mod fetch;
pub mod framing;
pub mod gateway;
pub mod guardian;
pub mod intake;
pub mod jitter;
pub mod legacy;
pub mod limit;
pub mod listen;
pub mod listener;
pub mod lookup;
pub mod mapper;
pub mod message;
pub mod pieces;
pub mod pins;
pub mod policy;
pub mod probe;
pub mod protocol;
pub mod proxy;
pub mod pulse;
pub mod relay;
pub mod reloads;
pub mod route;
pub mod secret;
pub mod session;
pub mod shared;
pub mod sharing;
pub mod snapshot;
pub mod socket;
pub mod sse_endpoint;
pub mod state;
pub mod tasks;
pub mod telemetry;
pub mod terminal;
pub mod tls;
pub mod top;
pub mod upstream;
pub mod watch;
pub mod worker;
