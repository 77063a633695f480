//! The stub over stdio: one JSON-RPC message per line, each request answered in the era of its body.
//!
//! As cheap as it can be: no runtime, one large read and one write for whatever is there. Deliberately nothing is kept
//! between lines, so that a request needs no `initialize` before it.

use std::io::{self, BufRead, BufReader, Write};

use crate::replies::Replies;

const BUFFER_BYTES: usize = 256 * 1024;

/// Answers until standard input ends.
pub(crate) fn serve(replies: &Replies) -> io::Result<()> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    let mut standard_output = io::stdout().lock();
    let (mut line, mut output) = (Vec::new(), Vec::with_capacity(BUFFER_BYTES));
    while input.read_until(b'\n', &mut line)? > 0 {
        if let Ok(call) = serde_json::from_slice(&line) {
            replies.write_line(&call, &mut output);
        }
        line.clear();
        if input.buffer().is_empty() {
            standard_output.write_all(&output)?;
            standard_output.flush()?;
            output.clear();
        }
    }
    Ok(())
}
