//! The last complete lists of upstreams, kept in the state directory across restarts: `lists/NAME` for each upstream.
//!
//! A file is sealed with the keys of the sessions, and bound to how its upstream is reached and to what it is shown: under
//! another configuration, with other credentials, or after a damage it does not open, and the start is a fresh one. It is
//! written whole, some time after its lists have changed, and read before its upstream is served; it is removed with it.
//! All of it is a shortcut: where the directory cannot be read or written, lists are fetched as if there were none.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::fetch::{self, note_annotated};
use super::keep::publish;
use super::owner::ListOwner;
use super::pinned;
use super::upstream_dialect::is_own;
use crate::clock;
use crate::context::state::State;
use crate::directory::Dir;
use crate::snapshot::Snapshot;
use crate::tables::lists::cache::{PartKey, Scope};
use crate::tables::lists::kept::{self, KeptPart, WrittenPart};
use crate::tables::lists::part::{Content, ListPart, PartRead, read};
use crate::tables::lists::{CatalogQuery, List};
use crate::upstream::{Upstream, UpstreamId};
use config::LimitsConfig;
use net::tasks::Tasks;
use protocol::json::Scratch;
use protocol::version::Era;
use tokens::sealing::SealingKeys;

const LISTS: &str = "lists";
/// The beginning of a file; those of another layout are left aside.
const LAYOUT: &[u8] = b"trunkline lists 2\n";
/// What a file has beside the lists, such as their lengths.
const FILE_BYTES_MORE: u64 = 1 << 20;
/// A list that could not be written is written again after so long.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Changes that come together are written together.
const WRITE_DELAY: Duration = Duration::from_millis(250);
/// After a write there is none for so many times as long as that took.
const RESTS: u32 = 9;

/// Reads and writes the files.
#[derive(Debug)]
pub(crate) struct KeptFiles {
    state: Arc<State>,
    folder: Folder,
    followed: Arc<Snapshot>,
    /// Upstreams whose lists could not be written, with when it is tried again, and why, so that the log does not repeat
    /// itself.
    failed: HashMap<UpstreamId, FailedWrite>,
}

#[derive(Debug)]
struct FailedWrite {
    retry_at: Instant,
    why: String,
}

/// The place in the state directory, which it holds the path of.
#[derive(Clone, Debug)]
struct Folder {
    state_directory: PathBuf,
    /// A longer file is not read.
    file_bytes_max: u64,
}

/// A list that was kept, as it is given out.
type ReadPart = (KeptPart, PartKey);

/// The lists that were kept of upstreams which are not served yet.
pub(crate) struct KeptLists(Vec<(Arc<Upstream>, ReadLists)>);

/// The lists of a file.
struct ReadLists {
    parts: Vec<ReadPart>,
    /// When it was written, in seconds since 1970.
    written_s: u64,
    /// They are not in its file, or in that of the one before.
    is_unwritten: bool,
}

impl KeptFiles {
    /// Reads what was kept of the upstreams there are now, so that it counts before the first call. `None`: there is no
    /// place for it.
    pub(crate) fn open(state: &Arc<State>, state_directory: Option<PathBuf>) -> Option<Self> {
        let folder = Folder::new(state, state_directory?);
        let followed = state.snapshot.load_full();
        KeptLists::read_from(&folder, state, &followed, &[]).take_up(state, &followed);
        Some(Self { state: Arc::clone(state), folder, followed, failed: HashMap::new() })
    }

    /// Writes until it is to stop, and then once more.
    pub(crate) async fn run(mut self, tasks: Tasks, stop: CancellationToken) {
        self.clear(&tasks).await;
        let mut rests_until = clock::now();
        loop {
            let _ = stop.run_until_cancelled(self.wait(rests_until)).await;
            // A pass during which it is to stop is followed by another.
            let is_last = stop.is_cancelled();
            self.follow(&tasks).await;
            self.retry(is_last);
            let began = clock::now();
            for (id, parts) in self.state.catalog.kept.take_unwritten() {
                self.write(&tasks, id, parts).await;
            }
            self.tell();
            if is_last {
                return;
            }
            rests_until = clock::now() + clock::since(began) * RESTS;
        }
    }

