//! `trunkline session-key FILE`: a key file for session ids, or a new key in it. No key is shown.

use std::path::Path;

use gateway::key_file::{Rotation, rotate};
use protocol::text::shown;
use tools::terminal;

pub(super) const HELP: &str = "\
Exit codes:
  0  the file has a new key
  1  the file cannot be read or written
  2  the command line is wrong";

/// Makes the file, or prepends a new key, and says which.
pub(super) fn session_key(path: &Path) -> anyhow::Result<()> {
    let name = shown(&path.display().to_string());
    match rotate(path)? {
        Rotation::Created => terminal::put(format_args!("{name}: made, with one key")),
        Rotation::Added { kept, dropped } => {
            terminal::put(format_args!("{name}: a new key; old keys kept: {kept}, removed: {dropped}"));
            terminal::put("A running gateway reads it on SIGHUP.");
        }
    }
    Ok(())
}
