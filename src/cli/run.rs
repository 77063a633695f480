//! `trunkline run`: the daemon.

use std::path::Path;
use std::process::ExitCode;

use super::EXIT_CONFIGURATION;
use crate::gateway::{self, Gateway};
use crate::telemetry::logs;

/// Runs until a signal. A wrong configuration is told on standard error, as logging is part of it.
pub(super) fn run(path: &Path) -> ExitCode {
    let config = match gateway::load(path) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    logs::start(&config.log);
    gateway::warn_about(&config);
    match Gateway::open(config, Some(path.to_owned())).and_then(Gateway::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "cannot run");
            ExitCode::FAILURE
        }
    }
}
