//! The command line: what can be asked for, and the exit codes.
//!
//! 0: done. 1: the command failed. 2: the command line is wrong. 3: who should answer does not. 66: a file that it names cannot be used.
//! 78: the configuration is wrong.
//! Those of the gateway alone are in `run.rs`.

mod admin;
mod call;
mod check;
mod check_provider;
mod completions;
mod connect;
mod demo;
mod doctor;
mod documents;
mod export;
mod grants;
mod groups;
mod import;
mod key;
mod operate;
mod permissions;
mod pins;
mod run;
mod server;
mod session_key;
mod status;
mod tools;
mod top;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueHint};

use ::tools::terminal::{self, paint, put_text};
use config::Config;
use gateway::ConfigFiles;
use protocol::text::shown_lines;

/// The exit code where the command failed.
const EXIT_FAILED: u8 = 1;
/// The exit code for a wrong command line, as clap has it.
const EXIT_COMMAND_LINE: u8 = 2;
/// The exit code where who should answer does not.
const EXIT_UNREACHABLE: u8 = 3;
/// The exit code for a wrong configuration (`EX_CONFIG` of sysexits).
const EXIT_CONFIGURATION: u8 = 78;
/// The exit code where a file that the configuration names cannot be used (`EX_NOINPUT`).
const EXIT_INPUT: u8 = 66;

/// The configuration unless one is named.
const CONFIG_FILE: &str = "/etc/trunkline/trunkline.toml";
/// Of commands that print what the program is built with.
const PRINTS_HELP: &str = "\
Exit codes:
  0  done
  1  standard output cannot be written
  2  the command line is wrong";

/// What to do where there is none.
const FIRST_START: &str = "\
help: name another file with --config FILE or TRUNKLINE_CONFIG
help: to begin with, copy one from config/examples, or, of the package, from /usr/share/doc/trunkline/examples; \
`trunkline demo` needs none";

/// Names another one.
const CONFIG_VARIABLE: &str = "TRUNKLINE_CONFIG";

/// With the commit of a release.
const VERSION: &str = env!("TRUNKLINE_VERSION");

