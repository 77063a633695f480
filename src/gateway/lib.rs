//! The gateway: fleets of MCP clients connect to one address; behind it stand many shared tool servers.
//!
//! The folders are its floors, from the one that begins a call down to what all stand on. Imports point down only;
//! `tests/layers.py` holds the order.
//!
//! | floor | what it is |
//! |---|---|
//! | [`runtime`] | the process: workers, the control thread, reload, what replicas tell each other |
//! | [`admin`] | metrics, health, `/status` and the page |
//! | [`edge`] | connections of clients: PROXY protocol, TLS, HTTP |
//! | [`mod@line`] | the way of a call: head, admission, body, upstream, reply; sessions of the legacy era |
//! | [`catalog`] | what servers offer: merged lists, subscriptions, changed definitions, probes |
//! | [`mapper`] | names between clients and upstreams where an endpoint has prefixes |
//! | [`context`] | what a request sees: shared state, its worker, its connection, its record |
//! | [`tables`] | what all threads share while they serve: fetched lists, who listens to what, HTTP+SSE sessions |
//! | [`snapshot`] | the configuration, resolved: endpoints and upstreams |
//! | [`session`] | sessions of the legacy era, and what waits for their clients |
//! | [`bridge`] | between clients of one era and servers of the other |
//! | [`upstream`] | replicas, connections, child processes, HTTP+SSE, pinned definitions |
//! | [`access`] | who may do what, and how much of it: TLS, authentication, policy, limits |
//! | [`sign_in`] | the authorization server: how people sign in, and what clients get for it |
//! | [`grants`] | sign-ins as they are kept, in a file or in Redis |
//! | [`redis`] | what replicas of the gateway share |
//! | [`telemetry`] | metrics, logs, traces |
//! | [`identity`], [`directory`], [`state_files`], [`clock`], [`flight`], [`buffers`] | who calls; files of the state directory, and whether they can be written; the time; work that is done once for all who wait; memory to read and write with |
//!
//! # The way of a call
//!
//! 1. A connection is accepted by one of the *workers* ([`context::worker`], [`edge`]): threads that share nothing
//!    on the request path, each with its own connections to upstreams.
//! 2. [`line::proxy::Proxy::handle`] reads top to bottom. It reads the headers once ([`protocol::head`]), checks where
//!    the request comes from ([`access::auth::origin`]) and who makes it ([`access::auth`]), and finds the upstream from the
//!    `Mcp-Name` header alone ([`protocol::route`]): what can be refused is refused before the body arrives.
//! 3. The body is taken in under limits ([`line::intake`]), checked by simd-json ([`protocol::json`]) and compared
//!    with the headers ([`line::message`], [`protocol::agreement`]). Nothing reaches an upstream that was not checked.
//! 4. The very bytes that came in go out ([`upstream::exchange`]), as a request of MCP ([`upstream::request`]): over
//!    HTTP, or to a process of the gateway's own ([`upstream::stdio`]). On endpoints over several upstreams names are
//!    replaced where they stand ([`protocol::splice`]); every other byte stays as it was.
//! 5. The reply is handed on as it comes ([`line::relay`]); where names must be mapped, [`mapper`] does it.
//!
//! Lists and `server/discover` leave the line for the [`catalog::lists`], `subscriptions/listen` leaves it for [`catalog::subscriptions`].
//! Whatever goes wrong is a [`protocol::error::Error`], rendered in one place.
//!
//! # Sessions
//!
//! A client of the legacy era has a session whose id holds what `initialize` settled ([`session`]); with each upstream
//! it calls, the gateway has one for it ([`line::legacy`]). What upstreams say beside their replies comes in on streams of
//! their own ([`line::legacy::upstream_stream`]), is routed in one place ([`line::legacy::notification_routing`]), waits in the
//! session's outbox ([`session::outbox`]) and goes out on the client's stream ([`line::legacy::client_stream`], or [`line::sse_stream`] for HTTP+SSE).
//!
//! # Two eras
//!
//! A client is served in its own era wherever the upstream speaks that. Where it does not, [`bridge`] stands
//! between them as a server of the client's era that lives in this process, so that nothing above it differs; what the
//! messages are in the other era is in [`protocol::translation`]. Lists and introductions do not pass by there: the
//! [`catalog::lists`] asks for them in an era that the upstream speaks.
//!
//! # Glossary
//!
//! One word stands for one thing, here, in the configuration and in metrics.
//!
//! | word | what it is |
//! |---|---|
//! | endpoint | a path that clients connect to: one upstream, or several whose names it merges ([`snapshot::Endpoint`]) |
//! | upstream | a named MCP server behind the gateway ([`upstream::Upstream`]) |
//! | replica | one address of an upstream ([`upstream::Replica`]); of the gateway itself, one process ([`redis`]) |
//! | member | an upstream of an endpoint, by its place there |
//! | principal | who calls, whatever credential says so ([`identity::Principal`]); a *caller* is a principal at an endpoint |
//! | class | callers to whom the rules of an endpoint give the same ([`access::policy`]) |
//! | worker | a thread that serves connections ([`context::worker`]) |
//! | snapshot | the configuration, resolved and in force ([`snapshot`]) |
//! | era | *modern*: 2026-07-28, without sessions; *legacy*: the revisions before it ([`protocol::version`]) |
//! | dialect | an era with what its requests must say ([`tables::lists`]); the one an upstream is asked in is an *upstream dialect* |
//! | session | what `initialize` began: of a client ([`session`]), or of the gateway with an upstream for it (*upstream session*) |
//! | outbox | messages of one session's upstreams that wait for its client's stream ([`session::outbox`]) |
//! | addressee | the upstream session that a client's answer goes to |
//! | in flight | sent, and without its answer |
//! | bridge | what stands between a client of one era and a server of the other ([`bridge`]) |
//! | suspended call | a modern call whose client is to answer a question of the server first ([`bridge`]) |
//! | MRTR | multi round-trip requests: a modern call is sent again with its client's answers, one *round* each |
//! | mux connection | a connection that many calls share, as to a child process ([`upstream::mux`]) |
//! | exclusive, shared session | a bridged session that one call has to itself; one that a principal's plain calls share |
//! | part, list | what one upstream gave for a list ([`tables::lists`]); what an endpoint makes of its parts ([`catalog::lists`]) |
//! | directory | which names lead to which member ([`protocol::route::directory`]); of files, it is a [`directory::Dir`] |
//! | pin | the definition of a tool as an operator let it pass ([`upstream::pins`]) |
//! | share | so much of a bounded resource as one payer holds, for as long as it lives ([`access::limit::shares`]) |
//! | lease | a share of something that is given back: a connection, a limit's budget ([`redis::lease`]), a session for lists |
//! | breaker | keeps requests from a replica that failed in a row ([`upstream::health`]) |
//! | probe, health check | asks which eras an upstream speaks; asks whether a replica answers ([`catalog::probe`]) |
//! | notification stream | where a server speaks to a session beside its replies: the answer to a GET |
//! | relay | the reply on its way back to the client ([`line::relay`]) |
//!
//! # Who owns what
//!
//! The configuration ([`config`]) is resolved into a [`snapshot`]: plain data behind one atomic pointer, swapped
//! whole on reload. Connections, scratch memory and pools belong to one worker. What is process-wide is in
//! [`context::state`], legacy sessions ([`session`]) among it. The control thread ([`runtime`]) handles signals, serves the
//! admin listener ([`admin`]), finds out which eras upstreams speak ([`catalog::probe`]), learns names ([`catalog::lists::learn`])
//! and listens to upstreams ([`catalog::subscriptions::upstream`]); it is never on the way of a call. What replicas share goes through it,
//! too (`runtime::replicas`, over [`redis`]): a call at most waits for an answer that comes by there, for a bounded time.
//!
//! What a test would hold in its hand has one place each: time is asked for in [`clock`] (timers are tokio's), sockets are
//! named by [`net::socket`], files that outlive the process lie in a [`directory`], and what replicas share is [`redis`].
//!
//! Held to in few places: simd-json is named in `protocol::json` alone, error bodies are written in `protocol::error`
//! alone, tasks are spawned through [`net::tasks`] alone, and whatever starts a program does so under a [`net::guardian`].

