//! What is made from the program's own declarations: `trunkline man DIRECTORY` writes the manual pages, which packages are
//! built with, and `trunkline reference DIRECTORY` the chapters of the book's reference. Nothing in them depends on the day
//! or the machine.

mod admin_api;
mod configuration;
mod document_writer;
mod errors;
mod help_tables;
mod manual_page;
mod markdown_page;
mod metrics;
mod program;

use std::path::Path;

use anyhow::Context as _;

/// Writes `trunkline.1` and `trunkline.toml.5` into `directory`, which it creates.
pub(super) fn man(directory: &Path) -> anyhow::Result<()> {
    let pages = [
        ("trunkline.1", program::manual(super::command())),
        ("trunkline.toml.5", configuration::manual(&config::json_schema().parse()?)),
    ];
    put(directory, &pages)
}

/// Writes the generated chapters into `directory`, which it creates.
pub(super) fn reference(directory: &Path) -> anyhow::Result<()> {
    put(directory, &chapters()?)
}

fn chapters() -> anyhow::Result<[(&'static str, String); 5]> {
    Ok([
        ("admin-api.json", admin_api::openapi()),
        ("command-line.md", program::chapter(super::command())),
        ("configuration.md", configuration::chapter(&config::json_schema().parse()?)),
        ("errors.md", errors::chapter()),
        ("metrics.md", metrics::chapter()?),
    ])
}

fn put(directory: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot_write)?;
    for (name, text) in files {
        std::fs::write(directory.join(name), text).with_context(cannot_write)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_in_the_repository_is_current() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
        for (name, text) in chapters().unwrap() {
            let there = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
            assert!(there == text, "{name} is out of date; refresh it: trunkline reference docs/reference");
        }
    }
}
