//! `trunkline session-key FILE`: a key file for session ids, or a new key in it. No key is shown.

use std::path::Path;

use gateway::key_file::{Rotation, rotate};
use protocol::text::shown;
use tools::terminal;

/// Makes the file, or puts a new key on top of it, and says which.
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
