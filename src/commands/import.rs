//! `trunkline import FILE…`: a configuration from those of desktop and IDE clients.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueHint};

use protocol::text::{shown, shown_lines};
use tools::client_config::{self, ClientFile, ImportSettings, Imported, files};
use tools::terminal::{self, paint, put_text};

#[derive(Debug, Args)]
#[command(after_help = "\
Files of Claude Desktop, Claude Code, Cursor, Windsurf, Cline, Gemini CLI, LM Studio (mcpServers), VS Code (servers), Zed \
(context_servers), opencode (mcp), Codex (mcp_servers, TOML) and others that use one of these forms.

What may be a secret never stands in the configuration: with --secrets it is written to files that the configuration names, \
without it the configuration names credentials, and the remaining steps are printed.

Exit codes:
  0  the configuration was made
  1  a file cannot be read or written, or names no server
  2  the command line is wrong")]
pub(super) struct ImportArgs {
    /// The clients' files; - is standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Write secrets to files in this directory
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    secrets: Option<PathBuf>,
    /// Write the configuration to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Take entries that are switched off, too
    #[arg(long)]
    disabled: bool,
    /// Replace files that are there already
    #[arg(long)]
    force: bool,
}

pub(super) fn import(options: &ImportArgs) -> anyhow::Result<()> {
    let texts = options.files.iter().map(|file| files::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let sources: Vec<ClientFile<'_>> =
        texts.iter().map(|(name, text)| ClientFile { name: name.as_str(), text: text.as_str() }).collect();
    let secrets = options.secrets.as_ref().map(std::path::absolute).transpose()?;
    let secrets = secrets
        .as_deref()
        .map(|directory| directory.to_str().context("--secrets: the name of the directory is not UTF-8"));
    let secrets = secrets.transpose()?;
    let imported =
        client_config::import(&sources, ImportSettings { secrets, with_disabled: options.disabled })?;
    files::write(&imported, secrets.map(Path::new), options.output.as_deref(), options.force)?;
    if options.output.is_none() {
        put_text(&imported.configuration);
    }
    report(options, &imported, secrets);
    Ok(())
}

/// What was done and what is left to do, for a person.
fn report(options: &ImportArgs, imported: &Imported, secrets: Option<&str>) {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut done = plural(imported.upstreams, "upstream");
    if let Some(directory) = secrets.filter(|_| !imported.secrets.is_empty()) {
        done = format!("{done}, {} in {}", plural(imported.secrets.len(), "secret"), shown(directory));
    }
    terminal::say(paint::painted(paint::STRONG, done));
    if !imported.to_do.is_empty() {
        terminal::say(paint::painted(paint::WARNING, "To do:"));
    }
    for item in &imported.to_do {
        terminal::say(format_args!("- {}", shown_lines(item)));
    }
    if let Some(output) = &options.output {
        let command = format!("trunkline check --config {}", shown(&output.display().to_string()));
        terminal::say(format_args!("Next: {}", paint::painted(paint::USE, command)));
    }
}
