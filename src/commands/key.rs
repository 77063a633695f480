//! `trunkline key NAME`: a new API key. The key itself is shown once, or written to a file of its own, and stored nowhere.
//!
//! The entry goes to standard output or to a configuration, which everybody may read. The key goes to standard error or to
//! a file that its owner alone may read, so that it does not get there with it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueHint};

use super::{CommandFailure, EXIT_COMMAND_LINE};
use gateway::api_key;
use protocol::text::shown;
use tools::terminal;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  the key was made
  1  a file cannot be read or written, or has a key of this name already
  2  the command line is wrong")]
pub(super) struct KeyArgs {
    /// The principal that will hold it
    name: String,
    /// Put the entry at the end of this configuration file instead of printing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    append: Option<PathBuf>,
    /// Write the key to this new file, which its owner alone may read, instead of printing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key_out: Option<PathBuf>,
}

/// Makes a key: the entry for the configuration, and apart from it the key for its holder.
pub(super) fn key(options: &KeyArgs) -> Result<(), CommandFailure> {
    let name = &options.name;
    if !config::is_key_name(name) {
        let error = anyhow::anyhow!("a name has 1 to 64 letters, digits, dots, hyphens, underscores or @");
        return Err(CommandFailure::with(EXIT_COMMAND_LINE)(error));
    }
    let (key, digest) = api_key::generate().context("the system has no randomness")?;
    let entry = format!("[[api_key]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n");
    let appended = options.append.as_deref().map(|path| text_with(path, name, &entry)).transpose()?;
    if let Some(path) = &options.key_out {
        write_key(path, &key)?;
    }
    match (&options.append, appended) {
        (Some(path), Some(text)) => append(path, &text)?,
        _ => terminal::put_text(entry),
    }
    match &options.key_out {
        Some(path) => terminal::say(format_args!("the key is in {}", shown(&path.display().to_string()))),
        None => terminal::say(format_args!(
            "Give this to its holder; it is not stored anywhere:\n  Authorization: Bearer {key}"
        )),
    }
    Ok(())
}

fn write_key(path: &Path, key: &str) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write the key to {}", path.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(cannot_write)?;
    writeln!(file, "{key}").with_context(cannot_write)
}

/// What to write at the end of a file for the entry to stand there. Fails where there is a key of this name already.
fn text_with(path: &Path, name: &str, entry: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        !has_key(&text, name),
        "{} has a key named {name}: choose another name, or remove that entry",
        path.display()
    );
    let gap = match text.as_str() {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    Ok(format!("{gap}{entry}"))
}

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write to {}", path.display());
    let mut file = OpenOptions::new().append(true).open(path).with_context(cannot_write)?;
    file.write_all(text.as_bytes()).with_context(cannot_write)
}

/// Whether a configuration has a key of this name. One that is not TOML has none that counts.
fn has_key(text: &str, name: &str) -> bool {
    let Ok(table) = text.parse::<toml::Table>() else { return false };
    let entries = table.get("api_key").and_then(toml::Value::as_array);
    entries.into_iter().flatten().any(|entry| entry.get("name").and_then(toml::Value::as_str) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_entries_of_keys_alone() {
        let text = "[[limit]]\nname = \"a\"\n[[api_key]]\nname = \"b\"\n";
        assert!(has_key(text, "b"));
        assert!(!has_key(text, "a") && !has_key("[", "b") && !has_key("api_key = 1", "b"));
    }
}