    /// Waits until something is to be written: for a change of a list or of the configuration, or until a write is to be
    /// tried again. Changes that come meanwhile are seen as well.
    async fn wait(&self, rests_until: Instant) {
        let changed = self.state.catalog.kept.changed.notified();
        match self.failed.values().map(|failed| failed.retry_at).min() {
            Some(retry_at) => _ = timeout_at(retry_at.into(), changed).await,
            None => changed.await,
        }
        sleep_until(rests_until.max(clock::now() + WRITE_DELAY).into()).await;
    }

    /// Has lists written once more that could not be written; all of them at the end.
    fn retry(&mut self, is_last: bool) {
        let (kept, now) = (&self.state.catalog.kept, clock::now());
        self.failed.retain(|id, failed| {
            let is_due = is_last || failed.retry_at <= now;
            if is_due {
                failed.retry_at = now + RETRY_INTERVAL;
                kept.note_unwritten(*id);
            }
            kept.has(*id)
        });
    }

    /// Lets go of upstreams that are gone, with their files.
    async fn follow(&mut self, tasks: &Tasks) {
        let snapshot = self.state.snapshot.load_full();
        let living = ids(&snapshot.upstreams);
        // Of one that is gone some may have been fetched since.
        self.state.catalog.kept.retain(&living);
        if Arc::ptr_eq(&snapshot, &self.followed) {
            return;
        }
        let has_lost = self.followed.upstreams.iter().any(|upstream| !living.contains(&upstream.id));
        self.followed = snapshot;
        if has_lost {
            self.clear(tasks).await;
        }
    }

    async fn write(&mut self, tasks: &Tasks, id: UpstreamId, parts: Vec<KeptPart>) {
        let Some(upstream) = self.followed.upstreams.iter().find(|upstream| upstream.id == id) else {
            // It is newer than this configuration, or gone.
            self.state.catalog.kept.note_unwritten(id);
            return;
        };
        let (folder, name, clear) = (self.folder.clone(), upstream.config.name.clone(), binding(upstream));
        let keys = self.state.sessions.keys();
        let written = tasks.compute(move || folder.write(&name, &clear, &keys, &parts)).await;
        match written {
            Ok(()) => _ = self.failed.remove(&id),
            Err(error) => {
                let why = error.to_string();
                if !self.failed.values().any(|failed| failed.why == why) {
                    let path = self.folder.state_directory.join(LISTS);
                    tracing::warn!(path = %path.display(), error = why, "the lists of upstreams cannot be kept for the next start");
                }
                self.failed.insert(id, FailedWrite { retry_at: clock::now() + RETRY_INTERVAL, why });
            }
        }
    }

    /// Tells whether there are lists that could not be written.
    fn tell(&self) {
        let health = &self.state.catalog.files.lists;
        if let Some(failed) = self.failed.values().next() {
            health.note_behind(format!("{LISTS}: {}", failed.why), clock::now_s());
        } else if health.note_written() {
            tracing::info!("the lists of upstreams are kept in the state directory again");
        }
    }

    /// Removes what is kept of upstreams that are not configured.
    async fn clear(&self, tasks: &Tasks) {
        let names: HashSet<OsString> =
            self.followed.upstreams.iter().map(|upstream| upstream.config.name.clone().into()).collect();
        let folder = self.folder.clone();
        match tasks.compute(move || folder.clear(&names)).await {
            Ok(0) => {}
            Ok(removed) => {
                tracing::info!(
                    removed,
                    "lists of upstreams that are no longer configured are not kept any more"
                );
            }
            Err(error) => tracing::debug!(%error, "the kept lists of former upstreams stay"),
        }
    }
}

impl Folder {
    fn new(state: &State, state_directory: PathBuf) -> Self {
        // The bound may have been higher when a file was written.
        let file_bytes_max = 2 * state.catalog.kept.bytes_max() as u64 + FILE_BYTES_MORE;
        Self { state_directory, file_bytes_max }
    }

