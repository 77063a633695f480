//! A program that is a server: started, spoken to, and brought to its end as the protocol says: its input is closed,
//! then its process group is asked to end, then it is made to.

use std::cell::RefCell;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::MESSAGE_BYTES_MAX;
use super::duplex::DuplexTransport;
use super::error::RequestError;
use super::exchange_error::ExchangeError;
use super::incoming_handler::IncomingHandler;
use super::server::StdioServer;
use net::guardian::Guarded;
use net::lines::{LineBuffer, TooLong, discard};

/// How long a program may take to end when its input is closed, and again when it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long its last words are waited for.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(300);
/// How much of standard error is kept.
const LAST_WORDS_BYTES_MAX: usize = 2048;

/// Starts the program. Must be called on a local runtime.
pub(super) fn start(
    program: &StdioServer,
    handler: Rc<IncomingHandler>,
) -> Result<Rc<DuplexTransport>, RequestError> {
    let name = program.name.display().to_string();
    let not_started = |why: String| RequestError::NotStarted { program: name.clone(), why };
    let started = Guarded::start(&program.name, &program.arguments);
    let (child, stdin, stdout, stderr) = started.map_err(|error| not_started(why(&error)))?;
    let (lines, waiting) = DuplexTransport::new(Rc::clone(&handler));
    let last_words = Rc::default();
    let listening = listen(stderr, handler, Rc::clone(&last_words));
    let running = Rc::clone(&lines);
    lines.tasks.spawn(async move {
        let ended = run(child, &running, stdin, stdout, waiting, listening).await;
        let failure = match ended {
            Err(fault) => RequestError::Exchange(fault),
            Ok(status) => RequestError::Ended { how: how(status), last_words: last_words.take() },
        };
        running.end(&failure);
    });
    Ok(lines)
}

fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such program".to_owned(),
        std::io::ErrorKind::PermissionDenied => "it is not executable".to_owned(),
        _ => error.to_string(),
    }
}

/// Runs a program to its end, and `listening` meanwhile, which never completes. An error: it broke the protocol.
async fn run(
    mut child: Guarded,
    lines: &Rc<DuplexTransport>,
    stdin: ChildStdin,
    mut stdout: ChildStdout,
    outgoing: mpsc::Receiver<Bytes>,
    listening: impl Future<Output = ()>,
) -> Result<Option<ExitStatus>, ExchangeError> {
    let mut listening = Box::pin(listening);
    let fault = {
        let mut reading = Box::pin(read(&mut stdout, lines));
        let mut writing = Box::pin(write(stdin, outgoing));
        tokio::select! {
            fault = &mut reading => fault,
            // Its input is closed: we are done with it, or it with us. What it still says is read.
            () = &mut writing => {
                drop(writing);
                timeout(PATIENCE, &mut reading).await.unwrap_or(None)
            }
            () = &mut listening => None,
            () = lines.gone.cancelled() => None,
        }
    };
    let status = tokio::select! {
        status = child.stop(PATIENCE) => status,
        () = discard(&mut stdout) => None,
        () = &mut listening => None,
    };
    let _ = timeout(LAST_WORDS_TIMEOUT, &mut listening).await;
    fault.map_or(Ok(status), Err)
}

fn how(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("exit code {code}"),
        Some((None, Some(signal))) => format!("signal {signal}"),
        _ => "nobody knows how".to_owned(),
    }
}

async fn write(mut stdin: ChildStdin, mut waiting: mpsc::Receiver<Bytes>) {
    while let Some(message) = waiting.recv().await {
        let written = async {
            stdin.write_all(&message).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
}

/// Reads lines until the end, or until one is longer than a message may be.
async fn read(stdout: &mut ChildStdout, transport: &Rc<DuplexTransport>) -> Option<ExchangeError> {
    let mut lines = LineBuffer::default();
    loop {
        match lines.read(stdout, MESSAGE_BYTES_MAX).await {
            Ok(Some(line)) => transport.take(&line),
            Ok(None) => return None,
            Err(TooLong) => return Some(ExchangeError::TooLarge),
        }
        // A flood must not keep everything else from its turn.
        tokio::task::yield_now().await;
    }
}

/// Keeps what was said last on standard error. Never completes.
async fn listen(mut stderr: ChildStderr, handler: Rc<IncomingHandler>, last_words: Rc<RefCell<String>>) {
    let mut buffer = vec![0; 8192];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let piece = buffer.get(..count).unwrap_or_default();
        let text = String::from_utf8_lossy(piece);
        handler.user.stderr(&text);
        let mut last_words = last_words.borrow_mut();
        last_words.push_str(&text);
        let surplus = last_words.len().saturating_sub(LAST_WORDS_BYTES_MAX);
        let surplus = last_words.ceil_char_boundary(surplus);
        last_words.drain(..surplus);
    }
    std::future::pending::<()>().await;
}
