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

    /// The shortest journal that says the same.
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
mod tests {
    use super::*;

    const A: SessionId = SessionId(0xa << 100);
    const B: SessionId = SessionId(0xb << 100);

    fn opened(id: Option<&'static str>) -> UpstreamSession {
        UpstreamSession::new(id.map(HeaderValue::from_static), LegacyVersion::V2025_06_18)
    }

    fn text(records: &[JournalRecord<'_>]) -> String {
        records.iter().map(|record| record.line().expect("a line")).collect()
    }

    fn read(text: impl AsRef<[u8]>, now_s: u64) -> Replay {
        Replay::read(text.as_ref(), now_s).expect("memory")
    }

    fn session(
        expires_s: u64,
        level: Option<Level>,
        upstreams: &[(&str, UpstreamSession)],
    ) -> ReplayedSession {
        let upstreams = upstreams.iter().map(|(name, opened)| ((*name).into(), opened.clone())).collect();
        ReplayedSession { expires_s, level, upstreams, subscribed: SubscribedUris::default() }
    }

    #[test]
    fn the_replica_that_knows_it_is_kept() {
        for (id, replica, kept) in [
            (Some("one"), Some(ReplicaKey(u64::MAX)), Some(ReplicaKey(u64::MAX))),
            (Some("one"), Some(ReplicaKey(0)), Some(ReplicaKey(0))),
            (Some("one"), None, None),
            (None, Some(ReplicaKey(7)), None),
        ] {
            let opened = opened(id).at(replica);
            let record = JournalRecord::Opened { session: A, expires_s: 100, upstream: "x", opened: &opened };
            let replay = read(text(&[record]), 1);
            assert_eq!(replay.sessions[&A].upstreams["x"].replica, kept, "{id:?} {replica:?}");
        }
    }

    #[test]
    fn the_last_word_counts() {
        let (one, two, none) = (opened(Some("one =?")), opened(Some("two")), opened(None));
        let open =
            |session, upstream, opened| JournalRecord::Opened { session, expires_s: 100, upstream, opened };
        let lost = |session, upstream| JournalRecord::Lost { session, upstream };
        let ended = |session| JournalRecord::Ended { session, expires_s: 100 };
        let level = |session, level| JournalRecord::Level { session, expires_s: 100, level };
        let subscribed =
            |upstream, uri| JournalRecord::Subscribed { session: A, expires_s: 100, upstream, uri };
        let unsubscribed = |upstream, uri| JournalRecord::Unsubscribed { session: A, upstream, uri };
        let own = SessionId::own(LegacyVersion::NEWEST);
        for (name, records, sessions, revoked) in [
            (
                "opened",
                vec![open(A, "x", &one)],
                vec![(A, session(100, None, &[("x", one.clone())]))],
                vec![],
            ),
            (
                "opened again",
                vec![open(A, "x", &one), lost(A, "x"), open(A, "x", &two), open(A, "y", &none)],
                vec![(A, session(100, None, &[("x", two.clone()), ("y", none.clone())]))],
                vec![],
            ),
            ("lost", vec![open(A, "x", &one), lost(A, "x")], vec![], vec![]),
            (
                "level",
                vec![level(A, Level::Info), level(A, Level::Error), lost(A, "x")],
                vec![(A, session(100, Some(Level::Error), &[]))],
                vec![],
            ),
            (
                "subscribed",
                vec![
                    subscribed("x", "u v"),
                    subscribed("x", "w"),
                    unsubscribed("x", "w"),
                    unsubscribed("y", "u v"),
                ],
                vec![(A, {
                    let mut replayed = session(100, None, &[]);
                    replayed.subscribed.add("x", "u v", 1).expect("room");
                    replayed
                })],
                vec![],
            ),
            ("unsubscribed", vec![subscribed("x", "u v"), unsubscribed("x", "u v")], vec![], vec![]),
            (
                "ended",
                vec![open(A, "x", &one), ended(A), open(A, "y", &two), level(A, Level::Info)],
                vec![],
                vec![A],
            ),
            (
                "dropped and used again",
                vec![open(A, "x", &one), JournalRecord::Dropped { session: A }, open(A, "y", &two)],
                vec![(A, session(100, None, &[("y", two.clone())]))],
                vec![],
            ),
            (
                "several",
                vec![open(A, "x", &one), ended(B), open(own, "x", &none)],
                vec![
                    (A, session(100, None, &[("x", one.clone())])),
                    (own, session(100, None, &[("x", none.clone())])),
                ],
                vec![B],
            ),
        ] {
            let replay = read(text(&records), 50);
            let expected = Replay {
                tasks: HashMap::new(),
                sessions: sessions.into_iter().collect(),
                revoked: revoked.into_iter().map(|session| (session, 100)).collect(),
                lines_skipped: 0,
            };
            assert_eq!(replay, expected, "{name}");
            assert_eq!(read(replay.lines().collect::<String>(), 50), expected, "{name}, written anew");
            assert_eq!(read(text(&records), 100), Replay::default(), "{name}, expired");
        }
    }

    #[test]
    fn damage_costs_the_damaged_lines_only() {
        let one = opened(Some("one"));
        let first = JournalRecord::Opened { session: A, expires_s: 100, upstream: "x", opened: &one };
        let last = JournalRecord::Ended { session: B, expires_s: 100 };
        let (first, last) = (text(&[first]).into_bytes(), text(&[last]).into_bytes());
        let whole = read([&*first, &last].concat(), 0);
        assert_eq!((whole.sessions.len(), whole.revoked.len()), (1, 1));
        for garbage in
            [&b"\xff\xfe\0"[..], b"00000000 ended 1 2", b"no such thing", b" ", &vec![b'x'; 1 << 20]]
        {
            let replay = read([&*first, garbage, b"\n\n", &last].concat(), 0);
            assert_eq!(replay, Replay { lines_skipped: 1, ..read([&*first, &last].concat(), 0) });
        }
        for end in 1..last.len() {
            let replay = read([&*first, &last[..end]].concat(), 0);
            assert_eq!(
                (replay.sessions.len(), replay.revoked.len(), replay.lines_skipped),
                (1, 0, 1),
                "{end}"
            );
        }
        for byte in 0..first.len() - 1 {
            let mut damaged = first.clone();
            damaged[byte] ^= 1;
            assert!(read(&damaged, 0).sessions.is_empty(), "byte {byte}");
        }
    }

    fn task(owner: u64, expires_s: u64, session: Option<SessionId>) -> tasks::TaskRecord {
        let origin = Origin { session, tool: "a tool".into() };
        tasks::TaskRecord { owner: TaskOwner(owner), expires_s, origin }
    }

    #[test]
    fn tasks_are_kept_until_they_expire() {
        let (one, two) = ([1; 16], [0xff; 16]);
        let (first, second) = (task(0, 10, None), task(u64::MAX, 20, Some(A)));
        let lines = task_line(&one, &first) + &task_line(&two, &second);
        let replay = read(&lines, 5);
        assert_eq!(replay.lines_skipped, 0);
        assert_eq!(replay.tasks, [(one, first.clone()), (two, second.clone())].into());
        let again: String = replay.lines().collect();
        assert_eq!(read(again, 10).tasks, [(two, second)].into());
        assert_eq!(read_task(lines.as_bytes(), &one), Some(first));
        assert_eq!(read_task(lines.as_bytes(), &[7; 16]), None);
        let mut replay = read(&lines, 5);
        replay.drop_tasks_beyond(1);
        assert_eq!(replay.tasks.keys().collect::<Vec<_>>(), [&two]);
    }

    #[test]
    fn a_task_that_an_older_version_wrote_is_known() {
        let line = with_checksum(format!("00000000 task {:032x} 10 - =", 7)).expect("a line");
        let replay = read(line, 5);
        let kept = replay.tasks.values().map(|task| (task.owner, task.expires_s));
        assert_eq!((kept.collect::<Vec<_>>(), replay.lines_skipped), (vec![(TaskOwner(0), 10)], 0));
    }

    #[test]
    fn as_many_tasks_are_read_as_may_be() {
        let of = |bytes: std::ops::Range<u8>, owner, expires_s| {
            bytes.map(|byte| task_line(&[byte; 16], &task(owner, expires_s, None))).collect::<String>()
        };
        let mut replay = read(of(0..5, 1, 10), 5);
        replay.drop_tasks_beyond(3);
        assert_eq!(replay.tasks.len(), 3, "though all end in the same second");
        let mut replay = read(of(0..5, 1, 99) + &of(5..7, 2, 10), 5);
        replay.drop_tasks_beyond(4);
        let of_other = replay.tasks.values().filter(|task| task.owner == TaskOwner(2)).count();
        assert_eq!(
            (replay.tasks.len(), of_other),
            (4, 2),
            "who has most loses first, however long they live"
        );
    }

    #[test]
    fn what_no_line_can_hold_is_not_written() {
        let id = HeaderValue::from_str(&"x".repeat(UPSTREAM_ID_BYTES_MAX + 1)).expect("a value");
        let opened = UpstreamSession::new(Some(id), LegacyVersion::NEWEST);
        assert!(
            JournalRecord::Opened { session: A, expires_s: 1, upstream: "x", opened: &opened }
                .line()
                .is_none()
        );
    }
}
