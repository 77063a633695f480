//! `trunkline run`: the daemon, and the exit codes by which a service manager knows whether to start it again.

use std::path::Path;
use std::process::ExitCode;

use super::{EXIT_CONFIGURATION, EXIT_INPUT};
use gateway::context::state::StateError;
use gateway::runtime::{self, EXIT_BUG, End, Gateway, OpenError, SocketsError};
use gateway::session::store::StoreError;
use gateway::telemetry::logs;
use protocol::text::shown_lines;
use tools::terminal;

// As sysexits has them.
/// An address cannot be listened at.
const EXIT_ADDRESS: u8 = 69;
/// The system refuses threads, open files or signals.
const EXIT_SYSTEM: u8 = 71;
/// The state directory cannot be used.
const EXIT_STATE: u8 = 73;

/// Runs until a signal. A wrong configuration is told on standard error, as logging is part of it.
pub(super) fn run(path: &Path) -> ExitCode {
    let config = match runtime::load(path) {
        Ok(config) => config,
        Err(error) => {
            terminal::say(shown_lines(&format!("{error:#}")));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    if let Err(error) = logs::start(&config.log) {
        terminal::say(format_args!("{:#}", anyhow::Error::from(error)));
        return ExitCode::from(EXIT_INPUT);
    }
    runtime::warn_about(&config);
    let code = match Gateway::open(config, Some(path.to_owned())) {
        Ok(gateway) => serve(gateway),
        Err(error) => {
            tracing::error!(%error, "cannot run");
            code(&error)
        }
    };
    logs::finish();
    ExitCode::from(code)
}

fn serve(gateway: Gateway) -> u8 {
    match gateway.run() {
        Ok(End::Told) => 0,
        Ok(End::WorkerDied | End::ControlDied) => EXIT_BUG,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "cannot run");
            EXIT_SYSTEM
        }
    }
}

fn code(error: &OpenError) -> u8 {
    match error {
        OpenError::Sockets(SocketsError::Passed(_)) => EXIT_CONFIGURATION,
        OpenError::Sockets(SocketsError::Listen(_)) => EXIT_ADDRESS,
        OpenError::State(StateError::Sessions(StoreError::Key(_))) => EXIT_INPUT,
        OpenError::State(StateError::Sessions(_)) => EXIT_STATE,
        OpenError::State(StateError::OpenFiles(_)) | OpenError::OpenFiles(_) | OpenError::Signals(_) => {
            EXIT_SYSTEM
        }
        OpenError::State(_) => EXIT_INPUT,
        OpenError::Metrics(_) => EXIT_BUG,
    }
}
