//! `trunkline doctor URL` and `trunkline doctor -- COMMAND…`: an inspection.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::server::{ServerArgs, server};
use super::{CommandFailure, EXIT_COMMAND_LINE, EXIT_UNREACHABLE};
use client::server::Server;
use tools::doctor::{self, InspectSettings, InspectionRule, Report, Severity};
use tools::terminal::{self, put};

const CALLS_MAX: i64 = 100;

#[derive(Debug, Args)]
#[command(
    mut_arg("timeout", |argument| argument
        .default_value("10")
        .help("Seconds that an answer may take; the whole inspection may take twelve times that")),
    after_help = "\
Exit codes:
  0  inspected, and nothing found that --fail-on names
  1  inspected, and something found that --fail-on names
  2  the command line is wrong, or the key or the certificates cannot be read
  3  not inspected: the server cannot be reached, rejects the credentials, or is no MCP server

Environment:
  TRUNKLINE_KEY  the key, if there is no --key-file

No tool is called, unless --call names one. Some requests are wrong on purpose: they show how the server refuses them, and \
have no other effect."
)]
pub(super) struct DoctorArgs {
    #[arg(help = "The server, for example http://127.0.0.1:8080/mcp", required_unless_present = "command")]
    url: Option<String>,
    /// In place of a URL: a program that is a server on its standard input and output, with its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "url")]
    command: Vec<OsString>,
    #[command(flatten)]
    how: ServerArgs,
    /// The least severity of a finding that makes the exit code 1
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// A rule to pass over, by its id; may be given more than once
    #[arg(long, value_name = "RULE", value_parser = doctor::find_rule)]
    ignore: Vec<&'static InspectionRule>,
    /// Call this tool, too
    #[arg(long, value_name = "TOOL")]
    call: Option<String>,
    /// The arguments of that call, as a JSON object
    #[arg(long, value_name = "JSON", requires = "call", value_parser = object, default_value = "{}")]
    arguments: Value,
    /// How often to call it
    #[arg(long, value_name = "COUNT", requires = "call", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=CALLS_MAX))]
    calls: u32,
    /// Show every occurrence and every rule that passed
    #[arg(long, short)]
    long: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Errors
    Error,
    /// Errors and warnings
    Warning,
    /// Any finding
    Advice,
    /// Nothing
    Never,
}

pub(super) fn doctor(options: &DoctorArgs) -> Result<ExitCode, CommandFailure> {
    let server = inspected(options).map_err(CommandFailure::with(EXIT_COMMAND_LINE))?;
    let settings = InspectSettings {
        timeout: options.how.timeout(),
        call: options.call.clone().map(|tool| (tool, options.arguments.clone(), options.calls)),
    };
    let report = doctor::inspect(&server, &called(options), &settings, &options.ignore)
        .map_err(CommandFailure::with(EXIT_UNREACHABLE))?;
    let Some(report) = report else { return Ok(ExitCode::from(EXIT_UNREACHABLE)) };
    print(options, &report);
    Ok(code(options, &report))
}

fn inspected(options: &DoctorArgs) -> anyhow::Result<Server> {
    if let Some(word) = options.url.as_deref().filter(|url| !url.contains("://")) {
        anyhow::bail!(
            "{word:?} is no URL; a program is given behind --, as in: trunkline doctor -- {}",
            protocol::text::shown(word)
        );
    }
    server(&options.how, options.url.as_deref(), &options.command)
}

/// What the server is called in the report.
fn called(options: &DoctorArgs) -> String {
    if let Some(url) = &options.url {
        // A query may hold a secret.
        return url.split_once('?').map_or(url.to_owned(), |(url, _)| format!("{url}?…"));
    }
    let words: Vec<_> = options.command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn print(options: &DoctorArgs, report: &Report) {
    if options.json {
        let text = serde_json::to_string_pretty(&report.json()).unwrap_or_default();
        put(protocol::text::shown_json(&text));
    } else {
        put(report.text(terminal::columns(), options.long).trim_end());
    }
}

fn code(options: &DoctorArgs, report: &Report) -> ExitCode {
    if !report.is_inspected() {
        return ExitCode::from(EXIT_UNREACHABLE);
    }
    let counted = match options.fail_on {
        FailOn::Error => &[Severity::Error][..],
        FailOn::Warning => &[Severity::Error, Severity::Warning],
        FailOn::Advice => &Severity::ALL,
        FailOn::Never => &[],
    };
    let is_fit = counted.iter().all(|severity| report.count(*severity) == 0);
    if is_fit { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn object(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("it is not a JSON object".to_owned()) }
}
