//! Files that an operator names, opened so that nothing in their place holds up the reader: neither a FIFO without a writer
//! nor a device without an end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading; anything else is an error.
pub fn open(path: &Path) -> io::Result<File> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, fifo) = (folder.path().join("file"), folder.path().join("fifo"));
        std::fs::write(&file, "x").expect("written");
        assert!(open(&file).is_ok());
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        for path in [&*fifo, folder.path(), Path::new("/dev/zero")] {
            let error = open(path).expect_err("no regular file").to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
        assert_eq!(open(&folder.path().join("none")).expect_err("none").kind(), io::ErrorKind::NotFound);
    }
}
