//! The `trunkline` binary: arguments in, exit code out.
//!
//! # Written by hand, though a crate exists
//!
//! The reasons that count: what a stranger sends is bounded in bytes, nothing is lost without being counted, and a call
//! pays for nothing that it does not need. Where a crate keeps to that, it is used.
//!
//! | what, and where | the crate | why by hand |
//! |---|---|---|
//! | sending spans, `gateway/telemetry/trace` | opentelemetry-otlp and the SDK's `BatchSpanProcessor` | The processor keeps the number of spans that it dropped to itself and the exporter that of those which the receiver rejected; both are metrics here. It sleeps between attempts on a thread that nothing wakes, so the end of the process would wait or lose what is queued. The settings and our own client remain, with a thread between them: 150 lines fewer of 620 |
//! | writing log lines, `gateway/telemetry/logs/sink.rs` | tracing-appender | It bounds lines, not bytes, does not count what an error of the disk took, and cannot change files at a reload |
//! | log lines, `gateway/telemetry/logs/line.rs` | tracing-subscriber | Nothing that a client sends can look like another line or field, in any of the three forms |
//! | limits per second, `gateway/access/limit/rate` | governor | Several limits are asked at once and paid together or not at all, the table of keys is bounded, and replicas lease shares; the rule itself is compared with governor's in a test |
//! | limits at a time, `gateway/access/limit/concurrency` | tokio's semaphore | It is fair to waiters, not to principals |
//! | breakers and balancing, `gateway/upstream/health`, `balance` | tower, failsafe | They wrap a service; ours choose between replicas, and metrics and the status page show why |
//! | connections to upstreams, `gateway/upstream/pool.rs` | hyper-util's client | Its pool is shared by all threads, and it decides by itself what is sent again |
//! | server-sent events, `protocol/sse` | eventsource-stream, sse-stream | They copy each event; ours are slices of what came |
//! | HTTP/1.1 of calls, `http1`, `gateway/edge/http1`, `gateway/upstream/http1` | hyper (which serves HTTP/2, the admin listener and the commands) | It repairs what two readers could see differently, and costs a call 20,000 instructions: a task and two channels per connection, header maps, a body channel, buffers that idle connections hold. `httparse` reads the heads |
//! | where HTTP/1.1 messages end, `net/framing` | hyper | At the admin listener, what is read beside hyper refuses the same |
//! | keys of issuers, `gateway/access/auth/jwt` | – (none that is kept up) | jsonwebtoken checks signatures; when keys are fetched again is ours |
//! | session ids and the journal, `tokens`, `gateway/session` | – | aes-gcm-siv seals; the format is ours |
//! | an MCP client, `client` | rmcp | `-v` shows what goes over the wire, every reply is bounded, HTTP+SSE is spoken, and it brings 20 to 40 crates |
//! | durations and sizes, `config/value.rs` | humantime, bytesize | Each key has a range, which is part of its schema |
//! | carets below a line, `config/error.rs` | annotate-snippets | Values that may be secret are not shown |
//! | JSON with comments, `tools/entries/json.rs` | jsonc-parser | 85 lines, and its errors show nothing of the text, which may hold secrets |
//! | breaking lines, `protocol/text.rs` | textwrap | 40 lines that break what one person takes for one character nowhere, as the rest of that module |

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use net::guardian;
use tikv_jemallocator::Jemalloc;

/// Threads of its own give back what has been free for ten seconds. glibc keeps it: 25,000 sessions that are over leave
/// four times the memory that the process started with, and thirteen times with streams. How it is set up:
/// `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    guardian::main(std::env::args_os()).unwrap_or_else(|| commands::main(commands::arguments()))
}