mod access;
mod admin;
mod bridge;
mod buffers;
mod catalog;
mod clock;
mod context;
mod directory;
mod edge;
mod flight;
mod grants;
mod identity;
pub mod key_file;
mod line;
mod mapper;
mod redis;
mod runtime;
mod session;
mod sign_in;
mod snapshot;
mod state_files;
mod tables;
mod telemetry;
mod upstream;

pub use access::auth::api_key;
pub use access::auth::jwt::report::{TokenPart, TokenReport};
pub use access::policy::permissions::EndpointRules;
pub use access::policy::rule::ANONYMOUS;
pub use context::state::StateError;
pub use identity::{Principal, VerifiedIdentity};
pub use runtime::{
    ConfigFiles, EXIT_BUG, ExitCause, FileFindings, Gateway, InheritError, SocketsError, StartError,
    warn_about,
};
pub use session::store::StoreError;
pub use session::{SessionRequest, Sessions};
pub use telemetry::metrics::Metrics;

/// Definitions of tools that an operator let pass, for the command that shows and approves them.
pub mod pins {
    pub use crate::upstream::pins::diff::{DiffLine, difference, lines, printable};
    pub use crate::upstream::pins::file::{Approval, Folder};
    pub use crate::upstream::pins::pending::{self, PendingDefinition};
    pub use crate::upstream::pins::pin_book::PinnedTool;
}

/// Where the process logs.
pub mod logs {
    pub use crate::telemetry::logs::{finish, start};
}