/// A gateway for MCP servers
#[derive(Debug, Parser)]
#[command(version = VERSION, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    #[command(after_help = run::HELP)]
    Run(ConfigFile),
    /// Check a configuration and the files it names
    #[command(after_help = check::HELP)]
    Check {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        scope: check::CheckArgs,
        #[command(flatten)]
        asked: permissions::PermissionArgs,
    },
    /// Run the gateway over two demo servers
    Demo(demo::DemoArgs),
    /// Bridge a stdio client to a remote MCP server
    Connect(connect::ConnectArgs),
    /// Reload the configuration of a running gateway
    Reload(operate::ReloadArgs),
    /// Check whether a running gateway accepts calls
    Ready(operate::ReadyArgs),
    /// Change what a running gateway logs
    LogLevel(operate::LogLevelArgs),
    /// Stop a running gateway as SIGTERM does
    Drain(operate::DrainArgs),
    /// Show and end people's sign-ins
    Grants(grants::GrantsArgs),
    /// Show the state of a running gateway, live
    Top(top::TopArgs),
    /// Print the state of a running gateway
    Status(status::StatusArgs),
    /// List the tools of a server
    Tools(tools::ToolsArgs),
    /// Call a tool of a server
    Call(call::CallArgs),
    /// Diagnose a server, with advice
    Doctor(doctor::DoctorArgs),
    /// Make a configuration from a client's servers
    Import(import::ImportArgs),
    /// Print a client's entry for the gateway
    Export(export::ExportArgs),
    /// Create an API key and its configuration entry
    Key(key::KeyArgs),
    /// Create or rotate a key file
    SessionKey(session_key::SessionKeyArgs),
    /// Show and approve changed definitions of tools
    Pins(pins::PinsArgs),
    /// Print the configuration's JSON Schema
    #[command(after_help = PRINTS_HELP)]
    Schema {
        /// Print the reference file instead, which has every key
        #[arg(long, hide = true)]
        reference: bool,
    },
    /// Generate shell completions
    #[command(after_help = PRINTS_HELP)]
    Completions {
        /// The shell
        #[arg(value_parser = completions::shell())]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// Where to
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Write the generated chapters of the book
    #[command(hide = true)]
    Reference {
        /// Where to
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", env = CONFIG_VARIABLE, hide_env_values = true, default_value = CONFIG_FILE, value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// The configuration file, instead of --config
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
}

impl ConfigFile {
    fn path(&self) -> &Path {
        self.file.as_deref().unwrap_or(&self.config)
    }
}

/// Reads the command line.
pub(crate) fn arguments() -> Arguments {
    let matches = command().get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

pub(crate) fn main(arguments: Arguments) -> ExitCode {
    let code = done(arguments.command).unwrap_or_else(CommandFailure::end);
    let Some(error) = terminal::lost() else { return code };
    say(&anyhow::anyhow!("cannot write to standard output: {error}"));
    ExitCode::FAILURE
}

fn done(command: Command) -> Result<ExitCode, CommandFailure> {
    match command {
        Command::Run(file) => return Ok(run::run(file.path())),
        Command::Check { file, scope, asked } => return check::check(file.path(), &scope, &asked),
        Command::Connect(options) => return connect::connect(&options),
        Command::Tools(options) => return tools::tools(&options),
        Command::Call(options) => return call::call(&options),
        Command::Doctor(options) => return doctor::doctor(&options),
        Command::Reload(options) => return operate::reload(&options),
        Command::Ready(options) => return operate::ready(&options),
        Command::LogLevel(options) => return operate::log_level(&options),
        Command::Drain(options) => return operate::drain(&options),
        Command::Grants(options) => return grants::grants(&options),
        Command::Status(options) => return status::status(&options),
        Command::Top(options) => return top::top(&options),
        Command::Demo(options) => demo::demo(&options)?,
        Command::Import(options) => import::import(&options)?,
        Command::Export(options) => export::export(&options)?,
        Command::Key(options) => key::key(&options)?,
        Command::SessionKey(options) => session_key::session_key(&options)?,
        Command::Pins(options) => pins::pins(&options)?,
        Command::Schema { reference: true } => put_text(config::reference()),
        Command::Schema { reference: false } => put_text(config::json_schema()),
        Command::Completions { shell } => completions::completions(shell)?,
        Command::Man { directory } => documents::man(&directory)?,
        Command::Reference { directory } => documents::reference(&directory)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a command failed, and its exit code unless the configuration is to blame.
struct CommandFailure {
    code: u8,
    error: anyhow::Error,
}

impl CommandFailure {
    /// What makes a failure with this code of an error.
    fn with<E: Into<anyhow::Error>>(code: u8) -> impl Fn(E) -> Self {
        move |error| Self { code, error: error.into() }
    }

    fn end(self) -> ExitCode {
        say(&self.error);
        ExitCode::from(if self.error.is::<Misconfigured>() { EXIT_CONFIGURATION } else { self.code })
    }
}

impl<E: Into<anyhow::Error>> From<E> for CommandFailure {
    fn from(error: E) -> Self {
        Self { code: EXIT_FAILED, error: error.into() }
    }
}

/// Reads the files of a configuration. Where none was named, and none is where it is looked for, that is most likely the
/// first start: it says what to do.
fn config_files(path: &Path) -> anyhow::Result<ConfigFiles> {
    let files = ConfigFiles::read(path);
    if path != Path::new(CONFIG_FILE) || !matches!(path.try_exists(), Ok(false)) {
        return files;
    }
    files.map_err(|error| anyhow::anyhow!("{error:#}\n{FIRST_START}"))
}

/// Reads a configuration for a command that needs something out of it.
fn load(path: &Path) -> Result<Config, Misconfigured> {
    let files = config_files(path).map_err(Misconfigured)?;
    files.config().map_err(|errors| Misconfigured(anyhow::anyhow!(errors.render_in(&files.source))))
}

/// A configuration that is wrong, or cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct Misconfigured(anyhow::Error);

/// The end of an error about a name that is not `known`: which of them may have been meant.
fn near<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    config::nearest(name, known).map(|near| format!(": {near}")).unwrap_or_default()
}

/// Shows an error, which may repeat what strangers wrote.
fn say(error: &anyhow::Error) {
    terminal::say(format_args!(
        "{}: {}",
        paint::painted(paint::BAD, "error"),
        shown_lines(&format!("{error:#}"))
    ));
}

/// The command line, for what is made from it.
fn command() -> clap::Command {
    groups::grouped(Arguments::command())
}
