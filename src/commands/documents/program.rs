//! `trunkline(1)` and the chapter of the same content: the commands and options as the parser of the command line has them,
//! tables from the help of all commands; what neither knows is here.

use clap::Command;
use clap_mangen::Man;

use super::document_writer::DocumentWriter;
use super::help_tables::{self, Rows};
use super::manual_page::ManualPage;
use super::markdown_page::MarkdownPage;

const DESCRIPTION: [&str; 3] = [
    "`trunkline` is a daemon between clients of the Model Context Protocol (MCP) and many tool servers. Clients connect \
     to one address. It routes each call by its headers, checks them against the body, merges the lists of all servers, \
     and relays replies as they arrive.",
    "It enforces access rules and limits, reloads without dropping calls, and exports Prometheus metrics.",
    "`trunkline run` is the daemon. The other commands configure, inspect or test it.",
];

/// What all commands keep to.
const ENVIRONMENT_OF_ALL: (&str, &str) =
    ("NO_COLOR", "Set to anything: no colours. They are for terminals alone in any case.");

const FILES: [(&str, &str); 4] = [
    (
        "/etc/trunkline/trunkline.toml",
        "The configuration unless `--config` names another; see `trunkline.toml`(5).",
    ),
    (
        "/var/lib/trunkline",
        "State under systemd: the session key, sessions, pinned tools, what is known of upstreams.",
    ),
    ("/var/cache/trunkline", "Under systemd the home of child processes, such as for what npx fetches."),
    (
        "/usr/share/doc/trunkline",
        "Of the package: the reference configuration with every key, rules for Prometheus, a dashboard for Grafana, the \
         list of all components (CycloneDX).",
    ),
];

/// What it does, and the commands, in an order in which they work one after another.
const EXAMPLES: [(&str, &str); 9] = [
    ("Show everything that is wrong with a configuration:", "trunkline check --config trunkline.toml"),
    (
        "Make a key for a caller named `ci`, and the entry that lets it in:",
        "trunkline key ci --append trunkline.toml",
    ),
    (
        "Show what that caller may use, and whether it may call one tool:",
        "trunkline check --config trunkline.toml --as ci --tool forecast",
    ),
    (
        "Ask a provider at which people are to sign in:",
        "trunkline check --provider https://login.example.com",
    ),
    (
        "Run, and after a change of the file take it up:",
        "trunkline run --config trunkline.toml &\nkill -HUP $!",
    ),
    ("Prepend a new key for session ids to the old ones:", "trunkline session-key session.key"),
    (
        "Show the definitions of tools that are pinned:",
        "trunkline pins list --config trunkline.toml --state-directory state",
    ),
    (
        "Print what an editor needs to reach the gateway:",
        "trunkline export --client cursor --config trunkline.toml",
    ),
    ("Complete the command line in this shell:", "source <(trunkline completions bash)"),
];

/// The manual page.
pub(super) fn manual(mut command: Command) -> String {
    command.build();
    let mut page = ManualPage::new("TRUNKLINE", "1");
    page.name("trunkline", "a gateway for MCP servers");
    page.section("SYNOPSIS");
    page.rendered(&of(&command, Man::render_synopsis_section));
    page.description(&DESCRIPTION);
    page.section("COMMANDS");
    commands(&mut page, &command);
    tables(&mut page, &command);
    page.section("EXAMPLES");
    for (what, how) in EXAMPLES {
        page.paragraph(what);
        page.example("sh", how);
    }
    page.section("SEE ALSO");
    page.paragraph("`trunkline.toml`(5), `systemctl`(1), `systemd.exec`(5)");
    page.finish()
}

/// How wide the help is in the chapter, whatever terminal makes it.
const COLUMNS: usize = 100;

/// The chapter of the book.
pub(super) fn chapter(command: Command) -> String {
    let mut command = command.term_width(COLUMNS);
    command.build();
    let mut page = MarkdownPage::new("Command line", &DESCRIPTION);
    page.section("COMMANDS");
    help(&mut page, &command);
    tables(&mut page, &command);
    page.finish()
}

fn tables(page: &mut impl DocumentWriter, command: &Command) {
    fn borrowed(rows: &Rows) -> Vec<(&str, &str)> {
        rows.iter().map(|(term, meaning)| (term.as_str(), meaning.as_str())).collect()
    }
    let environment = help_tables::environment(command);
    let mut variables = borrowed(&environment);
    variables.push(ENVIRONMENT_OF_ALL);
    page.table("EXIT STATUS", &borrowed(&help_tables::exit_codes(command)));
    page.table("SIGNALS", &borrowed(&help_tables::signals(command)));
    page.table("ENVIRONMENT", &variables);
    page.table("FILES", &FILES);
}

/// What each command says to `--help`.
fn help(page: &mut MarkdownPage, parent: &Command) {
    for command in parent.get_subcommands().filter(|command| is_shown(command)) {
        page.subsection(command.get_bin_name().unwrap_or_else(|| command.get_name()));
        page.example("text", &command.clone().render_long_help().to_string());
        help(page, command);
    }
}

/// All commands that are shown in help, each before those below it.
fn commands(page: &mut ManualPage, parent: &Command) {
    for command in parent.get_subcommands().filter(|command| is_shown(command)) {
        page.subsection(command.get_bin_name().unwrap_or_else(|| command.get_name()));
        page.paragraph(&format!("{}.", command.get_about().map(ToString::to_string).unwrap_or_default()));
        page.space();
        page.rendered(&of(command, Man::render_synopsis_section));
        page.rendered(&of(command, Man::render_options_section));
        commands(page, command);
    }
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn of(command: &Command, render: fn(&Man, &mut dyn std::io::Write) -> std::io::Result<()>) -> Vec<u8> {
    let mut written = Vec::new();
    // Writing to memory does not fail.
    let _ = render(&Man::new(command.clone()), &mut written);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_option_has_its_place() {
        fn assert_in(page: &str, parent: &Command) {
            for command in parent.get_subcommands().filter(|command| is_shown(command)) {
                let heading = format!("\n.SS \"{}\"\n", command.get_bin_name().unwrap());
                assert_eq!(page.matches(&heading).count(), 1, "{heading}");
                for option in command.get_opts().filter_map(clap::Arg::get_long) {
                    assert!(
                        page.contains(&format!("\\-\\-{}\\fR", option.replace('-', "\\-"))),
                        "--{option}"
                    );
                }
                assert_in(page, command);
            }
        }
        let mut command = crate::commands::command();
        let page = manual(command.clone());
        command.build();
        assert_in(&page, &command);
        for heading in ["FILES", "SIGNALS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES"] {
            assert!(
                page.contains(&format!("\n.SH {heading}\n"))
                    || page.contains(&format!("\n.SH \"{heading}\"\n"))
            );
        }
        assert!(!page.contains("trunkline man"), "for packagers only");
    }
}
