//! `trunkline --help`: the commands by what they are for, each with what it says of itself.

use std::fmt::Write as _;

use clap::Command;

/// The commands that are shown, in order.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Gateway",
        &["run", "check", "demo", "reload", "ready", "status", "top", "log-level", "grants", "drain"],
    ),
    ("Keys and pins", &["key", "session-key", "pins"]),
    ("Servers and their tools", &["tools", "call", "doctor", "connect"]),
    ("Configuration and clients", &["import", "export", "schema", "completions"]),
];

/// The command line with its commands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, "\n{heading}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let _ = writeln!(list, "  {name:<13}{}", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}\nOptions:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// clap does not wrap what stands in a template.
    #[test]
    fn the_list_fits_a_narrow_terminal() {
        let help = crate::commands::command().render_help().to_string();
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(60), "{help}");
    }

    #[test]
    fn every_command_has_its_place() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = crate::commands::command();
        let mut shown: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        grouped.sort_unstable();
        shown.sort_unstable();
        assert_eq!(grouped, shown);
    }
}
