//! The text in which what is pinned of an upstream is kept, in the state directory and where gateways share it.
//!
//! A text whose definitions do not have the hashes that it says is an error as a whole.

use std::collections::{BTreeMap, HashSet};
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::pin_book::{Definition, Pending, PinBook, PinnedTool};
use super::version::Version;
use protocol::canonical::{Hash, canonical};
use protocol::json::Scratch;

/// As deep as any configuration lets a message be.
const DEPTH_MAX: usize = 1100;
const LAYOUT: u32 = 1;

/// The pins of an upstream as they are kept.
#[derive(Debug, Default)]
pub struct PinnedTools {
    /// All tools.
    pub tools: BTreeMap<String, PinnedTool>,
    /// See [`PinBook::is_complete`].
    pub is_complete: bool,
    /// See [`Version::began`]. `None`: it was never shared.
    pub began: Option<u64>,
    /// The version of the record of all gateways that is part of this.
    pub(crate) version: Option<Version>,
    /// Approvals of the operator here that were not shared yet.
    pub approvals: Approvals,
}

/// Definitions by their tools and hashes.
pub(crate) type Approvals = HashSet<(String, Hash)>;

#[derive(Serialize, Deserialize)]
struct PinRecord {
    layout: u32,
    complete: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    tools: Vec<RecordTool>,
}

#[derive(Serialize, Deserialize)]
struct RecordTool {
    name: String,
    approved: Vec<RecordDefinition>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pending: Vec<RecordDefinition>,
}

#[derive(Serialize, Deserialize)]
struct RecordDefinition {
    sha256: String,
    /// See [`Pending::is_beside`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    beside: bool,
    /// See [`PinnedTools::approvals`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unshared: bool,
    definition: Box<RawValue>,
}

/// The pins that a text tells.
pub(crate) fn read(text: &str) -> io::Result<PinnedTools> {
    let record: PinRecord = serde_json::from_str(text)?;
    if record.layout != LAYOUT {
        return Err(io::Error::other("it is of another version"));
    }
    let mut scratch = Scratch::default();
    let PinRecord { complete: is_complete, began, .. } = record;
    let version = record.version.map(|text| Version::read(&text).ok_or("a version that cannot be read"));
    let version = version.transpose().map_err(io::Error::other)?;
    let mut kept = PinnedTools { is_complete, began, version, ..PinnedTools::default() };
    for RecordTool { name, approved, pending } in record.tools {
        let tool = PinnedTool {
            approved: approved.iter().map(|one| one.read(&mut scratch)).collect::<io::Result<_>>()?,
            pending: pending
                .iter()
                .map(|one| Ok(Pending::kept(one.read(&mut scratch)?, one.beside)))
                .collect::<io::Result<_>>()?,
        };
        let unshared = approved.iter().zip(&tool.approved).filter(|(written, _)| written.unshared);
        kept.approvals.extend(unshared.map(|(_, one)| (name.clone(), one.hash)));
        if kept.tools.insert(name, tool).is_some() {
            return Err(io::Error::other("a tool stands twice"));
        }
    }
    Ok(kept)
}

/// The text for the state directory.
pub(crate) fn text_of(
    book: &PinBook,
    began: Option<u64>,
    version: Option<Version>,
    approvals: &Approvals,
) -> String {
    let written = |name: &String, one: &Definition| {
        let unshared = approvals.contains(&(name.clone(), one.hash));
        Some(RecordDefinition { unshared, ..written(one)? })
    };
    let tools = book.tools().iter().map(|(name, tool)| RecordTool {
        name: name.clone(),
        approved: tool.approved.iter().filter_map(|one| written(name, one)).collect(),
        pending: tool.pending.iter().filter_map(waiting).collect(),
    });
    text(book.is_complete(), began, version, tools.collect())
}

/// The text for all gateways: each finds out by itself what waits.
pub(crate) fn shared_text_of(tools: &BTreeMap<String, PinnedTool>) -> String {
    let tools = tools.iter().filter(|(_, tool)| !tool.approved.is_empty());
    let tools = tools.map(|(name, tool)| RecordTool {
        name: name.clone(),
        approved: tool.approved.iter().filter_map(written).collect(),
        pending: Vec::new(),
    });
    text(true, None, None, tools.collect())
}

fn text(complete: bool, began: Option<u64>, version: Option<Version>, tools: Vec<RecordTool>) -> String {
    let version = version.map(Version::text);
    // Nothing in it can fail to be JSON.
    serde_json::to_string(&PinRecord { layout: LAYOUT, complete, began, version, tools }).unwrap_or_default()
}

fn waiting(pending: &Pending) -> Option<RecordDefinition> {
    Some(RecordDefinition { beside: pending.is_beside, ..written(&pending.definition)? })
}

fn written(definition: &Definition) -> Option<RecordDefinition> {
    let text = RawValue::from_string(definition.text.to_string()).ok()?;
    let sha256 = definition.hash.to_string();
    Some(RecordDefinition { sha256, beside: false, unshared: false, definition: text })
}

impl RecordDefinition {
    fn read(&self, scratch: &mut Scratch) -> io::Result<Definition> {
        let form = canonical(self.definition.get().as_bytes(), scratch, DEPTH_MAX);
        let definition = form.map(Definition::new);
        definition
            .filter(|definition| definition.hash.to_string() == self.sha256)
            .ok_or_else(|| io::Error::other("a definition does not have the hash that stands beside it"))
    }
}
