//! Tables of all commands, from what the help of each says below a heading such as `Exit codes:`. An entry is a line of two
//! spaces, the term, two spaces or more, and its meaning.

use clap::Command;

/// Rows of one table: the term, and what it means to which commands.
pub(super) type Rows = Vec<(String, String)>;

/// A term in the help of one command.
struct HelpEntry {
    command: String,
    term: String,
    meaning: String,
}

/// What exit codes mean, in their order.
pub(super) fn exit_codes(command: &Command) -> Rows {
    let mut rows = rows(&entries(command, "Exit codes:"), "Of");
    rows.sort_by_key(|(code, _)| code.parse::<u8>().unwrap_or(u8::MAX));
    rows
}

/// What signals do.
pub(super) fn signals(command: &Command) -> Rows {
    rows(&entries(command, "Signals:"), "To")
}

/// The variables of the environment: those in place of options, and those that the help names.
pub(super) fn environment(command: &Command) -> Rows {
    let mut all = Vec::new();
    for command in shown(command) {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if let (Some(variable), Some(option)) = (argument.get_env(), argument.get_long()) {
                let term = variable.to_string_lossy().into_owned();
                let meaning = format!("what `--{option}` says, if it is not given");
                all.push(HelpEntry { command: command.get_name().to_owned(), term, meaning });
            }
        }
    }
    all.extend(entries(command, "Environment:"));
    rows(&all, "For")
}

/// All entries below a heading, command by command.
fn entries(command: &Command, heading: &str) -> Vec<HelpEntry> {
    let mut all = Vec::new();
    for command in shown(command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let below = help.lines().skip_while(|line| *line != heading).skip(1);
        for line in below.take_while(|line| line.starts_with("  ")) {
            if let Some((term, meaning)) = line.trim_start().split_once("  ") {
                let (term, meaning) = (term.to_owned(), meaning.trim().to_owned());
                all.push(HelpEntry { command: command.get_name().to_owned(), term, meaning });
            }
        }
    }
    all
}

/// One row for each term, in the order of their first places; commands to which it means the same are named together.
fn rows(entries: &[HelpEntry], preposition: &str) -> Rows {
    let mut rows = Rows::new();
    for entry in entries {
        if rows.iter().all(|(term, _)| *term != entry.term) {
            let same: Vec<_> = entries.iter().filter(|other| other.term == entry.term).collect();
            rows.push((entry.term.clone(), meanings(&same, preposition)));
        }
    }
    rows
}

fn meanings(entries: &[&HelpEntry], preposition: &str) -> String {
    let mut sentences = Vec::new();
    let mut said: Vec<&str> = Vec::new();
    for entry in entries {
        if !said.contains(&entry.meaning.as_str()) {
            said.push(&entry.meaning);
            let same = entries.iter().filter(|other| other.meaning == entry.meaning);
            let names: Vec<String> = same.map(|other| format!("`{}`", other.command)).collect();
            sentences.push(format!("{preposition} {}: {}.", listed(&names), entry.meaning));
        }
    }
    sentences.join(" ")
}

fn listed(names: &[String]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        names => names.join(""),
    }
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_which_a_term_means_the_same_are_named_together() {
        let with = |name: &'static str, help: &'static str| Command::new(name).after_help(help);
        let command = Command::new("program").subcommands([
            with("a", "Text.\n\nExit codes:\n  2  wrong\n  0  done\n\nEnvironment:\n  X, Y   the key\n"),
            with("b", "Exit codes:\n  0  done\n  2  not right"),
            with("c", "Exit codes:\n  0  done").hide(true),
        ]);
        let expected = [("0", "Of `a` and `b`: done."), ("2", "Of `a`: wrong. Of `b`: not right.")];
        assert_eq!(exit_codes(&command), expected.map(|(term, text)| (term.to_owned(), text.to_owned())));
        assert_eq!(environment(&command), [("X, Y".to_owned(), "For `a`: the key.".to_owned())]);
    }

    #[test]
    fn every_command_lists_its_exit_codes() {
        let command = crate::commands::command();
        for command in shown(&command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for entry in ["Exit codes:\n  0  ", "\n  1  ", "\n  2  "] {
                let is_left_out = entry == "\n  1  " && ["run", "tools"].contains(&command.get_name());
                assert!(is_left_out || help.contains(entry), "{}: {entry:?}", command.get_name());
            }
        }
    }

    #[test]
    fn commands_with_an_option_for_a_secret_name_its_variable() {
        let command = crate::commands::command();
        for command in shown(&command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let has = |id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
            let name = command.get_name();
            assert_eq!(has("token_file"), help.contains("\n  TRUNKLINE_ADMIN_TOKEN  "), "{name}");
            assert_eq!(has("headers"), help.contains("\n  TRUNKLINE_KEY  "), "{name}");
            let asks = has("admin") && name != "demo" || has("provider");
            assert_eq!(asks, help.contains("\n  3  ") && !has("headers"), "{name}");
        }
    }

    #[test]
    fn the_help_leaves_breaking_lines_to_the_terminal() {
        fn check(command: &Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.contains("\n  ")) {
                assert!(!paragraph.contains('\n'), "{}: {paragraph}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&crate::commands::command());
    }
}
