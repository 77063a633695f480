//! The journal's text: one line for each change of a session's state.
//!
//! A line is a checksum, what happened, and to what, separated by single spaces. Lines that are damaged, torn
//! or not understood are skipped and counted; every other line still counts. Of what is read only the last
//! state is kept, without what has expired.
//!
//! Deliberately not here: files and threads (see `writer.rs`).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;

use super::SessionId;
use super::given_ids::GivenDigests;
use super::session_state::UpstreamSession;
use super::subscribed_uris::SubscribedUris;
use super::tasks::{self, Origin, TaskKey, TaskOwner};
use crate::upstream::ReplicaKey;
use protocol::level::Level;
use protocol::version::LegacyVersion;

/// Upstream session ids longer than this are not written.
const UPSTREAM_ID_BYTES_MAX: usize = 4 << 10;
const CHECKSUM_CHARS: usize = 8;
/// Tasks that are read back: others must not take the journal's room from sessions. No more are remembered either.
const TASKS_MAX: usize = 200_000;

#[derive(Clone, Copy, Debug)]
pub(super) enum JournalRecord<'a> {
    Opened {
        session: SessionId,
        expires_s: u64,
        upstream: &'a str,
        opened: &'a UpstreamSession,
    },
    Lost {
        session: SessionId,
        upstream: &'a str,
    },
    Level {
        session: SessionId,
        expires_s: u64,
        level: Level,
    },
    /// The client wants to be told when a resource changes.
    Subscribed {
        session: SessionId,
        expires_s: u64,
        upstream: &'a str,
        uri: &'a str,
    },
    Unsubscribed {
        session: SessionId,
        upstream: &'a str,
        uri: &'a str,
    },
    Ended {
        session: SessionId,
        expires_s: u64,
    },
    /// The session's state was dropped, not the session.
    Dropped {
        session: SessionId,
    },
}

impl JournalRecord<'_> {
    pub(super) fn session(&self) -> SessionId {
        match *self {
            Self::Opened { session, .. }
            | Self::Lost { session, .. }
            | Self::Level { session, .. }
            | Self::Subscribed { session, .. }
            | Self::Unsubscribed { session, .. }
            | Self::Ended { session, .. }
            | Self::Dropped { session } => session,
        }
    }

    /// The line, with its end. `None` if it would be longer than any line may be.
    pub(super) fn line(&self) -> Option<String> {
        // The checksum is put where these stand.
        let mut line = "00000000 ".to_owned();
        // Writing to a string does not fail.
        let _ = match *self {
            Self::Opened { session, expires_s, upstream, opened } => {
                let version = opened.version.as_str();
                let id = match &opened.id {
                    Some(id) if id.len() > UPSTREAM_ID_BYTES_MAX => return None,
                    Some(id) => format!("={}", URL_SAFE_NO_PAD.encode(id)),
                    None => "-".to_owned(),
                };
                let replica = opened.replica.map(|ReplicaKey(key)| format!(" {key:x}")).unwrap_or_default();
                write!(line, "opened {session:?} {expires_s} {upstream} {version} {id}{replica}")
            }
            Self::Lost { session, upstream } => write!(line, "lost {session:?} {upstream}"),
            Self::Level { session, expires_s, level } => {
                write!(line, "level {session:?} {expires_s} {}", level.as_str())
            }
            Self::Subscribed { session, expires_s, upstream, uri } => {
                write!(line, "subscribed {session:?} {expires_s} {upstream} ={}", URL_SAFE_NO_PAD.encode(uri))
            }
            Self::Unsubscribed { session, upstream, uri } => {
                write!(line, "unsubscribed {session:?} {upstream} ={}", URL_SAFE_NO_PAD.encode(uri))
            }
            Self::Ended { session, expires_s } => write!(line, "ended {session:?} {expires_s}"),
            Self::Dropped { session } => write!(line, "dropped {session:?}"),
        };
        with_checksum(line)
    }
}

/// The line that says how a task was made, with its end.
pub(super) fn task_line(key: &TaskKey, record: &tasks::TaskRecord) -> String {
    let key = u128::from_be_bytes(*key);
    let tasks::TaskRecord { owner: TaskOwner(owner), expires_s, origin } = record;
    let session = origin.session.map_or_else(|| "-".to_owned(), |session| format!("{session:?}"));
    let tool = URL_SAFE_NO_PAD.encode(&*origin.tool);
    with_checksum(format!("00000000 task {key:032x} {expires_s} {session} ={tool} {owner:x}"))
        .unwrap_or_default()
}

