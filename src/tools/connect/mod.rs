//! `trunkline connect`: an MCP server on standard input and output that is really a Streamable HTTP server elsewhere,
//! for clients that can only start a child.
//!
//! Each line of the client is a message, whose own form decides the era: `initialize` opens a session (`session`),
//! a version in `_meta` makes a request that stands for itself (`message`). Requests run side by side (`call`);
//! notifications and responses leave one after another (`Bridge::forward`). Whatever the server says becomes a
//! line; what goes wrong becomes the error of the request (`fault`).
//!
//! Deliberately absent: translation between the eras, OAuth. It stands beside the gateway and is one of its
//! clients, so it shares nothing with it but the protocol.
//!
//! Invariants: standard output carries messages only. Every queue is bounded. A request is answered once, or not at
//! all after it was cancelled.

mod bridge;
mod call;
mod calls;
mod listening;
mod message;
mod opening;
mod params;
mod session;
mod stdio;

use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::bridge::Bridge;
use self::stdio::{Line, Output, Remarks};
use client::MESSAGE_BYTES_MAX;
use client::fault::Fault;
use client::http_endpoint::HttpEndpoint;
use client::server::Address;
use net::tasks::Tasks;

/// How much may wait for the client to read it.
const OUTPUT_BYTES_MAX: u32 = 32 << 20;
/// How long requests may still take when the client has ended its output.
const GRACE: Duration = Duration::from_secs(5);
/// How long the last messages may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where to connect, and how.
#[derive(Debug)]
pub struct Settings {
    /// The server.
    pub address: Address,
    /// How long a reply may take to begin, a message of it to arrive, and the pause before the next.
    pub timeout: Duration,
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Input,
    Output,
    Signal,
}

/// Runs until one side ends it, or a signal.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let tasks = Tasks::default();
        let closed = CancellationToken::new();
        let output = Output::start(OUTPUT_BYTES_MAX, closed.clone())?;
        let remarks = Remarks::start()?;
        let mut lines = stdio::read(MESSAGE_BYTES_MAX)?;
        let endpoint = HttpEndpoint::new(&settings.address, tasks.clone())?;
        let bridge = Bridge::start(endpoint, output, remarks, tasks, settings.timeout);
        let mut end = tokio::select! {
            () = take_lines(&bridge, &mut lines) => End::Input,
            () = closed.cancelled() => End::Output,
            () = stdio::output_closed() => End::Output,
            _ = terminate.recv() => End::Signal,
            _ = interrupt.recv() => End::Signal,
        };
        if end == End::Input {
            bridge.stop_listening();
            tokio::select! {
                _ = timeout(GRACE, bridge.finished()) => {}
                () = closed.cancelled() => end = End::Output,
                _ = terminate.recv() => end = End::Signal,
                _ = interrupt.recv() => end = End::Signal,
            }
        }
        bridge.close().await;
        if end != End::Output {
            let _ = timeout(FAREWELL, bridge.written()).await;
        }
        Ok(())
    })
}

async fn take_lines(bridge: &Rc<Bridge>, lines: &mut mpsc::Receiver<Line>) {
    while let Some(line) = lines.recv().await {
        match line {
            Line::Whole(line) => bridge.take(line).await,
            Line::TooLong => {
                bridge.refuse(None, &Fault::LineTooLong { bytes_max: MESSAGE_BYTES_MAX }).await;
            }
        }
    }
}
