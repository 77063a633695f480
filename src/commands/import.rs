//! `trunkline import FILE…`: a configuration from those of desktop and IDE clients.
//!
//! Nothing is written before it is known that all of it can be: a file that is there already stays as it is, unless it
//! holds the very same secret, or `--force` is given.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueHint};

use protocol::text::{shown, shown_lines};
use tools::entries::{self, Imported, Kept, Settings, Source};
use tools::terminal;
use tools::terminal::{paint, put_text};

/// A client's file may hold its whole history besides.
const BYTES_MAX: u64 = 16 << 20;
const MODE_SECRET: u32 = 0o600;
const MODE_DIRECTORY: u32 = 0o700;

/// Options of `trunkline import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Files of Claude Desktop, Claude Code, Cursor, Windsurf, Cline, Gemini CLI, LM Studio (mcpServers), VS Code (servers), Zed \
(context_servers), opencode (mcp), Codex (mcp_servers, TOML) and others that use one of these forms.

What may be a secret never stands in the configuration: with --secrets it is written to files that the configuration names, \
without it the configuration names credentials, and what is left to do is said.")]
pub(super) struct Options {
    /// The clients' files; - is standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Write secrets to files in this directory
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    secrets: Option<PathBuf>,
    /// Write the configuration to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Take entries that are switched off, too
    #[arg(long)]
    disabled: bool,
    /// Replace files that are there already
    #[arg(long)]
    force: bool,
}

/// Does it.
pub(super) fn import(options: &Options) -> anyhow::Result<()> {
    let texts = options.files.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let sources: Vec<Source<'_>> =
        texts.iter().map(|(name, text)| Source { name: name.as_str(), text: text.as_str() }).collect();
    let secrets = options.secrets.as_ref().map(std::path::absolute).transpose()?;
    let secrets = match &secrets {
        Some(directory) => {
            Some(directory.to_str().context("--secrets: the name of the directory is not UTF-8")?)
        }
        None => None,
    };
    let imported = entries::import(&sources, Settings { secrets, with_disabled: options.disabled })?;
    let files = match secrets {
        Some(directory) => missing(Path::new(directory), &imported.secrets, options.force)?,
        None => Vec::new(),
    };
    let output = options.output.as_deref().map(|output| Output::open(output, options.force)).transpose()?;
    if let Err(error) = write_secrets(secrets, &files) {
        if let Some(output) = output {
            output.abandon();
        }
        return Err(error);
    }
    match output {
        Some(output) => output.write(&imported.configuration)?,
        None => put_text(&imported.configuration),
    }
    report(options, &imported, secrets);
    Ok(())
}

/// Where the configuration goes. It is opened before anything is written elsewhere.
struct Output<'p> {
    path: &'p Path,
    file: File,
    is_new: bool,
}

impl<'p> Output<'p> {
    fn open(path: &'p Path, force: bool) -> anyhow::Result<Self> {
        let new = OpenOptions::new().write(true).create_new(true).open(path);
        let (opened, is_new) = match new {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && force => {
                (OpenOptions::new().write(true).open(path), false)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                anyhow::bail!("{} is there already; --force replaces it", path.display())
            }
            opened => (opened, true),
        };
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file, is_new })
    }

    fn write(mut self, text: &str) -> anyhow::Result<()> {
        // What is no file, such as a terminal, has no length.
        let is_file = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Leaves things as they were.
    fn abandon(self) {
        if self.is_new {
            let _ = fs::remove_file(self.path);
        }
    }
}

fn write_secrets(directory: Option<&str>, files: &[(PathBuf, &Kept)]) -> anyhow::Result<()> {
    let Some(directory) = directory.filter(|_| !files.is_empty()) else { return Ok(()) };
    DirBuilder::new()
        .recursive(true)
        .mode(MODE_DIRECTORY)
        .create(directory)
        .with_context(|| format!("cannot make {directory}"))?;
    for (path, kept) in files {
        write(path, kept).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What a file holds, and what it is called.
fn read(file: &Path) -> anyhow::Result<(String, String)> {
    let mut bytes = Vec::new();
    let name = if file == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        "standard input".to_owned()
    } else {
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        File::open(file)
            .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {}", file.display()))?;
        name
    };
    let text = String::from_utf8(bytes).ok().with_context(|| format!("{name}: not UTF-8"))?;
    Ok((name, text))
}

/// The secrets that have to be written. Fails if a file is in the way.
fn missing<'k>(
    directory: &Path,
    secrets: &'k [Kept],
    force: bool,
) -> anyhow::Result<Vec<(PathBuf, &'k Kept)>> {
    let mut missing = Vec::new();
    for kept in secrets {
        let path = directory.join(&kept.name);
        let found = fs::symlink_metadata(&path);
        let there = found.is_ok();
        // What is no file of this very length is not read: it may be a pipe, or a link to anywhere.
        let has_length =
            found.is_ok_and(|found| found.is_file() && found.len() == kept.value.len() as u64 + 1);
        let is_same = || {
            has_length
                && fs::read(&path).is_ok_and(|bytes| bytes.strip_suffix(b"\n") == Some(kept.value.as_bytes()))
        };
        if there && !force && is_same() {
            continue;
        }
        anyhow::ensure!(
            !there || force,
            "{} is there already and holds something else; --force replaces it",
            path.display()
        );
        missing.push((path, kept));
    }
    Ok(missing)
}

fn write(path: &Path, kept: &Kept) -> std::io::Result<()> {
    // A link that lies there is replaced, not followed.
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE_SECRET).open(path)?;
    file.write_all(kept.value.as_bytes())?;
    file.write_all(b"\n")
}

/// What was done and what is left to do, for a person.
fn report(options: &Options, imported: &Imported, secrets: Option<&str>) {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut done = plural(imported.upstreams, "upstream");
    if let Some(directory) = secrets.filter(|_| !imported.secrets.is_empty()) {
        done = format!("{done}, {} in {}", plural(imported.secrets.len(), "secret"), shown(directory));
    }
    terminal::say(paint::painted(paint::STRONG, done));
    if !imported.to_do.is_empty() {
        terminal::say(paint::painted(paint::WARNING, "To do:"));
    }
    for item in &imported.to_do {
        terminal::say(format_args!("- {}", shown_lines(item)));
    }
    if let Some(output) = &options.output {
        let command = format!("trunkline check --config {}", shown(&output.display().to_string()));
        terminal::say(format_args!("Next: {}", paint::painted(paint::USE, command)));
    }
}
