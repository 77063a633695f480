//! The files of an import: clients' files, the configuration, and secrets.
//!
//! Nothing is written before it is known that all of it can be: a file that is there already stays as it is, unless it
//! holds the very same secret, or its replacement is asked for.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Imported, StoredSecret, document};

/// What is longer is read as far as it shows.
const BYTES_MAX: u64 = document::BYTES_MAX as u64;
const MODE_SECRET: u32 = 0o600;
const MODE_DIRECTORY: u32 = 0o700;

/// What a file holds, and what it is called.
pub fn read(file: &Path) -> anyhow::Result<(String, String)> {
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

/// Writes the secrets, and the configuration unless it has no file. The file must be new, as must be those of the secrets,
/// unless `force` is given.
pub fn write(
    imported: &Imported,
    secrets: Option<&Path>,
    output: Option<&Path>,
    force: bool,
) -> anyhow::Result<()> {
    let missing = secrets.map(|directory| missing(directory, &imported.secrets, force)).transpose()?;
    let output = output.map(|path| OutputFile::open(path, force)).transpose()?;
    if let (Some(directory), Some(missing)) = (secrets, missing)
        && let Err(error) = write_secrets(directory, &missing)
    {
        // Things stay as they were.
        if let Some(output) = output.filter(|output| output.is_new) {
            let _ = fs::remove_file(output.path);
        }
        return Err(error);
    }
    output.map_or(Ok(()), |output| output.write(&imported.configuration))
}

/// Where the configuration goes. It is opened before anything is written elsewhere.
struct OutputFile<'p> {
    path: &'p Path,
    file: File,
    is_new: bool,
}

impl<'p> OutputFile<'p> {
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
}

fn write_secrets(directory: &Path, files: &[(PathBuf, &StoredSecret)]) -> anyhow::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(MODE_DIRECTORY)
        .create(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for (path, kept) in files {
        write_secret(path, kept).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The secrets that have to be written. Fails if a file is in the way.
fn missing<'k>(
    directory: &Path,
    secrets: &'k [StoredSecret],
    force: bool,
) -> anyhow::Result<Vec<(PathBuf, &'k StoredSecret)>> {
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

fn write_secret(path: &Path, kept: &StoredSecret) -> std::io::Result<()> {
    // A link that lies there is replaced, not followed.
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE_SECRET).open(path)?;
    file.write_all(kept.value.as_bytes())?;
    file.write_all(b"\n")
}
