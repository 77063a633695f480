//! `trunkline completions SHELL`: what a shell needs to complete the command line, from the arguments themselves.

use clap::ValueEnum;
use clap_complete::Shell;

use tools::terminal;

/// The shells that are served.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completions.
pub(super) fn completions(shell: ShellArg) -> anyhow::Result<()> {
    let shell = match shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "trunkline", &mut text);
    terminal::put_text(String::from_utf8(text)?);
    Ok(())
}
