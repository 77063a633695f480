//! `trunkline tools URL [NAME]`: the tools of a server, or one of them in full.

use std::process::ExitCode;

use clap::Args;

use super::server::ConversationArgs;
use super::{CommandFailure, EXIT_COMMAND_LINE};
use tools::call;

#[derive(Debug, Args)]
#[command(
    override_usage = "\
trunkline tools [OPTIONS] URL [NAME]
       trunkline tools [OPTIONS] [NAME] -- COMMAND [ARGS]...",
    after_help = "\
Exit codes:
  0    done
  2    the command line is wrong, or there is no such tool
  3    the server cannot be reached, refuses, or answers what is not MCP
  130  interrupted

Environment:
  TRUNKLINE_KEY  the key, if there is no --key-file"
)]
pub(super) struct ToolsArgs {
    #[arg(value_name = "URL", help = "The server, for example http://127.0.0.1:8080/mcp")]
    server: Option<String>,
    /// A tool, to see all about it
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print the definitions as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: ConversationArgs,
    /// A program that is a server on its standard input and output, in place of URL
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn tools(options: &ToolsArgs) -> Result<ExitCode, CommandFailure> {
    let (url, name) = match (&options.server, &options.name) {
        // A program takes the place of the URL: what stands first is the tool.
        (name, None) if !options.command.is_empty() => (None, name.as_deref()),
        (url, name) => (url.as_deref(), name.as_deref()),
    };
    let (target, address) =
        options.how.target(url, &options.command, None).map_err(CommandFailure::with(EXIT_COMMAND_LINE))?;
    Ok(call::list(target, &address, name, options.json))
}
