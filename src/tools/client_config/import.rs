//! Files of clients → one configuration.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fmt::Write as _;

use zeroize::Zeroizing;

use super::document::{self, ClientDocument};
use super::entry::Entry;
use super::short_name::{NAME_BYTES_MAX, ShortNames};
use super::toml_text::{array, comment, quoted, string};
use super::upstream::{UpstreamTable, table};
use config;
use protocol::route::filter::literal;
use protocol::text::shown;

/// How many things of one file are named that are no entries.
const STRAYS_MAX: usize = 20;
/// How many secrets are named in one line.
const NAMED_MAX: usize = 20;
/// Bytes of what a secret is called.
const LABEL_BYTES_MAX: usize = 100;

/// A client's file.
#[derive(Debug, Clone, Copy)]
pub struct ClientFile<'s> {
    /// What it is called.
    pub name: &'s str,
    /// What is in it.
    pub text: &'s str,
}

/// How it is done.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportSettings<'s> {
    /// The directory where secrets will be, an absolute path; `None`: they are credentials that systemd passes.
    pub secrets: Option<&'s str>,
    /// Whether entries count that are switched off.
    pub with_disabled: bool,
}

/// What became of it.
#[derive(Debug)]
pub struct Imported {
    /// A valid configuration.
    pub configuration: String,
    /// The secrets that it names.
    pub secrets: Vec<StoredSecret>,
    /// How many upstreams it has.
    pub upstreams: usize,
    /// What a person has to do; also in the configuration.
    pub to_do: Vec<String>,
}

/// A secret, and what it is called.
pub struct StoredSecret {
    /// The name of its file, or of the credential.
    pub name: String,
    /// What it is. Nothing shows it.
    pub value: Zeroizing<String>,
}

impl fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

/// Why there is no configuration. Shows no secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ImportError(String);

/// Where secrets go, so that they do not go into the configuration.
pub(super) struct SecretStore<'s> {
    directory: Option<&'s str>,
    names: BTreeSet<String>,
    kept: Vec<StoredSecret>,
    inputs: Vec<(String, String)>,
}

impl SecretStore<'_> {
    /// Keeps a secret, and returns where it is read from.
    pub(super) fn keep(&mut self, upstream: &str, label: &str, value: &str) -> String {
        let (name, source) = self.named(upstream, label);
        self.kept.push(StoredSecret { name, value: Zeroizing::new(value.to_owned()) });
        source
    }

    /// A place for a secret that is not known: what a person would call it, and what stands in the configuration.
    pub(super) fn place(&mut self, upstream: &str, label: &str) -> (String, String) {
        let (name, source) = self.named(upstream, label);
        let place = match self.directory {
            Some(directory) => format!("the file {}", shown(&format!("{directory}/{name}"))),
            None => format!("the credential {name}"),
        };
        (place, source)
    }

    /// What the client says of what it asks for.
    pub(super) fn said_of(&self, id: &str) -> Option<String> {
        let (_, said) = self.inputs.iter().find(|(known, said)| known == id && !said.is_empty())?;
        Some(quoted(said))
    }

    fn named(&mut self, upstream: &str, label: &str) -> (String, String) {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
        let name: String =
            format!("{upstream}.{}", label.chars().map(plain).take(LABEL_BYTES_MAX).collect::<String>());
        let name = unique(&name, usize::MAX, &mut self.names);
        let source = match self.directory {
            Some(directory) => format!("{{ file = {} }}", string(&format!("{directory}/{name}"))),
            None => format!("{{ credential = {} }}", string(&name)),
        };
        (name, source)
    }
}

/// A server that is carried over.
struct ImportedUpstream {
    name: String,
    /// What it was called, and where.
    was: String,
    is_disabled: bool,
    table: UpstreamTable,
}

