//! What is known of the upstreams, kept in a file across restarts.
//!
//! An upstream is recognised by its name and its URLs or its command. Whatever in the file is not understood is left aside: it is a
//! shortcut, never the truth. Invariant: the file is replaced whole, and only its owner may read it.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::clock;
use crate::directory::Dir;
use crate::snapshot::Snapshot;
use crate::state_files::UpstreamFilesHealth;
use crate::upstream::Upstream;
use crate::upstream::facts::{EraFacts, EraIntroduction, Fact, RESULT_BYTES_MAX};
use net::tasks::Tasks;
use protocol::version::{LegacyVersion, MODERN};

const FILE_NAME: &str = "upstreams.json";
/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Changes that come together are written together.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// A file that could not be written is written again after so long.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Files of another layout are left aside.
const LAYOUT: u32 = 1;

#[derive(Debug)]
pub(super) struct Memory {
    directory: Option<PathBuf>,
    kept: Vec<RememberedUpstream>,
    tried: Option<Instant>,
    is_changed: bool,
    /// Locked by the write that is under way.
    written: Arc<Mutex<Written>>,
    health: Arc<UpstreamFilesHealth>,
}

/// The file as it is.
#[derive(Debug)]
struct Written {
    text: Arc<str>,
    /// It lacks something, because the last write failed.
    is_behind: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct MemoryFile {
    layout: u32,
    upstreams: Vec<RememberedUpstream>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RememberedUpstream {
    name: String,
    /// The digest of its URLs, or of its command.
    urls: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sse: bool,
    #[serde(default, skip_serializing_if = "KeptFact::is_unknown")]
    modern: KeptFact,
    #[serde(default, skip_serializing_if = "KeptFact::is_unknown")]
    legacy: KeptFact,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KeptFact {
    #[default]
    Unknown,
    Absent,
    Present {
        version: String,
        result: Box<RawValue>,
    },
}

impl Memory {
    /// Reads the file in `directory`; without one, nothing is kept. What comes of writes is noted in `health`.
    pub(super) fn open(directory: Option<PathBuf>, health: Arc<UpstreamFilesHealth>) -> Self {
        let read = directory.as_deref().and_then(|directory| {
            read(directory).unwrap_or_else(|error| {
                let path = directory.join(FILE_NAME);
                tracing::warn!(path = %path.display(), %error, "what was known of the upstreams is not used");
                None
            })
        });
        let (text, kept) = read.unwrap_or_default();
        let written = Arc::new(Mutex::new(Written { text: text.into(), is_behind: false }));
        Self { directory, kept, tried: None, is_changed: false, written, health }
    }

    /// What was known of an upstream at the last stop.
    pub(super) fn of(&self, config: &config::UpstreamConfig) -> Option<EraFacts> {
        let urls = digest(config);
        let kept = self.kept.iter().find(|kept| kept.name == config.name && kept.urls == urls)?;
        let modern = kept.modern.fact(|version| MODERN.contains(&version));
        let legacy = kept.legacy.fact(|version| LegacyVersion::of(version).is_some());
        let is_something = modern != Fact::Unknown || legacy != Fact::Unknown;
        // Half known, it would seem to lack what it had not been asked for yet.
        let was_tried = modern != Fact::Unknown && legacy != Fact::Unknown;
        is_something.then_some(EraFacts { modern, legacy, was_tried })
    }

    pub(super) fn speaks_sse(&self, config: &config::UpstreamConfig) -> bool {
        let urls = digest(config);
        self.kept.iter().any(|kept| kept.name == config.name && kept.urls == urls && kept.sse)
    }

    pub(super) fn change(&mut self) {
        self.is_changed = true;
    }

    /// Writes the file off this thread if it would change, at most once a second, and less often while that fails.
    pub(super) fn save_if_due(&mut self, snapshot: &Snapshot, tasks: &Tasks, now: Instant) {
        let Ok(written) = Arc::clone(&self.written).try_lock_owned() else { return };
        let interval = if written.is_behind { RETRY_INTERVAL } else { WRITE_INTERVAL };
        let is_early = self.tried.is_some_and(|tried| now < tried + interval);
        if is_early || !(self.is_changed || written.is_behind) {
            return;
        }
        if let Some(writing) = self.write(snapshot, tasks, written) {
            self.tried = Some(now);
            tasks.spawn(writing);
        }
    }

    /// Writes the file for the last time, after the write that is under way.
    pub(super) async fn finish(mut self, snapshot: &Snapshot, tasks: &Tasks) {
        let written = Arc::clone(&self.written).lock_owned().await;
        if let Some(writing) = self.write(snapshot, tasks, written) {
            writing.await;
        }
    }

    /// Replaces the file. `None`: it would not change.
    fn write(
        &mut self,
        snapshot: &Snapshot,
        tasks: &Tasks,
        mut written: OwnedMutexGuard<Written>,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let directory = self.directory.clone()?;
        self.is_changed = false;
        let upstreams = snapshot.upstreams.iter().map(|upstream| RememberedUpstream::of(upstream)).collect();
        // Nothing in it can fail to be JSON.
        let text = serde_json::to_string(&MemoryFile { layout: LAYOUT, upstreams }).ok()?;
        if *text == *written.text {
            written.is_behind = false;
            self.health.facts.note_written();
            return None;
        }
        let (tasks, health, text) = (tasks.clone(), Arc::clone(&self.health), Arc::<str>::from(text));
        Some(async move {
            let (path, new) = (directory.join(FILE_NAME), Arc::clone(&text));
            let replaced = tasks.compute(move || write(&directory, &new)).await;
            written.is_behind = replaced.is_err();
            match replaced {
                Ok(()) => {
                    written.text = text;
                    if health.facts.note_written() {
                        tracing::info!("what is known of the upstreams is kept in the state directory again");
                    }
                }
                Err(error) => {
                    if health.facts.note_behind(format!("{FILE_NAME}: {error}"), clock::now_s()) {
                        tracing::warn!(path = %path.display(), %error, "what is known of the upstreams cannot be kept");
                    }
                }
            }
        })
    }
}

impl RememberedUpstream {
    fn of(upstream: &Upstream) -> Self {
        let known = upstream.facts.known();
        Self {
            name: upstream.config.name.clone(),
            urls: digest(&upstream.config),
            sse: upstream.sse().is_some_and(|streams| streams.is_spoken()),
            modern: KeptFact::of(&known.modern),
            legacy: KeptFact::of(&known.legacy),
        }
    }
}

impl KeptFact {
    fn of(fact: &Fact) -> Self {
        match fact {
            Fact::Unknown => Self::Unknown,
            Fact::Absent => Self::Absent,
            Fact::Present(introduction) => {
                let result = String::from_utf8(introduction.result.to_vec()).ok();
                let result = result.and_then(|result| RawValue::from_string(result).ok());
                let version = introduction.version.to_string();
                result.map_or(Self::Unknown, |result| Self::Present { version, result })
            }
        }
    }

    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    fn fact(&self, is_known_version: impl Fn(&str) -> bool) -> Fact {
        match self {
            Self::Absent => Fact::Absent,
            Self::Present { version, result }
                if is_known_version(version)
                    && result.get().starts_with('{')
                    && result.get().len() <= RESULT_BYTES_MAX =>
            {
                let result = result.get().to_owned().into();
                Fact::Present(Arc::new(EraIntroduction { version: version.as_str().into(), result }))
            }
            Self::Unknown | Self::Present { .. } => Fact::Unknown,
        }
    }
}

fn digest(config: &config::UpstreamConfig) -> String {
    let mut digest = Sha256::new();
    for url in &config.urls {
        digest.update(format!("{}\n{}\n", url.authority, url.path_and_query));
    }
    if let Some(command) = &config.command {
        digest.update(format!("{command:?}"));
    }
    digest.finalize().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// The text of the file in `directory` and what it says; `None` if there is no file.
fn read(directory: &Path) -> io::Result<Option<(String, Vec<RememberedUpstream>)>> {
    let text = match Dir::open(directory) {
        Ok(directory) => directory.text(FILE_NAME.as_ref(), FILE_BYTES_MAX)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(text) = text else { return Ok(None) };
    let file: MemoryFile = serde_json::from_str(&text)?;
    if file.layout == LAYOUT {
        Ok(Some((text, file.upstreams)))
    } else {
        Err(io::Error::other("the file is of another version"))
    }
}

fn write(directory: &Path, text: &str) -> io::Result<()> {
    Dir::open(directory)?.replace(FILE_NAME.as_ref(), text.as_bytes(), None)
}
