//! The command line: what can be asked for, and the exit codes.
//!
//! 0: done. 1: it went wrong. 2: the command line is wrong. 64: the configuration is wrong. Those of the gateway alone are
//! in `run.rs`.

mod check;
mod completions;
mod connect;
mod demo;
mod key;
mod man;
mod permissions;
mod pins;
mod run;
mod session_key;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

/// The exit code for a wrong command line, as clap has it.
const EXIT_COMMAND_LINE: u8 = 2;
/// The exit code for a wrong configuration (`EX_USAGE` of sysexits).
const EXIT_CONFIGURATION: u8 = 64;

/// A multiplexing proxy for the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Run(ConfigFile),
    /// Check a configuration file and say everything that is wrong with it, or what somebody may do by its rules
    Check {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        asked: permissions::Asked,
    },
    /// Run the gateway over two built-in demo servers and show what to try
    Demo(demo::Options),
    /// Be an MCP server on standard input and output that passes everything to a server elsewhere
    Connect(connect::Options),
    /// Make a new API key and the entry that lets it in
    Key {
        /// Who will hold it
        name: String,
    },
    /// Make a file of keys that seal session ids, or put a new key into it
    SessionKey {
        /// The key file
        file: PathBuf,
    },
    /// Show and approve changed definitions of tools
    Pins(pins::Options),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print what a shell needs to complete the command line
    Completions {
        /// The shell
        shell: completions::For,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// Where to
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/trunkline/trunkline.toml")]
    config: PathBuf,
}

/// Does what `arguments` ask for.
pub fn main(arguments: Arguments) -> ExitCode {
    let result = match arguments.command {
        Command::Run(file) => return run::run(&file.config),
        Command::Check { file, asked } => return check::check(&file.config, &asked),
        Command::Connect(options) => return connect::connect(&options),
        Command::Demo(options) => demo::demo(&options),
        Command::Key { name } => key::key(&name),
        Command::SessionKey { file } => session_key::session_key(&file),
        Command::Pins(options) => pins::pins(&options),
        Command::Schema => {
            print!("{}", crate::config::json_schema());
            Ok(())
        }
        Command::Completions { shell } => {
            completions::completions(shell);
            Ok(())
        }
        Command::Man { directory } => man::man(&directory),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command line, for what is made from it.
fn command() -> clap::Command {
    Arguments::command()
}
