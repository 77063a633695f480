//! `trunkline top`: the state of a gateway, live.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::admin::AdminArgs;
use super::status::unreachable;
use super::{CommandFailure, EXIT_COMMAND_LINE};
use tools::top::{self, TopError, TopSettings};

#[derive(Debug, Args)]
#[command(after_help = "\
Keys: ? shows them, q ends.

Exit codes:
  0   ended by q, Ctrl-C or a signal
  1   the terminal cannot be used
  2   the command line is wrong, or the token cannot be read
  3   the gateway could not be reached at the start; later, it is tried again and again
  78  the configuration cannot be read, or does not say where the gateway is

Environment:
  TRUNKLINE_ADMIN_TOKEN  the token of [admin], if there is no --token-file")]
pub(super) struct TopArgs {
    #[command(flatten)]
    place: AdminArgs,
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
}

/// Shows it until it is told to end.
pub(super) fn top(options: &TopArgs) -> Result<ExitCode, CommandFailure> {
    let admin = options.place.client().map_err(CommandFailure::with(EXIT_COMMAND_LINE))?;
    if !is_screen() {
        let why = "`trunkline top` needs a terminal to draw on; `trunkline status` prints the same once";
        return Err(anyhow::anyhow!(why).into());
    }
    let settings = TopSettings {
        admin: admin.clone(),
        interval: Duration::from_secs(options.interval),
        is_colored: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    match top::run(settings) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(TopError::Gateway(fault)) => Err(unreachable(&admin, &fault)),
        Err(error @ TopError::Terminal(_)) => Err(error.into()),
    }
}

/// Whether there is something to draw on and to type at.
fn is_screen() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !is_dumb && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}
