//! Reads a configuration: the file that is named, those that it includes, and what the environment has for its variables.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use config::{Admin, Config, ConfigSource};
use globset::Glob;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Files that may be included.
const FILES_MAX: usize = 1000;

/// The text of a configuration, and where it came from beside the file that was named.
#[derive(Debug)]
pub struct ConfigFiles {
    /// What is read.
    pub source: ConfigSource,
    included: Vec<PathBuf>,
}

impl ConfigFiles {
    /// Reads the file and what it includes.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = text_of(path, config::FILE_BYTES_MAX)?;
        let mut files =
            Self { source: ConfigSource::new(path.display().to_string(), text), included: Vec::new() };
        let directory = path.parent().unwrap_or(Path::new("/"));
        for (pattern, line) in files.source.includes() {
            let place = || format!("{}:{line}: cannot include {pattern}", path.display());
            let found = files.find(&directory.join(&pattern)).with_context(place)?;
            for found in found.into_iter().filter(|found| found != path) {
                files.add(found).with_context(place)?;
            }
        }
        Ok(files)
    }

    /// Checks it.
    pub fn config(&self) -> Result<Config, config::ConfigErrors> {
        let environment = |name: &str| std::env::var(name).ok();
        let mut config = config::parse_source(&self.source, &environment)?;
        config.included.clone_from(&self.included);
        super::adopt_environment(&mut config);
        Ok(config)
    }

    /// Its admin listener, whatever else is wrong with it.
    pub fn admin(&self) -> Option<Admin> {
        config::admin_of(&self.source, &|name: &str| std::env::var(name).ok())
    }

    /// The files that a path leads to, by their names; with `*` the directory is noted, as more may come.
    fn find(&mut self, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.contains('*') {
            return Ok(vec![path.to_owned()]);
        }
        let glob = Glob::new(name)?.compile_matcher();
        let directory = path.parent().unwrap_or(Path::new("/"));
        // A bare name is in the working directory, which has no name of its own in it.
        let here = directory.as_os_str().is_empty().then_some(Path::new("."));
        self.included.push(here.unwrap_or(directory).to_owned());
        let entries = match fs::read_dir(here.unwrap_or(directory)) {
            Ok(entries) => entries,
            // As with all that it matches: none are none.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", directory.display())),
        };
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names: Vec<_> = names.collect::<Result<_, _>>().context("cannot read a directory")?;
        names.retain(|name| glob.is_match(name) && !name.to_string_lossy().starts_with('.'));
        names.sort();
        Ok(names.into_iter().map(|name| directory.join(name)).collect())
    }

    fn add(&mut self, path: PathBuf) -> anyhow::Result<()> {
        anyhow::ensure!(self.included.len() < FILES_MAX, "more than {FILES_MAX} files are included");
        // A pipe would keep a reload waiting for ever.
        let is_file =
            fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?.is_file();
        anyhow::ensure!(is_file, "cannot read {}: it is no regular file", path.display());
        let left = config::FILE_BYTES_MAX.saturating_sub(self.source.text().len() as u64);
        self.source.include(path.display().to_string(), &text_of(&path, left)?);
        self.included.push(path);
        Ok(())
    }
}

/// Opens a file, or a pipe without waiting for whoever writes to it: there may be nobody. Says whether it is a pipe.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(without_waiting).open(path)?;
    // What a writer has yet to say is waited for.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    let is_pipe = file.metadata()?.file_type().is_fifo();
    Ok((file, is_pipe))
}

/// The text of a file of at most so many bytes: what all files together may have, and those before it leave.
fn text_of(path: &Path, bytes_max: u64) -> anyhow::Result<String> {
    let cannot_read = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let (file, is_pipe) = open(path).with_context(cannot_read)?;
    file.take(bytes_max + 1).read_to_string(&mut text).with_context(cannot_read)?;
    anyhow::ensure!(
        !(is_pipe && text.is_empty()),
        "cannot read {}: nobody writes to this pipe",
        path.display()
    );
    let is_whole = text.len() as u64 <= bytes_max;
    anyhow::ensure!(is_whole, "cannot read {}: it is longer than {bytes_max} bytes", path.display());
    Ok(text)
}
