//! Pins of tools ([`record`]), kept in the state directory: `pins/NAME.json` for each upstream, and the operator's approvals.
//!
//! A file of pins has one writer, the gateway, which replaces it whole. An approval is a file of its own that the command
//! line puts into `pins/approvals` in one step and the gateway takes away once what it approves was written down: a
//! crash at any moment loses neither. Only their owner may read them. A file that cannot be read, or whose definitions do
//! not have the hashes it says, is an error and stays as it is: what it would have pinned is never taken on trust again.
//!
//! Root runs the command line in a directory of the service's user: below it no link is followed ([`Dir`]).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::{self, PinnedTools};
use crate::directory::Dir;
use protocol::canonical::Hash;

/// A longer file is not read; `pins_bytes_max` is at most a GiB.
const FILE_BYTES_MAX: u64 = 2 << 30;
const APPROVAL_BYTES_MAX: u64 = 64 << 10;
/// Approvals that are looked at at once.
const APPROVALS_MAX: usize = 10_000;

const PINS: &str = "pins";
const APPROVALS: &str = "approvals";

/// The place in the state directory, which it holds the path of.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// An operator's approval of one definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Whose tool.
    pub upstream: String,
    /// The upstream's own name of the tool.
    pub tool: String,
    /// The definition, by its hash.
    pub hash: String,
}

impl Folder {
    /// The place in this state directory.
    pub fn new(state_directory: &Path) -> Self {
        Self(state_directory.to_owned())
    }

    /// The file of one upstream, for people.
    pub fn path(&self, upstream: &str) -> PathBuf {
        self.0.join(PINS).join(file_name(upstream))
    }

    /// The directory of all files, which is made if there is none.
    fn make(&self) -> io::Result<Dir> {
        let pins = Dir::open(&self.0)?.make_subdirectory(PINS)?;
        pins.make_subdirectory(APPROVALS)?;
        Ok(pins)
    }

    /// The directory of all files; `None`: nothing was ever kept.
    fn pins(&self) -> io::Result<Option<Dir>> {
        present(Dir::open(&self.0).and_then(|state| state.subdirectory(PINS)))
    }

    fn approvals(&self) -> io::Result<Option<Dir>> {
        let Some(pins) = self.pins()? else { return Ok(None) };
        present(pins.subdirectory(APPROVALS))
    }

    /// The pins that are kept of an upstream; `None`: none ever were.
    pub fn read(&self, upstream: &str) -> io::Result<Option<PinnedTools>> {
        let Some(pins) = self.pins()? else { return Ok(None) };
        let Some(text) = pins.text(file_name(upstream).as_ref(), FILE_BYTES_MAX)? else { return Ok(None) };
        record::read(&text).map(Some)
    }

    /// Replaces what is kept of an upstream; `text` is that of [`record::text_of`].
    pub fn write(&self, upstream: &str, text: &str) -> io::Result<()> {
        self.make()?.replace(file_name(upstream).as_ref(), text.as_bytes(), None)
    }

    /// Leaves an approval for the gateway.
    pub fn approve(&self, approval: &Approval) -> io::Result<()> {
        let approvals = self.make()?.subdirectory(APPROVALS)?;
        let name = Hash::of(&format!("{}\n{}", approval.upstream, approval.tool)).to_string();
        let name = format!("{}-{}.json", &name[..16], approval.hash);
        approvals.replace(name.as_ref(), serde_json::to_string(approval)?.as_bytes(), None)
    }

    /// The approvals that wait, with the names of their files. One that cannot be read is an error of its own.
    pub fn approvals_left(&self) -> io::Result<Vec<(OsString, io::Result<Approval>)>> {
        let Some(approvals) = self.approvals()? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for name in approvals.names()?.take(APPROVALS_MAX) {
            let name = name?;
            if Path::new(&name).extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = approvals.text(&name, APPROVAL_BYTES_MAX).and_then(|text| {
                let text = text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                Ok(serde_json::from_str(&text)?)
            });
            found.push((name, read));
        }
        Ok(found)
    }

    /// Takes approvals away, by the names of their files. Those that are gone, and why the first of the others is not.
    pub fn remove_approvals(&self, names: Vec<OsString>) -> (Vec<OsString>, io::Result<()>) {
        let approvals = match self.approvals() {
            Ok(Some(approvals)) => approvals,
            Ok(None) => return (names, Ok(())),
            Err(error) => return (Vec::new(), Err(error)),
        };
        let (mut gone, mut first) = (Vec::new(), Ok(()));
        for name in names {
            match approvals.remove(&name) {
                Ok(()) => gone.push(name),
                Err(error) if error.kind() == io::ErrorKind::NotFound => gone.push(name),
                Err(error) => first = first.and(Err(error)),
            }
        }
        (gone, first)
    }
}

fn file_name(upstream: &str) -> String {
    format!("{upstream}.json")
}

/// The folder that was opened; `None`: there is none.
fn present(opened: io::Result<Dir>) -> io::Result<Option<Dir>> {
    match opened {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::pin_book::{Definition, ListSource, ListedTool, PinBook};
    use super::super::record::Approvals;
    use super::*;
    use config::PinMode;
    use protocol::canonical::canonical;
    use protocol::json::Scratch;

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

    fn text_of(book: &PinBook, began: Option<u64>) -> String {
        record::text_of(book, began, None, &Approvals::default())
    }

    fn book(definitions: &[(&str, &str)]) -> PinBook {
        let mut book = PinBook::new(1 << 20);
        let listed: Vec<ListedTool> = definitions
            .iter()
            .map(|(name, text)| {
                let form = canonical(text.as_bytes(), &mut Scratch::default(), 128).expect("JSON");
                ListedTool { name: Some((*name).to_owned()), definition: Definition::new(form) }
            })
            .collect();
        book.look(ListSource::Own(0), PinMode::Block, &listed, true);
        book
    }

    #[test]
    fn what_was_written_is_read() {
        let directory = Directory::new("written");
        let folder = Folder::new(&directory.0);
        assert!(folder.read("up").expect("a place").is_none());
        let mut book = book(&[("a", r#"{"name":"a","n":1e400,"s":"\ud800"}"#), ("b", "{}")]);
        book.complete();
        folder.write("up", &text_of(&book, Some(7))).expect("written");
        let kept = folder.read("up").expect("readable").expect("a file");
        assert!(kept.is_complete);
        assert_eq!(kept.began, Some(7));
        assert_eq!(&kept.tools, book.tools());
        let mode = fs::metadata(folder.path("up")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let directory = Directory::new("damaged");
        let folder = Folder::new(&directory.0);
        let good = text_of(&book(&[("a", r#"{"name":"a"}"#)]), None);
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
