//! `trunkline key NAME`: a new API key. The key itself is shown once and stored nowhere.

use anyhow::Context as _;

use crate::auth::api_key;
use crate::config;

/// Prints a key for its holder and the entry for the configuration.
pub(super) fn key(name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        config::is_key_name(name),
        "a name has 1 to 64 letters, digits, dots, hyphens, underscores or @"
    );
    let (key, digest) = api_key::generate().context("the system has no randomness")?;
    println!("# Give this to its holder; it is not stored anywhere:");
    println!("#   Authorization: Bearer {key}");
    println!("[[api_key]]\nname = \"{name}\"\nsha256 = \"{digest}\"");
    Ok(())
}