    /// The file of an upstream, and when it was written; `None`: there is none.
    fn read(&self, name: &str) -> io::Result<Option<(Vec<u8>, u64)>> {
        let opened = Dir::open(&self.state_directory).and_then(|state| state.subdirectory(LISTS));
        let file = match opened {
            Ok(lists) => lists.file(name.as_ref())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        file.map(|file| Ok((file.bytes(self.file_bytes_max)?, file.written_s().unwrap_or_default())))
            .transpose()
    }

    fn write(&self, name: &str, clear: &[u8], keys: &SealingKeys, parts: &[KeptPart]) -> io::Result<()> {
        let sealed = keys.seal_record(clear, &kept::write(parts));
        let sealed = sealed.ok_or_else(|| io::Error::other("they are too long to be sealed"))?;
        let lists = Dir::open(&self.state_directory)?.make_subdirectory(LISTS)?;
        lists.replace(name.as_ref(), &[LAYOUT, &sealed].concat(), None)
    }

    /// Removes all files but those of these names, and counts them.
    fn clear(&self, names: &HashSet<OsString>) -> io::Result<usize> {
        let lists = match Dir::open(&self.state_directory).and_then(|state| state.subdirectory(LISTS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            lists => lists?,
        };
        let found: Vec<OsString> = lists.names()?.collect::<io::Result<_>>()?;
        let strange: Vec<&OsString> = found.iter().filter(|name| !names.contains(*name)).collect();
        for name in &strange {
            lists.remove(name)?;
        }
        Ok(strange.len())
    }
}

impl KeptLists {
    /// Reads what was kept in `state_directory` of the upstreams of `snapshot` that are not among `known`, or is kept of
    /// those of their names.
    pub(crate) fn read(
        state_directory: PathBuf,
        state: &State,
        snapshot: &Snapshot,
        known: &[Arc<Upstream>],
    ) -> Self {
        Self::read_from(&Folder::new(state, state_directory), state, snapshot, known)
    }

    fn read_from(folder: &Folder, state: &State, snapshot: &Snapshot, known: &[Arc<Upstream>]) -> Self {
        let (keys, known_ids) = (state.sessions.keys(), ids(known));
        let new = snapshot.upstreams.iter().filter(|upstream| !known_ids.contains(&upstream.id));
        let lists = new.filter_map(|upstream| {
            let reading = Reading { upstream, limits: &snapshot.limits };
            let lists = reading.of_former(state, known).or_else(|| reading.file(folder, &keys))?;
            Some((Arc::clone(upstream), lists))
        });
        Self(lists.collect())
    }

    /// Gives them out until they can be fetched, as soon as `snapshot` is served.
    pub(crate) fn take_up(self, state: &State, snapshot: &Snapshot) {
        // One that is configured otherwise may be another, with the same list.
        state.catalog.kept.retain(&ids(&snapshot.upstreams));
        for (upstream, lists) in self.0 {
            take_up(state, &upstream, lists);
        }
    }
}

/// Judges the tools that are kept of `upstream` by its pins again, for a program that rests.
pub(crate) fn judge_again(state: &State, upstream: &Upstream, limits: &LimitsConfig) {
    let parts = state.catalog.kept.of(upstream.id, List::Tools);
    for (part, key) in (Reading { upstream, limits }).again(&parts) {
        publish(upstream, &key, &ListOwner::Gateway, &part.content);
        state.catalog.kept.note(upstream.id, part);
    }
}

/// Reading what was kept of one upstream.
struct Reading<'r> {
    upstream: &'r Upstream,
    limits: &'r LimitsConfig,
}

impl Reading<'_> {
    /// The lists of the one of its name before it, if its file would be read: that may not be written yet.
    fn of_former(&self, state: &State, known: &[Arc<Upstream>]) -> Option<ReadLists> {
        let former = known.iter().find(|known| known.config.name == self.upstream.config.name)?;
        let parts = state.catalog.kept.all(former.id);
        if parts.is_empty() || binding(former) != binding(self.upstream) {
            return None;
        }
        // A reload is no start: a program that was listed since that is not listed once more.
        if !former.listing.is_to_be_listed_after_use() {
            self.upstream.listing.note_listed_after_use();
        }
        let written_s = former.listing.kept_s().unwrap_or_else(clock::now_s);
        Some(ReadLists { parts: self.again(&parts), written_s, is_unwritten: true })
    }

    fn file(&self, folder: &Folder, keys: &SealingKeys) -> Option<ReadLists> {
        let name = &self.upstream.config.name;
        let why = match folder.read(name) {
            Ok(None) => return None,
            Ok(Some((file, written_s))) => match self.open(&file, keys) {
                Ok(parts) => return Some(ReadLists { parts, written_s, is_unwritten: false }),
                Err(why) => why.to_owned(),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            upstream = name,
            why,
            "the kept lists of an upstream are not used: they are fetched as at a first start"
        );
        None
    }

    fn open(&self, file: &[u8], keys: &SealingKeys) -> Result<Vec<ReadPart>, &'static str> {
        let sealed = file.strip_prefix(LAYOUT).ok_or("the file is of another version")?;
        let opened = keys.open_record(&binding(self.upstream), sealed);
        let text = opened.ok_or(
            "the file is damaged, or was written with another configuration, other credentials or another key",
        )?;
        let written = kept::read(&text.into()).ok_or("the file is of another version")?;
        Ok(self.all(written))
    }

