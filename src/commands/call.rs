//! `trunkline call URL TOOL [ARGS]`: one call of a tool.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::server::ConversationArgs;
use super::{CommandFailure, EXIT_COMMAND_LINE};
use protocol::level::Level;
use protocol::text::shown;
use tools::call::{self, CallOptions, CallSettings};

#[derive(Debug, Args)]
#[command(
    override_usage = "\
trunkline call [OPTIONS] URL TOOL [ARGS]...
       trunkline call [OPTIONS] TOOL [ARGS]... -- COMMAND [ARGS]...",
    after_help = "\
Arguments are flags named after the properties of the tool's inputSchema: `trunkline tools URL TOOL` shows them.
  --city Oslo --days 2     text, numbers
  --verbose, --no-verbose  true, false
  --tag a --tag b          a list
  --at.x 1 --at.y 2        an object
  '{\"city\": \"Oslo\"}'       all as JSON; also @FILE, or - for standard input. Flags add to it.
Behind TOOL, --json, --save, --answer, --json-args and --unchecked are still options of this command, and --help shows what \
the tool takes, unless the tool has an argument of that name. All other options stand before TOOL.

Exit codes:
  0    done
  1    the tool says that it failed, or its files cannot be written
  2    the command line is wrong: no such tool, or arguments that do not fit it; nothing was called
  3    the server cannot be reached, refuses, or answers what is not MCP
  130  interrupted; the call was cancelled

Environment:
  TRUNKLINE_KEY  the key, if there is no --key-file"
)]
pub(super) struct CallArgs {
    /// All arguments as a JSON object
    #[arg(long, value_name = "JSON")]
    json_args: Option<String>,
    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
    /// Write images, sound and other files of the result to this directory
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// An answer to a question of the server, as FIELD=VALUE; may be given more than once
    #[arg(long, value_name = "FIELD=VALUE")]
    answer: Vec<String>,
    /// The least level of log lines to show
    #[arg(long, value_name = "LEVEL", value_parser = level())]
    log_level: Option<Level>,
    /// Send arguments that do not fit the tool's schema all the same
    #[arg(long)]
    unchecked: bool,
    #[command(flatten)]
    how: ConversationArgs,
    #[arg(value_name = "URL", help = "The server, for example http://127.0.0.1:8080/mcp")]
    server: String,
    /// The tool, and its arguments
    #[arg(value_name = "TOOL", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What is called.
struct CallWords<'a> {
    url: Option<&'a str>,
    tool: &'a str,
    words: &'a [String],
    command: &'a [String],
}

pub(super) fn call(options: &CallArgs) -> Result<ExitCode, CommandFailure> {
    let wrong = CommandFailure::with(EXIT_COMMAND_LINE);
    let CallWords { url, tool, words, command } =
        call_words(options, std::env::args_os().rev().position(|word| word == "--")).map_err(&wrong)?;
    let (target, address) = options.how.target(url, command, options.log_level).map_err(wrong)?;
    let call_options = CallOptions {
        is_json: options.json,
        is_unchecked: options.unchecked,
        save: options.save.clone(),
        answers: options.answer.clone(),
        json_args: options.json_args.clone(),
    };
    Ok(call::call(CallSettings { target, address: &address, tool, words, options: call_options }, &is_option))
}

fn level() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.map(Level::as_str))
        .try_map(|name| Level::of(&name).ok_or("no such level"))
}

/// Tells the tool, its arguments and the program apart: whether the server is a program shows in `--`, which clap leaves
/// out where it stands first.
fn call_words(options: &CallArgs, words_behind_dashes: Option<usize>) -> anyhow::Result<CallWords<'_>> {
    anyhow::ensure!(
        words_behind_dashes.is_none_or(|count| count <= options.words.len()),
        "which tool? It stands before --, as in: trunkline call TOOL -- COMMAND"
    );
    let (words, command) = match options.words.iter().position(|word| word == "--") {
        Some(at) => {
            (options.words.get(..at).unwrap_or_default(), options.words.get(at + 1..).unwrap_or_default())
        }
        None if words_behind_dashes.is_some() && !options.server.contains("://") => {
            (Default::default(), options.words.as_slice())
        }
        None => (options.words.as_slice(), Default::default()),
    };
    if options.server.contains("://") || command.is_empty() {
        let Some((tool, words)) = words.split_first() else {
            anyhow::ensure!(
                !options.server.contains("://"),
                "which tool? `trunkline tools {}` lists them",
                shown(&options.server)
            );
            anyhow::bail!(
                "give the URL of a server and a tool, or a tool and, behind --, a program that is a server"
            );
        };
        return Ok(CallWords { url: Some(&options.server), tool, words, command });
    }
    Ok(CallWords { url: None, tool: &options.server, words, command })
}

/// Whether this is an option of the command itself.
fn is_option(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    super::command().find_subcommand("call").is_some_and(|call| {
        call.get_arguments().any(|argument| {
            let long = argument.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
            let short = argument.get_short().map(|short| format!("-{short}"));
            long || short.is_some_and(|short| short == name)
        })
    })
}
