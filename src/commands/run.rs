//! `trunkline run`: the daemon, and the exit codes by which a service manager knows whether to start it again.

use std::path::Path;
use std::process::ExitCode;

use super::{EXIT_CONFIGURATION, EXIT_INPUT};
use gateway::{EXIT_BUG, ExitCause, Gateway, SocketsError, StartError, StateError, StoreError, logs};
use tools::terminal;

/// What the service manager has to know.
pub(super) const HELP: &str = "\
Exit codes:
  0   drained and stopped
  2   the command line is wrong
  66  a file that the configuration names cannot be used, such as a certificate or the session key
  69  an address cannot be listened at
  70  a thread died or hung, which is a bug; the workers were drained
  71  the system refuses threads or open files
  73  the state directory cannot be used
  78  the configuration is wrong, cannot be read, or does not fit the sockets that systemd passed

After 2 and 78 the systemd unit does not start it again.

Signals:
  SIGHUP           reload configuration, certificates, keys and secrets: all of it or nothing
  SIGTERM, SIGINT  drain and stop: see [drain] in trunkline.toml(5); a second one stops at once

Environment:
  STATE_DIRECTORY                         where state is kept, if state_directory is not set
  CREDENTIALS_DIRECTORY                   where secrets of the form { credential = \"NAME\" } are
  NOTIFY_SOCKET, WATCHDOG_USEC            where and how often systemd is told the state
  LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES  the sockets that systemd opened
  OTEL_*                                  what [trace] leaves out, by the names of OpenTelemetry";

// As sysexits has them.
/// An address cannot be listened at.
const EXIT_ADDRESS: u8 = 69;
/// The system refuses threads, open files or signals.
const EXIT_SYSTEM: u8 = 71;
/// The state directory cannot be used.
const EXIT_STATE: u8 = 73;

/// Runs until a signal. A wrong configuration is told on standard error, as logging is part of it.
pub(super) fn run(path: &Path) -> ExitCode {
    let files = match super::config_files(path) {
        Ok(files) => files,
        Err(error) => {
            super::say(&error);
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    let config = match files.config() {
        Ok(config) => config,
        Err(errors) => {
            terminal::say_text(errors.render_in(&files.source));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    if let Err(error) = logs::start(&config.log) {
        let error = format!("{:#}", anyhow::Error::from(error));
        super::say(&anyhow::anyhow!(config.places.located(&files.source, error)));
        return ExitCode::from(EXIT_INPUT);
    }
    gateway::warn_about(&config);
    let places = config.places.clone();
    let code = match Gateway::open(config, Some(path.to_owned()), super::VERSION) {
        Ok(gateway) => serve(gateway),
        Err(error) => {
            tracing::error!(error = places.located(&files.source, error.to_string()), "cannot run");
            code(&error)
        }
    };
    logs::finish();
    ExitCode::from(code)
}

fn serve(gateway: Gateway) -> u8 {
    match gateway.run() {
        Ok(ExitCause::Told) => 0,
        Ok(ExitCause::WorkerDied | ExitCause::ControlDied) => EXIT_BUG,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "cannot run");
            EXIT_SYSTEM
        }
    }
}

fn code(error: &StartError) -> u8 {
    match error {
        StartError::Sockets(SocketsError::Passed(_)) => EXIT_CONFIGURATION,
        StartError::Sockets(SocketsError::Listen(_)) => EXIT_ADDRESS,
        StartError::State(StateError::Sessions(StoreError::Key(_))) => EXIT_INPUT,
        StartError::State(StateError::Sessions(_)) => EXIT_STATE,
        StartError::State(StateError::OpenFiles(_)) | StartError::OpenFiles(_) | StartError::Signals(_) => {
            EXIT_SYSTEM
        }
        StartError::State(_) => EXIT_INPUT,
        StartError::Metrics(_) => EXIT_BUG,
    }
}