/// Makes a configuration of all entries of all `sources`.
pub fn import(sources: &[ClientFile<'_>], settings: ImportSettings<'_>) -> Result<Imported, ImportError> {
    let mut vault = SecretStore {
        directory: settings.secrets,
        names: BTreeSet::new(),
        kept: Vec::new(),
        inputs: Vec::new(),
    };
    let (mut names, mut seen) = (BTreeSet::new(), HashSet::new());
    let (mut upstreams, mut left_out) = (Vec::new(), Vec::new());
    let documents = documents(sources)?;
    let short_names = ShortNames::of(distinct(&documents));
    for (source, document) in sources.iter().zip(documents) {
        let file = shown(source.name);
        vault.inputs = document.inputs;
        let strays = document.strays.iter().take(STRAYS_MAX);
        left_out.extend(strays.map(|(name, why)| format!("{} of {file}: {why}", quoted(name))));
        if let Some(more) = document.strays.len().checked_sub(STRAYS_MAX).filter(|more| *more > 0) {
            left_out.push(format!("{more} more of {file} that are no entries"));
        }
        for (original, members) in document.entries {
            let read = Entry::read(&members);
            if !seen.insert((original.clone(), members)) {
                continue;
            }
            let is_disabled = read.is_disabled && !settings.with_disabled;
            let mut candidates = names.clone();
            let name = unique(&short_names.name(&original), NAME_BYTES_MAX, &mut candidates);
            match table(&name, &read, &mut vault) {
                Ok(table) => {
                    names = candidates;
                    let was = format!("{} of {file}", quoted(&original));
                    upstreams.push(ImportedUpstream { name, was, is_disabled, table });
                }
                Err(why) => left_out.push(format!("{} of {file}: {why}", quoted(&original))),
            }
        }
    }
    if upstreams.iter().all(|upstream| upstream.is_disabled) {
        return Err(ImportError(nothing_left(&upstreams, &left_out)));
    }
    let to_do = to_do(&upstreams, &left_out, &vault);
    let configuration = configuration(sources, &upstreams, &to_do);
    if configuration.len() as u64 > config::FILE_BYTES_MAX {
        return Err(ImportError(format!(
            "what comes out is longer than the {} MiB that a configuration may have: import fewer entries at once",
            config::FILE_BYTES_MAX >> 20
        )));
    }
    let inherited = |name: &str| config::INHERITED.contains(&name).then(|| "/".to_owned());
    if let Err(errors) = config::parse_source(&config::ConfigSource::new("", &*configuration), &inherited) {
        return Err(ImportError(format!(
            "what comes out is not valid, which is a bug of this program: {errors}"
        )));
    }
    let upstreams = upstreams.iter().filter(|upstream| !upstream.is_disabled).count();
    Ok(Imported { configuration, secrets: vault.kept, upstreams, to_do })
}

fn documents(sources: &[ClientFile<'_>]) -> Result<Vec<ClientDocument>, ImportError> {
    let read = |source: &ClientFile<'_>| {
        document::read(source.text).map_err(|what| ImportError(format!("{}: {what}", shown(source.name))))
    };
    sources.iter().map(read).collect()
}

/// The names of all entries, each once where several files have the very same.
fn distinct(documents: &[ClientDocument]) -> impl Iterator<Item = &str> {
    let entries = documents.iter().flat_map(|document| &document.entries);
    let mut seen = HashSet::new();
    entries.filter(move |entry| seen.insert(*entry)).map(|(original, _)| original.as_str())
}

fn nothing_left(upstreams: &[ImportedUpstream], left_out: &[String]) -> String {
    if !upstreams.is_empty() {
        return "every entry is switched off there; --disabled takes them all the same".to_owned();
    }
    match left_out {
        [] => "no servers in it: the list is empty".to_owned(),
        [first, ..] => format!("no entry can be carried over; {first}"),
    }
}

fn to_do(upstreams: &[ImportedUpstream], left_out: &[String], vault: &SecretStore<'_>) -> Vec<String> {
    let mut to_do = Vec::new();
    if vault.directory.is_none() && !vault.kept.is_empty() {
        let mut names: Vec<&str> = vault.kept.iter().take(NAMED_MAX).map(|kept| kept.name.as_str()).collect();
        names.extend((vault.kept.len() > NAMED_MAX).then_some("and others"));
        to_do.push(format!(
            "Secrets are not in this file, and were not written anywhere: {}. Have them written to files with `--secrets \
             DIRECTORY`, or pass them as credentials, for example with `LoadCredential=` of systemd",
            names.join(", ")
        ));
    }
    for upstream in upstreams {
        let of = |gap: &String| format!("{}: {gap}", upstream.name);
        to_do.extend(upstream.table.gaps.iter().map(of));
    }
    to_do.extend(left_out.iter().map(|what| format!("Left out: {what}")));
    to_do
}

fn configuration(sources: &[ClientFile<'_>], upstreams: &[ImportedUpstream], to_do: &[String]) -> String {
    let files: Vec<String> = sources.iter().map(|source| shown(source.name)).collect();
    let mut text = comment("", &format!("Made by `trunkline import` from {}.", files.join(", ")));
    if !to_do.is_empty() {
        text.push_str("#\n# To do:\n");
        for item in to_do {
            text.push_str(&comment("- ", item));
        }
    }
    let active: Vec<&ImportedUpstream> = upstreams.iter().filter(|upstream| !upstream.is_disabled).collect();
    text.push_str("\n# Sessions, and the last lists of the servers, outlive a restart. A second gateway needs a place of its own.\n");
    text.push_str("state_directory = \"${STATE_DIRECTORY:-${HOME}/.local/state/trunkline}\"\n");
    text.push_str(
        "\n# Anybody on this machine may call. Before others can: `trunkline key NAME`, and TLS.\n",
    );
    text.push_str("[listener]\naddress = \"127.0.0.1:8080\"\n\n");
    text.push_str("# Metrics, health, and a page that shows how things are: http://127.0.0.1:9090/\n");
    text.push_str("[admin]\naddress = \"127.0.0.1:9090\"\n\n[[endpoint]]\npath = \"/mcp\"\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "upstreams = {}", array(active.iter().map(|upstream| upstream.name.as_str())));
    let denied = denied(&active);
    if !denied.is_empty() {
        text.push_str("# Tools that were switched off:\n");
        let _ = writeln!(text, "deny = {}", array(denied.iter().map(String::as_str)));
    }
    if active.iter().any(|upstream| upstream.table.is_program) {
        text.push_str("\n# The servers of one person: a process of each serves all clients of this file.\n");
        text.push_str("[upstream_defaults]\nisolation = \"shared\"\n");
    }
    for upstream in upstreams {
        text.push('\n');
        text.push_str(&block(upstream));
    }
    text
}

/// Globs of tools that were switched off, by the names that the endpoint gives them.
fn denied(active: &[&ImportedUpstream]) -> Vec<String> {
    let prefix = |upstream: &ImportedUpstream| {
        if active.len() > 1 { format!("{}__", upstream.name) } else { String::new() }
    };
    active
        .iter()
        .flat_map(|upstream| {
            upstream.table.tools_off.iter().map(|tool| format!("{}{}", prefix(upstream), literal(tool)))
        })
        .collect()
}

fn block(upstream: &ImportedUpstream) -> String {
    let mut text = comment("", &format!("{}: was {}.", upstream.name, upstream.was));
    if upstream.is_disabled {
        text.push_str("# It was switched off there.\n");
    }
    for remark in &upstream.table.remarks {
        text.push_str(&comment("- ", remark));
    }
    for gap in &upstream.table.gaps {
        text.push_str(&comment("- TO DO: ", gap));
    }
    let off = if upstream.is_disabled { "#" } else { "" };
    let _ = writeln!(text, "{off}[upstream.{}]", upstream.name);
    for line in &upstream.table.lines {
        let _ = writeln!(text, "{off}{line}");
    }
    text
}

/// `name`, or with a number where that is taken; at most so many bytes. It is ASCII.
fn unique(name: &str, bytes_max: usize, taken: &mut BTreeSet<String>) -> String {
    let mut candidate = name.to_owned();
    let mut number = 1;
    while !taken.insert(candidate.clone()) {
        number += 1;
        let end = format!("-{number}");
        candidate = format!("{}{end}", &name[..name.len().min(bytes_max.saturating_sub(end.len()))]);
    }
    candidate
}
