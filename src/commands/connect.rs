//! `trunkline connect`: standard input and output against a server elsewhere.

use std::process::ExitCode;

use clap::Args;

use super::server::ServerArgs;
use super::{CommandFailure, EXIT_COMMAND_LINE};
use tools::connect;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  the client ended its output or closed its input, or a signal came
  1  standard input or output cannot be used
  2  the command line is wrong, or the key or the certificates cannot be read

Environment:
  TRUNKLINE_KEY  the key, if there is no --key-file

What goes wrong with the server is not an exit: the request it happened to gets an error.")]
pub(super) struct ConnectArgs {
    #[arg(help = "The server, for example http://127.0.0.1:8080/mcp", value_hint = clap::ValueHint::Url)]
    url: String,
    #[command(flatten)]
    how: ServerArgs,
}

pub(super) fn connect(options: &ConnectArgs) -> Result<ExitCode, CommandFailure> {
    let address = options.how.address(&options.url).map_err(CommandFailure::with(EXIT_COMMAND_LINE))?;
    connect::run(&address, options.how.timeout())?;
    Ok(ExitCode::SUCCESS)
}
