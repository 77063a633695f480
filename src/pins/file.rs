//! What is pinned, kept in the state directory: `pins/NAME.json` for each upstream, and the operator's approvals.
//!
//! A file of pins has one writer, the gateway, which replaces it whole. An approval is a file of its own that the command
//! line puts into `pins/approvals` in one step and the gateway takes away once what it approves was written down: a
//! crash at any moment loses neither. Only their owner may read them. A file that cannot be read, or whose definitions do
//! not have the hashes it says, is an error and stays as it is: what it would have pinned is never taken on trust again.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::book::{Book, Definition, Pending, Tool};
use super::canonical::{Hash, canonical};
use crate::protocol::json::Scratch;

/// A longer file is not read; `pins_bytes_max` is at most a GiB.
const FILE_BYTES_MAX: u64 = 2 << 30;
const APPROVAL_BYTES_MAX: u64 = 64 << 10;
/// Approvals that are looked at at once.
const APPROVALS_MAX: usize = 10_000;
/// As deep as any configuration lets a message be.
const DEPTH_MAX: usize = 1100;
const LAYOUT: u32 = 1;

/// The place in the state directory.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// What a file of pins holds.
#[derive(Debug, Default)]
pub struct Kept {
    /// All tools.
    pub tools: BTreeMap<String, Tool>,
    /// See [`Book::is_complete`].
    pub is_complete: bool,
}

/// What an operator approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Whose tool.
    pub upstream: String,
    /// Which.
    pub tool: String,
    /// The definition, by its hash.
    pub hash: String,
}

#[derive(Serialize, Deserialize)]
struct File {
    layout: u32,
    complete: bool,
    tools: Vec<FileTool>,
}

#[derive(Serialize, Deserialize)]
struct FileTool {
    name: String,
    approved: Vec<FileDefinition>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pending: Vec<FileDefinition>,
}

#[derive(Serialize, Deserialize)]
struct FileDefinition {
    sha256: String,
    definition: Box<RawValue>,
}

impl Folder {
    /// The place in this state directory.
    pub fn new(state_directory: &Path) -> Self {
        Self(state_directory.join("pins"))
    }

    /// The file of one upstream.
    pub fn path(&self, upstream: &str) -> PathBuf {
        self.0.join(format!("{upstream}.json"))
    }

