//! `trunkline check`: everything that is wrong with a configuration and the files it names, at once.

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueHint};

use super::check_provider::{ProviderArg, check_provider, needs_none, provider};
use super::permissions::PermissionArgs;
use super::status::now_s;
use super::{CommandFailure, EXIT_COMMAND_LINE, EXIT_CONFIGURATION, EXIT_INPUT};
use config::{Config, ConfigSource};
use gateway::FileFindings;
use protocol::text::{shown, shown_lines};
use tools::admin_client::figures::number_of;
use tools::terminal::{self, put};

pub(super) const HELP: &str = "\
Exit codes:
  0   the configuration is valid; with --as: everything that was asked for may be used; with --token: the token fits; \
with --provider: nothing is in the way of a sign-in there
  1   with --as: something that was asked for may not be used; with --token: the token does not fit; \
with --provider: nobody could sign in there
  2   the command line is wrong
  3   with --provider: the provider does not answer
  66  a file that the configuration names cannot be used, such as a certificate or the session key
  78  the configuration is wrong or cannot be read";

/// What is looked at beside the text.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Check the text alone: open no certificate, key, secret or other file that it names
    #[arg(long)]
    no_files: bool,
    /// Ask the provider of sign-in, print what to register there and the configuration for it, and say what is missing
    ///
    /// Without ISSUER it is the provider of the configuration. With one, no configuration is needed.
    #[arg(long, value_name = "ISSUER", num_args = 0..=1, default_missing_value = "", value_parser = provider,
          value_hint = ValueHint::Url, conflicts_with_all = ["principal", "token"])]
    provider: Option<ProviderArg>,
}

/// Reads and checks `path` and the files that it names as `run` would, without opening a socket.
/// Where somebody's permissions are asked for, they are shown instead of what is valid, and no file is opened.
pub(super) fn check(
    path: &Path,
    scope: &CheckArgs,
    asked: &PermissionArgs,
) -> Result<ExitCode, CommandFailure> {
    if let Some(asked) = scope.provider.as_ref().filter(|asked| needs_none(path, asked)) {
        return check_provider(asked, None);
    }
    let files = super::config_files(path).map_err(CommandFailure::with(EXIT_CONFIGURATION))?;
    let name = shown(&path.display().to_string());
    let config = match files.config() {
        Ok(config) => config,
        Err(errors) => {
            terminal::say_text(errors.render_in(&files.source));
            return Ok(ExitCode::from(EXIT_CONFIGURATION));
        }
    };
    let of_keys = files.source.warnings_of_keys(&config, now_s());
    for warning in config.warnings.iter().chain(&of_keys) {
        terminal::say_text(files.source.render(warning));
    }
    if !asked.is_nothing() {
        return asked.answer(&config).map_err(CommandFailure::with(EXIT_COMMAND_LINE));
    }
    if !scope.no_files && !can_use_files(&config, &files.source, &name)? {
        return Ok(ExitCode::from(EXIT_INPUT));
    }
    if let Some(asked) = &scope.provider {
        return check_provider(asked, Some(&config));
    }
    put(format_args!(
        "{name} is valid: {}, {}",
        number_of(config.endpoints.len() as u64, "endpoint", "endpoints"),
        number_of(config.upstreams.len() as u64, "upstream", "upstreams")
    ));
    Ok(ExitCode::SUCCESS)
}

/// Opens what the configuration names, and says what is wrong with it.
fn can_use_files(config: &Config, source: &ConfigSource, name: &str) -> Result<bool, CommandFailure> {
    let findings = FileFindings::of(config)?;
    for (upstream, why) in &findings.programs {
        terminal::say_text(source.render(&source.warning_of_command(upstream, why)));
    }
    for warning in &findings.warnings {
        match config.places.finding(warning) {
            Some(finding) => terminal::say_text(source.render(&finding.as_warning())),
            None => terminal::say(format_args!("warning: {}", shown_lines(warning))),
        }
    }
    for error in &findings.errors {
        match config.places.finding(error) {
            Some(finding) => terminal::say_text(source.render(&finding)),
            None => super::say(&anyhow::anyhow!("{error}")),
        }
    }
    if !findings.errors.is_empty() {
        terminal::say(format_args!(
            "{name} is well written, but what it names cannot be used; --no-files leaves that out"
        ));
    }
    Ok(findings.errors.is_empty())
}
