//! `trunkline check`: everything that is wrong with a configuration, at once.

use std::path::Path;
use std::process::ExitCode;

use super::permissions::Asked;
use super::{EXIT_COMMAND_LINE, EXIT_CONFIGURATION};
use crate::config;
use crate::gateway;
use crate::terminal;
use crate::terminal::put;
use crate::terminal::text::shown;
use crate::upstream::credentials::Material;
use crate::upstream::stdio::program;

/// Reads and checks `path` as `run` would, without opening a socket.
/// Where somebody's permissions are asked for, they are shown instead of what is valid.
pub(super) fn check(path: &Path, asked: &Asked) -> ExitCode {
    let name = shown(&path.display().to_string());
    let text = match gateway::read(path) {
        Ok(text) => text,
        Err(error) => {
            terminal::say(format_args!("cannot read {name}: {error}"));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    match config::parse(&text) {
        Ok(config) => {
            for warning in &config.warnings {
                terminal::say_text(warning.render(&name, &text));
            }
            for upstream in &config.upstreams {
                if let Err(error) = Material::read(upstream) {
                    terminal::say(format_args!("warning: upstream {}: {error}", upstream.name));
                }
                if let Some(error) =
                    upstream.command.as_ref().and_then(|command| program::find(command).err())
                {
                    terminal::say(format_args!("warning: upstream {}: {error}", upstream.name));
                }
            }
            if !asked.is_nothing() {
                return asked.answer(&config).unwrap_or_else(|error| {
                    super::say(&error);
                    ExitCode::from(EXIT_COMMAND_LINE)
                });
            }
            put(format_args!(
                "{name} is valid: {} endpoints, {} upstreams",
                config.endpoints.len(),
                config.upstreams.len()
            ));
            ExitCode::SUCCESS
        }
        Err(errors) => {
            terminal::say_text(errors.render(&name, &text));
            ExitCode::from(EXIT_CONFIGURATION)
        }
    }
}
