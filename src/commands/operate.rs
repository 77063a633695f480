//! `trunkline reload`, `ready`, `log-level` and `drain`: what an operator asks of a running gateway, by its admin listener.

use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use http::StatusCode;

use super::admin::AdminArgs;
use super::status::unreachable;
use super::{CommandFailure, EXIT_COMMAND_LINE, EXIT_CONFIGURATION, EXIT_FAILED};
use protocol::text::shown_lines;
use tools::admin_client::client::AdminClient;
use tools::terminal::{self, put};

/// `trunkline reload`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0   the new configuration is in force
  1   the gateway refuses, for example because it is about to stop
  2   the command line is wrong, or the token cannot be read
  3   the gateway cannot be reached, or does not answer
  78  the configuration, or a file that it names, is wrong or cannot be read; the gateway keeps the old one

Environment:
  TRUNKLINE_ADMIN_TOKEN  the token of [admin], if there is no --token-file")]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    place: AdminArgs,
}

/// `trunkline ready`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0   ready; with --live: alive
  1   the gateway is about to stop
  2   the command line is wrong, or the token cannot be read
  3   the gateway cannot be reached, or does not answer
  78  the configuration cannot be read, or does not say where the gateway is

Environment:
  TRUNKLINE_ADMIN_TOKEN  the token of [admin], if there is no --token-file

The gateway asks for no token here. Containers without a shell can use this as a probe.")]
pub(super) struct ReadyArgs {
    #[command(flatten)]
    place: AdminArgs,
    /// Only ask whether the process is alive
    #[arg(long)]
    live: bool,
}

/// `trunkline log-level`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0   the level is in force
  1   the gateway refuses
  2   the command line is wrong, or the token cannot be read
  3   the gateway cannot be reached, or does not answer
  78  the configuration cannot be read, or does not say where the gateway is

Environment:
  TRUNKLINE_ADMIN_TOKEN  the token of [admin], if there is no --token-file")]
pub(super) struct LogLevelArgs {
    /// The level, until a reload brings another one
    #[arg(value_parser = ["error", "warn", "info", "debug", "trace"])]
    level: String,
    #[command(flatten)]
    place: AdminArgs,
}

/// `trunkline drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
The gateway stops as after SIGTERM: /readyz answers 503, calls in flight end, and it exits with 0. Its [admin] needs a token, \
or a Unix socket.

Exit codes:
  0   the gateway drains
  1   the gateway refuses
  2   the command line is wrong, or the token cannot be read
  3   the gateway cannot be reached, or does not answer
  78  the configuration cannot be read, or does not say where the gateway is

Environment:
  TRUNKLINE_ADMIN_TOKEN  the token of [admin], if there is no --token-file")]
pub(super) struct DrainArgs {
    #[command(flatten)]
    place: AdminArgs,
}

/// Has the configuration read again.
pub(super) fn reload(options: &ReloadArgs) -> Result<ExitCode, CommandFailure> {
    let (status, text) = asked(&options.place, AdminQuestion::Post("/reload", "{}".into()))?;
    let failed = if status == StatusCode::UNPROCESSABLE_ENTITY { EXIT_CONFIGURATION } else { EXIT_FAILED };
    Ok(told(status, &text, failed))
}

/// Says whether the gateway takes calls.
pub(super) fn ready(options: &ReadyArgs) -> Result<ExitCode, CommandFailure> {
    let target = if options.live { "/livez" } else { "/readyz" };
    let (status, text) = asked(&options.place, AdminQuestion::Get(target))?;
    Ok(told(status, &text, EXIT_FAILED))
}

/// Changes what is logged.
pub(super) fn log_level(options: &LogLevelArgs) -> Result<ExitCode, CommandFailure> {
    // The levels are words without quotes.
    let body = format!("{{\"level\":\"{}\"}}", options.level);
    let (status, text) = asked(&options.place, AdminQuestion::Post("/log-level", body))?;
    Ok(told(status, &text, EXIT_FAILED))
}

/// Has the gateway end in order.
pub(super) fn drain(options: &DrainArgs) -> Result<ExitCode, CommandFailure> {
    let (status, text) = asked(&options.place, AdminQuestion::Post("/drain", "{}".into()))?;
    Ok(told(status, &text, EXIT_FAILED))
}

/// What is asked, and where.
enum AdminQuestion {
    Get(&'static str),
    Post(&'static str, String),
}

fn asked(place: &AdminArgs, question: AdminQuestion) -> Result<(StatusCode, Bytes), CommandFailure> {
    let admin: AdminClient = place.client().map_err(CommandFailure::with(EXIT_COMMAND_LINE))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())?;
    let answer = runtime.block_on(async {
        match question {
            AdminQuestion::Get(target) => admin.ask(target).await,
            AdminQuestion::Post(target, body) => admin.post(target, body).await,
        }
    });
    answer.map_err(|fault| unreachable(&admin, &fault))
}

/// Shows an answer: on standard output what went well, else on standard error, with the exit code `failed`.
fn told(status: StatusCode, text: &[u8], failed: u8) -> ExitCode {
    let text = shown_lines(String::from_utf8_lossy(text).trim_end());
    if status.is_success() {
        put(text);
        return ExitCode::SUCCESS;
    }
    terminal::say(text);
    ExitCode::from(failed)
}
