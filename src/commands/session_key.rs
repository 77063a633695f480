//! `trunkline session-key FILE`: a key file for session ids or for sign-in, or a new key in it. No key is shown.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueHint};

use gateway::key_file::{OLD_KEYS_KEPT, OLD_KEYS_KEPT_MAX, Rotation, rotate};
use protocol::text::shown;
use tools::terminal;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  the file has a new key
  1  the file cannot be read or written
  2  the command line is wrong")]
pub(super) struct SessionKeyArgs {
    /// The key file
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Keep so many of the old keys, the newest ones, up to 15; for sign-in as many as clients may still have ids of
    #[arg(long, value_name = "KEYS", default_value_t = OLD_KEYS_KEPT, value_parser = kept())]
    keep: usize,
}

fn kept() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=OLD_KEYS_KEPT_MAX as u64)
}

/// Makes the file, or prepends a new key, and says which.
pub(super) fn session_key(options: &SessionKeyArgs) -> anyhow::Result<()> {
    let name = shown(&options.file.display().to_string());
    match rotate(&options.file, options.keep)? {
        Rotation::Created => terminal::put(format_args!("{name}: made, with one key")),
        Rotation::Added { kept, dropped } => {
            terminal::put(format_args!("{name}: a new key; old keys kept: {kept}, removed: {dropped}"));
            terminal::put("A running gateway reads it on SIGHUP.");
        }
    }
    Ok(())
}
