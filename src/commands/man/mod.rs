//! `trunkline man DIRECTORY`: the manual pages, from the arguments and from the JSON Schema of the configuration. Packages
//! are built with it. Nothing in a page depends on the day or the machine, so that a package can be built twice alike.

mod configuration;
mod page;
mod program;

use std::path::Path;

use anyhow::Context as _;

/// Writes `trunkline.1` and `trunkline.toml.5` into `directory`, which it creates.
pub(super) fn man(directory: &Path) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot_write)?;
    let schema = serde_json::from_str(&config::json_schema())?;
    for (file, text) in
        [("trunkline.1", program::page(super::command())), ("trunkline.toml.5", configuration::page(&schema))]
    {
        std::fs::write(directory.join(file), text).with_context(cannot_write)?;
    }
    Ok(())
}
