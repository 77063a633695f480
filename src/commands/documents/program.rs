//! `trunkline(1)` and the chapter of the same content: the commands and options as the parser of the command line has them;
//! what it does not know, in the tables here.

use clap::Command;
use clap_mangen::Man;

use super::document_writer::DocumentWriter;
use super::manual_page::ManualPage;
use super::markdown_page::MarkdownPage;

const DESCRIPTION: [&str; 3] = [
    "`trunkline` is a daemon between clients of the Model Context Protocol (MCP) and many tool servers. Clients connect \
     to one address. It routes each call by its headers, checks them against the body, merges the lists of all servers, \
     and relays replies as they arrive.",
    "It says who may use what, has a limit on everything, takes a new configuration without dropping a call, and \
     is watched by Prometheus.",
    "`trunkline run` is the daemon. The other commands prepare it, look into it, or stand in for it.",
];

const EXIT_STATUS: [(&str, &str); 11] = [
    ("0", "Done; of `run`: drained and stopped."),
    (
        "1",
        "It went wrong. Of `check --as`: something that was asked for may not be used. Of `status`: something is wrong. Of \
         `call`: the tool says that it failed. Of `doctor`: something was found.",
    ),
    (
        "2",
        "The command line is wrong. Of commands that speak to a server or a gateway: or the key, the token or the \
         certificates cannot be read. Of `call`: or there is no such tool, or its arguments do not fit.",
    ),
    (
        "3",
        "Of `tools`, `call`, `doctor`, `status` and `top`: the server or the gateway cannot be reached, or does not \
         answer as one.",
    ),
    (
        "66",
        "Of `run` and `check`: a file that the configuration names cannot be used, such as a certificate, or the session \
         key.",
    ),
    ("69", "Of `run`: an address cannot be listened at."),
    ("70", "Of `run`: a thread died or hung, which is a bug; the workers were drained."),
    ("71", "Of `run`: the system refuses threads or open files."),
    ("73", "Of `run`: the state directory cannot be used."),
    (
        "78",
        "The configuration is wrong or cannot be read. Of `run`: or it does not fit the sockets that systemd passed. After \
         this and 2 systemd does not start the service again.",
    ),
    ("130", "Of `tools` and `call`: interrupted."),
];

const SIGNALS: [(&str, &str); 2] = [
    (
        "SIGHUP",
        "Reads the configuration, certificates, keys and secrets again, and takes all of it or nothing. A wrong file is \
         logged and changes nothing.",
    ),
    (
        "SIGTERM, SIGINT",
        "Ends in order: `/readyz` says 503, after `drain.quiet` nothing is accepted any more, after `drain.max` what still \
         runs is cut. A second one cuts at once.",
    ),
];

const ENVIRONMENT: [(&str, &str); 8] = [
    (
        "TRUNKLINE_KEY",
        "For `connect`, `tools`, `call` and `doctor`: the key they show, if there is no `--key-file`.",
    ),
    (
        "TRUNKLINE_ADMIN_TOKEN",
        "For `top` and `status`: the token of `[admin]`, if there is no `--token-file`.",
    ),
    ("NO_COLOR", "Set to anything: no colours. They are for terminals alone in any case."),
    (
        "STATE_DIRECTORY",
        "Where state is kept if `state_directory` is not set. systemd sets it (`StateDirectory=`).",
    ),
    (
        "CREDENTIALS_DIRECTORY",
        "Where secrets are that are written as `{ credential = \"NAME\" }`. systemd sets it.",
    ),
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC",
        "Where and how often systemd is told how things are. systemd sets them.",
    ),
    ("LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES", "Sockets that systemd opened. systemd sets them."),
    ("OTEL_*", "What `[trace]` leaves out, by the names that OpenTelemetry gives it."),
];

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
const EXAMPLES: [(&str, &str); 8] = [
    ("Show everything that is wrong with a configuration:", "trunkline check --config trunkline.toml"),
    (
        "Make a key for a caller named `ci`, and the entry that lets it in:",
        "trunkline key ci >> trunkline.toml",
    ),
    (
        "Show what that caller may use, and whether it may call one tool:",
        "trunkline check --config trunkline.toml --as ci --tool forecast",
    ),
    (
        "Run, and after a change of the file take it up:",
        "trunkline run --config trunkline.toml &\nkill -HUP $!",
    ),
    ("Put a new key for session ids on top of the old ones:", "trunkline session-key session.key"),
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
    page.name("trunkline", "a multiplexing proxy for the Model Context Protocol");
    page.section("SYNOPSIS");
    page.rendered(&of(&command, Man::render_synopsis_section));
    page.description(&DESCRIPTION);
    page.section("COMMANDS");
    commands(&mut page, &command);
    tables(&mut page);
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
    tables(&mut page);
    page.finish()
}

fn tables(page: &mut impl DocumentWriter) {
    page.table("EXIT STATUS", &EXIT_STATUS);
    page.table("SIGNALS", &SIGNALS);
    page.table("ENVIRONMENT", &ENVIRONMENT);
    page.table("FILES", &FILES);
}

/// What each command says to `--help`.
fn help(page: &mut MarkdownPage, parent: &Command) {
    for command in parent.get_subcommands().filter(|command| is_shown(command)) {
        page.subsection(command.get_bin_name().unwrap_or_else(|| command.get_name()));
        page.example("", &command.clone().render_long_help().to_string());
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
