//! `trunkline pins`: what is pinned of tools, what changed, and approving that.
//!
//! Works on the state directory alone. An approval names what was shown by its hash, and the gateway takes it up only if
//! that very definition still waits: what changed in between is never approved. What upstreams wrote is shown with
//! everything spelled out that a terminal might obey.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueHint};

use super::near;
use gateway::pins::{
    Approval, DiffLine, Folder, PendingDefinition, PinnedTool, difference, lines, pending, printable,
};
use protocol::canonical::Hash;
use tools::terminal::{self, paint, put};

const VARIES: &str = "differs from process to process";

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0   done
  1   there is no such upstream or tool, nothing waits, or the state directory cannot be used
  2   the command line is wrong
  78  the configuration is wrong or cannot be read")]
pub(super) struct PinsArgs {
    #[command(subcommand)]
    command: PinsCommand,
    /// The configuration file, which names the state directory and the upstreams
    #[arg(short, long, value_name = "FILE", env = super::CONFIG_VARIABLE, hide_env_values = true, default_value = super::CONFIG_FILE, global = true,
          value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// The state directory, where the configuration does not name it
    #[arg(long, value_name = "DIRECTORY", global = true, value_hint = ValueHint::DirPath)]
    state_directory: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum PinsCommand {
    /// List the tools that have pins, with their state and the hash of what is pinned or waits
    List {
        /// Only of this upstream
        upstream: Option<String>,
    },
    /// Show what waits for approval and how it differs from what is pinned
    Show {
        /// Whose tool
        upstream: String,
        /// Which; all that wait unless given
        tool: Option<String>,
    },
    /// Show a difference, ask, and approve it
    Approve {
        /// Whose tool
        upstream: String,
        /// Which
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        tool: Option<String>,
        /// All that waits; --hash is then the hash of all, as `list` shows it
        #[arg(long)]
        all: bool,
        /// Approve what has this hash, without asking
        #[arg(long, value_name = "HEX")]
        hash: Option<Hash>,
    },
}

pub(super) fn pins(options: &PinsArgs) -> anyhow::Result<()> {
    let config = super::load(&options.config)?;
    let directory = options.state_directory.clone().or(config.state_directory);
    let directory = directory.context(
        "no state directory: name it with state_directory in the configuration, or with --state-directory",
    )?;
    let folder = Folder::new(&directory);
    let known: Vec<&str> = config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    let check = |name: &str| {
        let near = near(name, known.iter().copied());
        anyhow::ensure!(known.contains(&name), "the configuration has no upstream {name:?}{near}");
        Ok(())
    };
    match &options.command {
        PinsCommand::List { upstream: Some(upstream) } => {
            check(upstream)?;
            list(&folder, &[upstream])
        }
        PinsCommand::List { upstream: None } => list(&folder, &known),
        PinsCommand::Show { upstream, tool } => {
            check(upstream)?;
            let waiting = waiting(&folder, upstream, tool.as_deref())?;
            for one in &waiting {
                show(upstream, one);
            }
            Ok(())
        }
        PinsCommand::Approve { upstream, tool, hash, .. } => {
            check(upstream)?;
            approve(&folder, upstream, tool.as_deref(), *hash)
        }
    }
}

fn list(folder: &Folder, upstreams: &[&str]) -> anyhow::Result<()> {
    for upstream in upstreams {
        let tools = tools(folder, upstream)?;
        for (name, tool) in &tools {
            let name = printable(name);
            let state = if tool.pending.is_empty() { "pinned" } else { "pinned before" };
            for definition in &tool.approved {
                put(format_args!("{upstream}\t{name}\t{state}\t{}", definition.hash));
            }
            let state = if tool.approved.is_empty() { "new" } else { "changed" };
            for pending in &tool.pending {
                let hash = pending.definition.hash;
                match tool.approved.last().filter(|_| pending.is_beside) {
                    None => put(format_args!("{upstream}\t{name}\t{state}\t{hash}")),
                    Some(before) => {
                        let member = pending.differing_member(before);
                        put(format_args!("{upstream}\t{name}\t{state}\t{hash}\t{VARIES}, in {member}"));
                    }
                }
            }
        }
        let waiting = pending::of(&tools);
        if !waiting.is_empty() {
            put(format_args!("{upstream}\t--all\twaiting\t{}", pending::hash_of_all(&waiting)));
        }
    }
    Ok(())
}

fn approve(folder: &Folder, upstream: &str, tool: Option<&str>, hash: Option<Hash>) -> anyhow::Result<()> {
    let mut chosen = waiting(folder, upstream, tool)?;
    if let Some(hash) = hash {
        match tool {
            Some(_) => chosen.retain(|waiting| waiting.definition.hash == hash),
            None if pending::hash_of_all(&chosen) != hash => chosen.clear(),
            None => {}
        }
        anyhow::ensure!(
            !chosen.is_empty(),
            "nothing with this hash waits for approval: it may have changed again; see `trunkline pins show {upstream}`"
        );
    } else {
        for waiting in &chosen {
            show(upstream, waiting);
        }
        anyhow::ensure!(
            std::io::stdin().is_terminal(),
            "nothing is approved: without a terminal to ask at, give --hash with the hash of what was shown"
        );
        anyhow::ensure!(
            tool.is_none() || chosen.len() == 1,
            "several definitions wait: choose one with --hash"
        );
        if !is_confirmed()? {
            put("Nothing is approved.");
            return Ok(());
        }
    }
    for PendingDefinition { tool, definition, .. } in &chosen {
        let (upstream, hash) = (upstream.to_owned(), definition.hash.to_string());
        let approval = Approval { upstream, tool: tool.clone(), hash };
        folder.approve(&approval).context("the approval cannot be written")?;
        put(format_args!("approved: {} {}", printable(tool), definition.hash));
    }
    put("A running gateway takes it up within seconds, if the definition has not changed again by then.");
    Ok(())
}

fn is_confirmed() -> anyhow::Result<bool> {
    terminal::put_text("Approve? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn tools(folder: &Folder, upstream: &str) -> anyhow::Result<BTreeMap<String, PinnedTool>> {
    let path = folder.path(upstream);
    let kept = folder.read(upstream).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(kept.unwrap_or_default().tools)
}

/// What waits of an upstream, or of one of its tools; at least one.
fn waiting(folder: &Folder, upstream: &str, tool: Option<&str>) -> anyhow::Result<Vec<PendingDefinition>> {
    let all = pending::of(&tools(folder, upstream)?);
    anyhow::ensure!(!all.is_empty(), "nothing of {upstream} waits for approval");
    let Some(tool) = tool else { return Ok(all) };
    let near = printable(&near(tool, all.iter().map(|waiting| waiting.tool.as_str())));
    let waiting: Vec<PendingDefinition> = all.into_iter().filter(|waiting| waiting.tool == tool).collect();
    anyhow::ensure!(!waiting.is_empty(), "nothing of {upstream} waits for approval under this name{near}");
    Ok(waiting)
}

fn show(upstream: &str, waiting: &PendingDefinition) {
    let new = lines(&waiting.definition.text);
    let old = waiting.before.as_ref().map(|before| lines(&before.text));
    put(format_args!("{upstream} {}", printable(&waiting.tool)));
    match &waiting.before {
        Some(before) => put(format_args!("pinned   {}", before.hash)),
        None => put("pinned   nothing: the tool is new"),
    }
    put(format_args!("waiting  {}", waiting.definition.hash));
    if let Some(member) = &waiting.varying_member {
        put(format_args!(
            "{VARIES}, first in {member}: no approval lasts; mend the server, or let pins = \"warn\""
        ));
    }
    let colored = |style, mark: char, line: &str| {
        put(paint::painted(style, format_args!("{mark} {line}")));
    };
    for line in difference(&old.unwrap_or_default(), &new) {
        match line {
            DiffLine::Same(line) => put(format_args!("  {line}")),
            DiffLine::Old(line) => colored(paint::BAD, '-', &line),
            DiffLine::New(line) => colored(paint::GOOD, '+', &line),
            DiffLine::Skipped(count) => put(format_args!("  … {count} lines")),
        }
    }
    put("");
}