/// The line that says what the client of a session was given, with its end.
pub(super) fn given_line(session: SessionId, expires_s: u64, given: &GivenDigests) -> String {
    with_checksum(format!("00000000 {}", given.words(session, expires_s))).unwrap_or_default()
}

/// What such a line says, if it is about this task.
pub(super) fn read_task(line: &[u8], key: &TaskKey) -> Option<tasks::TaskRecord> {
    Replay::read(line, 0).ok()?.tasks.remove(key)
}

fn with_checksum(mut line: String) -> Option<String> {
    let checksum = checksum(line.get(CHECKSUM_CHARS + 1..)?);
    line.replace_range(..CHECKSUM_CHARS, &checksum);
    line.push('\n');
    Some(line)
}

/// What a journal says in the end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replay {
    pub(super) sessions: HashMap<SessionId, ReplayedSession>,
    pub(super) revoked: HashMap<SessionId, u64>,
    pub(super) tasks: HashMap<TaskKey, tasks::TaskRecord>,
    /// Lines that said nothing.
    pub(super) lines_skipped: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReplayedSession {
    pub(super) expires_s: u64,
    pub(super) level: Option<Level>,
    pub(super) upstreams: HashMap<Box<str>, UpstreamSession>,
    pub(super) subscribed: SubscribedUris,
    /// What its client was given by the process that ended last; `None`: it is not known.
    pub(super) given: Option<GivenDigests>,
}

impl Replay {
    /// Reads a journal. What has expired by `now_s` is left out.
    pub(super) fn read(mut journal: impl BufRead, now_s: u64) -> io::Result<Self> {
        let mut replay = Self::default();
        let mut line = Vec::new();
        while journal.read_until(b'\n', &mut line)? > 0 {
            let is_whole = line.pop_if(|last| *last == b'\n').is_some();
            // The end of a line that could not be written whole leaves an empty one.
            if !line.is_empty() && (!is_whole || replay.apply(&line).is_none()) {
                replay.lines_skipped += 1;
            }
            line.clear();
        }
        replay.revoked.retain(|_, expires_s| *expires_s > now_s);
        replay.tasks.retain(|_, task| task.expires_s > now_s);
        replay.drop_tasks_beyond(TASKS_MAX);
        replay.sessions.retain(|_, session| {
            let has_state = session.level.is_some() || !session.subscribed.is_empty();
            session.expires_s > now_s && (has_state || !session.upstreams.is_empty())
        });
        Ok(replay)
    }

