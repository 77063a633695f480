//! What the user types, line by line. A thread reads, because a read cannot be given up.

use std::io::BufRead as _;

use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::{Mutex, mpsc};

/// Lines read ahead, and the bytes of one.
const LINES_MAX: usize = 4;
const LINE_BYTES_MAX: usize = 1 << 20;

/// Lines of standard input, from the first time that one is wanted.
#[derive(Debug, Default)]
pub(super) struct TypedInput(Mutex<Option<mpsc::Receiver<String>>>);

impl TypedInput {
    /// Forgets what was typed up to now: it is no answer to a question that nobody had seen.
    pub(super) async fn forget(&self) {
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush); // what is no terminal has no such queue
        if let Some(lines) = &mut *self.0.lock().await {
            while lines.try_recv().is_ok() {}
        }
    }

    /// The next line without its end; `None` at the end of the input, behind which a terminal may have more.
    pub(super) async fn line(&self) -> Option<String> {
        let mut lines = self.0.lock().await;
        let line = lines.get_or_insert_with(read).recv().await;
        if line.is_none() {
            *lines = None;
        }
        line
    }
}

fn read() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    // It ends with the process: nobody can wake it from a read.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let line: String = line.chars().take(LINE_BYTES_MAX).collect();
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
