//! `trunkline status`: the state of a gateway, once.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use clap::Args;

use super::admin::AdminArgs;
use super::{CommandFailure, EXIT_COMMAND_LINE, EXIT_UNREACHABLE};
use protocol::text::shown_json;
use status::Status;
use status::problem;
use tools::admin_client::client::{AdminClient, AdminError};
use tools::admin_client::report::StatusReport;
use tools::terminal::progress::Progress;
use tools::terminal::put;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0   no problem, warnings at most
  1   there is a problem, marked with ✗
  2   the command line is wrong, or the token cannot be read
  3   the gateway cannot be reached, or does not answer
  78  the configuration cannot be read, or does not say where the gateway is

Environment:
  TRUNKLINE_ADMIN_TOKEN  the token of [admin], if there is no --token-file")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    place: AdminArgs,
    /// Print what GET /status answers, as it is
    #[arg(long)]
    json: bool,
    /// Show every endpoint, upstream and problem
    #[arg(long, conflicts_with = "json")]
    all: bool,
}

pub(super) fn status(options: &StatusArgs) -> Result<ExitCode, CommandFailure> {
    let admin = options.place.client().map_err(CommandFailure::with(EXIT_COMMAND_LINE))?;
    let answer = ask(&admin).and_then(|text| {
        status::parse(&text).ok_or(AdminError::Nonsense).map(|status: Status| (text, status))
    });
    let (text, status) = answer.map_err(|fault| unreachable(&admin, &fault))?;
    let now_s = now_s();
    let problems = status.told_problems(now_s);
    if options.json {
        write_json(&text);
    } else {
        let place = admin.place().to_string();
        let report = StatusReport {
            status: &status,
            problems: &problems,
            place: &place,
            now_s,
            is_whole: options.all,
        };
        put(report.text().trim_end());
    }
    let (wrong, _) = problem::counts(&problems);
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The failure for a gateway that cannot be asked.
pub(super) fn unreachable(admin: &AdminClient, fault: &AdminError) -> CommandFailure {
    let place = admin.place();
    let advice = match fault {
        AdminError::Unreachable(_) => {
            "\nhelp: is the gateway running? --admin or --config says where its [admin] is"
        }
        _ => "",
    };
    let error = anyhow::anyhow!("no answer from the gateway at {place}: {fault}{advice}");
    CommandFailure { code: EXIT_UNREACHABLE, error }
}

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

fn ask(admin: &AdminClient) -> Result<Bytes, AdminError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|error| AdminError::Unreachable(error.to_string()))?;
    runtime.block_on(async {
        let _progress = Progress::start(&format!("asking {}", admin.place()));
        admin.get("/status").await
    })
}

/// As it came, but for what a terminal might obey: that is escaped. Tabs and the like stand between the members only.
fn write_json(text: &[u8]) {
    let text = String::from_utf8_lossy(text).replace(['\t', '\r'], " ");
    put(shown_json(text.trim_end()));
}