    /// The shortest journal that says the same, but for what clients were given: the next process gives more, and may not
    /// come to write that down.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let ended = self.revoked.iter().filter_map(|(session, expires_s)| {
            JournalRecord::Ended { session: *session, expires_s: *expires_s }.line()
        });
        let live = self.sessions.iter().flat_map(|(session, replayed)| {
            let (session, expires_s) = (*session, replayed.expires_s);
            let level = replayed.level.map(|level| JournalRecord::Level { session, expires_s, level });
            let opened = replayed.upstreams.iter().map(move |(upstream, opened)| JournalRecord::Opened {
                session,
                expires_s,
                upstream,
                opened,
            });
            let subscribed = replayed
                .subscribed
                .iter()
                .map(move |(upstream, uri)| JournalRecord::Subscribed { session, expires_s, upstream, uri });
            level.into_iter().chain(subscribed).chain(opened).filter_map(|record| record.line())
        });
        let tasks = self.tasks.iter().map(|(key, task)| task_line(key, task));
        ended.chain(live).chain(tasks)
    }

    /// Keeps of each owner's those that live longest; who has most loses first.
    fn drop_tasks_beyond(&mut self, tasks_max: usize) {
        if self.tasks.len() <= tasks_max {
            return;
        }
        let mut of_owners: HashMap<TaskOwner, Vec<(u64, TaskKey)>> = HashMap::new();
        for (key, task) in &self.tasks {
            of_owners.entry(task.owner).or_default().push((task.expires_s, *key));
        }
        let mut ranked = Vec::with_capacity(self.tasks.len());
        for mut tasks in of_owners.into_values() {
            tasks.sort_unstable_by_key(|(expires_s, _)| Reverse(*expires_s));
            ranked.extend(
                tasks.into_iter().enumerate().map(|(rank, (ends_s, key))| (rank, Reverse(ends_s), key)),
            );
        }
        ranked.sort_unstable();
        for (.., key) in ranked.get(tasks_max..).unwrap_or_default() {
            self.tasks.remove(key);
        }
    }

    /// `None` if the line cannot be understood.
    fn apply(&mut self, line: &[u8]) -> Option<()> {
        let (sum, record) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        if sum != checksum(record) {
            return None;
        }
        let mut words = record.split(' ');
        let what = words.next()?;
        let session = SessionId(u128::from_str_radix(words.next()?, 16).ok()?);
        match what {
            "opened" => self.apply_opened(session, words)?,
            "lost" => {
                let upstream = words.next()?;
                if let Some(live) = self.sessions.get_mut(&session) {
                    live.upstreams.remove(upstream);
                }
            }
            "level" => {
                let expires_s = words.next()?.parse().ok()?;
                let level = Level::of(words.next()?)?;
                if let Some(live) = self.live(session, expires_s) {
                    live.level = Some(level);
                }
            }
            "subscribed" => {
                let expires_s = words.next()?.parse().ok()?;
                let (upstream, uri) = (words.next()?, text(words.next()?)?);
                if let Some(live) = self.live(session, expires_s) {
                    // It was within the bound when it was written.
                    let _ = live.subscribed.add(upstream, &uri, usize::MAX);
                }
            }
            "unsubscribed" => {
                let (upstream, uri) = (words.next()?, text(words.next()?)?);
                if let Some(live) = self.sessions.get_mut(&session) {
                    live.subscribed.remove(upstream, &uri);
                }
            }
            "ended" => {
                self.revoked.insert(session, words.next()?.parse().ok()?);
                self.sessions.remove(&session);
            }
            "dropped" => {
                self.sessions.remove(&session);
            }
            "given" => {
                words.next()?;
                // Without them any id passes, which is no damage.
                let given = GivenDigests::read(words);
                if let Some(live) = self.sessions.get_mut(&session) {
                    live.given = given;
                }
            }
            "task" => self.apply_task(session, words)?,
            _ => return None,
        }
        Some(())
    }

    fn apply_opened<'w>(
        &mut self,
        session: SessionId,
        mut words: impl Iterator<Item = &'w str>,
    ) -> Option<()> {
        let expires_s = words.next()?.parse().ok()?;
        let upstream = words.next()?.into();
        let version = LegacyVersion::of(words.next()?)?;
        let id = match words.next()? {
            "-" => None,
            id => Some(upstream_id(id)?),
        };
        let replica = match words.next() {
            Some(key) => Some(ReplicaKey(u64::from_str_radix(key, 16).ok()?)),
            None => None,
        };
        if let Some(live) = self.live(session, expires_s) {
            live.upstreams.insert(upstream, UpstreamSession::new(id, version).at(replica));
        }
        Some(())
    }

    fn apply_task<'w>(&mut self, session: SessionId, mut words: impl Iterator<Item = &'w str>) -> Option<()> {
        let expires_s = words.next()?.parse().ok()?;
        let made_in = match words.next()? {
            "-" => None,
            id => Some(SessionId(u128::from_str_radix(id, 16).ok()?)),
        };
        let origin = Origin { session: made_in, tool: text(words.next()?)?.into() };
        // Older versions did not write it.
        let owner = match words.next() {
            Some(owner) => TaskOwner(u64::from_str_radix(owner, 16).ok()?),
            None => TaskOwner::default(),
        };
        self.tasks.insert(session.0.to_be_bytes(), tasks::TaskRecord { owner, expires_s, origin });
        Some(())
    }

    /// The session's state, unless it was ended.
    fn live(&mut self, session: SessionId, expires_s: u64) -> Option<&mut ReplayedSession> {
        if self.revoked.contains_key(&session) {
            return None;
        }
        let live = self.sessions.entry(session).or_default();
        live.expires_s = expires_s;
        Some(live)
    }
}

fn upstream_id(word: &str) -> Option<HeaderValue> {
    let mut id = HeaderValue::from_bytes(&URL_SAFE_NO_PAD.decode(word.strip_prefix('=')?).ok()?).ok()?;
    id.set_sensitive(true);
    Some(id)
}

fn text(word: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(word.strip_prefix('=')?).ok()?).ok()
}

/// FNV-1a: notices what a disk or a stopped process does to a line, and keeps nobody from writing one.
fn checksum(record: &str) -> String {
    let sum =
        record.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{sum:08x}")
}

#[cfg(test)]
mod tests;
