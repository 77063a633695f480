//! The `trunkline` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use trunkline::cli::{self, Arguments};
use trunkline::guardian;

fn main() -> ExitCode {
    guardian::main(std::env::args_os()).unwrap_or_else(|| cli::main(Arguments::parse()))
}
