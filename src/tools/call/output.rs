//! What a call gave, for a person: text as it is, files saved or described.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::terminal;
use crate::terminal::paint::{FAINT, STRONG, USE, painted};
use client::tool::result::{ContentBlock, ToolResult, extension};
use protocol::text::{shown, shown_lines, shown_value};

/// How many numbers are tried for the name of a file.
const NUMBERS_MAX: u32 = 10_000;

/// Prints it. Files are written to `folder`, if there is one; an error names what could not be.
pub(super) fn print(outcome: &ToolResult, tool: &str, folder: Option<&Path>) -> Result<(), String> {
    for piece in &outcome.pieces {
        match piece {
            ContentBlock::Text { of, text } => {
                if let Some(of) = of {
                    terminal::put(painted(STRONG, shown(of)));
                }
                terminal::put(shown_lines(text));
            }
            ContentBlock::Link { uri, name } => {
                let name = name.as_deref().map(|name| format!("  {}", shown(name))).unwrap_or_default();
                terminal::put(format!("{}{name}", painted(USE, shown(uri))));
            }
            ContentBlock::File { what, media, bytes: None } => {
                terminal::put(painted(
                    FAINT,
                    format!("[{}, {}: not valid base64]", shown(what), shown(media)),
                ));
            }
            ContentBlock::File { what, media, bytes: Some(bytes) } => {
                let about = format!("{}, {}, {} bytes", shown(what), shown(media), bytes.len());
                let Some(folder) = folder else {
                    terminal::put(painted(FAINT, format!("[{about}; --save DIR writes it to a file]")));
                    continue;
                };
                let path = save(folder, tool, extension(media), bytes)
                    .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
                let about = painted(FAINT, format!("[{about}]"));
                terminal::put(format!("{}  {about}", painted(USE, path.display())));
            }
            ContentBlock::Other(value) => terminal::put(shown_value(value)),
        }
    }
    match &outcome.structured {
        Some(structured) if outcome.pieces.is_empty() => terminal::put(shown_value(structured)),
        // Servers say in text what it holds; a person need not read it twice.
        Some(_) => terminal::say(painted(FAINT, "(--json shows its structured content too)")),
        None => {}
    }
    if outcome.pieces.is_empty() && outcome.structured.is_none() {
        terminal::say(painted(FAINT, "the result is empty"));
    }
    Ok(())
}

/// Writes the files alone, and says where on standard error.
pub(super) fn save_all(outcome: &ToolResult, tool: &str, folder: &Path) -> Result<(), String> {
    for piece in &outcome.pieces {
        if let ContentBlock::File { media, bytes: Some(bytes), .. } = piece {
            let path = save(folder, tool, extension(media), bytes)
                .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
            terminal::say(painted(FAINT, path.display()));
        }
    }
    Ok(())
}

/// Writes a file of its own; one that is there stays as it is.
fn save(folder: &Path, tool: &str, extension: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let stem: String = tool.chars().map(|c| if is_plain(c) { c } else { '_' }).take(64).collect();
    for number in 1..NUMBERS_MAX {
        let path = folder.join(format!("{stem}-{number}.{extension}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => return file.write_all(bytes).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("it holds too many files of this name"))
}
