//! `trunkline key NAME`: a new API key. The key itself is shown once and stored nowhere.
//!
//! The entry goes to standard output, for the configuration, which everybody may read. The key goes to standard error, so
//! that it does not get there with it.

use anyhow::Context as _;

use gateway::api_key;
use tools::terminal;

/// Prints the entry for the configuration, and apart from it the key for its holder.
pub(super) fn key(name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        config::is_key_name(name),
        "a name has 1 to 64 letters, digits, dots, hyphens, underscores or @"
    );
    let (key, digest) = api_key::generate().context("the system has no randomness")?;
    terminal::put_text(format_args!("[[api_key]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n"));
    terminal::say(format_args!(
        "Give this to its holder; it is not stored anywhere:\n  Authorization: Bearer {key}"
    ));
    Ok(())
}
