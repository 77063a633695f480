//! A load generator for MCP over HTTP/1.1, with two modes.
//!
//! Closed loop (`--rate 0`): every connection sends its next call when the reply has come; finds the throughput.
//! Open loop (`--rate N`): calls are due at a fixed rate whatever the server does, wait in a queue while all
//! connections are busy, and their latency counts from the moment they were due, so that a stall shows in every
//! call it delayed (no coordinated omission).
//!
//! Every reply is checked. It deliberately does one thread and no HTTP/2: its own cost must stay small and the same for
//! every server under test; TLS, of an `https` URL, is pinned to what all of them have. Prints `measuring` and `measured` on
//! standard output when the measured window begins and ends, for whoever samples processes meanwhile, and then the
//! result.
//!
//! With `--streams` it makes no calls but holds idle streams, as standard input tells it.

mod calls;
mod http1;
mod inbox;
mod load;
mod streams;
mod tally;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use tokio::runtime::{Builder, LocalOptions};

/// A load generator for MCP over HTTP/1.1.
#[derive(Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Options {
    /// The endpoint, such as `http://127.0.0.1:8080/mcp`; `https` needs `--ca`.
    #[arg(long)]
    url: http::Uri,
    /// The certificates (PEM) that the server's must be signed by.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Make no calls, but a connection and a full TLS handshake in place of each.
    #[arg(long, requires = "ca", conflicts_with = "streams")]
    handshakes: bool,
    /// Connections, all opened at the start.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Calls a second in open loop; 0 means closed loop.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    rate: u32,
    /// Seconds that are measured.
    #[arg(long, default_value = "5", value_parser = seconds)]
    duration: Duration,
    /// Seconds of load before that.
    #[arg(long, default_value = "1", value_parser = seconds)]
    warmup: Duration,
    /// The method to call; `initialize` opens a session with every call.
    #[arg(long, default_value = "tools/call")]
    method: String,
    /// The names to call, one after the other; several or separated by commas.
    #[arg(long = "tool", value_delimiter = ',', default_value = "tool_0")]
    tools: Vec<String>,
    /// A further header, `Name: value`; may be repeated.
    #[arg(long = "header")]
    headers: Vec<String>,
    /// Size of the request's body, as nearly as its smallest form allows.
    #[arg(long, default_value_t = 512)]
    body_bytes: usize,
    /// Which protocol to speak.
    #[arg(long, value_enum, default_value_t = Era::Modern)]
    era: Era,
    /// What the client says that it can do, a JSON object.
    #[arg(long, default_value = "{}", value_parser = object)]
    capabilities: serde_json::Map<String, serde_json::Value>,
    /// Give all calls the same id, for a server that answers with a file.
    #[arg(long)]
    same_id: bool,
    /// Every reply must be a stream of so many events; legacy calls then ask for progress.
    #[arg(long, default_value_t = 0)]
    events: u64,
    /// Hold idle streams, each on a connection of its own; in legacy sessions, their GETs. Standard input says what to
    /// do: `open N` opens streams until there are N, `notice` asks the URL of `--notice` for a notice and waits until
    /// all streams have it, `state` tells how many are open and what went wrong.
    #[arg(long)]
    streams: bool,
    /// Make one call in every session before its stream is opened.
    #[arg(long, requires = "streams")]
    call_first: bool,
    /// Where a POST makes the upstream stub send a notice.
    #[arg(long, requires = "streams")]
    notice: Option<http::Uri>,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Era {
    /// 2026-07-28: no sessions, mirrored headers.
    Modern,
    /// 2025-11-25: one session for each connection.
    Legacy,
    /// The same with mirrored headers, as drafts of the time wanted.
    LegacyMirrored,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    if options.streams {
        return runtime.block_on(streams::run(options));
    }
    let plan = calls::Plan::new(&options)?;
    let tally = runtime.block_on(load::run(plan, &options)).context("the load could not be started")?;
    let result = tally.result(options.duration, options.rate);
    println!("{}", if options.json { result.to_string() } else { format!("{result:#}") });
    Ok(())
}

fn object(text: &str) -> anyhow::Result<serde_json::Map<String, serde_json::Value>> {
    Ok(serde_json::from_str(text)?)
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}
