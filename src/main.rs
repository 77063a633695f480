//! The `trunkline` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use trunkline::cli::{self, Arguments};

fn main() -> ExitCode {
    cli::main(Arguments::parse())
}