    /// The same parts, as if they had been written.
    fn again(&self, parts: &[KeptPart]) -> Vec<ReadPart> {
        self.all(kept::read(&kept::write(parts).into()).unwrap_or_default())
    }

    /// A part that cannot be read is no reason against the rest.
    fn all(&self, written: Vec<WrittenPart>) -> Vec<ReadPart> {
        written.into_iter().flat_map(|part| self.parts(part).unwrap_or_default()).collect()
    }

    /// One content in all its dialects, which are of one era.
    fn parts(&self, written: WrittenPart) -> Option<Vec<ReadPart>> {
        let WrittenPart { list, dialects, is_absent, replies } = written;
        let kind = CatalogQuery::List(list);
        let era = dialects.first()?.era();
        let mut content = if is_absent { Content::absent() } else { self.content(kind, era, replies)? };
        if !pinned::leave_out_now(self.upstream, list, &mut content, self.limits.json_depth_max) {
            return None;
        }
        let content = Arc::new(content);
        let part = |dialect| {
            let key = PartKey { upstream: self.upstream.id, kind, scope: Scope::Gateway, dialect };
            (KeptPart { list, dialect, is_own: is_own(&dialect), content: Arc::clone(&content) }, key)
        };
        Some(dialects.into_iter().map(part).collect())
    }

    fn content(&self, kind: CatalogQuery, era: Era, replies: Vec<Bytes>) -> Option<Content> {
        let reading = fetch::reading(self.upstream, kind, era, self.limits);
        let mut scratch = Scratch::default();
        let mut content = Content { is_public: true, ..Content::default() };
        let mut annotated = HashMap::new();
        for reply in replies {
            let depth_max = self.limits.json_depth_max;
            let Ok(PartRead::Page(mut page)) = read(&reply, &reading, &mut scratch, depth_max) else {
                return None;
            };
            // The bound may have been higher.
            if page.cut_to(self.limits.list_entries_max.saturating_sub(content.items())) {
                return None;
            }
            note_annotated(&mut annotated, &page);
            // All pages are there.
            let _ = fetch::add(&mut content, kind, reply, page);
        }
        content.annotated = Arc::new(annotated);
        Some(content)
    }
}

fn ids(upstreams: &[Arc<Upstream>]) -> HashSet<UpstreamId> {
    upstreams.iter().map(|upstream| upstream.id).collect()
}

/// Gives out what was kept until it can be fetched, unless that was done already.
fn take_up(state: &State, upstream: &Upstream, lists: ReadLists) {
    let config = &upstream.config;
    let patience = config.stale_if_error.max(config.stale_while_revalidate);
    if patience.is_zero() && !upstream.is_lazy() {
        return;
    }
    let now = clock::now();
    for (part, key) in lists.parts {
        if state.catalog.parts.contains_key(&key) {
            continue;
        }
        let content = Arc::clone(&part.content);
        let kept = &state.catalog.kept;
        let is_kept =
            if lists.is_unwritten { kept.note(upstream.id, part) } else { kept.restore(upstream.id, part) };
        if !is_kept {
            continue;
        }
        publish(upstream, &key, &ListOwner::Gateway, &content);
        let count = key.kind.changed().map_or(0, |changed| upstream.changes.count(changed));
        let stale_until = now + patience;
        let old = ListPart { stale_until, count, is_kept: true, ..ListPart::old(content, now) };
        state.catalog.parts.insert(key, Arc::new(old));
        upstream.listing.note_kept(key.kind.index(), lists.written_s);
    }
}

/// The binding of a file: how the upstream is reached, and what it is shown.
fn binding(upstream: &Upstream) -> Vec<u8> {
    let config = &upstream.config;
    let mut digest = Sha256::new();
    let settings = format!("{:?} {:?} {:?}", config.credentials, config.host, config.transport);
    digest.update(settings);
    digest.update(upstream.access.material.fingerprint());
    [LAYOUT, upstream.session_key.as_bytes(), &digest.finalize()[..]].concat()
}
