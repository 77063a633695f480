//! `trunkline connect`: an MCP server on standard input and output that is really a Streamable HTTP server elsewhere,
//! for clients that can only start a child.
//!
//! Each line of the client is a message, whose own form decides the era: `initialize` opens a session (`session`),
//! a version in `_meta` makes a request that stands for itself (`message`). Requests run side by side (`request`);
//! notifications and responses leave one after another (`StdioProxy::forward`). Whatever the server says becomes a
//! line; what goes wrong becomes the error of the request (`fault`).
//!
//! Deliberately absent: translation between the eras, OAuth. It stands beside the gateway and is one of its
//! clients, so it shares nothing with it but the protocol.
//!
//! Invariants: standard output carries messages only. Every queue is bounded. A request is answered once, or not at
//! all after it was cancelled.

mod handshake;
mod in_flight;
mod message;
mod proxy;
mod request;
mod server_stream;
mod session;
mod stdio;

use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::proxy::StdioProxy;
use self::stdio::{InputLine, OutputQueue, StderrLog};
use client::MESSAGE_BYTES_MAX;
use client::exchange_error::ExchangeError;
use client::http_endpoint::HttpEndpoint;
use client::server::HttpServer;
use net::tasks::Tasks;

/// How much may wait for the client to read it.
const OUTPUT_BYTES_MAX: u32 = 32 << 20;
/// How long requests may still take when the client has ended its output.
const GRACE: Duration = Duration::from_secs(5);
/// How long the last messages may take.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndReason {
    Input,
    Output,
    Signal,
}

/// Runs until one side ends it, or a signal. A reply may take as long as `response_timeout` to begin, as long again until a
/// message of it has arrived, and to pause before the next.
pub fn run(address: &HttpServer, response_timeout: Duration) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let tasks = Tasks::default();
        let closed = CancellationToken::new();
        let output = OutputQueue::start(OUTPUT_BYTES_MAX, closed.clone())?;
        let stderr_log = StderrLog::start()?;
        let mut lines = stdio::read(MESSAGE_BYTES_MAX)?;
        let endpoint = HttpEndpoint::new(address, tasks.clone())?;
        let proxy = StdioProxy::start(endpoint, output, stderr_log, tasks, response_timeout);
        let mut end = tokio::select! {
            () = take_lines(&proxy, &mut lines) => EndReason::Input,
            () = closed.cancelled() => EndReason::Output,
            () = stdio::output_closed() => EndReason::Output,
            _ = terminate.recv() => EndReason::Signal,
            _ = interrupt.recv() => EndReason::Signal,
        };
        if end == EndReason::Input {
            proxy.stop_listening();
            tokio::select! {
                _ = timeout(GRACE, proxy.unfinished.wait()) => {}
                () = closed.cancelled() => end = EndReason::Output,
                _ = terminate.recv() => end = EndReason::Signal,
                _ = interrupt.recv() => end = EndReason::Signal,
            }
        }
        proxy.close().await;
        if end != EndReason::Output {
            let _ = timeout(FAREWELL, proxy.output.written()).await;
        }
        Ok(())
    })
}

async fn take_lines(proxy: &Rc<StdioProxy>, lines: &mut mpsc::Receiver<InputLine>) {
    while let Some(line) = lines.recv().await {
        match line {
            InputLine::Whole(line) => proxy.take(line).await,
            InputLine::TooLong => {
                proxy.refuse(None, &ExchangeError::LineTooLong { bytes_max: MESSAGE_BYTES_MAX }).await;
            }
        }
    }
}
