//! `trunkline check`: everything that is wrong with a configuration, at once.

use std::path::Path;
use std::process::ExitCode;

use super::EXIT_CONFIGURATION;
use crate::config;
use crate::upstream::stdio::program;

/// Reads and checks `path` as `run` would, without opening a socket.
pub(super) fn check(path: &Path) -> ExitCode {
    let name = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("cannot read {name}: {error}");
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    match config::parse(&text) {
        Ok(config) => {
            for warning in &config.warnings {
                eprint!("{}", warning.render(&name, &text));
            }
            for upstream in &config.upstreams {
                if let Some(error) =
                    upstream.command.as_ref().and_then(|command| program::find(command).err())
                {
                    eprintln!("warning: upstream {}: {error}", upstream.name);
                }
            }
            println!(
                "{name} is valid: {} endpoints, {} upstreams",
                config.endpoints.len(),
                config.upstreams.len()
            );
            ExitCode::SUCCESS
        }
        Err(errors) => {
            eprint!("{}", errors.render(&name, &text));
            ExitCode::from(EXIT_CONFIGURATION)
        }
    }
}
