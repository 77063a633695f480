//! The `trunkline` binary: arguments in, exit code out.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::Parser as _;
use net::guardian;

fn main() -> ExitCode {
    guardian::main(std::env::args_os()).unwrap_or_else(|| commands::main(commands::Arguments::parse()))
}
