//! The moments before the gateway has signals in hand: one that comes then must not end the process, which has to clear up.

use std::io;

use rustix::process::{Signal as SentSignal, getpid, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, which end the process no longer by themselves.
pub(super) struct EarlySignals {
    interrupt: Signal,
    terminate: Signal,
}

impl EarlySignals {
    /// Catches them from now on. Must be called on a runtime.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits until the gateway answers at its admin listener, and so catches them itself. One that came before is sent again.
    pub(super) async fn hand_over(mut self, admin: &str) -> io::Result<()> {
        answered(admin).await?;
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = std::future::ready(()) => return Ok(()),
        }
        Ok(kill_process(getpid(), SentSignal::INT)?)
    }
}

/// Waits for an answer there. The socket is open already, so that the question waits for whoever will answer it.
async fn answered(admin: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(admin).await?;
    let question = format!("GET /livez HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    stream.read_u8().await.map(|_| ())
}
