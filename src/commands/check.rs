//! `trunkline check`: everything that is wrong with a configuration and the files it names, at once.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::permissions::PermissionArgs;
use super::{EXIT_COMMAND_LINE, EXIT_CONFIGURATION, EXIT_INPUT};
use config::{self, Config};
use gateway::Findings;
use protocol::text::{shown, shown_lines};
use tools::terminal;
use tools::terminal::put;

/// What is looked at beside the text.
#[derive(Debug, Args)]
pub(super) struct Scope {
    /// Check the text alone: open no certificate, key, secret or other file that it names
    #[arg(long)]
    no_files: bool,
}

/// Reads and checks `path` and the files that it names as `run` would, without opening a socket.
/// Where somebody's permissions are asked for, they are shown instead of what is valid, and no file is opened.
pub(super) fn check(path: &Path, scope: &Scope, asked: &PermissionArgs) -> ExitCode {
    let name = shown(&path.display().to_string());
    let text = match gateway::read(path) {
        Ok(text) => text,
        Err(error) => {
            terminal::say(format_args!("cannot read {name}: {error}"));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    let mut config = match config::parse(&text) {
        Ok(config) => config,
        Err(errors) => {
            terminal::say_text(errors.render(&name, &text));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    gateway::adopt_environment(&mut config);
    for warning in &config.warnings {
        terminal::say_text(warning.render(&name, &text));
    }
    if !asked.is_nothing() {
        return asked.answer(&config).unwrap_or_else(|error| {
            super::say(&error);
            ExitCode::from(EXIT_COMMAND_LINE)
        });
    }
    if !scope.no_files
        && let Err(code) = look_at_files(&config, &name)
    {
        return code;
    }
    put(format_args!(
        "{name} is valid: {} endpoints, {} upstreams",
        config.endpoints.len(),
        config.upstreams.len()
    ));
    ExitCode::SUCCESS
}

/// Opens what the configuration names.
fn look_at_files(config: &Config, name: &str) -> Result<(), ExitCode> {
    let findings = Findings::of(config).map_err(|error| {
        super::say(&error.into());
        ExitCode::FAILURE
    })?;
    for warning in &findings.warnings {
        terminal::say(format_args!("warning: {}", shown_lines(warning)));
    }
    for error in &findings.errors {
        super::say(&anyhow::anyhow!("{error}"));
    }
    if findings.errors.is_empty() {
        return Ok(());
    }
    terminal::say(format_args!(
        "{name} is well written, but what it names cannot be used; --no-files leaves that out"
    ));
    Err(ExitCode::from(EXIT_INPUT))
}