    /// Makes the directories.
    pub fn make(&self) -> io::Result<()> {
        let approvals = self.approvals();
        for directory in [&self.0, &approvals] {
            match DirBuilder::new().mode(0o700).create(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// What is kept of an upstream; `None`: nothing was ever.
    pub fn read(&self, upstream: &str) -> io::Result<Option<Kept>> {
        let Some(text) = read_file(&self.path(upstream), FILE_BYTES_MAX)? else { return Ok(None) };
        let file: File = serde_json::from_str(&text)?;
        if file.layout != LAYOUT {
            return Err(io::Error::other("the file is of another version"));
        }
        let mut scratch = Scratch::default();
        let mut kept = Kept { tools: BTreeMap::new(), is_complete: file.complete };
        for FileTool { name, approved, pending } in file.tools {
            let tool = Tool {
                approved: approved.iter().map(|one| one.read(&mut scratch)).collect::<io::Result<_>>()?,
                pending: pending
                    .iter()
                    .map(|one| one.read(&mut scratch).map(Pending::kept))
                    .collect::<io::Result<_>>()?,
            };
            if kept.tools.insert(name, tool).is_some() {
                return Err(io::Error::other("a tool stands twice"));
            }
        }
        Ok(Some(kept))
    }

    /// Replaces what is kept of an upstream; `text` is that of [`text_of`].
    pub fn write(&self, upstream: &str, text: &str) -> io::Result<()> {
        self.make()?;
        replace(&self.path(upstream), text.as_bytes(), &self.0)
    }

    /// Leaves an approval for the gateway.
    pub fn approve(&self, approval: &Approval) -> io::Result<()> {
        self.make()?;
        let directory = self.approvals();
        // The command may be run by root for a gateway that is not.
        give_to_owner(&self.0, self.0.parent().unwrap_or(&self.0))?;
        give_to_owner(&directory, &self.0)?;
        let name = Hash::of(&format!("{}\n{}", approval.upstream, approval.tool)).to_string();
        let path = directory.join(format!("{}-{}.json", &name[..16], approval.hash));
        replace(&path, serde_json::to_string(approval)?.as_bytes(), &directory)
    }

    /// The approvals that wait, with their files. One that cannot be read is an error of its own.
    pub fn approvals_left(&self) -> io::Result<Vec<(PathBuf, io::Result<Approval>)>> {
        let entries = match fs::read_dir(self.approvals()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries.take(APPROVALS_MAX) {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = read_file(&path, APPROVAL_BYTES_MAX).and_then(|text| {
                let text = text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                Ok(serde_json::from_str(&text)?)
            });
            found.push((path, read));
        }
        Ok(found)
    }

    fn approvals(&self) -> PathBuf {
        self.0.join("approvals")
    }
}

/// The text of a file of pins.
pub fn text_of(book: &Book) -> String {
    let definition = |definition: &Definition| {
        let text = RawValue::from_string(definition.text.to_string()).ok()?;
        Some(FileDefinition { sha256: definition.hash.to_string(), definition: text })
    };
    let tools = book.tools().iter().map(|(name, tool)| FileTool {
        name: name.clone(),
        approved: tool.approved.iter().filter_map(definition).collect(),
        pending: tool.pending.iter().filter_map(|pending| definition(&pending.definition)).collect(),
    });
    let file = File { layout: LAYOUT, complete: book.is_complete(), tools: tools.collect() };
    // Nothing in it can fail to be JSON.
    serde_json::to_string(&file).unwrap_or_default()
}

impl FileDefinition {
    fn read(&self, scratch: &mut Scratch) -> io::Result<Definition> {
        let form = canonical(self.definition.get().as_bytes(), scratch, DEPTH_MAX);
        let definition = form.map(Definition::new);
        definition
            .filter(|definition| definition.hash.to_string() == self.sha256)
            .ok_or_else(|| io::Error::other("a definition does not have the hash that stands beside it"))
    }
}

/// The text of a file; `None`: there is none.
fn read_file(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    if file.take(bytes_max + 1).read_to_string(&mut text)? as u64 > bytes_max {
        return Err(io::Error::other("the file is too large"));
    }
    Ok(Some(text))
}

/// Replaces a file whole. It belongs to whom `directory` belongs to.
fn replace(path: &Path, text: &[u8], directory: &Path) -> io::Result<()> {
    let new = path.with_extension("json.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file
        .write_all(text)
        .and_then(|()| file.sync_all())
        .and_then(|()| give_to_owner(&new, directory))
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| fs::File::open(directory)?.sync_all());
    if written.is_err() {
        // What is left would only lie about.
        let _ = fs::remove_file(&new);
    }
    written
}

fn give_to_owner(path: &Path, directory: &Path) -> io::Result<()> {
    let (own, theirs) = (fs::metadata(path)?, fs::metadata(directory)?);
    if (own.uid(), own.gid()) == (theirs.uid(), theirs.gid()) || own.uid() == theirs.uid() {
        return Ok(());
    }
    chown(path, Some(theirs.uid()), Some(theirs.gid()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::book::{Listed, Source};
    use super::*;
    use crate::config::PinMode;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("trunkline-pins-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn book(definitions: &[(&str, &str)]) -> Book {
        let mut book = Book::new(1 << 20);
        let listed: Vec<Listed> = definitions
            .iter()
            .map(|(name, text)| {
                let form = canonical(text.as_bytes(), &mut Scratch::default(), 128).expect("JSON");
                Listed { name: Some((*name).to_owned()), definition: Definition::new(form) }
            })
            .collect();
        book.look(Source::Own(0), PinMode::Block, &listed, true);
        book
    }

    #[test]
    fn what_was_written_is_read() {
        let directory = Directory::new("written");
        let folder = Folder::new(&directory.0);
        assert!(folder.read("up").expect("a place").is_none());
        let mut book = book(&[("a", r#"{"name":"a","n":1e400,"s":"\ud800"}"#), ("b", "{}")]);
        book.complete();
        folder.write("up", &text_of(&book)).expect("written");
        let kept = folder.read("up").expect("readable").expect("a file");
        assert!(kept.is_complete);
        assert_eq!(&kept.tools, book.tools());
        let mode = fs::metadata(folder.path("up")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let directory = Directory::new("damaged");
        let folder = Folder::new(&directory.0);
        let good = text_of(&book(&[("a", r#"{"name":"a"}"#)]));
        folder.write("up", &good).expect("written");
        assert!(folder.read("up").is_ok());
        let other = good.replace(r#"{"name":"a"}"#, r#"{"name":"b"}"#);
        let twice = good.replace(r#""tools":["#, r#""tools":[{"name":"a","approved":[]},"#);
        assert!(other != good && twice != good);
        for damaged in ["", "{}", &good[..good.len() - 1], &other, &twice, &good.replace(":1,", ":2,")] {
            fs::write(folder.path("up"), damaged).expect("written");
            assert!(folder.read("up").is_err(), "{damaged}");
        }
    }

    #[test]
    fn approvals_wait_until_they_are_taken() {
        let directory = Directory::new("approvals");
        let folder = Folder::new(&directory.0);
        assert!(folder.approvals_left().expect("none").is_empty());
        let hash = Hash::of("{}").to_string();
        let approval = Approval { upstream: "up".into(), tool: "../a\n\"".into(), hash };
        folder.approve(&approval).expect("written");
        folder.approve(&approval).expect("written again");
        fs::write(directory.0.join("pins/approvals/broken.json"), "{").expect("written");
        fs::write(directory.0.join("pins/approvals/half.json.new"), "{").expect("written");
        let mut left = folder.approvals_left().expect("readable");
        left.sort_by_key(|(_, read)| read.is_err());
        assert_eq!(left.len(), 2);
        assert_eq!(left[0].1.as_ref().ok(), Some(&approval));
        assert!(left[1].1.is_err());
    }
}
