//! `trunkline completions SHELL`: what a shell needs to complete the command line, from the arguments themselves.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::Shell;

use tools::terminal;

/// The shells that are served.
pub(super) fn shell() -> impl TypedValueParser<Value = Shell> {
    PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|name| name.parse::<Shell>())
}

pub(super) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "trunkline", &mut text);
    terminal::put_text(String::from_utf8(text)?);
    Ok(())
}
