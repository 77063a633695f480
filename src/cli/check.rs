//! `trunkline check`: everything that is wrong with a configuration, at once.

use std::path::Path;
use std::process::ExitCode;

use super::EXIT_CONFIGURATION;
use crate::config;

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
