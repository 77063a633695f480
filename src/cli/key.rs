//! `trunkline key NAME`: a new API key. The key itself is shown once and stored nowhere.

use anyhow::Context as _;

use crate::auth::api_key;
use crate::config;
use crate::terminal;

/// Prints a key for its holder and the entry for the configuration.
pub(super) fn key(name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        config::is_key_name(name),
        "a name has 1 to 64 letters, digits, dots, hyphens, underscores or @"
    );
    let (key, digest) = api_key::generate().context("the system has no randomness")?;
    terminal::put_text(format_args!(
        "# Give this to its holder; it is not stored anywhere:\n#   Authorization: Bearer {key}\n\
         [[api_key]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n"
    ));
    Ok(())
}
