//! What commands show a person at a terminal.
//!
//! | file | what it is |
//! |---|---|
//! | `paint.rs` | colours |
//! | `progress.rs` | that something is still going on |
//!
//! Invariants: whatever a server, a file or the gateway says is shown through `protocol::text`. Results go to standard output,
//! everything else to standard error. Both are written through `anstream`, so that colours reach terminals only, and not
//! those whose owners set `NO_COLOR`.

pub mod paint;
pub mod progress;

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;

/// How wide what is no terminal is taken to be, and what a terminal may be.
const COLUMNS: usize = 100;
const COLUMNS_MIN: usize = 20;

static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// The columns of standard output.
pub fn columns() -> usize {
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(ratatui::crossterm::terminal::size).and_then(Result::ok);
    size.map_or(COLUMNS, |(columns, _)| usize::from(columns))
}

/// The columns that lines on standard output are filled to.
pub fn width() -> usize {
    columns().clamp(COLUMNS_MIN, COLUMNS)
}

/// Writes a line of the result to standard output. Nobody reads on where that is closed, as behind `| head`: then it is
/// left out. Any other error is kept for [`lost`].
pub fn put(line: impl Display) {
    put_text(format_args!("{line}\n"));
}

/// The same for text that has its own line ends.
pub fn put_text(text: impl Display) {
    let mut stdout = anstream::stdout().lock();
    if let Err(error) = write!(stdout, "{text}").and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error); // the first one counts
    }
}

/// Writes a line to standard error, or none where nobody reads it.
pub fn say(line: impl Display) {
    say_text(format_args!("{line}\n"));
}

/// The same for text that has its own line ends.
pub fn say_text(text: impl Display) {
    let _ = write!(anstream::stderr().lock(), "{text}");
}

/// Why results did not reach standard output, if they did not.
pub fn lost() -> Option<&'static std::io::Error> {
    LOST.get()
}
